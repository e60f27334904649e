/*
 * GET /v1/deliveries, GET /v1/deliveries/{delivery_id}, POST …/redeliver|skip|resolve: what
 * operators see of deliveries, and their decisions. A different tenant's deliveries are not found
 * (P9).
 *
 *   redeliver   a dead letter, or a delivery that waits for its next attempt: now
 *   skip        a dead letter, or a waiting delivery: never
 *   resolve     an unknown delivery: a person says what happened
 */
#include "api/body.h"
#include "api/call.h"
#include "api/query.h"
#include "base/limits.h"
#include "base/macros.h"
#include "engine/request_builder.h"
#include "inbox/impl.h"

enum {
    ANSWER_BYTES_MAX = 512 << 20, /* never reached: a page has its own bounds */
    RACES_MAX = 8,                /* of a skip with attempts, which a backoff keeps apart */
};

static const struct problem missing = {.status = 404,
    .code = "delivery_not_found",
    .detail = SLICE_INIT("there is no such delivery"),
    .effect = PROBLEM_EFFECT_NO,
    .retry = PROBLEM_RETRY_NO};

/* ---- the document -------------------------------------------------------------------------- */

/* The kept data of the event, {"event_id":…,"content_type":…,"bytes":…}, as members of the
 * document. "uncertain" is over when it is known that it happened. */
static void put_detail(struct jsonw *json, const struct record *record, struct arena *arena)
{
    const struct json_value *detail = NULL;
    if (record->detail.len == 0 || json_read(record->detail, arena, &detail, NULL) != OK ||
        detail->type != JSON_OBJECT) {
        return;
    }
    for (uint32_t i = 0; i < detail->count; i++) {
        char name[64];
        struct slice text = json_text(&detail->members[i].name);
        if (record->status == RECORD_EXECUTED && slice_is(text, "uncertain")) {
            continue;
        }
        (void)snprintf(name, sizeof name, "%.*s", SLICE_ARGS(text));
        jsonw_raw(json, name, json_raw(record->detail, &detail->members[i].value));
    }
}

static void put_times(struct jsonw *json, const struct record *record)
{
    jsonw_time(json, "created_at", record->created_ms);
    jsonw_time(json, "updated_at", record->updated_ms);
    if (record->status == RECORD_PENDING) {
        jsonw_time(json, "next_attempt_at", record->due_ms);
    }
    if (record->status == RECORD_UNKNOWN) {
        jsonw_time(json, "unknown_since", record->updated_ms);
    }
    jsonw_time(json, "sealed_at", record->sealed_ms);
    jsonw_time(json, "window_expires_at", record->window_expires_ms);
}

static void put_delivery(
    struct jsonw *json, const struct record *record, struct slice body, struct arena *arena)
{
    char id[KIND_ID_TEXT_BYTES];
    jsonw_open(json, NULL, '{');
    jsonw_str(json, "delivery_id", kind_id_put(id, RECORD_DELIVERY, &record->operation_id));
    jsonw_str(json, "operation_id", kind_id_put(id, RECORD_DELIVERY, &record->operation_id));
    jsonw_str(json, "status", kind_word(RECORD_DELIVERY, record->status, record->attempt));
    jsonw_bytes(json, "tenant", record->key.tenant);
    jsonw_bytes(json, "source", record->key.scope);
    jsonw_bytes(json, "key", record->key.key);
    put_detail(json, record, arena);
    jsonw_bytes_some(json, "source_id", record->source.id);
    jsonw_bytes_some(json, "version", record->source.version);
    jsonw_u64(json, "fence", record->fence);
    jsonw_u64(json, "attempt", record->attempt);
    jsonw_u64(json, "duplicates", record->duplicates);
    put_times(json, record);
    if (record->outcome.code > 0) {
        jsonw_i64(json, "handler_status", record->outcome.code);
    }
    inbox_receipt_put(json, record, body, arena);
    jsonw_bytes_some(json, "reason", record->reason);
    if (record->trace.len > 0) {
        jsonw_raw(json, "trace", record->trace);
    }
    jsonw_close(json, '}');
}

/* ---- one ----------------------------------------------------------------------------------- */

static bool read_id(const struct api_request *request, struct op_id *ret_id)
{
    enum record_kind kind;
    return kind_id_read(request->path_value, &kind, ret_id) && kind == RECORD_DELIVERY;
}

static void answer_delivery(struct api_query *self)
{
    const struct query *query = &self->query;
    struct buf out;
    struct jsonw json = {.out = &out};
    if (query->record == NULL) {
        api_refuse(self->request, &missing);
        return;
    }
    buf_init(&out, &self->request->mem, ANSWER_BYTES_MAX);
    put_delivery(&json, query->record, query->outcome_body, self->request->exchange->arena);
    api_answer_json(self->request, &out);
}

void inbox_delivery_get(struct api_request *request)
{
    struct op_id id;
    if (!read_id(request, &id)) {
        api_refuse(request, &missing);
        return;
    }
    struct api_query *self = api_query_new(request, QUERY_OPERATION, answer_delivery);
    if (self != NULL) {
        self->query.operation_id = id;
        self->query.kinds = STORE_KIND(RECORD_DELIVERY);
        api_query_run(self, request);
    }
}

/* ---- many ---------------------------------------------------------------------------------- */

static void answer_deliveries(struct api_query *self)
{
    const struct query *query = &self->query;
    struct buf out;
    struct jsonw json = {.out = &out};
    buf_init(&out, &self->request->mem, ANSWER_BYTES_MAX);
    jsonw_open(&json, NULL, '{');
    jsonw_open(&json, "deliveries", '[');
    struct slice wanted = SLICE_EMPTY;
    (void)!api_param(self->request, "status", &wanted);
    for (size_t i = 0; i < query->count; i++) {
        const struct record *record = query->records[i];
        if (wanted.len > 0 &&
            !slice_is(wanted, kind_word(RECORD_DELIVERY, record->status, record->attempt))) {
            continue; /* "failed" stands for two statuses; a scan takes only one */
        }
        put_delivery(&json, record, SLICE_EMPTY, self->request->exchange->arena);
    }
    jsonw_close(&json, ']');
    api_query_put_next(&json, query);
    jsonw_close(&json, '}');
    api_answer_json(self->request, &out);
}

/* By the name of a delivery's status: "delivering", "dead_letter". */
static bool take_status(struct slice text, enum record_status *ret_status)
{
    for (unsigned status = 1; status < RECORD_STATUS_END; status++) {
        const char *word = kind_word(RECORD_DELIVERY, (enum record_status)status, 1);
        if (word != NULL && slice_is(text, word)) {
            *ret_status =
                status == RECORD_FAILED ? (enum record_status)0 : (enum record_status)status;
            return true;
        }
    }
    return false;
}

static const char *take_filters(const struct api_request *request, struct scan *scan)
{
    struct slice value;
    scan->kinds = STORE_KIND(RECORD_DELIVERY);
    (void)!api_param(request, "source", &scan->scope);
    (void)!api_param(request, "key", &scan->key);
    if (api_param(request, "status", &value) && !take_status(value, &scan->status)) {
        return "parameter 'status' must be one of pending, waiting, delivering, unknown, executed, "
               "failed or dead_letter";
    }
    return NULL;
}

void inbox_delivery_list(struct api_request *request)
{
    struct api_query *self = api_query_new(request, QUERY_RECORDS, answer_deliveries);
    if (self != NULL) {
        api_query_list(self, request, take_filters(request, &self->query.scan));
    }
}

/* ---- operators' decisions ------------------------------------------------------------------ */

struct act {
    struct engine_call engine; /* first */
    struct api_request *request;
    struct api_query query; /* of a skip: reads the version that is skipped */
    unsigned races;         /* how often that version had changed */
};

/* These two have the delivery's status as their detail. */
static const struct problem stale_fence = {
    .status = 409, .code = "stale_fence", .effect = PROBLEM_EFFECT_NO, .retry = PROBLEM_RETRY_NO};
static const struct problem wrong_status = {
    .status = 409, .code = "wrong_status", .effect = PROBLEM_EFFECT_NO, .retry = PROBLEM_RETRY_NO};

/* The refusal of an action, by its decision; NULL: it was done. -Wswitch-enum: a new decision does
 * not build until it has its place here. */
static const struct problem *refusal_of(enum decision_kind kind)
{
    switch (kind) {
    case DECISION_DONE:
    case DECISION_RESOLVED: return NULL;
    case DECISION_NOT_FOUND: return &missing;
    case DECISION_STALE_FENCE: return &stale_fence;
    case DECISION_WRONG_STATUS:
    case DECISION_ALREADY_SEALED:
    case DECISION_STILL_RUNNING:
    case DECISION_TOO_LATE:
    case DECISION_NOT_DUE: return &wrong_status;
    case DECISION_FIRST_SEEN: /* no action leads to these */
    case DECISION_DUPLICATE_REPLAYED:
    case DECISION_IN_PROGRESS:
    case DECISION_CONFLICT_REJECTED:
    case DECISION_HELD_UNKNOWN:
    case DECISION_SEALED:
    case DECISION_RELEASED:
    case DECISION_UNKNOWN:
    case DECISION_RENEWED:
    case DECISION_STALE_VERSION:
    case DECISION_NOTHING:
    case DECISION_ENQUEUED:
    case DECISION_CLAIMED: break;
    }
    return &api_problem_decision;
}

static void refuse_act(const struct act *act, const struct problem *refusal)
{
    const struct record *record = &act->engine.decision.next;
    struct problem problem = *refusal;
    char detail[160];
    if (refusal == &stale_fence || refusal == &wrong_status) {
        bool is_unknown = record_there(record) && record->status == RECORD_UNKNOWN;
        (void)snprintf(detail, sizeof detail, "the delivery is %s%s",
            record_there(record) ? kind_word(RECORD_DELIVERY, record->status, 1) : "gone",
            is_unknown ? ": resolve it first, by saying what happened" : "");
        problem.detail = slice_str(detail);
        problem.code = is_unknown ? "outcome_unknown" : refusal->code;
        problem.effect = is_unknown ? PROBLEM_EFFECT_UNKNOWN : refusal->effect;
    }
    api_refuse(act->request, &problem);
}

static void read_and_skip(struct act *act);

static void resume(void *context, struct http_exchange *exchange)
{
    (void)context;
    struct act *act = exchange->state;
    struct api_request *request = act->request;
    struct inbox_door *inbox = request->state;
    const struct decision *decision = &act->engine.decision;
    struct buf out;
    struct jsonw json = {.out = &out};
    if (act->engine.err.status != OK) {
        api_fail(request, &act->engine.err);
        return;
    }
    bool has_changed = act->engine.request.version != 0 &&
                       decision->kind == DECISION_WRONG_STATUS &&
                       decision->next.version != act->engine.request.version;
    if (has_changed && act->races++ < RACES_MAX) {
        read_and_skip(act);
        return;
    }
    const struct problem *refusal = refusal_of(decision->kind);
    bool is_done = refusal == NULL;
    door_report(inbox->door, exchange->loop,
        &(struct door_report){.call = &act->engine,
            .tenant = request->caller.tenant,
            .label = is_done ? decision->next.key.scope : SLICE_LIT("deliveries"),
            .actor = request->caller.actor,
            .request_id = exchange->request_id,
            .status = is_done ? 200 : refusal->status,
            .started_nanos = exchange->started_nanos,
            .logs = request->policy->logs_decisions});
    if (!is_done) {
        refuse_act(act, refusal);
        return;
    }
    if (decision->next.status == RECORD_PENDING) {
        dispatch_offer(inbox->dispatch, exchange->loop, &decision->next);
    }
    buf_init(&out, &request->mem, ANSWER_BYTES_MAX);
    put_delivery(&json, &decision->next, act->engine.outcome_body, exchange->arena);
    api_answer_json(request, &out);
}

static void done(struct engine_call *call)
{
    struct act *act = CONTAINER_OF(call, struct act, engine);
    http_wake(act->request->exchange);
}

static void submit(struct act *act)
{
    struct api_request *request = act->request;
    struct inbox_door *inbox = request->state;
    struct err err = {.status = OK};
    request->exchange->state = act;
    request->exchange->resume = resume;
    enum status status = builder_check(&act->engine, &err);
    status = status == OK ? engine_submit(door_engine(inbox->door), &act->engine, &err) : status;
    if (status != OK) {
        api_fail(request, &err);
    }
}

/* NULL: the request has been answered. */
static struct act *act_new(struct api_request *request, enum request_kind kind)
{
    struct op_id id;
    struct act *act = arena_zalloc(request->exchange->arena, sizeof *act);
    if (!read_id(request, &id)) {
        api_refuse(request, &missing);
        return NULL;
    }
    if (act == NULL) {
        api_fail_memory(request);
        return NULL;
    }
    act->request = request;
    act->engine = (struct engine_call){.request = {.kind = kind,
                                           .operation_id = id,
                                           .key.tenant = request->caller.tenant,
                                           .actor = request->caller.actor},
        .arena = request->exchange->arena,
        .done = done};
    (void)!api_trace(request, NULL, &act->engine.request.trace, NULL);
    return act;
}

/* The body of an action; NULL if absent. False: the request has been answered. */
static bool read_body(struct api_request *request, const struct member_table *table, void *into,
    const struct json_value **values)
{
    struct member_fault fault = {.code = NULL};
    const struct json_value *body = NULL;
    if (request->exchange->body.len == 0 && !table->members[0].is_required) {
        return true;
    }
    if (!api_body_json(request, &body)) {
        return false;
    }
    enum status status = members_read(table, body, into, values, &fault);
    if (status != OK) {
        api_body_refuse(request, status, &fault);
        return false;
    }
    return true;
}

#define AT(member) offsetof(struct engine_call, member)
static const struct member reason_members[] = {
    {SLICE_INIT("reason"), MEMBER_TEXT, false, AT(request.reason)}};
static const struct member_table reason_table = {"", reason_members, 1, true};

/* NULL: the request has been answered. */
static struct act *act_with_reason(
    struct api_request *request, enum request_kind kind, struct slice usual)
{
    const struct json_value *values[COUNT(reason_members)];
    struct act *act = act_new(request, kind);
    if (act == NULL || !read_body(request, &reason_table, &act->engine, values)) {
        return NULL;
    }
    if (act->engine.request.reason.len == 0) {
        act->engine.request.reason = usual;
    }
    return act;
}

void inbox_delivery_redeliver(struct api_request *request)
{
    struct act *act =
        act_with_reason(request, REQUEST_TAKE_UP, SLICE_LIT("delivered again by an operator"));
    if (act != NULL) {
        submit(act);
    }
}

static void skip(struct api_query *query)
{
    struct act *act = CONTAINER_OF(query, struct act, query);
    const struct record *record = query->query.record;
    if (record == NULL) {
        api_refuse(act->request, &missing);
        return;
    }
    act->engine.request.version = record->version;
    submit(act);
}

/* X6: what is skipped is what was read. Where the source says redeliver, a delivery may have been
 * called and wait again within one turn, and its entry shows which of the two was skipped. */
static void read_and_skip(struct act *act)
{
    act->query = (struct api_query){.query = {.kind = QUERY_OPERATION,
                                        .operation_id = act->engine.request.operation_id,
                                        .kinds = STORE_KIND(RECORD_DELIVERY)},
        .answer = skip};
    api_query_run(&act->query, act->request);
}

void inbox_delivery_skip(struct api_request *request)
{
    struct act *act = act_with_reason(request, REQUEST_CANCEL, SLICE_LIT("skipped by an operator"));
    if (act != NULL) {
        read_and_skip(act);
    }
}

static bool take_resolution(struct act *act, const struct json_value *status)
{
    static const struct {
        const char *word;
        enum record_status status;
    } words[] = {
        {"executed", RECORD_EXECUTED}, {"failed", RECORD_FAILED}, {"not_executed", RECORD_PENDING}};
    for (size_t i = 0; i < COUNT(words); i++) {
        if (json_is(status, JSON_STRING) && slice_is(json_text(status), words[i].word)) {
            act->engine.request.status = words[i].status;
            return true;
        }
    }
    api_refuse_plain(act->request, 400, "invalid_member",
        "member 'status' must be one of executed, failed or not_executed");
    return false;
}

void inbox_delivery_resolve(struct api_request *request)
{
    enum { STATUS, OUTCOME };
    static const struct member members[] = {
        [STATUS] = {.name = SLICE_INIT("status"), .is_required = true},
        [OUTCOME] = {.name = SLICE_INIT("outcome")},
        {SLICE_INIT("reason"), MEMBER_TEXT, true, AT(request.reason)},
        {SLICE_INIT("effect_id"), MEMBER_TEXT, false, AT(request.effect_id)},
        {SLICE_INIT("fence"), MEMBER_POSITIVE, false, AT(request.fence)},
    };
    static const struct member_table table = {"", members, COUNT(members), true};
    const struct json_value *values[COUNT(members)];
    struct act *act = act_new(request, REQUEST_RESOLVE);
    if (act == NULL || !read_body(request, &table, &act->engine, values) ||
        !take_resolution(act, values[STATUS])) {
        return;
    }
    if (values[OUTCOME] != NULL && act->engine.request.status != RECORD_PENDING) {
        builder_outcome_body(&act->engine, json_raw(request->exchange->body, values[OUTCOME]),
            LIMIT_OUTCOME_BYTES_MAX);
    }
    submit(act);
}
