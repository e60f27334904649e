/* once check: checks a configuration. */
#include <string.h>

#include "cli/cli.h"
#include "cli/out.h"
#include "cli/serve_config.h"
#include "server/server.h"

enum { EXAMPLE_BYTES_MAX = 1 << 20 };

static int print_example(void)
{
    struct buf text;
    buf_init(&text, &mem_libc, EXAMPLE_BYTES_MAX);
    config_example_put(&text);
    out_bytes(buf_view(&text));
    buf_release(&text);
    return out_finish_listing();
}

/* A secret of the wrong form would stop the server. */
static int check_secrets(struct serve_file *file)
{
    const struct config_inbox *inbox = &file->config->inbox;
    int code = CLI_OK;
    for (size_t i = 0; i < inbox->source_count; i++) {
        const struct config_source *source = &inbox->sources[i];
        for (size_t j = 0; j < source->secret_count; j++) {
            const struct config_source_secret *secret = &source->secrets[j];
            struct config_place place = {.line = secret->line, .column = secret->column};
            struct err err;
            if (server_inbox_secret(source, j, &err) != OK) {
                config_fault_at(file->config, &file->faults, &place, NULL, "%s", err.text);
                code = CLI_CONFIG;
            }
        }
    }
    return code;
}

static int check_file(struct cli *cli, const char *path)
{
    struct serve_file file;
    int code = serve_config_file(path, &file);
    code = code == CLI_OK && !file.is_policy ? check_secrets(&file) : code;
    if (code != CLI_OK && !cli->json) {
        serve_faults_say(path, &file.faults);
    }
    if (code == CLI_OK || (cli->json && file.faults.count > 0)) {
        int printed = file.is_policy ? serve_policy_show(cli, path, &file)
                                     : serve_config_show(cli, path, file.config, &file.faults);
        code = code == CLI_OK ? printed : code;
    }
    config_free(file.config);
    return code;
}

int cmd_check(struct cli *cli)
{
    if (cli_flag(cli, "example") && cli->operand_count > 0) {
        return cli_usage(cli, "check: --example takes no file");
    }
    if (cli_flag(cli, "example")) {
        return print_example();
    }
    if (cli->operand_count == 0) {
        return cli_usage(cli, "check: FILE is missing");
    }
    return check_file(cli, cli->operands[0]);
}
