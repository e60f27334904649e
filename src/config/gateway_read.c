/* Reads the section `gateway`: its settings and those of its routes as given, with their places. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/macros.h"
#include "config/impl.h"

#define SECTION_PREFIX "gateway."

/* `match` names one route. */
static bool explain(struct config_reader *reader, const struct yaml_node *key)
{
    if (!slice_is(key->text, "match")) {
        return false;
    }
    reader_fault(reader, key, "routes: [{match: \"POST /v1/payments/**\"}]",
        "'match' is of a route, not of the whole gateway");
    return true;
}

struct map_scope gateway_scope(struct config *config)
{
    return (struct map_scope){.options = config_gateway_options,
        .prefix = SECTION_PREFIX,
        .in = CONFIG_IN_SECTION,
        .object = &config->gateway,
        .route = &config->raw->section.route,
        .sources = config->raw->section.sources,
        .explain = explain};
}

enum status config_gateway_new(struct config *config)
{
    config->raw = arena_zalloc(&config->arena, sizeof *config->raw);
    if (config->raw == NULL) {
        return E_NOMEM;
    }
    struct map_scope scope = gateway_scope(config);
    return value_defaults(&scope, config);
}

static enum status read_route(
    struct config_reader *reader, const struct yaml_node *map, void *items, size_t index)
{
    struct route_raw *raw = (struct route_raw *)items + index;
    struct map_scope scope = {.options = config_gateway_options,
        .prefix = SECTION_PREFIX,
        .in = CONFIG_IN_ROUTE,
        .route = &raw->route,
        .sources = raw->sources};
    raw->place = (struct config_place){map->line, map->column};
    enum status status = map_read(reader, &scope, map);
    if (status == OK) {
        map_require(reader, config_gateway_options, "route", map);
    }
    return status;
}

enum status gateway_read_routes(
    struct config_reader *reader, const struct yaml_node *key, void *object)
{
    static const struct list_shape shape = {.name = "gateway.routes",
        .one = "route",
        .hint = "leave it out to fence every path, with the settings of the section",
        .example = "{match: \"POST /v1/payments/**\", window: 24h}",
        .item_bytes = sizeof(struct route_raw),
        .count_max = CONFIG_ROUTES_MAX,
        .read = read_route};
    struct gateway_raw *raw = reader->config->raw;
    void *routes = NULL;
    (void)object; /* the gateway: its routes are made when all settings are known */
    enum status status = list_read(reader, &shape, key->value, &routes, &raw->route_count);
    raw->routes = routes;
    return status;
}

enum status gateway_read_on_5xx(
    struct config_reader *reader, const struct yaml_node *key, void *object)
{
    const struct config_option *option = config_option_find("gateway.on_status");
    struct config_route *route = CONTAINER_OF(object, struct config_route, on_status);
    struct route_raw *raw = CONTAINER_OF(route, struct route_raw, route);
    struct setting_source *source = &raw->sources[option - config_gateway_options];
    struct value_fault fault = {.hint = ""};
    struct value_target target = {.config = reader->config, .object = route};
    if (route->on_status_count > 0) {
        reader_fault(reader, key, "leave on_5xx out", "%s is set twice", option->path);
        return OK;
    }
    if (key->value->kind != YAML_SCALAR ||
        value_add_rule(&target, option, SLICE_LIT("5xx"), key->value->text, &fault) != OK) {
        reader_fault(reader, key->value, "on_status: {5xx: release}",
            "on_5xx must be one of seal, release, unknown");
        return OK;
    }
    *source =
        (struct setting_source){.place = {key->value->line, key->value->column}, .is_set = true};
    char hint[64];
    (void)snprintf(hint, sizeof hint, "on_status: {5xx: %.*s}", SLICE_ARGS(key->value->text));
    reader_warn(reader, key, hint, "on_5xx was replaced by on_status, and is read as that");
    return OK;
}

enum status gateway_read(struct config_reader *reader, const struct yaml_node *key, void *object)
{
    struct config *config = object;
    struct map_scope scope = gateway_scope(config);
    if (key->value->kind == YAML_MAP) {
        config->raw->section.place = (struct config_place){key->line, key->column};
        config->gateway.is_on = true;
    }
    return map_read_value(reader, &scope, key);
}

void gateway_will_set(struct config *config, const struct config_option *option, bool is_more)
{
    struct map_scope scope = gateway_scope(config);
    scope.sources[option - scope.options] =
        (struct setting_source){.is_set = true, .is_flag = true};
    if ((option->kind == CONFIG_LIST || option->kind == CONFIG_RULES) && !is_more) {
        *value_count((option->in & CONFIG_IN_ROUTE) != 0 ? scope.route : scope.object, option) = 0;
    }
    bool opens = strcmp(option->path, "gateway.listen") == 0 ||
                 strcmp(option->path, "gateway.upstream") == 0;
    config->gateway.is_on = config->gateway.is_on || opens;
}
