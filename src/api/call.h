/*
 * call: the life of a request that changes something, or of one item of a batch of them.
 *
 *     api_call_run > read (body.h) > api_call_admit > door_submit > door_turn > (engine)
 *                  > api_document_of (documents.h) > api_call_report
 *
 * Promises:  room for the answer to a change is reserved before the engine is called, so that
 *            running out of memory never hides a grant or a seal. Every decision is counted and
 *            logged once.
 */
#ifndef ONCE_API_CALL_H
#define ONCE_API_CALL_H

#include <stdatomic.h>

#include "api/routes.h"
#include "canon/json.h"
#include "canon/members.h"
#include "envelope/seal_effects.h"

/* One call to the engine for one request. A batch has many. */
struct api_call {
    struct api_request *request;
    struct buf answer; /* has room for the answer to a change before the call is submitted */
    struct slice operation_id_text; /* of the path, or of an item of a batch; may be empty */
    bool in_batch;                  /* it is an item of a batch */
    bool is_unnamed;                /* its operation_id is malformed: there is no such operation */
    int64_t flooded_ms;             /* > 0: refused as a flood; retry after this */
    size_t answer_bytes;            /* reserved in a batch's answer for this call */
    char location[64];              /* of the operation, for a first_seen */
    /* The effects of a seal: they form one dependent group with it, in one commit. */
    struct seal_effects effects;
    _Atomic size_t left;   /* of a single seal and its effects: calls not decided yet */
    struct door_call door; /* last: api_call_new clears it apart */
};

/* The answer to a call: a document in a buffer, or a problem. */
struct api_document {
    unsigned status;
    bool is_problem;
    struct problem problem;
    struct slice location;  /* empty: absent */
    int64_t retry_after_ms; /* of a document; 0: absent */
    size_t diff_bytes;      /* of a conflict */
};

/* The whole life for a request that is one call: read by the route's reader, submit, answer; or
 * refuse. */
void api_call_run(struct api_request *request);

/* A call for this request, with its arena, tenant and actor. NULL: out of memory. */
struct api_call *api_call_new(struct api_request *request) MUST_CHECK;
/* Read a value of the request's body into it, and check the limits. E_INVALID, E_NOMEM. */
enum status api_call_read(struct api_call *call, api_reader read, const struct json_value *value,
    struct member_fault *fault) MUST_CHECK;
/* Whether it may be submitted. If not, call->is_unnamed or call->flooded_ms is set. */
bool api_call_admit(struct api_call *call);
/* Count and log the answer. */
void api_call_report(struct api_call *call, const struct api_document *document);

/* The ids of this request, added to those of the body's trace (NULL: absent), as canonical JSON in
 * the arena. E_INVALID: the trace in the body is invalid. E_NOMEM. */
enum status api_trace(struct api_request *request, const struct json_value *trace,
    struct slice *ret_trace, struct err *err) MUST_CHECK;

#endif
