/*
 * named: finds a record by our id or by the id that its submitter gave.
 *
 *     api_named_run > (engine) > end, or the request is answered with api_fail
 *
 * Promises:  finds only records of the caller's tenant (P9).
 * Ownership: a search lives in its exchange's arena.
 */
#ifndef ONCE_API_NAMED_H
#define ONCE_API_NAMED_H

#include "api/query.h"

struct api_named {
    struct slice name; /* before: as the caller wrote it; at the end: our id, if it was found */
    unsigned kinds;    /* of records to search; 0: none, and name stays */
    void (*end)(struct api_named *self); /* called on the exchange's loop */
    struct api_query query;              /* the search's own, and so is the arena */
    struct arena arena;                  /* of one page */
};

/* The kinds of records that have given ids; 0: no door has any. */
unsigned api_named_kinds(const struct api *api);
/* The caller has set name, kinds and end. */
void api_named_run(struct api_named *self, struct api_request *request);

#endif
