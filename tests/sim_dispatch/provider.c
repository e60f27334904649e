/*
 * The provider, and what lies between it and the dispatchers, instead of src/outcall: each request
 * arrives, takes effect or not, and is answered or not, at times that the seed says.
 */
#include <stdio.h>

#include "base/check.h"
#include "sim_dispatch.h"

/* ---- upstreams: opaque --------------------------------------------------------------------- */

enum status upstreams_new(
    const struct mem *mem, unsigned loops, struct upstreams **ret_upstreams, struct err *err)
{
    (void)mem;
    (void)loops;
    (void)err;
    *ret_upstreams = (struct upstreams *)(void *)sim;
    return OK;
}

void upstreams_attach(struct upstreams *upstreams, struct http_server *server)
{
    (void)upstreams;
    (void)server;
}

void upstreams_free(struct upstreams *upstreams)
{
    (void)upstreams;
}

void upstreams_load(struct upstreams *upstreams)
{
    (void)upstreams;
}

enum status upstreams_hold(struct upstreams *upstreams, const struct upstreams_wanted *wanted,
    struct upstreams_one **ret_one, struct err *err)
{
    (void)upstreams;
    (void)wanted;
    (void)err;
    *ret_one = (struct upstreams_one *)(void *)sim;
    return OK;
}

void upstreams_drop(struct upstreams *upstreams, struct upstreams_one *one)
{
    (void)upstreams;
    (void)one;
}

struct slice upstreams_authority(const struct upstreams_one *one)
{
    (void)one;
    return SLICE_LIT("provider");
}

struct upstream *upstreams_on(struct upstreams *upstreams, struct upstreams_one *one, unsigned loop)
{
    (void)upstreams;
    (void)one;
    (void)loop;
    return (struct upstream *)(void *)sim;
}

void upstreams_detach(struct upstreams *upstreams, unsigned loop)
{
    (void)upstreams;
    (void)loop;
}

bool upstreams_is_idle(const struct upstreams *upstreams)
{
    (void)upstreams;
    return true;
}

size_t upstreams_figures(void *context, struct upstream_figures *ret_figures, size_t max)
{
    (void)context;
    (void)ret_figures;
    (void)max;
    return 0;
}

/* ---- calls --------------------------------------------------------------------------------- */

static struct sim_effect *effect_of(const struct dispatching *run, int *ret_number)
{
    for (int i = 0; i < SIM_EFFECTS_ALL; i++) {
        if (slice_is(run->record.key.key, sim->effects[i].key)) {
            *ret_number = i;
            return &sim->effects[i];
        }
    }
    ASSERT(!"an effect that nobody created");
    return NULL;
}

static int process_of(const struct dispatching *run)
{
    for (int i = 0; i < SIM_PROCESSES; i++) {
        if (sim->processes[i].dispatch == run->job->dispatch) {
            return i;
        }
    }
    ASSERT(!"a process that is gone");
    return 0;
}

/* How a request ends. All that it does, it does within SIM_TOTAL_MS, and a lookup shows it within
 * SIM_QUIET_MS of its beginning: so says the connector. */
static void draw(struct sim_wire *wire)
{
    static const unsigned statuses[] = {503, 429, 402, 409, 500, 302};
    uint64_t trouble = sim->is_ending ? 99 : sim_below(16);
    int64_t now_ms = sim->now_ms;
    bool is_down = now_ms < sim->down_until_ms;
    wire->is_connected = trouble != 0;
    wire->arrives_ms = now_ms + (int64_t)sim_below(trouble == 1 ? 5000 : 300);
    wire->answers_ms = wire->arrives_ms + (int64_t)sim_below(trouble == 2 ? 12000 : 300);
    wire->gives_up_ms = now_ms + SIM_TOTAL_MS;
    wire->status = 200;
    wire->does = true;
    if (is_down || (trouble >= 3 && trouble <= 8)) {
        wire->status = is_down ? 503 : statuses[trouble - 3];
        wire->does = wire->status == 500 || wire->status == 302;
    } else if (trouble == 9 || trouble == 10) { /* the answer, or the whole request, is lost */
        wire->status = 0;
        wire->does = trouble == 9;
        wire->answers_ms = now_ms + (int64_t)sim_below(400); /* perhaps before it arrives */
    }
    bool is_busy = (wire->command >= 0 && sim->commands[wire->command].is_busy) ||
                   (wire->event >= 0 && sim->events[wire->event].is_busy);
    bool is_effect = wire->command < 0 && wire->event < 0;
    enum sim_poison poison = is_effect ? sim->effects[wire->effect].poison
                             : is_busy ? POISON_LATER
                                       : POISON_NONE;
    if (poison != POISON_NONE && !wire->asks) {
        wire->status = poison == POISON_LATER ? 503 : 0;
        wire->does = false;
    }
    if (!wire->is_connected) {
        wire->arrives_ms = INT64_MAX;
        wire->answers_ms = now_ms + (int64_t)sim_below(100);
    }
}

void outcall_init(struct outcall *call, const struct outcall_capture *capture)
{
    (void)call;
    (void)capture;
}

void outcall_start(struct outcall *call)
{
    const struct dispatching *run = call->context;
    ASSERT(sim->wire_count < SIM_WIRES_MAX);
    struct sim_wire *wire = &sim->wires[sim->wire_count++];
    *wire = (struct sim_wire){.out = call,
        .process = process_of(run),
        .command = -1,
        .event = -1,
        .asks = run->call.asks};
    wire->fence = run->record.fence;
    if (run->record.kind == RECORD_DELIVERY) {
        wire->event = event_find(run->record.key.key);
        draw(wire);
        event_begins(wire, run);
        return;
    }
    if (run->record.kind == RECORD_COMMAND) {
        wire->command = command_find(run->record.key.key);
        draw(wire);
        command_begins(wire, run);
        return;
    }
    (void)effect_of(run, &wire->effect);
    draw(wire);
    sim_note(wire->asks ? SOMETIMES_ASKED : SOMETIMES_SENT);
    sim_say("process %d %s %s, attempt %u", wire->process, wire->asks ? "asks about" : "sends",
        sim->effects[wire->effect].key, run->record.attempt);
    oracle_begins(wire, run);
}

void outcall_release(struct outcall *call)
{
    for (int i = 0; i < sim->wire_count; i++) {
        sim->wires[i].out = sim->wires[i].out == call ? NULL : sim->wires[i].out;
    }
}

/* ---- the provider -------------------------------------------------------------------------- */

static bool has_keys(enum sim_type type)
{
    return type == TYPE_KEYED || type == TYPE_LANE;
}

/* At the time of its arrival: a step of the clock may be longer than the request was under way. */
static void take_effect(struct sim_wire *wire, struct sim_effect *effect, int64_t at_ms)
{
    bool is_kept =
        has_keys(effect->type) && effect->first_ms > 0 && at_ms < effect->first_ms + SIM_KEEPS_MS;
    if (is_kept && effect->effects > 0) {
        sim_note(SOMETIMES_REPEATED);
        return;
    }
    effect->first_ms = is_kept ? effect->first_ms : at_ms;
    effect->effects++;
    effect->visible_ms = at_ms + (int64_t)sim_below(4000);
    sim_note(SOMETIMES_EFFECTS);
    sim->sometimes[SOMETIMES_LATE_EFFECTS] += wire->out == NULL;
    sim_say("%s happens", effect->key);
    if (effect->effects > 1) {
        sim_violate("the effect of %s happened twice", effect->key);
    }
}

/* A question is answered from what is visible when it arrives. */
static void look_up(struct sim_wire *wire, const struct sim_effect *effect)
{
    bool is_visible = effect->effects > 0 && sim->now_ms >= effect->visible_ms;
    sim->sometimes[SOMETIMES_LIES] += effect->effects > 0 && !is_visible;
    wire->status = wire->status != 200 ? wire->status : is_visible ? 200 : 404;
}

static void arrive(struct sim_wire *wire)
{
    struct sim_effect *effect = &sim->effects[wire->effect];
    int64_t at_ms = wire->arrives_ms;
    wire->arrives_ms = INT64_MAX;
    if (wire->command >= 0) {
        command_arrives(wire);
        return;
    }
    if (wire->event >= 0) {
        event_arrives(wire);
        return;
    }
    if (wire->asks) {
        look_up(wire, effect);
    } else if (wire->does) {
        take_effect(wire, effect, at_ms);
    } else if (wire->status == 402 || wire->status == 409) {
        effect->was_refused = true;
    }
}

/* The last event of a call. */
static void end(struct sim_wire *wire, enum outcall_point point)
{
    struct outcall *out = wire->out;
    bool is_answered = point == OUTCALL_ANSWERED;
    unsigned status = is_answered ? wire->status : 0;
    wire->out = NULL;
    wire->answers_ms = INT64_MAX;
    sim_note(point == OUTCALL_NOT_SENT        ? SOMETIMES_NOT_CONNECTED
             : !is_answered                   ? SOMETIMES_LOST
             : status == 503 || status == 429 ? SOMETIMES_LATER
             : status == 402 || status == 409 ? SOMETIMES_REFUSED
                                              : SOMETIMES_COUNT);
    if (wire->command >= 0) {
        command_ends(wire, point, status);
    } else if (wire->event >= 0) {
        event_ends(wire, point, status);
    } else {
        oracle_ends(wire, is_answered && status < 500);
    }
    out->state = OUTCALL_OVER;
    out->point = point;
    out->status = status;
    out->verdict = judge(&out->rules, point, status);
    out->captured = !is_answered         ? SLICE_EMPTY
                    : wire->command >= 0 ? command_answer(wire)
                    : wire->event >= 0   ? event_answer(wire)
                                         : SLICE_LIT("{\"id\":\"ch_1\"}");
    out->ref = (struct body_ref){.bytes = out->captured.len, .retained = is_answered};
    digest_sha256(out->captured.data, out->captured.len, &out->ref.digest);
    (void)snprintf(
        out->reason, sizeof out->reason, is_answered ? "status %u" : "no answer", status);
    out->done(out);
}

void provider_time(void)
{
    for (int i = 0; i < sim->wire_count; i++) {
        struct sim_wire *wire = &sim->wires[i];
        if (wire->arrives_ms <= sim->now_ms) {
            arrive(wire);
        }
        if (wire->out == NULL) {
            continue;
        }
        if (wire->answers_ms <= sim->now_ms && !wire->is_connected) {
            end(wire, OUTCALL_NOT_SENT);
        } else if (wire->answers_ms <= sim->now_ms && wire->answers_ms <= wire->gives_up_ms) {
            bool is_whole = wire->status != 0 && wire->arrives_ms == INT64_MAX;
            end(wire, is_whole ? OUTCALL_ANSWERED : OUTCALL_SENT);
        } else if (wire->gives_up_ms <= sim->now_ms) {
            sim_note(SOMETIMES_TIMEOUTS);
            end(wire, OUTCALL_SENT);
        }
    }
}

void provider_lose(int process)
{
    for (int i = 0; i < sim->wire_count; i++) {
        struct sim_wire *wire = &sim->wires[i];
        if (wire->process == process && wire->out != NULL) {
            wire->out = NULL;
            sim_note(SOMETIMES_KILLED_CALLING);
            if (wire->command >= 0) {
                command_ends(wire, OUTCALL_SENT, 0);
            }
            if (wire->event >= 0) {
                event_ends(wire, OUTCALL_SENT, 0);
            }
        }
    }
}

bool provider_is_calling(enum record_kind kind, int number)
{
    for (int i = 0; i < sim->wire_count; i++) {
        const struct sim_wire *wire = &sim->wires[i];
        int about = kind == RECORD_COMMAND ? wire->command : wire->event;
        if (about == number && !wire->asks &&
            (wire->arrives_ms != INT64_MAX || wire->out != NULL)) {
            return true;
        }
    }
    return false;
}

bool provider_is_idle(void)
{
    return provider_next_ms() == INT64_MAX;
}

int64_t provider_next_ms(void)
{
    int64_t next_ms = INT64_MAX;
    for (int i = 0; i < sim->wire_count; i++) {
        const struct sim_wire *wire = &sim->wires[i];
        int64_t ends_ms = wire->out == NULL                      ? INT64_MAX
                          : wire->answers_ms < wire->gives_up_ms ? wire->answers_ms
                                                                 : wire->gives_up_ms;
        next_ms = wire->arrives_ms < next_ms ? wire->arrives_ms : next_ms;
        next_ms = ends_ms < next_ms ? ends_ms : next_ms;
    }
    return next_ms;
}
