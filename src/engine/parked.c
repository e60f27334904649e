#include "engine/parked.h"

#include <string.h>

#include "base/check.h"
#include "base/limits.h"

void parked_init(struct parked *parked)
{
    memset(parked, 0, sizeof *parked);
    parked->next_ms = INT64_MAX;
}

static struct queue *bucket_of(struct parked *parked, const struct digest *key_hash)
{
    uint32_t at;
    memcpy(&at, key_hash->bytes, sizeof at);
    return &parked->buckets[at % PARKED_BUCKETS];
}

bool parked_add(struct parked *parked, struct engine_call *call)
{
    ASSERT(call->wait_ms > 0 && call->wait_until_ms > 0); /* P14: its wait is bounded */
    ASSERT(call->parked);
    if (parked->count >= LIMIT_WAITERS_MAX) {
        return false;
    }
    queue_push(bucket_of(parked, &call->request.key.hash), call);
    parked->count++;
    if (call->wait_until_ms < parked->next_ms) {
        parked->next_ms = call->wait_until_ms;
    }
    if (call->waits != NULL) {
        call->waits(call);
    }
    return true;
}

void parked_wake(struct parked *parked, const struct digest *key_hash, struct queue *out)
{
    if (parked->count == 0) {
        return;
    }
    struct queue *bucket = bucket_of(parked, key_hash);
    struct queue others = {0};
    struct engine_call *call;
    while ((call = queue_pop(bucket)) != NULL) {
        bool same = digest_equal(&call->request.key.hash, key_hash);
        ASSERT(call->parked);
        ASSERT(!same || parked->count > 0);
        parked->count -= same;
        queue_push(same ? out : &others, call);
    }
    *bucket = others;
}

static bool queue_has(const struct queue *queue, const struct digest *key_hash)
{
    const struct engine_call *call = queue->first;
    while (call != NULL && !digest_equal(&call->request.key.hash, key_hash)) {
        call = call->next;
    }
    return call != NULL;
}

void parked_ask(struct parked *parked, struct queue *out)
{
    for (size_t i = 0; i < PARKED_BUCKETS && parked->count > 0; i++) {
        struct queue asked = {0};
        struct queue others = {0};
        struct engine_call *call;
        while ((call = queue_pop(&parked->buckets[i])) != NULL) {
            bool first = !queue_has(&asked, &call->request.key.hash);
            ASSERT(call->parked);
            ASSERT(parked->count > 0);
            parked->count -= first;
            queue_push(first ? &asked : &others, call);
        }
        while ((call = queue_pop(&asked)) != NULL) {
            queue_push(out, call);
        }
        parked->buckets[i] = others;
    }
}

void parked_expire(struct parked *parked, int64_t boot_ms, struct queue *out)
{
    if (boot_ms < parked->next_ms) {
        return;
    }
    parked->next_ms = INT64_MAX;
    for (size_t i = 0; i < PARKED_BUCKETS; i++) {
        struct queue others = {0};
        struct engine_call *call;
        while ((call = queue_pop(&parked->buckets[i])) != NULL) {
            bool over = boot_ms >= call->wait_until_ms;
            ASSERT(call->parked);
            ASSERT(!over || parked->count > 0);
            if (over) {
                call->wait_ms = 0; /* the next decision is final */
                parked->count--;
            } else if (call->wait_until_ms < parked->next_ms) {
                parked->next_ms = call->wait_until_ms;
            }
            queue_push(over ? out : &others, call);
        }
        parked->buckets[i] = others;
    }
}
