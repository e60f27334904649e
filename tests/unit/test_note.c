/*
 * Notes: entries that no decision stands behind. They are chained and durable like all others,
 * verify and redecide take them, and nothing of another tenant is in them.
 */
#include "base/text.h"
#include "canon/jcs.h"
#include "canon/json.h"
#include "engine_kit.h"
#include "entry_text.h"

struct last {
    struct entry entry;
    char text[4096];
};

static bool keep_last(void *context, const struct entry *entry)
{
    struct last *last = context;
    if (entry->kind == ENTRY_EVIDENCE) {
        last->entry = *entry;
        (void)entry_text(entry, last->text, sizeof last->text);
    }
    return true;
}

static enum status read_last(struct store *store, void *context, struct err *err)
{
    struct entry_range all = {0};
    return store->ops->entries(store, &all, keep_last, context, err);
}

static struct last last;

/* Leave the note; last is then the newest entry. */
static void leave(const struct note *note)
{
    struct engine_call call = {.arena = &kit.arena, .note = note};
    (void)kit_do(&call);
    kit_visit(read_last, &last);
}

static void assert_in(const char *text)
{
    if (strstr(last.text, text) == NULL) {
        fail_msg("'%s' is not in %s", text, last.text);
    }
}

static void assert_not_in(const char *text)
{
    if (strstr(last.text, text) != NULL) {
        fail_msg("'%s' is in %s", text, last.text);
    }
}

static void a_read_leaves_an_entry_of_who_read_what(void **state)
{
    (void)state;
    struct engine_call begun = kit_begin("acme", "charge", "k");
    char id[OP_ID_TEXT_BYTES];
    (void)kit_do(&begun);
    struct note note = {.kind = NOTE_ACCESS_READ,
        .tenant = SLICE_LIT("acme"),
        .operation_id = begun.decision.next.operation_id,
        .actor = SLICE_LIT("auditor \"one\""),
        .trace = SLICE_LIT("{\"request_id\":\"r-1\"}"),
        .reason = SLICE_LIT("GET /v1/evidence"),
        .count = 3};
    leave(&note);
    assert_in("{\"actor\":\"auditor \\\"one\\\"\",\"chain_id\":\"");
    assert_in("\",\"count\":3,\"entry_id\":\"ent_");
    assert_in(op_id_put(id, &note.operation_id));
    assert_in("\"outcome\":{\"reason\":\"GET /v1/evidence\",\"status\":\"noted\"},\"seq\":2,"
              "\"tenant_id\":\"acme\",\"trace\":{\"request_id\":\"r-1\"},\"type\":\"access.read\","
              "\"v\":2}");
    assert_not_in("decided");
    assert_true(op_id_equal(&last.entry.operation_id, &note.operation_id));
}

static void coalesced_duplicates_are_one_entry_with_their_count(void **state)
{
    (void)state;
    struct engine_call begun = kit_begin("acme", "charge", "k");
    (void)kit_do(&begun);
    struct note note = {.kind = NOTE_DUPLICATES,
        .tenant = SLICE_LIT("acme"),
        .key = begun.request.key,
        .count = 4711};
    leave(&note);
    assert_in("\"count\":4711,\"dedupe\":{\"decision\":\"duplicate_replayed\",\"executed\":false,"
              "\"original_operation_id\":\"op_");
    assert_in("\"idempotency_key\":\"k\",\"lifecycle_state\":\"in_progress\"");
    assert_in("\"scope\":\"charge\",\"seq\":2,\"tenant_id\":\"acme\",\"type\":"
              "\"observation.emitted\",\"v\":2}");
    assert_true(op_id_equal(&last.entry.operation_id, &begun.decision.next.operation_id));
    struct engine_call again = kit_begin("acme", "charge", "k");
    assert_int_equal(kit_do(&again), DECISION_IN_PROGRESS);
    assert_int_equal(again.decision.next.duplicates, 1); /* a note changes no record */
}

static void notes_are_verified_and_survive_a_restart(void **state)
{
    (void)state;
    struct engine_call begun = kit_begin("acme", "charge", "k");
    (void)kit_do(&begun);
    struct note read = {.kind = NOTE_ACCESS_READ, .tenant = SLICE_LIT("acme")};
    struct note config = {.kind = NOTE_CONFIG_CHANGED, .reason = SLICE_LIT("tokens")};
    struct note flood = {.kind = NOTE_DUPLICATES,
        .tenant = SLICE_LIT("acme"),
        .key = begun.request.key,
        .count = UINT64_MAX};
    leave(&read);
    leave(&config);
    assert_in("\"tenant_id\":\"\",\"type\":\"config.changed\",\"v\":2}");
    leave(&flood);
    assert_in("\"count\":\"18446744073709551615\"");
    struct verify_result result;
    kit_verify(&result);
    assert_int_equal(result.entries, 4);
    assert_int_equal(result.redecided, 1);
    leave(&read);
    assert_int_equal(last.entry.seq, 5);
}

/* P9: an id that somebody found elsewhere is not repeated in the finder's evidence. */
static void nothing_of_another_tenant_is_in_a_note(void **state)
{
    (void)state;
    struct engine_call begun = kit_begin("acme", "charge", "secret-key");
    static const struct op_id none = {{0}};
    char id[OP_ID_TEXT_BYTES];
    (void)kit_do(&begun);
    struct note note = {.kind = NOTE_ACCESS_READ,
        .tenant = SLICE_LIT("other"),
        .operation_id = begun.decision.next.operation_id};
    leave(&note);
    assert_in("\"tenant_id\":\"other\"");
    assert_not_in("acme");
    assert_not_in("secret-key");
    assert_not_in(op_id_put(id, &note.operation_id));
    assert_true(op_id_equal(&last.entry.operation_id, &none));

    struct err err = {0};
    note = (struct note){.kind = NOTE_DUPLICATES,
        .tenant = SLICE_LIT("other"),
        .key = begun.request.key,
        .count = 1};
    struct engine_call call = {.arena = &kit.arena, .note = &note, .done = kit_gate_done};
    assert_int_equal(engine_submit(kit.engine, &call, &err), E_INVALID);
    assert_string_equal(err.text, "the note is about a different tenant's key");
}

static void a_note_that_cannot_be_told_is_refused(void **state)
{
    (void)state;
    struct engine_call begun = kit_begin("acme", "charge", "k");
    const struct note bad[] = {
        {.kind = NOTE_ACKNOWLEDGED},
        {.kind = NOTE_ACCESS_READ, .tenant = SLICE_LIT("acme"), .actor = SLICE_LIT("\xff")},
        {.kind = NOTE_DUPLICATES, .tenant = SLICE_LIT("acme"), .key = begun.request.key},
        {.kind = NOTE_DUPLICATES,
            .tenant = SLICE_LIT("acme"),
            .key = {.tenant = SLICE_LIT("acme"), .key = SLICE_LIT("k")},
            .count = 1},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct engine_call call = {.arena = &kit.arena, .note = &bad[i], .done = kit_gate_done};
        struct err err = {0};
        assert_int_equal(engine_submit(kit.engine, &call, &err), E_INVALID);
    }
    assert_int_equal(kit.commits, 0);
}

/* Between "entry_id" and "idempotency_key", and between "outcome" and "scope". */
static void an_entry_is_shown_with_its_hashes_in_canonical_order(void **state)
{
    (void)state;
    struct note note = {.kind = NOTE_ACCESS_READ,
        .tenant = SLICE_LIT("acme"),
        .actor = SLICE_LIT("a \"}{\\,"),
        .trace = SLICE_LIT("{\"zz\":[1,{\"hash\":2}]}")};
    struct digest previous = {{0xab, 0xcd}};
    struct buf shown, again;
    struct arena arena;
    const struct json_value *value;
    struct jcs_report report = {0};
    leave(&note);
    last.entry.bytes = slice_str(last.text);
    buf_init(&shown, &mem_libc, 1 << 20);
    buf_init(&again, &mem_libc, 1 << 20);
    arena_init(&arena, &mem_libc, 1 << 20);
    assert_int_equal(entry_show(&last.entry, &previous, &shown), OK);
    assert_int_equal(json_read(buf_view(&shown), &arena, &value, NULL), OK);
    assert_int_equal(jcs_write(value, &again, &report, NULL), OK);
    assert_true(slice_equal(buf_view(&shown), buf_view(&again)));
    char hex[65];
    assert_true(slice_is(json_text(json_find(value, SLICE_LIT("hash"))),
        text_put_hex(hex, last.entry.hash.bytes, sizeof last.entry.hash.bytes)));
    assert_true(slice_is(json_text(json_find(value, SLICE_LIT("prev_hash"))),
        text_put_hex(hex, previous.bytes, sizeof previous.bytes)));
    assert_int_equal(shown.len, strlen(last.text) + strlen(",\"hash\":,\"prev_hash\":") + 2 * 66);

    static const char *const broken[] = {"", "{", "[]", "{\"a", "{\"a\":1", "{\"a\":\"}", "null"};
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        last.entry.bytes = slice_str(broken[i]);
        assert_int_equal(entry_show(&last.entry, &previous, &shown), E_CORRUPT);
    }
    arena_release(&arena);
    buf_release(&again);
    buf_release(&shown);
}

int main(void)
{
#define NOTE_TEST(name) cmocka_unit_test_setup_teardown(name, kit_set_up, kit_tear_down)
    const struct CMUnitTest tests[] = {
        NOTE_TEST(a_read_leaves_an_entry_of_who_read_what),
        NOTE_TEST(coalesced_duplicates_are_one_entry_with_their_count),
        NOTE_TEST(notes_are_verified_and_survive_a_restart),
        NOTE_TEST(nothing_of_another_tenant_is_in_a_note),
        NOTE_TEST(a_note_that_cannot_be_told_is_refused),
        NOTE_TEST(an_entry_is_shown_with_its_hashes_in_canonical_order),
    };
    return cmocka_run_group_tests_name("note", tests, NULL, NULL);
}
