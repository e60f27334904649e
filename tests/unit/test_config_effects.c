/*
 * Connectors and types of effect: what is taken, and what cannot be shielded and does not load.
 */
#include <stdio.h>
#include <string.h>

#include "check_c.h"
#include "config/config.h"

#define PAY     "connectors:\n  pay:\n    url: https://api.pay.example/v2/\n"
#define KEY     "    idempotency: {header: Idempotency-Key, keeps: 24h}\n"
#define LOOKUP  "    lookup: {get: \"/by-key/{idempotency_key}\"}\n"
#define MANUAL  "    approve: manual\n"
#define CAPTURE "effects:\n  payment.capture:\n    connector: pay\n"
#define UNDO    "    compensate: {effect: payment.refund}\n"
#define REFUND  "  payment.refund:\n    connector: pay\n"

static struct config *load(const char *text, struct config_faults *faults, enum status *ret_status)
{
    struct config *config = NULL;
    *faults = (struct config_faults){.count = 0};
    assert_int_equal(config_new(&mem_libc, &config, NULL), OK);
    *ret_status = config_read(config, slice_str(text), faults);
    if (*ret_status == OK) {
        *ret_status = config_check(config, faults);
    }
    return config;
}

static struct config *take(const char *text)
{
    struct config_faults faults;
    enum status status;
    struct config *config = load(text, &faults, &status);
    if (status != OK) {
        fail_msg("%s\n%u:%u: %s", text, faults.items[0].line, faults.items[0].column,
            faults.items[0].text);
    }
    return config;
}

static void refuse(const char *text, unsigned line, unsigned column, const char *says)
{
    struct config_faults faults;
    enum status status;
    struct config *config = load(text, &faults, &status);
    const struct config_fault *fault = &faults.items[0];
    if (status != E_INVALID || faults.count != 1 || fault->line != line ||
        fault->column != column || strstr(fault->text, says) == NULL) {
        fail_msg("%s\nstatus %d, %zu faults; the first %u:%u: %s", text, status, faults.count,
            fault->line, fault->column, fault->text == NULL ? "" : fault->text);
    }
    config_free(config);
}

static void the_sections_of_the_design_are_taken(void **state)
{
    (void)state;
    struct config *config = take(PAY KEY LOOKUP
        "    protocol: http\n    auth: {bearer_file: /run/secrets/pay}\n    rate: 50\n"
        "    concurrency: 16\n    timeout: {connect: 2s, first_byte: 30s, total: 60s}\n"
        "    breaker: {failures: 10, pause: 30s}\n" CAPTURE
        "    request: {method: POST, path: \"/v1/charges/{target.order_id}\", body: payload, "
        "headers: {X-Order: \"{target.order_id}\"}}\n"
        "    provider_ref: /id\n"
        "    retry: {attempts: 8, backoff: 1s, backoff_max: 10m, deadline: 24h}\n"
        "    required: true\n    irreversible: true\n"
        "    compensate: {effect: payment.refund, payload: {charge: \"{provider_ref}\", amount: "
        "\"{payload.amount}\", n: 7, s: \"7\", ok: true}}\n"
        "    order: \"{target.order_id}\"\n    redact: [/card]\n" REFUND);
    const struct config_effects *effects = &config->effects;
    const struct config_effect *capture = config_effect_find(effects, SLICE_LIT("payment.capture"));
    assert_int_equal(effects->type_count, 2);
    assert_null(config_effect_find(effects, SLICE_LIT("payment")));
    assert_string_equal(capture->connector->origin, "https://api.pay.example");
    assert_string_equal(capture->connector->base_path, "/v2");
    assert_string_equal(capture->connector->auth.bearer.file, "/run/secrets/pay");
    assert_int_equal(capture->connector->lookup.executed[0], 200);
    assert_int_equal(capture->connector->lookup.not_executed[0], 404);
    assert_int_equal(capture->connector->idempotency.keeps_ms, 86400000);
    assert_string_equal(capture->compensate->name, "payment.refund");
    assert_string_equal(capture->headers[0].value, "{target.order_id}");
    assert_int_equal(capture->attempts, 8);
    const struct json_value *n = json_find(capture->compensate_payload, SLICE_LIT("n"));
    const struct json_value *s = json_find(capture->compensate_payload, SLICE_LIT("s"));
    assert_int_equal(n->type, JSON_NUMBER);
    assert_int_equal(s->type, JSON_STRING);
    config_free(config);
}

static void presets_are_taken_and_overridden(void **state)
{
    static const struct {
        const char *name, *header, *body;
        int64_t keeps_ms;
        uint64_t bytes_max;
    } presets[] = {{"stripe", "Idempotency-Key", NULL, 86400000, 255},
        {"paypal", "PayPal-Request-Id", NULL, 21600000, 108},
        {"square", NULL, "/idempotency_key", 3600000, 45},
        {"adyen", "Idempotency-Key", NULL, 604800000, 64}};
    (void)state;
    for (size_t i = 0; i < sizeof presets / sizeof presets[0]; i++) {
        char text[256];
        (void)snprintf(text, sizeof text, PAY "    preset: %s\n", presets[i].name);
        struct config *config = take(text);
        const struct config_idempotency *key = &config->effects.connectors[0].idempotency;
        assert_int_equal(key->keeps_ms, presets[i].keeps_ms);
        assert_int_equal(key->key_bytes_max, presets[i].bytes_max);
        assert_true((key->header == NULL) == (presets[i].header == NULL));
        assert_true(key->header == NULL || strcmp(key->header, presets[i].header) == 0);
        assert_true(key->body == NULL || strcmp(key->body, presets[i].body) == 0);
        config_free(config);
    }
    struct config *config = take(PAY "    idempotency: {keeps: 2h}\n    preset: stripe\n");
    assert_int_equal(config->effects.connectors[0].idempotency.keeps_ms, 7200000);
    assert_string_equal(config->effects.connectors[0].idempotency.header, "Idempotency-Key");
    config_free(config);
    refuse(PAY "    preset: stripey\n", 4, 13, "there is no preset 'stripey'");
}

static void what_cannot_be_shielded_does_not_load(void **state)
{
    static const char *const marks[] = {"    irreversible: true\n", "    critical: true\n"};
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        char text[512];
        (void)snprintf(text, sizeof text, PAY CAPTURE "%s" UNDO REFUND, marks[i]);
        refuse(text, 5, 3, "has neither idempotency nor lookup");
        (void)snprintf(text, sizeof text, PAY CAPTURE "%s" MANUAL UNDO REFUND, marks[i]);
        config_free(take(text));
        (void)snprintf(text, sizeof text, PAY MANUAL CAPTURE "%s" UNDO REFUND, marks[i]);
        config_free(take(text));
        (void)snprintf(text, sizeof text, PAY KEY CAPTURE "%s" UNDO REFUND, marks[i]);
        config_free(take(text));
        (void)snprintf(text, sizeof text, PAY LOOKUP CAPTURE "%s" UNDO REFUND, marks[i]);
        config_free(take(text));
        (void)snprintf(text, sizeof text, PAY KEY CAPTURE "%s" REFUND, marks[i]);
        refuse(text, 6, 3, "and has no compensate");
    }
    config_free(take(PAY CAPTURE));
}

/* A key that is not sent, or is sent beside a second value, protects nothing. */
static void a_key_without_a_place_does_not_load(void **state)
{
#define BODY "    idempotency: {body: %s}\n"
    static const char *const fields[] = {"request-id", "Host", "Authorization", "Content-Type"};
    char text[2048], name[1100];
    (void)state;
    refuse(PAY "    idempotency: {body: /k}\n" CAPTURE "    request: {body: none}\n", 6, 3,
        "has no body, and connector 'pay' puts the key into the body");
    refuse(PAY "    preset: square\n" CAPTURE "    request: {body: none}\n", 6, 3, "has no body");
    config_free(take(PAY "    idempotency: {body: /k}\n" CAPTURE "    request: {body: form}\n"));
    config_free(take(PAY KEY CAPTURE "    request: {body: none}\n"));
    refuse(PAY "    idempotency: {body: \"\"}\n", 4, 25, "is empty");
    refuse(PAY "    protocol: envelope\n    idempotency: {body: /k}\n", 5, 25, "has no effect");
    refuse(PAY "    protocol: envelope\n    preset: square\n", 2, 3, "has no effect");
    for (size_t len = 1024; len <= 1025; len++) {
        memset(name, 'a', len);
        name[0] = '/';
        name[len] = '\0';
        (void)snprintf(text, sizeof text, PAY BODY, name);
        if (len == 1024) {
            config_free(take(text));
        } else {
            refuse(text, 4, 25, "longer than 1024 bytes");
        }
    }
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        (void)snprintf(text, sizeof text, PAY "    idempotency: {header: %s}\n", fields[i]);
        refuse(text, 4, 27, "cannot carry the key");
    }
    refuse(PAY "    idempotency: {header: X-Key}\n    auth: {header: x-key, header_env: K}\n", 4,
        27, "cannot carry the key");
    refuse(PAY KEY CAPTURE "    request: {headers: {idempotency-key: \"{payload.id}\"}}\n", 6, 3,
        "sets Idempotency-Key, in which connector 'pay' sends the key");
    config_free(take(PAY KEY CAPTURE "    request: {headers: {X-Key: \"{payload.id}\"}}\n"));
}

static void faults_are_told_with_their_places(void **state)
{
    (void)state;
    refuse("connectors:\n  pay: {protocol: http}\n", 2, 8, "the connector has no url");
    refuse(PAY "    tenant: a\n", 4, 5, "unknown key 'tenant'");
    refuse(PAY "    auth: {bearer_file: a, bearer_env: B}\n", 4, 40, "by a file and by a variable");
    refuse(PAY "    auth: {bearer_file: a, basic_file: b}\n", 4, 25, "both a bearer token and a");
    refuse(PAY "    auth: {header: X-Key}\n", 4, 20, "go together");
    refuse(PAY "    auth: {bearer: secret}\n", 4, 12, "unknown key 'bearer'");
    refuse(PAY "    idempotency: {header: A, body: /b}\n", 4, 36, "not into both");
    refuse(PAY "    idempotency: {header: A, keeps: 1m}\n", 4, 37, "not longer than timeout.total");
    refuse(PAY "    preset: square\n    timeout: {total: 1h}\n", 2, 3, "not longer than");
    config_free(take(PAY "    idempotency: {header: A, keeps: 61s}\n"));
    refuse(PAY "    lookup: {get: /all}\n", 4, 19, "would ask the same of every effect");
    refuse(PAY "    lookup: {get: \"/{key}\"}\n", 4, 19, "there is no value called {key}");
    refuse(PAY "    lookup: {get: \"/{effect_id}\", executed: 404}\n", 4, 45, "means both");
    refuse(PAY "    lookup: {found: /data/0/id}\n", 4, 21, "no effect without lookup.get");
    refuse(PAY "    lookup: {get: \"/{effect_id}\", found: data}\n", 4, 42, "found");
    refuse(PAY "    protocol: kafkaesque\n", 4, 15, "is not one of http, envelope");
    refuse(PAY "effects:\n  a:\n    request: {path: /x}\n", 6, 5, "the effect has no connector");
    refuse(PAY "effects:\n  a:\n    connector: nobody\n", 6, 16, "does not exist: 'nobody'");
    refuse(PAY CAPTURE "    request: {path: x}\n", 7, 21, "does not begin with '/'");
    refuse(PAY CAPTURE "    request: {path: \"/{provider_ref}\"}\n", 7, 21,
        "there is no value called");
    refuse(PAY CAPTURE "    request: {headers: {Host: x}}\n", 7, 25, "Host is not a field");
    refuse(PAY CAPTURE "    provider_ref: id\n", 7, 19, "neither a JSON Pointer nor header:NAME");
    refuse(PAY CAPTURE "    order: \"{card}\"\n", 7, 12, "there is no value called {card}");
    refuse(PAY CAPTURE "    retry: {backoff: 2m, backoff_max: 1m}\n", 7, 22, "more than");
    refuse(PAY CAPTURE "    compensate: {effect: nobody}\n", 7, 26, "does not exist: 'nobody'");
    refuse(PAY CAPTURE "    compensate: {effect: payment.capture}\n", 7, 26, "own compensation");
    refuse(
        PAY CAPTURE "    compensate: {payload: {a: 1}}\n", 7, 27, "compensate.effect is missing");
    refuse(PAY CAPTURE "    compensate: {effect: payment.refund, payload: \"{x}\"}\n" REFUND, 7, 51,
        "there is no value called {x}");
}

static void a_connector_serves_its_tenants(void **state)
{
    (void)state;
    struct config *config = take(PAY "    tenants: [acme]\n  mail:\n    url: http://m:25/\n");
    const struct config_connector *connectors = config->effects.connectors;
    assert_true(config_connector_serves(&connectors[0], SLICE_LIT("acme")));
    assert_false(config_connector_serves(&connectors[0], SLICE_LIT("evil")));
    assert_true(config_connector_serves(&connectors[1], SLICE_LIT("evil")));
    config_free(config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_sections_of_the_design_are_taken),
        cmocka_unit_test(presets_are_taken_and_overridden),
        cmocka_unit_test(what_cannot_be_shielded_does_not_load),
        cmocka_unit_test(a_key_without_a_place_does_not_load),
        cmocka_unit_test(faults_are_told_with_their_places),
        cmocka_unit_test(a_connector_serves_its_tenants),
    };
    return cmocka_run_group_tests_name("config_effects", tests, NULL, NULL);
}
