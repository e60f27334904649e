#include "store/clock.h"

#include "base/check.h"
#include "base/limits.h"

void store_clock_init(
    struct store_clock *self, const struct clock *clock, const struct store_moment *last)
{
    struct clock_reading now = clock_read(clock);
    bool same_boot = last->time_ms > 0 && last->boot_id != 0 && last->boot_id == clock->boot_id &&
                     now.boot_ms >= last->boot_ms;
    *self = (struct store_clock){.clock = clock};
    if (same_boot) {
        self->time_ms = last->time_ms;
        self->boot_ms = last->boot_ms;
        self->origin_jump_ms =
            last->jump_ms < LIMIT_CLOCK_JUMP_MS_MAX ? last->jump_ms : LIMIT_CLOCK_JUMP_MS_MAX;
    } else {
        self->time_ms = now.wall_ms > last->time_ms ? now.wall_ms : last->time_ms;
        self->boot_ms = now.boot_ms;
    }
    self->origin_time_ms = self->time_ms;
    self->origin_boot_ms = self->boot_ms;
}

/* How far the wall clock was followed ahead of the boot clock, minus what time has restored. */
static int64_t jump_used_ms(const struct store_clock *self, int64_t run_ms)
{
    int64_t ahead_ms = self->time_ms - self->origin_time_ms - run_ms;
    int64_t used_ms = self->origin_jump_ms + ahead_ms - run_ms / 1000;
    ASSERT(ahead_ms >= 0);
    ASSERT(used_ms <= LIMIT_CLOCK_JUMP_MS_MAX); /* P8 */
    return used_ms > 0 ? used_ms : 0;
}

struct store_moment store_clock_now(struct store_clock *self)
{
    struct clock_reading now = clock_read(self->clock);
    if (now.boot_ms > self->boot_ms) {
        self->time_ms += now.boot_ms - self->boot_ms;
        self->boot_ms = now.boot_ms;
    }
    int64_t run_ms = self->boot_ms - self->origin_boot_ms;
    int64_t jump_max_ms = LIMIT_CLOCK_JUMP_MS_MAX - self->origin_jump_ms + run_ms / 1000;
    int64_t believed_ms = self->origin_time_ms + run_ms + jump_max_ms;
    self->held = now.wall_ms > believed_ms;
    if (now.wall_ms > self->time_ms && !self->held) {
        self->time_ms = now.wall_ms;
    }
    ASSERT(self->time_ms >= self->origin_time_ms); /* P8 */
    return (struct store_moment){.time_ms = self->time_ms,
        .boot_ms = self->boot_ms,
        .boot_id = self->clock->boot_id,
        .jump_ms = jump_used_ms(self, run_ms)};
}

int64_t store_clock_reader_ms(const struct store_moment *last)
{
    struct clock clock;
    struct store_clock self;
    clock_system(&clock);
    store_clock_init(&self, &clock, last);
    return store_clock_now(&self).time_ms;
}
