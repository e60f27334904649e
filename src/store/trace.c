#include "store/trace.h"

#include <inttypes.h>
#include <stdio.h>

enum { TRACE_LINE_BYTES = 768 }; /* an error text and what failed */

struct trace {
    struct store store; /* first: the table's functions cast */
    const struct mem *mem;
    struct store *wrapped;
    trace_line line;
    void *context;
};

static struct trace *trace_of(struct store *store)
{
    return (struct trace *)store;
}

/* "what -> status: text". */
static enum status trace_say(
    struct trace *trace, const char *what, enum status status, const struct err *err)
{
    char line[TRACE_LINE_BYTES];
    bool told = status != OK && err != NULL;
    (void)snprintf(line, sizeof line, "%s -> %s%s%s", what, status_name(status), told ? ": " : "",
        told ? err->text : "");
    trace->line(trace->context, line);
    return status;
}

static enum status trace_load(struct store *store, const struct digest *hashes, size_t count,
    struct arena *arena, const struct record **ret_records, struct err *err)
{
    struct trace *trace = trace_of(store);
    enum status status =
        trace->wrapped->ops->load(trace->wrapped, hashes, count, arena, ret_records, err);
    size_t found = 0;
    for (size_t i = 0; status == OK && i < count; i++) {
        found += ret_records[i] != NULL;
    }
    char what[64];
    (void)snprintf(what, sizeof what, "load %zu, %zu found", count, found);
    return trace_say(trace, what, status, err);
}

static enum status trace_find(struct store *store, const struct op_id *id, struct arena *arena,
    const struct record **ret_record, struct err *err)
{
    struct trace *trace = trace_of(store);
    enum status status = trace->wrapped->ops->find(trace->wrapped, id, arena, ret_record, err);
    char text[OP_ID_TEXT_BYTES];
    char what[64];
    (void)snprintf(what, sizeof what, "find %s", op_id_put(text, id));
    return trace_say(trace, what, status, err);
}

static enum status trace_body(struct store *store, const struct body_ref *body, struct arena *arena,
    struct slice *ret_bytes, struct err *err)
{
    struct trace *trace = trace_of(store);
    enum status status = trace->wrapped->ops->body(trace->wrapped, body, arena, ret_bytes, err);
    char what[64];
    (void)snprintf(what, sizeof what, "body of %" PRIu64 " bytes", body->bytes);
    return trace_say(trace, what, status, err);
}

static enum status trace_commit(struct store *store, const struct commit *commit, struct err *err)
{
    struct trace *trace = trace_of(store);
    enum status status = trace->wrapped->ops->commit(trace->wrapped, commit, err);
    char what[64];
    (void)snprintf(what, sizeof what, "commit %zu changes", commit->count);
    return trace_say(trace, what, status, err);
}

static enum status trace_flush(struct store *store, struct err *err)
{
    struct trace *trace = trace_of(store);
    return trace_say(trace, "flush", trace->wrapped->ops->flush(trace->wrapped, err), err);
}

static enum status trace_fences(
    struct store *store, uint64_t count, uint64_t *ret_first, struct err *err)
{
    struct trace *trace = trace_of(store);
    enum status status = trace->wrapped->ops->fences(trace->wrapped, count, ret_first, err);
    char what[64];
    (void)snprintf(what, sizeof what, "fences %" PRIu64, count);
    return trace_say(trace, what, status, err);
}

static enum status trace_scan(struct store *store, const struct scan *scan, struct arena *arena,
    const struct record **ret_records, size_t *ret_count, struct err *err)
{
    struct trace *trace = trace_of(store);
    enum status status =
        trace->wrapped->ops->scan(trace->wrapped, scan, arena, ret_records, ret_count, err);
    char what[64];
    (void)snprintf(what, sizeof what, "scan for at most %zu", scan->limit);
    return trace_say(trace, what, status, err);
}

static enum status trace_due(struct store *store, int64_t now_ms, struct op_id *ret_ids,
    size_t limit, size_t *ret_count, struct err *err)
{
    struct trace *trace = trace_of(store);
    enum status status =
        trace->wrapped->ops->due(trace->wrapped, now_ms, ret_ids, limit, ret_count, err);
    char what[64];
    (void)snprintf(what, sizeof what, "due at %" PRId64, now_ms);
    return trace_say(trace, what, status, err);
}

static enum status trace_entries(struct store *store, const struct entry_range *range,
    entry_visit visit, void *context, struct err *err)
{
    struct trace *trace = trace_of(store);
    enum status status = trace->wrapped->ops->entries(trace->wrapped, range, visit, context, err);
    char what[64];
    (void)snprintf(what, sizeof what, "entries behind %" PRIu64, range->after_seq);
    return trace_say(trace, what, status, err);
}

static void trace_head(struct store *store, struct store_head *ret_head)
{
    struct trace *trace = trace_of(store);
    trace->wrapped->ops->head(trace->wrapped, ret_head);
    (void)trace_say(trace, "head", OK, NULL);
}

static void trace_identity(struct store *store, struct store_identity *ret_identity)
{
    struct trace *trace = trace_of(store);
    trace->wrapped->ops->identity(trace->wrapped, ret_identity);
    (void)trace_say(trace, "identity", OK, NULL);
}

static enum status trace_maintain(struct store *store, int64_t now_ms, struct err *err)
{
    struct trace *trace = trace_of(store);
    enum status status = trace->wrapped->ops->maintain(trace->wrapped, now_ms, err);
    char what[64];
    (void)snprintf(what, sizeof what, "maintain at %" PRId64, now_ms);
    return trace_say(trace, what, status, err);
}

static enum status trace_removable(
    struct store *store, int64_t now_ms, struct store_removable *ret_removable, struct err *err)
{
    struct trace *trace = trace_of(store);
    *ret_removable = (struct store_removable){0};
    if (trace->wrapped->ops->removable == NULL) {
        return OK;
    }
    enum status status = trace->wrapped->ops->removable(trace->wrapped, now_ms, ret_removable, err);
    char what[64];
    (void)snprintf(what, sizeof what, "removable at %" PRId64, now_ms);
    return trace_say(trace, what, status, err);
}

static enum status trace_remove(struct store *store, uint64_t place, struct err *err)
{
    struct trace *trace = trace_of(store);
    enum status status = trace->wrapped->ops->remove(trace->wrapped, place, err);
    char what[64];
    (void)snprintf(what, sizeof what, "remove %" PRIu64, place);
    return trace_say(trace, what, status, err);
}

static enum status trace_close(struct store *store, struct err *err)
{
    struct trace *trace = trace_of(store);
    enum status status = trace->wrapped->ops->close(trace->wrapped, err);
    (void)trace_say(trace, "close", status, err);
    mem_free(trace->mem, trace);
    return status;
}

static const struct store_ops trace_ops = {
    .name = "trace",
    .load = trace_load,
    .find = trace_find,
    .body = trace_body,
    .commit = trace_commit,
    .flush = trace_flush,
    .fences = trace_fences,
    .scan = trace_scan,
    .due = trace_due,
    .entries = trace_entries,
    .head = trace_head,
    .identity = trace_identity,
    .maintain = trace_maintain,
    .removable = trace_removable,
    .remove = trace_remove,
    .close = trace_close,
};

enum status trace_new(struct store *wrapped, const struct mem *mem, trace_line line, void *context,
    struct store **ret_store, struct err *err)
{
    mem = mem == NULL ? &mem_libc : mem;
    struct trace *trace = mem_zalloc(mem, 1, sizeof *trace);
    if (trace == NULL) {
        return err_set(err, E_NOMEM, "out of memory for a store");
    }
    trace->store.ops = &trace_ops;
    trace->mem = mem;
    trace->wrapped = wrapped;
    trace->line = line;
    trace->context = context;
    *ret_store = &trace->store;
    return OK;
}
