/*
 * principal: whom a request belongs to (P9): credentials, a field, or a claim of a verified token.
 *
 * Promises:  a principal is never empty unless the route says none; two different ones never have
 *            the same text; a long one is kept as its SHA-256. Credentials themselves are kept
 *            nowhere.
 * Threads:   principals is read-only after it is made.
 */
#ifndef ONCE_GATEWAY_PRINCIPAL_H
#define ONCE_GATEWAY_PRINCIPAL_H

#include "base/arena.h"
#include "base/err.h"
#include "config/gateway.h"
#include "http/head.h"

struct principals; /* the keys of a gateway's routes, read from their files */

/* E_INVALID, E_UNAVAILABLE: a key file cannot be read or does not fit its algorithm; the text says
 * which. */
enum status principals_new(const struct mem *mem, const struct config_gateway *gateway,
    struct principals **ret_principals, struct err *err) MUST_CHECK;
void principals_free(struct principals *principals);

/* E_INVALID: it cannot be determined; the text is for the client and has nothing secret. E_NOMEM.
 * route is one of the gateway's. authorization: "auth:" and 64 hex digits, or "anonymous" where the
 * field is absent; auto: the same, or "api-key:" and 64 hex digits where only that is there;
 * header: "header:…"; jwt: "jwt:…"; none: empty. */
enum status principal_of(const struct principals *principals, const struct config_gateway *gateway,
    const struct config_route *route, const struct http_head *head, int64_t now_ms,
    struct arena *arena, struct slice *ret_principal, struct err *err) MUST_CHECK;

/* Why the principal of a request may not be one client's for good. */
enum principal_doubt {
    PRINCIPAL_SURE,
    PRINCIPAL_CHANGES, /* the credentials change while the client stays: a JWT, a signature */
    PRINCIPAL_COOKIES, /* nothing but cookies: whoever has them is the same principal */
    PRINCIPAL_NOTHING, /* not even these */
};
enum { PRINCIPAL_DOUBTS = PRINCIPAL_NOTHING + 1 };
/* Of a request whose principal is found. Routes that say how to find it have no doubts. */
enum principal_doubt principal_doubt(
    const struct config_route *route, const struct http_head *head);
/* One sentence about it, and what to do. */
const char *principal_doubt_text(enum principal_doubt doubt);
const char *principal_doubt_hint(enum principal_doubt doubt);

#endif
