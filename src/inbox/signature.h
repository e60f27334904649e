/*
 * signature: verifies that a request was signed with a secret of its source.
 *
 *   scheme     fields                                 signed bytes          time
 *   body       one field: prefix, MAC                 body                  not signed
 *   stripe     Stripe-Signature: t=…,v1=…[,v1=…]      t "." body            ± 5 min
 *   slack      X-Slack-Signature: v0=…, -Timestamp    "v0:" t ":" body      ± 5 min
 *   standard   webhook-id, -timestamp, -signature     id "." t "." body     ± 5 min
 *   bearer     Authorization: Bearer SECRET           nothing               none
 *
 * All MACs are HMAC-SHA256. "standard" also has v1a, which is Ed25519 (RFC 8032). The secret
 * decides: whsec_ is a MAC's key, whpk_ a public key. In "stripe", whsec_ is part of the secret
 * itself.
 *
 * Promises:  requests are verified over the bytes as received. MACs are decoded, then compared in
 *            constant time. One spelling of each signature is accepted: lower-case hex, or base64
 *            with its padding. A repeated field is refused. Any of several secrets, and any of
 *            several signatures, verifies: that is how secrets are rotated. A time is refused both
 *            when it is too old and when it is too new.
 * Does not:  tell a client why it refused; the verdict is for `once inbox test` and the metrics.
 * Ownership: secrets belong to the caller; signature_secret_release wipes them.
 * Threads:   pure, but for OpenSSL's own state with v1a.
 */
#ifndef ONCE_INBOX_SIGNATURE_H
#define ONCE_INBOX_SIGNATURE_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "http/head.h"

enum signature_scheme {
    SIGNATURE_NOTHING, /* every request is accepted: for sources on a loopback or behind a proxy */
    SIGNATURE_BODY,
    SIGNATURE_STRIPE,
    SIGNATURE_SLACK,
    SIGNATURE_STANDARD,
    SIGNATURE_BEARER,
};

enum signature_encoding { SIGNATURE_HEX, SIGNATURE_BASE64 };

enum {
    SIGNATURE_SKEW_S_MAX = 300,       /* the limit of all reference libraries */
    SIGNATURE_SECRET_BYTES_MAX = 512, /* of a secret as text: the longest known has 96 */
    SIGNATURE_KEY_BYTES_MIN = 24,     /* of a MAC's key in "standard", by its specification: the
                                         least … */
    SIGNATURE_KEY_BYTES_MAX = 64,     /* … and the most */
    SIGNATURE_MANY_MAX = 16,          /* signatures in one field; more are refused */
    SIGNATURE_ED25519_BYTES = 64,     /* of a signature */
    SIGNATURE_ED25519_KEY_BYTES = 32, /* of either half of a key */
};

/* How requests of a source are signed. */
struct signature_rule {
    enum signature_scheme scheme;
    enum signature_encoding encoding; /* of "body" */
    struct slice field;               /* of "body": the field with the MAC … */
    struct slice field_again;         /* … or this field, if the first is absent; may be empty */
    struct slice prefix;              /* of "body", before the MAC: "sha256="; may be empty */
    struct slice family;              /* of "standard": "webhook-", and of svix "svix-", where
                                         "webhook-" is accepted if that is absent */
};

/* One secret, ready to use. */
struct signature_secret {
    bool is_public;                                  /* an Ed25519 key: it verifies v1a */
    bool can_sign;                                   /* seed is set: it can make v1a */
    size_t key_bytes;                                /* of key */
    unsigned char key[SIGNATURE_SECRET_BYTES_MAX];   /* of the MAC, or the public key */
    unsigned char seed[SIGNATURE_ED25519_KEY_BYTES]; /* of the private key */
};

/* Read a secret as its owner wrote it, without a line end. The text of E_INVALID says what is wrong
 * and never contains the secret. */
enum status signature_secret_read(const struct signature_rule *rule, struct slice text,
    struct signature_secret *ret_secret, struct err *err) MUST_CHECK;
/* Wipe it. A zeroed secret is fine. */
void signature_secret_release(struct signature_secret *secret);

/* Why a request is refused. */
enum signature_verdict {
    SIGNATURE_OK,
    SIGNATURE_MISSING,   /* a field that the scheme requires is absent */
    SIGNATURE_DOUBLED,   /* a field is repeated */
    SIGNATURE_MALFORMED, /* a field does not have the scheme's form */
    SIGNATURE_MISMATCH,  /* no secret matches */
    SIGNATURE_TOO_OLD,   /* it was signed too long ago … */
    SIGNATURE_TOO_NEW,   /* … or too far in the future */
    SIGNATURE_FAILED,    /* there was no memory to check it */
};
enum { SIGNATURE_VERDICTS = SIGNATURE_FAILED + 1 };
/* "ok", "missing", … */
const char *signature_verdict_name(enum signature_verdict verdict);

/* The secrets of a source. */
struct signature_keys {
    const struct signature_secret *secrets;
    size_t count;
};

/* Verify a request. With SIGNATURE_OK, *ret_secret is the number of the secret that matched. arena
 * is only for v1a, which needs the signed bytes in one piece. */
enum signature_verdict signature_verify(const struct signature_rule *rule,
    const struct signature_keys *keys, const struct http_head *head, struct slice body,
    int64_t now_ms, struct arena *arena, size_t *ret_secret) MUST_CHECK;

/* The signed values besides the body. */
struct signature_stamp {
    struct slice id; /* of "standard" */
    int64_t now_ms;  /* the time */
    struct slice body;
};
/* Append the fields of a signed request, each with its line end: "Stripe-Signature: …\r\n".
 * E_INVALID: this secret cannot sign, because it is a public key. E_NOMEM. */
enum status signature_put(const struct signature_rule *rule, const struct signature_secret *secret,
    const struct signature_stamp *stamp, struct buf *out, struct err *err) MUST_CHECK;

#endif
