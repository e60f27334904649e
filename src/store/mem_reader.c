/* Readers of the store in memory: each call sees the store as a crash would leave it now. */
#include "base/check.h"
#include "base/macros.h"
#include "store/mem_impl.h"

/* Reads flushed data, beside the thread of its handle. */
struct mem_reader {
    struct store store;
    struct mem_handle *handle;
};

static struct mem_handle *reader_of(struct store *store)
{
    return CONTAINER_OF(store, struct mem_reader, store)->handle;
}

/* Undoes the changes that are not flushed, the last one first. */
static enum status view_undo(const struct store_mem_hub *self, struct store_mem_hub *view)
{
    const struct mem_undo *undone = (const struct mem_undo *)(const void *)self->undo.data;
    enum status status = OK;
    for (size_t i = self->undo.len / sizeof *undone; i > 0 && status == OK; i--) {
        struct item *before = undone[i - 1].before;
        const struct item *named = before != NULL ? before : undone[i - 1].after;
        ASSERT(named != NULL); /* a change has a record before it or after it */
        status = mem_item_set(view, &named->record.key.hash, before);
    }
    return status;
}

/* The store as a crash would leave it now: only flushed data (P2). The list is its own; the items
 * belong to the store. Takes the mutex, which stays held until view_end. */
static enum status view_begin(
    struct store_mem_hub *self, struct store_mem_hub *ret_view, struct err *err)
{
    (void)mem_lock(self);
    *ret_view = (struct store_mem_hub){.mem = self->mem,
        .chains = self->chains,
        .tally = self->tally,
        .fence = self->fence,
        .entries = self->entries,
        .bodies = self->bodies};
    if (self->units.len > 0) {
        const struct mem_unit *unit = (const struct mem_unit *)(const void *)self->units.data;
        ASSERT(unit->undo == 0); /* the first unflushed commit begins the list */
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

static void view_end(struct store_mem_hub *self, struct store_mem_hub *view)
{
    mem_unlock(self);
    buf_release(&view->items);
}

static enum status reader_read(struct store *store, struct store_batch *batch, struct err *err)
{
    struct store_mem_hub *self = reader_of(store)->hub;
    struct store_mem_hub view;
    enum status status = view_begin(self, &view, err);
    if (status == OK) {
        (void)mem_time_set(self, batch);
        status = mem_batch_read(&view, batch, err);
    }
    view_end(self, &view);
    return status;
}

static enum status reader_scan(struct store *store, const struct scan *scan, struct arena *arena,
    const struct record **ret_records, size_t *ret_count, struct err *err)
{
    struct store_mem_hub *self = reader_of(store)->hub;
    struct store_mem_hub view;
    enum status status = view_begin(self, &view, err);
    if (status == OK) {
        status = mem_scan_read(&view, scan, arena, ret_records, ret_count, err);
    }
    view_end(self, &view);
    return status;
}

static enum status reader_entries(struct store *store, const struct entry_range *range,
    entry_visit visit, void *context, struct err *err)
{
    struct store_mem_hub *self = reader_of(store)->hub;
    struct store_mem_hub view;
    enum status status = view_begin(self, &view, err);
    if (status == OK) {
        status = mem_entries_read(&view, range, visit, context, err);
    }
    view_end(self, &view);
    return status;
}

static enum status reader_counts(
    struct store *store, unsigned kinds, struct store_counts *ret_counts, struct err *err)
{
    struct store_mem_hub *self = reader_of(store)->hub;
    struct store_mem_hub view;
    enum status status = view_begin(self, &view, err);
    if (status == OK) {
        *ret_counts = mem_counts_of(&view, kinds);
    }
    view_end(self, &view);
    return status;
}

static void reader_head(struct store *store, struct store_head *ret_head)
{
    struct store_mem_hub *self = mem_lock(reader_of(store)->hub);
    *ret_head = mem_durable_head(reader_of(store));
    mem_unlock(self);
}

static void reader_identity(
    struct store *store, struct store_identity *ret_identity, struct store_shared *ret_shared)
{
    mem_identity_read(reader_of(store), ret_identity, ret_shared);
}

static enum status reader_close(struct store *store, struct err *err)
{
    (void)err;
    struct store_mem_hub *self = mem_lock(reader_of(store)->hub);
    ASSERT(reader_of(store)->readers > 0);
    reader_of(store)->readers--;
    mem_unlock(self);
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

enum status mem_open_reader(struct store *store, struct store **ret_reader, struct err *err)
{
    struct mem_handle *handle = CONTAINER_OF(store, struct mem_handle, store);
    struct store_mem_hub *self = handle->hub;
    struct mem_reader *reader = mem_zalloc(self->mem, 1, sizeof *reader);
    if (reader == NULL) {
        return err_set(err, E_NOMEM, "out of memory for a reader");
    }
    *reader = (struct mem_reader){.store = {&reader_ops}, .handle = handle};
    (void)mem_lock(self);
    handle->readers++;
    mem_unlock(self);
    *ret_reader = &reader->store;
    return OK;
}
