#include "api/query.h"

static void fail(struct api_query *query, const struct err *err)
{
    if (query->failed != NULL) {
        query->failed(query, err);
    } else {
        api_fail(query->request, err);
    }
}

static void resume(void *context, struct http_exchange *exchange)
{
    (void)context;
    struct api_query *query = exchange->state;
    if (query->query.call.err.status == OK) {
        query->answer(query);
    } else {
        fail(query, &query->query.call.err);
    }
}

/* On the engine's thread: continue on the exchange's own. */
static void done(struct engine_call *call)
{
    http_wake(call->context);
}

struct api_query *api_query_new(
    struct api_request *request, enum query_kind kind, void (*answer)(struct api_query *query))
{
    struct api_query *query = arena_zalloc(request->exchange->arena, sizeof *query);
    if (query == NULL) {
        api_fail_memory(request);
        return NULL;
    }
    query->query.kind = kind;
    query->answer = answer;
    return query;
}

void api_query_run(struct api_query *query, struct api_request *request)
{
    struct http_exchange *exchange = request->exchange;
    struct err err = {.status = OK};
    query->request = request;
    query->query.tenant = request->caller.tenant;
    query->query.call =
        (struct engine_call){.arena = exchange->arena, .context = exchange, .done = done};
    exchange->state = query;
    exchange->resume = resume;
    if (query_submit(door_engine(request->api->door), &query->query, &err) != OK) {
        fail(query, &err);
    }
}

void api_query_put_next(struct jsonw *json, const struct query *query)
{
    char hex[DIGEST_HEX_BYTES];
    if (query->has_more) {
        jsonw_str(json, "next", digest_put_hex(hex, &query->after));
    } else {
        jsonw_raw(json, "next", SLICE_LIT("null"));
    }
}
