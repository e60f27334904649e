#include "client/uuid.h"

#include <stddef.h>
#include <string.h>

#include "base/check.h"
#include "base/text.h"

/* Set version and variant, and write 8-4-4-4-12 digits. */
static void put(char *ret_text, unsigned char bytes[CLIENT_UUID_BYTES], unsigned version)
{
    static const size_t groups[] = {4, 2, 2, 2, 6};
    bytes[6] = (unsigned char)((bytes[6] & 0x0fU) | version << 4);
    bytes[8] = (unsigned char)((bytes[8] & 0x3fU) | 0x80U);
    const unsigned char *from = bytes;
    char *at = ret_text;
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
        (void)text_put_hex(at, from, groups[i]);
        from += groups[i];
        at += 2 * groups[i];
        *at++ = '-';
    }
    *--at = '\0';
    ASSERT(at == ret_text + CLIENT_UUID_SIZE - 1);
}

void client_uuid4(char ret_text[CLIENT_UUID_SIZE], const unsigned char random[CLIENT_UUID_BYTES])
{
    unsigned char bytes[CLIENT_UUID_BYTES];
    memcpy(bytes, random, sizeof bytes);
    put(ret_text, bytes, 4);
}

void client_uuid7(
    char ret_text[CLIENT_UUID_SIZE], const unsigned char random[CLIENT_UUID_BYTES], int64_t wall_ms)
{
    unsigned char bytes[CLIENT_UUID_BYTES];
    memcpy(bytes, random, sizeof bytes);
    for (unsigned i = 0; i < 6; i++) {
        bytes[i] = (unsigned char)((uint64_t)wall_ms >> (40 - 8 * i));
    }
    put(ret_text, bytes, 7);
}
