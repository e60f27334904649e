/*
 * fault: a store around a store that fails when told to.
 *
 * A fault before passes nothing on: the call certainly did not happen. A fault after passes it on
 * and then says that it failed: the call happened, and the caller does not know.
 *
 * Ownership: owns the store it wraps, from fault_new on; closing it closes that one too.
 */
#ifndef ONCE_STORE_FAULT_H
#define ONCE_STORE_FAULT_H

#include "store/store.h"

enum store_call {
    STORE_CALL_LOAD,
    STORE_CALL_FIND,
    STORE_CALL_BODY,
    STORE_CALL_COMMIT,
    STORE_CALL_FLUSH,
    STORE_CALL_FENCES,
    STORE_CALL_SCAN,
    STORE_CALL_DUE,
    STORE_CALL_ENTRIES,
    STORE_CALL_MAINTAIN,
    STORE_CALL_REMOVE,
    STORE_CALL_CLOSE,
};

enum { STORE_CALL_COUNT = STORE_CALL_CLOSE + 1 };

enum fault_when { FAULT_BEFORE, FAULT_AFTER };

/* On failure the wrapped store is still the caller's. */
enum status fault_new(struct store *wrapped, const struct mem *mem, struct store **ret_store,
    struct err *err) MUST_CHECK;
/* Fail the nth call from now on of that operation (1: the next one) with the status. One fault can
 * be armed for each operation; nth 0 disarms it. */
void fault_arm(struct store *fault, enum store_call call, uint64_t nth, enum status status,
    enum fault_when when);
/* How often it was called so far. */
uint64_t fault_calls(const struct store *fault, enum store_call call);
/* "load", "commit", … */
const char *store_call_name(enum store_call call);

#endif
