/*
 * jsonw: writes JSON into a buffer, member by member.
 *
 * Promises:  what comes out is valid JSON, whatever bytes go in: those that are not UTF-8 become a
 *            member "<name>_base64". Failures stick in the buffer, so only the end is checked.
 * Does not:  sort members or find doubled ones; names are the program's own and need no escaping.
 */
#ifndef ONCE_CANON_JSONW_H
#define ONCE_CANON_JSONW_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/slice.h"
#include "canon/digest.h"

/* A JSON text being written into a buffer. Zero all members except out before use. */
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
/* In hex; nothing when all of it is 0. */
void jsonw_digest_some(struct jsonw *json, const char *name, const struct digest *digest);
/* Nothing when the slice is empty. */
void jsonw_bytes_some(struct jsonw *json, const char *name, struct slice bytes);
void jsonw_raw_some(struct jsonw *json, const char *name, struct slice value);

#endif
