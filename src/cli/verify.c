/* once verify: checks that the evidence and the records of a store are intact. */
#include "evidence/verify.h"

#include "base/text.h"
#include "cli/backend.h"
#include "cli/cli.h"
#include "cli/out.h"
#include "cli/progress_bar.h"
#include "cli/verify_remote.h"

static bool progress(void *context, const struct verify_progress *now)
{
    bar_draw(context, now->bytes_done, now->bytes_total, "%s",
        COUNTED(now->entries, "entry", "entries"));
    return true;
}

static void put_damage(struct jsonw *json, const struct verify_damage *damage)
{
    char id[OP_ID_TEXT_BYTES];
    static const struct op_id none;
    jsonw_open(json, NULL, '{');
    if (damage->chain_id[0] != '\0') {
        jsonw_str(json, "chain_id", damage->chain_id);
    }
    jsonw_u64(json, "segment", damage->segment);
    jsonw_u64(json, "offset", damage->offset);
    if (damage->seq != 0) {
        jsonw_u64(json, "seq", damage->seq);
    }
    if (!op_id_equal(&damage->operation_id, &none)) {
        jsonw_str(json, "operation_id", op_id_put(id, &damage->operation_id));
    }
    jsonw_str(json, "what", damage->what);
    jsonw_close(json, '}');
}

static size_t damages_kept(const struct verify_result *result)
{
    return result->damage_count < VERIFY_DAMAGES_MAX ? (size_t)result->damage_count
                                                     : VERIFY_DAMAGES_MAX;
}

static int print_json(const struct verify_result *result, double seconds)
{
    struct out_json whole;
    char hash[65];
    struct jsonw *json = out_json_begin(&whole, 1 << 20);
    jsonw_bool(json, "ok", result->damage_count == 0);
    jsonw_str(json, "chain_id", result->chain_id);
    jsonw_str(json, "public_key", result->public_key);
    jsonw_u64(json, "segments", result->segments);
    jsonw_u64(json, "segments_squeezed", result->squeezed);
    jsonw_u64(json, "bytes", result->bytes);
    jsonw_u64(json, "batches", result->batches);
    jsonw_u64(json, "entries", result->entries);
    jsonw_u64(json, "records", result->records);
    jsonw_u64(json, "bodies", result->bodies);
    jsonw_u64(json, "checkpoints", result->checkpoints);
    jsonw_u64(json, "first_seq", result->first_seq);
    jsonw_u64(json, "last_seq", result->last_seq);
    jsonw_str(json, "last_hash", text_put_hex(hash, result->last_hash.bytes, 32));
    jsonw_u64(json, "last_checkpoint_seq", result->last_checkpoint_seq);
    if (result->inherits || result->shared) {
        jsonw_u64(json, "chains", result->chains);
        jsonw_u64(json, "removed", result->removed);
    }
    if (result->shared) {
        jsonw_u64(json, "unchained", result->unchained);
        jsonw_bool(json, "unsettled", result->unsettled);
    }
    jsonw_u64(json, "redecided", result->redecided);
    jsonw_u64(json, "not_redecidable", result->not_redecidable);
    jsonw_u64(json, "good_seq", result->good_seq);
    jsonw_bool(json, "torn_tail", result->torn_tail);
    jsonw_bool(json, "outside_checkpoint_compared", result->outside_compared);
    jsonw_real(json, "seconds", seconds);
    jsonw_u64(json, "damage_count", result->damage_count);
    jsonw_open(json, "damages", '[');
    for (size_t i = 0; i < damages_kept(result); i++) {
        put_damage(json, &result->damages[i]);
    }
    jsonw_close(json, ']');
    return out_json_end(&whole);
}

static void print_damage(const struct verify_damage *damage)
{
    char id[OP_ID_TEXT_BYTES];
    static const struct op_id none;
    out_text("%sdamage%s: ", out_tint(TINT_BAD), out_plain());
    if (damage->chain_id[0] != '\0') {
        out_text("chain %s: ", damage->chain_id);
    }
    if (damage->segment != 0) {
        out_text("segment %llu, offset %llu: ", (unsigned long long)damage->segment,
            (unsigned long long)damage->offset);
    }
    out_text("%s", damage->what);
    if (damage->seq != 0) {
        out_text(", entry %llu", (unsigned long long)damage->seq);
    }
    if (!op_id_equal(&damage->operation_id, &none)) {
        out_text(", operation %s", op_id_put(id, &damage->operation_id));
    }
    out_text("\n");
}

/* Print what was checked of a journal. */
static void print_journal(const struct verify_result *result, double seconds)
{
    char size[32];
    char rate[32];
    if (result->damage_count > 0) {
        out_text("still good: everything up to entry %llu\n", (unsigned long long)result->good_seq);
    } else if (result->last_seq < result->first_seq) {
        out_text("%sok%s: there are no entries yet\n", out_tint(TINT_GOOD), out_plain());
    } else {
        out_text("%sok%s: entries %llu to %llu are whole and chained\n", out_tint(TINT_GOOD),
            out_plain(), (unsigned long long)result->first_seq,
            (unsigned long long)result->last_seq);
    }
    if (result->inherits && result->damage_count == 0) {
        out_text("the evidence of the store that this one was copied from is whole too: %s in "
                 "all, and every version of a record was decided once\n",
            COUNTED(result->chains, "chain", "chains"));
    }
    out_text("checked %s, %s, %s, %s in %s: %s in %.2f s, %s/s\n",
        COUNTED(result->entries, "entry", "entries"), COUNTED(result->records, "record", "records"),
        COUNTED(result->bodies, "body", "bodies"),
        COUNTED(result->checkpoints, "checkpoint", "checkpoints"),
        COUNTED(result->segments, "segment", "segments"), text_put_size(size, result->bytes),
        seconds, text_put_size(rate, (uint64_t)((double)result->bytes / seconds)));
}

/* The same for a store that several processes share. */
static void print_shared(const struct verify_result *result, double seconds)
{
    if (result->damage_count == 0) {
        out_text("%sok%s: %s in %s %s whole, and every version of a record was decided once\n",
            out_tint(TINT_GOOD), out_plain(), COUNTED(result->entries, "entry", "entries"),
            COUNTED(result->chains, "chain", "chains"), result->entries == 1 ? "is" : "are");
    }
    out_text("checked %s, %s and %s in %.2f s\n", COUNTED(result->entries, "entry", "entries"),
        COUNTED(result->checkpoints, "checkpoint", "checkpoints"),
        COUNTED(result->records, "record", "records"), seconds);
    if (result->unchained > 0) {
        out_text(
            "not chained yet: %s of applications; the next process of Once that runs does it\n",
            COUNTED(result->unchained, "decision", "decisions"));
    }
    if (!result->has_ends) {
        out_text("not compared: the ends of the chains, because this store does not keep them\n");
    }
    if (result->unsettled) {
        out_text("not compared: the ends of the chains, because others wrote all the time\n");
    }
}

static int print_text(const struct verify_result *result, double seconds)
{
    for (size_t i = 0; i < damages_kept(result); i++) {
        print_damage(&result->damages[i]);
    }
    if (result->damage_count > VERIFY_DAMAGES_MAX) {
        out_text("%sdamage%s: and %llu more\n", out_tint(TINT_BAD), out_plain(),
            (unsigned long long)(result->damage_count - VERIFY_DAMAGES_MAX));
    }
    if (result->shared) {
        print_shared(result, seconds);
    } else {
        print_journal(result, seconds);
    }
    if (result->removed > 0) {
        out_text("removed after their retention, and not checked: %s at the start of chains\n",
            COUNTED(result->removed, "entry", "entries"));
    }
    if (result->redecided + result->not_redecidable > 0) {
        out_text("decided again: %llu; begun before what is kept: %llu\n",
            (unsigned long long)result->redecided, (unsigned long long)result->not_redecidable);
    }
    if (result->torn_tail) {
        out_text(
            "the last write was cut short and never acknowledged; the next start removes it\n");
    }
    if (result->outside_compared) {
        out_text("the checkpoint kept elsewhere agrees with the journal\n");
    }
    return out_finish();
}

static int check(struct cli *cli, struct slice checkpoint)
{
    struct err err = {0};
    struct bar bar;
    bar_init(&bar);
    struct verify_result *result = arena_alloc(&cli->arena, sizeof *result);
    if (result == NULL) {
        cli_say("out of memory");
        return CLI_UNCHECKED;
    }
    struct verify_options options = {
        .url = cli_text(cli, "store"),
        .redecide = cli_flag(cli, "redecide"),
        .checkpoint = checkpoint,
        .progress = progress,
        .context = &bar,
    };
    enum status status = verify_run(&options, result, &err);
    double seconds = bar_seconds(&bar);
    bar_clear(&bar);
    if (status != OK) {
        (void)cli_fail_store(cli, &err);
        return CLI_UNCHECKED;
    }
    int code = cli->json ? print_json(result, seconds) : print_text(result, seconds);
    return code != CLI_OK ? CLI_UNCHECKED : result->damage_count > 0 ? CLI_DAMAGE : CLI_OK;
}

static int check_server(struct cli *cli, struct remote *remote)
{
    int code = cli_flag(cli, "redecide") || cli_flag(cli, "checkpoint")
                   ? cli_usage(cli, "verify: --redecide and --checkpoint need the journal itself, "
                                    "and do not go with --server")
                   : verify_remote(cli, remote);
    remote_free(remote);
    return code;
}

int cmd_verify(struct cli *cli)
{
    struct slice checkpoint = SLICE_EMPTY;
    struct remote *remote = NULL;
    const char *path = cli_text(cli, "checkpoint");
    int code = backend_named_server(cli, &remote);
    if (code != CLI_OK || remote != NULL) {
        return code != CLI_OK ? code : check_server(cli, remote);
    }
    if (path != NULL && cli_read_file(cli, path, CHECKPOINT_BYTES_MAX, &checkpoint) != CLI_OK) {
        return CLI_UNCHECKED;
    }
    return check(cli, checkpoint);
}
