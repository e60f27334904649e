/*
 * An operator, who knows what the upstream did and frees what did not happen. So an operation that
 * the gateway asks about may be granted again before the answer comes.
 */
#include "base/check.h"
#include "base/macros.h"
#include "sim_gateway.h"

/* One resolution in the engine. It goes with the process. */
struct sim_resolve {
    struct engine_call call;
    struct arena arena;
};

static void resolve_free(struct sim_resolve *resolve)
{
    arena_release(&resolve->arena);
    mem_free(&sim->mem, resolve);
}

static void on_resolved(struct engine_call *call)
{
    resolve_free(CONTAINER_OF(call, struct sim_resolve, call));
}

/* In a narrow run only while the gateway asks, and is about to believe that it did not happen. */
static bool is_free(const struct sim_attempt *attempt)
{
    bool is_in_time = !sim->is_narrow || (upstream_is_asked(attempt->key) &&
                                             sim->now_ms - attempt->unknown_ms > SIM_QUIET_MS);
    return is_in_time && attempt->settled == SETTLED_UNKNOWN && attempt->settled_durably &&
           sim->keys[attempt->key].route != ROUTE_TAKEOVER &&
           sim->keys[attempt->key].effects == 0 && !upstream_has(attempt);
}

bool operator_settle(void)
{
    struct sim_attempt *attempt = NULL;
    for (size_t i = sim->attempt_count; i-- > 0 && attempt == NULL;) {
        attempt = is_free(&sim->attempts[i]) ? &sim->attempts[i] : NULL;
    }
    struct sim_resolve *resolve =
        attempt == NULL ? NULL : mem_zalloc(&sim->mem, 1, sizeof *resolve);
    if (resolve == NULL) {
        return false;
    }
    arena_init(&resolve->arena, &sim->mem, 1 << 20);
    resolve->call = (struct engine_call){.request = {.kind = REQUEST_RESOLVE,
                                             .status = RECORD_RELEASED,
                                             .fence = attempt->fence,
                                             .actor = SLICE_LIT("operator"),
                                             .reason = SLICE_LIT("it did not happen")},
        .arena = &resolve->arena,
        .done = on_resolved};
    struct err err;
    ASSERT(op_id_read(slice_str(attempt->operation_id), &resolve->call.request.operation_id));
    if (engine_submit(&sim->engine, &resolve->call, &err) != OK) {
        resolve_free(resolve);
        return false;
    }
    sim_say("key %d: an operator frees it", attempt->key);
    return true;
}
