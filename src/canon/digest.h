/*
 * digest: SHA-256, by OpenSSL.
 */
#ifndef ONCE_CANON_DIGEST_H
#define ONCE_CANON_DIGEST_H

#include <stddef.h>

struct digest {
    unsigned char bytes[32];
};

void digest_sha256(const void *data, size_t size, struct digest *ret_digest);
/* Of a followed by b, as the evidence chain needs it. */
void digest_sha256_2(
    const void *a, size_t a_size, const void *b, size_t b_size, struct digest *ret_digest);

#endif
