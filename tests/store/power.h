/*
 * power: an io that records what reaches the disk, and the images that a power loss would leave.
 *
 * Calls are passed on to the machine (flushes are only noted, for speed). An image is what may be
 * on the disk when power is lost behind the first n calls: writes that were flushed are there; of
 * those that were not, any subset of 512-byte sectors is; names that were flushed with their
 * directory are there; of the later ones some first part is.
 *
 * Does not: model a disk that loses what it said was flushed (that is `honest` false, the control).
 */
#ifndef ONCE_TESTS_STORE_POWER_H
#define ONCE_TESTS_STORE_POWER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/io.h"

struct power;

/* Everything under root is recorded; it must exist and be empty. */
struct power *power_new(const char *root);
void power_free(struct power *power);
/* Hand this to what is to be recorded. */
const struct io *power_io(struct power *power);
/* Remember that at this point the outside was told something. */
void power_mark(struct power *power, uint64_t value);

/* How many calls were recorded that change something. */
uint64_t power_calls(const struct power *power);

struct power_image {
    uint64_t calls; /* power is lost behind so many */
    uint64_t seed;  /* decides what of the unflushed is there */
    bool honest;    /* false: flushes did nothing */
};

/* Make the image in the directory to, in place of what is there. Returns the last mark before. */
uint64_t power_make(struct power *power, const struct power_image *image, const char *to);

/* The machine's calls without flushes, for looking at an image quickly. */
extern const struct io power_io_fast;

#endif
