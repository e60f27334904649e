/*
 * Reading: records and bodies by their place, scans by the index, entries from the files.
 * past 800 lines because everything that reads a frame by its place or in order is in this file.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/check.h"
#include "canon/json.h"
#include "store/journal/impl.h"

enum {
    READ_GUESS_BYTES = 768,            /* most records are shorter, so one read is enough */
    SCAN_ARENA_BYTES = 1 << 20,        /* one record at a time; the largest is about 20 KiB */
    ENTRY_SCRATCH_BYTES_MAX = 4 << 20, /* one entry as a tree; the largest is 64 KiB of text */
};

enum status place_corrupt(uint64_t place, const char *wrong, struct err *err)
{
    return err_set(err, E_CORRUPT, "segment %" PRIu64 " offset %" PRIu64 ": %s",
        place_segment(place), place_offset(place), wrong);
}

/* Copies a frame out of a batch in memory. false: the place is not in this batch. */
static bool buffer_frame(const struct buffer *buffer, uint64_t place, struct arena *arena,
    struct slice *ret_bytes, bool *ret_nomem)
{
    if (buffer == NULL || buffer->len == 0 || place < buffer->mark.place ||
        place >= buffer->mark.place + buffer->len) {
        return false;
    }
    const char *frame = buffer->data + (place - buffer->mark.place);
    size_t size = FRAME_HEADER_BYTES + (size_t)le32_get(frame);
    *ret_nomem = arena_copy(arena, slice_of(frame, size), ret_bytes) != OK;
    return true;
}

static enum status memory_read(struct journal *journal, uint64_t place, struct arena *arena,
    struct slice *ret_bytes, bool *ret_found, struct err *err)
{
    bool nomem = false;
    (void)pthread_mutex_lock(&journal->mutex);
    bool found = buffer_frame(journal->active, place, arena, ret_bytes, &nomem) ||
                 buffer_frame(journal->flight, place, arena, ret_bytes, &nomem);
    for (unsigned i = journal->recent_count; i > 0 && !found; i--) { /* the newest first */
        unsigned at = (journal->recent_first + i - 1) % JOURNAL_BUFFERS;
        found = buffer_frame(&journal->buffers[at], place, arena, ret_bytes, &nomem);
    }
    (void)pthread_mutex_unlock(&journal->mutex);
    *ret_found = found;
    return nomem ? err_set(err, E_NOMEM, "out of memory for a record") : OK;
}

/* The rest of a frame could not be read. If the file ends inside the frame, it is damaged; if the
 * disk fails to read it, it is not, and reading may be tried again. */
static enum status rest_failed(struct journal *journal, const struct segment *segment, int fd,
    uint64_t offset, size_t size, int failed, struct err *err)
{
    int64_t there = journal->io->size(journal->io->context, fd);
    if (failed == -EIO && there >= 0 && (uint64_t)there < offset + size) {
        return place_corrupt(place_make(segment->number, offset), "a frame is cut short", err);
    }
    return err_errno(err, E_UNAVAILABLE, -failed, "reading segment %" PRIu64, segment->number);
}

/* A first read usually has the whole frame; a second one reads the rest of a longer one. */
static enum status file_read(struct journal *journal, struct segment *segment, uint64_t offset,
    struct arena *arena, struct slice *ret_bytes, struct err *err)
{
    const struct io *io = journal->io;
    int fd;
    enum status status = segment_fd(journal, segment, &fd, err);
    if (status != OK) {
        return status;
    }
    char guess[READ_GUESS_BYTES];
    ssize_t got = io->pread(io->context, fd, guess, sizeof guess, offset);
    if (got < FRAME_HEADER_BYTES) {
        return got < 0 ? err_errno(err, E_UNAVAILABLE, (int)-got, "reading segment %" PRIu64,
                             segment->number)
                       : place_corrupt(place_make(segment->number, offset),
                             "the file ends before this place", err);
    }
    size_t size = FRAME_HEADER_BYTES + (size_t)le32_get(guess);
    if (size > BATCH_BYTES_MAX) {
        return place_corrupt(
            place_make(segment->number, offset), "a frame is longer than a batch can be", err);
    }
    char *bytes = arena_alloc(arena, size);
    if (bytes == NULL) {
        return err_set(err, E_NOMEM, "out of memory for a frame of %zu bytes", size);
    }
    size_t have = (size_t)got < size ? (size_t)got : size;
    memcpy(bytes, guess, have);
    if (have < size) {
        int failed = io_read_full(io, fd, bytes + have, size - have, offset + have);
        if (failed != 0) {
            return rest_failed(journal, segment, fd, offset, size, failed, err);
        }
    }
    *ret_bytes = slice_of(bytes, size);
    return OK;
}

/* Without the lock, an invalid frame may mean that the writer has squeezed the segment. */
static enum status frame_wrong(struct journal *journal, struct segment *segment, uint64_t place,
    const char *wrong, struct err *err)
{
    if (journal->read_only) {
        struct cursor cursor;
        struct segment_header header = {.squeezed = false};
        int fd = -1;
        segment_forget_fd(journal, segment);
        enum status status = segment_fd(journal, segment, &fd, err);
        cursor_init(&cursor, journal->io, journal->mem, fd);
        const char *unreadable = status == OK ? cursor_start(&cursor, &header) : "gone";
        cursor_release(&cursor);
        if (status != OK || (unreadable == NULL && header.squeezed && !segment->squeezed)) {
            return err_set(err, E_UNAVAILABLE,
                "segment %" PRIu64 " was squeezed since the store was opened; open it again",
                segment->number);
        }
    }
    return place_corrupt(place, wrong, err);
}

/* Where to search for a frame. */
enum read_from {
    READ_ANYWHERE, /* in memory, then in the file */
    READ_FILE,     /* for a caller with the mutex that reads from a closed segment */
    READ_KEPT,     /* in the cache, then anywhere; what was read and checked is kept there */
};

/* The checked frame at a place, copied into the arena. */
static enum status frame_read(struct journal *journal, uint64_t place, enum read_from from,
    struct arena *arena, struct frame *ret_frame, struct err *err)
{
    struct segment *segment = segment_get(journal, place_segment(place));
    if (segment == NULL) {
        return place_corrupt(place, "there is no such segment", err);
    }
    struct slice bytes = SLICE_EMPTY;
    bool found = false;
    enum status status = OK;
    if (from != READ_FILE &&
        place >= atomic_load_explicit(&journal->recent_place, memory_order_acquire)) {
        status = memory_read(journal, place, arena, &bytes, &found, err);
    }
    if (status == OK && !found) {
        status = file_read(journal, segment, place_offset(place), arena, &bytes, err);
    }
    if (status != OK) {
        return status;
    }
    const char *wrong = frame_decode(bytes, segment->seed, place_offset(place), ret_frame);
    return wrong == NULL ? OK : frame_wrong(journal, segment, place, wrong, err);
}

/* A frame of the cache, copied into the arena. *ret_found is false if it is not there. */
static enum status kept_read(struct journal *journal, uint64_t place, struct arena *arena,
    struct frame *ret_frame, bool *ret_found, struct err *err)
{
    *ret_found = cache_find(journal, place, ret_frame);
    return !*ret_found || arena_copy(arena, ret_frame->payload, &ret_frame->payload) == OK
               ? OK
               : err_set(err, E_NOMEM, "out of memory for a frame");
}

static enum status record_read_from(struct journal *journal, const struct slot *slot,
    enum read_from from, struct arena *arena, const struct record **ret_record, struct err *err)
{
    struct frame frame;
    bool is_kept = false;
    enum status status =
        from == READ_KEPT ? kept_read(journal, slot->place, arena, &frame, &is_kept, err) : OK;
    if (status == OK && !is_kept) {
        status = frame_read(journal, slot->place, from, arena, &frame, err);
    }
    if (status != OK) {
        return status;
    }
    if (frame.kind != FRAME_RECORD && frame.kind != FRAME_MOVED) {
        return place_corrupt(slot->place, "there is no record here", err);
    }
    struct record *record = arena_alloc(arena, sizeof *record);
    if (record == NULL) {
        return err_set(err, E_NOMEM, "out of memory for a record");
    }
    status = record_decode(frame.payload, record, err);
    if (status != OK) {
        err_prefix(err, "segment %" PRIu64 " offset %" PRIu64, place_segment(slot->place),
            place_offset(slot->place));
        return status;
    }
    if (!slot_is(slot, &record->key.hash) || slot->version != (uint32_t)record->version) {
        return place_corrupt(slot->place, "the record here is not the one the index means", err);
    }
    if (from == READ_KEPT && !is_kept) {
        cache_keep(journal, slot->place, &frame);
    }
    /* Versions before R10 kept the body of settled work. It may be erased by now. */
    record->request.retained = record->request.retained && !erase_takes(record);
    uint32_t room = UINT32_MAX - record->duplicates;
    record->duplicates += slot->duplicates < room ? slot->duplicates : room;
    *ret_record = record;
    return OK;
}

enum status record_read(struct journal *journal, const struct slot *slot, struct arena *arena,
    const struct record **ret_record, struct err *err)
{
    return record_read_from(journal, slot, READ_ANYWHERE, arena, ret_record, err);
}

enum status record_read_again(struct journal *journal, const struct slot *slot, struct arena *arena,
    const struct record **ret_record, struct err *err)
{
    return record_read_from(journal, slot, READ_KEPT, arena, ret_record, err);
}

static enum status body_read_from(struct journal *journal, const struct body_ref *body,
    enum read_from from, struct arena *arena, struct slice *ret_bytes, struct err *err)
{
    enum status status = journal_failed(journal, err);
    if (status != OK) {
        return status;
    }
    if (!body->retained) {
        return err_set(err, E_MISUSE, "the body is not retained");
    }
    if (body->bytes == 0) {
        *ret_bytes = SLICE_EMPTY;
        return OK;
    }
    struct frame frame;
    bool is_kept = false;
    status = from == READ_KEPT ? kept_read(journal, body->place, arena, &frame, &is_kept, err) : OK;
    if (status == OK && !is_kept) {
        status = frame_read(journal, body->place, from, arena, &frame, err);
    }
    if (status != OK) {
        return status;
    }
    const size_t size = sizeof body->digest.bytes;
    if ((frame.kind != FRAME_REQUEST && frame.kind != FRAME_OUTCOME) ||
        frame.payload.len != size + body->bytes ||
        memcmp(frame.payload.data, body->digest.bytes, size) != 0) {
        return place_corrupt(body->place, "the body here is a different one", err);
    }
    struct slice bytes = slice_of(frame.payload.data + size, frame.payload.len - size);
    if (!is_kept) { /* what is kept was checked */
        struct digest digest;
        digest_sha256(bytes.data, bytes.len, &digest);
        if (memcmp(&digest, &body->digest, sizeof digest) != 0) {
            return place_corrupt(body->place, "the body does not have its digest", err);
        }
        if (from == READ_KEPT) {
            cache_keep(journal, body->place, &frame);
        }
    }
    *ret_bytes = bytes;
    return OK;
}

enum status body_read(struct journal *journal, const struct body_ref *body, struct arena *arena,
    struct slice *ret_bytes, struct err *err)
{
    return body_read_from(journal, body, READ_ANYWHERE, arena, ret_bytes, err);
}

enum status body_read_again(struct journal *journal, const struct body_ref *body,
    struct arena *arena, struct slice *ret_bytes, struct err *err)
{
    return body_read_from(journal, body, READ_KEPT, arena, ret_bytes, err);
}

enum status body_read_closed(struct journal *journal, const struct body_ref *body,
    struct arena *arena, struct slice *ret_bytes, struct err *err)
{
    ASSERT(place_segment(body->place) < journal->tail.number);
    return body_read_from(journal, body, READ_FILE, arena, ret_bytes, err);
}

/* Keeps the record if it matches; otherwise releases the memory used to read it. */
static enum status scan_one(struct journal *journal, const struct scan *scan,
    const struct slot *slot, struct arena *scratch, struct arena *arena,
    const struct record **ret_record, struct err *err)
{
    const struct record *record = NULL;
    *ret_record = NULL;
    arena_clear(scratch);
    enum status status = record_read(journal, slot, scratch, &record, err);
    if (status != OK || !scan_match(scan, record)) {
        return status;
    }
    struct record *copy = arena_alloc(arena, sizeof *copy);
    status = copy == NULL ? E_NOMEM : record_copy(record, arena, copy);
    if (status != OK) {
        return err_set(err, status, "out of memory for a scan");
    }
    *ret_record = copy;
    return OK;
}

static uint64_t be64_from(const unsigned char *bytes)
{
    uint64_t number = 0;
    for (int i = 0; i < 8; i++) {
        number = number << 8 | bytes[i];
    }
    return number;
}

/* The last hash that the slot can stand for: the full hash is known only after reading. */
static struct digest slot_last(const struct slot *slot)
{
    struct digest last;
    memset(&last, 0xff, sizeof last);
    for (int i = 0; i < 8; i++) {
        last.bytes[i] = (unsigned char)(slot->key_high >> (56 - 8 * i));
        last.bytes[8 + i] = (unsigned char)(slot->key_low >> (56 - 8 * i));
    }
    return last;
}

/* The first slot after a hash, in this partition or a later one; NULL: none. */
static struct slot *scan_first(struct index *index, const struct digest *after)
{
    static const struct digest zero = {{0}};
    uint64_t high = be64_from(after->bytes);
    uint64_t low = be64_from(after->bytes + 8);
    unsigned part = (unsigned)(high >> (64 - INDEX_PART_BITS));
    struct slot *slot = index_seek(index, high, low);
    if (slot != NULL && slot_is(slot, after) && memcmp(after, &zero, sizeof zero) != 0) {
        slot = index_next(index, part, slot);
    }
    while (slot == NULL && ++part < INDEX_PARTS) {
        slot = index_next(index, part, NULL);
    }
    return slot;
}

static struct slot *scan_next(struct index *index, struct slot *slot)
{
    unsigned part = slot_part(slot);
    slot = index_next(index, part, slot);
    while (slot == NULL && ++part < INDEX_PARTS) {
        slot = index_next(index, part, NULL);
    }
    return slot;
}

enum status journal_scan(struct store *store, const struct scan *scan, struct arena *arena,
    const struct record **ret_records, size_t *ret_count, struct err *err)
{
    struct journal *journal = journal_of(store);
    enum status status = journal_failed(journal, err);
    struct arena scratch;
    arena_init(&scratch, journal->mem, SCAN_ARENA_BYTES);
    struct scan_walk walk = scan_walk_start(scan);
    size_t count = 0;
    ASSERT(scan->kinds != 0);
    struct slot *slot = scan_first(&journal->index, &scan->after);
    while (status == OK && slot != NULL && count < scan->limit) {
        bool wanted = store_kind_in(scan->kinds, (enum record_kind)slot->kind) &&
                      (scan->status == 0 || slot->status == scan->status);
        struct digest last = slot_last(slot);
        if (!scan_walk_step(&walk, &last, wanted)) {
            break;
        }
        const struct record *record = NULL;
        if (wanted) {
            status = scan_one(journal, scan, slot, &scratch, arena, &record, err);
        }
        if (record != NULL) {
            ret_records[count++] = record;
        }
        slot = scan_next(&journal->index, slot);
    }
    arena_release(&scratch);
    if (status == OK) {
        scan_walk_end(&walk, slot == NULL);
        *ret_count = count;
    }
    return status;
}

enum { DUE_PAGE_MAX = 64 }; /* in one call with a cursor */

struct due_search {
    struct journal *journal;
    struct arena *scratch;
    struct store_due *dues;
    size_t limit;
    size_t count;
    enum status status;
    struct err *err;
};

/* Reads the record of an entry for the caller. */
static bool due_read(void *context, const struct due_entry *entry)
{
    struct due_search *search = context;
    struct journal *journal = search->journal;
    if (search->count == search->limit) {
        return false;
    }
    const struct slot *slot = index_seek(&journal->index, entry->key_high, entry->key_low);
    ASSERT(slot != NULL); /* JD1 */
    ASSERT(slot->key_high == entry->key_high && slot->key_low == entry->key_low);
    const struct record *record = NULL;
    arena_clear(search->scratch);
    search->status = record_read(journal, slot, search->scratch, &record, search->err);
    if (search->status != OK) {
        return false;
    }
    if (record_due(record) == RECORD_DUE_NEVER) {
        return true; /* unknown, of an older snapshot without the due (slot_decode) */
    }
    search->dues[search->count++] = store_due_of(record);
    return true;
}

/* The earliest entries after a cursor, in their order. */
struct due_page {
    const struct store_due_cursor *after;
    uint64_t until; /* no later one can be among them */
    size_t limit;
    size_t count;
    struct store_due_cursor found[DUE_PAGE_MAX];
};

static bool due_collect(void *context, const struct due_entry *entry)
{
    struct due_page *page = context;
    struct store_due_cursor at = {entry->order, entry->key_high, entry->key_low};
    size_t i = page->count;
    if (!store_due_before(page->after, &at) ||
        (i == page->limit && !store_due_before(&at, &page->found[i - 1]))) {
        return true;
    }
    i -= i == page->limit;
    for (; i > 0 && store_due_before(&at, &page->found[i - 1]); i--) {
        page->found[i] = page->found[i - 1];
    }
    page->found[i] = at;
    page->count += page->count < page->limit;
    if (page->count == page->limit) { /* of a backlog of a million, this leaves out most */
        page->until = page->found[page->limit - 1].due;
    }
    return true;
}

/* Reads the page's records, and moves the cursor to the last of them. */
static void due_read_page(
    struct due_search *search, const struct due_page *page, struct store_due_cursor *cursor)
{
    for (size_t i = 0; i < page->count && search->status == OK; i++) {
        const struct store_due_cursor *at = &page->found[i];
        (void)due_read(
            search, &(struct due_entry){
                        .key_high = at->key_high, .key_low = at->key_low, .order = at->due});
        if (search->status == OK) {
            *cursor = *at;
        }
    }
}

static const enum record_due group_reason[DUE_GROUPS] = {
    [DUE_LEASE] = RECORD_DUE_LEASE_OVER,
    [DUE_LEASE_HELD] = RECORD_DUE_LEASE_OVER,
    [DUE_NEXT_ATTEMPT] = RECORD_DUE_NEXT_ATTEMPT,
    [DUE_CONFIRMATION] = RECORD_DUE_CONFIRMATION_OVER,
    [DUE_RECONCILE] = RECORD_DUE_RECONCILE_AGAIN,
};

enum status journal_due(struct store *store, const struct store_due_filter *filter,
    struct store_due *ret_dues, size_t limit, size_t *ret_count, struct err *err)
{
    struct journal *journal = journal_of(store);
    int64_t now_ms = store_clock_now(&journal->clock).time_ms;
    now_ms -= filter->cursor != NULL; /* a due of this very millisecond may still be added */
    uint64_t until = filter->held ? UINT64_MAX : now_ms <= 0 ? 0 : (uint64_t)now_ms / 1000;
    struct due_page page = {.after = filter->cursor,
        .until = until,
        .limit = limit < DUE_PAGE_MAX ? limit : DUE_PAGE_MAX};
    struct arena scratch;
    arena_init(&scratch, journal->mem, SCAN_ARENA_BYTES);
    struct due_search search = {.journal = journal,
        .scratch = &scratch,
        .dues = ret_dues,
        .limit = limit,
        .status = journal_failed(journal, err),
        .err = err};
    for (unsigned kind = 0; kind < DUE_KINDS; kind++) {
        for (unsigned group = 0; group < DUE_GROUPS && search.status == OK; group++) {
            bool wanted = filter->held ? group == DUE_LEASE_HELD
                                       : (filter->reasons & STORE_DUE(group_reason[group])) != 0;
            if (wanted && store_kind_in(filter->kinds, (enum record_kind)kind)) {
                const struct due_heap *heap = &journal->dues.groups[kind][group];
                if (filter->cursor == NULL) {
                    due_heap_visit(heap, &until, due_read, &search);
                } else {
                    due_heap_visit(heap, &page.until, due_collect, &page);
                }
            }
        }
    }
    if (filter->cursor != NULL) {
        due_read_page(&search, &page, filter->cursor);
    }
    arena_release(&scratch);
    if (search.status == OK) {
        *ret_count = search.count;
    }
    return search.status;
}

/* Entries ---------------------------------------------------------------------------------- */

struct entries {
    struct journal *journal;
    const struct entry_range *range;
    entry_visit visit;
    void *context;
    struct arena *scratch; /* of one entry, while its tenant is read */
    struct entry_pace *at; /* the progress; the caller's pace, if there is one */
    size_t bytes;          /* read so far */
    bool stopped;          /* the visitor has enough */
};

/* The pace allows no more in this call. */
static bool entries_spent(const struct entries *entries)
{
    return entries->bytes >= entries->at->bytes_max;
}

/* Passed entries are not shown again: a batch is always read from its start. */
static void entry_pass(struct entries *entries, const struct entry *entry)
{
    bool evidence = entry->kind == ENTRY_EVIDENCE;
    if (evidence ? entry->seq <= entries->at->at.seq : entries->range->pace != NULL) {
        return;
    }
    if (entry_in_range(entries->range, entry)) {
        entries->stopped = !entries->visit(entries->context, entry);
    }
    if (evidence) {
        entries->at->at.seq = entry->seq;
        entries->at->hash = entry->hash;
        entries->at->time_ms = entry->time_ms;
    }
}

/* Evidence of the first releases has its tenant only in its own bytes. */
static enum status entry_tenant(
    struct entries *entries, const struct frame *frame, struct entry *entry, struct err *err)
{
    if (entry->kind != ENTRY_EVIDENCE || entry_has_tenant(frame->payload)) {
        return OK;
    }
    const struct json_value *value;
    arena_clear(entries->scratch);
    enum status status = json_read(entry->bytes, entries->scratch, &value, err);
    if (status != OK) {
        err_prefix(err, "entry %" PRIu64 " is not JSON", entry->seq);
        return status == E_NOMEM ? E_NOMEM : E_CORRUPT;
    }
    const struct json_value *tenant = json_find(value, SLICE_LIT("tenant_id"));
    entry->tenant = tenant == NULL ? SLICE_EMPTY : json_text(tenant);
    return OK;
}

static enum status entries_of_batch(
    struct entries *entries, const struct cursor_batch *batch, uint64_t segment, struct err *err)
{
    struct frame frame;
    uint32_t at = 0;
    while (!entries->stopped && batch_frame(batch, &at, &frame)) {
        if (frame.kind != FRAME_ENTRY) {
            continue;
        }
        struct entry entry;
        const char *wrong = entry_decode(frame.payload, &entry);
        if (wrong != NULL) {
            return place_corrupt(place_make(segment, frame.offset), wrong, err);
        }
        memcpy(entry.chain_id, entries->at->at.chain_id, sizeof entry.chain_id);
        enum status status = entry_tenant(entries, &frame, &entry, err);
        if (status != OK) {
            return status;
        }
        entry_pass(entries, &entry);
    }
    return OK;
}

/* Seeks to the reading's place in this segment; to its beginning if the place is elsewhere, or if
 * the file was rewritten since and the offsets are invalid. */
static void entries_seek(
    struct entries *entries, const struct segment *segment, struct cursor *cursor)
{
    struct entry_pace *at = entries->at;
    if (place_segment(at->place) == segment->number && at->squeezed == cursor->squeezed &&
        place_offset(at->place) >= cursor->offset) {
        cursor->offset = place_offset(at->place);
        return;
    }
    at->place = place_make(segment->number, cursor->offset);
    at->squeezed = cursor->squeezed;
    if (at->at.seq < segment->mark.seq) {
        at->at.seq = segment->mark.seq; /* it starts here, or what was before is gone */
        at->hash = segment->mark.hash;
    }
}

/* Reads the entries of one segment's file, from the reading's place up to `until`. */
static enum status entries_of_file(
    struct entries *entries, struct segment *segment, uint64_t until, struct err *err)
{
    struct journal *journal = entries->journal;
    int fd;
    enum status status = segment_fd(journal, segment, &fd, err);
    if (status != OK) {
        return status;
    }
    struct cursor cursor;
    cursor_init(&cursor, journal->io, journal->mem, fd);
    size_t window = cursor.window_bytes;
    cursor.window_bytes = JOURNAL_BLOCK_BYTES; /* only the header: the entries may be far away */
    struct segment_header header;
    const char *wrong = cursor_start(&cursor, &header);
    if (cursor.error != 0) {
        status = err_errno(err, cursor.error == -ENOMEM ? E_NOMEM : E_UNAVAILABLE, -cursor.error,
            "reading segment %" PRIu64, segment->number);
    } else if (wrong != NULL) {
        status = place_corrupt(place_make(segment->number, 0), wrong, err);
    }
    if (status == OK) {
        entries_seek(entries, segment, &cursor);
        cursor.window_bytes = entries->at->bytes_max < window ? entries->at->bytes_max : window;
    }
    while (status == OK && !entries->stopped && !entries_spent(entries) &&
           place_make(segment->number, cursor.offset) < until) {
        struct cursor_batch batch;
        enum cursor_result result = cursor_next(&cursor, &batch);
        if (result == CURSOR_BATCH) {
            status = entries_of_batch(entries, &batch, segment->number, err);
            entries->bytes += batch.header.length;
            if (!entries->stopped) {
                entries->at->place = place_make(segment->number, cursor.offset);
            }
        } else if (result == CURSOR_END) {
            break;
        } else {
            status =
                result == CURSOR_FAILED
                    ? err_errno(err, batch.error == -ENOMEM ? E_NOMEM : E_UNAVAILABLE, -batch.error,
                          "reading segment %" PRIu64, segment->number)
                    : place_corrupt(place_make(segment->number, batch.offset), batch.wrong, err);
        }
    }
    cursor_release(&cursor);
    return status;
}

/* The first segment that can have matching entries. */
static size_t entries_first(const struct journal *journal, const struct entry_range *range)
{
    size_t first = 0;
    while (first + 1 < journal->segments_count &&
           (journal->segments[first + 1].mark.seq <= range->after.seq ||
               (range->from_ms > 0 &&
                   journal->segments[first + 1].mark.moment.time_ms < range->from_ms))) {
        first++;
    }
    return first;
}

/* Whether all that an earlier reading passed comes before what is asked for. The time of a chain
 * never goes back. */
static bool is_before(const struct entry_pace *hint, const struct entry_range *range)
{
    return hint->at.seq <= range->after.seq ||
           (range->from_ms > 0 && hint->time_ms > 0 && hint->time_ms < range->from_ms);
}

/*
 * The segment to continue with. A new reading starts where an earlier one stopped shortly before
 * its cursor or its time, so that not every page starts at the beginning of a segment.
 */
static size_t entries_start(struct entries *entries)
{
    const struct journal *journal = entries->journal;
    struct entry_pace *at = entries->at;
    uint64_t oldest = journal->segments[0].number;
    if (at->place != 0) {
        uint64_t number = place_segment(at->place);
        return number < oldest ? 0 : (size_t)(number - oldest);
    }
    size_t first = entries_first(journal, entries->range);
    uint64_t least = journal->segments[first].mark.seq;
    for (size_t i = 0; i < JOURNAL_HINTS && entries->range->pace != NULL; i++) {
        const struct entry_pace *hint = &journal->hints[i];
        if (hint->place != 0 && hint->at.seq >= least && is_before(hint, entries->range) &&
            hint->at.seq >= at->at.seq && place_segment(hint->place) >= oldest) {
            size_t bytes_max = at->bytes_max;
            *at = *hint;
            at->bytes_max = bytes_max;
            first = (size_t)(place_segment(hint->place) - oldest);
        }
    }
    return first;
}

/* Writes the progress, and keeps it for the next page if this one is complete. */
static void entries_end(struct entries *entries)
{
    struct journal *journal = entries->journal;
    entries->at->done = !entries->stopped && !entries_spent(entries);
    if (entries->range->pace != NULL && (entries->stopped || entries->at->done)) {
        journal->hints[journal->hint_next++ % JOURNAL_HINTS] = *entries->at;
    }
}

static void batch_copy(struct buf *copy, const struct buffer *buffer)
{
    if (buffer != NULL && buffer->len > 0) {
        unsigned char header[8];
        le32_put(header, (uint32_t)buffer->len);
        le32_put(header + 4, (uint32_t)place_offset(buffer->mark.place));
        buf_append(copy, header, sizeof header);
        /* Not the batch's header: the flushing thread may be writing it. */
        (void)buf_extend(copy, BATCH_HEADER_BYTES);
        buf_append(copy, buffer->data + BATCH_HEADER_BYTES, buffer->len - BATCH_HEADER_BYTES);
    }
}

static enum status entries_of_copy(
    struct entries *entries, const struct buf *copy, uint64_t segment, struct err *err)
{
    enum status status = OK;
    for (size_t at = 0; at < copy->len && status == OK && !entries->stopped;) {
        struct cursor_batch batch = {.header = {.content = le32_get(copy->data + at)},
            .offset = le32_get(copy->data + at + 4),
            .bytes = copy->data + at + 8};
        status = entries_of_batch(entries, &batch, segment, err);
        at += 8 + batch.header.content;
    }
    return status;
}

/*
 * Reads entries that are not in the files yet. The visitor is called without the mutex, on a copy.
 * *place is the end of what was read from the files; if a flush was completed since, nothing is
 * done and *ret_again is set.
 */
static enum status entries_of_memory(
    struct entries *entries, uint64_t place, bool *ret_again, struct err *err)
{
    struct journal *journal = entries->journal;
    struct buf copy;
    buf_init(&copy, journal->mem, SIZE_MAX / 2);
    (void)pthread_mutex_lock(&journal->mutex);
    *ret_again = atomic_load(&journal->stable) != place;
    if (!*ret_again) {
        batch_copy(&copy, journal->flight);
        batch_copy(&copy, journal->active);
    }
    uint64_t segment = place_segment(journal->next.place);
    (void)pthread_mutex_unlock(&journal->mutex);
    enum status status = buf_status(&copy);
    if (status != OK) {
        (void)err_set(err, status, "out of memory for entries");
    } else if (!*ret_again) {
        status = entries_of_copy(entries, &copy, segment, err);
    }
    buf_release(&copy);
    return status;
}

/* Reads the journal's own chain, from the reading's place. */
static enum status entries_of_own(struct entries *entries, struct err *err)
{
    struct journal *journal = entries->journal;
    enum status status = OK;
    uint64_t stable = atomic_load(&journal->stable);
    memcpy(entries->at->at.chain_id, journal->identity.keys.chain_id, 16);
    for (size_t i = entries_start(entries); i < journal->segments_count && status == OK &&
                                            !entries->stopped && !entries_spent(entries);
         i++) {
        status = entries_of_file(entries, &journal->segments[i], stable, err);
    }
    bool again = true;
    while (again && status == OK && !entries->stopped && !entries_spent(entries)) {
        status = entries_of_memory(entries, stable, &again, err);
        if (again && status == OK) {
            stable = atomic_load(&journal->stable);
            struct segment *segment = segment_get(journal, place_segment(stable));
            ASSERT(segment != NULL);
            status = entries_of_file(entries, segment, stable, err);
        }
    }
    if (status == OK) {
        entries_end(entries);
    }
    return status;
}

/* Inherited entries come first. *ret_over: the journal's own chain comes next. */
static enum status entries_of_inherited(
    struct entries *entries, const struct entry_range *asked, bool *ret_over, struct err *err)
{
    struct journal *journal = entries->journal;
    struct entry_pace *at = entries->at;
    struct inherited_reading reading = {
        .range = asked, .visit = entries->visit, .context = entries->context, .at = at};
    *ret_over = true;
    if (!inherited_wanted(&journal->inherited, asked, at)) {
        return OK;
    }
    enum status status = inherited_read(journal, &reading, err);
    *ret_over = reading.over;
    entries->bytes = reading.bytes;
    entries->stopped = reading.stopped;
    at->done = false;
    if (status == OK && reading.over) {
        *at = (struct entry_pace){.bytes_max = at->bytes_max};
    }
    return status;
}

enum status journal_entries(struct store *store, const struct entry_range *range, entry_visit visit,
    void *context, struct err *err)
{
    struct journal *journal = journal_of(store);
    struct entry_pace unpaced = {.bytes_max = SIZE_MAX};
    struct arena scratch;
    arena_init(&scratch, journal->mem, ENTRY_SCRATCH_BYTES_MAX);
    struct entry_range own = *range;
    bool over = true;
    struct entries entries = {.journal = journal,
        .range = &own,
        .visit = visit,
        .context = context,
        .scratch = &scratch,
        .at = range->pace == NULL ? &unpaced : range->pace};
    ASSERT(entries.at->bytes_max > 0); /* or it never ends */
    enum status status = journal_failed(journal, err);
    if (inherited_has(&journal->inherited, range->after.chain_id)) {
        own.after = (struct entry_cursor){.seq = 0}; /* all of our own entries are after it */
    } else if (status == OK) {
        status = entry_cursor_check(&range->after, journal->identity.keys.chain_id, err);
    }
    status = status == OK ? entries_of_inherited(&entries, range, &over, err) : status;
    status = status == OK && over ? entries_of_own(&entries, err) : status;
    arena_release(&scratch);
    return status;
}
