/*
 * clock: the time of a store on this machine; it never goes back and does not follow jumps (P8).
 *
 * Embedded stores own a clock and return its time with every prepare. A store on a server uses the
 * server's time instead.
 *
 * The wall clock is followed while it agrees with the boot clock. When it steps back, or ahead by
 * more than a minute, the time follows the boot clock alone and `held` is set: a wrong clock must
 * neither end a window early nor let a lease run out. The time of the last commit is kept in the
 * store, so all this holds across restarts of the process. After a restart of the machine there is
 * no boot clock to compare with, and the wall clock is followed unless it is behind.
 *
 * Many small steps do not add up to a jump: all of them together stay within a minute plus a
 * thousandth of the time since the machine started, more than any clock discipline slews. The
 * origin is where store_clock_init began: the store's last commit when that was in this start of
 * the machine, and otherwise the opening. The part of the minute that is used up is stored with the
 * commit, so that a restart of the process does not allow it again.
 */
#ifndef ONCE_STORE_CLOCK_H
#define ONCE_STORE_CLOCK_H

#include "store/store.h"

struct store_clock {
    const struct clock *clock;
    int64_t time_ms;        /* the latest time returned */
    int64_t boot_ms;        /* the boot clock at that time */
    int64_t origin_time_ms; /* the last commit since this boot, or the opening … */
    int64_t origin_boot_ms; /* … on both clocks … */
    int64_t origin_jump_ms; /* … and how much of the tolerated jump was used up */
    bool held;              /* the wall clock is ahead and is not followed */
};

/* Starts from the last commit of a store; all zero for a new store. */
void store_clock_init(
    struct store_clock *self, const struct clock *clock, const struct store_moment *last);
/* Reads the clocks and advances. */
struct store_moment store_clock_now(struct store_clock *self);
/* What a process that opened the embedded store now would get, for one that only reads it: `last`
 * is the last commit. */
int64_t store_clock_reader_ms(const struct store_moment *last);

#endif
