/*
 * faulty: a store that wraps a store and fails when it is told to.
 *
 * Each plan is for the next call of its kind and is used up by it.
 */
#ifndef ONCE_TESTS_SIM_FAULTY_H
#define ONCE_TESTS_SIM_FAULTY_H

#include "store/store.h"

enum fault_plan {
    FAULT_NONE,
    FAULT_UNAVAILABLE,  /* E_UNAVAILABLE, and nothing happened */
    FAULT_UNKNOWN_NOT,  /* E_UNKNOWN, and nothing happened */
    FAULT_UNKNOWN_DONE, /* E_UNKNOWN, and it happened */
};

struct faulty {
    struct store store;
    struct store *inner; /* what does the work */
    enum fault_plan commit;
    enum fault_plan flush;
    enum fault_plan load;
};

/* The wrapper is the caller's memory; closing it closes the inner store. */
void faulty_init(struct faulty *faulty, struct store *inner);

#endif
