/*
 * buf: a growing byte buffer with a maximum size.
 *
 * Promises:  never grows past its maximum. A failed append is sticky: later appends do nothing, and
 *            buf_status returns the failure, so that encoders check once at the end.
 * Ownership: owns its bytes until buf_release.
 */
#ifndef ONCE_BASE_BUF_H
#define ONCE_BASE_BUF_H

#include <stdbool.h>
#include <stdint.h>

#include "base/mem.h"
#include "base/slice.h"
#include "base/status.h"

struct buf {
    const struct mem *mem; /* where growth comes from */
    char *data;            /* the bytes; NULL while empty */
    size_t len;            /* bytes in use */
    size_t cap;            /* bytes allocated */
    size_t max;            /* bytes it may ever hold */
    enum status status;    /* OK, E_NOMEM or E_LIMIT; sticky until cleared */
};

void buf_init(struct buf *buf, const struct mem *mem, size_t bytes_max);
void buf_release(struct buf *buf);
/* Forget the content and any failure, keep the memory. */
void buf_clear(struct buf *buf);
/* Makes sure that size more bytes fit without a further allocation. */
enum status buf_reserve(struct buf *buf, size_t size) MUST_CHECK;
/* The slow path of buf_append, which callers use: grows the buffer. */
void buf_append_slow(struct buf *buf, const void *data, size_t size);
void buf_printf(struct buf *buf, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Decimal, without going through printf. */
void buf_u64(struct buf *buf, uint64_t value);
void buf_i64(struct buf *buf, int64_t value);
/* Little-endian, for on-disk formats. */
void buf_le32(struct buf *buf, uint32_t value);
void buf_le64(struct buf *buf, uint64_t value);
/* Lower-case hex. */
void buf_hex(struct buf *buf, const void *data, size_t size);
enum status buf_status(const struct buf *buf) MUST_CHECK;
struct slice buf_view(const struct buf *buf);

/* Inline, because evidence and records are written a few bytes at a time: with a constant text only
 * a comparison and a store remain. */
static inline void buf_append(struct buf *buf, const void *data, size_t size)
{
    if (buf->status != OK || size > buf->cap - buf->len) {
        buf_append_slow(buf, data, size);
    } else if (size > 0) {
        memcpy(buf->data + buf->len, data, size);
        buf->len += size;
    }
}

/* Room for size more bytes, which count as appended; NULL on a (sticky) failure. */
static inline char *buf_extend(struct buf *buf, size_t size)
{
    bool fits = buf->status == OK && size <= buf->cap - buf->len;
    if (!fits && buf_reserve(buf, size) != OK) {
        return NULL;
    }
    buf->len += size;
    return buf->data + buf->len - size;
}

static inline void buf_slice(struct buf *buf, struct slice slice)
{
    buf_append(buf, slice.data, slice.len);
}

static inline void buf_str(struct buf *buf, const char *text)
{
    buf_append(buf, text, strlen(text));
}

static inline void buf_char(struct buf *buf, char c)
{
    buf_append(buf, &c, 1);
}

#endif
