#include "base/check.h"
#include "http/serve_impl.h"

/* Each kind of object has a list for each loop; no lock, and no malloc once it is warm. upstream.c
 * has such lists of its own: only taking and putting back a pointer is alike, and each kind has a
 * different way of being cleared, kept and limited. */

struct inbox *inbox_take(struct worker *worker)
{
    struct inbox *inbox = worker->inboxes;
    if (inbox != NULL) {
        worker->inboxes = inbox->next;
        worker->inbox_count--;
    } else {
        uint32_t cap = worker->server->inbox_bytes;
        inbox = mem_alloc(worker->server->mem, sizeof *inbox + cap);
        if (inbox == NULL) {
            return NULL;
        }
        inbox->cap = cap;
    }
    inbox->next = NULL;
    inbox->start = 0;
    inbox->at = 0;
    inbox->len = 0;
    return inbox;
}

void inbox_return(struct worker *worker, struct inbox *inbox)
{
    if (inbox == NULL) {
        return;
    }
    if (worker->inbox_count >= SERVE_POOLED_MAX) {
        mem_free(worker->server->mem, inbox);
        return;
    }
    inbox->next = worker->inboxes;
    worker->inboxes = inbox;
    worker->inbox_count++;
}

struct outbox *outbox_take(struct worker *worker)
{
    struct outbox *outbox = worker->outboxes;
    if (outbox != NULL) {
        worker->outboxes = outbox->next;
        worker->outbox_count--;
    } else {
        outbox = mem_alloc(worker->server->mem, sizeof *outbox);
        if (outbox == NULL) {
            return NULL;
        }
        buf_init(&outbox->buf, worker->server->mem, SERVE_OUT_BYTES_MAX);
    }
    outbox->next = NULL;
    outbox->tail = SLICE_EMPTY;
    outbox->total = 0;
    return outbox;
}

void outbox_return(struct worker *worker, struct outbox *outbox)
{
    if (outbox == NULL) {
        return;
    }
    if (worker->outbox_count >= SERVE_POOLED_MAX || outbox->buf.cap > SERVE_KEPT_BYTES_MAX) {
        buf_release(&outbox->buf);
        mem_free(worker->server->mem, outbox);
        return;
    }
    buf_clear(&outbox->buf);
    outbox->next = worker->outboxes;
    worker->outboxes = outbox;
    worker->outbox_count++;
}

static void exchange_free(struct exchange *exchange)
{
    const struct mem *mem = exchange->worker->server->mem;
    arena_release(&exchange->arena);
    buf_release(&exchange->spilled);
    mem_free(mem, exchange);
}

static void exchange_reset(struct exchange *exchange)
{
    exchange->shown = (struct http_exchange){
        .head = &exchange->head, .arena = &exchange->arena, .loop = exchange->worker->number};
    http_head_init(&exchange->head);
    exchange->framing = STREAM_NONE;
    exchange->left = 0;
    exchange->is_head_done = false;
    exchange->is_shown = false;
    exchange->is_beginning = false;
    exchange->is_taken = false;
    exchange->is_whole = false;
    exchange->is_spilled = false;
    exchange->is_continued = false;
    exchange->is_paused = false;
    exchange->is_failed = false;
    exchange->is_begun = false;
    exchange->is_streaming = false;
    exchange->wants_drained = false;
    exchange->is_broken_off = false;
    exchange->closes = false;
}

struct exchange *exchange_take(struct worker *worker)
{
    struct exchange *exchange = worker->exchanges;
    if (exchange != NULL) {
        worker->exchanges = exchange->next;
        worker->exchange_count--;
    } else {
        exchange = mem_alloc(worker->server->mem, sizeof *exchange);
        if (exchange == NULL) {
            return NULL;
        }
        exchange->worker = worker;
        exchange->held = 0;
        atomic_init(&exchange->is_woken, false);
        buf_init(
            &exchange->spilled, worker->server->mem, worker->server->limits.message.body_bytes_max);
        arena_init(&exchange->arena, worker->server->mem, SERVE_ARENA_BYTES_MAX);
    }
    exchange->next = NULL;
    exchange_reset(exchange);
    return exchange;
}

void exchange_clear(struct exchange *exchange)
{
    if (exchange->held > 0) {
        atomic_fetch_sub(&exchange->worker->server->body_bytes, exchange->held);
        exchange->held = 0;
    }
    if (exchange->spilled.cap > SERVE_KEPT_BYTES_MAX) {
        buf_release(&exchange->spilled);
        buf_init(&exchange->spilled, exchange->worker->server->mem, exchange->spilled.max);
    } else {
        buf_clear(&exchange->spilled);
    }
    if (exchange->arena.held > SERVE_KEPT_BYTES_MAX) {
        arena_release(&exchange->arena);
    } else {
        arena_clear(&exchange->arena);
    }
    exchange_reset(exchange);
}

void exchange_return(struct exchange *exchange)
{
    if (exchange == NULL) {
        return;
    }
    struct worker *worker = exchange->worker;
    exchange_clear(exchange);
    exchange->conn = NULL;
    if (atomic_load(&exchange->is_woken)) {
        return; /* its body was cut; it is still in the loop's list, and returned from there */
    }
    if (worker->exchange_count >= SERVE_POOLED_MAX) {
        exchange_free(exchange);
        return;
    }
    exchange->next = worker->exchanges;
    worker->exchanges = exchange;
    worker->exchange_count++;
}

enum status exchange_hold(struct exchange *exchange, struct slice piece)
{
    struct http_server *server = exchange->worker->server;
    struct buf *spilled = &exchange->spilled;
    enum status status = buf_reserve(spilled, piece.len);
    if (status != OK) {
        return E_NOMEM; /* its limit is the body's, which the reader watches */
    }
    if (spilled->cap > exchange->held) {
        size_t more = spilled->cap - exchange->held;
        size_t max = (size_t)server->limits.in_flight_bytes_max_mib << 20;
        if (atomic_fetch_add(&server->body_bytes, more) + more > max) {
            atomic_fetch_sub(&server->body_bytes, more);
            return E_LIMIT;
        }
        exchange->held = spilled->cap;
    }
    buf_slice(spilled, piece);
    return buf_status(spilled);
}

struct conn *conn_take(struct worker *worker)
{
    struct conn *conn = worker->spare_conns;
    if (conn != NULL) {
        worker->spare_conns = conn->next;
        worker->conn_count--;
    } else {
        conn = mem_alloc(worker->server->mem, sizeof *conn);
        if (conn == NULL) {
            return NULL;
        }
    }
    *conn = (struct conn){.worker = worker, .state = CONN_MOVING};
    return conn;
}

void conn_return(struct worker *worker, struct conn *conn)
{
    if (worker->conn_count >= SERVE_POOLED_MAX) {
        mem_free(worker->server->mem, conn);
        return;
    }
    conn->next = worker->spare_conns;
    worker->spare_conns = conn;
    worker->conn_count++;
}

void pools_release(struct worker *worker)
{
    const struct mem *mem = worker->server->mem;
    for (struct inbox *at = worker->inboxes, *next = NULL; at != NULL; at = next) {
        next = at->next;
        mem_free(mem, at);
    }
    for (struct outbox *at = worker->outboxes, *next = NULL; at != NULL; at = next) {
        next = at->next;
        buf_release(&at->buf);
        mem_free(mem, at);
    }
    for (struct exchange *at = worker->exchanges, *next = NULL; at != NULL; at = next) {
        next = at->next;
        exchange_free(at);
    }
    for (struct conn *at = worker->spare_conns, *next = NULL; at != NULL; at = next) {
        next = at->next;
        mem_free(mem, at);
    }
}
