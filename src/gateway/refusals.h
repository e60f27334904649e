/*
 * refusals: the refusals of each profile (docs/gateway.md, Profiles), as one table.
 *
 * Promises:  a refusal has the status, the content type and the body that its profile prescribes.
 *            In every profile the answer says whether anything happened (`effect`) and whether the
 *            same request may be sent again (`retry`): in the body where the profile's form has
 *            room for it, and always in the field Once-Effect.
 * Does not:  send.
 *
 *   ietf, ops  RFC 9457 problem documents (http/problem.h); ops always has the diff of a conflict
 *   guardia    {"errors":[{"code":"ERR409_CONFLICT","reason":"…","message":"…"}],"error":{…}}
 *   adr007     {"error":"idempotency_mismatch","message":"…","effect":"no","retry":"no",…}
 *   stripe     {"error":{"type":"idempotency_error","code":"…","message":"…"}}, Stripe-Should-Retry
 *
 * Each body has a member `error`: Stripe's libraries and similar ones take JSON without it for a
 * success.
 */
#ifndef ONCE_GATEWAY_REFUSALS_H
#define ONCE_GATEWAY_REFUSALS_H

#include "base/buf.h"
#include "config/gateway.h"
#include "http/problem.h"

enum refusal_kind {
    REFUSAL_KEY_MISSING, /* 400 */
    REFUSAL_KEY_INVALID, /* 400 */
    REFUSAL_PRINCIPAL,   /* 401: the principal cannot be determined: a field is missing, or a token
                            is invalid */
    REFUSAL_REQUEST,     /* 400: path, query */
    REFUSAL_UPGRADE,     /* 400: a fenced request asks for a WebSocket */
    REFUSAL_BODY_TOO_LARGE,  /* 413 */
    REFUSAL_CONFLICT,        /* as the route says: 422, 409 or 400 */
    REFUSAL_IN_PROGRESS,     /* 409, Retry-After */
    REFUSAL_OUTCOME_UNKNOWN, /* 409: a duplicate of an operation whose outcome is unknown */
    REFUSAL_NOT_RETAINED,    /* 410: executed, but its outcome was too large to keep */
    REFUSAL_FLOODED,         /* 429, Retry-After */
    REFUSAL_NO_ROUTE,        /* 404 */
    REFUSAL_UNREACHABLE,     /* 502: not connected, nothing was sent, released */
    REFUSAL_NO_ANSWER,       /* 504: sent, but no answer came: unknown */
    REFUSAL_BROKEN_ANSWER,   /* 504: sent, but the answer broke off or is not HTTP: unknown */
    REFUSAL_READ_FAILED,     /* 504: a read was sent and not answered: it has no effect */
    REFUSAL_UPSTREAM_BUSY,   /* 503: too many calls wait for the upstream; nothing was sent */
    REFUSAL_STORE,           /* 503: the engine or the store failed before any grant */
    REFUSAL_NOT_SEALED,      /* 503: executed, but then the store failed: effect yes or unknown */
    REFUSAL_OVERLOADED,      /* 503 */
    REFUSAL_LIMIT,           /* 503: a limit of the store is reached; the detail names it */
    REFUSAL_MEMORY,          /* 503 */
    REFUSAL_SPOOL,           /* 507: no room on disk for the body; nothing happened */
};
enum { REFUSAL_KINDS = REFUSAL_SPOOL + 1 };

struct refusal {
    enum refusal_kind kind;
    struct slice detail;       /* one sentence; empty: the kind's default */
    struct slice operation_id; /* empty: none */
    int64_t retry_after_ms;    /* 0: a second if `retry` is "after", else no Retry-After field */
    struct slice extra; /* members that explain a conflict (request_form_explain); empty: none */
    bool is_unfenced;   /* no key: the same request again is a second operation */
    bool is_failed;     /* NOT_RETAINED: the answer that was not kept reported a failure */
    enum problem_effect effect_known; /* NOT_SEALED: YES, or any other for unknown; NOT_RETAINED of
                                         a failure: whether it had an effect; else unused */
};

struct refused {
    unsigned status;
    const char *content_type;
    const char *effect;       /* "no", "yes", "unknown": the field Once-Effect */
    const char *authenticate; /* the field WWW-Authenticate of a 401; NULL: none */
    const char *should_retry; /* the field Stripe-Should-Retry; NULL: none */
    int64_t retry_after_ms;   /* the field Retry-After; 0: none */
};

/* Append the body. The route has the profile and conflict_status. Errors are sticky in buf. */
struct refused refusals_write(const struct config_route *route, const struct refusal *refusal,
    struct slice request_id, struct buf *out);

/* Only its status. */
unsigned refusals_status(const struct config_route *route, const struct refusal *refusal);

/* The word of a refusal for logs and tests, and the problem's code: "idempotency_key_missing", …;
 * the API's own code where it has one. */
const char *refusal_code(enum refusal_kind kind);

#endif
