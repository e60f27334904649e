#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"
#include "base/spool.h"
#include "check_c.h"
#include "faulty_mem.h"

/*
 * The system calls of the spool are wrapped (--wrap of the linker), so that each can be short,
 * interrupted or refused. Their names are those behind _FILE_OFFSET_BITS=64.
 */
static struct {
    bool no_tmpfile;      /* the file system does not know O_TMPFILE */
    bool no_file;         /* nor any other file */
    size_t short_bytes;   /* a write takes at most so many; 0: all */
    unsigned interrupted; /* so many writes are, first */
    long full_after;      /* bytes until the disk is full; -1: never */
    bool no_map;
    unsigned opened; /* files, by whichever way */
    unsigned named;  /* of these with a name at first */
    int last_flags;
} calls;

int __real_open64(const char *path, int flags, ...);
int __real_mkostemp64(char *path, int flags);
ssize_t __real_pwrite64(int file, const void *data, size_t size, off_t offset);
void *__real_mmap64(void *at, size_t size, int protection, int flags, int file, off_t offset);
int __wrap_open64(const char *path, int flags, ...);
int __wrap_mkostemp64(char *path, int flags);
ssize_t __wrap_pwrite64(int file, const void *data, size_t size, off_t offset);
void *__wrap_mmap64(void *at, size_t size, int protection, int flags, int file, off_t offset);

int __wrap_open64(const char *path, int flags, ...)
{
    if ((flags & O_TMPFILE) == O_TMPFILE && (calls.no_tmpfile || calls.no_file)) {
        errno = calls.no_file ? EACCES : EOPNOTSUPP;
        return -1;
    }
    calls.opened += (flags & O_TMPFILE) == O_TMPFILE;
    calls.last_flags = flags;
    return __real_open64(path, flags, S_IRUSR | S_IWUSR);
}

int __wrap_mkostemp64(char *path, int flags)
{
    calls.opened++;
    calls.named++;
    calls.last_flags = flags;
    return __real_mkostemp64(path, flags);
}

ssize_t __wrap_pwrite64(int file, const void *data, size_t size, off_t offset)
{
    if (calls.interrupted > 0) {
        calls.interrupted--;
        errno = EINTR;
        return -1;
    }
    if (calls.full_after == 0) {
        errno = ENOSPC;
        return -1;
    }
    size = calls.short_bytes > 0 && calls.short_bytes < size ? calls.short_bytes : size;
    if (calls.full_after > 0) {
        size = (size_t)calls.full_after < size ? (size_t)calls.full_after : size;
        calls.full_after -= (long)size;
    }
    return __real_pwrite64(file, data, size, offset);
}

void *__wrap_mmap64(void *at, size_t size, int protection, int flags, int file, off_t offset)
{
    if (calls.no_map && file >= 0) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    return __real_mmap64(at, size, protection, flags, file, offset);
}

/* ---- help ---------------------------------------------------------------------------------- */

enum { MEMORY = 100, TOTAL = 1000 };

static char dir[] = "/tmp/once-test-spool-XXXXXX";
static char bytes[1 << 20]; /* that differ from their neighbours */

static int set_up_all(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = (char)(unsigned char)(i * 2654435761u >> 13);
    }
    return mkdtemp(dir) == NULL;
}

static int tear_down_all(void **state)
{
    (void)state;
    return rmdir(dir); /* so nothing is left in it */
}

static int set_up(void **state)
{
    (void)state;
    memset(&calls, 0, sizeof calls);
    calls.full_after = -1;
    return 0;
}

/* Names in a directory, "." and ".." left out. */
static size_t names_in(const char *path)
{
    size_t count = 0;
    DIR *open_dir = opendir(path);
    ASSERT(open_dir != NULL);
    while (readdir(open_dir) != NULL) {
        count++;
    }
    (void)closedir(open_dir);
    return count - 2;
}

static size_t open_files(void)
{
    return names_in("/proc/self/fd");
}

/* The next `size` of the bytes. */
static enum status put(struct spool *spool, size_t size, struct err *err)
{
    return spool_put(spool, slice_of(bytes + spool_bytes(spool), size), err);
}

static void assert_put(struct spool *spool, size_t size)
{
    struct err err = {0};
    uint64_t before = spool_bytes(spool);
    if (put(spool, size, &err) != OK) {
        fail_msg("%s", err.text);
    }
    assert_int_equal(spool_bytes(spool), before + size);
}

static void assert_not_put(struct spool *spool, size_t size, enum status wanted, const char *words)
{
    struct err err = {0};
    uint64_t before = spool_bytes(spool);
    enum status status = put(spool, size, &err);
    if (status != wanted || strstr(err.text, words) == NULL) {
        fail_msg("%s '%s', wanted '%s'", status_name(status), err.text, words);
    }
    assert_null(strstr(err.text, "/tmp"));
    assert_int_equal(spool_bytes(spool), before);
}

static void assert_holds(struct spool *spool, size_t size)
{
    struct err err = {0};
    struct slice view = SLICE_EMPTY;
    struct slice again = SLICE_EMPTY;
    if (spool_view(spool, &view, &err) != OK) {
        fail_msg("%s", err.text);
    }
    assert_int_equal(view.len, size);
    assert_int_equal(spool_bytes(spool), size);
    if (size > 0) {
        assert_memory_equal(view.data, bytes, size);
    }
    assert_int_equal(spool_view(spool, &again, &err), OK);
    assert_ptr_equal(again.data, view.data);
    assert_int_equal(again.len, view.len);
}

/* ---- tests --------------------------------------------------------------------------------- */

static void what_fits_stays_in_memory(void **state)
{
    (void)state;
    struct spool spool;
    spool_init(&spool, &mem_libc, "/nowhere", MEMORY, TOTAL);
    assert_holds(&spool, 0);
    spool_clear(&spool);
    assert_put(&spool, 0);
    assert_put(&spool, 60);
    assert_put(&spool, 40);
    assert_put(&spool, 0);
    assert_holds(&spool, MEMORY);
    assert_int_equal(calls.opened, 0);
    spool_release(&spool);
    spool_release(&spool);
    spool_release(NULL);
}

static void one_byte_more_goes_to_a_file_without_a_name(void **state)
{
    (void)state;
    struct spool spool;
    size_t files = open_files();
    for (size_t first = 0; first <= MEMORY; first += 10) {
        spool_init(&spool, &mem_libc, dir, MEMORY, TOTAL);
        assert_put(&spool, first);
        assert_put(&spool, MEMORY + 1 - first);
        assert_put(&spool, 1);
        assert_put(&spool, 300);
        assert_int_equal(names_in(dir), 0);
        assert_true((calls.last_flags & O_CLOEXEC) != 0);
        assert_int_equal(spool.memory.cap, 0); /* not in both places */
        assert_holds(&spool, MEMORY + 302);
        spool_release(&spool);
    }
    assert_int_equal(calls.opened, 11);
    assert_int_equal(calls.named, 0);
    assert_int_equal(open_files(), files);
}

static void without_memory_all_goes_to_a_file(void **state)
{
    (void)state;
    struct spool spool;
    spool_init(&spool, &mem_libc, dir, 0, TOTAL);
    assert_holds(&spool, 0);
    spool_clear(&spool);
    assert_put(&spool, 1);
    assert_put(&spool, TOTAL - 1);
    assert_int_equal(calls.opened, 1);
    assert_holds(&spool, TOTAL);
    spool_release(&spool);
}

static void what_is_there_so_far_can_be_read_while_more_is_put(void **state)
{
    (void)state;
    struct spool spool;
    char buffer[7];
    spool_init(&spool, &mem_libc, dir, MEMORY, TOTAL);
    for (size_t size = 0, from = 0; size <= MEMORY + 300; size += 50) { /* memory, then a file */
        while (from < size) {
            struct slice piece = spool_peek(&spool, from, buffer, sizeof buffer);
            assert_in_range(piece.len, 1, size - from);
            assert_memory_equal(piece.data, bytes + from, piece.len);
            from += piece.len;
        }
        assert_int_equal(spool_peek(&spool, from, buffer, sizeof buffer).len, 0);
        assert_put(&spool, 50);
    }
    assert_int_equal(calls.opened, 1);
    assert_holds(&spool, MEMORY + 350);
    spool_release(&spool);
}

static void the_total_is_never_passed(void **state)
{
    (void)state;
    struct spool spool;
    spool_init(&spool, &mem_libc, dir, MEMORY, TOTAL);
    assert_not_put(&spool, TOTAL + 1, E_LIMIT, "larger than the 1000 bytes it may have");
    assert_int_equal(calls.opened, 0);
    assert_put(&spool, 50);
    assert_not_put(&spool, TOTAL - 49, E_LIMIT, "1000 bytes");
    assert_put(&spool, TOTAL - 50);
    assert_not_put(&spool, 1, E_LIMIT, "1000 bytes");
    assert_put(&spool, 0);
    assert_holds(&spool, TOTAL);
    spool_release(&spool);
    spool_init(&spool, &mem_libc, dir, UINT64_MAX, 10); /* memory is no way around it */
    assert_put(&spool, 10);
    assert_not_put(&spool, 1, E_LIMIT, "10 bytes");
    assert_int_equal(calls.opened, 1);
    spool_release(&spool);
    spool_init(&spool, &mem_libc, dir, 0, 0);
    assert_not_put(&spool, 1, E_LIMIT, "0 bytes");
    assert_holds(&spool, 0);
    spool_release(&spool);
}

static void what_was_viewed_does_not_grow(void **state)
{
    (void)state;
    struct spool spool;
    for (size_t size = 10; size <= 500; size += 490) {
        spool_init(&spool, &mem_libc, dir, MEMORY, TOTAL);
        assert_put(&spool, size);
        assert_holds(&spool, size);
        assert_not_put(&spool, 1, E_MISUSE, "");
        assert_holds(&spool, size);
        spool_release(&spool);
    }
}

static void a_cleared_one_is_as_new(void **state)
{
    (void)state;
    struct spool spool;
    size_t files = open_files();
    spool_init(&spool, &mem_libc, dir, 512 << 10, sizeof bytes);
    static const size_t sizes[] = {10, sizeof bytes, 100, 512 << 10, 7, (512 << 10) + 1, 0};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        assert_put(&spool, sizes[i]);
        assert_holds(&spool, sizes[i]);
        spool_clear(&spool);
        assert_int_equal(spool_bytes(&spool), 0);
        assert_true(spool.memory.cap <= 64 << 10); /* an idle one costs little */
        assert_int_equal(open_files(), files);
    }
    assert_put(&spool, sizeof bytes); /* released with a file, not viewed */
    spool_release(&spool);
    assert_int_equal(open_files(), files);
}

static void short_and_interrupted_writes_are_gone_on_with(void **state)
{
    (void)state;
    struct spool spool;
    for (size_t short_bytes = 1; short_bytes <= 64; short_bytes *= 4) {
        calls.short_bytes = short_bytes;
        calls.interrupted = 3;
        spool_init(&spool, &mem_libc, dir, MEMORY, TOTAL);
        assert_put(&spool, 99);
        assert_put(&spool, 99);
        calls.interrupted = 2;
        assert_put(&spool, 500);
        assert_holds(&spool, 698);
        spool_release(&spool);
    }
}

/* At every byte, in pieces that go to memory, to the file at first, and to the file. */
static void a_full_disk_leaves_it_as_it_was(void **state)
{
    (void)state;
    struct spool spool;
    for (long room = 0; room < 400; room++) {
        spool_init(&spool, &mem_libc, dir, MEMORY, TOTAL);
        calls.full_after = room;
        size_t size = 0;
        struct err err = {0};
        while (put(&spool, 45, &err) == OK) {
            size += 45;
        }
        assert_int_equal(err.status, E_UNAVAILABLE);
        assert_non_null(strstr(err.text, "No space left on device"));
        assert_int_equal(spool_bytes(&spool), size);
        assert_int_equal(size, room < 135 ? 90 : (size_t)room / 45 * 45);
        assert_not_put(&spool, 45, E_UNAVAILABLE, "cannot spool the body to disk");
        calls.full_after = -1; /* there is room again */
        assert_put(&spool, 45);
        assert_holds(&spool, size + 45);
        spool_release(&spool);
    }
    assert_int_equal(names_in(dir), 0);
}

static void what_was_half_written_is_given_back(void **state)
{
    (void)state;
    struct spool spool;
    struct stat info;
    spool_init(&spool, &mem_libc, dir, 0, sizeof bytes);
    assert_put(&spool, 5000);
    calls.full_after = 100000;
    assert_not_put(&spool, 200000, E_UNAVAILABLE, "");
    assert_int_equal(fstat(spool.file - 1, &info), 0);
    assert_int_equal(info.st_size, 5000);
    assert_holds(&spool, 5000);
    spool_release(&spool);
}

static void without_o_tmpfile_the_name_is_gone_at_once(void **state)
{
    (void)state;
    struct spool spool;
    calls.no_tmpfile = true;
    spool_init(&spool, &mem_libc, dir, MEMORY, TOTAL);
    assert_put(&spool, 99);
    assert_put(&spool, 99);
    assert_int_equal(calls.named, 1);
    assert_true((calls.last_flags & O_CLOEXEC) != 0);
    assert_int_equal(names_in(dir), 0);
    assert_put(&spool, 99);
    assert_holds(&spool, 297);
    spool_release(&spool);
}

static void a_place_for_files_that_is_none_is_said_without_its_name(void **state)
{
    (void)state;
    struct spool spool;
    static const char *const places[] = {"/nowhere/at/all", "/dev/null", "/proc"};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        spool_init(&spool, &mem_libc, places[i], MEMORY, TOTAL);
        assert_put(&spool, 60);
        struct err err = {0};
        assert_int_equal(put(&spool, 60, &err), E_UNAVAILABLE);
        assert_null(strchr(err.text, '/'));
        assert_put(&spool, 40);
        assert_holds(&spool, 100);
        spool_release(&spool);
    }
    calls.no_file = true;
    spool_init(&spool, &mem_libc, dir, 0, TOTAL);
    assert_not_put(&spool, 60, E_UNAVAILABLE, "Permission denied");
    spool_release(&spool);
}

static void a_view_that_fails_may_be_tried_again(void **state)
{
    (void)state;
    struct spool spool;
    struct err err = {0};
    struct slice view = SLICE_LIT("untouched");
    spool_init(&spool, &mem_libc, dir, MEMORY, TOTAL);
    assert_put(&spool, 200);
    calls.no_map = true;
    assert_int_equal(spool_view(&spool, &view, &err), E_UNAVAILABLE);
    assert_true(slice_is(view, "untouched"));
    calls.no_map = false;
    assert_put(&spool, 1);
    assert_holds(&spool, 201);
    spool_release(&spool);
}

/* ---- memory -------------------------------------------------------------------------------- */

/* Pieces of growing size, each tried again when it fails; the same bytes come out. */
static void without_memory_a_piece_may_be_put_again(void **state)
{
    (void)state;
    long failures = 0;
    for (long fail_at = 1; fail_at <= failures + 1; fail_at++) {
        struct faulty faulty = {.fail_at = fail_at};
        struct mem mem = {.resize = faulty_resize, .context = &faulty};
        struct spool spool;
        spool_init(&spool, &mem, dir, 64 << 10, sizeof bytes);
        for (size_t size = 100; size < 200000; size *= 3) {
            struct err err = {0};
            uint64_t before = spool_bytes(&spool);
            if (put(&spool, size, &err) != OK) {
                assert_int_equal(err.status, E_NOMEM);
                assert_int_equal(spool_bytes(&spool), before);
                failures++;
                assert_put(&spool, size);
            }
        }
        assert_holds(&spool, 100 * (2187 - 1) / 2);
        spool_release(&spool);
        assert_int_equal(faulty.live, 0);
    }
    assert_in_range(failures, 3, 100);
}

/* ---- real trouble -------------------------------------------------------------------------- */

/* Runs it in a process of its own; how that ended. */
static int ended(void (*body)(void))
{
    int how = 0;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        body();
        _exit(0);
    }
    assert_int_equal(waitpid(child, &how, 0), child);
    return how;
}

static void fill_and_die(void)
{
    struct spool spool;
    spool_init(&spool, &mem_libc, dir, MEMORY, sizeof bytes);
    struct slice view;
    struct err err = {0};
    ASSERT(put(&spool, 500000, &err) == OK && spool_view(&spool, &view, &err) == OK);
    (void)raise(SIGKILL);
}

static void a_killed_process_leaves_nothing(void **state)
{
    (void)state;
    int how = ended(fill_and_die);
    assert_true(WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL);
    assert_int_equal(names_in(dir), 0);
}

/* A limit of the process is as good as a full disk: writes are short, and then fail. */
static void fill_past_a_limit(void)
{
    struct spool spool;
    struct rlimit limit = {.rlim_cur = 100000, .rlim_max = 100000};
    (void)signal(SIGXFSZ, SIG_IGN);
    ASSERT(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    spool_init(&spool, &mem_libc, dir, MEMORY, sizeof bytes);
    struct err err = {0};
    while (put(&spool, 30000, &err) == OK) {
    }
    ASSERT(err.status == E_UNAVAILABLE && strstr(err.text, "File too large") != NULL);
    ASSERT(spool_bytes(&spool) == 90000);
    struct slice view;
    ASSERT(spool_view(&spool, &view, &err) == OK);
    ASSERT(view.len == 90000 && memcmp(view.data, bytes, view.len) == 0);
    spool_release(&spool);
}

static void a_limit_of_the_process_is_as_a_full_disk(void **state)
{
    (void)state;
    assert_int_equal(ended(fill_past_a_limit), 0);
}

enum { SKIPPED = 77, SMALL_DISK_BYTES = 256 << 10 };

/* In a mount namespace of the child, so nothing of it outlives it. */
static void fill_a_small_disk(void)
{
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("once-test", dir, "tmpfs", 0, "size=256k") != 0) {
        _exit(SKIPPED);
    }
    struct spool spool;
    struct spool other;
    struct err err = {0};
    spool_init(&spool, &mem_libc, dir, 1000, sizeof bytes);
    spool_init(&other, &mem_libc, dir, 1000, sizeof bytes);
    ASSERT(put(&other, 50000, &err) == OK);
    while (put(&spool, 7001, &err) == OK) {
    }
    size_t fitted = spool_bytes(&spool);
    ASSERT(err.status == E_UNAVAILABLE && fitted % 7001 == 0);
    ASSERT(fitted > 150000 && fitted < SMALL_DISK_BYTES - 50000);
    ASSERT(put(&spool, 50000, &err) == E_UNAVAILABLE && spool_bytes(&spool) == fitted);
    spool_clear(&other); /* somebody else's body is over: there is room */
    ASSERT(put(&spool, 7001, &err) == OK);
    struct slice view;
    ASSERT(spool_view(&spool, &view, &err) == OK);
    ASSERT(view.len == fitted + 7001 && memcmp(view.data, bytes, view.len) == 0);
    spool_release(&spool);
    spool_release(&other);
    ASSERT(names_in(dir) == 0);
    ASSERT(umount(dir) == 0);
}

static void a_disk_that_is_really_full_refuses_and_goes_on(void **state)
{
    (void)state;
    int how = ended(fill_a_small_disk);
    if (WIFEXITED(how) && WEXITSTATUS(how) == SKIPPED) {
        skip(); /* no right to mount */
    }
    assert_int_equal(how, 0);
}

#define SPOOL_TEST(name) cmocka_unit_test_setup(name, set_up)

static void those_that_share_a_budget_never_pass_it_together(void **state)
{
    struct spool_budget budget = {.max = 250, .setting = "gateway.spool_max"};
    struct spool one, other;
    struct err err;
    (void)state;
    spool_init(&one, &mem_libc, dir, MEMORY, TOTAL);
    spool_init(&other, &mem_libc, dir, MEMORY, TOTAL);
    spool_share(&one, &budget);
    spool_share(&other, &budget);
    assert_int_equal(spool_put(&one, slice_of(bytes, 150), &err), OK);
    assert_int_equal(spool_put(&other, slice_of(bytes, 101), &err), E_LIMIT);
    assert_non_null(strstr(err.text, "gateway.spool_max"));
    assert_int_equal(err.limit, ERR_LIMIT_SPOOL_BYTES);
    assert_int_equal(spool_put(&other, slice_of(bytes, 100), &err), OK);
    assert_int_equal(budget.bytes, 250);
    spool_clear(&one);
    assert_int_equal(budget.bytes, 100);
    calls.full_after = 0;
    assert_int_equal(spool_put(&other, slice_of(bytes, 50), &err), E_UNAVAILABLE);
    assert_int_equal(budget.bytes, 100); /* what was not put does not count */
    calls.full_after = -1;
    assert_int_equal(spool_put(&one, slice_of(bytes, 150), &err), OK);
    spool_release(&one);
    spool_release(&other);
    assert_int_equal(budget.bytes, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SPOOL_TEST(what_fits_stays_in_memory),
        SPOOL_TEST(one_byte_more_goes_to_a_file_without_a_name),
        SPOOL_TEST(without_memory_all_goes_to_a_file),
        SPOOL_TEST(what_is_there_so_far_can_be_read_while_more_is_put),
        SPOOL_TEST(the_total_is_never_passed),
        SPOOL_TEST(those_that_share_a_budget_never_pass_it_together),
        SPOOL_TEST(what_was_viewed_does_not_grow),
        SPOOL_TEST(a_cleared_one_is_as_new),
        SPOOL_TEST(short_and_interrupted_writes_are_gone_on_with),
        SPOOL_TEST(a_full_disk_leaves_it_as_it_was),
        SPOOL_TEST(what_was_half_written_is_given_back),
        SPOOL_TEST(without_o_tmpfile_the_name_is_gone_at_once),
        SPOOL_TEST(a_place_for_files_that_is_none_is_said_without_its_name),
        SPOOL_TEST(a_view_that_fails_may_be_tried_again),
        SPOOL_TEST(without_memory_a_piece_may_be_put_again),
        SPOOL_TEST(a_killed_process_leaves_nothing),
        SPOOL_TEST(a_limit_of_the_process_is_as_a_full_disk),
        SPOOL_TEST(a_disk_that_is_really_full_refuses_and_goes_on),
    };
    return cmocka_run_group_tests(tests, set_up_all, tear_down_all);
}
