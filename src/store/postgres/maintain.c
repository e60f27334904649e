/*
 * Housekeeping: removes expired records and old evidence (schema_8.sql) in bounded chunks, and
 * chains the evidence that applications' own transactions left (schema_2.sql).
 *
 * A record is forgotten by committed time only (P8): the mark that this handle knows is in the
 * table, so a server that loses its newest transactions does not revive a forgotten key.
 */
#include "base/check.h"
#include "base/limits.h"
#include "store/postgres/impl.h"

enum {
    EXPIRE_ROWS = 512,     /* in one transaction: a few milliseconds of locks */
    EXPIRE_CHUNKS_MAX = 8, /* in one call */
    EXPIRE_EVERY_MS = 1000,
    CHAIN_DECISIONS = 256, /* in one transaction: some 50 ms */
    KEEP_EVERY_MS = 60000,
    KEEP_ROWS = 5000,    /* in one transaction: some 50 ms */
    KEEP_AGAIN_MS = 500, /* while there is more to remove: others have most of the time */
};

#define RETAIN_MS_MIN (INT64_C(86400000)) /* keep_partitions refuses less; a month goes whole */
#define SILENT_MS_MAX (INT64_C(30) * 86400000) /* a process silent for this long has ended */

/* Runs one statement in its own transaction. */
static enum status run(struct pg_store *self, const char *name, int64_t *ret_count, struct err *err)
{
    PGresult *result = NULL;
    link_send(&self->link, name);
    link_sync(&self->link);
    enum status status = pg_rows(self, 1, &result, err);
    status = status == OK ? link_finish(&self->link, err) : status;
    if (status == OK && ret_count != NULL) {
        *ret_count = 0;
        (void)pg_value_int(pg_value_of(result, 0, 0), ret_count);
    }
    PQclear(result);
    if (status != OK) {
        pg_recover(self);
    }
    ASSERT(self->phase != PG_PREPARED);
    return status;
}

void pg_end_stalled_by(struct pg_link *link)
{
    args_int8(&link->args, LIMIT_PREPARED_MS_MAX);
    link_send(link, PG_STALLED);
    link_sync(link);
    enum status ignored = link_finish(link, NULL);
    (void)ignored; /* the next one who waits for these keys tries again */
}

void pg_end_stalled(struct pg_store *self)
{
    ASSERT(self->phase == PG_IDLE);
    pg_end_stalled_by(&self->link);
    pg_recover(self);
}

static enum status expire(struct pg_store *self, struct err *err)
{
    int64_t count = EXPIRE_ROWS;
    enum status status = OK;
    for (int i = 0; i < EXPIRE_CHUNKS_MAX && count == EXPIRE_ROWS && status == OK; i++) {
        args_slice(&self->link.args, slice_of(self->identity.chain_id, 16));
        args_time(&self->link.args, self->mark_ms);
        args_int8(&self->link.args, EXPIRE_ROWS);
        status = run(self, PG_EXPIRE, &count, err);
        self->counts_until_ns = 0;
        ASSERT(status != OK || count <= EXPIRE_ROWS);
    }
    if (count < EXPIRE_ROWS) {
        self->expire_at_ms = pg_boot_ms(self) + EXPIRE_EVERY_MS;
    }
    return status;
}

/* One transaction: a crash leaves the decisions for the next process. */
static enum status chain(struct pg_store *self, struct err *err)
{
    int64_t count = CHAIN_DECISIONS;
    enum status status = OK;
    for (int i = 0; i < EXPIRE_CHUNKS_MAX && count == CHAIN_DECISIONS && status == OK; i++) {
        args_int4(&self->link.args, CHAIN_DECISIONS);
        status = run(self, PG_CHAIN, &count, err);
        ASSERT(status != OK || count <= CHAIN_DECISIONS);
    }
    if (count == CHAIN_DECISIONS) {
        self->expire_at_ms = 0; /* there is more: continue at the next call */
    }
    return status;
}

static enum status keep(struct pg_store *self, struct err *err)
{
    enum status status = OK;
    int64_t now_ms = pg_boot_ms(self);
    int64_t more = 0;
    bool slept = now_ms > self->keep_at_ms + SILENT_MS_MAX / 2;
    self->keep_at_ms = now_ms + KEEP_EVERY_MS;
    if (self->mark_ms > 0) { /* something was committed */
        args_time(&self->link.args, self->mark_ms);
        args_int8(
            &self->link.args, self->retain_ms > RETAIN_MS_MIN ? self->retain_ms : RETAIN_MS_MIN);
        args_int4(&self->link.args, KEEP_ROWS);
        status = run(self, PG_KEEP, &more, err);
    }
    if (status == OK && more != 0) {
        self->keep_at_ms = now_ms + KEEP_AGAIN_MS;
    }
    if (status == OK && !slept) { /* else our own heart has not beaten yet */
        args_time(&self->link.args, pg_time_now(self).time_ms - SILENT_MS_MAX);
        status = run(self, PG_FOLD, NULL, err);
    }
    if (status == OK) {
        pg_end_stalled(self); /* while it has not ended, evidence after it is not shown (S11) */
    }
    return status;
}

/* Failures are retried later: nothing waits for this. */
static enum status pg_maintain(struct store *store, struct err *err)
{
    struct pg_store *self = pg_of(store);
    int64_t now_ms = pg_boot_ms(self);
    if (now_ms < self->expire_at_ms && now_ms < self->keep_at_ms) {
        return OK;
    }
    enum status status = pg_ready(self, err);
    if (status == OK && now_ms >= self->expire_at_ms) {
        status = expire(self, err);
        status = status == OK ? chain(self, err) : status;
    }
    if (status == OK && now_ms >= self->keep_at_ms) {
        status = keep(self, err);
    }
    return status;
}

const struct store_housekeeping pg_housekeeping = {.maintain = pg_maintain};
