/*
 * health: the path on the gateway's own port that reports whether it would serve (gateway.health).
 * It sends the engine an empty query, which is answered when everything before it is durable. If
 * the store hangs, the request stays unanswered, which a load balancer treats as unhealthy. No
 * upstream sees it.
 */
#include "base/macros.h"
#include "engine/query.h"
#include "gateway/impl.h"

struct health {
    struct gateway_request request;
    struct query query;
};

bool health_is(const struct config_gateway *settings, struct slice path)
{
    return settings->health != NULL && slice_is(path, settings->health);
}

static void answer(struct health *health, unsigned status, const char *text)
{
    struct http_exchange *exchange = health->request.exchange;
    http_answer_begin(exchange, status);
    http_answer_field(exchange, SLICE_LIT("Cache-Control"), SLICE_LIT("no-store"));
    if (status == 405) {
        http_answer_field(exchange, SLICE_LIT("Allow"), SLICE_LIT("GET, HEAD"));
    }
    gateway_config_drop(health->request.gateway, health->request.config);
    http_answer_end(exchange, SLICE_LIT("text/plain; charset=utf-8"), slice_str(text), true);
}

static void on_cut(void *context, struct http_exchange *exchange)
{
    (void)context;
    struct gateway_request *request = exchange->state;
    gateway_config_drop(request->gateway, request->config);
}

static void on_answered(void *context, struct http_exchange *exchange)
{
    (void)context;
    struct health *health =
        CONTAINER_OF((struct gateway_request *)exchange->state, struct health, request);
    bool is_ready = health->query.call.err.status == OK;
    answer(health, is_ready ? 200 : 503, is_ready ? "ok\n" : "not ready\n");
}

static void wake(struct engine_call *call)
{
    http_wake(call->context);
}

bool health_begin(const struct gateway_request *request)
{
    struct health *health = arena_zalloc(request->exchange->arena, sizeof *health);
    if (health == NULL) {
        return false;
    }
    health->request = *request;
    health->request.is_health = true;
    request->exchange->state = &health->request;
    request->exchange->cut = on_cut;
    return true;
}

void health_handle(struct gateway_request *request)
{
    struct health *health = CONTAINER_OF(request, struct health, request);
    struct http_exchange *exchange = request->exchange;
    enum http_method method = exchange->head->method;
    struct err err;
    if (method != HTTP_METHOD_GET && method != HTTP_METHOD_HEAD) {
        answer(health, 405, "method not allowed\n");
        return;
    }
    health->query = (struct query){
        .kind = QUERY_READY, .call = {.arena = exchange->arena, .context = exchange, .done = wake}};
    exchange->resume = on_answered;
    if (query_submit(door_engine(request->gateway->door), &health->query, &err) != OK) {
        answer(health, 503, "not ready\n");
    }
}
