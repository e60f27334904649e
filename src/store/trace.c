#include "store/trace.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/macros.h"
#include "store/wrap.h"

enum { TRACE_LINE_BYTES = 768 }; /* an error text and what failed */

struct trace {
    struct store store;
    const struct mem *mem;
    struct store_ops ops; /* the table, as far as the wrapped store has it */
    struct store_housekeeping housekeeping;
    struct store *wrapped;
    trace_line line;
    void *context;
};

static struct trace *trace_of(struct store *store)
{
    return CONTAINER_OF(store, struct trace, store);
}

/* "what detail -> status: text". */
static enum status trace_say(struct trace *trace, const char *what, const char *detail,
    enum status status, const struct err *err)
{
    char line[TRACE_LINE_BYTES];
    bool failed = status != OK && err != NULL;
    (void)snprintf(line, sizeof line, "%s%s -> %s%s%s", what, detail, status_name(status),
        failed ? ": " : "", failed ? err->text : "");
    trace->line(trace->context, line);
    return status;
}

/* Details of a call besides its name, after it was made. */
static void put_batch(char *text, size_t size, const struct store_batch *batch)
{
    size_t found = 0;
    size_t bodies = 0;
    for (size_t i = 0; i < batch->count; i++) {
        const struct store_want *want = &batch->wants[i];
        found += want->record != NULL;
        bodies += want->outcome.len > 0;
        bodies += want->request.len > 0;
    }
    (void)snprintf(text, size, " %zu, %zu found, %zu bodies, %" PRIu64 " fences", batch->count,
        found, bodies, batch->fences);
}

#define TELL_PREPARE put_batch(text, sizeof text, batch)
#define TELL_READ    put_batch(text, sizeof text, batch)
#define TELL_COMMIT  (void)snprintf(text, sizeof text, " %zu changes", commit->count)
#define TELL_FLUSH   text[0] = '\0'
#define TELL_SCAN    (void)snprintf(text, sizeof text, " for at most %zu", scan->limit)
#define TELL_DUE                                                                                   \
    (void)snprintf(text, sizeof text, " of kinds %#x, at most %zu", filter->kinds, limit)
#define TELL_ENTRIES   (void)snprintf(text, sizeof text, " after %" PRIu64, range->after.seq)
#define TELL_COUNTS    (void)snprintf(text, sizeof text, " of kinds %#x", kinds)
#define TELL_SETTLE    (void)snprintf(text, sizeof text, " %" PRIu64, number)
#define TELL_BEAT      (void)snprintf(text, sizeof text, " of %" PRIu64, incarnation)
#define TELL_CHAINS    text[0] = '\0'
#define TELL_MAINTAIN  text[0] = '\0'
#define TELL_REMOVABLE text[0] = '\0'
#define TELL_REMOVE    (void)snprintf(text, sizeof text, " %" PRIu64, place)

#define TRACE_AROUND(number, table, member, parameters, arguments)                                 \
    static enum status trace_##member parameters                                                   \
    {                                                                                              \
        struct trace *trace = trace_of(store);                                                     \
        struct store *wrapped = trace->wrapped;                                                    \
        char text[96];                                                                             \
        enum status status = wrapped->ops->table member arguments;                                 \
        TELL_##number;                                                                             \
        return trace_say(trace, #member, text, status, err);                                       \
    }
#define TRACE_CALL(number, member, parameters, arguments)                                          \
    TRACE_AROUND(number, , member, parameters, arguments)
#define TRACE_DUTY(number, member, parameters, arguments)                                          \
    TRACE_AROUND(number, housekeeping->, member, parameters, arguments)
STORE_CALLS(TRACE_CALL)
STORE_SHARED_CALLS(TRACE_CALL)
STORE_HOUSEKEEPING_CALLS(TRACE_DUTY)

static void trace_abort(struct store *store)
{
    struct trace *trace = trace_of(store);
    trace->wrapped->ops->abort(trace->wrapped);
    (void)trace_say(trace, "abort", "", OK, NULL);
}

static void trace_head(struct store *store, struct store_head *ret_head)
{
    struct trace *trace = trace_of(store);
    trace->wrapped->ops->head(trace->wrapped, ret_head);
    (void)trace_say(trace, "head", "", OK, NULL);
}

static void trace_identity(
    struct store *store, struct store_identity *ret_identity, struct store_shared *ret_shared)
{
    struct trace *trace = trace_of(store);
    trace->wrapped->ops->identity(trace->wrapped, ret_identity, ret_shared);
    (void)trace_say(trace, "identity", "", OK, NULL);
}

static enum status trace_close(struct store *store, struct err *err)
{
    struct trace *trace = trace_of(store);
    enum status status = trace->wrapped->ops->close(trace->wrapped, err);
    (void)trace_say(trace, "close", "", status, err);
    mem_free(trace->mem, trace);
    return status;
}

/* Readers are not traced: they are not on the store's thread. */
static enum status trace_open_reader(
    struct store *store, struct store **ret_reader, struct err *err)
{
    struct trace *trace = trace_of(store);
    enum status status = trace->wrapped->ops->open_reader(trace->wrapped, ret_reader, err);
    return trace_say(trace, "open_reader", "", status, err);
}

static void trace_listen(struct store *store, store_notice notice, void *context)
{
    struct trace *trace = trace_of(store);
    trace->wrapped->ops->listen(trace->wrapped, notice, context);
    (void)trace_say(trace, "listen", "", OK, NULL);
}

static const char *trace_caution(struct store *store, size_t number)
{
    struct store *wrapped = trace_of(store)->wrapped;
    return wrapped->ops->caution(wrapped, number);
}

static bool trace_is_marked(struct store *store)
{
    struct store *wrapped = trace_of(store)->wrapped;
    return wrapped->ops->soon->is_marked(wrapped);
}

static enum status trace_mark(struct store *store, bool on, struct err *err)
{
    struct trace *trace = trace_of(store);
    enum status status = trace->wrapped->ops->soon->mark(trace->wrapped, on, err);
    return trace_say(trace, on ? "mark" : "unmark", "", status, err);
}

static const struct store_soon trace_soon = {.is_marked = trace_is_marked, .mark = trace_mark};

/* The housekeeping functions of the wrapped store; no table if it has none. */
static void trace_duties(struct trace *trace, const struct store_housekeeping *wrapped)
{
    if (wrapped != NULL) {
        trace->housekeeping = (struct store_housekeeping){
            .maintain = trace_maintain,
            .removable = wrapped->removable == NULL ? NULL : trace_removable,
            .remove = wrapped->remove == NULL ? NULL : trace_remove,
        };
        trace->ops.housekeeping = &trace->housekeeping;
    }
}

static const struct store_ops trace_ops = {
    .name = "trace",
    .prepare = trace_prepare,
    .commit = trace_commit,
    .abort = trace_abort,
    .flush = trace_flush,
    .read = trace_read,
    .scan = trace_scan,
    .due = trace_due,
    .entries = trace_entries,
    .counts = trace_counts,
    .head = trace_head,
    .identity = trace_identity,
    .close = trace_close,
    .open_reader = trace_open_reader,
    .settle = trace_settle,
    .beat = trace_beat,
    .listen = trace_listen,
    .chains = trace_chains,
    .caution = trace_caution,
    .soon = &trace_soon,
};

enum status trace_new(struct store *wrapped, const struct mem *mem, trace_line line, void *context,
    struct store **ret_store, struct err *err)
{
    mem = mem == NULL ? &mem_libc : mem;
    struct trace *trace = mem_zalloc(mem, 1, sizeof *trace);
    if (trace == NULL) {
        return err_set(err, E_NOMEM, "out of memory for a store");
    }
    trace->ops = trace_ops;
    store_ops_limit(&trace->ops, wrapped->ops);
    trace_duties(trace, wrapped->ops->housekeeping);
    trace->store.ops = &trace->ops;
    trace->mem = mem;
    trace->wrapped = wrapped;
    trace->line = line;
    trace->context = context;
    *ret_store = &trace->store;
    return OK;
}
