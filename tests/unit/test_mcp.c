/* The MCP proxy without descriptors, threads or a store: its messages, and the life of a call on a
 * clock and a ledger of the test's own. */
#include <stdio.h>

#include "check_c.h"
#include "config/config.h"
#include "mcp/proxy.h"
#include "mcp/reply.h"
#include "mcp/scan.h"

#define PAY_LIST                                                                                   \
    "{\"jsonrpc\":\"2.0\",\"id\":0,\"result\":{\"tools\":[{\"name\":\"pay\",\"inputSchema\":{"     \
    "\"type\":\"object\"}},{\"name\":\"look\",\"inputSchema\":{},\"annotations\":{"                \
    "\"readOnlyHint\":true}}]}}"
#define PAY(id, more)                                                                              \
    "{\"jsonrpc\":\"2.0\",\"id\":" id ",\"method\":\"tools/call\",\"params\":{\"name\":\"pay\","   \
    "\"arguments\":{" more "}}}"
#define RESULT(id) "{\"jsonrpc\":\"2.0\",\"id\":" id ",\"result\":{\"content\":[]}}"

/* ---- a world ------------------------------------------------------------------------------- */

struct world {
    struct mcp_proxy proxy;
    struct mcp_job *jobs[32]; /* with the ledger, oldest first */
    size_t job_count;
    char said[4096];
    int64_t now_ms;
};

static void take_job(void *context, struct mcp_job *job)
{
    struct world *world = context;
    assert_true(world->job_count < 32);
    world->jobs[world->job_count++] = job;
}

static void take_words(void *context, const char *text)
{
    struct world *world = context;
    (void)snprintf(world->said, sizeof world->said, "%s", text);
}

static const struct config_mcp no_policy = {.tool_count = 0};

static void client(struct world *world, const char *line)
{
    proxy_client_line(&world->proxy, slice_str(line), world->now_ms);
}

static void server(struct world *world, const char *line)
{
    proxy_server_line(&world->proxy, slice_str(line), world->now_ms);
}

/* Everything that waits for one side, taken. */
static const char *taken(struct mcp_queue *queue)
{
    static char text[65536];
    struct slice front = queue_front(queue);
    (void)snprintf(text, sizeof text, "%.*s", SLICE_ARGS(front));
    queue_take(queue, front.len);
    return text;
}

static const char *to_server(struct world *world)
{
    if (queue_front(&world->proxy.to_server).len == 0) {
        proxy_send(&world->proxy, world->now_ms);
    }
    return taken(&world->proxy.to_server);
}

static const char *to_client(struct world *world)
{
    return taken(&world->proxy.to_client);
}

static struct world *world_new(const struct config_mcp *policy)
{
    struct world *world = calloc(1, sizeof *world);
    struct mcp_proxy_options options = {.mem = &mem_libc,
        .policy = policy,
        .prefix = "",
        .resolve = " --store x",
        .submit = take_job,
        .say = take_words,
        .context = world};
    assert_non_null(world);
    world->now_ms = 1000000;
    proxy_init(&world->proxy, &options);
    client(world, "{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"tools/list\"}");
    (void)to_server(world);
    server(world, PAY_LIST);
    (void)to_client(world);
    return world;
}

static struct mcp_job *oldest(struct world *world, enum mcp_job_kind kind)
{
    assert_true(world->job_count > 0);
    assert_int_equal(world->jobs[0]->kind, kind);
    struct mcp_job *job = world->jobs[0];
    world->job_count--;
    memmove(world->jobs, world->jobs + 1, world->job_count * sizeof world->jobs[0]);
    return job;
}

/* The ledger answers the oldest job, which is of this kind. */
static void ledger(struct world *world, enum mcp_job_kind kind, enum once_decision decision)
{
    struct mcp_job *job = oldest(world, kind);
    job->decision = decision;
    (void)snprintf(job->operation_id, sizeof job->operation_id, "op_1");
    job->fence = 7;
    proxy_done(&world->proxy, job, world->now_ms);
}

static void ledger_fails(struct world *world, enum mcp_job_kind kind, int result)
{
    struct mcp_job *job = oldest(world, kind);
    job->result = result;
    (void)snprintf(job->error, sizeof job->error, "the disk is full");
    proxy_done(&world->proxy, job, world->now_ms);
}

static void world_free(struct world *world)
{
    while (world->job_count > 0) {
        ledger(world, world->jobs[0]->kind, ONCE_STALE_FENCE);
    }
    proxy_release(&world->proxy);
    free(world);
}

static void pass_time(struct world *world, int64_t ms)
{
    world->now_ms += ms;
    proxy_tick(&world->proxy, world->now_ms);
}

/* A call that the server has got. */
static void sent(struct world *world)
{
    client(world, PAY("1", "\"n\":1,\"idempotency_key\":\"k\""));
    ledger(world, MCP_BEGIN, ONCE_FIRST_SEEN);
    assert_string_equal(to_server(world), PAY("1", "\"n\":1") "\n");
}

/* ---- parts ----------------------------------------------------------------------------------- */

static void members_come_as_they_stand(void **state)
{
    (void)state;
    struct mcp_scan scan;
    struct mcp_scan_item item;
    struct slice text = SLICE_LIT(" { \"a\" : [1,{\"b\":\"]}\\\"\"}] ,\"c\":-1.5e3} ");
    assert_true(scan_begin(&scan, text, '{'));
    assert_true(scan_next(&scan, &item));
    assert_true(slice_is(item.name, "a"));
    assert_true(slice_is(item.value, "[1,{\"b\":\"]}\\\"\"}]"));
    assert_true(slice_is(item.whole, "\"a\" : [1,{\"b\":\"]}\\\"\"}]"));
    assert_true(scan_next(&scan, &item));
    assert_true(slice_is(item.value, "-1.5e3"));
    assert_false(scan_next(&scan, &item));
    assert_false(scan.is_broken);
    assert_true(slice_is(scan_find(text, "c"), "-1.5e3"));
    assert_int_equal(scan_find(text, "b").len, 0);
}

static void what_is_not_json_breaks_a_scan(void **state)
{
    (void)state;
    static const char *const texts[] = {"{", "{\"a\"", "{\"a\":", "{\"a\":1", "{\"a\":1,",
        "{\"a\":\"x", "{\"a\":[1", "{a:1}", "{\"a\" 1}", "{\"a\":1} x", "{\"a\":\"\\",
        "{\"a\":1 \"b\":2}", "{\"a\":}"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct mcp_scan scan;
        struct mcp_scan_item item;
        assert_true(scan_begin(&scan, slice_str(texts[i]), '{'));
        while (scan_next(&scan, &item)) {
        }
        if (!scan.is_broken) {
            fail_msg("%s is not broken", texts[i]);
        }
        assert_int_equal(scan_find(slice_str(texts[i]), "a").len, 0);
    }
}

static void a_stored_result_keeps_its_bytes_and_gains_meta(void **state)
{
    (void)state;
    static const char *const rows[][2] = {{"{}", "{\"_meta\":{D}}"},
        {"{ \"content\" : [ 1.0 ] }", "{ \"content\" : [ 1.0 ] ,\"_meta\":{D}}"},
        {"{\"a\":1 , \"_meta\" : { \"x\": 1 } ,\"b\":2}",
            "{\"a\":1 , \"_meta\":{\"x\": 1,D} ,\"b\":2}"},
        {"{\"_meta\":{\"io.once/decision\":\"first\"}}", "{\"_meta\":{D}}"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct buf out;
        struct mcp_reply reply = {.id = SLICE_LIT("\"x\""), .decision = "D"};
        char wanted[256];
        const char *at = strchr(rows[i][1], 'D');
        (void)snprintf(wanted, sizeof wanted,
            "{\"jsonrpc\":\"2.0\",\"id\":\"x\",\"result\":%.*s\"io.once/decision\":\"D\"%s}",
            (int)(at - rows[i][1]), rows[i][1], at + 1);
        buf_init(&out, &mem_libc, 4096);
        mcp_reply_result(&out, &reply, slice_str(rows[i][0]));
        buf_char(&out, '\0');
        assert_string_equal(out.data, wanted);
        buf_release(&out);
    }
}

static void an_escaped_name_is_taken_out_too(void **state)
{
    (void)state;
    struct world *world = world_new(&no_policy);
    client(world, PAY("1", "\"a\":1, \"idempotency\\u005fkey\" : \"k\" ,\"request_id\":\"r\""));
    assert_string_equal(world->jobs[0]->begin.key, "k");
    assert_string_equal(world->jobs[0]->begin.request_id, "r");
    ledger(world, MCP_BEGIN, ONCE_FIRST_SEEN);
    assert_string_equal(to_server(world), PAY("1", "\"a\":1") "\n");
    world_free(world);
}

static void the_default_policy_is_that_of_the_table(void **state)
{
    (void)state;
    struct config *config = NULL;
    struct config_faults faults = {.count = 0};
    assert_int_equal(config_new(&mem_libc, &config, NULL), OK);
    const struct config_mcp_tool *usual = config_mcp_find(&config->mcp, SLICE_LIT("x"));
    assert_int_equal(
        config_read(config, SLICE_LIT("mcp: {tools: {x: {}, y*: {key: pass}}}"), &faults), OK);
    const struct config_mcp_tool *read = config_mcp_find(&config->mcp, SLICE_LIT("x"));
    assert_ptr_not_equal(usual, read);
    assert_int_equal(usual->key, read->key);
    assert_int_equal(usual->window_ms, read->window_ms);
    assert_int_equal(usual->on_unknown, read->on_unknown);
    assert_int_equal(usual->retry_errors, read->retry_errors);
    assert_int_equal(usual->timeout_ms, read->timeout_ms);
    assert_int_equal(usual->wait_ms, read->wait_ms);
    assert_int_equal(config_mcp_find(&config->mcp, SLICE_LIT("yes"))->key, CONFIG_MCP_PASS);
    assert_ptr_equal(config_mcp_find(&config->mcp, SLICE_LIT("xy")), usual);
    config_free(config);
}

/* ---- the life of a call ---------------------------------------------------------------------- */

static void nothing_reaches_the_server_before_the_grant(void **state)
{
    (void)state;
    struct world *world = world_new(&no_policy);
    client(world, PAY("1", "\"n\":1,\"idempotency_key\":\"k\""));
    assert_string_equal(to_server(world), ""); /* P6 */
    ledger(world, MCP_BEGIN, ONCE_FIRST_SEEN);
    assert_string_equal(to_server(world), PAY("1", "\"n\":1") "\n");
    world_free(world);
}

static void a_result_reaches_the_client_after_its_seal(void **state)
{
    (void)state;
    struct world *world = world_new(&no_policy);
    sent(world);
    server(world, RESULT("1"));
    assert_string_equal(to_client(world), ""); /* P2 */
    assert_int_equal(world->jobs[0]->seal.fence, 7);
    ledger(world, MCP_SEAL, ONCE_SEALED);
    assert_string_equal(to_client(world), RESULT("1") "\n");
    assert_true(proxy_is_settled(&world->proxy));
    world_free(world);
}

static void a_seal_that_cannot_be_recorded_is_tried_again(void **state)
{
    (void)state;
    struct world *world = world_new(&no_policy);
    sent(world);
    server(world, RESULT("1"));
    for (int i = 0; i < 5; i++) {
        ledger_fails(world, MCP_SEAL, ONCE_E_UNAVAILABLE);
        assert_string_equal(to_client(world), "");
        assert_true(proxy_due(&world->proxy) <= world->now_ms + 1000);
        pass_time(world, 1000);
    }
    ledger(world, MCP_SEAL, ONCE_SEALED);
    assert_string_equal(to_client(world), RESULT("1") "\n");
    world_free(world);
}

static void a_seal_that_is_never_recorded_is_reported_as_unknown(void **state)
{
    (void)state;
    struct world *world = world_new(&no_policy);
    sent(world);
    server(world, RESULT("1"));
    pass_time(world, MCP_SETTLE_MS);
    ledger_fails(world, MCP_SEAL, ONCE_E_UNAVAILABLE);
    const char *answer = to_client(world);
    assert_non_null(strstr(answer, "Do NOT repeat"));
    assert_non_null(strstr(answer, "the disk is full"));
    assert_non_null(strstr(answer, "once resolve op_1 --fence 7 --store x"));
    assert_true(proxy_is_settled(&world->proxy));
    world_free(world);
}

/* The process stood still between the grant and the line: the grant may be somebody else's now. */
static struct world *with_old_grant(void)
{
    struct world *world = world_new(&no_policy);
    client(world, PAY("1", "\"idempotency_key\":\"k\""));
    world->now_ms += MCP_LEASE_MS;
    ledger(world, MCP_BEGIN, ONCE_FIRST_SEEN);
    assert_string_equal(to_server(world), "");
    return world;
}

static void an_old_grant_is_renewed_before_anything_is_sent(void **state)
{
    (void)state;
    struct world *world = with_old_grant();
    ledger(world, MCP_RENEW, ONCE_RENEWED);
    assert_string_equal(to_server(world), PAY("1", "") "\n");
    world_free(world);
}

static void a_lost_grant_sends_nothing(void **state)
{
    (void)state;
    struct world *world = with_old_grant();
    ledger(world, MCP_RENEW, ONCE_STALE_FENCE);
    assert_string_equal(to_server(world), "");
    assert_non_null(strstr(to_client(world), "nothing was done"));
    world_free(world);
}

static void a_lease_is_renewed_while_the_server_works(void **state)
{
    (void)state;
    struct world *world = world_new(&no_policy);
    sent(world);
    for (int i = 0; i < 4; i++) {
        pass_time(world, MCP_LEASE_MS / 3);
        ledger(world, MCP_RENEW, ONCE_RENEWED);
    }
    server(world, RESULT("1"));
    ledger(world, MCP_SEAL, ONCE_SEALED);
    assert_string_equal(to_client(world), RESULT("1") "\n");
    world_free(world);
}

static void a_server_that_got_no_byte_leaves_the_key_free(void **state)
{
    (void)state;
    struct world *world = world_new(&no_policy);
    client(world, PAY("1", "\"idempotency_key\":\"k\""));
    ledger(world, MCP_BEGIN, ONCE_FIRST_SEEN);
    proxy_send(&world->proxy, world->now_ms);
    proxy_server_gone(&world->proxy, world->now_ms); /* in the queue, and not written */
    ledger(world, MCP_RELEASE, ONCE_RELEASED_NOW);
    assert_non_null(strstr(to_client(world), "nothing was done"));
    world_free(world);
}

static void a_server_that_got_one_byte_leaves_the_call_unknown(void **state)
{
    (void)state;
    struct world *world = world_new(&no_policy);
    client(world, PAY("1", "\"idempotency_key\":\"k\""));
    ledger(world, MCP_BEGIN, ONCE_FIRST_SEEN);
    proxy_send(&world->proxy, world->now_ms);
    queue_take(&world->proxy.to_server, 1);
    proxy_server_gone(&world->proxy, world->now_ms);
    ledger(world, MCP_UNKNOWN, ONCE_MARKED_UNKNOWN);
    assert_non_null(strstr(to_client(world), "Do NOT repeat"));
    world_free(world);
}

static void an_answer_during_the_settlement_is_not_lost(void **state)
{
    (void)state;
    struct world *world = world_new(&no_policy);
    sent(world);
    pass_time(world, CONFIG_MCP_TIMEOUT_MS);
    server(world, RESULT("1"));
    ledger(world, MCP_UNKNOWN, ONCE_MARKED_UNKNOWN);
    assert_non_null(strstr(to_client(world), "did not answer in time"));
    ledger(world, MCP_SEAL, ONCE_SEALED);
    assert_string_equal(to_client(world), ""); /* one answer for each request */
    world_free(world);
}

static void a_duplicate_waits_for_a_call_of_this_process_without_asking(void **state)
{
    (void)state;
    struct world *world = world_new(&no_policy);
    sent(world);
    client(world, PAY("2", "\"n\":1,\"idempotency_key\":\"k\""));
    ledger(world, MCP_BEGIN, ONCE_IN_PROGRESS);
    pass_time(world, 2000);
    assert_int_equal(world->job_count, 0);
    server(world, RESULT("1"));
    ledger(world, MCP_SEAL, ONCE_SEALED);
    assert_string_equal(to_client(world), RESULT("1") "\n");
    ledger(world, MCP_BEGIN, ONCE_DUPLICATE_REPLAYED);
    assert_non_null(strstr(to_client(world), "duplicate_replayed"));
    world_free(world);
}

static void a_duplicate_looks_at_a_call_of_another_process(void **state)
{
    (void)state;
    struct world *world = world_new(&no_policy);
    client(world, PAY("1", "\"idempotency_key\":\"k\""));
    ledger(world, MCP_BEGIN, ONCE_IN_PROGRESS);
    pass_time(world, 1000);
    oldest(world, MCP_PEEK)->has_moved = false;
    proxy_done(&world->proxy, &world->proxy.requests->job, world->now_ms);
    pass_time(world, 1000);
    struct mcp_job *job = oldest(world, MCP_PEEK);
    job->has_moved = true;
    proxy_done(&world->proxy, job, world->now_ms);
    ledger(world, MCP_BEGIN, ONCE_IN_PROGRESS);
    world->now_ms += CONFIG_MCP_WAIT_MS;
    proxy_tick(&world->proxy, world->now_ms);
    ledger(world, MCP_BEGIN, ONCE_IN_PROGRESS);
    assert_non_null(strstr(to_client(world), "still running"));
    world_free(world);
}

static void a_call_cancelled_before_it_is_sent_is_released(void **state)
{
    (void)state;
    struct world *world = world_new(&no_policy);
    client(world, PAY("1", "\"idempotency_key\":\"k\""));
    client(world, "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{"
                  "\"requestId\":1}}");
    ledger(world, MCP_BEGIN, ONCE_FIRST_SEEN);
    ledger(world, MCP_RELEASE, ONCE_RELEASED_NOW);
    assert_null(strstr(to_server(world), "tools/call"));
    assert_string_equal(to_client(world), "");
    world_free(world);
}

static void an_id_written_differently_is_the_same_id(void **state)
{
    (void)state;
    struct world *world = world_new(&no_policy);
    client(world, PAY("\"\\u0061\"", "\"idempotency_key\":\"k\""));
    ledger(world, MCP_BEGIN, ONCE_FIRST_SEEN);
    (void)to_server(world);
    server(world, RESULT("\"a\""));
    ledger(world, MCP_SEAL, ONCE_SEALED);
    assert_string_equal(to_client(world), RESULT("\"a\"") "\n");
    client(world, PAY("1.0", "\"idempotency_key\":\"l\""));
    client(world, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}");
    assert_non_null(strstr(to_client(world), "in use"));
    world_free(world);
}

static void white_space_around_a_message_stays(void **state)
{
    (void)state;
    struct world *world = world_new(&no_policy);
    client(world, " {\"jsonrpc\":\"2.0\",\"id\":9,\"method\":\"x\"} \r");
    assert_string_equal(to_server(world), " {\"jsonrpc\":\"2.0\",\"id\":9,\"method\":\"x\"} \r\n");
    client(world, " \r");
    assert_string_equal(to_server(world), " \r\n");
    client(world, PAY("1", "\"idempotency_key\":\"k\"") "\r");
    ledger(world, MCP_BEGIN, ONCE_FIRST_SEEN);
    assert_string_equal(to_server(world), PAY("1", "") "\r\n");
    world_free(world);
}

static void a_call_without_an_id_is_dropped(void **state)
{
    (void)state;
    struct world *world = world_new(&no_policy);
    client(world, "{\"jsonrpc\":\"2.0\",\"method\":\"tools/call\",\"params\":{\"name\":\"pay\"}}");
    assert_string_equal(to_server(world), "");
    assert_non_null(strstr(world->said, "without an id"));
    assert_int_equal(world->job_count, 0);
    client(world, "{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"tools/call\",\"params\":{}}");
    assert_string_equal(to_server(world), "");
    assert_non_null(strstr(to_client(world), "must be a string or a number"));
    world_free(world);
}

static void many_requests_without_answers_are_bounded(void **state)
{
    (void)state;
    struct world *world = world_new(&no_policy);
    char line[128];
    sent(world);
    for (int i = 0; i < 3 * MCP_REQUESTS_MAX; i++) {
        (void)snprintf(
            line, sizeof line, "{\"jsonrpc\":\"2.0\",\"id\":%d,\"method\":\"x\"}", i + 2);
        client(world, line);
        (void)to_server(world);
        assert_true(world->proxy.request_count <= MCP_REQUESTS_MAX);
    }
    assert_string_equal(to_client(world), "");
    server(world, RESULT("1")); /* the call is still known */
    ledger(world, MCP_SEAL, ONCE_SEALED);
    assert_string_equal(to_client(world), RESULT("1") "\n");
    world_free(world);
}

static void a_tool_that_is_not_listed_is_asked_about_first(void **state)
{
    (void)state;
    struct world *world = world_new(&no_policy);
    server(world, "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}");
    (void)to_client(world);
    client(world, PAY("1", "\"request_id\":\"theirs\""));
    assert_non_null(strstr(to_server(world), "\"id\":\"once-tools-1\",\"method\":\"tools/list\""));
    assert_int_equal(world->job_count, 0);
    pass_time(world, MCP_LIST_MS); /* no list comes: the arguments stay as they are */
    ledger(world, MCP_BEGIN, ONCE_FIRST_SEEN);
    assert_string_equal(to_server(world), PAY("1", "\"request_id\":\"theirs\"") "\n");
    world_free(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(members_come_as_they_stand),
        TEST(what_is_not_json_breaks_a_scan),
        TEST(a_stored_result_keeps_its_bytes_and_gains_meta),
        TEST(an_escaped_name_is_taken_out_too),
        TEST(the_default_policy_is_that_of_the_table),
        TEST(nothing_reaches_the_server_before_the_grant),
        TEST(a_result_reaches_the_client_after_its_seal),
        TEST(a_seal_that_cannot_be_recorded_is_tried_again),
        TEST(a_seal_that_is_never_recorded_is_reported_as_unknown),
        TEST(an_old_grant_is_renewed_before_anything_is_sent),
        TEST(a_lost_grant_sends_nothing),
        TEST(a_lease_is_renewed_while_the_server_works),
        TEST(a_server_that_got_no_byte_leaves_the_key_free),
        TEST(a_server_that_got_one_byte_leaves_the_call_unknown),
        TEST(an_answer_during_the_settlement_is_not_lost),
        TEST(a_duplicate_waits_for_a_call_of_this_process_without_asking),
        TEST(a_duplicate_looks_at_a_call_of_another_process),
        TEST(a_call_cancelled_before_it_is_sent_is_released),
        TEST(an_id_written_differently_is_the_same_id),
        TEST(white_space_around_a_message_stays),
        TEST(a_call_without_an_id_is_dropped),
        TEST(many_requests_without_answers_are_bounded),
        TEST(a_tool_that_is_not_listed_is_asked_about_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
