/*
 * A path may name a command or an effect by the id that its submitter gave. Such ids are not
 * indexed, so the tenant's records of that kind are searched, page by page:
 *
 *     ours? (engine) > page (engine) > … > the route's handler, with our id in path_value
 *
 * A caller's id may look like ours, so an id that no record has is searched for too.
 */
#include "api/query.h"
#include "core/kind.h"
#include "engine/query.h"

enum { PAGE_ARENA_BYTES_MAX = 64 << 20 }; /* a page of the longest records */

struct named_search {
    struct api_query query; /* first, so that the query's pointer is the search's */
    struct arena arena;     /* of one page */
};

static void end(struct named_search *self)
{
    struct api_request *request = self->query.request;
    arena_release(&self->arena);
    request->route->handle(request);
}

static void fail(struct api_query *query, const struct err *err)
{
    struct named_search *self = (struct named_search *)query;
    arena_release(&self->arena);
    api_fail(query->request, err);
}

/* Puts our id of a record into path_value. False: out of memory. */
static bool take_id(struct api_request *request, const struct record *record)
{
    char *id = arena_alloc(request->exchange->arena, KIND_ID_TEXT_BYTES);
    if (id != NULL) {
        request->path_value = slice_str(kind_id_put(id, record->kind, &record->operation_id));
    }
    return id != NULL;
}

static void on_page(struct api_query *query)
{
    struct named_search *self = (struct named_search *)query;
    struct api_request *request = query->request;
    const struct query *page = &query->query;
    for (size_t i = 0; i < page->count; i++) {
        if (request->route->is_named(page->records[i], request->path_value, &self->arena)) {
            if (take_id(request, page->records[i])) {
                end(self);
            } else {
                fail(query, &(struct err){.status = E_NOMEM, .text = "out of memory"});
            }
            return;
        }
    }
    if (!page->has_more) {
        end(self);
        return;
    }
    query->query.scan.after = page->after;
    arena_clear(&self->arena);
    api_query_run(query, request);
}

static void on_ours(struct api_query *query)
{
    struct named_search *self = (struct named_search *)query;
    if (query->query.record != NULL) {
        end(self);
        return;
    }
    query->query = (struct query){.kind = QUERY_RECORDS,
        .scan = {.kinds = 1u << query->request->route->kind, .limit = LIMIT_PAGE_RECORDS_MAX}};
    query->answer = on_page;
    arena_clear(&self->arena);
    api_query_run(query, query->request);
}

void api_find_named(struct api_request *request)
{
    struct named_search *self = arena_zalloc(request->exchange->arena, sizeof *self);
    enum record_kind kind;
    struct op_id id;
    if (self == NULL) {
        api_fail_memory(request);
        return;
    }
    arena_init(&self->arena, request->api->mem, PAGE_ARENA_BYTES_MAX);
    self->query = (struct api_query){.request = request,
        .arena = &self->arena,
        .answer = on_ours,
        .failed = fail,
        .query = {.kind = QUERY_OPERATION, .kinds = 1u << request->route->kind}};
    if (kind_id_read(request->path_value, &kind, &id) && kind == request->route->kind) {
        self->query.query.operation_id = id;
        api_query_run(&self->query, request);
    } else {
        on_ours(&self->query);
    }
}
