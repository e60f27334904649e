#include "cli/operation.h"

#include <stdio.h>
#include <string.h>

#include "base/base64.h"
#include "base/check.h"
#include "base/macros.h"
#include "base/text.h"
#include "base/uuid.h"
#include "canon/jcs.h"
#include "cli/backend.h"
#include "lib/inspect.h"

enum { OPERATION_ID_BYTES = 40 }; /* as in once.h */

/* ---- the document ------------------------------------------------------------------------ */

static bool status_of(struct slice name, enum once_status *ret)
{
    for (int i = ONCE_STATUS_IN_PROGRESS; i <= ONCE_COMPENSATED; i++) {
        if (slice_is(name, once_status_name((enum once_status)i))) {
            *ret = (enum once_status)i;
            return true;
        }
    }
    return false;
}

static uint64_t number_of(const struct json_value *root, const char *name)
{
    uint64_t value = 0;
    (void)text_u64(cli_member(root, slice_str(name)), &value); /* absent: 0 */
    return value;
}

static int64_t time_of(const struct json_value *root, const char *name)
{
    int64_t ms = 0;
    (void)text_time(cli_member(root, slice_str(name)), &ms); /* absent: 0 */
    return ms;
}

/* Read the members that every document has. */
static enum status read_members(
    const struct json_value *root, struct operation *operation, struct err *err)
{
    operation->root = root;
    operation->id = cli_member(root, SLICE_LIT("operation_id"));
    if (operation->id.len == 0 || operation->id.len >= OPERATION_ID_BYTES ||
        !status_of(cli_member(root, SLICE_LIT("status")), &operation->status)) {
        return err_set(err, E_INVALID, "an operation without id or status");
    }
    operation->scope = cli_member(root, SLICE_LIT("scope"));
    operation->principal = cli_member(root, SLICE_LIT("principal"));
    operation->key = cli_member(root, SLICE_LIT("key"));
    operation->reason = cli_member(root, SLICE_LIT("reason"));
    operation->fence = number_of(root, "fence");
    operation->attempt = number_of(root, "attempt");
    operation->duplicates = number_of(root, "duplicates");
    operation->updated_ms = time_of(root, "updated_at");
    operation->lease_expires_ms = time_of(root, "lease_expires_at");
    operation->outcome.is_retained =
        !json_is(json_find(root, SLICE_LIT("outcome_retained")), JSON_FALSE);
    return OK;
}

enum status operation_bytes(const struct json_value *object, const char *name, struct arena *arena,
    struct slice *ret_bytes, struct err *err)
{
    char coded_name[32];
    const struct json_value *plain = json_find(object, slice_str(name));
    (void)snprintf(coded_name, sizeof coded_name, "%s_base64", name);
    const struct json_value *coded = json_find(object, slice_str(coded_name));
    if (!json_is(coded, JSON_STRING)) {
        *ret_bytes = json_is(plain, JSON_STRING) ? json_text(plain) : SLICE_EMPTY;
        return json_is(plain, JSON_STRING) ? OK : E_INVALID;
    }
    size_t size = 0;
    char *bytes = arena_alloc(arena, BASE64_BYTES_MAX(json_text(coded).len));
    if (bytes == NULL) {
        return err_set(err, E_NOMEM, "out of memory");
    }
    if (!base64_read(json_text(coded), BASE64_PADDED, bytes, &size)) {
        return err_set(err, E_INVALID, "'%s' is not base64", coded_name);
    }
    *ret_bytes = slice_of(bytes, size);
    return OK;
}

/* In parts: an object with code and meta, because it was not JSON. Any other value is the outcome
 * itself. */
static enum status read_outcome(struct slice text, const struct json_value *root,
    struct arena *arena, struct operation_outcome *outcome, struct err *err)
{
    const struct json_value *value = json_find(root, SLICE_LIT("outcome"));
    int64_t code = 0;
    if (value == NULL) {
        return OK;
    }
    if (!json_int(json_find(value, SLICE_LIT("code")), &code) ||
        (json_find(value, SLICE_LIT("meta")) == NULL &&
            json_find(value, SLICE_LIT("meta_base64")) == NULL)) {
        outcome->form = OUTCOME_JSON;
        outcome->body = json_raw(text, value);
        outcome->bytes = outcome->body.len;
        return OK;
    }
    outcome->form = OUTCOME_PARTS;
    outcome->code = (int)code;
    enum status status = operation_bytes(value, "meta", arena, &outcome->meta, err);
    if (status == OK && outcome->is_retained) {
        status = operation_bytes(value, "body", arena, &outcome->body, err);
    }
    outcome->bytes = outcome->is_retained ? outcome->body.len : number_of(value, "bytes");
    return status;
}

static enum status read_request(struct slice text, const struct json_value *root,
    struct arena *arena, struct slice *ret_request, struct err *err)
{
    const struct json_value *value = json_find(root, SLICE_LIT("request"));
    if (value != NULL) {
        *ret_request = json_raw(text, value);
        return OK;
    }
    enum status status = operation_bytes(root, "request", arena, ret_request, err);
    return json_find(root, SLICE_LIT("request_base64")) == NULL ? OK : status;
}

enum status operation_read(struct slice text, const struct json_value *root, struct arena *arena,
    struct operation *ret_operation, struct err *err)
{
    struct operation operation = {
        .json = json_is(root, JSON_OBJECT) ? json_raw(text, root) : text, .members = text};
    enum status status = read_members(root, &operation, err);
    status = status == OK ? read_outcome(text, root, arena, &operation.outcome, err) : status;
    status = status == OK ? read_request(text, root, arena, &operation.request, err) : status;
    if (status == OK) {
        *ret_operation = operation;
    }
    return status;
}

/* The library's document, copied into the arena. */
static enum status copy_document(struct once *once, const struct once_operation *from,
    bool has_bodies, struct arena *arena, struct slice *ret_json, struct err *err)
{
    struct once_bytes json = {0};
    struct once_error error = {0};
    int result = once_document(once, from, has_bodies, &json, &error);
    if (result != ONCE_OK) {
        return err_set(err, (enum status)result, "%s", error.text);
    }
    enum status status = arena_copy(arena, slice_of(json.data, json.size), ret_json);
    once_document_free(once, json);
    return status == OK ? OK : err_set(err, E_NOMEM, "out of memory");
}

static struct operation_outcome outcome_of(const struct once_operation *from, bool is_retained)
{
    const struct once_outcome *outcome = &from->outcome;
    struct slice meta = slice_of(outcome->meta.data, outcome->meta.size);
    bool is_json = slice_is(meta, "application/json");
    bool is_absent = from->sealed_ms == 0 ||
                     (outcome->code == 0 &&
                         ((is_json && !is_retained) || (meta.len == 0 && outcome->body.size == 0)));
    return (struct operation_outcome){.form = is_absent                ? OUTCOME_ABSENT
                                              : is_json && is_retained ? OUTCOME_JSON
                                                                       : OUTCOME_PARTS,
        .is_retained = is_retained,
        .code = outcome->code,
        .meta = meta,
        .body = slice_of(outcome->body.data, outcome->body.data == NULL ? 0 : outcome->body.size),
        .bytes = outcome->body.size};
}

/* The request as in the document; bytes that are not text are copied unchanged. */
static enum status copy_request(
    const struct once_operation *from, struct arena *arena, struct slice *ret_request)
{
    struct slice request = slice_of(from->request.data, from->request.size);
    struct buf text;
    if (request.len == 0 || from->request_is_json || !text_utf8(request)) {
        return arena_copy(arena, request, ret_request);
    }
    buf_init(&text, &mem_libc, 6 * request.len + 2); /* every byte escaped */
    jcs_put_string(&text, request);
    enum status status = buf_status(&text);
    status = status == OK ? arena_copy(arena, buf_view(&text), ret_request) : status;
    buf_release(&text);
    return status;
}

enum status operation_of(struct once *once, const struct once_operation *from, bool has_bodies,
    struct arena *arena, struct operation *ret_operation, struct err *err)
{
    struct operation operation = {.json = SLICE_EMPTY};
    struct slice members = SLICE_EMPTY;
    const struct json_value *root = NULL;
    enum status status = copy_document(once, from, false, arena, &members, err);
    status = status == OK ? json_read(members, arena, &root, err) : status;
    status = status == OK ? read_members(root, &operation, err) : status;
    operation.json = operation.members = members;
    if (status == OK && has_bodies) {
        status = copy_document(once, from, true, arena, &operation.json, err);
        operation.outcome = outcome_of(from, operation.outcome.is_retained);
        struct operation_outcome *outcome = &operation.outcome;
        if (status == OK && (copy_request(from, arena, &operation.request) != OK ||
                                arena_copy(arena, outcome->meta, &outcome->meta) != OK ||
                                arena_copy(arena, outcome->body, &outcome->body) != OK)) {
            status = err_set(err, E_NOMEM, "out of memory");
        }
    }
    if (status == OK) {
        *ret_operation = operation;
    }
    return status;
}

const char *operation_id(const struct operation *operation, struct arena *arena)
{
    char *text = arena_zalloc(arena, operation->id.len + 1);
    if (text != NULL) {
        memcpy(text, operation->id.data, operation->id.len);
    }
    return text;
}

const struct json_value *operation_member(const struct operation *operation, const char *name)
{
    return json_find(operation->root, slice_str(name));
}

/* ---- finding one ------------------------------------------------------------------------- */

enum { SHOWN_MAX = 10 }; /* listed if several match: more would not help to choose */

bool found_is_prefix(const char *id_prefix, const char *typed)
{
    size_t begin = strlen(id_prefix);
    size_t len = strlen(typed);
    return strncmp(typed, id_prefix, begin) == 0 && len < begin + UUID_TEXT_BYTES - 1 &&
           strspn(typed + begin, "0123456789abcdef-") == len - begin;
}

void found_add(struct found *found, struct slice id, struct slice status,
    const struct found_member *members, size_t member_count)
{
    const char *between = "  ";
    if (found->count == 0) {
        ASSERT(id.len < sizeof found->first);
        memcpy(found->first, id.data, id.len);
        buf_init(&found->shown, &mem_libc, 1 << 20);
    }
    if (found->count++ >= SHOWN_MAX) {
        return;
    }
    buf_str(&found->shown, "  ");
    buf_slice(&found->shown, id);
    buf_str(&found->shown, "  ");
    buf_slice(&found->shown, status);
    for (size_t i = 0; i < member_count; i++) {
        if (members[i].value.len > 0) {
            buf_printf(&found->shown, "%s%s ", between, members[i].name);
            jcs_put_string(&found->shown, members[i].value); /* quoted, and safe for a terminal */
            between = ", ";
        }
    }
    buf_str(&found->shown, "\n");
}

/* Its id; or list the matches. */
static int pick(const struct found *found, struct arena *arena, const char **ret_id)
{
    struct slice id = SLICE_EMPTY;
    if (found->count > 1) {
        cli_say("%zu %s match; name one of them", found->count, found->kind);
        (void)fwrite(found->shown.data, 1, found->shown.len, stderr);
        if (found->count > SHOWN_MAX) {
            (void)fprintf(stderr, "  and %zu more\n", found->count - SHOWN_MAX);
        }
        return CLI_DATA;
    }
    if (arena_copy(arena, slice_of(found->first, sizeof found->first), &id) != OK) {
        cli_say("out of memory");
        return CLI_UNAVAILABLE;
    }
    *ret_id = id.data;
    return CLI_OK;
}

int found_pick(struct found *found, int code, struct arena *arena, const char **ret_id)
{
    *ret_id = NULL;
    if (found->count > 0) {
        code = code == CLI_OK ? pick(found, arena, ret_id) : code;
        buf_release(&found->shown);
    }
    return code;
}

/* A search for the typed text. */
struct search {
    struct cli *cli;
    const char *prefix;    /* of the id; NULL: any */
    const char *principal; /* NULL: any */
    struct found found;
};

static int take_found(void *context, const struct operation *operation)
{
    struct search *search = context;
    struct slice prefix = search->prefix == NULL ? SLICE_EMPTY : slice_str(search->prefix);
    const struct found_member members[] = {
        {"scope", operation->scope},
        {"key", operation->key},
        {"principal", operation->principal},
    };
    if (slice_starts(operation->id, prefix) &&
        (search->principal == NULL || slice_is(operation->principal, search->principal))) {
        found_add(&search->found, operation->id, slice_str(once_status_name(operation->status)),
            members, COUNT(members));
    }
    return 0;
}

/* *ret_id stays NULL if nothing matches. */
static int search_for(struct backend *backend, const struct once_filter *filter,
    struct search *search, const char **ret_id)
{
    search->found.kind = "operations";
    int code = backend->ops->iterate(backend, filter, take_found, search);
    return found_pick(&search->found, code, &search->cli->arena, ret_id);
}

static int not_found(const char *what, const char *name)
{
    cli_say("there is no operation %s'%s'", what, name);
    cli_hint("once ls lists them; one whose window is over is forgotten");
    return CLI_DATA;
}

int operation_name(struct cli *cli, struct backend *backend, const char *typed, const char **ret)
{
    struct search search = {.cli = cli, .prefix = typed};
    *ret = typed;
    if (inspect_is_operation_id(typed)) {
        return CLI_OK;
    }
    if (!found_is_prefix("op_", typed)) {
        cli_say(
            "'%.64s' is not an id: op_, cmd_, eff_ or dlv_ and a UUID, or its beginning", typed);
        cli_hint("once ls lists operations with their ids");
        return CLI_USAGE;
    }
    int code = search_for(backend, &(struct once_filter){0}, &search, ret);
    return code == CLI_OK && *ret == NULL ? not_found("that begins with ", typed) : code;
}

static int find_key(struct cli *cli, struct backend *backend, const char *key, const char **ret)
{
    struct search search = {.cli = cli, .principal = cli_text(cli, "principal")};
    struct once_filter filter = {.scope = cli_text(cli, "scope"), .key = key};
    int code = search_for(backend, &filter, &search, ret);
    if (code != CLI_OK || *ret != NULL) {
        return code;
    }
    if (filter.scope == NULL) {
        return not_found("with key ", key);
    }
    cli_say("there is no operation with key '%s' in scope '%s'", key, filter.scope);
    cli_hint("without --scope, every scope is searched");
    return CLI_DATA;
}

int operation_find(struct cli *cli, struct backend *backend, const struct operation **ret)
{
    const char *key = cli_text(cli, "key");
    const char *id = NULL;
    if ((key == NULL) == (cli->operand_count == 0)) {
        return cli_usage(cli, "%s: give an operation id, or --key", cli->command->name);
    }
    int code = key == NULL ? operation_name(cli, backend, cli->operands[0], &id)
                           : find_key(cli, backend, key, &id);
    code = code != CLI_OK ? code : backend->ops->get(backend, id, ret);
    return code == CLI_OK && *ret == NULL ? not_found("", id) : code;
}

enum tint operation_tint(enum once_status status)
{
    switch (status) {
    case ONCE_EXECUTED: return TINT_GOOD;
    case ONCE_STATUS_UNKNOWN:
    case ONCE_FAILED: return TINT_BAD;
    case ONCE_STATUS_IN_PROGRESS: return TINT_WARN;
    case ONCE_STATUS_RELEASED:
    case ONCE_REJECTED:
    case ONCE_COMPENSATED: break;
    }
    return TINT_FAINT;
}

static void safe(struct slice text, bool lines)
{
    size_t from = 0;
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.data[i];
        if ((c >= 0x20 && c != 0x7f) || (lines && (c == '\n' || c == '\t'))) {
            continue;
        }
        out_bytes(slice_of(text.data + from, i - from));
        out_text("\\x%02x", c);
        from = i + 1;
    }
    out_bytes(slice_of(text.data == NULL ? "" : text.data + from, text.len - from));
}

void out_safe(struct slice text)
{
    safe(text, false);
}

void out_safe_lines(struct slice text)
{
    safe(text, true);
}

/* ---- evidence ---------------------------------------------------------------------------- */

struct entry_words entry_words_of(const struct json_value *root)
{
    const struct json_value *decided = json_find(root, SLICE_LIT("decided"));
    const struct json_value *trace = json_find(root, SLICE_LIT("trace"));
    return (struct entry_words){
        .root = root,
        .type = cli_member(root, SLICE_LIT("type")),
        .chain_id = cli_member(root, SLICE_LIT("chain_id")),
        .request = cli_member(decided, SLICE_LIT("request")),
        .decision = cli_member(decided, SLICE_LIT("decision")),
        .rule = cli_member(decided, SLICE_LIT("rule")),
        .tenant = cli_member(root, SLICE_LIT("tenant_id")),
        .operation_id = cli_member(root, SLICE_LIT("operation_id")),
        .scope = cli_member(root, SLICE_LIT("scope")),
        .key = cli_member(root, SLICE_LIT("idempotency_key")),
        .state = cli_member(root, SLICE_LIT("lifecycle_state")),
        .reason = cli_member(json_find(root, SLICE_LIT("outcome")), SLICE_LIT("reason")),
        .actor = cli_member(root, SLICE_LIT("actor")),
        .request_id = cli_member(trace, SLICE_LIT("request_id")),
        .fence = cli_member(decided, SLICE_LIT("fence")),
        .attempt = cli_member(decided, SLICE_LIT("attempt")),
        .count = cli_member(root, SLICE_LIT("count")),
    };
}

bool entry_words_read(struct slice json, struct arena *arena, struct entry_words *ret_words)
{
    const struct json_value *root = NULL;
    if (json_read(json, arena, &root, NULL) != OK || !json_is(root, JSON_OBJECT)) {
        return false;
    }
    *ret_words = entry_words_of(root);
    return true;
}

/* The rows of core/decide.h, in words for a person. */
static const struct {
    const char *rule;
    const char *words;
} rules[] = {
    {"B1", "nothing was remembered under this key, so it may run"},
    {"B2", "the key was used with something else, so it is refused and nothing changes"},
    {"B3", "a different caller holds the grant and its lease has not ended, so this one has to "
           "wait"},
    {"B4", "the outcome was unknown, and the caller asked to take over"},
    {"B5", "the outcome is unknown, so it is held until somebody settles it"},
    {"B6", "it was certainly not executed before, so it may run"},
    {"B7", "it failed or was rejected before, and the caller asked to try again"},
    {"B8", "it was settled before, so the first outcome is given again"},
    {"B9", "a newer version of its source was settled already, so it is refused"},
    {"B10", "it is queued, waits or was given up, so it does not run a second time"},
    {"B11", "it was settled before and is being undone, so the first outcome is given again"},
    {"E1", "nothing was remembered under this key, so it is queued"},
    {"E2", "the key was used with something else, so it is refused and nothing changes"},
    {"E3", "it was settled before, so the first outcome is given again"},
    {"E4", "it is queued, waits, runs or was given up, so it is not queued again"},
    {"E5", "the outcome is unknown, so it is held until somebody settles it"},
    {"E6", "it failed or was rejected before, and the policy lets it be tried again"},
    {"E7", "a newer version of its source was settled already, so it is refused"},
    {"C1", "the operation no longer exists"},
    {"C2", "it was due, so it was granted"},
    {"C3", "it is not due yet, so nothing changes"},
    {"C4", "a newer version of its source was settled already, so it does not run"},
    {"C5", "it is not queued, so it cannot be granted"},
    {"H1", "the operation no longer exists"},
    {"H2", "the fence shown is not the one of the current grant, so nothing changes"},
    {"H3", "it was settled already"},
    {"H4", "it was given back already"},
    {"H5", "the report has the fence of the current grant, so it counts"},
    {"H6", "the right to execute it was given up already"},
    {"H7", "nobody knows whether it happened; it is checked again after a pause"},
    {"T1", "the holder asked for a later attempt"},
    {"T2", "its attempts or its deadline are used up, so it was given up"},
    {"T3", "the holder has it wait"},
    {"T4", "its attempts or its deadline are used up, so it was given up"},
    {"T5", "it has attempts and time left, so it is not given up"},
    {"N1", "the operation no longer exists"},
    {"N2", "it was settled already"},
    {"N3", "it was found not to have been executed already"},
    {"N4", "its holder is still alive, so nothing changes"},
    {"N5", "it was unknown: it is settled, or may be called again"},
    {"N6", "there has been a newer attempt since that check, so nothing changes"},
    {"N7", "it is queued, waits or was given up, so there is nothing to settle"},
    {"N8", "it was unknown whether it was undone, and somebody checked"},
    {"N9", "it changed after it was read, so nothing changes"},
    {"J1", "the operation no longer exists"},
    {"J2", "the lease ended and the holder reported nothing, so the outcome is unknown"},
    {"J3", "there was nothing to do"},
    {"J4", "the process that held the grant is gone, so the outcome is unknown"},
    {"J5", "there was nothing to do"},
    {"W1", "the operation no longer exists"},
    {"W2", "what it waited for came, or was refused"},
    {"W3", "what it waited for came too late, so nothing changes"},
    {"W4", "it does not wait, so nothing changes"},
    {"W5", "it was never granted, so it cannot have been executed"},
    {"W6", "it changed after it was read, so nothing changes"},
    {"W7", "it goes on waiting, for less than before"},
    {"X1", "the operation no longer exists"},
    {"X2", "it was cancelled before it ran"},
    {"X3", "it was cancelled already"},
    {"X4", "it is too late to cancel it, so nothing changes"},
    {"X5", "its handler has run and its effects are under way, so it cannot be cancelled"},
    {"X6", "it changed after it was read, so it is not cancelled"},
    {"U1", "the operation no longer exists"},
    {"U2", "somebody took it up again, so it is queued"},
    {"U3", "it was not given up, so nothing changes"},
    {"U4", "it changed after it was read, so nothing changes"},
    {"Q1", "the operation no longer exists"},
    {"Q2", "there has been a newer attempt meanwhile, so nothing changes"},
    {"Q3", "it is still unknown and is checked again later"},
    {"Q4", "it is not unknown, so nothing changes"},
    {"K1", "the operation no longer exists"},
    {"K2", "somebody asked to undo it"},
    {"K3", "it is being undone, or was, already"},
    {"K4", "it was not executed, so there is nothing to undo"},
    {"K5", "it was undone"},
    {"K6", "it is unknown whether it was undone"},
    {"K7", "that was so already"},
    {"K8", "it is not being undone, so nothing changes"},
    {"A1", "work of this kind has no such step, so nothing changes"},
};

const char *rule_words(struct slice rule)
{
    for (size_t i = 0; i < COUNT(rules); i++) {
        if (slice_is(rule, rules[i].rule)) {
            return rules[i].words;
        }
    }
    return "";
}
