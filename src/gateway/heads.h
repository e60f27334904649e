/*
 * heads: fields of messages on their way through: what goes on to the upstream, what comes back to
 * the client, and what is kept of an answer to be said again.
 *
 * Promises:  hop-by-hop fields (RFC 9110 section 7.6.1: Connection and whatever it names,
 *            Keep-Alive, Proxy-*, TE, Trailer, Transfer-Encoding, Upgrade) go no further. What a
 *            client sends under our own names (Once-*) never reaches the upstream. No byte of a
 *            field can end a line (http/write.h). Set-Cookie is never kept.
 * Does not:  send, or decide.
 */
#ifndef ONCE_GATEWAY_HEADS_H
#define ONCE_GATEWAY_HEADS_H

#include "base/arena.h"
#include "config/gateway.h"
#include "core/record.h"
#include "http/serve.h"
#include "http/write.h"

/* What is added to a request for the upstream. Empty ones are left out. */
struct heads_added {
    struct slice authority;       /* Host: the upstream's unless keeps_host */
    struct slice idempotency_key; /* as an RFC 9651 string if the client's was, else bare */
    struct slice request_id;
    struct slice operation_id;
    uint64_t fence;   /* 0: none of the three */
    uint32_t attempt;
    struct slice traceparent; /* the client's, or a fresh one */
    struct slice peer;        /* for X-Forwarded-For, appended; X-Forwarded-Proto, -Host and Via too */
    bool is_tls;              /* the client's side */
    int64_t length;           /* of the body: Content-Length; -1: chunked; -2: as there is none */
};
/* The whole request head for the upstream, out of the client's: method and target as sent (an
 * absolute target becomes its path). E_NOMEM, E_LIMIT. */
enum status heads_request(
    const struct http_head *head, const struct heads_added *added, struct buf *out) MUST_CHECK;

/* All end-to-end fields of an upstream's answer into the client's, but for those the gateway says
 * itself (Idempotency-Key, Request-Id, Once-*, Idempotent-Replayed). Sets exchange->has_date. */
void heads_answer(const struct http_head *head, struct http_exchange *exchange);

/* What is kept of an answer's fields: one JSON object in canonical form, {"format":"once-http-1",
 * "headers":[["Content-Type","application/json"],…]}, of the usual ones (Content-Type,
 * Content-Encoding, Content-Language, Content-Disposition, Content-Location, Location, ETag, Link,
 * Cache-Control, Vary, Allow, Retry-After, WWW-Authenticate, Deprecation, Sunset, Warning and all
 * of the route's replay_headers; "*" there is every end-to-end field but Set-Cookie and Date), at
 * most LIMIT_OUTCOME_META_BYTES_MAX: past it E_LIMIT. Values that are not UTF-8 are kept as
 * ["Name",null,"base64"]. */
enum status heads_keep(const struct http_head *head, const struct config_route *route,
    struct buf *out) MUST_CHECK;
/* Put kept fields into an answer. False: this is no meta of ours; then nothing was put. */
bool heads_replay(struct slice meta, struct arena *arena, struct http_exchange *exchange);

/* A fresh traceparent (W3C trace context, version 00, not sampled) from 24 random bytes. */
enum { HEADS_TRACEPARENT_BYTES = 55 };
void heads_traceparent(const unsigned char random[24], char ret_text[HEADS_TRACEPARENT_BYTES + 1]);
/* Whether a client's is well formed (version 00, no zero ids). */
bool heads_traceparent_is_good(struct slice text);

/* Last-Modified and the like: "Sun, 06 Nov 1994 08:49:37 GMT". */
enum { HEADS_DATE_BYTES = 30 };
void heads_date(int64_t ms, char ret_text[HEADS_DATE_BYTES]);

#endif
