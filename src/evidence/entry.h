/*
 * entry: one evidence line for one decision, in canonical JSON, chained.
 *
 * Promises:  the bytes are canonical JSON (RFC 8785) of version 2 in the stored form
 *            (entry_form.h), the hash is entry_link's. Sequence numbers are dense from 1 (P10). Its
 *            fingerprints are keyed; it never contains bodies. "decided" holds the input of
 *            decide, so that anybody can decide again.
 * Threads:   one chain, one thread.
 *
 * Members of the full document, sorted: actor?, chain_id, command_id?, conflict?{
 * received_fingerprint, stored_fingerprint}, decided{attempt, decision, fence, rule, version, …},
 * dedupe?{decision, executed, original_operation_id, outcome_ref}, effect_id?, entry_id,
 * idempotency_key, lifecycle_state, occurred_at, operation_id, outcome?{reason, status},
 * principal?, provider_ref?, scope, seq, source?, tenant_id, trace?, type, v.
 * docs/formats/evidence.md describes each, and which of them are stored.
 */
#ifndef ONCE_EVIDENCE_ENTRY_H
#define ONCE_EVIDENCE_ENTRY_H

#include "core/decide.h"
#include "store/store.h"

struct chain {
    uint64_t seq;         /* of the last entry; 0 for none */
    struct digest hash;   /* of the last entry; zero for none */
    unsigned char id[16]; /* a UUID … */
    char chain_id[37];    /* … and its text */
};

/* Continues at the head of a store. */
void chain_init(
    struct chain *chain, const struct store_head *head, const struct store_identity *identity);

/* Makes an entry the next of the chain: sets seq, chain_id and hash. Its bytes do not depend on
 * its place. */
void chain_append(struct chain *chain, struct entry *entry);

/* The input of one entry. */
struct entry_facts {
    const struct request *request;
    const struct record *found; /* NULL: it was absent */
    const struct decision *decision;
    struct decide_moment moment;
};

/* Composes the entry for a decision and appends it to the chain. The bytes are appended to out.
 * E_LIMIT or E_NOMEM: the chain is unchanged. */
enum status entry_compose(struct chain *chain, const struct entry_facts *facts, struct buf *out,
    struct entry *ret_entry) MUST_CHECK;

/* Composes the entry that reports that evidence up to removable->seq leaves the journal (type
 * "evidence.archived"). Like entry_compose; it decides nothing. */
enum status entry_compose_archived(struct chain *chain, const struct store_removable *removable,
    int64_t now_ms, struct buf *out, struct entry *ret_entry) MUST_CHECK;

/* The name that IDS-14, which has three decisions, gives to the answer to a begin: our finer
 * decisions become duplicates or refusals that ran nothing, with the detail beside it
 * (docs/formats/evidence.md). */
const char *entry_dedupe(enum decision_kind kind);

/* The kind of the entry's record, which chooses the prefix of operation_id; an operation if no
 * record was found. */
enum record_kind entry_kind(const struct entry_facts *facts);

/* "execution.started", … for a decision (entry_type.c has the table). */
const char *entry_type(const struct entry_facts *facts);

#endif
