/* Reads keys from outside the Idempotency-Key field, and writes any key as such a field. */
#include "base/limits.h"
#include "canon/json_mask.h"
#include "canon/number.h"
#include "gateway/request_form.h"

enum { TREE_BYTES_PER_BYTE = 8, TREE_BYTES_SMALL = 8 << 20 }; /* of a body read for its key */

enum status request_form_key_plain(
    struct slice text, struct arena *arena, struct slice *ret_key, struct err *err)
{
    if (text.len == 0) {
        return err_set(err, E_INVALID, "the idempotency key is empty");
    }
    if (text.len > LIMIT_KEY_BYTES_MAX) {
        return err_set(err, E_INVALID, "the idempotency key is longer than key_bytes_max (%d)",
            LIMIT_KEY_BYTES_MAX);
    }
    for (size_t i = 0; i < text.len; i++) {
        if (text.data[i] < 0x20 || text.data[i] > 0x7e) {
            return err_set(
                err, E_INVALID, "the idempotency key has a byte that is not printable ASCII");
        }
    }
    return arena_copy(arena, text, ret_key) == OK ? OK : err_set(err, E_NOMEM, "out of memory");
}

/* ---- in a body ----------------------------------------------------------------------------- */

/* A number whose canonical form is not just digits, or changes its value, could be two keys. */
static enum status read_number(
    struct slice text, const char *pointer, char *ret_text, size_t *ret_size, struct err *err)
{
    bool is_lossy = false;
    size_t size = number_put_canonical(ret_text, text, &is_lossy);
    size_t first = size > 0 && ret_text[0] == '-' ? 1 : 0;
    bool is_integer = size > first && !is_lossy;
    for (size_t i = first; i < size; i++) {
        is_integer = is_integer && ret_text[i] >= '0' && ret_text[i] <= '9';
    }
    if (!is_integer) {
        return err_set(err, E_INVALID,
            "the idempotency key, %s of the body, is a number that is not a whole one within 2^53",
            pointer);
    }
    *ret_size = size;
    return OK;
}

static enum status read_value(const struct json_value *value, const char *pointer,
    struct arena *arena, struct slice *ret_key, struct err *err)
{
    char number[NUMBER_TEXT_BYTES_MAX];
    struct slice text = json_text(value);
    size_t size = 0;
    if (json_is(value, JSON_NUMBER)) {
        enum status status = read_number(text, pointer, number, &size, err);
        if (status != OK) {
            return status;
        }
        text = slice_of(number, size);
    } else if (!json_is(value, JSON_STRING)) {
        return err_set(err, E_INVALID,
            "the idempotency key, %s of the body, is neither a string nor a whole number", pointer);
    }
    return request_form_key_plain(text, arena, ret_key, err);
}

static enum status find(struct slice body, const char *pointer, struct arena *trees,
    const struct json_value **ret_value, struct err *err)
{
    const struct json_value *root = NULL;
    struct err fault = {.status = OK};
    enum status status = json_read(body, trees, &root, &fault);
    if (status != OK && status != E_NOMEM) {
        return err_set(err, E_INVALID,
            "the body, which has the idempotency key, cannot be read as JSON: %s", fault.text);
    }
    if (status != OK) {
        return err_set(err, E_NOMEM, "out of memory");
    }
    *ret_value = json_at(root, slice_str(pointer));
    return OK;
}

enum status request_form_key_in_body(struct slice body, const char *pointer, struct arena *arena,
    struct slice *ret_key, struct err *err)
{
    const struct json_value *value = NULL;
    struct slice key = SLICE_EMPTY;
    struct arena trees;
    size_t most = body.len < LIMIT_JSON_BYTES_MAX ? body.len * TREE_BYTES_PER_BYTE : 0;
    arena_init(&trees, arena->mem, most < TREE_BYTES_SMALL ? TREE_BYTES_SMALL : most);
    enum status status = find(body, pointer, &trees, &value, err);
    if (status == OK && value != NULL) {
        status = read_value(value, pointer, arena, &key, err);
    }
    arena_release(&trees);
    if (status == OK) {
        *ret_key = key;
    }
    return status;
}

/* ---- in a field of ours -------------------------------------------------------------------- */

static bool needs_quotes(struct slice key)
{
    for (size_t i = 0; i < key.len; i++) {
        char c = key.data[i];
        if (c == ' ' || c == '"' || c == '\\' || c == ',') {
            return true;
        }
    }
    return false;
}

enum status request_form_key_field(struct slice key, struct arena *arena, struct slice *ret_field)
{
    if (!needs_quotes(key)) {
        *ret_field = key;
        return OK;
    }
    char *text = arena_alloc(arena, 2 * key.len + 2);
    if (text == NULL) {
        return E_NOMEM;
    }
    size_t size = 0;
    text[size++] = '"';
    for (size_t i = 0; i < key.len; i++) {
        if (key.data[i] == '"' || key.data[i] == '\\') {
            text[size++] = '\\';
        }
        text[size++] = key.data[i];
    }
    text[size++] = '"';
    *ret_field = slice_of(text, size);
    return OK;
}
