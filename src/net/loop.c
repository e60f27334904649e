#include "net/loop.h"

#include <errno.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"

/* Instead of uv_async_send: with it, a loop that wakes before its waker has returned from the
 * system call spins until it has. If all cores are busy, that takes the waker's next turn. */
static void wake(struct net_loop *loop)
{
    int rc = eventfd_write(loop->wake_fd, 1);
    ASSERT(rc == 0); /* the loop reads it long before it is full */
}

void net_loop_post(struct net_loop *loop, struct net_task *task)
{
    struct net_task *first = atomic_load_explicit(&loop->tasks, memory_order_relaxed);
    do {
        task->next = first;
    } while (!atomic_compare_exchange_weak(&loop->tasks, &first, task));
    /* The loop sets its sleep flag and then reads the list; we push and then read the flag. So at
     * least one of the two sees the other. */
    if (atomic_load(&loop->is_asleep) && atomic_exchange(&loop->is_asleep, false)) {
        wake(loop);
    }
}

uint64_t net_loop_busy(const struct net_loop *loop)
{
    int clock = atomic_load(&loop->clock);
    return clock == 0 ? 0 : clock_thread_nanos(clock);
}

static void run_tasks(struct net_loop *loop)
{
    struct net_task *newest = atomic_exchange(&loop->tasks, NULL);
    struct net_task *oldest = NULL;
    while (newest != NULL) {
        struct net_task *next = newest->next;
        newest->next = oldest;
        oldest = newest;
        newest = next;
    }
    while (oldest != NULL) {
        struct net_task *next = oldest->next; /* run may free or post it again */
        oldest->run(oldest);
        oldest = next;
    }
}

static void on_prepare(uv_prepare_t *prepare)
{
    struct net_loop *loop = prepare->data;
    for (unsigned round = 0; round < NET_ROUNDS_MAX; round++) {
        run_tasks(loop);
        if (loop->turn != NULL) {
            loop->turn(loop->context);
        }
        atomic_store(&loop->is_asleep, true);
        if (atomic_load(&loop->tasks) == NULL) {
            return;
        }
        atomic_store(&loop->is_asleep, false);
    }
    wake(loop); /* there is more: poll for input, then continue */
}

static void on_check(uv_check_t *check)
{
    struct net_loop *loop = check->data;
    atomic_store(&loop->is_asleep, false);
}

static void on_wake(uv_poll_t *poll, int status, int events)
{
    struct net_loop *loop = poll->data;
    eventfd_t count;
    (void)status;
    (void)events;
    (void)eventfd_read(loop->wake_fd, &count); /* on_prepare does the work */
}

static void on_tick(uv_timer_t *timer)
{
    struct net_loop *loop = timer->data;
    net_wheel_run(&loop->wheel, net_loop_now(loop));
    if (loop->wheel.count == 0) {
        uv_timer_stop(timer);
    }
}

void net_loop_deadline(struct net_loop *loop, struct net_deadline *deadline, uint64_t at_ms)
{
    net_wheel_set(&loop->wheel, deadline, net_loop_now(loop), at_ms);
    if (!uv_is_active((uv_handle_t *)&loop->ticker)) {
        int rc = uv_timer_start(&loop->ticker, on_tick, NET_TICK_MS, NET_TICK_MS);
        ASSERT(rc == 0);
    }
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    struct net_loop *loop = poll->data;
    (void)status; /* the watcher finds the error itself */
    (void)events;
    loop->watched(loop->context);
}

bool net_loop_watch(struct net_loop *loop, int fd, void (*watched)(void *context))
{
    if (uv_is_closing((uv_handle_t *)&loop->prepare)) {
        return fd < 0;
    }
    if (fd < 0) {
        return loop->poll_fd < 0 || uv_poll_stop(&loop->poll) == 0;
    }
    if (loop->poll_fd >= 0 && loop->poll_fd != fd) {
        return false;
    }
    if (loop->poll_fd < 0) {
        if (uv_poll_init(&loop->uv, &loop->poll, fd) != 0) {
            return false;
        }
        loop->poll_fd = fd;
        loop->poll.data = loop;
    }
    loop->watched = watched;
    return uv_poll_start(&loop->poll, UV_READABLE, on_poll) == 0;
}

/* The handle that ends the wait. Returns an error of libuv, or 0. */
static int wake_init(struct net_loop *loop)
{
    loop->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (loop->wake_fd < 0) {
        return uv_translate_sys_error(errno);
    }
    int rc = uv_poll_init(&loop->uv, &loop->wake, loop->wake_fd);
    if (rc != 0) {
        (void)close(loop->wake_fd); /* an eventfd has nothing to lose */
        return rc;
    }
    loop->wake.data = loop;
    rc = uv_poll_start(&loop->wake, UV_READABLE, on_wake);
    ASSERT(rc == 0);
    return 0;
}

enum status net_loop_init(struct net_loop *loop, const struct mem *mem, struct err *err)
{
    *loop = (struct net_loop){.mem = mem, .poll_fd = -1};
    loop->scratch = mem_alloc(mem, NET_SCRATCH_BYTES);
    if (loop->scratch == NULL) {
        return err_set(err, E_NOMEM, "out of memory");
    }
    int rc = uv_loop_init(&loop->uv);
    if (rc != 0) {
        mem_free(mem, loop->scratch);
        return err_set(err, E_UNAVAILABLE, "cannot make an event loop: %s", uv_strerror(rc));
    }
    rc = wake_init(loop);
    if (rc != 0) {
        int closed = uv_loop_close(&loop->uv);
        ASSERT(closed == 0);
        mem_free(mem, loop->scratch);
        return err_set(err, E_UNAVAILABLE, "cannot make an event loop: %s", uv_strerror(rc));
    }
    uv_prepare_init(&loop->uv, &loop->prepare);
    uv_check_init(&loop->uv, &loop->check);
    uv_timer_init(&loop->uv, &loop->ticker);
    loop->prepare.data = loop;
    loop->check.data = loop;
    loop->ticker.data = loop;
    uv_prepare_start(&loop->prepare, on_prepare);
    uv_check_start(&loop->check, on_check);
    net_wheel_init(&loop->wheel, uv_now(&loop->uv));
    loop->is_ready = true;
    return OK;
}

static void *loop_main(void *arg)
{
    struct net_loop *loop = arg;
    (void)pthread_setname_np(pthread_self(), "once-loop");
    atomic_store(&loop->clock, clock_of_thread());
    uv_run(&loop->uv, UV_RUN_DEFAULT);
    return NULL;
}

enum status net_loop_start(struct net_loop *loop, struct err *err)
{
    /* Signals belong to the main thread; with SIGPIPE blocked, a write to a closed peer fails
     * instead. */
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&loop->thread, NULL, loop_main, loop);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc != 0) {
        return err_errno(err, E_UNAVAILABLE, rc, "cannot start a thread");
    }
    loop->is_started = true;
    return OK;
}

void net_loop_close(struct net_loop *loop)
{
    uv_close((uv_handle_t *)&loop->wake, NULL);
    uv_close((uv_handle_t *)&loop->prepare, NULL);
    uv_close((uv_handle_t *)&loop->check, NULL);
    uv_close((uv_handle_t *)&loop->ticker, NULL);
    if (loop->poll_fd >= 0) {
        uv_close((uv_handle_t *)&loop->poll, NULL);
    }
}

void net_loop_release(struct net_loop *loop)
{
    if (!loop->is_ready) {
        return;
    }
    if (loop->is_started) {
        int rc = pthread_join(loop->thread, NULL);
        ASSERT(rc == 0);
    } else {
        uv_run(&loop->uv, UV_RUN_DEFAULT);
    }
    int rc = uv_loop_close(&loop->uv);
    ASSERT(rc == 0);
    (void)close(loop->wake_fd);
    mem_free(loop->mem, loop->scratch);
    loop->is_ready = false;
}
