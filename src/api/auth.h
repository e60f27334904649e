/*
 * auth: who asks, and what they may do.
 *
 * Promises:  a token is compared with every known one in constant time, by its SHA-256; how long it
 *            takes tells nothing but how many tokens there are (and not whose).
 */
#ifndef ONCE_API_AUTH_H
#define ONCE_API_AUTH_H

#include "api/api.h"

/* Who asks. Slices live as long as the policy they came from. */
struct api_caller {
    struct slice tenant;
    struct slice actor; /* the token's name, "operator" on the own socket, or empty */
    unsigned rights;    /* of enum api_right */
    bool sees_all;      /* every tenant's figures in /metrics */
};

enum auth_verdict {
    AUTH_OK,
    AUTH_MISSING, /* 401 with WWW-Authenticate: Bearer */
    AUTH_WRONG,   /* 401 with error="invalid_token" */
};

/* Without needs_token: tenant "default" and every right. is_own: the data directory's socket. */
enum auth_verdict auth_check(const struct api_policy *policy, const struct http_head *head,
    bool is_own, struct api_caller *ret_caller) MUST_CHECK;

#endif
