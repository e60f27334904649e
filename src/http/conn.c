#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/macros.h"
#include "http/serve_impl.h"

/* The diagram, the transitions and what holds are at enum conn_state (serve_impl.h). */

static struct conn *conn_of(struct net_stream *stream)
{
    return CONTAINER_OF(stream, struct conn, stream);
}

/* Its loop has it, and it lives. */
static bool is_here(const struct conn *conn)
{
    return conn->state != CONN_CLOSING && conn->state != CONN_MOVING;
}

static uint64_t now_of(const struct conn *conn)
{
    return net_loop_now(&conn->worker->loop);
}

/* The states in which a handler has the exchange, except CLOSING; CN3. */
static bool is_with_handler(const struct conn *conn)
{
    return conn->state >= CONN_PIECES && conn->state <= CONN_STREAMED;
}

static void exchange_check(const struct conn *conn, const struct exchange *exchange)
{
    ASSERT(exchange->conn == conn);                                                       /* CN2 */
    ASSERT(exchange->is_taken == (is_with_handler(conn) || conn->is_awaited));            /* CN3 */
    ASSERT(!is_with_handler(conn) || exchange->is_shown);                                 /* CN4 */
    ASSERT(conn->state != CONN_PIECES || exchange->shown.piece != NULL);                  /* CN3 */
    ASSERT(conn->state != CONN_STREAMED || exchange->is_streaming);                       /* CN6 */
    ASSERT(conn->state != CONN_HANDLED || !exchange->is_streaming);                       /* CN6 */
    ASSERT(!exchange->wants_drained || exchange->is_streaming);                           /* CN6 */
    ASSERT(!exchange->is_begun || !exchange->is_streaming || exchange->shown.status > 0); /* CN6 */
}

void conn_check(const struct conn *conn)
{
    bool is_request = conn->state >= CONN_HEAD && conn->state <= CONN_ANSWERED;
    ASSERT(!is_request || conn->exchange != NULL); /* CN2 */
    if (conn->exchange != NULL) {
        exchange_check(conn, conn->exchange);
    }
    ASSERT(!conn->is_awaited || conn->state == CONN_CLOSING);     /* CN3 */
    ASSERT((conn->state == CONN_MOVING) == (conn->prev == NULL)); /* CN9 */
    if (conn->state == CONN_MOVING) {
        ASSERT(conn->exchange == NULL && conn->in == NULL); /* CN9 */
        ASSERT(conn->out == NULL && conn->sending == NULL); /* CN9 */
        ASSERT(!conn->is_ready && !conn->is_later);         /* CN9 */
        ASSERT(conn->deadline.prev == NULL);                /* CN9 */
    }
    ASSERT(conn->in == NULL || conn->in->start <= conn->in->at); /* CN4 */
    ASSERT(conn->in == NULL || conn->in->at <= conn->in->len);   /* CN4 */
    ASSERT(conn->in == NULL || conn->in->len <= conn->in->cap);  /* CN4 */
    ASSERT((conn->sending != NULL) == (conn->stream.write != NULL) || conn->stream.is_closing);
}

bool conn_is_at_rest(const struct conn *conn)
{
    return conn->state == CONN_IDLE && conn->sending == NULL && conn->exchange == NULL &&
           conn->in == NULL && conn->out == NULL && !conn->is_ready && !conn->is_later;
}

/* At the end of conn_advance, when nothing more can be done for now. */
static void conn_check_rest(const struct conn *conn)
{
    conn_check(conn);
    if (conn->state == CONN_IDLE && conn->sending == NULL) {
        ASSERT(conn->exchange == NULL); /* CN1 */
        ASSERT(conn->in == NULL);       /* CN1 */
        ASSERT(conn->out == NULL);      /* CN1 */
    }
    if (is_with_handler(conn) && conn->exchange->wants_drained) {
        ASSERT(conn->sending != NULL || conn->is_later); /* CN6 */
    }
}

/* ------------------------------------------------------------------------------- the way out -- */

struct outbox *conn_out(struct conn *conn)
{
    if (conn->out == NULL) {
        conn->out = outbox_take(conn->worker);
    }
    return conn->out;
}

/* An answer whose head has not ended stays, and so does everything before it. */
static bool holds_back(const struct conn *conn)
{
    return conn->state < CONN_STREAMED && conn->exchange != NULL && conn->exchange->is_begun &&
           !conn->exchange->is_streaming;
}

static enum net_sent conn_send(struct conn *conn)
{
    struct outbox *out = conn->out;
    struct slice pieces[] = {buf_view(&out->buf), out->tail};
    out->total = pieces[0].len + pieces[1].len;
    conn->out = NULL;
    enum net_sent sent = net_stream_send(&conn->stream, &out->write, pieces, 2);
    stat_add(&conn->worker->stats.bytes_out, sent == NET_BROKEN ? 0 : out->total);
    if (sent == NET_SENDING) {
        conn->sending = out;
        conn->sending_ms = now_of(conn);
        conn->unsent = net_stream_unsent(&conn->stream);
    } else {
        outbox_return(conn->worker, out);
    }
    return sent;
}

/* True: nothing is left to send. False: it is being sent, or the connection is closing. */
static bool conn_flush(struct conn *conn)
{
    if (conn->state == CONN_CLOSING || conn->sending != NULL) {
        return false;
    }
    if (conn->out == NULL || holds_back(conn)) {
        return true;
    }
    enum net_sent sent = conn_send(conn);
    if (sent == NET_BROKEN) {
        conn_close(conn);
    }
    return sent == NET_SENT;
}

bool conn_push(struct conn *conn)
{
    if (conn->sending != NULL || conn->out == NULL) {
        return true;
    }
    if (conn->turn != conn->worker->turns) {
        conn->turn = conn->worker->turns;
        conn->turn_bytes = 0;
    }
    conn->turn_bytes += conn->out->buf.len;
    return conn_send(conn) != NET_BROKEN;
}

bool conn_has_room(const struct conn *conn)
{
    bool is_tired = conn->turn == conn->worker->turns && conn->turn_bytes > SERVE_TURN_BYTES;
    size_t waiting = (conn->out == NULL ? 0 : conn->out->buf.len) +
                     (conn->sending == NULL ? 0 : conn->sending->total);
    return waiting <= SERVE_FLUSH_BYTES && !is_tired;
}

static void on_wrote(struct net_stream *stream, bool is_whole)
{
    struct conn *conn = conn_of(stream);
    outbox_return(conn->worker, conn->sending);
    conn->sending = NULL;
    if (is_whole) {
        conn_advance(conn);
    } else {
        conn_close(conn);
    }
}

/* ------------------------------------------------------------------------------- the handler -- */

static void conn_take_back(struct conn *conn)
{
    ASSERT(conn->exchange->is_taken);
    conn->exchange->is_taken = false;
    stat_add(&conn->worker->stats.ended, 1);
}

/* -------------------------------------------------------------------------------- the answer -- */

static unsigned refused_class(unsigned status)
{
    switch (status) {
    case 400: return 0;
    case 408: return 1;
    case 413: return 2;
    case 414:
    case 431: return 3;
    case 503: return 4;
    default: return 5;
    }
}

/* BODY: if the handler set cut in begin, it is called: handle will not be. */
static void conn_abandon(struct conn *conn)
{
    struct exchange *exchange = conn->exchange;
    if (conn->state == CONN_BODY && exchange->is_shown && !exchange->is_begun) {
        http_handle cut = exchange->shown.cut;
        exchange->shown.cut = NULL; /* once */
        conn_call(conn, cut);
    }
}

void conn_refuse(struct conn *conn, unsigned status, const char *reason)
{
    ASSERT(conn->state < CONN_HANDLED);
    conn_abandon(conn);
    if (conn->exchange == NULL) {
        conn->exchange = exchange_take(conn->worker);
    }
    if (conn->exchange == NULL) {
        conn_close(conn);
        return;
    }
    conn->exchange->conn = conn;
    stat_add(&conn->worker->stats.refused[refused_class(status)], 1);
    answer_refusal(conn->exchange, status, reason);
}

void conn_ready(struct conn *conn)
{
    if (!conn->is_stepping && !conn->is_ready) {
        conn->is_ready = true;
        conn->ready_next = conn->worker->ready;
        conn->worker->ready = conn;
    }
}

void conn_later(struct conn *conn)
{
    struct worker *worker = conn->worker;
    if (conn->is_later) {
        return;
    }
    bool is_first = worker->later == NULL;
    conn->is_later = true;
    conn->later_next = worker->later;
    worker->later = conn;
    if (is_first) {
        net_loop_post(&worker->loop, &worker->again);
    }
}

void conn_answered(struct conn *conn)
{
    struct worker *worker = conn->worker;
    if (conn->exchange->is_beginning) {
        conn_lend(conn); /* answered at once, but a handler has seen it */
    }
    if (conn->exchange->is_taken) {
        conn_take_back(conn);
    }
    if (conn->state == CONN_CLOSING) {
        if (conn->is_awaited) {
            conn->is_awaited = false;
            server_less(worker, &worker->server->awaited);
        }
        if (conn->is_closed) {
            conn->spent_next = worker->spent;
            worker->spent = conn;
        }
        return;
    }
    ASSERT(conn->state < CONN_ANSWERED); /* one answer a request */
    conn->exchange->wants_drained = false;
    conn_move(conn, CONN_ANSWERED);
    conn_ready(conn);
}

void conn_streams(struct conn *conn)
{
    if (conn->state == CONN_HANDLED) {
        conn_move(conn, CONN_STREAMED);
    }
    conn_ready(conn);
}

void conn_cut(struct conn *conn, unsigned status, const char *reason)
{
    struct exchange *exchange = conn->exchange;
    ASSERT(conn->state == CONN_PIECES);
    conn_take_back(conn);
    conn_call(conn, exchange->shown.cut);
    ASSERT(conn->state == CONN_PIECES); /* the handler no longer uses it */
    if (!exchange->is_begun) {
        conn_refuse(conn, status, reason);
        return;
    }
    if (holds_back(conn) && !exchange->is_failed) {
        conn->out->buf.len = exchange->put.start; /* not even its head goes out */
    }
    exchange->is_broken_off = !exchange->shown.is_switching;
    exchange->closes = true;
    conn_answered(conn);
}

/* If only the connection's end marks the end of an answer, this must not look like that end. */
static void conn_break(struct conn *conn)
{
    uv_os_fd_t fd;
    struct linger none = {.l_onoff = 1, .l_linger = 0};
    if (conn->exchange->framing == STREAM_CLOSE && uv_fileno(&conn->stream.uv.handle, &fd) == 0) {
        /* This has no effect on a Unix socket: it has no reset, so the client cannot notice. */
        (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof none);
        conn->stream.is_broken = true; /* TLS must not say that this is the end either */
    }
    conn_close(conn);
}

/* After the last answer was sent. What the client still sends would make a close lose the answer:
 * the kernel answers bytes for a closed socket with a reset, which discards what was not read. */
static void conn_end(struct conn *conn)
{
    struct exchange *exchange = conn->exchange;
    if (exchange->is_broken_off) {
        conn_break(conn);
        return;
    }
    bool is_expected = exchange->is_whole && !exchange->head.keep_alive && !conn_has_bytes(conn);
    if (conn->has_ended || is_expected) {
        conn_close(conn);
        return;
    }
    exchange_return(exchange);
    inbox_return(conn->worker, conn->in);
    conn->exchange = NULL;
    conn->in = NULL;
    conn_move(conn, CONN_LINGER);
    net_stream_finish(&conn->stream);
}

static bool step_answered(struct conn *conn)
{
    struct exchange *exchange = conn->exchange;
    bool has_to_flush =
        exchange->closes ||
        (conn->out != NULL && (conn->out->tail.len > 0 || conn->out->buf.len >= SERVE_FLUSH_BYTES));
    if (has_to_flush && !conn_flush(conn)) {
        return false;
    }
    if (exchange->closes) {
        conn_end(conn);
        return false;
    }
    conn->in->start = conn->in->at;
    exchange_clear(exchange);
    conn_move(conn, CONN_IDLE);
    return true;
}

/* True: something changed, step again. */
static bool conn_step(struct conn *conn)
{
    if (conn->sending != NULL && !(conn->state == CONN_PIECES && conn->exchange->is_streaming)) {
        return false; /* CN5 */
    }
    switch ((enum conn_state)conn->state) {
    case CONN_IDLE: return request_idle(conn);
    case CONN_HEAD: return request_head(conn);
    case CONN_BODY: return request_body(conn);
    case CONN_PIECES: return request_pieces(conn);
    case CONN_ANSWERED: return step_answered(conn);
    case CONN_HANDLED:
    case CONN_STREAMED:
    case CONN_LINGER:
    case CONN_MOVING:
    case CONN_CLOSING: return false;
    }
    return false;
}

/* ------------------------------------------------------------------------------ the deadline -- */

/* When the current wait ends; 0: the client is not timed, because it waits for us. */
static uint64_t wait_ends(const struct conn *conn)
{
    const struct http_server_limits *limits = &conn->worker->server->limits;
    if (conn->sending != NULL) {
        return conn->sending_ms + (uint64_t)limits->write_ms_max;
    }
    switch ((enum conn_state)conn->state) {
    case CONN_IDLE:
        return conn->since_ms + (uint64_t)(net_stream_is_ready(&conn->stream)
                                               ? limits->idle_ms_max
                                               : limits->head_ms_max);
    case CONN_HEAD: return conn->since_ms + (uint64_t)limits->head_ms_max;
    case CONN_BODY: return conn->since_ms + (uint64_t)limits->body_ms_max;
    case CONN_PIECES:
        return conn->exchange->is_paused || conn->exchange->shown.is_switching
                   ? 0
                   : conn->since_ms + (uint64_t)limits->body_ms_max;
    case CONN_LINGER: return conn->since_ms + SERVE_LINGER_MS;
    case CONN_HANDLED:
    case CONN_STREAMED:
    case CONN_ANSWERED:
    case CONN_MOVING:
    case CONN_CLOSING: return 0;
    }
    return 0;
}

void conn_arm(struct conn *conn)
{
    uint64_t at_ms = wait_ends(conn);
    if (at_ms == 0) {
        net_deadline_off(&conn->deadline);
    } else {
        net_loop_deadline(&conn->worker->loop, &conn->deadline, at_ms);
    }
}

static bool is_enough(uint64_t bytes, uint64_t ms)
{
    return bytes * 1000 >= SERVE_RATE_BYTES_PER_S * ms;
}

static void sending_due(struct conn *conn, uint64_t now_ms)
{
    uint64_t unsent = net_stream_unsent(&conn->stream);
    if (unsent < conn->unsent && is_enough(conn->unsent - unsent, now_ms - conn->sending_ms)) {
        conn->unsent = unsent;
        conn->sending_ms = now_ms;
        conn_arm(conn);
    } else {
        conn_close(conn);
    }
}

static void body_due(struct conn *conn, uint64_t now_ms)
{
    static const char reason[] = "the body took too long: body_timeout is over";
    struct exchange *exchange = conn->exchange;
    bool is_counted = exchange->is_spilled || conn->state == CONN_PIECES;
    uint64_t bytes = is_counted ? exchange->body.total : conn->in->len - conn->in->at;
    if (conn->state == CONN_PIECES && (exchange->is_paused || exchange->shown.is_switching)) {
        return; /* CN7: since it was armed */
    }
    if (is_enough(bytes - conn->progress, now_ms - conn->since_ms)) {
        conn->progress = bytes;
        conn->since_ms = now_ms;
        conn_arm(conn);
    } else if (conn->state == CONN_PIECES) {
        conn_cut(conn, 408, reason);
    } else {
        conn_refuse(conn, 408, reason);
    }
}

void conn_due(struct net_deadline *deadline, uint64_t now_ms)
{
    struct conn *conn = CONTAINER_OF(deadline, struct conn, deadline);
    if (conn->sending != NULL) {
        sending_due(conn, now_ms);
        return;
    }
    switch ((enum conn_state)conn->state) {
    case CONN_IDLE:
    case CONN_LINGER: conn_close(conn); break;
    case CONN_HEAD: conn_refuse(conn, 408, "the head took too long: head_timeout is over"); break;
    case CONN_BODY:
    case CONN_PIECES: body_due(conn, now_ms); break;
    case CONN_HANDLED:
    case CONN_STREAMED:
    case CONN_ANSWERED:
    case CONN_MOVING:
    case CONN_CLOSING: break;
    }
}

/* -------------------------------------------------------------------------------- the way in -- */

/* Bytes of a request may move until a handler has seen them; CN4. */
void conn_compact(struct conn *conn)
{
    struct inbox *in = conn->in;
    memmove(in->data, in->data + in->start, in->len - in->start);
    in->at -= in->start;
    in->len -= in->start;
    in->start = 0;
    if (conn->exchange != NULL && conn->exchange->is_head_done) {
        conn->exchange->head.base = in->data;
    }
}

static bool can_move(const struct conn *conn)
{
    return conn->state < CONN_PIECES && (conn->exchange == NULL || !conn->exchange->is_shown);
}

static struct net_room on_room(struct net_stream *stream)
{
    struct conn *conn = conn_of(stream);
    if (conn->state == CONN_LINGER) {
        return (struct net_room){conn->worker->loop.scratch, NET_SCRATCH_BYTES};
    }
    if (conn->in == NULL) {
        conn->in = inbox_take(conn->worker);
    }
    if (conn->in == NULL || conn->state == CONN_CLOSING) {
        return (struct net_room){NULL, 0};
    }
    struct inbox *in = conn->in;
    if (in->start > 0 && in->cap - in->len < in->cap / 2 && can_move(conn)) {
        conn_compact(conn);
    }
    return (struct net_room){in->data + in->len, in->cap - in->len};
}

static void linger_read(struct conn *conn, size_t bytes)
{
    conn->lingered += (uint32_t)bytes;
    if (conn->lingered > SERVE_LINGER_BYTES_MAX) {
        conn_close(conn);
    }
}

static void conn_input(struct conn *conn)
{
    if (conn->is_stepping) {
        conn->has_input = true; /* decrypted before, and read only now */
    } else if (conn->state < CONN_HANDLED) {
        conn_advance(conn);
    }
}

static void on_bytes(struct conn *conn, size_t bytes)
{
    stat_add(&conn->worker->stats.bytes_in, bytes);
    if (conn->state == CONN_LINGER) {
        linger_read(conn, bytes);
        return;
    }
    conn->in->len += (uint32_t)bytes;
    conn_input(conn);
}

static void on_read(struct net_stream *stream, enum net_got got, size_t bytes)
{
    struct conn *conn = conn_of(stream);
    switch (got) {
    case NET_GOT_BYTES: on_bytes(conn, bytes); break;
    case NET_GOT_NOTHING:
        if (conn->state == CONN_IDLE && !conn->is_stepping && !conn_has_bytes(conn)) {
            inbox_return(conn->worker, conn->in);
            conn->in = NULL;
        }
        break;
    case NET_GOT_NO_ROOM:
        /* Out of memory, and nothing of a request was read: its client would wait for as long as an
         * idle connection may stay. */
        if (conn->in == NULL && conn->state < CONN_HANDLED) {
            conn_close(conn);
        }
        break;
    case NET_GOT_END:
        conn->has_ended = true;
        if (conn->state == CONN_LINGER) {
            conn_close(conn);
        } else {
            conn_input(conn);
        }
        break;
    case NET_GOT_BROKEN: conn_close(conn); break;
    }
}

/* Continue to read if there is room. */
static void conn_read(struct conn *conn)
{
    bool has_room = conn->in == NULL || conn->in->len < conn->in->cap ||
                    (conn->in->start > 0 && can_move(conn));
    if (!conn->has_ended && has_room) {
        net_stream_read(&conn->stream);
    }
}

/* A streamed answer, after a flush: its maker may give more now, or the client is gone. */
static void conn_stream_on(struct conn *conn)
{
    struct exchange *exchange = conn->exchange;
    if (!is_with_handler(conn) || !exchange->is_streaming) {
        return;
    }
    if (exchange->is_failed) {
        conn_close(conn);
        return;
    }
    if (exchange->wants_drained && conn->sending == NULL && !conn->is_later) {
        exchange->wants_drained = false;
        conn->has_input = true; /* what is given now is handled before the turn ends */
        conn_call(conn, exchange->shown.drained);
    }
}

/* Take every step that the received bytes allow; then ask for more. */
static void conn_run(struct conn *conn)
{
    while (conn_step(conn)) {
    }
    (void)conn_flush(conn); /* what is left is being sent, or the connection is closing */
    conn_stream_on(conn);
    bool is_idle = conn->state == CONN_IDLE && conn->sending == NULL;
    if (is_idle && (conn->has_ended || conn->worker->is_draining)) {
        conn_close(conn);
    } else if (is_idle && conn->spread != spread_now(conn->worker->server)) {
        conn_place(conn);
    }
    if (is_here(conn)) {
        conn_read(conn);
    }
}

void conn_advance(struct conn *conn)
{
    ASSERT(!conn->is_stepping);
    conn_check(conn);
    conn->is_stepping = true;
    do {
        conn->has_input = false;
        conn_run(conn);
    } while (conn->has_input && is_here(conn));
    conn->is_stepping = false;
    if (is_here(conn)) {
        conn_arm(conn);
        conn_check_rest(conn);
    }
}

/* ------------------------------------------------------------------------- beginning and end -- */

void conn_close(struct conn *conn)
{
    if (conn->state == CONN_CLOSING) {
        return;
    }
    bool is_cut = conn->state == CONN_PIECES;
    conn->is_awaited = is_with_handler(conn) && !is_cut; /* CN3 */
    atomic_fetch_add(&conn->worker->server->awaited, conn->is_awaited ? 1 : 0);
    conn_abandon(conn);
    conn_move(conn, CONN_CLOSING);
    net_wheel_remove(&conn->worker->loop.wheel, &conn->deadline);
    net_stream_close(&conn->stream);
    if (is_cut) {
        conn->exchange->shown.is_gone = true;
        conn_take_back(conn);
        conn_call(conn, conn->exchange->shown.cut);
    } else if (conn->is_awaited) {
        struct http_exchange *shown = &conn->exchange->shown;
        shown->is_gone = true;
        /* A handler that waits for drained and has no gone hook would wait forever. */
        bool is_owed = conn->exchange->wants_drained && shown->gone == NULL;
        conn->exchange->wants_drained = false;
        conn_call(conn, is_owed ? shown->drained : shown->gone);
    }
}

static void on_closed(struct net_stream *stream)
{
    struct conn *conn = conn_of(stream);
    struct worker *worker = conn->worker;
    conn->is_closed = true;
    stat_add(&worker->stats.closed, 1);
    server_less(worker, &worker->server->open);
    if (!conn->is_awaited) {
        conn->spent_next = worker->spent;
        worker->spent = conn;
    }
}

void conn_recycle(struct conn *conn)
{
    struct worker *worker = conn->worker;
    ASSERT(!conn->is_later);
    conn->prev->next = conn->next;
    conn->next->prev = conn->prev;
    inbox_return(worker, conn->in);
    outbox_return(worker, conn->out);
    outbox_return(worker, conn->sending);
    exchange_return(conn->exchange);
    conn_return(worker, conn);
}

void conn_drain(struct conn *conn)
{
    if (conn->state == CONN_IDLE && conn->sending == NULL && !conn->is_ready) {
        conn_close(conn);
    }
}

const struct net_events conn_events = {
    .room = on_room, .read = on_read, .wrote = on_wrote, .closed = on_closed, .left = conn_left};

void worker_again(struct net_task *task)
{
    struct worker *worker = CONTAINER_OF(task, struct worker, again);
    while (worker->later != NULL) {
        struct conn *conn = worker->later;
        worker->later = conn->later_next;
        conn->is_later = false;
        conn_ready(conn);
    }
}

void worker_ready(struct worker *worker)
{
    worker->turns++;
    while (worker->ready != NULL) {
        struct conn *conn = worker->ready;
        worker->ready = conn->ready_next;
        conn->is_ready = false;
        if (conn->state != CONN_CLOSING) {
            conn_advance(conn);
        }
    }
}

void worker_recycle(struct worker *worker)
{
    while (worker->spent != NULL) {
        struct conn *conn = worker->spent;
        worker->spent = conn->spent_next;
        conn_recycle(conn);
    }
}
