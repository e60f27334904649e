/*
 * ls_rows: operations as once ls prints them: the latest change first. A list of unknown operations
 * shows the age of each and the reason why it is unknown. The reason is in its record; the age
 * counts from its last change, and duplicates do not change it.
 *
 * Does not:  hold more than LS_ROWS_BYTES_MAX of rows. Beyond that they are printed in parts, each
 *            in order.
 * Ownership: rows are copies.
 */
#ifndef ONCE_CLI_LS_ROWS_H
#define ONCE_CLI_LS_ROWS_H

#include "cli/operation.h"

enum {
    LS_ROWS_BYTES_MAX = 64 << 20,    /* of rows: more than a hundred thousand */
    LS_DOCUMENT_BYTES_MAX = 1 << 20, /* far more than names, a reason and a trace can need */
};

/* Replace the buffer's contents with the document, with its age unless that is negative. */
void ls_put_document(struct buf *out, const struct operation *operation, int64_t age_ms);

struct ls_row;

struct ls_rows {
    struct cli *cli;
    bool is_unknown; /* only unknown ones: with age and reason */
    bool has_tenant; /* of every tenant: each row names its tenant */
    int64_t now_ms;
    struct arena rows;
    struct ls_row *newest; /* each row points to the one before it */
    size_t count;          /* of rows held */
    size_t left;           /* how many may still be printed */
    size_t printed;
};

/* limit: the most rows to print; 0: all. */
void ls_rows_init(struct ls_rows *list, struct cli *cli, bool is_unknown, size_t limit);
/* Add a copy of an operation. False: out of memory. */
bool ls_rows_add(struct ls_rows *list, const struct operation *operation) MUST_CHECK;
/* Print the rows held. False: out of memory. */
bool ls_rows_print(struct ls_rows *list) MUST_CHECK;
void ls_rows_release(struct ls_rows *list);

/* Whole units, for people: "0s", "59s", "3m", "23h", "2d". A future time is "0s". Returns its
 * argument. */
char *ls_put_age(char ret_text[32], int64_t ms);
/* How many bytes of a text fit into that many terminal columns, as written by out_safe. Never ends
 * inside a character. Each character counts as one column. */
size_t ls_fit(struct slice text, size_t columns);

#endif
