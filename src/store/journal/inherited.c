#include "store/journal/inherited.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/crc32c.h"
#include "store/journal/impl.h"

enum {
    HEADER_BYTES = 344,         /* before the table */
    ROW_BYTES = 152,            /* of one chain */
    FRAME_LEAD_BYTES = 36,      /* number of the chain, hash of the entry before */
    FRAME_BYTES_MAX = 16 << 20, /* far more than an entry can have; limits a hostile length */
    PENDING_BYTES = 1 << 20,    /* written at a time */
    AT_ORIGIN = 24,
    AT_TIME = 56,
    AT_CRC = 64,
    AT_FROM = 72,
};

static const char magic[8] = "ONCEINHR";

/* Marks the place of a reading in this file, not in a segment (impl.h's places are below it). */
#define PLACE_HERE (UINT64_C(1) << 63)

/* ---- the table ------------------------------------------------------------------------------ */

static void row_encode(const struct store_chain *chain, char row[ROW_BYTES])
{
    memcpy(row, chain->chain_id, 16);
    memcpy(row + 16, chain->public_key, 32);
    le64_put(row + 48, chain->incarnation);
    le64_put(row + 56, (uint64_t)chain->started_ms);
    le64_put(row + 64, chain->seq);
    memcpy(row + 72, chain->hash.bytes, 32);
    le64_put(row + 104, chain->removed_seq);
    memcpy(row + 112, chain->removed_hash.bytes, 32);
    le64_put(row + 144, (uint64_t)chain->seen_ms);
}

static struct store_chain row_decode(const char row[ROW_BYTES])
{
    struct store_chain chain = {.incarnation = le64_get(row + 48),
        .started_ms = (int64_t)le64_get(row + 56),
        .seen_ms = (int64_t)le64_get(row + 144),
        .ended = true,
        .seq = le64_get(row + 64),
        .settled = true,
        .removed_seq = le64_get(row + 104)};
    memcpy(chain.chain_id, row, 16);
    memcpy(chain.public_key, row + 16, 32);
    memcpy(chain.hash.bytes, row + 72, 32);
    memcpy(chain.removed_hash.bytes, row + 112, 32);
    return chain;
}

/* The checksum of the header and the table, and with it every frame's own. */
static uint32_t table_crc(struct slice table)
{
    static const char zeros[4];
    uint32_t crc = crc32c(0, table.data, AT_CRC);
    crc = crc32c(crc, zeros, sizeof zeros);
    return crc32c(crc, table.data + AT_CRC + 4, table.len - AT_CRC - 4);
}

/* The seed of the frames' checksums: a frame of a different copy fails the check. */
static uint32_t frames_seed(const struct digest *origin)
{
    return crc32c(0, origin->bytes, sizeof origin->bytes);
}

/* emptied: all entries were removed, and the chains say so. */
static void table_encode(const struct store_inheritance *inherit, bool emptied, struct buf *out)
{
    char header[HEADER_BYTES] = {0};
    char row[ROW_BYTES];
    memcpy(header, magic, sizeof magic);
    le32_put(header + 8, JOURNAL_VERSION);
    le64_put(header + 16, inherit->chain_count);
    memcpy(header + AT_ORIGIN, inherit->origin.bytes, 32);
    le64_put(header + AT_TIME, (uint64_t)inherit->time_ms);
    (void)snprintf(header + AT_FROM, INHERITED_FROM_BYTES, "%s", inherit->from);
    buf_append(out, header, sizeof header);
    for (size_t i = 0; i < inherit->chain_count; i++) {
        struct store_chain chain = inherit->chains[i];
        chain.removed_seq = emptied ? chain.seq : chain.removed_seq;
        chain.removed_hash = emptied ? chain.hash : chain.removed_hash;
        row_encode(&chain, row);
        buf_append(out, row, sizeof row);
    }
    if (buf_status(out) == OK) {
        le32_put(out->data + AT_CRC, table_crc(buf_view(out)));
    }
}

int inherited_make(const struct io *io, const struct mem *mem, const char *directory,
    const struct store_inheritance *inherit)
{
    struct path path = path_in(directory, "inherited");
    struct buf table;
    buf_init(&table, mem, HEADER_BYTES + (size_t)ROW_BYTES * INHERITED_CHAINS_MAX);
    table_encode(inherit, false, &table);
    int fd = buf_status(&table) == OK
                 ? io->open(io->context, path.text, O_RDWR | O_CREAT | O_EXCL, 0600)
                 : -ENOMEM;
    int failed = fd < 0 ? fd : io_write_full(io, fd, table.data, table.len, 0);
    if (fd >= 0) {
        failed = failed == 0 ? io->fsync(io->context, fd) : failed;
        int closed = io->close(io->context, fd);
        failed = failed == 0 ? closed : failed;
    }
    buf_release(&table);
    return failed;
}

static enum status damaged(const struct journal *journal, const char *wrong, struct err *err)
{
    return err_set(
        err, E_CORRUPT, "the file 'inherited' of '%s': %s", journal->options.path, wrong);
}

static enum status unreadable(const struct journal *journal, int failed, struct err *err)
{
    return err_errno(err, failed == -ENOMEM ? E_NOMEM : E_UNAVAILABLE, -failed,
        "cannot read the file 'inherited' of '%s'", journal->options.path);
}

/* NULL, or what is wrong with it. */
static const char *table_decode(struct inherited *self, struct slice table)
{
    if (memcmp(table.data, magic, sizeof magic) != 0) {
        return "it is not such a file";
    }
    if (le32_get(table.data + 8) != JOURNAL_VERSION) {
        return "its version is not known";
    }
    if (le32_get(table.data + AT_CRC) != table_crc(table)) {
        return "its table fails its checksum";
    }
    memcpy(self->origin.bytes, table.data + AT_ORIGIN, 32);
    memcpy(self->from, table.data + AT_FROM, sizeof self->from - 1);
    self->time_ms = (int64_t)le64_get(table.data + AT_TIME);
    self->seed = frames_seed(&self->origin);
    for (size_t i = 0; i < self->chain_count; i++) {
        self->chains[i] = row_decode(table.data + HEADER_BYTES + i * ROW_BYTES);
        if (self->chains[i].removed_seq > self->chains[i].seq) {
            return "a chain ends before what was removed of it";
        }
    }
    return NULL;
}

static enum status table_read(struct journal *journal, struct cursor *cursor, struct err *err)
{
    struct inherited *self = &journal->inherited;
    int failed = 0;
    const char *bytes =
        cursor->size < HEADER_BYTES ? NULL : cursor_bytes(cursor, 0, HEADER_BYTES, &failed);
    if (bytes == NULL) {
        return failed != 0 ? unreadable(journal, failed, err)
                           : damaged(journal, "it is cut short", err);
    }
    uint64_t count = le64_get(bytes + 16);
    if (count > INHERITED_CHAINS_MAX || (cursor->size - HEADER_BYTES) / ROW_BYTES < count) {
        return damaged(journal, "its table is cut short", err);
    }
    self->chains = mem_zalloc(journal->mem, (size_t)count + 1, sizeof *self->chains);
    if (self->chains == NULL) {
        return err_set(err, E_NOMEM, "out of memory for the chains");
    }
    self->chain_count = (size_t)count;
    self->start = HEADER_BYTES + count * ROW_BYTES;
    bytes = cursor_bytes(cursor, 0, (size_t)self->start, &failed);
    if (bytes == NULL) {
        return unreadable(journal, failed, err);
    }
    const char *wrong = table_decode(self, slice_of(bytes, (size_t)self->start));
    return wrong == NULL ? OK : damaged(journal, wrong, err);
}

/* ---- frames --------------------------------------------------------------------------------- */

/* An entry of the file. */
struct inherited_entry {
    struct entry entry;
    struct digest prev_hash;
    uint64_t next; /* offset of the frame after it */
};

/* NULL, or what is wrong. *ret_error: it could not be read, -errno; else 0. */
static const char *entry_at(const struct inherited *self, struct cursor *cursor, uint64_t offset,
    struct inherited_entry *ret_entry, int *ret_error)
{
    struct frame frame;
    ASSERT(offset >= self->start && offset <= self->end);
    uint64_t left = self->end - offset;
    *ret_error = 0;
    if (left < FRAME_HEADER_BYTES) {
        return "a frame is cut short";
    }
    const char *bytes = cursor_bytes(cursor, offset, FRAME_HEADER_BYTES, ret_error);
    uint64_t size = bytes == NULL ? 0 : FRAME_HEADER_BYTES + (uint64_t)le32_get(bytes);
    if (bytes == NULL || size > left || size > FRAME_BYTES_MAX) {
        return bytes == NULL ? "it cannot be read" : "a frame is longer than what is there";
    }
    bytes = cursor_bytes(cursor, offset, (size_t)size, ret_error);
    if (bytes == NULL) {
        return "it cannot be read";
    }
    const char *wrong = frame_decode(slice_of(bytes, (size_t)size), self->seed, offset, &frame);
    if (wrong != NULL) {
        return wrong;
    }
    if (frame.kind != FRAME_ENTRY || frame.payload.len < FRAME_LEAD_BYTES ||
        le32_get(frame.payload.data) >= self->chain_count) {
        return "an entry is of no chain";
    }
    const char *rest = frame.payload.data + FRAME_LEAD_BYTES;
    wrong = entry_decode(slice_of(rest, frame.payload.len - FRAME_LEAD_BYTES), &ret_entry->entry);
    memcpy(ret_entry->entry.chain_id, self->chains[le32_get(frame.payload.data)].chain_id, 16);
    memcpy(ret_entry->prev_hash.bytes, frame.payload.data + 4, 32);
    ret_entry->next = offset + size;
    return wrong;
}

/* The whole frames that a killed copy wrote stay. */
static enum status frames_count(struct journal *journal, struct cursor *cursor, struct err *err)
{
    struct inherited *self = &journal->inherited;
    struct inherited_entry entry;
    uint64_t at = self->start;
    int error = 0;
    while (at < self->end && entry_at(self, cursor, at, &entry, &error) == NULL) {
        at = entry.next;
        self->entries++;
    }
    if (error != 0) {
        return unreadable(journal, error, err);
    }
    error = at < self->end ? journal->io->ftruncate(journal->io->context, self->fd, at) : 0;
    self->end = at;
    return error == 0 ? OK : err_errno(err, E_UNAVAILABLE, -error, "cannot cut a torn end off");
}

enum status inherited_open(struct journal *journal, bool continues, struct err *err)
{
    struct inherited *self = &journal->inherited;
    const struct io *io = journal->io;
    struct path path = path_in(journal->options.path, "inherited");
    int fd = io->open(io->context, path.text, continues ? O_RDWR : O_RDONLY, 0);
    if (fd < 0) {
        return fd == -ENOENT ? OK : unreadable(journal, fd, err);
    }
    struct cursor cursor;
    int64_t size = io->size(io->context, fd);
    *self = (struct inherited){.fd = fd, .end = size < 0 ? 0 : (uint64_t)size};
    buf_init(&self->pending, journal->mem, FRAME_BYTES_MAX + PENDING_BYTES);
    cursor_init(&cursor, io, journal->mem, fd);
    cursor.size = self->end;
    enum status status = size < 0 ? unreadable(journal, (int)size, err) : OK;
    status = status == OK ? table_read(journal, &cursor, err) : status;
    status = status == OK && continues ? frames_count(journal, &cursor, err) : status;
    cursor_release(&cursor);
    if (status != OK) {
        inherited_close(journal);
    }
    return status;
}

void inherited_close(struct journal *journal)
{
    struct inherited *self = &journal->inherited;
    if (self->fd >= 0) {
        (void)journal->io->close(journal->io->context, self->fd);
        mem_free(journal->mem, self->chains);
        buf_release(&self->pending);
    }
    *self = (struct inherited){.fd = -1};
}

/* ---- writing -------------------------------------------------------------------------------- */

static enum status pending_write(struct journal *journal, struct err *err)
{
    struct inherited *self = &journal->inherited;
    ASSERT(self->end - self->start >= self->pending.len);
    uint64_t at = self->end - self->pending.len;
    int failed = io_write_full(journal->io, self->fd, self->pending.data, self->pending.len, at);
    if (failed != 0) {
        (void)err_errno(err, E_UNAVAILABLE, -failed, "cannot write the file 'inherited' of '%s'",
            journal->options.path);
        return E_UNAVAILABLE;
    }
    buf_clear(&self->pending);
    return OK;
}

static bool chain_number(
    const struct inherited *self, const unsigned char chain_id[16], uint32_t *ret_number)
{
    for (size_t i = self->chain_count; i > 0; i--) {
        if (memcmp(self->chains[i - 1].chain_id, chain_id, 16) == 0) {
            *ret_number = (uint32_t)(i - 1);
            return true;
        }
    }
    return false;
}

enum status inherited_add(struct journal *journal, const struct change *change, struct err *err)
{
    struct inherited *self = &journal->inherited;
    const struct entry *entry = &change->entry;
    unsigned char lead[FRAME_HEADER_BYTES + FRAME_LEAD_BYTES + ENTRY_LEAD_BYTES_MAX] = {0};
    uint32_t number = 0;
    ASSERT(change->prev_hash != NULL);
    ASSERT(change->kind == CHANGE_NONE); /* entries come without records */
    if (self->fd < 0 || !chain_number(self, entry->chain_id, &number)) {
        return err_set(err, E_MISUSE, "an entry of a chain that is not inherited");
    }
    le32_put(lead + FRAME_HEADER_BYTES, number);
    memcpy(lead + FRAME_HEADER_BYTES + 4, change->prev_hash->bytes, 32);
    size_t bytes =
        FRAME_LEAD_BYTES + entry_lead_encode(entry, lead + FRAME_HEADER_BYTES + FRAME_LEAD_BYTES);
    size_t at = self->pending.len;
    buf_append(&self->pending, lead, FRAME_HEADER_BYTES + bytes);
    buf_append(&self->pending, entry->bytes.data, entry->bytes.len);
    if (buf_status(&self->pending) != OK) {
        return err_set(err, E_NOMEM, "out of memory for an entry");
    }
    bytes += entry->bytes.len;
    frame_header_encode(
        self->pending.data + at, FRAME_ENTRY, (uint32_t)bytes, self->seed, self->end);
    self->end += FRAME_HEADER_BYTES + bytes;
    self->entries++;
    return self->pending.len >= PENDING_BYTES ? pending_write(journal, err) : OK;
}

enum status inherited_flush(struct journal *journal, struct err *err)
{
    struct inherited *self = &journal->inherited;
    enum status status = pending_write(journal, err);
    int failed = status == OK ? journal->io->fdatasync(journal->io->context, self->fd) : 0;
    return failed == 0 ? status
                       : err_errno(err, E_UNAVAILABLE, -failed,
                             "cannot flush the file 'inherited' of '%s'", journal->options.path);
}

/* Every entry was decided before the other store was copied. */
void inherited_retain(struct journal *journal, int64_t now_ms)
{
    struct inherited *self = &journal->inherited;
    if (self->fd < 0 || self->end == self->start || self->retain_failed ||
        now_ms - self->time_ms <= journal->retain_ms) {
        return;
    }
    struct store_inheritance left = {.from = self->from,
        .origin = self->origin,
        .time_ms = self->time_ms,
        .chains = self->chains,
        .chain_count = self->chain_count};
    struct err ignored = {0};
    struct buf table;
    buf_init(&table, journal->mem, HEADER_BYTES + (size_t)ROW_BYTES * INHERITED_CHAINS_MAX);
    table_encode(&left, true, &table);
    struct path path = path_in(journal->options.path, "inherited");
    self->retain_failed = buf_status(&table) != OK ||
                          file_replace(journal, path.text, buf_view(&table), &ignored) != OK;
    buf_release(&table);
    if (!self->retain_failed) { /* readers continue in the old file until it is opened again */
        self->end = self->start;
        for (size_t i = 0; i < self->chain_count; i++) {
            self->chains[i].removed_seq = self->chains[i].seq;
            self->chains[i].removed_hash = self->chains[i].hash;
        }
    }
}

/* ---- reading -------------------------------------------------------------------------------- */

bool inherited_has(const struct inherited *inherited, const unsigned char chain_id[16])
{
    uint32_t number = 0;
    return chain_number(inherited, chain_id, &number);
}

bool inherited_chains(const struct inherited *inherited, store_chain_visit visit, void *context)
{
    for (size_t i = 0; i < inherited->chain_count; i++) {
        if (!visit(context, &inherited->chains[i])) {
            return false;
        }
    }
    return true;
}

bool inherited_wanted(
    const struct inherited *inherited, const struct entry_range *range, const struct entry_pace *at)
{
    static const unsigned char none[16];
    if (inherited->fd < 0 || at->place != 0) {
        return inherited->fd >= 0 && (at->place & PLACE_HERE) != 0;
    }
    return memcmp(range->after.chain_id, none, sizeof none) == 0 ||
           inherited_has(inherited, range->after.chain_id);
}

static bool is_at(const struct entry *entry, const struct entry_cursor *cursor)
{
    return entry->kind == ENTRY_EVIDENCE && entry->seq == cursor->seq &&
           memcmp(entry->chain_id, cursor->chain_id, sizeof cursor->chain_id) == 0;
}

/* Where to start searching for a cursor's entry: an earlier reading stopped there. */
static uint64_t seek(const struct inherited *self, const struct entry_cursor *after)
{
    uint64_t best = self->start;
    for (size_t i = 0; i < INHERITED_HINTS; i++) {
        const struct inherited_hint *hint = &self->hints[i];
        if (hint->offset > best && hint->at.seq < after->seq &&
            memcmp(hint->at.chain_id, after->chain_id, sizeof after->chain_id) == 0) {
            best = hint->offset;
        }
    }
    return best;
}

/* Finds the place after the cursor's entry; the beginning if removed, or the cursor is zeroed. */
static enum status find(struct journal *journal, struct cursor *cursor,
    const struct entry_cursor *after, uint64_t *ret_offset, struct err *err)
{
    const struct inherited *self = &journal->inherited;
    struct inherited_entry entry;
    uint32_t number = 0;
    int error = 0;
    *ret_offset = self->start;
    for (size_t i = 0; i < INHERITED_HINTS; i++) {
        const struct inherited_hint *hint = &self->hints[i];
        if (hint->offset > 0 && memcmp(&hint->at, after, sizeof *after) == 0) {
            *ret_offset = hint->offset;
            return OK;
        }
    }
    if (after->seq == 0 || (chain_number(self, after->chain_id, &number) &&
                               after->seq <= self->chains[number].removed_seq)) {
        return OK;
    }
    for (uint64_t at = seek(self, after); at < self->end; at = entry.next) {
        const char *wrong = entry_at(self, cursor, at, &entry, &error);
        if (wrong != NULL) {
            return error != 0 ? unreadable(journal, error, err) : damaged(journal, wrong, err);
        }
        if (is_at(&entry.entry, after)) {
            *ret_offset = entry.next;
            return OK;
        }
    }
    return err_set(err, E_INVALID, "the store has no such entry");
}

static void pass(struct inherited_reading *reading, const struct inherited_entry *entry)
{
    bool evidence = entry->entry.kind == ENTRY_EVIDENCE;
    struct entry_pace *at = reading->at;
    at->hash = evidence ? entry->prev_hash : at->hash;
    if ((evidence || reading->range->pace == NULL) && entry_match(reading->range, &entry->entry)) {
        reading->stopped = !reading->visit(reading->context, &entry->entry);
    }
    if (evidence) {
        at->at.seq = entry->entry.seq;
        memcpy(at->at.chain_id, entry->entry.chain_id, sizeof at->at.chain_id);
        at->hash = entry->entry.hash;
    }
    at->place = PLACE_HERE | entry->next;
}

enum status inherited_read(
    struct journal *journal, struct inherited_reading *reading, struct err *err)
{
    struct inherited *self = &journal->inherited;
    struct entry_pace *at = reading->at;
    struct inherited_entry entry;
    struct cursor cursor;
    uint64_t offset = at->place & ~PLACE_HERE;
    ASSERT(self->fd >= 0);
    ASSERT(at->place == 0 || (at->place & PLACE_HERE) != 0);
    cursor_init(&cursor, journal->io, journal->mem, self->fd);
    cursor.size = self->end;
    enum status status = self->pending.len > 0 ? pending_write(journal, err) : OK;
    if (status == OK && at->place == 0) {
        status = find(journal, &cursor, &reading->range->after, &offset, err);
        at->at = reading->range->after;
        at->place = PLACE_HERE | offset;
    }
    /* Entries may have been removed since the reading began. */
    offset = offset < self->start ? self->start : offset;
    while (
        status == OK && offset < self->end && !reading->stopped && reading->bytes < at->bytes_max) {
        int error = 0;
        const char *wrong = entry_at(self, &cursor, offset, &entry, &error);
        if (wrong != NULL) {
            status = error != 0 ? unreadable(journal, error, err) : damaged(journal, wrong, err);
            break;
        }
        pass(reading, &entry);
        reading->bytes += (size_t)(entry.next - offset);
        offset = entry.next;
    }
    cursor_release(&cursor);
    reading->over = status == OK && offset >= self->end && !reading->stopped;
    if (status == OK && reading->range->pace != NULL) {
        self->hints[self->hint_next++ % INHERITED_HINTS] =
            (struct inherited_hint){.at = at->at, .offset = offset};
    }
    return status;
}

/* ---- the store's table ---------------------------------------------------------------------- */

/* Inherited chains and its own. The lock shows whether a process has it open. */
enum status journal_chains(
    struct store *store, store_chain_visit visit, void *context, struct err *err)
{
    struct journal *journal = journal_of(store);
    const struct segment *first = &journal->segments[0];
    struct store_chain own = {.started_ms = journal->identity.created_ms,
        .ended = true,
        .seq = journal->head.seq,
        .hash = journal->head.hash,
        .settled = true,
        .removed_seq = first->mark.seq,
        .removed_hash = first->mark.hash};
    ASSERT(own.removed_seq <= own.seq); /* P10 */
    memcpy(own.chain_id, journal->identity.keys.chain_id, sizeof own.chain_id);
    enum status status = store_identity_public(&journal->identity.keys, own.public_key, err);
    if (status == OK && inherited_chains(&journal->inherited, visit, context)) {
        (void)visit(context, &own);
    }
    return status;
}

static enum status journal_inherited(struct store *store, uint64_t *ret_count, struct err *err)
{
    (void)err;
    ASSERT(journal_of(store)->inherited.fd >= 0); /* it was opened to inherit */
    *ret_count = journal_of(store)->inherited.entries;
    return OK;
}

/* It is a journal as soon as its identity file has its name. A crash before that leaves an
 * unfinished copy. */
static enum status journal_inherit_end(struct store *store, struct err *err)
{
    struct journal *journal = journal_of(store);
    const struct io *io = journal->io;
    struct path from = journal_path(journal, IDENTITY_UNFINISHED);
    struct path to = journal_path(journal, "identity");
    ASSERT(journal->inherited.fd >= 0 && !journal->read_only);
    enum status status = journal_flush(store, err);
    if (status != OK) {
        return status;
    }
    int failed = io->rename(io->context, from.text, to.text);
    failed = failed == 0 ? io_sync_dir(io, journal->options.path) : failed;
    return failed == 0 ? OK : err_errno(err, E_UNKNOWN, -failed, "cannot finish the copy");
}

const struct store_inheriting journal_inheriting = {
    .entries = journal_inherited,
    .finish = journal_inherit_end,
};
