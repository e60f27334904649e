/* Reads a setting that is JSON with placeholders: the payload of a compensation, the envelope of a
 * command. */
#include "canon/jcs.h"
#include "canon/template.h"
#include "config/impl.h"

enum { JSON_BYTES_MAX = 64 << 10 }; /* of one such setting */

/* A scalar without quotes is whatever JSON would read it as; any other is a string. */
static void put_scalar(const struct yaml_node *node, struct buf *out, struct arena *arena)
{
    const struct json_value *value;
    bool is_json = node->is_plain && json_read(node->text, arena, &value, NULL) == OK &&
                   value->type != JSON_OBJECT && value->type != JSON_ARRAY;
    if (is_json) {
        buf_slice(out, node->text);
    } else if (node->is_plain && yaml_is_null(node)) {
        buf_str(out, "null");
    } else {
        jcs_put_string(out, node->text);
    }
}

/* Recursion is bounded by the file's depth. */
static void put_json(const struct yaml_node *node, struct buf *out, struct arena *arena)
{
    bool is_map = node->kind == YAML_MAP;
    if (node->kind == YAML_SCALAR) {
        put_scalar(node, out, arena);
        return;
    }
    buf_char(out, is_map ? '{' : '[');
    for (const struct yaml_node *child = node->first; child != NULL; child = child->next) {
        buf_str(out, child == node->first ? "" : ",");
        if (is_map) {
            jcs_put_string(out, child->text);
            buf_char(out, ':');
        }
        put_json(is_map ? child->value : child, out, arena);
    }
    buf_char(out, is_map ? '}' : ']');
}

enum status template_read(struct config_reader *reader, const struct yaml_node *key,
    const char *const *names, const struct json_value **ret_tree)
{
    struct arena *arena = &reader->config->arena;
    struct mem mem = arena_mem(arena);
    struct buf text;
    struct err err = {.status = OK};
    const struct json_value *value = NULL;
    if (key->value->kind == YAML_BAD) {
        return OK;
    }
    buf_init(&text, &mem, JSON_BYTES_MAX);
    put_json(key->value, &text, arena);
    enum status status = buf_status(&text);
    if (status == E_LIMIT) {
        reader_fault(reader, key, NULL, "%.*s is longer than %d bytes", SLICE_ARGS(key->text),
            JSON_BYTES_MAX);
        return OK;
    }
    status = status == OK ? json_read(buf_view(&text), arena, &value, &err) : status;
    status = status == OK ? template_check_json(value, names, &err) : status;
    if (status == E_NOMEM) {
        return status;
    }
    if (status != OK) {
        reader_fault(reader, key->value, NULL, "%.*s: %s", SLICE_ARGS(key->text), err.text);
        return OK;
    }
    *ret_tree = value;
    return OK;
}
