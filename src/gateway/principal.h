/*
 * principal: the owner of a request (P9), from credentials, a field, or a claim of a verified
 * token.
 *
 * Promises:  a principal is never empty unless the route says none. Two different principals never
 *            have the same text; a long one is kept as its SHA-256. Credentials themselves are
 *            never kept.
 * Threads:   principals is read-only after it is made.
 */
#ifndef ONCE_GATEWAY_PRINCIPAL_H
#define ONCE_GATEWAY_PRINCIPAL_H

#include "base/arena.h"
#include "base/err.h"
#include "config/gateway.h"
#include "http/head.h"

struct principals; /* the keys of a gateway's routes, read from their files */

/* E_INVALID, E_UNAVAILABLE: a key file cannot be read or does not suit its algorithm; the text says
 * which. */
enum status principals_new(const struct mem *mem, const struct config_gateway *gateway,
    struct principals **ret_principals, struct err *err) MUST_CHECK;
void principals_free(struct principals *principals);

/* E_INVALID: it cannot be determined; the text is for the client and contains no secret. E_NOMEM.
 * route is one of the gateway's. authorization: "auth:" and 64 hex digits, or "anonymous" where the
 * field is absent; auto: the same, or "api-key:" and 64 hex digits where only that is present;
 * header: "header:…"; jwt: "jwt:…"; none: empty. */
enum status principal_of(const struct principals *principals, const struct config_gateway *gateway,
    const struct config_route *route, const struct http_head *head, int64_t now_ms,
    struct arena *arena, struct slice *ret_principal, struct err *err) MUST_CHECK;

/* That of auto, without a route. E_INVALID: a field came twice. E_NOMEM. */
enum status principal_auto(const struct http_head *head, struct arena *arena,
    struct slice *ret_principal, struct err *err) MUST_CHECK;

/* Why a request's principal may not identify one client permanently. */
enum principal_doubt {
    PRINCIPAL_SURE,
    PRINCIPAL_CHANGES, /* credentials change while the client stays the same: a JWT, a signature */
    PRINCIPAL_COOKIES, /* only cookies: all clients that send them share one principal */
    PRINCIPAL_NOTHING, /* not even cookies */
};
enum { PRINCIPAL_DOUBTS = PRINCIPAL_NOTHING + 1 };
/* For a request whose principal was found. A route that says how to find it raises no doubt. */
enum principal_doubt principal_doubt(
    const struct config_route *route, const struct http_head *head);
/* One sentence about the doubt, and what to do. */
const char *principal_doubt_text(enum principal_doubt doubt);
const char *principal_doubt_hint(enum principal_doubt doubt);

#endif
