/*
 * impl: shared by the files of the inbox.
 *
 * inbox.c has its life; receive.c a sender's request from its first byte to its answer; handshake.c
 * the confirmation of an endpoint; deliveries.c what operators see and do; deliver.c the call to a
 * handler.
 */
#ifndef ONCE_INBOX_IMPL_H
#define ONCE_INBOX_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "api/routes.h"
#include "canon/jsonw.h"
#include "inbox/counts.h"
#include "inbox/inbox.h"
#include "inbox/plan.h"

enum { REFUSALS_A_SECOND_MAX = 50 }; /* answered with 401; any more with 429 */

struct inbox_door {
    const struct mem *mem;
    struct door *door;
    struct dispatch *dispatch;
    const struct vault *vault;
    pthread_mutex_t lock;    /* guards plan */
    struct inbox_plan *plan; /* for requests that begin now */
    struct inbox_commands commands;
    struct queues *queues; /* NULL: the server was started without queues */
    struct inbox_counts counts;
    atomic_ullong refusals; /* in this second: the second's number times 2^20, plus the count */
};

/* The plan in use, held. */
struct inbox_plan *inbox_plan_take(struct inbox_door *inbox);

/* Handlers of routes. */
void inbox_receive(struct api_request *request);   /* POST /in/{source} */
void inbox_challenge(struct api_request *request); /* GET /in/{source} */
void inbox_preflight(struct api_request *request); /* OPTIONS /in/{source} */
void inbox_delivery_get(struct api_request *request);
void inbox_delivery_list(struct api_request *request);
void inbox_delivery_redeliver(struct api_request *request);
void inbox_delivery_skip(struct api_request *request);
void inbox_delivery_resolve(struct api_request *request);

/* A signed POST that only verifies the endpoint. True: it has been answered. */
bool inbox_verification(struct api_request *request, const struct inbox_source *source);

/* Write the member "receipt" of a sealed delivery: its effect id, or the handler's answer. Nothing
 * if it has none. */
void inbox_receipt_put(
    struct jsonw *json, const struct record *record, struct slice body, struct arena *arena);

#endif
