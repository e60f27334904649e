/*
 * impl: what the files of the journal share. Nobody else includes this.
 *
 * Life of a batch, with what a crash between two steps leaves:
 *
 *   empty --commit--> open --flush--> in flight --written and flushed--> stable
 *
 *   empty      the next batch has a place, but nothing of it exists.
 *   open       in memory only. Crash: gone; nobody was answered.
 *   in flight  on its way. Crash: all, nothing, or some sectors of it are there; the rest are zeros
 *              (J3). Recovery takes it when it is whole and cuts it otherwise; nobody was answered.
 *   stable     acknowledged. It is never written again (J1). The last few stay in memory, so that a
 *              seal that comes soon after its begin reads no file.
 *   failed     a write or flush went wrong: the store answers nothing but E_UNKNOWN (P11).
 *
 * Life of a segment:
 *
 *   spare --write header, flush, rename, flush directory--> current --full--> closed
 *         --no record in it is live--> squeezed --older than the retention--> archived
 *
 *   spare      a file of zeros that is no segment yet. Crash: removed when opened.
 *   current    the last one. Zeros are written ahead of use (J3).
 *   closed     complete: the next one was only made after its last batch was stable.
 *   squeezed   rewritten beside it and renamed over it. Crash: the one or the other is there.
 *
 * Segments are made anew and not used again: zeros are how a torn tail differs from damage (J3), so
 * an old file would have to be overwritten with zeros as well, and nothing would be gained.
 *
 * Threads: the engine's thread calls everything but flush. mutex guards what the flushing and the
 * background thread share with it: the buffers, tail, next, stable, failed, and the jobs. The index
 * and the list of segments belong to the engine's thread alone.
 */
#ifndef ONCE_STORE_JOURNAL_IMPL_H
#define ONCE_STORE_JOURNAL_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/buf.h"
#include "store/clock.h"
#include "store/journal/due.h"
#include "store/journal/format.h"
#include "store/journal/index.h"
#include "store/journal/inherited.h"
#include "store/journal/journal.h"

enum {
    JOURNAL_PATH_MAX = 4096 - 64,   /* of the directory: our file names go after it */
    JOURNAL_BUFFER_BYTES = 8 << 20, /* a batch is flushed when it has grown to this */
    JOURNAL_BUFFERS = 64,           /* batches in memory: one open, one in flight, the rest kept */
    JOURNAL_RECENT_BYTES = 8 << 20, /* of kept batches: a seal mostly comes soon after its begin */
    JOURNAL_ZERO_FIRST = 1 << 20,   /* zeros at creation: a small store is made quickly */
    JOURNAL_ZERO_MAX = 16 << 20,    /* zeros written ahead at most */
    JOURNAL_SEGMENT_BYTES = 64 << 20,  /* of a new segment */
    JOURNAL_SEGMENT_MIN = 64 << 10,    /* smaller ones are all header */
    JOURNAL_SNAPSHOT_BYTES = 64 << 20, /* of journal between two saved indexes */
    JOURNAL_FILES_OPEN_MAX = 64,       /* old segments that are kept open for reading */
    JOURNAL_HINTS = 16, /* readings of evidence whose end is kept: about as many go on at a time */
};

struct segment {
    uint64_t number;
    struct mark mark; /* before its first batch */
    uint64_t end;     /* bytes in use; of the current one: when it was opened */
    uint32_t seed;    /* of its checksums */
    uint32_t live;    /* records whose latest frame is in it */
    bool squeezed;
    int fd; /* for reading; -1: not open */
};

/* One batch in memory. */
struct buffer {
    char *memory;      /* as allocated */
    char *data;        /* the first block in it: O_DIRECT wants it aligned */
    size_t cap;        /* bytes from data on */
    size_t len;        /* bytes in use, the batch header's included; 0: empty */
    uint32_t frames;   /* count */
    struct mark mark;  /* before it, its own place and number included */
    struct mark after; /* after its last commit; place and number are filled in later */
};

/* The segment that is being written. */
struct tail {
    uint64_t number;
    uint64_t size;   /* it ends here at the latest */
    uint64_t zeroed; /* zeros were written and flushed up to here (J3) */
    uint32_t seed;
    int fd;        /* buffered */
    int fd_direct; /* O_DIRECT and O_DSYNC; -1 unless that was asked for */
};

struct journal_options {
    char path[JOURNAL_PATH_MAX];    /* of the data directory */
    char witness[JOURNAL_PATH_MAX]; /* empty: none */
    uint64_t segment_bytes;         /* 0: as the identity says */
    uint64_t snapshot_bytes;
    bool direct;
    bool background;
};

struct snapshot; /* being saved; snapshot.c */
struct squeeze;  /* being done; squeeze.c */

struct journal {
    struct store store; /* first: the table's functions cast */
    const struct mem *mem;
    const struct io *io;
    struct journal_options options;
    bool read_only;
    int64_t retain_ms;
    struct identity identity;
    int lock_fd;                /* -1: not ours */
    struct inherited inherited; /* evidence of the store that this one was copied from */

    struct clock system;      /* the machine's, when no other was given */
    struct store_clock clock; /* the time that batches are decided by */

    struct index index;
    struct dues dues;         /* D1: as the index says */
    struct store_head head;   /* with everything committed */
    struct store_tally tally; /* of what is in the index */
    uint64_t fence;           /* the highest given out */
    struct store_moment now;  /* of the batch that is prepared … */
    bool prepared;            /* … and is to be committed or aborted */
    struct segment *segments; /* in the order of their numbers, which are dense */
    size_t segments_count;
    size_t segments_cap;
    unsigned files_open;                    /* of segments[].fd */
    struct buf undo;                        /* struct journal_undo of the commit being made */
    unsigned sweep_part;                    /* where the next look for expired ones begins */
    struct entry_pace hints[JOURNAL_HINTS]; /* where readings of evidence ended; place 0: none */
    unsigned hint_next;                     /* the one to be replaced, modulo their count */

    pthread_mutex_t mutex;
    pthread_cond_t changed;                 /* flight, growing or failed changed */
    pthread_cond_t work;                    /* there may be something for the background thread */
    struct buffer buffers[JOURNAL_BUFFERS]; /* a ring: kept, in flight, active, empty */
    struct buffer *active;                  /* commits go here */
    struct buffer *flight;                  /* being written; NULL: none */
    unsigned recent_first;                  /* in buffers: the oldest batch that is kept */
    unsigned recent_count;                  /* batches that are kept, from there on */
    size_t recent_bytes;                    /* memory they take */
    _Atomic uint64_t recent_place;          /* everything before this place is in the files only */
    bool growing;                           /* somebody writes zeros ahead */
    struct tail tail;
    struct mark next;        /* before the next batch */
    struct mark stable_mark; /* of the batch after the last stable one */
    _Atomic uint64_t stable; /* everything before this place can be read from the files */
    _Atomic bool failed;     /* sticky */
    struct err failure;      /* why */

    pthread_t thread;          /* the background thread … */
    bool thread_runs;          /* … when there is one */
    bool thread_stop;          /* it is to end */
    bool spare_ready;          /* a spare segment is there */
    uint64_t zero_step;        /* how much the next writing ahead does */
    struct snapshot *snapshot; /* being saved; NULL: none */
    uint64_t snapshot_place;   /* where the last saved index was begun */
    uint64_t snapshot_since;   /* bytes of journal written since then */
    bool snapshot_failed;      /* the last one could not be saved */
    struct squeeze *squeeze;   /* being done; NULL: none */
    uint64_t squeeze_failed;   /* the saved index at which squeezing failed; 0: none */
    int64_t witness_ms;        /* when the witness was last thought of */
    uint64_t witness_batch;    /* what it says */
    bool witness_due;          /* it is to be written */
    uint64_t batch_opened;     /* the next batch when the store was opened */
};

static inline struct journal *journal_of(struct store *store)
{
    return (struct journal *)store;
}

/* segment.c: the files. */
struct path {
    char text[4096];
};
struct path journal_path(const struct journal *journal, const char *name);
/* The directory that a path is in. */
struct path path_parent(const char *path);
struct path segment_path(const char *directory, uint64_t number);
/* The numbers after "prefix-" of all files in a directory, sorted; the caller frees them. */
enum status segment_list(const char *directory, const char *prefix, const struct mem *mem,
    uint64_t **ret_numbers, size_t *ret_count, struct err *err) MUST_CHECK;
/* The size of its file, for a progress bar; 0: it cannot be opened. */
uint64_t segment_file_bytes(const struct io *io, const char *directory, uint64_t number);
enum status segment_add(
    struct journal *journal, const struct segment *segment, struct err *err) MUST_CHECK;
struct segment *segment_get(struct journal *journal, uint64_t number);
/* A descriptor to read it with. */
enum status segment_fd(
    struct journal *journal, struct segment *segment, int *ret_fd, struct err *err) MUST_CHECK;
void segment_forget_fd(struct journal *journal, struct segment *segment);
/* Write zeros from one offset to another and flush them. */
int segment_zero(const struct io *io, int fd, uint64_t from, uint64_t until);
/* Make zeros reach at least until, in growing steps. Called and returns with the mutex. */
enum status segment_grow(struct journal *journal, uint64_t until, struct err *err) MUST_CHECK;
/* Make the file that the next segment begins as. Needs no mutex. */
enum status segment_spare(struct journal *journal, uint64_t bytes, struct err *err) MUST_CHECK;
/*
 * How many zeros the spare should begin with; 0: it is not time for one. With the mutex. In a busy
 * journal it is zeroed whole and early: zeros that are written ahead in the segment in use are
 * dirty pages of the very file that each batch flushes, and every flush waits for them.
 */
uint64_t spare_wanted(const struct journal *journal);
/* Begin the next segment, which has room for a batch of that many bytes. With the mutex. */
enum status segment_roll(struct journal *journal, uint64_t batch_bytes, struct err *err) MUST_CHECK;
/* Open the current segment for writing. */
enum status tail_open(
    struct journal *journal, const struct segment_header *header, struct err *err) MUST_CHECK;
void tail_close(struct journal *journal);
/* Replace a small file as a whole: written beside it, flushed, renamed, directory flushed. */
enum status file_replace(const struct journal *journal, const char *path, struct slice bytes,
    struct err *err) MUST_CHECK;

/* cursor.c: batch after batch of one segment's file. */
struct cursor {
    const struct io *io;
    const struct mem *mem;
    int fd;
    uint64_t size;   /* of the file */
    uint64_t offset; /* of the next batch */
    uint32_t seed;
    bool squeezed;
    int error;           /* -errno when cursor_start could not read: that is no damage; else 0 */
    size_t window_bytes; /* read at a time; cursor_init sets a usual one */
    char *window;        /* bytes of the file … */
    size_t window_cap;   /* … as many as fit … */
    uint64_t window_at;  /* … from this offset … */
    size_t window_len;   /* … to this many after it */
};

enum cursor_result {
    CURSOR_BATCH,  /* *ret_batch is whole */
    CURSOR_END,    /* nothing but zeros, or the end of the file, where the next batch would be */
    CURSOR_TORN,   /* the header is whole, and sectors of the rest were never written */
    CURSOR_DAMAGE, /* it does not check out */
    CURSOR_FAILED, /* it could not be read */
};

struct cursor_batch {
    struct batch_header header;
    uint64_t offset;
    const char *bytes; /* the whole batch; valid until the next call */
    const char *wrong; /* torn, damage, failed: what */
    int error;         /* failed: -errno */
};

void cursor_init(struct cursor *cursor, const struct io *io, const struct mem *mem, int fd);
void cursor_release(struct cursor *cursor);
/* Read and check the segment's header. NULL, or what is wrong. */
const char *cursor_start(struct cursor *cursor, struct segment_header *ret_header);
enum cursor_result cursor_next(struct cursor *cursor, struct cursor_batch *ret_batch);
/* Bytes of the file, as many as there are up to size. NULL: could not be read. */
const char *cursor_bytes(struct cursor *cursor, uint64_t offset, size_t size, int *ret_error);
/* The first block from an offset on at which a batch seems to begin; the size: there is none.
 * Where a block cannot be read, its offset and *ret_error, which is left alone otherwise. */
uint64_t cursor_find(struct cursor *cursor, uint64_t from, int *ret_error);
/* The frame at *at in a checked batch, and step over it. false: no more. */
bool batch_frame(const struct cursor_batch *batch, uint32_t *at, struct frame *ret_frame);

/* walk.c */
/* The identity of a journal or of an unfinished copy, for those who only read. -errno. */
int identity_open(const struct io *io, const char *directory, struct path *ret_path);

/* write.c: commit and flush. */
enum status journal_commit(struct store *store, const struct commit *commit, struct err *err);
enum status journal_flush(struct store *store, struct err *err);
/* Commit the time, when it is long ago that it was and something waits for it to pass. */
enum status journal_pass_time(struct journal *journal, struct err *err) MUST_CHECK;
/* Write a record again at the end, with its bodies (J: moved). */
enum status journal_move(
    struct journal *journal, const struct slot *slot, struct err *err) MUST_CHECK;
/* Both with the mutex, which is given up while writing. */
enum status flush_locked(struct journal *journal, struct err *err) MUST_CHECK;
enum status journal_fail(struct journal *journal, const struct err *cause, struct err *err);
enum status journal_failed(struct journal *journal, struct err *err);
void buffer_release(struct buffer *buffer, const struct mem *mem);
/* Change the index, and the counts and dues that go with it. found is where index_find finds the
 * key, NULL for nowhere; changed_ms the record's last change. E_NOMEM: nothing changed. */
enum status slot_set(struct journal *journal, struct slot *found, const struct slot *slot,
    int64_t changed_ms) MUST_CHECK;
void slot_drop(struct journal *journal, struct slot *slot);

/* inherited.c: the table's. */
enum status journal_chains(
    struct store *store, store_chain_visit visit, void *context, struct err *err);
extern const struct store_inheriting journal_inheriting;

/* journal.c */
/* How many records of these kinds there are, and since when the oldest unknown one is so. */
struct store_counts counts_of(const struct journal *journal, unsigned kinds);

/* prepare.c */
enum status journal_prepare(struct store *store, struct store_batch *batch, struct err *err);
void journal_abort(struct store *store);
enum status journal_read(struct store *store, struct store_batch *batch, struct err *err);

/* read.c: records and bodies by their place; scan, due, entries. */
/* E_CORRUPT with the place. */
enum status place_corrupt(uint64_t place, const char *wrong, struct err *err);
/* The bytes of a retained body, checked against its digest. */
enum status body_read(struct journal *journal, const struct body_ref *body, struct arena *arena,
    struct slice *ret_bytes, struct err *err) MUST_CHECK;
/* The same from the file of a closed segment. With the mutex, which is why memory is left alone. */
enum status body_read_closed(struct journal *journal, const struct body_ref *body,
    struct arena *arena, struct slice *ret_bytes, struct err *err) MUST_CHECK;
enum status journal_scan(struct store *store, const struct scan *scan, struct arena *arena,
    const struct record **ret_records, size_t *ret_count, struct err *err);
enum status journal_due(struct store *store, const struct store_due_filter *filter,
    struct store_due *ret_dues, size_t limit, size_t *ret_count, struct err *err);
enum status journal_entries(struct store *store, const struct entry_range *range, entry_visit visit,
    void *context, struct err *err);
/* The record of a slot, duplicates added, in the arena. */
enum status record_read(struct journal *journal, const struct slot *slot, struct arena *arena,
    const struct record **ret_record, struct err *err) MUST_CHECK;

/* recover.c: fold the files into the index. */
enum status journal_recover(struct journal *journal, struct err *err) MUST_CHECK;

/* snapshot.c: the saved index. */
/* Load the newest that checks out. *ret_copied[i] is the place up to which partition i is in it;
 * *ret_mark where to go on. false: none. */
bool snapshot_load(struct journal *journal, uint64_t ret_copied[INDEX_PARTS], struct mark *ret_mark,
    uint64_t *ret_until);
/* A piece of saving it, when it is time to. */
enum status snapshot_step(struct journal *journal, struct err *err) MUST_CHECK;
/* All of it at once, when the store is closed. Failing is no harm. */
void snapshot_save(struct journal *journal);
/* The background thread's part; called without the mutex. true: it did something. */
bool snapshot_work(struct journal *journal);
void snapshot_abandon(struct journal *journal);

/* maintain.c: the sweep, the background thread, the witness. */
enum status journal_maintain(struct store *store, struct err *err);
enum status background_start(struct journal *journal, struct err *err) MUST_CHECK;
void background_stop(struct journal *journal);
/* What a witness says; untouched when there is none, or it is not one of this chain's. */
void witness_read(const struct journal *journal, const char *path, struct mark *ret_mark);
/* E_CORRUPT: the journal that was recovered did not get to the mark. One of all zeros holds. */
enum status witness_check(const struct journal *journal, const char *path, const struct mark *mark,
    struct err *err) MUST_CHECK;
enum status witness_write(struct journal *journal, const char *path, struct err *err) MUST_CHECK;

/* squeeze.c */
enum status squeeze_step(struct journal *journal, struct err *err) MUST_CHECK;
bool squeeze_work(struct journal *journal);
void squeeze_abandon(struct journal *journal);
/* The table's. The oldest segment goes to archive/ of the data directory. */
enum status journal_removable(
    struct store *store, struct store_removable *ret_removable, struct err *err) MUST_CHECK;
enum status journal_remove(struct store *store, uint64_t number, struct err *err) MUST_CHECK;

#endif
