/* Checks that the engine answers. */
#include "server/impl.h"

enum { PROBE_ARENA_BYTES = 64 << 10 };

/* It is enough that the query returns, after everything that waits for the disk. */
static void probe_done(struct engine_call *call)
{
    struct probe *probe = call->context;
    atomic_store(&probe->state, call->err.status == OK ? PROBE_ANSWERED : PROBE_IDLE);
}

void probe_init(struct probe *probe)
{
    arena_init(&probe->arena, &mem_libc, PROBE_ARENA_BYTES);
    atomic_init(&probe->state, PROBE_IDLE);
}

void probe_release(struct probe *probe)
{
    arena_release(&probe->arena);
}

bool probe_turn(struct probe *probe, struct engine *engine)
{
    int state = atomic_load(&probe->state);
    if (state == PROBE_ASKED) {
        return false;
    }
    arena_clear(&probe->arena);
    probe->query = (struct query){.kind = QUERY_NOTHING,
        .call = {.done = probe_done, .arena = &probe->arena, .context = probe}};
    atomic_store(&probe->state, PROBE_ASKED);
    if (query_submit(engine, &probe->query, &probe->query.call.err) != OK) {
        atomic_store(&probe->state, PROBE_IDLE);
    }
    return state == PROBE_ANSWERED;
}
