/*
 * Checks the server and the connection: settings that break a promise are refused by name, and
 * those that weaken one are recorded.
 *
 * A pooler is recognised by the session's number: the number given at the start of the connection
 * is the pooler's, not the server's. A second connection shows whether the pooler reassigns
 * sessions between transactions: it then gets the session that the first one has just used.
 */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/limits.h"
#include "store/postgres/impl.h"

static void caution_add(struct pg_store *self, const char *text)
{
    size_t at = 0;
    while (self->cautions[at] != NULL) {
        at++;
    }
    ASSERT(at < PG_CAUTIONS_MAX);
    self->cautions[at] = text;
}

const char *pg_caution(struct store *store, size_t number)
{
    const struct pg_store *self = pg_of(store);
    return number < PG_CAUTIONS_MAX ? self->cautions[number] : NULL;
}

/* The session of a new connection; 0: none. */
static int64_t session_of_another(const struct pg_store *self)
{
    char seconds[16];
    (void)snprintf(seconds, sizeof seconds, "%d", (int)LIMIT_STORE_CONNECT_S);
    const char *const names[] = {"connect_timeout", "dbname", NULL};
    const char *const values[] = {seconds, self->target.url, NULL};
    PGconn *conn = PQconnectdbParams(names, values, 1);
    PGresult *result =
        PQstatus(conn) == CONNECTION_OK
            ? PQexecParams(conn, "SELECT pg_backend_pid()", 0, NULL, NULL, NULL, NULL, 1)
            : NULL;
    int64_t pid = 0;
    if (PQresultStatus(result) == PGRES_TUPLES_OK && PQntuples(result) == 1) {
        (void)pg_value_int(pg_value_of(result, 0, 0), &pid);
    }
    PQclear(result);
    PQfinish(conn);
    return pid;
}

static enum status check_pooler(const struct pg_store *self, struct err *err)
{
    if (PQbackendPID(self->link.conn) == self->link.pid ||
        session_of_another(self) != self->link.pid) {
        return OK; /* no pooler, or one that leaves us our session */
    }
    (void)err_set(err, E_UNAVAILABLE,
        "a pooler gives the session away after each transaction: pool_mode = transaction");
    err_hint(err, "set pool_mode = session for this user or database in pgbouncer, or connect to "
                  "the server itself");
    return E_UNAVAILABLE;
}

/* What weakens a promise without breaking it (docs/postgres.md). */
static void note_cautions(struct pg_store *self, const PGresult *result)
{
    struct slice commit = pg_value_of(result, 0, 2).bytes;
    struct slice names = pg_value_of(result, 0, 4).bytes;
    int64_t standbys = 0;
    (void)pg_value_int(pg_value_of(result, 0, 5), &standbys);
    memset(self->cautions, 0, sizeof self->cautions);
    if (!slice_is(pg_value_of(result, 0, 1).bytes, "on")) {
        caution_add(self, "fsync = off: what was answered is lost when the machine stops");
    }
    if (!slice_is(pg_value_of(result, 0, 3).bytes, "on")) {
        caution_add(self, "full_page_writes = off: a page that is torn by a power loss stays so");
    }
    if (standbys > 0 && names.len == 0) {
        caution_add(self, "standbys follow asynchronously (synchronous_standby_names is empty): a "
                          "failover can lose grants that were given");
    } else if (names.len > 0 && (slice_is(commit, "local") || slice_is(commit, "remote_write"))) {
        caution_add(self, "synchronous_commit does not wait for the standby's disk: a failover can "
                          "lose grants that were given");
    }
}

enum status pg_check_session(struct pg_store *self, struct err *err)
{
    PGresult *result = NULL;
    int64_t pid = 0;
    link_text(&self->link,
        "SELECT pg_backend_pid(), current_setting('fsync'), current_setting('synchronous_commit'),"
        " current_setting('full_page_writes'), current_setting('synchronous_standby_names'),"
        " (SELECT count(*) FROM pg_stat_replication)");
    link_sync(&self->link);
    enum status status = pg_rows(self, 6, &result, err);
    if (status == OK) {
        (void)pg_value_int(pg_value_of(result, 0, 0), &pid);
        self->link.pid = (int)pid;
        bool flushes = slice_is(pg_value_of(result, 0, 1).bytes, "on") &&
                       !slice_is(pg_value_of(result, 0, 2).bytes, "off");
        note_cautions(self, result);
        if (!flushes && !self->target.no_fsync) {
            (void)err_set(err, E_UNAVAILABLE,
                "the PostgreSQL server has fsync = off: a grant could be lost after it was given");
            err_hint(
                err, "set fsync = on, or add fsync=off to the store URL to accept it in tests");
            status = E_UNAVAILABLE;
        }
    }
    PQclear(result);
    enum status end = link_alive(&self->link) ? link_finish(&self->link, NULL) : OK;
    status = status == OK ? end : status;
    return status == OK ? check_pooler(self, err) : status;
}
