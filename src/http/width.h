/*
 * width: how many of a server's loops should serve.
 *
 * As few as carry the load: one loop that serves all connections makes fuller batches and is woken
 * less often than two that share them. But a loop that is busy must not be a limit.
 *
 *   n --one of the n was hot for WIDTH_HOT_NS------------------------------> n + 1
 *   n --n - 1 would have carried it for patience_ns, and none was hot------> n - 1
 *
 * Promises:  the answer is 1 to loops, and changes by one at a time. It narrows only after
 *            patience_ns, which doubles each time that it has to widen again soon.
 * Does not:  read a clock, or know what a loop is.
 */
#ifndef ONCE_HTTP_WIDTH_H
#define ONCE_HTTP_WIDTH_H

#include <stdint.h>

enum {
    WIDTH_HOT_PERCENT = 85,          /* of a core: more, and requests wait for one another */
    WIDTH_FIT_PERCENT = 60,          /* of a core for each loop that stays: a margin below hot */
    WIDTH_HOT_NS = 300 * 1000000,    /* shorter than a person notices, longer than one request */
    WIDTH_SAMPLE_NS = 500 * 1000000, /* one sample counts for this much at most: the clock may have
                                        jumped, or all threads were stopped */
    WIDTH_SOON = 4,                  /* widening within this many patience_ns is soon */
};
#define WIDTH_PATIENCE_NS     (UINT64_C(3) * 1000000000)
#define WIDTH_PATIENCE_NS_MAX (UINT64_C(300) * 1000000000)
#define WIDTH_GAP_NS          (UINT64_C(10) * 1000000000) /* longer ago is not now */

struct width {
    unsigned loops;       /* that there are */
    unsigned serving;     /* of them */
    uint64_t at_ns;       /* of the last sample; 0: there was none */
    uint64_t busiest_ns;  /* of one loop, since then */
    uint64_t total_ns;    /* of all that serve, since then */
    uint64_t hot_ns;      /* how long one has been hot without a break */
    uint64_t calm_ns;     /* how long one fewer would have done, without a break */
    uint64_t patience_ns; /* how long that must be */
    uint64_t narrowed_ns; /* when it last narrowed; 0: never */
};

void width_init(struct width *width, unsigned loops);
/* How long one serving loop was busy since the last sample … */
void width_took(struct width *width, uint64_t busy_ns);
/* … and once for all of them, when the sample ends. Returns serving. The time counts from anywhere
 * after 0, and should only count forward. */
unsigned width_sampled(struct width *width, uint64_t now_ns);
/* Asserts what holds. */
void width_check(const struct width *width);

#endif
