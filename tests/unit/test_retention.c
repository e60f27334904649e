/*
 * Evidence past its retention leaves the journal: squeezed when its windows are over, then an entry
 * that says so, then the file goes to the archive. What is left still verifies (P10).
 */
#include <dirent.h>
#include <ftw.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check_c.h"
#include "engine/engine.h"
#include "evidence/verify.h"

static const int64_t day_ms = 86400000;

static _Atomic int64_t now_ms = 1794770607000;

/* Both clocks go together: time passes, nothing jumps. */
static struct clock_reading fake_read(void *context)
{
    (void)context;
    return (struct clock_reading){now_ms, now_ms};
}

static char directory[64];
static char url[128];
static struct engine *engine;
static struct arena arena;

static void open_engine(void)
{
    static struct clock clock = {.read = fake_read, .boot_id = 3};
    struct err err = {0};
    struct store *store = NULL;
    struct engine_options options = {.clock = &clock};
    struct store_options store_options = {.clock = &clock};
    assert_int_equal(store_open(url, &store_options, &store, &err), OK);
    assert_int_equal(engine_new(store, &options, &engine, &err), OK);
}

static int remove_one(const char *path, const struct stat *info, int flag, struct FTW *place)
{
    (void)info;
    (void)flag;
    (void)place;
    return remove(path);
}

static int set_up(void **state)
{
    (void)state;
    (void)snprintf(directory, sizeof directory, "/tmp/once-retention-XXXXXX");
    assert_non_null(mkdtemp(directory));
    (void)snprintf(url, sizeof url, "journal:%s/data?segment=64KiB&snapshot=64KiB", directory);
    arena_init(&arena, &mem_libc, 64 << 20);
    open_engine();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    (void)engine_free(engine, NULL);
    arena_release(&arena);
    return nftw(directory, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void one_operation(int number)
{
    char key[32];
    struct engine_call call = {.arena = &arena};
    (void)snprintf(key, sizeof key, "key-%d", number);
    call.request.kind = REQUEST_BEGIN;
    call.request.key.tenant = SLICE_LIT("default");
    call.request.key.key = slice_str(key);
    call.request.policy = policy_default;
    assert_int_equal(record_key_seal(&call.request.key, NULL), OK);
    assert_int_equal(engine_do(engine, &call), OK);
    assert_int_equal(call.decision.kind, DECISION_FIRST_SEEN);
    struct engine_call seal = {.arena = &arena};
    seal.request.kind = REQUEST_SEAL;
    seal.request.operation_id = call.decision.next.operation_id;
    seal.request.fence = call.decision.next.fence;
    seal.request.status = RECORD_EXECUTED;
    assert_int_equal(engine_do(engine, &seal), OK);
    assert_int_equal(seal.decision.kind, DECISION_SEALED);
}

static size_t archived(void)
{
    char path[128];
    (void)snprintf(path, sizeof path, "%s/data/archive", directory);
    size_t count = 0;
    DIR *dir = opendir(path);
    for (struct dirent *one; dir != NULL && (one = readdir(dir)) != NULL;) {
        count += one->d_name[0] != '.';
    }
    if (dir != NULL) {
        (void)closedir(dir);
    }
    return count;
}

static void verify_all(struct verify_result *ret_result)
{
    struct err err = {0};
    struct verify_options options = {.url = url, .redecide = true};
    char *question = strchr(url, '?');
    *question = '\0';
    assert_int_equal(verify_run(&options, ret_result, &err), OK);
    *question = '?';
}

static void evidence_past_its_retention_is_archived_and_the_rest_verifies(void **state)
{
    (void)state;
    static struct verify_result result;
    int number = 0;
    while (number < 200) {
        one_operation(number++);
    }
    /* The windows end, the segments are squeezed; nothing leaves before the retention is over. */
    now_ms += 2 * day_ms;
    for (int i = 0; i < 100; i++) {
        one_operation(number++);
        usleep(10000);
    }
    assert_int_equal(archived(), 0);
    now_ms += 401 * day_ms;
    for (int i = 0; i < 1500 && archived() < 3; i++) {
        one_operation(number++);
        now_ms += 60000; /* the janitor looks once a minute */
        usleep(10000);
    }
    assert_true(archived() >= 3);
    verify_all(&result);
    assert_int_equal(result.damage_count, 0);
    assert_true(result.first_seq > 1);

    /* It opens and goes on where it was. */
    assert_int_equal(engine_free(engine, NULL), OK);
    open_engine();
    one_operation(number++);
    verify_all(&result);
    assert_int_equal(result.damage_count, 0);
}

/* Time passes and nothing is asked, until that many segments are in the archive. */
static void wait_for_archives(size_t count)
{
    for (int i = 0; i < 3000 && archived() < count; i++) {
        now_ms += 60000; /* the janitor looks once a minute */
        usleep(10000);
    }
    assert_true(archived() >= count);
}

/* One archive follows the other: nothing but their own entries is between them, and an archive may
 * take away the entry of the one before. */
static void archives_in_a_row_leave_evidence_that_verifies(void **state)
{
    (void)state;
    static struct verify_result result;
    uint64_t first_seq = 1;
    int number = 0;
    for (size_t round = 0; round < 2; round++) {
        for (int i = 0; i < 200; i++) {
            one_operation(number++);
        }
        now_ms += 403 * day_ms; /* the windows and the retention end at once */
        wait_for_archives(archived() + 2);
        verify_all(&result);
        assert_int_equal(result.damage_count, 0);
        assert_true(result.first_seq > first_seq);
        first_seq = result.first_seq;
        assert_int_equal(engine_free(engine, NULL), OK);
        open_engine();
    }
    one_operation(number);
    verify_all(&result);
    assert_int_equal(result.damage_count, 0);
    assert_true(result.first_seq >= first_seq);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            evidence_past_its_retention_is_archived_and_the_rest_verifies, set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            archives_in_a_row_leave_evidence_that_verifies, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("retention", tests, NULL, NULL);
}
