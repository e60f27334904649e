#include "inbox/counts.h"

#include <stdio.h>
#include <string.h>

#include "inbox/enqueue.h"

struct source_counts *inbox_counts_of(
    struct inbox_counts *counts, const char *name, const struct mem *mem)
{
    (void)pthread_mutex_lock(&counts->lock);
    struct source_counts *found = counts->list;
    while (found != NULL && strcmp(found->name, name) != 0) {
        found = found->next;
    }
    if (found == NULL) {
        found = mem_zalloc(mem, 1, sizeof *found);
        if (found != NULL) {
            (void)snprintf(found->name, sizeof found->name, "%s", name);
            found->next = counts->list;
            counts->list = found;
        }
    }
    (void)pthread_mutex_unlock(&counts->lock);
    return found;
}

void inbox_counts_refused(struct source_counts *counts, enum metrics_refusal reason)
{
    if (counts != NULL) {
        atomic_fetch_add(&counts->refused[reason], 1);
    }
}

void inbox_counts_signature(struct source_counts *counts, enum signature_verdict verdict)
{
    switch (verdict) {
    case SIGNATURE_MISSING: inbox_counts_refused(counts, METRICS_REFUSED_MISSING); break;
    case SIGNATURE_DOUBLED: inbox_counts_refused(counts, METRICS_REFUSED_DOUBLED); break;
    case SIGNATURE_MALFORMED: inbox_counts_refused(counts, METRICS_REFUSED_MALFORMED); break;
    case SIGNATURE_MISMATCH: inbox_counts_refused(counts, METRICS_REFUSED_MISMATCH); break;
    case SIGNATURE_TOO_OLD: inbox_counts_refused(counts, METRICS_REFUSED_TOO_OLD); break;
    case SIGNATURE_TOO_NEW: inbox_counts_refused(counts, METRICS_REFUSED_TOO_NEW); break;
    case SIGNATURE_OK:
    case SIGNATURE_FAILED: break;
    }
}

void inbox_counts_event(struct source_counts *counts, enum decision_kind kind)
{
    if (counts == NULL) {
        return;
    }
    atomic_fetch_add(&counts->received, 1);
    switch (received_as(kind)) {
    case RECEIVED_NEW: break;
    case RECEIVED_AGAIN:
    case RECEIVED_LATE: atomic_fetch_add(&counts->duplicates, 1); break;
    case RECEIVED_OTHER: inbox_counts_refused(counts, METRICS_REFUSED_CONFLICT); break;
    case RECEIVED_STALE: atomic_fetch_add(&counts->stale, 1); break;
    }
}

void inbox_counts_free(struct inbox_counts *counts, const struct mem *mem)
{
    for (struct source_counts *at = counts->list, *next; at != NULL; at = next) {
        next = at->next;
        mem_free(mem, at);
    }
    counts->list = NULL;
}

size_t inbox_counts_figures(void *context, struct metrics_source *ret_sources, size_t max)
{
    struct inbox_counts *counts = context;
    size_t count = 0;
    (void)pthread_mutex_lock(&counts->lock);
    for (struct source_counts *at = counts->list; at != NULL && count < max; at = at->next) {
        struct metrics_source *one = &ret_sources[count++];
        *one = (struct metrics_source){.received = atomic_load(&at->received),
            .duplicates = atomic_load(&at->duplicates),
            .stale = atomic_load(&at->stale)};
        memcpy(one->name, at->name, sizeof one->name);
        for (size_t i = 0; i < METRICS_REFUSALS; i++) {
            one->refused[i] = atomic_load(&at->refused[i]);
        }
    }
    (void)pthread_mutex_unlock(&counts->lock);
    return count;
}
