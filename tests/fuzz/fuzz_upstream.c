/*
 * fuzz_upstream: calls to an upstream over hostile bytes, without a socket.
 *
 * The stream and the loop below stand in for src/net. Each step is two bytes, what and how, and for
 * some the bytes that follow: a call is started, a connect goes well or not, bytes arrive, a peer
 * ends or breaks off, time passes, a send is blocked, or breaks before or after bytes were taken,
 * the caller puts, pauses or cancels. Nothing may crash, the states hold what they say (conn_check,
 * upstream_call_check), in the end everything is given back, and for each call:
 *
 *   UP1 there is one last event, and none after it;
 *   UP2 NOT_SENT is said, by failed or by cancel, only if no byte of it was taken;
 *   UP3 no byte of it is given to a second connection once one has any;
 *   UP5 a connection that is idle and hears anything is closed.
 */
#include <stdio.h>

#include "base/check.h"
#include "http/upstream_impl.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { STEPS_MAX = 400, CALLS = 6, STREAMS = 64 };

struct asked {
    struct upstream_call call; /* first */
    bool is_live;
    bool has_put_end;
    bool owes_drained; /* it was told so */
    bool is_taken;     /* a byte of it was */
    struct upstream_conn *taker;
    uint8_t how;
};

static struct {
    struct asked asked[CALLS];
    struct upstream *upstream;
    struct net_loop loop;
    struct net_stream *streams[STREAMS]; /* that are not closed yet; NULL: none */
    struct net_task *posted;
    bool is_blocked;    /* sends stay on their way */
    bool breaks_before; /* the next send: no byte is taken */
    bool breaks_after;  /* the next send: one byte is */
    bool refuses;       /* the next connect fails at once */
    bool is_loud;       /* the next look finds bytes waiting */
} world;

/* ----------------------------------------------------------------------------- the stand-ins -- */

static struct upstream_conn *conn_of_stream(struct net_stream *stream)
{
    return (struct upstream_conn *)(void *)stream;
}

enum status net_stream_connect(struct net_stream *stream, struct net_loop *loop,
    struct net_connect *connect, const struct net_events *events, const char **ret_failure)
{
    (void)connect;
    *stream = (struct net_stream){.loop = loop, .events = events, .is_connecting = true};
    unsigned place = 0;
    while (world.streams[place] != NULL) {
        ASSERT(++place < STREAMS);
    }
    world.streams[place] = stream;
    bool refuses = world.refuses;
    world.refuses = false;
    *ret_failure = "refused";
    return refuses ? E_UNAVAILABLE : OK;
}

void net_stream_read(struct net_stream *stream)
{
    stream->is_reading = !stream->is_closing;
}

static void take(struct net_stream *stream, size_t bytes)
{
    struct upstream_conn *conn = conn_of_stream(stream);
    struct asked *asked = (struct asked *)(void *)conn->call;
    if (bytes > 0) {
        ASSERT(asked->is_live);
        ASSERT(!asked->is_taken || asked->taker == conn); /* UP3 */
        asked->is_taken = true;
        asked->taker = conn;
        stream->given += bytes;
    }
}

enum net_sent net_stream_send(
    struct net_stream *stream, struct net_write *write, const struct slice *pieces, size_t count)
{
    ASSERT(stream->write == NULL);
    ASSERT(!stream->is_closing && !stream->is_connecting);
    size_t total = 0;
    for (size_t i = 0; i < count; i++) {
        total += pieces[i].len;
    }
    if (stream->is_broken || world.breaks_before || world.breaks_after) {
        take(stream, world.breaks_after && !stream->is_broken && total > 0 ? 1 : 0);
        world.breaks_before = world.breaks_after = false;
        stream->is_broken = true;
        return NET_BROKEN;
    }
    take(stream, total);
    if (!world.is_blocked) {
        return NET_SENT;
    }
    stream->write = write;
    return NET_SENDING;
}

size_t net_stream_unsent(const struct net_stream *stream)
{
    return stream->write == NULL ? 0 : 1000;
}

bool net_stream_is_quiet(const struct net_stream *stream)
{
    bool is_loud = world.is_loud;
    world.is_loud = false;
    return !is_loud && !stream->is_broken;
}

bool net_stream_ended_well(const struct net_stream *stream)
{
    return !stream->is_broken;
}

void net_stream_close(struct net_stream *stream)
{
    ASSERT(!stream->is_closing);
    stream->is_closing = true;
    stream->is_reading = false;
}

void net_loop_deadline(struct net_loop *loop, struct net_deadline *deadline, uint64_t at_ms)
{
    net_wheel_set(&loop->wheel, deadline, net_loop_now(loop), at_ms);
}

void net_loop_post(struct net_loop *loop, struct net_task *task)
{
    (void)loop;
    task->next = world.posted;
    world.posted = task;
}

enum status net_tls_client_context_new(const struct mem *mem, const char *ca_file,
    struct net_tls_context **ret_context, struct err *err)
{
    (void)mem, (void)ca_file, (void)ret_context;
    return err_set(err, E_INVALID, "no TLS here");
}

void net_tls_context_free(struct net_tls_context *context)
{
    ASSERT(context == NULL);
}

/* -------------------------------------------------------------------------------- the caller -- */

static struct asked *asked_of(struct upstream_call *call)
{
    struct asked *asked = (struct asked *)(void *)call;
    ASSERT(asked->is_live); /* UP1 */
    return asked;
}

static void cancel(struct asked *asked)
{
    bool is_unsent = upstream_cancel(&asked->call);
    asked->is_live = false;
    ASSERT(!(is_unsent && asked->is_taken)); /* UP2 */
}

static void on_head(struct upstream_call *call, const struct http_head *head)
{
    struct asked *asked = asked_of(call);
    ASSERT(asked->is_taken);
    ASSERT(head->status >= 200);
    if (asked->how % 7 == 1) {
        upstream_pause(call);
    } else if (asked->how % 7 == 2) {
        cancel(asked);
    }
}

static void on_piece(struct upstream_call *call, struct slice piece)
{
    struct asked *asked = asked_of(call);
    ASSERT(piece.len > 0);
    if (asked->how % 7 == 3) {
        upstream_pause(call);
    } else if (asked->how % 7 == 4) {
        cancel(asked);
    }
}

static void on_end(struct upstream_call *call)
{
    ASSERT(asked_of(call)->is_taken);
    asked_of(call)->is_live = false;
}

static void on_failed(struct upstream_call *call, enum upstream_point point,
    enum upstream_cause cause, const struct err *err)
{
    struct asked *asked = asked_of(call);
    ASSERT(cause <= UPSTREAM_CAUSE_BUSY);
    ASSERT(err->text[0] != '\0');
    ASSERT((point == UPSTREAM_NOT_SENT) == !asked->is_taken); /* UP2 */
    asked->is_live = false;
}

static void on_drained(struct upstream_call *call)
{
    ASSERT(asked_of(call)->owes_drained);
    asked_of(call)->owes_drained = false;
}

static const struct upstream_events events = {
    .head = on_head, .piece = on_piece, .end = on_end, .failed = on_failed, .drained = on_drained};

static void start(uint8_t how)
{
    static const char head[] = "POST / HTTP/1.1\r\nHost: a\r\n\r\n";
    static const char body[] = "body";
    for (unsigned i = 0; i < CALLS; i++) {
        struct asked *asked = &world.asked[i];
        if (asked->is_live) {
            continue;
        }
        *asked = (struct asked){.is_live = true, .how = how};
        asked->call = (struct upstream_call){.events = &events,
            .head = slice_of(head, sizeof head - 1),
            .body = (how & 1) != 0 ? SLICE_EMPTY : slice_of(body, 4),
            .is_streamed = (how & 1) != 0,
            .is_chunked = (how & 3) == 3,
            .method = (how & 4) != 0 ? HTTP_METHOD_HEAD : HTTP_METHOD_POST,
            .body_bytes_max = (how & 8) != 0 ? 20 : 0,
            .timeouts = {
                .connect_ms = 500, .first_byte_ms = 700, .total_ms = (how & 16) != 0 ? 0 : 2000}};
        upstream_start(world.upstream, 0, &asked->call);
        return;
    }
}

static void about_call(uint8_t how)
{
    struct asked *asked = &world.asked[how % CALLS];
    if (!asked->is_live) {
        return;
    }
    switch (how / CALLS % 6) {
    case 0:
        if (asked->call.is_streamed && !asked->has_put_end) {
            bool is_enough = !upstream_put(&asked->call, SLICE_LIT("piece"));
            asked->owes_drained = asked->owes_drained || is_enough;
        }
        break;
    case 1:
        if (asked->call.is_streamed && !asked->has_put_end) {
            asked->has_put_end = true;
            upstream_put_end(&asked->call);
        }
        break;
    case 2: upstream_pause(&asked->call); break;
    case 3:
    case 4:
        asked->how = 0;
        upstream_go_on(&asked->call);
        break;
    default: cancel(asked); break;
    }
}

/* --------------------------------------------------------------------------------- the peers -- */

static struct net_stream *pick(uint8_t how, bool is_connecting)
{
    for (unsigned i = 0; i < STREAMS; i++) {
        struct net_stream *stream = world.streams[(how + i) % STREAMS];
        if (stream != NULL && !stream->is_closing && stream->is_connecting == is_connecting) {
            return stream;
        }
    }
    return NULL;
}

static void connected(uint8_t how)
{
    struct net_stream *stream = pick(how, true);
    if (stream != NULL) {
        stream->is_connecting = false;
        stream->events->connected(stream, how % 4 == 3 ? "refused" : NULL);
    }
}

static void arrive(uint8_t how, struct slice bytes)
{
    struct net_stream *stream = pick(how, false);
    while (stream != NULL && bytes.len > 0 && !stream->is_closing && stream->is_reading) {
        bool is_idle = conn_of_stream(stream)->state == UPSTREAM_CONN_IDLE;
        struct net_room room = stream->events->room(stream);
        if (room.len == 0) {
            stream->is_reading = false;
            return;
        }
        size_t len = bytes.len < room.len ? bytes.len : room.len;
        memcpy(room.data, bytes.data, len);
        bytes = slice_of(bytes.data + len, bytes.len - len);
        stream->events->read(stream, NET_GOT_BYTES, len);
        ASSERT(!is_idle || stream->is_closing); /* UP5 */
    }
}

static void arrive_canned(uint8_t how)
{
    const struct slice canned[] = {
        SLICE_LIT("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"),
        SLICE_LIT("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"),
        SLICE_LIT("HTTP/1.1 413 No\r\nContent-Length: 30\r\n\r\n"),
        SLICE_LIT("0123456789"),
        SLICE_LIT("HTTP/1.1 100 Continue\r\n\r\n"),
        SLICE_LIT("HTTP/1.1 200 OK\r\nKeep-Alive: timeout=2\r\nContent-Length: 0\r\n\r\n"),
        SLICE_LIT("HTTP/1.1 204 No\r\n\r\n"),
        SLICE_LIT("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"),
    };
    arrive(how / 8, canned[how % 8]);
}

static void leave(uint8_t how)
{
    struct net_stream *stream = pick(how, false);
    if (stream != NULL && stream->is_reading) {
        stream->is_reading = false;
        stream->events->read(stream, how % 2 == 0 ? NET_GOT_END : NET_GOT_BROKEN, 0);
    }
}

static void unblock(uint8_t how)
{
    world.is_blocked = false;
    for (unsigned i = 0; i < STREAMS; i++) {
        struct net_stream *stream = world.streams[i];
        if (stream != NULL && stream->write != NULL) {
            stream->write = NULL;
            stream->is_broken = stream->is_broken || how % 4 == 3;
            if (!stream->is_closing) {
                stream->events->wrote(stream, how % 4 != 3);
            }
        }
    }
}

static void pass_time(uint64_t ms)
{
    world.loop.uv.time += ms;
    net_wheel_run(&world.loop.wheel, world.loop.uv.time);
}

static void settle(void)
{
    while (world.posted != NULL) {
        struct net_task *task = world.posted;
        world.posted = task->next;
        task->run(task);
    }
    for (unsigned i = 0; i < STREAMS; i++) {
        struct net_stream *stream = world.streams[i];
        if (stream != NULL && stream->is_closing) {
            world.streams[i] = NULL;
            stream->events->closed(stream);
        }
    }
    net_wheel_check(&world.loop.wheel);
}

static void step(uint8_t what, uint8_t how, struct slice bytes)
{
    switch (what % 10) {
    case 0: start(how); break;
    case 1: connected(how); break;
    case 2: arrive(how, bytes); break;
    case 3: arrive_canned(how); break;
    case 4: leave(how); break;
    case 5: pass_time((uint64_t)how * 10); break;
    case 6: world.is_blocked = true; break;
    case 7: unblock(how); break;
    case 8: about_call(how); break;
    default:
        world.breaks_before = how % 5 == 0;
        world.breaks_after = how % 5 == 1;
        world.refuses = how % 5 == 2;
        world.is_loud = how % 5 == 3;
        break;
    }
    if (how < 240) {
        settle();
    }
}

static void finish(void)
{
    struct upstream_stats stats;
    upstream_detach(world.upstream, 0);
    for (unsigned i = 0; i < CALLS; i++) {
        ASSERT(!world.asked[i].is_live); /* UP1 */
    }
    settle();
    settle();
    upstream_stats(world.upstream, &stats);
    ASSERT(stats.open == 0);
    ASSERT(stats.idle == 0);
    ASSERT(stats.waiting == 0);
    ASSERT(world.loop.wheel.count == 0);
    upstream_free(world.upstream);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const urls[] = {"http://127.0.0.1:80", "http://[::1]:8080"};
    static char scratch[NET_SCRATCH_BYTES];
    struct err err = {0};
    memset(&world, 0, sizeof world);
    world.loop.uv.time = 1000000;
    world.loop.mem = &mem_libc;
    world.loop.scratch = scratch;
    net_wheel_init(&world.loop.wheel, 1000000);
    struct upstream_options options = {.urls = urls,
        .url_count = size > 0 && data[0] % 2 != 0 ? 2 : 1,
        .connections_max = 2,
        .waiting_max = 3,
        .idle_ms_max = 1500};
    enum status status = upstream_new(&options, 1, &world.upstream, &err);
    ASSERT(status == OK);
    upstream_attach(world.upstream, 0, &world.loop);
    for (unsigned i = 0; i < STEPS_MAX && size > 1; i++) {
        uint8_t what = data[0];
        size_t len = what % 10 == 2 ? (size_t)what / 4 + 1 : 0;
        len = len > size - 2 ? size - 2 : len;
        step(what, data[1], slice_of(data + 2, len));
        data += 2 + len;
        size -= 2 + len;
    }
    finish();
    return 0;
}
