/*
 * backlog: how many commands, effects and deliveries are pending, unknown or dead letters, and
 * since when the oldest, by scope and tenant. For the metrics.
 *
 * Embedded store: all changes are made by this process, and are counted as they are committed
 * (backlog_change). Records from before the start are found by backlog_read, a page at a time.
 * Shared store: the store reports the figures of one kind at a time (store_ops.backlog), from a
 * bounded number of records; they replace those from before (backlog_begin, backlog_put,
 * backlog_end).
 *
 *   BL1 a line is never freed or renamed, so a record leaves the line that it was added to.
 *   BL2 there are at most BACKLOG_LINES_MAX lines; what has none is counted in the line "other" of
 *       its kind.
 *   BL3 while records are looked for, a record counts if its status was looked for up to its key.
 *
 * Threads: any, under its own lock.
 */
#ifndef ONCE_ENGINE_BACKLOG_H
#define ONCE_ENGINE_BACKLOG_H

#include "store/store.h"

enum {
    BACKLOG_LINES_MAX = 2048, /* about what the metrics have labels for */
    BACKLOG_LOOKS_MAX = 4096, /* keys that one page passes … */
    BACKLOG_READS_MAX = 64,   /* … and records that it reads: below a millisecond */
};

/* The statuses that are counted. */
enum backlog_status { BACKLOG_PENDING, BACKLOG_UNKNOWN, BACKLOG_DEAD, BACKLOG_STATUSES };
enum record_status backlog_status(enum backlog_status status);

struct backlog;

/* Of one command, effect type or source of one tenant. */
struct backlog_line {
    enum record_kind kind;
    struct slice tenant; /* empty, like scope: what has no line of its own */
    struct slice scope;
    uint64_t counts[BACKLOG_STATUSES];
    int64_t since_ms[BACKLOG_STATUSES]; /* when the oldest was created (pending) or last changed
                                           (unknown, dead): exact, or earlier by less than its age
                                           (ages.h); 0: none */
};

/* NULL: out of memory. */
struct backlog *backlog_new(const struct mem *mem);
void backlog_free(struct backlog *backlog);

/* A commit has changed a record; before NULL: it was absent. For a kind that is not counted it does
 * nothing. Without memory for a new line, the record counts as "other". */
void backlog_change(
    struct backlog *backlog, const struct record *before, const struct record *after);
/* Reads the next records of an embedded store. *ret_done: there are no more. Fails as scan. */
enum status backlog_read(
    struct backlog *backlog, struct store *store, bool *ret_done, struct err *err) MUST_CHECK;

/* Replace the figures of a kind. */
void backlog_begin(struct backlog *backlog, enum record_kind kind);
void backlog_put(struct backlog *backlog, const struct store_backlog *line);
/* With what the store counts altogether: the rest is "other". */
void backlog_end(struct backlog *backlog, enum record_kind kind, const struct store_counts *counts);

/* Called with the lock held, for every line that ever counted something. */
typedef void (*backlog_visit)(void *context, const struct backlog_line *line);
void backlog_lines(struct backlog *backlog, backlog_visit visit, void *context);

#endif
