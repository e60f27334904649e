/* The tables of all settings of a command and of its arguments. The example file is made from these
 * words. */
#include <stddef.h>

#include "config/impl.h"

#define AT(member)      .in = CONFIG_IN_ENTRY, .offset = offsetof(struct config_command, member)
#define COUNTED(member) .count = offsetof(struct config_command, member)

enum {
    SECOND_MS = 1000,
    MINUTE_MS = 60 * SECOND_MS,
    HOUR_MS = 60 * MINUTE_MS,
    ATTEMPTS_MAX = 1000,
    CONCURRENCY_MAX = 4096,
    RATE_MAX = 1000000,
};
#define DAY_MS (UINT64_C(24) * HOUR_MS)

const struct config_option config_command_options[] = {
    ROW("class", CHOICE, AT(class), .fallback = "I1", .choices = {"I0", "I1", "I2", "I3"},
        .help = "I0 only reads, and is never deduplicated. I1 takes effect once. I2 takes effect "
                "once in a declared window. I3 has outside effects that are not idempotent "
                "themselves.",
        .unsure = "I1."),
    ROW("justification", TEXT, AT(justification), .form = CONFIG_FORM_LINE,
        .example = "the provider has no idempotency keys",
        .help = "Why the class is not I1. Required for I2 and I3, and for an I0 command that "
                "changes something.",
        .unsure = "Write what you would tell an auditor."),
    ROW("mutates", BOOL, AT(mutates), .fallback = "false",
        .help = "true: an I0 command changes something nevertheless, so it needs a "
                "justification. Every other class changes something anyway.",
        .unsure = "Leave it out, and use I1."),
    ROW("critical", BOOL, AT(is_critical), .fallback = "false",
        .help = "For money, or anything as serious: its ttl must be at least 24h.",
        .unsure = "true for payments."),
    ROW("shield", LIST, AT(shields), COUNTED(shield_count), .form = CONFIG_FORM_SHIELD,
        .max = CONFIG_SHIELDS_MAX, .example = "[S3]",
        .help =
            "How an I3 command is kept from happening twice. S1: the handler gets the key "
            "and passes it on to its provider. S2: it returns effects, which go through the "
            "outbox. S3: the grant is durable before the call, and nothing runs again "
            "automatically. S4: an unknown outcome is looked up with reconcile, and its effects, "
            "all of which declare compensate, can be undone.",
        .unsure = "S3, which holds whatever the handler does."),
    ROW("ttl", DURATION, AT(ttl_ms), .fallback = "24h", .min = SECOND_MS, .max = 3660 * DAY_MS,
        .help = "The window in which duplicates are recognised, from the outcome on. An I2 "
                "command must declare it.",
        .unsure = "Longer than any caller retries: 24h, or 72h for money."),
    ROW("binding", CHOICE, AT(binding), .fallback = "actor",
        .choices = {"actor", "effective_actor"},
        .help = "Which actor is part of the key. effective_actor: an envelope must name the "
                "principal on whose behalf it acts, so that several actors trigger one effect.",
        .unsure = "actor."),
    ROW("confirm", CHOICE, AT(confirm), .fallback = "none",
        .choices = {"none", "confirm", "step_up"},
        .help = "confirm: it runs after somebody presents the token from the answer to the first "
                "submission. step_up: the confirmation also needs a bearer token with the right "
                "confirm, different from the submitter's.",
        .unsure = "confirm for anything that cannot be undone."),
    ROW("confirm_ttl", DURATION, AT(confirm_ttl_ms), .fallback = "5m", .min = SECOND_MS,
        .max = 7 * DAY_MS,
        .help = "How long a confirmation may be given. After that the command is rejected, and a "
                "new submission starts over.",
        .unsure = "Leave it."),
    ROW("prompt", TEXT, AT(prompt), .form = CONFIG_FORM_PROMPT,
        .example = "\"Refund order {target.order_id}?\"",
        .help = "The question for the user, in the answer about a command that awaits its "
                "confirmation. {target.…}, {args.…}, {actor_id} and {command} stand for values of "
                "the envelope; redacted values stay redacted.",
        .unsure = "Name what will happen, and to what."),
    ROW("handler", TEXT, AT(handler), .form = CONFIG_FORM_HANDLER, .is_required = true,
        .example = "http://127.0.0.1:9000/refund",
        .help = "Where the command is executed: a URL that takes POST with the envelope, "
                "Idempotency-Key, Once-Operation-Id and Once-Fence. 2xx: done. 4xx: failed, for "
                "good. 429, 503 and Once-Effect: no: nothing was done, it is called again. "
                "Anything else, or no answer: nobody knows.",
        .unsure = "A handler on the same machine or network."),
    ROW("ca_file", TEXT, AT(ca_file), .example = "/etc/once/handlers-ca.pem",
        .help = "PEM file with the certificates that an https handler is verified with.",
        .unsure = "Leave it out: the system's are used."),
    ROW("timeout", DURATION, AT(timeout_ms), .fallback = "30s", .min = 10, .max = HOUR_MS,
        .help = "How long the handler may take in all. After that nobody knows.",
        .unsure = "Longer than the handler ever takes."),
    ROW("on_unknown", CHOICE, AT(on_unknown), .fallback = "hold",
        .choices = {"hold", "takeover", "reconcile"},
        .help = "What happens when nobody knows whether the handler did it. hold: the command is "
                "blocked until a person decides. takeover: the handler is called again, with the "
                "same key and a new fence; only for handlers that are idempotent. reconcile: the "
                "handler's server is asked.",
        .unsure = "hold."),
    ROW("reconcile.get", TEXT, AT(reconcile_get), .form = CONFIG_FORM_TEMPLATE,
        .example = "/refunds/by-key/{key}",
        .help = "Path at the handler's server that says whether it happened.",
        .unsure = "Set it if and only if on_unknown is reconcile."),
    ROW("reconcile.executed", STATUSES, AT(executed), COUNTED(executed_count), .fallback = "200",
        .max = 16, .help = "Statuses that mean that it happened; the answer is the outcome.",
        .unsure = "Leave it."),
    ROW("reconcile.not_executed", STATUSES, AT(not_executed), COUNTED(not_executed_count),
        .fallback = "404", .max = 16, .help = "Statuses that mean that it did not.",
        .unsure = "Leave it."),
    ROW("reconcile.quiet", DURATION, AT(quiet_ms), .fallback = "1m", .max = HOUR_MS,
        .help = "not_executed is accepted only after the command has been unknown for this long, "
                "because until then the handler may still be working.",
        .unsure = "Leave it."),
    ROW("retry.attempts", COUNT, AT(attempts_max), .fallback = "5", .min = 1, .max = ATTEMPTS_MAX,
        .help = "Total calls of the handler while it answers that nothing was done. After the "
                "last one the command is blocked.",
        .unsure = "Leave it."),
    ROW("retry.backoff", DURATION, AT(backoff_ms), .fallback = "1s", .min = 10, .max = HOUR_MS,
        .help = "The first pause between two calls. Pauses double, and are shortened at random.",
        .unsure = "Leave it."),
    ROW("retry.backoff_max", DURATION, AT(backoff_ms_max), .fallback = "1m", .min = 10,
        .max = DAY_MS, .help = "The longest pause.", .unsure = "Leave it."),
    ROW("concurrency", COUNT, AT(concurrency), .fallback = "64", .min = 1, .max = CONCURRENCY_MAX,
        .help = "Calls to the handler at a time; the others wait.", .unsure = "Leave it."),
    ROW("rate", REAL, AT(rate), .fallback = "0", .max = RATE_MAX,
        .help = "Submissions per second, for each tenant. Above it they get 429. 0 means no limit.",
        .unsure = "Leave it at 0."),
    ROW("redact", LIST, AT(redact), COUNTED(redact_count), .form = CONFIG_FORM_POINTER,
        .max = CONFIG_COMMAND_POINTERS_MAX, .example = "[/args/card]",
        .help = "JSON Pointers into the envelope whose values are never shown: in documents, "
                "evidence, prompts and logs. The handler gets them.",
        .unsure = "Name every secret and every personal value."),
    ROW("effects", OWN, .in = CONFIG_IN_ENTRY, .read = command_read_effects,
        .example = "[payment.capture]",
        .help = "The effects of the command, which enter the outbox in the same commit as the "
                "handler's outcome. The name of a type: the handler may return such effects. A map "
                "such as {effect: payment.refund, target: {order_id: \"{target.order_id}\"}, "
                "payload: {amount: \"{args.amount}\"}}: Once makes this one itself. {target.…}, "
                "{args.…}, {actor_id}, {effective_actor_id}, {command_id}, {idempotency_key} and "
                "{outcome.…}, the handler's JSON answer, stand for values. Without target it is "
                "the command's.",
        .unsure = "Leave it out if the handler does everything itself."),
    ROW("on_effect_failure", CHOICE, AT(on_effect_failure), .fallback = "fail",
        .choices = {"fail", "block", "compensate"},
        .help = "What happens to the command when a required effect fails. fail: it fails. "
                "compensate: acknowledged effects are undone, in reverse order. block: a person "
                "decides.",
        .unsure = "Leave it."),
    ROW("args", OWN, .in = CONFIG_IN_ENTRY, .read = command_read_args,
        .help = "The arguments, by name: type (string, integer, number, boolean, object, array, "
                "any), required, normalise (trim, lower, upper, e164, or a list of these), enum, "
                "min and max (of a number, or of the characters of a string). Arguments that are "
                "not named are refused. Without args every argument is accepted as it is.",
        .unsure = "Declare all of them: equal values then have one key, however they are written."),
    {0},
};

#define DECLARED(member)                                                                           \
    .in = CONFIG_IN_ENTRY, .offset = offsetof(struct config_declared_effect, member)

const struct config_option config_declared_options[] = {
    ROW("effect", TEXT, DECLARED(type), .form = CONFIG_FORM_TENANT, .is_required = true,
        .example = "payment.refund"),
    ROW("target", OWN, DECLARED(target), .read = command_read_template),
    ROW("payload", OWN, DECLARED(payload), .read = command_read_template, .is_required = true,
        .example = "{amount: \"{args.amount}\"}"),
    {0},
};

#define ARG(member)         .in = CONFIG_IN_ENTRY, .offset = offsetof(struct config_arg, member)
#define ARG_COUNTED(member) .count = offsetof(struct config_arg, member)

const struct config_option config_arg_options[] = {
    ROW("type", CHOICE, ARG(type), .fallback = "any",
        .choices = {"any", "string", "integer", "number", "boolean", "object", "array"}),
    ROW("required", BOOL, ARG(is_required), .fallback = "false"),
    ROW("normalise", LIST, ARG(normalise), ARG_COUNTED(normalise_count),
        .form = CONFIG_FORM_NORMALISE, .max = CONFIG_ARG_NORMALISE_MAX, .example = "upper"),
    ROW("enum", LIST, ARG(values), ARG_COUNTED(value_count), .form = CONFIG_FORM_LINE,
        .max = CONFIG_ARG_VALUES_MAX, .example = "[EUR, USD]"),
    ROW("min", TEXT, ARG(min), .form = CONFIG_FORM_DECIMAL, .example = "1"),
    ROW("max", TEXT, ARG(max), .form = CONFIG_FORM_DECIMAL, .example = "1000"),
    {0},
};
