/*
 * POST /in/{source}: a sender's request from its first byte to its answer.
 *
 *     inbox_receive > verify > (handshake) > split > make_calls > (engine, one commit)
 *                   > resume: async: offer to the dispatcher, unless it claimed the event in the
 *                             same commit; answer
 *                             sync:  run what was granted > (handler) > seal > resume: answer
 *                             sync, with an order: offer, and wait for the seal, in whichever
 *                             process > resume: answer
 *
 * After a crash before the commit nothing is stored; the sender got no answer, so it sends again.
 * After a crash later on, the events are stored, all of them, and are delivered after the restart;
 * the sender sends again and gets duplicates reported. An event that was granted or claimed is
 * unknown, or delivered again, as its source says.
 */
#include "api/call.h"
#include "base/clock.h"
#include "base/macros.h"
#include "inbox/enqueue.h"
#include "inbox/impl.h"

enum {
    ANSWER_BYTES_MAX = 64 << 20, /* of receipts: a handler's answer is at most 1 MiB */
    BUSY_MS = 5000,              /* Retry-After if the handler did not answer */
};

struct receiving;

/* One event in progress. */
struct received {
    struct enqueued made; /* first: its call is its first member */
    struct receiving *all;
    struct engine_call wait; /* sync with an order: waits for the seal */
    struct record final;     /* sync: the settled record */
    struct slice answer;     /* sync: the handler's */
    bool is_settled;         /* sync: the handler was called for this request, and final is set */
};

struct receiving {
    struct api_request *request;
    struct inbox_door *inbox;
    struct inbox_plan *plan; /* held */
    const struct inbox_source *source;
    struct events events;
    struct slice trace;
    struct received *items;
    struct engine_call **calls;  /* of the items, and the dispatcher's claim */
    struct door_group group;     /* of them */
    struct dispatch_start start; /* of a single event */
    struct engine_call *claim;   /* the dispatcher's, in the same commit; NULL: none */
    _Atomic size_t left;
};

/* ---- refusals ------------------------------------------------------------------------------ */

/* Whether a refusal may still be answered as such, or counts as a flood. Good requests are not
 * counted, so bad requests never delay them. */
static bool refusal_admitted(struct inbox_door *inbox)
{
    unsigned long long second = clock_nanos() / 1000000000 & 0xfffffffffULL;
    unsigned long long before = atomic_load(&inbox->refusals);
    unsigned long long now = before >> 20 == second ? before + 1 : second << 20 | 1;
    atomic_store(&inbox->refusals, now); /* losing one of two simultaneous counts does not matter */
    return (now & 0xfffff) <= REFUSALS_A_SECOND_MAX;
}

static void refuse_signature(
    struct api_request *request, const struct inbox_source *source, enum signature_verdict verdict)
{
    struct inbox_door *inbox = request->state;
    const char *why = signature_verdict_name(verdict);
    if (!refusal_admitted(inbox)) {
        inbox_counts_refused(source->counts, METRICS_REFUSED_FLOOD);
        api_refuse(request, &(struct problem){.status = 429,
                                .code = "too_many_refusals",
                                .detail = SLICE_LIT("too many requests are not signed"),
                                .effect = PROBLEM_EFFECT_NO,
                                .retry = PROBLEM_RETRY_AFTER,
                                .retry_after_ms = 1000});
        return;
    }
    inbox_counts_signature(source->counts, verdict);
    struct log_field fields[] = {LOG_TEXT("source", source->rule.name),
        LOG_TEXT("reason", slice_str(why)), LOG_TEXT("peer", request->exchange->peer)};
    log_event(door_log(inbox->door), LOG_WARN, "signature_invalid", fields, COUNT(fields));
    api_refuse_plain(request, 401, "signature_invalid", "the request is not signed by its sender");
}

static void refuse_events(
    struct api_request *request, const struct inbox_source *source, const struct err *err)
{
    if (err->status == E_NOMEM) {
        api_fail_memory(request);
    } else {
        inbox_counts_refused(source->counts,
            err->status == E_LIMIT ? METRICS_REFUSED_LENGTH : METRICS_REFUSED_EVENT);
        api_refuse_plain(request, err->status == E_LIMIT ? 413 : 422,
            err->status == E_LIMIT ? "body_too_large" : "invalid_event", err->text);
    }
}

/* ---- the answer ---------------------------------------------------------------------------- */

void inbox_receipt_put(
    struct jsonw *json, const struct record *record, struct slice body, struct arena *arena)
{
    const struct json_value *value = NULL;
    if (!record_sealed(record)) {
        return;
    }
    if (record->effect_id.len > 0) {
        jsonw_bytes(json, "receipt", record->effect_id);
    } else if (body.len > 0 && json_read(body, arena, &value, NULL) == OK) {
        jsonw_raw(json, "receipt", body);
    } else if (body.len > 0) {
        jsonw_bytes(json, "receipt", body);
    }
}

/* The current record: if it was run, the settled one. */
static const struct record *record_of(const struct received *item)
{
    return item->is_settled ? &item->final : &item->made.engine.decision.next;
}

static struct slice outcome_of(const struct received *item)
{
    return item->is_settled ? item->answer : item->made.engine.outcome;
}

static const char *decision_of(const struct received *item)
{
    enum decision_kind kind = item->made.engine.decision.kind;
    return decision_name(kind == DECISION_ENQUEUED ? DECISION_FIRST_SEEN : kind);
}

static void report(const struct received *item, unsigned status)
{
    const struct api_request *request = item->all->request;
    const struct inbox_source *source = item->all->source;
    inbox_counts_event(source->counts, item->made.engine.decision.kind);
    door_report(item->all->inbox->door, request->exchange->loop,
        &(struct door_report){.call = &item->made.engine,
            .tenant = slice_str(source->config->tenant),
            .label = source->rule.name,
            .request_id = request->exchange->request_id,
            .status = status,
            .started_nanos = request->exchange->started_nanos,
            .logs = request->policy->logs_decisions});
}

static void put_receipts(struct receiving *all, struct jsonw *json)
{
    char id[KIND_ID_TEXT_BYTES];
    jsonw_open(json, "receipts", '[');
    for (size_t i = 0; i < all->events.count; i++) {
        const struct received *item = &all->items[i];
        const struct record *record = record_of(item);
        jsonw_open(json, NULL, '{');
        if (record_there(record)) {
            jsonw_str(json, "delivery_id", kind_id_put(id, RECORD_DELIVERY, &record->operation_id));
        }
        jsonw_str(json, "decision", decision_of(item));
        if (received_as(item->made.engine.decision.kind) != RECEIVED_OTHER) { /* P7 */
            inbox_receipt_put(json, record, outcome_of(item), all->request->exchange->arena);
        }
        jsonw_close(json, '}');
    }
    jsonw_close(json, ']');
}

static void answer_receipts(struct receiving *all)
{
    struct api_request *request = all->request;
    struct buf out;
    struct jsonw json = {.out = &out};
    bool is_conflict = false;
    for (size_t i = 0; i < all->events.count; i++) {
        is_conflict =
            is_conflict || received_as(all->items[i].made.engine.decision.kind) == RECEIVED_OTHER;
    }
    buf_init(&out, &request->mem, ANSWER_BYTES_MAX);
    if (!is_conflict) {
        jsonw_open(&json, NULL, '{');
        put_receipts(all, &json);
        jsonw_close(&json, '}');
        api_answer_json(request, &out);
        return;
    }
    put_receipts(all, &json);
    api_refuse(request,
        &(struct problem){.status = 409,
            .code = "idempotency_conflict",
            .detail = SLICE_LIT("an event of this id was received with a different payload"),
            .effect = PROBLEM_EFFECT_NO,
            .retry = PROBLEM_RETRY_NO,
            .extra = buf_status(&out) == OK ? buf_view(&out) : SLICE_EMPTY});
}

/* The handler's own answer, the first time and for duplicates. */
static void answer_outcome(struct receiving *all, const struct received *item)
{
    struct api_request *request = all->request;
    const struct record *record = record_of(item);
    struct err err;
    unsigned code = (unsigned)record->outcome.code;
    api_answer_begin(request, code >= 200 && code <= 599 ? code : 200);
    http_answer_field(request->exchange, SLICE_LIT("Once-Decision"), slice_str(decision_of(item)));
    /* Fields that were not kept, as with an operator's decision, are absent. */
    (void)!fields_replay(
        record->outcome.meta, &(struct fields_how){0}, &request->mem, request->exchange, &err);
    api_answer_end(request, SLICE_EMPTY, outcome_of(item), true);
}

static void answer_pending(struct receiving *all, const struct record *record)
{
    char id[KIND_ID_TEXT_BYTES];
    bool is_unknown = record->status == RECORD_UNKNOWN;
    struct problem problem = {.status = is_unknown ? 504 : 503,
        .code = is_unknown ? "outcome_unknown" : "delivery_pending",
        .detail = is_unknown ? SLICE_LIT("nobody knows whether the handler did it")
                             : SLICE_LIT("the event is kept, and its handler has not answered yet"),
        .effect = is_unknown ? PROBLEM_EFFECT_UNKNOWN : PROBLEM_EFFECT_NO,
        .retry = PROBLEM_RETRY_AFTER,
        .retry_after_ms = BUSY_MS,
        .operation_id = slice_str(kind_id_put(id, RECORD_DELIVERY, &record->operation_id))};
    api_refuse(all->request, &problem);
}

static void answer_one(struct receiving *all, const struct received *item)
{
    switch (received_as(item->made.engine.decision.kind)) {
    case RECEIVED_OTHER:
    case RECEIVED_STALE: answer_receipts(all); return;
    case RECEIVED_NEW:
    case RECEIVED_AGAIN:
    case RECEIVED_LATE: break;
    }
    if (record_sealed(record_of(item))) {
        answer_outcome(all, item);
    } else {
        answer_pending(all, record_of(item));
    }
}

/* Answer; this frees everything but the plan. */
static void answer(struct receiving *all)
{
    struct inbox_plan *plan = all->plan;
    bool is_one = all->source->config->mode == CONFIG_MODE_SYNC && all->events.count == 1;
    for (size_t i = 0; i < all->events.count; i++) {
        report(&all->items[i], is_one ? 0 : 200);
    }
    if (is_one) {
        answer_one(all, all->items);
    } else {
        answer_receipts(all);
    }
    inbox_plan_drop(plan);
}

static void fail(struct receiving *all, const struct err *err)
{
    struct inbox_plan *plan = all->plan;
    api_fail(all->request, err);
    inbox_plan_drop(plan);
}

/* ---- sync: the handler's answer ------------------------------------------------------------ */

static void resume_answer(void *context, struct http_exchange *exchange)
{
    (void)context;
    answer(exchange->state);
}

/* On the loop of the exchange, which waits: so this function may use its arena. */
static void on_run(void *context, const struct dispatch_call *call)
{
    struct received *item = context;
    struct receiving *all = item->all;
    struct arena *arena = all->request->exchange->arena;
    const struct engine_call *first = call->call_count > 0 ? call->calls[0] : NULL;
    if (first != NULL && record_there(&first->decision.next) &&
        record_copy(&first->decision.next, arena, &item->final) == OK &&
        arena_copy(arena, first->outcome_body, &item->answer) == OK) {
        item->is_settled = true;
    }
    if (atomic_fetch_sub(&all->left, 1) == 1) {
        http_wake(all->request->exchange);
    }
}

/* False: an event that could not be run has a lease, and is unknown when that ends. It is not
 * reported as anything else. */
static bool run_one(struct received *item)
{
    struct err err;
    struct dispatch_granted granted = {.record = &item->made.engine.decision.next,
        .body = buf_view(&item->made.frame),
        .grant = door_grant_of(&item->made.engine),
        .done = on_run,
        .context = item};
    return dispatch_run(item->all->inbox->dispatch, item->all->request->exchange->loop, &granted,
               &err) == OK;
}

/* On a thread of the engine. */
static void on_waited(struct engine_call *wait)
{
    struct received *item = CONTAINER_OF(wait, struct received, wait);
    struct receiving *all = item->all;
    if (wait->err.status == OK && record_there(&wait->decision.next)) {
        item->final = wait->decision.next;
        item->answer = wait->outcome;
        item->is_settled = true;
    }
    if (atomic_fetch_sub(&all->left, 1) == 1) {
        http_wake(all->request->exchange);
    }
}

/* It waits for its turn, and any process may have it. The same event again, as a sender would send
 * it, waits for the seal. */
static bool wait_for_one(struct received *item)
{
    struct err err;
    const struct engine_call *made = &item->made.engine;
    item->wait = (struct engine_call){.request = made->request,
        .request_body = made->request_body,
        .arena = made->arena,
        .wait_ms = item->all->source->config->total_ms,
        .done = on_waited};
    return engine_submit(door_engine(item->all->inbox->door), &item->wait, &err) == OK;
}

static void run_all(struct receiving *all)
{
    all->request->exchange->resume = resume_answer;
    atomic_store(&all->left, all->events.count + 1);
    for (size_t i = 0; i < all->events.count; i++) {
        struct received *item = &all->items[i];
        enum decision_kind kind = item->made.engine.decision.kind;
        bool is_begun = (kind == DECISION_FIRST_SEEN && run_one(item)) ||
                        (kind == DECISION_ENQUEUED && wait_for_one(item));
        if (!is_begun) {
            atomic_fetch_sub(&all->left, 1);
        }
    }
    if (atomic_fetch_sub(&all->left, 1) == 1) {
        answer(all);
    }
}

/* ---- decided ------------------------------------------------------------------------------- */

static void resume(void *context, struct http_exchange *exchange)
{
    (void)context;
    struct receiving *all = exchange->state;
    bool is_sync = all->source->config->mode == CONFIG_MODE_SYNC;
    for (size_t i = 0; i < all->events.count; i++) {
        const struct engine_call *call = &all->items[i].made.engine;
        if (call->err.status != OK) {
            fail(all, &call->err);
            return;
        }
    }
    for (size_t i = 0; i < all->events.count; i++) {
        const struct engine_call *call = &all->items[i].made.engine;
        if (call->decision.kind == DECISION_ENQUEUED && all->claim == NULL) {
            dispatch_offer(all->inbox->dispatch, exchange->loop, &call->decision.next);
        }
    }
    if (is_sync) {
        run_all(all);
    } else {
        answer(all);
    }
}

/* The engine took none of the calls. */
static void on_refused(struct door_group *group, const struct err *err)
{
    struct receiving *all = CONTAINER_OF(group, struct receiving, group);
    if (all->claim != NULL) {
        dispatch_claim_refused(all->claim, err);
    }
    fail(all, err);
}

/* On the thread that leads. */
static void done(struct engine_call *call)
{
    struct received *item = CONTAINER_OF(call, struct received, made.engine);
    if (atomic_fetch_sub(&item->all->left, 1) == 1) {
        http_wake(item->all->request->exchange);
    }
}

/* ---- calls --------------------------------------------------------------------------------- */

static enum status make_calls(struct receiving *all, struct err *err)
{
    struct arena *arena = all->request->exchange->arena;
    size_t count = all->events.count;
    all->items = arena_zalloc(arena, count * sizeof *all->items);
    all->calls = arena_alloc(arena, (count + 1) * sizeof(struct engine_call *));
    if (all->items == NULL || all->calls == NULL) {
        return err_set(err, E_NOMEM, "out of memory");
    }
    enum status status = api_trace(all->request, NULL, &all->trace, err);
    for (size_t i = 0; status == OK && i < count; i++) {
        struct received *item = &all->items[i];
        struct enqueue_of of = {.inbox = all->inbox,
            .source = all->source,
            .event = &all->events.items[i],
            .fields = all->events.fields,
            .trace = all->trace,
            .arena = arena,
            .mem = &all->request->mem};
        item->all = all;
        all->calls[i] = &item->made.engine;
        status = enqueue_make(&item->made, &of, err);
        item->made.engine.done = done;
    }
    atomic_store(&all->left, count);
    return status;
}

/* Nothing can fail from here on: a claim that was made is submitted. */
static void submit(struct receiving *all, struct engine_call *claim)
{
    size_t count = all->events.count;
    all->claim = claim;
    all->calls[count] = claim;
    all->group = (struct door_group){
        .calls = all->calls, .count = count + (claim != NULL), .refused = on_refused};
    door_submit_group(all->inbox->door, all->request->exchange->loop, &all->group);
}

static void on_ready(struct dispatch_start *start, struct engine_call *claim)
{
    submit(CONTAINER_OF(start, struct receiving, start), claim);
}

/* ---- in ------------------------------------------------------------------------------------ */

/* Times in signatures are the sender's wall clock. */
static int64_t wall_now_ms(void)
{
    struct clock clock;
    clock_system(&clock);
    return clock_read(&clock).wall_ms;
}

static void take_events(struct receiving *all)
{
    struct api_request *request = all->request;
    struct http_exchange *exchange = request->exchange;
    struct err err = {.status = OK};
    enum status status = events_read(
        &all->source->rule, exchange->head, exchange->body, exchange->arena, &all->events, &err);
    if (status != OK) {
        struct inbox_plan *plan = all->plan;
        refuse_events(request, all->source, &err);
        inbox_plan_drop(plan);
        return;
    }
    if (all->events.count == 0) { /* an empty batch */
        answer(all);
        return;
    }
    status = make_calls(all, &err);
    if (status != OK) {
        fail(all, &err);
        return;
    }
    exchange->state = all;
    exchange->resume = resume;
    if (all->events.count > 1) { /* they wait for their turns */
        submit(all, NULL);
        return;
    }
    const struct enqueued *one = &all->items->made;
    all->start = (struct dispatch_start){
        .enqueue = &one->engine, .body = buf_view(&one->frame), .ready = on_ready};
    dispatch_start_with(all->inbox->dispatch, exchange->loop, &all->start);
}

void inbox_receive(struct api_request *request)
{
    struct inbox_door *inbox = request->state;
    struct http_exchange *exchange = request->exchange;
    struct inbox_plan *plan = inbox_plan_take(inbox);
    const struct inbox_source *source = inbox_plan_find(plan, request->path_value);
    struct receiving *all = arena_zalloc(exchange->arena, sizeof *all);
    size_t secret = 0;
    source = source != NULL && source->config->from != NULL ? NULL : source; /* a queue */
    if (source == NULL || all == NULL) {
        if (source == NULL) {
            api_refuse_plain(request, 404, "unknown_source", "there is no such source");
        } else {
            api_fail_memory(request);
        }
        inbox_plan_drop(plan);
        return;
    }
    *all = (struct receiving){.request = request, .inbox = inbox, .plan = plan, .source = source};
    enum signature_verdict verdict = signature_verify(&source->signature,
        &(struct signature_keys){source->secrets, source->secret_count}, exchange->head,
        exchange->body, wall_now_ms(), exchange->arena, &secret);
    if (verdict == SIGNATURE_FAILED) {
        api_fail_memory(request);
        inbox_plan_drop(plan);
    } else if (verdict != SIGNATURE_OK) {
        refuse_signature(request, source, verdict);
        inbox_plan_drop(plan);
    } else if (inbox_verification(request, source)) {
        inbox_plan_drop(plan);
    } else {
        take_events(all);
    }
}
