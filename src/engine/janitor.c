#include "engine/janitor.h"

#include "base/check.h"
#include "base/limits.h"

enum {
    MAINTAIN_EVERY_MS = 5,
    LEASES_EVERY_MS = 500,
    CHECKPOINT_EVERY_MS = 60000,
    ARCHIVE_EVERY_MS = 60000,
    UNKNOWN_EVERY_MS = 100,
    UNKNOWN_LOOKS = 40000, /* keys in one piece: a fraction of a millisecond, 10 M keys in 25 s */
    UNKNOWN_READS = 64,    /* unknown records read in one piece: likewise */
    UNKNOWN_ARENA_BYTES_MAX = 4 << 20,  /* so many records at their limits */
    JANITOR_ARENA_BYTES_MAX = 64 << 10, /* one record at its limits */
};

enum status janitor_init(struct janitor *janitor, struct cycle *cycle,
    const struct store_identity *identity, const struct engine_options *options, struct err *err)
{
    (void)err;
    janitor->cycle = cycle;
    janitor->identity = identity;
    janitor->checkpoint_every_ms =
        options->checkpoint_every_ms > 0 ? options->checkpoint_every_ms : CHECKPOINT_EVERY_MS;
    janitor->checkpoint_seq = cycle->chain.seq;
    for (size_t i = 0; i < JANITOR_CALLS; i++) {
        arena_init(&janitor->arenas[i], cycle->mem, JANITOR_ARENA_BYTES_MAX);
    }
    arena_init(&janitor->unknown_arena, cycle->mem, UNKNOWN_ARENA_BYTES_MAX);
    return OK;
}

void janitor_release(struct janitor *janitor)
{
    for (size_t i = 0; i < JANITOR_CALLS; i++) {
        arena_release(&janitor->arenas[i]);
    }
    arena_release(&janitor->unknown_arena);
}

/* Runs behind a flush. A failure needs no word here: the engine stopped, or the lease is still
 * over the next time. */
static void lease_done(struct engine_call *call)
{
    struct janitor *janitor = call->context;
    atomic_fetch_sub_explicit(&janitor->in_flight, 1, memory_order_release);
}

/* A failure that ends the engine; a store that is short of space or memory is asked again. */
static enum status fatal_only(enum status status, struct err *err)
{
    if (status == E_UNKNOWN || status == E_CORRUPT) {
        return status;
    }
    err_clear(err);
    return OK;
}

static enum status settle_leases(
    struct janitor *janitor, struct engine_call **calls, size_t *count, struct err *err)
{
    if (atomic_load_explicit(&janitor->in_flight, memory_order_acquire) > 0) {
        return OK; /* the last round is still being flushed */
    }
    struct store_due dues[JANITOR_CALLS];
    struct store *store = janitor->cycle->store;
    size_t room = LIMIT_BATCH_REQUESTS_MAX - *count;
    size_t found = 0;
    enum status status = store->ops->due(
        store, STORE_KINDS_ASKED, dues, room < JANITOR_CALLS ? room : JANITOR_CALLS, &found, err);
    if (status != OK) {
        return fatal_only(status, err);
    }
    size_t over = 0; /* of leases; nobody waits for other dues yet */
    for (size_t i = 0; i < found; i++) {
        dues[over] = dues[i];
        over += dues[i].reason == RECORD_DUE_LEASE_OVER;
    }
    atomic_store_explicit(&janitor->in_flight, over, memory_order_relaxed);
    for (size_t i = 0; i < over; i++) {
        arena_clear(&janitor->arenas[i]);
        janitor->calls[i] = (struct engine_call){
            .request = {.kind = REQUEST_LEASE_OVER, .operation_id = dues[i].operation_id},
            .arena = &janitor->arenas[i],
            .context = janitor,
            .done = lease_done,
        };
        calls[(*count)++] = &janitor->calls[i];
    }
    return OK;
}

/* Sign how far the evidence has come, when it has come further since the last time. */
static enum status sign_checkpoint(struct janitor *janitor, struct err *err)
{
    struct cycle *cycle = janitor->cycle;
    if (cycle->chain.seq == janitor->checkpoint_seq) {
        return OK;
    }
    enum status status = cycle_checkpoint(cycle, janitor->identity, err);
    if (status == OK) {
        janitor->checkpoint_seq = cycle->chain.seq;
    }
    return fatal_only(status, err);
}

static void note_unknown(struct janitor *janitor, int64_t updated_ms)
{
    int64_t *min_ms = &janitor->unknown_min_ms;
    *min_ms = *min_ms == 0 || updated_ms < *min_ms ? updated_ms : *min_ms;
    /* An older one holds at once; that the oldest is gone shows when the sweep is over. */
    if (janitor->unknown_since_ms == 0 || *min_ms < janitor->unknown_since_ms) {
        janitor->unknown_since_ms = *min_ms;
    }
}

/* A piece of the sweep for the oldest unknown operation. */
static enum status look_for_unknown(struct janitor *janitor, struct err *err)
{
    struct store *store = janitor->cycle->store;
    struct store_batch stand = {.count = 0};
    enum status status = store->ops->read(store, &stand, err);
    if (status != OK) {
        return fatal_only(status, err);
    }
    janitor->cycle->counts = stand.counts;
    janitor->cycle->now_ms = stand.now_ms;
    janitor->cycle->clock_held = stand.clock_held;
    if (stand.counts.by_status[RECORD_UNKNOWN] == 0) {
        janitor->unknown_after = (struct digest){{0}};
        janitor->unknown_min_ms = 0;
        janitor->unknown_since_ms = 0;
        return OK;
    }
    const struct record *records[UNKNOWN_READS];
    struct scan_pace pace = {.looks_max = UNKNOWN_LOOKS, .reads_max = UNKNOWN_READS};
    struct scan scan = {.kinds = STORE_OPERATIONS,
        .status = RECORD_UNKNOWN,
        .after = janitor->unknown_after,
        .limit = UNKNOWN_READS,
        .pace = &pace};
    size_t count = 0;
    status = store->ops->scan(store, &scan, &janitor->unknown_arena, records, &count, err);
    for (size_t i = 0; status == OK && i < count; i++) {
        note_unknown(janitor, records[i]->updated_ms);
    }
    arena_clear(&janitor->unknown_arena);
    if (status == OK) {
        janitor->unknown_after = pace.done ? (struct digest){{0}} : pace.after;
    }
    if (status == OK && pace.done) {
        janitor->unknown_since_ms = janitor->unknown_min_ms;
        janitor->unknown_min_ms = 0;
    }
    return fatal_only(status, err);
}

/* Runs behind the flush that made the entry durable. */
static void barrier_done(struct engine_call *call)
{
    struct janitor *janitor = call->context;
    if (call->err.status == OK) {
        atomic_store_explicit(&janitor->archive_durable, true, memory_order_release);
    }
}

/* Let the oldest evidence go when it is past its retention. A crash after the entry and before the
 * removal leaves both; then there are two entries about it, which is true. */
static enum status archive(struct janitor *janitor, int64_t boot_ms, struct engine_call **calls,
    size_t *count, struct err *err)
{
    struct store *store = janitor->cycle->store;
    const struct store_housekeeping *duties = store->ops->housekeeping;
    struct store_removable removable = {0};
    if (janitor->archiving != 0) {
        if (!atomic_load_explicit(&janitor->archive_durable, memory_order_acquire)) {
            return OK;
        }
        uint64_t place = janitor->archiving;
        janitor->archiving = 0;
        return fatal_only(duties->remove(store, place, err), err);
    }
    if (duties == NULL || duties->removable == NULL || *count == LIMIT_BATCH_REQUESTS_MAX ||
        boot_ms - janitor->archive_ms < ARCHIVE_EVERY_MS) {
        return OK;
    }
    janitor->archive_ms = boot_ms;
    enum status status = duties->removable(store, &removable, err);
    if (status != OK || removable.place == 0) {
        return fatal_only(status, err);
    }
    status = cycle_archive(janitor->cycle, &removable, err);
    if (status != OK) {
        return fatal_only(status, err);
    }
    janitor->archiving = removable.place;
    janitor->archive_ms = 0; /* there may be more: look again as soon as this one is gone */
    atomic_store_explicit(&janitor->archive_durable, false, memory_order_relaxed);
    janitor->barrier = (struct query){.kind = QUERY_NOTHING,
        .call = {.query = &janitor->barrier,
            .arena = &janitor->barrier_arena,
            .context = janitor,
            .done = barrier_done}};
    calls[(*count)++] = &janitor->barrier.call;
    return OK;
}

enum status janitor_turn(struct janitor *janitor, int64_t boot_ms, struct engine_call **calls,
    size_t *count, struct err *err)
{
    struct store *store = janitor->cycle->store;
    const struct store_housekeeping *duties = store->ops->housekeeping;
    enum status status = OK;
    if (duties != NULL && boot_ms - janitor->maintain_ms >= MAINTAIN_EVERY_MS) {
        janitor->maintain_ms = boot_ms;
        status = fatal_only(duties->maintain(store, err), err);
    }
    if (status == OK && boot_ms - janitor->leases_ms >= LEASES_EVERY_MS) {
        janitor->leases_ms = boot_ms;
        status = settle_leases(janitor, calls, count, err);
    }
    if (status == OK && boot_ms - janitor->checkpoint_ms >= janitor->checkpoint_every_ms) {
        janitor->checkpoint_ms = boot_ms;
        status = sign_checkpoint(janitor, err);
    }
    if (status == OK && boot_ms - janitor->unknown_ms >= UNKNOWN_EVERY_MS) {
        janitor->unknown_ms = boot_ms;
        status = look_for_unknown(janitor, err);
    }
    return status == OK ? archive(janitor, boot_ms, calls, count, err) : status;
}

enum status janitor_close(struct janitor *janitor, struct err *err)
{
    ASSERT(atomic_load(&janitor->in_flight) == 0);
    return sign_checkpoint(janitor, err);
}
