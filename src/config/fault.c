/* Collects faults, and shows them the way compilers do. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "config/impl.h"

enum { FAULT_TEXT_BYTES_MAX = 512, SOURCE_SHOWN_MAX = 120 }; /* of a line; the rest is cut */

const char *config_text(struct config *config, struct slice text)
{
    char *copy = arena_alloc(&config->arena, text.len + 1);
    if (copy == NULL) {
        return NULL;
    }
    memcpy(copy, text.data == NULL ? "" : text.data, text.len);
    copy[text.len] = '\0';
    return copy;
}

/* A file may contain any bytes, but a message on a terminal must have no control characters. */
static void make_printable(char *text)
{
    for (; *text != '\0'; text++) {
        *text = (unsigned char)*text < ' ' || *text == 127 ? '?' : *text;
    }
}

void config_fault_add(struct config *config, struct config_faults *faults,
    const struct config_fault *fault, const char *format, ...)
{
    char text[FAULT_TEXT_BYTES_MAX];
    if (faults->count == CONFIG_FAULTS_MAX) {
        faults->more++;
        return;
    }
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    make_printable(text);
    struct config_fault *kept = &faults->items[faults->count++];
    *kept = *fault;
    kept->text = config_text(config, slice_str(text));
    kept->hint = fault->hint == NULL ? NULL : config_text(config, slice_str(fault->hint));
    /* Faults outlive the file's text. */
    kept->source = slice_str(config_text(config, fault->source));
    /* Without memory the fault still counts, and its place is reported. */
    kept->text = kept->text == NULL ? "out of memory" : kept->text;
}

struct slice source_line(struct slice text, unsigned line)
{
    size_t at = 0;
    while (line > 1 && at < text.len) {
        const char *end = memchr(text.data + at, '\n', text.len - at);
        at = end == NULL ? text.len : (size_t)(end - text.data) + 1;
        line--;
    }
    struct slice rest = slice_of(text.data == NULL ? NULL : text.data + at, text.len - at);
    const char *end = rest.len == 0 ? NULL : memchr(rest.data, '\n', rest.len);
    rest.len = end == NULL ? rest.len : (size_t)(end - rest.data);
    rest.len -= rest.len > 0 && rest.data[rest.len - 1] == '\r';
    return rest;
}

void config_fault_at(struct config *config, struct config_faults *faults,
    const struct config_place *place, const char *hint, const char *format, ...)
{
    char text[FAULT_TEXT_BYTES_MAX];
    struct config_fault fault = {.line = place->line,
        .column = place->column,
        .source = source_line(config->source, place->line),
        .hint = hint};
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    config_fault_add(config, faults, &fault, "%s", text);
}

/* A fault or a warning about a place of the file. */
static void add_at(struct config_reader *reader, const struct yaml_node *place, const char *hint,
    bool is_warning, const char *format, va_list args)
{
    char text[FAULT_TEXT_BYTES_MAX];
    struct config_fault fault = {.line = place->line,
        .column = place->column,
        .hint = hint,
        .source = source_line(reader->text, place->line),
        .is_warning = is_warning};
    (void)vsnprintf(text, sizeof text, format, args);
    config_fault_add(reader->config, is_warning ? &reader->config->warnings : reader->faults,
        &fault, "%s", text);
}

void reader_fault(struct config_reader *reader, const struct yaml_node *place, const char *hint,
    const char *format, ...)
{
    va_list args;
    va_start(args, format);
    add_at(reader, place, hint, false, format, args);
    va_end(args);
}

void reader_warn(struct config_reader *reader, const struct yaml_node *place, const char *hint,
    const char *format, ...)
{
    va_list args;
    va_start(args, format);
    add_at(reader, place, hint, true, format, args);
    va_end(args);
}

/* Show the line and a caret under the column. Both are cut on the left if the place is far
 * right. */
static void put_source(struct buf *out, struct slice source, unsigned column)
{
    size_t at = 0;     /* first byte of the line that is shown */
    unsigned skip = 0; /* characters before it */
    while (column - skip > SOURCE_SHOWN_MAX / 2 && at < source.len) {
        at++;
        while (at < source.len && ((unsigned char)source.data[at] & 0xC0U) == 0x80U) {
            at++;
        }
        skip++;
    }
    struct slice shown = slice_of(source.data + at, source.len - at);
    size_t len = shown.len < SOURCE_SHOWN_MAX ? shown.len : SOURCE_SHOWN_MAX;
    while (len > 0 && len < shown.len && ((unsigned char)shown.data[len] & 0xC0U) == 0x80U) {
        len--;
    }
    buf_str(out, "    ");
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)shown.data[i];
        buf_char(out, c < ' ' || c == 127 ? ' ' : shown.data[i]);
    }
    buf_printf(out, "\n    %*s^\n", (int)(column - skip - 1), "");
}

void config_fault_put(struct buf *out, const char *name, const struct config_fault *fault)
{
    if (fault->line > 0) {
        name = fault->file != NULL ? fault->file : name;
        buf_printf(out, "%s:%u:%u: %s%s\n", name == NULL ? "-" : name, fault->line, fault->column,
            fault->is_warning ? "warning: " : "", fault->text);
        if (fault->source.len > 0) {
            put_source(out, fault->source, fault->column);
        }
    } else {
        buf_printf(out, "once: %s\n", fault->text);
    }
    if (fault->hint != NULL) {
        buf_printf(out, "hint: %s\n", fault->hint);
    }
}
