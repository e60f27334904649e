/*
 * demo: plays what examples/demo.c describes, and counts.
 */
#ifndef ONCE_EXAMPLES_DEMO_H
#define ONCE_EXAMPLES_DEMO_H

#include <once/once.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct demo_options {
    const char *store; /* URL */
    size_t orders;     /* at least 1 */
    uint64_t seed;     /* of everything that goes wrong */
    FILE *progress;    /* a terminal to show it on; NULL: not shown */
};

struct demo_figure {
    const char *title;
    const char *member; /* its name in JSON */
    unsigned long value;
};
enum { DEMO_FIGURES = 12 };

struct demo_result {
    struct demo_figure figures[DEMO_FIGURES]; /* the last one: double charges */
    bool is_right;                            /* every order was charged, and none twice */
};

/* ONCE_OK, or what the library said first, which is in *error. */
int demo_play(
    const struct demo_options *options, struct demo_result *ret_result, struct once_error *error);

#endif
