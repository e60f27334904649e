/*
 * The upstream: an API that knows no idempotency keys, and a way to ask what became of a key.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/text.h"
#include "sim_gateway.h"

struct upstream {
    const struct mem *mem;
    bool is_closed;
};

/* Of a field that some answers have: not plain text, and too long for the memory that a request has
 * allocated anyway, so that a duplicate's answer can run out of memory. */
enum { LONG_FIELD_BYTES = 1200 };

enum sim_call_state { CALL_CONNECTING, CALL_SENDING, CALL_RECEIVED, CALL_ANSWERING, CALL_OVER };

/* One request at the upstream. */
struct sim_call {
    struct upstream_call *call; /* the gateway's */
    struct upstream *upstream;
    struct sim_call *next;
    struct sim_attempt *attempt; /* NULL: a lookup */
    int key;
    enum sim_call_state state;
    int64_t started_ms;
    bool is_silent;   /* no answer comes */
    bool is_slow;     /* one does, late */
    bool is_paused;   /* nobody reads it */
    bool will_effect; /* and did not yet */
    bool is_chunked;
    unsigned status;
    char *body;
    size_t bytes;
    size_t given;
};

/* ---- effects ------------------------------------------------------------------------------- */

static void take_effect(struct sim_call *call)
{
    if (call->will_effect) {
        call->will_effect = false;
        oracle_effect(call->attempt);
    }
}

/* Nobody waits for it any more; what has left goes on. */
static void orphan(struct sim_call *call)
{
    bool arrives = call->state == CALL_RECEIVED || call->state == CALL_ANSWERING ||
                   (call->state == CALL_SENDING && sim_once_in(2));
    if (call->attempt != NULL && call->will_effect && arrives &&
        sim->orphan_count < SIM_ORPHANS_MAX) {
        sim->orphans[sim->orphan_count++] =
            (struct sim_orphan){call->attempt, sim->now_ms + SIM_QUIET_MS - 1000};
    }
    call->state = CALL_OVER;
}

bool upstream_has(const struct sim_attempt *attempt)
{
    for (const struct sim_call *at = sim->calls; at != NULL; at = at->next) {
        if (at->attempt == attempt && at->state != CALL_OVER && at->state != CALL_CONNECTING) {
            return true;
        }
    }
    for (size_t i = 0; i < sim->orphan_count; i++) {
        if (sim->orphans[i].attempt == attempt) {
            return true;
        }
    }
    return false;
}

bool upstream_is_asked(int key)
{
    for (const struct sim_call *at = sim->calls; at != NULL; at = at->next) {
        if (at->attempt == NULL && at->key == key && at->state != CALL_OVER) {
            return true;
        }
    }
    return false;
}

static void orphan_end(size_t i)
{
    sim->orphans[i] = sim->orphans[--sim->orphan_count];
}

/* ---- answers ------------------------------------------------------------------------------- */

static void plan_lookup(struct sim_call *call)
{
    const struct sim_key *key = &sim->keys[call->key];
    call->is_slow = sim_once_in(2);
    call->status = sim_once_in(5) ? 503 : key->effects > 0 ? 200 : 404;
    call->body = sim_alloc(64);
    call->bytes = (size_t)snprintf(call->body, 64, "lookup of %s", key->name);
}

static size_t draw_bytes(void)
{
    if (sim_once_in(40)) {
        return SIM_OUTCOME_BYTES_MAX + 1 + (size_t)sim_below(20000);
    }
    return sim_once_in(30) ? (65 << 10) + (size_t)sim_below(1000) : (size_t)sim_below(300);
}

/* A 5xx that says nothing about the effect: no status of the route that rolls back, and on the one
 * with the defaults all but 503. */
static bool is_open(enum sim_route route, unsigned status)
{
    return status >= 500 && route != ROUTE_RECONCILE && (route != ROUTE_HOLD || status != 503);
}

/* What it will say, and whether it takes effect: as the route's on_status supposes. */
static void plan_answer(struct sim_call *call)
{
    static const unsigned statuses[] = {200, 200, 201, 201, 200, 404, 408, 429, 500, 502, 503, 204};
    call->status = statuses[sim_below(12)];
    bool is_open_5xx = is_open(sim->keys[call->key].route, call->status);
    call->will_effect = call->status < 300 || (is_open_5xx && sim_once_in(2));
    call->bytes = call->status == 204 ? 0 : 32 + draw_bytes();
    call->body = sim_alloc(call->bytes + 32);
    (void)snprintf(call->body, 32, "outcome-%" PRIu64 "-", ++sim->answer_count);
    if (call->bytes > 0) {
        memset(call->body + strlen(call->body), 'x', call->bytes - strlen(call->body));
    }
}

static void read_head(
    const char *text, size_t bytes, enum http_method method, struct http_head *ret_head)
{
    struct http_limits limits = HTTP_LIMITS_DEFAULT;
    struct http_refusal refusal;
    http_head_init(ret_head);
    ASSERT(http_response_head(slice_of(text, bytes), &limits, method, ret_head, &refusal) ==
           HTTP_DONE);
}

static void send_head(struct sim_call *call)
{
    char text[2048];
    char framing[64];
    char long_field[LONG_FIELD_BYTES + 1] = "";
    struct http_head head;
    if (sim_once_in(3)) {
        memset(long_field, '"', LONG_FIELD_BYTES);
    }
    (void)snprintf(framing, sizeof framing, "Content-Length: %zu\r\n", call->bytes);
    int length =
        snprintf(text, sizeof text, "HTTP/1.1 %u X\r\nContent-Type: %s\r\nX-Long: %s\r\n%s\r\n",
            call->status, SIM_CONTENT_TYPE, long_field,
            call->status == 204 ? ""
            : call->is_chunked  ? "Transfer-Encoding: chunked\r\n"
                                : framing);
    read_head(text, (size_t)length, call->call->method, &head);
    take_effect(call);
    call->state = CALL_ANSWERING;
    if (call->attempt != NULL) {
        call->attempt->status = call->status;
        call->attempt->is_long = call->bytes > SIM_OUTCOME_BYTES_MAX;
        digest_sha256(call->body, call->bytes, &call->attempt->answer);
    }
    call->call->events->head(call->call, &head);
}

static void send_on(struct sim_call *call)
{
    size_t left = call->bytes - call->given;
    if (left == 0) {
        call->state = CALL_OVER;
        if (call->attempt != NULL) {
            call->attempt->is_whole = true;
        }
        call->call->events->end(call->call);
        return;
    }
    size_t now = 1 + (size_t)sim_below(left < 40000 ? left : 40000);
    now = sim_once_in(2) && left < 40000 ? left : now;
    call->given += now;
    call->call->events->piece(call->call, slice_of(call->body + call->given - now, now));
}

/* ---- failures ------------------------------------------------------------------------------ */

static void fail(struct sim_call *call, enum upstream_cause cause, const char *text)
{
    enum upstream_point point = call->state == CALL_CONNECTING  ? UPSTREAM_NOT_SENT
                                : call->state == CALL_ANSWERING ? UPSTREAM_HEAD
                                                                : UPSTREAM_SENT;
    struct err err;
    (void)err_set(&err, E_UNAVAILABLE, "%s", text);
    if (point != UPSTREAM_NOT_SENT) {
        sim_note(point == UPSTREAM_SENT ? SOMETIMES_SENT_BROKEN : SOMETIMES_HEAD_BROKEN);
    }
    sim_say("upstream call of key %d fails: %s", call->key, text);
    struct upstream_call *mine = call->call;
    orphan(call);
    mine->events->failed(mine, point, cause, &err);
}

/* ---- steps --------------------------------------------------------------------------------- */

static void advance(struct sim_call *call)
{
    switch (call->state) {
    case CALL_CONNECTING:
        if (sim_once_in(8)) {
            fail(call, UPSTREAM_CAUSE_UNREACHABLE, "refused");
            break;
        }
        if (call->call->timeouts.send_until_boot_ms > 0 &&
            clock_read(&sim->clock).boot_ms >= call->call->timeouts.send_until_boot_ms) {
            fail(call, UPSTREAM_CAUSE_TIMEOUT, "too late to be sent"); /* UP8 */
            break;
        }
        call->state = CALL_SENDING;
        if (call->attempt != NULL) {
            oracle_sending(call->attempt);
            call->attempt->sent = SENT_PART;
        }
        break;
    case CALL_SENDING:
        if (sim_once_in(12)) {
            fail(call, UPSTREAM_CAUSE_BROKEN, "reset while it is sent");
            break;
        }
        call->state = CALL_RECEIVED;
        if (call->attempt != NULL) {
            call->attempt->sent = SENT_WHOLE;
        }
        call->is_silent = sim_once_in(12);
        if (sim_once_in(2)) {
            take_effect(call);
        }
        break;
    case CALL_RECEIVED:
        if (sim_once_in(10)) {
            fail(call, UPSTREAM_CAUSE_BROKEN, "closed before its answer");
        } else if (!call->is_silent && (!call->is_slow || sim_once_in(15))) {
            send_head(call);
        }
        break;
    case CALL_ANSWERING:
        if (sim_once_in(call->is_paused ? 40 : 12)) {
            fail(call, UPSTREAM_CAUSE_BROKEN, "closed within its answer");
        } else if (!call->is_paused) {
            send_on(call);
        }
        break;
    case CALL_OVER: break;
    }
}

static void sweep(void)
{
    for (struct sim_call **at = &sim->calls; *at != NULL;) {
        struct sim_call *call = *at;
        if (call->state == CALL_OVER) {
            *at = call->next;
            free(call->body);
            free(call);
        } else {
            at = &call->next;
        }
    }
}

bool upstream_step(void)
{
    size_t count = 0;
    sweep();
    for (const struct sim_call *at = sim->calls; at != NULL; at = at->next) {
        count++;
    }
    if (count == 0) {
        return false;
    }
    struct sim_call *call = sim->calls;
    for (size_t which = (size_t)sim_below(count); which > 0; which--) {
        call = call->next;
    }
    advance(call);
    sweep();
    return true;
}

void upstream_time(void)
{
    for (size_t i = sim->orphan_count; i-- > 0;) {
        bool is_late = sim->now_ms >= sim->orphans[i].until_ms;
        if (!is_late && sim_once_in(20)) {
            sim_note(SOMETIMES_LATE_EFFECTS);
            oracle_effect(sim->orphans[i].attempt);
            orphan_end(i);
        } else if (is_late) {
            orphan_end(i);
        }
    }
    for (struct sim_call *at = sim->calls; at != NULL; at = at->next) {
        if (at->state != CALL_OVER && sim->now_ms - at->started_ms > at->call->timeouts.total_ms) {
            sim_note(SOMETIMES_TIMEOUTS);
            fail(at, UPSTREAM_CAUSE_TIMEOUT, "took too long");
        }
    }
    sweep();
}

void upstream_lose(void)
{
    for (struct sim_call *at = sim->calls; at != NULL; at = at->next) {
        if (at->state != CALL_OVER && at->state != CALL_CONNECTING) {
            sim_note(SOMETIMES_KILLED_CALLING);
        }
        orphan(at);
    }
    sweep();
}

/* ---- what upstream.h promises -------------------------------------------------------------- */

enum status upstream_new(const struct upstream_options *options, unsigned loops,
    struct upstream **ret_upstream, struct err *err)
{
    (void)loops;
    (void)err;
    *ret_upstream = mem_zalloc(options->mem, 1, sizeof **ret_upstream);
    ASSERT(*ret_upstream != NULL);
    (*ret_upstream)->mem = options->mem;
    return OK;
}

void upstream_attach(struct upstream *upstream, unsigned number, struct net_loop *loop)
{
    (void)upstream;
    ASSERT(number == 0 && loop == sim->loop);
}

void upstream_detach(struct upstream *upstream, unsigned loop)
{
    (void)loop;
    upstream->is_closed = true;
    for (struct sim_call *at = sim->calls; at != NULL; at = at->next) {
        if (at->upstream == upstream && at->state != CALL_OVER) {
            fail(at, UPSTREAM_CAUSE_BROKEN, "detached");
        }
    }
}

bool upstream_is_closed(const struct upstream *upstream, unsigned loop)
{
    (void)loop;
    return upstream->is_closed;
}

void upstream_free(struct upstream *upstream)
{
    if (upstream != NULL) {
        mem_free(upstream->mem, upstream);
    }
}

struct slice upstream_authority(const struct upstream *upstream)
{
    (void)upstream;
    return SLICE_LIT("upstream.test");
}

static int key_of(struct slice name)
{
    for (int i = 0; i < SIM_KEYS; i++) {
        if (slice_is(name, sim->keys[i].name)) {
            return i;
        }
    }
    sim_violate("the upstream got a key that no client has");
    return 0;
}

/* Whose request it is, from its bytes alone. */
static void read_request(struct sim_call *call)
{
    struct http_limits limits = HTTP_LIMITS_DEFAULT;
    struct http_refusal refusal;
    struct http_head head;
    struct slice key = SLICE_EMPTY, id = SLICE_EMPTY, fence = SLICE_EMPTY;
    uint64_t number = 0;
    http_head_init(&head);
    ASSERT(http_request_head(call->call->head, &limits, &head, &refusal) == HTTP_DONE);
    ASSERT(http_find_single(&head, SLICE_LIT("Idempotency-Key"), &key));
    ASSERT(http_find_single(&head, SLICE_LIT("Once-Operation-Id"), &id));
    ASSERT(http_find_single(&head, SLICE_LIT("Once-Fence"), &fence));
    ASSERT(text_u64(fence, &number));
    call->key = key_of(key);
    if (call->call->method == HTTP_METHOD_GET) {
        sim->keys[call->key].asked_fence = number;
        plan_lookup(call);
        return;
    }
    call->attempt = oracle_attempt(id, number);
    if (call->attempt == NULL || call->attempt->key != call->key) {
        sim_violate("P6: a request without a grant is sent");
        return;
    }
    plan_answer(call);
}

void upstream_start(struct upstream *upstream, unsigned loop, struct upstream_call *mine)
{
    ASSERT(loop == 0);
    struct sim_call *call = sim_alloc(sizeof *call);
    call->call = mine;
    call->upstream = upstream;
    call->started_ms = sim->now_ms;
    call->is_chunked = sim_once_in(2);
    call->next = sim->calls;
    sim->calls = call;
    read_request(call);
    sim_say("key %d: the upstream is called (%s)", call->key,
        call->attempt == NULL ? "lookup" : call->attempt->operation_id);
    if (upstream->is_closed || sim_once_in(30)) {
        fail(call, UPSTREAM_CAUSE_UNREACHABLE, "no address");
    }
}

static struct sim_call *find(const struct upstream_call *mine)
{
    struct sim_call *at = sim->calls;
    while (at != NULL && (at->call != mine || at->state == CALL_OVER)) {
        at = at->next;
    }
    ASSERT(at != NULL); /* used after its last event */
    return at;
}

bool upstream_cancel(struct upstream_call *mine)
{
    struct sim_call *call = find(mine);
    bool is_unsent = call->state == CALL_CONNECTING;
    orphan(call);
    return is_unsent;
}

void upstream_pause(struct upstream_call *mine)
{
    find(mine)->is_paused = true;
}

void upstream_go_on(struct upstream_call *mine)
{
    find(mine)->is_paused = false;
}

/* Of relayed requests, which are not simulated. */
bool upstream_put(struct upstream_call *call, struct slice piece)
{
    (void)call;
    (void)piece;
    ASSERT(false);
    return false;
}

void upstream_put_end(struct upstream_call *call)
{
    (void)call;
    ASSERT(false);
}

void upstream_stats(struct upstream *upstream, struct upstream_stats *ret_stats)
{
    (void)upstream;
    *ret_stats = (struct upstream_stats){0};
}

unsigned upstream_fill(const struct upstream *upstream, unsigned loop)
{
    (void)upstream, (void)loop;
    return 0;
}
