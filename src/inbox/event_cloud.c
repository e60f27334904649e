/*
 * CloudEvents 1.0 over HTTP: structured (one JSON object), batch (a list of them) and binary (the
 * attributes in ce- fields, the data as the body). An event is named by its idempotencykey, else by
 * its source and id together, which the specification makes unique. It is compared as its JSON
 * object, so that the three ways of sending it are equal (GRD-9).
 */
#include "base/base64.h"
#include "base/macros.h"
#include "base/percent.h"
#include "canon/jcs.h"
#include "inbox/event_impl.h"

#define STRUCTURED "application/cloudevents+json"
#define BATCH      "application/cloudevents-batch+json"

/* Without its parameters. */
static struct slice media_of(struct slice type)
{
    const char *semicolon = type.len == 0 ? NULL : memchr(type.data, ';', type.len);
    return slice_trim(
        semicolon == NULL ? type : slice_of(type.data, (size_t)(semicolon - type.data)));
}

static bool ends(struct slice text, struct slice end)
{
    return text.len >= end.len &&
           http_same_name(slice_of(text.data + text.len - end.len, end.len), end);
}

/* "application/json" and "…+json" (specification, section 3.1). */
static bool is_json(struct slice media)
{
    return http_same_name(media, SLICE_LIT("application/json")) || ends(media, SLICE_LIT("+json"));
}

/* ---- one event ----------------------------------------------------------------------------- */

static enum status check(struct event_reader *reader, const struct json_value *event)
{
    static const char *const needed[] = {"specversion", "id", "source", "type"};
    if (!json_is(event, JSON_OBJECT)) {
        return err_set(reader->err, E_INVALID, "a CloudEvent must be a JSON object");
    }
    for (size_t i = 0; i < COUNT(needed); i++) {
        const struct json_value *value = event_find(event, needed[i]);
        if (!json_is(value, JSON_STRING) || value->count == 0) {
            return err_set(
                reader->err, E_INVALID, "the CloudEvent has no '%s' that is a text", needed[i]);
        }
    }
    if (!slice_is(json_text(event_find(event, "specversion")), "1.0")) {
        return err_set(reader->err, E_INVALID, "the CloudEvent's specversion is not 1.0");
    }
    return OK;
}

/* idempotencykey as it is; source and id as one object, never as joined texts (P13). */
static enum status take_name(
    struct event_reader *reader, const struct json_value *of, struct event *event)
{
    struct slice key = event_text(event_find(of, "idempotencykey"));
    event->id = json_text(event_find(of, "id"));
    if (key.len > 0) {
        return event_key_of(reader, key, &event->key);
    }
    struct buf out;
    event_buf(reader, &out);
    buf_str(&out, "{\"id\":");
    jcs_put_string(&out, event->id);
    buf_str(&out, ",\"source\":");
    jcs_put_string(&out, json_text(event_find(of, "source")));
    buf_char(&out, '}');
    return buf_status(&out) == OK ? event_digest_of(reader, buf_view(&out), &event->key)
                                  : event_no_memory(reader);
}

static enum status add(
    struct event_reader *reader, const struct json_value *of, struct slice bytes, struct slice type)
{
    enum status status = check(reader, of);
    if (status != OK) {
        return status;
    }
    struct event *event = event_add(reader);
    if (event == NULL) {
        return reader->err->status;
    }
    event->bytes = bytes;
    event->type = type;
    status = take_name(reader, of, event);
    return status == OK ? event_finish(reader, event, bytes, of) : status;
}

static enum status read_batch(struct event_reader *reader)
{
    if (!json_is(reader->root, JSON_ARRAY)) {
        return err_set(reader->err, E_INVALID, "a batch of CloudEvents must be a JSON list");
    }
    enum status status = OK;
    for (uint32_t i = 0; status == OK && i < reader->root->count; i++) {
        const struct json_value *one = &reader->root->items[i];
        status = add(reader, one, json_raw(reader->body, one), SLICE_LIT(STRUCTURED));
        if (status != OK) {
            err_prefix(reader->err, "event %u", i);
        }
    }
    return status;
}

/* ---- binary -------------------------------------------------------------------------------- */

/* HTTP binding, section 3.1.3.2: bytes may be percent-encoded. Invalid encodings are left as they
 * are. */
static void put_decoded(struct event_reader *reader, struct buf *out, struct slice value)
{
    struct buf text;
    event_buf(reader, &text);
    for (size_t i = 0; i < value.len; i++) {
        char c = value.data[i];
        if (c == '%' && percent_read(slice_of(value.data + i, value.len - i), &c)) {
            i += 2;
        }
        buf_char(&text, c);
    }
    if (buf_status(&text) != OK) {
        out->status = buf_status(&text);
        return;
    }
    jcs_put_string(out, buf_view(&text));
}

/* A name has only lower-case letters and digits (specification, section 2.1). */
static bool is_attribute(struct slice name)
{
    for (size_t i = 0; i < name.len; i++) {
        char c = name.data[i];
        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'))) {
            return false;
        }
    }
    return name.len > 0;
}

static void put_attributes(struct event_reader *reader, struct buf *out)
{
    static const struct slice prefix = SLICE_INIT("ce-");
    const struct http_head *head = reader->head;
    for (uint32_t i = 0; i < head->field_count; i++) {
        struct slice name = http_text(head, head->fields[i].name);
        if (name.len <= prefix.len || !http_same_name(slice_of(name.data, prefix.len), prefix) ||
            !is_attribute(slice_of(name.data + prefix.len, name.len - prefix.len))) {
            continue;
        }
        buf_char(out, '"');
        for (size_t j = prefix.len; j < name.len; j++) {
            char c = name.data[j];
            buf_char(out, c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c);
        }
        buf_str(out, "\":");
        put_decoded(reader, out, http_text(head, head->fields[i].value));
        buf_char(out, ',');
    }
}

static void put_data(struct event_reader *reader, struct buf *out)
{
    struct slice body = reader->body;
    if (body.len == 0) {
        return;
    }
    if (reader->root != NULL && is_json(media_of(reader->type))) {
        buf_str(out, ",\"data\":");
        buf_slice(out, body);
        return;
    }
    buf_str(out, ",\"data_base64\":\"");
    char *text = buf_extend(out, BASE64_TEXT_BYTES(body.len));
    if (text != NULL) {
        char *end = base64_put(text, body.data, body.len, BASE64_PADDED);
        out->len -= BASE64_TEXT_BYTES(body.len) - (size_t)(end - text);
    }
    buf_char(out, '"');
}

/* Turn it into the equivalent structured event. */
static enum status read_binary(struct event_reader *reader)
{
    struct buf out;
    const struct json_value *of = NULL;
    event_buf(reader, &out);
    buf_char(&out, '{');
    put_attributes(reader, &out);
    buf_str(&out, "\"datacontenttype\":");
    jcs_put_string(&out, media_of(reader->type));
    put_data(reader, &out);
    buf_char(&out, '}');
    if (buf_status(&out) != OK) {
        return event_no_memory(reader);
    }
    /* A repeated field is a repeated member: refused. */
    enum status status = json_read(buf_view(&out), reader->arena, &of, reader->err);
    if (status != OK) {
        err_prefix(reader->err, "the fields of the CloudEvent");
        return status;
    }
    return add(reader, of, reader->body, reader->type);
}

enum status event_read_cloud(struct event_reader *reader)
{
    struct slice media = media_of(reader->type);
    if (http_same_name(media, SLICE_LIT(BATCH))) {
        return read_batch(reader);
    }
    if (http_same_name(media, SLICE_LIT(STRUCTURED))) {
        return reader->root != NULL
                   ? add(reader, reader->root, reader->body, reader->type)
                   : err_set(reader->err, E_INVALID, "the CloudEvent is not valid JSON");
    }
    return read_binary(reader);
}
