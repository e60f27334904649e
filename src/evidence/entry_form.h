/*
 * entry_form: the two forms of an entry, and the hash that chains it.
 *
 * An entry of version 2 (its last member is "v":2) is stored without what follows from its other
 * members and from its place: docs/formats/evidence.md lists what is left out. Readers get the
 * full document. An entry of version 1 has no "v" and is stored as the full document.
 *
 * Promises:  expanding and contracting are pure, and undo each other. The hash binds an entry of
 *            either version to its chain, its number and all entries before it (P10).
 * Does not:  check that the members make sense (entry_view.h).
 */
#ifndef ONCE_EVIDENCE_ENTRY_FORM_H
#define ONCE_EVIDENCE_ENTRY_FORM_H

#include "core/decide.h"
#include "store/store.h"

/* What every entry of version 2 ends with: no member sorts after "v". */
#define ENTRY_VERSION_2 ",\"v\":2}"

/* Readers disagree about larger JSON numbers (RFC 7493 section 2.2): they are written as text. */
#define ENTRY_NUMBER_MAX (UINT64_C(1) << 53)

/* Whether the bytes are an entry of version 2, stored or in full. */
bool entry_is_version_2(struct slice bytes);

/* The hash of an entry that follows one with this hash; zero before the first. Reads chain_id, seq
 * and bytes. Every check of a chain, in a store or from a server, uses this function. */
void entry_link(const struct digest *prev_hash, const struct entry *entry, struct digest *ret_hash);

/* Appends the full document of a stored entry. Reads chain_id, seq and bytes. E_CORRUPT: the bytes
 * are not an entry; E_NOMEM, E_LIMIT: out has no room. */
enum status entry_expand(const struct entry *entry, struct buf *out) MUST_CHECK;

/* The same with the members `hash` and `prev_hash` (64 hex): what readers of a page get. */
enum status entry_show(
    const struct entry *entry, const struct digest *prev_hash, struct buf *out) MUST_CHECK;

/* Appends the stored form of an entry whose bytes are the full document. Like entry_expand;
 * E_CORRUPT also if something is missing in it. */
enum status entry_contract(const struct entry *entry, struct buf *out) MUST_CHECK;

/* The lifecycle_state that is left out after a decision, which is `named`, the status that the
 * request names, if the decision alone does not tell it. NULL: there is none, it is stored. */
const char *entry_state_default(enum decision_kind kind, const char *named);

/* The type that is left out after a decision that leads to a state. */
const char *entry_type_default(enum decision_kind kind, struct slice state);

#endif
