#include "api/api.h"

#include <stdio.h>

#include "api/routes.h"
#include "base/check.h"
#include "base/macros.h"

enum {
    POLICY_BYTES_MAX = 64 << 20, /* of all tokens */
    RETRY_SOON_MS = 1000,
};

static const struct problem out_of_memory = {.status = 503,
    .code = "out_of_memory",
    .detail = SLICE_INIT("out of memory"),
    .effect = PROBLEM_EFFECT_NO,
    .retry = PROBLEM_RETRY_SAFE,
    .retry_after_ms = RETRY_SOON_MS};

/* ---- policies ------------------------------------------------------------------------------ */

struct api_held {
    struct api_policy policy;
    struct arena arena; /* what the policy points at */
    unsigned holders;   /* requests, and the api itself while the policy is current */
};

static enum status copy_tokens(
    struct api_held *held, const struct api_policy *policy, struct config_token *to)
{
    for (size_t i = 0; i < policy->token_count; i++) {
        to[i] = policy->tokens[i];
        if (arena_copy(&held->arena, policy->tokens[i].tenant, &to[i].tenant) != OK ||
            arena_copy(&held->arena, policy->tokens[i].name, &to[i].name) != OK) {
            return E_NOMEM;
        }
    }
    return OK;
}

static void held_free(const struct mem *mem, struct api_held *held)
{
    if (held != NULL) {
        arena_release(&held->arena);
        mem_free(mem, held);
    }
}

static struct api_held *held_new(const struct mem *mem, const struct api_policy *policy)
{
    struct api_held *held = mem_zalloc(mem, 1, sizeof *held);
    if (held == NULL) {
        return NULL;
    }
    arena_init(&held->arena, mem, POLICY_BYTES_MAX);
    held->policy = *policy;
    held->holders = 1;
    if (policy->token_count > 0) {
        struct config_token *tokens =
            arena_alloc(&held->arena, policy->token_count * sizeof *tokens);
        if (tokens == NULL || copy_tokens(held, policy, tokens) != OK) {
            held_free(mem, held);
            return NULL;
        }
        held->policy.tokens = tokens;
    }
    return held;
}

static struct api_held *held_take(struct api *api)
{
    (void)pthread_mutex_lock(&api->lock);
    struct api_held *held = api->held;
    held->holders++;
    (void)pthread_mutex_unlock(&api->lock);
    return held;
}

static void held_drop(struct api *api, struct api_held *held)
{
    (void)pthread_mutex_lock(&api->lock);
    ASSERT(held->holders > 0);
    bool is_last = --held->holders == 0;
    (void)pthread_mutex_unlock(&api->lock);
    if (is_last) {
        held_free(api->mem, held);
    }
}

/* ---- notes for the evidence ---------------------------------------------------------------- */

/* Whether an earlier token has the same tenant. */
static bool tenant_before(const struct api_policy *policy, size_t at)
{
    for (size_t i = 0; i < at; i++) {
        if (slice_equal(policy->tokens[i].tenant, policy->tokens[at].tenant)) {
            return true;
        }
    }
    return false;
}

static enum status note_change(struct api *api, struct slice tenant, struct err *err)
{
    struct arena arena;
    struct note note = {.kind = NOTE_CONFIG_CHANGED,
        .tenant = tenant,
        .reason = SLICE_LIT("policy and tokens were loaded anew")};
    struct engine_call call = {.note = &note, .arena = &arena};
    arena_init(&arena, api->mem, 1 << 20);
    enum status status = engine_do(door_engine(api->door), &call);
    if (status != OK) {
        *err = call.err;
    }
    arena_release(&arena);
    return status;
}

/* Each tenant that has a token sees in its own evidence that its rights were set anew. */
static enum status note_changes(struct api *api, const struct api_policy *policy, struct err *err)
{
    if (policy->token_count == 0) {
        return note_change(api, SLICE_LIT("default"), err);
    }
    enum status status = OK;
    for (size_t i = 0; status == OK && i < policy->token_count; i++) {
        if (!slice_is(policy->tokens[i].tenant, "*") && !tenant_before(policy, i)) {
            status = note_change(api, policy->tokens[i].tenant, err);
        }
    }
    return status;
}

enum status api_reload_prepare(
    struct api *api, const struct api_policy *policy, struct api_held **ret_held, struct err *err)
{
    struct api_held *held = held_new(api->mem, policy);
    if (held == NULL) {
        return err_set(err, E_NOMEM, "out of memory for the new policy");
    }
    enum status status = note_changes(api, &held->policy, err);
    if (status != OK) {
        held_free(api->mem, held);
        return status;
    }
    *ret_held = held;
    return OK;
}

void api_reload_end(struct api *api, struct api_held *held, bool is_used)
{
    struct api_held *before = held;
    if (is_used) {
        (void)pthread_mutex_lock(&api->lock);
        before = api->held;
        api->held = held;
        (void)pthread_mutex_unlock(&api->lock);
    }
    held_drop(api, before);
}

void api_not_ready(struct api *api, const char *reason)
{
    atomic_store(&api->not_ready, reason);
}

/* ---- the door ------------------------------------------------------------------------------ */

enum status api_new(const struct api_options *options, struct api **ret_api, struct err *err)
{
    const struct mem *mem = options->mem == NULL ? &mem_libc : options->mem;
    struct api *api = mem_zalloc(mem, 1, sizeof *api);
    if (api == NULL) {
        return err_set(err, E_NOMEM, "out of memory");
    }
    api->mem = mem;
    api->door = options->door;
    api->server = options->server;
    api->store = options->store;
    api->cautions = options->cautions;
    api->own_listener = options->own_listener;
    api->outbox = options->outbox;
    api->started_nanos = clock_nanos();
    api->tables[api->table_count++] = api_own_routes;
    ASSERT(options->routes_count < API_TABLES_MAX);
    for (size_t i = 0; i < options->routes_count; i++) {
        api->tables[api->table_count++] = options->routes[i];
    }
    (void)pthread_mutex_init(&api->lock, NULL);
    api->held = held_new(mem, &options->policy);
    if (api->held == NULL) {
        api_free(api);
        return err_set(err, E_NOMEM, "out of memory");
    }
    *ret_api = api;
    return OK;
}

void api_free(struct api *api)
{
    if (api == NULL) {
        return;
    }
    ASSERT(api->held == NULL || api->held->holders == 1); /* the server is gone, and its requests */
    held_free(api->mem, api->held);
    (void)pthread_mutex_destroy(&api->lock);
    mem_free(api->mem, api);
}

void api_attach(struct api *api, struct http_server *server)
{
    api->server = server;
}

/* ---- answers ------------------------------------------------------------------------------- */

/* Releases everything of the request that is not in the exchange. */
static void request_end(struct api_request *request, unsigned status)
{
    const char *route = request->route == NULL ? "_unknown" : request->route->pattern;
    metrics_request(door_metrics(request->api->door), request->exchange->loop, route, status,
        clock_nanos() - request->exchange->started_nanos);
    held_drop(request->api, request->held);
}

void api_answer_begin(struct api_request *request, unsigned status)
{
    request->status = status;
    http_answer_begin(request->exchange, status);
}

void api_answer_end(
    struct api_request *request, struct slice content_type, struct slice body, bool is_stable)
{
    struct http_exchange *exchange = request->exchange;
    request_end(request, request->status);
    http_answer_end(exchange, content_type, body, is_stable);
}

void api_refuse(struct api_request *request, const struct problem *problem)
{
    struct http_exchange *exchange = request->exchange;
    request_end(request, problem->status);
    problem_answer(exchange, problem);
}

void api_refuse_plain(
    struct api_request *request, unsigned status, const char *code, const char *detail)
{
    api_refuse(request, &(struct problem){.status = status,
                            .code = code,
                            .detail = slice_str(detail),
                            .effect = PROBLEM_EFFECT_NO,
                            .retry = PROBLEM_RETRY_NO});
}

void api_answer_json(struct api_request *request, const struct buf *document)
{
    if (buf_status(document) != OK) {
        api_fail_memory(request);
        return;
    }
    api_answer_begin(request, 200);
    api_answer_end(request, SLICE_LIT("application/json"), buf_view(document), true);
}

/* Why the store failed. Its location is not for callers on other machines; the log has the full
 * text. */
static struct slice cause_of(const struct err *err)
{
    return slice_str(err->text + err->cause);
}

struct problem api_problem_of(const struct err *err)
{
    struct problem problem = {.status = 503,
        .code = "unavailable",
        .detail = slice_str(err->text),
        .effect = PROBLEM_EFFECT_NO,
        .retry = PROBLEM_RETRY_SAFE,
        .retry_after_ms = RETRY_SOON_MS};
    switch (err->status) {
    case OK: break;
    case E_UNAVAILABLE: problem.detail = cause_of(err); break;
    case E_LIMIT:
        problem.code = err->limit == ERR_LIMIT_QUEUE_REQUESTS ? "overloaded" : "limit_reached";
        problem.retry = PROBLEM_RETRY_AFTER;
        break;
    case E_NOMEM: problem.code = "out_of_memory"; break;
    case E_STALE: problem.code = "unavailable"; break;
    case E_UNKNOWN:
        /* A retry with the same key is answered with the outcome. */
        problem.status = 500;
        problem.code = "commit_unknown";
        problem.detail = cause_of(err);
        problem.effect = PROBLEM_EFFECT_UNKNOWN;
        problem.retry = PROBLEM_RETRY_AFTER;
        break;
    case E_CORRUPT:
        problem.status = 500;
        problem.code = "store_corrupt";
        problem.detail = SLICE_LIT("the store is damaged: the server's log says where");
        problem.retry = PROBLEM_RETRY_NO;
        problem.retry_after_ms = 0;
        break;
    case E_INVALID:
    case E_MISUSE:
        problem.status = 400;
        problem.code = "invalid_member";
        problem.retry = PROBLEM_RETRY_NO;
        problem.retry_after_ms = 0;
        break;
    }
    return problem;
}

const struct problem api_problem_decision = {.status = 500,
    .code = "internal",
    .detail = SLICE_INIT("the engine made a decision that this request cannot have"),
    .effect = PROBLEM_EFFECT_UNKNOWN,
    .retry = PROBLEM_RETRY_NO};

void api_fail(struct api_request *request, const struct err *err)
{
    struct problem problem = api_problem_of(err);
    api_refuse(request, &problem);
}

void api_fail_memory(struct api_request *request)
{
    api_refuse(request, &out_of_memory);
}

/* ---- several calls ------------------------------------------------------------------------- */

static void on_group_refused(struct door_group *group, const struct err *err)
{
    api_fail(CONTAINER_OF(group, struct api_request, group), err);
}

void api_submit_group(struct api_request *request, struct engine_call *const *calls, size_t count)
{
    request->group =
        (struct door_group){.calls = calls, .count = count, .refused = on_group_refused};
    door_submit_group(request->api->door, request->exchange->loop, &request->group);
}

/* ---- handling a request -------------------------------------------------------------------- */

/* Answer with a problem and a header field of its own. The document is written here, because
 * problem_answer sends no such fields. */
static void refuse_with_field(struct api_request *request, const struct problem *problem,
    struct slice name, struct slice value)
{
    struct buf out;
    buf_init(&out, &request->mem, 16 << 10);
    problem_put(&out, problem, request->exchange->request_id);
    if (buf_status(&out) != OK) {
        api_refuse(request, problem);
        return;
    }
    api_answer_begin(request, problem->status);
    http_answer_field(request->exchange, name, value);
    api_answer_end(request, SLICE_LIT("application/problem+json"), buf_view(&out), true);
}

static void refuse_method(struct api_request *request, const char *allow)
{
    struct problem problem = {.status = 405,
        .code = "method_not_allowed",
        .detail = SLICE_LIT("this path does not know the method"),
        .effect = PROBLEM_EFFECT_NO,
        .retry = PROBLEM_RETRY_NO};
    refuse_with_field(request, &problem, SLICE_LIT("Allow"), slice_str(allow));
}

static void refuse_unknown(struct api_request *request, enum auth_verdict verdict)
{
    bool missing = verdict == AUTH_MISSING;
    struct problem problem = {.status = 401,
        .code = "unauthorized",
        .detail = missing ? SLICE_LIT("a bearer token is needed")
                          : SLICE_LIT("the bearer token is not a known one"),
        .effect = PROBLEM_EFFECT_NO,
        .retry = PROBLEM_RETRY_NO};
    refuse_with_field(request, &problem, SLICE_LIT("WWW-Authenticate"),
        missing ? SLICE_LIT("Bearer") : SLICE_LIT("Bearer error=\"invalid_token\""));
}

static void refuse_right(struct api_request *request, unsigned rights)
{
    static const char *const names[] = {"execute", "confirm", "operate", "audit"};
    char detail[96] = "";
    size_t used = 0;
    for (size_t i = 0; i < COUNT(names); i++) {
        if ((rights & 1U << i) != 0) {
            used += (size_t)snprintf(detail + used, sizeof detail - used, "%s'%s'",
                used == 0 ? "the token lacks the right " : " or ", names[i]);
        }
    }
    api_refuse_plain(request, 403, "forbidden",
        used == 0 ? "tenant * is for /metrics, and on the store's own socket for listing operations"
                  : detail);
}

/* A token for all tenants sees metrics and nothing else: it has no rights. On the own socket "*"
 * has rights, but only a few routes accept it. */
static bool may(const struct api_request *request)
{
    const struct api_route *route = request->route;
    if (route->rights == 0) {
        return true;
    }
    return (request->caller.rights & route->rights) != 0 &&
           (route->takes_all || !slice_is(request->caller.tenant, "*"));
}

/* Whether the request comes from a web page of a different origin (RFC 6454). A browser sends a
 * plain POST to any address that its machine can reach, loopback too, and names the page's
 * origin. */
static bool is_foreign_page(const struct http_head *head)
{
    struct slice origin = SLICE_EMPTY, host = SLICE_EMPTY;
    if (http_find(head, SLICE_LIT("Origin"), 0) == head->field_count) {
        return false;
    }
    if (!http_find_single(head, SLICE_LIT("Origin"), &origin) ||
        !http_find_single(head, SLICE_LIT("Host"), &host)) {
        return true;
    }
    static const struct slice schemes[] = {
        {"http://", sizeof "http://" - 1}, {"https://", sizeof "https://" - 1}};
    for (size_t i = 0; i < COUNT(schemes); i++) {
        size_t len = schemes[i].len;
        if (origin.len > len && memcmp(origin.data, schemes[i].data, len) == 0) {
            return !http_same_name(slice_of(origin.data + len, origin.len - len), host);
        }
    }
    return true;
}

static void refuse_page(struct api_request *request)
{
    api_refuse_plain(request, 403, "forbidden",
        "Origin is not this server: without tokens, web pages of elsewhere may not use it");
}

/* Authenticate and authorise the caller. False: the request has been answered. */
static bool let_in(struct api_request *request)
{
    bool is_own = request->exchange->listener == request->api->own_listener;
    if (request->route->is_open) {
        return true;
    }
    if (!request->policy->needs_token && is_foreign_page(request->exchange->head)) {
        refuse_page(request);
        return false;
    }
    enum auth_verdict verdict =
        auth_check(request->policy, request->exchange->head, is_own, &request->caller);
    if (verdict != AUTH_OK) {
        refuse_unknown(request, verdict);
        return false;
    }
    if (!may(request)) {
        refuse_right(request, slice_is(request->caller.tenant, "*") ? 0 : request->route->rights);
        return false;
    }
    return true;
}

static bool check_query(struct api_request *request)
{
    struct err err;
    err_clear(&err);
    enum status status = api_path_read(request);
    if (status == OK && request->query.len > 0) {
        status = api_query_read(request, &err);
    }
    if (status == E_NOMEM) {
        api_fail_memory(request);
    } else if (status != OK) {
        api_refuse_plain(request, 400, "invalid_parameter", err.text);
    }
    return status == OK;
}

static void dispatch(struct api_request *request)
{
    const struct http_head *head = request->exchange->head;
    const char *allow;
    if (!api_route_find(request, head->method, http_path(head), &allow)) {
        if (allow != NULL) {
            refuse_method(request, allow);
        } else {
            api_refuse_plain(request, 404, "not_found", "there is nothing at this path");
        }
        return;
    }
    request->query = http_text(head, head->query);
    if (!let_in(request) || !check_query(request)) {
        return;
    }
    if (request->exchange->body.len > request->policy->body_bytes_max) {
        api_refuse(
            request, &(struct problem){.status = 413,
                         .code = "body_too_large",
                         .detail = SLICE_LIT("the body is longer than limits.body_bytes_max"),
                         .effect = PROBLEM_EFFECT_NO,
                         .retry = PROBLEM_RETRY_NO,
                         .body_bytes_max = request->policy->body_bytes_max});
        return;
    }
    if (request->route->is_named != NULL) {
        api_find_named(request);
    } else {
        request->route->handle(request);
    }
}

void api_handle(void *context, struct http_exchange *exchange)
{
    struct api *api = context;
    struct api_request *request = arena_zalloc(exchange->arena, sizeof *request);
    if (request == NULL) {
        problem_answer(exchange, &out_of_memory);
        return;
    }
    request->api = api;
    request->exchange = exchange;
    request->held = held_take(api);
    request->policy = &request->held->policy;
    request->mem = arena_mem(exchange->arena);
    dispatch(request);
}
