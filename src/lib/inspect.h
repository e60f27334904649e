/*
 * inspect: what `once doctor`, `once ls --all-tenants` and `once tail --checkpoint` read from a
 * store and once.h does not show. Part of the program, not of libonce.
 *
 * Promises:  a store is opened read-only, works beside a running writer, and nothing is created.
 * Threads:   any.
 */
#ifndef ONCE_LIB_INSPECT_H
#define ONCE_LIB_INSPECT_H

#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "evidence/checkpoint.h"
#include "once/once.h"

enum { INSPECT_CAUTIONS_MAX = 8, INSPECT_CAUTION_BYTES = 256 };

/* Facts about a store. */
struct inspect_facts {
    uint64_t operations; /* live */
    uint64_t in_progress;
    uint64_t unknown;
    int64_t unknown_since_ms; /* when the oldest of these became unknown; 0: there is none */
    uint64_t entries;         /* of evidence */
    int64_t time_ms;          /* of the last commit */
    int64_t boot_ms;          /* since the machine started, at the last commit */
    uint64_t boot_id;         /* identifies that start; 0: not known */
    int64_t jump_ms;          /* how much of the tolerated clock jump was used up */
    bool shared;              /* on a database server: only the next three members are known */
    uint64_t processes;       /* processes that have it open for writing and beat */
    uint64_t chains;          /* of evidence: one for each process that ever wrote */
    char cautions[INSPECT_CAUTIONS_MAX][INSPECT_CAUTION_BYTES]; /* conditions that weaken a promise;
                                                                   "" ends the list */
    uint64_t bytes;                                             /* in all segments */
    uint64_t segments;
    uint64_t segments_squeezed;
    uint64_t index_bytes;                      /* in memory */
    bool writes_direct;                        /* O_DIRECT and O_DSYNC instead of fdatasync */
    bool save_failed;                          /* the last attempt to save the index failed */
    char public_key[CHECKPOINT_KEY_BYTES_MAX]; /* the key that checkpoints are checked with */
};
/* E_MISUSE: the store is in memory. E_CORRUPT, E_UNAVAILABLE, E_NOMEM. */
enum status inspect_store(
    const char *url, struct inspect_facts *ret_facts, struct err *err) MUST_CHECK;

/* Appends the newest checkpoint, checked with the store's own key. Appends nothing if there is none
 * yet. */
enum status inspect_checkpoint(
    const char *url, struct buf *out, uint64_t *ret_seq, struct err *err) MUST_CHECK;

/* How long it takes to write one block to the disk, in nanoseconds. */
struct inspect_speed {
    uint64_t buffered_p50_ns; /* pwrite and fdatasync */
    uint64_t buffered_p99_ns;
    uint64_t direct_p50_ns; /* O_DIRECT and O_DSYNC; 0: not possible here */
    uint64_t direct_p99_ns;
    bool is_quick; /* by the buffered p50: quick enough for a loop to flush (engine/pace.h) */
};
/* Times some flushes of both kinds in a temporary file in that directory. */
enum status inspect_speed(
    const char *dir, struct inspect_speed *ret_speed, struct err *err) MUST_CHECK;

/* Like once_iterate, but for every tenant: only for users who may open the store itself (P9). */
int inspect_iterate_all(struct once *once, const struct once_filter *filter,
    once_operation_visit visit, void *context, struct once_error *error) MUST_CHECK;

/* Whether the text is "op_" and a UUID. */
bool inspect_is_operation_id(const char *text);

#endif
