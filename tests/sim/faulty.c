#include "faulty.h"

static struct faulty *faulty_of(struct store *store)
{
    return (struct faulty *)store;
}

static struct store *inner_of(struct store *store)
{
    return faulty_of(store)->inner;
}

static enum fault_plan use_up(enum fault_plan *plan)
{
    enum fault_plan used = *plan;
    *plan = FAULT_NONE;
    return used;
}

static enum status faulty_load(struct store *store, const struct digest *hashes, size_t count,
    struct arena *arena, const struct record **ret_records, struct err *err)
{
    if (use_up(&faulty_of(store)->load) != FAULT_NONE) {
        return err_set(err, E_UNAVAILABLE, "planned: load");
    }
    struct store *inner = inner_of(store);
    return inner->ops->load(inner, hashes, count, arena, ret_records, err);
}

static enum status faulty_find(struct store *store, const struct op_id *id, struct arena *arena,
    const struct record **ret_record, struct err *err)
{
    struct store *inner = inner_of(store);
    return inner->ops->find(inner, id, arena, ret_record, err);
}

static enum status faulty_body(struct store *store, const struct body_ref *body,
    struct arena *arena, struct slice *ret_bytes, struct err *err)
{
    struct store *inner = inner_of(store);
    return inner->ops->body(inner, body, arena, ret_bytes, err);
}

static enum status faulty_commit(struct store *store, const struct commit *commit, struct err *err)
{
    enum fault_plan plan = use_up(&faulty_of(store)->commit);
    struct store *inner = inner_of(store);
    enum status status = OK;
    if (plan == FAULT_UNAVAILABLE) {
        return err_set(err, E_UNAVAILABLE, "planned: commit");
    }
    if (plan != FAULT_UNKNOWN_NOT) {
        status = inner->ops->commit(inner, commit, err);
    }
    return plan == FAULT_NONE || status != OK ? status : err_set(err, E_UNKNOWN, "planned: commit");
}

static enum status faulty_flush(struct store *store, struct err *err)
{
    enum fault_plan plan = use_up(&faulty_of(store)->flush);
    struct store *inner = inner_of(store);
    enum status status = OK;
    if (plan == FAULT_NONE || plan == FAULT_UNKNOWN_DONE) {
        status = inner->ops->flush(inner, err);
    }
    return plan == FAULT_NONE ? status : err_set(err, E_UNKNOWN, "planned: flush");
}

static enum status faulty_fences(
    struct store *store, uint64_t count, uint64_t *ret_first, struct err *err)
{
    struct store *inner = inner_of(store);
    return inner->ops->fences(inner, count, ret_first, err);
}

static enum status faulty_scan(struct store *store, const struct scan *scan, struct arena *arena,
    const struct record **ret_records, size_t *ret_count, struct err *err)
{
    struct store *inner = inner_of(store);
    return inner->ops->scan(inner, scan, arena, ret_records, ret_count, err);
}

static enum status faulty_due(struct store *store, int64_t now_ms, struct op_id *ret_ids,
    size_t limit, size_t *ret_count, struct err *err)
{
    struct store *inner = inner_of(store);
    return inner->ops->due(inner, now_ms, ret_ids, limit, ret_count, err);
}

static enum status faulty_entries(struct store *store, const struct entry_range *range,
    entry_visit visit, void *context, struct err *err)
{
    struct store *inner = inner_of(store);
    return inner->ops->entries(inner, range, visit, context, err);
}

static void faulty_head(struct store *store, struct store_head *ret_head)
{
    inner_of(store)->ops->head(inner_of(store), ret_head);
}

static void faulty_identity(struct store *store, struct store_identity *ret_identity)
{
    inner_of(store)->ops->identity(inner_of(store), ret_identity);
}

static enum status faulty_maintain(struct store *store, int64_t now_ms, struct err *err)
{
    struct store *inner = inner_of(store);
    return inner->ops->maintain(inner, now_ms, err);
}

static enum status faulty_close(struct store *store, struct err *err)
{
    struct store *inner = inner_of(store);
    return inner->ops->close(inner, err);
}

static const struct store_ops faulty_ops = {
    .name = "faulty",
    .load = faulty_load,
    .find = faulty_find,
    .body = faulty_body,
    .commit = faulty_commit,
    .flush = faulty_flush,
    .fences = faulty_fences,
    .scan = faulty_scan,
    .due = faulty_due,
    .entries = faulty_entries,
    .head = faulty_head,
    .identity = faulty_identity,
    .maintain = faulty_maintain,
    .close = faulty_close,
};

void faulty_init(struct faulty *faulty, struct store *inner)
{
    *faulty = (struct faulty){.store = {&faulty_ops}, .inner = inner};
}
