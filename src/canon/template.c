#include "canon/template.h"

#include <string.h>

#include "base/percent.h"
#include "base/text.h"
#include "canon/jcs.h"

enum {
    SHOWN_MAX = 64,             /* of a placeholder in a refusal */
    STRING_BYTES_MAX = 1 << 20, /* of one string of a JSON template */
    VALUES_MAX = 64,            /* that one JSON template may name */
};

static int shown(struct slice name)
{
    return name.len > SHOWN_MAX ? SHOWN_MAX : (int)name.len;
}

/* ---- the text --------------------------------------------------------------------------- */

/* One piece of a text: a run of plain bytes, or a placeholder. */
struct piece {
    struct slice text; /* of a placeholder, without its braces */
    bool is_placeholder;
};

/* Cut the next piece off. False: the text is at its end, or, with a status, is not a template. */
static bool next_piece(
    struct slice *text, struct piece *ret_piece, enum status *ret_status, struct err *err)
{
    *ret_status = OK;
    if (text->len == 0) {
        return false;
    }
    size_t len = 0;
    while (len < text->len && text->data[len] != '{' && text->data[len] != '}') {
        len++;
    }
    if (len > 0) {
        *ret_piece = (struct piece){.text = slice_of(text->data, len)};
        *text = slice_of(text->data + len, text->len - len);
        return true;
    }
    const char *end = text->data[0] == '{' ? memchr(text->data, '}', text->len) : NULL;
    if (end == NULL) {
        *ret_status = err_set(err, E_INVALID, "a brace that belongs to no placeholder");
        return false;
    }
    size_t used = (size_t)(end - text->data) + 1;
    *ret_piece = (struct piece){.text = slice_of(text->data + 1, used - 2), .is_placeholder = true};
    *text = slice_of(text->data + used, text->len - used);
    return true;
}

/* Cut the next name of a path off; false at its end. */
static bool next_name(struct slice *path, struct slice *ret_name)
{
    if (path->data == NULL) {
        return false;
    }
    const char *dot = path->len == 0 ? NULL : memchr(path->data, '.', path->len);
    size_t len = dot == NULL ? path->len : (size_t)(dot - path->data);
    *ret_name = slice_of(path->data, len);
    *path = dot == NULL ? SLICE_EMPTY : slice_of(dot + 1, path->len - len - 1);
    if (dot == NULL) {
        path->data = NULL;
    }
    return true;
}

static enum status check_placeholder(struct slice path, const char *const *names, struct err *err)
{
    struct slice rest = path;
    struct slice name;
    bool is_first = true;
    while (next_name(&rest, &name)) {
        bool is_known = !is_first;
        for (size_t i = 0; !is_known && names[i] != NULL; i++) {
            is_known = slice_is(name, names[i]);
        }
        if (name.len == 0) {
            return err_set(
                err, E_INVALID, "placeholder {%.*s} has an empty name", shown(path), path.data);
        }
        if (!is_known) {
            return err_set(
                err, E_INVALID, "there is no value called {%.*s}", shown(path), path.data);
        }
        is_first = false;
    }
    return OK;
}

enum status template_check(struct slice text, const char *const *names, struct err *err)
{
    struct piece piece;
    enum status status = OK;
    while (status == OK && next_piece(&text, &piece, &status, err)) {
        status = piece.is_placeholder ? check_placeholder(piece.text, names, err) : OK;
    }
    return status;
}

enum status template_check_json(
    const struct json_value *tree, const char *const *names, struct err *err)
{
    enum status status = OK;
    if (tree->type == JSON_STRING) {
        return template_check(json_text(tree), names, err);
    }
    for (uint32_t i = 0; tree->type == JSON_ARRAY && status == OK && i < tree->count; i++) {
        status = template_check_json(&tree->items[i], names, err);
    }
    for (uint32_t i = 0; tree->type == JSON_OBJECT && status == OK && i < tree->count; i++) {
        status = template_check_json(&tree->members[i].value, names, err);
    }
    return status;
}

/* ---- values ----------------------------------------------------------------------------- */

/* A part of a value: a member, or an item by its number. */
static const struct json_value *part_of(const struct json_value *value, struct slice name)
{
    uint64_t number;
    if (value->type == JSON_OBJECT) {
        return json_find(value, name);
    }
    bool is_item = value->type == JSON_ARRAY && text_u64(name, &number) && number < value->count;
    return is_item ? &value->items[number] : NULL;
}

/* NULL: absent. */
static const struct json_value *find(struct slice path, const struct template_roots *roots)
{
    struct slice name;
    const struct json_value *value = roots->known == NULL ? NULL : json_find(roots->known, path);
    if (value != NULL || !next_name(&path, &name)) {
        return value;
    }
    for (size_t i = 0; value == NULL && i < roots->count; i++) {
        value = slice_equal(roots->items[i].name, name) ? roots->items[i].value : NULL;
    }
    while (value != NULL && next_name(&path, &name)) {
        value = part_of(value, name);
    }
    return value;
}

static enum status refuse_absent(struct slice path, struct err *err)
{
    return err_set(err, E_INVALID, "{%.*s} is absent", shown(path), path.data);
}

/* The text of a value. E_INVALID: it has none. */
static enum status text_of(
    struct slice path, const struct json_value *value, struct slice *ret_text, struct err *err)
{
    switch (value->type) {
    case JSON_STRING:
    case JSON_NUMBER: *ret_text = json_text(value); return OK;
    case JSON_TRUE: *ret_text = SLICE_LIT("true"); return OK;
    case JSON_FALSE: *ret_text = SLICE_LIT("false"); return OK;
    case JSON_NULL:
    case JSON_ARRAY:
    case JSON_OBJECT: break;
    }
    return err_set(
        err, E_INVALID, "{%.*s} must be a string, a number or a boolean", shown(path), path.data);
}

static enum status put_encoded(
    struct slice path, struct slice text, struct buf *out, struct err *err)
{
    if (text.len == 0 || slice_is(text, ".") || slice_is(text, "..")) {
        return err_set(err, E_INVALID, "{%.*s} is '%.*s', which cannot stand in a path",
            shown(path), path.data, SLICE_ARGS(text));
    }
    percent_append(out, text);
    return OK;
}

/* RFC 9110 section 5.5: what a field's value must not have. */
static enum status put_field(struct slice path, struct slice text, struct buf *out, struct err *err)
{
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.data[i];
        if (c < 0x20 || c == 0x7f) {
            return err_set(
                err, E_INVALID, "{%.*s} has a control character", shown(path), path.data);
        }
    }
    buf_slice(out, text);
    return OK;
}

static enum status put_value(struct slice path, const struct template_roots *roots,
    enum template_way way, struct buf *out, struct err *err)
{
    struct slice text = SLICE_EMPTY;
    const struct json_value *value = find(path, roots);
    if (value == NULL) {
        return refuse_absent(path, err);
    }
    enum status status = text_of(path, value, &text, err);
    if (status != OK) {
        return status;
    }
    switch (way) {
    case TEMPLATE_PATH: return put_encoded(path, text, out, err);
    case TEMPLATE_FIELD: return put_field(path, text, out, err);
    case TEMPLATE_TEXT: break;
    }
    buf_slice(out, text);
    return OK;
}

/* What a buffer came to. */
static enum status end_of(const struct buf *out, struct err *err)
{
    enum status status = buf_status(out);
    return status == OK ? OK : err_set(err, status, "the template's text does not fit");
}

enum status template_put(struct slice text, const struct template_roots *roots,
    enum template_way way, struct buf *out, struct err *err)
{
    struct piece piece;
    enum status status = OK;
    while (status == OK && next_piece(&text, &piece, &status, err)) {
        if (piece.is_placeholder) {
            status = put_value(piece.text, roots, way, out, err);
        } else {
            buf_slice(out, piece.text);
        }
    }
    return status == OK ? end_of(out, err) : status;
}

/* ---- JSON ------------------------------------------------------------------------------- */

struct json_value template_string(struct slice text)
{
    return (struct json_value){.type = JSON_STRING, .count = (uint32_t)text.len, .text = text.data};
}

/* A value as it came: numbers that no double holds stay as they were written. */
static enum status put_whole(const struct json_value *value, struct buf *out, struct err *err)
{
    static const struct jcs_how how = {.keep_lossy = true};
    return jcs_write_marked(value, &how, out, NULL, err);
}

static enum status put_string(const struct json_value *value, const struct template_roots *roots,
    struct buf *out, struct err *err)
{
    struct slice text = json_text(value);
    struct slice rest = text;
    struct piece piece;
    enum status status;
    if (next_piece(&rest, &piece, &status, err) && piece.is_placeholder && rest.len == 0) {
        const struct json_value *found = find(piece.text, roots);
        return found == NULL ? refuse_absent(piece.text, err) : put_whole(found, out, err);
    }
    struct buf plain;
    buf_init(&plain, out->mem, STRING_BYTES_MAX);
    status = template_put(text, roots, TEMPLATE_TEXT, &plain, err);
    if (status == OK) {
        jcs_put_string(out, buf_view(&plain));
    }
    buf_release(&plain);
    return status;
}

static enum status put_object(const struct json_value *tree, const struct template_roots *roots,
    struct buf *out, struct err *err)
{
    enum status status = OK;
    buf_char(out, '{');
    for (uint32_t i = 0; status == OK && i < tree->count; i++) {
        buf_str(out, i == 0 ? "" : ",");
        jcs_put_string(out, json_text(&tree->members[i].name));
        buf_char(out, ':');
        status = template_put_json(&tree->members[i].value, roots, out, err);
    }
    buf_char(out, '}');
    return status;
}

static enum status put_array(const struct json_value *tree, const struct template_roots *roots,
    struct buf *out, struct err *err)
{
    enum status status = OK;
    buf_char(out, '[');
    for (uint32_t i = 0; status == OK && i < tree->count; i++) {
        buf_str(out, i == 0 ? "" : ",");
        status = template_put_json(&tree->items[i], roots, out, err);
    }
    buf_char(out, ']');
    return status;
}

enum status template_put_json(const struct json_value *tree, const struct template_roots *roots,
    struct buf *out, struct err *err)
{
    enum status status = OK;
    switch (tree->type) {
    case JSON_STRING: status = put_string(tree, roots, out, err); break;
    case JSON_ARRAY: status = put_array(tree, roots, out, err); break;
    case JSON_OBJECT: status = put_object(tree, roots, out, err); break;
    case JSON_NULL:
    case JSON_FALSE:
    case JSON_TRUE:
    case JSON_NUMBER: status = put_whole(tree, out, err); break;
    }
    return status == OK ? end_of(out, err) : status;
}

/* ---- values that are needed later ------------------------------------------------------- */

struct values {
    const struct template_roots *roots;
    const char *later;
    struct slice paths[VALUES_MAX]; /* written already: a member must not be there twice */
    size_t count;
    struct buf *out;
    struct err *err;
};

static enum status take_value(struct values *values, struct slice path)
{
    struct slice rest = path;
    struct slice root;
    for (size_t i = 0; i < values->count; i++) {
        if (slice_equal(values->paths[i], path)) {
            return OK;
        }
    }
    if (next_name(&rest, &root) && slice_is(root, values->later)) {
        return OK;
    }
    const struct json_value *value = find(path, values->roots);
    if (value == NULL) {
        return refuse_absent(path, values->err);
    }
    if (values->count == VALUES_MAX) {
        return err_set(values->err, E_INVALID, "a template names more than %d values", VALUES_MAX);
    }
    buf_str(values->out, values->count == 0 ? "" : ",");
    values->paths[values->count++] = path;
    jcs_put_string(values->out, path);
    buf_char(values->out, ':');
    return put_whole(value, values->out, values->err);
}

static enum status take_values(struct values *values, const struct json_value *tree)
{
    enum status status = OK;
    struct slice text = tree->type == JSON_STRING ? json_text(tree) : SLICE_EMPTY;
    struct piece piece;
    while (status == OK && next_piece(&text, &piece, &status, values->err)) {
        status = piece.is_placeholder ? take_value(values, piece.text) : OK;
    }
    for (uint32_t i = 0; tree->type == JSON_ARRAY && status == OK && i < tree->count; i++) {
        status = take_values(values, &tree->items[i]);
    }
    for (uint32_t i = 0; tree->type == JSON_OBJECT && status == OK && i < tree->count; i++) {
        status = take_values(values, &tree->members[i].value);
    }
    return status;
}

enum status template_put_values(const struct json_value *tree, const struct template_roots *roots,
    const char *later, struct buf *out, struct err *err)
{
    struct values values = {.roots = roots, .later = later, .out = out, .err = err};
    buf_char(out, '{');
    enum status status = take_values(&values, tree);
    buf_char(out, '}');
    return status == OK ? end_of(out, err) : status;
}
