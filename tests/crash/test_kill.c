/*
 * A real process on a real disk, killed at random moments: nothing that it was told may be missing
 * afterwards (ledger.h), and the journal must check out.
 *
 *     test_kill LOAD [SEED]
 *
 * The moment of a kill is random, so a failure cannot be replayed exactly; the directory is kept
 * then and its path printed.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "evidence/verify.h"
#include "ledger.h"
#include "sanitized.h"
#include "store/kit.h"

enum {
    KILLS = IS_SANITIZED ? 40 : 120,
    KILLS_LONG = 5000,
    KILLS_ON_ONE = 40,   /* on one directory, before the next one is begun */
    CREATION_KILLS = 25, /* of a process that makes a directory */
    CONTROL_KILLS = 60,  /* a planted mistake must be found in so many */
    REDECIDE_EVERY = 20, /* kills between two checks that make every decision again */
    WAIT_MS_MAX = 60000, /* for a phase: a loaded machine is slow, a hang is a failure */
    NAP_NS = 50000,      /* between two looks at the phase */
    URL_BYTES = 400,
};

/* When to kill: everything is measured from the moment the phase begins. */
struct kill_plan {
    enum phase phase; /* wait for it … */
    const char *file; /* … and for this file to be there, at most patience_us; NULL: no file … */
    uint64_t patience_us; /* … and then kill after so long at the latest */
    bool closes;          /* the load ends by itself after some milliseconds */
};

struct tally {
    unsigned kills;
    unsigned phases[PHASES];
    unsigned spare;    /* while the next segment was being made */
    unsigned index;    /* while the index was being saved */
    unsigned squeeze;  /* while a segment was being squeezed */
    uint64_t squeezed; /* segments that were, in the end */
};

struct harness {
    const char *load; /* the program */
    struct prng prng;
    struct ledger *ledger;
    struct crash_shared *shared;
    int shared_fd;
    int log_fd;
    pid_t child;
    struct kit_dir dir;
    char store[300];
    char url[URL_BYTES];
    uint32_t first_key; /* of this directory */
    struct tally tally;
    unsigned verified;
};

static struct harness harness;

/* ---- the child ----------------------------------------------------------------------------- */

static void nap(uint64_t nanos)
{
    struct timespec time = {
        .tv_sec = (time_t)(nanos / 1000000000), .tv_nsec = (long)(nanos % 1000000000)};
    (void)nanosleep(&time, NULL);
}

/* The first key of a round. */
static uint32_t key_of(unsigned round)
{
    return harness.first_key + round * CRASH_KEYS_PER_ROUND;
}

static void child_start(unsigned round, uint64_t milliseconds, enum plant plant)
{
    harness.log_fd = memfd_create("log", 0);
    assert_true(harness.log_fd >= 0);
    assert_int_equal(fcntl(harness.log_fd, F_SETFL, O_APPEND), 0);
    atomic_store(&harness.shared->phase, PHASE_STARTING);
    char words[7][32];
    (void)snprintf(words[0], sizeof words[0], "%d", harness.log_fd);
    (void)snprintf(words[1], sizeof words[1], "%d", harness.shared_fd);
    (void)snprintf(words[2], sizeof words[2], "%" PRIu64, prng_next(&harness.prng));
    (void)snprintf(words[3], sizeof words[3], "%u", harness.first_key);
    (void)snprintf(words[4], sizeof words[4], "%u", key_of(round));
    (void)snprintf(words[5], sizeof words[5], "%" PRIu64, milliseconds);
    (void)snprintf(words[6], sizeof words[6], "%d", (int)plant);
    harness.child = fork();
    assert_true(harness.child >= 0);
    if (harness.child == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* a load without a harness would go on for ever */
        (void)execl(harness.load, "load", harness.url, words[0], words[1], words[2], words[3],
            words[4], words[5], words[6], (char *)NULL);
        _exit(127);
    }
}

static enum phase phase_now(void)
{
    return (enum phase)atomic_load(&harness.shared->phase);
}

/* false: it ended before. */
static bool phase_wait(enum phase phase)
{
    uint64_t until = clock_nanos() + (uint64_t)WAIT_MS_MAX * 1000000;
    while (phase_now() < phase) {
        siginfo_t info = {0};
        (void)waitid(P_PID, (id_t)harness.child, &info, WEXITED | WNOHANG | WNOWAIT);
        if (info.si_pid != 0) {
            return false;
        }
        assert_true(clock_nanos() < until);
        nap(NAP_NS);
    }
    return true;
}

static bool store_has(const char *name)
{
    char path[400];
    (void)snprintf(path, sizeof path, "%s/%s", harness.store, name);
    return access(path, F_OK) == 0;
}

static void tally_kill(enum phase phase)
{
    struct tally *tally = &harness.tally;
    tally->kills++;
    tally->phases[phase]++;
    tally->spare += store_has("spare");
    tally->index += store_has("index.tmp");
    tally->squeeze += store_has("squeeze.tmp");
}

/* Kill it and take in everything it had told before. */
static void child_kill(void)
{
    assert_int_equal(kill(harness.child, SIGKILL), 0);
    int status;
    assert_int_equal(waitpid(harness.child, &status, 0), harness.child);
    harness.child = 0;
    if (!WIFSIGNALED(status) && (!WIFEXITED(status) || WEXITSTATUS(status) != 0)) {
        ledger_fault(harness.ledger, "the load ended with status %x by itself", status);
    }
    tally_kill(phase_now());
    struct crash_event event;
    off_t offset = 0;
    while (pread(harness.log_fd, &event, sizeof event, offset) == (ssize_t)sizeof event) {
        ledger_event(harness.ledger, &event);
        offset += (off_t)sizeof event;
    }
    (void)close(harness.log_fd);
    ledger_killed(harness.ledger);
}

static struct kill_plan plan_make(void)
{
    static const char *const files[] = {"index.tmp", "squeeze.tmp", "spare"};
    uint64_t kind = prng_below(&harness.prng, 100);
    if (kind < 8) {
        return (struct kill_plan){.patience_us = prng_below(&harness.prng, 60000)};
    }
    if (kind < 20) {
        return (struct kill_plan){PHASE_OPENING, NULL, prng_below(&harness.prng, 5000), false};
    }
    if (kind < 35) {
        return (struct kill_plan){PHASE_CLOSING, NULL, prng_below(&harness.prng, 6000), true};
    }
    if (kind < 55) {
        return (struct kill_plan){PHASE_LOADING, files[prng_below(&harness.prng, 3)], 60000, false};
    }
    return (struct kill_plan){PHASE_LOADING, NULL, prng_below(&harness.prng, 60000), false};
}

static void plan_follow(const struct kill_plan *plan)
{
    if (!phase_wait(plan->phase)) {
        return;
    }
    uint64_t until = clock_nanos() + plan->patience_us * 1000;
    uint64_t now;
    while ((now = clock_nanos()) < until && (plan->file == NULL || !store_has(plan->file))) {
        nap(until - now < NAP_NS ? until - now : NAP_NS);
    }
}

static void round_run(const struct kill_plan *plan, unsigned round, enum plant plant)
{
    uint64_t milliseconds = plan->closes ? 1 + prng_below(&harness.prng, 25) : 0;
    child_start(round, milliseconds, plant);
    plan_follow(plan);
    child_kill();
}

/* ---- the checks ---------------------------------------------------------------------------- */

static void store_verify(bool redecide)
{
    struct verify_options options = {.url = harness.url, .redecide = redecide};
    static struct verify_result result;
    result.squeezed = 0;
    struct err err = {0};
    if (verify_run(&options, &result, &err) != OK) {
        ledger_fault(harness.ledger, "verify could not check: %s", err.text);
    } else if (result.damage_count > 0) {
        const struct verify_damage *damage = &result.damages[0];
        ledger_fault(harness.ledger,
            "verify: segment %" PRIu64 " at %" PRIu64 ", entry %" PRIu64 ": %s", damage->segment,
            damage->offset, damage->seq, damage->what);
    }
    harness.tally.squeezed += redecide ? result.squeezed : 0;
    harness.verified++;
}

static struct once *store_open_as(bool read_only)
{
    struct once_options options = {
        .store = harness.url, .read_only = read_only, .must_exist = true};
    struct once_error error;
    struct once *once = NULL;
    if (once_open(&options, &once, &error) != ONCE_OK) {
        ledger_fault(harness.ledger, "after the kill it does not open: %s", error.text);
    }
    return once;
}

/* Everything a writer would be told, by asking for every key again. */
static void store_ask(unsigned rounds)
{
    struct once *once = store_open_as(false);
    if (once == NULL) {
        return;
    }
    struct once_error error;
    ledger_look(harness.ledger, once, key_of(0), key_of(rounds));
    ledger_ask(harness.ledger, once, key_of(0), key_of(rounds));
    if (once_close(once, &error) != ONCE_OK) {
        ledger_fault(harness.ledger, "closing after the kill: %s", error.text);
    }
}

static void store_look(unsigned round)
{
    if (!store_has("identity")) {
        if (harness.ledger->fence_highest > 0) {
            ledger_fault(harness.ledger, "L1: the whole store is gone");
        }
        return;
    }
    struct once *once = store_open_as(true);
    if (once != NULL) {
        ledger_look(harness.ledger, once, key_of(round < 2 ? 0 : round - 2), key_of(round + 1));
        (void)once_close(once, NULL);
    }
    store_verify(harness.tally.kills % REDECIDE_EVERY == 0);
}

/* How the journal writes, over the directories in turn: every way must survive. */
static void store_manner(unsigned number, char manner[48])
{
    const char *background = number % (KIT_WAYS + 1) == KIT_WAYS ? "off" : "on";
    (void)snprintf(manner, 48, "&background=%s&write=%s", background,
        kit_way(number % (KIT_WAYS + 1), harness.dir.path));
}

/* Even ones have lasting keys, odd ones keys that expire. */
static void store_fresh(unsigned number)
{
    harness.first_key = number % 2 == 0 ? 0 : CRASH_SHORT_BASE;
    ledger_restart(harness.ledger);
    harness.dir = kit_dir_make();
    (void)snprintf(harness.store, sizeof harness.store, "%s/data", harness.dir.path);
    /* Small, so that rolling over, saving the index and squeezing happen all the time. */
    char manner[48];
    store_manner(number, manner);
    (void)snprintf(harness.url, sizeof harness.url, "journal:%s?segment=64KiB&snapshot=128KiB%s",
        harness.store, manner);
}

static void faults_none(void)
{
    if (harness.ledger->faults > 0) {
        fail_msg("%s (of %u; the store is kept in %s)", harness.ledger->fault,
            harness.ledger->faults, harness.store);
    }
    kit_dir_remove(&harness.dir);
}

static void tally_print(void)
{
    const struct tally *tally = &harness.tally;
    const struct ledger *ledger = harness.ledger;
    print_message("# %u kills landed: starting %u, opening %u, loading %u, closing %u, closed %u; "
                  "the index being saved in %u, a segment squeezed in %u, one made in %u; "
                  "%" PRIu64 " squeezed segments seen\n",
        tally->kills, tally->phases[PHASE_STARTING], tally->phases[PHASE_OPENING],
        tally->phases[PHASE_LOADING], tally->phases[PHASE_CLOSING], tally->phases[PHASE_CLOSED],
        tally->index, tally->squeeze, tally->spare, tally->squeezed);
    print_message("# told: %" PRIu64 " grants, %" PRIu64 " effects, %" PRIu64 " seals, %" PRIu64
                  " releases, %" PRIu64 " unknowns, %" PRIu64 " replays, %" PRIu64 " held, %" PRIu64
                  " conflicts; %" PRIu64 " records compared, %u verifies\n",
        ledger->told[EVENT_GRANT], ledger->told[EVENT_EFFECT], ledger->told[EVENT_SEALED],
        ledger->told[EVENT_RELEASED], ledger->told[EVENT_UNKNOWN], ledger->told[EVENT_REPLAY],
        ledger->told[EVENT_HELD], ledger->told[EVENT_CONFLICT], ledger->looked, harness.verified);
}

/* ---- the tests ----------------------------------------------------------------------------- */

static void nothing_acknowledged_is_lost_by_hundreds_of_kills(void **state)
{
    (void)state;
    unsigned kills = getenv("ONCE_TEST_LONG") != NULL ? KILLS_LONG : KILLS;
    for (unsigned done = 0; done < kills; done += KILLS_ON_ONE) {
        store_fresh(done / KILLS_ON_ONE);
        for (unsigned round = 0; round < KILLS_ON_ONE && harness.ledger->faults == 0; round++) {
            struct kill_plan plan = plan_make();
            round_run(&plan, round, PLANT_NONE);
            store_look(round);
        }
        store_ask(KILLS_ON_ONE);
        store_verify(true);
        faults_none();
    }
    tally_print();
    assert_true(harness.tally.kills >= kills);
    /* The kills that matter did happen. Of few kills a rare one may honestly be missing. */
    assert_true(harness.tally.phases[PHASE_LOADING] > kills / 3);
    if (!IS_SANITIZED) {
        assert_true(harness.tally.phases[PHASE_CLOSING] > 0);
        assert_true(harness.tally.index > 0 && harness.tally.spare > 0);
        assert_true(harness.tally.squeezed > 0);
    }
    assert_true(harness.ledger->told[EVENT_SEALED] > kills);
}

static void a_kill_during_creation_leaves_a_store_or_none(void **state)
{
    (void)state;
    unsigned made = 0;
    for (unsigned i = 0; i < CREATION_KILLS; i++) {
        store_fresh(0);
        struct kill_plan plan = {PHASE_OPENING, NULL, prng_below(&harness.prng, 5000), false};
        round_run(&plan, 0, PLANT_NONE);
        made += store_has("identity");
        store_look(0);
        /* Whatever is there, the next one opens or makes it and works. */
        struct kill_plan next = {PHASE_LOADING, NULL, 10000, false};
        round_run(&next, 1, PLANT_NONE);
        store_look(1);
        store_ask(2);
        faults_none();
    }
    print_message("# %u of %d were made before the kill\n", made, CREATION_KILLS);
}

static void a_second_process_is_told_who_has_it_and_opens_after_the_kill(void **state)
{
    (void)state;
    store_fresh(0);
    child_start(0, 0, PLANT_NONE);
    assert_true(phase_wait(PHASE_LOADING));
    struct once_options options = {.store = harness.url};
    struct once_error error = {0};
    struct once *once = NULL;
    char text[64];
    (void)snprintf(text, sizeof text, "in use by pid %ld", (long)harness.child);
    assert_int_equal(once_open(&options, &once, &error), ONCE_E_UNAVAILABLE);
    assert_non_null(strstr(error.text, text));
    assert_non_null(strstr(error.text, harness.store));
    child_kill();
    uint64_t began = clock_nanos();
    assert_int_equal(once_open(&options, &once, &error), ONCE_OK);
    assert_true(clock_nanos() - began < UINT64_C(10000000000)); /* it waits for nobody */
    assert_int_equal(once_close(once, &error), ONCE_OK);
    store_ask(1);
    faults_none();
}

/* ---- the harness itself: planted mistakes are found ----------------------------------------- */

static void control_expect(const char *promise)
{
    assert_true(harness.ledger->faults > 0);
    if (strncmp(harness.ledger->fault, promise, strlen(promise)) != 0) {
        fail_msg("found instead of %s: %s", promise, harness.ledger->fault);
    }
    print_message("# found: %s\n", harness.ledger->fault);
    harness.ledger->faults = 0;
    kit_dir_remove(&harness.dir);
}

static void control_run(enum plant plant)
{
    store_fresh(0);
    for (unsigned round = 0; round < CONTROL_KILLS && harness.ledger->faults == 0; round++) {
        /* On a busy machine little happens in 30 ms: the later kills leave more time. */
        uint64_t micros_max = UINT64_C(30000) << (round / 10 < 5 ? round / 10 : 5);
        struct kill_plan plan = {PHASE_LOADING, NULL, prng_below(&harness.prng, micros_max), false};
        round_run(&plan, round, plant);
        store_look(round);
    }
}

static void an_answer_told_before_its_commit_is_found(void **state)
{
    (void)state;
    control_run(PLANT_ACK_EARLY);
    control_expect("L2: ");
}

static void an_effect_without_a_grant_is_found(void **state)
{
    (void)state;
    control_run(PLANT_SECOND_EFFECT);
    control_expect("L5: ");
}

/* Kills until something was granted: on a busy machine little happens in 40 ms. */
static void load_until_granted(unsigned round)
{
    enum { TRIES = 10 };
    uint64_t before = harness.ledger->told[EVENT_GRANT];
    struct kill_plan plan = {PHASE_LOADING, NULL, 40000, false};
    for (int i = 0; i < TRIES && harness.ledger->told[EVENT_GRANT] == before; i++) {
        round_run(&plan, round, PLANT_NONE);
        plan.patience_us *= 2;
    }
    assert_true(harness.ledger->told[EVENT_GRANT] > before);
}

/* What a flush that never happened, or a backup put back, looks like. */
static void a_lost_commit_is_found(void **state)
{
    (void)state;
    char older[340];
    store_fresh(0);
    (void)snprintf(older, sizeof older, "%s-older", harness.store);
    load_until_granted(0);
    store_look(0);
    assert_int_equal(harness.ledger->faults, 0);
    kit_dir_copy(harness.store, older);
    load_until_granted(1);
    store_look(1);
    assert_int_equal(harness.ledger->faults, 0);
    kit_dir_copy(older, harness.store);
    store_look(1);
    control_expect("L1: ");
}

static void a_fence_given_out_again_is_found(void **state)
{
    (void)state;
    store_fresh(0);
    load_until_granted(0);
    struct kit_dir first = harness.dir;
    uint64_t highest = harness.ledger->fence_highest;
    assert_true(highest > 0);
    /* Another store's fences begin at 1 again: as if this one had forgotten its own. */
    store_fresh(0);
    harness.ledger->fence_highest = highest;
    ledger_killed(harness.ledger);
    load_until_granted(0);
    kit_dir_remove(&first);
    control_expect("L4: ");
}

static int set_up(void **state)
{
    (void)state;
    harness.ledger = ledger_new();
    harness.shared_fd = memfd_create("shared", 0);
    assert_true(harness.shared_fd >= 0);
    assert_int_equal(ftruncate(harness.shared_fd, sizeof *harness.shared), 0);
    harness.shared = mmap(
        NULL, sizeof *harness.shared, PROT_READ | PROT_WRITE, MAP_SHARED, harness.shared_fd, 0);
    assert_true(harness.shared != MAP_FAILED);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    if (harness.child > 0) {
        (void)kill(harness.child, SIGKILL);
        (void)waitpid(harness.child, NULL, 0);
    }
    (void)munmap(harness.shared, sizeof *harness.shared);
    (void)close(harness.shared_fd);
    ledger_free(harness.ledger);
    return 0;
}

int main(int argc, char **argv)
{
    assert_true(argc >= 2);
    harness.load = argv[1];
    harness.prng.state = argc > 2 ? strtoull(argv[2], NULL, 10) : clock_nanos();
    print_message("# seed %" PRIu64 "\n", harness.prng.state);
    const struct CMUnitTest tests[] = {
        TEST(an_answer_told_before_its_commit_is_found),
        TEST(an_effect_without_a_grant_is_found),
        TEST(a_lost_commit_is_found),
        TEST(a_fence_given_out_again_is_found),
        TEST(a_second_process_is_told_who_has_it_and_opens_after_the_kill),
        TEST(a_kill_during_creation_leaves_a_store_or_none),
        TEST(nothing_acknowledged_is_lost_by_hundreds_of_kills),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
