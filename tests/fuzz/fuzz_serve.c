/*
 * fuzz_serve: a connection's whole life over hostile bytes, without a socket.
 *
 * The stream and the loop below stand in for src/net. The first byte of each step says what happens
 * next: bytes arrive, the client ends or breaks off, time passes, the client reads nothing or reads
 * again, a send finds that it is gone, memory is out, a handler that kept its exchange answers,
 * goes on with its body or gives a piece of its answer, the number of loops that serve changes, so
 * that the connection moves to the second loop, whose time is behind, or back. Inputs of even
 * length have a begin hook, and the second byte of a path says then what the handler does. Nothing
 * may crash, the states hold what they say (conn_check), each exchange is ended once, and in the
 * end everything is given back.
 */
#include <stdio.h>

#include "base/check.h"
#include "http/serve_impl.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { STEPS_MAX = 400, PIECES_MAX = 40, LOOPS = 2, BEHIND_MS = 5000, IDLE_MS = 9000 };

/* What the stand-ins know. */
static struct {
    struct conn *conn;
    struct http_exchange *kept; /* by a handler that answers later */
    bool is_blocked;            /* the client does not read */
    bool is_dead;               /* a send finds out that the client is gone */
    bool is_poor;               /* the next allocation fails */
    bool is_closed;             /* the stream was closed; the event is to come */
    bool has_left;              /* it left its loop; that event is to come, too … */
    struct net_task *arrival;   /* … and then it arrives */
    size_t unsent;
    unsigned handled;  /* exchanges that a handler had */
    unsigned finished; /* and let go of */

    /* The one with a body in pieces or a streamed answer; there is one connection. */
    struct http_exchange *job;
    unsigned pieces; /* of its answer, still to be given */
    bool is_paused;  /* its body */
    bool is_streaming;
    bool is_full; /* drained is owed */
    bool is_gone;
    bool is_whole; /* handle was called */
} world;

static void *poor_resize(void *context, void *pointer, size_t size)
{
    (void)context;
    if (world.is_poor && size > 0) {
        world.is_poor = false;
        return NULL;
    }
    return mem_libc.resize(mem_libc.context, pointer, size);
}

static const struct mem poor = {.resize = poor_resize};

enum status net_stream_open(struct net_stream *stream, struct net_loop *loop, int fd, bool is_unix,
    struct net_tls_context *tls, const struct net_events *events)
{
    (void)fd, (void)is_unix, (void)tls;
    *stream = (struct net_stream){.loop = loop, .events = events};
    world.conn = (struct conn *)(void *)stream;
    return OK;
}

bool net_stream_leave(struct net_stream *stream)
{
    ASSERT(!stream->is_away && !stream->is_closing && stream->write == NULL);
    if (world.is_poor) {
        world.is_poor = false;
        return false;
    }
    stream->is_away = true;
    stream->is_reading = false;
    world.has_left = true;
    return true;
}

enum status net_stream_arrive(struct net_stream *stream, struct net_loop *loop)
{
    ASSERT(stream->is_away);
    stream->is_away = false;
    stream->loop = loop;
    return world.is_dead ? E_UNAVAILABLE : OK;
}

void net_stream_read(struct net_stream *stream)
{
    ASSERT(!stream->is_away);
    stream->is_reading = true;
}

enum net_sent net_stream_send(
    struct net_stream *stream, struct net_write *write, const struct slice *pieces, size_t count)
{
    ASSERT(stream->write == NULL);
    ASSERT(!stream->is_closing && !stream->is_away);
    if (world.is_dead || stream->is_broken) {
        stream->is_broken = true;
        return NET_BROKEN;
    }
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
    ASSERT(!stream->is_closing && !stream->is_away);
    stream->is_closing = true;
    world.is_closed = true;
}

void net_loop_deadline(struct net_loop *loop, struct net_deadline *deadline, uint64_t at_ms)
{
    ASSERT(loop == &world.conn->worker->loop);
    net_wheel_set(&loop->wheel, deadline, net_loop_now(loop), at_ms);
}

void net_loop_post(struct net_loop *loop, struct net_task *task)
{
    ASSERT(loop == &world.conn->worker->loop);
    if (task == &world.conn->arrival) {
        world.arrival = task;
    } else {
        task->run(task);
    }
}

uint64_t net_loop_busy(const struct net_loop *loop)
{
    (void)loop;
    return 0;
}

void server_less(struct worker *worker, atomic_uint *count)
{
    (void)worker;
    ASSERT(atomic_fetch_sub(count, 1) > 0);
}

static void on_resume(void *context, struct http_exchange *exchange)
{
    (void)context;
    world.finished++;
    http_answer_begin(exchange, 200);
    http_answer_end(exchange, SLICE_LIT("text/plain"), exchange->body, false);
}

/* ------------------------------------------------------- bodies in pieces, streamed answers -- */

static char manner(const struct http_exchange *exchange)
{
    struct slice path = http_path(exchange->head);
    return path.len > 1 ? path.data[1] : '/';
}

static struct http_exchange *job_over(void)
{
    struct http_exchange *exchange = world.job;
    ASSERT(exchange != NULL);
    world.job = NULL;
    world.is_paused = false;
    world.is_streaming = false;
    world.is_full = false;
    world.is_gone = false;
    world.is_whole = false;
    world.finished++;
    return exchange;
}

static void job_finish(void)
{
    bool is_streaming = world.is_streaming;
    struct http_exchange *exchange = job_over();
    if (is_streaming) {
        http_answer_finish(exchange, manner(exchange) != 'b');
    } else {
        if (exchange->status == 0) {
            http_answer_begin(exchange, 200);
        }
        http_answer_end(exchange, SLICE_EMPTY, SLICE_LIT("done"), true);
    }
}

static void job_gives(void)
{
    static const char bytes[9000];
    bool has_room = true;
    if (world.is_full) {
        return;
    }
    while (world.pieces > 0 && has_room) {
        world.pieces--;
        has_room = http_answer_piece(world.job, slice_of(bytes, 1 + world.pieces % 2 * 8000));
    }
    world.is_full = !has_room;
    if (world.pieces == 0 && !world.is_full && world.is_whole) {
        job_finish();
    }
}

static void on_drained(void *context, struct http_exchange *exchange)
{
    (void)context;
    ASSERT(exchange == world.job);
    ASSERT(world.is_full);
    world.is_full = false;
    job_gives();
}

static void on_gone(void *context, struct http_exchange *exchange)
{
    (void)context;
    ASSERT(exchange == world.job);
    ASSERT(exchange->is_gone);
    ASSERT(!world.is_gone);
    world.is_gone = true;
    world.is_full = false;
}

static void on_cut(void *context, struct http_exchange *exchange)
{
    (void)context;
    ASSERT(exchange == world.job);
    ASSERT(!world.is_whole);
    (void)job_over(); /* the server sees to the rest */
}

static void job_streams(struct http_exchange *exchange)
{
    if (exchange->status == 0) {
        http_answer_begin(exchange, 200);
    }
    bool is_long = manner(exchange) == 'l';
    world.is_streaming = true;
    world.pieces = manner(exchange) == 't' ? 3 : PIECES_MAX;
    http_answer_stream(exchange, is_long ? PIECES_MAX / 2 * 8002 : HTTP_LENGTH_CHUNKED);
}

static void on_piece(void *context, struct http_exchange *exchange, struct slice piece)
{
    (void)context;
    ASSERT(exchange == world.job);
    ASSERT(!world.is_paused);
    ASSERT(!world.is_whole);
    ASSERT(piece.len > 0);
    switch (manner(exchange)) {
    case 'y': job_finish(); return;
    case 'h':
        if (exchange->status == 0) {
            http_answer_begin(exchange, 201);
        }
        return;
    case 'e':
    case 'b':
        if (!world.is_streaming) {
            job_streams(exchange);
        }
        job_gives();
        break;
    default: break;
    }
    world.is_paused = piece.len % 2 == 0;
    if (world.is_paused) {
        http_body_pause(exchange);
    }
}

static void job_begin(struct http_exchange *exchange)
{
    ASSERT(world.job == NULL);
    world.handled++;
    world.job = exchange;
    exchange->drained = on_drained;
    exchange->gone = on_gone;
}

static void begin(void *context, struct http_exchange *exchange)
{
    (void)context;
    ASSERT(exchange->request_id.len > 0);
    switch (manner(exchange)) {
    case 'r':
        job_begin(exchange);
        job_finish();
        break;
    case 't':
    case 'R':
        job_begin(exchange);
        world.is_whole = true; /* nothing of the body comes */
        job_streams(exchange);
        break;
    case 'p':
    case 'e':
    case 'b':
    case 'y':
    case 'h':
        job_begin(exchange);
        exchange->piece = on_piece;
        exchange->cut = on_cut;
        exchange->body_bytes_max = 50000;
        break;
    default: break;
    }
}

/* A handler that is woken by something of its own. */
static void job_goes_on(uint8_t what)
{
    if (world.job == NULL) {
        return;
    }
    if (world.is_paused && what < 128) {
        world.is_paused = false;
        http_body_go_on(world.job);
    } else if (world.is_streaming) {
        job_gives();
    } else if (world.is_whole || what > 240) {
        job_finish();
    }
}

static void handle(void *context, struct http_exchange *exchange)
{
    ASSERT(exchange->request_id.len > 0);
    char how = context == NULL ? '/' : manner(exchange);
    if (exchange->piece == NULL && (how == 's' || how == 'l')) {
        job_begin(exchange);
        world.is_whole = true;
        job_streams(exchange);
        job_gives();
        return;
    }
    if (exchange->piece != NULL) {
        ASSERT(exchange == world.job);
        ASSERT(!world.is_whole);
        ASSERT(!world.is_paused);
        world.is_whole = true;
        return;
    }
    world.handled++;
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

/* It is on no loop until it arrives, and nothing happens to it there. */
static void move_on(struct conn *conn)
{
    if (world.has_left) {
        world.has_left = false;
        conn->stream.events->left(&conn->stream);
    }
    if (world.arrival != NULL) {
        struct net_task *task = world.arrival;
        world.arrival = NULL;
        task->run(task);
        /* Timed from now on, by the time of the loop that it came to. */
        uint64_t now_ms = net_loop_now(conn->stream.loop);
        ASSERT(conn->stream.is_closing || conn->deadline.at_ms == now_ms + IDLE_MS);
    }
}

static void pass_time(struct http_server *server, uint64_t ms)
{
    for (unsigned i = 0; i < LOOPS; i++) {
        struct net_loop *loop = &server->workers[i].loop;
        loop->uv.time += ms;
        net_wheel_run(&loop->wheel, loop->uv.time);
    }
}

static void step(struct http_server *server, struct conn *conn, uint8_t what, struct slice bytes)
{
    struct net_stream *stream = &conn->stream;
    if (what % 8 != 3) {
        move_on(conn);
    }
    switch (what % 8) {
    case 0:
        world.is_blocked = world.is_blocked || what < 240;
        world.is_dead = world.is_dead || what == 240;
        world.is_poor = what == 248;
        break;
    case 1:
        if (what >= 128) { /* both before the turn of its loop ends */
            answer_kept();
            job_goes_on(what);
        }
        unblock(conn);
        break;
    case 2:
        answer_kept();
        job_goes_on(what);
        break;
    case 3: pass_time(server, (uint64_t)what * 50); break;
    case 4:
        if (what < 128) {
            spread_set(server, 1 + what / 8 % LOOPS);
        } else if (what > 200 && !conn->has_ended && !stream->is_closing) {
            stream->events->read(stream, what > 230 ? NET_GOT_BROKEN : NET_GOT_END, 0);
        }
        break;
    default: arrive(conn, conn->has_ended ? SLICE_EMPTY : bytes); break;
    }
    for (unsigned i = 0; i < LOOPS; i++) {
        worker_ready(&server->workers[i]);
        net_wheel_check(&server->workers[i].loop.wheel);
    }
    ASSERT(atomic_load(&server->open) == 1); /* CN9 */
}

/* The drain that ends it finds it in its list; or it is on its way, and is closed on arrival. */
static void drain(struct http_server *server, struct conn *conn)
{
    bool is_away = conn->stream.is_away;
    for (unsigned i = 0; i < LOOPS; i++) {
        struct worker *worker = &server->workers[i];
        bool is_here = !is_away && conn->worker == worker;
        ASSERT((worker->conns.next == conn) == is_here); /* CN9 */
        worker->is_draining = true;
    }
    move_on(conn);
    ASSERT(!is_away || world.is_closed);
}

static void finish(struct http_server *server, struct conn *conn)
{
    uint64_t begun = 0, ended = 0;
    drain(server, conn);
    unblock(conn);
    conn_close(conn);
    ASSERT(world.is_closed);
    conn->stream.events->closed(&conn->stream);
    answer_kept();
    if (world.job != NULL) {
        ASSERT(world.is_gone);
        job_finish();
    }
    for (unsigned i = 0; i < LOOPS; i++) {
        struct worker *worker = &server->workers[i];
        worker_ready(worker);
        worker_recycle(worker);
        ASSERT(worker->conns.next == &worker->conns);
        ASSERT(worker->loop.wheel.count == 0);
        begun += atomic_load(&worker->stats.begun);
        ended += atomic_load(&worker->stats.ended);
    }
    ASSERT(atomic_load(&server->open) == 0);
    ASSERT(atomic_load(&server->body_bytes) == 0);
    ASSERT(begun == ended);
    ASSERT(begun == world.handled);
    ASSERT(world.finished == world.handled);
}

static void drive(struct http_server *server, const uint8_t *data, size_t size)
{
    conn_accept(&server->workers[0], 0, -1, SLICE_LIT("fuzz"));
    ASSERT(world.conn != NULL);
    struct conn *conn = world.conn;
    for (unsigned i = 0; i < STEPS_MAX && size > 1 && !world.is_closed; i++) {
        uint8_t what = data[0];
        size_t len = (size_t)data[1] * (what >= 128 ? 16 : 1) + 1;
        bool has_bytes = what % 8 > 4;
        len = !has_bytes ? 0 : len > size - 2 ? size - 2 : len;
        step(server, conn, what, slice_of(data + 2, len));
        data += 2 + len;
        size -= 2 + len;
    }
    finish(server, conn);
}

static void worker_init(struct worker *worker, struct http_server *server, unsigned number)
{
    static char scratch[NET_SCRATCH_BYTES];
    worker->server = server;
    worker->number = number;
    worker->conns.prev = &worker->conns;
    worker->conns.next = &worker->conns;
    worker->again.run = worker_again;
    worker->loop.uv.time = 1000000 - number * BEHIND_MS;
    worker->loop.mem = &poor;
    worker->loop.scratch = scratch;
    net_wheel_init(&worker->loop.wheel, worker->loop.uv.time);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct http_server server;
    static struct worker workers[LOOPS];
    memset(&world, 0, sizeof world);
    memset(&server, 0, sizeof server);
    memset(workers, 0, sizeof workers);
    server.mem = &poor;
    server.handle = handle;
    server.begin = size % 2 == 0 ? begin : NULL;
    server.context = size % 2 == 0 ? &world : NULL;
    server.inbox_bytes = 4096;
    server.limits = (struct http_server_limits){.message = HTTP_LIMITS_DEFAULT,
        .connections_max = 1,
        .in_flight_bytes_max_mib = 1,
        .head_ms_max = 3000,
        .body_ms_max = 3000,
        .idle_ms_max = IDLE_MS,
        .write_ms_max = 3000};
    server.limits.message.head_bytes_max = 2048;
    server.limits.message.body_bytes_max = 100000;
    clock_system(&server.clock);
    server.workers = workers;
    server.worker_count = LOOPS;
    server.follows_load = true;
    spread_init(&server);
    for (unsigned i = 0; i < LOOPS; i++) {
        worker_init(&workers[i], &server, i);
    }
    drive(&server, data, size);
    for (unsigned i = 0; i < LOOPS; i++) {
        pools_release(&workers[i]);
    }
    return 0;
}
