#include "engine/query.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "base/check.h"
#include "base/clock.h"
#include "core/decide.h"
#include "evidence/cursor.h"
#include "evidence/entry_form.h"
#include "lib/answer.h"
#include "lib/inspect.h"
#include "once/once.h"
#include "store/clock.h"

/*
 * Queries change nothing. A writer's queries go through its engine, so that they never show what a
 * crash could still undo (P2); a read-only handle reads its own store.
 */

enum {
    PAGE_RECORDS = 64,  /* a page of once_iterate: short enough not to delay a batch */
    PAGE_ENTRIES = 128, /* a page of once_evidence, likewise */
    QUERY_BYTES_MAX = LIMIT_OUTCOME_BYTES_MAX + (8 << 20), /* an outcome, or a page */
    WAIT_STEP_MS_FIRST = 5, /* between two queries of once_wait, doubled each time: … */
    WAIT_STEP_MS_MAX = 250, /* … handle_settled announces everything except the end of a lease */
};

struct lib_query {
    struct query query;
    struct once *once;
    struct arena arena; /* for the results */
};

static void lib_query_init(struct lib_query *self, struct once *once, enum query_kind kind)
{
    memset(self, 0, sizeof *self);
    self->once = once;
    arena_init(&self->arena, &once->mem, QUERY_BYTES_MAX);
    self->query.call.arena = &self->arena;
    self->query.kind = kind;
    self->query.tenant = once->tenant; /* P9 */
}

/* Only a writer has a janitor. Without one, an operation whose holder crashed would be in_progress
 * until its key is used again, so it is shown as that request would find it. */
static enum status find_as_of(struct lib_query *self, int64_t now_ms, const struct record **record)
{
    struct record next;
    if (!decide_lease_over(*record, now_ms, &next)) {
        return OK;
    }
    struct record *copy = arena_alloc(&self->arena, sizeof *copy);
    if (copy == NULL) {
        return err_set(&self->query.call.err, E_NOMEM, "out of memory");
    }
    *copy = next;
    *record = copy;
    return OK;
}

static enum status run_without_engine(struct lib_query *self)
{
    struct query *query = &self->query;
    (void)pthread_mutex_lock(&self->once->lock);
    enum status status = query_run(self->once->store, query);
    (void)pthread_mutex_unlock(&self->once->lock);
    int64_t now_ms = self->once->store->ops->shared
                         ? query->call.now_ms
                         : store_clock_reader_ms(&query->head.moment); /* P8 */
    if (status == OK && query->kind == QUERY_OPERATION && query->record != NULL) {
        status = find_as_of(self, now_ms, &query->record);
    }
    size_t count = query->kind == QUERY_RECORDS ? query->count : 0;
    for (size_t i = 0; i < count && status == OK; i++) {
        status = find_as_of(self, now_ms, &query->records[i]);
    }
    return status;
}

static enum status lib_query_run(struct lib_query *self, struct err *err)
{
    struct once *once = self->once;
    enum status status =
        once->engine != NULL ? query_do(once->engine, &self->query) : run_without_engine(self);
    if (status != OK) {
        *err = self->query.call.err;
    }
    return status;
}

static enum status check_handle(const struct once *once, const void *ret, struct err *err)
{
    if (once == NULL) {
        return err_set(err, E_MISUSE, "once is NULL");
    }
    return ret == NULL ? err_set(err, E_MISUSE, "there is nowhere to put what is found") : OK;
}

static enum status check_visit(const struct once *once, bool visited, struct err *err)
{
    if (once == NULL) {
        return err_set(err, E_MISUSE, "once is NULL");
    }
    return visited ? OK : err_set(err, E_MISUSE, "visit is NULL");
}

/* ---- one operation ------------------------------------------------------------------------- */

/* Runs a query for one operation and returns it. *ret_operation is NULL if it does not exist. */
static enum status lib_query_one(
    struct lib_query *self, struct once_operation **ret_operation, struct err *err)
{
    const struct query *query = &self->query;
    enum status status = lib_query_run(self, err);
    if (status == OK && query->record != NULL) {
        struct operation_parts found = {.record = query->record,
            .outcome_body = query->outcome_body,
            .request_body = query->request_body};
        *ret_operation = operation_new(&self->once->mem, &found);
        status = *ret_operation == NULL ? E_NOMEM : OK;
    }
    arena_release(&self->arena);
    return status;
}

static enum status get(struct once *once, const char *operation_id,
    struct once_operation **ret_operation, struct err *err)
{
    struct lib_query self;
    enum status status = check_handle(once, ret_operation, err);
    if (status != OK) {
        return status;
    }
    *ret_operation = NULL;
    lib_query_init(&self, once, QUERY_OPERATION);
    status = handle_operation_id(operation_id, &self.query.operation_id, err);
    return status == OK ? lib_query_one(&self, ret_operation, err) : status;
}

int once_get(struct once *once, const char *operation_id, struct once_operation **ret_operation,
    struct once_error *error)
{
    struct err err = {0};
    return handle_error(error, get(once, operation_id, ret_operation, &err), &err);
}

int once_lookup(struct once *once, const char *scope, const char *principal, const char *key,
    struct once_operation **ret_operation, struct once_error *error)
{
    struct lib_query self;
    struct err err = {0};
    enum status status = check_handle(once, ret_operation, &err);
    if (status == OK) {
        *ret_operation = NULL;
        lib_query_init(&self, once, QUERY_OPERATION);
        self.query.key = (struct record_key){.tenant = once->tenant,
            .scope = slice_str(scope),
            .principal = slice_str(principal),
            .key = slice_str(key)};
        status = record_key_seal(&self.query.key, &err);
    }
    if (status == OK) {
        status = lib_query_one(&self, ret_operation, &err);
    }
    return handle_error(error, status, &err);
}

void once_operation_free(struct once *once, struct once_operation *operation)
{
    if (operation != NULL) {
        mem_free(&once->mem, operation);
    }
}

/* ---- waiting ------------------------------------------------------------------------------- */

static uint64_t settled_count(struct once *once)
{
    (void)pthread_mutex_lock(&once->lock);
    uint64_t count = once->settled_count;
    (void)pthread_mutex_unlock(&once->lock);
    return count;
}

/* Sleeps until something was settled since `seen`, or until the given time. */
static void wait_settled(struct once *once, uint64_t seen, uint64_t until_nanos)
{
    struct timespec until = {
        .tv_sec = (time_t)(until_nanos / 1000000000),
        .tv_nsec = (long)(until_nanos % 1000000000),
    };
    (void)pthread_mutex_lock(&once->lock);
    int over = 0;
    while (once->settled_count == seen && over == 0) {
        over = pthread_cond_timedwait(&once->settled, &once->lock, &until);
    }
    (void)pthread_mutex_unlock(&once->lock);
}

static enum status wait_for(struct once *once, const char *operation_id, int64_t timeout_ms,
    struct once_operation **ret_operation, struct err *err)
{
    const uint64_t nanos_per_ms = 1000000;
    uint64_t deadline = clock_nanos() + (uint64_t)timeout_ms * nanos_per_ms;
    int64_t step_ms = WAIT_STEP_MS_FIRST;
    for (;;) {
        uint64_t seen = settled_count(once);
        enum status status = get(once, operation_id, ret_operation, err);
        uint64_t now = clock_nanos();
        if (status != OK || *ret_operation == NULL ||
            (*ret_operation)->status != ONCE_STATUS_IN_PROGRESS || now >= deadline) {
            return status;
        }
        once_operation_free(once, *ret_operation);
        uint64_t until = now + (uint64_t)step_ms * nanos_per_ms;
        wait_settled(once, seen, until < deadline ? until : deadline);
        step_ms = clock_doubled_ms(step_ms, WAIT_STEP_MS_MAX);
    }
}

int once_wait(struct once *once, const char *operation_id, int64_t timeout_ms,
    struct once_operation **ret_operation, struct once_error *error)
{
    struct err err = {0};
    enum status status = handle_writes(once, &err);
    if (status == OK) {
        status = check_handle(once, ret_operation, &err);
    }
    if (status == OK && timeout_ms < 0) {
        status = err_set(&err, E_INVALID, "timeout_ms must be positive");
    }
    if (status == OK && timeout_ms > LIMIT_WAIT_MS_MAX) {
        status =
            err_set(&err, E_INVALID, "timeout_ms is more than wait_ms_max (%d)", LIMIT_WAIT_MS_MAX);
    }
    if (status == OK) {
        status = wait_for(once, operation_id, timeout_ms, ret_operation, &err);
    }
    return handle_error(error, status, &err);
}

/* ---- many operations ----------------------------------------------------------------------- */

static enum status take_filter(struct scan *scan, const struct once_filter *filter, struct err *err)
{
    if (filter == NULL) {
        return OK;
    }
    if (filter->status != 0 &&
        (filter->status < ONCE_STATUS_IN_PROGRESS || filter->status > ONCE_COMPENSATED)) {
        return err_set(err, E_INVALID, "status is %d, which is not a status", (int)filter->status);
    }
    if (filter->updated_from_ms < 0 || filter->updated_until_ms < 0) {
        return err_set(err, E_INVALID, "updated_from_ms and updated_until_ms must be positive");
    }
    scan->scope = slice_str(filter->scope);
    scan->key = slice_str(filter->key);
    scan->status = (enum record_status)filter->status;
    scan->updated_from_ms = filter->updated_from_ms;
    scan->updated_until_ms = filter->updated_until_ms;
    return OK;
}

/* Operations to visit, in several pages. */
struct iteration {
    enum record_status status; /* 0: any */
    size_t left;               /* to visit at most */
    once_operation_visit visit;
    void *context;
    bool stop; /* the visitor wants no more */
};

/* Visits a page on the caller's thread, so that a visitor may call the library. */
static enum status visit_page(const struct lib_query *self, struct iteration *each)
{
    for (size_t i = 0; i < self->query.count && !each->stop; i++) {
        struct operation_parts parts = {.record = self->query.records[i]};
        if (each->status != 0 && parts.record->status != each->status) {
            continue; /* its lease is over: the store has a different status */
        }
        struct once_operation *operation = operation_new(&self->once->mem, &parts);
        if (operation == NULL) {
            return E_NOMEM;
        }
        each->stop = each->visit(each->context, operation) != 0;
        each->left--;
        once_operation_free(self->once, operation);
    }
    return OK;
}

/* Visits those that the store has with this status; 0: with any. */
static enum status iterate_stored(
    struct lib_query *self, enum record_status stored, struct iteration *each, struct err *err)
{
    struct query *query = &self->query;
    enum status status = OK;
    query->scan.status = stored;
    query->after = (struct digest){{0}};
    query->has_more = true;
    while (status == OK && !each->stop && each->left > 0 && query->has_more) {
        arena_clear(&self->arena);
        query->scan.limit = each->left < PAGE_RECORDS ? each->left : PAGE_RECORDS;
        query->scan.after = query->after;
        status = lib_query_run(self, err);
        if (status == OK) {
            status = visit_page(self, each);
        }
    }
    return status;
}

/* Without a janitor, some of those that are unknown are in the store as in_progress. */
static enum status iterate(struct lib_query *self, struct iteration *each, struct err *err)
{
    enum status status = iterate_stored(self, each->status, each, err);
    if (status == OK && each->status == RECORD_UNKNOWN && self->once->engine == NULL) {
        status = iterate_stored(self, RECORD_IN_PROGRESS, each, err);
    }
    return status;
}

static int iterate_of(struct once *once, bool any_tenant, const struct once_filter *filter,
    once_operation_visit visit, void *context, struct once_error *error)
{
    struct err err = {0};
    struct lib_query self;
    enum status status = check_visit(once, visit != NULL, &err);
    if (status == OK) {
        lib_query_init(&self, once, QUERY_RECORDS);
        self.query.any_tenant = any_tenant;
        status = take_filter(&self.query.scan, filter, &err);
        if (status == OK) {
            size_t limit = filter == NULL ? 0 : filter->limit;
            struct iteration each = {.status = self.query.scan.status,
                .left = limit == 0 ? SIZE_MAX : limit,
                .visit = visit,
                .context = context};
            status = iterate(&self, &each, &err);
        }
        arena_release(&self.arena);
    }
    return handle_error(error, status, &err);
}

int once_iterate(struct once *once, const struct once_filter *filter, once_operation_visit visit,
    void *context, struct once_error *error)
{
    return iterate_of(once, false, filter, visit, context, error);
}

int inspect_iterate_all(struct once *once, const struct once_filter *filter,
    once_operation_visit visit, void *context, struct once_error *error)
{
    return iterate_of(once, true, filter, visit, context, error);
}

/* ---- evidence ------------------------------------------------------------------------------ */

/* The full document is in `text` while it is visited. */
static enum status visit_entries(const struct query *query, struct buf *text,
    once_entry_visit visit, void *context, bool *ret_stop, struct err *err)
{
    for (size_t i = 0; i < query->count && !*ret_stop; i++) {
        const struct entry *entry = &query->entries[i].entry;
        buf_clear(text);
        enum status status = entry_expand(entry, text);
        if (status != OK) {
            return err_set(err, status, "entry %" PRIu64 " cannot be shown", entry->seq);
        }
        char cursor_text[EVIDENCE_CURSOR_BYTES];
        struct entry_cursor cursor = {.seq = entry->seq};
        memcpy(cursor.chain_id, entry->chain_id, sizeof cursor.chain_id);
        struct once_entry shown = {
            .cursor = evidence_cursor_put(cursor_text, &cursor),
            .seq = entry->seq,
            .time_ms = entry->time_ms,
            .json = {text->data, text->len},
        };
        memcpy(shown.hash, entry->hash.bytes, sizeof shown.hash);
        *ret_stop = visit(context, &shown) != 0;
    }
    return OK;
}

static enum status all_entries(
    struct lib_query *self, once_entry_visit visit, void *context, struct err *err)
{
    struct query *query = &self->query;
    struct buf text;
    bool stop = false;
    enum status status;
    query->limit = PAGE_ENTRIES;
    buf_init(&text, &self->once->mem, LIMIT_PAGE_BYTES_MAX);
    do {
        arena_clear(&self->arena);
        status = lib_query_run(self, err);
        if (status == OK) {
            status = visit_entries(query, &text, visit, context, &stop, err);
            query->after_entry = query->next_entry;
        }
    } while (status == OK && query->has_more && !stop);
    buf_release(&text);
    return status;
}

/* The evidence after a cursor, and whose. */
struct evidence_asked {
    const char *operation_id; /* NULL: of all */
    const char *after;
    bool any_tenant;
};

static int evidence_of(struct once *once, const struct evidence_asked *asked,
    once_entry_visit visit, void *context, struct once_error *error)
{
    struct err err = {0};
    struct lib_query self;
    enum record_kind kind;
    const char *operation_id = asked->operation_id;
    const char *after = asked->after;
    enum status status = check_visit(once, visit != NULL, &err);
    if (status == OK) {
        lib_query_init(&self, once, QUERY_ENTRIES);
        self.query.any_tenant = asked->any_tenant;
        status = evidence_cursor_read(slice_str(after), &self.query.after_entry, &err);
        if (status != OK) {
            err_prefix(&err, "after");
        } else if (operation_id != NULL &&
                   !kind_id_read(slice_str(operation_id), &kind, &self.query.operation_id)) {
            status = handle_operation_id(operation_id, &self.query.operation_id, &err);
        }
        if (status == OK) {
            status = all_entries(&self, visit, context, &err);
            if (status == E_INVALID) { /* the store does not have the chain */
                err_prefix(&err, "after");
            }
        }
        arena_release(&self.arena);
    }
    return handle_error(error, status, &err);
}

int once_evidence(struct once *once, const char *operation_id, const char *after,
    once_entry_visit visit, void *context, struct once_error *error)
{
    const struct evidence_asked asked = {.operation_id = operation_id, .after = after};
    return evidence_of(once, &asked, visit, context, error);
}

int inspect_evidence_all(struct once *once, const char *operation_id, const char *after,
    once_entry_visit visit, void *context, struct once_error *error)
{
    const struct evidence_asked asked = {
        .operation_id = operation_id, .after = after, .any_tenant = true};
    return evidence_of(once, &asked, visit, context, error);
}
