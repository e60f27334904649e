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
};

/* Checks, derives, reserves; copies: the caller's strings may be freed before the answer comes. On
 * failure nothing is held. */
enum status lib_call_init(struct lib_call *call, struct once *once, const struct once_call *what,
    bool copies, struct err *err) MUST_CHECK;
void lib_call_release(struct lib_call *call);
/* Makes the answer from the engine's result. With ret_answer NULL it only checks the decision:
 * E_STALE if it is not the expected one. */
enum status lib_call_answer(
    struct lib_call *call, struct once_answer **ret_answer, struct err *err) MUST_CHECK;

#endif
