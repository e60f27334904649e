/*
 * digest: SHA-256 and HMAC-SHA256.
 *
 * Promises:  no allocation and no failure, so that neither has an error path; a digest of a few
 *            hundred bytes costs little more than its blocks.
 * Threads:   no shared state.
 */
#ifndef ONCE_CANON_DIGEST_H
#define ONCE_CANON_DIGEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/slice.h"

enum {
    DIGEST_BYTES = 32,                       /* SHA-256 */
    DIGEST_HEX_BYTES = 2 * DIGEST_BYTES + 1, /* lower-case hex and its terminator */
};

struct digest {
    unsigned char bytes[DIGEST_BYTES];
};

void digest_sha256(const void *data, size_t size, struct digest *ret);
/* Of two parts one after the other, as a hash chain needs it. */
void digest_sha256_2(const void *first, size_t first_size, const void *second, size_t second_size,
    struct digest *ret);
/* RFC 2104 over SHA-256. The key's own traces on the stack are wiped. */
void digest_hmac(
    const void *key, size_t key_size, const void *data, size_t size, struct digest *ret);
/* A key whose two blocks are hashed already: half the work for short data. As secret as the key. */
struct digest_hmac_key {
    uint32_t inner[DIGEST_BYTES / 4];
    uint32_t outer[DIGEST_BYTES / 4];
};
void digest_hmac_key_make(struct slice key, struct digest_hmac_key *ret_key);
void digest_hmac_keyed(
    const struct digest_hmac_key *key, const void *data, size_t size, struct digest *ret);
/* Of two parts one after the other: a signed time and a body, without copying the body. */
void digest_hmac_2(struct slice key, struct slice first, struct slice second, struct digest *ret);
/* Takes the same time wherever the first difference is; for tokens and signatures. */
bool digest_equal_secret(const struct digest *a, const struct digest *b);
bool digest_equal(const struct digest *a, const struct digest *b);
/* Lower-case hex with a terminator. Returns its argument. */
char *digest_put_hex(char ret_text[DIGEST_HEX_BYTES], const struct digest *digest);

#endif
