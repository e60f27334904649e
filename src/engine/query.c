#include "engine/query.h"

#include <string.h>

#include "base/check.h"
#include "base/limits.h"

/*
 * The cost of one turn. A turn consists of steps and ends with the first step that ends after
 * TURN_NANOS, or after TURN_STEPS steps. So it is short on a slow disk and bounded on any disk.
 */
enum {
    TURN_NANOS = 300000,          /* plus the last step: well below a millisecond */
    TURN_STEPS = 16,              /* also where the clock is coarse */
    STEP_LOOKS = 8192,            /* keys visited in the index: some tens of microseconds */
    STEP_READS = 32,              /* records read and decoded: the same, if they are cached */
    STEP_READS_SHARED = 1024,     /* of a shared store: its server compares them, on a connection of
                                     the reader's own. Each step visits the keys up to STEP_LOOKS
                                     anew, so small steps would make a list quadratic */
    STEP_ENTRY_BYTES = 64 << 10,  /* of evidence: some hundred entries, the same */
    ENTRY_BYTES_USUAL = 64 << 10, /* more than any entry has: a page with less room is full */
};

/* The state between two turns, in the call's arena: a cancelled query has nothing to free. */
struct progress {
    bool begun;    /* the first turn only puts it after waiting calls */
    bool finished; /* done: a batch that is decided again must not read again */
    struct scan_pace scan_pace;
    struct entry_pace entry_pace;
    struct entry_range range;
    size_t limit;     /* of the page */
    size_t bytes;     /* of entries in it */
    size_t read;      /* bytes of evidence read for it, about */
    enum status kept; /* E_NOMEM: an entry did not fit into the arena */
};

static struct query *query_of(struct engine_call *call)
{
    ASSERT(call->query != NULL && call == &call->query->call);
    return call->query;
}

/* The engine reads only call->err, so every failed read must set it. */
static enum status with_error(enum status status, struct err *err)
{
    if (status != OK && err->status == OK) {
        return err_set(
            err, status, "%s", status == E_NOMEM ? "out of memory" : status_name(status));
    }
    return status;
}

/* ---- one operation ------------------------------------------------------------------------- */

static enum status read_operation(struct store *reader, struct query *query, struct err *err)
{
    static const struct op_id none = {{0}};
    bool by_key = op_id_equal(&query->operation_id, &none);
    struct store_want want = {.key = by_key ? &query->key.hash : NULL,
        .id = &query->operation_id,
        .kinds = query->kinds == 0 ? STORE_OPERATIONS : query->kinds,
        .bodies = WANT_OUTCOME | WANT_REQUEST,
        .tenant = query->tenant,
        .arena = query->call.arena};
    struct store_batch batch = {.wants = &want, .count = 1, .arena = query->call.arena};
    enum status status = reader->ops->read(reader, &batch, err);
    query->call.now_ms = batch.now_ms;
    /* P9: a different tenant's operation is absent, and so is one past its window. */
    if (status != OK || want.record == NULL ||
        (!query->any_tenant && !slice_equal(want.record->key.tenant, query->tenant)) ||
        record_window_over(want.record, query->call.now_ms)) {
        return status;
    }
    if (want.body_status != OK) {
        return want.body_status;
    }
    query->record = want.record;
    query->outcome_body = want.outcome;
    query->request_body = want.request;
    return OK;
}

/* ---- pages of operations ------------------------------------------------------------------- */

/* *ret_done: the page is full, or that was all. */
static enum status step_records(
    struct store *reader, struct query *query, bool *ret_done, struct err *err)
{
    struct progress *progress = query->progress;
    struct scan_pace *pace = &progress->scan_pace;
    size_t count = 0;
    *pace = (struct scan_pace){
        .looks_max = STEP_LOOKS, .reads_max = reader->ops->shared ? STEP_READS_SHARED : STEP_READS};
    query->scan.limit = progress->limit - query->count;
    query->scan.now_ms = query->call.now_ms; /* past its window is the same as absent */
    enum status status = reader->ops->scan(
        reader, &query->scan, query->call.arena, query->records + query->count, &count, err);
    if (status != OK) {
        return status;
    }
    query->count += count;
    query->scan.after = pace->after;
    query->after = pace->after;
    query->has_more = !pace->done;
    *ret_done = pace->done || query->count == progress->limit;
    return OK;
}

static enum status begin_records(struct query *query)
{
    struct progress *progress = query->progress;
    progress->limit = query->scan.limit;
    /* P9: the filter cannot override it. */
    query->scan.tenant = query->any_tenant ? SLICE_EMPTY : query->tenant;
    query->scan.kinds = query->scan.kinds == 0 ? STORE_OPERATIONS : query->scan.kinds;
    query->scan.pace = &progress->scan_pace;
    query->records = arena_alloc(query->call.arena, progress->limit * sizeof(struct record *));
    return query->records == NULL ? E_NOMEM : OK;
}

/* ---- pages of evidence --------------------------------------------------------------------- */

/* Keeps an entry for the page; false: the page or the memory is full. */
static bool keep_entry(void *context, const struct entry *entry)
{
    struct query *query = context;
    struct progress *progress = query->progress;
    /* P9: the range excludes other tenants. */
    ASSERT(query->any_tenant || slice_equal(entry->tenant, query->tenant));
    struct query_entry *kept = &query->entries[query->count];
    *kept = (struct query_entry){.entry = *entry, .prev_hash = progress->entry_pace.hash};
    kept->entry.tenant = query->tenant;
    progress->kept = arena_copy(query->call.arena, entry->bytes, &kept->entry.bytes);
    if (progress->kept == OK && query->any_tenant) {
        progress->kept = arena_copy(query->call.arena, entry->tenant, &kept->entry.tenant);
    }
    if (progress->kept != OK) {
        return false;
    }
    query->count++;
    progress->bytes += entry->bytes.len;
    return query->count < progress->limit &&
           progress->bytes + ENTRY_BYTES_USUAL <= LIMIT_PAGE_BYTES_MAX;
}

/* A reading may begin before its cursor in the chain; a cursor may be past the chain's end. */
static struct entry_cursor later_of(const struct entry_cursor *given, const struct entry_cursor *at)
{
    bool one_chain = memcmp(given->chain_id, at->chain_id, sizeof at->chain_id) == 0;
    return one_chain && given->seq > at->seq ? *given : *at;
}

static enum status step_entries(
    struct store *reader, struct query *query, bool *ret_done, struct err *err)
{
    struct progress *progress = query->progress;
    struct entry_pace *pace = &progress->entry_pace;
    size_t count = query->count;
    enum status status = reader->ops->entries(reader, &progress->range, keep_entry, query, err);
    if (status == OK) {
        status = progress->kept;
    }
    bool full =
        query->count > count && (query->count == progress->limit ||
                                    progress->bytes + ENTRY_BYTES_USUAL > LIMIT_PAGE_BYTES_MAX);
    query->next_entry = later_of(&query->after_entry, &pace->at);
    query->has_more = !pace->done;
    progress->read += pace->bytes_max;
    bool is_spent = query->read_max > 0 && progress->read >= query->read_max;
    *ret_done = pace->done || full || is_spent;
    return status;
}

/* Evidence of an operation is not older than the operation, so older entries are not read. */
static enum status entries_since(struct store *reader, struct query *query, struct err *err)
{
    struct progress *progress = query->progress;
    struct store_want want = {.id = &query->operation_id, .kinds = STORE_KINDS_ASKED};
    struct store_batch batch = {.wants = &want, .count = 1, .arena = query->call.arena};
    enum status status = reader->ops->read(reader, &batch, err);
    if (status == OK && want.record != NULL &&
        (query->any_tenant || slice_equal(want.record->key.tenant, query->tenant))) {
        progress->range.from_ms = want.record->created_ms;
    }
    return status;
}

static enum status begin_entries(struct store *reader, struct query *query, struct err *err)
{
    static const struct op_id none = {{0}};
    struct progress *progress = query->progress;
    progress->limit = query->limit;
    progress->entry_pace.bytes_max = STEP_ENTRY_BYTES;
    progress->range =
        (struct entry_range){.tenant = query->any_tenant ? SLICE_EMPTY : query->tenant,
            .after = query->after_entry,
            .pace = &progress->entry_pace};
    query->entries = arena_alloc(query->call.arena, progress->limit * sizeof *query->entries);
    enum status status = query->entries == NULL ? E_NOMEM : OK;
    if (status == OK && !op_id_equal(&query->operation_id, &none)) {
        progress->range.operation_id = &query->operation_id;
        status = entries_since(reader, query, err);
    }
    return status;
}

/* ---- turns --------------------------------------------------------------------------------- */

static enum status begin_page(struct store *reader, struct query *query, struct err *err)
{
    struct progress *progress = query->progress;
    progress->begun = true;
    return query->kind == QUERY_RECORDS ? begin_records(query) : begin_entries(reader, query, err);
}

/* Runs steps until the turn or the page is complete. */
static enum status turn_page(
    struct store *reader, struct query *query, bool *ret_done, struct err *err)
{
    uint64_t started = clock_nanos();
    enum status status = OK;
    for (int i = 0; i < TURN_STEPS && status == OK && !*ret_done; i++) {
        status = query->kind == QUERY_RECORDS ? step_records(reader, query, ret_done, err)
                                              : step_entries(reader, query, ret_done, err);
        if (clock_nanos() - started >= TURN_NANOS) {
            break;
        }
    }
    return status;
}

/*
 * The first turn of a page only queues it: however many queries are in one batch, each batch runs
 * only one that continues.
 */
static enum status read_page(struct store *reader, struct query *query, struct err *err)
{
    struct progress *progress = query->progress;
    struct store_batch time = {.count = 0};
    bool done = false;
    enum status status = reader->ops->read(reader, &time, err);
    query->call.now_ms = time.now_ms;
    if (status == OK && !progress->begun) {
        status = begin_page(reader, query, err);
    } else if (status == OK && !progress->finished) {
        status = turn_page(reader, query, &done, err);
        progress->finished = done;
    }
    query->call.again = status == OK && !progress->finished;
    return status;
}

static enum status read_any(struct store *reader, struct query *query, struct err *err)
{
    reader->ops->head(reader, &query->head);
    switch (query->kind) {
    case QUERY_NOTHING:
    case QUERY_HEAD: return OK;
    case QUERY_READY: return reader->ops->read(reader, &(struct store_batch){.count = 0}, err);
    case QUERY_OPERATION: return read_operation(reader, query, err);
    case QUERY_RECORDS:
    case QUERY_ENTRIES: return read_page(reader, query, err);
    }
    return err_set(err, E_MISUSE, "there is no query of kind %d", (int)query->kind);
}

enum status query_turn(struct store *reader, struct engine_call *call)
{
    struct query *query = query_of(call);
    err_clear(&call->err);
    call->again = false;
    return with_error(read_any(reader, query, &call->err), &call->err);
}

/* ---- the interface ------------------------------------------------------------------------- */

static enum status query_start(struct query *query, struct err *err)
{
    bool page = query->kind == QUERY_RECORDS || query->kind == QUERY_ENTRIES;
    size_t limit = query->kind == QUERY_RECORDS ? query->scan.limit : query->limit;
    size_t limit_max =
        query->kind == QUERY_RECORDS ? LIMIT_PAGE_RECORDS_MAX : LIMIT_PAGE_ENTRIES_MAX;
    ASSERT(query->call.arena != NULL);
    bool of_one = (page || query->kind == QUERY_OPERATION) && !query->any_tenant;
    ASSERT(query->tenant.len > 0 || !of_one); /* P9 */
    if (page && (limit == 0 || limit > limit_max)) {
        return err_set(err, E_INVALID, "limit is %zu and must be from 1 to %zu", limit, limit_max);
    }
    query->record = NULL;
    query->outcome_body = SLICE_EMPTY;
    query->request_body = SLICE_EMPTY;
    query->count = 0;
    query->has_more = false;
    query->after = query->scan.after;
    query->next_entry = query->after_entry;
    query->call.query = query;
    query->progress = page ? arena_zalloc(query->call.arena, sizeof(struct progress)) : NULL;
    return page && query->progress == NULL ? err_set(err, E_NOMEM, "out of memory") : OK;
}

enum status query_submit(struct engine *engine, struct query *query, struct err *err)
{
    enum status status = query_start(query, err);
    return status == OK ? engine_submit(engine, &query->call, err) : status;
}

/* All turns of a query that was started, one after the other. */
static enum status turns(struct store *reader, struct query *query)
{
    enum status status;
    do {
        status = query_turn(reader, &query->call);
    } while (status == OK && query->call.again);
    return status;
}

/* Some queries must run on the engine thread: those that wait until everything before them is
 * durable, and those for duties, which must be as new as the due that led to them. No duty reads
 * evidence. */
static bool runs_beside(const struct query *query)
{
    return query->kind != QUERY_NOTHING && query->kind != QUERY_READY &&
           (!query->any_tenant || query->kind == QUERY_ENTRIES);
}

enum status query_do(struct engine *engine, struct query *query)
{
    err_clear(&query->call.err);
    enum status status = query_start(query, &query->call.err);
    if (status != OK) {
        return status;
    }
    struct store *reader = runs_beside(query) ? engine_reader_take(engine) : NULL;
    if (reader == NULL) {
        return engine_do(engine, &query->call);
    }
    status = turns(reader, query);
    engine_reader_return(engine, &query->call.err);
    return status;
}

enum status query_run(struct store *reader, struct query *query)
{
    err_clear(&query->call.err);
    enum status status = query_start(query, &query->call.err);
    return status == OK ? turns(reader, query) : status;
}
