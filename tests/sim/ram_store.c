#include "ram_store.h"

#include <stdio.h>

#include "base/check.h"
#include "prng.h"

enum {
    RAM_RECORDS_MAX = 256,          /* keys of one run */
    RAM_RECORD_BYTES_MAX = 8 << 10, /* encoded; the simulation's names are short */
};

#define RAM_DISK_BYTES_MAX ((size_t)256 << 20)

/* One change as it is on the disk. */
struct ram_change {
    enum decision_change kind;
    struct digest hash;   /* of the key; not for none */
    struct slice encoded; /* the record, for put */
    struct slice bodies[2];
    struct digest digests[2];
    struct entry entry;
};

/* One commit, or the removal of one expired record. */
struct ram_item {
    struct ram_change *changes;
    size_t count;
    struct store_moment moment;
    bool forget; /* the record of changes[0].hash is gone */
};

struct ram_record {
    struct digest hash;
    struct slice encoded; /* empty: gone */
    struct record record; /* what it says; read once, since a store is asked much more often */
};

struct ram_store {
    struct store store;
    struct ram_disk *disk;
    struct ram_record records[RAM_RECORDS_MAX];
    size_t count;
    struct store_head head;
    uint64_t fence; /* given out in this process */
};

static struct ram_store *ram_of(struct store *store)
{
    return (struct ram_store *)store;
}

void ram_disk_init(struct ram_disk *disk, uint64_t seed)
{
    struct prng prng = {seed};
    *disk = (struct ram_disk){0};
    arena_init(&disk->arena, &mem_libc, RAM_DISK_BYTES_MAX);
    prng_fill(&prng, &disk->identity, sizeof disk->identity);
}

void ram_disk_release(struct ram_disk *disk)
{
    mem_free(&mem_libc, disk->items);
    arena_release(&disk->arena);
}

size_t ram_disk_unflushed(const struct ram_disk *disk)
{
    return disk->count - disk->flushed;
}

void ram_disk_crash(struct ram_disk *disk, size_t kept)
{
    ASSERT(disk->flushed + kept <= disk->count);
    disk->count = disk->flushed + kept;
    disk->flushed = disk->count;
}

uint64_t ram_disk_durable_seq(const struct ram_disk *disk)
{
    uint64_t seq = 0;
    for (size_t i = 0; i < disk->flushed; i++) {
        for (size_t j = 0; j < disk->items[i].count; j++) {
            const struct entry *entry = &disk->items[i].changes[j].entry;
            seq = entry->kind == ENTRY_EVIDENCE ? entry->seq : seq;
        }
    }
    return seq;
}

static void blame(struct ram_disk *disk, const char *fault)
{
    if (disk->fault[0] == '\0') {
        (void)snprintf(disk->fault, sizeof disk->fault, "%s", fault);
    }
}

static struct slice keep(struct ram_disk *disk, struct slice bytes)
{
    struct slice copy;
    ASSERT(arena_copy(&disk->arena, bytes, &copy) == OK);
    return copy;
}

static struct ram_record *record_of(struct ram_store *ram, const struct digest *hash)
{
    for (size_t i = 0; i < ram->count; i++) {
        if (memcmp(&ram->records[i].hash, hash, sizeof *hash) == 0) {
            return &ram->records[i];
        }
    }
    return NULL;
}

static struct record decoded(struct slice encoded)
{
    struct record record;
    struct err err = {0};
    enum status status = record_decode(encoded, &record, &err);
    ASSERT(status == OK);
    return record;
}

static struct slice encoded(struct ram_disk *disk, const struct record *record)
{
    struct buf buf;
    buf_init(&buf, &mem_libc, RAM_RECORD_BYTES_MAX);
    record_encode(record, &buf);
    ASSERT(buf_status(&buf) == OK);
    struct slice bytes = keep(disk, buf_view(&buf));
    buf_release(&buf);
    return bytes;
}

/* ---- Folding. ---- */

static void count_status(struct ram_store *ram, const struct ram_record *at, bool more)
{
    if (at->encoded.len == 0) {
        return;
    }
    uint64_t by = more ? 1 : UINT64_MAX;
    ram->head.records += at->record.kind == RECORD_OPERATION ? by : 0;
    ram->head.sources += at->record.kind == RECORD_SOURCE ? by : 0;
    ram->head.in_progress += at->record.status == RECORD_IN_PROGRESS ? by : 0;
    ram->head.unknown += at->record.status == RECORD_UNKNOWN ? by : 0;
}

static struct ram_record *set_record(
    struct ram_store *ram, const struct digest *hash, struct slice bytes)
{
    struct ram_record *record = record_of(ram, hash);
    if (record == NULL) {
        ASSERT(ram->count < RAM_RECORDS_MAX);
        record = &ram->records[ram->count++];
        *record = (struct ram_record){.hash = *hash};
    }
    count_status(ram, record, false);
    record->encoded = bytes;
    if (bytes.len > 0) {
        record->record = decoded(bytes);
    }
    count_status(ram, record, true);
    return record;
}

static void fold_change(struct ram_store *ram, const struct ram_change *change)
{
    if (change->kind != CHANGE_NONE) {
        uint64_t fence = set_record(ram, &change->hash, change->encoded)->record.fence;
        ram->head.fence = fence > ram->head.fence ? fence : ram->head.fence;
    }
    if (change->entry.kind == ENTRY_EVIDENCE) {
        ram->head.seq = change->entry.seq;
        ram->head.hash = change->entry.hash;
    }
}

static void fold(struct ram_store *ram, const struct ram_item *item)
{
    if (item->forget) {
        (void)set_record(ram, &item->changes[0].hash, SLICE_EMPTY);
        return;
    }
    for (size_t i = 0; i < item->count; i++) {
        fold_change(ram, &item->changes[i]);
    }
    ram->head.moment = item->moment;
}

static void append(struct ram_store *ram, struct ram_item item)
{
    struct ram_disk *disk = ram->disk;
    if (disk->count == disk->room) {
        disk->room = disk->room == 0 ? 256 : 2 * disk->room;
        disk->items = mem_resize(&mem_libc, disk->items, disk->room * sizeof *disk->items);
        ASSERT(disk->items != NULL);
    }
    disk->items[disk->count++] = item;
    fold(ram, &item);
}

/* ---- The operations. ---- */

static enum status ram_load(struct store *store, const struct digest *hashes, size_t count,
    struct arena *arena, const struct record **ret_records, struct err *err)
{
    struct ram_store *ram = ram_of(store);
    for (size_t i = 0; i < count; i++) {
        struct ram_record *at = record_of(ram, &hashes[i]);
        ret_records[i] = NULL;
        if (at != NULL && at->encoded.len > 0) {
            struct record *record = arena_alloc(arena, sizeof *record);
            if (record == NULL || record_copy(&at->record, arena, record) != OK) {
                return err_set(err, E_NOMEM, "out of memory");
            }
            ret_records[i] = record;
        }
    }
    return OK;
}

static enum status ram_find(struct store *store, const struct op_id *id, struct arena *arena,
    const struct record **ret_record, struct err *err)
{
    struct ram_store *ram = ram_of(store);
    *ret_record = NULL;
    for (size_t i = 0; i < ram->count; i++) {
        if (ram->records[i].encoded.len > 0) {
            struct record record = ram->records[i].record;
            if (record.kind == RECORD_OPERATION && op_id_equal(&record.operation_id, id)) {
                return ram_load(store, &ram->records[i].hash, 1, arena, ret_record, err);
            }
        }
    }
    return OK;
}

static enum status ram_body(struct store *store, const struct body_ref *body, struct arena *arena,
    struct slice *ret_bytes, struct err *err)
{
    const struct ram_disk *disk = ram_of(store)->disk;
    for (size_t i = disk->count; i-- > 0;) {
        for (size_t j = 0; j < 2 * disk->items[i].count; j++) {
            const struct ram_change *change = &disk->items[i].changes[j / 2];
            if (change->bodies[j % 2].len == body->bytes &&
                memcmp(&change->digests[j % 2], &body->digest, sizeof body->digest) == 0) {
                return arena_copy(arena, change->bodies[j % 2], ret_bytes);
            }
        }
    }
    return err_set(err, E_CORRUPT, "there is no body with that digest");
}

/* What a store would take on trust, and a test does not. */
static void audit_change(struct ram_store *ram, const struct change *change, uint64_t seq,
    const struct digest *last_hash, uint64_t fence_before)
{
    struct digest hash;
    if (change->entry.seq != seq) {
        blame(ram->disk, "P10: evidence is not dense");
    }
    digest_sha256_2(last_hash->bytes, sizeof last_hash->bytes, change->entry.bytes.data,
        change->entry.bytes.len, &hash);
    if (memcmp(&hash, &change->entry.hash, sizeof hash) != 0) {
        blame(ram->disk, "P10: evidence is not chained");
    }
    if (change->kind == CHANGE_PUT) {
        struct ram_record *at = record_of(ram, &change->record->key.hash);
        uint64_t fence = 0;
        if (at != NULL && at->encoded.len > 0) {
            fence = at->record.fence;
        }
        if (change->record->fence != fence && change->record->fence <= fence_before) {
            blame(ram->disk, "P4: a fence was given twice");
        }
    }
}

static bool is_stale(struct ram_store *ram, const struct change *change)
{
    if (change->kind == CHANGE_NONE) {
        return false;
    }
    struct ram_record *at = record_of(ram, &change->record->key.hash);
    uint64_t version = 0;
    if (at != NULL && at->encoded.len > 0) {
        version = at->record.version;
    }
    return version != change->version_expected;
}

static struct ram_change kept_change(struct ram_store *ram, const struct change *change)
{
    struct ram_disk *disk = ram->disk;
    struct ram_change kept = {.kind = change->kind, .entry = change->entry};
    kept.entry.bytes = keep(disk, change->entry.bytes);
    if (change->kind == CHANGE_PUT) {
        kept.hash = change->record->key.hash;
        kept.encoded = encoded(disk, change->record);
        kept.bodies[0] = keep(disk, change->request_body);
        kept.bodies[1] = keep(disk, change->outcome_body);
        kept.digests[0] = change->record->request.digest;
        kept.digests[1] = change->record->outcome.body.digest;
    } else if (change->kind == CHANGE_TOUCH) {
        kept.hash = change->record->key.hash;
        struct record record = record_of(ram, &kept.hash)->record;
        record.duplicates++;
        kept.encoded = encoded(disk, &record);
    }
    return kept;
}

/* Within a commit later changes build on earlier ones, so each is folded before the next is kept;
 * a stale one takes the earlier ones back by folding the disk anew. */
static void refold(struct ram_store *ram);

static enum status ram_commit(struct store *store, const struct commit *commit, struct err *err)
{
    struct ram_store *ram = ram_of(store);
    struct ram_item item = {.count = commit->count, .moment = commit->moment};
    item.changes = arena_zalloc(&ram->disk->arena, commit->count * sizeof *item.changes);
    ASSERT(item.changes != NULL);
    if (commit->moment.time_ms < ram->head.moment.time_ms) {
        blame(ram->disk, "P8: time went back");
    }
    for (size_t i = 0; i < commit->count; i++) {
        const struct change *change = &commit->changes[i];
        if (is_stale(ram, change)) {
            refold(ram);
            return err_set(err, E_STALE, "another version is stored");
        }
        if (change->entry.kind == ENTRY_EVIDENCE) {
            audit_change(ram, change, ram->head.seq + 1, &ram->head.hash, ram->head.fence);
        }
        item.changes[i] = kept_change(ram, change);
        fold_change(ram, &item.changes[i]);
    }
    append(ram, item);
    return OK;
}

static enum status ram_flush(struct store *store, struct err *err)
{
    (void)err;
    ram_of(store)->disk->flushed = ram_of(store)->disk->count;
    return OK;
}

static enum status ram_fences(
    struct store *store, uint64_t count, uint64_t *ret_first, struct err *err)
{
    (void)err;
    struct ram_store *ram = ram_of(store);
    *ret_first = ram->fence + 1;
    ram->fence += count;
    return OK;
}

static bool scan_wants(const struct scan *scan, const struct record *record)
{
    return record->kind == RECORD_OPERATION &&
           (scan->status == 0 || scan->status == record->status) &&
           (scan->tenant.len == 0 || slice_equal(scan->tenant, record->key.tenant));
}

/* In no order and in one go: the simulation asks for everything at once. */
static enum status ram_scan(struct store *store, const struct scan *scan, struct arena *arena,
    const struct record **ret_records, size_t *ret_count, struct err *err)
{
    struct ram_store *ram = ram_of(store);
    size_t count = 0;
    for (size_t i = 0; i < ram->count && count < scan->limit; i++) {
        if (ram->records[i].encoded.len > 0) {
            struct record record = ram->records[i].record;
            if (scan_wants(scan, &record)) {
                enum status status =
                    ram_load(store, &ram->records[i].hash, 1, arena, &ret_records[count], err);
                if (status != OK) {
                    return status;
                }
                count++;
            }
        }
    }
    *ret_count = count;
    return OK;
}

static enum status ram_due(struct store *store, int64_t now_ms, struct op_id *ret_ids, size_t limit,
    size_t *ret_count, struct err *err)
{
    (void)err;
    struct ram_store *ram = ram_of(store);
    size_t count = 0;
    for (size_t i = 0; i < ram->count && count < limit; i++) {
        if (ram->records[i].encoded.len > 0) {
            struct record record = ram->records[i].record;
            if (record.status == RECORD_IN_PROGRESS && record.lease_expires_ms <= now_ms) {
                ret_ids[count++] = record.operation_id;
            }
        }
    }
    *ret_count = count;
    return OK;
}

static enum status ram_entries(struct store *store, const struct entry_range *range,
    entry_visit visit, void *context, struct err *err)
{
    (void)err;
    const struct ram_disk *disk = ram_of(store)->disk;
    for (size_t i = 0; i < disk->count; i++) {
        for (size_t j = 0; j < disk->items[i].count; j++) {
            const struct entry *entry = &disk->items[i].changes[j].entry;
            if (entry->bytes.len > 0 && entry->seq > range->after_seq && !visit(context, entry)) {
                return OK;
            }
        }
    }
    return OK;
}

static void ram_head(struct store *store, struct store_head *ret_head)
{
    *ret_head = ram_of(store)->head;
    /* Given out counts, whether or not it was used yet. */
    ret_head->fence = ram_of(store)->fence;
}

static void ram_identity(struct store *store, struct store_identity *ret_identity)
{
    *ret_identity = ram_of(store)->disk->identity;
}

static enum status ram_maintain(struct store *store, int64_t now_ms, struct err *err)
{
    (void)err;
    struct ram_store *ram = ram_of(store);
    for (size_t i = 0; i < ram->count; i++) {
        if (ram->records[i].encoded.len > 0) {
            struct record record = ram->records[i].record;
            if (record_window_over(&record, now_ms)) {
                struct ram_item item = {.forget = true, .count = 1};
                item.changes = arena_zalloc(&ram->disk->arena, sizeof *item.changes);
                ASSERT(item.changes != NULL);
                item.changes[0].hash = ram->records[i].hash;
                append(ram, item);
                return OK;
            }
        }
    }
    return OK;
}

static enum status ram_close(struct store *store, struct err *err)
{
    (void)err;
    mem_free(&mem_libc, store);
    return OK;
}

static const struct store_ops ram_ops = {
    .name = "ram",
    .load = ram_load,
    .find = ram_find,
    .body = ram_body,
    .commit = ram_commit,
    .flush = ram_flush,
    .fences = ram_fences,
    .scan = ram_scan,
    .due = ram_due,
    .entries = ram_entries,
    .head = ram_head,
    .identity = ram_identity,
    .maintain = ram_maintain,
    .close = ram_close,
};

static void refold(struct ram_store *ram)
{
    ram->count = 0;
    ram->head = (struct store_head){0};
    for (size_t i = 0; i < ram->disk->count; i++) {
        fold(ram, &ram->disk->items[i]);
    }
}

enum status ram_store_open(struct ram_disk *disk, struct store **ret_store, struct err *err)
{
    struct ram_store *ram = mem_zalloc(&mem_libc, 1, sizeof *ram);
    if (ram == NULL) {
        return err_set(err, E_NOMEM, "out of memory");
    }
    ram->store.ops = &ram_ops;
    ram->disk = disk;
    refold(ram);
    /* Fences of commits that were lost are given again: nobody was told about them. */
    ram->fence = ram->head.fence;
    *ret_store = &ram->store;
    return OK;
}
