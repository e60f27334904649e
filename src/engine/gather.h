/*
 * gather: whether a batch waits a moment for calls that are about to come.
 *
 * Where a commit costs a server much beside its rows (store_ops.commit_rows), it pays to have many
 * calls in it. But the calls that come while one batch is under way make the next one: callers that
 * send one call after the other fall into two halves, which take turns. So a batch of few calls
 * waits for the callers of a batch that is under way or was just answered: they are likely to send
 * their next calls soon.
 *
 * Promises:  GA1 a batch waits only while other calls are under way, or just after they were
 *                answered. The call of a caller that is alone never waits.
 *            GA2 it waits once. While calls are under way it waits for at most as long as the last
 *                batch took from its collection to its answers: a store commits in order, so this
 *                batch would wait for that one anyway. Once they are answered it waits for at most
 *                a quarter of that time. Of a longer batch GATHER_NANOS_MAX counts.
 *            GA3 after GATHER_FAILURES waits in a row that brought too few calls, a batch does not
 *                wait; with each further failure twice as many do not, up to GATHER_SKIPS_MAX.
 *
 * It reads no clock, so tests need none. One thread at a time uses it.
 */
#ifndef ONCE_ENGINE_GATHER_H
#define ONCE_ENGINE_GATHER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    GATHER_NANOS_MAX = 20000000, /* longer than a commit on a slow disk, or to a standby far away */
    GATHER_RETURN = 4,           /* a caller that is not back within this part of a batch's time is
                                   taken to do something else first */
    GATHER_ENOUGH = 8,     /* times commit_rows: in a batch of that many calls the commit itself
                                   costs little */
    GATHER_LATE = 8,       /* one of this many callers is not waited for */
    GATHER_MISSING = 4,    /* a wait failed if more than this part of the calls did not come:
                                   callers who come when they like would seem to come back */
    GATHER_FAILURES = 4,   /* on a busy machine one wait of three fails */
    GATHER_SKIPS_MAX = 63, /* batches that do not wait after many failures */
};

struct gather {
    size_t commit_rows;      /* of the store; 0: no batch waits */
    size_t under_way;        /* calls that were collected and not answered */
    size_t callers;          /* the same, when the latest batch was collected, with its own calls */
    uint64_t took_nanos;     /* from the collection of a batch to its answers, the last time … */
    uint64_t answered_nanos; /* … and when that was */
    size_t from;             /* how many calls a batch had when it began to wait … */
    size_t enough;           /* … how many end the wait; 0: no batch waits now … */
    uint64_t until_nanos;    /* … and when it ends at the latest */
    unsigned failures;       /* waits in a row that brought too few calls */
    unsigned skips;          /* batches left that do not wait because of them */
    uint64_t waits;          /* batches that waited so far */
};

/* With the commit_rows of the store. */
void gather_init(struct gather *gather, size_t commit_rows);
/* This many calls wait, and a batch could be made of them now: it may begin to wait for more. */
void gather_begin(struct gather *gather, size_t waiting, uint64_t now_nanos);
/* Whether a batch waits for more calls than these. */
bool gather_waits(const struct gather *gather, size_t waiting);
/* For how long it still does; 0: not any more, or it never did. */
uint64_t gather_left(const struct gather *gather, size_t waiting, uint64_t now_nanos);
/* A batch of count calls was collected, and waits no longer. */
void gather_collected(struct gather *gather, size_t count);
/* A batch is over that had count calls when it was collected. */
void gather_answered(
    struct gather *gather, size_t count, uint64_t collected_nanos, uint64_t now_nanos);
/* Asserts what always holds. */
void gather_check(const struct gather *gather);

#endif
