/*
 * The saved index, so that a start reads only the tail of the journal.
 *
 * It is copied a few partitions at a time while the store is in use. Each partition remembers the
 * place in the journal at which it was copied, and recovery replays only later frames into it.
 *
 *   copying --all partitions--> copied --journal stable up to the last copy--> finished --> gone
 *
 *   Crash while copying or copied: `index.tmp` is left and overwritten or removed later.
 *   Crash while finishing: if the file has its name, it is complete.
 *
 * The piece being worked on has one owner, the committing thread (impl.h) or the writer (the
 * background thread, or maintain itself); owner changes under the mutex only.
 *
 * A saved index is never needed: a damaged or missing one means an older one or a longer start.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/crc32c.h"
#include "core/kind.h"
#include "store/journal/impl.h"

enum {
    SNAPSHOT_HEADER_BYTES = 4096,
    SNAPSHOT_PART_BYTES = 32,       /* before a partition's slots */
    SNAPSHOT_SLOT_BYTES = 40,       /* each */
    SNAPSHOT_TRAILER_BYTES = 64,    /* after the last partition */
    SNAPSHOT_SLOTS_A_STEP = 25000,  /* copied in one call: a fraction of a millisecond */
    SNAPSHOT_CLOSE_BYTES = 4 << 20, /* closing saves the index when the tail is longer */
    SNAPSHOT_KEEP = 2,              /* the newest, and one more in case that is damaged */
    SNAPSHOT_REST = 3,              /* times as long as a piece took: batches need the disk, too */
    SNAPSHOT_REST_MS_MAX = 20,      /* a start that reads more of the journal costs more */
};

static const char header_magic[8] = {'O', 'N', 'C', 'E', 'i', 'd', 'x', '1'};
static const char trailer_magic[8] = {'O', 'N', 'C', 'E', 'i', 'd', 'x', 'Z'};

enum owner { OWNER_COMMITTER, OWNER_WRITER };

struct snapshot {
    struct mark mark; /* recovery continues from here */
    unsigned part;    /* the next to copy */
    uint64_t slots;   /* copied so far */
    uint64_t until;   /* the last place that a copy may refer to is before this */
    struct buf piece; /* bytes to write */
    uint64_t offset;  /* where to write them */
    int fd;           /* the writer's; -1: not open yet */
    enum owner owner;
    bool last; /* the piece is the last one, and the file gets its name next */
    bool done; /* it has its name */
    bool failed;
};

static struct path snapshot_path(const struct journal *journal, uint64_t number)
{
    char name[32];
    (void)snprintf(name, sizeof name, "index-%016" PRIx64, number);
    return journal_path(journal, name);
}

/* Saving ----------------------------------------------------------------------------------- */

static void slot_encode(const struct slot *slot, unsigned char *bytes)
{
    le64_put(bytes, slot->key_high);
    le64_put(bytes + 8, slot->key_low);
    le64_put(bytes + 16, slot->place);
    le32_put(bytes + 24, slot->due_s);
    le32_put(bytes + 28, slot->duplicates);
    le32_put(bytes + 32, slot->version);
    /* An operation's kind is written as 0, as before there were other kinds. */
    uint32_t kind = slot->kind == RECORD_OPERATION ? 0 : slot->kind;
    le32_put(bytes + 36, slot->status | kind << 8 | (uint32_t)slot->held << 16);
}

static void header_copy(const struct journal *journal, struct snapshot *snapshot)
{
    unsigned char block[SNAPSHOT_HEADER_BYTES] = {0};
    memcpy(block, header_magic, sizeof header_magic);
    le32_put(block + 8, JOURNAL_VERSION);
    le32_put(block + 12, INDEX_PARTS);
    memcpy(block + 16, journal->identity.keys.chain_id, 16);
    mark_encode(&snapshot->mark, block + 32);
    le32_put(block + sizeof block - 4, crc32c(0, block, sizeof block - 4));
    buf_append(&snapshot->piece, block, sizeof block);
}

static void part_copy(struct journal *journal, struct snapshot *snapshot, uint64_t place)
{
    const struct part *part = &journal->index.parts[snapshot->part];
    size_t size = SNAPSHOT_PART_BYTES + (size_t)part->count * SNAPSHOT_SLOT_BYTES;
    unsigned char *bytes = (unsigned char *)buf_extend(&snapshot->piece, size);
    if (bytes == NULL) {
        return; /* the piece remembers */
    }
    memset(bytes, 0, SNAPSHOT_PART_BYTES);
    le32_put(bytes, snapshot->part);
    le32_put(bytes + 4, part->count);
    le64_put(bytes + 8, place);
    unsigned char *at = bytes + SNAPSHOT_PART_BYTES;
    for (uint32_t i = 0; i < part->end; i++) {
        if (part->slots[i].place != 0) {
            slot_encode(&part->slots[i], at);
            at += SNAPSHOT_SLOT_BYTES;
        }
    }
    ASSERT(at == bytes + size);
    uint32_t crc = crc32c(0, bytes, 16);
    le32_put(bytes + 16, crc32c(crc, bytes + SNAPSHOT_PART_BYTES, size - SNAPSHOT_PART_BYTES));
    snapshot->slots += part->count;
}

static void trailer_copy(struct snapshot *snapshot)
{
    unsigned char bytes[SNAPSHOT_TRAILER_BYTES] = {0};
    memcpy(bytes, trailer_magic, sizeof trailer_magic);
    le64_put(bytes + 8, snapshot->mark.batch);
    le64_put(bytes + 16, snapshot->until);
    le64_put(bytes + 24, snapshot->slots);
    le32_put(bytes + sizeof bytes - 4, crc32c(0, bytes, sizeof bytes - 4));
    buf_append(&snapshot->piece, bytes, sizeof bytes);
}

static struct snapshot *snapshot_new(struct journal *journal)
{
    struct snapshot *snapshot = mem_zalloc(journal->mem, 1, sizeof *snapshot);
    if (snapshot == NULL) {
        return NULL;
    }
    snapshot->fd = -1;
    buf_init(&snapshot->piece, journal->mem, SIZE_MAX / 2);
    (void)pthread_mutex_lock(&journal->mutex);
    snapshot->mark = journal->active->len > 0 ? journal->active->mark : journal->next;
    journal->snapshot_since = 0;
    journal->snapshot = snapshot;
    (void)pthread_mutex_unlock(&journal->mutex);
    header_copy(journal, snapshot);
    return snapshot;
}

static void snapshot_free(struct journal *journal)
{
    (void)pthread_mutex_lock(&journal->mutex);
    struct snapshot *snapshot = journal->snapshot;
    journal->snapshot = NULL;
    (void)pthread_mutex_unlock(&journal->mutex);
    if (snapshot != NULL) {
        if (snapshot->fd >= 0) {
            (void)journal->io->close(journal->io->context, snapshot->fd);
        }
        buf_release(&snapshot->piece);
        mem_free(journal->mem, snapshot);
    }
}

void snapshot_abandon(struct journal *journal)
{
    ASSERT(!journal->thread_runs);
    snapshot_free(journal);
}

static void snapshot_copy(struct journal *journal, struct snapshot *snapshot, uint64_t slots_max)
{
    (void)pthread_mutex_lock(&journal->mutex);
    const struct buffer *active = journal->active;
    uint64_t place = active->len > 0 ? active->mark.place + active->len : journal->next.place;
    (void)pthread_mutex_unlock(&journal->mutex);
    uint64_t slots = 0;
    for (; snapshot->part < INDEX_PARTS && slots < slots_max; snapshot->part++) {
        slots += journal->index.parts[snapshot->part].count;
        part_copy(journal, snapshot, place);
    }
    snapshot->until = place;
    if (snapshot->part == INDEX_PARTS) {
        trailer_copy(snapshot);
    }
}

static void snapshot_hand_over(struct journal *journal, struct snapshot *snapshot)
{
    (void)pthread_mutex_lock(&journal->mutex);
    snapshot->owner = OWNER_WRITER;
    (void)pthread_cond_signal(&journal->work);
    (void)pthread_mutex_unlock(&journal->mutex);
}

static void snapshot_step_owned(
    struct journal *journal, struct snapshot *snapshot, uint64_t slots_max)
{
    if (snapshot->done || snapshot->failed) {
        journal->snapshot_failed = snapshot->failed;
        if (snapshot->done) {
            journal->snapshot_place = snapshot->mark.place;
        }
        snapshot_free(journal);
        return;
    }
    if (snapshot->part < INDEX_PARTS) {
        snapshot_copy(journal, snapshot, slots_max);
        snapshot_hand_over(journal, snapshot);
    } else if (atomic_load(&journal->stable) >= snapshot->until) {
        snapshot->last = true;
        snapshot_hand_over(journal, snapshot);
    }
}

/* At least as much journal as the option says, and for a large index at least its own size. */
static bool snapshot_wanted(struct journal *journal)
{
    uint64_t index_bytes = journal->index.count * SNAPSHOT_SLOT_BYTES;
    uint64_t bytes = journal->options.snapshot_bytes;
    (void)pthread_mutex_lock(&journal->mutex);
    uint64_t since = journal->snapshot_since;
    (void)pthread_mutex_unlock(&journal->mutex);
    return since >= (index_bytes > bytes ? index_bytes : bytes);
}

static void snapshot_advance(struct journal *journal, uint64_t slots_max)
{
    (void)pthread_mutex_lock(&journal->mutex);
    struct snapshot *snapshot = journal->snapshot;
    bool mine = snapshot != NULL && snapshot->owner == OWNER_COMMITTER;
    (void)pthread_mutex_unlock(&journal->mutex);
    if (mine) {
        snapshot_step_owned(journal, snapshot, slots_max);
    }
}

enum status snapshot_step(struct journal *journal, struct err *err)
{
    (void)err; /* a saved index is never needed: journal_info reports a failure to save one */
    if (journal->snapshot == NULL) {
        if (!snapshot_wanted(journal)) {
            return OK;
        }
        if (snapshot_new(journal) == NULL) {
            journal->snapshot_failed = true;
            return OK;
        }
    }
    snapshot_advance(journal, SNAPSHOT_SLOTS_A_STEP);
    return OK;
}

void snapshot_save(struct journal *journal)
{
    ASSERT(!journal->thread_runs);
    snapshot_abandon(journal);
    uint64_t least = journal->options.snapshot_bytes;
    least = least < SNAPSHOT_CLOSE_BYTES ? least : SNAPSHOT_CLOSE_BYTES;
    if (journal->snapshot_since < least || snapshot_new(journal) == NULL) {
        return;
    }
    while (journal->snapshot != NULL) {
        snapshot_advance(journal, 8 * SNAPSHOT_SLOTS_A_STEP);
        while (snapshot_work(journal, false)) {
        }
    }
}

/* The writer's part ------------------------------------------------------------------------ */

static void snapshot_remove_old(const struct journal *journal)
{
    uint64_t *numbers = NULL;
    size_t count = 0;
    struct err ignored = {0};
    if (segment_list(journal->options.path, "index", journal->mem, &numbers, &count, &ignored) !=
        OK) {
        return;
    }
    for (size_t i = 0; i + SNAPSHOT_KEEP < count; i++) {
        struct path path = snapshot_path(journal, numbers[i]);
        (void)journal->io->unlink(journal->io->context, path.text);
    }
    mem_free(journal->mem, numbers);
}

static int snapshot_finish(struct journal *journal, struct snapshot *snapshot)
{
    const struct io *io = journal->io;
    int failed = io->fsync(io->context, snapshot->fd);
    struct path temp = journal_path(journal, "index.tmp");
    struct path path = snapshot_path(journal, snapshot->mark.batch);
    if (failed == 0) {
        failed = io->rename(io->context, temp.text, path.text);
    }
    if (failed == 0) {
        failed = io_sync_dir(io, journal->options.path);
    }
    if (failed == 0) {
        snapshot_remove_old(journal);
    }
    return failed;
}

static int snapshot_write(struct journal *journal, struct snapshot *snapshot)
{
    const struct io *io = journal->io;
    if (buf_status(&snapshot->piece) != OK) {
        return -ENOMEM;
    }
    if (snapshot->fd < 0) {
        struct path temp = journal_path(journal, "index.tmp");
        int fd = io->open(io->context, temp.text, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        if (fd < 0) {
            return fd;
        }
        snapshot->fd = fd;
    }
    const struct buf *piece = &snapshot->piece;
    int failed = io_write_full(io, snapshot->fd, piece->data, piece->len, snapshot->offset);
    snapshot->offset += piece->len;
    buf_clear(&snapshot->piece);
    return failed;
}

/* How long the disk is left to the batches after a piece that took so long. */
static int64_t rest_ms(uint64_t took_ns)
{
    uint64_t ms = took_ns * SNAPSHOT_REST / 1000000;
    return ms < SNAPSHOT_REST_MS_MAX ? (int64_t)ms : SNAPSHOT_REST_MS_MAX;
}

/* Flushed all at once, the pages of a large index would delay every batch for as long as that
 * takes: by 16 ms with a million keys. So a paced writer flushes each piece, and then rests. */
static int snapshot_put(struct journal *journal, struct snapshot *snapshot, bool is_paced)
{
    int failed = snapshot_write(journal, snapshot);
    if (failed == 0 && is_paced && !snapshot->last) {
        failed = journal->io->fdatasync(journal->io->context, snapshot->fd);
    }
    return failed;
}

bool snapshot_work(struct journal *journal, bool is_paced)
{
    (void)pthread_mutex_lock(&journal->mutex);
    struct snapshot *snapshot = journal->snapshot;
    bool mine = snapshot != NULL && snapshot->owner == OWNER_WRITER;
    (void)pthread_mutex_unlock(&journal->mutex);
    if (!mine) {
        return false;
    }
    uint64_t began_ns = clock_nanos();
    int failed = snapshot_put(journal, snapshot, is_paced);
    bool done = false;
    if (failed == 0 && snapshot->last) {
        failed = snapshot_finish(journal, snapshot);
        done = failed == 0;
    }
    (void)pthread_mutex_lock(&journal->mutex);
    snapshot->failed = failed != 0;
    snapshot->done = done;
    snapshot->owner = OWNER_COMMITTER; /* the next piece is copied during the rest */
    (void)pthread_mutex_unlock(&journal->mutex);
    if (is_paced) {
        clock_sleep_ms(rest_ms(clock_nanos() - began_ns));
    }
    return true;
}

/* Loading ---------------------------------------------------------------------------------- */

static bool slot_decode(const unsigned char *bytes, struct slot *ret_slot)
{
    enum record_kind kind =
        bytes[37] == 0 ? RECORD_OPERATION : (enum record_kind)bytes[37]; /* as slot_encode */
    enum record_status status = (enum record_status)bytes[36];
    bool held = bytes[38] == 1;
    if (!kind_known(kind) || !kind_has_status(kind, status) || bytes[38] > 1 || bytes[39] != 0 ||
        (held && status != RECORD_IN_PROGRESS)) {
        return false;
    }
    *ret_slot = (struct slot){.key_high = le64_get(bytes),
        .key_low = le64_get(bytes + 8),
        .place = le64_get(bytes + 16),
        .due_s = le32_get(bytes + 24),
        .duplicates = le32_get(bytes + 28),
        .version = le32_get(bytes + 32),
        .status = (uint8_t)status,
        .kind = (uint8_t)kind,
        .held = held};
    if (status == RECORD_UNKNOWN && ret_slot->due_s == (uint32_t)INDEX_DUE_NEVER) {
        ret_slot->due_s = 0; /* written by a version without this due: the record has it */
    }
    return true;
}

/* Loads one slot into the index. A record of a segment squeezed since has expired, or was moved
 * after the copy and is found there. */
static bool slot_load(
    struct journal *journal, unsigned part, const unsigned char *bytes, uint64_t copied)
{
    struct slot slot;
    if (!slot_decode(bytes, &slot) || slot_part(&slot) != part || slot.place >= copied) {
        return false;
    }
    uint64_t number = place_segment(slot.place);
    const struct segment *segment = segment_get(journal, number);
    if (segment == NULL || segment->squeezed) {
        return number < journal->segments[0].number || segment != NULL;
    }
    if (!index_part_append(&journal->index, part, &slot)) {
        const struct slot *found = index_seek(&journal->index, slot.key_high, slot.key_low);
        bool is_twice =
            found != NULL && found->key_high == slot.key_high && found->key_low == slot.key_low;
        if (is_twice || index_put(&journal->index, &slot) != OK) {
            return false;
        }
    }
    return slot_count(journal, &slot) == OK; /* while it is in the processor's cache */
}

static bool part_load(
    struct journal *journal, struct cursor *cursor, unsigned number, uint64_t *ret_copied)
{
    int error;
    if (cursor->size - cursor->offset < SNAPSHOT_PART_BYTES) {
        return false;
    }
    const unsigned char *head =
        (const unsigned char *)cursor_bytes(cursor, cursor->offset, SNAPSHOT_PART_BYTES, &error);
    if (head == NULL || le32_get(head) != number || !bytes_zero(head + 20, 12)) {
        return false;
    }
    uint32_t count = le32_get(head + 4);
    uint64_t size = SNAPSHOT_PART_BYTES + (uint64_t)count * SNAPSHOT_SLOT_BYTES;
    if (size > cursor->size - cursor->offset) {
        return false;
    }
    const unsigned char *bytes =
        (const unsigned char *)cursor_bytes(cursor, cursor->offset, (size_t)size, &error);
    if (bytes == NULL) {
        return false;
    }
    uint32_t crc = crc32c(0, bytes, 16);
    crc = crc32c(crc, bytes + SNAPSHOT_PART_BYTES, (size_t)size - SNAPSHOT_PART_BYTES);
    if (crc != le32_get(bytes + 16) || index_part_reserve(&journal->index, number, count) != OK) {
        return false;
    }
    *ret_copied = le64_get(bytes + 8);
    for (uint32_t i = 0; i < count; i++) {
        const unsigned char *slot = bytes + SNAPSHOT_PART_BYTES + (size_t)i * SNAPSHOT_SLOT_BYTES;
        if (!slot_load(journal, number, slot, *ret_copied)) {
            return false;
        }
    }
    cursor->offset += size;
    return true;
}

static bool header_load(
    struct journal *journal, struct cursor *cursor, uint64_t number, struct mark *ret_mark)
{
    int error;
    const unsigned char *block =
        (const unsigned char *)cursor_bytes(cursor, 0, SNAPSHOT_HEADER_BYTES, &error);
    if (block == NULL || memcmp(block, header_magic, sizeof header_magic) != 0 ||
        le32_get(block + 8) != JOURNAL_VERSION || le32_get(block + 12) != INDEX_PARTS ||
        memcmp(block + 16, journal->identity.keys.chain_id, 16) != 0 ||
        le32_get(block + SNAPSHOT_HEADER_BYTES - 4) !=
            crc32c(0, block, SNAPSHOT_HEADER_BYTES - 4)) {
        return false;
    }
    mark_decode(block + 32, ret_mark);
    cursor->offset = SNAPSHOT_HEADER_BYTES;
    const struct segment *segment = segment_get(journal, place_segment(ret_mark->place));
    /* A segment squeezed since has different offsets. */
    return ret_mark->batch == number && segment != NULL && !segment->squeezed &&
           place_offset(ret_mark->place) >= JOURNAL_BLOCK_BYTES &&
           place_offset(ret_mark->place) <= segment->end &&
           place_offset(ret_mark->place) % JOURNAL_BLOCK_BYTES == 0;
}

static bool trailer_load(struct cursor *cursor, const struct mark *mark, uint64_t *ret_until)
{
    int error;
    if (cursor->size - cursor->offset != SNAPSHOT_TRAILER_BYTES) {
        return false;
    }
    const unsigned char *bytes =
        (const unsigned char *)cursor_bytes(cursor, cursor->offset, SNAPSHOT_TRAILER_BYTES, &error);
    if (bytes == NULL || memcmp(bytes, trailer_magic, sizeof trailer_magic) != 0 ||
        le64_get(bytes + 8) != mark->batch ||
        le32_get(bytes + SNAPSHOT_TRAILER_BYTES - 4) !=
            crc32c(0, bytes, SNAPSHOT_TRAILER_BYTES - 4)) {
        return false;
    }
    *ret_until = le64_get(bytes + 16);
    return true;
}

static bool file_load(struct journal *journal, uint64_t number, uint64_t copied[INDEX_PARTS],
    struct mark *mark, uint64_t *until)
{
    const struct io *io = journal->io;
    struct path path = snapshot_path(journal, number);
    int fd = io->open(io->context, path.text, O_RDONLY, 0);
    if (fd < 0) {
        return false;
    }
    struct cursor cursor;
    cursor_init(&cursor, io, journal->mem, fd);
    int64_t size = io->size(io->context, fd);
    cursor.size = size < 0 ? 0 : (uint64_t)size;
    bool loaded =
        cursor.size >= SNAPSHOT_HEADER_BYTES && header_load(journal, &cursor, number, mark);
    for (unsigned i = 0; i < INDEX_PARTS && loaded; i++) {
        loaded = part_load(journal, &cursor, i, &copied[i]) && copied[i] >= mark->place;
    }
    loaded = loaded && trailer_load(&cursor, mark, until);
    cursor_release(&cursor);
    (void)io->close(io->context, fd);
    return loaded;
}

bool snapshot_load(struct journal *journal, uint64_t ret_copied[INDEX_PARTS], struct mark *ret_mark,
    uint64_t *ret_until)
{
    uint64_t *numbers = NULL;
    size_t count = 0;
    struct err ignored = {0};
    if (segment_list(journal->options.path, "index", journal->mem, &numbers, &count, &ignored) !=
        OK) {
        return false;
    }
    bool loaded = false;
    for (size_t i = count; i > 0 && !loaded; i--) {
        slots_clear(journal);
        loaded = file_load(journal, numbers[i - 1], ret_copied, ret_mark, ret_until);
    }
    mem_free(journal->mem, numbers);
    if (loaded) {
        journal->snapshot_place = ret_mark->place;
    }
    return loaded;
}
