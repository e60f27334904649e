#include <unistd.h>

#include "base/check.h"
#include "base/macros.h"
#include "http/serve_impl.h"

/*
 * Which loops serve, and which one a connection belongs to.
 *
 * The first loops serve, as many as width.h says. When that changes, each connection is placed once
 * more, after its next request: on the loops that serve, in turn. So those that are in use are
 * spread evenly, however many others are open, and those that are not cost nothing.
 *
 * server->spread has the number of changes and the number that serves in one word, so that a
 * connection sees with one load whether there was a change. Without follows_load it never changes.
 */

enum { SERVING_BITS = 12, SERVING_MASK = (1 << SERVING_BITS) - 1 };

unsigned spread_serving(const struct http_server *server)
{
    return spread_now(server) & SERVING_MASK;
}

void spread_set(struct http_server *server, unsigned serving)
{
    ASSERT(serving > 0 && serving <= server->worker_count);
    ASSERT(server->follows_load);
    unsigned changes = atomic_load(&server->spread) >> SERVING_BITS;
    atomic_store(&server->spread, (changes + 1) << SERVING_BITS | serving);
}

/* The loop for a connection that has to be placed. */
static struct worker *spread_next(struct http_server *server)
{
    unsigned serving = spread_serving(server);
    unsigned next = serving == 1 ? 0 : atomic_fetch_add(&server->next_worker, 1) % serving;
    return &server->workers[next];
}

/* ---------------------------------------------------------------------- a connection's loop -- */

/* False: it stays where it is. */
static bool conn_leave(struct conn *conn, struct worker *to)
{
    ASSERT(conn_is_at_rest(conn)); /* CN9 */
    if (!net_stream_leave(&conn->stream)) {
        return false;
    }
    conn->prev->next = conn->next;
    conn->next->prev = conn->prev;
    conn->prev = NULL;
    net_wheel_remove(&conn->worker->loop.wheel, &conn->deadline);
    conn_move(conn, CONN_MOVING);
    conn->worker = to;
    return true;
}

void conn_left(struct net_stream *stream)
{
    struct conn *conn = CONTAINER_OF(stream, struct conn, stream);
    conn_check(conn);
    net_loop_post(&conn->worker->loop, &conn->arrival);
}

void conn_place(struct conn *conn)
{
    struct http_server *server = conn->worker->server;
    unsigned spread = spread_now(server);
    if (!conn_is_at_rest(conn)) {
        return; /* a list of its loop has it, and leads here again */
    }
    struct worker *to = spread_next(server);
    if (to == conn->worker || conn_leave(conn, to)) {
        conn->spread = spread;
    }
}

static void conn_link(struct worker *worker, struct conn *conn)
{
    conn->prev = worker->conns.prev;
    conn->next = &worker->conns;
    conn->prev->next = conn;
    worker->conns.prev = conn;
}

/* On the loop of conn->worker. */
static void conn_arrive(struct conn *conn)
{
    struct worker *worker = conn->worker;
    const struct server_listener *from = &worker->server->listeners[conn->listener];
    bool is_new = conn->is_new;
    conn_check(conn);
    conn_link(worker, conn);
    conn_move(conn, CONN_IDLE);
    conn->is_new = false;
    conn->turn_bytes = 0; /* each loop has its own numbers for its turns */
    stat_add(&worker->stats.moved, is_new ? 0 : 1);
    enum status status = is_new ? net_stream_open(&conn->stream, &worker->loop, conn->stream.fd,
                                      from->address.is_unix, from->tls, &conn_events)
                                : net_stream_arrive(&conn->stream, &worker->loop);
    if (status != OK || worker->is_draining) {
        conn_close(conn);
        return;
    }
    if (conn->is_over) {
        conn_refuse(conn, 503, "too many connections: connections_max is reached");
        return;
    }
    conn_arm(conn);
    net_stream_read(&conn->stream);
}

static void on_arrival(struct net_task *task)
{
    conn_arrive(CONTAINER_OF(task, struct conn, arrival));
}

static bool is_hopeless(const struct http_server *server, unsigned listener, unsigned open)
{
    uint32_t max = server->limits.connections_max;
    return open >= max && (server->listeners[listener].tls != NULL || open >= max + SERVE_OVER_MAX);
}

/* NULL: without memory, or above the limit by so much that it is not even refused. */
static struct conn *conn_new(struct worker *worker, unsigned listener)
{
    struct http_server *server = worker->server;
    /* The exchange of a client that has gone holds as much as a connection does. */
    unsigned open = atomic_fetch_add(&server->open, 1) + atomic_load(&server->awaited);
    bool may_serve = !is_hopeless(server, listener, open);
    struct conn *conn = may_serve ? conn_take(worker) : NULL;
    stat_add(&worker->stats.accepted, 1);
    if (conn == NULL) {
        stat_add(&worker->stats.closed, 1);
        stat_add(&worker->stats.refused[4], may_serve ? 0 : 1);
        server_less(worker, &server->open);
        return NULL;
    }
    conn->is_over = open >= server->limits.connections_max;
    return conn;
}

void conn_accept(struct worker *worker, unsigned listener, int fd, struct slice peer)
{
    struct http_server *server = worker->server;
    struct conn *conn = conn_new(worker, listener);
    if (conn == NULL) {
        (void)close(fd); /* nothing was written to it */
        return;
    }
    bool is_alone = server->follows_load || server->listeners[listener].address.is_unix;
    conn->spread = spread_now(server);
    conn->worker = is_alone ? spread_next(server) : worker;
    conn->is_new = true;
    conn->arrival.run = on_arrival;
    conn->deadline.due = conn_due;
    conn->listener = (uint16_t)listener;
    conn->stream.fd = fd;
    conn->peer_len = (uint8_t)peer.len;
    memcpy(conn->peer, peer.data, peer.len);
    if (conn->worker == worker) {
        conn_arrive(conn);
    } else {
        net_loop_post(&conn->worker->loop, &conn->arrival);
    }
}

/* ---------------------------------------------------------------------------- how many serve -- */

static void sample_again(struct http_server *server)
{
    struct net_loop *first = &server->workers[0].loop;
    if (spread_serving(server) > 1 && !server->workers[0].is_draining) {
        net_loop_deadline(first, &server->sampler, net_loop_now(first) + SERVE_SAMPLE_MS);
    }
}

/* Ends the wait; the turn that follows takes the sample. */
static void sample_due(struct net_deadline *deadline, uint64_t now_ms)
{
    (void)now_ms;
    sample_again(CONTAINER_OF(deadline, struct http_server, sampler));
}

/* How long a loop was busy since the last sample, or as good as busy, because what it has a limit
 * of is in use, and its requests would wait. */
static uint64_t busy_since(struct http_server *server, unsigned loop, uint64_t took_ns)
{
    uint64_t was_ns = server->busy_ns[loop];
    uint64_t is_ns = net_loop_busy(&server->workers[loop].loop);
    unsigned fill = server->fill == NULL ? 0 : server->fill(server->context, loop);
    uint64_t busy_ns = is_ns > was_ns ? is_ns - was_ns : 0;
    uint64_t filled_ns = took_ns / 100 * fill;
    server->busy_ns[loop] = is_ns;
    return filled_ns > busy_ns ? filled_ns : busy_ns;
}

static void sample(struct http_server *server)
{
    struct width *width = &server->width;
    unsigned serving = width->serving;
    uint64_t now_ns = clock_nanos();
    for (unsigned i = 0; i < server->worker_count; i++) {
        uint64_t busy_ns = busy_since(server, i, now_ns - width->at_ns);
        if (i < serving) {
            width_took(width, busy_ns);
        }
    }
    unsigned wanted = width_sampled(width, now_ns);
    if (wanted != serving) {
        spread_set(server, wanted);
        sample_again(server);
    }
}

/* While one loop serves, its own turns are enough: without turns it is not busy. */
void spread_turn(struct worker *worker)
{
    struct http_server *server = worker->server;
    uint64_t now_ms = net_loop_now(&worker->loop);
    if (worker->number == 0 && server->follows_load && !worker->is_draining &&
        now_ms - server->sampled_ms >= SERVE_SAMPLE_MS) {
        server->sampled_ms = now_ms;
        sample(server);
    }
}

void spread_init(struct http_server *server)
{
    server->follows_load = server->follows_load && server->worker_count > 1;
    server->sampler.due = sample_due;
    width_init(&server->width, server->worker_count);
    atomic_store(&server->spread, server->follows_load ? 1 : server->worker_count);
}
