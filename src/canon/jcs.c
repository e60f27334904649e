#include "canon/jcs.h"

#include "base/check.h"
#include "canon/number.h"

enum {
    POINTER_SHOWN_MAX = 256, /* bytes of a JSON Pointer in an error text */
    NUMBER_SHOWN_MAX = 40,   /* bytes of a number in an error text */
};

/* The tail of the buffer while a value is written: one comparison a piece instead of a call. */
struct writer {
    struct buf *out;                   /* what is written to; its len is behind until settled */
    char *at;                          /* next free byte */
    char *end;                         /* end of what is allocated */
    struct jcs_report report;          /* lossy numbers so far */
    const struct json_value *overflow; /* the number that has no canonical form */
};

static void settle(struct writer *w)
{
    if (w->at != NULL) {
        w->out->len = (size_t)(w->at - w->out->data);
    }
}

static void attach(struct writer *w)
{
    w->at = w->out->data == NULL ? NULL : w->out->data + w->out->len;
    w->end = w->out->data == NULL ? NULL : w->out->data + w->out->cap;
}

static __attribute__((noinline)) bool grow(struct writer *w, size_t size)
{
    settle(w);
    enum status status = buf_reserve(w->out, size);
    attach(w);
    return status == OK;
}

/* Make sure that size bytes can be put. False when the buffer refused; it remembers why. */
static inline bool room(struct writer *w, size_t size)
{
    return (size_t)(w->end - w->at) >= size || grow(w, size);
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
    static const char shorts[] = "btn?fr"; /* for 0x08 to 0x0d; 0x0b has none */
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

/* How many bytes c takes in a canonical string. */
static size_t escaped_size(unsigned char c)
{
    if (c >= 0x20) {
        return c == '"' || c == '\\' ? 2 : 1;
    }
    return c >= 0x08 && c <= 0x0d && c != 0x0b ? 2 : 6;
}

static bool write_escaped_string(struct writer *w, const char *text, size_t size)
{
    /* Counted first: asking for the worst case would refuse what fits near the maximum. */
    size_t need = 2;
    for (size_t i = 0; i < size; i++) {
        need += escaped_size((unsigned char)text[i]);
    }
    if (!room(w, need)) {
        return false;
    }
    char *to = w->at;
    *to++ = '"';
    for (size_t i = 0; i < size; i++) {
        unsigned char c = (unsigned char)text[i];
        if (escaped_size(c) > 1) {
            to = put_escaped(to, c);
        } else {
            *to++ = (char)c;
        }
    }
    *to++ = '"';
    ASSERT(to == w->at + need);
    w->at = to;
    return true;
}

static inline bool write_string(struct writer *w, const struct json_value *value)
{
    if (!value->verbatim) {
        return write_escaped_string(w, value->text, value->count);
    }
    if (!room(w, (size_t)value->count + 2)) {
        return false;
    }
    *w->at = '"';
    w->at = put_bytes(w->at + 1, value->text, value->count);
    *w->at++ = '"';
    return true;
}

static bool write_number(struct writer *w, const struct json_value *value)
{
    char text[NUMBER_TEXT_BYTES_MAX];
    const char *from = value->text;
    size_t size = value->count;
    if (!value->verbatim) {
        bool lossy;
        from = text;
        size = number_put_canonical(text, json_text(value), &lossy);
        if (size == 0) {
            w->overflow = value;
            return false;
        }
        if (lossy && w->report.lossy_count++ == 0) {
            w->report.lossy_first = value;
        }
    }
    if (!room(w, size)) {
        return false;
    }
    w->at = put_bytes(w->at, from, size);
    return true;
}

static bool write_word(struct writer *w, const char *word, size_t size)
{
    if (!room(w, size)) {
        return false;
    }
    w->at = put_bytes(w->at, word, size);
    return true;
}

static inline bool write_char(struct writer *w, char c)
{
    if (!room(w, 1)) {
        return false;
    }
    *w->at++ = c;
    return true;
}

static bool write_value(struct writer *w, const struct json_value *value);

static bool write_array(struct writer *w, const struct json_value *value)
{
    bool going = write_char(w, '[');
    for (uint32_t i = 0; going && i < value->count; i++) {
        going = (i == 0 || write_char(w, ',')) && write_value(w, &value->items[i]);
    }
    return going && write_char(w, ']');
}

static bool write_object(struct writer *w, const struct json_value *value)
{
    bool going = write_char(w, '{');
    for (uint32_t i = 0; going && i < value->count; i++) {
        const struct json_member *member = &value->members[i];
        going = (i == 0 || write_char(w, ',')) && write_string(w, &member->name) &&
                write_char(w, ':') && write_value(w, &member->value);
    }
    return going && write_char(w, '}');
}

static bool write_value(struct writer *w, const struct json_value *value)
{
    switch (value->type) {
    case JSON_NULL: return write_word(w, "null", 4);
    case JSON_FALSE: return write_word(w, "false", 5);
    case JSON_TRUE: return write_word(w, "true", 4);
    case JSON_NUMBER: return write_number(w, value);
    case JSON_STRING: return write_string(w, value);
    case JSON_ARRAY: return write_array(w, value);
    case JSON_OBJECT: return write_object(w, value);
    }
    return false;
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

enum status jcs_write(
    const struct json_value *value, struct buf *out, struct jcs_report *ret_report, struct err *err)
{
    struct writer w = {.out = out};
    if (buf_status(out) != OK) {
        return err_set(err, buf_status(out), "no room for the canonical form");
    }
    attach(&w);
    bool written = write_value(&w, value);
    settle(&w);
    if (w.overflow != NULL) {
        return fail_number(value, w.overflow, "is beyond the largest double", err);
    }
    if (!written) {
        ASSERT(buf_status(out) != OK);
        return err_set(err, buf_status(out), "no room for the canonical form");
    }
    if (ret_report != NULL) {
        *ret_report = w.report;
    }
    return OK;
}

void jcs_put_string(struct buf *out, struct slice text)
{
    struct writer w = {.out = out};
    if (buf_status(out) == OK) {
        attach(&w);
        (void)write_escaped_string(&w, text.data, text.len);
        settle(&w);
    }
}

enum status jcs_refuse_lossy(
    const struct json_value *root, const struct jcs_report *report, struct err *err)
{
    ASSERT(report->lossy_first != NULL);
    return fail_number(root, report->lossy_first,
        "is lossy: no double holds it, so its key would be ambiguous", err);
}
