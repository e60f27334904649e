/*
 * /livez, /readyz, /metrics, /v1/targets and /openapi.json.
 *
 * livez reports only that the process answers: a supervisor that restarts it for any other reason
 * turns a full disk into an outage. readyz reports whether requests would be served. It sends a
 * query through queue, engine and flush like any request. If the engine hangs on its disk, readyz
 * stays unanswered; the caller gives up and treats that as "not ready".
 */
#include "api/openapi.h"
#include "api/query.h"
#include "base/limits.h"
#include "canon/jsonw.h"

enum { TARGETS_BYTES_MAX = 1 << 20 }; /* METRICS_TARGETS_MAX of them with the longest names */

static void answer_text(struct api_request *request, unsigned status, struct slice text)
{
    api_answer_begin(request, status);
    http_answer_field(request->exchange, SLICE_LIT("Cache-Control"), SLICE_LIT("no-store"));
    api_answer_end(request, SLICE_LIT("text/plain; charset=utf-8"), text, true);
}

void api_livez(struct api_request *request)
{
    answer_text(request, 200, SLICE_LIT("ok"));
}

void api_openapi(struct api_request *request)
{
    api_answer_begin(request, 200);
    api_answer_end(request, SLICE_LIT("application/json"),
        slice_of(api_openapi_json, api_openapi_json_bytes), true);
}

/* --- Ready ------------------------------------------------------------------------------------ */

struct check {
    const char *name;
    bool is_ok;
    const char *detail; /* NULL: none */
};

enum {
    CHECKS_MAX = 16,
    TURN_MS_MAX =
        3000, /* of a batch: after longer, a store that can be read does not commit. It may
                           be asked what became of a commit, which takes up to ten seconds */
};

/* Run all checks; returns how many. Details that name a place are only for callers that need no
 * token: then only this machine can ask (P9). */
static size_t run_checks(const struct api_request *request, const struct err *said,
    const struct err *away, struct check ret_checks[CHECKS_MAX])
{
    const struct api *api = request->api;
    bool is_open = !request->policy->needs_token;
    const char *not_ready = atomic_load(&api->not_ready);
    struct engine_stats stats;
    engine_stats(door_engine(api->door), &stats);
    bool has_room = said->status != E_LIMIT && stats.queued < LIMIT_QUEUE_REQUESTS_MAX;
    size_t count = 0;
    ret_checks[count++] = (struct check){"engine", said->status == OK || said->status == E_LIMIT,
        is_open && said->status != OK ? said->text : NULL};
    bool commits = !stats.store_away && stats.turn_ms < TURN_MS_MAX;
    const char *store = away->status != OK ? away->text : api->store;
    ret_checks[count++] =
        (struct check){"store", said->status == OK && commits, is_open ? store : NULL};
    ret_checks[count++] = (struct check){
        "queue", has_room, has_room ? NULL : "the queue of requests is full (queue_requests_max)"};
    ret_checks[count++] = (struct check){"serving", not_ready == NULL, not_ready};
    /* A held clock only pauses expiry. It is reported, but the server stays ready. */
    ret_checks[count++] = (struct check){"clock", true,
        stats.clock_held ? "held: the wall clock jumped ahead, expiry follows the boot clock"
                         : NULL};
    /* Cautions do not make the server unready either: the store works, but promises less than it
     * could. */
    for (size_t i = 0; is_open && api->cautions != NULL && api->cautions[i] != NULL; i++) {
        if (count < CHECKS_MAX) {
            ret_checks[count++] = (struct check){"store_caution", true, api->cautions[i]};
        }
    }
    return count;
}

static void put_checks(struct buf *out, const struct check *checks, size_t count, bool is_ready)
{
    struct jsonw json = {.out = out};
    jsonw_open(&json, NULL, '{');
    jsonw_str(&json, "status", is_ready ? "ready" : "not_ready");
    jsonw_open(&json, "checks", '[');
    for (size_t i = 0; i < count; i++) {
        jsonw_open(&json, NULL, '{');
        jsonw_str(&json, "name", checks[i].name);
        jsonw_bool(&json, "ok", checks[i].is_ok);
        jsonw_str_some(&json, "detail", checks[i].detail);
        jsonw_close(&json, '}');
    }
    jsonw_close(&json, ']');
    jsonw_close(&json, '}');
}

static void answer_ready(struct api_request *request, const struct err *said)
{
    struct check checks[CHECKS_MAX];
    struct err away = {0}; /* a store may be readable and commit nothing: why */
    (void)engine_store_away(door_engine(request->api->door), &away);
    size_t count = run_checks(request, said, &away, checks);
    const char *failed = NULL;
    for (size_t i = 0; i < count; i++) {
        failed = failed == NULL && !checks[i].is_ok ? checks[i].name : failed;
    }
    struct buf out;
    buf_init(&out, &request->mem, 16 << 10);
    struct slice verbose;
    if (api_param(request, "verbose", &verbose)) {
        put_checks(&out, checks, count, failed == NULL);
    } else {
        buf_printf(&out, failed == NULL ? "ok" : "not ready: %s", failed);
    }
    if (buf_status(&out) != OK) {
        api_fail_memory(request);
        return;
    }
    bool is_json = out.data[0] == '{';
    api_answer_begin(request, failed == NULL ? 200 : 503);
    http_answer_field(request->exchange, SLICE_LIT("Cache-Control"), SLICE_LIT("no-store"));
    api_answer_end(request,
        is_json ? SLICE_LIT("application/json") : SLICE_LIT("text/plain; charset=utf-8"),
        buf_view(&out), true);
}

static void engine_failed(struct api_query *query, const struct err *err)
{
    answer_ready(query->request, err);
}

static void engine_answered(struct api_query *query)
{
    answer_ready(query->request, &query->query.call.err);
}

void api_readyz(struct api_request *request)
{
    struct api_query *query = api_query_new(request, QUERY_READY, engine_answered);
    if (query != NULL) {
        query->failed = engine_failed;
        api_query_run(query, request);
    }
}

/* --- Figures ---------------------------------------------------------------------------------- */

/* A token for all tenants, and a caller that needs no token, sees everything; a tenant's auditors
 * and operators see their own tenant's figures. */
static bool may_see(const struct api_caller *caller)
{
    return caller->sees_all || (caller->rights & (CONFIG_RIGHT_AUDIT | CONFIG_RIGHT_OPERATE)) != 0;
}

void api_metrics(struct api_request *request)
{
    struct api *api = request->api;
    if (!may_see(&request->caller)) {
        api_refuse_plain(request, 403, "forbidden",
            "this token may not read metrics: it needs the right audit or operate");
        return;
    }
    struct metrics_view view = {
        .tenant = request->caller.sees_all ? SLICE_EMPTY : request->caller.tenant,
        .backlog = engine_backlog(door_engine(api->door)),
        .log_dropped = log_dropped(door_log(api->door)),
        .flood_keys = flood_keys(door_flood(api->door))};
    engine_stats(door_engine(api->door), &view.engine);
    if (api->server != NULL) {
        http_server_stats(api->server, &view.http);
    }
    struct buf out; /* on the heap: it grows, and is freed before the exchange is */
    buf_init(&out, api->mem, METRICS_PAGE_BYTES_MAX);
    metrics_put(door_metrics(api->door), &view, &out);
    if (buf_status(&out) == OK) {
        api_answer_begin(request, 200);
        api_answer_end(
            request, SLICE_LIT("text/plain; version=0.0.4; charset=utf-8"), buf_view(&out), false);
    } else {
        api_fail_memory(request);
    }
    buf_release(&out);
}

/* ---- targets ------------------------------------------------------------------------------ */

/* Nothing here is counted by tenant, so how much waits or runs is not shown (P9). */
void api_targets(struct api_request *request)
{
    struct metrics_target *targets =
        arena_zalloc(request->exchange->arena, METRICS_TARGETS_MAX * sizeof *targets);
    struct buf out;
    struct jsonw json = {.out = &out};
    if (targets == NULL) {
        api_fail_memory(request);
        return;
    }
    size_t count =
        metrics_targets_now(door_metrics(request->api->door), targets, METRICS_TARGETS_MAX);
    buf_init(&out, &request->mem, TARGETS_BYTES_MAX);
    jsonw_open(&json, NULL, '{');
    jsonw_open(&json, "targets", '[');
    for (size_t i = 0; i < count; i++) {
        if (targets[i].name == NULL) {
            continue; /* the sum of those beyond METRICS_TARGETS_MAX */
        }
        jsonw_open(&json, NULL, '{');
        jsonw_str(&json, "kind", targets[i].kind);
        jsonw_str(&json, "target", targets[i].name);
        jsonw_str(&json, "breaker", metrics_breaker(&targets[i]));
        jsonw_u64(&json, "opened", targets[i].opened);
        jsonw_close(&json, '}');
    }
    jsonw_close(&json, ']');
    jsonw_close(&json, '}');
    api_answer_json(request, &out);
}
