/*
 * Opening, creating and closing a data directory.
 *
 * Creation is atomic: everything is made in "PATH.new-…", flushed, and renamed to PATH. A crash
 * before the rename leaves only that directory, which nobody ever reads; after it, a whole store.
 */
#include "store/journal/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/macros.h"
#include "base/rand.h"
#include "base/text.h"
#include "store/journal/impl.h"

enum {
    LOCK_SLEEP_MS = 10,   /* between two attempts to get the lock */
    RETAIN_MS_DAYS = 400, /* the default of evidence.retain */
    OPEN_TRIES = 5,       /* of a reader, while the writer removes files */
};

/* Options ---------------------------------------------------------------------------------- */

static enum status option_set(
    struct journal_options *options, struct slice name, struct slice value, struct err *err)
{
    bool good = false;
    if (slice_is(name, "segment")) {
        good = text_size(value, &options->segment_bytes) &&
               options->segment_bytes >= JOURNAL_SEGMENT_MIN && options->segment_bytes <= 1u << 31;
        options->segment_bytes = block_up(options->segment_bytes);
    } else if (slice_is(name, "snapshot")) {
        good = text_size(value, &options->snapshot_bytes) && options->snapshot_bytes > 0;
    } else if (slice_is(name, "write")) {
        for (unsigned way = 0; way < JOURNAL_WAYS && !good; way++) {
            good = slice_is(value, journal_way_name((enum journal_way)way));
            options->way = good ? (enum journal_way)way : options->way;
        }
    } else if (slice_is(name, "erase")) {
        good = text_duration(value, &options->erase_ms) && options->erase_ms > 0;
    } else if (slice_is(name, "background")) {
        options->background = slice_is(value, "on");
        good = options->background || slice_is(value, "off");
    } else if (slice_is(name, "witness")) {
        good = value.len > 0 && value.len < sizeof options->witness;
        if (good) {
            (void)snprintf(options->witness, sizeof options->witness, "%.*s", SLICE_ARGS(value));
        }
    } else {
        (void)err_set(err, E_INVALID, "the journal has no option '%.*s'", SLICE_ARGS(name));
        err_hint(err, "there are segment, snapshot, erase, write, background and witness");
        return E_INVALID;
    }
    return good ? OK
                : err_set(err, E_INVALID, "'%.*s' is not a valid value of option '%.*s'",
                      SLICE_ARGS(value), SLICE_ARGS(name));
}

static enum status options_read(const char *text, struct journal_options *options, struct err *err)
{
    *options = (struct journal_options){
        .background = true, .snapshot_bytes = JOURNAL_SNAPSHOT_BYTES, .erase_ms = JOURNAL_ERASE_MS};
    const char *question = strchr(text, '?');
    size_t len = question == NULL ? strlen(text) : (size_t)(question - text);
    while (len > 1 && text[len - 1] == '/') {
        len--;
    }
    if (len == 0 || len >= sizeof options->path - 64) {
        return err_set(err, E_INVALID, "the path of the journal is empty or too long");
    }
    memcpy(options->path, text, len);
    enum status status = OK;
    for (const char *at = question; at != NULL && status == OK;) {
        const char *end = strchr(at + 1, '&');
        size_t size = end == NULL ? strlen(at + 1) : (size_t)(end - at - 1);
        const char *equals = memchr(at + 1, '=', size);
        if (equals == NULL) {
            return err_set(err, E_INVALID, "the option '%.*s' has no value", (int)size, at + 1);
        }
        struct slice name = slice_of(at + 1, (size_t)(equals - at - 1));
        struct slice value = slice_of(equals + 1, size - name.len - 1);
        status = option_set(options, name, value, err);
        at = end;
    }
    return status;
}

/* Creation --------------------------------------------------------------------------------- */

int file_make(
    const struct io *io, const char *path, const void *bytes, size_t size, uint64_t zeros_until)
{
    int fd = io->open(io->context, path, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (fd < 0) {
        return fd;
    }
    int failed = io_write_full(io, fd, bytes, size, 0);
    if (failed == 0 && zeros_until > size) {
        failed = segment_zero(io, fd, size, zeros_until);
    }
    if (failed == 0) {
        failed = io->fsync(io->context, fd);
    }
    int closed = io->close(io->context, fd);
    return failed != 0 ? failed : closed;
}

static enum status identity_make(struct identity *identity, uint64_t segment_bytes,
    const struct store_inheritance *inherit, struct err *err)
{
    *identity = (struct identity){.segment_bytes = segment_bytes};
    enum status status = store_identity_make(&identity->keys, err);
    if (status == OK && inherit == NULL) {
        status = rand_bytes(&identity->shared, sizeof identity->shared, err);
    } else if (status == OK) {
        identity->shared = inherit->shared;
        identity->origin = inherit->origin;
    }
    struct clock clock;
    clock_system(&clock);
    identity->created_ms = clock_read(&clock).wall_ms;
    return status;
}

static int directory_fill(const struct io *io, const struct mem *mem, const char *directory,
    const struct identity *identity, const struct store_inheritance *inherit)
{
    unsigned char bytes[IDENTITY_BYTES];
    identity_encode(identity, bytes);
    struct path path = path_in(directory, inherit == NULL ? "identity" : IDENTITY_UNFINISHED);
    int failed = file_make(io, path.text, bytes, sizeof bytes, 0);
    mem_wipe(bytes, sizeof bytes);
    if (failed == 0 && inherit != NULL) {
        failed = inherited_make(io, mem, directory, inherit);
    }
    if (failed != 0) {
        return failed;
    }
    struct segment_header header = {.number = 1,
        .size = identity->segment_bytes,
        .mark = {.place = place_make(1, JOURNAL_BLOCK_BYTES), .batch = 1}};
    if (inherit != NULL) { /* it continues from there */
        header.mark.fence = inherit->fence;
        header.mark.moment.time_ms = inherit->time_ms;
    }
    memcpy(header.chain_id, identity->keys.chain_id, 16);
    unsigned char block[JOURNAL_BLOCK_BYTES];
    segment_header_encode(&header, block);
    uint64_t zeros = identity->segment_bytes;
    zeros = zeros > JOURNAL_ZERO_FIRST ? JOURNAL_ZERO_FIRST : zeros;
    path = segment_path(directory, 1);
    failed = file_make(io, path.text, block, sizeof block, zeros);
    return failed != 0 ? failed : io_sync_dir(io, directory);
}

static void directory_discard(const struct io *io, const char *directory)
{
    static const char *const names[] = {"identity", IDENTITY_UNFINISHED, "inherited"};
    struct path path = segment_path(directory, 1);
    (void)io->unlink(io->context, path.text);
    for (size_t i = 0; i < COUNT(names); i++) {
        path = path_in(directory, names[i]);
        (void)io->unlink(io->context, path.text);
    }
    (void)io->rmdir(io->context, directory);
}

/* Losing a race against a different creator is not a failure: its store is opened. */
static enum status journal_create(
    struct journal *journal, const struct store_inheritance *inherit, struct err *err)
{
    const struct io *io = journal->io;
    uint64_t size = journal->options.segment_bytes;
    struct identity identity;
    enum status status =
        identity_make(&identity, size == 0 ? JOURNAL_SEGMENT_BYTES : size, inherit, err);
    if (status != OK) {
        return status;
    }
    struct path fresh;
    (void)snprintf(fresh.text, sizeof fresh.text, "%s.new-%ld-%" PRIx64, journal->options.path,
        (long)getpid(), clock_nanos());
    int failed = io->mkdir(io->context, fresh.text, 0700);
    if (failed == 0) {
        failed = directory_fill(io, journal->mem, fresh.text, &identity, inherit);
        if (failed == 0) {
            failed = io->rename(io->context, fresh.text, journal->options.path);
        }
        if (failed != 0) {
            directory_discard(io, fresh.text);
        }
    }
    mem_wipe(&identity, sizeof identity);
    if (failed == 0) {
        struct path parent = path_parent(journal->options.path);
        failed = io_sync_dir(io, parent.text);
    }
    if (failed != 0 && failed != -EEXIST && failed != -ENOTEMPTY) {
        (void)err_errno(
            err, E_UNAVAILABLE, -failed, "cannot create store '%s'", journal->options.path);
        if (failed == -EACCES) {
            err_hint(err, "name a store in a directory that you may write to");
        }
        return E_UNAVAILABLE;
    }
    return OK;
}

/* -ENOENT: there is none. */
static int identity_named(struct journal *journal, const char *name, const char **ret_wrong)
{
    const struct io *io = journal->io;
    struct path path = journal_path(journal, name);
    int fd = io->open(io->context, path.text, O_RDONLY, 0);
    if (fd < 0) {
        return fd;
    }
    return identity_read(io, fd, &journal->identity, ret_wrong);
}

/* Refuses a directory that is an unfinished copy of a different store. */
static enum status refuse_unfinished(struct journal *journal, struct err *err)
{
    struct err ignored = {0};
    enum status status = inherited_open(journal, false, &ignored);
    (void)err_set(err, E_UNAVAILABLE, "cannot open store '%s': it is an unfinished copy of '%s'",
        journal->options.path, status == OK ? journal->inherited.from : "a different store");
    err_hint(err, "run the same once copy again to finish it, or remove the directory");
    return E_UNAVAILABLE;
}

/* A copy should begin here, but there is a store. */
static enum status refuse_finished(struct journal *journal, struct err *err)
{
    (void)err_set(err, E_INVALID, "'%s' is a store already", journal->options.path);
    err_hint(err, "a copy never adds to a store; name a directory that does not exist");
    return E_INVALID;
}

/* An identity of that name, or a journal that is made now. */
static enum status identity_load(
    struct journal *journal, const struct store_options *options, struct err *err)
{
    const char *path = journal->options.path;
    const char *wrong = NULL;
    bool unfinished = options->inherit != NULL || options->unfinished;
    const char *name = unfinished ? IDENTITY_UNFINISHED : "identity";
    int failed = identity_named(journal, name, &wrong);
    if (failed == -ENOENT && (!unfinished || options->inherit != NULL)) {
        const char *ignored = NULL;
        int other =
            identity_named(journal, unfinished ? "identity" : IDENTITY_UNFINISHED, &ignored);
        if (other == 0) {
            return unfinished ? refuse_finished(journal, err) : refuse_unfinished(journal, err);
        }
        failed = other; /* absent too, or the disk cannot say */
    }
    if (failed == -ENOENT && !options->must_exist && !options->read_only) {
        enum status status = journal_create(journal, options->inherit, err);
        if (status != OK) {
            return status;
        }
        failed = identity_named(journal, name, &wrong);
        if (failed == -ENOENT) {
            return err_set(err, E_INVALID, "'%s' is a directory of something else", path);
        }
    }
    if (failed != 0) {
        return err_errno(err, E_UNAVAILABLE, -failed, "cannot open store '%s'", path);
    }
    if (wrong != NULL) {
        return err_set(err, E_CORRUPT, "the identity of '%s': %s", path, wrong);
    }
    if (journal->options.segment_bytes == 0) {
        journal->options.segment_bytes = journal->identity.segment_bytes;
    }
    return OK;
}

/* Loads the inherited evidence. A copy continues only from the store that it began with, in the
 * state that it had then. */
static enum status inherited_load(
    struct journal *journal, const struct store_inheritance *inherit, struct err *err)
{
    enum status status = inherited_open(journal, inherit != NULL, err);
    if (status != OK) {
        return status;
    }
    /* Both are zero if nothing was inherited. P10: the file cannot be removed unnoticed. */
    if (!digest_equal(&journal->inherited.origin, &journal->identity.origin)) {
        return err_set(err, E_CORRUPT, "store '%s': the file 'inherited' is %s",
            journal->options.path, journal->inherited.fd < 0 ? "missing" : "of a different copy");
    }
    if (inherit == NULL || digest_equal(&journal->inherited.origin, &inherit->origin)) {
        return OK;
    }
    (void)err_set(err, E_INVALID, "'%s' is an unfinished copy of '%s' in a different state",
        journal->options.path, journal->inherited.from);
    err_hint(err, "remove the directory, and copy again from the beginning");
    return E_INVALID;
}

/* The lock --------------------------------------------------------------------------------- */

static enum status lock_busy(struct journal *journal, int fd, struct err *err)
{
    const struct io *io = journal->io;
    char text[24] = {0};
    ssize_t got = io->pread(io->context, fd, text, sizeof text - 1, 0);
    unsigned long pid = got > 0 ? strtoul(text, NULL, 10) : 0;
    (void)err_set(err, E_UNAVAILABLE, "cannot open store '%s': in use by pid %lu",
        journal->options.path, pid);
    err_hint(err, "one process at a time writes to a journal: stop it, use a different store, or "
                  "open it read-only");
    return E_UNAVAILABLE;
}

static enum status lock_take(struct journal *journal, int64_t wait_ms, struct err *err)
{
    const struct io *io = journal->io;
    struct path path = journal_path(journal, "lock");
    int fd = io->open(io->context, path.text, O_RDWR | O_CREAT, 0600);
    if (fd < 0) {
        return err_errno(err, E_UNAVAILABLE, -fd, "cannot open '%s'", path.text);
    }
    int failed = io->lock(io->context, fd);
    uint64_t until = clock_nanos() + (uint64_t)(wait_ms > 0 ? wait_ms : 0) * 1000000;
    while (failed == -EWOULDBLOCK && clock_nanos() < until) {
        clock_sleep_ms(LOCK_SLEEP_MS);
        failed = io->lock(io->context, fd);
    }
    enum status status = OK;
    if (failed == -EWOULDBLOCK) {
        status = lock_busy(journal, fd, err);
    } else if (failed == 0) {
        /* The pid is for people: the lock holds without it, even on a full disk. */
        char text[24];
        int len = snprintf(text, sizeof text, "%ld\n", (long)getpid());
        (void)io->ftruncate(io->context, fd, 0);
        (void)io_write_full(io, fd, text, (size_t)len, 0);
    }
    if (status == OK && failed != 0) {
        status = err_errno(err, E_UNAVAILABLE, -failed, "cannot lock '%s'", path.text);
    }
    if (status != OK) {
        (void)io->close(io->context, fd);
        return status;
    }
    journal->lock_fd = fd;
    return OK;
}

/* The kept batches are stable, in order, and within their limit. With the mutex. */
static void recent_check(const struct journal *journal)
{
    size_t bytes = 0;
    uint64_t place = 0;
    for (unsigned i = 0; i < journal->recent_count; i++) {
        const struct buffer *kept =
            &journal->buffers[(journal->recent_first + i) % JOURNAL_BUFFERS];
        ASSERT(kept != journal->active && kept != journal->flight);
        ASSERT(kept->len > 0 && kept->mark.place >= place);
        place = kept->mark.place + kept->len;
        bytes += kept->cap;
    }
    ASSERT(bytes == journal->recent_bytes && bytes <= JOURNAL_RECENT_BYTES);
    ASSERT(place <= atomic_load(&journal->stable) || atomic_load(&journal->failed));
}

/* What holds between any two calls: the counts agree with the index, and places are in order. */
static void journal_check(struct journal *journal)
{
    uint64_t live = 0;
    index_check(&journal->index);
    dues_check(&journal->dues, &journal->index);
    for (size_t i = 0; i < journal->segments_count; i++) {
        ASSERT(journal->segments[i].number == journal->segments[0].number + i);
        ASSERT(!journal->segments[i].squeezed || journal->segments[i].live == 0);
        /* JF7 */
        ASSERT(!journal->segments[i].squeezed || i == 0 || journal->segments[i - 1].squeezed);
        live += journal->segments[i].live;
    }
    ASSERT(live == journal->index.count);
    ASSERT(store_tally_of(&journal->tally, STORE_KINDS_ALL).records == journal->index.count);
    (void)pthread_mutex_lock(&journal->mutex);
    ASSERT(atomic_load(&journal->stable) <= journal->next.place);
    ASSERT(
        journal->read_only || place_offset(journal->next.place) <= journal->tail.zeroed); /* JF3 */
    ASSERT(place_offset(journal->next.place) % JOURNAL_BLOCK_BYTES == 0 ||
           journal->segments[journal->segments_count - 1].squeezed); /* JF1 */
    ASSERT(journal->active->len == 0 || journal->active->mark.place == journal->next.place);
    recent_check(journal);
    (void)pthread_mutex_unlock(&journal->mutex);
}

/* Opening and closing ---------------------------------------------------------------------- */

static void journal_head(struct store *store, struct store_head *ret_head)
{
    *ret_head = journal_of(store)->head;
}

struct store_counts counts_of(const struct journal *journal, unsigned kinds)
{
    struct store_counts counts = store_tally_of(&journal->tally, kinds);
    bool first = true;
    for (unsigned kind = 0; kind < DUE_KINDS && counts.by_status[RECORD_UNKNOWN] > 0; kind++) {
        const struct due_entry *oldest = due_heap_first(&journal->dues.unknown[kind]);
        if (oldest != NULL && store_kind_in(kinds, (enum record_kind)kind) &&
            (first || (int64_t)oldest->order < counts.unknown_since_ms)) {
            counts.unknown_since_ms = (int64_t)oldest->order;
            first = false;
        }
    }
    return counts;
}

static enum status journal_counts(
    struct store *store, unsigned kinds, struct store_counts *ret_counts, struct err *err)
{
    (void)err;
    *ret_counts = counts_of(journal_of(store), kinds);
    return OK;
}

static void journal_identity(
    struct store *store, struct store_identity *ret_identity, struct store_shared *ret_shared)
{
    const struct journal *journal = journal_of(store);
    if (ret_identity != NULL) {
        *ret_identity = journal->identity.keys;
    }
    if (ret_shared != NULL) {
        *ret_shared = journal->identity.shared;
    }
}

static void journal_free(struct journal *journal)
{
    background_stop(journal);
    snapshot_abandon(journal);
    squeeze_abandon(journal);
    erase_abandon(journal);
    for (size_t i = 0; i < journal->segments_count; i++) {
        segment_forget_fd(journal, &journal->segments[i]);
    }
    mem_free(journal->mem, journal->segments);
    cache_release(journal);
    tail_close(journal);
    batch_writer_close(&journal->writer);
    inherited_close(journal);
    index_release(&journal->index);
    dues_release(&journal->dues);
    buf_release(&journal->undo);
    for (size_t i = 0; i < JOURNAL_BUFFERS; i++) {
        buffer_release(&journal->buffers[i], journal->mem);
    }
    if (journal->lock_fd >= 0) {
        (void)journal->io->close(journal->io->context, journal->lock_fd); /* releases the lock */
    }
    (void)pthread_cond_destroy(&journal->work);
    (void)pthread_cond_destroy(&journal->changed);
    (void)pthread_mutex_destroy(&journal->mutex);
    mem_wipe(&journal->identity, sizeof journal->identity);
    mem_free(journal->mem, journal);
}

/* Writes the journal's end, for the next open and for the witness. */
static enum status journal_leave(struct journal *journal, struct err *err)
{
    if (journal->stable_mark.batch == journal->batch_opened) {
        return OK;
    }
    snapshot_save(journal);
    struct path reached = journal_path(journal, "reached");
    struct err ignored = {0};
    /* Without it one kind of damage goes unnoticed; the stored data is safe all the same. */
    (void)!witness_write(journal, reached.text, &ignored);
    return journal->options.witness[0] == '\0'
               ? OK
               : witness_write(journal, journal->options.witness, err);
}

static enum status journal_close(struct store *store, struct err *err)
{
    struct journal *journal = journal_of(store);
    enum status status = OK;
    CHECK_SLOW(journal_check(journal));
    if (!journal->read_only) {
        status = journal_flush(store, err);
        background_stop(journal);
        if (status == OK) {
            status = journal_leave(journal, err);
        }
    }
    journal_free(journal);
    return status;
}

static const struct store_housekeeping journal_housekeeping = {
    .maintain = journal_maintain,
    .removable = journal_removable,
    .remove = journal_remove,
};

static const struct store_ops journal_ops = {
    .name = "journal",
    .prepare = journal_prepare,
    .commit = journal_commit,
    .abort = journal_abort,
    .flush = journal_flush,
    .read = journal_read,
    .scan = journal_scan,
    .due = journal_due,
    .entries = journal_entries,
    .counts = journal_counts,
    .head = journal_head,
    .identity = journal_identity,
    .close = journal_close,
    .housekeeping = &journal_housekeeping,
    .inheriting = &journal_inheriting,
    .flight = &journal_flight,
    .chains = journal_chains,
    .soon = &journal_soon,
};

static struct journal *journal_new(
    const struct store_options *options, const struct journal_options *read)
{
    const struct mem *mem = options->mem == NULL ? &mem_libc : options->mem;
    struct journal *journal = mem_zalloc(mem, 1, sizeof *journal);
    if (journal == NULL) {
        return NULL;
    }
    journal->store.ops = &journal_ops;
    journal->mem = mem;
    journal->io = options->io == NULL ? &io_system : options->io;
    clock_system(&journal->system);
    journal->clock.clock = options->clock == NULL ? &journal->system : options->clock;
    journal->options = *read;
    journal->read_only = options->read_only;
    journal->retain_ms =
        options->retain_ms > 0 ? options->retain_ms : RETAIN_MS_DAYS * INT64_C(86400000);
    journal->lock_fd = -1;
    journal->inherited.fd = -1;
    journal->tail.fd = -1;
    journal->tail.fd_batch = -1;
    journal->zero_step = JOURNAL_ZERO_FIRST;
    journal->active = &journal->buffers[0];
    index_init(&journal->index, mem);
    dues_init(&journal->dues, mem);
    buf_init(&journal->undo, mem, SIZE_MAX / 2);
    (void)pthread_mutex_init(&journal->mutex, NULL);
    (void)pthread_cond_init(&journal->changed, NULL);
    (void)pthread_cond_init(&journal->work, NULL);
    return journal;
}

/* Removes files that a crash left unfinished. Nothing depends on it. */
static void leftovers_remove(struct journal *journal)
{
    static const char *const names[] = {"spare", "index.tmp", "squeeze.tmp", "reached.tmp",
        "inherited.tmp", "probe.tmp", "replays-soon.tmp"};
    for (size_t i = 0; i < COUNT(names); i++) {
        struct path path = journal_path(journal, names[i]);
        (void)journal->io->unlink(journal->io->context, path.text);
    }
}

/* Settles how batches are written. Timing the ways takes longer than a few batches do. */
static enum status way_open(struct journal *journal, bool briefly, struct err *err)
{
    const struct journal_options *options = &journal->options;
    enum journal_way way = options->way;
    if (way == JOURNAL_WAY_AUTO) {
        way = briefly ? JOURNAL_WAY_BUFFERED : ways_probe(options->path, journal->io, journal->mem);
    }
    int failed = batch_writer_open(&journal->writer, journal->io, way);
    if (failed != 0 && options->way == JOURNAL_WAY_AUTO) {
        failed = batch_writer_open(&journal->writer, journal->io, JOURNAL_WAY_DIRECT);
    }
    if (failed == 0) {
        return OK;
    }
    (void)err_errno(err, E_UNAVAILABLE, -failed, "cannot open store '%s' with write=%s",
        options->path, journal_way_name(way));
    err_hint(err, "without write= the fastest way that is possible here is taken");
    return E_UNAVAILABLE;
}

static enum status journal_start(
    struct journal *journal, const struct store_options *options, struct err *err)
{
    enum status status = identity_load(journal, options, err);
    if (status == OK && (!journal->read_only || options->to_copy)) {
        status = lock_take(journal, options->lock_wait_ms, err);
        if (status == OK && !journal->read_only) {
            leftovers_remove(journal);
            journal->replays_soon = soon_read(journal);
            status = way_open(journal, options->briefly, err);
        }
    }
    status = status == OK ? inherited_load(journal, options->inherit, err) : status;
    struct path reached = journal_path(journal, "reached");
    struct mark marks[2] = {{0}, {0}};
    if (status == OK) {
        /* Read before the batches: a reader must not be held to batches written since. */
        witness_read(journal, reached.text, &marks[0]);
        witness_read(journal, journal->options.witness, &marks[1]);
        status = journal_recover(journal, err);
        if (status != OK) {
            err_prefix(err, "store '%s'", journal->options.path);
        }
    }
    if (status == OK) {
        status = witness_check(journal, reached.text, &marks[0], err);
    }
    if (status == OK) {
        status = witness_check(journal, journal->options.witness, &marks[1], err);
    }
    if (status == OK) {
        CHECK_SLOW(journal_check(journal));
        journal->batch_opened = journal->next.batch;
        erase_mark_all(journal);
        status = background_start(journal, err);
    }
    return status;
}

static enum status journal_try(const struct journal_options *read,
    const struct store_options *options, struct store **ret_store, struct err *err)
{
    struct journal *journal = journal_new(options, read);
    if (journal == NULL) {
        return err_set(err, E_NOMEM, "out of memory for the journal");
    }
    enum status status = journal_start(journal, options, err);
    if (status != OK) {
        journal_free(journal);
        return status;
    }
    *ret_store = &journal->store;
    return OK;
}

enum status journal_url_check(const char *path_and_options, struct err *err)
{
    struct journal_options read;
    return options_read(path_and_options, &read, err);
}

enum status journal_open(const char *path_and_options, const struct store_options *options,
    struct store **ret_store, struct err *err)
{
    struct journal_options read;
    enum status status = options_read(path_and_options, &read, err);
    if (status != OK) {
        return status;
    }
    /* While a reader opens, the writer may squeeze or archive a segment: then read again. */
    int tries = options->read_only ? OPEN_TRIES : 1;
    do {
        status = journal_try(&read, options, ret_store, err);
        tries--;
    } while (status == E_CORRUPT && tries > 0);
    return status;
}

enum status journal_info(struct store *store, struct journal_info *ret_info, struct err *err)
{
    if (strcmp(store->ops->name, "journal") != 0) {
        return err_set(err, E_MISUSE, "this store is not a journal");
    }
    struct journal *journal = journal_of(store);
    struct journal_info info = {.segments = journal->segments_count,
        .way = journal->read_only ? journal->options.way : atomic_load(&journal->writer.way),
        .snapshot_failed = journal->snapshot_failed,
        .segment_first = journal->segments[0].number,
        .created_ms = journal->identity.created_ms,
        .cache_bytes = journal->cache.bytes};
    (void)pthread_mutex_lock(&journal->mutex);
    info.batches = journal->next.batch - 1;
    info.snapshot_bytes = journal->snapshot_since;
    uint64_t tail = place_offset(journal->next.place);
    (void)pthread_mutex_unlock(&journal->mutex);
    for (size_t i = 0; i < journal->segments_count; i++) {
        info.segments_squeezed += journal->segments[i].squeezed;
        info.bytes += i + 1 == journal->segments_count ? tail : journal->segments[i].end;
    }
    for (unsigned i = 0; i < INDEX_PARTS; i++) {
        info.index_bytes += (uint64_t)journal->index.parts[i].room * sizeof(struct slot);
    }
    *ret_info = info;
    return OK;
}
