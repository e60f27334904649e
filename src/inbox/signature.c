#include "inbox/signature.h"

#include <inttypes.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <stdio.h>

#include "base/arena.h"
#include "base/base64.h"
#include "base/check.h"
#include "base/macros.h"
#include "base/text.h"
#include "canon/digest.h"

enum {
    SECOND_MS = 1000,
    TIME_DIGITS_MAX = 12, /* of seconds since 1970: past the year 30000 */
    ID_BYTES_MAX = 255,   /* of webhook-id: as long as a key may be */
    STAMP_BYTES_MAX = ID_BYTES_MAX + TIME_DIGITS_MAX + 8,
    FIELD_NAME_BYTES_MAX = 64,
};

const char *signature_verdict_name(enum signature_verdict verdict)
{
    static const char *const names[SIGNATURE_VERDICTS] = {[SIGNATURE_OK] = "ok",
        [SIGNATURE_MISSING] = "missing",
        [SIGNATURE_DOUBLED] = "doubled",
        [SIGNATURE_MALFORMED] = "malformed",
        [SIGNATURE_MISMATCH] = "mismatch",
        [SIGNATURE_TOO_OLD] = "too_old",
        [SIGNATURE_TOO_NEW] = "too_new",
        [SIGNATURE_FAILED] = "failed"};
    return names[verdict];
}

/* ---- secrets ------------------------------------------------------------------------------- */

static struct slice after(struct slice text, size_t bytes)
{
    return slice_of(text.data + bytes, text.len - bytes);
}

/* A MAC's key, or one half of an Ed25519 key, in base64. */
static enum status read_standard(
    struct slice text, struct signature_secret *ret_secret, struct err *err)
{
    static const struct slice mac = SLICE_INIT("whsec_");
    static const struct slice public_half = SLICE_INIT("whpk_");
    static const struct slice private_half = SLICE_INIT("whsk_");
    unsigned char bytes[BASE64_BYTES_MAX(SIGNATURE_SECRET_BYTES_MAX)];
    size_t size = 0;
    bool is_private = slice_starts(text, private_half);
    bool is_public = is_private || slice_starts(text, public_half);
    struct slice coded = is_public                 ? after(text, private_half.len)
                         : slice_starts(text, mac) ? after(text, mac.len)
                                                   : text;
    if (!base64_read(coded, BASE64_PADDED, bytes, &size)) {
        return err_set(err, E_INVALID, "the secret is not whsec_, whpk_ or whsk_ and base64");
    }
    size_t least = is_private  ? 2 * SIGNATURE_ED25519_KEY_BYTES
                   : is_public ? SIGNATURE_ED25519_KEY_BYTES
                               : SIGNATURE_KEY_BYTES_MIN;
    size_t most = is_public ? least : SIGNATURE_KEY_BYTES_MAX;
    enum status status = OK;
    if (size < least || size > most) {
        status = err_set(err, E_INVALID, "the secret has length %zu instead of %zu to %zu bytes",
            size, least, most);
    } else if (is_private) {
        memcpy(ret_secret->seed, bytes, sizeof ret_secret->seed);
        memcpy(ret_secret->key, bytes + sizeof ret_secret->seed, SIGNATURE_ED25519_KEY_BYTES);
        ret_secret->key_bytes = SIGNATURE_ED25519_KEY_BYTES;
    } else {
        memcpy(ret_secret->key, bytes, size);
        ret_secret->key_bytes = size;
    }
    ret_secret->is_public = is_public;
    ret_secret->can_sign = is_private;
    mem_wipe(bytes, sizeof bytes);
    return status;
}

enum status signature_secret_read(const struct signature_rule *rule, struct slice text,
    struct signature_secret *ret_secret, struct err *err)
{
    if (text.len == 0) {
        return err_set(err, E_INVALID, "the secret is empty");
    }
    if (text.len > SIGNATURE_SECRET_BYTES_MAX) {
        return err_set(
            err, E_INVALID, "the secret is longer than %d bytes", (int)SIGNATURE_SECRET_BYTES_MAX);
    }
    struct signature_secret secret = {.is_public = false};
    enum status status = OK;
    if (rule->scheme == SIGNATURE_STANDARD) {
        status = read_standard(text, &secret, err);
    } else {
        memcpy(secret.key, text.data, text.len);
        secret.key_bytes = text.len;
    }
    if (status == OK) {
        *ret_secret = secret;
    }
    signature_secret_release(&secret);
    return status;
}

void signature_secret_release(struct signature_secret *secret)
{
    mem_wipe(secret, sizeof *secret);
}

/* ---- what a request shows ------------------------------------------------------------------ */

/* The signatures of a request, and the bytes they cover. */
struct signature_shown {
    struct slice id;                        /* of "standard" */
    struct slice time;                      /* as written; empty: the scheme has none */
    char stamp[STAMP_BYTES_MAX];            /* signed before the body … */
    size_t stamp_bytes;                     /* … and its length */
    struct digest macs[SIGNATURE_MANY_MAX]; /* those that can be compared */
    size_t mac_count;                       /* of these */
    unsigned char ed25519[SIGNATURE_MANY_MAX][SIGNATURE_ED25519_BYTES]; /* v1a */
    size_t ed25519_count;                                               /* of these */
};

static enum signature_verdict field_of(
    const struct http_head *head, struct slice name, struct slice *ret_value)
{
    *ret_value = SLICE_EMPTY;
    if (http_find(head, name, 0) == head->field_count) {
        return SIGNATURE_MISSING;
    }
    return !http_find_single(head, name, ret_value) ? SIGNATURE_DOUBLED
           : ret_value->len == 0                    ? SIGNATURE_MALFORMED
                                                    : SIGNATURE_OK;
}

/* Only lower-case hex: with two spellings a signature could be changed and still match. */
static bool read_hex(struct slice text, struct digest *ret_mac)
{
    for (size_t i = 0; i < text.len; i++) {
        if (text.data[i] >= 'A' && text.data[i] <= 'F') {
            return false;
        }
    }
    return text_hex(text, ret_mac->bytes, sizeof ret_mac->bytes);
}

static bool read_base64(struct slice text, void *ret_bytes, size_t bytes)
{
    unsigned char place[BASE64_BYTES_MAX(BASE64_TEXT_BYTES(SIGNATURE_ED25519_BYTES))];
    size_t size = 0;
    if (text.len != BASE64_TEXT_BYTES(bytes) || !base64_read(text, BASE64_PADDED, place, &size) ||
        size != bytes) {
        return false;
    }
    memcpy(ret_bytes, place, bytes);
    return true;
}

static bool add_mac(
    struct signature_shown *shown, struct slice text, enum signature_encoding encoding)
{
    if (shown->mac_count == SIGNATURE_MANY_MAX) {
        return false;
    }
    struct digest *mac = &shown->macs[shown->mac_count];
    bool is_read = encoding == SIGNATURE_HEX ? read_hex(text, mac)
                                             : read_base64(text, mac->bytes, sizeof mac->bytes);
    shown->mac_count += is_read;
    return is_read;
}

/* Seconds since 1970, in digits only. */
static bool is_time(struct slice text)
{
    for (size_t i = 0; i < text.len; i++) {
        if (text.data[i] < '0' || text.data[i] > '9') {
            return false;
        }
    }
    return text.len > 0 && text.len <= TIME_DIGITS_MAX;
}

static void stamp_put(struct signature_shown *shown, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void stamp_put(struct signature_shown *shown, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int len = vsnprintf(shown->stamp, sizeof shown->stamp, format, args);
    va_end(args);
    ASSERT(len > 0 && (size_t)len < sizeof shown->stamp);
    shown->stamp_bytes = (size_t)len;
}

static enum signature_verdict show_body(
    const struct signature_rule *rule, const struct http_head *head, struct signature_shown *shown)
{
    struct slice value;
    enum signature_verdict verdict = field_of(head, rule->field, &value);
    if (verdict == SIGNATURE_MISSING && rule->field_again.len > 0) {
        verdict = field_of(head, rule->field_again, &value);
    }
    if (verdict != SIGNATURE_OK) {
        return verdict;
    }
    return slice_starts(value, rule->prefix) &&
                   add_mac(shown, after(value, rule->prefix.len), rule->encoding)
               ? SIGNATURE_OK
               : SIGNATURE_MALFORMED;
}

/* The next "name=value" of a comma-separated list; false at its end, or if there is no "=". */
static bool next_pair(struct slice *list, struct slice *ret_name, struct slice *ret_value)
{
    struct slice element;
    if (!http_list_next(list, &element)) {
        return false;
    }
    const char *equals = memchr(element.data, '=', element.len);
    size_t len = equals == NULL ? element.len : (size_t)(equals - element.data);
    *ret_name = slice_of(element.data, len);
    *ret_value = equals == NULL ? SLICE_EMPTY : slice_of(equals + 1, element.len - len - 1);
    return true;
}

static enum signature_verdict show_stripe(
    const struct http_head *head, struct signature_shown *shown)
{
    struct slice value, name, list;
    enum signature_verdict verdict = field_of(head, SLICE_LIT("Stripe-Signature"), &list);
    if (verdict != SIGNATURE_OK) {
        return verdict;
    }
    while (next_pair(&list, &name, &value)) {
        if (slice_is(name, "t")) {
            if (shown->time.len > 0 || !is_time(value)) {
                return SIGNATURE_MALFORMED;
            }
            shown->time = value;
        } else if (slice_is(name, "v1") && !add_mac(shown, value, SIGNATURE_HEX)) {
            return SIGNATURE_MALFORMED;
        } /* other schemes, such as v0, are weaker and are ignored: no downgrade is possible */
    }
    if (shown->time.len == 0 || shown->mac_count == 0) {
        return SIGNATURE_MALFORMED;
    }
    stamp_put(shown, "%.*s.", SLICE_ARGS(shown->time));
    return SIGNATURE_OK;
}

static enum signature_verdict show_slack(
    const struct http_head *head, struct signature_shown *shown)
{
    static const struct slice version = SLICE_INIT("v0=");
    struct slice value;
    enum signature_verdict verdict =
        field_of(head, SLICE_LIT("X-Slack-Request-Timestamp"), &shown->time);
    verdict =
        verdict == SIGNATURE_OK ? field_of(head, SLICE_LIT("X-Slack-Signature"), &value) : verdict;
    if (verdict != SIGNATURE_OK) {
        return verdict;
    }
    if (!is_time(shown->time) || !slice_starts(value, version) ||
        !add_mac(shown, after(value, version.len), SIGNATURE_HEX)) {
        return SIGNATURE_MALFORMED;
    }
    stamp_put(shown, "v0:%.*s:", SLICE_ARGS(shown->time));
    return SIGNATURE_OK;
}

/* "v2,": an unknown version, to be skipped. */
static bool is_version(struct slice one)
{
    const char *comma = memchr(one.data, ',', one.len);
    for (size_t i = 0; comma != NULL && i < (size_t)(comma - one.data); i++) {
        char c = one.data[i];
        if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'))) {
            return false;
        }
    }
    return comma != NULL && one.data[0] == 'v';
}

/* "v1,<base64> v1a,<base64>". False: one of them is malformed, or there are too many. */
static bool take_standard(struct signature_shown *shown, struct slice list)
{
    static const struct slice v1 = SLICE_INIT("v1,");
    static const struct slice v1a = SLICE_INIT("v1a,");
    while (list.len > 0) {
        const char *blank = memchr(list.data, ' ', list.len);
        size_t len = blank == NULL ? list.len : (size_t)(blank - list.data);
        struct slice one = slice_of(list.data, len);
        list = after(list, blank == NULL ? len : len + 1);
        if (slice_starts(one, v1)) {
            if (!add_mac(shown, after(one, v1.len), SIGNATURE_BASE64)) {
                return false;
            }
        } else if (slice_starts(one, v1a)) {
            if (shown->ed25519_count == SIGNATURE_MANY_MAX ||
                !read_base64(after(one, v1a.len), shown->ed25519[shown->ed25519_count],
                    SIGNATURE_ED25519_BYTES)) {
                return false;
            }
            shown->ed25519_count++;
        } else if (one.len == 0 || !is_version(one)) {
            return false;
        }
    }
    return shown->mac_count + shown->ed25519_count > 0;
}

/* A dot in the id would let one signature stand for two requests: "a.1" at 2, and "a" at 1 with a
 * body that begins with "2.". */
static bool is_standard_id(struct slice id)
{
    return id.len > 0 && id.len <= ID_BYTES_MAX && memchr(id.data, '.', id.len) == NULL;
}

static enum signature_verdict family_field(
    const struct http_head *head, struct slice family, const char *name, struct slice *ret_value)
{
    char text[FIELD_NAME_BYTES_MAX];
    int len = snprintf(text, sizeof text, "%.*s%s", SLICE_ARGS(family), name);
    return field_of(head, slice_of(text, (size_t)len), ret_value);
}

static enum signature_verdict show_standard(
    const struct signature_rule *rule, const struct http_head *head, struct signature_shown *shown)
{
    struct slice family = rule->family;
    struct slice list = SLICE_EMPTY;
    enum signature_verdict verdict = family_field(head, family, "id", &shown->id);
    if (verdict == SIGNATURE_MISSING && !slice_is(family, "webhook-")) {
        family = SLICE_LIT("webhook-");
        verdict = family_field(head, family, "id", &shown->id);
    }
    verdict =
        verdict == SIGNATURE_OK ? family_field(head, family, "timestamp", &shown->time) : verdict;
    verdict = verdict == SIGNATURE_OK ? family_field(head, family, "signature", &list) : verdict;
    if (verdict != SIGNATURE_OK) {
        return verdict;
    }
    if (!is_standard_id(shown->id) || !is_time(shown->time) || !take_standard(shown, list)) {
        return SIGNATURE_MALFORMED;
    }
    stamp_put(shown, "%.*s.%.*s.", SLICE_ARGS(shown->id), SLICE_ARGS(shown->time));
    return SIGNATURE_OK;
}

/* ---- comparing ----------------------------------------------------------------------------- */

/* All of them are compared, whichever matches. */
static bool mac_holds(
    const struct signature_secret *secret, const struct signature_shown *shown, struct slice body)
{
    struct digest made;
    bool holds = false;
    if (shown->mac_count == 0) {
        return false;
    }
    digest_hmac_2(slice_of(secret->key, secret->key_bytes),
        slice_of(shown->stamp, shown->stamp_bytes), body, &made);
    for (size_t i = 0; i < shown->mac_count; i++) {
        holds |= digest_equal_secret(&made, &shown->macs[i]);
    }
    mem_wipe(&made, sizeof made);
    return holds;
}

static bool ed25519_holds(EVP_PKEY *key, const unsigned char *signature, struct slice message)
{
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    bool holds = context != NULL && EVP_DigestVerifyInit(context, NULL, NULL, NULL, key) == 1 &&
                 EVP_DigestVerify(context, signature, SIGNATURE_ED25519_BYTES,
                     (const unsigned char *)message.data, message.len) == 1;
    EVP_MD_CTX_free(context);
    return holds;
}

/* *ret_message has the signed bytes in one piece; made once. */
static enum signature_verdict ed25519_verify(const struct signature_secret *secret,
    const struct signature_shown *shown, struct slice body, struct arena *arena,
    struct slice *ret_message)
{
    if (shown->ed25519_count == 0) {
        return SIGNATURE_MISMATCH;
    }
    if (ret_message->len == 0) {
        char *place = arena_alloc(arena, shown->stamp_bytes + body.len);
        if (place == NULL) {
            return SIGNATURE_FAILED;
        }
        memcpy(place, shown->stamp, shown->stamp_bytes);
        if (body.len > 0) {
            memcpy(place + shown->stamp_bytes, body.data, body.len);
        }
        *ret_message = slice_of(place, shown->stamp_bytes + body.len);
    }
    (void)ERR_set_mark();
    EVP_PKEY *key =
        EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, NULL, secret->key, secret->key_bytes);
    bool holds = false;
    for (size_t i = 0; key != NULL && i < shown->ed25519_count; i++) {
        holds = holds || ed25519_holds(key, shown->ed25519[i], *ret_message);
    }
    EVP_PKEY_free(key);
    (void)ERR_pop_to_mark(); /* errors left there would be taken for TLS errors */
    return holds ? SIGNATURE_OK : SIGNATURE_MISMATCH;
}

static enum signature_verdict check_time(const struct signature_shown *shown, int64_t now_ms)
{
    uint64_t seconds = 0;
    if (shown->time.len == 0) {
        return SIGNATURE_OK;
    }
    bool is_read = text_u64(shown->time, &seconds);
    if (!is_read) {
        return SIGNATURE_MALFORMED; /* leading zeros */
    }
    int64_t skew = now_ms / SECOND_MS - (int64_t)seconds;
    return skew > SIGNATURE_SKEW_S_MAX    ? SIGNATURE_TOO_OLD
           : skew < -SIGNATURE_SKEW_S_MAX ? SIGNATURE_TOO_NEW
                                          : SIGNATURE_OK;
}

/* Texts of different lengths are compared by their digests, so that the time taken does not reveal
 * a length. */
static enum signature_verdict verify_bearer(
    const struct signature_keys *keys, const struct http_head *head, size_t *ret_secret)
{
    static const struct slice scheme = SLICE_INIT("Bearer ");
    struct slice value;
    struct digest shown, kept;
    enum signature_verdict verdict = field_of(head, SLICE_LIT("Authorization"), &value);
    if (verdict != SIGNATURE_OK) {
        return verdict;
    }
    if (value.len <= scheme.len || !http_same_name(slice_of(value.data, scheme.len), scheme)) {
        return SIGNATURE_MALFORMED;
    }
    value = after(value, scheme.len);
    digest_sha256(value.data, value.len, &shown);
    verdict = SIGNATURE_MISMATCH;
    for (size_t i = 0; i < keys->count; i++) {
        digest_sha256(keys->secrets[i].key, keys->secrets[i].key_bytes, &kept);
        if (digest_equal_secret(&shown, &kept)) {
            *ret_secret = i;
            verdict = SIGNATURE_OK;
        }
    }
    return verdict;
}

static enum signature_verdict show(
    const struct signature_rule *rule, const struct http_head *head, struct signature_shown *shown)
{
    switch (rule->scheme) {
    case SIGNATURE_BODY: return show_body(rule, head, shown);
    case SIGNATURE_STRIPE: return show_stripe(head, shown);
    case SIGNATURE_SLACK: return show_slack(head, shown);
    case SIGNATURE_STANDARD: return show_standard(rule, head, shown);
    case SIGNATURE_NOTHING:
    case SIGNATURE_BEARER: break;
    }
    return SIGNATURE_MALFORMED;
}

enum signature_verdict signature_verify(const struct signature_rule *rule,
    const struct signature_keys *keys, const struct http_head *head, struct slice body,
    int64_t now_ms, struct arena *arena, size_t *ret_secret)
{
    struct signature_shown shown = {.mac_count = 0};
    struct slice message = SLICE_EMPTY;
    if (rule->scheme == SIGNATURE_NOTHING) {
        *ret_secret = 0;
        return SIGNATURE_OK;
    }
    if (rule->scheme == SIGNATURE_BEARER) {
        return verify_bearer(keys, head, ret_secret);
    }
    enum signature_verdict verdict = show(rule, head, &shown);
    if (verdict != SIGNATURE_OK) {
        return verdict;
    }
    verdict = SIGNATURE_MISMATCH;
    for (size_t i = 0; i < keys->count && verdict == SIGNATURE_MISMATCH; i++) {
        const struct signature_secret *secret = &keys->secrets[i];
        if (secret->is_public) {
            verdict = ed25519_verify(secret, &shown, body, arena, &message);
        } else if (mac_holds(secret, &shown, body)) {
            verdict = SIGNATURE_OK;
        }
        *ret_secret = verdict == SIGNATURE_OK ? i : *ret_secret;
    }
    return verdict == SIGNATURE_OK ? check_time(&shown, now_ms) : verdict;
}

/* ---- signing ------------------------------------------------------------------------------- */

static void put_base64(struct buf *out, const void *bytes, size_t size)
{
    char text[BASE64_TEXT_BYTES(SIGNATURE_ED25519_BYTES)];
    char *end = base64_put(text, bytes, size, BASE64_PADDED);
    buf_append(out, text, (size_t)(end - text));
}

static enum status put_ed25519(const struct signature_secret *secret, struct slice stamp,
    struct slice body, struct buf *out, struct err *err)
{
    unsigned char made[SIGNATURE_ED25519_BYTES];
    size_t size = sizeof made;
    struct buf message;
    buf_init(&message, out->mem, stamp.len + body.len);
    buf_slice(&message, stamp);
    buf_slice(&message, body);
    EVP_PKEY *key =
        EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, NULL, secret->seed, sizeof secret->seed);
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    bool is_made =
        key != NULL && context != NULL && buf_status(&message) == OK &&
        EVP_DigestSignInit(context, NULL, NULL, NULL, key) == 1 &&
        EVP_DigestSign(context, made, &size, (const unsigned char *)message.data, message.len) == 1;
    EVP_MD_CTX_free(context);
    EVP_PKEY_free(key);
    buf_release(&message);
    if (!is_made) {
        return err_set(err, E_NOMEM, "out of memory for the signature");
    }
    buf_str(out, "v1a,");
    put_base64(out, made, sizeof made);
    return OK;
}

static enum status put_standard(const struct signature_rule *rule,
    const struct signature_secret *secret, const struct signature_stamp *stamp, struct buf *out,
    struct err *err)
{
    struct signature_shown shown = {.mac_count = 0};
    int64_t seconds = stamp->now_ms / SECOND_MS;
    if (!is_standard_id(stamp->id)) {
        return err_set(err, E_INVALID, "the id is empty, longer than %d bytes, or has a dot in it",
            (int)ID_BYTES_MAX);
    }
    stamp_put(&shown, "%.*s.%" PRId64 ".", SLICE_ARGS(stamp->id), seconds);
    struct slice front = slice_of(shown.stamp, shown.stamp_bytes);
    buf_printf(out,
        "%.*sid: %.*s\r\n%.*stimestamp: %" PRId64 "\r\n%.*ssignature: ", SLICE_ARGS(rule->family),
        SLICE_ARGS(stamp->id), SLICE_ARGS(rule->family), seconds, SLICE_ARGS(rule->family));
    enum status status = OK;
    if (secret->is_public) {
        status = put_ed25519(secret, front, stamp->body, out, err);
    } else {
        struct digest mac;
        digest_hmac_2(slice_of(secret->key, secret->key_bytes), front, stamp->body, &mac);
        buf_str(out, "v1,");
        put_base64(out, mac.bytes, sizeof mac.bytes);
    }
    buf_str(out, "\r\n");
    return status;
}

static void put_body(
    const struct signature_rule *rule, struct slice key, struct slice body, struct buf *out)
{
    struct digest mac;
    digest_hmac_2(key, body, SLICE_EMPTY, &mac);
    buf_printf(out, "%.*s: %.*s", SLICE_ARGS(rule->field), SLICE_ARGS(rule->prefix));
    if (rule->encoding == SIGNATURE_HEX) {
        buf_hex(out, mac.bytes, sizeof mac.bytes);
    } else {
        put_base64(out, mac.bytes, sizeof mac.bytes);
    }
    buf_str(out, "\r\n");
}

static void put_timed(const struct signature_rule *rule, struct slice key,
    const struct signature_stamp *stamp, struct buf *out)
{
    struct signature_shown shown = {.mac_count = 0};
    struct digest mac;
    int64_t seconds = stamp->now_ms / SECOND_MS;
    bool is_stripe = rule->scheme == SIGNATURE_STRIPE;
    stamp_put(&shown, is_stripe ? "%" PRId64 "." : "v0:%" PRId64 ":", seconds);
    digest_hmac_2(key, slice_of(shown.stamp, shown.stamp_bytes), stamp->body, &mac);
    if (is_stripe) {
        buf_printf(out, "Stripe-Signature: t=%" PRId64 ",v1=", seconds);
    } else {
        buf_printf(
            out, "X-Slack-Request-Timestamp: %" PRId64 "\r\nX-Slack-Signature: v0=", seconds);
    }
    buf_hex(out, mac.bytes, sizeof mac.bytes);
    buf_str(out, "\r\n");
}

enum status signature_put(const struct signature_rule *rule, const struct signature_secret *secret,
    const struct signature_stamp *stamp, struct buf *out, struct err *err)
{
    struct slice key = slice_of(secret->key, secret->key_bytes);
    enum status status = OK;
    if (secret->is_public && !secret->can_sign) {
        return err_set(err, E_INVALID, "a public key (whpk_) cannot sign: whsk_ can");
    }
    switch (rule->scheme) {
    case SIGNATURE_NOTHING: break;
    case SIGNATURE_BODY: put_body(rule, key, stamp->body, out); break;
    case SIGNATURE_STRIPE:
    case SIGNATURE_SLACK: put_timed(rule, key, stamp, out); break;
    case SIGNATURE_STANDARD: status = put_standard(rule, secret, stamp, out, err); break;
    case SIGNATURE_BEARER:
        buf_printf(out, "Authorization: Bearer %.*s\r\n", SLICE_ARGS(key));
        break;
    }
    if (status != OK) {
        return status;
    }
    return buf_status(out) == OK ? OK : err_set(err, E_NOMEM, "out of memory");
}
