/*
 * remote: a Once server, reached over HTTP.
 *
 * Promises:  an answer is complete and at most REMOTE_ANSWER_BYTES_MAX long, or it is an error.
 *            Every wait has a limit. Certificates are checked; redirects are not followed, so that
 *            a token goes only where it was meant to go. A refusal is reported with its exit code;
 *            a change that timed out after it was sent is CLI_AGAIN: it may have happened (P5).
 * Ownership: answers live in the arena given.
 * Threads:   one.
 */
#ifndef ONCE_CLI_REMOTE_H
#define ONCE_CLI_REMOTE_H

#include "canon/json.h"
#include "cli/cli.h"

enum {
    REMOTE_ANSWER_BYTES_MAX = 16 << 20, /* json_bytes_max: a longer one could not be read */
    REMOTE_CONNECT_MS_MAX = 5000,
    REMOTE_ANSWER_MS_MAX = 60000,  /* a page of a large store takes a while to find */
    REMOTE_REQUEST_ID_BYTES = 129, /* the longest that a server accepts, and a terminator */
};

struct remote;

/* The server and the caller. Strings must outlive the remote. */
struct remote_options {
    const char *url;        /* http://…, https://…, unix:PATH */
    const char *token;      /* may be NULL */
    const char *tenant;     /* sent as Once-Tenant; NULL: the token determines it */
    const char *cacert;     /* PEM file of authorities; NULL: the system's */
    const char *request_id; /* of every request; NULL: one is generated */
};

/* 0, or an exit code after writing the message. */
int remote_new(const struct remote_options *options, struct remote **ret_remote) MUST_CHECK;
/* NULL is fine. */
void remote_free(struct remote *remote);
/* The Request-Id of every request of this process. */
const char *remote_request_id(const struct remote *remote);
const char *remote_url(const struct remote *remote);
/* Text escaped for a path or a query, in the arena; NULL: out of memory. */
const char *remote_escape(struct arena *arena, const char *text) MUST_CHECK;

struct remote_answer {
    int status;                    /* the HTTP status */
    struct slice text;             /* the body */
    const struct json_value *root; /* NULL: it is not JSON */
    struct slice code;             /* of a problem document; may be empty */
};

/* The same without a message: the result is once.h's, and error says why there is no answer. */
int remote_try(struct remote *remote, const char *path, struct slice body, struct arena *arena,
    struct remote_answer *ret_answer, struct once_error *error) MUST_CHECK;
/* Request a path, which begins with "/"; with a body it is a POST. 0 if there is an answer,
 * whatever its status; else an exit code after writing the message. */
int remote_ask(struct remote *remote, const char *path, struct slice body, struct arena *arena,
    struct remote_answer *ret_answer) MUST_CHECK;
/* The same for a request that must be answered with 200 and an object: anything else is a
 * failure. */
int remote_get(struct remote *remote, const char *path, struct arena *arena,
    struct remote_answer *ret_answer) MUST_CHECK;
/* The text of a refusal. */
void remote_refusal(
    const struct remote *remote, const struct remote_answer *answer, struct once_error *error);
/* Its exit code. */
int remote_exit(const struct remote_answer *answer);
/* Report a refusal. Returns its exit code. */
int remote_refused(const struct remote *remote, const struct remote_answer *answer);

#endif
