/* Prints what a configuration means for connectors, effects, commands, sources and queues. */
#include <stdio.h>
#include <string.h>

#include "base/macros.h"
#include "base/secret.h"
#include "base/text.h"
#include "cli/out.h"
#include "cli/serve_config.h"

/* ---- facts ---------------------------------------------------------------------------------- */

/* A fact about one item, in one sentence; NULL: none. */
typedef const char *(*fact_of)(const void *item);

static const char *connector_on_500(const void *item)
{
    const struct config_connector *connector = item;
    bool has_key = connector->idempotency.header != NULL || connector->idempotency.body != NULL;
    if (connector->approve == CONFIG_APPROVE_MANUAL) {
        return "500 or no answer leaves an effect uncertain until a person settles it "
               "(approve: manual)";
    }
    if (has_key) {
        return connector->lookup.get == NULL
                   ? "500 or no answer leaves an effect uncertain: it is sent again with the same "
                     "key while the provider keeps it, then a person settles it"
                   : "500 or no answer leaves an effect uncertain: it is sent again with the same "
                     "key while the provider keeps it, then the provider is asked (lookup)";
    }
    return connector->lookup.get == NULL
               ? "500 or no answer leaves an effect uncertain until a person settles it; "
                 "idempotency or lookup say what the provider can do"
               : "500 or no answer leaves an effect uncertain: the provider is asked (lookup)";
}

static const char *connector_internal(const void *item)
{
    return ((const struct config_connector *)item)->allow_internal
               ? "the name of the provider may lead to a private address (allow_internal)"
               : NULL;
}

static const char *effect_approved(const void *item)
{
    const struct config_effect *effect = item;
    if (effect->approve != CONFIG_APPROVE_MANUAL) {
        return NULL;
    }
    return "what is uncertain waits for a person (approve: manual)";
}

static const char *command_on_500(const void *item)
{
    switch (((const struct config_command *)item)->on_unknown) {
    case CONFIG_UNKNOWN_TAKEOVER:
        return "500 or no answer from the handler: it is called again, and its effect may happen "
               "twice (on_unknown: takeover)";
    case CONFIG_UNKNOWN_RECONCILE:
        return "500 or no answer from the handler: its server is asked (on_unknown: reconcile)";
    default:
        return "500 or no answer from the handler blocks the command until a person decides; "
               "Once-Effect: no in an answer says that nothing was done";
    }
}

static const char *command_class(const void *item)
{
    return ((const struct config_command *)item)->class == CONFIG_CLASS_I0
               ? "duplicates are not recognised: each submission runs (class: I0)"
               : NULL;
}

static const char *source_on_500(const void *item)
{
    const struct config_source *source = item;
    if (source->command != NULL) {
        return "each event becomes one command, in the commit that settles its delivery";
    }
    switch (source->on_unknown) {
    case CONFIG_DELIVERY_REDELIVER:
        return "5xx or no answer from the handler: it is called again, and its effect may happen "
               "twice (on_unknown: redeliver)";
    case CONFIG_DELIVERY_RECONCILE:
        return "5xx from the handler: it is called again; no answer: its server is asked "
               "(on_unknown: reconcile)";
    default:
        return "5xx from the handler: it is called again, so it must be idempotent or answer "
               "Once-Effect: unknown; no answer: a person decides";
    }
}

static const char *source_open(const void *item)
{
    const struct config_source *source = item;
    return source->secret_count == 0 ? "anybody who reaches it can send events: it has no secrets"
                                     : NULL;
}

static const char *tool_takeover(const void *item)
{
    const struct config_mcp_tool *tool = item;
    return tool->on_unknown == CONFIG_MCP_TAKEOVER && tool->key != CONFIG_MCP_PASS
               ? "a call of which nobody knows whether it took effect is made again: takeover"
               : NULL;
}

/* ---- one of each, for people ---------------------------------------------------------------- */

static void text_connector(const void *item)
{
    const struct config_connector *connector = item;
    char keeps[32];
    char total[32];
    out_text("%s -> %s\n%-8s", connector->name,
        config_connector_publishes(connector) ? connector->origin : connector->url, "");
    out_text("%s, ",
        config_choice_of(config_connector_options, "connectors.protocol", connector->protocol));
    if (connector->idempotency.header != NULL || connector->idempotency.body != NULL) {
        out_text("key in %s%s, kept %s, ",
            connector->idempotency.header != NULL ? "" : "the body's ",
            connector->idempotency.header != NULL ? connector->idempotency.header
                                                  : connector->idempotency.body,
            text_put_duration(keeps, connector->idempotency.keeps_ms));
    }
    if (connector->lookup.get != NULL) {
        out_text("asked at %s, ", connector->lookup.get);
    }
    out_text("timeout %s\n", text_put_duration(total, connector->total_ms));
}

static void text_effect(const void *item)
{
    const struct config_effect *effect = item;
    char deadline[32];
    out_text("%s -> %s: ", effect->name, effect->connector_name);
    if (effect->connector->protocol == CONFIG_PROTOCOL_HTTP) {
        out_text("%s %s, ", effect->method, effect->path == NULL ? "/" : effect->path);
    }
    out_text("%s", COUNTED(effect->attempts, "attempt", "attempts"));
    if (effect->deadline_ms > 0) {
        out_text(" within %s", text_put_duration(deadline, effect->deadline_ms));
    }
    if (effect->compensate_name != NULL) {
        out_text(", undone by %s", effect->compensate_name);
    }
    out_text("%s%s\n", effect->irreversible ? ", irreversible" : "",
        effect->critical ? ", critical" : "");
}

static void text_command(const void *item)
{
    const struct config_command *command = item;
    char window[32];
    char timeout[32];
    out_text("%s -> %s\n%-8s%s", command->name, command->handler, "",
        config_choice_of(config_command_options, "class", command->class));
    for (size_t i = 0; i < command->shield_count; i++) {
        out_text("%s%s", i == 0 ? ", shield " : " ", command->shields[i]);
    }
    static const char *const confirmed[] = {[CONFIG_CONFIRM_NONE] = "",
        [CONFIG_CONFIRM_CONFIRM] = ", confirmed first",
        [CONFIG_CONFIRM_STEP_UP] = ", confirmed first by someone else (step_up)"};
    out_text("%s, window %s, timeout %s\n", confirmed[command->confirm],
        text_put_duration(window, command->ttl_ms),
        text_put_duration(timeout, command->timeout_ms));
}

static const char *target_of(const struct config_source *source)
{
    return source->command == NULL ? source->handler : source->command;
}

static void text_source(const void *item)
{
    const struct config_source *source = item;
    char total[32];
    out_text("%s -> %s\n%-8sPOST /in/%s, %s, %s, tenant %s, %s, timeout %s\n", source->name,
        target_of(source), "", source->name,
        config_choice_of(config_source_options, "preset", source->preset),
        source->mode == CONFIG_MODE_SYNC ? "sync" : "async", source->tenant,
        COUNTED(source->attempts_max, "attempt", "attempts"),
        text_put_duration(total, source->total_ms));
}

static void text_queue(const void *item)
{
    const struct config_source *queue = item;
    char from[SECRET_URL_BYTES_MAX];
    char total[32];
    out_text("%s -> %s\n%-8s%s\n%-8s%s, tenant %s, %s, timeout %s\n", queue->name, target_of(queue),
        "", secret_url_put(from, queue->from), "",
        config_choice_of(config_source_options, "format", queue->format), queue->tenant,
        COUNTED(queue->attempts_max, "attempt", "attempts"),
        text_put_duration(total, queue->total_ms));
}

static void text_tool(const void *item)
{
    const struct config_mcp_tool *tool = item;
    char window[32];
    char timeout[32];
    out_text("%s: key %s, window %s, on_unknown %s, timeout %s%s\n", tool->name,
        config_choice_of(config_mcp_tool_options, "key", tool->key),
        tool->window_ms > 0 ? text_put_duration(window, tool->window_ms) : "2m or 24h",
        config_choice_of(config_mcp_tool_options, "on_unknown", tool->on_unknown),
        text_put_duration(timeout, tool->timeout_ms), tool->retry_errors ? ", retry_errors" : "");
}

/* ---- one of each, as JSON ------------------------------------------------------------------- */

static void json_connector(struct jsonw *json, const void *item)
{
    config_put_connector(json, item);
}

static void json_effect(struct jsonw *json, const void *item)
{
    config_put_effect(json, item);
}

static void json_command(struct jsonw *json, const void *item)
{
    config_put_command(json, item, true);
}

static void json_source(struct jsonw *json, const void *item)
{
    config_put_source(json, item);
}

static void json_tool(struct jsonw *json, const void *item)
{
    config_put_mcp_tool(json, item);
}

/* ---- all of them ---------------------------------------------------------------------------- */

enum { FACTS_MAX = 2 };

/* One section of the file: a row for each. */
struct work_section {
    const char *one;  /* begins its line: "command" */
    const char *many; /* the member of the JSON, and in the start lines */
    size_t item_bytes;
    fact_of facts[FACTS_MAX];
    void (*text)(const void *item);
    void (*json)(struct jsonw *json, const void *item);
};

/* Those that a server works with come first. */
enum { CONNECTORS, EFFECTS, COMMANDS, SOURCES, QUEUES, SERVED, MCP_TOOLS = SERVED, SECTIONS };

static const struct work_section sections[SECTIONS] = {
    [CONNECTORS] = {"connector", "connectors", sizeof(struct config_connector),
        {connector_on_500, connector_internal}, text_connector, json_connector},
    [EFFECTS] = {"effect", "effects", sizeof(struct config_effect), {effect_approved}, text_effect,
        json_effect},
    [COMMANDS] = {"command", "commands", sizeof(struct config_command),
        {command_on_500, command_class}, text_command, json_command},
    [SOURCES] = {"source", "sources", sizeof(struct config_source), {source_on_500, source_open},
        text_source, json_source},
    [QUEUES] = {"queue", "queues", sizeof(struct config_source), {source_on_500}, text_queue,
        json_source},
    [MCP_TOOLS] = {"tool", "mcp_tools", sizeof(struct config_mcp_tool), {tool_takeover}, text_tool,
        json_tool},
};

/* The items of a section in a configuration. */
struct items {
    const struct work_section *section;
    const char *first;
    size_t count;
};

static struct items items_of(const struct config *config, size_t section)
{
    const struct {
        const void *first;
        size_t count;
    } all[SECTIONS] = {
        [CONNECTORS] = {config->effects.connectors, config->effects.connector_count},
        [EFFECTS] = {config->effects.types, config->effects.type_count},
        [COMMANDS] = {config->commands, config->command_count},
        [SOURCES] = {config->inbox.sources, config->inbox.source_count},
        [QUEUES] = {config->inbox.queues, config->inbox.queue_count},
        [MCP_TOOLS] = {config->mcp.tools, config->mcp.tool_count},
    };
    return (struct items){&sections[section], all[section].first, all[section].count};
}

static const char *fact(const struct items *items, size_t number, size_t which)
{
    fact_of of = items->section->facts[which];
    return of == NULL ? NULL : of(items->first + number * items->section->item_bytes);
}

void serve_work_text(const struct config *config)
{
    for (size_t s = 0; s < SECTIONS; s++) {
        struct items items = items_of(config, s);
        for (size_t i = 0; i < items.count; i++) {
            out_text("%-7s ", items.section->one);
            items.section->text(items.first + i * items.section->item_bytes);
            for (size_t f = 0; f < FACTS_MAX; f++) {
                if (fact(&items, i, f) != NULL) {
                    out_text("%-8s%s\n", "", fact(&items, i, f));
                }
            }
        }
    }
}

void serve_work_json(struct jsonw *json, const struct config *config)
{
    for (size_t s = 0; s < SECTIONS; s++) {
        struct items items = items_of(config, s);
        if (items.count == 0) {
            continue;
        }
        jsonw_open(json, items.section->many, '[');
        for (size_t i = 0; i < items.count; i++) {
            jsonw_open(json, NULL, '{');
            items.section->json(json, items.first + i * items.section->item_bytes);
            jsonw_open(json, "facts", '[');
            for (size_t f = 0; f < FACTS_MAX; f++) {
                if (fact(&items, i, f) != NULL) {
                    jsonw_str(json, NULL, fact(&items, i, f));
                }
            }
            jsonw_close(json, ']');
            jsonw_close(json, '}');
        }
        jsonw_close(json, ']');
    }
}

static const char *fact_in(const void *context, size_t number, size_t which)
{
    return fact(context, number, which);
}

void serve_work_lines(struct buf *out, const struct config *config)
{
    for (size_t s = 0; s < SERVED; s++) {
        struct items items = items_of(config, s);
        if (items.count > 0) {
            buf_printf(out, "\n%s", COUNTED(items.count, items.section->one, items.section->many));
        }
        serve_facts_put(out, &(struct serve_facts){.many = items.section->many,
                                 .count = items.count,
                                 .fact_count = FACTS_MAX,
                                 .fact = fact_in,
                                 .context = &items});
    }
}

/* ---- facts of many -------------------------------------------------------------------------- */

/* How many of the first `count` items have this fact. */
static size_t count_same(
    const struct serve_facts *facts, size_t which, const char *text, size_t count)
{
    size_t same = 0;
    for (size_t i = 0; i < count; i++) {
        const char *other = facts->fact(facts->context, i, which);
        same += other != NULL && strcmp(other, text) == 0;
    }
    return same;
}

static void put_fact(struct buf *out, const struct serve_facts *facts, size_t which)
{
    for (size_t i = 0; i < facts->count; i++) {
        const char *text = facts->fact(facts->context, i, which);
        if (text == NULL || count_same(facts, which, text, i) > 0) {
            continue;
        }
        size_t same = count_same(facts, which, text, facts->count);
        buf_printf(out, "\n%s", text);
        if (same < facts->count) {
            buf_printf(out, " (%zu of %zu %s)", same, facts->count, facts->many);
        }
    }
}

void serve_facts_put(struct buf *out, const struct serve_facts *facts)
{
    for (size_t i = 0; i < facts->fact_count; i++) {
        put_fact(out, facts, i);
    }
}
