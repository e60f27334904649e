#include <arpa/inet.h>
#include <curl/curl.h>
#include <once/client.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "check_c.h"
#include "faulty_mem.h"

/*
 * One operation through the SDK, again and again, each time with another allocation failing: the
 * client's own, and libcurl's. The server refuses the first attempt and takes the second. Whatever
 * fails, the call says what is true: "nothing was sent" only when nothing took effect. Afterwards
 * nothing may be left allocated, and the same key, with memory, continues the operation.
 */

/* ---- an allocator that fails --------------------------------------------------------------- */

static struct faulty faulty; /* libcurl's functions have no context */

static void *curl_malloc(size_t size)
{
    return faulty_resize(&faulty, NULL, size == 0 ? 1 : size);
}

static void curl_free_one(void *pointer)
{
    (void)faulty_resize(&faulty, pointer, 0);
}

static void *curl_realloc(void *pointer, size_t size)
{
    return faulty_resize(&faulty, pointer, size == 0 ? 1 : size);
}

static char *curl_strdup(const char *text)
{
    char *copy = curl_malloc(strlen(text) + 1);
    return copy == NULL ? NULL : memcpy(copy, text, strlen(text) + 1);
}

static void *curl_calloc(size_t count, size_t size)
{
    void *block = curl_malloc(count * size);
    return block == NULL ? NULL : memset(block, 0, count * size);
}

/* ---- a server ------------------------------------------------------------------------------ */

static struct {
    int listener;
    char url[64];
    pthread_t thread;
    pthread_mutex_t lock;
    int requests; /* since the last reset */
    int effects;
} server = {.lock = PTHREAD_MUTEX_INITIALIZER};

static const char refusal[] =
    "HTTP/1.1 503 Busy\r\nContent-Type: application/problem+json\r\nContent-Length: 52\r\n\r\n"
    "{\"code\":\"overloaded\",\"effect\":\"no\",\"retry\":\"safe\"}  ";
static const char acceptance[] = "HTTP/1.1 201 Created\r\nOnce-Decision: first_seen\r\n"
                                 "Content-Length: 4\r\n\r\ndone";

static bool answer_one(int connection)
{
    char text[8192];
    size_t used = 0;
    while (used < sizeof text - 1) {
        ssize_t got = read(connection, text + used, sizeof text - 1 - used);
        if (got <= 0) {
            return false;
        }
        used += (size_t)got;
        text[used] = '\0';
        const char *end = strstr(text, "\r\n\r\n");
        if (end != NULL && (size_t)(end + 4 - text) + 2 <= used) { /* the body is "{}" */
            break;
        }
    }
    (void)pthread_mutex_lock(&server.lock);
    bool is_refused = server.requests++ == 0;
    server.effects += !is_refused && server.effects == 0; /* idempotent: there is one key */
    (void)pthread_mutex_unlock(&server.lock);
    const char *answer = is_refused ? refusal : acceptance;
    return write(connection, answer, strlen(answer)) == (ssize_t)strlen(answer);
}

static void *serve(void *context)
{
    (void)context;
    for (;;) {
        int connection = accept(server.listener, NULL, NULL);
        if (connection < 0) {
            return NULL;
        }
        while (answer_one(connection)) {
        }
        (void)close(connection);
    }
}

static int set_up(void **state)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    (void)state;
    (void)unsetenv("http_proxy");
    server.listener = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(server.listener, (struct sockaddr *)&address, size) != 0 ||
        listen(server.listener, 16) != 0 ||
        getsockname(server.listener, (struct sockaddr *)&address, &size) != 0) {
        return -1;
    }
    (void)snprintf(server.url, sizeof server.url, "http://127.0.0.1:%d/", ntohs(address.sin_port));
    CURLcode failed = curl_global_init_mem(
        CURL_GLOBAL_DEFAULT, curl_malloc, curl_free_one, curl_realloc, curl_strdup, curl_calloc);
    return failed == CURLE_OK ? pthread_create(&server.thread, NULL, serve, NULL) : -1;
}

static int take_down(void **state)
{
    (void)state;
    (void)shutdown(server.listener, SHUT_RDWR);
    (void)pthread_join(server.thread, NULL);
    (void)close(server.listener);
    curl_global_cleanup();
    return 0;
}

/* ---- one run ------------------------------------------------------------------------------- */

static int no_sleep(void *context, int64_t ms)
{
    (void)context;
    (void)ms;
    return 0;
}

static int effects_now(void)
{
    (void)pthread_mutex_lock(&server.lock);
    int effects = server.effects;
    (void)pthread_mutex_unlock(&server.lock);
    return effects;
}

/* What is said has to be true. */
static void check_told(int result, const struct once_response *response)
{
    int effects = effects_now();
    if (result == ONCE_E_NOMEM) {
        assert_null(response);
        assert_int_equal(effects, 0);
        return;
    }
    assert_non_null(response);
    assert_string_equal(response->idempotency_key, "k");
    if (response->effect == ONCE_EFFECT_NO) {
        assert_int_equal(effects, 0);
    }
    if (response->effect == ONCE_EFFECT_YES) {
        assert_int_equal(effects, 1);
        assert_int_equal(response->status, 201);
        assert_memory_equal(response->body.data, "done", 4);
    }
    assert_true(result == ONCE_OK || result == ONCE_E_UNKNOWN || result == ONCE_E_UNAVAILABLE);
    assert_true((result == ONCE_OK) == (response->status != 0));
    assert_true(result != ONCE_E_UNKNOWN || response->effect == ONCE_EFFECT_UNKNOWN);
    assert_true(result != ONCE_E_UNAVAILABLE || response->effect == ONCE_EFFECT_NO);
}

static void send_with(struct once_client *client, bool must_work)
{
    static const char *const headers[] = {"X-Some: thing", NULL};
    struct once_send send = {.method = "POST",
        .url = server.url,
        .headers = headers,
        .body = {"{}", 2},
        .idempotency_key = "k"};
    struct once_response *response = NULL;
    int result = once_client_send(client, &send, &response, NULL);
    check_told(result, response);
    if (must_work) {
        assert_int_equal(result, ONCE_OK);
        assert_int_equal(response->effect, ONCE_EFFECT_YES);
    }
    once_response_free(client, response);
}

static void run_once(bool must_work)
{
    struct once_client_options options = {
        .resize = faulty_resize, .resize_context = &faulty, .sleep = no_sleep};
    struct once_client *client = NULL;
    int result = once_client_new(&options, &client, NULL);
    if (result != ONCE_OK) {
        assert_int_equal(result, ONCE_E_NOMEM);
        assert_null(client);
        assert_false(must_work);
        return;
    }
    send_with(client, must_work);
    once_client_free(client);
}

/* Returns how many allocations were asked for. */
static long run_failing(long fail_at, bool sticky)
{
    long live = faulty.live;
    (void)pthread_mutex_lock(&server.lock);
    server.requests = server.effects = 0;
    (void)pthread_mutex_unlock(&server.lock);
    faulty_arm(&faulty, fail_at, sticky ? FAULTY_FOR_GOOD : 1);
    run_once(fail_at == 0);
    long asked = faulty.asked;
    if (faulty.live != live) {
        fail_msg("%ld blocks leaked after allocation %ld failed", faulty.live - live, fail_at);
    }
    faulty.fail_at = 0;
    run_once(true); /* with memory again the same key goes on */
    assert_int_equal(effects_now(), 1);
    return asked;
}

static void fail_each(bool sticky)
{
    long fail_at = 1;
    while (run_failing(fail_at, sticky) >= fail_at) {
        fail_at++;
    }
    assert_true(fail_at > 30); /* else the allocator was not used */
    print_message("%ld allocations failed in turn\n", fail_at - 1);
}

static void nothing_goes_wrong_when_nothing_fails(void **state)
{
    (void)state;
    assert_true(run_failing(0, false) > 30);
}

static void each_allocation_may_fail_once(void **state)
{
    (void)state;
    fail_each(false);
}

static void memory_may_run_out_for_good(void **state)
{
    (void)state;
    fail_each(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(nothing_goes_wrong_when_nothing_fails),
        TEST(each_allocation_may_fail_once),
        TEST(memory_may_run_out_for_good),
    };
    return cmocka_run_group_tests_name("client_memory", tests, set_up, take_down);
}
