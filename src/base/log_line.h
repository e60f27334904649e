/*
 * log_line: one line of the log, made of its fields.
 *
 * Promises:  pure. Whatever bytes go in, a JSON line is one valid JSON object and a human line has
 *            no control character except its own colours; both end with their only line feed. A
 *            field that does not fit is cut between two characters, and the line has
 *            "truncated":true.
 * Does not:  know who reads it; log.h has the ring and the thread.
 */
#ifndef ONCE_BASE_LOG_LINE_H
#define ONCE_BASE_LOG_LINE_H

#include "base/log.h"

/* What one line is made of. */
struct log_parts {
    enum log_level level;
    const char *event;
    const struct log_field *fields;
    size_t count;
    int64_t wall_ms; /* when */
};

/* The bytes of the line, its line feed included; at most LOG_LINE_BYTES_MAX. */
size_t log_line_json(char ret_line[LOG_LINE_BYTES_MAX], const struct log_parts *parts);
size_t log_line_human(
    char ret_line[LOG_LINE_BYTES_MAX], const struct log_parts *parts, bool is_coloured);

const char *log_level_name(enum log_level level);

#endif
