/* once resolve: settle an unknown operation after somebody has looked. */
#include <string.h>

#include "base/limits.h"
#include "cli/backend.h"
#include "cli/given_outcome.h"

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

/* Settle one: the fence is that of the attempt that was checked, 0 any. */
static int settle(struct cli *cli, struct backend *backend, const struct once_outcome *outcome)
{
    struct once_error error = {0};
    struct backend_answer answer = {.decision = ONCE_RESOLVED};
    struct once_resolve settle = {
        .operation_id = cli->operands[0],
        .fence = cli_text(cli, "fence") == NULL ? 0 : cli_count(cli, "fence"),
        .status = status_read(cli_text(cli, "status")),
        .effect_id = cli_text(cli, "effect-id"),
        .reason = cli_text(cli, "reason"),
        .actor = cli_text(cli, "actor"),
        .outcome = *outcome,
    };
    if (backend->ops->call(backend, &(struct once_call){.resolve = &settle}, &answer, &error) !=
        ONCE_OK) {
        int code = cli_fail(&error);
        return backend->refused_code != 0 ? backend->refused_code : code;
    }
    answer.operation = NULL;
    if (cli->json && answer.decision == ONCE_RESOLVED) {
        /* The answer to a change has no bodies. Without the document it is settled all the same. */
        (void)!backend->ops->get(backend, cli->operands[0], &answer.operation);
    }
    return report(cli, &answer);
}

int cmd_resolve(struct cli *cli)
{
    struct backend backend = {0};
    struct once_outcome outcome = {0};
    struct given_outcome given;
    int code = given_outcome_read(cli, status_read(cli_text(cli, "status")), &given);
    code = code != CLI_OK ? code : backend_open_to_change(cli, &backend);
    code =
        code != CLI_OK ? code : given_outcome_make(cli, &given, backend.remote != NULL, &outcome);
    code = code != CLI_OK ? code : settle(cli, &backend, &outcome);
    backend_close(&backend);
    return code;
}
