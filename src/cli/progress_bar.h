/*
 * progress_bar: a progress bar on standard error if that is a terminal. Otherwise nothing is
 * written, or a line now and then if the caller asks for it.
 */
#ifndef ONCE_CLI_PROGRESS_BAR_H
#define ONCE_CLI_PROGRESS_BAR_H

#include <stdbool.h>
#include <stdint.h>

enum { BAR_LINE_S = 10 }; /* a log of an hour's work has some hundred lines */

struct bar {
    uint64_t start_ns; /* when the measured work began */
    uint64_t shown_ns; /* when it was last drawn; 0: never */
    bool is_shown;     /* standard error is a terminal */
    bool counts;       /* set by the caller: what is done is a number of things, not of bytes */
    bool in_lines;     /* set by the caller: without a terminal, a line every BAR_LINE_S seconds */
};

void bar_init(struct bar *bar);
/* Seconds since bar_init, greater than 0. */
double bar_seconds(const struct bar *bar);
/* Draw it, at most ten times a second: "[####  ]  40%  TEXT  12 MiB/s". */
void bar_draw(struct bar *bar, uint64_t bytes_done, uint64_t bytes_total, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Remove it from the screen before anything else is written. */
void bar_clear(struct bar *bar);

#endif
