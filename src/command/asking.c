#include "command/asking.h"

#include "base/base64.h"
#include "base/check.h"
#include "base/limits.h"
#include "base/macros.h"
#include "base/rand.h"
#include "command/declared.h"
#include "command/impl.h"
#include "engine/request_builder.h"
#include "envelope/sealed.h"

enum status asking_read(
    struct command_asking *asking, const struct json_value *body, struct envelope_fault *fault)
{
    const struct config *config = asking->registry->config;
    struct envelope_rules rules = {.commands = config->commands,
        .command_count = config->command_count,
        .tenant = asking->tenant,
        .is_tenant_verified = asking->is_tenant_verified};
    enum status status = envelope_read(&rules, body, asking->arena, asking->envelope, fault);
    if (status == OK && asking->envelope->command->declared_count > 0) {
        struct err err = {.status = OK};
        status =
            declared_check(asking->envelope->command, asking->envelope->root, asking->arena, &err);
        status = status == E_INVALID ? envelope_refuse(fault, 422, "invalid_args", "%s", err.text)
                                     : status;
    }
    asking->is_read = status == OK && asking->envelope->command->class == CONFIG_CLASS_I0;
    return status;
}

bool asking_is_within_rate(const struct command_asking *asking, int64_t *ret_after_ms)
{
    const struct config_command *command = asking->envelope->command;
    struct flood *flood = door_flood(asking->commands->door);
    struct flood_rate rate = {command->rate, command->rate < 1 ? 1 : command->rate};
    struct record_key key = {.tenant = asking->tenant,
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
static enum status make_token(const struct command_asking *asking, const struct record_key *key,
    struct detail *detail, struct err *err)
{
    unsigned char random[COMMAND_TOKEN_BYTES];
    enum status status = rand_bytes(random, sizeof random, err);
    if (status != OK) {
        return status;
    }
    *base64_put(asking->token, random, sizeof random, BASE64_URL) = '\0';
    explicit_bzero(random, sizeof random);
    detail->is_confirmed_by_step_up = asking->envelope->command->confirm == CONFIG_CONFIRM_STEP_UP;
    detail->submitter = asking->submitter;
    status = confirmation_hash(
        key, asking->envelope->actor_id, slice_str(asking->token), asking->arena, &detail->token);
    return status == OK ? OK : err_set(err, status, "out of memory");
}

static enum status make_detail(
    const struct command_asking *asking, struct request *asked, struct err *err)
{
    const struct envelope *envelope = asking->envelope;
    struct detail detail = {.command = slice_str(envelope->command->name),
        .command_id = envelope->command_id,
        .actor_id = envelope->actor_id,
        .effective_actor_id = envelope->effective_actor_id,
        .target = envelope->target,
        .args = envelope->args,
        .is_key_given = envelope->is_key_given,
        .is_read = asking->is_read};
    struct buf out;
    enum status status = OK;
    if (envelope->command->confirm != CONFIG_CONFIRM_NONE) {
        status = make_token(asking, &asked->key, &detail, err);
    }
    if (status != OK) {
        return status;
    }
    buf_init(&out, asking->mem, 2 * LIMIT_DETAIL_BYTES_MAX);
    status = detail_put(&detail, &out);
    asked->detail = buf_view(&out);
    return status == OK ? OK : err_set(err, status, "the names in the envelope are too long");
}

/* A body that must be sent later is kept whole, and encrypted at rest (DESIGN section 4). */
static enum status keep_body(
    const struct command_asking *asking, struct engine_call *engine, struct err *err)
{
    struct vault_name name = sealed_name(&engine->request.key, RECORD_COMMAND);
    struct buf sealed;
    buf_init(&sealed, asking->mem, ENVELOPE_DERIVED_BYTES_MAX);
    enum status status =
        vault_seal(asking->commands->vault, &name, asking->envelope->canonical, &sealed, err);
    if (status == OK) {
        engine->request_body = buf_view(&sealed);
        engine->request.request = (struct body_ref){.bytes = sealed.len, .retained = true};
        digest_sha256(sealed.data, sealed.len, &engine->request.request.digest);
    }
    return status;
}

/* An I0 command runs every time: its record has a key of its own. */
static enum status put_key(
    const struct command_asking *asking, struct request *asked, struct err *err)
{
    const struct envelope *envelope = asking->envelope;
    asked->key =
        (struct record_key){.tenant = asking->tenant, .scope = COMMAND_SCOPE, .key = envelope->key};
    if (asking->is_read) {
        unsigned char random[16];
        char *text = arena_alloc(asking->arena, 64);
        enum status status = rand_bytes(random, sizeof random, err);
        if (status != OK || text == NULL) {
            return status != OK ? status : err_set(err, E_NOMEM, "out of memory");
        }
        memcpy(text, "read-", 5);
        *base64_put(text + 5, random, sizeof random, BASE64_URL) = '\0';
        asked->key.key = slice_str(text);
    }
    return record_key_seal_as(&asked->key, RECORD_COMMAND, err);
}

static enum status put_trace(
    const struct command_asking *asking, struct request *asked, struct err *err)
{
    /* In canonical order. */
    struct trace_member members[] = {{SLICE_LIT("command_id"), asking->envelope->command_id},
        {SLICE_LIT("request_id"), asking->request_id},
        {SLICE_LIT("traceparent"), asking->traceparent}};
    struct buf out;
    buf_init(&out, asking->mem, 2 * LIMIT_TRACE_BYTES_MAX);
    enum status status = trace_write(asking->envelope->trace, members, COUNT(members), &out, err);
    asked->trace = buf_view(&out);
    return status;
}

/* What names it, in its record and in evidence. */
static enum status put_names(
    const struct command_asking *asking, struct request *asked, struct err *err)
{
    enum status status = put_key(asking, asked, err);
    status = status == OK ? make_detail(asking, asked, err) : status;
    return status == OK ? put_trace(asking, asked, err) : status;
}

enum status asking_make(
    const struct command_asking *asking, struct engine_call *engine, struct err *err)
{
    const struct config_command *command = asking->envelope->command;
    struct request *asked = &engine->request;
    struct engine *at = door_engine(asking->commands->door);
    bool asks = command->confirm != CONFIG_CONFIRM_NONE;
    asked->kind = asks || asking->is_later ? REQUEST_ENQUEUE : REQUEST_BEGIN;
    asked->record_kind = RECORD_COMMAND;
    asked->door = RECORD_DOOR_COMMANDS;
    asked->policy = policy_default;
    asked->policy.window_ms = asking->is_read ? COMMAND_READ_WINDOW_MS : command->ttl_ms;
    asked->policy.on_unknown = (enum on_unknown)command->on_unknown;
    asked->policy.retry_rejected = true; /* no effect began: a new submission starts over */
    if (asks) {
        asked->status = RECORD_WAITING;
        asked->delay_ms = command->confirm_ttl_ms;
    } else if (!asking->is_later) {
        asked->policy.lease_ms = execution_lease_ms(command);
        asked->holder = engine_incarnation(at);
    }
    builder_fingerprint(engine, at, &asking->envelope->digest, FINGERPRINT_CANONICAL);
    enum status status = put_names(asking, asked, err);
    status = status == OK ? keep_body(asking, engine, err) : status;
    return status == OK ? builder_check(engine, err) : status;
}

enum status asking_check(const struct command_asking *asking, struct err *err)
{
    struct request asked = {.kind = REQUEST_ENQUEUE, .record_kind = RECORD_COMMAND};
    ASSERT(asking->envelope->command->confirm == CONFIG_CONFIRM_NONE);
    enum status status = put_names(asking, &asked, err);
    return status == OK ? request_names_check(&asked, err) : status;
}
