#include "inbox/event.h"

#include "base/check.h"
#include "base/limits.h"
#include "base/macros.h"
#include "base/name.h"
#include "canon/jcs.h"
#include "canon/json_mask.h"
#include "inbox/event_impl.h"
#include "inbox/version.h"

enum { ITEMS_AT_FIRST = 8 };

enum status event_no_memory(struct event_reader *reader)
{
    return err_set(reader->err, E_NOMEM, "out of memory");
}

void event_buf(struct event_reader *reader, struct buf *ret_out)
{
    struct mem *mem = arena_alloc(reader->arena, sizeof *mem);
    buf_init(ret_out, mem, mem == NULL ? 0 : SIZE_MAX / 2); /* the arena has the bound */
    if (mem == NULL) {
        ret_out->status = E_NOMEM;
    } else {
        *mem = arena_mem(reader->arena);
    }
}

struct event *event_add(struct event_reader *reader)
{
    struct events *events = reader->events;
    if (events->count == LIMIT_GROUP_REQUESTS_MAX) {
        (void)err_set(reader->err, E_LIMIT, "more events than group_requests_max (%d)",
            LIMIT_GROUP_REQUESTS_MAX);
        return NULL;
    }
    if (events->count == reader->room) {
        size_t room = reader->room == 0 ? ITEMS_AT_FIRST : 2 * reader->room;
        struct event *items = arena_zalloc(reader->arena, room * sizeof *items);
        if (items == NULL) {
            (void)event_no_memory(reader);
            return NULL;
        }
        if (events->count > 0) {
            memcpy(items, events->items, events->count * sizeof *items);
        }
        events->items = items;
        reader->room = room;
    }
    return &events->items[events->count++];
}

struct slice event_text(const struct json_value *value)
{
    return json_is(value, JSON_STRING) || json_is(value, JSON_NUMBER) ? json_text(value)
                                                                      : SLICE_EMPTY;
}

/* ---- keys ---------------------------------------------------------------------------------- */

enum status event_digest_of(struct event_reader *reader, struct slice text, struct slice *ret_text)
{
    static const struct slice prefix = SLICE_INIT("sha256:");
    struct digest digest;
    char *place = arena_alloc(reader->arena, prefix.len + DIGEST_HEX_BYTES);
    if (place == NULL) {
        return event_no_memory(reader);
    }
    digest_sha256(text.data, text.len, &digest);
    memcpy(place, prefix.data, prefix.len);
    (void)digest_put_hex(place + prefix.len, &digest);
    *ret_text = slice_of(place, prefix.len + DIGEST_HEX_BYTES - 1);
    return OK;
}

enum status event_key_of(struct event_reader *reader, struct slice name, struct slice *ret_key)
{
    if (name.len > LIMIT_KEY_BYTES_MAX || !name_valid(name)) {
        return event_digest_of(reader, name, ret_key);
    }
    *ret_key = name;
    return OK;
}

/* The id and the digest of the body: the signature covers only the body. */
static enum status key_beside_digest(
    struct event_reader *reader, struct slice id, struct slice *ret_key)
{
    struct buf out;
    struct digest digest;
    digest_sha256(reader->body.data, reader->body.len, &digest);
    event_buf(reader, &out);
    buf_slice(&out, id);
    buf_char(&out, '.');
    buf_hex(&out, digest.bytes, sizeof digest.bytes);
    return buf_status(&out) == OK ? event_key_of(reader, buf_view(&out), ret_key)
                                  : event_no_memory(reader);
}

static enum status take_key(struct event_reader *reader, struct event *event, struct slice named_by)
{
    if (event->key.len > 0) {
        return OK;
    }
    if (event->id.len == 0) {
        return event_digest_of(reader, named_by, &event->key);
    }
    return event_key_of(reader, event->id, &event->key);
}

/* ---- the fingerprint ----------------------------------------------------------------------- */

static size_t ignored_count(const struct preset *preset)
{
    size_t count = 0;
    while (count < PRESET_IGNORED_MAX && preset->ignored[count] != NULL) {
        count++;
    }
    return count;
}

/* The canonical form without the members that differ between two sends; the bytes if there is
 * none. */
static enum status take_payload(
    struct event_reader *reader, struct event *event, const struct json_value *value)
{
    const struct preset *preset = reader->rule->preset;
    struct json_mask_list list = {preset->ignored, ignored_count(preset), JSON_MASK_OMITTED};
    struct json_mask marks = {NULL, 0};
    struct jcs_report report = {0};
    struct buf form;
    event_buf(reader, &form);
    enum status status = E_INVALID;
    if (value != NULL) {
        if (json_mask_make(value, &list, 1, reader->arena, &marks) != OK) {
            return event_no_memory(reader);
        }
        status = jcs_write_marked(value, &(struct jcs_how){.marks = &marks}, &form, &report, NULL);
    }
    if (status == E_NOMEM || status == E_LIMIT) {
        return event_no_memory(reader);
    }
    bool is_canonical = status == OK && report.lossy_count == 0;
    event->payload.version = is_canonical ? FINGERPRINT_CANONICAL : FINGERPRINT_RAW;
    event->payload.form = is_canonical ? buf_view(&form) : event->bytes;
    digest_sha256(event->payload.form.data, event->payload.form.len, &event->payload.digest);
    return OK;
}

/* An event that does not name its source and version is not ordered. */
enum status event_order(
    struct event_reader *reader, struct event *event, const struct json_value *value)
{
    const struct event_rule *rule = reader->rule;
    if (rule->order_source.len == 0 || value == NULL) {
        return OK;
    }
    const struct json_value *version = json_at(value, rule->order_version);
    struct slice id = event_text(json_at(value, rule->order_source));
    struct slice text = event_text(version);
    char *place = arena_alloc(reader->arena, VERSION_TEXT_BYTES);
    if (place == NULL) {
        return event_no_memory(reader);
    }
    size_t len = version_put(place, text, json_is(version, JSON_NUMBER));
    if (id.len == 0 || id.len > LIMIT_SOURCE_BYTES_MAX || !name_valid(id) || len == 0) {
        return OK;
    }
    event->source = (struct source){.type = rule->name, .id = id, .version = slice_of(place, len)};
    return OK;
}

enum status event_finish(struct event_reader *reader, struct event *event, struct slice named_by,
    const struct json_value *value)
{
    reader->bytes += event->bytes.len;
    if (reader->bytes > EVENT_BYTES_MAX) {
        return err_set(
            reader->err, E_LIMIT, "the events have more than %d bytes", (int)EVENT_BYTES_MAX);
    }
    enum status status = take_key(reader, event, named_by);
    status = status == OK ? take_payload(reader, event, value) : status;
    return status == OK ? event_order(reader, event, value) : status;
}

/* ---- one event ----------------------------------------------------------------------------- */

/* A repeated field names nothing. */
static struct slice field_of(const struct event_reader *reader, struct slice name)
{
    struct slice value = SLICE_EMPTY;
    return name.len > 0 && http_find_single(reader->head, name, &value) ? value : SLICE_EMPTY;
}

static enum status read_whole(struct event_reader *reader)
{
    const struct event_rule *rule = reader->rule;
    const struct preset *preset = rule->preset;
    bool has_own = rule->id_field.len + rule->id_pointer.len > 0;
    struct slice pointer = has_own ? rule->id_pointer : preset->id_pointer;
    struct event *event = event_add(reader);
    if (event == NULL) {
        return reader->err->status;
    }
    event->bytes = reader->body;
    event->type = reader->type;
    event->id = field_of(reader, has_own ? rule->id_field : preset->id_field);
    if (event->id.len == 0 && !has_own) {
        event->id = field_of(reader, preset->id_field_again);
    }
    bool is_signed = preset->is_id_signed && !(has_own && preset->is_signed);
    if (event->id.len == 0 && pointer.len > 0 && reader->root != NULL) {
        event->id = event_text(json_at(reader->root, pointer));
        is_signed = true; /* a part of the body */
    }
    enum status status = OK;
    if (event->id.len > 0 && !is_signed) {
        status = key_beside_digest(reader, event->id, &event->key);
    }
    return status == OK ? event_finish(reader, event, reader->body, reader->root) : status;
}

/* ---- an effect envelope -------------------------------------------------------------------- */

/* The part of an envelope that says what to do: its attempt, times and trace differ between two
 * sends. */
static enum status put_compared(struct event_reader *reader, const struct json_value **ret_value)
{
    static const struct slice members[] = {SLICE_INIT("command_id"), SLICE_INIT("effect_type"),
        SLICE_INIT("ordinal"), SLICE_INIT("payload"), SLICE_INIT("target")};
    struct buf out;
    event_buf(reader, &out);
    char separator = '{';
    for (size_t i = 0; i < COUNT(members); i++) {
        const struct json_value *value = json_find(reader->root, members[i]);
        if (value != NULL) {
            buf_char(&out, separator);
            jcs_put_string(&out, members[i]);
            buf_char(&out, ':');
            buf_slice(&out, json_raw(reader->body, value));
            separator = ',';
        }
    }
    buf_char(&out, '}');
    return buf_status(&out) == OK ? json_read(buf_view(&out), reader->arena, ret_value, reader->err)
                                  : event_no_memory(reader);
}

static enum status read_envelope(struct event_reader *reader)
{
    const struct json_value *asked = NULL;
    const struct json_value *key = event_find(reader->root, "idempotency_key");
    const struct json_value *type = event_find(reader->root, "effect_type");
    if (!json_is(key, JSON_STRING) || key->count == 0) {
        return err_set(reader->err, E_INVALID,
            "the body is not an effect envelope: idempotency_key must be a text");
    }
    if (!json_is(type, JSON_STRING) || type->count == 0) {
        return err_set(reader->err, E_INVALID,
            "the body is not an effect envelope: effect_type must be a text");
    }
    struct event *event = event_add(reader);
    if (event == NULL) {
        return reader->err->status;
    }
    event->bytes = reader->body;
    event->type = reader->type;
    event->id = json_text(key);
    enum status status = put_compared(reader, &asked);
    return status == OK ? event_finish(reader, event, reader->body, asked) : status;
}

/* ---- all of them --------------------------------------------------------------------------- */

static enum status take_fields(struct event_reader *reader)
{
    struct buf out;
    event_buf(reader, &out);
    for (uint32_t i = 0; i < reader->head->field_count; i++) {
        const struct http_field *field = &reader->head->fields[i];
        struct slice name = http_text(reader->head, field->name);
        struct slice value = http_text(reader->head, field->value);
        if (preset_passes(reader->rule->preset, name) &&
            out.len + name.len + value.len + 4 <= EVENT_FIELDS_BYTES_MAX) {
            buf_slice(&out, name);
            buf_str(&out, ": ");
            buf_slice(&out, value);
            buf_str(&out, "\r\n");
        }
    }
    reader->events->fields = buf_view(&out);
    return buf_status(&out) == OK ? OK : event_no_memory(reader);
}

/* A body that is not JSON is still an event, if the sender's events need not be JSON. */
static enum status read_root(struct event_reader *reader)
{
    if (reader->body.len == 0) {
        return OK;
    }
    enum status status = json_read(reader->body, reader->arena, &reader->root, NULL);
    if (status == E_NOMEM) {
        return event_no_memory(reader);
    }
    reader->root = status == OK ? reader->root : NULL;
    return OK;
}

enum status events_read(const struct event_rule *rule, const struct http_head *head,
    struct slice body, struct arena *arena, struct events *ret_events, struct err *err)
{
    struct events events = {.count = 0};
    struct err unused = {.status = OK};
    struct event_reader reader = {.rule = rule,
        .head = head,
        .body = body,
        .arena = arena,
        .events = &events,
        .err = err == NULL ? &unused : err};
    reader.type = field_of(&reader, SLICE_LIT("Content-Type"));
    enum status status = read_root(&reader);
    if (status == OK) {
        switch (rule->preset->split) {
        case PRESET_WHOLE: status = read_whole(&reader); break;
        case PRESET_OF_META: status = event_read_meta(&reader); break;
        case PRESET_OF_EVENTS: status = event_read_cloud(&reader); break;
        case PRESET_OF_ENVELOPE: status = read_envelope(&reader); break;
        }
    }
    status = status == OK ? take_fields(&reader) : status;
    if (status == OK) {
        *ret_events = events;
    }
    return status;
}
