/* once migrate: the schema of a store on a database server. */
#include "lib/migrate.h"

#include <string.h>

#include "cli/cli.h"
#include "cli/out.h"

enum {
    ROLES_MAX = 32,
    SCRIPT_BYTES_MAX = 1 << 20,
};

/* "ROLE=TENANT": the role is a copy. False: out of memory. */
static bool split_tenant(struct cli *cli, struct migrate_role *role)
{
    const char *equals = strchr(role->name, '=');
    if (role->right != MIGRATE_FUNCTIONS || equals == NULL) {
        return true;
    }
    role->tenant = equals + 1;
    struct slice given = slice_of(role->name, (size_t)(equals - role->name));
    char *copy = arena_alloc(&cli->arena, given.len + 1);
    if (copy == NULL) {
        return false;
    }
    memcpy(copy, given.data, given.len);
    copy[given.len] = '\0';
    role->name = copy;
    return true;
}

/* Append the roles of one option. False: too many. */
static bool take_roles(struct cli *cli, const char *option, enum migrate_right right,
    struct migrate_role *roles, size_t *count)
{
    for (size_t i = 0; cli_nth(cli, option, i) != NULL; i++) {
        if (*count == ROLES_MAX) {
            return false;
        }
        roles[*count] = (struct migrate_role){.name = cli_nth(cli, option, i), .right = right};
        if (!split_tenant(cli, &roles[(*count)++])) {
            return false;
        }
    }
    return true;
}

static int print_script(const struct migrate_plan *plan)
{
    struct buf script;
    struct err err = {0};
    buf_init(&script, &mem_libc, SCRIPT_BYTES_MAX);
    int code = CLI_OK;
    if (migrate_print(plan, &script, &err) != OK) {
        code = cli_fail_err(&err);
    } else {
        out_bytes(buf_view(&script));
        code = out_finish_listing();
    }
    buf_release(&script);
    return code;
}

static int print_result(const struct cli *cli, const struct migrate_result *result)
{
    if (cli->json) {
        struct out_json whole;
        struct jsonw *json = out_json_begin(&whole, 1024);
        jsonw_u64(json, "version_before", (uint64_t)result->version_before);
        jsonw_u64(json, "version", (uint64_t)result->version_after);
        return out_json_end(&whole);
    }
    if (result->version_before == result->version_after) {
        out_text("the schema has version %d already\n", result->version_after);
    } else {
        out_text("the schema has version %d now, after %d\n", result->version_after,
            result->version_before);
    }
    return out_finish();
}

int cmd_migrate(struct cli *cli)
{
    struct err err = {0};
    struct migrate_role roles[ROLES_MAX];
    struct migrate_plan plan = {.url = cli_text(cli, "store"), .roles = roles};
    struct migrate_result result = {0};
    if (!take_roles(cli, "grant", MIGRATE_RUN, roles, &plan.role_count) ||
        !take_roles(cli, "grant-read", MIGRATE_READ, roles, &plan.role_count) ||
        !take_roles(cli, "grant-functions", MIGRATE_FUNCTIONS, roles, &plan.role_count)) {
        return cli_usage(cli, "migrate: more than 32 roles");
    }
    if (cli_flag(cli, "print")) {
        return print_script(&plan);
    }
    return migrate_store(&plan, &result, &err) == OK ? print_result(cli, &result)
                                                     : cli_fail_err(&err);
}
