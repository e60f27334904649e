/*
 * mem: a store in memory. Nothing survives closing it; everything else is as store.h promises.
 *
 * The reference that the other stores are compared with, and a store of the simulation, which takes
 * the power away from it. Simple on purpose: records are a sorted list, entries a plain one.
 */
#ifndef ONCE_STORE_MEM_H
#define ONCE_STORE_MEM_H

#include "store/store.h"

struct store_mem_secrets {
    struct store_identity identity;
    struct store_shared shared;
};

/* secrets NULL: random ones are made. E_NOMEM; E_UNAVAILABLE: there were no random bytes. */
enum status store_mem_new(const struct store_options *options,
    const struct store_mem_secrets *secrets, struct store **ret_store, struct err *err) MUST_CHECK;

/* How many commits a power loss could take away. */
size_t store_mem_unflushed(struct store *store);
/* Of the last evidence entry that survives any crash. Any thread. */
uint64_t store_mem_durable_seq(struct store *store);
/* As after a crash and opening it again: of what was not flushed, only the first `kept` commits are
 * there. What was prepared is gone. */
void store_mem_restart(struct store *store, size_t kept);

#endif
