#include "door/door.h"

#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include "base/check.h"
#include "base/macros.h"

enum {
    DRAIN_NANOS = 1000000000, /* refused duplicates become evidence about once a second */
    NOTES_MAX = 1024,         /* flood notes in the engine at a time; any more are only logged */
    WAITING_MAX = 256,        /* calls of a loop turn: one lock for this many is cheap enough */
    STANDSTILL_MS = 1000,     /* tolerated between a grant and its call: less than the margin by
                                 which a lease outlasts the call */
};

/* The calls that one thread gathers in a turn. Only that thread uses it, except that the engine
 * nudges its seat. */
struct door_slot {
    struct engine_seat seat;
    struct door *door;
    unsigned number;
    atomic_bool is_nudged;                    /* it has been asked to lead, and has not come yet */
    bool is_watching;                         /* a flush that it began is under way */
    struct engine_call *waiting[WAITING_MAX]; /* until the end of the turn */
    struct door_group *groups[WAITING_MAX];   /* of each; NULL: it is a door_call */
    size_t waiting_count;
};

struct door {
    const struct mem *mem;
    struct engine *engine;
    struct log *log;                             /* may be NULL */
    unsigned slots;                              /* of threads that submit */
    void (*nudge)(void *context, unsigned slot); /* may be NULL */
    void *nudge_context;
    bool (*watch)(void *context, unsigned slot, int fd); /* may be NULL */
    struct door_slot *turns;                             /* of each slot */
    struct metrics *metrics;
    struct flood *flood;
    _Atomic uint64_t drained_nanos; /* when the flood was last drained */
    _Atomic unsigned notes;         /* flood notes on their way into the evidence */
};

struct engine *door_engine(const struct door *door)
{
    return door->engine;
}

struct log *door_log(const struct door *door)
{
    return door->log;
}

struct metrics *door_metrics(const struct door *door)
{
    return door->metrics;
}

struct flood *door_flood(const struct door *door)
{
    return door->flood;
}

/* ---- notes for the evidence ---------------------------------------------------------------- */

/* The refused duplicates of one key, on their way into the evidence. */
struct flood_note {
    struct engine_call call; /* first */
    struct note note;
    struct door *door;
    struct arena arena;
};

static void flood_note_free(struct flood_note *note)
{
    struct door *door = note->door;
    arena_release(&note->arena);
    mem_free(door->mem, note);
    atomic_fetch_sub(&door->notes, 1);
}

static void flood_noted(struct engine_call *call)
{
    flood_note_free(CONTAINER_OF(call, struct flood_note, call));
}

static enum status copy_key(
    struct arena *arena, const struct record_key *from, struct record_key *ret_key)
{
    *ret_key = *from;
    if (arena_copy(arena, from->tenant, &ret_key->tenant) != OK ||
        arena_copy(arena, from->scope, &ret_key->scope) != OK ||
        arena_copy(arena, from->principal, &ret_key->principal) != OK ||
        arena_copy(arena, from->key, &ret_key->key) != OK) {
        return E_NOMEM;
    }
    return OK;
}

static struct flood_note *flood_note_new(
    struct door *door, const struct record_key *key, uint64_t refused)
{
    struct flood_note *note = mem_zalloc(door->mem, 1, sizeof *note);
    if (note == NULL) {
        return NULL;
    }
    atomic_fetch_add(&door->notes, 1);
    note->door = door;
    arena_init(&note->arena, door->mem, 1 << 20);
    note->note = (struct note){.kind = NOTE_DUPLICATES, .count = refused};
    if (copy_key(&note->arena, key, &note->note.key) != OK) {
        flood_note_free(note);
        return NULL;
    }
    note->note.tenant = note->note.key.tenant;
    note->call =
        (struct engine_call){.note = &note->note, .arena = &note->arena, .done = flood_noted};
    return note;
}

static void log_lost(struct door *door, const struct record_key *key, uint64_t refused)
{
    struct log_field fields[] = {LOG_TEXT("tenant", key->tenant), LOG_TEXT("scope", key->scope),
        LOG_TEXT("idempotency_key", key->key), LOG_NUMBER("refused", refused)};
    log_event(door->log, LOG_WARN, "flood_not_in_evidence", fields, COUNT(fields));
}

static void flood_refused(void *context, const struct record_key *key, uint64_t refused)
{
    struct door *door = context;
    struct flood_note *note = NULL;
    if (atomic_load(&door->notes) < NOTES_MAX) {
        note = flood_note_new(door, key, refused);
    }
    if (note == NULL) {
        log_lost(door, key, refused);
    } else if (engine_submit(door->engine, &note->call, NULL) != OK) {
        log_lost(door, key, refused);
        flood_note_free(note);
    }
}

/* ---- to the engine ------------------------------------------------------------------------- */

/* By the engine, under its lock, while a call of this slot waits there: its thread is alive. */
static void slot_nudge(struct engine_seat *seat)
{
    struct door_slot *slot = CONTAINER_OF(seat, struct door_slot, seat);
    if (!atomic_exchange(&slot->is_nudged, true)) {
        slot->door->nudge(slot->door->nudge_context, slot->number);
    }
}

/* By the engine, on the slot's thread, which leads. */
static bool slot_watch(struct engine_seat *seat, int fd)
{
    struct door_slot *slot = CONTAINER_OF(seat, struct door_slot, seat);
    const struct door *door = slot->door;
    ASSERT(fd >= 0); /* it may be watching: the engine's thread landed the flight before */
    slot->is_watching = door->watch(door->nudge_context, slot->number, fd);
    return slot->is_watching;
}

static void slot_land(struct door *door, struct door_slot *slot)
{
    if (slot->is_watching && engine_land(door->engine, &slot->seat)) {
        slot->is_watching = false;
        (void)door->watch(door->nudge_context, slot->number, -1);
    }
}

static void refuse(struct engine_call *first, struct door_group *group, const struct err *err)
{
    if (group != NULL) {
        group->refused(group, err);
        return;
    }
    struct door_call *call = CONTAINER_OF(first, struct door_call, engine);
    call->engine.err = *err;
    call->refused(call);
}

/* Submits calls, and leads if that is possible, also for others that wait. */
static void submit_lead(struct door *door, struct door_slot *slot, struct engine_call *const *calls,
    struct door_group *const *groups, size_t count)
{
    size_t at = 0;
    do {
        struct err err = {.status = OK};
        size_t taken;
        enum status status =
            engine_submit_seated(door->engine, &slot->seat, calls + at, count - at, &taken, &err);
        at += taken;
        if (status != OK) {
            size_t first = at;
            at += groups[first] == NULL ? 1 : groups[first]->count;
            refuse(calls[first], groups[first], &err);
        }
    } while (at < count);
}

/* Submits what the slot has gathered. */
static void submit_gathered(struct door *door, unsigned number)
{
    struct door_slot *slot = &door->turns[number];
    struct engine_call *waiting[WAITING_MAX];
    struct door_group *groups[WAITING_MAX];
    size_t count = slot->waiting_count;
    /* A copy: a refused call may lead to the next call of its connection. */
    memcpy(waiting, slot->waiting, count * sizeof *waiting);
    memcpy(groups, slot->groups, count * sizeof *groups);
    slot->waiting_count = 0;
    submit_lead(door, slot, waiting, groups, count);
}

static void gather(struct door_slot *slot, struct engine_call *call, struct door_group *group)
{
    ASSERT(slot->waiting_count < WAITING_MAX);
    slot->groups[slot->waiting_count] = group;
    slot->waiting[slot->waiting_count++] = call;
}

/* A duplicate counts when it begins to wait: otherwise a flood of them could wait unseen until the
 * first one is answered. */
static void count_waiting(struct engine_call *engine)
{
    struct door_call *call = CONTAINER_OF(engine, struct door_call, engine);
    if (call->rate.per_second > 0 && !call->is_counted) {
        flood_count(call->door->flood, &engine->request.key, call->rate, clock_nanos());
        call->is_counted = true;
    }
}

void door_submit(struct door *door, unsigned slot, struct door_call *call)
{
    ASSERT(slot < door->slots);
    call->door = door;
    call->engine.waits = count_waiting;
    struct door_slot *turn = &door->turns[slot];
    call->engine.group_left = 0;
    call->engine.seat = &turn->seat;
    while (turn->waiting_count == WAITING_MAX) {
        submit_gathered(door, slot);
    }
    gather(turn, &call->engine, NULL);
}

/* More calls than a slot gathers. */
static void submit_large(struct door *door, struct door_group *group)
{
    struct err err = {.status = OK};
    size_t taken;
    if (engine_submit_lead(door->engine, group->calls, group->count, &taken, &err) != OK) {
        group->refused(group, &err);
    }
}

void door_submit_group(struct door *door, unsigned slot, struct door_group *group)
{
    ASSERT(slot < door->slots && group->count > 0);
    struct door_slot *turn = &door->turns[slot];
    for (size_t i = 0; i < group->count; i++) {
        struct engine_call *call = group->calls[i];
        call->group_left = (uint32_t)(group->count - 1 - i);
        call->seat = call->query == NULL ? &turn->seat : NULL;
    }
    if (group->count > WAITING_MAX) {
        submit_large(door, group);
        return;
    }
    while (turn->waiting_count + group->count > WAITING_MAX) {
        submit_gathered(door, slot);
    }
    for (size_t i = 0; i < group->count; i++) {
        gather(turn, group->calls[i], group);
    }
}

void door_turn(struct door *door, unsigned slot)
{
    ASSERT(slot < door->slots);
    struct door_slot *turn = &door->turns[slot];
    bool is_nudged = atomic_exchange(&turn->is_nudged, false);
    slot_land(door, turn);
    if (turn->waiting_count > 0 || is_nudged) {
        submit_gathered(door, slot);
    }
    uint64_t now = clock_nanos();
    uint64_t last = atomic_load_explicit(&door->drained_nanos, memory_order_relaxed);
    /* One slot a second wins the right to drain. */
    if (now - last >= DRAIN_NANOS &&
        atomic_compare_exchange_strong(&door->drained_nanos, &last, now)) {
        flood_drain(door->flood, flood_refused, door);
    }
}

void door_end(struct door *door, unsigned slot)
{
    ASSERT(slot < door->slots);
    struct door_slot *turn = &door->turns[slot];
    turn->seat.watch = NULL;
    engine_unseat(door->engine, &turn->seat);
    slot_land(door, turn);
}

bool door_admit(
    struct door *door, const struct record_key *key, struct flood_rate rate, int64_t *ret_after_ms)
{
    int64_t after_ms = 0;
    if (rate.per_second <= 0 || !flood_refuse(door->flood, key, rate, clock_nanos(), &after_ms)) {
        return true;
    }
    *ret_after_ms = after_ms < 1 ? 1 : after_ms;
    return false;
}

/* ---- grants --------------------------------------------------------------------------------- */

struct door_grant door_grant_of(const struct engine_call *granted)
{
    return (struct door_grant){.now_ms = granted->now_ms,
        .boot_ms = granted->boot_before_ms,
        .lease_expires_ms = granted->decision.next.lease_expires_ms};
}

/* Within a moment the lease cannot have ended. After longer, the boot clock and the engine's time
 * must agree that it has not, because the engine's may have been stepped. */
bool door_grant_covers(
    const struct door *door, const struct door_grant *grant, int64_t boot_ms, int64_t call_ms)
{
    int64_t since_ms = boot_ms - grant->boot_ms;
    int64_t begin_until_ms = grant->lease_expires_ms - call_ms;
    struct engine_stats stats;
    if (since_ms < STANDSTILL_MS) {
        return true;
    }
    engine_stats(door->engine, &stats);
    return grant->now_ms + since_ms < begin_until_ms && stats.now_ms < begin_until_ms;
}

/* ---- reporting ------------------------------------------------------------------------------ */

/* Duplicates in the sense of a flood: each adds an entry and changes nothing. */
static bool is_duplicate(const struct engine_call *call)
{
    return call->request.kind == REQUEST_BEGIN && call->decision.kind != DECISION_FIRST_SEEN;
}

/* The name of the decision; NULL: there was none. */
static const char *decided(const struct door_report *report)
{
    if (report->flooded_ms > 0) {
        return "duplicate_refused";
    }
    return report->call->err.status != OK ? NULL : decision_name(report->call->decision.kind);
}

/* The key in the call, or the record's own for calls by operation. Empty when absent. */
static const struct record_key *key_of(const struct engine_call *call)
{
    const struct decision *decision = &call->decision;
    bool by_id = call->request.kind != REQUEST_BEGIN;
    return by_id && decision->next.fence > 0 ? &decision->next.key : &call->request.key;
}

static void log_decision(struct door *door, const struct door_report *report, const char *word)
{
    const struct engine_call *call = report->call;
    const struct record *record = &call->decision.next;
    const struct record_key *key = key_of(call);
    const struct source *source =
        call->request.kind == REQUEST_BEGIN ? &call->request.source : &record->source;
    char id[KIND_ID_TEXT_BYTES] = "";
    bool is_there = report->flooded_ms == 0 && record->fence > 0;
    bool is_effect = is_there && record->kind == RECORD_EFFECT;
    if (is_there) { /* spelled as in evidence and the API: op_, cmd_, eff_ or dlv_ */
        (void)kind_id_put(id, record->kind, &record->operation_id);
    }
    struct log_field fields[] = {
        LOG_TEXT("decision", slice_str(word)),
        LOG_TEXT("request", slice_str(request_kind_name(call->request.kind))),
        LOG_TEXT("tenant", report->tenant), LOG_TEXT("scope", key->scope),
        LOG_TEXT("idempotency_key", key->key), LOG_TEXT("operation_id", slice_str(id)),
        LOG_TEXT(
            is_effect ? "provider_ref" : "effect_id", is_there ? record->effect_id : SLICE_EMPTY),
        LOG_TEXT("source_type", source->type), LOG_TEXT("source_id", source->id),
        LOG_TEXT("request_id", report->request_id), LOG_TEXT("trace_id", report->trace_id),
        LOG_TEXT("actor", report->actor),
        LOG_NUMBER("duration_us", (clock_nanos() - report->started_nanos) / 1000),
        LOG_NUMBER("status", report->status), /* last: left out while there is no answer */
    };
    size_t count = COUNT(fields) - (report->status == 0);
    log_event(door->log, LOG_INFO, "decision", fields, count);
}

static void log_failure(struct door *door, const struct door_report *report)
{
    struct log_field fields[] = {
        LOG_TEXT("text", slice_str(report->call->err.text)),
        LOG_TEXT("tenant", report->tenant),
        LOG_TEXT("request_id", report->request_id),
        LOG_NUMBER("status", report->status),
    };
    log_event(door->log, LOG_ERROR, "request_failed", fields, COUNT(fields));
}

/* A gateway's operation that an operator settles is counted apart from its route, which is not
 * known here; its scope is a path with ids in it. */
static struct slice label_of(const struct door_report *report)
{
    if (report->label.len > 0) {
        return report->label;
    }
    bool is_gateways = report->call->decision.next.door == RECORD_DOOR_GATEWAY;
    return is_gateways ? SLICE_LIT("_other") : key_of(report->call)->scope;
}

static void count_decision(
    struct door *door, unsigned slot, const struct door_report *report, const char *word)
{
    const struct decision *decision = &report->call->decision;
    bool is_decided = report->flooded_ms == 0;
    bool seals = is_decided && decision->kind == DECISION_SEALED && !decision->repeated;
    struct metrics_decision counted = {
        .tenant = report->tenant,
        .scope = label_of(report),
        .decision = word,
        .first_to_seal_ms = seals ? decision->next.sealed_ms - decision->next.created_ms : -1,
        .diff_bytes = report->diff_bytes,
        .is_conflict = is_decided && decision->kind == DECISION_CONFLICT_REJECTED,
    };
    metrics_decision(door->metrics, slot, &counted);
    if (is_decided && is_duplicate(report->call) && !report->was_counted &&
        report->rate.per_second > 0) {
        flood_count(door->flood, &report->call->request.key, report->rate, clock_nanos());
    }
}

void door_report(struct door *door, unsigned slot, const struct door_report *report)
{
    ASSERT(slot < door->slots);
    const char *word = decided(report);
    if (word == NULL) {
        log_failure(door, report);
        return;
    }
    count_decision(door, slot, report, word);
    if (report->logs && log_wants(door->log, LOG_INFO)) {
        log_decision(door, report, word);
    }
}

/* ---- creation and release ------------------------------------------------------------------ */

enum status door_new(const struct door_options *options, struct door **ret_door, struct err *err)
{
    const struct mem *mem = options->mem == NULL ? &mem_libc : options->mem;
    struct door *door = mem_zalloc(mem, 1, sizeof *door);
    if (door == NULL) {
        return err_set(err, E_NOMEM, "out of memory");
    }
    door->mem = mem;
    door->engine = options->engine;
    door->log = options->log;
    door->slots = options->slots;
    door->nudge = options->nudge;
    door->nudge_context = options->nudge_context;
    door->watch = options->watch;
    atomic_init(&door->drained_nanos, clock_nanos());
    door->turns = mem_zalloc(mem, options->slots, sizeof *door->turns);
    door->metrics = metrics_new(mem, options->slots);
    door->flood = flood_new(mem);
    if (door->turns == NULL || door->metrics == NULL || door->flood == NULL) {
        door_free(door);
        return err_set(err, E_NOMEM, "out of memory");
    }
    for (unsigned i = 0; i < options->slots; i++) {
        door->turns[i].seat.nudge = options->nudge == NULL ? NULL : slot_nudge;
        door->turns[i].seat.watch = options->watch == NULL ? NULL : slot_watch;
        door->turns[i].door = door;
        door->turns[i].number = i;
    }
    *ret_door = door;
    return OK;
}

void door_free(struct door *door)
{
    if (door == NULL) {
        return;
    }
    if (door->flood != NULL) {
        flood_drain(door->flood, flood_refused, door);
    }
    /* The engine calls back for every note it took, and needs nothing of the door's to do so. */
    while (atomic_load(&door->notes) > 0) {
        (void)sched_yield();
    }
    flood_free(door->flood);
    metrics_free(door->metrics);
    mem_free(door->mem, door->turns);
    mem_free(door->mem, door);
}
