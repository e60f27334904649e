/*
 * body: request bodies, read into calls for the engine.
 *
 * Promises:  a member that is unknown, missing or wrong is refused by its name and then nothing was
 *            asked of the engine; so is a body that is no JSON, with line and column. The tenant is
 *            the caller's, whatever the body says (P9). Everything a call points at is in the
 *            exchange: its body, its arena, or its policy.
 * Does not:  submit, or look at Content-Type.
 */
#ifndef ONCE_API_BODY_H
#define ONCE_API_BODY_H

#include "api/routes.h"
#include "canon/json.h"

/* One request to the engine for one ask. A batch has many. */
struct api_call {
    struct door_call door; /* first, so that the door's pointer, and the engine's, is ours */
    struct api_ask *ask;
    struct buf answer;   /* with room for the answer to a change before it is submitted */
    bool is_unnamed;     /* its operation_id is none, so there is no such operation */
    int64_t flooded_ms;  /* > 0: refused as a flood; when to come back */
    size_t answer_bytes; /* reserved of a batch's answer for this one */
    char location[64];   /* of the operation, for a first_seen */
};

/* Why a body is refused. */
struct api_body_fault {
    const char *code; /* "unknown_member", "invalid_member", "missing_member", "invalid_json" */
    struct err err;   /* status E_INVALID: 400; E_NOMEM: 503 */
    struct json_place place; /* of invalid_json; line 0: not known */
};

/* A call of its own for this ask, zeroed but for its arena, tenant, actor and trace. NULL: no
 * memory. */
struct api_call *api_call_new(struct api_ask *ask) MUST_CHECK;
/* Read the body of the exchange. */
enum status api_body_json(struct api_ask *ask, const struct json_value **ret_value,
    struct api_body_fault *fault) MUST_CHECK;

/* Read one object, of that exchange's body, into a call. */
enum status api_body_begin(struct api_call *call, const struct json_value *object, bool in_batch,
    struct api_body_fault *fault) MUST_CHECK;
/* operation_id is the path's for a seal alone and inside the object in a batch. */
enum status api_body_seal(struct api_call *call, const struct json_value *object, bool in_batch,
    struct api_body_fault *fault) MUST_CHECK;
/* Release, unknown and renew. */
enum status api_body_hold(struct api_call *call, enum request_kind kind,
    const struct json_value *object, struct api_body_fault *fault) MUST_CHECK;
enum status api_body_resolve(struct api_call *call, const struct json_value *object,
    struct api_body_fault *fault) MUST_CHECK;

enum status api_body_refuse(struct api_body_fault *fault, const char *code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Answer with it. */
void api_body_answer_fault(struct api_ask *ask, const struct api_body_fault *fault);
/* The ids of this request, and those of the body's trace (NULL: none) beside them: canonical JSON
 * in the arena. E_INVALID: the trace of the body is wrong. E_NOMEM. */
enum status api_trace(struct api_ask *ask, const struct json_value *trace, struct slice *ret_trace,
    struct err *err) MUST_CHECK;
/* The trace-id part of a well-formed traceparent, or empty. */
struct slice api_trace_id(const struct http_head *head);

#endif
