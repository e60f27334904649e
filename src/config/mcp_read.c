/* Reads the section `mcp`: the settings of tools by name or glob. */
#include "base/text.h"
#include "config/impl.h"

/* A derived key is an unkeyed hash of all arguments, and is shown. */
static void warn_of_hash(
    struct config_reader *reader, const struct yaml_node *map, const struct config_mcp_tool *tool)
{
    if (tool->redact_count > 0 && tool->key == CONFIG_MCP_DERIVE) {
        reader_warn(reader, yaml_place_of(map, "redact"), "key: require",
            "tool '%s': a derived key is a hash of the arguments, from which a value with few "
            "possibilities can be guessed",
            tool->name);
    }
}

static enum status read_tool(
    struct config_reader *reader, const struct yaml_node *key, struct config_mcp_tool *tool)
{
    struct map_scope scope = {.options = config_mcp_tool_options, .prefix = "", .object = tool};
    enum status status = value_defaults(&scope, reader->config);
    tool->name = status == OK ? config_text(reader->config, key->text) : NULL;
    if (status != OK || tool->name == NULL) {
        return E_NOMEM;
    }
    tool->line = key->line;
    status = map_read_value(reader, &scope, key);
    if (status == OK && key->value->kind == YAML_MAP) {
        warn_of_hash(reader, key->value, tool);
    }
    return status;
}

enum status mcp_read_tools(struct config_reader *reader, const struct yaml_node *key, void *object)
{
    struct config_mcp *mcp = &((struct config *)object)->mcp;
    const struct yaml_node *map = key->value;
    if (map->kind != YAML_MAP || map->count > CONFIG_MCP_TOOLS_MAX) {
        if (map->kind != YAML_BAD) {
            reader_fault(reader, yaml_is_null(map) ? key : map, "such as send_*: {key: require}",
                "mcp.tools must be a map of at most %d tools by name", CONFIG_MCP_TOOLS_MAX);
        }
        return OK;
    }
    struct config_mcp_tool *tools =
        arena_zalloc(&reader->config->arena, (map->count + 1) * sizeof *tools);
    if (tools == NULL) {
        return E_NOMEM;
    }
    mcp->tools = tools;
    mcp->tool_count = 0;
    enum status status = OK;
    for (const struct yaml_node *one = map->first; status == OK && one != NULL; one = one->next) {
        if (one->kind != YAML_SCALAR) {
            continue;
        }
        if (one->text.len == 0 || !value_form_is_line(one->text)) {
            reader_fault(reader, one, "such as send_*: {key: require}",
                "the name of a tool is empty or has control characters");
            continue;
        }
        status = read_tool(reader, one, &tools[mcp->tool_count++]);
    }
    return status;
}

const struct config_mcp_tool *config_mcp_find(const struct config_mcp *mcp, struct slice tool)
{
    static const struct config_mcp_tool usual = {
        .name = "*", .timeout_ms = CONFIG_MCP_TIMEOUT_MS, .wait_ms = CONFIG_MCP_WAIT_MS};
    for (size_t i = 0; i < mcp->tool_count; i++) {
        if (text_glob(slice_str(mcp->tools[i].name), tool)) {
            return &mcp->tools[i];
        }
    }
    return &usual;
}
