/*
 * fields: the fields of messages that pass through: those sent to the upstream, those returned to
 * the client, and those of an answer that are kept for replays.
 *
 * Promises:  hop-by-hop fields (RFC 9110 section 7.6.1: Connection and whatever it names,
 *            Keep-Alive, Proxy-*, TE, Trailer, Transfer-Encoding, Upgrade) are not passed on. A
 *            client's fields under our own names (Once-*) never reach the upstream. No byte of a
 *            field can end a line (http/write.h). Set-Cookie is never kept.
 * Does not:  send, or decide.
 */
#ifndef ONCE_HTTP_FIELDS_H
#define ONCE_HTTP_FIELDS_H

#include "base/err.h"
#include "canon/json.h"
#include "http/serve.h"
#include "http/write.h"

/*
 * What is added to a request for the upstream. Each replaces the client's own field of that name;
 * an empty one is left out, and the client's is passed on unchanged. The client's Once-* never is.
 */
struct fields_added {
    struct slice authority;       /* Host; empty: the client's */
    struct slice idempotency_key; /* as an RFC 9651 string if the client's was, else bare */
    struct slice request_id;
    struct slice operation_id;
    uint64_t fence; /* 0: none of the three */
    uint32_t attempt;
    struct slice traceparent; /* the client's, or a fresh one */
    struct slice peer;        /* as of an exchange: its address is appended to X-Forwarded-For, and
                                 X-Forwarded-Proto and -Host are added if absent */
    bool is_tls;              /* the client's side */
    struct slice upgrade;     /* the protocol that is asked for; empty: none is */
    bool is_identity;         /* the answer will be kept: no content coding is requested, whatever
                                 the client accepts */
    int64_t length;           /* of the body, or HTTP_LENGTH_CHUNKED, or HTTP_LENGTH_ABSENT */
};
/* The whole request head for the upstream, out of the client's: method and target as sent (an
 * absolute target becomes its path), fields in their order, then what is added, with "Via: 1.1
 * once". E_NOMEM, E_LIMIT; E_INVALID: what is added cannot be sent. */
enum status fields_request(
    const struct http_head *head, const struct fields_added *added, struct buf *out) MUST_CHECK;

/* The protocol that a request asks to be switched to, or that a 101 switches to (RFC 9110 section
 * 7.8); empty: none, or several. A client's fields that ask for it are not passed on, unless they
 * are added here.
 */
struct slice fields_upgrade(const struct http_head *head);

/* Copies all end-to-end fields of an upstream's answer into the client's, except the length and
 * those the gateway sets itself (Idempotency-Key, Request-Id, Once-*, Idempotent-Replayed,
 * Original-Request-Id). The upstream's own Request-Id, if it is not the exchange's, becomes
 * Upstream-Request-Id. Sets exchange->has_date. */
void fields_answer(const struct http_head *head, struct http_exchange *exchange);

/* What is kept of an answer's fields: one JSON object in canonical form, {"format":"once-http-1",
 * "headers":[["Content-Type","application/json"],…]}, of the usual ones (Content-Type,
 * Content-Encoding, Content-Language, Content-Disposition, Content-Location, Location, ETag, Link,
 * Cache-Control, Vary, Allow, Retry-After, WWW-Authenticate, Deprecation, Sunset, Warning and all
 * those of `kept`; "*" there is every end-to-end field except those that belong to one exchange:
 * Date, Age, Server-Timing, RateLimit*, X-RateLimit*, X-Rate-Limit*), at most
 * LIMIT_OUTCOME_META_BYTES_MAX: past it E_LIMIT. E_NOMEM. On failure nothing is appended. Values
 * that are not UTF-8 are kept as ["Name",null,"base64"]. Never kept, whatever `kept` says:
 * Set-Cookie, hop-by-hop fields, and those the gateway sets itself, such as Last-Modified on a
 * replay. kept NULL: only what is needed to read the body. request_id is the exchange's, kept as
 * Original-Request-Id; empty: it has none. The upstream's own is kept as Upstream-Request-Id. */
struct fields_kept {
    const char *const *names; /* beside the usual ones */
    size_t count;
};
enum status fields_keep(const struct http_head *head, const struct fields_kept *kept,
    struct slice request_id, struct buf *out) MUST_CHECK;
/* The same of fields that somebody lists, as [["Content-Type","text/plain"],…]; NULL: no list. A
 * type that is not empty becomes Content-Type if the list has none. E_INVALID names a field that is
 * malformed or never kept; E_LIMIT, E_NOMEM. On failure nothing is appended. */
enum status fields_keep_listed(const struct json_value *list, struct slice type,
    struct arena *arena, struct buf *out, struct err *err) MUST_CHECK;
/* Whether it looks like ours, and not like one of a different door. */
bool fields_is_ours(struct slice meta);
/* How kept fields are replayed. */
struct fields_how {
    bool without_origin; /* the caller sets Access-Control-Allow-Origin and -Credentials itself: the
                            first answer may have been for a different page, or for no page */
};
/* Put kept fields into an answer; sets exchange->has_date where one is a Date. E_INVALID: it is not
 * our meta, for example because the outcome came through a different door. E_NOMEM: the answer must
 * wait, because it would lack its fields. On failure nothing was put. */
enum status fields_replay(struct slice meta, const struct fields_how *how, const struct mem *mem,
    struct http_exchange *exchange, struct err *err) MUST_CHECK;

/* A fresh traceparent (W3C trace context, version 00, not sampled) from 24 random bytes. */
enum { FIELDS_TRACEPARENT_BYTES = 55 };
void fields_traceparent(
    const unsigned char random[24], char ret_text[FIELDS_TRACEPARENT_BYTES + 1]);
/* The client's traceparent, empty unless there is one and it is well formed: of version 00, or of a
 * later version that begins in the same way (section 3.2.4), without ids of zeros. */
struct slice fields_traceparent_of(const struct http_head *head);
/* The trace-id in it, or empty. */
struct slice fields_trace_id(const struct http_head *head);

#endif
