#include "http/upstream.h"

#include <stdio.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/macros.h"
#include "http/upstream_impl.h"

/* The diagrams, the transitions and what holds are at enum call_state (upstream_impl.h). */

/* ------------------------------------------------------------------------------------- pools -- */

static struct upstream_exchange *exchange_new(const struct mem *mem)
{
    struct upstream_exchange *exchange = mem_zalloc(mem, 1, sizeof *exchange);
    if (exchange != NULL) {
        exchange->deadline.due = upstream_call_due;
        buf_init(&exchange->put, mem, UPSTREAM_PUT_BYTES_MAX);
        buf_init(&exchange->sending, mem, UPSTREAM_PUT_BYTES_MAX);
    }
    return exchange;
}

static struct upstream_exchange *exchange_take(struct upstream_worker *worker)
{
    struct upstream_exchange *exchange = worker->exchanges;
    if (exchange == NULL) {
        return exchange_new(worker->upstream->mem);
    }
    worker->exchanges = exchange->next;
    worker->exchange_count--;
    exchange->next = NULL;
    return exchange;
}

static void buf_keep(struct buf *buf)
{
    size_t max = buf->max;
    const struct mem *mem = buf->mem;
    if (buf->cap > UPSTREAM_KEPT_BYTES_MAX) {
        buf_release(buf);
        buf_init(buf, mem, max);
    }
    buf_clear(buf);
}

static void exchange_free(const struct mem *mem, struct upstream_exchange *exchange)
{
    buf_release(&exchange->put);
    buf_release(&exchange->sending);
    mem_free(mem, exchange);
}

static void exchange_return(struct upstream_worker *worker, struct upstream_exchange *exchange)
{
    if (worker->exchange_count >= UPSTREAM_POOLED_MAX) {
        exchange_free(worker->upstream->mem, exchange);
        return;
    }
    buf_keep(&exchange->put);
    buf_keep(&exchange->sending);
    exchange->next = worker->exchanges;
    worker->exchanges = exchange;
    worker->exchange_count++;
}

struct upstream_inbox *upstream_inbox_take(struct upstream_worker *worker)
{
    struct upstream_inbox *inbox = worker->inboxes;
    if (inbox == NULL) {
        inbox = mem_alloc(worker->upstream->mem, sizeof *inbox);
    } else {
        worker->inboxes = inbox->next;
        worker->inbox_count--;
    }
    if (inbox != NULL) {
        inbox->next = NULL;
        inbox->at = 0;
        inbox->len = 0;
    }
    return inbox;
}

void upstream_inbox_return(struct upstream_worker *worker, struct upstream_inbox *inbox)
{
    if (inbox != NULL && worker->inbox_count >= UPSTREAM_POOLED_MAX) {
        mem_free(worker->upstream->mem, inbox);
    } else if (inbox != NULL) {
        inbox->next = worker->inboxes;
        worker->inboxes = inbox;
        worker->inbox_count++;
    }
}

static void pools_release(struct upstream_worker *worker)
{
    const struct mem *mem = worker->upstream->mem;
    while (worker->exchanges != NULL) {
        struct upstream_exchange *exchange = worker->exchanges;
        worker->exchanges = exchange->next;
        exchange_free(mem, exchange);
    }
    while (worker->inboxes != NULL) {
        struct upstream_inbox *inbox = worker->inboxes;
        worker->inboxes = inbox->next;
        mem_free(mem, inbox);
    }
}

/* ------------------------------------------------------------------------------------ a call -- */

void upstream_call_check(const struct upstream_call *call)
{
    const struct upstream_exchange *exchange = call->exchange;
    ASSERT((exchange != NULL) == (call->state != CALL_DONE));         /* UV1 */
    ASSERT(exchange == NULL || exchange->call == call);               /* UV1 */
    ASSERT((call->conn != NULL) == (call->state >= CALL_CONNECTING)); /* UV2 */
    ASSERT(call->conn == NULL || call->conn->call == call);           /* UV2 */
}

/* Every change of state. */
void upstream_call_move(struct upstream_call *call, enum call_state state)
{
    static const unsigned nexts[] = {
        [CALL_DONE] = 1u << CALL_WAITING,
        [CALL_WAITING] = 1u << CALL_CONNECTING | 1u << CALL_HEAD | 1u << CALL_DONE,
        [CALL_CONNECTING] = 1u << CALL_HEAD | 1u << CALL_WAITING | 1u << CALL_DONE,
        [CALL_HEAD] = 1u << CALL_BODY | 1u << CALL_WAITING | 1u << CALL_DONE,
        [CALL_BODY] = 1u << CALL_DONE,
    };
    ASSERT((nexts[call->state] & 1u << state) != 0);
    call->state = state;
    if (state != CALL_DONE) {
        call->exchange->since_ms = upstream_now(upstream_worker_of(call));
    }
}

enum upstream_point upstream_call_point(const struct upstream_call *call)
{
    if (call->state == CALL_BODY) {
        return UPSTREAM_HEAD;
    }
    if (call->state == CALL_HEAD &&
        call->conn->stream.given != call->exchange->given_before) { /* UP2 */
        return UPSTREAM_SENT;
    }
    return UPSTREAM_NOT_SENT;
}

static void queue_add(struct upstream_worker *worker, struct upstream_call *call, bool is_first)
{
    call->prev = is_first ? NULL : worker->last;
    call->next = is_first ? worker->first : NULL;
    *(call->prev == NULL ? &worker->first : &call->prev->next) = call;
    *(call->next == NULL ? &worker->last : &call->next->prev) = call;
    call->is_queued = true;
    worker->waiting++;
    upstream_count(&worker->stats.waiting, 1);
}

static void queue_remove(struct upstream_worker *worker, struct upstream_call *call)
{
    if (!call->is_queued) {
        return;
    }
    *(call->prev == NULL ? &worker->first : &call->prev->next) = call->next;
    *(call->next == NULL ? &worker->last : &call->next->prev) = call->prev;
    call->prev = NULL;
    call->next = NULL;
    call->is_queued = false;
    worker->waiting--;
    upstream_count(&worker->stats.waiting, (uint64_t)-1);
}

/* Only the call's exchange is left here; the caller returns it. */
static struct upstream_exchange *call_done(struct upstream_call *call)
{
    struct upstream_worker *worker = upstream_worker_of(call);
    struct upstream_exchange *exchange = call->exchange;
    struct upstream_conn *conn = call->conn;
    queue_remove(worker, call);
    net_wheel_remove(&worker->loop->wheel, &exchange->deadline);
    call->exchange = NULL;
    call->conn = NULL;
    exchange->call = NULL;
    upstream_call_move(call, CALL_DONE);
    if (conn != NULL) {
        conn->call = NULL;
        upstream_conn_close(conn);
    }
    upstream_call_check(call);
    return exchange;
}

static void call_give_up(struct upstream_call *call)
{
    struct upstream_worker *worker = upstream_worker_of(call);
    enum upstream_point point = upstream_call_point(call);
    upstream_count(&worker->stats.failed[point], 1);
    struct upstream_exchange *exchange = call_done(call);
    call->events->failed(call, point, exchange->cause, &exchange->err);
    exchange_return(worker, exchange);
    upstream_wake_waiting(worker);
}

static void set_cause(
    struct upstream_exchange *exchange, enum upstream_cause cause, const char *format, va_list args)
{
    char text[ERR_TEXT_BYTES_MAX];
    (void)vsnprintf(text, sizeof text, format, args);
    exchange->cause = cause;
    exchange->has_failed_try = true;
    (void)err_set(&exchange->err, E_UNAVAILABLE, "%s", text); /* the point says more */
}

void upstream_call_fail(
    struct upstream_call *call, enum upstream_cause cause, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    set_cause(call->exchange, cause, format, args);
    va_end(args);
    call_give_up(call);
}

void upstream_call_end(struct upstream_call *call)
{
    struct upstream_worker *worker = upstream_worker_of(call);
    struct upstream_exchange *exchange = call_done(call);
    call->events->end(call);
    exchange_return(worker, exchange);
    upstream_wake_waiting(worker);
}

void upstream_call_untried(
    struct upstream_call *call, enum upstream_cause cause, const char *format, ...)
{
    struct upstream_exchange *exchange = call->exchange;
    struct upstream_conn *conn = call->conn;
    ASSERT(upstream_call_point(call) == UPSTREAM_NOT_SENT); /* UV3 */
    va_list args;
    va_start(args, format);
    set_cause(exchange, cause, format, args);
    va_end(args);
    exchange->is_fresh_only = true;
    call->conn = NULL;
    conn->call = NULL;
    upstream_conn_close(conn);
    upstream_call_move(call, CALL_WAITING);
    upstream_call_check(call);
}

/* ---------------------------------------------------------------------- finding a connection -- */

static void no_address(struct upstream_call *call, const char *failure)
{
    if (call->exchange->has_failed_try) {
        call_give_up(call);
    } else {
        upstream_call_fail(call, UPSTREAM_CAUSE_UNREACHABLE, "cannot resolve '%s': %s",
            call->upstream->urls[0].host, failure == NULL ? "it has no address" : failure);
    }
}

/* An idle one for this address or, if no more can be made, for any. */
static struct upstream_conn *find_idle(
    struct upstream_worker *worker, struct upstream_call *call, struct upstream_address *address)
{
    if (call->exchange->is_fresh_only) {
        return NULL;
    }
    struct upstream_conn *conn = upstream_find_idle(worker, address);
    bool is_full = worker->open >= worker->upstream->connections_max;
    return conn == NULL && is_full ? upstream_find_idle(worker, NULL) : conn;
}

/* Closes an idle connection to make room for a new one. */
static bool make_room(struct upstream_worker *worker)
{
    if (worker->open >= worker->upstream->connections_max &&
        worker->idle.idle_prev != &worker->idle) {
        upstream_conn_close(worker->idle.idle_prev);
    }
    return worker->open < worker->upstream->connections_max;
}

/* Starts a call, or fails it. False: it has to wait. */
static bool call_go(struct upstream_call *call)
{
    struct upstream_worker *worker = upstream_worker_of(call);
    for (;;) {
        struct upstream_address *address = NULL;
        const char *failure = NULL;
        enum upstream_pick pick = upstream_address_pick(worker, call, &address, &failure);
        if (pick == UPSTREAM_PICK_LATER) {
            return false;
        }
        if (pick == UPSTREAM_PICK_NONE) {
            no_address(call, failure);
            return true;
        }
        struct upstream_conn *conn = find_idle(worker, call, address);
        if (conn == NULL && !make_room(worker)) {
            return false;
        }
        if (conn == NULL ? upstream_connect(call, address) : upstream_begin(conn, call)) {
            return true;
        }
    }
}

void upstream_call_again(struct upstream_call *call)
{
    struct upstream_worker *worker = upstream_worker_of(call);
    int64_t total_ms = call->timeouts.total_ms;
    if (total_ms > 0 && upstream_now(worker) >= call->started_ms + (uint64_t)total_ms) {
        call_give_up(call);
    } else if (worker->is_detached) {
        call_give_up(call);
    } else if (!call_go(call)) {
        queue_add(worker, call, true);
        upstream_call_arm(call);
    }
}

static void on_wake_waiting(struct net_task *task)
{
    struct upstream_worker *worker = CONTAINER_OF(task, struct upstream_worker, wake_waiting);
    worker->is_wake_posted = false;
    while (worker->first != NULL) {
        struct upstream_call *call = worker->first;
        queue_remove(worker, call);
        if (!call_go(call)) {
            queue_add(worker, call, true);
            return;
        }
    }
}

void upstream_wake_waiting(struct upstream_worker *worker)
{
    if (worker->first != NULL && !worker->is_wake_posted) {
        worker->is_wake_posted = true;
        net_loop_post(worker->loop, &worker->wake_waiting);
    }
}

/* ----------------------------------------------------------------------------- start and end -- */

/* Whether our own request has "Connection: close": then the connection is not used again. */
static bool asks_close(struct slice head)
{
    static const struct slice name = {"connection:", 11};
    for (const char *line = head.data; line != NULL;) {
        size_t left = head.len - (size_t)(line - head.data);
        const char *feed = left == 0 ? NULL : memchr(line, '\n', left);
        size_t len = feed == NULL ? left : (size_t)(feed - line);
        if (len > name.len && http_same_name(slice_of(line, name.len), name)) {
            struct slice option;
            len -= line[len - 1] == '\r' ? 1 : 0;
            struct slice list = slice_of(line + name.len, len - name.len);
            while (http_list_next(&list, &option)) {
                if (http_same_name(option, SLICE_LIT("close"))) {
                    return true;
                }
            }
        }
        line = feed == NULL ? NULL : feed + 1;
    }
    return false;
}

/* All but the buffers and the deadline, which are used again. */
static void exchange_ready(struct upstream_exchange *exchange, struct upstream_call *call)
{
    exchange->call = call;
    exchange->tried = 0;
    exchange->sent_ms = 0;
    exchange->given_before = 0;
    exchange->unsent = 0;
    exchange->cause = UPSTREAM_CAUSE_UNREACHABLE;
    exchange->send = UPSTREAM_SEND_OPEN;
    exchange->interim = 0;
    exchange->is_fresh_only = call->asks_switch;
    exchange->is_all_put = !call->is_streamed;
    exchange->is_paused = false;
    exchange->owes_drained = false;
    exchange->is_starved = false;
    exchange->asks_close = asks_close(call->head);
    exchange->has_failed_try = false;
    http_head_init(&exchange->head);
    exchange->head.may_switch = call->asks_switch;
}

static void refuse_start(struct upstream_call *call, enum upstream_cause cause, const char *why)
{
    struct err err = {0};
    upstream_count(&upstream_worker_of(call)->stats.failed[UPSTREAM_NOT_SENT], 1);
    (void)err_set(&err, E_UNAVAILABLE, "%s", why); /* failed carries it */
    call->events->failed(call, UPSTREAM_NOT_SENT, cause, &err);
}

void upstream_start(struct upstream *upstream, unsigned loop, struct upstream_call *call)
{
    ASSERT(loop < upstream->worker_count);
    struct upstream_worker *worker = &upstream->workers[loop];
    call->upstream = upstream;
    call->exchange = NULL;
    call->conn = NULL;
    call->prev = NULL;
    call->next = NULL;
    call->loop = loop;
    call->tries = 0;
    call->state = CALL_DONE;
    call->is_queued = false;
    upstream_count(&worker->stats.calls, 1);
    if (worker->loop == NULL || worker->is_detached) {
        refuse_start(call, UPSTREAM_CAUSE_UNREACHABLE, "the upstream is being closed");
        return;
    }
    call->started_ms = upstream_now(worker);
    call->started_boot_ms = clock_boot_ms();
    call->exchange = exchange_take(worker);
    if (call->exchange == NULL) {
        refuse_start(call, UPSTREAM_CAUSE_MEMORY, "out of memory");
        return;
    }
    exchange_ready(call->exchange, call);
    upstream_call_move(call, CALL_WAITING);
    if (worker->first == NULL && call_go(call)) {
        return;
    }
    if (worker->waiting >= upstream->waiting_max) {
        upstream_call_fail(call, UPSTREAM_CAUSE_BUSY,
            "all %u connections to '%s' are in use and %u calls wait: connections_max and "
            "waiting_max are reached",
            upstream->connections_max, upstream->urls[0].authority, worker->waiting);
        return;
    }
    queue_add(worker, call, false);
    upstream_call_arm(call);
}

bool upstream_cancel(struct upstream_call *call)
{
    if (call->state == CALL_DONE) {
        return false; /* after its last event nothing is known here */
    }
    struct upstream_worker *worker = upstream_worker_of(call);
    bool is_unsent = upstream_call_point(call) == UPSTREAM_NOT_SENT;
    exchange_return(worker, call_done(call));
    upstream_wake_waiting(worker);
    return is_unsent;
}

/* --------------------------------------------------------------------------------- the whole -- */

static enum status parse_urls(struct upstream *upstream, const struct upstream_options *options,
    bool *ret_is_tls, struct err *err)
{
    if (options->url_count == 0 || options->url_count > UPSTREAM_URLS_MAX) {
        return err_set(err, E_INVALID, "there have to be 1 to %d upstreams, not %zu",
            UPSTREAM_URLS_MAX, options->url_count);
    }
    for (size_t i = 0; i < options->url_count; i++) {
        bool is_tls = false;
        enum status status =
            upstream_url_parse(upstream->mem, options->urls[i], &upstream->urls[i], &is_tls, err);
        if (status != OK) {
            return status;
        }
        upstream->url_count++;
        if (i > 0 && is_tls != *ret_is_tls) {
            return err_set(err, E_INVALID, "upstreams '%s' and '%s' do not have the same scheme",
                options->urls[0], options->urls[i]);
        }
        *ret_is_tls = is_tls;
    }
    return OK;
}

static enum status make_workers(struct upstream *upstream, unsigned loops, struct err *err)
{
    upstream->workers = mem_zalloc(upstream->mem, loops, sizeof *upstream->workers);
    if (upstream->workers == NULL) {
        return err_set(err, E_NOMEM, "out of memory");
    }
    upstream->worker_count = loops;
    for (unsigned i = 0; i < loops; i++) {
        struct upstream_worker *worker = &upstream->workers[i];
        worker->upstream = upstream;
        worker->wake_waiting.run = on_wake_waiting;
        worker->conns.prev = worker->conns.next = &worker->conns;
        worker->idle.idle_prev = worker->idle.idle_next = &worker->idle;
        worker->lookups = mem_zalloc(upstream->mem, upstream->url_count, sizeof *worker->lookups);
        if (worker->lookups == NULL) {
            return err_set(err, E_NOMEM, "out of memory");
        }
    }
    return OK;
}

static void fill_limits(struct upstream *upstream, const struct upstream_options *options)
{
    upstream->connections_max =
        options->connections_max > 0 ? options->connections_max : UPSTREAM_CONNECTIONS_DEFAULT;
    upstream->waiting_max =
        options->waiting_max > 0 ? options->waiting_max : UPSTREAM_WAITING_DEFAULT;
    upstream->idle_ms_max = options->idle_ms_max;
    upstream->is_public_only = options->is_public_only;
    upstream->resolve_ms =
        options->resolve_ms > 0 ? options->resolve_ms : UPSTREAM_RESOLVE_MS_DEFAULT;
    upstream->limits = HTTP_LIMITS_DEFAULT;
    upstream->limits.body_bytes_max = UINT64_MAX; /* each call has its own */
}

enum status upstream_new(const struct upstream_options *options, unsigned loops,
    struct upstream **ret_upstream, struct err *err)
{
    ASSERT(loops > 0);
    const struct mem *mem = options->mem == NULL ? &mem_libc : options->mem;
    struct upstream *upstream = mem_zalloc(mem, 1, sizeof *upstream);
    if (upstream == NULL) {
        return err_set(err, E_NOMEM, "out of memory");
    }
    bool is_tls = false;
    upstream->mem = mem;
    fill_limits(upstream, options);
    enum status status = parse_urls(upstream, options, &is_tls, err);
    if (status == OK) {
        status = make_workers(upstream, loops, err);
    }
    if (status == OK && is_tls) {
        status = net_tls_client_context_new(mem, options->ca_file, &upstream->tls, err);
    }
    if (status != OK) {
        upstream_free(upstream);
        return status;
    }
    *ret_upstream = upstream;
    return OK;
}

void upstream_attach(struct upstream *upstream, unsigned number, struct net_loop *loop)
{
    ASSERT(number < upstream->worker_count);
    struct upstream_worker *worker = &upstream->workers[number];
    ASSERT(worker->loop == NULL);
    worker->loop = loop;
    upstream_addresses_attach(worker);
}

void upstream_detach(struct upstream *upstream, unsigned loop)
{
    struct upstream_worker *worker = &upstream->workers[loop];
    if (worker->loop == NULL || worker->is_detached) {
        return;
    }
    worker->is_detached = true;
    upstream_addresses_detach(worker);
    while (worker->first != NULL) {
        upstream_call_fail(
            worker->first, UPSTREAM_CAUSE_UNREACHABLE, "the upstream is being closed");
    }
    /* They stay in the list until they are closed, which is later. */
    for (struct upstream_conn *at = worker->conns.next; at != &worker->conns; at = at->next) {
        if (at->call != NULL) {
            upstream_call_fail(at->call, UPSTREAM_CAUSE_BROKEN, "the upstream is being closed");
        } else {
            upstream_conn_close(at);
        }
    }
}

bool upstream_is_closed(const struct upstream *upstream, unsigned loop)
{
    const struct upstream_worker *worker = &upstream->workers[loop];
    if (worker->loop == NULL) {
        return true;
    }
    bool is_looking = false;
    for (unsigned i = 0; i < upstream->url_count; i++) {
        is_looking = is_looking || worker->lookups[i].is_under_way;
    }
    return worker->is_detached && worker->conns.next == &worker->conns && !is_looking &&
           !worker->is_wake_posted;
}

void upstream_free(struct upstream *upstream)
{
    if (upstream == NULL) {
        return;
    }
    for (unsigned i = 0; i < upstream->worker_count; i++) {
        struct upstream_worker *worker = &upstream->workers[i];
        ASSERT(worker->conns.next == &worker->conns || worker->conns.next == NULL);
        pools_release(worker);
        mem_free(upstream->mem, worker->lookups);
    }
    for (unsigned i = 0; i < upstream->url_count; i++) {
        upstream_url_release(upstream->mem, &upstream->urls[i]);
    }
    net_tls_context_free(upstream->tls);
    mem_free(upstream->mem, upstream->workers);
    mem_free(upstream->mem, upstream);
}

struct slice upstream_authority(const struct upstream *upstream)
{
    return slice_str(upstream->urls[0].authority);
}

static uint64_t load(const _Atomic uint64_t *stat)
{
    return atomic_load_explicit(stat, memory_order_relaxed);
}

void upstream_stats(struct upstream *upstream, struct upstream_stats *ret_stats)
{
    struct upstream_stats sum = {.calls = 0};
    for (unsigned i = 0; i < upstream->worker_count; i++) {
        const struct upstream_worker_stats *stats = &upstream->workers[i].stats;
        sum.calls += load(&stats->calls);
        sum.connects += load(&stats->connects);
        sum.reused += load(&stats->reused);
        sum.open += load(&stats->open);
        sum.idle += load(&stats->idle);
        sum.waiting += load(&stats->waiting);
        sum.down += load(&stats->down);
        for (unsigned point = 0; point < 3; point++) {
            sum.failed[point] += load(&stats->failed[point]);
        }
    }
    *ret_stats = sum;
}

unsigned upstream_fill(const struct upstream *upstream, unsigned loop)
{
    ASSERT(loop < upstream->worker_count);
    const struct upstream_worker_stats *stats = &upstream->workers[loop].stats;
    uint64_t open = load(&stats->open), idle = load(&stats->idle);
    /* They are counted one after the other, so for a moment there are more idle ones than open. */
    return open > idle ? (unsigned)((open - idle) * 100 / upstream->connections_max) : 0;
}
