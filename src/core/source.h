/*
 * source: in which order versions of one source come, and the newest that was sealed (OPS-7).
 *
 * A request may say what it came from: a type, an id and a version. Of each (tenant, scope, type,
 * id) the newest sealed version is remembered in a record of its own kind, for as long as the
 * window of the seal it came from; decide() refuses to begin what is older (rule B9).
 *
 * Promises:  pure, like decide(). A source's key hash never is an operation's: the kind is in front
 *            of what is hashed, and no operation's begins like that.
 * Ownership: slices are shared with the arguments.
 */
#ifndef ONCE_CORE_SOURCE_H
#define ONCE_CORE_SOURCE_H

#include "core/record.h"

/* It has a type, an id and a version: what is compared. */
bool source_ordered(const struct source *source);
bool source_equal(const struct source *a, const struct source *b);

/*
 * Less than, equal to or greater than 0. Natural order: runs of digits are numbers of any length,
 * whatever zeros are in front of them; all else goes by its bytes; what ends first is less. Only
 * equal bytes are equal: of two that differ in such zeros alone, the one with fewer of them where
 * they first differ is less.
 */
int version_compare(struct slice a, struct slice b);
/* a comes before b, whatever zeros are in front of numbers: "7" is not older than "007". */
bool version_older(struct slice a, struct slice b);

/* The key of the record that remembers the source of an operation with this key. E_INVALID as
 * record_key_seal. */
enum status source_key_seal(const struct record_key *operation, const struct source *source,
    struct record_key *ret_key, struct err *err) MUST_CHECK;

/* The source's version that is remembered at this time; empty: none. found may be NULL. */
struct slice source_version(const struct record *found, int64_t now_ms);

/* Whether sealing an operation changes what is remembered of its source, and what it then is. found
 * is what is remembered so far, NULL for nothing; key is the source's. */
bool source_remember(const struct record *found, const struct record *sealed,
    const struct record_key *key, struct record *ret_next);

#endif
