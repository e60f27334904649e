/*
 * queue: messages of brokers, each delivered to its handler once (docs/inbox.md).
 *
 *     take > read the event > enqueue all, one commit > dispatch … > settled > acknowledge
 *
 * One thread for each queue of the configuration. A message is
 *   acknowledged  when its delivery is sealed; at once when it is a duplicate of a different
 *                 message or a stale version; and when only a person can settle its delivery (dead
 *                 letter, held unknown), after an entry in the evidence (delivery.acknowledged)
 *   parked        when its key has a different payload, or it is not an event: the broker keeps it
 *                 aside, and the queue continues
 *   waiting       otherwise; when `prefetch` messages wait, no more are taken
 *
 * Promises:  no message is acknowledged before its result is durable (P2, OPS-8). A message that
 *            comes again after a crash or a lost connection is a duplicate (GRD-10).
 * Crash:     between the commit and the acknowledgement: the broker delivers the message again, and
 *            the store knows its key. Between evidence and acknowledgement: the evidence gets a
 *            second such entry.
 * Threads:   queues_settled and queues_figures on any thread; the others on the server's.
 */
#ifndef ONCE_INBOX_QUEUE_H
#define ONCE_INBOX_QUEUE_H

#include "door/metrics.h"
#include "inbox/impl.h"

struct queues;

/* slot: the door's slot that the threads of all queues share. */
enum status queues_new(struct inbox_door *inbox, unsigned slot, struct queues **ret_queues,
    struct err *err) MUST_CHECK;
/* Whether every queue has its module and a valid URL; connects to nothing. E_INVALID,
 * E_UNAVAILABLE: the text names the queue. */
enum status queues_check(const struct config *config, struct err *err) MUST_CHECK;
/* Run the queues of the plan, and end the others. The log reports those that could not be made. */
void queues_use(struct queues *queues, const struct inbox_plan *plan);
/* Start: the loops run from now on. */
void queues_start(struct queues *queues, const struct inbox_plan *plan);
/* A delivery changed to this record. */
void queues_settled(struct queues *queues, const struct record *record);
/* Take no more; acknowledge what is settled. */
void queues_drain(struct queues *queues);
bool queues_is_busy(struct queues *queues); /* some are settled and not acknowledged */
void queues_cut(struct queues *queues);     /* end */
bool queues_is_idle(struct queues *queues); /* all have ended */
/* NULL is fine. */
void queues_free(struct queues *queues);
/* For metrics_queues. */
size_t queues_figures(void *context, struct metrics_queue *ret_queues, size_t max);

#endif
