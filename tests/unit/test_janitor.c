/* What a clock drives: dues to those who subscribed, what earlier processes held, and evidence that
 * leaves the store. */
#include <time.h>

#include "base/limits.h"
#include "engine/janitor.h"
#include "engine_kit.h"
#include "store/mem.h"

enum { ROUND_MS = 1000, TRIES = 400 }; /* a round is half a second of the engine's boot clock */

static struct engine_call held_begin(const char *key, uint64_t holder)
{
    struct engine_call call = kit_begin("acme", "pay", key);
    call.request.door = RECORD_DOOR_GATEWAY;
    call.request.holder = holder;
    call.request.policy.on_unknown = ON_UNKNOWN_RECONCILE;
    return call;
}

static enum decision_kind ask_again(const char *key)
{
    struct engine_call again = kit_begin("acme", "pay", key);
    again.request.policy.on_unknown = ON_UNKNOWN_HOLD;
    return kit_do(&again);
}

static void what_an_earlier_process_held_is_unknown_when_the_next_one_starts(void **state)
{
    (void)state;
    enum { MANY = 200 }; /* more than the janitor settles at once */
    uint64_t first = engine_incarnation(kit.engine);
    char key[24];
    for (int i = 0; i < MANY; i++) {
        (void)snprintf(key, sizeof key, "held-%d", i);
        struct engine_call held = held_begin(key, first);
        assert_int_equal(kit_do(&held), DECISION_FIRST_SEEN);
    }
    assert_int_equal(ask_again("held-0"), DECISION_IN_PROGRESS); /* the living keep theirs */
    struct engine_call elsewhere = kit_begin("acme", "pay", "elsewhere");
    assert_int_equal(kit_do(&elsewhere), DECISION_FIRST_SEEN);
    kit_close();
    kit_open();
    assert_true(engine_incarnation(kit.engine) > first);
    for (int i = 0; i < MANY; i++) {
        (void)snprintf(key, sizeof key, "held-%d", i);
        assert_int_equal(ask_again(key), DECISION_HELD_UNKNOWN);
    }
    /* Who holds it lives elsewhere, and outlives this process. */
    assert_int_equal(ask_again("elsewhere"), DECISION_IN_PROGRESS);
    struct engine_call seal = kit_seal(&elsewhere, SLICE_LIT("done"));
    assert_int_equal(kit_do(&seal), DECISION_SEALED);
    struct verify_result result;
    kit_verify(&result);
}

static void a_process_that_granted_nothing_leaves_its_number_to_the_next(void **state)
{
    (void)state;
    uint64_t first = engine_incarnation(kit.engine);
    assert_true(first > 0);
    struct engine_call held = held_begin("a", first);
    assert_int_equal(kit_do(&held), DECISION_FIRST_SEEN);
    assert_true(held.decision.next.fence >= first);
    kit_close();
    kit_open();
    uint64_t second = engine_incarnation(kit.engine);
    assert_true(second > first);
    kit_close();
    kit_open();
    assert_true(engine_incarnation(kit.engine) >= second);
}

/* Subscriptions. */

struct heard {
    _Atomic size_t times;
    _Atomic size_t dues;
    struct store_due last;
};

static bool hear(void *context, const struct store_due *dues, size_t count)
{
    struct heard *heard = context;
    heard->last = dues[0];
    atomic_fetch_add(&heard->dues, count);
    atomic_fetch_add(&heard->times, 1);
    return true;
}

/* Let rounds pass until it was heard so often; how often it was. */
static size_t rounds_until(struct heard *heard, size_t times)
{
    for (int i = 0; i < TRIES && atomic_load(&heard->times) < times; i++) {
        struct timespec pause = {.tv_nsec = 10 * 1000000};
        kit.now_ms += ROUND_MS;
        struct engine_call nudge = kit_begin("acme", "pay", "nudge"); /* it need not stay idle */
        nudge.request.door = RECORD_DOOR_FENCES;
        (void)kit_do(&nudge);
        (void)nanosleep(&pause, NULL);
    }
    return atomic_load(&heard->times);
}

static void a_subscriber_gets_what_is_due_for_it_until_the_record_changes(void **state)
{
    (void)state;
    struct heard asked = {0};
    struct heard other = {0};
    struct due_subscription subscription = {
        .filter = {.kinds = STORE_OPERATIONS, .reasons = STORE_DUE(RECORD_DUE_RECONCILE_AGAIN)},
        .found = hear,
        .context = &asked};
    struct due_subscription attempts = {
        .filter = {.kinds = STORE_KINDS_ALL, .reasons = STORE_DUE(RECORD_DUE_NEXT_ATTEMPT)},
        .found = hear,
        .context = &other};
    engine_on_due(kit.engine, &subscription);
    engine_on_due(kit.engine, &attempts);
    struct engine_call held = held_begin("a", engine_incarnation(kit.engine));
    assert_int_equal(kit_do(&held), DECISION_FIRST_SEEN);
    struct engine_call unknown = kit_seal(&held, SLICE_EMPTY);
    unknown.request.kind = REQUEST_UNKNOWN;
    unknown.request.status = 0;
    assert_int_equal(kit_do(&unknown), DECISION_UNKNOWN);
    assert_true(rounds_until(&asked, 2) >= 2); /* again while nobody acts */
    engine_off_due(kit.engine, &subscription);
    assert_int_equal(asked.last.reason, RECORD_DUE_RECONCILE_AGAIN);
    assert_int_equal(asked.last.door, RECORD_DOOR_GATEWAY);
    assert_true(op_id_equal(&asked.last.operation_id, &held.decision.next.operation_id));
    size_t times = atomic_load(&asked.times);

    struct engine_call postpone = {.arena = &kit.arena};
    postpone.request.kind = REQUEST_POSTPONE;
    postpone.request.key.tenant = held.request.key.tenant;
    postpone.request.operation_id = held.decision.next.operation_id;
    postpone.request.delay_ms = 3600000;
    assert_int_equal(kit_do(&postpone), DECISION_DONE);
    engine_on_due(kit.engine, &subscription);
    int64_t since_ms = kit.now_ms;
    assert_int_equal(rounds_until(&asked, times + 1), times); /* never early */
    kit.now_ms = since_ms + 3600000 + ROUND_MS;
    assert_true(rounds_until(&asked, times + 1) > times);
    assert_int_equal(atomic_load(&other.times), 0);
    engine_off_due(kit.engine, &attempts);
    engine_off_due(kit.engine, &subscription);
}

static bool hear_not(void *context, const struct store_due *dues, size_t count)
{
    (void)hear(context, dues, count);
    return false;
}

static void a_due_that_is_given_once_comes_again_only_if_it_was_not_taken(void **state)
{
    (void)state;
    struct heard taken = {0};
    struct heard refused = {0};
    struct due_subscription once = {
        .filter = {.kinds = STORE_OPERATIONS, .reasons = STORE_DUE(RECORD_DUE_RECONCILE_AGAIN)},
        .is_once = true,
        .found = hear,
        .context = &taken};
    struct due_subscription never = once;
    never.found = hear_not;
    never.context = &refused;
    engine_on_due(kit.engine, &once);
    engine_on_due(kit.engine, &never);
    struct engine_call held = held_begin("a", engine_incarnation(kit.engine));
    assert_int_equal(kit_do(&held), DECISION_FIRST_SEEN);
    struct engine_call unknown = kit_seal(&held, SLICE_EMPTY);
    unknown.request.kind = REQUEST_UNKNOWN;
    unknown.request.status = 0;
    assert_int_equal(kit_do(&unknown), DECISION_UNKNOWN);
    assert_true(rounds_until(&refused, 3) >= 3);
    engine_off_due(kit.engine, &never);
    engine_off_due(kit.engine, &once);
    assert_int_equal(atomic_load(&taken.times), 1);
    engine_on_due(kit.engine, &once); /* anew, from the beginning */
    assert_int_equal(rounds_until(&taken, 2), 2);
    engine_off_due(kit.engine, &once);
}

/* Evidence that leaves: a store that says what may go and notes what went. */

static uint64_t removable_place;
static uint64_t removed_place;

static enum status nothing_to_maintain(struct store *store, struct err *err)
{
    (void)store;
    (void)err;
    return OK;
}

static enum status say_removable(
    struct store *store, struct store_removable *ret_removable, struct err *err)
{
    (void)store;
    (void)err;
    *ret_removable = (struct store_removable){.place = removable_place, .seq = 1};
    return OK;
}

static enum status note_removed(struct store *store, uint64_t place, struct err *err)
{
    (void)store;
    (void)err;
    removed_place = place;
    return OK;
}

/* One turn; the call that is answered once the entry of an archive is durable, if it made one. */
static struct engine_call *one_turn(struct janitor *janitor, int64_t boot_ms)
{
    static struct engine_call *calls[LIMIT_BATCH_REQUESTS_MAX];
    struct janitor_turn turn = {.boot_ms = boot_ms, .calls = calls};
    struct err err = {0};
    assert_int_equal(janitor_run(janitor, &turn, &err), OK);
    assert_true(turn.count <= 1);
    return turn.count == 0 ? NULL : calls[0];
}

/* P10: each archive waits for its own entry. That the one before is durable says nothing of it. */
static void the_second_of_two_archives_waits_for_its_own_entry(void **state)
{
    (void)state;
    static const struct store_housekeeping housekeeping = {
        .maintain = nothing_to_maintain, .removable = say_removable, .remove = note_removed};
    static struct janitor janitor;
    const struct store_options options = {.clock = &kit.clock};
    struct store_identity identity;
    struct store *store = NULL;
    struct cycle cycle;
    struct err err = {0};
    assert_int_equal(store_mem_new(&options, NULL, &store, &err), OK);
    struct store_ops ops = *store->ops;
    ops.housekeeping = &housekeeping;
    store->ops = &ops;
    store->ops->identity(store, &identity, NULL);
    assert_int_equal(cycle_init(&cycle, store, &mem_libc, &err), OK);
    assert_int_equal(janitor_init(&janitor, &cycle, &identity, &kit.options, &err), OK);
    assert_int_equal(janitor_start(&janitor, &err), OK);
    struct engine_call begun = kit_begin("acme", "pay", "a");
    struct engine_call *calls[] = {&begun};
    assert_int_equal(cycle_run(&cycle, calls, 1, &err), OK); /* what is to go */

    removed_place = 0;
    removable_place = 1;
    struct engine_call *barrier = one_turn(&janitor, 100000);
    assert_non_null(barrier);
    assert_null(one_turn(&janitor, 100001)); /* one at a time */
    assert_int_equal(removed_place, 0);
    barrier->done(barrier);
    removable_place = 2;
    barrier = one_turn(&janitor, 100002); /* the first goes, and the second is next at once */
    assert_int_equal(removed_place, 1);
    assert_non_null(barrier);
    assert_null(one_turn(&janitor, 100003));
    assert_int_equal(removed_place, 1);
    barrier->done(barrier);
    removable_place = 0;
    assert_null(one_turn(&janitor, 100004));
    assert_int_equal(removed_place, 2);

    janitor_release(&janitor);
    cycle_release(&cycle);
    assert_int_equal(store->ops->close(store, &err), OK);
}

int main(void)
{
#define JANITOR_TEST(name) cmocka_unit_test_setup_teardown(name, kit_set_up, kit_tear_down)
    const struct CMUnitTest tests[] = {
        JANITOR_TEST(what_an_earlier_process_held_is_unknown_when_the_next_one_starts),
        JANITOR_TEST(a_process_that_granted_nothing_leaves_its_number_to_the_next),
        JANITOR_TEST(a_subscriber_gets_what_is_due_for_it_until_the_record_changes),
        JANITOR_TEST(a_due_that_is_given_once_comes_again_only_if_it_was_not_taken),
        JANITOR_TEST(the_second_of_two_archives_waits_for_its_own_entry),
    };
    return cmocka_run_group_tests_name("janitor", tests, NULL, NULL);
}
