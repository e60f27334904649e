#include "engine/look.h"

#include <string.h>

#include "base/check.h"
#include "base/limits.h"

/*
 * What one turn may cost. A turn is made of steps and ends with the first of: a step's end past
 * TURN_NANOS, or TURN_STEPS of them. So it is short on a slow disk and bounded by count on any.
 */
enum {
    TURN_NANOS = 300000, /* with the step that is under way then: well below a millisecond */
    TURN_STEPS = 16,     /* also where the clock is coarse */
    STEP_LOOKS = 8192,   /* keys looked at in the index: some tens of microseconds */
    STEP_READS = 32,     /* records read and decoded: likewise when they are cached */
    STEP_ENTRY_BYTES = 64 << 10,  /* of evidence: some hundred entries, likewise */
    ENTRY_BYTES_USUAL = 64 << 10, /* more than any entry has: a page with less room is full */
};

/* Between two turns, in the call's arena: whoever gives a look up has nothing to free. */
struct progress {
    bool begun;    /* the first turn only puts it behind those that wait */
    bool finished; /* a batch that is decided again may read again: what was found stays */
    struct scan_pace scan_pace;
    struct entry_pace entry_pace;
    struct entry_range range;
    size_t limit;     /* of the page */
    size_t bytes;     /* of entries in it */
    enum status kept; /* E_NOMEM: an entry could not be kept */
};

static struct look *look_of(struct engine_call *call)
{
    return (struct look *)(void *)call;
}

/* The engine looks at call->err only, so a read that fails must always have said so there. */
static enum status said(enum status status, struct err *err)
{
    if (status != OK && err->status == OK) {
        return err_set(
            err, status, "%s", status == E_NOMEM ? "out of memory" : status_name(status));
    }
    return status;
}

/* ---- one operation ------------------------------------------------------------------------- */

static enum status read_body(struct store *store, struct look *look, const struct body_ref *body,
    struct slice *ret_bytes, struct err *err)
{
    if (!body->retained || body->bytes == 0) {
        return OK;
    }
    return store->ops->body(store, body, look->call.arena, ret_bytes, err);
}

static enum status read_operation(struct store *store, struct look *look, struct err *err)
{
    static const struct op_id none = {{0}};
    const struct record *record = NULL;
    enum status status =
        op_id_equal(&look->operation_id, &none)
            ? store->ops->load(store, &look->key.hash, 1, look->call.arena, &record, err)
            : store->ops->find(store, &look->operation_id, look->call.arena, &record, err);
    /* P9: another tenant's operation is no operation. Nor is one past its window. */
    if (status != OK || record == NULL || !slice_equal(record->key.tenant, look->tenant) ||
        record_window_over(record, look->call.now_ms)) {
        return status;
    }
    status = read_body(store, look, &record->outcome.body, &look->outcome_body, err);
    if (status == OK) {
        status = read_body(store, look, &record->request, &look->request_body, err);
    }
    look->record = status == OK ? record : NULL;
    return status;
}

/* ---- pages of operations ------------------------------------------------------------------- */

/* *ret_done: the page is full, or that was all. */
static enum status step_records(
    struct store *store, struct look *look, bool *ret_done, struct err *err)
{
    struct progress *progress = look->progress;
    struct scan_pace *pace = &progress->scan_pace;
    size_t count = 0;
    *pace = (struct scan_pace){.looks_max = STEP_LOOKS, .reads_max = STEP_READS};
    look->scan.limit = progress->limit - look->count;
    look->scan.now_ms = look->call.now_ms; /* past its window is as absent */
    enum status status = store->ops->scan(
        store, &look->scan, look->call.arena, look->records + look->count, &count, err);
    if (status != OK) {
        return status;
    }
    look->count += count;
    look->scan.after = pace->after;
    look->after = pace->after;
    look->has_more = !pace->done;
    *ret_done = pace->done || look->count == progress->limit;
    return OK;
}

static enum status begin_records(struct look *look)
{
    struct progress *progress = look->progress;
    progress->limit = look->scan.limit;
    look->scan.tenant = look->tenant; /* P9: whatever the filter says */
    look->scan.pace = &progress->scan_pace;
    look->records = arena_alloc(look->call.arena, progress->limit * sizeof(struct record *));
    return look->records == NULL ? E_NOMEM : OK;
}

/* ---- pages of evidence --------------------------------------------------------------------- */

/* Keep an entry for the page; false when the page is full, or memory is. */
static bool keep_entry(void *context, const struct entry *entry)
{
    struct look *look = context;
    struct progress *progress = look->progress;
    ASSERT(slice_equal(entry->tenant, look->tenant)); /* P9: the range asked for no other */
    struct look_entry *kept = &look->entries[look->count];
    *kept = (struct look_entry){.entry = *entry, .prev_hash = progress->entry_pace.hash};
    kept->entry.tenant = look->tenant;
    progress->kept = arena_copy(look->call.arena, entry->bytes, &kept->entry.bytes);
    if (progress->kept != OK) {
        return false;
    }
    look->count++;
    progress->bytes += entry->bytes.len;
    return look->count < progress->limit &&
           progress->bytes + ENTRY_BYTES_USUAL <= LIMIT_PAGE_BYTES_MAX;
}

static enum status step_entries(
    struct store *store, struct look *look, bool *ret_done, struct err *err)
{
    struct progress *progress = look->progress;
    struct entry_pace *pace = &progress->entry_pace;
    size_t count = look->count;
    enum status status = store->ops->entries(store, &progress->range, keep_entry, look, err);
    if (status == OK) {
        status = progress->kept;
    }
    bool full =
        look->count > count && (look->count == progress->limit ||
                                   progress->bytes + ENTRY_BYTES_USUAL > LIMIT_PAGE_BYTES_MAX);
    look->next_seq = pace->seq > look->after_seq ? pace->seq : look->after_seq;
    look->has_more = !pace->done;
    *ret_done = pace->done || full;
    return status;
}

/* Evidence of an operation cannot be older than the operation, which spares reading what is. */
static enum status entries_since(struct store *store, struct look *look, struct err *err)
{
    struct progress *progress = look->progress;
    const struct record *record = NULL;
    enum status status =
        store->ops->find(store, &look->operation_id, look->call.arena, &record, err);
    if (status == OK && record != NULL && slice_equal(record->key.tenant, look->tenant)) {
        progress->range.from_ms = record->created_ms;
    }
    return status;
}

static enum status begin_entries(struct store *store, struct look *look, struct err *err)
{
    static const struct op_id none = {{0}};
    struct progress *progress = look->progress;
    progress->limit = look->limit;
    progress->entry_pace.bytes_max = STEP_ENTRY_BYTES;
    progress->range = (struct entry_range){
        .tenant = look->tenant, .after_seq = look->after_seq, .pace = &progress->entry_pace};
    look->entries = arena_alloc(look->call.arena, progress->limit * sizeof *look->entries);
    enum status status = look->entries == NULL ? E_NOMEM : OK;
    if (status == OK && !op_id_equal(&look->operation_id, &none)) {
        progress->range.operation_id = &look->operation_id;
        status = entries_since(store, look, err);
    }
    return status;
}

/* ---- turns --------------------------------------------------------------------------------- */

static enum status begin_page(struct store *store, struct look *look, struct err *err)
{
    struct progress *progress = look->progress;
    progress->begun = true;
    return look->kind == LOOK_RECORDS ? begin_records(look) : begin_entries(store, look, err);
}

/* Steps until the turn is over or the page is. */
static enum status turn_page(
    struct store *store, struct look *look, bool *ret_done, struct err *err)
{
    uint64_t started = clock_nanos();
    enum status status = OK;
    for (int i = 0; i < TURN_STEPS && status == OK && !*ret_done; i++) {
        status = look->kind == LOOK_RECORDS ? step_records(store, look, ret_done, err)
                                            : step_entries(store, look, ret_done, err);
        if (clock_nanos() - started >= TURN_NANOS) {
            break;
        }
    }
    return status;
}

/*
 * The first turn of a page does nothing but line up: however many looks are in one batch, only one
 * of those that go on is run with each batch.
 */
static enum status read_page(struct store *store, struct look *look, struct err *err)
{
    struct progress *progress = look->progress;
    bool done = false;
    enum status status = OK;
    if (!progress->begun) {
        status = begin_page(store, look, err);
    } else if (!progress->finished) {
        status = turn_page(store, look, &done, err);
        progress->finished = done;
    }
    look->call.read_again = status == OK && !progress->finished;
    if (progress->finished) {
        store->ops->head(store, &look->head);
    }
    return status;
}

static enum status look_read(struct store *store, struct engine_call *call, struct err *err)
{
    struct look *look = look_of(call);
    if (look->kind == LOOK_OPERATION) {
        store->ops->head(store, &look->head);
        return said(read_operation(store, look, err), err);
    }
    return said(read_page(store, look, err), err);
}

/* ---- the interface ------------------------------------------------------------------------- */

static enum status look_start(struct look *look, struct err *err)
{
    bool page = look->kind != LOOK_OPERATION;
    size_t limit = look->kind == LOOK_RECORDS ? look->scan.limit : look->limit;
    size_t limit_max = look->kind == LOOK_RECORDS ? LIMIT_PAGE_RECORDS_MAX : LIMIT_PAGE_ENTRIES_MAX;
    ASSERT(look->call.arena != NULL);
    ASSERT(look->tenant.len > 0); /* P9 */
    if (page && (limit == 0 || limit > limit_max)) {
        return err_set(err, E_INVALID, "limit is %zu and must be from 1 to %zu", limit, limit_max);
    }
    look->record = NULL;
    look->outcome_body = SLICE_EMPTY;
    look->request_body = SLICE_EMPTY;
    look->count = 0;
    look->has_more = false;
    look->after = look->scan.after;
    look->next_seq = look->after_seq;
    look->call.read = look_read;
    look->progress = arena_zalloc(look->call.arena, sizeof(struct progress));
    return look->progress == NULL ? err_set(err, E_NOMEM, "out of memory") : OK;
}

enum status look_submit(struct engine *engine, struct look *look, struct err *err)
{
    enum status status = look_start(look, err);
    return status == OK ? engine_submit(engine, &look->call, err) : status;
}

enum status look_do(struct engine *engine, struct look *look)
{
    err_clear(&look->call.err);
    enum status status = look_start(look, &look->call.err);
    return status == OK ? engine_do(engine, &look->call) : status;
}

enum status look_at(struct store *store, struct look *look)
{
    struct store_head head;
    store->ops->head(store, &head);
    err_clear(&look->call.err);
    look->call.now_ms = head.moment.time_ms;
    enum status status = look_start(look, &look->call.err);
    do {
        look->call.read_again = false;
        if (status == OK) {
            status = look_read(store, &look->call, &look->call.err);
        }
    } while (status == OK && look->call.read_again);
    return status;
}
