/* Values of fields: Idempotency-Key, Content-Type, Prefer. */
#include "base/limits.h"
#include "gateway/request_form.h"
#include "http/chars.h"
#include "http/head.h"

/* ---- the key ------------------------------------------------------------------------------- */

static enum status refuse_length(struct err *err)
{
    return err_set(err, E_INVALID, "the idempotency key is longer than key_bytes_max (%d)",
        LIMIT_KEY_BYTES_MAX);
}

/* RFC 9651 section 4.2.5, without parameters: they have no defined meaning, so a key with some
 * could be read in two ways. */
static enum status read_quoted(struct slice text, char *ret_key, size_t *ret_size, struct err *err)
{
    size_t size = 0;
    size_t at = 1;
    for (; at < text.len && text.data[at] != '"'; at++) {
        char c = text.data[at];
        if (c < 0x20 || c > 0x7e) {
            return err_set(err, E_INVALID, "the idempotency key has a byte that is not ASCII text");
        }
        if (c == '\\') {
            at++;
            if (at == text.len || (text.data[at] != '"' && text.data[at] != '\\')) {
                return err_set(err, E_INVALID, "the idempotency key has a broken escape");
            }
            c = text.data[at];
        }
        if (size == LIMIT_KEY_BYTES_MAX) {
            return refuse_length(err);
        }
        ret_key[size++] = c;
    }
    if (at >= text.len) {
        return err_set(err, E_INVALID, "the idempotency key has no closing quote");
    }
    if (at + 1 != text.len) {
        return err_set(err, E_INVALID, "something follows the idempotency key's closing quote");
    }
    *ret_size = size;
    return OK;
}

static enum status read_bare(struct slice text, char *ret_key, size_t *ret_size, struct err *err)
{
    for (size_t i = 0; i < text.len; i++) {
        char c = text.data[i];
        if (c <= 0x20 || c > 0x7e || c == '"' || c == '\\' || c == ',') {
            return err_set(err, E_INVALID,
                "the idempotency key has an invalid byte, or one that is allowed only inside "
                "quotes");
        }
    }
    if (text.len > LIMIT_KEY_BYTES_MAX) {
        return refuse_length(err);
    }
    if (text.len > 0) {
        memcpy(ret_key, text.data, text.len);
    }
    *ret_size = text.len;
    return OK;
}

enum status request_form_key(
    struct slice field, struct arena *arena, struct slice *ret_key, struct err *err)
{
    char key[LIMIT_KEY_BYTES_MAX];
    size_t size = 0;
    struct slice text = slice_trim(field);
    enum status status = text.len > 0 && text.data[0] == '"' ? read_quoted(text, key, &size, err)
                                                             : read_bare(text, key, &size, err);
    if (status == OK && size == 0) {
        status = err_set(err, E_INVALID, "the idempotency key is empty");
    }
    if (status == OK && arena_copy(arena, slice_of(key, size), ret_key) != OK) {
        status = err_set(err, E_NOMEM, "out of memory");
    }
    return status;
}

enum status request_form_key_printable(
    struct slice field, struct arena *arena, struct slice *ret_key, struct err *err)
{
    enum status status = request_form_key(field, arena, ret_key, NULL);
    return status == E_INVALID ? request_form_key_plain(slice_trim(field), arena, ret_key, err)
                               : status;
}

bool request_form_key_is_uuid(struct slice key)
{
    static const char form[] = "hhhhhhhh-hhhh-hhhh-hhhh-hhhhhhhhhhhh";
    if (key.len != sizeof form - 1) {
        return false;
    }
    for (size_t i = 0; i < key.len; i++) {
        if (form[i] == '-' ? key.data[i] != '-' : !http_is(key.data[i], HTTP_HEXDIG)) {
            return false;
        }
    }
    return true;
}

/* ---- lists and parameters ------------------------------------------------------------------ */

/* Take the text before the next separator that is not in a quoted string; trimmed. */
static bool next_part(struct slice *rest, char separator, struct slice *ret_part)
{
    if (rest->data == NULL) {
        return false;
    }
    bool quoted = false;
    size_t at = 0;
    for (; at < rest->len && (quoted || rest->data[at] != separator); at++) {
        char c = rest->data[at];
        if (quoted && c == '\\' && at + 1 < rest->len) {
            at++;
        } else if (c == '"') {
            quoted = !quoted;
        }
    }
    *ret_part = slice_trim(slice_of(rest->data, at));
    *rest = at == rest->len ? SLICE_EMPTY : slice_of(rest->data + at + 1, rest->len - at - 1);
    return true;
}

/* Append the text with its first `names` bytes in lower case. */
static char *put_lower(char *to, struct slice text, size_t names)
{
    for (size_t i = 0; i < text.len; i++) {
        *to++ = i < names ? http_lower(text.data[i]) : text.data[i];
    }
    return to;
}

static size_t name_len(struct slice parameter)
{
    const char *equals = parameter.len == 0 ? NULL : memchr(parameter.data, '=', parameter.len);
    return equals == NULL ? parameter.len : (size_t)(equals - parameter.data);
}

static bool is_charset(struct slice parameter)
{
    struct slice name = slice_trim(slice_of(parameter.data, name_len(parameter)));
    return http_same_name(name, SLICE_LIT("charset"));
}

/* JSON is UTF-8 (RFC 8259 section 8.1), so a charset of UTF-8 adds nothing. A different or
 * malformed one may change what the upstream reads: then all of them stay. */
static bool charset_is_utf8(struct slice parameters)
{
    struct slice part;
    while (next_part(&parameters, ';', &part)) {
        if (is_charset(part) && !http_same_name(part, SLICE_LIT("charset=utf-8")) &&
            !http_same_name(part, SLICE_LIT("charset=\"utf-8\""))) {
            return false;
        }
    }
    return true;
}

static bool type_is_json(struct slice type)
{
    static const char suffix[] = "+json";
    return slice_is(type, "application/json") ||
           (type.len >= sizeof suffix - 1 &&
               memcmp(type.data + type.len - (sizeof suffix - 1), suffix, sizeof suffix - 1) == 0);
}

enum status request_form_content_type(
    struct slice field, struct arena *arena, struct slice *ret_type)
{
    struct slice rest = field;
    struct slice part;
    char *text = arena_alloc(arena, field.len + 1); /* never longer: each part comes with its
                                                       separator */
    if (text == NULL) {
        return E_NOMEM;
    }
    char *at = text;
    if (next_part(&rest, ';', &part)) {
        at = put_lower(at, part, part.len);
    }
    bool drop_charset = type_is_json(slice_of(text, (size_t)(at - text))) && charset_is_utf8(rest);
    while (next_part(&rest, ';', &part)) {
        /* RFC 9110 section 5.6.6: a parameter may be empty, and means nothing. */
        if (part.len > 0 && !(drop_charset && is_charset(part))) {
            *at++ = ';';
            at = put_lower(at, part, name_len(part));
        }
    }
    *ret_type = slice_of(text, (size_t)(at - text));
    return OK;
}

bool request_form_is_json(struct slice content_type)
{
    struct slice type;
    return next_part(&content_type, ';', &type) && type_is_json(type);
}

/* ---- Prefer -------------------------------------------------------------------------------- */

/* Seconds in milliseconds; a number beyond all bounds becomes the maximum. -1: not a number. */
static int64_t delay_ms(struct slice seconds)
{
    int64_t ms = 0;
    if (seconds.len == 0 || !http_all(seconds, HTTP_DIGIT)) {
        return -1;
    }
    for (size_t i = 0; i < seconds.len; i++) {
        int64_t digit_ms = (seconds.data[i] - '0') * INT64_C(1000);
        if (ms > (INT64_MAX - digit_ms) / 10) {
            return INT64_MAX;
        }
        ms = ms * 10 + digit_ms;
    }
    return ms;
}

int64_t request_form_wait_ms(struct slice prefer)
{
    struct slice preference;
    while (next_part(&prefer, ',', &preference)) {
        struct slice value;
        if (next_part(&preference, ';', &value)) {
            size_t name = name_len(value);
            /* RFC 7240 section 2: if a name is repeated, the first counts. */
            if (http_same_name(slice_trim(slice_of(value.data, name)), SLICE_LIT("wait"))) {
                bool given = name < value.len;
                return given ? delay_ms(slice_trim(
                                   slice_of(value.data + name + 1, value.len - name - 1)))
                             : -1;
            }
        }
    }
    return -1;
}
