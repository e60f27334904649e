/*
 * source: the order of a source's versions, and the newest sealed one (OPS-7).
 *
 * A request may name its source: a type, an id and a version. For each (tenant, scope, type, id)
 * the newest sealed version is remembered in a record of the kind `source`, for as long as the
 * window of the seal it came from. decide() refuses to begin an older version (rule B9).
 *
 * Promises:  pure, like decide(). A source's key hash never equals an operation's: it is computed
 *            over the kind first, and no operation's begins with those bytes.
 * Ownership: slices are shared with the arguments.
 */
#ifndef ONCE_CORE_SOURCE_H
#define ONCE_CORE_SOURCE_H

#include "core/record.h"

/* It has a type, an id and a version, so its versions can be compared. */
bool source_ordered(const struct source *source);
bool source_equal(const struct source *a, const struct source *b);

/*
 * Less than, equal to or greater than 0. Natural order: runs of digits are numbers of any length,
 * leading zeros ignored; everything else is compared by bytes; a prefix is less. Only equal bytes
 * are equal: if two versions differ in leading zeros alone, the one with fewer of them at the first
 * difference is less.
 */
int version_compare(struct slice a, struct slice b);
/* a comes before b, leading zeros ignored: "7" is not older than "007". */
bool version_older(struct slice a, struct slice b);

/* The key of the record that remembers the source of an operation with this key. E_INVALID as in
 * record_key_seal. */
enum status source_key_seal(const struct record_key *operation, const struct source *source,
    struct record_key *ret_key, struct err *err) MUST_CHECK;

/* The version that is remembered at this time; empty: none. found may be NULL. */
struct slice source_version(const struct record *found, int64_t now_ms);

/* Whether sealing an operation changes the source's record, and the record after it. found is the
 * source's record so far, NULL if absent; key is the source's. */
bool source_remember(const struct record *found, const struct record *sealed,
    const struct record_key *key, struct record *ret_next);

#endif
