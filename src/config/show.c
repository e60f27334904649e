/* Writes settings as JSON, from the rows of their table: the reverse of value.c. */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/secret.h"
#include "base/text.h"
#include "canon/jcs.h"
#include "canon/jsonw.h"
#include "config/impl.h"

enum { NAME_BYTES_MAX = 96, TEMPLATE_BYTES_MAX = 128 << 10 };

static size_t count_of(const void *object, const struct config_option *option)
{
    return *(const size_t *)(const void *)((const char *)object + option->count);
}

/* The rest of a path as a member's name: "timeout_total". */
static void member_name(char ret_name[NAME_BYTES_MAX], const char *path)
{
    (void)snprintf(ret_name, NAME_BYTES_MAX, "%s", path);
    for (char *dot = strchr(ret_name, '.'); dot != NULL; dot = strchr(dot, '.')) {
        *dot = '_';
    }
}

static void put_list(
    struct jsonw *json, const char *name, const struct config_option *option, const void *object)
{
    const void *items = (const char *)object + option->offset;
    size_t count = count_of(object, option);
    jsonw_open(json, name, '[');
    for (size_t i = 0; i < count; i++) {
        if (option->kind == CONFIG_STATUSES) {
            jsonw_u64(json, NULL, ((const uint16_t *)items)[i]);
        } else {
            jsonw_str(json, NULL, ((const char *const *)items)[i]);
        }
    }
    jsonw_close(json, ']');
}

static void put_rules(
    struct jsonw *json, const char *name, const struct config_option *option, const void *object)
{
    const struct config_rule *rules = (const void *)((const char *)object + option->offset);
    size_t count = count_of(object, option);
    jsonw_open(json, name, '{');
    for (size_t i = 0; i < count; i++) {
        char status[8];
        (void)snprintf(
            status, sizeof status, "%u%s", rules[i].status, rules[i].status < 100 ? "xx" : "");
        jsonw_str(json, status, option->choices[rules[i].result]);
    }
    jsonw_close(json, '}');
}

static void put_value(
    struct jsonw *json, const char *name, const struct config_option *option, const void *object)
{
    const void *member = (const char *)object + option->offset;
    char text[32];
    switch (option->kind) {
    case CONFIG_TEXT: jsonw_str_some(json, name, *(const char *const *)member); break;
    case CONFIG_DURATION:
        jsonw_str(json, name, text_put_duration(text, *(const int64_t *)member));
        break;
    case CONFIG_SIZE:
    case CONFIG_COUNT: jsonw_u64(json, name, *(const uint64_t *)member); break;
    case CONFIG_REAL: jsonw_real(json, name, *(const double *)member); break;
    case CONFIG_BOOL: jsonw_bool(json, name, *(const bool *)member); break;
    case CONFIG_CHOICE: jsonw_str(json, name, option->choices[*(const unsigned *)member]); break;
    case CONFIG_LIST:
    case CONFIG_STATUSES: put_list(json, name, option, object); break;
    case CONFIG_RULES: put_rules(json, name, option, object); break;
    case CONFIG_OWN: /* only how many there are */
        if (option->count != 0) {
            jsonw_u64(
                json, name, *(const size_t *)(const void *)((const char *)object + option->count));
        }
        break;
    }
}

void config_put_server(struct jsonw *json, const struct config *config)
{
    for (const struct config_option *o = config_options; o->path != NULL; o++) {
        put_value(json, o->path, o, config);
    }
}

void config_put_gateway(struct jsonw *json, const struct config_gateway *gateway)
{
    for (const struct config_option *o = config_gateway_options; o->path != NULL; o++) {
        char name[NAME_BYTES_MAX];
        member_name(name, strchr(o->path, '.') + 1);
        if (o->in == CONFIG_IN_SECTION) {
            put_value(json, name, o, gateway);
        }
    }
}

/* ---- a route ------------------------------------------------------------------------------- */

/* Rows of one map, such as gateway.timeout: from `first` up to `end`. */
struct rows {
    const struct config_option *first;
    const struct config_option *end;
    size_t prefix; /* length of the prefix that their paths share */
};

static struct rows rows_of(const struct config_option *first, size_t prefix)
{
    const struct config_option *end = first;
    while (end->path != NULL && strncmp(end->path, first->path, prefix) == 0) {
        end++;
    }
    return (struct rows){.first = first, .end = end, .prefix = prefix};
}

/* A map is left out if it has texts and none is set: jwt without a key file, reconcile without a
 * path. */
static bool is_used(const struct rows *rows, const struct config_route *route)
{
    bool has_texts = false;
    for (const struct config_option *o = rows->first; o < rows->end; o++) {
        const void *member = (const char *)route + o->offset;
        has_texts = has_texts || o->kind == CONFIG_TEXT;
        if (o->kind == CONFIG_TEXT && *(const char *const *)member != NULL) {
            return true;
        }
    }
    return !has_texts;
}

static void put_map(
    struct jsonw *json, const char *path, const struct rows *rows, const struct config_route *route)
{
    char name[NAME_BYTES_MAX];
    (void)snprintf(name, sizeof name, "%.*s", (int)strcspn(path, "."), path);
    jsonw_open(json, name, '{');
    for (const struct config_option *o = rows->first; o < rows->end; o++) {
        put_value(json, o->path + rows->prefix, o, route);
    }
    jsonw_close(json, '}');
}

void config_put_route(struct jsonw *json, const struct config_route *route)
{
    const size_t section = sizeof "gateway." - 1;
    const struct config_option *o = config_gateway_options;
    while (o->path != NULL) {
        const char *name = o->path + section;
        const char *dot = strchr(name, '.');
        struct rows rows = rows_of(o, dot == NULL ? strlen(o->path) : (size_t)(dot - o->path) + 1);
        bool is_of_route = (o->in & CONFIG_IN_ROUTE) != 0;
        if (is_of_route && dot == NULL) {
            put_value(json, name, o, route);
        } else if (is_of_route && is_used(&rows, route)) {
            put_map(json, name, &rows, route);
        }
        o = dot == NULL ? o + 1 : rows.end;
    }
}

/* ---- a command ----------------------------------------------------------------------------- */

/* A template as it was given; NULL: absent. */
static void put_template(struct jsonw *json, const char *name, const struct json_value *tree)
{
    struct buf text;
    buf_init(&text, json->out->mem, TEMPLATE_BYTES_MAX);
    if (tree != NULL && jcs_write(tree, &text, NULL, NULL) == OK) {
        jsonw_raw(json, name, buf_view(&text));
    }
    buf_release(&text);
}

static void put_arg(struct jsonw *json, const struct config_arg *arg)
{
    jsonw_open(json, arg->name, '{');
    for (const struct config_option *o = config_arg_options; o->path != NULL; o++) {
        bool is_some = o->kind != CONFIG_TEXT && (o->kind != CONFIG_LIST || count_of(arg, o) > 0);
        if (is_some) {
            put_value(json, o->path, o, arg);
        }
    }
    if (arg->min != NULL) {
        jsonw_raw(json, "min", slice_str(arg->min)); /* decimal */
    }
    if (arg->max != NULL) {
        jsonw_raw(json, "max", slice_str(arg->max));
    }
    jsonw_close(json, '}');
}

/* All settings of a named entry. */
static void put_entry(
    struct jsonw *json, const struct config_option *options, size_t section, const void *object)
{
    for (const struct config_option *o = options; o->path != NULL; o++) {
        char name[NAME_BYTES_MAX];
        member_name(name, o->path + section);
        put_value(json, name, o, object);
    }
}

void config_put_mcp_tool(struct jsonw *json, const struct config_mcp_tool *tool)
{
    jsonw_str(json, "tool", tool->name);
    put_entry(json, config_mcp_tool_options, 0, tool);
}

void config_put_connector(struct jsonw *json, const struct config_connector *connector)
{
    jsonw_str(json, "connector", connector->name);
    put_entry(json, config_connector_options, sizeof "connectors." - 1, connector);
}

void config_put_effect(struct jsonw *json, const struct config_effect *effect)
{
    jsonw_str(json, "effect_type", effect->name);
    put_entry(json, config_effect_options, sizeof "effects." - 1, effect);
}

void config_put_source(struct jsonw *json, const struct config_source *source)
{
    char from[SECRET_URL_BYTES_MAX];
    bool is_queue = source->from != NULL;
    jsonw_str(json, is_queue ? "queue" : "source", source->name);
    if (is_queue) {
        jsonw_str(json, "from", secret_url_put(from, source->from));
    }
    for (const struct config_option *o = config_source_options; o->path != NULL; o++) {
        char name[NAME_BYTES_MAX];
        member_name(name, o->path);
        unsigned in = is_queue ? CONFIG_IN_QUEUE : CONFIG_IN_ENTRY;
        if ((o->in & in) != 0 && strcmp(name, "from") != 0) {
            put_value(json, name, o, source);
        }
    }
    if (!is_queue) {
        jsonw_u64(json, "secrets", source->secret_count);
    }
}

/* Types that the handler may return as names, those that Once makes as they are declared. */
static void put_effects(struct jsonw *json, const struct config_command *command)
{
    jsonw_open(json, "effects", '[');
    for (size_t i = 0; i < command->effect_count; i++) {
        jsonw_str(json, NULL, command->effects[i]);
    }
    for (size_t i = 0; i < command->declared_count; i++) {
        const struct config_declared_effect *effect = &command->declared[i];
        jsonw_open(json, NULL, '{');
        jsonw_str(json, "effect", effect->type);
        put_template(json, "target", effect->target);
        put_template(json, "payload", effect->payload);
        jsonw_close(json, '}');
    }
    jsonw_close(json, ']');
}

void config_put_command(struct jsonw *json, const struct config_command *command, bool has_handler)
{
    jsonw_str(json, "command", command->name);
    for (const struct config_option *o = config_command_options; o->path != NULL; o++) {
        char name[NAME_BYTES_MAX];
        member_name(name, o->path);
        bool is_place = strcmp(name, "handler") == 0 || strcmp(name, "ca_file") == 0;
        bool is_unused = strncmp(name, "reconcile", 9) == 0 && command->reconcile_get == NULL;
        if ((has_handler || !is_place) && !is_unused) {
            put_value(json, name, o, command);
        }
    }
    put_effects(json, command);
    if (command->has_args) {
        jsonw_open(json, "args", '{');
        for (size_t i = 0; i < command->arg_count; i++) {
            put_arg(json, &command->args[i]);
        }
        jsonw_close(json, '}');
    }
}

void config_put_registry(
    struct jsonw *json, const struct config_command *commands, size_t count, bool has_handlers)
{
    jsonw_open(json, NULL, '{');
    jsonw_open(json, "commands", '[');
    for (size_t i = 0; i < count; i++) {
        jsonw_open(json, NULL, '{');
        config_put_command(json, &commands[i], has_handlers);
        jsonw_close(json, '}');
    }
    jsonw_close(json, ']');
    jsonw_close(json, '}');
}

const char *config_choice(const char *path, unsigned value)
{
    const struct config_option *option = config_option_find(path);
    ASSERT(option != NULL && option->kind == CONFIG_CHOICE);
    return option->choices[value];
}

const char *config_choice_of(const struct config_option *options, const char *path, unsigned value)
{
    const struct config_option *option = options;
    while (option->path != NULL && strcmp(option->path, path) != 0) {
        option++;
    }
    ASSERT(option->path != NULL && option->kind == CONFIG_CHOICE);
    return option->choices[value];
}
