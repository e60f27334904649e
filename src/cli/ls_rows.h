/*
 * ls_rows: operations as once ls prints them: the latest change first; or, of those that somebody
 * has to settle, the oldest first, each with how long it has been unknown and the last word about
 * it: why nobody knows. That is the reason in its record, and the time is that of its last change:
 * duplicates do not change it.
 *
 * Does not:  hold more than LS_ROWS_BYTES_MAX of them. Past that they are printed in parts, each
 *            of them in order.
 * Ownership: rows are copies.
 */
#ifndef ONCE_CLI_LS_ROWS_H
#define ONCE_CLI_LS_ROWS_H

#include "cli/operation.h"

enum {
    LS_ROWS_BYTES_MAX = 64 << 20,    /* of rows: a hundred thousand and more */
    LS_DOCUMENT_BYTES_MAX = 1 << 20, /* far above what names, a reason and a trace can need */
};

/* The document into a buffer, in place of what is there, with how long it has been unknown unless
 * that is negative. */
void ls_put_document(struct buf *out, const struct operation *operation, int64_t age_ms);

struct ls_row;

struct ls_rows {
    struct cli *cli;
    bool is_unknown; /* of unknown ones only: with age and reason, the oldest first */
    bool has_tenant; /* of every tenant: each is named */
    int64_t now_ms;
    struct arena rows;
    struct ls_row *newest; /* each knows the one before it */
    size_t count;          /* of rows held */
    size_t left;           /* that may still be printed */
    size_t printed;
};

/* limit: how many are printed at most; 0 is all. */
void ls_rows_init(struct ls_rows *list, struct cli *cli, bool is_unknown, size_t limit);
/* Take a copy of one. False: out of memory. */
bool ls_rows_add(struct ls_rows *list, const struct operation *operation) MUST_CHECK;
/* Print what is held. False: out of memory. */
bool ls_rows_print(struct ls_rows *list) MUST_CHECK;
void ls_rows_release(struct ls_rows *list);

/* Whole units, for people: "0s", "59s", "3m", "23h", "2d". A time to come is "0s". Returns its
 * argument. */
char *ls_put_age(char ret_text[32], int64_t ms);
/* Bytes of a text that fit into that many columns of a terminal, as out_safe writes them. Never
 * ends inside a character. Each character counts as one column. */
size_t ls_fit(struct slice text, size_t columns);

#endif
