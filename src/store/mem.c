/*
 * past 800 lines because the whole store, with the crashes that tests want of it, is in this file.
 */
#include "store/mem.h"

#include <inttypes.h>
#include <pthread.h>
#include <string.h>

#include "base/check.h"
#include "base/rand.h"
#include "core/source.h"
#include "store/clock.h"

/* One record, never changed once made; a change makes another. */
struct item {
    struct record record; /* points into bytes */
    size_t size;
    char bytes[]; /* as record_encode wrote them */
};

struct kept_entry {
    struct entry entry;
    char *bytes; /* owned */
};

/* What a change replaced, so that it can be taken back. */
struct undo {
    struct item *before; /* NULL: there was none */
    struct item *after;  /* NULL: it was forgotten */
};

/* Where the store stood before a commit that is not flushed: a crash may take it back to here. */
struct mem_unit {
    struct store_head head;
    struct store_tally tally;
    uint64_t fence;
    size_t undo; /* bytes of undo, entries and bodies then */
    size_t entries;
    size_t bodies;
};

struct mem_store {
    struct store store; /* first: the table's functions cast */
    const struct mem *mem;
    struct clock system; /* the machine's, when no other was given */
    struct store_clock clock;
    struct store_identity identity;
    struct store_shared shared;
    struct store_head head;
    struct store_tally tally;
    struct store_moment now; /* of the batch that is prepared */
    bool prepared;           /* a commit or abort is to come */
    uint64_t fence;          /* the highest given out */
    struct buf items;        /* struct item *, sorted by key hash */
    struct buf entries;      /* struct kept_entry, in order */
    struct buf bodies;       /* struct slice, owned; a body's place is its index + 1 */
    pthread_mutex_t mutex;   /* over all changes, for those beside the store's thread: flush, … */
    struct buf undo;         /* struct undo of all that is not flushed */
    struct buf units;        /* struct mem_unit, likewise */
    unsigned readers;        /* … and these, which are open */
};

/* Reads what is flushed, beside the store's thread. */
struct mem_reader {
    struct store store; /* first: the table's functions cast */
    struct mem_store *self;
};

static struct mem_store *mem_of(struct store *store)
{
    return (struct mem_store *)store;
}

static struct item **items_of(const struct mem_store *self)
{
    return (struct item **)(void *)self->items.data;
}

static size_t items_count(const struct mem_store *self)
{
    return self->items.len / sizeof(struct item *);
}

static struct store_counts counts_of(const struct mem_store *self, unsigned kinds)
{
    struct store_counts counts = store_tally_of(&self->tally, kinds);
    for (size_t i = 0; i < items_count(self) && counts.by_status[RECORD_UNKNOWN] > 0; i++) {
        const struct record *record = &items_of(self)[i]->record;
        if (store_kind_in(kinds, record->kind) && record->status == RECORD_UNKNOWN) {
            int64_t *since_ms = &counts.unknown_since_ms;
            bool older = *since_ms == 0 || record->updated_ms < *since_ms;
            *since_ms = older ? record->updated_ms : *since_ms;
        }
    }
    return counts;
}

/* The index of the first item not less than the hash. */
static size_t items_search(const struct mem_store *self, const struct digest *hash)
{
    size_t low = 0;
    size_t high = items_count(self);
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct item *item = items_of(self)[middle];
        if (memcmp(&item->record.key.hash, hash, sizeof *hash) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static struct item *item_get(const struct mem_store *self, const struct digest *hash)
{
    size_t at = items_search(self, hash);
    if (at == items_count(self)) {
        return NULL;
    }
    struct item *item = items_of(self)[at];
    return memcmp(&item->record.key.hash, hash, sizeof *hash) == 0 ? item : NULL;
}

/* Put, replace or (with item NULL) remove. Only adding one can fail. */
static enum status item_set(struct mem_store *self, const struct digest *hash, struct item *item)
{
    size_t at = items_search(self, hash);
    bool there = item_get(self, hash) != NULL;
    if (item != NULL && !there) {
        if (buf_extend(&self->items, sizeof item) == NULL) {
            self->items.status = OK;
            return E_NOMEM;
        }
        size_t behind = items_count(self) - at - 1;
        memmove(items_of(self) + at + 1, items_of(self) + at, behind * sizeof item);
    }
    if (item != NULL) {
        items_of(self)[at] = item;
    } else if (there) {
        size_t behind = items_count(self) - at - 1;
        memmove(items_of(self) + at, items_of(self) + at + 1, behind * sizeof item);
        self->items.len -= sizeof item;
    }
    return OK;
}

static struct item *item_new(struct mem_store *self, const struct record *record)
{
    struct buf bytes;
    buf_init(&bytes, self->mem, SIZE_MAX / 2);
    record_encode(record, &bytes);
    struct item *item = NULL;
    if (buf_status(&bytes) == OK) {
        item = mem_alloc(self->mem, sizeof *item + bytes.len);
    }
    if (item != NULL) {
        item->size = bytes.len;
        memcpy(item->bytes, bytes.data, bytes.len);
        enum status status = record_decode(slice_of(item->bytes, item->size), &item->record, NULL);
        ASSERT(status == OK); /* our own encoding */
    }
    buf_release(&bytes);
    return item;
}

static enum status record_give(
    const struct item *item, struct arena *arena, const struct record **ret_record, struct err *err)
{
    struct record *copy = arena_alloc(arena, sizeof *copy);
    if (copy == NULL || record_copy(&item->record, arena, copy) != OK) {
        return err_set(err, E_NOMEM, "out of memory for a record");
    }
    *ret_record = copy;
    return OK;
}

static struct item *item_find(const struct mem_store *self, const struct op_id *id, unsigned kinds)
{
    for (size_t i = 0; i < items_count(self); i++) {
        struct item *item = items_of(self)[i];
        if (item->record.kind != RECORD_SOURCE && store_kind_in(kinds, item->record.kind) &&
            op_id_equal(&item->record.operation_id, id)) {
            return item;
        }
    }
    return NULL;
}

static enum status body_give(struct mem_store *self, const struct body_ref *body,
    struct store_want *want, struct slice *ret_bytes, struct err *err)
{
    ASSERT(body->retained);
    if (body->bytes == 0) {
        return OK;
    }
    const struct slice *bodies = (const struct slice *)(const void *)self->bodies.data;
    if (body->place == 0 || body->place > self->bodies.len / sizeof *bodies) {
        return err_set(err, E_CORRUPT, "there is no body at place %" PRIu64, body->place);
    }
    struct digest digest;
    struct slice bytes = bodies[body->place - 1];
    digest_sha256(bytes.data, bytes.len, &digest);
    if (bytes.len != body->bytes || memcmp(&digest, &body->digest, sizeof digest) != 0) {
        return err_set(err, E_CORRUPT, "the body does not have its digest");
    }
    enum status status = arena_copy(want->arena, bytes, ret_bytes);
    want->body_status = want->body_status == OK ? status : want->body_status;
    return OK;
}

static enum status bodies_give(
    struct mem_store *self, struct store_want *want, int64_t now_ms, struct err *err)
{
    struct want_choice choice = want_choose(want, now_ms);
    const struct record *record = want->record;
    enum status status = OK;
    if (choice.outcome) {
        status = body_give(self, &record->outcome.body, want, &want->outcome, err);
    }
    if (status == OK && choice.request) {
        status = body_give(self, &record->request, want, &want->request, err);
    }
    return status;
}

static enum status source_give(
    struct mem_store *self, struct store_want *want, struct arena *arena, struct err *err)
{
    const struct record *record = want->record;
    if (!want->source || !source_ordered(&record->source)) {
        return OK;
    }
    enum status status = source_key_seal(&record->key, &record->source, &want->source_key, err);
    const struct item *item = status == OK ? item_get(self, &want->source_key.hash) : NULL;
    return item == NULL ? status : record_give(item, arena, &want->source_record, err);
}

static enum status want_give(struct mem_store *self, struct store_want *want,
    const struct store_batch *batch, struct err *err)
{
    enum status status = OK;
    want->record = want->source_record = NULL;
    want->outcome = want->request = SLICE_EMPTY;
    want->body_status = OK;
    if (want->same != NULL) {
        ASSERT(want->same < want);
        want->record = want->same->record;
    } else {
        const struct item *item =
            want->key != NULL ? item_get(self, want->key) : item_find(self, want->id, want->kinds);
        status = item == NULL ? OK : record_give(item, batch->arena, &want->record, err);
    }
    if (status == OK && want->record != NULL) {
        status = source_give(self, want, batch->arena, err);
    }
    if (status == OK && want->record != NULL) {
        status = bodies_give(self, want, batch->now_ms, err);
    }
    return status;
}

/* The time, for a batch. With the mutex. */
static struct store_moment time_give(struct mem_store *self, struct store_batch *batch)
{
    struct store_moment now = store_clock_now(&self->clock);
    batch->now_ms = now.time_ms;
    batch->clock_held = self->clock.held;
    return now;
}

static enum status batch_give(struct mem_store *self, struct store_batch *batch, struct err *err)
{
    batch->counts = counts_of(self, STORE_KINDS_ASKED);
    batch->fence_first = self->fence + 1;
    enum status status = OK;
    for (size_t i = 0; i < batch->count && status == OK; i++) {
        status = want_give(self, &batch->wants[i], batch, err);
    }
    return status;
}

static enum status mem_read(struct store *store, struct store_batch *batch, struct err *err)
{
    struct mem_store *self = mem_of(store);
    ASSERT(!self->prepared);
    (void)pthread_mutex_lock(&self->mutex);
    self->now = time_give(self, batch);
    (void)pthread_mutex_unlock(&self->mutex);
    return batch_give(self, batch, err);
}

static enum status mem_prepare(struct store *store, struct store_batch *batch, struct err *err)
{
    struct mem_store *self = mem_of(store);
    enum status status = mem_read(store, batch, err);
    if (status == OK) {
        ASSERT(self->fence < UINT64_MAX - batch->fences); /* P4 */
        (void)pthread_mutex_lock(&self->mutex);
        self->fence += batch->fences;
        (void)pthread_mutex_unlock(&self->mutex);
        self->prepared = true;
    }
    return status;
}

static void mem_abort(struct store *store)
{
    struct mem_store *self = mem_of(store);
    ASSERT(self->prepared);
    self->prepared = false;
}

static void tally_item(struct mem_store *self, const struct item *item, bool more)
{
    if (item != NULL) {
        store_tally_add(&self->tally, item->record.kind, item->record.status, more);
    }
}

static enum status body_keep(
    struct mem_store *self, struct slice bytes, struct body_ref *body, struct err *err)
{
    if (bytes.len == 0) {
        return OK;
    }
    if (!body->retained || body->bytes != bytes.len) {
        return err_set(
            err, E_MISUSE, "a body of %zu bytes does not belong to its record", bytes.len);
    }
    char *copy = mem_alloc(self->mem, bytes.len);
    if (copy == NULL) {
        return err_set(err, E_NOMEM, "out of memory for a body");
    }
    memcpy(copy, bytes.data, bytes.len);
    struct slice kept = slice_of(copy, bytes.len);
    buf_append(&self->bodies, &kept, sizeof kept);
    if (buf_status(&self->bodies) != OK) {
        self->bodies.status = OK;
        mem_free(self->mem, copy);
        return err_set(err, E_NOMEM, "out of memory for a body");
    }
    body->place = self->bodies.len / sizeof kept;
    return OK;
}

/* The record as it is from now on. */
static enum status change_item(struct mem_store *self, const struct change *change,
    const struct item *found, struct item **ret_item, struct err *err)
{
    struct record record;
    enum status status = OK;
    if (change->kind == CHANGE_PUT) {
        record = *change->record;
        status = body_keep(self, change->request_body, &record.request, err);
        if (status == OK) {
            status = body_keep(self, change->outcome_body, &record.outcome.body, err);
        }
    } else if (found == NULL) {
        status = err_set(err, E_MISUSE, "an absent record cannot be touched");
    } else {
        record = found->record;
        record.duplicates += record.duplicates < UINT32_MAX;
    }
    if (status != OK) {
        return status;
    }
    *ret_item = item_new(self, &record);
    return *ret_item == NULL ? err_set(err, E_NOMEM, "out of memory for a record") : OK;
}

static enum status change_record(
    struct mem_store *self, const struct change *change, struct err *err)
{
    const struct digest *hash = &change->record->key.hash;
    struct item *found = item_get(self, hash);
    if ((found == NULL ? 0 : found->record.version) != change->version_expected) {
        return err_set(err, E_STALE, "the record has changed since it was loaded");
    }
    struct item *item = NULL;
    enum status status = change_item(self, change, found, &item, err);
    if (status != OK) {
        return status;
    }
    struct undo undo = {.before = found, .after = item};
    buf_append(&self->undo, &undo, sizeof undo);
    if (buf_status(&self->undo) == OK && item_set(self, hash, item) == OK) {
        tally_item(self, found, false);
        tally_item(self, item, true);
        return OK;
    }
    if (buf_status(&self->undo) == OK) {
        self->undo.len -= sizeof undo;
    }
    mem_free(self->mem, item);
    return err_set(err, E_NOMEM, "out of memory for a commit");
}

static enum status change_entry(struct mem_store *self, const struct entry *entry, struct err *err)
{
    if (entry->bytes.len == 0) {
        return OK;
    }
    if (entry->kind == ENTRY_EVIDENCE && entry->seq != self->head.seq + 1) {
        return err_set(err, E_MISUSE, "entry %" PRIu64 " does not follow %" PRIu64, entry->seq,
            self->head.seq);
    }
    size_t bytes = entry->bytes.len;
    struct kept_entry kept = {
        .entry = *entry, .bytes = mem_alloc(self->mem, bytes + entry->tenant.len)};
    if (kept.bytes == NULL) {
        return err_set(err, E_NOMEM, "out of memory for an entry");
    }
    memcpy(kept.bytes, entry->bytes.data, bytes);
    if (entry->tenant.len > 0) {
        memcpy(kept.bytes + bytes, entry->tenant.data, entry->tenant.len);
    }
    kept.entry.bytes = slice_of(kept.bytes, bytes);
    kept.entry.tenant = slice_of(kept.bytes + bytes, entry->tenant.len);
    buf_append(&self->entries, &kept, sizeof kept);
    if (buf_status(&self->entries) != OK) {
        self->entries.status = OK;
        mem_free(self->mem, kept.bytes);
        return err_set(err, E_NOMEM, "out of memory for an entry");
    }
    if (entry->kind == ENTRY_EVIDENCE) {
        self->head.seq = entry->seq;
        self->head.hash = entry->hash;
    }
    return OK;
}

static void bodies_cut(struct mem_store *self, size_t len)
{
    const struct slice *bodies = (const struct slice *)(const void *)self->bodies.data;
    ASSERT(len <= self->bodies.len);
    for (size_t i = len / sizeof *bodies; i < self->bodies.len / sizeof *bodies; i++) {
        mem_free(self->mem, (char *)(uintptr_t)bodies[i].data);
    }
    self->bodies.len = len;
}

static void entries_cut(struct mem_store *self, size_t len)
{
    const struct kept_entry *kept = (const struct kept_entry *)(const void *)self->entries.data;
    ASSERT(len <= self->entries.len);
    for (size_t i = len / sizeof *kept; i < self->entries.len / sizeof *kept; i++) {
        mem_free(self->mem, kept[i].bytes);
    }
    self->entries.len = len;
}

/* Take back everything since a unit began, the last change first. */
static void unit_undo(struct mem_store *self, const struct mem_unit *unit)
{
    const struct undo *undone = (const struct undo *)(const void *)self->undo.data;
    ASSERT(unit->undo <= self->undo.len);
    for (size_t i = self->undo.len / sizeof *undone; i > unit->undo / sizeof *undone; i--) {
        const struct undo *undo = &undone[i - 1];
        const struct item *there = undo->after == NULL ? undo->before : undo->after;
        enum status status = item_set(self, &there->record.key.hash, undo->before);
        ASSERT(status == OK); /* there is room: one was there before */
        mem_free(self->mem, undo->after);
    }
    self->undo.len = unit->undo;
    self->undo.status = OK;
    entries_cut(self, unit->entries);
    bodies_cut(self, unit->bodies);
    self->head = unit->head;
    self->tally = unit->tally;
}

/* Remember where the store stands, before it changes. With the mutex. */
static enum status unit_begin(struct mem_store *self, struct mem_unit *ret_unit)
{
    *ret_unit = (struct mem_unit){.head = self->head,
        .tally = self->tally,
        .fence = self->fence,
        .undo = self->undo.len,
        .entries = self->entries.len,
        .bodies = self->bodies.len};
    buf_append(&self->units, ret_unit, sizeof *ret_unit);
    enum status status = buf_status(&self->units);
    self->units.status = OK;
    return status;
}

/* Every change is looked at, so that all that are stale are known. */
static enum status commit_apply(
    struct mem_store *self, const struct commit *commit, struct err *err)
{
    bool stale = false;
    enum status status = OK;
    for (size_t i = 0; i < commit->count && status == OK; i++) {
        const struct change *change = &commit->changes[i];
        if (change->kind != CHANGE_NONE) {
            status = change_record(self, change, err);
        }
        if (commit->ret_stale != NULL) {
            commit->ret_stale[i] = status == E_STALE;
        }
        stale = stale || status == E_STALE;
        status = status == E_STALE ? OK : status;
        if (status == OK) {
            status = change_entry(self, &change->entry, err);
        }
    }
    return status == OK && stale ? err_set(err, E_STALE, "a record has changed since it was read")
                                 : status;
}

static enum status mem_commit(struct store *store, const struct commit *commit, struct err *err)
{
    struct mem_store *self = mem_of(store);
    struct mem_unit unit;
    ASSERT(self->prepared);
    self->prepared = false;
    (void)pthread_mutex_lock(&self->mutex);
    enum status status = unit_begin(self, &unit);
    if (status == OK) {
        status = commit_apply(self, commit, err);
        if (status != OK) {
            unit_undo(self, &unit);
            self->units.len -= sizeof unit;
        }
    } else {
        (void)err_set(err, status, "out of memory for a commit");
    }
    if (status == OK) {
        self->head.moment = self->now;
        self->fence = self->fence < commit->fence_floor ? commit->fence_floor : self->fence;
    }
    (void)pthread_mutex_unlock(&self->mutex);
    return status;
}

/* Nothing can be taken back any more: what was replaced goes. With the mutex. */
static void units_end(struct mem_store *self)
{
    const struct undo *undone = (const struct undo *)(const void *)self->undo.data;
    for (size_t i = 0; i < self->undo.len / sizeof *undone; i++) {
        mem_free(self->mem, undone[i].before);
    }
    buf_clear(&self->undo);
    buf_clear(&self->units);
}

static enum status mem_flush(struct store *store, struct err *err)
{
    (void)err;
    struct mem_store *self = mem_of(store);
    (void)pthread_mutex_lock(&self->mutex);
    units_end(self);
    (void)pthread_mutex_unlock(&self->mutex);
    return OK;
}

static enum status scan_give(const struct mem_store *self, const struct scan *scan,
    struct arena *arena, const struct record **ret_records, size_t *ret_count, struct err *err)
{
    struct scan_walk walk = scan_walk_start(scan);
    size_t count = 0;
    ASSERT(scan->kinds != 0);
    size_t i = items_search(self, &scan->after);
    for (; i < items_count(self) && count < scan->limit; i++) {
        const struct item *item = items_of(self)[i];
        bool wanted = store_kind_in(scan->kinds, item->record.kind) &&
                      (scan->status == 0 || scan->status == item->record.status);
        if (memcmp(&item->record.key.hash, &scan->after, sizeof scan->after) == 0) {
            continue;
        }
        if (!scan_walk_step(&walk, &item->record.key.hash, wanted)) {
            break;
        }
        if (scan_match(scan, &item->record)) {
            enum status status = record_give(item, arena, &ret_records[count], err);
            if (status != OK) {
                return status;
            }
            count++;
        }
    }
    ASSERT(count <= scan->limit);
    scan_walk_end(&walk, i == items_count(self));
    *ret_count = count;
    return OK;
}

static enum status mem_scan(struct store *store, const struct scan *scan, struct arena *arena,
    const struct record **ret_records, size_t *ret_count, struct err *err)
{
    return scan_give(mem_of(store), scan, arena, ret_records, ret_count, err);
}

static bool due_wanted(
    const struct store_due_filter *filter, const struct record *record, int64_t now_ms)
{
    if (!store_kind_in(filter->kinds, record->kind)) {
        return false;
    }
    return filter->held ? record->holder != 0
                        : (filter->reasons & STORE_DUES_ALL & STORE_DUE(record_due(record))) != 0 &&
                              record_due_ms(record) <= now_ms;
}

static struct store_due_cursor cursor_at(const struct record *record)
{
    struct store_due_cursor cursor = {.due = (uint64_t)record_due_ms(record)};
    for (size_t i = 0; i < 8; i++) {
        cursor.key_high = cursor.key_high << 8 | record->key.hash.bytes[i];
        cursor.key_low = cursor.key_low << 8 | record->key.hash.bytes[8 + i];
    }
    return cursor;
}

/* The first one that is due after the cursor; NULL: there is none. */
static const struct record *due_after(
    struct mem_store *self, const struct store_due_filter *filter, int64_t now_ms)
{
    const struct record *first = NULL;
    struct store_due_cursor first_at = {0};
    for (size_t i = 0; i < items_count(self); i++) {
        const struct record *record = &items_of(self)[i]->record;
        struct store_due_cursor at = cursor_at(record);
        if (due_wanted(filter, record, now_ms - 1) && store_due_before(filter->cursor, &at) &&
            (first == NULL || store_due_before(&at, &first_at))) {
            first = record;
            first_at = at;
        }
    }
    return first;
}

static enum status mem_due(struct store *store, const struct store_due_filter *filter,
    struct store_due *ret_dues, size_t limit, size_t *ret_count, struct err *err)
{
    (void)err;
    struct mem_store *self = mem_of(store);
    (void)pthread_mutex_lock(&self->mutex);
    int64_t now_ms = store_clock_now(&self->clock).time_ms;
    (void)pthread_mutex_unlock(&self->mutex);
    size_t count = 0;
    for (const struct record *next = NULL; filter->cursor != NULL && count < limit;) {
        next = due_after(self, filter, now_ms);
        if (next == NULL) {
            break;
        }
        *filter->cursor = cursor_at(next);
        ret_dues[count++] = store_due_of(next);
    }
    for (size_t i = 0; filter->cursor == NULL && i < items_count(self) && count < limit; i++) {
        const struct record *record = &items_of(self)[i]->record;
        if (due_wanted(filter, record, now_ms)) {
            ret_dues[count++] = store_due_of(record);
        }
    }
    ASSERT(count <= limit);
    *ret_count = count;
    return OK;
}

static enum status mem_counts(
    struct store *store, unsigned kinds, struct store_counts *ret_counts, struct err *err)
{
    (void)err;
    *ret_counts = counts_of(mem_of(store), kinds);
    return OK;
}

/* A place is the index of the next entry + 1. */
static enum status entries_give(const struct mem_store *self, const struct entry_range *range,
    entry_visit visit, void *context, struct err *err)
{
    const struct kept_entry *kept = (const struct kept_entry *)(const void *)self->entries.data;
    struct entry_pace unpaced = {.bytes_max = SIZE_MAX};
    struct entry_pace *pace = range->pace == NULL ? &unpaced : range->pace;
    size_t count = self->entries.len / sizeof *kept;
    size_t at = pace->place == 0 ? 0 : (size_t)pace->place - 1;
    size_t bytes = 0;
    bool stopped = false;
    enum status status = entry_cursor_check(&range->after, self->identity.chain_id, err);
    if (status != OK) {
        return status;
    }
    memcpy(pace->at.chain_id, self->identity.chain_id, sizeof pace->at.chain_id);
    for (; at < count && !stopped && bytes < pace->bytes_max; at++) {
        struct entry entry = kept[at].entry;
        memcpy(entry.chain_id, pace->at.chain_id, sizeof entry.chain_id);
        bytes += entry.bytes.len;
        if (range->pace == NULL || entry.kind == ENTRY_EVIDENCE) {
            stopped = entry_in_range(range, &entry) && !visit(context, &entry);
        }
        if (entry.kind == ENTRY_EVIDENCE) {
            pace->at.seq = entry.seq;
            pace->hash = entry.hash;
        }
    }
    pace->place = at + 1;
    pace->done = at == count && !stopped;
    return OK;
}

static enum status mem_entries(struct store *store, const struct entry_range *range,
    entry_visit visit, void *context, struct err *err)
{
    return entries_give(mem_of(store), range, visit, context, err);
}

static void mem_head(struct store *store, struct store_head *ret_head)
{
    *ret_head = mem_of(store)->head;
}

static void identity_give(const struct mem_store *self, struct store_identity *ret_identity,
    struct store_shared *ret_shared)
{
    if (ret_identity != NULL) {
        *ret_identity = self->identity;
    }
    if (ret_shared != NULL) {
        *ret_shared = self->shared;
    }
}

static void mem_identity(
    struct store *store, struct store_identity *ret_identity, struct store_shared *ret_shared)
{
    identity_give(mem_of(store), ret_identity, ret_shared);
}

/* ---- readers ------------------------------------------------------------------------------- */

static struct mem_store *reader_of(struct store *store)
{
    return ((struct mem_reader *)store)->self;
}

/* The end of the chain that is flushed. With the mutex. */
static struct store_head durable_head(const struct mem_store *self)
{
    const struct mem_unit *units = (const struct mem_unit *)(const void *)self->units.data;
    return self->units.len > 0 ? units[0].head : self->head;
}

/* The records without the changes that are not flushed, the last one first. */
static enum status view_undo(const struct mem_store *self, struct mem_store *view)
{
    const struct undo *undone = (const struct undo *)(const void *)self->undo.data;
    enum status status = OK;
    for (size_t i = self->undo.len / sizeof *undone; i > 0 && status == OK; i--) {
        struct item *before = undone[i - 1].before;
        const struct item *named = before != NULL ? before : undone[i - 1].after;
        ASSERT(named != NULL); /* a change has a record before it or after it */
        status = item_set(view, &named->record.key.hash, before);
    }
    return status;
}

/* The store as a crash would leave it now: what is flushed (P2). It has a list of its own, what is
 * in the list is the store's. With the mutex, which stays held until view_end. */
static enum status view_begin(struct mem_store *self, struct mem_store *ret_view, struct err *err)
{
    (void)pthread_mutex_lock(&self->mutex);
    *ret_view = (struct mem_store){.mem = self->mem,
        .identity = self->identity,
        .shared = self->shared,
        .head = durable_head(self),
        .tally = self->tally,
        .fence = self->fence,
        .entries = self->entries,
        .bodies = self->bodies};
    if (self->units.len > 0) {
        const struct mem_unit *unit = (const struct mem_unit *)(const void *)self->units.data;
        ASSERT(unit->undo == 0); /* the first that is not flushed begins the list */
        ASSERT(unit->head.seq <= self->head.seq);
        ret_view->tally = unit->tally;
        ret_view->fence = unit->fence;
        ret_view->entries.len = unit->entries;
        ret_view->bodies.len = unit->bodies;
    }
    buf_init(&ret_view->items, self->mem, SIZE_MAX / 2);
    buf_append(&ret_view->items, self->items.data, self->items.len);
    enum status status = buf_status(&ret_view->items);
    status = status == OK ? view_undo(self, ret_view) : status;
    return status == OK ? OK : err_set(err, status, "out of memory for a reader");
}

static void view_end(struct mem_store *self, struct mem_store *view)
{
    (void)pthread_mutex_unlock(&self->mutex);
    buf_release(&view->items);
    mem_wipe(&view->identity, sizeof view->identity);
    mem_wipe(&view->shared, sizeof view->shared);
}

static enum status reader_read(struct store *store, struct store_batch *batch, struct err *err)
{
    struct mem_store *self = reader_of(store);
    struct mem_store view;
    enum status status = view_begin(self, &view, err);
    if (status == OK) {
        (void)time_give(self, batch);
        status = batch_give(&view, batch, err);
    }
    view_end(self, &view);
    return status;
}

static enum status reader_scan(struct store *store, const struct scan *scan, struct arena *arena,
    const struct record **ret_records, size_t *ret_count, struct err *err)
{
    struct mem_store *self = reader_of(store);
    struct mem_store view;
    enum status status = view_begin(self, &view, err);
    if (status == OK) {
        status = scan_give(&view, scan, arena, ret_records, ret_count, err);
    }
    view_end(self, &view);
    return status;
}

static enum status reader_entries(struct store *store, const struct entry_range *range,
    entry_visit visit, void *context, struct err *err)
{
    struct mem_store *self = reader_of(store);
    struct mem_store view;
    enum status status = view_begin(self, &view, err);
    if (status == OK) {
        status = entries_give(&view, range, visit, context, err);
    }
    view_end(self, &view);
    return status;
}

static enum status reader_counts(
    struct store *store, unsigned kinds, struct store_counts *ret_counts, struct err *err)
{
    struct mem_store *self = reader_of(store);
    struct mem_store view;
    enum status status = view_begin(self, &view, err);
    if (status == OK) {
        *ret_counts = counts_of(&view, kinds);
    }
    view_end(self, &view);
    return status;
}

static void reader_head(struct store *store, struct store_head *ret_head)
{
    struct mem_store *self = reader_of(store);
    (void)pthread_mutex_lock(&self->mutex);
    *ret_head = durable_head(self);
    (void)pthread_mutex_unlock(&self->mutex);
}

static void reader_identity(
    struct store *store, struct store_identity *ret_identity, struct store_shared *ret_shared)
{
    identity_give(reader_of(store), ret_identity, ret_shared);
}

static enum status reader_close(struct store *store, struct err *err)
{
    (void)err;
    struct mem_store *self = reader_of(store);
    (void)pthread_mutex_lock(&self->mutex);
    ASSERT(self->readers > 0);
    self->readers--;
    (void)pthread_mutex_unlock(&self->mutex);
    mem_free(self->mem, store);
    return OK;
}

static const struct store_ops reader_ops = {
    .name = "mem reader",
    .read = reader_read,
    .scan = reader_scan,
    .entries = reader_entries,
    .counts = reader_counts,
    .head = reader_head,
    .identity = reader_identity,
    .close = reader_close,
};

static enum status mem_open_reader(struct store *store, struct store **ret_reader, struct err *err)
{
    struct mem_store *self = mem_of(store);
    struct mem_reader *reader = mem_zalloc(self->mem, 1, sizeof *reader);
    if (reader == NULL) {
        return err_set(err, E_NOMEM, "out of memory for a reader");
    }
    *reader = (struct mem_reader){.store = {&reader_ops}, .self = self};
    (void)pthread_mutex_lock(&self->mutex);
    self->readers++;
    (void)pthread_mutex_unlock(&self->mutex);
    *ret_reader = &reader->store;
    return OK;
}

/* ---- the rest ------------------------------------------------------------------------------ */

/* E_NOMEM: it stays for now. With the mutex. */
static enum status item_forget(struct mem_store *self, struct item *item)
{
    struct undo undo = {.before = item};
    buf_append(&self->undo, &undo, sizeof undo);
    enum status status = buf_status(&self->undo);
    self->undo.status = OK;
    if (status == OK) {
        tally_item(self, item, false);
        status = item_set(self, &item->record.key.hash, NULL);
        ASSERT(status == OK);
    }
    return status;
}

/* What is forgotten is committed with the time that it was forgotten at: a restart that takes the
 * time back brings the records back with it (P8). */
static enum status mem_maintain(struct store *store, struct err *err)
{
    (void)err;
    struct mem_store *self = mem_of(store);
    struct mem_unit unit;
    ASSERT(!self->prepared);
    (void)pthread_mutex_lock(&self->mutex);
    struct store_moment now = store_clock_now(&self->clock);
    enum status status = unit_begin(self, &unit);
    for (size_t i = items_count(self); i > 0 && status == OK; i--) {
        struct item *item = items_of(self)[i - 1];
        if (record_window_over(&item->record, now.time_ms)) {
            status = item_forget(self, item);
        }
    }
    if (self->undo.len > unit.undo) {
        self->head.moment = now;
    } else if (status == OK) {
        self->units.len -= sizeof unit;
    }
    (void)pthread_mutex_unlock(&self->mutex);
    return OK;
}

static enum status mem_close(struct store *store, struct err *err)
{
    (void)err;
    struct mem_store *self = mem_of(store);
    ASSERT(self->readers == 0); /* they would read what is gone */
    units_end(self);
    for (size_t i = 0; i < items_count(self); i++) {
        mem_free(self->mem, items_of(self)[i]);
    }
    entries_cut(self, 0);
    bodies_cut(self, 0);
    buf_release(&self->items);
    buf_release(&self->entries);
    buf_release(&self->bodies);
    buf_release(&self->undo);
    buf_release(&self->units);
    (void)pthread_mutex_destroy(&self->mutex);
    mem_wipe(&self->identity, sizeof self->identity);
    mem_wipe(&self->shared, sizeof self->shared);
    mem_free(self->mem, self);
    return OK;
}

static const struct store_housekeeping mem_housekeeping = {.maintain = mem_maintain};

static const struct store_ops mem_ops = {
    .name = "mem",
    .prepare = mem_prepare,
    .commit = mem_commit,
    .abort = mem_abort,
    .flush = mem_flush,
    .read = mem_read,
    .scan = mem_scan,
    .due = mem_due,
    .entries = mem_entries,
    .counts = mem_counts,
    .head = mem_head,
    .identity = mem_identity,
    .close = mem_close,
    .housekeeping = &mem_housekeeping,
    .open_reader = mem_open_reader,
};

size_t store_mem_unflushed(struct store *store)
{
    struct mem_store *self = mem_of(store);
    ASSERT(store->ops == &mem_ops);
    (void)pthread_mutex_lock(&self->mutex);
    size_t count = self->units.len / sizeof(struct mem_unit);
    (void)pthread_mutex_unlock(&self->mutex);
    return count;
}

uint64_t store_mem_durable_seq(struct store *store)
{
    struct mem_store *self = mem_of(store);
    ASSERT(store->ops == &mem_ops);
    (void)pthread_mutex_lock(&self->mutex);
    uint64_t seq = durable_head(self).seq;
    (void)pthread_mutex_unlock(&self->mutex);
    return seq;
}

void store_mem_restart(struct store *store, size_t kept)
{
    struct mem_store *self = mem_of(store);
    ASSERT(store->ops == &mem_ops);
    (void)pthread_mutex_lock(&self->mutex);
    const struct mem_unit *units = (const struct mem_unit *)(const void *)self->units.data;
    if (kept < self->units.len / sizeof *units) {
        unit_undo(self, &units[kept]);
        self->fence = units[kept].fence;
    }
    units_end(self);
    self->prepared = false;
    store_clock_init(&self->clock, self->clock.clock, &self->head.moment);
    (void)pthread_mutex_unlock(&self->mutex);
}

enum status store_mem_new(const struct store_options *options,
    const struct store_mem_secrets *secrets, struct store **ret_store, struct err *err)
{
    const struct mem *mem = options->mem == NULL ? &mem_libc : options->mem;
    struct mem_store *self = mem_zalloc(mem, 1, sizeof *self);
    if (self == NULL) {
        return err_set(err, E_NOMEM, "out of memory for a store");
    }
    enum status status = OK;
    if (secrets != NULL) {
        self->identity = secrets->identity;
        self->shared = secrets->shared;
    } else {
        status = rand_bytes(&self->identity, sizeof self->identity, err);
        status = status == OK ? rand_bytes(&self->shared, sizeof self->shared, err) : status;
    }
    if (status != OK) {
        mem_free(mem, self);
        return status;
    }
    self->store.ops = &mem_ops;
    self->mem = mem;
    clock_system(&self->system);
    store_clock_init(
        &self->clock, options->clock == NULL ? &self->system : options->clock, &self->head.moment);
    (void)pthread_mutex_init(&self->mutex, NULL);
    buf_init(&self->items, mem, SIZE_MAX / 2);
    buf_init(&self->entries, mem, SIZE_MAX / 2);
    buf_init(&self->bodies, mem, SIZE_MAX / 2);
    buf_init(&self->undo, mem, SIZE_MAX / 2);
    buf_init(&self->units, mem, SIZE_MAX / 2);
    *ret_store = &self->store;
    return OK;
}
