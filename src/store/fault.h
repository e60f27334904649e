/*
 * fault: a store around a store that counts calls and fails when it is told to.
 *
 * A fault before passes nothing on: the call certainly did not happen. A fault after passes it on
 * and then says that it failed: the call happened, and the caller does not know. A commit that is
 * E_STALE before it was passed on reports every record that it changes as stale; one that changes
 * none is let through, and the fault strikes the next.
 *
 * A reader is the wrapped store's own, with no fault.
 *
 * Ownership: owns the store it wraps, from fault_new on; closing it closes that one too.
 */
#ifndef ONCE_STORE_FAULT_H
#define ONCE_STORE_FAULT_H

#include "store/wrap.h"

enum fault_when { FAULT_BEFORE, FAULT_AFTER };

/* On failure the wrapped store is still the caller's. */
enum status fault_new(struct store *wrapped, const struct mem *mem, struct store **ret_store,
    struct err *err) MUST_CHECK;
/* Free the wrapper alone: the store that it wrapped is the caller's again. */
struct store *fault_take(struct store *fault);
/* Fail the nth call from now on of that operation (1: the next one) with the status. One fault can
 * be armed for each operation; nth 0 disarms it. */
void fault_arm(struct store *fault, enum store_call call, uint64_t nth, enum status status,
    enum fault_when when);
/* Run the hook before each call of that operation, on its thread: a test can hold it there. NULL:
 * no hook any more. Set while nobody calls. */
void fault_hook(
    struct store *fault, enum store_call call, void (*hook)(void *context), void *context);
/* Whether a fault is still to come. */
bool fault_is_armed(const struct store *fault, enum store_call call);
/* How often it was called so far. */
uint64_t fault_calls(const struct store *fault, enum store_call call);
/* How often a prepared batch was ended without a commit so far. */
uint64_t fault_aborts(const struct store *fault);

#endif
