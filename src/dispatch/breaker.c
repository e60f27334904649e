#include "dispatch/breaker.h"

#include "base/check.h"

#define TO(state) (1u << BREAKER_##state)

void breaker_check(const struct breaker *breaker)
{
    ASSERT(breaker->state <= BREAKER_HALF_OPEN);
    ASSERT(breaker->state != BREAKER_OPEN || breaker->failures == 0); /* BK1 */
}

static void move(struct breaker *breaker, enum breaker_state state)
{
    static const unsigned nexts[] = {
        [BREAKER_CLOSED] = TO(OPEN),
        [BREAKER_OPEN] = TO(HALF_OPEN),
        [BREAKER_HALF_OPEN] = TO(CLOSED) | TO(OPEN),
    };
    ASSERT((nexts[breaker->state] & 1u << state) != 0);
    breaker->state = state;
    breaker->turn++;
    breaker->opened += state == BREAKER_OPEN ? 1 : 0;
    breaker_check(breaker);
}

static void open(struct breaker *breaker, const struct breaker_rule *rule, int64_t now_ms)
{
    breaker->until_ms = now_ms + rule->pause_ms;
    breaker->failures = 0;
    move(breaker, BREAKER_OPEN);
}

bool breaker_admits(const struct breaker *breaker, int64_t now_ms)
{
    return breaker->state == BREAKER_CLOSED ||
           (breaker->state == BREAKER_OPEN && now_ms >= breaker->until_ms);
}

uint64_t breaker_begin(struct breaker *breaker, int64_t now_ms)
{
    ASSERT(breaker_admits(breaker, now_ms)); /* BK2 */
    if (breaker->state == BREAKER_OPEN) {
        move(breaker, BREAKER_HALF_OPEN);
    }
    return breaker->turn;
}

void breaker_report(struct breaker *breaker, const struct breaker_rule *rule, uint64_t ticket,
    bool is_well, int64_t now_ms)
{
    if (ticket != breaker->turn) {
        return; /* BK3 */
    }
    if (is_well) {
        breaker->failures = 0;
        if (breaker->state == BREAKER_HALF_OPEN) {
            move(breaker, BREAKER_CLOSED);
        }
        return;
    }
    breaker->failures++;
    bool is_enough = rule->failures > 0 && breaker->failures >= rule->failures;
    if (breaker->state == BREAKER_HALF_OPEN || is_enough) {
        open(breaker, rule, now_ms);
    }
}

void breaker_abandon(struct breaker *breaker, uint64_t ticket, int64_t now_ms)
{
    if (ticket == breaker->turn && breaker->state == BREAKER_HALF_OPEN) {
        breaker->until_ms = now_ms;
        move(breaker, BREAKER_OPEN); /* the next call is the probe */
    }
}

const char *breaker_state_name(enum breaker_state state)
{
    switch (state) {
    case BREAKER_CLOSED: return "closed";
    case BREAKER_OPEN: return "open";
    case BREAKER_HALF_OPEN: return "half_open";
    }
    return "unnamed";
}
