/*
 * clock_shim: a wall clock that a test sets, for a program that is started with this library in
 * LD_PRELOAD. CLOCK_REALTIME, gettimeofday and time are ahead of the machine's by the number of
 * milliseconds (decimal, may be negative) in the file that ONCE_TEST_CLOCK_FILE names; the file is
 * read again at each call, so a test steps the clock by replacing it. A second number there is how
 * long the machine slept: CLOCK_BOOTTIME is ahead by it, and the wall clock by both. Every other
 * clock is the machine's own, as after a sleep. A number that is absent means 0.
 *
 * While the file that ONCE_TEST_HOLD_FILE names exists, fdatasync waits: what was decided is not
 * durable yet, and whoever waits for it stands still. The file NAME.held says that one waits.
 *
 * tests/http/stepping_clock.py is the other half.
 */
#define _GNU_SOURCE 1
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "plain_writes.h"

#define EXPORT __attribute__((visibility("default")))

enum { NANOS = 1000000000 };

static long long offset_ms(int is_wall)
{
    char text[64] = "";
    const char *path = getenv("ONCE_TEST_CLOCK_FILE");
    int fd = path == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return 0;
    }
    ssize_t got = read(fd, text, sizeof text - 1);
    (void)close(fd);
    char *end = text;
    long long step_ms = got > 0 ? strtoll(text, &end, 10) : 0;
    long long asleep_ms = strtoll(end, NULL, 10);
    return is_wall ? step_ms + asleep_ms : asleep_ms;
}

EXPORT int clock_gettime(clockid_t id, struct timespec *ret_time)
{
    if (syscall(SYS_clock_gettime, id, ret_time) != 0) {
        return -1;
    }
    int is_wall = id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE;
    if (is_wall || id == CLOCK_BOOTTIME) {
        int before = errno;
        long long ms = offset_ms(is_wall);
        long long nanos = ret_time->tv_nsec + ms % 1000 * 1000000;
        long long carry = nanos < 0 ? -1 : nanos >= NANOS ? 1 : 0;
        ret_time->tv_sec += (time_t)(ms / 1000 + carry);
        ret_time->tv_nsec = (long)(nanos - carry * NANOS);
        errno = before;
    }
    return 0;
}

EXPORT int gettimeofday(struct timeval *restrict ret_time, void *restrict zone)
{
    struct timespec now;
    (void)zone;
    int failed = clock_gettime(CLOCK_REALTIME, &now);
    *ret_time = (struct timeval){.tv_sec = now.tv_sec, .tv_usec = now.tv_nsec / 1000};
    return failed;
}

EXPORT time_t time(time_t *ret_time)
{
    struct timespec now;
    int failed = clock_gettime(CLOCK_REALTIME, &now);
    time_t seconds = failed == 0 ? now.tv_sec : (time_t)-1;
    if (ret_time != NULL) {
        *ret_time = seconds;
    }
    return seconds;
}

EXPORT int fdatasync(int fd)
{
    const char *path = getenv("ONCE_TEST_HOLD_FILE");
    struct timespec pause = {.tv_nsec = 5000000};
    char held[4096];
    if (path != NULL && access(path, F_OK) == 0) {
        (void)snprintf(held, sizeof held, "%s.held", path);
        (void)close(open(held, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
        while (access(path, F_OK) == 0) {
            (void)nanosleep(&pause, NULL);
        }
    }
    return (int)syscall(SYS_fdatasync, fd);
}
