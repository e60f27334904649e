/* once tail: the latest evidence, or the newest checkpoint. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"
#include "cli/backend.h"
#include "cli/work.h"
#include "lib/inspect.h"

enum {
    FOLLOW_MS = 300,       /* between two reads while entries arrive; doubled up to … */
    FOLLOW_MS_MAX = 2400,  /* … while none do: a server records each read */
    LOOK_BACK_FIRST = 256, /* entries from a server's end that are read first */
    ENTRY_ARENA_BYTES_MAX = 4 << 20,
    NOTE_BACK_FIRST = 1024, /* entries from the end that are searched first for a note */
};

struct tail_options {
    struct cli *cli;
    const char *operation_id;
    char last[EVIDENCE_CURSOR_BYTES]; /* of the last entry printed or skipped */
    uint64_t seen;                    /* entries that would be printed */
    uint64_t left;                    /* to be printed before it stops; 0: all */
    uint64_t printed;                 /* in this read */
    struct arena arena;
};

static int count(void *context, const struct once_entry *entry)
{
    struct tail_options *tail = context;
    tail->seen++;
    (void)entry;
    return 0;
}

static void print_line(
    const struct once_entry *entry, const struct entry_words *words, bool has_tenant)
{
    char time[TEXT_TIME_BYTES];
    if (has_tenant) {
        out_safe(words->tenant.len > 0 ? words->tenant : SLICE_LIT("*"));
        out_text("  ");
    }
    out_text("%s  #%-6llu  %-20.*s  %s", text_put_time(time, entry->time_ms),
        (unsigned long long)entry->seq, SLICE_ARGS(words->type), out_tint(TINT_BOLD));
    if (words->decision.len > 0) {
        out_text(
            "%.*s%s (%.*s)", SLICE_ARGS(words->decision), out_plain(), SLICE_ARGS(words->rule));
    } else { /* a note: nothing was decided */
        out_text("%.*s%s", SLICE_ARGS(words->state), out_plain());
    }
    if (words->count.len > 0) {
        out_text(" x%.*s", SLICE_ARGS(words->count));
    }
    out_text("  %.*s  ", SLICE_ARGS(words->operation_id));
    out_safe(words->scope);
    out_text(" ");
    out_safe(words->key);
    if (words->reason.len > 0) {
        out_text("  ");
        out_safe(words->reason);
    }
    out_text("\n");
}

static void print_entry(struct tail_options *tail, const struct once_entry *entry)
{
    struct slice bytes = slice_of(entry->json.data, entry->json.size);
    struct entry_words words;
    if (tail->cli->json) {
        out_bytes(bytes);
        out_text("\n");
        return;
    }
    arena_clear(&tail->arena);
    if (entry_words_read(bytes, &tail->arena, &words)) {
        print_line(entry, &words, cli_flag(tail->cli, "all-tenants"));
    } else {
        cli_say("entry %llu cannot be read", (unsigned long long)entry->seq);
    }
}

static int print(void *context, const struct once_entry *entry)
{
    struct tail_options *tail = context;
    (void)snprintf(tail->last, sizeof tail->last, "%s", entry->cursor);
    if (tail->seen > 0) { /* older than the requested ones */
        tail->seen--;
        return 0;
    }
    print_entry(tail, entry);
    tail->printed++;
    return out_broken() || tail->printed == tail->left ? 1 : 0;
}

/* Print the entries after the last one, except the first `seen` of them. */
static int print_new(struct tail_options *tail, struct backend *backend)
{
    tail->printed = 0;
    int code = backend->ops->evidence(backend, tail->operation_id, tail->last, print, tail);
    return code != CLI_OK ? code : out_finish_listing();
}

/* Count from further and further back until there are enough entries, or all. */
static int print_last(struct tail_options *tail, struct backend *backend)
{
    uint64_t lines = cli_count(tail->cli, "lines");
    uint64_t back = lines < LOOK_BACK_FIRST ? LOOK_BACK_FIRST : lines;
    int code = CLI_OK;
    do {
        code = backend->ops->near_end(backend, back, tail->last);
        tail->seen = 0;
        if (code == CLI_OK) {
            code = backend->ops->evidence(backend, tail->operation_id, tail->last, count, tail);
        }
        back = back > UINT64_MAX / 16 ? UINT64_MAX : back * 16;
    } while (code == CLI_OK && tail->seen < lines && tail->last[0] != '\0');
    if (code != CLI_OK) {
        return code;
    }
    /* Even with nothing to print, all entries are read, so that --follow knows where to start. */
    tail->left = lines;
    tail->seen = tail->seen > lines ? tail->seen - lines : 0;
    return print_new(tail, backend);
}

static int follow(struct tail_options *tail, struct backend *backend)
{
    int64_t pause_ms = FOLLOW_MS;
    tail->left = 0;
    for (;;) {
        bool ready = false;
        clock_sleep_ms(pause_ms);
        tail->seen = 0;
        int code = backend->ops->refresh(backend, &ready);
        if (code == CLI_OK && ready) {
            code = print_new(tail, backend);
        }
        if (code != CLI_OK || out_broken()) {
            return code; /* also if nobody reads the output any more */
        }
        bool waits = backend->remote != NULL && tail->printed == 0 && pause_ms < FOLLOW_MS_MAX;
        pause_ms = tail->printed > 0 ? FOLLOW_MS : waits ? 2 * pause_ms : pause_ms;
    }
}

/* ---- the newest checkpoint ----------------------------------------------------------------- */

static int print_note(const struct cli *cli, struct slice note, uint64_t seq)
{
    if (!cli->json) {
        out_bytes(note);
        return out_finish();
    }
    struct out_json whole;
    struct jsonw *json = out_json_begin(&whole, 8 * CHECKPOINT_BYTES_MAX);
    jsonw_u64(json, "seq", seq);
    jsonw_bytes(json, "note", note);
    return out_json_end(&whole);
}

static int tail_checkpoint(struct cli *cli)
{
    struct err err = {0};
    struct buf note;
    uint64_t seq = 0;
    int code = CLI_OK;
    buf_init(&note, &mem_libc, CHECKPOINT_BYTES_MAX);
    if (inspect_checkpoint(cli_text(cli, "store"), &note, &seq, &err) != OK) {
        code = cli_fail_store(cli, &err);
    } else if (note.len == 0) {
        cli_say("there is no checkpoint in '%s' yet", cli_store_shown(cli));
        cli_hint("one is signed when the store is closed, and every minute while it is used");
        code = CLI_UNAVAILABLE;
    } else {
        code = print_note(cli, buf_view(&note), seq);
    }
    buf_release(&note);
    return code;
}

/* The record that --operation names. A whole id needs no search, and so no server. */
static int name_record(struct tail_options *tail, struct backend *backend)
{
    const char *typed = tail->operation_id;
    const struct work_kind *kind = work_kind_of_id(typed);
    if (kind != NULL && found_is_prefix(kind->prefix, typed)) {
        return work_name(tail->cli, backend->remote, kind, typed, &tail->operation_id);
    }
    bool is_operation = strncmp(typed, "op_", 3) == 0; /* a submitter's id is any text */
    return is_operation ? operation_name(tail->cli, backend, typed, &tail->operation_id) : CLI_OK;
}

int cmd_tail(struct cli *cli)
{
    if (cli_flag(cli, "checkpoint")) {
        if (cli_flag(cli, "follow") || cli_text(cli, "operation") != NULL) {
            return cli_usage(cli, "--checkpoint does not go with --follow or --operation");
        }
        if (cli_text(cli, "server") != NULL && !cli_flag(cli, "store")) {
            return cli_usage(cli, "--checkpoint needs the journal itself, not --server");
        }
        return tail_checkpoint(cli);
    }
    if (cli_flag(cli, "all-tenants") && cli_flag(cli, "tenant")) {
        return cli_usage(cli, "tail: give --tenant or --all-tenants, not both");
    }
    struct tail_options tail = {.cli = cli, .operation_id = cli_text(cli, "operation")};
    arena_init(&tail.arena, &mem_libc, ENTRY_ARENA_BYTES_MAX);
    struct backend backend = {0};
    int code = backend_open(cli, &backend);
    if (code == CLI_OK && tail.operation_id != NULL) {
        code = name_record(&tail, &backend);
    }
    code = code != CLI_OK ? code : print_last(&tail, &backend);
    if (code == CLI_OK && cli_flag(cli, "follow") && !out_broken()) {
        code = follow(&tail, &backend);
    }
    backend_close(&backend);
    arena_release(&tail.arena);
    return code;
}
