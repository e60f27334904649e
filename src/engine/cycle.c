#include "engine/cycle.h"

#include <string.h>

#include "base/check.h"
#include "base/limits.h"
#include "core/lane.h"
#include "core/source.h"
#include "engine/cycle_impl.h"
#include "evidence/checkpoint.h"

enum {
    WANTS_A_CALL = 3, /* the operation's record, its source's and its lane's */
    SEEN_SLOTS = 4 * LIMIT_BATCH_REQUESTS_MAX, /* a power of two; half full at most */
    ENTRY_BYTES_MAX = 64 << 10, /* every name at its limit and escaped sixfold is about 20 KiB */
};

#define CYCLE_ARENA_BYTES_MAX ((size_t)64 << 20) /* 1024 records at their limits */

enum status cycle_init(
    struct cycle *cycle, struct store *store, const struct mem *mem, struct err *err)
{
    struct store_head head;
    struct store_identity identity;
    store->ops->head(store, &head);
    store->ops->identity(store, &identity, NULL);
    *cycle = (struct cycle){
        .mem = mem, .store = store, .quarantine = {.opened_ms = head.moment.time_ms}};
    chain_init(&cycle->chain, &head, &identity);
    mem_wipe(&identity, sizeof identity);
    arena_init(&cycle->arena, mem, CYCLE_ARENA_BYTES_MAX);
    buf_init(&cycle->text, mem, ENTRY_BYTES_MAX);
    cycle->seen = mem_zalloc(mem, SEEN_SLOTS, sizeof *cycle->seen);
    if (cycle->seen == NULL) {
        return err_set(err, E_NOMEM, "out of memory");
    }
    return store->ops->counts(store, STORE_KINDS_ASKED, &cycle->counts, err);
}

void cycle_release(struct cycle *cycle)
{
    if (cycle->mem != NULL) {
        mem_free(cycle->mem, cycle->seen);
        cycle->seen = NULL;
        buf_release(&cycle->text);
        arena_release(&cycle->arena);
    }
}

struct cycle_seen *seen_of(struct cycle *cycle, const struct digest *hash)
{
    uint32_t at;
    memcpy(&at, hash->bytes, sizeof at);
    for (;; at++) {
        struct cycle_seen *seen = &cycle->seen[at % SEEN_SLOTS];
        if (seen->turn != cycle->turn) {
            *seen = (struct cycle_seen){.turn = cycle->turn, .hash = *hash};
            return seen;
        }
        if (digest_equal(&seen->hash, hash)) {
            return seen;
        }
    }
}

static void next_turn(struct cycle *cycle)
{
    arena_clear(&cycle->arena);
    cycle->turn++;
    if (cycle->turn == 0) { /* after four billion batches old marks could look new */
        memset(cycle->seen, 0, SEEN_SLOTS * sizeof *cycle->seen);
        cycle->turn = 1;
    }
}

void cycle_touched(struct cycle *cycle, enum status status, bool writes, const struct err *err)
{
    ASSERT(cycle->store != NULL);
    if (!cycle->store->ops->shared) {
        return;
    }
    if (status == E_UNAVAILABLE || status == E_UNKNOWN) {
        (void)err_set(&cycle->away, E_UNAVAILABLE, "%s", err == NULL ? "" : err->text);
    } else if (status == OK && writes) {
        err_clear(&cycle->away);
    }
}

/* Prepare and commit, with their results recorded. */
static enum status store_prepare(struct cycle *cycle, struct store_batch *batch, struct err *err)
{
    struct store *store = cycle->store;
    enum status status = store->ops->prepare(store, batch, err);
    cycle_touched(cycle, status, false, err);
    if (status == OK) {
        struct store_head head; /* an earlier commit may not have happened, or may have (S15) */
        store->ops->head(store, &head);
        ASSERT(store->ops->shared || head.seq == cycle->chain.seq); /* P10 */
        cycle->chain.seq = head.seq;
        cycle->chain.hash = head.hash;
        cycle->unsettled = false;
    }
    return status;
}

static enum status store_commit(struct cycle *cycle, const struct commit *commit, struct err *err)
{
    enum status status = cycle->store->ops->commit(cycle->store, commit, err);
    cycle_touched(cycle, status, true, err);
    cycle->commits += status == OK;
    cycle->unsettled = status == E_UNKNOWN && cycle->store->ops->shared;
    return status;
}

/* ---- prepare ------------------------------------------------------------------------------- */

/* A want by key. If the key is already loaded, it asks only for its own bodies. */
static struct store_want *want_key(
    struct work *work, struct cycle_seen *seen, const struct digest *hash)
{
    struct store_want *want = &work->batch.wants[work->batch.count++];
    *want = (struct store_want){.key = hash, .same = seen->want};
    seen->want = seen->want == NULL ? want : seen->want;
    return want;
}

/* A want for a key that only this batch's marks are about. */
static struct cycle_seen *want_beside(
    struct cycle *cycle, struct work *work, const struct record_key *key)
{
    struct cycle_seen *seen = seen_of(cycle, &key->hash);
    if (seen->want == NULL) {
        (void)want_key(work, seen, &key->hash);
    }
    return seen;
}

/* The last sealed version of its source, and the last one of the lane that it joins. */
static enum status want_source(
    struct cycle *cycle, struct work *work, struct step *step, struct err *err)
{
    const struct request *request = &step->call->request;
    enum status status = OK;
    if (request_by_key(request->kind) && source_ordered(&request->source)) {
        status = source_key_seal(&request->key, &request->source, &step->from, err);
        step->source = status == OK ? want_beside(cycle, work, &step->from) : NULL;
    }
    if (status == OK && lane_joins(request)) {
        status = lane_key_seal(request, &step->lane_key, err);
        step->lane = status == OK ? want_beside(cycle, work, &step->lane_key) : NULL;
    }
    return status;
}

/* By key: the record with the body that a replay or a conflict shows, and its source's record. */
static enum status want_by_key(
    struct cycle *cycle, struct work *work, struct step *step, struct err *err)
{
    const struct request *request = &step->call->request;
    step->key = seen_of(cycle, &request->key.hash);
    step->want = want_key(work, step->key, &request->key.hash);
    step->want->bodies = WANT_BY_FINGERPRINT;
    step->want->fingerprint = &request->fingerprint;
    step->want->arena = step->call->arena;
    return want_source(cycle, work, step, err);
}

/* The bodies that an answer to a request by id may show: the outcome for a repeated call, and the
 * request body for a claim. */
static unsigned bodies_by_id(const struct request *request)
{
    bool janitors = request->kind == REQUEST_LEASE_OVER || request->kind == REQUEST_HOLDER_GONE;
    return janitors ? WANT_NO_BODY
           : request->kind == REQUEST_CLAIM || request->kind == REQUEST_WAKE
               ? WANT_OUTCOME | WANT_REQUEST
               : WANT_OUTCOME;
}

/* A record by its id, and its source's record: a seal changes it, and a claim compares with it. */
static void want_id(struct work *work, struct step *step)
{
    const struct request *request = &step->call->request;
    const struct note *note = step->call->note;
    struct store_want *want = &work->batch.wants[work->batch.count++];
    *want = (struct store_want){.id = note != NULL ? &note->operation_id : &request->operation_id,
        .kinds = STORE_KINDS_ASKED,
        .bodies = note != NULL ? WANT_NO_BODY : bodies_by_id(request),
        .tenant = note != NULL ? note->tenant : request->key.tenant,
        .arena = step->call->arena,
        .source = note == NULL};
    step->want = want;
}

static enum status want_step(
    struct cycle *cycle, struct work *work, struct step *step, struct err *err)
{
    static const struct op_id none = {{0}};
    const struct note *note = step->call->note;
    step->want = NULL;
    step->key = step->source = step->lane = NULL;
    work->batch.fences += takes_fence(step->call);
    if (step->claims != NULL) {
        return OK; /* its record is made in this batch */
    }
    if (by_key(step->call)) {
        return want_by_key(cycle, work, step, err);
    }
    if (note == NULL ||
        (note->kind != NOTE_DUPLICATES && !op_id_equal(&note->operation_id, &none))) {
        want_id(work, step);
        return note == NULL ? want_source(cycle, work, step, err) : OK;
    }
    if (note->kind == NOTE_DUPLICATES) {
        step->key = seen_of(cycle, &note->key.hash);
        step->want = want_key(work, step->key, &note->key.hash);
    }
    return OK;
}

static void seen_load(struct cycle_seen *seen, const struct record *record, bool is_durable)
{
    if (!seen->loaded) {
        seen->loaded = true;
        seen->durable = is_durable;
        seen->record = record;
    }
}

/* Enters what prepare found into the marks of the batch. */
static void seen_step(struct cycle *cycle, struct step *step)
{
    struct store_want *want = step->want;
    if (want == NULL) {
        return;
    }
    if (want->key == NULL && want->record != NULL) {
        step->key = seen_of(cycle, &want->record->key.hash);
    }
    if (step->key != NULL) {
        seen_load(step->key, want->record, want->durable);
    }
    if (step->lane != NULL) {
        seen_load(step->lane, step->lane->want->record, false);
    }
    if (step->source != NULL) { /* asked for by its own key */
        seen_load(step->source, step->source->want->record, false);
    } else if (want->source && want->record != NULL && source_ordered(&want->record->source)) {
        step->source = seen_of(cycle, &want->source_key.hash);
        seen_load(step->source, want->source_record, false);
    }
}

/* The first touch of the store: loads everything that the steps from `from` on need. */
static enum status prepare(struct cycle *cycle, struct work *work, size_t from, struct err *err)
{
    size_t most = WANTS_A_CALL * (work->count - from);
    work->batch = (struct store_batch){.records_max = cycle->keys_max,
        .arena = &cycle->arena,
        .wants = arena_alloc(&cycle->arena, (most + 1) * sizeof(struct store_want))};
    if (work->batch.wants == NULL) {
        return err_set(err, E_NOMEM, "out of memory for a batch");
    }
    enum status status = OK;
    for (size_t i = from; i < work->count && status == OK; i++) {
        status = want_step(cycle, work, work->order[i], err);
    }
    ASSERT(work->batch.count <= most);
    status = status == OK ? store_prepare(cycle, &work->batch, err) : status;
    if (status != OK) {
        return status;
    }
    for (size_t i = from; i < work->count; i++) {
        seen_step(cycle, work->order[i]);
    }
    ASSERT(work->batch.fences == 0 || work->batch.fence_first > 0); /* P4 */
    cycle->counts = work->batch.counts;
    cycle->now_ms = work->batch.now_ms;
    cycle->clock_held = work->batch.clock_held;
    work->fence_next = work->batch.fence_first;
    return OK;
}

/* ---- dependent groups ---------------------------------------------------------------------- */

/* Whether a decision is not the one asked for (engine.h). */
static bool refuses(const struct engine_call *call)
{
    if (call->note != NULL) {
        return false;
    }
    switch (call->decision.kind) {
    case DECISION_FIRST_SEEN:
    case DECISION_SEALED:
    case DECISION_RELEASED:
    case DECISION_UNKNOWN:
    case DECISION_RENEWED:
    case DECISION_RESOLVED:
    case DECISION_ENQUEUED:
    case DECISION_CLAIMED:
    case DECISION_DONE: return false;
    case DECISION_DUPLICATE_REPLAYED:
    case DECISION_IN_PROGRESS:
    case DECISION_HELD_UNKNOWN: return call->request.kind != REQUEST_ENQUEUE; /* it is there */
    case DECISION_CONFLICT_REJECTED:
    case DECISION_NOT_FOUND:
    case DECISION_STALE_FENCE:
    case DECISION_ALREADY_SEALED:
    case DECISION_STILL_RUNNING:
    case DECISION_STALE_VERSION:
    case DECISION_NOT_DUE:
    case DECISION_TOO_LATE:
    case DECISION_WRONG_STATUS:
    case DECISION_NOTHING: return true;
    }
    return true;
}

/* Everything that a dependent group may change, as it was before. */
struct before {
    struct chain chain;
    struct store_counts counts;
    size_t used;
};

static struct before group_begin(const struct cycle *cycle, struct work *work)
{
    work->undo_count = 0;
    return (struct before){cycle->chain, cycle->counts, work->used};
}

/* Undoes the group; each of its calls gets the reason in err. */
static void group_refuse(struct cycle *cycle, struct work *work, const struct before *before,
    struct step *culprit, struct step **end)
{
    struct engine_call *call = culprit->call;
    for (; work->undo_count > 0; work->undo_count--) {
        const struct cycle_undo *undo = &work->undo[work->undo_count - 1];
        *undo->seen = undo->before;
    }
    ASSERT(before->chain.seq <= cycle->chain.seq); /* P10: only back to the start of the group */
    ASSERT(before->used <= work->used);
    cycle->chain = before->chain;
    cycle->counts = before->counts;
    work->used = before->used;
    call->refused = true;
    if (call->err.status == OK) {
        (void)err_set(&call->err, E_UNAVAILABLE, "refused: %s; nothing of its group happened",
            decision_name(call->decision.kind));
    }
    for (struct step **at = end; at-- > work->order && (*at)->group == culprit->group;) {
        (*at)->changes = 0;
        (*at)->next = NULL;
        if (*at != culprit) {
            err_clear(&(*at)->call->err);
            (void)err_set(&(*at)->call->err, E_UNAVAILABLE,
                "a request that it depends on was refused: nothing of its group happened");
        }
    }
}

/* ---- the batch ----------------------------------------------------------------------------- */

/* Decides the steps from `from` on, in order. The members of a dependent group are adjacent. */
static enum status decide_all(struct cycle *cycle, struct work *work, size_t from, struct err *err)
{
    struct before before = {.used = 0};
    enum status status = OK;
    for (size_t i = from; i < work->count && status == OK; i++) {
        struct step *step = work->order[i];
        bool depends = i > from && work->order[i - 1]->group == step->group;
        bool leads = i + 1 < work->count && work->order[i + 1]->group == step->group;
        if (!depends) {
            before = group_begin(cycle, work);
        }
        status = step_decide(cycle, work, step, err);
        if (status == OK && (depends || leads) &&
            (step->call->err.status != OK || refuses(step->call))) {
            ASSERT(!step->call->parked);
            while (i + 1 < work->count && work->order[i + 1]->group == step->group) {
                work->fence_next += takes_fence(work->order[++i]->call);
                step_clear(work->order[i], work->batch.now_ms);
            }
            bool is_decided = step->call->err.status == OK;
            group_refuse(cycle, work, &before, step, work->order + i + 1);
            if (is_decided) {
                step_keep_conflict(cycle, work, step);
            }
        }
    }
    return status;
}

/* The second touch of the store. If there is nothing to commit, it aborts. With `early` it may
 * return before the fate of the commit is known (cycle->pending). */
static enum status commit(struct cycle *cycle, struct work *work, bool early, struct err *err)
{
    struct store *store = cycle->store;
    uint64_t floor = cycle->quarantine.floor;
    ASSERT(work->used <= CHANGES_A_CALL * work->count);
    ASSERT(work->fence_next <= work->batch.fence_first + work->batch.fences); /* P4: none is ours */
    if (work->used == 0 && floor == 0) {
        store->ops->abort(store);
        return OK;
    }
    struct commit all = {.changes = work->changes,
        .count = work->used,
        .fence_floor = floor,
        .ret_stale = work->stale,
        .ret_number = early ? &cycle->pending : NULL};
    enum status status = store_commit(cycle, &all, err);
    if (status == OK) {
        cycle->quarantine.floor = 0;
    }
    return status;
}

/* ---- lost races ---------------------------------------------------------------------------- */

/* Marks the steps that depend on a stale key, and all keys of these steps, until none is new. */
static void spread_stale(const struct work *work)
{
    bool more = true;
    while (more) {
        more = false;
        for (size_t i = 0; i < work->count; i++) {
            struct step *step = work->order[i];
            bool rests =
                (step->key != NULL && step->key->stale) ||
                (step->source != NULL && step->source->stale) ||
                (step->lane != NULL && step->lane->stale) ||
                (step->claims != NULL && step->claims->again) ||
                (i > 0 && work->order[i - 1]->group == step->group && work->order[i - 1]->again) ||
                (i + 1 < work->count && work->order[i + 1]->group == step->group &&
                    work->order[i + 1]->again);
            if (!rests || step->again) {
                continue;
            }
            step->again = more = true;
            if (step->key != NULL) {
                step->key->stale = true;
            }
            if (step->source != NULL) {
                step->source->stale = true;
            }
            if (step->lane != NULL) {
                step->lane->stale = true;
            }
        }
    }
}

static void seen_forget(struct cycle_seen *seen)
{
    if (seen != NULL) {
        *seen = (struct cycle_seen){.turn = seen->turn, .hash = seen->hash};
    }
}

/* Moves the steps that stay to the front and those that are decided again after them. Both keep
 * their order. Returns how many stay. */
static size_t part_steps(const struct work *work)
{
    size_t kept = 0;
    size_t moved = 0;
    for (size_t i = 0; i < work->count; i++) {
        struct step *step = work->order[i];
        if (step->again) {
            work->later[moved++] = step;
            seen_forget(step->key);
            seen_forget(step->source);
            seen_forget(step->lane);
        } else {
            work->order[kept++] = step;
        }
    }
    memcpy(work->order + kept, work->later, moved * sizeof(struct step *));
    ASSERT(kept + moved == work->count);
    return kept;
}

/* Chains the entries of the steps that stay again, from the batch's start, and moves changes up. */
static void rechain(struct cycle *cycle, struct work *work, size_t kept)
{
    work->used = 0;
    for (size_t i = 0; i < kept; i++) {
        struct step *step = work->order[i];
        if (step->changes == 0) {
            continue;
        }
        ASSERT(work->used <= step->first); /* they only move up */
        memmove(&work->changes[work->used], &work->changes[step->first],
            step->changes * sizeof *work->changes);
        step->first = work->used;
        work->used += step->changes;
        chain_append(&cycle->chain, &work->changes[work->used - 1].entry);
        if (step->next != NULL) {
            count_change(cycle, step->found, step->next);
        }
    }
}

/* Runs one more round for the calls that lost a race; with give_up, refuses them instead. */
static enum status run_again(struct cycle *cycle, struct work *work, bool give_up, struct err *err)
{
    for (size_t i = 0; i < work->used; i++) {
        const struct digest *key = change_key(&work->changes[i]);
        /* The key of an entry alone must be wanted again: a store may have locked it (S3). */
        if (key != NULL && (work->stale[i] || work->changes[i].kind == CHANGE_NONE)) {
            seen_of(cycle, key)->stale = true;
        }
    }
    spread_stale(work);
    size_t kept = part_steps(work);
    ASSERT(kept < work->count); /* or the same commit would be tried forever */
    for (size_t i = kept; give_up && i < work->count; i++) {
        struct engine_call *call = work->order[i]->call;
        step_clear(work->order[i], work->batch.now_ms);
        (void)err_set(
            &call->err, E_UNAVAILABLE, "lost %d races for the same records", STALE_ROUNDS_MAX);
    }
    work->count = give_up ? kept : work->count;
    enum status status = prepare(cycle, work, kept, err);
    if (status != OK) {
        return status;
    }
    rechain(cycle, work, kept);
    status = decide_all(cycle, work, kept, err);
    if (status != OK) {
        cycle->store->ops->abort(cycle->store);
        return status;
    }
    return commit(cycle, work, false, err); /* keys that stay are not in this prepare (S14) */
}

/* ---- the interface ------------------------------------------------------------------------- */

/* Allocates a batch and finds its dependent groups. */
static enum status work_begin(struct cycle *cycle, struct work *work,
    struct engine_call *const *calls, size_t count, struct err *err)
{
    struct arena *arena = &cycle->arena;
    bool depend = false;
    *work = (struct work){.count = count,
        .steps = arena_alloc(arena, count * sizeof *work->steps),
        .order = arena_alloc(arena, count * sizeof *work->order),
        .later = arena_alloc(arena, count * sizeof *work->later),
        .changes = arena_alloc(arena, CHANGES_A_CALL * count * sizeof *work->changes),
        .stale = arena_alloc(arena, CHANGES_A_CALL * count * sizeof *work->stale)};
    if (work->steps == NULL || work->order == NULL || work->later == NULL ||
        work->changes == NULL || work->stale == NULL) {
        return err_set(err, E_NOMEM, "out of memory for a batch");
    }
    for (size_t i = 0; i < count; i++) {
        ASSERT(calls[i]->query == NULL);
        bool depends = i > 0 && calls[i]->needs_previous;
        ASSERT(i > 0 || !calls[i]->claims_previous); /* a group is never split */
        work->steps[i] = (struct step){.call = calls[i],
            .group = depends ? work->steps[i - 1].group : i,
            .claims = calls[i]->claims_previous ? &work->steps[i - 1] : NULL};
        work->order[i] = &work->steps[i];
        calls[i]->decided = 0;
        depend = depend || depends;
    }
    if (depend) {
        work->undo = arena_alloc(arena, CHANGES_A_CALL * count * sizeof *work->undo);
        return work->undo == NULL ? err_set(err, E_NOMEM, "out of memory for a batch") : OK;
    }
    return OK;
}

/* The store finds out later whether the commit happened. Calls that are not in it (refused or
 * waiting) stay as they are. */
static enum status leave_unsettled(
    struct engine_call *const *calls, size_t count, const struct err *err)
{
    for (size_t i = 0; i < count; i++) {
        if (calls[i]->err.status == OK && !calls[i]->parked) {
            (void)err_set(&calls[i]->err, E_UNKNOWN, "%s", err == NULL ? "" : err->text);
        }
    }
    return OK;
}

static void count_backlog(struct cycle *cycle, const struct work *work)
{
    ASSERT(!cycle->store->ops->shared); /* other processes' commits would be missed */
    for (size_t i = 0; i < work->count; i++) {
        const struct step *step = work->order[i];
        if (step->next != NULL && step->changes > 0) {
            backlog_change(cycle->backlog, step->found, step->next);
        }
    }
}

enum status cycle_run(
    struct cycle *cycle, struct engine_call *const *calls, size_t count, struct err *err)
{
    struct work work;
    ASSERT(count > 0 && count <= LIMIT_BATCH_REQUESTS_MAX);
    next_turn(cycle);
    struct store_counts counts = cycle->counts;
    cycle->pending = 0;
    enum status status = work_begin(cycle, &work, calls, count, err);
    status = status == OK ? prepare(cycle, &work, 0, err) : status;
    struct chain before = cycle->chain; /* as prepare left it */
    bool is_prepared = status == OK;
    if (is_prepared) {
        status = decide_all(cycle, &work, 0, err);
        if (status == OK) {
            status = commit(cycle, &work, true, err);
        } else {
            cycle->store->ops->abort(cycle->store);
        }
    }
    for (int round = 1; status == E_STALE; round++) {
        cycle->chain = before;
        status = run_again(cycle, &work, round >= STALE_ROUNDS_MAX, err);
    }
    if (status != OK) {
        cycle->chain = before; /* nothing was written, or nothing will be written after it (EN5) */
        cycle->counts = counts;
    } else if (cycle->backlog != NULL) {
        count_backlog(cycle, &work);
    }
    return is_prepared && status == E_UNKNOWN && cycle->unsettled
               ? leave_unsettled(calls, count, err)
               : status;
}

/* Composes, with the store's time, and commits an entry that belongs to no call: of a removal, or a
 * checkpoint that this identity signs. */
static enum status add_entry(struct cycle *cycle, const struct store_removable *removable,
    const struct store_identity *identity, struct err *err)
{
    struct store *store = cycle->store;
    struct store_batch time = {.count = 0, .arena = &cycle->arena};
    struct change change = {.kind = CHANGE_NONE};
    struct commit one = {.changes = &change, .count = 1};
    struct checkpoint_tie ties[CHECKPOINT_TIES_MAX];
    size_t tie_count = 0;
    enum status status = identity == NULL ? OK
                                          : checkpoint_ties_read(store, cycle->chain.chain_id, ties,
                                                &tie_count, err);
    status = status == OK ? store_prepare(cycle, &time, err) : status;
    if (status != OK) {
        return status;
    }
    struct chain before = cycle->chain;
    buf_clear(&cycle->text);
    status = removable != NULL ? entry_compose_archived(&cycle->chain, removable, time.now_ms,
                                     &cycle->text, &change.entry)
                               : checkpoint_compose_tied(&cycle->chain, identity, time.now_ms, ties,
                                     tie_count, &cycle->text, &change.entry, err);
    if (status != OK) {
        store->ops->abort(store);
        return removable != NULL ? err_set(err, status, "out of memory for evidence") : status;
    }
    status = store_commit(cycle, &one, err);
    if (status != OK) {
        cycle->chain = before;
    }
    if (status == E_UNKNOWN && cycle->unsettled) { /* a second one would do no harm */
        return err_set(err, E_UNAVAILABLE, "it is not known yet whether an entry was added");
    }
    return status;
}

enum status cycle_archive(
    struct cycle *cycle, const struct store_removable *removable, struct err *err)
{
    ASSERT(removable->place != 0);
    return add_entry(cycle, removable, NULL, err);
}

enum status cycle_checkpoint(
    struct cycle *cycle, const struct store_identity *identity, struct err *err)
{
    ASSERT(identity != NULL);
    return add_entry(cycle, NULL, identity, err);
}
