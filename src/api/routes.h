/*
 * routes: the one table of paths, methods and rights, and what every handler is given.
 *
 *     api_handle > route > token > query > handler > … > api_answer_end or api_refuse
 *
 * Promises:  a handler runs only for a caller with one of its rights, with a query that has no
 *            unknown, doubled or badly written parameter, under one policy from begin to end.
 * Ownership: an ask lives in its exchange's arena, from api_handle until it is answered.
 * Threads:   an ask belongs to its exchange's loop.
 */
#ifndef ONCE_API_ROUTES_H
#define ONCE_API_ROUTES_H

#include <pthread.h>
#include <stdatomic.h>

#include "api/api.h"
#include "api/auth.h"
#include "http/problem.h"

struct api {
    const struct mem *mem;
    struct door *door;
    struct http_server *server; /* NULL until api_attach */
    const char *store;          /* for /readyz?verbose */
    unsigned own_listener;
    uint64_t started_nanos;          /* clock_nanos when it was made */
    _Atomic(const char *) not_ready; /* why; NULL: ready */
    pthread_mutex_t lock;            /* guards held and its count */
    struct api_held *held;           /* the policy for requests that begin now */
};

struct api_ask;

enum { API_PARAMS_MAX = 8 }; /* more than any route knows */

struct api_param {
    struct slice name;
    struct slice value; /* decoded */
};

struct api_route {
    enum http_method method; /* GET answers HEAD too */
    const char *pattern;     /* "/v1/fences/{operation_id}/seal" */
    unsigned rights;         /* any one of them; 0: whoever has a token */
    bool is_open;            /* no token is asked for */
    const char *params;      /* names that the query may have, with a blank between; NULL: none */
    void (*handle)(struct api_ask *ask);
};

/* One request on its way. */
struct api_ask {
    struct api *api;
    const struct api_policy *policy; /* held until it is answered */
    struct http_exchange *exchange;
    struct api_caller caller;
    struct slice operation_id_text; /* path parameter, or empty */
    struct slice query;             /* as it came; checked */
    const struct api_route *route;

    struct mem mem;                          /* the exchange's arena, for buffers */
    struct api_param params[API_PARAMS_MAX]; /* of the query */
    size_t param_count;
    struct api_held *held; /* the policy's */
    unsigned status;       /* of the answer */
};

extern const struct api_route api_routes[];
extern const size_t api_route_count;

/* The route of a path and a method. NULL: *ret_allow is the methods of that path for a 405, such as
 * "GET, HEAD", or NULL where there is no such path. */
const struct api_route *api_route_find(enum http_method method, struct slice path,
    struct slice *ret_operation_id, const char **ret_allow) MUST_CHECK;

/* A parameter of the query, decoded; false: it was not given. */
bool api_param(const struct api_ask *ask, const char *name, struct slice *ret_value) MUST_CHECK;
/* The same out of any query. False too when it is badly written or memory is short. */
bool api_query(
    struct slice query, const char *name, struct arena *arena, struct slice *ret_value) MUST_CHECK;
/* Take the query apart into ask->params. E_INVALID names what the route does not know, what came
 * twice or is badly written; E_NOMEM. */
enum status api_query_read(struct api_ask *ask, struct err *err) MUST_CHECK;

/*
 * Answer: begin, any http_answer_field, then end; or refuse. These count the request and let go of
 * the policy: handlers never call http_answer_begin, http_answer_end or problem_answer themselves.
 * The ask is gone afterwards. is_stable: the body is static or in the exchange's arena.
 */
void api_answer_begin(struct api_ask *ask, unsigned status);
void api_answer_end(
    struct api_ask *ask, struct slice content_type, struct slice body, bool is_stable);
void api_refuse(struct api_ask *ask, const struct problem *problem);
/* The problem that a failure of the engine, of memory or of a store is. Its detail is the err's. */
struct problem api_problem_of(const struct err *err);
void api_fail(struct api_ask *ask, const struct err *err);
void api_fail_memory(struct api_ask *ask);

/* Handlers, one file a resource. */
void api_fence_begin(struct api_ask *ask);
void api_fence_batch(struct api_ask *ask);
void api_fence_seal(struct api_ask *ask);
void api_fence_release(struct api_ask *ask);
void api_fence_unknown(struct api_ask *ask);
void api_fence_renew(struct api_ask *ask);
void api_operation_get(struct api_ask *ask);
void api_operation_list(struct api_ask *ask);
void api_operation_resolve(struct api_ask *ask);
void api_evidence_list(struct api_ask *ask);
void api_evidence_head(struct api_ask *ask);
void api_livez(struct api_ask *ask);
void api_readyz(struct api_ask *ask);
void api_metrics(struct api_ask *ask);
void api_openapi(struct api_ask *ask);

#endif
