/* The section `gateway` of a file's tree against its table: what is said, and where. */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "config/impl.h"

enum { PATH_BYTES_MAX = 96, NAMES_MAX = SETTINGS + 1 };

#define SECTION_PREFIX "gateway."

enum status config_gateway_new(struct config *config)
{
    struct value_fault fault;
    struct gateway_said *said = arena_zalloc(&config->arena, sizeof *said);
    struct value_target target = {.config = config, .object = said};
    config->said = said;
    enum status status = said == NULL ? E_NOMEM : OK;
    for (const struct config_option *o = config_gateway_options; status == OK && o->path != NULL;
         o++) {
        if (o->fallback != NULL) {
            status = value_set(&target, o, slice_str(o->fallback), &fault);
            ASSERT(status != E_INVALID); /* the table is ours */
        }
    }
    return status;
}

static size_t index_of(const struct config_option *option)
{
    return (size_t)(option - config_gateway_options);
}

void gateway_will_set(struct config *config, const struct config_option *option, bool is_more)
{
    size_t which = index_of(option);
    config->said->all.at[which] = (struct said){.is_set = true, .is_flag = true};
    if (option->kind == CONFIG_LIST && !is_more) {
        *(struct config_list *)((char *)config->said + option->offset) =
            (struct config_list){.count = 0};
    }
    config->gateway.is_on =
        config->gateway.is_on || which == SETTING_LISTEN || which == SETTING_UPSTREAM;
}

/* ---- names ------------------------------------------------------------------------------- */

/* A map that is being read: "gateway." or "gateway.timeout.", of the section or of a route. */
struct place {
    const char *prefix;
    enum config_in in;
    struct route_said *said;
};

static bool is_within(const struct config_option *option, const struct place *place)
{
    return (option->in & place->in) != 0 &&
           strncmp(option->path, place->prefix, strlen(place->prefix)) == 0;
}

/* Names of settings and of maps of settings that may be at a place. */
static size_t names_at(
    const struct place *place, char (*ret_texts)[PATH_BYTES_MAX], const char **ret_names)
{
    size_t count = 0;
    for (const struct config_option *o = config_gateway_options; o->path != NULL; o++) {
        const char *rest = o->path + (is_within(o, place) ? strlen(place->prefix) : 0);
        size_t len = strcspn(rest, ".");
        bool is_seen = count > 0 && strlen(ret_names[count - 1]) == len &&
                       strncmp(ret_names[count - 1], rest, len) == 0;
        if (is_within(o, place) && !is_seen) {
            (void)snprintf(ret_texts[count], PATH_BYTES_MAX, "%.*s", (int)len, rest);
            ret_names[count] = ret_texts[count];
            count++;
        }
    }
    if (place->in == CONFIG_IN_SECTION && strcmp(place->prefix, SECTION_PREFIX) == 0) {
        ret_names[count++] = "routes";
    }
    return count;
}

static const struct config_option *option_at(const struct place *place, struct slice name)
{
    for (const struct config_option *o = config_gateway_options; o->path != NULL; o++) {
        if (is_within(o, place) && slice_is(name, o->path + strlen(place->prefix))) {
            return o;
        }
    }
    return NULL;
}

/* "gateway.timeout." where there is such a map. */
static bool map_at(const struct place *place, struct slice name, char ret_prefix[PATH_BYTES_MAX])
{
    if (name.len > 32) {
        return false;
    }
    (void)snprintf(ret_prefix, PATH_BYTES_MAX, "%s%.*s.", place->prefix, SLICE_ARGS(name));
    struct place within = {.prefix = ret_prefix, .in = place->in};
    for (const struct config_option *o = config_gateway_options; o->path != NULL; o++) {
        if (is_within(o, &within)) {
            return true;
        }
    }
    return false;
}

/* ---- values ------------------------------------------------------------------------------ */

static enum status read_list(struct reader *reader, void *object,
    const struct config_option *option, const struct yaml_node *node)
{
    enum status status = OK;
    *(struct config_list *)((char *)object + option->offset) = (struct config_list){.count = 0};
    if (node->kind != YAML_LIST) {
        return reader_value(reader, object, option, node);
    }
    bool may_be_empty = option->form != CONFIG_FORM_ADDRESS && option->form != CONFIG_FORM_URL;
    if (node->first == NULL && !may_be_empty) {
        reader_fault(reader, node, option->fallback == NULL ? option->example : option->fallback,
            "%s is empty", option->path);
    }
    for (const struct yaml_node *item = node->first; status == OK && item != NULL;
         item = item->next) {
        status = reader_value(reader, object, option, item);
    }
    return status;
}

static enum status read_option(struct reader *reader, const struct place *place,
    const struct config_option *option, const struct yaml_node *node)
{
    /* A route's own has no more than what it shares with the section, at the same offsets. */
    void *object = place->in == CONFIG_IN_ROUTE ? (void *)place->said : reader->config->said;
    place->said->at[index_of(option)] =
        (struct said){.place = {node->line, node->column}, .is_set = true};
    return option->kind == CONFIG_LIST ? read_list(reader, object, option, node)
                                       : reader_value(reader, object, option, node);
}

static enum status read_routes(struct reader *reader, const struct yaml_node *node);

static enum status read_key(
    struct reader *reader, const struct place *place, const struct yaml_node *key);

static enum status read_map(
    struct reader *reader, const struct place *place, const struct yaml_node *map)
{
    enum status status = OK;
    for (const struct yaml_node *key = map->first; status == OK && key != NULL; key = key->next) {
        if (key->kind == YAML_SCALAR) {
            status = read_key(reader, place, key);
        } else if (key->kind != YAML_BAD) {
            reader_fault(reader, key, NULL, "a key has to be a name");
        }
    }
    return status;
}

static void not_a_map(
    struct reader *reader, const struct yaml_node *key, const struct yaml_node *value)
{
    if (value->kind != YAML_BAD) {
        reader_fault(reader, yaml_is_null(value) ? key : value,
            "its settings follow, each on a line of its own and indented", "%.*s has to be a map",
            SLICE_ARGS(key->text));
    }
}

static enum status read_key(
    struct reader *reader, const struct place *place, const struct yaml_node *key)
{
    char texts[NAMES_MAX][PATH_BYTES_MAX];
    const char *names[NAMES_MAX];
    char prefix[PATH_BYTES_MAX];
    const struct config_option *option = option_at(place, key->text);
    if (option != NULL) {
        return read_option(reader, place, option, key->value);
    }
    if (map_at(place, key->text, prefix)) {
        struct place within = {.prefix = prefix, .in = place->in, .said = place->said};
        if (key->value->kind == YAML_MAP) {
            return read_map(reader, &within, key->value);
        }
        not_a_map(reader, key, key->value);
        return OK;
    }
    bool is_section = place->in == CONFIG_IN_SECTION && strcmp(place->prefix, SECTION_PREFIX) == 0;
    if (is_section && slice_is(key->text, "routes")) {
        return read_routes(reader, key->value);
    }
    if (is_section && slice_is(key->text, "match")) {
        reader_fault(reader, key, "routes: [{match: \"POST /v1/payments/**\"}]",
            "'match' is of a route, not of the whole gateway");
        return OK;
    }
    reader_unknown(reader, key, names, names_at(place, texts, names));
    return OK;
}

static enum status read_route(
    struct reader *reader, struct route_said *route, const struct yaml_node *node)
{
    struct place place = {.prefix = SECTION_PREFIX, .in = CONFIG_IN_ROUTE, .said = route};
    route->place = (struct config_place){node->line, node->column};
    if (node->kind != YAML_MAP) {
        reader_fault(reader, node, "{match: \"POST /v1/payments/**\", window: 24h}",
            "a route has to be a map");
        return OK;
    }
    enum status status = read_map(reader, &place, node);
    if (status == OK && !route->at[SETTING_MATCH].is_set) {
        reader_fault(reader, node, "match: \"POST /v1/payments/**\"", "the route has no match");
    }
    return status;
}

static enum status read_routes(struct reader *reader, const struct yaml_node *node)
{
    struct gateway_said *said = reader->config->said;
    enum status status = OK;
    if (node->kind != YAML_LIST || node->first == NULL) {
        if (node->kind != YAML_BAD) {
            reader_fault(reader, node,
                "leave it out to fence every path, with the settings of the section",
                "gateway.routes has to be a list of at least one route");
        }
        return OK;
    }
    if (node->count > CONFIG_ROUTES_MAX) {
        reader_fault(reader, node, NULL, "more than %d routes", CONFIG_ROUTES_MAX);
        return OK;
    }
    said->route_count = 0;
    said->routes = arena_zalloc(&reader->config->arena, node->count * sizeof *said->routes);
    if (said->routes == NULL) {
        return E_NOMEM;
    }
    for (const struct yaml_node *item = node->first; status == OK && item != NULL;
         item = item->next) {
        if (item->kind != YAML_BAD) {
            status = read_route(reader, &said->routes[said->route_count++], item);
        }
    }
    return status;
}

enum status gateway_read(
    struct reader *reader, const struct yaml_node *key, const struct yaml_node *value)
{
    struct gateway_said *said = reader->config->said;
    struct place place = {.prefix = SECTION_PREFIX, .in = CONFIG_IN_SECTION, .said = &said->all};
    if (value->kind != YAML_MAP) {
        not_a_map(reader, key, value);
        return OK;
    }
    said->place = (struct config_place){key->line, key->column};
    reader->config->gateway.is_on = true;
    return read_map(reader, &place, value);
}
