#include "api/body.h"

#include <stdio.h>
#include <string.h>

#include "api/call.h"
#include "base/base64.h"
#include "base/limits.h"
#include "base/macros.h"
#include "base/text.h"
#include "canon/key.h"
#include "engine/operation_document.h"
#include "engine/request_builder.h"
#include "http/fields.h"

enum { KEY_FROM_BYTES_MAX = 65536 }; /* of a key's source text: far more than five names need */

#define NAME(text) SLICE_INIT(text)
#define AT(place)  offsetof(struct api_call, door.engine.place) /* where a member goes */

#define WRONG(fault, ...) member_refuse((fault), NULL, __VA_ARGS__)

/* ---- bodies -------------------------------------------------------------------------------- */

bool api_body_json(struct api_request *request, const struct json_value **ret_value)
{
    struct err err;
    struct json_place place = {.line = 0};
    char text[64] = "";
    enum status status = json_read_placed(
        request->exchange->body, request->exchange->arena, ret_value, &place, &err);
    if (status == OK) {
        return true;
    }
    if (status == E_NOMEM) {
        api_fail_memory(request);
        return false;
    }
    if (place.line > 0) {
        (void)snprintf(text, sizeof text, "\"line\":%zu,\"column\":%zu", place.line, place.column);
    }
    api_refuse(request, &(struct problem){.status = 400,
                            .code = "invalid_json",
                            .detail = slice_str(err.text),
                            .effect = PROBLEM_EFFECT_NO,
                            .retry = PROBLEM_RETRY_NO,
                            .extra = slice_str(text)});
    return false;
}

void api_body_refuse(
    struct api_request *request, enum status status, const struct member_fault *fault)
{
    if (status == E_NOMEM) {
        api_fail_memory(request);
    } else {
        const char *code = fault->code == NULL ? "invalid_member" : fault->code;
        api_refuse_plain(
            request, strcmp(code, "unknown_effect_type") == 0 ? 404 : 400, code, fault->err.text);
    }
}

/* Read the body of a request of this kind. */
static enum status read_members(struct api_call *call, enum request_kind kind,
    const struct member_table *table, const struct json_value *value,
    const struct json_value **ret_values, struct member_fault *fault)
{
    call->door.engine.request.kind = kind;
    return members_read(table, value, call, ret_values, fault);
}

/* ---- members that several requests have ---------------------------------------------------- */

/* A malformed id belongs to no operation. */
static void take_operation_id(struct api_call *call)
{
    call->is_unnamed =
        !op_id_read(call->operation_id_text, &call->door.engine.request.operation_id);
}

static enum status take_trace(
    struct api_call *call, const struct json_value *trace, struct member_fault *fault)
{
    return api_trace(call->request, trace, &call->door.engine.request.trace, &fault->err);
}

/* The bytes as they came. */
static void take_outcome(struct api_call *call, const struct json_value *value)
{
    if (value != NULL) {
        struct slice raw = json_raw(call->request->exchange->body, value);
        call->door.engine.request.outcome.meta = OUTCOME_META_JSON;
        builder_outcome_body(&call->door.engine, raw, call->request->policy->outcome_bytes_max);
    }
}

/* A status by its name in a body. */
struct status_word {
    const char *word;
    enum record_status status;
};

static enum status take_status(struct api_call *call, const struct json_value *value,
    const struct status_word words[3], struct member_fault *fault)
{
    for (size_t i = 0; i < 3; i++) {
        if (json_is(value, JSON_STRING) && slice_is(json_text(value), words[i].word)) {
            call->door.engine.request.status = words[i].status;
            return OK;
        }
    }
    return WRONG(fault, "member 'status' must be \"%s\", \"%s\" or \"%s\"", words[0].word,
        words[1].word, words[2].word);
}

/* ---- begin --------------------------------------------------------------------------------- */

enum {
    BEGIN_KEY,
    BEGIN_KEY_FROM,
    BEGIN_PAYLOAD,
    BEGIN_FINGERPRINT,
    BEGIN_SOURCE,
    BEGIN_TRACE,
    BEGIN_WAIT,
    BEGIN_ON_UNKNOWN,
};
static const struct member begin_members[] = {
    [BEGIN_KEY] = {NAME("key"), MEMBER_TEXT, false, AT(request.key.key)},
    [BEGIN_KEY_FROM] = {.name = NAME("key_from"), .type = MEMBER_OBJECT},
    [BEGIN_PAYLOAD] = {.name = NAME("payload")},
    [BEGIN_FINGERPRINT] = {.name = NAME("fingerprint")},
    [BEGIN_SOURCE] = {.name = NAME("source"), .type = MEMBER_OBJECT},
    [BEGIN_TRACE] = {.name = NAME("trace"), .type = MEMBER_OBJECT},
    [BEGIN_WAIT] = {NAME("wait"), MEMBER_DURATION, false, AT(wait_ms)},
    [BEGIN_ON_UNKNOWN] = {.name = NAME("on_unknown")},
    {NAME("scope"), MEMBER_TEXT, true, AT(request.key.scope)},
    {NAME("principal"), MEMBER_TEXT_OR_EMPTY, false, AT(request.key.principal)},
    {NAME("ttl"), MEMBER_DURATION, false, AT(request.policy.window_ms)},
    {NAME("lease"), MEMBER_DURATION, false, AT(request.policy.lease_ms)},
    {NAME("retry_failed"), MEMBER_BOOL, false, AT(request.policy.retry_failed)},
};
static const struct member_table begin_table = {"", begin_members, COUNT(begin_members), true};

static const struct member key_from_members[] = {{.name = NAME("action")},
    {.name = NAME("index_hash")}, {.name = NAME("revision")}, {.name = NAME("source_id")},
    {.name = NAME("source_type")}};
static const struct member_table key_from_table = {
    "key_from.", key_from_members, COUNT(key_from_members), false};

static struct json_value string_of(struct slice text)
{
    return (struct json_value){.type = JSON_STRING, .count = (uint32_t)text.len, .text = text.data};
}

/* The hex digest of {tenant_id, and the given members}; tenant_id is the caller's (P9). */
static enum status derive_key(
    struct api_call *call, const struct json_value *given, struct member_fault *fault)
{
    struct record_key *key = &call->door.engine.request.key;
    struct json_member members[COUNT(key_from_members) + 1];
    const struct json_value *values[COUNT(key_from_members)];
    if (json_find(given, SLICE_LIT("tenant_id")) != NULL) {
        return WRONG(fault, "member 'key_from.tenant_id' must not be given: the tenant is the "
                            "caller's");
    }
    enum status status = members_read(&key_from_table, given, NULL, values, fault);
    if (status != OK) {
        return status;
    }
    /* Members of an object are in canonical order, and tenant_id sorts after all the others. */
    for (uint32_t i = 0; i < given->count; i++) {
        members[i] = given->members[i];
    }
    members[given->count] =
        (struct json_member){string_of(SLICE_LIT("tenant_id")), string_of(key->tenant)};
    struct json_value envelope = {
        .type = JSON_OBJECT, .count = given->count + 1, .members = members};
    struct buf form;
    struct digest digest;
    char *hex = arena_alloc(call->request->exchange->arena, DIGEST_HEX_BYTES);
    if (hex == NULL) {
        return E_NOMEM;
    }
    buf_init(&form, &call->request->mem, KEY_FROM_BYTES_MAX);
    status = key_derive(KEY_SOURCE, &envelope, &form, &digest, &fault->err);
    if (status == OK) {
        key->key = slice_str(digest_put_hex(hex, &digest));
    } else {
        err_prefix(&fault->err, "key_from");
    }
    return status;
}

static enum status take_key(
    struct api_call *call, const struct json_value *const *values, struct member_fault *fault)
{
    const struct json_value *from = values[BEGIN_KEY_FROM];
    if (values[BEGIN_KEY] == NULL && from == NULL) {
        return member_refuse(
            fault, "missing_member", "one of the members 'key' and 'key_from' is needed");
    }
    if (values[BEGIN_KEY] != NULL && from != NULL) {
        return WRONG(fault, "members 'key' and 'key_from' are both given");
    }
    enum status status = from == NULL ? OK : derive_key(call, from, fault);
    return status == OK ? record_key_seal(&call->door.engine.request.key, &fault->err) : status;
}

static enum status take_source(
    struct api_call *call, const struct json_value *source, struct member_fault *fault)
{
    static const struct member members[] = {{.name = NAME("version")},
        {NAME("type"), MEMBER_TEXT, false, AT(request.source.type)},
        {NAME("id"), MEMBER_TEXT, false, AT(request.source.id)}};
    static const struct member_table table = {"source.", members, COUNT(members), true};
    const struct json_value *values[COUNT(members)];
    if (source == NULL) {
        return OK;
    }
    enum status status = members_read(&table, source, call, values, fault);
    const struct json_value *version = values[0];
    int64_t number;
    if (status == OK && version != NULL) {
        bool is_text = version->type == JSON_STRING && version->count > 0;
        if (!is_text && !json_int(version, &number)) {
            return WRONG(fault, "member 'source.version' must be a string that is not empty or a "
                                "whole number");
        }
        call->door.engine.request.source.version = json_text(version);
    }
    return status;
}

static enum status take_fingerprint(
    struct api_call *call, const struct json_value *value, struct member_fault *fault)
{
    struct digest plain;
    if (!json_is(value, JSON_STRING) ||
        !text_hex(json_text(value), plain.bytes, sizeof plain.bytes)) {
        return WRONG(fault, "member 'fingerprint' must be 64 hexadecimal digits");
    }
    builder_fingerprint(
        &call->door.engine, door_engine(call->request->api->door), &plain, FINGERPRINT_OWN);
    return OK;
}

static enum status take_payload(
    struct api_call *call, const struct json_value *const *values, struct member_fault *fault)
{
    const struct json_value *payload = values[BEGIN_PAYLOAD];
    const struct json_value *fingerprint = values[BEGIN_FINGERPRINT];
    if (payload != NULL && fingerprint != NULL) {
        return WRONG(fault, "members 'payload' and 'fingerprint' are both given");
    }
    if (fingerprint != NULL) {
        return take_fingerprint(call, fingerprint, fault);
    }
    if (payload == NULL) {
        return member_refuse(
            fault, "missing_member", "one of the members 'payload' and 'fingerprint' is needed");
    }
    struct slice body = call->request->exchange->body;
    size_t bytes = body.len - payload->offset; /* it ends with the body, or before */
    struct buf form;
    buf_init(&form, &call->request->mem, payload_form_bytes_max(bytes));
    enum status status = buf_reserve(&form, bytes); /* the form is hardly ever longer than the
                                                       text */
    return status == OK ? builder_payload(&call->door.engine, door_engine(call->request->api->door),
                              body, payload, &form)
                        : E_NOMEM;
}

static enum status take_on_unknown(
    struct api_call *call, const struct json_value *value, struct member_fault *fault)
{
    bool takes_over = json_is(value, JSON_STRING) && slice_is(json_text(value), "takeover");
    if (takes_over) {
        call->door.engine.request.policy.on_unknown = ON_UNKNOWN_TAKEOVER;
    }
    return takes_over || value == NULL ||
                   (json_is(value, JSON_STRING) && slice_is(json_text(value), "hold"))
               ? OK
               : WRONG(fault, "member 'on_unknown' must be \"hold\" or \"takeover\"");
}

enum status api_body_begin(
    struct api_call *call, const struct json_value *value, struct member_fault *fault)
{
    const struct json_value *values[COUNT(begin_members)];
    call->door.engine.request.policy = policy_default;
    enum status status = read_members(call, REQUEST_BEGIN, &begin_table, value, values, fault);
    if (status == OK && call->in_batch && values[BEGIN_WAIT] != NULL) {
        status = WRONG(fault, "member 'wait' must not be given in a batch");
    }
    status = status == OK ? take_key(call, values, fault) : status;
    status = status == OK ? take_on_unknown(call, values[BEGIN_ON_UNKNOWN], fault) : status;
    status = status == OK ? take_source(call, values[BEGIN_SOURCE], fault) : status;
    status = status == OK ? take_trace(call, values[BEGIN_TRACE], fault) : status;
    return status == OK ? take_payload(call, values, fault) : status;
}

/* ---- effects of a seal --------------------------------------------------------------------- */

static enum status take_effects(
    struct api_call *call, const struct json_value *list, struct member_fault *fault)
{
    const struct api_outbox *outbox = &call->request->api->outbox;
    if (list == NULL) {
        return OK;
    }
    return outbox->read == NULL ? WRONG(fault, "effects are not configured")
                                : outbox->read(outbox->state, call->request, list,
                                      call->operation_id_text, &call->effects, fault);
}

/* ---- the holder's calls and an operator's -------------------------------------------------- */

enum status api_body_seal(
    struct api_call *call, const struct json_value *value, struct member_fault *fault)
{
    enum { OPERATION_ID, STATUS = 2, OUTCOME, EFFECTS };
    static const struct member members[] = {
        [OPERATION_ID] = {NAME("operation_id"), MEMBER_TEXT_OR_EMPTY, true,
            offsetof(struct api_call, operation_id_text)},
        {NAME("fence"), MEMBER_POSITIVE, true, AT(request.fence)},
        [STATUS] = {.name = NAME("status"), .is_required = true},
        [OUTCOME] = {.name = NAME("outcome")},
        [EFFECTS] = {.name = NAME("effects")},
        {NAME("effect_id"), MEMBER_TEXT, false, AT(request.effect_id)},
        {NAME("ttl"), MEMBER_DURATION, false, AT(request.policy.window_ms)},
    };
    static const struct status_word words[] = {
        {"executed", RECORD_EXECUTED}, {"failed", RECORD_FAILED}, {"rejected", RECORD_REJECTED}};
    size_t skipped = call->in_batch ? 0 : 1; /* outside a batch, the id is in the path */
    const struct member_table table = {"", members + skipped, COUNT(members) - skipped, true};
    const struct json_value *values[COUNT(members)];
    enum status status = read_members(call, REQUEST_SEAL, &table, value, values + skipped, fault);
    take_operation_id(call);
    status = status == OK ? take_status(call, values[STATUS], words, fault) : status;
    status = status == OK ? take_trace(call, NULL, fault) : status;
    status = status == OK ? take_effects(call, values[EFFECTS], fault) : status;
    if (status == OK) {
        take_outcome(call, values[OUTCOME]);
    }
    return status;
}

/* A holder's calls other than a seal: its fence, and one more member. */
static enum status read_hold(struct api_call *call, enum request_kind kind, struct member other,
    const struct json_value *value, struct member_fault *fault)
{
    const struct member members[] = {
        {NAME("fence"), MEMBER_POSITIVE, true, AT(request.fence)}, other};
    const struct member_table table = {"", members, COUNT(members), true};
    const struct json_value *values[COUNT(members)];
    take_operation_id(call);
    enum status status = read_members(call, kind, &table, value, values, fault);
    return status == OK ? take_trace(call, NULL, fault) : status;
}

static const struct member reason_member = {
    NAME("reason"), MEMBER_TEXT_OR_EMPTY, false, AT(request.reason)};

enum status api_body_release(
    struct api_call *call, const struct json_value *value, struct member_fault *fault)
{
    return read_hold(call, REQUEST_RELEASE, reason_member, value, fault);
}

enum status api_body_unknown(
    struct api_call *call, const struct json_value *value, struct member_fault *fault)
{
    return read_hold(call, REQUEST_UNKNOWN, reason_member, value, fault);
}

enum status api_body_renew(
    struct api_call *call, const struct json_value *value, struct member_fault *fault)
{
    static const struct member lease = {
        NAME("lease"), MEMBER_DURATION, false, AT(request.policy.lease_ms)};
    call->door.engine.request.policy.lease_ms = LIMIT_LEASE_MS_DEFAULT;
    return read_hold(call, REQUEST_RENEW, lease, value, fault);
}

/* An HTTP answer in a request body. */
struct given_answer {
    int64_t code;
    struct slice text;  /* of the body */
    struct slice coded; /* the same in base64 */
    const struct json_value *headers;
};

static enum status read_answer(const struct json_value *http, const struct json_value *outcome,
    struct given_answer *ret_given, struct member_fault *fault)
{
    enum { STATUS, HEADERS, BODY, BODY_BASE64 };
    static const struct member members[] = {
        [STATUS] = {.name = NAME("status"), .is_required = true},
        [HEADERS] = {.name = NAME("headers")},
        [BODY] = {NAME("body"), MEMBER_TEXT_OR_EMPTY, false, offsetof(struct given_answer, text)},
        [BODY_BASE64] = {NAME("body_base64"), MEMBER_TEXT_OR_EMPTY, false,
            offsetof(struct given_answer, coded)}};
    static const struct member_table table = {"http.", members, COUNT(members), true};
    const struct json_value *values[COUNT(members)];
    enum status status = members_read(&table, http, ret_given, values, fault);
    if (status != OK) {
        return status;
    }
    ret_given->headers = values[HEADERS];
    if (!json_int(values[STATUS], &ret_given->code) || ret_given->code < 200 ||
        ret_given->code > 599) {
        return WRONG(fault, "member 'http.status' must be a number from 200 to 599");
    }
    if ((outcome != NULL) + (values[BODY] != NULL) + (values[BODY_BASE64] != NULL) > 1) {
        return WRONG(fault, "more than one of the members 'outcome', 'http.body' and "
                            "'http.body_base64' is given");
    }
    return OK;
}

static enum status take_base64(
    struct api_call *call, struct slice coded, struct slice *ret_bytes, struct member_fault *fault)
{
    size_t size = 0;
    char *bytes = arena_alloc(call->request->exchange->arena, BASE64_BYTES_MAX(coded.len));
    if (bytes == NULL) {
        return E_NOMEM;
    }
    if (!base64_read(coded, BASE64_PADDED, bytes, &size)) {
        return WRONG(fault, "member 'http.body_base64' is not base64");
    }
    *ret_bytes = slice_of(bytes, size);
    return OK;
}

/* The answer an API would have given, kept as the gateway keeps answers: duplicates get exactly
 * this. Its body is the outcome's JSON, or bytes of its own. */
static enum status take_http(struct api_call *call, const struct json_value *http,
    const struct json_value *outcome, struct member_fault *fault)
{
    struct engine_call *engine = &call->door.engine;
    struct given_answer given = {.code = 0};
    struct buf meta;
    enum status status = read_answer(http, outcome, &given, fault);
    struct slice body =
        outcome == NULL ? given.text : json_raw(call->request->exchange->body, outcome);
    if (status == OK && given.coded.len > 0) {
        status = take_base64(call, given.coded, &body, fault);
    }
    if (status == OK && body.len > 0 && (given.code == 204 || given.code == 304)) {
        status = WRONG(fault, "an answer with status %d has no body", (int)given.code);
    }
    if (status != OK) {
        return status;
    }
    buf_init(&meta, &call->request->mem, 2 * LIMIT_OUTCOME_META_BYTES_MAX);
    status = fields_keep_listed(given.headers, outcome == NULL ? SLICE_EMPTY : OUTCOME_META_JSON,
        call->request->exchange->arena, &meta, &fault->err);
    if (status != OK) {
        err_prefix(&fault->err, "member 'http.headers'");
        return status == E_NOMEM ? E_NOMEM : E_INVALID;
    }
    engine->request.outcome.code = (int32_t)given.code;
    engine->request.outcome.meta = buf_view(&meta);
    builder_outcome_body(engine, body, call->request->policy->outcome_bytes_max);
    return OK;
}

enum status api_body_resolve(
    struct api_call *call, const struct json_value *value, struct member_fault *fault)
{
    enum { STATUS, OUTCOME, HTTP, EFFECT_ID };
    static const struct member members[] = {
        [STATUS] = {.name = NAME("status"), .is_required = true},
        [OUTCOME] = {.name = NAME("outcome")},
        [HTTP] = {.name = NAME("http"), .type = MEMBER_OBJECT},
        [EFFECT_ID] = {NAME("effect_id"), MEMBER_TEXT, false, AT(request.effect_id)},
        {NAME("reason"), MEMBER_TEXT, true, AT(request.reason)},
        {NAME("fence"), MEMBER_POSITIVE, false, AT(request.fence)},
    };
    static const struct member_table table = {"", members, COUNT(members), true};
    static const struct status_word words[] = {{"executed", RECORD_EXECUTED},
        {"failed", RECORD_FAILED}, {"not_executed", RECORD_RELEASED}};
    const struct json_value *values[COUNT(members)];
    take_operation_id(call);
    enum status status = read_members(call, REQUEST_RESOLVE, &table, value, values, fault);
    status = status == OK ? take_status(call, values[STATUS], words, fault) : status;
    if (status == OK && call->door.engine.request.status == RECORD_RELEASED &&
        (values[EFFECT_ID] != NULL || values[OUTCOME] != NULL || values[HTTP] != NULL)) {
        return WRONG(fault, "member '%s' must not be given for what was not executed",
            values[EFFECT_ID] != NULL ? "effect_id"
            : values[OUTCOME] != NULL ? "outcome"
                                      : "http");
    }
    status = status == OK ? take_trace(call, NULL, fault) : status;
    if (status == OK && values[HTTP] != NULL) {
        return take_http(call, values[HTTP], values[OUTCOME], fault);
    }
    if (status == OK) {
        take_outcome(call, values[OUTCOME]);
    }
    return status;
}
