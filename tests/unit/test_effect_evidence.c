/*
 * The evidence of an effect (CCO-8): every entry names the effect and its command, and what the
 * provider calls it once that is known. Entries of the first releases, which had only the last one
 * and called it effect_id, still say the same.
 */
#include "base/limits.h"
#include "core/effect_names.h"
#include "engine_kit.h"
#include "entry_text.h"
#include "envelope/effect.h"
#include "evidence/entry_view.h"

enum { ENTRIES = 8 };

static struct {
    char text[ENTRIES][4096];
    size_t count;
} all;

static bool keep(void *context, const struct entry *entry)
{
    (void)context;
    if (entry->kind == ENTRY_CHECKPOINT) {
        return true; /* the first one may come before or after the last call */
    }
    assert_true(all.count < ENTRIES);
    (void)entry_text(entry, all.text[all.count++], sizeof all.text[0]);
    return true;
}

static enum status read_all(struct store *store, void *context, struct err *err)
{
    struct entry_range range = {0};
    all.count = 0;
    return store->ops->entries(store, &range, keep, context, err);
}

static struct slice detail_of(const char *effect_id, const char *command_id)
{
    struct effect_detail detail = {.effect_id = slice_str(effect_id),
        .command_id = slice_str(command_id),
        .target = SLICE_LIT("{\"order_id\":\"4711\"}")};
    static char bytes[LIMIT_DETAIL_BYTES_MAX];
    struct buf out;
    struct err err = {0};
    buf_init(&out, &mem_libc, sizeof bytes);
    assert_int_equal(effect_detail_encode(&detail, &out, &err), OK);
    memcpy(bytes, out.data, out.len);
    size_t len = out.len;
    buf_release(&out);
    return slice_of(bytes, len);
}

/* The life of an effect: made, sent, acknowledged. */
static struct record live(const char *effect_id, const char *command_id)
{
    struct engine_call made = kit_begin("acme", "payment.capture", "k");
    made.request.kind = REQUEST_ENQUEUE;
    made.request.record_kind = RECORD_EFFECT;
    made.request.detail = detail_of(effect_id, command_id);
    assert_int_equal(record_key_seal_as(&made.request.key, RECORD_EFFECT, NULL), OK);
    assert_int_equal(kit_do(&made), DECISION_ENQUEUED);
    struct engine_call claim = {.arena = &kit.arena};
    claim.request.kind = REQUEST_CLAIM;
    claim.request.key.tenant = SLICE_LIT("acme");
    claim.request.operation_id = made.decision.next.operation_id;
    claim.request.policy = policy_default;
    assert_int_equal(kit_do(&claim), DECISION_CLAIMED);
    struct engine_call sealed = kit_seal(&claim, SLICE_LIT("{}"));
    sealed.request.key.tenant = SLICE_LIT("acme");
    sealed.request.effect_id = SLICE_LIT("ch_1");
    assert_int_equal(kit_do(&sealed), DECISION_SEALED);
    kit_visit(read_all, NULL);
    assert_int_equal(all.count, 3);
    return sealed.decision.next;
}

static void assert_says(const char *text, const char *wanted, bool is_there)
{
    if ((strstr(text, wanted) != NULL) != is_there) {
        fail_msg("'%s' is %sin %s", wanted, is_there ? "not " : "", text);
    }
}

static void each_entry_names_the_effect_its_command_and_the_provider_s_reference(void **state)
{
    (void)state;
    struct record record = live("", "order \"4711\"");
    char effect_id[80], id[KIND_ID_TEXT_BYTES];
    (void)snprintf(effect_id, sizeof effect_id, ",\"effect_id\":\"%s\"",
        kind_id_put(id, RECORD_EFFECT, &record.operation_id));
    for (size_t i = 0; i < 3; i++) {
        assert_says(all.text[i], ",\"command_id\":\"order \\\"4711\\\"\",", true);
        assert_says(all.text[i], effect_id, true);
        assert_says(all.text[i], "\"provider_ref\":\"ch_1\"", i == 2);
        assert_says(all.text[i], "\"effect_id\":\"ch_1\"", false);
    }
    struct verify_result result;
    kit_verify(&result);
    assert_int_equal(result.redecided, 3);
}

static void the_caller_s_name_of_an_effect_is_its_effect_id(void **state)
{
    (void)state;
    (void)live("mine", "");
    for (size_t i = 0; i < 3; i++) {
        assert_says(all.text[i], ",\"effect_id\":\"mine\",", true);
        assert_says(all.text[i], "command_id", false);
    }
    struct verify_result result;
    kit_verify(&result);
}

/* ---- reading them -------------------------------------------------------------------------- */

static bool edit(char text[4096], const char *part, const char *instead)
{
    char *place = strstr(text, part);
    char rest[4096];
    if (place == NULL) {
        return false;
    }
    (void)snprintf(rest, sizeof rest, "%s", place + strlen(part));
    (void)snprintf(place, 4096 - (size_t)(place - text), "%s%s", instead, rest);
    return true;
}

struct told {
    bool ref;
    bool names;
};

/* What the last entry says of its record, once a part of it was changed. */
static struct told read_edited(const struct record *record, const char *const edits[][2])
{
    char text[4096];
    struct buf scratch;
    struct entry_view view;
    struct err err = {0};
    (void)snprintf(text, sizeof text, "%s", all.text[2]);
    for (size_t i = 0; edits[i][0] != NULL; i++) {
        assert_true(edit(text, edits[i][0], edits[i][1]));
    }
    buf_init(&scratch, &mem_libc, 1 << 16);
    assert_true(edit(text, ENTRY_VERSION_2, "}")); /* version 1, which has the status itself */
    assert_true(
        edit(text, "\"lifecycle_state\":\"acknowledged\"", "\"lifecycle_state\":\"executed\""));
    struct entry entry = {.bytes = slice_str(text)};
    assert_int_equal(entry_view_read(&entry, &kit.arena, &scratch, &view, &err), OK);
    assert_true(slice_is(view.request.effect_id, "ch_1"));
    struct told told = {.ref = entry_view_has_ref(&view, record->effect_id),
        .names = entry_view_has_names(&view, record, &scratch)};
    buf_release(&scratch);
    return told;
}

static void entries_of_the_first_releases_say_the_same(void **state)
{
    (void)state;
    struct record record = live("", "order-1");
    char own[80], id[KIND_ID_TEXT_BYTES];
    (void)snprintf(own, sizeof own, "\"effect_id\":\"%s\"",
        kind_id_put(id, RECORD_EFFECT, &record.operation_id));
    const char *const old[][2] = {{"\"command_id\":\"order-1\",", ""},
        {own, "\"effect_id\":\"ch_1\""}, {"\"provider_ref\":\"ch_1\",\"request\"", "\"request\""},
        {"\"provider_ref\":\"ch_1\",", ""}, {"\"fence\":", "\"effect_id\":\"ch_1\",\"fence\":"},
        {NULL, NULL}};
    struct told told = read_edited(&record, old);
    assert_true(told.ref && told.names);
}

static void an_entry_with_a_different_name_is_found(void **state)
{
    (void)state;
    struct record record = live("", "order-1");
    const char *const same[][2] = {{NULL, NULL}};
    const char *const command[][2] = {{"order-1", "order-2"}, {NULL, NULL}};
    const char *const no_command[][2] = {{"\"command_id\":\"order-1\",", ""}, {NULL, NULL}};
    const char *const effect[][2] = {
        {"\"effect_id\":\"eff_", "\"effect_id\":\"eff-"}, {NULL, NULL}};
    const char *const ref[][2] = {
        {"\"provider_ref\":\"ch_1\",\"scope\"", "\"provider_ref\":\"ch_2\",\"scope\""},
        {NULL, NULL}};
    struct told told = read_edited(&record, same);
    assert_true(told.ref && told.names);
    assert_false(read_edited(&record, command).names);
    assert_false(read_edited(&record, no_command).names);
    assert_false(read_edited(&record, effect).names);
    assert_false(read_edited(&record, ref).ref);
}

static void names_are_found_only_where_they_belong(void **state)
{
    (void)state;
    static const struct {
        const char *detail, *effect_id, *command_id;
    } cases[] = {
        {"", "", ""},
        {"{", "", ""},
        {"{}", "", ""},
        {"{\"command_id\":\"c\"}", "", "\"c\""},
        {"{\"effect_id\":\"e\\\"\",\"command_id\":\"c\",\"x\":1}", "\"e\\\"\"", "\"c\""},
        {"{\"effect_id\":\"e", "", ""},
        {"{\"effect_id\":\"e\\\"", "", ""},
        {"{\"effect_id\":", "", ""},
        {"{\"effect_id\":1,\"command_id\":\"c\"}", "", ""},
        {"{\"target\":{\"command_id\":\"c\"}}", "", ""},
        {"[\"command_id\":\"c\"]", "", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        /* Exactly as long as it is, so that the sanitizer sees a read past it. */
        size_t len = strlen(cases[i].detail);
        char *copy = malloc(len + (len == 0));
        assert_non_null(copy);
        memcpy(copy, cases[i].detail, len);
        struct effect_names names = effect_names_of(slice_of(copy, len));
        assert_true(slice_is(names.effect_id, cases[i].effect_id));
        assert_true(slice_is(names.command_id, cases[i].command_id));
        free(copy);
    }
}

#define KIT(name) cmocka_unit_test_setup_teardown(name, kit_set_up, kit_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        KIT(each_entry_names_the_effect_its_command_and_the_provider_s_reference),
        KIT(the_caller_s_name_of_an_effect_is_its_effect_id),
        KIT(entries_of_the_first_releases_say_the_same),
        KIT(an_entry_with_a_different_name_is_found),
        TEST(names_are_found_only_where_they_belong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
