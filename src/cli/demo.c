/* once demo: runs examples/demo.c, a program on the public header, and prints its results. */
#include <demo.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#include "base/rand.h"
#include "cli/cli.h"
#include "cli/out.h"
#include "cli/scratch.h"

enum { ORDERS_MAX = 100000, JSON_BYTES_MAX = 1 << 16 };

static int print_table(const struct demo_result *result, const char *store)
{
    for (size_t i = 0; i + 1 < DEMO_FIGURES; i++) {
        out_text("%-24s %8lu\n", result->figures[i].title, result->figures[i].value);
    }
    const struct demo_figure *doubles = &result->figures[DEMO_FIGURES - 1];
    out_text("%s%-24s %8lu%s\n", out_tint(doubles->value == 0 ? TINT_GOOD : TINT_BAD),
        doubles->title, doubles->value, out_plain());
    out_text("\nIts journal is in %s. To read it:\n", store + sizeof "journal:" - 1);
    out_text("  once ls --store %s\n", store);
    out_text("  once verify --redecide --store %s\n", store);
    return out_finish();
}

static int print_json(const struct demo_result *result, const struct demo_options *options)
{
    struct out_json whole;
    struct jsonw *json = out_json_begin(&whole, JSON_BYTES_MAX);
    for (size_t i = 0; i < DEMO_FIGURES; i++) {
        jsonw_u64(json, result->figures[i].member, result->figures[i].value);
    }
    jsonw_u64(json, "seed", options->seed);
    jsonw_str(json, "store", options->store);
    return out_json_end(&whole);
}

static int run_demo(struct cli *cli, const struct demo_options *options)
{
    struct demo_result result;
    struct once_error error = {0};
    if (demo_play(options, &result, &error) != ONCE_OK) {
        return cli_fail(&error);
    }
    int code = cli->json ? print_json(&result, options) : print_table(&result, options->store);
    return code != CLI_OK ? code : result.is_right ? CLI_OK : CLI_DAMAGE;
}

int cmd_demo(struct cli *cli)
{
    char dir[PATH_MAX];
    char store[PATH_MAX + 32];
    struct err err = {0};
    struct demo_options options = {.store = store,
        .orders = cli_count(cli, "orders"),
        .progress = isatty(STDERR_FILENO) == 1 ? stderr : NULL};
    if (options.orders < 1 || options.orders > ORDERS_MAX) {
        return cli_usage(cli, "demo: --orders is 1 to %d", ORDERS_MAX);
    }
    if (cli_text(cli, "seed") != NULL) {
        options.seed = cli_count(cli, "seed");
    } else if (rand_bytes(&options.seed, sizeof options.seed, &err) != OK) {
        return cli_fail_err(&err);
    } else {
        options.seed >>= 32; /* short enough to type, and to be a JSON number */
    }
    int code = scratch_make(NULL, "once-demo", dir, sizeof dir);
    if (code != CLI_OK) {
        return code;
    }
    (void)snprintf(store, sizeof store, "journal:%s/data", dir);
    return run_demo(cli, &options);
}
