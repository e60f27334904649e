/*
 * check: assertions that stay on in release.
 *
 * A stopped process breaks no exactly-once promise; a confused one does. Assert only what our own
 * code guarantees: what comes from disk, network or a caller is checked with an error path instead.
 */
#ifndef ONCE_BASE_CHECK_H
#define ONCE_BASE_CHECK_H

#include <assert.h> /* static_assert only: assert() itself is compiled out by NDEBUG */

/* Print what was violated and where, then abort. Never returns. */
_Noreturn void check_failed(const char *condition, const char *file, int line);

#define ASSERT(condition)                                                                          \
    do {                                                                                           \
        if (__builtin_expect(!(condition), 0)) {                                                   \
            check_failed(#condition, __FILE__, __LINE__);                                          \
        }                                                                                          \
    } while (0)

/* Call the checker of a whole structure: too slow for release, on in debug, simulation and fuzz
 * builds. */
#ifdef ONCE_SLOW_CHECKS
#define CHECK_SLOW(call) (call)
#else
#define CHECK_SLOW(call)                                                                           \
    do {                                                                                           \
        if (0) {                                                                                   \
            (call);                                                                                \
        }                                                                                          \
    } while (0)
#endif

#endif
