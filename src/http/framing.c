#include "base/macros.h"
#include "http/chars.h"
#include "http/impl.h"

/* Names are in lower case, in order of the alphabet. */
static const struct {
    struct slice name;
    int marks;
} field_marks[] = {
    {{"age", 3}, HTTP_NOT_IN_TRAILER},
    {{"authorization", 13}, HTTP_NOT_IN_TRAILER | HTTP_NOT_BY_CONNECTION},
    {{"cache-control", 13}, HTTP_NOT_IN_TRAILER},
    {{"connection", 10}, HTTP_NOT_IN_TRAILER | HTTP_NOT_BY_CONNECTION},
    {{"content-encoding", 16}, HTTP_NOT_IN_TRAILER | HTTP_NOT_BY_CONNECTION},
    {{"content-length", 14}, HTTP_NOT_IN_TRAILER | HTTP_NOT_BY_CONNECTION},
    {{"content-range", 13}, HTTP_NOT_IN_TRAILER | HTTP_NOT_BY_CONNECTION},
    {{"content-type", 12}, HTTP_NOT_IN_TRAILER | HTTP_NOT_BY_CONNECTION},
    {{"cookie", 6}, HTTP_NOT_IN_TRAILER | HTTP_NOT_BY_CONNECTION},
    {{"date", 4}, HTTP_NOT_IN_TRAILER},
    {{"expect", 6}, HTTP_NOT_IN_TRAILER | HTTP_NOT_BY_CONNECTION},
    {{"expires", 7}, HTTP_NOT_IN_TRAILER},
    {{"forwarded", 9}, HTTP_NOT_IN_TRAILER | HTTP_NOT_BY_CONNECTION},
    {{"host", 4}, HTTP_NOT_IN_TRAILER | HTTP_NOT_BY_CONNECTION},
    {{"idempotency-key", 15}, HTTP_NOT_IN_TRAILER | HTTP_NOT_BY_CONNECTION},
    {{"idempotent-replayed", 19}, HTTP_NOT_IN_TRAILER | HTTP_NOT_BY_CONNECTION},
    {{"keep-alive", 10}, HTTP_NOT_IN_TRAILER},
    {{"last-modified", 13}, HTTP_NOT_IN_TRAILER},
    {{"location", 8}, HTTP_NOT_IN_TRAILER},
    {{"max-forwards", 12}, HTTP_NOT_IN_TRAILER | HTTP_NOT_BY_CONNECTION},
    {{"pragma", 6}, HTTP_NOT_IN_TRAILER},
    {{"prefer", 6}, HTTP_NOT_IN_TRAILER | HTTP_NOT_BY_CONNECTION},
    {{"proxy-authenticate", 18}, HTTP_NOT_IN_TRAILER},
    {{"proxy-authorization", 19}, HTTP_NOT_IN_TRAILER},
    {{"proxy-connection", 16}, HTTP_NOT_IN_TRAILER},
    {{"range", 5}, HTTP_NOT_IN_TRAILER | HTTP_NOT_BY_CONNECTION},
    {{"request-id", 10}, HTTP_NOT_IN_TRAILER | HTTP_NOT_BY_CONNECTION},
    {{"retry-after", 11}, HTTP_NOT_IN_TRAILER},
    {{"set-cookie", 10}, HTTP_NOT_IN_TRAILER | HTTP_NOT_BY_CONNECTION},
    {{"te", 2}, HTTP_NOT_IN_TRAILER},
    {{"traceparent", 11}, HTTP_NOT_IN_TRAILER | HTTP_NOT_BY_CONNECTION},
    {{"tracestate", 10}, HTTP_NOT_IN_TRAILER | HTTP_NOT_BY_CONNECTION},
    {{"trailer", 7}, HTTP_NOT_IN_TRAILER},
    {{"upgrade", 7}, HTTP_NOT_IN_TRAILER},
    {{"vary", 4}, HTTP_NOT_IN_TRAILER},
    {{"www-authenticate", 16}, HTTP_NOT_IN_TRAILER},
};

/* Whole families: conditions, what a gateway adds, and all that http-parser takes for framing. */
static const struct {
    struct slice prefix;
    int marks;
} family_marks[] = {
    {{"if-", 3}, HTTP_NOT_IN_TRAILER | HTTP_NOT_BY_CONNECTION},
    {{"once-", 5}, HTTP_NOT_IN_TRAILER | HTTP_NOT_BY_CONNECTION},
    {{"transfer-encoding", 17}, HTTP_NOT_IN_TRAILER | HTTP_NOT_BY_CONNECTION},
    {{"x-forwarded-", 12}, HTTP_NOT_IN_TRAILER | HTTP_NOT_BY_CONNECTION},
};

bool http_field_is(struct slice name, int mark)
{
    for (size_t i = 0; i < COUNT(family_marks); i++) {
        struct slice prefix = family_marks[i].prefix;
        if (name.len >= prefix.len && http_same_name(slice_of(name.data, prefix.len), prefix)) {
            return (family_marks[i].marks & mark) != 0;
        }
    }
    for (size_t i = 0; i < COUNT(field_marks); i++) {
        if (http_same_name(name, field_marks[i].name)) {
            return (field_marks[i].marks & mark) != 0;
        }
    }
    return false;
}

/* The fields of a head that matter for framing, found in one pass. */
struct gathered {
    const struct http_field *host;     /* the last of its name, as are the others */
    const struct http_field *length;   /* Content-Length */
    const struct http_field *encoding; /* Transfer-Encoding */
    const struct http_field *expect;   /* Expect */
    bool is_repeated;                  /* one of them came twice */
    bool wants_close;                  /* Connection: close */
    bool wants_keep;                   /* Connection: keep-alive */
};

/* Section 9.3 and RFC 9110 section 7.6.1. */
static enum http_verdict read_connection(
    struct slice list, struct gathered *gathered, struct http_refusal *refusal)
{
    struct slice option;
    while (http_list_next(&list, &option)) {
        if (!http_all(option, HTTP_TOKEN)) {
            return http_refuse(refusal, 400, "a connection option is not a token");
        }
        if (http_same_name(option, SLICE_LIT("close"))) {
            gathered->wants_close = true;
        } else if (http_same_name(option, SLICE_LIT("keep-alive"))) {
            gathered->wants_keep = true;
        } else if (http_field_is(option, HTTP_NOT_BY_CONNECTION)) {
            return http_refuse(refusal, 400, "a connection option names a field that has to stay");
        }
    }
    return HTTP_DONE;
}

static void note(const struct http_field **place, const struct http_field *field, bool *repeated)
{
    *repeated = *repeated || *place != NULL;
    *place = field;
}

/* "Transfer-Encoding2": http-parser takes any such name for the shorter one. */
static bool is_near_encoding(struct slice name)
{
    struct slice encoding = SLICE_LIT("transfer-encoding");
    return name.len > encoding.len && http_same_name(slice_of(name.data, encoding.len), encoding);
}

static enum http_verdict gather(
    const struct http_head *head, struct gathered *gathered, struct http_refusal *refusal)
{
    for (uint32_t i = 0; i < head->field_count; i++) {
        const struct http_field *field = &head->fields[i];
        struct slice name = http_text(head, field->name);
        if (http_same_name(name, SLICE_LIT("host"))) {
            note(&gathered->host, field, &gathered->is_repeated);
        } else if (http_same_name(name, SLICE_LIT("expect"))) {
            note(&gathered->expect, field, &gathered->is_repeated);
        } else if (http_same_name(name, SLICE_LIT("content-length"))) {
            note(&gathered->length, field, &gathered->is_repeated);
        } else if (http_same_name(name, SLICE_LIT("transfer-encoding"))) {
            note(&gathered->encoding, field, &gathered->is_repeated);
        } else if (is_near_encoding(name)) {
            return http_refuse(refusal, 400, "a field name begins as Transfer-Encoding does");
        } else if (http_same_name(name, SLICE_LIT("connection"))) {
            enum http_verdict verdict =
                read_connection(http_text(head, field->value), gathered, refusal);
            if (verdict != HTTP_DONE) {
                return verdict;
            }
        }
    }
    if (gathered->is_repeated) {
        return http_refuse(
            refusal, 400, "Host, Content-Length, Transfer-Encoding or Expect came more than once");
    }
    return HTTP_DONE;
}

/*
 * Whitespace after a value is allowed, but for these two fields http-parser takes a tab, or any
 * whitespace, as part of the value, and other readers may too. The byte after the value is still in
 * the head: its CR.
 */
static bool is_padded(const struct http_head *head, const struct http_field *field)
{
    return field != NULL && head->base[field->value.at + field->value.len] != '\r';
}

static bool read_length(struct slice text, uint64_t *ret_length)
{
    uint64_t value = 0;
    if (!http_all(text, HTTP_DIGIT) || text.len > HTTP_LENGTH_DIGITS_MAX) {
        return false;
    }
    for (size_t i = 0; i < text.len; i++) {
        value = value * 10 + (uint64_t)(text.data[i] - '0');
    }
    *ret_length = value;
    return true;
}

/* An unknown coding before a final "chunked" is 501; anything else is 400 (6.1, 6.3). */
static enum http_verdict refuse_encoding(struct slice list, struct http_refusal *refusal)
{
    unsigned chunked = 0;
    bool is_final = false;
    struct slice coding;
    while (http_list_next(&list, &coding)) {
        is_final = http_same_name(coding, SLICE_LIT("chunked"));
        chunked += is_final ? 1 : 0;
    }
    return is_final && chunked == 1
               ? http_refuse(refusal, 501, "no transfer coding but chunked is known")
               : http_refuse(refusal, 400, "Transfer-Encoding is not chunked");
}

/* What Content-Length and Transfer-Encoding say, before method and status are considered. */
static enum http_verdict read_framing(
    struct http_head *head, const struct gathered *gathered, struct http_refusal *refusal)
{
    head->framing = HTTP_BODY_NONE;
    if (gathered->length != NULL && gathered->encoding != NULL) {
        return http_refuse(refusal, 400, "both Content-Length and Transfer-Encoding are given");
    }
    if (is_padded(head, gathered->length) || is_padded(head, gathered->encoding)) {
        return http_refuse(refusal, 400,
            "there is whitespace after the value of Content-Length or Transfer-Encoding");
    }
    if (gathered->encoding != NULL) {
        struct slice value = http_text(head, gathered->encoding->value);
        if (head->minor == 0) {
            return http_refuse(refusal, 400, "HTTP/1.0 has no Transfer-Encoding");
        }
        if (!http_same_name(value, SLICE_LIT("chunked"))) {
            return refuse_encoding(value, refusal);
        }
        head->framing = HTTP_BODY_CHUNKED;
    }
    if (gathered->length != NULL) {
        if (!read_length(http_text(head, gathered->length->value), &head->length)) {
            return http_refuse(refusal, 400, "Content-Length is not a number that fits");
        }
        head->framing = HTTP_BODY_LENGTH;
    }
    return HTTP_DONE;
}

/* Section 3.2: exactly one, well formed, and equal to the authority of an absolute target. */
static enum http_verdict read_host(
    struct http_head *head, const struct gathered *gathered, struct http_refusal *refusal)
{
    if (gathered->host == NULL) {
        return head->minor == 0 ? HTTP_DONE : http_refuse(refusal, 400, "there is no Host");
    }
    struct slice host = http_text(head, gathered->host->value);
    if (!http_is_authority(host)) {
        return http_refuse(refusal, 400, "Host is not a host with an optional port");
    }
    if (head->form == HTTP_FORM_ABSOLUTE &&
        !http_same_name(host, http_text(head, head->authority))) {
        return http_refuse(refusal, 400, "Host is not the one of the request target");
    }
    head->authority = gathered->host->value;
    return HTTP_DONE;
}

/* RFC 9110 section 10.1.1; a client of HTTP/1.0 cannot be waiting. */
static enum http_verdict read_expect(
    struct http_head *head, const struct gathered *gathered, struct http_refusal *refusal)
{
    if (gathered->expect == NULL) {
        return HTTP_DONE;
    }
    if (!http_same_name(http_text(head, gathered->expect->value), SLICE_LIT("100-continue"))) {
        return http_refuse(refusal, 417, "no expectation but 100-continue can be met");
    }
    head->expect_continue = head->minor == 1;
    return HTTP_DONE;
}

static bool persists(const struct http_head *head, const struct gathered *gathered)
{
    return !gathered->wants_close && (head->minor == 1 || gathered->wants_keep);
}

enum http_verdict http_request_fields(struct http_head *head, struct http_refusal *refusal)
{
    struct gathered gathered = {.host = NULL};
    enum http_verdict verdict = gather(head, &gathered, refusal);
    if (verdict == HTTP_DONE) {
        verdict = read_framing(head, &gathered, refusal);
    }
    if (verdict == HTTP_DONE) {
        verdict = read_host(head, &gathered, refusal);
    }
    if (verdict == HTTP_DONE) {
        verdict = read_expect(head, &gathered, refusal);
    }
    head->keep_alive = persists(head, &gathered);
    return verdict;
}

enum http_verdict http_response_fields(
    struct http_head *head, enum http_method method, struct http_refusal *refusal)
{
    struct gathered gathered = {.host = NULL};
    enum http_verdict verdict = gather(head, &gathered, refusal);
    if (verdict == HTTP_DONE) {
        verdict = read_framing(head, &gathered, refusal);
    }
    if (verdict != HTTP_DONE) {
        return verdict;
    }
    bool has_switched = head->status == 101;
    if (has_switched && !head->may_switch) {
        return http_refuse(refusal, 502, "the other side switched protocols unasked");
    }
    bool is_bare = head->status < 200 || head->status == 204;
    if (is_bare && (head->framing == HTTP_BODY_CHUNKED || head->length > 0)) {
        /* Section 6.1 and RFC 9110 section 8.6 forbid it: a server that sends it may send a body
         * too. */
        return http_refuse(refusal, 502, "a response without a body says that it has one");
    }
    if (has_switched) {
        head->framing = HTTP_BODY_CLOSE;
    } else if (is_bare || head->status == 304 || method == HTTP_METHOD_HEAD) {
        head->framing = HTTP_BODY_NONE; /* length stays: HEAD says how long the body would be */
    } else if (head->framing == HTTP_BODY_NONE) {
        head->framing = HTTP_BODY_CLOSE;
    }
    head->keep_alive = persists(head, &gathered) && head->framing != HTTP_BODY_CLOSE;
    return HTTP_DONE;
}
