/* once check: is a configuration right? */
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
    return out_finish();
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
    struct config *config = NULL;
    struct config_faults faults = {.count = 0};
    const char *path = cli->operands[0];
    int code = serve_config_file(path, &config, &faults);
    if (code != CLI_OK && !cli->json) {
        serve_faults_say(path, &faults);
    }
    if (code == CLI_OK || (cli->json && faults.count > 0)) {
        int printed = serve_config_show(cli, path, config, &faults);
        code = code == CLI_OK ? printed : code;
    }
    config_free(config);
    return code;
}
