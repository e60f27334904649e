/*
 * enqueue: the call of the engine that makes a delivery of an event, whichever way it came in: by a
 * request, or as a message of a queue.
 *
 * Promises:  the event's bytes are sealed and bound to their record before they reach the store.
 * Ownership: all of it is in the arena, until the call is done.
 */
#ifndef ONCE_INBOX_ENQUEUE_H
#define ONCE_INBOX_ENQUEUE_H

#include "inbox/impl.h"

/* One event on its way to the engine. */
struct enqueued {
    struct engine_call engine; /* first; its done is the caller's to set */
    struct buf frame;          /* the event as its handler gets it, in plain */
    struct buf sealed;         /* what is stored of it */
    struct buf detail;         /* what is shown of it */
};

struct enqueue_of {
    struct inbox_door *inbox;
    const struct inbox_source *source;
    const struct event *event;
    struct slice fields; /* for the handler */
    struct slice trace;
    struct slice message; /* of a queue: the broker's id of it; empty: it is a request's */
    struct arena *arena;
    const struct mem *mem; /* that arena */
};

/* Async: work that the dispatcher claims. Sync: granted to this process, which runs it at once.
 * E_INVALID: it is past a limit, which the text names. E_NOMEM. */
enum status enqueue_make(
    struct enqueued *ret_made, const struct enqueue_of *of, struct err *err) MUST_CHECK;

#endif
