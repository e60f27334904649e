/*
 * client: the definition of struct once_client, shared by its files.
 *
 * A client is its settings, with the defaults filled in, and a pool of libcurl handles. A handle
 * serves one attempt at a time and keeps its connection for the next one. All memory except
 * libcurl's own comes from the client's allocator.
 *
 * Threads: any number, except for once_client_free. Only the pool changes, under its lock.
 */
#ifndef ONCE_CLIENT_CLIENT_H
#define ONCE_CLIENT_CLIENT_H

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "client/libcurl.h"
#include "once/client.h"

enum {
    CLIENT_CONNECT_MS = 5000,         /* a live server answers a SYN in far less */
    CLIENT_BACKOFF_BASE_MS = 100,     /* about a round trip over an ocean */
    CLIENT_BACKOFF_MAX_MS = 10000,    /* people wait for it */
    CLIENT_BODY_BYTES_MAX = 16 << 20, /* outcome_bytes_max of the server: no replay is larger */
    CLIENT_HEADERS_BYTES_MAX = 64 << 10,
    CLIENT_IDLE_MAX = 16,     /* connections kept */
    CLIENT_IDLE_LIMIT = 1024, /* that may be asked for: each is a socket */
    CLIENT_RETRIES = 5,
    CLIENT_RETRIES_LIMIT = 1000000, /* beyond is a typing error; the deadline ends it anyway */
    CLIENT_DEADLINE_MS = 60000,
    CLIENT_ATTEMPT_MS = 30000,
    CLIENT_MS_LIMIT = 86400000,   /* a day, for every duration: anything longer is a typing error */
    CLIENT_TEXT_BYTES_MAX = 4096, /* of a path or a user agent */
};

struct once_client {
    struct mem mem;                     /* what everything is allocated with */
    struct once_client_options options; /* defaults filled in; texts are the client's own */
    struct clock clock;                 /* the system's, read where options.wall_ms is NULL */
    pthread_mutex_t lock;               /* over the pool */
    CURL **idle;                        /* idle handles; options.idle_max long */
    size_t idle_count;                  /* of these */
    char texts[];                       /* ca_file and user_agent */
};

/* Fills error, which may be NULL, and returns the once_result of the status. */
int client_error(struct once_error *error, enum status status, const struct err *err);

/* A write to a TLS connection that the server closed may raise SIGPIPE, which would end the
 * caller's program. Between these two calls it is blocked in this thread only. */
struct client_quiet {
    sigset_t before;  /* the thread's mask */
    bool was_pending; /* one was waiting already, and is the caller's */
};
void client_quiet_begin(struct client_quiet *quiet);
void client_quiet_end(const struct client_quiet *quiet);

/* An idle handle, reset; or a new one; NULL without memory. */
CURL *client_handle_take(struct once_client *client) MUST_CHECK;
/* Keep it with its connection, or free it if there are enough. NULL is fine. */
void client_handle_return(struct once_client *client, CURL *handle);

/* Random bytes, of the options or the system. */
enum status client_random(
    const struct once_client *client, void *ret_bytes, size_t size, struct err *err) MUST_CHECK;

int64_t client_wall_ms(const struct once_client *client);

#endif
