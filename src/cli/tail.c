/* once tail: the latest evidence. */
#include "base/text.h"
#include "cli/operation.h"

enum { FOLLOW_MS = 300, ENTRY_ARENA_BYTES_MAX = 4 << 20 };

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
    out_text("%s  #%-6llu  %-20.*s  %s%.*s%s (%.*s)  %.*s  ", text_put_time(time, entry->time_ms),
        (unsigned long long)entry->seq, SLICE_ARGS(words->type), out_tint(TINT_BOLD),
        SLICE_ARGS(words->decision), out_plain(), SLICE_ARGS(words->rule),
        SLICE_ARGS(words->operation_id));
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

int cmd_tail(struct cli *cli)
{
    struct tail tail = {.cli = cli, .operation_id = cli_text(cli, "operation")};
    arena_init(&tail.arena, &mem_libc, ENTRY_ARENA_BYTES_MAX);
    int code = print_last(&tail);
    if (code == CLI_OK && cli_flag(cli, "follow")) {
        code = follow(&tail);
    }
    arena_release(&tail.arena);
    return code;
}
