/* once backup: copy the journal while it is in use. */
#include "lib/backup.h"

#include <signal.h>
#include <string.h>

#include "base/macros.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/out.h"
#include "cli/progress_bar.h"

/* A signal to end: an unfinished copy is removed first. */
static volatile sig_atomic_t stop_signal;

static void on_signal(int number)
{
    stop_signal = number;
}

static void catch_signals(void)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};
    for (size_t i = 0; i < COUNT(numbers); i++) {
        (void)sigaction(numbers[i], &action, NULL); /* a second signal ends it at once */
    }
}

/* End as if the signal had ended us, because shells and supervisors check that. */
static void end_by_signal(void)
{
    if (stop_signal != 0) {
        (void)raise((int)stop_signal);
    }
}

static bool progress(
    void *context, enum backup_step step, uint64_t bytes_done, uint64_t bytes_total)
{
    bar_draw(
        context, bytes_done, bytes_total, "%s", step == BACKUP_COPYING ? "copying" : "verifying");
    return stop_signal == 0;
}

static void on_removed(void *context, const char *directory)
{
    bar_clear(context);
    cli_say("removed '%s': a backup that was killed had left it", directory);
}

static int print_json(const char *to, const struct verify_result *result, double seconds)
{
    struct out_json whole;
    char hash[65];
    struct jsonw *json = out_json_begin(&whole, 1 << 16);
    jsonw_bool(json, "ok", true);
    jsonw_str(json, "directory", to);
    jsonw_str(json, "chain_id", result->chain_id);
    jsonw_u64(json, "segments", result->segments);
    jsonw_u64(json, "bytes", result->bytes);
    jsonw_u64(json, "first_seq", result->first_seq);
    jsonw_u64(json, "last_seq", result->last_seq);
    jsonw_str(json, "last_hash", text_put_hex(hash, result->last_hash.bytes, 32));
    jsonw_real(json, "seconds", seconds);
    return out_json_end(&whole);
}

static int print_text(const char *to, const struct verify_result *result, double seconds)
{
    char size[32];
    out_text("%sok%s: '%s' has entries %llu to %llu, whole and verified: %s in %s, "
             "%.2f s\n",
        out_tint(TINT_GOOD), out_plain(), to, (unsigned long long)result->first_seq,
        (unsigned long long)result->last_seq, text_put_size(size, result->bytes),
        COUNTED(result->segments, "segment", "segments"), seconds);
    return out_finish();
}

/* The databases of other stores have their own backup tools, which also handle replicas. */
static int refuse_other(struct cli *cli)
{
    const char *url = cli_text(cli, "store");
    cli_say("backup: the store is not a journal");
    if (strncmp(url, "postgres", 8) == 0) {
        cli_hint("use pg_dump, or a base backup with the archived log; see docs/postgres.md");
    } else if (strncmp(url, "redis", 5) == 0) {
        cli_hint("copy the server's append-only file as its manual says; see docs/redis.md");
    } else {
        cli_hint("once help backup");
    }
    return CLI_USAGE;
}

int cmd_backup(struct cli *cli)
{
    struct err err = {0};
    struct bar bar;
    const char *from = cli_store_dir(cli, cli_text(cli, "store"));
    struct verify_result *result = arena_alloc(&cli->arena, sizeof *result);
    if (from == NULL) {
        return refuse_other(cli);
    }
    if (result == NULL) {
        return cli_fail_err(&(struct err){.status = E_NOMEM, .text = "out of memory"});
    }
    struct backup_options options = {.from = from,
        .to = cli->operands[0],
        .progress = progress,
        .removed = on_removed,
        .context = &bar};
    bar_init(&bar);
    catch_signals();
    enum status status = backup_make(&options, result, &err);
    bar_clear(&bar);
    if (status != OK) {
        int code = cli_fail_err(&err);
        end_by_signal();
        return code;
    }
    double seconds = bar_seconds(&bar);
    return cli->json ? print_json(options.to, result, seconds)
                     : print_text(options.to, result, seconds);
}
