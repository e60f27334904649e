/*
 * workload: a seeded stream of requests of every kind, through the engine's own batch cycle.
 *
 * Few keys and short times, so that duplicates, conflicts, lost leases, takeovers, expiries and
 * stale holders all happen within some hundred steps. The same seed gives the same evidence.
 */
#ifndef ONCE_TESTS_WORKLOAD_H
#define ONCE_TESTS_WORKLOAD_H

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "engine/cycle.h"
#include "evidence/checkpoint.h"

enum { WORKLOAD_KEYS = 12, WORKLOAD_HOLDERS = 32, WORKLOAD_BATCH = 8 };

struct workload {
    struct store *store;
    struct cycle cycle;
    struct store_identity identity;
    uint64_t random;
    struct arena arenas[WORKLOAD_BATCH]; /* one a call of the batch */
    struct engine_call calls[WORKLOAD_BATCH];
    char texts[WORKLOAD_BATCH][4][64];      /* key, payload, outcome, effect id of each call */
    struct op_id holders[WORKLOAD_HOLDERS]; /* operations seen, in turn */
    uint64_t fences[WORKLOAD_HOLDERS];
    size_t holder_count;
};

static inline uint64_t workload_random(struct workload *workload, uint64_t below)
{
    /* splitmix64: small, and good enough to reach every branch. */
    uint64_t z = workload->random += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return (z ^ z >> 31) % below;
}

/* The time of the store that a workload runs on; give its clock to the store. */
static int64_t workload_now_ms = 1794770607000;

static inline struct clock_reading workload_clock_read(void *context)
{
    (void)context;
    return (struct clock_reading){.wall_ms = workload_now_ms, .boot_ms = workload_now_ms};
}

static const struct clock workload_clock = {.read = workload_clock_read, .boot_id = 7};

static inline void workload_init(struct workload *workload, struct store *store, uint64_t seed)
{
    memset(workload, 0, sizeof *workload);
    workload->store = store;
    workload->random = seed;
    store->ops->identity(store, &workload->identity, NULL);
    ASSERT(cycle_init(&workload->cycle, store, &mem_libc, NULL) == OK);
    for (size_t i = 0; i < WORKLOAD_BATCH; i++) {
        arena_init(&workload->arenas[i], &mem_libc, 1 << 20);
    }
}

static inline void workload_release(struct workload *workload)
{
    cycle_release(&workload->cycle);
    for (size_t i = 0; i < WORKLOAD_BATCH; i++) {
        arena_release(&workload->arenas[i]);
    }
}

static inline struct slice workload_text(
    struct workload *workload, size_t call, size_t which, const char *prefix, uint64_t below)
{
    char *text = workload->texts[call][which];
    (void)snprintf(
        text, 64, "%s%llu", prefix, (unsigned long long)workload_random(workload, below));
    return slice_str(text);
}

static inline void workload_begin(struct workload *workload, size_t i, struct engine_call *call)
{
    struct request *request = &call->request;
    struct slice payload = workload_text(workload, i, 1, "payload-\"\\\x01 ", 2);
    request->kind = REQUEST_BEGIN;
    request->key.tenant = SLICE_LIT("acme");
    request->key.scope = SLICE_LIT("charge");
    request->key.principal = workload_random(workload, 2) == 0 ? SLICE_LIT("p1") : SLICE_EMPTY;
    request->key.key = workload_text(workload, i, 0, "key-\xc3\xa9/", WORKLOAD_KEYS);
    ASSERT(record_key_seal(&request->key, NULL) == OK);
    request->policy = (struct policy){
        .window_ms = 1 + (int64_t)workload_random(workload, 4000),
        .lease_ms = 10 + (int64_t)workload_random(workload, 500),
        .on_unknown = (enum on_unknown)workload_random(workload, 3),
        .retry_failed = workload_random(workload, 3) == 0,
        .retry_rejected = workload_random(workload, 3) == 0,
    };
    digest_sha256(payload.data, payload.len, &request->fingerprint);
    if (workload_random(workload, 2) == 0) {
        call->request_body = payload;
        request->request = (struct body_ref){
            .digest = request->fingerprint, .bytes = payload.len, .retained = true};
    }
    if (workload_random(workload, 3) == 0) {
        request->trace = SLICE_LIT("{\"request_id\":\"r-1\"}");
        request->source.id = SLICE_LIT("doc-7");
        request->actor = SLICE_LIT("alice");
    }
    if (workload_random(workload, 3) == 0) {
        static const char *const versions[] = {"v8", "v9", "v10", "v011"};
        request->source = (struct source){.type = SLICE_LIT("feed"),
            .id = workload_random(workload, 2) == 0 ? SLICE_LIT("o-1") : SLICE_LIT("o-2"),
            .version = slice_str(versions[workload_random(workload, 4)])};
    }
}

static inline void workload_settle(struct workload *workload, size_t i, struct engine_call *call)
{
    static const enum record_status seals[] = {RECORD_EXECUTED, RECORD_FAILED, RECORD_REJECTED};
    static const enum record_status resolves[] = {RECORD_EXECUTED, RECORD_FAILED, RECORD_RELEASED};
    struct request *request = &call->request;
    struct slice outcome = workload_text(workload, i, 2, "outcome ", 2);
    request->status = request->kind == REQUEST_SEAL ? seals[workload_random(workload, 3)]
                                                    : resolves[workload_random(workload, 3)];
    if (request->status == RECORD_RELEASED) {
        request->reason = SLICE_LIT("the provider never heard of it");
        return;
    }
    request->outcome.code = (int32_t)workload_random(workload, 2) - 1;
    if (workload_random(workload, 2) == 0) {
        request->outcome.meta = SLICE_LIT("content-type: text/plain");
    }
    if (workload_random(workload, 3) == 0) {
        request->effect_id = workload_text(workload, i, 3, "ch_", 2);
    }
    if (workload_random(workload, 4) > 0) {
        call->outcome_body = outcome;
        request->outcome.body.bytes = outcome.len;
        request->outcome.body.retained = true;
        digest_sha256(outcome.data, outcome.len, &request->outcome.body.digest);
    }
    if (workload_random(workload, 4) == 0) {
        request->policy.window_ms = 5000;
    }
}

static inline void workload_holder(struct workload *workload, size_t i, struct engine_call *call)
{
    struct request *request = &call->request;
    size_t known = workload->holder_count < WORKLOAD_HOLDERS ? workload->holder_count
                                                             : (size_t)WORKLOAD_HOLDERS;
    size_t which = (size_t)workload_random(workload, known);
    request->kind = (enum request_kind)(1 + workload_random(workload, 6));
    request->operation_id = workload->holders[which];
    request->fence = workload->fences[which];
    switch (workload_random(workload, 12)) {
    case 0: request->fence = UINT64_MAX; break;
    case 1: request->operation_id.bytes[9] ^= 1; break; /* no such operation */
    default: break;
    }
    if (request->kind == REQUEST_RESOLVE || request->kind == REQUEST_LEASE_OVER) {
        request->fence = 0;
    }
    if (request->kind != REQUEST_LEASE_OVER) {
        request->key.tenant =
            workload_random(workload, 10) == 0 ? SLICE_LIT("other") : SLICE_LIT("acme");
    }
    if (request->kind == REQUEST_SEAL || request->kind == REQUEST_RESOLVE) {
        workload_settle(workload, i, call);
    } else if (request->kind == REQUEST_RENEW) {
        request->policy.lease_ms = 100;
    } else if (request->kind == REQUEST_RELEASE || request->kind == REQUEST_UNKNOWN) {
        request->reason = SLICE_LIT("no \"byte\" was sent");
    }
}

/* One batch, committed and flushed. */
static inline void workload_step(struct workload *workload)
{
    struct engine_call *calls[WORKLOAD_BATCH];
    struct err err = {0};
    size_t count = 1 + (size_t)workload_random(workload, WORKLOAD_BATCH);
    workload_now_ms += (int64_t)workload_random(workload, 300);
    for (size_t i = 0; i < count; i++) {
        arena_clear(&workload->arenas[i]);
        workload->calls[i] = (struct engine_call){.arena = &workload->arenas[i]};
        calls[i] = &workload->calls[i];
        if (workload->holder_count == 0 || workload_random(workload, 2) == 0) {
            workload_begin(workload, i, calls[i]);
        } else {
            workload_holder(workload, i, calls[i]);
        }
        ASSERT(request_check(&calls[i]->request, &err) == OK);
    }
    if (cycle_run(&workload->cycle, calls, count, &err) != OK) {
        (void)fprintf(stderr, "%s\n", err.text);
        ASSERT(!"cycle_run");
    }
    ASSERT(workload->store->ops->flush(workload->store, &err) == OK);
    for (size_t i = 0; i < count; i++) {
        if (calls[i]->err.status == OK && calls[i]->decision.kind == DECISION_FIRST_SEEN) {
            size_t at = workload->holder_count++ % WORKLOAD_HOLDERS;
            workload->holders[at] = calls[i]->decision.next.operation_id;
            workload->fences[at] = calls[i]->decision.next.fence;
        }
    }
}

/* A signed note about everything so far, committed and flushed; its text is appended to out. */
static inline void workload_checkpoint(struct workload *workload, struct buf *out)
{
    struct err err = {0};
    ASSERT(cycle_checkpoint(&workload->cycle, &workload->identity, &err) == OK);
    buf_append(out, workload->cycle.text.data, workload->cycle.text.len);
    ASSERT(workload->store->ops->flush(workload->store, &err) == OK);
}

#endif
