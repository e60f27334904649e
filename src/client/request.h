/*
 * request: what is the same in every attempt of one call: checked, and made into header lines.
 *
 * Promises:  no text of the caller can end the line that contains it. Exactly one Idempotency-Key
 *            is sent, the same every time, and not with a read.
 * Ownership: borrows method, URL and body from the caller for the length of the call; it owns
 *            the lines and wipes them at the end, because they hold credentials.
 */
#ifndef ONCE_CLIENT_REQUEST_H
#define ONCE_CLIENT_REQUEST_H

#include <stdbool.h>

#include "base/limits.h"
#include "client/client.h"

enum {
    REQUEST_URL_BYTES_MAX = 8192,
    REQUEST_METHOD_BYTES_MAX = 32,
    REQUEST_FIELDS_MAX = 128, /* headers of the caller */
    REQUEST_FIELDS_BYTES_MAX = 64 << 10,
    REQUEST_ID_BYTES_MAX = 200, /* of the caller's id; a suffix follows it */
    REQUEST_ID_SIZE = 224,      /* with suffix and terminator */
};

struct client_request {
    const struct mem *mem;              /* what block came from */
    const char *method;                 /* the caller's */
    const char *url;                    /* the caller's */
    struct once_bytes body;             /* the caller's */
    const char *given_id;               /* the caller's request id; NULL: a fresh one every time */
    bool is_read;                       /* GET and the like */
    bool has_body;                      /* sent even when it is empty */
    bool is_raw;                        /* path as it is, no proxy, its own connection */
    const char *socket;                 /* a Unix socket to connect to; NULL: the host */
    int retries;                        /* after the first attempt */
    int64_t deadline_ms;                /* over everything */
    int64_t attempt_ms;                 /* over one attempt */
    char key[LIMIT_KEY_BYTES_MAX + 1];  /* "" for a read */
    char id_line[REQUEST_ID_SIZE + 16]; /* "Request-Id: …", rewritten for every attempt */
    struct curl_slist *lines;           /* what libcurl is given; the first one is id_line */
    char *block;                        /* all of the lines */
    size_t block_bytes;                 /* of it */
};

/* E_INVALID with the member's name, E_NOMEM, E_UNAVAILABLE without random bytes. */
enum status client_request_init(struct client_request *request, const struct once_client *client,
    const struct once_send *send, struct err *err) MUST_CHECK;
void client_request_release(struct client_request *request);

/* The id of the nth attempt, from 1: put into ret_id and into the first line. */
enum status client_request_number(struct client_request *request, const struct once_client *client,
    int number, char ret_id[REQUEST_ID_SIZE], struct err *err) MUST_CHECK;

#endif
