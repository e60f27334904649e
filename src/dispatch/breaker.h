/*
 * breaker: decides whether a target may be called. Pure: time is an argument.
 *
 *             failures in a row               pause over              the probe went well
 *   CLOSED ─────────────────────▶ OPEN ─────────────────▶ HALF_OPEN ───────────────────▶ CLOSED
 *      ▲                           ▲                          │
 *      └── went well: counts from 0└── the probe failed ──────┘
 *
 *   CLOSED → OPEN       breaker_report   the last of rule->failures calls in a row failed
 *   OPEN → HALF_OPEN    breaker_begin    the pause is over; this call is the probe
 *   HALF_OPEN → CLOSED  breaker_report   it went well
 *   HALF_OPEN → OPEN    breaker_report   it failed: a new pause
 *                       breaker_abandon  it says nothing: the next call is the probe
 *
 * What holds (breaker_check):
 *   BK1 failures are counted while CLOSED: OPEN has none.
 *   BK2 HALF_OPEN has exactly one call in progress: the waiting calls do not all come at once.
 *   BK3 a call that began before the breaker opened changes nothing when it ends later, well or
 *       not.
 */
#ifndef ONCE_DISPATCH_BREAKER_H
#define ONCE_DISPATCH_BREAKER_H

#include <stdbool.h>
#include <stdint.h>

enum breaker_state {
    BREAKER_CLOSED, /* 0, so that a zeroed breaker is closed */
    BREAKER_OPEN,
    BREAKER_HALF_OPEN,
};

struct breaker_rule {
    uint32_t failures; /* in a row; 0: the breaker never opens */
    int64_t pause_ms;
};

struct breaker {
    enum breaker_state state;
    uint32_t failures; /* in a row */
    int64_t until_ms;  /* OPEN: the end of its pause */
    uint64_t opened;   /* how often it opened */
    uint64_t turn;     /* number of the current state; grows by 1 with every change */
};

/* Whether a call may begin now. */
bool breaker_admits(const struct breaker *breaker, int64_t now_ms);
/* An admitted call begins. Returns its ticket for breaker_report. */
uint64_t breaker_begin(struct breaker *breaker, int64_t now_ms);
void breaker_report(struct breaker *breaker, const struct breaker_rule *rule, uint64_t ticket,
    bool is_well, int64_t now_ms);
/* The call says nothing about the target: it was cancelled before it began, or never answered. */
void breaker_abandon(struct breaker *breaker, uint64_t ticket, int64_t now_ms);
void breaker_check(const struct breaker *breaker);

/* "closed", "open", "half_open". */
const char *breaker_state_name(enum breaker_state state);

#endif
