/* Who asks: every form of the Authorization field, and whose tenant it gives. */
#include <stdio.h>
#include <string.h>

#include "api/auth.h"
#include "check_c.h"

#define TOKEN "once_tok-1.a~b+c/d=="

struct auth_request {
    char text[8192];
    struct http_head head;
};

/* Read a request with these field lines. */
static const struct http_head *ask(struct auth_request *asked, const char *fields)
{
    int size =
        snprintf(asked->text, sizeof asked->text, "GET / HTTP/1.1\r\nHost: x\r\n%s\r\n", fields);
    struct http_limits limits = HTTP_LIMITS_DEFAULT;
    struct http_refusal refusal;
    http_head_init(&asked->head);
    assert_int_equal(
        http_request_head(slice_of(asked->text, (size_t)size), &limits, &asked->head, &refusal),
        HTTP_DONE);
    return &asked->head;
}

static struct config_token token_of(const char *text, const char *tenant, unsigned rights)
{
    struct config_token token = {
        .tenant = slice_str(tenant), .rights = rights, .name = SLICE_LIT("a service")};
    digest_sha256(text, strlen(text), &token.sha256);
    return token;
}

static enum auth_verdict verdict(
    const struct api_policy *policy, const char *fields, struct api_caller *ret_caller)
{
    struct auth_request asked;
    return auth_check(policy, ask(&asked, fields), false, ret_caller);
}

static void a_known_token_gives_its_tenant_and_rights(void **state)
{
    (void)state;
    struct config_token tokens[] = {token_of("first", "alpha", CONFIG_RIGHT_EXECUTE),
        token_of(TOKEN, "acme", CONFIG_RIGHT_AUDIT | CONFIG_RIGHT_OPERATE),
        token_of("last", "omega", CONFIG_RIGHT_CONFIRM)};
    struct api_policy policy = {.tokens = tokens, .token_count = 3, .needs_token = true};
    struct api_caller caller;
    assert_int_equal(verdict(&policy, "Authorization: Bearer " TOKEN "\r\n", &caller), AUTH_OK);
    assert_true(slice_is(caller.tenant, "acme"));
    assert_true(slice_is(caller.actor, "a service"));
    assert_int_equal(caller.rights, CONFIG_RIGHT_AUDIT | CONFIG_RIGHT_OPERATE);
    assert_false(caller.sees_all);
    assert_int_equal(verdict(&policy, "authorization: bEaReR first\r\n", &caller), AUTH_OK);
    assert_true(slice_is(caller.tenant, "alpha"));
    assert_true(slice_is(caller.token, "first"));
    assert_int_equal(verdict(&policy, "Authorization: Bearer last\r\n", &caller), AUTH_OK);
    assert_true(slice_is(caller.tenant, "omega"));
}

static void anything_else_is_refused(void **state)
{
    (void)state;
    struct config_token tokens[] = {token_of(TOKEN, "acme", CONFIG_RIGHT_EXECUTE),
        token_of("", "empty", CONFIG_RIGHT_EXECUTE),
        token_of("a b", "blank", CONFIG_RIGHT_EXECUTE)};
    struct api_policy policy = {.tokens = tokens, .token_count = 3, .needs_token = true};
    static const char *const wrong[] = {
        "Authorization: Bearer nobody\r\n",
        "Authorization: Bearer " TOKEN "x\r\n",
        "Authorization: Bearer\r\n",
        "Authorization:\r\n",
        "Authorization: Bearer  " TOKEN "\r\n",
        "Authorization: Bearer\t" TOKEN "\r\n",
        "Authorization: " TOKEN "\r\n",
        "Authorization: Basic " TOKEN "\r\n",
        "Authorization: Bearers " TOKEN "\r\n",
        "Authorization: Bearer a b\r\n",
        "Authorization: Bearer " TOKEN ", Bearer " TOKEN "\r\n",
        "Authorization: Bearer " TOKEN "\r\nAuthorization: Bearer " TOKEN "\r\n",
        "Authorization: Bearer nobody\r\nAuthorization: Bearer " TOKEN "\r\n",
    };
    struct api_caller caller = {.rights = 77};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(verdict(&policy, wrong[i], &caller), AUTH_WRONG);
    }
    assert_int_equal(verdict(&policy, "", &caller), AUTH_MISSING);
    assert_int_equal(
        verdict(&policy, "X-Authorization: Bearer " TOKEN "\r\n", &caller), AUTH_MISSING);
    assert_int_equal(caller.rights, 77);
    policy.token_count = 0;
    assert_int_equal(verdict(&policy, "Authorization: Bearer " TOKEN "\r\n", &caller), AUTH_WRONG);
}

static void without_tokens_everybody_is_default(void **state)
{
    (void)state;
    struct api_policy policy = {.needs_token = false};
    struct api_caller caller;
    assert_int_equal(
        verdict(&policy, "Authorization: Bearer x\r\nOnce-Tenant: acme\r\n", &caller), AUTH_OK);
    assert_true(slice_is(caller.tenant, "default"));
    assert_int_equal(caller.token.len, 0); /* nobody verified it */
    assert_int_equal(caller.rights,
        CONFIG_RIGHT_EXECUTE | CONFIG_RIGHT_CONFIRM | CONFIG_RIGHT_OPERATE | CONFIG_RIGHT_AUDIT);
    assert_true(caller.sees_all);
}

static void the_tenant_field_means_nothing_beside_a_token(void **state)
{
    (void)state;
    struct config_token tokens[] = {token_of(TOKEN, "acme", CONFIG_RIGHT_EXECUTE)};
    struct api_policy policy = {.tokens = tokens, .token_count = 1, .needs_token = true};
    struct api_caller caller;
    assert_int_equal(
        verdict(&policy, "Once-Tenant: other\r\nAuthorization: Bearer " TOKEN "\r\n", &caller),
        AUTH_OK);
    assert_true(slice_is(caller.tenant, "acme"));
}

static void a_token_of_all_tenants_only_looks_at_figures(void **state)
{
    (void)state;
    struct config_token tokens[] = {
        token_of(TOKEN, "*", CONFIG_RIGHT_EXECUTE | CONFIG_RIGHT_AUDIT)};
    struct api_policy policy = {.tokens = tokens, .token_count = 1, .needs_token = true};
    struct api_caller caller;
    assert_int_equal(verdict(&policy, "Authorization: Bearer " TOKEN "\r\n", &caller), AUTH_OK);
    assert_true(caller.sees_all);
    assert_int_equal(caller.rights, 0);
}

static void the_own_socket_belongs_to_operators(void **state)
{
    (void)state;
    struct api_policy policy = {.needs_token = true};
    struct api_caller caller;
    struct auth_request asked;
    assert_int_equal(auth_check(&policy, ask(&asked, ""), true, &caller), AUTH_OK);
    assert_true(slice_is(caller.tenant, "default"));
    assert_true(slice_is(caller.actor, "operator"));
    assert_int_equal(
        auth_check(&policy, ask(&asked, "once-tenant: acme\r\nAuthorization: Bearer x\r\n"), true,
            &caller),
        AUTH_OK);
    assert_true(slice_is(caller.tenant, "acme"));
    assert_int_equal(caller.token.len, 0); /* nobody verified it */
    assert_true(caller.sees_all);
    assert_int_equal(
        auth_check(&policy, ask(&asked, "Once-Tenant: *\r\n"), true, &caller), AUTH_OK);
    assert_true(slice_is(caller.tenant, "*"));

    char longest[300], field[400];
    for (size_t size = 255; size <= 256; size++) {
        memset(longest, 't', size);
        longest[size] = '\0';
        (void)snprintf(field, sizeof field, "Once-Tenant: %s\r\n", longest);
        assert_int_equal(auth_check(&policy, ask(&asked, field), true, &caller),
            size == 255 ? AUTH_OK : AUTH_WRONG);
    }
    static const char *const wrong[] = {
        "Once-Tenant:\r\n", "Once-Tenant: \xff\r\n", "Once-Tenant: a\r\nOnce-Tenant: a\r\n"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(auth_check(&policy, ask(&asked, wrong[i]), true, &caller), AUTH_WRONG);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_known_token_gives_its_tenant_and_rights),
        TEST(anything_else_is_refused),
        TEST(without_tokens_everybody_is_default),
        TEST(the_tenant_field_means_nothing_beside_a_token),
        TEST(a_token_of_all_tenants_only_looks_at_figures),
        TEST(the_own_socket_belongs_to_operators),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
