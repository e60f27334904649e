/*
 * mem: a store that keeps everything in memory and forgets it at close.
 *
 * The reference for the others: the simplest thing that keeps S1, S3 and S5 to S7. Nothing of it
 * survives the process, so it is for tests, simulations and trying things out.
 */
#ifndef ONCE_STORE_MEM_H
#define ONCE_STORE_MEM_H

#include "store/store.h"

/* identity may be NULL: random keys are made. */
enum status store_mem_new(const struct mem *mem, const struct store_identity *identity,
    struct store **ret_store, struct err *err) MUST_CHECK;

#endif
