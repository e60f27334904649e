/*
 * One round trip for all changes of a batch, its entries, the marker and COMMIT.
 *
 * Changes of one key are first folded into one row, with the version that the first change expects
 * and the record that the last one leaves. One pipeline then sends new rows, changed rows, touches,
 * entries, and last the counts and the marker, which wait on the server for the commit before.
 * COMMIT comes after a sync, so that it ends the transaction in any case: the server treats COMMIT
 * in a failed transaction as ROLLBACK and reports that. The commit is accepted when all before the
 * sync was answered; pending.c waits for COMMIT.
 *
 * Crash points. Before COMMIT arrives: nothing happened, the server rolls back. After it: the
 * marker is there with everything else. The answer is lost: pg_look_up.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/limits.h"
#include "base/text.h"
#include "core/kind.h"
#include "store/postgres/impl.h"

/* A change, to be sorted by its key. */
struct folded {
    const struct digest *hash;
    size_t at; /* in the commit */
};

/* The plan of a commit. Rows to insert are at the front of rows, those to update at its end. */
struct plan {
    const struct commit *commit;
    struct folded *order;
    size_t order_count;
    struct pg_row *rows;
    size_t capacity;
    size_t inserts;
    size_t updates;
    struct pg_row *touches; /* record.duplicates: how many more */
    size_t touch_count;
    size_t entry_count;
    bool sources;           /* it changes the record of a source */
    struct store_head head; /* of the chain afterwards */
};

static int folded_compare(const void *left, const void *right)
{
    const struct folded *a = left;
    const struct folded *b = right;
    int order = memcmp(a->hash, b->hash, sizeof *a->hash);
    return order != 0 ? order : (a->at > b->at) - (a->at < b->at);
}

static bool body_fits(struct slice bytes, const struct body_ref *body)
{
    return bytes.len == 0 || (body->retained && body->bytes == bytes.len);
}

/* Folds a put into the row that earlier changes made. */
static enum status fold_put(const struct change *change, struct pg_row *row, struct err *err)
{
    const struct record *record = change->record;
    ASSERT(record != NULL);
    if (!body_fits(change->request_body, &record->request) ||
        !body_fits(change->outcome_body, &record->outcome.body)) {
        return err_set(err, E_MISUSE, "a body does not belong to its record");
    }
    record_check(record);
    row->record = *record;
    row->request_body = change->request_body.len > 0 ? change->request_body : row->request_body;
    row->outcome_body = change->outcome_body.len > 0 ? change->outcome_body : row->outcome_body;
    return OK;
}

/* Folds all changes of one key, order[from] to before order[until], into one row. */
static enum status fold_key(struct plan *plan, size_t from, size_t until, struct err *err)
{
    const struct change *changes = plan->commit->changes;
    const struct change *first = &changes[plan->order[from].at];
    struct pg_row row = {.version_expected = first->version_expected};
    uint64_t version = first->version_expected;
    uint64_t touches = 0;
    bool put = false;
    bool stale = false;
    for (size_t i = from; i < until; i++) {
        const struct change *change = &changes[plan->order[i].at];
        stale = stale || change->version_expected != version;
        if (change->kind == CHANGE_PUT) {
            enum status status = fold_put(change, &row, err);
            if (status != OK) {
                return status;
            }
            put = true;
            touches = 0;
            version = change->record->version;
        } else if (version == 0) {
            return err_set(err, E_MISUSE, "an absent record cannot be touched");
        } else {
            touches++;
        }
    }
    for (size_t i = from; stale && plan->commit->ret_stale != NULL && i < until; i++) {
        plan->commit->ret_stale[plan->order[i].at] = true;
    }
    if (stale) {
        return err_set(err, E_STALE, "a record has changed since it was read");
    }
    if (!put) {
        row.record = *first->record;
        row.record.duplicates = (uint32_t)touches;
        plan->touches[plan->touch_count++] = row;
        return OK;
    }
    plan->sources = plan->sources || row.record.kind == RECORD_SOURCE;
    uint64_t duplicates = row.record.duplicates + touches;
    row.record.duplicates = duplicates < UINT32_MAX ? (uint32_t)duplicates : UINT32_MAX;
    size_t at = row.version_expected == 0 ? plan->inserts++ : plan->capacity - ++plan->updates;
    plan->rows[at] = row;
    return OK;
}

/* Every key is checked, so that all stale ones are reported. */
static enum status fold_changes(struct plan *plan, struct err *err)
{
    enum status result = OK;
    qsort(plan->order, plan->order_count, sizeof *plan->order, folded_compare);
    for (size_t from = 0; from < plan->order_count;) {
        size_t until = from + 1;
        while (until < plan->order_count &&
               digest_equal(plan->order[until].hash, plan->order[from].hash)) {
            until++;
        }
        enum status status = fold_key(plan, from, until, err);
        if (status != OK && status != E_STALE) {
            return status;
        }
        result = result == OK ? status : result;
        from = until;
    }
    return result;
}

/* Finds the head of the chain after these entries, which must continue from its current head. */
static enum status plan_entries(struct plan *plan, struct err *err)
{
    for (size_t i = 0; i < plan->commit->count; i++) {
        const struct entry *entry = &plan->commit->changes[i].entry;
        if (entry->bytes.len == 0) {
            continue;
        }
        plan->entry_count++;
        if (entry->kind != ENTRY_EVIDENCE || plan->commit->inherits) {
            continue; /* it belongs to a different chain */
        }
        if (entry->seq != plan->head.seq + 1) { /* P10 */
            return err_set(err, E_MISUSE, "entry %" PRIu64 " does not follow %" PRIu64, entry->seq,
                plan->head.seq);
        }
        plan->head.seq = entry->seq;
        plan->head.hash = entry->hash;
    }
    return OK;
}

static enum status plan_init(
    struct pg_store *self, const struct commit *commit, struct plan *plan, struct err *err)
{
    size_t count = commit->count + 1; /* never 0 */
    *plan = (struct plan){.commit = commit,
        .order = mem_zalloc(self->mem, count, sizeof *plan->order),
        .rows = mem_zalloc(self->mem, count, sizeof *plan->rows),
        .touches = mem_zalloc(self->mem, count, sizeof *plan->touches),
        .capacity = count,
        .head = self->head};
    plan->head.moment = self->now;
    if (plan->order == NULL || plan->rows == NULL || plan->touches == NULL) {
        return err_set(err, E_NOMEM, "out of memory for a commit");
    }
    for (size_t i = 0; i < commit->count; i++) {
        if (commit->ret_stale != NULL) {
            commit->ret_stale[i] = false;
        }
        if (commit->changes[i].kind != CHANGE_NONE) {
            plan->order[plan->order_count++] =
                (struct folded){.hash = &commit->changes[i].record->key.hash, .at = i};
        }
    }
    enum status status = fold_changes(plan, err);
    return status == OK ? plan_entries(plan, err) : status;
}

static void plan_release(struct pg_store *self, struct plan *plan)
{
    mem_free(self->mem, plan->order);
    mem_free(self->mem, plan->rows);
    mem_free(self->mem, plan->touches);
}

/* ---- sending ----------------------------------------------------------------------------- */

/* The place of our entries comes first: keep_partitions locks the two tables in this order. */
static void send_place(struct pg_store *self, const struct plan *plan)
{
    struct pg_args *args = &self->link.args;
    if (plan->head.seq > self->head.seq) {
        args_slice(args, slice_of(self->identity.chain_id, 16));
        args_int8(args, (int64_t)self->head.seq + 1);
        args_int8(args, (int64_t)plan->head.seq);
        args_time(args, self->now.time_ms);
        link_send(&self->link, PG_PLACED);
    }
}

/* How many new rows there are, by kind and status. */
static void put_tally(struct pg_args *args, const struct plan *plan)
{
    struct store_tally tally = {.counts = {{0}}};
    for (size_t i = 0; i < plan->inserts; i++) {
        store_tally_add(&tally, plan->rows[i].record.kind, plan->rows[i].record.status, true);
    }
    static const enum pg_type types[] = {PG_TEXT, PG_TEXT, PG_INT8};
    for (int column = 0; column < 3; column++) {
        args_array(args, types[column]);
        for (int kind = 0; kind < STORE_KINDS; kind++) {
            for (int status = 0; status < STORE_STATUSES; status++) {
                uint64_t count = tally.counts[kind][status];
                if (count > 0 && column == 2) {
                    args_int8(args, (int64_t)count);
                } else if (count > 0) {
                    args_str(args, column == 0 ? kind_name((enum record_kind)kind)
                                               : record_status_name((enum record_status)status));
                }
            }
        }
        args_array_end(args);
    }
}

static void send_mark(struct pg_store *self, const struct plan *plan)
{
    struct pg_args *args = &self->link.args;
    (void)pthread_mutex_lock(&self->mutex);
    uint64_t epoch = self->epoch;
    uint64_t commits = self->commits + self->pending.is_open; /* of the one before, if it happens */
    self->sending = true;
    (void)pthread_mutex_unlock(&self->mutex);
    args_slice(args, slice_of(self->identity.chain_id, 16));
    args_int8(args, (int64_t)epoch);
    args_int8(args, (int64_t)commits);
    args_int8(args, (int64_t)plan->head.seq);
    args_slice(args, slice_of(plan->head.hash.bytes, DIGEST_BYTES));
    args_time(args, self->now.time_ms);
    args_int8(args, self->now.boot_ms);
    args_int8(args, (int64_t)self->now.boot_id);
    args_int8(args, self->now.jump_ms);
    put_tally(args, plan);
    link_send(&self->link, PG_MARK);
}

static void send_rows(
    struct pg_store *self, const char *statement, const struct pg_row *rows, size_t count)
{
    if (count > 0) {
        columns_put(&self->link.args, rows, count);
        link_send(&self->link, statement);
    }
}

static void send_inserts(struct pg_store *self, const struct pg_row *rows, size_t count)
{
    enum pg_alike alike = count > 0 ? columns_alike(rows, count) : PG_ROWS_DIFFER;
    if (alike == PG_ROWS_DIFFER) {
        send_rows(self, PG_INSERT, rows, count);
        return;
    }
    columns_put_alike(&self->link.args, rows, count, alike);
    link_send(&self->link, alike == PG_ROWS_SAME ? PG_SAME : PG_ALIKE);
}

static void send_touches(struct pg_store *self, const struct plan *plan)
{
    struct pg_args *args = &self->link.args;
    if (plan->touch_count == 0) {
        return;
    }
    args_array(args, PG_BYTEA);
    for (size_t i = 0; i < plan->touch_count; i++) {
        args_slice(args, slice_of(plan->touches[i].record.key.hash.bytes, DIGEST_BYTES));
    }
    args_array_end(args);
    args_array(args, PG_TEXT);
    for (size_t i = 0; i < plan->touch_count; i++) {
        args_slice(args, plan->touches[i].record.key.tenant);
    }
    args_array_end(args);
    for (int more = 0; more < 2; more++) {
        args_array(args, PG_INT8);
        for (size_t i = 0; i < plan->touch_count; i++) {
            args_int8(args, more == 0 ? (int64_t)plan->touches[i].version_expected
                                      : plan->touches[i].record.duplicates);
        }
        args_array_end(args);
    }
    link_send(&self->link, PG_TOUCH);
}

/* Columns of the table of entries, in the order of PG_ENTRIES. */
enum entry_column {
    ENTRY_SEQ,
    ENTRY_KIND,
    ENTRY_DECIDED,
    ENTRY_TENANT,
    ENTRY_OPERATION,
    ENTRY_PREVIOUS,
    ENTRY_HASH,
    ENTRY_TEXT,
    ENTRY_COLUMNS,
};

static void put_entry(struct pg_args *args, const struct entry *entry,
    const struct digest *previous, enum entry_column column)
{
    switch (column) {
    case ENTRY_SEQ: args_int8(args, (int64_t)entry->seq); return;
    case ENTRY_KIND: args_bool(args, entry->kind != ENTRY_EVIDENCE); return;
    case ENTRY_DECIDED: args_time(args, entry->time_ms); return;
    case ENTRY_TENANT: args_slice(args, entry->tenant); return;
    case ENTRY_OPERATION:
        if (op_id_absent(&entry->operation_id)) {
            args_null(args);
        } else {
            args_slice(args, slice_of(&entry->operation_id, sizeof entry->operation_id));
        }
        return;
    case ENTRY_PREVIOUS: args_slice(args, slice_of(previous->bytes, DIGEST_BYTES)); return;
    case ENTRY_HASH: args_slice(args, slice_of(entry->hash.bytes, DIGEST_BYTES)); return;
    case ENTRY_TEXT: args_slice(args, entry->bytes); return;
    case ENTRY_COLUMNS: break;
    }
    ASSERT(false);
}

/* For a chain that is not ours: records the commit, so that a cursor finds its place. */
static void send_placed(struct pg_store *self, const struct plan *plan)
{
    struct pg_args *args = &self->link.args;
    const struct entry *first = NULL;
    const struct entry *last = NULL;
    for (size_t i = 0; i < plan->commit->count; i++) {
        const struct entry *entry = &plan->commit->changes[i].entry;
        if (entry->bytes.len > 0 && entry->kind == ENTRY_EVIDENCE) {
            first = first == NULL ? entry : first;
            last = entry;
        }
    }
    if (first != NULL) {
        args_slice(args, slice_of(first->chain_id, sizeof first->chain_id));
        args_int8(args, (int64_t)first->seq);
        args_int8(args, (int64_t)last->seq);
        args_time(args, last->time_ms);
        link_send(&self->link, PG_PLACED);
    }
}

/* The chain of the entries: ours, or in a copy that of the first entry. */
static const unsigned char *chain_of(const struct pg_store *self, const struct plan *plan)
{
    for (size_t i = 0; plan->commit->inherits && i < plan->commit->count; i++) {
        if (plan->commit->changes[i].entry.bytes.len > 0) {
            return plan->commit->changes[i].entry.chain_id;
        }
    }
    return self->identity.chain_id;
}

/* The first entry, if all are evidence of one tenant and one moment in our own chain; or NULL. */
static const struct entry *entries_alike(const struct plan *plan)
{
    const struct entry *first = NULL;
    for (size_t i = 0; i < plan->commit->count; i++) {
        const struct entry *entry = &plan->commit->changes[i].entry;
        if (entry->bytes.len == 0) {
            continue;
        }
        first = first == NULL ? entry : first;
        if (entry->kind != ENTRY_EVIDENCE || plan->commit->inherits ||
            entry->time_ms != first->time_ms || !slice_equal(entry->tenant, first->tenant)) {
            return NULL;
        }
    }
    return first;
}

/* Arrays of the columns from `column` on are sent, and for entries that are alike what they have in
 * common instead of the columns before. */
static void send_entries(struct pg_store *self, const struct plan *plan)
{
    static const enum pg_type types[ENTRY_COLUMNS] = {[ENTRY_SEQ] = PG_INT8,
        [ENTRY_KIND] = PG_BOOL,
        [ENTRY_DECIDED] = PG_TIMESTAMPTZ,
        [ENTRY_TENANT] = PG_TEXT,
        [ENTRY_OPERATION] = PG_UUID,
        [ENTRY_PREVIOUS] = PG_BYTEA,
        [ENTRY_HASH] = PG_BYTEA,
        [ENTRY_TEXT] = PG_TEXT};
    struct pg_args *args = &self->link.args;
    if (plan->entry_count == 0) {
        return;
    }
    const struct entry *alike = entries_alike(plan);
    args_slice(args, slice_of(chain_of(self, plan), 16));
    if (alike != NULL) { /* their numbers are consecutive: plan_entries */
        args_int8(args, (int64_t)alike->seq);
        args_int8(args, (int64_t)plan->head.seq);
        args_time(args, alike->time_ms);
        args_slice(args, alike->tenant);
    }
    for (int column = alike != NULL ? ENTRY_OPERATION : 0; column < ENTRY_COLUMNS; column++) {
        struct digest previous = self->head.hash;
        args_array(args, types[column]);
        for (size_t i = 0; i < plan->commit->count; i++) {
            const struct entry *entry = &plan->commit->changes[i].entry;
            if (entry->bytes.len > 0) {
                const struct digest *given = plan->commit->changes[i].prev_hash;
                put_entry(
                    args, entry, given == NULL ? &previous : given, (enum entry_column)column);
                previous = entry->kind == ENTRY_EVIDENCE ? entry->hash : previous;
            }
        }
        args_array_end(args);
    }
    link_send(&self->link, alike != NULL ? PG_LINES : PG_ENTRIES);
}

static void send_plan(struct pg_store *self, const struct plan *plan)
{
    ASSERT(plan->inserts + plan->updates <= plan->capacity);
    send_place(self, plan);
    send_inserts(self, plan->rows, plan->inserts);
    send_rows(self, PG_UPDATE, plan->rows + plan->capacity - plan->updates, plan->updates);
    pg_intake_drop(self, plan->rows + plan->capacity - plan->updates, plan->updates);
    send_touches(self, plan);
    send_entries(self, plan);
    if (plan->commit->inherits) {
        send_placed(self, plan);
        pg_inherit_check(self);
    }
    if (self->others_listen && plan->updates > 0) {
        pg_notify_send(self, plan->rows + plan->capacity - plan->updates, plan->updates);
    }
    if (plan->commit->fence_floor > self->fence) {
        args_int8(&self->link.args, (int64_t)plan->commit->fence_floor);
        link_send(&self->link, PG_RAISE);
    }
    send_mark(self, plan);
    link_sync(&self->link);
    link_send(&self->link, PG_COMMIT);
    link_sync(&self->link);
}

/* ---- the answer -------------------------------------------------------------------------- */

/* Marks the changes of the keys that the server names, in hex, as stale. */
static void mark_stale(const struct plan *plan, const PGresult *result)
{
    const char *named = PQresultErrorField(result, PG_DIAG_MESSAGE_DETAIL);
    for (size_t i = 0; named != NULL && plan->commit->ret_stale != NULL && i < plan->order_count;
         i++) {
        char hash[DIGEST_HEX_BYTES];
        const struct folded *folded = &plan->order[i];
        if (strstr(named, digest_put_hex(hash, folded->hash)) != NULL) {
            plan->commit->ret_stale[folded->at] = true;
        }
    }
}

/* The error names only one row that exists already, but a commit reports every stale change. So
 * this asks which rows exist. If there is no answer, all of them are decided again. */
static void find_stale(struct pg_store *self, const struct plan *plan)
{
    bool *stale = plan->commit->ret_stale;
    PGresult *result = NULL;
    bool known = stale == NULL;
    for (size_t i = 0; i < plan->commit->count && !known; i++) {
        known = stale[i]; /* by expect_changed */
    }
    if (known || plan->inserts == 0) {
        return;
    }
    if (self->phase == PG_IDLE) {
        args_array(&self->link.args, PG_BYTEA);
        for (size_t i = 0; i < plan->inserts; i++) {
            args_slice(
                &self->link.args, slice_of(plan->rows[i].record.key.hash.bytes, DIGEST_BYTES));
        }
        args_array_end(&self->link.args);
        link_send(&self->link, PG_THERE);
        link_sync(&self->link);
        if (pg_rows(self, 1, &result, NULL) != OK || link_finish(&self->link, NULL) != OK) {
            pg_recover(self);
        }
    }
    bool all = result == NULL || PQntuples(result) == 0;
    for (size_t i = 0; i < plan->order_count; i++) {
        const struct folded *folded = &plan->order[i];
        bool there = all && plan->commit->changes[folded->at].version_expected == 0;
        for (int row = 0; row < (result == NULL ? 0 : PQntuples(result)) && !there; row++) {
            struct digest hash;
            there = pg_value_digest(pg_value_of(result, row, 0), &hash) &&
                    digest_equal(&hash, folded->hash);
        }
        stale[folded->at] = there;
    }
    PQclear(result);
}

/* The marker could not be set: an earlier commit did not happen, or somebody asked for the fate of
 * this one. The next connection finds out whether the server is an older copy. */
static enum status chain_went_on(struct pg_store *self, struct err *err)
{
    (void)pthread_mutex_lock(&self->mutex);
    self->doomed = true;
    (void)pthread_mutex_unlock(&self->mutex);
    return err_set(err, E_UNAVAILABLE,
        "an earlier commit of this process did not happen, so this one did not either");
}

/* Reads up to the sync: whether every change succeeded. */
static enum status receive_changes(struct pg_store *self, const struct plan *plan, struct err *err)
{
    enum status first = OK;
    for (;;) {
        PGresult *result = NULL;
        enum status status = link_next(&self->link, &result, first == OK ? err : NULL);
        bool at_sync = status == OK && result == NULL;
        if (status == E_STALE && result != NULL) {
            mark_stale(plan, result);
        }
        if (first == OK && link_failed_as(result, "23505")) {
            status = err_set(err, E_STALE, "a record was made since it was read");
        }
        if (first == OK && link_failed_as(result, "ONC02")) {
            status = chain_went_on(self, err);
        }
        PQclear(result);
        first = first == OK ? status : first;
        if (at_sync || !link_alive(&self->link)) {
            return first;
        }
    }
}

/* The connection broke: the server may have received all of it. */
static enum status commit_lost(struct pg_store *self, const struct plan *plan, struct err *err)
{
    enum status before = pg_pending_before(self, err);
    if (before == E_UNAVAILABLE) {
        return before; /* S15 */
    }
    (void)pthread_mutex_lock(&self->mutex);
    self->sending = false;
    (void)pthread_mutex_unlock(&self->mutex);
    pg_unsettled_add(self, &plan->head);
    enum status status = before == OK ? pg_look_up(self, err) : before;
    if (status == OK) {
        self->head = plan->head;
    }
    return status;
}

/* Adds the new rows to the counts. After anything else the next prepare asks for them. */
static void count_rows(struct pg_store *self, const struct plan *plan)
{
    for (size_t i = 0; i < plan->inserts; i++) {
        const struct record *record = &plan->rows[i].record;
        bool is_asked = store_kind_in(STORE_KINDS_ASKED, record->kind);
        self->counts.records += is_asked;
        self->counts.by_status[record->status] += is_asked;
    }
    self->counts_until_ns = plan->updates == 0 ? self->counts_until_ns : 0;
}

/* Every change was accepted: the rest is waited for, here or by settle. */
static enum status commit_accepted(struct pg_store *self, const struct plan *plan, struct err *err)
{
    link_flush(&self->link); /* COMMIT: the next commit waits for it on the server */
    enum status before = pg_pending_before(self, err);
    if (before == E_UNKNOWN) { /* this one may have happened after it */
        link_close(&self->link);
        phase_set(self, PG_CLOSED);
        pg_unsettled_add(self, &plan->head);
        return before;
    }
    if (before != OK) {
        pg_recover(self);
        return before;
    }
    count_rows(self, plan);
    uint64_t floor = plan->commit->fence_floor;
    self->fence = floor > self->fence ? floor : self->fence;
    uint64_t number = pg_pending_begin(self, &plan->head, plan->sources);
    if (plan->commit->ret_number != NULL && self->phase == PG_IDLE && !plan->commit->inherits) {
        *plan->commit->ret_number = number;
        return OK;
    }
    enum status status = pg_settle(&self->store, number, err);
    pg_catch_up(self);
    if (self->phase == PG_CLOSED) {
        pg_spare_take(self);
    }
    if (status == OK && plan->commit->ret_number != NULL) {
        *plan->commit->ret_number = 0;
    }
    return status;
}

static enum status commit_plan(struct pg_store *self, const struct plan *plan, struct err *err)
{
    send_plan(self, plan);
    enum status status = receive_changes(self, plan, err);
    if (status == OK && link_alive(&self->link)) {
        return commit_accepted(self, plan, err);
    }
    bool refused = link_alive(&self->link);
    pg_recover(self);
    if (refused && status == E_STALE) {
        find_stale(self, plan);
    }
    if (refused) {
        (void)pthread_mutex_lock(&self->mutex);
        self->sending = false;
        (void)pthread_mutex_unlock(&self->mutex);
        return status;
    }
    return commit_lost(self, plan, err);
}

/* Whether a commit before this batch did not happen (S15). */
static bool is_doomed(struct pg_store *self)
{
    (void)pthread_mutex_lock(&self->mutex);
    bool doomed = self->doomed;
    (void)pthread_mutex_unlock(&self->mutex);
    return doomed;
}

enum status pg_commit(struct store *store, const struct commit *commit, struct err *err)
{
    struct pg_store *self = pg_of(store);
    struct plan plan = {.commit = NULL};
    ASSERT(self->phase == PG_PREPARED);
    if (pg_boot_ms(self) - self->now.boot_ms > LIMIT_PREPARED_MS_MAX) {
        pg_recover(self); /* S10: the server ends the session about now */
        return err_set(err, E_UNAVAILABLE, "the commit came too long after its prepare");
    }
    if (is_doomed(self)) {
        pg_recover(self);
        return err_set(
            err, E_UNAVAILABLE, "an earlier commit of this process did not happen: prepare again");
    }
    enum status status = plan_init(self, commit, &plan, err);
    if (status == OK) {
        status = commit_plan(self, &plan, err);
    } else {
        pg_recover(self);
    }
    plan_release(self, &plan);
    ASSERT(self->phase != PG_PREPARED);
    return status;
}
