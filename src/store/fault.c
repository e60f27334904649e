#include "store/fault.h"

#include "base/check.h"
#include "base/macros.h"

struct fault_point {
    uint64_t calls;     /* so far */
    uint64_t at;        /* fail when calls reaches this; 0: never */
    enum status status; /* with this */
    enum fault_when when;
    void (*hook)(void *context); /* before each call; NULL: none */
    void *context;
};

struct fault {
    struct store store;
    const struct mem *mem;
    struct store *wrapped;
    struct store_ops ops; /* the table, as far as the wrapped store has it */
    struct fault_point points[STORE_CALL_COUNT];
    uint64_t aborts; /* so far */
};

const char *store_call_name(enum store_call call)
{
    static const char *const names[STORE_CALL_COUNT] = {
#define FAULT_NAME(number, member, parameters, arguments) [STORE_CALL_##number] = #member,
        STORE_CALLS(FAULT_NAME) STORE_SHARED_CALLS(FAULT_NAME) STORE_HOUSEKEEPING_CALLS(FAULT_NAME)
#undef FAULT_NAME
            [STORE_CALL_CLOSE] = "close",
    };
    ASSERT((unsigned)call < STORE_CALL_COUNT);
    return names[call];
}

static struct fault *self_of(struct store *store)
{
    return CONTAINER_OF(store, struct fault, store);
}

/* Counts the call. NULL: pass it on; otherwise the fault that strikes it. */
static const struct fault_point *fault_strikes(struct fault *fault, enum store_call call)
{
    struct fault_point *point = &fault->points[call];
    point->calls++;
    if (point->hook != NULL) {
        point->hook(point->context);
    }
    return point->at != 0 && point->calls == point->at ? point : NULL;
}

static enum status fault_say(const struct fault_point *point, enum store_call call, struct err *err)
{
    return err_set(err, point->status, "planted fault %s %s number %llu",
        point->when == FAULT_BEFORE ? "before" : "after", store_call_name(call),
        (unsigned long long)point->at);
}

/* A failed prepare leaves nothing prepared, and a commit always ends a prepared batch. */
static void fault_settle(const struct fault *fault, enum store_call call, enum fault_when when)
{
    if ((call == STORE_CALL_PREPARE && when == FAULT_AFTER) ||
        (call == STORE_CALL_COMMIT && when == FAULT_BEFORE)) {
        fault->wrapped->ops->abort(fault->wrapped);
    }
}

/* Runs the call unless the fault comes before it; fails it if the fault comes after. */
#define FAULT_AROUND(number, table, member, parameters, arguments)                                 \
    static enum status fault_inner_##member parameters                                             \
    {                                                                                              \
        struct fault *fault = self_of(store);                                                      \
        const struct fault_point *point = fault_strikes(fault, STORE_CALL_##number);               \
        if (point != NULL && point->when == FAULT_BEFORE) {                                        \
            fault_settle(fault, STORE_CALL_##number, FAULT_BEFORE);                                \
            return fault_say(point, STORE_CALL_##number, err);                                     \
        }                                                                                          \
        struct store *wrapped = fault->wrapped;                                                    \
        enum status status = wrapped->ops->table member arguments;                                 \
        if (status == OK && point != NULL) {                                                       \
            fault_settle(fault, STORE_CALL_##number, FAULT_AFTER);                                 \
            return fault_say(point, STORE_CALL_##number, err);                                     \
        }                                                                                          \
        return status;                                                                             \
    }
#define FAULT_CALL(number, member, parameters, arguments)                                          \
    FAULT_AROUND(number, , member, parameters, arguments)
#define FAULT_DUTY(number, member, parameters, arguments)                                          \
    FAULT_AROUND(number, housekeeping->, member, parameters, arguments)
STORE_CALLS(FAULT_CALL)
STORE_SHARED_CALLS(FAULT_CALL)
STORE_HOUSEKEEPING_CALLS(FAULT_DUTY)

/* A fault that makes changes stale waits for a commit that expects versions. */
static enum status fault_commit(struct store *store, const struct commit *commit, struct err *err)
{
    struct fault_point *point = &self_of(store)->points[STORE_CALL_COMMIT];
    bool strikes = point->at == point->calls + 1 && point->status == E_STALE;
    bool any = false;
    for (size_t i = 0; strikes && i < commit->count; i++) {
        bool stale = change_key(&commit->changes[i]) != NULL;
        any = any || stale;
        if (commit->ret_stale != NULL) {
            commit->ret_stale[i] = stale;
        }
    }
    point->at += strikes && !any;
    return fault_inner_commit(store, commit, err);
}

static void fault_abort(struct store *store)
{
    struct fault *fault = self_of(store);
    fault->aborts++;
    fault->wrapped->ops->abort(fault->wrapped);
}

static enum status fault_maintain(struct store *store, struct err *err)
{
    const struct store *wrapped = self_of(store)->wrapped;
    return wrapped->ops->housekeeping == NULL ? OK : fault_inner_maintain(store, err);
}

static enum status fault_removable(
    struct store *store, struct store_removable *ret_removable, struct err *err)
{
    const struct store_housekeeping *duties = self_of(store)->wrapped->ops->housekeeping;
    *ret_removable = (struct store_removable){0};
    return duties == NULL || duties->removable == NULL
               ? OK
               : fault_inner_removable(store, ret_removable, err);
}

static void fault_head(struct store *store, struct store_head *ret_head)
{
    struct fault *fault = self_of(store);
    fault->wrapped->ops->head(fault->wrapped, ret_head);
}

static void fault_identity(
    struct store *store, struct store_identity *ret_identity, struct store_shared *ret_shared)
{
    struct fault *fault = self_of(store);
    fault->wrapped->ops->identity(fault->wrapped, ret_identity, ret_shared);
}

/* The wrapped store is closed whatever is returned: the caller has nothing left to close. */
static enum status fault_close(struct store *store, struct err *err)
{
    struct fault *fault = self_of(store);
    const struct fault_point *point = fault_strikes(fault, STORE_CALL_CLOSE);
    enum status status = fault->wrapped->ops->close(fault->wrapped, err);
    if (status == OK && point != NULL) {
        status = fault_say(point, STORE_CALL_CLOSE, err);
    }
    mem_free(fault->mem, fault);
    return status;
}

static enum status fault_open_reader(
    struct store *store, struct store **ret_reader, struct err *err)
{
    struct store *wrapped = self_of(store)->wrapped;
    return wrapped->ops->open_reader(wrapped, ret_reader, err);
}

static void fault_listen(struct store *store, store_notice notice, void *context)
{
    struct store *wrapped = self_of(store)->wrapped;
    wrapped->ops->listen(wrapped, notice, context);
}

static const char *fault_caution(struct store *store, size_t number)
{
    struct store *wrapped = self_of(store)->wrapped;
    return wrapped->ops->caution(wrapped, number);
}

static bool fault_is_marked(struct store *store)
{
    struct store *wrapped = self_of(store)->wrapped;
    return wrapped->ops->soon->is_marked(wrapped);
}

static enum status fault_mark(struct store *store, bool on, struct err *err)
{
    struct store *wrapped = self_of(store)->wrapped;
    return wrapped->ops->soon->mark(wrapped, on, err);
}

static const struct store_soon fault_soon = {.is_marked = fault_is_marked, .mark = fault_mark};

static const struct store_housekeeping fault_housekeeping = {
    .maintain = fault_maintain,
    .removable = fault_removable,
    .remove = fault_inner_remove,
};

static const struct store_ops fault_ops = {
    .name = "fault",
    .prepare = fault_inner_prepare,
    .commit = fault_commit,
    .abort = fault_abort,
    .flush = fault_inner_flush,
    .read = fault_inner_read,
    .scan = fault_inner_scan,
    .due = fault_inner_due,
    .entries = fault_inner_entries,
    .counts = fault_inner_counts,
    .head = fault_head,
    .identity = fault_identity,
    .close = fault_close,
    .open_reader = fault_open_reader,
    .settle = fault_inner_settle,
    .beat = fault_inner_beat,
    .listen = fault_listen,
    .chains = fault_inner_chains,
    .caution = fault_caution,
    .soon = &fault_soon,
    .housekeeping = &fault_housekeeping,
};

enum status fault_new(
    struct store *wrapped, const struct mem *mem, struct store **ret_store, struct err *err)
{
    mem = mem == NULL ? &mem_libc : mem;
    struct fault *fault = mem_zalloc(mem, 1, sizeof *fault);
    if (fault == NULL) {
        return err_set(err, E_NOMEM, "out of memory for a store");
    }
    fault->ops = fault_ops;
    store_ops_limit(&fault->ops, wrapped->ops);
    fault->store.ops = &fault->ops;
    fault->mem = mem;
    fault->wrapped = wrapped;
    *ret_store = &fault->store;
    return OK;
}

/* For callers that may pass any store. */
static struct fault *fault_of(struct store *store)
{
    ASSERT(store->ops->commit == fault_commit);
    return self_of(store);
}

struct store *fault_take(struct store *store)
{
    struct fault *fault = fault_of(store);
    struct store *wrapped = fault->wrapped;
    mem_free(fault->mem, fault);
    return wrapped;
}

void fault_arm(struct store *store, enum store_call call, uint64_t nth, enum status status,
    enum fault_when when)
{
    ASSERT(status != OK || nth == 0);
    struct fault_point *point = &fault_of(store)->points[call];
    point->at = nth == 0 ? 0 : point->calls + nth;
    point->status = status;
    point->when = when;
}

void fault_hook(
    struct store *store, enum store_call call, void (*hook)(void *context), void *context)
{
    struct fault_point *point = &fault_of(store)->points[call];
    point->hook = hook;
    point->context = context;
}

bool fault_is_armed(const struct store *store, enum store_call call)
{
    ASSERT(store->ops->commit == fault_commit);
    const struct fault_point *point = &((const struct fault *)store)->points[call];
    return point->at > point->calls;
}

uint64_t fault_calls(const struct store *store, enum store_call call)
{
    ASSERT(store->ops->commit == fault_commit);
    return ((const struct fault *)store)->points[call].calls;
}

uint64_t fault_aborts(const struct store *store)
{
    ASSERT(store->ops->commit == fault_commit);
    return ((const struct fault *)store)->aborts;
}
