/*
 * One round trip gets everything that a batch needs: locks, records with their bodies and sources,
 * fences, counts and the time.
 *
 * Locks are advisory, on the first 48 bits of the key's hash: an absent key has no row to lock, and
 * an operation id contains these bits, so that the order of all locks is known before anything is
 * read. Sources are read without a lock, because a record's source is known only from the record:
 * of two concurrent seals of one source, one commit becomes stale (S3).
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/limits.h"
#include "core/source.h"
#include "store/postgres/impl.h"

/* Counts of records are used for this long: reading them for each batch costs more than they tell.
 * Our own new records are added meanwhile, so that keys_max holds for a process alone. */
#define COUNTS_NS UINT64_C(100000000)

/* One record that one or more wants ask for. */
struct ask {
    struct digest low; /* the range of hashes to search */
    struct digest high;
    struct op_id id;             /* zero: by key */
    unsigned bodies;             /* 1: the outcome's, 2: the request's */
    struct digest fingerprint;   /* and the body that this chooses; … */
    bool by_fingerprint;         /* … if it is set */
    bool source;                 /* also the record of its source */
    struct slice tenant;         /* of the bodies; empty: any tenant */
    size_t want;                 /* the first want that asks */
    const struct record *record; /* NULL: absent */
    int row;                     /* its row in the result */
};

/* Everything that a batch asks for. */
struct asking {
    struct ask *asks; /* in the order of low */
    size_t count;
    size_t *of;   /* for each want its ask */
    bool sources; /* one of them wants the record of its source */
    bool by_keys; /* all ask by key alone, for the bodies that their fingerprints choose */
    bool blocked; /* the locks were not had in time */
};

/* The first of the wants that share a record. */
static size_t root_of(const struct store_batch *batch, size_t at)
{
    while (batch->wants[at].same != NULL) {
        ASSERT(batch->wants[at].same < &batch->wants[at]);
        at = (size_t)(batch->wants[at].same - batch->wants);
    }
    return at;
}

static struct ask ask_of(const struct store_want *want, size_t at)
{
    struct ask ask = {.want = at, .tenant = want->tenant};
    if (want->key != NULL) {
        ask.low = ask.high = *want->key;
        return ask;
    }
    uint64_t prefix = op_id_prefix(want->id);
    memset(ask.high.bytes, 0xff, sizeof ask.high.bytes);
    for (unsigned i = 0; i < 6; i++) {
        ask.low.bytes[i] = ask.high.bytes[i] = (unsigned char)(prefix >> 8 * (5 - i));
    }
    ask.id = *want->id;
    return ask;
}

static int ask_compare(const void *left, const void *right)
{
    const struct ask *a = left;
    const struct ask *b = right;
    int order = memcmp(&a->low, &b->low, sizeof a->low);
    order = order != 0 ? order : memcmp(&a->id, &b->id, sizeof a->id);
    return order != 0 ? order : (a->want > b->want) - (a->want < b->want);
}

static void ask_bodies(struct ask *ask, const struct store_want *want)
{
    ask->source = ask->source || want->source;
    ask->bodies |= want->bodies & (WANT_OUTCOME | WANT_REQUEST);
    if (!slice_equal(ask->tenant, want->tenant)) {
        ask->tenant = SLICE_EMPTY; /* want_choose checks again what each want may see */
    }
    if ((want->bodies & WANT_BY_FINGERPRINT) == 0) {
        return;
    }
    if (ask->by_fingerprint && !digest_equal(&ask->fingerprint, want->fingerprint)) {
        ask->bodies |= WANT_OUTCOME | WANT_REQUEST; /* one of them for each */
    }
    ask->fingerprint = *want->fingerprint;
    ask->by_fingerprint = true;
}

/* Lists every record once, ordered by hash, which is the order of the locks. */
static enum status admission_init(
    struct pg_store *self, const struct store_batch *batch, struct asking *asking, struct err *err)
{
    size_t count = 0;
    *asking = (struct asking){.asks = mem_zalloc(self->mem, batch->count + 1, sizeof(struct ask)),
        .of = mem_zalloc(self->mem, batch->count + 1, sizeof(size_t))};
    if (asking->asks == NULL || asking->of == NULL) {
        return err_set(err, E_NOMEM, "out of memory for a batch");
    }
    for (size_t i = 0; i < batch->count; i++) {
        if (batch->wants[i].same == NULL) {
            asking->asks[count++] = ask_of(&batch->wants[i], i);
        }
    }
    qsort(asking->asks, count, sizeof(struct ask), ask_compare);
    for (size_t i = 0; i < count; i++) {
        struct ask *last = asking->count == 0 ? NULL : &asking->asks[asking->count - 1];
        struct ask *next = &asking->asks[i];
        size_t want = next->want;
        bool again = last != NULL && memcmp(&last->low, &next->low, sizeof last->low) == 0 &&
                     op_id_equal(&last->id, &next->id);
        if (!again) {
            asking->asks[asking->count++] = *next;
        }
        asking->of[want] = asking->count - 1;
    }
    for (size_t i = 0; i < batch->count; i++) {
        asking->of[i] = asking->of[root_of(batch, i)];
        ask_bodies(&asking->asks[asking->of[i]], &batch->wants[i]);
        asking->sources = asking->sources || batch->wants[i].source;
    }
    asking->by_keys = true;
    for (size_t i = 0; i < asking->count; i++) {
        const struct ask *ask = &asking->asks[i];
        asking->by_keys =
            asking->by_keys && op_id_absent(&ask->id) && ask->bodies == 0 && ask->tenant.len == 0;
    }
    return OK;
}

static void admission_release(struct pg_store *self, struct asking *asking)
{
    mem_free(self->mem, asking->asks);
    mem_free(self->mem, asking->of);
}

/* ---- asking ------------------------------------------------------------------------------ */

static void send_locks(struct pg_store *self, const struct asking *asking)
{
    struct pg_args *args = &self->link.args;
    int64_t last = -1;
    args_array(args, PG_INT8);
    for (size_t i = 0; i < asking->count; i++) {
        int64_t lock = 0;
        for (unsigned byte = 0; byte < 6; byte++) {
            lock = lock << 8 | asking->asks[i].low.bytes[byte];
        }
        ASSERT(lock >= last); /* or two batches could wait for each other */
        if (lock != last) {
            args_int8(args, lock);
        }
        last = lock;
    }
    args_array_end(args);
    link_send(&self->link, PG_LOCK);
}

/* Puts one end of the ranges of all asks, or of those with a source. */
static void put_bounds(struct pg_args *args, const struct asking *asking, bool sources, bool high)
{
    args_array(args, PG_BYTEA);
    for (size_t i = 0; i < asking->count; i++) {
        const struct ask *ask = &asking->asks[i];
        if (!sources || ask->source) {
            args_slice(args, slice_of(high ? ask->high.bytes : ask->low.bytes, DIGEST_BYTES));
        }
    }
    args_array_end(args);
}

/* Puts the ranges and ids of all asks, or of those with a source. */
static void put_ranges(struct pg_args *args, const struct asking *asking, bool sources)
{
    put_bounds(args, asking, sources, false);
    put_bounds(args, asking, sources, true);
    args_array(args, PG_UUID);
    for (size_t i = 0; i < asking->count; i++) {
        const struct ask *ask = &asking->asks[i];
        if (sources && !ask->source) {
            continue;
        }
        if (op_id_absent(&ask->id)) {
            args_null(args);
        } else {
            args_slice(args, slice_of(&ask->id, sizeof ask->id));
        }
    }
    args_array_end(args);
}

static void put_fingerprints(struct pg_args *args, const struct asking *asking)
{
    args_array(args, PG_BYTEA);
    for (size_t i = 0; i < asking->count; i++) {
        if (asking->asks[i].by_fingerprint) {
            args_slice(args, slice_of(asking->asks[i].fingerprint.bytes, DIGEST_BYTES));
        } else {
            args_null(args);
        }
    }
    args_array_end(args);
}

static void send_keys(struct pg_store *self, const struct asking *asking)
{
    struct pg_args *args = &self->link.args;
    put_bounds(args, asking, false, false);
    put_fingerprints(args, asking);
    link_send(&self->link, PG_KEYS);
}

static void send_load(struct pg_store *self, const struct asking *asking)
{
    struct pg_args *args = &self->link.args;
    ASSERT(args->count == 0);
    put_ranges(args, asking, false);
    args_array(args, PG_INT4);
    for (size_t i = 0; i < asking->count; i++) {
        args_int4(args, (int32_t)asking->asks[i].bodies);
    }
    args_array_end(args);
    put_fingerprints(args, asking);
    args_array(args, PG_TEXT);
    for (size_t i = 0; i < asking->count; i++) {
        args_slice(args, asking->asks[i].tenant);
    }
    args_array_end(args);
    link_send(&self->link, PG_LOAD);
}

/* Sends the whole pipeline. The time and the fences are drawn last (S9). */
static void send_batch(
    struct pg_store *self, const struct store_batch *batch, const struct asking *asking, bool locks)
{
    ASSERT(self->link.args.count == 0);
    if (locks) {
        link_send(&self->link, PG_OPEN);
        send_locks(self, asking);
    }
    if (asking->by_keys) {
        send_keys(self, asking);
    } else {
        send_load(self, asking);
    }
    if (asking->sources) {
        put_ranges(&self->link.args, asking, true);
        link_send(&self->link, PG_SOURCES);
    }
    args_int8(&self->link.args, locks ? (int64_t)batch->fences : 0);
    args_slice(&self->link.args, slice_of(self->identity.chain_id, 16));
    args_time(&self->link.args, pg_time_now(self).time_ms - LIMIT_HOLDER_GONE_MS);
    link_send(&self->link, PG_META);
    if (self->counts_until_ns == 0) {
        pg_kinds_put(&self->link.args, STORE_KINDS_ASKED);
        link_send(&self->link, PG_COUNTS);
    }
    link_sync(&self->link);
}

/* ---- the answers ------------------------------------------------------------------------- */

static enum status give_record(const struct record *from, struct arena *arena,
    const struct record **ret_record, struct err *err)
{
    struct record *copy = arena_alloc(arena, sizeof *copy);
    if (copy == NULL || record_copy(from, arena, copy) != OK) {
        return err_set(err, E_NOMEM, "out of memory for a record");
    }
    *ret_record = copy;
    return OK;
}

static enum status take_records(struct pg_store *self, struct asking *asking,
    const PGresult *result, struct store_batch *batch, struct err *err)
{
    for (int row = 0; row < PQntuples(result); row++) {
        struct record record;
        int64_t at = 0;
        bool known = pg_value_int(pg_value_of(result, row, 0), &at) && at > 0 &&
                     (uint64_t)at <= asking->count;
        enum status status = known ? columns_take(result, row, 1, &record, err)
                                   : err_set(err, E_CORRUPT, "a row that was not requested");
        if (status != OK) {
            return status;
        }
        struct ask *ask = &asking->asks[at - 1];
        if (!op_id_absent(&ask->id) && record.kind == RECORD_SOURCE) {
            continue; /* it has the id of the operation that it came from */
        }
        status = give_record(&record, batch->arena, &ask->record, err);
        if (status != OK) {
            return status;
        }
        ask->row = row;
        /* S9: an application's own transaction may have changed it after the mark's commit. */
        self->mark_ms = record.updated_ms > self->mark_ms ? record.updated_ms : self->mark_ms;
    }
    self->now = pg_time_now(self);
    batch->now_ms = self->now.time_ms;
    return OK;
}

/* The row of a source's record among rows ordered by hash; -1: absent. */
static int find_source(const PGresult *sources, const struct digest *hash)
{
    ASSERT(sources != NULL); /* the want was known when the batch was sent */
    int low = 0;
    int high = PQntuples(sources);
    while (low < high) {
        int middle = low + (high - low) / 2;
        struct slice found = pg_value_of(sources, middle, 0).bytes;
        int order = found.len == DIGEST_BYTES ? memcmp(found.data, hash, DIGEST_BYTES) : -1;
        if (order == 0) {
            return middle;
        }
        low = order < 0 ? middle + 1 : low;
        high = order < 0 ? high : middle;
    }
    return -1;
}

static enum status want_source(
    struct store_want *want, const PGresult *sources, struct arena *arena, struct err *err)
{
    const struct record *record = want->record;
    struct record found;
    if (!want->source || !source_ordered(&record->source)) {
        return OK;
    }
    enum status status = source_key_seal(&record->key, &record->source, &want->source_key, err);
    int row = status == OK ? find_source(sources, &want->source_key.hash) : -1;
    if (row < 0) {
        return status;
    }
    status = columns_take(sources, row, 0, &found, err);
    return status == OK ? give_record(&found, arena, &want->source_record, err) : status;
}

static enum status want_body(struct store_want *want, const struct body_ref *body,
    struct pg_value value, struct slice *ret_bytes, struct err *err)
{
    struct digest digest;
    if (body->bytes == 0) {
        return OK;
    }
    digest_sha256(value.bytes.data, value.bytes.len, &digest);
    if (value.null || value.bytes.len != body->bytes || !digest_equal(&digest, &body->digest)) {
        char hash[DIGEST_HEX_BYTES];
        return err_set(err, E_CORRUPT, "a body of the record with key_hash \\x%s %s",
            digest_put_hex(hash, &want->record->key.hash),
            value.null ? "is missing" : "does not have its digest");
    }
    enum status status = arena_copy(want->arena, value.bytes, ret_bytes);
    want->body_status = want->body_status == OK ? status : want->body_status;
    return OK;
}

static enum status want_fill(struct store_want *want, const struct ask *ask,
    const PGresult *records, const PGresult *sources, struct store_batch *batch, struct err *err)
{
    want->record = want->source_record = NULL;
    want->outcome = want->request = SLICE_EMPTY;
    want->body_status = OK;
    if (ask->record == NULL ||
        (want->key == NULL && !store_kind_in(want->kinds, ask->record->kind))) {
        return OK;
    }
    want->record = ask->record;
    ASSERT(want->key == NULL || digest_equal(want->key, &want->record->key.hash));
    enum status status = want_source(want, sources, batch->arena, err);
    if (status != OK) {
        return status;
    }
    struct want_choice choice = want_choose(want, batch->now_ms);
    int bodies = 1 + columns_count();
    if (choice.outcome) {
        status = want_body(want, &ask->record->outcome.body, pg_value_of(records, ask->row, bodies),
            &want->outcome, err);
    }
    if (status == OK && choice.request) {
        status = want_body(want, &ask->record->request, pg_value_of(records, ask->row, bodies + 1),
            &want->request, err);
    }
    return status;
}

/* Takes the time, the first fence and the session. */
static enum status take_meta(
    struct pg_store *self, const PGresult *result, struct store_batch *batch, struct err *err)
{
    int64_t server_ms = 0;
    int64_t mark_ms = 0;
    int64_t fence = 0;
    int64_t pid = 0;
    int64_t listeners = 0;
    bool ok = PQntuples(result) == 1 && pg_value_time(pg_value_of(result, 0, 0), &server_ms) &&
              pg_value_time(pg_value_of(result, 0, 1), &mark_ms) &&
              pg_value_int(pg_value_of(result, 0, 2), &fence) &&
              pg_value_int(pg_value_of(result, 0, 3), &pid) &&
              pg_value_int(pg_value_of(result, 0, 4), &listeners) && fence > 0;
    if (!ok) {
        return err_set(err, E_CORRUPT, "the server's time and fences do not check out");
    }
    if (pid != self->link.pid) {
        (void)err_set(
            err, E_UNAVAILABLE, "a pooler gave the session to a different server process");
        err_hint(err, "Once needs its own sessions: pgbouncer's pool_mode = session");
        return E_UNAVAILABLE;
    }
    self->others_listen = listeners != 0;
    pg_time_heard(self, server_ms, mark_ms);
    self->now = pg_time_now(self);
    batch->now_ms = self->now.time_ms;
    batch->clock_held = self->clock.held;
    batch->fence_first = (uint64_t)fence;
    uint64_t last = (uint64_t)fence + batch->fences - 1;
    self->fence = last > self->fence ? last : self->fence;
    return OK;
}

/* Takes the counts, if they were asked for. */
static enum status take_counts(struct pg_store *self, struct store_batch *batch, struct err *err)
{
    enum status status = OK;
    if (self->counts_until_ns == 0) {
        status = pg_counts_take(self, STORE_KINDS_ASKED, &self->counts, err);
        self->counts_until_ns = status == OK ? clock_nanos() + COUNTS_NS : 0;
    }
    batch->counts = self->counts;
    return status;
}

/* Receives everything up to the sync. */
static enum status receive(struct pg_store *self, struct store_batch *batch, struct asking *asking,
    bool locks, struct err *err)
{
    PGresult *records = NULL;
    PGresult *sources = NULL;
    PGresult *meta = NULL;
    enum status status = OK;
    for (int i = 0; locks && i < 2 && status == OK; i++) { /* BEGIN, and the locks */
        PGresult *done = NULL;
        status = link_next(&self->link, &done, err);
        asking->blocked = status != OK && done != NULL;
        PQclear(done);
    }
    int columns = columns_count();
    status = status == OK ? pg_rows(self, 1 + columns + 2, &records, err) : status;
    if (asking->sources) {
        status = status == OK ? pg_rows(self, columns, &sources, err) : status;
    }
    status = status == OK ? pg_rows(self, 5, &meta, err) : status;
    status = status == OK ? take_meta(self, meta, batch, err) : status;
    status = status == OK ? take_counts(self, batch, err) : status;
    status = status == OK ? link_finish(&self->link, err) : status;
    status = status == OK ? take_records(self, asking, records, batch, err) : status;
    for (size_t i = 0; i < batch->count && status == OK; i++) {
        status =
            want_fill(&batch->wants[i], &asking->asks[asking->of[i]], records, sources, batch, err);
    }
    PQclear(records);
    PQclear(sources);
    PQclear(meta);
    return status;
}

/* One attempt; if the connection breaks, the store has none. */
static enum status exchange(
    struct pg_store *self, struct store_batch *batch, bool locks, struct err *err)
{
    struct asking asking = {.count = 0};
    enum status status = admission_init(self, batch, &asking, err);
    if (!locks || clock_nanos() >= self->counts_until_ns) {
        self->counts_until_ns = 0;
    }
    if (status == OK) {
        send_batch(self, batch, &asking, locks);
        status = receive(self, batch, &asking, locks, err);
        if (status != OK) {
            pg_recover(self);
            if (asking.blocked && self->phase == PG_IDLE) {
                pg_end_stalled(self);
            }
        } else if (locks) {
            phase_set(self, PG_PREPARED);
        }
    }
    admission_release(self, &asking);
    return status;
}

/* A restart of the server is noticed only at the next request: nothing has happened yet, so it is
 * repeated once on a new connection. */
static enum status ask(
    struct pg_store *self, struct store_batch *batch, bool locks, struct err *err)
{
    enum status status = locks ? pg_ready_beside(self, err) : pg_ready(self, err);
    if (status == OK) {
        status = exchange(self, batch, locks, err);
    }
    if (status == E_UNAVAILABLE && self->phase == PG_CLOSED &&
        self->retry_at_ms <= pg_boot_ms(self)) {
        status = pg_ready(self, err); /* the other connection may be dead too */
        status = status == OK ? exchange(self, batch, locks, err) : status;
    }
    return status;
}

enum status pg_read(struct store *store, struct store_batch *batch, struct err *err)
{
    return ask(pg_of(store), batch, false, err);
}

enum status pg_prepare(struct store *store, struct store_batch *batch, struct err *err)
{
    struct pg_store *self = pg_of(store);
    ASSERT(!self->read_only && self->parent == NULL);
    pg_spare_open(self);
    return ask(self, batch, true, err);
}

void pg_abort(struct store *store)
{
    struct pg_store *self = pg_of(store);
    ASSERT(self->phase == PG_PREPARED);
    pg_recover(self);
}
