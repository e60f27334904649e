#include "load.h"

#include <string.h>

#include "base/check.h"
#include "base/limits.h"

enum {
    PAYLOAD_BYTES = 150, /* a small JSON command */
    OUTCOME_BYTES = 60,
    KEY_BYTES = 32,
    ARENA_BYTES_MAX = 64 << 10, /* one answer */
    LEASE_MS = 3600000,         /* no lease may run out while we measure */
};

static const char payload_text[PAYLOAD_BYTES + 1] =
    "{\"amount\":1990,\"card\":\"tok_1Nq8Xy2eZvKYlo2C\",\"currency\":\"BRL\","
    "\"customer\":\"cus_9s6XKzkNRiz8i3\",\"description\":\"order 0000000000000000\","
    "\"capture\":  true}";
static const char outcome_text[OUTCOME_BYTES + 1] =
    "{\"charge\":\"ch_3MmlLrLkdIwHu7ix0snN0B15\",\"status\":\"settled\"} ";

/* What a door would have computed before it submits. */
struct load_prepared {
    struct digest key;
    struct digest payload;
};

struct load_slot {
    struct engine_call call;
    struct arena arena;
    struct load *load;
    uint64_t started;
    char key[KEY_BYTES];
    char payload[PAYLOAD_BYTES];
};

struct load_latch {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool idle;
};

/* Sixteen hex digits in place; printf would be most of the callback. */
static void put_number(char *at, uint64_t number)
{
    for (int i = 15; i >= 0; i--) {
        at[i] = "0123456789abcdef"[number & 15];
        number >>= 4;
    }
}

static void put_payload(char ret_payload[PAYLOAD_BYTES], uint64_t number)
{
    memcpy(ret_payload, payload_text, PAYLOAD_BYTES);
    char *place = strstr(payload_text, "0000000000000000") - payload_text + ret_payload;
    put_number(place, number);
}

void load_key(uint64_t number, char ret_text[KEY_BYTES], struct record_key *ret_key)
{
    memcpy(ret_text, "order-", 6);
    put_number(ret_text + 6, number);
    *ret_key = (struct record_key){
        .tenant = SLICE_LIT("default"),
        .scope = SLICE_LIT("POST /v1/charges"),
        .principal = SLICE_LIT("checkout"),
        .key = slice_of(ret_text, 22),
    };
}

void load_init(struct load *load, size_t in_flight, bool seals, size_t operations_max)
{
    *load = (struct load){.seals = seals, .in_flight = in_flight, .prepared_cap = operations_max};
    load->slots = mem_zalloc(&mem_libc, in_flight, sizeof *load->slots);
    load->prepared = mem_zalloc(&mem_libc, operations_max, sizeof *load->prepared);
    load->latch = mem_zalloc(&mem_libc, 1, sizeof *load->latch);
    if (load->slots == NULL || load->prepared == NULL || load->latch == NULL) {
        bench_fail("out of memory");
    }
    (void)pthread_mutex_init(&load->latch->lock, NULL);
    (void)pthread_cond_init(&load->latch->changed, NULL);
    digest_sha256(outcome_text, OUTCOME_BYTES, &load->outcome);
    for (size_t i = 0; i < in_flight; i++) {
        arena_init(&load->slots[i].arena, &mem_libc, ARENA_BYTES_MAX);
    }
}

void load_release(struct load *load)
{
    for (size_t i = 0; i < load->in_flight; i++) {
        arena_release(&load->slots[i].arena);
    }
    (void)pthread_mutex_destroy(&load->latch->lock);
    (void)pthread_cond_destroy(&load->latch->changed);
    mem_free(&mem_libc, load->latch);
    mem_free(&mem_libc, load->prepared);
    mem_free(&mem_libc, load->slots);
}

void load_prepare(struct load *load, uint64_t number, size_t count)
{
    ASSERT(count <= load->prepared_cap);
    load->number_first = number;
    load->prepared_count = count;
    for (size_t i = 0; i < count; i++) {
        char text[KEY_BYTES], payload[PAYLOAD_BYTES];
        struct record_key key;
        struct err err = {0};
        load_key(number + i, text, &key);
        bench_must(record_key_seal(&key, &err), &err, "key");
        load->prepared[i].key = key.hash;
        put_payload(payload, number + i);
        digest_sha256(payload, PAYLOAD_BYTES, &load->prepared[i].payload);
    }
}

/* ---- one slot ------------------------------------------------------------------------------ */

static void make_begin(struct load_slot *slot)
{
    struct load *load = slot->load;
    const struct load_prepared *prepared = &load->prepared[load->next];
    uint64_t number = load->number_first + load->next;
    load->next++;
    struct request *request = &slot->call.request;
    *request = (struct request){.kind = REQUEST_BEGIN,
        .policy = policy_default,
        .fingerprint = prepared->payload,
        .fingerprint_version = 1,
        .request = {.digest = prepared->payload, .bytes = PAYLOAD_BYTES, .retained = true}};
    request->policy.lease_ms = LEASE_MS;
    load_key(number, slot->key, &request->key);
    request->key.hash = prepared->key;
    put_payload(slot->payload, number);
    slot->call.request_body = slice_of(slot->payload, PAYLOAD_BYTES);
    slot->call.outcome_body = SLICE_EMPTY;
}

static void make_seal(struct load_slot *slot)
{
    struct op_id id = slot->call.decision.next.operation_id;
    uint64_t fence = slot->call.decision.next.fence;
    slot->call.request = (struct request){.kind = REQUEST_SEAL,
        .key = {.tenant = SLICE_LIT("default")},
        .operation_id = id,
        .fence = fence,
        .status = RECORD_EXECUTED,
        .effect_id = SLICE_LIT("ch_3MmlLrLkdIwHu7ix0snN0B15"),
        .outcome = {.code = 201,
            .body = {.digest = slot->load->outcome, .bytes = OUTCOME_BYTES, .retained = true}}};
    slot->call.request_body = SLICE_EMPTY;
    slot->call.outcome_body = slice_of(outcome_text, OUTCOME_BYTES);
}

static void slot_submit(struct load_slot *slot, uint64_t now)
{
    struct err err = {0};
    slot->started = now;
    arena_clear(&slot->arena);
    bench_must(engine_submit(slot->load->engine, &slot->call, &err), &err, "submit");
}

static void slot_idle(struct load *load, uint64_t now)
{
    load->running--;
    if (load->running == 0) {
        load->ended = now;
        pthread_mutex_lock(&load->latch->lock);
        load->latch->idle = true;
        pthread_cond_signal(&load->latch->changed);
        pthread_mutex_unlock(&load->latch->lock);
    }
}

static void note_thread(struct load *load)
{
    for (size_t i = 0; i < load->answering_count; i++) {
        if (pthread_equal(load->answering[i], pthread_self())) {
            return;
        }
    }
    if (load->answering_count == LOAD_THREADS) {
        bench_fail("more than %d threads answer", LOAD_THREADS);
    }
    load->answering[load->answering_count++] = pthread_self();
}

static void slot_done(struct engine_call *call)
{
    struct load_slot *slot = call->context;
    struct load *load = slot->load;
    uint64_t now = clock_nanos();
    bench_must(call->err.status, &call->err, "call");
    bool begun = call->request.kind == REQUEST_BEGIN;
    if (call->decision.kind != (begun ? DECISION_FIRST_SEEN : DECISION_SEALED)) {
        bench_fail("unexpected decision '%s'", decision_name(call->decision.kind));
    }
    bench_times_add(&load->times, now - slot->started);
    load->calls++;
    note_thread(load);
    if (begun && load->seals) {
        make_seal(slot);
    } else if (now < load->until && load->next < load->prepared_count) {
        make_begin(slot);
    } else {
        slot_idle(load, now);
        return;
    }
    slot_submit(slot, now);
}

/* ---- one run ------------------------------------------------------------------------------- */

struct load_result load_run(struct load *load, struct engine *engine, double seconds)
{
    ASSERT(load->prepared_count >= load->in_flight);
    load->answering_count = load->engine == engine ? load->answering_count : 0;
    load->engine = engine;
    load->next = 0;
    load->calls = 0;
    load->times = (struct bench_times){0};
    load->running = load->in_flight;
    load->latch->idle = false;
    for (size_t i = 0; i < load->in_flight; i++) {
        struct load_slot *slot = &load->slots[i];
        slot->load = load;
        slot->call.arena = &slot->arena;
        slot->call.context = slot;
        slot->call.done = slot_done;
        make_begin(slot);
    }
    double cpu = bench_cpu_s();
    uint64_t started = clock_nanos();
    load->until = started + (uint64_t)(seconds * 1e9);
    for (size_t i = 0; i < load->in_flight; i++) {
        slot_submit(&load->slots[i], clock_nanos());
    }
    pthread_mutex_lock(&load->latch->lock);
    while (!load->latch->idle) {
        pthread_cond_wait(&load->latch->changed, &load->latch->lock);
    }
    pthread_mutex_unlock(&load->latch->lock);
    return (struct load_result){.seconds = (double)(load->ended - started) / 1e9,
        .cpu_s = bench_cpu_s() - cpu,
        .calls = load->calls,
        .operations = load->next};
}
