/*
 * reconcile_rules: what the upstream is asked about an unknown operation, and what its answer means
 * (docs/unknown.md). Pure.
 *
 * Promises:  only a status that the configuration names settles anything. A client's key stays
 *            within its place in the template: it is percent-encoded, and no key leads to a
 *            different path of the upstream, whose answer would be taken for an outcome and shown
 *            to that client.
 * Does not:  send, or settle (reconcile.h).
 */
#ifndef ONCE_GATEWAY_RECONCILE_RULES_H
#define ONCE_GATEWAY_RECONCILE_RULES_H

#include "base/buf.h"
#include "base/err.h"
#include "base/limits.h"
#include "config/gateway.h"
#include "outcall/judge.h"

/* The meaning of each named status; must live as long as the rules. */
struct reconcile_statuses {
    struct judge_status named[2 * CONFIG_STATUSES_MAX];
};
/* What an answer means: an `executed` status is the outcome; a `not_executed` status frees the key
 * if the attempt is_quiet (outcall/quiet.h); any other status, or no answer, leaves it
 * unknown. */
struct judge_rules reconcile_rules(const struct config_reconcile *reconcile, bool is_quiet,
    struct reconcile_statuses *ret_statuses);
bool reconcile_is_not_executed(const struct config_reconcile *reconcile, unsigned status);

/* The names a template may contain. */
struct reconcile_names {
    struct slice key;          /* {key}: the client's; two principals may share one */
    struct slice operation_id; /* {operation_id}: ours; the upstream got it with the request */
};

/* The template with the names filled in. E_INVALID: dot segments in the key would lead elsewhere,
 * however they are encoded (RFC 3986 section 6.2.2). E_NOMEM, E_LIMIT. */
enum status reconcile_target(const char *template, const struct reconcile_names *names,
    struct buf *out, struct err *err) MUST_CHECK;
/* Append the value of Idempotency-Key: bare, or an RFC 9651 string where necessary. Appends nothing
 * for a key that is not ASCII, which came through a different door. */
void reconcile_key(struct slice key, struct buf *out);

/* The parts of a scope (request_form_scope). */
struct reconcile_scope {
    unsigned method;   /* a bit of enum config_method */
    struct slice path; /* canonical */
    bool is_cut;       /* the path is cut short: the kept request has all of it */
};
/* False: the gateway did not make this scope. */
bool reconcile_scope(struct slice text, struct reconcile_scope *ret_scope);

/* "reconciled: GET /v1/payments/by-key/k answered 200": without the query, which may hold a
 * secret, and cut where it is too long. */
void reconcile_reason(
    struct slice target, unsigned status, char ret_text[LIMIT_REASON_BYTES_MAX + 1]);

#endif
