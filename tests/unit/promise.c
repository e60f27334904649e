#include "promise.h"

#include "model.h"

/* OPS-7, P4: what must hold of every grant, and of what is to be granted later. */
static const char *broken_grant(const struct record *found, const struct request *request,
    struct decide_moment moment, const struct decision *said)
{
    const struct record *next = &said->next;
    bool by_key = request_by_key(request->kind);
    const struct source *source = by_key || found == NULL ? &request->source : &found->source;
    if (said->kind == DECISION_CLAIMED && found == NULL) {
        return "P6: a claim is of something";
    }
    if (request->kind != REQUEST_WAKE && slice_is(source->version, "9") &&
        slice_is(moment.version_sealed, "10")) {
        return "OPS-7: what is older than the last sealed version is not granted";
    }
    if (said->kind == DECISION_ENQUEUED) {
        bool fresh = found == NULL || !op_id_equal(&found->operation_id, &next->operation_id);
        bool kept = fresh ? next->fence == 0 : next->fence == found->fence;
        return kept && next->status != RECORD_IN_PROGRESS ? NULL : "P6: an enqueue grants nothing";
    }
    if (next->fence != moment.fence_next || next->status != RECORD_IN_PROGRESS) {
        return "P4: a grant has the new fence";
    }
    if (found != NULL && next->fence <= found->fence) {
        return "P4: fences strictly increase";
    }
    if (request->kind == REQUEST_CLAIM &&
        (found->status != RECORD_PENDING || moment.now_ms < found->due_ms)) {
        return "only what is pending and due is claimed";
    }
    if (found != NULL && next->attempt != found->attempt + 1 &&
        op_id_equal(&found->operation_id, &next->operation_id)) {
        return "a grant is one attempt";
    }
    return NULL;
}

/* P1, P5: what is in progress or unknown is granted again by a takeover of an operation and by
 * nothing else. What Once performs itself is pending first. */
static const char *broken_hold(const struct record *found, const struct request *request,
    struct decide_moment moment, const struct decision *said)
{
    bool open = found->status == RECORD_IN_PROGRESS || found->status == RECORD_UNKNOWN;
    if (!open) {
        return NULL;
    }
    if (request->policy.on_unknown != ON_UNKNOWN_TAKEOVER || record_sealed(found) ||
        found->kind != RECORD_OPERATION) {
        return "P1: hold never grants again";
    }
    if (found->status == RECORD_IN_PROGRESS && moment.now_ms < found->lease_expires_ms) {
        return "P1: no grant while a lease is alive";
    }
    return op_id_equal(&found->operation_id, &said->next.operation_id)
               ? NULL
               : "P8: what is in progress or unknown never expires";
}

/* P3: a sealed outcome stays; its status and window change only when it is compensated. */
static const char *broken_seal(
    const struct record *found, const struct request *request, const struct record *next)
{
    bool undoes = request->kind == REQUEST_COMPENSATE ||
                  request->kind == REQUEST_COMPENSATION_SETTLE ||
                  (request->kind == REQUEST_RESOLVE && found->status == RECORD_UNKNOWN) ||
                  request->kind == REQUEST_POSTPONE;
    bool kept = model_same_outcome(&found->outcome, &next->outcome) &&
                found->sealed_ms == next->sealed_ms &&
                slice_equal(found->effect_id, next->effect_id);
    bool same =
        found->status == next->status && found->window_expires_ms == next->window_expires_ms;
    return kept && (same || undoes) ? NULL : "P3: seals are final";
}

/* P4, P5: who may end a grant. */
static const char *broken_end(const struct record *found, const struct request *request,
    struct decide_moment moment, const struct decision *said)
{
    bool ends = found->status == RECORD_IN_PROGRESS && said->change == CHANGE_PUT;
    bool lease_over = moment.now_ms >= found->lease_expires_ms;
    if (!ends || lease_over || request->kind == REQUEST_HOLDER_GONE) {
        return ends && request->kind == REQUEST_HOLDER_GONE &&
                       (found->holder == 0 || found->holder == request->holder ||
                           (request->fence != 0 && request->fence != found->fence) ||
                           said->next.status != RECORD_UNKNOWN)
                   ? "P5: only what a dead process held becomes unknown, and nothing else"
                   : NULL;
    }
    return request->fence != 0 && request->fence == found->fence
               ? NULL
               : "P4: while its lease is alive only the holder ends a grant";
}

static const char *broken_promise(const struct record *found, const struct request *request,
    struct decide_moment moment, const struct decision *said)
{
    bool granted = said->kind == DECISION_FIRST_SEEN || said->kind == DECISION_CLAIMED;
    bool queued = said->kind == DECISION_ENQUEUED;
    const struct record *next = &said->next;
    const char *broken = granted || queued ? broken_grant(found, request, moment, said) : NULL;
    if (broken != NULL) {
        return broken;
    }
    if (said->kind == DECISION_STALE_VERSION && said->change != CHANGE_NONE) {
        return "OPS-7: a stale version changes nothing";
    }
    if (found == NULL) {
        return !granted && !queued && record_there(next)
                   ? "only a grant or an enqueue makes a record"
                   : NULL;
    }
    if (!granted && !queued && record_there(next) && next->fence != found->fence) {
        return "P4: only a grant changes the fence";
    }
    bool ran = said->next.status == RECORD_EXECUTED || said->next.status == RECORD_FAILED;
    if (ran && said->next.fence == 0) {
        return "P6: what was never granted did nothing";
    }
    broken = granted ? broken_hold(found, request, moment, said) : NULL;
    broken = broken == NULL ? broken_end(found, request, moment, said) : broken;
    if (broken != NULL) {
        return broken;
    }
    bool replaced = (granted || queued) && !op_id_equal(&found->operation_id, &next->operation_id);
    if (replaced && (found->window_expires_ms == 0 || moment.now_ms < found->window_expires_ms)) {
        return "P8: a live record never leaves early";
    }
    if (said->kind == DECISION_CONFLICT_REJECTED && said->change != CHANGE_TOUCH) {
        return "P7: a conflict touches nothing";
    }
    if (said->change == CHANGE_TOUCH && !request_by_key(request->kind)) {
        return "only a begin or an enqueue is a duplicate";
    }
    return record_sealed(found) && !granted && !queued && record_there(next)
               ? broken_seal(found, request, next)
               : NULL;
}

static const char *broken_bookkeeping(const struct record *found, const struct decision *said)
{
    uint64_t version = found == NULL ? 0 : found->version;
    struct record but_for_duplicates = said->next;
    switch (said->change) {
    case CHANGE_PUT:
        record_check(&said->next);
        if (said->next.version != version + 1) {
            return "every change is one version";
        }
        return found != NULL && said->next.updated_ms < found->updated_ms ? "time goes on" : NULL;
    case CHANGE_TOUCH:
        but_for_duplicates.duplicates = found->duplicates;
        return model_same_record(&but_for_duplicates, found) ? NULL : "a touch only counts";
    case CHANGE_NONE: break;
    }
    bool shown = record_there(&said->next);
    return shown && !model_same_record(&said->next, found) ? "nothing changes by itself" : NULL;
}

const char *promise_broken(const struct record *found, const struct request *request,
    struct decide_moment moment, const struct decision *said)
{
    const char *broken = broken_promise(found, request, moment, said);
    return broken == NULL ? broken_bookkeeping(found, said) : broken;
}
