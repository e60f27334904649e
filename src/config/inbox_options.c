/* The table of all settings of a source and of a queue of the inbox. The example file is made from
 * these words. */
#include <stddef.h>

#include "base/limits.h"
#include "config/impl.h"

/* For sources and queues, for sources only, for queues only. */
#define AT(member)                                                                                 \
    .in = CONFIG_IN_ENTRY | CONFIG_IN_QUEUE, .offset = offsetof(struct config_source, member)
#define OF_SOURCE(member) .in = CONFIG_IN_ENTRY, .offset = offsetof(struct config_source, member)
#define OF_QUEUE(member)  .in = CONFIG_IN_QUEUE, .offset = offsetof(struct config_source, member)
#define COUNTED(member)   .count = offsetof(struct config_source, member)

enum {
    SECOND_MS = 1000,
    HOUR_MS = 3600 * SECOND_MS,
    ATTEMPTS_MAX = 1000,
    CONCURRENCY_MAX = 4096,
    RATE_MAX = 1000000,
    PREFETCH_MAX = 4096, /* each is searched for by its id */
};
#define DAY_MS (UINT64_C(24) * HOUR_MS)

const struct config_option config_source_options[] = {
    ROW("from", TEXT, OF_QUEUE(from), .form = CONFIG_FORM_LINE,
        .example = "redis://127.0.0.1:6379/orders?group=once",
        .help =
            "The broker and the queue: "
            "redis://[USER:PASSWORD@]HOST[:PORT]/STREAM?group=once, amqp://…/QUEUE, "
            "nats://…/STREAM?durable=once or kafka://…/TOPIC?group=once; docs/inbox.md has their "
            "options. All processes of one group must share one store.",
        .unsure = "The queue that already exists at the broker."),
    ROW("format", CHOICE, OF_QUEUE(format), .fallback = "cloudevents",
        .choices = {"cloudevents", "raw"},
        .help = "The format of a message. cloudevents: an event, whose key is its "
                "idempotencykey, or else its source and id. raw: any bytes; key says where the key "
                "is.",
        .unsure = "cloudevents if the sender can."),
    ROW("prefetch", COUNT, OF_QUEUE(prefetch), .fallback = "256", .min = 1, .max = PREFETCH_MAX,
        .help = "Messages that are taken and not acknowledged yet. At this number no more are "
                "read until one is settled.",
        .unsure = "Leave it."),
    ROW("preset", CHOICE, OF_SOURCE(preset), .is_required = true, .example = "stripe",
        .choices = {"stripe", "github", "shopify", "slack", "meta", "standard_webhooks", "svix",
            "hmac", "cloudevents", "effect", "none"},
        .help =
            "The sender: how requests are signed, what identifies an event, how a body is "
            "split, and how long duplicates may come. hmac is any sender with an HMAC-SHA256 of "
            "the body in a field. cloudevents, effect and none are not signed; a secret is then "
            "a bearer token.",
        .unsure = "The sender's own; else standard_webhooks or hmac, whichever it documents."),
    ROW("secrets", OWN, .in = CONFIG_IN_ENTRY, .read = source_read_secrets,
        .help = "The sender's signing secrets: a list of {file: PATH} and {env: NAME}. Any of "
                "them verifies; to rotate a secret, list both. Files and variables are read at the "
                "start and by SIGHUP.",
        .unsure = "One file that only the server's user can read."),
    ROW("handler", TEXT, AT(handler), .form = CONFIG_FORM_HANDLER,
        .example = "http://127.0.0.1:9000/stripe",
        .help = "Where events go: a URL that takes POST with the event's own bytes, "
                "Idempotency-Key, Once-Delivery-Id, Once-Fence, Once-Attempt and Once-Source. 2xx: "
                "done. 4xx: failed, for good. 429, 5xx and Once-Effect: no: it is called again. No "
                "answer, or Once-Effect: unknown: nobody knows.",
        .unsure = "A handler on the same machine or network."),
    ROW("command", TEXT, AT(command), .places = offsetof(struct config_source, command_at),
        .example = "order.paid",
        .help =
            "Instead of handler: each event submits this command of the registry, in the "
            "commit that seals its delivery. It has the delivery's key, unless the envelope has "
            "one, and the event's id is in its trace. A command with a confirmation cannot be "
            "used here, because nobody would get the token.",
        .unsure = "handler."),
    ROW("envelope", OWN, AT(envelope), .read = source_read_envelope,
        .example = "{actor_id: \"{data.from}\", target: {order: \"{data.order}\"}}",
        .help =
            "With command: the envelope that is submitted: actor_id, effective_actor_id, "
            "target, args, idempotency_key, extensions and x_*. Strings are templates: {event.…} "
            "is the event's JSON, {data.…} the data of a CloudEvent (else the event), "
            "{event_id}, {delivery_id}, {key}, {source} and {tenant}. An event that lacks a "
            "named value becomes a dead letter.",
        .unsure = "Set it if and only if command is set."),
    ROW("tenant", TEXT, AT(tenant), .form = CONFIG_FORM_TENANT, .fallback = "default",
        .help = "The tenant that owns these events.",
        .unsure = "The tenant that the handler works for."),
    ROW("mode", CHOICE, OF_SOURCE(mode), .fallback = "auto", .choices = {"auto", "async", "sync"},
        .help = "async: the sender is answered as soon as its event is durable. sync: it gets the "
                "handler's answer, after the seal. auto is sync for effect and async for all "
                "others.",
        .unsure = "Leave it: senders expect an answer within seconds."),
    ROW("order.source_id", TEXT, AT(order_source_id), .form = CONFIG_FORM_POINTER,
        .example = "/data/object/id",
        .help =
            "JSON Pointer to the id of the thing that an event is a version of. Events of "
            "one such thing are delivered one at a time; one that is older than the last sealed "
            "one is stale and is not delivered. A missing version delays nothing.",
        .unsure = "Leave it out if the order does not matter to the handler."),
    ROW("order.version", TEXT, AT(order_version), .form = CONFIG_FORM_POINTER,
        .example = "/created",
        .help = "JSON Pointer to the version: a number, a time (RFC 3339) or a text in natural "
                "order.",
        .unsure = "Set it if and only if order.source_id is set."),
    ROW("window", DURATION, AT(window_ms),
        .absent = "the preset's, 2 to 31 days; for a queue 14 days", .min = SECOND_MS,
        .max = LIMIT_WINDOW_MS_MAX, .example = "14d",
        .help = "How long duplicates are recognised after an event was handled. The preset's is "
                "longer than its sender may send an event again.",
        .unsure = "Leave it out."),
    ROW("on_unknown", CHOICE, AT(on_unknown), .fallback = "hold",
        .choices = {"hold", "redeliver", "reconcile"},
        .help =
            "What happens when nobody knows whether the handler did it. hold: a person decides. "
            "redeliver: it is called again with a higher fence; only for handlers that are "
            "idempotent by key and fence. reconcile: the handler's server is asked.",
        .unsure = "hold."),
    ROW("reconcile.get", TEXT, AT(reconcile_get), .form = CONFIG_FORM_TEMPLATE,
        .example = "/stripe/by-key/{key}",
        .help = "Path at the handler's server that says whether it happened.",
        .unsure = "Set it if and only if on_unknown is reconcile."),
    ROW("reconcile.executed", STATUSES, AT(executed), COUNTED(executed_count), .fallback = "200",
        .max = CONFIG_STATUSES_MAX,
        .help = "Statuses that mean that it happened; the answer is the receipt.",
        .unsure = "Leave it."),
    ROW("reconcile.not_executed", STATUSES, AT(not_executed), COUNTED(not_executed_count),
        .fallback = "404", .max = CONFIG_STATUSES_MAX,
        .help = "Statuses that mean that it did not.", .unsure = "Leave it."),
    ROW("reconcile.quiet", DURATION, AT(quiet_ms), .fallback = "1m", .max = HOUR_MS,
        .help = "not_executed is accepted only after the delivery has been unknown for this long.",
        .unsure = "Leave it."),
    ROW("retry.attempts", COUNT, AT(attempts_max), .fallback = "20", .min = 1, .max = ATTEMPTS_MAX,
        .help = "Total calls of the handler. After the last one the delivery is a dead letter.",
        .unsure = "Leave it."),
    ROW("retry.backoff", DURATION, AT(backoff_ms), .fallback = "5s", .min = 10, .max = HOUR_MS,
        .help = "The first pause between two calls. Pauses double, and are shortened at random.",
        .unsure = "Leave it."),
    ROW("retry.backoff_max", DURATION, AT(backoff_ms_max), .fallback = "1h", .min = 10,
        .max = DAY_MS, .help = "The longest pause.", .unsure = "Leave it."),
    ROW("retry.deadline", DURATION, AT(deadline_ms), .absent = "none", .min = SECOND_MS,
        .max = 365 * DAY_MS, .example = "3d",
        .help = "No call is made later than this after the event arrived: the delivery is then a "
                "dead letter, unless a person has it delivered again.",
        .unsure = "Leave it out."),
    ROW("timeout.connect", DURATION, AT(connect_ms), .fallback = "2s", .min = 10, .max = HOUR_MS,
        .help = "How long connecting to the handler may take.", .unsure = "Leave it."),
    ROW("timeout.first_byte", DURATION, AT(first_byte_ms), .fallback = "30s", .min = 10,
        .max = HOUR_MS, .help = "How long until its answer begins. After that nobody knows.",
        .unsure = "Longer than the handler ever takes."),
    ROW("timeout.total", DURATION, AT(total_ms), .fallback = "60s", .min = 10, .max = HOUR_MS,
        .help = "How long until its answer is complete.", .unsure = "Leave it."),
    ROW("concurrency", COUNT, AT(concurrency), .fallback = "64", .min = 1, .max = CONCURRENCY_MAX,
        .help = "Calls to the handler at a time; the others wait.", .unsure = "Leave it."),
    ROW("rate", REAL, AT(rate), .fallback = "0", .max = RATE_MAX,
        .help = "Calls to the handler per second. 0 means no limit.", .unsure = "Leave it at 0."),
    ROW("breaker.failures", COUNT, AT(breaker_failures), .fallback = "10", .min = 1,
        .max = ATTEMPTS_MAX,
        .help = "Failures in a row after which the handler is not called for a while.",
        .unsure = "Leave it."),
    ROW("breaker.pause", DURATION, AT(breaker_pause_ms), .fallback = "30s", .min = 10,
        .max = HOUR_MS, .help = "How long it is not called; then one call tries it.",
        .unsure = "Leave it."),
    ROW("verify_token", OWN, .in = CONFIG_IN_ENTRY, .read = source_read_token,
        .help = "For preset meta: the required hub.verify_token when Meta checks the endpoint. A "
                "text, {file: PATH} or {env: NAME}.",
        .unsure = "The text that you typed into the sender's form."),
    ROW("signature.header", TEXT, OF_SOURCE(signature_header), .form = CONFIG_FORM_FIELD,
        .example = "X-Signature", .absent = "X-Signature",
        .help = "For preset hmac: the field with the signature.",
        .unsure = "As the sender documents it."),
    ROW("signature.prefix", TEXT, OF_SOURCE(signature_prefix), .form = CONFIG_FORM_LINE,
        .example = "\"sha256=\"", .absent = "none",
        .help = "For preset hmac: the text before the signature.",
        .unsure = "As the sender documents it."),
    ROW("signature.encoding", CHOICE, OF_SOURCE(signature_encoding), .fallback = "hex",
        .choices = {"hex", "base64"}, .help = "For preset hmac: lower-case hex, or base64.",
        .unsure = "As the sender documents it."),
    ROW("key.header", TEXT, AT(key_header), .form = CONFIG_FORM_FIELD, .example = "X-Event-Id",
        .help =
            "The field that identifies an event, instead of the preset's. No signature "
            "covers it, so the body's digest is part of the key too. For a raw queue: the field "
            "of the message with its key.",
        .unsure = "Leave it out for presets that know theirs."),
    ROW("key.json", TEXT, AT(key_json), .form = CONFIG_FORM_POINTER, .example = "/id",
        .help = "JSON Pointer to the value that identifies an event, instead of the preset's. A "
                "raw queue needs this or key.header.",
        .unsure = "Leave it out for presets that know theirs."),
    ROW("ca_file", TEXT, AT(ca_file), .example = "/etc/once/handlers-ca.pem",
        .help = "PEM file with the certificates that an https handler is verified with.",
        .unsure = "Leave it out: the system's are used."),
    {0},
};
