/*
 * Erasing: a request body whose record was settled (R10), or that was written again elsewhere, is
 * overwritten with zeros in a copy of its segment, which then replaces the segment. Every frame
 * keeps its place, so that nothing else changes.
 *
 *   idle --due--> (the current segment is closed, if it has such bodies) --for each segment-->
 *   scanning --bodies listed--> judging --some are dead--> settling --all stable--> rewriting
 *            --renamed--> idle
 *
 * A body is dead if the index has no record that names it at this place. It is judged when listed:
 * a dead body never comes to life again, because a body that is sent again is written again.
 *
 *   Crash while scanning or judging: nothing changed; everything is marked again after a start.
 *   Crash while settling: the frame that made the body dead may not have reached the disk. The body
 *   is still there, and its record may need it.
 *   Crash while rewriting: `squeeze.tmp` is left and removed later; the segment is as it was.
 *   Crash after the rename: the segment is the new one.
 *
 * The bound (`erase=15m`) counts from the first such change since the last round. Closing the
 * current segment costs a file, so it is not done for each record.
 */
#include <errno.h>
#include <fcntl.h>

#include "base/check.h"
#include "core/kind.h"
#include "store/journal/impl.h"

enum {
    ERASE_BODIES_A_STEP = 256,          /* judged in one call */
    ERASE_BODIES_BYTES_MAX = 256 << 20, /* of the list: more than a segment can have bodies */
    ERASE_ARENA_BYTES = 64 << 10,       /* one record at its limits */
};

#define ERASE_KINDS                                                                                \
    (STORE_KIND(RECORD_COMMAND) | STORE_KIND(RECORD_EFFECT) | STORE_KIND(RECORD_DELIVERY))

enum erase_state {
    ERASE_SCANNING, /* the background thread's */
    ERASE_JUDGING,
    ERASE_SETTLING,
    ERASE_REWRITING, /* the background thread's */
    ERASE_DONE,
    ERASE_FAILED,
};

#define TO(state) (1u << ERASE_##state)

/* A request body in the segment. */
struct erase_body {
    struct digest hash; /* of its record's key */
    uint64_t offset;
    bool is_dead;
};

struct erase {
    enum erase_state state; /* under the mutex */
    uint64_t number;        /* of the segment */
    struct buf bodies;      /* struct erase_body, in the order of their offsets */
    size_t judged;          /* how many of them */
    size_t dead;            /* likewise */
    size_t written;         /* how many the rewriting has passed */
    uint64_t settled_at;    /* whatever made them dead is before this place */
};

static struct erase_body *bodies_of(const struct erase *erase)
{
    return (struct erase_body *)(void *)erase->bodies.data;
}

static size_t bodies_count(const struct erase *erase)
{
    return erase->bodies.len / sizeof(struct erase_body);
}

bool erase_is_at(const struct journal *journal, uint64_t number)
{
    return journal->erase != NULL && journal->erase->number == number;
}

bool erase_takes(const struct record *record)
{
    return store_kind_in(ERASE_KINDS, record->kind) && record_status_sealed(record->status);
}

/* Marks ------------------------------------------------------------------------------------ */

static void erase_plan(struct journal *journal, int64_t boot_ms)
{
    if (journal->erase_due_ms == 0) {
        journal->erase_due_ms = boot_ms + journal->options.erase_ms;
        journal->erase_due_ms += journal->erase_due_ms == 0;
    }
}

void erase_mark(struct journal *journal, const struct record *record)
{
    if (!store_kind_in(ERASE_KINDS, record->kind) || record->request.retained ||
        record->request.bytes == 0) {
        return;
    }
    /* Its body is in the segments that were written since it was made (JF6). */
    for (size_t i = journal->segments_count; i > 0; i--) {
        struct segment *segment = &journal->segments[i - 1];
        segment->erasable = true;
        if (segment->mark.moment.time_ms < record->created_ms) {
            break;
        }
    }
    erase_plan(journal, journal->now.boot_ms);
}

void erase_mark_all(struct journal *journal)
{
    struct store_counts counts = store_tally_of(&journal->tally, ERASE_KINDS);
    if (counts.records == 0 || journal->read_only) {
        return;
    }
    for (size_t i = 0; i < journal->segments_count; i++) {
        journal->segments[i].erasable = true;
    }
    erase_plan(journal, store_clock_now(&journal->clock).boot_ms);
}

/* The engine's part ------------------------------------------------------------------------ */

/* With the mutex. */
static void erase_move(struct erase *erase, enum erase_state state)
{
    static const unsigned nexts[] = {
        [ERASE_SCANNING] = TO(JUDGING) | TO(FAILED),
        [ERASE_JUDGING] = TO(SETTLING) | TO(DONE),
        [ERASE_SETTLING] = TO(REWRITING),
        [ERASE_REWRITING] = TO(DONE) | TO(FAILED),
        [ERASE_DONE] = 0,
        [ERASE_FAILED] = 0,
    };
    ASSERT((nexts[erase->state] & 1u << state) != 0);
    erase->state = state;
}

static void erase_set(struct journal *journal, enum erase_state state)
{
    (void)pthread_mutex_lock(&journal->mutex);
    erase_move(journal->erase, state);
    (void)pthread_cond_signal(&journal->work);
    (void)pthread_mutex_unlock(&journal->mutex);
}

void erase_abandon(struct journal *journal)
{
    (void)pthread_mutex_lock(&journal->mutex);
    struct erase *erase = journal->erase;
    journal->erase = NULL;
    (void)pthread_mutex_unlock(&journal->mutex);
    if (erase != NULL) {
        buf_release(&erase->bodies);
        mem_free(journal->mem, erase);
    }
}

/* Begins a round: what is marked from now on belongs to the next one. */
static enum status round_begin(struct journal *journal, struct err *err)
{
    journal->erase_due_ms = 0;
    journal->erase_next = journal->segments[0].number;
    const struct segment *tail = segment_get(journal, journal->tail.number);
    enum status status = OK;
    ASSERT(tail != NULL);
    if (tail->erasable) {
        status = journal_roll(journal, err);
    }
    journal->erase_end = journal->tail.number;
    return status;
}

/* The next segment of the round; NULL: the round is over. */
static struct segment *round_next(struct journal *journal)
{
    while (journal->erase_next < journal->erase_end) {
        struct segment *segment = segment_get(journal, journal->erase_next);
        if (segment != NULL && segment->erasable && squeeze_is_at(journal, segment->number)) {
            return NULL; /* squeezing it drops all bodies; when that is done */
        }
        journal->erase_next++;
        if (segment != NULL && segment->erasable && !segment->squeezed) {
            return segment;
        }
    }
    return NULL;
}

static enum status erase_begin(struct journal *journal, struct err *err)
{
    int64_t boot_ms = store_clock_now(&journal->clock).boot_ms;
    bool in_round = journal->erase_next < journal->erase_end;
    if (!in_round && (journal->erase_due_ms == 0 || boot_ms < journal->erase_due_ms)) {
        return OK;
    }
    enum status status = in_round ? OK : round_begin(journal, err);
    struct segment *segment = status == OK ? round_next(journal) : NULL;
    if (status != OK) {
        erase_plan(journal, boot_ms); /* a full disk: later */
    }
    if (segment == NULL) {
        return status;
    }
    struct erase *erase = mem_zalloc(journal->mem, 1, sizeof *erase);
    if (erase == NULL) {
        erase_plan(journal, boot_ms);
        return err_set(err, E_NOMEM, "out of memory for erasing bodies");
    }
    segment->erasable = false; /* from now on a change marks it for the next round */
    erase->number = segment->number;
    erase->state = ERASE_SCANNING;
    buf_init(&erase->bodies, journal->mem, ERASE_BODIES_BYTES_MAX);
    (void)pthread_mutex_lock(&journal->mutex);
    journal->erase = erase;
    (void)pthread_cond_signal(&journal->work);
    (void)pthread_mutex_unlock(&journal->mutex);
    return OK;
}

/* Whether the index has a record that keeps the body at this place. */
static enum status body_lives(struct journal *journal, const struct erase_body *body,
    uint64_t segment, struct arena *arena, bool *ret_lives, struct err *err)
{
    const struct record *record;
    struct slot *slot = index_find(&journal->index, &body->hash);
    *ret_lives = false;
    if (slot == NULL || record_status_sealed((enum record_status)slot->status)) {
        return OK;
    }
    enum status status = record_read(journal, slot, arena, &record, err);
    *ret_lives = status == OK && record->request.retained &&
                 record->request.place == place_make(segment, body->offset);
    return status;
}

static enum status erase_judge(struct journal *journal, struct erase *erase, struct err *err)
{
    struct arena arena;
    enum status status = OK;
    size_t until = erase->judged + ERASE_BODIES_A_STEP;
    arena_init(&arena, journal->mem, ERASE_ARENA_BYTES);
    for (; status == OK && erase->judged < until && erase->judged < bodies_count(erase);
         erase->judged++) {
        struct erase_body *body = &bodies_of(erase)[erase->judged];
        bool lives = false;
        arena_clear(&arena);
        status = body_lives(journal, body, erase->number, &arena, &lives, err);
        body->is_dead = status == OK && !lives;
        erase->dead += body->is_dead;
    }
    arena_release(&arena);
    if (status != OK || erase->judged < bodies_count(erase)) {
        return status;
    }
    (void)pthread_mutex_lock(&journal->mutex);
    erase->settled_at = journal->active->len > 0
                            ? journal->active->mark.place + journal->active->len
                            : journal->next.place;
    erase_move(erase, erase->dead > 0 ? ERASE_SETTLING : ERASE_DONE);
    (void)pthread_mutex_unlock(&journal->mutex);
    return OK;
}

/* It could not be done: again in the next round. */
static void erase_fail(struct journal *journal)
{
    struct segment *segment = segment_get(journal, journal->erase->number);
    if (segment != NULL) {
        segment->erasable = true;
    }
    erase_plan(journal, store_clock_now(&journal->clock).boot_ms);
    erase_abandon(journal);
}

enum status erase_step(struct journal *journal, struct err *err)
{
    if (journal->erase == NULL) {
        return erase_begin(journal, err);
    }
    (void)pthread_mutex_lock(&journal->mutex);
    struct erase *erase = journal->erase;
    enum erase_state state = erase->state;
    (void)pthread_mutex_unlock(&journal->mutex);
    struct segment *segment = segment_get(journal, erase->number);
    ASSERT(segment != NULL && !segment->squeezed);
    switch (state) {
    case ERASE_SCANNING:
    case ERASE_REWRITING: return OK;
    case ERASE_JUDGING: return erase_judge(journal, erase, err);
    case ERASE_SETTLING:
        if (atomic_load(&journal->stable) >= erase->settled_at) {
            erase_set(journal, ERASE_REWRITING);
        }
        return OK;
    case ERASE_DONE:
        segment_replaced(journal, segment);
        erase_abandon(journal);
        return OK;
    case ERASE_FAILED: erase_fail(journal); return OK;
    }
    return OK;
}

/* The background thread's part -------------------------------------------------------------- */

/* Lists the request bodies of one batch. A body's frame is before that of its record. */
static bool scan_batch(struct erase *erase, const struct cursor_batch *batch)
{
    struct frame frame;
    uint32_t at = 0;
    uint64_t body_offset = 0;
    while (batch_frame(batch, &at, &frame)) {
        struct record record;
        struct err ignored = {0};
        if (frame.kind == FRAME_REQUEST) {
            body_offset = frame.offset;
        } else if (frame.kind == FRAME_RECORD || frame.kind == FRAME_MOVED) {
            if (body_offset != 0 && record_decode(frame.payload, &record, &ignored) == OK &&
                store_kind_in(ERASE_KINDS, record.kind)) {
                struct erase_body body = {.hash = record.key.hash, .offset = body_offset};
                buf_append(&erase->bodies, &body, sizeof body);
            }
            body_offset = 0;
        }
    }
    return buf_status(&erase->bodies) == OK;
}

static bool erase_scan(struct journal *journal, struct erase *erase)
{
    const struct io *io = journal->io;
    struct path path = segment_path(journal->options.path, erase->number);
    struct segment_header header;
    struct cursor cursor;
    int fd = io->open(io->context, path.text, O_RDONLY, 0);
    if (fd < 0) {
        return false;
    }
    cursor_init(&cursor, io, journal->mem, fd);
    bool is_good = cursor_start(&cursor, &header) == NULL;
    enum cursor_result result = CURSOR_BATCH;
    while (is_good && result == CURSOR_BATCH) {
        struct cursor_batch batch;
        result = cursor_next(&cursor, &batch);
        is_good = result == CURSOR_END || (result == CURSOR_BATCH && scan_batch(erase, &batch));
    }
    cursor_release(&cursor);
    (void)io->close(io->context, fd);
    return is_good; /* damaged: it stays for once verify */
}

/* Copies a batch, with zeros in place of the dead bodies. */
static void erase_batch(struct rewrite *rewrite, const struct cursor_batch *batch)
{
    struct erase *erase = rewrite->context;
    const struct erase_body *bodies = bodies_of(erase);
    struct batch_header header = batch->header;
    struct frame frame;
    uint32_t at = 0;
    char *bytes = buf_extend(&rewrite->bytes, header.length);
    bool changed = false;
    if (bytes == NULL) {
        return;
    }
    memcpy(bytes, batch->bytes, header.length);
    while (batch_frame(batch, &at, &frame)) {
        if (erase->written >= bodies_count(erase) ||
            bodies[erase->written].offset != frame.offset) {
            continue;
        }
        if (bodies[erase->written++].is_dead) {
            char *place = bytes + (frame.offset - batch->offset);
            size_t digest_bytes = sizeof(struct digest);
            ASSERT(frame.kind == FRAME_REQUEST && frame.payload.len >= digest_bytes);
            memset(place + FRAME_HEADER_BYTES + digest_bytes, 0, frame.payload.len - digest_bytes);
            frame_header_encode(
                place, FRAME_ERASED, (uint32_t)frame.payload.len, rewrite->seed, frame.offset);
            changed = true;
        }
    }
    if (changed) {
        header.zero_sectors = batch_zero_sectors(bytes, header.content);
        batch_header_encode(&header, rewrite->seed, batch->offset, (unsigned char *)bytes);
    }
}

bool erase_work(struct journal *journal)
{
    (void)pthread_mutex_lock(&journal->mutex);
    struct erase *erase = journal->erase;
    enum erase_state state = erase == NULL ? ERASE_DONE : erase->state;
    (void)pthread_mutex_unlock(&journal->mutex);
    if (state != ERASE_SCANNING && state != ERASE_REWRITING) {
        return false;
    }
    enum erase_state next = ERASE_FAILED;
    if (state == ERASE_SCANNING) {
        next = erase_scan(journal, erase) ? ERASE_JUDGING : ERASE_FAILED;
    } else {
        struct rewrite rewrite = {.batch = erase_batch, .context = erase};
        next = segment_rewrite(journal, erase->number, &rewrite) == 0 ? ERASE_DONE : ERASE_FAILED;
    }
    (void)pthread_mutex_lock(&journal->mutex);
    erase_move(erase, next);
    (void)pthread_mutex_unlock(&journal->mutex);
    return true;
}
