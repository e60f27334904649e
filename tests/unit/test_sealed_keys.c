/* What a loop knows of sealed keys: which are found again, and which never. */
#include "check_c.h"
#include "gateway/sealed_keys.h"

static struct digest digest_of(unsigned number)
{
    struct digest digest;
    digest_sha256(&number, sizeof number, &digest);
    return digest;
}

static struct request_form_body body_of(unsigned number)
{
    return (struct request_form_body){.received = digest_of(number),
        .form = digest_of(~number),
        .version = number % 2 == 0 ? FINGERPRINT_CANONICAL : FINGERPRINT_RAW,
        .is_json = number % 3 == 0};
}

static bool is_same(const struct request_form_body *found, const struct request_form_body *body)
{
    return digest_equal(&found->received, &body->received) &&
           digest_equal(&found->form, &body->form) && found->version == body->version &&
           found->is_json == body->is_json;
}

static int set_up(void **state)
{
    *state = sealed_keys_new(&mem_libc);
    return *state == NULL;
}

static int tear_down(void **state)
{
    sealed_keys_free(*state);
    return 0;
}

static void only_what_was_learned_is_found(void **state)
{
    struct digest key = digest_of(1);
    struct digest other = key;
    struct request_form_body body = body_of(7);
    other.bytes[sizeof other.bytes - 1] ^= 1; /* in the same slot */
    assert_null(sealed_keys_find(*state, &key, 1));
    sealed_keys_learn(*state, &key, 1, &body);
    const struct request_form_body *found = sealed_keys_find(*state, &key, 1);
    assert_non_null(found);
    assert_true(is_same(found, &body));
    assert_null(sealed_keys_find(*state, &other, 1));
    assert_null(sealed_keys_find(*state, &key, 2)); /* a different configuration reads it anew */
    sealed_keys_learn(*state, &other, 1, &body);
    assert_null(sealed_keys_find(*state, &key, 1)); /* the newer one has the slot */
    assert_non_null(sealed_keys_find(*state, &other, 1));
}

static void what_was_forgotten_is_not_found(void **state)
{
    struct digest key = digest_of(1);
    struct digest other = key;
    struct request_form_body body = body_of(7);
    other.bytes[sizeof other.bytes - 1] ^= 1;
    sealed_keys_learn(*state, &key, 1, &body);
    sealed_keys_forget(*state, &other);
    assert_non_null(sealed_keys_find(*state, &key, 1));
    sealed_keys_forget(*state, &key);
    assert_null(sealed_keys_find(*state, &key, 1));
    body = body_of(8);
    sealed_keys_learn(*state, &key, 2, &body);
    assert_true(is_same(sealed_keys_find(*state, &key, 2), &body));
}

/* Nearly all of the latest keys are found, of far more keys than there are slots. */
static void the_newest_keys_stay(void **state)
{
    enum { KEYS = 4 * SEALED_KEYS_SLOTS, NEWEST = SEALED_KEYS_SLOTS / 16 };
    unsigned found = 0;
    for (unsigned i = 0; i < KEYS; i++) {
        struct digest key = digest_of(i);
        struct request_form_body body = body_of(i);
        sealed_keys_learn(*state, &key, 1, &body);
    }
    for (unsigned i = KEYS - NEWEST; i < KEYS; i++) {
        struct digest key = digest_of(i);
        struct request_form_body body = body_of(i);
        const struct request_form_body *known = sealed_keys_find(*state, &key, 1);
        assert_true(known == NULL || is_same(known, &body));
        found += known != NULL;
    }
    assert_true(found > NEWEST * 9 / 10);
}

#define WITH(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH(only_what_was_learned_is_found),
        WITH(what_was_forgotten_is_not_found),
        WITH(the_newest_keys_stay),
    };
    return cmocka_run_group_tests_name("known", tests, NULL, NULL);
}
