/*
 * The engine on a journal whose disk fails: every system call of a whole life (creation, work,
 * closing, recovery, more work) goes wrong in turn, in each way it can.
 *
 * What must hold for every case:
 *   F1  a call is answered rightly, or not at all: E_UNAVAILABLE or E_UNKNOWN with the disk's own
 *       words; never a wrong answer.
 *   F2  after E_UNKNOWN the engine says nothing else any more (P11).
 *   F3  E_UNAVAILABLE means that nothing happened.
 *   F4  a fresh open on a good disk has everything that was acknowledged, and it verifies.
 *   F5  nobody is granted what somebody holds or has done.
 * Without a fault nothing fails. ONCE_TEST_LONG makes it every case instead of a sample.
 */
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "bad_io.h"
#include "base/limits.h"
#include "engine/engine.h"
#include "evidence/verify.h"
#include "prng.h"
#include "sanitized.h"
#include "store/kit.h"

enum {
    KEYS = 36,
    KEYS_FIRST = 24, /* used before the store is closed and opened again */
    BODY_BYTES = 24 << 10,
    CASES_SHORT = IS_SANITIZED ? 225 : 450,
    LIES = 16,        /* cases of the negative control, in each way of writing */
    STEP_MS = 10,     /* between two calls: the janitor looks at the journal each time */
    WINDOW_MS = 1000, /* of a key that expires before the store is opened again */
    LATER_MS = 5000,  /* how much later that is */
};

/* Where a key stands, as far as anybody was told. */
enum stand { STAND_FREE, STAND_OPEN, STAND_SEALED, STAND_GONE };

struct key {
    enum stand stand;
    uint64_t fence;
    struct op_id operation_id;
    bool unsure; /* the last call about it was E_UNKNOWN: it may stand at `maybe` instead */
    enum stand maybe;
};

struct world {
    struct bad_io bad;
    struct kit_dir dir;
    char url[300];
    struct clock clock;
    int64_t now_ms;
    struct engine *engine;
    struct arena arena;
    bool stopped; /* a call was E_UNKNOWN */
    uint64_t fence_highest;
    struct key keys[KEYS];
    char body[BODY_BYTES];
    char what[400]; /* the first thing that is wrong; empty: nothing */
};

static struct world world;

/* The ways of writing share the cases out among them; in the long tier each has all of them. */
static const char *const ways[] = {"buffered", "direct", "uring"};
enum { WAYS = sizeof ways / sizeof *ways };
static unsigned way_now; /* being tested */

static void wrong(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void wrong(const char *format, ...)
{
    if (world.what[0] == '\0') {
        va_list arguments;
        va_start(arguments, format);
        (void)vsnprintf(world.what, sizeof world.what, format, arguments);
        va_end(arguments);
    }
}

static struct clock_reading clock_fake(void *context)
{
    (void)context;
    return (struct clock_reading){.wall_ms = world.now_ms, .boot_ms = world.now_ms - KIT_NOW};
}

/* ---- calls --------------------------------------------------------------------------------- */

/* A failure must say what the disk said, and there must have been one. */
static void failure_check(const char *what, enum status status, const struct err *err)
{
    if (status != E_UNKNOWN && status != E_UNAVAILABLE) {
        wrong("F1: %s is '%s': %s", what, status_name(status), err->text);
    } else if (world.bad.went == 0) {
        wrong("F1: %s failed without a fault: %s", what, err->text);
    } else if (strstr(err->text, "nput/output error") == NULL &&
               strstr(err->text, "o space left on device") == NULL) {
        wrong("F1: %s does not say what the disk said: %s", what, err->text);
    }
}

/* A caller that does not wait for its flush, as a loop does not. */
struct flyer {
    struct engine_seat seat; /* first */
    bool is_watching;
    atomic_bool is_done;
};

static bool on_watch(struct engine_seat *seat, int fd)
{
    (void)fd; /* it looks again and again */
    ((struct flyer *)seat)->is_watching = true;
    return true;
}

static void on_done(struct engine_call *call)
{
    atomic_store(&((struct flyer *)call->context)->is_done, true);
}

static enum status fly(struct engine_call *call)
{
    struct flyer flyer = {.seat = {.watch = on_watch}};
    size_t taken;
    call->seat = &flyer.seat;
    call->context = &flyer;
    call->done = on_done;
    enum status status =
        engine_submit_seated(world.engine, &flyer.seat, &call, 1, &taken, &call->err);
    if (status != OK) {
        return status;
    }
    while (!atomic_load(&flyer.is_done)) {
        if (!flyer.is_watching || engine_land(world.engine, &flyer.seat)) {
            (void)usleep(20); /* the engine's thread has it */
        }
    }
    engine_unseat(world.engine, &flyer.seat);
    return call->err.status;
}

/* true: it was answered. */
static bool do_call(const char *what, struct engine_call *call)
{
    world.now_ms += STEP_MS;
    bool flies = strcmp(ways[way_now], "uring") == 0;
    enum status status = flies ? fly(call) : engine_do(world.engine, call);
    if (world.stopped && status != E_UNKNOWN) {
        wrong("F2: %s is '%s' after the engine had stopped", what, status_name(status));
    }
    if (status != OK) {
        failure_check(what, status, &call->err);
        world.stopped = world.stopped || status == E_UNKNOWN;
    }
    return status == OK;
}

static int64_t window_of(unsigned number)
{
    return number % 3 == 1 ? WINDOW_MS : LIMIT_WINDOW_MS_DEFAULT;
}

static struct engine_call begin_call(unsigned number, const char *payload)
{
    static char text[24];
    arena_clear(&world.arena);
    struct engine_call call = {.arena = &world.arena};
    (void)snprintf(text, sizeof text, "key-%u", number);
    call.request.kind = REQUEST_BEGIN;
    call.request.key.tenant = SLICE_LIT("default");
    call.request.key.key = slice_str(text);
    assert_int_equal(record_key_seal(&call.request.key, NULL), OK);
    call.request.policy = policy_default;
    call.request.policy.window_ms = window_of(number);
    struct digest plain;
    digest_sha256(payload, strlen(payload), &plain);
    call.request_body = slice_str(payload);
    call.request.request =
        (struct body_ref){.digest = plain, .bytes = strlen(payload), .retained = true};
    engine_fingerprint(world.engine, &plain, &call.request.fingerprint);
    return call;
}

static struct slice body_of(unsigned number, uint64_t fence)
{
    struct prng prng = {number * UINT64_C(1000003) + fence};
    prng_fill(&prng, world.body, 64); /* the rest stays: enough to tell all of them apart */
    return slice_of(world.body, number % 6 == 3 ? BODY_BYTES : 64);
}

static struct engine_call holder_call(const struct key *key, enum request_kind kind)
{
    arena_clear(&world.arena);
    struct engine_call call = {.arena = &world.arena};
    call.request.kind = kind;
    call.request.key.tenant = SLICE_LIT("default");
    call.request.operation_id = key->operation_id;
    call.request.fence = key->fence;
    return call;
}

static void key_move(struct key *key, bool answered, enum status status, enum stand stand)
{
    if (answered) {
        key->stand = stand;
    } else if (status == E_UNKNOWN && !key->unsure) {
        key->unsure = true;
        key->maybe = stand;
    }
}

static void settle(unsigned number, enum request_kind kind, enum decision_kind wanted)
{
    struct key *key = &world.keys[number];
    struct engine_call call = holder_call(key, kind);
    if (kind == REQUEST_SEAL) {
        call.request.status = RECORD_EXECUTED;
        call.outcome_body = body_of(number, key->fence);
        struct body_ref *body = &call.request.outcome.body;
        *body = (struct body_ref){.bytes = call.outcome_body.len, .retained = true};
        digest_sha256(call.outcome_body.data, call.outcome_body.len, &body->digest);
    } else if (kind == REQUEST_RENEW) {
        call.request.policy.lease_ms = 60000;
    }
    bool answered = do_call(request_kind_name(kind), &call);
    if (answered && call.decision.kind != wanted) {
        wrong("F1: key %u: a %s got %s", number, request_kind_name(kind),
            decision_name(call.decision.kind));
    }
    enum stand stand = kind == REQUEST_SEAL      ? STAND_SEALED
                       : kind == REQUEST_RELEASE ? STAND_FREE
                                                 : STAND_OPEN;
    key_move(key, answered, call.err.status, stand);
}

static bool stands(const struct key *key, enum stand stand)
{
    return key->stand == stand || (key->unsure && key->maybe == stand);
}

static void granted(unsigned number, const struct engine_call *call)
{
    struct key *key = &world.keys[number];
    const struct record *record = &call->decision.next;
    if (!stands(key, STAND_FREE) && !stands(key, STAND_GONE)) {
        wrong("F5: key %u was granted at fence %" PRIu64 " and at %" PRIu64, number, key->fence,
            record->fence);
    }
    if (record->fence <= world.fence_highest) {
        wrong("P4: key %u got fence %" PRIu64 " after %" PRIu64, number, record->fence,
            world.fence_highest);
    }
    world.fence_highest = record->fence;
    *key = (struct key){STAND_OPEN, record->fence, record->operation_id, false, STAND_FREE};
}

/* One begin, and what it must find. true: it was granted. */
static bool begin(unsigned number)
{
    struct key *key = &world.keys[number];
    struct engine_call call = begin_call(number, "{\"a\":1}");
    if (!do_call("begin", &call)) {
        /* A grant nobody was told of: its fence is not known, and it is open. */
        if (call.err.status == E_UNKNOWN && stands(key, STAND_FREE) && !key->unsure) {
            key->unsure = true;
            key->maybe = STAND_OPEN;
        }
        return false;
    }
    enum decision_kind kind = call.decision.kind;
    if (kind == DECISION_FIRST_SEEN) {
        granted(number, &call);
        return true;
    }
    bool replay = kind == DECISION_DUPLICATE_REPLAYED && stands(key, STAND_SEALED) &&
                  slice_equal(call.outcome, body_of(number, call.decision.next.fence));
    bool held = kind == DECISION_IN_PROGRESS || kind == DECISION_HELD_UNKNOWN;
    bool right = replay || (held && stands(key, STAND_OPEN));
    if (!right) {
        wrong("F4: key %u stood at %d (or %d), and a begin got %s", number, (int)key->stand,
            key->unsure ? (int)key->maybe : -1, decision_name(call.decision.kind));
    }
    return false;
}

static void conflict(unsigned number)
{
    struct engine_call call = begin_call(number, "{\"a\":2}");
    if (world.keys[number].stand != STAND_FREE && !world.keys[number].unsure &&
        do_call("conflict", &call) && call.decision.kind != DECISION_CONFLICT_REJECTED) {
        wrong("F1: key %u: another payload got %s", number, decision_name(call.decision.kind));
    }
}

static void work_on(unsigned number)
{
    if (begin(number)) {
        if (number % 5 == 0) {
            settle(number, REQUEST_RENEW, DECISION_RENEWED);
        }
        if (number % 6 == 4) {
            settle(number, REQUEST_RELEASE, DECISION_RELEASED);
        } else if (number % 12 == 5) {
            settle(number, REQUEST_UNKNOWN, DECISION_UNKNOWN);
        } else if (number % 12 != 11) {
            settle(number, REQUEST_SEAL, DECISION_SEALED);
        }
    }
    if (number % 4 == 0) {
        conflict(number);
    }
    if (number % 6 == 3) {
        (void)begin(number);
    }
}

/* ---- a whole life -------------------------------------------------------------------------- */

static bool world_open(const struct io *io, bool background)
{
    char url[480];
    (void)snprintf(url, sizeof url, "%s?segment=64KiB&snapshot=48KiB&background=%s&write=%s",
        world.url, background ? "on" : "off", ways[way_now]);
    struct store_options options = {.io = io, .clock = &world.clock};
    struct engine_options engine_options = {.clock = &world.clock, .checkpoint_every_ms = 200};
    struct store *store;
    struct err err = {0};
    world.engine = NULL;
    world.stopped = false;
    enum status status = store_open(url, &options, &store, &err);
    if (status == OK) {
        status = engine_new(store, &engine_options, &world.engine, &err);
    }
    if (status != OK) {
        failure_check("open", status, &err);
    }
    return status == OK;
}

static void world_close(void)
{
    struct err err = {0};
    enum status status = engine_free(world.engine, &err);
    world.engine = NULL;
    if (status != OK) {
        failure_check("close", status, &err);
    }
}

static void windows_end(void)
{
    world.now_ms += LATER_MS;
    for (unsigned i = 0; i < KEYS; i++) {
        struct key *key = &world.keys[i];
        bool settled = !stands(key, STAND_OPEN) || stands(key, STAND_SEALED);
        if (window_of(i) == WINDOW_MS && key->fence > 0 && settled) {
            key->stand = STAND_GONE; /* it may be there or not, and may be granted again */
        }
    }
}

static void life(bool background)
{
    if (world_open(&world.bad.io, background)) {
        for (unsigned i = 0; i < KEYS_FIRST; i++) {
            work_on(i);
        }
        world_close();
    }
    windows_end();
    if (world_open(&world.bad.io, background)) {
        for (unsigned i = 0; i < KEYS; i++) {
            if (window_of(i) != WINDOW_MS || i >= KEYS_FIRST) {
                work_on(i);
            }
        }
        world_close();
    }
}

/* ---- afterwards ---------------------------------------------------------------------------- */

static bool record_right(const struct key *key, const struct record *record)
{
    bool open = record != NULL &&
                (record->status == RECORD_IN_PROGRESS || record->status == RECORD_UNKNOWN);
    bool free = record == NULL || record->status == RECORD_RELEASED;
    bool sealed = record != NULL && record->status == RECORD_EXECUTED;
    bool fence = record != NULL && (record->fence == key->fence || key->unsure);
    return (stands(key, STAND_FREE) && free) || (stands(key, STAND_OPEN) && open && fence) ||
           (stands(key, STAND_SEALED) && sealed && fence) || stands(key, STAND_GONE);
}

static void records_check(void)
{
    struct store_options options = {.must_exist = true, .clock = &world.clock};
    struct store *store;
    struct err err = {0};
    if (store_open(world.url, &options, &store, &err) != OK) {
        wrong("F4: on a good disk it does not open: %s", err.text);
        return;
    }
    for (unsigned i = 0; i < KEYS; i++) {
        struct record_key name = {.tenant = SLICE_LIT("default")};
        char text[24];
        (void)snprintf(text, sizeof text, "key-%u", i);
        name.key = slice_str(text);
        assert_int_equal(record_key_seal(&name, NULL), OK);
        const struct record *record = NULL;
        arena_clear(&world.arena);
        struct store_want want = {.key = &name.hash};
        struct store_batch batch = {.wants = &want, .count = 1, .arena = &world.arena};
        enum status status = store->ops->read(store, &batch, &err);
        record = status == OK ? want.record : NULL;
        if (status != OK) {
            wrong("F4: key %u cannot be read: %s", i, err.text);
        } else if (!record_right(&world.keys[i], record)) {
            wrong("F4: key %u stood at %d (or %d), fence %" PRIu64 ", and is %s at %" PRIu64, i,
                (int)world.keys[i].stand, world.keys[i].unsure ? (int)world.keys[i].maybe : -1,
                world.keys[i].fence, record == NULL ? "absent" : record_status_name(record->status),
                record == NULL ? 0 : record->fence);
        }
    }
    (void)store->ops->close(store, &err);
}

static void verify_check(void)
{
    static struct verify_result result;
    struct verify_options options = {.url = world.url, .redecide = true};
    struct err err = {0};
    if (verify_run(&options, &result, &err) != OK) {
        wrong("F4: it cannot be verified: %s", err.text);
    } else if (result.damage_count > 0) {
        wrong("F4: verify: segment %" PRIu64 " at %" PRIu64 ": %s", result.damages[0].segment,
            result.damages[0].offset, result.damages[0].what);
    }
}

/* What is asked for again is replayed or held, and what is new is granted (F5). */
static void begins_check(void)
{
    if (!world_open(NULL, false)) {
        return;
    }
    for (unsigned i = 0; i < KEYS; i++) {
        if (world.keys[i].stand != STAND_GONE) {
            (void)begin(i);
        }
    }
    world_close();
}

static void world_start(void)
{
    world = (struct world){.now_ms = KIT_NOW};
    world.clock = (struct clock){.read = clock_fake, .boot_id = 7};
    arena_init(&world.arena, &mem_libc, 64 << 20);
    /* Faults are told, not real: memory is as good as a disk, and lets many more be tried. */
    char *before = getenv("TMPDIR");
    char kept[256];
    (void)snprintf(kept, sizeof kept, "%s", before == NULL ? "/tmp" : before);
    if (access("/dev/shm", W_OK) == 0) {
        (void)setenv("TMPDIR", "/dev/shm", 1);
    }
    world.dir = kit_dir_make();
    (void)setenv("TMPDIR", kept, 1);
    (void)snprintf(world.url, sizeof world.url, "journal:%s/data", world.dir.path);
}

/* One case. true: the fault happened. */
static bool run_case(enum bad_kind kind, uint64_t at, bool background)
{
    world_start();
    bad_io_init(&world.bad, kind, at);
    life(background);
    bool went = world.bad.went > 0;
    uint64_t struck = world.bad.went;
    world.bad.went = 0; /* from here on nothing may fail */
    /* A disk that never worked has no store, and needs none. */
    char identity[300];
    (void)snprintf(identity, sizeof identity, "%s/data/identity", world.dir.path);
    if (access(identity, F_OK) == 0 || world.fence_highest > 0) {
        records_check();
        begins_check();
        verify_check();
    }
    world.bad.went = struck;
    bad_io_release(&world.bad);
    kit_dir_remove(&world.dir);
    arena_release(&world.arena);
    return went;
}

static uint64_t count_calls(enum bad_kind kind)
{
    (void)run_case(kind, 0, false);
    if (world.what[0] != '\0') {
        fail_msg("without a fault: %s", world.what);
    }
    return world.bad.calls;
}

/* ---- tests --------------------------------------------------------------------------------- */

static void every_call_may_fail_in_every_way(void **state)
{
    (void)state;
    uint64_t counts[BAD_KINDS] = {0};
    uint64_t total = 0;
    for (enum bad_kind kind = BAD_EIO; kind < BAD_LIE; kind++) {
        counts[kind] = count_calls(kind);
        total += counts[kind];
    }
    bool all = getenv("ONCE_TEST_LONG") != NULL;
    uint64_t stride = all ? 1 : total * WAYS / CASES_SHORT + 1;
    struct prng prng = {clock_nanos()};
    uint64_t next = prng_below(&prng, stride);
    print_message("# write=%s: %" PRIu64 " cases, one in %" PRIu64 " from %" PRIu64 "\n",
        ways[way_now], total, stride, next);
    uint64_t number = 0;
    for (enum bad_kind kind = BAD_EIO; kind < BAD_LIE; kind++) {
        uint64_t ran = 0;
        uint64_t went = 0;
        for (uint64_t at = 1; at <= counts[kind]; at++, number++) {
            if (number % stride != next) {
                continue;
            }
            went += run_case(kind, at, ran % 4 == 3);
            ran++;
            if (world.what[0] != '\0') {
                fail_msg("write=%s: %s at call %" PRIu64 " of %" PRIu64 "%s: %s", ways[way_now],
                    bad_kind_name(kind), at, counts[kind],
                    ran % 4 == 0 ? " (in the background)" : "", world.what);
            }
        }
        print_message("# %s: %" PRIu64 " of %" PRIu64 " calls tried, %" PRIu64 " struck\n",
            bad_kind_name(kind), ran, counts[kind], went);
        assert_true(went * 10 >= ran * 8);
    }
}

/* The negative control: a disk that says it wrote and did not. */
static void a_disk_that_lies_is_found_out(void **state)
{
    (void)state;
    uint64_t calls = count_calls(BAD_LIE);
    unsigned found = 0;
    for (unsigned i = 0; i < LIES; i++) {
        (void)run_case(BAD_LIE, 1 + i * calls / LIES, false);
        found += world.what[0] != '\0';
        if (found == 1 && world.what[0] != '\0') {
            print_message("# the first: %s\n", world.what);
        }
    }
    /* Zeros written ahead, saved indexes and the like may be lost without harm. */
    print_message("# %u of %d lies found\n", found, LIES);
    assert_true(found >= LIES / 4);
}

int main(int argc, char **argv)
{
    if (argc == 4) { /* one case again: KIND NUMBER WAY */
        way_now = (unsigned)strtoul(argv[3], NULL, 10) % WAYS;
        (void)run_case(
            (enum bad_kind)strtol(argv[1], NULL, 10), strtoull(argv[2], NULL, 10), false);
        (void)printf("%s\n", world.what[0] == '\0' ? "right" : world.what);
        return world.what[0] != '\0';
    }
    const struct CMUnitTest tests[] = {
        TEST(every_call_may_fail_in_every_way),
        TEST(a_disk_that_lies_is_found_out),
    };
    int failed = 0;
    for (; way_now < WAYS; way_now++) {
        failed += cmocka_run_group_tests(tests, NULL, NULL);
    }
    return failed;
}
