/*
 * echo_server: a server with handlers that show what the HTTP layer does, for test_serve.py.
 *
 *   echo_server [option value]...
 *     listen ADDRESS   loops N   cert FILE   key FILE (of the listens that follow)   mode OCTAL
 *     connections N   in_flight MIB   head_ms N   body_ms N   idle_ms N   write_ms N
 *     follows 1 (the load: at first one loop serves)   head_bytes N   body_bytes N
 *     hook 1 (with it the begin hook, and what echo_stream.c says)
 *
 * It prints "listening ADDRESS" for each, then "ready". A line on its standard input is a command:
 * "reload", "stats", "serve N" (with follows: so many loops serve), "busy PERCENT" (of a core, as
 * it is measured for each loop from now on), "drain MS", "memory N FAILS" (the allocations after
 * the next N fail, as many as FAILS; it prints "memory"); the end of input ends it. What it
 * answers:
 *
 *   /            200 "ok", at once
 *   /echo        200 with the request's body
 *   /about       200 with method, path, query, peer, listener and the length of the body
 *   /loop        200 with the number of the loop
 *   /later       200 "later", from another thread
 *   /later?N     the same, after N milliseconds
 *   /big?N       200 with N bytes, from the arena
 *   /copied?N    200 with N bytes, from elsewhere
 *   /fields      200 with a field that cannot be sent
 *   /close       200 and the connection is closed
 *   /nothing     204
 *   others       as echo_stream.c says, else 404, a problem document
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/text.h"
#include "echo.h"
#include "http/problem.h"
#include "http/serve_impl.h"

static void answer(struct http_exchange *exchange, unsigned status, struct slice body, bool stable)
{
    http_answer_begin(exchange, status);
    http_answer_end(exchange, SLICE_LIT("text/plain"), body, stable);
}

static struct waiting *take_due(struct echo *echo, uint64_t now)
{
    struct waiting *due = NULL;
    for (struct waiting **at = &echo->waiting; *at != NULL;) {
        struct waiting *each = *at;
        if (each->due_nanos > now && !echo->is_over) {
            at = &each->next;
            continue;
        }
        *at = each->next;
        each->next = due;
        due = each;
    }
    return due;
}

/* Wakes what is due; a millisecond is exact enough. */
static void *waker(void *arg)
{
    struct echo *echo = arg;
    bool is_over = false;
    while (!is_over) {
        pthread_mutex_lock(&echo->lock);
        while (echo->waiting == NULL && !echo->is_over) {
            pthread_cond_wait(&echo->changed, &echo->lock);
        }
        struct waiting *due = take_due(echo, clock_nanos());
        bool is_early = due == NULL;
        is_over = echo->is_over;
        while (due != NULL) { /* under the lock: none of them may be forgotten meanwhile */
            struct waiting *next = due->next; /* it is in the arena: gone once it is awake */
            http_wake(due->exchange);
            due = next;
        }
        pthread_mutex_unlock(&echo->lock);
        if (is_early && !is_over) {
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        }
    }
    return NULL;
}

static void on_later(void *context, struct http_exchange *exchange)
{
    (void)context;
    /* The request is still there, however long it took. */
    ASSERT(exchange->head->method != HTTP_METHOD_NONE);
    ASSERT(exchange->request_id.len > 0);
    answer(exchange, 200, SLICE_LIT("later"), true);
}

uint64_t echo_number(const struct http_exchange *exchange)
{
    uint64_t number = 0;
    (void)text_u64(http_text(exchange->head, exchange->head->query), &number);
    return number;
}

void echo_later(struct echo *echo, struct http_exchange *exchange, uint64_t ms)
{
    struct waiting *waiting = arena_zalloc(exchange->arena, sizeof *waiting);
    ASSERT(waiting != NULL);
    waiting->exchange = exchange;
    waiting->due_nanos = clock_nanos() + ms * 1000000;
    pthread_mutex_lock(&echo->lock);
    waiting->next = echo->waiting;
    echo->waiting = waiting;
    pthread_cond_signal(&echo->changed);
    pthread_mutex_unlock(&echo->lock);
}

void echo_forget(struct echo *echo, struct http_exchange *exchange)
{
    pthread_mutex_lock(&echo->lock);
    for (struct waiting **at = &echo->waiting; *at != NULL;) {
        if ((*at)->exchange == exchange) {
            *at = (*at)->next;
        } else {
            at = &(*at)->next;
        }
    }
    pthread_mutex_unlock(&echo->lock);
}

static void handle_bytes(struct http_exchange *exchange, bool is_stable)
{
    size_t bytes = (size_t)echo_number(exchange);
    char *body =
        is_stable ? arena_alloc(exchange->arena, bytes + 1) : mem_alloc(&mem_libc, bytes + 1);
    ASSERT(body != NULL);
    for (size_t i = 0; i < bytes; i++) {
        body[i] = (char)('a' + i % 23);
    }
    answer(exchange, 200, slice_of(body, bytes), is_stable);
    if (!is_stable) {
        mem_free(&mem_libc, body);
    }
}

static void handle_about(struct http_exchange *exchange)
{
    char text[1024];
    int len = snprintf(text, sizeof text, "%.*s %.*s %.*s %.*s %u %zu",
        SLICE_ARGS(http_text(exchange->head, exchange->head->method_text)),
        SLICE_ARGS(http_path(exchange->head)),
        SLICE_ARGS(http_text(exchange->head, exchange->head->query)), SLICE_ARGS(exchange->peer),
        exchange->listener, exchange->body.len);
    answer(exchange, 200, slice_of(text, (size_t)len < sizeof text ? (size_t)len : sizeof text),
        false);
}

static void handle_loop(struct http_exchange *exchange)
{
    char text[16];
    int len = snprintf(text, sizeof text, "%u", exchange->loop);
    answer(exchange, 200, slice_of(text, (size_t)len), false);
}

static void handle_fields(struct http_exchange *exchange)
{
    http_answer_begin(exchange, 200);
    http_answer_field(exchange, SLICE_LIT("Split"), SLICE_LIT("a\r\nSet-Cookie: b"));
    http_answer_end(exchange, SLICE_LIT("text/plain"), SLICE_LIT("never"), true);
}

static void handle(void *context, struct http_exchange *exchange)
{
    struct slice path = http_path(exchange->head);
    if (slice_is(path, "/")) {
        answer(exchange, 200, SLICE_LIT("ok"), true);
    } else if (slice_is(path, "/echo")) {
        answer(exchange, 200, exchange->body, false);
    } else if (slice_is(path, "/about")) {
        handle_about(exchange);
    } else if (slice_is(path, "/loop")) {
        handle_loop(exchange);
    } else if (slice_is(path, "/later")) {
        exchange->resume = on_later;
        echo_later(context, exchange, echo_number(exchange));
    } else if (slice_is(path, "/big") || slice_is(path, "/copied")) {
        handle_bytes(exchange, slice_is(path, "/big"));
    } else if (slice_is(path, "/fields")) {
        handle_fields(exchange);
    } else if (slice_is(path, "/close")) {
        http_answer_close(exchange);
        answer(exchange, 200, SLICE_LIT("bye"), true);
    } else if (slice_is(path, "/nothing")) {
        http_answer_begin(exchange, 204);
        http_answer_end(exchange, SLICE_EMPTY, SLICE_EMPTY, true);
    } else if (!stream_handle(context, exchange)) {
        problem_answer(exchange, &(struct problem){.status = 404,
                                     .code = "not_found",
                                     .detail = SLICE_LIT("no such \"path\""),
                                     .retry_after_ms = 1500,
                                     .operation_id = SLICE_LIT("op_1"),
                                     .extra = SLICE_LIT("\"more\":[1]")});
    }
}

static void turn(void *context, unsigned loop)
{
    struct echo *echo = context;
    (void)loop;
    atomic_fetch_add(&echo->turns, 1);
}

static void end(void *context, unsigned loop)
{
    struct echo *echo = context;
    (void)loop;
    atomic_fetch_add(&echo->ends, 1);
}

/* ------------------------------------------------------------------------------- the outside -- */

struct settings {
    struct http_server_options options;
    struct {
        const char *address;
        struct http_tls_options tls;
        unsigned mode;
    } listens[8];
    size_t listen_count;
    struct http_tls_options tls; /* of the listens that follow */
    unsigned mode;
};

static void fail(const char *what, const char *why)
{
    fprintf(stderr, "echo_server: %s: %s\n", what, why);
    exit(1);
}

static void set_number(struct settings *settings, const char *name, uint64_t value)
{
    struct http_server_limits *limits = &settings->options.limits;
    struct {
        const char *name;
        int64_t *ms;
        uint32_t *count;
    } known[] = {{"loops", NULL, &settings->options.loops}, {"head_ms", &limits->head_ms_max, NULL},
        {"body_ms", &limits->body_ms_max, NULL}, {"idle_ms", &limits->idle_ms_max, NULL},
        {"write_ms", &limits->write_ms_max, NULL}, {"connections", NULL, &limits->connections_max},
        {"in_flight", NULL, &limits->in_flight_bytes_max_mib},
        {"head_bytes", NULL, &limits->message.head_bytes_max}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(name, known[i].name) == 0) {
            if (known[i].ms != NULL) {
                *known[i].ms = (int64_t)value;
            } else {
                *known[i].count = (uint32_t)value;
            }
            return;
        }
    }
    if (strcmp(name, "follows") == 0) {
        settings->options.follows_load = value != 0;
    } else if (strcmp(name, "hook") == 0) {
        settings->options.begin = value == 0 ? NULL : stream_begin;
    } else if (strcmp(name, "body_bytes") == 0) {
        limits->message.body_bytes_max = value;
    } else {
        fail("no such option", name);
    }
}

static void set_option(struct settings *settings, const char *name, const char *value)
{
    uint64_t number = 0;
    if (strcmp(name, "listen") == 0) {
        settings->listens[settings->listen_count].address = value;
        settings->listens[settings->listen_count].tls = settings->tls;
        settings->listens[settings->listen_count++].mode = settings->mode;
    } else if (strcmp(name, "cert") == 0) {
        settings->tls.cert_file = value;
    } else if (strcmp(name, "key") == 0) {
        settings->tls.key_file = value;
    } else if (strcmp(name, "mode") == 0) {
        settings->mode = (unsigned)strtoul(value, NULL, 8);
    } else if (text_u64(slice_str(value), &number)) {
        set_number(settings, name, number);
    } else {
        fail("no number", value);
    }
}

static void print_stats(struct http_server *server, struct echo *echo)
{
    struct http_server_stats stats;
    http_server_stats(server, &stats);
    printf("stats accepted=%" PRIu64 " open=%" PRIu64 " in_flight=%" PRIu64 " requests=%" PRIu64
           " in=%" PRIu64 " out=%" PRIu64 " turns=%" PRIu64 " serving=%" PRIu64 " moved=%" PRIu64,
        stats.accepted, stats.open, stats.in_flight, stats.requests, stats.bytes_in,
        stats.bytes_out, (uint64_t)atomic_load(&echo->turns), stats.loops_serving, stats.moved);
    printf(" jobs=%" PRIu64 " cuts=%" PRIu64 " gones=%" PRIu64 " wholes=%" PRIu64,
        (uint64_t)atomic_load(&echo->jobs), (uint64_t)atomic_load(&echo->cuts),
        (uint64_t)atomic_load(&echo->gones), (uint64_t)atomic_load(&echo->wholes));
    for (size_t i = 0; i < 6; i++) {
        printf(" refused%zu=%" PRIu64, i, stats.refused[i]);
    }
    printf("\n");
}

static void set_memory(struct echo *echo, const char *line)
{
    char *end;
    long after = strtol(line, &end, 10);
    faulty_arm(&echo->memory, after + 1, strtol(end, NULL, 10));
    printf("memory\n");
}

/* In place of a load that other programs would have to leave a core for. */
static struct {
    atomic_bool is_set;
    atomic_uint percent;
} pretended;

uint64_t __real_net_loop_busy(const struct net_loop *loop);
uint64_t __wrap_net_loop_busy(const struct net_loop *loop);

uint64_t __wrap_net_loop_busy(const struct net_loop *loop)
{
    return atomic_load(&pretended.is_set) ? clock_nanos() / 100 * atomic_load(&pretended.percent)
                                          : __real_net_loop_busy(loop);
}

struct wish {
    struct net_task task;
    struct http_server *server;
    unsigned serving;
};

static void on_wish(struct net_task *task)
{
    struct wish *wish = (struct wish *)(void *)task;
    spread_set(wish->server, wish->serving);
    mem_free(&mem_libc, wish);
}

/* As the server itself does when the load changes. */
static void serve_on(struct http_server *server, uint64_t loops)
{
    struct wish *wish = mem_zalloc(&mem_libc, 1, sizeof *wish);
    ASSERT(wish != NULL);
    wish->task.run = on_wish;
    wish->server = server;
    wish->serving = (unsigned)loops;
    net_loop_post(http_server_loop(server, 0), &wish->task);
}

/* True once it was drained. */
static bool obey(struct http_server *server, struct echo *echo, const char *line)
{
    struct err err = {0};
    uint64_t ms = 0;
    if (strcmp(line, "stats\n") == 0) {
        print_stats(server, echo);
    } else if (strcmp(line, "reload\n") == 0) {
        bool is_loaded = http_server_tls_load(server, &err) == OK;
        http_server_tls_switch(server, is_loaded);
        printf("%s %s\n", is_loaded ? "reloaded" : "kept", err.text);
    } else if (strncmp(line, "serve ", 6) == 0) {
        (void)text_u64(slice_of(line + 6, strlen(line) - 7), &ms);
        serve_on(server, ms);
    } else if (strncmp(line, "busy ", 5) == 0) {
        (void)text_u64(slice_of(line + 5, strlen(line) - 6), &ms);
        atomic_store(&pretended.percent, (unsigned)ms);
        atomic_store(&pretended.is_set, true);
    } else if (strncmp(line, "memory ", 7) == 0) {
        set_memory(echo, line + 7);
    } else if (strncmp(line, "drain ", 6) == 0) {
        (void)text_u64(slice_of(line + 6, strlen(line) - 7), &ms);
        printf("drained %d\n", http_server_drain(server, (int64_t)ms));
        fflush(stdout);
        return true;
    }
    fflush(stdout);
    return false;
}

static void listen_all(struct http_server *server, const struct settings *settings)
{
    struct err err = {0};
    for (size_t i = 0; i < settings->listen_count; i++) {
        unsigned listener = 0;
        const char *text = NULL;
        if (http_server_listen(server, settings->listens[i].address, settings->listens[i].mode,
                &settings->listens[i].tls, &listener, &text, &err) != OK) {
            http_server_free(server);
            fail("cannot serve", err.text);
        }
        printf("listening %s\n", text);
    }
}

int main(int argc, char **argv)
{
    struct echo echo = {.waiting = NULL};
    struct settings settings = {.mode = 0600};
    struct err err = {0};
    struct http_server *server = NULL;
    char line[64];
    struct mem mem = {.resize = faulty_resize, .context = &echo.memory};
    settings.options = (struct http_server_options){.handle = handle,
        .mem = &mem,
        .turn = turn,
        .end = end,
        .context = &echo,
        .limits.message = HTTP_LIMITS_DEFAULT};
    for (int i = 1; i + 1 < argc; i += 2) {
        set_option(&settings, argv[i], argv[i + 1]);
    }
    pthread_mutex_init(&echo.lock, NULL);
    pthread_cond_init(&echo.changed, NULL);
    if (http_server_new(&settings.options, &server, &err) != OK) {
        fail("cannot make a server", err.text);
    }
    listen_all(server, &settings);
    int rc = pthread_create(&echo.thread, NULL, waker, &echo);
    ASSERT(rc == 0);
    if (http_server_start(server, &err) != OK) {
        fail("cannot start", err.text);
    }
    printf("ready\n");
    fflush(stdout);
    bool is_drained = false;
    while (fgets(line, sizeof line, stdin) != NULL) {
        is_drained = obey(server, &echo, line) || is_drained;
    }
    if (!is_drained) {
        (void)http_server_drain(server, 0);
    }
    /* As a real one does: nobody may wake anything once the server is gone. */
    pthread_mutex_lock(&echo.lock);
    echo.is_over = true;
    pthread_cond_signal(&echo.changed);
    pthread_mutex_unlock(&echo.lock);
    pthread_join(echo.thread, NULL);
    http_server_free(server);
    if (atomic_load(&echo.ends) == 0) {
        fail("cannot end", "no loop said that it ends");
    }
    return 0;
}
