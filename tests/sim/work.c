/*
 * Work that Once performs itself: orders, each a command and the effect that it waits for. Workers
 * enqueue, claim, retry, give up, wait, wake, cancel, take up, resolve and compensate at random,
 * and die in between; the provider counts. Calls that depend on each other go into one group.
 */
#include "base/check.h"
#include "sim.h"

enum { LEASE_MS = 60000, WINDOW_MS = 3600000, ATTEMPTS_MAX = 3 };

void work_init(struct sim *sim)
{
    static const char *const names[SIM_ORDERS] = {"w0", "w1", "w2"};
    for (int i = 0; i < SIM_ORDERS; i++) {
        struct record_key key = {.tenant = SLICE_LIT("work"), .key = slice_str(names[i])};
        struct sim_order *order = &sim->orders[i];
        order->keys[PART_COMMAND] = order->keys[PART_EFFECT] = key;
        ASSERT(record_key_seal_as(&order->keys[PART_COMMAND], RECORD_COMMAND, NULL) == OK);
        ASSERT(record_key_seal_as(&order->keys[PART_EFFECT], RECORD_EFFECT, NULL) == OK);
    }
}

static struct sim_call *make(
    struct sim *sim, int worker, int order, enum sim_part part, enum request_kind kind)
{
    struct sim_call *call = actor_call(sim, FROM_WORKER, 0, kind);
    struct request *request = &call->call.request;
    call->worker = worker;
    call->order = order;
    call->part = part;
    request->key = sim->orders[order].keys[part];
    if (request_by_key(kind)) {
        request->record_kind = part == PART_COMMAND ? RECORD_COMMAND : RECORD_EFFECT;
        request->policy.window_ms = WINDOW_MS;
        request->door = part == PART_COMMAND ? RECORD_DOOR_COMMANDS : RECORD_DOOR_EFFECTS;
    } else {
        request->operation_id = sim->orders[order].ids[part];
    }
    if (kind == REQUEST_CLAIM) { /* no holder: workers outlive the process, as clients do */
        request->policy.lease_ms = LEASE_MS;
    }
    return call;
}

static void send(struct sim *sim, struct sim_call *call, bool depends)
{
    call->call.needs_previous = depends;
    sim->workers[call->worker].waiting++;
    sim_submit(sim, call);
}

/* A command and its effect are made together. */
static void send_order(struct sim *sim, int worker, int order)
{
    struct sim_call *command = make(sim, worker, order, PART_COMMAND, REQUEST_ENQUEUE);
    struct sim_call *effect = make(sim, worker, order, PART_EFFECT, REQUEST_ENQUEUE);
    effect->call.request.parent = sim->orders[order].ids[PART_COMMAND];
    effect->call.request.delay_ms = sim_draw_ms(sim, 2000);
    send(sim, command, false);
    send(sim, effect, true);
}

/* The worker's fence, to end its grant with. */
static struct sim_call *settle(struct sim *sim, int worker, enum request_kind kind)
{
    struct sim_worker *self = &sim->workers[worker];
    struct sim_call *call = make(sim, worker, self->order, self->part, kind);
    call->call.request.operation_id = self->id;
    call->call.request.fence = self->fence;
    call->call.request.delay_ms = sim_draw_ms(sim, 3000);
    call->call.request.policy.attempts_max = ATTEMPTS_MAX;
    return call;
}

static void finish(struct sim *sim, int worker)
{
    struct sim_worker *self = &sim->workers[worker];
    uint64_t draw = prng_below(&sim->prng, 10);
    self->settling = true; /* from now on it must not act: it may have been believed */
    if (draw == 0) {
        self->fence = 0; /* dies: only its lease tells */
        return;
    }
    if (self->part == PART_COMMAND) {
        send(sim, settle(sim, worker, draw < 8 ? REQUEST_WAIT : REQUEST_RETRY), false);
    } else if (!self->acted) {
        send(sim, settle(sim, worker, draw < 8 ? REQUEST_RETRY : REQUEST_GIVE_UP), false);
    } else {
        /* The acknowledgement and its command's last step: all or none. */
        struct sim_call *seal = settle(sim, worker, REQUEST_SEAL);
        seal->call.request.status = RECORD_EXECUTED;
        send(sim, seal, false);
        if (draw < 8) {
            struct sim_call *wake = make(sim, worker, self->order, PART_COMMAND, REQUEST_WAKE);
            wake->call.request.status = RECORD_EXECUTED;
            send(sim, wake, true);
        }
    }
}

static bool held_by_somebody(const struct sim *sim, int order, enum sim_part part)
{
    for (int i = 0; i < SIM_WORKERS; i++) {
        const struct sim_worker *worker = &sim->workers[i];
        if ((worker->fence != 0 || worker->waiting > 0) && worker->order == order &&
            worker->part == part) {
            return true;
        }
    }
    return false;
}

/* Somebody asks the provider about an attempt that nobody works on any more. */
static void send_resolve(struct sim *sim, int worker, int order, enum sim_part part)
{
    const struct op_id *id = &sim->orders[order].ids[part];
    if (op_id_absent(id) || held_by_somebody(sim, order, part)) {
        return;
    }
    const struct sim_operation *operation = oracle_operation(sim, id, 0);
    struct sim_call *call = make(sim, worker, order, part, REQUEST_RESOLVE);
    call->call.request.fence = operation->fence_any;
    call->call.request.status = operation->effects > 0 ? RECORD_EXECUTED : RECORD_PENDING;
    send(sim, call, false);
}

static void send_any(struct sim *sim, int worker)
{
    static const enum request_kind kinds[] = {REQUEST_CANCEL, REQUEST_TAKE_UP, REQUEST_COMPENSATE,
        REQUEST_COMPENSATION_SETTLE, REQUEST_GIVE_UP, REQUEST_POSTPONE};
    struct sim_worker *self = &sim->workers[worker];
    uint64_t draw = prng_below(&sim->prng, 20);
    self->order = (int)prng_below(&sim->prng, SIM_ORDERS);
    self->part = prng_once_in(&sim->prng, 3) ? PART_COMMAND : PART_EFFECT;
    if (draw < 4 || op_id_absent(&sim->orders[self->order].ids[self->part])) {
        send_order(sim, worker, self->order);
    } else if (draw < 14) {
        send(sim, make(sim, worker, self->order, self->part, REQUEST_CLAIM), false);
    } else if (draw < 17) {
        int order = self->order;
        self->order = -1;
        send_resolve(sim, worker, order, self->part);
    } else {
        struct sim_call *call =
            make(sim, worker, self->order, self->part, kinds[prng_below(&sim->prng, 6)]);
        call->call.request.policy.attempts_max = ATTEMPTS_MAX;
        call->call.request.status =
            call->call.request.kind == REQUEST_COMPENSATION_SETTLE ? RECORD_COMPENSATED : 0;
        send(sim, call, false);
    }
}

void work_turn(struct sim *sim)
{
    for (int i = 0; i < SIM_WORKERS; i++) {
        struct sim_worker *self = &sim->workers[i];
        if (self->waiting > 0) {
            continue;
        }
        if (self->fence != 0 && self->part == PART_EFFECT && !self->acted && !self->settling &&
            prng_once_in(&sim->prng, 2)) {
            struct sim_operation *operation = oracle_operation(sim, &self->id, 0);
            self->acted = true;
            if (++operation->effects > 1) {
                sim_violate(sim, "P1: the effect of an order happened twice");
            }
            sim_note(sim, SOMETIMES_WORK_EFFECTS);
        } else if (self->fence != 0) {
            finish(sim, i);
        } else if (!sim->ending && prng_once_in(&sim->prng, 6)) {
            send_any(sim, i);
        }
    }
}

/* Committed, maybe durably, and maybe nobody hears of it. */
void work_committed(struct sim *sim, const struct sim_call *call)
{
    const struct decision *said = &call->call.decision;
    if (!record_there(&said->next)) {
        return;
    }
    struct sim_operation *operation = oracle_operation(sim, &said->next.operation_id, 0);
    if (said->kind == DECISION_CLAIMED) {
        operation->fence_any = said->next.fence;
    }
    if (call->call.request.kind == REQUEST_TAKE_UP && said->kind == DECISION_DONE) {
        operation->taken_up = true;
    }
}

static void check_claim(struct sim *sim, const struct sim_call *call)
{
    const struct record *record = &call->call.decision.next;
    struct sim_operation *operation = oracle_operation(sim, &record->operation_id, 0);
    struct sim_worker *self = &sim->workers[call->worker];
    if (record->fence <= sim->fence_told) {
        sim_violate(sim, "P4: a claim's fence was told before");
    }
    if (operation->effects > 0) {
        sim_violate(sim, "P1: claimed again after its effect");
    }
    if ((operation->dead && !operation->taken_up) || operation->sealed) {
        sim_violate(sim, "claimed although it was dead or settled");
    }
    sim->fence_told = record->fence;
    self->id = record->operation_id;
    self->fence = record->fence;
    self->acted = self->settling = false;
    sim_note(sim, SOMETIMES_CLAIMS);
}

void work_answered(struct sim *sim, const struct sim_call *call)
{
    const struct decision *said = &call->call.decision;
    struct sim_worker *self = &sim->workers[call->worker];
    self->waiting--;
    if (record_there(&said->next)) {
        struct sim_operation *operation = oracle_operation(sim, &said->next.operation_id, 0);
        sim->orders[call->order].ids[call->part] = said->next.operation_id;
        if (said->change == CHANGE_PUT) {
            operation->dead = said->next.status == RECORD_DEAD;
            operation->sealed = operation->sealed || record_sealed(&said->next);
        }
        if (said->change == CHANGE_PUT && said->next.status == RECORD_DEAD) {
            sim_note(sim, SOMETIMES_DEAD);
        }
    }
    if (said->kind == DECISION_CLAIMED) {
        check_claim(sim, call);
    } else if (call->call.request.fence != 0 && call->call.request.fence == self->fence) {
        self->fence = 0; /* it is ended, or somebody else knows better */
    }
    if (call->call.needs_previous) {
        sim_note(sim, SOMETIMES_GROUPS);
    }
}

/* Nothing happened, or nobody knows: what is held is ended again later. */
void work_lost(struct sim *sim, const struct sim_call *call)
{
    sim->workers[call->worker].waiting--;
}

bool work_idle(const struct sim *sim)
{
    for (int i = 0; i < SIM_WORKERS; i++) {
        if (sim->workers[i].waiting > 0 || sim->workers[i].fence != 0) {
            return false;
        }
    }
    return true;
}
