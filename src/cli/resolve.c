/* once resolve: settles unknown operations after an operator has checked them: one here, many in
 * resolve_many.c. */
#include "cli/resolve.h"

#include <string.h>

#include "base/limits.h"
#include "cli/confirm_many.h"
#include "cli/work.h"

/* The status names of an effect mean the same for an operation. */
static enum once_status status_read(const char *name)
{
    if (strcmp(name, "executed") == 0 || strcmp(name, "acknowledged") == 0) {
        return ONCE_EXECUTED;
    }
    return strcmp(name, "failed") == 0 ? ONCE_FAILED : ONCE_STATUS_RELEASED;
}

int resolve_call(struct cli *cli, struct backend *backend, const struct resolve_target *target,
    const struct given_outcome *given, struct backend_answer *ret_answer)
{
    struct once_error error = {0};
    struct once_outcome outcome;
    int made = given_outcome_make(cli, given, backend, target->operation_id, &outcome);
    if (made != CLI_OK) {
        return made;
    }
    struct once_resolve settle = {
        .operation_id = target->operation_id,
        .fence = target->fence,
        .status = status_read(cli_text(cli, "status")),
        .effect_id = cli_text(cli, "effect-id"),
        .reason = cli_text(cli, "reason"),
        .actor = cli_text(cli, "actor"),
        .outcome = outcome,
    };
    if (backend->ops->call(backend, &(struct once_call){.resolve = &settle}, ret_answer, &error) !=
        ONCE_OK) {
        int code = cli_fail(&error);
        return backend->refused_code != 0 ? backend->refused_code : code;
    }
    return CLI_OK;
}

int resolve_refused(const char *operation_id, enum once_decision decision)
{
    if (decision == ONCE_STILL_RUNNING) {
        cli_say("%s is still running: its lease is alive", operation_id);
        cli_hint("wait for it to end, or for its lease to run out");
        return CLI_AGAIN;
    }
    if (decision == ONCE_NOT_FOUND) {
        cli_say("there is no operation '%s'", operation_id);
        return CLI_DATA;
    }
    if (decision == ONCE_STALE_FENCE) {
        cli_say("there has been a newer attempt of %s; nothing changed", operation_id);
        cli_hint("check again: once why %s", operation_id);
        return CLI_DATA;
    }
    cli_say("%s was settled differently before; nothing changed", operation_id);
    cli_hint("once why %s", operation_id);
    return CLI_DATA;
}

/* ---- one --------------------------------------------------------------------------------- */

static int print_done(
    struct cli *cli, const char *operation_id, const struct backend_answer *answer)
{
    if (!cli->json) {
        out_text("%s: %s%s\n", operation_id, cli_text(cli, "status"),
            answer->repeated ? " (as it was before)" : "");
        return out_finish();
    }
    struct out_json whole;
    struct jsonw *json = out_json_begin(&whole, 8U * LIMIT_OUTCOME_BYTES_MAX);
    jsonw_str(json, "decision", once_decision_name(answer->decision));
    if (answer->repeated) {
        jsonw_bool(json, "repeated", true);
    }
    if (answer->operation != NULL && answer->operation->json.len > 2) { /* its members follow */
        struct slice document = answer->operation->json;
        buf_char(json->out, ',');
        buf_append(json->out, document.data + 1, document.len - 2);
    }
    return out_json_end(&whole);
}

static int settle_one(struct cli *cli, struct backend *backend, const struct given_outcome *given)
{
    struct backend_answer answer = {.decision = ONCE_RESOLVED};
    struct resolve_target target = {
        .fence = cli_text(cli, "fence") == NULL ? 0 : cli_count(cli, "fence")};
    int code = operation_name(cli, backend, cli->operands[0], &target.operation_id);
    code = code != CLI_OK ? code : resolve_call(cli, backend, &target, given, &answer);
    if (code != CLI_OK) {
        return code;
    }
    if (answer.decision != ONCE_RESOLVED) {
        return resolve_refused(target.operation_id, answer.decision);
    }
    answer.operation = NULL;
    if (cli->json) {
        /* The answer to a change has no bodies. Without the document the operation is still
         * settled. */
        (void)!backend->ops->get(backend, target.operation_id, &answer.operation);
    }
    return print_done(cli, target.operation_id, &answer);
}

static int resolve_one(struct cli *cli, const struct given_outcome *given)
{
    struct backend backend = {0};
    int code = backend_open_to_change(cli, &backend);
    code = code != CLI_OK ? code : settle_one(cli, &backend, given);
    backend_close(&backend);
    return code;
}

/* ---- options ----------------------------------------------------------------------------- */

static int check_options(const struct cli *cli, bool *ret_is_many)
{
    int code = many_check(cli, "resolve", "operation", ret_is_many);
    if (code == CLI_OK && *ret_is_many && (cli_flag(cli, "fence") || cli_flag(cli, "effect-id"))) {
        return cli_usage(cli, "resolve: --fence and --effect-id are of one operation");
    }
    if (code == CLI_OK && *ret_is_many && cli_flag(cli, "attempt")) {
        return cli_usage(cli, "resolve: --attempt is of one effect or command");
    }
    return code;
}

int cmd_resolve(struct cli *cli)
{
    struct given_outcome given;
    const struct work_kind *kind = NULL;
    const char *id = cli->operand_count > 0 ? cli->operands[0] : NULL;
    bool is_many = false;
    int code = id != NULL && work_kind_named(id) == NULL ? work_find(cli, &id, &kind) : CLI_OK;
    if (code == CLI_OK && kind != NULL) {
        return work_resolve(cli, kind, id);
    }
    code = code == CLI_OK ? check_options(cli, &is_many) : code;
    if (code == CLI_OK && is_many && cli->operand_count > 0) {
        return work_many(cli, "resolve");
    }
    code = code != CLI_OK ? code
                          : given_outcome_read(cli, status_read(cli_text(cli, "status")), &given);
    if (code != CLI_OK) {
        return code;
    }
    return is_many ? resolve_many(cli, &given) : resolve_one(cli, &given);
}
