/* once resolve: settle an unknown operation after somebody has looked. */
#include <limits.h>
#include <string.h>

#include "base/limits.h"
#include "cli/capture.h"
#include "cli/operation.h"

/* What duplicates will get. */
struct given {
    struct slice outcome;   /* of --outcome, as it is */
    struct capture capture; /* the same as standard output of a command */
    struct buf meta;        /* of the capture */
};

static enum once_status status_read(const char *name)
{
    if (strcmp(name, "executed") == 0) {
        return ONCE_EXECUTED;
    }
    return strcmp(name, "failed") == 0 ? ONCE_FAILED : ONCE_STATUS_RELEASED;
}

static int print_done(struct cli *cli, const struct origin_resolved *answer)
{
    if (!cli->json) {
        out_text("%s: %s%s\n", cli->operands[0], cli_text(cli, "status"),
            answer->repeated ? " (as it was before)" : "");
        return out_finish();
    }
    struct buf bytes;
    struct jsonw json = {.out = &bytes};
    buf_init(&bytes, &mem_libc, 8U * LIMIT_OUTCOME_BYTES_MAX);
    jsonw_open(&json, NULL, '{');
    jsonw_str(&json, "decision", once_decision_name(answer->decision));
    jsonw_bool(&json, "repeated", answer->repeated);
    if (answer->operation != NULL) {
        jsonw_open(&json, "operation", '{');
        operation_json(&json, cli, answer->operation, false);
        jsonw_close(&json, '}');
    }
    jsonw_close(&json, '}');
    int code = jsonw_print(&json);
    buf_release(&bytes);
    return code;
}

static int report(struct cli *cli, const struct origin_resolved *answer)
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
        cli_say("%s has had another attempt since; nothing changed", id);
        cli_hint("look again: once why %s", id);
        return CLI_DATA;
    }
    cli_say("%s was settled differently before; nothing changed", id);
    cli_hint("once why %s", id);
    return CLI_DATA;
}

static int resolve(struct cli *cli, struct origin *origin, const struct given *given)
{
    struct origin_resolved answer;
    enum once_status status = status_read(cli_text(cli, "status"));
    int64_t code_number = status == ONCE_FAILED ? 1 : 0;
    if (cli_text(cli, "exit-code") != NULL) {
        code_number = (int64_t)cli_count(cli, "exit-code");
    }
    struct origin_settle settle = {
        .outcome = given->outcome,
        .has_outcome = cli_text(cli, "outcome") != NULL,
        .has_exit_code = cli_text(cli, "exit-code") != NULL,
    };
    settle.resolve = (struct once_resolve){
        .operation_id = cli->operands[0],
        .fence = cli_text(cli, "fence") == NULL ? 0 : cli_count(cli, "fence"),
        .status = status,
        .effect_id = cli_text(cli, "effect-id"),
        .reason = cli_text(cli, "reason"),
        .actor = cli_text(cli, "actor"),
    };
    if (status != ONCE_STATUS_RELEASED) {
        settle.resolve.outcome = (struct once_outcome){.code = (int32_t)code_number,
            .meta = {given->meta.data, given->meta.len},
            .body = {given->capture.pieces.data, given->capture.pieces.len}};
    }
    int code = origin->ops->resolve(origin, &settle, &answer);
    return code != CLI_OK ? code : report(cli, &answer);
}

/* What duplicates will get: as if the command had written it. */
static int read_outcome(struct cli *cli, struct given *given)
{
    const char *path = cli_text(cli, "outcome");
    if (path != NULL) {
        int code = cli_read_file(cli, path, CAPTURE_BYTES_MAX, &given->outcome);
        if (code != CLI_OK) {
            return code;
        }
        capture_add(&given->capture, CAPTURE_STDOUT, given->outcome);
    }
    capture_meta(&given->capture, &given->meta);
    return CLI_OK;
}

int cmd_resolve(struct cli *cli)
{
    struct origin origin = {0};
    struct given given = {0};
    bool not_executed = strcmp(cli_text(cli, "status"), "not_executed") == 0;
    if (not_executed && (cli_text(cli, "outcome") != NULL || cli_text(cli, "exit-code") != NULL)) {
        return cli_usage(cli, "resolve: what was not executed has no --outcome or --exit-code");
    }
    if (cli_text(cli, "exit-code") != NULL && cli_count(cli, "exit-code") > 255) {
        return cli_usage(cli, "resolve: --exit-code is more than 255");
    }
    capture_init(&given.capture, CAPTURE_BYTES_MAX);
    buf_init(&given.meta, &mem_libc, LIMIT_OUTCOME_META_BYTES_MAX);
    int code = read_outcome(cli, &given);
    code = code != CLI_OK ? code : origin_open_to_change(cli, &origin);
    code = code != CLI_OK ? code : resolve(cli, &origin, &given);
    origin_close(&origin);
    capture_release(&given.capture);
    buf_release(&given.meta);
    return code;
}
