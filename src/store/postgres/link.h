/*
 * link: one connection to PostgreSQL, used in pipelines of prepared statements.
 *
 *   closed --link_open--> idle --link_send*, link_sync--> busy --link_next until the sync--> idle
 *     ^                                                     |
 *     +------------------- link_close, or it broke ---------+
 *
 * Promises:  nothing waits for longer than its deadline: what takes longer breaks the connection.
 *            A broken connection stays broken until it is opened again. No text that is returned
 *            holds a password.
 * Threads:   one at a time.
 */
#ifndef ONCE_STORE_POSTGRES_LINK_H
#define ONCE_STORE_POSTGRES_LINK_H

#include <libpq-fe.h>

#include "base/err.h"
#include "store/postgres/args.h"

/* How a URL is reached. */
struct pg_target {
    char *url;      /* for libpq: without what is ours; owned */
    char *schema;   /* the schema of the store; owned */
    bool no_fsync;  /* a server that does not flush is accepted: it is only for tests */
    bool read_only; /* a standby will do */
};

struct pg_link {
    PGconn *conn;          /* NULL: closed */
    const struct mem *mem; /* for the arguments */
    struct pg_args args;   /* of the statement that is being put together */
    uint64_t trips;        /* how often it has waited for the server, in all connections */
    bool waited;           /* since the last that was sent */
    int pid;               /* of the server's process */
    unsigned syncs;        /* sent, and not yet come back */
    int64_t deadline_ns;   /* of what is under way, on clock_nanos */
};

/* E_INVALID: the URL is wrong; the text says where, without a password. */
enum status pg_target_read(const struct mem *mem, const char *url, struct pg_target *ret_target,
    struct err *err) MUST_CHECK;
void pg_target_release(const struct mem *mem, struct pg_target *target);

/* Bounded: LIMIT_STORE_CONNECT_S for each host that the URL names. The session's settings hold
 * when it returns; nothing is prepared. E_UNAVAILABLE. */
enum status link_open(
    struct pg_link *link, const struct pg_target *target, struct err *err) MUST_CHECK;
/* Break the connection, if there is one. */
void link_close(struct pg_link *link);
/* It is open, as far as is known here. */
bool link_alive(const struct pg_link *link);

/* Add a statement to the pipeline, with link->args, which are cleared. A failure shows in
 * link_next. */
void link_prepare(struct pg_link *link, const char *name, const char *sql);
void link_send(struct pg_link *link, const char *name);
/* Outside of the prepared ones: one statement without arguments. */
void link_text(struct pg_link *link, const char *sql);
/* The end of what may fail together. */
void link_sync(struct pg_link *link);

/* The next result. *ret_result is NULL at a sync. Every result is to be freed with PQclear.
 * A statement after one that failed, up to the sync, comes back as PGRES_PIPELINE_ABORTED, which is
 * OK here. E_UNAVAILABLE: the connection broke, or the statement failed and the server is fine:
 * link_alive tells. Others by what the server said (link_status). */
enum status link_next(struct pg_link *link, PGresult **ret_result, struct err *err) MUST_CHECK;
/* Read up to the next sync. The first failure on the way; later results of the same pipeline are
 * dropped. */
enum status link_finish(struct pg_link *link, struct err *err) MUST_CHECK;

/* Drop what is still to come, up to the last sync. */
void link_drain(struct pg_link *link);

/* What a failed result means, with its text. */
enum status link_status(const PGresult *result, struct err *err);
/* The SQLSTATE of a failed result is this. */
bool link_failed_as(const PGresult *result, const char *sqlstate);

#endif
