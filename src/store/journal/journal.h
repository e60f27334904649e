/*
 * journal: the embedded store. One append-only file of records and evidence, and an index in
 * memory.
 *
 * A data directory holds `identity`, `lock`, segments, saved indexes, and `reached` (its end when
 * it was closed). docs/formats/journal.md describes every byte.
 *
 * URL options: segment=64MiB size of new segments; write=auto|buffered|direct|uring how batches are
 * written (write_ways.h); snapshot=64MiB journal between two saved indexes at least; erase=15m how
 * long a settled body may stay; witness=PATH a file elsewhere that remembers how far the journal
 * was; background=on|off whether a separate thread writes ahead (off: in maintain and commit).
 *
 * The functions below, besides the table of store.h, serve `once verify`, `once backup`, `once
 * doctor` and the dump tool.
 */
#ifndef ONCE_STORE_JOURNAL_JOURNAL_H
#define ONCE_STORE_JOURNAL_JOURNAL_H

#include "store/journal/format.h"
#include "store/store.h"

/* How batches reach the disk (write_ways.h). */
enum journal_way {
    JOURNAL_WAY_AUTO, /* chosen at the start: the fastest that is possible */
    JOURNAL_WAY_BUFFERED,
    JOURNAL_WAY_DIRECT,
    JOURNAL_WAY_URING,
    JOURNAL_WAYS
};
/* "auto", "buffered", "direct", "uring": the values of write=. */
const char *journal_way_name(enum journal_way way);
/* With the system calls, for people. */
const char *journal_way_text(enum journal_way way);

/* Opens or creates. path_and_options is the URL after "journal:". Fails as store_open does. */
enum status journal_open(const char *path_and_options, const struct store_options *options,
    struct store **ret_store, struct err *err) MUST_CHECK;

/* Checks path and options; opens nothing. E_INVALID. */
enum status journal_url_check(const char *path_and_options, struct err *err) MUST_CHECK;

/* The events of a walk through the files of a journal. */
enum journal_walk_event {
    JOURNAL_WALK_SEGMENT, /* a segment begins; frame is NULL */
    JOURNAL_WALK_BATCH,   /* a batch begins; frame is NULL */
    JOURNAL_WALK_FRAME,   /* one frame with a valid checksum; its content is not checked */
    JOURNAL_WALK_DAMAGE,  /* something is invalid; text says what */
    JOURNAL_WALK_TAIL,    /* the last batch was torn, never acknowledged; text says where */
};

struct journal_walk {
    enum journal_walk_event event;
    uint64_t segment;                    /* its number */
    uint64_t offset;                     /* bytes from its start */
    const struct segment_header *header; /* the segment's, when it is valid */
    const struct batch_header *batch;    /* the batch's; NULL outside of one */
    const struct frame *frame;           /* only for a frame */
    const char *text;                    /* only for damage and a torn tail */
    uint64_t bytes_done;                 /* for a progress bar … */
    uint64_t bytes_total;                /* … of all segments */
};

/* Return false to stop. Everything is valid during the call. */
typedef bool (*journal_visit)(void *context, const struct journal_walk *walk);

/*
 * Visits every frame of a data directory in order, checks each checksum, and continues after damage
 * where possible. Takes no lock and changes nothing: a journal that is being written is walked up
 * to its end. OK: walked to the end or stopped by the visitor; damage is in the events.
 * E_UNAVAILABLE: there is no journal. E_CORRUPT: it has no readable identity or no segments.
 * E_NOMEM.
 */
enum status journal_walk(const char *path, const struct io *io, const struct mem *mem,
    journal_visit visit, void *context, struct err *err) MUST_CHECK;

struct journal_copy {
    const char *from;      /* the data directory */
    const char *to;        /* an empty directory */
    const struct io *io;   /* NULL: the machine's own */
    const struct mem *mem; /* NULL: the C library's */
    /* Called now and then, first with done 0; total is an estimate while the journal is in use.
     * False stops the copy. May be NULL. */
    bool (*progress)(void *context, uint64_t bytes_done, uint64_t bytes_total);
    void *context; /* handed back to progress */
};

/*
 * Copies a journal, which may be in use. The copy is a prefix of it with everything acknowledged
 * before the call, durable in both places. Takes no lock. Archived evidence is not copied. The copy
 * is not read back: verify it. E_UNAVAILABLE: a file could not be read or written, or progress
 * returned false. E_CORRUPT: the end of the journal is damaged. E_NOMEM. On failure, useless files
 * are left in the directory.
 */
enum status journal_copy(const struct journal_copy *how, struct err *err) MUST_CHECK;

struct journal_info {
    uint64_t segments;          /* files */
    uint64_t segments_squeezed; /* of these */
    uint64_t bytes;             /* in all of them, written */
    uint64_t batches;           /* written since it was created */
    uint64_t index_bytes;       /* in memory */
    enum journal_way way;    /* how batches are written; AUTO: opened read-only, and the URL leaves
                                   it to the writer's start */
    uint64_t snapshot_bytes; /* journal written since the last saved index */
    bool snapshot_failed;    /* the last attempt to save the index failed */
    uint64_t segment_first;  /* number of the oldest segment */
    int64_t created_ms;      /* when the store was created */
    uint64_t cache_bytes;    /* of frames kept in memory for duplicates */
};

/* E_MISUSE: the store is not a journal. */
enum status journal_info(
    struct store *store, struct journal_info *ret_info, struct err *err) MUST_CHECK;

/* How long one block takes to be on the disk in one way, in nanoseconds. */
struct journal_way_speed {
    uint64_t best_ns; /* 0: not possible here, or not measured */
    uint64_t p50_ns;
    uint64_t p99_ns;
    int error; /* errno: why it is not possible; 0: it is */
};

struct journal_speed {
    struct journal_way_speed ways[JOURNAL_WAYS]; /* that of AUTO stays empty */
    enum journal_way fastest;                    /* as a start would choose */
};

struct journal_measuring {
    const char *directory;
    const struct io *io;   /* NULL: the machine's own */
    const struct mem *mem; /* NULL: the C library's */
    enum journal_way way;  /* measure only this; AUTO: all that are possible here */
    bool briefly;          /* a few writes, as at a start; otherwise some tenths of a second */
};

/* Times some flushes in a temporary file in that directory. E_UNAVAILABLE: it cannot be made. */
enum status journal_measure(const struct journal_measuring *how, struct journal_speed *ret_speed,
    struct err *err) MUST_CHECK;

#endif
