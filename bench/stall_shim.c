/*
 * stall_shim: a disk that stalls now and then, for a program that is started with this library in
 * LD_PRELOAD. Every BENCH_STALL_EVERY_MS one fdatasync takes BENCH_STALL_MS longer, and with it all
 * that wait for it.
 */
#include <pthread.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static long long setting(const char *name)
{
    const char *text = getenv(name);
    return text == NULL ? 0 : strtoll(text, NULL, 10);
}

static int is_due(void)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static long long next_ms;
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    long long now_ms = (long long)now.tv_sec * 1000 + now.tv_nsec / 1000000;
    (void)pthread_mutex_lock(&lock);
    int due = next_ms != 0 && now_ms >= next_ms;
    if (due || next_ms == 0) {
        next_ms = now_ms + setting("BENCH_STALL_EVERY_MS");
    }
    (void)pthread_mutex_unlock(&lock);
    return due;
}

__attribute__((visibility("default"))) int fdatasync(int fd)
{
    if (is_due()) {
        long long ms = setting("BENCH_STALL_MS");
        (void)nanosleep(
            &(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
    }
    return (int)syscall(SYS_fdatasync, fd);
}
