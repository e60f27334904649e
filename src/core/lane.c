#include "core/lane.h"

#include "base/check.h"
#include "base/limits.h"
#include "core/source.h"

/* Of work without a deadline: its attempts are bounded, and so are the pauses between them. */
#define KEPT_MS_USUAL (30 * INT64_C(86400000))

/* LN3 */
static struct slice lane_type(enum record_kind kind)
{
    ASSERT(lane_kind(kind));
    return kind == RECORD_DELIVERY ? SLICE_LIT("\x01order of deliveries") : SLICE_LIT("\x01order");
}

bool lane_kind(enum record_kind kind)
{
    return kind == RECORD_EFFECT || kind == RECORD_DELIVERY;
}

bool lane_is(const struct source *source)
{
    return source->type.len > 0 && source->id.len > 0 && source->version.len == 0;
}

/* A wake does not say the kind: only an effect is woken into a lane. */
static enum record_kind kind_of(const struct request *request)
{
    return request->kind == REQUEST_ENQUEUE ? request->record_kind : RECORD_EFFECT;
}

static bool has_place(enum record_kind kind, const struct source *source)
{
    return (kind == RECORD_EFFECT && lane_is(source)) ||
           (kind == RECORD_DELIVERY && source_ordered(source));
}

bool lane_joins(const struct request *request)
{
    bool wakes = request->kind == REQUEST_WAKE && request->status == RECORD_PENDING;
    return (request->kind == REQUEST_ENQUEUE || wakes) &&
           has_place(kind_of(request), &request->source);
}

bool lane_joined(
    const struct record *found, const struct request *request, const struct decision *decision)
{
    bool is_new = found == NULL || !op_id_equal(&found->operation_id, &decision->next.operation_id);
    bool is_made = decision->kind == DECISION_ENQUEUED && is_new;
    bool is_woken = request->kind == REQUEST_WAKE && decision->kind == DECISION_DONE;
    return lane_joins(request) && decision->change == CHANGE_PUT && (is_made || is_woken);
}

static enum status key_seal(const struct record_key *of, enum record_kind kind, struct slice id,
    struct record_key *ret_key, struct err *err)
{
    ASSERT(of->tenant.len > 0); /* P9 */
    struct source lane = {.type = lane_type(kind), .id = id};
    return source_key_seal(of, &lane, ret_key, err);
}

enum status lane_key_seal(
    const struct request *request, struct record_key *ret_key, struct err *err)
{
    ASSERT(lane_joins(request));
    ASSERT(lane_kind(kind_of(request))); /* LN3 */
    return key_seal(&request->key, kind_of(request), request->source.id, ret_key, err);
}

static void place_effect(const struct op_id *last, const struct record *self,
    char buffer[KIND_ID_TEXT_BYTES], struct request *request)
{
    if (self != NULL && lane_is(&self->source)) {
        request->source.type = self->source.type;
    } else {
        request->source.type = self != NULL || op_id_absent(last)
                                   ? SLICE_LIT(LANE_FIRST)
                                   : slice_str(kind_id_put(buffer, RECORD_EFFECT, last));
    }
}

void lane_place(const struct record *lane, const struct record *self, int64_t now_ms,
    char buffer[KIND_ID_TEXT_BYTES], struct request *request)
{
    static const struct op_id none = {{0}};
    ASSERT(lane_joins(request));
    ASSERT(lane == NULL || lane->kind == RECORD_SOURCE);    /* R7 */
    ASSERT(self == NULL || self->kind == kind_of(request)); /* LN3 */
    bool is_kept = self != NULL && !record_window_over(self, now_ms);
    const struct op_id *last = source_version(lane, now_ms).len == 0 ? &none : &lane->operation_id;
    if (kind_of(request) == RECORD_EFFECT) {
        place_effect(last, is_kept ? self : NULL, buffer, request);
    } else {
        request->parent = is_kept ? self->parent : *last;
    }
}

/* LN2: with its window, as its duplicates are recognised for as long. */
static int64_t kept_ms(const struct record *joined, const struct request *request)
{
    int64_t deadline_ms =
        request->policy.deadline_ms > 0 ? request->policy.deadline_ms : KEPT_MS_USUAL;
    int64_t late_ms = joined->due_ms > joined->updated_ms ? joined->due_ms - joined->updated_ms : 0;
    int64_t ms = joined->window_ms + deadline_ms + late_ms;
    return ms < LIMIT_WINDOW_MS_MAX ? ms : LIMIT_WINDOW_MS_MAX;
}

void lane_remember(const struct record *lane, const struct record *joined,
    const struct request *request, const struct record_key *key, struct record *ret_next)
{
    ASSERT(lane_joins(request) && joined->status == RECORD_PENDING);
    ASSERT(lane == NULL || lane->kind == RECORD_SOURCE); /* R7 */
    int64_t now_ms = joined->updated_ms;
    *ret_next = (struct record){.key = *key,
        .kind = RECORD_SOURCE,
        .version = lane == NULL ? 1 : lane->version + 1,
        .status = RECORD_EXECUTED,
        .operation_id = joined->operation_id,
        /* A source's record has the fence of a grant (R1), and this has none yet. */
        .fence = joined->fence > 0 ? joined->fence : 1,
        .attempt = joined->attempt > 0 ? joined->attempt : 1,
        .created_ms = now_ms,
        .updated_ms = now_ms,
        .sealed_ms = now_ms,
        .window_ms = kept_ms(joined, request),
        .source = {.type = lane_type(kind_of(request)),
            .id = request->source.id,
            .version = SLICE_LIT("1")}};
    ret_next->window_expires_ms = now_ms + ret_next->window_ms;
    record_check(ret_next);
}

bool lane_ends_with(const struct record *lane, const struct record *record)
{
    struct record_key key;
    return has_place(record->kind, &record->source) && record->key.tenant.len > 0 &&
           key_seal(&record->key, record->kind, record->source.id, &key, NULL) == OK &&
           digest_equal(&key.hash, &lane->key.hash) &&
           op_id_equal(&lane->operation_id, &record->operation_id);
}

bool lane_after(const struct record *record, struct op_id *ret_id)
{
    enum record_kind kind = RECORD_EFFECT;
    if (!has_place(record->kind, &record->source)) {
        return false;
    }
    if (record->kind == RECORD_EFFECT) {
        return kind_id_read(record->source.type, &kind, ret_id);
    }
    bool has_one = !op_id_absent(&record->parent);
    if (has_one) {
        *ret_id = record->parent;
    }
    return has_one;
}

enum lane_turn lane_turn(const struct record *before)
{
    if (before == NULL) {
        return LANE_PASSED;
    }
    ASSERT(lane_kind(before->kind));
    bool is_over =
        record_sealed(before) || before->status == RECORD_DEAD || before->status == RECORD_REJECTED;
    if (is_over) {
        /* Its first grant waited for the ones before it; without a grant they may still run. */
        return before->fence > 0 ? LANE_PASSED : LANE_ASK_BEFORE;
    }
    bool is_held = before->status == RECORD_UNKNOWN && record_due_ms(before) == INT64_MAX;
    return is_held ? LANE_PASSED : LANE_BLOCKED;
}
