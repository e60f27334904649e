#include "engine/gather.h"

#include "base/check.h"
#include "base/limits.h"

void gather_init(struct gather *gather, size_t commit_rows)
{
    *gather = (struct gather){.commit_rows = commit_rows};
}

void gather_check(const struct gather *gather)
{
    ASSERT(gather->enough == 0 || gather->from < gather->enough);
    ASSERT(gather->enough == 0 || gather->commit_rows > 0);
    ASSERT(gather->enough <= LIMIT_BATCH_REQUESTS_MAX);
    ASSERT(gather->took_nanos <= GATHER_NANOS_MAX); /* GA2 */
    ASSERT(gather->skips <= GATHER_SKIPS_MAX);      /* GA3 */
}

/* How many calls a batch should have: those of nearly all callers. */
static size_t enough_of(const struct gather *gather, size_t waiting)
{
    size_t callers = gather->under_way + waiting;
    callers = callers > gather->callers ? callers : gather->callers;
    size_t enough = callers - callers / GATHER_LATE;
    size_t most = GATHER_ENOUGH * gather->commit_rows;
    most = most < LIMIT_BATCH_REQUESTS_MAX ? most : LIMIT_BATCH_REQUESTS_MAX;
    return enough < most ? enough : most;
}

/* When a batch ends its wait that can begin it now (GA2). */
static uint64_t until_of(const struct gather *gather, uint64_t now_nanos)
{
    return gather->under_way > 0 ? now_nanos + gather->took_nanos
                                 : gather->answered_nanos + gather->took_nanos / GATHER_RETURN;
}

void gather_begin(struct gather *gather, size_t waiting, uint64_t now_nanos)
{
    ASSERT(gather->enough == 0);
    size_t enough = enough_of(gather, waiting);
    uint64_t until = until_of(gather, now_nanos);
    if (waiting == 0 || waiting >= enough || until <= now_nanos) {
        return; /* GA1 */
    }
    if (gather->skips > 0) {
        gather->skips--; /* GA3 */
        return;
    }
    gather->from = waiting;
    gather->enough = enough;
    gather->until_nanos = until;
    gather->waits++;
    gather_check(gather);
}

bool gather_waits(const struct gather *gather, size_t waiting)
{
    return waiting < gather->enough;
}

uint64_t gather_left(const struct gather *gather, size_t waiting, uint64_t now_nanos)
{
    bool is_over = !gather_waits(gather, waiting) || now_nanos >= gather->until_nanos;
    return is_over ? 0 : gather->until_nanos - now_nanos;
}

/* Batches that do not wait after that many failures in a row: 0, 1, 3, 7, … */
static unsigned skips_after(unsigned failures)
{
    unsigned more = failures < GATHER_FAILURES ? 0 : failures - GATHER_FAILURES + 1;
    unsigned skips = more < 16 ? (1u << more) - 1 : GATHER_SKIPS_MAX;
    return skips < GATHER_SKIPS_MAX ? skips : GATHER_SKIPS_MAX;
}

/* A wait ended with count calls. */
static void wait_ended(struct gather *gather, size_t count)
{
    ASSERT(gather->from < gather->enough);
    if (count >= gather->enough - (gather->enough - gather->from) / GATHER_MISSING) {
        gather->failures = 0;
        return;
    }
    gather->failures++;
    gather->skips = skips_after(gather->failures);
}

void gather_collected(struct gather *gather, size_t count)
{
    if (gather->enough > 0) {
        wait_ended(gather, count);
    }
    gather->enough = 0;
    gather->under_way += count;
    gather->callers = gather->under_way;
    gather_check(gather);
}

void gather_answered(
    struct gather *gather, size_t count, uint64_t collected_nanos, uint64_t now_nanos)
{
    ASSERT(count <= gather->under_way);
    gather->under_way -= count;
    if (count == 0) {
        return;
    }
    uint64_t took = now_nanos - collected_nanos;
    gather->took_nanos = took < GATHER_NANOS_MAX ? took : GATHER_NANOS_MAX;
    gather->answered_nanos = now_nanos;
    uint64_t until = now_nanos + gather->took_nanos / GATHER_RETURN;
    gather->until_nanos = until < gather->until_nanos ? until : gather->until_nanos;
}
