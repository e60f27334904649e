/*
 * mem: a store in memory. Nothing survives closing it; everything else is as store.h promises.
 *
 * The other stores, embedded or shared, are compared with it, and the simulator runs on it and
 * simulates power loss. Simple on purpose: records are a sorted list, entries a plain list, and one
 * mutex guards everything.
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

/* How many commits a power loss could undo. */
size_t store_mem_unflushed(struct store *store);
/* The seq of the last evidence entry that survives any crash. Any thread. */
uint64_t store_mem_durable_seq(struct store *store);
/* Simulates a crash and reopening: of the commits that were not flushed, only the first `kept`
 * remain. A prepared batch is lost. */
void store_mem_restart(struct store *store, size_t kept);

/*
 * A model of a shared store (S9 to S15): several handles, each standing for a process, share one
 * memory. Nothing is locked between prepare and commit, so a commit may be E_STALE. A commit is
 * durable at once, unless it is deferred (store_mem_hub_defer). Different threads may use different
 * handles.
 */
/* shared NULL: random secrets are made. E_NOMEM; E_UNAVAILABLE: there were no random bytes. */
enum status store_mem_hub_new(const struct store_options *options,
    const struct store_shared *shared, struct store_mem_hub **ret_hub, struct err *err) MUST_CHECK;
/* Close all handles first. NULL is fine. */
void store_mem_hub_free(struct store_mem_hub *hub);
/* The fate of a commit that was accepted (S14): OK, or E_UNAVAILABLE: it did not happen. Called
 * with the hub's mutex: it must not call the store. */
typedef enum status (*store_mem_fate)(void *context, struct store *store, uint64_t number);
/* From now on, commits that give ret_number are under way until somebody else uses the memory, two
 * commits later, or until settle. Call it before the first handle is opened. */
void store_mem_hub_defer(struct store_mem_hub *hub, store_mem_fate fate, void *context);
/* One more handle, with its own chain. identity NULL: a random one is made. */
enum status store_mem_hub_open(struct store_mem_hub *hub, const struct store_identity *identity,
    struct store **ret_store, struct err *err) MUST_CHECK;
/* Ends a handle like kill -9 of its process: its grants are found when its heartbeat has been
 * missing for long enough. Frees the handle; close its readers first. */
void store_mem_kill(struct store *store);

#endif
