/*
 * impl: shared by the files of the server.
 *
 * server.c has its life; doors.c the table of doors; listen.c the addresses; probe.c checks that
 * the engine answers.
 */
#ifndef ONCE_SERVER_IMPL_H
#define ONCE_SERVER_IMPL_H

#include <stdatomic.h>

#include "api/api.h"
#include "dispatch/dispatch.h"
#include "door/door.h"
#include "engine/query.h"
#include "http/serve.h"
#include "server/server.h"

enum {
    SERVER_DOORS_MAX = 8,      /* api and gateway listen; the others have routes of the API */
    SERVER_LISTENERS_MAX = 32, /* of all doors; below the HTTP server's own limit */
};

/* The addresses of a door, from the configuration. */
struct server_addresses {
    const char *const *items;
    size_t count;
    const char *tls_cert; /* NULL: plain */
    const char *tls_key;
};

/*
 * One door. A function that a door does not need is NULL. open returns its state; every other
 * function is called only while the door has one.
 *
 *     listen → open → start → (begin → handle)* … reload … → stop → cut → is_idle → end → close
 */
struct server_door {
    const char *name;
    /* Where it listens; a count of 0: nowhere. NULL: it has no listener, and is reached through the
     * API's. */
    struct server_addresses (*listen)(const struct config *config);
    /* Called after all addresses are bound, before the loops run. *ret_state stays NULL if the
     * configuration does not enable the door. */
    enum status (*open)(struct server *server, void **ret_state, struct err *err);
    /* The loops run. */
    void (*start)(void *state);
    /* The routes of a door without a listener, for the API, which is opened after it. */
    struct api_routes (*routes)(void *state);
    /* For an exchange of one of its listeners, on its loop; see http/serve.h. */
    void (*begin)(void *state, struct http_exchange *exchange);
    void (*handle)(void *state, struct http_exchange *exchange);
    /* On a loop that is about to end: close whatever the door has there. */
    void (*end)(void *state, unsigned loop);
    /* How much is in use of what each loop has a limit of, in percent; any loop's thread. */
    unsigned (*fill)(void *state, unsigned loop);
    /* A reload has two steps, so that it is used whole or not at all. Prepare a different
     * configuration, and change nothing … */
    enum status (*reload_prepare)(
        void *state, struct config *config, void **ret_made, struct err *err);
    /* … then use what was prepared, or drop it. */
    void (*reload_end)(void *state, void *made, bool is_used);
    /* The server is draining: report that to callers. */
    void (*drain)(void *state);
    /* After drain: the door waits for a peer outside, and the server should wait for it. */
    bool (*is_busy)(void *state);
    /* Stop waiting for peers outside. */
    void (*cut)(void *state);
    /* After cut, when no exchange is left: the door no longer needs a loop. */
    bool (*is_idle)(void *state);
    /* After the loops have ended. */
    void (*close)(void *state);
};
/* In the order in which they are opened and prepared for a reload; the last row has no name. */
extern const struct server_door server_doors[];
/* The door that the data directory's own socket leads to. */
#define SERVER_OWN_DOOR "api"

/* Sends cheap queries to the engine, one after another, to check that it answers. */
enum probe_state { PROBE_IDLE, PROBE_ASKED, PROBE_ANSWERED };
struct probe {
    struct query query;
    struct arena arena;
    _Atomic int state; /* enum probe_state */
};

/* One bound address. */
struct server_bound {
    size_t door;      /* its place in server_doors */
    const char *text; /* the actual address; in the HTTP server's memory */
};

struct server {
    struct config *config;  /* in use */
    struct config *started; /* from the start: addresses and the like stay as they were */
    struct log *log;
    struct engine *engine;
    struct door *door; /* to the engine, for all doors */
    struct http_server *http;
    struct dispatch *dispatch;      /* makes calls by itself, for the doors that enqueue */
    struct vault *vault;            /* for kept bodies; NULL: no door keeps any */
    void *states[SERVER_DOORS_MAX]; /* of the doors, by their index in the table; NULL: not open */
    struct server_bound listeners[SERVER_LISTENERS_MAX]; /* by number */
    unsigned listener_count;
    unsigned own_listener; /* number of the data directory's socket; UINT_MAX: absent */
    struct server_facts facts;
    bool is_started;    /* handlers may run */
    bool is_drained;    /* no connection is left */
    struct arena arena; /* for data that lives as long as the server */
    struct probe probe;
};

/* For a door that keeps bodies: from then on the dispatcher decrypts them. E_INVALID: a shared
 * store needs secrets.key_file, or a key file is invalid. Call it before the loops run. */
enum status server_vault(
    struct server *server, const struct vault **ret_vault, struct err *err) MUST_CHECK;

/* Bind all addresses of all doors, the data directory's socket first. */
enum status server_listen(struct server *server, struct err *err) MUST_CHECK;

void probe_init(struct probe *probe);
void probe_release(struct probe *probe);
/* True if the engine answered the previous query; then the next one is sent. */
bool probe_turn(struct probe *probe, struct engine *engine);

#endif
