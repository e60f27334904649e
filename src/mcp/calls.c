/* The life of a guarded call (proxy.h has its states). */
#include <stdio.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/macros.h"
#include "canon/jcs.h"
#include "mcp/proxy_impl.h"
#include "mcp/scan.h"

enum {
    TREE_BYTES_MAX = 1 << 29,
    PAUSE_MS_MIN = 20,  /* between two reads of a call that a different process runs */
    PAUSE_MS_MAX = 500, /* each opens the store */
    FRESH_MS = MCP_LEASE_MS / 3,
    RENEW_AGAIN_MS = 1000, /* after the store could not be reached */
};

static struct mcp_words words_of(const struct mcp_proxy *proxy, struct mcp_request *call)
{
    buf_clear(&call->answer);
    return (struct mcp_words){.proxy = proxy, .call = call, .out = &call->answer};
}

/* Sends call->answer to the client, unless the call is answered or wants no answer (M4). */
static void answer_call(struct mcp_proxy *proxy, struct mcp_request *call)
{
    if (!call->is_answered) {
        proxy_answer(proxy, call, buf_view(&call->answer));
        proxy->to_client.bytes.status =
            call->answer.status != OK ? call->answer.status : proxy->to_client.bytes.status;
    }
    call->is_answered = true;
}

static void answer_and_end(struct mcp_proxy *proxy, struct mcp_request *call)
{
    answer_call(proxy, call);
    proxy_end(proxy, call);
}

static void submit(struct mcp_proxy *proxy, struct mcp_job *job, enum mcp_job_kind kind)
{
    ASSERT(!job->is_busy); /* M5 */
    job->kind = kind;
    job->is_busy = true;
    job->result = ONCE_OK;
    job->error[0] = '\0';
    job->operation_id[0] = '\0';
    job->fence = 0;
    job->has_moved = false;
    job->is_kept = false;
    buf_clear(&job->outcome);
    buf_clear(&job->words);
    proxy->options.submit(proxy->options.context, job);
}

#define TO(state) (1u << CALL_##state)

static void call_move(struct mcp_request *call, enum mcp_call_state state)
{
    static const unsigned nexts[] = {
        [CALL_LISTING] = TO(LISTING) | TO(ASKING),
        [CALL_ASKING] = TO(WAITING) | TO(READY),
        [CALL_WAITING] = TO(WAITING) | TO(ASKING),
        [CALL_READY] = TO(SENT) | TO(SETTLING),
        [CALL_SENT] = TO(SETTLING),
        [CALL_SETTLING] = TO(LATE),
        [CALL_LATE] = TO(SETTLING),
    };
    ASSERT((nexts[call->state] & 1u << state) != 0);
    call->state = state;
}

/* ---- ask ------------------------------------------------------------------------------------- */

static void call_ask(struct mcp_proxy *proxy, struct mcp_request *call)
{
    const struct config_mcp_tool *policy = call->policy;
    int64_t window_ms = policy->window_ms > 0 ? policy->window_ms
                        : call->is_derived    ? MCP_WINDOW_DERIVED_MS
                                              : LIMIT_WINDOW_MS_DEFAULT;
    call_move(call, CALL_ASKING);
    call->asked_ms = proxy->now_ms;
    call->job.begin = (struct once_begin){.scope = call->tool,
        .key = call->key,
        .principal = proxy->options.principal,
        .ttl_ms = window_ms,
        .lease_ms = MCP_LEASE_MS,
        .on_unknown = policy->on_unknown == CONFIG_MCP_TAKEOVER ? ONCE_TAKEOVER : ONCE_HOLD,
        .request_id = call->request_id,
        .trace = proxy->options.trace};
    if (call->has_fingerprint) {
        call->job.begin.fingerprint = call->fingerprint.bytes;
    } else {
        call->job.begin.payload = (struct once_bytes){call->payload.data, call->payload.len};
    }
    submit(proxy, &call->job, MCP_BEGIN);
}

/* Stores the names, terminated. False: one contains a NUL, or out of memory. */
static bool keep_names(struct mcp_proxy *proxy, struct mcp_request *call, struct slice tool,
    struct slice key, struct slice request_id)
{
    const struct slice parts[] = {slice_str(proxy->options.prefix), tool, key, request_id};
    size_t at[4];
    buf_clear(&call->names);
    for (size_t i = 0; i < 4; i++) {
        at[i] = call->names.len;
        buf_slice(&call->names, parts[i]);
        if (i > 0) { /* the prefix and the tool are one */
            buf_char(&call->names, '\0');
        }
        if (parts[i].len > 0 && memchr(parts[i].data, '\0', parts[i].len) != NULL) {
            return false;
        }
    }
    if (buf_status(&call->names) != OK) {
        return false;
    }
    call->tool = call->names.data;
    call->key = call->names.data + at[2];
    call->request_id = request_id.len == 0 ? NULL : call->names.data + at[3];
    return true;
}

/* The canonical progressToken of the call, if it has one. */
static void keep_token(struct mcp_request *call, const struct json_value *root)
{
    const struct json_value *meta =
        json_find(json_find(root, SLICE_LIT("params")), SLICE_LIT("_meta"));
    const struct json_value *token = json_find(meta, SLICE_LIT("progressToken"));
    if ((!json_is(token, JSON_STRING) && !json_is(token, JSON_NUMBER)) ||
        jcs_write(token, &call->token, NULL, NULL) != OK) {
        buf_clear(&call->token);
    }
}

/* Reads the names of the call, and makes the line for the server. False: it was refused and
 * answered. */
static bool prepare(struct mcp_proxy *proxy, struct mcp_request *call,
    const struct mcp_tool_call *message, struct slice tool)
{
    struct mcp_arguments found;
    struct err err = {.status = OK};
    struct buf line;
    char derived[DERIVED_KEY_BYTES] = "";
    const struct mcp_words words = words_of(proxy, call);
    const struct config_mcp_tool *policy = call->policy;
    buf_init(&line, proxy->options.mem, LIMIT_JSON_BYTES_MAX);
    enum status status = arguments_read(
        message, tools_find(&proxy->tools, tool), &line, &call->payload, &found, &err);
    status = status != OK ? status : buf_status(&line);
    status = status != OK ? status : buf_status(&call->payload);
    if (status == OK && found.key.len == 0 && policy->key == CONFIG_MCP_REQUIRE) {
        status = err_set(&err, E_INVALID,
            "the tool '%.*s' needs an idempotency_key. Choose a new unique value, such as a UUID, "
            "and call it again with that; if you repeat the call, send the same value",
            SLICE_ARGS(tool));
    }
    if (status == OK && found.key.len == 0) {
        status =
            arguments_derive(tool, buf_view(&call->payload), proxy->options.mem, derived, &err);
        if (status == E_INVALID) {
            err_hint(&err, "give an idempotency_key");
        }
        found.key = slice_str(derived);
        call->is_derived = true;
    }
    if (status == OK && !keep_names(proxy, call, tool, found.key, found.request_id)) {
        status = err_set(&err, E_INVALID, "a name in it has control characters, or is too long");
    }
    if (status == OK) {
        call->has_fingerprint = arguments_redacted(buf_view(&call->payload), policy->redact,
            policy->redact_count, proxy->options.mem, &call->fingerprint);
        keep_token(call, message->root);
    } else {
        words_refused(&words, "%s%s%s", err.text[0] == '\0' ? "out of memory" : err.text,
            err.hint[0] == '\0' ? "" : "; ", err.hint);
    }
    /* The tree points into the old line, so the line is replaced last. */
    struct buf old = call->line;
    call->line = line;
    buf_release(&old);
    return status == OK;
}

/* Not guarded: as it came. */
static void pass(struct mcp_proxy *proxy, struct mcp_request *call)
{
    call->kind = MCP_PLAIN;
    proxy_to_server(proxy, buf_view(&call->line));
}

/* Since protocol 2026-07-28 every request names its version and its client; so does our own
 * list. */
static void keep_meta(struct mcp_proxy *proxy, const struct mcp_tool_call *message)
{
    static const char prefix[] = "io.modelcontextprotocol/";
    const struct json_value *meta =
        json_find(json_find(message->root, SLICE_LIT("params")), SLICE_LIT("_meta"));
    buf_clear(&proxy->meta);
    for (uint32_t i = 0; json_is(meta, JSON_OBJECT) && i < meta->count; i++) {
        const struct json_member *member = &meta->members[i];
        if (slice_starts(json_text(&member->name), slice_str(prefix))) {
            buf_char(&proxy->meta, proxy->meta.len == 0 ? '{' : ',');
            jcs_put_string(&proxy->meta, json_text(&member->name));
            buf_char(&proxy->meta, ':');
            buf_slice(&proxy->meta, json_raw(message->text, &member->value));
        }
    }
    if (proxy->meta.len > 0) {
        buf_char(&proxy->meta, '}');
    }
    if (buf_status(&proxy->meta) != OK) {
        buf_clear(&proxy->meta);
    }
}

static void read_call(struct mcp_proxy *proxy, struct mcp_request *call, bool may_list)
{
    struct arena arena;
    struct mcp_tool_call message = {.text = buf_view(&call->line), .key = buf_view(&call->given)};
    arena_init(&arena, proxy->options.mem, TREE_BYTES_MAX);
    enum status status = buf_status(&call->line);
    status = status != OK ? status : buf_status(&call->given);
    status = status != OK ? status : json_read(message.text, &arena, &message.root, NULL);
    struct slice name = status == OK ? arguments_tool(message.root) : SLICE_EMPTY;
    const struct mcp_tool *tool = tools_find(&proxy->tools, name);
    call->policy = config_mcp_find(proxy->options.policy, name);
    if (status != OK) {
        const struct mcp_words words = words_of(proxy, call);
        words_refused(&words, "out of memory");
        answer_and_end(proxy, call);
    } else if (name.len == 0 || call->policy->key == CONFIG_MCP_PASS ||
               (tool != NULL && tool->is_read_only)) {
        pass(proxy, call); /* without a name it does not call a tool: the server refuses it */
    } else if (tool == NULL && !proxy->tools.is_complete && may_list) {
        call_move(call, CALL_LISTING);
        keep_meta(proxy, &message);
        if (!proxy_is_listing(proxy) && !proxy_list(proxy, SLICE_EMPTY)) {
            read_call(proxy, call, false);
        }
    } else if (prepare(proxy, call, &message, name)) {
        call->wait_until_ms = proxy->now_ms + call->policy->wait_ms;
        call->pause_ms = PAUSE_MS_MIN;
        call_ask(proxy, call);
    } else {
        answer_and_end(proxy, call);
    }
    arena_release(&arena);
}

void call_read(struct mcp_proxy *proxy, struct mcp_request *call)
{
    if (proxy->is_server_gone) {
        const struct mcp_words words = words_of(proxy, call);
        words_refused(&words, "the server has ended");
        answer_and_end(proxy, call);
    } else {
        read_call(proxy, call, true);
    }
}

void call_listed(struct mcp_proxy *proxy, struct mcp_request *call)
{
    ASSERT(call->state == CALL_LISTING);
    read_call(proxy, call, false);
}

/* ---- settle ---------------------------------------------------------------------------------- */

static void record(struct mcp_proxy *proxy, struct mcp_request *call, enum mcp_job_kind kind)
{
    call->settle_at_ms = 0;
    call->job.hold = (struct once_hold){.operation_id = call->operation_id,
        .fence = call->fence,
        .reason = call->reason,
        .request_id = call->request_id};
    submit(proxy, &call->job, kind);
}

/* Ends the call: records the end first, then sends call->answer. */
static void call_settle(
    struct mcp_proxy *proxy, struct mcp_request *call, enum mcp_job_kind kind, const char *reason)
{
    ASSERT(call->fence > 0);
    call_move(call, CALL_SETTLING);
    call->settle_until_ms = proxy->now_ms + MCP_SETTLE_MS;
    call->pause_ms = PAUSE_MS_MIN;
    (void)snprintf(call->reason, sizeof call->reason, "%s", reason);
    if (kind == MCP_SEAL) {
        call->job.seal.operation_id = call->operation_id;
        call->job.seal.fence = call->fence;
        call->job.seal.request_id = call->request_id;
    }
    record(proxy, call, kind);
}

static void seal(
    struct mcp_proxy *proxy, struct mcp_request *call, struct slice result, enum once_status status)
{
    buf_clear(&call->sealed);
    buf_slice(&call->sealed, result);
    call->job.seal = (struct once_seal){
        .status = status, .outcome = {.body = {call->sealed.data, call->sealed.len}}};
    call_settle(proxy, call, MCP_SEAL, "");
}

static void release(struct mcp_proxy *proxy, struct mcp_request *call, const char *reason)
{
    call_settle(proxy, call, MCP_RELEASE, reason);
}

static void make_unknown(struct mcp_proxy *proxy, struct mcp_request *call, const char *why)
{
    const struct mcp_words words = words_of(proxy, call);
    words_unknown(&words, call->operation_id, call->fence, "unknown", why);
    call->is_answered = call->is_answered || call->is_cancelled;
    call_settle(proxy, call, MCP_UNKNOWN, why);
}

/* Duplicates that wait for this call ask again. */
static void wake(struct mcp_proxy *proxy, const struct mcp_request *settled)
{
    for (struct mcp_request *r = proxy->requests; r != NULL; r = r->next) {
        if (!r->is_over && r->kind == MCP_CALL && r->state == CALL_WAITING && !r->job.is_busy &&
            strcmp(r->operation_id, settled->operation_id) == 0) {
            call_ask(proxy, r);
        }
    }
}

static bool is_recorded(const struct mcp_job *job)
{
    return job->result == ONCE_OK &&
           job->decision == (job->kind == MCP_SEAL         ? ONCE_SEALED
                                : job->kind == MCP_RELEASE ? ONCE_RELEASED_NOW
                                                           : ONCE_MARKED_UNKNOWN);
}

/* Its end could not be recorded: it becomes unknown when its lease ends, or is settled already. The
 * server's own answer is not shown, because a duplicate would not get it (P2). */
static void unrecorded(struct mcp_proxy *proxy, struct mcp_request *call, const struct mcp_job *job)
{
    char why[768];
    const struct mcp_words words = words_of(proxy, call);
    (void)snprintf(why, sizeof why, "its end could not be recorded: %.512s",
        job->result == ONCE_OK ? once_decision_name(job->decision) : job->error);
    words_unknown(&words, call->operation_id, call->fence, "unknown", why);
    proxy_say(proxy, "%s: %s", call->operation_id, why);
    answer_and_end(proxy, call);
}

static void call_settled(struct mcp_proxy *proxy, struct mcp_request *call, struct mcp_job *job)
{
    bool may_retry = job->result == ONCE_E_UNAVAILABLE || job->result == ONCE_E_UNKNOWN;
    if (may_retry && proxy->now_ms < call->settle_until_ms) {
        call->settle_at_ms = proxy->now_ms + call->pause_ms; /* a seal may be repeated (H3) */
        call->pause_ms = clock_doubled_ms(call->pause_ms, PAUSE_MS_MAX);
        return;
    }
    if (!is_recorded(job)) {
        unrecorded(proxy, call, job);
        wake(proxy, call);
        return;
    }
    answer_call(proxy, call);
    wake(proxy, call);
    if (job->kind != MCP_UNKNOWN || proxy->is_server_gone) {
        proxy_end(proxy, call);
        return;
    }
    call_move(call, CALL_LATE);
    if (call->stashed.len > 0) {
        struct buf line = call->stashed;
        buf_init(&call->stashed, proxy->options.mem, MCP_MESSAGE_BYTES_MAX);
        call_answered(proxy, call, buf_view(&line));
        buf_release(&line);
    }
}

/* ---- the ledger's answers -------------------------------------------------------------------- */

static void wait_on(struct mcp_proxy *proxy, struct mcp_request *call)
{
    call_move(call, CALL_WAITING);
    call->peek_at_ms = proxy->now_ms + call->pause_ms;
    call->pause_ms = clock_doubled_ms(call->pause_ms, PAUSE_MS_MAX);
}

/* The grant is ours. */
static void granted(struct mcp_proxy *proxy, struct mcp_request *call, const struct mcp_job *job)
{
    ASSERT(job->fence > 0); /* P4 */
    memcpy(call->operation_id, job->operation_id, sizeof call->operation_id);
    call->fence = job->fence;
    call_move(call, CALL_READY);
    call->renewed_ms = call->asked_ms;
    call->renew_at_ms = call->asked_ms + FRESH_MS;
    if (call->is_cancelled) {
        call->is_answered = true;
        release(proxy, call, "cancelled before it was sent to the server");
    } else if (proxy->is_server_gone) {
        const struct mcp_words words = words_of(proxy, call);
        words_refused(&words, "the server has ended before it got the call");
        release(proxy, call, "the server had ended before it got the call");
    }
}

static void call_begun(struct mcp_proxy *proxy, struct mcp_request *call, struct mcp_job *job)
{
    if (job->result == ONCE_OK && job->decision == ONCE_FIRST_SEEN) {
        granted(proxy, call, job);
        return;
    }
    call->is_answered = call->is_cancelled;
    bool is_running = job->result == ONCE_OK && job->decision == ONCE_IN_PROGRESS;
    if (is_running && !call->is_cancelled && !proxy->is_server_gone &&
        proxy->now_ms < call->wait_until_ms) {
        memcpy(call->operation_id, job->operation_id, sizeof call->operation_id);
        wait_on(proxy, call);
        return;
    }
    const struct mcp_words words = words_of(proxy, call);
    if (job->result != ONCE_OK) {
        words_refused(&words, "Once could not decide whether it was done before: %s", job->error);
        proxy_say(proxy, "tool '%s': %s", call->tool, job->error);
    } else if (is_running) {
        words_running(&words, job);
    } else if (job->decision == ONCE_DUPLICATE_REPLAYED) {
        words_replay(&words, job);
    } else if (job->decision == ONCE_CONFLICT_REJECTED) {
        words_conflict(&words, job);
    } else {
        words_unknown(&words, job->operation_id, job->fence, once_decision_name(job->decision),
            job->words.len > 1 ? job->words.data : "an earlier call had no usable answer");
    }
    answer_and_end(proxy, call);
}

static void call_peeked(struct mcp_proxy *proxy, struct mcp_request *call, struct mcp_job *job)
{
    if (call->is_cancelled || proxy->is_server_gone) {
        const struct mcp_words words = words_of(proxy, call);
        words_running(&words, job);
        call->is_answered = call->is_answered || call->is_cancelled;
        answer_and_end(proxy, call);
    } else if (job->result == ONCE_OK && job->has_moved) {
        call_ask(proxy, call);
    } else {
        wait_on(proxy, call);
    }
}

static void call_renewed(struct mcp_proxy *proxy, struct mcp_request *call, struct mcp_job *job)
{
    if (job->result == ONCE_OK && job->decision == ONCE_RENEWED) {
        call->renewed_ms = call->asked_ms;
        call->renew_at_ms = call->asked_ms + FRESH_MS;
        return;
    }
    call->renew_at_ms = proxy->now_ms + RENEW_AGAIN_MS;
    if (job->result != ONCE_OK) {
        return;
    }
    call->is_lost = true;
    proxy_say(proxy, "the grant of %s is lost: %s", call->operation_id,
        once_decision_name(job->decision));
    if (call->state == CALL_READY) {
        const struct mcp_words words = words_of(proxy, call);
        words_refused(&words, "its grant came too late, and the server did not get it");
        answer_and_end(proxy, call);
    }
}

void call_done(struct mcp_proxy *proxy, struct mcp_request *call, struct mcp_job *job)
{
    switch (job->kind) {
    case MCP_BEGIN: call_begun(proxy, call, job); break;
    case MCP_PEEK: call_peeked(proxy, call, job); break;
    case MCP_RENEW: call_renewed(proxy, call, job); break;
    case MCP_SEAL:
    case MCP_RELEASE:
    case MCP_UNKNOWN: call_settled(proxy, call, job); break;
    }
}

/* ---- the server ------------------------------------------------------------------------------ */

static void renew(struct mcp_proxy *proxy, struct mcp_request *call)
{
    if (call->renewal.is_busy || call->is_lost || proxy->now_ms < call->renew_at_ms) {
        return;
    }
    call->asked_ms = proxy->now_ms;
    call->renewal.hold = (struct once_hold){.operation_id = call->operation_id,
        .fence = call->fence,
        .lease_ms = MCP_LEASE_MS,
        .request_id = call->request_id};
    submit(proxy, &call->renewal, MCP_RENEW);
}

bool call_is_fresh(const struct mcp_proxy *proxy, const struct mcp_request *call)
{
    return !call->is_lost && proxy->now_ms - call->renewed_ms < 2 * FRESH_MS;
}

void call_send(struct mcp_proxy *proxy, struct mcp_request *call)
{
    ASSERT(call->state == CALL_READY && call->fence > 0); /* M1 */
    if (proxy->now_ms - call->renewed_ms >= FRESH_MS) {
        renew(proxy, call); /* M2: too much time has passed since the grant */
        return;
    }
    call_move(call, CALL_SENT);
    call->sent_from = proxy->to_server.total;
    call->due_ms = proxy->now_ms + call->policy->timeout_ms;
    proxy_to_server(proxy, buf_view(&call->line));
    buf_clear(&call->line);
}

/* Errors that say that the call was not begun. */
static bool is_refusal(struct slice error)
{
    static const int codes[] = {MCP_PARSE_ERROR, MCP_INVALID_REQUEST, MCP_METHOD_NOT_FOUND,
        MCP_INVALID_PARAMS, MCP_URL_ELICITATION, MCP_HEADER_MISMATCH, MCP_MISSING_CAPABILITY,
        MCP_UNSUPPORTED_VERSION};
    struct slice code = scan_find(error, "code");
    char text[16];
    for (size_t i = 0; i < COUNT(codes); i++) {
        (void)snprintf(text, sizeof text, "%d", codes[i]);
        if (slice_is(code, text)) {
            return true;
        }
    }
    return false;
}

static void answered_error(struct mcp_proxy *proxy, struct mcp_request *call, struct slice error)
{
    if (is_refusal(error) || call->policy->retry_errors) {
        release(proxy, call, "the server refused the call");
        return;
    }
    char why[512];
    (void)snprintf(why, sizeof why,
        "the server answered with an error that does not say whether it was done: %.*s",
        (int)(error.len < 300 ? error.len : 300), error.data);
    make_unknown(proxy, call, why);
}

void call_answered(struct mcp_proxy *proxy, struct mcp_request *call, struct slice line)
{
    struct slice result = scan_find(line, "result");
    struct slice error = scan_find(line, "error");
    if (call->state == CALL_SETTLING) {
        buf_clear(&call->stashed);
        buf_slice(&call->stashed, line);
        return;
    }
    if (call->state != CALL_SENT && call->state != CALL_LATE) {
        return; /* an answer to a request that was not sent */
    }
    if (call->job.is_busy) {
        return; /* cannot be: the end is the only job of a sent call */
    }
    bool is_result = result.len > 0 && result.data[0] == '{';
    bool is_error = is_result && slice_is(scan_find(result, "isError"), "true");
    buf_clear(&call->answer);
    buf_slice(&call->answer, line);
    if (is_result && slice_is(scan_find(result, "resultType"), "\"input_required\"")) {
        release(proxy, call, "the server needs input before it begins");
    } else if (is_error && call->policy->retry_errors) {
        release(proxy, call, "the tool reported an error");
    } else if (is_result) {
        seal(proxy, call, result, is_error ? ONCE_FAILED : ONCE_EXECUTED);
    } else {
        answered_error(proxy, call, error);
    }
}

void call_cancelled(struct mcp_proxy *proxy, struct mcp_request *call)
{
    int64_t until_ms = proxy->now_ms + MCP_CANCEL_MS;
    call->is_cancelled = true;
    switch (call->state) {
    case CALL_LISTING: proxy_end(proxy, call); break;
    case CALL_WAITING:
        if (!call->job.is_busy) {
            proxy_end(proxy, call);
        }
        break;
    case CALL_READY:
        call->is_answered = true;
        release(proxy, call, "cancelled before it was sent to the server");
        break;
    case CALL_SENT: call->due_ms = until_ms < call->due_ms ? until_ms : call->due_ms; break;
    case CALL_ASKING:   /* when its begin is back */
    case CALL_SETTLING: /* its end is known already */
    case CALL_LATE: break;
    }
}

void call_lost(struct mcp_proxy *proxy, struct mcp_request *call, bool was_sent, const char *why)
{
    if (call->state != CALL_SENT) {
        return; /* its end is known already, or it was not sent */
    }
    if (was_sent) {
        make_unknown(proxy, call, why);
        return;
    }
    const struct mcp_words words = words_of(proxy, call);
    words_refused(&words, "the server did not get it: %s", why);
    call->is_answered = call->is_answered || call->is_cancelled;
    release(proxy, call, why);
}

void call_server_gone(struct mcp_proxy *proxy, struct mcp_request *call)
{
    const struct mcp_words words = {.proxy = proxy, .call = call, .out = &call->answer};
    bool is_unsent = call->state == CALL_READY ||
                     (call->state == CALL_SENT && proxy->to_server.total <= call->sent_from);
    if (is_unsent) {
        buf_clear(&call->answer);
        words_refused(&words, "the server has ended before it got the call");
        call->is_answered = call->is_cancelled;
        release(proxy, call, "the server had ended before it got the call");
    } else if (call->state == CALL_SENT) {
        make_unknown(proxy, call, "the server ended without an answer");
    } else if (call->state == CALL_LATE) {
        proxy_end(proxy, call);
    } else if (call->state == CALL_LISTING || (call->state == CALL_WAITING && !call->job.is_busy)) {
        buf_clear(&call->answer);
        words_refused(&words, "the server has ended before it got the call");
        answer_and_end(proxy, call);
    }
}

/* ---- time ------------------------------------------------------------------------------------ */

/* Whether a call of this process holds the grant: settling it wakes the duplicate. */
static bool is_ours(const struct mcp_proxy *proxy, const struct mcp_request *waiting)
{
    for (const struct mcp_request *r = proxy->requests; r != NULL; r = r->next) {
        if (!r->is_over && r->kind == MCP_CALL && r->fence > 0 && r->state != CALL_LATE &&
            strcmp(r->operation_id, waiting->operation_id) == 0) {
            return true;
        }
    }
    return false;
}

static void tick_waiting(struct mcp_proxy *proxy, struct mcp_request *call)
{
    if (call->job.is_busy) {
        return;
    }
    if (proxy->now_ms >= call->wait_until_ms) {
        call_ask(proxy, call); /* the last time: its answer is sent, whatever it is */
    } else if (proxy->now_ms >= call->peek_at_ms && !is_ours(proxy, call)) {
        call->job.hold = (struct once_hold){.operation_id = call->operation_id};
        submit(proxy, &call->job, MCP_PEEK);
    }
}

void call_tick(struct mcp_proxy *proxy, struct mcp_request *call)
{
    bool may_renew = call->state == CALL_READY || call->state == CALL_SENT;
    if (call->state == CALL_WAITING) {
        tick_waiting(proxy, call);
    } else if (call->state == CALL_SENT && proxy->now_ms >= call->due_ms) {
        make_unknown(proxy, call,
            call->is_cancelled ? "it was cancelled, and the server did not say whether it was done"
                               : "the server did not answer in time");
    } else if (may_renew) {
        renew(proxy, call);
    } else if (call->state == CALL_SETTLING && call->settle_at_ms > 0 &&
               proxy->now_ms >= call->settle_at_ms) {
        record(proxy, call, call->job.kind);
    }
}

int64_t call_due(const struct mcp_proxy *proxy, const struct mcp_request *call)
{
    switch (call->state) {
    case CALL_WAITING:
        return call->job.is_busy                        ? INT64_MAX
               : is_ours(proxy, call)                   ? call->wait_until_ms
               : call->peek_at_ms < call->wait_until_ms ? call->peek_at_ms
                                                        : call->wait_until_ms;
    case CALL_READY:
    case CALL_SENT: {
        bool may_renew = !call->renewal.is_busy && !call->is_lost;
        return may_renew && call->renew_at_ms < call->due_ms ? call->renew_at_ms : call->due_ms;
    }
    case CALL_SETTLING: return call->settle_at_ms > 0 ? call->settle_at_ms : INT64_MAX;
    case CALL_LISTING:
    case CALL_ASKING:
    case CALL_LATE: break;
    }
    return INT64_MAX;
}
