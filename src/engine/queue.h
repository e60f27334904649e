/*
 * queue: engine calls in order of arrival, linked through call->next.
 */
#ifndef ONCE_ENGINE_QUEUE_H
#define ONCE_ENGINE_QUEUE_H

#include "engine/engine.h"

struct queue {
    struct engine_call *first;
    struct engine_call *last; /* only meaningful while first is set */
    size_t count;
};

static inline void queue_push(struct queue *queue, struct engine_call *call)
{
    call->next = NULL;
    if (queue->first == NULL) {
        queue->first = call;
    } else {
        queue->last->next = call;
    }
    queue->last = call;
    queue->count++;
}

/* NULL when empty. */
static inline struct engine_call *queue_pop(struct queue *queue)
{
    struct engine_call *call = queue->first;
    if (call != NULL) {
        queue->first = call->next;
        call->next = NULL;
        queue->count--;
    }
    return call;
}

#endif
