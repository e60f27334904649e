/*
 * fuzz_serve: a connection's whole life over hostile bytes, without a socket.
 *
 * The stream and the loop below stand in for src/net. The first byte of each step says what happens
 * next: bytes arrive, the client ends or breaks off, time passes, the client reads nothing or reads
 * again, a handler that kept its exchange answers. Nothing may crash, the states hold what they say
 * (conn_check), and in the end everything is given back.
 */
#include <stdio.h>

#include "base/check.h"
#include "http/serve_impl.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { STEPS_MAX = 400 };

/* What the stand-ins know. */
static struct {
    struct conn *conn;
    struct http_exchange *kept; /* by a handler that answers later */
    bool is_blocked;            /* the client does not read */
    bool is_closed;             /* the stream was closed; the event is to come */
    size_t unsent;
    unsigned handled;
} world;

enum status net_stream_open(struct net_stream *stream, struct net_loop *loop, int fd, bool is_unix,
    struct net_tls_context *tls, const struct net_events *events)
{
    (void)fd, (void)is_unix, (void)tls;
    *stream = (struct net_stream){.loop = loop, .events = events};
    world.conn = (struct conn *)(void *)stream;
    return OK;
}

void net_stream_read(struct net_stream *stream)
{
    stream->is_reading = true;
}

enum net_sent net_stream_send(
    struct net_stream *stream, struct net_write *write, const struct slice *pieces, size_t count)
{
    ASSERT(stream->write == NULL);
    ASSERT(!stream->is_closing);
    world.unsent = 0;
    for (size_t i = 0; i < count; i++) {
        world.unsent += pieces[i].len;
    }
    if (!world.is_blocked) {
        return NET_SENT;
    }
    stream->write = write;
    return NET_SENDING;
}

size_t net_stream_unsent(const struct net_stream *stream)
{
    return stream->write == NULL ? 0 : world.unsent;
}

void net_stream_finish(struct net_stream *stream)
{
    ASSERT(stream->write == NULL);
}

bool net_stream_is_ready(const struct net_stream *stream)
{
    (void)stream;
    return true;
}

void net_stream_close(struct net_stream *stream)
{
    ASSERT(!stream->is_closing);
    stream->is_closing = true;
    world.is_closed = true;
}

void net_loop_deadline(struct net_loop *loop, struct net_deadline *deadline, uint64_t at_ms)
{
    net_wheel_set(&loop->wheel, deadline, net_loop_now(loop), at_ms);
}

void net_loop_post(struct net_loop *loop, struct net_task *task)
{
    (void)loop;
    task->run(task);
}

void server_conn_closed(struct worker *worker)
{
    atomic_fetch_sub(&worker->server->open, 1);
}

static void on_resume(void *context, struct http_exchange *exchange)
{
    (void)context;
    http_answer_begin(exchange, 200);
    http_answer_end(exchange, SLICE_LIT("text/plain"), exchange->body, false);
}

static void handle(void *context, struct http_exchange *exchange)
{
    world.handled++;
    ASSERT(exchange->request_id.len > 0);
    if (exchange->body.len % 3 == 1) {
        ASSERT(world.kept == NULL);
        exchange->resume = on_resume;
        world.kept = exchange;
    } else {
        on_resume(context, exchange);
    }
}

static void arrive(struct conn *conn, struct slice bytes)
{
    struct net_stream *stream = &conn->stream;
    while (bytes.len > 0 && !stream->is_closing && stream->is_reading) {
        struct net_room room = stream->events->room(stream);
        if (room.len == 0) {
            stream->is_reading = false;
            return;
        }
        size_t len = bytes.len < room.len ? bytes.len : room.len;
        memcpy(room.data, bytes.data, len);
        bytes = slice_of(bytes.data + len, bytes.len - len);
        stream->events->read(stream, NET_GOT_BYTES, len);
    }
}

static void unblock(struct conn *conn)
{
    world.is_blocked = false;
    if (conn->stream.write != NULL) {
        conn->stream.write = NULL;
        if (!conn->stream.is_closing) {
            conn->stream.events->wrote(&conn->stream, true);
        }
    }
}

static void answer_kept(void)
{
    struct http_exchange *kept = world.kept;
    world.kept = NULL;
    if (kept != NULL) {
        http_wake(kept);
    }
}

static void step(struct worker *worker, struct conn *conn, uint8_t what, struct slice bytes)
{
    struct net_stream *stream = &conn->stream;
    switch (what % 8) {
    case 0: world.is_blocked = true; break;
    case 1: unblock(conn); break;
    case 2: answer_kept(); break;
    case 3:
        worker->loop.uv.time += (uint64_t)what * 50;
        net_wheel_run(&worker->loop.wheel, worker->loop.uv.time);
        break;
    case 4:
        if (what > 200 && !conn->has_ended && !stream->is_closing) {
            stream->events->read(stream, what > 230 ? NET_GOT_BROKEN : NET_GOT_END, 0);
        }
        break;
    default: arrive(conn, conn->has_ended ? SLICE_EMPTY : bytes); break;
    }
    worker_ready(worker);
    net_wheel_check(&worker->loop.wheel);
}

static void finish(struct worker *worker, struct conn *conn)
{
    unblock(conn);
    conn_close(conn);
    ASSERT(world.is_closed);
    conn->stream.events->closed(&conn->stream);
    answer_kept();
    worker_ready(worker);
    worker_recycle(worker);
    ASSERT(worker->conns.next == &worker->conns);
    ASSERT(atomic_load(&worker->server->open) == 0);
    ASSERT(atomic_load(&worker->server->body_bytes) == 0);
    ASSERT(atomic_load(&worker->stats.begun) == atomic_load(&worker->stats.ended));
    ASSERT(atomic_load(&worker->stats.begun) == world.handled);
}

static void drive(struct worker *worker, const uint8_t *data, size_t size)
{
    conn_open(worker, 0, -1, SLICE_LIT("fuzz"));
    struct conn *conn = world.conn;
    for (unsigned i = 0; i < STEPS_MAX && size > 1 && !world.is_closed; i++) {
        uint8_t what = data[0];
        size_t len = (size_t)data[1] * (what >= 128 ? 16 : 1) + 1;
        bool has_bytes = what % 8 > 4;
        len = !has_bytes ? 0 : len > size - 2 ? size - 2 : len;
        step(worker, conn, what, slice_of(data + 2, len));
        data += 2 + len;
        size -= 2 + len;
    }
    finish(worker, conn);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct http_server server;
    static struct worker worker;
    memset(&world, 0, sizeof world);
    memset(&server, 0, sizeof server);
    memset(&worker, 0, sizeof worker);
    server.mem = &mem_libc;
    server.handle = handle;
    server.inbox_bytes = 4096;
    server.limits = (struct http_server_limits){.message = HTTP_LIMITS_DEFAULT,
        .connections_max = 1,
        .in_flight_bytes_max_mib = 1,
        .head_ms_max = 3000,
        .body_ms_max = 3000,
        .idle_ms_max = 9000,
        .write_ms_max = 3000};
    server.limits.message.head_bytes_max = 2048;
    server.limits.message.body_bytes_max = 100000;
    clock_system(&server.clock);
    worker.server = &server;
    worker.conns.prev = &worker.conns;
    worker.conns.next = &worker.conns;
    worker.random_at = SERVE_RANDOM_BYTES;
    worker.loop.uv.time = 1000000;
    worker.loop.mem = &mem_libc;
    static char scratch[NET_SCRATCH_BYTES];
    worker.loop.scratch = scratch;
    net_wheel_init(&worker.loop.wheel, 1000000);
    drive(&worker, data, size);
    pools_release(&worker);
    return 0;
}
