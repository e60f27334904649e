/* Deadlines and tasks of a loop, and the descriptor that it watches. */
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/check.h"
#include "check_c.h"
#include "net/listen.h"
#include "net/loop.h"
#include "net/wheel.h"

enum { DEADLINES = 200 };

struct timed {
    struct net_deadline deadline; /* first */
    uint64_t wanted_ms;
    uint64_t seen_ms;
    unsigned seen;
};

static void on_due(struct net_deadline *deadline, uint64_t now_ms)
{
    struct timed *timed = (struct timed *)(void *)deadline;
    timed->seen_ms = now_ms;
    timed->seen++;
}

static void a_deadline_is_seen_once_and_never_early(void **state)
{
    (void)state;
    struct net_wheel wheel;
    static struct timed timed[DEADLINES];
    uint64_t now = 1234567;
    net_wheel_init(&wheel, now);
    for (unsigned i = 0; i < DEADLINES; i++) {
        timed[i] = (struct timed){.deadline.due = on_due, .wanted_ms = now + 1 + i * i * 7};
        net_wheel_set(&wheel, &timed[i].deadline, now, timed[i].wanted_ms);
    }
    for (; wheel.count > 0; now += 37) {
        net_wheel_run(&wheel, now);
        net_wheel_check(&wheel);
    }
    for (unsigned i = 0; i < DEADLINES; i++) {
        assert_int_equal(timed[i].seen, 1);
        assert_true(timed[i].seen_ms >= timed[i].wanted_ms);
        assert_true(timed[i].seen_ms <= timed[i].wanted_ms + 2 * NET_TICK_MS);
    }
}

static void setting_a_deadline_again_does_not_put_it_off(void **state)
{
    (void)state;
    struct net_wheel wheel;
    struct timed timed = {.deadline.due = on_due};
    net_wheel_init(&wheel, 1000);
    /* The wheel runs late in each tick, and each time somebody sets it again before. */
    for (uint64_t now = 1000; now <= 2000; now += 10) {
        if (timed.seen == 0) {
            net_wheel_set(&wheel, &timed.deadline, now, 1550);
        }
        if (now % 100 == 90) {
            net_wheel_run(&wheel, now);
        }
        net_wheel_check(&wheel);
    }
    assert_int_equal(timed.seen, 1);
    assert_true(timed.seen_ms <= 1550 + 2 * NET_TICK_MS);
}

static void moving_later_costs_nothing_and_holds(void **state)
{
    (void)state;
    struct net_wheel wheel;
    struct timed timed = {.deadline.due = on_due};
    net_wheel_init(&wheel, 0);
    for (uint64_t now = 0; now < 200000; now += 50) {
        net_wheel_set(&wheel, &timed.deadline, now, now + 75000);
        assert_int_equal(wheel.count, 1);
        net_wheel_run(&wheel, now);
        net_wheel_check(&wheel);
    }
    assert_int_equal(timed.seen, 0);
    net_deadline_off(&timed.deadline);
    net_wheel_run(&wheel, 10000000);
    assert_int_equal(timed.seen, 0);
    assert_int_equal(wheel.count, 0);
}

static void moving_earlier_holds(void **state)
{
    (void)state;
    struct net_wheel wheel;
    struct timed timed = {.deadline.due = on_due};
    net_wheel_init(&wheel, 0);
    net_wheel_set(&wheel, &timed.deadline, 0, 75000);
    net_wheel_set(&wheel, &timed.deadline, 0, 300);
    net_wheel_run(&wheel, 500);
    assert_int_equal(timed.seen, 1);
}

static void remove_other(struct net_deadline *deadline, uint64_t now_ms);

static struct {
    struct net_wheel wheel;
    struct net_deadline both[2];
    unsigned seen;
} pair;

static void remove_other(struct net_deadline *deadline, uint64_t now_ms)
{
    (void)now_ms;
    pair.seen++;
    net_wheel_remove(&pair.wheel, &pair.both[deadline == &pair.both[0]]);
}

static void one_that_is_due_may_remove_another(void **state)
{
    (void)state;
    net_wheel_init(&pair.wheel, 0);
    pair.both[0].due = remove_other;
    pair.both[1].due = remove_other;
    net_wheel_set(&pair.wheel, &pair.both[0], 0, 100);
    net_wheel_set(&pair.wheel, &pair.both[1], 0, 100);
    net_wheel_run(&pair.wheel, 1000);
    assert_int_equal(pair.seen, 1);
    assert_int_equal(pair.wheel.count, 0);
}

static void addresses_are_read_and_written_alike(void **state)
{
    (void)state;
    struct net_address address;
    struct err err = {0};
    const char *good[] = {
        "127.0.0.1:7411", "0.0.0.0:0", "[::1]:65535", "[fe80::1]:80", "unix:/run/once.sock"};
    const bool local[] = {true, false, true, false, true};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_int_equal(net_address_parse(good[i], &address, &err), OK);
        assert_string_equal(address.text, good[i]);
        assert_int_equal(net_address_is_local(&address), local[i]);
    }
}

/* Tasks from other threads. */

enum { POSTERS = 4, POSTS = 20000 };

struct net_posted {
    struct net_task task; /* first */
    unsigned poster;
    unsigned number;
};

static struct {
    struct net_loop loop;
    unsigned next[POSTERS];
    unsigned ran;
    struct net_task end;
} posts;

static void run_posted(struct net_task *task)
{
    struct net_posted *posted = (struct net_posted *)(void *)task;
    ASSERT(posts.next[posted->poster] == posted->number); /* in the order of its poster */
    posts.next[posted->poster]++;
    posts.ran++;
    mem_free(&mem_libc, posted);
}

static void *post_many(void *arg)
{
    unsigned poster = *(unsigned *)arg;
    for (unsigned i = 0; i < POSTS; i++) {
        struct net_posted *posted = mem_alloc(&mem_libc, sizeof *posted);
        ASSERT(posted != NULL);
        *posted = (struct net_posted){.task = {.run = run_posted}, .poster = poster, .number = i};
        net_loop_post(&posts.loop, &posted->task);
        if (i % 512 == 0) {
            nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL); /* let the loop fall asleep */
        }
    }
    return NULL;
}

static void end_loop(struct net_task *task)
{
    (void)task;
    net_loop_close(&posts.loop);
}

static void every_posted_task_runs_in_order(void **state)
{
    (void)state;
    struct err err = {0};
    pthread_t threads[POSTERS];
    unsigned numbers[POSTERS];
    assert_int_equal(net_loop_init(&posts.loop, &mem_libc, &err), OK);
    assert_int_equal(net_loop_start(&posts.loop, &err), OK);
    for (unsigned i = 0; i < POSTERS; i++) {
        numbers[i] = i;
        assert_int_equal(pthread_create(&threads[i], NULL, post_many, &numbers[i]), 0);
    }
    for (unsigned i = 0; i < POSTERS; i++) {
        pthread_join(threads[i], NULL);
    }
    alarm(30); /* a task that is never run would be waited for without end */
    posts.end.run = end_loop;
    net_loop_post(&posts.loop, &posts.end);
    net_loop_release(&posts.loop);
    alarm(0);
    assert_int_equal(posts.ran, POSTERS * POSTS);
}

/* A descriptor beside the streams. */

enum { SEEN = 3 };

static struct {
    struct net_loop loop;
    struct net_task begin;
    struct net_task end;
    int fds[2];
    unsigned seen;
    bool is_watched;
    bool takes_another;
} watching;

static void make_readable(int fd)
{
    uint64_t one = 1;
    ASSERT(write(fd, &one, sizeof one) == (ssize_t)sizeof one);
}

static void on_watched(void *context)
{
    uint64_t count;
    ASSERT(context == &watching);
    ASSERT(read(watching.fds[0], &count, sizeof count) == (ssize_t)sizeof count);
    if (++watching.seen == SEEN) {
        ASSERT(net_loop_watch(&watching.loop, -1, NULL));
        net_loop_post(&watching.loop, &watching.end);
    }
    make_readable(watching.fds[0]);
}

static void begin_watching(struct net_task *task)
{
    (void)task;
    struct net_loop *loop = &watching.loop;
    ASSERT(net_loop_watch(loop, -1, NULL)); /* there is none yet */
    watching.is_watched = net_loop_watch(loop, watching.fds[0], on_watched) &&
                          net_loop_watch(loop, watching.fds[0], on_watched);
    watching.takes_another = net_loop_watch(loop, watching.fds[1], on_watched);
}

static void end_watching(struct net_task *task)
{
    (void)task;
    net_loop_close(&watching.loop);
    ASSERT(!net_loop_watch(&watching.loop, watching.fds[0], on_watched)); /* it is ending */
    ASSERT(net_loop_watch(&watching.loop, -1, NULL));
}

static void a_descriptor_is_watched_until_it_is_no_longer(void **state)
{
    (void)state;
    struct err err = {0};
    watching.fds[0] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    watching.fds[1] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    assert_int_equal(net_loop_init(&watching.loop, &mem_libc, &err), OK);
    watching.loop.context = &watching;
    watching.begin.run = begin_watching;
    watching.end.run = end_watching;
    net_loop_post(&watching.loop, &watching.begin);
    make_readable(watching.fds[0]);
    alarm(30);
    assert_int_equal(net_loop_start(&watching.loop, &err), OK);
    net_loop_release(&watching.loop);
    alarm(0);
    assert_true(watching.is_watched);
    assert_false(watching.takes_another);
    assert_int_equal(watching.seen, SEEN);
    (void)close(watching.fds[0]);
    (void)close(watching.fds[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_deadline_is_seen_once_and_never_early),
        TEST(setting_a_deadline_again_does_not_put_it_off),
        TEST(moving_later_costs_nothing_and_holds),
        TEST(moving_earlier_holds),
        TEST(one_that_is_due_may_remove_another),
        TEST(addresses_are_read_and_written_alike),
        TEST(every_posted_task_runs_in_order),
        TEST(a_descriptor_is_watched_until_it_is_no_longer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
