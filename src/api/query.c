#include "api/query.h"

#include "base/check.h"
#include "base/text.h"

enum { LIST_DEFAULT = 100 }; /* records in a page, unless the query says otherwise */
static_assert(LIMIT_PAGE_RECORDS_MAX == 1000, "as the refusal of a limit says");

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

/* On a thread of the engine: continue on the exchange's own. */
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
        (struct engine_call){.arena = query->arena == NULL ? exchange->arena : query->arena,
            .context = exchange,
            .done = done};
    exchange->state = query;
    exchange->resume = resume;
    if (query_submit(door_engine(request->api->door), &query->query, &err) != OK) {
        fail(query, &err);
    }
}

/* NULL, or what is invalid. */
static const char *take_page(const struct api_request *request, struct scan *scan)
{
    struct slice value;
    uint64_t limit = LIST_DEFAULT;
    if (api_param(request, "limit", &value) &&
        (!text_u64(value, &limit) || limit < 1 || limit > LIMIT_PAGE_RECORDS_MAX)) {
        return "parameter 'limit' must be a number from 1 to 1000";
    }
    scan->limit = (size_t)limit;
    /* An empty one is the first page, as a loop over pages sends it. */
    if (api_param(request, "after", &value) && value.len > 0 &&
        !text_hex(value, scan->after.bytes, sizeof scan->after.bytes)) {
        return "parameter 'after' must be the 'next' of a page before";
    }
    return NULL;
}

void api_query_list(struct api_query *query, struct api_request *request, const char *wrong)
{
    wrong = wrong == NULL ? take_page(request, &query->query.scan) : wrong;
    query->query.any_tenant = slice_is(request->caller.tenant, "*");
    if (wrong == NULL) {
        api_query_run(query, request);
    } else {
        api_refuse_plain(request, 400, "invalid_parameter", wrong);
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
