/*
 * inspect: reads from a store what `once doctor`, `--all-tenants` and `once tail --checkpoint` need
 * and once.h does not show. Part of the program, not of libonce.
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
    uint64_t index_bytes; /* in memory */
    const char *way;      /* that the URL prescribes, with its system calls; NULL: the writer's
                              start chooses */
    bool save_failed;     /* the last attempt to save the index failed */
    char public_key[CHECKPOINT_KEY_BYTES_MAX]; /* the key that checkpoints are checked with */
};
/* E_MISUSE: the store is in memory. E_CORRUPT, E_UNAVAILABLE, E_NOMEM. */
enum status inspect_store(
    const char *url, struct inspect_facts *ret_facts, struct err *err) MUST_CHECK;

/* Appends the newest checkpoint, checked with the store's own key. Appends nothing if there is none
 * yet. */
enum status inspect_checkpoint(
    const char *url, struct buf *out, uint64_t *ret_seq, struct err *err) MUST_CHECK;

/* How long it takes to write one block to the disk in one way, in nanoseconds. */
struct inspect_way {
    const char *name;       /* "buffered", "direct", "uring" */
    const char *text;       /* the same with its system calls */
    const char *impossible; /* why it is not possible here; NULL: it is */
    uint64_t p50_ns;
    uint64_t p99_ns;
    bool is_fastest; /* as a start would choose it */
    bool is_quick;   /* by its p50: enough for a loop to flush by itself (engine/pace.h) */
};
enum { INSPECT_WAYS = 3 };
struct inspect_speed {
    struct inspect_way ways[INSPECT_WAYS]; /* the first works everywhere */
};
/* Times some flushes of each way in a temporary file in that directory. */
enum status inspect_speed(
    const char *dir, struct inspect_speed *ret_speed, struct err *err) MUST_CHECK;

/* Like once_iterate, but for every tenant: only for users who may open the store itself (P9). */
int inspect_iterate_all(struct once *once, const struct once_filter *filter,
    once_operation_visit visit, void *context, struct once_error *error) MUST_CHECK;

/* Like once_evidence, for the same users: also entries about the whole store, which have no
 * tenant. */
int inspect_evidence_all(struct once *once, const char *operation_id, const char *after,
    once_entry_visit visit, void *context, struct once_error *error) MUST_CHECK;

/* Whether the text is "op_" and a UUID. */
bool inspect_is_operation_id(const char *text);

#endif
