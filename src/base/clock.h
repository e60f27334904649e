/*
 * clock: the only place that reads the system's clocks.
 *
 * Time reaches everything else as an argument. Two readings exist: the wall clock (which people
 * set, and which jumps) and the boot clock (which only counts forward and includes sleep).
 */
#ifndef ONCE_BASE_CLOCK_H
#define ONCE_BASE_CLOCK_H

#include <stdint.h>

struct clock_reading {
    int64_t wall_ms; /* since 1970, UTC */
    int64_t boot_ms; /* since this machine started; never goes back while it is up */
};

struct clock {
    struct clock_reading (*read)(void *context);
    int64_t (*asleep_ms)(void *context); /* NULL: it never sleeps */
    uint64_t boot_id;                    /* identifies this boot of the machine; 0 if not known */
    void *context;                       /* passed to read */
};

/* The machine's own clocks. */
void clock_system(struct clock *ret_clock);
struct clock_reading clock_read(const struct clock *clock);
/* How long the machine has slept since it started: the boot clock counts this time, but no program
 * ran in it. */
int64_t clock_asleep_ms(const struct clock *clock);
/* The boot clock of the machine: for a wait that continues while the machine sleeps. */
int64_t clock_boot_ms(void);
/* Monotonic nanoseconds, for measuring how long something took. They stop while it sleeps. */
uint64_t clock_nanos(void);
/* The clock of the processor time of the thread that calls, for clock_thread_nanos. */
int clock_of_thread(void);
/* Nanoseconds of processor time that the thread of that clock has used; 0: it has ended. Any
 * thread. */
uint64_t clock_thread_nanos(int clock);

/* Sleep this long, whatever signals come. */
void clock_sleep_ms(int64_t ms);

/* The pause after this one: twice as long, up to the longest. */
static inline int64_t clock_doubled_ms(int64_t ms, int64_t ms_max)
{
    return ms > ms_max / 2 ? ms_max : 2 * ms;
}

#endif
