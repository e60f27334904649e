/* The messages of a queue that are not acknowledged, and the state of their deliveries. */
#include <stdio.h>

#include "base/check.h"
#include "base/clock.h"
#include "engine/query.h"
#include "inbox/queue_impl.h"

enum { CHECK_BYTES_MAX = 64 << 20, ROOM_AT_FIRST = 64 };

static uint64_t nanos_of(int64_t ms)
{
    return (uint64_t)ms * 1000000;
}

struct queue_waiting *waiting_find(struct consumer *queue, struct slice id)
{
    for (size_t i = 0; i < queue->waiting_count; i++) {
        struct queue_waiting *one = &queue->waiting[i];
        if (slice_equal(id, slice_of(one->id, one->id_bytes))) {
            return one;
        }
    }
    return NULL;
}

static enum status make_room(struct consumer *queue)
{
    const struct mem *mem = queue->all->inbox->mem;
    size_t room = queue->waiting_room == 0 ? ROOM_AT_FIRST : 2 * queue->waiting_room;
    struct queue_waiting *waiting = mem_zalloc(mem, room, sizeof *waiting);
    if (waiting == NULL) {
        return E_NOMEM;
    }
    if (queue->waiting_count > 0) {
        memcpy(waiting, queue->waiting, queue->waiting_count * sizeof *waiting);
    }
    mem_free(mem, queue->waiting);
    queue->waiting = waiting;
    queue->waiting_room = room;
    return OK;
}

enum status waiting_add(struct consumer *queue, struct slice id, const struct record *record,
    enum queue_verdict verdict)
{
    ASSERT(id.len > 0 && id.len < BROKER_ID_BYTES_MAX);
    ASSERT(verdict != QUEUE_IS_PARKED);
    if (queue->waiting_count == queue->waiting_room && make_room(queue) != OK) {
        return E_NOMEM;
    }
    struct queue_waiting *one = &queue->waiting[queue->waiting_count++];
    *one = (struct queue_waiting){.id_bytes = id.len,
        .verdict = verdict,
        .check_ms = QUEUE_CHECK_MS_MIN,
        .check_ns = clock_nanos() + nanos_of(QUEUE_CHECK_MS_MIN)};
    memcpy(one->id, id.data, id.len);
    if (record != NULL) {
        one->operation_id = record->operation_id;
        one->status = record->status;
    }
    return OK;
}

enum queue_verdict waiting_verdict(enum record_status status, unsigned on_unknown)
{
    switch (status) {
    case RECORD_EXECUTED:
    case RECORD_FAILED:
    case RECORD_REJECTED:
    case RECORD_COMPENSATED: return QUEUE_IS_OVER;
    case RECORD_DEAD: return QUEUE_IS_HELD;
    case RECORD_UNKNOWN: return on_unknown == CONFIG_DELIVERY_HOLD ? QUEUE_IS_HELD : QUEUE_WAITS;
    case RECORD_RELEASED: /* only operations are released */
    case RECORD_IN_PROGRESS:
    case RECORD_PENDING:
    case RECORD_WAITING:
    case RECORD_COMPENSATING: break;
    }
    return QUEUE_WAITS;
}

static void note_status(struct queue_waiting *one, enum record_status status, unsigned on_unknown)
{
    if (one->verdict == QUEUE_WAITS) {
        one->status = status;
        one->verdict = waiting_verdict(status, on_unknown);
    }
}

void waiting_take_hints(struct consumer *queue, unsigned on_unknown)
{
    (void)pthread_mutex_lock(&queue->lock);
    for (size_t i = 0; i < queue->waiting_count; i++) {
        struct queue_waiting *one = &queue->waiting[i];
        for (size_t k = 0; k < queue->hint_count; k++) {
            if (op_id_equal(&queue->hints[k].operation_id, &one->operation_id)) {
                note_status(one, queue->hints[k].status, on_unknown);
            }
        }
        one->check_ns = queue->has_lost_hints ? 0 : one->check_ns;
    }
    queue->hint_count = 0;
    queue->has_lost_hints = false;
    (void)pthread_mutex_unlock(&queue->lock);
}

/* If the delivery cannot be read, the message is unchanged and is checked again later. */
static void check_one(struct consumer *queue, struct queue_waiting *one, unsigned on_unknown)
{
    struct arena arena;
    arena_init(&arena, queue->all->inbox->mem, CHECK_BYTES_MAX);
    struct query query = {.kind = QUERY_OPERATION,
        .any_tenant = true,
        .kinds = STORE_KIND(RECORD_DELIVERY),
        .operation_id = one->operation_id,
        .call = {.arena = &arena}};
    if (query_do(door_engine(queue->all->inbox->door), &query) == OK) {
        if (query.record != NULL) {
            note_status(one, query.record->status, on_unknown);
        } else {
            one->verdict = QUEUE_IS_OVER; /* it was settled, and its window is over */
        }
    }
    arena_release(&arena);
}

void waiting_check(struct consumer *queue, unsigned on_unknown)
{
    uint64_t now = clock_nanos();
    for (size_t i = 0; i < queue->waiting_count; i++) {
        struct queue_waiting *one = &queue->waiting[i];
        if (one->verdict == QUEUE_WAITS && now >= one->check_ns) {
            check_one(queue, one, on_unknown);
            one->check_ms = clock_doubled_ms(one->check_ms, QUEUE_CHECK_MS_MAX);
            one->check_ns = clock_nanos() + nanos_of(one->check_ms);
        }
    }
}

int64_t waiting_pause_ms(const struct consumer *queue, int64_t max_ms)
{
    uint64_t now = clock_nanos();
    int64_t pause_ms = max_ms;
    for (size_t i = 0; i < queue->waiting_count; i++) {
        uint64_t at = queue->waiting[i].check_ns;
        int64_t ms = at <= now ? 0 : (int64_t)((at - now) / 1000000) + 1;
        pause_ms = queue->waiting[i].verdict == QUEUE_WAITS && ms < pause_ms ? ms : pause_ms;
    }
    return pause_ms;
}

/* ---- acknowledging ------------------------------------------------------------------------- */

/* Durable before the broker is notified. False: not now. */
static bool note_held(
    struct consumer *queue, const struct inbox_source *source, const struct queue_waiting *one)
{
    char reason[LIMIT_REASON_BYTES_MAX];
    struct arena arena;
    int len = snprintf(reason, sizeof reason, "message %.*s of queue %s: %s", (int)one->id_bytes,
        one->id, queue->name, one->status == RECORD_DEAD ? "dead_letter" : "held_unknown");
    struct note note = {.kind = NOTE_ACKNOWLEDGED,
        .tenant = slice_str(source->config->tenant),
        .operation_id = one->operation_id,
        .actor = SLICE_LIT("once"),
        .reason = slice_of(reason, len < 0 ? 0 : (size_t)len)};
    arena_init(&arena, queue->all->inbox->mem, CHECK_BYTES_MAX);
    struct engine_call call = {.note = &note, .arena = &arena};
    enum status status = engine_do(door_engine(queue->all->inbox->door), &call);
    arena_release(&arena);
    return status == OK;
}

static void drop_acknowledged(struct consumer *queue, size_t count)
{
    size_t kept = 0;
    size_t dropped = 0;
    for (size_t i = 0; i < queue->waiting_count; i++) {
        if (queue->waiting[i].verdict == QUEUE_IS_OVER && dropped < count) {
            dropped++;
        } else {
            queue->waiting[kept++] = queue->waiting[i];
        }
    }
    queue->waiting_count = kept;
}

enum status waiting_acknowledge(
    struct consumer *queue, const struct inbox_source *source, struct err *err)
{
    struct slice ids[BROKER_TAKE_MAX];
    enum status status = OK;
    size_t count = 0;
    for (size_t i = 0; i < queue->waiting_count; i++) {
        struct queue_waiting *one = &queue->waiting[i];
        if (one->verdict == QUEUE_IS_HELD && source != NULL && note_held(queue, source, one)) {
            one->verdict = QUEUE_IS_OVER;
        }
    }
    do {
        count = 0;
        for (size_t i = 0; i < queue->waiting_count && count < BROKER_TAKE_MAX; i++) {
            struct queue_waiting *one = &queue->waiting[i];
            if (one->verdict == QUEUE_IS_OVER) {
                ids[count++] = slice_of(one->id, one->id_bytes);
            }
        }
        status = count == 0 ? OK : queue->module->acknowledge(queue->source, ids, count, err);
        if (status == OK) {
            drop_acknowledged(queue, count);
            atomic_fetch_add(&queue->acknowledged, count);
        }
    } while (status == OK && count == BROKER_TAKE_MAX);
    return status;
}
