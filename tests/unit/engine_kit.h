/*
 * engine_kit: an engine over a real journal in a directory of its own, for tests of what goes
 * through both. The store's commits are counted on their way, and it can be closed and opened
 * again.
 */
#ifndef ONCE_TESTS_UNIT_ENGINE_KIT_H
#define ONCE_TESTS_UNIT_ENGINE_KIT_H

#include <ftw.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check_c.h"
#include "engine/query.h"
#include "evidence/verify.h"

struct kit {
    char directory[64];
    char url[160];
    const char *url_options; /* behind the path; may be empty */
    struct engine_options options;
    struct clock clock;
    _Atomic int64_t now_ms; /* both clocks go together: time passes, nothing jumps */
    struct engine *engine;
    struct store *store; /* the engine's */
    struct arena arena;
    const struct store_ops *inner; /* the journal's own table … */
    struct store_ops ops;          /* … and the same with commit counted */
    size_t changes_most;           /* in one commit so far */
    size_t commits;                /* with changes in them */
    _Atomic size_t committed;      /* all of them … */
    _Atomic size_t durable;        /* … and those that a flush has covered */
};

static struct kit kit;

static inline struct clock_reading kit_clock(void *context)
{
    (void)context;
    return (struct clock_reading){kit.now_ms, kit.now_ms};
}

static inline enum status kit_commit(
    struct store *store, const struct commit *commit, struct err *err)
{
    kit.commits += commit->count > 0;
    kit.changes_most = commit->count > kit.changes_most ? commit->count : kit.changes_most;
    enum status status = kit.inner->commit(store, commit, err);
    kit.committed += status == OK;
    return status;
}

static inline enum status kit_flush(struct store *store, struct err *err)
{
    size_t committed = kit.committed;
    enum status status = kit.inner->flush(store, err);
    kit.durable = status == OK ? committed : kit.durable;
    return status;
}

static inline void kit_open(void)
{
    struct err err = {0};
    struct store *store = NULL;
    kit.clock = (struct clock){.read = kit_clock, .boot_id = 3};
    kit.options.clock = &kit.clock;
    const struct store_options store_options = {.clock = &kit.clock};
    assert_int_equal(store_open(kit.url, &store_options, &store, &err), OK);
    kit.store = store;
    kit.inner = store->ops;
    kit.ops = *store->ops;
    kit.ops.commit = kit_commit;
    kit.ops.flush = kit_flush;
    store->ops = &kit.ops;
    assert_int_equal(engine_new(store, &kit.options, &kit.engine, &err), OK);
}

static inline void kit_close(void)
{
    struct err err = {0};
    assert_int_equal(engine_free(kit.engine, &err), OK);
    kit.engine = NULL;
}

static inline int kit_remove(const char *path, const struct stat *info, int flag, struct FTW *place)
{
    (void)info;
    (void)flag;
    (void)place;
    return remove(path);
}

static inline int kit_set_up(void **state)
{
    (void)state;
    const char *options = kit.url_options == NULL ? "" : kit.url_options;
    memset(&kit, 0, sizeof kit);
    kit.url_options = options;
    kit.now_ms = 1794770607000;
    (void)snprintf(kit.directory, sizeof kit.directory, "/tmp/once-engine-XXXXXX");
    assert_non_null(mkdtemp(kit.directory));
    (void)snprintf(kit.url, sizeof kit.url, "journal:%s/data%s", kit.directory, options);
    arena_init(&kit.arena, &mem_libc, 256 << 20);
    kit_open();
    return 0;
}

static inline int kit_tear_down(void **state)
{
    (void)state;
    (void)engine_free(kit.engine, NULL);
    arena_release(&kit.arena);
    return nftw(kit.directory, kit_remove, 16, FTW_DEPTH | FTW_PHYS);
}

static inline struct engine_call kit_begin(const char *tenant, const char *scope, const char *key)
{
    struct engine_call call = {.arena = &kit.arena};
    call.request.kind = REQUEST_BEGIN;
    call.request.key.tenant = slice_str(tenant);
    call.request.key.scope = slice_str(scope);
    call.request.key.key = slice_str(key);
    call.request.policy = policy_default;
    assert_int_equal(record_key_seal(&call.request.key, NULL), OK);
    return call;
}

static inline struct engine_call kit_seal(const struct engine_call *begun, struct slice outcome)
{
    struct engine_call call = {.arena = &kit.arena};
    call.request.kind = REQUEST_SEAL;
    call.request.key.tenant = begun->request.key.tenant;
    call.request.operation_id = begun->decision.next.operation_id;
    call.request.fence = begun->decision.next.fence;
    call.request.status = RECORD_EXECUTED;
    call.outcome_body = outcome;
    call.request.outcome.body.bytes = outcome.len;
    call.request.outcome.body.retained = outcome.len > 0;
    digest_sha256(outcome.data, outcome.len, &call.request.outcome.body.digest);
    return call;
}

static inline enum decision_kind kit_do(struct engine_call *call)
{
    enum status status = engine_do(kit.engine, call);
    assert_string_equal(call->err.text, "");
    assert_int_equal(status, OK);
    return call->decision.kind;
}

/* The whole journal checks out, and every decision is made again. Closes and opens the engine. */
static inline void kit_verify(struct verify_result *ret_result)
{
    struct err err = {0};
    kit_close();
    struct verify_options options = {.url = kit.url, .redecide = true};
    assert_int_equal(verify_run(&options, ret_result, &err), OK);
    assert_string_equal(ret_result->damages[0].what, "");
    assert_int_equal(ret_result->damage_count, 0);
    kit_open();
}

/* Callers that are told one after the other, and one that waits for all of them. */
struct kit_gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool open;
    size_t done;
};

static inline void kit_gate_done(struct engine_call *call)
{
    struct kit_gate *gate = call->context;
    (void)pthread_mutex_lock(&gate->lock);
    gate->done++;
    (void)pthread_cond_signal(&gate->changed);
    (void)pthread_mutex_unlock(&gate->lock);
}

/* Keeps the engine thread, which answers it, until the gate is opened. */
static inline void kit_gate_hold(struct engine_call *call)
{
    struct kit_gate *gate = call->context;
    (void)pthread_mutex_lock(&gate->lock);
    while (!gate->open) {
        (void)pthread_cond_wait(&gate->changed, &gate->lock);
    }
    (void)pthread_mutex_unlock(&gate->lock);
    kit_gate_done(call);
}

static inline void kit_gate_pass(struct kit_gate *gate, size_t count)
{
    (void)pthread_mutex_lock(&gate->lock);
    gate->open = true;
    (void)pthread_cond_broadcast(&gate->changed);
    while (gate->done < count) {
        (void)pthread_cond_wait(&gate->changed, &gate->lock);
    }
    (void)pthread_mutex_unlock(&gate->lock);
}

/* What a test does with the store between two batches. */
struct kit_visit {
    struct query query;
    enum status (*visit)(struct store *store, void *context, struct err *err);
    void *context;
    enum status status;
    struct kit_gate gate;
};

static inline void kit_visit_done(struct engine_call *call)
{
    struct kit_visit *self = (struct kit_visit *)(void *)call;
    self->status = self->visit(kit.store, self->context, &call->err);
    struct kit_gate *gate = &self->gate;
    (void)pthread_mutex_lock(&gate->lock);
    gate->done++;
    (void)pthread_cond_signal(&gate->changed);
    (void)pthread_mutex_unlock(&gate->lock);
}

/* Runs on the engine thread, which answers small batches itself. */
static inline void kit_visit(
    enum status (*visit)(struct store *store, void *context, struct err *err), void *context)
{
    struct err err = {0};
    struct kit_visit self = {
        .query = {.kind = QUERY_NOTHING, .call = {.arena = &kit.arena, .done = kit_visit_done}},
        .visit = visit,
        .context = context,
        .gate = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, true, 0}};
    assert_int_equal(query_submit(kit.engine, &self.query, &err), OK);
    kit_gate_pass(&self.gate, 1);
    assert_int_equal(self.status, OK);
}

#endif
