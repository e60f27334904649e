#include "outcall/outcall.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/macros.h"
#include "base/name.h"
#include "base/text.h"

enum {
    ARENA_BYTES_MAX = 1 << 20,    /* a head and the fields kept of it, at their limits */
    DISCARD_BYTES_MAX = 64 << 10, /* of a body that is not kept, to keep its connection */
};

/* ---- states -------------------------------------------------------------------------------- */

#define TO(state) (1u << OUTCALL_##state)
static const unsigned nexts[] = {
    [OUTCALL_READY] = TO(CALLING),
    [OUTCALL_CALLING] = TO(CALLING) | TO(CAPTURING) | TO(OVER),
    [OUTCALL_CAPTURING] = TO(HELD) | TO(OVER),
    [OUTCALL_HELD] = TO(STREAMING) | TO(OVER),
    [OUTCALL_STREAMING] = TO(OVER),
    [OUTCALL_OVER] = 0,
};
#undef TO

static void outcall_check(const struct outcall *call)
{
    bool has_head = false;
    switch (call->state) {
    case OUTCALL_READY:
    case OUTCALL_OVER: ASSERT(!call->is_up); break;   /* O1 */
    case OUTCALL_CALLING: ASSERT(call->is_up); break; /* O1 */
    case OUTCALL_CAPTURING:
        ASSERT(call->is_up);             /* O1 */
        ASSERT(call->captured.len == 0); /* O3 */
        has_head = true;
        break;
    case OUTCALL_HELD:
        ASSERT(call->is_up == !call->has_ended); /* O1 */
        has_head = true;
        break;
    case OUTCALL_STREAMING:
        ASSERT(call->is_up); /* O1 */
        has_head = true;
        break;
    }
    ASSERT(!has_head || call->status > 0);                                         /* O2 */
    ASSERT(!has_head || call->state == OUTCALL_CAPTURING || call->answer != NULL); /* O2 */
}

static void move(struct outcall *call, enum outcall_state state)
{
    ASSERT((nexts[call->state] & 1u << state) != 0);
    call->state = state;
    outcall_check(call);
}

/* ---- the end ------------------------------------------------------------------------------- */

static void stop_upstream(struct outcall *call)
{
    if (call->is_up) {
        call->is_up = false;
        (void)upstream_cancel(&call->up);
    }
}

/* Why an operation is not settled by an outcome, for its record. */
static void put_reason(struct outcall *call)
{
    if (judge_is_outcome(call->verdict)) {
        call->reason[0] = '\0';
    } else if (call->point == OUTCALL_ANSWERED) {
        (void)snprintf(call->reason, sizeof call->reason, "the upstream answered %u", call->status);
    } else {
        (void)snprintf(call->reason, sizeof call->reason, "%.*s", (int)sizeof call->reason - 1,
            call->err.text);
    }
    if (!text_utf8(slice_str(call->reason))) { /* cut inside a character, or not ours */
        (void)snprintf(call->reason, sizeof call->reason, "the upstream failed");
    }
}

static void judge_at(struct outcall *call, enum outcall_point point)
{
    call->point = point;
    call->verdict = judge(&call->rules, point, call->status);
    put_reason(call);
}

static void over(struct outcall *call, enum outcall_point point)
{
    stop_upstream(call);
    judge_at(call, point);
    move(call, OUTCALL_OVER);
    call->done(call);
}

/* The head came, but the answer cannot be kept: treated as if it had broken off. */
static void give_up(struct outcall *call)
{
    call->cause = UPSTREAM_CAUSE_MEMORY;
    over(call, OUTCALL_HEAD);
}

/* ---- the answer ---------------------------------------------------------------------------- */

static bool wants_body(const struct outcall *call)
{
    enum outcall_verdict verdict = judge(&call->rules, OUTCALL_ANSWERED, call->status);
    return !call->wants_outcome_only || judge_is_outcome(verdict);
}

static enum status copy_head(struct outcall *call, const struct http_head *head)
{
    /* Only the fields in use are copied. */
    size_t size = offsetof(struct http_head, fields) + head->field_count * sizeof head->fields[0];
    struct http_head *copy = arena_alloc(&call->arena, size);
    struct slice bytes;
    if (copy == NULL || arena_copy(&call->arena, slice_of(head->base, head->bytes), &bytes) != OK) {
        return E_NOMEM;
    }
    memcpy(copy, head, size);
    copy->base = bytes.data;
    call->answer = copy;
    return OK;
}

/* If there are too many fields: keeps those that say what to do next, or those the body needs. */
static enum status keep_fields(struct outcall *call)
{
    static const struct fields_kept usual = {.count = 0};
    const struct fields_kept *const keeps[] = {&call->keeps, &usual, NULL};
    struct buf meta;
    buf_init(&meta, &call->mem, LIMIT_OUTCOME_META_BYTES_MAX);
    enum status status = E_LIMIT;
    for (size_t i = 0; status == E_LIMIT && i < COUNT(keeps); i++) {
        buf_clear(&meta);
        status = fields_keep(call->answer, keeps[i], call->request_id, &meta);
    }
    call->meta = buf_view(&meta);
    return status == OK ? buf_status(&meta) : status;
}

static void take_effect_id(struct outcall *call)
{
    struct slice id = SLICE_EMPTY;
    if (http_find_single(call->answer, SLICE_LIT("Once-Effect-Id"), &id) &&
        id.len <= LIMIT_EFFECT_ID_BYTES_MAX && name_valid(id)) {
        call->effect_id = id;
    }
}

/* The body is too long to keep, or there is no room: an outcome without its body. */
static void too_long(struct outcall *call)
{
    bool is_known = call->answer->framing == HTTP_BODY_LENGTH;
    call->ref = (struct body_ref){.bytes = is_known ? call->answer->length : call->bytes_max + 1};
    if (call->stream == NULL) {
        over(call, OUTCALL_ANSWERED);
        return;
    }
    upstream_pause(&call->up);
    judge_at(call, OUTCALL_ANSWERED);
    move(call, OUTCALL_HELD);
    call->stream->begin(call);
}

static void on_head(struct upstream_call *up, const struct http_head *head)
{
    struct outcall *call = up->context;
    call->status = head->status;
    move(call, OUTCALL_CAPTURING);
    if (!wants_body(call)) {
        return;
    }
    enum status status = copy_head(call, head);
    status = status == OK ? keep_fields(call) : status;
    if (status != OK) {
        (void)err_set(&call->err, E_NOMEM, "out of memory for the head of the upstream's answer");
        give_up(call);
        return;
    }
    take_effect_id(call);
    if (head->framing == HTTP_BODY_LENGTH && head->length > call->bytes_max) {
        too_long(call);
    } else if (call->stream != NULL) {
        call->stream->head(call);
    }
}

/* The body is not needed: the status is enough. */
static void drop_piece(struct outcall *call, struct slice piece)
{
    call->dropped += piece.len;
    if (call->dropped > DISCARD_BYTES_MAX) {
        over(call, OUTCALL_ANSWERED);
    }
}

/* The piece is not in the spool: it becomes `after`. */
static void hold_piece(struct outcall *call, struct slice piece)
{
    if (arena_copy(&call->arena, piece, &call->after) != OK ||
        spool_view(&call->spool, &call->captured, &call->err) != OK) {
        (void)err_set(&call->err, E_NOMEM, "out of memory for the upstream's answer");
        give_up(call);
    } else {
        too_long(call);
    }
}

static void keep_piece(struct outcall *call, struct slice piece)
{
    enum status status = spool_put(&call->spool, piece, &call->err);
    if (status == OK) {
        if (call->stream != NULL) {
            call->stream->more(call);
        }
    } else if (call->stream != NULL) {
        hold_piece(call, piece);
    } else if (status == E_LIMIT && call->err.limit != ERR_LIMIT_SPOOL_BYTES) {
        too_long(call);
    } else {
        give_up(call); /* there may be room next time */
    }
}

static void on_piece(struct upstream_call *up, struct slice piece)
{
    struct outcall *call = up->context;
    if (call->state == OUTCALL_STREAMING) {
        if (!call->stream->piece(call, piece)) {
            upstream_pause(up);
        }
        return;
    }
    ASSERT(call->state == OUTCALL_CAPTURING); /* paused while it is held */
    if (wants_body(call)) {
        keep_piece(call, piece);
    } else {
        drop_piece(call, piece);
    }
}

/* The last event of a held or streaming call. */
static void end_stream(struct outcall *call, bool is_whole)
{
    if (call->state == OUTCALL_HELD) {
        call->has_ended = true;
        call->is_whole = is_whole;
    } else {
        move(call, OUTCALL_OVER);
        call->stream->ended(call, is_whole);
    }
}

static void on_end(struct upstream_call *up)
{
    struct outcall *call = up->context;
    call->is_up = false;
    if (call->state != OUTCALL_CAPTURING) {
        end_stream(call, true);
        return;
    }
    if (wants_body(call)) {
        if (spool_view(&call->spool, &call->captured, &call->err) != OK) {
            give_up(call);
            return;
        }
        call->ref = (struct body_ref){.bytes = call->captured.len, .retained = true};
        digest_sha256(call->captured.data, call->captured.len, &call->ref.digest);
    }
    over(call, OUTCALL_ANSWERED);
}

/* ---- the request --------------------------------------------------------------------------- */

static void call_upstream(struct outcall *call);

static void on_failed(struct upstream_call *up, enum upstream_point point,
    enum upstream_cause cause, const struct err *err)
{
    struct outcall *call = up->context;
    call->is_up = false;
    if (call->state == OUTCALL_HELD || call->state == OUTCALL_STREAMING) {
        end_stream(call, false);
        return;
    }
    /* The connection had been idle, and the server had closed it. */
    if (call->has_no_effect && !call->is_again && point == UPSTREAM_SENT &&
        cause == UPSTREAM_CAUSE_BROKEN) {
        call->is_again = true;
        call_upstream(call);
        return;
    }
    call->cause = cause;
    call->err = *err;
    over(call, point == UPSTREAM_NOT_SENT ? OUTCALL_NOT_SENT
               : point == UPSTREAM_SENT   ? OUTCALL_SENT
                                          : OUTCALL_HEAD);
}

static const struct upstream_events events = {
    .head = on_head, .piece = on_piece, .end = on_end, .failed = on_failed};

static void call_upstream(struct outcall *call)
{
    call->up = (struct upstream_call){.events = &events,
        .head = call->head,
        .body = call->body,
        .method = call->method,
        .timeouts = call->timeouts,
        .context = call};
    call->is_up = true;
    move(call, OUTCALL_CALLING);
    upstream_start(call->upstream, call->loop, &call->up);
}

/* ---- what the owner does ------------------------------------------------------------------- */

void outcall_clear(struct outcall *call)
{
    const size_t after = offsetof(struct outcall, status);
    memset(call, 0, offsetof(struct outcall, err));
    err_clear(&call->err);
    memset((char *)call + after, 0, sizeof *call - after);
}

void outcall_init(struct outcall *call, const struct outcall_capture *capture)
{
    ASSERT(call->state == OUTCALL_READY);
    arena_init(&call->arena, capture->mem, ARENA_BYTES_MAX);
    call->mem = arena_mem(&call->arena);
    call->bytes_max = capture->bytes_max;
    spool_init(
        &call->spool, capture->mem, capture->spool_dir, capture->memory_bytes, capture->bytes_max);
    spool_share(&call->spool, capture->budget);
}

void outcall_start(struct outcall *call)
{
    ASSERT(call->state == OUTCALL_READY);
    call_upstream(call);
}

struct slice outcall_peek(const struct outcall *call, uint64_t from, char *buffer, size_t room)
{
    ASSERT(call->state == OUTCALL_CAPTURING);
    return spool_peek(&call->spool, from, buffer, room);
}

void outcall_go_on(struct outcall *call)
{
    if (call->state == OUTCALL_STREAMING) {
        upstream_go_on(&call->up);
        return;
    }
    ASSERT(call->state == OUTCALL_HELD);
    if (call->has_ended) {
        move(call, OUTCALL_OVER);
        call->stream->ended(call, call->is_whole);
    } else {
        move(call, OUTCALL_STREAMING);
        upstream_go_on(&call->up);
    }
}

void outcall_cancel(struct outcall *call)
{
    if (call->state != OUTCALL_READY && call->state != OUTCALL_OVER) {
        stop_upstream(call);
        move(call, OUTCALL_OVER);
    }
}

void outcall_release(struct outcall *call)
{
    outcall_cancel(call);
    spool_release(&call->spool);
    arena_release(&call->arena);
}
