/* once resolve: settle an unknown operation after somebody has looked. */
#include <limits.h>
#include <string.h>

#include "base/limits.h"
#include "cli/backend.h"
#include "cli/capture.h"

/* What duplicates will get: what was given as it is, which has to be JSON; or, of a command, as if
 * it had written it. */
struct given {
    struct slice file;      /* of --outcome */
    struct capture capture; /* the same as standard output of a command */
    struct buf json;        /* what is stored */
    int exit_code;          /* of a command */
    bool is_run;            /* it is as if a command had written it */
};

static enum once_status status_read(const char *name)
{
    if (strcmp(name, "executed") == 0) {
        return ONCE_EXECUTED;
    }
    return strcmp(name, "failed") == 0 ? ONCE_FAILED : ONCE_STATUS_RELEASED;
}

static int print_done(struct cli *cli, const struct backend_answer *answer)
{
    if (!cli->json) {
        out_text("%s: %s%s\n", cli->operands[0], cli_text(cli, "status"),
            answer->repeated ? " (as it was before)" : "");
        return out_finish();
    }
    struct out_json whole;
    struct jsonw *json = out_json_begin(&whole, 8U * LIMIT_OUTCOME_BYTES_MAX);
    jsonw_str(json, "decision", once_decision_name(answer->decision));
    jsonw_bool(json, "repeated", answer->repeated);
    if (answer->operation != NULL) {
        jsonw_raw(json, "operation", answer->operation->json);
    }
    return out_json_end(&whole);
}

static int report(struct cli *cli, const struct backend_answer *answer)
{
    const char *id = cli->operands[0];
    if (answer->decision == ONCE_RESOLVED) {
        return print_done(cli, answer);
    }
    if (answer->decision == ONCE_STILL_RUNNING) {
        cli_say("%s is still running: its lease is alive", id);
        cli_hint("wait for it to end, or for its lease to run out");
        return CLI_AGAIN;
    }
    if (answer->decision == ONCE_NOT_FOUND) {
        cli_say("there is no operation '%s'", id);
        return CLI_DATA;
    }
    if (answer->decision == ONCE_STALE_FENCE) {
        cli_say("there has been a newer attempt of %s; nothing changed", id);
        cli_hint("check again: once why %s", id);
        return CLI_DATA;
    }
    cli_say("%s was settled differently before; nothing changed", id);
    cli_hint("once why %s", id);
    return CLI_DATA;
}

/* The outcome as it is stored. */
static int compose(struct cli *cli, const struct backend *backend, struct given *given)
{
    struct err err = {0};
    const struct json_value *root = NULL;
    given->is_run = backend->remote == NULL || cli_text(cli, "exit-code") != NULL;
    if (given->is_run) {
        capture_json(&given->capture, given->exit_code, true, &given->json);
        if (buf_status(&given->json) != OK) {
            cli_say("the outcome is too large");
            return CLI_DATA;
        }
        return CLI_OK;
    }
    buf_slice(&given->json, given->file);
    if (given->file.len > 0 && json_read(given->file, &cli->arena, &root, &err) != OK) {
        err_prefix(&err, "the outcome for a server has to be JSON");
        (void)cli_fail_err(&err);
        return CLI_DATA;
    }
    return CLI_OK;
}

static int resolve(struct cli *cli, struct backend *backend, struct given *given)
{
    struct once_error error = {0};
    struct backend_answer answer = {.decision = ONCE_RESOLVED};
    enum once_status status = status_read(cli_text(cli, "status"));
    given->exit_code = cli_text(cli, "exit-code") != NULL ? (int)cli_count(cli, "exit-code")
                       : status == ONCE_FAILED            ? 1
                                                          : 0;
    int code = status == ONCE_STATUS_RELEASED ? CLI_OK : compose(cli, backend, given);
    if (code != CLI_OK) {
        return code;
    }
    struct once_resolve settle = {
        .operation_id = cli->operands[0],
        .fence = cli_text(cli, "fence") == NULL ? 0 : cli_count(cli, "fence"),
        .status = status,
        .effect_id = cli_text(cli, "effect-id"),
        .reason = cli_text(cli, "reason"),
        .actor = cli_text(cli, "actor"),
    };
    if (given->json.len > 0) {
        settle.outcome = (struct once_outcome){.code = given->is_run ? given->exit_code : 0,
            .meta = {OUTCOME_JSON_META, strlen(OUTCOME_JSON_META)},
            .body = {given->json.data, given->json.len}};
    }
    if (backend->ops->call(backend, &(struct once_call){.resolve = &settle}, &answer, &error) !=
        ONCE_OK) {
        code = cli_fail(&error);
        return backend->refused_code != 0 ? backend->refused_code : code;
    }
    answer.operation = NULL;
    if (cli->json && answer.decision == ONCE_RESOLVED) {
        /* The answer to a change has no bodies. Without the document it is settled all the same. */
        (void)!backend->ops->get(backend, cli->operands[0], &answer.operation);
    }
    return report(cli, &answer);
}

/* What duplicates will get. */
static int read_outcome(struct cli *cli, struct given *given)
{
    const char *path = cli_text(cli, "outcome");
    if (path == NULL) {
        return CLI_OK;
    }
    int code = cli_read_file(cli, path, CAPTURE_BYTES_MAX, &given->file);
    if (code == CLI_OK) {
        capture_add(&given->capture, CAPTURE_STDOUT, given->file);
    }
    return code;
}

int cmd_resolve(struct cli *cli)
{
    struct backend backend = {0};
    struct given given = {0};
    bool not_executed = strcmp(cli_text(cli, "status"), "not_executed") == 0;
    if (not_executed && (cli_text(cli, "outcome") != NULL || cli_text(cli, "exit-code") != NULL)) {
        return cli_usage(cli, "resolve: what was not executed has no --outcome or --exit-code");
    }
    if (cli_text(cli, "exit-code") != NULL && cli_count(cli, "exit-code") > 255) {
        return cli_usage(cli, "resolve: --exit-code is more than 255");
    }
    capture_init(&given.capture, CAPTURE_BYTES_MAX);
    buf_init(&given.json, &mem_libc, LIMIT_OUTCOME_BYTES_MAX);
    int code = read_outcome(cli, &given);
    code = code != CLI_OK ? code : backend_open_to_change(cli, &backend);
    code = code != CLI_OK ? code : resolve(cli, &backend, &given);
    backend_close(&backend);
    capture_release(&given.capture);
    buf_release(&given.json);
    return code;
}
