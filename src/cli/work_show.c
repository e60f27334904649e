/* Prints one command, effect or delivery: its document, and its history from the evidence. */
#include <stdio.h>
#include <string.h>

#include "base/macros.h"
#include "cli/operation.h"
#include "cli/out.h"
#include "cli/remote_read.h"
#include "cli/work.h"

enum {
    PATH_BYTES_MAX = 1024,
    PAGE_ARENA_BYTES_MAX = 256 << 20, /* a page of evidence, and its tree */
};

/* Print a member as a line: strings unquoted, the rest as JSON; an object has a line for each of
 * its members. */
static void print_member(struct slice text, const char *prefix, const struct json_member *member)
{
    char name[64];
    (void)snprintf(name, sizeof name, "%s%s%.*s", prefix, prefix[0] == '\0' ? "" : ".",
        SLICE_ARGS(json_text(&member->name)));
    bool is_plain = !json_is(&member->value, JSON_OBJECT) || member->value.count == 0;
    if (prefix[0] == '\0' && !is_plain && strcmp(name, "payload") != 0) {
        for (uint32_t i = 0; i < member->value.count; i++) {
            print_member(text, name, &member->value.members[i]);
        }
        return;
    }
    out_text("%-29s ", name);
    if (json_is(&member->value, JSON_STRING)) {
        out_safe(json_text(&member->value));
    } else {
        out_safe(json_raw(text, &member->value));
    }
    out_text("\n");
}

/* Members of a command that its other lines or its history show; --json has them. */
static bool is_shown_elsewhere(const struct json_value *root, struct slice name)
{
    struct slice own = cli_member(root, SLICE_LIT("command_id"));
    return json_find(root, SLICE_LIT("lifecycle")) != NULL &&
           (slice_is(name, "lifecycle") || slice_is(name, "status_url") ||
               slice_is(name, "evidence_url") || slice_is(name, "summary") ||
               (slice_is(name, "operation_id") && slice_equal(cli_member(root, name), own)));
}

/* Print a member of the document. Of an intent, only the target is printed: the rest is the
 * command's name. */
static void print_one(
    struct slice text, const struct json_value *root, const struct json_member *member)
{
    struct slice name = json_text(&member->name);
    bool is_intent = slice_is(name, "intent") && json_is(&member->value, JSON_OBJECT);
    if (is_shown_elsewhere(root, name)) {
        return;
    }
    if (!is_intent) {
        print_member(text, "", member);
    }
    for (uint32_t i = 0; is_intent && i < member->value.count; i++) {
        const struct json_member *part = &member->value.members[i];
        if (slice_is(json_text(&part->name), "target")) {
            print_member(text, "", part);
        }
    }
}

/* What a person looks for first comes first; the rest follows as it is. */
static void print_document(
    const struct work_kind *kind, struct slice text, const struct json_value *root)
{
    const char *const first[] = {kind->id, kind->what, "status", "uncertain", "compensating",
        "reason", "tenant", kind->who, "idempotency_key", "trace", "intent", "target", "args",
        "payload", "attempt", "next_attempt_at", "acknowledgement", "compensation", "compensates"};
    for (size_t i = 0; i < COUNT(first); i++) {
        for (uint32_t j = 0; j < root->count; j++) {
            if (slice_is(json_text(&root->members[j].name), first[i])) {
                print_one(text, root, &root->members[j]);
            }
        }
    }
    for (uint32_t j = 0; j < root->count; j++) {
        bool is_printed = false;
        for (size_t i = 0; i < COUNT(first); i++) {
            is_printed = is_printed || slice_is(json_text(&root->members[j].name), first[i]);
        }
        if (!is_printed) {
            print_one(text, root, &root->members[j]);
        }
    }
}

static void print_word(const char *name, struct slice value)
{
    if (value.len > 0) {
        out_text("  %s", name);
        out_safe(value);
    }
}

/* One line: when, what, of which attempt, by whom, under which request, and why. */
static void print_entry(const struct json_value *entry)
{
    struct entry_words words = entry_words_of(entry);
    if (slice_is(words.type, "access.read")) {
        return;
    }
    out_text("%.*s  %s%.*s%s", SLICE_ARGS(cli_member(entry, SLICE_LIT("occurred_at"))),
        out_tint(TINT_BOLD), SLICE_ARGS(words.type), out_plain());
    print_word("attempt ", slice_is(words.attempt, "0") ? SLICE_EMPTY : words.attempt);
    print_word("provider_ref ", cli_member(entry, SLICE_LIT("provider_ref")));
    print_word("by ", words.actor);
    print_word("request ", words.request_id);
    if (words.reason.len > 0) {
        out_text(": ");
        out_safe(words.reason);
    }
    out_text("\n");
}

/* All of its entries, page by page. A caller that may not read evidence sees only the document. */
static void print_history(struct remote *remote, const char *id)
{
    char cursor[CURSOR_BYTES_MAX] = "";
    bool is_last = false;
    struct arena arena;
    arena_init(&arena, &mem_libc, PAGE_ARENA_BYTES_MAX);
    while (!is_last && !out_broken()) {
        struct remote_answer answer;
        arena_clear(&arena);
        const char *path = remote_evidence_path(&arena, id, cursor);
        if (path == NULL || remote_ask(remote, path, SLICE_EMPTY, &arena, &answer) != CLI_OK ||
            answer.status != 200) {
            break;
        }
        const struct json_value *entries = json_find(answer.root, SLICE_LIT("entries"));
        for (uint32_t i = 0; json_is(entries, JSON_ARRAY) && i < entries->count; i++) {
            print_entry(&entries->items[i]);
        }
        is_last = !remote_take_next(answer.root, cursor, &is_last) || is_last;
    }
    arena_release(&arena);
}

/* Its own history, and that of the effect that undoes it. */
static void print_histories(
    struct cli *cli, struct remote *remote, const char *id, const struct json_value *root)
{
    struct operation undo = {
        .id = cli_member(json_find(root, SLICE_LIT("compensation")), SLICE_LIT("effect_id"))};
    out_text("\n");
    print_history(remote, id);
    const char *undo_id = undo.id.len > 0 ? operation_id(&undo, &cli->arena) : NULL;
    if (undo_id != NULL) {
        out_text("\nundone by %s\n", undo_id);
        print_history(remote, undo_id);
    }
}

int work_show(struct cli *cli, const struct work_kind *kind, const char *typed)
{
    const char *id = NULL;
    struct remote *remote = NULL;
    struct remote_answer answer;
    char path[PATH_BYTES_MAX];
    int code = work_open_named(cli, kind, typed, &remote, &id);
    const char *escaped = code == CLI_OK ? remote_escape(&cli->arena, id) : NULL;
    if (escaped != NULL) {
        (void)snprintf(path, sizeof path, "/v1/%s/%s", kind->name, escaped);
        code = remote_get(remote, path, &cli->arena, &answer);
    }
    if (code == CLI_OK && escaped != NULL && cli->json) {
        out_bytes(answer.text);
        out_text("\n");
    } else if (code == CLI_OK && escaped != NULL) {
        print_document(kind, answer.text, answer.root);
        print_histories(cli, remote, id, answer.root);
    }
    int written = out_finish_listing();
    remote_free(remote);
    return code == CLI_OK ? written : code;
}
