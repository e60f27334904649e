/*
 * api: the HTTP door (docs/api.md): fences, operations, evidence, service pages.
 *
 * Each resource has one file, which shows the life of its requests from the first byte to the
 * answer. routes.c has the table of paths, methods and rights. Doors without their own listener
 * hand their tables to api_new; their requests are authenticated, counted and answered like the
 * API's own. The OpenAPI document is checked against all of the tables.
 *
 * Promises:  the tenant comes only from authentication (P9): from the token; `default` if no token
 *            is configured; on the data directory's own socket, from Once-Tenant. A different
 *            tenant's record is not found: the answer has the same status and body, and takes the
 *            same work, as for a record that never existed. Nothing is answered before the engine
 *            reports that it is durable (P2).
 * Threads:   api_handle on the server's loops; the others on any thread.
 */
#ifndef ONCE_API_API_H
#define ONCE_API_API_H

#include "config/config.h"
#include "door/door.h"
#include "http/serve.h"

struct api;
struct api_held; /* a policy and how many requests hold it; api.c's */

/* The settings that may change while the server runs. */
struct api_policy {
    const struct config_token *tokens; /* in any order; compared in constant time */
    size_t token_count;
    bool needs_token;           /* auth is configured */
    uint64_t body_bytes_max;    /* of a request; a longer one is refused with 413 */
    uint64_t outcome_bytes_max; /* kept of an outcome; a longer one is sealed without its body */
    double duplicate_rate;      /* of one key, per second; default 20. 0: no limit */
    double duplicate_burst;     /* default 40 */
    bool logs_decisions;        /* log each decision; default true */
};

struct api_route; /* routes.h */

/* The routes of a door, and the state that their handlers find in api_request.state. */
struct api_routes {
    const struct api_route *table; /* static */
    size_t count;
    void *state; /* must outlive the server's requests */
};

struct api_request; /* routes.h */
struct json_value;
struct member_fault;
struct seal_effects;

/* The effects that a seal carries. The API does not know envelopes; the door of effects reads
 * them. */
struct api_outbox {
    /* Read a list of envelopes as seal_effects_read does. command_id is for envelopes that name
     * none. */
    enum status (*read)(void *state, struct api_request *request, const struct json_value *list,
        struct slice command_id, struct seal_effects *ret_effects, struct member_fault *fault);
    /* The effect is durable. */
    void (*made)(void *state, const struct record *record);
    void *state;
};

struct api_options {
    const struct mem *mem;
    struct door *door;     /* to the engine; must outlive the api */
    unsigned own_listener; /* number of the data directory's socket: its peers are operators and
                              name their tenant in Once-Tenant; UINT_MAX: absent */
    struct http_server *server;      /* for its metrics; set by api_attach */
    const char *store;               /* the store's URL, without secrets, for /readyz?verbose */
    const char *const *cautions;     /* what weakens a promise of the store, for the same page; ends
                                    with NULL; may be NULL */
    const struct api_routes *routes; /* of other doors; copied */
    size_t routes_count;
    struct api_outbox outbox; /* read NULL: a seal carries no effects */
    struct api_policy policy;
};

/* The policy is copied. */
enum status api_new(
    const struct api_options *options, struct api **ret_api, struct err *err) MUST_CHECK;
/* Call it after the server has been freed. NULL is fine. */
void api_free(struct api *api);
void api_attach(struct api *api, struct http_server *server);

/* For struct http_server_options; context is the api. */
void api_handle(void *api, struct http_exchange *exchange);

/* Prepare a different policy and write config.changed to the evidence. The policy is not used yet,
 * and api_reload_end must follow. Nothing may fail between the two, because the evidence is already
 * written. */
enum status api_reload_prepare(struct api *api, const struct api_policy *policy,
    struct api_held **ret_held, struct err *err) MUST_CHECK;
/* Use it for requests that begin from now on, or drop it. */
void api_reload_end(struct api *api, struct api_held *held, bool is_used);
/* /readyz reports "not ready" from now on; all other requests are served. */
void api_not_ready(struct api *api, const char *reason);

#endif
