/*
 * promise: what must hold of a decision whatever the model says: the promises themselves
 * (docs/promises.md), checked on one step.
 */
#ifndef ONCE_TESTS_UNIT_PROMISE_H
#define ONCE_TESTS_UNIT_PROMISE_H

#include "core/decide.h"

/* The promise that the decision breaks, in words; NULL when it breaks none. */
const char *promise_broken(const struct record *found, const struct request *request,
    struct decide_moment moment, const struct decision *said);

#endif
