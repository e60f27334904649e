#include "cli/operation.h"

#include <string.h>

#include "base/limits.h"
#include "base/text.h"
#include "canon/payload.h"
#include "cli/capture.h"

#define TREE_BYTES_MAX ((size_t)64 * LIMIT_OUTCOME_BYTES_MAX) /* more than its text can need */

static int not_found(const struct cli *cli, const char *scope, const char *key)
{
    if (key == NULL) {
        cli_say("there is no operation '%s'", cli->operands[0]);
    } else {
        cli_say("there is no operation with key '%s' in scope '%s'", key, scope);
    }
    cli_hint("once ls lists them; one whose window is over is forgotten");
    return CLI_DATA;
}

int operation_find(struct cli *cli, struct origin *origin, const struct once_operation **ret)
{
    const char *key = cli_text(cli, "key");
    const char *scope = cli_text(cli, "scope");
    if ((key == NULL) == (cli->operand_count == 0)) {
        return cli_usage(cli, "%s: give an operation id, or --key", cli->command->name);
    }
    int code = key == NULL
                   ? origin->ops->get(origin, cli->operands[0], ret)
                   : origin->ops->lookup(origin, scope, cli_text(cli, "principal"), key, ret);
    if (code != CLI_OK) {
        return code;
    }
    return *ret == NULL ? not_found(cli, scope, key) : CLI_OK;
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

/* ---- JSON -------------------------------------------------------------------------------- */

static void put_streams(struct jsonw *json, struct cli *cli, const struct once_operation *operation)
{
    struct recording recording;
    struct buf bytes;
    if (recording_read(operation, &cli->arena, &recording, NULL) != OK || !recording.framed) {
        jsonw_bytes(json, "body",
            slice_of(operation->outcome.body.data,
                operation->outcome_retained ? operation->outcome.body.size : 0));
        return;
    }
    buf_init(&bytes, &mem_libc, operation->outcome.body.size + 1);
    recording_stream(&recording, CAPTURE_STDOUT, &bytes);
    jsonw_bytes(json, "stdout", buf_view(&bytes));
    buf_clear(&bytes);
    recording_stream(&recording, CAPTURE_STDERR, &bytes);
    jsonw_bytes(json, "stderr", buf_view(&bytes));
    jsonw_u64(json, "stdout_dropped", recording.dropped[CAPTURE_STDOUT]);
    jsonw_u64(json, "stderr_dropped", recording.dropped[CAPTURE_STDERR]);
    buf_release(&bytes);
}

/* What is empty has nothing to lose. */
bool operation_outcome_is_retained(const struct once_operation *operation)
{
    return operation->outcome.body.size == 0 || operation->outcome_retained;
}

static bool is_marked_json(const struct once_operation *operation)
{
    return slice_equal(
        slice_of(operation->outcome.meta.data, operation->outcome.meta.size), OPERATION_META_JSON);
}

bool operation_outcome_is_json(const struct once_operation *operation)
{
    struct slice body = slice_of(operation->outcome.body.data, operation->outcome.body.size);
    struct arena tree;
    const struct json_value *root = NULL;
    if (!is_marked_json(operation) || body.len == 0 || !operation_outcome_is_retained(operation)) {
        return false;
    }
    arena_init(&tree, &mem_libc, TREE_BYTES_MAX);
    bool is_json = json_read(body, &tree, &root, NULL) == OK; /* a mark proves nothing */
    arena_release(&tree);
    return is_json;
}

bool operation_request_is_json(struct slice request)
{
    struct buf form;
    struct payload payload;
    buf_init(&form, &mem_libc, payload_form_bytes_max(request.len));
    bool is_json = payload_fingerprint(request, NULL, &form, &payload) == OK &&
                   payload.version == FINGERPRINT_CANONICAL && slice_equal(payload.form, request);
    buf_release(&form);
    return is_json;
}

bool operation_outcome_is_null(const struct once_operation *operation)
{
    const struct once_outcome *outcome = &operation->outcome;
    bool is_empty = outcome->body.size == 0 && outcome->meta.size == 0 && outcome->code == 0;
    bool is_null = slice_is(slice_of(outcome->body.data, outcome->body.size), "null");
    return is_empty ||
           (is_marked_json(operation) && (!operation_outcome_is_retained(operation) || is_null));
}

/* As the server's API shows it; what once run recorded is taken apart. */
static void put_outcome(struct jsonw *json, struct cli *cli, const struct once_operation *operation)
{
    jsonw_bool(json, "outcome_retained", operation_outcome_is_retained(operation));
    if (operation_outcome_is_null(operation)) {
        jsonw_raw(json, "outcome", SLICE_LIT("null"));
        return;
    }
    if (operation_outcome_is_json(operation)) {
        jsonw_raw(
            json, "outcome", slice_of(operation->outcome.body.data, operation->outcome.body.size));
        return;
    }
    jsonw_open(json, "outcome", '{');
    jsonw_i64(json, "code", operation->outcome.code);
    jsonw_u64(json, "bytes", operation->outcome.body.size);
    jsonw_bool(json, "retained", operation_outcome_is_retained(operation));
    if (operation->outcome.meta.size > 0) {
        jsonw_bytes(
            json, "meta", slice_of(operation->outcome.meta.data, operation->outcome.meta.size));
    }
    put_streams(json, cli, operation);
    jsonw_close(json, '}');
}

static void put_request(struct jsonw *json, struct slice request)
{
    if (operation_request_is_json(request)) {
        jsonw_raw(json, "request", request);
    } else {
        jsonw_bytes(json, "request", request);
    }
}

static void put_source(struct jsonw *json, const struct once_source *source)
{
    if (source->type[0] == '\0' && source->id[0] == '\0' && source->version[0] == '\0') {
        return;
    }
    jsonw_open(json, "source", '{');
    jsonw_str(json, "type", source->type);
    jsonw_str(json, "id", source->id);
    jsonw_str_some(json, "version", source->version);
    jsonw_close(json, '}');
}

void operation_json(
    struct jsonw *json, struct cli *cli, const struct once_operation *operation, bool bodies)
{
    char hex[65];
    jsonw_str(json, "operation_id", operation->operation_id);
    jsonw_str(json, "status", once_status_name(operation->status));
    jsonw_str(json, "tenant", operation->tenant);
    jsonw_str(json, "scope", operation->scope);
    jsonw_str_some(json, "principal", operation->principal);
    jsonw_str(json, "key", operation->key);
    jsonw_u64(json, "fence", operation->fence);
    jsonw_u64(json, "attempt", operation->attempt);
    jsonw_u64(json, "duplicates", operation->duplicates);
    jsonw_time(json, "created_at", operation->created_ms);
    jsonw_time(json, "updated_at", operation->updated_ms);
    jsonw_time(json, "sealed_at", operation->sealed_ms);
    jsonw_time(json, "lease_expires_at", operation->lease_expires_ms);
    jsonw_time(json, "window_expires_at", operation->window_expires_ms);
    jsonw_str_some(json, "effect_id", operation->effect_id);
    jsonw_str_some(json, "reason", operation->reason);
    jsonw_str(json, "fingerprint",
        text_put_hex(hex, operation->fingerprint, sizeof operation->fingerprint));
    put_source(json, &operation->source);
    if (operation->trace[0] != '\0') {
        jsonw_raw(json, "trace", slice_str(operation->trace));
    }
    if (bodies && operation->sealed_ms != 0) {
        put_outcome(json, cli, operation);
    }
    if (bodies && operation->request.size > 0) {
        put_request(json, slice_of(operation->request.data, operation->request.size));
    }
}

/* ---- evidence ---------------------------------------------------------------------------- */

bool entry_words_read(struct slice json, struct arena *arena, struct entry_words *ret_words)
{
    const struct json_value *root = NULL;
    *ret_words = (struct entry_words){0};
    if (json_read(json, arena, &root, NULL) != OK || !json_is(root, JSON_OBJECT)) {
        return false;
    }
    const struct json_value *decided = json_find(root, SLICE_LIT("decided"));
    const struct json_value *trace = json_find(root, SLICE_LIT("trace"));
    *ret_words = (struct entry_words){
        .root = root,
        .type = cli_member(root, SLICE_LIT("type")),
        .request = cli_member(decided, SLICE_LIT("request")),
        .decision = cli_member(decided, SLICE_LIT("decision")),
        .rule = cli_member(decided, SLICE_LIT("rule")),
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
    return true;
}

/* The rows of core/decide.h, as one says them to somebody who asks. */
static const struct {
    const char *rule;
    const char *words;
} rules[] = {
    {"B1", "nothing was remembered under this key, so it may run"},
    {"B2", "the key was used with something else, so it is refused and nothing changes"},
    {"B3", "somebody holds the grant and the lease is alive, so it has to wait"},
    {"B4", "nobody knew what became of it, and the caller asked to take over"},
    {"B5", "nobody knows what became of it, so it is held until somebody looks"},
    {"B6", "it was certainly not executed before, so it may run"},
    {"B7", "it failed or was rejected before, and the caller asked to try again"},
    {"B8", "it was settled before, so the first outcome is given again"},
    {"B9", "a newer version of its source was settled already, so it is refused"},
    {"H1", "there is no such operation any more"},
    {"H2", "the fence shown is not the one of the current grant, so nothing changes"},
    {"H3", "it was settled already"},
    {"H4", "it was given back already"},
    {"H5", "the holder of the grant said so"},
    {"N1", "there is no such operation any more"},
    {"N2", "it was settled already"},
    {"N3", "it was found not to have been executed already"},
    {"N4", "its holder is still alive, so nothing changes"},
    {"N5", "somebody looked and settled it"},
    {"N6", "there was another attempt since somebody looked, so nothing changes"},
    {"J1", "there is no such operation any more"},
    {"J2", "the lease ran out without a word, so nobody knows what became of it"},
    {"J3", "there was nothing to do"},
};

const char *rule_words(struct slice rule)
{
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        if (slice_is(rule, rules[i].rule)) {
            return rules[i].words;
        }
    }
    return "";
}
