#include "effect/intake.h"

#include <stdatomic.h>
#include <string.h>

#include "base/check.h"
#include "base/limits.h"
#include "base/macros.h"
#include "core/lane.h"

enum {
    CALLS_MAX = 256,           /* under way at a time; the rest stays in the store */
    ARENA_BYTES_MAX = 64 << 20 /* one envelope at its limit, its tree and its sealed forms */
};

/* The types of one configuration, in the form that the store needs. */
struct intake_types {
    struct engine_intake subscription; /* first */
    struct effect_intake *intake;
    struct config *config; /* held */
    struct store_effect_type *list;
};

struct effect_intake {
    struct intake_options options;
    struct intake_types *types; /* in use; NULL: none */
    _Atomic size_t calls;       /* under way */
};

/* One effect on its way. */
struct intake_call {
    struct engine_call engine; /* first */
    struct effect_intake *intake;
    struct arena arena;
    struct intake_call *later; /* of the same lane, submitted when this one is decided */
};

static void call_free(struct intake_call *call)
{
    struct effect_intake *intake = call->intake;
    arena_release(&call->arena);
    mem_free(intake->options.mem, call);
    atomic_fetch_sub(&intake->calls, 1);
}

/* Frees it with those that wait for it. */
static void call_drop(struct intake_call *call)
{
    while (call != NULL) {
        struct intake_call *later = call->later;
        call_free(call);
        call = later;
    }
}

static void call_submit(struct intake_call *call)
{
    struct err err;
    if (engine_submit(call->intake->options.engine, &call->engine, &err) != OK) {
        call_drop(call);
    }
}

static void call_done(struct engine_call *engine)
{
    struct intake_call *call = CONTAINER_OF(engine, struct intake_call, engine);
    struct intake_call *later = call->later;
    const struct intake_options *options = &call->intake->options;
    /* A different process may have sealed it first, or a person cancelled it: nothing to do. */
    if (engine->err.status == OK && engine->decision.change == CHANGE_PUT &&
        engine->decision.next.status == RECORD_PENDING) {
        options->offer(options->offer_context, &engine->decision.next);
    }
    bool is_decided = engine->err.status == OK;
    call_free(call);
    if (later != NULL && is_decided) {
        call_submit(later);
    } else {
        call_drop(later); /* it must not pass this one */
    }
}

/* The enqueue that the envelope would be becomes what its record waits for. */
static void make_wake(struct engine_call *call, const struct store_intake_row *row)
{
    struct request made = call->request;
    call->request = (struct request){.kind = REQUEST_WAKE,
        .key = {.tenant = made.key.tenant, .scope = made.key.scope},
        .operation_id = row->operation_id,
        .status = RECORD_PENDING,
        .policy = {.deadline_ms = made.policy.deadline_ms}, /* LN2 */
        .source = made.source,
        .request = made.request,
        .detail = made.detail,
        .not_before_ms = made.not_before_ms};
    call->wait_ms = 0;
}

/* It can never be sent as it is. The engine reads the reason when the caller's text is gone. */
static enum status make_cancel(
    struct intake_call *call, const struct store_intake_row *row, const char *reason)
{
    size_t len = strnlen(reason, LIMIT_REASON_BYTES_MAX);
    call->engine.request = (struct request){
        .kind = REQUEST_CANCEL, .key = {.tenant = row->tenant}, .operation_id = row->operation_id};
    call->engine.request_body = SLICE_EMPTY;
    call->engine.wait_ms = 0;
    return arena_copy(&call->arena, slice_of(reason, len), &call->engine.request.reason);
}

static enum status read_row(const struct intake_types *types, struct intake_call *call,
    const struct store_intake_row *row, struct member_fault *fault)
{
    struct store_intake_row kept = *row;
    const struct json_value *envelope = NULL;
    struct effect_order order;
    struct effect_sender sender = {.types = &types->config->effects,
        .vault = call->intake->options.vault,
        .engine = call->intake->options.engine,
        .arena = &call->arena};
    enum status status = arena_copy(&call->arena, row->tenant, &kept.tenant);
    status = status == OK ? arena_copy(&call->arena, row->envelope, &sender.text) : status;
    status = status == OK ? json_read(sender.text, &call->arena, &envelope, &fault->err) : status;
    if (status == OK) {
        sender.tenant = kept.tenant;
        status = effect_envelope_read(&sender, envelope, &call->engine, &order, fault);
    }
    if (status == OK) {
        make_wake(&call->engine, &kept);
    } else if (status == E_INVALID) {
        status = make_cancel(call, &kept, fault->err.text);
    }
    return status;
}

/* A row that cannot be handled now is taken again later; NULL. */
static struct intake_call *take_row(
    const struct intake_types *types, const struct store_intake_row *row)
{
    struct effect_intake *intake = types->intake;
    struct member_fault fault = {.code = NULL};
    struct intake_call *call = mem_zalloc(intake->options.mem, 1, sizeof *call);
    if (call == NULL) {
        return NULL;
    }
    atomic_fetch_add(&intake->calls, 1);
    call->intake = intake;
    arena_init(&call->arena, intake->options.mem, ARENA_BYTES_MAX);
    enum status status = read_row(types, call, row, &fault);
    call->engine.arena = &call->arena;
    call->engine.done = call_done;
    if (status != OK) {
        call_free(call);
        return NULL;
    }
    return call;
}

/* The calls of one take that may be submitted at once: the first of each lane. */
struct intake_heads {
    struct intake_call *calls[CALLS_MAX];
    size_t count;
};

static bool in_one_lane(const struct request *a, const struct request *b)
{
    return lane_joins(a) && lane_joins(b) && slice_equal(a->source.id, b->source.id) &&
           slice_equal(a->key.tenant, b->key.tenant) && slice_equal(a->key.scope, b->key.scope);
}

static void heads_add(struct intake_heads *heads, struct intake_call *call)
{
    for (size_t i = 0; lane_joins(&call->engine.request) && i < heads->count; i++) {
        struct intake_call *last = heads->calls[i];
        if (in_one_lane(&last->engine.request, &call->engine.request)) {
            while (last->later != NULL) {
                last = last->later;
            }
            last->later = call;
            return;
        }
    }
    heads->calls[heads->count++] = call;
}

static void found(void *context, const struct store_intake_row *rows, size_t count)
{
    const struct intake_types *types = context;
    struct intake_heads heads = {.count = 0};
    bool is_whole = true;
    for (size_t i = 0; i < count && heads.count < CALLS_MAX; i++) {
        struct intake_call *call = take_row(types, &rows[i]);
        is_whole = is_whole && call != NULL;
        if (call != NULL && lane_joins(&call->engine.request) && !is_whole) {
            call_free(call); /* a row before it may be of the same lane */
        } else if (call != NULL) {
            heads_add(&heads, call);
        }
    }
    for (size_t i = 0; i < heads.count; i++) {
        call_submit(heads.calls[i]);
    }
}

static bool is_ready(void *context)
{
    const struct intake_types *types = context;
    return types->list != NULL && atomic_load(&types->intake->calls) < CALLS_MAX;
}

/* ---- types and lifetime -------------------------------------------------------------------- */

static void types_free(struct intake_types *types)
{
    if (types != NULL) {
        const struct mem *mem = types->intake->options.mem;
        config_free(types->config);
        mem_free(mem, types->list);
        mem_free(mem, types);
    }
}

static enum status types_new(struct effect_intake *intake, struct config *config,
    struct intake_types **ret_types, struct err *err)
{
    const struct config_effects *effects = &config->effects;
    struct intake_types *types = mem_zalloc(intake->options.mem, 1, sizeof *types);
    if (types == NULL) {
        return err_set(err, E_NOMEM, "out of memory");
    }
    types->intake = intake;
    types->config = config_hold(config);
    types->list = mem_zalloc(intake->options.mem, effects->type_count + 1, sizeof *types->list);
    if (types->list == NULL) {
        types_free(types);
        return err_set(err, E_NOMEM, "out of memory");
    }
    for (size_t i = 0; i < effects->type_count; i++) {
        const struct config_effect *type = &effects->types[i];
        types->list[i] = (struct store_effect_type){.name = type->name,
            .tenants = type->connector->tenants,
            .tenant_count = type->connector->tenant_count,
            .window_ms = type->window_ms,
            .is_ordered = type->order != NULL};
    }
    types->subscription = (struct engine_intake){.types = types->list,
        .type_count = effects->type_count,
        .is_ready = is_ready,
        .found = found,
        .context = types};
    *ret_types = types;
    return OK;
}

enum status intake_new(
    const struct intake_options *options, struct effect_intake **ret_intake, struct err *err)
{
    struct effect_intake *intake = mem_zalloc(options->mem, 1, sizeof *intake);
    if (intake == NULL) {
        return err_set(err, E_NOMEM, "out of memory");
    }
    intake->options = *options;
    *ret_intake = intake;
    return OK;
}

enum status intake_use(struct effect_intake *intake, struct config *config, struct err *err)
{
    struct intake_types *types = NULL;
    enum status status = types_new(intake, config, &types, err);
    if (status == OK) {
        engine_on_intake(intake->options.engine, &types->subscription);
        types_free(intake->types); /* the engine no longer calls them */
        intake->types = types;
    }
    return status;
}

void intake_stop(struct effect_intake *intake)
{
    engine_on_intake(intake->options.engine, NULL);
}

bool intake_is_idle(const struct effect_intake *intake)
{
    return atomic_load(&intake->calls) == 0;
}

void intake_free(struct effect_intake *intake)
{
    if (intake != NULL) {
        ASSERT(intake_is_idle(intake));
        types_free(intake->types);
        mem_free(intake->options.mem, intake);
    }
}
