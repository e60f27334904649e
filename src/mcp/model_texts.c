/* What a model reads when Once answers itself. */
#include <stdarg.h>
#include <stdio.h>

#include "base/limits.h"
#include "canon/jcs.h"
#include "canon/json.h"
#include "mcp/proxy_impl.h"
#include "mcp/scan.h"

enum { TEXT_BYTES_MAX = LIMIT_DIFF_BYTES_MAX + (8 << 10), TREE_BYTES_MAX = 1 << 24 };

static void put(const struct mcp_words *words, const char *decision, const char *operation_id,
    bool is_error, const struct buf *text)
{
    struct mcp_reply reply = {
        .id = buf_view(&words->call->id_text), .decision = decision, .operation_id = operation_id};
    mcp_reply_text(words->out, &reply, is_error, buf_view(text));
    if (buf_status(text) != OK) {
        words->out->status = buf_status(text);
    }
}

void words_refused(const struct mcp_words *words, const char *format, ...)
{
    char why[2048];
    struct buf text;
    va_list args;
    va_start(args, format);
    (void)vsnprintf(why, sizeof why, format, args);
    va_end(args);
    buf_init(&text, words->proxy->options.mem, TEXT_BYTES_MAX);
    buf_str(&text, "This call was not made, and nothing was done: ");
    buf_str(&text, why);
    buf_str(&text, ".");
    put(words, "refused", NULL, true, &text);
    buf_release(&text);
}

/* One change of an RFC 6902 list: "amount was 12 and is now 13". */
static void put_change(struct buf *text, struct slice diff, const struct json_value *change)
{
    const struct json_value *path = json_find(change, SLICE_LIT("path"));
    const struct json_value *op = json_find(change, SLICE_LIT("op"));
    const struct json_value *value = json_find(change, SLICE_LIT("value"));
    struct slice name = path == NULL ? SLICE_EMPTY : json_text(path);
    struct slice word = op == NULL ? SLICE_EMPTY : json_text(op);
    buf_str(text, "\n- ");
    buf_slice(text, name.len == 0 ? SLICE_LIT("(all arguments)") : name);
    if (slice_is(word, "remove")) {
        buf_str(text, " was there in the first call and is missing now");
    } else {
        buf_str(text, slice_is(word, "add") ? " was not in the first call and is now "
                                            : " is different from the first call and is now ");
        buf_slice(text, value == NULL ? SLICE_LIT("null") : json_raw(diff, value));
    }
}

static void put_changes(struct buf *text, const struct mem *mem, struct slice diff)
{
    struct arena arena;
    const struct json_value *root = NULL;
    arena_init(&arena, mem, TREE_BYTES_MAX);
    if (diff.len > 0 && json_read(diff, &arena, &root, NULL) == OK && json_is(root, JSON_ARRAY)) {
        buf_str(text, " What differs:");
        for (uint32_t i = 0; i < root->count; i++) {
            put_change(text, diff, &root->items[i]);
        }
        buf_str(text, "\n");
    } else {
        buf_str(text, " ");
    }
    arena_release(&arena);
}

void words_conflict(const struct mcp_words *words, const struct mcp_job *job)
{
    struct buf text;
    buf_init(&text, words->proxy->options.mem, 2 * TEXT_BYTES_MAX);
    buf_printf(&text,
        "This call was not made: its idempotency_key \"%s\" was used before for '%s' with "
        "different arguments.",
        words->call->key, words->call->tool);
    put_changes(&text, words->proxy->options.mem, buf_view(&job->words));
    buf_str(&text, "To repeat the first call, send its arguments unchanged. To do something else, "
                   "choose a new idempotency_key.");
    put(words, once_decision_name(job->decision), job->operation_id, true, &text);
    buf_release(&text);
}

void words_running(const struct mcp_words *words, const struct mcp_job *job)
{
    struct buf text;
    buf_init(&text, words->proxy->options.mem, TEXT_BYTES_MAX);
    buf_printf(&text,
        "The same call of '%s' is still running. It was not made a second time. Ask again later "
        "with the same %s to get its result.",
        words->call->tool,
        words->call->is_derived ? "arguments" : "idempotency_key and the same arguments");
    put(words, "in_progress",
        job->operation_id[0] == '\0' ? words->call->operation_id : job->operation_id, true, &text);
    buf_release(&text);
}

void words_unknown(const struct mcp_words *words, const char *operation_id, uint64_t fence,
    const char *decision, const char *why)
{
    struct buf text;
    buf_init(&text, words->proxy->options.mem, TEXT_BYTES_MAX);
    buf_printf(&text,
        "Nobody knows whether this call of '%s' took effect: %s. Do NOT repeat it, and do not "
        "try to reach the same effect in another way: it may already have happened. Tell the "
        "user. Somebody has to check whether it happened, and then run: once resolve %s",
        words->call->tool, why, operation_id);
    if (fence > 0) {
        buf_printf(&text, " --fence %llu", (unsigned long long)fence);
    }
    buf_printf(&text,
        "%s --status executed|failed|not_executed --reason TEXT (once why %s%s shows what "
        "happened).",
        words->proxy->options.resolve, operation_id, words->proxy->options.resolve);
    put(words, decision, operation_id, true, &text);
    buf_release(&text);
}

void words_replay(const struct mcp_words *words, const struct mcp_job *job)
{
    struct slice outcome = buf_view(&job->outcome);
    struct mcp_reply reply = {.id = buf_view(&words->call->id_text),
        .decision = once_decision_name(job->decision),
        .operation_id = job->operation_id};
    /* What the server answered; but a person who resolved it may have given any outcome. */
    bool is_result = outcome.len > 0 && outcome.data[0] == '{' &&
                     (job->words.len <= 1 || scan_find(outcome, "content").len > 0);
    if (job->is_kept && is_result) {
        mcp_reply_result(words->out, &reply, outcome);
        return;
    }
    bool is_failed = job->status != ONCE_EXECUTED;
    struct buf text;
    buf_init(&text, words->proxy->options.mem, LIMIT_OUTCOME_BYTES_MAX + TEXT_BYTES_MAX);
    buf_printf(&text, "This call of '%s' was made before and %s. It was not made a second time.",
        words->call->tool, is_failed ? "failed" : "took effect");
    if (job->words.len > 1) {
        buf_printf(&text, " What was found out: %s.", job->words.data);
    }
    buf_str(&text, job->is_kept && outcome.len > 0 ? " Its outcome: " : " Its result is not kept.");
    buf_slice(&text, job->is_kept ? outcome : SLICE_EMPTY);
    put(words, reply.decision, reply.operation_id, is_failed, &text);
    buf_release(&text);
}
