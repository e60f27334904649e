/*
 * pump: moves the lines of a proxy between descriptors, until the server has ended.
 *
 * Promises:  a line is handed on whole or not at all. A side that does not read stops the other one
 *            from being read, so that queues stay bounded. When the client closes its output, the
 *            server's input is closed as soon as it has everything. When the server has ended,
 *            every call is recorded before this returns.
 * Does not:  start or kill the server.
 * Threads:   one; take_done is how answers of a ledger on a different thread come in.
 */
#ifndef ONCE_MCP_PUMP_H
#define ONCE_MCP_PUMP_H

#include "mcp/channel.h"
#include "mcp/http.h"
#include "mcp/proxy.h"

struct pump_options {
    int from_client; /* these two are -1 with channel */
    int to_client;
    struct mcp_channel *channel;  /* the client, on a different thread; NULL: descriptors */
    void (*hurry)(void *context); /* with channel: the server is to end at once */
    int from_server;              /* these two are closed; -1 with http */
    int to_server;
    struct mcp_http *http;                       /* instead of a process; NULL: a process */
    int signals;                                 /* readable: has_ended is called; -1: never */
    int ledger;                                  /* readable: take_done is called */
    bool (*has_ended)(void *context);            /* whether the server, or http, has to end */
    struct mcp_job *(*take_done)(void *context); /* jobs that are back, linked by next */
    int64_t (*now_ms)(void *context);            /* the boot clock */
    void *context;
};

/* E_LIMIT, E_NOMEM: the queues could not take a line; E_UNAVAILABLE: poll(2) failed. */
enum status pump_run(
    struct mcp_proxy *proxy, const struct pump_options *options, struct err *err) MUST_CHECK;

#endif
