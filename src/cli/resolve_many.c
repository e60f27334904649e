/*
 * Settles every unknown operation that matches the filters, after the operator has agreed.
 *
 *     list (the store is only read) > agree: --yes, or a person at a terminal > settle each
 *
 * Each operation is settled by a separate call, for the attempt that was listed: it has its own
 * decision and its own evidence, and one that has changed meanwhile stays as it is. The first
 * failure ends the command; operations settled so far stay settled, and running the same command
 * line again continues with the rest.
 */
#include "cli/confirm_many.h"
#include "cli/resolve.h"

/* An operation to be settled. */
struct target {
    struct target *next;
    const char *id;
    uint64_t fence;
    struct slice json;
    struct slice scope;
    struct slice key;
};

struct targets {
    struct cli *cli;
    struct target *first;
    struct target **last; /* where the next one goes */
    size_t count;
    bool no_memory;
};

/* ---- targets ----------------------------------------------------------------------------- */

static int add_target(void *context, const struct operation *operation)
{
    struct targets *targets = context;
    struct arena *arena = &targets->cli->arena;
    struct target *target = arena_zalloc(arena, sizeof *target);
    const char *id = operation_id(operation, arena);
    if (target == NULL || id == NULL || arena_copy(arena, operation->json, &target->json) != OK ||
        arena_copy(arena, operation->scope, &target->scope) != OK ||
        arena_copy(arena, operation->key, &target->key) != OK) {
        targets->no_memory = true;
        return 1;
    }
    target->id = id;
    target->fence = operation->fence;
    *targets->last = target;
    targets->last = &target->next;
    targets->count++;
    return 0;
}

static int list(struct cli *cli, const struct filter *filter, struct targets *ret_targets)
{
    struct backend backend;
    int code = backend_open(cli, &backend);
    if (code == CLI_OK) {
        code = filter_each(&backend, filter, add_target, ret_targets);
    }
    if (code == CLI_OK && ret_targets->no_memory) {
        cli_say("cannot list the operations: out of memory");
        code = CLI_UNAVAILABLE;
    }
    backend_close(&backend);
    return code;
}

static void print_target(const struct cli *cli, const struct target *target)
{
    if (cli->json) {
        out_bytes(target->json);
        return;
    }
    out_text("%s would be %s: ", target->id, cli_text(cli, "status"));
    out_safe(target->scope);
    out_text(" ");
    out_safe(target->key);
    out_text("\n");
}

static int print_targets(const struct cli *cli, const struct targets *targets)
{
    out_text(cli->json ? "[" : "");
    for (const struct target *at = targets->first; at != NULL && !out_broken(); at = at->next) {
        out_text(cli->json && at != targets->first ? "," : "");
        print_target(cli, at);
    }
    out_text(cli->json ? "]\n" : "");
    return out_finish_listing();
}

/* ---- settled ----------------------------------------------------------------------------- */

static void print_done(
    const struct cli *cli, const struct target *target, const struct backend_answer *answer)
{
    struct buf bytes;
    struct jsonw json = {.out = &bytes};
    if (!cli->json) {
        out_text("%s: %s\n", target->id, cli_text(cli, "status"));
        return;
    }
    buf_init(&bytes, &mem_libc, 1024);
    jsonw_open(&json, NULL, '{');
    jsonw_str(&json, "operation_id", target->id);
    jsonw_str(&json, "decision", once_decision_name(answer->decision));
    jsonw_bool(&json, "repeated", answer->repeated);
    jsonw_close(&json, '}');
    out_bytes(buf_view(&bytes));
    buf_release(&bytes);
}

/* Settle all of them, or up to the first failure. */
static int settle_each(struct cli *cli, struct backend *backend, const struct targets *targets,
    const struct given_outcome *given, size_t *ret_settled)
{
    int code = CLI_OK;
    for (const struct target *at = targets->first; at != NULL; at = at->next) {
        struct backend_answer answer = {.decision = ONCE_RESOLVED};
        struct resolve_target one = {.operation_id = at->id, .fence = at->fence};
        int failed = resolve_call(cli, backend, &one, given, &answer);
        if (failed != CLI_OK) {
            return failed;
        }
        if (answer.decision != ONCE_RESOLVED) {
            code = resolve_refused(at->id, answer.decision); /* it changed: the others have not */
            continue;
        }
        out_text(cli->json && *ret_settled > 0 ? "," : "");
        print_done(cli, at, &answer);
        *ret_settled += 1;
    }
    return code;
}

static int settle_all(const struct many *many, struct cli *cli, const struct given_outcome *given,
    const struct targets *targets)
{
    struct backend backend = {0};
    size_t settled = 0;
    int code = backend_open_to_change(cli, &backend);
    out_text(cli->json ? "[" : "");
    code = code != CLI_OK ? code : settle_each(cli, &backend, targets, given, &settled);
    out_text(cli->json ? "]\n" : "");
    backend_close(&backend);
    if (code != CLI_OK) {
        many_stopped(many, settled, targets->count);
    }
    int written = out_finish();
    return code != CLI_OK ? code : written;
}

int resolve_many(struct cli *cli, const struct given_outcome *given)
{
    struct targets targets = {.cli = cli};
    struct filter filter = filter_of(cli, ONCE_STATUS_UNKNOWN);
    struct many many = {.cli = cli,
        .command = "resolve",
        .noun = "operation",
        .verb = "settle",
        .verbs = "settles",
        .done = "settled",
        .as = cli_text(cli, "status"),
        .which = "unknown operation",
        .still = "unknown"};
    bool is_agreed = false;
    targets.last = &targets.first;
    int code = list(cli, &filter, &targets);
    if (code != CLI_OK || cli_flag(cli, "dry-run")) {
        return code != CLI_OK ? code : print_targets(cli, &targets);
    }
    if (targets.count == 0) {
        many_none(&many);
        return cli->json ? print_targets(cli, &targets) : CLI_OK;
    }
    code = many_agree(&many, targets.count, &is_agreed);
    return code != CLI_OK || !is_agreed ? code : settle_all(&many, cli, given, &targets);
}
