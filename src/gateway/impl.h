/*
 * impl: shared by the files of the gateway: the gateway itself, and the part that fenced (fenced.h)
 * and relayed (relayed.c) requests have in common.
 */
#ifndef ONCE_GATEWAY_IMPL_H
#define ONCE_GATEWAY_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/spool.h"
#include "gateway/gateway.h"
#include "gateway/gateway_config.h"
#include "gateway/reconcile_rules.h"
#include "gateway/refusals.h"
#include "http/fields.h"
#include "outcall/outcall.h"
#include "outcall/quiet.h"

struct sealed_keys;
struct reconciling;
struct schedule;

struct gateway {
    const struct mem *mem;
    struct door *door;
    struct http_server *server;
    const char *spool_dir;
    unsigned loops;
    struct clock clock;            /* for exp and nbf of tokens, leases and quiet times */
    struct gateway_loop *own;      /* of each loop */
    pthread_mutex_t lock;          /* guards config, its holders, reconciling and watch */
    struct gateway_config *config; /* for requests that begin now */
    _Atomic uint64_t configs;      /* made so far */
    struct upstreams *upstreams;
    struct reconciling *reconciling; /* questions to upstreams about unknown operations */
    unsigned reconciling_count;
    struct quiet_watch watch;    /* of the engine's time, for reconcile.quiet */
    struct schedule *schedule;   /* reconcile_schedule.c */
    struct spool_budget spooled; /* bytes of all bodies and answers in flight */
    atomic_bool is_cut;          /* no upstream may be called any more */
    /* Read by gateway_is_idle. Each is raised before is_cut is read: either gateway_cut sees the
     * count, or the caller sees that the gateway is cut. */
    atomic_uint busy;      /* questions and rounds in progress */
    atomic_uint in_engine; /* calls of theirs whose answer has not been posted to its loop */
};

/* A request in progress: the part that fenced and relayed ones have in common. */
struct gateway_request {
    struct gateway *gateway;
    struct gateway_config *config; /* held until it is answered */
    const struct config_route *route;
    struct upstreams_one *upstream;
    struct http_exchange *exchange;
    struct mem mem;           /* the exchange's arena */
    struct slice path;        /* canonical */
    struct slice key_field;   /* Idempotency-Key as received, or as generated; may be empty */
    struct slice traceparent; /* the client's, or a fresh one; may be empty */
    bool is_health;           /* part of a struct health: a request for the gateway itself */
    bool is_fenced;           /* part of a struct fenced, not of a struct relayed */
    bool has_key;             /* … whose key has been read */
};

/* gateway.c: what the request's loop knows. */
struct sealed_keys *gateway_sealed_keys(const struct gateway_request *request);

/* gateway_request.c */
extern const struct slice gateway_websocket; /* the one protocol that a request may switch to */
bool gateway_request_asks_websocket(const struct gateway_request *request);
/* The client's traceparent or a fresh one. E_NOMEM. */
enum status gateway_request_trace(struct gateway_request *request) MUST_CHECK;
/* Write the head for the upstream; `own` has the fields that only this kind of request adds. */
enum status gateway_request_head(const struct gateway_request *request,
    const struct fields_added *own, struct buf *ret_head) MUST_CHECK;
/* The upstream's connections on the request's loop. */
struct upstream *gateway_request_upstream(const struct gateway_request *request);
/* Refuse the request, which must not be used after this. decision NULL: nothing was decided. */
void gateway_request_refuse(
    struct gateway_request *request, const struct refusal *refusal, const char *decision);
void gateway_request_field(
    const struct gateway_request *request, struct slice name, struct slice value);
/* The fields that let a browser show an answer to a page from the route's cors.origins. */
enum gateway_cors {
    GATEWAY_CORS_EXPOSED, /* for an upstream's answer, which has the rest: which of our fields it
                             may show */
    GATEWAY_CORS_WHOLE,   /* for our own answers, and for replays */
};
void gateway_request_cors(const struct gateway_request *request, enum gateway_cors how);
/* Whether the request comes from such a page. */
bool gateway_request_is_cors(const struct gateway_request *request);
/* Log why a call to the upstream failed: addresses are for the log, not for clients. */
void gateway_request_log_failure(const struct gateway_request *request, const struct err *err,
    struct slice key, struct slice operation_id);
/* Count a doubt about its principal, and log it once for each route. */
void gateway_request_doubt(const struct gateway_request *request, enum principal_doubt doubt);
/* Count it and release its configuration, before the answer is handed to the server. */
void gateway_request_end(struct gateway_request *request, unsigned status);

/* fenced.c: copies the request. */
void fenced_begin(const struct gateway_request *request);
void fenced_handle(struct gateway_request *request);

/* health.c: likewise. health_is: whether the path is for the gateway itself. health_begin: false
 * when out of memory. */
bool health_is(const struct config_gateway *settings, struct slice path);
bool health_begin(const struct gateway_request *request) MUST_CHECK;
void health_handle(struct gateway_request *request);

/* relayed.c: likewise. */
void relayed_begin(const struct gateway_request *request);
void relayed_handle(struct gateway_request *request);

#endif
