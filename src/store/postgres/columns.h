/*
 * columns: a record as a row of the table of records; one table of columns writes and reads it.
 *
 * The SQL that names all columns is made from the table too, so that text, arguments and results
 * always agree.
 */
#ifndef ONCE_STORE_POSTGRES_COLUMNS_H
#define ONCE_STORE_POSTGRES_COLUMNS_H

#include "core/record.h"
#include "store/postgres/args.h"

/* A record to write, and the data beside it. */
struct pg_row {
    struct record record;
    uint64_t version_expected;
    struct slice request_body; /* new bytes; empty: unchanged */
    struct slice outcome_body;
};

/* "r.key_hash, r.tenant_id, …": what columns_take reads. */
void columns_select(struct buf *sql, const char *table);
/* The statements that insert new rows and that update rows. */
void columns_insert(struct buf *sql);
void columns_update(struct buf *sql);
/* Their arguments: one array for each column. */
void columns_put(struct pg_args *args, const struct pg_row *rows, size_t count);

/* What new rows differ in. */
enum pg_alike {
    PG_ROWS_DIFFER, /* in any column */
    PG_ROWS_ALIKE,  /* only in the following, and in their tenants, scopes, principals and times */
    PG_ROWS_SAME,   /* only in their keys, ids, fences, fingerprints, traces and request bodies */
};

/* The statement that inserts similar new rows: a column in which they do not differ is one argument
 * instead of an array. This takes half of the time. Not for PG_ROWS_DIFFER. */
void columns_insert_alike(struct buf *sql, enum pg_alike alike);
enum pg_alike columns_alike(const struct pg_row *rows, size_t count);
void columns_put_alike(
    struct pg_args *args, const struct pg_row *rows, size_t count, enum pg_alike alike);

/* How many columns a selected record has. */
int columns_count(void);
/* Reads the record in that row, starting at that column. Its slices point into the result.
 * E_CORRUPT: the record is invalid; the text says which and why. */
enum status columns_take(const PGresult *result, int row, int column, struct record *ret_record,
    struct err *err) MUST_CHECK;

#endif
