/*
 * postgres: a store in a PostgreSQL database, shared by any number of processes.
 *
 * Promises:  those of store.h, S1 to S15. A batch of any size takes two round trips. A commit is as
 *            durable as the server makes it; flush has nothing left to do. A commit whose answer
 *            was lost is looked up by its marker, never guessed.
 * Not here:  decisions and evidence, except those of an application's own transactions: SQL
 *            functions (schema_2.sql) make these, and Once processes chain their evidence later.
 *
 * docs/postgres.md says how to set it up, docs/formats/postgres.md describes the tables.
 */
#ifndef ONCE_STORE_POSTGRES_POSTGRES_H
#define ONCE_STORE_POSTGRES_POSTGRES_H

#include "base/buf.h"
#include "store/store.h"

/* "postgres://…" or "postgresql://…", with the option schema=NAME. Fails as store_open does;
 * E_UNAVAILABLE: not reachable, no schema, or a schema of a different version. */
enum status postgres_open(const char *url, const struct store_options *options,
    struct store **ret_store, struct err *err) MUST_CHECK;
enum status postgres_url_check(const char *url, struct err *err) MUST_CHECK;

enum postgres_grant_kind {
    POSTGRES_GRANT_PROCESS,   /* to run Once */
    POSTGRES_GRANT_READ,      /* to read, with psql or once ls */
    POSTGRES_GRANT_FUNCTIONS, /* to call the functions in its own transactions */
};

/* What to allow a role. */
struct postgres_grant {
    const char *role;
    enum postgres_grant_kind kind;
    const char *tenant; /* functions: its tenant; NULL: unchanged, initially `default` */
};

struct postgres_migration {
    const struct postgres_grant *grants;
    size_t grant_count;
    /* Set by postgres_migrate. */
    int version_before; /* 0: there was none */
    int version_after;
};

/* Brings the schema to this program's version, in one transaction; safe to repeat and to run from
 * several processes at once. E_UNAVAILABLE: not reachable, not allowed, or the schema is newer than
 * this program; nothing was changed. */
enum status postgres_migrate(
    const char *url, struct postgres_migration *migration, struct err *err) MUST_CHECK;
/* Prints the same as SQL for psql, starting from an empty database; connects to nothing. */
enum status postgres_migrate_print(const char *url, const struct postgres_migration *migration,
    struct buf *out, struct err *err) MUST_CHECK;

/* How often the store has waited for its server; for tests. */
uint64_t postgres_round_trips(struct store *store);

#endif
