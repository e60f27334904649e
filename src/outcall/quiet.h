/*
 * quiet: how long a lost attempt has certainly been quiet, before the remote server's "it did not
 * happen" is accepted. Pure.
 *
 * Promises:  no step of a clock and no sleep of the machine counts as quiet time. The store's time
 *            follows small steps of the wall clock and goes on while the machine sleeps, and the
 *            server on the same machine sleeps too. If either shortened the quiet time, the work
 *            would be done again while the first request still runs (P1, P5).
 * Does not:  read a clock.
 * Threads:   the caller's lock guards a watch.
 */
#ifndef ONCE_OUTCALL_QUIET_H
#define ONCE_OUTCALL_QUIET_H

#include <stdbool.h>
#include <stdint.h>

/* How long the store's time has run evenly. */
struct quiet_watch {
    bool has_begun;
    int64_t since_ms;  /* store time of the first reading, or of the reading after the last step */
    int64_t offset_ms; /* store time minus the time that the machine was awake, since then */
};

/* Note a reading of both clocks: awake_ms is the boot clock without the time asleep
 * (clock_asleep_ms). Readings may come out of order. */
void quiet_note(struct quiet_watch *watch, int64_t now_ms, int64_t awake_ms);
/* How long, at now_ms, a record has been unknown without a step: since unknown_ms, or since the
 * watch began, whichever is later; never negative. Both are store time. */
int64_t quiet_for_ms(const struct quiet_watch *watch, int64_t unknown_ms, int64_t now_ms);

#endif
