/*
 * remote: a Once server, asked over HTTP.
 *
 * Promises:  an answer is whole and of at most REMOTE_ANSWER_BYTES_MAX, or it is an error. Every
 *            wait has a limit. Certificates are checked; redirects are not followed, so that a
 *            token goes where it was meant to go and nowhere else. A refusal is reported with the
 *            exit code that fits; a change that timed out after it was sent is CLI_AGAIN: it may
 *            have happened (P5).
 * Ownership: answers live in the arena given.
 * Threads:   one.
 */
#ifndef ONCE_CLI_REMOTE_H
#define ONCE_CLI_REMOTE_H

#include "canon/json.h"
#include "cli/cli.h"

enum {
    REMOTE_ANSWER_BYTES_MAX = 16 << 20, /* json_bytes_max: more could not be read anyway */
    REMOTE_CONNECT_MS_MAX = 5000,
    REMOTE_ANSWER_MS_MAX = 60000,  /* a page of a large store takes a while to find */
    REMOTE_REQUEST_ID_BYTES = 129, /* what a server takes at most, and a terminator */
};

struct remote;

/* Where it is and who asks. Strings outlive the remote. */
struct remote_options {
    const char *url;        /* http://…, https://…, unix:PATH */
    const char *token;      /* may be NULL */
    const char *tenant;     /* named in Once-Tenant; NULL: the token says it */
    const char *cacert;     /* PEM file of authorities; NULL: the system's */
    const char *request_id; /* of every request; NULL: one is made up */
};

/* 0, or an exit code with the message written. */
int remote_new(const struct remote_options *options, struct remote **ret_remote) MUST_CHECK;
/* NULL is fine. */
void remote_free(struct remote *remote);
/* What every request of this process carries as Request-Id. */
const char *remote_request_id(const struct remote *remote);
const char *remote_url(const struct remote *remote);
/* Text escaped for a path or a query, in the arena; NULL without memory. */
const char *remote_escape(struct arena *arena, const char *text) MUST_CHECK;

struct remote_answer {
    int status;                    /* of HTTP */
    struct slice text;             /* the body */
    const struct json_value *root; /* NULL: it is not JSON */
    struct slice code;             /* of a problem document; may be empty */
};

/* The same without a message: the result is once.h's, and error says why there is no answer. */
int remote_try(struct remote *remote, const char *path, struct slice body, struct arena *arena,
    struct remote_answer *ret_answer, struct once_error *error) MUST_CHECK;
/*
 * Ask for path, which begins with "/"; with a body it is a POST. 0 when there is an answer,
 * whatever its status; else an exit code with the message written.
 */
int remote_ask(struct remote *remote, const char *path, struct slice body, struct arena *arena,
    struct remote_answer *ret_answer) MUST_CHECK;
/* The same for what can only be answered with 200 and an object: anything else is a failure. */
int remote_get(struct remote *remote, const char *path, struct arena *arena,
    struct remote_answer *ret_answer) MUST_CHECK;
/* What a refusal said. */
void remote_refusal(
    const struct remote *remote, const struct remote_answer *answer, struct once_error *error);
/* The exit code that fits it. */
int remote_exit(const struct remote_answer *answer);
/* Say what a refusal said. Returns the exit code that fits. */
int remote_refused(const struct remote *remote, const struct remote_answer *answer);

#endif
