/*
 * Looks: pages of operations and evidence from a running engine, turn by turn. What is counted are
 * turns and answers, never time.
 */
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/limits.h"
#include "check_c.h"
#include "engine/query.h"
#include "evidence/entry_form.h"
#include "store/fault.h"
#include "store/mem.h"

struct fake_clock {
    _Atomic int64_t wall_ms;
    _Atomic int64_t boot_ms;
};

static struct clock_reading fake_read(void *context)
{
    struct fake_clock *fake = context;
    return (struct clock_reading){fake->wall_ms, fake->boot_ms};
}

struct fixture {
    struct fake_clock fake;
    struct clock clock;
    struct engine *engine;
    struct arena arena;
    struct arena page; /* of a look */
};

/* ---- named queries: what happened in which order, and a gate that a turn waits at ----------- */

struct order {
    pthread_mutex_t lock;
    char text[2048];
    size_t len;
    sem_t at_gate;
    sem_t gate;
};

struct named {
    struct query query; /* first */
    struct order *order;
    char name;
    int turns; /* still to come */
    bool gated;
    sem_t done;
    struct arena arena;
    struct named *mark; /* itself: its bytes are what it asks the store for */
};

static const struct store_ops *inner; /* the store's own table … */
static struct store_ops watched;      /* … and the same where named queries are noticed */

static void named_turn(struct named *named)
{
    const struct timespec longer_than_a_turn = {.tv_nsec = 1000000};
    pthread_mutex_lock(&named->order->lock);
    named->order->text[named->order->len++] = named->name;
    pthread_mutex_unlock(&named->order->lock);
    if (named->gated) {
        sem_post(&named->order->at_gate);
        sem_wait(&named->order->gate);
    }
    (void)nanosleep(&longer_than_a_turn, NULL);
    named->turns--;
}

static enum status named_read(struct store *store, struct store_batch *batch, struct err *err)
{
    unsigned char tail[DIGEST_BYTES - sizeof(void *)];
    memset(tail, 0xee, sizeof tail);
    const struct digest *key = batch->count == 1 ? batch->wants[0].key : NULL;
    if (key != NULL && memcmp(key->bytes + sizeof(void *), tail, sizeof tail) == 0) {
        struct named *named;
        memcpy(&named, key->bytes, sizeof named);
        named_turn(named);
    }
    return inner->read(store, batch, err);
}

static enum status named_scan(struct store *store, const struct scan *scan, struct arena *arena,
    const struct record **ret_records, size_t *ret_count, struct err *err)
{
    struct named *named = NULL;
    if (scan->scope.len == sizeof named) {
        memcpy(&named, scan->scope.data, sizeof named);
        named_turn(named);
        *ret_count = 0;
        scan->pace->done = named->turns == 0;
        return OK;
    }
    return inner->scan(store, scan, arena, ret_records, ret_count, err);
}

static int set_up(void **state)
{
    static struct fixture fixture;
    struct store *store;
    struct err err = {0};
    memset(&fixture, 0, sizeof fixture);
    fixture.fake.wall_ms = 1794770607000;
    fixture.fake.boot_ms = 5000;
    fixture.clock = (struct clock){.read = fake_read, .boot_id = 7, .context = &fixture.fake};
    arena_init(&fixture.arena, &mem_libc, 256 << 20);
    arena_init(&fixture.page, &mem_libc, 64 << 20);
    const struct store_options store_options = {.clock = &fixture.clock};
    assert_int_equal(store_mem_new(&store_options, NULL, &store, &err), OK);
    inner = store->ops; /* named queries are seen by what they ask the store for */
    watched = *inner;
    watched.read = named_read;
    watched.scan = named_scan;
    store->ops = &watched;
    struct engine_options options = {.clock = &fixture.clock};
    assert_int_equal(engine_new(store, &options, &fixture.engine, &err), OK);
    *state = &fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;
    (void)engine_free(fixture->engine, NULL);
    arena_release(&fixture->arena);
    arena_release(&fixture->page);
    return 0;
}

static void advance(struct fixture *fixture, int64_t ms)
{
    fixture->fake.wall_ms += ms;
    fixture->fake.boot_ms += ms;
}

struct who {
    const char *tenant;
    const char *scope;
    const char *principal;
    const char *key;
};

static struct engine_call begin_call(struct fixture *fixture, struct who who)
{
    struct engine_call call = {.arena = &fixture->arena};
    call.request.kind = REQUEST_BEGIN;
    call.request.key = (struct record_key){.tenant = slice_str(who.tenant),
        .scope = slice_str(who.scope),
        .principal = slice_str(who.principal),
        .key = slice_str(who.key)};
    call.request.policy = policy_default;
    call.request_body = SLICE_LIT("first body");
    call.request.request.bytes = 10;
    call.request.request.retained = true;
    digest_sha256("first body", 10, &call.request.request.digest);
    assert_int_equal(record_key_seal(&call.request.key, NULL), OK);
    return call;
}

static struct op_id begin(struct fixture *fixture, struct who who)
{
    struct engine_call call = begin_call(fixture, who);
    assert_int_equal(engine_do(fixture->engine, &call), OK);
    return call.decision.next.operation_id;
}

static void seal(struct fixture *fixture, const char *tenant, struct op_id id, const char *outcome)
{
    struct query look = {
        .call = {.arena = &fixture->arena}, .tenant = slice_str(tenant), .operation_id = id};
    assert_int_equal(query_do(fixture->engine, &look), OK);
    struct engine_call call = {.arena = &fixture->arena};
    call.request.kind = REQUEST_SEAL;
    call.request.key.tenant = slice_str(tenant);
    call.request.operation_id = id;
    call.request.fence = look.record->fence;
    call.request.status = RECORD_EXECUTED;
    call.outcome_body = slice_str(outcome);
    call.request.outcome.body.bytes = strlen(outcome);
    call.request.outcome.body.retained = true;
    digest_sha256(outcome, strlen(outcome), &call.request.outcome.body.digest);
    assert_int_equal(engine_do(fixture->engine, &call), OK);
    assert_int_equal(call.decision.kind, DECISION_SEALED);
}

static void begin_many(struct fixture *fixture, const char *tenant, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        char key[32];
        (void)snprintf(key, sizeof key, "key-%u", i);
        (void)begin(fixture, (struct who){tenant, i % 3 == 0 ? "third" : "rest", "", key});
        arena_clear(&fixture->arena);
    }
}

static struct query page_look(struct fixture *fixture, enum query_kind kind, const char *tenant)
{
    arena_clear(&fixture->page);
    return (struct query){
        .call = {.arena = &fixture->page}, .kind = kind, .tenant = slice_str(tenant)};
}

/* ---- one operation ------------------------------------------------------------------------- */

static void one_is_found_by_id_and_by_key_with_its_bodies(void **state)
{
    struct fixture *fixture = *state;
    struct op_id id = begin(fixture, (struct who){"acme", "s", "p", "k"});
    seal(fixture, "acme", id, "charged");
    struct query look = page_look(fixture, QUERY_OPERATION, "acme");
    look.operation_id = id;
    assert_int_equal(query_do(fixture->engine, &look), OK);
    assert_non_null(look.record);
    assert_true(slice_is(look.outcome_body, "charged"));
    assert_true(slice_is(look.request_body, "first body"));
    assert_int_equal(look.head.seq, 2);
    struct query by_key = page_look(fixture, QUERY_OPERATION, "acme");
    by_key.key = (struct record_key){.tenant = SLICE_LIT("acme"),
        .scope = SLICE_LIT("s"),
        .principal = SLICE_LIT("p"),
        .key = SLICE_LIT("k")};
    assert_int_equal(record_key_seal(&by_key.key, NULL), OK);
    assert_int_equal(query_do(fixture->engine, &by_key), OK);
    assert_non_null(by_key.record);
    assert_true(op_id_equal(&by_key.record->operation_id, &id));

    struct query other = page_look(fixture, QUERY_OPERATION, "other"); /* P9 */
    other.operation_id = id;
    assert_int_equal(query_do(fixture->engine, &other), OK);
    assert_null(other.record);
    assert_int_equal(other.outcome_body.len, 0);
}

static void one_past_its_window_is_as_absent(void **state)
{
    struct fixture *fixture = *state;
    struct op_id id = begin(fixture, (struct who){"acme", "s", "", "k"});
    seal(fixture, "acme", id, "charged");
    advance(fixture, LIMIT_WINDOW_MS_DEFAULT);
    struct query look = page_look(fixture, QUERY_OPERATION, "acme");
    look.operation_id = id;
    assert_int_equal(query_do(fixture->engine, &look), OK);
    /* The jump is not believed at once (P8): then it is there; it is not once the time has come. */
    for (int i = 0; i < 200 && look.record != NULL; i++) {
        advance(fixture, 3600000);
        usleep(1000);
        look = page_look(fixture, QUERY_OPERATION, "acme");
        look.operation_id = id;
        assert_int_equal(query_do(fixture->engine, &look), OK);
    }
    assert_null(look.record);
    struct query page = page_look(fixture, QUERY_RECORDS, "acme");
    page.scan.limit = 10;
    assert_int_equal(query_do(fixture->engine, &page), OK);
    assert_int_equal(page.count, 0);
}

/* ---- pages --------------------------------------------------------------------------------- */

/* Every record of a filter, page by page. */
static unsigned page_through(struct fixture *fixture, struct scan scan, size_t limit)
{
    unsigned seen = 0;
    struct digest last = {{0}};
    for (;;) {
        struct query look = page_look(fixture, QUERY_RECORDS, "acme");
        look.scan = scan;
        look.scan.limit = limit;
        assert_int_equal(query_do(fixture->engine, &look), OK);
        for (size_t i = 0; i < look.count; i++) {
            assert_true(slice_is(look.records[i]->key.tenant, "acme"));
            assert_true(memcmp(&look.records[i]->key.hash, &last, sizeof last) > 0);
            last = look.records[i]->key.hash;
        }
        seen += (unsigned)look.count;
        assert_true(look.count <= limit);
        if (!look.has_more) {
            return seen;
        }
        assert_int_equal(look.count, limit);
        scan.after = look.after;
    }
}

static void every_page_size_shows_every_operation_once(void **state)
{
    struct fixture *fixture = *state;
    enum { COUNT = 60 };
    begin_many(fixture, "acme", COUNT);
    begin_many(fixture, "other", COUNT);
    (void)begin(fixture, (struct who){"acme", "rest", "somebody", "key-1"});
    for (size_t limit = 1; limit <= COUNT + 2; limit++) {
        assert_int_equal(page_through(fixture, (struct scan){0}, limit), COUNT + 1);
        assert_int_equal(
            page_through(fixture, (struct scan){.scope = SLICE_LIT("third")}, limit), COUNT / 3);
    }
    struct scan key = {.scope = SLICE_LIT("rest"), .key = SLICE_LIT("key-1")};
    assert_int_equal(page_through(fixture, key, 10), 2); /* under another principal too */
    struct scan theirs = {.tenant = SLICE_LIT("other")}; /* P9: the look's tenant holds */
    assert_int_equal(page_through(fixture, theirs, 10), COUNT + 1);
    struct query look = page_look(fixture, QUERY_RECORDS, "acme");
    assert_int_equal(query_do(fixture->engine, &look), E_INVALID);
    look.scan.limit = LIMIT_PAGE_RECORDS_MAX + 1;
    assert_int_equal(query_do(fixture->engine, &look), E_INVALID);
}

static unsigned evidence_through(
    struct fixture *fixture, const char *tenant, const struct op_id *id, size_t limit)
{
    unsigned seen = 0;
    uint64_t after = 0;
    struct entry_cursor next = {.seq = 0};
    struct digest hash = {{0}};
    for (;;) {
        struct query look = page_look(fixture, QUERY_ENTRIES, tenant);
        look.after_entry = next;
        look.limit = limit;
        if (id != NULL) {
            look.operation_id = *id;
        }
        assert_int_equal(query_do(fixture->engine, &look), OK);
        for (size_t i = 0; i < look.count; i++) {
            const struct query_entry *one = &look.entries[i];
            struct digest computed;
            entry_link(&one->prev_hash, &one->entry, &computed);
            assert_memory_equal(&computed, &one->entry.hash, sizeof computed);
            if (one->entry.seq == after + 1) {
                assert_memory_equal(&one->prev_hash, &hash, sizeof hash);
            }
            assert_true(one->entry.seq > after);
            assert_true(id == NULL || op_id_equal(id, &one->entry.operation_id));
            after = one->entry.seq;
            hash = one->entry.hash;
        }
        seen += (unsigned)look.count;
        next = look.next_entry;
        assert_true(look.next_entry.seq >= after);
        if (!look.has_more) {
            assert_int_equal(look.next_entry.seq, look.head.seq);
            return seen;
        }
        assert_int_equal(look.count, limit);
        if (look.next_entry.seq != after) {
            after = look.next_entry.seq;
            hash = (struct digest){{0}};
        }
    }
}

static void every_page_size_shows_all_evidence_chained(void **state)
{
    struct fixture *fixture = *state;
    enum { COUNT = 30 };
    begin_many(fixture, "acme", COUNT);
    begin_many(fixture, "other", COUNT);
    struct op_id id = begin(fixture, (struct who){"acme", "", "", "mine"});
    seal(fixture, "acme", id, "done");
    for (size_t limit = 1; limit <= COUNT + 4; limit++) {
        assert_int_equal(evidence_through(fixture, "acme", NULL, limit), COUNT + 2);
        assert_int_equal(evidence_through(fixture, "acme", &id, limit), 2);
        assert_int_equal(evidence_through(fixture, "other", &id, limit), 0); /* P9 */
    }
    assert_int_equal(evidence_through(fixture, "nobody", NULL, 5), 0);
}

/* A tenant that is named like the JSON around it, or in other members, is not fooled into. */
static void evidence_of_another_tenant_is_never_shown(void **state)
{
    struct fixture *fixture = *state;
    (void)begin(fixture, (struct who){"other", "\"tenant_id\":\"acme\"", "", "k"});
    (void)begin(fixture, (struct who){"other", "\",\"tenant_id\":\"acme\",\"", "acme", "acme"});
    (void)begin(fixture, (struct who){"other", "tenant_id", "\\", "\\\\\",\"tenant_id\":\"acme"});
    (void)begin(fixture, (struct who){"acme2", "", "", "k"});
    (void)begin(fixture, (struct who){"acm", "", "", "k"});
    assert_int_equal(evidence_through(fixture, "acme", NULL, 10), 0);
    assert_int_equal(evidence_through(fixture, "other", NULL, 10), 3);
    (void)begin(fixture, (struct who){"a\"\\\xc3\xbc", "\\", "\\\"", "k"});
    assert_int_equal(evidence_through(fixture, "a\"\\\xc3\xbc", NULL, 10), 1);
    assert_int_equal(evidence_through(fixture, "acme", NULL, 10), 0);
    (void)begin(fixture, (struct who){"acme", "{[\"", "]", "{{"}); /* nor are its own hidden */
    assert_int_equal(evidence_through(fixture, "acme", NULL, 10), 1);
}

/* ---- turns --------------------------------------------------------------------------------- */

static void named_done(struct engine_call *call)
{
    sem_post(&((struct named *)(void *)call)->done);
}

static void named_init(struct named *named, struct order *order, char name, int turns, bool gated)
{
    *named = (struct named){.order = order, .name = name, .turns = turns, .gated = gated};
    arena_init(&named->arena, &mem_libc, 1 << 20);
    sem_init(&named->done, 0, 0);
    named->query.kind = turns == 1 ? QUERY_OPERATION : QUERY_RECORDS;
    named->query.tenant = SLICE_LIT("acme");
    named->query.scan = (struct scan){
        .scope = slice_of((const char *)(const void *)&named->mark, sizeof named->mark),
        .limit = 5};
    named->mark = named;
    memset(named->query.key.hash.bytes, 0xee, DIGEST_BYTES);
    memcpy(named->query.key.hash.bytes, &named->mark, sizeof named->mark);
    named->query.call.done = named_done;
    named->query.call.arena = &named->arena;
}

static void named_submit(struct fixture *fixture, struct named *named, struct order *order,
    char name, int turns, bool gated)
{
    struct err err = {0};
    named_init(named, order, name, turns, gated);
    assert_int_equal(query_submit(fixture->engine, &named->query, &err), OK);
}

static enum status named_try(struct fixture *fixture, struct named *named, struct order *order)
{
    struct err err = {0};
    named_init(named, order, '.', 1, false);
    return query_submit(fixture->engine, &named->query, &err);
}

static void named_wait(struct named *named)
{
    sem_wait(&named->done);
    arena_release(&named->arena);
}

static void order_init(struct order *order)
{
    memset(order, 0, sizeof *order);
    pthread_mutex_init(&order->lock, NULL);
    sem_init(&order->at_gate, 0, 0);
    sem_init(&order->gate, 0, 0);
}

static void a_read_that_goes_on_is_behind_those_that_wait(void **state)
{
    struct fixture *fixture = *state;
    struct order order;
    struct named a, others[4];
    order_init(&order);
    named_submit(fixture, &a, &order, 'a', 3, true);
    for (int turn = 0; turn < 2; turn++) {
        sem_wait(&order.at_gate);
        named_submit(fixture, &others[2 * turn], &order, (char)('w' + 2 * turn), 1, false);
        named_submit(fixture, &others[2 * turn + 1], &order, (char)('x' + 2 * turn), 1, false);
        assert_int_equal(sem_trywait(&a.done), -1);
        sem_post(&order.gate);
    }
    sem_wait(&order.at_gate);
    sem_post(&order.gate);
    named_wait(&a);
    for (int i = 0; i < 4; i++) {
        named_wait(&others[i]);
    }
    assert_string_equal(order.text, "awxayza");
    assert_int_equal(a.query.call.err.status, OK);
}

/* However many go on, each batch runs one of them: ten cost the others no more than one does. */
static void of_many_that_go_on_one_is_run_with_each_batch(void **state)
{
    struct fixture *fixture = *state;
    struct order order;
    struct named gate, many[3], last;
    order_init(&order);
    named_submit(fixture, &gate, &order, 'g', 1, true);
    sem_wait(&order.at_gate);
    for (int i = 0; i < 3; i++) {
        named_submit(fixture, &many[i], &order, (char)('0' + i), i == 0 ? 3 : 2, i == 0);
    }
    sem_post(&order.gate);
    sem_wait(&order.at_gate); /* 0 is in its first turn; 1 and 2 wait for batches of their own */
    named_submit(fixture, &last, &order, 'z', 1, false);
    sem_post(&order.gate);
    sem_wait(&order.at_gate); /* 0 is in its second */
    sem_post(&order.gate);
    sem_wait(&order.at_gate); /* and in its last */
    sem_post(&order.gate);
    for (int i = 0; i < 3; i++) {
        named_wait(&many[i]);
    }
    named_wait(&last);
    named_wait(&gate);
    assert_string_equal(order.text, "g01z20120");
}

static void look_done(struct engine_call *call)
{
    sem_post(call->context);
}

/* Each call that waits at the gate is a batch of its own: each is answered after one turn more of
 * the look, and the look takes as many turns as its work is worth. */
static void other_calls_are_answered_while_a_long_look_runs(void **state)
{
    struct fixture *fixture = *state;
    enum { COUNT = 8000, CALLS = 400, A_TURN_MAX = 16 * 32 };
    struct order order;
    struct err err = {0};
    sem_t done;
    begin_many(fixture, "acme", COUNT);
    struct named *calls = mem_zalloc(&mem_libc, CALLS, sizeof *calls);
    struct query look = page_look(fixture, QUERY_RECORDS, "acme");
    look.scan.scope = SLICE_LIT("there is none");
    look.scan.limit = 10;
    sem_init(&done, 0, 0);
    look.call.done = look_done;
    look.call.context = &done;
    order_init(&order);
    named_submit(fixture, &calls[0], &order, '.', 1, true);
    sem_wait(&order.at_gate);
    assert_int_equal(query_submit(fixture->engine, &look, &err), OK);
    int turns = 0;
    while (sem_trywait(&done) != 0) {
        turns++;
        assert_true(turns < CALLS);
        named_submit(fixture, &calls[turns], &order, '.', 1, true);
        sem_post(&order.gate);
        sem_wait(&order.at_gate);
        named_wait(&calls[turns - 1]); /* answered, whatever the look does */
    }
    sem_post(&order.gate);
    named_wait(&calls[turns]);
    assert_true(turns >= COUNT / A_TURN_MAX);
    assert_int_equal(look.call.err.status, OK);
    assert_int_equal(look.count, 0);
    assert_false(look.has_more);
    mem_free(&mem_libc, calls);
}

static void *end_engine(void *context)
{
    struct fixture *fixture = context;
    assert_int_equal(engine_free(fixture->engine, NULL), OK);
    fixture->engine = NULL;
    return NULL;
}

static void a_look_gives_up_when_the_engine_ends(void **state)
{
    struct fixture *fixture = *state;
    struct order order;
    struct named gate;
    sem_t done;
    pthread_t thread;
    struct err err = {0};
    begin_many(fixture, "acme", 10);
    struct query look = page_look(fixture, QUERY_ENTRIES, "acme");
    look.limit = 10;
    sem_init(&done, 0, 0);
    look.call.done = look_done;
    look.call.context = &done;
    order_init(&order);
    named_submit(fixture, &gate, &order, '.', 1, true);
    sem_wait(&order.at_gate);
    assert_int_equal(query_submit(fixture->engine, &look, &err), OK);
    assert_int_equal(pthread_create(&thread, NULL, end_engine, fixture), 0);
    static struct named late[1000];
    int accepted = 0;
    while (named_try(fixture, &late[accepted], &order) == OK) { /* until it is shutting down */
        assert_true(++accepted < 1000);
        usleep(10000);
    }
    sem_post(&order.gate);
    sem_wait(&done);
    assert_int_equal(look.call.err.status, E_UNAVAILABLE);
    assert_int_equal(pthread_join(thread, NULL), 0);
    for (int i = 0; i < accepted; i++) {
        assert_int_equal(sem_trywait(&late[i].done), 0); /* what was accepted is answered */
    }
}

/* ---- memory -------------------------------------------------------------------------------- */

struct short_memory {
    _Atomic long asked;
    _Atomic long fail_at; /* 0: never */
};

static void *short_resize(void *context, void *pointer, size_t size)
{
    struct short_memory *memory = context;
    if (size > 0 && ++memory->asked == memory->fail_at) {
        return NULL;
    }
    return mem_libc.resize(mem_libc.context, pointer, size);
}

/* Each allocation of a page in turn, the store's and the look's: it is whole, or it failed. */
static void memory_that_is_short_fails_the_look_alone(void **state)
{
    struct fixture *fixture = *state;
    static struct short_memory memory;
    struct mem mem = {.resize = short_resize, .context = &memory};
    begin_many(fixture, "acme", 40);
    for (int kind = QUERY_RECORDS; kind <= QUERY_ENTRIES; kind++) {
        bool failed = true;
        for (long nth = 1; failed; nth++) {
            struct query look = page_look(fixture, (enum query_kind)kind, "acme");
            struct arena arena;
            arena_init(&arena, &mem, 1 << 20);
            look.call.arena = &arena;
            look.scan.limit = look.limit = 50;
            memory.asked = 0;
            memory.fail_at = nth;
            enum status status = query_do(fixture->engine, &look);
            failed = memory.asked >= nth;
            assert_int_equal(status, failed ? E_NOMEM : OK);
            assert_true(failed || look.count == 40);
            memory.fail_at = 0;
            arena_release(&arena);
            assert_true(nth < 1000);
        }
    }
}

/* ---- what the engine counts ---------------------------------------------------------------- */

static void batches_and_flushes_are_counted_by_size(void **state)
{
    struct fixture *fixture = *state;
    begin_many(fixture, "acme", 20);
    struct engine_stats stats;
    uint64_t batches = 0, flushes = 0;
    engine_stats(fixture->engine, &stats);
    for (int i = 0; i < ENGINE_BUCKETS; i++) {
        batches += stats.batch_sizes[i];
        flushes += stats.flush_micros[i];
    }
    assert_int_equal(batches, stats.batches);
    assert_int_equal(flushes, stats.flushes);
    assert_int_equal(stats.batch_sizes[0], 20);
    assert_int_equal(stats.counts.unknown_since_ms, 0);
}

/* The engine's thread goes round once: reading beside it does not make it. */
static void turn(struct fixture *fixture)
{
    struct query nothing = page_look(fixture, QUERY_NOTHING, "acme");
    assert_int_equal(query_do(fixture->engine, &nothing), OK);
}

static int64_t await_unknown_since(struct fixture *fixture, int64_t wanted)
{
    struct engine_stats stats = {0};
    for (int i = 0; i < 400; i++) {
        advance(fixture, 100);
        turn(fixture);
        engine_stats(fixture->engine, &stats);
        if (stats.counts.unknown_since_ms == wanted) {
            break;
        }
    }
    return stats.counts.unknown_since_ms;
}

static struct record unknown_of(struct fixture *fixture, struct op_id id)
{
    struct query look = {
        .call = {.arena = &fixture->arena}, .tenant = SLICE_LIT("acme"), .operation_id = id};
    for (int i = 0; i < 2000; i++) {
        assert_int_equal(query_do(fixture->engine, &look), OK);
        if (look.record->status == RECORD_UNKNOWN) {
            break;
        }
        advance(fixture, 500);
        turn(fixture);
    }
    assert_int_equal(look.record->status, RECORD_UNKNOWN);
    return *look.record;
}

static void resolve(struct fixture *fixture, struct record record)
{
    struct engine_call call = {.arena = &fixture->arena};
    call.request.kind = REQUEST_RESOLVE;
    call.request.key.tenant = SLICE_LIT("acme");
    call.request.operation_id = record.operation_id;
    call.request.status = RECORD_EXECUTED;
    call.request.actor = SLICE_LIT("somebody");
    call.request.reason = SLICE_LIT("looked");
    assert_int_equal(engine_do(fixture->engine, &call), OK);
    assert_int_equal(call.decision.kind, DECISION_RESOLVED);
}

static void the_oldest_unknown_one_is_known(void **state)
{
    struct fixture *fixture = *state;
    struct op_id first = begin(fixture, (struct who){"acme", "", "", "first"});
    struct record one = unknown_of(fixture, first);
    struct op_id second = begin(fixture, (struct who){"acme", "", "", "second"});
    struct record two = unknown_of(fixture, second);
    assert_true(one.updated_ms < two.updated_ms);
    assert_int_equal(await_unknown_since(fixture, one.updated_ms), one.updated_ms);
    resolve(fixture, one);
    assert_int_equal(await_unknown_since(fixture, two.updated_ms), two.updated_ms);
    resolve(fixture, two);
    assert_int_equal(await_unknown_since(fixture, 0), 0);
}

/* ---- beside the engine --------------------------------------------------------------------- */

struct held {
    sem_t reached; /* a commit is under way … */
    sem_t go_on;   /* … and stays so until this */
};

static void hold(void *context)
{
    struct held *held = context;
    sem_post(&held->reached);
    sem_wait(&held->go_on);
}

static void note_done(struct engine_call *call)
{
    sem_post(call->context);
}

/* The engine anew, on a store whose commits can be held. */
static struct store *restart_on_fault(struct fixture *fixture)
{
    struct store *store;
    struct err err = {0};
    const struct store_options store_options = {.clock = &fixture->clock};
    const struct engine_options options = {.clock = &fixture->clock};
    assert_int_equal(engine_free(fixture->engine, &err), OK);
    assert_int_equal(store_mem_new(&store_options, NULL, &store, &err), OK);
    assert_int_equal(fault_new(store, NULL, &store, &err), OK);
    assert_int_equal(engine_new(store, &options, &fixture->engine, &err), OK);
    return store;
}

static void a_query_is_answered_while_a_commit_is_held(void **state)
{
    struct fixture *fixture = *state;
    struct held held;
    sem_t done;
    sem_init(&held.reached, 0, 0);
    sem_init(&held.go_on, 0, 0);
    sem_init(&done, 0, 0);
    struct store *store = restart_on_fault(fixture);
    struct op_id first = begin(fixture, (struct who){"acme", "", "", "first"});

    fault_hook(store, STORE_CALL_COMMIT, hold, &held);
    struct engine_call second = begin_call(fixture, (struct who){"acme", "", "", "second"});
    second.done = note_done;
    second.context = &done;
    assert_int_equal(engine_submit(fixture->engine, &second, NULL), OK);
    sem_wait(&held.reached);
    struct query one = page_look(fixture, QUERY_OPERATION, "acme");
    one.operation_id = first;
    assert_int_equal(query_do(fixture->engine, &one), OK);
    assert_non_null(one.record);
    assert_int_equal(page_through(fixture, (struct scan){0}, 10), 1); /* P2: not the second one */
    assert_int_equal(evidence_through(fixture, "acme", NULL, 10), 1);

    sem_post(&held.go_on);
    sem_wait(&done);
    assert_int_equal(second.err.status, OK);
    assert_int_equal(page_through(fixture, (struct scan){0}, 10), 2);
    fault_hook(store, STORE_CALL_COMMIT, NULL, NULL);
}

#define ON(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON(one_is_found_by_id_and_by_key_with_its_bodies),
        ON(one_past_its_window_is_as_absent),
        ON(every_page_size_shows_every_operation_once),
        ON(every_page_size_shows_all_evidence_chained),
        ON(evidence_of_another_tenant_is_never_shown),
        ON(a_read_that_goes_on_is_behind_those_that_wait),
        ON(of_many_that_go_on_one_is_run_with_each_batch),
        ON(other_calls_are_answered_while_a_long_look_runs),
        ON(a_look_gives_up_when_the_engine_ends),
        ON(memory_that_is_short_fails_the_look_alone),
        ON(batches_and_flushes_are_counted_by_size),
        ON(the_oldest_unknown_one_is_known),
        ON(a_query_is_answered_while_a_commit_is_held),
    };
    return cmocka_run_group_tests_name("query", tests, NULL, NULL);
}
