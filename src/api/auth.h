/*
 * auth: who the caller is, and what it may do.
 *
 * Promises:  a token is compared with every known one in constant time, by its SHA-256. The time
 *            taken reveals only how many tokens there are, not whose they are.
 */
#ifndef ONCE_API_AUTH_H
#define ONCE_API_AUTH_H

#include "api/api.h"

/* The caller. Slices live as long as the policy they came from; the token and, on the data
 * directory's socket, the tenant, as long as the head. */
struct api_caller {
    struct slice tenant;
    struct slice actor; /* the token's name, "operator" on the own socket, or empty */
    struct slice token; /* the verified bearer token, of the head; empty: without one */
    unsigned rights;    /* of enum config_right */
    bool sees_all;      /* it may see every tenant's figures in /metrics */
};

enum auth_verdict {
    AUTH_OK,
    AUTH_MISSING, /* 401 with WWW-Authenticate: Bearer */
    AUTH_WRONG,   /* 401 with error="invalid_token" */
};

/*
 * "Authorization: Bearer TOKEN", once, with one space; any other Authorization field is wrong.
 * Without needs_token: tenant "default" and every right, whatever the caller sends. is_own: the
 * data directory's socket, where Once-Tenant names the tenant (1 to 255 bytes of UTF-8; absent:
 * "default"; "*": every tenant, on routes that take it; else wrong). On any other listener that
 * field is ignored (P9).
 */
enum auth_verdict auth_check(const struct api_policy *policy, const struct http_head *head,
    bool is_own, struct api_caller *ret_caller) MUST_CHECK;

#endif
