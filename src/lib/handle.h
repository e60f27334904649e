/*
 * handle: the definition of struct once, shared by the files of libonce.
 *
 * A handle is either a writer, which uses only an engine, or read-only, which reads its own store
 * under a lock. Never both: two readers of one journal in one process would not see the same state.
 *
 * Ownership: everything a handle returns comes from its allocator and is freed through it.
 * Threads:   any number, except for once_close.
 */
#ifndef ONCE_LIB_HANDLE_H
#define ONCE_LIB_HANDLE_H

#include <pthread.h>

#include "base/limits.h"
#include "base/vault.h"
#include "config/config.h"
#include "engine/engine.h"
#include "once/once.h"

struct once {
    struct mem mem;         /* the allocator of everything */
    struct engine *engine;  /* NULL: the handle is read-only */
    struct store *store;    /* read-only: its own; the engine owns it otherwise */
    pthread_mutex_t lock;   /* guards the read-only store and settled_count */
    pthread_cond_t settled; /* settled_count changed; waits use the monotonic clock */
    uint64_t settled_count; /* operations settled through this handle */
    struct slice tenant;    /* whose records this handle sees (P9) */
    char tenant_text[LIMIT_TENANT_BYTES_MAX + 1];
    struct config *config; /* under the lock: the types of effects; NULL: once_effect_types was not
                              called */
    struct vault *vault;   /* likewise, made once: what it sealed must stay readable */
    char *store_url;       /* as opened */
};

/* Fills error, which may be NULL, and returns the once_result of the status. A status without a
 * text gets a default text. */
int handle_error(struct once_error *error, enum status status, const struct err *err);
/* E_MISUSE: the handle is read-only. */
enum status handle_writes(const struct once *once, struct err *err) MUST_CHECK;
/* Wakes callers of once_wait: an operation is no longer in progress. */
void handle_settled(struct once *once);

/* Reads an operation id. E_INVALID: the text is not one. */
enum status handle_operation_id(const char *text, struct op_id *ret_id, struct err *err) MUST_CHECK;

#endif
