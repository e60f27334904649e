/* It is past 800 lines because it is the whole way out of an effect: plan, compose, settle. */
#include "effect/outbox.h"

#include <stdio.h>

#include "base/backoff.h"
#include "base/base64.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/macros.h"
#include "base/name.h"
#include "base/rand.h"
#include "base/secret.h"
#include "core/lane.h"
#include "effect/acknowledgement.h"
#include "effect/compose.h"
#include "effect/credential.h"
#include "effect/next_step.h"
#include "effect/publisher.h"
#include "envelope/envelope.h"

enum {
    IDLE_MS = UPSTREAM_IDLE_MS_USUAL,
    ACK_TOKEN_TEXT_BYTES = BASE64_TEXT_BYTES(EFFECT_ACK_TOKEN_BYTES),
};

struct effect_outbox {
    const struct mem *mem;
    struct dispatch *dispatch;
    struct outbox_parent parent;
};

/* The connectors of one configuration, with their credentials. */
struct outbox_plan {
    struct dispatch_plan plan; /* first */
    struct effect_outbox *outbox;
    struct config *config; /* held */
    const struct config_effects *effects;
    struct dispatch_target *targets; /* one for each connector, in the same order */
    const char **urls;               /* of each */
    struct buf *credentials;         /* of each: the credential field's value */
    struct publisher **publishers;   /* of each; NULL: it is called by HTTP */
};

/* ---- plans --------------------------------------------------------------------------------- */

static struct outbox_plan *plan_of(const struct dispatch_plan *plan)
{
    union { /* the plan does not change; its targets belong to the dispatcher */
        const struct dispatch_plan *in;
        struct dispatch_plan *out;
    } cast = {.in = plan};
    return CONTAINER_OF(cast.out, struct outbox_plan, plan);
}

static void plan_release(struct dispatch_plan *plan)
{
    struct outbox_plan *made = plan_of(plan);
    const struct mem *mem = made->outbox->mem;
    for (size_t i = 0; made->credentials != NULL && i < made->effects->connector_count; i++) {
        secret_release(&made->credentials[i]);
    }
    for (size_t i = 0; made->publishers != NULL && i < made->effects->connector_count; i++) {
        publisher_free(made->publishers[i]);
    }
    mem_free(mem, made->publishers);
    mem_free(mem, made->credentials);
    mem_free(mem, made->targets);
    mem_free(mem, made->urls);
    config_free(made->config);
    mem_free(mem, made);
}

/* The broker's thread and connections, for a connector that publishes. */
static enum status publisher_make(struct outbox_plan *plan, size_t number, struct err *err)
{
    const struct config_connector *connector = &plan->effects->connectors[number];
    struct effect_outbox *outbox = plan->outbox;
    char name[sizeof "once-" + UUID_TEXT_BYTES];
    char id[UUID_TEXT_BYTES];
    if (!config_connector_publishes(connector)) {
        return OK;
    }
    (void)snprintf(name, sizeof name, "once-%s",
        uuid_put(id, engine_identity(door_engine(dispatch_door(outbox->dispatch)))->chain_id));
    return publisher_new(outbox->mem, connector, name, &plan->publishers[number], err);
}

static void target_make(struct outbox_plan *plan, size_t number)
{
    const struct config_connector *connector = &plan->effects->connectors[number];
    plan->urls[number] = connector->origin;
    plan->targets[number] = (struct dispatch_target){.name = connector->name,
        .upstream = {.urls = &plan->urls[number],
            .url_count = 1,
            .ca_file = connector->ca_file,
            .connections_max = (uint32_t)connector->concurrency,
            .idle_ms_max = IDLE_MS,
            .is_public_only = !connector->allow_internal},
        .timeouts = {.connect_ms = connector->connect_ms,
            .first_byte_ms = connector->first_byte_ms,
            .total_ms = connector->total_ms},
        .concurrency = (uint32_t)connector->concurrency,
        .rate = connector->rate,
        .breaker = {.failures = (uint32_t)connector->breaker_failures,
            .pause_ms = connector->breaker_pause_ms},
        .sender =
            plan->publishers[number] == NULL ? NULL : publisher_sender(plan->publishers[number])};
}

static const struct dispatch_kind kind;

static enum status plan_make(struct effect_outbox *outbox, struct config *config,
    struct outbox_plan **ret_plan, struct err *err)
{
    const struct config_effects *effects = &config->effects;
    size_t count = effects->connector_count;
    struct outbox_plan *plan = mem_zalloc(outbox->mem, 1, sizeof *plan);
    if (plan == NULL) {
        return err_set(err, E_NOMEM, "out of memory");
    }
    plan->outbox = outbox;
    plan->config = config_hold(config);
    plan->effects = effects;
    plan->targets = mem_zalloc(outbox->mem, count + 1, sizeof *plan->targets);
    plan->urls = mem_zalloc(outbox->mem, count + 1, sizeof *plan->urls);
    plan->credentials = mem_zalloc(outbox->mem, count + 1, sizeof *plan->credentials);
    plan->publishers = mem_zalloc(outbox->mem, count + 1, sizeof(struct publisher *));
    bool has_memory = plan->targets != NULL && plan->urls != NULL && plan->credentials != NULL &&
                      plan->publishers != NULL;
    enum status status = has_memory ? OK : err_set(err, E_NOMEM, "out of memory");
    for (size_t i = 0; status == OK && i < count; i++) {
        buf_init(&plan->credentials[i], outbox->mem, 2 * CREDENTIAL_BYTES_MAX);
        status = credential_read(&effects->connectors[i], outbox->mem, &plan->credentials[i], err);
        status = status == OK ? publisher_make(plan, i, err) : status;
        target_make(plan, i);
    }
    plan->plan = (struct dispatch_plan){.kind = &kind,
        .targets = plan->targets,
        .target_count = status == OK ? count : 0,
        .state = plan,
        .release = plan_release};
    if (status != OK) {
        plan_release(&plan->plan);
        return status;
    }
    status = dispatch_plan_prepare(outbox->dispatch, &plan->plan, err);
    if (status != OK) {
        dispatch_plan_drop(outbox->dispatch, &plan->plan);
        return status;
    }
    *ret_plan = plan;
    return OK;
}

/* ---- where an effect goes ------------------------------------------------------------------ */

static const struct config_effect *type_of(
    const struct dispatch_plan *plan, const struct record *record)
{
    const struct config_effect *type =
        config_effect_find(plan_of(plan)->effects, record->key.scope);
    bool is_served = type != NULL && config_connector_serves(type->connector, record->key.tenant);
    return is_served ? type : NULL; /* P9 */
}

static struct dispatch_target *target_of(
    const struct dispatch_plan *plan, const struct record *record)
{
    const struct config_effect *type = type_of(plan, record);
    return type == NULL ? NULL
                        : &plan->targets[type->connector - plan_of(plan)->effects->connectors];
}

static struct slice lane_of(
    const struct dispatch_plan *plan, const struct record *record, struct arena *arena)
{
    struct effect_detail detail;
    (void)plan;
    return effect_detail_may_have(record->detail, "lane") &&
                   effect_detail_decode(record->detail, arena, &detail, NULL) == OK
               ? detail.lane
               : SLICE_EMPTY;
}

/* ---- state of a call ----------------------------------------------------------------------- */

/* Our own data of one call. */
struct outbox_call {
    const struct config_effect *type;
    struct effect_detail detail;
    bool is_readable; /* the record's detail; else detail is empty */
    struct next_lookup_statuses statuses;
    char token[ACK_TOKEN_TEXT_BYTES + 1];
    char ack_url[sizeof "/v1/effects//ack" + KIND_ID_TEXT_BYTES];
    struct digest token_digest;
    const char *keeps[1]; /* the field that holds provider_ref */
    uint64_t sent_nanos;
};

/* By the store's clock: the time of the claim, plus the time since then. */
static int64_t now_of(const struct dispatch_call *call, const struct outbox_call *sending)
{
    return call->now_ms + (int64_t)((clock_nanos() - sending->sent_nanos) / 1000000);
}

static struct next_facts facts_of(
    const struct dispatch_call *call, const struct outbox_call *sending)
{
    return (struct next_facts){.type = sending->type,
        .attempt = call->record->attempt,
        .created_ms = call->record->created_ms,
        .first_sent_ms = sending->detail.first_sent_ms,
        .is_uncertain = sending->detail.is_uncertain,
        .now_ms = now_of(call, sending)};
}

/* For an effect that became unknown without us: its first attempt was not before it was made. */
static enum dispatch_unknown on_unknown(const struct dispatch_plan *plan,
    const struct record *record, int64_t now_ms, struct arena *arena, struct slice *ret_detail)
{
    const struct config_effect *type = type_of(plan, record);
    struct effect_detail detail;
    struct buf out;
    struct mem mem = arena_mem(arena);
    if (type == NULL || record_sealed(record) || /* it is unknown whether it was compensated */
        effect_detail_decode(record->detail, arena, &detail, NULL) != OK) {
        return DISPATCH_HOLD;
    }
    if (detail.first_sent_ms == 0) {
        detail.first_sent_ms = record->created_ms;
    }
    detail.is_uncertain = true;
    struct next_facts facts = {.type = type,
        .attempt = record->attempt,
        .created_ms = record->created_ms,
        .first_sent_ms = detail.first_sent_ms,
        .is_uncertain = true,
        .now_ms = now_ms};
    if (next_may_resend(&facts)) {
        buf_init(&out, &mem, LIMIT_DETAIL_BYTES_MAX);
        if (effect_detail_encode(&detail, &out, NULL) == OK) {
            *ret_detail = buf_view(&out);
            return DISPATCH_AGAIN; /* S1 */
        }
    }
    return type->connector->lookup.get != NULL && !next_is_held(type) ? DISPATCH_ASK
                                                                      : DISPATCH_HOLD;
}

/* ---- composing ----------------------------------------------------------------------------- */

static enum status make_token(struct outbox_call *sending, struct err *err)
{
    unsigned char bytes[EFFECT_ACK_TOKEN_BYTES];
    enum status status = rand_bytes(bytes, sizeof bytes, err);
    if (status == OK) {
        *base64_put(sending->token, bytes, sizeof bytes, BASE64_URL) = '\0';
        digest_sha256(sending->token, strlen(sending->token), &sending->token_digest);
    }
    return status;
}

/* Where its acknowledgement is sent: only the path, because a server behind a proxy does not know
 * its own name. With the id for paths, which may differ from the caller's name. */
static struct slice put_ack_url(const struct dispatch_call *call, struct outbox_call *sending)
{
    char id[KIND_ID_TEXT_BYTES];
    (void)snprintf(sending->ack_url, sizeof sending->ack_url, "/v1/effects/%s/ack",
        kind_id_put(id, RECORD_EFFECT, &call->record->operation_id));
    return slice_str(sending->ack_url);
}

/* A publication is an event: the same bytes in every attempt. */
static enum status compose_publication(
    struct dispatch_call *call, const struct outbox_call *sending, struct err *err)
{
    char id[KIND_ID_TEXT_BYTES];
    struct compose_from from = {.type = sending->type,
        .record = call->record,
        .detail = &sending->detail,
        .payload = call->body};
    struct slice name = slice_str(kind_id_put(id, RECORD_EFFECT, &call->record->operation_id));
    char *copy = arena_alloc(call->arena, name.len);
    if (copy == NULL) {
        return err_set(err, E_NOMEM, "out of memory for an effect");
    }
    memcpy(copy, name.data, name.len);
    call->id = slice_of(copy, name.len);
    call->lane = sending->detail.lane.len > 0 ? sending->detail.lane : call->record->key.key;
    call->type = SLICE_LIT("application/cloudevents+json");
    if (sending->detail.is_uncertain) { /* NX8: it may wait for its turn in the sender, too */
        const struct config_connector *connector = sending->type->connector;
        call->send_until_ms =
            sending->detail.first_sent_ms + connector->idempotency.keeps_ms - connector->total_ms;
    }
    return compose_event(&from, call->arena, &call->payload, err);
}

/* Begins our own data of a call, if it was not begun yet. */
static enum status begin_call(struct dispatch_call *call, struct err *err)
{
    struct outbox_call *sending = call->own;
    if (sending != NULL) {
        return OK;
    }
    sending = arena_zalloc(call->arena, sizeof *sending);
    if (sending == NULL) {
        return err_set(err, E_NOMEM, "out of memory for an effect");
    }
    call->own = sending;
    sending->type = type_of(call->plan, call->record);
    sending->sent_nanos = clock_nanos();
    enum status status =
        effect_detail_decode(call->record->detail, call->arena, &sending->detail, err);
    sending->is_readable = status == OK;
    return status;
}

/* NX8: it may have waited for its turn, for a breaker or for a process since that was decided. */
static enum status check_resend(
    const struct dispatch_call *call, const struct outbox_call *sending, struct err *err)
{
    struct next_facts facts = facts_of(call, sending);
    facts.attempt--; /* this one is counted already */
    return call->asks || !sending->detail.is_uncertain || next_may_resend(&facts)
               ? OK
               : err_set(err, E_INVALID, "it may have happened, and may no longer be sent again");
}

static enum status check_deadline(
    const struct dispatch_call *call, const struct outbox_call *sending, struct err *err)
{
    return dispatch_is_late(call, sending->type->deadline_ms)
               ? err_set(err, E_INVALID, "retry.deadline is over; this attempt was not made")
               : OK;
}

static enum status compose(struct dispatch_call *call, struct err *err)
{
    struct outbox_plan *plan = plan_of(call->plan);
    enum status status = begin_call(call, err);
    struct outbox_call *sending = call->own;
    call->deadline_ms = status == OK ? sending->type->deadline_ms : 0;
    status = status == OK ? check_resend(call, sending, err) : status;
    status = status == OK ? check_deadline(call, sending, err) : status;
    if (status != OK) {
        return status;
    }
    const struct config_connector *connector = sending->type->connector;
    bool is_envelope = connector->protocol == CONFIG_PROTOCOL_ENVELOPE;
    if (config_connector_publishes(connector)) {
        return compose_publication(call, sending, err);
    }
    struct buf *credential = &plan->credentials[connector - plan->effects->connectors];
    struct compose_from from = {.type = sending->type,
        .record = call->record,
        .detail = &sending->detail,
        .payload = call->body,
        .authority = upstreams_authority(call->target->one),
        .field = connector->auth.header != NULL ? slice_str(connector->auth.header)
                                                : SLICE_LIT("Authorization"),
        .credential = buf_view(credential),
        .request_id = slice_str(call->request_id)};
    if (is_envelope && !call->asks) {
        status = make_token(sending, err);
        from.ack_token = slice_str(sending->token);
        from.ack_url = put_ack_url(call, sending);
    }
    struct composed composed = {.method = HTTP_METHOD_NONE};
    status = status != OK ? status
             : call->asks ? compose_question(&from, call->arena, &composed, err)
                          : compose_attempt(&from, call->arena, &composed, err);
    call->head = composed.head;
    call->payload = composed.body;
    call->method = composed.method;
    call->rules = call->asks ? next_lookup_rules(&connector->lookup, &sending->statuses)
                             : next_attempt_rules();
    return status;
}

/* ---- settling ------------------------------------------------------------------------------ */

static enum status put_detail(
    struct dispatch_call *call, const struct outbox_call *sending, struct request *request)
{
    struct effect_detail detail = sending->detail;
    struct buf out;
    buf_init(&out, call->mem, 4 * LIMIT_DETAIL_BYTES_MAX);
    enum status status = effect_detail_encode(&detail, &out, NULL);
    if (status == E_LIMIT && detail.redacted.len > 0) { /* the answer takes precedence */
        detail.redacted = SLICE_EMPTY;
        buf_clear(&out);
        status = effect_detail_encode(&detail, &out, NULL);
    }
    if (status == OK) {
        request->detail = buf_view(&out);
    }
    return status == E_NOMEM ? E_NOMEM : OK; /* if it is too long, it stays as it was */
}

static void take_ref(struct outbox_call *sending, struct slice ref)
{
    if (ref.len > 0 && ref.len <= LIMIT_EFFECT_ID_BYTES_MAX && name_valid(ref)) {
        sending->detail.provider_ref = ref;
    }
}

/* Settle it, with its acknowledgement. */
static void put_end(struct dispatch_call *call, struct outbox_call *sending,
    struct request *request, enum record_status status, enum effect_ack ack)
{
    request->kind = call->asks ? REQUEST_RESOLVE : REQUEST_SEAL;
    request->status = status;
    request->policy.window_ms = call->asks ? 0 : sending->type->window_ms;
    request->outcome.code = (int32_t)call->out->status;
    request->effect_id = sending->detail.provider_ref;
    sending->detail.ack = ack;
    sending->detail.ack_ms = now_of(call, sending);
    sending->detail.is_uncertain = false;
}

static int64_t delay_of(const struct dispatch_call *call, const struct outbox_call *sending)
{
    const struct config_effect *type = sending->type;
    int64_t ceiling_ms =
        backoff_ceiling_ms(type->backoff_ms, type->backoff_ms_max, call->record->attempt - 1);
    int64_t after_ms = 0;
    struct slice after = SLICE_EMPTY;
    if (call->out->answer != NULL &&
        http_find_single(call->out->answer, SLICE_LIT("Retry-After"), &after)) {
        after_ms = backoff_retry_after_ms(after, now_of(call, sending));
    }
    return after_ms + backoff_jitter_ms(ceiling_ms, call->random);
}

static void put_retry(struct request *request, const struct outbox_call *sending, int64_t delay_ms)
{
    request->kind = REQUEST_RETRY;
    request->delay_ms = delay_ms;
    request->policy.attempts_max = (uint32_t)sending->type->attempts;
    request->policy.deadline_ms = sending->type->deadline_ms;
}

/* It cannot be sent as it is. Its attempt is used up, and a person must look at it: it is a dead
 * letter, or unknown if an earlier attempt may have happened (NX6, NX8, NX10). */
static void put_impossible(
    const struct dispatch_call *call, const struct outbox_call *sending, struct request *request)
{
    size_t len = strnlen(call->fault.text, LIMIT_REASON_BYTES_MAX);
    struct next_facts facts = facts_of(call, sending);
    bool is_unknown = next_may_have_happened(&facts, sending->is_readable);
    request->kind = is_unknown ? REQUEST_UNKNOWN : REQUEST_GIVE_UP;
    request->policy.attempts_max = is_unknown ? 0 : call->record->attempt;
    request->reason = slice_of(call->fault.text, len);
}

/* Neither acknowledged nor sent again by itself. */
static bool is_failure(enum record_status status)
{
    return status == RECORD_FAILED || status == RECORD_REJECTED || status == RECORD_DEAD;
}

/* The original that this one undoes is compensated in the same commit; or it is unknown
 * ("compensation.failed") if this one is not sent again by itself. A later acknowledgement still
 * compensates it. */
static enum status put_original(
    struct dispatch_call *call, const struct outbox_call *sending, enum record_status becomes)
{
    bool has_failed = is_failure(becomes);
    if (sending == NULL || op_id_absent(&sending->detail.compensates) || call->is_alone ||
        (becomes != RECORD_EXECUTED && !has_failed)) {
        return OK;
    }
    struct engine_call *original = dispatch_settle_new(call);
    if (original == NULL) {
        return E_NOMEM;
    }
    original->request.kind = REQUEST_COMPENSATION_SETTLE;
    original->request.status = has_failed ? RECORD_UNKNOWN : RECORD_COMPENSATED;
    original->request.reason =
        has_failed ? SLICE_LIT(EFFECT_COMPENSATION_FAILED) : original->request.reason;
    original->request.operation_id = sending->detail.compensates;
    return OK;
}

/* For a compensation, and for an effect that its command waits for, used-up attempts are decided
 * here: the commit that gives it up must also settle the original, or end the command. */
static void put_last_retry(
    const struct dispatch_call *call, const struct outbox_call *sending, struct request *request)
{
    struct next_facts facts = facts_of(call, sending);
    bool is_alone = op_id_absent(&sending->detail.compensates) && call->other == NULL;
    if (request->kind != REQUEST_RETRY || is_alone || sending->detail.is_uncertain) {
        return;
    }
    facts.delay_ms = request->delay_ms;
    request->policy.deadline_ms = 0;
    if (next_is_used_up(&facts)) {
        request->kind = REQUEST_GIVE_UP;
        request->policy.attempts_max = call->record->attempt;
        request->delay_ms = 0;
    }
}

static void put_step(struct dispatch_call *call, struct outbox_call *sending,
    struct request *request, enum next_step step, int64_t delay_ms)
{
    switch (step) {
    case NEXT_ACKNOWLEDGED:
        put_end(call, sending, request, RECORD_EXECUTED, EFFECT_ACK_ACKNOWLEDGED);
        break;
    case NEXT_FAILED:
        put_end(call, sending, request, RECORD_FAILED, EFFECT_ACK_REJECTED);
        request->reason = slice_str(call->out->reason);
        break;
    case NEXT_RETRY: put_retry(request, sending, delay_ms); break;
    case NEXT_RESEND: /* without bounds, which would make it a dead letter: NX8 checks again */
        request->kind = REQUEST_RETRY;
        request->delay_ms = delay_ms;
        sending->detail.is_uncertain = true;
        break;
    case NEXT_UNKNOWN:
        request->kind = REQUEST_UNKNOWN;
        request->delay_ms = next_is_held(sending->type) ? 0 : delay_ms; /* NX9 */
        sending->detail.is_uncertain = true;
        break;
    }
}

/* The provider's `keeps` counts from now on. */
static void note_sent(struct dispatch_call *call, struct outbox_call *sending)
{
    if (call->out->point != OUTCALL_NOT_SENT && sending->detail.first_sent_ms == 0) {
        sending->detail.first_sent_ms = call->now_ms;
    }
}

static enum record_status becomes(const struct request *request)
{
    return request_settles(request)           ? request->status
           : request->kind == REQUEST_GIVE_UP ? RECORD_DEAD
           : request->kind == REQUEST_UNKNOWN ? RECORD_UNKNOWN
                                              : RECORD_PENDING;
}

/* The attempt was sent, so an acknowledgement with its token may come, whatever the answer was. An
 * earlier acknowledgement belongs to an earlier attempt. */
static void note_token(const struct dispatch_call *call, struct outbox_call *sending)
{
    struct effect_detail *detail = &sending->detail;
    if (call->out->point == OUTCALL_NOT_SENT) {
        return;
    }
    if (detail->ack_attempt != call->record->attempt) { /* it may be composed again */
        detail->ack_token_before = detail->ack_token;
    }
    detail->ack_token = sending->token_digest;
    detail->ack_attempt = call->record->attempt;
    detail->ack = EFFECT_ACK_NONE;
    detail->retryable = false;
}

/* Apply an acknowledgement, immediate or later. */
static void put_ack(struct dispatch_call *call, struct outbox_call *sending,
    struct request *request, const struct acknowledgement *ack)
{
    struct next_facts facts = facts_of(call, sending);
    int64_t delay_ms = facts.delay_ms = delay_of(call, sending);
    take_ref(sending, ack->provider_ref);
    sending->detail.retryable = ack->retryable;
    switch (ack->status) {
    case EFFECT_ACK_ACKNOWLEDGED: put_step(call, sending, request, NEXT_ACKNOWLEDGED, 0); break;
    case EFFECT_ACK_PENDING:
        /* It comes later, for this attempt: the grant stays until then. After a crash before this
         * is durable the effect is unknown, and the service is asked or called again. */
        request->kind = REQUEST_RENEW;
        request->policy.lease_ms =
            sending->type->deadline_ms > 0 && sending->type->deadline_ms < LIMIT_LEASE_MS_MAX
                ? sending->type->deadline_ms
                : LIMIT_LEASE_MS_MAX;
        sending->detail.ack = EFFECT_ACK_PENDING;
        sending->detail.ack_ms = facts.now_ms;
        break;
    case EFFECT_ACK_FAILED:
        if (ack->retryable) {
            put_step(
                call, sending, request, next_after_attempt(&facts, VERDICT_LATER, 503), delay_ms);
            sending->detail.ack = EFFECT_ACK_FAILED;
            sending->detail.ack_ms = facts.now_ms;
            break;
        }
        put_end(call, sending, request, RECORD_FAILED, EFFECT_ACK_FAILED);
        break;
    case EFFECT_ACK_REJECTED:
    case EFFECT_ACK_NONE:
        put_end(call, sending, request, RECORD_FAILED, EFFECT_ACK_REJECTED);
        break;
    }
}

/* Apply the acknowledgement of an envelope's service (CCO-7), if there is one. */
static void put_acknowledged(
    struct dispatch_call *call, struct outbox_call *sending, struct request *request)
{
    struct acknowledgement ack;
    struct next_facts facts = facts_of(call, sending);
    int64_t delay_ms = facts.delay_ms = delay_of(call, sending);
    enum next_step step = next_after_attempt(&facts, call->out->verdict, call->out->status);
    note_token(call, sending);
    if (call->out->verdict != VERDICT_EXECUTED) {
        put_step(call, sending, request, step, delay_ms);
    } else if (acknowledgement_read(call->out->captured, call->arena, &ack)) {
        put_ack(call, sending, request, &ack);
    } else { /* a 2xx that we cannot read: unknown */
        step = next_after_attempt(&facts, VERDICT_UNKNOWN, call->out->status);
        put_step(call, sending, request, step, delay_ms);
        request->reason = SLICE_LIT("the answer is not an acknowledgement");
    }
}

static void put_attempt(
    struct dispatch_call *call, struct outbox_call *sending, struct request *request)
{
    note_sent(call, sending);
    request->reason = slice_str(call->out->reason);
    if (sending->type->connector->protocol == CONFIG_PROTOCOL_ENVELOPE) {
        put_acknowledged(call, sending, request);
        return;
    }
    struct next_facts facts = facts_of(call, sending);
    facts.delay_ms = delay_of(call, sending);
    if (config_connector_publishes(sending->type->connector)) {
        take_ref(sending, call->out->effect_id); /* the broker's name of the message */
    } else if (call->out->verdict == VERDICT_EXECUTED && sending->type->provider_ref != NULL) {
        take_ref(sending, acknowledgement_ref(sending->type->provider_ref, call->out, call->arena));
    }
    put_step(call, sending, request,
        next_after_attempt(&facts, call->out->verdict, call->out->status), facts.delay_ms);
}

/* What the provider said when it was asked, with its reference if it named one. */
static enum outcall_verdict answer_of(const struct dispatch_call *call, struct outbox_call *sending)
{
    const char *found = sending->type->connector->lookup.found;
    const char *where = sending->type->provider_ref;
    struct slice ref = SLICE_EMPTY;
    if (call->out->verdict != VERDICT_EXECUTED) {
        return call->out->verdict;
    }
    if (found == NULL) {
        take_ref(sending,
            where == NULL ? SLICE_EMPTY : acknowledgement_ref(where, call->out, call->arena));
        return VERDICT_EXECUTED;
    }
    switch (acknowledgement_found(found, call->out->captured, call->arena, &ref)) {
    case ACKNOWLEDGEMENT_FOUND: take_ref(sending, ref); return VERDICT_EXECUTED;
    case ACKNOWLEDGEMENT_NOT_FOUND: return VERDICT_RELEASED;
    case ACKNOWLEDGEMENT_SILENT: break;
    }
    return VERDICT_UNKNOWN;
}

/* NX7 */
static void put_answer(
    struct dispatch_call *call, struct outbox_call *sending, struct request *request)
{
    const struct config_lookup *lookup = &sending->type->connector->lookup;
    const struct record *record = call->record;
    int64_t now_ms = now_of(call, sending);
    struct next_facts facts = facts_of(call, sending);
    request->reason = slice_str(call->out->reason);
    /* By the time of the question: an attempt that was still in progress then may not be known to
     * the provider. */
    int64_t quiet_ms = next_quiet_ms(lookup, call->quiet_ms);
    enum outcall_verdict answer = answer_of(call, sending);
    if (answer == VERDICT_EXECUTED) {
        put_step(call, sending, request, NEXT_ACKNOWLEDGED, 0);
        request->reason = SLICE_LIT("the provider was asked: executed");
    } else if (answer == VERDICT_RELEASED && quiet_ms == 0) {
        sending->detail.is_uncertain = false;
        sending->detail.first_sent_ms = 0; /* it did not arrive: the key's time starts anew */
        request->kind = next_is_used_up(&facts) ? REQUEST_GIVE_UP : REQUEST_RESOLVE;
        request->status = request->kind == REQUEST_RESOLVE ? RECORD_PENDING : 0;
        request->version = record->version; /* N9: nobody has parked it since */
        request->policy.attempts_max = (uint32_t)sending->type->attempts;
        request->policy.deadline_ms = sending->type->deadline_ms;
        request->reason = SLICE_LIT("the provider was asked: not executed");
    } else {
        request->kind = REQUEST_POSTPONE;
        request->delay_ms = answer == VERDICT_RELEASED
                                ? quiet_ms
                                : next_question_ms(lookup, record->updated_ms, now_ms);
    }
}

/* The end of its command, or one step towards it, in the commit that acknowledges the effect or
 * gives it up (CCO-10). */
static enum status put_command(struct dispatch_call *call, enum record_status becomes)
{
    struct effect_outbox *outbox = plan_of(call->plan)->outbox;
    struct effect_command_calls made = {.arena = call->arena};
    struct err err = {.status = OK};
    bool has_ended = becomes == RECORD_EXECUTED || is_failure(becomes);
    if (!has_ended || call->other == NULL || call->is_alone) {
        return OK;
    }
    enum status status =
        outbox_effect_ends(outbox, call->other, call->record, is_failure(becomes), &made, &err);
    if (status != OK) {
        return status == E_NOMEM ? E_NOMEM : OK; /* the command is checked again when it is due */
    }
    for (size_t i = 0; i < made.count; i++) {
        struct engine_call *command = dispatch_settle_new(call);
        if (command == NULL) {
            return E_NOMEM;
        }
        made.calls[i].request.actor = command->request.actor;
        command->request = made.calls[i].request;
        command->outcome_body = made.calls[i].outcome_body;
    }
    return OK;
}

/* Add the other calls to the commit that settles it. */
static enum status put_rest(
    struct dispatch_call *call, const struct outbox_call *sending, struct request *request)
{
    put_last_retry(call, sending, request);
    enum status status = put_detail(call, sending, request);
    if (status == OK) {
        status = put_original(call, sending, becomes(request));
    }
    return status == OK ? put_command(call, becomes(request)) : status;
}

static bool other_of(struct dispatch_call *call, struct op_id *ret_id)
{
    const struct outbox_call *sending = call->own;
    bool may_join = sending != NULL && plan_of(call->plan)->outbox->parent.ends != NULL &&
                    effect_has_command(call->record, &sending->detail);
    *ret_id = call->record->parent;
    return may_join;
}

static enum status settle(struct dispatch_call *call, struct err *err)
{
    enum status status = begin_call(call, err); /* it may not have got as far as compose */
    struct outbox_call *sending = call->own;
    struct engine_call *first = dispatch_settle_new(call);
    if (status == E_NOMEM || first == NULL) {
        return E_NOMEM;
    }
    struct request *request = &first->request;
    if (call->out == NULL && call->asks) {
        request->kind = REQUEST_POSTPONE; /* no lookup: without a due, a person decides */
        return OK;
    }
    if (call->out == NULL) {
        put_impossible(call, sending, request);
        status = put_original(call, sending, becomes(request));
        return status == OK ? put_command(call, becomes(request)) : status;
    }
    if (call->asks) {
        put_answer(call, sending, request);
    } else {
        put_attempt(call, sending, request);
    }
    return put_rest(call, sending, request);
}

static void settled(struct dispatch_call *call)
{
    const struct engine_call *first = call->calls[0];
    const struct engine_call *last = call->calls[call->call_count > 0 ? call->call_count - 1 : 0];
    bool has_joined = call->call_count > 1 && effect_has_moved_command(&last->decision.next);
    if (call->call_count > 0 && first->err.status == OK && !has_joined) {
        outbox_settled(plan_of(call->plan)->outbox, &first->decision.next);
    }
}

static const struct dispatch_kind kind = {.name = "effects",
    .kind = RECORD_EFFECT,
    .target = target_of,
    .lane = lane_of,
    .after = lane_after,
    .unknown = on_unknown,
    .compose = compose,
    .other = other_of,
    .settle = settle,
    .settled = settled};

/* ---- acknowledgements that come later ------------------------------------------------------ */

enum status outbox_acknowledge(struct effect_outbox *outbox, const struct config *config,
    const struct acknowledgement *ack, struct dispatch_call *call, struct err *err)
{
    struct outbox_plan *plan = arena_zalloc(call->arena, sizeof *plan);
    struct outbox_call *sending = arena_zalloc(call->arena, sizeof *sending);
    struct outcall *out = arena_zalloc(call->arena, sizeof *out);
    if (plan == NULL || sending == NULL || out == NULL) {
        return err_set(err, E_NOMEM, "out of memory for an acknowledgement");
    }
    plan->outbox = outbox;
    plan->effects = &config->effects;
    *out = (struct outcall){.point = OUTCALL_ANSWERED, .verdict = VERDICT_EXECUTED, .status = 200};
    call->plan = &plan->plan;
    call->out = out;
    call->own = sending;
    call->call_count = 0;
    sending->sent_nanos = clock_nanos();
    sending->type = type_of(call->plan, call->record);
    if (sending->type == NULL) {
        return err_set(err, E_UNAVAILABLE, "the configuration no longer has this effect type");
    }
    enum status status =
        effect_detail_decode(call->record->detail, call->arena, &sending->detail, err);
    struct engine_call *first = status == OK ? dispatch_settle_new(call) : NULL;
    if (first == NULL) {
        return status == OK ? err_set(err, E_NOMEM, "out of memory for an acknowledgement")
                            : status;
    }
    first->request.reason = SLICE_LIT("acknowledged later");
    put_ack(call, sending, &first->request, ack);
    return put_rest(call, sending, &first->request);
}

enum status outbox_effect_ends(struct effect_outbox *outbox, const struct record *command,
    const struct record *effect, bool has_failed, struct effect_command_calls *calls,
    struct err *err)
{
    const struct outbox_parent *parent = &outbox->parent;
    calls->count = 0;
    return parent->ends == NULL || command == NULL || command->kind != RECORD_COMMAND ||
                   !slice_equal(command->key.tenant, effect->key.tenant) /* P9 */
               ? OK
               : parent->ends(parent->context, command, effect, has_failed, calls, err);
}

void outbox_settled(struct effect_outbox *outbox, const struct record *effect)
{
    bool is_settled = record_sealed(effect) || effect->status == RECORD_DEAD;
    if (outbox->parent.settled != NULL && is_settled && !op_id_absent(&effect->parent)) {
        outbox->parent.settled(outbox->parent.context, effect);
    }
}

/* ---- configuration and lifetime ------------------------------------------------------------ */

enum status outbox_reload_prepare(
    struct effect_outbox *outbox, struct config *config, void **ret_made, struct err *err)
{
    struct outbox_plan *plan = NULL;
    enum status status = plan_make(outbox, config, &plan, err);
    *ret_made = plan;
    return status;
}

void outbox_reload_end(struct effect_outbox *outbox, void *made, bool is_used)
{
    struct outbox_plan *plan = made;
    if (is_used) {
        dispatch_plan_use(outbox->dispatch, &plan->plan);
    } else {
        dispatch_plan_drop(outbox->dispatch, &plan->plan);
    }
}

void outbox_parent(struct effect_outbox *outbox, const struct outbox_parent *parent)
{
    outbox->parent = *parent;
}

enum status outbox_new(
    const struct outbox_options *options, struct effect_outbox **ret_outbox, struct err *err)
{
    const struct mem *mem = options->mem == NULL ? &mem_libc : options->mem;
    struct effect_outbox *outbox = mem_zalloc(mem, 1, sizeof *outbox);
    void *made = NULL;
    if (outbox == NULL) {
        return err_set(err, E_NOMEM, "out of memory");
    }
    outbox->mem = mem;
    outbox->dispatch = options->dispatch;
    enum status status = outbox_reload_prepare(outbox, options->config, &made, err);
    if (status != OK) {
        outbox_free(outbox);
        return status;
    }
    outbox_reload_end(outbox, made, true);
    *ret_outbox = outbox;
    return OK;
}

void outbox_free(struct effect_outbox *outbox)
{
    if (outbox != NULL) {
        mem_free(outbox->mem, outbox);
    }
}
