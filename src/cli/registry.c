/* once registry: the commands that a server or a configuration knows. */
#include "cli/backend.h"
#include "cli/out.h"
#include "cli/serve_config.h"

enum { REGISTRY_BYTES_MAX = 8 << 20 };

static void print_names(const struct json_value *command, const char *member, const char *before)
{
    const struct json_value *list = json_find(command, slice_str(member));
    for (uint32_t i = 0; json_is(list, JSON_ARRAY) && i < list->count; i++) {
        const struct json_value *item = &list->items[i];
        struct slice name =
            json_is(item, JSON_OBJECT) ? cli_member(item, SLICE_LIT("effect")) : json_text(item);
        out_text("%s%.*s", i == 0 ? before : ",", SLICE_ARGS(name));
    }
}

static void print_command(const struct json_value *command)
{
    const struct json_value *args = json_find(command, SLICE_LIT("args"));
    struct slice confirm = cli_member(command, SLICE_LIT("confirm"));
    out_text("%-24.*s %-3.*s %6.*s", SLICE_ARGS(cli_member(command, SLICE_LIT("command"))),
        SLICE_ARGS(cli_member(command, SLICE_LIT("class"))),
        SLICE_ARGS(cli_member(command, SLICE_LIT("ttl"))));
    if (!slice_is(confirm, "none")) {
        out_text("  %.*s", SLICE_ARGS(confirm));
    }
    print_names(command, "shield", "  ");
    print_names(command, "effects", "  effects ");
    for (uint32_t i = 0; json_is(args, JSON_OBJECT) && i < args->count; i++) {
        bool required =
            json_is(json_find(&args->members[i].value, SLICE_LIT("required")), JSON_TRUE);
        out_text("%s%.*s%s", i == 0 ? "  (" : ", ", SLICE_ARGS(json_text(&args->members[i].name)),
            required ? "" : "?");
    }
    out_text("%s\n", json_is(args, JSON_OBJECT) && args->count > 0 ? ")" : "");
}

static int show(struct cli *cli, struct slice text)
{
    const struct json_value *root = NULL;
    struct err err = {0};
    if (cli->json) {
        out_bytes(text);
        out_text("\n");
        return out_finish();
    }
    if (json_read(text, &cli->arena, &root, &err) != OK) {
        return cli_fail_err(&err);
    }
    const struct json_value *list = json_find(root, SLICE_LIT("commands"));
    for (uint32_t i = 0; json_is(list, JSON_ARRAY) && i < list->count; i++) {
        print_command(&list->items[i]);
    }
    return out_finish_listing();
}

static int of_file(struct cli *cli, const char *path)
{
    struct serve_file file;
    int code = serve_config_file(path, &file);
    if (code != CLI_OK) {
        serve_faults_say(path, &file.faults);
        config_free(file.config);
        return code;
    }
    struct buf text;
    struct jsonw json = {.out = &text};
    buf_init(&text, &mem_libc, REGISTRY_BYTES_MAX);
    config_put_registry(&json, file.config->commands, file.config->command_count, true);
    code = buf_status(&text) == OK ? show(cli, buf_view(&text)) : CLI_UNAVAILABLE;
    buf_release(&text);
    config_free(file.config);
    return code;
}

int cmd_registry(struct cli *cli)
{
    const char *path = cli_text(cli, "config");
    struct slice text;
    if (path != NULL) {
        return of_file(cli, path);
    }
    int code = backend_get(cli, "/v1/registry",
        "--config FILE reads a configuration, --server URL asks a server", &text);
    return code == CLI_OK ? show(cli, text) : code;
}
