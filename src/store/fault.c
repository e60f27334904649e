#include "store/fault.h"

#include "base/check.h"

struct fault_point {
    uint64_t calls;     /* so far */
    uint64_t at;        /* fail when calls reaches this; 0: never */
    enum status status; /* with this */
    enum fault_when when;
};

struct fault {
    struct store store; /* first: the table's functions cast */
    const struct mem *mem;
    struct store *wrapped;
    struct fault_point points[STORE_CALL_COUNT];
};

const char *store_call_name(enum store_call call)
{
    static const char *const names[STORE_CALL_COUNT] = {
        [STORE_CALL_LOAD] = "load",
        [STORE_CALL_FIND] = "find",
        [STORE_CALL_BODY] = "body",
        [STORE_CALL_COMMIT] = "commit",
        [STORE_CALL_FLUSH] = "flush",
        [STORE_CALL_FENCES] = "fences",
        [STORE_CALL_SCAN] = "scan",
        [STORE_CALL_DUE] = "due",
        [STORE_CALL_ENTRIES] = "entries",
        [STORE_CALL_MAINTAIN] = "maintain",
        [STORE_CALL_REMOVE] = "remove",
        [STORE_CALL_CLOSE] = "close",
    };
    return names[call];
}

/* Count the call. NULL: let it through; otherwise the fault that strikes it. */
static const struct fault_point *fault_strikes(struct fault *fault, enum store_call call)
{
    struct fault_point *point = &fault->points[call];
    point->calls++;
    return point->at != 0 && point->calls == point->at ? point : NULL;
}

static enum status fault_say(const struct fault_point *point, enum store_call call, struct err *err)
{
    return err_set(err, point->status, "planted fault %s %s number %llu",
        point->when == FAULT_BEFORE ? "before" : "after", store_call_name(call),
        (unsigned long long)point->at);
}

/* Run the call unless the fault comes before it; fail it if the fault comes after. */
#define FAULT_AROUND(store, call, expression)                                                      \
    do {                                                                                           \
        struct fault *fault = (struct fault *)(store);                                             \
        const struct fault_point *point = fault_strikes(fault, call);                              \
        if (point != NULL && point->when == FAULT_BEFORE) {                                        \
            return fault_say(point, call, err);                                                    \
        }                                                                                          \
        struct store *wrapped = fault->wrapped;                                                    \
        enum status status = wrapped->ops->expression;                                             \
        return status == OK && point != NULL ? fault_say(point, call, err) : status;               \
    } while (0)

static enum status fault_load(struct store *store, const struct digest *hashes, size_t count,
    struct arena *arena, const struct record **ret_records, struct err *err)
{
    FAULT_AROUND(store, STORE_CALL_LOAD, load(wrapped, hashes, count, arena, ret_records, err));
}

static enum status fault_find(struct store *store, const struct op_id *id, struct arena *arena,
    const struct record **ret_record, struct err *err)
{
    FAULT_AROUND(store, STORE_CALL_FIND, find(wrapped, id, arena, ret_record, err));
}

static enum status fault_body(struct store *store, const struct body_ref *body, struct arena *arena,
    struct slice *ret_bytes, struct err *err)
{
    FAULT_AROUND(store, STORE_CALL_BODY, body(wrapped, body, arena, ret_bytes, err));
}

static enum status fault_commit(struct store *store, const struct commit *commit, struct err *err)
{
    FAULT_AROUND(store, STORE_CALL_COMMIT, commit(wrapped, commit, err));
}

static enum status fault_flush(struct store *store, struct err *err)
{
    FAULT_AROUND(store, STORE_CALL_FLUSH, flush(wrapped, err));
}

static enum status fault_fences(
    struct store *store, uint64_t count, uint64_t *ret_first, struct err *err)
{
    FAULT_AROUND(store, STORE_CALL_FENCES, fences(wrapped, count, ret_first, err));
}

static enum status fault_scan(struct store *store, const struct scan *scan, struct arena *arena,
    const struct record **ret_records, size_t *ret_count, struct err *err)
{
    FAULT_AROUND(store, STORE_CALL_SCAN, scan(wrapped, scan, arena, ret_records, ret_count, err));
}

static enum status fault_due(struct store *store, int64_t now_ms, struct op_id *ret_ids,
    size_t limit, size_t *ret_count, struct err *err)
{
    FAULT_AROUND(store, STORE_CALL_DUE, due(wrapped, now_ms, ret_ids, limit, ret_count, err));
}

static enum status fault_entries(struct store *store, const struct entry_range *range,
    entry_visit visit, void *context, struct err *err)
{
    FAULT_AROUND(store, STORE_CALL_ENTRIES, entries(wrapped, range, visit, context, err));
}

static void fault_head(struct store *store, struct store_head *ret_head)
{
    struct fault *fault = (struct fault *)store;
    fault->wrapped->ops->head(fault->wrapped, ret_head);
}

static void fault_identity(struct store *store, struct store_identity *ret_identity)
{
    struct fault *fault = (struct fault *)store;
    fault->wrapped->ops->identity(fault->wrapped, ret_identity);
}

static enum status fault_maintain(struct store *store, int64_t now_ms, struct err *err)
{
    FAULT_AROUND(store, STORE_CALL_MAINTAIN, maintain(wrapped, now_ms, err));
}

static enum status fault_removable(
    struct store *store, int64_t now_ms, struct store_removable *ret_removable, struct err *err)
{
    struct store *wrapped = ((struct fault *)store)->wrapped;
    *ret_removable = (struct store_removable){0};
    return wrapped->ops->removable == NULL
               ? OK
               : wrapped->ops->removable(wrapped, now_ms, ret_removable, err);
}

static enum status fault_remove(struct store *store, uint64_t place, struct err *err)
{
    FAULT_AROUND(store, STORE_CALL_REMOVE, remove(wrapped, place, err));
}

/* The wrapped store is closed whatever is said: the caller has nothing left to close. */
static enum status fault_close(struct store *store, struct err *err)
{
    struct fault *fault = (struct fault *)store;
    const struct fault_point *point = fault_strikes(fault, STORE_CALL_CLOSE);
    enum status status = fault->wrapped->ops->close(fault->wrapped, err);
    if (status == OK && point != NULL) {
        status = fault_say(point, STORE_CALL_CLOSE, err);
    }
    mem_free(fault->mem, fault);
    return status;
}

static const struct store_ops fault_ops = {
    .name = "fault",
    .load = fault_load,
    .find = fault_find,
    .body = fault_body,
    .commit = fault_commit,
    .flush = fault_flush,
    .fences = fault_fences,
    .scan = fault_scan,
    .due = fault_due,
    .entries = fault_entries,
    .head = fault_head,
    .identity = fault_identity,
    .maintain = fault_maintain,
    .removable = fault_removable,
    .remove = fault_remove,
    .close = fault_close,
};

enum status fault_new(
    struct store *wrapped, const struct mem *mem, struct store **ret_store, struct err *err)
{
    mem = mem == NULL ? &mem_libc : mem;
    struct fault *fault = mem_zalloc(mem, 1, sizeof *fault);
    if (fault == NULL) {
        return err_set(err, E_NOMEM, "out of memory for a store");
    }
    fault->store.ops = &fault_ops;
    fault->mem = mem;
    fault->wrapped = wrapped;
    *ret_store = &fault->store;
    return OK;
}

void fault_arm(struct store *store, enum store_call call, uint64_t nth, enum status status,
    enum fault_when when)
{
    ASSERT(store->ops == &fault_ops);
    ASSERT(status != OK || nth == 0);
    struct fault_point *point = &((struct fault *)store)->points[call];
    point->at = nth == 0 ? 0 : point->calls + nth;
    point->status = status;
    point->when = when;
}

uint64_t fault_calls(const struct store *store, enum store_call call)
{
    ASSERT(store->ops == &fault_ops);
    return ((const struct fault *)store)->points[call].calls;
}
