/*
 * POST /v1/commands, from the envelope to the answer:
 *
 *   command_submit   the envelope is read, checked and normalised; its key is derived
 *   ask              begin, or, where a confirmation is needed, enqueue as waiting
 *   on_decided       granted: the handler is called. Else a replay, the processing answer or a
 *                    refusal; after an expired confirmation, asked once more
 *   execution_run    the handler, after the durable grant (P6), through the dispatcher
 *   on_settled       durable: the client is answered (P2). A client that left changes nothing
 *
 * A crash:
 *   before the grant is durable                     nothing happened; the key is fresh
 *   after it, before the outcome is durable         blocked at the next start: unknown (P5)
 *   after the confirmation was asked for            it waits, and expires; the token still works
 *   after the outcome, before the answer            a duplicate gets the replay
 */
#include "api/body.h"
#include "api/call.h"
#include "base/check.h"
#include "base/macros.h"
#include "canon/jcs.h"
#include "command/impl.h"
#include "http/fields.h"

/* ---- the life of an execution -------------------------------------------------------------- */

void execution_init(struct execution *execution, struct api_request *request)
{
    execution->commands = request->state;
    execution->request = request;
    execution->registry = registry_take(execution->commands);
    execution->call.engine.request.actor = request->caller.actor;
}

struct execution *execution_new(struct api_request *request)
{
    struct execution *execution = arena_zalloc(request->exchange->arena, sizeof *execution);
    if (execution == NULL) {
        api_fail_memory(request);
        return NULL;
    }
    execution_init(execution, request);
    return execution;
}

static void resume(void *context, struct http_exchange *exchange)
{
    (void)context;
    struct execution *execution = exchange->state;
    execution->decided(execution);
}

static void on_engine(struct engine_call *engine)
{
    http_wake(engine->context);
}

static void on_refused(struct door_call *call)
{
    struct execution *execution = CONTAINER_OF(call, struct execution, call);
    execution->decided(execution);
}

void execution_wait(struct execution *execution, void (*decided)(struct execution *execution))
{
    struct http_exchange *exchange = execution->request->exchange;
    execution->decided = decided;
    exchange->state = execution;
    exchange->resume = resume;
}

void execution_submit(struct execution *execution, void (*decided)(struct execution *execution))
{
    struct http_exchange *exchange = execution->request->exchange;
    execution_wait(execution, decided);
    execution->call.refused = on_refused;
    execution->call.engine.done = on_engine;
    execution->call.engine.context = exchange;
    execution->call.engine.arena = exchange->arena;
    execution->call.engine.err = (struct err){.status = OK};
    door_submit(execution->commands->door, exchange->loop, &execution->call);
    http_turn(exchange);
}

static void report(const struct execution *execution, unsigned status)
{
    const struct api_request *request = execution->request;
    const struct http_exchange *exchange = request->exchange;
    bool logs = request->policy->logs_decisions;
    const char *name = execution->envelope.command == NULL ? "" : execution->envelope.command->name;
    struct door_report made = {.call = &execution->call.engine,
        .rate = execution->call.rate,
        .was_counted = execution->call.is_counted,
        .tenant = request->caller.tenant,
        .label = slice_str(name),
        .actor = request->caller.actor,
        .request_id = exchange->request_id,
        .trace_id = logs ? fields_trace_id(exchange->head) : SLICE_EMPTY,
        .status = status,
        .started_nanos = exchange->started_nanos,
        .logs = logs};
    door_report(execution->commands->door, exchange->loop, &made);
}

void execution_refuse(struct execution *execution, const struct problem *problem)
{
    struct api_request *request = execution->request;
    registry_drop(execution->registry);
    api_refuse(request, problem);
}

void execution_fail(struct execution *execution, const struct err *err)
{
    struct problem problem = api_problem_of(err);
    execution_refuse(execution, &problem);
}

int64_t execution_lease_ms(const struct config_command *command)
{
    return command->timeout_ms + COMMAND_LEASE_SPARE_MS;
}

/* ---- the answer ---------------------------------------------------------------------------- */

enum { PROBLEM_EXTRA_BYTES_MAX = 4096 }; /* more than an id of 255 escaped bytes and two digests */

/* command_id is the document's: the submitter may have given one. */
static void put_problem_ids(const struct execution *execution, struct buf *out)
{
    char id[KIND_ID_TEXT_BYTES];
    struct detail detail = {0};
    (void)!detail_read(execution->record.detail, execution->request->exchange->arena, &detail);
    buf_str(out, "\"command_id\":");
    jcs_put_string(out, document_id(&execution->record, &detail, id));
    buf_printf(out, ",\"status_url\":\"/v1/commands/%s\"",
        kind_id_put(id, RECORD_COMMAND, &execution->record.operation_id));
}

/* It is not known whether the handler did it. */
static void answer_unknown(struct execution *execution, unsigned status)
{
    char id[KIND_ID_TEXT_BYTES];
    struct buf extra;
    buf_init(&extra, &execution->request->mem, PROBLEM_EXTRA_BYTES_MAX);
    put_problem_ids(execution, &extra);
    execution_refuse(execution,
        &(struct problem){.status = status,
            .code = "outcome_unknown",
            .detail = SLICE_LIT("nobody knows whether the handler did it; the command is blocked"),
            .effect = PROBLEM_EFFECT_UNKNOWN,
            .retry = PROBLEM_RETRY_NO,
            .operation_id =
                slice_str(kind_id_put(id, RECORD_COMMAND, &execution->record.operation_id)),
            .extra = buf_status(&extra) == OK ? buf_view(&extra) : SLICE_EMPTY});
}

void execution_answer(struct execution *execution, unsigned status)
{
    struct api_request *request = execution->request;
    const struct record *record = &execution->record;
    struct detail detail;
    struct buf out;
    struct jsonw json = {.out = &out};
    char url[96] = "/v1/commands/";
    buf_init(&out, &request->mem, COMMAND_ANSWER_BYTES_MAX);
    enum status read = detail_read(record->detail, request->exchange->arena, &detail);
    if (read == OK) {
        jsonw_open(&json, NULL, '{');
        document_put(&json,
            &(struct command_document){.record = record,
                .outcome_body = execution->outcome,
                .has_outcome = record_sealed(record) && !execution->is_lost,
                .decision = execution->decision,
                .token = execution->token, /* empty, except for the caller that made it wait */
                .prompt = execution->prompt},
            &detail);
        if (status == 202) {
            jsonw_i64(&json, "retry_after_ms", COMMAND_RETRY_SOON_MS);
        }
        jsonw_close(&json, '}');
    }
    registry_drop(execution->registry);
    if (read != OK || buf_status(&out) != OK) {
        /* It happened, but the document did not fit: a duplicate gets it. */
        api_refuse(request, &(struct problem){.status = 503,
                                .code = "out_of_memory",
                                .detail = SLICE_LIT("out of memory for the answer"),
                                .effect = PROBLEM_EFFECT_UNKNOWN,
                                .retry = PROBLEM_RETRY_SAFE});
        return;
    }
    (void)kind_id_put(url + strlen(url), RECORD_COMMAND, &record->operation_id);
    api_answer_begin(request, status);
    if (status == 201 || status == 202) {
        http_answer_field(request->exchange, SLICE_LIT("Location"), slice_str(url));
    }
    if (status == 202) {
        http_answer_field(request->exchange, SLICE_LIT("Retry-After"), SLICE_LIT("1"));
    }
    api_answer_end(request, SLICE_LIT("application/json"), buf_view(&out), true);
}

/* Answer the caller that started it with the record's result. */
static void answer_started(struct execution *execution)
{
    switch (execution->record.status) {
    case RECORD_EXECUTED: execution_answer(execution, 201); break;
    case RECORD_FAILED:
    case RECORD_REJECTED:
    case RECORD_COMPENSATED:
    case RECORD_COMPENSATING: execution_answer(execution, 200); break;
    case RECORD_UNKNOWN: answer_unknown(execution, 504); break;
    case RECORD_IN_PROGRESS:
    case RECORD_PENDING:
    case RECORD_WAITING:
    case RECORD_DEAD: execution_answer(execution, 202); break;
    case RECORD_RELEASED: ASSERT(false); /* core/kind.h: a command is never released */
    }
}

/* ---- the handler --------------------------------------------------------------------------- */

static void on_settled(struct execution *execution)
{
    answer_started(execution);
}

/* Called once. The exchange waits for this, and nobody else uses it. */
static void on_done(void *context, const struct dispatch_call *call)
{
    struct execution *execution = context;
    struct http_exchange *exchange = execution->request->exchange;
    if (call->call_count > 0 && call->calls[0]->err.status == OK) {
        const struct engine_call *settled = call->calls[0];
        if (call->call_count > 1 && call->calls[1]->request.kind == REQUEST_RESOLVE) {
            settled = call->calls[1]; /* unknown, and called again (execute.c) */
        }
        execution->is_settled = true;
        execution->is_lost =
            record_copy(&settled->decision.next, exchange->arena, &execution->record) != OK ||
            arena_copy(exchange->arena, settled->outcome_body, &execution->outcome) != OK;
    }
    http_wake(exchange);
}

/* It was not accepted: nothing was sent, and it is run a little later. */
static void on_requeued(struct execution *execution)
{
    const struct engine_call *engine = &execution->call.engine;
    if (engine->err.status == OK && record_there(&engine->decision.next)) {
        execution->record = engine->decision.next;
    }
    answer_started(execution);
}

static void requeue(struct execution *execution, const struct err *err)
{
    const struct record *record = &execution->record;
    execution->call = (struct door_call){
        .engine = {.request = {.kind = REQUEST_RETRY,
                       .key = record->key,
                       .operation_id = record->operation_id,
                       .fence = record->fence,
                       .delay_ms = COMMAND_RETRY_SOON_MS,
                       .reason = slice_str(err->status == E_LIMIT ? "overloaded" : "draining")}}};
    execution_submit(execution, on_requeued);
}

void execution_run(struct execution *execution)
{
    const struct engine_call *granted = &execution->call.engine;
    struct err err = {.status = OK};
    execution->record = granted->decision.next;
    ASSERT(execution->record.fence > 0); /* P6 */
    struct dispatch_granted run = {.record = &execution->record,
        .body = execution->body,
        .grant = door_grant_of(granted),
        .done = on_done,
        .context = execution};
    execution->decided = on_settled;
    if (dispatch_run(
            execution->commands->dispatch, execution->request->exchange->loop, &run, &err) != OK) {
        requeue(execution, &err);
    }
}

/* ---- the decision -------------------------------------------------------------------------- */

static void answer_conflict(struct execution *execution)
{
    char id[KIND_ID_TEXT_BYTES];
    char first[DIGEST_HEX_BYTES];
    char second[DIGEST_HEX_BYTES];
    struct buf extra;
    buf_init(&extra, &execution->request->mem, PROBLEM_EXTRA_BYTES_MAX);
    put_problem_ids(execution, &extra);
    buf_printf(&extra, ",\"stored_fingerprint\":\"%s\",\"received_fingerprint\":\"%s\"",
        digest_put_hex(first, &execution->record.fingerprint),
        digest_put_hex(second, &execution->call.engine.request.fingerprint));
    execution_refuse(execution,
        &(struct problem){.status = 409,
            .code = "idempotency_conflict",
            .detail = SLICE_LIT("this key was used with a different envelope"),
            .error_type = "idempotency_error",
            .effect = PROBLEM_EFFECT_NO,
            .retry = PROBLEM_RETRY_NO,
            .operation_id =
                slice_str(kind_id_put(id, RECORD_COMMAND, &execution->record.operation_id)),
            .extra = buf_status(&extra) == OK ? buf_view(&extra) : SLICE_EMPTY});
}

/* It is called again, here or by a process that was faster. */
static void on_taken_over(struct execution *execution)
{
    const struct engine_call *engine = &execution->call.engine;
    if (engine->err.status != OK || !record_there(&engine->decision.next)) {
        answer_unknown(execution, 409); /* as it was found: nothing else is known */
        return;
    }
    execution->record = engine->decision.next;
    if (execution->record.status == RECORD_UNKNOWN) {
        answer_unknown(execution, 409);
        return;
    }
    if (execution->record.status == RECORD_PENDING) {
        dispatch_offer(
            execution->commands->dispatch, execution->request->exchange->loop, &execution->record);
    }
    execution->decision = decision_name(DECISION_IN_PROGRESS);
    execution->is_lost = true; /* if it has ended meanwhile, status_url has the outcome */
    execution_answer(execution, 202);
}

bool execution_take_over(
    struct execution *execution, struct slice reason, void (*decided)(struct execution *execution))
{
    struct slice detail = SLICE_EMPTY;
    const struct record *record = &execution->record;
    if (detail_mark(record->detail, true, execution->request->exchange->arena, &detail) != OK) {
        return false;
    }
    /* A recovery may have changed the detail, and its trace names it. */
    detail = detail.len > 0 ? detail : record->detail;
    const struct request *before = &execution->call.engine.request;
    struct slice trace = before->kind == REQUEST_TAKE_UP ? before->trace : SLICE_EMPTY;
    execution->call =
        (struct door_call){.engine = {.request = {.kind = REQUEST_RESOLVE,
                                          .key = {.tenant = record->key.tenant},
                                          .operation_id = record->operation_id,
                                          .fence = record->fence,
                                          .version = record->version,
                                          .status = RECORD_PENDING,
                                          .actor = execution->request->caller.actor,
                                          .reason = reason.len > 0 ? reason : COMMAND_AGAIN_REASON,
                                          .trace = trace,
                                          .detail = detail}}};
    execution_submit(execution, decided);
    return true;
}

/* A duplicate of a command that is unknown. Usually the dispatcher takes it over by itself; not one
 * that was granted before the registry said takeover. */
static void answer_held(struct execution *execution)
{
    const struct record *record = &execution->record;
    if (record->status != RECORD_UNKNOWN ||
        !command_takes_over(execution->envelope.command, record) ||
        !execution_take_over(execution, SLICE_EMPTY, on_taken_over)) {
        answer_unknown(execution, 409);
    }
}

static unsigned status_of(enum decision_kind kind)
{
    switch (kind) {
    case DECISION_FIRST_SEEN: return 201;
    case DECISION_DUPLICATE_REPLAYED: return 200;
    case DECISION_ENQUEUED:
    case DECISION_IN_PROGRESS: return 202;
    case DECISION_CONFLICT_REJECTED:
    case DECISION_HELD_UNKNOWN: return 409;
    case DECISION_SEALED:
    case DECISION_RELEASED:
    case DECISION_UNKNOWN:
    case DECISION_RENEWED:
    case DECISION_RESOLVED:
    case DECISION_NOT_FOUND:
    case DECISION_STALE_FENCE:
    case DECISION_ALREADY_SEALED:
    case DECISION_STILL_RUNNING:
    case DECISION_STALE_VERSION:
    case DECISION_NOTHING:
    case DECISION_CLAIMED:
    case DECISION_DONE:
    case DECISION_NOT_DUE:
    case DECISION_TOO_LATE:
    case DECISION_WRONG_STATUS: break;
    }
    return 500;
}

static void ask(struct execution *execution);

static void on_expired(struct execution *execution)
{
    execution->call =
        (struct door_call){.engine = {.request = {.actor = execution->request->caller.actor}}};
    ask(execution); /* what became of the one that waited, this decides */
}

/* It waits for a confirmation that has expired, though nobody has noted that yet. */
static bool is_expired(const struct execution *execution)
{
    const struct engine_call *engine = &execution->call.engine;
    const struct record *record = &engine->decision.next;
    return engine->decision.kind == DECISION_IN_PROGRESS && record->status == RECORD_WAITING &&
           record->attempt == 0 && record_due_ms(record) <= engine->now_ms &&
           !execution->has_expired;
}

static void on_decided(struct execution *execution)
{
    const struct engine_call *engine = &execution->call.engine;
    enum decision_kind kind = engine->decision.kind;
    if (engine->err.status == OK && is_expired(execution)) {
        struct request expiry = command_expiry(&engine->decision.next);
        execution->has_expired = true;
        execution->call = (struct door_call){.engine = {.request = expiry}};
        execution_submit(execution, on_expired);
        return;
    }
    report(execution, engine->err.status == OK ? status_of(kind) : 503);
    if (engine->err.status != OK) {
        execution_fail(execution, &engine->err);
        return;
    }
    execution->record = engine->decision.next;
    execution->outcome = engine->outcome;
    execution->decision = kind == DECISION_ENQUEUED ? "first_seen" : decision_name(kind);
    if (kind != DECISION_ENQUEUED) {
        memset(execution->token, 0, sizeof execution->token); /* the token was not used */
    }
    switch (status_of(kind)) {
    case 201: execution_run(execution); break;
    case 200: execution_answer(execution, 200); break;
    case 202: execution_answer(execution, 202); break;
    default:
        if (kind == DECISION_CONFLICT_REJECTED) {
            answer_conflict(execution);
        } else {
            ASSERT(kind == DECISION_HELD_UNKNOWN); /* a begin or an enqueue has no other decision */
            answer_held(execution);
        }
    }
}

/* ---- submitting ---------------------------------------------------------------------------- */

static bool admit(struct execution *execution)
{
    const struct api_policy *policy = execution->request->policy;
    int64_t after_ms = 0;
    execution->call.rate = (struct flood_rate){policy->duplicate_rate, policy->duplicate_burst};
    if (door_admit(execution->commands->door, &execution->call.engine.request.key,
            execution->call.rate, &after_ms)) {
        return true;
    }
    execution_refuse(execution,
        &(struct problem){.status = 429,
            .code = "too_many_duplicates",
            .detail = SLICE_LIT("duplicates of this key come faster than limits.duplicate_rate"),
            .effect = PROBLEM_EFFECT_NO,
            .retry = PROBLEM_RETRY_AFTER,
            .retry_after_ms = after_ms});
    return false;
}

static bool is_within_rate(struct execution *execution)
{
    int64_t after_ms = 0;
    if (admission_is_within_rate(&execution->admission, &after_ms)) {
        return true;
    }
    execution_refuse(
        execution, &(struct problem){.status = 429,
                       .code = "limit_reached",
                       .detail = SLICE_LIT("this command is submitted faster than its rate"),
                       .effect = PROBLEM_EFFECT_NO,
                       .retry = PROBLEM_RETRY_AFTER,
                       .retry_after_ms = after_ms});
    return false;
}

static void refuse_envelope(struct execution *execution, const struct envelope_fault *fault)
{
    execution_refuse(execution, &(struct problem){.status = fault->status,
                                    .code = fault->code,
                                    .detail = slice_str(fault->err.text),
                                    .effect = PROBLEM_EFFECT_NO,
                                    .retry = PROBLEM_RETRY_NO});
}

static void ask(struct execution *execution)
{
    struct err err = {.status = OK};
    enum status status = admission_make(&execution->admission, &execution->call.engine, &err);
    if (status == E_INVALID) {
        refuse_envelope(execution,
            &(struct envelope_fault){.status = 400, .code = "invalid_member", .err = err});
    } else if (status != OK) {
        execution_fail(execution, &err);
    } else if (admit(execution)) {
        execution_submit(execution, on_decided);
    }
}

void command_submit(struct api_request *request)
{
    const struct json_value *body;
    struct envelope_fault fault = {0};
    if (!api_body_json(request, &body)) {
        return;
    }
    struct execution *execution = execution_new(request);
    if (execution == NULL) {
        return;
    }
    struct http_exchange *exchange = request->exchange;
    execution->admission = (struct command_admission){.commands = execution->commands,
        .registry = execution->registry,
        .envelope = &execution->envelope,
        .tenant = request->caller.tenant,
        .is_tenant_verified = request->policy->needs_token,
        .request_id = exchange->request_id,
        .traceparent = fields_traceparent_of(exchange->head),
        .arena = exchange->arena,
        .mem = &request->mem,
        .token = execution->token};
    confirmation_credential(request, &execution->admission.submitter);
    enum status status = admission_read(&execution->admission, body, &fault);
    if (status == OK) {
        execution->is_read = execution->admission.is_read;
        execution->body = execution->envelope.canonical;
        status = execution->envelope.command->confirm == CONFIG_CONFIRM_NONE
                     ? OK
                     : envelope_prompt(&execution->envelope, exchange->arena, &execution->prompt);
    }
    if (status == E_INVALID) {
        refuse_envelope(execution, &fault);
    } else if (status != OK) {
        execution_fail(execution, &(struct err){.status = E_NOMEM, .text = "out of memory"});
    } else if (is_within_rate(execution)) {
        ask(execution);
    }
}
