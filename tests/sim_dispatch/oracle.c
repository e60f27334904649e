/*
 * What must hold, said apart from the dispatcher: from what is stored, what the provider saw and
 * what it did.
 */
#include "base/check.h"
#include "sim_dispatch.h"

/* ---- what is stored ------------------------------------------------------------------------ */

bool oracle_stored(
    enum record_kind kind, const struct op_id *id, struct arena *arena, struct record *ret_record)
{
    struct query query = {.kind = QUERY_OPERATION,
        .any_tenant = true,
        .kinds = STORE_KIND(kind),
        .operation_id = *id,
        .call = {.arena = arena}};
    ASSERT(query_run(sim->reader, &query) == OK);
    if (query.record != NULL) {
        *ret_record = *query.record;
    }
    return query.record != NULL;
}

static bool stored(const struct sim_effect *effect, struct arena *arena, struct record *ret_record)
{
    return oracle_stored(RECORD_EFFECT, &effect->id, arena, ret_record);
}

/* ---- order --------------------------------------------------------------------------------- */

/* Committed: from now on it has its place. */
void oracle_enqueued(const struct engine_call *call)
{
    const struct record *next = &call->decision.next;
    if (call->err.status != OK || call->decision.kind != DECISION_ENQUEUED) {
        return;
    }
    for (int i = 0; i < SIM_EFFECTS_ALL; i++) {
        struct sim_effect *effect = &sim->effects[i];
        if (slice_is(next->key.key, effect->key)) {
            ASSERT(!effect->is_known); /* nothing is enqueued twice here */
            effect->id = next->operation_id;
            effect->is_known = true;
            effect->created = ++sim->joined;
        }
    }
}

/* An ordered effect is sent: every earlier one of its lane is over, or only a person can have it
 * sent again. */
static void check_order(const struct sim_effect *sent, struct arena *arena)
{
    if (sent->type != TYPE_LANE) {
        return;
    }
    if (sent->is_passed) {
        sim_violate("%s was sent after a later one of its lane", sent->key);
    }
    for (int i = 0; i < SIM_EFFECTS_ALL; i++) {
        struct sim_effect *effect = &sim->effects[i];
        struct record record;
        if (effect->type != TYPE_LANE || effect->lane != sent->lane ||
            effect->created >= sent->created || !effect->is_known ||
            !stored(effect, arena, &record)) {
            continue;
        }
        sim_note(SOMETIMES_IN_LANES);
        if (record.status == RECORD_PENDING || record.status == RECORD_IN_PROGRESS) {
            sim_violate("%s was sent before %s of its lane was over", sent->key, effect->key);
        } else if (record.status == RECORD_UNKNOWN || record.status == RECORD_DEAD) {
            effect->is_passed = true;
            sim_note(SOMETIMES_PARKED);
        }
    }
}

/* ---- attempts ------------------------------------------------------------------------------ */

/* P6: the claim that the attempt rests on is stored, and is this process's. */
static void check_attempt(
    struct sim_effect *effect, const struct sim_wire *wire, const struct dispatching *run)
{
    struct arena arena;
    struct record record = {.version = 0};
    uint64_t incarnation = sim->processes[wire->process].engine.janitor.incarnation;
    arena_init(&arena, &mem_libc, 1 << 22);
    bool is_there = stored(effect, &arena, &record);
    effect->sent++;
    if (!is_there || record.status != RECORD_IN_PROGRESS || record.holder != incarnation ||
        record.fence != run->record.fence) {
        sim_violate("P6: %s was sent without a durable claim", effect->key);
    }
    if ((int)record.attempt < effect->sent || effect->sent > SIM_ATTEMPTS) {
        sim_violate("attempt %d of %s is counted as %u of %d", effect->sent, effect->key,
            record.attempt, SIM_ATTEMPTS);
    }
    sim->sometimes[SOMETIMES_SENT_AGAIN] += effect->effects > 0;
    check_order(effect, &arena);
    arena_release(&arena);
}

/* A pause is kept, and after it one call goes alone. Calls that were admitted before it do not
 * count: their claim may have taken a while. */
static void check_breaker(struct sim_wire *wire, const struct dispatching *run)
{
    enum sim_type type = sim->effects[wire->effect].type;
    struct sim_breaker *breaker = &sim->processes[wire->process].breakers[type];
    wire->admitted_ms =
        wire->asks ? sim->now_ms
                   : sim->now_ms - (int64_t)((clock_nanos() - run->started_nanos) / 1000000);
    if (!breaker->is_open || wire->admitted_ms <= breaker->opened_ms) {
        return;
    }
    sim_note(SOMETIMES_PROBES);
    if (wire->admitted_ms < breaker->opened_ms + SIM_PAUSE_MS) {
        sim_violate("the breaker of connector %d is open, and %s was sent", type,
            sim->effects[wire->effect].key);
    }
    for (int i = 0; i < sim->wire_count; i++) {
        const struct sim_wire *other = &sim->wires[i];
        if (other != wire && other->out != NULL && other->process == wire->process &&
            other->command < 0 && other->event < 0 && sim->effects[other->effect].type == type &&
            other->admitted_ms > breaker->opened_ms) {
            sim_violate("two probes of connector %d at once", type);
        }
    }
}

void oracle_begins(struct sim_wire *wire, const struct dispatching *run)
{
    check_breaker(wire, run);
    if (!wire->asks) {
        check_attempt(&sim->effects[wire->effect], wire, run);
    }
}

static void open_breaker(struct sim_breaker *breaker)
{
    breaker->is_open = true;
    breaker->opened_ms = sim->now_ms;
    breaker->failures = 0;
    sim_note(SOMETIMES_BREAKERS);
}

void oracle_ends(const struct sim_wire *wire, bool is_well)
{
    enum sim_type type = sim->effects[wire->effect].type;
    struct sim_breaker *breaker = &sim->processes[wire->process].breakers[type];
    if (breaker->is_open && wire->admitted_ms > breaker->opened_ms) {
        breaker->is_open = !is_well;
        breaker->closed_ms = sim->now_ms;
        if (!is_well) {
            open_breaker(breaker);
        }
    } else if (!breaker->is_open && wire->admitted_ms >= breaker->closed_ms) {
        /* In the millisecond of the closing too: before it, only the probe was admitted. */
        breaker->failures = is_well ? 0 : breaker->failures + 1;
        if (breaker->failures == SIM_FAILURES) {
            open_breaker(breaker);
        }
    }
}

/* ---- the end ------------------------------------------------------------------------------- */

static void end_uncertain(const struct sim_effect *effect, const struct record *record)
{
    sim_note(SOMETIMES_UNCERTAIN);
    bool is_late = effect->first_ms > 0 && sim->now_ms > effect->first_ms + SIM_KEEPS_MS;
    sim->sometimes[SOMETIMES_PAST_KEEPS] += is_late && (int)record->attempt < SIM_ATTEMPTS;
    if (effect->type == TYPE_ASKED) {
        sim_violate("%s is uncertain, and the provider could be asked", effect->key);
    }
}

/* Exactly 1 where the provider could do its part, never 2, and the rest uncertain. */
void oracle_end(void)
{
    struct arena arena;
    arena_init(&arena, &mem_libc, 1 << 26);
    for (int i = 0; i < SIM_EFFECTS_ALL; i++) {
        const struct sim_effect *effect = &sim->effects[i];
        struct record record;
        if (!effect->is_known) {
            continue; /* its program was killed before the commit */
        }
        if (!stored(effect, &arena, &record)) {
            sim_violate("%s is forgotten", effect->key);
            continue;
        }
        if (record.status == RECORD_EXECUTED) {
            sim_note(SOMETIMES_ACKNOWLEDGED);
            if (effect->effects != 1) {
                sim_violate(
                    "%s is acknowledged and happened %d times", effect->key, effect->effects);
            }
        } else if (record.status == RECORD_FAILED || record.status == RECORD_DEAD) {
            sim_note(record.status == RECORD_DEAD ? SOMETIMES_DEAD : SOMETIMES_FAILED);
            if (effect->effects != 0) {
                sim_violate(
                    "%s is %s and happened", effect->key, record_status_name(record.status));
            }
        } else if (record.status == RECORD_UNKNOWN) {
            end_uncertain(effect, &record);
        } else {
            sim_violate(
                "%s is still %s at the end", effect->key, record_status_name(record.status));
        }
    }
    arena_release(&arena);
}
