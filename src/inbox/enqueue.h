/*
 * enqueue: makes the engine call that turns an event into a delivery, whether the event came in a
 * request or in a message of a queue.
 *
 * Promises:  the event's bytes are sealed and bound to their record before they reach the store.
 * Ownership: all of it is in the arena, until the call is done.
 */
#ifndef ONCE_INBOX_ENQUEUE_H
#define ONCE_INBOX_ENQUEUE_H

#include "inbox/impl.h"

/* One event on its way to the engine. */
struct enqueued {
    struct engine_call engine; /* first; the caller sets its done */
    struct buf frame;          /* the event for its handler, in plain */
    struct buf sealed;         /* the stored form */
    struct buf detail;         /* the shown form */
};

struct enqueue_of {
    struct inbox_door *inbox;
    const struct inbox_source *source;
    const struct event *event;
    struct slice fields; /* for the handler */
    struct slice trace;
    struct slice message; /* the broker's id of the message; empty: it came in a request */
    struct arena *arena;
    const struct mem *mem; /* that arena */
};

/* What became of an event, by the decision on its call. */
enum received_as {
    RECEIVED_NEW,
    RECEIVED_AGAIN, /* its delivery is not settled yet */
    RECEIVED_LATE,  /* its delivery is settled, and the answer is kept */
    RECEIVED_OTHER, /* its id was used with a different payload */
    RECEIVED_STALE, /* a later version of its source was sealed */
};
enum received_as received_as(enum decision_kind kind);

/* Async, or with an order: the dispatcher claims it. Sync: it is granted to this process, which
 * runs it at once.
 * E_INVALID: it exceeds a limit, which the text names. E_NOMEM. */
enum status enqueue_make(
    struct enqueued *ret_made, const struct enqueue_of *of, struct err *err) MUST_CHECK;

#endif
