#include "envelope/envelope.h"

#include <string.h>

#include "base/limits.h"
#include "base/macros.h"
#include "base/name.h"
#include "base/text.h"
#include "canon/jcs.h"
#include "canon/key.h"
#include "canon/template.h"
#include "core/lane.h"
#include "engine/request_builder.h"

enum {
    FORM_BYTES_MAX = 32 << 20,     /* canonical form of the longest payload and target */
    KEY_BYTES_MAX = 64 << 10,      /* of the text that a key is derived from */
    REDACTED_BYTES_MAX = 1200,     /* of a redacted payload kept in the detail */
    TEMPLATE_BYTES_MAX = 64 << 10, /* of a filled template */
};

#define NAME(text)        SLICE_INIT(text)
#define AT(place)         offsetof(struct effect_parts, place)
#define WRONG(fault, ...) member_refuse((fault), NULL, __VA_ARGS__)

/* ---- members ----------------------------------------------------------------------------- */

enum {
    TARGET,
    PAYLOAD,
    ORDINAL,
    TRACE,
    POLICY_REFS,
    NOT_BEFORE,
    EXTENSIONS,
    TENANT_ID,
};

/* An envelope while it is read. */
struct effect_parts {
    struct slice effect_type;
    struct slice effect_id;
    struct slice command_id;
    struct slice idempotency_key;
    int64_t wait_ms;
    const struct json_value *object;
    const struct json_value *values[16];
    const struct config_effect *type;
    struct mem mem; /* the sender's arena */
};

/* attempt and created_at are in CCO-1, but Once counts and dates attempts itself. */
static const struct member members[] = {
    [TARGET] = {.name = NAME("target")},
    [PAYLOAD] = {.name = NAME("payload"), .is_required = true},
    [ORDINAL] = {.name = NAME("ordinal")},
    [TRACE] = {.name = NAME("trace"), .type = MEMBER_OBJECT},
    [POLICY_REFS] = {.name = NAME("policy_refs")},
    [NOT_BEFORE] = {.name = NAME("not_before")},
    [EXTENSIONS] = {.name = NAME("extensions")},
    [TENANT_ID] = {.name = NAME("tenant_id")},
    {.name = NAME("attempt")},
    {.name = NAME("created_at")},
    {NAME("effect_type"), MEMBER_TEXT, true, AT(effect_type)},
    {NAME("effect_id"), MEMBER_TEXT, false, AT(effect_id)},
    {NAME("command_id"), MEMBER_TEXT, false, AT(command_id)},
    {NAME("idempotency_key"), MEMBER_TEXT, false, AT(idempotency_key)},
    {NAME("wait"), MEMBER_DURATION, false, AT(wait_ms)},
};
static const struct member_table table = {"", members, COUNT(members), true};
_Static_assert(COUNT(members) <= 16, "struct effect_parts has room");

static enum status no_memory(struct member_fault *fault)
{
    return err_set(&fault->err, E_NOMEM, "out of memory");
}

unsigned effect_fault_status(const struct member_fault *fault)
{
    bool is_type = fault->code != NULL && strcmp(fault->code, "unknown_effect_type") == 0;
    bool is_body = fault->code != NULL && strcmp(fault->code, "invalid_body") == 0;
    bool is_tenant = fault->code != NULL && strcmp(fault->code, "tenant_mismatch") == 0;
    return is_type ? 404 : is_body ? 400 : is_tenant ? 403 : 422;
}

/* Called before the names are used for anything. */
static enum status check_names(const struct effect_parts *envelope, struct member_fault *fault)
{
    const struct {
        const char *member;
        struct slice name;
    } names[] = {
        {"effect_type", envelope->effect_type},
        {"effect_id", envelope->effect_id},
        {"command_id", envelope->command_id},
        {"idempotency_key", envelope->idempotency_key},
    };
    enum status status = OK;
    for (size_t i = 0; status == OK && i < COUNT(names); i++) {
        status = name_check(names[i].member, names[i].name, &fault->err);
    }
    return status;
}

/* A type that this tenant may not use does not exist for it (CCO-13, P9). */
static enum status take_type(
    const struct effect_sender *sender, struct effect_parts *envelope, struct member_fault *fault)
{
    envelope->type = config_effect_find(sender->types, envelope->effect_type);
    if (envelope->type == NULL ||
        !config_connector_serves(envelope->type->connector, sender->tenant)) {
        return member_refuse(fault, "unknown_effect_type", "there is no effect type '%.*s'",
            envelope->effect_type.len > 64 ? 64 : (int)envelope->effect_type.len,
            envelope->effect_type.data);
    }
    return OK;
}

static enum status check_members(const struct effect_sender *sender,
    const struct effect_parts *envelope, struct member_fault *fault)
{
    const struct json_value *tenant = envelope->values[TENANT_ID];
    const struct json_value *refs = envelope->values[POLICY_REFS];
    struct slice payload = json_raw(sender->text, envelope->values[PAYLOAD]);
    int64_t ordinal = 0;
    if (tenant != NULL && !slice_equal(json_text(tenant), sender->tenant)) {
        return member_refuse(
            fault, "tenant_mismatch", "member 'tenant_id' is not the caller's tenant");
    }
    if (refs != NULL && refs->type != JSON_ARRAY) {
        return WRONG(fault, "member 'policy_refs' must be an array");
    }
    if (envelope->values[ORDINAL] != NULL &&
        (!json_int(envelope->values[ORDINAL], &ordinal) || ordinal < 0)) {
        return WRONG(fault, "member 'ordinal' must be a whole number from 0 on");
    }
    if (envelope->command_id.len == 0 && envelope->idempotency_key.len == 0) {
        return member_refuse(fault, "missing_member",
            "one of the members 'command_id' and 'idempotency_key' is needed");
    }
    if (payload.len > EFFECT_PAYLOAD_BYTES_MAX) {
        return WRONG(fault, "member 'payload' is longer than effect_payload_bytes_max (%d)",
            EFFECT_PAYLOAD_BYTES_MAX);
    }
    return OK;
}

/* ---- the key ----------------------------------------------------------------------------- */

static struct json_member named(const char *name, struct json_value value)
{
    return (struct json_member){template_string(slice_str(name)), value};
}

/* SHA-256(JCS{command_id, effect_type, ordinal, target, tenant_id}), as 64 hex digits. */
static enum status derive_key(const struct effect_sender *sender,
    const struct effect_parts *envelope, struct slice *ret_key, struct member_fault *fault)
{
    struct json_member parts[5];
    struct json_value object = {.type = JSON_OBJECT, .members = parts};
    struct buf form;
    struct digest digest;
    char *hex = arena_alloc(sender->arena, DIGEST_HEX_BYTES);
    if (hex == NULL) {
        return no_memory(fault);
    }
    parts[object.count++] = named("command_id", template_string(envelope->command_id));
    parts[object.count++] = named("effect_type", template_string(envelope->effect_type));
    if (envelope->values[ORDINAL] != NULL) {
        parts[object.count++] = named("ordinal", *envelope->values[ORDINAL]);
    }
    if (envelope->values[TARGET] != NULL) {
        parts[object.count++] = named("target", *envelope->values[TARGET]);
    }
    parts[object.count++] = named("tenant_id", template_string(sender->tenant));
    buf_init(&form, &envelope->mem, KEY_BYTES_MAX);
    enum status status = key_derive(KEY_EFFECT, &object, &form, &digest, &fault->err);
    if (status == OK) {
        *ret_key = slice_str(digest_put_hex(hex, &digest));
    }
    return status == E_LIMIT ? E_INVALID : status;
}

static enum status take_key(const struct effect_sender *sender, const struct effect_parts *envelope,
    struct engine_call *call, struct member_fault *fault)
{
    struct record_key *key = &call->request.key;
    enum record_kind parent = RECORD_OPERATION;
    *key = (struct record_key){
        .tenant = sender->tenant, .scope = envelope->effect_type, .key = envelope->idempotency_key};
    enum status status = key->key.len > 0 ? OK : derive_key(sender, envelope, &key->key, fault);
    if (!kind_id_read(envelope->command_id, &parent, &call->request.parent)) {
        call->request.parent = (struct op_id){{0}}; /* a command that is not ours */
    }
    return status == OK ? record_key_seal_as(key, RECORD_EFFECT, &fault->err) : status;
}

/* ---- templates --------------------------------------------------------------------------- */

enum { ROOTS = 8 };

/* The values that a type's templates can name. */
struct naming {
    struct json_value strings[ROOTS];
    struct template_root items[ROOTS];
    struct template_roots roots;
};

static void name_string(struct naming *naming, const char *name, struct slice text)
{
    size_t i = naming->roots.count++;
    naming->strings[i] = template_string(text);
    naming->items[i] =
        (struct template_root){slice_str(name), text.len == 0 ? NULL : &naming->strings[i]};
}

static void name_value(struct naming *naming, const char *name, const struct json_value *value)
{
    naming->items[naming->roots.count++] = (struct template_root){slice_str(name), value};
}

static void name_all(
    const struct effect_parts *envelope, const struct record_key *key, struct naming *ret_naming)
{
    *ret_naming = (struct naming){.roots = {.count = 0}};
    ret_naming->roots.items = ret_naming->items;
    name_value(ret_naming, "target", envelope->values[TARGET]);
    name_value(ret_naming, "payload", envelope->values[PAYLOAD]);
    name_string(ret_naming, "idempotency_key", key->key);
    name_string(ret_naming, "command_id", envelope->command_id);
    name_string(ret_naming, "effect_type", envelope->effect_type);
    name_string(ret_naming, "tenant", key->tenant);
    /* Its own id is known when it is made; here it is enough that it will exist. */
    name_string(ret_naming, "effect_id",
        envelope->effect_id.len > 0 ? envelope->effect_id : SLICE_LIT("eff"));
}

/* Fill one template, to check that this is possible, or to keep the result. */
static enum status put_template(const struct effect_parts *envelope, const struct naming *naming,
    const char *text, enum template_way way, struct slice *ret_text, struct member_fault *fault)
{
    struct buf out;
    if (text == NULL) {
        return OK;
    }
    buf_init(&out, &envelope->mem, TEMPLATE_BYTES_MAX);
    enum status status = template_put(slice_str(text), &naming->roots, way, &out, &fault->err);
    if (status == OK && ret_text != NULL) {
        *ret_text = buf_view(&out);
    }
    if (status == E_INVALID) {
        err_prefix(&fault->err, "effect type '%s'", envelope->type->name);
    }
    return status == E_LIMIT ? E_INVALID : status;
}

enum status effect_key_holder(const struct config_connector *connector,
    const struct json_value *payload, char scratch[JSON_POINTER_BYTES_MAX],
    const struct json_value **ret_holder, struct slice *ret_name, struct err *err)
{
    const char *where = connector->idempotency.body;
    *ret_holder = NULL;
    if (where == NULL) {
        return OK;
    }
    const struct json_value *holder = json_holder_at(payload, slice_str(where), scratch, ret_name);
    if (!json_is(holder, JSON_OBJECT)) {
        return err_set(err, E_INVALID,
            "the payload has no object in which idempotency.body (%s) could put the key", where);
    }
    *ret_holder = holder;
    return OK;
}

/* Before anything is recorded, like a value that a template lacks. */
static enum status try_key(const struct effect_parts *envelope, struct member_fault *fault)
{
    char scratch[JSON_POINTER_BYTES_MAX];
    const struct json_value *holder;
    struct slice name;
    enum status status = effect_key_holder(
        envelope->type->connector, envelope->values[PAYLOAD], scratch, &holder, &name, &fault->err);
    if (status != OK) {
        err_prefix(&fault->err, "effect type '%s'", envelope->type->name);
    }
    return status;
}

static enum status try_templates(const struct effect_parts *envelope, const struct naming *naming,
    struct effect_detail *detail, struct member_fault *fault)
{
    const struct config_effect *type = envelope->type;
    enum status status =
        put_template(envelope, naming, type->order, TEMPLATE_TEXT, &detail->lane, fault);
    status = status == OK ? put_template(envelope, naming, type->path, TEMPLATE_PATH, NULL, fault)
                          : status;
    for (size_t i = 0; status == OK && i < type->header_count; i++) {
        status =
            put_template(envelope, naming, type->headers[i].value, TEMPLATE_FIELD, NULL, fault);
    }
    status = status == OK ? put_template(envelope, naming, type->connector->lookup.get,
                                TEMPLATE_PATH, NULL, fault)
                          : status;
    return status == OK ? try_key(envelope, fault) : status;
}

/* ---- the stored forms -------------------------------------------------------------------- */

enum status effect_redact(const struct config_effect *type, const struct json_value *payload,
    struct arena *arena, struct buf *out, struct err *err)
{
    struct json_mask_list list = {.pointers = type == NULL ? NULL : type->redact,
        .count = type == NULL ? 0 : type->redact_count,
        .way = JSON_MASK_REDACTED};
    struct json_mask marks;
    enum status status = json_mask_make(payload, &list, 1, arena, &marks);
    if (status != OK) {
        return err_set(err, status, "out of memory");
    }
    struct jcs_how how = {.marks = &marks, .keep_lossy = true};
    return jcs_write_marked(payload, &how, out, NULL, err);
}

static enum status seal_part(const struct effect_sender *sender, const struct engine_call *call,
    struct slice plain, size_t bytes_max, struct slice *ret_sealed, struct member_fault *fault)
{
    struct buf out;
    struct mem mem = arena_mem(sender->arena);
    buf_init(&out, &mem, bytes_max + VAULT_OVERHEAD_BYTES);
    enum status status = effect_seal(sender->vault, &call->request.key, plain, &out, &fault->err);
    if (status == OK) {
        *ret_sealed = buf_view(&out);
    }
    return status;
}

/* Keep the redacted form, if it is short enough to stay with the record. */
static enum status keep_redacted(const struct effect_sender *sender,
    const struct effect_parts *envelope, const struct engine_call *call,
    struct effect_detail *detail, struct member_fault *fault)
{
    struct buf out;
    buf_init(&out, &envelope->mem, FORM_BYTES_MAX);
    enum status status =
        effect_redact(envelope->type, envelope->values[PAYLOAD], sender->arena, &out, &fault->err);
    if (status != OK || out.len > REDACTED_BYTES_MAX) {
        return status == E_NOMEM ? status : OK; /* without it, less is shown */
    }
    return seal_part(sender, call, buf_view(&out), REDACTED_BYTES_MAX, &detail->redacted, fault);
}

/* The values for its compensation; without a template of its own, all of them. */
static void undo_tree(const struct config_effect *type, bool has_target, struct json_value items[2],
    struct json_value *ret_tree)
{
    items[0] = type->compensate_payload != NULL ? *type->compensate_payload
                                                : template_string(SLICE_LIT("{payload}"));
    items[1] = type->compensate_target != NULL ? *type->compensate_target
                                               : template_string(SLICE_LIT("{target}"));
    *ret_tree =
        (struct json_value){.type = JSON_ARRAY, .count = has_target ? 2 : 1, .items = items};
}

static enum status keep_undo(const struct effect_sender *sender,
    const struct effect_parts *envelope, const struct engine_call *call,
    const struct naming *naming, struct effect_detail *detail, struct member_fault *fault)
{
    const struct config_effect *type = envelope->type;
    struct json_value items[2];
    struct json_value tree;
    struct buf out;
    if (type->compensate == NULL) {
        return OK;
    }
    undo_tree(
        type, envelope->values[TARGET] != NULL || type->compensate_target != NULL, items, &tree);
    buf_init(&out, &envelope->mem, LIMIT_DETAIL_BYTES_MAX);
    enum status status =
        template_put_values(&tree, &naming->roots, "provider_ref", &out, &fault->err);
    if (status == E_LIMIT) {
        return WRONG(fault,
            "what the compensation of effect type '%s' needs is longer than "
            "detail_bytes_max (%d)",
            type->name, LIMIT_DETAIL_BYTES_MAX);
    }
    if (status == E_INVALID) {
        err_prefix(&fault->err, "the compensation of effect type '%s'", type->name);
    }
    return status == OK ? seal_part(sender, call, buf_view(&out), LIMIT_DETAIL_BYTES_MAX,
                              &detail->undo, fault)
                        : status;
}

/* Keep the members x_* and extensions, as received. */
static enum status keep_extensions(const struct effect_sender *sender,
    const struct effect_parts *envelope, struct effect_detail *detail, struct member_fault *fault)
{
    struct buf out;
    bool is_first = true;
    buf_init(&out, &envelope->mem, LIMIT_DETAIL_BYTES_MAX);
    buf_char(&out, '{');
    for (uint32_t i = 0; i < envelope->object->count; i++) {
        const struct json_member *member = &envelope->object->members[i];
        struct slice name = json_text(&member->name);
        if (slice_is(name, "extensions") || slice_starts(name, SLICE_LIT("x_"))) {
            buf_str(&out, is_first ? "" : ",");
            jcs_put_string(&out, name);
            buf_char(&out, ':');
            buf_slice(&out, json_raw(sender->text, &member->value));
            is_first = false;
        }
    }
    buf_char(&out, '}');
    enum status status = buf_status(&out);
    if (status == E_LIMIT) {
        return WRONG(
            fault, "the extensions are longer than detail_bytes_max (%d)", LIMIT_DETAIL_BYTES_MAX);
    }
    if (status == OK && !is_first) {
        detail->extensions = buf_view(&out);
    }
    return status;
}

/* Leave out the redacted form if it does not fit beside the rest. */
static enum status put_detail(const struct effect_sender *sender, struct effect_detail *detail,
    struct engine_call *call, struct member_fault *fault)
{
    struct buf out;
    struct mem mem = arena_mem(sender->arena);
    buf_init(&out, &mem, 4 * LIMIT_DETAIL_BYTES_MAX);
    enum status status = effect_detail_fit(detail, &out, &fault->err);
    call->request.detail = buf_view(&out);
    return status == E_LIMIT ? E_INVALID : status;
}

/* ---- the call ---------------------------------------------------------------------------- */

/* The fingerprint covers payload and target; the payload is kept, sealed. */
static enum status take_payload(const struct effect_sender *sender,
    const struct effect_parts *envelope, struct engine_call *call, struct effect_order *order,
    struct member_fault *fault)
{
    const struct json_value *target = envelope->values[TARGET];
    struct slice payload = json_raw(sender->text, envelope->values[PAYLOAD]);
    struct buf text, form;
    struct payload print;
    struct slice sealed = SLICE_EMPTY;
    struct digest digest;
    buf_init(&text, &envelope->mem, FORM_BYTES_MAX);
    buf_str(&text, "{\"payload\":");
    buf_slice(&text, payload);
    if (target != NULL) {
        buf_str(&text, ",\"target\":");
        buf_slice(&text, json_raw(sender->text, target));
    }
    buf_char(&text, '}');
    buf_init(&form, &envelope->mem, payload_form_bytes_max(text.len));
    enum status status = buf_status(&text);
    status = status == OK ? payload_fingerprint(buf_view(&text), NULL, &form, &print) : status;
    if (status != OK) {
        return no_memory(fault);
    }
    builder_fingerprint(call, sender->engine, &print.digest, print.version);
    status = seal_part(sender, call, payload, EFFECT_PAYLOAD_BYTES_MAX, &sealed, fault);
    if (status == OK) {
        digest_sha256(sealed.data, sealed.len, &digest);
        call->request_body = sealed;
        call->request.request =
            (struct body_ref){.digest = digest, .bytes = sealed.len, .retained = true};
        order->form = buf_view(&text);
        order->payload = payload;
    }
    return status;
}

/* A fraction finer than a millisecond counts up: not before it. */
static bool read_time(struct slice text, int64_t *ret_ms)
{
    struct slice fraction;
    if (!text_instant(text, ret_ms, &fraction)) {
        return false;
    }
    int64_t unit = 100;
    for (size_t i = 0; i < fraction.len; i++, unit /= 10) {
        *ret_ms += (fraction.data[i] - '0') * unit;
        if (unit == 0 && fraction.data[i] != '0') {
            *ret_ms += 1;
            break;
        }
    }
    return true;
}

static enum status take_not_before(
    const struct effect_parts *envelope, struct engine_call *call, struct member_fault *fault)
{
    const struct json_value *value = envelope->values[NOT_BEFORE];
    bool is_good = value == NULL || (json_is(value, JSON_STRING) &&
                                        read_time(json_text(value), &call->request.not_before_ms));
    return is_good ? OK
                   : WRONG(fault, "member 'not_before' must be a time such as "
                                  "\"2026-11-16T09:00:00Z\"");
}

/* Effects with the same value of `order` go one after another: the engine puts them in a lane. */
static enum status take_lane(const struct effect_sender *sender, const struct effect_detail *detail,
    struct engine_call *call, struct member_fault *fault)
{
    struct digest digest;
    if (detail->lane.len == 0) {
        return OK;
    }
    char *hex = arena_alloc(sender->arena, DIGEST_HEX_BYTES);
    if (hex == NULL) {
        return err_set(&fault->err, E_NOMEM, "out of memory");
    }
    digest_sha256(detail->lane.data, detail->lane.len, &digest);
    call->request.source = (struct source){
        .type = SLICE_LIT(LANE_FIRST), .id = slice_str(digest_put_hex(hex, &digest))};
    return OK;
}

static enum status take_detail(const struct effect_sender *sender,
    const struct effect_parts *envelope, struct engine_call *call, struct effect_detail *detail,
    struct member_fault *fault)
{
    struct naming naming;
    const struct json_value *refs = envelope->values[POLICY_REFS];
    const struct json_value *target = envelope->values[TARGET];
    detail->effect_id = envelope->effect_id;
    detail->command_id = envelope->command_id;
    detail->target = target == NULL ? SLICE_EMPTY : json_raw(sender->text, target);
    detail->policy_refs = refs == NULL ? SLICE_EMPTY : json_raw(sender->text, refs);
    (void)(envelope->values[ORDINAL] != NULL &&
           json_int(envelope->values[ORDINAL], &detail->ordinal));
    name_all(envelope, &call->request.key, &naming);
    enum status status = try_templates(envelope, &naming, detail, fault);
    status = status == OK ? take_lane(sender, detail, call, fault) : status;
    status = status == OK ? keep_extensions(sender, envelope, detail, fault) : status;
    status = status == OK ? keep_redacted(sender, envelope, call, detail, fault) : status;
    status = status == OK ? keep_undo(sender, envelope, call, &naming, detail, fault) : status;
    return status == OK ? put_detail(sender, detail, call, fault) : status;
}

static enum status make_call(const struct effect_sender *sender,
    const struct effect_parts *envelope, struct engine_call *call, struct effect_order *order,
    struct effect_detail *detail, struct member_fault *fault)
{
    call->arena = sender->arena;
    call->request = (struct request){.kind = REQUEST_ENQUEUE,
        .record_kind = RECORD_EFFECT,
        .policy = policy_default,
        .actor = sender->actor,
        .door = RECORD_DOOR_EFFECTS};
    call->request.policy.window_ms = envelope->type->window_ms;
    call->request.policy.deadline_ms =
        envelope->type->order == NULL ? 0 : envelope->type->deadline_ms;
    /* An effect that can be looked up or sent again is reconciled automatically when it is
     * unknown. */
    call->request.policy.on_unknown = config_connector_is_shielded(envelope->type->connector)
                                          ? ON_UNKNOWN_RECONCILE
                                          : ON_UNKNOWN_HOLD;
    order->type = envelope->type;
    enum status status = take_key(sender, envelope, call, fault);
    status = status == OK ? take_not_before(envelope, call, fault) : status;
    status = status == OK ? take_payload(sender, envelope, call, order, fault) : status;
    status = status == OK ? take_detail(sender, envelope, call, detail, fault) : status;
    const struct json_value *trace = envelope->values[TRACE];
    if (status == OK && trace == NULL && sender->trace.len > 0) {
        status = json_read(sender->trace, sender->arena, &trace, &fault->err);
    }
    status = status == OK ? builder_trace(trace, sender->request_id, sender->traceparent,
                                &envelope->mem, &call->request.trace, &fault->err)
                          : status;
    return status == OK ? builder_check(call, &fault->err) : status;
}

enum status effect_envelope_read(const struct effect_sender *sender, const struct json_value *value,
    struct engine_call *call, struct effect_order *ret_order, struct member_fault *fault)
{
    struct effect_parts envelope = {
        .command_id = sender->command_id, .object = value, .mem = arena_mem(sender->arena)};
    struct effect_detail detail = {.ordinal = 0};
    *fault = (struct member_fault){.code = NULL};
    if (!json_is(value, JSON_OBJECT)) {
        return member_refuse(fault, "invalid_body", "an effect is not a JSON object");
    }
    enum status status = members_read(&table, value, &envelope, envelope.values, fault);
    status = status == OK ? check_names(&envelope, fault) : status;
    status = status == OK ? take_type(sender, &envelope, fault) : status;
    status = status == OK ? check_members(sender, &envelope, fault) : status;
    call->wait_ms = envelope.wait_ms;
    return status == OK ? make_call(sender, &envelope, call, ret_order, &detail, fault) : status;
}

/* ---- compensation ------------------------------------------------------------------------ */

/* Fill one of the two templates, and read the result. */
static enum status put_undo(const struct json_value *tree, const struct template_roots *roots,
    struct arena *arena, const struct json_value **ret_value, struct slice *ret_text,
    struct err *err)
{
    struct mem mem = arena_mem(arena);
    struct buf out;
    buf_init(&out, &mem, EFFECT_PAYLOAD_BYTES_MAX);
    enum status status = template_put_json(tree, roots, &out, err);
    *ret_text = buf_view(&out);
    return status == OK ? json_read(*ret_text, arena, ret_value, err) : status;
}

/* Read the values that were kept when the effect was made. */
static enum status open_undo(const struct effect_sender *sender, const struct record *record,
    const struct effect_detail *detail, const struct json_value **ret_known, struct err *err)
{
    struct mem mem = arena_mem(sender->arena);
    struct buf out;
    if (detail->undo.len == 0) {
        return err_set(err, E_INVALID,
            "the effect was made when its type had no compensation: nothing was kept for one");
    }
    buf_init(&out, &mem, LIMIT_DETAIL_BYTES_MAX);
    enum status status = effect_open(sender->vault, &record->key, detail->undo, &out, err);
    return status == OK ? json_read(buf_view(&out), sender->arena, ret_known, err) : status;
}

/* Make an envelope from values: the parts of the envelope point into its text. */
static enum status undo_envelope(const struct effect_sender *sender,
    const struct config_effect *type, const struct record *record,
    const struct effect_detail *detail, struct effect_sender *ret_sender,
    const struct json_value **ret_envelope, struct err *err)
{
    struct json_value ref = template_string(detail->provider_ref);
    struct template_root root = {
        SLICE_LIT("provider_ref"), detail->provider_ref.len == 0 ? NULL : &ref};
    struct template_roots roots = {.items = &root, .count = 1};
    struct json_value items[2];
    struct json_value tree;
    struct mem mem = arena_mem(sender->arena);
    struct buf text;
    const struct json_value *part = NULL;
    struct slice payload = SLICE_EMPTY, target = SLICE_EMPTY;
    bool has_target = detail->target.len > 0 || type->compensate_target != NULL;
    enum status status = open_undo(sender, record, detail, &roots.known, err);
    undo_tree(type, has_target, items, &tree);
    status =
        status == OK ? put_undo(&items[0], &roots, sender->arena, &part, &payload, err) : status;
    if (status == OK && has_target) {
        status = put_undo(&items[1], &roots, sender->arena, &part, &target, err);
    }
    if (status != OK) {
        return status;
    }
    buf_init(&text, &mem, FORM_BYTES_MAX);
    buf_str(&text, "{\"effect_type\":");
    jcs_put_string(&text, slice_str(type->compensate->name));
    buf_str(&text, ",\"payload\":");
    buf_slice(&text, payload);
    if (has_target) {
        buf_str(&text, ",\"target\":");
        buf_slice(&text, target);
    }
    buf_char(&text, '}');
    *ret_sender = *sender;
    ret_sender->text = buf_view(&text);
    ret_sender->command_id = detail->command_id;
    status = buf_status(&text);
    return status == OK ? json_read(ret_sender->text, sender->arena, ret_envelope, err) : status;
}

enum status effect_undo_make(const struct effect_sender *sender, const struct record *record,
    const struct effect_detail *detail, struct engine_call *call, struct err *err)
{
    const struct config_effect *type = config_effect_find(sender->types, record->key.scope);
    struct effect_sender inner;
    struct effect_parts envelope = {.mem = arena_mem(sender->arena)};
    struct effect_order order;
    struct effect_detail made = {.compensates = record->operation_id};
    struct member_fault fault = {.code = NULL};
    struct record_key key;
    if (type == NULL || type->compensate == NULL) {
        return err_set(err, E_INVALID, "effect type '%.*s' has no compensation",
            SLICE_ARGS(record->key.scope));
    }
    enum status status = undo_envelope(sender, type, record, detail, &inner, &envelope.object, err);
    status = status == OK ? effect_undo_key(
                                record, slice_str(type->compensate->name), sender->arena, &key, err)
                          : status;
    if (status != OK) {
        return status;
    }
    envelope.command_id = inner.command_id;
    status = members_read(&table, envelope.object, &envelope, envelope.values, &fault);
    envelope.idempotency_key = key.key;
    status = status == OK ? take_type(&inner, &envelope, &fault) : status;
    status = status == OK ? check_members(&inner, &envelope, &fault) : status;
    status = status == OK ? make_call(&inner, &envelope, call, &order, &made, &fault) : status;
    call->request.policy.retry_failed = true;
    call->request.policy.retry_rejected = true;
    if (status != OK) {
        *err = fault.err;
    }
    return status;
}

enum status effect_undo_calls(const struct effect_sender *sender, const struct record *record,
    struct effect_detail *detail, struct engine_call *own, struct engine_call *undo,
    struct err *err)
{
    const struct config_effect *type = config_effect_find(sender->types, record->key.scope);
    struct engine_call made = {.arena = NULL};
    struct member_fault fault = {.code = NULL};
    enum status status = effect_undo_make(sender, record, detail, &made, err);
    if (status == OK) {
        status =
            arena_copy(sender->arena, slice_str(type->compensate->name), &detail->compensation);
    }
    if (status != OK) {
        return status;
    }
    undo->request = made.request;
    undo->request_body = made.request_body;
    own->request.kind = REQUEST_COMPENSATE;
    own->request.operation_id = record->operation_id;
    own->request.key = record->key;
    status = put_detail(sender, detail, own, &fault);
    *err = status == OK ? *err : fault.err;
    return status;
}
