#include "api/routes.h"

#include "api/body.h"
#include "api/call.h"
#include "base/macros.h"
#include "base/percent.h"
#include "base/text.h"

static const struct api_route routes[] = {
    {.method = HTTP_METHOD_POST,
        .pattern = "/v1/fences",
        .rights = CONFIG_RIGHT_EXECUTE,
        .handle = api_call_run,
        .read = api_body_begin},
    {.method = HTTP_METHOD_POST,
        .pattern = "/v1/fences/batch",
        .rights = CONFIG_RIGHT_EXECUTE,
        .handle = api_fence_batch},
    {.method = HTTP_METHOD_POST,
        .pattern = "/v1/fences/{operation_id}/seal",
        .rights = CONFIG_RIGHT_EXECUTE,
        .handle = api_call_run,
        .read = api_body_seal},
    {.method = HTTP_METHOD_POST,
        .pattern = "/v1/fences/{operation_id}/release",
        .rights = CONFIG_RIGHT_EXECUTE,
        .handle = api_call_run,
        .read = api_body_release},
    {.method = HTTP_METHOD_POST,
        .pattern = "/v1/fences/{operation_id}/unknown",
        .rights = CONFIG_RIGHT_EXECUTE,
        .handle = api_call_run,
        .read = api_body_unknown},
    {.method = HTTP_METHOD_POST,
        .pattern = "/v1/fences/{operation_id}/renew",
        .rights = CONFIG_RIGHT_EXECUTE,
        .handle = api_call_run,
        .read = api_body_renew},
    {.method = HTTP_METHOD_GET,
        .pattern = "/v1/operations",
        .rights = API_READERS,
        .takes_all = true,
        .params = "scope key status limit after",
        .handle = api_operation_list},
    {.method = HTTP_METHOD_GET,
        .pattern = "/v1/operations/{operation_id}",
        .rights = API_READERS,
        .handle = api_operation_get},
    {.method = HTTP_METHOD_POST,
        .pattern = "/v1/operations/{operation_id}/resolve",
        .rights = CONFIG_RIGHT_OPERATE,
        .handle = api_call_run,
        .read = api_body_resolve},
    {.method = HTTP_METHOD_GET,
        .pattern = "/v1/evidence",
        .rights = CONFIG_RIGHT_AUDIT,
        .takes_all = true,
        .params = "operation_id after limit",
        .handle = api_evidence_list},
    {.method = HTTP_METHOD_GET,
        .pattern = "/v1/evidence/head",
        .rights = CONFIG_RIGHT_AUDIT,
        .takes_all = true,
        .handle = api_evidence_head},
    {.method = HTTP_METHOD_GET,
        .pattern = "/v1/targets",
        .rights = API_READERS,
        .handle = api_targets},
    {.method = HTTP_METHOD_GET, .pattern = "/livez", .is_open = true, .handle = api_livez},
    {.method = HTTP_METHOD_GET,
        .pattern = "/readyz",
        .is_open = true,
        .params = "verbose",
        .handle = api_readyz},
    {.method = HTTP_METHOD_GET, .pattern = "/metrics", .handle = api_metrics},
    {.method = HTTP_METHOD_GET, .pattern = "/openapi.json", .is_open = true, .handle = api_openapi},
};
const struct api_routes api_own_routes = {routes, COUNT(routes), NULL};

/* ---- paths --------------------------------------------------------------------------------- */

/* Whether the path matches the pattern; the part that matches {…} goes to *ret_value, not decoded.
 * The rest of a path needs no escapes, so an escaped spelling of it is a different path. */
static bool path_matches(const char *pattern, struct slice path, struct slice *ret_value)
{
    const char *at = path.data;
    const char *end = path.data + path.len;
    for (; *pattern != '\0'; pattern++) {
        if (*pattern == '{') {
            const char *from = at;
            while (at < end && *at != '/') {
                at++;
            }
            if (at == from) {
                return false;
            }
            *ret_value = slice_of(from, (size_t)(at - from));
            pattern = strchr(pattern, '}');
        } else if (at == end || *at++ != *pattern) {
            return false;
        }
    }
    return at == end;
}

/* Methods of routes, as bits, and the Allow field for each set of them. */
enum { ALLOW_GET = 1, ALLOW_POST = 2, ALLOW_OPTIONS = 4 };
static const char *const allow_texts[] = {
    [0] = NULL,
    [ALLOW_GET] = "GET, HEAD",
    [ALLOW_POST] = "POST",
    [ALLOW_GET | ALLOW_POST] = "GET, HEAD, POST",
    [ALLOW_OPTIONS] = "OPTIONS",
    [ALLOW_GET | ALLOW_OPTIONS] = "GET, HEAD, OPTIONS",
    [ALLOW_POST | ALLOW_OPTIONS] = "POST, OPTIONS",
    [ALLOW_GET | ALLOW_POST | ALLOW_OPTIONS] = "GET, HEAD, POST, OPTIONS",
};

static unsigned allowed(const struct api_route *route)
{
    return route->method == HTTP_METHOD_GET    ? ALLOW_GET
           : route->method == HTTP_METHOD_POST ? ALLOW_POST
                                               : ALLOW_OPTIONS;
}

/* The matching row of one table. Where only the method differs, the row's method is added to
 * *allow. */
static const struct api_route *find_in(const struct api_routes *routes_of, enum http_method method,
    struct slice path, struct slice *ret_value, unsigned *allow)
{
    for (size_t i = 0; i < routes_of->count; i++) {
        const struct api_route *route = &routes_of->table[i];
        struct slice value = SLICE_EMPTY;
        if (!path_matches(route->pattern, path, &value)) {
            continue;
        }
        if (route->method == method) {
            *ret_value = value;
            return route;
        }
        *allow |= allowed(route);
    }
    return NULL;
}

bool api_route_find(
    struct api_request *request, enum http_method method, struct slice path, const char **ret_allow)
{
    const struct api *api = request->api;
    unsigned allow = 0;
    if (method == HTTP_METHOD_HEAD) {
        method = HTTP_METHOD_GET;
    }
    for (size_t i = 0; request->route == NULL && i < api->table_count; i++) {
        request->route = find_in(&api->tables[i], method, path, &request->path_value, &allow);
        request->state = api->tables[i].state;
    }
    *ret_allow = allow_texts[allow];
    return request->route != NULL;
}

/* ---- escapes ------------------------------------------------------------------------------- */

/* A part of a path or a query, decoded: "%20" is a blank, and in a query "+" is one too. Points
 * into the text when nothing is encoded. */
static enum status decode(
    struct slice text, bool is_query, struct arena *arena, struct slice *ret_text)
{
    if (text.len == 0 || (memchr(text.data, '%', text.len) == NULL &&
                             (!is_query || memchr(text.data, '+', text.len) == NULL))) {
        *ret_text = text;
        return text_utf8(text) ? OK : E_INVALID;
    }
    char *place = arena_alloc(arena, text.len);
    if (place == NULL) {
        return E_NOMEM;
    }
    size_t used = 0;
    for (size_t i = 0; i < text.len; i++) {
        char c = text.data[i];
        if (c == '%') {
            if (!percent_read(slice_of(text.data + i, text.len - i), &c)) {
                return E_INVALID;
            }
            i += 2;
        } else if (c == '+' && is_query) {
            c = ' ';
        }
        place[used++] = c;
    }
    *ret_text = slice_of(place, used);
    return text_utf8(*ret_text) ? OK : E_INVALID;
}

enum status api_path_read(struct api_request *request)
{
    struct slice value = request->path_value;
    enum status status = decode(value, false, request->exchange->arena, &value);
    if (status == OK) {
        request->path_value = value;
    }
    return status == E_NOMEM ? status : OK; /* an invalid escape names nothing */
}

/* ---- queries ------------------------------------------------------------------------------- */

/* Take the next "name=value" off a query; false at its end. Empty parts, as in "a=1&&b=2", are
 * skipped. */
static bool next_part(struct slice *query, struct slice *ret_name, struct slice *ret_value)
{
    while (query->len > 0) {
        const char *end = memchr(query->data, '&', query->len);
        size_t len = end == NULL ? query->len : (size_t)(end - query->data);
        struct slice part = slice_of(query->data, len);
        size_t taken = end == NULL ? len : len + 1;
        *query = slice_of(query->data + taken, query->len - taken);
        if (part.len > 0) {
            const char *equals = memchr(part.data, '=', part.len);
            size_t name_len = equals == NULL ? part.len : (size_t)(equals - part.data);
            *ret_name = slice_of(part.data, name_len);
            *ret_value =
                equals == NULL ? SLICE_EMPTY : slice_of(equals + 1, part.len - name_len - 1);
            return true;
        }
    }
    return false;
}

bool api_param(const struct api_request *request, const char *name, struct slice *ret_value)
{
    for (size_t i = 0; i < request->param_count; i++) {
        if (slice_is(request->params[i].name, name)) {
            *ret_value = request->params[i].value;
            return true;
        }
    }
    return false;
}

/* Whether a name is in a list separated by blanks. */
static bool listed(const char *names, struct slice name)
{
    while (names != NULL && *names != '\0') {
        size_t len = strcspn(names, " ");
        if (slice_equal(slice_of(names, len), name)) {
            return true;
        }
        names += len + (names[len] == ' ');
    }
    return false;
}

static enum status take_param(
    struct api_request *request, struct slice name, struct slice value, struct err *err)
{
    struct arena *arena = request->exchange->arena;
    struct api_param param;
    enum status status = decode(name, true, arena, &param.name);
    if (request->route->takes_any &&
        (status == E_INVALID || (status == OK && !listed(request->route->params, param.name)))) {
        return OK;
    }
    status = status == OK ? decode(value, true, arena, &param.value) : status;
    if (status == E_NOMEM) {
        return err_set(err, status, "out of memory");
    }
    if (status != OK) {
        return err_set(err, status, "parameter '%.*s' is badly encoded",
            name.len > 64 ? 64 : (int)name.len, name.data);
    }
    int shown = param.name.len > 64 ? 64 : (int)param.name.len;
    if (!listed(request->route->params, param.name)) {
        return err_set(err, E_INVALID, "unknown parameter '%.*s'", shown, param.name.data);
    }
    for (size_t i = 0; i < request->param_count; i++) {
        if (slice_equal(request->params[i].name, param.name)) {
            return err_set(
                err, E_INVALID, "parameter '%.*s' is there twice", shown, param.name.data);
        }
    }
    request->params[request->param_count++] =
        param; /* each parameter of the route at most once, so they fit */
    return OK;
}

enum status api_query_read(struct api_request *request, struct err *err)
{
    struct slice query = request->query;
    struct slice name, value;
    enum status status = OK;
    while (status == OK && next_part(&query, &name, &value)) {
        status = take_param(request, name, value, err);
    }
    return status;
}
