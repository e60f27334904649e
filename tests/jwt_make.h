/*
 * jwt_make: tokens for the tests, right ones and forged ones. Written apart from what checks them.
 */
#ifndef ONCE_TESTS_JWT_MAKE_H
#define ONCE_TESTS_JWT_MAKE_H

#include <openssl/ecdsa.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/pem.h>

#include "base/buf.h"
#include "base/check.h"

/* By which means a token is signed; one of them is given. */
struct jwt_signer {
    struct slice secret; /* HMAC-SHA256 */
    EVP_PKEY *pair;      /* RSA: PKCS #1 v1.5; EC: raw, with half_bytes a number */
    bool der;            /* EC as DER, which no JWS is */
    int half_bytes;      /* 32 for P-256 */
};

static inline void jwt_put_base64url(struct buf *out, struct slice bytes)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    for (size_t bit = 0; bit < bytes.len * 8; bit += 6) {
        size_t at = bit / 8;
        unsigned two = (unsigned)(unsigned char)bytes.data[at] << 8;
        two |= at + 1 < bytes.len ? (unsigned)(unsigned char)bytes.data[at + 1] : 0;
        buf_char(out, digits[two >> (10 - bit % 8) & 63]);
    }
}

static inline void jwt_put_raw(struct buf *out, struct slice der, int half_bytes)
{
    unsigned char raw[2 * 66];
    const unsigned char *at = (const unsigned char *)der.data;
    ECDSA_SIG *pair = d2i_ECDSA_SIG(NULL, &at, (long)der.len);
    ASSERT(pair != NULL && half_bytes <= 66);
    ASSERT(BN_bn2binpad(ECDSA_SIG_get0_r(pair), raw, half_bytes) == half_bytes);
    ASSERT(BN_bn2binpad(ECDSA_SIG_get0_s(pair), raw + half_bytes, half_bytes) == half_bytes);
    ECDSA_SIG_free(pair);
    jwt_put_base64url(out, slice_of(raw, 2 * (size_t)half_bytes));
}

static inline void jwt_put_signature(struct buf *out, const struct jwt_signer *signer)
{
    unsigned char bytes[1024];
    struct slice text = buf_view(out);
    if (signer->pair == NULL) {
        unsigned size = 0;
        ASSERT(HMAC(EVP_sha256(), signer->secret.data, (int)signer->secret.len,
                   (const unsigned char *)text.data, text.len, bytes, &size) != NULL);
        buf_char(out, '.');
        jwt_put_base64url(out, slice_of(bytes, size));
        return;
    }
    size_t size = sizeof bytes;
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    ASSERT(EVP_DigestSignInit(context, NULL, EVP_sha256(), NULL, signer->pair) == 1);
    ASSERT(EVP_DigestSign(context, bytes, &size, (const unsigned char *)text.data, text.len) == 1);
    EVP_MD_CTX_free(context);
    buf_char(out, '.');
    if (signer->half_bytes > 0 && !signer->der) {
        jwt_put_raw(out, slice_of(bytes, size), signer->half_bytes);
    } else {
        jwt_put_base64url(out, slice_of(bytes, size));
    }
}

/* Into an empty buffer; what it points at is the token. */
static inline struct slice jwt_make(
    struct buf *out, const char *header, struct slice payload, const struct jwt_signer *signer)
{
    buf_clear(out);
    jwt_put_base64url(out, slice_str(header));
    buf_char(out, '.');
    jwt_put_base64url(out, payload);
    jwt_put_signature(out, signer);
    ASSERT(buf_status(out) == OK);
    return buf_view(out);
}

/* The public half in PEM, appended. */
static inline struct slice jwt_put_pem(struct buf *out, EVP_PKEY *pair)
{
    char *text = NULL;
    BIO *bio = BIO_new(BIO_s_mem());
    ASSERT(PEM_write_bio_PUBKEY(bio, pair) == 1);
    long size = BIO_get_mem_data(bio, &text);
    buf_clear(out);
    buf_append(out, text, (size_t)size);
    BIO_free(bio);
    return buf_view(out);
}

#endif
