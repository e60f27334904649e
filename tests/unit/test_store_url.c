/* A store's URL as people may see it: no password, whatever is in it. */
#include <string.h>

#include "check_c.h"
#include "store/store.h"

static void assert_shown(const char *url, const char *expected)
{
    struct buf out;
    buf_init(&out, &mem_libc, 4096);
    store_url_show(&out, url);
    buf_append(&out, "", 1);
    assert_int_equal(buf_status(&out), OK);
    assert_string_equal(out.data, expected);
    buf_release(&out);
}

static void a_url_without_a_password_is_shown_as_it_is(void **state)
{
    (void)state;
    static const char *const urls[] = {"./once-data", "journal:./a:b@c?segment=1MiB",
        "mem:", "postgres://once_app@db:5432/app?schema=x", "redis://127.0.0.1:6379/0?name=x",
        "redis://?socket=/run/redis.sock", "postgres:///app?host=/run/postgresql", ""};
    for (size_t i = 0; i < sizeof urls / sizeof *urls; i++) {
        assert_shown(urls[i], urls[i]);
    }
}

static void a_password_is_masked_wherever_it_is(void **state)
{
    (void)state;
    assert_shown("postgres://u:secret@db/app", "postgres://u:***@db/app");
    assert_shown("redis://:secret@h:6379/0", "redis://:***@h:6379/0");
    assert_shown("redis://u:@h", "redis://u:***@h");
    assert_shown("postgres://u@db/app?password=secret&schema=x",
        "postgres://u@db/app?password=***&schema=x");
    assert_shown("postgres://u:a@db/app?schema=x&sslpassword=b&password=c",
        "postgres://u:***@db/app?schema=x&sslpassword=***&password=***");
}

/* Somebody forgot to encode it: it does not open, and is not shown either. */
static void a_password_with_signs_of_a_url_is_masked_whole(void **state)
{
    (void)state;
    assert_shown("postgres://u:a/b@c?d@db/app", "postgres://u:***@db/app");
    assert_shown("postgres://u:a:b@db:5432/app", "postgres://u:***@db:5432/app");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_url_without_a_password_is_shown_as_it_is),
        cmocka_unit_test(a_password_is_masked_wherever_it_is),
        cmocka_unit_test(a_password_with_signs_of_a_url_is_masked_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
