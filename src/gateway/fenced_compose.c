/*
 * Makes a fenced request's begin: its key, its fingerprint and the kept form of the request.
 */
#include "engine/request_builder.h"
#include "gateway/fenced.h"
#include "gateway/sealed_keys.h"

enum { LEASE_MARGIN_MS = 5000 }; /* by which a lease outlasts the call, at least */

static void keyed(const void *context, const struct digest *plain, struct digest *ret_keyed)
{
    engine_fingerprint(context, plain, ret_keyed);
}

static enum status read_form(struct fenced *fenced, struct slice body, enum fenced_how how)
{
    const struct gateway_request *request = &fenced->request;
    const struct http_head *head = request->exchange->head;
    const struct config_route *route = request->route;
    struct arena *arena = request->exchange->arena;
    struct slice type = SLICE_EMPTY;
    struct request_form_parts parts = {.method = http_text(head, head->method_text),
        .path = request->path,
        .query = fenced->query,
        .has_query = head->has_query,
        .body = body,
        .ignore = route->ignore,
        .ignore_count = route->ignore_count,
        .redact = route->redact,
        .redact_count = route->redact_count,
        .keyed = keyed,
        .context = door_engine(request->gateway->door),
        .known = how == FENCED_WHOLE
                     ? NULL
                     : sealed_keys_find(gateway_sealed_keys(request),
                           &fenced->call.engine.request.key.hash, request->config->number)};
    enum status status = OK;
    if (http_find_single(head, SLICE_LIT("Content-Type"), &type)) {
        status = request_form_content_type(type, arena, &parts.content_type);
    }
    return status == OK ? request_form_read(&parts, arena, &fenced->form) : status;
}

static enum status put_key(struct fenced *fenced, struct request *begin)
{
    const struct gateway_request *request = &fenced->request;
    const struct http_head *head = request->exchange->head;
    begin->key = (struct record_key){.tenant = slice_str(request->route->tenant),
        .principal = fenced->principal,
        .key = fenced->key};
    struct request_form_place place = {
        .method = http_text(head, head->method_text), .path = request->path};
    /* An API that serves several hosts has a different resource at one path for each Host. */
    struct slice host;
    if (request->route->preserve_host && http_find_single(head, SLICE_LIT("Host"), &host)) {
        place.host = host;
    }
    enum status status = request_form_scope(&place, request->exchange->arena, &begin->key.scope);
    status = status == OK ? record_key_seal(&begin->key, &fenced->fault) : status;
    return status == OK ? request_names_check(begin, &fenced->fault) : status;
}

/* If the lease ended before the call does, an operation that is only slow would become unknown. */
static int64_t lease_of(const struct config_route *route)
{
    int64_t least = route->total_ms + LEASE_MARGIN_MS;
    return route->lease_ms > least ? route->lease_ms : least;
}

bool fenced_lease_covers_call(const struct fenced *fenced)
{
    const struct gateway *gateway = fenced->request.gateway;
    struct door_grant grant = door_grant_of(&fenced->call.engine);
    return door_grant_covers(gateway->door, &grant, clock_read(&gateway->clock).boot_ms,
        fenced->request.route->total_ms);
}

/* How long a duplicate waits for the first one's answer: as long as the route says, or less if the
 * client asks for less. Several fields form one list (RFC 7240, section 2). */
static int64_t wait_of(const struct fenced *fenced)
{
    const struct http_head *head = fenced->request.exchange->head;
    struct slice name = SLICE_LIT("Prefer");
    int64_t asked_ms = -1;
    for (uint32_t i = http_find(head, name, 0); i < head->field_count && asked_ms < 0;
         i = http_find(head, name, i + 1)) {
        asked_ms = request_form_wait_ms(http_text(head, head->fields[i].value));
    }
    int64_t wait_ms = fenced->request.route->wait_ms;
    return asked_ms >= 0 && asked_ms < wait_ms ? asked_ms : wait_ms;
}

static enum status put_begin(struct fenced *fenced)
{
    const struct config_route *route = fenced->request.route;
    struct engine_call *engine = &fenced->call.engine;
    struct request *begin = &engine->request;
    begin->kind = REQUEST_BEGIN;
    begin->door = RECORD_DOOR_GATEWAY;
    /* The call to the upstream dies with this process, and so does the grant. */
    begin->holder = engine_incarnation(door_engine(fenced->request.gateway->door));
    begin->policy = policy_default;
    begin->policy.window_ms = route->window_ms;
    begin->policy.lease_ms = lease_of(route);
    begin->policy.on_unknown = (enum on_unknown)route->on_unknown;
    engine->wait_ms = wait_of(fenced);
    enum status status = put_key(fenced, begin);
    return status == OK ? builder_trace(NULL, fenced->request.exchange->request_id,
                              fenced->request.traceparent, &fenced->request.mem, &begin->trace,
                              &fenced->fault)
                        : status;
}

/* What is compared, and what is kept. A body that is known is not kept: the engine must not grant
 * this begin. */
static void put_form(struct fenced *fenced)
{
    const struct request_form *form = &fenced->form;
    struct engine_call *engine = &fenced->call.engine;
    builder_fingerprint(
        engine, door_engine(fenced->request.gateway->door), &form->fingerprint, form->body.version);
    engine->replays_only = form->is_known;
    if (!form->is_known) {
        struct digest digest;
        digest_sha256(form->kept.data, form->kept.len, &digest);
        builder_keep(engine, form->kept, &digest);
    }
}

enum status fenced_make_begin(struct fenced *fenced, struct slice body, enum fenced_how how)
{
    enum status status = gateway_request_trace(&fenced->request);
    status = status == OK ? put_begin(fenced) : status;
    status = status == OK ? read_form(fenced, body, how) : status;
    if (status == OK) {
        put_form(fenced);
    }
    return status;
}

void fenced_learn(const struct fenced *fenced)
{
    sealed_keys_learn(gateway_sealed_keys(&fenced->request), &fenced->call.engine.request.key.hash,
        fenced->request.config->number, &fenced->form.body);
}

void fenced_forget(const struct fenced *fenced)
{
    sealed_keys_forget(
        gateway_sealed_keys(&fenced->request), &fenced->call.engine.request.key.hash);
}
