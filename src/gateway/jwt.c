#include "gateway/jwt.h"

#include <openssl/bio.h>
#include <openssl/bn.h>
#include <openssl/ec.h>
#include <openssl/ecdsa.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <stdio.h>

#include "base/base64.h"
#include "base/check.h"
#include "canon/digest.h"
#include "canon/json.h"
#include "canon/number.h"

enum {
    TREE_BYTES_MAX = 2 << 20,   /* several times what the trees of an 8 KiB token can need */
    ES256_BYTES = 64,           /* r and s, 32 bytes each: RFC 7518 section 3.4 */
    ES256_DER_BYTES_MAX = 72,   /* a sequence of two integers with a sign byte each */
    PARTS = 3,                  /* header, payload, signature */
    INTEGER_TEXT_BYTES_MAX = 24 /* of an int64_t */
};

struct jwt_key {
    const struct mem *mem;
    enum jwt_alg alg;
    EVP_PKEY *public_key; /* NULL for HS256 */
    char *secret;         /* NULL for the others */
    size_t secret_bytes;
};

static const char *alg_name(enum jwt_alg alg)
{
    switch (alg) {
    case JWT_HS256: return "HS256";
    case JWT_RS256: return "RS256";
    case JWT_ES256: return "ES256";
    }
    return "";
}

/* ---- keys ---------------------------------------------------------------------------------- */

/* A public key used as a secret would be a secret that everybody knows. */
static enum status take_secret(struct jwt_key *key, struct slice material, struct err *err)
{
    if (material.len < JWT_SECRET_BYTES_MIN) {
        return err_set(err, E_INVALID, "a secret for HS256 needs at least %d bytes, this has %zu",
            (int)JWT_SECRET_BYTES_MIN, material.len);
    }
    if (slice_starts(material, SLICE_LIT("-----BEGIN "))) {
        return err_set(err, E_INVALID, "a PEM key cannot be the secret for HS256");
    }
    key->secret = mem_alloc(key->mem, material.len);
    if (key->secret == NULL) {
        return err_set(err, E_NOMEM, "out of memory");
    }
    memcpy(key->secret, material.data, material.len);
    key->secret_bytes = material.len;
    return OK;
}

/* So that OpenSSL never prompts on the terminal. */
static int no_password(char *text, int size, int is_writing, void *context)
{
    (void)text, (void)size, (void)is_writing, (void)context;
    return -1;
}

/* Exactly one key, and nothing before it: otherwise a private key beside it would not be
 * refused. */
static bool is_one_public_key(struct slice pem)
{
    struct slice start = SLICE_LIT("-----BEGIN PUBLIC KEY-----");
    return slice_starts(pem, start) && memmem(pem.data + start.len, pem.len - start.len,
                                           "-----BEGIN", sizeof "-----BEGIN" - 1) == NULL;
}

static EVP_PKEY *read_pem(struct slice pem)
{
    BIO *bio = is_one_public_key(pem) ? BIO_new_mem_buf(pem.data, (int)pem.len) : NULL;
    EVP_PKEY *found = bio == NULL ? NULL : PEM_read_bio_PUBKEY(bio, NULL, no_password, NULL);
    BIO_free(bio);
    return found;
}

static enum status check_rsa(const EVP_PKEY *key, struct err *err)
{
    if (!EVP_PKEY_is_a(key, "RSA")) {
        return err_set(err, E_INVALID, "RS256 needs an RSA key");
    }
    int bits = EVP_PKEY_get_bits(key);
    if (bits < JWT_RSA_BITS_MIN || bits > JWT_RSA_BITS_MAX) {
        return err_set(err, E_INVALID, "an RSA key for RS256 has %d to %d bits, this has %d",
            (int)JWT_RSA_BITS_MIN, (int)JWT_RSA_BITS_MAX, bits);
    }
    return OK;
}

static enum status check_p256(const EVP_PKEY *key, struct err *err)
{
    char group[64] = "";
    if (!EVP_PKEY_is_a(key, "EC") || EVP_PKEY_get_group_name(key, group, sizeof group, NULL) != 1 ||
        strcmp(group, "prime256v1") != 0) {
        return err_set(err, E_INVALID, "ES256 needs a key on the curve P-256");
    }
    return OK;
}

/* Whether the numbers form a valid key: a point on the curve, an odd modulus. */
static bool is_sound(EVP_PKEY *key)
{
    EVP_PKEY_CTX *context = EVP_PKEY_CTX_new(key, NULL);
    bool sound = context != NULL && EVP_PKEY_public_check(context) == 1;
    EVP_PKEY_CTX_free(context);
    return sound;
}

static enum status take_public_key(struct jwt_key *key, struct slice material, struct err *err)
{
    (void)ERR_set_mark();
    key->public_key = read_pem(material);
    enum status status = OK;
    if (key->public_key == NULL) {
        status = err_set(err, E_INVALID, "%s needs one public key in PEM", alg_name(key->alg));
    } else {
        status = key->alg == JWT_RS256 ? check_rsa(key->public_key, err)
                                       : check_p256(key->public_key, err);
    }
    if (status == OK && !is_sound(key->public_key)) {
        status = err_set(err, E_INVALID, "the public key is not a sound one");
    }
    (void)ERR_pop_to_mark(); /* errors left there would be taken for TLS errors */
    return status;
}

enum status jwt_key_new(const struct mem *mem, enum jwt_alg alg, struct slice material,
    struct jwt_key **ret_key, struct err *err)
{
    if (material.len == 0 || material.len > JWT_KEY_BYTES_MAX) {
        return err_set(err, E_INVALID, "a key for %s has 1 to %d bytes, this has %zu",
            alg_name(alg), (int)JWT_KEY_BYTES_MAX, material.len);
    }
    struct jwt_key *key = mem_zalloc(mem, 1, sizeof *key);
    if (key == NULL) {
        return err_set(err, E_NOMEM, "out of memory");
    }
    key->mem = mem;
    key->alg = alg;
    enum status status =
        alg == JWT_HS256 ? take_secret(key, material, err) : take_public_key(key, material, err);
    if (status != OK) {
        jwt_key_free(key);
        return status;
    }
    *ret_key = key;
    return OK;
}

void jwt_key_free(struct jwt_key *key)
{
    if (key == NULL) {
        return;
    }
    if (key->secret != NULL) {
        mem_wipe(key->secret, key->secret_bytes);
    }
    mem_free(key->mem, key->secret);
    EVP_PKEY_free(key->public_key);
    mem_free(key->mem, key);
}

/* ---- the form ------------------------------------------------------------------------------ */

static enum status no_memory(struct err *err)
{
    return err_set(err, E_NOMEM, "out of memory");
}

/* A token split into its parts, with the arena for what is made from them. */
struct token {
    struct slice parts[PARTS];
    struct slice signed_text; /* the first two parts and the dot between them */
    struct arena *arena;
};

static enum status split(struct slice text, struct token *token, struct err *err)
{
    size_t count = 0;
    size_t from = 0;
    if (text.len > JWT_TOKEN_BYTES_MAX) {
        return err_set(err, E_INVALID, "the token is longer than token_bytes_max (%d)",
            (int)JWT_TOKEN_BYTES_MAX);
    }
    for (size_t i = 0; i <= text.len; i++) {
        if (i < text.len && text.data[i] != '.') {
            continue;
        }
        if (count == PARTS || i == from) {
            return err_set(err, E_INVALID, "the token is not three parts with dots between them");
        }
        token->parts[count++] = slice_of(text.data + from, i - from);
        from = i + 1;
    }
    if (count != PARTS) {
        return err_set(err, E_INVALID, "the token is not three parts with dots between them");
    }
    token->signed_text = slice_of(text.data, token->parts[0].len + 1 + token->parts[1].len);
    return OK;
}

static enum status decode(
    struct token *token, size_t part, struct slice *ret_bytes, struct err *err)
{
    static const char *const names[PARTS] = {"header", "payload", "signature"};
    struct slice text = token->parts[part];
    unsigned char *bytes = arena_alloc(token->arena, BASE64_BYTES_MAX(text.len));
    size_t size = 0;
    if (bytes == NULL) {
        return no_memory(err);
    }
    if (!base64_read(text, BASE64_URL, bytes, &size)) {
        return err_set(
            err, E_INVALID, "the %s of the token is not base64url without padding", names[part]);
    }
    *ret_bytes = slice_of(bytes, size);
    return OK;
}

/* The error does not say what is wrong with the JSON: it would show its contents. */
static enum status decode_object(
    struct token *token, size_t part, const struct json_value **ret_object, struct err *err)
{
    struct slice text = SLICE_EMPTY;
    const struct json_value *object = NULL;
    enum status status = decode(token, part, &text, err);
    if (status != OK) {
        return status;
    }
    status = json_read(text, token->arena, &object, NULL);
    if (status == E_NOMEM) {
        return no_memory(err);
    }
    if (status != OK || object->type != JSON_OBJECT) {
        return err_set(err, E_INVALID, "the %s of the token is not a JSON object, each member once",
            part == 0 ? "header" : "payload");
    }
    *ret_object = object;
    return OK;
}

/* ---- the signature ------------------------------------------------------------------------- */

static enum status check_header(const struct jwt_key *key, struct token *token, struct err *err)
{
    const struct json_value *header = NULL;
    enum status status = decode_object(token, 0, &header, err);
    if (status != OK) {
        return status;
    }
    const struct json_value *alg = json_find(header, SLICE_LIT("alg"));
    if (!json_is(alg, JSON_STRING) || !slice_is(json_text(alg), alg_name(key->alg))) {
        return err_set(err, E_INVALID, "the token is not signed with %s", alg_name(key->alg));
    }
    if (json_find(header, SLICE_LIT("crit")) != NULL) { /* RFC 7515 section 4.1.11 */
        return err_set(err, E_INVALID, "the token needs an extension that is not known (crit)");
    }
    return OK;
}

/* OpenSSL wants the two numbers in DER. 0: they do not fit, or memory is short. */
static size_t es256_der(struct slice raw, unsigned char ret_der[ES256_DER_BYTES_MAX])
{
    const unsigned char *bytes = (const unsigned char *)raw.data;
    ECDSA_SIG *pair = ECDSA_SIG_new();
    BIGNUM *r = BN_bin2bn(bytes, ES256_BYTES / 2, NULL);
    BIGNUM *s = BN_bin2bn(bytes + ES256_BYTES / 2, ES256_BYTES / 2, NULL);
    int size = 0;
    if (pair != NULL && r != NULL && s != NULL && ECDSA_SIG_set0(pair, r, s) == 1) {
        r = NULL; /* the pair owns them now */
        s = NULL;
        size = i2d_ECDSA_SIG(pair, NULL);
        unsigned char *at = ret_der;
        size = size > 0 && size <= ES256_DER_BYTES_MAX ? i2d_ECDSA_SIG(pair, &at) : 0;
    }
    BN_free(r);
    BN_free(s);
    ECDSA_SIG_free(pair);
    return size > 0 ? (size_t)size : 0;
}

static bool verify(EVP_PKEY *key, struct slice signature, struct slice text)
{
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    bool good = context != NULL &&
                EVP_DigestVerifyInit(context, NULL, EVP_sha256(), NULL, key) == 1 &&
                EVP_DigestVerify(context, (const unsigned char *)signature.data, signature.len,
                    (const unsigned char *)text.data, text.len) == 1;
    EVP_MD_CTX_free(context);
    return good;
}

static bool is_hs256(const struct jwt_key *key, struct slice signature, struct slice text)
{
    struct digest wanted;
    struct digest given;
    if (signature.len != sizeof given.bytes) {
        return false;
    }
    memcpy(given.bytes, signature.data, sizeof given.bytes);
    digest_hmac(key->secret, key->secret_bytes, text.data, text.len, &wanted);
    bool same = digest_equal_secret(&given, &wanted);
    mem_wipe(&wanted, sizeof wanted);
    return same;
}

static bool is_es256(const struct jwt_key *key, struct slice signature, struct slice text)
{
    unsigned char der[ES256_DER_BYTES_MAX];
    if (signature.len != ES256_BYTES) {
        return false;
    }
    size_t size = es256_der(signature, der);
    return size > 0 && verify(key->public_key, slice_of(der, size), text);
}

static bool is_rs256(const struct jwt_key *key, struct slice signature, struct slice text)
{
    return signature.len == (size_t)EVP_PKEY_get_size(key->public_key) &&
           verify(key->public_key, signature, text);
}

static enum status check_signature(const struct jwt_key *key, struct token *token, struct err *err)
{
    struct slice signature = SLICE_EMPTY;
    bool good = false;
    enum status status = decode(token, 2, &signature, err);
    if (status != OK) {
        return status;
    }
    (void)ERR_set_mark();
    switch (key->alg) {
    case JWT_HS256: good = is_hs256(key, signature, token->signed_text); break;
    case JWT_RS256: good = is_rs256(key, signature, token->signed_text); break;
    case JWT_ES256: good = is_es256(key, signature, token->signed_text); break;
    }
    (void)ERR_pop_to_mark();
    return good ? OK : err_set(err, E_INVALID, "the signature of the token is wrong");
}

/* ---- claims -------------------------------------------------------------------------------- */

/* A NumericDate may have a fraction (RFC 7519 section 2). False: it is present and invalid. */
static bool read_date(
    const struct json_value *claims, struct slice name, bool *ret_found, double *ret_ms)
{
    const struct json_value *value = json_find(claims, name);
    double seconds = 0;
    *ret_found = value != NULL;
    if (value == NULL) {
        return true;
    }
    if (value->type != JSON_NUMBER || !number_to_double(json_text(value), &seconds)) {
        return false;
    }
    *ret_ms = seconds * 1000;
    return true;
}

static enum status check_dates(const struct json_value *claims, int64_t now_ms, struct err *err)
{
    bool ends = false;
    bool begins = false;
    double end_ms = 0;
    double begin_ms = 0;
    if (!read_date(claims, SLICE_LIT("exp"), &ends, &end_ms) ||
        !read_date(claims, SLICE_LIT("nbf"), &begins, &begin_ms)) {
        return err_set(err, E_INVALID, "exp or nbf of the token is not a number of seconds");
    }
    if (ends && (double)now_ms >= end_ms + JWT_LEEWAY_MS) {
        return err_set(err, E_INVALID, "the token has expired");
    }
    if (begins && (double)now_ms < begin_ms - JWT_LEEWAY_MS) {
        return err_set(err, E_INVALID, "the token is not valid yet");
    }
    return OK;
}

static bool is_text(const struct json_value *value, struct slice text)
{
    return json_is(value, JSON_STRING) && slice_equal(json_text(value), text);
}

/* One string, or a list that must contain it (RFC 7519 section 4.1.3). */
static bool is_for(const struct json_value *aud, struct slice audience)
{
    if (!json_is(aud, JSON_ARRAY)) {
        return is_text(aud, audience);
    }
    for (uint32_t i = 0; i < aud->count; i++) {
        if (is_text(&aud->items[i], audience)) {
            return true;
        }
    }
    return false;
}

static enum status check_claims(
    const struct json_value *claims, const struct jwt_expect *expect, struct err *err)
{
    if (expect->issuer.len > 0 && !is_text(json_find(claims, SLICE_LIT("iss")), expect->issuer)) {
        return err_set(err, E_INVALID, "the token is not of the issuer that is expected");
    }
    if (expect->audience.len > 0 &&
        !is_for(json_find(claims, SLICE_LIT("aud")), expect->audience)) {
        return err_set(err, E_INVALID, "the token is not for the audience that is expected");
    }
    return check_dates(claims, expect->now_ms, err);
}

static enum status read_claim(const struct json_value *claims, struct slice name,
    struct arena *arena, struct slice *ret_value, struct err *err)
{
    const struct json_value *value = json_find(claims, name);
    char digits[INTEGER_TEXT_BYTES_MAX];
    struct slice text = SLICE_EMPTY;
    int64_t number = 0;
    if (json_is(value, JSON_STRING)) {
        text = json_text(value);
    } else if (json_int(value, &number)) { /* so that -0 and 0 are the same */
        int size = snprintf(digits, sizeof digits, "%lld", (long long)number);
        text = slice_of(digits, (size_t)size);
    }
    if (text.len == 0) {
        return err_set(err, E_INVALID,
            "the claim '%.*s' of the token is not a string with something in it, or an integer",
            SLICE_ARGS(name));
    }
    return arena_copy(arena, text, ret_value) == OK ? OK : no_memory(err);
}

/* Nothing of the payload is read before the signature has been verified. */
enum status jwt_claim(const struct jwt_key *key, struct slice token,
    const struct jwt_expect *expect, struct slice claim, struct arena *arena,
    struct slice *ret_value, struct err *err)
{
    struct arena scratch;
    const struct json_value *claims = NULL;
    arena_init(&scratch, key->mem, TREE_BYTES_MAX);
    struct token parts = {.arena = &scratch};
    enum status status = split(token, &parts, err);
    status = status == OK ? check_header(key, &parts, err) : status;
    status = status == OK ? check_signature(key, &parts, err) : status;
    status = status == OK ? decode_object(&parts, 1, &claims, err) : status;
    status = status == OK ? check_claims(claims, expect, err) : status;
    status = status == OK ? read_claim(claims, claim, arena, ret_value, err) : status;
    ASSERT(status == OK || status == E_INVALID || status == E_NOMEM);
    arena_release(&scratch);
    return status;
}
