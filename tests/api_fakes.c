/*
 * api_fakes: the least of what the door uses and does not test here.
 */
#include <stdlib.h>

#include "api/routes.h"
#include "engine/look.h"

#define FAKE __attribute__((weak))

FAKE enum auth_verdict auth_check(const struct api_policy *policy, const struct http_head *head,
    bool is_own, struct api_caller *ret_caller)
{
    struct slice value = SLICE_EMPTY;
    (void)is_own;
    (void)!http_find_single(head, SLICE_LIT("Authorization"), &value);
    if (!policy->needs_token) {
        *ret_caller = (struct api_caller){.tenant = SLICE_LIT("default"), .rights = 15};
        return AUTH_OK;
    }
    if (value.len < 7) {
        return AUTH_MISSING;
    }
    struct digest digest;
    digest_sha256(value.data + 7, value.len - 7, &digest);
    for (size_t i = 0; i < policy->token_count; i++) {
        const struct api_token *token = &policy->tokens[i];
        if (digest_equal(&token->sha256, &digest)) {
            *ret_caller = (struct api_caller){
                .tenant = token->tenant, .actor = token->name, .rights = token->rights};
            return AUTH_OK;
        }
    }
    return AUTH_WRONG;
}

/* One bucket for all keys: whatever comes after burst duplicates is a flood. */
struct flood {
    const struct mem *mem;
    double seen;
};

FAKE struct flood *flood_new(const struct mem *mem)
{
    struct flood *flood = mem_zalloc(mem, 1, sizeof *flood);
    if (flood != NULL) {
        flood->mem = mem;
    }
    return flood;
}

FAKE void flood_free(struct flood *flood)
{
    if (flood != NULL) {
        mem_free(flood->mem, flood);
    }
}

FAKE bool flood_refuse(struct flood *flood, const struct record_key *key, struct flood_rate rate,
    uint64_t now_nanos, int64_t *ret_after_ms)
{
    (void)key;
    (void)now_nanos;
    *ret_after_ms = 1500;
    return flood->seen >= rate.burst;
}

FAKE void flood_count(
    struct flood *flood, const struct record_key *key, struct flood_rate rate, uint64_t now_nanos)
{
    (void)key;
    (void)rate;
    (void)now_nanos;
    flood->seen += 1;
}

FAKE void flood_drain(struct flood *flood, flood_visit visit, void *context)
{
    (void)flood;
    (void)visit;
    (void)context;
}

struct metrics {
    const struct mem *mem;
};

FAKE struct metrics *metrics_new(const struct mem *mem, unsigned loops)
{
    struct metrics *metrics = mem_zalloc(mem, 1, sizeof *metrics);
    (void)loops;
    if (metrics != NULL) {
        metrics->mem = mem;
    }
    return metrics;
}

FAKE void metrics_free(struct metrics *metrics)
{
    if (metrics != NULL) {
        mem_free(metrics->mem, metrics);
    }
}

FAKE void metrics_decision(
    struct metrics *metrics, unsigned loop, const struct metrics_decision *decision)
{
    (void)metrics;
    (void)loop;
    (void)decision;
}

FAKE void metrics_request(
    struct metrics *metrics, unsigned loop, const char *route, unsigned status, uint64_t nanos)
{
    (void)metrics;
    (void)loop;
    (void)route;
    (void)status;
    (void)nanos;
}

FAKE void log_event(struct log *log, enum log_level level, const char *event,
    const struct log_field *fields, size_t count)
{
    (void)log;
    (void)level;
    (void)event;
    (void)fields;
    (void)count;
}

FAKE bool log_wants(const struct log *log, enum log_level level)
{
    (void)log;
    (void)level;
    return true;
}

FAKE enum status engine_submit_all(
    struct engine *engine, struct engine_call *const *calls, size_t count, struct err *err)
{
    for (size_t i = 0; i < count; i++) {
        enum status status = engine_submit(engine, calls[i], err);
        if (status != OK) {
            return status;
        }
    }
    return OK;
}

static enum status read_body(
    struct store *store, struct look *look, const struct body_ref *body, struct slice *ret)
{
    return body->retained && body->bytes > 0
               ? store->ops->body(store, body, look->call.arena, ret, &look->call.err)
               : OK;
}

static enum status read_one(struct store *store, struct look *look, struct err *err)
{
    const struct record *record = NULL;
    enum status status =
        store->ops->find(store, &look->operation_id, look->call.arena, &record, err);
    if (status != OK || record == NULL || !slice_equal(record->key.tenant, look->tenant)) {
        return status;
    }
    look->record = record;
    status = read_body(store, look, &record->outcome.body, &look->outcome_body);
    return status == OK ? read_body(store, look, &record->request, &look->request_body) : status;
}

static enum status read_look(struct store *store, struct engine_call *call, struct err *err)
{
    struct look *look = (struct look *)(void *)call;
    if (look->kind == LOOK_OPERATION) {
        return read_one(store, look, err);
    }
    look->records = arena_alloc(call->arena, look->scan.limit * sizeof(struct record *));
    if (look->records == NULL) {
        return err_set(err, E_NOMEM, "out of memory");
    }
    enum status status =
        store->ops->scan(store, &look->scan, call->arena, look->records, &look->count, err);
    look->has_more = status == OK && look->count == look->scan.limit;
    if (look->has_more) {
        look->after = look->records[look->count - 1]->key.hash;
    }
    return status;
}

FAKE enum status look_submit(struct engine *engine, struct look *look, struct err *err)
{
    look->call.read = read_look;
    return engine_submit(engine, &look->call, err);
}

static void answer_nothing(struct api_ask *ask)
{
    api_answer_begin(ask, 200);
    api_answer_end(ask, SLICE_LIT("text/plain"), SLICE_EMPTY, true);
}

FAKE void api_evidence_list(struct api_ask *ask)
{
    answer_nothing(ask);
}

FAKE void api_evidence_head(struct api_ask *ask)
{
    answer_nothing(ask);
}

FAKE void api_livez(struct api_ask *ask)
{
    answer_nothing(ask);
}

FAKE void api_readyz(struct api_ask *ask)
{
    answer_nothing(ask);
}

FAKE void api_metrics(struct api_ask *ask)
{
    answer_nothing(ask);
}

FAKE void api_openapi(struct api_ask *ask)
{
    answer_nothing(ask);
}
