/*
 * arrive: what a fenced request asks: its key and its principal, from the head alone; its body, in
 * memory or spooled; its fingerprint; and the begin that all of it becomes.
 */
#include "base/check.h"
#include "base/text.h"
#include "base/uuid.h"
#include "canon/trace.h"
#include "gateway/impl.h"

/* ---- key and principal --------------------------------------------------------------------- */

/* A refusal that is told once the body is out of the way, so that the connection stays usable; at
 * once where the body is long or the client waits to be asked for it. */
static void refuse_early(struct pass *pass, enum refusal_kind kind)
{
    const struct http_head *head = pass->exchange->head;
    bool is_short = head->framing == HTTP_BODY_NONE ||
                    (head->framing == HTTP_BODY_LENGTH && !head->expect_continue &&
                        head->length <= GATEWAY_DISCARD_BYTES_MAX);
    pass->refusal = (struct refusal){.kind = kind, .detail = slice_str(pass->fault.text)};
    pass->has_refusal = true;
    if (!is_short) {
        answer_refusal_now(pass, &pass->refusal, NULL);
    }
}

static enum status key_make(struct pass *pass)
{
    char *text = arena_alloc(pass->exchange->arena, UUID_TEXT_BYTES);
    if (text == NULL) {
        return E_NOMEM;
    }
    enum status status = uuid_new(text, &pass->fault);
    if (status != OK) {
        return status;
    }
    pass->key = slice_str(text);
    pass->key_field = pass->key;
    return OK;
}

static enum status key_read(struct pass *pass)
{
    struct arena *arena = pass->exchange->arena;
    enum status status = request_form_key(pass->key_field, arena, &pass->key, &pass->fault);
    if (status == OK && pass->route->key_is_uuid && !request_form_key_is_uuid(pass->key)) {
        return err_set(&pass->fault, E_INVALID, "Idempotency-Key has to be a UUID");
    }
    return status;
}

/* True: go on. False: the request was refused, or passes by. */
static bool take_key(struct pass *pass)
{
    const struct http_head *head = pass->exchange->head;
    struct slice name = SLICE_LIT("Idempotency-Key");
    enum status status = OK;
    if (http_find(head, name, 0) == head->field_count) {
        switch (pass->route->key) {
        case CONFIG_KEY_REQUIRED: refuse_early(pass, REFUSAL_KEY_MISSING); return false;
        case CONFIG_KEY_OPTIONAL: relay_begin(pass); return false;
        case CONFIG_KEY_GENERATED: status = key_make(pass); break;
        }
    } else if (!http_find_single(head, name, &pass->key_field)) {
        status = err_set(&pass->fault, E_INVALID, "Idempotency-Key came more than once");
    } else {
        status = key_read(pass);
    }
    if (status != OK) {
        refuse_early(pass, status == E_NOMEM         ? REFUSAL_MEMORY
                           : status == E_UNAVAILABLE ? REFUSAL_STORE
                                                     : REFUSAL_KEY_INVALID);
    }
    return status == OK;
}

/* Those that the policy asks for beside the key. */
static bool has_required(struct pass *pass)
{
    const struct config_gateway *config = pass->gate->gateway;
    const struct http_head *head = pass->exchange->head;
    for (size_t i = 0; i < config->require_header_count; i++) {
        if (http_find(head, slice_str(config->require_headers[i]), 0) == head->field_count) {
            (void)err_set(
                &pass->fault, E_INVALID, "the field '%s' is required", config->require_headers[i]);
            refuse_early(pass, REFUSAL_REQUEST);
            return false;
        }
    }
    return true;
}

/* Which of two types the upstream goes by nobody knows: then the fingerprint could hold neither. */
static bool has_one_type(struct pass *pass)
{
    struct slice type;
    if (!http_find_single(pass->exchange->head, SLICE_LIT("Content-Type"), &type)) {
        (void)err_set(&pass->fault, E_INVALID, "Content-Type came more than once");
        refuse_early(pass, REFUSAL_REQUEST);
        return false;
    }
    return true;
}

static bool take_principal(struct pass *pass)
{
    /* The one use of the wall clock in the gateway: exp and nbf of a token are wall time (RFC 7519
     * section 4.1). It decides whether a request is let in, never about an operation. */
    enum status status = principal_of(pass->gate->principals, pass->gate->gateway, pass->route,
        pass->exchange->head, clock_read(&pass->gateway->clock).wall_ms, pass->exchange->arena,
        &pass->principal, &pass->fault);
    if (status != OK) {
        refuse_early(pass, status == E_NOMEM ? REFUSAL_MEMORY : REFUSAL_PRINCIPAL);
    }
    return status == OK;
}

/* ---- the body ------------------------------------------------------------------------------ */

static void on_body_piece(void *context, struct http_exchange *exchange, struct slice piece)
{
    (void)context;
    struct pass *pass = exchange->state;
    enum status status = pass_spool(pass, &pass->body, piece);
    if (status != OK) {
        /* The body's own limit is the reader's to watch: this one is of all together. */
        answer_refusal_now(pass,
            &(struct refusal){.kind = status == E_NOMEM   ? REFUSAL_MEMORY
                                      : status == E_LIMIT ? REFUSAL_OVERLOADED
                                                          : REFUSAL_SPOOL,
                .detail = status == E_LIMIT ? slice_str(pass->fault.text) : SLICE_EMPTY,
                .retry_after_ms = status == E_LIMIT ? 1000 : 0},
            NULL);
    }
}

/* The body will never be whole: nothing was asked, nothing happened. */
static void on_body_cut(void *context, struct http_exchange *exchange)
{
    (void)context;
    pass_end(exchange->state, 400);
}

static void take_body(struct pass *pass)
{
    struct http_exchange *exchange = pass->exchange;
    const struct config_gateway *config = pass->gate->gateway;
    const struct http_head *head = exchange->head;
    exchange->body_bytes_max = pass->route->body_bytes_max;
    bool is_short =
        head->framing == HTTP_BODY_NONE ||
        (head->framing == HTTP_BODY_LENGTH && head->length <= config->spool_memory_bytes);
    if (!is_short) {
        pass_spool_init(pass, &pass->body, pass->route->body_bytes_max);
        pass->is_spooled = true;
        exchange->piece = on_body_piece;
    }
}

void arrive_head(struct pass *pass)
{
    pass->exchange->cut = on_body_cut; /* it holds its configuration from here on */
    if (take_key(pass) && has_required(pass) && has_one_type(pass) && take_principal(pass)) {
        take_body(pass);
    }
}

/* ---- asking -------------------------------------------------------------------------------- */

static void keyed(const void *context, const struct digest *plain, struct digest *ret_keyed)
{
    engine_fingerprint(context, plain, ret_keyed);
}

/* The tree of a long body is gone before the call is made: the digest and what is kept stay. */
static enum status read_asked(struct pass *pass, struct slice body)
{
    const struct http_head *head = pass->exchange->head;
    const struct config_route *route = pass->route;
    struct slice type = SLICE_EMPTY;
    struct arena scratch;
    arena_init(&scratch, pass->gateway->mem, GATEWAY_SCRATCH_BYTES_MAX);
    struct request_form_parts from = {.method = http_text(head, head->method_text),
        .path = pass->path,
        .query = pass->query,
        .has_query = head->has_query,
        .body = body,
        .ignore = route->ignore,
        .ignore_count = route->ignore_count,
        .redact = route->redact,
        .redact_count = route->redact_count,
        .keyed = keyed,
        .context = door_engine(pass->gateway->door)};
    enum status status = OK;
    if (http_find_single(head, SLICE_LIT("Content-Type"), &type)) {
        status = request_form_content_type(type, pass->exchange->arena, &from.content_type);
    }
    status = status == OK ? request_form_read(&from, &scratch, &pass->asked) : status;
    if (status == OK) {
        status = arena_copy(pass->exchange->arena, pass->asked.kept, &pass->asked.kept);
    }
    arena_release(&scratch);
    return status;
}

enum status arrive_body(struct pass *pass, struct slice *ret_body)
{
    if (!pass->is_spooled) {
        *ret_body = pass->exchange->body;
        return OK;
    }
    return spool_view(&pass->body, ret_body, &pass->fault);
}

static enum status put_trace(struct pass *pass, struct request *request)
{
    struct trace_member own[] = {
        {SLICE_LIT("request_id"), pass->exchange->request_id},
        {SLICE_LIT("traceparent"), pass->traceparent},
    };
    struct buf out;
    buf_init(&out, &pass->mem, LIMIT_TRACE_BYTES_MAX);
    enum status status = trace_write(NULL, own, 2, &out, &pass->fault);
    request->trace = buf_view(&out);
    return status;
}

static enum status put_key(struct pass *pass, struct request *request)
{
    const struct http_head *head = pass->exchange->head;
    request->key = (struct record_key){
        .tenant = slice_str(pass->route->tenant), .principal = pass->principal, .key = pass->key};
    enum status status = request_form_scope(
        http_text(head, head->method_text), pass->path, pass->exchange->arena, &request->key.scope);
    return status == OK ? record_key_seal(&request->key, &pass->fault) : status;
}

/* A lease that ends before the call does would call an operation unknown that is only slow. */
static int64_t lease_of(const struct config_route *route)
{
    int64_t least = route->total_ms + GATEWAY_LEASE_MARGIN_MS;
    return route->lease_ms > least ? route->lease_ms : least;
}

/* How long it wants to wait. Several fields are one list (RFC 7240, section 2). */
static int64_t wait_of(const struct http_head *head)
{
    int64_t wait_ms = 0;
    for (uint32_t i = http_find(head, SLICE_LIT("Prefer"), 0);
         i < head->field_count && wait_ms == 0; i = http_find(head, SLICE_LIT("Prefer"), i + 1)) {
        wait_ms = request_form_wait_ms(http_text(head, head->fields[i].value));
    }
    return wait_ms;
}

static enum status put_begin(struct pass *pass)
{
    const struct config_route *route = pass->route;
    struct engine_call *engine = &pass->call.engine;
    struct request *request = &engine->request;
    int64_t wait_ms = wait_of(pass->exchange->head);
    request->kind = REQUEST_BEGIN;
    request->policy = policy_default;
    request->policy.window_ms = route->window_ms;
    request->policy.lease_ms = lease_of(route);
    request->policy.on_unknown = (enum on_unknown)route->on_unknown;
    engine_fingerprint(
        door_engine(pass->gateway->door), &pass->asked.fingerprint, &request->fingerprint);
    request->fingerprint_version = (uint8_t)pass->asked.version;
    engine->request_body = pass->asked.kept;
    request->request = (struct body_ref){.bytes = pass->asked.kept.len, .retained = true};
    digest_sha256(pass->asked.kept.data, pass->asked.kept.len, &request->request.digest);
    engine->wait_ms = wait_ms < route->wait_ms_max ? wait_ms : route->wait_ms_max;
    enum status status = put_key(pass, request);
    return status == OK ? put_trace(pass, request) : status;
}

enum status arrive_begin(struct pass *pass, struct slice body)
{
    enum status status = read_asked(pass, body);
    status = status == OK ? pass_trace(pass) : status;
    return status == OK ? put_begin(pass) : status;
}
