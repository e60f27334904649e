/*
 * Housekeeping: forgets expired records; and the background thread that writes ahead.
 *
 * A record is forgotten only once a flushed batch has a time past its window: a restart then begins
 * at or after that time, and the recovered index agrees with the one in memory even if the record's
 * frames were squeezed out (P8).
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>

#include "base/check.h"
#include "base/crc32c.h"
#include "store/journal/impl.h"

enum {
    SWEEP_SLOTS_MAX = 40000,        /* visited in one call: well under a millisecond */
    UNKNOWN_READS_MAX = 64,         /* unknown records read in one call: the same */
    UNKNOWN_ARENA_BYTES = 64 << 10, /* one record at its limits */
    WITNESS_BYTES = 128,            /* the whole file */
    WITNESS_EVERY_MS = 1000,        /* at most this often */
};

static const char witness_magic[8] = {'O', 'N', 'C', 'E', 'w', 'i', 't', '1'};

/* Drops expired records from one partition, and finds its earliest window again (IX3). */
static void sweep_part(struct journal *journal, unsigned number, uint32_t cutoff_s)
{
    struct index *index = &journal->index;
    struct part *part = &index->parts[number];
    uint32_t window_min = UINT32_MAX;
    for (uint32_t i = 0; i < part->end;) {
        struct slot *slot = &part->slots[i];
        if (slot->place != 0 && slot_expires(slot)) {
            if (slot->due_s <= cutoff_s) {
                slot_drop(journal, slot);
                continue; /* the next one may have moved here */
            }
            window_min = slot->due_s < window_min ? slot->due_s : window_min;
        }
        i++;
    }
    part->window_min = window_min;
    index_part_shrink(index, number);
}

static void sweep(struct journal *journal)
{
    (void)pthread_mutex_lock(&journal->mutex);
    int64_t cutoff_ms = journal->stable_mark.moment.time_ms; /* not the clock's: that may be lost */
    (void)pthread_mutex_unlock(&journal->mutex);
    uint32_t cutoff_s = cutoff_ms <= 0 ? 0 : (uint32_t)(cutoff_ms / 1000);
    size_t looked = 0;
    for (unsigned i = 0; i < INDEX_PARTS && looked < SWEEP_SLOTS_MAX; i++) {
        unsigned number = journal->sweep_part;
        const struct part *part = &journal->index.parts[number];
        if (part->count > 0 && part->window_min <= cutoff_s) {
            looked += part->end;
            sweep_part(journal, number, cutoff_s);
        }
        journal->sweep_part = (number + 1) % INDEX_PARTS;
    }
}

/* The saved index does not say when records became unknown: reads those records, some at a time. */
static enum status unknown_read(struct journal *journal, struct err *err)
{
    struct arena arena;
    arena_init(&arena, journal->mem, UNKNOWN_ARENA_BYTES);
    enum status status = OK;
    unsigned reads = 0;
    for (unsigned kind = 0; kind < DUE_KINDS; kind++) {
        struct due_heap *heap = &journal->dues.unknown[kind];
        const struct due_entry *first = due_heap_first(heap);
        for (; status == OK && first != NULL && first->order == DUE_CHANGED_UNKNOWN &&
               reads < UNKNOWN_READS_MAX;
             first = due_heap_first(heap), reads++) {
            const struct record *record;
            const struct slot *slot = index_seek(&journal->index, first->key_high, first->key_low);
            ASSERT(slot != NULL && slot->key_low == first->key_low); /* JD1 */
            arena_clear(&arena);
            status = record_read(journal, slot, &arena, &record, err);
            if (status == OK) {
                ASSERT(record->updated_ms > 0);
                due_heap_correct_first(heap, (uint64_t)record->updated_ms);
            }
        }
    }
    arena_release(&arena);
    return status;
}

/* Writes ahead if less than half a step is left, and makes the spare. true: there was work. */
static bool ahead_work(struct journal *journal)
{
    bool worked = false;
    struct err err = {0};
    (void)pthread_mutex_lock(&journal->mutex);
    uint64_t end = place_offset(journal->next.place) + journal->active->len;
    uint64_t wanted = end + journal->zero_step / 2;
    uint64_t size = journal->tail.size / JOURNAL_BLOCK_BYTES * JOURNAL_BLOCK_BYTES;
    wanted = wanted > size ? size : wanted;
    if (!journal->growing && journal->tail.zeroed < wanted) {
        worked = segment_grow(journal, journal->tail.zeroed + 1, &err) == OK;
    }
    uint64_t spare = journal->growing ? 0 : spare_wanted(journal);
    if (spare > 0) {
        journal->growing = true; /* prevents a roll from making it too */
    }
    (void)pthread_mutex_unlock(&journal->mutex);
    if (spare > 0) {
        bool made = segment_spare(journal, spare, &err) == OK;
        (void)pthread_mutex_lock(&journal->mutex);
        journal->spare_ready = made;
        journal->growing = false;
        (void)pthread_cond_broadcast(&journal->changed);
        (void)pthread_mutex_unlock(&journal->mutex);
        worked = worked || made;
    }
    return worked;
}

static bool witness_work(struct journal *journal)
{
    (void)pthread_mutex_lock(&journal->mutex);
    bool due = journal->witness_due;
    journal->witness_due = false;
    (void)pthread_mutex_unlock(&journal->mutex);
    struct err ignored = {0};
    /* A failure loses a warning, not a promise. The next attempt is a second away. */
    return due && witness_write(journal, journal->options.witness, &ignored) == OK;
}

static void *background_main(void *argument)
{
    struct journal *journal = argument;
    (void)pthread_setname_np(pthread_self(), "once-journal");
    (void)pthread_mutex_lock(&journal->mutex);
    while (!journal->thread_stop) {
        (void)pthread_mutex_unlock(&journal->mutex);
        bool worked = !atomic_load(&journal->failed) && ahead_work(journal);
        worked = snapshot_work(journal, true) || worked;
        worked = squeeze_work(journal) || worked;
        worked = erase_work(journal) || worked;
        worked = witness_work(journal) || worked;
        (void)pthread_mutex_lock(&journal->mutex);
        if (!worked && !journal->thread_stop) {
            (void)pthread_cond_wait(&journal->work, &journal->mutex);
        }
    }
    (void)pthread_mutex_unlock(&journal->mutex);
    return NULL;
}

enum status background_start(struct journal *journal, struct err *err)
{
    if (journal->read_only || !journal->options.background) {
        return OK;
    }
    int failed = pthread_create(&journal->thread, NULL, background_main, journal);
    if (failed != 0) {
        return err_errno(err, E_UNAVAILABLE, failed, "cannot start the background thread");
    }
    journal->thread_runs = true;
    return OK;
}

void background_stop(struct journal *journal)
{
    if (journal->thread_runs) {
        (void)pthread_mutex_lock(&journal->mutex);
        journal->thread_stop = true;
        (void)pthread_cond_broadcast(&journal->work);
        (void)pthread_mutex_unlock(&journal->mutex);
        (void)pthread_join(journal->thread, NULL);
        journal->thread_runs = false;
    }
}

/* The witness ------------------------------------------------------------------------------ */

enum status witness_write(struct journal *journal, const char *path, struct err *err)
{
    (void)pthread_mutex_lock(&journal->mutex);
    struct mark mark = journal->stable_mark;
    (void)pthread_mutex_unlock(&journal->mutex);
    unsigned char bytes[WITNESS_BYTES] = {0};
    memcpy(bytes, witness_magic, sizeof witness_magic);
    memcpy(bytes + 8, journal->identity.keys.chain_id, 16);
    mark_encode(&mark, bytes + 24);
    le32_put(bytes + WITNESS_BYTES - 4, crc32c(0, bytes, WITNESS_BYTES - 4));
    return file_replace(journal, path, slice_of(bytes, sizeof bytes), err);
}

const char *witness_load(
    const struct io *io, const char *path, const unsigned char chain_id[16], struct mark *ret_mark)
{
    unsigned char bytes[WITNESS_BYTES];
    int fd = path[0] == '\0' ? -1 : io->open(io->context, path, O_RDONLY, 0);
    if (fd < 0) {
        return NULL;
    }
    int failed = io_read_full(io, fd, bytes, sizeof bytes, 0);
    (void)io->close(io->context, fd);
    if (failed != 0) {
        return "it cannot be read";
    }
    if (memcmp(bytes, witness_magic, sizeof witness_magic) != 0 ||
        le32_get(bytes + WITNESS_BYTES - 4) != crc32c(0, bytes, WITNESS_BYTES - 4)) {
        return "its checksum is wrong";
    }
    if (memcmp(bytes + 8, chain_id, 16) != 0) {
        return "it belongs to a different chain";
    }
    mark_decode(bytes + 24, ret_mark);
    return NULL;
}

void witness_read(const struct journal *journal, const char *path, struct mark *ret_mark)
{
    (void)witness_load(journal->io, path, journal->identity.keys.chain_id, ret_mark);
}

struct witness_search {
    const struct mark *mark;
    bool differs;
};

static bool witness_visit(void *context, const struct entry *entry)
{
    struct witness_search *search = context;
    if (entry->kind != ENTRY_EVIDENCE) {
        return true;
    }
    search->differs = entry->seq != search->mark->seq ||
                      memcmp(&entry->hash, &search->mark->hash, sizeof entry->hash) != 0;
    return false;
}

enum status witness_check(
    const struct journal *journal, const char *path, const struct mark *mark, struct err *err)
{
    struct witness_search search = {.mark = mark};
    if (mark->batch <= journal->next.batch && mark->seq > journal->segments[0].mark.seq) {
        /* Recovery is done: this only reads. */
        struct journal *reader = (struct journal *)(uintptr_t)journal;
        struct entry_range range = {.after = entry_cursor_own(&reader->store, mark->seq - 1)};
        enum status status = journal_entries(&reader->store, &range, witness_visit, &search, err);
        if (status != OK) {
            return status;
        }
    }
    if (mark->batch > journal->next.batch || mark->seq > journal->next.seq || search.differs) {
        (void)err_set(err, E_CORRUPT,
            "'%s' (at batch %" PRIu64 ", entry %" PRIu64
            ") is older than its witness '%s' (at batch %" PRIu64 ", entry %" PRIu64
            "): restored from a backup?",
            journal->options.path, journal->next.batch - 1, journal->next.seq, path,
            mark->batch - 1, mark->seq);
        err_hint(err,
            "operations granted after the backup are not in it and could run twice; settle them, "
            "then remove the witness to continue");
        return E_CORRUPT;
    }
    return OK;
}

static void witness_step(struct journal *journal)
{
    int64_t now_ms = store_clock_now(&journal->clock).time_ms;
    if (journal->options.witness[0] == '\0' ||
        (now_ms >= journal->witness_ms && now_ms - journal->witness_ms < WITNESS_EVERY_MS)) {
        return;
    }
    journal->witness_ms = now_ms;
    (void)pthread_mutex_lock(&journal->mutex);
    if (journal->stable_mark.batch != journal->witness_batch) {
        journal->witness_due = true;
        journal->witness_batch = journal->stable_mark.batch;
        (void)pthread_cond_signal(&journal->work);
    }
    (void)pthread_mutex_unlock(&journal->mutex);
}

enum status journal_maintain(struct store *store, struct err *err)
{
    struct journal *journal = journal_of(store);
    ASSERT(!journal->prepared);
    enum status status = journal_failed(journal, err);
    if (status != OK || journal->read_only) {
        return status;
    }
    sweep(journal);
    status = unknown_read(journal, err);
    if (status == OK) {
        status = snapshot_step(journal, err);
    }
    if (status == OK) {
        status = squeeze_step(journal, err);
    }
    if (status == OK) {
        status = erase_step(journal, err);
    }
    if (status == OK) {
        status = journal_pass_time(journal, err);
    }
    inherited_retain(journal, journal->head.moment.time_ms);
    witness_step(journal);
    if (status == OK && !journal->thread_runs) {
        (void)ahead_work(journal);
        (void)snapshot_work(journal, false);
        (void)squeeze_work(journal);
        (void)erase_work(journal);
        (void)witness_work(journal);
        status = journal_failed(journal, err);
    }
    return status;
}
