#include "engine/ages.h"

#include <string.h>

#include "base/check.h"

void ages_check(const struct ages *ages)
{
    ASSERT(ages->count <= AGES_SPANS_MAX);
    for (size_t i = 0; i < ages->count; i++) {
        const struct ages_span *span = &ages->spans[i];
        ASSERT(span->count > 0);
        ASSERT(span->from_ms <= span->first_ms && span->first_ms < span->until_ms);
        ASSERT(i == 0 || ages->spans[i - 1].until_ms <= span->from_ms);
    }
}

/* The first span that ends after a time; ages->count: none. */
static size_t find(const struct ages *ages, int64_t time_ms)
{
    size_t at = 0;
    while (at < ages->count && ages->spans[at].until_ms <= time_ms) {
        at++;
    }
    return at;
}

static void drop(struct ages *ages, size_t at)
{
    ASSERT(at < ages->count);
    ages->count--;
    memmove(&ages->spans[at], &ages->spans[at + 1], (ages->count - at) * sizeof ages->spans[0]);
}

/* Merges the two neighbours that are closest, compared with how long before the newest they are. */
static void merge_two(struct ages *ages)
{
    ASSERT(ages->count >= 2);
    int64_t newest_ms = ages->spans[ages->count - 1].until_ms;
    size_t best = 0;
    double least = -1;
    for (size_t i = 0; i + 1 < ages->count; i++) {
        const struct ages_span *a = &ages->spans[i];
        const struct ages_span *b = &ages->spans[i + 1];
        double size = (double)(b->until_ms - a->from_ms);
        double share = size / ((double)(newest_ms - a->from_ms) + AGES_SPAN_MS);
        if (least < 0 || share < least) {
            least = share;
            best = i;
        }
    }
    struct ages_span *a = &ages->spans[best];
    ASSERT(a->until_ms <= a[1].from_ms); /* AG1 */
    a->until_ms = a[1].until_ms;
    a->count += a[1].count;
    drop(ages, best + 1);
}

void ages_add(struct ages *ages, int64_t time_ms)
{
    size_t at = find(ages, time_ms);
    if (at == ages->count || time_ms < ages->spans[at].from_ms) {
        if (ages->count == AGES_SPANS_MAX) {
            merge_two(ages);
            ages_add(ages, time_ms); /* it may be inside a span now */
            return;
        }
        int64_t after_ms = at > 0 ? ages->spans[at - 1].until_ms : INT64_MIN;
        int64_t from_ms = time_ms - time_ms % AGES_SPAN_MS;
        int64_t until_ms = from_ms + AGES_SPAN_MS;
        memmove(&ages->spans[at + 1], &ages->spans[at], (ages->count - at) * sizeof ages->spans[0]);
        ages->count++;
        if (at + 1 < ages->count && ages->spans[at + 1].from_ms < until_ms) {
            until_ms = ages->spans[at + 1].from_ms;
        }
        ages->spans[at] = (struct ages_span){.from_ms = from_ms < after_ms ? after_ms : from_ms,
            .until_ms = until_ms,
            .first_ms = time_ms,
            .count = 1};
        ASSERT(ages->spans[at].from_ms <= time_ms && time_ms < ages->spans[at].until_ms); /* AG2 */
        return;
    }
    struct ages_span *span = &ages->spans[at];
    span->first_ms = time_ms < span->first_ms ? time_ms : span->first_ms;
    span->count++;
}

void ages_remove(struct ages *ages, int64_t time_ms)
{
    size_t at = find(ages, time_ms);
    ASSERT(at < ages->count && ages->spans[at].from_ms <= time_ms); /* AG2 */
    if (--ages->spans[at].count == 0) {
        drop(ages, at);
    }
}

int64_t ages_oldest_ms(const struct ages *ages)
{
    return ages->count == 0 ? 0 : ages->spans[0].first_ms;
}
