/*
 * jwt: reads a claim from a signed token (RFC 7515, 7519, 8725).
 *
 * Compact form only, with HS256, RS256 or ES256. The key decides which. The algorithm in a token's
 * header is only compared with it, so that no token chooses how it is checked, and a public key is
 * never used as a secret.
 *
 * Promises:  nothing in a token is trusted before its signature has been checked. Bytes have one
 *            spelling: base64url without padding and without stray bits, no second `alg`, nothing
 *            after the signature. An extension that must be understood (`crit`) is refused. No
 *            error text contains any part of the token or the key.
 * Does not:  fetch keys, read `kid`, `jku`, `x5c` or `iat`, or know about revoked tokens.
 * Threads:   a key is read-only once made and may be used from any thread.
 */
#ifndef ONCE_GATEWAY_JWT_H
#define ONCE_GATEWAY_JWT_H

#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/slice.h"

enum {
    JWT_TOKEN_BYTES_MAX = 8 << 10, /* servers accept header fields of this size */
    JWT_LEEWAY_MS = 60000,         /* tolerated difference between two machines' clocks */
    JWT_SECRET_BYTES_MIN = 32,     /* RFC 7518 section 3.2: as long as the hash */
    JWT_RSA_BITS_MIN = 2048,       /* RFC 7518 section 3.3 */
    JWT_RSA_BITS_MAX = 8192,       /* beyond this, a check costs milliseconds and adds no safety */
    JWT_KEY_BYTES_MAX = 64 << 10,  /* of secret or PEM: a longer file is something else */
};

enum jwt_alg {
    JWT_HS256,
    JWT_RS256,
    JWT_ES256,
};

struct jwt_key;

/*
 * material: the bytes of the secret, or one public key in PEM ("BEGIN PUBLIC KEY"): RSA for RS256,
 * on the curve P-256 for ES256. mem must outlive the key. E_INVALID: it is not such a key, too
 * short or too long. E_NOMEM.
 */
enum status jwt_key_new(const struct mem *mem, enum jwt_alg alg, struct slice material,
    struct jwt_key **ret_key, struct err *err) MUST_CHECK;
/* Wipes the secret. */
void jwt_key_free(struct jwt_key *key);

/* What a token must say besides being signed. */
struct jwt_expect {
    struct slice issuer;   /* `iss` must equal this; empty: any */
    struct slice audience; /* `aud` must equal or contain this; empty: any */
    int64_t now_ms;        /* since 1970: must be before `exp` and not before `nbf`, where the token
                              has them, within JWT_LEEWAY_MS */
};

/*
 * The claim as text, in the arena: a string that is not empty, or an integer in decimal. It is
 * UTF-8 and may contain any character.
 *
 * E_INVALID: the token is not trusted, or has no such claim; the text says why. E_NOMEM.
 */
enum status jwt_claim(const struct jwt_key *key, struct slice token,
    const struct jwt_expect *expect, struct slice claim, struct arena *arena,
    struct slice *ret_value, struct err *err) MUST_CHECK;

#endif
