#include "core/decide.h"

#include "base/check.h"
#include "base/limits.h"
#include "base/text.h"
#include "core/source.h"

const struct policy policy_default = {
    .window_ms = LIMIT_WINDOW_MS_DEFAULT,
    .lease_ms = LIMIT_LEASE_MS_DEFAULT,
    .on_unknown = ON_UNKNOWN_HOLD,
};

/* All of these fill in a decision where it is to stay, because a record is half a kilobyte and
 * handing it on by value copied it four times. First comes the record as it was (keep), then what
 * changes, then how the decision is called (leave, touch, put, repeat). */

/* The record as it was found, to start from. */
static struct record *keep(struct decision *decision, const struct record *found)
{
    decision->next = *found;
    return &decision->next;
}

/* A decision that leaves the record as it is. */
static void leave(struct decision *decision, enum decision_kind kind, const char *rule,
    const struct record *found)
{
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
    leave(decision, kind, rule, found);
    decision->change = CHANGE_TOUCH;
    if (decision->next.duplicates < UINT32_MAX) {
        decision->next.duplicates++;
    }
}

/* A decision that makes the record what decision->next is by now. The only way a record ever
 * changes. */
static void put(struct decision *decision, enum decision_kind kind, const char *rule,
    struct decide_moment moment)
{
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
    leave(decision, kind, rule, found);
    decision->repeated = true;
}

static bool lease_over(const struct record *record, int64_t now_ms)
{
    return record->status == RECORD_IN_PROGRESS && now_ms >= record->lease_expires_ms;
}

static void become_unknown(struct record *record, struct slice reason)
{
    record->status = RECORD_UNKNOWN;
    record->lease_expires_ms = 0;
    record->reason = reason;
}

/* B9: something newer of the same source has taken effect, so this must not any more (OPS-7). */
static bool outdated(const struct request *request, struct decide_moment moment)
{
    return source_ordered(&request->source) && moment.version_sealed.len > 0 &&
           version_older(request->source.version, moment.version_sealed);
}

/* Give the right to execute. The fence is new every time (P4); what an earlier attempt left behind
 * goes, so that nothing of it can be replayed. */
static void grant(struct decision *decision, const char *rule, const struct request *request,
    struct decide_moment moment)
{
    struct record *record = &decision->next;
    ASSERT(moment.fence_next > record->fence); /* P4 */
    ASSERT(request->policy.lease_ms > 0 && request->policy.window_ms > 0);
    record->status = RECORD_IN_PROGRESS;
    record->fence = moment.fence_next;
    record->attempt += record->attempt < UINT32_MAX;
    record->lease_expires_ms = moment.now_ms + request->policy.lease_ms;
    record->window_ms = request->policy.window_ms;
    record->window_expires_ms = 0;
    record->sealed_ms = 0;
    record->effect_id = SLICE_EMPTY;
    record->outcome = (struct outcome){0};
    record->reason = SLICE_EMPTY;
    /* What is about to take effect is this version: its seal is what will be remembered. */
    if (source_ordered(&request->source)) {
        record->source = request->source;
    }
    put(decision, DECISION_FIRST_SEEN, rule, moment);
}

static void grant_again(struct decision *decision, const char *rule, const struct record *found,
    const struct request *request, struct decide_moment moment)
{
    if (outdated(request, moment)) {
        leave(decision, DECISION_STALE_VERSION, "B9", found);
        return;
    }
    (void)keep(decision, found);
    grant(decision, rule, request, moment);
}

static void grant_new(struct decision *decision, const struct record *expired,
    const struct request *request, struct decide_moment moment)
{
    if (outdated(request, moment)) {
        leave(decision, DECISION_STALE_VERSION, "B9", NULL);
        return;
    }
    decision->next = (struct record){
        .key = request->key,
        .kind = RECORD_OPERATION,
        /* The version goes on from the expired record, so that a compare-and-set against it sees
         * the change. */
        .version = expired == NULL ? 0 : expired->version,
        .operation_id = op_id_make(moment.now_ms, &request->key.hash, moment.fence_next),
        .fingerprint = request->fingerprint,
        .fingerprint_version = request->fingerprint_version,
        .created_ms = moment.now_ms,
        .request = request->request,
        .source = request->source,
        .trace = request->trace,
    };
    grant(decision, "B1", request, moment);
}

static void begin_unknown(struct decision *decision, const struct record *found,
    const struct request *request, struct decide_moment moment)
{
    switch (request->policy.on_unknown) {
    case ON_UNKNOWN_TAKEOVER: grant_again(decision, "B4", found, request, moment); return;
    case ON_UNKNOWN_HOLD:
    case ON_UNKNOWN_RECONCILE: break;
    }
    if (found->status == RECORD_UNKNOWN) {
        touch(decision, DECISION_HELD_UNKNOWN, "B5", found);
        return;
    }
    struct record *next = keep(decision, found);
    become_unknown(next, SLICE_LIT("lease_expired"));
    next->duplicates += next->duplicates < UINT32_MAX;
    put(decision, DECISION_HELD_UNKNOWN, "B5", moment);
}

static void begin(struct decision *decision, const struct record *found,
    const struct request *request, struct decide_moment moment)
{
    if (found == NULL || record_window_over(found, moment.now_ms)) {
        grant_new(decision, found, request, moment);
        return;
    }
    /* P7: before in_progress and before replay, so that a wrong payload learns nothing. */
    if (found->fingerprint_version != request->fingerprint_version ||
        !digest_equal(&found->fingerprint, &request->fingerprint)) {
        touch(decision, DECISION_CONFLICT_REJECTED, "B2", found);
        return;
    }
    bool again = false;
    switch (found->status) {
    case RECORD_IN_PROGRESS:
        if (lease_over(found, moment.now_ms)) {
            begin_unknown(decision, found, request, moment);
        } else {
            touch(decision, DECISION_IN_PROGRESS, "B3", found);
        }
        return;
    case RECORD_UNKNOWN: begin_unknown(decision, found, request, moment); return;
    case RECORD_RELEASED: grant_again(decision, "B6", found, request, moment); return;
    case RECORD_FAILED: again = request->policy.retry_failed; break;
    case RECORD_REJECTED: again = request->policy.retry_rejected; break;
    case RECORD_EXECUTED:
    case RECORD_COMPENSATED: break;
    }
    if (again) {
        grant_again(decision, "B7", found, request, moment);
    } else {
        touch(decision, DECISION_DUPLICATE_REPLAYED, "B8", found);
    }
}

static bool same_outcome(const struct record *found, const struct request *request)
{
    const struct outcome *a = &found->outcome;
    const struct outcome *b = &request->outcome;
    return found->status == request->status && slice_equal(found->effect_id, request->effect_id) &&
           a->code == b->code && slice_equal(a->meta, b->meta) && a->body.bytes == b->body.bytes &&
           digest_equal(&a->body.digest, &b->body.digest);
}

static void settle(
    struct record *record, const struct request *request, struct decide_moment moment)
{
    record->status = request->status;
    record->lease_expires_ms = 0;
    record->sealed_ms = moment.now_ms;
    if (request->policy.window_ms > 0) {
        record->window_ms = request->policy.window_ms;
    }
    /* The window counts from the seal, so that a long execution does not eat it (P8). */
    record->window_expires_ms = moment.now_ms + record->window_ms;
    record->effect_id = request->effect_id;
    record->outcome = request->outcome;
    record->reason = request->reason;
}

static void release(
    struct record *record, const struct request *request, struct decide_moment moment)
{
    record->status = RECORD_RELEASED;
    record->lease_expires_ms = 0;
    record->window_expires_ms = moment.now_ms + record->window_ms;
    record->reason = request->reason;
}

static void renew(struct record *record, const struct request *request, struct decide_moment moment)
{
    ASSERT(request->policy.lease_ms > 0);
    record->status = RECORD_IN_PROGRESS;
    record->lease_expires_ms = moment.now_ms + request->policy.lease_ms;
    record->reason = SLICE_EMPTY;
}

/* The holder has the current fence, and the record is in progress or unknown. */
static void holder_acts(struct decision *decision, const struct record *found,
    const struct request *request, struct decide_moment moment)
{
    struct record *next = keep(decision, found);
    switch (request->kind) {
    case REQUEST_SEAL:
        settle(next, request, moment);
        put(decision, DECISION_SEALED, "H5", moment);
        return;
    case REQUEST_RELEASE:
        release(next, request, moment);
        put(decision, DECISION_RELEASED, "H5", moment);
        return;
    case REQUEST_RENEW:
        renew(next, request, moment);
        put(decision, DECISION_RENEWED, "H5", moment);
        return;
    case REQUEST_UNKNOWN:
        if (found->status == RECORD_UNKNOWN) {
            repeat(decision, DECISION_UNKNOWN, "H5", found);
            return;
        }
        become_unknown(next, request->reason);
        put(decision, DECISION_UNKNOWN, "H5", moment);
        return;
    case REQUEST_BEGIN:
    case REQUEST_RESOLVE:
    case REQUEST_LEASE_OVER: break;
    }
    ASSERT(!"a holder's call");
}

static void holder(struct decision *decision, const struct record *found,
    const struct request *request, struct decide_moment moment)
{
    if (found->fence != request->fence) {
        leave(decision, DECISION_STALE_FENCE, "H2", found); /* P4 */
    } else if (record_status_sealed(found->status)) {
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
    } else {
        holder_acts(decision, found, request, moment);
    }
}

/* Settled already: the same again is repeated, anything else comes too late. */
static void resolve_again(
    struct decision *decision, const char *rule, const struct record *found, bool same)
{
    if (same) {
        repeat(decision, DECISION_RESOLVED, rule, found);
    } else {
        leave(decision, DECISION_ALREADY_SEALED, rule, found);
    }
}

static void resolve(struct decision *decision, const struct record *found,
    const struct request *request, struct decide_moment moment)
{
    /* Whoever looked it up knows about the attempt of that fence, and about no later one (P4). */
    if (request->fence != 0 && request->fence != found->fence) {
        leave(decision, DECISION_STALE_FENCE, "N6", found);
        return;
    }
    if (record_status_sealed(found->status)) {
        resolve_again(decision, "N2", found, same_outcome(found, request));
        return;
    }
    if (found->status == RECORD_RELEASED) {
        resolve_again(decision, "N3", found, request->status == RECORD_RELEASED);
        return;
    }
    if (found->status == RECORD_IN_PROGRESS && !lease_over(found, moment.now_ms)) {
        leave(decision, DECISION_STILL_RUNNING, "N4", found);
        return;
    }
    struct record *next = keep(decision, found);
    if (request->status == RECORD_RELEASED) {
        release(next, request, moment);
    } else {
        settle(next, request, moment);
    }
    put(decision, DECISION_RESOLVED, "N5", moment);
}

static void janitor(
    struct decision *decision, const struct record *found, struct decide_moment moment)
{
    if (!lease_over(found, moment.now_ms)) {
        leave(decision, DECISION_NOTHING, "J3", found);
        return;
    }
    become_unknown(keep(decision, found), SLICE_LIT("lease_expired"));
    put(decision, DECISION_UNKNOWN, "J2", moment);
}

/* There is no operation of that name: to the janitor that means nothing to do. */
static void absent(struct decision *decision, const struct request *request)
{
    if (request->kind == REQUEST_LEASE_OVER) {
        leave(decision, DECISION_NOTHING, "J1", NULL);
    } else {
        leave(decision, DECISION_NOT_FOUND, request->kind == REQUEST_RESOLVE ? "N1" : "H1", NULL);
    }
}

void decide_into(const struct record *found, const struct request *request,
    struct decide_moment moment, struct decision *ret_decision)
{
    ASSERT(found != &ret_decision->next);
    if (found != NULL) {
        record_check(found);
    }
    if (request->kind == REQUEST_BEGIN) {
        begin(ret_decision, found, request, moment);
    } else if (found == NULL || !op_id_equal(&found->operation_id, &request->operation_id) ||
               record_window_over(found, moment.now_ms)) {
        absent(ret_decision, request);
    } else if (request->kind == REQUEST_RESOLVE) {
        resolve(ret_decision, found, request, moment);
    } else if (request->kind == REQUEST_LEASE_OVER) {
        janitor(ret_decision, found, moment);
    } else {
        holder(ret_decision, found, request, moment);
    }
}

struct decision decide(
    const struct record *found, const struct request *request, struct decide_moment moment)
{
    struct decision decision;
    decide_into(found, request, moment, &decision);
    return decision;
}

static enum status check_text(
    const char *name, struct slice text, size_t bytes_max, struct err *err)
{
    if (text.len > bytes_max) {
        return err_set(err, E_INVALID, "%s is %zu bytes long, more than %s_bytes_max (%zu)", name,
            text.len, name, bytes_max);
    }
    if (!text_utf8(text)) {
        return err_set(err, E_INVALID, "%s is not valid UTF-8", name);
    }
    return OK;
}

static enum status check_span(
    const char *name, int64_t value, int64_t min, int64_t max, struct err *err)
{
    if (value < min || value > max) {
        return err_set(err, E_INVALID, "%s is %lldms, outside of %lldms to %lldms", name,
            (long long)value, (long long)min, (long long)max);
    }
    return OK;
}

/* What the request became must fit what asks: only a resolve can say "not executed". */
static enum status check_settled(const struct request *request, struct err *err)
{
    switch (request->status) {
    case RECORD_EXECUTED:
    case RECORD_FAILED: return OK;
    case RECORD_REJECTED:
        if (request->kind == REQUEST_SEAL) {
            return OK;
        }
        break;
    case RECORD_RELEASED:
        if (request->kind == REQUEST_RESOLVE) {
            return OK;
        }
        break;
    case RECORD_IN_PROGRESS:
    case RECORD_UNKNOWN:
    case RECORD_COMPENSATED: break;
    }
    return err_set(
        err, E_INVALID, "status is not one that a %s can give", request_kind_name(request->kind));
}

static enum status check_spans(const struct request *request, struct err *err)
{
    const struct policy *policy = &request->policy;
    enum status status = OK;
    if (request->kind == REQUEST_BEGIN || request->kind == REQUEST_RENEW) {
        status = check_span("lease", policy->lease_ms, LIMIT_LEASE_MS_MIN, LIMIT_LEASE_MS_MAX, err);
    }
    if (status == OK && (request->kind == REQUEST_BEGIN || policy->window_ms != 0)) {
        status = check_span("ttl", policy->window_ms, 1, LIMIT_WINDOW_MS_MAX, err);
    }
    return status;
}

enum status request_check(const struct request *request, struct err *err)
{
    const struct {
        const char *name;
        struct slice text;
        size_t bytes_max;
    } texts[] = {
        {"effect_id", request->effect_id, LIMIT_EFFECT_ID_BYTES_MAX},
        {"source_type", request->source.type, LIMIT_SOURCE_BYTES_MAX},
        {"source_id", request->source.id, LIMIT_SOURCE_BYTES_MAX},
        {"source_version", request->source.version, LIMIT_SOURCE_BYTES_MAX},
        {"trace", request->trace, LIMIT_TRACE_BYTES_MAX},
        {"actor", request->actor, LIMIT_PRINCIPAL_BYTES_MAX},
        {"reason", request->reason, LIMIT_REASON_BYTES_MAX},
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        enum status status = check_text(texts[i].name, texts[i].text, texts[i].bytes_max, err);
        if (status != OK) {
            return status;
        }
    }
    if (request->outcome.meta.len > LIMIT_OUTCOME_META_BYTES_MAX) {
        return err_set(err, E_INVALID,
            "outcome meta is %zu bytes long, more than outcome_meta_bytes_max (%d)",
            request->outcome.meta.len, LIMIT_OUTCOME_META_BYTES_MAX);
    }
    enum status status = check_spans(request, err);
    if (status == OK && (request->kind == REQUEST_SEAL || request->kind == REQUEST_RESOLVE)) {
        status = check_settled(request, err);
    }
    return status;
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
    }
    return "unnamed";
}

const char *request_kind_name(enum request_kind kind)
{
    switch (kind) {
    case REQUEST_BEGIN: return "begin";
    case REQUEST_SEAL: return "seal";
    case REQUEST_RELEASE: return "release";
    case REQUEST_UNKNOWN: return "unknown";
    case REQUEST_RENEW: return "renew";
    case REQUEST_RESOLVE: return "resolve";
    case REQUEST_LEASE_OVER: return "lease_over";
    }
    return "unnamed";
}

const char *on_unknown_name(enum on_unknown on_unknown)
{
    switch (on_unknown) {
    case ON_UNKNOWN_HOLD: return "hold";
    case ON_UNKNOWN_TAKEOVER: return "takeover";
    case ON_UNKNOWN_RECONCILE: return "reconcile";
    }
    return "unnamed";
}
