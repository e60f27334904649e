/*
 * gateway: the door in front of an HTTP API that is not idempotent by itself (docs/gateway.md).
 *
 *     framing → route → key → principal → body → fingerprint → begin → forward → capture → seal →
 *     answer
 *
 * fenced.c has the life of a fenced request, from its head to its answer; relayed.c that of all
 * others, which stream through. request_form.h has a request's canonical forms, http/fields.h the
 * fields that are passed on, refusals.h each profile's refusals, principal.h the owner of a
 * request.
 *
 * Promises:  no byte of a fenced request reaches the upstream before its grant is durable (P6), and
 *            no answer to one reaches the client before its seal is durable (P2), except one that
 *            streams: its last chunk waits for the seal (fenced.h, G3). A client that goes away
 *            stops nothing. A request that was sent and not answered is unknown (P5); the key of
 *            one that was not sent is free again.
 * Threads:   gateway_begin, gateway_handle and gateway_end run on the server's loops, the others on
 *            any thread.
 */
#ifndef ONCE_GATEWAY_GATEWAY_H
#define ONCE_GATEWAY_GATEWAY_H

#include "config/config.h"
#include "door/door.h"
#include "http/serve.h"

struct gateway;
struct gateway_config; /* made from one configuration */

struct gateway_options {
    const struct mem *mem; /* NULL: the C library's */
    struct door *door;
    struct config *config; /* held until a different one replaces it */
    unsigned loops;        /* of the server */
    const char *spool_dir; /* for bodies that are too long for memory */
};

/* E_INVALID, E_UNAVAILABLE: an upstream's URL or a key file is invalid; the text says which. */
enum status gateway_new(const struct gateway_options *options, struct gateway **ret_gateway,
    struct err *err) MUST_CHECK;
/* Call it before the server starts. */
void gateway_attach(struct gateway *gateway, struct http_server *server);
/* Call it after the server has been freed. NULL is fine. */
void gateway_free(struct gateway *gateway);

/* For struct http_server_options. */
void gateway_begin(struct gateway *gateway, struct http_exchange *exchange);
void gateway_handle(struct gateway *gateway, struct http_exchange *exchange);
void gateway_end(struct gateway *gateway, unsigned loop);
unsigned gateway_fill(struct gateway *gateway, unsigned loop);

/* The number of the first route that matches, route_count when none does. method is a bit of enum
 * config_method, or 0; the path is canonical (request_form_path). */
size_t gateway_route(const struct config_gateway *config, unsigned method, struct slice path);

/* Prepare a different configuration. It is not used yet, and gateway_reload_end must follow. */
enum status gateway_reload_prepare(struct gateway *gateway, struct config *config,
    struct gateway_config **ret_made, struct err *err) MUST_CHECK;
/* Use it for requests that begin from now on, or drop it. */
void gateway_reload_end(struct gateway *gateway, struct gateway_config *made, bool is_used);
/* Stop waiting for upstreams: requests that were sent become unknown, the others are released. For
 * a server that has to end now. */
void gateway_cut(struct gateway *gateway);
/* After gateway_cut, and when no exchange is left: whether the gateway no longer needs the server's
 * loops. They must not end before that. Any thread. */
bool gateway_is_idle(const struct gateway *gateway);

#endif
