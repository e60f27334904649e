/* The output of once run: replay, conflict, in progress, unknown, and all of them as JSON. */
#include <stdio.h>
#include <string.h>

#include "base/limits.h"
#include "base/text.h"
#include "canon/json.h"
#include "cli/out.h"
#include "cli/run.h"

enum { DOCUMENT_BYTES_MAX = 8 * LIMIT_OUTCOME_BYTES_MAX }; /* escapes: at most six bytes for one */

void run_hint_unknown(const struct run *run, const char *operation_id, uint64_t fence)
{
    char store[512];
    (void)backend_place_option(run->cli, store, sizeof store);
    cli_hint("check:   once show %s%s", operation_id, store);
    cli_hint("         once why %s%s", operation_id, store);
    cli_hint("settle:  once resolve %s --fence %llu%s --status executed|failed|not_executed "
             "--reason TEXT",
        operation_id, (unsigned long long)fence, store);
}

/* ---- JSON -------------------------------------------------------------------------------- */

static void put_recording(struct jsonw *json, const struct recording *recording)
{
    static const char *const names[] = {"stdout", "stderr"};
    static const char *const dropped[] = {"stdout_dropped", "stderr_dropped"};
    for (int i = 0; i < CAPTURE_STREAMS; i++) {
        struct buf bytes;
        buf_init(&bytes, &mem_libc, LIMIT_OUTCOME_BYTES_MAX);
        recording_stream(recording, i, &bytes);
        jsonw_bytes(json, names[i], buf_view(&bytes));
        jsonw_u64(
            json, dropped[i], recording->dropped[i] + (recording->gone ? recording->kept[i] : 0));
        buf_release(&bytes);
    }
}

/* The fence of the grant, or of the operation shown. */
static uint64_t fence_of(const struct backend_answer *answer)
{
    return answer->operation != NULL ? answer->operation->fence : answer->fence;
}

static uint64_t attempt_of(const struct backend_answer *answer)
{
    return answer->operation != NULL ? answer->operation->attempt : answer->attempt;
}

static int print_document(const struct run *run, const struct backend_answer *answer,
    const struct recording *recording, const struct run_end *end)
{
    struct out_json whole;
    struct jsonw *json = out_json_begin(&whole, DOCUMENT_BYTES_MAX);
    jsonw_str(json, "decision", once_decision_name(answer->decision));
    jsonw_str(json, "operation_id", answer->operation_id);
    jsonw_str(json, "scope", run->scope);
    jsonw_str(json, "key", run->key);
    if (fence_of(answer) != 0) {
        jsonw_u64(json, "fence", fence_of(answer));
        jsonw_u64(json, "attempt", attempt_of(answer));
    }
    if (end != NULL) {
        jsonw_str(json, "status", once_status_name(end->status));
        jsonw_bool(json, "recorded", end->recorded);
        if (end->status != ONCE_STATUS_UNKNOWN) {
            jsonw_i64(json, "exit_code", end->code);
        }
    }
    if (recording != NULL) {
        put_recording(json, recording);
    }
    if (answer->diff.len > 0) {
        jsonw_raw(json, "diff", answer->diff);
    }
    if (answer->decision == ONCE_IN_PROGRESS) {
        jsonw_i64(json, "retry_after_ms", answer->retry_after_ms);
    }
    return out_json_end(&whole);
}

/* ---- replay ------------------------------------------------------------------------------ */

static void say_missing(const char *id, const struct recording *recording)
{
    uint64_t dropped = recording->dropped[0] + recording->dropped[1];
    if (!recording->has_code) {
        cli_say("the outcome of %s is no longer retained: it failed, with which exit code is not "
                "known",
            id);
    } else if (recording->gone) {
        cli_say("the output of %s is no longer retained; its exit code was %d", id,
            recording->exit_code);
    } else if (dropped > 0) {
        cli_say("%s of the output of %s %s not retained (standard output %llu, standard "
                "error %llu)",
            COUNTED(dropped, "byte", "bytes"), id, dropped == 1 ? "was" : "were",
            (unsigned long long)recording->dropped[CAPTURE_STDOUT],
            (unsigned long long)recording->dropped[CAPTURE_STDERR]);
    }
}

/* A command that did its work has not failed because its output was not read; but the caller should
 * know. */
static int code_after_writing(int code, int write_errno)
{
    if (write_errno == 0) {
        return code;
    }
    cli_say("cannot write the output of the command: %s", strerror(write_errno));
    return code == CLI_OK ? CLI_IO : code;
}

int run_report_replay(struct run *run, const struct backend_answer *answer)
{
    struct err err = {0};
    struct recording recording;
    if (answer->operation == NULL) {
        cli_say("%s ended, and its window is over", answer->operation_id);
        return CLI_AGAIN;
    }
    if (recording_read(answer->operation, &run->cli->arena, &recording, &err) != OK) {
        cli_say("%s", err.text);
        return CLI_RUN_FAILED;
    }
    int code = recording.has_code ? recording.exit_code : CLI_RUN_FAILED;
    if (run->cli->json) {
        struct run_end end = {.status = answer->operation->status, .code = code, .recorded = true};
        int printed = print_document(run, answer, &recording, &end);
        return printed == CLI_OK ? code : printed;
    }
    int failed = recording.gone ? 0 : child_replay(&recording);
    say_missing(answer->operation_id, &recording);
    return code_after_writing(code, failed);
}

int run_report_end(struct run *run, struct child *child, const struct run_end *end)
{
    int code = end->status == ONCE_STATUS_UNKNOWN ? CLI_AGAIN : end->code;
    if (run->cli->json) {
        struct backend_answer answer = {
            .decision = ONCE_FIRST_SEEN, .fence = run->grant.fence, .attempt = run->grant.attempt};
        struct recording recording = recording_of(&run->capture);
        memcpy(answer.operation_id, run->grant.operation_id, sizeof answer.operation_id);
        int printed = print_document(run, &answer, &recording, end);
        code = printed != CLI_OK && code == CLI_OK ? printed : code;
    } else {
        code = code_after_writing(code, child_write_errno(child));
    }
    if (!end->recorded) {
        cli_say("the command ended with %d", end->code);
        return CLI_RUN_FAILED;
    }
    return code;
}

/* ---- refusal ----------------------------------------------------------------------------- */

/* One line for each operation of the patch: "/argv/1 is now \"200\"". */
static void say_diff(struct run *run, struct slice diff)
{
    const struct json_value *patch = NULL;
    if (diff.len == 0 || json_read(diff, &run->cli->arena, &patch, NULL) != OK ||
        !json_is(patch, JSON_ARRAY)) {
        return;
    }
    for (uint32_t i = 0; i < patch->count; i++) {
        const struct json_value *step = &patch->items[i];
        struct slice op = cli_member(step, SLICE_LIT("op"));
        struct slice path = cli_member(step, SLICE_LIT("path"));
        const struct json_value *value = json_find(step, SLICE_LIT("value"));
        struct slice text = value == NULL ? SLICE_EMPTY : json_text(value);
        if (slice_is(op, "remove")) {
            cli_say("  %.*s was removed", SLICE_ARGS(path));
        } else if (json_is(value, JSON_STRING)) {
            cli_say("  %.*s is %s '%.*s'", SLICE_ARGS(path), slice_is(op, "add") ? "new:" : "now",
                (int)(text.len < 200 ? text.len : 200), text.data == NULL ? "" : text.data);
        } else {
            cli_say("  %.*s is different", SLICE_ARGS(path));
        }
    }
}

static int refuse_conflict(struct run *run, const struct backend_answer *answer)
{
    char store[512];
    cli_say("conflict: key '%s' was used with a different command", run->key);
    say_diff(run, answer->diff);
    if (answer->operation_id[0] != '\0') {
        cli_hint("use a different key; the first request: once show %s%s", answer->operation_id,
            backend_place_option(run->cli, store, sizeof store));
    }
    return CLI_DATA;
}

static int refuse_unknown(struct run *run, const struct backend_answer *answer)
{
    char since[TEXT_TIME_BYTES];
    const struct operation *operation = answer->operation;
    if (operation == NULL) {
        cli_say("unknown: whether '%s' took effect is not known (operation %s)", run->key,
            answer->operation_id);
        return CLI_AGAIN;
    }
    cli_say("unknown: whether '%s' took effect is not known (operation %s, attempt %llu, since %s)",
        run->key, answer->operation_id, (unsigned long long)operation->attempt,
        text_put_time(since, operation->updated_ms));
    if (operation->reason.len > 0) {
        cli_say("  reason: %.*s", SLICE_ARGS(operation->reason));
    }
    run_hint_unknown(run, answer->operation_id, operation->fence);
    return CLI_AGAIN;
}

int run_report_refusal(struct run *run, const struct backend_answer *answer)
{
    int code = CLI_AGAIN;
    if (answer->decision == ONCE_CONFLICT_REJECTED) {
        code = refuse_conflict(run, answer);
    } else if (answer->decision == ONCE_HELD_UNKNOWN) {
        code = refuse_unknown(run, answer);
    } else {
        char store[512];
        cli_say("in progress: '%s' is running elsewhere (operation %s)", run->key,
            answer->operation_id);
        cli_hint("--wait TIME waits longer; once show %s%s", answer->operation_id,
            backend_place_option(run->cli, store, sizeof store));
    }
    if (run->cli->json) {
        int printed = print_document(run, answer, NULL, NULL);
        code = printed == CLI_OK ? code : printed;
    }
    return code;
}
