/*
 * query: one query to the engine for one request.
 *
 *     api_query_run > (engine) > answer, or failed
 */
#ifndef ONCE_API_QUERY_H
#define ONCE_API_QUERY_H

#include "api/routes.h"
#include "canon/jsonw.h"
#include "engine/query.h"

/* In the exchange's arena. */
struct api_query {
    struct query query; /* the caller sets its kind and filters */
    struct api_request *request;
    struct arena *arena;                     /* of the results; NULL: the exchange's */
    void (*answer)(struct api_query *query); /* called on the exchange's loop when the query has a
                                                result */
    void (*failed)(struct api_query *query, const struct err *err); /* NULL: api_fail */
};

/* A query of this kind. NULL: out of memory; the request has been answered. */
struct api_query *api_query_new(struct api_request *request, enum query_kind kind,
    void (*answer)(struct api_query *query)) MUST_CHECK;
/* Write "next": the cursor of the page after this one, or null. */
void api_query_put_next(struct jsonw *json, const struct query *query);
/* Run a query for a list, with the parameters that all lists have: 'limit' and 'after'. A caller on
 * the own socket may list all tenants. wrong: why one of the list's own filters is invalid, or
 * NULL. */
void api_query_list(struct api_query *query, struct api_request *request, const char *wrong);
/* Send it to the engine, with the caller's tenant (P9). answer or failed follows, now or later. */
void api_query_run(struct api_query *query, struct api_request *request);

#endif
