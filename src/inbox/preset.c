#include "inbox/preset.h"

#include "base/macros.h"

#define MINUTE_MS INT64_C(60000)
#define HOUR_MS   (60 * MINUTE_MS)
#define DAY_MS    (24 * HOUR_MS)

const struct preset presets[PRESETS] = {
    [PRESET_STRIPE] = {.name = "stripe",
        .signature = {.scheme = SIGNATURE_STRIPE},
        .is_signed = true,
        .id_pointer = SLICE_INIT("/id"),
        .is_id_signed = true,
        .ignored = {"/pending_webhooks"}, /* how many endpoints have not answered yet */
        .passed = "stripe-",
        .horizon_ms = 30 * DAY_MS, /* 3 d by itself; a person resends the last 30 d */
        .window_ms = 31 * DAY_MS},
    [PRESET_GITHUB] = {.name = "github",
        .signature = {.scheme = SIGNATURE_BODY,
            .field = SLICE_INIT("X-Hub-Signature-256"),
            .prefix = SLICE_INIT("sha256=")},
        .is_signed = true,
        .id_field = SLICE_INIT("X-GitHub-Delivery"),
        .passed = "x-github- x-hub-",
        .horizon_ms = 7 * DAY_MS, /* a person redelivers: 3 d, of an enterprise server 7 d */
        .window_ms = 8 * DAY_MS},
    [PRESET_SHOPIFY] = {.name = "shopify",
        .signature = {.scheme = SIGNATURE_BODY,
            .encoding = SIGNATURE_BASE64,
            .field = SLICE_INIT("X-Shopify-Hmac-SHA256"),
            .field_again = SLICE_INIT("Shopify-Hmac-SHA256")},
        .is_signed = true,
        .id_field = SLICE_INIT("X-Shopify-Webhook-Id"),
        .id_field_again = SLICE_INIT("X-Shopify-Event-Id"),
        .passed = "x-shopify- shopify-",
        .horizon_ms = 4 * HOUR_MS, /* 8 tries */
        .window_ms = 2 * DAY_MS},
    [PRESET_SLACK] = {.name = "slack",
        .signature = {.scheme = SIGNATURE_SLACK},
        .is_signed = true,
        .id_pointer = SLICE_INIT("/event_id"),
        .is_id_signed = true,
        .handshake = PRESET_HANDSHAKE_SLACK,
        .passed = "x-slack-",
        .horizon_ms = DAY_MS, /* 3 tries in 6 min; delayed events up to 24 h */
        .window_ms = 2 * DAY_MS},
    [PRESET_META] = {.name = "meta",
        .signature = {.scheme = SIGNATURE_BODY,
            .field = SLICE_INIT("X-Hub-Signature-256"),
            .prefix = SLICE_INIT("sha256=")},
        .is_signed = true,
        .split = PRESET_OF_META,
        .is_id_signed = true,
        .handshake = PRESET_HANDSHAKE_META,
        .passed = "x-hub-",
        .horizon_ms = 7 * DAY_MS,
        .window_ms = 14 * DAY_MS},
    [PRESET_STANDARD_WEBHOOKS] = {.name = "standard_webhooks",
        .signature = {.scheme = SIGNATURE_STANDARD, .family = SLICE_INIT("webhook-")},
        .is_signed = true,
        .id_field = SLICE_INIT("webhook-id"),
        .is_id_signed = true,
        .passed = "webhook-",
        .horizon_ms = 76 * HOUR_MS, /* the specification's example of a schedule */
        .window_ms = 7 * DAY_MS},
    [PRESET_SVIX] = {.name = "svix",
        .signature = {.scheme = SIGNATURE_STANDARD, .family = SLICE_INIT("svix-")},
        .is_signed = true,
        .id_field = SLICE_INIT("svix-id"),
        .id_field_again = SLICE_INIT("webhook-id"),
        .is_id_signed = true,
        .passed = "svix- webhook-",
        .horizon_ms = 28 * HOUR_MS, /* 8 tries; a person may replay longer */
        .window_ms = 14 * DAY_MS},
    [PRESET_HMAC] = {.name = "hmac",
        .signature = {.scheme = SIGNATURE_BODY, .field = SLICE_INIT("X-Signature")},
        .is_signed = true,
        .passed = "x-",
        .horizon_ms = 7 * DAY_MS, /* not known: what a careful sender does */
        .window_ms = 14 * DAY_MS},
    [PRESET_CLOUDEVENTS] = {.name = "cloudevents",
        .signature = {.scheme = SIGNATURE_BEARER},
        .split = PRESET_OF_EVENTS,
        .is_id_signed = true,
        .handshake = PRESET_HANDSHAKE_EVENTS,
        .ignored = {"/traceparent", "/tracestate"}, /* of the attempt, not of the event */
        .passed = "ce-",
        .horizon_ms = 7 * DAY_MS,
        .window_ms = 14 * DAY_MS},
    [PRESET_EFFECT] = {.name = "effect",
        .signature = {.scheme = SIGNATURE_BEARER},
        .split = PRESET_OF_ENVELOPE,
        .is_id_signed = true,
        .passed = "traceparent",
        .horizon_ms = 3 * DAY_MS, /* until a dispatcher's deadline; an operator may retry later */
        .window_ms = 14 * DAY_MS},
    [PRESET_NONE] = {.name = "none",
        .signature = {.scheme = SIGNATURE_BEARER},
        .is_id_signed = true, /* a sender can choose both: there is nothing to protect */
        .passed = "x-",
        .horizon_ms = 7 * DAY_MS,
        .window_ms = 14 * DAY_MS},
};

bool preset_find(struct slice name, enum preset_kind *ret_kind)
{
    for (size_t i = 0; i < COUNT(presets); i++) {
        if (slice_is(name, presets[i].name)) {
            *ret_kind = (enum preset_kind)i;
            return true;
        }
    }
    return false;
}

bool preset_passes(const struct preset *preset, struct slice name)
{
    if (http_same_name(name, SLICE_LIT("Content-Encoding"))) {
        return true; /* without it a handler could not read the event's own bytes */
    }
    for (const char *at = preset->passed; *at != '\0';) {
        size_t len = strcspn(at, " ");
        if (name.len >= len && http_same_name(slice_of(name.data, len), slice_of(at, len))) {
            return true;
        }
        at += len + (at[len] == ' ');
    }
    return false;
}
