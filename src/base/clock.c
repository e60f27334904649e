#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"

static int64_t read_ms(clockid_t id)
{
    struct timespec now;
    int failed = clock_gettime(id, &now);
    ASSERT(failed == 0);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static struct clock_reading system_read(void *context)
{
    (void)context;
    return (struct clock_reading){read_ms(CLOCK_REALTIME), read_ms(CLOCK_BOOTTIME)};
}

static int64_t system_asleep_ms(void *context)
{
    (void)context;
    return read_ms(CLOCK_BOOTTIME) - read_ms(CLOCK_MONOTONIC);
}

/* FNV-1a of the kernel's boot id. Zero, "not known", if there is no /proc. */
static uint64_t system_boot_id(void)
{
    char text[64];
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return 0;
    }
    ssize_t got = read(fd, text, sizeof text);
    (void)close(fd); /* read only: nothing can be lost */

    uint64_t hash = 0xcbf29ce484222325;
    for (ssize_t i = 0; i < got; i++) {
        hash = (hash ^ (unsigned char)text[i]) * 0x100000001b3;
    }
    return got > 0 ? hash : 0;
}

void clock_system(struct clock *ret_clock)
{
    *ret_clock = (struct clock){
        .read = system_read, .asleep_ms = system_asleep_ms, .boot_id = system_boot_id()};
}

struct clock_reading clock_read(const struct clock *clock)
{
    return clock->read(clock->context);
}

int64_t clock_asleep_ms(const struct clock *clock)
{
    return clock->asleep_ms == NULL ? 0 : clock->asleep_ms(clock->context);
}

int64_t clock_boot_ms(void)
{
    return read_ms(CLOCK_BOOTTIME);
}

uint64_t clock_nanos(void)
{
    struct timespec now;
    int failed = clock_gettime(CLOCK_MONOTONIC, &now);
    ASSERT(failed == 0);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

int clock_of_thread(void)
{
    clockid_t id;
    int rc = pthread_getcpuclockid(pthread_self(), &id);
    ASSERT(rc == 0);
    return id;
}

uint64_t clock_thread_nanos(int clock)
{
    struct timespec used;
    if (clock_gettime(clock, &used) != 0) {
        return 0;
    }
    return (uint64_t)used.tv_sec * 1000000000u + (uint64_t)used.tv_nsec;
}

void clock_sleep_ms(int64_t ms)
{
    struct timespec left = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    while (nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
}
