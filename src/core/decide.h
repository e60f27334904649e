/*
 * decide: what Once says to one arrival. The whole product rests on this function.
 *
 * Promises:  pure: no clock, no I/O, no allocation, no globals. The same arguments give the same
 *            decision on every machine, which is what `once verify --redecide` relies on.
 *            It cannot fail: a conflict, a duplicate, a stale fence are decisions, not errors.
 *
 * A begin goes down this list and stops at the first row that holds (DESIGN section 4):
 *
 *   rule  found                               decision
 *   B1    nothing, or window over             first_seen: a new operation, attempt 1
 *   B2    another fingerprint                 conflict_rejected, the record untouched (P7)
 *   B3    in_progress, lease alive            in_progress
 *   B4    unknown, or in_progress and lease   takeover: first_seen, attempt + 1, a new fence
 *   B5      over (then it becomes unknown)    hold, reconcile: held_unknown
 *   B6    released                            first_seen, attempt + 1, a new fence
 *   B7    failed or rejected, and the policy  first_seen, attempt + 1, a new fence
 *           lets that be tried again
 *   B8    executed, failed, rejected,         duplicate_replayed
 *           compensated
 *   B9    B1, B4, B6 or B7 would grant, and   stale_version, nothing changes (OPS-7)
 *           the version of the request's
 *           source is older than the last
 *           sealed one (core/source.h)
 *
 * The holder's calls (seal, release, unknown, renew) go down this one:
 *
 *   H1    nothing, another operation, or      not_found
 *           window over
 *   H2    another fence                       stale_fence, nothing changes (P4)
 *   H3    sealed already                      the same seal: sealed again, same answer (P3);
 *                                             anything else: already_sealed
 *   H4    released already                    release: released again; anything else: stale_fence,
 *                                             because the right to execute was given up
 *   H5    in_progress or unknown              done, even after the lease ran out (nobody took over)
 *
 * An operator's resolve: N1 as H1; N6 it names a fence (of the attempt that was looked into) and
 * by now there is another: stale_fence, nothing changes (P4); N2 sealed the same way: resolved
 * again, else already_sealed; N3 released: resolved again for not_executed, else already_sealed;
 * N4 in_progress and lease alive: still_running, nothing changes; N5 unknown: resolved.
 *
 * The janitor's lease_over: J1 as H1; J2 in_progress and lease over: unknown; J3 else: nothing.
 */
#ifndef ONCE_CORE_DECIDE_H
#define ONCE_CORE_DECIDE_H

#include "core/record.h"

/* Values are in evidence by name only. */
enum request_kind {
    REQUEST_BEGIN,
    REQUEST_SEAL,
    REQUEST_RELEASE,
    REQUEST_UNKNOWN,
    REQUEST_RENEW,
    REQUEST_RESOLVE,
    REQUEST_LEASE_OVER, /* the janitor's */
};

/* What to do with an operation nobody knows the outcome of. */
enum on_unknown {
    ON_UNKNOWN_HOLD = 0,  /* never run it again by itself (P1) */
    ON_UNKNOWN_TAKEOVER,  /* run it again; only for effects that are themselves idempotent */
    ON_UNKNOWN_RECONCILE, /* hold, and ask the provider */
};

/* How one begin is to be treated. Plain data; policy_default has the values of DESIGN. */
struct policy {
    int64_t window_ms;          /* after the seal, how long duplicates are recognised */
    int64_t lease_ms;           /* how long the grant is presumed alive */
    enum on_unknown on_unknown; /* hold unless told otherwise */
    bool retry_failed;          /* a failed operation may be tried again */
    bool retry_rejected;        /* a rejected one may be tried again */
};

/* One arrival. Members that a kind does not use are zero. */
struct request {
    enum request_kind kind;
    struct record_key key;       /* begin: the operation asked for */
    struct op_id operation_id;   /* all others */
    struct policy policy;        /* begin; renew uses lease_ms; seal may override window_ms (> 0) */
    struct digest fingerprint;   /* begin: keyed */
    uint8_t fingerprint_version; /* begin */
    uint64_t fence;              /* the holder's calls; resolve: of the attempt meant, 0 for any */
    enum record_status status; /* seal, resolve: what it became; resolve: released = not executed */
    struct slice effect_id;    /* seal, resolve */
    struct outcome outcome;    /* seal, resolve */
    struct body_ref request;   /* begin: the canonical body, when it is kept */
    struct source source;      /* begin */
    struct slice trace;        /* canonical JSON object of trace ids; may be empty */
    struct slice actor;        /* who asked, for evidence; may be empty */
    struct slice reason;       /* release, unknown, resolve */
};

enum decision_kind {
    /* To a begin. */
    DECISION_FIRST_SEEN,
    DECISION_DUPLICATE_REPLAYED,
    DECISION_IN_PROGRESS,
    DECISION_CONFLICT_REJECTED,
    DECISION_HELD_UNKNOWN,
    /* To the others. */
    DECISION_SEALED,
    DECISION_RELEASED,
    DECISION_UNKNOWN,
    DECISION_RENEWED,
    DECISION_RESOLVED,
    DECISION_NOT_FOUND,
    DECISION_STALE_FENCE,
    DECISION_ALREADY_SEALED,
    DECISION_STILL_RUNNING,
    /* To a begin again: these numbers are public. */
    DECISION_STALE_VERSION,
    DECISION_NOTHING, /* the janitor was late: there is nothing to do */
};

enum decision_change {
    CHANGE_NONE,  /* the record stays as it is, or stays absent */
    CHANGE_TOUCH, /* one more duplicate was seen; nothing else changes */
    CHANGE_PUT,   /* the record becomes decision.next */
};

struct decision {
    enum decision_kind kind;
    enum decision_change change;
    bool repeated;      /* the same holder's call again: the same answer, nothing changes */
    const char *rule;   /* "B1" … "J3", for `once why` */
    struct record next; /* the record from now on; all zero when there is none. Slices are shared
                           with the arguments. */
};

/* What decide is told besides the request. */
struct decide_moment {
    int64_t now_ms;      /* the engine's time */
    uint64_t fence_next; /* what a grant would get; greater than every fence ever granted (P4) */
    /* Begin, and only when its source is ordered: the last sealed version of it, empty for none.
     * With a seal it is told in evidence what it is from then on; decide does not look at it. */
    struct slice version_sealed;
};

extern const struct policy policy_default;

/* found is NULL when there is no record. It must be the record that the request names. */
struct decision decide(
    const struct record *found, const struct request *request, struct decide_moment moment);
/* The same where the decision is to stay: half a kilobyte is not copied. Every member is set. found
 * must not be inside of it. */
void decide_into(const struct record *found, const struct request *request,
    struct decide_moment moment, struct decision *ret_decision);

/* Whether a request is within the limits and its texts are UTF-8. E_INVALID names the member. What
 * passes can be decided, stored and told in evidence. */
enum status request_check(const struct request *request, struct err *err) MUST_CHECK;

/* "first_seen", "duplicate_replayed", … as the API spells them. */
const char *decision_name(enum decision_kind kind);
const char *request_kind_name(enum request_kind kind);
const char *on_unknown_name(enum on_unknown on_unknown);

#endif
