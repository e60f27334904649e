/*
 * The two forms of an entry, and what chains them: values that were computed outside of Once, and
 * every place that must count.
 */
#include <stdio.h>

#include "check_c.h"
#include "entry_text.h"
#include "evidence/entry_view.h"

/* A chain of the page docs/formats/evidence.md. */
static const unsigned char chain_id[16] = {
    0x01, 0x92, 0, 0, 0, 0, 0x70, 0, 0x80, 0, 0, 0, 0, 0, 0, 1};

#define FINGERPRINT "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
#define OPERATION   "op_019a8990-6013-7000-8001-8d2f1b0c7a55"
#define STORED                                                                                     \
    "{\"decided\":{\"decision\":\"first_seen\",\"fence_next\":1,\"fingerprint\":\"" FINGERPRINT    \
    "\",\"lease_ms\":30000,\"now_ms\":1794770607123,\"request\":\"begin\",\"rule\":\"B1\","        \
    "\"window_ms\":86400000},\"idempotency_key\":\"order-1\",\"operation_id\":\"" OPERATION        \
    "\",\"scope\":\"charge\",\"tenant_id\":\"acme\",\"v\":2}"
#define FULL                                                                                       \
    "{\"chain_id\":\"01920000-0000-7000-8000-000000000001\",\"decided\":{\"attempt\":1,"           \
    "\"decision\":\"first_seen\",\"fence\":1,\"fence_next\":1,\"fingerprint\":\"" FINGERPRINT      \
    "\",\"fingerprint_version\":1,\"lease_ms\":30000,\"now_ms\":1794770607123,"                    \
    "\"on_unknown\":\"hold\",\"request\":\"begin\",\"rule\":\"B1\",\"version\":0,"                 \
    "\"window_ms\":86400000},\"dedupe\":{\"decision\":\"first_seen\",\"executed\":true,"           \
    "\"original_operation_id\":\"" OPERATION "\"},\"entry_id\":\"ent_01920000_1\","                \
    "\"idempotency_key\":\"order-1\",\"lifecycle_state\":\"in_progress\","                         \
    "\"occurred_at\":\"2026-11-15T19:23:27.123Z\",\"operation_id\":\"" OPERATION                   \
    "\",\"outcome\":{\"status\":\"in_progress\"},\"scope\":\"charge\",\"seq\":1,"                  \
    "\"tenant_id\":\"acme\",\"type\":\"execution.started\",\"v\":2}"
/* hashlib.sha256(bytes(32) + chain_id + (1).to_bytes(8, "big") + sha256(STORED)) */
#define LINK "f3885690335309afd1313fe529c76fc8f21835700b5fb45bf70bbca3349774e6"

static const char stored_text[] = STORED;
static const char full_text[] = FULL;

static struct entry the_entry(const char *bytes)
{
    struct entry entry = {.kind = ENTRY_EVIDENCE, .seq = 1, .bytes = slice_str(bytes)};
    memcpy(entry.chain_id, chain_id, sizeof chain_id);
    return entry;
}

static void the_example_of_the_page_has_both_forms_and_its_hash(void **state)
{
    (void)state;
    struct entry entry = the_entry(STORED);
    struct digest hash;
    char text[2048], hex[DIGEST_HEX_BYTES];
    assert_string_equal(entry_text(&entry, text, sizeof text), FULL);
    struct entry full = the_entry(FULL);
    struct buf stored;
    buf_init(&stored, &mem_libc, 4096);
    assert_int_equal(entry_contract(&full, &stored), OK);
    assert_true(slice_is(buf_view(&stored), STORED));
    buf_release(&stored);
    entry_link(&(struct digest){{0}}, &entry, &hash);
    assert_string_equal(digest_put_hex(hex, &hash), LINK);
}

static void an_entry_of_version_2_cannot_move(void **state)
{
    (void)state;
    struct digest zero = {{0}}, first, other;
    struct entry entry = the_entry(STORED);
    entry_link(&zero, &entry, &first);
    entry.seq = 2;
    entry_link(&zero, &entry, &other);
    assert_false(digest_equal(&first, &other)); /* to a different number */
    entry = the_entry(STORED);
    entry.chain_id[15] ^= 1;
    entry_link(&zero, &entry, &other);
    assert_false(digest_equal(&first, &other)); /* to a different chain */
    entry = the_entry(STORED);
    entry_link(&first, &entry, &other);
    assert_false(digest_equal(&first, &other)); /* after a different entry */
    char changed[] = STORED;
    for (size_t i = 0; i + 8 < sizeof changed; i++) {
        changed[i] ^= 1;
        entry = the_entry(changed);
        entry_link(&zero, &entry, &other);
        assert_false(digest_equal(&first, &other)); /* with a different byte */
        changed[i] ^= 1;
    }
}

static enum status read_bytes(const char *bytes, const char **ret_text)
{
    static struct err err;
    struct arena arena;
    struct buf scratch;
    struct entry_view view;
    struct entry entry = the_entry(bytes);
    err = (struct err){0};
    arena_init(&arena, &mem_libc, 1 << 20);
    buf_init(&scratch, &mem_libc, 1 << 20);
    enum status status = entry_view_read(&entry, &arena, &scratch, &view, &err);
    arena_release(&arena);
    buf_release(&scratch);
    *ret_text = err.text;
    return status;
}

/* One decision about a record with an id of this prefix. */
static void put_decision(char *bytes, size_t size, const char *prefix, const char *decided)
{
    (void)snprintf(bytes, size,
        "{\"decided\":{%s,\"now_ms\":1794770607123,\"request\":%s\"rule\":\"X\"%s},"
        "\"idempotency_key\":\"k\",\"operation_id\":\"%s019a8990-6013-7000-8001-8d2f1b0c7a55\","
        "\"scope\":\"s\",\"tenant_id\":\"acme\",\"v\":2}",
        decided, strstr(decided, "claimed") != NULL ? "\"claim\"," : "\"wake\",",
        strstr(decided, "claimed") != NULL ? "" : ",\"status\":\"waiting\"", prefix);
}

/* Readers get the words of the kind, and the stored bytes have the status. */
static void each_kind_has_its_own_words_for_its_states(void **state)
{
    (void)state;
    static const struct {
        const char *prefix, *decided, *status, *word;
    } rows[] = {
        {"op_", "\"decision\":\"claimed\"", "in_progress", "in_progress"},
        {"cmd_", "\"decision\":\"claimed\"", "in_progress", "started"},
        {"eff_", "\"decision\":\"claimed\"", "in_progress", "dispatched"},
        {"dlv_", "\"decision\":\"claimed\"", "in_progress", "delivering"},
        {"cmd_", "\"attempt\":0,\"decision\":\"too_late\"", "waiting", "awaiting_confirmation"},
        {"cmd_", "\"decision\":\"done\",\"delay_ms\":1000", "waiting", "awaiting_effects"},
        {"cmd_", "\"decision\":\"done\"", "waiting", "blocked"},
        {"eff_", "\"decision\":\"done\"", "waiting", "pending"},
        {"dlv_", "\"decision\":\"done\"", "waiting", "waiting"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char bytes[1024], text[2048], shown[128], plain[128];
        put_decision(bytes, sizeof bytes, rows[i].prefix, rows[i].decided);
        struct entry entry = the_entry(bytes);
        (void)entry_text(&entry, text, sizeof text);
        (void)snprintf(shown, sizeof shown, "\"lifecycle_state\":\"%s\"", rows[i].word);
        (void)snprintf(plain, sizeof plain, "\"outcome\":{\"status\":\"%s\"}", rows[i].status);
        if (strstr(text, shown) == NULL || strstr(text, plain) == NULL) {
            fail_msg("%s and %s are not in %s", shown, plain, text);
        }
        struct buf stored;
        struct entry full = the_entry(text);
        buf_init(&stored, &mem_libc, 4096);
        assert_int_equal(entry_contract(&full, &stored), OK);
        assert_true(slice_is(buf_view(&stored), bytes));
        char *at = strstr(text, shown) + strlen("\"lifecycle_state\":\"");
        *at = 'x'; /* a word that is neither */
        buf_clear(&stored);
        assert_int_equal(entry_contract(&full, &stored), E_CORRUPT);
        buf_release(&stored);
    }
}

/* What an earlier release showed is still what is hashed. */
static void a_document_with_the_status_as_its_state_is_the_same_entry(void **state)
{
    (void)state;
    char bytes[1024], text[2048], before[2048];
    struct buf stored;
    put_decision(bytes, sizeof bytes, "cmd_", "\"decision\":\"claimed\"");
    struct entry entry = the_entry(bytes);
    (void)entry_text(&entry, text, sizeof text);
    const char *at = strstr(text, "\"started\"");
    assert_non_null(at);
    (void)snprintf(before, sizeof before, "%.*s\"in_progress\"%s", (int)(at - text), text,
        at + strlen("\"started\""));
    struct entry full = the_entry(before);
    buf_init(&stored, &mem_libc, 4096);
    assert_int_equal(entry_contract(&full, &stored), OK);
    assert_true(slice_is(buf_view(&stored), bytes));
    buf_release(&stored);
}

/* What follows from the rest must not be stored, or an entry would have two spellings. */
static void an_entry_has_one_spelling(void **state)
{
    (void)state;
    static const char *const changes[][2] = {
        {"{\"decision\":", "{\"attempt\":1,\"decision\":"},
        {"\"fence_next\":1", "\"fence\":1,\"fence_next\":1"},
        {"\"request\":", "\"on_unknown\":\"hold\",\"request\":"},
        {"\"operation_id\":", "\"lifecycle_state\":\"in_progress\",\"operation_id\":"},
        {"\"scope\":", "\"outcome\":{},\"scope\":"},
        {"\"scope\":", "\"outcome\":{\"status\":\"in_progress\"},\"scope\":"},
        {"\"tenant_id\":", "\"seq\":1,\"tenant_id\":"},
        {"\"v\":2", "\"type\":\"execution.started\",\"v\":2"},
        {"\"v\":2", "\"v\":3"},
        {",\"v\":2", ""},
        {"\"decision\":\"first_seen\"", "\"decision\":\"no such\""},
        {"\"now_ms\":1794770607123", "\"now_ms\":\"x\""},
        {"{\"decided\":{", "{\"decided\":7,\"x\":{"},
    };
    const char *text;
    assert_int_equal(read_bytes(STORED, &text), OK);
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        char bytes[2048];
        const char *at = strstr(stored_text, changes[i][0]);
        assert_non_null(at);
        (void)snprintf(bytes, sizeof bytes, "%.*s%s%s", (int)(at - stored_text), stored_text,
            changes[i][1], at + strlen(changes[i][0]));
        if (read_bytes(bytes, &text) != E_CORRUPT) {
            fail_msg("accepted: %s", bytes);
        }
        assert_true(text[0] != '\0');
    }
}

static void a_document_with_a_member_missing_is_not_contracted(void **state)
{
    (void)state;
    static const char *const missing[] = {"\"attempt\":1,",
        ("\"occurred_at\":\"2026-11-15T19:23:27"
         ".123Z\","),
        "\"outcome\":{\"status\":\"in_progress\"},", "\"seq\":1,", "\"executed\":true,"};
    struct buf stored;
    buf_init(&stored, &mem_libc, 4096);
    for (size_t i = 0; i < sizeof missing / sizeof *missing; i++) {
        char bytes[2048];
        const char *at = strstr(full_text, missing[i]);
        assert_non_null(at);
        (void)snprintf(bytes, sizeof bytes, "%.*s%s", (int)(at - full_text), full_text,
            at + strlen(missing[i]));
        struct entry entry = the_entry(bytes);
        assert_int_equal(entry_contract(&entry, &stored), E_CORRUPT);
    }
    buf_release(&stored);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_example_of_the_page_has_both_forms_and_its_hash),
        cmocka_unit_test(an_entry_of_version_2_cannot_move),
        cmocka_unit_test(each_kind_has_its_own_words_for_its_states),
        cmocka_unit_test(a_document_with_the_status_as_its_state_is_the_same_entry),
        cmocka_unit_test(an_entry_has_one_spelling),
        cmocka_unit_test(a_document_with_a_member_missing_is_not_contracted),
    };
    return cmocka_run_group_tests_name("entry_form", tests, NULL, NULL);
}
