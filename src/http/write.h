/*
 * write: makes the heads of responses and of requests to an upstream.
 *
 * Promises:  no byte from a caller can end a line or a head: a name that is not a token, or a
 *            value with a control character, fails the whole head (E_INVALID), which is then
 *            removed from the buffer. A head says at most once how its body ends.
 * Does not:  send, or choose fields on its own.
 * Use:       http_put_response or http_put_request, fields, http_put_end. Failures stick, so only
 *            the end has to be checked.
 */
#ifndef ONCE_HTTP_WRITE_H
#define ONCE_HTTP_WRITE_H

#include "base/buf.h"
#include "http/head.h"

struct http_put {
    struct buf *out;    /* the head is appended to it */
    size_t start;       /* where it begins */
    bool is_framed;     /* a length or chunked was given */
    enum status status; /* OK, or the first failure */
};

/* "HTTP/1.1 201 Created". The status is one of ours or was read: in 100 to 599. */
void http_put_response(struct http_put *put, struct buf *out, unsigned status);
/* "POST /a?b HTTP/1.1". The target has no byte that could end it. */
void http_put_request(
    struct http_put *put, struct buf *out, struct slice method, struct slice target);

/* Any field but Content-Length and Transfer-Encoding, which are E_INVALID here. */
void http_put_field(struct http_put *put, struct slice name, struct slice value);
void http_put_number(struct http_put *put, struct slice name, uint64_t value);
/* How the body ends; one of them at most. */
void http_put_length(struct http_put *put, uint64_t bytes);
void http_put_chunked(struct http_put *put);

/* The empty line. OK, E_INVALID, E_NOMEM or E_LIMIT; on failure the buffer is as it was. */
enum status http_put_end(struct http_put *put) MUST_CHECK;

/* One chunk with its framing; nothing for no data, which would end the body. */
void http_put_chunk(struct buf *out, struct slice data);
void http_put_last_chunk(struct buf *out);

/* "Created" for 201; of an unregistered one, the name of its class. */
const char *http_status_phrase(unsigned status);

enum { HTTP_DATE_BYTES = 30 }; /* of a date and its terminator */
/* "Sun, 06 Nov 1994 08:49:37 GMT" (RFC 9110 section 5.6.7); times before 1970 and after 9999 are
 * clamped. Returns its argument. */
char *http_put_date(char ret_text[HTTP_DATE_BYTES], int64_t ms);

#endif
