/*
 * The cases that every SDK runs (tests/vectors/sdk): what one attempt means, how long to pause,
 * what a request carries. tests/sdk/test_operations.py runs the whole calls, through `once send`.
 */
#include <stdio.h>
#include <strings.h>

#include "canon/jcs.h"
#include "check_c.h"
#include "client/libcurl.h"
#include "client/request.h"
#include "client/verdict.h"
#include "client/wait.h"
#include "files.h"

enum { MEMORY_MAX = 16 << 20, TEXT_SIZE = 1024 };

/* ---- reading the cases ------------------------------------------------------------------- */

static struct slice text_of(const struct json_value *object, const char *name)
{
    const struct json_value *value = json_find(object, slice_str(name));
    return value == NULL ? SLICE_EMPTY : json_text(value);
}

static int64_t number_of(const struct json_value *object, const char *name)
{
    const struct json_value *value = json_find(object, slice_str(name));
    int64_t number = 0;
    if (value != NULL && !json_int(value, &number)) {
        fail_msg("%s is not an integer", name);
    }
    return number;
}

static bool is_true(const struct json_value *object, const char *name)
{
    return json_is(json_find(object, slice_str(name)), JSON_TRUE);
}

/* A member as a string of C; NULL if it is absent. */
static const char *string_of(
    const struct json_value *object, const char *name, char room[TEXT_SIZE])
{
    if (json_find(object, slice_str(name)) == NULL) {
        return NULL;
    }
    (void)snprintf(room, TEXT_SIZE, "%.*s", SLICE_ARGS(text_of(object, name)));
    return room;
}

static void each_case(const char *file, const char *list, uint32_t count_min,
    void (*check)(const struct json_value *test, struct arena *arena))
{
    struct buf text;
    struct arena arena;
    char path[128];
    buf_init(&text, &mem_libc, FILE_BYTES_MAX);
    arena_init(&arena, &mem_libc, MEMORY_MAX);
    (void)snprintf(path, sizeof path, "vectors/sdk/%s", file);
    file_read(path, &text);
    const struct json_value *root = NULL;
    assert_int_equal(json_read(buf_view(&text), &arena, &root, NULL), OK);
    const struct json_value *cases = json_find(root, slice_str(list));
    assert_true(json_is(cases, JSON_ARRAY));
    assert_true(cases->count >= count_min);
    for (uint32_t i = 0; i < cases->count; i++) {
        check(&cases->items[i], &arena);
    }
    arena_release(&arena);
    buf_release(&text);
}

/* ---- verdicts ---------------------------------------------------------------------------- */

static enum attempt_end end_of(struct slice name)
{
    static const char *const names[] = {
        [ATTEMPT_ANSWERED] = "answered",
        [ATTEMPT_NOT_SENT] = "not_sent",
        [ATTEMPT_HOPELESS] = "hopeless",
        [ATTEMPT_LOST] = "lost",
        [ATTEMPT_UNREADABLE] = "unreadable",
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (slice_is(name, names[i])) {
            return (enum attempt_end)i;
        }
    }
    fail_msg("no such end: %.*s", SLICE_ARGS(name));
    return ATTEMPT_ANSWERED;
}

static void read_document(
    const struct json_value *body, struct client_marks *marks, struct arena *arena)
{
    struct buf text;
    buf_init(&text, &mem_libc, MEMORY_MAX);
    struct jcs_report report;
    assert_int_equal(jcs_write(body, &text, &report, NULL), OK);
    assert_int_equal(client_marks_read(buf_view(&text), arena, marks), OK);
    buf_release(&text);
}

static void check_verdict(const struct json_value *test, struct arena *arena)
{
    char decision[TEXT_SIZE] = "";
    (void)string_of(test, "decision", decision);
    struct slice method = text_of(test, "method");
    struct attempt_facts facts = {.end = end_of(text_of(test, "end")),
        .is_read = slice_is(method, "GET") || slice_is(method, "HEAD"),
        .status = (int)number_of(test, "status"),
        .is_replayed = is_true(test, "replayed"),
        .decision = decision};
    facts.was_sent = facts.end != ATTEMPT_NOT_SENT && facts.end != ATTEMPT_HOPELESS;
    const struct json_value *body = json_find(test, SLICE_LIT("body"));
    if (body != NULL) {
        read_document(body, &facts.marks, arena);
    }
    struct verdict verdict = client_judge(&facts);
    if (verdict.retry != is_true(test, "retry") || verdict.settles != is_true(test, "settles") ||
        !slice_is(text_of(test, "effect"), once_effect_name(verdict.effect))) {
        fail_msg("%.*s: retry %d, settles %d, effect %s", SLICE_ARGS(text_of(test, "name")),
            verdict.retry, verdict.settles, once_effect_name(verdict.effect));
    }
}

static void verdicts_are_as_the_cases_say(void **state)
{
    (void)state;
    each_case("verdicts.json", "cases", 50, check_verdict);
}

/* ---- pauses ------------------------------------------------------------------------------ */

static void check_wait(const struct json_value *test, struct arena *arena)
{
    (void)arena;
    char random[TEXT_SIZE];
    assert_non_null(string_of(test, "random", random));
    struct client_wait wait = {.base_ms = number_of(test, "base_ms"),
        .max_ms = number_of(test, "max_ms"),
        .retry = (unsigned)number_of(test, "retry"),
        .random = strtoull(random, NULL, 10),
        .after_ms = number_of(test, "after_ms"),
        .left_ms = number_of(test, "left_ms")};
    int64_t ms = client_wait_ms(&wait);
    if (ms != number_of(test, "wait_ms")) {
        fail_msg("%.*s: %lld ms", SLICE_ARGS(text_of(test, "name")), (long long)ms);
    }
}

static void check_retry_after(const struct json_value *test, struct arena *arena)
{
    (void)arena;
    struct err err = {0};
    assert_int_equal(libcurl_load(&err), OK); /* it reads dates */
    int64_t ms = client_retry_after_ms(text_of(test, "text"), number_of(test, "now_ms"));
    if (ms != number_of(test, "ms")) {
        fail_msg("'%.*s': %lld ms", SLICE_ARGS(text_of(test, "text")), (long long)ms);
    }
}

static void pauses_are_as_the_cases_say(void **state)
{
    (void)state;
    each_case("waits.json", "waits", 20, check_wait);
    each_case("waits.json", "retry_after", 14, check_retry_after);
}

/* ---- requests ---------------------------------------------------------------------------- */

/* The value of a line "Name: value"; NULL if there is no such line. */
static const char *line_value(const struct client_request *request, struct slice name)
{
    for (const struct curl_slist *line = request->lines; line != NULL; line = line->next) {
        if (strncasecmp(line->data, name.data, name.len) == 0 && line->data[name.len] == ':') {
            return line->data + name.len + 2;
        }
    }
    return NULL;
}

static void check_sent(const struct client_request *request, const struct json_value *test)
{
    const struct json_value *sent = json_find(test, SLICE_LIT("sent"));
    for (uint32_t i = 0; sent != NULL && i < sent->count; i++) {
        const struct json_value *wanted = &sent->members[i].value;
        const char *value = line_value(request, json_text(&sent->members[i].name));
        bool is_right = wanted->type == JSON_NULL
                            ? value == NULL
                            : value != NULL && slice_is(json_text(wanted), value);
        if (!is_right) {
            fail_msg("%.*s: %s", SLICE_ARGS(text_of(test, "name")), value == NULL ? "-" : value);
        }
    }
}

static void check_ids(
    struct client_request *request, const struct once_client *client, const struct json_value *test)
{
    const struct json_value *ids = json_find(test, SLICE_LIT("ids"));
    for (uint32_t i = 0; ids != NULL && i < ids->count; i++) {
        char id[REQUEST_ID_SIZE];
        assert_int_equal(client_request_number(request, client, (int)i + 1, id, NULL), OK);
        assert_true(slice_is(json_text(&ids->items[i]), id));
    }
}

static void check_request(const struct json_value *test, struct arena *arena)
{
    (void)arena;
    static char lines[8][TEXT_SIZE];
    char method[TEXT_SIZE], url[TEXT_SIZE], key[TEXT_SIZE], id[TEXT_SIZE], wanted[TEXT_SIZE];
    const char *headers[8] = {NULL};
    const struct json_value *fields = json_find(test, SLICE_LIT("headers"));
    for (uint32_t i = 0; fields != NULL && i < fields->count && i < 7; i++) {
        (void)snprintf(lines[i], TEXT_SIZE, "%.*s: %.*s",
            SLICE_ARGS(json_text(&fields->members[i].name)),
            SLICE_ARGS(json_text(&fields->members[i].value)));
        headers[i] = lines[i];
    }
    struct once_send send = {.method = string_of(test, "method", method),
        .url = string_of(test, "url", url),
        .headers = headers,
        .idempotency_key = string_of(test, "key", key),
        .request_id = string_of(test, "request_id", id)};
    struct once_client *client = NULL;
    struct client_request request;
    struct err err = {0};
    assert_int_equal(once_client_new(NULL, &client, NULL), ONCE_OK);
    enum status status = client_request_init(&request, client, &send, &err);
    if (string_of(test, "error", wanted) == NULL) {
        assert_int_equal(status, OK);
        check_sent(&request, test);
        check_ids(&request, client, test);
    } else if (status != E_INVALID || strstr(err.text, wanted) == NULL) {
        fail_msg("%.*s: %s", SLICE_ARGS(text_of(test, "name")), err.text);
    }
    client_request_release(&request);
    once_client_free(client);
}

static void requests_are_as_the_cases_say(void **state)
{
    (void)state;
    each_case("requests.json", "cases", 25, check_request);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(verdicts_are_as_the_cases_say),
        TEST(pauses_are_as_the_cases_say),
        TEST(requests_are_as_the_cases_say),
    };
    return cmocka_run_group_tests_name("client_vectors", tests, NULL, NULL);
}
