/* once why: explains in words how an operation reached its status. */
#include "cli/why.h"

#include "base/limits.h"
#include "base/text.h"
#include "cli/backend.h"
#include "cli/work.h"

enum { ENTRY_ARENA_BYTES_MAX = 4 << 20 }; /* an entry is far below a megabyte */

struct history {
    struct cli *cli;
    struct jsonw *json; /* NULL: in words */
    struct arena arena; /* for the current entry */
    size_t count;
};

/* What to do about a status. */
static const char *advice(enum once_status status)
{
    switch (status) {
    case ONCE_STATUS_IN_PROGRESS:
        return "in progress; if its lease ends and the holder reports nothing, it becomes unknown";
    case ONCE_STATUS_UNKNOWN:
        return "find out whether the effect happened, then settle it with once resolve";
    case ONCE_STATUS_RELEASED: return "the effect did not start; the next call may run it";
    case ONCE_EXECUTED:
        return "it happened; duplicates get the first outcome until the window ends";
    case ONCE_FAILED: return "it is known to have failed; duplicates get that outcome";
    case ONCE_REJECTED: return "it was refused before it began";
    case ONCE_COMPENSATED: return "it happened and was undone";
    }
    return "";
}

/* A note: nothing was decided, but it is part of the history. */
static void print_note(const struct once_entry *entry, const struct entry_words *words)
{
    char time[TEXT_TIME_BYTES];
    bool duplicates = slice_is(words->type, "observation.emitted");
    out_text("%s  #%llu  %s%.*s%s", text_put_time(time, entry->time_ms),
        (unsigned long long)entry->seq, out_tint(TINT_BOLD), SLICE_ARGS(words->type), out_plain());
    if (words->count.len > 0) {
        out_text(": %.*s%s", SLICE_ARGS(words->count),
            duplicates ? " duplicates were refused for their rate, and counted here" : "");
    }
    out_text("\n");
}

static void print_decision(const struct once_entry *entry, const struct entry_words *words)
{
    char time[TEXT_TIME_BYTES];
    out_text("%s  #%llu  ", text_put_time(time, entry->time_ms), (unsigned long long)entry->seq);
    out_text("%.*s: %s%.*s%s", SLICE_ARGS(words->request), out_tint(TINT_BOLD),
        SLICE_ARGS(words->decision), out_plain());
    if (words->fence.len > 0 && !slice_is(words->fence, "0")) { /* 0: the request names none */
        out_text(", fence %.*s", SLICE_ARGS(words->fence));
    }
    if (words->attempt.len > 0) {
        out_text(", attempt %.*s", SLICE_ARGS(words->attempt));
    }
    out_text("\n    rule %.*s: %s\n", SLICE_ARGS(words->rule), rule_words(words->rule));
    if (words->state.len > 0) {
        out_text("    then: %.*s\n", SLICE_ARGS(words->state));
    }
}

static void print_entry(const struct once_entry *entry, const struct entry_words *words)
{
    if (words->decision.len > 0) {
        print_decision(entry, words);
    } else {
        print_note(entry, words);
    }
    struct slice parts[] = {words->reason, words->actor, words->request_id};
    const char *names[] = {"reason", "actor", "request"};
    for (size_t i = 0; i < 3; i++) {
        if (parts[i].len > 0) {
            out_text("    %s: ", names[i]);
            out_safe(parts[i]);
            out_text("\n");
        }
    }
    const struct json_value *conflict = json_find(words->root, SLICE_LIT("conflict"));
    if (conflict != NULL) {
        out_text("    fingerprint: %.*s\n    first was:   %.*s\n",
            SLICE_ARGS(cli_member(conflict, SLICE_LIT("received_fingerprint"))),
            SLICE_ARGS(cli_member(conflict, SLICE_LIT("stored_fingerprint"))));
    }
}

static int visit(void *context, const struct once_entry *entry)
{
    struct history *history = context;
    struct entry_words words;
    struct slice bytes = slice_of(entry->json.data, entry->json.size);
    history->count++;
    arena_clear(&history->arena);
    if (!entry_words_read(bytes, &history->arena, &words)) {
        cli_say("entry %llu cannot be read", (unsigned long long)entry->seq);
        return 0;
    }
    if (history->json == NULL) {
        print_entry(entry, &words);
        return out_broken() ? 1 : 0;
    }
    jsonw_open(history->json, NULL, '{');
    jsonw_u64(history->json, "seq", entry->seq);
    jsonw_bytes(history->json, "decision", words.decision);
    jsonw_bytes(history->json, "rule", words.rule);
    jsonw_str(history->json, "because", rule_words(words.rule));
    jsonw_raw(history->json, "entry", bytes);
    jsonw_close(history->json, '}');
    return 0;
}

static void introduce(const struct operation *operation)
{
    out_text("%.*s is %s%s%s: %s\n", SLICE_ARGS(operation->id),
        out_tint(operation_tint(operation->status)), once_status_name(operation->status),
        out_plain(), advice(operation->status));
    out_text("  scope '");
    out_safe(operation->scope);
    out_text("', key '");
    out_safe(operation->key);
    out_text("'\n  fingerprint (keyed) %.*s\n",
        SLICE_ARGS(cli_member(operation->root, SLICE_LIT("fingerprint"))));
    if (operation->request.len > 0) {
        out_text("  the first request, in canonical form:\n    ");
        out_safe(operation->request);
        out_text("\n");
    } else {
        out_text(
            "  the first request was not kept: it was given as a fingerprint or was too large\n");
    }
    out_text("\n");
}

int why_put(
    struct cli *cli, struct backend *backend, const struct operation *operation, struct jsonw *json)
{
    struct history history = {.cli = cli, .json = json};
    const char *id = operation_id(operation, &cli->arena);
    if (id == NULL) {
        cli_say("out of memory");
        return CLI_UNAVAILABLE;
    }
    arena_init(&history.arena, &mem_libc, ENTRY_ARENA_BYTES_MAX);
    jsonw_open(json, NULL, '{');
    jsonw_raw(json, "operation", operation->json);
    jsonw_str(json, "advice", advice(operation->status));
    jsonw_open(json, "entries", '[');
    int code = backend->ops->evidence(backend, id, NULL, visit, &history);
    jsonw_close(json, ']');
    jsonw_close(json, '}');
    arena_release(&history.arena);
    return code;
}

static int print_history(
    struct history *history, struct backend *backend, const struct operation *operation)
{
    struct buf bytes;
    struct jsonw json = {.out = &bytes};
    const char *id = operation_id(operation, &history->cli->arena);
    int code = CLI_OK;
    if (id == NULL) {
        cli_say("out of memory");
        return CLI_UNAVAILABLE;
    }
    buf_init(&bytes, &mem_libc, 8U * LIMIT_OUTCOME_BYTES_MAX);
    if (history->cli->json) {
        code = why_put(history->cli, backend, operation, &json);
        code = code == CLI_OK ? jsonw_print(&json) : code;
    } else {
        introduce(operation);
        code = backend->ops->evidence(backend, id, NULL, visit, history);
        code = code == CLI_OK ? out_finish_listing() : code;
    }
    buf_release(&bytes);
    return code;
}

/* For records that Once executes itself: every decision, without an operation's document before
 * it. */
static int print_entries(struct history *history, struct backend *backend, const char *id)
{
    struct buf bytes;
    struct jsonw json = {.out = &bytes};
    buf_init(&bytes, &mem_libc, 8U * LIMIT_OUTCOME_BYTES_MAX);
    if (history->cli->json) {
        history->json = &json;
        jsonw_open(&json, NULL, '{');
        jsonw_open(&json, "entries", '[');
    }
    int code = backend->ops->evidence(backend, id, NULL, visit, history);
    if (code == CLI_OK && history->count == 0) {
        cli_say("no entry is about '%s'", id);
        code = CLI_DATA;
    } else if (code == CLI_OK && history->cli->json) {
        jsonw_close(&json, ']');
        jsonw_close(&json, '}');
        code = jsonw_print(&json);
    } else if (code == CLI_OK) {
        code = out_finish_listing();
    }
    buf_release(&bytes);
    return code;
}

int cmd_why(struct cli *cli)
{
    struct backend backend;
    const struct operation *operation = NULL;
    struct history history = {.cli = cli};
    const char *id = cli->operand_count > 0 ? cli->operands[0] : NULL;
    const struct work_kind *kind = NULL;
    int code = work_find(cli, &id, &kind);
    code = code == CLI_OK ? backend_open(cli, &backend) : code;
    if (code != CLI_OK) {
        return code;
    }
    arena_init(&history.arena, &mem_libc, ENTRY_ARENA_BYTES_MAX);
    if (kind != NULL) {
        code = work_name(cli, backend.remote, kind, id, &id);
        code = code != CLI_OK ? code : print_entries(&history, &backend, id);
        arena_release(&history.arena);
        backend_close(&backend);
        return code;
    }
    code = operation_find(cli, &backend, &operation);
    code = code != CLI_OK ? code : print_history(&history, &backend, operation);
    arena_release(&history.arena);
    backend_close(&backend);
    return code;
}
