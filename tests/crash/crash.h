/*
 * crash: what the load that is killed and the harness that kills it agree on.
 *
 * The load writes one struct crash_event with one write(2) for everything it was told and
 * everything it is about to ask for. The descriptor is of a file in the parent's memory, so what
 * was written before a kill is there after it.
 */
#ifndef ONCE_TESTS_CRASH_CRASH_H
#define ONCE_TESTS_CRASH_CRASH_H

#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "canon/digest.h"
#include "prng.h"

enum {
    CRASH_KEYS_PER_ROUND = 64, /* fresh keys of one run; used up, they are asked for again */
    CRASH_SHORT_BASE = 128 * CRASH_KEYS_PER_ROUND, /* from here on most keys are transient */
    CRASH_TRANSIENT_EVERY = 16, /* before it one key in so many, behind it all but one in so many */
    CRASH_TRANSIENT_MS = 40,    /* their window, so that records expire and segments are squeezed */
    CRASH_LARGE_EVERY = 64,     /* one key in so many has a large outcome */
    CRASH_LARGE_MIN = 100 << 10,   /* a large outcome has at least this many bytes … */
    CRASH_LARGE_MAX = 2 << 20,     /* … and at most this many */
    CRASH_OUTCOME_MAX = 4 << 20,   /* room for any */
    CRASH_OPERATION_ID_BYTES = 40, /* as once.h has it */
};

enum event_kind {
    EVENT_GRANT = 1,   /* told: first_seen */
    EVENT_EFFECT,      /* the effect itself: one line in the outside world */
    EVENT_SEAL_TRY,    /* about to seal with this digest … */
    EVENT_SEALED,      /* … and told that it is sealed */
    EVENT_RELEASE_TRY, /* the same for a release, */
    EVENT_RELEASED,
    EVENT_UNKNOWN_TRY, /* for an unknown, */
    EVENT_UNKNOWN,
    EVENT_RENEWED,  /* and a renewal, which leaves the record in progress */
    EVENT_REPLAY,   /* told: duplicate_replayed, with this outcome */
    EVENT_BUSY,     /* told: in_progress */
    EVENT_HELD,     /* told: held_unknown */
    EVENT_CONFLICT, /* told: conflict_rejected */
    EVENT_WRONG,    /* told what can never be right; text says what */
};

enum { EVENT_KINDS = EVENT_WRONG + 1, EVENT_TEXT_BYTES = 160 };

struct crash_event {
    uint32_t kind;
    uint32_t key;         /* its number */
    uint64_t fence;       /* of the grant */
    uint64_t bytes;       /* of the outcome */
    struct digest digest; /* of the outcome */
    char operation_id[CRASH_OPERATION_ID_BYTES];
    char text[EVENT_TEXT_BYTES];
};

/* How far the load is; the parent looks at it before and after the kill. */
enum phase { PHASE_STARTING, PHASE_OPENING, PHASE_LOADING, PHASE_CLOSING, PHASE_CLOSED };

enum { PHASES = PHASE_CLOSED + 1 };

struct crash_shared {
    _Atomic uint32_t phase;
};

/* Mistakes that the load can be told to make, to see that the harness notices. */
enum plant {
    PLANT_NONE,
    PLANT_ACK_EARLY,     /* tells of a seal before it asks for it */
    PLANT_SECOND_EFFECT, /* does the effect although somebody else is at it */
};

static inline bool crash_transient(uint32_t key)
{
    bool odd = key % CRASH_TRANSIENT_EVERY == CRASH_TRANSIENT_EVERY - 1;
    return key < CRASH_SHORT_BASE ? odd : !odd;
}

static inline int crash_key_text(char ret_text[24], uint32_t key)
{
    return snprintf(ret_text, 24, "key-%u", key);
}

/* The outcome of a grant: other bytes for every key and fence, so that none stands for another. */
static inline void crash_outcome(uint32_t key, uint64_t fence, struct buf *out)
{
    struct prng prng = {((uint64_t)key << 40) ^ fence};
    uint64_t size = 1 + prng_below(&prng, 300);
    if (key % CRASH_LARGE_EVERY == CRASH_LARGE_EVERY / 2) {
        uint64_t max = prng_once_in(&prng, 8) ? CRASH_LARGE_MAX : 2 * CRASH_LARGE_MIN;
        size = CRASH_LARGE_MIN + prng_below(&prng, max - CRASH_LARGE_MIN);
    }
    buf_clear(out);
    while (out->len < size) {
        uint64_t word = prng_next(&prng);
        uint64_t left = size - out->len;
        buf_append(out, &word, left < sizeof word ? left : sizeof word);
    }
}

#endif
