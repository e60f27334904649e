/*
 * ledger: what the outside world was told, and whether a journal still agrees with it.
 *
 * Every event of the load goes in, in the order the parent received it. Then the journal is opened
 * and each key looked at. The first disagreement is kept as a sentence; finding one is not the end
 * of the program, because the negative controls want to see it found.
 *
 * Promises checked, per grant (a key and a fence):
 *   L1  an acknowledged grant is there: its record has that fence, or a later one after a release.
 *   L2  an acknowledged seal is there with the very bytes, and every replay had them (P3).
 *   L3  a later grant of a key exists only after the earlier holder tried to release (P1).
 *   L4  fences are unique, and greater than all that were told before the last kill (P4).
 *   L5  the effect of a key happens at most once.
 *   L6  what was granted and not settled is in progress or unknown, never free (P5).
 * Keys with a short window (crash_transient) may leave and come back once they were settled.
 */
#ifndef ONCE_TESTS_CRASH_LEDGER_H
#define ONCE_TESTS_CRASH_LEDGER_H

#include "crash.h"
#include "once/once.h"

enum {
    LEDGER_KEYS_MAX = 2 * CRASH_SHORT_BASE,
    LEDGER_GRANTS_MAX = 1 << 18,
    LEDGER_FENCES_MAX = 1 << 22, /* of one directory: hundreds of thousands are asked for */
};

struct ledger_grant {
    uint32_t next; /* of the same key, older; 0: none */
    uint64_t fence;
    bool tried[EVENT_KINDS]; /* what was asked for or told with this fence, by its kind */
    uint64_t bytes;          /* of the outcome it tried to seal … */
    struct digest digest;    /* … and its digest */
};

struct ledger {
    uint32_t newest[LEDGER_KEYS_MAX]; /* the grant of each key with the highest fence; 0: none */
    uint16_t effects[LEDGER_KEYS_MAX];
    bool seen[LEDGER_FENCES_MAX]; /* fences that were told */
    struct ledger_grant grants[LEDGER_GRANTS_MAX];
    uint32_t grants_count;      /* grants[0] is not used */
    uint64_t fence_highest;     /* told so far */
    uint64_t fence_before;      /* told before the last kill */
    uint64_t told[EVENT_KINDS]; /* events, by kind */
    uint64_t looked;            /* records compared */
    unsigned faults;            /* disagreements */
    char fault[320];            /* the first one */
    struct buf scratch;         /* an outcome made again */
};

struct ledger *ledger_new(void);
void ledger_free(struct ledger *ledger);
/* Begin again with another directory; counts of events and records go on. */
void ledger_restart(struct ledger *ledger);
void ledger_event(struct ledger *ledger, const struct crash_event *event);
/* A kill: fences told from now on are greater than all before. */
void ledger_killed(struct ledger *ledger);
/* Look at the records of keys from until until. */
void ledger_look(struct ledger *ledger, struct once *once, uint32_t from, uint32_t until);
/* Ask for them again as a duplicate would: replays, and never a second grant. Needs a writer. */
void ledger_ask(struct ledger *ledger, struct once *once, uint32_t from, uint32_t until);
void ledger_fault(struct ledger *ledger, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
