#include "engine/pace.h"

#include "base/check.h"
#include "base/clock.h"

enum {
    STEP = 16,                     /* each flush moves the median by this part of it … */
    TYPICAL_NANOS_MIN = 16 * 1024, /* … and not to where that part is nothing */
};

void pace_init(struct pace *pace)
{
    *pace = (struct pace){.state = PACE_QUICK,
        .typical_nanos = PACE_QUICK_NANOS, /* a few slow ones, and it is slow */
        .calm_ms = PACE_CALM_MS,
        .returned_ms = INT64_MIN / 2}; /* it never was slow */
}

void pace_check(const struct pace *pace)
{
    ASSERT(pace->calm_ms >= PACE_CALM_MS && pace->calm_ms <= PACE_CALM_MS_MAX);
    ASSERT(pace->typical_nanos >= TYPICAL_NANOS_MIN);
    ASSERT(pace->state == PACE_SLOW || pace->typical_nanos <= PACE_SLOW_NANOS);
    ASSERT(pace->state == PACE_QUICK || pace->slowdowns > 0);
}

/* Every change of state. */
static void pace_move(struct pace *pace, enum pace_state state, int64_t boot_ms)
{
    ASSERT(pace->state != state);
    pace->state = state;
    switch (state) {
    case PACE_SLOW: {
        bool soon = boot_ms - pace->returned_ms < PACE_SOON * pace->calm_ms;
        pace->calm_ms = soon ? clock_doubled_ms(pace->calm_ms, PACE_CALM_MS_MAX) : PACE_CALM_MS;
        pace->stalled_ms = boot_ms;
        pace->slowdowns++;
        break;
    }
    case PACE_QUICK: pace->returned_ms = boot_ms; break;
    }
    pace_check(pace);
}

void pace_flush_took(struct pace *pace, uint64_t nanos, int64_t boot_ms)
{
    nanos /= PACE_FLIGHT;
    pace_took(pace, nanos < PACE_STALL_NANOS ? nanos : PACE_STALL_NANOS - 1, boot_ms);
}

void pace_took(struct pace *pace, uint64_t nanos, int64_t boot_ms)
{
    uint64_t step = pace->typical_nanos / STEP;
    if (nanos > pace->typical_nanos) {
        pace->typical_nanos += step;
    } else if (pace->typical_nanos - step >= TYPICAL_NANOS_MIN) {
        pace->typical_nanos -= step;
    }
    bool stalls = nanos >= PACE_STALL_NANOS;
    pace->stalled_ms = stalls ? boot_ms : pace->stalled_ms;
    if (pace->state == PACE_QUICK && (stalls || pace->typical_nanos > PACE_SLOW_NANOS)) {
        pace_move(pace, PACE_SLOW, boot_ms);
    } else if (pace->state == PACE_SLOW && pace->typical_nanos < PACE_QUICK_NANOS &&
               boot_ms - pace->stalled_ms >= pace->calm_ms) {
        pace_move(pace, PACE_QUICK, boot_ms);
    }
    pace_check(pace);
}
