/*
 * The HTTP writer, by the exact bytes, and the table of characters against the RFCs' own lists.
 */
#include "base/buf.h"
#include "check_c.h"
#include "http/chars.h"
#include "http/head.h"
#include "http/write.h"

static void check_kind(int kind, const char *listed, bool has_high)
{
    for (unsigned c = 0; c < 256; c++) {
        bool expected = c >= 128 ? has_high : c != 0 && strchr(listed, (int)c) != NULL;
        if (http_is((char)c, kind) != expected) {
            fail_msg("byte %02x is wrong for kind %d", c, kind);
        }
    }
}

static void every_byte_is_of_the_kinds_that_the_rfcs_say(void **state)
{
    (void)state;
#define ALNUM "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
    check_kind(HTTP_TOKEN, ALNUM "!#$%&'*+-.^_`|~", false);
    check_kind(HTTP_VALUE, ALNUM "\t !\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~", true);
    check_kind(HTTP_TARGET, ALNUM "-._~!$&'()*+,;=:@/?%[]{|}^", false);
    check_kind(HTTP_HOST, ALNUM "-._~", false);
    check_kind(HTTP_HEXDIG, "0123456789abcdefABCDEF", false);
    check_kind(HTTP_DIGIT, "0123456789", false);
}

static void a_response_head_is_written_to_the_byte(void **state)
{
    (void)state;
    struct buf out;
    struct http_put put;
    buf_init(&out, &mem_libc, 4096);
    buf_str(&out, "before|");
    http_put_response(&put, &out, 201);
    http_put_field(&put, SLICE_LIT("Request-Id"), SLICE_LIT("r 1"));
    http_put_field(&put, SLICE_LIT("X-Empty"), SLICE_EMPTY);
    http_put_number(&put, SLICE_LIT("Retry-After"), 0);
    http_put_length(&put, UINT64_MAX);
    assert_int_equal(http_put_end(&put), OK);
    assert_true(slice_is(buf_view(&out),
        "before|HTTP/1.1 201 Created\r\nRequest-Id: r 1\r\nX-Empty: \r\nRetry-After: 0\r\n"
        "Content-Length: 18446744073709551615\r\n\r\n"));
    buf_release(&out);
}

static void a_request_and_its_chunks_are_written_to_the_byte(void **state)
{
    (void)state;
    struct buf out;
    struct http_put put;
    buf_init(&out, &mem_libc, 4096);
    http_put_request(&put, &out, SLICE_LIT("POST"), SLICE_LIT("/a?b"));
    http_put_field(&put, SLICE_LIT("Host"), SLICE_LIT("h"));
    http_put_chunked(&put);
    assert_int_equal(http_put_end(&put), OK);
    http_put_chunk(&out, SLICE_LIT("0123456789abcdefg"));
    http_put_chunk(&out, SLICE_EMPTY);
    http_put_last_chunk(&out);
    assert_true(slice_is(buf_view(&out),
        "POST /a?b HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
        "11\r\n0123456789abcdefg\r\n0\r\n\r\n"));
    buf_release(&out);
}

static void nothing_of_a_head_with_a_bad_field_is_left(void **state)
{
    (void)state;
    const struct {
        struct slice name;
        struct slice value;
    } cases[] = {
        {SLICE_LIT("X"), SLICE_LIT("a\r\nSet-Cookie: b")},
        {SLICE_LIT("X"), SLICE_LIT("a\nb")},
        {SLICE_LIT("X"), SLICE_LIT("a\rb")},
        {SLICE_LIT("X"), SLICE_LIT("a\0b")},
        {SLICE_LIT("X"), SLICE_LIT("a\x7f")},
        {SLICE_LIT("X:"), SLICE_LIT("a")},
        {SLICE_LIT("X Y"), SLICE_LIT("a")},
        {SLICE_LIT(""), SLICE_LIT("a")},
        {SLICE_LIT("X\r\n"), SLICE_LIT("a")},
        {SLICE_LIT("content-LENGTH"), SLICE_LIT("5")},
        {SLICE_LIT("Transfer-Encoding"), SLICE_LIT("chunked")},
    };
    struct buf out;
    buf_init(&out, &mem_libc, 4096);
    buf_str(&out, "before");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct http_put put;
        http_put_response(&put, &out, 200);
        http_put_field(&put, cases[i].name, cases[i].value);
        http_put_field(&put, SLICE_LIT("Good"), SLICE_LIT("one"));
        http_put_length(&put, 1);
        assert_int_equal(http_put_end(&put), E_INVALID);
        assert_true(slice_is(buf_view(&out), "before"));
    }
    buf_release(&out);
}

static void a_request_line_cannot_be_split(void **state)
{
    (void)state;
    static const char *const targets[] = {"/a b", "/a\r\nX: y", "", "/\x80"};
    struct buf out;
    struct http_put put;
    buf_init(&out, &mem_libc, 4096);
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++) {
        http_put_request(&put, &out, SLICE_LIT("GET"), slice_str(targets[i]));
        assert_int_equal(http_put_end(&put), E_INVALID);
        assert_int_equal(out.len, 0);
    }
    http_put_request(&put, &out, SLICE_LIT("G T"), SLICE_LIT("/"));
    assert_int_equal(http_put_end(&put), E_INVALID);
    buf_release(&out);
}

static void a_head_that_does_not_fit_is_not_left_half(void **state)
{
    (void)state;
    struct buf out;
    struct http_put put;
    buf_init(&out, &mem_libc, 24);
    http_put_response(&put, &out, 200);
    http_put_field(&put, SLICE_LIT("Long"), SLICE_LIT("0123456789"));
    assert_int_equal(http_put_end(&put), E_LIMIT);
    assert_int_equal(out.len, 0);
    buf_release(&out);
}

/* Names are compared and checked eight bytes at a time: each byte at each place, in names that end
 * before, at and after such a step. */
static void every_byte_of_a_name_counts(void **state)
{
    (void)state;
    static const size_t lens[] = {1, 7, 8, 9, 16, 19, 24};
    for (size_t i = 0; i < sizeof lens / sizeof lens[0]; i++) {
        for (size_t at = 0; at < lens[i]; at++) {
            for (unsigned c = 0; c < 256; c++) {
                char name[24], capitals[24];
                memset(name, 'x', sizeof name);
                memset(capitals, 'X', sizeof capitals);
                name[at] = (char)c;
                struct buf out;
                struct http_put put;
                buf_init(&out, &mem_libc, 4096);
                http_put_response(&put, &out, 200);
                http_put_field(&put, slice_of(name, lens[i]), SLICE_LIT("v"));
                enum status status = http_put_end(&put);
                buf_release(&out);
                if (status != (http_is((char)c, HTTP_TOKEN) ? OK : E_INVALID)) {
                    fail_msg("byte %02x at %zu of %zu: %s", c, at, lens[i], status_name(status));
                }
                for (unsigned d = 0; d < 256; d++) {
                    capitals[at] = (char)d;
                    bool same = http_lower((char)c) == http_lower((char)d);
                    if (http_same_letters(name, capitals, lens[i]) != same) {
                        fail_msg("bytes %02x and %02x at %zu of %zu", c, d, at, lens[i]);
                    }
                }
            }
        }
    }
}

static void every_status_has_a_phrase(void **state)
{
    (void)state;
    assert_string_equal(http_status_phrase(422), "Unprocessable Content");
    assert_string_equal(http_status_phrase(499), "Client Error");
    assert_string_equal(http_status_phrase(299), "Success");
    for (unsigned status = 100; status < 600; status++) {
        assert_true(http_all(slice_str(http_status_phrase(status)), HTTP_VALUE));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_byte_is_of_the_kinds_that_the_rfcs_say),
        TEST(a_response_head_is_written_to_the_byte),
        TEST(a_request_and_its_chunks_are_written_to_the_byte),
        TEST(nothing_of_a_head_with_a_bad_field_is_left),
        TEST(a_request_line_cannot_be_split),
        TEST(a_head_that_does_not_fit_is_not_left_half),
        TEST(every_byte_of_a_name_counts),
        TEST(every_status_has_a_phrase),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
