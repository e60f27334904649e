/*
 * past 800 lines because every change of a record is made in this one file.
 */
#include "core/decide.h"

#include "base/check.h"
#include "core/lane.h"
#include "core/source.h"

/* All of these fill in a decision in place, because a record is half a kilobyte and passing it by
 * value copied it four times. First comes the record as it was (keep), then the changes, then the
 * name of the decision (leave, touch, put, repeat). */

/* The record as it was found, to start from. */
static struct record *keep(struct decision *decision, const struct record *found)
{
    ASSERT(found != &decision->next);
    decision->next = *found;
    return &decision->next;
}

/* A decision that leaves the record as it is. */
static void leave(struct decision *decision, enum decision_kind kind, const char *rule,
    const struct record *found)
{
    ASSERT(rule != NULL); /* P10: evidence names it */
    decision->kind = kind;
    decision->change = CHANGE_NONE;
    decision->repeated = false;
    decision->rule = rule;
    if (found != NULL) {
        (void)keep(decision, found);
    } else {
        decision->next = (struct record){0};
    }
}

/* A decision that counts one more duplicate. */
static void touch(struct decision *decision, enum decision_kind kind, const char *rule,
    const struct record *found)
{
    ASSERT(found != NULL);
    leave(decision, kind, rule, found);
    decision->change = CHANGE_TOUCH;
    if (decision->next.duplicates < UINT32_MAX) {
        decision->next.duplicates++;
    }
}

/* A decision that replaces the record by decision->next. No other function changes a record. */
static void put(struct decision *decision, enum decision_kind kind, const char *rule,
    struct decide_moment moment)
{
    ASSERT(rule != NULL);                         /* P10: evidence names it */
    ASSERT(decision->next.kind != RECORD_SOURCE); /* R7: a source is never decided on */
    decision->kind = kind;
    decision->change = CHANGE_PUT;
    decision->repeated = false;
    decision->rule = rule;
    decision->next.version++;
    decision->next.updated_ms = moment.now_ms;
    record_check(&decision->next);
}

static void repeat(struct decision *decision, enum decision_kind kind, const char *rule,
    const struct record *found)
{
    ASSERT(found != NULL);
    leave(decision, kind, rule, found);
    decision->repeated = true;
}

static bool lease_over(const struct record *record, int64_t now_ms)
{
    return record->status == RECORD_IN_PROGRESS && now_ms >= record->lease_expires_ms;
}

/* The only place where a status changes. Members that belong to the old status are cleared; the
 * caller sets those of the new one. */
static void become(struct record *record, enum record_status status)
{
    ASSERT(kind_may_become(record->kind, record->status, status));
    record->status = status;
    record->lease_expires_ms = 0;
    record->window_expires_ms = 0;
    record->due_ms = 0;
    record->holder = 0;
}

/* The due time that the request sets. */
static int64_t due_of(const struct request *request, struct decide_moment moment)
{
    ASSERT(request->delay_ms >= 0);
    int64_t due_ms = moment.now_ms + request->delay_ms;
    return due_ms < request->not_before_ms ? request->not_before_ms : due_ms;
}

/* The same, but 0 if the request sets none. */
static int64_t due_if_set(const struct request *request, struct decide_moment moment)
{
    bool asked = request->delay_ms > 0 || request->not_before_ms > 0;
    return asked ? due_of(request, moment) : 0;
}

static void become_unknown(struct record *record, struct slice reason, struct decide_moment moment)
{
    ASSERT(record->status == RECORD_IN_PROGRESS); /* P5: work may have begun */
    become(record, RECORD_UNKNOWN);
    record->due_ms = record->reconciles ? moment.now_ms : 0;
    record->reason = reason;
}

static void become_pending(
    struct record *record, const struct request *request, struct decide_moment moment)
{
    become(record, RECORD_PENDING);
    record->due_ms = due_of(request, moment);
    record->reason = request->reason;
}

static void become_waiting(
    struct record *record, const struct request *request, struct decide_moment moment)
{
    become(record, RECORD_WAITING);
    record->due_ms = due_if_set(request, moment);
    record->reason = request->reason;
}

/* Clears what an earlier attempt left, so that none of it can be replayed. */
static void forget_outcome(struct record *record)
{
    record->sealed_ms = 0;
    record->effect_id = SLICE_EMPTY;
    record->outcome = (struct outcome){0};
    record->reason = SLICE_EMPTY;
    ASSERT(!record_sealed(record)); /* R5 */
}

/* B9, C4, E7: a newer version of the same source has taken effect, so this one must not (OPS-7). */
static bool outdated(const struct source *source, struct decide_moment moment)
{
    return source_ordered(source) && moment.version_sealed.len > 0 &&
           version_older(source->version, moment.version_sealed);
}

static bool same_fingerprint(const struct record *found, const struct request *request)
{
    return found->fingerprint_version == request->fingerprint_version &&
           digest_equal(&found->fingerprint, &request->fingerprint);
}

/* The policy allows a new attempt after this status. */
static bool may_try_again(const struct record *found, const struct policy *policy)
{
    return (found->status == RECORD_FAILED && policy->retry_failed) ||
           (found->status == RECORD_REJECTED && policy->retry_rejected);
}

/* ---- grants, now or later ------------------------------------------------------------------ */

/* Whether the record's door must act when it becomes unknown: ask the provider, or call again. An
 * operation is taken over by its next caller. What Once performs itself is taken over by Once: its
 * caller may never come again. */
static bool door_acts(const struct record *record, enum on_unknown policy)
{
    bool acts = policy == ON_UNKNOWN_RECONCILE ||
                (policy == ON_UNKNOWN_TAKEOVER && record->kind != RECORD_OPERATION);
    return acts && record->door != RECORD_DOOR_NONE;
}

/* Gives the right to execute. The fence is new every time (P4). */
static void grant(struct decision *decision, enum decision_kind kind, const char *rule,
    const struct request *request, struct decide_moment moment)
{
    struct record *record = &decision->next;
    ASSERT(moment.fence_next > record->fence); /* P4 */
    ASSERT(request->policy.lease_ms > 0);
    become(record, RECORD_IN_PROGRESS);
    record->fence = moment.fence_next;
    record->attempt += record->attempt < UINT32_MAX;
    record->lease_expires_ms = moment.now_ms + request->policy.lease_ms;
    record->holder = request->holder;
    record->reconciles = door_acts(record, request->policy.on_unknown);
    forget_outcome(record);
    put(decision, kind, rule, moment);
}

/* Copies what a begin or an enqueue says about its attempt. */
static void ask(struct record *record, const struct request *request)
{
    ASSERT(request->policy.window_ms > 0);
    record->window_ms = request->policy.window_ms;
    /* This version is about to take effect: its seal will be remembered. */
    if (source_ordered(&request->source)) {
        record->source = request->source;
    }
    if (request->door != RECORD_DOOR_NONE) {
        record->door = request->door;
    }
    if (request->detail.len > 0) {
        record->detail = request->detail;
    }
}

/* Makes a new operation in decision->next; expired is the key's old record or NULL. */
static void make(struct decision *decision, const struct record *expired,
    const struct request *request, struct decide_moment moment)
{
    ASSERT(expired == NULL || record_window_over(expired, moment.now_ms)); /* P8 */
    decision->next = (struct record){
        .key = request->key,
        .kind = request_record_kind(request),
        /* The version continues from the expired record, so that a compare-and-set against it sees
         * the change. */
        .version = expired == NULL ? 0 : expired->version,
        .operation_id = op_id_make(moment.now_ms, &request->key.hash, moment.fence_next),
        .fingerprint = request->fingerprint,
        .fingerprint_version = request->fingerprint_version,
        .created_ms = moment.now_ms,
        .request = request->request,
        .source = request->source,
        .trace = request->trace,
        .parent = request->parent,
    };
    ask(&decision->next, request);
}

static void grant_again(struct decision *decision, const char *rule, const struct record *found,
    const struct request *request, struct decide_moment moment)
{
    ASSERT(found->status != RECORD_EXECUTED);                                        /* P3 */
    ASSERT(found->status != RECORD_IN_PROGRESS || lease_over(found, moment.now_ms)); /* P1 */
    if (outdated(&request->source, moment)) {
        leave(decision, DECISION_STALE_VERSION, "B9", found);
        return;
    }
    struct record *next = keep(decision, found);
    ask(next, request);
    if (!next->request.retained) {
        next->request = request->request; /* R10: it was erased when the record was settled */
    }
    grant(decision, DECISION_FIRST_SEEN, rule, request, moment);
}

static void grant_new(struct decision *decision, const struct record *expired,
    const struct request *request, struct decide_moment moment)
{
    ASSERT(request->kind == REQUEST_BEGIN);
    if (outdated(&request->source, moment)) {
        leave(decision, DECISION_STALE_VERSION, "B9", NULL);
        return;
    }
    make(decision, expired, request, moment);
    grant(decision, DECISION_FIRST_SEEN, "B1", request, moment);
}

/* A duplicate of an operation that is unknown, or becomes unknown now. */
static void hold_unknown(struct decision *decision, const char *rule, const struct record *found,
    struct decide_moment moment)
{
    ASSERT(found->status == RECORD_UNKNOWN || lease_over(found, moment.now_ms)); /* P5 */
    ASSERT(!record_sealed(found)); /* P3: that would be replayed */
    if (found->status == RECORD_UNKNOWN) {
        touch(decision, DECISION_HELD_UNKNOWN, rule, found);
        return;
    }
    struct record *next = keep(decision, found);
    become_unknown(next, SLICE_LIT("lease_expired"), moment);
    next->duplicates += next->duplicates < UINT32_MAX;
    put(decision, DECISION_HELD_UNKNOWN, rule, moment);
}

static void begin_unknown(struct decision *decision, const struct record *found,
    const struct request *request, struct decide_moment moment)
{
    ASSERT(found->status == RECORD_UNKNOWN || lease_over(found, moment.now_ms)); /* P1 */
    ASSERT(!record_sealed(found));                                               /* P3 */
    switch (request->policy.on_unknown) {
    case ON_UNKNOWN_TAKEOVER:
        if (found->kind != RECORD_OPERATION) {
            break; /* P5: its door does it, and keeps in mind that it may have happened */
        }
        grant_again(decision, "B4", found, request, moment);
        return;
    case ON_UNKNOWN_HOLD:
    case ON_UNKNOWN_RECONCILE: break;
    }
    hold_unknown(decision, "B5", found, moment);
}

/* A begin with the record's own fingerprint. */
static void begin_found(struct decision *decision, const struct record *found,
    const struct request *request, struct decide_moment moment)
{
    ASSERT(same_fingerprint(found, request)); /* P7 */
    switch (found->status) {
    case RECORD_IN_PROGRESS:
        if (lease_over(found, moment.now_ms)) {
            begin_unknown(decision, found, request, moment);
        } else {
            touch(decision, DECISION_IN_PROGRESS, "B3", found);
        }
        return;
    case RECORD_UNKNOWN:
        if (record_sealed(found)) {
            touch(decision, DECISION_DUPLICATE_REPLAYED, "B11", found); /* P3 */
        } else {
            begin_unknown(decision, found, request, moment);
        }
        return;
    case RECORD_RELEASED: grant_again(decision, "B6", found, request, moment); return;
    case RECORD_PENDING:
    case RECORD_WAITING:
    case RECORD_DEAD: touch(decision, DECISION_IN_PROGRESS, "B10", found); return;
    case RECORD_COMPENSATING: touch(decision, DECISION_DUPLICATE_REPLAYED, "B11", found); return;
    case RECORD_EXECUTED:
    case RECORD_FAILED:
    case RECORD_REJECTED:
    case RECORD_COMPENSATED: break;
    }
    if (may_try_again(found, &request->policy)) {
        grant_again(decision, "B7", found, request, moment);
    } else {
        touch(decision, DECISION_DUPLICATE_REPLAYED, "B8", found);
    }
}

static void begin(struct decision *decision, const struct record *found,
    const struct request *request, struct decide_moment moment)
{
    ASSERT(request->kind == REQUEST_BEGIN);
    if (found == NULL || record_window_over(found, moment.now_ms)) {
        grant_new(decision, found, request, moment);
        return;
    }
    /* P7: before in_progress and before replay, so that a wrong payload learns nothing. */
    if (!same_fingerprint(found, request)) {
        touch(decision, DECISION_CONFLICT_REJECTED, "B2", found);
        return;
    }
    begin_found(decision, found, request, moment);
}

/* decision->next will be claimed, or woken first. */
static void queue(struct decision *decision, const char *rule, const struct request *request,
    struct decide_moment moment)
{
    ASSERT(request->kind == REQUEST_ENQUEUE);
    struct record *record = &decision->next;
    ASSERT(record->holder == 0); /* P6: an enqueue grants nothing */
    forget_outcome(record);
    if (request->status == RECORD_WAITING) {
        become_waiting(record, request, moment);
    } else {
        become_pending(record, request, moment);
    }
    put(decision, DECISION_ENQUEUED, rule, moment);
}

static void enqueue_new(struct decision *decision, const struct record *expired,
    const struct request *request, struct decide_moment moment)
{
    if (outdated(&request->source, moment)) {
        leave(decision, DECISION_STALE_VERSION, "E7", NULL);
        return;
    }
    make(decision, expired, request, moment);
    queue(decision, "E1", request, moment);
}

static void enqueue_again(struct decision *decision, const struct record *found,
    const struct request *request, struct decide_moment moment)
{
    ASSERT(same_fingerprint(found, request)); /* P7 */
    ASSERT(record_sealed(found));
    if (outdated(&request->source, moment)) {
        leave(decision, DECISION_STALE_VERSION, "E7", found);
        return;
    }
    struct record *next = keep(decision, found);
    ask(next, request);
    /* R10: the request body was erased when the record was settled. */
    next->request = request->request;
    if (next->kind == RECORD_COMMAND) {
        next->attempt = 0; /* R1: that it waits for a confirmation again shows by this */
    }
    queue(decision, "E6", request, moment);
}

static void enqueue(struct decision *decision, const struct record *found,
    const struct request *request, struct decide_moment moment)
{
    ASSERT(request->kind == REQUEST_ENQUEUE);
    if (found == NULL || record_window_over(found, moment.now_ms)) {
        enqueue_new(decision, found, request, moment);
    } else if (!same_fingerprint(found, request)) {
        touch(decision, DECISION_CONFLICT_REJECTED, "E2", found); /* P7 */
    } else if (record_sealed(found)) {
        if (may_try_again(found, &request->policy)) {
            enqueue_again(decision, found, request, moment);
        } else {
            touch(decision, DECISION_DUPLICATE_REPLAYED, "E3", found); /* P3 */
        }
    } else if (found->status == RECORD_UNKNOWN || lease_over(found, moment.now_ms)) {
        hold_unknown(decision, "E5", found, moment);
    } else {
        touch(decision, DECISION_IN_PROGRESS, "E4", found);
    }
}

static void claim(struct decision *decision, const struct record *found,
    const struct request *request, struct decide_moment moment)
{
    ASSERT(request->kind == REQUEST_CLAIM);
    ASSERT(found->kind != RECORD_OPERATION); /* callers hold these, and nobody claims them */
    if (found->status != RECORD_PENDING) {
        leave(decision, DECISION_WRONG_STATUS, "C5", found);
    } else if (moment.now_ms < found->due_ms) {
        leave(decision, DECISION_NOT_DUE, "C3", found);
    } else if (outdated(&found->source, moment)) {
        leave(decision, DECISION_STALE_VERSION, "C4", found);
    } else {
        (void)keep(decision, found);
        grant(decision, DECISION_CLAIMED, "C2", request, moment);
    }
}

/* ---- how a grant ends ---------------------------------------------------------------------- */

static bool same_outcome(const struct record *found, const struct request *request)
{
    const struct outcome *a = &found->outcome;
    const struct outcome *b = &request->outcome;
    return found->status == request->status && slice_equal(found->effect_id, request->effect_id) &&
           a->code == b->code && slice_equal(a->meta, b->meta) && a->body.bytes == b->body.bytes &&
           digest_equal(&a->body.digest, &b->body.digest);
}

static void settle(struct record *record, enum record_status status, const struct request *request,
    struct decide_moment moment)
{
    ASSERT(record_status_sealed(status));
    ASSERT(!record_sealed(record)); /* P3: seals are final */
    become(record, status);
    record->sealed_ms = moment.now_ms;
    if (request->policy.window_ms > 0) {
        record->window_ms = request->policy.window_ms;
    }
    /* The window counts from the seal, so that a long execution does not eat it (P8). */
    record->window_expires_ms = moment.now_ms + record->window_ms;
    record->effect_id = request->effect_id;
    record->outcome = request->outcome;
    record->reason = request->reason;
    if (record->kind != RECORD_OPERATION) {
        record->request.retained = false; /* R10: it was kept to be sent; the store erases it */
    }
    ASSERT(record_sealed(record)); /* R5 */
}

static void release(
    struct record *record, const struct request *request, struct decide_moment moment)
{
    ASSERT(record->kind == RECORD_OPERATION);
    ASSERT(!record_sealed(record)); /* P3 */
    become(record, RECORD_RELEASED);
    record->window_expires_ms = moment.now_ms + record->window_ms;
    record->reason = request->reason;
}

static void renew(struct record *record, const struct request *request, struct decide_moment moment)
{
    ASSERT(!record_sealed(record)); /* P3 */
    ASSERT(request->policy.lease_ms > 0);
    uint64_t holder = request->holder != 0 ? request->holder : record->holder;
    become(record, RECORD_IN_PROGRESS);
    record->lease_expires_ms = moment.now_ms + request->policy.lease_ms;
    record->holder = holder;
    record->reason = SLICE_EMPTY;
}

/* No attempt is left, or none could begin in time. */
static bool used_up(const struct record *record, const struct policy *policy, int64_t next_ms)
{
    return (policy->attempts_max > 0 && record->attempt >= policy->attempts_max) ||
           (policy->deadline_ms > 0 && next_ms - record->created_ms > policy->deadline_ms);
}

static void retry(struct decision *decision, const struct record *found,
    const struct request *request, struct decide_moment moment)
{
    ASSERT(!record_sealed(found)); /* P3 */
    struct record *next = keep(decision, found);
    if (used_up(found, &request->policy, due_of(request, moment))) {
        become(next, RECORD_DEAD);
        next->reason = request->reason;
        put(decision, DECISION_DONE, "T2", moment);
    } else {
        become_pending(next, request, moment);
        put(decision, DECISION_DONE, "T1", moment);
    }
}

static void give_up(struct decision *decision, const struct record *found,
    const struct request *request, struct decide_moment moment)
{
    int64_t next_ms = found->due_ms > moment.now_ms ? found->due_ms : moment.now_ms;
    if (!used_up(found, &request->policy, next_ms)) {
        leave(decision, DECISION_NOT_DUE, "T5", found);
        return;
    }
    struct record *next = keep(decision, found);
    become(next, RECORD_DEAD);
    next->reason = request->reason;
    put(decision, DECISION_DONE, "T4", moment);
}

static void unknown(struct decision *decision, const struct record *found,
    const struct request *request, struct decide_moment moment)
{
    ASSERT(found->status == RECORD_IN_PROGRESS || found->status == RECORD_UNKNOWN);
    if (found->status == RECORD_UNKNOWN) {
        repeat(decision, DECISION_UNKNOWN, "H5", found);
        return;
    }
    struct record *next = keep(decision, found);
    become_unknown(next, request->reason, moment);
    bool is_later = next->reconciles && due_of(request, moment) > moment.now_ms;
    next->due_ms = is_later ? due_of(request, moment) : next->due_ms;
    put(decision, DECISION_UNKNOWN, is_later ? "H7" : "H5", moment);
}

/* The holder has the current fence, and the record is in progress or unknown. */
static void holder_acts(struct decision *decision, const struct record *found,
    const struct request *request, struct decide_moment moment)
{
    ASSERT(request->fence == found->fence); /* P4 */
    ASSERT(found->status == RECORD_IN_PROGRESS || found->status == RECORD_UNKNOWN);
    switch (request->kind) {
    case REQUEST_SEAL:
        settle(keep(decision, found), request->status, request, moment);
        put(decision, DECISION_SEALED, "H5", moment);
        return;
    case REQUEST_RELEASE:
        release(keep(decision, found), request, moment);
        put(decision, DECISION_RELEASED, "H5", moment);
        return;
    case REQUEST_RENEW:
        renew(keep(decision, found), request, moment);
        put(decision, DECISION_RENEWED, "H5", moment);
        return;
    case REQUEST_WAIT:
        become_waiting(keep(decision, found), request, moment);
        put(decision, DECISION_DONE, "T3", moment);
        return;
    case REQUEST_UNKNOWN: unknown(decision, found, request, moment); return;
    case REQUEST_RETRY: retry(decision, found, request, moment); return;
    case REQUEST_GIVE_UP: give_up(decision, found, request, moment); return;
    case REQUEST_BEGIN:
    case REQUEST_RESOLVE:
    case REQUEST_LEASE_OVER:
    case REQUEST_HOLDER_GONE:
    case REQUEST_ENQUEUE:
    case REQUEST_CLAIM:
    case REQUEST_WAKE:
    case REQUEST_CANCEL:
    case REQUEST_TAKE_UP:
    case REQUEST_POSTPONE:
    case REQUEST_COMPENSATE:
    case REQUEST_COMPENSATION_SETTLE: break;
    }
    ASSERT(!"a holder's call");
}

/* The holder's earlier request of this kind gave the record its status. */
static bool is_repeat_of(enum request_kind request, enum record_status status)
{
    return (request == REQUEST_RETRY && (status == RECORD_PENDING || status == RECORD_DEAD)) ||
           (request == REQUEST_GIVE_UP && status == RECORD_DEAD) ||
           (request == REQUEST_WAIT && status == RECORD_WAITING);
}

static void holder(struct decision *decision, const struct record *found,
    const struct request *request, struct decide_moment moment)
{
    bool running = found->status == RECORD_IN_PROGRESS || found->status == RECORD_UNKNOWN;
    if (request->kind == REQUEST_GIVE_UP && found->status == RECORD_PENDING &&
        request->fence == 0) {
        give_up(decision, found, request, moment); /* nobody holds it */
    } else if (found->fence != request->fence || request->fence == 0) {
        leave(decision, DECISION_STALE_FENCE, "H2", found); /* P4 */
    } else if (record_sealed(found)) {
        if (request->kind == REQUEST_SEAL && same_outcome(found, request)) {
            repeat(decision, DECISION_SEALED, "H3", found); /* P3 */
        } else {
            leave(decision, DECISION_ALREADY_SEALED, "H3", found);
        }
    } else if (found->status == RECORD_RELEASED) {
        if (request->kind == REQUEST_RELEASE) {
            repeat(decision, DECISION_RELEASED, "H4", found);
        } else {
            leave(decision, DECISION_STALE_FENCE, "H4", found);
        }
    } else if (running) {
        holder_acts(decision, found, request, moment);
    } else if (is_repeat_of(request->kind, found->status)) {
        repeat(decision, DECISION_DONE, "H6", found);
    } else {
        leave(decision, DECISION_STALE_FENCE, "H6", found);
    }
}

/* ---- the operator, the reconciler, the janitor --------------------------------------------- */

/* Already settled: the same resolution is repeated, any other is too late. */
static void resolve_again(
    struct decision *decision, const char *rule, const struct record *found, bool same)
{
    if (same) {
        repeat(decision, DECISION_RESOLVED, rule, found);
    } else {
        leave(decision, DECISION_ALREADY_SEALED, rule, found);
    }
}

/* The caller knows about the attempt of that fence, not about a later one (P4). */
static bool other_attempt(const struct record *found, const struct request *request)
{
    return request->fence != 0 && request->fence != found->fence;
}

static void resolve_unknown(struct decision *decision, const struct record *found,
    const struct request *request, struct decide_moment moment)
{
    ASSERT(!record_sealed(found));                                               /* P3 */
    ASSERT(found->status == RECORD_UNKNOWN || lease_over(found, moment.now_ms)); /* P1 */
    struct record *next = keep(decision, found);
    if (request->status == RECORD_RELEASED) {
        release(next, request, moment);
    } else if (request->status == RECORD_PENDING) {
        become_pending(next, request, moment);
    } else {
        settle(next, request->status, request, moment);
    }
    put(decision, DECISION_RESOLVED, "N5", moment);
}

/* It was sealed, and its compensation is unknown: the sealed outcome stays (P3). */
static void resolve_compensation(struct decision *decision, const struct record *found,
    const struct request *request, struct decide_moment moment)
{
    if (request->status != RECORD_EXECUTED && request->status != RECORD_FAILED) {
        leave(decision, DECISION_ALREADY_SEALED, "N8", found);
        return;
    }
    ASSERT(record_sealed(found));
    struct record *next = keep(decision, found);
    become(next, request->status);
    next->window_expires_ms = moment.now_ms + next->window_ms;
    next->reason = request->reason;
    put(decision, DECISION_RESOLVED, "N8", moment);
}

static void resolve(struct decision *decision, const struct record *found,
    const struct request *request, struct decide_moment moment)
{
    ASSERT(request->kind == REQUEST_RESOLVE);
    if (other_attempt(found, request)) {
        leave(decision, DECISION_STALE_FENCE, "N6", found);
        return;
    }
    if (request->version != 0 && request->version != found->version) {
        leave(decision, DECISION_WRONG_STATUS, "N9", found);
        return;
    }
    switch (found->status) {
    case RECORD_EXECUTED:
    case RECORD_FAILED:
    case RECORD_REJECTED:
    case RECORD_COMPENSATED:
    case RECORD_COMPENSATING:
        resolve_again(decision, "N2", found, same_outcome(found, request));
        return;
    case RECORD_RELEASED:
        resolve_again(decision, "N3", found, request->status == RECORD_RELEASED);
        return;
    case RECORD_PENDING:
    case RECORD_WAITING:
    case RECORD_DEAD:
        if (found->status == RECORD_PENDING && request->status == RECORD_PENDING) {
            repeat(decision, DECISION_RESOLVED, "N7", found);
        } else {
            leave(decision, DECISION_WRONG_STATUS, "N7", found);
        }
        return;
    case RECORD_UNKNOWN:
        if (record_sealed(found)) {
            resolve_compensation(decision, found, request, moment);
            return;
        }
        break;
    case RECORD_IN_PROGRESS:
        if (!lease_over(found, moment.now_ms)) {
            leave(decision, DECISION_STILL_RUNNING, "N4", found);
            return;
        }
        break;
    }
    resolve_unknown(decision, found, request, moment);
}

static void lease_is_over(
    struct decision *decision, const struct record *found, struct decide_moment moment)
{
    if (!lease_over(found, moment.now_ms)) {
        leave(decision, DECISION_NOTHING, "J3", found);
        return;
    }
    become_unknown(keep(decision, found), SLICE_LIT("lease_expired"), moment);
    put(decision, DECISION_UNKNOWN, "J2", moment);
}

static void holder_is_gone(struct decision *decision, const struct record *found,
    const struct request *request, struct decide_moment moment)
{
    ASSERT(request->holder != 0);
    /* A grant of an outside caller has no holder, and only its lease ends it (R9). On a shared
     * store the grant that was meant may be over, and a living process may hold the next one. */
    if (found->holder == 0 || found->holder == request->holder || other_attempt(found, request)) {
        leave(decision, DECISION_NOTHING, "J5", found);
        return;
    }
    ASSERT(found->status == RECORD_IN_PROGRESS); /* R9: only that has a holder */
    become_unknown(keep(decision, found), SLICE_LIT("holder_gone"), moment);
    put(decision, DECISION_UNKNOWN, "J4", moment);
}

static void postpone(struct decision *decision, const struct record *found,
    const struct request *request, struct decide_moment moment)
{
    if (other_attempt(found, request)) {
        leave(decision, DECISION_STALE_FENCE, "Q2", found);
    } else if (found->status != RECORD_UNKNOWN) {
        leave(decision, DECISION_WRONG_STATUS, "Q4", found);
    } else {
        keep(decision, found)->due_ms = due_if_set(request, moment);
        put(decision, DECISION_DONE, "Q3", moment);
        decision->next.updated_ms = found->updated_ms; /* since when it is unknown */
    }
}

/* ---- waking, cancelling, retrying, compensating -------------------------------------------- */

static void wake(struct decision *decision, const struct record *found,
    const struct request *request, struct decide_moment moment)
{
    bool starts = request->status == RECORD_PENDING || request->status == RECORD_IN_PROGRESS;
    bool ran = request->status == RECORD_EXECUTED || request->status == RECORD_FAILED ||
               request->status == RECORD_WAITING;
    if (found->status != RECORD_WAITING) {
        leave(decision, DECISION_WRONG_STATUS, "W4", found);
    } else if (request->version != 0 && request->version != found->version) {
        leave(decision, DECISION_WRONG_STATUS, "W6", found);
    } else if (ran && found->attempt == 0) {
        leave(decision, DECISION_WRONG_STATUS, "W5", found); /* P6 */
    } else if (starts && found->due_ms != 0 && moment.now_ms >= found->due_ms) {
        leave(decision, DECISION_TOO_LATE, "W3", found);
    } else if (request->status == RECORD_IN_PROGRESS) {
        (void)keep(decision, found);
        grant(decision, DECISION_CLAIMED, "W2", request, moment);
    } else if (request->status == RECORD_PENDING) {
        become_pending(keep(decision, found), request, moment);
        put(decision, DECISION_DONE, "W2", moment);
    } else if (request->status == RECORD_WAITING) {
        become_waiting(keep(decision, found), request, moment);
        put(decision, DECISION_DONE, "W7", moment);
    } else {
        settle(keep(decision, found), request->status, request, moment);
        put(decision, DECISION_DONE, "W2", moment);
    }
}

static void cancel(struct decision *decision, const struct record *found,
    const struct request *request, struct decide_moment moment)
{
    bool has_effects =
        found->kind == RECORD_COMMAND && found->status == RECORD_WAITING && found->attempt != 0;
    bool has_changed = request->version != 0 && request->version != found->version;
    switch (found->status) {
    case RECORD_PENDING:
    case RECORD_WAITING:
    case RECORD_DEAD:
        if (has_effects || has_changed) {
            leave(decision, DECISION_WRONG_STATUS, has_effects ? "X5" : "X6", found); /* P5 */
            return;
        }
        settle(keep(decision, found), RECORD_REJECTED, request, moment);
        put(decision, DECISION_DONE, "X2", moment);
        return;
    case RECORD_REJECTED: repeat(decision, DECISION_DONE, "X3", found); return;
    case RECORD_IN_PROGRESS:
    case RECORD_UNKNOWN:
    case RECORD_RELEASED:
    case RECORD_EXECUTED:
    case RECORD_FAILED:
    case RECORD_COMPENSATED:
    case RECORD_COMPENSATING: break;
    }
    leave(decision, DECISION_WRONG_STATUS, "X4", found);
}

static void take_up(struct decision *decision, const struct record *found,
    const struct request *request, struct decide_moment moment)
{
    if (found->status != RECORD_DEAD && found->status != RECORD_PENDING) {
        leave(decision, DECISION_WRONG_STATUS, "U3", found);
        return;
    }
    if (request->version != 0 && request->version != found->version) {
        leave(decision, DECISION_WRONG_STATUS, "U4", found);
        return;
    }
    become_pending(keep(decision, found), request, moment);
    put(decision, DECISION_DONE, "U2", moment);
}

static void compensate(struct decision *decision, const struct record *found,
    const struct request *request, struct decide_moment moment)
{
    if (found->status == RECORD_COMPENSATING || found->status == RECORD_COMPENSATED) {
        repeat(decision, DECISION_DONE, "K3", found);
    } else if (!kind_may_compensate(found->kind, found->status)) {
        leave(decision, DECISION_WRONG_STATUS, "K4", found);
    } else {
        struct record *next = keep(decision, found);
        become(next, RECORD_COMPENSATING);
        ASSERT(record_sealed(next)); /* P3: the outcome stays */
        next->due_ms = due_if_set(request, moment);
        next->reason = request->reason;
        put(decision, DECISION_DONE, "K2", moment);
    }
}

static void compensation_settle(struct decision *decision, const struct record *found,
    const struct request *request, struct decide_moment moment)
{
    bool in_doubt = found->status == RECORD_UNKNOWN && record_sealed(found);
    if (found->status == request->status && (found->status == RECORD_COMPENSATED || in_doubt)) {
        repeat(decision, DECISION_DONE, "K7", found);
        return;
    }
    if (found->status != RECORD_COMPENSATING && !in_doubt) {
        leave(decision, DECISION_WRONG_STATUS, "K8", found);
        return;
    }
    struct record *next = keep(decision, found);
    become(next, request->status);
    next->reason = request->reason;
    if (request->status == RECORD_COMPENSATED) {
        next->window_expires_ms = moment.now_ms + next->window_ms;
    }
    put(decision, DECISION_DONE, request->status == RECORD_COMPENSATED ? "K5" : "K6", moment);
}

/* ---- dispatch ------------------------------------------------------------------------------ */

/* There is no such operation: for the janitor, nothing to do. */
static void absent(struct decision *decision, const struct request *request)
{
    static const char *const rules[REQUEST_KIND_END] = {
        [REQUEST_SEAL] = "H1",
        [REQUEST_RELEASE] = "H1",
        [REQUEST_UNKNOWN] = "H1",
        [REQUEST_RENEW] = "H1",
        [REQUEST_RETRY] = "H1",
        [REQUEST_GIVE_UP] = "H1",
        [REQUEST_WAIT] = "H1",
        [REQUEST_RESOLVE] = "N1",
        [REQUEST_LEASE_OVER] = "J1",
        [REQUEST_HOLDER_GONE] = "J1",
        [REQUEST_CLAIM] = "C1",
        [REQUEST_WAKE] = "W1",
        [REQUEST_CANCEL] = "X1",
        [REQUEST_TAKE_UP] = "U1",
        [REQUEST_POSTPONE] = "Q1",
        [REQUEST_COMPENSATE] = "K1",
        [REQUEST_COMPENSATION_SETTLE] = "K1",
    };
    bool janitor = request->kind == REQUEST_LEASE_OVER || request->kind == REQUEST_HOLDER_GONE;
    ASSERT(rules[request->kind] != NULL);
    leave(decision, janitor ? DECISION_NOTHING : DECISION_NOT_FOUND, rules[request->kind], NULL);
}

/* A request about the operation that was found. */
static void by_id(struct decision *decision, const struct record *found,
    const struct request *request, struct decide_moment moment)
{
    ASSERT(op_id_equal(&found->operation_id, &request->operation_id));
    ASSERT(!record_window_over(found, moment.now_ms)); /* P8: that is the same as absent */
    switch (request->kind) {
    case REQUEST_SEAL:
    case REQUEST_RELEASE:
    case REQUEST_UNKNOWN:
    case REQUEST_RENEW:
    case REQUEST_RETRY:
    case REQUEST_GIVE_UP:
    case REQUEST_WAIT: holder(decision, found, request, moment); break;
    case REQUEST_RESOLVE: resolve(decision, found, request, moment); break;
    case REQUEST_LEASE_OVER: lease_is_over(decision, found, moment); break;
    case REQUEST_HOLDER_GONE: holder_is_gone(decision, found, request, moment); break;
    case REQUEST_CLAIM: claim(decision, found, request, moment); break;
    case REQUEST_WAKE: wake(decision, found, request, moment); break;
    case REQUEST_CANCEL: cancel(decision, found, request, moment); break;
    case REQUEST_TAKE_UP: take_up(decision, found, request, moment); break;
    case REQUEST_POSTPONE: postpone(decision, found, request, moment); break;
    case REQUEST_COMPENSATE: compensate(decision, found, request, moment); break;
    case REQUEST_COMPENSATION_SETTLE: compensation_settle(decision, found, request, moment); break;
    case REQUEST_BEGIN:
    case REQUEST_ENQUEUE: ASSERT(!"a request by id");
    }
    if (decision->change == CHANGE_PUT && request->detail.len > 0) {
        decision->next.detail = request->detail;
    }
    if (decision->change == CHANGE_PUT && request->kind == REQUEST_WAKE &&
        request->request.bytes > 0) {
        decision->next.request = request->request; /* it was made without its body */
    }
    if (decision->change == CHANGE_PUT && lane_joins(request)) {
        decision->next.source = request->source;
    }
}

/* A1: the kind does not take the request, or does not have the status asked for. The status of a
 * seal is the caller's choice, which request_check has checked. */
static bool applies(const struct record *found, const struct request *request)
{
    bool names_status = request->kind == REQUEST_RESOLVE || request->kind == REQUEST_WAKE;
    return kind_takes(found->kind, request->kind) &&
           (!names_status || kind_has_status(found->kind, request->status));
}

/* Invariants of every decision, whatever rule made it. */
static void decision_check(
    const struct record *found, const struct decision *decision, struct decide_moment moment)
{
    const struct record *next = &decision->next;
    bool grants = decision->kind == DECISION_FIRST_SEEN || decision->kind == DECISION_CLAIMED;
    bool put = decision->change == CHANGE_PUT;
    uint64_t version = found == NULL ? 0 : found->version;
    ASSERT(decision->rule != NULL);                                               /* P10 */
    ASSERT(next->version == version + put || (!put && next->version == 0));       /* S3 */
    ASSERT(!grants || (put && next->status == RECORD_IN_PROGRESS));               /* P1 */
    ASSERT(!grants || next->fence == moment.fence_next);                          /* P4 */
    ASSERT(grants || !put || next->fence <= (found == NULL ? 0 : found->fence));  /* P4 */
    ASSERT(decision->kind != DECISION_DUPLICATE_REPLAYED || record_sealed(next)); /* P3 */
    ASSERT(decision->kind != DECISION_CONFLICT_REJECTED || !put);                 /* P7 */
    ASSERT(!decision->repeated || decision->change == CHANGE_NONE);
}

void decide_into(const struct record *found, const struct request *request,
    struct decide_moment moment, struct decision *ret_decision)
{
    ASSERT(found != &ret_decision->next);
    if (found != NULL) {
        record_check(found);
    }
    if (request_by_key(request->kind)) {
        ASSERT(kind_takes(request_record_kind(request), request->kind));
        ASSERT(found == NULL || found->kind == request_record_kind(request));
        if (request->kind == REQUEST_BEGIN) {
            begin(ret_decision, found, request, moment);
        } else {
            enqueue(ret_decision, found, request, moment);
        }
    } else if (found == NULL || !op_id_equal(&found->operation_id, &request->operation_id) ||
               record_window_over(found, moment.now_ms)) {
        absent(ret_decision, request);
    } else if (!applies(found, request)) {
        leave(ret_decision, DECISION_WRONG_STATUS, "A1", found);
    } else {
        by_id(ret_decision, found, request, moment);
    }
    decision_check(found, ret_decision, moment);
}

struct decision decide(
    const struct record *found, const struct request *request, struct decide_moment moment)
{
    struct decision decision;
    decide_into(found, request, moment, &decision);
    return decision;
}

bool decision_took_fence(const struct decision *decision)
{
    return decision->kind == DECISION_FIRST_SEEN || decision->kind == DECISION_CLAIMED ||
           decision->kind == DECISION_ENQUEUED;
}

const char *decision_name(enum decision_kind kind)
{
    switch (kind) {
    case DECISION_FIRST_SEEN: return "first_seen";
    case DECISION_DUPLICATE_REPLAYED: return "duplicate_replayed";
    case DECISION_IN_PROGRESS: return "in_progress";
    case DECISION_CONFLICT_REJECTED: return "conflict_rejected";
    case DECISION_HELD_UNKNOWN: return "held_unknown";
    case DECISION_SEALED: return "sealed";
    case DECISION_RELEASED: return "released";
    case DECISION_UNKNOWN: return "unknown";
    case DECISION_RENEWED: return "renewed";
    case DECISION_RESOLVED: return "resolved";
    case DECISION_NOT_FOUND: return "not_found";
    case DECISION_STALE_FENCE: return "stale_fence";
    case DECISION_ALREADY_SEALED: return "already_sealed";
    case DECISION_STILL_RUNNING: return "still_running";
    case DECISION_STALE_VERSION: return "stale_version";
    case DECISION_NOTHING: return "nothing";
    case DECISION_ENQUEUED: return "enqueued";
    case DECISION_CLAIMED: return "claimed";
    case DECISION_DONE: return "done";
    case DECISION_NOT_DUE: return "not_due";
    case DECISION_TOO_LATE: return "too_late";
    case DECISION_WRONG_STATUS: return "wrong_status";
    }
    return "unnamed";
}

bool decide_lease_over(const struct record *found, int64_t now_ms, struct record *ret_next)
{
    if (!lease_over(found, now_ms)) {
        return false;
    }
    *ret_next = *found;
    ret_next->updated_ms = found->lease_expires_ms;
    become_unknown(ret_next, SLICE_LIT("lease_expired"),
        (struct decide_moment){.now_ms = found->lease_expires_ms});
    return true;
}
