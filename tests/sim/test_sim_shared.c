/*
 * Several processes over one shared store, from one seed: between the prepare of one and its commit
 * others run whole batches on the same keys. A commit may fail, or nobody is told what became of
 * it, or it is under way while its process prepares and commits the next batch, and fails then,
 * with all that was decided after it. Each answer is compared with what the commits before it say,
 * in the order in which they happened (P1, P3, P4, P7), and all of them are decided again from the
 * evidence, in that order too (P10).
 */
#include <stdio.h>
#include <stdlib.h>

#include "check_c.h"
#include "engine/cycle.h"
#include "evidence/redecide.h"
#include "sanitized.h"
#include "store/mem.h"

enum {
    PROCESSES = 3,
    KEYS = 8,
    CALLS_MAX = 3, /* of one batch, each of a key of its own: their order does not matter then */
    WANTS_MAX = 3 * CALLS_MAX,
    STEPS = 120, /* batches of one run, and those that run between their two touches */
    SEEDS = IS_SANITIZED ? 150 : 300,
    SEEDS_LONG = 6000, /* with ONCE_TEST_LONG */
    GRANTS_MAX = 4096
};

/* What the commits so far say of a key. */
struct model {
    bool granted;
    bool sealed;
    uint64_t fence; /* of the last grant */
    struct op_id operation_id;
    bool payload;     /* which of the two it was granted for */
    char outcome[24]; /* of the seal */
};

struct asked {
    struct engine_call call;
    size_t key;
    bool payload; /* of a begin: one of two */
    char outcome[24];
};

/* The calls of a batch, until what became of its commit is known. */
struct round {
    struct asked asked[CALLS_MAX];
    struct arena arena;
    size_t count;
    uint64_t number; /* of the commit under way; 0: none is */
    bool failed;
};

struct process {
    struct store *store;
    struct store_ops ops;
    struct cycle cycle;
    bool is_busy;                    /* between prepare and commit */
    bool happened;                   /* its last commit, though it was not told */
    struct digest wanted[WANTS_MAX]; /* keys of its last prepare, which a store may have locked */
    size_t wanted_count;
    struct round late; /* whose commit is under way, or was: settle has not been called yet */
    struct round next; /* is being decided */
};

static struct world {
    uint64_t random;
    struct store_mem_hub *hub;
    const struct store_ops *inner;
    struct process processes[PROCESSES];
    struct model keys[KEYS];
    uint64_t fences[GRANTS_MAX]; /* all that were granted */
    size_t grants;
    size_t answers;
    size_t between; /* batches that ran inside of another one … */
    size_t again;   /* … and calls that had to be decided again for it */
    size_t untold;  /* calls that happened without anybody being told */
    size_t late;    /* batches that were begun while the one before was under way … */
    size_t failed;  /* … and commits under way that did not happen */
    size_t left;    /* decisions that changed no record … */
    size_t refused; /* … or made none, because a newer version of its source was sealed */
} world;

static uint64_t pick(uint64_t below)
{
    world.random += 0x9e3779b97f4a7c15; /* splitmix64 */
    uint64_t x = world.random;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return (x ^ (x >> 31)) % below;
}

static struct clock_reading read_clock(void *context)
{
    (void)context;
    return (struct clock_reading){1794770607000, 1794770607000};
}

static const struct clock still = {.read = read_clock, .boot_id = 3};

static struct process *process_of(const struct store *store)
{
    struct process *process = world.processes;
    while (process->store != store) {
        process++;
    }
    return process;
}

/* ---- calls ---------------------------------------------------------------------------------- */

static void ask(struct asked *asked, size_t key, struct arena *arena)
{
    static char names[KEYS][4] = {"a", "b", "c", "d", "e", "f", "g", "h"};
    const struct model *model = &world.keys[key];
    *asked = (struct asked){.call = {.arena = arena}, .key = key};
    struct request *request = &asked->call.request;
    uint64_t chance = pick(10);
    if (chance < 5 || model->fence == 0) {
        asked->payload = pick(8) == 0;
        request->kind = REQUEST_BEGIN;
        request->key.tenant = SLICE_LIT("default");
        request->key.key = slice_str(names[key]);
        request->policy = policy_default;
        request->fingerprint.bytes[0] = asked->payload ? 2 : 1;
        if (pick(2) == 0) {
            static const char *const versions[] = {"1", "2", "3", "4"};
            request->source =
                (struct source){SLICE_LIT("order"), SLICE_LIT("one"), slice_str(versions[pick(4)])};
        }
        assert_int_equal(record_key_seal(&request->key, NULL), OK);
        return;
    }
    request->kind = chance < 7 ? REQUEST_SEAL : REQUEST_RELEASE;
    request->key.tenant = SLICE_LIT("default");
    request->operation_id = model->operation_id;
    request->fence = model->fence - (model->fence > 1 && pick(6) == 0);
    if (request->kind == REQUEST_SEAL) {
        int len = snprintf(
            asked->outcome, sizeof asked->outcome, "%llu", (unsigned long long)pick(1000000));
        request->status = RECORD_EXECUTED;
        asked->call.outcome_body = slice_of(asked->outcome, (size_t)len);
        request->outcome.body = (struct body_ref){.bytes = (size_t)len, .retained = true};
        digest_sha256(asked->outcome, (size_t)len, &request->outcome.body.digest);
    }
}

/* ---- what may be answered -------------------------------------------------------------------- */

static void note_grant(struct model *model, const struct asked *asked)
{
    const struct record *record = &asked->call.decision.next;
    assert_false(model->granted || model->sealed); /* P1 */
    assert_true(record->fence > model->fence);     /* P4 */
    for (size_t i = 0; i < world.grants; i++) {
        assert_true(world.fences[i] != record->fence); /* P4 */
    }
    assert_true(world.grants < GRANTS_MAX);
    world.fences[world.grants++] = record->fence;
    model->granted = true;
    model->payload = asked->payload;
    model->fence = record->fence;
    model->operation_id = record->operation_id;
}

static void note(const struct asked *asked)
{
    struct model *model = &world.keys[asked->key];
    bool is_current = model->granted && asked->call.request.fence == model->fence;
    world.answers++;
    world.again += asked->call.decided > 1;
    if (asked->call.decision.change == CHANGE_NONE) { /* it has no reason to be refused */
        assert_false(is_current);
        world.left++;
    }
    switch ((int)asked->call.decision.kind) {
    case DECISION_FIRST_SEEN: note_grant(model, asked); break;
    case DECISION_IN_PROGRESS:
        assert_true(model->granted && asked->payload == model->payload);
        break;
    case DECISION_DUPLICATE_REPLAYED:
        assert_true(model->sealed && asked->payload == model->payload);
        assert_true(slice_is(asked->call.outcome, model->outcome)); /* P3 */
        break;
    case DECISION_CONFLICT_REJECTED:
        assert_true(model->fence > 0 && asked->payload != model->payload); /* P7 */
        break;
    case DECISION_STALE_VERSION:
        assert_false(model->granted || model->sealed);
        world.refused++;
        break;
    case DECISION_SEALED:
        if (asked->call.decision.repeated) {
            assert_true(model->sealed && strcmp(asked->outcome, model->outcome) == 0); /* P3 */
            break;
        }
        assert_true(is_current);
        model->granted = false;
        model->sealed = true;
        memcpy(model->outcome, asked->outcome, sizeof model->outcome);
        break;
    case DECISION_RELEASED:
        assert_true(is_current || asked->call.decision.repeated);
        model->granted = false;
        break;
    default: /* refused: it changes nothing, and the holder is not refused */
        assert_false(is_current);
    }
}

/* ---- batches --------------------------------------------------------------------------------- */

/* The hub decides what becomes of a commit under way: this is the moment in which it happens. */
static enum status fate(void *context, struct store *store, uint64_t number)
{
    (void)context;
    struct process *process = process_of(store);
    /* A commit of which nobody but the store knows yet is the one being made. */
    struct round *round = process->late.number == number ? &process->late : &process->next;
    round->failed = pick(8) == 0;
    world.failed += round->failed;
    for (size_t i = 0; i < round->count && !round->failed; i++) {
        if (round->asked[i].call.err.status == OK) {
            note(&round->asked[i]);
        }
    }
    return round->failed ? E_UNAVAILABLE : OK;
}

/* Waits for the commit under way, if there is one. */
static void end_late(struct process *process)
{
    struct round *late = &process->late;
    struct err err = {0};
    if (late->number != 0) {
        enum status status = process->store->ops->settle(process->store, late->number, &err);
        assert_int_equal(status, late->failed ? E_UNAVAILABLE : OK); /* S14 */
        late->number = 0;
        arena_release(&late->arena);
    }
}

static void step(struct process *process)
{
    static const size_t arena_bytes = 1 << 20;
    struct round *round = &process->next;
    struct engine_call *calls[CALLS_MAX];
    struct err err = {0};
    size_t first = pick(KEYS);
    *round = (struct round){.count = 1 + pick(CALLS_MAX)};
    arena_init(&round->arena, &mem_libc, arena_bytes);
    for (size_t i = 0; i < round->count; i++) {
        ask(&round->asked[i], (first + i) % KEYS, &round->arena);
        calls[i] = &round->asked[i].call;
    }
    process->is_busy = true;
    process->happened = false;
    world.late += process->late.number != 0;
    enum status status = cycle_run(&process->cycle, calls, round->count, &err);
    process->is_busy = false;
    assert_true(status == OK || status == E_UNAVAILABLE);
    if (status == OK && process->cycle.pending != 0) {
        end_late(process); /* in order; the commit of the one before was settled by this one */
        round->number = process->cycle.pending;
        process->late = *round;
        if (pick(2) == 0) {
            end_late(process);
        }
        return;
    }
    for (size_t i = 0; i < round->count && status == OK; i++) {
        struct engine_call *call = &round->asked[i].call;
        bool is_untold = call->err.status == E_UNKNOWN;
        if (call->err.status == OK || (is_untold && process->happened)) {
            note(&round->asked[i]); /* those that ran in between were noted: they committed first */
            world.untold += is_untold;
        } else if (!is_untold) {
            assert_int_equal(call->err.status, E_UNAVAILABLE);
        }
    }
    arena_release(&round->arena);
}

/* Others run now, or do not. */
static void let_others_run(void)
{
    for (size_t i = 0; i < PROCESSES; i++) {
        if (!world.processes[i].is_busy && pick(3) == 0) {
            world.between++;
            step(&world.processes[i]);
        }
    }
}

static enum status slow_prepare(struct store *store, struct store_batch *batch, struct err *err)
{
    struct process *process = process_of(store);
    enum status status = world.inner->prepare(store, batch, err);
    process->wanted_count = 0;
    for (size_t i = 0; status == OK && i < batch->count; i++) {
        const struct store_want *want = &batch->wants[i];
        if (want->key != NULL || want->record != NULL) {
            assert_true(process->wanted_count < WANTS_MAX);
            process->wanted[process->wanted_count++] =
                want->key != NULL ? *want->key : want->record->key.hash;
        }
    }
    if (status == OK) {
        let_others_run();
    }
    return status;
}

/* A store that locks does not compare the version that an entry alone was decided on: it must have
 * locked the key for this commit. */
static void check_wanted(const struct process *process, const struct commit *commit)
{
    for (size_t i = 0; i < commit->count; i++) {
        const struct change *change = &commit->changes[i];
        bool is_wanted = change->kind != CHANGE_NONE || change->decided_on == NULL;
        for (size_t j = 0; j < process->wanted_count && !is_wanted; j++) {
            is_wanted = digest_equal(&process->wanted[j], change->decided_on);
        }
        assert_true(is_wanted);
    }
}

static enum status shaky_commit(struct store *store, const struct commit *commit, struct err *err)
{
    struct process *process = process_of(store);
    check_wanted(process, commit);
    let_others_run();
    uint64_t chance = pick(30);
    if (chance < 2) {
        world.inner->abort(store);
        return err_set(err, chance == 0 ? E_UNAVAILABLE : E_UNKNOWN, "nobody answers");
    }
    struct commit now = *commit;
    if (chance == 2) {
        now.ret_number = NULL; /* its fate is known, and not told */
    }
    enum status status = world.inner->commit(store, &now, err);
    process->happened = status == OK;
    return chance == 2 && status == OK ? err_set(err, E_UNKNOWN, "the answer is lost") : status;
}

/* ---- runs ------------------------------------------------------------------------------------ */

static void process_start(struct process *process)
{
    struct err err = {0};
    assert_int_equal(store_mem_hub_open(world.hub, NULL, &process->store, &err), OK);
    world.inner = process->store->ops;
    process->ops = *process->store->ops;
    process->ops.prepare = slow_prepare;
    process->ops.commit = shaky_commit;
    process->store->ops = &process->ops;
    assert_int_equal(cycle_init(&process->cycle, process->store, &mem_libc, &err), OK);
}

/* The entries in the order of the commits, each decided again (P10). */
struct reading {
    struct redecide redecide;
    struct arena arena;
    struct buf scratch;
    size_t entries;
    struct err err; /* of the first that is decided differently */
};

static bool decide_again(void *context, const struct entry *entry)
{
    struct reading *reading = context;
    const struct redecide_stored stored = {.squeezed = true};
    struct entry_view view;
    arena_clear(&reading->arena);
    enum status status =
        entry_view_read(entry, &reading->arena, &reading->scratch, &view, &reading->err);
    if (status == OK) {
        status = redecide_entry(&reading->redecide, &view, &stored, &reading->err);
    }
    reading->entries += entry->kind == ENTRY_EVIDENCE;
    return status == OK;
}

static void check_evidence(struct store *store)
{
    struct reading reading = {.entries = 0};
    const struct entry_range all = {.pace = NULL};
    struct err err = {0};
    redecide_init(&reading.redecide, &mem_libc);
    reading.redecide.shared = true;
    arena_init(&reading.arena, &mem_libc, 1 << 20);
    buf_init(&reading.scratch, &mem_libc, 1 << 20);
    assert_int_equal(world.inner->entries(store, &all, decide_again, &reading, &err), OK);
    assert_string_equal(reading.err.text, "");
    assert_int_equal(reading.entries, world.answers); /* P10: one for each decision, and no more */
    assert_int_equal(reading.redecide.redecided, world.answers);
    redecide_release(&reading.redecide);
    buf_release(&reading.scratch);
    arena_release(&reading.arena);
}

static void run_seed(uint64_t seed)
{
    struct err err = {0};
    const struct store_options options = {.clock = &still};
    memset(&world, 0, sizeof world);
    world.random = seed;
    assert_int_equal(store_mem_hub_new(&options, NULL, &world.hub, &err), OK);
    store_mem_hub_defer(world.hub, fate, NULL);
    for (size_t i = 0; i < PROCESSES; i++) {
        process_start(&world.processes[i]);
    }
    for (size_t i = 0; i < STEPS; i++) {
        step(&world.processes[pick(PROCESSES)]);
    }
    for (size_t i = 0; i < PROCESSES; i++) {
        end_late(&world.processes[i]);
    }
    check_evidence(world.processes[0].store);
    for (size_t i = 0; i < PROCESSES; i++) {
        cycle_release(&world.processes[i].cycle);
        assert_int_equal(world.inner->close(world.processes[i].store, &err), OK);
    }
    store_mem_hub_free(world.hub);
}

static void processes_that_interleave_answer_in_the_order_of_their_commits(void **state)
{
    (void)state;
    size_t between = 0;
    size_t again = 0;
    size_t untold = 0;
    size_t late = 0;
    size_t failed = 0;
    size_t left = 0;
    size_t refused = 0;
    uint64_t seeds = getenv("ONCE_TEST_LONG") == NULL ? SEEDS : SEEDS_LONG;
    for (uint64_t seed = 1; seed <= seeds; seed++) {
        run_seed(seed);
        between += world.between;
        again += world.again;
        untold += world.untold;
        late += world.late;
        failed += world.failed;
        left += world.left;
        refused += world.refused;
    }
    assert_true(late > seeds * 10 && failed > seeds * 5); /* likewise about commits under way */
    assert_true(untold > seeds); /* or nothing was learnt about commits of unknown fate */
    assert_true(between > seeds * 10);
    assert_true(again > seeds * 5); /* or nothing was learnt about lost races */
    assert_true(left > seeds * 10 && refused > seeds / 4); /* … or about refusals */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(processes_that_interleave_answer_in_the_order_of_their_commits),
    };
    return cmocka_run_group_tests_name("sim_shared", tests, NULL, NULL);
}
