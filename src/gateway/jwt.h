/*
 * jwt: a claim out of a token that somebody signed (RFC 7515, 7519, 8725).
 *
 * Compact form only, with HS256, RS256 or ES256. The key decides which: what the header of a token
 * names is only compared with it, so that no token chooses how it is checked, and a public key is
 * never taken for a secret.
 *
 * Promises:  nothing of a token is believed before its signature was checked. Bytes have one
 *            spelling: base64url without padding and without stray bits, no second `alg`, nothing
 *            after the signature. An extension that must be understood (`crit`) is refused. No
 *            text of an error holds anything of the token or the key.
 * Does not:  fetch keys, look at `kid`, `jku`, `x5c` or `iat`, or know of revoked tokens.
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
    JWT_TOKEN_BYTES_MAX = 8 << 10, /* what servers take as one header field */
    JWT_LEEWAY_MS = 60000,         /* how far the clocks of two machines may be apart */
    JWT_SECRET_BYTES_MIN = 32,     /* RFC 7518 section 3.2: as long as the hash */
    JWT_RSA_BITS_MIN = 2048,       /* RFC 7518 section 3.3 */
    JWT_RSA_BITS_MAX = 8192,       /* beyond, a check costs milliseconds and nobody is safer */
    JWT_KEY_BYTES_MAX = 64 << 10,  /* of secret or PEM: more is another file */
};

enum jwt_alg {
    JWT_HS256,
    JWT_RS256,
    JWT_ES256,
};

struct jwt_key;

/*
 * material: the bytes of the secret, or one public key in PEM ("BEGIN PUBLIC KEY"): RSA for RS256,
 * on the curve P-256 for ES256. mem has to outlive the key. E_INVALID: it is no such key, too short
 * or too long; E_NOMEM.
 */
enum status jwt_key_new(const struct mem *mem, enum jwt_alg alg, struct slice material,
    struct jwt_key **ret_key, struct err *err) MUST_CHECK;
/* Wipes the secret. */
void jwt_key_free(struct jwt_key *key);

/* What a token has to say besides being signed. */
struct jwt_expect {
    struct slice issuer;   /* `iss` is this; empty: any */
    struct slice audience; /* `aud` is this or holds it; empty: any */
    int64_t now_ms;        /* since 1970: before `exp` and not before `nbf`, where the token has
                              them, give or take JWT_LEEWAY_MS */
};

/*
 * The claim as text, in the arena: a string that is not empty, or an integer in decimal. It is
 * UTF-8, and may hold any character.
 *
 * E_INVALID: the token is not to be believed, or has no such claim; the text says why. E_NOMEM.
 */
enum status jwt_claim(const struct jwt_key *key, struct slice token,
    const struct jwt_expect *expect, struct slice claim, struct arena *arena,
    struct slice *ret_value, struct err *err) MUST_CHECK;

#endif
