#include "canon/jcs.h"

#include "base/check.h"
#include "canon/json_scan.h"
#include "canon/number.h"

enum {
    ESCAPE_BYTES_MAX = 16,   /* \u001f, rounded up to what put_bytes copies in one piece */
    POINTER_SHOWN_MAX = 256, /* bytes of a JSON Pointer in an error text */
    NUMBER_SHOWN_MAX = 40,   /* bytes of a number in an error text */
};

/*
 * Every function below takes the place to write to and returns the place after what it wrote, or
 * NULL on failure. The buffer's length is updated only when it has to grow and at the end.
 */
struct writer {
    struct buf *out;                   /* the output; its len is updated late */
    char *end;                         /* end of what is allocated */
    struct jcs_report report;          /* lossy numbers so far */
    const struct json_value *overflow; /* the number that has no canonical form */
    struct jcs_how how;                /* what differs from the plain canonical form */
};

static void settle(struct writer *w, const char *at)
{
    w->out->len = at == NULL ? w->out->len : (size_t)(at - w->out->data);
}

static char *attach(struct writer *w)
{
    w->end = w->out->data == NULL ? NULL : w->out->data + w->out->cap;
    return w->out->data == NULL ? NULL : w->out->data + w->out->len;
}

static __attribute__((noinline, cold)) char *grow(struct writer *w, const char *at, size_t size)
{
    settle(w, at);
    if (buf_reserve(w->out, size) != OK) {
        return NULL;
    }
    return attach(w);
}

/* Room for size bytes at the place returned. NULL when the buffer refused; it remembers why. */
static inline char *room(struct writer *w, char *at, size_t size)
{
    return (size_t)(w->end - at) >= size ? at : grow(w, at, size);
}

/* Most names and values are a few bytes long, where calling memcpy costs more than copying. */
static inline char *put_bytes(char *to, const char *from, size_t size)
{
    if (size > 16) {
        memcpy(to, from, size);
    } else if (size >= 8) {
        uint64_t head, tail;
        memcpy(&head, from, 8);
        memcpy(&tail, from + size - 8, 8);
        memcpy(to, &head, 8);
        memcpy(to + size - 8, &tail, 8);
    } else if (size >= 4) {
        uint32_t head, tail;
        memcpy(&head, from, 4);
        memcpy(&tail, from + size - 4, 4);
        memcpy(to, &head, 4);
        memcpy(to + size - 4, &tail, 4);
    } else {
        for (size_t i = 0; i < size; i++) {
            to[i] = from[i];
        }
    }
    return to + size;
}

/* RFC 8785 section 3.2.2.2: the short escapes where they exist, else \u00xx in lower case. */
static char *put_escaped(char *to, unsigned char c)
{
    static const char hex[] = "0123456789abcdef";
    static const char shorts[] = "btn?fr"; /* for 0x08 to 0x0d; 0x0b has no short form */
    *to++ = '\\';
    if (c == '"' || c == '\\') {
        *to++ = (char)c;
    } else if (c >= 0x08 && c <= 0x0d && c != 0x0b) {
        *to++ = shorts[c - 0x08];
    } else {
        to = put_bytes(to, "u00", 3);
        *to++ = hex[c >> 4];
        *to++ = hex[c & 15];
    }
    return to;
}

static inline bool must_escape(unsigned char c)
{
    return c < 0x20 || c == '"' || c == '\\';
}

/* As put_bytes, where room was not made. */
static char *write_bytes(struct writer *w, char *at, const char *bytes, size_t size)
{
    at = room(w, at, size);
    return at == NULL ? NULL : put_bytes(at, bytes, size);
}

static __attribute__((noinline)) char *write_escaped(
    struct writer *w, char *at, const char *text, size_t size)
{
    const char *end = text + size;
    at = write_bytes(w, at, "\"", 1);
    while (at != NULL && text < end) {
        const char *run = scan_ascii_run(text, end);
        run += run < end && !must_escape((unsigned char)*run); /* not ASCII: written as it is */
        at = write_bytes(w, at, text, (size_t)(run - text));
        text = run;
        if (at != NULL && text < end && must_escape((unsigned char)*text)) {
            char escaped[ESCAPE_BYTES_MAX];
            char *to = put_escaped(escaped, (unsigned char)*text++);
            at = write_bytes(w, at, escaped, (size_t)(to - escaped));
        }
    }
    return at == NULL ? NULL : write_bytes(w, at, "\"", 1);
}

static inline char *write_string(struct writer *w, char *at, const struct json_value *value)
{
    if (!value->verbatim) {
        return write_escaped(w, at, value->text, value->count);
    }
    at = room(w, at, (size_t)value->count + 2);
    if (at == NULL) {
        return NULL;
    }
    *at = '"';
    at = put_bytes(at + 1, value->text, value->count);
    *at = '"';
    return at + 1;
}

static __attribute__((noinline)) char *write_number(
    struct writer *w, char *at, const struct json_value *value)
{
    char text[NUMBER_TEXT_BYTES_MAX];
    bool lossy;
    size_t size = number_put_canonical(text, json_text(value), &lossy);
    if (w->how.keep_lossy && (size == 0 || lossy)) {
        return write_bytes(w, at, value->text, value->count);
    }
    if (size == 0) {
        settle(w, at);
        w->overflow = value;
        return NULL;
    }
    if (lossy && w->report.lossy_count++ == 0) {
        w->report.lossy_first = value;
    }
    return write_bytes(w, at, text, size);
}

static char *write_container(struct writer *w, char *at, const struct json_value *value);

static inline char *write_value(struct writer *w, char *at, const struct json_value *value)
{
    switch (value->type) {
    case JSON_NULL: return write_bytes(w, at, "null", 4);
    case JSON_FALSE: return write_bytes(w, at, "false", 5);
    case JSON_TRUE: return write_bytes(w, at, "true", 4);
    case JSON_NUMBER:
        return value->verbatim ? write_bytes(w, at, value->text, value->count)
                               : write_number(w, at, value);
    case JSON_STRING: return write_string(w, at, value);
    case JSON_ARRAY:
    case JSON_OBJECT: return write_container(w, at, value);
    }
    return NULL;
}

static inline char *write_member(struct writer *w, char *at, const struct json_member *member)
{
    at = write_string(w, at, &member->name);
    at = at == NULL ? NULL : room(w, at, 1);
    if (at == NULL) {
        return NULL;
    }
    *at = ':';
    return write_value(w, at + 1, &member->value);
}

static char *write_container(struct writer *w, char *at, const struct json_value *value)
{
    bool object = value->type == JSON_OBJECT;
    at = room(w, at, 2);
    if (at == NULL) {
        return NULL;
    }
    *at++ = object ? '{' : '[';
    for (uint32_t i = 0; i < value->count; i++) {
        at =
            object ? write_member(w, at, &value->members[i]) : write_value(w, at, &value->items[i]);
        at = at == NULL ? NULL : room(w, at, 1);
        if (at == NULL) {
            return NULL;
        }
        *at++ = ','; /* the last one becomes the closing bracket */
    }
    at -= value->count > 0;
    *at++ = object ? '}' : ']';
    return at;
}

static char *write_way(
    struct writer *w, char *at, const struct json_value *value, enum json_mask_way way);

/* A container on the way to something marked. Its children are in the order of their addresses, as
 * the marks are, so one walk over both meets each mark at its child. */
static char *write_within(struct writer *w, char *at, const struct json_value *value)
{
    const struct json_mask *marks = w->how.marks;
    bool object = value->type == JSON_OBJECT;
    ASSERT(value->count > 0 && (object || value->type == JSON_ARRAY));
    size_t next = json_mask_from(marks, object ? &value->members[0].value : &value->items[0]);
    at = write_bytes(w, at, object ? "{" : "[", 1);
    bool any = false;
    for (uint32_t i = 0; i < value->count && at != NULL; i++) {
        const struct json_value *child = object ? &value->members[i].value : &value->items[i];
        bool marked = next < marks->count && marks->items[next].node == child;
        enum json_mask_way way = marked ? marks->items[next++].way : JSON_MASK_NONE;
        if (way == JSON_MASK_OMITTED) {
            continue;
        }
        at = any ? write_bytes(w, at, ",", 1) : at;
        if (object) {
            at = at == NULL ? NULL : write_string(w, at, &value->members[i].name);
            at = at == NULL ? NULL : write_bytes(w, at, ":", 1);
        }
        at = at == NULL ? NULL : write_way(w, at, child, way);
        any = true;
    }
    return at == NULL ? NULL : write_bytes(w, at, object ? "}" : "]", 1);
}

static char *write_way(
    struct writer *w, char *at, const struct json_value *value, enum json_mask_way way)
{
    switch (way) {
    case JSON_MASK_NONE: return write_value(w, at, value);
    case JSON_MASK_WITHIN: return write_within(w, at, value);
    case JSON_MASK_REDACTED: return write_bytes(w, at, JCS_REDACTED, sizeof JCS_REDACTED - 1);
    case JSON_MASK_OMITTED: return at;
    }
    return NULL;
}

static enum json_mask_way way_of(const struct json_mask *marks, const struct json_value *root)
{
    size_t at = marks == NULL ? 0 : json_mask_from(marks, root);
    bool marked = marks != NULL && at < marks->count && marks->items[at].node == root;
    return marked ? marks->items[at].way : JSON_MASK_NONE;
}

static enum status fail_number(const struct json_value *root, const struct json_value *number,
    const char *why, struct err *err)
{
    char pointer[POINTER_SHOWN_MAX];
    json_pointer_of(root, number, pointer, sizeof pointer);
    struct slice text = json_text(number);
    bool cut = text.len > NUMBER_SHOWN_MAX;
    text.len = cut ? NUMBER_SHOWN_MAX : text.len;
    return err_set(err, E_INVALID, "number %.*s%s at \"%s\" %s", SLICE_ARGS(text), cut ? "..." : "",
        pointer, why);
}

/* The status of the writing that ended at `at`. */
static enum status finish(struct writer *w, const char *at, const struct json_value *value,
    struct jcs_report *ret_report, struct err *err)
{
    if (w->overflow != NULL) {
        return fail_number(value, w->overflow, "is beyond the largest double", err);
    }
    if (at == NULL && buf_status(w->out) != OK) {
        return err_set(err, buf_status(w->out), "no room for the canonical form");
    }
    settle(w, at);
    if (ret_report != NULL) {
        *ret_report = w->report;
    }
    return OK;
}

enum status jcs_write(
    const struct json_value *value, struct buf *out, struct jcs_report *ret_report, struct err *err)
{
    struct writer w = {.out = out};
    char *at = buf_status(out) == OK ? write_value(&w, attach(&w), value) : NULL;
    ASSERT(at != NULL || w.overflow != NULL || buf_status(out) != OK);
    return finish(&w, at, value, ret_report, err);
}

enum status jcs_write_marked(const struct json_value *value, const struct jcs_how *how,
    struct buf *out, struct jcs_report *ret_report, struct err *err)
{
    struct writer w = {.out = out, .how = *how};
    enum json_mask_way way = way_of(how->marks, value);
    char *at = buf_status(out) == OK ? write_way(&w, attach(&w), value, way) : NULL;
    ASSERT(at != NULL || way == JSON_MASK_OMITTED || w.overflow != NULL || buf_status(out) != OK);
    return finish(&w, at, value, ret_report, err);
}

/* Not inlined: the writer would be made for every string. */
static __attribute__((noinline)) void put_escaped_string(struct buf *out, struct slice text)
{
    struct writer w = {.out = out};
    if (buf_status(out) == OK) {
        settle(&w, write_escaped(&w, attach(&w), text.data, text.len));
    }
}

void jcs_put_string(struct buf *out, struct slice text)
{
    const char *data = text.len == 0 ? "" : text.data; /* an empty slice may have no data */
    if (scan_ascii_run(data, data + text.len) < data + text.len) {
        put_escaped_string(out, text);
        return;
    }
    /* Nothing to escape, as in most names. */
    char *at = buf_extend(out, text.len + 2);
    if (at != NULL) {
        *at = '"';
        *put_bytes(at + 1, data, text.len) = '"';
    }
}

enum status jcs_refuse_lossy(
    const struct json_value *root, const struct jcs_report *report, struct err *err)
{
    ASSERT(report->lossy_first != NULL);
    return fail_number(root, report->lossy_first,
        "is lossy: no double holds it, so its key would be ambiguous", err);
}
