/*
 * wrap: the calls of a store as a list, for wrappers around a store (fault, trace).
 *
 * X(NUMBER, member, parameters, arguments) for each call that can fail; the parameters are those of
 * the member, and the arguments hand them on to the store `wrapped`.
 */
#ifndef ONCE_STORE_WRAP_H
#define ONCE_STORE_WRAP_H

#include "store/store.h"

#define STORE_CALLS(X)                                                                             \
    X(PREPARE, prepare, (struct store * store, struct store_batch * batch, struct err * err),      \
        (wrapped, batch, err))                                                                     \
    X(COMMIT, commit, (struct store * store, const struct commit *commit, struct err *err),        \
        (wrapped, commit, err))                                                                    \
    X(FLUSH, flush, (struct store * store, struct err * err), (wrapped, err))                      \
    X(READ, read, (struct store * store, struct store_batch * batch, struct err * err),            \
        (wrapped, batch, err))                                                                     \
    X(SCAN, scan,                                                                                  \
        (struct store * store, const struct scan *scan, struct arena *arena,                       \
            const struct record **ret_records, size_t *ret_count, struct err *err),                \
        (wrapped, scan, arena, ret_records, ret_count, err))                                       \
    X(DUE, due,                                                                                    \
        (struct store * store, const struct store_due_filter *filter, struct store_due *ret_dues,  \
            size_t limit, size_t *ret_count, struct err *err),                                     \
        (wrapped, filter, ret_dues, limit, ret_count, err))                                        \
    X(ENTRIES, entries,                                                                            \
        (struct store * store, const struct entry_range *range, entry_visit visit, void *context,  \
            struct err *err),                                                                      \
        (wrapped, range, visit, context, err))                                                     \
    X(COUNTS, counts,                                                                              \
        (struct store * store, unsigned kinds, struct store_counts *ret_counts, struct err *err),  \
        (wrapped, kinds, ret_counts, err))

/* Calls that only shared stores have. */
#define STORE_SHARED_CALLS(X)                                                                      \
    X(SETTLE, settle, (struct store * store, uint64_t number, struct err * err),                   \
        (wrapped, number, err))                                                                    \
    X(BEAT, beat, (struct store * store, uint64_t incarnation, struct err * err),                  \
        (wrapped, incarnation, err))                                                               \
    X(CHAINS, chains,                                                                              \
        (struct store * store, store_chain_visit visit, void *context, struct err *err),           \
        (wrapped, visit, context, err))

/* Calls of the second table, which the wrapped store may lack. */
#define STORE_HOUSEKEEPING_CALLS(X)                                                                \
    X(MAINTAIN, maintain, (struct store * store, struct err * err), (wrapped, err))                \
    X(REMOVABLE, removable,                                                                        \
        (struct store * store, struct store_removable * ret_removable, struct err * err),          \
        (wrapped, ret_removable, err))                                                             \
    X(REMOVE, remove, (struct store * store, uint64_t place, struct err * err),                    \
        (wrapped, place, err))

/* Which call it is. */
enum store_call {
#define STORE_CALL_NUMBER(number, member, parameters, arguments) STORE_CALL_##number,
    STORE_CALLS(STORE_CALL_NUMBER) STORE_SHARED_CALLS(STORE_CALL_NUMBER)
        STORE_HOUSEKEEPING_CALLS(STORE_CALL_NUMBER)
#undef STORE_CALL_NUMBER
            STORE_CALL_CLOSE,
};

enum { STORE_CALL_COUNT = STORE_CALL_CLOSE + 1 };

/* "prepare", "commit", … */
const char *store_call_name(enum store_call call);

/* Leave out of a wrapper's table what the wrapped store lacks. */
static inline void store_ops_limit(struct store_ops *ops, const struct store_ops *wrapped)
{
    ops->shared = wrapped->shared;
    ops->commit_rows = wrapped->commit_rows;
    ops->open_reader = wrapped->open_reader == NULL ? NULL : ops->open_reader;
    ops->settle = wrapped->settle == NULL ? NULL : ops->settle;
    ops->beat = wrapped->beat == NULL ? NULL : ops->beat;
    ops->listen = wrapped->listen == NULL ? NULL : ops->listen;
    ops->chains = wrapped->chains == NULL ? NULL : ops->chains;
    ops->caution = wrapped->caution == NULL ? NULL : ops->caution;
    ops->soon = wrapped->soon == NULL ? NULL : ops->soon;
}

#endif
