/*
 * link: one connection to PostgreSQL, used in pipelines of prepared statements.
 *
 *   closed --link_open--> idle --link_send*, link_sync--> busy --link_next until the sync--> idle
 *     ^                                                     |
 *     +------------------- link_close, or it broke ---------+
 *
 * Promises:  no call waits beyond its deadline: a longer wait breaks the connection. A broken
 *            connection stays broken until it is opened again. No returned text contains a
 *            password.
 * Threads:   one at a time.
 */
#ifndef ONCE_STORE_POSTGRES_LINK_H
#define ONCE_STORE_POSTGRES_LINK_H

#include "base/err.h"
#include "store/postgres/args.h"
#include "store/postgres/libpq.h"

/* How to reach the server of a URL. */
struct pg_target {
    char *url;      /* for libpq, without our own options; owned */
    char *schema;   /* the schema of the store; owned */
    bool no_fsync;  /* accept a server that does not flush; only for tests */
    bool read_only; /* a standby is sufficient */
};

struct pg_link {
    PGconn *conn;          /* NULL: closed */
    const struct mem *mem; /* for the arguments */
    struct pg_args args;   /* of the statement that is being put together */
    uint64_t trips;        /* how often it has waited for the server, over all connections */
    bool waited;           /* it has waited since the last statement was sent */
    int pid;               /* of the server's process */
    unsigned syncs;        /* syncs sent and not yet answered */
    int64_t deadline_ns;   /* of the exchange under way, on clock_nanos */
};

/* E_INVALID: the URL is invalid; the text says where, without a password. */
enum status pg_target_read(const struct mem *mem, const char *url, struct pg_target *ret_target,
    struct err *err) MUST_CHECK;
void pg_target_release(const struct mem *mem, struct pg_target *target);

/* Bounded: LIMIT_STORE_CONNECT_S for each host that the URL names. The session's settings are in
 * effect on return; no statement is prepared. E_UNAVAILABLE. */
enum status link_open(
    struct pg_link *link, const struct pg_target *target, struct err *err) MUST_CHECK;
/* Closes the connection, if there is one. */
void link_close(struct pg_link *link);
/* The connection is open, as far as known here. */
bool link_alive(const struct pg_link *link);

/* Adds a statement to the pipeline, and clears link->args. link_next reports a failure. */
void link_prepare(struct pg_link *link, const char *name, const char *sql);
void link_send(struct pg_link *link, const char *name);
/* Adds a statement that is not prepared and has no arguments. */
void link_text(struct pg_link *link, const char *sql);
/* Ends a group of statements that fail together. */
void link_sync(struct pg_link *link);

/* Returns the next result. *ret_result is NULL at a sync. Free every result with PQclear. A
 * statement after a failed one, up to the sync, returns PGRES_PIPELINE_ABORTED, which is OK here.
 * E_UNAVAILABLE: the connection broke, or the statement failed and the server is fine: link_alive
 * distinguishes them. Other statuses follow from the server's answer (link_status). */
enum status link_next(struct pg_link *link, PGresult **ret_result, struct err *err) MUST_CHECK;
/* Reads up to the next sync. Returns the first failure; later results of the same pipeline are
 * dropped. */
enum status link_finish(struct pg_link *link, struct err *err) MUST_CHECK;

/* Sends what is left to send of the pipeline; bounded. A failure is reported by link_next. */
void link_flush(struct pg_link *link);
/* Drops all outstanding results, up to the last sync. */
void link_drain(struct pg_link *link);

/* The status of a failed result, with its text. */
enum status link_status(const PGresult *result, struct err *err);
/* Whether a failed result has this SQLSTATE. */
bool link_failed_as(const PGresult *result, const char *sqlstate);
/* Whether the server ends the connection with this result: FATAL or PANIC. */
bool link_ended(const PGresult *result);

#endif
