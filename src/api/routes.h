/*
 * routes: tables of paths, methods and rights, and the request that each handler gets. The API has
 * one table, and each door that is reached through the API's listeners has one; openapi.json
 * describes all of them.
 *
 *     api_handle > route > token > query > handler > … > api_answer_end or api_refuse
 *
 * Promises:  a handler runs only for a caller with one of its rights, with a query that has no
 *            unknown, repeated or malformed parameter, under one policy from start to end.
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

/* The API's own table, and those of the doors without a listener. */
enum { API_TABLES_MAX = 4 };

struct api {
    const struct mem *mem;
    struct door *door;
    struct http_server *server;  /* NULL until api_attach */
    const char *store;           /* for /readyz?verbose */
    const char *const *cautions; /* what weakens a promise of the store, for the same page; NULL:
                                    none */
    unsigned own_listener;
    uint64_t started_nanos;                   /* clock_nanos when the api was made */
    _Atomic(const char *) not_ready;          /* the reason; NULL: ready */
    pthread_mutex_t lock;                     /* guards held and its count */
    struct api_held *held;                    /* the policy for requests that begin now */
    struct api_routes tables[API_TABLES_MAX]; /* the API's own first */
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

/* Rights that allow reading operations, commands, effects and deliveries. */
#define API_READERS (CONFIG_RIGHT_EXECUTE | CONFIG_RIGHT_OPERATE | CONFIG_RIGHT_AUDIT)

enum { API_PARAMS_MAX = 8 }; /* more than any route takes */

struct api_param {
    struct slice name;
    struct slice value; /* decoded */
};

struct api_route {
    enum http_method method; /* GET answers HEAD too */
    const char *pattern;     /* "/v1/fences/{operation_id}/seal"; one {…} at most */
    unsigned rights;         /* any one of them suffices; 0: any token */
    bool is_open;            /* no token is needed */
    bool takes_all;          /* on the own socket, "*" may be used to ask for all tenants at once */
    bool takes_any;          /* unknown parameters are ignored: the caller is not a client of
                                ours */
    const char *params;      /* names of the query's parameters, separated by blanks; NULL: none */
    enum record_kind kind;   /* of the record that {…} names, if is_named is set */
    /* Whether the record has this name, which its submitter gave; NULL: only our ids are known.
     * path_value is our id when the handler runs, if there is such a record. */
    bool (*is_named)(const struct record *record, struct slice name, struct arena *arena);
    void (*handle)(struct api_request *request);
    api_reader read; /* for api_call_run: reads the body */
};

/* One request in progress. */
struct api_request {
    struct api *api;
    const struct api_policy *policy; /* held until it is answered */
    struct http_exchange *exchange;
    struct api_caller caller;
    struct slice path_value; /* the part of the path that matched {…}, decoded, or empty */
    struct slice query;      /* as it came; checked */
    const struct api_route *route;
    void *state; /* of the route's door; NULL: the API's own */

    struct mem mem;                          /* the exchange's arena, for buffers */
    struct api_param params[API_PARAMS_MAX]; /* of the query */
    size_t param_count;
    struct api_held *held;   /* the policy's */
    unsigned status;         /* of the answer */
    struct door_group group; /* of api_submit_group */
};

/* The API's own table. */
extern const struct api_routes api_own_routes;

/* Find the route of a path and a method in all tables, and the part of the path that matches {…}.
 * False: *ret_allow has the methods of that path for a 405, such as "GET, HEAD", or NULL where no
 * route has such a path. */
bool api_route_find(struct api_request *request, enum http_method method, struct slice path,
    const char **ret_allow) MUST_CHECK;

/* Decode the escapes of path_value, which stays as it came if they are malformed. E_NOMEM. */
enum status api_path_read(struct api_request *request) MUST_CHECK;
/* Find the record that path_value names, for a route with is_named; then call its handler. */
void api_find_named(struct api_request *request);

/* A parameter of the query, decoded; false: absent. */
bool api_param(
    const struct api_request *request, const char *name, struct slice *ret_value) MUST_CHECK;
/* Split the query into request->params. E_INVALID names the parameter that is unknown, repeated or
 * badly encoded. E_NOMEM. */
enum status api_query_read(struct api_request *request, struct err *err) MUST_CHECK;

/*
 * Answer: begin, any http_answer_field, then end; or refuse. These count the request and release
 * the policy: handlers never call http_answer_begin, http_answer_end or problem_answer themselves.
 * The request is gone afterwards. is_stable: the body is static or in the exchange's arena.
 */
void api_answer_begin(struct api_request *request, unsigned status);
void api_answer_end(
    struct api_request *request, struct slice content_type, struct slice body, bool is_stable);
void api_refuse(struct api_request *request, const struct problem *problem);
/* Refuse a request that had no effect and is not worth retrying. */
void api_refuse_plain(
    struct api_request *request, unsigned status, const char *code, const char *detail);
/* Answer 200 with a JSON document in the exchange's arena, or "out of memory" if the buffer
 * failed. */
void api_answer_json(struct api_request *request, const struct buf *document);
/* The problem for a failure of the engine, the store or memory. Its detail is the err's. */
struct problem api_problem_of(const struct err *err);
void api_fail(struct api_request *request, const struct err *err);
void api_fail_memory(struct api_request *request);
/* The engine made a decision that the request cannot have. */
extern const struct problem api_problem_decision;
/* Submit calls that go into one commit at the end of the loop's turn. Each has its done; if the
 * engine takes none of them, the request is answered with api_fail. The array lives until then. */
void api_submit_group(struct api_request *request, struct engine_call *const *calls, size_t count);

/* Handlers, one file for each resource; api_call_run (call.h) handles every request that is one
 * call. */
void api_fence_batch(struct api_request *request);
void api_operation_get(struct api_request *request);
void api_operation_list(struct api_request *request);
void api_evidence_list(struct api_request *request);
void api_evidence_head(struct api_request *request);
void api_livez(struct api_request *request);
void api_readyz(struct api_request *request);
void api_metrics(struct api_request *request);
void api_targets(struct api_request *request);
void api_openapi(struct api_request *request);

#endif
