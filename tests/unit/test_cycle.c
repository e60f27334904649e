/*
 * One batch without threads: what its later calls see of its earlier ones (EN2), how often it
 * touches the store, what a lost race costs, and groups that hold whole or not at all. It is
 * past 800 lines because each rule of a batch has its test here.
 */
#include <stdio.h>
#include <string.h>

#include "base/limits.h"
#include "check_c.h"
#include "engine/cycle.h"
#include "evidence/entry_form.h"
#include "store/fault.h"
#include "store/mem.h"

static struct store *store;  /* counts its calls */
static struct store *memory; /* inside of it */
static struct cycle cycle;
static struct arena arena;

/* Another process of the same store: just before a commit it changes records under some keys. */
static struct rival {
    const char *keys[4];
    bool enqueues; /* effects; else it begins operations */
    int rounds;    /* how often it is faster */
} rival;

static const struct store_ops *table; /* the memory's own */
static struct store_ops raced;

static int64_t now_ms = 1794770607000;

/* Both clocks go together: time passes, nothing jumps. */
static struct clock_reading fake_read(void *context)
{
    (void)context;
    return (struct clock_reading){now_ms, now_ms};
}

static int set_up(void **state)
{
    (void)state;
    arena_init(&arena, &mem_libc, 64 << 20);
    static const struct clock clock = {.read = fake_read, .boot_id = 3};
    static const struct store_options options = {.clock = &clock};
    assert_int_equal(store_mem_new(&options, NULL, &memory, NULL), OK);
    assert_int_equal(fault_new(memory, NULL, &store, NULL), OK);
    table = memory->ops;
    rival = (struct rival){0};
    return cycle_init(&cycle, store, &mem_libc, NULL);
}

static int tear_down(void **state)
{
    (void)state;
    cycle_release(&cycle);
    arena_release(&arena);
    return store->ops->close(store, NULL);
}

static struct body_ref body_of(const char *text)
{
    struct body_ref body = {.bytes = strlen(text), .retained = true};
    digest_sha256(text, strlen(text), &body.digest);
    return body;
}

static struct engine_call begin_key(const char *key, const char *payload)
{
    struct engine_call call = {.arena = &arena, .request_body = slice_str(payload)};
    call.request.kind = REQUEST_BEGIN;
    call.request.key.tenant = SLICE_LIT("default");
    call.request.key.key = slice_str(key);
    assert_int_equal(record_key_seal(&call.request.key, NULL), OK);
    call.request.policy = policy_default;
    call.request.request = body_of(payload);
    call.request.fingerprint = call.request.request.digest;
    return call;
}

static struct engine_call enqueue_effect(const char *key, const char *payload)
{
    struct engine_call call = begin_key(key, payload);
    call.request.kind = REQUEST_ENQUEUE;
    call.request.record_kind = RECORD_EFFECT;
    assert_int_equal(record_key_seal_as(&call.request.key, RECORD_EFFECT, NULL), OK);
    return call;
}

static struct engine_call begin_call(const char *payload)
{
    return begin_key("k", payload);
}

static struct engine_call seal_call(const struct engine_call *begun, const char *body)
{
    struct engine_call call = {.arena = &arena, .outcome_body = slice_str(body)};
    call.request.kind = REQUEST_SEAL;
    call.request.operation_id = begun->decision.next.operation_id;
    call.request.fence = begun->decision.next.fence;
    call.request.status = RECORD_EXECUTED;
    call.request.outcome.body = body_of(body);
    return call;
}

static void run(struct engine_call *a, struct engine_call *b)
{
    struct engine_call *calls[] = {a, b};
    struct err err = {0};
    if (cycle_run(&cycle, calls, b == NULL ? 1 : 2, &err) != OK) {
        fail_msg("%s", err.text);
    }
}

static void a_duplicate_is_replayed_in_the_batch_of_the_seal(void **state)
{
    (void)state;
    struct engine_call first = begin_call("pay");
    run(&first, NULL);
    struct engine_call seal = seal_call(&first, "done");
    struct engine_call again = begin_call("pay");
    run(&seal, &again);
    assert_int_equal(seal.decision.kind, DECISION_SEALED);
    assert_int_equal(again.decision.kind, DECISION_DUPLICATE_REPLAYED);
    assert_true(slice_is(again.outcome, "done"));
    assert_ptr_not_equal(again.outcome.data, seal.outcome_body.data); /* it may be gone by then */

    struct engine_call later = begin_call("pay");
    run(&later, NULL);
    assert_true(slice_is(later.outcome, "done"));
}

static void a_conflict_is_explained_in_the_batch_of_the_first(void **state)
{
    (void)state;
    struct engine_call first = begin_call("one");
    struct engine_call other = begin_call("two");
    run(&first, &other);
    assert_int_equal(first.decision.kind, DECISION_FIRST_SEEN);
    assert_int_equal(other.decision.kind, DECISION_CONFLICT_REJECTED);
    assert_true(slice_is(other.first_body, "one"));
}

static void the_same_seal_twice_in_a_batch_is_repeated(void **state)
{
    (void)state;
    struct engine_call first = begin_call("pay");
    run(&first, NULL);
    struct engine_call seal = seal_call(&first, "done");
    struct engine_call again = seal_call(&first, "done");
    run(&seal, &again);
    assert_false(seal.decision.repeated);
    assert_true(again.decision.repeated);
    assert_true(slice_is(again.outcome, "done"));
}

/* What a key's record was before the batch has no part in what the batch shows of it. */
static void a_body_is_shown_as_the_batch_left_it(void **state)
{
    (void)state;
    static const char *const keys[] = {"a", "b"};
    static const char *const bodies[] = {"second", ""};
    for (size_t i = 0; i < 2; i++) {
        struct engine_call old = begin_key(keys[i], "first");
        run(&old, NULL);
        struct engine_call seal = seal_call(&old, "first outcome");
        run(&seal, NULL);
        now_ms = seal.decision.next.window_expires_ms + 1;
        struct engine_call fresh = begin_key(keys[i], bodies[i]);
        struct engine_call other = begin_key(keys[i], "third");
        run(&fresh, &other);
        assert_int_equal(fresh.decision.kind, DECISION_FIRST_SEEN);
        assert_int_equal(other.decision.kind, DECISION_CONFLICT_REJECTED);
        assert_true(slice_is(other.first_body, bodies[i]));
        seal = seal_call(&fresh, bodies[i]);
        struct engine_call again = begin_key(keys[i], bodies[i]);
        run(&seal, &again);
        assert_int_equal(again.decision.kind, DECISION_DUPLICATE_REPLAYED);
        assert_true(slice_is(again.outcome, bodies[i]));
    }
}

/* ---- touching the store -------------------------------------------------------------------- */

enum { MIXED = LIMIT_BATCH_REQUESTS_MAX };

static struct engine_call mixed[MIXED];
static struct engine_call *mixed_calls[MIXED];
static char mixed_keys[MIXED][16];
static struct note mixed_note = {.kind = NOTE_ACCESS_READ,
    .tenant = {.data = "default", .len = 7},
    .actor = {.data = "me", .len = 2}};

static void run_all(struct engine_call **calls, size_t count)
{
    struct err err = {0};
    if (cycle_run(&cycle, calls, count, &err) != OK) {
        fail_msg("%s", err.text);
    }
    assert_int_equal(store->ops->flush(store, &err), OK);
}

static void give_source(struct engine_call *call, size_t i)
{
    if (i % 3 == 0) {
        call->request.source =
            (struct source){SLICE_LIT("order"), slice_str(mixed_keys[i / 3]), SLICE_LIT("7")};
    }
}

/* Begins, half of them with sources, as the first half of the keys; sealed ones behind. */
static void mix_first(void)
{
    for (size_t i = 0; i < MIXED; i++) {
        (void)snprintf(mixed_keys[i], sizeof mixed_keys[i], "key-%zu", i);
        mixed[i] = begin_key(mixed_keys[i], "pay");
        give_source(&mixed[i], i);
        mixed_calls[i] = &mixed[i];
    }
    run_all(mixed_calls, MIXED);
    for (size_t i = 0; i < MIXED / 2; i++) {
        mixed[i] = seal_call(&mixed[i], "done");
    }
    run_all(mixed_calls, MIXED / 2);
}

/* Replays with their outcome, conflicts with the first request, seals that change what is known of
 * a source, seals repeated, new begins, begins that are too old, and notes: one prepare brings all
 * that they need, and one commit ends it. */
static void a_batch_of_1024_mixed_calls_touches_the_store_twice(void **state)
{
    (void)state;
    mix_first();
    for (size_t i = 0; i < MIXED; i++) {
        struct engine_call running = mixed[i];
        bool sealed = i < MIXED / 2;
        switch (i % 4) {
        case 0: mixed[i] = begin_key(mixed_keys[i], "pay"); break;
        case 1: mixed[i] = begin_key(mixed_keys[i], "else"); break;
        case 2: mixed[i] = seal_call(&running, "done"); break;
        default:
            mixed[i] = (struct engine_call){.arena = &arena, .note = &mixed_note};
            if (sealed) {
                mixed[i] = begin_key(mixed_keys[i], "new");
                mixed[i].request.key.scope = SLICE_LIT("fresh");
                assert_int_equal(record_key_seal(&mixed[i].request.key, NULL), OK);
                give_source(&mixed[i], i);
            }
        }
    }
    uint64_t before[STORE_CALL_COUNT];
    for (unsigned call = 0; call < STORE_CALL_COUNT; call++) {
        before[call] = fault_calls(store, (enum store_call)call);
    }
    struct err err = {0};
    assert_int_equal(cycle_run(&cycle, mixed_calls, MIXED, &err), OK);
    for (unsigned call = 0; call < STORE_CALL_COUNT; call++) {
        bool once = call == STORE_CALL_PREPARE || call == STORE_CALL_COMMIT;
        assert_int_equal(fault_calls(store, (enum store_call)call) - before[call], once);
    }
    assert_int_equal(fault_aborts(store), 0);
    for (size_t i = 0; i < MIXED; i++) {
        bool sealed = i < MIXED / 2;
        assert_int_equal(mixed[i].err.status, OK);
        assert_int_equal(mixed[i].decided, 1);
        if (i % 4 == 0 && sealed) {
            assert_int_equal(mixed[i].decision.kind, DECISION_DUPLICATE_REPLAYED);
            assert_true(slice_is(mixed[i].outcome, "done"));
        } else if (i % 4 == 1) {
            assert_int_equal(mixed[i].decision.kind, DECISION_CONFLICT_REJECTED);
            assert_true(slice_is(mixed[i].first_body, "pay"));
        } else if (i % 4 == 2) {
            assert_int_equal(mixed[i].decision.kind, DECISION_SEALED);
            assert_int_equal(mixed[i].decision.repeated, sealed);
        }
    }
}

static void a_batch_that_leaves_nothing_is_aborted(void **state)
{
    (void)state;
    struct engine_call first = begin_call("pay");
    struct engine_call waits = begin_call("pay");
    waits.wait_ms = 1000;
    run(&first, NULL);
    run(&waits, NULL);
    assert_true(waits.parked);
    assert_int_equal(fault_aborts(store), 1);
    assert_int_equal(fault_calls(store, STORE_CALL_COMMIT), 1);
}

/* ---- replays alone ------------------------------------------------------------------------- */

static struct engine_call replay_call(const char *key, const char *payload)
{
    struct engine_call call = begin_key(key, payload);
    call.request_body = SLICE_EMPTY; /* what a grant keeps was not made */
    call.request.request = (struct body_ref){.bytes = 0};
    call.replays_only = true;
    return call;
}

/* Asked for a replay, and nothing else: no decision, no entry, no change. */
static void assert_no_replay(struct engine_call *call)
{
    struct store_head before, after;
    store->ops->head(store, &before);
    run(call, NULL);
    assert_int_equal(call->err.status, E_STALE);
    assert_false(call->parked);
    store->ops->head(store, &after);
    assert_int_equal(after.seq, before.seq);
}

static void what_asks_for_a_replay_alone_is_granted_nothing(void **state)
{
    (void)state;
    struct engine_call call = replay_call("k", "pay");
    assert_no_replay(&call); /* a new key */
    struct engine_call first = begin_call("pay");
    run(&first, NULL);
    assert_int_equal(first.decision.kind, DECISION_FIRST_SEEN);
    call = replay_call("k", "pay");
    call.wait_ms = 1000;
    assert_no_replay(&call); /* in progress: nor does it wait */
    now_ms += first.request.policy.lease_ms + 1;
    call = replay_call("k", "pay");
    assert_no_replay(&call); /* its lease is over */
    call = replay_call("k", "pay");
    call.request.policy.on_unknown = ON_UNKNOWN_TAKEOVER;
    assert_no_replay(&call);
    struct engine_call seal = seal_call(&first, "done");
    run(&seal, NULL);
    call = replay_call("k", "other");
    assert_no_replay(&call); /* a conflict */
    now_ms += first.request.policy.window_ms + 1;
    call = replay_call("k", "pay");
    assert_no_replay(&call); /* its window is over */
    struct engine_call whole = begin_call("pay");
    run(&whole, NULL);
    assert_int_equal(whole.decision.kind, DECISION_FIRST_SEEN);
    assert_true(whole.decision.next.request.retained);
}

static void what_asks_for_a_replay_alone_gets_it(void **state)
{
    (void)state;
    struct store_head before, after;
    struct engine_call first = begin_call("pay");
    run(&first, NULL);
    struct engine_call seal = seal_call(&first, "done");
    struct engine_call call = replay_call("k", "pay");
    store->ops->head(store, &before);
    run(&seal, &call); /* in the batch of the seal */
    assert_int_equal(call.err.status, OK);
    assert_int_equal(call.decision.kind, DECISION_DUPLICATE_REPLAYED);
    assert_true(slice_is(call.outcome, "done"));
    assert_int_equal(call.decision.next.duplicates, 1);
    store->ops->head(store, &after);
    assert_int_equal(after.seq, before.seq + 2); /* with its own entry (P10) */
}

/* ---- lost races ---------------------------------------------------------------------------- */

static void rival_change(const char *key)
{
    struct engine_call theirs =
        rival.enqueues ? enqueue_effect(key, "theirs") : begin_key(key, "theirs");
    struct store_want want = {.key = &theirs.request.key.hash};
    struct store_batch batch = {.wants = &want, .count = 1, .fences = 1, .arena = &arena};
    struct err err = {0};
    assert_int_equal(table->prepare(memory, &batch, &err), OK);
    struct decide_moment moment = {.now_ms = batch.now_ms, .fence_next = batch.fence_first};
    struct decision decision = decide(want.record, &theirs.request, moment);
    struct record next = decision.next;
    if (want.record != NULL) { /* it is theirs already: a renewal */
        next = *want.record;
        next.version++;
    }
    next.request = (struct body_ref){.bytes = 0};
    struct change change = {.kind = CHANGE_PUT,
        .record = &next,
        .version_expected = want.record == NULL ? 0 : want.record->version};
    struct commit commit = {.changes = &change, .count = 1};
    assert_int_equal(table->commit(memory, &commit, &err), OK);
}

static enum status raced_commit(struct store *self, const struct commit *commit, struct err *err)
{
    struct store_batch again = {.count = 0};
    if (rival.rounds > 0 && commit->count > 0) {
        rival.rounds--;
        table->abort(self);
        for (size_t i = 0; i < 4 && rival.keys[i] != NULL; i++) {
            rival_change(rival.keys[i]);
        }
        assert_int_equal(table->prepare(self, &again, err), OK);
    }
    return table->commit(self, commit, err);
}

static void race(const char *first, const char *second, int rounds)
{
    rival = (struct rival){.keys = {first, second}, .rounds = rounds};
    raced = *table;
    raced.commit = raced_commit;
    memory->ops = &raced;
}

struct walk {
    uint64_t seq;
    struct digest hash;
    int64_t time_ms;
};

static bool walk_entry(void *context, const struct entry *entry)
{
    struct walk *walk = context;
    struct digest hash;
    entry_link(&walk->hash, entry, &hash);
    assert_int_equal(entry->seq, walk->seq + 1);
    assert_memory_equal(&hash, &entry->hash, sizeof hash);
    assert_true(entry->time_ms >= walk->time_ms);
    *walk = (struct walk){entry->seq, entry->hash, entry->time_ms};
    return true;
}

/* Dense, chained, and as many as were answered (P10). */
static void assert_entries(uint64_t count)
{
    struct walk walk = {0};
    struct entry_range all = {0};
    struct err err = {0};
    assert_int_equal(store->ops->entries(store, &all, walk_entry, &walk, &err), OK);
    assert_int_equal(walk.seq, count);
    assert_int_equal(cycle.chain.seq, count);
}

enum { RACERS = 6 };

static struct engine_call racers[RACERS];
static struct engine_call *racer_calls[RACERS];

/* a, b, c, b again, d, e. */
static void make_racers(void)
{
    static const char *const keys[RACERS] = {"a", "b", "c", "b", "d", "e"};
    for (size_t i = 0; i < RACERS; i++) {
        racers[i] = begin_key(keys[i], "ours");
        racer_calls[i] = &racers[i];
    }
}

static void only_calls_on_a_stale_key_are_decided_again(void **state)
{
    (void)state;
    make_racers();
    race("b", NULL, 1);
    run_all(racer_calls, RACERS);
    for (size_t i = 0; i < RACERS; i++) {
        bool on_b = i == 1 || i == 3;
        assert_int_equal(racers[i].err.status, OK);
        assert_int_equal(racers[i].decided, on_b ? 2 : 1);
        assert_int_equal(racers[i].decision.kind,
            on_b ? DECISION_CONFLICT_REJECTED : DECISION_FIRST_SEEN); /* b is the rival's */
    }
    assert_entries(RACERS);
    assert_int_equal(fault_calls(store, STORE_CALL_PREPARE), 2);
    assert_int_equal(fault_calls(store, STORE_CALL_COMMIT), 2);
    assert_int_equal(cycle.counts.records, 5);
    assert_int_equal(cycle.counts.by_status[RECORD_IN_PROGRESS], 5);
    run_all(racer_calls, RACERS); /* and what was kept is there */
    assert_int_equal(racers[0].decision.kind, DECISION_IN_PROGRESS);
    assert_int_equal(cycle.counts.records, 5);
}

/* A key that is met by two calls ties them together, and so on: a chain of calls is decided again,
 * the others are not. */
static void what_shares_a_key_with_a_stale_call_is_decided_again(void **state)
{
    (void)state;
    make_racers();
    for (size_t i = 0; i < 2; i++) { /* the seal of either moves the same source */
        racers[i].request.source =
            (struct source){SLICE_LIT("order"), SLICE_LIT("1"), SLICE_LIT("1")};
    }
    run_all(racer_calls, RACERS);
    struct engine_call seals[3] = {seal_call(&racers[0], "done"), seal_call(&racers[1], "done"),
        seal_call(&racers[2], "done")};
    struct engine_call *calls[3] = {&seals[0], &seals[1], &seals[2]};
    race("b", NULL, 1);
    run_all(calls, 3);
    assert_int_equal(seals[0].decided, 2);
    assert_int_equal(seals[1].decided, 2);
    assert_int_equal(seals[2].decided, 1);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(seals[i].decision.kind, DECISION_SEALED);
    }
    assert_entries(RACERS + 3);
}

/* Fences and times of those that are decided again are newer, so they come last in the chain. */
static void several_rounds_keep_the_chain_in_order(void **state)
{
    (void)state;
    make_racers();
    race("b", "d", STALE_ROUNDS_MAX - 1);
    run_all(racer_calls, RACERS);
    assert_int_equal(racers[0].decided, 1);
    assert_int_equal(racers[1].decided, STALE_ROUNDS_MAX);
    assert_int_equal(racers[4].decided, STALE_ROUNDS_MAX);
    assert_int_equal(racers[4].err.status, OK);
    assert_entries(RACERS);
}

static void after_too_many_races_only_those_calls_give_up(void **state)
{
    (void)state;
    make_racers();
    race("b", NULL, STALE_ROUNDS_MAX + 1);
    run_all(racer_calls, RACERS);
    for (size_t i = 0; i < RACERS; i++) {
        bool on_b = i == 1 || i == 3;
        assert_int_equal(racers[i].err.status, on_b ? E_UNAVAILABLE : OK);
        assert_int_equal(racers[i].decided, on_b ? STALE_ROUNDS_MAX : 1);
    }
    assert_entries(RACERS - 2);
}

/* ---- commits that fail --------------------------------------------------------------------- */

/* EN5: the batch is as if it had never been, though its second call rested on its first. */
static void a_failed_commit_forgets_both_calls_of_a_key(void **state)
{
    (void)state;
    struct engine_call kept = begin_key("kept", "pay");
    run(&kept, NULL);
    struct chain chain = cycle.chain;
    struct store_counts counts = cycle.counts;
    static const enum status failures[] = {E_UNAVAILABLE, E_LIMIT, E_NOMEM};
    for (size_t i = 0; i < sizeof failures / sizeof failures[0]; i++) {
        struct engine_call first = begin_call("pay");
        struct engine_call again = begin_call("pay");
        struct engine_call *calls[] = {&first, &again};
        struct err err = {0};
        fault_arm(store, STORE_CALL_COMMIT, 1, failures[i], FAULT_BEFORE);
        assert_int_equal(cycle_run(&cycle, calls, 2, &err), failures[i]);
        assert_memory_equal(&cycle.chain, &chain, sizeof chain);
        assert_memory_equal(&cycle.counts, &counts, sizeof counts);
    }
    struct engine_call first = begin_call("pay"), again = begin_call("pay");
    run(&first, &again);
    assert_int_equal(first.decision.kind, DECISION_FIRST_SEEN);
    assert_int_equal(again.decision.kind, DECISION_IN_PROGRESS);
    assert_int_equal(cycle.counts.records, 2);
    assert_entries(3);
}

/* ---- sources ------------------------------------------------------------------------------- */

static struct engine_call begin_of_source(const char *key, const char *id, const char *version)
{
    struct engine_call call = begin_key(key, "pay");
    call.request.source = (struct source){SLICE_LIT("order"), slice_str(id), slice_str(version)};
    return call;
}

static void two_sources_of_a_batch_are_two(void **state)
{
    (void)state;
    struct engine_call one = begin_of_source("one", "1", "7");
    struct engine_call two = begin_of_source("two", "2", "3");
    run(&one, &two);
    struct engine_call seals[] = {seal_call(&one, "done"), seal_call(&two, "done")};
    struct engine_call later[] = {begin_of_source("a", "1", "6"), begin_of_source("b", "2", "4"),
        begin_of_source("c", "2", "2"), begin_of_source("d", "1", "8")};
    static const enum decision_kind decisions[] = {
        DECISION_STALE_VERSION, DECISION_FIRST_SEEN, DECISION_STALE_VERSION, DECISION_FIRST_SEEN};
    struct engine_call *all[] = {&seals[0], &seals[1], &later[0], &later[1], &later[2], &later[3]};
    run_all(all, 6); /* seen in the batch of the seals … */
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(later[i].decision.kind, decisions[i]);
    }
    run(&later[0], &later[2]); /* … and after it */
    assert_int_equal(later[0].decision.kind, decisions[0]);
    assert_int_equal(later[2].decision.kind, decisions[2]);
}

/* ---- dependent groups ---------------------------------------------------------------------- */

static struct engine_call wrong_seal(void)
{
    struct engine_call begun = begin_key("never begun", "x");
    begun.decision.next.operation_id = op_id_make(1, &begun.request.key.hash, 1);
    begun.decision.next.fence = 1;
    return seal_call(&begun, "done");
}

static void a_dependent_group_holds_whole(void **state)
{
    (void)state;
    struct engine_call a = begin_key("a", "ours");
    struct engine_call b = begin_key("b", "ours");
    b.needs_previous = true;
    run(&a, &b);
    assert_int_equal(a.decision.kind, DECISION_FIRST_SEEN);
    assert_int_equal(b.decision.kind, DECISION_FIRST_SEEN);
    assert_entries(2);
    /* The holder's call that repeats what holds is not refused. */
    struct engine_call seal = seal_call(&a, "done");
    run(&seal, NULL);
    struct engine_call again = seal_call(&a, "done");
    struct engine_call c = begin_key("c", "ours");
    c.needs_previous = true;
    run(&again, &c);
    assert_true(again.decision.repeated);
    assert_int_equal(c.decision.kind, DECISION_FIRST_SEEN);
}

/* Whichever of them is refused: none of it is there, none of it was seen by others, and each of its
 * calls is told, while the rest of the batch goes on. */
static void of_a_refused_group_nothing_holds(void **state)
{
    (void)state;
    for (size_t culprit = 0; culprit < 3; culprit++) {
        struct engine_call group[3] = {
            begin_key("a", "ours"), begin_key("b", "ours"), begin_key("c", "ours")};
        struct engine_call before = begin_key(culprit == 0   ? "x"
                                              : culprit == 1 ? "y"
                                                             : "z",
            "ours");
        group[culprit] = wrong_seal();
        group[1].needs_previous = group[2].needs_previous = true;
        struct engine_call *calls[] = {&before, &group[0], &group[1], &group[2]};
        uint64_t entries = cycle.chain.seq;
        uint64_t records = cycle.counts.records;
        run_all(calls, 4);
        for (size_t i = 0; i < 3; i++) {
            assert_int_equal(group[i].err.status, E_UNAVAILABLE);
            assert_int_equal(group[i].refused, i == culprit);
        }
        assert_int_equal(group[culprit].decision.kind, DECISION_NOT_FOUND);
        assert_non_null(strstr(group[culprit].err.text, "not_found"));
        assert_int_equal(before.decision.kind, DECISION_FIRST_SEEN);
        assert_entries(entries + 1);
        assert_int_equal(cycle.counts.records, records + 1);
    }
    struct engine_call a = begin_key("a", "others");
    run(&a, NULL);
    assert_int_equal(a.decision.kind, DECISION_FIRST_SEEN);
}

/* In the same batch a later call finds the keys of a refused group free. */
static void a_refused_group_is_not_seen_by_those_after_it(void **state)
{
    (void)state;
    struct engine_call a = begin_key("a", "ours");
    struct engine_call wrong = wrong_seal();
    struct engine_call later = begin_key("a", "others");
    struct engine_call *calls[] = {&a, &wrong, &later};
    wrong.needs_previous = true;
    run_all(calls, 3);
    assert_int_equal(a.err.status, E_UNAVAILABLE);
    assert_true(wrong.refused);
    assert_int_equal(later.decision.kind, DECISION_FIRST_SEEN);
    assert_entries(1);
}

/* A begin that is not granted refuses its group, a duplicate as much as a conflict. */
static void a_duplicate_refuses_its_group(void **state)
{
    (void)state;
    struct engine_call first = begin_key("a", "ours");
    run(&first, NULL);
    struct engine_call again = begin_key("a", "ours");
    struct engine_call other = begin_key("b", "ours");
    other.needs_previous = true;
    run(&again, &other);
    assert_true(again.refused);
    assert_int_equal(again.decision.kind, DECISION_IN_PROGRESS);
    assert_int_equal(other.err.status, E_UNAVAILABLE);
    assert_false(other.refused);
    assert_entries(1);
}

/* What was enqueued is there for whoever enqueues it again, so its group holds; a claim of it is a
 * grant with a fence of its own, and brings what is to be sent. */
static void enqueued_work_is_claimed_with_its_body(void **state)
{
    (void)state;
    struct engine_call seal;
    struct engine_call first = begin_key("order", "ours");
    run(&first, NULL);
    struct engine_call effect = begin_key("charge", "send this");
    effect.request.kind = REQUEST_ENQUEUE;
    effect.request.record_kind = RECORD_EFFECT;
    assert_int_equal(record_key_seal_as(&effect.request.key, RECORD_EFFECT, NULL), OK);
    effect.needs_previous = true;
    struct engine_call again = effect;
    seal = seal_call(&first, "done");
    run(&seal, &effect);
    assert_int_equal(seal.err.status, OK);
    assert_int_equal(effect.decision.kind, DECISION_ENQUEUED);
    seal = seal_call(&first, "done");
    run(&seal, &again);
    assert_true(seal.decision.repeated);
    assert_int_equal(again.err.status, OK);
    assert_int_equal(again.decision.kind, DECISION_IN_PROGRESS);
    struct engine_call claim = {.arena = &arena};
    claim.request.kind = REQUEST_CLAIM;
    claim.request.operation_id = effect.decision.next.operation_id;
    claim.request.policy = policy_default;
    struct engine_call other = begin_key("other", "ours");
    run(&claim, &other);
    assert_int_equal(claim.decision.kind, DECISION_CLAIMED);
    assert_true(slice_is(claim.first_body, "send this"));
    assert_true(claim.decision.next.fence > first.decision.next.fence);
    assert_int_equal(other.decision.next.fence, claim.decision.next.fence + 1);
}

static struct engine_call by_id(enum request_kind kind, const struct engine_call *enqueued)
{
    struct engine_call call = {.arena = &arena};
    call.request.kind = kind;
    call.request.operation_id = enqueued->decision.next.operation_id;
    call.request.policy.lease_ms = policy_default.lease_ms;
    return call;
}

/* What failed may be enqueued again, and what is to be sent comes with it: the first body may have
 * been erased. */
static void work_that_is_enqueued_again_brings_its_body(void **state)
{
    (void)state;
    struct engine_call first = enqueue_effect("charge", "send this");
    run(&first, NULL);
    struct engine_call claim = by_id(REQUEST_CLAIM, &first);
    run(&claim, NULL);
    struct engine_call seal = seal_call(&claim, "no");
    seal.request.status = RECORD_FAILED;
    run(&seal, NULL);
    struct engine_call again = enqueue_effect("charge", "send this");
    again.request.policy.retry_failed = true;
    again.request.request = body_of("send that");
    again.request_body = SLICE_LIT("send that");
    run(&again, NULL);
    assert_int_equal(again.decision.kind, DECISION_ENQUEUED);
    claim = by_id(REQUEST_CLAIM, &first);
    run(&claim, NULL);
    assert_int_equal(claim.decision.kind, DECISION_CLAIMED);
    assert_true(slice_is(claim.first_body, "send that"));
}

static struct engine_call claim_previous(void)
{
    struct engine_call call = {.arena = &arena, .claims_previous = true};
    call.request.kind = REQUEST_CLAIM;
    call.request.policy.lease_ms = policy_default.lease_ms;
    return call;
}

static void assert_nothing_claimed(const struct engine_call *claim, const struct op_id *id)
{
    assert_int_equal(claim->err.status, OK);
    assert_int_equal(claim->decision.kind, DECISION_NOTHING);
    assert_memory_equal(&claim->request.operation_id, id, sizeof *id);
}

/* Both decisions are in one commit, each with its entry, and the body is stored. */
static void what_is_enqueued_is_claimed_in_its_batch(void **state)
{
    (void)state;
    struct engine_call effect = enqueue_effect("charge", "send this");
    struct engine_call claim = claim_previous();
    run(&effect, &claim);
    assert_int_equal(effect.decision.kind, DECISION_ENQUEUED);
    assert_int_equal(effect.decision.next.status, RECORD_PENDING);
    assert_int_equal(claim.decision.kind, DECISION_CLAIMED);
    assert_int_equal(claim.decision.next.status, RECORD_IN_PROGRESS);
    assert_int_equal(claim.decision.next.attempt, 1);
    assert_true(claim.decision.next.fence > effect.decision.next.fence);
    assert_int_equal(claim.first_body.len, 0); /* the caller has it */
    assert_entries(2);
    struct engine_call late = by_id(REQUEST_CLAIM, &effect);
    struct engine_call other = enqueue_effect("charge", "send that");
    run(&late, &other);
    assert_int_equal(late.decision.kind, DECISION_WRONG_STATUS);
    assert_int_equal(other.decision.kind, DECISION_CONFLICT_REJECTED);
    assert_true(slice_is(other.first_body, "send this"));
}

static void a_duplicate_is_not_claimed_with_its_enqueue(void **state)
{
    (void)state;
    static const struct op_id none = {{0}};
    struct engine_call first = enqueue_effect("charge", "send this");
    run(&first, NULL);
    struct engine_call claim = claim_previous();
    struct engine_call again = enqueue_effect("charge", "send this");
    run(&again, &claim);
    assert_int_equal(again.decision.kind, DECISION_IN_PROGRESS);
    assert_nothing_claimed(&claim, &none);
    struct engine_call other = enqueue_effect("charge", "send that");
    claim = claim_previous();
    run(&other, &claim);
    assert_int_equal(other.decision.kind, DECISION_CONFLICT_REJECTED);
    assert_nothing_claimed(&claim, &none);
    assert_entries(3); /* a claim of nothing has none */
    cycle.keys_max = 1;
    struct engine_call more = enqueue_effect("more", "send this");
    claim = claim_previous();
    run(&more, &claim);
    assert_int_equal(more.err.status, E_LIMIT);
    assert_nothing_claimed(&claim, &none);
    cycle.keys_max = 0;
}

/* An earlier call of it may not be over in the process that made it: it waits for its turn. */
static void what_is_enqueued_again_is_not_claimed_with_it(void **state)
{
    (void)state;
    struct engine_call first = enqueue_effect("charge", "send this");
    struct engine_call claim = claim_previous();
    run(&first, &claim);
    struct engine_call seal = seal_call(&claim, "no");
    seal.request.status = RECORD_FAILED;
    run(&seal, NULL);
    struct engine_call again = enqueue_effect("charge", "send this");
    again.request.policy.retry_failed = true;
    claim = claim_previous();
    run(&again, &claim);
    assert_int_equal(again.decision.kind, DECISION_ENQUEUED);
    assert_nothing_claimed(&claim, &first.decision.next.operation_id);
    claim = by_id(REQUEST_CLAIM, &first);
    run(&claim, NULL);
    assert_int_equal(claim.decision.kind, DECISION_CLAIMED);
}

/* The rival has enqueued it meanwhile: the claim is decided again with its enqueue, and falls. */
static void a_claim_loses_the_race_of_its_enqueue(void **state)
{
    (void)state;
    static const struct op_id none = {{0}};
    struct engine_call ours = enqueue_effect("charge", "theirs");
    struct engine_call claim = claim_previous();
    race("charge", NULL, 1);
    rival.enqueues = true;
    run(&ours, &claim);
    assert_int_equal(ours.decided, 2);
    assert_int_equal(claim.decided, 2);
    assert_int_equal(ours.decision.kind, DECISION_IN_PROGRESS);
    assert_nothing_claimed(&claim, &none);
    assert_entries(1);
}

/* Nothing of it took effect, so nothing older than it is outdated. */
static void what_was_cancelled_is_no_version(void **state)
{
    (void)state;
    struct engine_call newer = enqueue_effect("newer", "send this");
    struct engine_call older = enqueue_effect("older", "send this");
    newer.request.source = (struct source){SLICE_LIT("feed"), SLICE_LIT("o-1"), SLICE_LIT("9")};
    older.request.source = (struct source){SLICE_LIT("feed"), SLICE_LIT("o-1"), SLICE_LIT("8")};
    run(&newer, &older);
    struct engine_call claim = by_id(REQUEST_CLAIM, &newer);
    run(&claim, NULL); /* an attempt that comes to nothing */
    struct engine_call retry = by_id(REQUEST_RETRY, &newer);
    retry.request.fence = claim.decision.next.fence;
    retry.request.delay_ms = 1000;
    struct engine_call cancel = by_id(REQUEST_CANCEL, &newer);
    run(&retry, &cancel);
    assert_int_equal(cancel.decision.next.status, RECORD_REJECTED);
    struct engine_call late = by_id(REQUEST_CLAIM, &older);
    run(&late, NULL);
    assert_int_equal(late.decision.kind, DECISION_CLAIMED);
}

/* C4: by then something newer of its source has been sealed. */
static void a_claim_of_an_older_version_is_stale(void **state)
{
    (void)state;
    struct engine_call newer = enqueue_effect("newer", "send this");
    struct engine_call older = enqueue_effect("older", "send this");
    newer.request.source = (struct source){SLICE_LIT("feed"), SLICE_LIT("o-1"), SLICE_LIT("9")};
    older.request.source = (struct source){SLICE_LIT("feed"), SLICE_LIT("o-1"), SLICE_LIT("8")};
    run(&newer, &older);
    struct engine_call claim = by_id(REQUEST_CLAIM, &newer);
    run(&claim, NULL);
    struct engine_call seal = seal_call(&claim, "done");
    struct engine_call late = by_id(REQUEST_CLAIM, &older);
    run(&seal, &late);
    assert_int_equal(seal.decision.kind, DECISION_SEALED);
    assert_int_equal(late.decision.kind, DECISION_STALE_VERSION);
    assert_string_equal(late.decision.rule, "C4");
}

/* C4 by the source that the work has now, which is not the one that is stored. */
static void a_claim_is_ordered_by_the_source_that_its_batch_gave_it(void **state)
{
    (void)state;
    struct engine_call newer = enqueue_effect("newer", "send this");
    newer.request.source = (struct source){SLICE_LIT("feed"), SLICE_LIT("o-1"), SLICE_LIT("9")};
    struct engine_call work = enqueue_effect("work", "send this");
    work.request.source = (struct source){SLICE_LIT("feed"), SLICE_LIT("o-2"), SLICE_LIT("1")};
    run(&newer, &work);
    struct engine_call claims[] = {by_id(REQUEST_CLAIM, &newer), by_id(REQUEST_CLAIM, &work)};
    run(&claims[0], &claims[1]);
    struct engine_call failed = seal_call(&claims[1], "no");
    failed.request.status = RECORD_FAILED;
    run(&failed, NULL);
    struct engine_call again = enqueue_effect("work", "send this");
    again.request.policy.retry_failed = true;
    again.request.source = work.request.source;
    again.request.request = body_of("");
    again.request_body = SLICE_EMPTY;
    struct engine_call seal = seal_call(&claims[0], "done");
    struct engine_call claim = by_id(REQUEST_CLAIM, &work);
    run(&again, &claim); /* nothing newer of o-2 is sealed: granted, with the body it has now */
    assert_int_equal(again.decision.kind, DECISION_ENQUEUED);
    assert_int_equal(claim.decision.kind, DECISION_CLAIMED);
    assert_int_equal(claim.first_body.len, 0);
    failed = seal_call(&claim, "no");
    failed.request.status = RECORD_FAILED;
    run(&failed, NULL);
    struct engine_call *late[] = {&again, &seal, &claim};
    claim = by_id(REQUEST_CLAIM, &work);
    again.request.source = (struct source){SLICE_LIT("feed"), SLICE_LIT("o-1"), SLICE_LIT("8")};
    run_all(late, 3); /* enqueued before the seal of 9, claimed after it */
    assert_int_equal(again.decision.kind, DECISION_ENQUEUED);
    assert_int_equal(seal.decision.kind, DECISION_SEALED);
    assert_int_equal(claim.decision.kind, DECISION_STALE_VERSION);
    assert_string_equal(claim.decision.rule, "C4");
}

static void a_lost_race_decides_a_whole_group_again(void **state)
{
    (void)state;
    make_racers(); /* a, b, c, b, d, e */
    racers[3] = begin_key("f", "ours");
    racers[5].needs_previous = true; /* d and e */
    racers[1].needs_previous = true; /* a and b */
    race("b", NULL, 1);
    run_all(racer_calls, RACERS);
    static const uint32_t decided[RACERS] = {2, 2, 1, 1, 1, 1};
    for (size_t i = 0; i < RACERS; i++) {
        assert_int_equal(racers[i].decided, decided[i]);
        assert_int_equal(racers[i].err.status, i < 2 ? E_UNAVAILABLE : OK); /* b is the rival's */
    }
    assert_true(racers[1].refused);
    assert_entries(5); /* with the conflict that refused a and b */
}

#define IN_CYCLE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_CYCLE(a_duplicate_is_replayed_in_the_batch_of_the_seal),
        IN_CYCLE(a_conflict_is_explained_in_the_batch_of_the_first),
        IN_CYCLE(the_same_seal_twice_in_a_batch_is_repeated),
        IN_CYCLE(a_body_is_shown_as_the_batch_left_it),
        IN_CYCLE(two_sources_of_a_batch_are_two),
        IN_CYCLE(a_failed_commit_forgets_both_calls_of_a_key),
        IN_CYCLE(a_batch_of_1024_mixed_calls_touches_the_store_twice),
        IN_CYCLE(a_batch_that_leaves_nothing_is_aborted),
        IN_CYCLE(what_asks_for_a_replay_alone_is_granted_nothing),
        IN_CYCLE(what_asks_for_a_replay_alone_gets_it),
        IN_CYCLE(only_calls_on_a_stale_key_are_decided_again),
        IN_CYCLE(what_shares_a_key_with_a_stale_call_is_decided_again),
        IN_CYCLE(several_rounds_keep_the_chain_in_order),
        IN_CYCLE(after_too_many_races_only_those_calls_give_up),
        IN_CYCLE(a_dependent_group_holds_whole),
        IN_CYCLE(of_a_refused_group_nothing_holds),
        IN_CYCLE(a_refused_group_is_not_seen_by_those_after_it),
        IN_CYCLE(a_duplicate_refuses_its_group),
        IN_CYCLE(a_lost_race_decides_a_whole_group_again),
        IN_CYCLE(enqueued_work_is_claimed_with_its_body),
        IN_CYCLE(work_that_is_enqueued_again_brings_its_body),
        IN_CYCLE(what_is_enqueued_is_claimed_in_its_batch),
        IN_CYCLE(a_duplicate_is_not_claimed_with_its_enqueue),
        IN_CYCLE(what_is_enqueued_again_is_not_claimed_with_it),
        IN_CYCLE(a_claim_loses_the_race_of_its_enqueue),
        IN_CYCLE(what_was_cancelled_is_no_version),
        IN_CYCLE(a_claim_of_an_older_version_is_stale),
        IN_CYCLE(a_claim_is_ordered_by_the_source_that_its_batch_gave_it),
    };
    return cmocka_run_group_tests_name("cycle", tests, NULL, NULL);
}
