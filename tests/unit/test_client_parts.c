#include <string.h>

#include "check_c.h"
#include "client/libcurl.h"
#include "client/response.h"
#include "client/wait.h"

/* The parts of the SDK that need no world: ids, pauses, the reading of an answer, settings. */

static void a_pause_is_between_nothing_and_a_doubling_ceiling(void **state)
{
    (void)state;
    static const int64_t ceilings[] = {100, 200, 400, 800, 1600, 3200, 6400, 10000, 10000, 10000};
    struct client_wait wait = {.base_ms = 100, .max_ms = 10000, .left_ms = 1000000};
    for (unsigned retry = 0; retry < 10; retry++) {
        wait.retry = retry;
        wait.random = 0;
        assert_int_equal(client_wait_ms(&wait), 0);
        wait.random = (uint64_t)ceilings[retry];
        assert_int_equal(client_wait_ms(&wait), ceilings[retry]);
        wait.random++;
        assert_int_equal(client_wait_ms(&wait), 0);
    }
    wait.retry = UINT32_MAX;
    wait.random = 10000;
    assert_int_equal(client_wait_ms(&wait), 10000);
    wait = (struct client_wait){.base_ms = 500, .max_ms = 100, .random = 100, .left_ms = 1000000};
    assert_int_equal(client_wait_ms(&wait), 100);
}

static void a_pause_leaves_time_for_the_attempt(void **state)
{
    (void)state;
    struct client_wait wait = {.base_ms = 1000, .max_ms = 10000, .random = 1000};
    for (int64_t left = 1; left < 3000; left++) {
        wait.left_ms = left;
        int64_t ms = client_wait_ms(&wait);
        assert_true(ms >= 0 && ms < left);
    }
    wait.left_ms = 0;
    assert_int_equal(client_wait_ms(&wait), -1);
    wait.left_ms = -5;
    assert_int_equal(client_wait_ms(&wait), -1);
}

static void retry_after_is_a_lower_bound(void **state)
{
    (void)state;
    struct client_wait wait = {.base_ms = 100, .max_ms = 10000, .after_ms = 3000, .left_ms = 9000};
    for (uint64_t random = 0; random <= 100; random++) {
        wait.random = random;
        assert_int_equal(client_wait_ms(&wait), 3000 + (int64_t)random);
    }
    wait.left_ms = 3000;
    assert_int_equal(client_wait_ms(&wait), -1);
}

static void retry_after_is_read_in_every_form(void **state)
{
    (void)state;
    const int64_t now = INT64_C(784111777000) - 90000; /* 90 s before the dates below */
    struct err err = {0};
    assert_int_equal(libcurl_load(&err), OK); /* it reads dates */
    static const struct {
        const char *text;
        int64_t ms;
    } cases[] = {
        {"0", 0},
        {"120", 120000},
        {"Sun, 06 Nov 1994 08:49:37 GMT", 90000},
        {"Sunday, 06-Nov-94 08:49:37 GMT", 90000},
        {"Sun Nov  6 08:49:37 1994", 90000},
        {"Sun, 06 Nov 1994 08:40:00 GMT", 0},
        {"", 0},
        {"soon", 0},
        {"-1", 0},
        {"1.5", 0},
        {"99999999999999999999", 0},
        {"9999999999", INT64_C(365) * 86400000},
        {"Sun, 06 Nov 9994 08:49:37 GMT", INT64_C(365) * 86400000},
        {"Sun, 06 Nov 1994 08:49:37 GMT, and a text that is longer than every date can be", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t ms = client_retry_after_ms(slice_str(cases[i].text), now);
        if (ms != cases[i].ms) {
            fail_msg("'%s' is %lld ms", cases[i].text, (long long)ms);
        }
    }
}

static void interim_answers_and_trailers_are_left_out(void **state)
{
    (void)state;
    struct once_client *client = NULL;
    assert_int_equal(once_client_new(NULL, &client, NULL), ONCE_OK);
    struct client_response *response = client_response_new(client);
    static const char *const lines[] = {"HTTP/1.1 103 Early Hints\r\n", "Link: x\r\n", "\r\n",
        "HTTP/1.1 200 OK\r\n", "A: b\r\n", " folded\r\n", "\r\n", "Trailer: t\r\n"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        assert_true(client_response_line(response, slice_str(lines[i])));
    }
    assert_true(client_response_end(response, 200));
    assert_int_equal(response->shown.header_count, 1);
    assert_string_equal(response->shown.headers[0].name, "A");
    once_response_free(client, &response->shown);
    once_client_free(client);
}

static void answers_are_bounded(void **state)
{
    (void)state;
    struct once_client_options options = {.body_bytes_max = 10, .headers_bytes_max = 20};
    struct once_client *client = NULL;
    assert_int_equal(once_client_new(&options, &client, NULL), ONCE_OK);
    struct client_response *response = client_response_new(client);
    assert_true(client_response_piece(response, SLICE_LIT("0123456789")));
    assert_true(client_response_end(response, 200));
    assert_int_equal(response->shown.body.size, 10);
    client_response_clear(response);
    assert_true(client_response_piece(response, SLICE_LIT("0123456789")));
    assert_false(client_response_piece(response, SLICE_LIT("x")));
    assert_true(client_response_end(response, 200));
    assert_int_equal(response->shown.body.size, 0);
    assert_int_equal(response->shown.body_is_lost, 1);
    client_response_clear(response);
    assert_true(client_response_line(response, SLICE_LIT("A: 6789012345678\r\n")));
    assert_false(client_response_line(response, SLICE_LIT("Name: value\r\n")));
    assert_true(response->head_too_large);
    once_response_free(client, &response->shown);
    once_client_free(client);
}

static void settings_out_of_range_are_refused(void **state)
{
    (void)state;
    static const struct once_client_options bad[] = {{.connect_timeout_ms = -1},
        {.backoff_base_ms = -1}, {.backoff_max_ms = INT64_MAX}, {.idle_max = -1},
        {.idle_max = 5000}, {.user_agent = "a\r\nb"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct once_client *client = NULL;
        struct once_error error;
        assert_int_equal(once_client_new(&bad[i], &client, &error), ONCE_E_INVALID);
        assert_null(client);
        assert_true(error.text[0] != '\0');
    }
    assert_int_equal(once_client_new(NULL, NULL, NULL), ONCE_E_MISUSE);
    once_client_free(NULL);
    once_response_free(NULL, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_pause_is_between_nothing_and_a_doubling_ceiling),
        TEST(a_pause_leaves_time_for_the_attempt),
        TEST(retry_after_is_a_lower_bound),
        TEST(retry_after_is_read_in_every_form),
        TEST(interim_answers_and_trailers_are_left_out),
        TEST(answers_are_bounded),
        TEST(settings_out_of_range_are_refused),
    };
    return cmocka_run_group_tests_name("client_parts", tests, NULL, NULL);
}
