/* Fields on their way through the gateway, to the byte: onward, back, kept and said again. */
#include <stdio.h>

#include "answered.h"
#include "base/limits.h"
#include "canon/jcs.h"
#include "check_c.h"
#include "faulty_mem.h"
#include "http/fields.h"
#include "http/write.h"

enum { BYTES_MAX = 1 << 20 };

struct message {
    char text[40000];
    struct http_head head;
};

static const struct http_limits limits = {
    .head_bytes_max = 40000, .target_bytes_max = 8000, .fields_max = HTTP_FIELDS_MAX};

static const struct http_head *read_request(struct message *message, const char *text)
{
    struct http_refusal refusal = {.reason = "it is not whole"};
    int size = snprintf(message->text, sizeof message->text, "%s\r\n", text);
    http_head_init(&message->head);
    if (http_request_head(slice_of(message->text, (size_t)size), &limits, &message->head,
            &refusal) != HTTP_DONE) {
        fail_msg("the test's own request is refused: %s", refusal.reason);
    }
    return &message->head;
}

static const struct http_head *read_answer(struct message *message, const char *fields)
{
    struct http_refusal refusal = {.reason = "it is not whole"};
    int size =
        snprintf(message->text, sizeof message->text, "HTTP/1.1 201 Created\r\n%s\r\n", fields);
    http_head_init(&message->head);
    if (http_response_head(slice_of(message->text, (size_t)size), &limits, HTTP_METHOD_POST,
            &message->head, &refusal) != HTTP_DONE) {
        fail_msg("the test's own answer is refused: %s", refusal.reason);
    }
    return &message->head;
}

static void check_same(struct slice text, const char *expected)
{
    if (!slice_is(text, expected)) {
        fail_msg("\n--- is\n%.*s\n--- should be\n%s", SLICE_ARGS(text), expected);
    }
}

static void check_request(
    const char *request, const struct fields_added *added, const char *expected)
{
    struct message message;
    struct buf out;
    buf_init(&out, &mem_libc, BYTES_MAX);
    assert_int_equal(fields_request(read_request(&message, request), added, &out), OK);
    check_same(buf_view(&out), expected);
    buf_release(&out);
}

/* ---- to the upstream ----------------------------------------------------------------------- */

static void a_fenced_request_goes_on_with_what_is_added(void **state)
{
    (void)state;
    struct fields_added added = {.authority = SLICE_LIT("api:3000"),
        .idempotency_key = SLICE_LIT("\"k 1\""),
        .request_id = SLICE_LIT("r-2"),
        .operation_id = SLICE_LIT("op_1"),
        .fence = 7,
        .attempt = 2,
        .traceparent = SLICE_LIT("00-11111111111111111111111111111111-2222222222222222-00"),
        .peer = SLICE_LIT("192.0.2.7:51234"),
        .is_tls = true,
        .length = 3};
    check_request(
        "POST /v1/a%2Fb?x=1 HTTP/1.1\r\nhost: shop.example\r\nContent-Type: text/plain\r\n"
        "Idempotency-Key: \"k 1\"\r\nrequest-id: r-1\r\nContent-Length: 3\r\n"
        "Authorization: Bearer t\r\nCookie: a=b\r\nX-Twice: 1\r\nx-twice: 2\r\n"
        "Expect: 100-continue\r\nX-Empty:\r\ntraceparent: nonsense\r\n"
        "tracestate: a=1\r\n",
        &added,
        "POST /v1/a%2Fb?x=1 HTTP/1.1\r\nHost: api:3000\r\nContent-Type: text/plain\r\n"
        "Authorization: Bearer t\r\nCookie: a=b\r\nX-Twice: 1\r\nx-twice: 2\r\nX-Empty: \r\n"
        "X-Forwarded-For: 192.0.2.7\r\nX-Forwarded-Proto: https\r\n"
        "X-Forwarded-Host: shop.example\r\nVia: 1.1 once\r\nIdempotency-Key: \"k 1\"\r\n"
        "Request-Id: r-2\r\nOnce-Operation-Id: op_1\r\nOnce-Fence: 7\r\nOnce-Attempt: 2\r\n"
        "traceparent: 00-11111111111111111111111111111111-2222222222222222-00\r\n"
        "Content-Length: 3\r\n\r\n");
}

static void what_is_not_added_is_the_clients_own(void **state)
{
    (void)state;
    struct fields_added added = {.length = HTTP_LENGTH_ABSENT};
    check_request("GET /a HTTP/1.1\r\nHost: h:8080\r\nIdempotency-Key: k\r\nRequest-Id: r\r\n"
                  "traceparent: t\r\ntracestate: s\r\nX-Forwarded-For: 192.0.2.1\r\n",
        &added,
        "GET /a HTTP/1.1\r\nHost: h:8080\r\nIdempotency-Key: k\r\nRequest-Id: r\r\n"
        "traceparent: t\r\ntracestate: s\r\nX-Forwarded-For: 192.0.2.1\r\nVia: 1.1 once\r\n\r\n");
}

static void a_client_cannot_speak_under_our_names(void **state)
{
    (void)state;
    struct fields_added added = {.length = HTTP_LENGTH_ABSENT};
    check_request("POST / HTTP/1.1\r\nHost: h\r\nOnce-Fence: 9\r\nonce-operation-id: op_9\r\n"
                  "ONCE-ANYTHING: x\r\nOncely: y\r\nOnce-Attempt: 1\r\n",
        &added, "POST / HTTP/1.1\r\nHost: h\r\nOncely: y\r\nVia: 1.1 once\r\n\r\n");
    added.fence = 1;
    added.attempt = 1;
    added.operation_id = SLICE_LIT("op_1");
    check_request("POST / HTTP/1.1\r\nHost: h\r\nOnce-Fence: 9\r\n", &added,
        "POST / HTTP/1.1\r\nHost: h\r\nVia: 1.1 once\r\nOnce-Operation-Id: op_1\r\n"
        "Once-Fence: 1\r\nOnce-Attempt: 1\r\n\r\n");
}

static void hop_by_hop_fields_go_no_further(void **state)
{
    (void)state;
    struct fields_added added = {.length = HTTP_LENGTH_CHUNKED};
    check_request(
        "POST / HTTP/1.1\r\nHost: h\r\nConnection: x-hop , ,X-OTHER\r\nKeep-Alive: 5\r\n"
        "X-Hop: 1\r\nProxy-Authorization: Basic a\r\nProxy-Connection: close\r\nTE: trailers\r\n"
        "Trailer: X-T\r\nTransfer-Encoding: chunked\r\nUpgrade: h2c\r\nx-other: 2\r\n"
        "connection: keep-alive, X-Third\r\nX-THIRD: 3\r\nX-Fourth: 4\r\n",
        &added,
        "POST / HTTP/1.1\r\nHost: h\r\nX-Fourth: 4\r\nVia: 1.1 once\r\n"
        "Transfer-Encoding: chunked\r\n\r\n");
}

static void naming_a_list_of_ours_in_connection_takes_only_the_clients_part(void **state)
{
    (void)state;
    /* The others that matter to us cannot be named at all: the reader refuses such a head. */
    struct fields_added added = {.length = 0};
    check_request("POST / HTTP/1.1\r\nHost: h\r\nVia: 1.0 a\r\nConnection: via\r\nVIA: 1.0 b\r\n",
        &added, "POST / HTTP/1.1\r\nHost: h\r\nVia: 1.1 once\r\nContent-Length: 0\r\n\r\n");
}

static void those_who_passed_it_on_stand_in_one_line(void **state)
{
    (void)state;
    struct fields_added added = {
        .peer = SLICE_LIT("[2001:db8::1]:443"), .length = HTTP_LENGTH_ABSENT};
    check_request("GET / HTTP/1.0\r\nX-Forwarded-For: 192.0.2.1, 192.0.2.2\r\nHost: h\r\n"
                  "Via: 1.1 a\r\nx-forwarded-for:\r\nX-FORWARDED-FOR: 192.0.2.3\r\n"
                  "X-Forwarded-Proto: https\r\nX-Forwarded-Host: shop\r\nvia: 1.1 b\r\n",
        &added,
        "GET / HTTP/1.1\r\nHost: h\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: shop\r\n"
        "X-Forwarded-For: 192.0.2.1, 192.0.2.2, 192.0.2.3, 2001:db8::1\r\n"
        "Via: 1.1 a, 1.1 b, 1.0 once\r\n\r\n");
    added.peer = SLICE_LIT("unix"); /* it has no address to be told */
    check_request("GET / HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: 192.0.2.1\r\n", &added,
        "GET / HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: 192.0.2.1\r\nX-Forwarded-Proto: http\r\n"
        "X-Forwarded-Host: h\r\nVia: 1.1 once\r\n\r\n");
}

static void of_an_answer_that_is_kept_no_coding_is_asked_for(void **state)
{
    (void)state;
    struct fields_added added = {.is_identity = true, .length = HTTP_LENGTH_ABSENT};
    const char *request = "POST / HTTP/1.1\r\nHost: h\r\nAccept-Encoding: gzip, br\r\n"
                          "accept-encoding: *\r\nAccept: a/b\r\n";
    check_request(request, &added,
        "POST / HTTP/1.1\r\nHost: h\r\nAccept: a/b\r\nVia: 1.1 once\r\n"
        "Accept-Encoding: identity\r\n\r\n");
    added.is_identity = false;
    check_request(request, &added,
        "POST / HTTP/1.1\r\nHost: h\r\nAccept-Encoding: gzip, br\r\naccept-encoding: *\r\n"
        "Accept: a/b\r\nVia: 1.1 once\r\n\r\n");
}

static void an_absolute_target_becomes_its_path(void **state)
{
    (void)state;
    struct fields_added added = {.length = HTTP_LENGTH_ABSENT};
    check_request("GET http://a.example:80/b/../c?d=%20&e HTTP/1.1\r\nHost: a.example:80\r\n",
        &added, "GET /b/../c?d=%20&e HTTP/1.1\r\nHost: a.example:80\r\nVia: 1.1 once\r\n\r\n");
    check_request("GET http://a? HTTP/1.1\r\nHost: a\r\n", &added,
        "GET /? HTTP/1.1\r\nHost: a\r\nVia: 1.1 once\r\n\r\n");
    check_request("OPTIONS http://a HTTP/1.1\r\nHost: a\r\n", &added,
        "OPTIONS * HTTP/1.1\r\nHost: a\r\nVia: 1.1 once\r\n\r\n");
    check_request("OPTIONS * HTTP/1.1\r\nHost: a\r\n", &added,
        "OPTIONS * HTTP/1.1\r\nHost: a\r\nVia: 1.1 once\r\n\r\n");
}

static void a_trace_state_stays_with_its_own_parent(void **state)
{
    (void)state;
    const char *request = "GET / HTTP/1.1\r\nHost: h\r\ntracestate: s\r\ntraceparent: t\r\n";
    struct fields_added added = {.traceparent = SLICE_LIT("t"), .length = HTTP_LENGTH_ABSENT};
    check_request(request, &added,
        "GET / HTTP/1.1\r\nHost: h\r\ntracestate: s\r\nVia: 1.1 once\r\ntraceparent: t\r\n\r\n");
    added.traceparent = SLICE_LIT("u");
    check_request(
        request, &added, "GET / HTTP/1.1\r\nHost: h\r\nVia: 1.1 once\r\ntraceparent: u\r\n\r\n");
}

static void a_request_that_cannot_be_written_leaves_nothing(void **state)
{
    (void)state;
    struct message message;
    struct buf out;
    struct fields_added added = {.idempotency_key = SLICE_LIT("a\r\nX: b"), .length = 0};
    const struct http_head *head = read_request(
        &message, "GET / HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: 1, 2, 3, 4, 5, 6\r\n");
    buf_init(&out, &mem_libc, BYTES_MAX);
    assert_int_equal(fields_request(head, &added, &out), E_INVALID);
    assert_int_equal(out.len, 0);
    buf_release(&out);
    added = (struct fields_added){.peer = SLICE_LIT("192.0.2.7:1")};
    for (size_t size = 0; size < 160; size++) {
        buf_init(&out, &mem_libc, size);
        enum status status = fields_request(head, &added, &out);
        assert_true(status == E_LIMIT || (status == OK && size > 130));
        assert_true(status == OK || out.len == 0);
        buf_release(&out);
    }
}

/* ---- to the client ------------------------------------------------------------------------- */

static void an_answer_comes_back_without_what_we_say_ourselves(void **state)
{
    (void)state;
    struct message message;
    struct answered answered;
    answered_init(&answered);
    fields_answer(read_answer(&message,
                      "Content-Type: a/b\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\nX-Hop: 1\r\n"
                      "Connection: X-Hop\r\nKeep-Alive: 1\r\nContent-Length: 5\r\n"
                      "idempotency-key: u\r\nOnce-Decision: first_seen\r\nonce-x: 1\r\n"
                      "Original-Request-Id: u\r\nUpstream-Request-Id: u\r\n"
                      "Idempotent-Replayed: true\r\nServer: s\r\n"),
        &answered.exchange);
    check_same(answered_fields(&answered),
        "Content-Type: a/b\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\nServer: s\r\n");
    assert_false(answered.exchange.has_date);
    fields_answer(
        read_answer(&message, "Transfer-Encoding: chunked\r\nDATE: d\r\n"), &answered.exchange);
    check_same(answered_fields(&answered),
        "Content-Type: a/b\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\nServer: s\r\nDATE: d\r\n");
    assert_true(answered.exchange.has_date);
    answered_release(&answered);
}

static void the_upstreams_own_request_id_has_a_name_of_its_own(void **state)
{
    (void)state;
    struct message message;
    struct answered answered;
    answered_init(&answered);
    answered.exchange.request_id = SLICE_LIT("r-1");
    fields_answer(read_answer(&message, "Request-Id: r-1\r\nX: 1\r\n"), &answered.exchange);
    check_same(answered_fields(&answered), "X: 1\r\n");
    fields_answer(
        read_answer(&message, "request-id: req_7\r\nX-Request-Id: x\r\n"), &answered.exchange);
    check_same(
        answered_fields(&answered), "X: 1\r\nUpstream-Request-Id: req_7\r\nX-Request-Id: x\r\n");
    answered_release(&answered);
}

/* ---- kept, and said again ------------------------------------------------------------------ */

static void check_kept(
    const char *fields, const struct fields_kept *names, const char *kept, const char *replayed)
{
    struct message message;
    struct buf meta;
    struct answered answered;
    answered_init(&answered);
    buf_init(&meta, &mem_libc, BYTES_MAX);
    assert_int_equal(fields_keep(read_answer(&message, fields), names, SLICE_EMPTY, &meta), OK);
    check_same(buf_view(&meta), kept);
    assert_int_equal(fields_replay(buf_view(&meta), &(struct fields_how){0}, &mem_libc,
                         &answered.exchange, NULL),
        OK);
    check_same(answered_fields(&answered), replayed);
    buf_release(&meta);
    answered_release(&answered);
}

static void what_is_kept_is_said_again_byte_by_byte(void **state)
{
    (void)state;
    static const char *const list[] = {"X-Mine"};
    struct fields_kept names = {list, 1};
    check_kept("Date: d\r\ncontent-TYPE: application/json; charset=\"x\"\r\nLink: <a>\r\n"
               "X-Mine: caf\xc3\xa9\r\nx-mine: caf\xe9\r\nLink: <b>\tc\r\nX-Other: no\r\n"
               "ETag:\r\nx-MINE: \xff\r\n",
        &names,
        "{\"format\":\"once-http-1\",\"headers\":[[\"content-TYPE\",\"application/json; "
        "charset=\\\"x\\\"\"],[\"Link\",\"<a>\"],[\"X-Mine\",\"caf\xc3\xa9\"],[\"x-mine\",null,"
        "\"Y2Fm6Q==\"],[\"Link\",\"<b>\\tc\"],[\"ETag\",\"\"],[\"x-MINE\",null,\"/w==\"]]}",
        "content-TYPE: application/json; charset=\"x\"\r\nLink: <a>\r\nX-Mine: caf\xc3\xa9\r\n"
        "x-mine: caf\xe9\r\nLink: <b>\tc\r\nETag: \r\nx-MINE: \xff\r\n");
}

static void everything_usual_is_kept(void **state)
{
    (void)state;
    struct fields_kept names = {NULL, 0};
    check_kept("Content-Encoding: 1\r\nContent-Language: 2\r\nContent-Disposition: 3\r\n"
               "Content-Location: 4\r\nLocation: 5\r\nCache-Control: 6\r\nVary: 7\r\nAllow: 8\r\n"
               "Retry-After: 9\r\nWWW-Authenticate: 10\r\nDeprecation: 11\r\nSunset: 12\r\n"
               "Warning: 13\r\nServer: s\r\n",
        &names,
        "{\"format\":\"once-http-1\",\"headers\":[[\"Content-Encoding\",\"1\"],[\"Content-"
        "Language\",\"2\"],[\"Content-Disposition\",\"3\"],[\"Content-Location\",\"4\"],["
        "\"Location\",\"5\"],[\"Cache-Control\",\"6\"],[\"Vary\",\"7\"],[\"Allow\",\"8\"],["
        "\"Retry-After\",\"9\"],[\"WWW-Authenticate\",\"10\"],[\"Deprecation\",\"11\"],["
        "\"Sunset\",\"12\"],[\"Warning\",\"13\"]]}",
        "Content-Encoding: 1\r\nContent-Language: 2\r\nContent-Disposition: 3\r\n"
        "Content-Location: 4\r\nLocation: 5\r\nCache-Control: 6\r\nVary: 7\r\nAllow: 8\r\n"
        "Retry-After: 9\r\nWWW-Authenticate: 10\r\nDeprecation: 11\r\nSunset: 12\r\n"
        "Warning: 13\r\n");
}

static void no_rule_keeps_a_cookie_or_what_is_for_one_hop(void **state)
{
    (void)state;
    static const char *const list[] = {"*", "Set-Cookie", "set-cookie2", "Connection",
        "Once-Decision", "X-Hop", "Last-Modified", "Content-Length"};
    struct fields_kept names = {list, 8};
    check_kept("Set-Cookie: a=1\r\nSET-cookie: b=2\r\nSet-Cookie2: c\r\nConnection: X-Hop\r\n"
               "X-Hop: 1\r\nOnce-Decision: x\r\nOriginal-Request-Id: r\r\nContent-Length: 0\r\n"
               "Last-Modified: m\r\nDate: d\r\nProxy-Authenticate: p\r\nX-Kept: 1\r\n"
               "Keep-Alive: 3\r\n",
        &names, "{\"format\":\"once-http-1\",\"headers\":[[\"X-Kept\",\"1\"]]}", "X-Kept: 1\r\n");
    check_kept("Set-Cookie: a=1\r\n", &names, "{\"format\":\"once-http-1\",\"headers\":[]}", "");
}

static void all_fields_are_kept_but_those_of_one_exchange(void **state)
{
    (void)state;
    static const char *const list[] = {"*"};
    struct fields_kept names = {list, 1};
    check_kept("Server: s\r\nAge: 9\r\nAccess-Control-Allow-Origin: *\r\nserver-TIMING: t\r\n"
               "RateLimit: 1\r\nratelimit-policy: 2\r\nX-RateLimit-Remaining: 3\r\n"
               "X-Rate-Limit-Reset: 4\r\nContent-Digest: d\r\nX-Rate: 5\r\nExpires: e\r\n"
               "Agent: a\r\n",
        &names,
        "{\"format\":\"once-http-1\",\"headers\":[[\"Server\",\"s\"],[\"Access-Control-Allow-"
        "Origin\",\"*\"],[\"Content-Digest\",\"d\"],[\"X-Rate\",\"5\"],[\"Expires\",\"e\"],["
        "\"Agent\",\"a\"]]}",
        "Server: s\r\nAccess-Control-Allow-Origin: *\r\nContent-Digest: d\r\nX-Rate: 5\r\n"
        "Expires: e\r\nAgent: a\r\n");
}

/* What is kept of as many fields as an answer may have is one more, and can be read again. */
static void ids_of_the_first_exchange_are_kept_beside_every_field(void **state)
{
    (void)state;
    struct message message;
    struct buf meta, fields;
    struct answered answered;
    static const char *const list[] = {"*"};
    struct fields_kept names = {list, 1};
    buf_init(&fields, &mem_libc, BYTES_MAX);
    buf_init(&meta, &mem_libc, BYTES_MAX);
    for (int i = 1; i < HTTP_FIELDS_MAX; i++) {
        buf_printf(&fields, "X-%d: 1\r\n", i);
    }
    buf_str(&fields, "Request-Id: req_7\r\n");
    buf_char(&fields, '\0');
    const struct http_head *head = read_answer(&message, fields.data);
    for (int is_echo = 0; is_echo < 2; is_echo++) {
        struct slice request_id = is_echo ? SLICE_LIT("req_7") : SLICE_LIT("once-1");
        answered_init(&answered);
        buf_clear(&meta);
        assert_int_equal(fields_keep(head, &names, request_id, &meta), OK);
        assert_int_equal(fields_replay(buf_view(&meta), &(struct fields_how){0}, &mem_libc,
                             &answered.exchange, NULL),
            OK);
        struct slice all = answered_fields(&answered);
        const char *end = is_echo ? "X-99: 1\r\nOriginal-Request-Id: req_7\r\n"
                                  : "X-99: 1\r\nUpstream-Request-Id: req_7\r\n"
                                    "Original-Request-Id: once-1\r\n";
        check_same(slice_of(all.data + all.len - strlen(end), strlen(end)), end);
        answered_release(&answered);
    }
    buf_release(&meta);
    buf_release(&fields);
}

static void a_date_is_kept_only_by_name(void **state)
{
    (void)state;
    struct message message;
    struct buf meta;
    struct answered answered;
    static const char *const list[] = {"date"};
    struct fields_kept names = {list, 1};
    answered_init(&answered);
    buf_init(&meta, &mem_libc, BYTES_MAX);
    assert_int_equal(
        fields_keep(read_answer(&message, "Date: d\r\n"), &names, SLICE_EMPTY, &meta), OK);
    assert_int_equal(fields_replay(buf_view(&meta), &(struct fields_how){0}, &mem_libc,
                         &answered.exchange, NULL),
        OK);
    check_same(answered_fields(&answered), "Date: d\r\n");
    assert_true(answered.exchange.has_date);
    buf_release(&meta);
    answered_release(&answered);
}

/* A Location that makes the meta so many bytes long. */
static enum status keep_sized(size_t bytes, size_t *ret_len)
{
    static const char around[] = "{\"format\":\"once-http-1\",\"headers\":[[\"Location\",\"\"]]}";
    struct message message;
    struct buf meta;
    struct fields_kept names = {NULL, 0};
    char fields[LIMIT_OUTCOME_META_BYTES_MAX + 100];
    int len = snprintf(
        fields, sizeof fields, "Location: %0*d\r\n", (int)(bytes - (sizeof around - 1)), 0);
    assert_true(len > 0 && (size_t)len < sizeof fields);
    buf_init(&meta, &mem_libc, BYTES_MAX);
    buf_str(&meta, "before");
    enum status status = fields_keep(read_answer(&message, fields), &names, SLICE_EMPTY, &meta);
    *ret_len = meta.len - 6;
    struct answered answered;
    answered_init(&answered);
    if (status == OK) {
        struct slice text = slice_of(meta.data + 6, meta.len - 6);
        assert_int_equal(
            fields_replay(text, &(struct fields_how){0}, &mem_libc, &answered.exchange, NULL), OK);
        assert_int_equal(answered_fields(&answered).len, len);
    }
    answered_release(&answered);
    buf_release(&meta);
    return status;
}

static void more_than_the_limit_is_not_kept_and_not_cut(void **state)
{
    (void)state;
    size_t len;
    assert_int_equal(keep_sized(LIMIT_OUTCOME_META_BYTES_MAX, &len), OK);
    assert_int_equal(len, LIMIT_OUTCOME_META_BYTES_MAX);
    assert_int_equal(keep_sized(LIMIT_OUTCOME_META_BYTES_MAX + 1, &len), E_LIMIT);
    assert_int_equal(len, 0);
}

#define META(headers) "{\"format\":\"once-http-1\",\"headers\":[" headers "]}"
#define GOOD          "[\"ETag\",\"1\"]"
#define ESCAPED       "[\"ETag\",\"\\u0031\"]"

static void a_meta_that_is_not_ours_puts_nothing(void **state)
{
    (void)state;
    static const char *const metas[] = {
        "",
        "null",
        "{}",
        "[]",
        "\"once-http-1\"",
        "{\"format\":\"once-http-2\",\"headers\":[]}",
        "{\"format\":\"once-http-1\"}",
        "{\"format\":\"once-http-1\",\"headers\":{}}",
        "{\"format\":\"once-http-1\",\"headers\":[],\"more\":1}",
        "{\"format\":1,\"headers\":[]}",
        META(GOOD) "x",
        META(GOOD ",null"),
        META(GOOD ",[]"),
        META(GOOD ",[\"X\"]"),
        META(GOOD ",[\"X\",1]"),
        META(GOOD ",[1,\"x\"]"),
        META(GOOD ",[\"X\",null]"),
        META(GOOD ","),
        META(GOOD GOOD),
        META("," GOOD),
        META("[\"X\",\"a]"),
        META("[\"X\",\"a\""),
        META(GOOD ",[\"X\",\"a\",\"b\"]"),
        META(GOOD ",[\"X\",null,\"Y2Fm6Q=\"]"),
        META(GOOD ",[\"X\",null,\"Y2Fm6Q\"]"),
        META(GOOD ",[\"X\",null,\"=AAA\"]"),
        META(GOOD ",[\"X\",null,\"AA=A\"]"),
        META(GOOD ",[\"X\",null,\"A===\"]"),
        META(GOOD ",[\"X\",null,\"AA==AAAA\"]"),
        META(GOOD ",[\"X\",null,\"AA A\"]"),
        META(GOOD ",[\"X\",null,\"DQpYOiBi\"]"), /* CR LF "X: b" */
        META(GOOD ",[\"X\",null,\"YQ==\",\"b\"]"),
        META(GOOD ",[\"X\",\"a\\r\\nSet-Cookie: b\"]"),
        META(GOOD ",[\"X\",\"a\\u0000\"]"),
        META(GOOD ",[\"\",\"a\"]"),
        META(GOOD ",[\"X:\",\"a\"]"),
        META(GOOD ",[\"X\\r\\nY\",\"a\"]"),
        META(GOOD ",[\"X\xc3\xa9\",\"a\"]"),
        META(GOOD ",[\"Set-Cookie\",\"a=b\"]"),
        META(GOOD ",[\"Content-Length\",\"5\"]"),
        META(GOOD ",[\"transfer-encoding\",\"chunked\"]"),
        META(GOOD ",[\"Connection\",\"close\"]"),
        META(GOOD ",[\"Proxy-Anything\",\"x\"]"),
        META(GOOD ",[\"Once-Decision\",\"first_seen\"]"),
        META(GOOD ",[\"Idempotency-Key\",\"x\"]"),
        META(GOOD ",[\"request-id\",\"x\"]"),
        META(GOOD ",[\"last-modified\",\"x\"]"),
    };
    struct answered answered;
    answered_init(&answered);
    for (size_t i = 0; i < sizeof metas / sizeof *metas; i++) {
        struct err err = {.status = OK};
        enum status status = fields_replay(
            slice_str(metas[i]), &(struct fields_how){0}, &mem_libc, &answered.exchange, &err);
        if (status != E_INVALID || answered_fields(&answered).len != 0) {
            fail_msg("%s was taken", metas[i]);
        }
        assert_int_equal(err.status, E_INVALID);
    }
    assert_int_equal(fields_replay(slice_str(META(GOOD)), &(struct fields_how){0}, &mem_libc,
                         &answered.exchange, NULL),
        OK);
    check_same(answered_fields(&answered), "ETag: 1\r\n");
    answered_release(&answered);
}

/* Any other spelling of the JSON is read as such, and means the same. */
static void the_same_fields_are_replayed_however_they_are_spelled(void **state)
{
    (void)state;
    static const char *const metas[] = {
        META(GOOD ",[\"X-A\",\"\"],[\"X-B\",\"b c\"]"),
        META(GOOD ",[\"X-A\",\"\"],[\"X-B\",\"b\\u0020c\"]"),
        META(GOOD ",[\"X\\u002dA\",\"\"],[\"X-B\",null,\"YiBj\"]"),
        META(" " GOOD " , [ \"X-A\" , \"\" ] ,\n[\"X-B\",\"b c\"] "),
        "{\"headers\":[" GOOD ",[\"X-A\",\"\"],[\"X-B\",\"b c\"]],\"format\":\"once-http-1\"}",
    };
    for (size_t i = 0; i < sizeof metas / sizeof *metas; i++) {
        struct answered answered;
        answered_init(&answered);
        assert_int_equal(fields_replay(slice_str(metas[i]), &(struct fields_how){0}, &mem_libc,
                             &answered.exchange, NULL),
            OK);
        check_same(answered_fields(&answered), "ETag: 1\r\nX-A: \r\nX-B: b c\r\n");
        answered_release(&answered);
    }
}

static void a_full_exchange_still_replays_its_fields(void **state)
{
    (void)state;
    struct answered answered;
    answered_init(&answered);
    answered.arena.max = 0;
    assert_int_equal(fields_replay(slice_str(META(ESCAPED)), &(struct fields_how){0}, &mem_libc,
                         &answered.exchange, NULL),
        OK);
    check_same(answered_fields(&answered), "ETag: 1\r\n");
    answered_release(&answered);
}

static void a_meta_that_is_too_much_puts_nothing(void **state)
{
    (void)state;
    struct buf meta;
    struct answered answered;
    answered_init(&answered);
    buf_init(&meta, &mem_libc, BYTES_MAX);
    /* As deep as the limit lets it be: not ours, and no matter of memory. */
    for (int i = 0; i < 8000; i++) {
        buf_char(&meta, '[');
    }
    assert_int_equal(fields_replay(buf_view(&meta), &(struct fields_how){0}, &mem_libc,
                         &answered.exchange, NULL),
        E_INVALID);
    /* As many values as it can hold. */
    buf_clear(&meta);
    buf_str(&meta, "{\"format\":\"once-http-1\",\"headers\":[0");
    while (meta.len < LIMIT_OUTCOME_META_BYTES_MAX - 3) {
        buf_str(&meta, ",0");
    }
    buf_str(&meta, "]}");
    assert_int_equal(fields_replay(buf_view(&meta), &(struct fields_how){0}, &mem_libc,
                         &answered.exchange, NULL),
        E_INVALID);
    /* One field more than a head and the id of its exchange. */
    for (unsigned count = HTTP_FIELDS_MAX + 1; count <= HTTP_FIELDS_MAX + 2; count++) {
        buf_clear(&meta);
        buf_str(&meta, "{\"format\":\"once-http-1\",\"headers\":[" GOOD);
        for (unsigned i = 1; i < count; i++) {
            buf_str(&meta, "," GOOD);
        }
        buf_str(&meta, "]}");
        assert_int_equal(fields_replay(buf_view(&meta), &(struct fields_how){0}, &mem_libc,
                             &answered.exchange, NULL),
            count == HTTP_FIELDS_MAX + 1 ? OK : E_INVALID);
    }
    buf_release(&meta);
    answered_release(&answered);
}

/* ---- torture ------------------------------------------------------------------------------- */

static void short_memory_is_told_and_leaves_nothing_half_done(void **state)
{
    (void)state;
    struct message message;
    struct faulty faulty = {.fail_at = 0};
    struct mem mem = {.resize = faulty_resize, .context = &faulty};
    struct fields_added added = {.peer = SLICE_LIT("192.0.2.1:2"), .length = 5};
    static const char *const list[] = {"*"};
    struct fields_kept names = {list, 1};
    unsigned failures = 0;
    bool is_done = false;
    for (long fail_at = 1; !is_done; fail_at++) {
        struct buf request, meta;
        struct answered answered;
        answered_init(&answered);
        answered.arena.mem = &mem;
        buf_init(&request, &mem, BYTES_MAX);
        buf_init(&meta, &mem, BYTES_MAX);
        faulty_arm(&faulty, fail_at, FAULTY_FOR_GOOD);
        enum status status = fields_request(
            read_request(&message, "GET http://a/b HTTP/1.1\r\nHost: a\r\n"), &added, &request);
        assert_true(status == OK || (status == E_NOMEM && request.len == 0));
        if (status == OK) {
            status = fields_keep(
                read_answer(&message, "X: \xff\r\nETag: 1\r\n"), &names, SLICE_EMPTY, &meta);
            assert_true(status == OK || (status == E_NOMEM && meta.len == 0));
        }
        if (status == OK) {
            status = fields_replay(
                buf_view(&meta), &(struct fields_how){0}, &mem, &answered.exchange, NULL);
            assert_true(status == OK || status == E_NOMEM);
            check_same(answered_fields(&answered), status == OK ? "X: \xff\r\nETag: 1\r\n" : "");
        }
        is_done = status == OK;
        failures += !is_done;
        buf_release(&meta);
        buf_release(&request);
        answered_release(&answered);
    }
    assert_true(failures >= 4);
}

/* ---- traces and dates ---------------------------------------------------------------------- */

/* Whether a request that has this traceparent is found to have it, with its trace id. */
static bool takes_traceparent(const char *text)
{
    struct message message;
    char request[256];
    (void)snprintf(
        request, sizeof request, "GET / HTTP/1.1\r\nHost: a\r\ntraceparent: %s\r\n", text);
    const struct http_head *head = read_request(&message, request);
    struct slice found = fields_traceparent_of(head);
    struct slice trace_id = fields_trace_id(head);
    assert_int_equal(trace_id.len, found.len == 0 ? 0 : 32);
    assert_true(found.len == 0 || memcmp(trace_id.data, text + 3, 32) == 0);
    return found.len > 0 && slice_is(found, text);
}

static void a_fresh_traceparent_is_a_good_one(void **state)
{
    (void)state;
    unsigned char random[24];
    char text[FIELDS_TRACEPARENT_BYTES + 1];
    for (unsigned i = 0; i < 24; i++) {
        random[i] = (unsigned char)(i * 11);
    }
    fields_traceparent(random, text);
    assert_string_equal(text, "00-000b16212c37424d58636e79848f9aa5-b0bbc6d1dce7f2fd-00");
    assert_true(takes_traceparent(text));
    memset(random, 0, sizeof random);
    fields_traceparent(random, text);
    assert_true(takes_traceparent(text));
}

static void a_traceparent_is_taken_only_as_it_is_written(void **state)
{
    (void)state;
#define TRACE  "4bf92f3577b34da6a3ce929d0e0e4736"
#define PARENT "00f067aa0ba902b7"
    static const char *const bad[] = {
        "",
        "00-" TRACE "-" PARENT "-0",
        "00-" TRACE "-" PARENT "-011",
        "01-" TRACE "-" PARENT "-01x",
        "0g-" TRACE "-" PARENT "-01",
        "ff-" TRACE "-" PARENT "-01",
        "00-4BF92f3577b34da6a3ce929d0e0e4736-" PARENT "-01",
        "00-00000000000000000000000000000000-" PARENT "-01",
        "00-" TRACE "-0000000000000000-01",
        "00-" TRACE "-00f067aa0ba902bg-01",
        "00_" TRACE "-" PARENT "-01",
        "00-" TRACE "_" PARENT "-01",
        "00-" TRACE "-" PARENT "_01",
        "00-" TRACE "-" PARENT "-zz",
        "00-" TRACE "-" PARENT "-01-x",
    };
    assert_true(takes_traceparent("00-" TRACE "-" PARENT "-01"));
    assert_true(takes_traceparent("00-" TRACE "-" PARENT "-ff"));
    /* Section 3.2.4: a later version begins in the same way. */
    assert_true(takes_traceparent("01-" TRACE "-" PARENT "-01"));
    assert_true(takes_traceparent("01-" TRACE "-" PARENT "-01-more"));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (takes_traceparent(bad[i])) {
            fail_msg("%s was taken", bad[i]);
        }
    }
}

static void check_date(int64_t ms, const char *expected)
{
    char text[HTTP_DATE_BYTES];
    assert_string_equal(http_put_date(text, ms), expected);
}

static void dates_are_as_http_writes_them(void **state)
{
    (void)state;
    check_date(INT64_C(784111777000), "Sun, 06 Nov 1994 08:49:37 GMT"); /* RFC 9110's own */
    check_date(0, "Thu, 01 Jan 1970 00:00:00 GMT");
    check_date(-1, "Thu, 01 Jan 1970 00:00:00 GMT");
    check_date(INT64_C(1709251199999), "Thu, 29 Feb 2024 23:59:59 GMT");
    check_date(INT64_C(1709251200000), "Fri, 01 Mar 2024 00:00:00 GMT");
    check_date(INT64_MAX, "Fri, 31 Dec 9999 23:59:59 GMT");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_fenced_request_goes_on_with_what_is_added),
        TEST(what_is_not_added_is_the_clients_own),
        TEST(a_client_cannot_speak_under_our_names),
        TEST(hop_by_hop_fields_go_no_further),
        TEST(naming_a_list_of_ours_in_connection_takes_only_the_clients_part),
        TEST(those_who_passed_it_on_stand_in_one_line),
        TEST(of_an_answer_that_is_kept_no_coding_is_asked_for),
        TEST(an_absolute_target_becomes_its_path),
        TEST(a_trace_state_stays_with_its_own_parent),
        TEST(a_request_that_cannot_be_written_leaves_nothing),
        TEST(an_answer_comes_back_without_what_we_say_ourselves),
        TEST(the_upstreams_own_request_id_has_a_name_of_its_own),
        TEST(what_is_kept_is_said_again_byte_by_byte),
        TEST(everything_usual_is_kept),
        TEST(no_rule_keeps_a_cookie_or_what_is_for_one_hop),
        TEST(all_fields_are_kept_but_those_of_one_exchange),
        TEST(ids_of_the_first_exchange_are_kept_beside_every_field),
        TEST(a_date_is_kept_only_by_name),
        TEST(more_than_the_limit_is_not_kept_and_not_cut),
        TEST(a_meta_that_is_not_ours_puts_nothing),
        TEST(the_same_fields_are_replayed_however_they_are_spelled),
        TEST(a_full_exchange_still_replays_its_fields),
        TEST(a_meta_that_is_too_much_puts_nothing),
        TEST(short_memory_is_told_and_leaves_nothing_half_done),
        TEST(a_fresh_traceparent_is_a_good_one),
        TEST(a_traceparent_is_taken_only_as_it_is_written),
        TEST(dates_are_as_http_writes_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
