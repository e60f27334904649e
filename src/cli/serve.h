/*
 * serve: what the parts of `once serve` share.
 *
 * serve.c is the life of the server; serve_open.c puts it together and takes it apart,
 * serve_lines.c says what it is, serve_notify.c talks to the supervisor.
 */
#ifndef ONCE_CLI_SERVE_H
#define ONCE_CLI_SERVE_H

#include <stdatomic.h>

#include "api/api.h"
#include "base/log.h"
#include "cli/serve_config.h"
#include "engine/engine.h"
#include "gateway/gateway.h"
#include "http/serve.h"
#include "store/journal/journal.h"

/* Asks the engine something cheap, again and again, to see that it answers. */
enum probe_state { PROBE_IDLE, PROBE_ASKED, PROBE_ANSWERED };
struct probe {
    struct engine_call call;
    struct arena arena;
    _Atomic int state; /* enum probe_state */
};

/* A server and everything it is made of. Zeroed, serve_close takes it. */
struct serve {
    struct cli *cli;
    struct config *config; /* what is in use; what needs a restart is in started */
    struct config *started;
    struct log *log;
    struct engine *engine;
    struct door *door; /* to the engine, for the api */
    struct http_server *server;
    struct api *api;
    struct gateway *gateway; /* NULL: there is none */
    unsigned gateway_first;  /* numbers of its listeners, from this one on */
    const char *gateway_bound[CONFIG_GATEWAY_LISTEN_MAX];
    const char *bound[CONFIG_LISTEN_MAX]; /* addresses as they really are, in server memory */
    unsigned loops;
    bool is_started;        /* handlers may run */
    bool is_drained;        /* no connection is left */
    unsigned own_listener;  /* the data directory's socket; UINT_MAX: there is none */
    char own_path[128];     /* its path; empty: there is none */
    struct store_head head; /* of the store as it was opened */
    char writes[160];       /* how the store writes, in words */
    struct probe probe;
    int64_t watchdog_ms; /* how often the supervisor wants to hear of us; 0: not at all */
};

/* 0, or an exit code with the message written; serve_close takes what there is. */
int serve_open(struct serve *serve) MUST_CHECK;
/* Stop, flush and free everything. 0, or an exit code with the message written. */
int serve_close(struct serve *serve) MUST_CHECK;
/* The policy of a configuration; its tokens are in the configuration's memory. E_NOMEM. */
enum status serve_policy(struct config *config, struct api_policy *ret_policy) MUST_CHECK;

/* The five lines. 0, or an exit code with the message written. */
int serve_lines(struct serve *serve) MUST_CHECK;
/* How long a flush takes in this directory, in nanoseconds; 0: not known. */
uint64_t serve_flush_nanos(const char *dir);

/* Tell the supervisor, when there is one: "READY=1". */
void notify_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* "RELOADING=1", with the time it wants to know. */
void notify_reloading(void);
/* How often it wants to hear WATCHDOG=1, in milliseconds; 0: it does not. */
int64_t notify_watchdog_ms(void);

void probe_init(struct probe *probe);
void probe_release(struct probe *probe);
/* True when the engine answered what was asked before; then it is asked again. */
bool probe_turn(struct probe *probe, struct engine *engine);

#endif
