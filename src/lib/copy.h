/*
 * copy: copies everything in a store to a new store, on the same or a different engine. Part of the
 * program, not of libonce.
 *
 *   read the source --> open the target to inherit --> entries --> records --> compare --> verify
 *       --> finish
 *
 * It copies records of every kind with their versions, fences, leases, windows, dues, bodies and
 * details; the records of sources; every chain of evidence byte for byte, with its checkpoints and
 * public key; the fingerprint key; the highest fence; the time. So a duplicate gets the same answer
 * from the new store, an unknown operation stays unknown, a grant keeps its fence, and no fence is
 * given out again (P1, P3, P4, P5, P8).
 *
 * Promises:  CP1 the source is not changed, except that decisions of applications' own transactions
 *                are chained first. A source in use is refused: its lock shows it, or a process
 *                that beat within LIMIT_HOLDER_GONE_MS.
 *            CP2 the target is new: nothing is ever added to an existing store.
 *            CP3 nobody can open the target until everything is copied, compared and verified.
 *            CP4 a copy that is killed at any moment continues where it stopped, but only from the
 *                same source in the same state.
 *            CP5 memory is bounded: pieces of a few MiB, or one record with its bodies.
 *            CP6 nothing is left behind: a source with effects of once_effect that no process has
 *                encrypted yet is refused.
 * Does not:  erase the source, or keep anybody from serving it afterwards.
 */
#ifndef ONCE_LIB_COPY_H
#define ONCE_LIB_COPY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

enum copy_step {
    COPY_CHECKING, /* the source is verified */
    COPY_ENTRIES,
    COPY_RECORDS,
    COPY_COMPARING,
    COPY_VERIFYING, /* the target is verified */
};

struct copy_options {
    const char *from; /* URLs */
    const char *to;
    const char *from_dir; /* of a journal: its directory; NULL: not a journal */
    const char *to_dir;
    bool dry_run; /* read the source, and change nothing */
    /* Called now and then; total is 0 if it is not known. False stops the copy, which can be
     * continued. May be NULL. */
    bool (*progress)(void *context, enum copy_step step, uint64_t done, uint64_t total);
    void *context;
};

struct copy_result {
    uint64_t chains;
    uint64_t entries; /* of evidence, and checkpoints */
    uint64_t records;
    uint64_t body_bytes;  /* of the records that this run copied */
    uint64_t entries_had; /* how many of these an earlier run had copied */
    uint64_t records_had;
    uint64_t sealed;     /* bodies that are encrypted, of the records that this run read */
    uint64_t sealed_own; /* how many of these the key in the source's directory opens */
    bool key_copied;     /* that key was copied to the target's directory */
};

/*
 * E_INVALID: a URL is invalid, the target is not new, or it is the unfinished copy of something
 * else. E_UNAVAILABLE: a store cannot be reached or opened, the source is in use, or progress
 * returned false: run it again. E_CORRUPT: the source is damaged, or the target is not equal to it.
 * E_UNKNOWN: the copy is complete, but may not be marked as finished: run it again. E_NOMEM,
 * E_LIMIT.
 */
enum status copy_store(
    const struct copy_options *options, struct copy_result *ret_result, struct err *err) MUST_CHECK;

#endif
