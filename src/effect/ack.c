/*
 * POST /v1/effects/{effect_id}/ack: a connector service acknowledges an effect later, after it
 * answered "pending" or its answer was lost (CCO-7).
 *
 *     read the body > read the record > token > attempt > (engine, one dependent group) > answer
 *
 * Promises:  a caller without the token of one of the last two attempts learns nothing: a wrong
 *            token and an absent effect get the same answer. One exception: while an attempt is in
 *            progress its token is not stored yet, so every caller is asked to come back. An
 *            acknowledgement settles the attempt that its token belongs to, under that attempt's
 *            fence (P4), or nothing. A repeated acknowledgement changes nothing and gets the same
 *            answer.
 * Crash:     before the commit nothing happened; the service gets no answer and sends it again.
 *            After it the repeated acknowledgement is recognised.
 */
#include <stdatomic.h>

#include "api/body.h"
#include "api/call.h"
#include "base/limits.h"
#include "base/macros.h"
#include "base/name.h"
#include "base/rand.h"
#include "dispatch/dispatch.h"
#include "effect/acknowledgement.h"
#include "effect/impl.h"

enum { COME_BACK_MS = 1000 };

struct later_ack {
    struct api_query query;
    struct acknowledgement ack;
    struct slice token;
    struct slice status_word;
    struct slice timestamp; /* the service's own; ours is used */
    struct effect_detail detail;
    struct dispatch_call call; /* settles the effect */
    struct api_query command;  /* reads the effect's command */
    unsigned races;            /* lost for the command */
    _Atomic size_t left;
};

/* ---- out --------------------------------------------------------------------------------- */

static void refuse_early(struct api_request *request)
{
    api_refuse(request, &(struct problem){.status = 409,
                            .code = "still_running",
                            .detail = SLICE_LIT("the attempt is in progress: its answer is not "
                                                "stored yet; send this again"),
                            .effect = PROBLEM_EFFECT_NO,
                            .retry = PROBLEM_RETRY_AFTER,
                            .retry_after_ms = COME_BACK_MS});
}

static void refuse_attempt(struct api_request *request)
{
    api_refuse_plain(request, 409, "stale_attempt",
        "the token is of an earlier attempt than the effect's last one; nothing changed");
}

static void refuse_different(struct api_request *request)
{
    api_refuse_plain(request, 409, "already_sealed",
        "the attempt was settled with a different acknowledgement; the first one stands");
}

/* Show the service the effect that it acknowledged. */
static void show(struct later_ack *self)
{
    struct effect_show show = {.id = self->call.record->operation_id, .status = 200};
    effects_show(self->query.request, &show);
}

static void compose_and_submit(struct later_ack *self);

static void on_command(struct api_query *query)
{
    struct later_ack *self = CONTAINER_OF(query, struct later_ack, command);
    self->call.other = query->query.record;
    compose_and_submit(self);
}

static void settled(struct later_ack *self)
{
    struct effects *effects = self->query.request->state;
    const struct dispatch_call *call = &self->call;
    const struct record *record = &call->calls[0]->decision.next;
    if (!effect_has_moved_command(&call->calls[call->call_count - 1]->decision.next)) {
        effects_settled(effects, record);
    }
    if (record->status == RECORD_PENDING) {
        effects_offer(effects, self->query.request->exchange->loop, record);
    }
    show(self);
}

/* -Wswitch-enum: a new decision does not build until it has its answer here. */
static void answer(struct later_ack *self)
{
    struct api_request *request = self->query.request;
    const struct decision *decision = &self->call.calls[0]->decision;
    switch (decision->kind) {
    case DECISION_SEALED:
    case DECISION_DONE:
    case DECISION_UNKNOWN: settled(self); return;
    case DECISION_STALE_FENCE: refuse_attempt(request); return;
    case DECISION_ALREADY_SEALED: refuse_different(request); return;
    case DECISION_WRONG_STATUS: effects_refuse_status(request, &decision->next); return;
    case DECISION_NOT_FOUND: effects_refuse_missing(request); return; /* its window has ended */
    case DECISION_FIRST_SEEN: /* no settling request leads to these */
    case DECISION_DUPLICATE_REPLAYED:
    case DECISION_IN_PROGRESS:
    case DECISION_CONFLICT_REJECTED:
    case DECISION_HELD_UNKNOWN:
    case DECISION_RELEASED:
    case DECISION_RENEWED:
    case DECISION_RESOLVED:
    case DECISION_STILL_RUNNING:
    case DECISION_STALE_VERSION:
    case DECISION_NOTHING:
    case DECISION_ENQUEUED:
    case DECISION_CLAIMED:
    case DECISION_NOT_DUE:
    case DECISION_TOO_LATE: break;
    }
    api_refuse(request, &api_problem_decision);
}

static void resume(void *context, struct http_exchange *exchange)
{
    (void)context;
    struct later_ack *self = exchange->state;
    struct api_request *request = self->query.request;
    struct dispatch_call *call = &self->call;
    const struct engine_call *first = call->calls[0];
    bool is_refused = false;
    for (size_t i = 0; i < call->call_count; i++) {
        is_refused = is_refused || call->calls[i]->refused;
    }
    bool is_raced = is_refused && call->call_count > 1 && !first->refused;
    if (is_raced && call->other != NULL && self->races++ < EFFECT_RACES_MAX) {
        effects_read_command(&self->command, request, call->record, &self->detail, on_command);
        return;
    }
    if (is_raced) {
        call->is_alone = true; /* as the dispatcher does: settle the effect by itself */
        compose_and_submit(self);
        return;
    }
    if (first->err.status != OK && !first->refused) {
        api_fail(request, &first->err);
        return;
    }
    answer(self);
}

static void one_done(struct engine_call *call)
{
    struct later_ack *self = call->context;
    if (atomic_fetch_sub(&self->left, 1) == 1) {
        http_wake(self->query.request->exchange);
    }
}

/* ---- settling ---------------------------------------------------------------------------- */

static enum status compose(struct later_ack *self, struct err *err)
{
    struct api_request *request = self->query.request;
    struct effects *effects = request->state;
    struct dispatch_call *call = &self->call;
    struct config *config = effects_config(effects);
    enum status status = rand_names(&call->random, sizeof call->random, err);
    call->now_ms = self->query.query.call.now_ms;
    call->arena = request->exchange->arena;
    call->mem = &request->mem;
    status = status == OK ? effects->settler.acknowledge(
                                effects->settler.context, config, &self->ack, call, err)
                          : status;
    config_free(config);
    if (status == OK) {
        status = api_trace(request, NULL, &call->calls[0]->request.trace, err);
    }
    for (size_t i = 0; i < call->call_count; i++) {
        call->calls[i]->context = self;
        call->calls[i]->done = one_done;
        call->calls[i]->request.actor = SLICE_LIT("connector");
    }
    return status;
}

static void compose_and_submit(struct later_ack *self)
{
    struct api_request *request = self->query.request;
    struct dispatch_call *call = &self->call;
    struct err err = {.status = OK};
    enum status status = compose(self, &err);
    if (status == OK && call->record->status == RECORD_UNKNOWN &&
        call->calls[0]->request.kind == REQUEST_UNKNOWN) {
        /* This attempt failed, but an earlier one may have happened: a person decides. */
        effects_refuse_status(request, call->record);
        return;
    }
    atomic_store(&self->left, call->call_count);
    request->exchange->state = self;
    request->exchange->resume = resume;
    if (status != OK) {
        api_fail(request, &err);
        return;
    }
    api_submit_group(request, call->calls, call->call_count);
}

/* ---- in ---------------------------------------------------------------------------------- */

/* Whether it equals the stored acknowledgement. Without a provider_ref, any stored one matches. */
static bool is_same(const struct later_ack *self)
{
    const struct acknowledgement *ack = &self->ack;
    const struct effect_detail *detail = &self->detail;
    return detail->ack == ack->status && detail->retryable == ack->retryable &&
           (ack->provider_ref.len == 0 || slice_equal(ack->provider_ref, detail->provider_ref));
}

/* Continue with a token that belongs to this effect. */
static void go_on(struct later_ack *self, bool is_before)
{
    struct api_request *request = self->query.request;
    const struct record *record = self->call.record;
    const struct effect_detail *detail = &self->detail;
    bool is_answered = detail->ack != EFFECT_ACK_NONE && detail->ack != EFFECT_ACK_PENDING;
    bool is_last = !is_before && detail->ack_attempt == record->attempt;
    bool is_open = record->status == RECORD_IN_PROGRESS || record->status == RECORD_UNKNOWN;
    char id[KIND_ID_TEXT_BYTES];
    if (self->ack.effect_id.len > 0 &&
        !slice_equal(self->ack.effect_id, effect_name(record, detail, id)) &&
        !slice_equal(self->ack.effect_id, request->path_value)) {
        api_refuse_plain(
            request, 422, "invalid_member", "member 'effect_id' names a different effect");
    } else if (!is_before && is_answered && is_same(self) && (is_last || !record_sealed(record))) {
        show(self);
    } else if (!is_last) {
        refuse_attempt(request); /* P4 */
    } else if (is_answered) {
        refuse_different(request);
    } else if (!is_open) {
        effects_refuse_status(request, record);
    } else {
        effects_read_command(&self->command, request, record, detail, on_command);
    }
}

/* Whether an attempt is in progress whose token is not stored yet. */
static bool is_early(struct later_ack *self)
{
    const struct record *record = self->call.record;
    struct config *config = effects_config(self->query.request->state);
    const struct config_effect *type = config_effect_find(&config->effects, record->key.scope);
    bool is_early = record->status == RECORD_IN_PROGRESS &&
                    self->detail.ack_attempt != record->attempt && type != NULL &&
                    type->connector->protocol == CONFIG_PROTOCOL_ENVELOPE;
    config_free(config);
    return is_early;
}

static void found(struct api_query *query)
{
    static const struct digest none;
    struct later_ack *self = CONTAINER_OF(query, struct later_ack, query);
    struct api_request *request = query->request;
    struct effects *effects = request->state;
    struct err err = {.status = OK};
    struct digest shown;
    self->call.record = query->query.record;
    if (self->call.record == NULL || effects->settler.acknowledge == NULL) {
        effects_refuse_missing(request);
        return;
    }
    if (effect_detail_decode(
            self->call.record->detail, request->exchange->arena, &self->detail, &err) != OK) {
        api_fail(request, &err);
        return;
    }
    const struct effect_detail *detail = &self->detail;
    digest_sha256(self->token.data, self->token.len, &shown);
    bool is_last =
        digest_equal_secret(&shown, &detail->ack_token) && !digest_equal(&detail->ack_token, &none);
    bool is_before = digest_equal_secret(&shown, &detail->ack_token_before) &&
                     !digest_equal(&detail->ack_token_before, &none);
    if (is_last || is_before) {
        request->caller.tenant = self->call.record->key.tenant; /* P9: this effect's, only */
        go_on(self, !is_last);
    } else if (is_early(self)) {
        refuse_early(request);
    } else {
        effects_refuse_missing(request);
    }
}

/* Check the body, without regard to the effect. */
static enum status check(struct later_ack *self, struct member_fault *fault)
{
    struct acknowledgement *ack = &self->ack;
    if (!effect_ack_read(self->status_word, &ack->status) || ack->status == EFFECT_ACK_PENDING) {
        return member_refuse(
            fault, NULL, "member 'status' must be \"acknowledged\", \"rejected\" or \"failed\"");
    }
    if (ack->provider_ref.len > LIMIT_EFFECT_ID_BYTES_MAX || !name_valid(ack->provider_ref)) {
        return member_refuse(fault, NULL,
            "member 'provider_ref' is longer than %d bytes or has control characters",
            LIMIT_EFFECT_ID_BYTES_MAX);
    }
    return OK;
}

void effect_acknowledge(struct api_request *request)
{
    static const struct member members[] = {
        {SLICE_INIT("ack_token"), MEMBER_TEXT, true, offsetof(struct later_ack, token)},
        {SLICE_INIT("status"), MEMBER_TEXT, true, offsetof(struct later_ack, status_word)},
        {SLICE_INIT("effect_id"), MEMBER_TEXT, false, offsetof(struct later_ack, ack.effect_id)},
        {SLICE_INIT("provider_ref"), MEMBER_TEXT, false,
            offsetof(struct later_ack, ack.provider_ref)},
        {SLICE_INIT("retryable"), MEMBER_BOOL, false, offsetof(struct later_ack, ack.retryable)},
        {SLICE_INIT("timestamp"), MEMBER_TEXT, false, offsetof(struct later_ack, timestamp)}};
    static const struct member_table table = {"", members, COUNT(members), true};
    const struct json_value *values[COUNT(members)];
    const struct json_value *body;
    struct member_fault fault = {.code = NULL};
    struct op_id id;
    struct later_ack *self = arena_zalloc(request->exchange->arena, sizeof *self);
    if (self == NULL) {
        api_fail_memory(request);
        return;
    }
    if (!effects_body(request, &body)) {
        return;
    }
    enum status status = members_read(&table, body, self, values, &fault);
    status = status == OK ? check(self, &fault) : status;
    if (status != OK) {
        api_refuse_plain(
            request, 422, fault.code == NULL ? "invalid_member" : fault.code, fault.err.text);
        return;
    }
    if (!effects_id(request, &id)) {
        return;
    }
    self->query.answer = found;
    self->query.query.kind = QUERY_OPERATION;
    self->query.query.kinds = STORE_KIND(RECORD_EFFECT);
    self->query.query.operation_id = id;
    self->query.query.any_tenant = true; /* the token determines the tenant */
    api_query_run(&self->query, request);
}
