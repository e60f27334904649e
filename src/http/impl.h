/*
 * impl: shared by the parts of the HTTP reader; only src/http includes it.
 *
 * A request travels through them in this order: head.c cuts lines and fields, target.c reads the
 * request target, framing.c judges what the fields mean together, body.c decodes what follows.
 */
#ifndef ONCE_HTTP_IMPL_H
#define ONCE_HTTP_IMPL_H

#include "http/head.h"

/* Fill in the refusal and return HTTP_REFUSED, so that "return http_refuse(…)" is one line. */
static inline enum http_verdict http_refuse(
    struct http_refusal *refusal, unsigned status, const char *reason)
{
    *refusal = (struct http_refusal){.status = status, .reason = reason};
    return HTTP_REFUSED;
}

/* Read head->target: its form, path, query and authority. HTTP_DONE or HTTP_REFUSED. */
enum http_verdict http_target(struct http_head *head, struct http_refusal *refusal) MUST_CHECK;

/* A host with an optional port, as Host and absolute-form have it. */
bool http_is_authority(struct slice text) MUST_CHECK;

/* The bytes of "http://" or "https://" at the beginning, or 0. */
size_t http_scheme(struct slice text, bool *ret_is_tls);

/* Judge the fields of a whole head. HTTP_DONE or HTTP_REFUSED. */
enum http_verdict http_request_fields(
    struct http_head *head, struct http_refusal *refusal) MUST_CHECK;
enum http_verdict http_response_fields(
    struct http_head *head, enum http_method method, struct http_refusal *refusal) MUST_CHECK;

enum {
    HTTP_NOT_IN_TRAILER = 1, /* RFC 9110 section 6.5.1: means something only in a head */
    HTTP_NOT_BY_CONNECTION =
        2, /* may not be made hop-by-hop: dropping it would change what is done */
};

/* Whether the field of that name is marked so in the table of framing.c. */
bool http_field_is(struct slice name, int mark) MUST_CHECK;

#endif
