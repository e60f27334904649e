/* The parts of a message that the header fields of its POST repeat (MCP 2026-07-28, "Request
 * Metadata"). */
#include <stdio.h>

#include "base/base64.h"
#include "canon/json_mask.h"
#include "mcp/exchange.h"
#include "mcp/scan.h"

enum { FIELD_BYTES_MAX = 4096, NAME_BYTES_MAX = 256 };

static const char sentinel[] = "=?base64?";

void mcp_message_read(struct mcp_message *message, struct slice text, const struct json_value *root)
{
    const struct json_value *params = json_find(root, SLICE_LIT("params"));
    *message = (struct mcp_message){.text = text,
        .root = root,
        .method = json_string(root, "method"),
        .version = json_string(
            json_find(params, SLICE_LIT("_meta")), "io.modelcontextprotocol/protocolVersion")};
    message->is_request = message->method.len > 0 && json_find(root, SLICE_LIT("id")) != NULL;
    for (uint32_t i = 0; json_is(root, JSON_ARRAY) && i < root->count; i++) {
        const struct json_value *item = &root->items[i];
        message->is_request = message->is_request || (json_string(item, "method").len > 0 &&
                                                         json_find(item, SLICE_LIT("id")) != NULL);
    }
}

/* Whether a header field can have it as it is. */
static bool is_plain(struct slice value)
{
    bool is_padded =
        value.len > 0 && (value.data[0] == ' ' || value.data[value.len - 1] == ' ' ||
                             value.data[0] == '\t' || value.data[value.len - 1] == '\t');
    bool is_sentinel = slice_starts(value, slice_str(sentinel)) && value.len >= 2 &&
                       memcmp(value.data + value.len - 2, "?=", 2) == 0;
    for (size_t i = 0; i < value.len; i++) {
        unsigned char c = (unsigned char)value.data[i];
        if ((c < ' ' && c != '\t') || c > '~') {
            return false;
        }
    }
    return value.len > 0 && !is_padded && !is_sentinel;
}

/* A value that is too long is left out; the server then refuses the message, and nothing is
 * done. */
static void put_field(struct slice value, const char *name,
    void (*add)(void *context, const char *name, struct slice value), void *context)
{
    char text[sizeof sentinel + BASE64_TEXT_BYTES(FIELD_BYTES_MAX) + 4];
    char encoded[BASE64_TEXT_BYTES(FIELD_BYTES_MAX) + 1];
    if (value.len > FIELD_BYTES_MAX) {
        return;
    }
    if (is_plain(value)) {
        add(context, name, value);
        return;
    }
    char *end = base64_put(encoded, value.data == NULL ? "" : value.data, value.len, BASE64_PADDED);
    *end = '\0';
    (void)snprintf(text, sizeof text, "%s%s?=", sentinel, encoded);
    add(context, name, slice_str(text));
}

/* Arguments that the tool's schema marks with x-mcp-header. */
static void put_params(const struct mcp_message *message, const struct mcp_tool *tool,
    void (*add)(void *context, const char *name, struct slice value), void *context)
{
    char name[NAME_BYTES_MAX];
    const struct json_value *arguments =
        json_find(json_find(message->root, SLICE_LIT("params")), SLICE_LIT("arguments"));
    for (const char *at = tool->headers; at != NULL && *at != '\0';) {
        const char *header = at + strlen(at) + 1;
        const struct json_value *value = json_at(arguments, slice_str(at));
        at = header + strlen(header) + 1;
        (void)snprintf(name, sizeof name, "Mcp-Param-%s", header);
        if (json_is(value, JSON_STRING)) {
            put_field(json_text(value), name, add, context);
        } else if (json_is(value, JSON_NUMBER) || json_is(value, JSON_TRUE) ||
                   json_is(value, JSON_FALSE)) {
            put_field(json_raw(message->text, value), name, add, context);
        }
    }
}

void mcp_message_fields(const struct mcp_message *message, const struct mcp_tools *tools,
    void (*add)(void *context, const char *name, struct slice value), void *context)
{
    const struct json_value *params = json_find(message->root, SLICE_LIT("params"));
    struct slice method = message->method;
    if (message->version.len == 0 || method.len == 0) {
        return;
    }
    put_field(method, "Mcp-Method", add, context);
    if (slice_is(method, "tools/call") || slice_is(method, "prompts/get")) {
        put_field(json_string(params, "name"), "Mcp-Name", add, context);
    } else if (slice_is(method, "resources/read")) {
        put_field(json_string(params, "uri"), "Mcp-Name", add, context);
    }
    const struct mcp_tool *tool =
        slice_is(method, "tools/call") ? tools_find(tools, json_string(params, "name")) : NULL;
    if (tool != NULL) {
        put_params(message, tool, add, context);
    }
}

static void visit_id(
    struct slice message, void (*visit)(void *context, struct slice id), void *context)
{
    struct slice id = scan_find(message, "id");
    if (id.len > 0 && scan_find(message, "method").len > 0) {
        visit(context, id);
    }
}

void mcp_line_ids(struct slice line, void (*visit)(void *context, struct slice id), void *context)
{
    struct mcp_scan scan;
    struct mcp_scan_item item;
    if (!scan_begin(&scan, line, '[')) {
        visit_id(line, visit, context);
        return;
    }
    while (scan_next(&scan, &item)) {
        visit_id(item.value, visit, context);
    }
}
