/* once check: checks a configuration. */
#include <string.h>

#include "cli/cli.h"
#include "cli/out.h"
#include "cli/serve_config.h"

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

static int check_file(struct cli *cli, const char *path)
{
    struct serve_file file;
    int code = serve_config_file(path, &file);
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
