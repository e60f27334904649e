#include "api/query.h"
#include "engine/operation_document.h"

/*
 * GET /v1/operations/{operation_id} and GET /v1/operations. A different tenant's operations are not
 * found (P9): the query has the caller's tenant. A caller on the own socket may list all tenants.
 */

enum { ANSWER_BYTES_MAX = 512 << 20 }; /* never reached: a page has its own bounds */

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

static const char *take_filters(const struct api_request *request, struct scan *scan)
{
    struct slice value;
    (void)!api_param(request, "scope", &scan->scope);
    (void)!api_param(request, "key", &scan->key);
    return api_param(request, "status", &value) && !record_status_read(value, &scan->status)
               ? "parameter 'status' must be one of in_progress, unknown, released, executed, "
                 "failed, rejected or compensated"
               : NULL;
}

void api_operation_list(struct api_request *request)
{
    struct api_query *self = api_query_new(request, QUERY_RECORDS, answer_operations);
    if (self != NULL) {
        api_query_list(self, request, take_filters(request, &self->query.scan));
    }
}
