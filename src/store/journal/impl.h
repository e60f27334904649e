/*
 * impl: shared by the files of the journal. Nobody else includes this.
 *
 * Life of a batch, and what a crash between two steps leaves:
 *
 *   empty --commit--> open --flush--> in flight --written and flushed--> stable
 *
 *   empty      the next batch has a place, but nothing of it exists.
 *   open       in memory only. Crash: gone; nobody was answered.
 *   in flight  on its way. Crash: all, nothing, or some sectors of it are there; the rest are zeros
 *              (JF3). Recovery keeps a whole batch and cuts any other; nobody was answered.
 *              If no thread waits for it (flight_unowned), the next one that needs it to be stable,
 *              or that asks, lands it.
 *   stable     acknowledged. Never written again (JF1). The last few stay in memory, so that a seal
 *              soon after its begin reads no file.
 *   failed     a write or flush failed: from now on the store returns only E_UNKNOWN (P11).
 *
 * Life of a segment:
 *
 *   spare --write header, flush, rename, flush directory--> current --full--> closed
 *         --no record in it is live--> squeezed --older than the retention--> archived
 *
 *   spare      a file of zeros, not a segment yet. Crash: removed at the next open.
 *   current    the last one. Zeros are written ahead of use (JF3).
 *   closed     complete: the next segment was made after its last batch was stable.
 *   squeezed   rewritten to a new file and renamed. Crash: either the old or the new file is there.
 *
 * Segment files are not reused: zeros distinguish a torn tail from damage (JF3), so an old file
 * would have to be overwritten with zeros too, and nothing would be gained.
 *
 * Threads: one thread at a time, not always the same, calls everything but flush (store.h): the
 * committing thread. mutex guards the state that the flushing and the background thread share
 * with it: the buffers, tail, next, stable, failed, and the jobs. Only the committing thread uses
 * the index and the list of segments.
 */
#ifndef ONCE_STORE_JOURNAL_IMPL_H
#define ONCE_STORE_JOURNAL_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/buf.h"
#include "base/macros.h"
#include "store/clock.h"
#include "store/journal/due.h"
#include "store/journal/format.h"
#include "store/journal/index.h"
#include "store/journal/inherited.h"
#include "store/journal/journal.h"
#include "store/journal/write_ways.h"

enum {
    JOURNAL_PATH_MAX = 4096 - 64,   /* of the directory, to which our file names are appended */
    JOURNAL_BUFFER_BYTES = 8 << 20, /* a batch is flushed when it has grown to this */
    JOURNAL_BUFFERS = 64,           /* batches in memory: one open, one in flight, the rest kept */
    JOURNAL_RECENT_BYTES = 8 << 20, /* of kept batches: a seal usually comes soon after its begin */
    JOURNAL_ZERO_FIRST = 1 << 20,   /* zeros at creation: a small store is made quickly */
    JOURNAL_ZERO_MAX = 16 << 20,    /* zeros written ahead at most */
    JOURNAL_SEGMENT_BYTES = 64 << 20,  /* of a new segment */
    JOURNAL_SEGMENT_MIN = 64 << 10,    /* smaller ones would be mostly header */
    JOURNAL_SNAPSHOT_BYTES = 64 << 20, /* journal bytes between two saved indexes */
    JOURNAL_ERASE_MS = 15 * 60 * 1000, /* erasing rewrites a segment and begins a new one, so it is
                                          not done for each record */
    JOURNAL_FILES_OPEN_MAX = 64,       /* old segments that are kept open for reading */
    JOURNAL_HINTS = 16, /* readers of evidence with a kept position: as many run at a time */
};

struct segment {
    uint64_t number;
    struct mark mark; /* before its first batch */
    uint64_t end;     /* bytes in use; for the current segment: when it was opened */
    uint32_t seed;    /* of its checksums */
    uint32_t live;    /* records whose latest frame is in it */
    bool squeezed;
    bool erasable; /* it may have bodies that no record has any more (erase.c) */
    int fd;        /* for reading; -1: not open */
};

/* One batch in memory. */
struct buffer {
    char *memory;      /* as allocated */
    char *data;        /* the first block in it: O_DIRECT requires alignment */
    size_t cap;        /* bytes from data on */
    size_t len;        /* bytes in use, including the batch header; 0: empty */
    uint32_t frames;   /* count */
    struct mark mark;  /* before it, including its own place and number */
    struct mark after; /* after its last commit; place and number are filled in later */
};

/* The segment that is being written. */
struct tail {
    uint64_t number;
    uint64_t size;   /* its maximal end */
    uint64_t zeroed; /* zeros were written and flushed up to here (JF3) */
    uint32_t seed;
    int fd;       /* for zeros ahead; O_DIRECT unless batches are buffered */
    int fd_batch; /* for batches, with the flags of the way; fd itself when they are buffered */
};

struct journal_options {
    char path[JOURNAL_PATH_MAX];    /* of the data directory */
    char witness[JOURNAL_PATH_MAX]; /* empty: none */
    uint64_t segment_bytes;         /* 0: the identity's value */
    uint64_t snapshot_bytes;
    int64_t erase_ms; /* how long a body may stay after its record was settled */
    enum journal_way way;
    bool background;
};

/* Frames in memory; cache.c. */
struct cache {
    struct cached *slots; /* NULL: nothing was kept yet */
    size_t bytes;         /* of the frames */
    uint32_t time;        /* counts uses */
    uint32_t hand;        /* where the next one is dropped for its bytes */
};

struct snapshot; /* being saved; snapshot.c */
struct squeeze;  /* being done; squeeze.c */
struct erase;    /* being done; erase.c */

/* A request body that a commit has written. */
struct journal_last_body {
    struct op_id operation_id; /* of its record; zero: none was written */
    struct slice bytes;        /* as the change gave them */
    uint64_t place;
};

struct journal {
    struct store store;
    const struct mem *mem;
    const struct io *io;
    struct journal_options options;
    bool read_only;
    int64_t retain_ms;
    struct identity identity;
    int lock_fd;                /* -1: not locked by us */
    struct inherited inherited; /* evidence of the store that this journal was copied from */

    struct clock system;      /* the machine's clock, if no other was given */
    struct store_clock clock; /* the time that decisions use */

    struct index index;
    struct dues dues;         /* agrees with the index (JD1) */
    struct store_head head;   /* includes everything committed */
    struct store_tally tally; /* of the records in the index */
    uint64_t fence;           /* the highest given out */
    struct store_moment now;  /* of the batch that is prepared … */
    bool prepared;            /* … and must be committed or aborted */
    struct segment *segments; /* in the order of their numbers, which are dense */
    size_t segments_count;
    size_t segments_cap;
    unsigned files_open;                    /* of segments[].fd */
    struct buf undo;                        /* struct journal_undo of the commit being made */
    struct journal_last_body last_body;     /* the request body that it wrote last */
    struct cache cache;                     /* of frames that duplicates ask for */
    unsigned sweep_part;                    /* where the next sweep for expired records begins */
    struct entry_pace hints[JOURNAL_HINTS]; /* where readers of evidence stopped; place 0: none */
    unsigned hint_next;                     /* the one to be replaced, modulo their count */

    pthread_mutex_t mutex;
    pthread_cond_t changed;                 /* flight, growing or failed changed */
    pthread_cond_t work;                    /* there may be something for the background thread */
    struct buffer buffers[JOURNAL_BUFFERS]; /* a ring: kept, in flight, active, empty */
    struct buffer *active;                  /* commits go here */
    struct buffer *flight;                  /* being written; NULL: none */
    bool flight_unowned;                    /* no thread waits for it: the next one that needs it
                                               lands it */
    struct mark flight_after;               /* before the batch after it */
    unsigned recent_first;                  /* in buffers: the oldest batch that is kept */
    unsigned recent_count;                  /* batches that are kept, from there on */
    size_t recent_bytes;                    /* memory they take */
    _Atomic uint64_t recent_place;          /* everything before this place is only in the files */
    bool growing;                           /* a thread is writing zeros ahead */
    struct tail tail;
    struct batch_writer writer; /* of batches; used by the thread whose batch is in flight */
    struct mark next;           /* before the next batch */
    struct mark stable_mark;    /* of the batch after the last stable one */
    _Atomic uint64_t stable;    /* everything before this place can be read from the files */
    _Atomic bool failed;        /* sticky */
    struct err failure;         /* why */

    pthread_t thread;          /* the background thread … */
    bool thread_runs;          /* … when there is one */
    bool thread_stop;          /* it must end */
    bool spare_ready;          /* a spare segment exists */
    uint64_t zero_step;        /* how many bytes to write ahead next */
    struct snapshot *snapshot; /* being saved; NULL: none */
    uint64_t snapshot_place;   /* the place at which the last saved index was begun */
    uint64_t snapshot_since;   /* bytes of journal written since then */
    bool snapshot_failed;      /* the last one could not be saved */
    struct squeeze *squeeze;   /* being done; NULL: none */
    uint64_t squeeze_failed;   /* the saved index at which squeezing failed; 0: none */
    struct erase *erase;       /* being done; NULL: none */
    int64_t erase_due_ms;      /* on the boot clock: when the next round begins; 0: nothing to do */
    uint64_t erase_next;       /* the segment to check next in this round … */
    uint64_t erase_end;        /* … which ends before this one */
    int64_t witness_ms;        /* when the witness was last considered */
    uint64_t witness_batch;    /* the batch that it holds */
    bool witness_due;          /* it must be written */
    uint64_t batch_opened;     /* the number of the next batch at opening */
    bool replays_soon;         /* the file of store_soon's mark is present */
};

static inline struct journal *journal_of(struct store *store)
{
    return CONTAINER_OF(store, struct journal, store);
}

/* segment.c: the files. */
struct path {
    char text[4096];
};
struct path journal_path(const struct journal *journal, const char *name);
/* The directory that a path is in. */
struct path path_parent(const char *path);
struct path path_in(const char *directory, const char *name);
struct path segment_path(const char *directory, uint64_t number);
/* The numbers after "prefix-" of all files in a directory, sorted; the caller frees them. */
enum status segment_list(const char *directory, const char *prefix, const struct mem *mem,
    uint64_t **ret_numbers, size_t *ret_count, struct err *err) MUST_CHECK;
/* The size of a segment's file, for a progress bar; 0: it cannot be opened. */
uint64_t segment_file_bytes(const struct io *io, const char *directory, uint64_t number);
enum status segment_add(
    struct journal *journal, const struct segment *segment, struct err *err) MUST_CHECK;
static inline struct segment *segment_get(struct journal *journal, uint64_t number)
{
    if (journal->segments_count == 0 || number < journal->segments[0].number ||
        number - journal->segments[0].number >= journal->segments_count) {
        return NULL;
    }
    return &journal->segments[number - journal->segments[0].number];
}
/* A descriptor to read a segment with. */
enum status segment_fd(
    struct journal *journal, struct segment *segment, int *ret_fd, struct err *err) MUST_CHECK;
void segment_forget_fd(struct journal *journal, struct segment *segment);
/* Writes zeros from one offset to another and flushes them. */
int segment_zero(const struct io *io, int fd, uint64_t from, uint64_t until);
/* Writes zeros up to at least `until`, in growing steps. Called and returns with the mutex. */
enum status segment_grow(struct journal *journal, uint64_t until, struct err *err) MUST_CHECK;
/* Makes the file that becomes the next segment. Needs no mutex. */
enum status segment_spare(struct journal *journal, uint64_t bytes, struct err *err) MUST_CHECK;
/*
 * How many zeros the spare should begin with; 0: it is not time for a spare yet. With the mutex. In
 * a busy journal the whole spare is zeroed early: zeros written ahead in the current segment are
 * dirty pages of the same file that each batch flushes, and every flush waits for them.
 */
uint64_t spare_wanted(const struct journal *journal);
/* Begins the next segment, with room for a batch of that many bytes. With the mutex. */
enum status segment_roll(struct journal *journal, uint64_t batch_bytes, struct err *err) MUST_CHECK;
/* Opens the current segment for writing. */
enum status tail_open(
    struct journal *journal, const struct segment_header *header, struct err *err) MUST_CHECK;
void tail_close(struct journal *journal);
/* Makes a file of these bytes and zeros up to an offset, and flushes it. -EEXIST: there is one. */
int file_make(
    const struct io *io, const char *path, const void *bytes, size_t size, uint64_t zeros_until);
/* Replaces a small file atomically: writes a new one, flushes, renames, flushes the directory. */
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
    int error;           /* -errno if cursor_start could not read, which is not damage; else 0 */
    size_t window_bytes; /* read at a time; cursor_init sets a default */
    char *window;        /* bytes of the file … */
    size_t window_cap;   /* … as many as fit … */
    uint64_t window_at;  /* … from this offset … */
    size_t window_len;   /* … to this many after it */
};

enum cursor_result {
    CURSOR_BATCH,  /* *ret_batch is whole */
    CURSOR_END,    /* only zeros, or the end of the file, where the next batch would be */
    CURSOR_TORN,   /* the header is whole, but other sectors were never written */
    CURSOR_DAMAGE, /* it is invalid */
    CURSOR_FAILED, /* it could not be read */
};

struct cursor_batch {
    struct batch_header header;
    uint64_t offset;
    const char *bytes; /* the whole batch; valid until the next call */
    const char *wrong; /* torn, damage, failed: what is wrong */
    int error;         /* failed: -errno */
};

void cursor_init(struct cursor *cursor, const struct io *io, const struct mem *mem, int fd);
void cursor_release(struct cursor *cursor);
/* Reads and checks the segment's header. NULL, or what is wrong. */
const char *cursor_start(struct cursor *cursor, struct segment_header *ret_header);
enum cursor_result cursor_next(struct cursor *cursor, struct cursor_batch *ret_batch);
/* Bytes of the file, at most size. NULL: they could not be read. */
const char *cursor_bytes(struct cursor *cursor, uint64_t offset, size_t size, int *ret_error);
/* The offset of the first block after `from` at which a batch seems to begin; the file's size if
 * there is none. If a block cannot be read: its offset, and *ret_error is set. */
uint64_t cursor_find(struct cursor *cursor, uint64_t from, int *ret_error);
/* Reads the frame at *at in a checked batch and steps over it. false: no more. */
bool batch_frame(const struct cursor_batch *batch, uint32_t *at, struct frame *ret_frame);

/* walk.c */
/* Opens the identity of a journal or of an unfinished copy, only to read it. -errno. */
int identity_open(const struct io *io, const char *directory, struct path *ret_path);
/* Reads an identity file and closes it. 0, or a negative errno; *ret_wrong: what is wrong with the
 * file, and *ret_identity is invalid then; NULL: nothing. */
int identity_read(
    const struct io *io, int fd, struct identity *ret_identity, const char **ret_wrong);

/* write.c: commit and flush. */
enum status journal_commit(struct store *store, const struct commit *commit, struct err *err);
enum status journal_flush(struct store *store, struct err *err);
extern const struct store_flight journal_flight;
/* Commits the time, if the last commit was long ago and something waits for time to pass. */
enum status journal_pass_time(struct journal *journal, struct err *err) MUST_CHECK;
/* Writes a record again at the end, with its bodies (FRAME_MOVED). */
enum status journal_move(
    struct journal *journal, const struct slot *slot, struct err *err) MUST_CHECK;
/* Begins a new segment, so that the current one is closed. */
enum status journal_roll(struct journal *journal, struct err *err) MUST_CHECK;
/* Both are called with the mutex, which is released while writing. */
enum status flush_locked(struct journal *journal, struct err *err) MUST_CHECK;
enum status journal_fail(struct journal *journal, const struct err *cause, struct err *err);
enum status journal_failed(struct journal *journal, struct err *err);
void buffer_release(struct buffer *buffer, const struct mem *mem);
/* Changes the index, with its counts and dues. found is the slot that index_find returns, NULL if
 * absent; changed_ms is the record's last change. E_NOMEM: nothing changed. */
enum status slot_set(struct journal *journal, struct slot *found, const struct slot *slot,
    int64_t changed_ms) MUST_CHECK;
void slot_drop(struct journal *journal, struct slot *slot);
/* Adds a slot that was appended to the index to its counts and dues. E_NOMEM: it did not. */
enum status slot_count(struct journal *journal, const struct slot *slot) MUST_CHECK;
/* Empties the index, with its counts and dues. */
void slots_clear(struct journal *journal);

/* inherited.c: the table's. */
enum status journal_chains(
    struct store *store, store_chain_visit visit, void *context, struct err *err);
extern const struct store_inheriting journal_inheriting;

/* journal.c */
/* How many records of these kinds there are, and since when the oldest has been unknown. */
struct store_counts counts_of(const struct journal *journal, unsigned kinds);

/* prepare.c */
enum status journal_prepare(struct store *store, struct store_batch *batch, struct err *err);
void journal_abort(struct store *store);
enum status journal_read(struct store *store, struct store_batch *batch, struct err *err);

/* read.c: records and bodies by their place; scan, due, entries. */
/* Returns E_CORRUPT with the place in the text. */
enum status place_corrupt(uint64_t place, const char *wrong, struct err *err);
/* The bytes of a retained body, checked against its digest. */
enum status body_read(struct journal *journal, const struct body_ref *body, struct arena *arena,
    struct slice *ret_bytes, struct err *err) MUST_CHECK;
/* The same for an outcome, which duplicates ask for: from the cache, or into it. Request bodies are
 * not kept, so that none stays in memory after it was erased. */
enum status body_read_again(struct journal *journal, const struct body_ref *body,
    struct arena *arena, struct slice *ret_bytes, struct err *err) MUST_CHECK;
/* The same from the file of a closed segment. With the mutex, so it does not read the buffers. */
enum status body_read_closed(struct journal *journal, const struct body_ref *body,
    struct arena *arena, struct slice *ret_bytes, struct err *err) MUST_CHECK;
enum status journal_scan(struct store *store, const struct scan *scan, struct arena *arena,
    const struct record **ret_records, size_t *ret_count, struct err *err);
enum status journal_due(struct store *store, const struct store_due_filter *filter,
    struct store_due *ret_dues, size_t limit, size_t *ret_count, struct err *err);
enum status journal_entries(struct store *store, const struct entry_range *range, entry_visit visit,
    void *context, struct err *err);
/* The record of a slot, with its touches counted, in the arena. */
enum status record_read(struct journal *journal, const struct slot *slot, struct arena *arena,
    const struct record **ret_record, struct err *err) MUST_CHECK;
/* The same for a key that was asked for again: from the cache, or into it. */
enum status record_read_again(struct journal *journal, const struct slot *slot, struct arena *arena,
    const struct record **ret_record, struct err *err) MUST_CHECK;

/* cache.c: frames that duplicates ask for. With the thread of the commits. */
/* Keeps a copy of a checked frame, if it is stable. */
void cache_keep(struct journal *journal, uint64_t place, const struct frame *frame);
/* The payload is the cache's and valid until its next call. False: it is absent. */
bool cache_find(struct journal *journal, uint64_t place, struct frame *ret_frame);
void cache_release(struct journal *journal);
/* A segment's file was replaced or moved away: everything read from it is outdated. */
void segment_replaced(struct journal *journal, struct segment *segment);

/* soon.c: the mark of store_soon. */
/* Whether the file is present. If it cannot be read, it counts as present. */
bool soon_read(const struct journal *journal);
extern const struct store_soon journal_soon;

/* recover.c: fold the files into the index. */
enum status journal_recover(struct journal *journal, struct err *err) MUST_CHECK;

/* snapshot.c: the saved index. */
/* Loads the newest valid one. ret_copied[i] is the place up to which it has partition i; *ret_mark
 * is where to continue. false: none. */
bool snapshot_load(struct journal *journal, uint64_t ret_copied[INDEX_PARTS], struct mark *ret_mark,
    uint64_t *ret_until);
/* Does a piece of saving the index, if it is time to. */
enum status snapshot_step(struct journal *journal, struct err *err) MUST_CHECK;
/* Saves all of it at once, when the store is closed. Failure does no harm. */
void snapshot_save(struct journal *journal);
/* The background thread's part; called without the mutex. true: there was work. Paced: flushes what
 * it has written, and then leaves the disk to the batches for a moment. */
bool snapshot_work(struct journal *journal, bool is_paced);
void snapshot_abandon(struct journal *journal);

/* maintain.c: the sweep, the background thread, the witness. */
enum status journal_maintain(struct store *store, struct err *err);
enum status background_start(struct journal *journal, struct err *err) MUST_CHECK;
void background_stop(struct journal *journal);
/* Reads a witness. NULL: it is valid, or absent, and then ret_mark is untouched; otherwise what is
 * wrong with it. */
const char *witness_load(
    const struct io *io, const char *path, const unsigned char chain_id[16], struct mark *ret_mark);
/* The same of a journal; one that is invalid counts as absent. */
void witness_read(const struct journal *journal, const char *path, struct mark *ret_mark);
/* E_CORRUPT: the recovered journal ends before the mark. A mark of all zeros always holds. */
enum status witness_check(const struct journal *journal, const char *path, const struct mark *mark,
    struct err *err) MUST_CHECK;
enum status witness_write(struct journal *journal, const char *path, struct err *err) MUST_CHECK;

/* erase.c */
/* The record was settled, and its body is not to be kept: the body is erased within a bound. */
void erase_mark(struct journal *journal, const struct record *record);
/* After recovery: bodies that were marked before may still be there. */
void erase_mark_all(struct journal *journal);
bool erase_is_at(const struct journal *journal, uint64_t number);
/* The record is settled work, whose request body is erased whatever the record says of it. */
bool erase_takes(const struct record *record);
enum status erase_step(struct journal *journal, struct err *err) MUST_CHECK;
bool erase_work(struct journal *journal);
void erase_abandon(struct journal *journal);

/* squeeze.c */
/* A segment that is written again, batch after batch. */
struct rewrite {
    /* Appends the batch, changed, to bytes. */
    void (*batch)(struct rewrite *rewrite, const struct cursor_batch *batch);
    void *context; /* its own */
    bool squeezes; /* what is written is a squeezed segment */
    struct cursor cursor;
    const struct io *io;
    int to;
    struct buf bytes; /* to be written … */
    uint64_t offset;  /* … here; the end of the new file afterwards */
    uint32_t seed;
};
/* Writes the segment to a new file, flushes it and renames it over the old one. -errno: the old one
 * is as it was, unless only the directory could not be flushed. Not while it is the current one. */
int segment_rewrite(struct journal *journal, uint64_t number, struct rewrite *rewrite);
bool squeeze_is_at(const struct journal *journal, uint64_t number);
enum status squeeze_step(struct journal *journal, struct err *err) MUST_CHECK;
bool squeeze_work(struct journal *journal);
void squeeze_abandon(struct journal *journal);
/* For the table of functions. The oldest segment is moved to archive/ of the data directory. */
enum status journal_removable(
    struct store *store, struct store_removable *ret_removable, struct err *err) MUST_CHECK;
enum status journal_remove(struct store *store, uint64_t number, struct err *err) MUST_CHECK;

#endif
