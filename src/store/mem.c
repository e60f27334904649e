#include "store/mem.h"

#include <inttypes.h>
#include <string.h>

#include "base/check.h"
#include "base/rand.h"

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

/* What a change replaced, so that a commit that fails half way can be taken back. */
struct undo {
    struct item *before; /* NULL: there was none */
    struct item *after;
};

struct mem_store {
    struct store store; /* first: the table's functions cast */
    const struct mem *mem;
    struct store_identity identity;
    struct store_head head;
    struct buf items;   /* struct item *, sorted by key hash */
    struct buf entries; /* struct kept_entry, in order */
    struct buf bodies;  /* struct slice, owned; a body's place is its index + 1 */
    struct buf undo;    /* struct undo of the commit being made */
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

static enum status mem_load(struct store *store, const struct digest *hashes, size_t count,
    struct arena *arena, const struct record **ret_records, struct err *err)
{
    const struct mem_store *self = mem_of(store);
    enum status status = OK;
    for (size_t i = 0; i < count && status == OK; i++) {
        const struct item *item = item_get(self, &hashes[i]);
        ret_records[i] = NULL;
        if (item != NULL) {
            status = record_give(item, arena, &ret_records[i], err);
        }
    }
    return status;
}

static enum status mem_find(struct store *store, const struct op_id *id, struct arena *arena,
    const struct record **ret_record, struct err *err)
{
    const struct mem_store *self = mem_of(store);
    *ret_record = NULL;
    for (size_t i = 0; i < items_count(self); i++) {
        const struct item *item = items_of(self)[i];
        if (item->record.kind == RECORD_OPERATION && op_id_equal(&item->record.operation_id, id)) {
            return record_give(item, arena, ret_record, err);
        }
    }
    return OK;
}

static enum status mem_body(struct store *store, const struct body_ref *body, struct arena *arena,
    struct slice *ret_bytes, struct err *err)
{
    const struct mem_store *self = mem_of(store);
    if (!body->retained) {
        return err_set(err, E_MISUSE, "the body is not retained");
    }
    if (body->bytes == 0) {
        *ret_bytes = SLICE_EMPTY;
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
    enum status status = arena_copy(arena, bytes, ret_bytes);
    return status == OK ? OK : err_set(err, status, "out of memory for a body");
}

static void counts_add(struct store_head *head, const struct item *item, int one)
{
    if (item != NULL) {
        uint64_t step = (uint64_t)(int64_t)one;
        head->records += item->record.kind == RECORD_OPERATION ? step : 0;
        head->sources += item->record.kind == RECORD_SOURCE ? step : 0;
        head->in_progress += item->record.status == RECORD_IN_PROGRESS ? step : 0;
        head->unknown += item->record.status == RECORD_UNKNOWN ? step : 0;
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
        status = err_set(err, E_MISUSE, "a record that is not there cannot be touched");
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
        counts_add(&self->head, found, -1);
        counts_add(&self->head, item, 1);
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
    for (size_t i = len / sizeof *bodies; i < self->bodies.len / sizeof *bodies; i++) {
        mem_free(self->mem, (char *)(uintptr_t)bodies[i].data);
    }
    self->bodies.len = len;
}

static void entries_cut(struct mem_store *self, size_t len)
{
    const struct kept_entry *kept = (const struct kept_entry *)(const void *)self->entries.data;
    for (size_t i = len / sizeof *kept; i < self->entries.len / sizeof *kept; i++) {
        mem_free(self->mem, kept[i].bytes);
    }
    self->entries.len = len;
}

/* The commit stands: what it replaced goes. Or it is taken back, last change first. */
static void commit_end(struct mem_store *self, bool keep)
{
    const struct undo *undone = (const struct undo *)(const void *)self->undo.data;
    for (size_t i = self->undo.len / sizeof *undone; i > 0; i--) {
        const struct undo *undo = &undone[i - 1];
        if (!keep) {
            enum status status = item_set(self, &undo->after->record.key.hash, undo->before);
            ASSERT(status == OK); /* only adding one can fail */
        }
        mem_free(self->mem, keep ? undo->before : undo->after);
    }
    buf_clear(&self->undo);
}

static enum status mem_commit(struct store *store, const struct commit *commit, struct err *err)
{
    struct mem_store *self = mem_of(store);
    struct store_head head = self->head;
    size_t entries = self->entries.len;
    size_t bodies = self->bodies.len;
    enum status status = OK;
    for (size_t i = 0; i < commit->count && status == OK; i++) {
        const struct change *change = &commit->changes[i];
        if (change->kind != CHANGE_NONE) {
            status = change_record(self, change, err);
        }
        if (status == OK) {
            status = change_entry(self, &change->entry, err);
        }
    }
    commit_end(self, status == OK);
    if (status != OK) {
        entries_cut(self, entries);
        bodies_cut(self, bodies);
        self->head = head;
        return status;
    }
    self->head.moment = commit->moment;
    return OK;
}

static enum status mem_flush(struct store *store, struct err *err)
{
    (void)store;
    (void)err;
    return OK;
}

static enum status mem_fences(
    struct store *store, uint64_t count, uint64_t *ret_first, struct err *err)
{
    (void)err;
    struct mem_store *self = mem_of(store);
    ASSERT(count > 0 && self->head.fence <= UINT64_MAX - count); /* P4 */
    *ret_first = self->head.fence + 1;
    self->head.fence += count;
    return OK;
}

static enum status mem_scan(struct store *store, const struct scan *scan, struct arena *arena,
    const struct record **ret_records, size_t *ret_count, struct err *err)
{
    const struct mem_store *self = mem_of(store);
    struct scan_walk walk = scan_walk_start(scan);
    size_t count = 0;
    size_t i = items_search(self, &scan->after);
    for (; i < items_count(self) && count < scan->limit; i++) {
        const struct item *item = items_of(self)[i];
        bool wanted = scan->status == 0 || scan->status == item->record.status;
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
    scan_walk_end(&walk, i == items_count(self));
    *ret_count = count;
    return OK;
}

static enum status mem_due(struct store *store, int64_t now_ms, struct op_id *ret_ids, size_t limit,
    size_t *ret_count, struct err *err)
{
    (void)err;
    const struct mem_store *self = mem_of(store);
    size_t count = 0;
    for (size_t i = 0; i < items_count(self) && count < limit; i++) {
        const struct record *record = &items_of(self)[i]->record;
        if (record->status == RECORD_IN_PROGRESS && record->lease_expires_ms <= now_ms) {
            ret_ids[count++] = record->operation_id;
        }
    }
    *ret_count = count;
    return OK;
}

/* A place is the index of the next entry + 1. */
static enum status mem_entries(struct store *store, const struct entry_range *range,
    entry_visit visit, void *context, struct err *err)
{
    (void)err;
    const struct mem_store *self = mem_of(store);
    const struct kept_entry *kept = (const struct kept_entry *)(const void *)self->entries.data;
    struct entry_pace unpaced = {.bytes_max = SIZE_MAX};
    struct entry_pace *pace = range->pace == NULL ? &unpaced : range->pace;
    size_t count = self->entries.len / sizeof *kept;
    size_t at = pace->place == 0 ? 0 : (size_t)pace->place - 1;
    size_t bytes = 0;
    bool stopped = false;
    for (; at < count && !stopped && bytes < pace->bytes_max; at++) {
        const struct entry *entry = &kept[at].entry;
        bytes += entry->bytes.len;
        if (range->pace == NULL || entry->kind == ENTRY_EVIDENCE) {
            stopped = entry_in_range(range, entry) && !visit(context, entry);
        }
        if (entry->kind == ENTRY_EVIDENCE) {
            pace->seq = entry->seq;
            pace->hash = entry->hash;
        }
    }
    pace->place = at + 1;
    pace->done = at == count && !stopped;
    return OK;
}

static void mem_head(struct store *store, struct store_head *ret_head)
{
    *ret_head = mem_of(store)->head;
}

static void mem_identity(struct store *store, struct store_identity *ret_identity)
{
    *ret_identity = mem_of(store)->identity;
}

static enum status mem_maintain(struct store *store, int64_t now_ms, struct err *err)
{
    (void)err;
    struct mem_store *self = mem_of(store);
    for (size_t i = items_count(self); i > 0; i--) {
        struct item *item = items_of(self)[i - 1];
        if (record_window_over(&item->record, now_ms)) {
            counts_add(&self->head, item, -1);
            enum status status = item_set(self, &item->record.key.hash, NULL);
            ASSERT(status == OK);
            mem_free(self->mem, item);
        }
    }
    return OK;
}

static enum status mem_close(struct store *store, struct err *err)
{
    (void)err;
    struct mem_store *self = mem_of(store);
    for (size_t i = 0; i < items_count(self); i++) {
        mem_free(self->mem, items_of(self)[i]);
    }
    entries_cut(self, 0);
    bodies_cut(self, 0);
    buf_release(&self->items);
    buf_release(&self->entries);
    buf_release(&self->bodies);
    buf_release(&self->undo);
    mem_wipe(&self->identity, sizeof self->identity);
    mem_free(self->mem, self);
    return OK;
}

static const struct store_ops mem_ops = {
    .name = "mem",
    .load = mem_load,
    .find = mem_find,
    .body = mem_body,
    .commit = mem_commit,
    .flush = mem_flush,
    .fences = mem_fences,
    .scan = mem_scan,
    .due = mem_due,
    .entries = mem_entries,
    .head = mem_head,
    .identity = mem_identity,
    .maintain = mem_maintain,
    .close = mem_close,
};

enum status store_mem_new(const struct mem *mem, const struct store_identity *identity,
    struct store **ret_store, struct err *err)
{
    struct mem_store *self = mem_zalloc(mem, 1, sizeof *self);
    if (self == NULL) {
        return err_set(err, E_NOMEM, "out of memory for a store");
    }
    enum status status = OK;
    if (identity != NULL) {
        self->identity = *identity;
    } else {
        status = rand_bytes(&self->identity, sizeof self->identity, err);
    }
    if (status != OK) {
        mem_free(mem, self);
        return status;
    }
    self->store.ops = &mem_ops;
    self->mem = mem;
    buf_init(&self->items, mem, SIZE_MAX / 2);
    buf_init(&self->entries, mem, SIZE_MAX / 2);
    buf_init(&self->bodies, mem, SIZE_MAX / 2);
    buf_init(&self->undo, mem, SIZE_MAX / 2);
    *ret_store = &self->store;
    return OK;
}
