/*
 * bench: what the benchmark programs share: arguments, rounds, figures, one line of JSON a result.
 *
 * A program takes name=value arguments, tells its progress on stderr, and prints one struct
 * bench_row a line on stdout, which bench/run makes a table of. What goes wrong ends the program:
 * a figure from a run that failed is worth nothing.
 */
#ifndef ONCE_BENCH_BENCH_H
#define ONCE_BENCH_BENCH_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/err.h"

enum {
    BENCH_ROUNDS_MAX = 1001, /* more than anybody waits for */
    BENCH_PATH_MAX = 4096,
};

/* ---- arguments ----------------------------------------------------------------------------- */

/* The value of name=value, or otherwise when it was not given. */
const char *bench_text(int argc, char **argv, const char *name, const char *otherwise);
double bench_number(int argc, char **argv, const char *name, double otherwise);
/* rounds=N, between 1 and BENCH_ROUNDS_MAX. */
size_t bench_rounds(int argc, char **argv, size_t otherwise);

/* End the program unless the status is OK. */
void bench_must(enum status status, const struct err *err, const char *what);
/* The same for system calls: 0 or more is fine, otherwise errno says why. */
void bench_must_errno(int64_t result, const char *what);
_Noreturn void bench_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
void bench_progress(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---- figures ------------------------------------------------------------------------------- */

/* Seconds of processor time of all threads so far. */
double bench_cpu_s(void);
/* Bytes of this process that are in memory now, without those of files. */
uint64_t bench_resident_bytes(void);
/* Sorts the values. */
double bench_median(double *values, size_t count);

/* How long things took, to three percent. */
struct bench_times {
    uint64_t count;
    uint32_t slots[64 * 32];
};

void bench_times_add(struct bench_times *times, uint64_t nanos);
/* Microseconds that this part (0.5, 0.99, …) of them stayed within. */
double bench_times_us(const struct bench_times *times, double part);

/* ---- places -------------------------------------------------------------------------------- */

/* base/name, freshly made and empty. */
void bench_dir_make(char ret_path[BENCH_PATH_MAX], const char *base, const char *name);
/* With everything in it; nothing happens when it is not there. */
void bench_dir_remove(const char *path);

/* ---- results ------------------------------------------------------------------------------- */

enum bench_better { BENCH_INFO, BENCH_AT_LEAST, BENCH_AT_MOST };

/* One line of the table. */
struct bench_row {
    const char *id;           /* "B4"; docs/benchmarks.md has it */
    const char *what;         /* was measured */
    double figure;            /* the median */
    const char *unit;         /* "calls/s" */
    const char *compared;     /* with what; NULL: with nothing */
    double compared_figure;   /* its median, same unit */
    double *ratios;           /* of the rounds; sorted by bench_report; NULL: there are none */
    size_t rounds;            /* of these */
    enum bench_better better; /* which side of the bar is good */
    double bar;               /* for the ratio, or for the figure when there is no ratio */
    const char *detail;       /* further members of a JSON object, without braces; NULL: none */
};

void bench_report(const struct bench_row *row);
/* This one could not be measured here, and why. */
void bench_skip(const char *id, const char *what, const char *why);

#endif
