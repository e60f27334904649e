/*
 * The detail of an effect: what is written is read back, and damage is never "absent".
 */
#include <string.h>

#include "base/limits.h"
#include "check_c.h"
#include "envelope/effect.h"

enum { MEMORY_MAX = 1 << 20 };

static const char sealed[] = {0, 1, 2, (char)255, 'x'};

static struct effect_detail whole(void)
{
    struct effect_detail detail = {.effect_id = SLICE_LIT("eff-1"),
        .command_id = SLICE_LIT("cmd \"7\""),
        .target = SLICE_LIT("{\"order_id\":\"A1\"}"),
        .ordinal = 3,
        .policy_refs = SLICE_LIT("[\"p1\"]"),
        .extensions = SLICE_LIT("{\"x_a\":1}"),
        .lane = SLICE_LIT("A1"),
        .redacted = slice_of(sealed, sizeof sealed),
        .undo = slice_of(sealed, 2),
        .first_sent_ms = 12345,
        .is_uncertain = true,
        .ack = EFFECT_ACK_REJECTED,
        .provider_ref = SLICE_LIT("ch_1"),
        .ack_ms = 99,
        .retryable = true,
        .ack_attempt = 4,
        .compensation = SLICE_LIT("payment.refund")};
    detail.compensates.bytes[0] = 1;
    detail.compensates.bytes[6] = 0x70;
    detail.compensates.bytes[8] = 0x80;
    detail.ack_token.bytes[31] = 7;
    detail.ack_token_before.bytes[0] = 9;
    return detail;
}

static void a_detail_comes_back_as_it_was(void **state)
{
    struct arena arena;
    struct buf out, again;
    struct effect_detail detail = whole();
    struct effect_detail back;
    (void)state;
    arena_init(&arena, &mem_libc, MEMORY_MAX);
    buf_init(&out, &mem_libc, MEMORY_MAX);
    buf_init(&again, &mem_libc, MEMORY_MAX);
    assert_int_equal(effect_detail_encode(&detail, &out, NULL), OK);
    assert_int_equal(effect_detail_decode(buf_view(&out), &arena, &back, NULL), OK);
    assert_int_equal(effect_detail_encode(&back, &again, NULL), OK);
    assert_true(slice_equal(buf_view(&out), buf_view(&again)));
    assert_true(slice_equal(back.redacted, detail.redacted));
    assert_true(slice_equal(back.undo, detail.undo));
    assert_true(slice_equal(back.command_id, detail.command_id));
    assert_int_equal(back.ack, EFFECT_ACK_REJECTED);
    assert_int_equal(back.ack_attempt, 4);
    assert_true(op_id_equal(&back.compensates, &detail.compensates));
    assert_true(digest_equal(&back.ack_token, &detail.ack_token));
    assert_true(digest_equal(&back.ack_token_before, &detail.ack_token_before));
    buf_release(&out);
    buf_release(&again);
    arena_release(&arena);
}

static void an_empty_detail_is_zero_and_unknown_members_are_passed_over(void **state)
{
    struct arena arena;
    struct effect_detail back = whole();
    (void)state;
    arena_init(&arena, &mem_libc, MEMORY_MAX);
    assert_int_equal(effect_detail_decode(SLICE_EMPTY, &arena, &back, NULL), OK);
    assert_int_equal(back.effect_id.len + back.target.len + back.redacted.len, 0);
    assert_int_equal(back.ack, EFFECT_ACK_NONE);
    assert_int_equal(
        effect_detail_decode(SLICE_LIT("{\"newer\":1,\"ordinal\":2}"), &arena, &back, NULL), OK);
    assert_int_equal(back.ordinal, 2);
    arena_release(&arena);
}

static void damage_is_told_and_changes_nothing(void **state)
{
    static const char *const damaged[] = {"{", "[]", "7", "{\"ordinal\":\"3\"}",
        "{\"effect_id\":7}", "{\"redacted\":\"?\"}", "{\"ack\":\"maybe\"}",
        "{\"compensates\":\"op_x\"}", "{\"ack_token\":\"ff\"}", "{\"policy_refs\":{}}",
        "{\"extensions\":[]}", "{\"ack_attempt\":-1}", "{\"ack_attempt\":4294967296}"};
    struct arena arena;
    struct err err;
    (void)state;
    arena_init(&arena, &mem_libc, MEMORY_MAX);
    for (size_t i = 0; i < sizeof damaged / sizeof damaged[0]; i++) {
        struct effect_detail back = {.ordinal = 77};
        assert_int_equal(
            effect_detail_decode(slice_str(damaged[i]), &arena, &back, &err), E_CORRUPT);
        assert_int_equal(back.ordinal, 77);
    }
    arena_release(&arena);
}

static void what_does_not_fit_is_refused_with_the_limit(void **state)
{
    char target[LIMIT_DETAIL_BYTES_MAX];
    struct effect_detail detail = {.target = slice_of(target, sizeof target)};
    struct err err;
    struct buf out;
    (void)state;
    memset(target, '1', sizeof target);
    buf_init(&out, &mem_libc, MEMORY_MAX);
    assert_int_equal(effect_detail_encode(&detail, &out, &err), E_LIMIT);
    assert_non_null(strstr(err.text, "detail_bytes_max (4096)"));
    buf_release(&out);
}

static void an_effect_is_undone_under_one_key(void **state)
{
    struct arena arena;
    struct record record = {.kind = RECORD_EFFECT, .key = {.tenant = SLICE_LIT("acme")}};
    struct record_key key, again;
    char buffer[KIND_ID_TEXT_BYTES];
    struct effect_detail named = {.effect_id = SLICE_LIT("mine")};
    struct effect_detail unnamed = {.ordinal = 0};
    (void)state;
    record.operation_id.bytes[3] = 9;
    arena_init(&arena, &mem_libc, MEMORY_MAX);
    assert_int_equal(effect_undo_key(&record, SLICE_LIT("refund"), &arena, &key, NULL), OK);
    assert_int_equal(effect_undo_key(&record, SLICE_LIT("refund"), &arena, &again, NULL), OK);
    assert_true(digest_equal(&key.hash, &again.hash));
    assert_true(slice_starts(key.key, SLICE_LIT("compensates:eff_")));
    record.operation_id.bytes[3] = 8;
    assert_int_equal(effect_undo_key(&record, SLICE_LIT("refund"), &arena, &again, NULL), OK);
    assert_false(digest_equal(&key.hash, &again.hash));
    assert_true(slice_is(effect_name(&record, &named, buffer), "mine"));
    assert_true(slice_starts(effect_name(&record, &unnamed, buffer), SLICE_LIT("eff_")));
    arena_release(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_detail_comes_back_as_it_was),
        cmocka_unit_test(an_empty_detail_is_zero_and_unknown_members_are_passed_over),
        cmocka_unit_test(damage_is_told_and_changes_nothing),
        cmocka_unit_test(what_does_not_fit_is_refused_with_the_limit),
        cmocka_unit_test(an_effect_is_undone_under_one_key),
    };
    return cmocka_run_group_tests_name("effect_detail", tests, NULL, NULL);
}
