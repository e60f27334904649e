/* What is compared, the begin, and waiting for somebody else's run. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/text.h"
#include "cli/holder.h"
#include "cli/origin.h"
#include "cli/out.h"
#include "cli/run.h"

enum {
    PAUSE_MS_MIN = 10,  /* most commands that are waited for are short */
    PAUSE_MS_MAX = 500, /* each look opens the store */
};

/* ---- what is compared -------------------------------------------------------------------- */

/* Arguments are bytes and need not be UTF-8: then they are compared as {"hex": …}. */
static void put_bytes(struct jsonw *json, struct slice bytes)
{
    if (text_utf8(bytes)) {
        jsonw_bytes(json, NULL, bytes);
        return;
    }
    jsonw_open(json, NULL, '{');
    buf_str(json->out, "\"hex\":\"");
    buf_hex(json->out, bytes.data, bytes.len);
    buf_char(json->out, '"');
    jsonw_close(json, '}');
}

static int put_environment(struct run *run, struct jsonw *json)
{
    const char *name = NULL;
    jsonw_open(json, "env", '{');
    for (size_t n = 0; (name = cli_nth(run->cli, "env", n)) != NULL; n++) {
        if (name[0] == '\0' || strchr(name, '=') != NULL || !text_utf8(slice_str(name))) {
            return cli_usage(run->cli, "run: --env: '%s' is not the name of a variable", name);
        }
        bool seen = false;
        for (size_t i = 0; i < n; i++) {
            seen = seen || strcmp(cli_nth(run->cli, "env", i), name) == 0;
        }
        if (seen) {
            continue; /* twice the same member would not be JSON that can be compared */
        }
        jsonw_bytes(json, NULL, slice_str(name));
        buf_char(json->out, ':');
        json->comma = false;
        const char *value = getenv(name);
        if (value == NULL) {
            jsonw_raw(json, NULL, SLICE_LIT("null")); /* unset is not the same as empty */
        } else {
            put_bytes(json, slice_str(value));
        }
    }
    jsonw_close(json, '}');
    return CLI_OK;
}

static int put_directory(struct jsonw *json)
{
    char path[PATH_MAX];
    if (getcwd(path, sizeof path) == NULL) {
        cli_say("cannot tell the working directory: %s", strerror(errno));
        cli_hint("--ignore-cwd leaves it out of what is compared");
        return CLI_RUN_FAILED;
    }
    buf_str(json->out, ",\"cwd\":");
    json->comma = false;
    put_bytes(json, slice_str(path));
    return CLI_OK;
}

int run_compose(struct run *run)
{
    struct jsonw json = {.out = &run->payload};
    jsonw_open(&json, NULL, '{');
    jsonw_open(&json, "argv", '[');
    for (size_t i = 0; i < run->cli->operand_count; i++) {
        put_bytes(&json, slice_str(run->cli->operands[i]));
    }
    jsonw_close(&json, ']');
    int code = cli_flag(run->cli, "ignore-cwd") ? CLI_OK : put_directory(&json);
    code = code != CLI_OK ? code : put_environment(run, &json);
    jsonw_close(&json, '}');
    if (code == CLI_OK && buf_status(&run->payload) != OK) {
        cli_say("the command line is too long to be compared");
        code = CLI_RUN_FAILED;
    }
    return code;
}

/* ---- ask --------------------------------------------------------------------------------- */

/* Replays are copied whole: printing them could take as long as our readers like. */
static int copy_answer(
    struct run *run, const struct once_answer *from, struct run_answer *ret_answer)
{
    struct err err = {0};
    struct arena *arena = &run->cli->arena;
    const struct once_operation *operation = from->operation;
    struct run_answer answer = {
        .decision = from->decision,
        .fence = from->fence,
        .attempt = from->attempt,
        .lease_expires_ms = from->lease_expires_ms,
        .retry_after_ms = from->retry_after_ms,
    };
    memcpy(answer.operation_id, from->operation_id, sizeof answer.operation_id);
    enum status status = arena_copy(arena, slice_str(from->diff), &answer.diff);
    if (status == OK && operation != NULL) {
        answer.status = operation->status;
        answer.code = operation->outcome.code;
        answer.since_ms = operation->updated_ms;
        answer.attempt = operation->attempt;
        answer.fence = operation->fence;
        status = arena_copy(arena, slice_str(operation->reason), &answer.reason);
    }
    if (status == OK && operation != NULL && answer.decision == ONCE_DUPLICATE_REPLAYED) {
        status = recording_read(operation, arena, &answer.recording, &err);
    }
    if (status != OK) {
        cli_say("%s", err.text[0] == '\0' ? "out of memory" : err.text);
        return CLI_RUN_FAILED;
    }
    *ret_answer = answer;
    return CLI_OK;
}

/* Ask once; and when it is in progress in a process that is gone, say so for it and ask again. The
 * command may still be running without us, which is why this makes it unknown and not free (P5). */
static int ask_store(struct run *run, struct once *once, const struct once_begin *request,
    struct once_answer **ret_answer, struct once_error *error)
{
    char reason[128];
    int64_t pid = 0;
    struct once_answer *answer = NULL;
    int result = once_begin(once, request, &answer, error);
    const struct once_operation *operation = result == ONCE_OK ? answer->operation : NULL;
    /* The trace is that of the first attempt, so a later one's holder is not known. */
    if (operation == NULL || answer->decision != ONCE_IN_PROGRESS || operation->attempt != 1 ||
        !holder_gone(operation->trace, &pid)) {
        *ret_answer = answer;
        return result;
    }
    (void)snprintf(
        reason, sizeof reason, "the process that ran it, pid %lld, is gone", (long long)pid);
    struct once_hold hold = {.operation_id = operation->operation_id,
        .fence = operation->fence,
        .reason = reason,
        .request_id = cli_text(run->cli, "request-id")};
    result = once_unknown(once, &hold, NULL, error);
    once_answer_free(once, answer);
    /* ONCE_E_STALE: it was settled in this very moment; asking again shows how. */
    return result == ONCE_OK || result == ONCE_E_STALE
               ? once_begin(once, request, ret_answer, error)
               : result;
}

/* A server keeps the store for as long as it runs: there is no use in waiting for it. */
static bool is_held_by_server(struct cli *cli)
{
    struct origin_server server;
    origin_own_server(cli, &server);
    if (server.url == NULL) {
        return false;
    }
    char who[64] = "a server";
    if (server.pid != 0) {
        (void)snprintf(who, sizeof who, "a server, pid %lld,", (long long)server.pid);
    }
    cli_say("cannot open store '%s': %s holds it", cli_text(cli, "store"), who);
    cli_hint("give once run a store of its own with --store, or begin and seal over the server's "
             "HTTP API");
    return true;
}

static int begin(struct run *run, struct run_answer *ret_answer)
{
    struct cli *cli = run->cli;
    struct once_error error = {0};
    struct once *once = NULL;
    struct once_answer *answer = NULL;
    struct cli_open how = {.lock_wait_ms = RUN_LOCK_WAIT_MS};
    if (is_held_by_server(cli)) {
        return CLI_RUN_FAILED;
    }
    if (cli_try_open(cli, how, &once, &error) != ONCE_OK) {
        (void)cli_fail(&error);
        return error.result == ONCE_E_INVALID ? CLI_USAGE : CLI_RUN_FAILED;
    }
    struct buf holder;
    buf_init(&holder, &mem_libc, LIMIT_TRACE_BYTES_MAX);
    holder_put(&holder);
    buf_char(&holder, '\0');
    struct once_begin request = {
        .scope = run->scope,
        .key = run->key,
        .principal = cli_text(cli, "principal"),
        .payload = {run->payload.data, run->payload.len},
        .ttl_ms = cli_ms(cli, "ttl"),
        .lease_ms = cli_ms(cli, "lease"),
        .on_unknown =
            strcmp(cli_text(cli, "on-unknown"), "takeover") == 0 ? ONCE_TAKEOVER : ONCE_HOLD,
        .retry_failed = cli_flag(cli, "retry-failed"),
        .request_id = cli_text(cli, "request-id"),
        .trace = buf_status(&holder) == OK && holder.len > 1 ? holder.data : NULL,
    };
    int code = CLI_OK;
    if (ask_store(run, once, &request, &answer, &error) != ONCE_OK) {
        (void)cli_fail(&error);
        code = error.result == ONCE_E_INVALID ? CLI_USAGE : CLI_RUN_FAILED;
    } else {
        code = copy_answer(run, answer, ret_answer);
        once_answer_free(once, answer);
    }
    (void)once_close(once, NULL); /* what was answered is durable (P2) */
    buf_release(&holder);
    return code;
}

/* ---- wait -------------------------------------------------------------------------------- */

/* A wait for somebody else's run. All times are the boot clock's: the wall clock may jump. */
struct wait {
    int64_t until_ms;         /* when it ends */
    int64_t pause_ms;         /* until the next look; doubles, also across two asks */
    int64_t lease_expires_ms; /* of the lease that was seen last, in the store's time … */
    int64_t lease_seen_ms;    /* … and when it was seen first */
};

/* True when the lease is certainly over: a whole one has passed since it was first seen here. */
static bool is_lease_over(struct wait *wait, const struct once_operation *operation)
{
    int64_t now_ms = cli_boot_ms();
    if (operation->lease_expires_ms != wait->lease_expires_ms) {
        wait->lease_expires_ms = operation->lease_expires_ms;
        wait->lease_seen_ms = now_ms;
    }
    return now_ms - wait->lease_seen_ms >= operation->lease_expires_ms - operation->updated_ms;
}

/* Look, without leaving evidence of each look. True when asking again makes sense. */
static bool moved_on(struct run *run, const struct run_answer *answer, struct wait *wait)
{
    struct once *once = NULL;
    struct once_operation *operation = NULL;
    struct cli_open how = {.read_only = true, .must_exist = true};
    if (cli_try_open(run->cli, how, &once, NULL) != ONCE_OK) {
        return false; /* not now */
    }
    bool moved = false;
    int64_t pid = 0;
    if (once_get(once, answer->operation_id, &operation, NULL) == ONCE_OK) {
        moved = operation == NULL || operation->status != ONCE_STATUS_IN_PROGRESS ||
                is_lease_over(wait, operation) ||
                (operation->attempt == 1 && holder_gone(operation->trace, &pid));
        once_operation_free(once, operation);
    }
    (void)once_close(once, NULL); /* only looked */
    return moved;
}

static void wait_for_other(struct run *run, const struct run_answer *answer, struct wait *wait)
{
    bool moved = false;
    while (!moved) {
        int64_t left_ms = wait->until_ms - cli_boot_ms();
        if (left_ms <= 0) {
            return;
        }
        cli_sleep_ms(wait->pause_ms < left_ms ? wait->pause_ms : left_ms);
        wait->pause_ms = wait->pause_ms * 2 < PAUSE_MS_MAX ? wait->pause_ms * 2 : PAUSE_MS_MAX;
        moved = moved_on(run, answer, wait);
    }
}

int run_ask(struct run *run, struct run_answer *ret_answer)
{
    struct wait wait = {
        .until_ms = cli_boot_ms() + cli_ms(run->cli, "wait"), .pause_ms = PAUSE_MS_MIN};
    for (;;) {
        /* Blocked before the store is opened, because its threads inherit the mask; and before the
         * begin, so that a signal cannot end us between the grant and the command. */
        child_block(&run->mask_before);
        int code = begin(run, ret_answer);
        if (code == CLI_OK && ret_answer->decision == ONCE_FIRST_SEEN) {
            return CLI_OK;
        }
        child_unblock(&run->mask_before);
        if (code != CLI_OK || ret_answer->decision != ONCE_IN_PROGRESS ||
            cli_boot_ms() >= wait.until_ms) {
            return code;
        }
        wait_for_other(run, ret_answer, &wait);
    }
}
