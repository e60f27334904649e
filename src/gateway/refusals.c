#include "gateway/refusals.h"

#include "base/check.h"
#include "canon/jsonw.h"

enum { RETRY_AFTER_MS = 1000 }; /* unless whoever refuses knows better */

/* One kind of refusal: the parts that all profiles share, and the texts of profiles that have their
 * own. */
struct refusal_form {
    unsigned status;
    const char *code; /* of problem documents; also adr007's and stripe's if theirs is NULL */
    const char *detail;
    enum problem_effect effect;
    enum problem_retry retry;
    const char *guardia_code;
    const char *guardia_reason;
    const char *adr007_error; /* NULL: the code */
    const char *stripe_type;
    const char *stripe_code; /* NULL: the code */
};

#define INVALID_REQUEST "invalid_request_error" /* Stripe's type for a caller's mistake */
#define API_ERROR       "api_error"             /* and for a server's failure */

/* A code that the API has too is the API's. Guardia's codes are ERR, the status and its name; for
 * 400 its documents say INVALID_ARGUMENT. `effect` is the operation's, as far as it is known: a
 * running operation may already have had its effect, so that nobody uses a different key for it. */
static const struct refusal_form forms[REFUSAL_KINDS] = {
    [REFUSAL_KEY_MISSING] = {400, "idempotency_key_missing",
        "the Idempotency-Key field is missing; nothing was done", PROBLEM_EFFECT_NO,
        PROBLEM_RETRY_NO, "ERR400_INVALID_ARGUMENT", "IDEMPOTENCY_KEY_REQUIRED", NULL,
        INVALID_REQUEST, NULL},
    [REFUSAL_KEY_INVALID] = {400, "idempotency_key_invalid",
        "the Idempotency-Key field is not well formed; nothing was done", PROBLEM_EFFECT_NO,
        PROBLEM_RETRY_NO, "ERR400_INVALID_ARGUMENT", "IDEMPOTENCY_KEY_INVALID", NULL,
        INVALID_REQUEST, NULL},
    [REFUSAL_PRINCIPAL] = {401, "unauthorized",
        "the request does not say whose it is; nothing was done", PROBLEM_EFFECT_NO,
        PROBLEM_RETRY_NO, "ERR401_UNAUTHORIZED", "PRINCIPAL_REQUIRED", NULL, INVALID_REQUEST, NULL},
    [REFUSAL_REQUEST] = {400, "malformed_request",
        "the path or the query of the request is not well formed; nothing was done",
        PROBLEM_EFFECT_NO, PROBLEM_RETRY_NO, "ERR400_INVALID_ARGUMENT", "MALFORMED_REQUEST", NULL,
        INVALID_REQUEST, NULL},
    [REFUSAL_UPGRADE] = {400, "upgrade_not_fenced",
        "a fenced request cannot become a WebSocket; nothing was done", PROBLEM_EFFECT_NO,
        PROBLEM_RETRY_NO, "ERR400_INVALID_ARGUMENT", "UPGRADE_NOT_FENCED", NULL, INVALID_REQUEST,
        NULL},
    [REFUSAL_BODY_TOO_LARGE] = {413, "body_too_large",
        "the body is longer than limits.body_bytes_max; nothing was done", PROBLEM_EFFECT_NO,
        PROBLEM_RETRY_NO, "ERR413_CONTENT_TOO_LARGE", "BODY_TOO_LARGE", NULL, INVALID_REQUEST,
        NULL},
    [REFUSAL_CONFLICT] = {422, "idempotency_conflict",
        "the idempotency key was used with a different request; nothing was done",
        PROBLEM_EFFECT_NO, PROBLEM_RETRY_NO, "ERR409_CONFLICT", "CONFLICTING_IDEMPOTENT_REQUEST",
        "idempotency_mismatch", "idempotency_error", NULL},
    [REFUSAL_IN_PROGRESS] = {409, "in_progress",
        "the first request with this idempotency key is still running; ask again with the same key",
        PROBLEM_EFFECT_UNKNOWN, PROBLEM_RETRY_AFTER, "ERR409_CONFLICT",
        "IDEMPOTENT_REQUEST_IN_PROGRESS", "idempotency_in_progress", INVALID_REQUEST,
        "idempotency_key_in_use"},
    [REFUSAL_OUTCOME_UNKNOWN] = {409, "outcome_unknown",
        "nobody knows whether the effect happened; the operation is held until it is settled",
        PROBLEM_EFFECT_UNKNOWN, PROBLEM_RETRY_NO, "ERR409_CONFLICT", "OUTCOME_UNKNOWN", NULL,
        API_ERROR, NULL},
    [REFUSAL_NOT_RETAINED] = {410, "outcome_not_retained",
        "it was executed, and its answer was too large to be kept", PROBLEM_EFFECT_YES,
        PROBLEM_RETRY_NO, "ERR410_GONE", "OUTCOME_NOT_RETAINED", NULL, API_ERROR, NULL},
    [REFUSAL_FLOODED] = {429, "too_many_duplicates",
        "duplicates of this key come faster than limits.duplicate_rate", PROBLEM_EFFECT_NO,
        PROBLEM_RETRY_AFTER, "ERR429_TOO_MANY_REQUESTS", "TOO_MANY_DUPLICATES", NULL,
        INVALID_REQUEST, NULL},
    [REFUSAL_NO_ROUTE] = {404, "not_found", "no route leads to this path", PROBLEM_EFFECT_NO,
        PROBLEM_RETRY_NO, "ERR404_NOT_FOUND", "NO_ROUTE", NULL, INVALID_REQUEST, NULL},
    [REFUSAL_UNREACHABLE] = {502, "upstream_unreachable",
        "no connection to the upstream could be made; nothing was sent to it", PROBLEM_EFFECT_NO,
        PROBLEM_RETRY_SAFE, "ERR502_BAD_GATEWAY", "UPSTREAM_UNREACHABLE", NULL, API_ERROR, NULL},
    [REFUSAL_NO_ANSWER] = {504, "outcome_unknown",
        "the upstream got the request and did not answer; it may have taken effect",
        PROBLEM_EFFECT_UNKNOWN, PROBLEM_RETRY_AFTER, "ERR504_GATEWAY_TIMEOUT", "OUTCOME_UNKNOWN",
        NULL, API_ERROR, NULL},
    [REFUSAL_BROKEN_ANSWER] = {504, "outcome_unknown",
        "the upstream got the request and did not answer it whole; it may have taken effect",
        PROBLEM_EFFECT_UNKNOWN, PROBLEM_RETRY_AFTER, "ERR504_GATEWAY_TIMEOUT", "OUTCOME_UNKNOWN",
        NULL, API_ERROR, NULL},
    [REFUSAL_READ_FAILED] = {504, "upstream_failed",
        "the upstream did not answer; reading has no effect", PROBLEM_EFFECT_NO, PROBLEM_RETRY_SAFE,
        "ERR504_GATEWAY_TIMEOUT", "UPSTREAM_FAILED", NULL, API_ERROR, NULL},
    [REFUSAL_UPSTREAM_BUSY] = {503, "upstream_busy",
        "too many requests wait for the upstream; nothing was sent to it", PROBLEM_EFFECT_NO,
        PROBLEM_RETRY_AFTER, "ERR503_SERVICE_UNAVAILABLE", "UPSTREAM_BUSY", NULL, API_ERROR, NULL},
    [REFUSAL_STORE] = {503, "unavailable",
        "the store does not take anything at the moment; nothing was done", PROBLEM_EFFECT_NO,
        PROBLEM_RETRY_SAFE, "ERR503_SERVICE_UNAVAILABLE", "STORE_UNAVAILABLE", NULL, API_ERROR,
        NULL},
    [REFUSAL_NOT_SEALED] = {503, "outcome_not_sealed",
        "the upstream answered, and the store could not take its answer", PROBLEM_EFFECT_UNKNOWN,
        PROBLEM_RETRY_AFTER, "ERR503_SERVICE_UNAVAILABLE", "OUTCOME_NOT_SEALED", NULL, API_ERROR,
        NULL},
    [REFUSAL_OVERLOADED] = {503, "overloaded", "the server is overloaded; nothing was done",
        PROBLEM_EFFECT_NO, PROBLEM_RETRY_AFTER, "ERR503_SERVICE_UNAVAILABLE", "OVERLOADED", NULL,
        API_ERROR, NULL},
    [REFUSAL_LIMIT] = {503, "limit_reached", "a limit of the store is reached; nothing was done",
        PROBLEM_EFFECT_NO, PROBLEM_RETRY_AFTER, "ERR503_SERVICE_UNAVAILABLE", "LIMIT_REACHED", NULL,
        API_ERROR, NULL},
    [REFUSAL_MEMORY] = {503, "out_of_memory", "out of memory; nothing was done", PROBLEM_EFFECT_NO,
        PROBLEM_RETRY_SAFE, "ERR503_SERVICE_UNAVAILABLE", "OUT_OF_MEMORY", NULL, API_ERROR, NULL},
    [REFUSAL_SPOOL] = {507, "spool_full",
        "there is no room on the disk for the body; nothing was done", PROBLEM_EFFECT_NO,
        PROBLEM_RETRY_SAFE, "ERR507_INSUFFICIENT_STORAGE", "SPOOL_FULL", NULL, API_ERROR, NULL},
};

static const char *const effect_texts[] = {
    [PROBLEM_EFFECT_NO] = "no",
    [PROBLEM_EFFECT_YES] = "yes",
    [PROBLEM_EFFECT_UNKNOWN] = "unknown",
};
static const char *const retry_texts[] = {
    [PROBLEM_RETRY_SAFE] = "safe",
    [PROBLEM_RETRY_AFTER] = "after",
    [PROBLEM_RETRY_NO] = "no",
};

const char *refusal_code(enum refusal_kind kind)
{
    ASSERT((unsigned)kind < REFUSAL_KINDS);
    return forms[kind].code;
}

unsigned refusals_status(const struct config_route *route, const struct refusal *refusal)
{
    ASSERT((unsigned)refusal->kind < REFUSAL_KINDS);
    return refusal->kind == REFUSAL_CONFLICT ? route->conflict_status : forms[refusal->kind].status;
}

/* The contents of one refusal, whatever its form. */
static struct problem problem_of(const struct config_route *route, const struct refusal *refusal)
{
    const struct refusal_form *form = &forms[refusal->kind];
    struct problem problem = {.status = refusals_status(route, refusal),
        .code = form->code,
        .error_type = form->stripe_type,
        .detail = refusal->detail.len > 0 ? refusal->detail : slice_str(form->detail),
        .effect = form->effect,
        .retry = form->retry,
        .operation_id = refusal->operation_id,
        .retry_after_ms = refusal->retry_after_ms,
        .extra = refusal->extra};
    if (refusal->kind == REFUSAL_OUTCOME_UNKNOWN && problem.retry_after_ms > 0) {
        problem.retry = PROBLEM_RETRY_AFTER; /* it is being settled, or has just been */
    }
    if (refusal->is_unfenced && problem.effect == PROBLEM_EFFECT_UNKNOWN) {
        problem.retry = PROBLEM_RETRY_NO; /* nothing would stop a second effect */
    }
    if (problem.retry == PROBLEM_RETRY_AFTER && problem.retry_after_ms == 0) {
        problem.retry_after_ms = RETRY_AFTER_MS; /* "after" without a time says nothing */
    }
    /* The upstream was called, so the effect must never be "no", not even by mistake. */
    if (refusal->kind == REFUSAL_NOT_SEALED && refusal->effect_known == PROBLEM_EFFECT_YES) {
        problem.effect = PROBLEM_EFFECT_YES;
    }
    if (refusal->kind == REFUSAL_NOT_RETAINED && refusal->is_failed) {
        problem.effect = refusal->effect_known;
        problem.detail = SLICE_LIT("it failed, and its answer was too large to be kept");
    }
    /* OPS-6: a client of this profile always finds the diff, though it may be null. */
    if (refusal->kind == REFUSAL_CONFLICT && route->profile == CONFIG_PROFILE_OPS &&
        problem.extra.len == 0) {
        problem.extra = SLICE_LIT("\"diff\":null");
    }
    return problem;
}

/* The members added to forms that have no place of their own for them. */
static void put_beside(struct jsonw *json, const struct problem *problem, struct slice request_id)
{
    jsonw_str(json, "effect", effect_texts[problem->effect]);
    jsonw_str(json, "retry", retry_texts[problem->retry]);
    jsonw_bytes(json, "request_id", request_id);
    if (problem->operation_id.len > 0) {
        jsonw_bytes(json, "operation_id", problem->operation_id);
    }
    if (problem->retry_after_ms > 0) {
        jsonw_i64(json, "retry_after_ms", problem->retry_after_ms);
    }
    if (problem->extra.len > 0) {
        buf_char(json->out, ',');
        buf_slice(json->out, problem->extra);
    }
}

static void put_guardia(struct buf *out, const struct refusal_form *form,
    const struct problem *problem, struct slice request_id)
{
    struct jsonw json = {.out = out};
    jsonw_open(&json, NULL, '{');
    jsonw_open(&json, "errors", '[');
    jsonw_open(&json, NULL, '{');
    jsonw_str(&json, "code", form->guardia_code);
    jsonw_str(&json, "reason", form->guardia_reason);
    jsonw_bytes(&json, "message", problem->detail);
    put_beside(&json, problem, request_id);
    jsonw_close(&json, '}');
    jsonw_close(&json, ']');
    problem_put_error(&json, problem);
    jsonw_close(&json, '}');
}

static void put_adr007(struct buf *out, const struct refusal_form *form,
    const struct problem *problem, struct slice request_id)
{
    struct jsonw json = {.out = out};
    jsonw_open(&json, NULL, '{');
    jsonw_str(&json, "error", form->adr007_error != NULL ? form->adr007_error : form->code);
    jsonw_bytes(&json, "message", problem->detail);
    put_beside(&json, problem, request_id);
    jsonw_close(&json, '}');
}

static void put_stripe(struct buf *out, const struct refusal_form *form,
    const struct problem *problem, struct slice request_id)
{
    struct jsonw json = {.out = out};
    jsonw_open(&json, NULL, '{');
    jsonw_open(&json, "error", '{');
    jsonw_str(&json, "type", form->stripe_type);
    jsonw_str(&json, "code", form->stripe_code != NULL ? form->stripe_code : form->code);
    jsonw_bytes(&json, "message", problem->detail);
    put_beside(&json, problem, request_id);
    jsonw_close(&json, '}');
    jsonw_close(&json, '}');
}

/* Stripe's libraries obey this field; without it they send a 409 again, three times, in vain. NULL:
 * they decide by the status. */
static const char *should_retry(enum refusal_kind kind)
{
    bool is_unknown = kind == REFUSAL_OUTCOME_UNKNOWN || kind == REFUSAL_NO_ANSWER ||
                      kind == REFUSAL_BROKEN_ANSWER;
    return is_unknown ? "false" : kind == REFUSAL_IN_PROGRESS ? "true" : NULL;
}

struct refused refusals_write(const struct config_route *route, const struct refusal *refusal,
    struct slice request_id, struct buf *out)
{
    ASSERT((unsigned)refusal->kind < REFUSAL_KINDS);
    const struct refusal_form *form = &forms[refusal->kind];
    struct problem problem = problem_of(route, refusal);
    struct refused refused = {.status = problem.status,
        .content_type = "application/json",
        .effect = effect_texts[problem.effect],
        .retry_after_ms = problem.retry_after_ms};
    if (refusal->kind == REFUSAL_PRINCIPAL && route->principal == CONFIG_PRINCIPAL_JWT) {
        refused.authenticate = "Bearer"; /* RFC 9110 section 11.6.1; a plain field has no scheme */
    }
    if (route->profile == CONFIG_PROFILE_STRIPE) {
        refused.should_retry = should_retry(refusal->kind);
    }
    switch (route->profile) {
    case CONFIG_PROFILE_IETF:
    case CONFIG_PROFILE_OPS:
        problem_put(out, &problem, request_id);
        refused.content_type = "application/problem+json";
        break;
    case CONFIG_PROFILE_GUARDIA: put_guardia(out, form, &problem, request_id); break;
    case CONFIG_PROFILE_ADR007: put_adr007(out, form, &problem, request_id); break;
    case CONFIG_PROFILE_STRIPE: put_stripe(out, form, &problem, request_id); break;
    }
    return refused;
}
