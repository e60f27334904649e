/*
 * mem: a store in memory. Nothing survives closing it; everything else is as store.h promises.
 *
 * The reference that the other stores are compared with, embedded or shared, and a store of the
 * simulation, which takes the power away from it. Simple on purpose: records are a sorted list,
 * entries a plain one, and one mutex is over all of it.
 */
#ifndef ONCE_STORE_MEM_H
#define ONCE_STORE_MEM_H

#include "store/store.h"

struct store_mem_hub;

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

/*
 * One memory that several handles share, each as a process of its own: the model of a shared store
 * (S9 to S13). Nothing is locked between prepare and commit, so a commit may be E_STALE, and what
 * is committed is durable at once. Handles may be used by different threads.
 */
/* shared NULL: random secrets are made. E_NOMEM; E_UNAVAILABLE: there were no random bytes. */
enum status store_mem_hub_new(const struct store_options *options,
    const struct store_shared *shared, struct store_mem_hub **ret_hub, struct err *err) MUST_CHECK;
/* All handles are closed before it. NULL is fine. */
void store_mem_hub_free(struct store_mem_hub *hub);
/* One more handle, with a chain of its own. identity NULL: a random one is made. */
enum status store_mem_hub_open(struct store_mem_hub *hub, const struct store_identity *identity,
    struct store **ret_store, struct err *err) MUST_CHECK;
/* A handle ends as with kill -9 of its process: what it held is found when its heart has not beaten
 * for long enough. Frees the handle; its readers are closed before. */
void store_mem_kill(struct store *store);

#endif
