/* A server as the origin of operations: the pages of its API, one after the other. */
#include <stdio.h>

#include "base/limits.h"
#include "base/uuid.h"
#include "cli/operation.h"
#include "cli/origin.h"
#include "cli/remote.h"
#include "cli/remote_read.h"
#include "lib/inspect.h"

enum {
    PATH_BYTES_MAX = 4096,            /* a scope and a key, every byte of them escaped */
    PAGE_MAX = 1000,                  /* of operations or entries: what a server gives at most */
    PAGE_ARENA_BYTES_MAX = 256 << 20, /* a page of answer_bytes_max, read and canonical */
};

static int no_memory(void)
{
    cli_say("cannot read the answer of the server: out of memory");
    return CLI_UNAVAILABLE;
}

/* The server said something that cannot be read. */
static int unreadable(const struct origin *origin, struct err *err)
{
    err_prefix(err, "cannot read the answer of '%s'", remote_url(origin->remote));
    (void)cli_fail_err(err);
    return CLI_UNAVAILABLE;
}

static bool is_last_page(const struct json_value *next)
{
    return next == NULL || next->type == JSON_NULL;
}

/* ---- operations -------------------------------------------------------------------------- */

/* As the library: what is no id is the command line's fault, and not "not found". */
static int check_id(const char *operation_id)
{
    if (inspect_is_operation_id(operation_id)) {
        return CLI_OK;
    }
    cli_say("operation_id '%.64s' is not \"op_\" and a UUID", operation_id);
    return CLI_USAGE;
}

/* Of a path that does not exist, another server says 404 too. */
static bool is_not_found(const struct remote_answer *answer)
{
    return answer->status == 404 && slice_is(answer->code, "operation_not_found");
}

static int read_found(struct origin *origin, const struct remote_answer *answer)
{
    struct err err = {0};
    struct arena *arena = &origin->cli->arena;
    origin->operation = arena_alloc(arena, sizeof *origin->operation);
    if (origin->operation == NULL) {
        return no_memory();
    }
    if (remote_read_operation(answer->text, answer->root, arena, origin->operation, &err) != OK) {
        return unreadable(origin, &err);
    }
    if (origin->operation->tenant[0] == '\0') { /* a server need not repeat whose all of it is */
        origin->operation->tenant = cli_text(origin->cli, "tenant");
    }
    return CLI_OK;
}

static int remote_origin_get(
    struct origin *origin, const char *operation_id, const struct once_operation **ret)
{
    char path[PATH_BYTES_MAX];
    struct remote_answer answer;
    int code = check_id(operation_id);
    if (code != CLI_OK) {
        return code;
    }
    (void)snprintf(path, sizeof path, "/v1/operations/%s", operation_id);
    code = remote_ask(origin->remote, path, SLICE_EMPTY, &origin->cli->arena, &answer);
    if (code != CLI_OK) {
        return code;
    }
    if (is_not_found(&answer)) {
        *ret = NULL;
        return CLI_OK;
    }
    if (answer.status != 200) {
        return remote_refused(origin->remote, &answer);
    }
    code = read_found(origin, &answer);
    *ret = origin->operation;
    return code;
}

/* "&name=value", or nothing when there is no value. False: it does not fit. */
static bool add_query(struct origin *origin, char *path, const char *name, const char *value)
{
    size_t used = strlen(path);
    const char *escaped = value == NULL ? NULL : remote_escape(&origin->arena, value);
    if (value == NULL) {
        return true;
    }
    int more = escaped == NULL
                   ? PATH_BYTES_MAX
                   : snprintf(path + used, PATH_BYTES_MAX - used, "&%s=%s", name, escaped);
    return more > 0 && (size_t)more < PATH_BYTES_MAX - used;
}

/* Page through operations. */
struct walk {
    const struct once_filter *filter;
    once_operation_visit visit;
    void *context;
    size_t count;    /* visited */
    bool is_over;    /* the visitor or the limit stopped it */
    char after[512]; /* the cursor; empty: from the start */
};

static bool matches(const struct once_filter *filter, const struct once_operation *operation)
{
    return (filter->scope == NULL || strcmp(filter->scope, operation->scope) == 0) &&
           (filter->key == NULL || strcmp(filter->key, operation->key) == 0) &&
           (filter->status == 0 || filter->status == operation->status);
}

static int visit_page(
    struct origin *origin, struct walk *walk, struct slice text, const struct json_value *list)
{
    struct err err = {0};
    for (uint32_t i = 0; i < list->count && !walk->is_over; i++) {
        struct once_operation operation;
        if (remote_read_operation(text, &list->items[i], &origin->arena, &operation, &err) != OK) {
            return unreadable(origin, &err);
        }
        if (operation.tenant[0] == '\0') {
            operation.tenant = cli_text(origin->cli, "tenant");
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

static int walk_page(struct origin *origin, struct walk *walk)
{
    char path[PATH_BYTES_MAX];
    struct err err = {0};
    struct remote_answer answer;
    const struct once_filter *filter = walk->filter;
    size_t left = filter->limit == 0 ? PAGE_MAX : filter->limit - walk->count;
    arena_clear(&origin->arena);
    (void)snprintf(
        path, sizeof path, "/v1/operations?limit=%zu", left < PAGE_MAX ? left : PAGE_MAX);
    const char *status = filter->status == 0 ? NULL : once_status_name(filter->status);
    if (!add_query(origin, path, "scope", filter->scope) ||
        !add_query(origin, path, "key", filter->key) ||
        !add_query(origin, path, "status", status) ||
        !add_query(origin, path, "after", walk->after[0] == '\0' ? NULL : walk->after)) {
        cli_say("--scope and --key are too long");
        return CLI_USAGE;
    }
    int code = remote_get(origin->remote, path, &origin->arena, &answer);
    if (code != CLI_OK) {
        return code;
    }
    const struct json_value *list = json_find(answer.root, SLICE_LIT("operations"));
    const struct json_value *next = json_find(answer.root, SLICE_LIT("next"));
    struct slice cursor = next == NULL ? SLICE_EMPTY : json_text(next);
    if (!json_is(list, JSON_ARRAY) || cursor.len >= sizeof walk->after) {
        (void)err_set(&err, E_INVALID, "it is no page of operations");
        return unreadable(origin, &err);
    }
    memcpy(walk->after, cursor.len == 0 ? "" : cursor.data, cursor.len);
    walk->after[cursor.len] = '\0';
    code = visit_page(origin, walk, answer.text, list);
    walk->is_over = walk->is_over || is_last_page(next);
    return code;
}

static int remote_origin_iterate(struct origin *origin, const struct once_filter *filter,
    once_operation_visit visit, void *context)
{
    struct walk walk = {.filter = filter, .visit = visit, .context = context};
    int code = CLI_OK;
    while (code == CLI_OK && !walk.is_over) {
        code = walk_page(origin, &walk);
    }
    return code;
}

/* The one of a principal among those of a scope and key. */
struct wanted {
    const char *principal;
    char operation_id[40]; /* empty: not found yet */
};

static int take_wanted(void *context, const struct once_operation *operation)
{
    struct wanted *wanted = context;
    if (strcmp(operation->principal, wanted->principal) != 0) {
        return 0;
    }
    memcpy(wanted->operation_id, operation->operation_id, sizeof wanted->operation_id);
    return 1;
}

static int remote_origin_lookup(struct origin *origin, const char *scope, const char *principal,
    const char *key, const struct once_operation **ret)
{
    struct once_filter filter = {.scope = scope, .key = key};
    struct wanted wanted = {.principal = principal == NULL ? "" : principal};
    int code = remote_origin_iterate(origin, &filter, take_wanted, &wanted);
    if (code != CLI_OK) {
        return code;
    }
    if (wanted.operation_id[0] == '\0') {
        *ret = NULL;
        return CLI_OK;
    }
    return remote_origin_get(origin, wanted.operation_id, ret);
}

/* ---- evidence ---------------------------------------------------------------------------- */

/* What our own reading left: whoever follows would otherwise see nothing but that they follow. */
static bool is_own_read(const struct origin *origin, const struct remote_entry *entry)
{
    return slice_is(entry->type, "access.read") &&
           slice_is(entry->request_id, remote_request_id(origin->remote));
}

static int visit_entries(struct origin *origin, const struct json_value *list,
    once_entry_visit visit, void *context, bool *ret_stopped)
{
    struct err err = {0};
    for (uint32_t i = 0; i < list->count && !*ret_stopped; i++) {
        struct remote_entry entry;
        if (remote_read_entry(&list->items[i], &origin->arena, &entry, &err) != OK) {
            return unreadable(origin, &err);
        }
        if (!is_own_read(origin, &entry)) {
            *ret_stopped = visit(context, &entry.entry) != 0;
        }
    }
    return CLI_OK;
}

static int remote_origin_evidence(struct origin *origin, const char *operation_id,
    const char *after, once_entry_visit visit, void *context)
{
    char path[PATH_BYTES_MAX];
    char cursor[CURSOR_BYTES_MAX];
    (void)snprintf(cursor, sizeof cursor, "%s", after == NULL ? "" : after);
    bool stopped = false;
    int code = operation_id == NULL ? CLI_OK : check_id(operation_id);
    while (code == CLI_OK && !stopped) {
        struct err err = {0};
        struct remote_answer answer;
        bool more = false;
        arena_clear(&origin->arena);
        (void)snprintf(path, sizeof path, "/v1/evidence?limit=%d&after=%s%s%s", PAGE_MAX, cursor,
            operation_id == NULL ? "" : "&operation_id=", operation_id == NULL ? "" : operation_id);
        code = remote_get(origin->remote, path, &origin->arena, &answer);
        if (code != CLI_OK) {
            return code;
        }
        const struct json_value *list = json_find(answer.root, SLICE_LIT("entries"));
        if (!json_is(list, JSON_ARRAY) || !remote_read_next(answer.root, cursor, &more)) {
            (void)err_set(&err, E_INVALID, "it is no page of evidence");
            return unreadable(origin, &err);
        }
        code = visit_entries(origin, list, visit, context, &stopped);
        stopped = stopped || !more;
    }
    return code;
}

static int remote_origin_near_end(
    struct origin *origin, uint64_t back, char ret_cursor[EVIDENCE_CURSOR_BYTES])
{
    struct err err = {0};
    struct remote_answer answer;
    struct evidence_cursor cursor;
    uint64_t seq = 0;
    arena_clear(&origin->arena);
    int code = remote_get(origin->remote, "/v1/evidence/head", &origin->arena, &answer);
    if (code != CLI_OK) {
        return code;
    }
    if (!remote_read_u64(answer.root, SLICE_LIT("seq"), &seq) ||
        !uuid_read(cli_member(answer.root, SLICE_LIT("chain_id")), cursor.chain_id)) {
        (void)err_set(&err, E_INVALID, "it is no head of a chain");
        return unreadable(origin, &err);
    }
    cursor.seq = seq - back;
    ret_cursor[0] = '\0';
    if (seq > back) {
        (void)evidence_cursor_put(ret_cursor, &cursor);
    }
    return CLI_OK;
}

/* ---- resolve ----------------------------------------------------------------------------- */

static const char *resolve_status(enum once_status status)
{
    return status == ONCE_STATUS_RELEASED ? "not_executed" : once_status_name(status);
}

static void put_settle(struct jsonw *json, const struct origin_settle *settle)
{
    const struct once_resolve *resolve = &settle->resolve;
    jsonw_open(json, NULL, '{');
    jsonw_str(json, "status", resolve_status(resolve->status));
    jsonw_str(json, "reason", resolve->reason);
    jsonw_str_some(json, "effect_id", resolve->effect_id);
    if (resolve->fence != 0) {
        jsonw_u64(json, "fence", resolve->fence);
    }
    if (settle->has_outcome) {
        jsonw_raw(json, "outcome", settle->outcome);
    }
    jsonw_close(json, '}');
}

/* What duplicates get from a server is JSON, and has no exit code. */
static int check_settle(struct origin *origin, const struct origin_settle *settle)
{
    struct err err = {0};
    const struct json_value *outcome = NULL;
    if (settle->has_exit_code) {
        return cli_usage(origin->cli, "resolve: --exit-code does not go with a server, whose "
                                      "operations have none; --outcome is what duplicates get");
    }
    arena_clear(&origin->arena);
    if (settle->has_outcome && json_read(settle->outcome, &origin->arena, &outcome, &err) != OK) {
        err_prefix(&err, "the outcome for a server has to be JSON");
        (void)cli_fail_err(&err);
        return CLI_DATA;
    }
    return check_id(settle->resolve.operation_id);
}

/* The refusals that are decisions, by their stable names. */
static bool decision_of(const struct remote_answer *answer, enum once_decision *ret)
{
    static const enum once_decision said[] = {
        ONCE_STALE_FENCE, ONCE_ALREADY_SEALED, ONCE_STILL_RUNNING};
    if (is_not_found(answer)) {
        *ret = ONCE_NOT_FOUND;
        return true;
    }
    for (size_t i = 0; answer->status == 409 && i < sizeof said / sizeof said[0]; i++) {
        if (slice_is(answer->code, once_decision_name(said[i]))) {
            *ret = said[i];
            return true;
        }
    }
    return false;
}

static int remote_origin_resolve(
    struct origin *origin, const struct origin_settle *settle, struct origin_resolved *ret_resolved)
{
    char path[PATH_BYTES_MAX];
    struct buf body;
    struct jsonw json = {.out = &body};
    struct remote_answer answer;
    struct origin_resolved resolved = {.decision = ONCE_RESOLVED};
    int code = check_settle(origin, settle);
    if (code != CLI_OK) {
        return code;
    }
    buf_init(&body, &mem_libc, 8U * LIMIT_OUTCOME_BYTES_MAX);
    put_settle(&json, settle);
    (void)snprintf(path, sizeof path, "/v1/operations/%s/resolve", settle->resolve.operation_id);
    code = buf_status(&body) != OK
               ? no_memory()
               : remote_ask(origin->remote, path, buf_view(&body), &origin->cli->arena, &answer);
    buf_release(&body);
    if (code != CLI_OK) {
        return code;
    }
    if (answer.status != 200 && !decision_of(&answer, &resolved.decision)) {
        return remote_refused(origin->remote, &answer);
    }
    resolved.repeated = json_is(json_find(answer.root, SLICE_LIT("repeated")), JSON_TRUE);
    if (answer.status == 200) {
        code = read_found(origin, &answer);
        resolved.operation = origin->operation;
    }
    *ret_resolved = resolved;
    return code;
}

/* ---- the table --------------------------------------------------------------------------- */

/* Every page is asked for anew. */
static int remote_origin_refresh(struct origin *origin, bool *ret_ready)
{
    (void)origin;
    *ret_ready = true;
    return CLI_OK;
}

static void remote_origin_close(struct origin *origin)
{
    arena_release(&origin->arena);
    remote_free(origin->remote);
    origin->remote = NULL;
}

static const struct origin_ops remote_ops = {
    .get = remote_origin_get,
    .lookup = remote_origin_lookup,
    .iterate = remote_origin_iterate,
    .evidence = remote_origin_evidence,
    .near_end = remote_origin_near_end,
    .resolve = remote_origin_resolve,
    .refresh = remote_origin_refresh,
    .close = remote_origin_close,
};

void origin_init_remote(struct origin *origin, struct cli *cli, struct remote *remote)
{
    *origin = (struct origin){.ops = &remote_ops, .cli = cli, .remote = remote};
    arena_init(&origin->arena, &mem_libc, PAGE_ARENA_BYTES_MAX);
}
