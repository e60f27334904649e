#include "http/serve.h"

#include <errno.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/macros.h"
#include "http/serve_impl.h"

/* --------------------------------------------------------------------------- a loop's worker -- */

static void worker_turn(void *context)
{
    struct worker *worker = context;
    struct http_server *server = worker->server;
    do {
        worker_ready(worker);
        if (worker->has_handled) {
            worker->has_handled = false;
            if (server->turn != NULL) {
                server->turn(server->context, worker->number);
            }
        }
    } while (worker->ready != NULL);
    worker_recycle(worker);
    spread_turn(worker);
}

/* The hook runs at the end of this turn, after the tasks that were posted with this one. */
static void worker_asked(struct net_task *task)
{
    struct worker *worker = CONTAINER_OF(task, struct worker, turn);
    atomic_store(&worker->has_turn, false);
    worker->has_handled = true;
}

void http_server_turn(struct http_server *server, unsigned loop)
{
    ASSERT(loop < server->worker_count);
    struct worker *worker = &server->workers[loop];
    if (!atomic_exchange(&worker->has_turn, true)) {
        net_loop_post(&worker->loop, &worker->turn);
    }
}

static void worker_watched(void *context)
{
    struct worker *worker = context;
    worker->has_handled = true;
}

bool http_server_watch(struct http_server *server, unsigned loop, int fd)
{
    ASSERT(loop < server->worker_count);
    return net_loop_watch(&server->workers[loop].loop, fd, worker_watched);
}

void server_less(struct worker *worker, atomic_uint *count)
{
    struct http_server *server = worker->server;
    if (atomic_fetch_sub(count, 1) == 1 && worker->is_draining) {
        pthread_mutex_lock(&server->lock);
        pthread_cond_broadcast(&server->changed);
        pthread_mutex_unlock(&server->lock);
    }
}

static void step_done(struct http_server *server)
{
    pthread_mutex_lock(&server->lock);
    atomic_fetch_add(&server->drain_steps, 1);
    pthread_cond_broadcast(&server->changed);
    pthread_mutex_unlock(&server->lock);
}

static void worker_stop(struct net_task *task)
{
    struct worker *worker = CONTAINER_OF(task, struct worker, stop);
    worker->is_draining = true;
    for (unsigned i = 0; i < worker->server->listener_count; i++) {
        net_listener_close(&worker->listeners[i]);
    }
    for (struct conn *at = worker->conns.next; at != &worker->conns; at = at->next) {
        conn_drain(at);
    }
    step_done(worker->server);
}

static void worker_cut_off(struct net_task *task)
{
    struct worker *worker = CONTAINER_OF(task, struct worker, cut_off);
    for (struct conn *at = worker->conns.next; at != &worker->conns; at = at->next) {
        bool is_done = at->sending == NULL && (at->state == CONN_IDLE || at->state == CONN_LINGER ||
                                                  (at->state == CONN_CLOSING && !at->is_awaited));
        atomic_fetch_add(&worker->cut, is_done ? 0 : 1);
        conn_close(at);
    }
    step_done(worker->server);
}

static void worker_end(struct net_task *task)
{
    struct worker *worker = CONTAINER_OF(task, struct worker, end);
    for (unsigned i = 0; i < worker->server->listener_count; i++) {
        net_listener_close(&worker->listeners[i]);
    }
    for (struct conn *at = worker->conns.next; at != &worker->conns; at = at->next) {
        conn_close(at);
    }
    if (worker->server->end != NULL) {
        worker->server->end(worker->server->context, worker->number);
    }
    net_loop_close(&worker->loop);
}

static enum status worker_init(
    struct worker *worker, struct http_server *server, unsigned number, struct err *err)
{
    worker->server = server;
    worker->number = number;
    worker->conns.prev = &worker->conns;
    worker->conns.next = &worker->conns;
    worker->stop.run = worker_stop;
    worker->cut_off.run = worker_cut_off;
    worker->end.run = worker_end;
    worker->again.run = worker_again;
    worker->turn.run = worker_asked;
    enum status status = net_loop_init(&worker->loop, server->mem, err);
    if (status == OK) {
        worker->loop.turn = worker_turn;
        worker->loop.context = worker;
    }
    return status;
}

static void worker_release(struct worker *worker)
{
    net_loop_post(&worker->loop, &worker->end);
    net_loop_release(&worker->loop);
    /* Exchanges that were never answered are freed with the server: no handler may touch them now.
     * */
    for (struct conn *at = worker->conns.next, *next = NULL; at != &worker->conns; at = next) {
        next = at->next;
        ASSERT(at->is_closed);
        conn_recycle(at);
    }
    pools_release(worker);
}

/* -------------------------------------------------------------------------------- the server -- */

static int64_t or_default(int64_t value, int64_t otherwise)
{
    return value > 0 ? value : otherwise;
}

static void fill_limits(struct http_server_limits *limits)
{
    static const struct http_limits none;
    if (memcmp(&limits->message, &none, sizeof none) == 0) {
        limits->message = HTTP_LIMITS_DEFAULT;
    }
    limits->connections_max = limits->connections_max == 0 ? 10000 : limits->connections_max;
    limits->in_flight_bytes_max_mib =
        limits->in_flight_bytes_max_mib == 0 ? 256 : limits->in_flight_bytes_max_mib;
    limits->head_ms_max = or_default(limits->head_ms_max, 10000);
    limits->body_ms_max = or_default(limits->body_ms_max, 30000);
    limits->idle_ms_max = or_default(limits->idle_ms_max, 75000);
    limits->write_ms_max = or_default(limits->write_ms_max, 30000);
}

static enum status server_init(struct http_server *server, unsigned loops, struct err *err)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    server->worker_count = loops > 0 ? loops : cores > 0 ? (unsigned)cores : 1;
    server->workers = mem_zalloc(server->mem, server->worker_count, sizeof *server->workers);
    server->busy_ns = mem_zalloc(server->mem, server->worker_count, sizeof *server->busy_ns);
    if (server->workers == NULL || server->busy_ns == NULL) {
        return err_set(err, E_NOMEM, "out of memory");
    }
    for (unsigned i = 0; i < server->worker_count; i++) {
        enum status status = worker_init(&server->workers[i], server, i, err);
        if (status != OK) {
            return status;
        }
        server->ready_count++;
    }
    spread_init(server);
    return OK;
}

enum status http_server_new(
    const struct http_server_options *options, struct http_server **ret_server, struct err *err)
{
    ASSERT(options->handle != NULL);
    const struct mem *mem = options->mem == NULL ? &mem_libc : options->mem;
    struct http_server *server = mem_zalloc(mem, 1, sizeof *server);
    if (server == NULL) {
        return err_set(err, E_NOMEM, "out of memory");
    }
    server->mem = mem;
    server->limits = options->limits;
    server->begin = options->begin;
    server->handle = options->handle;
    server->turn = options->turn;
    server->fill = options->fill;
    server->context = options->context;
    server->follows_load = options->follows_load;
    fill_limits(&server->limits);
    server->inbox_bytes = server->limits.message.head_bytes_max + SERVE_BUFFER_EXTRA;
    clock_system(&server->clock);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&server->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&server->lock, NULL);
    enum status status = server_init(server, options->loops, err);
    if (status != OK) {
        http_server_free(server);
        return status;
    }
    server->end = options->end; /* not before: nothing lives yet on the loops of a failed server */
    *ret_server = server;
    return OK;
}

static void on_accepted(struct net_listener *listener, int fd, struct slice peer)
{
    struct worker *worker = listener->owner;
    conn_accept(worker, (unsigned)(listener - worker->listeners), fd, peer);
}

static enum status listen_on(struct http_server *server, unsigned number, struct worker *worker,
    unsigned mode, struct err *err)
{
    struct server_listener *shared = &server->listeners[number];
    struct net_listener *listener = &worker->listeners[number];
    int fd = -1;
    enum status status = net_listen_fd(&shared->address, !shared->is_bound, mode, &fd, err);
    if (status != OK) {
        return status;
    }
    shared->is_bound = true;
    listener->owner = worker;
    listener->accepted = on_accepted;
    listener->is_unix = shared->address.is_unix;
    status = net_listener_open(listener, &worker->loop, fd, err);
    if (status != OK) {
        (void)close(fd); /* no connection was accepted */
    }
    return status;
}

static void unlisten(struct http_server *server, unsigned number)
{
    struct server_listener *shared = &server->listeners[number];
    for (unsigned i = 0; i < server->ready_count; i++) {
        net_listener_close(&server->workers[i].listeners[number]);
    }
    if (shared->is_bound && shared->address.is_unix) {
        (void)unlink(shared->address.socket.un.sun_path); /* one that stays is found stale */
    }
    net_tls_context_free(shared->tls);
    *shared = (struct server_listener){.is_bound = false};
}

enum status http_server_listen(struct http_server *server, const char *address, unsigned mode,
    const struct http_tls_options *tls, unsigned *ret_listener, const char **ret_text,
    struct err *err)
{
    ASSERT(!server->is_started);
    unsigned number = server->listener_count;
    if (number == SERVE_LISTENERS_MAX) {
        return err_limit(err, ERR_LIMIT_LISTENERS, "cannot listen on '%s': more than %d addresses",
            address, SERVE_LISTENERS_MAX);
    }
    struct server_listener *shared = &server->listeners[number];
    enum status status = net_address_parse(address, &shared->address, err);
    if (status == OK && tls != NULL && tls->cert_file != NULL) {
        status = net_tls_context_new(server->mem, tls->cert_file, tls->key_file, &shared->tls, err);
    }
    /* The loops that do not serve accept nothing: so one that always serves accepts for all. */
    unsigned workers = shared->address.is_unix || server->follows_load ? 1 : server->worker_count;
    unsigned first = server->follows_load ? 0 : number;
    for (unsigned i = 0; status == OK && i < workers; i++) {
        unsigned which = (first + i) % server->worker_count;
        status = listen_on(server, number, &server->workers[which], mode, err);
    }
    if (status != OK) {
        unlisten(server, number);
        return status;
    }
    server->listener_count++;
    *ret_listener = number;
    *ret_text = shared->address.text;
    return OK;
}

struct net_loop *http_server_loop(struct http_server *server, unsigned loop)
{
    ASSERT(loop < server->worker_count);
    return &server->workers[loop].loop;
}

enum status http_server_start(struct http_server *server, struct err *err)
{
    ASSERT(!server->is_started);
    for (unsigned i = 0; i < server->worker_count; i++) {
        enum status status = net_loop_start(&server->workers[i].loop, err);
        if (status != OK) {
            return status;
        }
    }
    server->is_started = true;
    return OK;
}

enum status http_server_tls_load(struct http_server *server, struct err *err)
{
    enum status status = OK;
    for (unsigned i = 0; status == OK && i < server->listener_count; i++) {
        if (server->listeners[i].tls != NULL) {
            status = net_tls_context_load(server->listeners[i].tls, err);
        }
    }
    return status;
}

void http_server_tls_switch(struct http_server *server, bool is_used)
{
    for (unsigned i = 0; i < server->listener_count; i++) {
        if (server->listeners[i].tls != NULL) {
            net_tls_context_switch(server->listeners[i].tls, is_used);
        }
    }
}

/* ----------------------------------------------------------------------------------- the end -- */

static struct timespec after(int64_t ms)
{
    struct timespec at;
    int rc = clock_gettime(CLOCK_MONOTONIC, &at);
    ASSERT(rc == 0);
    at.tv_sec += ms / 1000;
    at.tv_nsec += ms % 1000 * 1000000;
    at.tv_sec += at.tv_nsec / 1000000000;
    at.tv_nsec %= 1000000000;
    return at;
}

/* Waits until all workers have done that many steps and no client is connected, or the time is
 * over. With a time, it also waits for requests of clients that have gone: they may still take
 * effect. */
static void wait_closed(struct http_server *server, unsigned steps, const struct timespec *until)
{
    int rc = 0;
    unsigned wanted = steps * server->worker_count;
    pthread_mutex_lock(&server->lock);
    while (
        rc == 0 && !(until != NULL && server->is_hurried) &&
        (atomic_load(&server->open) > 0 || (until != NULL && atomic_load(&server->awaited) > 0) ||
            atomic_load(&server->drain_steps) < wanted)) {
        rc = until == NULL ? pthread_cond_wait(&server->changed, &server->lock)
                           : pthread_cond_timedwait(&server->changed, &server->lock, until);
    }
    pthread_mutex_unlock(&server->lock);
}

void http_server_hurry(struct http_server *server)
{
    pthread_mutex_lock(&server->lock);
    server->is_hurried = true;
    pthread_cond_broadcast(&server->changed);
    pthread_mutex_unlock(&server->lock);
}

bool http_server_is_hurried(struct http_server *server)
{
    (void)pthread_mutex_lock(&server->lock);
    bool is_hurried = server->is_hurried;
    (void)pthread_mutex_unlock(&server->lock);
    return is_hurried;
}

bool http_server_drain(struct http_server *server, int64_t ms_max)
{
    uint64_t cut = 0;
    struct timespec until = after(ms_max > 0 ? ms_max : 0);
    ASSERT(!server->is_drained);
    server->is_drained = true;
    if (!server->is_started) {
        return true;
    }
    atomic_store(&server->is_draining, true);
    for (unsigned i = 0; i < server->worker_count; i++) {
        net_loop_post(&server->workers[i].loop, &server->workers[i].stop);
    }
    wait_closed(server, 1, &until);
    for (unsigned i = 0; i < server->worker_count; i++) {
        net_loop_post(&server->workers[i].loop, &server->workers[i].cut_off);
    }
    wait_closed(server, 2, NULL);
    for (unsigned i = 0; i < server->worker_count; i++) {
        cut += atomic_load(&server->workers[i].cut);
    }
    return cut == 0;
}

void http_server_free(struct http_server *server)
{
    if (server == NULL) {
        return;
    }
    if (server->is_started && !server->is_drained) {
        (void)http_server_drain(server, 0); /* the caller did not care to know */
    }
    for (unsigned i = 0; i < server->ready_count; i++) {
        worker_release(&server->workers[i]);
    }
    for (unsigned i = 0; i < server->listener_count; i++) {
        unlisten(server, i);
    }
    pthread_cond_destroy(&server->changed);
    pthread_mutex_destroy(&server->lock);
    mem_free(server->mem, server->workers);
    mem_free(server->mem, server->busy_ns);
    mem_free(server->mem, server);
}

static int64_t first_expiry(struct http_server *server)
{
    int64_t first = 0;
    for (unsigned i = 0; i < server->listener_count; i++) {
        struct net_tls_context *tls = server->listeners[i].tls;
        int64_t expiry = tls == NULL ? 0 : net_tls_context_expiry(tls);
        first = expiry > 0 && (first == 0 || expiry < first) ? expiry : first;
    }
    return first;
}

void http_server_stats(struct http_server *server, struct http_server_stats *ret_stats)
{
    struct http_server_stats sum = {
        .open = atomic_load(&server->open), .loops_serving = spread_serving(server)};
    uint64_t ended = 0;
    for (unsigned i = 0; i < server->worker_count; i++) {
        struct worker_stats *stats = &server->workers[i].stats;
        ended += atomic_load_explicit(&stats->ended, memory_order_relaxed);
        sum.accepted += atomic_load_explicit(&stats->accepted, memory_order_relaxed);
        sum.moved += atomic_load_explicit(&stats->moved, memory_order_relaxed);
        sum.requests += atomic_load_explicit(&stats->begun, memory_order_relaxed);
        sum.bytes_in += atomic_load_explicit(&stats->bytes_in, memory_order_relaxed);
        sum.bytes_out += atomic_load_explicit(&stats->bytes_out, memory_order_relaxed);
        for (unsigned k = 0; k < 6; k++) {
            sum.refused[k] += atomic_load_explicit(&stats->refused[k], memory_order_relaxed);
        }
    }
    sum.in_flight = sum.requests > ended ? sum.requests - ended : 0;
    sum.certificate_expiry = first_expiry(server);
    *ret_stats = sum;
}
