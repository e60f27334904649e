/*
 * mem: a store in memory. Nothing survives closing it; everything else is as store.h promises.
 *
 * The reference that the other stores are compared with, and the store of the simulation. Simple on
 * purpose: records are a sorted list, entries a plain one.
 */
#ifndef ONCE_STORE_MEM_H
#define ONCE_STORE_MEM_H

#include "store/store.h"

/* identity NULL: random keys are made. E_NOMEM; E_UNAVAILABLE: there were no random bytes. */
enum status store_mem_new(const struct mem *mem, const struct store_identity *identity,
    struct store **ret_store, struct err *err) MUST_CHECK;

#endif
