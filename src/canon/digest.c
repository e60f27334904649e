#include "canon/digest.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "base/text.h"

/*
 * The SHA256_* functions of libcrypto are marked deprecated in favour of EVP, but they need neither
 * a fetched method nor an allocated context, so nothing here can fail and no per-thread handle has
 * to be kept and freed. Measured with OpenSSL 3.0 and SHA extensions, for 32 and 1024 bytes:
 * SHA256_* 50 and 630 ns; EVP with a kept context 90 and 700 ns; EVP_Digest with a fetched method
 * 120 and 740 ns; SHA256() and EVP_sha256() 300 and 970 ns. Hash chains are made of small inputs.
 */
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

void digest_sha256(const void *data, size_t size, struct digest *ret)
{
    digest_sha256_2(data, size, NULL, 0, ret);
}

void digest_sha256_2(const void *first, size_t first_size, const void *second, size_t second_size,
    struct digest *ret)
{
    SHA256_CTX context;
    (void)SHA256_Init(&context);
    if (first_size > 0) {
        (void)SHA256_Update(&context, first, first_size);
    }
    if (second_size > 0) {
        (void)SHA256_Update(&context, second, second_size);
    }
    (void)SHA256_Final(ret->bytes, &context);
}

void digest_hmac(
    const void *key, size_t key_size, const void *data, size_t size, struct digest *ret)
{
    digest_hmac_2(slice_of(key, key_size), slice_of(data, size), SLICE_EMPTY, ret);
}

/* The state of a hash after one block. */
static void hash_block(const unsigned char block[SHA256_CBLOCK], uint32_t ret_state[8])
{
    SHA256_CTX context;
    (void)SHA256_Init(&context);
    SHA256_Transform(&context, block);
    memcpy(ret_state, context.h, sizeof context.h);
    mem_wipe(&context, sizeof context);
}

void digest_hmac_key_make(struct slice key, struct digest_hmac_key *ret_key)
{
    static_assert(sizeof ret_key->inner == sizeof((SHA256_CTX *)NULL)->h, "the whole state");
    unsigned char block[SHA256_CBLOCK] = {0};
    if (key.len > sizeof block) {
        struct digest short_key;
        digest_sha256(key.data, key.len, &short_key);
        memcpy(block, short_key.bytes, sizeof short_key.bytes);
        mem_wipe(&short_key, sizeof short_key);
    } else if (key.len > 0) {
        memcpy(block, key.data, key.len);
    }
    for (size_t i = 0; i < sizeof block; i++) {
        block[i] ^= 0x36; /* ipad of RFC 2104 section 2 */
    }
    hash_block(block, ret_key->inner);
    for (size_t i = 0; i < sizeof block; i++) {
        block[i] ^= 0x36 ^ 0x5c; /* opad */
    }
    hash_block(block, ret_key->outer);
    mem_wipe(block, sizeof block);
}

/* Continues after the first block. */
static void sha256_after(
    const uint32_t state[8], struct slice first, struct slice second, struct digest *ret)
{
    SHA256_CTX context;
    (void)SHA256_Init(&context);
    memcpy(context.h, state, sizeof context.h);
    context.Nl = 8 * SHA256_CBLOCK; /* bits so far */
    if (first.len > 0) {
        (void)SHA256_Update(&context, first.data, first.len);
    }
    if (second.len > 0) {
        (void)SHA256_Update(&context, second.data, second.len);
    }
    (void)SHA256_Final(ret->bytes, &context); /* wipes the state */
}

static void hmac_after(
    const struct digest_hmac_key *key, struct slice first, struct slice second, struct digest *ret)
{
    struct digest inner;
    sha256_after(key->inner, first, second, &inner);
    sha256_after(key->outer, slice_of(inner.bytes, sizeof inner.bytes), SLICE_EMPTY, ret);
    mem_wipe(&inner, sizeof inner);
}

void digest_hmac_keyed(
    const struct digest_hmac_key *key, const void *data, size_t size, struct digest *ret)
{
    hmac_after(key, slice_of(data, size), SLICE_EMPTY, ret);
}

void digest_hmac_2(struct slice key, struct slice first, struct slice second, struct digest *ret)
{
    struct digest_hmac_key made;
    digest_hmac_key_make(key, &made);
    hmac_after(&made, first, second, ret);
    mem_wipe(&made, sizeof made);
}

bool digest_equal_secret(const struct digest *a, const struct digest *b)
{
    return CRYPTO_memcmp(a->bytes, b->bytes, sizeof a->bytes) == 0;
}

bool digest_equal(const struct digest *a, const struct digest *b)
{
    return memcmp(a->bytes, b->bytes, sizeof a->bytes) == 0;
}

char *digest_put_hex(char ret_text[DIGEST_HEX_BYTES], const struct digest *digest)
{
    return text_put_hex(ret_text, digest->bytes, sizeof digest->bytes);
}
