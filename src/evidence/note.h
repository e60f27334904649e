/*
 * note: a fact for the evidence that no decision stands behind.
 *
 * Promises:  it becomes one entry of the chain, which verify and redecide accept and decide nothing
 *            about. What is in it is the note's own tenant's (P9).
 * Does not:  change any record.
 * Ownership: slices are borrowed for as long as the note is in use.
 */
#ifndef ONCE_EVIDENCE_NOTE_H
#define ONCE_EVIDENCE_NOTE_H

#include "core/record.h"

struct chain;
struct entry;

enum note_kind {
    NOTE_ACCESS_READ,    /* somebody read evidence (GRD-4): "access.read" */
    NOTE_CONFIG_CHANGED, /* policy or tokens were loaded anew: "config.changed" */
    NOTE_DUPLICATES,     /* duplicates of one key that were refused at the door for their rate, in
                            one entry: "observation.emitted" with their count */
    NOTE_ACKNOWLEDGED,   /* a message was acknowledged to its broker although its delivery is not
                            settled: only a person can move it. "delivery.acknowledged" */
};

struct note {
    enum note_kind kind;
    struct slice tenant;       /* whose evidence it belongs to; only config: may be empty */
    struct record_key key;     /* duplicates: of which key, sealed, of the same tenant */
    struct op_id operation_id; /* access: of which record was read; zero: of more than one.
                                  Acknowledged: the delivery */
    enum record_kind about;    /* access: its kind, whose prefix its id has; 0: an operation */
    struct slice actor;        /* who; may be empty */
    struct slice trace;        /* canonical JSON; may be empty */
    struct slice reason;       /* what was read or changed, in a few words; may be empty */
    uint64_t count;            /* duplicates refused; entries read */
};

/* Whether it can be written: texts are UTF-8 and within their limits, there is a tenant, and
 * duplicates have a key of that tenant and a count. E_INVALID names what is wrong. */
enum status note_check(const struct note *note, struct err *err) MUST_CHECK;

/* Compose its entry and append it to the chain. found is the record that it is about: of the key of
 * duplicates, NULL for none. As entry_compose. */
enum status note_compose(struct chain *chain, const struct note *note, const struct record *found,
    int64_t now_ms, struct buf *out, struct entry *ret_entry) MUST_CHECK;

#endif
