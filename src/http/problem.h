/*
 * problem: RFC 9457 problem documents, the form of every refusal (docs/problems.md).
 *
 * {"type":"/docs/problems.md#idempotency_conflict","title":"Conflict","status":409,
 *  "detail":"…","code":"idempotency_conflict","effect":"no","retry":"no",
 *  "request_id":"…", "operation_id":"…"?, …,
 *  "error":{"type":"idempotency_error","code":"idempotency_conflict","message":"…"}}
 *
 * `error` repeats the code and the detail where client libraries look for them: Stripe's, and
 * similar ones, take every JSON answer without it for a success, whatever its status.
 */
#ifndef ONCE_HTTP_PROBLEM_H
#define ONCE_HTTP_PROBLEM_H

#include "http/serve.h"

/* Did anything happen? */
enum problem_effect { PROBLEM_EFFECT_NO, PROBLEM_EFFECT_YES, PROBLEM_EFFECT_UNKNOWN };
/* May the same request be sent again? */
enum problem_retry { PROBLEM_RETRY_SAFE, PROBLEM_RETRY_AFTER, PROBLEM_RETRY_NO };

struct problem {
    unsigned status;
    const char *code;       /* stable, such as "idempotency_conflict" */
    struct slice detail;    /* one sentence, lower case, the fault first */
    const char *error_type; /* in Stripe's words, for `error`; NULL: by the status */
    enum problem_effect effect;
    enum problem_retry retry;
    struct slice operation_id; /* empty: absent */
    int64_t retry_after_ms;    /* > 0: also a Retry-After field, rounded up to whole seconds */
    uint64_t body_bytes_max;   /* > 0: how much is allowed, with body_too_large */
    struct slice extra;        /* further members, as JSON text without braces; may be empty */
};

/* The document alone, as batches hold it. Sticky as all of buf. */
void problem_put(struct buf *out, const struct problem *problem, struct slice request_id);
/* Its member `error`, for refusals in a different format. */
struct jsonw;
void problem_put_error(struct jsonw *json, const struct problem *problem);
/* Answer with it. */
void problem_answer(struct http_exchange *exchange, const struct problem *problem);

#endif
