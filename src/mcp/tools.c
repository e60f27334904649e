#include "mcp/tools.h"

#include <stdlib.h>

#include "base/arena.h"
#include "base/macros.h"
#include "canon/json.h"
#include "mcp/scan.h"

enum { TREE_BYTES_MAX = 1 << 29, EDITS_EACH = 3 };

#define KEY_SCHEMA                                                                                 \
    ":{\"type\":\"string\",\"maxLength\":255,\"description\":\"Makes repeating this call safe: "   \
    "calls with the same value take effect only once. Choose a new unique value (such as a UUID) " \
    "for each thing you want done. If you do not get an answer, call again with the same value "   \
    "and the same arguments: you get the result of the first call. To do the same thing again on " \
    "purpose, choose a different value.\"}"
#define REQUEST_SCHEMA                                                                             \
    ":{\"type\":\"string\",\"maxLength\":255,\"description\":\"Optional name of this attempt for " \
    "the audit log. It changes nothing about what the call does.\"}"

/* ---- the table ------------------------------------------------------------------------------- */

void tools_init(struct mcp_tools *tools, const struct mem *mem)
{
    *tools = (struct mcp_tools){.mem = mem};
}

static void release_tool(struct mcp_tools *tools, const struct mcp_tool *tool)
{
    char *bytes = NULL;
    memcpy(&bytes, &tool->name.data, sizeof bytes); /* ours, though a slice does not say so */
    mem_free(tools->mem, bytes);
    mem_free(tools->mem, tool->headers);
}

void tools_forget(struct mcp_tools *tools)
{
    for (size_t i = 0; i < tools->count; i++) {
        release_tool(tools, &tools->items[i]);
    }
    tools->count = 0;
    tools->is_open = false;
    tools->is_complete = false;
}

void tools_release(struct mcp_tools *tools)
{
    tools_forget(tools);
    mem_free(tools->mem, tools->items);
    tools->items = NULL;
    tools->room = 0;
}

const struct mcp_tool *tools_find(const struct mcp_tools *tools, struct slice name)
{
    for (size_t i = 0; i < tools->count; i++) {
        if (slice_equal(tools->items[i].name, name)) {
            return &tools->items[i];
        }
    }
    return NULL;
}

/* Adds a tool, or replaces it. False: the table is full, or out of memory. */
static bool remember(struct mcp_tools *tools, const struct mcp_tool *tool)
{
    for (size_t i = 0; i < tools->count; i++) {
        if (slice_equal(tools->items[i].name, tool->name)) {
            struct slice name = tools->items[i].name;
            mem_free(tools->mem, tools->items[i].headers);
            tools->items[i] = *tool;
            tools->items[i].name = name;
            return true;
        }
    }
    if (tools->count == tools->room) {
        size_t room = tools->room == 0 ? 64 : 2 * tools->room;
        struct mcp_tool *items = room > MCP_TOOLS_MAX
                                     ? NULL
                                     : mem_resize(tools->mem, tools->items, room * sizeof *items);
        if (items == NULL) {
            return false;
        }
        tools->items = items;
        tools->room = room;
    }
    char *name = mem_alloc(tools->mem, tool->name.len + 1);
    if (name == NULL) {
        return false;
    }
    memcpy(name, tool->name.data, tool->name.len);
    tools->items[tools->count] = *tool;
    tools->items[tools->count++].name = slice_of(name, tool->name.len);
    return true;
}

/* ---- edits of a text ------------------------------------------------------------------------- */

/* Bytes of a text that are replaced. */
struct mcp_edit {
    size_t at;  /* where in the text */
    size_t len; /* bytes that go */
    struct slice with[3];
};

struct mcp_edits {
    struct slice text;
    struct mcp_edit *items;
    size_t count;
};

/* Appends members to an object. An object is edited at most once. */
static void add_members(struct mcp_edits *edits, const struct json_value *object,
    struct slice first, struct slice second)
{
    struct slice raw = json_raw(edits->text, object);
    size_t at = (size_t)(raw.data - edits->text.data) + raw.len - 1;
    while (strchr(" \t\r\n", edits->text.data[at - 1]) != NULL) {
        at--;
    }
    edits->items[edits->count++] = (struct mcp_edit){
        .at = at, .with = {object->count > 0 ? SLICE_LIT(",") : SLICE_EMPTY, first, second}};
}

static void replace(struct mcp_edits *edits, const struct json_value *value, struct slice with)
{
    struct slice raw = json_raw(edits->text, value);
    edits->items[edits->count++] = (struct mcp_edit){
        .at = (size_t)(raw.data - edits->text.data), .len = raw.len, .with = {with}};
}

static int compare_edits(const void *a, const void *b)
{
    const struct mcp_edit *first = a;
    const struct mcp_edit *second = b;
    return first->at < second->at ? -1 : first->at > second->at;
}

static void put_edited(struct buf *out, struct mcp_edits *edits)
{
    size_t at = 0;
    if (edits->count > 0) {
        qsort(edits->items, edits->count, sizeof *edits->items, compare_edits);
    }
    for (size_t i = 0; i < edits->count; i++) {
        const struct mcp_edit *edit = &edits->items[i];
        buf_slice(out, slice_of(edits->text.data + at, edit->at - at));
        for (size_t n = 0; n < COUNT(edit->with); n++) {
            buf_slice(out, edit->with[n]);
        }
        at = edit->at + edit->len;
    }
    buf_slice(out, slice_of(edits->text.data + at, edits->text.len - at));
}

/* ---- one tool -------------------------------------------------------------------------------- */

/* The first of the names that the tool does not have itself; NULL: it has both. */
static const char *free_name(
    const struct json_value *properties, const char *usual, const char *other)
{
    return json_find(properties, slice_str(usual)) == NULL   ? usual
           : json_find(properties, slice_str(other)) == NULL ? other
                                                             : NULL;
}

static struct mcp_tool tool_of(struct slice name, const struct json_value *tool)
{
    const struct json_value *annotations = json_find(tool, SLICE_LIT("annotations"));
    const struct json_value *properties =
        json_find(json_find(tool, SLICE_LIT("inputSchema")), SLICE_LIT("properties"));
    return (struct mcp_tool){.name = name,
        .is_read_only = json_is(json_find(annotations, SLICE_LIT("readOnlyHint")), JSON_TRUE),
        .key_name = free_name(properties, "idempotency_key", "once_idempotency_key"),
        .request_name = free_name(properties, "request_id", "once_request_id"),
        .owns_camel = json_find(properties, SLICE_LIT("idempotencyKey")) != NULL,
        .owns_hidden = json_find(properties, SLICE_LIT("_idempotency_key")) != NULL};
}

/* The two strings, as members of "properties". */
static struct slice key_member(const struct mcp_tool *tool)
{
    return tool->key_name == NULL ? SLICE_EMPTY
           : slice_is(slice_str(tool->key_name), "idempotency_key")
               ? SLICE_LIT("\"idempotency_key\"" KEY_SCHEMA)
               : SLICE_LIT("\"once_idempotency_key\"" KEY_SCHEMA);
}

static struct slice request_member(const struct mcp_tool *tool)
{
    bool is_second = tool->key_name != NULL;
    if (tool->request_name == NULL) {
        return SLICE_EMPTY;
    }
    if (slice_is(slice_str(tool->request_name), "request_id")) {
        return is_second ? SLICE_LIT(",\"request_id\"" REQUEST_SCHEMA)
                         : SLICE_LIT("\"request_id\"" REQUEST_SCHEMA);
    }
    return is_second ? SLICE_LIT(",\"once_request_id\"" REQUEST_SCHEMA)
                     : SLICE_LIT("\"once_request_id\"" REQUEST_SCHEMA);
}

/* A schema without "properties" has none of these names, so that the usual ones are free. */
static void edit_schema(
    struct mcp_edits *edits, const struct json_value *schema, const struct mcp_tool *tool)
{
    const struct json_value *properties = json_find(schema, SLICE_LIT("properties"));
    if (json_is(properties, JSON_OBJECT)) {
        if (tool->key_name != NULL || tool->request_name != NULL) {
            add_members(edits, properties, key_member(tool), request_member(tool));
        }
    } else if (json_is(schema, JSON_OBJECT) && properties == NULL) {
        add_members(edits, schema,
            SLICE_LIT(
                "\"properties\":{\"idempotency_key\"" KEY_SCHEMA ",\"request_id\"" REQUEST_SCHEMA),
            SLICE_LIT("}"));
    }
}

static void edit_hint(struct mcp_edits *edits, const struct json_value *tool)
{
    const struct json_value *annotations = json_find(tool, SLICE_LIT("annotations"));
    const struct json_value *hint = json_find(annotations, SLICE_LIT("idempotentHint"));
    if (hint != NULL) {
        replace(edits, hint, SLICE_LIT("true"));
    } else if (json_is(annotations, JSON_OBJECT)) {
        add_members(edits, annotations, SLICE_LIT("\"idempotentHint\":true"), SLICE_EMPTY);
    } else if (annotations == NULL) {
        add_members(
            edits, tool, SLICE_LIT("\"annotations\":{\"idempotentHint\":true}"), SLICE_EMPTY);
    }
}

static void say_names(const struct mcp_listing *listing, const struct mcp_tool *tool)
{
    if (tool->key_name == NULL) {
        listing->say(listing->context, tool->name,
            "has arguments of both names: a key can only be given as params.idempotencyKey");
    } else if (!slice_is(slice_str(tool->key_name), "idempotency_key")) {
        listing->say(listing->context, tool->name,
            "has an argument idempotency_key itself: Once's is once_idempotency_key");
    }
    if (tool->request_name != NULL && !slice_is(slice_str(tool->request_name), "request_id")) {
        listing->say(listing->context, tool->name,
            "has an argument request_id itself: Once's is once_request_id");
    }
}

/* ---- header fields --------------------------------------------------------------------------- */

enum { HEADERS_BYTES_MAX = 8192, SCHEMA_DEPTH_MAX = 8 };

/* RFC 9110 section 5.6.2. */
static bool is_token(struct slice text)
{
    for (size_t i = 0; i < text.len; i++) {
        char c = text.data[i];
        bool is_word = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
        if (!is_word && (c == '\0' || strchr("!#$%&'*+-.^_`|~", c) == NULL)) {
            return false;
        }
    }
    return text.len > 0 && text.len < 200;
}

/* RFC 6901: "~" and "/" inside a name. */
static void put_step(struct buf *pointer, struct slice name)
{
    buf_char(pointer, '/');
    for (size_t i = 0; i < name.len; i++) {
        if (name.data[i] == '~' || name.data[i] == '/') {
            buf_str(pointer, name.data[i] == '~' ? "~0" : "~1");
        } else {
            buf_char(pointer, name.data[i]);
        }
    }
}

static void put_headers(
    struct buf *out, struct buf *pointer, const struct json_value *schema, unsigned int depth)
{
    const struct json_value *properties = json_find(schema, SLICE_LIT("properties"));
    for (uint32_t i = 0;
         json_is(properties, JSON_OBJECT) && depth < SCHEMA_DEPTH_MAX && i < properties->count;
         i++) {
        const struct json_member *member = &properties->members[i];
        const struct json_value *header = json_find(&member->value, SLICE_LIT("x-mcp-header"));
        size_t len = pointer->len;
        put_step(pointer, json_text(&member->name));
        if (json_is(header, JSON_STRING) && is_token(json_text(header)) &&
            memchr(pointer->data, '\0', pointer->len) == NULL) {
            buf_slice(out, buf_view(pointer));
            buf_char(out, '\0');
            buf_slice(out, json_text(header));
            buf_char(out, '\0');
        }
        put_headers(out, pointer, &member->value, depth + 1);
        pointer->len = buf_status(pointer) == OK ? len : pointer->len;
    }
}

/* NULL: none, or they are too long: a server that needs them refuses the call. */
static char *headers_of(const struct mem *mem, const struct json_value *tool)
{
    struct buf out;
    struct buf pointer;
    char *headers = NULL;
    buf_init(&out, mem, HEADERS_BYTES_MAX);
    buf_init(&pointer, mem, HEADERS_BYTES_MAX);
    put_headers(&out, &pointer, json_find(tool, SLICE_LIT("inputSchema")), 0);
    if (out.len > 0 && buf_status(&out) == OK && buf_status(&pointer) == OK) {
        headers = mem_zalloc(mem, 1, out.len + 1);
    }
    if (headers != NULL) {
        memcpy(headers, out.data, out.len);
    }
    buf_release(&pointer);
    buf_release(&out);
    return headers;
}

/* ---- the list -------------------------------------------------------------------------------- */

/* False: out of memory, or too many tools. */
static bool edit_tool(struct mcp_tools *tools, const struct mcp_listing *listing,
    const struct json_value *value, struct mcp_edits *edits)
{
    const struct json_value *name = json_find(value, SLICE_LIT("name"));
    if (!json_is(name, JSON_STRING)) {
        return true; /* not a tool */
    }
    struct mcp_tool tool = tool_of(json_text(name), value);
    bool is_new = tools_find(tools, tool.name) == NULL;
    tool.headers = headers_of(tools->mem, value);
    if (!remember(tools, &tool)) {
        mem_free(tools->mem, tool.headers);
        return false;
    }
    bool is_guarded =
        !tool.is_read_only && config_mcp_find(listing->policy, tool.name)->key != CONFIG_MCP_PASS;
    if (is_guarded) {
        edit_schema(edits, json_find(value, SLICE_LIT("inputSchema")), &tool);
        edit_hint(edits, value);
    }
    if (is_guarded && is_new) {
        say_names(listing, &tool);
    }
    return true;
}

static bool edit_all(struct mcp_tools *tools, const struct mcp_listing *listing,
    const struct json_value *list, struct arena *arena, struct buf *out)
{
    struct mcp_edits edits = {.text = listing->result,
        .items =
            arena_zalloc(arena, ((size_t)list->count + 1) * EDITS_EACH * sizeof(struct mcp_edit))};
    bool is_done = edits.items != NULL;
    for (uint32_t i = 0; is_done && i < list->count; i++) {
        is_done = edit_tool(tools, listing, &list->items[i], &edits);
    }
    if (is_done) {
        put_edited(out, &edits);
    }
    return is_done;
}

bool tools_list(struct mcp_tools *tools, const struct mcp_listing *listing, struct buf *out,
    struct slice *ret_cursor)
{
    struct arena arena;
    const struct json_value *root = NULL;
    arena_init(&arena, tools->mem, TREE_BYTES_MAX);
    bool is_read = json_read(listing->result, &arena, &root, NULL) == OK;
    const struct json_value *list = is_read ? json_find(root, SLICE_LIT("tools")) : NULL;
    bool is_done = json_is(list, JSON_ARRAY) && edit_all(tools, listing, list, &arena, out);
    if (is_done) {
        const struct json_value *cursor = json_find(root, SLICE_LIT("nextCursor"));
        bool is_last = !json_is(cursor, JSON_STRING);
        *ret_cursor = is_last ? SLICE_EMPTY : json_raw(listing->result, cursor);
        tools->is_complete =
            tools->is_complete || (is_last && (listing->is_first || tools->is_open));
        tools->is_open = listing->is_first ? !is_last : tools->is_open && !is_last;
    }
    arena_release(&arena);
    return is_done;
}

void tools_announce(struct slice line, struct slice result, struct buf *out)
{
    struct slice tools = scan_find(scan_find(result, "capabilities"), "tools");
    if (tools.len < 2 || tools.data[0] != '{' || scan_find(tools, "idempotency").len > 0) {
        buf_slice(out, line);
        return;
    }
    struct slice inside = slice_of(tools.data + 1, tools.len - 2);
    size_t before = (size_t)(inside.data - line.data) + inside.len;
    buf_slice(out, slice_of(line.data, before));
    buf_str(out, json_trim(inside).len > 0 ? "," : "");
    buf_str(out, "\"idempotency\":{}");
    buf_slice(out, slice_of(line.data + before, line.len - before));
}
