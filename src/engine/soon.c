#include "engine/soon.h"

#include "base/check.h"
#include "base/limits.h"

enum { NOTE_ARENA_BYTES_MAX = 64 << 10 }; /* one entry and its answer */

static void note_done(struct engine_call *call)
{
    (void)call; /* cycle_run answers nobody */
}

/* Commits and flushes the entry of SN4. */
static enum status commit_interrupted(struct cycle *cycle, struct err *err)
{
    const struct note note = {.kind = NOTE_INTERRUPTED,
        .reason = SLICE_LIT("entries about replays answered shortly before the last process "
                            "ended may be missing (evidence.replays: soon)")};
    struct store *store = cycle->store;
    struct arena arena;
    arena_init(&arena, cycle->mem, NOTE_ARENA_BYTES_MAX);
    struct engine_call call = {.note = &note, .arena = &arena, .done = note_done};
    struct engine_call *calls[] = {&call};
    enum status status = cycle_run(cycle, calls, 1, err);
    if (status == OK && call.err.status != OK) {
        status = err_set(err, call.err.status, "%s", call.err.text);
    }
    arena_release(&arena);
    if (status == OK && store->ops->flush(store, err) != OK) {
        return E_UNKNOWN; /* P11 */
    }
    return status;
}

enum status soon_start(struct soon *soon, struct cycle *cycle, bool is_wanted, struct err *err)
{
    struct store *store = cycle->store;
    const struct store_soon *ops = store->ops->soon;
    *soon = (struct soon){.store = store};
    if (ops == NULL) {
        return OK; /* every commit of such a store is durable before it is answered */
    }
    bool is_marked = ops->is_marked(store);
    enum status status = is_marked ? commit_interrupted(cycle, err) : OK;
    /* A crash here leaves the mark, and a second entry says the same. */
    if (status == OK && is_marked != is_wanted) {
        status = ops->mark(store, is_wanted, err);
    }
    soon->is_on = status == OK && is_wanted;
    if (status == E_UNKNOWN || status == E_CORRUPT) {
        return status;
    }
    err_clear(err);
    return OK;
}

enum status soon_end(struct soon *soon, struct err *err)
{
    struct store *store = soon->store;
    if (!soon->is_on) {
        return OK;
    }
    soon->is_on = false;
    if (store->ops->flush(store, err) != OK) {
        return E_UNKNOWN; /* P11 */
    }
    struct err ignored = {0};
    (void)!store->ops->soon->mark(store, false, &ignored); /* an entry too many at the next start */
    return OK;
}

/* SN1 to SN3. A query or a note is never a replay. */
static bool is_early(const struct soon *soon, const struct engine_call *call)
{
    return call->is_pure_replay && call->err.status == OK && call->query == NULL &&
           call->note == NULL && soon->owed < LIMIT_REPLAYS_SOON_MAX;
}

size_t soon_part(struct soon *soon, struct engine_call **calls, size_t *count,
    struct engine_call **ret_early, int64_t boot_ms)
{
    size_t kept = 0;
    size_t early = 0;
    ASSERT(soon->is_on);
    for (size_t i = 0; i < *count; i++) {
        struct engine_call *call = calls[i];
        if (!is_early(soon, call)) {
            calls[kept++] = call;
            continue;
        }
        ASSERT(!call->parked && call->decision.kind == DECISION_DUPLICATE_REPLAYED); /* P2 */
        ASSERT(call->decision.change == CHANGE_TOUCH);                               /* P2 */
        soon->since_ms = soon->owed == 0 ? boot_ms : soon->since_ms;
        soon->owed++;
        ret_early[early++] = call;
    }
    *count = kept;
    return early;
}

int64_t soon_due_ms(const struct soon *soon)
{
    if (soon->owed == 0) {
        return INT64_MAX;
    }
    return soon->owed >= LIMIT_REPLAYS_SOON_MAX ? soon->since_ms
                                                : soon->since_ms + LIMIT_REPLAYS_SOON_MS;
}

void soon_flushing(struct soon *soon)
{
    soon->owed = 0;
}
