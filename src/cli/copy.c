/* once copy: move a store to a different engine, with its evidence. */
#include "lib/copy.h"

#include "base/text.h"
#include "cli/cli.h"
#include "cli/out.h"
#include "cli/progress_bar.h"

/* No signal is caught: an interrupted copy continues where it stopped. */
static bool progress(void *context, enum copy_step step, uint64_t done, uint64_t total)
{
    static const char *const words[] = {[COPY_CHECKING] = "verifying the source",
        [COPY_ENTRIES] = "entries",
        [COPY_RECORDS] = "records",
        [COPY_COMPARING] = "comparing",
        [COPY_VERIFYING] = "verifying the target"};
    struct bar *bar = context;
    bar->counts = step == COPY_ENTRIES || step == COPY_RECORDS || step == COPY_COMPARING;
    bar_draw(
        bar, done, total > done ? total : done, "%s: %llu", words[step], (unsigned long long)done);
    return true;
}

static int print_json(
    const struct cli *cli, const struct copy_result *result, const char *to, double seconds)
{
    struct out_json whole;
    struct jsonw *json = out_json_begin(&whole, 1 << 16);
    jsonw_bool(json, "ok", true);
    jsonw_bool(json, "dry_run", cli_flag(cli, "dry-run"));
    jsonw_str(json, "store", to);
    jsonw_u64(json, "chains", result->chains);
    jsonw_u64(json, "entries", result->entries);
    jsonw_u64(json, "entries_continued", result->entries_had);
    jsonw_u64(json, "records", result->records);
    jsonw_u64(json, "records_continued", result->records_had);
    jsonw_u64(json, "body_bytes", result->body_bytes);
    jsonw_u64(json, "encrypted", result->sealed);
    jsonw_u64(json, "encrypted_with_own_key", result->sealed_own);
    jsonw_bool(json, "key_copied", result->key_copied);
    jsonw_real(json, "seconds", seconds);
    return out_json_end(&whole);
}

static int print_text(
    const struct cli *cli, const struct copy_result *result, const char *to, double seconds)
{
    char size[32];
    if (cli_flag(cli, "dry-run")) {
        out_text("would copy %s and %s in %s to '%s'\n",
            COUNTED(result->records, "record", "records"),
            COUNTED(result->entries, "entry", "entries"),
            COUNTED(result->chains, "chain", "chains"), to);
        return out_finish();
    }
    out_text("%sok%s: '%s' has %s and %s in %s, compared and verified: %s of bodies, %.2f s\n",
        out_tint(TINT_GOOD), out_plain(), to, COUNTED(result->records, "record", "records"),
        COUNTED(result->entries, "entry", "entries"), COUNTED(result->chains, "chain", "chains"),
        text_put_size(size, result->body_bytes), seconds);
    if (result->entries_had + result->records_had > 0) {
        out_text("continued: the target already had %s and %s\n",
            COUNTED(result->entries_had, "entry", "entries"),
            COUNTED(result->records_had, "record", "records"));
    }
    return out_finish();
}

/* Print what must be done before the new store is used. */
static void say_next(const struct copy_result *result, const struct copy_options *options)
{
    uint64_t foreign = result->sealed - result->sealed_own;
    if (result->sealed_own > 0 && !result->key_copied) {
        cli_say("%s encrypted with '%s/body.key'",
            COUNTED(result->sealed_own, "body is", "bodies are"), options->from_dir);
        cli_hint("name that file in secrets.key_file of every process of the new store");
    }
    if (foreign > 0) {
        cli_say("%s encrypted with a key that is not in the source's directory",
            COUNTED(foreign, "body is", "bodies are"));
        cli_hint("give the new store the same secrets.key_file as the old one");
    }
    cli_say("the source is as it was; do not serve it again: each store would grant the same keys");
}

int cmd_copy(struct cli *cli)
{
    struct err err = {0};
    struct bar bar;
    struct copy_result result = {0};
    struct copy_options options = {.from = cli->operands[0],
        .to = cli->operands[1],
        .from_dir = cli_store_dir(cli, cli->operands[0]),
        .to_dir = cli_store_dir(cli, cli->operands[1]),
        .dry_run = cli_flag(cli, "dry-run"),
        .progress = progress,
        .context = &bar};
    const char *shown = cli_url_shown(cli, options.to);
    bar_init(&bar);
    bar.in_lines = true;
    enum status status = copy_store(&options, &result, &err);
    bar_clear(&bar);
    if (status != OK) {
        return cli_fail_err(&err);
    }
    double seconds = bar_seconds(&bar);
    int code = cli->json ? print_json(cli, &result, shown, seconds)
                         : print_text(cli, &result, shown, seconds);
    if (code == CLI_OK && !options.dry_run) {
        say_next(&result, &options);
    }
    return code;
}
