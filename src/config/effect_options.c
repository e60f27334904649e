/* The tables of all settings of a connector and of a type of effect. The example file is made from
 * these words. */
#include <stddef.h>

#include "base/limits.h"
#include "config/impl.h"

#define CONNECTOR(member) .in = CONFIG_IN_ENTRY, .offset = offsetof(struct config_connector, member)
#define EFFECT(member)    .in = CONFIG_IN_ENTRY, .offset = offsetof(struct config_effect, member)

enum {
    SECOND_MS = 1000,
    MINUTE_MS = 60 * SECOND_MS,
    HOUR_MS = 60 * MINUTE_MS,
    RATE_MAX = 1000000,
    CONCURRENCY_MAX = 4096,
    ATTEMPTS_MAX = 1000,
    FAILURES_MAX = 1000000,
};
#define DAY_MS (UINT64_C(24) * HOUR_MS)

const struct config_option config_connector_options[] = {
    ROW("connectors.preset", TEXT, CONNECTOR(preset), .example = "stripe",
        .help = "Known facts about a provider: where its key goes, how long the provider keeps "
                "it and how long it may be. stripe, paypal, square or adyen. The settings below "
                "override it.",
        .unsure = "Name it if the provider is one of these."),
    ROW("connectors.protocol", CHOICE, CONNECTOR(protocol), .fallback = "http",
        .choices = {"http", "envelope", "amqp", "kafka", "nats", "redis"},
        .help = "http: the provider's own API. envelope: your own connector service, which gets "
                "the whole effect envelope and answers with an acknowledgement. amqp (RabbitMQ), "
                "kafka, nats (JetStream), redis (a stream): published as a CloudEvent with "
                "idempotencykey, and acknowledged by the broker's confirm.",
        .unsure = "http."),
    ROW("connectors.url", TEXT, CONNECTOR(url), .is_required = true,
        .example = "https://api.pay.example",
        .help =
            "Required: the provider's API, http:// or https:// with a host, a port and, if "
            "needed, a path that comes before every request's path. For a broker the same URL as "
            "`from` of a queue: amqp://HOST/QUEUE (or ?exchange=NAME&routing_key=KEY), "
            "kafka://HOST/TOPIC, nats://HOST/STREAM?subject=NAME, redis://HOST/STREAM.",
        .unsure = "What the provider's manual says, with https."),
    ROW("connectors.ca_file", TEXT, CONNECTOR(ca_file), .example = "/etc/once/pay-ca.pem",
        .absent = "the system's certificates",
        .help = "PEM file with the certificates that an https provider is verified with.",
        .unsure = "Leave it out for a public provider."),
    ROW("connectors.allow_internal", BOOL, CONNECTOR(allow_internal), .fallback = "false",
        .help = "Whether the name in url may resolve to a private address. An IP address in url, "
                "and localhost, are always allowed.",
        .unsure = "false; true for a named service in your own network."),
    ROW("connectors.tenants", LIST, CONNECTOR(tenants), .form = CONFIG_FORM_TENANT,
        .count = offsetof(struct config_connector, tenant_count),
        .max = CONFIG_CONNECTOR_TENANTS_MAX, .absent = "all of them", .example = "[acme]",
        .help = "The tenants that may use it. For others its effect types do not exist.",
        .unsure = "Name the tenants if the account at the provider belongs to one tenant."),
    ROW("connectors.auth.bearer_file", TEXT, CONNECTOR(auth.bearer.file),
        .example = "/run/secrets/pay",
        .help = "File with the token of Authorization: Bearer. A trailing newline is ignored; "
                "SIGHUP reads it again. Secrets are never written in this file.",
        .unsure = "A file that only the server's user can read."),
    ROW("connectors.auth.bearer_env", TEXT, CONNECTOR(auth.bearer.env), .example = "PAY_TOKEN",
        .help = "The environment variable with that token, instead of a file.",
        .unsure = "Use a file: it can change without a restart."),
    ROW("connectors.auth.basic_file", TEXT, CONNECTOR(auth.basic.file),
        .example = "/run/secrets/pay-user",
        .help = "File with user:password of Authorization: Basic.",
        .unsure = "Leave it out unless the provider asks for it."),
    ROW("connectors.auth.basic_env", TEXT, CONNECTOR(auth.basic.env), .example = "PAY_USER",
        .help = "The environment variable with user:password, instead of a file.",
        .unsure = "Use a file."),
    ROW("connectors.auth.header", TEXT, CONNECTOR(auth.header), .form = CONFIG_FORM_FIELD,
        .example = "X-API-Key",
        .help = "The field for the provider's API key, if that is not Authorization.",
        .unsure = "Leave it out unless the provider asks for it."),
    ROW("connectors.auth.header_file", TEXT, CONNECTOR(auth.header_value.file),
        .example = "/run/secrets/pay-key", .help = "File with the value of auth.header.",
        .unsure = "Set one of auth.header_file and auth.header_env if auth.header is set."),
    ROW("connectors.auth.header_env", TEXT, CONNECTOR(auth.header_value.env),
        .example = "PAY_API_KEY",
        .help = "The environment variable with the value of auth.header, instead of a file.",
        .unsure = "Use a file."),
    ROW("connectors.idempotency.header", TEXT, CONNECTOR(idempotency.header),
        .form = CONFIG_FORM_FIELD, .example = "Idempotency-Key",
        .help = "The field in which the provider takes an idempotency key. Leave it out when it "
                "has none: an uncertain effect is then looked up, or held for a person.",
        .unsure = "What the provider's manual says."),
    ROW("connectors.idempotency.body", TEXT, CONNECTOR(idempotency.body),
        .form = CONFIG_FORM_POINTER, .example = "/idempotency_key",
        .help = "JSON Pointer of the member of the body in which the provider takes the key. It is "
                "added, or replaced. An effect whose payload lacks the object around it is "
                "refused.",
        .unsure = "What the provider's manual says."),
    ROW("connectors.idempotency.keeps", DURATION, CONNECTOR(idempotency.keeps_ms),
        .fallback = "24h", .min = SECOND_MS, .max = LIMIT_WINDOW_MS_MAX,
        .help = "How long the provider remembers a key. An uncertain effect is sent again with the "
                "same key only within this time of its first attempt, so it must be longer than "
                "timeout.total. With protocol: nats it is 2m unless given, and must not be more "
                "than the stream's duplicate window.",
        .unsure = "What the provider's manual says; less if it says nothing."),
    ROW("connectors.idempotency.bytes_max", COUNT, CONNECTOR(idempotency.key_bytes_max),
        .fallback = "255", .min = 43, .max = LIMIT_KEY_BYTES_MAX,
        .help = "The longest key that the provider accepts. A longer one, or one in a header that "
                "begins or ends with a blank, is sent as its SHA-256 in base64url, which has 43 "
                "characters.",
        .unsure = "What the provider's manual says."),
    ROW("connectors.lookup.get", TEXT, CONNECTOR(lookup.get), .form = CONFIG_FORM_LINE,
        .example = "\"/v1/charges/by-key/{idempotency_key}\"",
        .help = "Path and query of a GET that shows whether an uncertain effect happened. It may "
                "name {idempotency_key}, as it was sent (see idempotency.bytes_max), {effect_id}, "
                "{command_id}, {target.…} and {payload.…}.",
        .unsure = "Set it if the provider can be asked by anything that you send."),
    ROW("connectors.lookup.executed", STATUSES, CONNECTOR(lookup.executed),
        .count = offsetof(struct config_connector, lookup.executed_count),
        .max = CONFIG_STATUSES_MAX, .fallback = "200",
        .help = "Statuses that mean that it happened.", .unsure = "200."),
    ROW("connectors.lookup.not_executed", STATUSES, CONNECTOR(lookup.not_executed),
        .count = offsetof(struct config_connector, lookup.not_executed_count),
        .max = CONFIG_STATUSES_MAX, .fallback = "404",
        .help = "Statuses that mean that it did not happen.", .unsure = "404."),
    ROW("connectors.lookup.found", TEXT, CONNECTOR(lookup.found), .form = CONFIG_FORM_POINTER,
        .example = "/data/0/id",
        .help =
            "For a search that answers 200 whether it found something or not: where the result "
            "is in the answer; it is also the provider's reference. A list that ends before that "
            "place, null or an empty value means that the effect did not happen. An answer of a "
            "different form settles nothing, and the provider is asked again.",
        .unsure = "Leave it out if the status says whether it happened."),
    ROW("connectors.lookup.quiet", DURATION, CONNECTOR(lookup.quiet_ms), .fallback = "60s",
        .max = DAY_MS,
        .help = "How long after the attempt \"it did not happen\" is accepted; until then the "
                "provider may still be working on it.",
        .unsure = "Longer than the provider ever takes."),
    ROW("connectors.lookup.every", DURATION, CONNECTOR(lookup.every_ms), .fallback = "1s",
        .min = 100, .max = HOUR_MS, .help = "The first pause between two questions; it doubles.",
        .unsure = "Leave it."),
    ROW("connectors.lookup.every_max", DURATION, CONNECTOR(lookup.every_ms_max), .fallback = "5m",
        .min = 100, .max = DAY_MS, .help = "The longest pause between two questions.",
        .unsure = "Leave it."),
    ROW("connectors.rate", REAL, CONNECTOR(rate), .fallback = "50", .max = RATE_MAX,
        .help = "Calls per second, for each tenant, retries included. 0 means no limit.",
        .unsure = "Half of what the provider allows."),
    ROW("connectors.concurrency", COUNT, CONNECTOR(concurrency), .fallback = "16", .min = 1,
        .max = CONCURRENCY_MAX, .help = "Calls at the same time, for all tenants together.",
        .unsure = "Leave it."),
    ROW("connectors.timeout.connect", DURATION, CONNECTOR(connect_ms), .fallback = "2s", .min = 10,
        .max = HOUR_MS,
        .help = "How long connecting may take. After that nothing was sent, and "
                "it is retried.",
        .unsure = "Leave it."),
    ROW("connectors.timeout.first_byte", DURATION, CONNECTOR(first_byte_ms), .fallback = "30s",
        .min = 10, .max = HOUR_MS,
        .help = "How long the provider may take to begin its answer. Then the effect is uncertain.",
        .unsure = "Longer than the provider usually takes."),
    ROW("connectors.timeout.total", DURATION, CONNECTOR(total_ms), .fallback = "60s", .min = 10,
        .max = HOUR_MS, .help = "How long a whole call may take. Then the effect is uncertain.",
        .unsure = "Leave it."),
    ROW("connectors.breaker.failures", COUNT, CONNECTOR(breaker_failures), .fallback = "10",
        .max = FAILURES_MAX,
        .help = "Failures in a row after which nothing is sent for a while. 0 means never.",
        .unsure = "Leave it."),
    ROW("connectors.breaker.pause", DURATION, CONNECTOR(breaker_pause_ms), .fallback = "30s",
        .min = 10, .max = HOUR_MS, .help = "How long nothing is sent; then one call tries it.",
        .unsure = "Leave it."),
    ROW("connectors.approve", CHOICE, CONNECTOR(approve), .fallback = "none",
        .choices = {"none", "manual"},
        .help = "manual: a person settles uncertain effects. Critical or irreversible effects "
                "need this if the provider has neither keys nor a lookup.",
        .unsure = "none, until once check asks for it."),
    {0},
};

const struct config_option config_effect_options[] = {
    ROW("effects.connector", TEXT, EFFECT(connector_name),
        .places = offsetof(struct config_effect, connector_at), .is_required = true,
        .example = "pay", .help = "Required: the connector for these effects.",
        .unsure = "One connector for each account at a provider."),
    ROW("effects.request.method", TEXT, EFFECT(method), .form = CONFIG_FORM_METHOD,
        .fallback = "POST", .help = "The method of the request.", .unsure = "POST."),
    ROW("effects.request.path", TEXT, EFFECT(path), .form = CONFIG_FORM_LINE,
        .example = "\"/v1/charges/{target.order_id}\"", .absent = "/",
        .help = "The path of the request, and its query. It may name {target.…}, {payload.…}, "
                "{idempotency_key}, {effect_id}, {command_id}, {effect_type} and {tenant}; values "
                "are percent-encoded.",
        .unsure = "What the provider's manual says."),
    ROW("effects.request.body", CHOICE, EFFECT(body), .fallback = "payload",
        .choices = {"payload", "form", "none"},
        .help = "The body of the request: the payload as JSON, the payload's members as a form, or "
                "nothing.",
        .unsure = "payload."),
    ROW("effects.request.headers", OWN, EFFECT(headers), .read = effect_read_headers,
        .count = offsetof(struct config_effect, header_count),
        .help = "Fields of the request, with templates as in path: {X-Account: "
                "\"{target.account}\"}.",
        .unsure = "Leave it out unless the provider asks for one."),
    ROW("effects.provider_ref", TEXT, EFFECT(provider_ref), .form = CONFIG_FORM_LINE,
        .example = "/id",
        .help = "Where the provider's own id is in the answer: a JSON Pointer into its body, or "
                "header:NAME. It is in the effect's document and in the evidence.",
        .unsure = "Set it: a compensation needs it."),
    ROW("effects.retry.attempts", COUNT, EFFECT(attempts), .fallback = "8", .min = 1,
        .max = ATTEMPTS_MAX,
        .help = "Total attempts, while none may have had an effect. Then the effect is a dead "
                "letter.",
        .unsure = "Leave it."),
    ROW("effects.retry.backoff", DURATION, EFFECT(backoff_ms), .fallback = "1s", .min = 10,
        .max = HOUR_MS,
        .help = "The first pause between two attempts; it doubles. The real pause is a random "
                "part of it, and at least what Retry-After says.",
        .unsure = "Leave it."),
    ROW("effects.retry.backoff_max", DURATION, EFFECT(backoff_ms_max), .fallback = "10m", .min = 10,
        .max = DAY_MS, .help = "The longest pause between two attempts.", .unsure = "Leave it."),
    ROW("effects.retry.deadline", DURATION, EFFECT(deadline_ms), .fallback = "24h",
        .max = LIMIT_WINDOW_MS_MAX,
        .help =
            "No attempt is made later than this after the effect was created: it is then a dead "
            "letter, unless a person has it tried again. 0s: no limit.",
        .unsure = "As long as the effect still makes sense."),
    ROW("effects.required", BOOL, EFFECT(required), .fallback = "true",
        .help = "Whether its command waits for it. false: the command may end earlier.",
        .unsure = "true."),
    ROW("effects.irreversible", BOOL, EFFECT(irreversible), .fallback = "false",
        .help = "Whether it cannot be undone. Then it needs compensate, and a provider with keys "
                "or a lookup, or approve: manual.",
        .unsure = "true for whatever moves money or goods."),
    ROW("effects.critical", BOOL, EFFECT(critical), .fallback = "false",
        .help = "Like irreversible, for effects that can be undone but must not happen twice.",
        .unsure = "false."),
    ROW("effects.approve", CHOICE, EFFECT(approve), .fallback = "none",
        .choices = {"none", "manual"}, .help = "Like the connector's, but only for this type.",
        .unsure = "none."),
    ROW("effects.compensate.effect", TEXT, EFFECT(compensate_name),
        .places = offsetof(struct config_effect, compensate_at), .example = "payment.refund",
        .help = "The type of the effect that undoes this one.",
        .unsure = "Set it for whatever moves money or goods."),
    ROW("effects.compensate.payload", OWN, EFFECT(compensate_payload), .read = effect_read_json,
        .absent = "the payload of the original",
        .help = "Its payload: {charge: \"{provider_ref}\", amount: \"{payload.amount}\"}. A text "
                "that is one placeholder becomes the value itself.",
        .unsure = "What the provider's manual says."),
    ROW("effects.compensate.target", OWN, EFFECT(compensate_target), .read = effect_read_json,
        .absent = "the target of the original", .help = "Its target, in the same form.",
        .unsure = "Leave it out."),
    ROW("effects.order", TEXT, EFFECT(order), .form = CONFIG_FORM_LINE,
        .example = "\"{target.order_id}\"",
        .help = "Effects of one tenant and type with the same text here are sent one after "
                "another, in the order in which they were created.",
        .unsure = "Leave it out unless their order matters."),
    ROW("effects.redact", LIST, EFFECT(redact), .form = CONFIG_FORM_POINTER,
        .count = offsetof(struct config_effect, redact_count), .max = CONFIG_POINTERS_MAX,
        .example = "[/card]",
        .help =
            "JSON Pointers into the payload to values that are never shown. In any case the "
            "payload is encrypted at rest and erased with the commit that settles the effect; a "
            "journal's file is rewritten without it within 15 minutes (docs/effects.md).",
        .unsure = "Whatever you would not put into a log."),
    ROW("effects.window", DURATION, EFFECT(window_ms), .fallback = "7d", .min = SECOND_MS,
        .max = LIMIT_WINDOW_MS_MAX,
        .help = "How long a duplicate is recognised after the effect was settled.",
        .unsure = "Longer than its creator may retry."),
    {0},
};
