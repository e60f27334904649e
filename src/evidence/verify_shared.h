/*
 * verify_shared: verify for a store that several processes share; see verify.h.
 *
 * Promises:  those of verify_run. Every chain is checked by itself: dense, chained, signed, up to
 *            the end that the store states. Across chains each version of a record is decided
 *            exactly once, each fence is granted once, and the stored records follow from the
 *            decisions. Read-only, also beside processes that write: everything committed before it
 *            began is checked.
 * Memory:    300 bytes for each live record, 8 for each grant, and all entries of records that an
 *            application's own transactions decided on, because these are chained later.
 */
#ifndef ONCE_EVIDENCE_VERIFY_SHARED_H
#define ONCE_EVIDENCE_VERIFY_SHARED_H

#include <stdarg.h>

#include "evidence/verify.h"

/* options->url must name a store that has chains. */
enum status verify_shared_run(const struct verify_options *options,
    struct verify_result *ret_result, struct err *err) MUST_CHECK;

/* Checks a journal, whose files have been checked, across its inherited chains and its own.
 * Findings are added to the result. */
enum status verify_inherited_run(
    const struct verify_options *options, struct verify_result *result, struct err *err) MUST_CHECK;

/* Adds a damage at a place. For both verifiers. */
void verify_damage_put(struct verify_result *result, const struct verify_damage *place,
    const char *format, va_list args) __attribute__((format(printf, 3, 0)));

#endif
