#include "base/percent.h"

#include "base/text.h"

static bool is_unreserved(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '-' ||
           c == '_' || c == '.' || c == '~';
}

char *percent_put(char *to, char byte)
{
    static const char digits[] = "0123456789ABCDEF";
    if (is_unreserved(byte)) {
        *to++ = byte;
        return to;
    }
    *to++ = '%';
    *to++ = digits[(unsigned char)byte >> 4];
    *to++ = digits[(unsigned char)byte & 15];
    return to;
}

void percent_append(struct buf *out, struct slice text)
{
    for (size_t i = 0; i < text.len; i++) {
        char encoded[PERCENT_BYTES_MAX];
        buf_append(out, encoded, (size_t)(percent_put(encoded, text.data[i]) - encoded));
    }
}

bool percent_read(struct slice text, char *ret_byte)
{
    return text.len >= PERCENT_BYTES_MAX && text.data[0] == '%' &&
           text_hex(slice_of(text.data + 1, 2), ret_byte, 1);
}
