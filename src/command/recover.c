/*
 * An operator's decisions about a blocked command: POST /v1/commands/{command_id}/recover
 * {"action": "retry" | "cancel" | "compensate", "reason"} and …/resolve {"status": "executed" |
 * "failed" | "not_executed", "outcome", "attempt", "reason"}. Each is one decision, itself
 * idempotent and in the evidence. recovery.h has the table of what is allowed when.
 *
 * A recovery is a command of its own in all but its record: it has an id (`recovery_id`, given or
 * made), an actor and a reason. The record of the command that it recovers keeps the last one, in
 * the commit of what it changes; so a repetition that names its id gets the same answer even when
 * the command has moved on since. Every entry that it makes, of the command and of its effects,
 * has the id in its trace.
 *
 *   retry       for a command that was given up: the handler certainly did nothing. An unknown
 *               command must be resolved first (409 outcome_unknown), unless its handler may be
 *               called again (on_unknown: takeover). For a command that waits for its effects:
 *               those that were given up.
 *   cancel      for a command that has not started. One that may have happened and is to be called
 *               again must be resolved first (409 outcome_unknown, P5)
 *   compensate  for a command that ended, or that waits for effects that will not come: its
 *               acknowledged effects are undone (compensate.h)
 *   resolve     for an unknown command; not_executed: the handler is called again. Also for a
 *               command that is blocked because a required effect failed: executed or failed, with
 *               the handler's outcome unless a different one is given. With `attempt` it settles
 *               only the attempt that the person checked (409 stale_attempt): the handler may
 *               have been called again while the request was on its way.
 *
 * All but compensate, executed and failed depend on the detail of the record, or change it. So the
 * record is read first, and the engine decides only about the version that was read.
 */
#include "api/body.h"
#include "api/query.h"
#include "base/macros.h"
#include "base/name.h"
#include "base/uuid.h"
#include "command/compensate.h"
#include "command/effects.h"
#include "command/recovery.h"
#include "engine/operation_document.h"
#include "engine/request_builder.h"

/* The members of the body. */
struct recover_body {
    struct slice action; /* or status */
    struct slice reason;
    struct slice recovery_id;
    uint64_t attempt; /* that was checked; 0: not given */
};

enum { READS_MAX = 8 }; /* of a record that changes meanwhile */

/* An operator's decision in progress. */
struct recovering {
    struct execution execution;
    struct effects_recovery recovery; /* of an action on the command's effects */
    struct api_query query;           /* reads the record first */
    struct request request;           /* what is submitted after that */
    unsigned reads;
    uint64_t attempt; /* that a resolution is about; 0: any */
    /* Only of a recovery, not of a resolution. */
    bool recovers;
    enum recovery_action action;
    struct detail_recovery noted;
    char id[sizeof "rec_" + UUID_TEXT_BYTES]; /* made for it */
};

static struct recovering *recovering_of(struct execution *execution)
{
    return CONTAINER_OF(execution, struct recovering, execution);
}

static const char *const actions[RECOVERIES] = {
    [RECOVERY_RETRY] = "retry", [RECOVERY_CANCEL] = "cancel", [RECOVERY_COMPENSATE] = "compensate"};

static void refuse_missing(struct execution *execution)
{
    execution_refuse(execution, &(struct problem){.status = 404,
                                    .code = "command_not_found",
                                    .detail = SLICE_LIT("there is no such command"),
                                    .effect = PROBLEM_EFFECT_NO,
                                    .retry = PROBLEM_RETRY_NO});
}

static void refuse_state(struct execution *execution, const char *code, struct slice why)
{
    bool is_unknown = slice_is(slice_str(code), "outcome_unknown");
    execution_refuse(
        execution, &(struct problem){.status = 409,
                       .code = code,
                       .detail = why,
                       .effect = is_unknown ? PROBLEM_EFFECT_UNKNOWN : PROBLEM_EFFECT_NO,
                       .retry = PROBLEM_RETRY_NO});
}

/* ---- the command's effects ----------------------------------------------------------------- */

static void on_recovered(struct execution *execution)
{
    struct recovering *self = recovering_of(execution);
    const struct effects_recovery *recovery = &self->recovery;
    switch (recovery->end) {
    case EFFECTS_RECOVERED:
        execution->record = recovery->record;
        execution->is_lost = true; /* the outcome is not shown here */
        execution_answer(execution, 200);
        return;
    case EFFECTS_NOT_FOUND: refuse_missing(execution); return;
    case EFFECTS_REFUSED:
        refuse_state(execution, recovery->code, slice_str(recovery->err.text));
        return;
    case EFFECTS_ERROR: break;
    }
    execution_fail(execution, &recovery->err);
}

static void on_effects(void *context, const struct effects_recovery *recovery)
{
    struct recovering *self = context;
    self->recovery = *recovery;
    http_wake(self->execution.request->exchange);
}

static void recover_effects(struct recovering *self, enum recovery_action action)
{
    struct execution *execution = &self->execution;
    const struct request *made = &execution->call.engine.request;
    struct effects_recover options = {.id = made->operation_id,
        .tenant = execution->request->caller.tenant,
        .actor = execution->request->caller.actor,
        .reason = made->reason,
        .recovery = self->noted,
        .trace = made->trace,
        .retries = action == RECOVERY_RETRY,
        .arena = execution->request->exchange->arena,
        .done = on_effects,
        .context = self};
    execution_wait(execution, on_recovered);
    enum status status = command_effects_recover(execution->commands, &options);
    if (status == E_UNAVAILABLE) {
        execution_fail(execution,
            &(struct err){.status = status, .text = "the server was started without commands"});
    } else if (status != OK) {
        execution_fail(execution, &(struct err){.status = status, .text = "out of memory"});
    }
}

static void on_decided(struct execution *execution);

/* A person ends a command that is blocked by an effect. The handler did run. */
static void resolve_blocked(struct execution *execution)
{
    struct engine_call *engine = &execution->call.engine;
    struct request request = engine->request;
    struct slice outcome = engine->outcome_body;
    struct detail detail;
    struct err err = {.status = OK};
    enum status status =
        detail_read(execution->record.detail, execution->request->exchange->arena, &detail);
    execution->call = (struct door_call){
        .engine = {.request = {.key = {.tenant = request.key.tenant}, .actor = request.actor},
            .arena = execution->request->exchange->arena}};
    status = status == OK ? command_effects_end(execution->commands, &execution->record, &detail,
                                request.status == RECORD_FAILED, engine, &err)
                          : err_set(&err, status, "the command's record is damaged");
    if (status != OK) {
        execution_fail(execution, &err);
        return;
    }
    engine->request.reason = request.reason;
    if (request.outcome.meta.len > 0) {
        engine->request.outcome = request.outcome;
        engine->outcome_body = outcome;
    }
    execution_submit(execution, on_decided);
}

/* The same person's resolution again: it kept the handler's outcome, which the request does not
 * have. */
static bool is_repeated_resolution(const struct request *request, const struct record *record)
{
    return request->kind == REQUEST_RESOLVE && request->status == record->status &&
           request->outcome.meta.len == 0 && slice_equal(request->reason, record->reason);
}

/* ---- the command itself -------------------------------------------------------------------- */

static void refuse_unknown(struct execution *execution)
{
    refuse_state(execution, "outcome_unknown",
        SLICE_LIT("nobody knows whether the handler did it: resolve it first"));
}

/* The same recovery again: the same answer, and nothing changes. */
static void answer_again(
    struct recovering *self, const struct record *record, const struct detail *detail)
{
    struct execution *execution = &self->execution;
    if (!slice_equal(detail->recovery_action, self->noted.action)) {
        refuse_state(execution, "idempotency_conflict",
            SLICE_LIT("this recovery_id was used with a different action"));
        return;
    }
    execution->record = *record;
    execution->is_lost = true; /* the outcome is not shown here */
    execution_answer(execution, 200);
}

static void refuse_stale(struct execution *execution)
{
    refuse_state(execution, "stale_attempt",
        SLICE_LIT("member 'attempt' is not the command's last attempt; read the command again"));
}

/* What happened in the attempt that was read: the engine refuses it for any other one. */
static void submit_resolution(struct recovering *self, const struct record *record)
{
    struct execution *execution = &self->execution;
    execution->call.engine.request = self->request;
    execution->call.engine.request.fence = record->fence;
    execution_submit(execution, on_decided);
}

/* The request for the version that was read, with its detail. */
static void submit_for(
    struct recovering *self, const struct record *record, const struct detail *detail)
{
    struct execution *execution = &self->execution;
    struct arena *arena = execution->request->exchange->arena;
    struct slice changed = SLICE_EMPTY;
    enum status status = self->recovers
                             ? detail_recovered(record->detail, &self->noted, arena, &changed)
                             : detail_mark(record->detail, false, arena, &changed);
    if (status != OK) {
        execution_fail(execution,
            &(struct err){.status = status, .text = "the command's record cannot be read"});
        return;
    }
    execution->call = (struct door_call){.engine = {.request = self->request, .arena = arena}};
    struct request *request = &execution->call.engine.request;
    request->version = record->version; /* X6, N9, U4 */
    request->detail = changed;
    if (self->recovers) {
        request->trace = recovery_trace(record, self->noted.id, arena);
    }
    if (self->recovers && self->action == RECOVERY_COMPENSATE) {
        recover_effects(self, RECOVERY_COMPENSATE);
    } else if (self->recovers && self->action == RECOVERY_CANCEL &&
               recovery_allows(RECOVERY_CANCEL, record, detail->is_uncertain) == RECOVERY_UNKNOWN) {
        refuse_unknown(execution);
    } else {
        execution_submit(execution, on_decided);
    }
}

static void on_read(struct api_query *query)
{
    struct recovering *self = CONTAINER_OF(query, struct recovering, query);
    struct execution *execution = &self->execution;
    const struct record *record = query->query.record;
    struct detail detail;
    if (record == NULL) {
        refuse_missing(execution);
        return;
    }
    enum status status = detail_read(record->detail, execution->request->exchange->arena, &detail);
    if (status != OK) {
        execution_fail(execution,
            &(struct err){.status = status, .text = "the command's record cannot be read"});
    } else if (self->recovers && slice_equal(detail.recovery_id, self->noted.id)) {
        answer_again(self, record, &detail);
    } else if (self->attempt > 0 && self->attempt != record->attempt) {
        refuse_stale(execution);
    } else if (self->request.kind == REQUEST_RESOLVE && self->request.status != RECORD_PENDING) {
        submit_resolution(self, record);
    } else {
        submit_for(self, record, &detail);
    }
}

static void on_not_read(struct api_query *query, const struct err *err)
{
    execution_fail(&CONTAINER_OF(query, struct recovering, query)->execution, err);
}

static void read_first(struct recovering *self)
{
    struct api_request *request = self->execution.request;
    self->reads++;
    self->query = (struct api_query){.query = {.kind = QUERY_OPERATION,
                                         .kinds = 1u << RECORD_COMMAND,
                                         .operation_id = self->request.operation_id},
        .request = request,
        .answer = on_read,
        .failed = on_not_read};
    api_query_run(&self->query, request);
}

/* It changed between the read and the decision. True: it is read again. */
static bool is_read_again(struct recovering *self)
{
    const struct engine_call *engine = &self->execution.call.engine;
    bool has_changed = engine->decision.kind == DECISION_WRONG_STATUS && self->reads > 0 &&
                       engine->request.version != engine->decision.next.version;
    if (!has_changed || self->reads >= READS_MAX) {
        return false;
    }
    read_first(self);
    return true;
}

/* A person has it tried again, and its handler recognises a repetition. True: it was submitted. */
static bool is_called_again(struct execution *execution)
{
    const struct record *record = &execution->record;
    struct detail detail;
    if (execution->call.engine.request.kind != REQUEST_TAKE_UP ||
        record->status != RECORD_UNKNOWN || record_sealed(record) ||
        detail_read(record->detail, execution->request->exchange->arena, &detail) != OK) {
        return false;
    }
    const struct config_command *command = registry_find(execution->registry, detail.command);
    struct slice noted;
    if (detail_recovered(execution->record.detail, &recovering_of(execution)->noted,
            execution->request->exchange->arena, &noted) != OK) {
        return false;
    }
    execution->record.detail = noted;
    return command != NULL && command->on_unknown == CONFIG_UNKNOWN_TAKEOVER &&
           execution_take_over(execution, execution->call.engine.request.reason, on_decided);
}

static void on_decided(struct execution *execution)
{
    const struct engine_call *engine = &execution->call.engine;
    enum decision_kind kind = engine->decision.kind;
    if (engine->err.status != OK) {
        execution_fail(execution, &engine->err);
        return;
    }
    if (kind == DECISION_NOT_FOUND) {
        refuse_missing(execution);
        return;
    }
    if (kind == DECISION_STALE_FENCE) { /* the handler was called since the read */
        refuse_stale(execution);
        return;
    }
    if (is_read_again(recovering_of(execution))) {
        return;
    }
    execution->record = engine->decision.next;
    execution->outcome = engine->outcome;
    if (kind == DECISION_DONE || kind == DECISION_RESOLVED ||
        is_repeated_resolution(&engine->request, &execution->record)) {
        if (execution->record.status == RECORD_PENDING) {
            dispatch_offer(execution->commands->dispatch, execution->request->exchange->loop,
                &execution->record);
        }
        execution->is_lost = true; /* the outcome is not shown here */
        execution_answer(execution, 200);
        return;
    }
    if (engine->request.kind == REQUEST_TAKE_UP &&
        recovery_allows(RECOVERY_RETRY, &execution->record, false) == RECOVERY_EFFECTS) {
        recover_effects(recovering_of(execution), RECOVERY_RETRY);
        return;
    }
    if (is_called_again(execution)) {
        return;
    }
    if (engine->request.kind == REQUEST_RESOLVE && engine->request.status != RECORD_PENDING &&
        recovery_is_blocked(&execution->record)) {
        resolve_blocked(execution);
        return;
    }
    if (execution->record.status == RECORD_UNKNOWN) {
        refuse_unknown(execution);
        return;
    }
    char detail[128];
    struct detail read;
    bool known =
        detail_read(execution->record.detail, execution->request->exchange->arena, &read) == OK;
    (void)snprintf(detail, sizeof detail, "the command is %s, which does not allow this",
        known ? document_status(&execution->record, &read) : "not readable");
    refuse_state(execution,
        kind == DECISION_ALREADY_SEALED  ? "already_sealed"
        : kind == DECISION_STILL_RUNNING ? "still_running"
                                         : "wrong_status",
        slice_str(detail));
}

static void refuse_member(struct execution *execution, struct member_fault *fault)
{
    execution_refuse(execution, &(struct problem){.status = 400,
                                    .code = fault->code == NULL ? "invalid_member" : fault->code,
                                    .detail = slice_str(fault->err.text),
                                    .effect = PROBLEM_EFFECT_NO,
                                    .retry = PROBLEM_RETRY_NO});
}

/* The record that the path names. False: absent; the request has been answered. */
static bool take_id(struct execution *execution)
{
    enum record_kind kind;
    struct request *request = &execution->call.engine.request;
    request->key.tenant = execution->request->caller.tenant;
    if (kind_id_read(execution->request->path_value, &kind, &request->operation_id) &&
        kind == RECORD_COMMAND) {
        return true;
    }
    refuse_missing(execution);
    return false;
}

static void submit(struct recovering *self, enum status status, struct member_fault *fault)
{
    struct execution *execution = &self->execution;
    const struct request *made = &execution->call.engine.request;
    bool is_not_executed = made->kind == REQUEST_RESOLVE && made->status == RECORD_PENDING;
    if (status == OK) {
        status = builder_check(&execution->call.engine, &fault->err);
    }
    if (status != OK) {
        refuse_member(execution, fault);
    } else if (self->recovers || is_not_executed || self->attempt > 0) {
        self->request = *made;
        read_first(self);
    } else {
        execution_submit(execution, on_decided);
    }
}

/* In the exchange's arena. NULL: the request has been answered. */
static struct recovering *recovering_new(struct api_request *request)
{
    struct recovering *self = arena_zalloc(request->exchange->arena, sizeof *self);
    if (self == NULL) {
        api_fail_memory(request);
        return NULL;
    }
    execution_init(&self->execution, request);
    return take_id(&self->execution) ? self : NULL;
}

/* A caller that may have to repeat its request gives it a name. */
static enum status note_recovery(
    struct recovering *self, enum recovery_action action, struct slice given, struct err *err)
{
    struct execution *execution = &self->execution;
    struct engine_stats stats;
    enum status status =
        given.len > 0 ? name_check("recovery_id", given, err) : uuid_new_name(self->id + 4, err);
    memcpy(self->id, "rec_", 4);
    engine_stats(door_engine(execution->commands->door), &stats);
    self->recovers = true;
    self->action = action;
    self->noted = (struct detail_recovery){.id = given.len > 0 ? given : slice_str(self->id),
        .action = slice_str(actions[action]),
        .by = execution->request->caller.actor,
        .ms = stats.now_ms};
    return status;
}

void command_recover(struct api_request *request)
{
    static const struct member members[] = {
        {SLICE_INIT("action"), MEMBER_TEXT, true, offsetof(struct recover_body, action)},
        {SLICE_INIT("reason"), MEMBER_TEXT, false, offsetof(struct recover_body, reason)},
        {SLICE_INIT("recovery_id"), MEMBER_TEXT, false, offsetof(struct recover_body, recovery_id)},
    };
    static const struct member_table table = {
        .prefix = "", .members = members, .count = COUNT(members), .is_open = true};
    const struct json_value *values[COUNT(members)];
    const struct json_value *body;
    struct member_fault fault = {.code = NULL};
    struct recover_body given = {.action = SLICE_EMPTY};
    if (!api_body_json(request, &body)) {
        return;
    }
    struct recovering *self = recovering_new(request);
    if (self == NULL) {
        return;
    }
    struct execution *execution = &self->execution;
    struct request *made = &execution->call.engine.request;
    enum status status = members_read(&table, body, &given, values, &fault);
    int action = 0;
    while (action < RECOVERIES && !slice_is(given.action, actions[action])) {
        action++;
    }
    if (status == OK && action == RECOVERIES) {
        status = member_refuse(
            &fault, NULL, "member 'action' must be \"retry\", \"cancel\" or \"compensate\"");
    }
    made->reason = given.reason;
    made->kind = action == RECOVERY_CANCEL ? REQUEST_CANCEL : REQUEST_TAKE_UP;
    status = status == OK
                 ? note_recovery(self, (enum recovery_action)action, given.recovery_id, &fault.err)
                 : status;
    submit(self, status, &fault);
}

void command_resolve(struct api_request *request)
{
    enum { STATUS, REASON, ATTEMPT, OUTCOME, MEMBERS };
    static const struct member members[] = {
        [STATUS] = {SLICE_INIT("status"), MEMBER_TEXT, true, offsetof(struct recover_body, action)},
        [REASON] = {SLICE_INIT("reason"), MEMBER_TEXT, true, offsetof(struct recover_body, reason)},
        [ATTEMPT] = {SLICE_INIT("attempt"), MEMBER_POSITIVE, false,
            offsetof(struct recover_body, attempt)},
        [OUTCOME] = {.name = SLICE_INIT("outcome")},
    };
    static const struct member_table table = {
        .prefix = "", .members = members, .count = MEMBERS, .is_open = true};
    const struct json_value *values[MEMBERS];
    const struct json_value *body;
    struct member_fault fault = {.code = NULL};
    struct recover_body given = {.action = SLICE_EMPTY};
    if (!api_body_json(request, &body)) {
        return;
    }
    struct recovering *self = recovering_new(request);
    if (self == NULL) {
        return;
    }
    struct engine_call *engine = &self->execution.call.engine;
    enum status status = members_read(&table, body, &given, values, &fault);
    engine->request.kind = REQUEST_RESOLVE;
    engine->request.reason = given.reason;
    self->attempt = given.attempt;
    if (status == OK && slice_is(given.action, "executed")) {
        engine->request.status = RECORD_EXECUTED;
    } else if (status == OK && slice_is(given.action, "failed")) {
        engine->request.status = RECORD_FAILED;
    } else if (status == OK && slice_is(given.action, "not_executed")) {
        engine->request.status = RECORD_PENDING;
    } else if (status == OK) {
        status = member_refuse(
            &fault, NULL, "member 'status' must be \"executed\", \"failed\" or \"not_executed\"");
    }
    if (status == OK && values[OUTCOME] != NULL && engine->request.status != RECORD_PENDING) {
        engine->request.outcome.meta = OUTCOME_META_JSON;
        builder_outcome_body(engine, json_raw(request->exchange->body, values[OUTCOME]),
            request->policy->outcome_bytes_max);
    }
    submit(self, status, &fault);
}
