/* Does the engine answer? */
#include "server/impl.h"

enum { PROBE_ARENA_BYTES = 64 << 10 };

/* Nothing to read: that it comes back, after everything that waits for the disk, is all. */
static enum status probe_read(struct store *store, struct engine_call *call, struct err *err)
{
    (void)store;
    (void)call;
    (void)err;
    return OK;
}

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
    probe->call = (struct engine_call){
        .read = probe_read, .done = probe_done, .arena = &probe->arena, .context = probe};
    atomic_store(&probe->state, PROBE_ASKED);
    if (engine_submit(engine, &probe->call, &probe->call.err) != OK) {
        atomic_store(&probe->state, PROBE_IDLE);
    }
    return state == PROBE_ANSWERED;
}
