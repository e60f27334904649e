/* once tail: the latest evidence, or the newest checkpoint. */
#include <string.h>

#include "base/text.h"
#include "cli/operation.h"
#include "evidence/checkpoint.h"

enum {
    FOLLOW_MS = 300,
    ENTRY_ARENA_BYTES_MAX = 4 << 20,
    NOTE_BACK_FIRST = 1024, /* entries from the end that are looked at first for a note */
};

struct tail {
    struct cli *cli;
    const char *operation_id;
    uint64_t last_seq; /* printed, or passed over */
    uint64_t seen;     /* entries that would be printed */
    struct arena arena;
};

static int count(void *context, const struct once_entry *entry)
{
    struct tail *tail = context;
    tail->seen++;
    (void)entry;
    return 0;
}

static void print_line(const struct once_entry *entry, const struct entry_words *words)
{
    char time[TEXT_TIME_BYTES];
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

static int print(void *context, const struct once_entry *entry)
{
    struct tail *tail = context;
    struct slice bytes = slice_of(entry->json.data, entry->json.size);
    struct entry_words words;
    tail->last_seq = entry->seq;
    if (tail->seen > 0) { /* older than those asked for */
        tail->seen--;
        return 0;
    }
    if (tail->cli->json) {
        out_bytes(bytes);
        out_text("\n");
        return out_broken() ? 1 : 0;
    }
    arena_clear(&tail->arena);
    if (entry_words_read(bytes, &tail->arena, &words)) {
        print_line(entry, &words);
    } else {
        cli_say("entry %llu cannot be read", (unsigned long long)entry->seq);
    }
    return out_broken() ? 1 : 0;
}

/* The entries behind the last one, but for the first `seen` of them. */
static int print_new(struct tail *tail, struct once *once)
{
    struct once_error error = {0};
    if (once_evidence(once, tail->operation_id, tail->last_seq, print, tail, &error) != ONCE_OK) {
        return cli_fail(&error);
    }
    return out_finish();
}

static int print_last(struct tail *tail)
{
    struct once_error error = {0};
    struct once *once = NULL;
    uint64_t lines = cli_count(tail->cli, "lines");
    int code = cli_open_to_look(tail->cli, &once);
    if (code != CLI_OK) {
        return code;
    }
    if (once_evidence(once, tail->operation_id, 0, count, tail, &error) != ONCE_OK) {
        code = cli_fail(&error);
    } else {
        tail->seen = tail->seen > lines ? tail->seen - lines : 0;
        code = print_new(tail, once);
    }
    (void)once_close(once, NULL); /* only looked */
    return code;
}

/* A reader sees the store as it was when opened, so it is opened again and again. */
static int follow(struct tail *tail)
{
    for (;;) {
        struct once *once = NULL;
        struct cli_open how = {.read_only = true, .must_exist = true};
        cli_sleep_ms(FOLLOW_MS);
        tail->seen = 0;
        struct once_error error = {0};
        int result = cli_try_open(tail->cli, how, &once, &error);
        if (result == ONCE_E_UNAVAILABLE) {
            continue; /* a writer may be at it */
        }
        if (result != ONCE_OK) {
            return cli_fail(&error);
        }
        int code = print_new(tail, once);
        (void)once_close(once, NULL); /* only looked */
        if (code != CLI_OK) {
            return code;
        }
    }
}

/* ---- the newest checkpoint ----------------------------------------------------------------- */

struct note {
    char text[CHECKPOINT_BYTES_MAX];
    size_t len;   /* 0: none found */
    uint64_t seq; /* that it covers */
};

static bool keep_note(void *context, const struct entry *entry)
{
    struct note *note = context;
    if (entry->kind == ENTRY_CHECKPOINT && entry->bytes.len <= sizeof note->text) {
        memcpy(note->text, entry->bytes.data, entry->bytes.len);
        note->len = entry->bytes.len;
        note->seq = entry->seq;
    }
    return true;
}

/* Look at the end first and then further back: a note a minute is rarely far from it. */
static enum status find_note(struct store *store, struct note *ret_note, struct err *err)
{
    struct store_head head;
    uint64_t back = NOTE_BACK_FIRST;
    enum status status = OK;
    store->ops->head(store, &head);
    for (bool whole = false; status == OK && ret_note->len == 0 && !whole; back *= 16) {
        whole = back >= head.seq;
        struct entry_range range = {.after_seq = whole ? 0 : head.seq - back};
        status = store->ops->entries(store, &range, keep_note, ret_note, err);
    }
    return status;
}

/* A note that does not check out is worth nothing elsewhere. */
static enum status check_note(struct store *store, const struct note *note, struct err *err)
{
    struct store_identity identity;
    struct checkpoint_key key;
    struct checkpoint checkpoint;
    store->ops->identity(store, &identity);
    enum status status = checkpoint_key_of(&identity, &key, err);
    mem_wipe(&identity, sizeof identity);
    return status == OK ? checkpoint_verify(slice_of(note->text, note->len), &key, &checkpoint, err)
                        : status;
}

static int print_note(const struct cli *cli, const struct note *note)
{
    if (!cli->json) {
        out_bytes(slice_of(note->text, note->len));
        return out_finish();
    }
    struct buf bytes;
    struct jsonw json = {.out = &bytes};
    buf_init(&bytes, &mem_libc, 8 * CHECKPOINT_BYTES_MAX);
    jsonw_open(&json, NULL, '{');
    jsonw_u64(&json, "seq", note->seq);
    jsonw_bytes(&json, "note", slice_of(note->text, note->len));
    jsonw_close(&json, '}');
    int code = jsonw_print(&json);
    buf_release(&bytes);
    return code;
}

static int tail_checkpoint(struct cli *cli)
{
    struct err err = {0};
    struct note note = {0};
    struct store *store = NULL;
    int code = cli_open_store_to_look(cli, &store);
    if (code != CLI_OK) {
        return code;
    }
    enum status status = find_note(store, &note, &err);
    if (status == OK && note.len > 0) {
        status = check_note(store, &note, &err);
    }
    (void)store->ops->close(store, NULL); /* only looked */
    if (status != OK) {
        return cli_fail_err(&err);
    }
    if (note.len == 0) {
        cli_say("there is no checkpoint in '%s' yet", cli_text(cli, "store"));
        cli_hint("one is signed when the store is closed, and every minute while it is used");
        return CLI_UNAVAILABLE;
    }
    return print_note(cli, &note);
}

int cmd_tail(struct cli *cli)
{
    if (cli_flag(cli, "checkpoint")) {
        if (cli_flag(cli, "follow") || cli_text(cli, "operation") != NULL) {
            return cli_usage(cli, "--checkpoint does not go with --follow or --operation");
        }
        return tail_checkpoint(cli);
    }
    struct tail tail = {.cli = cli, .operation_id = cli_text(cli, "operation")};
    arena_init(&tail.arena, &mem_libc, ENTRY_ARENA_BYTES_MAX);
    int code = print_last(&tail);
    if (code == CLI_OK && cli_flag(cli, "follow")) {
        code = follow(&tail);
    }
    arena_release(&tail.arena);
    return code;
}
