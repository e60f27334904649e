/*
 * past 800 lines because the whole store, with the crashes that tests need, is in this file; its
 * readers are in mem_reader.c.
 */
#include "store/mem.h"

#include <inttypes.h>
#include <string.h>

#include "base/check.h"
#include "base/limits.h"
#include "base/macros.h"
#include "base/rand.h"
#include "core/source.h"
#include "store/mem_impl.h"

static struct mem_handle *handle_of(struct store *store)
{
    return CONTAINER_OF(store, struct mem_handle, store);
}

struct store_mem_hub *mem_lock(struct store_mem_hub *hub)
{
    (void)pthread_mutex_lock(&hub->mutex);
    return hub;
}

void mem_unlock(struct store_mem_hub *hub)
{
    (void)pthread_mutex_unlock(&hub->mutex);
}

static struct mem_chain *chains_of(const struct store_mem_hub *hub)
{
    return (struct mem_chain *)(void *)hub->chains.data;
}

static size_t chains_count(const struct store_mem_hub *hub)
{
    return hub->chains.len / sizeof(struct mem_chain);
}

static struct mem_chain *own_chain(const struct mem_handle *handle)
{
    ASSERT(handle->chain < chains_count(handle->hub));
    return &chains_of(handle->hub)[handle->chain];
}

/* Where a handle's chain ends, with the time of the last commit. With the mutex. */
static struct store_head head_of(const struct mem_handle *handle)
{
    struct store_head head = own_chain(handle)->head;
    head.moment = handle->hub->moment;
    return head;
}

static struct item **items_of(const struct store_mem_hub *self)
{
    return (struct item **)(void *)self->items.data;
}

static size_t items_count(const struct store_mem_hub *self)
{
    return self->items.len / sizeof(struct item *);
}

struct store_counts mem_counts_of(const struct store_mem_hub *self, unsigned kinds)
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
static size_t items_search(const struct store_mem_hub *self, const struct digest *hash)
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

static struct item *item_get(const struct store_mem_hub *self, const struct digest *hash)
{
    size_t at = items_search(self, hash);
    if (at == items_count(self)) {
        return NULL;
    }
    struct item *item = items_of(self)[at];
    return memcmp(&item->record.key.hash, hash, sizeof *hash) == 0 ? item : NULL;
}

enum status mem_item_set(struct store_mem_hub *self, const struct digest *hash, struct item *item)
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

static struct item *item_new(struct store_mem_hub *self, const struct record *record)
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

static enum status record_read(
    const struct item *item, struct arena *arena, const struct record **ret_record, struct err *err)
{
    struct record *copy = arena_alloc(arena, sizeof *copy);
    if (copy == NULL || record_copy(&item->record, arena, copy) != OK) {
        return err_set(err, E_NOMEM, "out of memory for a record");
    }
    *ret_record = copy;
    return OK;
}

static struct item *item_find(
    const struct store_mem_hub *self, const struct op_id *id, unsigned kinds)
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

static enum status body_read(struct store_mem_hub *self, const struct body_ref *body,
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

static enum status bodies_read(
    struct store_mem_hub *self, struct store_want *want, int64_t now_ms, struct err *err)
{
    struct want_choice choice = want_choose(want, now_ms);
    const struct record *record = want->record;
    enum status status = OK;
    if (choice.outcome) {
        status = body_read(self, &record->outcome.body, want, &want->outcome, err);
    }
    if (status == OK && choice.request) {
        status = body_read(self, &record->request, want, &want->request, err);
    }
    return status;
}

static enum status source_read(
    struct store_mem_hub *self, struct store_want *want, struct arena *arena, struct err *err)
{
    const struct record *record = want->record;
    if (!want->source || !source_ordered(&record->source)) {
        return OK;
    }
    enum status status = source_key_seal(&record->key, &record->source, &want->source_key, err);
    const struct item *item = status == OK ? item_get(self, &want->source_key.hash) : NULL;
    return item == NULL ? status : record_read(item, arena, &want->source_record, err);
}

static enum status want_read(struct store_mem_hub *self, struct store_want *want,
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
        status = item == NULL ? OK : record_read(item, batch->arena, &want->record, err);
    }
    if (status == OK && want->record != NULL) {
        status = source_read(self, want, batch->arena, err);
    }
    if (status == OK && want->record != NULL) {
        status = bodies_read(self, want, batch->now_ms, err);
    }
    return status;
}

/* Sets the batch's time. With the mutex. */
struct store_moment mem_time_set(struct store_mem_hub *self, struct store_batch *batch)
{
    struct store_moment now = store_clock_now(&self->clock);
    batch->now_ms = now.time_ms;
    batch->clock_held = self->clock.held;
    return now;
}

enum status mem_batch_read(struct store_mem_hub *self, struct store_batch *batch, struct err *err)
{
    batch->counts = mem_counts_of(self, STORE_KINDS_ASKED);
    batch->fence_first = self->fence + 1;
    enum status status = OK;
    for (size_t i = 0; i < batch->count && status == OK; i++) {
        status = want_read(self, &batch->wants[i], batch, err);
    }
    return status;
}

static void mem_abort(struct store *store)
{
    struct mem_handle *handle = handle_of(store);
    ASSERT(handle->prepared);
    handle->prepared = false;
}

static void tally_item(struct store_mem_hub *self, const struct item *item, bool more)
{
    if (item != NULL) {
        store_tally_add(&self->tally, item->record.kind, item->record.status, more);
    }
}

static enum status body_keep(
    struct store_mem_hub *self, struct slice bytes, struct body_ref *body, struct err *err)
{
    if (bytes.len == 0) {
        return OK;
    }
    if (!body->retained || body->bytes != bytes.len) {
        return err_set(
            err, E_MISUSE, "a body of length %zu does not belong to its record", bytes.len);
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

/* Makes the item of the new record. */
static enum status change_item(struct store_mem_hub *self, const struct change *change,
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
    struct store_mem_hub *self, const struct change *change, struct err *err)
{
    const struct digest *hash = change_key(change);
    if (hash == NULL) {
        return OK;
    }
    struct item *found = item_get(self, hash);
    if ((found == NULL ? 0 : found->record.version) != change->version_expected) {
        return err_set(err, E_STALE, "the record has changed since it was loaded");
    }
    if (change->kind == CHANGE_NONE) {
        return OK;
    }
    struct item *item = NULL;
    enum status status = change_item(self, change, found, &item, err);
    if (status != OK) {
        return status;
    }
    struct mem_undo undo = {.before = found, .after = item};
    buf_append(&self->undo, &undo, sizeof undo);
    if (buf_status(&self->undo) == OK && mem_item_set(self, hash, item) == OK) {
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

static enum status change_entry(
    struct mem_handle *handle, const struct entry *entry, struct err *err)
{
    struct store_mem_hub *self = handle->hub;
    struct mem_chain *chain = own_chain(handle);
    if (entry->bytes.len == 0) {
        return OK;
    }
    if (entry->kind == ENTRY_EVIDENCE && entry->seq != chain->head.seq + 1) {
        return err_set(err, E_MISUSE, "entry %" PRIu64 " does not follow %" PRIu64, entry->seq,
            chain->head.seq);
    }
    size_t bytes = entry->bytes.len;
    struct kept_entry kept = {.entry = *entry,
        .before = chain->head.hash,
        .bytes = mem_alloc(self->mem, bytes + entry->tenant.len)};
    if (kept.bytes == NULL) {
        return err_set(err, E_NOMEM, "out of memory for an entry");
    }
    memcpy(kept.bytes, entry->bytes.data, bytes);
    if (entry->tenant.len > 0) {
        memcpy(kept.bytes + bytes, entry->tenant.data, entry->tenant.len);
    }
    memcpy(kept.entry.chain_id, chain->known.chain_id, sizeof kept.entry.chain_id);
    kept.entry.bytes = slice_of(kept.bytes, bytes);
    kept.entry.tenant = slice_of(kept.bytes + bytes, entry->tenant.len);
    buf_append(&self->entries, &kept, sizeof kept);
    if (buf_status(&self->entries) != OK) {
        self->entries.status = OK;
        mem_free(self->mem, kept.bytes);
        return err_set(err, E_NOMEM, "out of memory for an entry");
    }
    if (entry->kind == ENTRY_EVIDENCE) {
        chain->head.seq = entry->seq;
        chain->head.hash = entry->hash;
    }
    return OK;
}

static void bodies_cut(struct store_mem_hub *self, size_t len)
{
    const struct slice *bodies = (const struct slice *)(const void *)self->bodies.data;
    ASSERT(len <= self->bodies.len);
    for (size_t i = len / sizeof *bodies; i < self->bodies.len / sizeof *bodies; i++) {
        mem_free(self->mem, (char *)(uintptr_t)bodies[i].data);
    }
    self->bodies.len = len;
}

static void entries_cut(struct store_mem_hub *self, size_t len)
{
    const struct kept_entry *kept = (const struct kept_entry *)(const void *)self->entries.data;
    ASSERT(len <= self->entries.len);
    for (size_t i = len / sizeof *kept; i < self->entries.len / sizeof *kept; i++) {
        mem_free(self->mem, kept[i].bytes);
    }
    self->entries.len = len;
}

/* Undoes everything since a unit began, the last change first. */
static void unit_undo(struct store_mem_hub *self, const struct mem_unit *unit)
{
    const struct mem_undo *undone = (const struct mem_undo *)(const void *)self->undo.data;
    ASSERT(unit->undo <= self->undo.len);
    for (size_t i = self->undo.len / sizeof *undone; i > unit->undo / sizeof *undone; i--) {
        const struct mem_undo *undo = &undone[i - 1];
        const struct item *there = undo->after == NULL ? undo->before : undo->after;
        enum status status = mem_item_set(self, &there->record.key.hash, undo->before);
        ASSERT(status == OK); /* there is room: an item was there before */
        mem_free(self->mem, undo->after);
    }
    self->undo.len = unit->undo;
    self->undo.status = OK;
    entries_cut(self, unit->entries);
    bodies_cut(self, unit->bodies);
    chains_of(self)[unit->chain].head = unit->head;
    self->moment = unit->head.moment;
    self->tally = unit->tally;
}

/* Remembers the store's state before it changes. With the mutex. */
static enum status unit_begin(struct mem_handle *handle, struct mem_unit *ret_unit)
{
    struct store_mem_hub *self = handle->hub;
    *ret_unit = (struct mem_unit){.chain = handle->chain,
        .head = head_of(handle),
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

/* Every change is checked, so that all stale ones are reported. */
static enum status commit_apply(
    struct mem_handle *handle, const struct commit *commit, struct err *err)
{
    struct store_mem_hub *self = handle->hub;
    bool stale = false;
    enum status status = OK;
    for (size_t i = 0; i < commit->count && status == OK; i++) {
        const struct change *change = &commit->changes[i];
        status = change_record(self, change, err);
        if (commit->ret_stale != NULL) {
            commit->ret_stale[i] = status == E_STALE;
        }
        stale = stale || status == E_STALE;
        status = status == E_STALE ? OK : status;
        if (status == OK) {
            status = change_entry(handle, &change->entry, err);
        }
    }
    return status == OK && stale ? err_set(err, E_STALE, "a record has changed since it was read")
                                 : status;
}

/* Erases a body that its record no longer has. */
static void body_drop(
    struct store_mem_hub *self, const struct body_ref *before, const struct body_ref *now)
{
    struct slice *bodies = (struct slice *)(void *)self->bodies.data;
    bool stays = now != NULL && now->retained && now->place == before->place;
    if (!before->retained || before->place == 0 || stays) {
        return;
    }
    ASSERT(before->place <= self->bodies.len / sizeof *bodies);
    struct slice *body = &bodies[before->place - 1];
    if (body->len > 0) {
        mem_wipe((char *)(uintptr_t)body->data, body->len);
        mem_free(self->mem, (char *)(uintptr_t)body->data);
        *body = SLICE_EMPTY;
    }
}

/* Nothing can be undone any more: frees the replaced items, and erases bodies that are in no record
 * any more (R10). With the mutex. */
static void units_end(struct store_mem_hub *self)
{
    const struct mem_undo *undone = (const struct mem_undo *)(const void *)self->undo.data;
    for (size_t i = 0; i < self->undo.len / sizeof *undone; i++) {
        struct item *before = undone[i].before;
        if (before != NULL) {
            const struct item *now = item_get(self, &before->record.key.hash);
            body_drop(self, &before->record.request, now == NULL ? NULL : &now->record.request);
            body_drop(
                self, &before->record.outcome.body, now == NULL ? NULL : &now->record.outcome.body);
        }
        mem_free(self->mem, before);
    }
    buf_clear(&self->undo);
    buf_clear(&self->units);
}

/* ---- commits under way (S14, S15) ---- */

/* The first commit under way has happened: it can no longer be undone. With the mutex. */
static void unit_keep(struct store_mem_hub *self)
{
    struct mem_unit *units = (struct mem_unit *)(void *)self->units.data;
    struct mem_undo *undone = (struct mem_undo *)(void *)self->undo.data;
    size_t count = self->units.len / sizeof *units;
    size_t end = count > 1 ? units[1].undo : self->undo.len;
    for (size_t i = 0; i < end / sizeof *undone; i++) {
        mem_free(self->mem, undone[i].before);
    }
    memmove(self->undo.data, self->undo.data + end, self->undo.len - end);
    self->undo.len -= end;
    memmove(units, units + 1, (count - 1) * sizeof *units);
    self->units.len -= sizeof *units;
    for (size_t i = 0; i + 1 < count; i++) {
        units[i].undo -= end;
    }
}

/* Decides what becomes of the first commit under way. With the mutex. */
static void settle_first(struct store_mem_hub *self)
{
    struct mem_handle *handle = self->under_way;
    size_t count = self->units.len / sizeof(struct mem_unit);
    ASSERT(handle != NULL && count > 0 && handle->settled + count == handle->numbers);
    if (self->fate(self->fate_context, &handle->store, handle->settled + 1) == OK) {
        unit_keep(self);
        handle->settled++;
        handle->failed <<= 1;
    } else {
        unit_undo(self, (const struct mem_unit *)(const void *)self->units.data);
        self->units.len = 0;
        handle->settled = handle->numbers;
        handle->failed = handle->failed << count | ((UINT64_C(1) << count) - 1);
        handle->doomed = handle->prepared;
    }
    self->under_way = self->units.len > 0 ? handle : NULL;
}

static void settle_all(struct store_mem_hub *self)
{
    while (self->under_way != NULL) {
        settle_first(self);
    }
}

/* Takes the mutex for somebody who must not see what is under way. Returns its argument. */
static struct store_mem_hub *mem_lock_settled(struct store_mem_hub *hub)
{
    settle_all(mem_lock(hub));
    return hub;
}

static enum status mem_settle(struct store *store, uint64_t number, struct err *err)
{
    struct mem_handle *handle = handle_of(store);
    struct store_mem_hub *self = mem_lock(handle->hub);
    ASSERT(number > 0 && number <= handle->numbers);
    while (handle->settled < number) {
        settle_first(self);
    }
    ASSERT(handle->settled - number < LIMIT_SETTLED_MAX);
    bool failed = (handle->failed >> (handle->settled - number) & 1) != 0;
    mem_unlock(self);
    return failed ? err_set(err, E_UNAVAILABLE, "the commit did not happen") : OK;
}

/* The commit that was just made is under way. At most two are: what becomes of the one before is
 * decided now. With the mutex. */
static enum status commit_defer(
    struct mem_handle *handle, const struct commit *commit, struct err *err)
{
    struct store_mem_hub *self = handle->hub;
    ASSERT(self->under_way == NULL || self->under_way == handle);
    self->under_way = handle;
    uint64_t number = ++handle->numbers;
    if (self->units.len > sizeof(struct mem_unit)) {
        settle_first(self);
    }
    if (handle->settled >= number) {
        return err_set(err, E_UNAVAILABLE, "the commit before did not happen");
    }
    *commit->ret_number = number;
    return OK;
}

/* Reports settled records to the other handles (S13). With the mutex, so that none of them is
 * closed during the call. */
static void announce(const struct mem_handle *handle, const struct commit *commit)
{
    for (size_t i = 0; i < commit->count; i++) {
        const struct change *change = &commit->changes[i];
        if (change->kind != CHANGE_PUT || change->record->status == RECORD_IN_PROGRESS) {
            continue;
        }
        for (struct mem_handle *other = handle->hub->handles; other != NULL; other = other->next) {
            if (other != handle && other->notice != NULL) {
                other->notice(other->context, &change->record->key.hash);
            }
        }
    }
}

/* Makes a commit durable at once: a server's memory outlives the process (S2, S9). */
static void commit_share(struct mem_handle *handle, const struct commit *commit)
{
    if (handle->hub->many) {
        units_end(handle->hub);
        announce(handle, commit);
    }
}

static bool is_deferred(const struct mem_handle *handle, const struct commit *commit)
{
    return handle->hub->fate != NULL && commit->ret_number != NULL;
}

/* Whether a batch was prepared too long ago (S10). With the mutex. */
static bool is_late(struct mem_handle *handle)
{
    struct store_mem_hub *self = handle->hub;
    return self->many &&
           store_clock_now(&self->clock).time_ms - handle->now.time_ms > LIMIT_PREPARED_MS_MAX;
}

static enum status commit_all(
    struct mem_handle *handle, const struct commit *commit, struct err *err)
{
    struct store_mem_hub *self = handle->hub;
    struct mem_unit unit;
    if (is_late(handle)) {
        return err_set(err, E_UNAVAILABLE,
            "the commit came later than prepared_ms_max (%d) after its prepare",
            LIMIT_PREPARED_MS_MAX);
    }
    if (self->under_way != handle || !is_deferred(handle, commit)) {
        settle_all(self);
    }
    if (handle->doomed) {
        return err_set(err, E_UNAVAILABLE, "an earlier commit did not happen");
    }
    enum status status = unit_begin(handle, &unit);
    if (status != OK) {
        return err_set(err, status, "out of memory for a commit");
    }
    status = commit_apply(handle, commit, err);
    if (status != OK) {
        unit_undo(self, &unit);
        self->units.len -= sizeof unit;
        return status;
    }
    if (handle->now.time_ms >= self->moment.time_ms) {
        self->moment = handle->now; /* a different handle may have prepared later (S8) */
    }
    self->fence = self->fence < commit->fence_floor ? commit->fence_floor : self->fence;
    if (is_deferred(handle, commit)) {
        announce(handle, commit); /* early, which does no harm: others settle it first */
        return commit_defer(handle, commit, err);
    }
    commit_share(handle, commit);
    return OK;
}

static enum status mem_read(struct store *store, struct store_batch *batch, struct err *err)
{
    struct mem_handle *handle = handle_of(store);
    ASSERT(!handle->prepared);
    struct store_mem_hub *self = mem_lock_settled(handle->hub);
    handle->now = mem_time_set(self, batch);
    enum status status = mem_batch_read(self, batch, err);
    mem_unlock(self);
    return status;
}

static enum status mem_prepare(struct store *store, struct store_batch *batch, struct err *err)
{
    struct mem_handle *handle = handle_of(store);
    ASSERT(!handle->prepared);
    struct store_mem_hub *self = mem_lock(handle->hub);
    if (self->under_way != handle) {
        settle_all(self);
    }
    handle->doomed = false;
    handle->now = mem_time_set(self, batch);
    enum status status = mem_batch_read(self, batch, err);
    if (status == OK) {
        ASSERT(self->fence < UINT64_MAX - batch->fences); /* P4 */
        self->fence += batch->fences;
        handle->prepared = true;
    }
    mem_unlock(self);
    return status;
}

static enum status mem_commit(struct store *store, const struct commit *commit, struct err *err)
{
    struct mem_handle *handle = handle_of(store);
    ASSERT(handle->prepared);
    (void)mem_lock(handle->hub);
    enum status status = commit_all(handle, commit, err);
    handle->prepared = handle->doomed = false;
    mem_unlock(handle->hub);
    return status;
}

static enum status mem_flush(struct store *store, struct err *err)
{
    (void)err;
    struct store_mem_hub *self = mem_lock(handle_of(store)->hub);
    if (self->under_way == NULL) { /* settle is the flush of these */
        units_end(self);
    }
    mem_unlock(self);
    return OK;
}

enum status mem_scan_read(const struct store_mem_hub *self, const struct scan *scan,
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
            enum status status = record_read(item, arena, &ret_records[count], err);
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
    struct store_mem_hub *self = mem_lock_settled(handle_of(store)->hub);
    enum status status = mem_scan_read(self, scan, arena, ret_records, ret_count, err);
    mem_unlock(self);
    return status;
}

/* Whether a holder no longer beats (S12). With the mutex. */
static bool holder_gone(const struct mem_handle *handle, uint64_t holder, int64_t now_ms)
{
    const struct store_mem_hub *self = handle->hub;
    bool gone = true;
    for (size_t i = 0; i < chains_count(self) && gone; i++) {
        const struct store_chain *chain = &chains_of(self)[i].known;
        bool beats = !chain->ended && now_ms - chain->seen_ms < LIMIT_HOLDER_GONE_MS;
        gone = chain->incarnation != holder || (!beats && i != handle->chain);
    }
    return gone;
}

static bool due_wanted(const struct mem_handle *handle, const struct store_due_filter *filter,
    const struct record *record, int64_t now_ms)
{
    if (!store_kind_in(filter->kinds, record->kind)) {
        return false;
    }
    return filter->held ? record->holder != 0 &&
                              (!handle->hub->many || holder_gone(handle, record->holder, now_ms))
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

/* The first record due at that time, after the cursor; NULL: none. */
static const struct record *due_after(
    const struct mem_handle *handle, const struct store_due_filter *filter, int64_t until_ms)
{
    const struct store_mem_hub *self = handle->hub;
    const struct record *first = NULL;
    struct store_due_cursor first_at = {0};
    for (size_t i = 0; i < items_count(self); i++) {
        const struct record *record = &items_of(self)[i]->record;
        struct store_due_cursor at = cursor_at(record);
        if (due_wanted(handle, filter, record, until_ms) && store_due_before(filter->cursor, &at) &&
            (first == NULL || store_due_before(&at, &first_at))) {
            first = record;
            first_at = at;
        }
    }
    return first;
}

static size_t due_read(const struct mem_handle *handle, const struct store_due_filter *filter,
    struct store_due *ret_dues, size_t limit, int64_t now_ms)
{
    const struct store_mem_hub *self = handle->hub;
    int64_t until_ms = now_ms - (self->many ? LIMIT_PREPARED_MS_MAX : 0) - 1;
    size_t count = 0;
    for (const struct record *next = NULL; filter->cursor != NULL && count < limit;) {
        next = due_after(handle, filter, until_ms);
        if (next == NULL) {
            break;
        }
        *filter->cursor = cursor_at(next);
        ret_dues[count++] = store_due_of(next);
    }
    for (size_t i = 0; filter->cursor == NULL && i < items_count(self) && count < limit; i++) {
        const struct record *record = &items_of(self)[i]->record;
        if (due_wanted(handle, filter, record, now_ms)) {
            ret_dues[count++] = store_due_of(record);
        }
    }
    ASSERT(count <= limit);
    return count;
}

static enum status mem_due(struct store *store, const struct store_due_filter *filter,
    struct store_due *ret_dues, size_t limit, size_t *ret_count, struct err *err)
{
    (void)err;
    struct store_mem_hub *self = mem_lock_settled(handle_of(store)->hub);
    int64_t now_ms = store_clock_now(&self->clock).time_ms;
    *ret_count = due_read(handle_of(store), filter, ret_dues, limit, now_ms);
    mem_unlock(self);
    return OK;
}

static enum status mem_counts(
    struct store *store, unsigned kinds, struct store_counts *ret_counts, struct err *err)
{
    (void)err;
    struct store_mem_hub *self = mem_lock_settled(handle_of(store)->hub);
    *ret_counts = mem_counts_of(self, kinds);
    mem_unlock(self);
    return OK;
}

/* The index of the first entry after a cursor. If older evidence was cut, the first entry left. */
static enum status entries_after(const struct store_mem_hub *self,
    const struct entry_cursor *cursor, size_t *ret_at, struct err *err)
{
    static const struct entry_cursor start = {{0}, 0};
    const struct kept_entry *kept = (const struct kept_entry *)(const void *)self->entries.data;
    bool known = memcmp(cursor, &start, sizeof start) == 0;
    for (size_t i = 0; i < chains_count(self) && !known; i++) {
        known = memcmp(chains_of(self)[i].known.chain_id, cursor->chain_id, 16) == 0;
    }
    if (!known) {
        return err_set(err, E_INVALID, "the cursor belongs to a different chain of evidence");
    }
    size_t at = cursor->seq == 0 ? 0 : self->entries.len / sizeof *kept;
    while (at > 0 && (kept[at - 1].entry.seq > cursor->seq ||
                         memcmp(kept[at - 1].entry.chain_id, cursor->chain_id, 16) != 0)) {
        at--;
    }
    *ret_at = at;
    return OK;
}

/* A place is the index of the next entry + 1. */
enum status mem_entries_read(const struct store_mem_hub *self, const struct entry_range *range,
    entry_visit visit, void *context, struct err *err)
{
    const struct kept_entry *kept = (const struct kept_entry *)(const void *)self->entries.data;
    struct entry_pace unpaced = {.bytes_max = SIZE_MAX};
    struct entry_pace *pace = range->pace == NULL ? &unpaced : range->pace;
    size_t count = self->entries.len / sizeof *kept;
    size_t at = pace->place == 0 ? 0 : (size_t)pace->place - 1;
    size_t bytes = 0;
    bool stopped = false;
    if (pace->place == 0) {
        enum status status = entries_after(self, &range->after, &at, err);
        if (status != OK) {
            return status;
        }
        pace->at = range->after;
    }
    if (pace->at.seq == 0) { /* it names a chain even if no entry was passed */
        memcpy(pace->at.chain_id, chains_of(self)[0].known.chain_id, sizeof pace->at.chain_id);
    }
    for (; at < count && !stopped && bytes < pace->bytes_max; at++) {
        const struct entry *entry = &kept[at].entry;
        bool is_evidence = entry->kind == ENTRY_EVIDENCE;
        bytes += entry->bytes.len;
        pace->hash = kept[at].before;
        stopped = (range->pace == NULL || is_evidence) && entry_match(range, entry) &&
                  !visit(context, entry);
        if (is_evidence) {
            memcpy(pace->at.chain_id, entry->chain_id, sizeof entry->chain_id);
            pace->at.seq = entry->seq;
        }
    }
    pace->place = at + 1;
    pace->done = at == count && !stopped;
    return OK;
}

static enum status mem_entries(struct store *store, const struct entry_range *range,
    entry_visit visit, void *context, struct err *err)
{
    struct store_mem_hub *self = mem_lock_settled(handle_of(store)->hub);
    enum status status = mem_entries_read(self, range, visit, context, err);
    mem_unlock(self);
    return status;
}

static void mem_head(struct store *store, struct store_head *ret_head)
{
    struct store_mem_hub *self = mem_lock(handle_of(store)->hub);
    *ret_head = head_of(handle_of(store));
    mem_unlock(self);
}

struct store_head mem_durable_head(const struct mem_handle *handle)
{
    const struct store_mem_hub *self = handle->hub;
    const struct mem_unit *units = (const struct mem_unit *)(const void *)self->units.data;
    ASSERT(!self->many || self->units.len == 0 || self->under_way != NULL);
    bool undone = self->units.len > 0 && units[0].chain == handle->chain;
    return undone ? units[0].head : head_of(handle);
}

void mem_identity_read(const struct mem_handle *handle, struct store_identity *ret_identity,
    struct store_shared *ret_shared)
{
    if (ret_identity != NULL) {
        *ret_identity = handle->identity;
    }
    if (ret_shared != NULL) {
        *ret_shared = handle->hub->shared;
    }
}

static void mem_identity(
    struct store *store, struct store_identity *ret_identity, struct store_shared *ret_shared)
{
    mem_identity_read(handle_of(store), ret_identity, ret_shared);
}

/* ---- several handles ----------------------------------------------------------------------- */

static enum status mem_beat(struct store *store, uint64_t incarnation, struct err *err)
{
    (void)err;
    ASSERT(incarnation > 0);
    struct store_mem_hub *self = mem_lock(handle_of(store)->hub);
    struct store_chain *chain = &own_chain(handle_of(store))->known;
    chain->incarnation = incarnation;
    chain->seen_ms = store_clock_now(&self->clock).time_ms;
    mem_unlock(self);
    return OK;
}

static void mem_listen(struct store *store, store_notice notice, void *context)
{
    struct mem_handle *handle = handle_of(store);
    (void)mem_lock(handle->hub);
    ASSERT(handle->notice == NULL);
    handle->notice = notice;
    handle->context = context;
    mem_unlock(handle->hub);
}

static enum status mem_chains(
    struct store *store, store_chain_visit visit, void *context, struct err *err)
{
    (void)err;
    struct store_mem_hub *self = mem_lock_settled(handle_of(store)->hub);
    bool more = true;
    for (size_t i = 0; i < chains_count(self) && more; i++) {
        more = visit(context, &chains_of(self)[i].known);
    }
    mem_unlock(self);
    return OK;
}

/* ---- the rest ------------------------------------------------------------------------------ */

/* Forgets a record. E_NOMEM: it stays for now. With the mutex. */
static enum status item_forget(struct store_mem_hub *self, struct item *item)
{
    struct mem_undo undo = {.before = item};
    buf_append(&self->undo, &undo, sizeof undo);
    enum status status = buf_status(&self->undo);
    self->undo.status = OK;
    if (status == OK) {
        tally_item(self, item, false);
        status = mem_item_set(self, &item->record.key.hash, NULL);
        ASSERT(status == OK);
    }
    return status;
}

/* Forgetting is committed together with its time: a restart that undoes the time also restores the
 * records (P8). */
static enum status mem_maintain(struct store *store, struct err *err)
{
    (void)err;
    struct mem_handle *handle = handle_of(store);
    struct mem_unit unit;
    ASSERT(!handle->prepared);
    struct store_mem_hub *self = mem_lock_settled(handle->hub);
    struct store_moment now = store_clock_now(&self->clock);
    enum status status = unit_begin(handle, &unit);
    for (size_t i = items_count(self); i > 0 && status == OK; i--) {
        struct item *item = items_of(self)[i - 1];
        if (record_window_over(&item->record, now.time_ms)) {
            status = item_forget(self, item);
        }
    }
    if (self->undo.len > unit.undo) {
        self->moment = now;
    } else if (status == OK) {
        self->units.len -= sizeof unit;
    }
    commit_share(handle, &(struct commit){.count = 0});
    mem_unlock(self);
    return OK;
}

/* Frees the handle, and the memory of a store that is not shared. */
static void handle_free(struct mem_handle *handle)
{
    struct store_mem_hub *self = mem_lock_settled(handle->hub);
    struct mem_handle **at = &self->handles;
    while (*at != handle) {
        ASSERT(*at != NULL);
        at = &(*at)->next;
    }
    ASSERT(handle->readers == 0); /* they would read freed memory */
    *at = handle->next;
    mem_unlock(self);
    mem_wipe(&handle->identity, sizeof handle->identity);
    mem_free(self->mem, handle);
    if (!self->many) {
        store_mem_hub_free(self);
    }
}

static enum status mem_close(struct store *store, struct err *err)
{
    (void)err;
    struct mem_handle *handle = handle_of(store);
    (void)mem_lock_settled(handle->hub);
    own_chain(handle)->known.ended = true;
    mem_unlock(handle->hub);
    handle_free(handle);
    return OK;
}

void store_mem_kill(struct store *store)
{
    ASSERT(store->ops->shared && store->ops->close == mem_close);
    handle_free(handle_of(store));
}

void store_mem_hub_free(struct store_mem_hub *self)
{
    if (self == NULL) {
        return;
    }
    ASSERT(self->handles == NULL);
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
    buf_release(&self->chains);
    (void)pthread_mutex_destroy(&self->mutex);
    mem_wipe(&self->shared, sizeof self->shared);
    mem_free(self->mem, self);
}

static const struct store_housekeeping mem_housekeeping = {.maintain = mem_maintain};

/* What both tables have. */
#define MEM_OPS                                                                                    \
    .prepare = mem_prepare, .commit = mem_commit, .abort = mem_abort, .flush = mem_flush,          \
    .read = mem_read, .scan = mem_scan, .due = mem_due, .entries = mem_entries,                    \
    .counts = mem_counts, .head = mem_head, .identity = mem_identity, .close = mem_close,          \
    .housekeeping = &mem_housekeeping, .open_reader = mem_open_reader

static const struct store_ops mem_ops = {.name = "mem", MEM_OPS};

static const struct store_ops hub_ops = {.name = "mem hub",
    .shared = true,
    .settle = mem_settle,
    .beat = mem_beat,
    .listen = mem_listen,
    .chains = mem_chains,
    MEM_OPS};

size_t store_mem_unflushed(struct store *store)
{
    ASSERT(store->ops == &mem_ops);
    struct store_mem_hub *self = mem_lock(handle_of(store)->hub);
    size_t count = self->units.len / sizeof(struct mem_unit);
    mem_unlock(self);
    return count;
}

uint64_t store_mem_durable_seq(struct store *store)
{
    ASSERT(store->ops == &mem_ops);
    struct store_mem_hub *self = mem_lock(handle_of(store)->hub);
    uint64_t seq = mem_durable_head(handle_of(store)).seq;
    mem_unlock(self);
    return seq;
}

void store_mem_restart(struct store *store, size_t kept)
{
    ASSERT(store->ops == &mem_ops);
    struct store_mem_hub *self = mem_lock(handle_of(store)->hub);
    const struct mem_unit *units = (const struct mem_unit *)(const void *)self->units.data;
    if (kept < self->units.len / sizeof *units) {
        unit_undo(self, &units[kept]);
        self->fence = units[kept].fence;
    }
    units_end(self);
    handle_of(store)->prepared = false;
    store_clock_init(&self->clock, self->clock.clock, &self->moment);
    mem_unlock(self);
}

/* ---- opening ------------------------------------------------------------------------------- */

enum status store_mem_hub_new(const struct store_options *options,
    const struct store_shared *shared, struct store_mem_hub **ret_hub, struct err *err)
{
    const struct mem *mem = options->mem == NULL ? &mem_libc : options->mem;
    struct store_mem_hub *self = mem_zalloc(mem, 1, sizeof *self);
    if (self == NULL) {
        return err_set(err, E_NOMEM, "out of memory for a store");
    }
    if (shared != NULL) {
        self->shared = *shared;
    } else if (rand_bytes(&self->shared, sizeof self->shared, err) != OK) {
        mem_free(mem, self);
        return E_UNAVAILABLE;
    }
    self->mem = mem;
    self->many = true;
    clock_system(&self->system);
    store_clock_init(
        &self->clock, options->clock == NULL ? &self->system : options->clock, &self->moment);
    (void)pthread_mutex_init(&self->mutex, NULL);
    buf_init(&self->items, mem, SIZE_MAX / 2);
    buf_init(&self->entries, mem, SIZE_MAX / 2);
    buf_init(&self->bodies, mem, SIZE_MAX / 2);
    buf_init(&self->undo, mem, SIZE_MAX / 2);
    buf_init(&self->units, mem, SIZE_MAX / 2);
    buf_init(&self->chains, mem, SIZE_MAX / 2);
    *ret_hub = self;
    return OK;
}

void store_mem_hub_defer(struct store_mem_hub *hub, store_mem_fate fate, void *context)
{
    ASSERT(hub->many && hub->handles == NULL);
    hub->fate = fate;
    hub->fate_context = context;
}

/* A new chain for a handle. With the mutex. */
static enum status chain_begin(struct mem_handle *handle, struct err *err)
{
    struct store_mem_hub *self = handle->hub;
    struct mem_chain chain = {.known = {.started_ms = store_clock_now(&self->clock).time_ms}};
    memcpy(chain.known.chain_id, handle->identity.chain_id, sizeof chain.known.chain_id);
    enum status status = store_identity_public(&handle->identity, chain.known.public_key, err);
    if (status != OK) {
        return status;
    }
    handle->chain = chains_count(self);
    buf_append(&self->chains, &chain, sizeof chain);
    status = buf_status(&self->chains);
    self->chains.status = OK;
    return status == OK ? OK : err_set(err, status, "out of memory for a chain of evidence");
}

enum status store_mem_hub_open(struct store_mem_hub *hub, const struct store_identity *identity,
    struct store **ret_store, struct err *err)
{
    struct mem_handle *handle = mem_zalloc(hub->mem, 1, sizeof *handle);
    if (handle == NULL) {
        return err_set(err, E_NOMEM, "out of memory for a store");
    }
    *handle = (struct mem_handle){.store = {hub->many ? &hub_ops : &mem_ops}, .hub = hub};
    enum status status = OK;
    if (identity != NULL) {
        handle->identity = *identity;
    } else {
        status = store_identity_make(&handle->identity, err);
    }
    (void)mem_lock(hub);
    status = status == OK ? chain_begin(handle, err) : status;
    if (status == OK) {
        handle->next = hub->handles;
        hub->handles = handle;
        *ret_store = &handle->store;
    }
    mem_unlock(hub);
    if (status != OK) {
        mem_wipe(&handle->identity, sizeof handle->identity);
        mem_free(hub->mem, handle);
    }
    return status;
}

enum status store_mem_new(const struct store_options *options,
    const struct store_mem_secrets *secrets, struct store **ret_store, struct err *err)
{
    struct store_mem_hub *hub = NULL;
    enum status status =
        store_mem_hub_new(options, secrets == NULL ? NULL : &secrets->shared, &hub, err);
    if (status != OK) {
        return status;
    }
    hub->many = false;
    status = store_mem_hub_open(hub, secrets == NULL ? NULL : &secrets->identity, ret_store, err);
    if (status != OK) {
        store_mem_hub_free(hub);
    }
    return status;
}
