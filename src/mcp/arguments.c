#include "mcp/arguments.h"

#include <stdio.h>

#include "base/limits.h"
#include "canon/jcs.h"
#include "canon/payload.h"
#include "mcp/scan.h"

enum { TREE_BYTES_MAX = 1 << 29 }; /* of a message of 16 MiB, all of it small values */

struct slice arguments_tool(const struct json_value *root)
{
    const struct json_value *name =
        json_find(json_find(root, SLICE_LIT("params")), SLICE_LIT("name"));
    return json_is(name, JSON_STRING) ? json_text(name) : SLICE_EMPTY;
}

/* ---- what is meant for Once ------------------------------------------------------------------ */

/* A text for Once; null and "" are absent. */
static enum status take_text(
    const struct json_value *object, const char *name, struct slice *ret, struct err *err)
{
    const struct json_value *value = name == NULL ? NULL : json_find(object, slice_str(name));
    if (value == NULL || value->type == JSON_NULL) {
        return OK;
    }
    if (value->type != JSON_STRING) {
        return err_set(err, E_INVALID, "%s must be a string", name);
    }
    if (value->count > 0 && ret->len > 0 && !slice_equal(*ret, json_text(value))) {
        return err_set(err, E_INVALID, "%s differs from another key of the same call", name);
    }
    *ret = value->count > 0 ? json_text(value) : *ret;
    return OK;
}

enum { TAKEN_MAX = 4 };

/* Members of the arguments that are taken out, by where their names begin in the text: there a name
 * may be escaped. */
struct mcp_taken {
    const char *places[TAKEN_MAX];
    size_t count;
};

static void take_out(struct mcp_taken *taken, const struct mcp_tool_call *message,
    const struct json_value *arguments, const char *name)
{
    for (uint32_t i = 0; name != NULL && json_is(arguments, JSON_OBJECT) && i < arguments->count;
         i++) {
        const struct json_value *of = &arguments->members[i].name;
        if (slice_is(json_text(of), name)) {
            taken->places[taken->count++] = message->text.data + of->offset;
            return;
        }
    }
}

static bool is_taken(const struct mcp_taken *taken, const char *place)
{
    for (size_t i = 0; i < taken->count; i++) {
        if (taken->places[i] == place) {
            return true;
        }
    }
    return false;
}

/* The arguments without these. */
static void put_rest(struct buf *out, const struct mcp_taken *taken,
    const struct mcp_tool_call *message, const struct json_value *arguments)
{
    struct mcp_scan scan;
    struct mcp_scan_item item;
    bool comma = false;
    buf_char(out, '{');
    if (scan_begin(&scan, json_raw(message->text, arguments), '{')) {
        while (scan_next(&scan, &item)) {
            if (!is_taken(taken, item.whole.data)) {
                buf_str(out, comma ? "," : "");
                buf_slice(out, item.whole);
                comma = true;
            }
        }
    }
    buf_char(out, '}');
}

static void put_call(const struct mcp_tool_call *message, const struct json_value *arguments,
    const struct mcp_taken *taken, struct buf *line, struct buf *payload)
{
    if (arguments == NULL) {
        buf_slice(line, message->text);
        buf_str(payload, "{}");
        return;
    }
    struct slice raw = json_raw(message->text, arguments);
    if (taken->count == 0) {
        buf_slice(line, message->text);
        buf_slice(payload, raw);
        return;
    }
    put_rest(payload, taken, message, arguments);
    size_t before = (size_t)(raw.data - message->text.data);
    buf_slice(line, slice_of(message->text.data, before));
    buf_slice(line, buf_view(payload));
    buf_slice(line, slice_of(raw.data + raw.len, message->text.len - before - raw.len));
}

enum status arguments_read(const struct mcp_tool_call *message, const struct mcp_tool *tool,
    struct buf *line, struct buf *payload, struct mcp_arguments *ret_arguments, struct err *err)
{
    static const char camel[] = "idempotencyKey";
    static const char hidden[] = "_idempotency_key";
    static const struct mcp_tool unlisted = {
        .key_name = "idempotency_key", .owns_camel = true, .owns_hidden = true};
    const struct mcp_tool *of = tool == NULL ? &unlisted : tool;
    const struct json_value *params = json_find(message->root, SLICE_LIT("params"));
    const struct json_value *arguments = json_find(params, SLICE_LIT("arguments"));
    struct mcp_arguments found = {.key = message->key};
    struct mcp_taken taken = {.count = 0};
    arguments = json_is(arguments, JSON_NULL) ? NULL : arguments;
    if (arguments != NULL && arguments->type != JSON_OBJECT) {
        return err_set(err, E_INVALID, "the arguments must be an object");
    }
    enum status status = take_text(arguments, of->key_name, &found.key, err);
    status = status != OK ? status : take_text(arguments, camel, &found.key, err);
    status = status != OK ? status : take_text(arguments, hidden, &found.key, err);
    status = status != OK ? status : take_text(params, camel, &found.key, err);
    status = status != OK ? status : take_text(arguments, of->request_name, &found.request_id, err);
    if (status == OK) {
        take_out(&taken, message, arguments, of->key_name);
        take_out(&taken, message, arguments, of->request_name);
        take_out(&taken, message, arguments, of->owns_camel ? NULL : camel);
        take_out(&taken, message, arguments, of->owns_hidden ? NULL : hidden);
        put_call(message, arguments, &taken, line, payload);
        *ret_arguments = found;
    }
    return status;
}

/* ---- what names a call without a key --------------------------------------------------------- */

enum status arguments_derive(struct slice tool, struct slice payload, const struct mem *mem,
    char ret_key[DERIVED_KEY_BYTES], struct err *err)
{
    struct arena arena;
    struct buf text;
    struct buf form;
    struct jcs_report report = {0};
    struct digest digest;
    char hex[DIGEST_HEX_BYTES];
    const struct json_value *root = NULL;
    arena_init(&arena, mem, TREE_BYTES_MAX);
    buf_init(&text, mem, LIMIT_JSON_BYTES_MAX + LIMIT_JSON_BYTES_MAX);
    buf_init(&form, mem, payload_form_bytes_max(LIMIT_JSON_BYTES_MAX));
    buf_str(&text, "{\"arguments\":");
    buf_slice(&text, payload);
    buf_str(&text, ",\"tool\":");
    jcs_put_string(&text, tool);
    buf_char(&text, '}');
    enum status status = buf_status(&text);
    status = status != OK ? status : json_read(buf_view(&text), &arena, &root, err);
    status = status != OK ? status : jcs_write(root, &form, &report, err);
    if (status == OK && report.lossy_count > 0) {
        status = jcs_refuse_lossy(root, &report, err);
    }
    if (status == OK) {
        digest_sha256(form.data, form.len, &digest);
        (void)snprintf(ret_key, DERIVED_KEY_BYTES, "derived-%s", digest_put_hex(hex, &digest));
    }
    buf_release(&form);
    buf_release(&text);
    arena_release(&arena);
    return status;
}

bool arguments_redacted(struct slice payload, const char *const *pointers, size_t count,
    const struct mem *mem, struct digest *ret_fingerprint)
{
    struct arena arena;
    struct buf form;
    struct payload print;
    const struct json_value *root = NULL;
    bool is_hit = false;
    if (count == 0) {
        return false;
    }
    arena_init(&arena, mem, TREE_BYTES_MAX);
    buf_init(&form, mem, payload_form_bytes_max(payload.len));
    bool is_read = json_read(payload, &arena, &root, NULL) == OK &&
                   payload_fingerprint(payload, root, &form, &print) == OK;
    for (size_t i = 0; is_read && i < count; i++) {
        is_hit = is_hit || json_at(root, slice_str(pointers[i])) != NULL;
    }
    if (is_hit) {
        *ret_fingerprint = print.digest;
    }
    buf_release(&form);
    arena_release(&arena);
    return is_hit;
}
