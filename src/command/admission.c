#include "command/admission.h"

#include "base/base64.h"
#include "base/check.h"
#include "base/limits.h"
#include "base/macros.h"
#include "base/mem.h"
#include "base/rand.h"
#include "command/declared.h"
#include "command/impl.h"
#include "engine/request_builder.h"
#include "envelope/sealed.h"

enum status admission_read(struct command_admission *admission, const struct json_value *body,
    struct envelope_fault *fault)
{
    const struct config *config = admission->registry->config;
    struct envelope_rules rules = {.commands = config->commands,
        .command_count = config->command_count,
        .tenant = admission->tenant,
        .is_tenant_verified = admission->is_tenant_verified};
    enum status status = envelope_read(&rules, body, admission->arena, admission->envelope, fault);
    if (status == OK && admission->envelope->command->declared_count > 0) {
        struct err err = {.status = OK};
        status = declared_check(
            admission->envelope->command, admission->envelope->root, admission->arena, &err);
        status = status == E_INVALID ? envelope_refuse(fault, 422, "invalid_args", "%s", err.text)
                                     : status;
    }
    admission->is_read = status == OK && admission->envelope->command->class == CONFIG_CLASS_I0;
    return status;
}

bool admission_is_within_rate(const struct command_admission *admission, int64_t *ret_after_ms)
{
    const struct config_command *command = admission->envelope->command;
    struct flood *flood = door_flood(admission->commands->door);
    struct flood_rate rate = {command->rate, command->rate < 1 ? 1 : command->rate};
    struct record_key key = {.tenant = admission->tenant,
        .scope = SLICE_LIT("command rates"),
        .key = slice_str(command->name)};
    struct err err;
    if (!(command->rate > 0) || record_key_seal(&key, &err) != OK) {
        return true;
    }
    if (!flood_refuse(flood, &key, rate, clock_nanos(), ret_after_ms)) {
        flood_count(flood, &key, rate, clock_nanos());
        return true;
    }
    return false;
}

/* 256 random bits, shown once. Only their hash is kept. */
static enum status make_token(const struct command_admission *admission,
    const struct record_key *key, struct detail *detail, struct err *err)
{
    unsigned char random[COMMAND_TOKEN_BYTES];
    enum status status = rand_bytes(random, sizeof random, err);
    if (status != OK) {
        return status;
    }
    *base64_put(admission->token, random, sizeof random, BASE64_URL) = '\0';
    mem_wipe(random, sizeof random);
    detail->is_confirmed_by_step_up =
        admission->envelope->command->confirm == CONFIG_CONFIRM_STEP_UP;
    detail->submitter = admission->submitter;
    status = confirmation_hash(key, admission->envelope->actor_id, slice_str(admission->token),
        admission->arena, &detail->token);
    return status == OK ? OK : err_set(err, status, "out of memory");
}

static enum status make_detail(
    const struct command_admission *admission, struct request *request, struct err *err)
{
    const struct envelope *envelope = admission->envelope;
    struct detail detail = {.command = slice_str(envelope->command->name),
        .command_id = envelope->command_id,
        .actor_id = envelope->actor_id,
        .effective_actor_id = envelope->effective_actor_id,
        .target = envelope->target,
        .args = envelope->args,
        .is_key_given = envelope->is_key_given,
        .is_read = admission->is_read};
    struct buf out;
    enum status status = OK;
    if (envelope->command->confirm != CONFIG_CONFIRM_NONE) {
        status = make_token(admission, &request->key, &detail, err);
    }
    if (status != OK) {
        return status;
    }
    buf_init(&out, admission->mem, 2 * LIMIT_DETAIL_BYTES_MAX);
    status = detail_put(&detail, &out);
    request->detail = buf_view(&out);
    return status == OK ? OK : err_set(err, status, "the names in the envelope are too long");
}

/* A body that must be sent later is kept whole, and encrypted at rest (docs/effects.md). */
static enum status keep_body(
    const struct command_admission *admission, struct engine_call *engine, struct err *err)
{
    struct vault_name name = sealed_name(&engine->request.key, RECORD_COMMAND);
    struct buf sealed;
    buf_init(&sealed, admission->mem, ENVELOPE_DERIVED_BYTES_MAX);
    enum status status =
        vault_seal(admission->commands->vault, &name, admission->envelope->canonical, &sealed, err);
    if (status == OK) {
        engine->request_body = buf_view(&sealed);
        engine->request.request = (struct body_ref){.bytes = sealed.len, .retained = true};
        digest_sha256(sealed.data, sealed.len, &engine->request.request.digest);
    }
    return status;
}

/* An I0 command runs every time: its record has a key of its own. */
static enum status put_key(
    const struct command_admission *admission, struct request *request, struct err *err)
{
    const struct envelope *envelope = admission->envelope;
    request->key = (struct record_key){
        .tenant = admission->tenant, .scope = COMMAND_SCOPE, .key = envelope->key};
    if (admission->is_read) {
        unsigned char random[16];
        char *text = arena_alloc(admission->arena, 64);
        enum status status = rand_bytes(random, sizeof random, err);
        if (status != OK || text == NULL) {
            return status != OK ? status : err_set(err, E_NOMEM, "out of memory");
        }
        memcpy(text, "read-", 5);
        *base64_put(text + 5, random, sizeof random, BASE64_URL) = '\0';
        request->key.key = slice_str(text);
    }
    return record_key_seal_as(&request->key, RECORD_COMMAND, err);
}

static enum status put_trace(
    const struct command_admission *admission, struct request *request, struct err *err)
{
    /* In canonical order. */
    struct trace_member members[] = {{SLICE_LIT("command_id"), admission->envelope->command_id},
        {SLICE_LIT("request_id"), admission->request_id},
        {SLICE_LIT("traceparent"), admission->traceparent}};
    struct buf out;
    buf_init(&out, admission->mem, 2 * LIMIT_TRACE_BYTES_MAX);
    enum status status =
        trace_write(admission->envelope->trace, members, COUNT(members), &out, err);
    request->trace = buf_view(&out);
    return status;
}

/* What names it, in its record and in evidence. */
static enum status put_names(
    const struct command_admission *admission, struct request *request, struct err *err)
{
    enum status status = put_key(admission, request, err);
    status = status == OK ? make_detail(admission, request, err) : status;
    return status == OK ? put_trace(admission, request, err) : status;
}

enum status admission_make(
    const struct command_admission *admission, struct engine_call *engine, struct err *err)
{
    const struct config_command *command = admission->envelope->command;
    struct request *request = &engine->request;
    struct engine *at = door_engine(admission->commands->door);
    bool asks = command->confirm != CONFIG_CONFIRM_NONE;
    request->kind = asks || admission->is_later ? REQUEST_ENQUEUE : REQUEST_BEGIN;
    request->record_kind = RECORD_COMMAND;
    request->door = RECORD_DOOR_COMMANDS;
    request->policy = policy_default;
    request->policy.window_ms = admission->is_read ? COMMAND_READ_WINDOW_MS : command->ttl_ms;
    request->policy.on_unknown = (enum on_unknown)command->on_unknown;
    request->policy.retry_rejected = true; /* no effect began: a new submission starts over */
    if (asks) {
        request->status = RECORD_WAITING;
        request->delay_ms = command->confirm_ttl_ms;
    } else if (!admission->is_later) {
        request->policy.lease_ms = execution_lease_ms(command);
        request->holder = engine_incarnation(at);
    }
    builder_fingerprint(engine, at, &admission->envelope->digest, FINGERPRINT_CANONICAL);
    enum status status = put_names(admission, request, err);
    status = status == OK ? keep_body(admission, engine, err) : status;
    return status == OK ? builder_check(engine, err) : status;
}

enum status admission_check(const struct command_admission *admission, struct err *err)
{
    struct request request = {.kind = REQUEST_ENQUEUE, .record_kind = RECORD_COMMAND};
    ASSERT(admission->envelope->command->confirm == CONFIG_CONFIRM_NONE);
    enum status status = put_names(admission, &request, err);
    return status == OK ? request_names_check(&request, err) : status;
}
