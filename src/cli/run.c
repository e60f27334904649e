/*
 * once run: the life of one call.
 *
 *   compose what is compared > begin > run the command > record its end > show the rest
 *
 * The begin and the record go to a store or a server (backend.h). Neither is held while the command
 * runs: each call finds out again whether a server holds the store, so that a server may start or
 * stop meanwhile.
 *
 * A crash of this process between
 *   asking and starting      leaves in_progress: after the lease unknown, though nothing ran (one
 *                            that stood still there renews its grant before it starts anything);
 *   starting and recording   leaves in_progress: after the lease unknown, and it may have run;
 *   recording and showing    loses output on our streams only: a duplicate gets it.
 * Nobody can tell the first two apart afterwards, so neither is run again automatically (P5).
 */
#include "cli/run.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/text.h"

extern char **environ;

enum {
    RECORD_FOR_MS = 60000, /* how long we try to record the end of a command */
    STANDSTILL_MS = 1000, /* between the begin and the command: after longer the grant is checked */
};

/* ---- record ------------------------------------------------------------------------------ */

/* How the grant is settled at the end. */
struct settlement {
    enum { SETTLE_SEAL, SETTLE_RELEASE, SETTLE_UNKNOWN } how;
    enum once_status status; /* seal */
    int code;                /* seal */
    const char *reason;      /* the others */
};

/* The outcome as JSON. If that is too large for the store, it is framed; if a server refuses it as
 * too large, only its size is reported (keeps_output is false). */
static int seal_call(struct run *run, struct backend *backend, const struct settlement *settlement,
    bool keeps_output, struct backend_answer *ret_answer, struct once_error *error)
{
    struct buf body;
    struct buf meta;
    buf_init(&body, &mem_libc, LIMIT_OUTCOME_BYTES_MAX);
    buf_init(&meta, &mem_libc, LIMIT_OUTCOME_META_BYTES_MAX);
    capture_json(&run->capture, settlement->code, keeps_output, &body);
    buf_str(&meta, OUTCOME_JSON_META);
    if (buf_status(&body) != OK) {
        buf_clear(&body);
        buf_clear(&meta);
        if (backend->remote == NULL) {
            capture_meta(&run->capture, &meta);
            buf_slice(&body, buf_view(&run->capture.pieces));
        } else {
            capture_json(&run->capture, settlement->code, false, &body);
        }
    }
    struct once_seal seal = {
        .operation_id = run->grant.operation_id,
        .fence = run->grant.fence,
        .status = settlement->status,
        .outcome = {.code = settlement->code,
            .meta = {meta.data, meta.len},
            .body = {body.data, body.len}},
        .request_id = cli_text(run->cli, "request-id"),
    };
    int result =
        buf_status(&body) == OK && buf_status(&meta) == OK
            ? backend->ops->call(backend, &(struct once_call){.seal = &seal}, ret_answer, error)
            : ONCE_E_NOMEM;
    buf_release(&meta);
    buf_release(&body);
    return result;
}

static int settle_call(struct run *run, struct backend *backend,
    const struct settlement *settlement, struct backend_answer *ret_answer,
    struct once_error *error)
{
    struct once_hold hold = {.operation_id = run->grant.operation_id,
        .fence = run->grant.fence,
        .reason = settlement->reason};
    struct once_call call = {.unknown = &hold};
    if (settlement->how == SETTLE_RELEASE) {
        call = (struct once_call){.release = &hold};
    }
    if (settlement->how != SETTLE_SEAL) {
        return backend->ops->call(backend, &call, ret_answer, error);
    }
    int result = seal_call(run, backend, settlement, true, ret_answer, error);
    if (result == ONCE_E_LIMIT && backend->remote != NULL) {
        cli_say("warning: the output is larger than the server takes: it is not recorded");
        result = seal_call(run, backend, settlement, false, ret_answer, error);
    }
    return result;
}

/* Whether it is the requested decision; any other means that the grant was no longer ours. */
static bool settled(const struct settlement *settlement, const struct backend_answer *answer)
{
    switch (settlement->how) {
    case SETTLE_SEAL: return answer->decision == ONCE_SEALED;
    case SETTLE_RELEASE: return answer->decision == ONCE_RELEASED_NOW;
    case SETTLE_UNKNOWN: return answer->decision == ONCE_MARKED_UNKNOWN;
    }
    return false;
}

static int settle_once(
    struct run *run, const struct settlement *settlement, bool *ret_ours, struct once_error *error)
{
    struct backend backend;
    struct backend_answer answer;
    struct cli_open how = {.must_exist = true, .lock_wait_ms = RUN_LOCK_WAIT_MS};
    int result = backend_try_open(run->cli, how, &backend, error);
    if (result == ONCE_OK) {
        result = settle_call(run, &backend, settlement, &answer, error);
    }
    if (result == ONCE_OK) {
        *ret_ours = settled(settlement, &answer);
        if (!*ret_ours) {
            cli_say("the end of %s was not recorded: %s", run->grant.operation_id,
                once_decision_name(answer.decision));
            cli_hint(
                "it was settled or taken over meanwhile: once why %s", run->grant.operation_id);
        }
    }
    backend_close(&backend); /* what was answered is durable (P2) */
    return result;
}

/* Record it, however long others hold the store or the server is away: for a minute, and at least
 * as long as the lease, during which others consider it running. False: not recorded; the message
 * is written. */
static bool settle(struct run *run, const struct settlement *settlement)
{
    struct once_error error = {0};
    int64_t lease_ms = run->grant.lease_ms;
    int64_t until = cli_boot_ms() + (lease_ms > RECORD_FOR_MS ? lease_ms : RECORD_FOR_MS);
    bool ours = false;
    for (int64_t pause_ms = 50;; pause_ms = clock_doubled_ms(pause_ms, 2000)) {
        int result = settle_once(run, settlement, &ours, &error);
        if (result == ONCE_OK) {
            return ours;
        }
        bool again = result == ONCE_E_UNAVAILABLE || result == ONCE_E_UNKNOWN;
        if (!again || cli_boot_ms() >= until) {
            break;
        }
        clock_sleep_ms(pause_ms); /* a seal may be repeated (H3) */
    }
    (void)cli_fail(&error);
    cli_say("the end of the command was not recorded; %s will be unknown", run->grant.operation_id);
    run_hint_unknown(run, run->grant.operation_id, run->grant.fence);
    return false;
}

/* ---- run --------------------------------------------------------------------------------- */

enum { VARIABLES = 4, VARIABLE_BYTES_MAX = 320 }; /* for the command; a key has at most 255 bytes */

static const char *const variable_names[VARIABLES] = {
    "ONCE_OPERATION_ID", "ONCE_FENCE", "ONCE_ATTEMPT", "ONCE_IDEMPOTENCY_KEY"};

/* Whether the variable is one of these: an inherited value belongs to an outer once run. */
static bool is_own_variable(const char *variable)
{
    for (size_t i = 0; i < VARIABLES; i++) {
        size_t len = strlen(variable_names[i]);
        if (strncmp(variable, variable_names[i], len) == 0 && variable[len] == '=') {
            return true;
        }
    }
    return false;
}

/* Our environment, plus variables that the command may send to its provider. NULL: out of
 * memory. */
static char **child_environment(struct run *run)
{
    struct arena *arena = &run->cli->arena;
    const struct grant *grant = &run->grant;
    size_t count = 0;
    while (environ[count] != NULL) {
        count++;
    }
    char **list = arena_zalloc(arena, (count + VARIABLES + 1) * sizeof *list);
    char(*given)[VARIABLE_BYTES_MAX] = arena_alloc(arena, VARIABLES * sizeof *given);
    if (list == NULL || given == NULL) {
        return NULL;
    }
    size_t used = 0;
    for (size_t i = 0; i < count; i++) {
        if (!is_own_variable(environ[i])) {
            list[used++] = environ[i];
        }
    }
    (void)snprintf(given[0], VARIABLE_BYTES_MAX, "%s=%s", variable_names[0], grant->operation_id);
    (void)snprintf(given[1], VARIABLE_BYTES_MAX, "%s=%llu", variable_names[1],
        (unsigned long long)grant->fence);
    (void)snprintf(given[2], VARIABLE_BYTES_MAX, "%s=%llu", variable_names[2],
        (unsigned long long)grant->attempt);
    (void)snprintf(given[3], VARIABLE_BYTES_MAX, "%s=%s", variable_names[3], run->key);
    for (size_t i = 0; i < VARIABLES; i++) {
        list[used++] = given[i];
    }
    return list;
}

/* The command never ran: the key is free again. */
static int not_started(struct run *run, int exit_code, const char *reason)
{
    bool freed = settle(run, &(struct settlement){.how = SETTLE_RELEASE, .reason = reason});
    return freed ? exit_code : CLI_RUN_FAILED;
}

static int exec_failed(struct run *run, int errno_value)
{
    const char *name = run->cli->operands[0];
    char reason[LIMIT_REASON_BYTES_MAX];
    (void)snprintf(
        reason, sizeof reason, "the command could not be started: %s", strerror(errno_value));
    if (errno_value == ENOENT) {
        cli_say("cannot run '%s': command not found", name);
        return not_started(run, CLI_RUN_NOT_FOUND, reason);
    }
    cli_say("cannot run '%s': %s", name, strerror(errno_value));
    bool once_failed = errno_value == ENOMEM || errno_value == EAGAIN || errno_value == EMFILE ||
                       errno_value == ENFILE;
    return not_started(run, once_failed ? CLI_RUN_FAILED : CLI_RUN_NOT_EXECUTABLE, reason);
}

/* Record how the command ended. */
static struct run_end record_end(struct run *run, int wait_status)
{
    if (WIFEXITED(wait_status)) {
        int code = WEXITSTATUS(wait_status);
        struct run_end end = {.status = code == 0 ? ONCE_EXECUTED : ONCE_FAILED, .code = code};
        end.recorded = settle(
            run, &(struct settlement){.how = SETTLE_SEAL, .status = end.status, .code = code});
        return end;
    }
    int number = WTERMSIG(wait_status);
    char reason[LIMIT_REASON_BYTES_MAX];
    (void)snprintf(reason, sizeof reason, "the command was killed by signal %d (%s)", number,
        strsignal(number));
    struct run_end end = {.status = ONCE_STATUS_UNKNOWN, .code = 128 + number};
    end.recorded = settle(run, &(struct settlement){.how = SETTLE_UNKNOWN, .reason = reason});
    cli_say("%s: whether it took effect is not known", reason);
    run_hint_unknown(run, run->grant.operation_id, run->grant.fence);
    return end;
}

static int follow_to_end(struct run *run, struct child *child)
{
    struct renewer renewer;
    int failed = renewer_start(&renewer, run->cli, &run->grant);
    if (failed != 0) {
        cli_say("warning: the lease is not renewed: %s", strerror(failed));
    }
    child_follow(child);
    if (failed == 0) {
        renewer_stop(&renewer);
    }
    struct run_end end = record_end(run, child->wait_status);
    child_show_rest(child);
    return run_report_end(run, child, &end);
}

/* Whether the grant is still ours. A slow answer, or a process that stood still, may have outlived
 * the lease: then the operation may have been settled, and a different process may run it (P1).
 * Renewing shows that; within a moment none of it can have happened. */
static bool is_still_granted(struct run *run)
{
    int64_t since_ms = cli_boot_ms() - run->asked_ms;
    enum once_decision decision;
    return (since_ms < STANDSTILL_MS && since_ms < run->grant.lease_ms / 3) ||
           renew_now(run->cli, &run->grant, &decision);
}

/* Run the command: the grant is ours. */
static int execute(struct run *run)
{
    struct cli *cli = run->cli;
    if (!is_still_granted(run)) {
        cli_say(
            "%s was granted too long ago: the command was not started", run->grant.operation_id);
        return not_started(run, CLI_RUN_FAILED, "the grant came too late");
    }
    int stopped = child_pending_signal();
    if (stopped != 0) {
        cli_say("stopped by signal %d before the command was started", stopped);
        return not_started(run, 128 + stopped, "stopped before the command was started");
    }
    char **environment = child_environment(run);
    struct child *child = arena_alloc(&cli->arena, sizeof *child);
    if (environment == NULL || child == NULL) {
        cli_say("out of memory before the command was started");
        return not_started(run, CLI_RUN_FAILED, "out of memory");
    }
    capture_init(&run->capture, cli_bytes(cli, "max-output"));
    int failed = child_start(
        child, cli->operands, environment, &run->mask_before, !cli->json, &run->capture);
    int code = failed != 0 ? exec_failed(run, failed) : follow_to_end(run, child);
    if (failed == 0) {
        child_release(child);
    }
    capture_release(&run->capture);
    return code;
}

static int act_on(struct run *run, const struct backend_answer *answer)
{
    switch (answer->decision) {
    case ONCE_FIRST_SEEN:
        run->grant = (struct grant){.fence = answer->fence,
            .attempt = answer->attempt,
            .lease_ms = cli_ms(run->cli, "lease")};
        memcpy(run->grant.operation_id, answer->operation_id, sizeof run->grant.operation_id);
        return execute(run);
    case ONCE_DUPLICATE_REPLAYED: return run_report_replay(run, answer);
    case ONCE_IN_PROGRESS:
    case ONCE_CONFLICT_REJECTED:
    case ONCE_HELD_UNKNOWN: return run_report_refusal(run, answer);
    case ONCE_SEALED:
    case ONCE_RELEASED_NOW:
    case ONCE_MARKED_UNKNOWN:
    case ONCE_RENEWED:
    case ONCE_RESOLVED:
    case ONCE_NOT_FOUND:
    case ONCE_STALE_FENCE:
    case ONCE_ALREADY_SEALED:
    case ONCE_STILL_RUNNING:
    case ONCE_STALE_VERSION: break;
    }
    cli_say("the store answered '%s' to a begin", once_decision_name(answer->decision));
    return CLI_RUN_FAILED;
}

int cmd_run(struct cli *cli)
{
    struct run run = {
        .cli = cli, .key = cli_text(cli, "idempotency-key"), .scope = cli_text(cli, "scope")};
    struct backend_answer answer = {0};
    if (cli_bytes(cli, "max-output") > CAPTURE_BYTES_MAX) {
        return cli_usage(cli, "run: --max-output is more than 15MiB");
    }
    buf_init(&run.payload, &mem_libc, LIMIT_JSON_BYTES_MAX);
    int code = run_compose(&run);
    code = code != CLI_OK ? code : run_grant(&run, &answer);
    code = code != CLI_OK ? code : act_on(&run, &answer);
    buf_release(&run.payload);
    return code;
}
