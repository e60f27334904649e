#include "outcall/quiet.h"

#include "base/check.h"

enum { STEP_MS_MIN = 10 }; /* two clocks read to the millisecond differ by less */

void quiet_note(struct quiet_watch *watch, int64_t now_ms, int64_t awake_ms)
{
    int64_t offset_ms = now_ms - awake_ms;
    if (!watch->has_begun || offset_ms > watch->offset_ms + STEP_MS_MIN) {
        *watch =
            (struct quiet_watch){.has_begun = true, .since_ms = now_ms, .offset_ms = offset_ms};
    }
}

int64_t quiet_for_ms(const struct quiet_watch *watch, int64_t unknown_ms, int64_t now_ms)
{
    ASSERT(watch->has_begun);
    int64_t from_ms = unknown_ms > watch->since_ms ? unknown_ms : watch->since_ms;
    return now_ms > from_ms ? now_ms - from_ms : 0;
}
