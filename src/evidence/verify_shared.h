/*
 * verify_shared: verify for a store that several processes share; see verify.h.
 *
 * Promises:  as verify_run's. Every chain is checked by itself: dense, chained, signed, as far as
 *            the store says it goes. Across them each version of a record is decided exactly once,
 *            each fence is granted once, and what is stored is what the decisions lead to.
 *            Read-only, and beside processes that write: what was committed before it began is
 *            checked.
 * Memory:    300 bytes for each live record, 8 for each grant; and all entries of those records
 *            that an application's own transactions decided on, because these are chained later.
 */
#ifndef ONCE_EVIDENCE_VERIFY_SHARED_H
#define ONCE_EVIDENCE_VERIFY_SHARED_H

#include <stdarg.h>

#include "evidence/verify.h"

/* options->url must be of a store that has chains. */
enum status verify_shared_run(const struct verify_options *options,
    struct verify_result *ret_result, struct err *err) MUST_CHECK;

/* Of a journal that has been checked: the chains that it inherited and its own, across all of them.
 * What is found is added to the result. */
enum status verify_inherited_run(
    const struct verify_options *options, struct verify_result *result, struct err *err) MUST_CHECK;

/* One more damage, at a place. For both verifiers. */
void verify_damage_put(struct verify_result *result, const struct verify_damage *place,
    const char *format, va_list args) __attribute__((format(printf, 3, 0)));

#endif
