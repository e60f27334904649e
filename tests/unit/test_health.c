/*
 * The gateway's health path, with stand-ins for the server and the engine: what is answered when
 * the engine answers, refuses, fails or says nothing.
 */
#include <stdio.h>
#include <string.h>

#include "base/macros.h"
#include "check_c.h"
#include "engine/query.h"
#include "gateway/impl.h"

/* What the stand-ins answer, and what they saw. */
static struct world {
    enum status refuses;    /* query_submit's */
    struct query *asked;    /* NULL: nothing was */
    unsigned status;        /* of the answer; 0: none */
    unsigned answers;       /* that ended */
    unsigned configs_given; /* back */
    char body[32];
    char allow[32];
} world;

static struct fixture {
    struct arena arena;
    struct http_head head;
    struct http_exchange exchange;
    struct gateway gateway;
} fixture;

/* --- Stand-ins -------------------------------------------------------------------------------- */

void http_answer_begin(struct http_exchange *exchange, unsigned status)
{
    (void)exchange;
    assert_int_equal(world.status, 0);
    world.status = status;
}

void http_answer_field(struct http_exchange *exchange, struct slice name, struct slice value)
{
    (void)exchange;
    if (slice_is(name, "Allow")) {
        (void)snprintf(world.allow, sizeof world.allow, "%.*s", SLICE_ARGS(value));
    }
}

void http_answer_end(
    struct http_exchange *exchange, struct slice content_type, struct slice body, bool is_stable)
{
    (void)exchange, (void)content_type, (void)is_stable;
    (void)snprintf(world.body, sizeof world.body, "%.*s", SLICE_ARGS(body));
    world.answers++;
}

void http_wake(struct http_exchange *exchange)
{
    exchange->resume(NULL, exchange);
}

struct engine *door_engine(const struct door *door)
{
    (void)door;
    return NULL;
}

enum status query_submit(struct engine *engine, struct query *query, struct err *err)
{
    (void)engine;
    assert_int_equal(query->kind, QUERY_NOTHING);
    if (world.refuses != OK) {
        return err_set(err, world.refuses, "it does not");
    }
    world.asked = query;
    return OK;
}

void gateway_config_drop(struct gateway *gateway, struct gateway_config *config)
{
    assert_ptr_equal(gateway, &fixture.gateway);
    (void)config;
    world.configs_given++;
}

/* --- A request -------------------------------------------------------------------------------- */

static void begin(enum http_method method)
{
    memset(&world, 0, sizeof world);
    fixture.head = (struct http_head){.method = method};
    fixture.exchange = (struct http_exchange){.head = &fixture.head, .arena = &fixture.arena};
    struct gateway_request request = {.gateway = &fixture.gateway, .exchange = &fixture.exchange};
    assert_true(health_begin(&request));
}

static void ask(enum http_method method)
{
    begin(method);
    health_handle(fixture.exchange.state);
}

/* The engine is done with the question. */
static void answered(enum status status)
{
    assert_non_null(world.asked);
    world.asked->call.err.status = status;
    world.asked->call.done(&world.asked->call);
}

static void assert_answer(unsigned status, const char *body)
{
    assert_int_equal(world.status, status);
    assert_string_equal(world.body, body);
    assert_int_equal(world.answers, 1);
    assert_int_equal(world.configs_given, 1);
}

/* --- Tests ------------------------------------------------------------------------------------ */

static void it_is_200_when_the_engine_has_answered_and_not_before(void **state)
{
    (void)state;
    enum http_method methods[] = {HTTP_METHOD_GET, HTTP_METHOD_HEAD};
    for (size_t i = 0; i < COUNT(methods); i++) {
        ask(methods[i]);
        assert_int_equal(world.status, 0); /* a store that hangs: no answer */
        answered(OK);
        assert_answer(200, "ok\n");
    }
}

static void it_is_503_when_the_engine_refuses_the_question(void **state)
{
    (void)state;
    enum status refusals[] = {E_UNKNOWN, E_UNAVAILABLE, E_LIMIT, E_NOMEM};
    for (size_t i = 0; i < COUNT(refusals); i++) {
        begin(HTTP_METHOD_GET);
        world.refuses = refusals[i];
        health_handle(fixture.exchange.state);
        assert_answer(503, "not ready\n");
    }
}

static void it_is_503_when_what_came_before_the_question_is_not_durable(void **state)
{
    (void)state;
    enum status failures[] = {E_UNKNOWN, E_UNAVAILABLE, E_CORRUPT};
    for (size_t i = 0; i < COUNT(failures); i++) {
        ask(HTTP_METHOD_GET);
        answered(failures[i]);
        assert_answer(503, "not ready\n");
    }
}

static void other_methods_are_refused_without_asking(void **state)
{
    (void)state;
    enum http_method methods[] = {HTTP_METHOD_POST, HTTP_METHOD_DELETE, HTTP_METHOD_OPTIONS};
    for (size_t i = 0; i < COUNT(methods); i++) {
        ask(methods[i]);
        assert_null(world.asked);
        assert_answer(405, "method not allowed\n");
        assert_string_equal(world.allow, "GET, HEAD");
    }
}

static void a_request_whose_body_is_cut_gives_its_configuration_back(void **state)
{
    (void)state;
    begin(HTTP_METHOD_POST);
    fixture.exchange.cut(NULL, &fixture.exchange);
    assert_int_equal(world.configs_given, 1);
    assert_int_equal(world.answers, 0); /* the server's affair */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(it_is_200_when_the_engine_has_answered_and_not_before),
        TEST(it_is_503_when_the_engine_refuses_the_question),
        TEST(it_is_503_when_what_came_before_the_question_is_not_durable),
        TEST(other_methods_are_refused_without_asking),
        TEST(a_request_whose_body_is_cut_gives_its_configuration_back),
    };
    arena_init(&fixture.arena, &mem_libc, 1 << 20);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    arena_release(&fixture.arena);
    return failed;
}
