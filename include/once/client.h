/*
 * client: send an HTTP request so that it takes effect once (libonce-client, over libcurl).
 *
 *     struct once_client *client;
 *     struct once_response *response;
 *     struct once_error error;
 *     once_client_new(NULL, &client, &error);
 *     struct once_send send = {.method = "POST", .url = "http://127.0.0.1:8080/charges",
 *         .body = {"{\"cents\":1200}", 14}, .idempotency_key = "order-7"};
 *     if (once_client_send(client, &send, &response, &error) == ONCE_OK) {
 *         printf("%d, %s\n", response->status, response->is_replayed ? "replayed" : "first");
 *     }
 *     once_response_free(client, response);
 *     once_client_free(client);
 *
 * One call of once_client_send is one logical operation: the key stays the same over its automatic
 * retries, and whoever calls again with the same key, even after a crash, continues the same
 * operation. Behind the URL has to be something that honours Idempotency-Key: the gateway of Once,
 * or an API with idempotency of its own.
 *
 * Every options struct may be zeroed: zero means the default said beside the member. Strings are
 * terminated; NULL is "not given".
 *
 * Threads: a client may be used by any number of threads at once, but for once_client_free. The
 * library keeps no global state besides libcurl's own (curl_global_init, which is counted), writes
 * no logs and installs no signal handlers. Proxies come from the environment, as with curl.
 */
#ifndef ONCE_CLIENT_H
#define ONCE_CLIENT_H

#include <once/once.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Whether the operation took effect, as far as anybody can know. */
enum once_effect {
    ONCE_EFFECT_UNKNOWN = 0, /* it may have: send it again with the same key, or look */
    ONCE_EFFECT_NO = 1,      /* it certainly did not */
    ONCE_EFFECT_YES = 2      /* it did */
};

enum {
    ONCE_CLIENT_KEY_SIZE = 37, /* of a key that was made: a UUID and its terminator */
    ONCE_NO_RETRIES = -1       /* for once_send.retries */
};

struct once_client; /* settings and a pool of connections */

/* One attempt, as it is told to once_client_options.attempted. Valid during the call. */
struct once_attempt {
    int number;             /* from 1 */
    const char *request_id; /* of this attempt alone */
    int status;             /* of HTTP; 0: there was no answer */
    const char *decision;   /* Once-Decision; "" when there is none */
    const char *why;        /* what went wrong when there was no answer; "" otherwise */
    int64_t sleep_ms;       /* before the next attempt; -1: there is none */
};

struct once_client_options {
    const char *ca_file;        /* PEM of the authorities to trust; the system's */
    const char *user_agent;     /* "once-client/<version>" */
    int64_t connect_timeout_ms; /* to have a connection; 5 s */
    int64_t backoff_base_ms;  /* the first pause is random up to this, then twice it, …; 100 ms */
    int64_t backoff_max_ms;   /* and never up to more than this; 10 s */
    size_t body_bytes_max;    /* of an answer; 16 MiB */
    size_t headers_bytes_max; /* of an answer; 64 KiB */
    int idle_max;             /* connections kept for later calls; 16 */
    /* Called after each attempt, on the thread of the call. NULL: nobody is told. */
    void (*attempted)(void *context, const struct once_attempt *attempt);
    void *attempted_context;
    /* Like realloc, thread-safe; size 0 frees. NULL: the C library's. */
    void *(*resize)(void *context, void *pointer, size_t size);
    void *resize_context;
    /* What the client asks the world for; NULL: the system's. All are thread-safe. */
    int (*random)(void *context, void *bytes, size_t size); /* 0: filled */
    int (*sleep)(void *context, int64_t ms); /* anything but 0: try no more, say what is known */
    int64_t (*steady_ms)(void *context);     /* a clock that never goes back */
    int64_t (*wall_ms)(void *context);       /* since 1970 */
    void *world_context;
};

struct once_send {
    const char *method;         /* required: "POST", … in capitals */
    const char *url;            /* required: http://… or https://… */
    const char *const *headers; /* "Name: value" each, ended by NULL. Not Idempotency-Key and
                                   Request-Id, which are below */
    struct once_bytes body; /* Content-Type is application/json unless a header says otherwise */
    const char *idempotency_key; /* at most 255 visible characters; NULL: a UUIDv4 is made and kept
                                    over the retries. GET, HEAD, OPTIONS and TRACE send none */
    const char *request_id;      /* of the first attempt; the others append ".2", ".3", …. NULL: a
                                    fresh UUIDv7 for every attempt */
    int retries;                 /* after the first attempt; 5, ONCE_NO_RETRIES: none */
    int64_t deadline_ms;         /* over all attempts and pauses; 60 s */
    int64_t attempt_timeout_ms;  /* over one attempt; 30 s */
};

struct once_header {
    const char *name;  /* as it came */
    const char *value; /* without the spaces around it */
};

struct once_response {
    int status;                        /* of HTTP; 0: there was no answer, the error says why */
    const struct once_header *headers; /* in the order they came; at most 128 */
    size_t header_count;
    struct once_bytes body;      /* followed by a zero that is not counted */
    int body_is_lost;            /* it was larger than body_bytes_max: nothing of it is here */
    const char *idempotency_key; /* what was sent; "" for a read */
    const char *request_id;      /* of the last attempt */
    int attempts;                /* how many there were */
    int is_replayed;             /* Idempotent-Replayed: this is the answer of an earlier attempt */
    const char *decision;        /* Once-Decision: "first_seen", …; "" when there is none */
    const char *operation_id;    /* of Once; "" when it did not say */
    enum once_effect effect;     /* of the operation, over all attempts of this call */
};

/* ONCE_E_INVALID, ONCE_E_NOMEM. options may be NULL. With a libcurl older than 7.84 make the first
 * client before there are threads. */
ONCE_API int once_client_new(const struct once_client_options *options,
    struct once_client **ret_client, struct once_error *error);
/* Free every response before. NULL is fine. */
ONCE_API void once_client_free(struct once_client *client);

/* A fresh key, a UUIDv4. Write it down before the call, and after a crash the call can be made
 * again with it: it continues the same operation instead of starting another. */
ONCE_API int once_client_key(
    struct once_client *client, char ret_key[ONCE_CLIENT_KEY_SIZE], struct once_error *error);

/*
 * Send, and try again while that is safe, useful and in time. Again: not connected; no answer, or a
 * broken one; 408, 429 and 5xx; an operation in progress or of unknown outcome, which may be
 * settled meanwhile. Not again: every other answer, above all a conflict; a replayed 5xx, which is
 * final; a certificate that does not check out. Retry-After is a lower bound of the pause.
 *
 * ONCE_OK: there is an answer, whatever its status. ONCE_E_UNAVAILABLE: no attempt reached the
 * server, nothing happened. ONCE_E_UNKNOWN: there is no answer, and it may have happened; the same
 * key continues it. ONCE_E_INVALID, ONCE_E_MISUSE: nothing was sent. ONCE_E_NOMEM: nothing
 * happened.
 *
 * *ret_response is there after every attempt, also without an answer (status 0): it has the key.
 * NULL with the last three results. Free it with once_response_free.
 */
ONCE_API int once_client_send(struct once_client *client, const struct once_send *send,
    struct once_response **ret_response, struct once_error *error);
/* NULL is fine. */
ONCE_API void once_response_free(struct once_client *client, struct once_response *response);
/* The first header of that name, whatever its case; NULL when there is none. */
ONCE_API const char *once_response_header(const struct once_response *response, const char *name);
ONCE_API const char *once_effect_name(enum once_effect effect); /* "no", "yes", "unknown" */

#ifdef __cplusplus
}
#endif

#endif
