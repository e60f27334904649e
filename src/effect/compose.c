#include "effect/compose.h"

#include <stdio.h>
#include <string.h>

#include "base/base64.h"
#include "base/limits.h"
#include "base/macros.h"
#include "base/percent.h"
#include "canon/jsonw.h"
#include "canon/template.h"
#include "envelope/envelope.h"
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
    bool fits = how->key_bytes_max == 0 || key.len <= how->key_bytes_max;
    bool has_blank_end = key.len > 0 && (key.data[0] == ' ' || key.data[key.len - 1] == ' ');
    if (fits && (how->header == NULL || !has_blank_end)) {
        return key;
    }
    digest_sha256(key.data, key.len, &digest);
    char *end = base64_put(ret_text, digest.bytes, sizeof digest.bytes, BASE64_URL);
    return slice_of(ret_text, (size_t)(end - ret_text));
}

/* The key by which the provider knows the effect. An envelope has it as it is. */
static struct slice key_known(const struct compose_from *from, char ret_text[COMPOSE_KEY_BYTES_MAX])
{
    const struct config_connector *connector = from->type->connector;
    const struct config_idempotency *how = &connector->idempotency;
    bool is_taken = (how->header != NULL || how->body != NULL) &&
                    connector->protocol != CONFIG_PROTOCOL_ENVELOPE;
    return is_taken ? compose_key(how, from->record->key.key, ret_text) : from->record->key.key;
}

/* ---- bodies -------------------------------------------------------------------------------- */

/* Where the key goes into a body. Everything else stays as it came. */
struct key_place {
    const struct json_value *holder; /* the object that gets it; NULL: the body has no key */
    const struct json_value *old;    /* the member that it replaces; NULL: it is added */
    struct slice name;               /* of the member */
    struct slice key;
    char name_text[JSON_POINTER_BYTES_MAX];
    char key_text[COMPOSE_KEY_BYTES_MAX];
};

static enum status find_place(const struct compose_from *from, const struct names *names,
    struct key_place *place, struct err *err)
{
    const struct config_connector *connector = from->type->connector;
    enum status status = effect_key_holder(
        connector, names->payload, place->name_text, &place->holder, &place->name, err);
    place->old = status == OK ? json_find(place->holder, place->name) : NULL;
    place->key = compose_key(&connector->idempotency, from->record->key.key, place->key_text);
    return status;
}

static void put_json_body(
    const struct compose_from *from, const struct key_place *place, struct buf *out)
{
    struct slice text = from->payload;
    struct jsonw json = {.out = out};
    if (place->holder == NULL) {
        buf_slice(out, text);
        return;
    }
    /* What is replaced: the old value, or nothing, before the closing brace. */
    struct slice all = json_raw(text, place->holder);
    struct slice gone = slice_of(all.data + all.len - 1, 0);
    if (place->old != NULL) {
        gone = json_raw(text, place->old);
    }
    size_t at = (size_t)(gone.data - text.data);
    buf_slice(out, slice_of(text.data, at));
    if (place->old == NULL) {
        buf_str(out, place->holder->count == 0 ? "" : ",");
        jsonw_bytes(&json, NULL, place->name);
        buf_char(out, ':');
        json.comma = false;
    }
    jsonw_bytes(&json, NULL, place->key);
    buf_slice(out, slice_of(gone.data + gone.len, text.len - at - gone.len));
}

struct form_writer {
    struct buf *out;
    struct buf name; /* of the member that is being written */
    const struct key_place *place;
};

static void put_form_name(struct form_writer *form, struct slice name, int depth)
{
    buf_str(&form->name, depth == 0 ? "" : "[");
    percent_append(&form->name, name);
    buf_str(&form->name, depth == 0 ? "" : "]");
}

static void put_form_value(struct form_writer *form, struct slice value)
{
    buf_str(form->out, form->out->len == 0 ? "" : "&");
    buf_slice(form->out, buf_view(&form->name));
    buf_char(form->out, '=');
    percent_append(form->out, value);
}

static bool put_form(struct form_writer *form, const struct json_value *value, int depth);

/* a=1&b[c]=2&d[0]=3: the usual way to write nested members in a form. */
static bool put_form_items(struct form_writer *form, const struct json_value *value, int depth)
{
    size_t len = form->name.len;
    bool is_well = depth < DEPTH_MAX;
    for (size_t i = 0; is_well && i < value->count; i++) {
        bool is_object = value->type == JSON_OBJECT;
        char index[24];
        (void)snprintf(index, sizeof index, "%zu", i);
        put_form_name(
            form, is_object ? json_text(&value->members[i].name) : slice_str(index), depth);
        is_well =
            put_form(form, is_object ? &value->members[i].value : &value->items[i], depth + 1);
        form->name.len = len;
    }
    if (value == form->place->holder && form->place->old == NULL) {
        put_form_name(form, form->place->name, depth);
        put_form_value(form, form->place->key);
        form->name.len = len;
    }
    return is_well;
}

static bool put_form(struct form_writer *form, const struct json_value *value, int depth)
{
    if (value == form->place->old) {
        put_form_value(form, form->place->key);
        return true;
    }
    if (value->type == JSON_OBJECT || value->type == JSON_ARRAY) {
        return put_form_items(form, value, depth);
    }
    put_form_value(form, value->type == JSON_TRUE    ? SLICE_LIT("true")
                         : value->type == JSON_FALSE ? SLICE_LIT("false")
                                                     : json_text(value));
    return depth < DEPTH_MAX;
}

static enum status put_form_body(const struct names *names, const struct key_place *place,
    struct mem *mem, struct buf *out, struct err *err)
{
    struct form_writer form = {.out = out, .place = place};
    buf_init(&form.name, mem, BODY_BYTES_MAX);
    if (names->payload != NULL && names->payload->type != JSON_OBJECT) {
        return err_set(
            err, E_INVALID, "the payload is not an object, so it cannot be sent as a form");
    }
    if (names->payload != NULL && !put_form(&form, names->payload, 0)) {
        return err_set(err, E_INVALID, "the payload is nested too deep for a form");
    }
    return buf_status(&form.name);
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
    struct key_place place;
    *ret_type = SLICE_LIT("application/json");
    if (type->connector->protocol == CONFIG_PROTOCOL_ENVELOPE) {
        return put_envelope(from, names, out);
    }
    enum status status = find_place(from, names, &place, err);
    if (status == OK && type->body == CONFIG_EFFECT_BODY_FORM) {
        *ret_type = SLICE_LIT("application/x-www-form-urlencoded");
        status = put_form_body(names, &place, mem, out, err);
    } else if (status == OK && type->body == CONFIG_EFFECT_BODY_PAYLOAD) {
        put_json_body(from, &place, out);
    } else {
        *ret_type = SLICE_EMPTY;
    }
    if (status == OK && buf_status(out) != OK) {
        status = err_set(err, buf_status(out), "the body is too long");
    }
    return status;
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
    char key[COMPOSE_KEY_BYTES_MAX];
    if (mem == NULL || names == NULL) {
        return err_set(err, E_NOMEM, "out of memory for a request");
    }
    *mem = arena_mem(arena);
    buf_init(&target, mem, HEAD_BYTES_MAX);
    buf_init(&head, mem, HEAD_BYTES_MAX);
    enum status status = names_make(from, arena, names, err);
    names->texts[0] = template_string(key_known(from, key)); /* the idempotency_key */
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
