/*
 * life: one call of a request, from before the engine to behind the answer.
 *
 *     life_admit > life_submit > door_turn > (engine) > life_tell
 *
 * Promises:  room for the answer to a change is there before the engine is asked, so that being out
 *            of memory never hides a grant or a seal. Every decision is counted and logged once.
 */
#ifndef ONCE_API_LIFE_H
#define ONCE_API_LIFE_H

#include "api/show.h"

/* Reads the body, which is JSON, into a call. */
typedef enum status (*life_reader)(
    struct api_call *call, const struct json_value *body, struct ask_fault *fault);

/* The whole of it for a request that is one call: read, submit, answer; or refuse. */
void life_ask(struct api_ask *ask, life_reader read);

/* Whether a begin may be asked; else call->flooded_ms is set. */
bool life_admit(struct api_call *call);
/* Reserve the answer, submit at the end of the loop turn, and answer when it is decided; or answer
 * why not, now or then. */
void life_submit(struct api_call *call);
/* Count and log what a call was answered with. */
void life_tell(struct api_call *call, const struct shown *shown);

#endif
