#include "api/query.h"
#include "base/limits.h"
#include "base/text.h"
#include "engine/operation_document.h"

/*
 * GET /v1/operations/{operation_id} and GET /v1/operations. A different tenant's operations are not
 * found (P9): the query has the caller's tenant. A caller on the own socket may list all tenants.
 */

enum {
    LIST_DEFAULT = 100,           /* operations in a page, unless the query says otherwise */
    ANSWER_BYTES_MAX = 512 << 20, /* never reached: a page has its own bounds */
};

static void answer_missing(struct api_request *request)
{
    api_refuse_plain(request, 404, "operation_not_found", "there is no such operation");
}

/* ---- one ----------------------------------------------------------------------------------- */

static void answer_operation(struct api_query *self)
{
    const struct query *query = &self->query;
    if (query->record == NULL) {
        answer_missing(self->request);
        return;
    }
    struct operation_document document = {.record = query->record,
        .outcome_body = query->outcome_body,
        .request_body = query->request_body,
        .has_bodies = true};
    struct buf out;
    struct jsonw json = {.out = &out};
    buf_init(&out, &self->request->mem, ANSWER_BYTES_MAX);
    jsonw_open(&json, NULL, '{');
    operation_document_put(&json, &document);
    jsonw_close(&json, '}');
    api_answer_json(self->request, &out);
}

void api_operation_get(struct api_request *request)
{
    struct op_id id;
    if (!op_id_read(request->path_value, &id)) {
        answer_missing(request);
        return;
    }
    struct api_query *self = api_query_new(request, QUERY_OPERATION, answer_operation);
    if (self != NULL) {
        self->query.operation_id = id;
        api_query_run(self, request);
    }
}

/* ---- many ---------------------------------------------------------------------------------- */

static void answer_operations(struct api_query *self)
{
    const struct query *query = &self->query;
    struct buf out;
    struct jsonw json = {.out = &out};
    buf_init(&out, &self->request->mem, ANSWER_BYTES_MAX);
    jsonw_open(&json, NULL, '{');
    jsonw_open(&json, "operations", '[');
    for (size_t i = 0; i < query->count; i++) {
        jsonw_open(&json, NULL, '{');
        operation_document_put(&json, &(struct operation_document){.record = query->records[i]});
        jsonw_close(&json, '}');
    }
    jsonw_close(&json, ']');
    api_query_put_next(&json, query);
    jsonw_close(&json, '}');
    api_answer_json(self->request, &out);
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
        return true; /* the first page, as a loop over pages sends it */
    }
    if (text_hex(text, ret_after->bytes, sizeof ret_after->bytes)) {
        return true;
    }
    (void)err_set(err, E_INVALID, "parameter 'after' must be the 'next' of a page before");
    return false;
}

static bool take_filters(const struct api_request *request, struct scan *scan, struct err *err)
{
    struct slice value;
    scan->limit = LIST_DEFAULT;
    (void)!api_param(request, "scope", &scan->scope);
    (void)!api_param(request, "key", &scan->key);
    return (!api_param(request, "status", &value) || take_status(value, &scan->status, err)) &&
           (!api_param(request, "limit", &value) || take_limit(value, &scan->limit, err)) &&
           (!api_param(request, "after", &value) || take_after(value, &scan->after, err));
}

void api_operation_list(struct api_request *request)
{
    struct err err = {.status = OK};
    struct api_query *self = api_query_new(request, QUERY_RECORDS, answer_operations);
    if (self == NULL) {
        return;
    }
    self->query.any_tenant = slice_is(request->caller.tenant, "*");
    if (take_filters(request, &self->query.scan, &err)) {
        api_query_run(self, request);
    } else {
        api_refuse_plain(request, 400, "invalid_parameter", err.text);
    }
}
