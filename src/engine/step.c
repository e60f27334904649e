/*
 * One call of a batch: its record with the batch's changes so far, the decision, and its changes.
 * Nothing here touches the store.
 */
#include "base/check.h"
#include "core/lane.h"
#include "core/source.h"
#include "engine/cycle_impl.h"

/* ---- decide -------------------------------------------------------------------------------- */

/* A key's hash determines the kind of its record. If a different kind is stored, it is damaged. */
static enum status kind_check(const struct record *record, unsigned kinds, struct err *err)
{
    return record == NULL || store_kind_in(kinds, record->kind)
               ? OK
               : err_set(err, E_CORRUPT, "a record is of kind %d, which does not belong there",
                     (int)record->kind);
}

/* The record of a call, with the batch's changes so far; NULL if absent. */
static enum status found_of(struct step *step, struct err *err)
{
    const struct request *request = &step->call->request;
    step->found = NULL;
    if (step->key == NULL) {
        return OK;
    }
    ASSERT(step->key->loaded);
    const struct record *record = step->key->record;
    if (by_key(step->call)) {
        step->found = record;
        return kind_check(record, STORE_KIND(request_record_kind(request)), err);
    }
    /* P9: a different tenant's operation counts as absent. */
    bool foreign = record != NULL && request->key.tenant.len > 0 &&
                   !slice_equal(record->key.tenant, request->key.tenant);
    step->found = foreign ? NULL : record;
    return OK;
}

enum status step_compose(struct cycle *cycle, const struct step *step, struct entry *ret_entry)
{
    struct engine_call *call = step->call;
    struct entry_facts facts = {&call->request, step->found, &call->decision, step->moment};
    struct chain before = cycle->chain;
    struct entry entry;
    buf_clear(&cycle->text);
    enum status status = step->note == NULL
                             ? entry_compose(&cycle->chain, &facts, &cycle->text, &entry)
                             : note_compose(&cycle->chain, step->note, step->found,
                                   step->moment.now_ms, &cycle->text, &entry);
    if (status == OK) {
        status = arena_copy(&cycle->arena, entry.bytes, &entry.bytes);
    }
    if (status != OK) {
        cycle->chain = before;
        return err_set(&call->err, status, "out of memory for evidence");
    }
    ASSERT(entry.seq == before.seq + 1); /* P10 */
    *ret_entry = entry;
    return OK;
}

/* A body from prepare, or from the call of this batch that brought it (EN2). Prepare's body belongs
 * to the old record: it must not replace an empty body of this batch. */
static enum status take_body(const struct step *step, const struct body_ref *body,
    struct slice brought, struct slice fetched, struct slice *ret_bytes)
{
    if (body->bytes == 0) {
        return OK;
    }
    if (brought.len > 0) {
        return arena_copy(step->call->arena, brought, ret_bytes);
    }
    if (step->want->body_status != OK) {
        return step->want->body_status;
    }
    ASSERT(fetched.len == body->bytes);
    *ret_bytes = fetched;
    return OK;
}

/* Takes the bodies that the answer needs. */
static enum status take_bodies(const struct step *step)
{
    struct engine_call *call = step->call;
    const struct record *record = &call->decision.next;
    bool replay = call->decision.kind == DECISION_DUPLICATE_REPLAYED || call->decision.repeated;
    if (replay && record->outcome.body.retained) {
        return take_body(step, &record->outcome.body, step->key->outcome_body, step->want->outcome,
            &call->outcome);
    }
    bool shown = call->decision.kind == DECISION_CONFLICT_REJECTED ||
                 (call->decision.kind == DECISION_CLAIMED && step->claims == NULL);
    if (shown && record->request.retained) {
        return take_body(step, &record->request, step->key->request_body, step->want->request,
            &call->first_body);
    }
    return OK;
}

/* Changes the mark of a key. A dependent group may have to undo it. */
static struct cycle_seen *seen_change(struct work *work, struct cycle_seen *seen)
{
    if (work->undo != NULL) {
        work->undo[work->undo_count++] = (struct cycle_undo){.seen = seen, .before = *seen};
    }
    return seen;
}

void count_change(struct cycle *cycle, const struct record *found, const struct record *next)
{
    struct store_counts *counts = &cycle->counts;
    counts->records += found == NULL;
    ASSERT(next->kind != RECORD_SOURCE); /* counts are of STORE_KINDS_ASKED */
    if (found != NULL) {
        counts->by_status[found->status]--;
    }
    counts->by_status[next->status]++;
}

/* Updates the mark of the key. A new operation brings its own bodies or none. */
static void remember(struct cycle *cycle, struct work *work, struct step *step,
    const struct record *next, const struct change *change)
{
    const struct record *found = step->found;
    struct cycle_seen *seen = seen_change(work, step->key);
    ASSERT(digest_equal(&seen->hash, &next->key.hash));
    seen->record = next;
    if (change->kind == CHANGE_PUT) {
        seen->request_body = change->request_body;
        seen->outcome_body = change->outcome_body;
        seen->durable = false;
        step->next = next;
    }
    count_change(cycle, found, next);
}

/* Failures of one call that leave the batch as it was; all others end the batch. */
static bool only_this_call(enum status status)
{
    return status == E_NOMEM || status == E_LIMIT;
}

/* The bytes to store with a record's body: the call's own if they are new; those that the batch
 * brought before, if the record keeps them and the store does not have them yet; otherwise none. */
static struct slice body_bytes(const struct body_ref *body, bool is_new, struct slice own,
    const struct body_ref *before, struct slice brought)
{
    if (is_new) {
        return own;
    }
    bool kept = brought.len > 0 && before != NULL && body->retained &&
                digest_equal(&body->digest, &before->digest);
    return kept ? brought : SLICE_EMPTY;
}

static void make_change(
    const struct step *step, const struct record *next, struct change *ret_change)
{
    const struct engine_call *call = step->call;
    const struct record *found = step->found;
    bool put = call->decision.change == CHANGE_PUT;
    ret_change->kind = call->decision.change;
    ret_change->record = call->decision.change == CHANGE_NONE ? NULL : put ? next : found;
    ret_change->version_expected = found == NULL ? 0 : found->version;
    if (call->decision.change == CHANGE_NONE && (found != NULL || by_key(call))) {
        ret_change->decided_on = &step->key->hash; /* by id: an absent one has no key */
    }
    ASSERT(!put || next->version == ret_change->version_expected + 1); /* S3 */
    if (put) {
        /* An enqueue always brings its request body. A record that was made without one, or whose
         * body was erased (R10), may get one. */
        bool made = found == NULL || !op_id_equal(&found->operation_id, &next->operation_id) ||
                    call->decision.kind == DECISION_ENQUEUED ||
                    (!found->request.retained && next->request.retained);
        bool sealed = record_status_sealed(next->status) && call->outcome_body.len > 0;
        ret_change->request_body = body_bytes(&next->request, made, call->request_body,
            found == NULL ? NULL : &found->request, step->key->request_body);
        ret_change->outcome_body = body_bytes(&next->outcome.body, sealed, call->outcome_body,
            found == NULL ? NULL : &found->outcome.body, step->key->outcome_body);
    }
}

/* P12: past the limit a new key is refused; existing keys stay. True: refused. */
static bool past_keys_max(const struct cycle *cycle, const struct step *step)
{
    struct engine_call *call = step->call;
    bool makes =
        call->decision.kind == DECISION_FIRST_SEEN || call->decision.kind == DECISION_ENQUEUED;
    if (cycle->keys_max == 0 || step->found != NULL || !makes ||
        cycle->counts.records < cycle->keys_max) {
        return false;
    }
    (void)err_limit(&call->err, ERR_LIMIT_KEYS,
        "cannot remember a new key: keys_max (%llu) is reached",
        (unsigned long long)cycle->keys_max);
    return true;
}

/* The key of the source of a record. Prepare computed it, unless a begin of this batch gave
 * the operation a different source; then that begin has it. */
static enum status source_key_of(const struct step *step, const struct record *record,
    struct record_key *ret_key, struct err *err)
{
    const struct store_want *want = step->want;
    if (want != NULL && want->source && want->record != NULL &&
        source_ordered(&want->record->source) &&
        source_equal(&want->record->source, &record->source)) {
        *ret_key = want->source_key;
        return OK;
    }
    return source_key_seal(&record->key, &record->source, ret_key, err);
}

/* A record that joins a lane names the one before it: decide puts that into the record. */
static enum status set_lane_place(const struct step *step, struct err *err)
{
    struct engine_call *call = step->call;
    ASSERT(step->lane != NULL && step->lane->loaded);
    enum status status = kind_check(step->lane->record, STORE_KIND(RECORD_SOURCE), err);
    char *buffer = arena_alloc(call->arena, KIND_ID_TEXT_BYTES);
    /* One that is woken has no place yet that it could keep. */
    const struct record *self = by_key(call) ? step->found : NULL;
    if (status != OK || buffer == NULL) {
        return status != OK ? status : E_NOMEM;
    }
    lane_place(step->lane->record, self, step->moment.now_ms, buffer, &call->request);
    return OK;
}

/* Sets the last sealed version of its source, for decide. */
static enum status set_source_version(struct cycle *cycle, struct step *step, struct err *err)
{
    bool claims = step->call->note == NULL && step->call->request.kind == REQUEST_CLAIM;
    if (claims && step->found != NULL && source_ordered(&step->found->source)) {
        /* An enqueue of this batch may have given the record a different source. */
        enum status status = source_key_of(step, step->found, &step->from, err);
        if (status != OK) {
            return status;
        }
        step->source = seen_of(cycle, &step->from.hash);
    }
    if (step->call->note == NULL && lane_joins(&step->call->request)) {
        enum status status = set_lane_place(step, err);
        if (status != OK) {
            return status;
        }
    }
    if (!(by_key(step->call) || claims) || step->source == NULL) {
        return OK;
    }
    ASSERT(step->source->loaded);
    enum status status = kind_check(step->source->record, STORE_KIND(RECORD_SOURCE), err);
    if (status == OK) {
        step->moment.version_sealed = source_version(step->source->record, step->moment.now_ms);
    }
    return status;
}

/*
 * The source's record after this seal. ret_change stays "none" if it does not change. The step's
 * moment gets the last sealed version after the seal, which the seal's entry shows.
 */
static enum status remember_source(struct cycle *cycle, struct step *step,
    const struct record *sealed, struct change *ret_change, struct err *err)
{
    /* What was cancelled has not taken effect, and outdates nothing: a person who skips a version
     * that its handler cannot take does not mean the older ones that are still to come. */
    bool is_cancelled = step->call->note == NULL && step->call->request.kind == REQUEST_CANCEL;
    if (step->call->decision.change != CHANGE_PUT || !record_status_sealed(sealed->status) ||
        is_cancelled || !source_ordered(&sealed->source)) {
        return OK;
    }
    struct record_key key;
    enum status status = source_key_of(step, sealed, &key, err);
    struct record *next = arena_alloc(&cycle->arena, sizeof *next);
    if (status != OK || next == NULL) {
        return status != OK ? status : E_NOMEM;
    }
    step->source = seen_of(cycle, &key.hash);
    ASSERT(step->source->loaded);
    const struct record *found = step->source->record;
    ASSERT(sealed->fence > 0); /* P4: only a holder seals */
    status = kind_check(found, STORE_KIND(RECORD_SOURCE), err);
    if (status == OK && source_remember(found, sealed, &key, next)) {
        *ret_change = (struct change){.kind = CHANGE_PUT,
            .record = next,
            .version_expected = found == NULL ? 0 : found->version};
        found = next;
    }
    step->moment.version_sealed = source_version(found, step->moment.now_ms);
    return status;
}

/* The lane's record after a record has joined it. */
static enum status remember_lane(
    struct cycle *cycle, struct step *step, const struct record *joined, struct change *ret_change)
{
    const struct engine_call *call = step->call;
    if (!lane_joined(step->found, &call->request, &call->decision)) {
        return OK;
    }
    struct record *next = arena_alloc(&cycle->arena, sizeof *next);
    if (next == NULL) {
        return E_NOMEM;
    }
    ASSERT(ret_change->kind == CHANGE_NONE); /* what joins is not sealed */
    const struct record *found = step->lane->record;
    lane_remember(found, joined, &call->request, &step->lane_key, next);
    *ret_change = (struct change){
        .kind = CHANGE_PUT, .record = next, .version_expected = found == NULL ? 0 : found->version};
    return OK;
}

/* Does everything about an answer that can fail, before the call changes the batch. ret_changes are
 * the source's or the lane's change, "none" if there is neither, and the operation's with its
 * entry. */
static enum status make_answer(struct cycle *cycle, struct step *step,
    struct change ret_changes[CHANGES_A_CALL], struct record **ret_next, struct err *err)
{
    struct engine_call *call = step->call;
    struct record *next = arena_alloc(&cycle->arena, sizeof *next);
    if (next == NULL) {
        return E_NOMEM;
    }
    /* The batch keeps the record as decided; the answer gets one that outlives the batch. */
    *next = call->decision.next;
    enum status status = record_copy(next, call->arena, &call->decision.next);
    if (status == OK) {
        status = take_bodies(step);
    }
    if (status == OK) {
        status = remember_source(cycle, step, next, &ret_changes[0], err);
    }
    if (status == OK) {
        status = remember_lane(cycle, step, next, &ret_changes[0]);
    }
    if (status == OK) {
        status = step_compose(cycle, step, &ret_changes[1].entry);
    }
    *ret_next = next;
    return status;
}

/* Whether the answer shows only what was durable before this batch. What an order of sources says
 * may be newer, so a call with a source never does. */
static bool is_pure_replay(const struct step *step)
{
    const struct decision *decision = &step->call->decision;
    return step->call->request.kind == REQUEST_BEGIN && step->source == NULL &&
           decision->kind == DECISION_DUPLICATE_REPLAYED && decision->change == CHANGE_TOUCH &&
           record_status_sealed(step->found->status) && step->key->durable;
}

/* The request is from a lost future, or its tenant is in quarantine (quarantine.h). */
static bool is_quarantined(struct cycle *cycle, const struct work *work, const struct step *step)
{
    const struct request *request = &step->call->request;
    uint64_t highest = work->batch.fence_first + work->batch.fences - 1;
    struct slice tenant = step->found != NULL ? step->found->key.tenant : request->key.tenant;
    return (step->found == NULL && quarantine_notice(&cycle->quarantine, highest, request)) ||
           (takes_fence(step->call) && quarantine_holds(&cycle->quarantine, tenant));
}

/*
 * A renewal never ends the lease earlier than was promised. This is not a rule of decide: older
 * versions recorded renewals that shortened, and those must be decided again as they were. So the
 * request asks for what is left of the lease instead, and its entry records that.
 */
static void keep_lease(const struct step *step)
{
    struct request *request = &step->call->request;
    const struct record *found = step->found;
    if (request->kind == REQUEST_RENEW && found != NULL && found->status == RECORD_IN_PROGRESS) {
        int64_t left_ms = found->lease_expires_ms - step->moment.now_ms;
        if (left_ms > request->policy.lease_ms) {
            request->policy.lease_ms = left_ms;
        }
    }
}

/* The decided call has looks_only: it changes nothing, and its answer gets the record as found. */
static enum status look(struct step *step)
{
    struct engine_call *call = step->call;
    enum decision_kind kind = call->decision.kind;
    ASSERT(call->request.kind == REQUEST_ENQUEUE && !call->needs_previous);
    bool is_there = kind == DECISION_IN_PROGRESS || kind == DECISION_HELD_UNKNOWN ||
                    kind == DECISION_DUPLICATE_REPLAYED;
    call->decision = (struct decision){.kind = is_there ? kind : DECISION_NOTHING,
        .change = CHANGE_NONE,
        .rule = call->decision.rule};
    enum status status =
        is_there ? record_copy(step->found, call->arena, &call->decision.next) : OK;
    return status == OK ? OK : (err_set(&call->err, status, "out of memory for the answer"), OK);
}

/*
 * Decides one call. changes[1] gets its change, changes[0] the one before it. The entry of
 * changes[1] is empty if the call is parked, refused, or changes nothing.
 */
static enum status decide_request(struct cycle *cycle, struct work *work, struct step *step,
    struct change changes[CHANGES_A_CALL], struct err *err)
{
    struct engine_call *call = step->call;
    enum status status = found_of(step, err);
    status = status == OK ? set_source_version(cycle, step, err) : status;
    if (only_this_call(status)) {
        return err_set(&call->err, status, "out of memory for the answer"), OK;
    }
    if (status != OK) {
        return status;
    }
    if (is_quarantined(cycle, work, step)) {
        quarantine_describe(&cycle->quarantine, &call->err);
        return OK;
    }
    keep_lease(step);
    decide_into(step->found, &call->request, step->moment, &call->decision);
    if (call->replays_only && call->decision.kind != DECISION_DUPLICATE_REPLAYED) {
        ASSERT(step->claims == NULL && !call->needs_previous);
        return err_set(&call->err, E_STALE, "it is no replay"), OK;
    }
    if (call->decision.kind == DECISION_IN_PROGRESS && call->wait_ms > 0) {
        call->parked = true;
        return OK;
    }
    if (call->looks_only) {
        return look(step);
    }
    if (call->decision.kind == DECISION_NOTHING || past_keys_max(cycle, step)) {
        return OK;
    }
    struct record *next = NULL;
    status = make_answer(cycle, step, changes, &next, err);
    if (only_this_call(status)) {
        return err_set(&call->err, status, "out of memory for the answer"), OK;
    }
    if (status != OK) {
        return status;
    }
    call->is_pure_replay = is_pure_replay(step);
    make_change(step, next, &changes[1]);
    if (call->decision.change != CHANGE_NONE) {
        remember(cycle, work, step, next, &changes[1]);
    }
    if (changes[0].kind != CHANGE_NONE) {
        bool joins = lane_joined(step->found, &call->request, &call->decision);
        seen_change(work, joins ? step->lane : step->source)->record = changes[0].record;
    }
    return OK;
}

void step_keep_conflict(struct cycle *cycle, struct work *work, struct step *step)
{
    struct engine_call *call = step->call;
    struct change *made = work->changes + work->used;
    bool is_stored = step->key != NULL && step->found != NULL && step->key->record == step->found;
    if (call->decision.kind != DECISION_CONFLICT_REJECTED || !is_stored) {
        return;
    }
    struct record *next = arena_alloc(&cycle->arena, sizeof *next);
    *made = (struct change){.kind = CHANGE_NONE};
    enum status status = next == NULL ? err_set(&call->err, E_NOMEM, "out of memory for evidence")
                                      : step_compose(cycle, step, &made->entry);
    if (status != OK) {
        call->refused = false; /* P10: no answer without its entry */
        return;
    }
    *next = call->decision.next;
    make_change(step, next, made);
    ASSERT(made->kind != CHANGE_PUT); /* P7 */
    remember(cycle, work, step, next, made);
    step->first = work->used;
    step->changes = 1;
    work->used++;
}

/* ---- notes --------------------------------------------------------------------------------- */

/* The record of a note. A different tenant's record is left out (P9), and so is the requested id:
 * step->note has only what may be shown. */
static void note_about(struct step *step)
{
    static const struct op_id none = {{0}};
    const struct note *note = step->call->note;
    const struct record *found = step->key == NULL ? NULL : step->key->record;
    *step->note = *note;
    if (note->kind == NOTE_DUPLICATES) {
        ASSERT(step->key->loaded);
        found = found != NULL && record_window_over(found, step->moment.now_ms) ? NULL : found;
    }
    if (found != NULL && !slice_equal(found->key.tenant, note->tenant)) {
        found = NULL;
        step->note->operation_id = none;
    }
    step->found = found;
}

static enum status decide_note(struct cycle *cycle, struct step *step, struct entry *ret_entry)
{
    struct engine_call *call = step->call;
    call->decision = (struct decision){.kind = DECISION_NOTHING, .change = CHANGE_NONE};
    step->note = arena_alloc(&cycle->arena, sizeof *step->note);
    if (step->note == NULL) {
        return err_set(&call->err, E_NOMEM, "out of memory for evidence"), OK;
    }
    note_about(step);
    (void)!step_compose(cycle, step, ret_entry); /* a failure is in the call's own err */
    return OK;
}

/* ---- claims of what this batch enqueues ---------------------------------------------------- */

/* Finds the record that the enqueue before it has just made. False: it made none, or it enqueued an
 * earlier one again, and nothing is claimed. */
static bool claim_previous(struct step *step)
{
    struct engine_call *call = step->call;
    const struct engine_call *made = step->claims->call;
    const struct op_id *id = &made->decision.next.operation_id;
    bool is_pending = made->err.status == OK && made->decision.kind == DECISION_ENQUEUED;
    bool is_new = is_pending && (step->claims->found == NULL ||
                                    !op_id_equal(&step->claims->found->operation_id, id));
    call->request.operation_id = is_pending ? *id : (struct op_id){{0}};
    step->key = is_new ? step->claims->key : NULL;
    if (!is_new) {
        call->decision = (struct decision){.kind = DECISION_NOTHING, .change = CHANGE_NONE};
        return false;
    }
    ASSERT(step->key->record != NULL && op_id_equal(&step->key->record->operation_id, id));
    return true;
}

/* ---- one step ------------------------------------------------------------------------------ */

void step_clear(struct step *step, int64_t now_ms)
{
    struct engine_call *call = step->call;
    call->parked = false;
    call->refused = false;
    call->is_pure_replay = false;
    call->outcome = SLICE_EMPTY;
    call->first_body = SLICE_EMPTY;
    call->now_ms = now_ms;
    err_clear(&call->err);
    step->changes = 0;
    step->next = NULL;
    step->again = false;
}

/* Moves the changes to store to the front, and returns how many of the two there are. */
static size_t keep_changes(struct change changes[CHANGES_A_CALL])
{
    if (changes[1].entry.bytes.len == 0) {
        return 0;
    }
    if (changes[0].kind == CHANGE_NONE) {
        changes[0] = changes[1];
        return 1;
    }
    return 2;
}

enum status step_decide(struct cycle *cycle, struct work *work, struct step *step, struct err *err)
{
    struct change *made = work->changes + work->used; /* room for two changes of each call */
    step_clear(step, work->batch.now_ms);
    step->call->decided++;
    step->moment =
        (struct decide_moment){.now_ms = work->batch.now_ms, .fence_next = work->fence_next};
    made[0] = made[1] = (struct change){.kind = CHANGE_NONE};
    enum status status = OK;
    if (step->call->note != NULL) {
        status = decide_note(cycle, step, &made[1].entry);
    } else if (step->claims == NULL || claim_previous(step)) {
        status = decide_request(cycle, work, step, made, err);
    }
    step->first = work->used;
    step->changes = status == OK ? keep_changes(made) : 0;
    work->used += step->changes;
    work->fence_next += takes_fence(step->call);
    ASSERT(!step->call->parked || step->changes == 0); /* EN4: its entry comes with its answer */
    ASSERT(step->call->err.status == OK || step->changes == 0);
    return status;
}
