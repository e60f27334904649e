#include "base/log_line.h"

#include "base/check.h"
#include "base/scan.h"
#include "base/text.h"

enum {
    TAIL_BYTES = 64,      /* kept free for what closes a line that was cut */
    ESCAPED_BYTES_MAX = 6 /* \u001f; also the longest character */
};

/* A line being written. Once something does not fit, is_cut is set and nothing follows. */
struct line {
    char *start;
    char *at;
    char *end; /* of what fields may use; the tail comes after it */
    bool is_cut;
};

static struct line line_begin(char *start)
{
    return (struct line){
        .start = start, .at = start, .end = start + LOG_LINE_BYTES_MAX - TAIL_BYTES};
}

static size_t line_room(const struct line *line)
{
    return (size_t)(line->end - line->at);
}

/* All of it or nothing. */
static void put(struct line *line, const char *bytes, size_t size)
{
    if (line->is_cut || size > line_room(line)) {
        line->is_cut = true;
        return;
    }
    memcpy(line->at, bytes, size);
    line->at += size;
}

static void put_str(struct line *line, const char *text)
{
    put(line, text, strlen(text));
}

static void put_number(struct line *line, int64_t value)
{
    char digits[20];
    char *at = digits + sizeof digits;
    uint64_t left = value < 0 ? -(uint64_t)value : (uint64_t)value;
    do {
        *--at = (char)('0' + left % 10);
        left /= 10;
    } while (left > 0);
    if (value < 0) {
        *--at = '-';
    }
    put(line, at, (size_t)(digits + sizeof digits - at));
}

/* As much of a run as fits; each of its bytes is one character. */
static void put_run(struct line *line, const char *from, size_t size)
{
    size_t fits = size < line_room(line) ? size : line_room(line);
    put(line, from, fits);
    line->is_cut |= fits < size;
}

/* A byte that cannot stand in a JSON string as it is (RFC 8259 section 7). */
static void put_json_escaped(struct line *line, unsigned char c)
{
    static const char hex[] = "0123456789abcdef";
    char text[ESCAPED_BYTES_MAX] = {'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]};
    if (c == '"' || c == '\\') {
        text[1] = (char)c;
        put(line, text, 2);
    } else {
        put(line, text, sizeof text);
    }
}

/* Controls of ISO 6429 above ASCII, U+0080 to U+009F: a terminal may act on them. */
static bool is_high_control(const char *at, size_t size)
{
    return size == 2 && (unsigned char)at[0] == 0xC2 && (unsigned char)at[1] < 0xA0;
}

/* One character that is not plain ASCII; returns its length in bytes. */
static size_t put_non_ascii(struct line *line, const char *at, const char *end, bool is_human)
{
    unsigned char c = (unsigned char)*at;
    if (c < 0x80) {
        if (!is_human) {
            put_json_escaped(line, c);
        } else {
            put(line, c == '"' ? "'" : c == '\\' ? "\\" : "?", 1);
        }
        return 1;
    }
    size_t size = scan_utf8(at, end);
    if (size == 0 || (is_human && is_high_control(at, size))) {
        put_str(line, is_human ? "?" : "\xEF\xBF\xBD"); /* U+FFFD, the replacement character */
        return size == 0 ? 1 : size;
    }
    put(line, at, size);
    return size;
}

static void put_text(struct line *line, struct slice text, bool is_human)
{
    const char *at = text.len == 0 ? "" : text.data; /* an empty slice may have no data */
    const char *end = at + text.len;
    while (at < end && !line->is_cut) {
        const char *run = scan_ascii_run(at, end);
        const char *rub = is_human ? memchr(at, 0x7F, (size_t)(run - at)) : NULL; /* DEL */
        run = rub == NULL ? run : rub;
        put_run(line, at, (size_t)(run - at));
        at = run;
        if (at < end && rub == NULL) {
            at += put_non_ascii(line, at, end, is_human);
        } else if (rub != NULL) {
            put(line, "?", 1);
            at++;
        }
    }
}

const char *log_level_name(enum log_level level)
{
    switch (level) {
    case LOG_DEBUG: return "debug";
    case LOG_INFO: return "info";
    case LOG_WARN: return "warn";
    case LOG_ERROR: return "error";
    }
    return "error";
}

static bool is_left_out(const struct log_field *field)
{
    return !field->is_number && field->text.len == 0;
}

/* A member that does not fit at all is removed; a text may lose its end. */
static void put_member(struct line *line, const struct log_field *field)
{
    char *before = line->at;
    put_str(line, ",\"");
    put_text(line, slice_str(field->name), false);
    put_str(line, "\":");
    if (field->is_number) {
        put_number(line, field->number);
    } else {
        put_str(line, "\"");
    }
    if (line->is_cut) {
        line->at = before;
        return;
    }
    if (!field->is_number) {
        put_text(line, field->text, false);
        *line->at++ = '"'; /* the tail has room for it */
    }
}

/* The end of the line may use the bytes kept free for it. */
static size_t line_end(struct line *line, const char *cut, const char *close)
{
    bool is_cut = line->is_cut;
    line->end = line->start + LOG_LINE_BYTES_MAX;
    line->is_cut = false;
    if (is_cut) {
        put_str(line, cut);
    }
    put_str(line, close);
    ASSERT(!line->is_cut);
    return (size_t)(line->at - line->start);
}

size_t log_line_json(char ret_line[LOG_LINE_BYTES_MAX], const struct log_parts *parts)
{
    struct line line = line_begin(ret_line);
    char time[TEXT_TIME_BYTES];
    put_str(&line, "{\"time\":\"");
    put_str(&line, text_put_time(time, parts->wall_ms));
    put_str(&line, "\",\"level\":\"");
    put_str(&line, log_level_name(parts->level));
    put_str(&line, "\"");
    put_member(&line, &LOG_TEXT("event", slice_str(parts->event)));
    for (size_t i = 0; i < parts->count && !line.is_cut; i++) {
        if (!is_left_out(&parts->fields[i])) {
            put_member(&line, &parts->fields[i]);
        }
    }
    return line_end(&line, ",\"truncated\":true", "}\n");
}

static const char *colour_of(enum log_level level)
{
    switch (level) {
    case LOG_DEBUG: return "\033[2m";
    case LOG_INFO: return "\033[32m";
    case LOG_WARN: return "\033[33m";
    case LOG_ERROR: return "\033[31m";
    }
    return "";
}

/* A text with a space is quoted, so that its end is visible. */
static bool needs_quotes(struct slice text)
{
    return memchr(text.data, ' ', text.len) != NULL || memchr(text.data, '=', text.len) != NULL;
}

static void put_human_field(struct line *line, const struct log_field *field)
{
    put_str(line, " ");
    put_text(line, slice_str(field->name), true);
    put_str(line, "=");
    if (field->is_number) {
        put_number(line, field->number);
        return;
    }
    bool is_quoted = needs_quotes(field->text);
    put_str(line, is_quoted ? "\"" : "");
    put_text(line, field->text, true);
    put_str(line, is_quoted ? "\"" : "");
}

size_t log_line_human(
    char ret_line[LOG_LINE_BYTES_MAX], const struct log_parts *parts, bool is_coloured)
{
    struct line line = line_begin(ret_line);
    char time[TEXT_TIME_BYTES];
    put_str(&line, text_put_time(time, parts->wall_ms));
    put_str(&line, " ");
    put_str(&line, is_coloured ? colour_of(parts->level) : "");
    put_str(&line, log_level_name(parts->level));
    put_str(&line, is_coloured ? "\033[0m" : "");
    put_str(&line, strlen(log_level_name(parts->level)) < 5 ? "  " : " ");
    put_text(&line, slice_str(parts->event), true);
    for (size_t i = 0; i < parts->count && !line.is_cut; i++) {
        if (!is_left_out(&parts->fields[i])) {
            put_human_field(&line, &parts->fields[i]);
        }
    }
    return line_end(&line, " ...", "\n");
}
