/*
 * routes: tables of paths, methods and rights, and what each handler is given. The API has one, and
 * so has each door that is reached through the API's listeners; openapi.json has all of them.
 *
 *     api_handle > route > token > query > handler > … > api_answer_end or api_refuse
 *
 * Promises:  a handler runs only for a caller with one of its rights, with a query that has no
 *            unknown, doubled or badly written parameter, under one policy from begin to end.
 * Ownership: a request lives in its exchange's arena, from api_handle until it is answered.
 * Threads:   a request belongs to its exchange's loop.
 */
#ifndef ONCE_API_ROUTES_H
#define ONCE_API_ROUTES_H

#include <pthread.h>
#include <stdatomic.h>

#include "api/api.h"
#include "api/auth.h"
#include "http/problem.h"

/* The API's own table, and those of the doors that have no listener. */
enum { API_TABLES_MAX = 4 };

struct api {
    const struct mem *mem;
    struct door *door;
    struct http_server *server;  /* NULL until api_attach */
    const char *store;           /* for /readyz?verbose */
    const char *const *cautions; /* likewise; NULL: there are none */
    unsigned own_listener;
    uint64_t started_nanos;                   /* clock_nanos when it was made */
    _Atomic(const char *) not_ready;          /* why; NULL: ready */
    pthread_mutex_t lock;                     /* guards held and its count */
    struct api_held *held;                    /* the policy for requests that begin now */
    struct api_routes tables[API_TABLES_MAX]; /* its own first */
    size_t table_count;
    struct api_outbox outbox;
};

struct api_call;
struct api_request;
struct json_value;
struct member_fault;

/* Reads a body into a call (body.h). */
typedef enum status (*api_reader)(
    struct api_call *call, const struct json_value *value, struct member_fault *fault);

/* Who may look at operations, commands, effects and deliveries. */
#define API_READERS (API_RIGHT_EXECUTE | API_RIGHT_OPERATE | API_RIGHT_AUDIT)

enum { API_PARAMS_MAX = 8 }; /* more than any route knows */

struct api_param {
    struct slice name;
    struct slice value; /* decoded */
};

struct api_route {
    enum http_method method; /* GET answers HEAD too */
    const char *pattern;     /* "/v1/fences/{operation_id}/seal"; one {…} at most */
    unsigned rights;         /* any one of them; 0: whoever has a token */
    bool is_open;            /* no token is needed */
    bool takes_all;          /* on the own socket it may be asked for every tenant at once */
    bool takes_any;          /* whatever else the query has is ignored: its caller is a stranger */
    const char *params;      /* names that the query may have, with a blank between; NULL: none */
    void (*handle)(struct api_request *request);
    api_reader read; /* of api_call_run: its body */
};

/* One request on its way. */
struct api_request {
    struct api *api;
    const struct api_policy *policy; /* held until it is answered */
    struct http_exchange *exchange;
    struct api_caller caller;
    struct slice path_value; /* what the path has for {…}, or empty */
    struct slice query;      /* as it came; checked */
    const struct api_route *route;
    void *state; /* of the door that the route belongs to; NULL: the API's own */

    struct mem mem;                          /* the exchange's arena, for buffers */
    struct api_param params[API_PARAMS_MAX]; /* of the query */
    size_t param_count;
    struct api_held *held; /* the policy's */
    unsigned status;       /* of the answer */
};

/* The API's own. */
extern const struct api_routes api_own_routes;

/* Find the route of a path and a method in all tables, and what the path has for {…}. False:
 * *ret_allow is the methods of that path for a 405, such as "GET, HEAD", or NULL where there is no
 * such path. */
bool api_route_find(struct api_request *request, enum http_method method, struct slice path,
    const char **ret_allow) MUST_CHECK;

/* A parameter of the query, decoded; false: it was not given. */
bool api_param(
    const struct api_request *request, const char *name, struct slice *ret_value) MUST_CHECK;
/* Split the query into request->params. E_INVALID names what the route does not know, what is there
 * twice or is badly encoded; E_NOMEM. */
enum status api_query_read(struct api_request *request, struct err *err) MUST_CHECK;

/*
 * Answer: begin, any http_answer_field, then end; or refuse. These count the request and let go of
 * the policy: handlers never call http_answer_begin, http_answer_end or problem_answer themselves.
 * The request is gone afterwards. is_stable: the body is static or in the exchange's arena.
 */
void api_answer_begin(struct api_request *request, unsigned status);
void api_answer_end(
    struct api_request *request, struct slice content_type, struct slice body, bool is_stable);
void api_refuse(struct api_request *request, const struct problem *problem);
/* Refuse what had no effect and is not worth trying again. */
void api_refuse_plain(
    struct api_request *request, unsigned status, const char *code, const char *detail);
/* Answer 200 with a JSON document of the exchange's arena; or out of memory when it has failed. */
void api_answer_json(struct api_request *request, const struct buf *document);
/* The problem that a failure of the engine, of memory or of a store is. Its detail is the err's. */
struct problem api_problem_of(const struct err *err);
void api_fail(struct api_request *request, const struct err *err);
void api_fail_memory(struct api_request *request);

/* Handlers, one file a resource; api_call_run (call.h) handles every request that is one call. */
void api_fence_batch(struct api_request *request);
void api_operation_get(struct api_request *request);
void api_operation_list(struct api_request *request);
void api_evidence_list(struct api_request *request);
void api_evidence_head(struct api_request *request);
void api_livez(struct api_request *request);
void api_readyz(struct api_request *request);
void api_metrics(struct api_request *request);
void api_openapi(struct api_request *request);

#endif
