/*
 * impl: what the parts of the inbox share.
 *
 * inbox.c is its life; receive.c a request of a sender from its first byte to its answer;
 * handshake.c how an endpoint is confirmed; deliveries.c what people see and do; deliver.c the call
 * of a handler.
 */
#ifndef ONCE_INBOX_IMPL_H
#define ONCE_INBOX_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "api/routes.h"
#include "canon/jsonw.h"
#include "inbox/inbox.h"
#include "inbox/plan.h"

enum { REFUSALS_A_SECOND_MAX = 50 }; /* answered 401; those past it 429 */

struct inbox_door {
    const struct mem *mem;
    struct door *door;
    struct dispatch *dispatch;
    const struct vault *vault;
    pthread_mutex_t lock;    /* guards plan */
    struct inbox_plan *plan; /* for requests that begin now */
    struct queues *queues;   /* NULL: it was started without any */
    atomic_ullong refusals;  /* of this second: its number, times 2^20, and how many */
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

/* A signed POST that only asks whether the endpoint is meant. True: it is answered. */
bool inbox_verification(struct api_request *request, const struct inbox_source *source);

/* The member "receipt" of a sealed delivery: its effect id, or what the handler answered. Nothing
 * where there is none. */
void inbox_receipt_put(
    struct jsonw *json, const struct record *record, struct slice body, struct arena *arena);

#endif
