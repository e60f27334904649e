/* Makes the payload and the begin, and waits for a run by a different process. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/text.h"
#include "cli/begin.h"
#include "cli/holder.h"
#include "cli/out.h"
#include "cli/run.h"

enum {
    PAUSE_MS_MIN = 10,  /* most commands that we wait for are short */
    PAUSE_MS_MAX = 500, /* each check opens the store */
};

/* ---- the payload ------------------------------------------------------------------------- */

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
            continue; /* a repeated member would not be JSON that can be compared */
        }
        jsonw_bytes(json, NULL, slice_str(name));
        buf_char(json->out, ':');
        json->comma = false;
        const char *value = getenv(name);
        if (value == NULL) {
            jsonw_raw(json, NULL, SLICE_LIT("null")); /* unset differs from empty */
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
        cli_say("cannot read the working directory: %s", strerror(errno));
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

static int fail(const struct once_error *error)
{
    if (error->text[0] != '\0') {
        (void)cli_fail(error);
    }
    return error->result == ONCE_E_UNKNOWN   ? CLI_AGAIN
           : error->result == ONCE_E_INVALID ? CLI_USAGE
                                             : CLI_RUN_FAILED;
}

/* *ret_again: a different process held the store all the time, and until_ms is not over. */
static int begin(
    struct run *run, int64_t until_ms, struct backend_answer *ret_answer, bool *ret_again)
{
    struct cli *cli = run->cli;
    struct once_error error = {0};
    struct backend backend;
    struct cli_open how = {.lock_wait_ms = RUN_LOCK_WAIT_MS};
    *ret_again = false;
    if ((error.result = backend_try_open(cli, how, &backend, &error)) != ONCE_OK) {
        int64_t now_ms = cli_boot_ms();
        backend_close(&backend);
        *ret_again = error.result == ONCE_E_UNAVAILABLE && now_ms < until_ms &&
                     now_ms - run->asked_ms >= RUN_LOCK_WAIT_MS;
        return *ret_again ? CLI_AGAIN : fail(&error);
    }
    backend.found = &cli->arena; /* printing a replay may take as long as our readers take */
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
    int result = begin_ask(&backend, &request, "once run", ret_answer, &error);
    error.result = result;
    int code = result == ONCE_OK ? CLI_OK : fail(&error);
    code = result != ONCE_OK && backend.is_flooded ? CLI_AGAIN : code; /* too many callers run it */
    backend_close(&backend); /* what was answered is durable (P2) */
    buf_release(&holder);
    return code;
}

/* ---- wait -------------------------------------------------------------------------------- */

/* Waiting for a run by a different process. All times are the boot clock's: the wall clock may
 * jump. */
struct wait {
    int64_t until_ms;         /* when the wait ends */
    int64_t pause_ms;         /* until the next check; doubles, also across two begins */
    int64_t lease_expires_ms; /* of the last lease seen, in the store's time … */
    int64_t lease_seen_ms;    /* … and when it was seen first */
};

/* True if the lease is certainly over: a whole lease has passed since it was first seen here. */
static bool is_lease_over(struct wait *wait, const struct operation *operation)
{
    int64_t now_ms = cli_boot_ms();
    if (operation->lease_expires_ms != wait->lease_expires_ms) {
        wait->lease_expires_ms = operation->lease_expires_ms;
        wait->lease_seen_ms = now_ms;
    }
    return now_ms - wait->lease_seen_ms >= operation->lease_expires_ms - operation->updated_ms;
}

/* Check without adding evidence each time. True: it is worth beginning again. */
static bool moved_on(struct run *run, const struct backend_answer *answer, struct wait *wait)
{
    struct backend backend;
    const struct operation *operation = NULL;
    int64_t pid = 0;
    bool moved = false;
    if (backend_try_read(run->cli, &backend) != ONCE_OK) {
        backend_close(&backend);
        return false; /* not now */
    }
    if (backend.ops->peek(&backend, answer->operation_id, &operation) == ONCE_OK) {
        moved = operation == NULL || operation->status != ONCE_STATUS_IN_PROGRESS ||
                is_lease_over(wait, operation) || begin_holder_gone(operation, &backend.own, &pid);
    }
    backend_close(&backend); /* only looked */
    return moved;
}

static void wait_for_other(struct run *run, const struct backend_answer *answer, struct wait *wait)
{
    bool moved = false;
    while (!moved) {
        int64_t left_ms = wait->until_ms - cli_boot_ms();
        if (left_ms <= 0) {
            return;
        }
        clock_sleep_ms(wait->pause_ms < left_ms ? wait->pause_ms : left_ms);
        wait->pause_ms = clock_doubled_ms(wait->pause_ms, PAUSE_MS_MAX);
        moved = moved_on(run, answer, wait);
    }
}

int run_grant(struct run *run, struct backend_answer *ret_answer)
{
    struct wait wait = {
        .until_ms = cli_boot_ms() + cli_ms(run->cli, "wait"), .pause_ms = PAUSE_MS_MIN};
    for (;;) {
        /* Blocked before the store is opened, because its threads inherit the mask; and before the
         * begin, so that a signal cannot end us between the grant and the command. */
        child_block(&run->mask_before);
        run->asked_ms = cli_boot_ms();
        bool is_locked = false;
        int code = begin(run, wait.until_ms, ret_answer, &is_locked);
        if (code == CLI_OK && ret_answer->decision == ONCE_FIRST_SEEN) {
            return CLI_OK;
        }
        child_unblock(&run->mask_before); /* also while the store is locked: a signal ends us */
        if (is_locked) {
            continue;
        }
        if (code != CLI_OK || ret_answer->decision != ONCE_IN_PROGRESS ||
            cli_boot_ms() >= wait.until_ms) {
            return code;
        }
        wait_for_other(run, ret_answer, &wait);
    }
}
