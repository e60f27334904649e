/*
 * Retries, cancels, compensates or resolves every effect that matches the filters, after the
 * operator has agreed.
 *
 *     list > --dry-run: print > agree > one after another, as for a single one
 *
 * Each effect is a separate call with its own decision and evidence. The server decides by the
 * status that the effect has then, and once resolve names the attempt that was listed: an effect
 * that has changed meanwhile stays as it is, is reported, and the others go on. A server that
 * cannot be reached ends the command. What is done stays done, and since the list holds only what
 * can still be changed, running the same command line again continues with the rest.
 */
#include <string.h>

#include "base/macros.h"
#include "canon/jsonw.h"
#include "cli/backend.h"
#include "cli/confirm_many.h"
#include "cli/out.h"
#include "cli/remote_read.h"
#include "cli/work.h"

enum { BODY_BYTES_MAX = 8 << 10, ANSWER_ARENA_BYTES_MAX = 64 << 20 };

/* What an action is called, and which effects it is for. */
static const struct {
    const char *verb;
    const char *status; /* of those that are listed */
    struct many words;
} actions[] = {
    {"retry", "dead_letter",
        {.verb = "retry",
            .verbs = "retries",
            .done = "retried",
            .which = "dead letter",
            .still = "dead letters"}},
    {"cancel", "pending",
        {.verb = "cancel",
            .verbs = "cancels",
            .done = "cancelled",
            .which = "pending effect",
            .still = "pending"}},
    {"compensate", "acknowledged",
        {.verb = "compensate",
            .verbs = "compensates",
            .done = "compensated",
            .which = "acknowledged effect",
            .still = "acknowledged"}},
    {"resolve", "uncertain",
        {.verb = "settle",
            .verbs = "settles",
            .done = "settled",
            .which = "uncertain effect",
            .still = "uncertain"}},
};

struct work_target {
    struct work_target *next;
    const char *id;
    uint64_t attempt;
    struct slice json; /* for --dry-run with --json; otherwise empty */
    struct slice what;
    struct slice who;
};

struct work_many {
    struct cli *cli;
    struct remote *remote;
    const struct work_kind *kind;
    const char *verb;
    struct many words;
    struct work_target *first;
    struct work_target **last; /* where the next one goes */
    size_t count;
    bool no_memory;
};

/* ---- targets ----------------------------------------------------------------------------- */

static int add_target(void *context, const struct json_value *item, struct slice text)
{
    struct work_many *self = context;
    struct arena *arena = &self->cli->arena;
    struct work_target *target = arena_zalloc(arena, sizeof *target);
    struct operation named = {.id = cli_member(item, slice_str(self->kind->id))};
    struct slice kept = self->cli->json ? text : SLICE_EMPTY;
    if (json_is(json_find(item, SLICE_LIT("compensating")), JSON_TRUE)) {
        return 0; /* acknowledged still, and what undoes it is under way */
    }
    if (target == NULL || (target->id = operation_id(&named, arena)) == NULL ||
        arena_copy(arena, kept, &target->json) != OK ||
        arena_copy(arena, cli_member(item, slice_str(self->kind->what)), &target->what) != OK ||
        arena_copy(arena, cli_member(item, slice_str(self->kind->who)), &target->who) != OK) {
        self->no_memory = true;
        return 1;
    }
    (void)remote_read_u64(item, SLICE_LIT("attempt"), &target->attempt);
    *self->last = target;
    self->last = &target->next;
    self->count++;
    return 0;
}

static int list(struct work_many *self, const char *status)
{
    struct work_filter filter = work_filter_of(self->cli, status);
    int code = work_each(self->cli, self->remote, self->kind, &filter, add_target, self);
    if (code == CLI_OK && self->no_memory) {
        cli_say("cannot list the effects: out of memory");
        code = CLI_UNAVAILABLE;
    }
    return code;
}

static int print_targets(const struct work_many *self)
{
    bool is_json = self->cli->json;
    const char *word = self->words.as == NULL ? self->words.done : self->words.as;
    out_text(is_json ? "[" : "");
    for (const struct work_target *at = self->first; at != NULL && !out_broken(); at = at->next) {
        if (is_json) {
            out_text(at == self->first ? "" : ",");
            out_bytes(at->json);
            continue;
        }
        out_text("%s would be %s: ", at->id, word);
        out_safe(at->what);
        out_text(at->who.len > 0 ? " " : "");
        out_safe(at->who);
        out_text("\n");
    }
    out_text(is_json ? "]\n" : "");
    return out_finish_listing();
}

/* ---- changes ----------------------------------------------------------------------------- */

static void put_body(
    const struct work_many *self, const struct work_target *target, struct buf *out)
{
    struct jsonw json = {.out = out};
    jsonw_open(&json, NULL, '{');
    if (strcmp(self->verb, "resolve") == 0) {
        jsonw_str(&json, "status", self->words.as);
        jsonw_u64(&json, "attempt", target->attempt);
    }
    jsonw_str_some(&json, "reason", cli_text(self->cli, "reason"));
    jsonw_close(&json, '}');
}

/* One of them. An answer means that the server decided, whatever it decided. */
static int change(const struct work_many *self, const struct work_target *target,
    struct arena *arena, struct remote_answer *ret_answer)
{
    struct mem mem = arena_mem(arena);
    struct buf body;
    buf_init(&body, &mem, BODY_BYTES_MAX);
    put_body(self, target, &body);
    struct work_ask ask = {.kind = self->kind, .id = target->id, .verb = self->verb};
    if (buf_status(&body) != OK) {
        cli_say("--reason is too long");
        return CLI_USAGE;
    }
    ask.body = buf_view(&body);
    *ret_answer = (struct remote_answer){0};
    return work_ask(self->remote, &ask, arena, ret_answer);
}

static void print_done(const struct work_many *self, const struct work_target *target,
    const struct remote_answer *answer, bool is_first)
{
    if (self->cli->json) {
        out_text(is_first ? "" : ",");
        out_bytes(answer->text);
        return;
    }
    out_text("%s: %.*s\n", target->id, SLICE_ARGS(cli_member(answer->root, SLICE_LIT("status"))));
}

/* Change all of them, or up to the first one that the server did not decide. */
static int change_each(const struct work_many *self, size_t *ret_done)
{
    struct arena arena;
    int code = CLI_OK;
    arena_init(&arena, &mem_libc, ANSWER_ARENA_BYTES_MAX);
    for (const struct work_target *at = self->first; at != NULL; at = at->next) {
        struct remote_answer answer;
        arena_clear(&arena);
        int failed = change(self, at, &arena, &answer);
        if (failed == CLI_OK) {
            print_done(self, at, &answer, *ret_done == 0);
            *ret_done += 1;
            continue;
        }
        code = failed;
        if (answer.status != 404 && answer.status != 409 && answer.status != 422) {
            break; /* not about this one */
        }
        cli_say("%s was not %s; the others are unaffected", at->id, self->words.done);
    }
    arena_release(&arena);
    return code;
}

static int change_all(const struct work_many *self)
{
    size_t done = 0;
    out_text(self->cli->json ? "[" : "");
    int code = change_each(self, &done);
    out_text(self->cli->json ? "]\n" : "");
    int written = out_finish();
    if (code != CLI_OK) {
        many_stopped(&self->words, done, self->count);
    }
    return code != CLI_OK ? code : written;
}

static int run(struct work_many *self, const char *status)
{
    bool is_agreed = false;
    int code = list(self, status);
    if (code != CLI_OK || cli_flag(self->cli, "dry-run")) {
        return code != CLI_OK ? code : print_targets(self);
    }
    if (self->count == 0) {
        many_none(&self->words);
        return self->cli->json ? print_targets(self) : CLI_OK;
    }
    code = many_agree(&self->words, self->count, &is_agreed);
    return code != CLI_OK || !is_agreed ? code : change_all(self);
}

int work_many(struct cli *cli, const char *verb)
{
    struct work_many self = {.cli = cli, .verb = verb, .kind = work_kind_named("effects")};
    const char *status = NULL;
    if (cli_flag(cli, "principal")) {
        return cli_usage(cli, "%s: --principal is of operations", verb);
    }
    for (size_t i = 0; i < COUNT(actions); i++) {
        if (strcmp(actions[i].verb, verb) == 0) {
            self.words = actions[i].words;
            status = actions[i].status;
        }
    }
    self.last = &self.first;
    self.words.cli = cli;
    self.words.command = verb;
    self.words.noun = self.kind->one;
    self.words.as =
        strcmp(verb, "resolve") == 0 ? work_effect_status(cli_text(cli, "status")) : NULL;
    int code = work_open_server(cli, &self.remote);
    code = code == CLI_OK ? run(&self, status) : code;
    remote_free(self.remote);
    return code;
}
