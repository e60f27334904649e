/* once policy: tests a gateway's configuration with requests and expected results. */
#include "cli/policy.h"

#include <signal.h>
#include <string.h>

#include "cli/out.h"

enum { JSON_BYTES_MAX = 64 << 20, DIFFERENCES_BYTES_MAX = 64 << 20 };

/* ---- printing ---------------------------------------------------------------------------- */

static void print_case(const char *path, const struct policy_result *result)
{
    bool is_fine = result->first == NULL;
    out_text("%s%-4s%s  %s\n", out_tint(is_fine ? TINT_GOOD : TINT_BAD), is_fine ? "ok" : "FAIL",
        out_plain(), result->of->name);
    for (const struct policy_difference *at = result->first; at != NULL; at = at->next) {
        out_text("      step %zu (%s:%u): %s is %s, expected %s\n", at->step, path, at->line,
            at->what, at->got, at->expected);
    }
}

static void json_case(struct jsonw *json, const struct policy_result *result)
{
    jsonw_open(json, NULL, '{');
    jsonw_str(json, "name", result->of->name);
    jsonw_u64(json, "line", result->of->line);
    jsonw_bool(json, "ok", result->first == NULL);
    jsonw_open(json, "differences", '[');
    for (const struct policy_difference *at = result->first; at != NULL; at = at->next) {
        jsonw_open(json, NULL, '{');
        jsonw_u64(json, "step", at->step);
        jsonw_u64(json, "line", at->line);
        jsonw_str(json, "what", at->what);
        jsonw_str(json, "got", at->got);
        jsonw_str(json, "expected", at->expected);
        jsonw_close(json, '}');
    }
    jsonw_close(json, ']');
    jsonw_close(json, '}');
}

/* How many cases had which result. */
struct policy_tally {
    size_t count;
    size_t failed;
};

static int print_tally(struct cli *cli, struct jsonw *json, const struct policy_tally *tally)
{
    if (cli->json) {
        jsonw_close(json, ']');
        jsonw_bool(json, "ok", tally->failed == 0);
        jsonw_u64(json, "count", tally->count);
        jsonw_u64(json, "failed", tally->failed);
        jsonw_close(json, '}');
        return jsonw_print(json);
    }
    out_text("%s, %zu failed\n", COUNTED(tally->count, "case", "cases"), tally->failed);
    return out_finish();
}

/* ---- the command ------------------------------------------------------------------------- */

/* Run all cases in the order of the file; each is reported as soon as it ends. */
static int run_all(struct policy_bench *bench, const char *path, const struct config_cases *cases)
{
    struct cli *cli = bench->cli;
    struct policy_tally tally = {.count = 0};
    struct arena arena;
    struct buf bytes;
    struct jsonw json = {.out = &bytes};
    int code = CLI_OK;
    arena_init(&arena, &mem_libc, DIFFERENCES_BYTES_MAX);
    buf_init(&bytes, &mem_libc, JSON_BYTES_MAX);
    jsonw_open(&json, NULL, '{');
    jsonw_str(&json, "file", path);
    jsonw_open(&json, "cases", '[');
    for (; code == CLI_OK && tally.count < cases->count; tally.count++) {
        struct policy_result result;
        code = policy_run(bench, &cases->items[tally.count], &result, &arena);
        if (code == CLI_OK) {
            tally.failed += result.first != NULL;
            if (cli->json) {
                json_case(&json, &result);
            } else {
                print_case(path, &result);
            }
        }
        arena_clear(&arena);
    }
    if (code == CLI_OK) {
        code = print_tally(cli, &json, &tally);
        code = code == CLI_OK && tally.failed > 0 ? CLI_DATA : code;
    }
    buf_release(&bytes);
    arena_release(&arena);
    return code;
}

static int say_faults(struct cli *cli, const char *path, const struct config_faults *faults)
{
    struct out_json whole;
    if (!cli->json) {
        serve_faults_say(cli_text(cli, "config"), faults);
        return CLI_CONFIG;
    }
    struct jsonw *json = out_json_begin(&whole, JSON_BYTES_MAX);
    jsonw_str(json, "file", path);
    jsonw_bool(json, "ok", false);
    serve_faults_json(json, "faults", faults);
    int code = out_json_end(&whole);
    return code == CLI_OK ? CLI_CONFIG : code;
}

static int test(struct cli *cli, const char *path)
{
    struct config *config = NULL;
    struct config_faults faults = {.count = 0};
    struct config_cases cases = {.count = 0};
    struct policy_bench bench = {0};
    int code = serve_config(cli, &config, &faults);
    if (config != NULL) { /* the errors of both are reported together */
        int read = serve_config_cases(path, config, &cases, &faults);
        code = code == CLI_OK ? read : code;
    }
    if (code == CLI_CONFIG && faults.count > 0) {
        code = say_faults(cli, path, &faults);
    }
    code = code == CLI_OK ? policy_bench_init(&bench, cli, config) : code;
    code = code == CLI_OK ? run_all(&bench, path, &cases) : code;
    policy_bench_release(&bench);
    config_free(config);
    return code;
}

int cmd_policy(struct cli *cli)
{
    if (strcmp(cli->operands[0], "test") != 0) {
        return cli_usage(cli, "policy: '%s' is not test", cli->operands[0]);
    }
    (void)signal(SIGPIPE, SIG_IGN); /* writing to a closed connection must be an error */
    return test(cli, cli->operands[1]);
}
