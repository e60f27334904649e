/* The registry: what `commands:` may say, and what IDS-2, IDS-7 and IDS-13 refuse. */
#include "canon/jsonw.h"
#include "config_drive.h"

#define HANDLER "handler: \"http://127.0.0.1:9000/x\""

/* A type of effect that can be undone, and one that cannot. */
#define TYPES                                                                                      \
    "connectors:\n  c: {url: \"http://127.0.0.1:9000\", idempotency: {header: K, keeps: 1h}}\n"    \
    "effects:\n  pay: {connector: c, request: {path: /p}, compensate: {effect: mail}}\n"           \
    "  mail: {connector: c, request: {path: /m}}\n"

static void the_rules_of_classes_are_kept(void **state)
{
    (void)state;
    refuse("commands:\n  a.b: {class: I2, ttl: 1h, " HANDLER "}\n", 2, 9,
        "'a.b' is I2 without a justification", "justification");
    refuse("commands:\n  a.b: {class: I3, shield: S3, " HANDLER "}\n", 2, 9,
        "'a.b' is I3 without a justification", NULL);
    refuse("commands:\n  a.b: {class: I3, shield: S3, justification: \"\", " HANDLER "}\n", 2, 9,
        "without a justification", NULL);
    refuse("commands:\n  a.b: {class: I3, shield: S3, justification: \"  \", " HANDLER "}\n", 2, 9,
        "without a justification", NULL);
    refuse("commands:\n  a.b: {class: I0, mutates: true, " HANDLER "}\n", 2, 9,
        "changes something ('mutates'), without a justification", NULL);
    refuse("commands:\n  a.b: {class: I0, critical: true, " HANDLER "}\n", 2, 9,
        "changes something ('critical')", NULL);
    refuse("commands:\n  a.b: {class: I9, " HANDLER "}\n", 2, 16,
        "class: 'I9' is not one of I0, I1, I2, I3", NULL);
    struct config *config = take("commands:\n  a.b: {" HANDLER "}\n");
    assert_int_equal(config->commands[0].class, CONFIG_CLASS_I1); /* IDS-2: without a class */
    config_free(config);
}

static void windows_are_declared_and_long_enough(void **state)
{
    (void)state;
    refuse("commands:\n  a.b: {class: I2, justification: x, " HANDLER "}\n", 2, 9,
        "does not declare its window, ttl", "ttl: 1h");
    refuse("commands:\n  a.b: {critical: true, ttl: 23h, " HANDLER "}\n", 2, 25,
        "critical and its ttl is less than 24h", NULL);
    config_free(take("commands:\n  a.b: {critical: true, ttl: 24h, " HANDLER "}\n"));
}

static void a_shield_is_one_that_is_applied(void **state)
{
    (void)state;
#define I3 "commands:\n  a.b: {class: I3, justification: x, "
    refuse(I3 HANDLER "}\n", 2, 9, "'a.b' is I3 without a shield", "shield: [S3]");
    refuse(I3 "shield: [], " HANDLER "}\n", 2, 9, "without a shield", NULL);
    refuse(I3 "shield: [S3, S5], " HANDLER "}\n", 2, 51, "'S5' is not one of S1, S2, S3, S4", NULL);
    refuse(I3 "shield: [S2], " HANDLER "}\n", 2, 38, "declares S2 without effects", NULL);
    refuse(I3 "shield: [S3], on_unknown: takeover, " HANDLER "}\n", 2, 52,
        "declares S3, strict replay, and takeover", NULL);
    refuse(I3 "shield: [S4], " HANDLER "}\n", 2, 38, "declares S4 and nothing reconciles it", NULL);
    config_free(take(I3 "shield: [S1], " HANDLER "}\n"));
    config_free(take(I3 "shield: [S1], on_unknown: takeover, " HANDLER "}\n"));
    config_free(take(I3 "shield: [S3], " HANDLER "}\n"));
#define S4 "shield: [S4], on_unknown: reconcile, reconcile: {get: \"/x/{key}\"}, "
    refuse(I3 S4 HANDLER "}\n", 2, 3, "'a.b' declares S4 and has no effects",
        "a type that declares compensate");
    refuse(I3 S4 "effects: [mail], " HANDLER "}\n" TYPES, 2, 3,
        "'a.b' declares S4, and its effect 'mail' declares no compensation", "compensate: {effect");
    config_free(take(I3 S4 "effects: [pay], " HANDLER "}\n" TYPES));
}

static void effects_are_declared_and_can_be_undone(void **state)
{
    (void)state;
#define UNDO "on_effect_failure: compensate, "
    refuse("commands:\n    a.b: {effects: [fax], " HANDLER "}\n" TYPES, 2, 5,
        "'a.b' names an effect type that does not exist: 'fax'", "declare it under effects:");
    refuse("commands:\n  a.b: {" UNDO HANDLER "}\n", 2, 3,
        "'a.b' has on_effect_failure: compensate and no effects", "effects: [payment.capture]");
    refuse("commands:\n  a.b: {" UNDO "effects: [pay, mail], " HANDLER "}\n" TYPES, 2, 3,
        "compensate, and its effect 'mail' declares no compensation", "compensate: {effect");
    refuse("commands:\n  a.b: {on_effect_failure: ask, effects: [pay], " HANDLER "}\n" TYPES, 2, 28,
        "on_effect_failure: 'ask' is not one of fail, block, compensate", NULL);
    refuse("commands:\n  a.b: {class: I0, justification: x, effects: [pay], " HANDLER "}\n" TYPES,
        2, 38, "'a.b' is I0, which runs every time, and cannot have effects", "class: I1");
    config_free(take("commands:\n  a.b: {" UNDO "effects: [pay], " HANDLER "}\n" TYPES));
}

static void what_does_not_go_together_is_refused(void **state)
{
    (void)state;
    refuse("commands:\n  a.b: {class: I1}\n", 2, 8, "the command has no handler", "handler: http");
    refuse("commands:\n  a.b: {on_unknown: reconcile, " HANDLER "}\n", 2, 9, "has no reconcile.get",
        NULL);
    refuse("commands:\n  a.b: {reconcile: {get: \"/x/{key}\"}, " HANDLER "}\n", 2, 9,
        "a reconcile that nothing uses", NULL);
    refuse("commands:\n  a.b: {class: I0, justification: x, confirm: confirm, " HANDLER "}\n", 2,
        38, "cannot be confirmed", NULL);
    refuse("commands:\n  a.b: {prompt: \"Sure?\", " HANDLER "}\n", 2, 9, "needs no confirmation",
        NULL);
    refuse("commands:\n  refund: {" HANDLER "}\n", 2, 3, "'refund' is not entity.action", NULL);
    refuse("commands:\n  a.b.c: {" HANDLER "}\n", 2, 3, "'a.b.c' is not entity.action", NULL);
    refuse("commands:\n  a.b: {handler: \"ftp://x/y\"}\n", 2, 18, "is not an http or https URL",
        "such as http://127.0.0.1:9000/refund");
    refuse("commands:\n  a.b: {confirm: confirm, prompt: \"Refund {order}?\", " HANDLER "}\n", 2,
        35, "has a brace that is not of", NULL);
    refuse("commands:\n  a.b: {confirm: confirm, prompt: \"Refund }?\", " HANDLER "}\n", 2, 35,
        "has a brace that is not of", NULL);
    refuse("commands:\n  a.b: {klass: I1, " HANDLER "}\n", 2, 9, "unknown key 'klass'",
        "did you mean 'class'?");
    refuse("commands: [a.b]\n", 1, 11, "commands must be a map", NULL);
    refuse("commands:\n", 1, 1, "commands must be a map", "order.refund");
    refuse("commands:\n  a.b: http\n", 2, 8, "must be a map", NULL);
    refuse("commands:\n  .b: {" HANDLER "}\n", 2, 3, "'.b' is not entity.action", NULL);
    refuse("commands:\n  a.: {" HANDLER "}\n", 2, 3, "'a.' is not entity.action", NULL);
    refuse("commands:\n  \"a.b\\n\": {" HANDLER "}\n", 2, 3, "the command's name", NULL);
    refuse("commands:\n  a.b: {on_unknown: reconcile, reconcile: {get: \"/x/{key}\", "
           "executed: [200, 204], not_executed: [204]}, " HANDLER "}\n",
        2, 32, "status 204 cannot mean both executed and not_executed", NULL);
    refuse("commands:\n    a.b: {confirm: step_up, " HANDLER "}\n", 2, 5,
        "confirm: step_up needs auth", "auth: {tokens");
    refuse("commands:\n  a.b: {redact: [args], " HANDLER "}\n", 2, 18, "redact", NULL);
    refuse("commands:\n  a.b: {ttl: 0s, " HANDLER "}\n", 2, 14, "ttl", NULL);
    refuse("commands:\n  a.b: {confirm: confirm, prompt: \"Pay {args.sum} to {args.who.name}?\", "
           "args: {sum: {}}, " HANDLER "}\n",
        2, 27, "'{args.who}', which is not one of its arguments", NULL);
    refuse("commands:\n  a.b: {timeout: 2h, " HANDLER "}\n", 2, 18, "timeout", NULL);
    refuse(
        "commands:\n  a.b: {retry: {attempts: 0}, " HANDLER "}\n", 2, 27, "retry.attempts", NULL);
    refuse("commands:\n  a.b: {binding: group, " HANDLER "}\n", 2, 18,
        "'group' is not one of actor, effective_actor", NULL);
    refuse("commands:\n  a.b: {" HANDLER "}\n  a.b: {" HANDLER "}\n", 3, 3, "a.b", NULL);
}

/* A pointer that hides nothing would be found when the secret is read in a log. */
static void what_is_redacted_can_be_hidden(void **state)
{
    (void)state;
    static const char *const shown[] = {"/card", "/actor_id", "/effective_actor_id", "/tenant_id",
        "/idempotency_key", "/command_id", "/command_kind", "/intent", "/intent/action",
        "/intent/targets", "/argsx/card", "/arg"};
    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++) {
        char text[256], message[128];
        (void)snprintf(text, sizeof text, "commands:\n  a.b: {redact: [/args/card, %s], %s}\n",
            shown[i], HANDLER);
        (void)snprintf(message, sizeof message, "redacts '%s', which is always shown", shown[i]);
        refuse(text, 2, 9, message, "a pointer into /args");
    }
    struct config *config = take(
        "commands:\n  a.b: {redact: [/args/card, /args/cards/0], args: {card: {}}, " HANDLER "}\n");
    assert_int_equal(config->warnings.count, 1);
    assert_string_equal(config->warnings.items[0].text,
        "'a.b' redacts '/args/cards/0', which is not one of its arguments");
    config_free(config);
    config_free(take(
        "commands:\n  a.b: {redact: [/args, /args/card/no, /intent/target, /intent/target/pin, "
        "/trace/who, /source, /extensions/a, /x_a/b], args: {card: {}}, " HANDLER "}\n"));
}

static void arguments_are_declared_whole(void **state)
{
    (void)state;
#define ARGS "commands:\n  a.b:\n    " HANDLER "\n    args:\n      x: "
    refuse(
        ARGS "{type: integer, normalise: trim}\n", 5, 26, "only a string can be normalised", NULL);
    refuse(
        ARGS "{type: boolean, min: 1}\n", 5, 26, "min and max are for numbers and strings", NULL);
    refuse(ARGS "{type: integer, min: 9, max: 1}\n", 5, 26, "min 9 is above max 1", NULL);
    refuse(ARGS "{type: string, min: 10, max: 9}\n", 5, 25, "min 10 is above max 9", NULL);
    refuse(ARGS "{type: integer, enum: [a]}\n", 5, 26, "enum is for strings", NULL);
    refuse(ARGS "{type: text}\n", 5, 17, "type: 'text' is not one of", NULL);
    refuse(ARGS "{type: string, normalise: title}\n", 5, 36, "'title' is not one of trim", NULL);
    refuse(ARGS "{type: integer, min: one}\n", 5, 31, "min: 'one' is not a number", NULL);
    refuse(ARGS "string\n", 5, 10, "argument 'x' must be a map", NULL);
    refuse(ARGS "{kind: string}\n", 5, 11, "unknown key 'kind'", NULL);
    refuse(ARGS "{type: any, max: 3}\n", 5, 22, "min and max are for numbers and strings", NULL);
    refuse("commands:\n  a.b: {args: [x], " HANDLER "}\n", 2, 15, "args must be a map", "amount");
    struct buf many;
    buf_init(&many, &mem_libc, 1 << 20);
    buf_str(&many, "commands:\n  a.b:\n    " HANDLER "\n    args:\n");
    for (int i = 0; i <= CONFIG_ARGS_MAX; i++) {
        buf_printf(&many, "      x%d: {type: any}\n", i);
    }
    buf_char(&many, '\0');
    refuse(many.data, 5, 7, "more than 64 arguments", NULL);
    buf_release(&many);
    refuse("commands:\n  a.b:\n    " HANDLER "\n    args: {\"a b\": {type: string}}\n", 4, 12,
        "'a b' is not the name of an argument", NULL);
}

/* The example of the shop, and what it comes to. */
static void the_example_of_the_shop_is_one(void **state)
{
    (void)state;
    struct buf file;
    struct buf shown;
    buf_init(&file, &mem_libc, 1 << 20);
    buf_init(&shown, &mem_libc, 1 << 20);
    file_read("../examples/shop/once.yaml", &file);
    buf_char(&file, '\0');
    struct reading reading = read_all(file.data, NULL);
    assert_int_equal(reading.status, OK);
    assert_int_equal(reading.config->command_count, 4);
    const struct config_command *refund = config_command_find(reading.config->commands,
        reading.config->command_count, SLICE_LIT("order"), SLICE_LIT("refund"));
    assert_non_null(refund);
    assert_int_equal(refund->class, CONFIG_CLASS_I3);
    assert_true(config_command_shield(refund, "S2"));
    assert_int_equal(refund->ttl_ms, 72 * HOUR_MS);
    assert_int_equal(refund->timeout_ms, 10000);
    assert_int_equal(refund->arg_count, 4);
    assert_null(config_command_find(reading.config->commands, reading.config->command_count,
        SLICE_LIT("order.re"), SLICE_LIT("fund")));
    struct jsonw json = {.out = &shown};
    jsonw_open(&json, NULL, '{');
    config_put_command(&json, refund, false);
    jsonw_close(&json, '}');
    buf_char(&shown, '\0');
    assert_non_null(strstr(shown.data, "\"command\":\"order.refund\",\"class\":\"I3\""));
    assert_non_null(
        strstr(shown.data, "\"amount\":{\"type\":\"integer\",\"required\":true,\"min\":1}"));
    assert_null(strstr(shown.data, "127.0.0.1")); /* where handlers are is not for callers */
    config_free(reading.config);
    buf_release(&file);
    buf_release(&shown);
}

static void every_setting_has_words_and_is_in_the_example(void **state)
{
    (void)state;
    struct buf made;
    buf_init(&made, &mem_libc, 1 << 20);
    config_example_put(&made);
    buf_char(&made, '\0');
    const char *section = strstr(made.data, "\n#commands:\n");
    assert_non_null(section);
    for (const struct config_option *o = config_command_options; o->path != NULL; o++) {
        char facts[256];
        assert_true(o->help != NULL && o->unsure != NULL && o->in == CONFIG_IN_ENTRY);
        (void)snprintf(facts, sizeof facts, "\n# %s: %s%s", o->path,
            o->fallback == NULL ? "not set by default" : "default ",
            o->fallback == NULL ? "" : o->fallback);
        assert_non_null(strstr(section, facts));
    }
    buf_release(&made);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_rules_of_classes_are_kept),
        cmocka_unit_test(windows_are_declared_and_long_enough),
        cmocka_unit_test(a_shield_is_one_that_is_applied),
        cmocka_unit_test(effects_are_declared_and_can_be_undone),
        cmocka_unit_test(what_does_not_go_together_is_refused),
        cmocka_unit_test(what_is_redacted_can_be_hidden),
        cmocka_unit_test(arguments_are_declared_whole),
        cmocka_unit_test(the_example_of_the_shop_is_one),
        cmocka_unit_test(every_setting_has_words_and_is_in_the_example),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
