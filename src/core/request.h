/*
 * request: what one arrival asks for, and the policy that applies to it.
 *
 * Promises:  plain data. A request that passes request_check fails no assertion in decide(), and
 *            can be stored and written to evidence.
 * Ownership: slices are borrowed.
 */
#ifndef ONCE_CORE_REQUEST_H
#define ONCE_CORE_REQUEST_H

#include "core/kind.h"

/* What to do with an operation whose outcome is unknown. */
enum on_unknown {
    ON_UNKNOWN_HOLD = 0,  /* never run it again automatically (P1) */
    ON_UNKNOWN_TAKEOVER,  /* run it again; only for effects that are themselves idempotent */
    ON_UNKNOWN_RECONCILE, /* hold, and ask the provider */
};

/* The policy for one request. Plain data; policy_default has the defaults of the API. */
struct policy {
    int64_t window_ms;          /* after the seal, how long duplicates are recognised */
    int64_t lease_ms;           /* how long the grant is presumed alive */
    enum on_unknown on_unknown; /* hold by default */
    bool retry_failed;          /* a failed operation may be tried again */
    bool retry_rejected;        /* a rejected operation may be tried again */
    uint32_t attempts_max;      /* retry, give_up: grants in all, from the first; 0: no limit */
    int64_t deadline_ms;        /* retry, give_up: how long after its creation a record may be
                                   attempted; 0: no limit */
};

/* One arrival. Members that a kind does not use are zero. */
struct request {
    enum request_kind kind;
    enum record_kind record_kind; /* begin, enqueue: the kind to make; 0 for an operation */
    struct record_key key;        /* begin, enqueue: what names it */
    struct op_id operation_id;    /* all others */
    struct policy policy;         /* begin, enqueue; lease_ms: every request that grants, and renew;
                                     window_ms: a seal may override it (> 0) */
    struct digest fingerprint;    /* begin, enqueue: keyed */
    uint8_t fingerprint_version;  /* begin, enqueue */
    uint64_t fence;               /* the holder's calls; resolve, postpone, holder_gone: the fence
                                     of the attempt meant, 0 for any */
    uint64_t version;          /* wake, cancel, resolve, take_up: the version of the record that the
                                     caller read; 0: any */
    enum record_status status; /* seal, resolve: what it became; resolve: released or pending = not
                                  executed; enqueue: pending (or 0) or waiting; wake: the new
                                  status; compensation_settle: compensated or unknown */
    struct slice effect_id;    /* seal, resolve, wake */
    struct outcome outcome;    /* seal, resolve, wake, cancel */
    struct body_ref request;   /* begin, enqueue: the canonical body, if it is kept; wake: the body
                                  of a record that was made without one */
    struct source source;      /* begin, enqueue; wake to pending: a lane (core/lane.h) */
    struct slice trace;        /* canonical JSON object of trace ids; may be empty */
    struct slice actor;        /* who asked, for evidence; may be empty */
    struct slice reason;       /* why; not begin, enqueue, claim */
    enum record_door door;     /* begin, enqueue: the door it came through */
    uint64_t holder;           /* requests that grant, and renew: the incarnation that will hold the
                                  grant, 0: not one of ours; holder_gone: the living incarnation */
    struct op_id parent;       /* begin, enqueue: zero: absent */
    int64_t delay_ms;          /* requests that set a due time: how long from now … */
    int64_t not_before_ms;     /* … and not before this; waiting and unknown have no due when both
                                  are 0 */
    struct slice detail;       /* new detail of the record; empty: unchanged */
};

extern const struct policy policy_default;

/* Checks that a request is within the limits and its texts are UTF-8. E_INVALID names the member,
 * in the words that all doors use, and the limit. */
enum status request_check(const struct request *request, struct err *err) MUST_CHECK;
/* Checks that its names are valid (base/name.h). */
enum status request_names_check(const struct request *request, struct err *err) MUST_CHECK;
/* Both checks, for a new request. Requests in evidence may be older than the rule for names. */
enum status request_new_check(const struct request *request, struct err *err) MUST_CHECK;

/* The bounds of a duration, with the names of both for refusals. */
struct span_limit {
    const char *name;
    const char *min_name; /* NULL: it has no name */
    int64_t ms_min;
    const char *max_name;
    int64_t ms_max;
};
/* E_INVALID: ms is out of bounds. */
enum status request_check_span(
    const struct span_limit *limit, int64_t ms, struct err *err) MUST_CHECK;

/* The kind that begin and enqueue make; RECORD_OPERATION by default. */
enum record_kind request_record_kind(const struct request *request);
/* The request names its record by key, and makes it if it is absent: begin, enqueue. */
bool request_by_key(enum request_kind kind);
/* Deciding it may use up moment.fence_next. */
bool request_takes_fence(const struct request *request);
/* It asks for a grant: begin, claim, wake to in_progress. */
bool request_asks_grant(const struct request *request);
/* It asks for a status or reports one. */
bool request_names_status(enum request_kind kind);
/* It settles the record, with an outcome: seal, resolve, cancel, wake to a settled status. */
bool request_settles(const struct request *request);

/* "hold", "takeover", "reconcile". */
const char *on_unknown_name(enum on_unknown on_unknown);

#endif
