/* once serve where the server's parts are not built: the configuration can be checked, no more. */
#include "cli/cli.h"
#include "cli/serve_config.h"

int cmd_serve(struct cli *cli)
{
    struct config_faults faults = {.count = 0};
    struct config *config = NULL;
    const char *path = cli_text(cli, "config");
    int code = serve_config(cli, &config, &faults);
    if (code != CLI_OK) {
        serve_faults_say(path, &faults);
    } else if (cli_flag(cli, "test")) {
        code = serve_config_show(cli, path, config, &faults);
    } else {
        cli_say("this program was built without the server");
        code = CLI_UNAVAILABLE;
    }
    config_free(config);
    return code;
}
