/* once ls: lists operations, one per line. */
#include <string.h>
#include <unistd.h>

#include "cli/filter.h"
#include "cli/ls_rows.h"
#include "cli/work.h"

static enum once_status status_read(const char *name)
{
    for (int i = ONCE_STATUS_IN_PROGRESS; name != NULL && i <= ONCE_COMPENSATED; i++) {
        if (strcmp(once_status_name((enum once_status)i), name) == 0) {
            return (enum once_status)i;
        }
    }
    return (enum once_status)0; /* any */
}

struct listing {
    struct ls_rows rows;
    bool no_memory;
};

static int visit(void *context, const struct operation *operation)
{
    struct listing *listing = context;
    listing->no_memory = !ls_rows_add(&listing->rows, operation);
    return listing->no_memory || listing->rows.left == 0 || out_broken() ? 1 : 0;
}

/* An empty answer is right for a program, but looks like a failure to a person. */
static void say_empty(const struct cli *cli)
{
    if (cli->json || isatty(STDERR_FILENO) != 1) {
        return;
    }
    cli_say("no operation%s", filter_given(cli) || cli_flag(cli, "status") ? " matches" : "s");
    if (!cli_flag(cli, "tenant") && !cli_flag(cli, "server") && !cli_flag(cli, "all-tenants")) {
        cli_hint("these are of tenant '%s'; --tenant names a different one, --all-tenants all",
            cli_text(cli, "tenant"));
    }
}

static int check_options(struct cli *cli)
{
    const char *what = cli->operand_count > 0 ? cli->operands[0] : "operations";
    const char *status = cli_text(cli, "status");
    if (strcmp(what, "operations") != 0) {
        return cli_usage(cli,
            "ls: '%s' cannot be listed: operations, commands, effects, deliveries and targets can",
            what);
    }
    if (status != NULL && (int)status_read(status) == 0) {
        return cli_usage(cli,
            "ls: '%s' is not a status of operations: in_progress, unknown, released, executed, "
            "failed, rejected, compensated",
            status);
    }
    return cli_flag(cli, "all-tenants") && cli_flag(cli, "tenant")
               ? cli_usage(cli, "ls: give --tenant or --all-tenants, not both")
               : CLI_OK;
}

/* All operations are read, whatever the limit: a store does not keep them in order. */
static int list(struct cli *cli, struct backend *backend)
{
    struct listing listing = {0};
    struct filter filter = filter_of(cli, status_read(cli_text(cli, "status")));
    ls_rows_init(&listing.rows, cli, filter.basic.status == ONCE_STATUS_UNKNOWN,
        (size_t)cli_count(cli, "limit"));
    int code = filter_each(backend, &filter, visit, &listing);
    if (listing.no_memory || !ls_rows_print(&listing.rows)) {
        cli_say("cannot list the operations: out of memory");
        code = CLI_UNAVAILABLE;
    }
    if (code == CLI_OK && listing.rows.printed == 0 && !out_broken()) {
        say_empty(cli);
    }
    ls_rows_release(&listing.rows);
    return code;
}

/* ---- targets ------------------------------------------------------------------------------ */

static int print_targets(struct cli *cli, struct slice text)
{
    const struct json_value *root = NULL;
    struct err err = {0};
    if (json_read(text, &cli->arena, &root, &err) != OK) {
        return cli_fail_err(&err);
    }
    const struct json_value *list = json_find(root, SLICE_LIT("targets"));
    if (cli->json) {
        out_bytes(list == NULL ? text : json_raw(text, list));
        out_text("\n");
    }
    for (uint32_t i = 0; !cli->json && json_is(list, JSON_ARRAY) && i < list->count; i++) {
        const struct json_value *target = &list->items[i];
        out_text("%-10.*s  %-24.*s  %-9.*s  opened %.*s times\n",
            SLICE_ARGS(cli_member(target, SLICE_LIT("kind"))),
            SLICE_ARGS(cli_member(target, SLICE_LIT("target"))),
            SLICE_ARGS(cli_member(target, SLICE_LIT("breaker"))),
            SLICE_ARGS(cli_member(target, SLICE_LIT("opened"))));
    }
    return out_finish_listing();
}

/* Breakers are a running process's own: a store knows nothing of them. */
static int list_targets(struct cli *cli)
{
    struct slice text;
    int code = backend_get(cli, "/v1/targets",
        "--server URL asks a server; --store finds the one that holds a journal", &text);
    return code == CLI_OK ? print_targets(cli, text) : code;
}

int cmd_ls(struct cli *cli)
{
    struct backend backend;
    if (cli->operand_count > 0 && strcmp(cli->operands[0], "targets") == 0) {
        return list_targets(cli);
    }
    const struct work_kind *kind =
        cli->operand_count > 0 ? work_kind_named(cli->operands[0]) : NULL;
    if (kind != NULL) {
        return work_list(cli, kind);
    }
    int code = check_options(cli);
    code = code != CLI_OK ? code : backend_open(cli, &backend);
    if (code != CLI_OK) {
        return code;
    }
    out_text(cli->json ? "[" : "");
    code = list(cli, &backend);
    out_text(cli->json ? "]\n" : "");
    int written = out_finish_listing();
    code = code != CLI_OK ? code : written;
    backend_close(&backend);
    return code;
}
