/*
 * head: reads the head of an HTTP/1.1 message, strictly (RFC 9112), as its bytes arrive.
 *
 * Promises:  the verdict depends only on the bytes, never on how they were split; each byte is read
 *            a bounded number of times; an ambiguous head is refused; what is accepted here is
 *            accepted, with the same meaning, by http-parser and llhttp.
 * Does not:  allocate, read bodies (http/body.h), decode or normalise paths, judge whether a route
 *            or a method is allowed, or remember anything of the previous message.
 * Ownership: everything found is kept as places in the caller's buffer. The buffer may move between
 *            calls, as long as it still begins with the same bytes; after HTTP_DONE the caller
 *            sets head->base when it moves the buffer.
 * Threads:   none; two heads share nothing.
 */
#ifndef ONCE_HTTP_HEAD_H
#define ONCE_HTTP_HEAD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/slice.h"
#include "base/status.h"
#include "http/limits.h"

enum http_verdict {
    HTTP_MORE,    /* well so far; call again with more bytes */
    HTTP_DATA,    /* a piece of a body (http/body.h) */
    HTTP_DONE,    /* complete */
    HTTP_REFUSED, /* see the refusal; answer it if it is a request, then close */
};

/* Why bytes were refused. For a response the status is what a gateway answers: 502. */
struct http_refusal {
    unsigned status;    /* 400, 413, 414, 417, 431, 501, 502 or 505 */
    const char *reason; /* a short text for a problem document; static */
};

/* The known methods; any other is 501. CONNECT is not here: this is not a tunnel. */
enum http_method {
    HTTP_METHOD_NONE, /* a response, or nothing read yet */
    HTTP_METHOD_GET,
    HTTP_METHOD_HEAD,
    HTTP_METHOD_POST,
    HTTP_METHOD_PUT,
    HTTP_METHOD_DELETE,
    HTTP_METHOD_PATCH,
    HTTP_METHOD_OPTIONS,
    HTTP_METHOD_TRACE,
    HTTP_METHOD_OTHER, /* a method of WebDAV or similar; the text says which */
};

/* RFC 9112 section 3.2; authority-form belongs to CONNECT and is refused with it. */
enum http_form { HTTP_FORM_ORIGIN, HTTP_FORM_ABSOLUTE, HTTP_FORM_ASTERISK };

/* How the body that follows ends: RFC 9112 section 6.3. */
enum http_framing {
    HTTP_BODY_NONE,    /* there is none */
    HTTP_BODY_LENGTH,  /* after length bytes */
    HTTP_BODY_CHUNKED, /* after the last chunk and the trailers */
    HTTP_BODY_CLOSE,   /* with the connection; responses only */
};

/* A place in the buffer; http_text makes a slice of it. */
struct http_span {
    uint32_t at;  /* bytes from the beginning of the buffer */
    uint32_t len; /* bytes */
};

struct http_field {
    struct http_span name;  /* a token, as it was written */
    struct http_span value; /* without the whitespace around it; may be empty */
};

struct http_head {
    const char *base; /* the buffer of the last call */

    /* The reader's progress; private to it. */
    uint32_t scanned; /* no line feed in [line_at, scanned) */
    uint32_t line_at; /* where the line being read begins */
    bool skipped;     /* the one allowed empty line before the head was read */
    bool is_started;  /* the start line was read */
    bool is_response; /* which of the two kinds this is */

    /* The caller's, after http_head_init. */
    bool may_switch; /* a response may be 101: then what follows it ends only with the connection */

    /* What was found; valid after HTTP_DONE. */
    uint32_t bytes;               /* consumed by the head, its empty line included */
    unsigned minor;               /* HTTP/1.minor: 0 or 1 */
    enum http_method method;      /* of a request */
    enum http_form form;          /* of the target */
    bool has_query;               /* the target has a '?', maybe with nothing after it */
    bool keep_alive;              /* the connection persists after this message (section 9.3) */
    bool expect_continue;         /* the client waits for a 100 before it sends the body */
    enum http_framing framing;    /* how the body ends */
    uint64_t length;              /* of the body, for HTTP_BODY_LENGTH */
    unsigned status;              /* of a response */
    struct http_span method_text; /* as sent; methods are case-sensitive */
    struct http_span target;      /* as sent */
    struct http_span path;        /* of the target, not decoded; empty for "*" and "http://host" */
    struct http_span query;       /* after the first '?', not decoded */
    struct http_span authority;   /* host and port; empty only in HTTP/1.0 without Host */
    struct http_span reason;      /* of a response; may be empty */
    uint64_t name_lengths;        /* a bit for each length of a name, modulo 64 */
    uint32_t field_count;         /* field lines in use */
    struct http_field fields[HTTP_FIELDS_MAX]; /* in the order they came */
};

/* Make ready for the next message. The array of fields is not cleared. */
void http_head_init(struct http_head *head);
/* HTTP_METHOD_NONE: it is not known. */
enum http_method http_method_named(struct slice text);

/*
 * Read a request head from the beginning of bytes, of which each call gets at least as many as the
 * one before. HTTP_DONE with head->bytes consumed; HTTP_MORE; or HTTP_REFUSED with the refusal set.
 */
enum http_verdict http_request_head(struct slice bytes, const struct http_limits *limits,
    struct http_head *head, struct http_refusal *ret_refusal) MUST_CHECK;

/*
 * The same for a response to a request with that method, which decides whether a body follows. An
 * interim response (1xx) is done like any other; the next head follows it. 101 is refused unless
 * head->may_switch; then its framing is HTTP_BODY_CLOSE.
 */
enum http_verdict http_response_head(struct slice bytes, const struct http_limits *limits,
    enum http_method method, struct http_head *head, struct http_refusal *ret_refusal) MUST_CHECK;

static inline struct slice http_text(const struct http_head *head, struct http_span span)
{
    return span.len == 0 ? SLICE_EMPTY : slice_of(head->base + span.at, span.len);
}

/* The path with "/" for the empty one of "http://host" (RFC 9110 section 4.2.3), "*" for "*". */
struct slice http_path(const struct http_head *head);

/*
 * The index of the first field with that name, any case, at or after from; or field_count. To walk
 * a list over several lines, start again at the next index.
 */
uint32_t http_find(const struct http_head *head, struct slice name, uint32_t from);

/*
 * The value of a field that means something only once. False when it came more than once; then, as
 * when it is absent, *ret_value is left alone.
 */
bool http_find_single(
    const struct http_head *head, struct slice name, struct slice *ret_value) MUST_CHECK;

/* The next element of a comma-separated list of tokens and the like, trimmed; false at its end. */
bool http_list_next(struct slice *list, struct slice *ret_element);

/* Compares two names of the same length: only ASCII letters compare without case. */
bool http_same_letters(const char *a, const char *b, size_t len);

/* The same for names of any length. Most differ in length or in their first byte; two bytes that
 * are the same letter differ in no other bit than 0x20. */
static inline bool http_same_name(struct slice a, struct slice b)
{
    return a.len == b.len && (a.len == 0 || (((a.data[0] ^ b.data[0]) & ~0x20) == 0 &&
                                                http_same_letters(a.data, b.data, a.len)));
}

#endif
