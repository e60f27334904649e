/*
 * Reads outside of a batch: counts, scans, dues and evidence. One round trip for each page, without
 * locks.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/limits.h"
#include "base/macros.h"
#include "core/kind.h"
#include "store/postgres/impl.h"

enum {
    LOOKS_MAX = 4096,        /* keys that one page of a scan passes */
    PAGE_ENTRIES_MAX = 512,  /* entries in one page … */
    ENTRY_BYTES_USUAL = 512, /* … that has a bound in bytes */
};

void pg_kinds_put(struct pg_args *args, unsigned kinds)
{
    args_array(args, PG_TEXT);
    for (int kind = RECORD_OPERATION; kind <= RECORD_DELIVERY; kind++) {
        if (store_kind_in(kinds, (enum record_kind)kind)) {
            args_str(args, kind_name((enum record_kind)kind));
        }
    }
    args_array_end(args);
}

enum status pg_rows(struct pg_store *self, int columns, PGresult **ret_result, struct err *err)
{
    PGresult *result = NULL;
    enum status status = link_next(&self->link, &result, err);
    if (status == OK && (result == NULL || PQresultStatus(result) != PGRES_TUPLES_OK ||
                            PQnfields(result) != columns)) {
        status = err_set(err, E_UNAVAILABLE, "PostgreSQL answered a different statement");
    }
    if (status != OK) {
        PQclear(result);
        return status;
    }
    *ret_result = result;
    return OK;
}

/* The one result of a pipeline of one statement. */
static enum status only_rows(
    struct pg_store *self, int columns, PGresult **ret_result, struct err *err)
{
    PGresult *result = NULL;
    link_sync(&self->link);
    enum status status = pg_rows(self, columns, &result, err);
    status = status == OK ? link_finish(&self->link, err) : status;
    if (status != OK) {
        PQclear(result);
        pg_recover(self);
        return status;
    }
    *ret_result = result;
    return OK;
}

static bool take_kind_status(
    const PGresult *result, int row, enum record_kind *ret_kind, enum record_status *ret_status)
{
    struct slice kind = pg_value_of(result, row, 0).bytes;
    for (int known = RECORD_OPERATION; known <= RECORD_DELIVERY; known++) {
        if (slice_is(kind, kind_name((enum record_kind)known))) {
            *ret_kind = (enum record_kind)known;
            return record_status_read(pg_value_of(result, row, 1).bytes, ret_status);
        }
    }
    return false;
}

/* ---- counts ------------------------------------------------------------------------------ */

enum status pg_counts_take(
    struct pg_store *self, unsigned kinds, struct store_counts *ret_counts, struct err *err)
{
    struct store_counts counts = {.records = 0};
    PGresult *result = NULL;
    enum status status = pg_rows(self, 4, &result, err);
    for (int row = 0; status == OK && row < PQntuples(result); row++) {
        enum record_kind kind;
        enum record_status is;
        int64_t live = 0;
        struct pg_value since = pg_value_of(result, row, 3);
        if (!take_kind_status(result, row, &kind, &is) ||
            !pg_value_int(pg_value_of(result, row, 2), &live) ||
            (!since.null && !pg_value_time(since, &counts.unknown_since_ms))) {
            status = err_set(err, E_CORRUPT, "the counts of records do not check out");
            break;
        }
        ASSERT(store_kind_in(kinds, kind) || live == 0);
        /* While a chain is being ended, a count may be negative for a moment: it counts as 0. */
        uint64_t some = live > 0 ? (uint64_t)live : 0;
        counts.by_status[is] += some;
        counts.records += some;
    }
    PQclear(result);
    if (status == OK) {
        *ret_counts = counts;
    }
    return status;
}

enum status pg_counts(
    struct store *store, unsigned kinds, struct store_counts *ret_counts, struct err *err)
{
    struct pg_store *self = pg_of(store);
    enum status status = pg_ready(self, err);
    if (status != OK) {
        return status;
    }
    pg_kinds_put(&self->link.args, kinds);
    link_send(&self->link, PG_COUNTS);
    link_sync(&self->link);
    status = pg_counts_take(self, kinds, ret_counts, err);
    status = status == OK ? link_finish(&self->link, err) : status;
    if (status != OK) {
        pg_recover(self);
    }
    return status;
}

/* ---- backlog ----------------------------------------------------------------------------- */

/* A row without a tenant: how many there are altogether. */
static bool take_backlog(const PGresult *result, int row, struct store_backlog *line, bool *ret_all)
{
    struct pg_value tenant = pg_value_of(result, row, 1);
    struct pg_value since = pg_value_of(result, row, 4);
    int64_t count = 0;
    *ret_all = tenant.null;
    line->tenant = tenant.bytes;
    line->scope = pg_value_of(result, row, 2).bytes;
    if (!record_status_read(pg_value_of(result, row, 0).bytes, &line->status) ||
        !pg_value_int(pg_value_of(result, row, 3), &count) ||
        !(since.null || pg_value_time(since, &line->since_ms))) {
        return false;
    }
    line->count = count > 0 ? (uint64_t)count : 0; /* as in pg_counts_take */
    return true;
}

enum status pg_backlog(struct store *store, enum record_kind kind, store_backlog_visit visit,
    void *context, struct store_counts *ret_counts, struct err *err)
{
    struct pg_store *self = pg_of(store);
    struct store_counts counts = {.records = 0};
    PGresult *result = NULL;
    enum status status = pg_ready(self, err);
    if (status != OK) {
        return status;
    }
    args_str(&self->link.args, kind_name(kind));
    args_int8(&self->link.args, STORE_BACKLOG_MAX);
    link_send(&self->link, PG_BACKLOG);
    status = only_rows(self, 5, &result, err);
    for (int row = 0; status == OK && row < PQntuples(result); row++) {
        struct store_backlog line = {.kind = kind};
        bool is_all = false;
        if (!take_backlog(result, row, &line, &is_all)) {
            status = err_set(err, E_CORRUPT, "the backlog does not check out");
        } else if (is_all) {
            counts.by_status[line.status] = line.count;
        } else {
            visit(context, &line);
        }
    }
    PQclear(result);
    if (status == OK) {
        *ret_counts = counts;
    }
    return status;
}

/* ---- scan -------------------------------------------------------------------------------- */

/* NULL for 0. */
static void put_time_or_null(struct pg_args *args, int64_t ms)
{
    if (ms == 0) {
        args_null(args);
    } else {
        args_time(args, ms);
    }
}

static int64_t bounded(size_t wanted, int64_t max)
{
    return wanted < (size_t)max ? (int64_t)wanted : max;
}

/* One page: matching records are appended, and `after` advances. */
struct scan_page {
    const struct scan *scan;
    struct arena *arena;
    const struct record **records;
    size_t count;
    struct digest after;
    bool done;
};

static void send_scan(struct pg_store *self, const struct scan_page *page, int64_t looks,
    int64_t reads, int64_t limit)
{
    ASSERT(looks > 0 && reads > 0); /* or it never ends */
    struct pg_args *args = &self->link.args;
    const struct scan *scan = page->scan;
    args_slice(args, slice_of(page->after.bytes, DIGEST_BYTES));
    args_int8(args, looks);
    args_int8(args, reads);
    args_int8(args, limit);
    pg_kinds_put(args, scan->kinds);
    args_str(args, scan->status == 0 ? "" : record_status_name(scan->status));
    args_slice(args, scan->tenant);
    args_slice(args, scan->scope);
    args_slice(args, scan->key);
    args_time(args, scan->updated_from_ms);
    put_time_or_null(args, scan->updated_until_ms);
    put_time_or_null(args, scan->now_ms);
    link_send(&self->link, PG_SCAN);
}

static enum status take_page(struct scan_page *page, const PGresult *result, struct err *err)
{
    struct pg_value last = pg_value_of(result, 0, 0);
    int64_t done = 0;
    if ((!last.null && !pg_value_digest(last, &page->after)) ||
        !pg_value_int(pg_value_of(result, 0, 1), &done)) {
        return err_set(err, E_CORRUPT, "a page of records does not check out");
    }
    page->done = done != 0;
    for (int row = 0; row < PQntuples(result); row++) {
        struct record found;
        if (pg_value_of(result, row, 2).null) {
            continue; /* nothing matched: the one row has only the position */
        }
        enum status status = columns_take(result, row, 2, &found, err);
        struct record *copy = status == OK ? arena_alloc(page->arena, sizeof *copy) : NULL;
        if (status == OK && (copy == NULL || record_copy(&found, page->arena, copy) != OK)) {
            status = err_set(err, E_NOMEM, "out of memory for a record");
        }
        if (status != OK) {
            return status;
        }
        ASSERT(page->count < page->scan->limit);
        page->records[page->count++] = copy;
    }
    return OK;
}

static enum status scan_on(struct pg_store *self, struct scan_page *page, struct err *err)
{
    const struct scan_pace *pace = page->scan->pace;
    PGresult *result = NULL;
    int64_t looks = pace == NULL ? LOOKS_MAX : bounded(pace->looks_max, LOOKS_MAX);
    int64_t reads = pace == NULL ? LOOKS_MAX : bounded(pace->reads_max, LOOKS_MAX);
    send_scan(self, page, looks, reads, bounded(page->scan->limit - page->count, LOOKS_MAX));
    enum status status = only_rows(self, 2 + columns_count(), &result, err);
    if (status == OK) {
        status = PQntuples(result) > 0 ? take_page(page, result, err)
                                       : err_set(err, E_CORRUPT, "a page of records is empty");
        PQclear(result);
    }
    return status;
}

enum status pg_scan(struct store *store, const struct scan *scan, struct arena *arena,
    const struct record **ret_records, size_t *ret_count, struct err *err)
{
    struct pg_store *self = pg_of(store);
    struct scan_page page = {
        .scan = scan, .arena = arena, .records = ret_records, .after = scan->after};
    ASSERT(scan->kinds != 0);
    enum status status = pg_ready(self, err);
    do {
        status = status == OK ? scan_on(self, &page, err) : status;
    } while (status == OK && scan->pace == NULL && !page.done && page.count < scan->limit);
    if (status != OK) {
        return status;
    }
    if (scan->pace != NULL) {
        scan->pace->after = page.after;
        scan->pace->done = page.done;
    }
    *ret_count = page.count;
    return OK;
}

/* ---- dues -------------------------------------------------------------------------------- */

/* The statuses that can be due for these reasons. */
static void put_statuses(struct pg_args *args, unsigned reasons)
{
    static const struct {
        enum record_due reason;
        enum record_status status;
    } statuses[] = {{RECORD_DUE_LEASE_OVER, RECORD_IN_PROGRESS},
        {RECORD_DUE_NEXT_ATTEMPT, RECORD_PENDING}, {RECORD_DUE_CONFIRMATION_OVER, RECORD_WAITING},
        {RECORD_DUE_CONFIRMATION_OVER, RECORD_COMPENSATING},
        {RECORD_DUE_RECONCILE_AGAIN, RECORD_UNKNOWN}};
    args_array(args, PG_TEXT);
    for (size_t i = 0; i < COUNT(statuses); i++) {
        if ((reasons & STORE_DUE(statuses[i].reason)) != 0) {
            args_str(args, record_status_name(statuses[i].status));
        }
    }
    args_array_end(args);
}

/* Appends a cursor as bytes: its key is half a hash, and all hashes with it were passed. */
static void put_cursor(struct pg_args *args, const struct store_due_cursor *cursor)
{
    unsigned char key[DIGEST_BYTES];
    memset(key, 0xff, sizeof key);
    for (unsigned i = 0; i < 8; i++) {
        key[i] = (unsigned char)(cursor->key_high >> 8 * (7 - i));
        key[8 + i] = (unsigned char)(cursor->key_low >> 8 * (7 - i));
    }
    args_time(args, (int64_t)cursor->due);
    args_slice(args, slice_of(key, sizeof key));
}

static void send_due(struct pg_store *self, const struct store_due_filter *filter, size_t limit)
{
    static const struct store_due_cursor start = {.due = 0};
    struct pg_args *args = &self->link.args;
    int64_t now_ms = pg_time_now(self).time_ms;
    if (filter->held) {
        pg_kinds_put(args, filter->kinds);
        args_time(args, now_ms - LIMIT_HOLDER_GONE_MS);
        args_slice(args, slice_of(self->identity.chain_id, 16));
        args_int8(args, bounded(limit, INT32_MAX));
        link_send(&self->link, PG_HELD);
        return;
    }
    /* A prepared batch may still commit a due of the time of its prepare. */
    args_time(args, filter->cursor == NULL ? now_ms : now_ms - LIMIT_PREPARED_MS_MAX - 1);
    put_cursor(args, filter->cursor == NULL ? &start : filter->cursor);
    pg_kinds_put(args, filter->kinds);
    put_statuses(args, filter->reasons);
    args_int8(args, bounded(limit, INT32_MAX));
    link_send(&self->link, PG_DUE);
}

static bool take_due(
    const PGresult *result, int row, struct store_due *ret_due, struct store_due_cursor *ret_at)
{
    struct record record = {.version = 0};
    struct digest hash;
    int64_t due_ms = 0;
    int64_t fence = 0;
    struct slice door = pg_value_of(result, row, 2).bytes;
    struct pg_value due = pg_value_of(result, row, 4);
    if (!take_kind_status(result, row, &record.kind, &record.status) ||
        !(record_door_read(door, &record.door) || slice_is(door, "unnamed")) ||
        !pg_value_uuid(pg_value_of(result, row, 3), record.operation_id.bytes) ||
        !(due.null || pg_value_time(due, &due_ms)) ||
        !pg_value_digest(pg_value_of(result, row, 5), &hash) ||
        !pg_value_int(pg_value_of(result, row, 6), &fence)) {
        return false;
    }
    record.due_ms = due_ms;
    *ret_due = (struct store_due){.kind = record.kind,
        .reason = record_due(&record),
        .door = record.door,
        .operation_id = record.operation_id,
        .due_ms = due_ms,
        .fence = (uint64_t)fence};
    *ret_at = (struct store_due_cursor){.due = (uint64_t)due_ms};
    for (size_t i = 0; i < 8; i++) {
        ret_at->key_high = ret_at->key_high << 8 | hash.bytes[i];
        ret_at->key_low = ret_at->key_low << 8 | hash.bytes[8 + i];
    }
    return true;
}

enum status pg_due(struct store *store, const struct store_due_filter *filter,
    struct store_due *ret_dues, size_t limit, size_t *ret_count, struct err *err)
{
    struct pg_store *self = pg_of(store);
    struct store_due_cursor at = {0};
    PGresult *result = NULL;
    enum status status = pg_ready(self, err);
    if (status != OK) {
        return status;
    }
    send_due(self, filter, limit);
    status = only_rows(self, 7, &result, err);
    if (status != OK) {
        return status;
    }
    size_t count = (size_t)PQntuples(result);
    ASSERT(count <= limit);
    for (size_t i = 0; i < count && status == OK; i++) {
        if (!take_due(result, (int)i, &ret_dues[i], &at)) {
            status = err_set(err, E_CORRUPT, "a record that is due does not check out");
        }
    }
    PQclear(result);
    if (status == OK && count > 0 && filter->cursor != NULL) {
        *filter->cursor = at;
    }
    *ret_count = status == OK ? count : 0;
    return status;
}

/* ---- evidence ---------------------------------------------------------------------------- */

/* The position of a reading of the evidence. */
struct entry_place {
    uint64_t xid;
    struct entry_cursor at;
    bool is_note; /* after the checkpoint at that seq, not only after the entry */
};

/* Finds a cursor's position in the order. A cursor of a chain whose entries were all removed is
 * before everything. */
static enum status find_place(struct pg_store *self, const struct entry_cursor *cursor,
    struct entry_place *ret_place, bool *ret_beyond, struct err *err)
{
    static const unsigned char no_chain[16] = {0};
    PGresult *result = NULL;
    *ret_place = (struct entry_place){.xid = 0};
    *ret_beyond = false;
    if (memcmp(cursor->chain_id, no_chain, sizeof no_chain) == 0 && cursor->seq == 0) {
        return OK;
    }
    args_slice(&self->link.args, slice_of(cursor->chain_id, sizeof cursor->chain_id));
    args_int8(&self->link.args, (int64_t)cursor->seq);
    link_send(&self->link, PG_PLACE);
    enum status status = only_rows(self, 2, &result, err);
    if (status != OK) {
        return status;
    }
    int64_t seq = 0;
    int64_t xid = 0;
    if (PQntuples(result) != 1) {
        status = err_set(err, E_INVALID, "the cursor belongs to a different chain of evidence");
    } else if (!pg_value_int(pg_value_of(result, 0, 0), &seq)) {
        status = err_set(err, E_CORRUPT, "a row of the table of chains does not check out");
    } else if (pg_value_int(pg_value_of(result, 0, 1), &xid)) {
        *ret_place = (struct entry_place){.xid = (uint64_t)xid, .at = *cursor, .is_note = true};
    } else {
        *ret_beyond = cursor->seq > (uint64_t)seq;
    }
    PQclear(result);
    return status;
}

static void send_page(struct pg_store *self, const struct entry_range *range,
    const struct entry_place *place, int64_t limit)
{
    struct pg_args *args = &self->link.args;
    char xid[32];
    (void)snprintf(xid, sizeof xid, "%" PRIu64, place->xid);
    args_str(args, xid);
    args_slice(args, slice_of(place->at.chain_id, sizeof place->at.chain_id));
    args_int8(args, (int64_t)place->at.seq);
    args_str(args, place->is_note ? "checkpoint" : "evidence");
    args_slice(args, range->tenant);
    put_time_or_null(args, range->from_ms);
    if (range->operation_id == NULL) {
        args_null(args);
    } else {
        args_slice(args, slice_of(range->operation_id, sizeof *range->operation_id));
    }
    args_int8(args, limit);
    link_send(&self->link, PG_PAGE);
}

/* Reads a row of a page, and the hash before it. bytes is empty if the range excludes it. */
static bool take_entry(
    const PGresult *result, int row, struct entry *ret_entry, struct digest *ret_previous)
{
    struct slice kind = pg_value_of(result, row, 3).bytes;
    struct pg_value operation = pg_value_of(result, row, 6);
    int64_t seq = 0;
    *ret_entry =
        (struct entry){.kind = slice_is(kind, "evidence") ? ENTRY_EVIDENCE : ENTRY_CHECKPOINT,
            .tenant = pg_value_of(result, row, 5).bytes,
            .bytes = pg_value_of(result, row, 9).bytes};
    bool ok = pg_value_uuid(pg_value_of(result, row, 1), ret_entry->chain_id) &&
              pg_value_int(pg_value_of(result, row, 2), &seq) && seq >= 0 &&
              pg_value_time(pg_value_of(result, row, 4), &ret_entry->time_ms) &&
              (operation.null || pg_value_uuid(operation, ret_entry->operation_id.bytes)) &&
              pg_value_digest(pg_value_of(result, row, 7), ret_previous) &&
              pg_value_digest(pg_value_of(result, row, 8), &ret_entry->hash);
    ret_entry->seq = (uint64_t)seq;
    return ok;
}

/* The state of one reading of the evidence. */
struct pg_reading {
    const struct entry_range *range;
    struct entry_pace *pace;
    entry_visit visit;
    void *context;
    struct entry_place place;
    size_t bytes;
    bool stopped;
    bool done;
};

static enum status visit_page(struct pg_reading *reading, const PGresult *result, struct err *err)
{
    for (int row = 0; row < PQntuples(result) && !reading->stopped; row++) {
        struct entry entry;
        struct digest previous;
        int64_t xid = 0;
        int64_t bytes = 0;
        if (!take_entry(result, row, &entry, &previous) ||
            !pg_value_int(pg_value_of(result, row, 0), &xid) ||
            !pg_value_int(pg_value_of(result, row, 10), &bytes)) {
            return err_set(err, E_CORRUPT, "a row of the table of entries does not check out");
        }
        bool note = entry.kind == ENTRY_CHECKPOINT;
        if (!note) {
            reading->pace->hash = previous;
        }
        if (entry.bytes.len > 0 && (!note || reading->range->pace == NULL)) {
            reading->stopped = !reading->visit(reading->context, &entry);
        }
        ASSERT((uint64_t)xid >= reading->place.xid); /* S11: the order of the store */
        reading->bytes += (size_t)bytes;
        reading->place = (struct entry_place){.xid = (uint64_t)xid, .is_note = note};
        reading->place.at.seq = entry.seq;
        memcpy(reading->place.at.chain_id, entry.chain_id, sizeof entry.chain_id);
        if (!note) {
            reading->pace->at = reading->place.at;
            reading->pace->hash = entry.hash;
        }
        reading->pace->place = reading->place.xid;
    }
    return OK;
}

static enum status read_page(struct pg_store *self, struct pg_reading *reading, struct err *err)
{
    PGresult *result = NULL;
    size_t left = reading->pace->bytes_max - reading->bytes;
    int64_t limit = bounded(left / ENTRY_BYTES_USUAL + 1, PAGE_ENTRIES_MAX);
    send_page(self, reading->range, &reading->place, limit);
    enum status status = only_rows(self, 11, &result, err);
    if (status == OK) {
        status = visit_page(reading, result, err);
        reading->done = PQntuples(result) < limit && !reading->stopped;
    }
    PQclear(result);
    return status;
}

enum status pg_entries(struct store *store, const struct entry_range *range, entry_visit visit,
    void *context, struct err *err)
{
    struct pg_store *self = pg_of(store);
    struct entry_pace unpaced = {.bytes_max = SIZE_MAX};
    struct entry_pace *pace = range->pace == NULL ? &unpaced : range->pace;
    struct pg_reading reading = {.range = range, .pace = pace, .visit = visit, .context = context};
    enum status status = pg_ready(self, err);
    if (status != OK) {
        return status;
    }
    bool beyond = false;
    ASSERT(pace->bytes_max > 0); /* or it never ends */
    if (pace->place != 0) {
        reading.place = (struct entry_place){.xid = pace->place, .at = pace->at, .is_note = true};
    } else {
        status = find_place(self, &range->after, &reading.place, &beyond, err);
        if (status == OK) {
            pace->at = range->after;
            if (range->after.seq == 0) { /* it names a chain in any case */
                memcpy(pace->at.chain_id, self->identity.chain_id, sizeof pace->at.chain_id);
            }
        }
    }
    reading.done = beyond;
    while (status == OK && !reading.done && !reading.stopped && reading.bytes < pace->bytes_max) {
        status = read_page(self, &reading, err);
    }
    pace->done = status == OK && reading.done;
    return status;
}
