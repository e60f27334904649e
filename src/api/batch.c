#include <stdatomic.h>

#include "api/call.h"
#include "base/check.h"
#include "base/limits.h"

/*
 * POST /v1/fences/batch: an array of begins and seals, in one commit.
 *
 * Every item is read before any is asked, so that a fault in one means that nothing happened. The
 * answer has one document for each, exactly the one that the item alone would have got. Room for
 * all of them is reserved first: a long replay that does not fit any more is answered as out of
 * memory, and takes nothing from the grants behind it.
 */

enum {
    PROBLEM_BYTES_MAX = 1024, /* of a problem document without texts that others chose */
    BATCH_BYTES_MAX = 512 << 20,
};

struct batch {
    struct api_ask *ask;
    struct api_call **items;
    size_t count;
    struct engine_call **asked; /* those that go to the engine */
    size_t asked_count;
    _Atomic size_t left; /* of these, not decided yet */
    struct buf out;      /* the answer */
    struct buf scratch;  /* one item of it; with room for any that tells of a change */
    size_t reserved;     /* bytes of it kept for the items not shown yet */
};

/* ---- in ------------------------------------------------------------------------------------ */

/* {"begin":{…}} and {"seal":{…}} say what they are; else an operation_id makes it a seal. */
static enum status read_item(
    struct api_call *call, const struct json_value *item, struct api_body_fault *fault)
{
    if (!json_is(item, JSON_OBJECT)) {
        return api_body_refuse(fault, "invalid_body", "not a JSON object");
    }
    const struct json_value *begin = json_find(item, SLICE_LIT("begin"));
    const struct json_value *seal = json_find(item, SLICE_LIT("seal"));
    if (item->count == 1 && begin != NULL) {
        return api_body_begin(call, begin, true, fault);
    }
    if (item->count == 1 && seal != NULL) {
        return api_body_seal(call, seal, true, fault);
    }
    return json_find(item, SLICE_LIT("operation_id")) != NULL
               ? api_body_seal(call, item, true, fault)
               : api_body_begin(call, item, true, fault);
}

static enum status read_items(
    struct batch *batch, const struct json_value *items, struct api_body_fault *fault)
{
    for (uint32_t i = 0; i < items->count; i++) {
        struct api_call *call = api_call_new(batch->ask);
        if (call == NULL) {
            return err_set(&fault->err, E_NOMEM, "out of memory");
        }
        enum status status = read_item(call, &items->items[i], fault);
        if (status != OK) {
            err_prefix(&fault->err, "item %u", i);
            return status;
        }
        call->door.engine.context = batch;
        batch->items[i] = call;
    }
    return OK;
}

static enum status read_batch(
    struct api_ask *ask, struct batch **ret_batch, struct api_body_fault *fault)
{
    struct arena *arena = ask->exchange->arena;
    const struct json_value *items;
    enum status status = api_body_json(ask, &items, fault);
    if (status != OK) {
        return status;
    }
    if (items->type != JSON_ARRAY || items->count == 0) {
        return api_body_refuse(
            fault, "invalid_body", "the body is not a JSON array of begins and seals");
    }
    if (items->count > LIMIT_GROUP_REQUESTS_MAX) {
        return api_body_refuse(fault, "batch_too_large",
            "the batch has %u items, more than group_requests_max (%d)", items->count,
            LIMIT_GROUP_REQUESTS_MAX);
    }
    struct batch *batch = arena_zalloc(arena, sizeof *batch);
    struct api_call **calls = arena_alloc(arena, items->count * sizeof(struct api_call *));
    struct engine_call **asked = arena_alloc(arena, items->count * sizeof(struct engine_call *));
    if (batch == NULL || calls == NULL || asked == NULL) {
        return err_set(&fault->err, E_NOMEM, "out of memory");
    }
    *batch = (struct batch){.ask = ask, .items = calls, .count = items->count, .asked = asked};
    *ret_batch = batch;
    return read_items(batch, items, fault);
}

/* ---- out ----------------------------------------------------------------------------------- */

/* The document of one item, behind the others; E_NOMEM and nothing when it does not fit beside what
 * is kept for those behind it. */
static enum status put_item(
    struct batch *batch, struct api_call *call, struct api_document *ret_document)
{
    struct buf *scratch = &batch->scratch;
    buf_clear(scratch);
    enum status status = api_document_of(call, scratch, ret_document);
    if (status == OK && ret_document->is_problem) {
        problem_put(scratch, &ret_document->problem, batch->ask->exchange->request_id);
        status = buf_status(scratch);
    }
    if (status == OK && scratch->len > call->answer_bytes) {
        status = buf_reserve(&batch->out, scratch->len + 1 + batch->reserved);
        batch->out.status = OK;
    }
    if (status == OK) {
        buf_slice(&batch->out, buf_view(scratch));
    }
    return status;
}

static void put_no_memory(
    struct batch *batch, struct api_call *call, struct api_document *ret_document)
{
    struct err err = {.status = E_NOMEM, .text = "out of memory"};
    call->door.engine.err = err;
    *ret_document =
        (struct api_document){.status = 503, .is_problem = true, .problem = api_problem_of(&err)};
    problem_put(&batch->out, &ret_document->problem, batch->ask->exchange->request_id);
}

static void answer(struct batch *batch)
{
    struct api_ask *ask = batch->ask;
    buf_char(&batch->out, '[');
    for (size_t i = 0; i < batch->count; i++) {
        struct api_call *call = batch->items[i];
        struct api_document shown;
        batch->reserved -= call->answer_bytes + 1;
        if (i > 0) {
            buf_char(&batch->out, ',');
        }
        if (put_item(batch, call, &shown) != OK) {
            put_no_memory(batch, call, &shown);
        }
        api_call_report(call, &shown);
    }
    buf_char(&batch->out, ']');
    ASSERT(buf_status(&batch->out) == OK); /* a grant is never lost for want of memory */
    api_answer_begin(ask, 200);
    api_answer_end(ask, SLICE_LIT("application/json"), buf_view(&batch->out), true);
}

static void resume(void *context, struct http_exchange *exchange)
{
    (void)context;
    answer(exchange->state);
}

static void done(struct engine_call *call)
{
    struct batch *batch = call->context;
    if (atomic_fetch_sub(&batch->left, 1) == 1) {
        http_wake(batch->ask->exchange);
    }
}

/* Room for every document about a change, and for a short problem in place of any other. */
static enum status reserve(struct batch *batch)
{
    size_t longest = 0;
    buf_init(&batch->out, &batch->ask->mem, BATCH_BYTES_MAX);
    buf_init(&batch->scratch, &batch->ask->mem, BATCH_BYTES_MAX);
    for (size_t i = 0; i < batch->count; i++) {
        struct api_call *call = batch->items[i];
        size_t change = api_document_bytes_max(call);
        call->answer_bytes = change > PROBLEM_BYTES_MAX ? change : PROBLEM_BYTES_MAX;
        batch->reserved += call->answer_bytes + 1;
        longest = call->answer_bytes > longest ? call->answer_bytes : longest;
    }
    enum status status = buf_reserve(&batch->scratch, longest);
    return status == OK ? buf_reserve(&batch->out, batch->reserved + 2) : status;
}

/* Those that can be asked; the others have their answer already. */
static void admit(struct batch *batch)
{
    for (size_t i = 0; i < batch->count; i++) {
        struct api_call *call = batch->items[i];
        if (!call->is_unnamed && api_call_admit(call)) {
            call->door.engine.done = done;
            batch->asked[batch->asked_count++] = &call->door.engine;
        }
    }
    atomic_store(&batch->left, batch->asked_count);
}

void api_fence_batch(struct api_ask *ask)
{
    struct api_body_fault fault;
    struct batch *batch = NULL;
    if (read_batch(ask, &batch, &fault) != OK) {
        api_body_answer_fault(ask, &fault);
        return;
    }
    if (reserve(batch) != OK) {
        api_fail_memory(ask);
        return;
    }
    admit(batch);
    if (batch->asked_count == 0) {
        answer(batch);
        return;
    }
    struct err err = {.status = OK};
    ask->exchange->state = batch;
    ask->exchange->resume = resume;
    if (engine_submit_all(door_engine(ask->api->door), batch->asked, batch->asked_count, &err) !=
        OK) {
        api_fail(ask, &err);
    }
}
