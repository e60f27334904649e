#include "effect/compose.h"

#include <stdio.h>
#include <string.h>

#include "base/base64.h"
#include "base/limits.h"
#include "base/macros.h"
#include "base/percent.h"
#include "canon/jsonw.h"
#include "canon/template.h"
#include "http/head.h"
#include "http/write.h"

enum {
    HEAD_BYTES_MAX = 64 << 10,
    BODY_BYTES_MAX = 4 << 20, /* a payload at its limit, form-encoded */
    ROOTS = 7,
    DEPTH_MAX = 32, /* of members in a form; a deeper tree has no form */
};

/* ---- what templates name ------------------------------------------------------------------- */

struct names {
    struct json_value texts[5];
    struct template_root roots[ROOTS];
    const struct json_value *payload;
    struct template_roots all;
    char effect_id[KIND_ID_TEXT_BYTES];
};

static enum status read_json(
    struct slice text, struct arena *arena, const struct json_value **ret, struct err *err)
{
    *ret = NULL;
    return text.len == 0 ? OK : json_read(text, arena, ret, err);
}

static enum status names_make(
    const struct compose_from *from, struct arena *arena, struct names *names, struct err *err)
{
    const struct record *record = from->record;
    const struct json_value *target = NULL;
    enum status status = read_json(from->detail->target, arena, &target, err);
    status = status == OK ? read_json(from->payload, arena, &names->payload, err) : status;
    const struct slice texts[] = {record->key.key,
        effect_name(record, from->detail, names->effect_id), from->detail->command_id,
        record->key.scope, record->key.tenant};
    static const char *const roots[] = {
        "idempotency_key", "effect_id", "command_id", "effect_type", "tenant"};
    names->roots[0] = (struct template_root){SLICE_LIT("target"), target};
    names->roots[1] = (struct template_root){SLICE_LIT("payload"), names->payload};
    for (size_t i = 0; i < COUNT(texts); i++) {
        names->texts[i] = template_string(texts[i]);
        names->roots[2 + i] =
            (struct template_root){slice_str(roots[i]), texts[i].len > 0 ? &names->texts[i] : NULL};
    }
    names->all = (struct template_roots){.items = names->roots, .count = ROOTS};
    return status;
}

/* ---- the key ------------------------------------------------------------------------------- */

struct slice compose_key(
    const struct config_idempotency *how, struct slice key, char ret_text[COMPOSE_KEY_BYTES_MAX])
{
    struct digest digest;
    if (how->key_bytes_max == 0 || key.len <= how->key_bytes_max) {
        return key;
    }
    digest_sha256(key.data, key.len, &digest);
    char *end = base64_put(ret_text, digest.bytes, sizeof digest.bytes, BASE64_URL);
    return slice_of(ret_text, (size_t)(end - ret_text));
}

/* ---- bodies -------------------------------------------------------------------------------- */

/* The next token of a JSON Pointer, unescaped into the buffer. */
static struct slice token_take(struct slice *pointer, char *buffer, size_t room)
{
    size_t at = 1;
    size_t len = 0;
    while (at < pointer->len && pointer->data[at] != '/' && len < room) {
        char byte = pointer->data[at++];
        if (byte == '~' && at < pointer->len) {
            byte = pointer->data[at++] == '1' ? '/' : '~';
        }
        buffer[len++] = byte;
    }
    *pointer = slice_of(pointer->data + at, pointer->len - at);
    return slice_of(buffer, len);
}

/* Write the tree again, with the member that the pointer names set. Everything else is copied byte
 * for byte: numbers keep their digits. */
static void put_with(struct buf *out, struct slice text, const struct json_value *value,
    struct slice pointer, struct slice member)
{
    char buffer[256];
    struct slice token = token_take(&pointer, buffer, sizeof buffer);
    struct jsonw json = {.out = out};
    bool is_set = false;
    jsonw_open(&json, NULL, '{');
    for (size_t i = 0; i < value->count; i++) {
        const struct json_member *at = &value->members[i];
        struct slice name = json_raw(text, &at->name);
        bool is_it = slice_equal(json_text(&at->name), token);
        buf_str(out, i == 0 ? "" : ",");
        buf_slice(out, name);
        buf_char(out, ':');
        is_set = is_set || is_it;
        if (is_it && pointer.len == 0) {
            struct jsonw own = {.out = out};
            jsonw_bytes(&own, NULL, member);
        } else if (is_it && json_is(&at->value, JSON_OBJECT)) {
            put_with(out, text, &at->value, pointer, member);
        } else {
            buf_slice(out, json_raw(text, &at->value));
        }
    }
    if (!is_set && pointer.len == 0) {
        struct jsonw own = {.out = out};
        buf_str(out, value->count == 0 ? "" : ",");
        jsonw_bytes(&own, NULL, token);
        buf_char(out, ':');
        own.comma = false;
        jsonw_bytes(&own, NULL, member);
    }
    buf_char(out, '}');
}

static enum status put_json_body(
    const struct compose_from *from, const struct names *names, struct buf *out, struct err *err)
{
    const struct config_idempotency *how = &from->type->connector->idempotency;
    char buffer[COMPOSE_KEY_BYTES_MAX];
    if (how->body == NULL) {
        buf_slice(out, from->payload);
        return buf_status(out);
    }
    if (!json_is(names->payload, JSON_OBJECT)) {
        return err_set(
            err, E_INVALID, "the payload is not an object, so it has no place for a key");
    }
    put_with(out, from->payload, names->payload, slice_str(how->body),
        compose_key(how, from->record->key.key, buffer));
    return buf_status(out);
}

/* a=1&b[c]=2&d[0]=3: the usual way to write nested members in a form. */
static bool put_form(struct buf *out, struct buf *name, const struct json_value *value, int depth)
{
    size_t len = name->len;
    bool is_well = depth < DEPTH_MAX;
    if (value->type == JSON_OBJECT || value->type == JSON_ARRAY) {
        for (size_t i = 0; is_well && i < value->count; i++) {
            const struct json_value *item =
                value->type == JSON_OBJECT ? &value->members[i].value : &value->items[i];
            buf_str(name, depth == 0 ? "" : "[");
            if (value->type == JSON_OBJECT) {
                percent_append(name, json_text(&value->members[i].name));
            } else {
                buf_u64(name, i);
            }
            buf_str(name, depth == 0 ? "" : "]");
            is_well = put_form(out, name, item, depth + 1);
            name->len = len;
        }
        return is_well;
    }
    buf_str(out, out->len == 0 ? "" : "&");
    buf_slice(out, buf_view(name));
    buf_char(out, '=');
    percent_append(out, value->type == JSON_TRUE    ? SLICE_LIT("true")
                        : value->type == JSON_FALSE ? SLICE_LIT("false")
                                                    : json_text(value));
    return is_well;
}

static enum status put_form_body(const struct compose_from *from, const struct names *names,
    struct mem *mem, struct buf *out, struct err *err)
{
    const struct config_idempotency *how = &from->type->connector->idempotency;
    char buffer[COMPOSE_KEY_BYTES_MAX];
    struct buf name;
    buf_init(&name, mem, BODY_BYTES_MAX);
    if (names->payload != NULL && names->payload->type != JSON_OBJECT) {
        return err_set(
            err, E_INVALID, "the payload is not an object, so it cannot be sent as a form");
    }
    if (names->payload != NULL && !put_form(out, &name, names->payload, 0)) {
        return err_set(err, E_INVALID, "the payload is nested too deep for a form");
    }
    if (how->body != NULL) {
        buf_str(out, out->len == 0 ? "" : "&");
        percent_append(out, slice_of(how->body + 1, strlen(how->body) - 1));
        buf_char(out, '=');
        percent_append(out, compose_key(how, from->record->key.key, buffer));
    }
    enum status status = buf_status(&name);
    return status == OK ? buf_status(out) : status;
}

/* CCO-1, and our additions. Extensions are separate members (CCO-11). */
static enum status put_envelope(
    const struct compose_from *from, const struct names *names, struct buf *out)
{
    const struct record *record = from->record;
    const struct effect_detail *detail = from->detail;
    char buffer[KIND_ID_TEXT_BYTES];
    struct jsonw json = {.out = out};
    jsonw_open(&json, NULL, '{');
    jsonw_bytes(&json, "effect_id", effect_name(record, detail, buffer));
    jsonw_bytes_some(&json, "command_id", detail->command_id);
    jsonw_bytes(&json, "tenant_id", record->key.tenant);
    jsonw_bytes(&json, "idempotency_key", record->key.key);
    jsonw_bytes(&json, "effect_type", record->key.scope);
    jsonw_raw_some(&json, "target", detail->target);
    jsonw_raw_some(&json, "payload", from->payload);
    jsonw_raw_some(&json, "trace", record->trace);
    jsonw_u64(&json, "attempt", record->attempt);
    jsonw_time(&json, "created_at", record->created_ms);
    jsonw_raw_some(&json, "policy_refs", detail->policy_refs);
    jsonw_bytes_some(&json, "ack_token", from->ack_token);
    jsonw_bytes_some(&json, "ack_url", from->ack_url);
    if (detail->extensions.len > 2) { /* the members of "{…}" */
        buf_char(out, ',');
        buf_slice(out, slice_of(detail->extensions.data + 1, detail->extensions.len - 2));
    }
    jsonw_close(&json, '}');
    (void)names;
    return buf_status(out);
}

/* ---- heads --------------------------------------------------------------------------------- */

static enum status put_target(const struct compose_from *from, const struct names *names,
    const char *path, struct buf *out, struct err *err)
{
    buf_str(out, from->type->connector->base_path);
    if (path != NULL) {
        return template_put(slice_str(path), &names->all, TEMPLATE_PATH, out, err);
    }
    buf_str(out, out->len == 0 ? "/" : "");
    return buf_status(out);
}

static void put_field(struct http_put *put, const char *name, struct slice value)
{
    if (value.len > 0) {
        http_put_field(put, slice_str(name), value);
    }
}

static void put_usual(struct http_put *put, const struct compose_from *from)
{
    put_field(put, "Host", from->authority);
    put_field(put, "User-Agent", SLICE_LIT("once/" ONCE_VERSION));
    put_field(put, "Accept", SLICE_LIT("application/json, */*;q=0.1"));
    put_field(put, "Accept-Encoding", SLICE_LIT("identity"));
    put_field(put, "Request-Id", from->request_id);
    if (from->credential.len > 0) {
        http_put_field(put, from->field, from->credential);
    }
}

/* The type's own fields, with their values. */
static enum status put_own(struct http_put *put, const struct compose_from *from,
    const struct names *names, struct mem *mem, struct err *err)
{
    enum status status = OK;
    for (size_t i = 0; status == OK && i < from->type->header_count; i++) {
        const struct config_effect_header *header = &from->type->headers[i];
        struct buf value;
        buf_init(&value, mem, HEAD_BYTES_MAX);
        status = template_put(slice_str(header->value), &names->all, TEMPLATE_FIELD, &value, err);
        put_field(put, header->name, buf_view(&value));
    }
    return status;
}

static enum status end_head(
    struct http_put *put, const struct buf *head, struct composed *composed, struct err *err)
{
    enum status status = http_put_end(put);
    composed->head = buf_view(head);
    return status == OK ? OK
                        : err_set(err, status,
                              "the request has a value that no field can carry, or "
                              "is too long");
}

static enum status put_body(const struct compose_from *from, const struct names *names,
    struct mem *mem, struct buf *out, struct slice *ret_type, struct err *err)
{
    const struct config_effect *type = from->type;
    *ret_type = SLICE_LIT("application/json");
    if (type->connector->protocol == CONFIG_PROTOCOL_ENVELOPE) {
        return put_envelope(from, names, out);
    }
    switch (type->body) {
    case CONFIG_EFFECT_BODY_PAYLOAD: return put_json_body(from, names, out, err);
    case CONFIG_EFFECT_BODY_FORM:
        *ret_type = SLICE_LIT("application/x-www-form-urlencoded");
        return put_form_body(from, names, mem, out, err);
    case CONFIG_EFFECT_BODY_NONE: *ret_type = SLICE_EMPTY; return OK;
    }
    return OK;
}

enum status compose_attempt(const struct compose_from *from, struct arena *arena,
    struct composed *ret_composed, struct err *err)
{
    const struct config_connector *connector = from->type->connector;
    struct mem *mem = arena_alloc(arena, sizeof *mem);
    struct names *names = arena_zalloc(arena, sizeof *names);
    struct buf target, head, body;
    struct http_put put;
    struct slice content_type = SLICE_EMPTY;
    char buffer[COMPOSE_KEY_BYTES_MAX];
    if (mem == NULL || names == NULL) {
        return err_set(err, E_NOMEM, "out of memory for a request");
    }
    *mem = arena_mem(arena);
    buf_init(&target, mem, HEAD_BYTES_MAX);
    buf_init(&head, mem, HEAD_BYTES_MAX);
    buf_init(&body, mem, BODY_BYTES_MAX);
    enum status status = names_make(from, arena, names, err);
    status = status == OK ? put_target(from, names, from->type->path, &target, err) : status;
    status = status == OK ? put_body(from, names, mem, &body, &content_type, err) : status;
    if (status != OK) {
        return status;
    }
    ret_composed->method = http_method_named(slice_str(from->type->method));
    http_put_request(&put, &head, slice_str(from->type->method), buf_view(&target));
    put_usual(&put, from);
    put_field(&put, "Content-Type", content_type);
    if (connector->idempotency.header != NULL) {
        put_field(&put, connector->idempotency.header,
            compose_key(&connector->idempotency, from->record->key.key, buffer));
    }
    status = put_own(&put, from, names, mem, err);
    if (status != OK) {
        return status;
    }
    if (body.len > 0 || ret_composed->method != HTTP_METHOD_GET) {
        http_put_length(&put, body.len);
    }
    ret_composed->body = buf_view(&body);
    return end_head(&put, &head, ret_composed, err);
}

enum status compose_question(const struct compose_from *from, struct arena *arena,
    struct composed *ret_composed, struct err *err)
{
    struct mem *mem = arena_alloc(arena, sizeof *mem);
    struct names *names = arena_zalloc(arena, sizeof *names);
    struct buf target, head;
    struct http_put put;
    if (mem == NULL || names == NULL) {
        return err_set(err, E_NOMEM, "out of memory for a request");
    }
    *mem = arena_mem(arena);
    buf_init(&target, mem, HEAD_BYTES_MAX);
    buf_init(&head, mem, HEAD_BYTES_MAX);
    enum status status = names_make(from, arena, names, err);
    status = status == OK ? put_target(from, names, from->type->connector->lookup.get, &target, err)
                          : status;
    if (status != OK) {
        return status;
    }
    *ret_composed = (struct composed){.method = HTTP_METHOD_GET};
    http_put_request(&put, &head, SLICE_LIT("GET"), buf_view(&target));
    put_usual(&put, from);
    return end_head(&put, &head, ret_composed, err);
}

/* ---- events -------------------------------------------------------------------------------- */

/* CloudEvents 1.0, JSON format. `subject` is what the effect is about; extensions have the names
 * that CloudEvents allows. Nothing names the attempt: a repetition has the same bytes. */
enum status compose_event(
    const struct compose_from *from, struct arena *arena, struct slice *ret_event, struct err *err)
{
    const struct record *record = from->record;
    const struct effect_detail *detail = from->detail;
    struct mem *mem = arena_alloc(arena, sizeof *mem);
    char buffer[KIND_ID_TEXT_BYTES];
    struct buf out, source;
    struct jsonw json = {.out = &out};
    if (mem == NULL) {
        return err_set(err, E_NOMEM, "out of memory for an event");
    }
    *mem = arena_mem(arena);
    buf_init(&out, mem, BODY_BYTES_MAX);
    buf_init(&source, mem, HEAD_BYTES_MAX);
    buf_str(&source, "/once/");
    percent_append(&source, record->key.tenant);
    jsonw_open(&json, NULL, '{');
    jsonw_bytes(&json, "specversion", SLICE_LIT("1.0"));
    jsonw_bytes(&json, "id", effect_name(record, detail, buffer));
    jsonw_bytes(&json, "source", buf_view(&source));
    jsonw_bytes(&json, "type", record->key.scope);
    jsonw_bytes_some(&json, "subject", detail->target);
    jsonw_time(&json, "time", record->created_ms);
    jsonw_bytes(&json, "idempotencykey", record->key.key);
    jsonw_bytes_some(&json, "commandid", detail->command_id);
    jsonw_bytes(&json, "datacontenttype", SLICE_LIT("application/json"));
    jsonw_raw_some(&json, "data", from->payload);
    jsonw_close(&json, '}');
    if (buf_status(&out) != OK || buf_status(&source) != OK) {
        return err_set(err, E_NOMEM, "out of memory for an event");
    }
    *ret_event = buf_view(&out);
    return OK;
}
