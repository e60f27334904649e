/*
 * A disk that is really full: a small file system of its own, filled up while several threads work.
 *
 * The mount is in a mount namespace of this process, so nothing of it outlives the program. Where
 * that is not permitted the program says so and counts as skipped (exit 77).
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "evidence/verify.h"
#include "once/once.h"
#include "prng.h"
#include "store/kit.h"

enum {
    THREADS = 4,
    KEYS_MAX = 4096,        /* of one thread: far more than fit */
    OUTCOME_BYTES = 3000,   /* so that some thousand operations fill it */
    FILLER_BYTES = 4 << 20, /* somebody else's file, removed to make room */
    REFUSALS = 20,          /* tries of each thread while it is full */
    ROOM_MS_MAX = 20000,    /* to go on by itself once there is room */
    SKIP = 77,
};

/* What one thread was told. */
struct full_worker {
    pthread_t thread;
    unsigned number;
    uint64_t fences[KEYS_MAX];
    unsigned sealed;       /* keys 0 … sealed - 1 are */
    char operation_id[40]; /* of the one after these, when it was granted … */
    uint64_t fence;        /* … at this fence; 0: it was not */
    unsigned refused;
    struct once_error error; /* the last refusal */
};

static struct kit_dir mounted;
static char url[400];
static struct once *once;
static struct full_worker workers[THREADS];

static void outcome_make(unsigned thread, unsigned key, char ret_bytes[OUTCOME_BYTES])
{
    struct prng prng = {thread * UINT64_C(1000003) + key};
    prng_fill(&prng, ret_bytes, OUTCOME_BYTES);
}

static void filler_write(void)
{
    char path[400];
    static char bytes[FILLER_BYTES];
    (void)snprintf(path, sizeof path, "%s/filler", mounted.path);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    memset(bytes, 'x', sizeof bytes);
    assert_int_equal(write(fd, bytes, sizeof bytes), sizeof bytes);
    (void)close(fd);
}

static void filler_remove(void)
{
    char path[400];
    (void)snprintf(path, sizeof path, "%s/filler", mounted.path);
    assert_int_equal(unlink(path), 0);
}

static void open_it(void)
{
    struct once_options options = {.store = url};
    struct once_error error = {0};
    if (once_open(&options, &once, &error) != ONCE_OK) {
        fail_msg("%s", error.text);
    }
}

/* A refusal that a person can act on. false: it is something else. */
static bool refused_rightly(const struct once_error *error)
{
    return error->result == ONCE_E_UNAVAILABLE && error->hint[0] != '\0' &&
           strcasestr(error->text, "no space left on device") != NULL;
}

/* One step of the next key: its grant, or its seal. false: refused, and error says why. */
static bool step(struct full_worker *worker)
{
    char key[48];
    char outcome[OUTCOME_BYTES];
    struct once_answer *answer;
    if (worker->fence == 0) {
        (void)snprintf(key, sizeof key, "key-%u-%u", worker->number, worker->sealed);
        struct once_begin begin = {.scope = "full", .key = key, .lease_ms = 600000};
        if (once_begin(once, &begin, &answer, &worker->error) != ONCE_OK) {
            return false;
        }
        assert_int_equal(answer->decision, ONCE_FIRST_SEEN);
        worker->fence = answer->fence;
        memcpy(worker->operation_id, answer->operation_id, sizeof worker->operation_id);
        once_answer_free(once, answer);
    }
    outcome_make(worker->number, worker->sealed, outcome);
    struct once_seal seal = {.operation_id = worker->operation_id,
        .fence = worker->fence,
        .status = ONCE_EXECUTED,
        .outcome.body = {outcome, sizeof outcome}};
    if (once_seal(once, &seal, NULL, &worker->error) != ONCE_OK) {
        return false;
    }
    worker->fences[worker->sealed++] = worker->fence;
    worker->fence = 0;
    return true;
}

static void *fill(void *context)
{
    struct full_worker *worker = context;
    while (worker->sealed < KEYS_MAX && worker->refused < REFUSALS) {
        if (!step(worker)) {
            if (!refused_rightly(&worker->error)) {
                return NULL;
            }
            worker->refused++;
        }
    }
    return NULL;
}

static void fill_all(void)
{
    memset(workers, 0, sizeof workers);
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i].number = i;
        assert_int_equal(pthread_create(&workers[i].thread, NULL, fill, &workers[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
        if (workers[i].refused < REFUSALS) {
            fail_msg("%u keys, %u refusals, then: %s (%s)", workers[i].sealed, workers[i].refused,
                workers[i].error.text, once_result_name(workers[i].error.result));
        }
    }
    print_message("# full after %u + %u + %u + %u: %s\n", workers[0].sealed, workers[1].sealed,
        workers[2].sealed, workers[3].sealed, workers[0].error.text);
}

/* Everything that was told is there; what was refused did not happen. Reads need no space. */
static void check_worker(const struct full_worker *worker)
{
    char key[48];
    char outcome[OUTCOME_BYTES];
    struct once_error error;
    for (unsigned i = 0; i <= worker->sealed; i++) {
        struct once_operation *operation = NULL;
        (void)snprintf(key, sizeof key, "key-%u-%u", worker->number, i);
        assert_int_equal(once_lookup(once, "full", "", key, &operation, &error), ONCE_OK);
        if (i == worker->sealed) {
            assert_true((operation != NULL) == (worker->fence != 0));
            assert_true(operation == NULL || operation->fence == worker->fence);
        } else {
            assert_non_null(operation);
            outcome_make(worker->number, i, outcome);
            assert_int_equal(operation->status, ONCE_EXECUTED);
            assert_int_equal(operation->fence, worker->fences[i]);
            assert_int_equal(operation->outcome.body.size, sizeof outcome);
            assert_memory_equal(operation->outcome.body.data, outcome, sizeof outcome);
        }
        once_operation_free(once, operation);
    }
}

static void check_all(void)
{
    for (unsigned i = 0; i < THREADS; i++) {
        check_worker(&workers[i]);
    }
}

static void verify_it(void)
{
    static struct verify_result result;
    struct verify_options options = {.url = url, .redecide = true};
    struct err err = {0};
    assert_int_equal(verify_run(&options, &result, &err), OK);
    if (result.damage_count > 0) {
        fail_msg("%s", result.damages[0].what);
    }
}

/* Without being opened again. The refused step is the first that goes on. */
static void goes_on(struct full_worker *worker)
{
    unsigned before = worker->sealed;
    for (int waited = 0; !step(worker); waited++) {
        assert_true(refused_rightly(&worker->error));
        assert_true(waited < ROOM_MS_MAX);
        (void)usleep(1000);
    }
    assert_int_equal(worker->sealed, before + 1);
}

static void skip_unless_mounted(void **state)
{
    if (*state != NULL) {
        print_message("# skipped: no ext4 on a loop device can be mounted here\n");
        skip();
    }
}

static void a_full_disk_refuses_loses_nothing_and_goes_on_when_there_is_room(void **state)
{
    skip_unless_mounted(state);
    open_it();
    fill_all();
    check_all();
    filler_remove();
    for (unsigned i = 0; i < THREADS; i++) {
        goes_on(&workers[i]);
    }
    check_all();
    struct once_error error;
    assert_int_equal(once_close(once, &error), ONCE_OK);
    open_it();
    check_all();
    goes_on(&workers[0]);
    assert_int_equal(once_close(once, &error), ONCE_OK);
    verify_it();
}

static void closed_and_opened_while_it_is_full(void **state)
{
    skip_unless_mounted(state);
    open_it();
    fill_all();
    struct once_error error = {0};
    int closed = once_close(once, &error);
    print_message("# closing: %s %s\n", once_result_name(closed), error.text);
    assert_true(closed == ONCE_OK || refused_rightly(&error) || closed == ONCE_E_UNAVAILABLE);
    struct once_options look = {.store = url, .read_only = 1};
    assert_int_equal(once_open(&look, &once, &error), ONCE_OK);
    check_all();
    assert_int_equal(once_close(once, &error), ONCE_OK);
    /* A writer may need some bytes of its own: then it says so. */
    struct once_options options = {.store = url};
    int opened = once_open(&options, &once, &error);
    print_message("# opening: %s %s\n", once_result_name(opened), opened == 0 ? "" : error.text);
    if (opened == ONCE_OK) {
        check_all();
        (void)once_close(once, &error);
    } else {
        assert_int_equal(opened, ONCE_E_UNAVAILABLE);
        assert_non_null(strcasestr(error.text, "no space left on device"));
    }
    filler_remove();
    open_it();
    check_all();
    goes_on(&workers[1]);
    assert_int_equal(once_close(once, &error), ONCE_OK);
    verify_it();
}

static void killed_while_it_is_full(void **state)
{
    skip_unless_mounted(state);
    struct full_worker *told = mmap(NULL, sizeof *told * THREADS + sizeof(int),
        PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(told != MAP_FAILED);
    _Atomic int *full = (_Atomic int *)(void *)(told + THREADS);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        open_it();
        fill_all();
        memcpy(told, workers, sizeof workers);
        atomic_store(full, 1);
        for (;;) {
            (void)pause();
        }
    }
    for (int waited = 0; atomic_load(full) == 0; waited++) {
        assert_int_equal(waitpid(child, NULL, WNOHANG), 0);
        assert_true(waited < 300000);
        (void)usleep(1000);
    }
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    memcpy(workers, told, sizeof workers);
    (void)munmap(told, sizeof *told * THREADS + sizeof(int));
    filler_remove();
    open_it();
    check_all();
    for (unsigned i = 0; i < THREADS; i++) {
        goes_on(&workers[i]);
    }
    struct once_error error;
    assert_int_equal(once_close(once, &error), ONCE_OK);
    verify_it();
}

/* ---- the file system ----------------------------------------------------------------------- */

/* A place for mounts that nobody else sees; false: not permitted. */
static bool namespace_enter(void)
{
    if (unshare(CLONE_NEWNS) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) {
        return false;
    }
    return mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
}

static void place_make(const char *options)
{
    (void)snprintf(url, sizeof url, "journal:%s/data%s", mounted.path, options);
    filler_write();
}

static int mount_with(const char *options)
{
    mounted = kit_dir_make();
    assert_int_equal(mount("once-test", mounted.path, "tmpfs", 0, "size=16m"), 0);
    place_make(options);
    return 0;
}

/* A file system that gives out space when it writes back, as most disks have. The loop device goes
 * with the mount. */
static bool mount_loop(void)
{
    char command[2000];
    mounted = kit_dir_make();
    (void)snprintf(command, sizeof command,
        "exec >/dev/null 2>&1; PATH=$PATH:/sbin:/usr/sbin; truncate -s 32M %s.img && "
        "mkfs.ext4 -q -F %s.img && mount -o loop %s.img %s; code=$?; rm -f %s.img; exit $code",
        mounted.path, mounted.path, mounted.path, mounted.path, mounted.path);
    return system(command) == 0;
}

/* There is no room for the next segment. */
static int mount_rolling(void **state)
{
    *state = NULL;
    return mount_with("?segment=2MiB&snapshot=1MiB");
}

static unsigned way_first; /* of writing, for the first test on a loop device */

/* The same on a loop device; without one there is nothing to try. */
static int mount_ext4(void **state)
{
    static bool no;
    *state = mount_loop() ? NULL : &no;
    if (*state == NULL) {
        static unsigned mounts; /* each of the tests that follow writes in a way of its own */
        char options[64];
        (void)snprintf(options, sizeof options, "?segment=2MiB&snapshot=1MiB&write=%s",
            kit_way(way_first + mounts++, mounted.path));
        place_make(options);
    }
    return 0;
}

/* There is no room for zeros ahead in the only segment. */
static int mount_ahead(void **state)
{
    *state = NULL;
    return mount_with("");
}

static int unmount(void **state)
{
    (void)state;
    (void)umount2(mounted.path, MNT_DETACH);
    kit_dir_remove(&mounted);
    return 0;
}

#define FULL(name, how) cmocka_unit_test_setup_teardown(name, how, unmount)

int main(void)
{
    if (!namespace_enter()) {
        (void)printf(
            "skipped: mounting a small file system is not permitted here (%s)\n", strerror(errno));
        return SKIP;
    }
    const struct CMUnitTest tests[] = {
        FULL(a_full_disk_refuses_loses_nothing_and_goes_on_when_there_is_room, mount_rolling),
        FULL(a_full_disk_refuses_loses_nothing_and_goes_on_when_there_is_room, mount_ahead),
        FULL(a_full_disk_refuses_loses_nothing_and_goes_on_when_there_is_room, mount_ext4),
        FULL(closed_and_opened_while_it_is_full, mount_rolling),
        FULL(closed_and_opened_while_it_is_full, mount_ahead),
        FULL(closed_and_opened_while_it_is_full, mount_ext4),
        FULL(killed_while_it_is_full, mount_rolling),
        FULL(killed_while_it_is_full, mount_ahead),
        FULL(killed_while_it_is_full, mount_ext4),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    for (way_first = 1; getenv("ONCE_TEST_LONG") != NULL && way_first < KIT_WAYS; way_first++) {
        failed += cmocka_run_group_tests(tests, NULL, NULL);
    }
    return failed;
}
