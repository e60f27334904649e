#include <stdio.h>

#include "base/check.h"
#include "base/limits.h"
#include "base/text.h"
#include "canon/json.h"
#include "canon/json_scan.h"
#include "canon/number.h"

struct json_place json_place(struct slice text, size_t offset)
{
    struct json_place place = {.offset = offset, .line = 1, .column = 1};
    for (size_t i = 0; i < offset && i < text.len; i++) {
        if (text.data[i] == '\n') {
            place.line++;
            place.column = 1;
        } else if (((unsigned char)text.data[i] & 0xC0) != 0x80) {
            place.column++; /* continuation bytes are not code points of their own */
        }
    }
    return place;
}

int json_order(struct slice a, struct slice b)
{
    size_t shorter = a.len < b.len ? a.len : b.len;
    size_t i = 0;
    while (i < shorter && a.data[i] == b.data[i]) {
        i++;
    }
    if (i == shorter) {
        return (a.len > b.len) - (a.len < b.len);
    }
    /* UTF-8 sorts as code points do. UTF-16 differs in one thing: the surrogates of code points
     * from U+10000 on (lead bytes F0 to F4) come before U+E000 to U+FFFF (lead bytes EE and EF). */
    unsigned x = (unsigned char)a.data[i];
    unsigned y = (unsigned char)b.data[i];
    x += x == 0xEE || x == 0xEF ? 0x10 : 0;
    y += y == 0xEE || y == 0xEF ? 0x10 : 0;
    return (x > y) - (x < y);
}

const struct json_value *json_find(const struct json_value *object, struct slice name)
{
    if (!json_is(object, JSON_OBJECT)) {
        return NULL;
    }
    uint32_t from = 0;
    uint32_t to = object->count;
    while (from < to) {
        uint32_t middle = from + (to - from) / 2;
        int order = json_order(name, json_text(&object->members[middle].name));
        if (order == 0) {
            return &object->members[middle].value;
        }
        if (order < 0) {
            to = middle;
        } else {
            from = middle + 1;
        }
    }
    return NULL;
}

struct slice json_text(const struct json_value *value)
{
    bool has_text = value->type == JSON_STRING || value->type == JSON_NUMBER;
    return has_text ? slice_of(value->text, value->count) : SLICE_EMPTY;
}

struct slice json_string(const struct json_value *object, const char *name)
{
    const struct json_value *value = json_find(object, slice_str(name));
    return json_is(value, JSON_STRING) ? json_text(value) : SLICE_EMPTY;
}

/* The place after the closing quote of the string at `at`; NULL if it is not closed. */
static const char *raw_string_end(const char *at, const char *end)
{
    for (at++; at < end;) {
        at = scan_ascii_run(at, end);
        if (at < end && *at == '"') {
            return at + 1;
        }
        at += at < end && *at == '\\' && end - at >= 2 ? 2 : 1;
    }
    return NULL;
}

/* The place after the bracket that closes the container at `at`; NULL if it is not closed. */
static const char *raw_container_end(const char *at, const char *end)
{
    size_t depth = 0;
    while (at != NULL && at < end) {
        char c = *at;
        if (c == '"') {
            at = raw_string_end(at, end);
            continue;
        }
        at++;
        depth += c == '{' || c == '[';
        depth -= c == '}' || c == ']';
        if (depth == 0) {
            return at;
        }
    }
    return NULL;
}

/* The place after the value of that kind at `at`; NULL if it is not closed. */
static const char *raw_end(const struct json_value *value, const char *at, const char *end)
{
    switch (value->type) {
    case JSON_NULL:
    case JSON_TRUE: return at + 4;
    case JSON_FALSE: return at + 5;
    case JSON_NUMBER: return at + value->count;
    case JSON_STRING: return raw_string_end(at, end);
    case JSON_ARRAY:
    case JSON_OBJECT: break;
    }
    return raw_container_end(at, end);
}

struct slice json_raw(struct slice text, const struct json_value *value)
{
    ASSERT(value->offset < text.len);
    const char *at = text.data + value->offset;
    const char *end = raw_end(value, at, text.data + text.len);
    ASSERT(end != NULL); /* it was read from this text */
    ASSERT(end <= text.data + text.len);
    return slice_of(at, (size_t)(end - at));
}

bool json_framed(struct slice text)
{
    const char *at = text.data;
    const char *end = text.len == 0 ? at : text.data + text.len;
    if (text.len > 0 && (*at == '{' || *at == '[')) {
        return raw_container_end(at, end) == end;
    }
    if (text.len > 0 && *at == '"') {
        return raw_string_end(at, end) == end;
    }
    /* Numbers and words: nothing that could end a value or begin a new one. */
    while (at < end && ((*at >= 'a' && *at <= 'z') || *at == 'E' || scan_is_digit(*at) ||
                           memchr("+-.", *at, 3) != NULL)) {
        at++;
    }
    return text.len > 0 && at == end;
}

bool json_int(const struct json_value *value, int64_t *ret)
{
    if (!json_is(value, JSON_NUMBER)) {
        return false;
    }
    struct slice text = json_text(value);
    bool negative = text.data[0] == '-';
    uint64_t magnitude;
    if (!text_u64(slice_of(text.data + negative, text.len - negative), &magnitude) ||
        magnitude > (uint64_t)INT64_MAX + negative) {
        return false;
    }
    *ret = (int64_t)(negative ? 0 - magnitude : magnitude);
    return true;
}

static bool members_equal(const struct json_value *a, const struct json_value *b)
{
    for (uint32_t i = 0; i < a->count; i++) {
        if (!slice_equal(json_text(&a->members[i].name), json_text(&b->members[i].name)) ||
            !json_equal(&a->members[i].value, &b->members[i].value)) {
            return false;
        }
    }
    return true;
}

static bool items_equal(const struct json_value *a, const struct json_value *b)
{
    for (uint32_t i = 0; i < a->count; i++) {
        if (!json_equal(&a->items[i], &b->items[i])) {
            return false;
        }
    }
    return true;
}

bool json_equal(const struct json_value *a, const struct json_value *b)
{
    if (a->type != b->type) {
        return false;
    }
    switch (a->type) {
    case JSON_NULL:
    case JSON_FALSE:
    case JSON_TRUE: return true;
    case JSON_NUMBER: return number_equal(json_text(a), json_text(b));
    case JSON_STRING: return slice_equal(json_text(a), json_text(b));
    case JSON_ARRAY: return a->count == b->count && items_equal(a, b);
    case JSON_OBJECT: return a->count == b->count && members_equal(a, b);
    }
    return false;
}

/* How many levels below root the value is, with the place taken at each; -1 when it is not there.
 * A value built around parts of a document may be two levels deeper than a document. */
enum { PATH_MAX_LEVELS = LIMIT_JSON_DEPTH_MAX + 8 };

static int path_to(
    const struct json_value *root, const struct json_value *value, uint32_t *path, int level)
{
    if (root == value) {
        return level;
    }
    bool object = root->type == JSON_OBJECT;
    if ((!object && root->type != JSON_ARRAY) || level == PATH_MAX_LEVELS) {
        return -1;
    }
    for (uint32_t i = 0; i < root->count; i++) {
        path[level] = i;
        const struct json_value *child = object ? &root->members[i].value : &root->items[i];
        int found = path_to(child, value, path, level + 1);
        if (found >= 0) {
            return found;
        }
    }
    return -1;
}

/* One step of a pointer, escaped by RFC 6901 section 3 and shown so that no terminal acts on it. */
static size_t put_step(char *ret_text, size_t size, struct slice name)
{
    size_t used = 0;
    ret_text[used++] = '/';
    for (size_t i = 0; i < name.len && used + 2 < size; i++) {
        char c = name.data[i];
        if (c == '~' || c == '/') {
            ret_text[used++] = '~';
            ret_text[used++] = c == '~' ? '0' : '1';
        } else {
            ret_text[used++] = (unsigned char)c < 0x20 || c == 0x7f ? '?' : c;
        }
    }
    return used;
}

void json_pointer_of(
    const struct json_value *root, const struct json_value *value, char *ret_text, size_t size)
{
    ASSERT(size >= 32);
    uint32_t path[PATH_MAX_LEVELS];
    int levels = path_to(root, value, path, 0);
    size_t room = size - sizeof "...";
    size_t used = 0;
    for (int i = 0; i < levels && used + 4 < room; i++) {
        if (root->type == JSON_OBJECT) {
            const struct json_member *member = &root->members[path[i]];
            used += put_step(ret_text + used, room - used, json_text(&member->name));
            root = &member->value;
        } else {
            char index[16];
            (void)snprintf(index, sizeof index, "%u", (unsigned)path[i]);
            used += put_step(ret_text + used, room - used, slice_str(index));
            root = &root->items[path[i]];
        }
    }
    bool whole = root == value && used + 4 < room;
    (void)snprintf(ret_text + used, size - used, whole ? "" : "...");
}
