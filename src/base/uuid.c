#include "base/uuid.h"

#include <string.h>

#include "base/check.h"
#include "base/macros.h"
#include "base/rand.h"
#include "base/text.h"

static const size_t groups[] = {4, 2, 2, 2, 6}; /* bytes between the dashes */

/* RFC 9562 sections 4.1 and 4.2. */
static void set_version(unsigned char bytes[UUID_BYTES], unsigned version)
{
    bytes[6] = (unsigned char)((bytes[6] & 0x0fU) | version << 4);
    bytes[8] = (unsigned char)((bytes[8] & 0x3fU) | 0x80U);
}

void uuid_v4(unsigned char bytes[UUID_BYTES])
{
    set_version(bytes, 4);
}

void uuid_v7(unsigned char bytes[UUID_BYTES], int64_t wall_ms)
{
    for (unsigned i = 0; i < 6; i++) {
        bytes[i] = (unsigned char)((uint64_t)wall_ms >> (40 - 8 * i));
    }
    set_version(bytes, 7);
}

static void put_v4(char ret_text[UUID_TEXT_BYTES], unsigned char bytes[UUID_BYTES])
{
    uuid_v4(bytes);
    (void)uuid_put(ret_text, bytes);
}

enum status uuid_new(char ret_text[UUID_TEXT_BYTES], struct err *err)
{
    unsigned char bytes[UUID_BYTES];
    enum status status = rand_bytes(bytes, sizeof bytes, err);
    if (status == OK) {
        put_v4(ret_text, bytes);
    }
    return status;
}

enum status uuid_new_name(char ret_text[UUID_TEXT_BYTES], struct err *err)
{
    unsigned char bytes[UUID_BYTES];
    enum status status = rand_names(bytes, sizeof bytes, err);
    if (status == OK) {
        put_v4(ret_text, bytes);
    }
    return status;
}

char *uuid_put(char ret_text[UUID_TEXT_BYTES], const unsigned char bytes[UUID_BYTES])
{
    /* Converts all digits at once and then splits them, which is faster: every entry of the
     * evidence has a UUID or two. */
    char digits[2 * UUID_BYTES];
    text_put_hex_digits(digits, bytes, UUID_BYTES);
    memcpy(ret_text, digits, 8);
    memcpy(ret_text + 9, digits + 8, 4);
    memcpy(ret_text + 14, digits + 12, 4);
    memcpy(ret_text + 19, digits + 16, 4);
    memcpy(ret_text + 24, digits + 20, 12);
    ret_text[8] = ret_text[13] = ret_text[18] = ret_text[23] = '-';
    ret_text[UUID_TEXT_BYTES - 1] = '\0';
    return ret_text;
}

bool uuid_read(struct slice text, unsigned char ret_bytes[UUID_BYTES])
{
    unsigned char bytes[UUID_BYTES];
    unsigned char *to = bytes;
    const char *at = text.data;
    if (text.len != UUID_TEXT_BYTES - 1) {
        return false;
    }
    for (size_t i = 0; i < COUNT(groups); i++) {
        if ((i > 0 && *at++ != '-') || !text_hex(slice_of(at, 2 * groups[i]), to, groups[i])) {
            return false;
        }
        to += groups[i];
        at += 2 * groups[i];
    }
    memcpy(ret_bytes, bytes, sizeof bytes);
    return true;
}
