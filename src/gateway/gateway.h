/*
 * gateway: the door in front of an HTTP API that is not idempotent by itself (DESIGN section 9).
 *
 *     framing → route → key → principal → body → fingerprint → begin → forward → capture → seal →
 *     answer
 *
 * fenced.c is the life of a fenced request, from its head to its answer; relayed.c the one of all
 * others, which stream through. request_form.h is what a request asks, http/fields.h the fields on
 * their way, refusals.h how each profile says no, principal.h whom a request belongs to.
 *
 * Promises:  no byte of a fenced request reaches the upstream before its grant is durable (P6), and
 *            no answer of one the client before its seal is (P2). A client that goes away stops
 *            nothing. What was sent and not answered is unknown (P5); what was not sent is free
 *            again.
 * Threads:   gateway_begin, gateway_handle and gateway_end on the server's loops, the others on any
 *            thread.
 */
#ifndef ONCE_GATEWAY_GATEWAY_H
#define ONCE_GATEWAY_GATEWAY_H

#include "config/config.h"
#include "door/door.h"
#include "http/serve.h"

struct gateway;
struct gateway_config; /* what one configuration made of it */

struct gateway_options {
    const struct mem *mem; /* NULL: the C library's */
    struct door *door;
    struct config *config; /* held until another one takes its place */
    unsigned loops;        /* of the server */
    const char *spool_dir; /* where bodies go that are too long for memory */
};

/* E_INVALID, E_UNAVAILABLE: an upstream's URL or a key file is wrong; the text says which. */
enum status gateway_new(const struct gateway_options *options, struct gateway **ret_gateway,
    struct err *err) MUST_CHECK;
/* Before the server is started. */
void gateway_attach(struct gateway *gateway, struct http_server *server);
/* After the server is gone. NULL is fine. */
void gateway_free(struct gateway *gateway);

/* For struct http_server_options. */
void gateway_begin(struct gateway *gateway, struct http_exchange *exchange);
void gateway_handle(struct gateway *gateway, struct http_exchange *exchange);
void gateway_end(struct gateway *gateway, unsigned loop);

/* The number of the first route that matches, route_count when none does. method is a bit of enum
 * config_method, or 0; the path is canonical (request_form_path). */
size_t gateway_route(const struct config_gateway *config, unsigned method, struct slice path);

/* Make what a different configuration needs; nothing of it is used yet, and gateway_reload_end must
 * follow. */
enum status gateway_reload_prepare(struct gateway *gateway, struct config *config,
    struct gateway_config **ret_made, struct err *err) MUST_CHECK;
/* Use it for requests that begin from now on, or drop it. */
void gateway_reload_end(struct gateway *gateway, struct gateway_config *made, bool is_used);
/* Wait for no upstream any more: what was sent becomes unknown, what was not is released. For a
 * server that has to end now. */
void gateway_cut(struct gateway *gateway);
/* After gateway_cut, and when no exchange is left: whether nothing else of the gateway may still
 * need the server's loops. Not before that may they end. Any thread. */
bool gateway_is_idle(const struct gateway *gateway);

#endif
