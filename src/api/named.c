/*
 * A path or a query may name a command or an effect by the id that its submitter gave. Such ids are
 * not indexed, so the tenant's records of that kind are searched, page by page:
 *
 *     ours? (engine) > page (engine) > … > end, with our id in name
 *
 * A caller's id may look like ours, so an id that no record has is searched for too. The engine
 * reads a page in short turns after waiting calls (engine/query.c), so a search is slow where there
 * are many records, but other calls wait for no more than a turn of it.
 */
#include "api/named.h"

#include "base/macros.h"
#include "core/kind.h"

enum { PAGE_ARENA_BYTES_MAX = 64 << 20 }; /* a page of the longest records */

unsigned api_named_kinds(const struct api *api)
{
    unsigned kinds = 0;
    for (size_t i = 0; i < api->table_count; i++) {
        for (size_t j = 0; j < api->tables[i].count; j++) {
            const struct api_route *route = &api->tables[i].table[j];
            kinds |= route->is_named == NULL ? 0 : 1u << route->kind;
        }
    }
    return kinds;
}

/* By the door that knows this kind of record. */
static bool is_named(const struct api_named *self, const struct record *record)
{
    const struct api *api = self->query.request->api;
    struct arena *arena = self->query.arena;
    for (size_t i = 0; i < api->table_count; i++) {
        for (size_t j = 0; j < api->tables[i].count; j++) {
            const struct api_route *route = &api->tables[i].table[j];
            if (route->is_named != NULL && route->kind == record->kind) {
                return route->is_named(record, self->name, arena);
            }
        }
    }
    return false;
}

static void end(struct api_named *self)
{
    arena_release(&self->arena);
    self->end(self);
}

static void fail(struct api_query *query, const struct err *err)
{
    struct api_named *self = CONTAINER_OF(query, struct api_named, query);
    arena_release(&self->arena);
    api_fail(query->request, err);
}

/* Puts our id of a record into name. False: out of memory. */
static bool take_id(struct api_named *self, const struct record *record)
{
    char *id = arena_alloc(self->query.request->exchange->arena, KIND_ID_TEXT_BYTES);
    if (id != NULL) {
        self->name = slice_str(kind_id_put(id, record->kind, &record->operation_id));
    }
    return id != NULL;
}

static void on_page(struct api_query *query)
{
    struct api_named *self = CONTAINER_OF(query, struct api_named, query);
    const struct query *page = &query->query;
    for (size_t i = 0; i < page->count; i++) {
        if (is_named(self, page->records[i])) {
            if (take_id(self, page->records[i])) {
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
    api_query_run(query, query->request);
}

static void on_ours(struct api_query *query)
{
    struct api_named *self = CONTAINER_OF(query, struct api_named, query);
    if (query->query.record != NULL) {
        end(self);
        return;
    }
    query->query = (struct query){
        .kind = QUERY_RECORDS, .scan = {.kinds = self->kinds, .limit = LIMIT_PAGE_RECORDS_MAX}};
    query->answer = on_page;
    arena_clear(&self->arena);
    api_query_run(query, query->request);
}

void api_named_run(struct api_named *self, struct api_request *request)
{
    enum record_kind kind;
    struct op_id id;
    arena_init(&self->arena, request->api->mem, PAGE_ARENA_BYTES_MAX);
    self->query = (struct api_query){.request = request,
        .arena = &self->arena,
        .answer = on_ours,
        .failed = fail,
        .query = {.kind = QUERY_OPERATION, .kinds = self->kinds}};
    if (self->kinds == 0) {
        end(self); /* nothing to search */
    } else if (kind_id_read(self->name, &kind, &id) && (self->kinds & 1u << kind) != 0) {
        self->query.query.kinds = 1u << kind;
        self->query.query.operation_id = id;
        api_query_run(&self->query, request);
    } else {
        on_ours(&self->query);
    }
}

static void handle_route(struct api_named *self)
{
    struct api_request *request = self->query.request;
    request->path_value = self->name;
    request->route->handle(request);
}

void api_find_named(struct api_request *request)
{
    struct api_named *self = arena_zalloc(request->exchange->arena, sizeof *self);
    if (self == NULL) {
        api_fail_memory(request);
        return;
    }
    self->name = request->path_value;
    self->kinds = 1u << request->route->kind;
    self->end = handle_route;
    api_named_run(self, request);
}
