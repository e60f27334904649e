/*
 * The commit that is under way: its changes were accepted, and COMMIT is waiting for the disk or
 * for a standby. Its connection belongs to the thread that waits for the answer; the store
 * continues with the spare one.
 *
 *   none --pending_begin--> open --pending_end--> none       its fate is kept for pg_settle
 *
 * At most one commit is open. The next one may already have been sent, on the other connection: its
 * marker, which comes after its changes, waits on the server for the row of our chain, and fails if
 * the open one rolls back (S15). So the server keeps the commits in order: the next one is accepted
 * when this one has happened, and its changes are made meanwhile.
 *
 * After a commit that did not happen, or whose fate is unknown, the store is `doomed`: what was
 * prepared after it cannot be committed, and the next prepare makes new connections, which finds
 * the end of our chain.
 */
#include <inttypes.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/limits.h"
#include "store/postgres/impl.h"

enum { SPARE_RETRY_MS = 10000 }; /* after a failed attempt to connect; one connection will do */

/* ---- connections --------------------------------------------------------------------------- */

/* Moves a connection and what goes with it. The target must have none. */
static void link_move(struct pg_link *to, struct pg_link *from)
{
    ASSERT(to->conn == NULL);
    uint64_t trips = to->trips;
    link_close(to); /* its arguments */
    *to = *from;
    *from = (struct pg_link){.mem = to->mem};
    to->trips += trips; /* they are added up over all connections */
}

void pg_spare_close(struct pg_store *self)
{
    (void)pthread_mutex_lock(&self->mutex);
    link_close(&self->spare);
    (void)pthread_mutex_unlock(&self->mutex);
}

void pg_spare_take(struct pg_store *self)
{
    ASSERT(self->phase == PG_CLOSED);
    (void)pthread_mutex_lock(&self->mutex);
    if (link_alive(&self->spare) && self->unsettled.count == 0 && !self->doomed) {
        link_move(&self->link, &self->spare);
    }
    (void)pthread_mutex_unlock(&self->mutex);
    if (self->link.conn != NULL) {
        phase_set(self, PG_IDLE);
    }
}

/* A second connection, made when the handle turns out to be used for more than a few commits. It
 * must see the chain as we left it. */
void pg_spare_open(struct pg_store *self)
{
    struct pg_store asker = pg_asker(self);
    int64_t now_ms = pg_boot_ms(self);
    (void)pthread_mutex_lock(&self->mutex);
    bool wanted = self->spare.conn == NULL && !self->pending.is_open && !self->inherits &&
                  self->commits >= PG_SPARE_COMMITS && now_ms >= self->spare_at_ms;
    int64_t expected = (int64_t)self->commits;
    (void)pthread_mutex_unlock(&self->mutex);
    if (!wanted) {
        return;
    }
    int64_t commits = -1;
    if (pg_open_link(&asker, NULL) != OK || pg_read_commits(&asker, &commits, NULL) != OK ||
        commits != expected) {
        link_close(&asker.link);
        self->spare_at_ms = now_ms + SPARE_RETRY_MS;
        return;
    }
    (void)pthread_mutex_lock(&self->mutex);
    link_move(&self->spare, &asker.link);
    (void)pthread_mutex_unlock(&self->mutex);
}

/* ---- fates --------------------------------------------------------------------------------- */

/* With the mutex. */
static void fate_keep(struct pg_store *self, uint64_t number, enum status status, const char *text)
{
    struct pg_fate *fate = &self->fates[number % LIMIT_SETTLED_MAX];
    fate->number = number;
    err_clear(&fate->err);
    if (status != OK) {
        (void)err_set(&fate->err, status, "%s", text);
    }
}

/* With the mutex. */
static enum status fate_of(const struct pg_store *self, uint64_t number, struct err *err)
{
    const struct pg_fate *fate = &self->fates[number % LIMIT_SETTLED_MAX];
    ASSERT(fate->number == number); /* or nobody asked for too long */
    return fate->err.status == OK ? OK : err_set(err, fate->err.status, "%s", fate->err.text);
}

/* The end of our chain is known to be here. With the mutex. */
void pg_settled(struct pg_store *self, const struct store_head *head)
{
    ASSERT(head->seq >= self->settled.seq);                       /* P10 */
    ASSERT(head->moment.time_ms >= self->settled.moment.time_ms); /* S8 */
    self->settled = *head;
    self->commits++;
}

void pg_unsettled_add(struct pg_store *self, const struct store_head *head)
{
    struct pg_unsettled *unsettled = &self->unsettled;
    (void)pthread_mutex_lock(&self->mutex);
    ASSERT(unsettled->count < PG_UNSETTLED_MAX);
    unsettled->heads[unsettled->count++] = *head;
    (void)pthread_mutex_unlock(&self->mutex);
}

enum status pg_look_up(struct pg_store *self, struct err *err)
{
    int64_t until_ns = (int64_t)clock_nanos() + INT64_C(1000000) * LIMIT_STORE_FATE_MS;
    int64_t pause = 50;
    for (;;) {
        struct pg_store asker = pg_asker(self);
        struct err cause = {0};
        bool happened = false;
        enum status status = pg_open_link(&asker, &cause);
        status = status == OK ? pg_check_chain(self, &asker, &happened, &cause) : status;
        link_close(&asker.link);
        if (status == OK) {
            return happened ? OK
                            : err_set(err, E_UNAVAILABLE,
                                  "the connection to PostgreSQL broke before the commit: nothing "
                                  "happened");
        }
        if (status != E_UNAVAILABLE) {
            return err_set(err, status, "%s", cause.text);
        }
        if ((int64_t)clock_nanos() >= until_ns) {
            return err_set(
                err, E_UNKNOWN, "it is not known yet whether a commit happened: %s", cause.text);
        }
        clock_sleep_ms(pause);
        pause = clock_doubled_ms(pause, LIMIT_STORE_BACKOFF_MS_MAX);
    }
}

/* ---- the open commit ------------------------------------------------------------------------ */

/* Whether COMMIT committed: for a failed transaction the server answers ROLLBACK. */
static enum status receive_commit(struct pg_link *link, struct err *err)
{
    PGresult *result = NULL;
    enum status status = link_next(link, &result, err);
    bool committed = status == OK && result != NULL && strcmp(PQcmdStatus(result), "COMMIT") == 0;
    if (link_ended(result)) { /* a server that fails during a commit may have written it */
        link_close(link);
    }
    PQclear(result);
    status = status == OK ? link_finish(link, err) : status;
    return status == OK && !committed
               ? err_set(err, E_UNAVAILABLE, "PostgreSQL rolled the commit back")
               : status;
}

/* Waits for the answer on the open commit's connection, and looks the fate up if that breaks. Only
 * the thread that set is_read is here. */
static enum status pending_receive(struct pg_store *self, struct err *err)
{
    struct pg_link *link = &self->pending.link;
    enum status status = receive_commit(link, err);
    if (link_alive(link)) {
        return status;
    }
    pg_unsettled_add(self, &self->pending.head);
    return pg_look_up(self, err);
}

/* With the mutex, which it gives up while it waits. */
static void pending_end(struct pg_store *self)
{
    struct pg_pending *pending = &self->pending;
    struct err err = {0};
    ASSERT(pending->is_open && !pending->is_read);
    pending->is_read = true;
    (void)pthread_mutex_unlock(&self->mutex);
    enum status status = pending_receive(self, &err);
    (void)pthread_mutex_lock(&self->mutex);
    bool alive =
        link_alive(&pending->link) && PQtransactionStatus(pending->link.conn) == PQTRANS_IDLE;
    if (status == OK && alive) {
        pg_settled(self, &pending->head); /* otherwise the look-up did it */
    }
    if (status != OK || !alive) {
        self->doomed = self->doomed || status != OK;
        self->renew = true; /* the other one may lead to a server that is no longer primary */
        link_close(&pending->link);
    } else if (self->spare.conn == NULL) {
        link_move(&self->spare, &pending->link);
    } else {
        link_close(&pending->link);
    }
    fate_keep(self, pending->number, status, err.text);
    pending->is_open = pending->is_read = false;
    (void)pthread_cond_broadcast(&self->changed);
}

/* With the mutex: waits until no commit up to this number is open. */
static void pending_wait(struct pg_store *self, uint64_t number)
{
    while (self->pending.is_open && self->pending.number <= number) {
        if (self->pending.is_read) {
            (void)pthread_cond_wait(&self->changed, &self->mutex);
        } else {
            pending_end(self);
        }
    }
}

void pg_pending_wait(struct pg_store *self)
{
    (void)pthread_mutex_lock(&self->mutex);
    pending_wait(self, UINT64_MAX);
    (void)pthread_mutex_unlock(&self->mutex);
}

enum status pg_settle(struct store *store, uint64_t number, struct err *err)
{
    struct pg_store *self = pg_of(store);
    (void)pthread_mutex_lock(&self->mutex);
    ASSERT(number > 0 && number <= self->numbers);
    pending_wait(self, number);
    enum status status = fate_of(self, number, err);
    (void)pthread_mutex_unlock(&self->mutex);
    return status;
}

enum status pg_pending_before(struct pg_store *self, struct err *err)
{
    enum status status = OK;
    (void)pthread_mutex_lock(&self->mutex);
    pending_wait(self, UINT64_MAX);
    if (self->unsettled.count > 0) {
        status = err_set(err, E_UNKNOWN, "it is not known yet whether an earlier commit happened");
    } else if (self->doomed) {
        status = err_set(err, E_UNAVAILABLE,
            "an earlier commit of this process did not happen, so this one did not either");
    }
    self->sending = self->sending && status == OK;
    (void)pthread_mutex_unlock(&self->mutex);
    return status;
}

uint64_t pg_pending_begin(struct pg_store *self, const struct store_head *head, bool sources)
{
    struct pg_pending *pending = &self->pending;
    ASSERT(self->phase == PG_PREPARED);
    (void)pthread_mutex_lock(&self->mutex);
    ASSERT(!pending->is_open && self->unsettled.count == 0);
    self->sending = false;
    link_move(&pending->link, &self->link);
    pending->head = *head;
    pending->sources = sources;
    pending->number = ++self->numbers;
    pending->is_open = true;
    uint64_t number = pending->number;
    (void)pthread_mutex_unlock(&self->mutex);
    self->head = *head;
    phase_set(self, PG_CLOSED);
    pg_spare_take(self);
    return number;
}

void pg_catch_up(struct pg_store *self)
{
    (void)pthread_mutex_lock(&self->mutex);
    bool renew = self->renew || self->doomed;
    if (self->doomed) {
        self->head = self->settled;
        self->counts_until_ns = 0;
    }
    self->doomed = self->renew = false;
    int64_t time_ms = self->settled.moment.time_ms;
    self->mark_ms = time_ms > self->mark_ms ? time_ms : self->mark_ms;
    if (renew) {
        link_close(&self->spare);
    }
    (void)pthread_mutex_unlock(&self->mutex);
    if (renew && self->phase == PG_IDLE) {
        link_close(&self->link);
        phase_set(self, PG_CLOSED);
    }
}
