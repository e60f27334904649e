/*
 * spool: bytes that come piece by piece, and are needed whole.
 *
 * The first memory_max of them stay in memory; with one more, all of them go to a file without a
 * name, so that nothing is left behind whatever happens to the process.
 *
 *     empty  --put-->  in memory  --put past memory_max-->  in a file
 *       any of them  --view-->  viewed  --clear-->  empty
 *
 * Several may share a budget: the bytes that all of them hold together.
 *
 * Promises:  never more than total_max bytes, nor than the budget has left. A put that fails leaves
 *            the spool as it was, and the next put may succeed. No text of an error holds a path.
 * Does not:  flush, because spooled bytes are useless after a crash.
 * Ownership: owns its memory, its file and its mapping until spool_clear or spool_release. dir and
 *            mem have to outlive it.
 * Threads:   one thread at a time; those that share a budget may be on different ones. File I/O
 *            blocks.
 */
#ifndef ONCE_BASE_SPOOL_H
#define ONCE_BASE_SPOOL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/slice.h"

struct spool_budget {
    _Atomic uint64_t bytes; /* in all spools that share it */
    _Atomic uint64_t max;
    const char *setting; /* the setting that limits it, for the error: "gateway.spool_max" */
};

struct spool {
    const char *dir;             /* where files are made */
    uint64_t memory_max;         /* bytes; 0: all in a file */
    uint64_t total_max;          /* bytes */
    uint64_t bytes;              /* put so far */
    struct buf memory;           /* all of them while there is no file; then empty */
    int file;                    /* plus one, so that zeroed means none */
    void *map;                   /* of the file; NULL: none */
    bool is_viewed;              /* nothing may be put any more */
    struct spool_budget *budget; /* NULL: only its own limits apply */
};

/* A memory_max above total_max means total_max. */
void spool_init(struct spool *spool, const struct mem *mem, const char *dir, uint64_t memory_max,
    uint64_t total_max);
/* While it is empty: count its bytes in a budget, which must outlive it. NULL: in no budget. */
void spool_share(struct spool *spool, struct spool_budget *budget);
/* Drops everything, and it may be used again. At most 64 KiB of memory are kept for that. */
void spool_clear(struct spool *spool);
/* A zeroed one is fine. */
void spool_release(struct spool *spool);

/*
 * Append. E_LIMIT: past total_max or the budget; E_UNAVAILABLE: no file can be made or the disk is
 * full; E_NOMEM; E_MISUSE: it was viewed. After a failure it is as before.
 */
enum status spool_put(struct spool *spool, struct slice piece, struct err *err) MUST_CHECK;
uint64_t spool_bytes(const struct spool *spool);
/* Some of the bytes put so far, from that offset on: in memory, valid until the next put, or read
 * from the file into the buffer. Empty: that is the end, or the file cannot be read.
 */
struct slice spool_peek(const struct spool *spool, uint64_t from, char *buffer, size_t room);
/*
 * All of it in one piece, the same until clear or release. E_UNAVAILABLE: the file cannot be
 * mapped.
 */
enum status spool_view(struct spool *spool, struct slice *ret_bytes, struct err *err) MUST_CHECK;

#endif
