#include "effect/effects.h"

#include "api/body.h"
#include "base/clock.h"
#include "base/macros.h"
#include "dispatch/dispatch.h"
#include "effect/impl.h"
#include "envelope/seal_effects.h"
#include "http/fields.h"

static bool is_named(const struct record *record, struct slice name, struct arena *arena)
{
    struct effect_detail detail;
    struct err err;
    return effect_detail_may_have(record->detail, "effect_id") &&
           effect_detail_decode(record->detail, arena, &detail, &err) == OK &&
           slice_equal(detail.effect_id, name);
}

static const struct api_route routes[] = {
    {.method = HTTP_METHOD_POST,
        .pattern = "/v1/effects",
        .rights = CONFIG_RIGHT_EXECUTE,
        .handle = effect_create},
    {.method = HTTP_METHOD_GET,
        .pattern = "/v1/effects",
        .rights = API_READERS,
        .takes_all = true,
        .params = "status effect_type command_id key uncertain limit after",
        .handle = effect_list},
    {.method = HTTP_METHOD_POST,
        .pattern = "/v1/effects/retry",
        .rights = CONFIG_RIGHT_OPERATE,
        .handle = effect_retry_many},
    {.method = HTTP_METHOD_GET,
        .pattern = "/v1/effects/{effect_id}",
        .kind = RECORD_EFFECT,
        .is_named = is_named,
        .rights = API_READERS,
        .handle = effect_get},
    {.method = HTTP_METHOD_POST,
        .pattern = "/v1/effects/{effect_id}/retry",
        .kind = RECORD_EFFECT,
        .is_named = is_named,
        .rights = CONFIG_RIGHT_OPERATE,
        .handle = effect_retry},
    {.method = HTTP_METHOD_POST,
        .pattern = "/v1/effects/{effect_id}/cancel",
        .kind = RECORD_EFFECT,
        .is_named = is_named,
        .rights = CONFIG_RIGHT_OPERATE,
        .handle = effect_cancel},
    {.method = HTTP_METHOD_POST,
        .pattern = "/v1/effects/{effect_id}/resolve",
        .kind = RECORD_EFFECT,
        .is_named = is_named,
        .rights = CONFIG_RIGHT_OPERATE,
        .handle = effect_resolve},
    {.method = HTTP_METHOD_POST,
        .pattern = "/v1/effects/{effect_id}/compensate",
        .kind = RECORD_EFFECT,
        .is_named = is_named,
        .rights = CONFIG_RIGHT_OPERATE,
        .handle = effect_compensate},
    {.method = HTTP_METHOD_POST,
        .pattern = "/v1/effects/{effect_id}/ack",
        .is_open = true, /* the token in its body authenticates it */
        .handle = effect_acknowledge},
};

/* The intake's; on the engine's thread. */
static void offer(void *context, const struct record *record)
{
    effects_offer(context, DISPATCH_NO_LOOP, record);
}

static enum status open_intake(struct effects *effects, struct err *err)
{
    struct intake_options options = {.mem = effects->mem,
        .engine = door_engine(effects->door),
        .vault = effects->vault,
        .offer = offer,
        .offer_context = effects};
    enum status status = intake_new(&options, &effects->intake, err);
    return status == OK ? intake_use(effects->intake, effects->config, err) : status;
}

enum status effects_new(
    const struct effects_options *options, struct effects **ret_effects, struct err *err)
{
    const struct mem *mem = options->mem == NULL ? &mem_libc : options->mem;
    struct effects *effects = mem_zalloc(mem, 1, sizeof *effects);
    if (effects == NULL) {
        return err_set(err, E_NOMEM, "out of memory");
    }
    effects->mem = mem;
    effects->door = options->door;
    effects->vault = options->vault;
    effects->dispatch = options->dispatch;
    effects->settler = options->settler;
    effects->config = config_hold(options->config);
    effects_mark_secrets(effects->config, effects->marks);
    (void)pthread_mutex_init(&effects->lock, NULL);
    enum status status = effects->vault == NULL ? OK : open_intake(effects, err);
    if (status != OK) {
        effects_free(effects);
        return status;
    }
    *ret_effects = effects;
    return OK;
}

void effects_cut(struct effects *effects)
{
    if (effects->intake != NULL) {
        intake_stop(effects->intake);
    }
}

bool effects_is_idle(struct effects *effects)
{
    return effects->intake == NULL || intake_is_idle(effects->intake);
}

/* A server that did not start has not waited for it. */
static void close_intake(struct effects *effects)
{
    effects_cut(effects);
    while (!effects_is_idle(effects)) {
        clock_sleep_ms(1);
    }
    intake_free(effects->intake);
}

void effects_free(struct effects *effects)
{
    if (effects != NULL) {
        close_intake(effects);
        config_free(effects->config);
        (void)pthread_mutex_destroy(&effects->lock);
        mem_free(effects->mem, effects);
    }
}

struct api_routes effects_routes(struct effects *effects)
{
    return (struct api_routes){routes, COUNT(routes), effects};
}

/* ---- effects of a seal ------------------------------------------------------------------- */

static enum status outbox_read(void *state, struct api_request *request,
    const struct json_value *list, struct slice command_id, struct seal_effects *ret_effects,
    struct member_fault *fault)
{
    struct config *config = effects_config(state);
    struct effect_sender sender = effects_sender(state, request, config);
    sender.command_id = command_id;
    enum status status = seal_effects_read(&sender, list, ret_effects, fault);
    config_free(config);
    return status;
}

static void outbox_made(void *state, const struct record *record)
{
    effects_offer(state, DISPATCH_NO_LOOP, record);
}

struct api_outbox effects_outbox(struct effects *effects)
{
    return (struct api_outbox){outbox_read, outbox_made, effects};
}

/* ---- configurations ---------------------------------------------------------------------- */

enum status effects_reload_prepare(
    struct effects *effects, struct config *config, void **ret_made, struct err *err)
{
    if (effects->vault == NULL && config->effects.type_count > 0) {
        (void)err_set(err, E_INVALID, "effects: the server was started without any");
        err_hint(err, "restart to take effects in");
        return E_INVALID;
    }
    enum status status = effects_note_change(effects, config, err);
    if (status == OK) {
        *ret_made = config_hold(config);
    }
    return status;
}

void effects_reload_end(struct effects *effects, void *made, bool is_used)
{
    struct config *before = made;
    if (is_used) {
        (void)pthread_mutex_lock(&effects->lock);
        before = effects->config;
        effects->config = made;
        (void)pthread_mutex_unlock(&effects->lock);
        effects_mark_secrets(made, effects->marks);
        if (effects->intake != NULL) {
            struct err ignored = {.status = OK}; /* without memory: those before stay in use */
            (void)!intake_use(effects->intake, made, &ignored);
        }
    }
    config_free(before);
}

struct config *effects_config(struct effects *effects)
{
    (void)pthread_mutex_lock(&effects->lock);
    struct config *config = config_hold(effects->config);
    (void)pthread_mutex_unlock(&effects->lock);
    return config;
}

struct effect_sender effects_sender(
    const struct effects *effects, const struct api_request *request, const struct config *config)
{
    const struct http_exchange *exchange = request->exchange;
    return (struct effect_sender){.types = &config->effects,
        .vault = effects->vault,
        .engine = door_engine(effects->door),
        .arena = exchange->arena,
        .tenant = request->caller.tenant,
        .actor = request->caller.actor,
        .text = exchange->body,
        .request_id = exchange->request_id,
        .traceparent = fields_traceparent_of(exchange->head)};
}

void effects_offer(struct effects *effects, unsigned loop, const struct record *record)
{
    if (effects->dispatch != NULL) {
        dispatch_offer(effects->dispatch, loop, record);
    }
}

void effects_settled(struct effects *effects, const struct record *record)
{
    if (effects->settler.settled != NULL) {
        effects->settler.settled(effects->settler.context, record);
    }
}

void effects_read_command(struct api_query *query, struct api_request *request,
    const struct record *effect, const struct effect_detail *detail,
    void (*then)(struct api_query *query))
{
    *query = (struct api_query){.request = request, .answer = then};
    if (!effect_has_command(effect, detail)) {
        then(query);
        return;
    }
    query->query.kind = QUERY_OPERATION;
    query->query.kinds = STORE_KIND(RECORD_COMMAND);
    query->query.operation_id = effect->parent;
    api_query_run(query, request);
}

void effects_refuse_missing(struct api_request *request)
{
    api_refuse_plain(request, 404, "effect_not_found", "there is no such effect");
}

bool effects_id(struct api_request *request, struct op_id *ret_id)
{
    enum record_kind kind = RECORD_EFFECT;
    if (kind_id_read(request->path_value, &kind, ret_id) && kind == RECORD_EFFECT) {
        return true;
    }
    effects_refuse_missing(request);
    return false;
}

bool effects_body(struct api_request *request, const struct json_value **ret_value)
{
    static const struct json_value empty = {.type = JSON_OBJECT};
    if (request->exchange->body.len == 0) {
        *ret_value = &empty;
        return true;
    }
    if (!api_body_json(request, ret_value)) {
        return false;
    }
    if (!json_is(*ret_value, JSON_OBJECT)) {
        api_refuse_plain(request, 400, "invalid_body", "the body is not a JSON object");
        return false;
    }
    return true;
}
