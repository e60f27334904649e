/*
 * acknowledgement: what a provider's answer says about an effect (CCO-7).
 *
 * Promises:  an answer that is not exactly an acknowledgement is never taken for success.
 * Ownership: slices point into the text or the arena.
 */
#ifndef ONCE_EFFECT_ACKNOWLEDGEMENT_H
#define ONCE_EFFECT_ACKNOWLEDGEMENT_H

#include "envelope/effect.h"
#include "outcall/outcall.h"

struct acknowledgement {
    enum effect_ack status;
    struct slice effect_id;    /* may be empty */
    struct slice provider_ref; /* may be empty */
    bool retryable;
};

/* False: it is not an acknowledgement, or there is no memory to read it. */
bool acknowledgement_read(
    struct slice text, struct arena *arena, struct acknowledgement *ret_acknowledgement);

/* The provider's name for the effect; where is a JSON Pointer into the answer, or "header:NAME".
 * Empty: absent from the answer. */
struct slice acknowledgement_ref(const char *where, const struct outcall *out, struct arena *arena);

/* What the answer to a lookup says about the effect, by the value at a place in it. */
enum acknowledgement_found {
    ACKNOWLEDGEMENT_FOUND,
    ACKNOWLEDGEMENT_NOT_FOUND, /* the list ends before that place, or the value is null or empty */
    ACKNOWLEDGEMENT_SILENT,    /* not JSON, cut short, or of a different form */
};

/* *ret_ref is the text of the value; empty if it is not a string or number. */
enum acknowledgement_found acknowledgement_found(
    const char *where, struct slice answer, struct arena *arena, struct slice *ret_ref);

#endif
