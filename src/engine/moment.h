/*
 * moment: the engine's time, which never goes back and does not believe jumps (P8).
 *
 * The wall clock is followed while it agrees with the boot clock. When it steps back, or ahead by
 * more than a minute, the boot clock carries the time on alone and `held` says so: a wrong clock
 * must neither end a window early nor let a lease run out. The time of the last commit is kept in
 * the store, so all this holds across restarts; after a restart of the machine itself there is no
 * boot clock to compare with, and the wall clock is believed unless it is behind.
 *
 * Many small steps do not add up to a jump: all of them together stay within a minute plus a
 * thousandth of the time since the machine started, more than any clock discipline slews. The
 * origin is where moment_init began: the store's last commit when that was in this start of the
 * machine, and otherwise the opening. How much of the minute was used up by then is part of the
 * commit, so that a restart of the process does not grant it again.
 */
#ifndef ONCE_ENGINE_MOMENT_H
#define ONCE_ENGINE_MOMENT_H

#include "store/store.h"

struct moment {
    const struct clock *clock;
    int64_t time_ms;        /* the latest engine time */
    int64_t boot_ms;        /* the boot clock then */
    int64_t origin_time_ms; /* the last commit of this boot, or the opening … */
    int64_t origin_boot_ms; /* … on both clocks … */
    int64_t origin_jump_ms; /* … and what had been used up of the tolerated jump */
    bool held;              /* the wall clock is ahead of what we believe */
};

/* Start from the last commit of a store; all zero for a new one. */
void moment_init(struct moment *moment, const struct clock *clock, const struct store_moment *last);
/* Read the clocks and advance. */
struct store_moment moment_now(struct moment *moment);

#endif
