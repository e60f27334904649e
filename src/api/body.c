#include "api/body.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/check.h"
#include "base/limits.h"
#include "base/text.h"
#include "canon/key.h"
#include "canon/payload.h"
#include "engine/operation_document.h"

enum {
    KEY_FROM_BYTES_MAX = 65536, /* of what a key is derived from: far more than five names */
    NAME_SHOWN_MAX = 64,        /* of somebody's member name in a text */
};

/* A slice of a literal where only a constant may stand. */
#define NAME(text)                                                                                 \
    {                                                                                              \
        "" text, sizeof(text) - 1                                                                  \
    }

enum status api_body_refuse(struct api_body_fault *fault, const char *code, const char *format, ...)
{
    char text[ERR_TEXT_BYTES_MAX];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fault->code = code;
    return err_set(&fault->err, E_INVALID, "%s", text);
}

#define WRONG(fault, ...) api_body_refuse((fault), "invalid_member", __VA_ARGS__)

static enum status no_memory(struct api_body_fault *fault)
{
    fault->code = "out_of_memory";
    return err_set(&fault->err, E_NOMEM, "out of memory");
}

/* A failure of a reader below, as the fault of a member. */
static enum status fault_of(struct api_body_fault *fault, enum status status, const char *member)
{
    if (status == E_NOMEM) {
        return no_memory(fault);
    }
    fault->code = "invalid_member";
    if (member != NULL) {
        err_prefix(&fault->err, "%s", member);
    }
    fault->err.status = E_INVALID;
    return E_INVALID;
}

void api_body_answer_fault(struct api_ask *ask, const struct api_body_fault *fault)
{
    if (fault->err.status == E_NOMEM) {
        api_fail_memory(ask);
        return;
    }
    char place[64] = "";
    if (fault->place.line > 0) {
        (void)snprintf(place, sizeof place, "\"line\":%zu,\"column\":%zu", fault->place.line,
            fault->place.column);
    }
    api_refuse(ask, &(struct problem){.status = 400,
                        .code = fault->code,
                        .detail = slice_str(fault->err.text),
                        .effect = PROBLEM_EFFECT_NO,
                        .retry = PROBLEM_RETRY_NO,
                        .extra = slice_str(place)});
}

/* ---- objects ------------------------------------------------------------------------------- */

enum status api_body_json(
    struct api_ask *ask, const struct json_value **ret_value, struct api_body_fault *fault)
{
    fault->place = (struct json_place){.line = 0};
    enum status status = json_read_placed(
        ask->exchange->body, ask->exchange->arena, ret_value, &fault->place, &fault->err);
    if (status == E_NOMEM) {
        return no_memory(fault);
    }
    if (status != OK) {
        fault->code = "invalid_json";
        fault->err.status = E_INVALID;
        return E_INVALID;
    }
    return OK;
}

/* The members that an object may have, by number. */
struct members {
    const char *prefix; /* in front of their names in texts: "source." */
    const struct slice *names;
    size_t count;
    bool is_open; /* x_* and extensions are passed over */
};

static bool passed_over(const struct members *members, struct slice name)
{
    return members->is_open &&
           (slice_is(name, "extensions") || (name.len >= 2 && memcmp(name.data, "x_", 2) == 0));
}

/* Sort the values of an object by the number of their names; NULL for those that are not there. */
static enum status pick(const struct members *members, const struct json_value *object,
    const struct json_value **ret_values, struct api_body_fault *fault)
{
    memset(ret_values, 0, members->count * sizeof *ret_values);
    for (uint32_t i = 0; i < object->count; i++) {
        struct slice name = json_text(&object->members[i].name);
        size_t at = 0;
        while (at < members->count && !slice_equal(name, members->names[at])) {
            at++;
        }
        if (at < members->count) {
            ret_values[at] = &object->members[i].value;
        } else if (!passed_over(members, name)) {
            return api_body_refuse(fault, "unknown_member", "unknown member '%s%.*s'",
                members->prefix, name.len > NAME_SHOWN_MAX ? NAME_SHOWN_MAX : (int)name.len,
                name.data);
        }
    }
    return OK;
}

static enum status pick_body(const struct members *members, const struct json_value *object,
    const struct json_value **ret_values, struct api_body_fault *fault)
{
    if (!json_is(object, JSON_OBJECT)) {
        return api_body_refuse(fault, "invalid_body", "the body is not a JSON object");
    }
    return pick(members, object, ret_values, fault);
}

static enum status missing(struct api_body_fault *fault, const char *name)
{
    return api_body_refuse(fault, "missing_member", "member '%s' is missing", name);
}

/* ---- values -------------------------------------------------------------------------------- */

struct text_rule {
    const char *name;
    const char *limit_name;
    size_t bytes_max;
    bool may_be_empty;
};

/* A member that may be absent; *ret_text is then left alone. */
static enum status take_text(const struct text_rule *rule, const struct json_value *value,
    struct slice *ret_text, struct api_body_fault *fault)
{
    if (value == NULL) {
        return OK;
    }
    if (value->type != JSON_STRING || (value->count == 0 && !rule->may_be_empty)) {
        return WRONG(fault, "member '%s' must be a string%s", rule->name,
            rule->may_be_empty ? "" : " that is not empty");
    }
    if (value->count > rule->bytes_max) {
        return WRONG(fault, "member '%s' is %u bytes long, more than %s (%zu)", rule->name,
            value->count, rule->limit_name, rule->bytes_max);
    }
    *ret_text = json_text(value);
    return OK;
}

static enum status take_effect_id(
    struct api_call *call, const struct json_value *value, struct api_body_fault *fault)
{
    static const struct text_rule rule = {
        "effect_id", "effect_id_bytes_max", LIMIT_EFFECT_ID_BYTES_MAX, false};
    return take_text(&rule, value, &call->door.engine.request.effect_id, fault);
}

static enum status take_reason(
    struct api_call *call, const struct json_value *value, struct api_body_fault *fault)
{
    static const struct text_rule rule = {
        "reason", "reason_bytes_max", LIMIT_REASON_BYTES_MAX, true};
    return take_text(&rule, value, &call->door.engine.request.reason, fault);
}

struct ms_rule {
    const char *name;
    const char *min_limit; /* its name, as it is shown; "": it has none */
    int64_t min;
    const char *max_limit;
    int64_t max;
};

static const struct ms_rule rule_ttl = {"ttl", "", 1, " (window_ms_max)", LIMIT_WINDOW_MS_MAX};
static const struct ms_rule rule_lease = {
    "lease", " (lease_ms_min)", LIMIT_LEASE_MS_MIN, " (lease_ms_max)", LIMIT_LEASE_MS_MAX};
static const struct ms_rule rule_wait = {"wait", "", 0, " (wait_ms_max)", LIMIT_WAIT_MS_MAX};

/* A duration such as "30s". Absent: *ret_ms is left alone. */
static enum status take_ms(const struct ms_rule *rule, const struct json_value *value,
    int64_t *ret_ms, struct api_body_fault *fault)
{
    int64_t ms;
    if (value == NULL) {
        return OK;
    }
    if (value->type != JSON_STRING || !text_duration(json_text(value), &ms)) {
        return WRONG(
            fault, "member '%s' must be a duration such as \"30s\" or \"24h\"", rule->name);
    }
    if (ms < rule->min) {
        return WRONG(fault, "member '%s' is %" PRId64 " ms; the least is %" PRId64 " ms%s",
            rule->name, ms, rule->min, rule->min_limit);
    }
    if (ms > rule->max) {
        return WRONG(fault, "member '%s' is %" PRId64 " ms; the most is %" PRId64 " ms%s",
            rule->name, ms, rule->max, rule->max_limit);
    }
    *ret_ms = ms;
    return OK;
}

static enum status take_fence(
    struct api_call *call, const struct json_value *value, struct api_body_fault *fault)
{
    uint64_t fence;
    if (!json_is(value, JSON_NUMBER) || !text_u64(json_text(value), &fence) || fence == 0) {
        return value == NULL ? missing(fault, "fence")
                             : WRONG(fault, "member 'fence' must be a whole number from 1 on");
    }
    call->door.engine.request.fence = fence;
    return OK;
}

/* The id of the operation; one that is badly written is one that is not there. */
static void take_operation_id(struct api_call *call, struct slice text)
{
    call->is_unnamed = !op_id_read(text, &call->door.engine.request.operation_id);
}

/* The bytes as they came. Past the limit it is sealed without them, and replays say so. */
static void take_outcome(struct api_call *call, const struct json_value *value)
{
    if (value == NULL) {
        return;
    }
    const struct api_policy *policy = call->ask->policy;
    struct outcome *outcome = &call->door.engine.request.outcome;
    struct slice raw = json_raw(call->ask->exchange->body, value);
    outcome->meta = OUTCOME_META_JSON;
    digest_sha256(raw.data, raw.len, &outcome->body.digest);
    outcome->body.bytes = raw.len;
    outcome->body.retained =
        raw.len <= policy->outcome_bytes_max && raw.len <= LIMIT_OUTCOME_BYTES_MAX;
    if (outcome->body.retained) {
        call->door.engine.outcome_body = raw;
    }
}

/* ---- traces -------------------------------------------------------------------------------- */

static enum status take_trace(
    struct api_call *call, const struct json_value *trace, struct api_body_fault *fault)
{
    if (trace != NULL && trace->type != JSON_OBJECT) {
        return WRONG(fault, "member 'trace' must be an object");
    }
    enum status status = api_trace(call->ask, trace, &call->door.engine.request.trace, &fault->err);
    return status == OK ? OK : fault_of(fault, status, NULL);
}

/* ---- begin --------------------------------------------------------------------------------- */

enum {
    BEGIN_SCOPE,
    BEGIN_KEY,
    BEGIN_PAYLOAD,
    BEGIN_FINGERPRINT,
    BEGIN_KEY_FROM,
    BEGIN_PRINCIPAL,
    BEGIN_TTL,
    BEGIN_LEASE,
    BEGIN_WAIT,
    BEGIN_ON_UNKNOWN,
    BEGIN_RETRY_FAILED,
    BEGIN_SOURCE,
    BEGIN_TRACE,
    BEGIN_COUNT,
};
static const struct slice begin_names[BEGIN_COUNT] = {
    [BEGIN_SCOPE] = NAME("scope"),
    [BEGIN_KEY] = NAME("key"),
    [BEGIN_PAYLOAD] = NAME("payload"),
    [BEGIN_FINGERPRINT] = NAME("fingerprint"),
    [BEGIN_KEY_FROM] = NAME("key_from"),
    [BEGIN_PRINCIPAL] = NAME("principal"),
    [BEGIN_TTL] = NAME("ttl"),
    [BEGIN_LEASE] = NAME("lease"),
    [BEGIN_WAIT] = NAME("wait"),
    [BEGIN_ON_UNKNOWN] = NAME("on_unknown"),
    [BEGIN_RETRY_FAILED] = NAME("retry_failed"),
    [BEGIN_SOURCE] = NAME("source"),
    [BEGIN_TRACE] = NAME("trace"),
};
static const struct members begin_members = {"", begin_names, BEGIN_COUNT, true};

static const struct slice key_from_names[] = {
    NAME("action"), NAME("index_hash"), NAME("revision"), NAME("source_id"), NAME("source_type")};
enum { KEY_FROM_COUNT = sizeof key_from_names / sizeof key_from_names[0] };
static const struct members key_from_members = {"key_from.", key_from_names, KEY_FROM_COUNT, false};

static struct json_value string_of(struct slice text)
{
    return (struct json_value){.type = JSON_STRING, .count = (uint32_t)text.len, .text = text.data};
}

/* The hex digest of {tenant_id, and what is given}; tenant_id is the caller's (P9). */
static enum status derive_key(
    struct api_call *call, const struct json_value *given, struct api_body_fault *fault)
{
    struct json_member members[KEY_FROM_COUNT + 1];
    const struct json_value *values[KEY_FROM_COUNT];
    if (given->type != JSON_OBJECT) {
        return WRONG(fault, "member 'key_from' must be an object");
    }
    if (json_find(given, SLICE_LIT("tenant_id")) != NULL) {
        return WRONG(fault, "member 'key_from.tenant_id' must not be given: the tenant is the "
                            "caller's");
    }
    enum status status = pick(&key_from_members, given, values, fault);
    if (status != OK) {
        return status;
    }
    /* Members of an object are in canonical order, and tenant_id comes behind all the others. */
    for (uint32_t i = 0; i < given->count; i++) {
        members[i] = given->members[i];
    }
    members[given->count] = (struct json_member){
        string_of(SLICE_LIT("tenant_id")), string_of(call->door.engine.request.key.tenant)};
    struct json_value envelope = {
        .type = JSON_OBJECT, .count = given->count + 1, .members = members};
    struct buf form;
    struct digest digest;
    char *hex = arena_alloc(call->ask->exchange->arena, DIGEST_HEX_BYTES);
    if (hex == NULL) {
        return no_memory(fault);
    }
    buf_init(&form, &call->ask->mem, KEY_FROM_BYTES_MAX);
    status = key_derive(KEY_SOURCE, &envelope, &form, &digest, &fault->err);
    if (status != OK) {
        return fault_of(fault, status, "key_from");
    }
    call->door.engine.request.key.key = slice_str(digest_put_hex(hex, &digest));
    return OK;
}

static enum status take_key(
    struct api_call *call, const struct json_value *const *values, struct api_body_fault *fault)
{
    static const struct text_rule rule_scope = {
        "scope", "scope_bytes_max", LIMIT_SCOPE_BYTES_MAX, false};
    static const struct text_rule rule_principal = {
        "principal", "principal_bytes_max", LIMIT_PRINCIPAL_BYTES_MAX, true};
    static const struct text_rule rule_key = {"key", "key_bytes_max", LIMIT_KEY_BYTES_MAX, false};
    struct record_key *key = &call->door.engine.request.key;
    const struct json_value *given = values[BEGIN_KEY];
    const struct json_value *from = values[BEGIN_KEY_FROM];
    if (values[BEGIN_SCOPE] == NULL) {
        return missing(fault, "scope");
    }
    if (given == NULL && from == NULL) {
        return api_body_refuse(
            fault, "missing_member", "one of the members 'key' and 'key_from' is needed");
    }
    if (given != NULL && from != NULL) {
        return WRONG(fault, "members 'key' and 'key_from' are both given");
    }
    enum status status = take_text(&rule_scope, values[BEGIN_SCOPE], &key->scope, fault);
    if (status == OK) {
        status = take_text(&rule_principal, values[BEGIN_PRINCIPAL], &key->principal, fault);
    }
    if (status == OK) {
        status = from == NULL ? take_text(&rule_key, given, &key->key, fault)
                              : derive_key(call, from, fault);
    }
    if (status == OK) {
        status = record_key_seal(key, &fault->err);
        status = status == OK ? OK : fault_of(fault, status, NULL);
    }
    return status;
}

/* The fingerprint of what was asked, and its first body, so that a conflict can be explained. */
static enum status take_payload(
    struct api_call *call, const struct json_value *value, struct api_body_fault *fault)
{
    struct engine_call *engine = &call->door.engine;
    struct slice raw = json_raw(call->ask->exchange->body, value);
    struct payload payload;
    struct buf form;
    buf_init(&form, &call->ask->mem, payload_form_bytes_max(raw.len));
    enum status status = buf_reserve(&form, raw.len); /* it is hardly ever longer than the text */
    status = status == OK ? payload_fingerprint(raw, value, &form, &payload) : status;
    if (status != OK) {
        return no_memory(fault);
    }
    engine_fingerprint(
        door_engine(call->ask->api->door), &payload.digest, &engine->request.fingerprint);
    engine->request.fingerprint_version = (uint8_t)payload.version;
    if (payload.form.len <= LIMIT_REQUEST_KEPT_BYTES_MAX) {
        engine->request_body = payload.form;
        engine->request.request = (struct body_ref){
            .digest = payload.digest, .bytes = payload.form.len, .retained = true};
    }
    return OK;
}

static enum status take_fingerprint(
    struct api_call *call, const struct json_value *value, struct api_body_fault *fault)
{
    struct digest plain;
    if (value->type != JSON_STRING ||
        !text_hex(json_text(value), plain.bytes, sizeof plain.bytes)) {
        return WRONG(fault, "member 'fingerprint' must be 64 hexadecimal digits");
    }
    engine_fingerprint(
        door_engine(call->ask->api->door), &plain, &call->door.engine.request.fingerprint);
    call->door.engine.request.fingerprint_version = FINGERPRINT_OWN;
    return OK;
}

static enum status take_asked(
    struct api_call *call, const struct json_value *const *values, struct api_body_fault *fault)
{
    const struct json_value *payload = values[BEGIN_PAYLOAD];
    const struct json_value *fingerprint = values[BEGIN_FINGERPRINT];
    if (payload != NULL && fingerprint != NULL) {
        return WRONG(fault, "members 'payload' and 'fingerprint' are both given");
    }
    if (payload != NULL) {
        return take_payload(call, payload, fault);
    }
    if (fingerprint != NULL) {
        return take_fingerprint(call, fingerprint, fault);
    }
    return api_body_refuse(
        fault, "missing_member", "one of the members 'payload' and 'fingerprint' is needed");
}

static enum status take_on_unknown(
    struct api_call *call, const struct json_value *value, struct api_body_fault *fault)
{
    if (value == NULL) {
        return OK;
    }
    if (json_is(value, JSON_STRING) && slice_is(json_text(value), "takeover")) {
        call->door.engine.request.policy.on_unknown = ON_UNKNOWN_TAKEOVER;
        return OK;
    }
    return json_is(value, JSON_STRING) && slice_is(json_text(value), "hold")
               ? OK
               : WRONG(fault, "member 'on_unknown' must be \"hold\" or \"takeover\"");
}

static enum status take_retry_failed(
    struct api_call *call, const struct json_value *value, struct api_body_fault *fault)
{
    call->door.engine.request.policy.retry_failed = json_is(value, JSON_TRUE);
    return value == NULL || json_is(value, JSON_TRUE) || json_is(value, JSON_FALSE)
               ? OK
               : WRONG(fault, "member 'retry_failed' must be true or false");
}

/* The names in the request, in the words that all doors use. */
static enum status check_names(const struct api_call *call, struct api_body_fault *fault)
{
    enum status status = request_names_check(&call->door.engine.request, &fault->err);
    return status == OK ? OK : fault_of(fault, status, NULL);
}

static enum status take_version(
    const struct json_value *value, struct slice *ret_text, struct api_body_fault *fault)
{
    static const struct text_rule rule = {
        "source.version", "source_bytes_max", LIMIT_SOURCE_BYTES_MAX, false};
    int64_t number;
    if (json_is(value, JSON_NUMBER)) {
        if (!json_int(value, &number)) {
            return WRONG(fault, "member 'source.version' must be a string or a whole number");
        }
        *ret_text = json_text(value);
        return OK;
    }
    return take_text(&rule, value, ret_text, fault);
}

static enum status take_source(
    struct api_call *call, const struct json_value *value, struct api_body_fault *fault)
{
    static const struct slice names[] = {NAME("type"), NAME("id"), NAME("version")};
    static const struct members members = {"source.", names, 3, true};
    static const struct text_rule rule_type = {
        "source.type", "source_bytes_max", LIMIT_SOURCE_BYTES_MAX, false};
    static const struct text_rule rule_id = {
        "source.id", "source_bytes_max", LIMIT_SOURCE_BYTES_MAX, false};
    const struct json_value *values[3];
    struct source *source = &call->door.engine.request.source;
    if (value == NULL) {
        return OK;
    }
    if (value->type != JSON_OBJECT) {
        return WRONG(fault, "member 'source' must be an object");
    }
    enum status status = pick(&members, value, values, fault);
    status = status == OK ? take_text(&rule_type, values[0], &source->type, fault) : status;
    status = status == OK ? take_text(&rule_id, values[1], &source->id, fault) : status;
    return status == OK ? take_version(values[2], &source->version, fault) : status;
}

enum status api_body_begin(struct api_call *call, const struct json_value *object, bool in_batch,
    struct api_body_fault *fault)
{
    const struct json_value *values[BEGIN_COUNT];
    struct request *request = &call->door.engine.request;
    request->kind = REQUEST_BEGIN;
    request->policy = policy_default;
    enum status status = pick_body(&begin_members, object, values, fault);
    if (status == OK && in_batch && values[BEGIN_WAIT] != NULL) {
        status = WRONG(fault, "member 'wait' must not be given in a batch");
    }
    status = status == OK ? take_key(call, values, fault) : status;
    status = status == OK ? take_ms(&rule_ttl, values[BEGIN_TTL], &request->policy.window_ms, fault)
                          : status;
    status = status == OK
                 ? take_ms(&rule_lease, values[BEGIN_LEASE], &request->policy.lease_ms, fault)
                 : status;
    status = status == OK
                 ? take_ms(&rule_wait, values[BEGIN_WAIT], &call->door.engine.wait_ms, fault)
                 : status;
    status = status == OK ? take_on_unknown(call, values[BEGIN_ON_UNKNOWN], fault) : status;
    status = status == OK ? take_retry_failed(call, values[BEGIN_RETRY_FAILED], fault) : status;
    status = status == OK ? take_source(call, values[BEGIN_SOURCE], fault) : status;
    status = status == OK ? check_names(call, fault) : status;
    status = status == OK ? take_trace(call, values[BEGIN_TRACE], fault) : status;
    return status == OK ? take_asked(call, values, fault) : status;
}

/* ---- the holder's calls and an operator's -------------------------------------------------- */

struct status_name {
    struct slice name;
    enum record_status status;
};

static enum status take_status(struct api_call *call, const struct json_value *value,
    const struct status_name *names, size_t count, struct api_body_fault *fault)
{
    if (value == NULL) {
        return missing(fault, "status");
    }
    for (size_t i = 0; value->type == JSON_STRING && i < count; i++) {
        if (slice_equal(json_text(value), names[i].name)) {
            call->door.engine.request.status = names[i].status;
            return OK;
        }
    }
    return WRONG(fault, "member 'status' must be \"%s\", \"%s\" or \"%s\"", names[0].name.data,
        names[1].name.data, names[2].name.data);
}

enum { SEAL_FENCE, SEAL_STATUS, SEAL_EFFECT_ID, SEAL_OUTCOME, SEAL_TTL, SEAL_OPERATION_ID };

/* The id of a seal in a batch. */
static enum status take_batch_id(
    struct api_call *call, const struct json_value *value, struct api_body_fault *fault)
{
    if (value == NULL) {
        return missing(fault, "operation_id");
    }
    if (value->type != JSON_STRING) {
        return WRONG(fault, "member 'operation_id' must be a string");
    }
    take_operation_id(call, json_text(value));
    return OK;
}

enum status api_body_seal(struct api_call *call, const struct json_value *object, bool in_batch,
    struct api_body_fault *fault)
{
    static const struct slice names[] = {NAME("fence"), NAME("status"), NAME("effect_id"),
        NAME("outcome"), NAME("ttl"), NAME("operation_id")};
    static const struct status_name statuses[] = {{NAME("executed"), RECORD_EXECUTED},
        {NAME("failed"), RECORD_FAILED}, {NAME("rejected"), RECORD_REJECTED}};
    const struct members members = {"", names, in_batch ? 6 : 5, true};
    const struct json_value *values[6];
    struct request *request = &call->door.engine.request;
    request->kind = REQUEST_SEAL;
    enum status status = pick_body(&members, object, values, fault);
    if (status == OK && in_batch) {
        status = take_batch_id(call, values[SEAL_OPERATION_ID], fault);
    } else if (status == OK) {
        take_operation_id(call, call->ask->operation_id_text);
    }
    status = status == OK ? take_fence(call, values[SEAL_FENCE], fault) : status;
    status = status == OK ? take_status(call, values[SEAL_STATUS], statuses, 3, fault) : status;
    status = status == OK ? take_effect_id(call, values[SEAL_EFFECT_ID], fault) : status;
    status = status == OK ? check_names(call, fault) : status;
    status = status == OK ? take_ms(&rule_ttl, values[SEAL_TTL], &request->policy.window_ms, fault)
                          : status;
    status = status == OK ? take_trace(call, NULL, fault) : status;
    if (status == OK) {
        take_outcome(call, values[SEAL_OUTCOME]);
    }
    return status;
}

enum status api_body_hold(struct api_call *call, enum request_kind kind,
    const struct json_value *object, struct api_body_fault *fault)
{
    static const struct slice reason_names[] = {NAME("fence"), NAME("reason")};
    static const struct slice lease_names[] = {NAME("fence"), NAME("lease")};
    bool renews = kind == REQUEST_RENEW;
    const struct members members = {"", renews ? lease_names : reason_names, 2, true};
    const struct json_value *values[2];
    struct request *request = &call->door.engine.request;
    request->kind = kind;
    take_operation_id(call, call->ask->operation_id_text);
    enum status status = pick_body(&members, object, values, fault);
    status = status == OK ? take_fence(call, values[0], fault) : status;
    if (status == OK && renews) {
        request->policy.lease_ms = LIMIT_LEASE_MS_DEFAULT;
        status = take_ms(&rule_lease, values[1], &request->policy.lease_ms, fault);
    } else if (status == OK) {
        status = take_reason(call, values[1], fault);
    }
    return status == OK ? take_trace(call, NULL, fault) : status;
}

enum { RESOLVE_STATUS, RESOLVE_EFFECT_ID, RESOLVE_OUTCOME, RESOLVE_REASON, RESOLVE_FENCE };

static enum status check_resolve(
    struct api_call *call, const struct json_value *const *values, struct api_body_fault *fault)
{
    if (values[RESOLVE_REASON] == NULL) {
        return missing(fault, "reason");
    }
    if (call->door.engine.request.reason.len == 0) {
        return WRONG(fault, "member 'reason' must be a string that is not empty");
    }
    if (call->door.engine.request.status == RECORD_RELEASED &&
        (values[RESOLVE_EFFECT_ID] != NULL || values[RESOLVE_OUTCOME] != NULL)) {
        return WRONG(fault, "member '%s' must not be given for what was not executed",
            values[RESOLVE_EFFECT_ID] != NULL ? "effect_id" : "outcome");
    }
    return OK;
}

enum status api_body_resolve(
    struct api_call *call, const struct json_value *object, struct api_body_fault *fault)
{
    static const struct slice names[] = {
        NAME("status"), NAME("effect_id"), NAME("outcome"), NAME("reason"), NAME("fence")};
    static const struct status_name statuses[] = {{NAME("executed"), RECORD_EXECUTED},
        {NAME("failed"), RECORD_FAILED}, {NAME("not_executed"), RECORD_RELEASED}};
    static const struct members members = {"", names, 5, true};
    const struct json_value *values[5];
    call->door.engine.request.kind = REQUEST_RESOLVE;
    take_operation_id(call, call->ask->operation_id_text);
    enum status status = pick_body(&members, object, values, fault);
    status = status == OK ? take_status(call, values[RESOLVE_STATUS], statuses, 3, fault) : status;
    status = status == OK ? take_effect_id(call, values[RESOLVE_EFFECT_ID], fault) : status;
    status = status == OK ? check_names(call, fault) : status;
    status = status == OK ? take_reason(call, values[RESOLVE_REASON], fault) : status;
    status = status == OK ? check_resolve(call, values, fault) : status;
    if (status == OK && values[RESOLVE_FENCE] != NULL) {
        status = take_fence(call, values[RESOLVE_FENCE], fault);
    }
    status = status == OK ? take_trace(call, NULL, fault) : status;
    if (status == OK) {
        take_outcome(call, values[RESOLVE_OUTCOME]);
    }
    return status;
}

struct api_call *api_call_new(struct api_ask *ask)
{
    struct api_call *call = arena_zalloc(ask->exchange->arena, sizeof *call);
    if (call != NULL) {
        call->ask = ask;
        call->door.engine.arena = ask->exchange->arena;
        call->door.engine.context = ask->exchange;
        call->door.engine.request.key.tenant = ask->caller.tenant;
        call->door.engine.request.actor = ask->caller.actor;
    }
    return call;
}
