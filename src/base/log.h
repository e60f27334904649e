/*
 * log: one line per event, for machines or for people.
 *
 * If standard error is not a terminal, a line is JSON: {"time":"…","level":"info","event":"…", …}.
 * Otherwise it is a short human line. Only the doors and the command line log, each failure once.
 *
 * Promises:  never blocks and never fails its caller. Lines go into a bounded ring, which a
 *            separate thread writes out. If the reader is too slow, lines are dropped and counted,
 *            and the count is logged as soon as there is room. A line is written whole or not at
 *            all. For any input, a JSON line is valid JSON and a human line has no control
 *            characters.
 * Does not:  know what is secret: callers leave out payloads, tokens and outcomes.
 * Threads:   any.
 */
#ifndef ONCE_BASE_LOG_H
#define ONCE_BASE_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/slice.h"

struct log;

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };

enum { LOG_LINE_BYTES_MAX = 8 << 10, LOG_RING_BYTES = 4 << 20 }; /* 4 MiB: a second of a flood */

struct log_options {
    const struct mem *mem; /* NULL: the C library's */
    int fd;                /* where lines go; not closed */
    enum log_level level;  /* lines below it are not written */
    bool is_human;         /* for a terminal */
    bool is_coloured;
};

/* One member. An empty text is left out. */
struct log_field {
    const char *name;
    struct slice text; /* used when is_number is false */
    int64_t number;
    bool is_number;
};

#define LOG_TEXT(member, slice_value) ((struct log_field){.name = (member), .text = (slice_value)})
#define LOG_NUMBER(member, value)                                                                  \
    ((struct log_field){.name = (member), .number = (int64_t)(value), .is_number = true})

enum status log_new(
    const struct log_options *options, struct log **ret_log, struct err *err) MUST_CHECK;
/* Writes out what the reader takes within a second, then ends the thread. log may be NULL. */
void log_free(struct log *log);

/* log may be NULL. event is a short stable name such as "decision" or "reload_failed". */
void log_event(struct log *log, enum log_level level, const char *event,
    const struct log_field *fields, size_t count);
/* Whether a line of this level would be written, for callers that have to collect its fields. */
bool log_wants(const struct log *log, enum log_level level);
uint64_t log_dropped(const struct log *log);

#endif
