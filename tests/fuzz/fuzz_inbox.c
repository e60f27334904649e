/*
 * fuzz_inbox: webhook requests and messages of queues, of any bytes.
 *
 * The first byte names the preset, the rest is a head and a body. None may verify, because the
 * corpus does not have the secret. Its events have keys that can be stored, whatever they are. From
 * 128 on it is a message: "name value" in lines, an empty line, the body.
 */
#include <stdint.h>

#include "base/check.h"
#include "base/limits.h"
#include "base/name.h"
#include "inbox/message.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define NOW_MS INT64_C(1700000000000)

static void check_signature(
    const struct preset *preset, const struct http_head *head, struct slice body)
{
    static const char *const secrets[] = {"whsec_2bTpC3pLJ9cQvS7mYhTn0fXk1aWzRdEo",
        "whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4="};
    struct arena arena;
    arena_init(&arena, &mem_libc, 1 << 22);
    for (size_t i = 0; i < sizeof secrets / sizeof secrets[0]; i++) {
        struct signature_secret secret;
        size_t which = 0;
        ASSERT(
            signature_secret_read(&preset->signature, slice_str(secrets[i]), &secret, NULL) == OK);
        ASSERT(signature_verify(&preset->signature, &(struct signature_keys){&secret, 1}, head,
                   body, NOW_MS, &arena, &which) != SIGNATURE_OK);
    }
    arena_release(&arena);
}

static void check_event(const struct event *event)
{
    ASSERT(event->key.len > 0 && event->key.len <= LIMIT_KEY_BYTES_MAX && name_valid(event->key));
    ASSERT(event->source.id.len <= LIMIT_SOURCE_BYTES_MAX && name_valid(event->source.id));
    ASSERT(
        event->source.version.len <= LIMIT_SOURCE_BYTES_MAX && name_valid(event->source.version));
    ASSERT((event->source.id.len > 0) == (event->source.version.len > 0));
}

static void check_events(
    const struct preset *preset, const struct http_head *head, struct slice body)
{
    struct event_rule rule = {.preset = preset,
        .name = SLICE_LIT("fuzz"),
        .order_source = SLICE_LIT("/data/object/id"),
        .order_version = SLICE_LIT("/created")};
    struct arena arena;
    struct events events = {.count = 0};
    struct err err = {.status = OK};
    arena_init(&arena, &mem_libc, 1 << 28);
    enum status status = events_read(&rule, head, body, &arena, &events, &err);
    ASSERT(status == OK || err.text[0] != '\0');
    for (size_t i = 0; i < events.count; i++) {
        check_event(&events.items[i]);
    }
    arena_release(&arena);
}

static struct slice take_until(struct slice *text, char mark)
{
    const char *at = text->len == 0 ? NULL : memchr(text->data, mark, text->len);
    struct slice found = at == NULL ? *text : slice_of(text->data, (size_t)(at - text->data));
    *text = at == NULL ? SLICE_EMPTY : slice_of(at + 1, text->len - found.len - 1);
    return found;
}

static void check_message(unsigned form, struct slice text)
{
    struct broker_field fields[16];
    struct broker_message message = {
        .id = SLICE_LIT("1-0"), .is_binary = (form & 1) != 0, .fields = fields};
    struct event_rule rule = {
        .preset = &presets[(form & 2) != 0 ? PRESET_NONE : PRESET_CLOUDEVENTS],
        .name = SLICE_LIT("fuzz"),
        .id_field = (form & 4) != 0 ? SLICE_LIT("order-id") : SLICE_EMPTY,
        .order_source = SLICE_LIT("/data/object/id"),
        .order_version = SLICE_LIT("/created")};
    struct arena arena;
    struct events events = {.count = 0};
    struct err err = {.status = OK};
    message.type = take_until(&text, '\n');
    while (message.field_count < 16) {
        struct slice line = take_until(&text, '\n');
        if (line.len == 0) {
            break;
        }
        struct slice name = take_until(&line, ' ');
        fields[message.field_count++] = (struct broker_field){name, line};
    }
    message.body = text;
    arena_init(&arena, &mem_libc, 1 << 28);
    enum status status = message_read(&rule, &message, &arena, &events, &err);
    ASSERT(status == OK ? events.count == 1 : err.text[0] != '\0');
    if (status == OK) {
        check_event(&events.items[0]);
    }
    arena_release(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct http_limits limits = {.head_bytes_max = 16 << 10,
        .target_bytes_max = 8000,
        .fields_max = HTTP_FIELDS_MAX,
        .body_bytes_max = 1 << 20};
    struct http_head head;
    struct http_refusal refusal;
    if (size == 0 || size > 1 << 18) {
        return 0;
    }
    struct slice text = slice_of(data + 1, size - 1);
    if (data[0] >= 128) {
        check_message(data[0], text);
        return 0;
    }
    http_head_init(&head);
    if (http_request_head(text, &limits, &head, &refusal) == HTTP_DONE) {
        struct slice body = slice_of(text.data + head.bytes, text.len - head.bytes);
        const struct preset *preset = &presets[data[0] % PRESETS];
        check_signature(preset, &head, body);
        check_events(preset, &head, body);
    }
    return 0;
}
