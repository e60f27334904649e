/*
 * counts: what senders of webhooks were answered, by source. They outlive a reload.
 *
 * Threads:   counting and reporting on any; inbox_counts_of on the thread that makes a plan.
 */
#ifndef ONCE_INBOX_COUNTS_H
#define ONCE_INBOX_COUNTS_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/mem.h"
#include "core/decide.h"
#include "door/metrics.h"
#include "inbox/signature.h"

struct source_counts {
    struct source_counts *next;
    char name[sizeof((struct metrics_source *)0)->name];
    atomic_ullong received, duplicates, stale;
    atomic_ullong refused[METRICS_REFUSALS];
};

/* All of them; zeroed but for the lock. */
struct inbox_counts {
    pthread_mutex_t lock; /* guards the list; sources are never taken out of it */
    struct source_counts *list;
};

/* Those of a source, made if necessary. NULL: out of memory. */
struct source_counts *inbox_counts_of(
    struct inbox_counts *counts, const char *name, const struct mem *mem);
/* NULL is fine for the rest: nothing is counted. */
void inbox_counts_refused(struct source_counts *counts, enum metrics_refusal reason);
void inbox_counts_signature(struct source_counts *counts, enum signature_verdict verdict);
/* One event, by its decision. */
void inbox_counts_event(struct source_counts *counts, enum decision_kind kind);
void inbox_counts_free(struct inbox_counts *counts, const struct mem *mem);
/* For metrics_sources; context: the counts. */
size_t inbox_counts_figures(void *context, struct metrics_source *ret_sources, size_t max);

#endif
