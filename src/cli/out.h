/*
 * out: standard output, and JSON on it.
 *
 * Promises:  a write that fails (a closed pipe, a full disk) is noticed at out_finish at latest.
 *            JSON is always valid: bytes that are not UTF-8 become a member "<name>_base64".
 */
#ifndef ONCE_CLI_OUT_H
#define ONCE_CLI_OUT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/slice.h"

void out_text(const char *format, ...) __attribute__((format(printf, 1, 2)));
void out_bytes(struct slice bytes);
/* Flush; 0, or CLI_IO with the message written. Safe to call again. */
int out_finish(void);
/* A failure has been seen already: there is nobody left to write for. */
bool out_broken(void);

/* Whether to use colour: a terminal, and NO_COLOR not set. */
bool out_colour(void);

enum tint { TINT_GOOD, TINT_WARN, TINT_BAD, TINT_FAINT, TINT_BOLD };
/* The escape that starts a tint, or "" without colour. */
const char *out_tint(enum tint tint);
const char *out_plain(void);

/* A JSON text being written into a buffer. Zeroed but for out, it is ready. */
struct jsonw {
    struct buf *out;
    bool comma; /* the next value needs one */
};

/* name is NULL inside arrays and at the top. */
void jsonw_open(struct jsonw *json, const char *name, char bracket);
void jsonw_close(struct jsonw *json, char bracket);
void jsonw_bytes(struct jsonw *json, const char *name, struct slice bytes);
void jsonw_str(struct jsonw *json, const char *name, const char *text);
/* Nothing when the text is NULL or empty. */
void jsonw_str_some(struct jsonw *json, const char *name, const char *text);
void jsonw_u64(struct jsonw *json, const char *name, uint64_t value);
void jsonw_i64(struct jsonw *json, const char *name, int64_t value);
void jsonw_real(struct jsonw *json, const char *name, double value);
void jsonw_bool(struct jsonw *json, const char *name, bool value);
/* RFC 3339; nothing when 0. */
void jsonw_time(struct jsonw *json, const char *name, int64_t ms);
/* A value that is JSON already. */
void jsonw_raw(struct jsonw *json, const char *name, struct slice value);
/* The text and a newline to standard output. 0, or an exit code with the message written. */
int jsonw_print(struct jsonw *json);

#endif
