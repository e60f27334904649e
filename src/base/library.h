/*
 * library: a shared library that is loaded when it is first needed.
 *
 * libpq and libcurl bring thirty other libraries with them. To map and relocate these takes longer
 * than the rest of a start, and most starts use neither. So nothing is linked with the two: a
 * header lists the functions that are called and gives each name to a pointer in a table.
 *
 * Promises:  a table is filled whole or not at all, and stays until the process ends.
 * Threads:   any; after library_load has returned OK in a thread, it may use the table.
 */
#ifndef ONCE_BASE_LIBRARY_H
#define ONCE_BASE_LIBRARY_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/macros.h"

struct library {
    const char *file;         /* the name by which the loader finds it, with its version */
    const char *package;      /* Debian's, that has it */
    const char *const *names; /* of its functions */
    size_t count;             /* of these */
    void *table;              /* a struct of pointers to these functions, in the same order */
    pthread_mutex_t lock;     /* over is_loaded and the filling */
    bool is_loaded;           /* the table is filled */
};

/* E_UNAVAILABLE: it is not installed, or is too old; the hint names the package. */
enum status library_load(struct library *library, struct err *err) MUST_CHECK;

/* For a list of functions, which is a macro that applies its argument to each name: a member of the
 * table, and a name. */
#define LIBRARY_MEMBER(name) __typeof__(name) *name;
#define LIBRARY_NAME(name)   #name,

#endif
