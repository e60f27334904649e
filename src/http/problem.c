#include "http/problem.h"

#include <stdio.h>

#include "base/check.h"
#include "canon/jsonw.h"
#include "http/write.h"

/* Where each code is explained: a path in this project, because there is no lasting host for it. */
#define PROBLEM_PAGE "/docs/problems.md#"
enum { PROBLEM_TYPE_BYTES = 80 };      /* the longest code has 23 */
enum { PROBLEM_BYTES_MAX = 64 << 20 }; /* of a document: one with a long diff, and a backstop */

static const char *effect_text(enum problem_effect effect)
{
    switch (effect) {
    case PROBLEM_EFFECT_NO: return "no";
    case PROBLEM_EFFECT_YES: return "yes";
    case PROBLEM_EFFECT_UNKNOWN: return "unknown";
    }
    return "unknown";
}

static const char *retry_text(enum problem_retry retry)
{
    switch (retry) {
    case PROBLEM_RETRY_SAFE: return "safe";
    case PROBLEM_RETRY_AFTER: return "after";
    case PROBLEM_RETRY_NO: return "no";
    }
    return "no";
}

/* What the caller did, or what the server did. */
static const char *error_type(const struct problem *problem)
{
    return problem->error_type != NULL ? problem->error_type
           : problem->status < 500     ? "invalid_request_error"
                                       : "api_error";
}

void problem_put_error(struct jsonw *json, const struct problem *problem)
{
    jsonw_open(json, "error", '{');
    jsonw_str(json, "type", error_type(problem));
    jsonw_str(json, "code", problem->code);
    jsonw_bytes(json, "message", problem->detail);
    jsonw_close(json, '}');
}

void problem_put(struct buf *out, const struct problem *problem, struct slice request_id)
{
    ASSERT(problem->code != NULL);
    struct jsonw json = {.out = out};
    char type[PROBLEM_TYPE_BYTES];
    int len = snprintf(type, sizeof type, "%s%s", PROBLEM_PAGE, problem->code);
    ASSERT(len > 0 && (size_t)len < sizeof type);
    jsonw_open(&json, NULL, '{');
    jsonw_str(&json, "type", type);
    jsonw_str(&json, "title", http_status_phrase(problem->status));
    jsonw_u64(&json, "status", problem->status);
    jsonw_bytes(&json, "detail", problem->detail);
    jsonw_str(&json, "code", problem->code);
    jsonw_str(&json, "effect", effect_text(problem->effect));
    jsonw_str(&json, "retry", retry_text(problem->retry));
    jsonw_bytes(&json, "request_id", request_id);
    if (problem->operation_id.len > 0) {
        jsonw_bytes(&json, "operation_id", problem->operation_id);
    }
    if (problem->retry_after_ms > 0) {
        jsonw_i64(&json, "retry_after_ms", problem->retry_after_ms);
    }
    if (problem->body_bytes_max > 0) {
        jsonw_u64(&json, "body_bytes_max", problem->body_bytes_max);
    }
    problem_put_error(&json, problem);
    if (problem->extra.len > 0) {
        buf_char(out, ',');
        buf_slice(out, problem->extra);
    }
    jsonw_close(&json, '}');
}

static void retry_after(struct http_exchange *exchange, int64_t ms)
{
    char text[24];
    size_t at = sizeof text;
    int64_t seconds = ms / 1000 + (ms % 1000 != 0);
    do {
        text[--at] = (char)('0' + seconds % 10);
        seconds /= 10;
    } while (seconds > 0);
    http_answer_field(exchange, SLICE_LIT("Retry-After"), slice_of(text + at, sizeof text - at));
}

void problem_answer(struct http_exchange *exchange, const struct problem *problem)
{
    struct buf out;
    buf_init(&out, exchange->arena->mem, PROBLEM_BYTES_MAX);
    problem_put(&out, problem, exchange->request_id);
    http_answer_begin(exchange, problem->status);
    if (problem->retry_after_ms > 0) {
        retry_after(exchange, problem->retry_after_ms);
    }
    /* Without memory for the document, only the status is sent. */
    struct slice body = buf_status(&out) == OK ? buf_view(&out) : SLICE_EMPTY;
    http_answer_end(exchange, SLICE_LIT("application/problem+json"), body, false);
    buf_release(&out);
}
