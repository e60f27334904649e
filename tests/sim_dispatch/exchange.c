/* Requests to a process and their answers, instead of src/http's connections. */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/macros.h"
#include "canon/json.h"
#include "sim_dispatch.h"

static struct sim_exchange *of(struct http_exchange *http)
{
    return (struct sim_exchange *)(void *)http;
}

struct slice exchange_member(const struct json_value *object, const char *name)
{
    const struct json_value *value =
        json_is(object, JSON_OBJECT) ? json_find(object, slice_str(name)) : NULL;
    return value != NULL && json_is(value, JSON_STRING) ? json_text(value) : SLICE_EMPTY;
}

void http_answer_begin(struct http_exchange *http, unsigned status)
{
    ASSERT(!of(http)->is_begun);
    of(http)->is_begun = true;
    http->status = status;
}

void http_answer_field(struct http_exchange *http, struct slice name, struct slice value)
{
    (void)http;
    (void)name;
    (void)value;
}

void http_answer_close(struct http_exchange *http)
{
    (void)http;
}

void http_answer_end(
    struct http_exchange *http, struct slice content_type, struct slice body, bool is_stable)
{
    struct sim_exchange *exchange = of(http);
    const struct json_value *root = NULL;
    struct arena arena;
    struct err err;
    (void)content_type;
    (void)is_stable;
    arena_init(&arena, &mem_libc, 1 << 22);
    if (body.len > 0 &&
        (json_read(body, &arena, &root, &err) != OK || !json_is(root, JSON_OBJECT))) {
        sim_violate("an answer is not JSON: %.*s", (int)body.len, body.data);
    } else {
        exchange->answered(exchange, body, root);
    }
    arena_release(&arena);
    arena_release(&exchange->arena);
    mem_free(&exchange->process->memory.mem, exchange); /* so that a later use is seen */
}

void http_server_stats(struct http_server *server, struct http_server_stats *ret_stats)
{
    (void)server;
    *ret_stats = (struct http_server_stats){.accepted = 0};
}

void http_turn(struct http_exchange *http)
{
    (void)http; /* there is always one */
}

static void on_woken(struct net_task *task)
{
    struct sim_exchange *exchange = CONTAINER_OF(task, struct sim_exchange, task);
    exchange->http.resume(NULL, &exchange->http);
}

void http_wake(struct http_exchange *http)
{
    of(http)->task.run = on_woken;
    net_loop_post(of(http)->process->loop, &of(http)->task);
}

struct sim_exchange *exchange_new(struct sim_process *process, int number,
    void (*answered)(
        struct sim_exchange *exchange, struct slice body, const struct json_value *root))
{
    struct sim_exchange *exchange = mem_zalloc(&process->memory.mem, 1, sizeof *exchange);
    exchange->process = process;
    exchange->number = number;
    exchange->answered = answered;
    arena_init(&exchange->arena, &process->memory.mem, 16 << 20);
    return exchange;
}

void exchange_ask(struct sim_exchange *exchange, const char *method, const char *path)
{
    struct http_limits limits = HTTP_LIMITS_DEFAULT;
    struct http_refusal refusal;
    size_t bytes = strlen(exchange->body);
    int all = snprintf(exchange->text, sizeof exchange->text,
        "%s %s HTTP/1.1\r\nHost: once.test\r\nContent-Type: application/json\r\n"
        "Content-Length: %zu\r\n\r\n",
        method, path, bytes);
    http_head_init(&exchange->head);
    ASSERT(http_request_head(slice_of(exchange->text, (size_t)all), &limits, &exchange->head,
               &refusal) == HTTP_DONE);
    exchange->http = (struct http_exchange){.head = &exchange->head,
        .body = slice_of(exchange->body, bytes),
        .request_id = SLICE_LIT("r-1"),
        .peer = SLICE_LIT("127.0.0.1:1"),
        .arena = &exchange->arena,
        .body_bytes_max = 1 << 20,
        .started_nanos = clock_nanos()};
    sim_say("%s %s %s", method, path, exchange->body);
    api_handle(exchange->process->api, &exchange->http);
}
