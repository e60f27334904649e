/*
 * Batches of a Redis store whose keys are presumed to be absent (src/store/redis/presume.c): when
 * one is, what it costs, and that it never holds when it was wrong. ONCE_TEST_REDIS names a server
 * of its own (tests/servers.py). Most tests lower the limits (warm_up), so that every batch is
 * presumed that may be.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/limits.h"
#include "engine/cycle.h"
#include "store/kit.h"
#include "store/proxy.h"
#include "store/redis/impl.h"

enum { KEYS_MAX = 32 }; /* of one batch */

struct fixture {
    struct proxy *proxy;
    unsigned short port;
    char name[64];
    struct store *store;  /* through the proxy */
    struct store *beside; /* straight to the server */
    redisContext *server;
    struct arena arena;
};

/* A batch of begins: record i is of key number first + i. */
struct begins {
    size_t count;
    struct record records[KEYS_MAX];
    char keys[KEYS_MAX][24];
    struct store_want wants[KEYS_MAX];
    struct store_batch batch;
    bool stale[KEYS_MAX];
};

static struct redis_presuming *presuming_of(struct store *store)
{
    return &redis_of(store)->presuming;
}

static struct store *open_at(const struct fixture *fixture, unsigned short port)
{
    char url[256];
    struct err err = {0};
    struct store *store = NULL;
    const struct store_options options = {.clock = &kit_clock};
    (void)snprintf(url, sizeof url, "redis://127.0.0.1:%u?name=%s", port, fixture->name);
    assert_int_equal(store_open(url, &options, &store, &err), OK);
    return store;
}

static int setup(void **state)
{
    static unsigned number;
    struct fixture *fixture = calloc(1, sizeof *fixture);
    assert_non_null(fixture);
    const char *port = strrchr(getenv("ONCE_TEST_REDIS"), ':') + 1;
    fixture->port = (unsigned short)strtoul(port, NULL, 10);
    (void)snprintf(fixture->name, sizeof fixture->name, "presume-%ld-%u", (long)getpid(), number++);
    fixture->proxy = proxy_new(fixture->port);
    fixture->server = redisConnect("127.0.0.1", fixture->port);
    assert_true(fixture->server != NULL && fixture->server->err == 0);
    arena_init(&fixture->arena, &mem_libc, 64 << 20);
    kit_set_time(KIT_NOW);
    fixture->store = open_at(fixture, proxy_port(fixture->proxy));
    fixture->beside = open_at(fixture, fixture->port);
    *state = fixture;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;
    (void)kit_close(fixture->store); /* it may have failed on purpose */
    (void)kit_close(fixture->beside);
    proxy_free(fixture->proxy);
    redisFree(fixture->server);
    arena_release(&fixture->arena);
    free(fixture);
    return 0;
}

static void command(const struct fixture *fixture, const char *text)
{
    redisReply *reply = redisCommand(fixture->server, text);
    assert_non_null(reply);
    assert_int_not_equal(reply->type, REDIS_REPLY_ERROR);
    freeReplyObject(reply);
}

/* How many scripts the server has run: each is a round trip. */
static unsigned long scripts_run(const struct fixture *fixture)
{
    unsigned long sum = 0;
    redisReply *reply = redisCommand(fixture->server, "INFO commandstats");
    assert_true(reply != NULL && reply->str != NULL);
    static const char *const names[] = {"cmdstat_evalsha:calls=", "cmdstat_eval:calls="};
    for (size_t i = 0; i < 2; i++) {
        const char *found = strstr(reply->str, names[i]);
        sum += found == NULL ? 0 : strtoul(found + strlen(names[i]), NULL, 10);
    }
    freeReplyObject(reply);
    return sum;
}

/* As if a prepare had just asked: a slow machine must not change what is presumed. */
static void freshen(struct store *store)
{
    struct redis *self = redis_of(store);
    self->presuming.asked_ms = clock_read(&self->system).boot_ms;
}

/* ---- batches -------------------------------------------------------------------------------- */

static void begins_make(
    struct fixture *fixture, struct begins *begins, unsigned first, size_t count)
{
    struct err err = {0};
    assert_true(count <= KEYS_MAX);
    *begins = (struct begins){.count = count};
    for (size_t i = 0; i < count; i++) {
        begins->records[i] = kit_record(first + (unsigned)i, 1);
        (void)snprintf(begins->keys[i], sizeof begins->keys[i], "key-%u", first + (unsigned)i);
        begins->records[i].key.key = slice_str(begins->keys[i]);
        assert_int_equal(record_key_seal(&begins->records[i].key, &err), OK);
        begins->wants[i] = (struct store_want){.key = &begins->records[i].key.hash,
            .bodies = WANT_BY_FINGERPRINT,
            .fingerprint = &begins->records[i].fingerprint,
            .arena = &fixture->arena};
    }
    begins->batch = (struct store_batch){
        .wants = begins->wants, .count = count, .fences = count, .arena = &fixture->arena};
}

/* Returns whether it was presumed. */
static bool begins_prepare(struct store *store, struct begins *begins)
{
    struct err err = {0};
    enum status status = store->ops->prepare(store, &begins->batch, &err);
    if (status != OK) {
        print_error("prepare: %s\n", err.text);
    }
    assert_int_equal(status, OK);
    return presuming_of(store)->is_presumed;
}

/* Makes the records of all keys that the batch found absent. */
static enum status begins_commit(struct store *store, struct begins *begins, struct err *err)
{
    struct change changes[KEYS_MAX];
    struct entry entry = kit_entry(store, &begins->records[0].operation_id, "{\"a\":1}");
    size_t used = 0;
    for (size_t i = 0; i < begins->count; i++) {
        struct record *record = &begins->records[i];
        if (begins->wants[i].record == NULL) {
            record->fence = begins->batch.fence_first + i;
            record->operation_id = op_id_make(KIT_NOW, &record->key.hash, record->fence);
            changes[used++] = (struct change){.kind = CHANGE_PUT, .record = record, .entry = entry};
            entry.seq++;
            entry.hash.bytes[0]++;
        }
    }
    assert_true(used > 0);
    struct commit commit = {.changes = changes, .count = used, .ret_stale = begins->stale};
    return store->ops->commit(store, &commit, err);
}

/* A batch of new keys that is committed. Returns whether it was presumed. */
static bool begin_new(struct fixture *fixture, struct store *store, unsigned first, size_t count)
{
    struct begins begins;
    struct err err = {0};
    begins_make(fixture, &begins, first, count);
    freshen(store);
    bool is_presumed = begins_prepare(store, &begins);
    enum status status = begins_commit(store, &begins, &err);
    if (status != OK) {
        print_error("commit: %s\n", err.text);
    }
    assert_int_equal(status, OK);
    return is_presumed;
}

/* From the next batch on, every batch is presumed that may be. */
static void warm_up(struct fixture *fixture, struct store *store)
{
    struct redis_presuming *presuming = presuming_of(store);
    presuming->after = presuming->pause_min = presuming->pause_max = 0;
    unsigned first = store == fixture->store ? 900000 : 910000;
    for (unsigned i = 0; i < 3; i++) { /* each sets twice as many fences aside as it needs */
        (void)begin_new(fixture, store, first + KEYS_MAX * i, KEYS_MAX);
    }
}

/* The next batch of these keys, which must be presumed. */
static void presume_keys(
    struct fixture *fixture, struct begins *begins, unsigned first, size_t count)
{
    begins_make(fixture, begins, first, count);
    freshen(fixture->store);
    assert_true(begins_prepare(fixture->store, begins));
    for (size_t i = 0; i < count; i++) {
        assert_null(begins->wants[i].record);
    }
}

/* The commit of a presumed batch wrote nothing, all of it is stale, and the next prepare asks. */
static void all_is_stale(struct fixture *fixture, struct begins *begins)
{
    struct err err = {0};
    assert_int_equal(begins_commit(fixture->store, begins, &err), E_STALE);
    for (size_t i = 0; i < begins->count; i++) {
        assert_true(begins->stale[i]);
    }
    assert_false(begins_prepare(fixture->store, begins));
    for (size_t i = 0; i < begins->count; i++) {
        assert_null(begins->wants[i].record);
    }
}

/* ---- what is gained ------------------------------------------------------------------------- */

static void a_batch_of_new_keys_is_one_round_trip(void **state)
{
    struct fixture *fixture = *state;
    unsigned long before = scripts_run(fixture);
    enum { BATCHES = 50, EACH = 20 };
    unsigned presumed = 0;
    for (unsigned i = 0; i < BATCHES; i++) {
        presumed += begin_new(fixture, fixture->store, 1 + i * EACH, EACH);
    }
    assert_int_equal(presumed, BATCHES - REDIS_PRESUME_AFTER);
    /* Each script is sent once in full, after the server said that it does not know it. */
    assert_in_range(scripts_run(fixture) - before, BATCHES + REDIS_PRESUME_AFTER,
        BATCHES + REDIS_PRESUME_AFTER + 4);
    assert_int_equal(kit_counts(fixture->beside, STORE_OPERATIONS).records, BATCHES * EACH);
    for (unsigned i = 1; i <= BATCHES * EACH; i += 7) {
        assert_non_null(kit_load(fixture->beside, i, &fixture->arena));
    }
}

/* A presumption that fails doubles the pause, up to its limit; one that holds halves it. */
static void presuming_stops_after_failures_and_begins_again(void **state)
{
    enum { PAUSE_MAX = 40, ROUNDS = 6 };
    struct fixture *fixture = *state;
    struct redis_presuming *presuming = presuming_of(fixture->store);
    struct begins begins;
    struct err err = {0};
    unsigned next = 1;
    unsigned left = 0;
    presuming->pause_max = PAUSE_MAX;
    for (unsigned round = 0, pause = REDIS_PRESUME_PAUSE_MIN; round < ROUNDS; round++) {
        unsigned asks = left > REDIS_PRESUME_AFTER ? left : REDIS_PRESUME_AFTER;
        for (unsigned i = 0; i < asks; i++) {
            assert_false(begin_new(fixture, fixture->store, next++, 1));
        }
        presume_keys(fixture, &begins, 1, 1); /* it is there */
        assert_int_equal(begins_commit(fixture->store, &begins, &err), E_STALE);
        assert_int_equal(presuming->left, pause);
        assert_false(begins_prepare(fixture->store, &begins));
        assert_non_null(begins.wants[0].record);
        fixture->store->ops->abort(fixture->store);
        left = pause - 1;
        pause = 2 * pause < PAUSE_MAX ? 2 * pause : PAUSE_MAX;
    }
    for (unsigned i = 0; i < left; i++) {
        assert_false(begin_new(fixture, fixture->store, next++, 1));
    }
    for (unsigned pause = PAUSE_MAX / 2; pause > 0; pause /= 2) {
        assert_true(begin_new(fixture, fixture->store, next++, 1));
        assert_int_equal(presuming->pause, pause);
    }
}

/* The counts of a presumed batch are those of the last prepare that asked, and ours since (P12). */
static void counts_go_on_while_nobody_asks(void **state)
{
    struct fixture *fixture = *state;
    struct begins begins;
    struct err err = {0};
    warm_up(fixture, fixture->store);
    uint64_t before = kit_counts(fixture->beside, STORE_KINDS_ASKED).records;
    for (unsigned i = 0; i < 10; i++) {
        presume_keys(fixture, &begins, 1 + 5 * i, 5);
        assert_int_equal(begins.batch.counts.records, before + 5 * i);
        assert_int_equal(begins.batch.counts.by_status[RECORD_IN_PROGRESS], before + 5 * i);
        assert_int_equal(begins_commit(fixture->store, &begins, &err), OK);
    }
}

/* ---- what must not be presumed -------------------------------------------------------------- */

/* A record that no change of the commit names would be compared by nobody. */
static void only_what_the_commit_compares_is_presumed(void **state)
{
    struct fixture *fixture = *state;
    struct store *store = fixture->store;
    struct record record = kit_record(1, 1);
    struct record other = kit_record(2, 2);
    const struct store_want plain = {.key = &record.key.hash,
        .bodies = WANT_BY_FINGERPRINT,
        .fingerprint = &record.fingerprint,
        .arena = &fixture->arena};
    const struct store_want beside[] = {{.key = &other.key.hash},
        {.id = &other.operation_id, .kinds = STORE_KINDS_ASKED},
        {.key = &other.key.hash, .bodies = WANT_OUTCOME, .arena = &fixture->arena},
        {.key = &other.key.hash,
            .bodies = WANT_BY_FINGERPRINT,
            .fingerprint = &other.fingerprint,
            .arena = &fixture->arena,
            .source = true}};
    warm_up(fixture, store);
    for (size_t i = 0; i < sizeof beside / sizeof *beside; i++) {
        struct err err = {0};
        struct store_want wants[2] = {plain, beside[i]};
        struct store_batch batch = {
            .wants = wants, .count = 1, .fences = 1, .arena = &fixture->arena};
        assert_int_equal(store->ops->prepare(store, &batch, &err), OK);
        assert_true(presuming_of(store)->is_presumed);
        store->ops->abort(store);
        assert_int_equal(store->ops->prepare(store, &batch, &err), OK);
        assert_false(presuming_of(store)->is_presumed); /* nobody has compared the last one */
        store->ops->abort(store);
        batch.count = 2;
        assert_int_equal(store->ops->prepare(store, &batch, &err), OK);
        assert_false(presuming_of(store)->is_presumed);
        store->ops->abort(store);
        batch = (struct store_batch){.fences = 1};
        assert_int_equal(store->ops->prepare(store, &batch, &err), OK);
        assert_false(presuming_of(store)->is_presumed);
        store->ops->abort(store);
        (void)begin_new(fixture, store, 100 + (unsigned)i, 1); /* it draws, because we did */
        (void)begin_new(fixture, store, 200 + (unsigned)i, 1);
    }
}

/* A batch that leaves a key out, as those do that keys_max refuses, ends the presuming. */
static void a_key_that_is_not_made_ends_the_presuming(void **state)
{
    struct fixture *fixture = *state;
    struct err err = {0};
    struct begins begins;
    unsigned next = 1;
    while (!begin_new(fixture, fixture->store, next++, 1)) {
    }
    presume_keys(fixture, &begins, 5000, 2);
    begins.count = 1; /* only the first one is made */
    assert_int_equal(begins_commit(fixture->store, &begins, &err), OK);
    for (unsigned i = 0; i < 2 * REDIS_PRESUME_AFTER; i++) {
        begins_make(fixture, &begins, 6000 + 2 * i, 2);
        assert_false(begins_prepare(fixture->store, &begins));
        begins.count = 1;
        assert_int_equal(begins_commit(fixture->store, &begins, &err), OK);
    }
}

static void a_beat_that_is_due_is_not_put_off(void **state)
{
    struct fixture *fixture = *state;
    struct err err = {0};
    struct redis *self = redis_of(fixture->store);
    assert_int_equal(redis_beat(fixture->store, kit_fences(fixture->store, 1), &err), OK);
    warm_up(fixture, fixture->store);
    assert_true(begin_new(fixture, fixture->store, 1, 1));
    self->beat_ns -= UINT64_C(1000000) * LIMIT_BEAT_MS;
    assert_false(begin_new(fixture, fixture->store, 2, 1)); /* S12 */
    assert_true(clock_nanos() - self->beat_ns < UINT64_C(1000000) * LIMIT_BEAT_MS / 2);
    assert_true(begin_new(fixture, fixture->store, 3, 1));
    struct begins begins;
    begins_make(fixture, &begins, 4, 1);
    self->presuming.asked_ms -= REDIS_PRESUME_MS_MAX;
    assert_false(begins_prepare(fixture->store, &begins)); /* counts and time would be too old */
    fixture->store->ops->abort(fixture->store);
}

/* A connection that the server has closed fails no batch, and a new one is asked first. */
static void a_closed_connection_is_noticed_before(void **state)
{
    struct fixture *fixture = *state;
    warm_up(fixture, fixture->store);
    for (unsigned i = 0; i < 5; i++) {
        assert_true(begin_new(fixture, fixture->store, 1 + 2 * i, 1));
        command(fixture, "CLIENT KILL TYPE normal SKIPME yes");
        struct redis_link *link = &redis_of(fixture->store)->link;
        assert_true(link_wait(link, -1, 60000)); /* until the proxy has passed it on */
        assert_false(begin_new(fixture, fixture->store, 2 + 2 * i, 1));
        (void)begin_new(fixture, fixture->store, 1000 + i, 1); /* it sets fences aside again */
    }
}

/* ---- presumptions that do not hold ---------------------------------------------------------- */

static void of_two_that_presume_the_same_key_one_makes_it(void **state)
{
    struct fixture *fixture = *state;
    struct begins begins;
    struct err err = {0};
    struct record theirs = kit_record(11, 7);
    warm_up(fixture, fixture->store);
    presume_keys(fixture, &begins, 10, 3);
    kit_put_flush(fixture->beside, &theirs, 0); /* it draws nothing: only the key says so */
    assert_int_equal(begins_commit(fixture->store, &begins, &err), E_STALE);
    assert_false(begins.stale[0]);
    assert_true(begins.stale[1]);
    assert_false(begins.stale[2]);
    assert_null(kit_load(fixture->beside, 10, &fixture->arena)); /* S1 */
    assert_int_equal(kit_load(fixture->beside, 11, &fixture->arena)->fence, 7);
    assert_false(begins_prepare(fixture->store, &begins)); /* a lost race is never presumed again */
    assert_non_null(begins.wants[1].record);
    assert_int_equal(begins.wants[1].record->fence, 7);
    assert_int_equal(begins_commit(fixture->store, &begins, &err), OK); /* of the other two */
}

/* Both presume all the time, and neither knows of the other: every key is made once, with a fence
 * that nobody else has and that is later than those of all commits before it (P1, P4). */
static void two_processes_share_the_keys(void **state)
{
    enum { ROUNDS = 60, EACH = 3 };
    struct fixture *fixture = *state;
    struct store *stores[2] = {fixture->store, fixture->beside};
    unsigned presumed[2] = {0};
    unsigned won[2] = {0};
    uint64_t highest = 0;
    warm_up(fixture, stores[1]);
    presuming_of(stores[0])->after = 0;
    presuming_of(stores[0])->pause_min = presuming_of(stores[0])->pause_max = 0;
    for (unsigned round = 0; round < ROUNDS; round++) {
        struct begins begins[2];
        bool done[2] = {false};
        for (unsigned i = 0; i < 2; i++) {
            begins_make(fixture, &begins[i], 1 + round * EACH, EACH);
            presumed[i] += begins_prepare(stores[i], &begins[i]);
        }
        for (unsigned turn = round % 3; !done[0] || !done[1]; turn++) {
            unsigned i = turn % 2;
            struct err err = {0};
            if (done[i]) {
                continue;
            }
            enum status status = begins_commit(stores[i], &begins[i], &err);
            done[i] = status == OK;
            won[i] += done[i];
            if (done[i]) {
                assert_true(begins[i].records[0].fence > highest);
                highest = begins[i].records[EACH - 1].fence;
                continue;
            }
            assert_int_equal(status, E_STALE);
            assert_false(begins_prepare(stores[i], &begins[i]));
            done[i] = begins[i].wants[0].record != NULL;
            if (done[i]) {
                stores[i]->ops->abort(stores[i]);
            }
        }
        for (unsigned i = 0; round % 4 != 0 && i < 6; i++) { /* one of them is alone for a while */
            unsigned first = 10000 + round * 100 + i * EACH;
            struct begins alone;
            struct err err = {0};
            struct store *store = stores[round % 2];
            begins_make(fixture, &alone, first, EACH);
            enum status status = E_STALE;
            while (status == E_STALE) {
                presumed[round % 2] += begins_prepare(store, &alone);
                status = begins_commit(store, &alone, &err);
            }
            assert_int_equal(status, OK);
            assert_true(alone.records[0].fence > highest);
            highest = alone.records[EACH - 1].fence;
        }
    }
    assert_int_equal(won[0] + won[1], ROUNDS);
    assert_true(won[0] > 0 && won[1] > 0);
    assert_true(presumed[0] > 30 && presumed[1] > 30);
}

/* Later fences have been used elsewhere: those set aside are too low (P4, S9). */
static void fences_that_are_no_longer_the_latest_are_not_used(void **state)
{
    struct fixture *fixture = *state;
    struct begins begins;
    struct err err = {0};
    warm_up(fixture, fixture->store);
    presume_keys(fixture, &begins, 1, 3);
    uint64_t drawn = kit_fences(fixture->beside, 5) + 4;
    assert_true(begins.batch.fence_first < drawn);
    all_is_stale(fixture, &begins);
    assert_true(begins.batch.fence_first > drawn);
    assert_int_equal(begins_commit(fixture->store, &begins, &err), OK);
}

/* The server is without its counter: nothing more is granted (P4, P11). */
static void fences_that_went_back_stop_the_store(void **state)
{
    struct fixture *fixture = *state;
    char text[128];
    struct begins begins;
    struct err err = {0};
    warm_up(fixture, fixture->store);
    presume_keys(fixture, &begins, 1, 1);
    (void)snprintf(text, sizeof text, "SET {%s}:fence 1", fixture->name);
    command(fixture, text);
    assert_int_equal(begins_commit(fixture->store, &begins, &err), E_STALE);
    assert_int_equal(fixture->store->ops->prepare(fixture->store, &begins.batch, &err), E_CORRUPT);
}

/* A different process has committed at a later time: it may have forgotten a record whose window
 * was over then, and not yet by our time (P8). */
static void a_commit_is_not_before_those_of_others(void **state)
{
    struct fixture *fixture = *state;
    char text[128];
    struct begins begins;
    struct err err = {0};
    warm_up(fixture, fixture->store);
    presume_keys(fixture, &begins, 1, 2);
    assert_int_equal(begins.batch.now_ms, KIT_NOW);
    (void)snprintf(
        text, sizeof text, "HSET {%s}:time mark %lld", fixture->name, (long long)KIT_NOW + 500);
    command(fixture, text);
    all_is_stale(fixture, &begins);
    assert_int_equal(begins.batch.now_ms, KIT_NOW + 500);
    assert_int_equal(begins_commit(fixture->store, &begins, &err), OK);
    assert_true(begin_new(fixture, fixture->store, 100, 1));
}

/* The server's clock was set, or it is a different server: our idea of its time is wrong. */
static void a_time_that_the_server_does_not_have_is_not_taken(void **state)
{
    static const struct {
        int64_t off_ms;
        bool holds;
    } cases[] = {{REDIS_PRESUME_AHEAD_MS / 2, true}, {-REDIS_PRESUME_MS_MAX / 4, true},
        {10 * REDIS_PRESUME_AHEAD_MS, false}, {-2 * REDIS_PRESUME_MS_MAX, false},
        {-2 * LIMIT_PREPARED_MS_MAX, false}, {10 * LIMIT_PREPARED_MS_MAX, false}};
    struct fixture *fixture = *state;
    warm_up(fixture, fixture->store);
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct begins begins;
        struct err err = {0};
        presume_keys(fixture, &begins, 1 + i, 1);
        redis_of(fixture->store)->prepared_ms += cases[i].off_ms;
        if (cases[i].holds) {
            assert_int_equal(begins_commit(fixture->store, &begins, &err), OK);
        } else {
            all_is_stale(fixture, &begins);
            assert_int_equal(begins_commit(fixture->store, &begins, &err), OK);
        }
    }
}

/* ---- faults --------------------------------------------------------------------------------- */

/* As after a prepare that asked: whatever byte is the last to pass (P11). */
static void a_presumed_commit_knows_its_fate(void **state)
{
    struct fixture *fixture = *state;
    unsigned fates[2] = {0};
    unsigned presumed = 0;
    unsigned next = 1;
    warm_up(fixture, fixture->store);
    for (int direction = 0; direction < 2; direction++) {
        bool cut = true;
        for (long bytes = 0; cut; bytes += direction == 1 ? 1 : 29) {
            struct begins begins;
            struct err err = {0};
            (void)begin_new(fixture, fixture->store, 100000 + next, 1); /* it draws … */
            (void)begin_new(fixture, fixture->store, 200000 + next, 1); /* … and sets some aside */
            begins_make(fixture, &begins, next++, 1);
            freshen(fixture->store);
            presumed += begins_prepare(fixture->store, &begins);
            if (direction == 0) {
                proxy_cut_request(fixture->proxy, bytes);
            } else {
                proxy_cut_answer(fixture->proxy, bytes);
            }
            enum status status = begins_commit(fixture->store, &begins, &err);
            cut = proxy_has_cut(fixture->proxy);
            assert_true(status == OK || (direction == 0 && status == E_UNAVAILABLE));
            const struct record *found = kit_load(fixture->beside, next - 1, &fixture->arena);
            assert_int_equal(found != NULL, status == OK);
            fates[status == OK]++;
        }
    }
    assert_true(fates[0] > 20 && fates[1] > 10);
    assert_true(presumed > 30);
}

static void a_server_that_lost_what_it_acknowledged_stops_the_store(void **state)
{
    struct fixture *fixture = *state;
    struct begins begins;
    struct err err = {0};
    warm_up(fixture, fixture->store);
    presume_keys(fixture, &begins, 1, 1);
    command(fixture, "FLUSHALL");
    assert_int_equal(begins_commit(fixture->store, &begins, &err), E_CORRUPT);
    assert_non_null(strstr(err.text, "acknowledged"));
    assert_int_equal(fixture->store->ops->prepare(fixture->store, &begins.batch, &err), E_CORRUPT);
    kit_close(fixture->beside);
    fixture->beside = open_at(fixture, fixture->port);
}

static void a_server_that_forgot_the_script_gets_it_again(void **state)
{
    struct fixture *fixture = *state;
    warm_up(fixture, fixture->store);
    command(fixture, "SCRIPT FLUSH");
    assert_true(begin_new(fixture, fixture->store, 1, 3));
    assert_non_null(kit_load(fixture->beside, 3, &fixture->arena));
}

/* ---- the engine on it ----------------------------------------------------------------------- */

static void call_begin_of(struct engine_call *call, struct arena *arena, const char *key)
{
    *call = (struct engine_call){.arena = arena,
        .request = {.kind = REQUEST_BEGIN,
            .key = {.tenant = SLICE_LIT("acme"), .key = slice_str(key)},
            .policy = policy_default}};
    assert_int_equal(record_key_seal(&call->request.key, NULL), OK);
}

static void run(struct cycle *cycle, struct engine_call *calls, size_t count)
{
    struct engine_call *list[KEYS_MAX];
    struct err err = {0};
    for (size_t i = 0; i < count; i++) {
        list[i] = &calls[i];
    }
    enum status status = cycle_run(cycle, list, count, &err);
    if (status != OK) {
        print_error("cycle: %s\n", err.text);
    }
    assert_int_equal(status, OK);
}

/* A duplicate in a presumed batch is replayed; the calls beside it hold as they were decided. */
static void a_duplicate_under_a_presumption_is_replayed(void **state)
{
    struct fixture *fixture = *state;
    struct engine_call calls[3];
    struct cycle cycle;
    struct err err = {0};
    warm_up(fixture, fixture->store);
    assert_int_equal(cycle_init(&cycle, fixture->store, &mem_libc, &err), OK);
    call_begin_of(&calls[0], &fixture->arena, "first");
    run(&cycle, calls, 1);
    assert_int_equal(calls[0].decision.kind, DECISION_FIRST_SEEN);
    struct request seal = {.kind = REQUEST_SEAL,
        .key = {.tenant = SLICE_LIT("acme")},
        .operation_id = calls[0].decision.next.operation_id,
        .fence = calls[0].decision.next.fence,
        .status = RECORD_EXECUTED};
    calls[0] = (struct engine_call){
        .arena = &fixture->arena, .request = seal, .outcome_body = SLICE_LIT("paid")};
    calls[0].request.outcome.body = kit_body(calls[0].outcome_body);
    run(&cycle, calls, 1);
    assert_int_equal(calls[0].decision.kind, DECISION_SEALED);

    unsigned long before = scripts_run(fixture);
    call_begin_of(&calls[0], &fixture->arena, "second");
    call_begin_of(&calls[1], &fixture->arena, "first");
    call_begin_of(&calls[2], &fixture->arena, "third");
    run(&cycle, calls, 3);
    assert_int_equal(scripts_run(fixture) - before, 3); /* commit, prepare, commit */
    assert_int_equal(calls[0].decision.kind, DECISION_FIRST_SEEN);
    assert_int_equal(calls[1].decision.kind, DECISION_DUPLICATE_REPLAYED);
    assert_true(slice_is(calls[1].outcome, "paid"));
    assert_int_equal(calls[2].decision.kind, DECISION_FIRST_SEEN);
    assert_int_equal(calls[0].decided, 1);
    assert_int_equal(calls[1].decided, 2);

    call_begin_of(&calls[0], &fixture->arena, "third"); /* it is in progress, under a presumption */
    calls[0].wait_ms = 1000;
    run(&cycle, calls, 1);
    assert_true(calls[0].parked);
    cycle_release(&cycle);
}

/* At keys_max a new key is refused and a duplicate is not (P12, PB7). */
static void a_duplicate_at_the_limit_is_never_refused(void **state)
{
    struct fixture *fixture = *state;
    struct engine_call call;
    struct cycle cycle;
    struct err err = {0};
    warm_up(fixture, fixture->store);
    assert_int_equal(cycle_init(&cycle, fixture->store, &mem_libc, &err), OK);
    call_begin_of(&call, &fixture->arena, "first");
    run(&cycle, &call, 1);
    assert_int_equal(call.decision.kind, DECISION_FIRST_SEEN);
    cycle.keys_max = cycle.counts.records;
    presuming_of(fixture->store)->after = REDIS_PRESUME_AFTER; /* as many were made by now */
    freshen(fixture->store);
    for (unsigned i = 0; i < 2 * REDIS_PRESUME_AFTER; i++) {
        call_begin_of(&call, &fixture->arena, "first");
        run(&cycle, &call, 1);
        assert_int_equal(call.err.status, OK);
        assert_int_equal(call.decision.kind, DECISION_IN_PROGRESS);
        call_begin_of(&call, &fixture->arena, "second");
        run(&cycle, &call, 1);
        assert_int_equal(call.err.status, E_LIMIT);
    }
    cycle_release(&cycle);
}

/* Two engines begin the same keys, both presuming whenever they can: each key is granted once. */
static void two_engines_grant_each_key_once(void **state)
{
    enum { KEYS = 40, ROUNDS = 80, CALLS = 4 };
    static char keys[KEYS + ROUNDS][8];
    struct fixture *fixture = *state;
    struct cycle cycles[2];
    struct err err = {0};
    unsigned grants[KEYS + ROUNDS] = {0};
    uint64_t fences[KEYS + ROUNDS];
    size_t granted = 0;
    unsigned seed = 1;
    warm_up(fixture, fixture->store);
    warm_up(fixture, fixture->beside);
    assert_int_equal(cycle_init(&cycles[0], fixture->store, &mem_libc, &err), OK);
    assert_int_equal(cycle_init(&cycles[1], fixture->beside, &mem_libc, &err), OK);
    for (unsigned i = 0; i < KEYS + ROUNDS; i++) {
        (void)snprintf(keys[i], sizeof keys[i], "k%u", i);
    }
    for (unsigned round = 0; round < ROUNDS; round++) {
        struct engine_call calls[CALLS];
        unsigned which[CALLS] = {KEYS + round}; /* a new one, and some that may be there */
        for (unsigned i = 1; i < CALLS; i++) {
            seed = seed * 1664525u + 1013904223u;
            which[i] = (seed >> 16) % KEYS;
        }
        size_t count = round % 3 == 0 ? CALLS : 1;
        for (unsigned i = 0; i < count; i++) {
            call_begin_of(&calls[i], &fixture->arena, keys[which[i]]);
        }
        run(&cycles[round / 5 % 2], calls, count);
        for (unsigned i = 0; i < count; i++) {
            bool is_first = calls[i].decision.kind == DECISION_FIRST_SEEN;
            assert_true(is_first || calls[i].decision.kind == DECISION_IN_PROGRESS);
            assert_int_equal(is_first, grants[which[i]] == 0); /* P1 */
            grants[which[i]] += is_first;
            uint64_t fence = calls[i].decision.next.fence;
            for (size_t j = 0; is_first && j < granted; j++) {
                assert_true(fences[j] != fence); /* P4 */
            }
            if (is_first) {
                fences[granted++] = fence;
            }
        }
    }
    cycle_release(&cycles[0]);
    cycle_release(&cycles[1]);
}

#define ON_SERVER(name)                                                                            \
    {                                                                                              \
#name, name, setup, teardown, NULL                                                         \
    }

int main(void)
{
    if (getenv("ONCE_TEST_REDIS") == NULL) {
        return 77;
    }
    const struct CMUnitTest tests[] = {
        ON_SERVER(a_batch_of_new_keys_is_one_round_trip),
        ON_SERVER(presuming_stops_after_failures_and_begins_again),
        ON_SERVER(counts_go_on_while_nobody_asks),
        ON_SERVER(only_what_the_commit_compares_is_presumed),
        ON_SERVER(a_key_that_is_not_made_ends_the_presuming),
        ON_SERVER(a_beat_that_is_due_is_not_put_off),
        ON_SERVER(a_closed_connection_is_noticed_before),
        ON_SERVER(of_two_that_presume_the_same_key_one_makes_it),
        ON_SERVER(two_processes_share_the_keys),
        ON_SERVER(fences_that_are_no_longer_the_latest_are_not_used),
        ON_SERVER(fences_that_went_back_stop_the_store),
        ON_SERVER(a_commit_is_not_before_those_of_others),
        ON_SERVER(a_time_that_the_server_does_not_have_is_not_taken),
        ON_SERVER(a_presumed_commit_knows_its_fate),
        ON_SERVER(a_server_that_lost_what_it_acknowledged_stops_the_store),
        ON_SERVER(a_server_that_forgot_the_script_gets_it_again),
        ON_SERVER(a_duplicate_under_a_presumption_is_replayed),
        ON_SERVER(a_duplicate_at_the_limit_is_never_refused),
        ON_SERVER(two_engines_grant_each_key_once),
    };
    return cmocka_run_group_tests_name("redis presuming", tests, NULL, NULL);
}
