#include <stdatomic.h>

#include "api/body.h"
#include "api/documents.h"
#include "base/check.h"
#include "base/limits.h"

/*
 * POST /v1/fences/batch: an array of begins and seals, in one commit.
 *
 * Every item is read before any is submitted, so that after an error in one of them nothing has
 * happened. The answer has one document for each item, the same that the item would get alone. Room
 * for all of them is reserved first: a long replay that no longer fits is answered as out of
 * memory, and takes no room from the grants after it.
 */

enum {
    PROBLEM_BYTES_MAX = 1024, /* of a problem document without texts from outside */
    BATCH_BYTES_MAX = 512 << 20,
};

struct api_batch {
    struct api_request *request;
    struct api_call **items;
    size_t count;
    size_t call_count;              /* of the items and of the effects of seals */
    struct engine_call **submitted; /* the calls that go to the engine */
    size_t submitted_count;
    _Atomic size_t left; /* submitted and not decided yet */
    struct buf out;      /* the answer */
    struct buf scratch;  /* one item of it; has room for any document about a change */
    size_t reserved;     /* bytes of it kept for items not written yet */
};

/* ---- in ------------------------------------------------------------------------------------ */

/* {"begin":{…}} and {"seal":{…}} name their kind; otherwise an operation_id makes it a seal. */
static enum status read_item(
    struct api_call *call, const struct json_value *item, struct member_fault *fault)
{
    if (!json_is(item, JSON_OBJECT)) {
        return member_refuse(fault, "invalid_body", "not a JSON object");
    }
    const struct json_value *begin = json_find(item, SLICE_LIT("begin"));
    const struct json_value *seal = json_find(item, SLICE_LIT("seal"));
    if (item->count == 1 && begin != NULL) {
        return api_call_read(call, api_body_begin, begin, fault);
    }
    if (item->count == 1 && seal != NULL) {
        return api_call_read(call, api_body_seal, seal, fault);
    }
    bool is_seal = json_find(item, SLICE_LIT("operation_id")) != NULL;
    return api_call_read(call, is_seal ? api_body_seal : api_body_begin, item, fault);
}

static enum status read_items(
    struct api_batch *batch, const struct json_value *items, struct member_fault *fault)
{
    for (uint32_t i = 0; i < items->count; i++) {
        struct api_call *call = api_call_new(batch->request);
        if (call == NULL) {
            return E_NOMEM;
        }
        call->in_batch = true;
        enum status status = read_item(call, &items->items[i], fault);
        if (status != OK) {
            err_prefix(&fault->err, "item %u", i);
            return status;
        }
        call->door.engine.context = batch;
        batch->items[i] = call;
        batch->call_count += 1 + call->effects.count;
        if (batch->call_count > LIMIT_GROUP_REQUESTS_MAX) {
            return member_refuse(fault, "batch_too_large",
                "the batch has more items and effects than group_requests_max (%d)",
                LIMIT_GROUP_REQUESTS_MAX);
        }
    }
    return OK;
}

static enum status read_batch(struct api_request *request, const struct json_value *items,
    struct api_batch **ret_batch, struct member_fault *fault)
{
    struct arena *arena = request->exchange->arena;
    if (items->type != JSON_ARRAY || items->count == 0) {
        return member_refuse(fault, "invalid_body",
            "the body is not a JSON array of begins and "
            "seals, at least one");
    }
    if (items->count > LIMIT_GROUP_REQUESTS_MAX) {
        return member_refuse(fault, "batch_too_large",
            "the batch has %u items, more than group_requests_max (%d)", items->count,
            LIMIT_GROUP_REQUESTS_MAX);
    }
    struct api_batch *batch = arena_zalloc(arena, sizeof *batch);
    struct api_call **calls = arena_alloc(arena, items->count * sizeof(struct api_call *));
    struct engine_call **submitted =
        arena_alloc(arena, LIMIT_GROUP_REQUESTS_MAX * sizeof(struct engine_call *));
    if (batch == NULL || calls == NULL || submitted == NULL) {
        return E_NOMEM;
    }
    *batch = (struct api_batch){
        .request = request, .items = calls, .count = items->count, .submitted = submitted};
    *ret_batch = batch;
    return read_items(batch, items, fault);
}

/* ---- out ----------------------------------------------------------------------------------- */

/* Append the document of one item. E_NOMEM, and nothing is appended, when it does not fit beside
 * the room kept for later items. */
static enum status put_item(
    struct api_batch *batch, struct api_call *call, struct api_document *ret_document)
{
    struct buf *scratch = &batch->scratch;
    buf_clear(scratch);
    enum status status = api_document_of(call, scratch, ret_document);
    if (status == OK && ret_document->is_problem) {
        problem_put(scratch, &ret_document->problem, batch->request->exchange->request_id);
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
    struct api_batch *batch, struct api_call *call, struct api_document *ret_document)
{
    struct err err = {.status = E_NOMEM, .text = "out of memory"};
    call->door.engine.err = err;
    *ret_document =
        (struct api_document){.status = 503, .is_problem = true, .problem = api_problem_of(&err)};
    problem_put(&batch->out, &ret_document->problem, batch->request->exchange->request_id);
}

static void answer(struct api_batch *batch)
{
    struct api_request *request = batch->request;
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
    api_answer_begin(request, 200);
    api_answer_end(request, SLICE_LIT("application/json"), buf_view(&batch->out), true);
}

static void resume(void *context, struct http_exchange *exchange)
{
    (void)context;
    answer(exchange->state);
}

static void done(struct engine_call *call)
{
    struct api_batch *batch = call->context;
    if (atomic_fetch_sub(&batch->left, 1) == 1) {
        http_wake(batch->request->exchange);
    }
}

/* Reserve room for every document about a change, and for a short problem in place of any other. */
static enum status reserve(struct api_batch *batch)
{
    size_t longest = 0;
    buf_init(&batch->out, &batch->request->mem, BATCH_BYTES_MAX);
    buf_init(&batch->scratch, &batch->request->mem, BATCH_BYTES_MAX);
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

/* Collect the calls that can be submitted; the others have their answer already. */
static void admit(struct api_batch *batch)
{
    for (size_t i = 0; i < batch->count; i++) {
        struct api_call *call = batch->items[i];
        if (api_call_admit(call)) {
            call->door.engine.done = done;
            batch->submitted[batch->submitted_count++] = &call->door.engine;
            for (size_t k = 0; k < call->effects.count; k++) {
                call->effects.calls[k]->context = batch;
                call->effects.calls[k]->done = done;
                batch->submitted[batch->submitted_count++] = call->effects.calls[k];
            }
        }
    }
    atomic_store(&batch->left, batch->submitted_count);
}

void api_fence_batch(struct api_request *request)
{
    struct member_fault fault;
    struct api_batch *batch = NULL;
    const struct json_value *items;
    if (!api_body_json(request, &items)) {
        return;
    }
    enum status status = read_batch(request, items, &batch, &fault);
    if (status != OK) {
        api_body_refuse(request, status, &fault);
        return;
    }
    if (reserve(batch) != OK) {
        api_fail_memory(request);
        return;
    }
    admit(batch);
    if (batch->submitted_count == 0) {
        answer(batch);
        return;
    }
    request->exchange->state = batch;
    request->exchange->resume = resume;
    api_submit_group(request, batch->submitted, batch->submitted_count);
}
