#include "engine/moment.h"

#include "base/check.h"
#include "base/limits.h"

void moment_init(struct moment *moment, const struct clock *clock, const struct store_moment *last)
{
    struct clock_reading now = clock_read(clock);
    bool same_boot = last->time_ms > 0 && last->boot_id != 0 && last->boot_id == clock->boot_id &&
                     now.boot_ms >= last->boot_ms;
    *moment = (struct moment){.clock = clock};
    if (same_boot) {
        moment->time_ms = last->time_ms;
        moment->boot_ms = last->boot_ms;
        moment->origin_jump_ms =
            last->jump_ms < LIMIT_CLOCK_JUMP_MS_MAX ? last->jump_ms : LIMIT_CLOCK_JUMP_MS_MAX;
    } else {
        moment->time_ms = now.wall_ms > last->time_ms ? now.wall_ms : last->time_ms;
        moment->boot_ms = now.boot_ms;
    }
    moment->origin_time_ms = moment->time_ms;
    moment->origin_boot_ms = moment->boot_ms;
}

/* How far the wall clock was followed ahead of the boot clock, less what time has given back. */
static int64_t jump_used_ms(const struct moment *moment, int64_t run_ms)
{
    int64_t ahead_ms = moment->time_ms - moment->origin_time_ms - run_ms;
    int64_t used_ms = moment->origin_jump_ms + ahead_ms - run_ms / 1000;
    ASSERT(ahead_ms >= 0);
    ASSERT(used_ms <= LIMIT_CLOCK_JUMP_MS_MAX); /* P8 */
    return used_ms > 0 ? used_ms : 0;
}

struct store_moment moment_now(struct moment *moment)
{
    struct clock_reading now = clock_read(moment->clock);
    if (now.boot_ms > moment->boot_ms) {
        moment->time_ms += now.boot_ms - moment->boot_ms;
        moment->boot_ms = now.boot_ms;
    }
    int64_t run_ms = moment->boot_ms - moment->origin_boot_ms;
    int64_t jump_max_ms = LIMIT_CLOCK_JUMP_MS_MAX - moment->origin_jump_ms + run_ms / 1000;
    int64_t believed_ms = moment->origin_time_ms + run_ms + jump_max_ms;
    moment->held = now.wall_ms > believed_ms;
    if (now.wall_ms > moment->time_ms && !moment->held) {
        moment->time_ms = now.wall_ms;
    }
    ASSERT(moment->time_ms >= moment->origin_time_ms); /* P8 */
    return (struct store_moment){.time_ms = moment->time_ms,
        .boot_ms = moment->boot_ms,
        .boot_id = moment->clock->boot_id,
        .jump_ms = jump_used_ms(moment, run_ms)};
}
