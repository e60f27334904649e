/*
 * The JSON reader and the canonical form: what is taken, what is refused and where, RFC 8785.
 */
#include "base/limits.h"
#include "canon/jcs.h"
#include "canon/json.h"
#include "check_c.h"
#include "files.h"

enum { MEMORY_MAX = 64 << 20 };

struct fixture {
    struct arena arena;
    struct buf out;
    struct err err;
};

static int set_up(void **state)
{
    struct fixture *f = mem_zalloc(&mem_libc, 1, sizeof *f);
    arena_init(&f->arena, &mem_libc, MEMORY_MAX);
    buf_init(&f->out, &mem_libc, MEMORY_MAX);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    arena_release(&f->arena);
    buf_release(&f->out);
    mem_free(&mem_libc, f);
    return 0;
}

static const struct json_value *read_or_fail(struct fixture *f, struct slice text)
{
    const struct json_value *value = NULL;
    if (json_read(text, &f->arena, &value, &f->err) != OK) {
        fail_msg("%.*s: %s", SLICE_ARGS(text), f->err.text);
    }
    return value;
}

/* The canonical form of a text that has one. */
static struct slice canonical(struct fixture *f, struct slice text)
{
    buf_clear(&f->out);
    struct jcs_report report;
    assert_int_equal(jcs_write(read_or_fail(f, text), &f->out, &report, &f->err), OK);
    return buf_view(&f->out);
}

static void every_rfc_8785_vector_passes(void **state)
{
    static const char *const names[] = {
        "arrays", "french", "structures", "unicode", "values", "weird"};
    struct fixture *f = *state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct buf input, output;
        buf_init(&input, &mem_libc, FILE_BYTES_MAX);
        buf_init(&output, &mem_libc, FILE_BYTES_MAX);
        char path[128];
        (void)snprintf(path, sizeof path, "vectors/jcs/input/%s.json", names[i]);
        file_read(path, &input);
        (void)snprintf(path, sizeof path, "vectors/jcs/output/%s.json", names[i]);
        file_read(path, &output);
        struct slice got = canonical(f, buf_view(&input));
        if (!slice_equal(got, buf_view(&output))) {
            fail_msg("%s: %.*s", names[i], SLICE_ARGS(got));
        }
        /* And the canonical form of the canonical form is itself. */
        assert_true(slice_equal(canonical(f, buf_view(&output)), buf_view(&output)));
        buf_release(&input);
        buf_release(&output);
    }
}

static void a_canonical_text_is_as_expected(void **state)
{
    static const struct {
        const char *text, *expected;
    } cases[] = {
        {" null ", "null"},
        {"[ ]", "[]"},
        {"\n{\r\t}", "{}"},
        {"{\"b\":[true,false,{}],\"a\":\"x\"}", "{\"a\":\"x\",\"b\":[true,false,{}]}"},
        {"\"\\/\\u0041\\u00e9\\uD83D\\uDE02\"", "\"/A\xC3\xA9\xF0\x9F\x98\x82\""},
        {"\"\\u0000\\b\\t\\n\\u000b\\f\\r\\u001f\\u007f\\\"\\\\\"",
            "\"\\u0000\\b\\t\\n\\u000b\\f\\r\\u001f\x7f\\\"\\\\\""},
        /* By UTF-16: the surrogates of U+1F602 sort before U+FB33, though its UTF-8 sorts after. */
        {"{\"\xEF\xAC\xB3\":1,\"\xF0\x9F\x98\x82\":2,\"\xE2\x82\xAC\":3}",
            "{\"\xE2\x82\xAC\":3,\"\xF0\x9F\x98\x82\":2,\"\xEF\xAC\xB3\":1}"},
        {"{\"12345678\xEF\xAC\xB3\":1,\"12345678\xF0\x9F\x98\x82\":2}",
            "{\"12345678\xF0\x9F\x98\x82\":2,\"12345678\xEF\xAC\xB3\":1}"},
        {"{\"\\u0000\":1,\"\":2,\"\\u0000\\u0000\":3}",
            "{\"\":2,\"\\u0000\":1,\"\\u0000\\u0000\":3}"},
        {"{\"abcdefgh\":1,\"abcdefg\":2,\"abcdefghi\":3,\"abc\":4,\"abcd\":5}",
            "{\"abc\":4,\"abcd\":5,\"abcdefg\":2,\"abcdefgh\":1,\"abcdefghi\":3}"},
        {"[0,-0,0.0,-1,123456789012345,1234567890123456,1.50,1E2]",
            "[0,0,0,-1,123456789012345,1234567890123456,1.5,100]"},
        {"        \n                {            \"a\"     :         1       }         ",
            "{\"a\":1}"},
    };
    struct fixture *f = *state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct slice got = canonical(f, slice_str(cases[i].text));
        if (!slice_is(got, cases[i].expected)) {
            fail_msg("%s gave %.*s", cases[i].text, SLICE_ARGS(got));
        }
    }
}

static void what_is_not_i_json_is_refused_with_its_place(void **state)
{
    static const struct {
        const char *text, *expected;
    } cases[] = {
        {"", "line 1, column 1: the text ends where a value is expected"},
        {"{\"a\":1,\n \"b\":2,\n      \"a\":3}", "line 3, column 7: duplicate member \"a\""},
        {"{\"a\":1,\"\\u0061\":2}", "line 1, column 8: duplicate member \"a\""},
        {"[\"\xC3\xA9\xC3\xA9\", x]", "line 1, column 8: 'x' where a value is expected"},
        {"[1,]", "line 1, column 4: ']' where a value is expected"},
        {"[1 2]", "line 1, column 4: '2' where ',' or ']' is expected"},
        {"{\"a\" 1}", "line 1, column 6: '1' where ':' is expected"},
        {"{\"a\":1,}", "line 1, column 8: '}' where a member name is expected"},
        {"{\"a\":1 \"b\"}", "line 1, column 8: '\"' where ',' or '}' is expected"},
        {"{a:1}", "line 1, column 2: 'a' where a member name is expected"},
        {"{} {}", "line 1, column 4: '{' where the end of the text is expected"},
        {"01", "line 1, column 1: a number may not begin with zero"},
        {"-", "line 1, column 2: the text ends where a digit is expected"},
        {"1.", "line 1, column 3: the text ends where a digit is expected"},
        {"1.e1", "line 1, column 3: 'e' where a digit is expected"},
        {"1e+", "line 1, column 4: the text ends where a digit is expected"},
        {"+1", "line 1, column 1: '+' where a value is expected"},
        {".5", "line 1, column 1: '.' where a value is expected"},
        {"NaN", "line 1, column 1: 'N' where a value is expected"},
        {"nul", "line 1, column 1: 'n' where a value is expected"},
        {"truth", "line 1, column 1: 't' where a value is expected"},
        {"'a'", "line 1, column 1: ''' where a value is expected"},
        {"\"a", "line 1, column 3: the text ends inside a string"},
        {"\"a\\", "line 1, column 4: the text ends inside a string"},
        {"\"a\nb\"",
            "line 1, column 3: control character 0x0a inside a string, it must be escaped"},
        {"\"\\x\"", "line 1, column 2: invalid escape in a string"},
        {"\"\\u12g4\"", "line 1, column 2: \\u needs four hexadecimal digits"},
        {"\"\\ud800\"", "line 1, column 2: lone surrogate \\ud800"},
        {"\"\\ud800\\u0041\"", "line 1, column 2: lone surrogate \\ud800"},
        {"\"ab\\udc00\"", "line 1, column 4: lone surrogate \\udc00"},
        {"\"\xC0\xAF\"", "line 1, column 2: invalid UTF-8 (byte 0xc0)"},
        {"\"\xED\xA0\x80\"", "line 1, column 2: invalid UTF-8 (byte 0xed)"},
        {"\"\xF4\x90\x80\x80\"", "line 1, column 2: invalid UTF-8 (byte 0xf4)"},
        {"\"\xE2\x82\"", "line 1, column 2: invalid UTF-8 (byte 0xe2)"},
        {"\"\x80\"", "line 1, column 2: invalid UTF-8 (byte 0x80)"},
        {"\"\xE0\x9F\xBF\"", "line 1, column 2: invalid UTF-8 (byte 0xe0)"},
        {"\"\xF0\x8F\xBF\xBF\"", "line 1, column 2: invalid UTF-8 (byte 0xf0)"},
        {"\xEF\xBB\xBF{}", "line 1, column 1: a byte order mark is not part of JSON"},
        {"[1]\x01", "line 1, column 4: byte 0x01 where the end of the text is expected"},
        {"\x0C[1]", "line 1, column 1: byte 0x0c where a value is expected"},
        {"/**/1", "line 1, column 1: '/' where a value is expected"},
    };
    struct fixture *f = *state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct json_value *value = NULL;
        assert_int_equal(
            json_read(slice_str(cases[i].text), &f->arena, &value, &f->err), E_INVALID);
        assert_null(value);
        assert_string_equal(f->err.text, cases[i].expected);
    }
    struct json_place place;
    const struct json_value *value;
    assert_int_equal(
        json_read_placed(SLICE_LIT("{\n \"\xC3\xA9\": ?}"), &f->arena, &value, &place, NULL),
        E_INVALID);
    assert_int_equal(place.line, 2);
    assert_int_equal(place.column, 7);
    assert_int_equal(place.offset, 9);
    assert_int_equal(json_read(slice_of("1\0", 2), &f->arena, &value, NULL), E_INVALID);
}

static void every_prefix_of_a_document_is_refused(void **state)
{
    static const char text[] = "{\"a\":[1,-2.5e+3,\"\\u00e9\\ud83d\\ude02\xF0\x9F\x98\x82\"],\"b\":"
                               "{\"c\":null,\"long name of a member\":true,\"d\":false}}";
    struct fixture *f = *state;
    for (size_t size = 0; size < sizeof text - 1; size++) {
        /* A copy of exactly that size, so that reading on is an error of memory. */
        char *copy = mem_alloc(&mem_libc, size + 1);
        memcpy(copy, text, size);
        const struct json_value *value = NULL;
        assert_int_equal(json_read(slice_of(copy, size), &f->arena, &value, &f->err), E_INVALID);
        mem_free(&mem_libc, copy);
    }
    (void)read_or_fail(f, slice_of(text, sizeof text - 1));
}

static void depth_size_and_memory_are_bounded(void **state)
{
    struct fixture *f = *state;
    const struct json_value *value = NULL;
    char deep[2 * LIMIT_JSON_DEPTH_MAX + 2];
    memset(deep, '[', LIMIT_JSON_DEPTH_MAX);
    memset(deep + LIMIT_JSON_DEPTH_MAX, ']', LIMIT_JSON_DEPTH_MAX);
    (void)read_or_fail(f, slice_of(deep, 2 * LIMIT_JSON_DEPTH_MAX));
    memset(deep, '[', LIMIT_JSON_DEPTH_MAX + 1);
    memset(deep + LIMIT_JSON_DEPTH_MAX + 1, ']', LIMIT_JSON_DEPTH_MAX + 1);
    assert_int_equal(json_read(slice_of(deep, sizeof deep), &f->arena, &value, &f->err), E_LIMIT);
    assert_string_equal(f->err.text, "line 1, column 65: nested deeper than json_depth_max (64)");

    char *large = mem_alloc(&mem_libc, LIMIT_JSON_BYTES_MAX + 1);
    memset(large, ' ', LIMIT_JSON_BYTES_MAX + 1);
    large[0] = '1';
    (void)read_or_fail(f, slice_of(large, LIMIT_JSON_BYTES_MAX));
    assert_int_equal(
        json_read(slice_of(large, LIMIT_JSON_BYTES_MAX + 1), &f->arena, &value, &f->err), E_LIMIT);
    mem_free(&mem_libc, large);

    struct arena small;
    arena_init(&small, &mem_libc, 4096);
    char items[4001];
    memset(items, '1', sizeof items);
    for (size_t i = 2; i < sizeof items; i += 2) {
        items[i] = ',';
    }
    items[0] = '[';
    items[sizeof items - 1] = ']';
    assert_int_equal(json_read(slice_of(items, sizeof items), &small, &value, &f->err), E_LIMIT);
    arena_release(&small);
    (void)read_or_fail(f, slice_of(items, sizeof items));
}

static void large_objects_are_sorted_and_checked_as_small_ones(void **state)
{
    struct fixture *f = *state;
    for (unsigned count = 1; count < 3000; count = count < 80 ? count + 1 : count * 3) {
        struct buf text;
        buf_init(&text, &mem_libc, MEMORY_MAX);
        for (unsigned i = 0; i < count; i++) {
            /* 7919 is prime to all counts here, so each number comes once. */
            buf_printf(&text, "%c\"member%u\":%u", i == 0 ? '{' : ',', (i * 7919) % count, i);
        }
        buf_char(&text, '}');
        const struct json_value *value = read_or_fail(f, buf_view(&text));
        assert_int_equal(value->count, count);
        for (unsigned i = 1; i < count; i++) {
            assert_true(json_order(json_text(&value->members[i - 1].name),
                            json_text(&value->members[i].name)) < 0);
        }
        for (unsigned i = 0; i < count; i++) {
            char name[32];
            int64_t number = -1;
            (void)snprintf(name, sizeof name, "member%u", (i * 7919) % count);
            assert_true(json_int(json_find(value, slice_str(name)), &number));
            assert_int_equal(number, i);
        }
        assert_null(json_find(value, SLICE_LIT("member")));
        text.len--;
        buf_printf(&text, ",\"member%u\":null}", count / 2);
        assert_int_equal(json_read(buf_view(&text), &f->arena, &value, &f->err), E_INVALID);
        assert_non_null(strstr(f->err.text, "duplicate member \"member"));
        buf_release(&text);
        arena_clear(&f->arena);
    }
}

static void integers_are_read_exactly_or_not_at_all(void **state)
{
    struct fixture *f = *state;
    const struct json_value *value = read_or_fail(f,
        SLICE_LIT(
            "[0,-0,9223372036854775807,-9223372036854775808,9223372036854775808,1.0,1e2,\"1\"]"));
    static const int64_t expected[] = {0, 0, INT64_MAX, INT64_MIN};
    for (uint32_t i = 0; i < value->count; i++) {
        int64_t got = 77;
        bool is_int = json_int(&value->items[i], &got);
        assert_int_equal(is_int, i < 4);
        assert_int_equal(got, i < 4 ? expected[i] : 77);
    }
    assert_false(json_int(NULL, NULL));
    assert_null(json_find(value, SLICE_LIT("a")));
}

static void lossy_numbers_are_reported_and_overflow_is_refused(void **state)
{
    struct fixture *f = *state;
    struct jcs_report report;
    const struct json_value *value = read_or_fail(
        f, SLICE_LIT("{\"b\":[1,{\"c/d~\":9007199254740993}],\"a\":0.1,\"z\":1e-400}"));
    assert_int_equal(jcs_write(value, &f->out, &report, &f->err), OK);
    assert_int_equal(report.lossy_count, 2);
    assert_true(slice_is(json_text(report.lossy_first), "9007199254740993"));
    assert_int_equal(report.lossy_first->offset, 16);
    assert_int_equal(jcs_refuse_lossy(value, &report, &f->err), E_INVALID);
    assert_non_null(strstr(f->err.text, "9007199254740993 at \"/b/1/c~1d~0\" is lossy"));
    assert_true(
        slice_is(buf_view(&f->out), "{\"a\":0.1,\"b\":[1,{\"c/d~\":9007199254740992}],\"z\":0}"));

    value = read_or_fail(f, SLICE_LIT("[1,{\"x\":1e400}]"));
    assert_int_equal(jcs_write(value, &f->out, &report, &f->err), E_INVALID);
    assert_string_equal(f->err.text, "number 1e400 at \"/1/x\" is beyond the largest double");
}

static void the_writer_fills_a_buffer_exactly_or_says_why_not(void **state)
{
    static const char text[] =
        "{\"a\\nb\":[1.5,\"\\u0001\",true,\"plain text here, long\"],\"b\":{}}";
    struct fixture *f = *state;
    const struct json_value *value = read_or_fail(f, slice_of(text, sizeof text - 1));
    assert_int_equal(jcs_write(value, &f->out, NULL, NULL), OK);
    for (size_t max = 0; max <= f->out.len; max++) {
        struct buf small;
        buf_init(&small, &mem_libc, max);
        assert_int_equal(jcs_write(value, &small, NULL, &f->err), max == f->out.len ? OK : E_LIMIT);
        assert_true(small.len <= max);
        buf_release(&small);
    }
}

/* Fails the nth allocation. */
/* Strings are scanned many bytes at a time: each byte at each place of each length is escaped, or
 * not, as RFC 8785 section 3.2.2.2 has it. */
static void every_byte_of_a_string_is_escaped_at_every_place(void **state)
{
    struct fixture *f = *state;
    enum { LEN_MAX = 34 };
    for (size_t len = 1; len <= LEN_MAX; len++) {
        for (size_t at = 0; at < len; at++) {
            for (int byte = 0; byte < 0x80; byte++) {
                char text[LEN_MAX], expected[LEN_MAX + 16];
                memset(text, 'a', sizeof text);
                text[at] = (char)byte;
                const char *escape = byte == '"'    ? "\\\""
                                     : byte == '\\' ? "\\\\"
                                     : byte == '\b' ? "\\b"
                                     : byte == '\t' ? "\\t"
                                     : byte == '\n' ? "\\n"
                                     : byte == '\f' ? "\\f"
                                     : byte == '\r' ? "\\r"
                                                    : NULL;
                char other[8];
                (void)snprintf(other, sizeof other, byte < 0x20 ? "\\u%04x" : "%c", (unsigned)byte);
                int size = snprintf(expected, sizeof expected, "\"%.*s%s%.*s\"", (int)at, text,
                    escape == NULL ? other : escape, (int)(len - at - 1), text + at + 1);
                buf_clear(&f->out);
                jcs_put_string(&f->out, slice_of(text, len));
                assert_int_equal(buf_status(&f->out), OK);
                assert_int_equal(f->out.len, size);
                assert_memory_equal(f->out.data, expected, f->out.len);
            }
        }
    }
}

static void *failing_resize(void *context, void *pointer, size_t size)
{
    int *left = context;
    if (size > 0 && (*left)-- == 0) {
        return NULL;
    }
    return mem_libc.resize(NULL, pointer, size);
}

static void every_failed_allocation_is_reported_and_nothing_leaks(void **state)
{
    (void)state;
    struct buf text;
    buf_init(&text, &mem_libc, MEMORY_MAX);
    for (int i = 0; i < 300; i++) {
        buf_printf(&text, "%c\"\\t%d\":[1.25,%d]", i == 0 ? '{' : ',', i, i);
    }
    buf_char(&text, '}');
    for (int n = 0;; n++) {
        int left = n;
        struct mem mem = {failing_resize, &left};
        struct arena arena;
        struct buf out;
        struct err err;
        const struct json_value *value;
        arena_init(&arena, &mem, MEMORY_MAX);
        buf_init(&out, &mem, MEMORY_MAX);
        enum status status = json_read(buf_view(&text), &arena, &value, &err);
        if (status == OK) {
            status = jcs_write(value, &out, NULL, &err);
        }
        buf_release(&out);
        arena_release(&arena);
        if (status == OK) {
            assert_true(n > 5);
            break;
        }
        assert_int_equal(status, E_NOMEM);
    }
    buf_release(&text);
}

#define WITH(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH(every_rfc_8785_vector_passes),
        WITH(a_canonical_text_is_as_expected),
        WITH(what_is_not_i_json_is_refused_with_its_place),
        WITH(every_prefix_of_a_document_is_refused),
        WITH(depth_size_and_memory_are_bounded),
        WITH(large_objects_are_sorted_and_checked_as_small_ones),
        WITH(integers_are_read_exactly_or_not_at_all),
        WITH(lossy_numbers_are_reported_and_overflow_is_refused),
        WITH(the_writer_fills_a_buffer_exactly_or_says_why_not),
        WITH(every_byte_of_a_string_is_escaped_at_every_place),
        TEST(every_failed_allocation_is_reported_and_nothing_leaks),
    };
    return cmocka_run_group_tests_name("json", tests, NULL, NULL);
}
