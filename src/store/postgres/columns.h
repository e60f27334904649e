/*
 * columns: a record as a row of the table of records, written and read by one table of columns.
 *
 * The SQL that names all columns is made from the table too, so that text, arguments and results
 * cannot come apart.
 */
#ifndef ONCE_STORE_POSTGRES_COLUMNS_H
#define ONCE_STORE_POSTGRES_COLUMNS_H

#include "core/record.h"
#include "store/postgres/args.h"

/* A record to be written, and what is not part of it. */
struct pg_row {
    struct record record;
    uint64_t version_expected;
    struct slice request_body; /* new bytes; empty: as stored before */
    struct slice outcome_body;
};

/* "r.key_hash, r.tenant_id, …": what columns_take reads. */
void columns_select(struct buf *sql, const char *table);
/* The statements that put rows which are new, and those which change; $1 is the chain. */
void columns_insert(struct buf *sql);
void columns_update(struct buf *sql);
/* Their arguments after the chain: one array for each column. */
void columns_put(struct pg_args *args, const struct pg_row *rows, size_t count);

/* How many columns a selected record has. */
int columns_count(void);
/* The record in that row, from that column on. Its slices point into the result. E_CORRUPT: it does
 * not check out; the text says which and why. */
enum status columns_take(const PGresult *result, int row, int column, struct record *ret_record,
    struct err *err) MUST_CHECK;

#endif
