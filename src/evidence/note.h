/*
 * note: a fact for the evidence that is not a decision.
 *
 * Promises:  it becomes one entry of the chain; verify and redecide accept it and decide nothing.
 *            Its content belongs to the note's own tenant (P9).
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
    NOTE_CONFIG_CHANGED, /* policy or tokens were reloaded: "config.changed" */
    NOTE_DUPLICATES,     /* duplicates of one key that a door refused because of their rate, in one
                            entry: "observation.emitted" with their count */
    NOTE_ACKNOWLEDGED,   /* a message was acknowledged to its broker although its delivery is not
                            settled: only a person can move it. "delivery.acknowledged" */
    NOTE_INTERRUPTED, /* the last process ended before its last flush, and with `evidence.replays:
                            soon` entries about replays may be missing: "evidence.interrupted" */
};

struct note {
    enum note_kind kind;
    struct slice tenant;       /* the owner of the evidence; may be empty for access, config and
                              interrupted: the whole store */
    struct record_key key;     /* duplicates: their key, sealed, of the same tenant */
    struct op_id operation_id; /* access: the record that was read; zero: more than one.
                                  Acknowledged: the delivery */
    enum record_kind about;    /* access: the record's kind; 0: an operation */
    struct slice actor;        /* who; may be empty */
    struct slice trace;        /* canonical JSON; may be empty */
    struct slice reason;       /* what was read or changed, briefly; may be empty */
    uint64_t count;            /* duplicates refused; entries read */
};

/* Checks a note: texts are UTF-8 and within their limits, there is a tenant, and duplicates have a
 * key of that tenant and a count. E_INVALID names what is wrong. */
enum status note_check(const struct note *note, struct err *err) MUST_CHECK;

/* Composes its entry and appends it to the chain. found is the record of the duplicates' key; NULL
 * if absent. Like entry_compose. */
enum status note_compose(struct chain *chain, const struct note *note, const struct record *found,
    int64_t now_ms, struct buf *out, struct entry *ret_entry) MUST_CHECK;

#endif
