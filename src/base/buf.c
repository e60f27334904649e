#include "base/buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/text.h"

enum { BUF_FIRST_BYTES = 256 }; /* the first allocation; most small texts fit */

void buf_init(struct buf *buf, const struct mem *mem, size_t bytes_max)
{
    *buf = (struct buf){.mem = mem, .max = bytes_max, .status = OK};
}

void buf_release(struct buf *buf)
{
    if (buf != NULL && buf->mem != NULL) {
        mem_free(buf->mem, buf->data);
        *buf = (struct buf){.mem = buf->mem, .max = buf->max};
    }
}

void buf_clear(struct buf *buf)
{
    buf->len = 0;
    buf->status = OK;
}

enum status buf_reserve(struct buf *buf, size_t size)
{
    ASSERT(buf->len <= buf->cap);
    if (buf->status != OK) {
        return buf->status;
    }
    if (size <= buf->cap - buf->len) {
        return OK;
    }
    if (size > buf->max - buf->len) {
        buf->status = E_LIMIT;
        return E_LIMIT;
    }
    size_t need = buf->len + size;
    size_t cap = buf->cap < BUF_FIRST_BYTES ? BUF_FIRST_BYTES : buf->cap;
    while (cap < need) {
        cap = cap > buf->max / 2 ? buf->max : cap * 2;
    }
    cap = cap > buf->max ? buf->max : cap;
    char *data = mem_resize(buf->mem, buf->data, cap);
    if (data == NULL) {
        buf->status = E_NOMEM;
        return E_NOMEM;
    }
    buf->data = data;
    buf->cap = cap;
    return OK;
}

void buf_append_slow(struct buf *buf, const void *data, size_t size)
{
    if (size == 0) {
        return;
    }
    char *place = buf_extend(buf, size);
    if (place != NULL) {
        memcpy(place, data, size);
    }
}

void buf_printf(struct buf *buf, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    va_list again;
    va_copy(again, args);
    int need = vsnprintf(NULL, 0, format, args);
    va_end(args);
    ASSERT(need >= 0);

    /* One byte more than is kept, for vsnprintf's terminator. */
    if (buf_reserve(buf, (size_t)need + 1) == OK) {
        (void)vsnprintf(buf->data + buf->len, (size_t)need + 1, format, again);
        buf->len += (size_t)need;
    }
    va_end(again);
}

void buf_u64(struct buf *buf, uint64_t value)
{
    static const char pairs[] = "00010203040506070809101112131415161718192021222324"
                                "25262728293031323334353637383940414243444546474849"
                                "50515253545556575859606162636465666768697071727374"
                                "75767778798081828384858687888990919293949596979899";
    char digits[20];
    size_t at = sizeof digits;
    while (value >= 10) { /* two digits at a time, because division is slow */
        at -= 2;
        memcpy(digits + at, pairs + 2 * (value % 100), 2);
        value /= 100;
    }
    if (value > 0 || at == sizeof digits) {
        digits[--at] = (char)('0' + value);
    }
    buf_append(buf, digits + at, sizeof digits - at);
}

void buf_i64(struct buf *buf, int64_t value)
{
    if (value < 0) {
        buf_char(buf, '-');
        buf_u64(buf, (uint64_t)0 - (uint64_t)value);
    } else {
        buf_u64(buf, (uint64_t)value);
    }
}

void buf_le32(struct buf *buf, uint32_t value)
{
    unsigned char bytes[4];
    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = (unsigned char)(value >> (8 * i));
    }
    buf_append(buf, bytes, sizeof bytes);
}

void buf_le64(struct buf *buf, uint64_t value)
{
    unsigned char bytes[8];
    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = (unsigned char)(value >> (8 * i));
    }
    buf_append(buf, bytes, sizeof bytes);
}

void buf_hex(struct buf *buf, const void *data, size_t size)
{
    char *place = buf_extend(buf, size * 2);
    if (place != NULL) {
        text_put_hex_digits(place, data, size);
    }
}

enum status buf_status(const struct buf *buf)
{
    return buf->status;
}

struct slice buf_view(const struct buf *buf)
{
    return slice_of(buf->data, buf->len);
}
