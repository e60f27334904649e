/*
 * Deliveries: their senders, their handler, the operators, and what must hold of them.
 *
 * The model is docs/inbox.md: which status may follow which (may_follow),
 * what may be called (event_begins), in which order (check_order), and what an answer may say. A
 * handler of SOURCE_AGAIN is idempotent by key and fence; any other counts every call that does it.
 * A person settles an unknown event after a look at the handler's books, only when no call of it
 * can arrive any more, and only the attempt that was the last one then.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/macros.h"
#include "canon/json_mask.h"
#include "sim_dispatch.h"

#define REASON_OF_A_PERSON "they looked at the books"

enum asked { ASK_SEND, ASK_SEND_OTHER, ASK_SKIP, ASK_REDELIVER, ASK_RESOLVE, ASK_READ };

static const char *const sources[SIM_SOURCES] = {"hold", "again", "ask", "sync"};

void deliveries_make(void)
{
    for (int i = 0; i < SIM_EVENTS; i++) {
        struct sim_event *event = &sim->events[i];
        event->source = (enum sim_source)(i % SIM_SOURCES);
        event->object = i / SIM_SOURCES % SIM_OBJECTS;
        event->number = 1 + i / (SIM_SOURCES * SIM_OBJECTS);
        event->is_busy = sim_once_in(12);
        (void)snprintf(event->key, sizeof event->key, "v%d", i);
    }
}

int event_find(struct slice key)
{
    for (int i = 0; i < SIM_EVENTS; i++) {
        if (slice_is(key, sim->events[i].key)) {
            return i;
        }
    }
    return -1;
}

static bool is_ordered(const struct sim_event *event)
{
    return event->source == SOURCE_HOLD || event->source == SOURCE_AGAIN;
}

static int *newest_of(const struct sim_event *event)
{
    return &sim->newest[event->source][event->object];
}

/* ---- decisions ----------------------------------------------------------------------------- */

#define IS(status) (1u << RECORD_##status)

/* 0: absent. */
static unsigned may_follow(const struct sim_event *event)
{
    if (event->version == 0) {
        return event->source == SOURCE_SYNC ? IS(IN_PROGRESS) : IS(PENDING);
    }
    switch (event->status) {
    case RECORD_PENDING: return IS(IN_PROGRESS) | IS(PENDING) | IS(REJECTED);
    case RECORD_IN_PROGRESS:
        return IS(PENDING) | IS(UNKNOWN) | IS(EXECUTED) | IS(FAILED) | IS(DEAD);
    case RECORD_UNKNOWN: return IS(PENDING) | IS(UNKNOWN) | IS(EXECUTED) | IS(FAILED);
    case RECORD_DEAD: return IS(PENDING) | IS(REJECTED);
    case RECORD_EXECUTED:
    case RECORD_FAILED:
    case RECORD_REJECTED:
    case RECORD_WAITING:
    case RECORD_RELEASED:
    case RECORD_COMPENSATING:
    case RECORD_COMPENSATED: break;
    }
    return 0; /* P3 */
}

static void event_cancelled(struct sim_event *event, const struct record *next)
{
    bool is_stale = slice_starts(next->reason, SLICE_LIT("stale:"));
    sim_note(is_stale ? SOMETIMES_DROPPED : SOMETIMES_SKIPPED);
    event->was_skipped = !is_stale;
    if (is_stale && (!is_ordered(event) || *newest_of(event) <= event->number)) {
        sim_violate("%s was dropped, and no later version was handled", event->key);
    }
}

/* OPS-7: what is claimed is not older than what was handled. A parked one has lost its place: it
 * may be claimed while a different process has a later one handled. */
static void check_stale(const struct sim_event *event)
{
    if (is_ordered(event) && !event->was_parked && *newest_of(event) > event->number) {
        sim_violate(
            "%s is delivered after version %d of its object", event->key, *newest_of(event));
    }
}

static void note_skip(const struct engine_call *call)
{
    bool has_changed = call->request.kind == REQUEST_CANCEL && call->request.version != 0 &&
                       call->decision.next.version != call->request.version;
    sim->sometimes[SOMETIMES_SKIP_RACES] +=
        has_changed && call->decision.kind == DECISION_WRONG_STATUS &&
        ((IS(PENDING) | IS(DEAD)) & 1u << call->decision.next.status) != 0;
}

/* In the order of the commits. */
void event_decided(const struct engine_call *call)
{
    const struct record *next = &call->decision.next;
    if (call->err.status != OK || next->kind != RECORD_DELIVERY) {
        return;
    }
    note_skip(call);
    int number = call->decision.change == CHANGE_PUT ? event_find(next->key.key) : -1;
    if (number < 0) {
        return;
    }
    struct sim_event *event = &sim->events[number];
    if (next->version != event->version + 1) {
        sim_violate(
            "%s: version %" PRIu64 " follows %" PRIu64, event->key, next->version, event->version);
    }
    if ((may_follow(event) & 1u << next->status) == 0) {
        sim_violate("%s is %s after %s", event->key, record_status_name(next->status),
            event->version == 0 ? "nothing" : record_status_name(event->status));
    }
    if (event->version == 0) {
        event->joined = ++sim->joined;
        sim_note(SOMETIMES_TAKEN_IN);
    }
    bool has_looked =
        event->source == SOURCE_ASK || slice_is(call->request.reason, REASON_OF_A_PERSON);
    if (call->request.kind == REQUEST_RESOLVE && next->status == RECORD_PENDING && has_looked) {
        event->is_doubtful = false;
    }
    if (next->status == RECORD_IN_PROGRESS) {
        check_stale(event);
    } else if (next->status == RECORD_REJECTED) {
        event_cancelled(event, next);
    } else if (record_status_sealed(next->status) && *newest_of(event) < event->number) {
        *newest_of(event) = event->number;
    }
    event->was_parked |= next->status == RECORD_DEAD ||
                         (next->status == RECORD_UNKNOWN && event->source == SOURCE_HOLD);
    event->op = next->operation_id;
    event->version = next->version;
    event->fence = next->fence;
    event->status = next->status;
}

/* ---- the handler --------------------------------------------------------------------------- */

/* An ordered event is delivered: every earlier one of its object is over, or was parked. */
static void check_order(const struct sim_event *sent)
{
    for (int i = 0; i < SIM_EVENTS && !sent->was_parked; i++) {
        const struct sim_event *event = &sim->events[i];
        bool is_over = record_status_sealed(event->status);
        if (event->source != sent->source || event->object != sent->object || event->version == 0 ||
            event->joined >= sent->joined) {
            continue;
        }
        sim_note(SOMETIMES_IN_ORDER);
        sim->sometimes[SOMETIMES_OVERTAKEN] += event->was_parked && !is_over;
        if (!event->was_parked && !is_over) {
            sim_violate("%s was delivered before %s of its object was over", sent->key, event->key);
        }
    }
}

void event_begins(struct sim_wire *wire, const struct dispatching *run)
{
    struct sim_event *event = &sim->events[wire->event];
    struct arena arena;
    struct record record = {.version = 0};
    sim_say("process %d %s %s, attempt %u", wire->process, wire->asks ? "asks about" : "delivers",
        event->key, run->record.attempt);
    if (wire->asks) {
        sim_note(SOMETIMES_ASKED);
        return;
    }
    wire->does = wire->does && wire->status != 500 && wire->status != 302; /* it rolls back */
    if (event->source == SOURCE_AGAIN && wire->status == 0) {
        wire->arrives_ms = sim->now_ms + (int64_t)sim_below(5000); /* perhaps after the next one */
    }
    sim_note(SOMETIMES_DELIVERED);
    arena_init(&arena, &mem_libc, 1 << 22);
    bool is_there = oracle_stored(RECORD_DELIVERY, &run->record.operation_id, &arena, &record);
    if (!is_there || record.status != RECORD_IN_PROGRESS || record.fence != run->record.fence ||
        record.holder != sim->processes[wire->process].engine.janitor.incarnation) {
        sim_violate("P6: %s was delivered without a durable claim", event->key);
    }
    arena_release(&arena);
    if (event->source == SOURCE_AGAIN) {
        sim->sometimes[SOMETIMES_REDELIVERED] += event->is_doubtful;
    } else if (event->is_doubtful) {
        sim_violate("P5: %s is delivered again, and nobody knows of the first time", event->key);
    }
    if (is_ordered(event)) {
        check_order(event);
    }
    event->is_doubtful = true;
}

/* Idempotent by key and fence: what is known is answered as the first time, and what a process
 * sent that has lost its claim changes nothing. */
static void arrives_again(struct sim_wire *wire, struct sim_event *event)
{
    if (wire->fence < event->fence_max) {
        sim_note(SOMETIMES_LATE_FENCES);
        wire->does = false;
    } else if (event->done > 0) {
        wire->status = wire->status == 402 || wire->status == 409 ? 200 : wire->status;
        wire->does = false;
    }
    event->fence_max = wire->fence > event->fence_max ? wire->fence : event->fence_max;
}

void event_arrives(struct sim_wire *wire)
{
    struct sim_event *event = &sim->events[wire->event];
    if (wire->asks) {
        bool is_visible = event->done > 0 && sim->now_ms >= event->visible_ms;
        wire->status = wire->status != 200 ? wire->status : is_visible ? 200 : 404;
        return;
    }
    event->calls++;
    if (event->source == SOURCE_AGAIN) {
        arrives_again(wire, event);
    }
    event->was_refused |= wire->status == 402 || wire->status == 409;
    if (!wire->does) {
        return;
    }
    event->done++;
    event->visible_ms = sim->now_ms + (int64_t)sim_below(4000);
    (void)snprintf(
        event->answer, sizeof event->answer, "{\"call\":%d,\"of\":%d}", event->calls, wire->event);
    sim_say("%s is handled", event->key);
    if (event->done > 1) {
        sim_violate("P1: the handler did %s twice", event->key);
    }
}

void event_ends(const struct sim_wire *wire, enum outcall_point point, unsigned status)
{
    struct sim_event *event = &sim->events[wire->event];
    bool says_no = point == OUTCALL_NOT_SENT ||
                   (point == OUTCALL_ANSWERED && (status >= 500 || status == 429 || status == 302));
    if (!wire->asks && says_no && event->source != SOURCE_AGAIN) {
        event->is_doubtful = false;
    }
}

struct slice event_answer(const struct sim_wire *wire)
{
    const struct sim_event *event = &sim->events[wire->event];
    bool is_done = wire->status == 200 && event->answer[0] != '\0' &&
                   (event->source != SOURCE_AGAIN || wire->fence == event->fence_max);
    return is_done ? slice_str(event->answer) : SLICE_LIT("{\"said\":\"not now\"}");
}

/* ---- answers ------------------------------------------------------------------------------- */

/* P3: whoever is shown a receipt is shown this one, and it was done. */
static void check_receipt(struct sim_event *event, struct slice receipt)
{
    sim_note(SOMETIMES_RECEIPTS);
    if (event->receipt[0] == '\0') {
        (void)snprintf(
            event->receipt, sizeof event->receipt, "%.*s", (int)receipt.len, receipt.data);
    } else if (!slice_is(receipt, event->receipt)) {
        sim_violate("P3: the receipt of %s is %.*s after %s", event->key, (int)receipt.len,
            receipt.data, event->receipt);
    }
}

/* {"receipts":[{"delivery_id","decision","receipt"?}]} */
static void check_receipts(
    const struct sim_exchange *exchange, struct slice body, const struct json_value *root)
{
    struct sim_event *event = &sim->events[exchange->number];
    const struct json_value *one = json_at(root, SLICE_LIT("/receipts/0"));
    struct slice decision = one == NULL ? SLICE_EMPTY : exchange_member(one, "decision");
    if (slice_is(decision, "stale_version")) {
        sim_note(SOMETIMES_STALE_IN);
        if (!is_ordered(event) || *newest_of(event) <= event->number) {
            sim_violate("%s is refused as stale, and no later version was handled", event->key);
        }
        return;
    }
    bool is_new = slice_is(decision, "first_seen");
    sim->sometimes[SOMETIMES_AGAIN_IN] += !is_new;
    if (event->version == 0) {
        sim_violate("P2: %s is answered %.*s, and is not stored", event->key, (int)decision.len,
            decision.data);
    }
    struct slice id = exchange_member(one, "delivery_id");
    (void)snprintf(event->id, sizeof event->id, "%.*s", (int)id.len, id.data);
    const struct json_value *receipt = json_find(one, SLICE_LIT("receipt"));
    if (receipt != NULL) {
        check_receipt(event, json_raw(body, receipt));
    }
}

static void check_sent(
    const struct sim_exchange *exchange, struct slice body, const struct json_value *root)
{
    struct sim_event *event = &sim->events[exchange->number];
    unsigned status = exchange->http.status;
    bool is_sync = event->source == SOURCE_SYNC;
    if (root == NULL && is_sync && status == 200) {
        return; /* a person settled it, and there is no answer to repeat */
    }
    bool is_known = status == 200 || status == 503 ||
                    (is_sync && (status == 402 || status == 409 || status == 504));
    if (!is_known) {
        sim_violate("%s is answered %u %.*s", event->key, status,
            (int)(body.len < 120 ? body.len : 120), body.data);
    } else if (root == NULL) {
        sim_violate("%s is answered %u with nothing", event->key, status);
        return;
    } else if (status == 200 && json_find(root, SLICE_LIT("receipts")) != NULL) {
        check_receipts(exchange, body, root);
    } else if (status == 200) {
        check_receipt(event, body);
    }
    struct slice id = exchange_member(root, "operation_id");
    if (id.len > 0) {
        (void)snprintf(event->id, sizeof event->id, "%.*s", (int)id.len, id.data);
    }
}

/* An operator's request is done, or refused for a status that forbids it. */
static void check_acted(
    const struct sim_exchange *exchange, struct slice body, const struct json_value *root)
{
    const struct sim_event *event = &sim->events[exchange->number];
    unsigned status = exchange->http.status;
    static const enum sometimes done[] = {[ASK_SKIP] = SOMETIMES_COUNT,
        [ASK_REDELIVER] = SOMETIMES_TAKEN_UP,
        [ASK_RESOLVE] = SOMETIMES_RESOLVED,
        [ASK_READ] = SOMETIMES_COUNT};
    if (status == 200) {
        sim_note(done[exchange->asked]);
    } else if (status != 409 && status != 404 && status != 503) {
        sim_violate("%s: request %d is answered %u %.*s", event->key, exchange->asked, status,
            (int)(body.len < 120 ? body.len : 120), body.data);
    }
    if (exchange->asked == ASK_SKIP && status == 409) {
        sim_note(SOMETIMES_NOT_SKIPPED);
        struct slice detail = exchange_member(root, "detail");
        if (slice_is(detail, "the delivery is pending") ||
            slice_is(detail, "the delivery is dead_letter")) {
            sim_violate("a skip of %s is refused, and nothing forbids it", event->key);
        }
    }
}

static void on_answered(
    struct sim_exchange *exchange, struct slice body, const struct json_value *root)
{
    const struct sim_event *event = &sim->events[exchange->number];
    sim_say("%s: request %d is answered %u", event->key, exchange->asked, exchange->http.status);
    if (root == NULL && exchange->asked != ASK_SEND) {
        sim_violate("%s: request %d is answered with nothing", event->key, exchange->asked);
    } else if (exchange->asked == ASK_SEND) {
        check_sent(exchange, body, root);
    } else if (exchange->asked == ASK_SEND_OTHER) {
        sim->sometimes[SOMETIMES_OTHER_IN] += exchange->http.status == 409;
        if (exchange->http.status != 409 && exchange->http.status != 503) {
            sim_violate("P7: %s is accepted with a different payload", event->key);
        }
    } else {
        check_acted(exchange, body, root);
    }
}

/* ---- senders and operators ----------------------------------------------------------------- */

static enum asked choose(int number)
{
    static const enum asked others[] = {
        ASK_SEND, ASK_SKIP, ASK_REDELIVER, ASK_RESOLVE, ASK_RESOLVE, ASK_READ};
    const struct sim_event *event = &sim->events[number];
    if (event->id[0] == '\0' || sim_once_in(3)) {
        return event->version > 0 && sim_once_in(12) ? ASK_SEND_OTHER : ASK_SEND;
    }
    enum asked asked = others[sim_below(COUNT(others))];
    bool is_early = asked == ASK_RESOLVE && (sim->events[number].fence == 0 ||
                                                provider_is_calling(RECORD_DELIVERY, number));
    return is_early ? ASK_READ : asked; /* it is too early to tell */
}

void deliveries_step(struct sim_process *process)
{
    static const char *const verbs[] = {[ASK_SKIP] = "/skip",
        [ASK_REDELIVER] = "/redeliver",
        [ASK_RESOLVE] = "/resolve",
        [ASK_READ] = ""};
    int number = (int)sim_below(SIM_EVENTS);
    const struct sim_event *event = &sim->events[number];
    struct sim_exchange *exchange = exchange_new(process, number, on_answered);
    char path[96];
    exchange->asked = (int)choose(number);
    if (exchange->asked == ASK_SEND || exchange->asked == ASK_SEND_OTHER) {
        sim_note(SOMETIMES_SENT_IN);
        (void)snprintf(exchange->body, sizeof exchange->body,
            "{\"id\":\"%s\",\"object\":\"o%d\",\"version\":%d%s}", event->key, event->object,
            event->number, exchange->asked == ASK_SEND ? "" : ",\"other\":true");
        (void)snprintf(path, sizeof path, "/in/%s", sources[event->source]);
    } else {
        if (exchange->asked == ASK_RESOLVE) {
            (void)snprintf(exchange->body, sizeof exchange->body,
                "{\"status\":\"%s\",\"fence\":%" PRIu64 ",\"reason\":\"" REASON_OF_A_PERSON "\"}",
                event->done > 0 ? "executed" : "not_executed", event->fence);
        }
        (void)snprintf(path, sizeof path, "/v1/deliveries/%s%s", event->id, verbs[exchange->asked]);
    }
    exchange_ask(exchange, exchange->asked == ASK_READ ? "GET" : "POST", path);
}

/* ---- the end ------------------------------------------------------------------------------- */

static void end_one(const struct sim_event *event, struct arena *arena)
{
    struct record record;
    if (event->version == 0) {
        return;
    }
    if (!oracle_stored(RECORD_DELIVERY, &event->op, arena, &record) ||
        record.status != event->status) {
        sim_violate("%s is forgotten", event->key);
        return;
    }
    bool may_be = false;
    switch (record.status) {
    case RECORD_EXECUTED:
        sim_note(SOMETIMES_D_EXECUTED);
        may_be = event->done == 1;
        break;
    case RECORD_FAILED:
        sim_note(SOMETIMES_D_FAILED);
        may_be = event->was_refused && event->done == 0;
        break;
    case RECORD_REJECTED: may_be = event->done == 0 || event->source == SOURCE_AGAIN; break;
    case RECORD_DEAD:
        sim_note(SOMETIMES_D_DEAD);
        may_be = event->done == 0 || event->source == SOURCE_AGAIN;
        break;
    case RECORD_UNKNOWN:
        sim_note(SOMETIMES_D_HELD);
        may_be = event->source == SOURCE_HOLD || event->source == SOURCE_SYNC;
        break;
    case RECORD_WAITING:
    case RECORD_IN_PROGRESS:
    case RECORD_PENDING:
    case RECORD_RELEASED:
    case RECORD_COMPENSATING:
    case RECORD_COMPENSATED: break;
    }
    if (!may_be) {
        sim_violate("%s is %s at the end and was done %d times", event->key,
            record_status_name(record.status), event->done);
    }
}

void deliveries_end(void)
{
    struct arena arena;
    arena_init(&arena, &mem_libc, 1 << 26);
    for (int i = 0; i < SIM_EVENTS; i++) {
        end_one(&sim->events[i], &arena);
    }
    arena_release(&arena);
}
