/* Checks one argument of a command against its declaration: its type, its form, its bounds. */
#include <stdlib.h>
#include <string.h>

#include "command/envelope.h"

enum { DIGITS_MIN = 7, DIGITS_MAX = 15, NUMBER_BYTES_MAX = 64 }; /* E.164 section 6 */

/* ---- normal forms ------------------------------------------------------------------------ */

/* ASCII letters only; all others are unchanged, because their case depends on the language. */
static void change_case(char *text, size_t len, bool to_upper)
{
    char from = to_upper ? 'a' : 'A';
    for (size_t i = 0; i < len; i++) {
        if (text[i] >= from && text[i] <= from + 25) {
            text[i] = (char)(text[i] ^ 0x20);
        }
    }
}

/* Only separators are left out, never a digit: "+49 (0) 30-1234" has one digit too many. */
static bool put_e164(struct slice text, char *to, size_t *ret_len)
{
    size_t len = 0;
    bool has_plus = false;
    for (size_t i = 0; i < text.len; i++) {
        char c = text.data[i];
        if (c >= '0' && c <= '9') {
            to[len++] = c;
        } else if (c == '+' && len == 0 && !has_plus) {
            has_plus = true;
        } else if (strchr(" -./()", c) == NULL || c == '\0') {
            return false;
        }
    }
    if (!has_plus && len > 2 && to[0] == '0' && to[1] == '0') {
        has_plus = true;
        len -= 2;
        memmove(to, to + 2, len);
    }
    if (!has_plus || len < DIGITS_MIN || len > DIGITS_MAX || to[0] == '0') {
        return false;
    }
    memmove(to + 1, to, len);
    to[0] = '+';
    *ret_len = len + 1;
    return true;
}

/* In place where the length stays the same; text is in the arena. */
static enum status normalise(
    const char *how, char *text, size_t *len, const char *name, struct err *err)
{
    if (strcmp(how, "trim") == 0) {
        struct slice cut = json_trim(slice_of(text, *len));
        memmove(text, cut.data, cut.len);
        *len = cut.len;
    } else if (strcmp(how, "e164") == 0) {
        if (!put_e164(slice_of(text, *len), text, len)) {
            return err_set(err, E_INVALID,
                "argument '%s' must be a phone number with its country code, such as +4930123456",
                name);
        }
    } else {
        change_case(text, *len, strcmp(how, "upper") == 0);
    }
    return OK;
}

static enum status take_string(const struct config_arg *arg, const struct json_value *value,
    struct arena *arena, struct json_value *ret_value, struct err *err)
{
    size_t len = value->count;
    if (arg->normalise_count == 0) {
        return OK;
    }
    char *text = arena_alloc(arena, len + 2); /* "00…" may become "+…", and never anything longer */
    if (text == NULL) {
        return err_set(err, E_NOMEM, "out of memory");
    }
    memcpy(text, value->text, len);
    for (size_t i = 0; i < arg->normalise_count; i++) {
        enum status status = normalise(arg->normalise[i], text, &len, arg->name, err);
        if (status != OK) {
            return status;
        }
    }
    *ret_value = (struct json_value){
        .type = JSON_STRING, .offset = value->offset, .count = (uint32_t)len, .text = text};
    return OK;
}

/* ---- types and bounds -------------------------------------------------------------------- */

static bool has_type(unsigned type, const struct json_value *value)
{
    int64_t whole;
    switch ((enum config_arg_type)type) {
    case CONFIG_ARG_ANY: return true;
    case CONFIG_ARG_STRING: return value->type == JSON_STRING;
    case CONFIG_ARG_INTEGER: return json_int(value, &whole);
    case CONFIG_ARG_NUMBER: return value->type == JSON_NUMBER;
    case CONFIG_ARG_BOOLEAN: return value->type == JSON_TRUE || value->type == JSON_FALSE;
    case CONFIG_ARG_OBJECT: return value->type == JSON_OBJECT;
    case CONFIG_ARG_ARRAY: return value->type == JSON_ARRAY;
    }
    return false;
}

static const char *type_words(unsigned type)
{
    static const char *const words[] = {"anything", "a string", "a whole number", "a number",
        "true or false", "an object", "an array"};
    return words[type];
}

/* The value of a number, or the length of a string in characters. False: it is too long for a
 * number. */
static bool measure(const struct json_value *value, double *ret_size)
{
    char text[NUMBER_BYTES_MAX];
    if (value->type == JSON_STRING) {
        size_t count = 0;
        for (uint32_t i = 0; i < value->count; i++) {
            count += ((unsigned char)value->text[i] & 0xc0) != 0x80;
        }
        *ret_size = (double)count;
        return true;
    }
    if (value->count >= sizeof text) {
        return false;
    }
    memcpy(text, value->text, value->count);
    text[value->count] = '\0';
    *ret_size = strtod(text, NULL);
    return true;
}

static enum status check_bounds(
    const struct config_arg *arg, const struct json_value *value, struct err *err)
{
    double size;
    const char *unit = value->type == JSON_STRING ? " characters" : "";
    if (arg->min == NULL && arg->max == NULL) {
        return OK;
    }
    if (!measure(value, &size)) {
        return err_set(err, E_INVALID, "argument '%s' has more than %d digits", arg->name,
            NUMBER_BYTES_MAX - 1);
    }
    if (arg->min != NULL && size < strtod(arg->min, NULL)) {
        return err_set(
            err, E_INVALID, "argument '%s' must be at least %s%s", arg->name, arg->min, unit);
    }
    if (arg->max != NULL && size > strtod(arg->max, NULL)) {
        return err_set(
            err, E_INVALID, "argument '%s' must be at most %s%s", arg->name, arg->max, unit);
    }
    return OK;
}

static enum status check_values(
    const struct config_arg *arg, const struct json_value *value, struct err *err)
{
    for (size_t i = 0; i < arg->value_count; i++) {
        if (slice_is(json_text(value), arg->values[i])) {
            return OK;
        }
    }
    return arg->value_count == 0 ? OK
                                 : err_set(err, E_INVALID,
                                       "argument '%s' is not one of the allowed values", arg->name);
}

enum status args_take(const struct config_arg *arg, const struct json_value *value,
    struct arena *arena, struct json_value *ret_value, struct err *err)
{
    if (!has_type(arg->type, value)) {
        return err_set(
            err, E_INVALID, "argument '%s' must be %s", arg->name, type_words(arg->type));
    }
    *ret_value = *value;
    enum status status =
        value->type == JSON_STRING ? take_string(arg, value, arena, ret_value, err) : OK;
    status = status == OK ? check_bounds(arg, ret_value, err) : status;
    return status == OK ? check_values(arg, ret_value, err) : status;
}
