/*
 * out: standard output, and JSON on it.
 *
 * Promises:  a write that fails (a closed pipe, a full disk) is noticed at the latest by
 *            out_finish.
 */
#ifndef ONCE_CLI_OUT_H
#define ONCE_CLI_OUT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/slice.h"
#include "canon/jsonw.h"

void out_text(const char *format, ...) __attribute__((format(printf, 1, 2)));
void out_bytes(struct slice bytes);
/* Flush; 0, or CLI_IO after writing the message. May be called again. */
int out_finish(void);
/* The same for a listing or a text that can be printed again: a reader that has left, as with `once
 * ls | head`, has seen enough, so this is not a failure. Not for output that would be lost. */
int out_finish_listing(void);
/* Whether a write has failed: nobody reads the output any more. */
bool out_broken(void);

/* Whether to use colour: a terminal that is not dumb, and NO_COLOR not set. */
bool out_colour(void);

enum tint { TINT_GOOD, TINT_WARN, TINT_BAD, TINT_FAINT, TINT_BOLD };
/* The escape that starts a tint, or "" without colour. */
const char *out_tint(enum tint tint);
const char *out_plain(void);

/* A count with its unit: "1 entry", "2 entries". The text of COUNTED is valid in the block around
 * it. */
enum { OUT_COUNT_BYTES = 64 };
const char *out_counted(
    char ret_text[OUT_COUNT_BYTES], uint64_t count, const char *one, const char *many);
#define COUNTED(count, one, many) out_counted((char[OUT_COUNT_BYTES]){0}, count, one, many)

/* Print the text and a newline. 0, or an exit code after writing the message. */
int jsonw_print(struct jsonw *json);

/* A JSON object for standard output. */
struct out_json {
    struct buf bytes;
    struct jsonw json;
};
/* Open the object, of at most that many bytes; write members to the result. */
struct jsonw *out_json_begin(struct out_json *whole, size_t bytes_max);
/* Close, print and wipe it. 0, or an exit code after writing the message. */
int out_json_end(struct out_json *whole);

#endif
