#include "api/call.h"
#include "base/limits.h"
#include "base/text.h"
#include "engine/operation_document.h"
#include "engine/query.h"

/*
 * GET /v1/operations/{operation_id}, GET /v1/operations and POST …/resolve. What belongs to another
 * tenant is not there (P9): the look is given the caller's, and says nothing of others.
 */

enum {
    LIST_DEFAULT = 100,           /* operations in a page, unless told */
    ANSWER_BYTES_MAX = 512 << 20, /* never reached: a page has its own bounds */
};

/* A look on its way. */
struct glance {
    struct query look; /* first, so that the engine's pointer is ours */
    struct api_ask *ask;
};

static void answer_missing(struct api_ask *ask)
{
    api_refuse(ask, &(struct problem){.status = 404,
                        .code = "operation_not_found",
                        .detail = SLICE_LIT("there is no such operation"),
                        .effect = PROBLEM_EFFECT_NO,
                        .retry = PROBLEM_RETRY_NO});
}

static void looked(struct engine_call *call)
{
    http_wake(call->context);
}

static struct glance *glance_new(struct api_ask *ask, enum query_kind kind, http_handle resume)
{
    struct glance *glance = arena_zalloc(ask->exchange->arena, sizeof *glance);
    if (glance != NULL) {
        glance->ask = ask;
        glance->look.kind = kind;
        glance->look.tenant = ask->caller.tenant;
        glance->look.call.arena = ask->exchange->arena;
        glance->look.call.context = ask->exchange;
        glance->look.call.done = looked;
        ask->exchange->state = glance;
        ask->exchange->resume = resume;
    }
    return glance;
}

static void glance_submit(struct glance *glance)
{
    struct err err = {.status = OK};
    if (query_submit(door_engine(glance->ask->api->door), &glance->look, &err) != OK) {
        api_fail(glance->ask, &err);
    }
}

/* Answer with a document, or with its failure. */
static void answer_document(struct api_ask *ask, const struct buf *out)
{
    if (buf_status(out) != OK) {
        api_fail_memory(ask);
        return;
    }
    api_answer_begin(ask, 200);
    api_answer_end(ask, SLICE_LIT("application/json"), buf_view(out), true);
}

/* ---- one ----------------------------------------------------------------------------------- */

static void operation_found(void *context, struct http_exchange *exchange)
{
    (void)context;
    struct glance *glance = exchange->state;
    struct api_ask *ask = glance->ask;
    const struct query *look = &glance->look;
    if (look->call.err.status != OK) {
        api_fail(ask, &look->call.err);
        return;
    }
    if (look->record == NULL) {
        answer_missing(ask);
        return;
    }
    struct operation_document document = {.record = look->record,
        .outcome_body = look->outcome_body,
        .request_body = look->request_body,
        .has_bodies = true};
    struct buf out;
    struct jsonw json = {.out = &out};
    buf_init(&out, &ask->mem, ANSWER_BYTES_MAX);
    jsonw_open(&json, NULL, '{');
    operation_document_put(&json, &document);
    jsonw_close(&json, '}');
    answer_document(ask, &out);
}

void api_operation_get(struct api_ask *ask)
{
    struct op_id id;
    if (!op_id_read(ask->operation_id_text, &id)) {
        answer_missing(ask);
        return;
    }
    struct glance *glance = glance_new(ask, QUERY_OPERATION, operation_found);
    if (glance == NULL) {
        api_fail_memory(ask);
        return;
    }
    glance->look.operation_id = id;
    glance_submit(glance);
}

/* ---- many ---------------------------------------------------------------------------------- */

static void operations_found(void *context, struct http_exchange *exchange)
{
    (void)context;
    struct glance *glance = exchange->state;
    struct api_ask *ask = glance->ask;
    const struct query *look = &glance->look;
    if (look->call.err.status != OK) {
        api_fail(ask, &look->call.err);
        return;
    }
    struct buf out;
    struct jsonw json = {.out = &out};
    buf_init(&out, &ask->mem, ANSWER_BYTES_MAX);
    jsonw_open(&json, NULL, '{');
    jsonw_open(&json, "operations", '[');
    for (size_t i = 0; i < look->count; i++) {
        jsonw_open(&json, NULL, '{');
        operation_document_put(&json, &(struct operation_document){.record = look->records[i]});
        jsonw_close(&json, '}');
    }
    jsonw_close(&json, ']');
    char hex[DIGEST_HEX_BYTES];
    if (look->has_more) {
        jsonw_str(&json, "next", digest_put_hex(hex, &look->after));
    } else {
        jsonw_raw(&json, "next", SLICE_LIT("null"));
    }
    jsonw_close(&json, '}');
    answer_document(ask, &out);
}

static bool take_status(struct slice text, enum record_status *ret_status, struct err *err)
{
    if (record_status_read(text, ret_status)) {
        return true;
    }
    (void)err_set(err, E_INVALID,
        "parameter 'status' must be one of in_progress, unknown, released, "
        "executed, failed, rejected or compensated");
    return false;
}

static bool take_limit(struct slice text, size_t *ret_limit, struct err *err)
{
    uint64_t limit;
    if (text_u64(text, &limit) && limit >= 1 && limit <= LIMIT_PAGE_RECORDS_MAX) {
        *ret_limit = (size_t)limit;
        return true;
    }
    (void)err_set(
        err, E_INVALID, "parameter 'limit' must be a number from 1 to %d", LIMIT_PAGE_RECORDS_MAX);
    return false;
}

static bool take_after(struct slice text, struct digest *ret_after, struct err *err)
{
    if (text.len == 0) {
        return true; /* the first page, as a loop over pages asks for it */
    }
    if (text_hex(text, ret_after->bytes, sizeof ret_after->bytes)) {
        return true;
    }
    (void)err_set(err, E_INVALID, "parameter 'after' must be the 'next' of a page before");
    return false;
}

static bool take_filters(const struct api_ask *ask, struct scan *scan, struct err *err)
{
    struct slice value;
    scan->tenant = ask->caller.tenant;
    scan->limit = LIST_DEFAULT;
    (void)!api_param(ask, "scope", &scan->scope);
    (void)!api_param(ask, "key", &scan->key);
    return (!api_param(ask, "status", &value) || take_status(value, &scan->status, err)) &&
           (!api_param(ask, "limit", &value) || take_limit(value, &scan->limit, err)) &&
           (!api_param(ask, "after", &value) || take_after(value, &scan->after, err));
}

void api_operation_list(struct api_ask *ask)
{
    struct err err = {.status = OK};
    struct glance *glance = glance_new(ask, QUERY_RECORDS, operations_found);
    if (glance == NULL) {
        api_fail_memory(ask);
        return;
    }
    if (!take_filters(ask, &glance->look.scan, &err)) {
        api_refuse(ask, &(struct problem){.status = 400,
                            .code = "invalid_parameter",
                            .detail = slice_str(err.text),
                            .effect = PROBLEM_EFFECT_NO,
                            .retry = PROBLEM_RETRY_NO});
        return;
    }
    glance_submit(glance);
}

/* ---- settling one -------------------------------------------------------------------------- */

void api_operation_resolve(struct api_ask *ask)
{
    api_call_run(ask, api_body_resolve);
}
