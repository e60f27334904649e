#include "inbox/message.h"

#include <stdio.h>

#include "base/buf.h"

#define STRUCTURED "application/cloudevents+json"

enum { MESSAGE_HEAD_BYTES_MAX = 64 << 10 }; /* of the head made from its fields */

static bool is_token(struct slice name)
{
    for (size_t i = 0; i < name.len; i++) {
        char c = name.data[i];
        bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        if (!is_letter && !(c >= '0' && c <= '9') && c != '-' && c != '_' && c != '.') {
            return false;
        }
    }
    return name.len > 0;
}

/* Whether a header field can hold the value unchanged. */
static bool is_plain(struct slice value)
{
    for (size_t i = 0; i < value.len; i++) {
        unsigned char c = (unsigned char)value.data[i];
        if (c < 0x20 || c == 0x7f) {
            return false;
        }
    }
    return true;
}

static bool begins(struct slice name, const char *prefix)
{
    size_t len = strlen(prefix);
    return name.len >= len && http_same_name(slice_of(name.data, len), slice_str(prefix));
}

/* CloudEvents' HTTP binding, section 3.1.3.2: the event's reader decodes it again. */
static void put_encoded(struct buf *out, struct slice value)
{
    for (size_t i = 0; i < value.len; i++) {
        unsigned char c = (unsigned char)value.data[i];
        if (c <= 0x20 || c >= 0x7f || c == '"' || c == '%') {
            char coded[4];
            (void)snprintf(coded, sizeof coded, "%%%02X", c);
            buf_str(out, coded);
        } else {
            buf_char(out, (char)c);
        }
    }
}

static void put_field(struct buf *out, struct slice name, struct slice value, bool is_encoded)
{
    buf_slice(out, name);
    buf_str(out, ": ");
    if (is_encoded) {
        put_encoded(out, value);
    } else {
        buf_slice(out, value);
    }
    buf_str(out, "\r\n");
}

/* The media type: the message's own, or what its bytes look like. */
static struct slice type_of(const struct event_rule *rule, const struct broker_message *message)
{
    size_t at = 0;
    if (rule->preset->split == PRESET_OF_EVENTS && !message->is_binary) {
        return SLICE_LIT(STRUCTURED); /* whatever the message says: it is one event */
    }
    if (message->type.len > 0) {
        return message->type;
    }
    while (at < message->body.len && strchr(" \t\r\n", message->body.data[at]) != NULL) {
        at++;
    }
    bool is_json =
        at < message->body.len && (message->body.data[at] == '{' || message->body.data[at] == '[');
    return is_json ? SLICE_LIT("application/json") : SLICE_LIT("application/octet-stream");
}

static enum status put_fields(const struct event_rule *rule, const struct broker_message *message,
    struct buf *out, struct err *err)
{
    for (size_t i = 0; i < message->field_count; i++) {
        const struct broker_field *field = &message->fields[i];
        bool is_key = rule->id_field.len > 0 && http_same_name(field->name, rule->id_field);
        bool is_attribute = message->is_binary && begins(field->name, "ce-");
        bool is_passed =
            begins(field->name, "x-") || http_same_name(field->name, SLICE_LIT("content-encoding"));
        if (is_key && !is_plain(field->value)) {
            return err_set(err, E_INVALID,
                "the field '%.*s' that names the message has control "
                "characters",
                SLICE_ARGS(field->name));
        }
        if (is_token(field->name) &&
            (is_attribute || is_key || (is_passed && is_plain(field->value)))) {
            put_field(out, field->name, field->value, is_attribute);
        }
    }
    return OK;
}

static enum status make_head(const struct event_rule *rule, const struct broker_message *message,
    struct buf *out, struct http_head *ret_head, struct err *err)
{
    struct http_limits limits = HTTP_LIMITS_DEFAULT;
    struct http_refusal refusal;
    struct slice type = type_of(rule, message);
    if (!is_plain(type)) {
        return err_set(err, E_INVALID, "the content type of the message has control characters");
    }
    buf_str(out, "POST / HTTP/1.1\r\nHost: queue\r\n");
    put_field(out, SLICE_LIT("Content-Type"), type, false);
    enum status status = put_fields(rule, message, out, err);
    buf_str(out, "\r\n");
    if (status != OK) {
        return status;
    }
    if (buf_status(out) != OK) {
        return err_set(err, buf_status(out), "the fields of the message are too long");
    }
    http_head_init(ret_head);
    return http_request_head(buf_view(out), &limits, ret_head, &refusal) == HTTP_DONE
               ? OK
               : err_set(err, E_INVALID, "the fields of the message are too many or too long");
}

enum status message_read(const struct event_rule *rule, const struct broker_message *message,
    struct arena *arena, struct events *ret_events, struct err *err)
{
    struct mem *mem = arena_alloc(arena, sizeof *mem);
    struct http_head *head = arena_alloc(arena, sizeof *head);
    struct events events = {.count = 0};
    struct buf out;
    if (mem == NULL || head == NULL) {
        return err_set(err, E_NOMEM, "out of memory");
    }
    *mem = arena_mem(arena);
    buf_init(&out, mem, MESSAGE_HEAD_BYTES_MAX);
    enum status status = make_head(rule, message, &out, head, err);
    status = status == OK ? events_read(rule, head, message->body, arena, &events, err) : status;
    if (status == OK && events.count != 1) {
        status = err_set(err, E_INVALID, "a message must be one event");
    }
    bool is_named = rule->id_field.len + rule->id_pointer.len == 0 ||
                    (status == OK && events.items[0].id.len > 0);
    if (status == OK && !is_named) {
        status = err_set(err, E_INVALID, "the message has no key");
    }
    if (status == OK) {
        *ret_events = events;
    }
    return status;
}
