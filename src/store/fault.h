/*
 * fault: a wrapper around a store that counts calls and fails on demand.
 *
 * A fault before the call passes nothing on: the call certainly did not happen. A fault after the
 * call passes it on and then reports failure: the call happened, and the caller does not know. A
 * commit that fails with E_STALE before it is passed on reports every change that expects a version
 * as stale. A commit without one is passed on, and the fault applies to the next one.
 *
 * A reader is that of the wrapped store, without faults.
 *
 * Ownership: owns the wrapped store after fault_new; closing the wrapper closes both.
 */
#ifndef ONCE_STORE_FAULT_H
#define ONCE_STORE_FAULT_H

#include "store/wrap.h"

enum fault_when { FAULT_BEFORE, FAULT_AFTER };

/* On failure the caller still owns the wrapped store. */
enum status fault_new(struct store *wrapped, const struct mem *mem, struct store **ret_store,
    struct err *err) MUST_CHECK;
/* Frees only the wrapper: the caller owns the wrapped store again. */
struct store *fault_take(struct store *fault);
/* Makes the nth call of that operation from now on (1: the next one) fail with the status. One
 * fault can be armed for each operation; nth 0 disarms it. */
void fault_arm(struct store *fault, enum store_call call, uint64_t nth, enum status status,
    enum fault_when when);
/* Runs the hook before each call of that operation, on the calling thread, where a test can block
 * it. NULL: no hook. Set it only while no call is running. */
void fault_hook(
    struct store *fault, enum store_call call, void (*hook)(void *context), void *context);
/* Whether a fault is armed and has not struck yet. */
bool fault_is_armed(const struct store *fault, enum store_call call);
/* How often the operation was called so far. */
uint64_t fault_calls(const struct store *fault, enum store_call call);
/* How many prepared batches ended without a commit so far. */
uint64_t fault_aborts(const struct store *fault);

#endif
