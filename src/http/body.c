#include "http/body.h"

#include "base/check.h"
#include "http/chars.h"
#include "http/impl.h"

enum http_verdict http_body_init(struct http_body *body, const struct http_head *head,
    const struct http_limits *limits, struct http_refusal *ret_refusal)
{
    *body = (struct http_body){
        .limits = *limits, .framing = head->framing, .is_response = head->is_response};
    switch (head->framing) {
    case HTTP_BODY_NONE: body->state = HTTP_STATE_END; break;
    case HTTP_BODY_CLOSE: body->state = HTTP_STATE_DATA; break;
    case HTTP_BODY_CHUNKED: body->state = HTTP_STATE_SIZE; break;
    case HTTP_BODY_LENGTH:
        body->remaining = head->length;
        body->state = head->length == 0 ? HTTP_STATE_END : HTTP_STATE_DATA;
        if (head->length > limits->body_bytes_max) {
            return http_refuse(ret_refusal, body->is_response ? 502 : 413,
                "the body is longer than body_bytes_max");
        }
        break;
    }
    return HTTP_MORE;
}

#define TO(state) (1u << HTTP_STATE_##state)

/* Every change of state. */
static enum http_verdict move_to(struct http_body *body, enum http_body_state state)
{
    static const unsigned nexts[] = {
        [HTTP_STATE_END] = 0,
        [HTTP_STATE_DATA] = TO(DATA_CR) | TO(END),
        [HTTP_STATE_SIZE] = TO(SIZE_LF) | TO(EXT_START),
        [HTTP_STATE_EXT_START] = TO(EXT_NAME),
        [HTTP_STATE_EXT_NAME] = TO(EXT_NAME) | TO(EXT_VALUE) | TO(SIZE_LF),
        [HTTP_STATE_EXT_VALUE] = TO(EXT_TOKEN) | TO(EXT_QUOTED),
        [HTTP_STATE_EXT_TOKEN] = TO(EXT_TOKEN) | TO(SIZE_LF),
        [HTTP_STATE_EXT_QUOTED] = TO(EXT_CLOSED),
        [HTTP_STATE_EXT_CLOSED] = TO(SIZE_LF),
        [HTTP_STATE_SIZE_LF] = TO(DATA) | TO(LINE),
        [HTTP_STATE_DATA_CR] = TO(DATA_LF),
        [HTTP_STATE_DATA_LF] = TO(SIZE),
        [HTTP_STATE_LINE] = TO(NAME) | TO(END_LF),
        [HTTP_STATE_NAME] = TO(NAME) | TO(VALUE),
        [HTTP_STATE_VALUE] = TO(VALUE_LF),
        [HTTP_STATE_VALUE_LF] = TO(LINE),
        [HTTP_STATE_END_LF] = TO(END),
    };
    ASSERT((nexts[body->state] & 1u << state) != 0);
    body->state = state;
    return state == HTTP_STATE_END ? HTTP_DONE : HTTP_MORE;
}

static enum http_verdict expect(struct http_body *body, char c, char wanted,
    enum http_body_state next, struct http_refusal *refusal)
{
    if (c != wanted) {
        return http_refuse(refusal, 400, "a line of a chunked body does not end in CRLF");
    }
    return move_to(body, next);
}

static unsigned hex_value(char c)
{
    return http_is(c, HTTP_DIGIT) ? (unsigned)(c - '0') : (unsigned)(http_lower(c) - 'a') + 10;
}

static enum http_verdict step_size(struct http_body *body, char c, struct http_refusal *refusal)
{
    if (http_is(c, HTTP_HEXDIG)) {
        if (body->digits == HTTP_CHUNK_DIGITS_MAX) {
            return http_refuse(refusal, 400, "a chunk size has too many digits");
        }
        body->size = body->size * 16 + hex_value(c);
        body->digits++;
        return HTTP_MORE;
    }
    if (body->digits > 0 && (c == '\r' || c == ';')) {
        return move_to(body, c == '\r' ? HTTP_STATE_SIZE_LF : HTTP_STATE_EXT_START);
    }
    return http_refuse(refusal, 400, "a chunk size is not hexadecimal digits");
}

/* The size is whole: its data or the trailers come next. */
static enum http_verdict step_size_lf(struct http_body *body, char c, struct http_refusal *refusal)
{
    if (c == '\n' && body->size > body->limits.body_bytes_max - body->total) {
        return http_refuse(refusal, 413, "the body is longer than body_bytes_max");
    }
    body->remaining = body->size;
    body->size = 0;
    body->digits = 0;
    body->ext_bytes = 0;
    return expect(body, c, '\n', body->remaining == 0 ? HTTP_STATE_LINE : HTTP_STATE_DATA, refusal);
}

/*
 * ";" name [ "=" ( token / quoted-string ) ], without the whitespace that section 7.1.1 calls bad.
 * Only one per chunk, without a backslash in its quotes, although the RFC allows more: llhttp reads
 * that differently, and no client that we know of sends it.
 */
static enum http_verdict step_ext(struct http_body *body, char c, struct http_refusal *refusal)
{
    enum http_body_state state = body->state;
    if (++body->ext_bytes > HTTP_CHUNK_EXT_BYTES_MAX ||
        ++body->ext_total > body->limits.chunk_ext_bytes_max) {
        return http_refuse(
            refusal, 413, "the chunk extensions are longer than chunk_ext_bytes_max");
    }
    if (state == HTTP_STATE_EXT_QUOTED && c != '\\' && http_is(c, HTTP_VALUE)) {
        return c == '"' ? move_to(body, HTTP_STATE_EXT_CLOSED) : HTTP_MORE;
    }
    bool is_name = state == HTTP_STATE_EXT_START || state == HTTP_STATE_EXT_NAME;
    bool is_value = state == HTTP_STATE_EXT_VALUE || state == HTTP_STATE_EXT_TOKEN;
    if ((is_name || is_value) && http_is(c, HTTP_TOKEN)) {
        return move_to(body, is_name ? HTTP_STATE_EXT_NAME : HTTP_STATE_EXT_TOKEN);
    }
    if (state == HTTP_STATE_EXT_NAME && c == '=') {
        return move_to(body, HTTP_STATE_EXT_VALUE);
    }
    if (state == HTTP_STATE_EXT_VALUE && c == '"') {
        return move_to(body, HTTP_STATE_EXT_QUOTED);
    }
    bool can_end = state == HTTP_STATE_EXT_NAME || state == HTTP_STATE_EXT_TOKEN ||
                   state == HTTP_STATE_EXT_CLOSED;
    if (can_end && c == '\r') {
        return move_to(body, HTTP_STATE_SIZE_LF);
    }
    return http_refuse(refusal, 400, "a chunk extension is malformed");
}

static enum http_verdict step_name(struct http_body *body, char c, struct http_refusal *refusal)
{
    if (http_is(c, HTTP_TOKEN)) {
        if (body->name_len == sizeof body->name) {
            return http_refuse(refusal, 431, "the name of a trailer field is too long");
        }
        body->name[body->name_len++] = c;
        return move_to(body, HTTP_STATE_NAME);
    }
    if (c != ':' || body->name_len == 0) {
        return http_refuse(refusal, 400, "a trailer field is not a token followed by a colon");
    }
    if (http_field_is(slice_of(body->name, body->name_len), HTTP_NOT_IN_TRAILER)) {
        return http_refuse(refusal, 400, "a trailer has a field that only a head may have");
    }
    body->name_len = 0;
    return move_to(body, HTTP_STATE_VALUE);
}

static enum http_verdict step_trailer(struct http_body *body, char c, struct http_refusal *refusal)
{
    if (body->state == HTTP_STATE_LINE && c == '\r') {
        return move_to(body, HTTP_STATE_END_LF);
    }
    if (++body->trailer_bytes > body->limits.trailer_bytes_max) {
        return http_refuse(refusal, 431, "the trailers are longer than trailer_bytes_max");
    }
    if (body->state != HTTP_STATE_VALUE) {
        return step_name(body, c, refusal);
    }
    if (c == '\r') {
        return move_to(body, HTTP_STATE_VALUE_LF);
    }
    return http_is(c, HTTP_VALUE)
               ? HTTP_MORE
               : http_refuse(refusal, 400, "a trailer field has a control character");
}

/* One byte of the framing of a chunked body. */
static enum http_verdict step(struct http_body *body, char c, struct http_refusal *refusal)
{
    switch (body->state) {
    case HTTP_STATE_SIZE: return step_size(body, c, refusal);
    case HTTP_STATE_EXT_START:
    case HTTP_STATE_EXT_NAME:
    case HTTP_STATE_EXT_VALUE:
    case HTTP_STATE_EXT_TOKEN:
    case HTTP_STATE_EXT_QUOTED:
    case HTTP_STATE_EXT_CLOSED: return step_ext(body, c, refusal);
    case HTTP_STATE_SIZE_LF: return step_size_lf(body, c, refusal);
    case HTTP_STATE_DATA_CR: return expect(body, c, '\r', HTTP_STATE_DATA_LF, refusal);
    case HTTP_STATE_DATA_LF: return expect(body, c, '\n', HTTP_STATE_SIZE, refusal);
    case HTTP_STATE_LINE:
    case HTTP_STATE_NAME:
    case HTTP_STATE_VALUE: return step_trailer(body, c, refusal);
    case HTTP_STATE_VALUE_LF: return expect(body, c, '\n', HTTP_STATE_LINE, refusal);
    case HTTP_STATE_END_LF: return expect(body, c, '\n', HTTP_STATE_END, refusal);
    case HTTP_STATE_END:
    case HTTP_STATE_DATA: break; /* http_body_next keeps these to itself */
    }
    ASSERT(!"a state without a step");
    return HTTP_REFUSED;
}

/* Takes the data that has arrived. A body that ends with the connection is bounded only by the
 * limit. */
static enum http_verdict take_data(struct http_body *body, struct slice bytes, size_t *ret_used,
    struct slice *ret_data, struct http_refusal *refusal)
{
    bool is_open = body->framing == HTTP_BODY_CLOSE;
    uint64_t room = is_open ? body->limits.body_bytes_max - body->total : body->remaining;
    if (bytes.len == *ret_used) {
        return HTTP_MORE;
    }
    if (room == 0) {
        return http_refuse(refusal, 413, "the body is longer than body_bytes_max");
    }
    size_t here = bytes.len - *ret_used;
    size_t len = here < room ? here : (size_t)room;
    *ret_data = slice_of(bytes.data + *ret_used, len);
    *ret_used += len;
    body->total += len;
    if (!is_open) {
        body->remaining -= len;
        if (body->remaining == 0) {
            bool is_chunk = body->framing == HTTP_BODY_CHUNKED;
            (void)move_to(body, is_chunk ? HTTP_STATE_DATA_CR : HTTP_STATE_END);
        }
    }
    return HTTP_DATA;
}

enum http_verdict http_body_next(struct http_body *body, struct slice bytes, size_t *ret_used,
    struct slice *ret_data, struct http_refusal *ret_refusal)
{
    enum http_verdict verdict = HTTP_MORE;
    *ret_used = 0;
    while (verdict == HTTP_MORE && body->state != HTTP_STATE_END) {
        if (body->state == HTTP_STATE_DATA) {
            verdict = take_data(body, bytes, ret_used, ret_data, ret_refusal);
            break;
        }
        if (*ret_used == bytes.len) {
            break;
        }
        verdict = step(body, bytes.data[(*ret_used)++], ret_refusal);
    }
    if (verdict == HTTP_REFUSED && body->is_response) {
        ret_refusal->status = 502;
    }
    return verdict == HTTP_MORE && body->state == HTTP_STATE_END ? HTTP_DONE : verdict;
}

enum http_verdict http_body_close(struct http_body *body, struct http_refusal *ret_refusal)
{
    if (body->state == HTTP_STATE_END) {
        return HTTP_DONE;
    }
    if (body->framing == HTTP_BODY_CLOSE) {
        return move_to(body, HTTP_STATE_END);
    }
    return http_refuse(
        ret_refusal, body->is_response ? 502 : 400, "the connection closed inside a body");
}
