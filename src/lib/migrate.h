/*
 * migrate: makes the schema of a store on a database server, or brings it up to date. Part of the
 * program, not of libonce.
 *
 * Promises:  all or nothing; safe to repeat and to run from several machines at once. A schema
 *            that is newer than this program is refused and left alone.
 */
#ifndef ONCE_LIB_MIGRATE_H
#define ONCE_LIB_MIGRATE_H

#include "base/buf.h"
#include "base/err.h"

/* What to allow a role of the database: */
enum migrate_right {
    MIGRATE_RUN,       /* to run Once */
    MIGRATE_READ,      /* to read */
    MIGRATE_FUNCTIONS, /* to call the functions in its own transactions */
};

struct migrate_role {
    const char *name;
    enum migrate_right right;
    const char *tenant; /* functions: its tenant; NULL: unchanged, initially `default` */
};

struct migrate_plan {
    const char *url;
    const struct migrate_role *roles;
    size_t role_count;
};

struct migrate_result {
    int version_before; /* of the schema; 0: there was none */
    int version_after;
};

/* E_INVALID: the URL is invalid, or names a store without a schema. E_UNAVAILABLE: the server
 * cannot be reached, refuses, or has a newer schema. E_NOMEM. */
enum status migrate_store(
    const struct migrate_plan *plan, struct migrate_result *ret_result, struct err *err) MUST_CHECK;
/* Prints migrate_store's statements for an empty database, for psql. Connects to nothing. */
enum status migrate_print(
    const struct migrate_plan *plan, struct buf *out, struct err *err) MUST_CHECK;

#endif
