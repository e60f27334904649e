#include "cli/mcp_tools.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/limits.h"
#include "base/macros.h"
#include "base/text.h"
#include "cli/backend.h"
#include "cli/remote.h"
#include "cli/remote_read.h"
#include "cli/why.h"
#include "cli/work.h"
#include "config/config.h"
#include "lib/inspect.h"

enum {
    LEASE_MS = 600000, /* of a begin: a model thinks between two calls */
    LIST_DEFAULT = 20,
    LIST_MAX = 200, /* more than a model reads */
    LOCK_WAIT_MS = 5000,
    PATH_BYTES_MAX = 1024,
};

/* ---- arguments and answers ------------------------------------------------------------------- */

static void fail(struct mcp_ask *ask, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void fail(struct mcp_ask *ask, const char *format, ...)
{
    char text[2048];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    buf_clear(ask->out);
    buf_str(ask->out, text);
    ask->has_failed = true;
}

static void fail_error(struct mcp_ask *ask, const struct once_error *error)
{
    fail(ask, "%s%s%s", error->text[0] == '\0' ? "Once could not do it" : error->text,
        error->hint[0] == '\0' ? "" : "; ", error->hint);
}

/* An argument that is a text, terminated; NULL: absent, or the call has failed. Null and "" mean
 * absent: models fill in optional arguments like that. */
static const char *text_of(struct mcp_ask *ask, const char *name)
{
    const struct json_value *value = json_find(ask->arguments, slice_str(name));
    struct slice text = json_is(value, JSON_STRING) ? json_text(value) : SLICE_EMPTY;
    if (value != NULL && value->type != JSON_NULL && value->type != JSON_STRING) {
        fail(ask, "%s must be a string", name);
        return NULL;
    }
    if (text.len > 0 && memchr(text.data, '\0', text.len) != NULL) {
        fail(ask, "%s has a NUL in it", name);
        return NULL;
    }
    char *copy = text.len == 0 ? NULL : arena_zalloc(&ask->own->cli.arena, text.len + 1);
    if (copy != NULL) {
        memcpy(copy, text.data, text.len);
    }
    return copy;
}

static const char *required(struct mcp_ask *ask, const char *name)
{
    const char *text = text_of(ask, name);
    if (text == NULL && !ask->has_failed) {
        fail(ask, "%s is missing", name);
    }
    return text;
}

static int64_t duration_of(struct mcp_ask *ask, const char *name, int64_t fallback_ms)
{
    int64_t ms = fallback_ms;
    const char *text = text_of(ask, name);
    if (text != NULL && !text_duration(slice_str(text), &ms)) {
        fail(ask, "%s must be a duration such as 30s, 10m or 24h", name);
    }
    return ms;
}

static struct once_bytes json_of(struct mcp_ask *ask, const char *name)
{
    const struct json_value *value = json_find(ask->arguments, slice_str(name));
    struct slice raw = value == NULL ? SLICE_EMPTY : json_raw(ask->text, value);
    return (struct once_bytes){raw.data, raw.len};
}

/* ---- operations ------------------------------------------------------------------------------ */

static void put_answer(struct mcp_ask *ask, const struct backend_answer *answer)
{
    struct jsonw json = {.out = ask->out};
    jsonw_open(&json, NULL, '{');
    jsonw_str(&json, "decision", once_decision_name(answer->decision));
    jsonw_str_some(
        &json, "operation_id", answer->operation_id[0] == '\0' ? NULL : answer->operation_id);
    if (answer->fence > 0) {
        jsonw_u64(&json, "fence", answer->fence);
        jsonw_u64(&json, "attempt", answer->attempt);
    }
    if (answer->retry_after_ms > 0) {
        jsonw_i64(&json, "retry_after_ms", answer->retry_after_ms);
    }
    if (answer->diff.len > 0) {
        jsonw_raw(&json, "diff", answer->diff);
    }
    if (answer->operation != NULL) {
        jsonw_raw(&json, "operation", answer->operation->json);
    }
    jsonw_close(&json, '}');
}

/* A decision that stands in the way of the caller is an error of the tool: a model notices it. */
static void change(struct mcp_ask *ask, const struct once_call *call)
{
    struct backend backend = {.ops = NULL};
    struct backend_answer answer = {0};
    struct once_error error = {0};
    struct cli_open how = {.lock_wait_ms = LOCK_WAIT_MS};
    int result = backend_try_open(&ask->own->cli, how, &backend, &error);
    result = result != ONCE_OK ? result : backend.ops->call(&backend, call, &answer, &error);
    if (result == ONCE_OK) {
        put_answer(ask, &answer);
        ask->has_failed = answer.decision != ONCE_FIRST_SEEN && answer.decision != ONCE_SEALED &&
                          answer.decision != ONCE_DUPLICATE_REPLAYED &&
                          answer.decision != ONCE_IN_PROGRESS;
    } else {
        fail_error(ask, &error);
    }
    backend_close(&backend);
}

static void run_begin(struct mcp_ask *ask)
{
    const char *scope = text_of(ask, "scope");
    struct once_begin begin = {.scope = scope == NULL ? "" : scope,
        .key = required(ask, "key"),
        .principal = ask->own->principal,
        .payload = json_of(ask, "payload"),
        .ttl_ms = duration_of(ask, "ttl", LIMIT_WINDOW_MS_DEFAULT),
        .lease_ms = duration_of(ask, "lease", LEASE_MS),
        .request_id = text_of(ask, "request_id")};
    if (!ask->has_failed) {
        change(ask, &(struct once_call){.begin = &begin});
    }
}

static void run_seal(struct mcp_ask *ask)
{
    static const struct {
        const char *name;
        enum once_status status;
    } ends[] = {{"executed", ONCE_EXECUTED}, {"failed", ONCE_FAILED}, {"rejected", ONCE_REJECTED}};
    const struct json_value *fence = json_find(ask->arguments, SLICE_LIT("fence"));
    const char *status = required(ask, "status");
    int64_t number = 0;
    struct once_seal seal = {.operation_id = required(ask, "operation_id"),
        .effect_id = text_of(ask, "effect_id"),
        .request_id = text_of(ask, "request_id"),
        .outcome = {.body = json_of(ask, "outcome")}};
    for (size_t i = 0; status != NULL && i < COUNT(ends); i++) {
        seal.status = strcmp(status, ends[i].name) == 0 ? ends[i].status : seal.status;
    }
    if (!ask->has_failed && seal.status == 0) {
        fail(ask, "status must be executed, failed or rejected");
    } else if (!ask->has_failed && (fence == NULL || !json_int(fence, &number) || number <= 0)) {
        fail(ask, "fence must be the number that once_begin returned");
    } else if (!ask->has_failed) {
        seal.fence = (uint64_t)number;
        if (seal.outcome.body.size > 0) {
            seal.outcome.meta =
                (struct once_bytes){OUTCOME_JSON_META, sizeof OUTCOME_JSON_META - 1};
        }
        change(ask, &(struct once_call){.seal = &seal});
    }
}

/* ---- commands, and all that a server executes ------------------------------------------------ */

/* The answer to a request, which the model gets as it is. */
static bool ask_server(
    struct mcp_ask *ask, const char *path, struct slice body, struct remote_answer *ret_answer)
{
    struct remote *remote = NULL;
    struct once_error error = {0};
    int code = backend_find_server(&ask->own->cli, &remote);
    if (code != CLI_OK || remote == NULL) {
        fail(ask, "commands, effects and deliveries live in a running server, and there is none: a "
                  "person has to start once serve, or name one with --server");
        return false;
    }
    int result = remote_try(remote, path, body, &ask->own->cli.arena, ret_answer, &error);
    if (result != ONCE_OK) {
        fail_error(ask, &error);
    } else if (ret_answer->status >= 300 || !json_is(ret_answer->root, JSON_OBJECT)) {
        remote_refusal(remote, ret_answer, &error);
        fail_error(ask, &error);
    }
    remote_free(remote);
    return !ask->has_failed;
}

static void remember(struct mcp_own *own, struct slice id)
{
    struct mcp_own_commands *submitted = own->submitted;
    if (id.len == 0 || id.len >= MCP_COMMAND_ID_BYTES) {
        return;
    }
    (void)pthread_mutex_lock(&submitted->mutex);
    size_t place = submitted->count++ % MCP_OWN_COMMANDS_MAX;
    (void)snprintf(submitted->items[place].id, MCP_COMMAND_ID_BYTES, "%.*s", SLICE_ARGS(id));
    (void)snprintf(submitted->items[place].agent, MCP_AGENT_BYTES, "%s", own->agent);
    (void)pthread_mutex_unlock(&submitted->mutex);
}

static bool is_own(const struct mcp_own *own, const char *id)
{
    struct mcp_own_commands *submitted = own->submitted;
    bool is_found = false;
    (void)pthread_mutex_lock(&submitted->mutex);
    for (size_t i = 0; i < MCP_OWN_COMMANDS_MAX; i++) {
        is_found = is_found || (strcmp(submitted->items[i].id, id) == 0 &&
                                   strcmp(submitted->items[i].agent, own->agent) == 0);
    }
    (void)pthread_mutex_unlock(&submitted->mutex);
    return is_found;
}

static void run_submit(struct mcp_ask *ask)
{
    struct remote_answer answer;
    struct slice envelope = json_raw(ask->text, ask->arguments);
    if (ask_server(ask, "/v1/commands", envelope, &answer)) {
        remember(ask->own, cli_member(answer.root, SLICE_LIT("command_id")));
        buf_slice(ask->out, answer.text);
    }
}

static const char *work_path(struct mcp_ask *ask, const char *id, const char *verb)
{
    const struct work_kind *kind = work_kind_of_id(id);
    const char *escaped = remote_escape(&ask->own->cli.arena, id);
    char *path = arena_zalloc(&ask->own->cli.arena, PATH_BYTES_MAX);
    int used = kind == NULL || escaped == NULL || path == NULL
                   ? PATH_BYTES_MAX
                   : snprintf(path, PATH_BYTES_MAX, "/v1/%s/%s%s", kind->name, escaped, verb);
    if (used >= PATH_BYTES_MAX) {
        fail(ask, "'%.64s' is not the id of a command", id);
        return NULL;
    }
    return path;
}

/* The server refuses a step-up by the credential that submitted it. A server may have none, so what
 * this process submitted is refused here too. */
static bool may_confirm(struct mcp_ask *ask, const char *id)
{
    struct remote_answer answer;
    const char *path = work_path(ask, id, "");
    if (path == NULL || !ask_server(ask, path, SLICE_EMPTY, &answer)) {
        return false;
    }
    const struct json_value *confirmation = json_find(answer.root, SLICE_LIT("confirmation"));
    if (is_own(ask->own, id) && slice_is(cli_member(confirmation, SLICE_LIT("mode")), "step_up")) {
        fail(ask,
            "this command needs a confirmation by somebody else (step_up), and you submitted "
            "it yourself. Tell the user: a person with the right to confirm runs once "
            "confirm %s",
            id);
        return false;
    }
    return true;
}

static void run_confirm(struct mcp_ask *ask)
{
    struct remote_answer answer;
    struct mem mem = arena_mem(&ask->own->cli.arena);
    struct buf body;
    struct jsonw json = {.out = &body};
    const char *id = required(ask, "command_id");
    const char *token = ask->has_failed ? NULL : required(ask, "token");
    const char *actor = ask->has_failed ? NULL : text_of(ask, "actor_id");
    const char *reason = ask->has_failed ? NULL : text_of(ask, "reason");
    const char *path = ask->has_failed ? NULL : work_path(ask, id, "/confirm");
    if (path == NULL || !may_confirm(ask, id)) {
        return;
    }
    buf_init(&body, &mem, LIMIT_JSON_BYTES_MAX);
    jsonw_open(&json, NULL, '{');
    jsonw_str(&json, "token", token);
    jsonw_str_some(&json, "actor_id", actor);
    jsonw_str_some(&json, "reason", reason);
    jsonw_close(&json, '}');
    if (ask_server(ask, path, buf_view(&body), &answer)) {
        buf_slice(ask->out, answer.text);
    }
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Open for reading; false: failed. A store that is not there yet has nothing in it. */
static bool open_for_reading(struct mcp_ask *ask, struct backend *backend)
{
    if (backend_try_read(&ask->own->cli, backend) == ONCE_OK) {
        return true;
    }
    fail(ask, "there is nothing to look at yet: the store is absent, or cannot be opened");
    return false;
}

static const struct operation *find(struct mcp_ask *ask, struct backend *backend, const char *id)
{
    const struct operation *operation = NULL;
    if (!inspect_is_operation_id(id)) {
        fail(ask, "'%.64s' is not an id: one is op_ and a UUID", id);
    } else if (backend->ops->get(backend, id, &operation) != CLI_OK) {
        fail(ask, "the operation could not be read; the reason is in the log of once mcp");
    } else if (operation == NULL) {
        fail(ask, "there is no operation %s", id);
    }
    return operation;
}

static int put_operation(void *context, const struct operation *operation)
{
    struct jsonw *json = context;
    jsonw_raw(json, NULL, operation->json);
    return 0;
}

static void list(struct mcp_ask *ask, struct backend *backend, const struct once_filter *filter)
{
    struct jsonw json = {.out = ask->out};
    jsonw_open(&json, NULL, '{');
    jsonw_open(&json, "operations", '[');
    int code = backend->ops->iterate(backend, filter, put_operation, &json);
    jsonw_close(&json, ']');
    jsonw_close(&json, '}');
    if (code != CLI_OK) {
        fail(ask, "the operations could not be read; the reason is in the log of once mcp");
    }
}

static void run_status(struct mcp_ask *ask)
{
    struct backend backend = {.ops = NULL};
    struct remote_answer answer;
    const char *id = text_of(ask, "id");
    struct once_filter filter = {
        .scope = text_of(ask, "scope"), .key = text_of(ask, "key"), .limit = LIST_DEFAULT};
    if (!ask->has_failed && id == NULL && filter.key == NULL) {
        fail(ask, "give an id, or a key");
    }
    if (!ask->has_failed && id != NULL && work_kind_of_id(id) != NULL) {
        const char *path = work_path(ask, id, "");
        if (path != NULL && ask_server(ask, path, SLICE_EMPTY, &answer)) {
            buf_slice(ask->out, answer.text);
        }
    } else if (!ask->has_failed && open_for_reading(ask, &backend)) {
        const struct operation *operation = id == NULL ? NULL : find(ask, &backend, id);
        if (operation != NULL) {
            buf_slice(ask->out, operation->json);
        } else if (id == NULL) {
            list(ask, &backend, &filter);
        }
    }
    backend_close(&backend);
}

static void run_why(struct mcp_ask *ask)
{
    struct backend backend = {.ops = NULL};
    struct jsonw json = {.out = ask->out};
    const char *id = required(ask, "operation_id");
    if (!ask->has_failed && open_for_reading(ask, &backend)) {
        const struct operation *operation = find(ask, &backend, id);
        if (operation != NULL && why_put(&ask->own->cli, &backend, operation, &json) != CLI_OK) {
            fail(ask, "its evidence could not be read; the reason is in the log of once mcp");
        }
    }
    backend_close(&backend);
}

static void run_list_unknown(struct mcp_ask *ask)
{
    struct backend backend = {.ops = NULL};
    int64_t limit = LIST_DEFAULT;
    const struct json_value *given = json_find(ask->arguments, SLICE_LIT("limit"));
    struct once_filter filter = {.scope = text_of(ask, "scope"), .status = ONCE_STATUS_UNKNOWN};
    if (given != NULL && given->type != JSON_NULL &&
        (!json_int(given, &limit) || limit < 1 || limit > LIST_MAX)) {
        fail(ask, "limit must be a number from 1 to %d", LIST_MAX);
    }
    filter.limit = (size_t)limit;
    if (!ask->has_failed && open_for_reading(ask, &backend)) {
        list(ask, &backend, &filter);
    }
    backend_close(&backend);
}

/* ---- the table ------------------------------------------------------------------------------- */

#define HINTS(reads, destroys, reaches_out)                                                        \
    "{\"readOnlyHint\":" reads ",\"destructiveHint\":" destroys                                    \
    ",\"idempotentHint\":true,\"openWorldHint\":" reaches_out "}"
#define READS   HINTS("true", "false", "false")
#define WRITES  HINTS("false", "false", "false")
#define ACTS    HINTS("false", "true", "true")
#define ANY     "" /* any JSON */
#define OBJECT  "\"type\":\"object\""
#define INTEGER "\"type\":\"integer\""
#define ENDS    "\"type\":\"string\",\"enum\":[\"executed\",\"failed\",\"rejected\"]"
#define LIMIT   "\"type\":\"integer\",\"minimum\":1,\"maximum\":200"

const struct mcp_own_tool mcp_own_tools[] = {
    {.name = "once_begin",
        .says = "Ask for the right to do something that must happen only once, before doing it. "
                "The decision first_seen means: do it now, then call once_seal with the "
                "operation_id and the fence. duplicate_replayed means that it was done before, and "
                "has its outcome: do not do it again. in_progress means that somebody else is "
                "doing it. An error means: do not do it.",
        .annotations = WRITES,
        .rights = CONFIG_RIGHT_EXECUTE,
        .arguments = {{"key", "names the thing to be done: the same for every try", NULL, true},
            {"scope", "the namespace of the key, such as payments", NULL, false},
            {"payload", "what is to be done; the same key with a different one is refused", ANY,
                false},
            {"ttl", "how long duplicates are recognised; 24h by default", NULL, false},
            {"lease", "how long you may take; 10m by default", NULL, false},
            {"request_id", "names this attempt in the evidence", NULL, false}},
        .run = run_begin},
    {.name = "once_seal",
        .says = "Record how something ended that once_begin allowed. Its outcome is what "
                "duplicates get. Do not seal what you do not know: tell the user.",
        .annotations = WRITES,
        .rights = CONFIG_RIGHT_EXECUTE,
        .arguments = {{"operation_id", "as once_begin returned it", NULL, true},
            {"fence", "as once_begin returned it", INTEGER, true},
            {"status",
                "executed: it happened; failed: it was tried and did not happen; rejected: it was "
                "refused before it began",
                ENDS, true},
            {"outcome", "what duplicates get", ANY, false},
            {"effect_id", "the id of what was made, such as a charge", NULL, false},
            {"request_id", "names this attempt in the evidence", NULL, false}},
        .run = run_seal},
    {.name = "once_status",
        .says = "What became of an operation, command, effect or delivery. Give its id; or a key, "
                "for the operations that have it.",
        .annotations = READS,
        .arguments = {{"id", "op_, cmd_, eff_ or dlv_ and a UUID", NULL, false},
            {"key", "instead of an id: the key of operations", NULL, false},
            {"scope", "with a key: only of this scope", NULL, false}},
        .run = run_status},
    {.name = "once_why",
        .says = "How an operation reached its status: every decision about it, with the rule that "
                "made it, and what to do now.",
        .annotations = READS,
        .arguments = {{"operation_id", "op_ and a UUID", NULL, true}},
        .run = run_why},
    {.name = "once_submit_command",
        .says = "Submit a command of the server's registry. It is executed once, however often it "
                "is submitted. If its status is awaiting_confirmation, show the prompt to the user "
                "and do not go on without their consent.",
        .annotations = ACTS,
        .rights = CONFIG_RIGHT_EXECUTE,
        .arguments = {{"actor_id", "on whose behalf", NULL, true},
            {"intent", "entity, action and target, such as order, refund and {order_id: 204}",
                OBJECT, true},
            {"args", "the arguments that the registry declares", OBJECT, false}},
        .run = run_submit},
    {.name = "once_confirm",
        .says =
            "Confirm a command that awaits its confirmation, after the user has agreed to "
            "it. A command that needs somebody else's confirmation (step_up) cannot be confirmed "
            "by the agent that submitted it.",
        .annotations = ACTS,
        .rights = CONFIG_RIGHT_CONFIRM,
        .arguments = {{"command_id", "cmd_ and a UUID", NULL, true},
            {"token", "of the confirmation, from the answer to the submission", NULL, true},
            {"actor_id", "who confirms: the command's actor", NULL, false},
            {"reason", "why", NULL, false}},
        .run = run_confirm},
    {.name = "once_list_unknown",
        .says = "Operations of which nobody knows whether they took effect. A person has to check "
                "each, and settle it with once resolve. Do not repeat them.",
        .annotations = READS,
        .arguments = {{"scope", "only of this scope", NULL, false},
            {"limit", "how many; 20 by default", LIMIT, false}},
        .run = run_list_unknown},
    {0},
};
