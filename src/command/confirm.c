/*
 * POST /v1/commands/{command_id}/confirm and …/deny.
 *
 *   confirm   the record is read, the token compared, the envelope decrypted, and the command
 *             woken: started in the commit that consumes the token (CM2). A second caller finds it
 *             started. Without the key of the envelope nothing changes, and the token stays valid.
 *   deny      the same, to rejected: a fresh submission starts over.
 *
 * Between the read and the wake the command may have been denied and submitted again, with a new
 * token: the wake names the version that was read, and is refused if the version has changed.
 *
 * CM3: whatever is wrong (the token, the command, its tenant or actor, a used or expired token, the
 * credential of a step-up), the answer is the same, and so is the work where possible.
 */
#include <openssl/crypto.h>

#include "api/body.h"
#include "api/query.h"
#include "base/limits.h"
#include "base/macros.h"
#include "base/mem.h"
#include "canon/members.h"
#include "command/impl.h"
#include "engine/request_builder.h"
#include "envelope/sealed.h"
#include "http/fields.h"

/* Wrong tokens for one command: a person mistypes, a program guesses. */
static const struct flood_rate guesses = {.per_second = 1, .burst = 10};

/* The body of a confirmation. */
struct answered_by {
    struct slice token;
    struct slice actor_id;
    struct slice reason;
};

static const struct member members[] = {
    {SLICE_INIT("token"), MEMBER_TEXT, false, offsetof(struct answered_by, token)},
    {SLICE_INIT("actor_id"), MEMBER_TEXT, false, offsetof(struct answered_by, actor_id)},
    {SLICE_INIT("reason"), MEMBER_TEXT, false, offsetof(struct answered_by, reason)},
};

/* One confirmation in progress. */
struct confirming {
    struct execution execution;
    struct query query;
    struct answered_by shown;
    struct record_key guess; /* wrong tokens are counted under this key */
    bool denies;
};

/* ---- tokens ------------------------------------------------------------------------------ */

enum status confirmation_hash(const struct record_key *key, struct slice actor_id,
    struct slice token, struct arena *arena, struct digest *ret_hash)
{
    struct mem mem = arena_mem(arena);
    struct buf out;
    struct jsonw json = {.out = &out};
    buf_init(&out, &mem, 64 << 10);
    jsonw_open(&json, NULL, '{'); /* one object, never joined strings */
    jsonw_bytes(&json, "actor_id", actor_id);
    jsonw_bytes(&json, "key", key->key);
    jsonw_bytes(&json, "tenant_id", key->tenant);
    jsonw_bytes(&json, "token", token);
    jsonw_close(&json, '}');
    if (buf_status(&out) != OK) {
        return E_NOMEM;
    }
    digest_sha256(out.data, out.len, ret_hash);
    mem_wipe(out.data, out.len);
    return OK;
}

/* The digest is of the verified token, so that a different spelling of the field ("bearer") is
 * still the same caller. A caller without a token has no credential. */
void confirmation_credential(const struct api_request *request, struct digest *ret_digest)
{
    const struct slice scheme = SLICE_LIT("Bearer ");
    struct slice token = request->caller.token;
    *ret_digest = (struct digest){{0}};
    if (token.len > 0) {
        struct digest plain;
        digest_sha256_2(scheme.data, scheme.len, token.data, token.len, &plain);
        engine_fingerprint(door_engine(request->api->door), &plain, ret_digest);
    }
}

static bool same_secret(const struct digest *a, const struct digest *b)
{
    return CRYPTO_memcmp(a->bytes, b->bytes, sizeof a->bytes) == 0;
}

/* A step-up must be confirmed by a different caller than the submitter, and one with the right to
 * confirm. */
static bool is_stepped_up(const struct api_request *request, const struct detail *detail)
{
    struct digest own;
    static const struct digest none;
    confirmation_credential(request, &own);
    return (request->caller.rights & CONFIG_RIGHT_CONFIRM) != 0 && !digest_equal(&own, &none) &&
           !same_secret(&own, &detail->submitter);
}

/* Every condition is evaluated, so that the time taken reveals nothing. */
static bool is_valid(
    const struct confirming *confirming, const struct record *record, const struct detail *detail)
{
    const struct api_request *request = confirming->execution.request;
    static const struct digest none;
    struct digest hash;
    struct slice actor =
        confirming->shown.actor_id.len > 0 ? confirming->shown.actor_id : detail->actor_id;
    if (confirmation_hash(
            &record->key, actor, confirming->shown.token, request->exchange->arena, &hash) != OK) {
        return false;
    }
    /* A denial starts nothing, so a caller that may confirm or operate needs no token for it
     * (run). */
    bool is_free = confirming->denies && confirming->shown.token.len == 0;
    bool is_token = same_secret(&hash, &detail->token) || is_free;
    bool is_asked = !same_secret(&none, &detail->token);
    bool waits = record->status == RECORD_WAITING && record->attempt == 0;
    bool may =
        !detail->is_confirmed_by_step_up || confirming->denies || is_stepped_up(request, detail);
    return is_token && is_asked && waits && may;
}

/* ---- answers ----------------------------------------------------------------------------- */

static void refuse(struct confirming *confirming)
{
    struct commands *commands = confirming->execution.commands;
    flood_count(door_flood(commands->door), &confirming->guess, guesses, clock_nanos());
    execution_refuse(&confirming->execution,
        &(struct problem){.status = 403,
            .code = "confirmation_refused",
            .detail = SLICE_LIT("this confirmation is not valid for this command"),
            .effect = PROBLEM_EFFECT_NO,
            .retry = PROBLEM_RETRY_NO});
}

/* ---- waking ------------------------------------------------------------------------------ */

static void on_woken(struct execution *execution)
{
    struct confirming *confirming = CONTAINER_OF(execution, struct confirming, execution);
    const struct engine_call *engine = &execution->call.engine;
    if (engine->err.status != OK) {
        execution_fail(execution, &engine->err);
        return;
    }
    if (engine->decision.kind == DECISION_DONE && confirming->denies) {
        execution->record = engine->decision.next;
        execution_answer(execution, 200);
        return;
    }
    if (engine->decision.kind != DECISION_CLAIMED) {
        refuse(confirming); /* a different caller was faster, or it is over */
        return;
    }
    execution->decision = "first_seen";
    execution_run(execution);
}

static enum status put_detail(
    struct confirming *confirming, const struct detail *detail, struct slice *ret_bytes)
{
    const struct api_request *request = confirming->execution.request;
    struct detail next = *detail;
    struct engine_stats stats;
    struct buf out;
    engine_stats(door_engine(confirming->execution.commands->door), &stats);
    if (!confirming->denies) {
        next.confirmed_ms = stats.now_ms;
        next.confirmed_by = request->caller.actor;
    }
    buf_init(&out, &confirming->execution.request->mem, 2 * LIMIT_DETAIL_BYTES_MAX);
    enum status status = detail_put(&next, &out);
    *ret_bytes = buf_view(&out);
    return status;
}

/* The envelope must be readable before the token is used up: a command that is started without it
 * has nothing to send. */
static enum status open_body(struct confirming *confirming, struct err *err)
{
    struct execution *execution = &confirming->execution;
    const struct query *query = &confirming->query;
    struct vault_name name = sealed_name(&query->record->key, RECORD_COMMAND);
    struct buf plain;
    buf_init(&plain, &execution->request->mem, ENVELOPE_DERIVED_BYTES_MAX);
    enum status status =
        vault_open(execution->commands->vault, &name, query->request_body, &plain, err);
    execution->body = buf_view(&plain);
    if (status == E_INVALID) { /* the caller's request is not at fault */
        status = err_set(err, E_UNAVAILABLE, COMMAND_NO_KEY);
    }
    return status;
}

static void wake(
    struct confirming *confirming, const struct record *record, const struct detail *detail)
{
    struct execution *execution = &confirming->execution;
    const struct http_exchange *exchange = execution->request->exchange;
    const struct config_command *command = registry_find(execution->registry, detail->command);
    struct err err = {.status = OK};
    if (command == NULL && !confirming->denies) {
        execution_refuse(execution, &(struct problem){.status = 404,
                                        .code = "unknown_command",
                                        .detail = SLICE_LIT("the command is not in the registry "
                                                            "any more"),
                                        .effect = PROBLEM_EFFECT_NO,
                                        .retry = PROBLEM_RETRY_NO});
        return;
    }
    if (!confirming->denies && open_body(confirming, &err) != OK) {
        execution_fail(execution, &err);
        return;
    }
    struct request *request = &execution->call.engine.request;
    request->kind = REQUEST_WAKE;
    request->key.tenant = record->key.tenant;
    request->operation_id = record->operation_id;
    request->version = record->version;
    request->trace = builder_trace_again(record->trace, exchange->request_id,
        fields_traceparent_of(exchange->head), exchange->arena);
    request->status = confirming->denies ? RECORD_REJECTED : RECORD_IN_PROGRESS;
    request->reason = !confirming->denies                ? SLICE_EMPTY
                      : confirming->shown.reason.len > 0 ? confirming->shown.reason
                                                         : SLICE_LIT("denied");
    if (!confirming->denies) {
        request->policy.lease_ms = execution_lease_ms(command);
        request->policy.on_unknown = (enum on_unknown)command->on_unknown;
        request->holder = engine_incarnation(door_engine(execution->commands->door));
    }
    if (put_detail(confirming, detail, &request->detail) != OK ||
        builder_check(&execution->call.engine, &err) != OK) {
        execution_fail(execution, &(struct err){.status = E_NOMEM, .text = "out of memory"});
        return;
    }
    execution_submit(execution, on_woken);
}

/* ---- reading ----------------------------------------------------------------------------- */

static void on_read(void *context, struct http_exchange *exchange)
{
    (void)context;
    struct confirming *confirming = exchange->state;
    const struct query *query = &confirming->query;
    struct detail detail;
    if (query->call.err.status != OK) {
        execution_fail(&confirming->execution, &query->call.err);
        return;
    }
    if (query->record == NULL ||
        detail_read(query->record->detail, exchange->arena, &detail) != OK ||
        !is_valid(confirming, query->record, &detail)) {
        refuse(confirming);
        return;
    }
    wake(confirming, query->record, &detail);
}

static void done(struct engine_call *call)
{
    http_wake(call->context);
}

static void read_record(struct confirming *confirming)
{
    struct http_exchange *exchange = confirming->execution.request->exchange;
    enum record_kind kind;
    struct err err = {.status = OK};
    struct query *query = &confirming->query;
    query->kind = QUERY_OPERATION;
    query->kinds = 1u << RECORD_COMMAND;
    query->tenant = confirming->execution.request->caller.tenant;
    query->call = (struct engine_call){.arena = exchange->arena, .context = exchange, .done = done};
    if (!kind_id_read(confirming->execution.request->path_value, &kind, &query->operation_id) ||
        kind != RECORD_COMMAND) {
        refuse(confirming);
        return;
    }
    exchange->state = confirming;
    exchange->resume = on_read;
    if (query_submit(door_engine(confirming->execution.commands->door), query, &err) != OK) {
        execution_fail(&confirming->execution, &err);
    }
}

/* True: too many wrong tokens recently. */
static bool is_flooded(struct confirming *confirming)
{
    struct execution *execution = &confirming->execution;
    struct slice id = execution->request->path_value;
    int64_t after_ms = 0;
    struct err err;
    confirming->guess = (struct record_key){.tenant = execution->request->caller.tenant,
        .scope = SLICE_LIT("confirmations"),
        .key = slice_of(id.data, id.len < LIMIT_KEY_BYTES_MAX ? id.len : LIMIT_KEY_BYTES_MAX)};
    if (record_key_seal(&confirming->guess, &err) != OK ||
        !flood_refuse(door_flood(execution->commands->door), &confirming->guess, guesses,
            clock_nanos(), &after_ms)) {
        return false;
    }
    execution_refuse(
        execution, &(struct problem){.status = 429,
                       .code = "too_many_confirmations",
                       .detail = SLICE_LIT("too many confirmations of this command were refused"),
                       .effect = PROBLEM_EFFECT_NO,
                       .retry = PROBLEM_RETRY_AFTER,
                       .retry_after_ms = after_ms});
    return true;
}

static void run(struct api_request *request, bool denies)
{
    static const struct member_table table = {
        .prefix = "", .members = members, .count = COUNT(members), .is_open = true};
    const struct json_value *values[COUNT(members)];
    const struct json_value *body;
    struct member_fault fault = {.code = NULL};
    if (!api_body_json(request, &body)) {
        return;
    }
    struct confirming *confirming = arena_zalloc(request->exchange->arena, sizeof *confirming);
    if (confirming == NULL) {
        api_fail_memory(request);
        return;
    }
    enum status status = members_read(&table, body, &confirming->shown, values, &fault);
    bool may_deny =
        denies && (request->caller.rights & (CONFIG_RIGHT_CONFIRM | CONFIG_RIGHT_OPERATE)) != 0;
    if (status == OK && confirming->shown.token.len == 0 && !may_deny) {
        status = member_refuse(&fault, "missing_member", "member 'token' is missing");
    }
    if (status != OK) {
        api_body_refuse(request, status, &fault);
        return;
    }
    confirming->denies = denies;
    execution_init(&confirming->execution, request);
    if (!is_flooded(confirming)) {
        read_record(confirming);
    }
}

void command_confirm(struct api_request *request)
{
    run(request, false);
}

void command_deny(struct api_request *request)
{
    run(request, true);
}
