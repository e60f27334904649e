/*
 * The server's exchanges, its loop, and the clients on the other side.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "sim_gateway.h"

enum exchange_state { EXCHANGE_BODY, EXCHANGE_HANDLED };

struct sim_exchange {
    struct http_exchange http; /* first */
    struct sim_exchange *next;
    struct http_head head;
    struct arena arena;
    enum exchange_state state;
    char text[512];
    char id[24];
    struct slice body; /* of the request */
    char body_text[64];
    size_t sent; /* of it */
    bool has_woken;
    bool is_blocked; /* the client does not read: drained comes */
    bool is_begun;
    bool is_streamed;
    int64_t length; /* of a streamed answer */
    struct sim_answer answer;
    struct buf answered;
};

static struct sim_exchange *of(struct http_exchange *http)
{
    return (struct sim_exchange *)(void *)http;
}

/* ---- answers ------------------------------------------------------------------------------- */

static void exchange_free(struct sim_exchange *exchange)
{
    struct sim_exchange **at = &sim->exchanges;
    while (*at != exchange) {
        at = &(*at)->next;
    }
    *at = exchange->next;
    sim->exchange_count--;
    buf_release(&exchange->answered);
    free(exchange); /* so that a later use is seen */
}

void http_answer_begin(struct http_exchange *http, unsigned status)
{
    struct sim_exchange *exchange = of(http);
    if (exchange->is_begun) {
        sim_violate("an exchange is answered twice");
    }
    exchange->is_begun = true;
    exchange->answer.status = http->status = status;
}

static void keep(char *to, size_t size, struct slice value)
{
    (void)snprintf(to, size, "%.*s", (int)value.len, value.data);
}

void http_answer_field(struct http_exchange *http, struct slice name, struct slice value)
{
    struct sim_answer *answer = &of(http)->answer;
    ASSERT(of(http)->is_begun && !of(http)->is_streamed);
    if (slice_is(name, "Once-Decision")) {
        keep(answer->decision, sizeof answer->decision, value);
    } else if (slice_is(name, "Once-Effect")) {
        keep(answer->effect, sizeof answer->effect, value);
    } else if (slice_is(name, "Content-Type")) {
        keep(answer->type, sizeof answer->type, value);
    } else if (slice_is(name, "Once-Operation-Id")) {
        keep(answer->operation_id, sizeof answer->operation_id, value);
    }
}

void http_answer_close(struct http_exchange *http)
{
    (void)http;
}

/* The exchange is over: whoever touches it now is found out. */
static void end(struct sim_exchange *exchange, bool is_whole)
{
    ASSERT(!exchange->has_woken);
    exchange->answer.is_whole = is_whole;
    exchange->answer.body = buf_view(&exchange->answered);
    sim_say("key %d, payload %d: answered %u %s %s%s%s", exchange->answer.key,
        exchange->answer.payload, exchange->answer.status, exchange->answer.decision,
        exchange->answer.effect, is_whole ? "" : ", broken off",
        exchange->http.is_gone ? ", to nobody" : "");
    if (!exchange->http.is_gone) {
        oracle_answered(&exchange->answer);
    }
    arena_release(&exchange->arena);
    exchange_free(exchange);
}

void http_answer_end(
    struct http_exchange *http, struct slice content_type, struct slice body, bool is_stable)
{
    struct sim_exchange *exchange = of(http);
    (void)is_stable;
    ASSERT(exchange->is_begun && !exchange->is_streamed);
    exchange->answer.is_ours = slice_is(content_type, "application/problem+json");
    oracle_answering(&exchange->answer);
    buf_append(&exchange->answered, body.data, body.len);
    end(exchange, true);
}

void http_answer_stream(struct http_exchange *http, int64_t length)
{
    struct sim_exchange *exchange = of(http);
    ASSERT(exchange->is_begun && !exchange->is_streamed);
    exchange->is_streamed = true;
    exchange->length = length;
    sim_note(SOMETIMES_GIVEN_IN_PIECES);
    oracle_answering(&exchange->answer);
}

bool http_answer_piece(struct http_exchange *http, struct slice piece)
{
    struct sim_exchange *exchange = of(http);
    ASSERT(exchange->is_streamed && !exchange->is_blocked);
    if (http->is_gone) {
        return true;
    }
    buf_append(&exchange->answered, piece.data, piece.len);
    ASSERT(exchange->length < 0 || exchange->answered.len <= (uint64_t)exchange->length);
    exchange->is_blocked = sim_once_in(3);
    return !exchange->is_blocked;
}

void http_answer_finish(struct http_exchange *http, bool is_whole)
{
    struct sim_exchange *exchange = of(http);
    if (is_whole && !http->is_gone && exchange->length >= 0 &&
        exchange->answered.len != (uint64_t)exchange->length) {
        sim_violate("an answer is called whole and is %zu of %" PRId64 " bytes",
            exchange->answered.len, exchange->length);
    }
    end(exchange, is_whole);
}

void http_body_pause(struct http_exchange *http)
{
    (void)http;
    ASSERT(false); /* of relayed requests */
}

void http_body_go_on(struct http_exchange *http)
{
    (void)http;
    ASSERT(false);
}

/* ---- the loop ------------------------------------------------------------------------------ */

void http_turn(struct http_exchange *http)
{
    (void)http; /* there is always one */
}

void http_wake(struct http_exchange *http)
{
    ASSERT(!of(http)->has_woken);
    of(http)->has_woken = true;
}

struct net_loop *http_server_loop(struct http_server *server, unsigned loop)
{
    ASSERT(server == (void *)sim && loop == 0);
    return sim->loop;
}

void net_loop_post(struct net_loop *loop, struct net_task *task)
{
    (void)loop;
    struct net_task **last = &sim->tasks;
    while (*last != NULL) {
        ASSERT(*last != task);
        last = &(*last)->next;
    }
    task->next = NULL;
    *last = task;
}

void net_loop_deadline(struct net_loop *loop, struct net_deadline *deadline, uint64_t at_ms)
{
    net_wheel_set(&loop->wheel, deadline, net_loop_now(loop), at_ms);
}

bool tasks_run(void)
{
    struct net_task *task = sim->tasks;
    if (task == NULL) {
        return false;
    }
    sim->tasks = task->next;
    task->next = NULL;
    task->run(task);
    return true;
}

/* ---- clients ------------------------------------------------------------------------------- */

static void make_request(struct sim_exchange *exchange)
{
    const struct sim_key *key = &sim->keys[exchange->answer.key];
    static const char *const prefers[] = {"", "Prefer: wait=0\r\n", "Prefer: wait=5\r\n"};
    bool is_chunked = sim_once_in(3);
    int bytes = snprintf(exchange->body_text, sizeof exchange->body_text, "{\"amount\": %d}",
        exchange->answer.payload);
    exchange->body = slice_of(exchange->body_text, (size_t)bytes);
    char length[48];
    (void)snprintf(length, sizeof length, "Content-Length: %d\r\n", bytes);
    int all = snprintf(exchange->text, sizeof exchange->text,
        "POST /r%d/pay HTTP/1.1\r\nHost: gateway.test\r\nIdempotency-Key: %s\r\n"
        "Content-Type: application/json\r\n%s%s\r\n",
        key->route, key->name, is_chunked ? "Transfer-Encoding: chunked\r\n" : length,
        prefers[sim_below(3)]);
    struct http_limits limits = HTTP_LIMITS_DEFAULT;
    struct http_refusal refusal;
    http_head_init(&exchange->head);
    ASSERT(http_request_head(slice_of(exchange->text, (size_t)all), &limits, &exchange->head,
               &refusal) == HTTP_DONE);
}

/* In a narrow run, of the keys that are asked about the first without an effect. */
static int pick_key(void)
{
    int key = (int)sim_below(SIM_KEYS);
    if (sim->is_narrow && !sim_once_in(8)) {
        key = ROUTE_RECONCILE * SIM_ROUTE_KEYS;
        for (int i = 1; i < SIM_ROUTE_KEYS; i++) {
            key += sim->keys[key].effects > 0;
        }
    }
    return key;
}

bool clients_arrive(void)
{
    if (sim->exchange_count == SIM_EXCHANGES_MAX) {
        return false;
    }
    struct sim_exchange *exchange = sim_alloc(sizeof *exchange);
    arena_init(&exchange->arena, &sim->mem, 16 << 20);
    buf_init(&exchange->answered, &mem_libc, 16 << 20);
    exchange->answer.key = pick_key();
    exchange->answer.payload = sim_once_in(6) ? 1 + (int)sim_below(SIM_PAYLOADS - 1) : 0;
    make_request(exchange);
    (void)snprintf(exchange->id, sizeof exchange->id, "r-%" PRIu64, ++sim->request_count);
    exchange->answer.request_id = exchange->id;
    exchange->http = (struct http_exchange){.head = &exchange->head,
        .request_id = slice_str(exchange->id),
        .peer = SLICE_LIT("127.0.0.1:1"),
        .arena = &exchange->arena,
        .body_bytes_max = 1 << 20,
        .started_nanos = clock_nanos()};
    exchange->next = sim->exchanges;
    sim->exchanges = exchange;
    sim->exchange_count++;
    sim_say("key %d, payload %d: a request", exchange->answer.key, exchange->answer.payload);
    gateway_begin(sim->gateway, &exchange->http);
    return true;
}

static void leave(struct sim_exchange *exchange)
{
    if (exchange->state == EXCHANGE_BODY) {
        sim_note(SOMETIMES_BODY_CUT);
        sim_say("key %d: the body is cut", exchange->answer.key);
        if (exchange->http.cut != NULL) {
            exchange->http.cut(NULL, &exchange->http);
        }
        arena_release(&exchange->arena);
        exchange_free(exchange);
        return;
    }
    sim_note(SOMETIMES_CLIENT_LEFT);
    sim_say("key %d: the client leaves", exchange->answer.key);
    exchange->http.is_gone = true;
    exchange->is_blocked = false;
    if (exchange->http.gone != NULL) {
        exchange->http.gone(NULL, &exchange->http);
    }
}

/* A piece of the body, or the end of it. */
static void send_body(struct sim_exchange *exchange)
{
    size_t left = exchange->body.len - exchange->sent;
    if (left > 0) {
        size_t now = 1 + (size_t)sim_below(left);
        exchange->sent += now;
        if (exchange->http.piece != NULL) {
            exchange->http.piece(
                NULL, &exchange->http, slice_of(exchange->body.data + exchange->sent - now, now));
        }
        return;
    }
    exchange->state = EXCHANGE_HANDLED;
    exchange->http.body = exchange->http.piece == NULL ? exchange->body : SLICE_EMPTY;
    gateway_handle(sim->gateway, &exchange->http);
}

bool clients_step(bool may_leave)
{
    if (sim->exchange_count == 0) {
        return false;
    }
    struct sim_exchange *exchange = sim->exchanges;
    for (size_t which = (size_t)sim_below(sim->exchange_count); which > 0; which--) {
        exchange = exchange->next;
    }
    if (may_leave && !exchange->http.is_gone && sim_once_in(60)) {
        leave(exchange);
    } else if (exchange->state == EXCHANGE_BODY) {
        send_body(exchange);
    } else if (exchange->is_blocked) {
        exchange->is_blocked = false;
        exchange->http.drained(NULL, &exchange->http);
    } else {
        return false;
    }
    return true;
}

bool clients_have_woken(void)
{
    for (const struct sim_exchange *at = sim->exchanges; at != NULL; at = at->next) {
        if (at->has_woken) {
            return true;
        }
    }
    return false;
}

bool clients_wake(void)
{
    for (struct sim_exchange *at = sim->exchanges; at != NULL; at = at->next) {
        if (at->has_woken) {
            at->has_woken = false;
            at->http.resume(NULL, &at->http);
            return true;
        }
    }
    return false;
}

void clients_lose(void)
{
    while (sim->exchanges != NULL) {
        exchange_free(sim->exchanges); /* its arena goes with the process */
    }
    sim->tasks = NULL;
}
