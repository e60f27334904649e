/*
 * The base modules: bounded buffers and arenas, the text forms people type, the checksum.
 */
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/base64.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/crc32c.h"
#include "base/err.h"
#include "base/macros.h"
#include "base/percent.h"
#include "base/text.h"
#include "base/uuid.h"
#include "check_c.h"

static void a_buffer_never_grows_past_its_maximum_and_remembers(void **state)
{
    (void)state;
    struct buf buf;
    buf_init(&buf, &mem_libc, 10);
    buf_str(&buf, "0123456789");
    assert_int_equal(buf_status(&buf), OK);
    buf_char(&buf, 'x');
    assert_int_equal(buf_status(&buf), E_LIMIT);
    assert_int_equal(buf.len, 10);
    buf_clear(&buf);
    buf_i64(&buf, INT64_MIN);
    assert_int_equal(buf_status(&buf), E_LIMIT);
    buf_release(&buf);
}

static void numbers_are_written_in_full(void **state)
{
    (void)state;
    struct buf buf;
    buf_init(&buf, &mem_libc, 1000);
    buf_i64(&buf, INT64_MIN);
    buf_char(&buf, ' ');
    buf_u64(&buf, UINT64_MAX);
    buf_printf(&buf, " %d", 7);
    buf_hex(&buf, "\x0f\xf0", 2);
    assert_true(slice_is(buf_view(&buf), "-9223372036854775808 18446744073709551615 70ff0"));
    buf_release(&buf);
}

static void numbers_agree_with_printf_at_every_length(void **state)
{
    (void)state;
    struct buf buf;
    buf_init(&buf, &mem_libc, 1000);
    for (uint64_t power = 1; power <= UINT64_MAX / 10; power *= 10) {
        const uint64_t values[] = {power - 1, power, power + 1, power * 9 + power / 7};
        for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
            char expected[32];
            (void)snprintf(expected, sizeof expected, "%llu", (unsigned long long)values[i]);
            buf_clear(&buf);
            buf_u64(&buf, values[i]);
            assert_true(slice_is(buf_view(&buf), expected));
        }
    }
    buf_release(&buf);
}

static void a_failed_buffer_takes_nothing_more_even_if_it_would_fit(void **state)
{
    (void)state;
    struct buf buf;
    buf_init(&buf, &mem_libc, 10);
    buf_str(&buf, "12345");
    buf_str(&buf, "678901");
    buf_char(&buf, 'x');
    buf_slice(&buf, SLICE_EMPTY);
    assert_int_equal(buf_status(&buf), E_LIMIT);
    assert_true(slice_is(buf_view(&buf), "12345"));
    buf_release(&buf);
}

static void an_arena_refuses_past_its_maximum_and_can_be_reused(void **state)
{
    (void)state;
    struct arena arena;
    arena_init(&arena, &mem_libc, 100000);
    assert_non_null(arena_alloc(&arena, 60000));
    assert_null(arena_alloc(&arena, 60000));
    assert_non_null(arena_alloc(&arena, 20000));
    arena_clear(&arena);
    void *place = arena_alloc(&arena, 1);
    assert_non_null(place);
    assert_int_equal((uintptr_t)place % 16, 0);
    assert_null(arena_alloc(&arena, SIZE_MAX));
    arena_release(&arena);
}

static void durations_are_read_whole_or_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t ms;
    } good[] = {{"300ms", 300}, {"30s", 30000}, {"5m", 300000}, {"24h", 86400000},
        {"14d", 14 * INT64_C(86400000)}, {"0s", 0}};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        int64_t ms = -1;
        assert_true(text_duration(slice_str(good[i].text), &ms));
        assert_int_equal(ms, good[i].ms);
    }
    static const char *const bad[] = {"", "s", "30", "30 s", "-1s", "1.5h", "30S", "1h30m",
        "99999999999999999999s", "9223372036854775807d"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        int64_t ms = -1;
        assert_false(text_duration(slice_str(bad[i]), &ms));
        assert_int_equal(ms, -1);
    }
    char text[32];
    assert_string_equal(text_put_duration(text, 86400000), "24h");
    assert_string_equal(text_put_duration(text, 90000), "90s");
    assert_string_equal(text_put_duration(text, 1), "1ms");
    assert_string_equal(text_put_duration(text, 0), "0s");
}

static void sizes_have_binary_units(void **state)
{
    (void)state;
    uint64_t bytes;
    assert_true(text_size(slice_str("64KiB"), &bytes));
    assert_int_equal(bytes, 65536);
    assert_true(text_size(slice_str("10MiB"), &bytes));
    assert_int_equal(bytes, 10485760);
    assert_false(text_size(slice_str("10MB"), &bytes));
}

static void times_go_there_and_back(void **state)
{
    (void)state;
    static const struct {
        int64_t ms;
        const char *text;
    } times[] = {{0, "1970-01-01T00:00:00.000Z"}, {1794770607123, "2026-11-15T19:23:27.123Z"},
        {-1, "1969-12-31T23:59:59.999Z"}, {951782400000, "2000-02-29T00:00:00.000Z"},
        {4107542400000, "2100-03-01T00:00:00.000Z"}, {253402300799999, "9999-12-31T23:59:59.999Z"}};
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        char text[TEXT_TIME_BYTES];
        assert_string_equal(text_put_time(text, times[i].ms), times[i].text);
        int64_t ms;
        assert_true(text_time(slice_str(times[i].text), &ms));
        assert_int_equal(ms, times[i].ms);
    }
    int64_t ms;
    assert_false(text_time(slice_str("2026-02-29T00:00:00.000Z"), &ms));
    assert_false(text_time(slice_str("2026-02-28T24:00:00.000Z"), &ms));
}

static void every_form_of_a_time_is_read(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t ms;
        const char *fraction;
    } good[] = {{"2026-01-01T00:00:00Z", 1767225600000, ""},
        {"2026-01-01T00:00:00.000Z", 1767225600000, "000"},
        {"2026-01-01t00:00:00.5z", 1767225600000, "5"},
        {"2026-01-01 00:00:00.123456789012Z", 1767225600000, "123456789012"},
        {"2026-01-01T02:00:00+02:00", 1767225600000, ""},
        {"2025-12-31T19:30:00.25-04:30", 1767225600000, "25"}};
    static const char *const bad[] = {"", "2026-01-01", "2026-01-01T00:00:00",
        "2026-01-01T00:00:00.Z", "2026-01-01T00:00:00,5Z", "2026-02-29T00:00:00Z",
        "2026-01-01T24:00:00Z", "2026-01-01T00:00:60Z", "2026-01-01T00:00:00+2:00",
        "2026-01-01T00:00:00+24:00", "2026-01-01T00:00:00+02:60", "2026-01-01T00:00:00ZZ",
        "2026-01-01T00:00:00+0200", "2026-01-01x00:00:00Z", "soon"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        int64_t ms = 0;
        struct slice fraction;
        assert_true(text_instant(slice_str(good[i].text), &ms, &fraction));
        assert_int_equal(ms, good[i].ms);
        assert_true(slice_is(fraction, good[i].fraction));
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        int64_t ms = 7;
        struct slice fraction;
        assert_false(text_instant(slice_str(bad[i]), &ms, &fraction));
        assert_int_equal(ms, 7);
    }
}

static void hex_is_read_whole_or_refused(void **state)
{
    (void)state;
    unsigned char bytes[2] = {9, 9};
    assert_false(text_hex(slice_str("0g00"), bytes, 2));
    assert_false(text_hex(slice_str("000"), bytes, 2));
    assert_int_equal(bytes[0], 9);
    assert_true(text_hex(slice_str("aB01"), bytes, 2));
    assert_int_equal(bytes[0], 0xab);
}

/* RFC 3720 appendix B.4. */
static void the_checksum_agrees_with_the_standard(void **state)
{
    (void)state;
    unsigned char bytes[32];
    memset(bytes, 0, sizeof bytes);
    assert_int_equal(crc32c(0, bytes, sizeof bytes), 0x8a9136aa);
    memset(bytes, 0xff, sizeof bytes);
    assert_int_equal(crc32c(0, bytes, sizeof bytes), 0x62a8ab43);
    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = (unsigned char)i;
    }
    assert_int_equal(crc32c(0, bytes, sizeof bytes), 0x46dd794e);
    assert_int_equal(crc32c(crc32c(0, bytes, 13), bytes + 13, 19), 0x46dd794e);
}

/* Long ones are summed in lanes; byte by byte there are none. */
static void the_checksum_of_a_long_text_is_that_of_its_bytes(void **state)
{
    (void)state;
    unsigned char bytes[1400];
    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = (unsigned char)(i * i * 31 + i / 7);
    }
    for (size_t size = 0; size < sizeof bytes; size += 37) {
        for (size_t from = 0; from < 9 && from <= size; from++) {
            uint32_t one_by_one = 0x1234567;
            for (size_t i = from; i < size; i++) {
                one_by_one = crc32c(one_by_one, bytes + i, 1);
            }
            assert_int_equal(crc32c(0x1234567, bytes + from, size - from), one_by_one);
        }
    }
}

static void errors_carry_context_and_a_hint(void **state)
{
    (void)state;
    struct err err = {0};
    assert_int_equal(err_errno(&err, E_UNAVAILABLE, 28, "cannot write '%s'", "x"), E_UNAVAILABLE);
    err_prefix(&err, "journal");
    err_hint(&err, "free some space");
    assert_string_equal(err.text, "journal: cannot write 'x': No space left on device");
    assert_string_equal(err.hint, "free some space");
    assert_int_equal(err_set(NULL, E_LIMIT, "no place for a text"), E_LIMIT);
}

static void uuids_have_version_variant_and_time(void **state)
{
    (void)state;
    unsigned char bytes[UUID_BYTES];
    char text[UUID_TEXT_BYTES];
    memset(bytes, 0xff, sizeof bytes);
    uuid_v4(bytes);
    assert_string_equal(uuid_put(text, bytes), "ffffffff-ffff-4fff-bfff-ffffffffffff");
    memset(bytes, 0, sizeof bytes);
    uuid_v4(bytes);
    assert_string_equal(uuid_put(text, bytes), "00000000-0000-4000-8000-000000000000");
    uuid_v7(bytes, 0x0123456789ab);
    assert_string_equal(uuid_put(text, bytes), "01234567-89ab-7000-8000-000000000000");
    char other[UUID_TEXT_BYTES];
    assert_int_equal(uuid_new(text, NULL), OK);
    assert_int_equal(uuid_new(other, NULL), OK);
    assert_string_not_equal(text, other);
}

static void a_uuid_is_read_whole_or_refused(void **state)
{
    (void)state;
    unsigned char bytes[UUID_BYTES] = {0};
    char text[UUID_TEXT_BYTES];
    assert_true(uuid_read(slice_str("01234567-89AB-cdef-8000-00000000000f"), bytes));
    assert_string_equal(uuid_put(text, bytes), "01234567-89ab-cdef-8000-00000000000f");
    static const char *const bad[] = {"", "01234567-89ab-cdef-8000-00000000000",
        "01234567-89ab-cdef-8000-00000000000f0", "01234567+89ab-cdef-8000-00000000000f",
        "0123456789ab-cdef-8000-00000000000f-", "g1234567-89ab-cdef-8000-00000000000f"};
    for (size_t i = 0; i < COUNT(bad); i++) {
        unsigned char untouched[UUID_BYTES];
        memcpy(untouched, bytes, sizeof bytes);
        assert_false(uuid_read(slice_str(bad[i]), bytes));
        assert_memory_equal(bytes, untouched, sizeof bytes);
    }
}

static void base64_has_the_text_of_its_rfc_in_both_forms(void **state)
{
    (void)state;
    static const struct {
        const char *bytes, *padded, *url;
    } rows[] = {{"", "", ""}, {"f", "Zg==", "Zg"}, {"fo", "Zm8=", "Zm8"}, {"foo", "Zm9v", "Zm9v"},
        {"foob", "Zm9vYg==", "Zm9vYg"}, {"fooba", "Zm9vYmE=", "Zm9vYmE"},
        {"\xfb\xef\xbe\xff", "++++/w==", "----_w"}};
    for (size_t i = 0; i < COUNT(rows); i++) {
        const char *texts[] = {[BASE64_PADDED] = rows[i].padded, [BASE64_URL] = rows[i].url};
        for (enum base64 form = BASE64_PADDED; form <= BASE64_URL; form++) {
            char text[16];
            char bytes[16];
            size_t size = strlen(rows[i].bytes);
            *base64_put(text, rows[i].bytes, size, form) = '\0';
            assert_string_equal(text, texts[form]);
            assert_true(base64_read(slice_str(text), form, bytes, &size));
            assert_true(slice_is(slice_of(bytes, size), rows[i].bytes));
        }
    }
}

static void base64_has_one_spelling_only(void **state)
{
    (void)state;
    static const struct {
        enum base64 form;
        const char *text;
    } bad[] = {{BASE64_PADDED, "Zg"}, {BASE64_PADDED, "Zg="}, {BASE64_PADDED, "Zh=="},
        {BASE64_PADDED, "Zm9="}, {BASE64_PADDED, "===="}, {BASE64_PADDED, "Z==="},
        {BASE64_PADDED, "Zg==Zg=="}, {BASE64_PADDED, "----"}, {BASE64_PADDED, "Zm9v\n"},
        {BASE64_URL, "Zg=="}, {BASE64_URL, "Z"}, {BASE64_URL, "Zh"}, {BASE64_URL, "++++"}};
    for (size_t i = 0; i < COUNT(bad); i++) {
        char bytes[16];
        size_t size = 99;
        if (base64_read(slice_str(bad[i].text), bad[i].form, bytes, &size) || size != 99) {
            fail_msg("'%s' was read", bad[i].text);
        }
    }
}

static void percent_encoding_leaves_only_unreserved_characters(void **state)
{
    (void)state;
    static const char plain[] =
        "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_.~";
    for (int i = 0; i < 256; i++) {
        char text[PERCENT_BYTES_MAX + 1] = "";
        char byte = (char)i;
        char back = 0;
        *percent_put(text, byte) = '\0';
        bool is_plain = i != 0 && strchr(plain, byte) != NULL;
        assert_int_equal(strlen(text), is_plain ? 1 : PERCENT_BYTES_MAX);
        assert_int_equal(percent_read(slice_str(text), &back), !is_plain);
        assert_int_equal(is_plain ? text[0] : back, byte);
    }
    char byte = 'x';
    assert_true(percent_read(slice_str("%2fa"), &byte));
    assert_int_equal(byte, '/');
    assert_false(percent_read(slice_str("%2"), &byte));
    assert_false(percent_read(slice_str("%g0"), &byte));
    assert_false(percent_read(slice_str("a%2f"), &byte));
}

static void blanks_are_trimmed_and_line_ends_are_not(void **state)
{
    (void)state;
    assert_true(slice_is(slice_trim(slice_str(" \ta b\t ")), "a b"));
    assert_true(slice_is(slice_trim(slice_str(" a\r")), "a\r")); /* a head may not hide one */
    assert_int_equal(slice_trim(slice_str(" \t ")).len, 0);
    assert_true(slice_starts(slice_str("abc"), SLICE_LIT("ab")));
    assert_true(slice_starts(SLICE_EMPTY, SLICE_EMPTY));
    assert_false(slice_starts(slice_str("a"), SLICE_LIT("ab")));
}

static void a_pause_doubles_up_to_the_longest(void **state)
{
    (void)state;
    assert_int_equal(clock_doubled_ms(50, 2000), 100);
    assert_int_equal(clock_doubled_ms(1000, 2000), 2000);
    assert_int_equal(clock_doubled_ms(1001, 2000), 2000);
    assert_int_equal(clock_doubled_ms(2000, 2000), 2000);
    assert_int_equal(clock_doubled_ms(INT64_MAX - 1, INT64_MAX), INT64_MAX);
}

static void the_cause_of_an_error_is_apart_from_its_places(void **state)
{
    (void)state;
    struct err err = {0};
    (void)err_set(&err, E_UNAVAILABLE, "the engine is shutting down");
    assert_string_equal(err.text + err.cause, "the engine is shutting down");
    err_prefix(&err, "request 1");
    assert_string_equal(err.text + err.cause, "request 1: the engine is shutting down");
    (void)err_errno(&err, E_UNKNOWN, 28, "cannot write '%s'", "/var/it's': here/x");
    err_prefix(&err, "store '%s'", "/var");
    assert_string_equal(
        err.text, "store '/var': cannot write '/var/it's': here/x': No space left on device");
    assert_string_equal(err.text + err.cause, "No space left on device");
    char path[ERR_TEXT_BYTES_MAX + 100];
    memset(path, 'p', sizeof path);
    path[sizeof path - 1] = '\0';
    (void)err_errno(&err, E_UNKNOWN, 28, "cannot write '%s'", path);
    assert_string_equal(err.text + err.cause, ""); /* cut before its cause, and no place is shown */
    (void)err_set(&err, E_UNAVAILABLE, "again");
    assert_string_equal(err.text + err.cause, "again");
}

static void a_limit_is_a_value_of_the_error(void **state)
{
    (void)state;
    struct err err = {0};
    assert_int_equal(err_limit(&err, ERR_LIMIT_KEYS, "keys_max (%d) are live", 7), E_LIMIT);
    assert_int_equal(err.status, E_LIMIT);
    assert_int_equal(err.limit, ERR_LIMIT_KEYS);
    assert_string_equal(err_limit_name(err.limit), "keys_max");
    assert_string_equal(err.text, "keys_max (7) are live");
    err_prefix(&err, "begin");
    assert_int_equal(err.limit, ERR_LIMIT_KEYS); /* the context does not change the cause */
    (void)err_set(&err, E_UNAVAILABLE, "something else");
    assert_int_equal(err.limit, ERR_LIMIT_NONE);
    assert_int_equal(err_limit(NULL, ERR_LIMIT_KEYS, "no place for a text"), E_LIMIT);
}

static void an_ipv6_address_is_read_whole_or_refused(void **state)
{
    (void)state;
    unsigned char address[16] = {0};
    assert_true(text_ipv6(SLICE_LIT("::1"), address));
    assert_int_equal(address[15], 1);
    assert_true(text_ipv6(SLICE_LIT("2001:db8::ffff:10.0.0.1"), address));
    assert_int_equal(address[0], 0x20);
    assert_false(text_ipv6(SLICE_LIT("fe80::1%eth0"), address));
    assert_false(text_ipv6(SLICE_LIT("::1\0"), address));
    assert_false(text_ipv6(SLICE_LIT(""), address));
    assert_false(text_ipv6(SLICE_LIT("127.0.0.1"), address));
}

static void the_path_of_a_url_begins_after_its_origin(void **state)
{
    (void)state;
    assert_int_equal(text_url_origin("http://h:9/a/b"), strlen("http://h:9"));
    assert_int_equal(text_url_origin("http://h"), strlen("http://h"));
    assert_int_equal(text_url_origin("h/a"), strlen("h/a"));
}

/* text_utf8 reads eight bytes at a time: a sequence and a broken one at each place, in texts that
 * end before, at and after such a step. */
static void utf8_is_checked_at_every_place(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        bool is_valid;
    } cases[] = {{"a", true}, {"\x7f", true}, {"\xc3\xa9", true}, {"\xe2\x82\xac", true},
        {"\xf0\x9f\x98\x80", true}, {"\x80", false}, {"\xc3", false}, {"\xe2\x82", false},
        {"\xc0\x80", false}, {"\xff", false}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        size_t size = strlen(cases[i].bytes);
        for (size_t len = size; len <= 20; len++) {
            for (size_t at = 0; at + size <= len; at++) {
                char text[20];
                memset(text, 'x', sizeof text);
                memcpy(text + at, cases[i].bytes, size);
                if (text_utf8(slice_of(text, len)) != cases[i].is_valid) {
                    fail_msg("case %zu at %zu of %zu", i, at, len);
                }
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(utf8_is_checked_at_every_place),
        TEST(uuids_have_version_variant_and_time),
        TEST(a_uuid_is_read_whole_or_refused),
        TEST(base64_has_the_text_of_its_rfc_in_both_forms),
        TEST(base64_has_one_spelling_only),
        TEST(an_ipv6_address_is_read_whole_or_refused),
        TEST(the_path_of_a_url_begins_after_its_origin),
        TEST(percent_encoding_leaves_only_unreserved_characters),
        TEST(blanks_are_trimmed_and_line_ends_are_not),
        TEST(a_pause_doubles_up_to_the_longest),
        TEST(a_buffer_never_grows_past_its_maximum_and_remembers),
        TEST(numbers_are_written_in_full),
        TEST(numbers_agree_with_printf_at_every_length),
        TEST(a_failed_buffer_takes_nothing_more_even_if_it_would_fit),
        TEST(an_arena_refuses_past_its_maximum_and_can_be_reused),
        TEST(durations_are_read_whole_or_refused),
        TEST(sizes_have_binary_units),
        TEST(times_go_there_and_back),
        TEST(every_form_of_a_time_is_read),
        TEST(hex_is_read_whole_or_refused),
        TEST(the_checksum_agrees_with_the_standard),
        TEST(the_checksum_of_a_long_text_is_that_of_its_bytes),
        TEST(errors_carry_context_and_a_hint),
        TEST(the_cause_of_an_error_is_apart_from_its_places),
        TEST(a_limit_is_a_value_of_the_error),
    };
    return cmocka_run_group_tests_name("base", tests, NULL, NULL);
}
