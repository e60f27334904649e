/*
 * once conformance: the tests of IDS against a running server, from outside.
 *
 * The server's registry has the commands that --registry prints; they are handled by a small
 * handler that this program runs meanwhile. Only the paths of the API are specific to Once: any
 * implementation that has them can be tested the same way.
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/macros.h"
#include "base/uuid.h"
#include "canon/jsonw.h"
#include "cli/backend.h"
#include "cli/out.h"
#include "cli/remote.h"
#include "server/fake_upstream.h"

enum {
    BODY_BYTES_MAX = 8192,
    PATH_BYTES_MAX = 512,
    REASON_BYTES_MAX = 256,
    TOGETHER = 16, /* duplicates at once */
    FLOOD = 400,   /* duplicates in a row; some of them are refused */
    SETTLE_MS = 5000,
    WINDOW_TRIES = 10, /* of a test that needs two requests within the window */
    WINDOW_MS = 1000,  /* of conformance.note */
};

/* The rate is so low that even a slow client exceeds it: as many duplicates as the flood has would
 * be allowed in an hour. The other tests send fewer duplicates of one key than the burst. */
static const char registry[] =
    "limits: {duplicate_rate: 0.1, duplicate_burst: 40}\n"
    "commands:\n"
    "  conformance.act: {class: I1, timeout: 10s, handler: \"http://127.0.0.1:%u/act\"}\n"
    "  conformance.look: {class: I0, handler: \"http://127.0.0.1:%u/look\"}\n"
    "  conformance.note: {class: I2, justification: \"the window is tested\", ttl: 1s,\n"
    "    handler: \"http://127.0.0.1:%u/note\"}\n"
    "  conformance.bound: {class: I1, binding: effective_actor,\n"
    "    handler: \"http://127.0.0.1:%u/bound\"}\n"
    "  conformance.pay: {class: I3, justification: \"it must run once\", shield: [S3],\n"
    "    critical: true, ttl: 24h, confirm: confirm, handler: \"http://127.0.0.1:%u/pay\"}\n";

struct conformance {
    struct cli *cli;
    struct remote *remote;
    struct fake_upstream *handler;
    char run[UUID_TEXT_BYTES];     /* in every target, so that no run finds the records of an
                                      earlier one */
    char reason[REASON_BYTES_MAX]; /* of a failure */
    unsigned number;               /* of targets so far */
};

/* ---- asking -------------------------------------------------------------------------------- */

static const char *fail(struct conformance *kit, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static const char *fail(struct conformance *kit, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)vsnprintf(kit->reason, sizeof kit->reason, format, args);
    va_end(args);
    return kit->reason;
}

/* An envelope; more has additional members, beginning with a comma, or is empty. */
static const char *envelope(struct conformance *kit, const char *action, unsigned target,
    const char *actor, const char *more)
{
    char *text = arena_alloc(&kit->cli->arena, BODY_BYTES_MAX);
    if (text != NULL) {
        (void)snprintf(text, BODY_BYTES_MAX,
            "{\"actor_id\":\"%s\",\"intent\":{\"entity\":\"conformance\",\"action\":\"%s\","
            "\"target\":{\"run\":\"%s\",\"number\":%u}}%s}",
            actor, action, kit->run, target, more);
    }
    return text == NULL ? "" : text;
}

static unsigned fresh(struct conformance *kit)
{
    return ++kit->number;
}

/* Returns the HTTP status; 0: no answer. */
static int ask(struct conformance *kit, struct remote *remote, const char *path, const char *body,
    struct remote_answer *ret_answer)
{
    struct once_error error = {0};
    *ret_answer = (struct remote_answer){.status = 0};
    int result = remote_try(remote, path, slice_str(body), &kit->cli->arena, ret_answer, &error);
    return result == ONCE_OK ? ret_answer->status : 0;
}

static int submit(struct conformance *kit, const char *body, struct remote_answer *ret_answer)
{
    return ask(kit, kit->remote, "/v1/commands", body, ret_answer);
}

static struct slice member(const struct remote_answer *answer, const char *name)
{
    return cli_member(answer->root, slice_str(name));
}

static bool same(const struct remote_answer *a, const struct remote_answer *b, const char *name)
{
    struct slice x = member(a, name);
    return x.len > 0 && slice_equal(x, member(b, name));
}

/* Whether the evidence about a command contains this text. */
static bool has_evidence(struct conformance *kit, struct slice id, const char *text)
{
    char path[PATH_BYTES_MAX];
    struct remote_answer answer;
    (void)snprintf(path, sizeof path, "/v1/evidence?limit=1000&operation_id=%.*s", SLICE_ARGS(id));
    return ask(kit, kit->remote, path, "", &answer) == 200 && answer.text.len > 0 &&
           memmem(answer.text.data, answer.text.len, text, strlen(text)) != NULL;
}

static void answers(struct conformance *kit, const struct case_upstream *script)
{
    struct err err;
    (void)!fake_upstream_script(kit->handler, script, &err);
}

static const struct case_upstream at_once = {.status = 200,
    .content = {.has_body = true, .is_json = true, .body = SLICE_INIT("{\"summary\":\"Done.\"}")}};
static const struct case_upstream when_released = {.status = 200,
    .waits = true,
    .content = {.has_body = true, .is_json = true, .body = SLICE_INIT("{\"summary\":\"Done.\"}")}};

static uint64_t calls(struct conformance *kit)
{
    return fake_upstream_calls(kit->handler);
}

/* ---- the tests ----------------------------------------------------------------------------- */

static const char *classes_are_declared(struct conformance *kit)
{
    struct remote_answer answer;
    int status = ask(kit, kit->remote, "/v1/registry", "", &answer);
    const struct json_value *list = json_find(answer.root, SLICE_LIT("commands"));
    if (status != 200 || !json_is(list, JSON_ARRAY)) {
        return fail(kit, "GET /v1/registry answered %d", status);
    }
    for (uint32_t i = 0; i < list->count; i++) {
        struct slice class = cli_member(&list->items[i], SLICE_LIT("class"));
        if (class.len != 2 || class.data[0] != 'I') {
            return fail(kit, "a command declares no class");
        }
    }
    return NULL;
}

static const char *shields_are_declared(struct conformance *kit)
{
    struct remote_answer answer;
    int status = ask(kit, kit->remote, "/v1/registry", "", &answer);
    const struct json_value *list = json_find(answer.root, SLICE_LIT("commands"));
    unsigned found = 0;
    if (status != 200 || !json_is(list, JSON_ARRAY)) {
        return fail(kit, "GET /v1/registry answered %d", status);
    }
    for (uint32_t i = 0; i < list->count; i++) {
        const struct json_value *shields = json_find(&list->items[i], SLICE_LIT("shield"));
        bool is_i3 = slice_is(cli_member(&list->items[i], SLICE_LIT("class")), "I3");
        found += is_i3;
        if (is_i3 && (!json_is(shields, JSON_ARRAY) || shields->count == 0)) {
            return fail(kit, "an I3 command declares no shield");
        }
    }
    return found > 0 ? NULL : fail(kit, "the registry has no I3 command");
}

static const char *keys_follow_the_meaning(struct conformance *kit)
{
    unsigned target = fresh(kit);
    struct remote_answer first, again, other;
    (void)submit(kit, envelope(kit, "act", target, "ana", ""), &first);
    (void)submit(kit,
        envelope(kit, "act", target, "ana",
            ",\"created_at\":\"2026-01-01T00:00:00Z\",\"x_any\":1,\"trace\":{\"message_ids\":[1]}"),
        &again);
    (void)submit(kit, envelope(kit, "act", target, "bob", ""), &other);
    if (!same(&first, &again, "idempotency_key")) {
        return fail(kit, "an ephemeral member changed the key");
    }
    return same(&first, &other, "idempotency_key") ? fail(kit, "two actors share a key") : NULL;
}

static const char *principals_bind(struct conformance *kit)
{
    unsigned target = fresh(kit);
    struct remote_answer first, again;
    uint64_t before = calls(kit);
    (void)submit(
        kit, envelope(kit, "bound", target, "bot-1", ",\"effective_actor_id\":\"ana\""), &first);
    (void)submit(
        kit, envelope(kit, "bound", target, "bot-2", ",\"effective_actor_id\":\"ana\""), &again);
    return !same(&first, &again, "command_id") ? fail(kit, "two actors of one principal ran twice")
           : calls(kit) - before != 1          ? fail(kit, "the handler was not called once")
                                               : NULL;
}

static const char *duplicates_have_one_effect(struct conformance *kit)
{
    const char *body = envelope(kit, "act", fresh(kit), "ana", "");
    struct remote_answer answer;
    uint64_t before = calls(kit);
    for (int i = 0; i < 3; i++) {
        int status = submit(kit, body, &answer);
        if (status != (i == 0 ? 201 : 200)) {
            return fail(kit, "submission %d was answered with %d", i + 1, status);
        }
    }
    return calls(kit) - before == 1 ? NULL : fail(kit, "the handler was called more than once");
}

struct together {
    struct conformance *kit;
    struct remote *remote;
    struct arena arena;
    const char *body;
    int status;
};

static void *submit_one(void *context)
{
    struct together *one = context;
    struct once_error error = {0};
    struct remote_answer answer = {.status = 0};
    int result =
        remote_try(one->remote, "/v1/commands", slice_str(one->body), &one->arena, &answer, &error);
    one->status = result == ONCE_OK ? answer.status : 0;
    return NULL;
}

static const char *concurrent_duplicates_converge(struct conformance *kit)
{
    static struct together all[TOGETHER];
    pthread_t threads[TOGETHER];
    const char *body = envelope(kit, "act", fresh(kit), "ana", "");
    uint64_t before = calls(kit);
    size_t started = 0;
    for (; started < TOGETHER; started++) {
        struct together *one = &all[started];
        *one = (struct together){.kit = kit, .body = body};
        arena_init(&one->arena, &mem_libc, 64 << 20);
        if (backend_find_server(kit->cli, &one->remote) != CLI_OK ||
            pthread_create(&threads[started], NULL, submit_one, one) != 0) {
            break;
        }
    }
    int executed = 0;
    for (size_t i = 0; i < started; i++) {
        (void)pthread_join(threads[i], NULL);
        executed += all[i].status == 201;
        remote_free(all[i].remote);
        arena_release(&all[i].arena);
    }
    return started < TOGETHER         ? fail(kit, "cannot submit %d at once", TOGETHER)
           : executed != 1            ? fail(kit, "%d of them were executed", executed)
           : calls(kit) - before != 1 ? fail(kit, "the handler was called more than once")
                                      : NULL;
}

static const char *a_duplicate_after_success_replays(struct conformance *kit)
{
    const char *body = envelope(kit, "act", fresh(kit), "ana", "");
    struct remote_answer first, again;
    (void)submit(kit, body, &first);
    (void)submit(kit, body, &again);
    static const char *const stable[] = {"command_id", "idempotency_key", "summary", "outcome_ref"};
    for (size_t i = 0; i < COUNT(stable); i++) {
        if (!same(&first, &again, stable[i])) {
            return fail(kit, "'%s' differs between the first answer and its replay", stable[i]);
        }
    }
    return NULL;
}

static const char *a_duplicate_in_progress_is_processing(struct conformance *kit)
{
    static struct together first;
    const char *body = envelope(kit, "act", fresh(kit), "ana", "");
    struct remote_answer answer;
    pthread_t thread;
    uint64_t before = calls(kit);
    answers(kit, &when_released);
    first = (struct together){.kit = kit, .body = body};
    arena_init(&first.arena, &mem_libc, 64 << 20);
    if (backend_find_server(kit->cli, &first.remote) != CLI_OK ||
        pthread_create(&thread, NULL, submit_one, &first) != 0) {
        return fail(kit, "cannot submit");
    }
    for (int i = 0; i < SETTLE_MS / 10 && calls(kit) == before; i++) {
        clock_sleep_ms(10);
    }
    int status = submit(kit, body, &answer);
    fake_upstream_release(kit->handler);
    (void)pthread_join(thread, NULL);
    answers(kit, &at_once);
    remote_free(first.remote);
    arena_release(&first.arena);
    return status != 202 ? fail(kit, "it was answered with %d", status)
           : member(&answer, "command_id").len == 0 || member(&answer, "status_url").len == 0
               ? fail(kit, "the answer does not say where to ask")
           : calls(kit) - before != 1 ? fail(kit, "a parallel run")
                                      : NULL;
}

static const char *a_collision_is_refused_with_evidence(struct conformance *kit)
{
    char more[128];
    struct remote_answer first, other;
    (void)snprintf(more, sizeof more, ",\"idempotency_key\":\"%s-%u\"", kit->run, fresh(kit));
    (void)submit(kit, envelope(kit, "act", kit->number, "ana", more), &first);
    int status = submit(kit, envelope(kit, "act", fresh(kit), "ana", more), &other);
    return status != 409 ? fail(kit, "it was answered with %d", status)
           : !slice_is(other.code, "idempotency_conflict")
               ? fail(kit, "the code is not idempotency_conflict")
           : !has_evidence(kit, member(&first, "operation_id"), "received_fingerprint")
               ? fail(kit, "there is no evidence of both fingerprints")
               : NULL;
}

/* Send a token; returns the HTTP status. */
static int confirm(struct conformance *kit, struct slice id, struct slice token)
{
    char path[PATH_BYTES_MAX];
    char body[BODY_BYTES_MAX];
    struct remote_answer answer;
    (void)snprintf(path, sizeof path, "/v1/commands/%.*s/confirm", SLICE_ARGS(id));
    (void)snprintf(body, sizeof body, "{\"token\":\"%.*s\"}", SLICE_ARGS(token));
    return ask(kit, kit->remote, path, body, &answer);
}

static struct slice token_of(const struct remote_answer *answer)
{
    return cli_member(json_find(answer->root, SLICE_LIT("confirmation")), SLICE_LIT("token"));
}

static const char *confirmations_bind(struct conformance *kit)
{
    const char *body = envelope(kit, "pay", fresh(kit), "ana", "");
    struct remote_answer asked, again, other, replay;
    uint64_t before = calls(kit);
    int status = submit(kit, body, &asked);
    struct slice id = member(&asked, "command_id");
    struct slice token = token_of(&asked);
    (void)submit(kit, body, &again);
    (void)submit(kit, envelope(kit, "pay", fresh(kit), "ana", ""), &other);
    if (status != 202 || token.len == 0) {
        return fail(kit, "no confirmation was asked for (%d)", status);
    }
    if (token_of(&again).len > 0 || !same(&asked, &again, "command_id")) {
        return fail(kit, "a duplicate got a second token, or a second command");
    }
    if (confirm(kit, id, SLICE_LIT("wrong")) != 403 || confirm(kit, id, token_of(&other)) != 403) {
        return fail(kit, "a token that is not the command's was not refused");
    }
    if (calls(kit) != before) {
        return fail(kit, "the handler was called without a confirmation");
    }
    status = confirm(kit, id, token);
    if (status != 201) {
        return fail(kit, "the confirmation was answered with %d", status);
    }
    if (confirm(kit, id, token) != 403) {
        return fail(kit, "a used token was not refused");
    }
    status = submit(kit, body, &replay);
    return status != 200 || token_of(&replay).len > 0 ? fail(kit, "the replay asks again")
           : calls(kit) - before != 1                 ? fail(kit, "it was executed twice")
                                                      : NULL;
}

static const char *windows_end(struct conformance *kit)
{
    struct remote_answer answer;
    const char *body = NULL;
    bool was_inside = true;
    bool is_replayed = false;
    /* If the two were not sent within the window, the second says nothing. */
    for (int i = 0; i < WINDOW_TRIES && !is_replayed && (i == 0 || !was_inside); i++) {
        uint64_t began = clock_nanos();
        body = envelope(kit, "note", fresh(kit), "ana", "");
        is_replayed = submit(kit, body, &answer) == 201 && submit(kit, body, &answer) == 200;
        was_inside = clock_nanos() - began < WINDOW_MS * UINT64_C(1000000);
    }
    if (!is_replayed) {
        return was_inside ? fail(kit, "a duplicate inside the window was not replayed")
                          : fail(kit, "two submissions take longer than the window");
    }
    clock_sleep_ms(WINDOW_MS + 500);
    int status = submit(kit, body, &answer);
    return status == 201 ? NULL : fail(kit, "after the window it was answered with %d", status);
}

static const char *records_are_whole(struct conformance *kit)
{
    static const char *const members[] = {"idempotency_key", "command_id", "status", "outcome_ref",
        "created_at", "updated_at", "ttl_expires_at"};
    struct remote_answer first, record;
    char path[PATH_BYTES_MAX];
    (void)submit(kit, envelope(kit, "act", fresh(kit), "ana", ""), &first);
    (void)snprintf(
        path, sizeof path, "/v1/commands/%.*s", SLICE_ARGS(member(&first, "command_id")));
    (void)ask(kit, kit->remote, path, "", &record);
    for (size_t i = 0; i < COUNT(members); i++) {
        if (member(&record, members[i]).len == 0) {
            return fail(kit, "the record has no '%s'", members[i]);
        }
    }
    return NULL;
}

static const char *decisions_leave_evidence(struct conformance *kit)
{
    const char *body = envelope(kit, "act", fresh(kit), "ana", "");
    struct remote_answer first;
    (void)submit(kit, body, &first);
    (void)submit(kit, body, &first);
    struct slice id = member(&first, "operation_id");
    return !has_evidence(kit, id, "\"first_seen\"") ? fail(kit, "no entry says first_seen")
           : !has_evidence(kit, id, "\"duplicate_replayed\"")
               ? fail(kit, "no entry says duplicate_replayed")
               : NULL;
}

static const char *reads_run_every_time(struct conformance *kit)
{
    const char *body = envelope(kit, "look", fresh(kit), "ana", "");
    struct remote_answer answer;
    uint64_t before = calls(kit);
    (void)submit(kit, body, &answer);
    (void)submit(kit, body, &answer);
    return calls(kit) - before == 2 ? NULL : fail(kit, "a read was deduplicated");
}

static const char *floods_are_limited(struct conformance *kit)
{
    const char *body = envelope(kit, "act", fresh(kit), "ana", "");
    struct remote_answer answer;
    for (int i = 0; i < FLOOD; i++) {
        if (submit(kit, body, &answer) == 429) {
            return NULL;
        }
    }
    return fail(kit, "%d duplicates in a row were all answered", FLOOD);
}

static const struct {
    const char *id;   /* of the requirement */
    const char *also; /* requirements that it proves too; empty: none */
    const char *says;
    const char *(*run)(struct conformance *kit);
} tests[] = {
    {"IDS-2", "", "every command declares its class", classes_are_declared},
    {"IDS-2", "", "a read-only command runs every time", reads_run_every_time},
    {"IDS-3", "", "the key follows the meaning alone", keys_follow_the_meaning},
    {"IDS-4", "", "the binding principal enters the key", principals_bind},
    {"IDS-6", "", "a record holds what it has to", records_are_whole},
    {"IDS-7", "", "a window ends, and then it may run again", windows_end},
    {"IDS-13", "", "every I3 command declares a shield", shields_are_declared},
    {"IDS-14", "", "every decision leaves evidence", decisions_leave_evidence},
    {"IDS-15.1", "IDS-1", "duplicates do not duplicate effects", duplicates_have_one_effect},
    {"IDS-15.2", "IDS-5", "concurrent duplicates converge", concurrent_duplicates_converge},
    {"IDS-15.3", "IDS-9, IDS-11", "a duplicate after success replays",
        a_duplicate_after_success_replays},
    {"IDS-15.4", "IDS-10", "a duplicate in progress is processing",
        a_duplicate_in_progress_is_processing},
    {"IDS-15.5", "IDS-8", "a collision is refused, with evidence",
        a_collision_is_refused_with_evidence},
    {"IDS-15.6", "IDS-12", "a confirmation is neither bypassed nor repeated", confirmations_bind},
    {"IDS-16", "", "repeated duplicates are rate-limited", floods_are_limited},
};

/* ---- the command --------------------------------------------------------------------------- */

static int run_all(struct conformance *kit)
{
    size_t failed = 0;
    struct buf bytes;
    struct jsonw json = {.out = &bytes};
    buf_init(&bytes, &mem_libc, 1 << 20);
    jsonw_open(&json, NULL, '{');
    jsonw_open(&json, "tests", '[');
    for (size_t i = 0; i < COUNT(tests); i++) {
        answers(kit, &at_once);
        const char *reason = tests[i].run(kit);
        failed += reason != NULL;
        if (!kit->cli->json) {
            bool is_more = tests[i].also[0] != '\0';
            out_text("%-9s %s%-4s%s  %s%s%s%s%s%s\n", tests[i].id,
                out_tint(reason == NULL ? TINT_GOOD : TINT_BAD), reason == NULL ? "ok" : "FAIL",
                out_plain(), tests[i].says, is_more ? " (" : "", tests[i].also, is_more ? ")" : "",
                reason == NULL ? "" : ": ", reason == NULL ? "" : reason);
        }
        jsonw_open(&json, NULL, '{');
        jsonw_str(&json, "requirement", tests[i].id);
        jsonw_str_some(&json, "also", tests[i].also);
        jsonw_str(&json, "test", tests[i].says);
        jsonw_bool(&json, "ok", reason == NULL);
        jsonw_str_some(&json, "reason", reason);
        jsonw_close(&json, '}');
    }
    jsonw_close(&json, ']');
    jsonw_u64(&json, "failed", failed);
    jsonw_close(&json, '}');
    int code = CLI_OK;
    if (kit->cli->json) {
        code = jsonw_print(&json);
    } else {
        out_text("%zu of %zu tests passed\n", COUNT(tests) - failed, COUNT(tests));
        code = out_finish();
    }
    buf_release(&bytes);
    return code != CLI_OK ? code : failed > 0 ? CLI_DATA : CLI_OK;
}

int cmd_conformance(struct cli *cli)
{
    struct conformance kit = {.cli = cli};
    struct err err = {0};
    unsigned port = (unsigned)cli_count(cli, "port");
    if (cli_flag(cli, "registry")) {
        out_text(registry, port, port, port, port, port);
        return out_finish();
    }
    int code = backend_find_server(cli, &kit.remote);
    if (code == CLI_OK && kit.remote == NULL) {
        return cli_usage(cli, "conformance: --server is missing");
    }
    if (code == CLI_OK && (uuid_new(kit.run, &err) != OK ||
                              fake_upstream_new((uint16_t)port, &kit.handler, &err) != OK)) {
        code = cli_fail_err(&err);
    }
    code = code == CLI_OK ? run_all(&kit) : code;
    fake_upstream_free(kit.handler);
    remote_free(kit.remote);
    return code;
}
