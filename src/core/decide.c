#include "core/decide.h"

#include "base/check.h"
#include "base/limits.h"
#include "base/text.h"

const struct policy policy_default = {
    .window_ms = LIMIT_WINDOW_MS_DEFAULT,
    .lease_ms = LIMIT_LEASE_MS_DEFAULT,
    .on_unknown = ON_UNKNOWN_HOLD,
};

/* A decision that leaves the record as it is. */
static struct decision leave(enum decision_kind kind, const char *rule, const struct record *found)
{
    struct decision decision = {.kind = kind, .change = CHANGE_NONE, .rule = rule};
    if (found != NULL) {
        decision.next = *found;
    }
    return decision;
}

/* A decision that counts one more duplicate. */
static struct decision touch(enum decision_kind kind, const char *rule, const struct record *found)
{
    struct decision decision = leave(kind, rule, found);
    decision.change = CHANGE_TOUCH;
    if (decision.next.duplicates < UINT32_MAX) {
        decision.next.duplicates++;
    }
    return decision;
}

/* A decision that makes the record `next`. The only way a record ever changes. */
static struct decision put(
    enum decision_kind kind, const char *rule, struct record next, struct decide_moment moment)
{
    struct decision decision = {.kind = kind, .change = CHANGE_PUT, .rule = rule, .next = next};
    decision.next.version++;
    decision.next.updated_ms = moment.now_ms;
    record_check(&decision.next);
    return decision;
}

static struct decision repeat(enum decision_kind kind, const char *rule, const struct record *found)
{
    struct decision decision = leave(kind, rule, found);
    decision.repeated = true;
    return decision;
}

static bool lease_over(const struct record *record, int64_t now_ms)
{
    return record->status == RECORD_IN_PROGRESS && now_ms >= record->lease_expires_ms;
}

static struct record become_unknown(struct record record, struct slice reason)
{
    record.status = RECORD_UNKNOWN;
    record.lease_expires_ms = 0;
    record.reason = reason;
    return record;
}

/* Give the right to execute. The fence is new every time (P4); what an earlier attempt left behind
 * goes, so that nothing of it can be replayed. */
static struct decision grant(const char *rule, struct record record, const struct request *request,
    struct decide_moment moment)
{
    ASSERT(moment.fence_next > record.fence); /* P4 */
    ASSERT(request->policy.lease_ms > 0 && request->policy.window_ms > 0);
    record.status = RECORD_IN_PROGRESS;
    record.fence = moment.fence_next;
    record.attempt += record.attempt < UINT32_MAX;
    record.lease_expires_ms = moment.now_ms + request->policy.lease_ms;
    record.window_ms = request->policy.window_ms;
    record.window_expires_ms = 0;
    record.sealed_ms = 0;
    record.effect_id = SLICE_EMPTY;
    record.outcome = (struct outcome){0};
    record.reason = SLICE_EMPTY;
    return put(DECISION_FIRST_SEEN, rule, record, moment);
}

static struct decision grant_new(
    const struct record *expired, const struct request *request, struct decide_moment moment)
{
    struct record record = {
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
    return grant("B1", record, request, moment);
}

static struct decision begin_unknown(
    const struct record *found, const struct request *request, struct decide_moment moment)
{
    switch (request->policy.on_unknown) {
    case ON_UNKNOWN_TAKEOVER: return grant("B4", *found, request, moment);
    case ON_UNKNOWN_HOLD:
    case ON_UNKNOWN_RECONCILE: break;
    }
    if (found->status == RECORD_UNKNOWN) {
        return touch(DECISION_HELD_UNKNOWN, "B5", found);
    }
    struct record next = become_unknown(*found, SLICE_LIT("lease_expired"));
    next.duplicates += next.duplicates < UINT32_MAX;
    return put(DECISION_HELD_UNKNOWN, "B5", next, moment);
}

static struct decision begin(
    const struct record *found, const struct request *request, struct decide_moment moment)
{
    if (found == NULL || record_window_over(found, moment.now_ms)) {
        return grant_new(found, request, moment);
    }
    /* P7: before in_progress and before replay, so that a wrong payload learns nothing. */
    if (found->fingerprint_version != request->fingerprint_version ||
        !digest_equal(&found->fingerprint, &request->fingerprint)) {
        return touch(DECISION_CONFLICT_REJECTED, "B2", found);
    }
    bool again = false;
    switch (found->status) {
    case RECORD_IN_PROGRESS:
        return lease_over(found, moment.now_ms) ? begin_unknown(found, request, moment)
                                                : touch(DECISION_IN_PROGRESS, "B3", found);
    case RECORD_UNKNOWN: return begin_unknown(found, request, moment);
    case RECORD_RELEASED: return grant("B6", *found, request, moment);
    case RECORD_FAILED: again = request->policy.retry_failed; break;
    case RECORD_REJECTED: again = request->policy.retry_rejected; break;
    case RECORD_EXECUTED:
    case RECORD_COMPENSATED: break;
    }
    return again ? grant("B7", *found, request, moment)
                 : touch(DECISION_DUPLICATE_REPLAYED, "B8", found);
}

static bool same_outcome(const struct record *found, const struct request *request)
{
    const struct outcome *a = &found->outcome;
    const struct outcome *b = &request->outcome;
    return found->status == request->status && slice_equal(found->effect_id, request->effect_id) &&
           a->code == b->code && slice_equal(a->meta, b->meta) && a->body.bytes == b->body.bytes &&
           digest_equal(&a->body.digest, &b->body.digest);
}

static struct record settle(
    struct record record, const struct request *request, struct decide_moment moment)
{
    record.status = request->status;
    record.lease_expires_ms = 0;
    record.sealed_ms = moment.now_ms;
    if (request->policy.window_ms > 0) {
        record.window_ms = request->policy.window_ms;
    }
    /* The window counts from the seal, so that a long execution does not eat it (P8). */
    record.window_expires_ms = moment.now_ms + record.window_ms;
    record.effect_id = request->effect_id;
    record.outcome = request->outcome;
    record.reason = request->reason;
    return record;
}

static struct record release(
    struct record record, const struct request *request, struct decide_moment moment)
{
    record.status = RECORD_RELEASED;
    record.lease_expires_ms = 0;
    record.window_expires_ms = moment.now_ms + record.window_ms;
    record.reason = request->reason;
    return record;
}

static struct decision renew(
    const struct record *found, const struct request *request, struct decide_moment moment)
{
    ASSERT(request->policy.lease_ms > 0);
    struct record next = *found;
    next.status = RECORD_IN_PROGRESS;
    next.lease_expires_ms = moment.now_ms + request->policy.lease_ms;
    next.reason = SLICE_EMPTY;
    return put(DECISION_RENEWED, "H5", next, moment);
}

/* The holder has the current fence, and the record is in progress or unknown. */
static struct decision holder_acts(
    const struct record *found, const struct request *request, struct decide_moment moment)
{
    switch (request->kind) {
    case REQUEST_SEAL: return put(DECISION_SEALED, "H5", settle(*found, request, moment), moment);
    case REQUEST_RELEASE:
        return put(DECISION_RELEASED, "H5", release(*found, request, moment), moment);
    case REQUEST_RENEW: return renew(found, request, moment);
    case REQUEST_UNKNOWN:
        if (found->status == RECORD_UNKNOWN) {
            return repeat(DECISION_UNKNOWN, "H5", found);
        }
        return put(DECISION_UNKNOWN, "H5", become_unknown(*found, request->reason), moment);
    case REQUEST_BEGIN:
    case REQUEST_RESOLVE:
    case REQUEST_LEASE_OVER: break;
    }
    ASSERT(!"a holder's call");
    return leave(DECISION_NOTHING, "H5", found);
}

static struct decision holder(
    const struct record *found, const struct request *request, struct decide_moment moment)
{
    if (found->fence != request->fence) {
        return leave(DECISION_STALE_FENCE, "H2", found); /* P4 */
    }
    if (record_status_sealed(found->status)) {
        if (request->kind == REQUEST_SEAL && same_outcome(found, request)) {
            return repeat(DECISION_SEALED, "H3", found); /* P3 */
        }
        return leave(DECISION_ALREADY_SEALED, "H3", found);
    }
    if (found->status == RECORD_RELEASED) {
        return request->kind == REQUEST_RELEASE ? repeat(DECISION_RELEASED, "H4", found)
                                                : leave(DECISION_STALE_FENCE, "H4", found);
    }
    return holder_acts(found, request, moment);
}

static struct decision resolve(
    const struct record *found, const struct request *request, struct decide_moment moment)
{
    /* Whoever looked it up knows about the attempt of that fence, and about no later one (P4). */
    if (request->fence != 0 && request->fence != found->fence) {
        return leave(DECISION_STALE_FENCE, "N6", found);
    }
    if (record_status_sealed(found->status)) {
        return same_outcome(found, request) ? repeat(DECISION_RESOLVED, "N2", found)
                                            : leave(DECISION_ALREADY_SEALED, "N2", found);
    }
    if (found->status == RECORD_RELEASED) {
        return request->status == RECORD_RELEASED ? repeat(DECISION_RESOLVED, "N3", found)
                                                  : leave(DECISION_ALREADY_SEALED, "N3", found);
    }
    if (found->status == RECORD_IN_PROGRESS && !lease_over(found, moment.now_ms)) {
        return leave(DECISION_STILL_RUNNING, "N4", found);
    }
    struct record next = request->status == RECORD_RELEASED ? release(*found, request, moment)
                                                            : settle(*found, request, moment);
    return put(DECISION_RESOLVED, "N5", next, moment);
}

static struct decision janitor(const struct record *found, struct decide_moment moment)
{
    if (!lease_over(found, moment.now_ms)) {
        return leave(DECISION_NOTHING, "J3", found);
    }
    struct record next = become_unknown(*found, SLICE_LIT("lease_expired"));
    return put(DECISION_UNKNOWN, "J2", next, moment);
}

struct decision decide(
    const struct record *found, const struct request *request, struct decide_moment moment)
{
    if (found != NULL) {
        record_check(found);
    }
    if (request->kind == REQUEST_BEGIN) {
        return begin(found, request, moment);
    }
    if (found == NULL || !op_id_equal(&found->operation_id, &request->operation_id) ||
        record_window_over(found, moment.now_ms)) {
        const char *rule = request->kind == REQUEST_RESOLVE      ? "N1"
                           : request->kind == REQUEST_LEASE_OVER ? "J1"
                                                                 : "H1";
        return leave(request->kind == REQUEST_LEASE_OVER ? DECISION_NOTHING : DECISION_NOT_FOUND,
            rule, NULL);
    }
    if (request->kind == REQUEST_RESOLVE) {
        return resolve(found, request, moment);
    }
    return request->kind == REQUEST_LEASE_OVER ? janitor(found, moment)
                                               : holder(found, request, moment);
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
