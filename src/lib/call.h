/*
 * call: takes one request from the public structs to the engine, and its result back to an answer.
 *
 * Promises:  an invalid argument is reported by name, before anything happens. Everything that the
 *            answer to a change needs is allocated before the engine gets the call, so that E_NOMEM
 *            always means that nothing happened. A replay's bytes are allocated afterwards, which
 *            is harmless, because a replay changes nothing.
 * Ownership: a call owns its copies until lib_call_release. Unless it copies, the caller's strings
 *            must live until the engine has answered.
 */
#ifndef ONCE_LIB_CALL_H
#define ONCE_LIB_CALL_H

#include "lib/handle.h"

struct lib_call {
    struct engine_call engine; /* first, so that the engine's pointer is ours */
    struct once *once;
    struct arena inputs;  /* data derived or copied from the caller's structs */
    struct arena answers; /* for the engine's answer */
    void *reserve;        /* room for the answer to any change */
    size_t reserve_bytes; /* its size */
    once_done done;       /* for once_submit */
    void *done_context;
    struct lib_effects *effects; /* of a seal; NULL: none (lib/effects.h) */
    _Atomic size_t left;         /* of the seal and its effects: parts not decided yet … */
    void (*all_done)(struct lib_call *call); /* … after which this is called */
};

/* What a call asks for. */
struct lib_ask {
    const struct once_call *what;
    const struct once_bytes *effects; /* of a seal; NULL: none */
    bool copies; /* the caller's strings may be freed before the answer comes */
};

/* Checks, derives, reserves. On failure nothing is held. */
enum status lib_call_init(struct lib_call *call, struct once *once, const struct lib_ask *ask,
    struct err *err) MUST_CHECK;
/* Submits it, alone or with its effects; done is called when all of it is decided. Statuses as for
 * engine_submit. */
enum status lib_call_submit(
    struct lib_call *call, void (*done)(struct lib_call *call), struct err *err) MUST_CHECK;
void lib_call_release(struct lib_call *call);
/* Makes the answer from the engine's result, or says why there is none. With ret_answer NULL it
 * only checks the decision: E_STALE if it is not the expected one. */
enum status lib_call_answer(
    struct lib_call *call, struct once_answer **ret_answer, struct err *err) MUST_CHECK;

#endif
