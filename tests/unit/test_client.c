#include <stdio.h>
#include <string.h>

#include "check_c.h"
#include "client/attempt.h"

/*
 * The client without a network: client_attempt is taken away by the linker, and what each attempt
 * ends with comes from a script. Sleep, randomness and both clocks are the test's own.
 */

/* ---- the world ----------------------------------------------------------------------------- */

enum { ATTEMPTS_MAX = 64 };

/* How one attempt ends. */
struct scripted {
    enum attempt_end end;
    int status;
    const char *fields[4]; /* "Name: value"; NULL ends them */
    const char *body;
    int64_t took_ms;
};

struct world {
    const struct scripted *script; /* the last one is repeated */
    size_t script_count;
    int attempts;                            /* seen so far */
    char ids[ATTEMPTS_MAX][REQUEST_ID_SIZE]; /* the Request-Id lines */
    char keys[ATTEMPTS_MAX][300];            /* the Idempotency-Key lines; "" for none */
    int64_t timeouts[ATTEMPTS_MAX];
    int64_t slept[ATTEMPTS_MAX];
    int sleeps;
    int64_t now_ms;  /* of the steady clock */
    int64_t wall_ms; /* of the other one */
    uint64_t random; /* what every random byte comes from */
    int random_left; /* calls until there is no more; -1: never */
    int stop_after;  /* sleeps until the caller has enough; 0: never */
};

static struct world world; /* libcurl's place: the attempts know of no context */

static int give_random(void *context, void *bytes, size_t size)
{
    struct world *w = context;
    if (w->random_left == 0) {
        return -1;
    }
    w->random_left -= w->random_left > 0;
    for (size_t i = 0; i < size; i++) {
        w->random = w->random * 6364136223846793005u + 1442695040888963407u;
        ((unsigned char *)bytes)[i] = (unsigned char)(w->random >> 56);
    }
    return 0;
}

static int sleep_in_test(void *context, int64_t ms)
{
    struct world *w = context;
    assert_true(ms >= 0);
    w->slept[w->sleeps++ % ATTEMPTS_MAX] = ms;
    w->now_ms += ms;
    w->wall_ms += ms;
    return w->stop_after != 0 && w->sleeps >= w->stop_after;
}

static int64_t steady_ms(void *context)
{
    return ((struct world *)context)->now_ms;
}

static int64_t wall_ms(void *context)
{
    return ((struct world *)context)->wall_ms;
}

static struct once_client *client_in(const struct scripted *script, size_t count)
{
    struct once_client_options options = {.random = give_random,
        .sleep = sleep_in_test,
        .steady_ms = steady_ms,
        .wall_ms = wall_ms,
        .world_context = &world};
    struct once_client *client = NULL;
    world = (struct world){.script = script,
        .script_count = count,
        .now_ms = 5000,
        .wall_ms = 1763000000000,
        .random = 7,
        .random_left = -1};
    assert_int_equal(once_client_new(&options, &client, NULL), ONCE_OK);
    return client;
}

#define CLIENT_OF(script) client_in(script, sizeof(script) / sizeof *(script))

void __wrap_client_attempt(struct once_client *client, const struct client_request *request,
    int64_t timeout_ms, struct client_response *response, struct attempt_facts *ret_facts);

void __wrap_client_attempt(struct once_client *client, const struct client_request *request,
    int64_t timeout_ms, struct client_response *response, struct attempt_facts *ret_facts)
{
    int number = world.attempts++;
    assert_true(number < ATTEMPTS_MAX);
    const struct scripted *now =
        &world
             .script[(size_t)number < world.script_count ? (size_t)number : world.script_count - 1];
    (void)client;
    for (const struct curl_slist *line = request->lines; line != NULL; line = line->next) {
        if (strncmp(line->data, "Request-Id: ", 12) == 0) {
            (void)snprintf(world.ids[number], sizeof world.ids[0], "%s", line->data + 12);
        }
        if (strncmp(line->data, "Idempotency-Key: ", 17) == 0) {
            (void)snprintf(world.keys[number], sizeof world.keys[0], "%s", line->data + 17);
        }
    }
    world.timeouts[number] = timeout_ms;
    world.now_ms += now->took_ms;
    *ret_facts = (struct attempt_facts){.end = now->end,
        .was_sent = now->end != ATTEMPT_NOT_SENT && now->end != ATTEMPT_HOPELESS,
        .is_read = request->is_read,
        .decision = ""};
    (void)snprintf(response->why, sizeof response->why, "as scripted");
    if (now->end == ATTEMPT_ANSWERED) {
        assert_true(client_response_line(response, SLICE_LIT("HTTP/1.1 999 Test\r\n")));
        for (size_t i = 0; i < 4 && now->fields[i] != NULL; i++) {
            assert_true(client_response_line(response, slice_str(now->fields[i])));
        }
        assert_true(client_response_piece(response, slice_str(now->body)));
        assert_true(client_response_end(response, now->status));
        ret_facts->status = now->status;
        ret_facts->is_replayed = response->shown.is_replayed != 0;
        ret_facts->decision = response->shown.decision;
        response->why[0] = '\0';
    }
}

static const struct once_send post = {.method = "POST", .url = "http://h/", .body = {"{}", 2}};

/* Send, expect that result, and hand out the response. */
static struct once_response *sent(
    struct once_client *client, const struct once_send *send, int expected)
{
    struct once_response *response = NULL;
    struct once_error error;
    int result = once_client_send(client, send, &response, &error);
    if (result != expected) {
        fail_msg("result %d instead of %d: %s", result, expected, error.text);
    }
    assert_int_equal(error.result, expected);
    return response;
}

/* Send post by the script, and compare what is known at the end. */
static void expect_end(
    const struct scripted *script, size_t count, int result, int attempts, enum once_effect effect)
{
    struct once_client *client = client_in(script, count);
    struct once_response *response = sent(client, &post, result);
    assert_non_null(response);
    assert_int_equal(response->attempts, attempts);
    assert_int_equal(world.attempts, attempts);
    assert_string_equal(once_effect_name(response->effect), once_effect_name(effect));
    once_response_free(client, response);
    once_client_free(client);
}

#define EXPECT_END(script, result, attempts, effect)                                               \
    expect_end(script, sizeof(script) / sizeof *(script), result, attempts, effect)

#define OK_201                                                                                     \
    {                                                                                              \
        .end = ATTEMPT_ANSWERED, .status = 201                                                     \
    }
#define ANSWER(code)                                                                               \
    {                                                                                              \
        .end = ATTEMPT_ANSWERED, .status = (code)                                                  \
    }

/* ---- names --------------------------------------------------------------------------------- */

static void a_made_key_can_be_kept_before_the_call(void **state)
{
    (void)state;
    static const struct scripted script[] = {OK_201};
    struct once_client *client = CLIENT_OF(script);
    char key[ONCE_CLIENT_KEY_SIZE];
    char other[ONCE_CLIENT_KEY_SIZE];
    assert_int_equal(once_client_key(client, key, NULL), ONCE_OK);
    assert_int_equal(once_client_key(client, other, NULL), ONCE_OK);
    assert_string_not_equal(key, other);
    struct once_send send = post;
    send.idempotency_key = key;
    struct once_response *response = sent(client, &send, ONCE_OK);
    assert_string_equal(response->idempotency_key, key);
    assert_string_equal(world.keys[0], key);
    once_response_free(client, response);
    once_client_free(client);
}

static void the_key_stays_and_the_request_id_changes(void **state)
{
    (void)state;
    static const struct scripted script[] = {
        {.end = ATTEMPT_NOT_SENT}, {.end = ATTEMPT_LOST}, ANSWER(503), ANSWER(429), OK_201};
    struct once_client *client = CLIENT_OF(script);
    struct once_response *response = sent(client, &post, ONCE_OK);
    assert_int_equal(response->attempts, 5);
    for (int i = 0; i < 5; i++) {
        assert_string_equal(world.keys[i], response->idempotency_key);
        assert_int_equal(world.ids[i][14], '7');
        for (int j = 0; j < i; j++) {
            assert_string_not_equal(world.ids[i], world.ids[j]);
        }
    }
    assert_int_equal(response->idempotency_key[14], '4');
    assert_string_equal(response->request_id, world.ids[4]);
    char first[64];
    (void)snprintf(first, sizeof first, "%s", response->idempotency_key);
    once_response_free(client, response);
    world.attempts = 4; /* another operation, which succeeds at once, has another key */
    response = sent(client, &post, ONCE_OK);
    assert_string_not_equal(response->idempotency_key, first);
    once_response_free(client, response);
    once_client_free(client);
}

static void a_given_request_id_is_continued(void **state)
{
    (void)state;
    static const struct scripted script[] = {ANSWER(503), ANSWER(503), OK_201};
    struct once_client *client = CLIENT_OF(script);
    struct once_send send = post;
    send.request_id = "mine";
    once_response_free(client, sent(client, &send, ONCE_OK));
    assert_string_equal(world.ids[0], "mine");
    assert_string_equal(world.ids[1], "mine.2");
    assert_string_equal(world.ids[2], "mine.3");
    once_client_free(client);
}

static void reads_have_no_key_and_leave_no_doubt(void **state)
{
    (void)state;
    static const char *const reads[] = {"GET", "HEAD", "OPTIONS", "TRACE"};
    static const struct scripted script[] = {{.end = ATTEMPT_LOST}};
    for (size_t i = 0; i < sizeof reads / sizeof *reads; i++) {
        struct once_client *client = CLIENT_OF(script);
        struct once_send send = {.method = reads[i], .url = "http://h/", .idempotency_key = "k"};
        struct once_response *response = sent(client, &send, ONCE_E_UNAVAILABLE);
        assert_string_equal(world.keys[0], "");
        assert_string_equal(response->idempotency_key, "");
        assert_int_equal(response->effect, ONCE_EFFECT_NO);
        once_response_free(client, response);
        once_client_free(client);
    }
}

/* ---- pauses -------------------------------------------------------------------------------- */

static void pauses_use_all_of_their_range(void **state)
{
    (void)state;
    static const struct scripted script[] = {ANSWER(503)};
    int64_t low = 100;
    int64_t high = 0;
    int64_t sum = 0;
    enum { ROUNDS = 400 };
    for (int i = 0; i < ROUNDS; i++) {
        struct once_client *client = CLIENT_OF(script);
        struct once_send send = post;
        world.random = (uint64_t)i * 0x9e3779b97f4a7c15u;
        send.retries = 1;
        once_response_free(client, sent(client, &send, ONCE_OK));
        assert_int_equal(world.sleeps, 1);
        assert_in_range(world.slept[0], 0, 100);
        low = world.slept[0] < low ? world.slept[0] : low;
        high = world.slept[0] > high ? world.slept[0] : high;
        sum += world.slept[0];
        once_client_free(client);
    }
    assert_true(low <= 2);
    assert_true(high >= 98);
    assert_in_range(sum / ROUNDS, 40, 60); /* full jitter, not half of it */
}

static void retry_after_is_waited_for(void **state)
{
    (void)state;
    static const struct scripted script[] = {
        {.end = ATTEMPT_ANSWERED, .status = 429, .fields = {"retry-after: 7\r\n"}}, OK_201};
    struct once_client *client = CLIENT_OF(script);
    once_response_free(client, sent(client, &post, ONCE_OK));
    assert_in_range(world.slept[0], 7000, 7100);
    once_client_free(client);
}

/* ---- how long ------------------------------------------------------------------------------ */

static void retries_end_it(void **state)
{
    (void)state;
    static const struct scripted script[] = {ANSWER(503)};
    static const int retries[][2] = {{0, 6}, {ONCE_NO_RETRIES, 1}, {1, 2}, {9, 10}};
    for (size_t i = 0; i < sizeof retries / sizeof *retries; i++) {
        struct once_client *client = CLIENT_OF(script);
        struct once_send send = post;
        send.retries = retries[i][0];
        struct once_response *response = sent(client, &send, ONCE_OK);
        assert_int_equal(response->status, 503);
        assert_int_equal(response->attempts, retries[i][1]);
        assert_int_equal(world.sleeps, retries[i][1] - 1);
        once_response_free(client, response);
        once_client_free(client);
    }
}

static void the_deadline_ends_it(void **state)
{
    (void)state;
    static const struct scripted script[] = {{.end = ATTEMPT_LOST, .took_ms = 900}};
    struct once_client *client = CLIENT_OF(script);
    struct once_send send = post;
    send.retries = 1000;
    send.deadline_ms = 10000;
    send.attempt_timeout_ms = 3000;
    struct once_response *response = sent(client, &send, ONCE_E_UNKNOWN);
    assert_true(response->attempts < 12);
    assert_true(world.now_ms <= 5000 + 10000 + 900);
    assert_int_equal(world.timeouts[0], 3000);
    for (int i = 0; i < world.attempts; i++) {
        assert_in_range(world.timeouts[i], 1, 3000);
    }
    once_response_free(client, response);
    once_client_free(client);
}

static void an_attempt_never_has_more_time_than_is_left(void **state)
{
    (void)state;
    static const struct scripted script[] = {{.end = ATTEMPT_LOST, .took_ms = 800}, OK_201};
    struct once_client *client = CLIENT_OF(script);
    struct once_send send = post;
    send.deadline_ms = 1000;
    once_response_free(client, sent(client, &send, ONCE_OK));
    assert_int_equal(world.timeouts[0], 1000);
    assert_true(world.timeouts[1] <= 200);
    assert_int_equal(world.timeouts[1], 200 - world.slept[0]);
    once_client_free(client);
}

static void a_retry_after_past_the_deadline_is_not_slept_for(void **state)
{
    (void)state;
    static const struct scripted script[] = {
        {.end = ATTEMPT_ANSWERED, .status = 503, .fields = {"Retry-After: 60\r\n"}}};
    struct once_client *client = CLIENT_OF(script);
    once_response_free(client, sent(client, &post, ONCE_OK));
    assert_int_equal(world.sleeps, 0);
    assert_int_equal(world.attempts, 1);
    once_client_free(client);
}

static void whoever_sleeps_may_have_enough(void **state)
{
    (void)state;
    static const struct scripted script[] = {{.end = ATTEMPT_LOST}};
    struct once_client *client = CLIENT_OF(script);
    world.stop_after = 2;
    struct once_response *response = sent(client, &post, ONCE_E_UNKNOWN);
    assert_int_equal(response->attempts, 2);
    once_response_free(client, response);
    once_client_free(client);
}

/* ---- what is known ------------------------------------------------------------------------- */

#define DECIDED(code, decision)                                                                    \
    {                                                                                              \
        .end = ATTEMPT_ANSWERED, .status = (code), .fields = { "Once-Decision: " decision "\r\n" } \
    }
#define PROBLEM(code, text)                                                                        \
    {                                                                                              \
        .end = ATTEMPT_ANSWERED, .status = (code),                                                 \
        .fields = {"Content-Type: application/problem+json\r\n"}, .body = (text)                   \
    }

static void an_answer_is_no_error(void **state)
{
    (void)state;
    static const struct scripted first[] = {OK_201};
    static const struct scripted refused[] = {ANSWER(404)};
    static const struct scripted conflict[] = {DECIDED(409, "conflict_rejected")};
    static const struct scripted failed[] = {ANSWER(500)};
    EXPECT_END(first, ONCE_OK, 1, ONCE_EFFECT_YES);
    EXPECT_END(refused, ONCE_OK, 1, ONCE_EFFECT_NO);
    EXPECT_END(conflict, ONCE_OK, 1, ONCE_EFFECT_NO);
    EXPECT_END(failed, ONCE_OK, 6, ONCE_EFFECT_UNKNOWN);
}

static void a_conflict_is_never_tried_again(void **state)
{
    (void)state;
    static const struct scripted as_422[] = {DECIDED(422, "conflict_rejected"), OK_201};
    static const struct scripted as_503[] = {DECIDED(503, "conflict_rejected"), OK_201};
    static const struct scripted told[] = {
        PROBLEM(409, "{\"code\":\"idempotency_conflict\",\"effect\":\"no\",\"retry\":\"no\"}"),
        OK_201};
    EXPECT_END(as_422, ONCE_OK, 1, ONCE_EFFECT_NO);
    EXPECT_END(as_503, ONCE_OK, 1, ONCE_EFFECT_UNKNOWN); /* no server of ours says that */
    EXPECT_END(told, ONCE_OK, 1, ONCE_EFFECT_NO);
}

static void what_never_left_did_not_happen(void **state)
{
    (void)state;
    static const struct scripted unreached[] = {{.end = ATTEMPT_NOT_SENT}};
    static const struct scripted hopeless[] = {{.end = ATTEMPT_HOPELESS}};
    static const struct scripted limited[] = {ANSWER(429), {.end = ATTEMPT_NOT_SENT}};
    EXPECT_END(unreached, ONCE_E_UNAVAILABLE, 6, ONCE_EFFECT_NO);
    EXPECT_END(hopeless, ONCE_E_UNAVAILABLE, 1, ONCE_EFFECT_NO);
    EXPECT_END(limited, ONCE_E_UNAVAILABLE, 6, ONCE_EFFECT_NO);
}

static void what_left_may_have_happened(void **state)
{
    (void)state;
    static const struct scripted lost[] = {{.end = ATTEMPT_LOST}};
    static const struct scripted then_refused[] = {{.end = ATTEMPT_LOST}, ANSWER(401)};
    static const struct scripted then_down[] = {{.end = ATTEMPT_LOST}, {.end = ATTEMPT_NOT_SENT}};
    static const struct scripted failed_then_down[] = {ANSWER(500), {.end = ATTEMPT_NOT_SENT}};
    static const struct scripted then_overloaded[] = {{.end = ATTEMPT_LOST},
        PROBLEM(503, "{\"code\":\"overloaded\",\"effect\":\"no\",\"retry\":\"safe\"}")};
    static const struct scripted too_much[] = {{.end = ATTEMPT_UNREADABLE}};
    EXPECT_END(lost, ONCE_E_UNKNOWN, 6, ONCE_EFFECT_UNKNOWN);
    EXPECT_END(then_refused, ONCE_OK, 2, ONCE_EFFECT_UNKNOWN);
    EXPECT_END(then_down, ONCE_E_UNKNOWN, 6, ONCE_EFFECT_UNKNOWN);
    EXPECT_END(failed_then_down, ONCE_E_UNKNOWN, 6, ONCE_EFFECT_UNKNOWN);
    EXPECT_END(then_overloaded, ONCE_OK, 6, ONCE_EFFECT_UNKNOWN);
    EXPECT_END(too_much, ONCE_E_UNKNOWN, 1, ONCE_EFFECT_UNKNOWN);
}

static void an_outcome_settles_what_was_in_doubt(void **state)
{
    (void)state;
    static const struct scripted done[] = {{.end = ATTEMPT_LOST}, OK_201};
    static const struct scripted replayed[] = {
        {.end = ATTEMPT_LOST}, DECIDED(402, "duplicate_replayed")};
    static const struct scripted first[] = {{.end = ATTEMPT_LOST}, DECIDED(402, "first_seen")};
    static const struct scripted not_now[] = {{.end = ATTEMPT_LOST}, DECIDED(429, "first_seen")};
    static const struct scripted replayed_500[] = {ANSWER(500),
        {.end = ATTEMPT_ANSWERED, .status = 500, .fields = {"Idempotent-Replayed: true\r\n"}}};
    EXPECT_END(done, ONCE_OK, 2, ONCE_EFFECT_YES);
    EXPECT_END(replayed, ONCE_OK, 2, ONCE_EFFECT_NO);
    EXPECT_END(first, ONCE_OK, 2, ONCE_EFFECT_NO);
    EXPECT_END(not_now, ONCE_OK, 6, ONCE_EFFECT_UNKNOWN);
    EXPECT_END(replayed_500, ONCE_OK, 2, ONCE_EFFECT_UNKNOWN);
}

static void in_progress_is_waited_for_in_every_profile(void **state)
{
    (void)state;
    static const struct scripted by_header[] = {DECIDED(409, "in_progress"), OK_201};
    static const struct scripted ietf[] = {PROBLEM(409, "{\"code\":\"in_progress\"}"), OK_201};
    static const struct scripted guardia[] = {
        PROBLEM(409, "{\"errors\":[{\"reason\":\"IDEMPOTENT_REQUEST_IN_PROGRESS\"}]}"), OK_201};
    static const struct scripted adr007[] = {
        PROBLEM(409, "{\"error\":\"idempotency_in_progress\"}"), OK_201};
    static const struct scripted other[] = {PROBLEM(409, "{\"errors\":[]}"), OK_201};
    static const struct scripted no_json[] = {PROBLEM(409, "{\"code\":\"in_progress\""), OK_201};
    static const struct scripted for_ever[] = {DECIDED(409, "in_progress")};
    EXPECT_END(by_header, ONCE_OK, 2, ONCE_EFFECT_YES);
    EXPECT_END(ietf, ONCE_OK, 2, ONCE_EFFECT_YES);
    EXPECT_END(guardia, ONCE_OK, 2, ONCE_EFFECT_YES);
    EXPECT_END(adr007, ONCE_OK, 2, ONCE_EFFECT_YES);
    EXPECT_END(other, ONCE_OK, 1, ONCE_EFFECT_NO);
    EXPECT_END(no_json, ONCE_OK, 1, ONCE_EFFECT_NO);
    EXPECT_END(for_ever, ONCE_OK, 6, ONCE_EFFECT_UNKNOWN);
}

static void unknown_outcomes_may_be_settled_meanwhile(void **state)
{
    (void)state;
    static const struct scripted held[] = {
        PROBLEM(409, "{\"code\":\"outcome_unknown\",\"effect\":\"unknown\",\"retry\":\"no\"}"),
        OK_201};
    static const struct scripted by_header[] = {DECIDED(409, "held_unknown"), OK_201};
    static const struct scripted timed_out[] = {
        PROBLEM(504, "{\"code\":\"no_answer\",\"effect\":\"unknown\",\"retry\":\"no\"}"), OK_201};
    static const struct scripted never[] = {DECIDED(409, "held_unknown")};
    static const struct scripted final[] = {
        PROBLEM(503, "{\"code\":\"store_failed\",\"effect\":\"no\",\"retry\":\"no\"}"), OK_201};
    EXPECT_END(held, ONCE_OK, 2, ONCE_EFFECT_YES);
    EXPECT_END(by_header, ONCE_OK, 2, ONCE_EFFECT_YES);
    EXPECT_END(timed_out, ONCE_OK, 2, ONCE_EFFECT_YES);
    EXPECT_END(never, ONCE_OK, 6, ONCE_EFFECT_UNKNOWN);
    EXPECT_END(final, ONCE_OK, 1, ONCE_EFFECT_NO);
}

static void without_random_bytes_what_is_known_is_told(void **state)
{
    (void)state;
    static const struct scripted script[] = {{.end = ATTEMPT_LOST}};
    struct once_client *client = CLIENT_OF(script);
    struct once_send send = post;
    send.idempotency_key = "k";
    world.random_left = 0;
    struct once_response *response = sent(client, &send, ONCE_E_UNAVAILABLE);
    assert_int_equal(world.attempts, 0);
    assert_int_equal(response->effect, ONCE_EFFECT_NO);
    once_response_free(client, response);
    world.random_left = 2; /* the first id and the first pause */
    response = sent(client, &send, ONCE_E_UNKNOWN);
    assert_int_equal(world.attempts, 1);
    assert_int_equal(response->effect, ONCE_EFFECT_UNKNOWN);
    assert_string_equal(response->idempotency_key, "k");
    once_response_free(client, response);
    once_client_free(client);
}

/* ---- what is sent -------------------------------------------------------------------------- */

static void expect_invalid(struct once_client *client, struct once_send send)
{
    send.method = send.method == NULL ? "POST" : send.method;
    send.url = send.url == NULL ? "http://h/" : send.url;
    assert_null(sent(client, &send, ONCE_E_INVALID));
    assert_int_equal(world.attempts, 0);
}

static void what_cannot_be_sent_is_refused(void **state)
{
    (void)state;
    static const struct scripted script[] = {OK_201};
    static const char *const bad_headers[] = {"no colon", ": no name", "A b: c", "A: b\r\nC: d",
        "A: \x7f", "Idempotency-Key: k", "request-ID: r", "Content-Length: 3", "Connection: close"};
    static const char *const bad_urls[] = {
        "", "h/", "ftp://h/", "http://", "http://a b/", "http://h/\n", "https://h:99999/"};
    static const char *const bad_methods[] = {"", "post", "PO ST", "CONNECT", "-X"};
    struct once_client *client = CLIENT_OF(script);
    for (size_t i = 0; i < sizeof bad_headers / sizeof *bad_headers; i++) {
        const char *const headers[] = {"Fine: x", bad_headers[i], NULL};
        expect_invalid(client, (struct once_send){.headers = headers});
    }
    for (size_t i = 0; i < sizeof bad_urls / sizeof *bad_urls; i++) {
        expect_invalid(client, (struct once_send){.url = bad_urls[i]});
    }
    for (size_t i = 0; i < sizeof bad_methods / sizeof *bad_methods; i++) {
        expect_invalid(client, (struct once_send){.method = bad_methods[i]});
    }
    expect_invalid(client, (struct once_send){.idempotency_key = ""});
    expect_invalid(client, (struct once_send){.idempotency_key = "a\nb"});
    expect_invalid(client, (struct once_send){.idempotency_key = "caf\xc3\xa9"});
    expect_invalid(client, (struct once_send){.request_id = "a b"});
    expect_invalid(client, (struct once_send){.retries = -2});
    expect_invalid(client, (struct once_send){.deadline_ms = -1});
    expect_invalid(client, (struct once_send){.attempt_timeout_ms = -1});
    expect_invalid(client, (struct once_send){.body = {NULL, 3}});
    struct once_response *response;
    assert_int_equal(
        once_client_send(client, &(struct once_send){0}, &response, NULL), ONCE_E_INVALID);
    assert_int_equal(once_client_send(client, NULL, &response, NULL), ONCE_E_MISUSE);
    assert_int_equal(once_client_send(client, &post, NULL, NULL), ONCE_E_MISUSE);
    once_client_free(client);
}

static void too_many_headers_are_refused(void **state)
{
    (void)state;
    static const struct scripted script[] = {OK_201};
    const char *headers[REQUEST_FIELDS_MAX + 2] = {NULL};
    struct once_client *client = CLIENT_OF(script);
    for (int i = 0; i < REQUEST_FIELDS_MAX; i++) {
        headers[i] = "A: b";
    }
    struct once_send send = post;
    send.headers = headers;
    once_response_free(client, sent(client, &send, ONCE_OK));
    world.attempts = 0;
    headers[REQUEST_FIELDS_MAX] = "A: b";
    expect_invalid(client, send);
    once_client_free(client);
}

static void keys_are_bare_where_that_has_one_reading(void **state)
{
    (void)state;
    static const struct scripted script[] = {OK_201};
    static const char *const cases[][2] = {{"order-7", "order-7"}, {"a:b/c=d", "a:b/c=d"},
        {"two words", "\"two words\""}, {"a,b", "\"a,b\""}, {"\"", "\"\\\"\""}, {"\\", "\"\\\\\""}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct once_client *client = CLIENT_OF(script);
        struct once_send send = post;
        send.idempotency_key = cases[i][0];
        struct once_response *response = sent(client, &send, ONCE_OK);
        assert_string_equal(world.keys[0], cases[i][1]);
        assert_string_equal(response->idempotency_key, cases[i][0]);
        once_response_free(client, response);
        once_client_free(client);
    }
    char longest[256];
    memset(longest, '"', 255);
    longest[255] = '\0';
    struct once_client *client = CLIENT_OF(script);
    struct once_send send = post;
    send.idempotency_key = longest;
    once_response_free(client, sent(client, &send, ONCE_OK));
    once_client_free(client);
}

/* ---- what is received ---------------------------------------------------------------------- */

static void headers_are_found_whatever_their_case(void **state)
{
    (void)state;
    static const struct scripted script[] = {{.end = ATTEMPT_ANSWERED,
        .status = 200,
        .fields = {"X-One:  1 \r\n", "X-Empty:\r\n", "x-one: 2\r\n", "Once-Operation-Id: op_1\r\n"},
        .body = "body"}};
    struct once_client *client = CLIENT_OF(script);
    struct once_response *response = sent(client, &post, ONCE_OK);
    assert_int_equal(response->header_count, 4);
    assert_string_equal(once_response_header(response, "x-ONE"), "1");
    assert_string_equal(once_response_header(response, "X-Empty"), "");
    assert_null(once_response_header(response, "X-Two"));
    assert_string_equal(response->operation_id, "op_1");
    assert_string_equal(response->decision, "");
    assert_int_equal(response->body.size, 4);
    assert_string_equal((const char *)response->body.data, "body");
    once_response_free(client, response);
    once_client_free(client);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_made_key_can_be_kept_before_the_call),
        TEST(the_key_stays_and_the_request_id_changes),
        TEST(a_given_request_id_is_continued),
        TEST(reads_have_no_key_and_leave_no_doubt),
        TEST(pauses_use_all_of_their_range),
        TEST(retry_after_is_waited_for),
        TEST(retries_end_it),
        TEST(the_deadline_ends_it),
        TEST(an_attempt_never_has_more_time_than_is_left),
        TEST(a_retry_after_past_the_deadline_is_not_slept_for),
        TEST(whoever_sleeps_may_have_enough),
        TEST(an_answer_is_no_error),
        TEST(a_conflict_is_never_tried_again),
        TEST(what_never_left_did_not_happen),
        TEST(what_left_may_have_happened),
        TEST(an_outcome_settles_what_was_in_doubt),
        TEST(in_progress_is_waited_for_in_every_profile),
        TEST(unknown_outcomes_may_be_settled_meanwhile),
        TEST(without_random_bytes_what_is_known_is_told),
        TEST(what_cannot_be_sent_is_refused),
        TEST(too_many_headers_are_refused),
        TEST(keys_are_bare_where_that_has_one_reading),
        TEST(headers_are_found_whatever_their_case),
    };
    return cmocka_run_group_tests_name("client", tests, NULL, NULL);
}
