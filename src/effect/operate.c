/*
 * An operator's actions on one effect: retry, cancel, resolve, compensate.
 *
 *     read the body > read the record > (resolve: and its command) > compose the calls
 *         > (engine, one dependent group) > answer
 *
 * The record is read first, because its detail is rewritten. If it changed meanwhile, the fence
 * (resolve) or the status (all of them) shows it, and the action is refused: only the version that
 * was read is settled.
 */
#include <stdatomic.h>
#include <string.h>

#include "base/limits.h"
#include "base/macros.h"
#include "effect/impl.h"
#include "engine/request_builder.h"

enum { CALLS_MAX = 2 + EFFECT_COMMAND_CALLS_MAX, DETAIL_ROOM = 4 * LIMIT_DETAIL_BYTES_MAX };

struct effect_action;

/* One kind of action. */
struct action {
    enum request_kind kind;
    /* Compose self->calls from self->record and self->detail. E_INVALID: fault has a status. */
    enum status (*compose)(struct effect_action *self, struct err *err);
};

struct effect_action {
    struct api_query query;
    const struct action *action;
    struct slice reason;
    struct slice status_word;  /* of a resolve */
    struct slice provider_ref; /* likewise */
    uint64_t attempt;          /* likewise; 0: any */
    const struct record *record;
    struct effect_detail detail;
    struct effect_detail detail_read; /* as it was read: composed from again after a lost race */
    struct api_query command;         /* reads the effect's command */
    unsigned races;                   /* lost for the command */
    struct engine_call calls[CALLS_MAX];
    struct engine_call *group[CALLS_MAX];
    size_t count;
    _Atomic size_t left;
    bool offers; /* the last call created or freed a record that can be sent */
};

/* ---- out --------------------------------------------------------------------------------- */

static void refuse_uncertain(struct api_request *request)
{
    api_refuse(request, &(struct problem){.status = 409,
                            .code = "outcome_unknown",
                            .detail = SLICE_LIT("nobody knows whether the effect happened; resolve "
                                                "it first"),
                            .effect = PROBLEM_EFFECT_UNKNOWN,
                            .retry = PROBLEM_RETRY_NO});
}

void effects_refuse_status(struct api_request *request, const struct record *record)
{
    char text[160];
    struct buf out;
    struct mem mem = arena_mem(request->exchange->arena);
    if (record->status == RECORD_UNKNOWN) {
        refuse_uncertain(request);
        return;
    }
    buf_init(&out, &mem, sizeof text);
    buf_printf(&out, "the effect is %s; nothing changed",
        record->status == RECORD_COMPENSATING
            ? "being compensated"
            : kind_word(RECORD_EFFECT, record->status, record->attempt));
    api_refuse(request, &(struct problem){.status = 409,
                            .code = "wrong_status",
                            .detail = buf_view(&out),
                            .effect = PROBLEM_EFFECT_NO,
                            .retry = PROBLEM_RETRY_NO});
}

/* The compensation has failed, but the original no longer waits for it, because it was settled by
 * hand. Then the compensation is settled alone. True: it was submitted. */
static bool settle_alone(struct effect_action *self)
{
    struct api_request *request = self->query.request;
    const struct engine_call *second = &self->calls[1];
    if (self->count < 2 || second->request.kind != REQUEST_COMPENSATION_SETTLE ||
        second->request.status != RECORD_UNKNOWN || !second->refused ||
        (second->decision.kind != DECISION_WRONG_STATUS &&
            second->decision.kind != DECISION_NOT_FOUND)) {
        return false;
    }
    self->calls[0].err = (struct err){.status = OK};
    self->calls[0].refused = false;
    self->count = 1;
    atomic_store(&self->left, 1);
    api_submit_group(request, self->group, 1);
    return true;
}

static void compose(struct api_query *query);

/* A different effect of its command was acknowledged meanwhile. True: it is composed again. */
static bool settle_again(struct effect_action *self)
{
    bool is_raced = false;
    for (size_t i = 1; i < self->count; i++) {
        const struct engine_call *call = &self->calls[i];
        is_raced = is_raced || (call->refused && call->request.kind == REQUEST_WAKE);
    }
    if (!is_raced || self->command.query.record == NULL || self->races++ >= EFFECT_RACES_MAX) {
        return false;
    }
    effects_read_command(
        &self->command, self->query.request, self->record, &self->detail_read, compose);
    return true;
}

/* How a call of an action ended, by its decision. */
enum action_end {
    ACTION_DONE,
    ACTION_MISSING,
    ACTION_OTHER_ATTEMPT,
    ACTION_RUNNING,
    ACTION_WRONG_STATUS,
    ACTION_IMPOSSIBLE, /* no call of an action has such a decision */
};

/* -Wswitch-enum: a new decision does not build until it has its place here. */
static enum action_end action_end_of(enum decision_kind kind)
{
    switch (kind) {
    case DECISION_DONE:
    case DECISION_RESOLVED:
    case DECISION_ENQUEUED: /* the compensation */
    case DECISION_IN_PROGRESS:
    case DECISION_DUPLICATE_REPLAYED: return ACTION_DONE;
    case DECISION_NOT_FOUND: return ACTION_MISSING;
    case DECISION_STALE_FENCE: return ACTION_OTHER_ATTEMPT;
    case DECISION_STILL_RUNNING: return ACTION_RUNNING;
    case DECISION_WRONG_STATUS:
    case DECISION_ALREADY_SEALED:
    case DECISION_CONFLICT_REJECTED:
    case DECISION_TOO_LATE:
    case DECISION_NOT_DUE: return ACTION_WRONG_STATUS;
    case DECISION_FIRST_SEEN:
    case DECISION_HELD_UNKNOWN:
    case DECISION_SEALED:
    case DECISION_RELEASED:
    case DECISION_UNKNOWN:
    case DECISION_RENEWED:
    case DECISION_STALE_VERSION:
    case DECISION_NOTHING:
    case DECISION_CLAIMED: break;
    }
    return ACTION_IMPOSSIBLE;
}

/* The decision of the call that did not do its part. */
static void refuse(struct api_request *request, const struct engine_call *failed)
{
    switch (action_end_of(failed->decision.kind)) {
    case ACTION_MISSING: effects_refuse_missing(request); return;
    case ACTION_OTHER_ATTEMPT:
        api_refuse_plain(request, 409, "stale_attempt",
            "a different attempt was made meanwhile; read the effect again");
        return;
    case ACTION_RUNNING:
        api_refuse_plain(request, 409, "still_running", "an attempt is in progress");
        return;
    case ACTION_WRONG_STATUS:
        if (failed->decision.next.kind == RECORD_EFFECT) {
            effects_refuse_status(request, &failed->decision.next);
        } else { /* its command: the group failed for this reason */
            api_fail(request, &failed->err);
        }
        return;
    case ACTION_DONE: /* that did not fail */
    case ACTION_IMPOSSIBLE: break;
    }
    api_refuse(request, &api_problem_decision);
}

static void answer(struct effect_action *self)
{
    struct api_request *request = self->query.request;
    const struct engine_call *first = &self->calls[0];
    const struct engine_call *failed = NULL;
    if (settle_again(self) || settle_alone(self)) {
        return;
    }
    for (size_t i = 0; failed == NULL && i < self->count; i++) {
        const struct engine_call *call = &self->calls[i];
        bool is_refused = call->refused || (self->count == 1 && call->err.status == OK);
        bool is_good = action_end_of(call->decision.kind) == ACTION_DONE;
        failed = call->err.status != OK || (is_refused && !is_good) ? call : NULL;
    }
    if (failed == NULL) {
        if (!effect_has_moved_command(&self->calls[self->count - 1].decision.next)) {
            effects_settled(request->state, &first->decision.next);
        }
        if (self->offers) {
            effects_offer(request->state, request->exchange->loop,
                &self->calls[self->count - 1].decision.next);
        }
        struct effect_show show = {.id = first->request.operation_id,
            .status = self->action->kind == REQUEST_COMPENSATE ? 202 : 200};
        effects_show(request, &show);
        return;
    }
    if (failed->err.status == OK || failed->refused) {
        refuse(request, failed);
    } else {
        api_fail(request, &failed->err);
    }
}

static void resume(void *context, struct http_exchange *exchange)
{
    (void)context;
    answer(exchange->state);
}

static void one_done(struct engine_call *call)
{
    struct effect_action *self = call->context;
    if (atomic_fetch_sub(&self->left, 1) == 1) {
        http_wake(self->query.request->exchange);
    }
}

/* ---- the calls --------------------------------------------------------------------------- */

/* Add a call to the group. */
static struct engine_call *call_new(struct effect_action *self)
{
    struct api_request *request = self->query.request;
    struct engine_call *call = &self->calls[self->count];
    call->arena = request->exchange->arena;
    call->context = self;
    call->done = one_done;
    call->needs_previous = self->count > 0;
    call->request.actor = request->caller.actor;
    call->request.reason = self->reason;
    self->group[self->count++] = call;
    return call;
}

/* The first call: for the effect itself. */
static struct engine_call *own_call(struct effect_action *self)
{
    struct engine_call *call = call_new(self);
    call->request.kind = self->action->kind;
    call->request.operation_id = self->record->operation_id;
    call->request.key = self->record->key;
    return call;
}

static enum status put_detail(struct effect_action *self, struct engine_call *call, struct err *err)
{
    struct buf out;
    buf_init(&out, &self->query.request->mem, DETAIL_ROOM);
    enum status status = effect_detail_fit(&self->detail, &out, err);
    call->request.detail = buf_view(&out);
    return status == E_LIMIT ? E_INVALID : status;
}

static enum status compose_plain(struct effect_action *self, struct err *err)
{
    (void)err;
    struct engine_call *call = own_call(self);
    self->offers = call->request.kind == REQUEST_TAKE_UP;
    return OK;
}

/* If this effect compensates a different one, that one is settled in the same commit: compensated,
 * or unknown if the compensation failed or will never happen. */
static void settle_original(struct effect_action *self)
{
    bool is_done = self->detail.ack == EFFECT_ACK_ACKNOWLEDGED;
    if (op_id_absent(&self->detail.compensates)) {
        return;
    }
    struct engine_call *call = call_new(self);
    call->request.kind = REQUEST_COMPENSATION_SETTLE;
    call->request.operation_id = self->detail.compensates;
    call->request.status = is_done ? RECORD_COMPENSATED : RECORD_UNKNOWN;
    call->request.reason = is_done ? call->request.reason : SLICE_LIT(EFFECT_COMPENSATION_FAILED);
}

/* CCO-10: the end of its command, or one step towards it, in the commit that settles the effect. */
static enum status settle_command(struct effect_action *self, bool has_failed, struct err *err)
{
    struct effects *effects = self->query.request->state;
    struct effect_command_calls made = {.arena = self->query.request->exchange->arena};
    if (effects->settler.ends == NULL || self->command.query.record == NULL ||
        self->races > EFFECT_RACES_MAX) {
        return OK;
    }
    enum status status = effects->settler.ends(
        effects->settler.context, self->command.query.record, self->record, has_failed, &made, err);
    for (size_t i = 0; status == OK && i < made.count; i++) {
        struct engine_call *call = call_new(self);
        made.calls[i].request.actor = call->request.actor;
        call->request = made.calls[i].request;
        call->outcome_body = made.calls[i].outcome_body;
    }
    return status == E_NOMEM ? E_NOMEM : OK; /* the command is checked again when it is due */
}

static enum status compose_cancel(struct effect_action *self, struct err *err)
{
    struct engine_call *call = own_call(self);
    call->request.version = self->record->version; /* X6: it may be uncertain by now */
    self->detail.ack = EFFECT_ACK_REJECTED;
    self->detail.ack_ms = self->query.query.call.now_ms;
    enum status status = put_detail(self, call, err);
    settle_original(self);
    return status == OK ? settle_command(self, true, err) : status;
}

static enum record_status resolved_status(struct slice word)
{
    return slice_is(word, "acknowledged") ? RECORD_EXECUTED
           : slice_is(word, "failed")     ? RECORD_FAILED
                                          : RECORD_PENDING;
}

static enum status compose_resolve(struct effect_action *self, struct err *err)
{
    struct engine_call *call = own_call(self);
    call->request.status = resolved_status(self->status_word);
    call->request.fence = self->record->fence; /* of the attempt that was read */
    if (call->request.status == RECORD_PENDING) {
        self->offers = true;
        self->detail.is_uncertain = false; /* no earlier attempt was sent … */
        self->detail.first_sent_ms = 0;    /* … and the time of its key starts anew */
        return put_detail(self, call, err);
    }
    self->detail.ack =
        call->request.status == RECORD_EXECUTED ? EFFECT_ACK_ACKNOWLEDGED : EFFECT_ACK_FAILED;
    self->detail.ack_ms = self->query.query.call.now_ms;
    self->detail.provider_ref =
        self->provider_ref.len > 0 ? self->provider_ref : self->detail.provider_ref;
    enum status status = put_detail(self, call, err);
    settle_original(self);
    return status == OK ? settle_command(self, call->request.status == RECORD_FAILED, err) : status;
}

/* The original is compensating and its compensation exists, or neither. */
static enum status compose_compensate(struct effect_action *self, struct err *err)
{
    struct api_request *request = self->query.request;
    struct config *config = effects_config(request->state);
    struct effect_sender sender = effects_sender(request->state, request, config);
    struct engine_call *call = own_call(self);
    struct engine_call *undo = call_new(self);
    enum status status = effect_undo_calls(&sender, self->record, &self->detail, call, undo, err);
    undo->request.actor = request->caller.actor;
    config_free(config);
    self->offers = true;
    return status;
}

static const struct action retry = {REQUEST_TAKE_UP, compose_plain};
static const struct action cancel = {REQUEST_CANCEL, compose_cancel};
static const struct action resolve = {REQUEST_RESOLVE, compose_resolve};
static const struct action compensate = {REQUEST_COMPENSATE, compose_compensate};

/* ---- in ---------------------------------------------------------------------------------- */

/* Refuse what the record's status does not allow, before anything is composed. False: the request
 * has been answered. */
static bool may_begin(struct effect_action *self)
{
    struct api_request *request = self->query.request;
    bool is_compensation = self->action->kind == REQUEST_COMPENSATE;
    if (is_compensation && self->record->status == RECORD_UNKNOWN) {
        refuse_uncertain(request);
        return false;
    }
    /* It waits to be sent again because nobody knows whether it happened (P5). */
    if (self->action == &cancel && self->record->status == RECORD_PENDING &&
        self->detail.is_uncertain) {
        refuse_uncertain(request);
        return false;
    }
    if (is_compensation && !kind_may_compensate(RECORD_EFFECT, self->record->status) &&
        self->record->status != RECORD_COMPENSATING && self->record->status != RECORD_COMPENSATED) {
        effects_refuse_status(request, self->record);
        return false;
    }
    if (self->attempt > 0 && self->attempt != self->record->attempt) {
        api_refuse_plain(request, 409, "stale_attempt",
            "member 'attempt' is not the effect's last attempt; read the effect again");
        return false;
    }
    return true;
}

static void found(struct api_query *query)
{
    struct effect_action *self = CONTAINER_OF(query, struct effect_action, query);
    struct api_request *request = query->request;
    struct arena *arena = request->exchange->arena;
    struct err err = {.status = OK};
    self->record = query->query.record;
    if (self->record == NULL) {
        effects_refuse_missing(request);
        return;
    }
    enum status status = effect_detail_decode(self->record->detail, arena, &self->detail, &err);
    if (status == OK && !may_begin(self)) {
        return;
    }
    /* A compensation that is in progress or done: the same answer again. */
    if (status == OK && self->action->kind == REQUEST_COMPENSATE &&
        (self->record->status == RECORD_COMPENSATING ||
            self->record->status == RECORD_COMPENSATED)) {
        struct effect_show show = {.id = self->record->operation_id, .status = 200};
        effects_show(request, &show);
        return;
    }
    if (status != OK) {
        api_fail(request, &err);
        return;
    }
    self->detail_read = self->detail;
    if (self->action == &cancel ||
        (self->action == &resolve && resolved_status(self->status_word) != RECORD_PENDING)) {
        effects_read_command(&self->command, request, self->record, &self->detail, compose);
    } else {
        compose(&self->command);
    }
}

/* The calls, with the command as it was read, if the effect has one. */
static void compose(struct api_query *query)
{
    struct effect_action *self = CONTAINER_OF(query, struct effect_action, command);
    struct api_request *request = self->query.request;
    struct err err = {.status = OK};
    memset(self->calls, 0, sizeof self->calls);
    self->count = 0;
    self->detail = self->detail_read;
    enum status status = self->action->compose(self, &err);
    for (size_t i = 0; status == OK && i < self->count; i++) {
        status = builder_check(&self->calls[i], &err);
    }
    if (status == E_INVALID) {
        api_refuse_plain(request, 422, "invalid_member", err.text);
        return;
    }
    atomic_store(&self->left, self->count);
    request->exchange->state = self;
    request->exchange->resume = resume;
    if (status != OK) {
        api_fail(request, &err);
        return;
    }
    api_submit_group(request, self->group, self->count);
}

/* Read the body into the action, then read the record. */
static void begin(
    struct api_request *request, const struct action *action, const struct member_table *table)
{
    const struct json_value *values[8];
    const struct json_value *body;
    struct member_fault fault = {.code = NULL};
    struct op_id id;
    struct effect_action *self = arena_zalloc(request->exchange->arena, sizeof *self);
    if (self == NULL) {
        api_fail_memory(request);
        return;
    }
    if (!effects_id(request, &id) || !effects_body(request, &body)) {
        return;
    }
    enum status status = members_read(table, body, self, values, &fault);
    bool is_word = action != &resolve || slice_is(self->status_word, "acknowledged") ||
                   slice_is(self->status_word, "failed") || slice_is(self->status_word, "not_sent");
    if (status == OK && !is_word) {
        status = member_refuse(
            &fault, NULL, "member 'status' must be \"acknowledged\", \"failed\" or \"not_sent\"");
    }
    if (status != OK) {
        api_refuse_plain(
            request, 422, fault.code == NULL ? "invalid_member" : fault.code, fault.err.text);
        return;
    }
    self->action = action;
    self->query.answer = found;
    self->query.query.kind = QUERY_OPERATION;
    self->query.query.kinds = STORE_KIND(RECORD_EFFECT);
    self->query.query.operation_id = id;
    api_query_run(&self->query, request);
}

static const struct member reason_member = {
    SLICE_INIT("reason"), MEMBER_TEXT_OR_EMPTY, false, offsetof(struct effect_action, reason)};

void effect_retry(struct api_request *request)
{
    const struct member_table table = {"", &reason_member, 1, true};
    begin(request, &retry, &table);
}

void effect_cancel(struct api_request *request)
{
    const struct member_table table = {"", &reason_member, 1, true};
    begin(request, &cancel, &table);
}

void effect_compensate(struct api_request *request)
{
    const struct member_table table = {"", &reason_member, 1, true};
    begin(request, &compensate, &table);
}

void effect_resolve(struct api_request *request)
{
    static const struct member members[] = {
        {SLICE_INIT("status"), MEMBER_TEXT, true, offsetof(struct effect_action, status_word)},
        {SLICE_INIT("provider_ref"), MEMBER_TEXT, false,
            offsetof(struct effect_action, provider_ref)},
        {SLICE_INIT("attempt"), MEMBER_POSITIVE, false, offsetof(struct effect_action, attempt)},
        {SLICE_INIT("reason"), MEMBER_TEXT, true, offsetof(struct effect_action, reason)}};
    static const struct member_table table = {"", members, COUNT(members), true};
    begin(request, &resolve, &table);
}
