/*
 * Numbers: ECMAScript's texts of doubles, exact reading, and which numbers are lossy.
 *
 * The expected values come from an ECMAScript engine, by tools/make_number_vectors.
 */
#include <math.h>
#include <stdlib.h>

#include "canon/digest.h"
#include "canon/number.h"
#include "check_c.h"
#include "files.h"

static double double_of(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint64_t bits_of(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static uint64_t hex_of(struct slice text)
{
    char copy[32] = {0};
    assert_true(text.len < sizeof copy);
    memcpy(copy, text.data, text.len);
    return strtoull(copy, NULL, 16);
}

/* Split "a,b"; the comma is the first or the last one. */
static void split(struct slice line, struct slice *ret_a, struct slice *ret_b)
{
    const char *comma = memchr(line.data, ',', line.len);
    assert_non_null(comma);
    *ret_a = slice_of(line.data, (size_t)(comma - line.data));
    *ret_b = slice_of(comma + 1, line.len - ret_a->len - 1);
}

static void doubles_are_written_as_ecmascript_writes_them(void **state)
{
    (void)state;
    struct buf file;
    buf_init(&file, &mem_libc, FILE_BYTES_MAX);
    file_read("vectors/numbers/es.txt", &file);
    struct slice rest = buf_view(&file), line, hex, expected;
    size_t count = 0;
    while (file_line(&rest, &line)) {
        split(line, &hex, &expected);
        char text[NUMBER_TEXT_BYTES_MAX];
        size_t size = number_put_double(text, double_of(hex_of(hex)));
        if (!slice_equal(slice_of(text, size), expected)) {
            fail_msg("%.*s gave %.*s", SLICE_ARGS(line), (int)size, text);
        }
        count++;
    }
    assert_true(count > 10000);
    buf_release(&file);
}

struct random {
    uint64_t state; /* splitmix64 */
};

static uint64_t random_next(struct random *random)
{
    random->state += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t z = random->state;
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* The same families as in tools/make_number_vectors. */
static uint64_t generated(uint64_t i, struct random *random)
{
    static const double tens[] = {
        1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15};
    uint64_t r = random_next(random);
    switch (i % 5) {
    case 0: return r;
    case 1: return r & UINT64_C(0x800fffffffffffff);
    case 2: return (r % 2046 + 1) << 52 | (r >> 60 & 3);
    case 3: return bits_of((double)((r >> 11) % UINT64_C(10000000000000000)) / tens[r & 15]);
    default: return (r % 200 + 923) << 52 | r >> 12;
    }
}

static void a_million_generated_doubles_agree_with_ecmascript_and_read_back(void **state)
{
    (void)state;
    struct buf lines, file;
    buf_init(&lines, &mem_libc, FILE_BYTES_MAX);
    buf_init(&file, &mem_libc, FILE_BYTES_MAX);
    struct random random = {20260215};
    size_t count = 0;
    for (uint64_t i = 0; count < 1000000; i++) {
        uint64_t bits = generated(i, &random);
        if (!isfinite(double_of(bits))) {
            continue;
        }
        char text[NUMBER_TEXT_BYTES_MAX];
        size_t size = number_put_double(text, double_of(bits));
        char hex[20];
        int hex_size = snprintf(hex, sizeof hex, "%llx,", (unsigned long long)bits);
        buf_append(&lines, hex, (size_t)hex_size);
        buf_append(&lines, text, size);
        buf_char(&lines, '\n');
        double back = NAN;
        assert_true(number_to_double(slice_of(text, size), &back));
        if (back != double_of(bits)) {
            fail_msg("%s%.*s reads back as %a", hex, (int)size, text, back);
        }
        count++;
    }
    assert_int_equal(buf_status(&lines), OK);
    struct digest digest;
    digest_sha256(lines.data, lines.len, &digest);
    char text[DIGEST_HEX_BYTES];
    file_read("vectors/numbers/million.txt", &file);
    assert_memory_equal(digest_put_hex(text, &digest), file.data, DIGEST_HEX_BYTES - 1);
    buf_release(&lines);
    buf_release(&file);
}

static void texts_read_as_the_nearest_double(void **state)
{
    (void)state;
    struct buf file;
    buf_init(&file, &mem_libc, FILE_BYTES_MAX);
    file_read("vectors/numbers/reading.txt", &file);
    struct slice rest = buf_view(&file), line, text, hex;
    size_t count = 0;
    while (file_line(&rest, &line)) {
        split(line, &text, &hex);
        double expected = double_of(hex_of(hex));
        double value = 0;
        bool fits = number_to_double(text, &value);
        assert_int_equal(fits, isfinite(expected));
        if (fits && bits_of(value) != bits_of(expected)) {
            fail_msg("%.*s read as %a, not %a", SLICE_ARGS(text), value, expected);
        }
        count++;
    }
    assert_true(count > 500);
    buf_release(&file);
}

static void canonical_text_agrees_with_the_way_through_a_double(void **state)
{
    (void)state;
    struct random random = {5};
    for (int i = 0; i < 200000; i++) {
        char text[64];
        uint64_t r = random_next(&random);
        uint64_t digits = random_next(&random) >> (r % 64);
        int size = snprintf(text, sizeof text, "%s%llue%d", r & 64 ? "-" : "",
            (unsigned long long)digits, (int)(r >> 32) % 640 - 320);
        if (r & 128) { /* an amount, with some zeros at its end */
            size = snprintf(text, sizeof text, "%s%llu.%llu%.*s", r & 64 ? "-" : "",
                (unsigned long long)digits % 100000, (unsigned long long)(digits >> 20),
                (int)(r >> 40 & 3), "000");
        }
        struct slice number = slice_of(text, (size_t)size);
        double value;
        bool lossy;
        char canonical[NUMBER_TEXT_BYTES_MAX], expected[NUMBER_TEXT_BYTES_MAX];
        size_t got = number_put_canonical(canonical, number, &lossy);
        if (!number_to_double(number, &value)) {
            assert_int_equal(got, 0);
            continue;
        }
        size_t want = number_put_double(expected, value);
        assert_int_equal(got, want);
        assert_memory_equal(canonical, expected, want);
        /* The definition of lossy, by the other function that knows exact values. */
        assert_int_equal(lossy, !number_equal(number, slice_of(canonical, got)));
    }
}

static void a_number_is_lossy_when_its_decimal_value_changes(void **state)
{
    (void)state;
    static const struct {
        const char *text, *canonical;
        bool lossy;
    } cases[] = {
        {"9007199254740993", "9007199254740992", true},
        {"9007199254740992", "9007199254740992", false},
        {"9007199254740994", "9007199254740994", false},
        {"-9007199254740993.0", "-9007199254740992", true},
        {"333333333.33333329", "333333333.3333333", true},
        {"333333333.3333333", "333333333.3333333", false},
        {"1e-400", "0", true},
        {"-1e-400", "0", true},
        {"0.000e-400", "0", false},
        {"-0", "0", false},
        {"-0.0", "0", false},
        {"4.50", "4.5", false},
        {"1E30", "1e+30", false},
        {"2e-3", "0.002", false},
        {"0.1", "0.1", false},
        {"1e21", "1e+21", false},
        {"100e19", "1e+21", false},
        {"123456789012345678901", "123456789012345680000", true},
        {"100000000000000000000", "100000000000000000000", false},
        {"18446744073709551616", "18446744073709552000", true},
        {"18446744073709552000", "18446744073709552000", false},
        {"1000000000000000000000000000000000000001e-39", "1", true},
        {"1000000000000000000000000000000000000000e-39", "1", false},
        {"5e-324", "5e-324", false},
        {"4.9406564584124654e-324", "5e-324", true},
        {"0.000001", "0.000001", false},
        {"0.0000001", "1e-7", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[NUMBER_TEXT_BYTES_MAX];
        bool lossy;
        size_t size = number_put_canonical(text, slice_str(cases[i].text), &lossy);
        if (!slice_equal(slice_of(text, size), slice_str(cases[i].canonical)) ||
            lossy != cases[i].lossy) {
            fail_msg("%s gave %.*s, lossy %d", cases[i].text, (int)size, text, lossy);
        }
    }
    char text[NUMBER_TEXT_BYTES_MAX];
    bool lossy;
    assert_int_equal(number_put_canonical(text, SLICE_LIT("1e400"), &lossy), 0);
    assert_int_equal(number_put_canonical(text, SLICE_LIT("-1.8e308"), &lossy), 0);
}

static void numbers_are_compared_by_exact_decimal_value(void **state)
{
    (void)state;
    static const struct {
        const char *a, *b;
        bool equal;
    } cases[] = {
        {"1", "1.0", true},
        {"100", "1e2", true},
        {"0.010", "1E-2", true},
        {"0", "-0", true},
        {"0", "0e999", true},
        {"1", "-1", false},
        {"9007199254740993", "9007199254740992", false},
        {"12345678901234567890123", "12345678901234567890124", false},
        {"12345678901234567890123", "1.2345678901234567890123e22", true},
        {"12345678901234567890123", "12345678901234567890123.000", true},
        {"1e1000000000000", "1e2000000000000", false},
        {"1e1000000000000", "1e1000000000000", true},
        {"10", "1", false},
        {"0", "1", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(
            number_equal(slice_str(cases[i].a), slice_str(cases[i].b)), cases[i].equal);
        assert_int_equal(
            number_equal(slice_str(cases[i].b), slice_str(cases[i].a)), cases[i].equal);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(doubles_are_written_as_ecmascript_writes_them),
        TEST(a_million_generated_doubles_agree_with_ecmascript_and_read_back),
        TEST(texts_read_as_the_nearest_double),
        TEST(canonical_text_agrees_with_the_way_through_a_double),
        TEST(a_number_is_lossy_when_its_decimal_value_changes),
        TEST(numbers_are_compared_by_exact_decimal_value),
    };
    return cmocka_run_group_tests_name("number", tests, NULL, NULL);
}
