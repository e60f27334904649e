/*
 * Messages put together at random from good and odd parts, before our reader and both peers. Most
 * bytes that a fuzzer makes are refused early; most of these are nearly good, so that what we take
 * by mistake is found.
 */
#include "check_c.h"
#include "http_peers.h"
#include "prng.h"

enum { MESSAGES = 100000, TAKEN_MIN = MESSAGES / 10 };

struct parts {
    const char *const *texts; /* the first ones are good, the others odd */
    size_t good;              /* how many are */
    size_t all;               /* with the odd ones */
};

#define PARTS(good_count, ...)                                                                     \
    {                                                                                              \
        .texts = (const char *const[]){__VA_ARGS__}, .good = (good_count),                         \
        .all = sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *)                         \
    }

static const struct parts methods = PARTS(10, "GET", "POST", "PUT", "HEAD", "DELETE", "PATCH",
    "OPTIONS", "TRACE", "PROPFIND", "UNLINK", "get", "CONNECT", "SOURCE", "M-SEARCH", "PURGE", "",
    "G\tT", "PRI", "DESCRIBE", "\r\nGET", "\nGET");
static const struct parts targets = PARTS(8, "/", "/a/b?c=d", "/%20?[]{}|^", "http://a",
    "http://a/x", "HTTPS://A?q", "/a//b/../c", "/?", "*", "a", "", "/#", "/ ", "/\x80", "/%", "//",
    "http://b/", "http://a@b/", "http://a:/", "http:a", "a:80", "/\"", "/\\", "/<>", "/\x7f");
static const struct parts versions = PARTS(4, " HTTP/1.1\r\n", " HTTP/1.1\r\n", " HTTP/1.1\r\n",
    " HTTP/1.0\r\n", " HTTP/1.1\n", "\tHTTP/1.1\r\n", "  HTTP/1.1\r\n", " HTTP/1.1 \r\n",
    " HTTP/1.2\r\n", " http/1.1\r\n", " HTTP/11\r\n", "\r\n", " HTTP/2.0\r\n");
static const struct parts statuses = PARTS(8, "200 OK", "201 ", "404", "304 Not Modified",
    "204 No Content", "100 Continue", "500 \xc3\xa9", "302 Found", "101 Switching", "99 x", "1000",
    "600 x", " 200 OK", "200\tOK", "200 \x01", "200  two", "20");
static const struct parts names = PARTS(12, "Host", "Content-Length", "Transfer-Encoding",
    "Connection", "X", "Upgrade", "Expect", "Proxy-Connection", "Keep-Alive", "TE", "Trailer",
    "Content-Type", "Content-Length ", "Content-Lengt", "Content-Lengthy", "Transfer-Encodin",
    "Transfer-Encodings", "Transfer_Encoding", "transfer-encoding", "CONTENT-LENGTH", "", " X",
    "X\t", "\xff", "Hos", "Hosts", "Connections", "Connectio", "upgrad", "a\"b", "@");
static const struct parts separators =
    PARTS(3, ": ", ":", ":\t ", " : ", "", ":  ", ":\r\n ", ":\x0b", "=", "::");
static const struct parts values = PARTS(12, "a", "0", "3", "chunked", "close", "keep-alive",
    "100-continue", "upgrade", "", "a, b", "keep-alive, close", "x \t y", "03", "+3", "3,3", "3 ",
    "0x3", "-1", "99999999999999999999", "18446744073709551615", "9999999999999999999",
    "18446744073709551618", "CHUNKED", "chunked, chunked", "gzip, chunked", "chunked ", "identity",
    "chunked,", ",chunked", "chunked;a=b", "close, ,", "\"close\"", "Upgrade, close", "Host",
    "keep-alive\t", "keep-alive x", "\xff\x80", "a\rb", "a\x01", "a\x7f", "[::1]:80", "a:1", "b",
    "closed", "xclose", "chunkedx", "3\t",
    "\x0c"
    "3");
static const struct parts ends = PARTS(1, "\r\n", "\n", "\r", "\r\r\n", " \r\n", "\n\r");
static const struct parts bodies = PARTS(8, "", "abc", "3\r\nabc\r\n0\r\n\r\n", "0\r\n\r\n",
    "1;a=b\r\nx\r\n0;c\r\n\r\n", "2\r\nab\r\n1\r\nc\r\n0\r\nX: y\r\n\r\n",
    "03\r\nabc\r\n00\r\n\r\n", "1;a=\"b c\"\r\nx\r\n0\r\n\r\n", "3 \r\nabc\r\n0\r\n\r\n",
    "0x3\r\nabc\r\n0\r\n\r\n", "3\nabc\n0\n\n", "3\r\nabcd\r\n0\r\n\r\n", "3\r\nab\r\n0\r\n\r\n",
    "3;\r\nabc\r\n0\r\n\r\n", "3;a;b\r\nabc\r\n0\r\n\r\n", "3;a=\"\\\"\"\r\nabc\r\n0\r\n\r\n",
    "3;a=\r\nabc\r\n0\r\n\r\n", "0\r\nContent-Length: 3\r\n\r\n", "0\r\nX : y\r\n\r\n",
    "0\r\nX: y\r\n z\r\n\r\n", "0\r\n: y\r\n\r\n", "0\r\nX\r\n\r\n", "0\r\nX: y\n\r\n",
    "0\r\nTransfer-Encodings: x\r\n\r\n", "0\r\n\n", "0\r\n\r", "0\n\r\n", "-0\r\n\r\n",
    "ffffffffffffffff\r\n", "10000000000000003\r\nabc\r\n0\r\n\r\n", "\r\n0\r\n\r\n", "g\r\n",
    "3\r\nabc\n0\r\n\r\n", "3\r\nabc0\r\n\r\n", "3\r\rabc\r\n0\r\n\r\n");

/* Of thirty-two parts one is odd; any of them may be. */
static const char *pick(struct prng *prng, const struct parts *parts)
{
    return parts->texts[prng_below(prng, prng_once_in(prng, 32) ? parts->all : parts->good)];
}

static void put_field(struct prng *prng, struct buf *out, const char *name, const char *value)
{
    buf_str(out, name);
    buf_str(out, pick(prng, &separators));
    buf_str(out, value);
    buf_str(out, pick(prng, &ends));
}

static void put_framing(struct prng *prng, struct buf *out)
{
    switch (prng_below(prng, 4)) {
    case 0: put_field(prng, out, "Content-Length", "3"); break;
    case 1: put_field(prng, out, "Transfer-Encoding", "chunked"); break;
    case 2: put_field(prng, out, pick(prng, &names), pick(prng, &values)); break;
    default: break;
    }
}

static void put_message(struct prng *prng, struct buf *out, bool is_response)
{
    buf_clear(out);
    if (is_response) {
        buf_str(out, prng_once_in(prng, 8) ? "HTTP/1.0 " : "HTTP/1.1 ");
        buf_str(out, pick(prng, &statuses));
        buf_str(out, pick(prng, &ends));
    } else {
        buf_str(out, prng_once_in(prng, 32) ? "\r\n" : "");
        buf_str(out, pick(prng, &methods));
        buf_str(out, prng_once_in(prng, 64) ? "  " : " ");
        buf_str(out, pick(prng, &targets));
        buf_str(out, pick(prng, &versions));
        if (!prng_once_in(prng, 32)) {
            put_field(prng, out, "Host", "a");
        }
    }
    put_framing(prng, out);
    for (uint64_t i = prng_below(prng, 3); i > 0; i--) {
        put_field(prng, out, pick(prng, &names), pick(prng, &values));
    }
    buf_str(out, pick(prng, &ends));
    buf_str(out, pick(prng, &bodies));
}

static void check_messages(uint64_t seed, bool is_response)
{
    struct prng prng = {seed};
    struct buf bytes;
    struct drive drive;
    size_t taken = 0;
    buf_init(&bytes, &mem_libc, 1 << 20);
    drive_init(&drive);
    for (size_t i = 0; i < MESSAGES; i++) {
        put_message(&prng, &bytes, is_response);
        struct drive_input input = {.bytes = buf_view(&bytes),
            .is_response = is_response,
            .method = prng_once_in(&prng, 8) ? HTTP_METHOD_HEAD : HTTP_METHOD_GET,
            .is_closed = is_response && prng_once_in(&prng, 2),
            .limits = HTTP_LIMITS_DEFAULT};
        drive_run(&drive, &input);
        if (drive.verdict == HTTP_DONE) {
            taken++;
            http_peers_check(&drive, &input);
        }
    }
    print_message("%zu of %d taken\n", taken, MESSAGES);
    assert_true(taken >= TAKEN_MIN);
    drive_release(&drive);
    buf_release(&bytes);
}

static void random_requests_that_we_take_are_read_the_same_by_the_peers(void **state)
{
    (void)state;
    check_messages(1, false);
}

static void random_responses_that_we_take_are_read_the_same_by_the_peers(void **state)
{
    (void)state;
    check_messages(2, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(random_requests_that_we_take_are_read_the_same_by_the_peers),
        TEST(random_responses_that_we_take_are_read_the_same_by_the_peers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
