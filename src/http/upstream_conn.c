#include "base/check.h"
#include "base/clock.h"
#include "base/macros.h"
#include "base/text.h"
#include "http/upstream_impl.h"
#include "http/write.h"

/* The diagrams, the transitions and what holds are at enum call_state (upstream_impl.h). */

static struct upstream_conn *conn_of(struct net_stream *stream)
{
    return CONTAINER_OF(stream, struct upstream_conn, stream);
}

static const char *name_of(const struct upstream_conn *conn)
{
    return conn->worker->upstream->urls[conn->address->url].authority;
}

static void conn_check(const struct upstream_conn *conn)
{
    bool has_call = conn->state == UPSTREAM_CONN_CONNECTING || conn->state == UPSTREAM_CONN_BUSY;
    ASSERT((conn->call != NULL) == has_call);                                 /* UN1 */
    ASSERT(conn->call == NULL || conn->call->conn == conn);                   /* UN1 */
    ASSERT((conn->idle_next != NULL) == (conn->state == UPSTREAM_CONN_IDLE)); /* UN2 */
    ASSERT(conn->state != UPSTREAM_CONN_IDLE || conn->stream.write == NULL);  /* UN2 */
    ASSERT((conn->in != NULL) == (conn->state == UPSTREAM_CONN_BUSY));        /* UN2 */
    ASSERT(conn->worker->open <= conn->worker->upstream->connections_max);    /* UN3 */
}

/* ---------------------------------------------------------------------------- beginning, end -- */

static void idle_remove(struct upstream_conn *conn)
{
    conn->idle_prev->idle_next = conn->idle_next;
    conn->idle_next->idle_prev = conn->idle_prev;
    conn->idle_prev = NULL;
    conn->idle_next = NULL;
    net_wheel_remove(&conn->worker->loop->wheel, &conn->deadline);
    upstream_count(&conn->worker->stats.idle, (uint64_t)-1);
}

/* Every change of state is made here; what belongs to the old state is released. */
static void conn_move(struct upstream_conn *conn, enum upstream_conn_state state)
{
    static const unsigned nexts[] = {
        [UPSTREAM_CONN_CONNECTING] = 1u << UPSTREAM_CONN_BUSY | 1u << UPSTREAM_CONN_CLOSING,
        [UPSTREAM_CONN_BUSY] = 1u << UPSTREAM_CONN_IDLE | 1u << UPSTREAM_CONN_CLOSING,
        [UPSTREAM_CONN_IDLE] = 1u << UPSTREAM_CONN_BUSY | 1u << UPSTREAM_CONN_CLOSING,
        [UPSTREAM_CONN_CLOSING] = 0,
    };
    ASSERT((nexts[conn->state] & 1u << state) != 0);
    if (conn->state == UPSTREAM_CONN_IDLE) {
        idle_remove(conn);
    }
    if (state != UPSTREAM_CONN_BUSY) {
        upstream_inbox_return(conn->worker, conn->in);
        conn->in = NULL;
    }
    conn->state = state;
}

void upstream_conn_close(struct upstream_conn *conn)
{
    struct upstream_worker *worker = conn->worker;
    if (conn->state == UPSTREAM_CONN_CLOSING) {
        return;
    }
    conn_move(conn, UPSTREAM_CONN_CLOSING);
    worker->open--;
    upstream_count(&worker->stats.open, (uint64_t)-1);
    net_stream_close(&conn->stream);
    conn_check(conn);
    upstream_wake_waiting(worker);
}

static void on_closed(struct net_stream *stream)
{
    struct upstream_conn *conn = conn_of(stream);
    conn->prev->next = conn->next;
    conn->next->prev = conn->prev;
    conn->address->conns--;
    mem_free(conn->worker->upstream->mem, conn);
}

static void idle_due(struct net_deadline *deadline, uint64_t now_ms)
{
    (void)now_ms;
    upstream_conn_close(CONTAINER_OF(deadline, struct upstream_conn, deadline));
}

/* Keeps it for the next call. Reading continues, so that its end is noticed. */
static void conn_park(struct upstream_conn *conn)
{
    struct upstream_worker *worker = conn->worker;
    conn_move(conn, UPSTREAM_CONN_IDLE);
    conn->idle_prev = &worker->idle;
    conn->idle_next = worker->idle.idle_next;
    conn->idle_next->idle_prev = conn;
    worker->idle.idle_next = conn;
    upstream_count(&worker->stats.idle, 1);
    net_loop_deadline(
        worker->loop, &conn->deadline, upstream_now(worker) + (uint64_t)conn->idle_ms);
    net_stream_read(&conn->stream); /* it may have been paused; this may lead to its close */
}

struct upstream_conn *upstream_find_idle(
    struct upstream_worker *worker, const struct upstream_address *address)
{
    for (struct upstream_conn *at = worker->idle.idle_next, *next = NULL; at != &worker->idle;
         at = next) {
        next = at->idle_next;
        if (address != NULL && at->address != address) {
            continue;
        }
        if (net_stream_is_quiet(&at->stream)) { /* UP7 */
            return at;
        }
        upstream_conn_close(at);
    }
    return NULL;
}

static const struct net_events conn_events;

static struct upstream_conn *conn_new(
    struct upstream_worker *worker, struct upstream_address *address)
{
    struct upstream_conn *conn = mem_zalloc(worker->upstream->mem, 1, sizeof *conn);
    if (conn == NULL) {
        return NULL;
    }
    conn->worker = worker;
    conn->address = address;
    conn->deadline.due = idle_due;
    conn->connect.address = &address->socket.any;
    conn->connect.tls = worker->upstream->tls;
    conn->connect.server_name = worker->upstream->urls[address->url].host;
    conn->prev = worker->conns.prev;
    conn->next = &worker->conns;
    conn->prev->next = conn;
    worker->conns.prev = conn;
    address->conns++;
    worker->open++;
    upstream_count(&worker->stats.open, 1);
    return conn;
}

bool upstream_connect(struct upstream_call *call, struct upstream_address *address)
{
    struct upstream_worker *worker = upstream_worker_of(call);
    struct upstream_conn *conn = conn_new(worker, address);
    if (conn == NULL) {
        upstream_call_fail(call, UPSTREAM_CAUSE_MEMORY, "out of memory");
        return true;
    }
    const char *failure = NULL;
    call->tries++;
    call->exchange->tried |= (uint64_t)1 << (address - worker->addresses);
    call->conn = conn;
    conn->call = call;
    upstream_call_move(call, CALL_CONNECTING);
    upstream_address_trying(worker, address);
    upstream_count(&worker->stats.connects, 1);
    enum status status =
        net_stream_connect(&conn->stream, worker->loop, &conn->connect, &conn_events, &failure);
    if (status != OK) {
        upstream_address_failed(worker, address);
        upstream_call_untried(call,
            status == E_NOMEM ? UPSTREAM_CAUSE_MEMORY : UPSTREAM_CAUSE_UNREACHABLE,
            "cannot connect to '%s' (%s): %s", name_of(conn), address->text, failure);
        return false;
    }
    upstream_call_arm(call);
    conn_check(conn);
    return true;
}

/* ----------------------------------------------------------------------------------- sending -- */

/* Nothing more is sent; the time for the answer starts now. */
static void send_over(struct upstream_call *call, enum upstream_send send)
{
    ASSERT(call->exchange->send == UPSTREAM_SEND_OPEN);
    call->exchange->send = send;
    call->exchange->sent_ms = upstream_now(upstream_worker_of(call));
}

/* The result of a send. If it failed, an answer that came before is still read. */
static void sent(struct upstream_conn *conn, enum net_sent how)
{
    struct upstream_exchange *exchange = conn->call->exchange;
    exchange->since_ms = upstream_now(conn->worker);
    if (how == NET_SENDING) {
        exchange->unsent = net_stream_unsent(&conn->stream);
    } else if (exchange->send != UPSTREAM_SEND_OPEN) {
        return;
    } else if (how == NET_BROKEN) {
        send_over(conn->call, UPSTREAM_SEND_STOPPED);
    } else if (exchange->is_all_put && exchange->put.len == 0) {
        send_over(conn->call, UPSTREAM_SEND_DONE);
    }
}

/* Hand over what was put, as long as all of it is taken. */
static void flush(struct upstream_conn *conn)
{
    struct upstream_exchange *exchange = conn->call->exchange;
    if (exchange->send != UPSTREAM_SEND_OPEN || conn->stream.write != NULL) {
        return;
    }
    enum net_sent how = NET_SENT;
    if (exchange->put.len > 0) {
        struct buf swap = exchange->sending;
        exchange->sending = exchange->put;
        exchange->put = swap;
        buf_clear(&exchange->put);
        struct slice piece = buf_view(&exchange->sending);
        how = net_stream_send(&conn->stream, &conn->write, &piece, 1);
    }
    sent(conn, how);
}

/* Must be the last thing a caller does: the call may be gone afterwards. */
static void return_drained(struct upstream_conn *conn)
{
    struct upstream_exchange *exchange = conn->call->exchange;
    bool is_taken = exchange->send != UPSTREAM_SEND_OPEN ||
                    (conn->stream.write == NULL && exchange->put.len == 0);
    if (exchange->owes_drained && is_taken) {
        exchange->owes_drained = false;
        conn->call->events->drained(conn->call);
    }
}

/* No byte was taken, so UP2 holds whatever else went wrong. */
static bool not_begun(struct upstream_conn *conn, enum upstream_cause cause, const char *why)
{
    upstream_call_untried(
        conn->call, cause, "cannot send to '%s' (%s): %s", name_of(conn), conn->address->text, why);
    return false;
}

static bool is_fit(const struct upstream_conn *conn)
{
    /* A reused connection was checked a moment ago (upstream_find_idle). On a new one with TLS the
     * server may have sent its session tickets already. */
    return conn->is_reused || conn->stream.tls != NULL || net_stream_is_quiet(&conn->stream);
}

static void late(struct upstream_call *call, const char *what, int64_t ms)
{
    const char *name = call->conn == NULL ? call->upstream->urls[0].authority : name_of(call->conn);
    const char *address = call->conn == NULL ? "no connection" : call->conn->address->text;
    upstream_call_fail(call, UPSTREAM_CAUSE_TIMEOUT, "%s '%s' (%s) took more than %lld ms", what,
        name, address, (long long)ms);
}

/* UP8: the caller may have given up waiting, and its grant may be over. */
static bool is_too_late(const struct upstream_call *call)
{
    const struct upstream_timeouts *limits = &call->timeouts;
    int64_t boot_ms = clock_boot_ms();
    return (limits->total_ms > 0 && boot_ms - call->started_boot_ms >= limits->total_ms) ||
           (limits->send_until_boot_ms > 0 && boot_ms >= limits->send_until_boot_ms);
}

bool upstream_begin(struct upstream_conn *conn, struct upstream_call *call)
{
    struct upstream_exchange *exchange = call->exchange;
    if (is_too_late(call)) {
        upstream_call_fail(call, UPSTREAM_CAUSE_TIMEOUT,
            "it is too late to send to '%s' (%s): the call began %lld ms ago", name_of(conn),
            conn->address->text, (long long)(clock_boot_ms() - call->started_boot_ms));
        return true;
    }
    struct slice pieces[] = {call->head, call->is_streamed ? SLICE_EMPTY : call->body};
    conn->is_reused = conn->state == UPSTREAM_CONN_IDLE;
    conn->call = call;
    call->conn = conn;
    conn_move(conn, UPSTREAM_CONN_BUSY);
    exchange->given_before = conn->stream.given;
    upstream_call_move(call, CALL_HEAD);
    conn->in = upstream_inbox_take(conn->worker);
    if (conn->in == NULL) {
        return not_begun(conn, UPSTREAM_CAUSE_MEMORY, "out of memory");
    }
    enum net_sent how =
        is_fit(conn) ? net_stream_send(&conn->stream, &conn->write, pieces, 2) : NET_BROKEN;
    if (how == NET_BROKEN && upstream_call_point(call) == UPSTREAM_NOT_SENT) {
        return not_begun(conn, UPSTREAM_CAUSE_BROKEN, "it closed the connection, or spoke first");
    }
    upstream_count(&conn->worker->stats.reused, conn->is_reused ? 1 : 0);
    sent(conn, how);
    flush(conn);
    upstream_call_arm(call);
    conn_check(conn);
    upstream_call_check(call);
    return_drained(conn);
    return true;
}

static void on_wrote(struct net_stream *stream, bool is_whole)
{
    struct upstream_conn *conn = conn_of(stream);
    ASSERT(conn->state == UPSTREAM_CONN_BUSY);
    sent(conn, is_whole ? NET_SENT : NET_BROKEN);
    flush(conn);
    upstream_call_arm(conn->call);
    return_drained(conn);
}

/* -------------------------------------------------------------------------------- the answer -- */

static void conn_fail(struct upstream_conn *conn, enum upstream_cause cause, const char *why)
{
    upstream_call_fail(
        conn->call, cause, "the answer of '%s' (%s) %s", name_of(conn), conn->address->text, why);
}

static void malformed(struct upstream_conn *conn, const char *reason)
{
    upstream_call_fail(conn->call, UPSTREAM_CAUSE_MALFORMED,
        "the answer of '%s' (%s) is not HTTP: %s", name_of(conn), conn->address->text, reason);
}

/* "timeout=5" in Keep-Alive: we stop a second before the peer does. */
static int64_t peer_idle_ms(const struct http_head *head, int64_t idle_ms)
{
    static const struct slice name = {"timeout=", 8};
    for (uint32_t i = http_find(head, SLICE_LIT("Keep-Alive"), 0); i < head->field_count;
         i = http_find(head, SLICE_LIT("Keep-Alive"), i + 1)) {
        struct slice list = http_text(head, head->fields[i].value);
        struct slice element;
        uint64_t seconds = 0;
        while (http_list_next(&list, &element)) {
            if (element.len > name.len && http_same_name(slice_of(element.data, name.len), name) &&
                text_u64(slice_of(element.data + name.len, element.len - name.len), &seconds) &&
                seconds < (uint64_t)idle_ms / 1000 + 1) {
                idle_ms = seconds == 0 ? 0 : (int64_t)(seconds - 1) * 1000;
            }
        }
    }
    return idle_ms;
}

/* The exchange is complete. UP5: the connection is kept only if both sides left it clean. */
static void conn_done(struct upstream_conn *conn)
{
    struct upstream_call *call = conn->call;
    const struct upstream_exchange *exchange = call->exchange;
    bool is_kept = exchange->send == UPSTREAM_SEND_DONE && exchange->head.keep_alive &&
                   !exchange->asks_close && conn->in->at == conn->in->len && conn->idle_ms > 0 &&
                   conn->address->is_known && !conn->stream.is_broken && conn->stream.write == NULL;
    if (is_kept) {
        call->conn = NULL;
        conn->call = NULL;
        conn_park(conn);
    }
    upstream_call_end(call); /* closes it otherwise */
}

static bool step_interim(struct upstream_conn *conn)
{
    struct upstream_exchange *exchange = conn->call->exchange;
    struct upstream_inbox *in = conn->in;
    in->at += exchange->head.bytes;
    if (++exchange->interim > UPSTREAM_INTERIM_MAX) {
        malformed(conn, "there are too many interim answers");
        return false;
    }
    memmove(in->data, in->data + in->at, in->len - in->at);
    in->len -= in->at;
    in->at = 0;
    http_head_init(&exchange->head);
    exchange->head.may_switch = conn->call->asks_switch;
    return true;
}

/* Whether an answer that came before the request was sent whole means that the rest is not wanted:
 * RFC 9112 section 9.5. Others may stream both ways, or write their head before they read. */
static bool is_refusal(const struct http_head *head)
{
    return head->status >= 300;
}

/* Each event may end the call; then the connection is idle, or busy with a different call. */
static bool final_head(struct upstream_conn *conn)
{
    struct upstream_call *call = conn->call;
    struct upstream_exchange *exchange = call->exchange;
    struct http_refusal refusal = {0};
    uint64_t max = call->body_bytes_max;
    conn->in->at += exchange->head.bytes;
    conn->idle_ms = peer_idle_ms(&exchange->head, conn->worker->upstream->idle_ms_max);
    if (exchange->send == UPSTREAM_SEND_OPEN && is_refusal(&exchange->head)) {
        send_over(call, UPSTREAM_SEND_STOPPED);
    }
    enum http_verdict verdict =
        http_body_init(&exchange->body, &exchange->head, &conn->worker->upstream->limits, &refusal);
    ASSERT(verdict != HTTP_REFUSED); /* there is no limit but the call's */
    upstream_call_move(call, CALL_BODY);
    call->events->head(call, &exchange->head);
    if (conn->state != UPSTREAM_CONN_BUSY) {
        return false;
    }
    if (max > 0 && exchange->head.framing == HTTP_BODY_LENGTH && exchange->head.length > max) {
        conn_fail(conn, UPSTREAM_CAUSE_TOO_LARGE, "is longer than body_bytes_max");
        return false;
    }
    return_drained(conn);
    return conn->state == UPSTREAM_CONN_BUSY;
}

static bool is_interim(const struct http_head *head)
{
    return head->status < 200 && !(head->status == 101 && head->may_switch);
}

static bool step_head(struct upstream_conn *conn)
{
    struct upstream_exchange *exchange = conn->call->exchange;
    struct upstream_inbox *in = conn->in;
    struct http_refusal refusal = {0};
    struct slice bytes = slice_of(in->data + in->at, in->len - in->at);
    if (bytes.len == 0) {
        return false;
    }
    switch (http_response_head(
        bytes, &conn->worker->upstream->limits, conn->call->method, &exchange->head, &refusal)) {
    case HTTP_DONE: return is_interim(&exchange->head) ? step_interim(conn) : final_head(conn);
    case HTTP_REFUSED: malformed(conn, refusal.reason); return false;
    case HTTP_MORE:
    case HTTP_DATA: break;
    }
    return false;
}

static bool take_piece(struct upstream_conn *conn, struct slice piece)
{
    struct upstream_call *call = conn->call;
    call->exchange->since_ms = upstream_now(conn->worker);
    if (call->body_bytes_max > 0 && call->exchange->body.total > call->body_bytes_max) {
        conn_fail(conn, UPSTREAM_CAUSE_TOO_LARGE, "is longer than body_bytes_max");
        return false;
    }
    call->events->piece(call, piece);
    return conn->state == UPSTREAM_CONN_BUSY;
}

static bool step_body(struct upstream_conn *conn)
{
    struct upstream_exchange *exchange = conn->call->exchange;
    struct upstream_inbox *in = conn->in;
    struct http_refusal refusal = {0};
    struct slice piece = SLICE_EMPTY;
    size_t used = 0;
    struct slice bytes = slice_of(in->data + in->at, in->len - in->at);
    enum http_verdict verdict = http_body_next(&exchange->body, bytes, &used, &piece, &refusal);
    in->at += (uint32_t)used;
    switch (verdict) {
    case HTTP_DATA: return take_piece(conn, piece);
    case HTTP_DONE: conn_done(conn); return false;
    case HTTP_REFUSED: malformed(conn, refusal.reason); return false;
    case HTTP_MORE: break;
    }
    in->at = 0; /* all was taken: read into the same place */
    in->len = 0;
    return false;
}

/* True: something changed, step again. */
static bool conn_step(struct upstream_conn *conn)
{
    if (conn->state != UPSTREAM_CONN_BUSY || conn->call->exchange->is_paused) {
        return false;
    }
    return conn->call->state == CALL_HEAD ? step_head(conn) : step_body(conn);
}

/* Take every step that the received bytes allow; then ask for more. */
static void conn_advance(struct upstream_conn *conn)
{
    if (conn->is_stepping) {
        return;
    }
    conn->is_stepping = true;
    while (conn_step(conn)) {
    }
    conn->is_stepping = false;
    conn_check(conn);
    if (conn->state == UPSTREAM_CONN_BUSY) {
        upstream_call_arm(conn->call);
        if (!conn->call->exchange->is_paused) {
            net_stream_read(&conn->stream);
        }
    }
}

/* ----------------------------------------------------------------------- the stream's events -- */

static void on_connected(struct net_stream *stream, const char *failure)
{
    struct upstream_conn *conn = conn_of(stream);
    struct upstream_call *call = conn->call;
    if (failure != NULL) {
        upstream_address_failed(conn->worker, conn->address);
        upstream_call_untried(call, UPSTREAM_CAUSE_UNREACHABLE, "cannot connect to '%s' (%s): %s",
            name_of(conn), conn->address->text, failure);
        upstream_call_again(call);
        return;
    }
    upstream_address_went_well(conn->worker, conn->address);
    if (!upstream_begin(conn, call)) {
        upstream_call_again(call);
    } else if (conn->state == UPSTREAM_CONN_BUSY) {
        net_stream_read(stream);
    }
}

static struct net_room on_room(struct net_stream *stream)
{
    struct upstream_conn *conn = conn_of(stream);
    if (conn->state == UPSTREAM_CONN_IDLE) {
        return (struct net_room){conn->worker->loop->scratch, NET_SCRATCH_BYTES};
    }
    if (conn->state != UPSTREAM_CONN_BUSY || conn->call->exchange->is_paused) {
        return (struct net_room){NULL, 0};
    }
    struct upstream_inbox *in = conn->in;
    ASSERT(in->len < sizeof in->data); /* a head that fills it was refused, a body was taken */
    return (struct net_room){in->data + in->len, sizeof in->data - in->len};
}

/* The other side will send no more. */
static void conn_ended(struct upstream_conn *conn, bool is_end)
{
    struct upstream_call *call = conn->call;
    struct http_refusal refusal = {0};
    if (call->state == CALL_HEAD) {
        conn_fail(conn, UPSTREAM_CAUSE_BROKEN,
            conn->in->len == 0 ? "did not come: the connection was closed"
                               : "ended inside its head: the connection was closed");
        return;
    }
    bool is_meant = is_end && net_stream_ended_well(&conn->stream);
    if (is_meant && http_body_close(&call->exchange->body, &refusal) == HTTP_DONE) {
        call->exchange->head.keep_alive = false;
        conn_done(conn);
    } else {
        conn_fail(conn, UPSTREAM_CAUSE_BROKEN, "ended inside its body: the connection was closed");
    }
}

static void on_read(struct net_stream *stream, enum net_got got, size_t bytes)
{
    struct upstream_conn *conn = conn_of(stream);
    if (got == NET_GOT_NOTHING || got == NET_GOT_NO_ROOM) {
        return;
    }
    if (conn->state != UPSTREAM_CONN_BUSY) {
        upstream_conn_close(conn); /* nobody asked for anything: UP5 */
    } else if (got == NET_GOT_BYTES) {
        conn->in->len += (uint32_t)bytes;
        conn_advance(conn);
    } else {
        conn_ended(conn, got == NET_GOT_END);
    }
}

static const struct net_events conn_events = {.connected = on_connected,
    .room = on_room,
    .read = on_read,
    .wrote = on_wrote,
    .closed = on_closed};

/* ---------------------------------------------------------------------- what the caller does -- */

bool upstream_put(struct upstream_call *call, struct slice piece)
{
    ASSERT(call->state != CALL_DONE);
    ASSERT(call->is_streamed);
    struct upstream_exchange *exchange = call->exchange;
    ASSERT(!exchange->is_all_put);
    if (exchange->send != UPSTREAM_SEND_OPEN || exchange->is_starved) {
        return true; /* the server does not want it */
    }
    if (call->is_chunked) {
        http_put_chunk(&exchange->put, piece);
    } else {
        buf_slice(&exchange->put, piece);
    }
    if (buf_status(&exchange->put) != OK) {
        exchange->is_starved = true; /* reported by the deadline: no event happens in this call */
        upstream_call_arm(call);
        return true;
    }
    bool is_ready = call->state == CALL_HEAD || call->state == CALL_BODY;
    if (is_ready) {
        flush(call->conn);
        upstream_call_arm(call);
    }
    bool is_taken = exchange->send != UPSTREAM_SEND_OPEN || exchange->put.len == 0;
    if (!is_taken || (is_ready && call->conn->stream.write != NULL)) {
        exchange->owes_drained = true;
        return false;
    }
    return true;
}

void upstream_put_end(struct upstream_call *call)
{
    ASSERT(call->state != CALL_DONE);
    ASSERT(call->is_streamed);
    struct upstream_exchange *exchange = call->exchange;
    exchange->is_all_put = true;
    if (call->is_chunked && exchange->send == UPSTREAM_SEND_OPEN) {
        http_put_last_chunk(&exchange->put);
        exchange->is_starved = exchange->is_starved || buf_status(&exchange->put) != OK;
    }
    if (!exchange->is_starved && (call->state == CALL_HEAD || call->state == CALL_BODY)) {
        flush(call->conn);
    }
    upstream_call_arm(call);
}

void upstream_pause(struct upstream_call *call)
{
    ASSERT(call->state != CALL_DONE);
    call->exchange->is_paused = true;
}

void upstream_go_on(struct upstream_call *call)
{
    ASSERT(call->state != CALL_DONE);
    struct upstream_exchange *exchange = call->exchange;
    if (exchange->is_paused) {
        exchange->is_paused = false;
        exchange->since_ms = upstream_now(upstream_worker_of(call)); /* what waited is not late */
        exchange->sent_ms = exchange->since_ms;
        if (call->state == CALL_HEAD || call->state == CALL_BODY) {
            conn_advance(call->conn);
        }
    }
}

/* -------------------------------------------------------------------------------- the limits -- */

static bool has_switched(const struct upstream_call *call)
{
    return call->exchange->head.status == 101;
}

/* When the current wait of this state ends; 0: it has no limit of its own. */
static uint64_t wait_ends(const struct upstream_call *call)
{
    const struct upstream_exchange *exchange = call->exchange;
    const struct upstream_timeouts *limits = &call->timeouts;
    bool is_unbounded = limits->total_ms <= 0;
    uint64_t from_ms = exchange->since_ms;
    int64_t ms = 0;
    if (exchange->is_paused && call->state >= CALL_HEAD) {
        return 0;
    }
    switch ((enum call_state)call->state) {
    case CALL_WAITING:
    case CALL_CONNECTING: ms = limits->connect_ms; break;
    case CALL_HEAD:
        from_ms = exchange->send == UPSTREAM_SEND_OPEN ? from_ms : exchange->sent_ms;
        ms = exchange->send != UPSTREAM_SEND_OPEN || call->asks_switch ||
                     (is_unbounded && call->conn->stream.write != NULL)
                 ? limits->first_byte_ms
                 : 0;
        break;
    case CALL_BODY:
        ms = has_switched(call) ? limits->switched_ms : is_unbounded ? limits->first_byte_ms : 0;
        break;
    case CALL_DONE: break;
    }
    return ms > 0 ? from_ms + (uint64_t)ms : 0;
}

void upstream_call_arm(struct upstream_call *call)
{
    struct upstream_worker *worker = upstream_worker_of(call);
    struct upstream_exchange *exchange = call->exchange;
    uint64_t at_ms = wait_ends(call);
    int64_t total_ms = call->timeouts.total_ms;
    if (total_ms > 0 && (at_ms == 0 || at_ms > call->started_ms + (uint64_t)total_ms)) {
        at_ms = call->started_ms + (uint64_t)total_ms;
    }
    if (exchange->is_starved) {
        at_ms = upstream_now(worker) + 1;
    }
    if (at_ms == 0) {
        net_deadline_off(&exchange->deadline);
    } else {
        net_loop_deadline(worker->loop, &exchange->deadline, at_ms);
    }
}

/* A send times out only if no byte of it was taken in all that time. */
static bool is_moving(struct upstream_call *call, uint64_t now_ms)
{
    struct upstream_exchange *exchange = call->exchange;
    uint64_t unsent = net_stream_unsent(&call->conn->stream);
    if (exchange->send != UPSTREAM_SEND_OPEN || unsent >= exchange->unsent) {
        return false;
    }
    exchange->unsent = unsent;
    exchange->since_ms = now_ms;
    upstream_call_arm(call);
    return true;
}

static void connect_late(struct upstream_call *call)
{
    struct upstream_conn *conn = call->conn;
    upstream_address_failed(conn->worker, conn->address);
    upstream_call_untried(call, UPSTREAM_CAUSE_TIMEOUT,
        "cannot connect to '%s' (%s): it took more than %lld ms", name_of(conn),
        conn->address->text, (long long)call->timeouts.connect_ms);
    upstream_call_again(call);
}

void upstream_call_due(struct net_deadline *deadline, uint64_t now_ms)
{
    struct upstream_exchange *exchange = CONTAINER_OF(deadline, struct upstream_exchange, deadline);
    struct upstream_call *call = exchange->call;
    const struct upstream_timeouts *limits = &call->timeouts;
    if (exchange->is_starved) {
        upstream_call_fail(call, UPSTREAM_CAUSE_MEMORY, "out of memory");
        return;
    }
    if (limits->total_ms > 0 && now_ms >= call->started_ms + (uint64_t)limits->total_ms) {
        late(call, "the whole exchange with", limits->total_ms);
        return;
    }
    switch ((enum call_state)call->state) {
    case CALL_WAITING: late(call, "the wait for a connection to", limits->connect_ms); break;
    case CALL_CONNECTING: connect_late(call); break;
    case CALL_HEAD:
        if (!is_moving(call, now_ms)) {
            late(call, "the head of the answer of", limits->first_byte_ms);
        }
        break;
    case CALL_BODY:
        late(call, "the next piece of the answer of",
            has_switched(call) ? limits->switched_ms : limits->first_byte_ms);
        break;
    case CALL_DONE: break;
    }
}
