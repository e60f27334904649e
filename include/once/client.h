/*
 * client: send HTTP requests that take effect once (libonce-client, over libcurl).
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
 * One call of once_client_send is one logical operation. The key stays the same over its automatic
 * retries, and a later call with the same key, even after a crash, continues the same operation.
 * The server must honour Idempotency-Key: the gateway of Once, or an idempotent API.
 *
 * Every options struct may be zeroed: zero means the default named beside the member. Strings are
 * null-terminated; NULL means absent.
 *
 * Threads: any number of threads may use a client at once, except for once_client_free. The library
 * keeps no global state except libcurl's own (curl_global_init, which is counted), writes no logs
 * and installs no signal handlers. Proxies come from the environment, as with curl.
 */
#ifndef ONCE_CLIENT_H
#define ONCE_CLIENT_H

#include <once/once.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Whether the operation took effect, as far as that can be known. */
enum once_effect {
    ONCE_EFFECT_UNKNOWN = 0, /* it may have: send it again with the same key, or check */
    ONCE_EFFECT_NO = 1,      /* it certainly did not */
    ONCE_EFFECT_YES = 2      /* it did */
};

enum {
    ONCE_CLIENT_KEY_SIZE = 37, /* of a generated key: a UUID and its terminator */
    ONCE_NO_RETRIES = -1       /* for once_send.retries */
};

struct once_client; /* settings and a pool of connections */

/* One attempt, as reported to once_client_options.attempted. Valid during the call. */
struct once_attempt {
    int number;             /* from 1 */
    const char *request_id; /* of this attempt alone */
    int status;             /* of HTTP; 0: there was no answer */
    const char *decision;   /* Once-Decision; "" if absent */
    const char *why;        /* why there was no answer; "" if there was one */
    int64_t sleep_ms;       /* before the next attempt; -1: this was the last */
};

struct once_client_options {
    const char *ca_file;        /* PEM file with the trusted authorities; the system's */
    const char *user_agent;     /* "once-client/<version>" */
    int64_t connect_timeout_ms; /* for connecting; 5 s */
    int64_t
        backoff_base_ms;    /* the first pause is random up to this, the next up to twice; 100 ms */
    int64_t backoff_max_ms; /* the upper limit of any pause; 10 s */
    size_t body_bytes_max;  /* of an answer; 16 MiB */
    size_t headers_bytes_max; /* of an answer; 64 KiB */
    int idle_max;             /* connections kept for later calls; 16 */
    /* Called after each attempt, on the caller's thread. May be NULL. */
    void (*attempted)(void *context, const struct once_attempt *attempt);
    void *attempted_context;
    /* Like realloc, thread-safe; size 0 frees. NULL: the C library's. */
    void *(*resize)(void *context, void *pointer, size_t size);
    void *resize_context;
    /* Replacements for the system's functions; NULL: the system's. All must be thread-safe. */
    int (*random)(void *context, void *bytes, size_t size); /* 0: filled */
    int (*sleep)(void *context, int64_t ms); /* not 0: give up, report what is known */
    int64_t (*steady_ms)(void *context);     /* a clock that never goes back */
    int64_t (*wall_ms)(void *context);       /* since 1970 */
    void *world_context;
};

struct once_send {
    const char *method;          /* required: "POST", … in capitals */
    const char *url;             /* required: http://… or https://… */
    const char *const *headers;  /* "Name: value" each, ended by NULL; without Idempotency-Key and
                                   Request-Id, which are below */
    struct once_bytes body;      /* sent as application/json unless a header says otherwise */
    const char *idempotency_key; /* at most 255 visible characters; NULL: a UUIDv4 is generated and
                                    used for all retries. GET, HEAD, OPTIONS and TRACE send none */
    const char *request_id;      /* of the first attempt; later ones append ".2", ".3", …. NULL: a
                                    new UUIDv7 for every attempt */
    int retries;                 /* after the first attempt; 5, ONCE_NO_RETRIES: none */
    int64_t deadline_ms;         /* for all attempts and pauses together; 60 s */
    int64_t attempt_timeout_ms;  /* for one attempt; 30 s */
};

struct once_header {
    const char *name;  /* as received */
    const char *value; /* without surrounding spaces */
};

struct once_response {
    int status;                        /* of HTTP; 0: there was no answer, the error says why */
    const struct once_header *headers; /* in the order received; at most 128 */
    size_t header_count;
    struct once_bytes body;      /* followed by a zero byte that is not counted */
    int body_is_lost;            /* it was larger than body_bytes_max; body is empty */
    const char *idempotency_key; /* as sent; "" for a read */
    const char *request_id;      /* of the last attempt */
    int attempts;                /* number of attempts made */
    int is_replayed;             /* Idempotent-Replayed: this is the answer of an earlier attempt */
    const char *decision;        /* Once-Decision: "first_seen", …; "" if absent */
    const char *operation_id;    /* Once-Operation-Id; "" if absent */
    enum once_effect effect;     /* of the operation, over all attempts of this call */
};

/* Fails with ONCE_E_INVALID, ONCE_E_NOMEM, or ONCE_E_UNAVAILABLE: libcurl.so.4 is not installed.
 * options may be NULL. With a libcurl older than 7.84, create the first client before starting
 * threads. */
ONCE_API int once_client_new(const struct once_client_options *options,
    struct once_client **ret_client, struct once_error *error);
/* Free every response first. client may be NULL. */
ONCE_API void once_client_free(struct once_client *client);

/* Generates a key, a UUIDv4. Store it before the call: after a crash, a call with the same key
 * continues the same operation instead of starting a new one. */
ONCE_API int once_client_key(
    struct once_client *client, char ret_key[ONCE_CLIENT_KEY_SIZE], struct once_error *error);

/*
 * Sends, and retries while that is safe, useful and within the deadline. Retried: no connection; no
 * answer, or a broken one; 408, 429 and 5xx; an operation in progress or unknown, which may be
 * settled by the time of the retry. Not retried: every other answer, such as a conflict; a replayed
 * 5xx, which is final; an invalid certificate. Retry-After is a lower bound of the pause.
 *
 * ONCE_OK: there is an answer, whatever its status. ONCE_E_UNAVAILABLE: no attempt reached the
 * server, and nothing happened. ONCE_E_UNKNOWN: there is no answer, and it may have happened; the
 * same key continues it. ONCE_E_INVALID, ONCE_E_MISUSE: nothing was sent. ONCE_E_NOMEM: nothing
 * happened.
 *
 * With the first three results *ret_response is set, even without an answer (status 0): it has the
 * key. With the last three it is NULL. Free it with once_response_free.
 */
ONCE_API int once_client_send(struct once_client *client, const struct once_send *send,
    struct once_response **ret_response, struct once_error *error);
/* response may be NULL. */
ONCE_API void once_response_free(struct once_client *client, struct once_response *response);
/* The first header of that name, ignoring case; NULL if absent. */
ONCE_API const char *once_response_header(const struct once_response *response, const char *name);
ONCE_API const char *once_effect_name(enum once_effect effect); /* "no", "yes", "unknown" */

#ifdef __cplusplus
}
#endif

#endif
