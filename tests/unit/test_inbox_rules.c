/*
 * Signatures and events of the inbox against tests/vectors/inbox, changed requests, and memory that
 * runs out.
 */
#include <stdio.h>

#include "base/limits.h"
#include "base/macros.h"
#include "base/text.h"
#include "canon/json_mask.h"
#include "check_c.h"
#include "faulty_mem.h"
#include "files.h"
#include "inbox/event.h"
#include "prng.h"

enum {
    ARENA_BYTES = 64 << 20,
    SECRETS_MAX = 4,
    MUTATIONS = 10000,
    NAMES_MAX = 256,
};
#define NOW_MS INT64_C(1700000000000)

static struct kit {
    struct buf file;
    struct arena vectors;
    const struct json_value *root;
} kit;

static int set_up(void **state)
{
    (void)state;
    struct err err = {0};
    buf_init(&kit.file, &mem_libc, FILE_BYTES_MAX);
    arena_init(&kit.vectors, &mem_libc, ARENA_BYTES);
    file_read("vectors/inbox/webhooks.json", &kit.file);
    if (json_read(buf_view(&kit.file), &kit.vectors, &kit.root, &err) != OK) {
        fail_msg("%s", err.text);
    }
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    arena_release(&kit.vectors);
    buf_release(&kit.file);
    return 0;
}

static struct slice member(const struct json_value *object, const char *name)
{
    const struct json_value *value = object == NULL ? NULL : json_find(object, slice_str(name));
    return value == NULL ? SLICE_EMPTY : json_text(value);
}

/* ---- a request ----------------------------------------------------------------------------- */

struct asked {
    struct buf text; /* head and body */
    struct http_head head;
    struct slice body;
};

static bool asked_read(struct asked *asked)
{
    static const struct http_limits limits = {.head_bytes_max = 64 << 10,
        .target_bytes_max = 8000,
        .fields_max = HTTP_FIELDS_MAX,
        .body_bytes_max = 1 << 20};
    struct http_refusal refusal;
    http_head_init(&asked->head);
    struct slice text = buf_view(&asked->text);
    if (http_request_head(text, &limits, &asked->head, &refusal) != HTTP_DONE) {
        return false;
    }
    asked->body = slice_of(text.data + asked->head.bytes, text.len - asked->head.bytes);
    return true;
}

static void asked_begin(struct asked *asked)
{
    buf_init(&asked->text, &mem_libc, 1 << 20);
    buf_str(&asked->text, "POST /in/x HTTP/1.1\r\nHost: x\r\n");
}

static void asked_make(struct asked *asked, const struct json_value *of)
{
    const struct json_value *headers = json_find(of, SLICE_LIT("headers"));
    asked_begin(asked);
    for (uint32_t i = 0; i < headers->count; i++) {
        buf_slice(&asked->text, json_text(&headers->items[i].items[0]));
        buf_str(&asked->text, ": ");
        buf_slice(&asked->text, json_text(&headers->items[i].items[1]));
        buf_str(&asked->text, "\r\n");
    }
    buf_str(&asked->text, "\r\n");
    buf_slice(&asked->text, member(of, "body"));
    assert_true(asked_read(asked));
}

static const struct preset *preset_of(const struct json_value *of)
{
    enum preset_kind kind;
    assert_true(preset_find(member(of, "preset"), &kind));
    return &presets[kind];
}

/* ---- signatures ---------------------------------------------------------------------------- */

static void check_case(const struct json_value *of)
{
    const struct preset *preset = preset_of(of);
    const struct json_value *texts = json_find(of, SLICE_LIT("secrets"));
    struct signature_secret secrets[SECRETS_MAX];
    struct signature_keys keys = {secrets, texts->count};
    struct asked asked;
    struct arena arena;
    struct err err = {0};
    int64_t now = 0, expected = 0;
    size_t secret = SIZE_MAX;
    arena_init(&arena, &mem_libc, ARENA_BYTES);
    asked_make(&asked, of);
    for (uint32_t i = 0; i < texts->count; i++) {
        if (signature_secret_read(
                &preset->signature, json_text(&texts->items[i]), &secrets[i], &err) != OK) {
            fail_msg("%.*s: %s", SLICE_ARGS(member(of, "name")), err.text);
        }
    }
    assert_true(json_int(json_find(of, SLICE_LIT("now")), &now));
    enum signature_verdict verdict = signature_verify(
        &preset->signature, &keys, &asked.head, asked.body, now * 1000, &arena, &secret);
    if (!slice_is(member(of, "verdict"), signature_verdict_name(verdict))) {
        fail_msg("%.*s: %s instead of %.*s", SLICE_ARGS(member(of, "name")),
            signature_verdict_name(verdict), SLICE_ARGS(member(of, "verdict")));
    }
    if (verdict == SIGNATURE_OK) {
        assert_true(json_int(json_find(of, SLICE_LIT("secret")), &expected));
        assert_int_equal(secret, expected);
    }
    buf_release(&asked.text);
    arena_release(&arena);
}

static void every_vector_comes_to_its_verdict(void **state)
{
    (void)state;
    const struct json_value *cases = json_find(kit.root, SLICE_LIT("cases"));
    assert_true(cases->count > 100);
    for (uint32_t i = 0; i < cases->count; i++) {
        check_case(&cases->items[i]);
    }
}

static const char *secret_of(enum preset_kind kind)
{
    return presets[kind].signature.scheme == SIGNATURE_STANDARD
               ? "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
               : "a secret of the test";
}

/* Signed as `once inbox sign` does. */
static void make_signed(
    struct asked *asked, enum preset_kind kind, const char *secret, struct slice body)
{
    struct signature_secret read;
    struct err err = {0};
    struct signature_stamp stamp = {.id = SLICE_LIT("msg_1"), .now_ms = NOW_MS, .body = body};
    asked_begin(asked);
    assert_int_equal(
        signature_secret_read(&presets[kind].signature, slice_str(secret), &read, &err), OK);
    assert_int_equal(
        signature_put(&presets[kind].signature, &read, &stamp, &asked->text, &err), OK);
    signature_secret_release(&read);
    buf_str(&asked->text, "\r\n");
    buf_slice(&asked->text, body);
}

static enum signature_verdict verdict_of(
    struct asked *asked, enum preset_kind kind, const char *secret)
{
    struct signature_secret read;
    struct arena arena;
    size_t which;
    assert_int_equal(
        signature_secret_read(&presets[kind].signature, slice_str(secret), &read, NULL), OK);
    arena_init(&arena, &mem_libc, ARENA_BYTES);
    enum signature_verdict verdict = signature_verify(&presets[kind].signature,
        &(struct signature_keys){&read, 1}, &asked->head, asked->body, NOW_MS, &arena, &which);
    arena_release(&arena);
    return verdict;
}

static void what_is_signed_here_is_verified_here(void **state)
{
    (void)state;
    for (unsigned kind = 0; kind < PRESETS; kind++) {
        struct asked asked;
        make_signed(&asked, kind, secret_of(kind), SLICE_LIT("{\"id\":1}"));
        assert_true(asked_read(&asked));
        assert_int_equal(verdict_of(&asked, kind, secret_of(kind)), SIGNATURE_OK);
        buf_release(&asked.text);
    }
}

/* A sender signs with each of its secrets while it changes them: the last one that fits counts. */
static void as_many_signatures_as_fit_are_compared(void **state)
{
    static const char wrong[] =
        "v1=0000000000000000000000000000000000000000000000000000000000000000,";
    (void)state;
    for (size_t count = SIGNATURE_MANY_MAX - 1; count <= SIGNATURE_MANY_MAX; count++) {
        struct asked signed_once, asked;
        make_signed(&signed_once, PRESET_STRIPE, secret_of(PRESET_STRIPE), SLICE_LIT("{}"));
        struct slice text = buf_view(&signed_once.text);
        const char *at = memmem(text.data, text.len, "v1=", 3);
        assert_non_null(at);
        buf_init(&asked.text, &mem_libc, 1 << 20);
        buf_slice(&asked.text, slice_of(text.data, (size_t)(at - text.data)));
        for (size_t i = 0; i < count; i++) {
            buf_str(&asked.text, wrong);
        }
        buf_slice(&asked.text, slice_of(at, text.len - (size_t)(at - text.data)));
        assert_true(asked_read(&asked));
        assert_int_equal(verdict_of(&asked, PRESET_STRIPE, secret_of(PRESET_STRIPE)),
            count < SIGNATURE_MANY_MAX ? SIGNATURE_OK : SIGNATURE_MALFORMED);
        buf_release(&asked.text);
        buf_release(&signed_once.text);
    }
}

#define PRIVATE                                                                                    \
    "whsk_6Xb/dCcHpPea21PS1N9VY/"                                                                  \
    "NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg=="
#define PUBLIC "whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4="

static void a_private_key_signs_for_its_public_half(void **state)
{
    (void)state;
    struct asked asked;
    make_signed(&asked, PRESET_SVIX, PRIVATE, SLICE_LIT("{}"));
    assert_true(asked_read(&asked));
    assert_int_equal(verdict_of(&asked, PRESET_SVIX, PUBLIC), SIGNATURE_OK);
    buf_release(&asked.text);
}

/* Change one byte of the fields or of the body, take one away, put one in, or swap two. Names of
 * fields have no case: a change of case alone is none. */
static void mutate(struct asked *asked, struct prng *prng, size_t from)
{
    struct buf *text = &asked->text;
    size_t at = from + prng_below(prng, text->len - from);
    char was = text->data[at];
    switch (prng_below(prng, 4)) {
    case 0: text->data[at] = (char)(was ^ (char)(1 << prng_below(prng, 8))); break;
    case 1: text->data[at] = (char)prng_next(prng); break;
    case 2:
        memmove(text->data + at, text->data + at + 1, text->len - at - 1);
        text->len--;
        break;
    default:
        buf_char(text, 'x');
        memmove(text->data + at + 1, text->data + at, text->len - at - 1);
        text->data[at] = (char)prng_next(prng);
    }
}

/* What a reader of HTTP takes for the same: the case of a name, blanks around a value. */
static bool same_request(const struct asked *a, const struct asked *b)
{
    if (a->head.field_count != b->head.field_count || !slice_equal(a->body, b->body)) {
        return false;
    }
    for (uint32_t i = 0; i < a->head.field_count; i++) {
        if (!http_same_name(http_text(&a->head, a->head.fields[i].name),
                http_text(&b->head, b->head.fields[i].name)) ||
            !slice_equal(http_text(&a->head, a->head.fields[i].value),
                http_text(&b->head, b->head.fields[i].value))) {
            return false;
        }
    }
    return true;
}

/* Fields that the scheme does not read may be added; those that it does may not change. Here there
 * are no others, so what was accepted has to be the same. */
static void no_changed_request_is_accepted(void **state)
{
    (void)state;
    static const enum preset_kind kinds[] = {PRESET_STRIPE, PRESET_GITHUB, PRESET_SHOPIFY,
        PRESET_SLACK, PRESET_META, PRESET_STANDARD_WEBHOOKS, PRESET_SVIX, PRESET_HMAC};
    struct slice front = SLICE_LIT("POST /in/x HTTP/1.1\r\nHost: x\r\n");
    struct slice body = SLICE_LIT("{\"id\":\"evt_1\",\"amount\":100}");
    struct prng prng = {.state = 20261116};
    size_t tried = 0, read = 0;
    for (size_t i = 0; i < COUNT(kinds) * 2; i++) {
        enum preset_kind kind = kinds[i / 2];
        bool is_ed25519 = i % 2 == 1 && presets[kind].signature.scheme == SIGNATURE_STANDARD;
        const char *signer = is_ed25519 ? PRIVATE : secret_of(kind);
        struct asked good, bad;
        make_signed(&good, kind, signer, body);
        assert_true(asked_read(&good));
        for (size_t j = 0; j < (is_ed25519 ? 500 : MUTATIONS / 10); j++, tried++) {
            asked_begin(&bad);
            buf_clear(&bad.text);
            buf_slice(&bad.text, buf_view(&good.text));
            mutate(&bad, &prng, front.len);
            if (asked_read(&bad) && !same_request(&good, &bad)) {
                read++;
                if (verdict_of(&bad, kind, signer) == SIGNATURE_OK &&
                    bad.head.field_count == good.head.field_count) {
                    fail_msg(
                        "%s accepts %.*s", presets[kind].name, SLICE_ARGS(buf_view(&bad.text)));
                }
            }
            buf_release(&bad.text);
        }
        buf_release(&good.text);
    }
    assert_true(tried >= MUTATIONS && read > MUTATIONS / 2);
}

static void a_secret_that_cannot_be_used_is_refused(void **state)
{
    (void)state;
    static const struct {
        enum preset_kind kind;
        const char *text;
        const char *says;
    } rows[] = {
        {PRESET_GITHUB, "", "the secret is empty"},
        {PRESET_SVIX, "whsec_short", "not whsec_, whpk_ or whsk_ and base64"},
        {PRESET_SVIX, "whsec_AAAA", "length 3 instead of 24 to 64 bytes"},
        {PRESET_SVIX, "whpk_AAAA", "length 3 instead of 32 to 32 bytes"},
        {PRESET_SVIX, "whsk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4=",
            "length 32 instead of 64 to 64 bytes"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct signature_secret secret;
        struct err err = {0};
        assert_int_equal(signature_secret_read(&presets[rows[i].kind].signature,
                             slice_str(rows[i].text), &secret, &err),
            E_INVALID);
        assert_non_null(strstr(err.text, rows[i].says));
    }
    char long_one[SIGNATURE_SECRET_BYTES_MAX + 1];
    struct signature_secret secret;
    memset(long_one, 'x', sizeof long_one);
    assert_int_equal(signature_secret_read(&presets[PRESET_GITHUB].signature,
                         slice_of(long_one, sizeof long_one), &secret, NULL),
        E_INVALID);
}

/* ---- events -------------------------------------------------------------------------------- */

struct rules_taken {
    struct asked asked;
    struct arena arena;
    struct events events;
    enum status status;
    struct err err;
};

static struct slice pointer_of(const struct json_value *of, const char *map, const char *name)
{
    return member(json_find(of, slice_str(map)), name);
}

static void take(struct rules_taken *taken, const struct json_value *of, const struct mem *mem)
{
    struct event_rule rule = {.preset = preset_of(of),
        .name = SLICE_LIT("shop"),
        .id_field = pointer_of(of, "key", "header"),
        .id_pointer = pointer_of(of, "key", "json"),
        .order_source = pointer_of(of, "order", "source_id"),
        .order_version = pointer_of(of, "order", "version")};
    *taken = (struct rules_taken){.status = OK};
    asked_make(&taken->asked, of);
    arena_init(&taken->arena, mem, ARENA_BYTES);
    taken->status = events_read(
        &rule, &taken->asked.head, taken->asked.body, &taken->arena, &taken->events, &taken->err);
}

static void drop(struct rules_taken *taken)
{
    buf_release(&taken->asked.text);
    arena_release(&taken->arena);
}

static const struct json_value *named(struct slice name)
{
    const struct json_value *events = json_find(kit.root, SLICE_LIT("events"));
    for (uint32_t i = 0; i < events->count; i++) {
        if (slice_equal(member(&events->items[i], "name"), name)) {
            return &events->items[i];
        }
    }
    fail_msg("there is no vector %.*s", SLICE_ARGS(name));
    return NULL;
}

static void check_versions(const struct json_value *of, const struct rules_taken *taken)
{
    const struct json_value *versions = json_find(of, SLICE_LIT("versions"));
    for (uint32_t i = 0; versions != NULL && i < versions->count; i++) {
        const struct source *source = &taken->events.items[i].source;
        const struct json_value *expected = &versions->items[i];
        if (json_is(expected, JSON_NULL)) {
            assert_int_equal(source->id.len, 0);
            continue;
        }
        assert_true(slice_equal(source->id, json_text(&expected->items[0])));
        if (!slice_equal(source->version, json_text(&expected->items[1]))) {
            fail_msg("version %.*s instead of %.*s", SLICE_ARGS(source->version),
                SLICE_ARGS(json_text(&expected->items[1])));
        }
    }
}

static void check_other(
    const struct json_value *of, const struct rules_taken *taken, const char *how)
{
    struct slice name = member(of, how);
    struct rules_taken other;
    if (name.len == 0) {
        return;
    }
    take(&other, named(name), &mem_libc);
    bool is_same =
        digest_equal(&taken->events.items[0].payload.digest, &other.events.items[0].payload.digest);
    if (is_same != (strcmp(how, "same_as") == 0)) {
        fail_msg("%.*s: not %s %.*s", SLICE_ARGS(member(of, "name")), how, SLICE_ARGS(name));
    }
    assert_true(slice_equal(taken->events.items[0].key, other.events.items[0].key));
    drop(&other);
}

static void check_events(const struct json_value *of)
{
    const struct json_value *keys = json_find(of, SLICE_LIT("keys"));
    struct rules_taken taken;
    take(&taken, of, &mem_libc);
    if (keys == NULL) {
        assert_int_equal(taken.status, E_INVALID);
        assert_true(taken.err.text[0] != '\0');
        drop(&taken);
        return;
    }
    if (taken.status != OK) {
        fail_msg("%.*s: %s", SLICE_ARGS(member(of, "name")), taken.err.text);
    }
    assert_int_equal(taken.events.count, keys->count);
    for (uint32_t i = 0; i < keys->count; i++) {
        if (!slice_equal(taken.events.items[i].key, json_text(&keys->items[i]))) {
            fail_msg("%.*s: key %.*s", SLICE_ARGS(member(of, "name")),
                SLICE_ARGS(taken.events.items[i].key));
        }
    }
    check_versions(of, &taken);
    check_other(of, &taken, "same_as");
    check_other(of, &taken, "differs_from");
    drop(&taken);
}

static void every_vector_has_its_keys(void **state)
{
    (void)state;
    const struct json_value *events = json_find(kit.root, SLICE_LIT("events"));
    assert_true(events->count > 40);
    for (uint32_t i = 0; i < events->count; i++) {
        check_events(&events->items[i]);
    }
}

/* The key of an event must not change with the version: at the limit it is still the id. */
static void an_id_is_the_key_if_it_fits(void **state)
{
    (void)state;
    for (size_t len = LIMIT_KEY_BYTES_MAX; len <= LIMIT_KEY_BYTES_MAX + 1; len++) {
        struct event_rule rule = {.preset = &presets[PRESET_STRIPE], .name = SLICE_LIT("shop")};
        struct asked asked;
        struct arena arena;
        struct events events;
        char id[LIMIT_KEY_BYTES_MAX + 1];
        memset(id, 'e', sizeof id);
        asked_begin(&asked);
        buf_printf(&asked.text, "\r\n{\"id\":\"%.*s\"}", (int)len, id);
        assert_true(asked_read(&asked));
        arena_init(&arena, &mem_libc, ARENA_BYTES);
        assert_int_equal(events_read(&rule, &asked.head, asked.body, &arena, &events, NULL), OK);
        bool is_id = slice_equal(events.items[0].key, slice_of(id, len));
        assert_int_equal(is_id, len == LIMIT_KEY_BYTES_MAX);
        assert_true(events.items[0].key.len <= LIMIT_KEY_BYTES_MAX);
        arena_release(&arena);
        buf_release(&asked.text);
    }
}

/* Each with the wrapping of the whole, and nothing of its neighbours. */
static void a_handler_gets_one_message_in_its_wrapping(void **state)
{
    (void)state;
    struct rules_taken taken;
    take(&taken, named(SLICE_LIT("meta: a message and a status")), &mem_libc);
    assert_int_equal(taken.status, OK);
    static const char alone[] =
        "{\"object\":\"whatsapp_business_account\",\"entry\":[{\"id\":\"1\",\"changes\":["
        "{\"field\":\"messages\",\"value\":{\"metadata\":{\"n\":1},\"statuses\":[{\"id\":"
        "\"wamid.B\",\"status\":\"read\",\"timestamp\":\"17\"}]}}]}]}";
    assert_int_equal(taken.events.items[1].bytes.len, sizeof alone - 1);
    assert_memory_equal(taken.events.items[1].bytes.data, alone, sizeof alone - 1);
    drop(&taken);
}

static void more_events_than_one_commit_takes_are_refused(void **state)
{
    (void)state;
    struct event_rule rule = {.preset = &presets[PRESET_CLOUDEVENTS]};
    struct asked asked;
    struct arena arena;
    struct events events;
    struct err err = {0};
    asked_begin(&asked);
    buf_str(&asked.text, "Content-Type: application/cloudevents-batch+json\r\n\r\n[");
    for (int i = 0; i < 1001; i++) {
        buf_printf(&asked.text,
            "%s{\"specversion\":\"1.0\",\"id\":\"%d\",\"source\":\"/s\",\"type\":\"t\"}",
            i == 0 ? "" : ",", i);
    }
    buf_char(&asked.text, ']');
    assert_true(asked_read(&asked));
    arena_init(&arena, &mem_libc, ARENA_BYTES);
    assert_int_equal(events_read(&rule, &asked.head, asked.body, &arena, &events, &err), E_LIMIT);
    assert_non_null(strstr(err.text, "group_requests_max"));
    arena_release(&arena);
    buf_release(&asked.text);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    static const char *const names[] = {"stripe", "github", "meta: a message and a status",
        "cloudevents: binary", "cloudevents: batch", "effect"};
    struct faulty faulty = {0};
    struct mem mem = {faulty_resize, &faulty};
    for (size_t i = 0; i < COUNT(names); i++) {
        bool is_done = false;
        for (long at = 1; !is_done && at < 100; at++) {
            struct rules_taken taken;
            faulty_arm(&faulty, at, FAULTY_FOR_GOOD);
            take(&taken, named(slice_str(names[i])), &mem);
            is_done = taken.status == OK;
            assert_true(is_done || taken.status == E_NOMEM);
            drop(&taken);
            assert_int_equal(faulty.live, 0);
        }
        assert_true(is_done);
    }
}

static void a_preset_keeps_duplicates_longer_than_its_sender_repeats(void **state)
{
    (void)state;
    for (unsigned kind = 0; kind < PRESETS; kind++) {
        const struct preset *preset = &presets[kind];
        assert_true(preset->window_ms > preset->horizon_ms);
        assert_true(preset->window_ms >= 2 * INT64_C(86400000));
        assert_non_null(preset->passed);
    }
}

static void only_a_presets_own_fields_are_passed_on(void **state)
{
    (void)state;
    const struct preset *github = &presets[PRESET_GITHUB];
    assert_true(preset_passes(github, SLICE_LIT("X-GitHub-Event")));
    assert_true(preset_passes(github, SLICE_LIT("x-hub-signature-256")));
    assert_true(preset_passes(github, SLICE_LIT("content-encoding")));
    assert_false(preset_passes(github, SLICE_LIT("Authorization")));
    assert_false(preset_passes(github, SLICE_LIT("X-Git")));
    assert_false(preset_passes(github, SLICE_LIT("Once-Fence")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_vector_comes_to_its_verdict),
        TEST(what_is_signed_here_is_verified_here),
        TEST(as_many_signatures_as_fit_are_compared),
        TEST(a_private_key_signs_for_its_public_half),
        TEST(no_changed_request_is_accepted),
        TEST(a_secret_that_cannot_be_used_is_refused),
        TEST(every_vector_has_its_keys),
        TEST(an_id_is_the_key_if_it_fits),
        TEST(a_handler_gets_one_message_in_its_wrapping),
        TEST(more_events_than_one_commit_takes_are_refused),
        TEST(every_allocation_may_fail),
        TEST(a_preset_keeps_duplicates_longer_than_its_sender_repeats),
        TEST(only_a_presets_own_fields_are_passed_on),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
