/*
 * upstream_driver: an upstream that does what it is told on its standard input, for
 * test_upstream*.py; one word a line says what happened.
 *
 *   upstream_driver [option value]...
 *     url URL   ca FILE   connections N   waiting N   idle_ms N   resolve_ms N
 *     names ADDRESS|none   (as the command)
 *     fail_after N   (the allocation behind the Nth fails)   fails N   (so many; all, unless said)
 *
 * Commands, each done on the loop before the next is read:
 *
 *   start ID [name=value]...    method path body (N bytes) streamed chunked close max
 *                               connect first total (ms), pause_at cancel_at restart_at (an event,
 *                               or cancel_at=start),
 *                               sleep (ms, before the restart)
 *   put ID N    put_end ID    pause ID    go_on ID    cancel ID    stats    detach    lookups
 *   names ADDRESS...            what every name has from now on; none: lookups fail
 *
 * Answers:  "ID head STATUS", "ID end BYTES CRC", "ID failed POINT CAUSE: text", "ID drained",
 *           "ID put more|wait", "ID cancelled unsent|sent", "stats {…}".
 */
#include <dlfcn.h>
#include <inttypes.h>
#include <netdb.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/crc32c.h"
#include "base/text.h"
#include "faulty_mem.h"
#include "http/upstream.h"

enum { CALLS_MAX = 4096, WORDS_MAX = 32, PATH_BYTES_MAX = 256, NAMES_MAX = 8 };

struct asked {
    struct upstream_call call; /* first */
    bool is_live;
    unsigned number;
    uint64_t bytes;
    uint32_t crc;
    char *body;
    char pause_at[16];
    char cancel_at[16];
    char restart_at[16];
    unsigned sleep_us;
    char head[PATH_BYTES_MAX + 256];
};

static struct {
    struct net_loop loop;
    struct upstream *upstream;
    struct asked asked[CALLS_MAX];
    struct net_task command;
    char line[4096];
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_done;
    struct faulty memory;
    struct { /* the stand-in for the name server */
        bool is_on;
        unsigned count;
        unsigned lookups;
        struct sockaddr_in found[NAMES_MAX];
        struct addrinfo infos[NAMES_MAX];
        struct net_task answer;
        uv_getaddrinfo_t *asked;
        uv_getaddrinfo_cb told;
    } names;
} driver;

static const struct mem failing = {.resize = faulty_resize, .context = &driver.memory};

/* --------------------------------------------------------------------------- the name server -- */

/* These take the place of libuv's. */
UV_EXTERN int uv_getaddrinfo(uv_loop_t *loop, uv_getaddrinfo_t *request, uv_getaddrinfo_cb told,
    const char *node, const char *service, const struct addrinfo *hints);
UV_EXTERN void uv_freeaddrinfo(struct addrinfo *found);

static void answer_lookup(struct net_task *task)
{
    (void)task;
    bool has_any = driver.names.count > 0;
    driver.names.told(
        driver.names.asked, has_any ? 0 : UV_EAI_NONAME, has_any ? driver.names.infos : NULL);
}

int uv_getaddrinfo(uv_loop_t *loop, uv_getaddrinfo_t *request, uv_getaddrinfo_cb told,
    const char *node, const char *service, const struct addrinfo *hints)
{
    uint64_t port = 0;
    ASSERT(text_u64(slice_str(service), &port));
    driver.names.lookups++;
    if (!driver.names.is_on) {
        union { /* ISO C has no conversion between the two */
            void *object;
            int (*call)(uv_loop_t *, uv_getaddrinfo_t *, uv_getaddrinfo_cb, const char *,
                const char *, const struct addrinfo *);
        } real = {.object = dlsym(RTLD_NEXT, "uv_getaddrinfo")};
        return real.call(loop, request, told, node, service, hints);
    }
    for (unsigned i = 0; i < driver.names.count; i++) {
        driver.names.found[i].sin_port = htons((uint16_t)port);
        driver.names.infos[i] = (struct addrinfo){.ai_family = AF_INET,
            .ai_addr = (struct sockaddr *)(void *)&driver.names.found[i],
            .ai_addrlen = sizeof driver.names.found[i],
            .ai_next = i + 1 < driver.names.count ? &driver.names.infos[i + 1] : NULL};
    }
    driver.names.asked = request;
    driver.names.told = told;
    driver.names.answer.run = answer_lookup;
    net_loop_post(&driver.loop, &driver.names.answer);
    return 0;
}

void uv_freeaddrinfo(struct addrinfo *found)
{
    if (found != NULL && found != driver.names.infos) {
        freeaddrinfo(found);
    }
}

static void set_names(char **words)
{
    driver.names.is_on = true;
    driver.names.count = 0;
    for (; *words != NULL && driver.names.count < NAMES_MAX; words++) {
        ASSERT(uv_ip4_addr(*words, 0, &driver.names.found[driver.names.count++]) == 0);
    }
}

/* ------------------------------------------------------------------------------------- calls -- */

static struct asked *asked_of(struct upstream_call *call)
{
    return (struct asked *)(void *)call;
}

static void cancel(struct asked *asked)
{
    bool is_unsent = upstream_cancel(&asked->call);
    asked->is_live = false;
    printf("%u cancelled %s\n", asked->number, is_unsent ? "unsent" : "sent");
}

static void restart(struct asked *asked)
{
    asked->restart_at[0] = '\0';
    (void)usleep(asked->sleep_us); /* the loop stands still, the kernel does not */
    asked->bytes = 0;
    asked->crc = 0;
    asked->is_live = true;
    upstream_start(driver.upstream, 0, &asked->call);
}

/* What was asked to happen inside of an event. */
static void act(struct asked *asked, const char *event)
{
    if (strcmp(asked->pause_at, event) == 0) {
        upstream_pause(&asked->call);
    }
    if (strcmp(asked->cancel_at, event) == 0) {
        cancel(asked);
    }
    if (strcmp(asked->restart_at, event) == 0) {
        if (asked->is_live) {
            cancel(asked);
        }
        restart(asked);
    }
}

static void on_head(struct upstream_call *call, const struct http_head *head)
{
    ASSERT(asked_of(call)->is_live);
    printf("%u head %u\n", asked_of(call)->number, head->status);
    act(asked_of(call), "head");
}

static void on_piece(struct upstream_call *call, struct slice piece)
{
    struct asked *asked = asked_of(call);
    ASSERT(asked->is_live);
    ASSERT(piece.len > 0);
    asked->bytes += piece.len;
    asked->crc = crc32c(asked->crc, piece.data, piece.len);
    act(asked, "piece");
}

static void on_end(struct upstream_call *call)
{
    struct asked *asked = asked_of(call);
    ASSERT(asked->is_live); /* UP1 */
    asked->is_live = false;
    printf("%u end %" PRIu64 " %08x\n", asked->number, asked->bytes, asked->crc);
    act(asked, "end");
}

static void on_failed(struct upstream_call *call, enum upstream_point point,
    enum upstream_cause cause, const struct err *err)
{
    static const char *const points[] = {"NOT_SENT", "SENT", "HEAD"};
    static const char *const causes[] = {
        "UNREACHABLE", "TIMEOUT", "BROKEN", "MALFORMED", "TOO_LARGE", "MEMORY", "BUSY"};
    struct asked *asked = asked_of(call);
    ASSERT(asked->is_live); /* UP1 */
    asked->is_live = false;
    printf("%u failed %s %s: %s\n", asked->number, points[point], causes[cause], err->text);
    act(asked, "failed");
}

static void on_drained(struct upstream_call *call)
{
    ASSERT(asked_of(call)->is_live);
    printf("%u drained\n", asked_of(call)->number);
    act(asked_of(call), "drained");
}

static const struct upstream_events events = {
    .head = on_head, .piece = on_piece, .end = on_end, .failed = on_failed, .drained = on_drained};

static const char *value_of(char **words, const char *name, const char *otherwise)
{
    size_t len = strlen(name);
    for (; *words != NULL; words++) {
        if (strncmp(*words, name, len) == 0 && (*words)[len] == '=') {
            return *words + len + 1;
        }
    }
    return otherwise;
}

static uint64_t number_of(char **words, const char *name, uint64_t otherwise)
{
    uint64_t number = otherwise;
    const char *text = value_of(words, name, NULL);
    ASSERT(text == NULL || text_u64(slice_str(text), &number));
    return number;
}

/* Bytes that are not alike, so that a lost or doubled piece changes the sum. */
static char *make_body(uint64_t bytes)
{
    char *body = malloc(bytes + 1);
    ASSERT(body != NULL);
    for (uint64_t i = 0; i < bytes; i++) {
        body[i] = (char)('a' + (i * 7 + i / 251) % 26);
    }
    return body;
}

static void write_head(struct asked *asked, char **words, const char *method, uint64_t bytes)
{
    char framing[64] = "";
    if (asked->call.is_chunked) {
        (void)snprintf(framing, sizeof framing, "Transfer-Encoding: chunked\r\n");
    } else if (bytes > 0 || strcmp(method, "POST") == 0) {
        (void)snprintf(framing, sizeof framing, "Content-Length: %" PRIu64 "\r\n", bytes);
    }
    struct slice authority = upstream_authority(driver.upstream);
    int len = snprintf(asked->head, sizeof asked->head, "%s %s HTTP/1.1\r\nHost: %.*s\r\n%s%s\r\n",
        method, value_of(words, "path", "/"), SLICE_ARGS(authority), framing,
        number_of(words, "close", 0) > 0 ? "Connection: close\r\n" : "");
    ASSERT(len > 0);
    asked->call.head = slice_of(asked->head, (size_t)len);
}

static void start(struct asked *asked, char **words)
{
    const char *method = value_of(words, "method", "GET");
    uint64_t bytes = number_of(words, "body", 0);
    free(asked->body); /* of an earlier call with this number, which has ended */
    asked->body = make_body(bytes);
    asked->bytes = 0;
    asked->crc = 0;
    asked->is_live = true;
    (void)snprintf(asked->pause_at, 16, "%s", value_of(words, "pause_at", ""));
    (void)snprintf(asked->cancel_at, 16, "%s", value_of(words, "cancel_at", ""));
    (void)snprintf(asked->restart_at, 16, "%s", value_of(words, "restart_at", ""));
    asked->sleep_us = (unsigned)number_of(words, "sleep", 0) * 1000;
    asked->call = (struct upstream_call){.events = &events,
        .is_streamed = number_of(words, "streamed", 0) > 0,
        .is_chunked = number_of(words, "chunked", 0) > 0,
        .method = strcmp(method, "HEAD") == 0   ? HTTP_METHOD_HEAD
                  : strcmp(method, "POST") == 0 ? HTTP_METHOD_POST
                                                : HTTP_METHOD_GET,
        .body_bytes_max = number_of(words, "max", 0),
        .timeouts = {.connect_ms = (int64_t)number_of(words, "connect", 5000),
            .first_byte_ms = (int64_t)number_of(words, "first", 5000),
            .total_ms = (int64_t)number_of(words, "total", 15000)}};
    write_head(asked, words, method, bytes);
    asked->call.body = asked->call.is_streamed ? SLICE_EMPTY : slice_of(asked->body, bytes);
    upstream_start(driver.upstream, 0, &asked->call);
    if (asked->is_live) {
        act(asked, "start"); /* before the loop could see that it is connected */
    }
}

static void put(struct asked *asked, const char *count)
{
    uint64_t bytes = 0;
    ASSERT(text_u64(slice_str(count), &bytes));
    if (!asked->is_live) {
        printf("%u put gone\n", asked->number);
        return;
    }
    char *body = make_body(bytes);
    bool is_more = upstream_put(&asked->call, slice_of(body, bytes));
    free(body); /* it was sent or copied */
    printf("%u put %s\n", asked->number, is_more ? "more" : "wait");
}

static void show_stats(void)
{
    struct upstream_stats stats;
    upstream_stats(driver.upstream, &stats);
    printf("stats {\"calls\": %" PRIu64 ", \"failed\": [%" PRIu64 ", %" PRIu64 ", %" PRIu64
           "], \"connects\": %" PRIu64 ", \"reused\": %" PRIu64 ", \"open\": %" PRIu64
           ", \"idle\": %" PRIu64 ", \"waiting\": %" PRIu64 ", \"down\": %" PRIu64 "}\n",
        stats.calls, stats.failed[0], stats.failed[1], stats.failed[2], stats.connects,
        stats.reused, stats.open, stats.idle, stats.waiting, stats.down);
}

static void about_call(struct asked *asked, char **words)
{
    const char *what = words[0];
    if (strcmp(what, "start") == 0) {
        start(asked, words + 2);
    } else if (strcmp(what, "put") == 0) {
        put(asked, words[2]);
    } else if (!asked->is_live) {
        printf("%u gone\n", asked->number);
    } else if (strcmp(what, "put_end") == 0) {
        upstream_put_end(&asked->call);
    } else if (strcmp(what, "pause") == 0) {
        upstream_pause(&asked->call);
    } else if (strcmp(what, "go_on") == 0) {
        asked->pause_at[0] = '\0';
        upstream_go_on(&asked->call);
    } else if (strcmp(what, "cancel") == 0) {
        cancel(asked);
    } else {
        ASSERT(!"a command that is not known");
    }
}

static void run_line(char *line)
{
    char *words[WORDS_MAX + 1] = {NULL};
    char *rest = NULL;
    unsigned count = 0;
    for (char *word = strtok_r(line, " \n", &rest); word != NULL && count < WORDS_MAX;
         word = strtok_r(NULL, " \n", &rest)) {
        words[count++] = word;
    }
    uint64_t number = 0;
    if (count > 1 && strcmp(words[0], "names") != 0 && text_u64(slice_str(words[1]), &number)) {
        ASSERT(number < CALLS_MAX);
        driver.asked[number].number = (unsigned)number;
        about_call(&driver.asked[number], words);
    } else if (strcmp(words[0], "stats") == 0) {
        show_stats();
    } else if (strcmp(words[0], "names") == 0) {
        set_names(words + 1);
    } else if (strcmp(words[0], "lookups") == 0) {
        printf("lookups %u\n", driver.names.lookups);
    } else if (strcmp(words[0], "detach") == 0) {
        upstream_detach(driver.upstream, 0);
    } else if (strcmp(words[0], "end") == 0) {
        upstream_detach(driver.upstream, 0);
        net_loop_close(&driver.loop);
    }
}

static void on_command(struct net_task *task)
{
    (void)task;
    run_line(driver.line);
    (void)fflush(stdout);
    pthread_mutex_lock(&driver.lock);
    driver.is_done = true;
    pthread_cond_signal(&driver.changed);
    pthread_mutex_unlock(&driver.lock);
}

static void say(void)
{
    driver.is_done = false;
    driver.command.run = on_command;
    net_loop_post(&driver.loop, &driver.command);
    pthread_mutex_lock(&driver.lock);
    while (!driver.is_done) {
        pthread_cond_wait(&driver.changed, &driver.lock);
    }
    pthread_mutex_unlock(&driver.lock);
}

static void on_turn(void *context)
{
    (void)context;
    (void)fflush(stdout); /* events of this turn */
}

static void take_option(
    struct upstream_options *options, const char **urls, const char *name, const char *value)
{
    uint64_t number = 0;
    bool is_number = text_u64(slice_str(value), &number);
    if (strcmp(name, "names") == 0) {
        char *words[] = {NULL, NULL};
        char word[64];
        (void)snprintf(word, sizeof word, "%s", value);
        words[0] = strcmp(value, "none") == 0 ? NULL : word;
        set_names(words);
    } else if (strcmp(name, "url") == 0) {
        urls[options->url_count++] = value;
    } else if (strcmp(name, "ca") == 0) {
        options->ca_file = value;
    } else if (strcmp(name, "connections") == 0) {
        options->connections_max = (uint32_t)number;
    } else if (strcmp(name, "waiting") == 0) {
        options->waiting_max = (uint32_t)number;
    } else if (strcmp(name, "idle_ms") == 0) {
        options->idle_ms_max = (int64_t)number;
    } else if (strcmp(name, "resolve_ms") == 0) {
        options->resolve_ms = (int64_t)number;
    } else if (strcmp(name, "fails") == 0) {
        driver.memory.fails = (long)number;
    } else {
        ASSERT(is_number && strcmp(name, "fail_after") == 0);
        driver.memory.fail_at = (long)number + 1;
    }
}

static int serve(const struct upstream_options *options)
{
    struct err err = {0};
    if (upstream_new(options, 1, &driver.upstream, &err) != OK) {
        printf("refused %s\n", err.text);
        return 0;
    }
    if (net_loop_init(&driver.loop, options->mem, &err) != OK) {
        printf("refused %s\n", err.text);
        upstream_free(driver.upstream);
        return 0;
    }
    driver.loop.turn = on_turn;
    upstream_attach(driver.upstream, 0, &driver.loop);
    ASSERT(net_loop_start(&driver.loop, &err) == OK);
    printf("ready\n");
    (void)fflush(stdout);
    while (fgets(driver.line, sizeof driver.line, stdin) != NULL) {
        say();
    }
    (void)snprintf(driver.line, sizeof driver.line, "end");
    say();
    net_loop_release(&driver.loop);
    show_stats();
    upstream_free(driver.upstream);
    for (unsigned i = 0; i < CALLS_MAX; i++) {
        ASSERT(!driver.asked[i].is_live); /* UP1 */
        free(driver.asked[i].body);
    }
    return 0;
}

int main(int argc, char **argv)
{
    static const char *urls[64];
    struct upstream_options options = {
        .mem = &failing, .urls = urls, .idle_ms_max = UPSTREAM_IDLE_MS_USUAL};
    pthread_mutex_init(&driver.lock, NULL);
    pthread_cond_init(&driver.changed, NULL);
    driver.memory.fails = FAULTY_FOR_GOOD;
    for (int i = 1; i + 1 < argc; i += 2) {
        take_option(&options, urls, argv[i], argv[i + 1]);
    }
    return serve(&options);
}
