/*
 * bench_consumer: what people write by hand: take a message, call the handler, acknowledge it.
 *
 *     bench_consumer do=fill  broker=redis|amqp port=N queue=NAME count=N
 *     bench_consumer do=drain broker=redis|amqp port=N queue=NAME count=N handler=PORT
 *
 * fill puts that many events into a queue. drain takes them out again with as many consumers as
 * there are cores, each with one connection to the broker and one to the handler, and prints
 * {"seconds":…}: from the first message to the last acknowledgement. It remembers nothing: a
 * message that comes twice is handled twice.
 */
#include <arpa/inet.h>
#include <hiredis/hiredis.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "bench.h"

#ifdef BENCH_AMQP
#include <amqp.h>
#include <amqp_tcp_socket.h>
#endif

enum {
    CONSUMERS_MAX = 64,
    TAKEN = 64,     /* messages asked for at a time */
    PREFETCH = 256, /* as Once's default */
    TEXT_BYTES = 1024,
    ANSWER_BYTES = 16384,
    BLOCK_MS = 100, /* so that the last consumers see the end */
};

struct consumer_work {
    const char *queue;
    unsigned port, handler_port;
    uint64_t count;
    atomic_uint_fast64_t done;
    atomic_uint_fast64_t first_ns, last_ns;
};

static int connect_to(unsigned port)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
        .sin_port = htons((uint16_t)port),
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int wire = socket(AF_INET, SOCK_STREAM, 0);
    bench_must_errno(wire, "socket");
    bench_must_errno(connect(wire, (struct sockaddr *)&address, sizeof address), "connect");
    return wire;
}

/* One POST and its answer, over a connection that stays. */
static void call_handler(int wire, const char *body, size_t bytes)
{
    char text[ANSWER_BYTES];
    int head = snprintf(text, sizeof text,
        "POST /events HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/cloudevents+json"
        "\r\nContent-Length: %zu\r\n\r\n",
        bytes);
    if (head < 0 || (size_t)head + bytes > sizeof text) {
        bench_fail("a message is too long");
    }
    memcpy(text + head, body, bytes);
    size_t all = (size_t)head + bytes;
    if (write(wire, text, all) != (ssize_t)all) {
        bench_fail("the handler does not take the request");
    }
    size_t got = 0;
    for (;;) {
        ssize_t more = read(wire, text + got, sizeof text - 1 - got);
        if (more <= 0) {
            bench_fail("the handler does not answer");
        }
        got += (size_t)more;
        text[got] = '\0';
        const char *end = strstr(text, "\r\n\r\n"), *length = strstr(text, "Content-Length: ");
        if (end != NULL && length != NULL &&
            got >= (size_t)(end + 4 - text) + strtoul(length + 16, NULL, 10)) {
            break;
        }
    }
    if (strncmp(text, "HTTP/1.1 200", 12) != 0) {
        bench_fail("the handler answers %.40s", text);
    }
}

static void note_first(struct consumer_work *work)
{
    uint_fast64_t none = 0;
    (void)atomic_compare_exchange_strong(&work->first_ns, &none, clock_nanos());
}

static void note_done(struct consumer_work *work)
{
    if (atomic_fetch_add(&work->done, 1) + 1 == work->count) {
        atomic_store(&work->last_ns, clock_nanos());
    }
}

static size_t make_event(char ret_text[TEXT_BYTES], const char *queue, uint64_t number)
{
    return (size_t)snprintf(ret_text, TEXT_BYTES,
        "{\"specversion\":\"1.0\",\"id\":\"%s-%llu\",\"source\":\"/shop\",\"type\":\"order.paid\","
        "\"data\":{\"amount\":1999,\"currency\":\"EUR\",\"customer\":\"cus_9s6XKzkNRiz8i3\","
        "\"order\":\"4711\"}}",
        queue, (unsigned long long)number);
}

/* ---- Redis ------------------------------------------------------------------------------- */

static redisContext *redis_open(unsigned port)
{
    redisContext *link = redisConnect("127.0.0.1", (int)port);
    if (link == NULL || link->err != 0) {
        bench_fail("redis: %s", link == NULL ? "out of memory" : link->errstr);
    }
    return link;
}

static redisReply *redis_checked(redisReply *reply)
{
    if (reply == NULL || reply->type == REDIS_REPLY_ERROR) {
        bench_fail("redis: %s", reply == NULL ? "no answer" : reply->str);
    }
    return reply;
}

static void redis_next(redisContext *link)
{
    void *reply = NULL;
    if (redisGetReply(link, &reply) != REDIS_OK) {
        bench_fail("redis: %s", link->errstr);
    }
    freeReplyObject(redis_checked(reply));
}

static void redis_fill(struct consumer_work *work)
{
    redisContext *link = redis_open(work->port);
    char text[TEXT_BYTES];
    uint64_t answered = 0;
    for (uint64_t i = 0; i < work->count; i++) {
        size_t bytes = make_event(text, work->queue, i);
        (void)redisAppendCommand(link, "XADD %s * event %b", work->queue, text, bytes);
        for (; i - answered >= TAKEN; answered++) {
            redis_next(link);
        }
    }
    for (; answered < work->count; answered++) {
        redis_next(link);
    }
    freeReplyObject(redisCommand(link, "XGROUP CREATE %s plain 0", work->queue));
    redisFree(link);
}

static void redis_one(
    struct consumer_work *work, redisContext *link, int handler, const redisReply *one)
{
    const redisReply *fields = one->element[1];
    note_first(work);
    call_handler(handler, fields->element[1]->str, fields->element[1]->len);
    freeReplyObject(
        redis_checked(redisCommand(link, "XACK %s plain %s", work->queue, one->element[0]->str)));
    note_done(work);
}

static void *redis_drain(void *context)
{
    struct consumer_work *work = context;
    redisContext *link = redis_open(work->port);
    int handler = connect_to(work->handler_port);
    while (atomic_load(&work->done) < work->count) {
        redisReply *reply = redis_checked(
            redisCommand(link, "XREADGROUP GROUP plain c%d COUNT %d BLOCK %d STREAMS %s >", handler,
                TAKEN, BLOCK_MS, work->queue));
        const redisReply *found =
            reply->type == REDIS_REPLY_ARRAY ? reply->element[0]->element[1] : NULL;
        for (size_t i = 0; found != NULL && i < found->elements; i++) {
            redis_one(work, link, handler, found->element[i]);
        }
        freeReplyObject(reply);
    }
    (void)close(handler);
    redisFree(link);
    return NULL;
}

/* ---- RabbitMQ ---------------------------------------------------------------------------- */

#ifdef BENCH_AMQP
static void amqp_must(amqp_rpc_reply_t reply, const char *what)
{
    if (reply.reply_type != AMQP_RESPONSE_NORMAL) {
        bench_fail("rabbitmq: %s", what);
    }
}

static amqp_connection_state_t amqp_link(struct consumer_work *work)
{
    amqp_connection_state_t link = amqp_new_connection();
    amqp_socket_t *wire = amqp_tcp_socket_new(link);
    if (wire == NULL || amqp_socket_open(wire, "127.0.0.1", (int)work->port) != AMQP_STATUS_OK) {
        bench_fail("rabbitmq: no connection");
    }
    amqp_must(amqp_login(link, "/", 0, AMQP_DEFAULT_FRAME_SIZE, 0, AMQP_SASL_METHOD_PLAIN, "guest",
                  "guest"),
        "login");
    (void)amqp_channel_open(link, 1);
    amqp_must(amqp_get_rpc_reply(link), "channel");
    (void)amqp_queue_declare(
        link, 1, amqp_cstring_bytes(work->queue), 0, 1, 0, 0, amqp_empty_table);
    amqp_must(amqp_get_rpc_reply(link), "queue");
    return link;
}

static void amqp_end(amqp_connection_state_t link)
{
    (void)amqp_connection_close(link, AMQP_REPLY_SUCCESS);
    (void)amqp_destroy_connection(link);
}

/* The close waits until the broker has taken everything before it. */
static void amqp_fill(struct consumer_work *work)
{
    amqp_connection_state_t link = amqp_link(work);
    amqp_basic_properties_t properties = {
        ._flags = AMQP_BASIC_CONTENT_TYPE_FLAG | AMQP_BASIC_DELIVERY_MODE_FLAG,
        .content_type = amqp_cstring_bytes("application/cloudevents+json"),
        .delivery_mode = 2};
    char text[TEXT_BYTES];
    for (uint64_t i = 0; i < work->count; i++) {
        amqp_bytes_t body = {make_event(text, work->queue, i), text};
        if (amqp_basic_publish(link, 1, amqp_empty_bytes, amqp_cstring_bytes(work->queue), 0, 0,
                &properties, body) != AMQP_STATUS_OK) {
            bench_fail("rabbitmq: publish");
        }
    }
    amqp_end(link);
}

static void *amqp_drain(void *context)
{
    struct consumer_work *work = context;
    amqp_connection_state_t link = amqp_link(work);
    int handler = connect_to(work->handler_port);
    (void)amqp_basic_qos(link, 1, 0, PREFETCH, 0);
    (void)amqp_basic_consume(
        link, 1, amqp_cstring_bytes(work->queue), amqp_empty_bytes, 0, 0, 0, amqp_empty_table);
    amqp_must(amqp_get_rpc_reply(link), "consume");
    while (atomic_load(&work->done) < work->count) {
        struct timeval pause = {.tv_usec = BLOCK_MS * 1000};
        amqp_envelope_t envelope;
        amqp_maybe_release_buffers(link);
        amqp_rpc_reply_t reply = amqp_consume_message(link, &envelope, &pause, 0);
        if (reply.reply_type == AMQP_RESPONSE_LIBRARY_EXCEPTION &&
            reply.library_error == AMQP_STATUS_TIMEOUT) {
            continue;
        }
        amqp_must(reply, "a message");
        note_first(work);
        call_handler(handler, envelope.message.body.bytes, envelope.message.body.len);
        if (amqp_basic_ack(link, 1, envelope.delivery_tag, 0) != AMQP_STATUS_OK) {
            bench_fail("rabbitmq: acknowledge");
        }
        amqp_destroy_envelope(&envelope);
        note_done(work);
    }
    (void)close(handler);
    amqp_end(link);
    return NULL;
}
#else
static void amqp_fill(struct consumer_work *work)
{
    bench_fail("librabbitmq-dev is not installed: %s", work->queue);
}

static void *amqp_drain(void *context)
{
    amqp_fill(context);
    return NULL;
}
#endif

/* ------------------------------------------------------------------------------------------ */

static void drain(struct consumer_work *work, void *(*one)(void *))
{
    pthread_t threads[CONSUMERS_MAX];
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    size_t count = cores < 1 ? 1 : cores > CONSUMERS_MAX ? CONSUMERS_MAX : (size_t)cores;
    for (size_t i = 0; i < count; i++) {
        bench_must_errno(-(int64_t)pthread_create(&threads[i], NULL, one, work), "a thread");
    }
    for (size_t i = 0; i < count; i++) {
        (void)pthread_join(threads[i], NULL);
    }
    uint64_t nanos = atomic_load(&work->last_ns) - atomic_load(&work->first_ns);
    (void)fprintf(stdout, "{\"seconds\":%.6f}\n", (double)nanos / 1e9);
}

int main(int argc, char **argv)
{
    bool is_amqp = strcmp(bench_text(argc, argv, "broker", "redis"), "amqp") == 0;
    struct consumer_work work = {.queue = bench_text(argc, argv, "queue", "orders"),
        .port = (unsigned)bench_number(argc, argv, "port", 0),
        .handler_port = (unsigned)bench_number(argc, argv, "handler", 0),
        .count = (uint64_t)bench_number(argc, argv, "count", 1000)};
    if (strcmp(bench_text(argc, argv, "do", "fill"), "fill") == 0) {
        (is_amqp ? amqp_fill : redis_fill)(&work);
    } else {
        drain(&work, is_amqp ? amqp_drain : redis_drain);
    }
    return 0;
}
