/*
 * call: one call of a request, from before the engine to after the answer.
 *
 *     api_call_admit > api_call_submit > door_turn > (engine) > api_call_report
 *
 * Promises:  room for the answer to a change is there before the engine is asked, so that being out
 *            of memory never hides a grant or a seal. Every decision is counted and logged once.
 */
#ifndef ONCE_API_CALL_H
#define ONCE_API_CALL_H

#include "api/documents.h"

/* Reads the body, which is JSON, into a call. */
typedef enum status (*api_body_reader)(
    struct api_call *call, const struct json_value *body, struct api_body_fault *fault);

/* The whole of it for a request that is one call: read, submit, answer; or refuse. */
void api_call_run(struct api_ask *ask, api_body_reader read);

/* Whether a begin may be asked; else call->flooded_ms is set. */
bool api_call_admit(struct api_call *call);
/* Reserve the answer, submit at the end of the loop turn, and answer when it is decided; or answer
 * why not, now or then. */
void api_call_submit(struct api_call *call);
/* Count and log what a call was answered with. */
void api_call_report(struct api_call *call, const struct api_document *shown);

#endif
