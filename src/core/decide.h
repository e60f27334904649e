/*
 * decide: what Once answers to one arrival. The whole product rests on this function.
 *
 * Promises:  pure: no clock, no I/O, no allocation, no globals. The same arguments give the same
 *            decision on every machine, which is what `once verify --redecide` relies on.
 *            It cannot fail: a conflict, a duplicate, a stale fence are decisions, not errors.
 *
 * A request goes down its list and stops at the first row that holds. Evidence names the rule
 * (docs/formats/evidence.md), so a rule's name is never reused for a different rule.
 *
 * begin:
 *
 *   B1    nothing, or window over             first_seen: a new operation, attempt 1
 *   B2    a different fingerprint             conflict_rejected, the record untouched (P7)
 *   B3    in_progress, lease alive            in_progress
 *   B4    unknown, or in_progress and lease   takeover of an operation: first_seen, attempt + 1, a
 *           over                                new fence
 *   B5    as B4 (then it becomes unknown)     otherwise: held_unknown. What Once performs itself is
 *                                               taken over by its door (a resolve to pending)
 *   B6    released                            first_seen, attempt + 1, a new fence
 *   B7    failed or rejected, and the policy  first_seen, attempt + 1, a new fence
 *           lets that be tried again
 *   B8    executed, failed, rejected,         duplicate_replayed
 *           compensated
 *   B9    B1, B4, B6 or B7 would grant, and   stale_version, nothing changes (OPS-7)
 *           the version of the request's
 *           source is older than the last
 *           sealed one (core/source.h)
 *   B10   pending, waiting, dead              in_progress
 *   B11   compensating, or unknown whether    duplicate_replayed (P3); before B4
 *           it was compensated
 *
 * enqueue (the record is claimed later, which is the grant):
 *
 *   E1    nothing, or window over             enqueued: a new operation, pending or waiting
 *   E2    a different fingerprint             conflict_rejected, the record untouched (P7)
 *   E3    sealed, and being compensated or    duplicate_replayed (P3)
 *           not
 *   E4    pending, waiting, dead, or          in_progress
 *           in_progress and lease alive
 *   E5    unknown, or in_progress and lease   held_unknown
 *           over (then it becomes unknown)
 *   E6    failed or rejected, and the policy  enqueued: the same operation again; before E3
 *           lets that be tried again
 *   E7    E1 or E6 would enqueue, and the     stale_version, nothing changes (OPS-7)
 *           source is outdated as in B9
 *
 * claim, a grant like any other (P1, P4, P5):
 *
 *   C1    as H1                               not_found
 *   C2    pending and due                     claimed: in_progress, attempt + 1, a new fence
 *   C3    pending, not due                    not_due, nothing changes
 *   C4    C2, and a newer version of the      stale_version, nothing changes (OPS-7)
 *           record's source was sealed
 *   C5    anything else                       wrong_status, nothing changes
 *
 * The holder's calls (seal, release, unknown, renew, retry, give_up, wait):
 *
 *   H1    nothing, a different operation,     not_found
 *           or window over
 *   H2    a different fence                   stale_fence, nothing changes (P4)
 *   H3    sealed already                      the same seal: sealed again, same answer (P3);
 *                                             anything else: already_sealed
 *   H4    released already                    release: released again; anything else: stale_fence,
 *                                             because the right to execute was given up
 *   H5    in_progress or unknown              seal, release, unknown, renew: done, even after the
 *                                             lease ran out (nobody took over)
 *   H7    in_progress, and its door           unknown with a delay: done, due after the delay (H5:
 *         reconciles it                       at once)
 *   H6    pending, waiting or dead            what led there: done again; anything else:
 *                                             stale_fence, as H4
 *   T1    in_progress or unknown; retry       done: pending, due later
 *   T2    as T1, but attempts or deadline     done: dead
 *           are used up
 *   T3    in_progress or unknown; wait        done: waiting
 *   T4    in_progress or unknown, or pending  done: dead
 *           and no fence shown; give_up,
 *           attempts or deadline used up
 *   T5    as T4, not used up                  not_due, nothing changes
 *
 * resolve, an operator's or the reconciler's:
 *
 *   N1    as H1                               not_found
 *   N2    sealed                              the same way: resolved again; else already_sealed
 *   N3    released                            not_executed: resolved again; else already_sealed
 *   N4    in_progress, lease alive            still_running, nothing changes
 *   N5    unknown, or lease over              resolved
 *   N6    it names a fence (of the attempt    stale_fence, nothing changes (P4); before N2
 *           meant), and it is a different one
 *   N7    pending, waiting, dead              pending and asked for: resolved again; else
 *                                             wrong_status
 *   N8    unknown whether it was compensated  executed, failed: that again, with its outcome; else
 *                                             already_sealed (P3); before N2
 *   N9    it names the version that it was    wrong_status, nothing changes; after N6, before the
 *           made for, and it has changed        others
 *
 * The janitor's lease_over: J1 as H1: nothing; J2 in_progress and lease over: unknown; J3 else:
 * nothing. Its holder_gone: J1; J4 in_progress, held by an incarnation other than the living one
 * that the request names, and the request names no other fence: unknown; J5 else: nothing.
 *
 *   wake        W1 as H1: not_found. W2 waiting: pending, in_progress (claimed: a grant), executed,
 *               failed or rejected, as asked. W3 its due is over, and pending or in_progress is
 *               asked for: too_late. W4 not waiting: wrong_status. W5 never granted, and executed,
 *               failed or waiting is asked for: wrong_status (P6). W6 the request names the version
 *               that it was made for, and the record has changed since: wrong_status; after W4.
 *               W7 waiting, and asked for: it waits on, for less, with a new due.
 *   cancel      X1 as H1. X2 pending, waiting, dead: rejected. X3 rejected: done again. X4 else:
 *               wrong_status. X5 a command that waits for its effects: wrong_status, because it ran
 *               and "rejected" would let it run again (P5). X6 as W6. Both before X2.
 *   take_up     U1 as H1. U2 dead, pending: pending with a new due. U3 else: wrong_status.
 *               U4 as W6; before U2.
 *   postpone    Q1 as H1. Q2 as N6. Q3 unknown: a new due, and the time of the last
 *               change stays: it says since when nobody knows. Q4 else: wrong_status.
 *   compensate  K1 as H1. K2 executed, failed: compensating, with a due if one is asked for. K3
 *               compensating, compensated: done again. K4 else: wrong_status.
 *   compensation_settle   K1. K5 compensating, or unknown whether it was compensated: compensated.
 *               K6 compensating: unknown. K7 it is so already: done again. K8 else: wrong_status.
 *
 *   A1    the record's kind does not take the request, or does not have the status asked for
 *         (core/kind.h): wrong_status; after H1 and rules like it, before all others.
 */
#ifndef ONCE_CORE_DECIDE_H
#define ONCE_CORE_DECIDE_H

#include "core/request.h"

enum decision_kind {
    /* Answers to a begin. */
    DECISION_FIRST_SEEN,
    DECISION_DUPLICATE_REPLAYED,
    DECISION_IN_PROGRESS,
    DECISION_CONFLICT_REJECTED,
    DECISION_HELD_UNKNOWN,
    /* Answers to the other requests. */
    DECISION_SEALED,
    DECISION_RELEASED,
    DECISION_UNKNOWN,
    DECISION_RENEWED,
    DECISION_RESOLVED,
    DECISION_NOT_FOUND,
    DECISION_STALE_FENCE,
    DECISION_ALREADY_SEALED,
    DECISION_STILL_RUNNING,
    /* To a begin again. It is here because the numbers are public. */
    DECISION_STALE_VERSION,
    DECISION_NOTHING, /* the janitor was late: there is nothing to do */
    /* Answers about work that Once performs itself. */
    DECISION_ENQUEUED,
    DECISION_CLAIMED, /* a grant; only this and first_seen are */
    DECISION_DONE,    /* the request was carried out; it and the record say what changed */
    DECISION_NOT_DUE,
    DECISION_TOO_LATE,
    DECISION_WRONG_STATUS,
};

enum decision_change {
    CHANGE_NONE,  /* the record stays as it is, or stays absent */
    CHANGE_TOUCH, /* one more duplicate was seen; nothing else changes */
    CHANGE_PUT,   /* the record becomes decision.next */
};

struct decision {
    enum decision_kind kind;
    enum decision_change change;
    bool repeated;      /* a repeated call of the holder: the same answer, nothing changes */
    const char *rule;   /* "B1" … "X6", for `once why` */
    struct record next; /* the record after the decision; all zero if there is none. Slices are
                           shared with the arguments */
};

/* The input of decide besides the request and the record. */
struct decide_moment {
    int64_t now_ms;      /* the engine's time */
    uint64_t fence_next; /* the fence a grant would get; greater than every earlier one (P4) */
    /* Begin, enqueue and claim with an ordered source: the source's last sealed version, empty if
     * there is none. With a seal: the version after it, for evidence only; decide does not read
     * it. */
    struct slice version_sealed;
};

/* found is the record that the request names; NULL if it is absent. */
struct decision decide(
    const struct record *found, const struct request *request, struct decide_moment moment);
/* The same, written in place, which saves copying half a kilobyte. Every member is set. found must
 * not point into it. */
void decide_into(const struct record *found, const struct request *request,
    struct decide_moment moment, struct decision *ret_decision);

/* The decision used up moment.fence_next, for a grant or for the id of an enqueued record. */
bool decision_took_fence(const struct decision *decision);

/* "first_seen", "duplicate_replayed", … as the API spells them. */
const char *decision_name(enum decision_kind kind);

/* Whether its lease is over, so that nobody knows whether it happened. *ret_next is then the record
 * as decide finds it from that time on: unknown since its lease ended. For readers of a store that
 * no janitor looks after. */
bool decide_lease_over(const struct record *found, int64_t now_ms, struct record *ret_next);

#endif
