/* A server as the backend: reads the pages of its API one after the other. */
#include <stdio.h>

#include "base/check.h"
#include "base/limits.h"
#include "base/macros.h"
#include "base/text.h"
#include "base/uuid.h"
#include "cli/backend.h"
#include "cli/operation.h"
#include "cli/remote.h"
#include "cli/remote_read.h"
#include "cli/work.h"
#include "lib/inspect.h"
#include "server/server.h"

enum {
    PATH_BYTES_MAX = 4096, /* a scope and a key with every byte escaped */
    PAGE_MAX = 1000,       /* of operations or entries: the most that a server returns */
};

static bool is_last_page(const struct json_value *next)
{
    return next == NULL || next->type == JSON_NULL;
}

/* ---- operations -------------------------------------------------------------------------- */

/* A server that is not Once may answer 404 too. */
static bool is_not_found(const struct remote_answer *answer)
{
    return answer->status == 404 && slice_is(answer->code, "operation_not_found");
}

/* GET one. *ret is NULL if there is no such operation. The result is once.h's. */
static int fetch(struct backend *backend, const char *id, const struct operation **ret,
    struct remote_answer *ret_answer, struct once_error *error)
{
    char path[PATH_BYTES_MAX];
    struct err err = {0};
    struct arena *arena = backend->found;
    struct operation *operation = arena_alloc(arena, sizeof *operation);
    (void)snprintf(path, sizeof path, "/v1/operations/%s", id);
    *ret = NULL;
    *ret_answer = (struct remote_answer){.status = 0};
    int result = remote_try(backend->remote, path, SLICE_EMPTY, arena, ret_answer, error);
    if (result != ONCE_OK || is_not_found(ret_answer)) {
        return result;
    }
    if (ret_answer->status != 200) {
        remote_refusal(backend->remote, ret_answer, error);
        return ONCE_E_UNAVAILABLE;
    }
    enum status status = operation == NULL ? err_set(&err, E_NOMEM, "out of memory")
                                           : operation_read(ret_answer->text, ret_answer->root,
                                                 arena, operation, &err);
    if (status != OK) {
        backend_error(error, ONCE_E_UNAVAILABLE, "cannot read the answer of '%s': %s",
            remote_url(backend->remote), err.text);
        return ONCE_E_UNAVAILABLE;
    }
    *ret = operation;
    return ONCE_OK;
}

static int served_peek(struct backend *backend, const char *id, const struct operation **ret)
{
    struct once_error error = {0};
    struct remote_answer answer;
    return fetch(backend, id, ret, &answer, &error);
}

static int served_get(struct backend *backend, const char *id, const struct operation **ret)
{
    struct once_error error = {0};
    struct remote_answer answer;
    if (fetch(backend, id, ret, &answer, &error) == ONCE_OK) {
        return CLI_OK;
    }
    return answer.status >= 300 ? remote_refused(backend->remote, &answer) : cli_fail(&error);
}

/* Append "&name=value", or nothing without a value. False: it does not fit. */
static bool add_query(struct backend *backend, char *path, const char *name, const char *value)
{
    size_t used = strlen(path);
    const char *escaped = value == NULL ? NULL : remote_escape(&backend->arena, value);
    if (value == NULL) {
        return true;
    }
    int more = escaped == NULL
                   ? PATH_BYTES_MAX
                   : snprintf(path + used, PATH_BYTES_MAX - used, "&%s=%s", name, escaped);
    return more > 0 && (size_t)more < PATH_BYTES_MAX - used;
}

/* Page through operations. */
struct server_walk {
    const struct once_filter *filter;
    operation_visit visit;
    void *context;
    size_t count;    /* visited */
    bool is_over;    /* the visitor or the limit stopped it */
    char after[512]; /* the cursor; empty: from the start */
};

static bool matches(const struct once_filter *filter, const struct operation *operation)
{
    return (filter->scope == NULL || slice_is(operation->scope, filter->scope)) &&
           (filter->key == NULL || slice_is(operation->key, filter->key)) &&
           (filter->status == 0 || filter->status == operation->status) &&
           operation->updated_ms >= filter->updated_from_ms &&
           (filter->updated_until_ms == 0 || operation->updated_ms < filter->updated_until_ms);
}

static int visit_page(struct backend *backend, struct server_walk *walk, struct slice text,
    const struct json_value *list)
{
    struct err err = {0};
    for (uint32_t i = 0; i < list->count && !walk->is_over; i++) {
        struct operation operation;
        if (operation_read(text, &list->items[i], &backend->arena, &operation, &err) != OK) {
            return remote_unreadable(backend->remote, &err);
        }
        if (!matches(walk->filter, &operation)) {
            continue;
        }
        walk->count++;
        walk->is_over =
            walk->visit(walk->context, &operation) != 0 || walk->count == walk->filter->limit;
    }
    return CLI_OK;
}

static int walk_page(struct backend *backend, struct server_walk *walk)
{
    char path[PATH_BYTES_MAX];
    struct err err = {0};
    struct remote_answer answer;
    const struct once_filter *filter = walk->filter;
    size_t left = filter->limit == 0 ? PAGE_MAX : filter->limit - walk->count;
    arena_clear(&backend->arena);
    (void)snprintf(
        path, sizeof path, "/v1/operations?limit=%zu", left < PAGE_MAX ? left : PAGE_MAX);
    const char *status = filter->status == 0 ? NULL : once_status_name(filter->status);
    if (!add_query(backend, path, "scope", filter->scope) ||
        !add_query(backend, path, "key", filter->key) ||
        !add_query(backend, path, "status", status) ||
        !add_query(backend, path, "after", walk->after[0] == '\0' ? NULL : walk->after)) {
        cli_say("--scope and --key are too long");
        return CLI_USAGE;
    }
    int code = remote_get(backend->remote, path, &backend->arena, &answer);
    if (code != CLI_OK) {
        return code;
    }
    const struct json_value *list = json_find(answer.root, SLICE_LIT("operations"));
    const struct json_value *next = json_find(answer.root, SLICE_LIT("next"));
    struct slice cursor = next == NULL ? SLICE_EMPTY : json_text(next);
    if (!json_is(list, JSON_ARRAY) || cursor.len >= sizeof walk->after) {
        (void)err_set(&err, E_INVALID, "the answer is not a page of operations");
        return remote_unreadable(backend->remote, &err);
    }
    memcpy(walk->after, cursor.len == 0 ? "" : cursor.data, cursor.len);
    walk->after[cursor.len] = '\0';
    code = visit_page(backend, walk, answer.text, list);
    walk->is_over = walk->is_over || is_last_page(next);
    return code;
}

static int served_iterate(
    struct backend *backend, const struct once_filter *filter, operation_visit visit, void *context)
{
    struct server_walk walk = {.filter = filter, .visit = visit, .context = context};
    int code = CLI_OK;
    while (code == CLI_OK && !walk.is_over) {
        code = walk_page(backend, &walk);
    }
    return code;
}

/* ---- evidence ---------------------------------------------------------------------------- */

/* An entry about our own read: without this, --follow would print what it causes itself. */
static bool is_own_read(const struct backend *backend, const struct remote_entry *entry)
{
    return slice_is(entry->words.type, "access.read") &&
           slice_is(entry->words.request_id, remote_request_id(backend->remote));
}

static int visit_entries(struct backend *backend, const struct json_value *list,
    once_entry_visit visit, void *context, bool *ret_stopped)
{
    struct err err = {0};
    for (uint32_t i = 0; i < list->count && !*ret_stopped; i++) {
        struct remote_entry entry;
        if (remote_read_entry(&list->items[i], &backend->arena, &entry, &err) != OK) {
            return remote_unreadable(backend->remote, &err);
        }
        if (!is_own_read(backend, &entry)) {
            *ret_stopped = visit(context, &entry.entry) != 0;
        }
    }
    return CLI_OK;
}

static int served_evidence(struct backend *backend, const char *operation_id, const char *after,
    once_entry_visit visit, void *context)
{
    char cursor[CURSOR_BYTES_MAX];
    struct remote_page page;
    bool stopped = false;
    int code = CLI_OK;
    (void)snprintf(cursor, sizeof cursor, "%s", after == NULL ? "" : after);
    while (code == CLI_OK && !stopped) {
        arena_clear(&backend->arena);
        code = remote_evidence(backend->remote, operation_id, cursor, &backend->arena, &page);
        if (code == CLI_OK) {
            code = visit_entries(backend, page.entries, visit, context, &stopped);
            stopped = stopped || page.is_last;
        }
    }
    return code;
}

static int served_near_end(
    struct backend *backend, uint64_t back, char ret_cursor[EVIDENCE_CURSOR_BYTES])
{
    struct err err = {0};
    struct remote_head head;
    struct entry_cursor cursor;
    arena_clear(&backend->arena);
    int code = remote_head(backend->remote, &backend->arena, &head);
    if (code != CLI_OK) {
        return code;
    }
    if (!uuid_read(slice_str(head.chain_id), cursor.chain_id)) {
        (void)err_set(&err, E_INVALID, "the answer is not the head of a chain");
        return remote_unreadable(backend->remote, &err);
    }
    cursor.seq = head.seq - back;
    ret_cursor[0] = '\0';
    if (head.seq > back) {
        (void)evidence_cursor_put(ret_cursor, &cursor);
    }
    return CLI_OK;
}

/* ---- changes ----------------------------------------------------------------------------- */

static void put_ms(struct jsonw *json, const char *name, int64_t ms)
{
    char text[32];
    if (ms > 0) {
        jsonw_str(json, name, text_put_duration(text, ms));
    }
}

/* JSON is sent to a server byte for byte. */
static void put_outcome(struct jsonw *json, const struct once_outcome *outcome)
{
    if (outcome->body.size > 0) {
        jsonw_raw(json, "outcome", slice_of(outcome->body.data, outcome->body.size));
    }
}

/* An HTTP answer as written by server_answer_meta, whose meta ends with the list of headers. */
static void put_answer(struct jsonw *json, const struct once_outcome *outcome)
{
    static const struct slice before = SLICE_INIT("{\"format\":\"once-http-1\",\"headers\":");
    struct slice meta = slice_of(outcome->meta.data, outcome->meta.size);
    ASSERT(meta.len > before.len);
    jsonw_open(json, "http", '{');
    jsonw_i64(json, "status", outcome->code);
    jsonw_raw(json, "headers", slice_of(meta.data + before.len, meta.len - before.len - 1));
    jsonw_bytes(json, "body", slice_of(outcome->body.data, outcome->body.size));
    jsonw_close(json, '}');
}

static void put_begin(struct jsonw *json, const struct once_begin *begin)
{
    jsonw_str(json, "scope", begin->scope);
    jsonw_str(json, "key", begin->key);
    jsonw_str_some(json, "principal", begin->principal);
    jsonw_raw(json, "payload", slice_of(begin->payload.data, begin->payload.size));
    put_ms(json, "ttl", begin->ttl_ms);
    put_ms(json, "lease", begin->lease_ms);
    put_ms(json, "wait", begin->wait_ms);
    jsonw_str(json, "on_unknown", begin->on_unknown == ONCE_TAKEOVER ? "takeover" : "hold");
    if (begin->retry_failed) {
        jsonw_bool(json, "retry_failed", true);
    }
    if (begin->trace != NULL) {
        jsonw_raw(json, "trace", slice_str(begin->trace));
    }
}

static void put_seal(struct jsonw *json, const struct once_seal *seal)
{
    jsonw_u64(json, "fence", seal->fence);
    jsonw_str(json, "status", once_status_name(seal->status));
    jsonw_str_some(json, "effect_id", seal->effect_id);
    put_outcome(json, &seal->outcome);
    put_ms(json, "ttl", seal->ttl_ms);
}

static void put_resolve(struct jsonw *json, const struct once_resolve *resolve)
{
    jsonw_str(json, "status",
        resolve->status == ONCE_STATUS_RELEASED ? "not_executed"
                                                : once_status_name(resolve->status));
    jsonw_str(json, "reason", resolve->reason);
    jsonw_str_some(json, "effect_id", resolve->effect_id);
    if (resolve->fence != 0) {
        jsonw_u64(json, "fence", resolve->fence);
    }
    if (server_is_answer_meta(slice_of(resolve->outcome.meta.data, resolve->outcome.meta.size))) {
        put_answer(json, &resolve->outcome);
    } else {
        put_outcome(json, &resolve->outcome);
    }
}

static void put_hold(struct jsonw *json, const struct once_hold *hold)
{
    jsonw_u64(json, "fence", hold->fence);
    jsonw_str_some(json, "reason", hold->reason);
    put_ms(json, "lease", hold->lease_ms);
}

/* The path and the body of a call. */
static void put_call(const struct once_call *call, char path[PATH_BYTES_MAX], struct buf *body)
{
    struct jsonw json = {.out = body};
    const struct once_hold *hold = call->release != NULL   ? call->release
                                   : call->unknown != NULL ? call->unknown
                                                           : call->renew;
    jsonw_open(&json, NULL, '{');
    if (call->begin != NULL) {
        put_begin(&json, call->begin);
        (void)snprintf(path, PATH_BYTES_MAX, "/v1/fences");
    } else if (call->seal != NULL) {
        put_seal(&json, call->seal);
        (void)snprintf(path, PATH_BYTES_MAX, "/v1/fences/%s/seal", call->seal->operation_id);
    } else if (call->resolve != NULL) {
        put_resolve(&json, call->resolve);
        (void)snprintf(
            path, PATH_BYTES_MAX, "/v1/operations/%s/resolve", call->resolve->operation_id);
    } else {
        put_hold(&json, hold);
        (void)snprintf(path, PATH_BYTES_MAX, "/v1/fences/%s/%s", hold->operation_id,
            call->release != NULL   ? "release"
            : call->unknown != NULL ? "unknown"
                                    : "renew");
    }
    jsonw_close(&json, '}');
}

/* As in the library: text that is not an id is invalid, not "not found". */
static bool is_named(const struct once_call *call, struct once_error *error)
{
    const char *id = call->begin != NULL     ? NULL
                     : call->seal != NULL    ? call->seal->operation_id
                     : call->resolve != NULL ? call->resolve->operation_id
                     : call->release != NULL ? call->release->operation_id
                     : call->unknown != NULL ? call->unknown->operation_id
                                             : call->renew->operation_id;
    if (id == NULL || inspect_is_operation_id(id)) {
        return true;
    }
    backend_error(error, ONCE_E_INVALID, "operation_id '%.64s' is not \"op_\" and a UUID", id);
    return false;
}

/* The decision: in the document, or in a refusal's stable code. */
static bool decision_of(const struct remote_answer *answer, enum once_decision *ret)
{
    static const struct {
        const char *code;
        enum once_decision decision;
    } refusals[] = {{"idempotency_conflict", ONCE_CONFLICT_REJECTED},
        {"outcome_unknown", ONCE_HELD_UNKNOWN}, {"operation_not_found", ONCE_NOT_FOUND},
        {"stale_fence", ONCE_STALE_FENCE}, {"already_sealed", ONCE_ALREADY_SEALED},
        {"still_running", ONCE_STILL_RUNNING}, {"stale_version", ONCE_STALE_VERSION}};
    struct slice name = cli_member(answer->root, SLICE_LIT("decision"));
    for (int i = ONCE_FIRST_SEEN; answer->status < 300 && i <= ONCE_STALE_VERSION; i++) {
        if (slice_is(name, once_decision_name((enum once_decision)i))) {
            *ret = (enum once_decision)i;
            return true;
        }
    }
    for (size_t i = 0; i < COUNT(refusals); i++) {
        if ((answer->status == 409 || answer->status == 404) &&
            slice_is(answer->code, refusals[i].code)) {
            *ret = refusals[i].decision;
            return true;
        }
    }
    return false;
}

/* The result of an answer that is not a decision. If it comes from an intermediary and does not say
 * whether the call was executed, the result is unknown (P5). */
static int result_of(const struct remote_answer *answer)
{
    struct slice effect = cli_member(answer->root, SLICE_LIT("effect"));
    if (answer->code.len == 0 || effect.len == 0) {
        return answer->status >= 500 || answer->status < 400 ? ONCE_E_UNKNOWN : ONCE_E_UNAVAILABLE;
    }
    if (!slice_is(effect, "no")) {
        return ONCE_E_UNKNOWN;
    }
    switch (answer->status) {
    case 413: return ONCE_E_LIMIT;
    case 400:
    case 414:
    case 422:
    case 431: return ONCE_E_INVALID;
    default: return ONCE_E_UNAVAILABLE;
    }
}

/* Whether the decision changed nothing and is about an operation that the caller may see. */
static bool shows_operation(enum once_decision decision)
{
    return decision == ONCE_DUPLICATE_REPLAYED || decision == ONCE_IN_PROGRESS ||
           decision == ONCE_HELD_UNKNOWN;
}

static int take_answer(struct backend *backend, const struct remote_answer *from,
    struct backend_answer *ret_answer, struct once_error *error)
{
    struct backend_answer answer = {.decision = ONCE_FIRST_SEEN};
    struct slice id = cli_member(from->root, SLICE_LIT("operation_id"));
    const struct json_value *diff = json_find(from->root, SLICE_LIT("diff"));
    struct remote_answer found;
    if (!decision_of(from, &answer.decision) || id.len >= sizeof answer.operation_id) {
        remote_refusal(backend->remote, from, error);
        backend->refused_code = remote_exit(from);
        backend->is_flooded = from->status == 429;
        return error->result = result_of(from);
    }
    memcpy(answer.operation_id, id.len == 0 ? "" : id.data, id.len);
    answer.repeated = json_is(json_find(from->root, SLICE_LIT("repeated")), JSON_TRUE);
    answer.diff = json_is(diff, JSON_ARRAY) ? json_raw(from->text, diff) : SLICE_EMPTY;
    (void)json_int(json_find(from->root, SLICE_LIT("retry_after_ms")), &answer.retry_after_ms);
    if (answer.decision == ONCE_FIRST_SEEN &&
        (!remote_read_u64(from->root, SLICE_LIT("fence"), &answer.fence) || answer.fence == 0 ||
            id.len == 0)) {
        backend_error(
            error, ONCE_E_UNKNOWN, "'%s' granted without a fence", remote_url(backend->remote));
        return ONCE_E_UNKNOWN;
    }
    (void)remote_read_u64(from->root, SLICE_LIT("attempt"), &answer.attempt);
    int result = shows_operation(answer.decision)
                     ? fetch(backend, answer.operation_id, &answer.operation, &found, error)
                     : ONCE_OK;
    *ret_answer = answer;
    return result;
}

static int served_call(struct backend *backend, const struct once_call *call,
    struct backend_answer *ret_answer, struct once_error *error)
{
    char path[PATH_BYTES_MAX];
    struct buf body;
    struct remote_answer answer;
    backend->refused_code = 0;
    backend->is_flooded = false;
    if (!is_named(call, error)) {
        return ONCE_E_INVALID;
    }
    buf_init(&body, &mem_libc, 2U * LIMIT_OUTCOME_BYTES_MAX);
    put_call(call, path, &body);
    int result = ONCE_E_NOMEM;
    if (buf_status(&body) == OK) {
        result = remote_try(backend->remote, path, buf_view(&body), backend->found, &answer, error);
    } else {
        backend_error(error, result, "out of memory for the request");
    }
    buf_release(&body);
    return result == ONCE_OK ? take_answer(backend, &answer, ret_answer, error) : result;
}

/* ---- the table --------------------------------------------------------------------------- */

/* Every page is fetched when it is needed. */
static int served_refresh(struct backend *backend, bool *ret_ready)
{
    (void)backend;
    *ret_ready = true;
    return CLI_OK;
}

static void served_close(struct backend *backend)
{
    remote_free(backend->remote);
    backend->remote = NULL;
}

static const struct backend_ops remote_ops = {
    .peek = served_peek,
    .get = served_get,
    .iterate = served_iterate,
    .evidence = served_evidence,
    .near_end = served_near_end,
    .call = served_call,
    .refresh = served_refresh,
    .close = served_close,
};

void backend_init_remote(struct backend *backend, struct remote *remote)
{
    backend->ops = &remote_ops;
    backend->remote = remote;
}
