/*
 * Runs one case: its own store, engine and gateway in this process, a fake upstream, and its
 * requests over real sockets, one after another. A request whose upstream waits is sent on a
 * separate thread, and its answer is checked when the case is over.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/macros.h"
#include "canon/json.h"
#include "cli/policy.h"
#include "cli/serve.h"
#include "server/fake_upstream.h"

enum {
    TIMEOUT_MS = 1000,        /* of a case whose upstream never answers: long for a loopback */
    REACH_MS_MAX = 10000,     /* until a waiting request has reached the upstream */
    SHOWN_BYTES_MAX = 200,    /* of a value in a difference */
    CODE_BYTES_MAX = 1 << 20, /* of memory to read a refusal */
    CONNECTIONS_MAX = 256,
    HEAD_BYTES_MAX = 256 << 10, /* of an answer */
    BODY_BYTES_MAX = 64 << 20,
};

/* A request in progress while others follow. */
struct case_waiting {
    pthread_t thread;
    const struct case_step *step;
    size_t number;
    struct once_client *client;
    const char *address;
    uint64_t calls_before;
    struct client_response *answer; /* NULL: out of memory */
    atomic_bool is_over;            /* the answer has arrived */
    bool is_open;                   /* its thread must be joined */
};

/* A case that runs. */
struct case_run {
    struct policy_bench *bench;
    struct policy_result *result;
    struct policy_difference **last; /* where the next one goes */
    struct arena *arena;
    struct fake_upstream *fake;
    struct serve serve;
    struct case_waiting waiting[CASE_STEPS_MAX];
    size_t waiting_count;
};

/* ---- the bench --------------------------------------------------------------------------- */

int policy_bench_init(struct policy_bench *bench, struct cli *cli, struct config *config)
{
    struct once_client_options options = {
        .headers_bytes_max = HEAD_BYTES_MAX, .body_bytes_max = BODY_BYTES_MAX};
    struct once_error error = {0};
    struct config_gateway *gateway = &config->gateway;
    *bench = (struct policy_bench){.cli = cli,
        .config = config,
        .read_routes = gateway->routes,
        .read_otherwise = gateway->otherwise,
        .routes =
            arena_zalloc(&config->arena, (gateway->route_count + 1) * sizeof(struct config_route)),
        .otherwise = arena_zalloc(&config->arena, sizeof(struct config_route))};
    if (bench->routes == NULL || bench->otherwise == NULL) {
        cli_say("out of memory for the configuration");
        return CLI_UNAVAILABLE;
    }
    if (once_client_new(&options, &bench->client, &error) != ONCE_OK) {
        return cli_fail(&error);
    }
    config->store = "mem:";
    config->listen_count = 0;
    config->tls_cert = config->tls_key = NULL;
    config->has_auth = false;
    config->log_level = CONFIG_LEVEL_ERROR;
    config->log_decisions = false;
    config->loops = 1;
    config->connections_max = CONNECTIONS_MAX;
    gateway->listen[0] = "127.0.0.1:0";
    gateway->listen_count = 1;
    gateway->tls_cert = gateway->tls_key = NULL;
    gateway->spool_dir = NULL;
    return CLI_OK;
}

void policy_bench_release(struct policy_bench *bench)
{
    once_client_free(bench->client);
}

static bool has_timeout(const struct config_case *of)
{
    for (size_t i = 0; i < of->step_count; i++) {
        if (of->steps[i].upstream.fail == CASE_FAIL_TIMEOUT) {
            return true;
        }
    }
    return false;
}

static void use_fake_upstream(
    struct config_route *route, const struct config_route *from, const char *url, bool hurries)
{
    *route = *from;
    route->upstreams[0] = url;
    route->upstream_count = 1;
    route->ca_file = NULL;
    if (hurries) {
        route->first_byte_ms =
            route->first_byte_ms < TIMEOUT_MS ? route->first_byte_ms : TIMEOUT_MS;
    }
}

static void bench_set(struct policy_bench *bench, const struct config_case *of, const char *url)
{
    struct config_gateway *gateway = &bench->config->gateway;
    bool hurries = has_timeout(of);
    for (size_t i = 0; i < gateway->route_count; i++) {
        use_fake_upstream(&bench->routes[i], &bench->read_routes[i], url, hurries);
    }
    gateway->routes = bench->routes;
    if (bench->read_otherwise != NULL) {
        use_fake_upstream(bench->otherwise, bench->read_otherwise, url, hurries);
        gateway->otherwise = bench->otherwise;
    }
}

/* ---- differences ------------------------------------------------------------------------- */

static const char *shown(struct case_run *run, struct slice text)
{
    struct slice copy = SLICE_EMPTY;
    size_t len = text.len < SHOWN_BYTES_MAX ? text.len : SHOWN_BYTES_MAX;
    char *out = arena_zalloc(run->arena, len + 4);
    if (out == NULL || arena_copy(run->arena, slice_of(text.data, len), &copy) != OK) {
        return "(out of memory)";
    }
    for (size_t i = 0; i < len; i++) { /* text from outside, made safe for a terminal */
        unsigned char c = (unsigned char)copy.data[i];
        out[i] = c >= ' ' && c < 127 ? (char)c : '?';
    }
    (void)memcpy(out + len, "...", text.len > len ? 3 : 0);
    return out;
}

static const char *number(struct case_run *run, uint64_t value)
{
    char text[24];
    (void)snprintf(text, sizeof text, "%" PRIu64, value);
    return shown(run, slice_str(text));
}

struct case_place {
    const struct case_step *step;
    size_t number;
};

static void differ(struct case_run *run, struct case_place at, const char *what, const char *got,
    const char *expected)
{
    if (run->last == &run->result->spare.next) {
        return; /* the spare one is already used */
    }
    struct policy_difference *one = arena_zalloc(run->arena, sizeof *one);
    if (one == NULL) { /* a difference is reported even without memory */
        one = &run->result->spare;
    }
    *one = (struct policy_difference){
        .step = at.number, .line = at.step->line, .what = what, .got = got, .expected = expected};
    *run->last = one;
    run->last = &one->next;
}

/* ---- reading the answer ------------------------------------------------------------------ */

static struct slice field_of(const struct client_response *answer, const char *name)
{
    const char *value = once_response_header(&answer->shown, name);
    return value == NULL ? SLICE_EMPTY : slice_str(value);
}

static struct slice body_of(const struct client_response *answer)
{
    return slice_of(answer->shown.body.data, answer->shown.body.size);
}

/* If the gateway does not say: whether the request reached the upstream decides between the two. */
static struct slice decision_of(const struct client_response *answer, bool has_reached)
{
    struct slice field = field_of(answer, "Once-Decision");
    return field.len > 0 ? field : has_reached ? SLICE_LIT("passed_through") : SLICE_LIT("refused");
}

/* A refusal's code, in whichever form its profile uses. */
static struct slice code_in(const struct json_value *root)
{
    const struct json_value *code = json_find(root, SLICE_LIT("code"));
    const struct json_value *error = json_find(root, SLICE_LIT("error"));
    const struct json_value *errors = json_find(root, SLICE_LIT("errors"));
    if (code == NULL && errors != NULL && json_is(errors, JSON_ARRAY) && errors->count > 0) {
        const struct json_value *first = &errors->items[0];
        code = json_is(first, JSON_OBJECT) ? json_find(first, SLICE_LIT("code")) : NULL;
    }
    if (code == NULL && error != NULL) { /* last: every form has one beside its own */
        code = json_is(error, JSON_OBJECT) ? json_find(error, SLICE_LIT("code")) : error;
    }
    return code != NULL && json_is(code, JSON_STRING) ? json_text(code) : SLICE_EMPTY;
}

static const char *code_of(struct case_run *run, const struct client_response *answer)
{
    struct arena scratch;
    const struct json_value *root = NULL;
    const char *code = "";
    arena_init(&scratch, &mem_libc, CODE_BYTES_MAX);
    if (json_read(body_of(answer), &scratch, &root, NULL) == OK && json_is(root, JSON_OBJECT)) {
        code = shown(run, code_in(root));
    }
    arena_release(&scratch);
    return code;
}

/* ---- checking expectations --------------------------------------------------------------- */

static void compare_text(struct case_run *run, struct case_place at, const char *what,
    struct slice got, const char *expected)
{
    if (expected != NULL && !slice_is(got, expected)) {
        differ(run, at, what, got.len == 0 ? "none" : shown(run, got), expected);
    }
}

static bool contains(struct slice text, const char *part)
{
    size_t len = strlen(part);
    for (size_t i = 0; len > 0 && i + len <= text.len; i++) {
        if (memcmp(text.data + i, part, len) == 0) {
            return true;
        }
    }
    return len == 0;
}

static void compare_fields(
    struct case_run *run, struct case_place at, const struct client_response *answer)
{
    const struct case_headers *headers = &at.step->expect.headers;
    for (size_t i = 0; i < headers->count; i++) {
        const struct case_header *header = &headers->items[i];
        const char *value = once_response_header(&answer->shown, header->name);
        if ((value == NULL) != (header->value == NULL) ||
            (value != NULL && strcmp(value, header->value) != 0)) {
            char what[SHOWN_BYTES_MAX];
            (void)snprintf(what, sizeof what, "header %s", header->name);
            differ(run, at, shown(run, slice_str(what)),
                value == NULL ? "none" : shown(run, slice_str(value)),
                header->value == NULL ? "none" : header->value);
        }
    }
}

static void compare(struct case_run *run, struct case_place at,
    const struct client_response *answer, bool has_reached)
{
    const struct case_expect *expect = &at.step->expect;
    uint64_t calls = fake_upstream_calls(run->fake);
    if (answer == NULL || answer->shown.status == 0) {
        const char *why = answer == NULL ? "out of memory" : answer->why;
        differ(run, at, "answer", shown(run, slice_str(why)), "one");
        return;
    }
    uint64_t status = (uint64_t)answer->shown.status;
    if (expect->status != 0 && status != expect->status) {
        differ(run, at, "status", number(run, status), number(run, expect->status));
    }
    compare_text(
        run, at, "decision", decision_of(answer, has_reached), case_decision(expect->decision));
    bool is_replayed = answer->shown.is_replayed != 0;
    if (expect->replayed == (is_replayed ? CASE_NOT_REPLAYED : CASE_REPLAYED)) {
        differ(run, at, "replayed", is_replayed ? "true" : "false", is_replayed ? "false" : "true");
    }
    if (expect->effects != CASE_EFFECTS_ANY && calls != expect->effects) {
        differ(run, at, "effects", number(run, calls), number(run, expect->effects));
    }
    if (expect->code != NULL) {
        compare_text(run, at, "code", slice_str(code_of(run, answer)), expect->code);
    }
    if (expect->route != NULL) {
        const struct case_request *request = at.step->request;
        const char *route =
            server_route(run->bench->config, request->method, request->path, run->arena);
        compare_text(run, at, "route", slice_str(route), expect->route);
    }
    if (expect->body_contains != NULL && !contains(body_of(answer), expect->body_contains)) {
        differ(run, at, "body", shown(run, body_of(answer)), expect->body_contains);
    }
    compare_fields(run, at, answer);
}

/* ---- steps ------------------------------------------------------------------------------- */

static void *waiting_main(void *context)
{
    struct case_waiting *waiting = context;
    waiting->answer = policy_send(waiting->client, waiting->address, waiting->step->request);
    atomic_store(&waiting->is_over, true);
    return NULL;
}

/* Compare an answer with the expectation, and free it. */
static void answer_end(struct case_run *run, struct case_place at, struct client_response *answer,
    uint64_t calls_before)
{
    compare(run, at, answer, fake_upstream_calls(run->fake) > calls_before);
    if (answer != NULL) {
        once_response_free(run->bench->client, &answer->shown);
    }
}

static void waiting_end(struct case_run *run, struct case_waiting *waiting)
{
    (void)pthread_join(waiting->thread, NULL);
    struct case_place at = {waiting->step, waiting->number};
    answer_end(run, at, waiting->answer, waiting->calls_before);
    waiting->is_open = false;
}

/* Wait until the request has reached the upstream, or was answered without it. */
static void step_wait(struct case_run *run, struct case_place at)
{
    struct case_waiting *waiting = &run->waiting[run->waiting_count++];
    *waiting = (struct case_waiting){.step = at.step,
        .number = at.number,
        .client = run->bench->client,
        .address = server_address(run->serve.server, "gateway", 0),
        .calls_before = fake_upstream_calls(run->fake)};
    if (pthread_create(&waiting->thread, NULL, waiting_main, waiting) != 0) {
        differ(run, at, "answer", "no thread for the request", "one");
        return;
    }
    waiting->is_open = true;
    for (int i = 0; i < REACH_MS_MAX && !atomic_load(&waiting->is_over) &&
                    fake_upstream_calls(run->fake) == waiting->calls_before;
         i++) {
        clock_sleep_ms(1);
    }
    if (atomic_load(&waiting->is_over)) {
        waiting_end(run, waiting);
    }
}

static void step_once(struct case_run *run, struct case_place at)
{
    uint64_t before = fake_upstream_calls(run->fake);
    const char *address = server_address(run->serve.server, "gateway", 0);
    answer_end(run, at, policy_send(run->bench->client, address, at.step->request), before);
}

static enum status run_steps(struct case_run *run, struct err *err)
{
    const struct config_case *of = run->result->of;
    enum status status = OK;
    for (size_t i = 0; status == OK && i < of->step_count; i++) {
        struct case_place at = {&of->steps[i], i + 1};
        status = fake_upstream_script(run->fake, &at.step->upstream, err);
        if (status == OK && at.step->upstream.waits) {
            step_wait(run, at);
        }
        /* One difference per step is enough: a hundred equal ones say no more. */
        struct policy_difference **before = run->last;
        for (uint64_t k = 0;
             status == OK && !at.step->upstream.waits && k < at.step->repeat && run->last == before;
             k++) {
            step_once(run, at);
        }
    }
    fake_upstream_release(run->fake);
    for (size_t i = 0; i < run->waiting_count; i++) {
        if (run->waiting[i].is_open) {
            waiting_end(run, &run->waiting[i]);
        }
    }
    return status;
}

int policy_run(struct policy_bench *bench, const struct config_case *of,
    struct policy_result *ret_result, struct arena *arena)
{
    struct err err = {.status = OK};
    struct case_run *run = mem_zalloc(&mem_libc, 1, sizeof *run);
    *ret_result = (struct policy_result){.of = of};
    if (run == NULL || fake_upstream_new(0, &run->fake, &err) != OK) {
        mem_free(&mem_libc, run);
        return err.status == OK ? CLI_UNAVAILABLE : cli_fail_err(&err);
    }
    run->bench = bench;
    run->result = ret_result;
    run->last = &ret_result->first;
    run->arena = arena;
    bench_set(bench, of, fake_upstream_url(run->fake));
    run->serve = (struct serve){.cli = bench->cli, .config = bench->config};
    int code = serve_open(&run->serve);
    int closed = CLI_OK;
    if (code == CLI_OK) {
        code = run_steps(run, &err) != OK ? cli_fail_err(&err) : CLI_OK;
        closed = serve_close(&run->serve);
    }
    fake_upstream_free(run->fake);
    mem_free(&mem_libc, run);
    return code == CLI_OK ? closed : code;
}
