/*
 * mem: a store in memory. Nothing survives closing it; everything else is as store.h promises.
 *
 * The reference that the other stores are compared with, and the store of the simulation. Simple on
 * purpose: records are a sorted list, entries a plain one.
 */
#ifndef ONCE_STORE_MEM_H
#define ONCE_STORE_MEM_H

#include "store/store.h"

/* E_NOMEM, E_UNAVAILABLE: no random bytes for its identity. */
enum status mem_store_open(
    const struct store_options *options, struct store **ret_store, struct err *err) MUST_CHECK;

#endif
