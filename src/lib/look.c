#include <string.h>
#include <time.h>

#include "base/check.h"
#include "canon/json.h"
#include "lib/answer.h"
#include "once/once.h"

/*
 * Looking changes nothing. A writer's looks go through its engine, so that nobody is shown what a
 * crash could still take back (P2); a read-only handle looks at its own store.
 */

enum {
    PAGE_RECORDS = 64,          /* a page of once_iterate: short enough not to hold up a batch */
    PAGE_ENTRIES = 128,         /* a page of once_evidence, … */
    PAGE_ENTRY_BYTES = 1 << 20, /* … and its bytes */
    LOOK_BYTES_MAX = LIMIT_OUTCOME_BYTES_MAX + (4 << 20), /* an outcome, or a page of records */
    WAIT_STEP_MS_FIRST = 5, /* between two looks of once_wait, doubled each time: … */
    WAIT_STEP_MS_MAX = 250, /* … only a lease that ends is not announced by handle_settled */
};

struct look {
    struct engine_call engine; /* first, so that the engine's pointer is ours */
    struct once *once;
    struct arena arena; /* what is found */

    /* One operation: by id, or by key. */
    struct op_id id;
    struct record_key key;
    struct operation_parts found;

    /* Many operations. */
    struct scan scan;
    const struct record **records; /* PAGE_RECORDS of them */

    /* Evidence. */
    struct entry_range range;
    struct entry *entries; /* PAGE_ENTRIES of them */
    size_t entry_bytes;    /* of those kept */
    bool full;             /* the page ended before the entries did */

    size_t count; /* of records or entries */
};

static void look_init(struct look *look, struct once *once, engine_read read)
{
    memset(look, 0, sizeof *look);
    look->once = once;
    arena_init(&look->arena, &once->mem, LOOK_BYTES_MAX);
    look->engine.arena = &look->arena;
    look->engine.read = read;
}

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

static enum status look_run(struct look *look, struct err *err)
{
    struct once *once = look->once;
    enum status status;
    err_clear(&look->engine.err);
    if (once->engine != NULL) {
        status = engine_do(once->engine, &look->engine);
    } else {
        (void)pthread_mutex_lock(&once->lock);
        status = look->engine.read(once->store, &look->engine, &look->engine.err);
        (void)pthread_mutex_unlock(&once->lock);
    }
    if (status != OK) {
        *err = look->engine.err;
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

static enum status refuse_id(const char *operation_id, struct err *err)
{
    return err_set(err, E_INVALID, "operation_id '%.64s' is not \"op_\" and a UUID",
        operation_id == NULL ? "" : operation_id);
}

/* ---- one operation ------------------------------------------------------------------------- */

static enum status read_body(struct store *store, struct look *look, const struct body_ref *body,
    struct slice *ret_bytes, struct err *err)
{
    if (!body->retained || body->bytes == 0) {
        return OK;
    }
    return store->ops->body(store, body, &look->arena, ret_bytes, err);
}

static enum status read_operation(
    struct store *store, struct look *look, const struct record *record, struct err *err)
{
    look->found = (struct operation_parts){0};
    if (record == NULL || !slice_equal(record->key.tenant, look->once->tenant)) {
        return OK; /* P9: another tenant's operation is no operation */
    }
    enum status status =
        read_body(store, look, &record->outcome.body, &look->found.outcome_body, err);
    if (status == OK) {
        status = read_body(store, look, &record->request, &look->found.request_body, err);
    }
    look->found.record = record;
    return status;
}

static enum status read_by_id(struct store *store, struct engine_call *call, struct err *err)
{
    struct look *look = look_of(call);
    const struct record *record = NULL;
    enum status status = store->ops->find(store, &look->id, &look->arena, &record, err);
    if (status == OK) {
        status = read_operation(store, look, record, err);
    }
    return said(status, err);
}

static enum status read_by_key(struct store *store, struct engine_call *call, struct err *err)
{
    struct look *look = look_of(call);
    const struct record *record = NULL;
    enum status status = store->ops->load(store, &look->key.hash, 1, &look->arena, &record, err);
    if (status == OK) {
        status = read_operation(store, look, record, err);
    }
    return said(status, err);
}

/* Run a look for one operation and hand it out. *ret_operation is NULL when there is none. */
static enum status look_one(
    struct look *look, struct once_operation **ret_operation, struct err *err)
{
    enum status status = look_run(look, err);
    if (status == OK && look->found.record != NULL) {
        *ret_operation = operation_new(&look->once->mem, &look->found);
        status = *ret_operation == NULL ? E_NOMEM : OK;
    }
    arena_release(&look->arena);
    return status;
}

static enum status get(struct once *once, const char *operation_id,
    struct once_operation **ret_operation, struct err *err)
{
    struct look look;
    enum status status = check_handle(once, ret_operation, err);
    if (status != OK) {
        return status;
    }
    *ret_operation = NULL;
    look_init(&look, once, read_by_id);
    if (!op_id_read(slice_str(operation_id), &look.id)) {
        return refuse_id(operation_id, err);
    }
    return look_one(&look, ret_operation, err);
}

int once_get(struct once *once, const char *operation_id, struct once_operation **ret_operation,
    struct once_error *error)
{
    struct err err = {0};
    return handle_say(error, get(once, operation_id, ret_operation, &err), &err);
}

int once_lookup(struct once *once, const char *scope, const char *principal, const char *key,
    struct once_operation **ret_operation, struct once_error *error)
{
    struct look look;
    struct err err = {0};
    enum status status = check_handle(once, ret_operation, &err);
    if (status == OK) {
        *ret_operation = NULL;
        look_init(&look, once, read_by_key);
        look.key = (struct record_key){.tenant = once->tenant,
            .scope = slice_str(scope),
            .principal = slice_str(principal),
            .key = slice_str(key)};
        status = record_key_seal(&look.key, &err);
    }
    if (status == OK) {
        status = look_one(&look, ret_operation, &err);
    }
    return handle_say(error, status, &err);
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

/* Sleep until something was settled since `seen`, or the moment has come. */
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
    uint64_t step = WAIT_STEP_MS_FIRST;
    for (;;) {
        uint64_t seen = settled_count(once);
        enum status status = get(once, operation_id, ret_operation, err);
        uint64_t now = clock_nanos();
        if (status != OK || *ret_operation == NULL ||
            (*ret_operation)->status != ONCE_STATUS_IN_PROGRESS || now >= deadline) {
            return status;
        }
        once_operation_free(once, *ret_operation);
        uint64_t until = now + step * nanos_per_ms;
        wait_settled(once, seen, until < deadline ? until : deadline);
        step = step < WAIT_STEP_MS_MAX / 2 ? step * 2 : WAIT_STEP_MS_MAX;
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
    return handle_say(error, status, &err);
}

/* ---- many operations ----------------------------------------------------------------------- */

static enum status read_page(struct store *store, struct engine_call *call, struct err *err)
{
    struct look *look = look_of(call);
    return said(
        store->ops->scan(store, &look->scan, &look->arena, look->records, &look->count, err), err);
}

static enum status take_filter(struct look *look, const struct once_filter *filter, struct err *err)
{
    look->scan.tenant = look->once->tenant;
    if (filter == NULL) {
        return OK;
    }
    if (filter->status != 0 &&
        (filter->status < ONCE_STATUS_IN_PROGRESS || filter->status > ONCE_COMPENSATED)) {
        return err_set(err, E_INVALID, "status is %d, which is none", (int)filter->status);
    }
    if (filter->updated_from_ms < 0 || filter->updated_until_ms < 0) {
        return err_set(err, E_INVALID, "updated_from_ms and updated_until_ms must be positive");
    }
    look->scan.scope = slice_str(filter->scope);
    look->scan.key = slice_str(filter->key);
    look->scan.status = (enum record_status)filter->status;
    look->scan.updated_from_ms = filter->updated_from_ms;
    look->scan.updated_until_ms = filter->updated_until_ms;
    return OK;
}

/* Show a page on the caller's thread, so that a visitor may call the library. */
static enum status visit_page(
    struct look *look, once_operation_visit visit, void *context, bool *ret_stop)
{
    for (size_t i = 0; i < look->count && !*ret_stop; i++) {
        struct operation_parts parts = {.record = look->records[i]};
        struct once_operation *operation = operation_new(&look->once->mem, &parts);
        if (operation == NULL) {
            return E_NOMEM;
        }
        *ret_stop = visit(context, operation) != 0;
        once_operation_free(look->once, operation);
    }
    return OK;
}

static enum status iterate(
    struct look *look, size_t limit, once_operation_visit visit, void *context, struct err *err)
{
    bool stop = false;
    size_t left = limit == 0 ? SIZE_MAX : limit;
    while (!stop && left > 0) {
        look->scan.limit = left < PAGE_RECORDS ? left : PAGE_RECORDS;
        look->count = 0;
        enum status status = look_run(look, err);
        if (status == OK) {
            status = visit_page(look, visit, context, &stop);
        }
        if (status != OK) {
            return status;
        }
        left -= look->count;
        if (look->count < look->scan.limit) {
            return OK;
        }
        look->scan.after = look->records[look->count - 1]->key.hash;
        arena_clear(&look->arena);
    }
    return OK;
}

int once_iterate(struct once *once, const struct once_filter *filter, once_operation_visit visit,
    void *context, struct once_error *error)
{
    struct err err = {0};
    struct look look;
    const struct record *records[PAGE_RECORDS];
    enum status status = check_visit(once, visit != NULL, &err);
    if (status == OK) {
        look_init(&look, once, read_page);
        look.records = records;
        status = take_filter(&look, filter, &err);
        if (status == OK) {
            status = iterate(&look, filter == NULL ? 0 : filter->limit, visit, context, &err);
        }
        arena_release(&look.arena);
    }
    return handle_say(error, status, &err);
}

/* ---- evidence ------------------------------------------------------------------------------ */

/* Keep an entry for the page; false when the page is full or memory is. */
static bool keep_entry(void *context, const struct entry *entry)
{
    struct look *look = context;
    if (entry->kind != ENTRY_EVIDENCE) {
        return true;
    }
    look->full = look->count == PAGE_ENTRIES ||
                 (look->count > 0 && look->entry_bytes + entry->bytes.len > PAGE_ENTRY_BYTES);
    if (look->full) {
        return false;
    }
    struct entry *kept = &look->entries[look->count];
    *kept = *entry;
    if (arena_copy(&look->arena, entry->bytes, &kept->bytes) != OK) {
        (void)err_set(&look->engine.err, E_NOMEM, "out of memory");
        return false;
    }
    look->entry_bytes += entry->bytes.len;
    look->count++;
    return true;
}

static enum status read_entries(struct store *store, struct engine_call *call, struct err *err)
{
    struct look *look = look_of(call);
    look->count = 0;
    look->entry_bytes = 0;
    look->full = false;
    ASSERT(err == &call->err); /* where keep_entry says that memory is short */
    enum status status = store->ops->entries(store, &look->range, keep_entry, look, err);
    return said(status == OK ? err->status : status, err);
}

/* P9: entries of other tenants are in the same chain, and not this handle's business. */
static enum status is_own_entry(struct once *once, struct slice json, bool *ret_own)
{
    struct arena tree;
    const struct json_value *value;
    arena_init(&tree, &once->mem, 64 * json.len + 65536);
    enum status status = json_read(json, &tree, &value, NULL);
    if (status == OK) {
        const struct json_value *tenant = json_find(value, SLICE_LIT("tenant_id"));
        *ret_own = json_is(tenant, JSON_STRING) && slice_equal(json_text(tenant), once->tenant);
    }
    arena_release(&tree);
    return status;
}

static enum status visit_entries(
    struct look *look, once_entry_visit visit, void *context, bool *ret_stop)
{
    for (size_t i = 0; i < look->count && !*ret_stop; i++) {
        const struct entry *entry = &look->entries[i];
        bool own = false;
        enum status status = is_own_entry(look->once, entry->bytes, &own);
        if (status != OK) {
            return status;
        }
        struct once_entry shown = {
            .seq = entry->seq,
            .time_ms = entry->time_ms,
            .json = {entry->bytes.data, entry->bytes.len},
        };
        memcpy(shown.hash, entry->hash.bytes, sizeof shown.hash);
        *ret_stop = own && visit(context, &shown) != 0;
    }
    return OK;
}

static enum status all_entries(
    struct look *look, once_entry_visit visit, void *context, struct err *err)
{
    bool stop = false;
    enum status status;
    do {
        arena_clear(&look->arena);
        status = look_run(look, err);
        if (status == OK && look->count > 0) {
            status = visit_entries(look, visit, context, &stop);
            look->range.after_seq = look->entries[look->count - 1].seq;
        }
    } while (status == OK && look->full && !stop);
    return status;
}

static enum status evidence(struct look *look, const char *operation_id, once_entry_visit visit,
    void *context, struct err *err)
{
    if (operation_id != NULL) {
        if (!op_id_read(slice_str(operation_id), &look->id)) {
            return refuse_id(operation_id, err);
        }
        look->range.operation_id = &look->id;
    }
    look->entries = mem_zalloc(&look->once->mem, PAGE_ENTRIES, sizeof *look->entries);
    if (look->entries == NULL) {
        return E_NOMEM;
    }
    enum status status = all_entries(look, visit, context, err);
    mem_free(&look->once->mem, look->entries);
    return status;
}

int once_evidence(struct once *once, const char *operation_id, uint64_t after_seq,
    once_entry_visit visit, void *context, struct once_error *error)
{
    struct err err = {0};
    struct look look;
    enum status status = check_visit(once, visit != NULL, &err);
    if (status == OK) {
        look_init(&look, once, read_entries);
        look.range.after_seq = after_seq;
        status = evidence(&look, operation_id, visit, context, &err);
        arena_release(&look.arena);
    }
    return handle_say(error, status, &err);
}
