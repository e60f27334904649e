/*
 * once_seal_effects: effects in the commit of a seal, with the checks and the answers of the API's
 * `effects: [...]` (tests/http/test_effects.py asks the same there).
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/lib_help.h"

#define CAPTURE                                                                                    \
    "{\"effect_type\":\"payment.capture\",\"target\":{\"order_id\":\"A\"},"                        \
    "\"payload\":{\"amount\":1200,\"card\":\"4111111111111111\"}"
#define REFUND "{\"effect_type\":\"payment.refund\",\"payload\":{}"

static const char types[] = "connectors:\n"
                            "  pay: {url: 'http://127.0.0.1:9', idempotency: {header: "
                            "Idempotency-Key, keeps: 24h}}\n"
                            "  theirs: {url: 'http://127.0.0.1:9', tenants: [acme]}\n"
                            "effects:\n"
                            "  payment.capture: {connector: pay, request: {path: "
                            "'/v1/{target.order_id}'}, redact: [/card]}\n"
                            "  payment.refund: {connector: pay}\n"
                            "  mail.send: {connector: theirs}\n";

static char config_path[64];

static void write_config(const char *text)
{
    FILE *file = fopen(config_path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static int open_with_types(void **state)
{
    (void)open_place(state);
    (void)snprintf(config_path, sizeof config_path, "/tmp/once-types-XXXXXX");
    int fd = mkstemp(config_path);
    assert_true(fd >= 0);
    assert_int_equal(close(fd), 0);
    write_config(types);
    assert_int_equal(once_effect_types(once, config_path, NULL), ONCE_OK);
    return 0;
}

static int close_with_types(void **state)
{
    assert_int_equal(unlink(config_path), 0);
    return close_place(state);
}
#define WITH_TYPES(name) cmocka_unit_test_setup_teardown(name, open_with_types, close_with_types)

static struct once_bytes text_of(const char *text)
{
    return (struct once_bytes){text, strlen(text)};
}

static struct once_seal seal_of(const struct once_answer *grant)
{
    return (struct once_seal){.operation_id = grant->operation_id,
        .fence = grant->fence,
        .status = ONCE_EXECUTED,
        .effect_id = "ch_1"};
}

static struct once_answer *seal_with(const struct once_answer *grant, const char *effects)
{
    struct once_answer *answer;
    struct once_error error;
    struct once_seal seal = seal_of(grant);
    if (once_seal_effects(once, &seal, text_of(effects), &answer, &error) != ONCE_OK) {
        fail_msg("seal with %s: %s", effects, error.text);
    }
    return answer;
}

/* Nothing happens, and the error says so. */
static void refuses(const struct once_answer *grant, const char *effects, const char *says)
{
    struct once_answer *answer = NULL;
    struct once_error error;
    struct once_seal seal = seal_of(grant);
    int result = once_seal_effects(once, &seal, text_of(effects), &answer, &error);
    if (result != ONCE_E_INVALID || strstr(error.text, says) == NULL || answer != NULL) {
        fail_msg("%s: %d %s, not %s", effects, result, error.text, says);
    }
}

/* How many entries about effects of this type there are. */
struct types_seen {
    const char *type;
    size_t count;
};

static int count_type(void *context, const struct once_entry *entry)
{
    struct types_seen *seen = context;
    seen->count +=
        memmem(entry->json.data, entry->json.size, seen->type, strlen(seen->type)) != NULL;
    return 0;
}

static size_t entries_of(const char *type)
{
    struct types_seen seen = {.type = type};
    assert_int_equal(once_evidence(once, NULL, NULL, count_type, &seen, NULL), ONCE_OK);
    return seen.count;
}

static size_t count_of(const char *text, const char *part)
{
    size_t count = 0;
    for (text = strstr(text, part); text != NULL; text = strstr(text + 1, part)) {
        count++;
    }
    return count;
}

static void effects_are_written_with_the_seal(void **state)
{
    (void)state;
    struct once_answer *grant = begin_key(once, "k", "1");
    struct once_answer *sealed =
        seal_with(grant, "[" CAPTURE "}," CAPTURE ",\"ordinal\":1},{\"effect_type\":"
                         "\"payment.refund\",\"payload\":1,\"idempotency_key\":\"mine\"}]");
    assert_int_equal(sealed->decision, ONCE_SEALED);
    assert_string_equal(sealed->operation->effect_id, "ch_1");
    assert_int_equal(count_of(sealed->effects, "\"effect_id\":\"eff_"), 3);
    assert_int_equal(count_of(sealed->effects, "\"status\":\"pending\""), 3);
    assert_non_null(strstr(sealed->effects, "\"idempotency_key\":\"mine\""));
    assert_int_equal(entries_of("\"effect.created\""), 3);
    /* The operation is their command. */
    char command[64];
    (void)snprintf(command, sizeof command, "\"command_id\":\"%s\"", grant->operation_id);
    assert_int_equal(entries_of(command), 3);
    free_answers(grant, sealed, NULL);
}

static void the_same_seal_again_has_the_same_effects(void **state)
{
    (void)state;
    struct once_answer *grant = begin_key(once, "k", "1");
    struct once_answer *first = seal_with(grant, "[" CAPTURE "}]");
    struct once_answer *again = seal_with(grant, "[" CAPTURE "}]");
    assert_int_equal(again->decision, ONCE_SEALED);
    assert_int_equal(again->repeated, 1);
    assert_string_equal(again->effects, first->effects);
    assert_int_equal(entries_of("\"effect.created\""), 1);
    free_answers(grant, first, again);
}

static void a_conflict_of_an_effect_keeps_the_seal_from_happening(void **state)
{
    (void)state;
    struct once_answer *grant = begin_key(once, "k", "1");
    struct once_answer *taken = begin_key(once, "taken", "1");
    once_answer_free(once, seal_with(taken, "[" REFUND ",\"idempotency_key\":\"mine\"}]"));
    struct once_answer *answer =
        seal_with(grant, "[" CAPTURE "},{\"effect_type\":\"payment.refund\",\"payload\":2,"
                         "\"idempotency_key\":\"mine\"}]");
    assert_int_equal(answer->decision, ONCE_CONFLICT_REJECTED);
    assert_int_equal(answer->effect_refused, 2);
    assert_null(answer->operation);
    assert_null(answer->effects);
    assert_int_equal(entries_of("\"effect.created\""), 1);
    struct once_operation *operation = get_one(once, grant->operation_id);
    assert_int_equal(operation->status, ONCE_STATUS_IN_PROGRESS);
    once_operation_free(once, operation);
    struct once_answer *sealed = seal_with(grant, "[" CAPTURE "}]"); /* the grant is still ours */
    assert_int_equal(sealed->decision, ONCE_SEALED);
    once_answer_free(once, taken);
    free_answers(grant, answer, sealed);
}

static void a_refused_seal_makes_no_effect(void **state)
{
    (void)state;
    struct once_answer *grant = begin_key(once, "k", "1");
    struct once_answer *answer;
    struct once_seal seal = seal_of(grant);
    struct once_error error;
    seal.fence += 1000;
    assert_int_equal(
        once_seal_effects(once, &seal, text_of("[" CAPTURE "}]"), &answer, &error), ONCE_OK);
    assert_int_equal(answer->decision, ONCE_STALE_FENCE);
    assert_int_equal(
        once_seal_effects(once, &seal, text_of("[" CAPTURE "}]"), NULL, &error), ONCE_E_STALE);
    assert_non_null(strstr(error.text, "stale_fence"));
    assert_int_equal(entries_of("\"effect.created\""), 0);
    free_answers(grant, answer, NULL);
}

static void what_is_wrong_is_refused_by_its_name(void **state)
{
    (void)state;
    struct once_answer *grant = begin_key(once, "k", "1");
    char many[2 * 65 + 2];
    refuses(grant, "[" CAPTURE "},{\"effect_type\":\"none\",\"payload\":1}]",
        "effects[1]: there is no effect type 'none'");
    refuses(grant, "[{\"effect_type\":\"mail.send\",\"payload\":1}]",
        "effects[0]: there is no effect type 'mail.send'"); /* another tenant's (P9) */
    refuses(grant, "[" CAPTURE ",\"wait\":\"1s\"}]", "effects[0]: member 'wait'");
    refuses(grant, "[" CAPTURE ",\"x\":1}]", "'x'");
    refuses(grant, "[7]", "effects[0]: an effect is not a JSON object");
    refuses(grant, "{}", "seal_effects_max (64)");
    refuses(grant, "[", "effects: ");
    refuses(grant, "[{\"effect_type\":\"payment.capture\",\"payload\":1}]", "target.order_id");
    refuses(grant, "[" REFUND ",\"tenant_id\":\"acme\"}]", "tenant_id");
    refuses(grant, "[" REFUND ",\"target\":9007199254740993}]", "effects[0]: ");
    memset(many, 0, sizeof many);
    for (int i = 0; i < 65; i++) {
        many[2 * i] = i == 0 ? '[' : ',';
        many[2 * i + 1] = '1';
    }
    many[2 * 65] = ']';
    refuses(grant, many, "seal_effects_max (64)");
    struct once_seal seal = seal_of(grant);
    struct once_error error;
    assert_int_equal(
        once_seal_effects(once, &seal, (struct once_bytes){NULL, 0}, NULL, &error), ONCE_E_INVALID);
    assert_int_equal(entries_of("\"effect.created\""), 0);
    struct once_answer *none = seal_with(grant, "[]");
    assert_int_equal(none->decision, ONCE_SEALED);
    assert_string_equal(none->effects, "[]");
    free_answers(grant, none, NULL);
}

static void without_types_effects_are_refused_with_a_hint(void **state)
{
    (void)state;
    struct once_answer *grant = begin_key(once, "k", "1");
    struct once_error error;
    struct once_seal seal = seal_of(grant);
    assert_int_equal(
        once_seal_effects(once, &seal, text_of("[" REFUND "}]"), NULL, &error), ONCE_E_INVALID);
    assert_non_null(strstr(error.hint, "once_effect_types"));
    assert_int_equal(once_effect_types(once, "/nowhere.yaml", &error), ONCE_E_INVALID);
    assert_non_null(strstr(error.text, "/nowhere.yaml"));
    assert_int_equal(once_effect_types(once, NULL, &error), ONCE_E_MISUSE);
    once_answer_free(once, grant);
}

static void a_changed_file_counts_only_if_it_is_valid(void **state)
{
    (void)state;
    struct once_answer *grant = begin_key(once, "k", "1");
    struct once_error error;
    write_config("effects:\n  payment.capture: {connector: nobody}\n");
    assert_int_equal(once_effect_types(once, config_path, &error), ONCE_E_INVALID);
    assert_non_null(strstr(error.text, ":2:"));
    struct once_answer *sealed =
        seal_with(grant, "[" CAPTURE "}]"); /* the first file still holds */
    assert_int_equal(sealed->decision, ONCE_SEALED);
    write_config("connectors:\n  pay: {url: 'http://127.0.0.1:9'}\n");
    assert_int_equal(once_effect_types(once, config_path, &error), ONCE_OK);
    struct once_answer *second = begin_key(once, "k2", "1");
    refuses(second, "[" CAPTURE "}]", "there is no effect type");
    free_answers(grant, sealed, second);
}

static atomic_int done_count;

static void sealed_later(
    void *context, int result, struct once_answer *answer, const struct once_error *error)
{
    (void)error;
    if (result == ONCE_OK && answer->decision == ONCE_SEALED &&
        count_of(answer->effects, "eff_") == 4) {
        once_answer_free(context, answer);
        atomic_fetch_add(&done_count, 1);
    }
}

static void submitted_seals_carry_effects_too(void **state)
{
    (void)state;
    enum { SEALS = 100 };
    char effects[256];
    char key[32];
    struct once_answer *grants[SEALS];
    atomic_store(&done_count, 0);
    for (int i = 0; i < SEALS; i++) {
        (void)snprintf(key, sizeof key, "k-%d", i);
        grants[i] = begin_key(once, key, "1");
        struct once_seal seal = seal_of(grants[i]);
        /* The text is gone before the answer comes. */
        (void)snprintf(effects, sizeof effects, "[" REFUND "}," REFUND ",\"ordinal\":%d}]", i + 1);
        assert_int_equal(
            once_submit_seal_effects(once, &seal, text_of(effects), sealed_later, once, NULL),
            ONCE_OK);
        memset(effects, 'x', sizeof effects);
    }
    for (int i = 0; i < 30000 && atomic_load(&done_count) < SEALS; i++) {
        sleep_ms(1);
    }
    assert_int_equal(atomic_load(&done_count), SEALS);
    assert_int_equal(entries_of("\"effect.created\""), 2 * SEALS);
    for (int i = 0; i < SEALS; i++) {
        once_answer_free(once, grants[i]);
    }
}

int main(int argc, char **argv)
{
    store_kind = argc > 1 ? argv[1] : store_kind;
    const struct CMUnitTest tests[] = {
        WITH_TYPES(effects_are_written_with_the_seal),
        WITH_TYPES(the_same_seal_again_has_the_same_effects),
        WITH_TYPES(a_conflict_of_an_effect_keeps_the_seal_from_happening),
        WITH_TYPES(a_refused_seal_makes_no_effect),
        WITH_TYPES(what_is_wrong_is_refused_by_its_name),
        ON_STORE(without_types_effects_are_refused_with_a_hint),
        WITH_TYPES(a_changed_file_counts_only_if_it_is_valid),
        WITH_TYPES(submitted_seals_carry_effects_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
