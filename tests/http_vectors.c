#include "http_vectors.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/text.h"

enum { VECTOR_BYTES_MAX = 1 << 20 };

void vector_init(struct vector *vector)
{
    *vector = (struct vector){.verdict = ""};
    buf_init(&vector->bytes, &mem_libc, VECTOR_BYTES_MAX);
    buf_init(&vector->expected, &mem_libc, VECTOR_BYTES_MAX);
    buf_init(&vector->body, &mem_libc, VECTOR_BYTES_MAX);
}

void vector_release(struct vector *vector)
{
    buf_release(&vector->bytes);
    buf_release(&vector->expected);
    buf_release(&vector->body);
}

static void unescape(struct slice text, struct buf *out);

/* "{N:text}" behind a backslash; returns how many bytes that is. */
static size_t repeat(struct slice text, struct buf *out)
{
    const char *colon = memchr(text.data, ':', text.len);
    const char *end = memchr(text.data, '}', text.len);
    uint64_t count;
    ASSERT(colon != NULL && end != NULL && colon < end);
    ASSERT(text_u64(slice_of(text.data + 1, (size_t)(colon - text.data) - 1), &count));
    while (count-- > 0) {
        unescape(slice_of(colon + 1, (size_t)(end - colon) - 1), out);
    }
    return (size_t)(end - text.data) + 1;
}

static void unescape(struct slice text, struct buf *out)
{
    for (size_t i = 0; i < text.len; i++) {
        if (text.data[i] != '\\') {
            buf_char(out, text.data[i]);
            continue;
        }
        ASSERT(++i < text.len);
        unsigned char byte;
        switch (text.data[i]) {
        case 'r': buf_char(out, '\r'); break;
        case 'n': buf_char(out, '\n'); break;
        case 't': buf_char(out, '\t'); break;
        case '0': buf_char(out, '\0'); break;
        case '\\': buf_char(out, '\\'); break;
        case 'x':
            ASSERT(text.len - i > 2 && text_hex(slice_of(text.data + i + 1, 2), &byte, 1));
            buf_char(out, (char)byte);
            i += 2;
            break;
        case '{': i += repeat(slice_of(text.data + i, text.len - i), out) - 1; break;
        default: ASSERT(!"an escape of a vector");
        }
    }
}

static struct slice line_next(struct slice *text)
{
    const char *end = memchr(text->data, '\n', text->len);
    size_t len = end == NULL ? text->len : (size_t)(end - text->data);
    struct slice line = slice_of(text->data, len);
    size_t taken = end == NULL ? len : len + 1;
    *text = slice_of(text->data + taken, text->len - taken);
    return line;
}

/* "=== VERDICT NAME" */
static void take_title(struct slice line, struct vector *vector)
{
    struct slice rest = slice_of(line.data + 4, line.len - 4);
    const char *space = memchr(rest.data, ' ', rest.len);
    ASSERT(space != NULL);
    size_t len = (size_t)(space - rest.data);
    ASSERT(len < sizeof vector->verdict);
    memcpy(vector->verdict, rest.data, len);
    vector->verdict[len] = '\0';
    vector->name = slice_of(space + 1, rest.len - len - 1);
    vector->given = SLICE_EMPTY;
    buf_clear(&vector->bytes);
    buf_clear(&vector->expected);
    buf_clear(&vector->body);
}

static void take_line(struct slice line, struct vector *vector)
{
    if (line.len < 2) {
        return;
    }
    struct slice rest = slice_of(line.data + 2, line.len - 2);
    switch (line.data[0]) {
    case '#': break;
    case '|': unescape(rest, &vector->bytes); break;
    case '>': unescape(rest, &vector->expected); break;
    case '<': unescape(rest, &vector->body); break;
    case '?': vector->given = rest; break;
    default: ASSERT(!"a line of a vector");
    }
}

bool vector_next(struct slice *text, struct vector *ret_vector)
{
    bool found = false;
    while (text->len > 0) {
        struct slice rest = *text;
        struct slice line = line_next(&rest);
        bool is_title = line.len > 4 && memcmp(line.data, "=== ", 4) == 0;
        if (is_title && found) {
            break;
        }
        *text = rest;
        if (is_title) {
            take_title(line, ret_vector);
            found = true;
        } else {
            take_line(line, ret_vector);
        }
    }
    return found;
}
