/*
 * The pages of evidence and of the service, with stand-ins for the server and the engine: what is
 * asked of the engine, in which order, and what is shown.
 */
#include <stdio.h>
#include <string.h>

#include "api/call.h"
#include "api/openapi.h"
#include "api/routes.h"
#include "canon/json.h"
#include "check_c.h"
#include "engine/query.h"
#include "evidence/cursor.h"
#include "evidence/entry.h"
#include "evidence/entry_form.h"

enum { CALLS_MAX = 8 };

/* What the stand-ins were asked, and what they answer. */
static struct world {
    /* Set by a test. */
    struct err refuse_look;   /* status other than OK: query_submit refuses with it */
    struct err refuse_submit; /* likewise of engine_submit */
    enum status look_fails;   /* of the look itself */
    enum status call_fails;   /* of the call itself */
    struct query_entry *entries;
    size_t entry_count;
    bool has_more;
    uint64_t next_seq; /* of the chain 0x01, 0x23 */
    struct engine_stats stats;
    struct store_head head;
    const char *params[4][2];

    /* Seen. */
    const char *order[CALLS_MAX]; /* "look", "note", "read", "answer" */
    size_t order_count;
    struct query *look;
    struct note note;
    char reason[256];
    unsigned wakes;
    unsigned status;  /* of the answer */
    const char *code; /* of a problem */
    char body[1 << 16];
    size_t body_bytes;
    char type[64];
} world;

static void did(const char *what)
{
    assert_true(world.order_count < CALLS_MAX);
    world.order[world.order_count++] = what;
}

/* --- Stand-ins -------------------------------------------------------------------------------- */

void http_wake(struct http_exchange *exchange)
{
    (void)exchange;
    world.wakes++;
}

void http_answer_field(struct http_exchange *exchange, struct slice name, struct slice value)
{
    (void)exchange, (void)name, (void)value;
}

void http_server_stats(struct http_server *server, struct http_server_stats *ret_stats)
{
    (void)server;
    *ret_stats = (struct http_server_stats){.open = 5};
}

void api_answer_begin(struct api_request *request, unsigned status)
{
    (void)request;
    assert_int_equal(world.status, 0); /* each request is answered once */
    world.status = status;
}

void api_answer_end(
    struct api_request *request, struct slice content_type, struct slice body, bool is_stable)
{
    (void)request, (void)is_stable;
    did("answer");
    world.body_bytes = body.len < sizeof world.body ? body.len : sizeof world.body - 1;
    memcpy(world.body, body.data, world.body_bytes);
    world.body[world.body_bytes] = '\0';
    (void)snprintf(world.type, sizeof world.type, "%.*s", SLICE_ARGS(content_type));
}

void api_refuse(struct api_request *request, const struct problem *problem)
{
    api_answer_begin(request, problem->status);
    did("answer");
    world.code = problem->code;
}

void api_refuse_plain(
    struct api_request *request, unsigned status, const char *code, const char *detail)
{
    api_refuse(
        request, &(struct problem){.status = status, .code = code, .detail = slice_str(detail)});
}

void api_answer_json(struct api_request *request, const struct buf *document)
{
    assert_int_equal(buf_status(document), OK);
    api_answer_begin(request, 200);
    api_answer_end(request, SLICE_LIT("application/json"), buf_view(document), true);
}

void api_fail(struct api_request *request, const struct err *err)
{
    assert_int_not_equal(err->status, OK);
    api_refuse(request, &(struct problem){.status = 503, .code = status_name(err->status)});
}

void api_fail_memory(struct api_request *request)
{
    api_refuse(request, &(struct problem){.status = 503, .code = "out_of_memory"});
}

bool api_param(const struct api_request *request, const char *name, struct slice *ret_value)
{
    (void)request;
    for (size_t i = 0; i < 4 && world.params[i][0] != NULL; i++) {
        if (strcmp(world.params[i][0], name) == 0) {
            *ret_value = slice_str(world.params[i][1]);
            return true;
        }
    }
    return false;
}

enum status api_trace(struct api_request *request, const struct json_value *trace,
    struct slice *ret_trace, struct err *err)
{
    (void)request, (void)err;
    assert_null(trace);
    *ret_trace = SLICE_LIT("{\"request_id\":\"r-1\"}");
    return OK;
}

enum status engine_submit(struct engine *engine, struct engine_call *call, struct err *err)
{
    (void)engine;
    if (world.refuse_submit.status != OK) {
        *err = world.refuse_submit;
        return err->status;
    }
    assert_non_null(call->note);
    did("note");
    call->err.status = world.call_fails;
    world.note = *call->note;
    (void)snprintf(world.reason, sizeof world.reason, "%.*s", SLICE_ARGS(call->note->reason));
    call->done(call);
    return OK;
}

enum status query_submit(struct engine *engine, struct query *look, struct err *err)
{
    (void)engine;
    const struct err *refuse =
        look->kind == QUERY_READY ? &world.refuse_submit : &world.refuse_look;
    if (refuse->status != OK) {
        *err = *refuse;
        return err->status;
    }
    did(look->kind == QUERY_ENTRIES ? "look" : "read");
    look->head = world.head;
    if (look->kind != QUERY_ENTRIES) {
        assert_true(look->kind == QUERY_HEAD || look->kind == QUERY_READY);
        look->call.err.status = world.call_fails;
        look->call.done(&look->call);
        return OK;
    }
    world.look = look;
    look->entries = world.entries;
    look->count = world.entry_count;
    look->has_more = world.has_more;
    look->next_entry = (struct entry_cursor){.chain_id = {0x01, 0x23}, .seq = world.next_seq};
    look->call.err.status = world.look_fails;
    look->call.done(&look->call);
    return OK;
}

struct backlog *engine_backlog(const struct engine *engine)
{
    (void)engine;
    return NULL;
}

void engine_stats(struct engine *engine, struct engine_stats *ret_stats)
{
    (void)engine;
    *ret_stats = world.stats;
}

bool engine_store_away(struct engine *engine, struct err *ret_err)
{
    (void)engine;
    (void)ret_err;
    return world.stats.store_away;
}

const struct store_identity *engine_identity(const struct engine *engine)
{
    (void)engine;
    static const struct store_identity identity = {.chain_id = {0x01, 0x23}};
    return &identity;
}

/* What the pages see of the door. */
struct door {
    struct metrics *metrics;
    struct flood *flood;
};

struct engine *door_engine(const struct door *door)
{
    (void)door;
    return NULL;
}

struct log *door_log(const struct door *door)
{
    (void)door;
    return NULL;
}

struct metrics *door_metrics(const struct door *door)
{
    return door->metrics;
}

struct flood *door_flood(const struct door *door)
{
    return door->flood;
}

/* Weak, so that the real one is taken where it is linked. */
__attribute__((weak)) enum status entry_show(
    const struct entry *entry, const struct digest *prev_hash, struct buf *out)
{
    char hash[DIGEST_HEX_BYTES], prev[DIGEST_HEX_BYTES];
    buf_append(out, entry->bytes.data, entry->bytes.len - 1);
    buf_printf(out, ",\"hash\":\"%s\",\"prev_hash\":\"%s\"}", digest_put_hex(hash, &entry->hash),
        digest_put_hex(prev, prev_hash));
    return buf_status(out);
}

/* --- Asking ----------------------------------------------------------------------------------- */

/* Nothing is given back; each piece has its size in front, to be copied when it grows. */
static void *mem_of_arena(void *context, void *pointer, size_t size)
{
    enum { FRONT = 16 };
    char *piece = size == 0 ? NULL : arena_alloc(context, size + FRONT);
    if (piece == NULL) {
        return NULL;
    }
    memcpy(piece, &size, sizeof size);
    if (pointer != NULL) {
        size_t old;
        memcpy(&old, (char *)pointer - FRONT, sizeof old);
        memcpy(piece + FRONT, pointer, old < size ? old : size);
    }
    return piece + FRONT;
}

struct fixture {
    struct arena arena;
    struct http_exchange exchange;
    struct http_head head; /* of a request without fields */
    struct door door;
    struct api api;
    struct api_policy policy;
    struct api_request request;
};

static int setup(void **state)
{
    struct fixture *fixture = mem_zalloc(&mem_libc, 1, sizeof *fixture);
    memset(&world, 0, sizeof world);
    arena_init(&fixture->arena, &mem_libc, 16 << 20);
    fixture->exchange.arena = &fixture->arena;
    fixture->exchange.head = &fixture->head;
    fixture->exchange.request_id = SLICE_LIT("look-1");
    fixture->api.mem = &mem_libc;
    fixture->api.store = "journal:./once-data";
    fixture->api.door = &fixture->door;
    fixture->door.metrics = metrics_new(&mem_libc, 1);
    fixture->door.flood = flood_new(&mem_libc);
    fixture->request = (struct api_request){.api = &fixture->api,
        .policy = &fixture->policy,
        .exchange = &fixture->exchange,
        .mem = {mem_of_arena, &fixture->arena},
        .caller = {.tenant = SLICE_LIT("acme"),
            .actor = SLICE_LIT("auditor"),
            .rights = CONFIG_RIGHT_AUDIT}};
    *state = fixture;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;
    metrics_free(fixture->door.metrics);
    flood_free(fixture->door.flood);
    arena_release(&fixture->arena);
    mem_free(&mem_libc, fixture);
    return 0;
}

/* Run a handler and all that it is woken for. */
static void run(struct fixture *fixture, void (*handle)(struct api_request *request))
{
    handle(&fixture->request);
    while (world.wakes > 0) {
        world.wakes--;
        fixture->exchange.resume(&fixture->api, &fixture->exchange);
    }
    assert_int_not_equal(world.status, 0);
}

static void assert_order(const char *first, const char *second, const char *third)
{
    const char *const wanted[] = {first, second, third};
    for (size_t i = 0; i < 3; i++) {
        assert_true(i < world.order_count ? wanted[i] != NULL : wanted[i] == NULL);
        if (wanted[i] != NULL) {
            assert_string_equal(world.order[i], wanted[i]);
        }
    }
}

static struct query_entry entry_of(uint64_t seq, const char *bytes)
{
    struct query_entry entry = {
        .entry = {.kind = ENTRY_EVIDENCE, .seq = seq, .bytes = slice_str(bytes)}};
    entry.entry.hash.bytes[0] = 0xab;
    entry.prev_hash.bytes[0] = 0xcd;
    return entry;
}

static const struct json_value *body_of(struct fixture *fixture)
{
    const struct json_value *value = NULL;
    struct err err;
    assert_int_equal(
        json_read(slice_of(world.body, world.body_bytes), &fixture->arena, &value, &err), OK);
    return value;
}

/* --- Evidence --------------------------------------------------------------------------------- */

static void reading_evidence_leaves_its_entry_before_it_shows_anything(void **state)
{
    struct fixture *fixture = *state;
    struct query_entry entries[] = {
        entry_of(7, "{\"seq\":7,\"type\":\"execution.started\"}"), entry_of(9, "{\"seq\":9}")};
    world.entries = entries;
    world.entry_count = 2;
    world.has_more = true;
    world.next_seq = 12;
    run(fixture, api_evidence_list);
    assert_order("look", "note", "answer");
    assert_int_equal(world.status, 200);
    assert_int_equal(world.note.kind, NOTE_ACCESS_READ);
    assert_true(slice_is(world.note.tenant, "acme"));
    assert_true(slice_is(world.note.actor, "auditor"));
    assert_true(slice_is(world.note.trace, "{\"request_id\":\"r-1\"}"));
    assert_int_equal(world.note.count, 2);
    assert_string_equal(world.reason, "evidence after 0 limit 100");
    assert_true(slice_is(world.look->tenant, "acme"));
    assert_int_equal(world.look->limit, 100);

    const struct json_value *body = body_of(fixture);
    const struct json_value *list = json_find(body, SLICE_LIT("entries"));
    assert_true(json_is(list, JSON_ARRAY));
    assert_int_equal(list->count, 2);
    struct slice next = json_text(json_find(body, SLICE_LIT("next")));
    assert_true(slice_equal(next, json_text(json_find(body, SLICE_LIT("resume")))));
    struct entry_cursor cursor;
    assert_int_equal(evidence_cursor_read(next, &cursor, NULL), OK);
    assert_int_equal(cursor.seq, 12);
    assert_int_equal(json_text(json_find(&list->items[0], SLICE_LIT("prev_hash"))).len, 64);
    assert_int_equal(json_text(json_find(&list->items[1], SLICE_LIT("hash"))).len, 64);
}

static void nothing_is_shown_when_the_reading_cannot_be_recorded(void **state)
{
    struct fixture *fixture = *state;
    struct query_entry entries[] = {entry_of(7, "{\"seq\":7}")};
    world.entries = entries;
    world.entry_count = 1;
    world.call_fails = E_UNAVAILABLE;
    run(fixture, api_evidence_list);
    assert_int_equal(world.status, 503);
    assert_int_equal(world.body_bytes, 0);
}

static void an_engine_that_refuses_is_said_so(void **state)
{
    struct fixture *fixture = *state;
    world.refuse_look.status = E_LIMIT;
    run(fixture, api_evidence_list);
    assert_order("answer", NULL, NULL);
    assert_string_equal(world.code, "limit");
    world = (struct world){.refuse_submit.status = E_UNKNOWN};
    run(fixture, api_evidence_list);
    assert_order("look", "answer", NULL);
    assert_string_equal(world.code, "unknown");
    world = (struct world){.look_fails = E_CORRUPT};
    run(fixture, api_evidence_list);
    assert_order("look", "answer", NULL);
    assert_string_equal(world.code, "corrupt");
    assert_int_equal(world.body_bytes, 0);
}

static char *cursor_of(unsigned char chain, uint64_t seq, char ret_text[EVIDENCE_CURSOR_BYTES])
{
    struct entry_cursor cursor = {.chain_id = {chain, 0x23}, .seq = seq};
    return evidence_cursor_put(ret_text, &cursor);
}

static void an_empty_page_is_a_reading_too(void **state)
{
    struct fixture *fixture = *state;
    world.params[0][0] = "operation_id";
    world.params[0][1] = "op_01890a5d-ac96-774b-bcce-b302099a8057";
    world.params[1][0] = "after";
    char cursor[EVIDENCE_CURSOR_BYTES];
    world.params[1][1] = cursor_of(0x01, 41, cursor);
    world.next_seq = 41;
    world.params[2][0] = "limit";
    world.params[2][1] = "1000";
    run(fixture, api_evidence_list);
    assert_order("look", "note", "answer");
    char page[128];
    (void)snprintf(page, sizeof page, "{\"entries\":[],\"next\":null,\"resume\":\"%s\"}", cursor);
    assert_string_equal(world.body, page);
    assert_string_equal(
        world.reason, "evidence op_01890a5d-ac96-774b-bcce-b302099a8057 after 41 limit 1000");
    /* Nothing of it was found: the note is not about another tenant's operation. */
    static const struct op_id none = {{0}};
    assert_true(op_id_equal(&world.note.operation_id, &none));
    assert_int_equal(world.look->after_entry.seq, 41);
}

static void wrong_parameters_are_refused_by_name(void **state)
{
    struct fixture *fixture = *state;
    static const char *const wrong[][2] = {{"limit", "0"}, {"limit", "1001"}, {"limit", "ten"},
        {"limit", ""}, {"after", "-1"}, {"after", "18446744073709551616"}, {"after", "x"},
        {"operation_id", "op_1"}, {"operation_id", ""}};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        memset(&world, 0, sizeof world);
        world.params[0][0] = wrong[i][0];
        world.params[0][1] = wrong[i][1];
        run(fixture, api_evidence_list);
        assert_order("answer", NULL, NULL);
        assert_int_equal(world.status, 400);
        assert_string_equal(world.code, "invalid_parameter");
    }
}

static void a_cursor_of_a_different_chain_is_refused(void **state)
{
    struct fixture *fixture = *state;
    char cursor[EVIDENCE_CURSOR_BYTES];
    world.params[0][0] = "after";
    world.params[0][1] = cursor_of(0x02, 41, cursor);
    world.look_fails = E_INVALID; /* the store knows which chains it has */
    run(fixture, api_evidence_list);
    assert_int_equal(world.look->after_entry.chain_id[0], 0x02);
    assert_order("look", "answer", NULL);
    assert_int_equal(world.status, 400);
    assert_string_equal(world.code, "invalid_parameter");
}

static void the_head_is_asked_of_the_engine_and_tells_no_counts(void **state)
{
    struct fixture *fixture = *state;
    world.head = (struct store_head){.seq = 77, .moment = {.time_ms = 5}};
    world.head.hash.bytes[31] = 1;
    run(fixture, api_evidence_head);
    assert_order("read", "answer", NULL);
    assert_string_equal(world.body,
        "{\"chain_id\":\"01230000-0000-0000-0000-000000000000\",\"seq\":77,\"hash\":"
        "\"0000000000000000000000000000000000000000000000000000000000000001\"}");
    memset(&world, 0, sizeof world);
    world.call_fails = E_UNKNOWN;
    run(fixture, api_evidence_head);
    assert_int_equal(world.status, 503);
}

/* --- Service ---------------------------------------------------------------------------------- */

static void alive_is_ok_whatever_the_engine_says(void **state)
{
    world.refuse_submit.status = E_UNKNOWN;
    run(*state, api_livez);
    assert_int_equal(world.status, 200);
    assert_string_equal(world.body, "ok");
}

static void ready_asks_the_engine(void **state)
{
    run(*state, api_readyz);
    assert_order("read", "answer", NULL);
    assert_int_equal(world.status, 200);
    assert_string_equal(world.body, "ok");
}

static void not_ready_is_503_and_says_what(void **state)
{
    struct fixture *fixture = *state;
    world.refuse_submit = (struct err){.status = E_UNKNOWN, .text = "the flush failed"};
    run(fixture, api_readyz);
    assert_int_equal(world.status, 503);
    assert_string_equal(world.body, "not ready: engine");
    memset(&world, 0, sizeof world);
    world.call_fails = E_UNAVAILABLE;
    run(fixture, api_readyz);
    assert_int_equal(world.status, 503);
    memset(&world, 0, sizeof world);
    world.refuse_submit.status = E_LIMIT;
    run(fixture, api_readyz);
    assert_int_equal(world.status, 503);
    memset(&world, 0, sizeof world);
    atomic_store(&fixture->api.not_ready, "draining");
    run(fixture, api_readyz);
    assert_int_equal(world.status, 503);
    assert_string_equal(world.body, "not ready: serving");
}

/* It can be read on a connection of its own, and the batch in hand does not end. */
static void a_store_that_does_not_commit_is_not_ready(void **state)
{
    world.stats.turn_ms = 2999;
    run(*state, api_readyz);
    assert_int_equal(world.status, 200);
    memset(&world, 0, sizeof world);
    world.stats.turn_ms = 3000;
    run(*state, api_readyz);
    assert_int_equal(world.status, 503);
    assert_string_equal(world.body, "not ready: store");
}

static void verbose_lists_the_checks_and_keeps_places_from_strangers(void **state)
{
    struct fixture *fixture = *state;
    world.params[0][0] = "verbose";
    world.params[0][1] = "";
    world.stats.clock_held = true;
    run(fixture, api_readyz);
    assert_int_equal(world.status, 200);
    const struct json_value *checks = json_find(body_of(fixture), SLICE_LIT("checks"));
    assert_int_equal(checks->count, 5);
    assert_non_null(strstr(world.body, "once-data"));
    assert_non_null(strstr(world.body, "held"));

    memset(&world, 0, sizeof world);
    world.params[0][0] = "verbose";
    world.params[0][1] = "";
    world.refuse_submit = (struct err){.status = E_UNKNOWN, .text = "cannot write './once-data'"};
    fixture->policy.needs_token = true;
    run(fixture, api_readyz);
    assert_int_equal(world.status, 503);
    assert_null(strstr(world.body, "once-data"));
    (void)body_of(fixture);
}

static void figures_are_of_the_callers_tenant_alone(void **state)
{
    struct fixture *fixture = *state;
    struct metrics_decision theirs = {.tenant = SLICE_LIT("other"),
        .scope = SLICE_LIT("secret"),
        .decision = "first_seen",
        .first_to_seal_ms = -1};
    metrics_decision(fixture->door.metrics, 0, &theirs);
    run(fixture, api_metrics);
    assert_int_equal(world.status, 200);
    assert_string_equal(world.type, "text/plain; version=0.0.4; charset=utf-8");
    assert_null(strstr(world.body, "secret"));
    assert_null(strstr(world.body, "once_http_connections"));

    memset(&world, 0, sizeof world);
    fixture->request.caller = (struct api_caller){.tenant = SLICE_LIT("*"), .sees_all = true};
    run(fixture, api_metrics);
    assert_non_null(strstr(world.body, "secret"));
    assert_non_null(strstr(world.body, "once_http_connections"));

    memset(&world, 0, sizeof world);
    fixture->request.caller =
        (struct api_caller){.tenant = SLICE_LIT("acme"), .rights = CONFIG_RIGHT_EXECUTE};
    run(fixture, api_metrics);
    assert_int_equal(world.status, 403);
    assert_string_equal(world.code, "forbidden");
}

static void the_document_is_in_the_program(void **state)
{
    struct fixture *fixture = *state;
    run(fixture, api_openapi);
    assert_int_equal(world.status, 200);
    const struct json_value *document = NULL;
    struct err err;
    struct slice text = slice_of(api_openapi_json, api_openapi_json_bytes);
    assert_int_equal(json_read(text, &fixture->arena, &document, &err), OK);
    assert_true(slice_is(json_text(json_find(document, SLICE_LIT("openapi"))), "3.1.0"));
    const struct json_value *info = json_find(document, SLICE_LIT("info"));
    assert_true(slice_is(json_text(json_find(info, SLICE_LIT("version"))), ONCE_VERSION));
}

#define PAGE_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        PAGE_TEST(reading_evidence_leaves_its_entry_before_it_shows_anything),
        PAGE_TEST(nothing_is_shown_when_the_reading_cannot_be_recorded),
        PAGE_TEST(an_engine_that_refuses_is_said_so),
        PAGE_TEST(an_empty_page_is_a_reading_too),
        PAGE_TEST(wrong_parameters_are_refused_by_name),
        PAGE_TEST(a_cursor_of_a_different_chain_is_refused),
        PAGE_TEST(the_head_is_asked_of_the_engine_and_tells_no_counts),
        PAGE_TEST(alive_is_ok_whatever_the_engine_says),
        PAGE_TEST(ready_asks_the_engine),
        PAGE_TEST(not_ready_is_503_and_says_what),
        PAGE_TEST(a_store_that_does_not_commit_is_not_ready),
        PAGE_TEST(verbose_lists_the_checks_and_keeps_places_from_strangers),
        PAGE_TEST(figures_are_of_the_callers_tenant_alone),
        PAGE_TEST(the_document_is_in_the_program),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
