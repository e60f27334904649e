#include "evidence/checkpoint.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdio.h>

#include "base/base64.h"
#include "base/check.h"
#include "base/text.h"
#include "base/uuid.h"

enum {
    SIGNATURE_BYTES = 64,               /* RFC 8032 section 5.1.6 */
    SIGNED_BYTES = 4 + SIGNATURE_BYTES, /* key id first, as in signed notes */
    SIGNED_TEXT_BYTES = (SIGNED_BYTES + 2) / 3 * 4,
    HASH_TEXT_BYTES = (32 + 2) / 3 * 4,
    KEY_BYTES = 1 + 32, /* 0x01 for Ed25519 first */
    KEY_TEXT_BYTES = KEY_BYTES / 3 * 4,
    ORIGIN_BYTES_MAX = 5 + 37, /* "once/", the chain id, a terminator */
    ALGORITHM_ED25519 = 0x01,  /* signed-note's number for it */
    NOTE_LINES = 6,
};

static_assert(KEY_BYTES % 3 == 0, "a public key needs no padding");

static char *put_base64(char *at, const void *bytes, size_t size)
{
    return base64_put(at, bytes, size, BASE64_PADDED);
}

/* Exactly size bytes, at most those of a signature. */
static bool read_base64(struct slice text, unsigned char *ret_bytes, size_t size)
{
    unsigned char bytes[BASE64_BYTES_MAX(SIGNED_TEXT_BYTES)];
    size_t found = 0;
    ASSERT(size <= SIGNED_BYTES);
    if (text.len != BASE64_TEXT_BYTES(size) || !base64_read(text, BASE64_PADDED, bytes, &found) ||
        found != size) {
        return false;
    }
    memcpy(ret_bytes, bytes, size);
    return true;
}

static enum status crypto_failed(struct err *err, const char *what)
{
    return err_set(err, E_UNAVAILABLE, "the crypto library cannot %s with Ed25519", what);
}

static void put_origin(char ret_text[ORIGIN_BYTES_MAX], const char *chain_id)
{
    int length = snprintf(ret_text, ORIGIN_BYTES_MAX, "once/%s", chain_id);
    ASSERT(length == ORIGIN_BYTES_MAX - 1); /* a truncated origin would give a different key id */
}

/* The key id of signed-note: SHA-256(name ‖ "\n" ‖ algorithm ‖ key), its first four bytes. */
static void make_key_id(struct checkpoint_key *key)
{
    char origin[ORIGIN_BYTES_MAX];
    unsigned char tail[1 + KEY_BYTES] = {'\n', ALGORITHM_ED25519};
    struct digest digest;
    put_origin(origin, key->chain_id);
    memcpy(tail + 2, key->ed25519, sizeof key->ed25519);
    digest_sha256_2(origin, strlen(origin), tail, sizeof tail, &digest);
    memcpy(key->key_id, digest.bytes, sizeof key->key_id);
}

static bool chain_id_read(struct slice text, char ret_text[37])
{
    unsigned char bytes[UUID_BYTES];
    if (!uuid_read(text, bytes)) {
        return false;
    }
    /* Compared with the canonical form, so that capital letters are not a second spelling. */
    return slice_is(text, uuid_put(ret_text, bytes));
}

enum status checkpoint_key_of(
    const struct store_identity *identity, struct checkpoint_key *ret_key, struct err *err)
{
    unsigned char public_key[32];
    enum status status = store_identity_public(identity, public_key, err);
    if (status == OK) {
        checkpoint_key_make(identity->chain_id, public_key, ret_key);
    }
    return status;
}

void checkpoint_key_make(const unsigned char chain_id[16], const unsigned char public_key[32],
    struct checkpoint_key *ret_key)
{
    struct checkpoint_key key = {0};
    memcpy(key.ed25519, public_key, sizeof key.ed25519);
    (void)uuid_put(key.chain_id, chain_id);
    make_key_id(&key);
    *ret_key = key;
}

char *checkpoint_key_put(char ret_text[CHECKPOINT_KEY_BYTES_MAX], const struct checkpoint_key *key)
{
    char id[2 * sizeof key->key_id + 1];
    unsigned char bytes[KEY_BYTES] = {ALGORITHM_ED25519};
    memcpy(bytes + 1, key->ed25519, sizeof key->ed25519);
    int length = snprintf(ret_text, CHECKPOINT_KEY_BYTES_MAX, "once/%s+%s+", key->chain_id,
        text_put_hex(id, key->key_id, sizeof key->key_id));
    ASSERT(length > 0 && (size_t)length + KEY_TEXT_BYTES < CHECKPOINT_KEY_BYTES_MAX);
    *put_base64(ret_text + length, bytes, sizeof bytes) = '\0';
    return ret_text;
}

enum status checkpoint_key_read(struct slice text, struct checkpoint_key *ret_key, struct err *err)
{
    enum { ID_AT = 5 + 36 + 1, KEY_AT = ID_AT + 8 + 1, BYTES = KEY_AT + KEY_TEXT_BYTES };
    struct checkpoint_key key;
    unsigned char bytes[KEY_BYTES];
    while (text.len > 0 && text.data[text.len - 1] == '\n') {
        text.len--; /* a file has one at its end */
    }
    if (text.len != BYTES || memcmp(text.data, "once/", 5) != 0 ||
        !chain_id_read(slice_of(text.data + 5, 36), key.chain_id) ||
        !read_base64(slice_of(text.data + KEY_AT, KEY_TEXT_BYTES), bytes, sizeof bytes) ||
        bytes[0] != ALGORITHM_ED25519) {
        return err_set(err, E_INVALID, "not a public key of the form once/<chain id>+<id>+<key>");
    }
    memcpy(key.ed25519, bytes + 1, sizeof key.ed25519);
    make_key_id(&key);
    char again[CHECKPOINT_KEY_BYTES_MAX];
    if (!slice_is(text, checkpoint_key_put(again, &key))) {
        return err_set(err, E_INVALID, "the id in the public key is not that of the key");
    }
    *ret_key = key;
    return OK;
}

/* The signed part: everything up to and including the line break before the empty line. */
static size_t put_body(char ret_text[CHECKPOINT_BYTES_MAX], const struct checkpoint *checkpoint)
{
    ASSERT(checkpoint->tie_count <= CHECKPOINT_TIES_MAX);
    char time[TEXT_TIME_BYTES];
    char hash[HASH_TEXT_BYTES + 1];
    *put_base64(hash, checkpoint->hash.bytes, sizeof checkpoint->hash.bytes) = '\0';
    int length = snprintf(ret_text, CHECKPOINT_BYTES_MAX, "once/%s\n%llu\n%s\ntime %s\n",
        checkpoint->chain_id, (unsigned long long)checkpoint->seq, hash,
        text_put_time(time, checkpoint->time_ms));
    ASSERT(length > 0 && length < CHECKPOINT_BYTES_MAX);
    size_t at = (size_t)length;
    for (size_t i = 0; i < checkpoint->tie_count; i++) {
        const struct checkpoint_tie *tie = &checkpoint->ties[i];
        *put_base64(hash, tie->hash.bytes, sizeof tie->hash.bytes) = '\0';
        length = snprintf(ret_text + at, CHECKPOINT_BYTES_MAX - at, "chain %s %llu %s\n",
            tie->chain_id, (unsigned long long)tie->seq, hash);
        ASSERT(length > 0 && (size_t)length < CHECKPOINT_BYTES_MAX - at);
        at += (size_t)length;
    }
    return at;
}

/* The whole note: the body, the empty line, the signature line. */
static size_t put_note(char ret_text[CHECKPOINT_BYTES_MAX], const struct checkpoint *checkpoint,
    const unsigned char signed_bytes[SIGNED_BYTES])
{
    size_t at = put_body(ret_text, checkpoint);
    int length = snprintf(
        ret_text + at, CHECKPOINT_BYTES_MAX - at, "\n\xe2\x80\x94 once/%s ", checkpoint->chain_id);
    ASSERT(length > 0);
    at += (size_t)length;
    ASSERT(at + SIGNED_TEXT_BYTES + 1 <= CHECKPOINT_BYTES_MAX);
    char *end = put_base64(ret_text + at, signed_bytes, SIGNED_BYTES);
    *end++ = '\n';
    return (size_t)(end - ret_text);
}

static bool sign(
    const unsigned char seed[32], struct slice body, unsigned char ret_signature[SIGNATURE_BYTES])
{
    size_t size = SIGNATURE_BYTES;
    EVP_PKEY *pair = EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, NULL, seed, 32);
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    bool ok = pair != NULL && context != NULL &&
              EVP_DigestSignInit(context, NULL, NULL, NULL, pair) == 1 &&
              EVP_DigestSign(
                  context, ret_signature, &size, (const unsigned char *)body.data, body.len) == 1 &&
              size == SIGNATURE_BYTES;
    EVP_MD_CTX_free(context);
    EVP_PKEY_free(pair); /* clears the private half */
    return ok;
}

enum status checkpoint_compose(const struct chain *chain, const struct store_identity *identity,
    int64_t time_ms, struct buf *out, struct entry *ret_entry, struct err *err)
{
    return checkpoint_compose_tied(chain, identity, time_ms, NULL, 0, out, ret_entry, err);
}

enum status checkpoint_compose_tied(const struct chain *chain,
    const struct store_identity *identity, int64_t time_ms, const struct checkpoint_tie *ties,
    size_t tie_count, struct buf *out, struct entry *ret_entry, struct err *err)
{
    struct checkpoint checkpoint = {
        .seq = chain->seq, .hash = chain->hash, .time_ms = time_ms, .tie_count = tie_count};
    struct checkpoint_key key;
    ASSERT(tie_count <= CHECKPOINT_TIES_MAX);
    ASSERT(ties != NULL || tie_count == 0);
    for (size_t i = 0; i < tie_count; i++) {
        checkpoint.ties[i] = ties[i];
    }
    char note[CHECKPOINT_BYTES_MAX];
    unsigned char signed_bytes[SIGNED_BYTES];
    enum status status = checkpoint_key_of(identity, &key, err);
    if (status != OK) {
        return status;
    }
    /* A note signed for a different chain would be refused by everybody. */
    ASSERT(strcmp(chain->chain_id, key.chain_id) == 0);
    memcpy(checkpoint.chain_id, key.chain_id, sizeof checkpoint.chain_id);
    size_t body_bytes = put_body(note, &checkpoint);
    memcpy(signed_bytes, key.key_id, sizeof key.key_id);
    if (!sign(
            identity->signing_seed, slice_of(note, body_bytes), signed_bytes + sizeof key.key_id)) {
        return crypto_failed(err, "sign");
    }
    size_t note_bytes = put_note(note, &checkpoint, signed_bytes);
    ASSERT(body_bytes < note_bytes); /* P10: what was signed is the start of the note */
    size_t at = out->len;
    buf_append(out, note, note_bytes);
    if (buf_status(out) != OK) {
        return err_set(err, buf_status(out), "no room for a checkpoint of %zu bytes", note_bytes);
    }
    *ret_entry = (struct entry){.kind = ENTRY_CHECKPOINT,
        .seq = chain->seq,
        .hash = chain->hash,
        .time_ms = time_ms,
        .bytes = slice_of(out->data + at, note_bytes)};
    return OK;
}

/* Splits a text into exactly count lines, each ended by a line break. */
static bool split_lines(struct slice text, struct slice *ret_lines, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const char *end = text.len == 0 ? NULL : memchr(text.data, '\n', text.len);
        if (end == NULL) {
            return false;
        }
        ret_lines[i] = slice_of(text.data, (size_t)(end - text.data));
        text = slice_of(end + 1, text.len - ret_lines[i].len - 1);
    }
    return text.len == 0;
}

/* "chain <chain id> <seq> <hash>" */
static bool read_tie(struct slice line, struct checkpoint_tie *ret_tie)
{
    enum { ID_AT = 6, SEQ_AT = ID_AT + 36 + 1 };
    if (line.len < SEQ_AT + 2 + HASH_TEXT_BYTES || memcmp(line.data, "chain ", ID_AT) != 0) {
        return false;
    }
    size_t hash_at = line.len - HASH_TEXT_BYTES;
    return chain_id_read(slice_of(line.data + ID_AT, 36), ret_tie->chain_id) &&
           text_u64(slice_of(line.data + SEQ_AT, hash_at - 1 - SEQ_AT), &ret_tie->seq) &&
           read_base64(slice_of(line.data + hash_at, HASH_TEXT_BYTES), ret_tie->hash.bytes,
               sizeof ret_tie->hash.bytes);
}

/* Reads the lines between the time and the empty line. */
static bool read_ties(const struct slice *lines, size_t count, struct checkpoint *checkpoint)
{
    ASSERT(count <= CHECKPOINT_TIES_MAX);
    bool ok = true;
    for (size_t i = 0; i < count && ok; i++) {
        ok = read_tie(lines[i], &checkpoint->ties[i]);
    }
    checkpoint->tie_count = count;
    return ok;
}

static size_t count_lines(struct slice text)
{
    size_t count = 0;
    for (size_t i = 0; i < text.len; i++) {
        count += text.data[i] == '\n';
    }
    return count;
}

/* Reads the members of a note. The caller checks that they are in canonical form. */
static bool read_note(
    struct slice text, struct checkpoint *ret_checkpoint, unsigned char ret_signed[SIGNED_BYTES])
{
    struct slice lines[NOTE_LINES + CHECKPOINT_TIES_MAX];
    size_t count = text.len > CHECKPOINT_BYTES_MAX ? 0 : count_lines(text);
    if (count < NOTE_LINES || count > NOTE_LINES + CHECKPOINT_TIES_MAX ||
        !split_lines(text, lines, count)) {
        return false;
    }
    struct slice signature = lines[count - 1];
    return lines[0].len > 5 && read_ties(lines + 4, count - NOTE_LINES, ret_checkpoint) &&
           chain_id_read(slice_of(lines[0].data + 5, lines[0].len - 5), ret_checkpoint->chain_id) &&
           text_u64(lines[1], &ret_checkpoint->seq) &&
           read_base64(lines[2], ret_checkpoint->hash.bytes, sizeof ret_checkpoint->hash.bytes) &&
           lines[3].len > 5 &&
           text_time(slice_of(lines[3].data + 5, lines[3].len - 5), &ret_checkpoint->time_ms) &&
           signature.len > SIGNED_TEXT_BYTES &&
           read_base64(
               slice_of(signature.data + signature.len - SIGNED_TEXT_BYTES, SIGNED_TEXT_BYTES),
               ret_signed, SIGNED_BYTES);
}

/* OpenSSL has three answers: valid, invalid, and could not check. */
static enum status check_signature(struct slice body, const unsigned char *signature,
    const struct checkpoint_key *key, struct err *err)
{
    EVP_PKEY *public_half =
        EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, NULL, key->ed25519, sizeof key->ed25519);
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    bool ready = public_half != NULL && context != NULL &&
                 EVP_DigestVerifyInit(context, NULL, NULL, NULL, public_half) == 1;
    bool right = ready && EVP_DigestVerify(context, signature, SIGNATURE_BYTES,
                              (const unsigned char *)body.data, body.len) == 1;
    EVP_MD_CTX_free(context);
    EVP_PKEY_free(public_half);
    if (!ready) {
        return crypto_failed(err, "check a signature");
    }
    return right ? OK : err_set(err, E_CORRUPT, "the checkpoint's signature is invalid");
}

enum status checkpoint_verify(struct slice text, const struct checkpoint_key *key,
    struct checkpoint *ret_checkpoint, struct err *err)
{
    struct checkpoint checkpoint;
    unsigned char signed_bytes[SIGNED_BYTES];
    char again[CHECKPOINT_BYTES_MAX];
    if (!read_note(text, &checkpoint, signed_bytes) ||
        !slice_equal(text, slice_of(again, put_note(again, &checkpoint, signed_bytes)))) {
        return err_set(err, E_INVALID, "not a checkpoint as Once writes it");
    }
    if (strcmp(checkpoint.chain_id, key->chain_id) != 0) {
        return err_set(err, E_CORRUPT, "the checkpoint belongs to a different chain, %s, not %s",
            checkpoint.chain_id, key->chain_id);
    }
    if (memcmp(signed_bytes, key->key_id, sizeof key->key_id) != 0) {
        return err_set(err, E_CORRUPT, "the checkpoint is signed with a different key");
    }
    size_t body_bytes = put_body(again, &checkpoint);
    ASSERT(body_bytes < text.len); /* the text is the note of this body */
    enum status status = check_signature(
        slice_of(text.data, body_bytes), signed_bytes + sizeof key->key_id, key, err);
    if (status == OK) {
        *ret_checkpoint = checkpoint;
    }
    return status;
}

/* ---- where other chains stand ------------------------------------------------------------- */

struct ties {
    struct checkpoint_tie *ties;
    int64_t ranks[CHECKPOINT_TIES_MAX];
    size_t count;
    const char *own;
};

/* Chains without a key come first, then those active most recently. */
static int64_t tie_rank(const struct store_chain *chain)
{
    static const unsigned char none[32];
    bool is_signed = memcmp(chain->public_key, none, sizeof none) != 0;
    return !is_signed ? INT64_MAX : chain->seen_ms > 0 ? chain->seen_ms : chain->started_ms;
}

static bool take_tie(void *context, const struct store_chain *chain)
{
    struct ties *ties = context;
    struct checkpoint_tie tie = {.seq = chain->seq, .hash = chain->hash};
    size_t at = ties->count;
    (void)uuid_put(tie.chain_id, chain->chain_id);
    if (chain->seq == 0 || strcmp(tie.chain_id, ties->own) == 0) {
        return true;
    }
    if (at == CHECKPOINT_TIES_MAX) {
        at = 0;
        for (size_t i = 1; i < CHECKPOINT_TIES_MAX; i++) {
            at = ties->ranks[i] < ties->ranks[at] ? i : at;
        }
        if (tie_rank(chain) < ties->ranks[at]) {
            return true;
        }
    } else {
        ties->count++;
    }
    ASSERT(at < CHECKPOINT_TIES_MAX);
    ties->ties[at] = tie;
    ties->ranks[at] = tie_rank(chain);
    return true;
}

enum status checkpoint_ties_read(struct store *store, const char *own_chain_id,
    struct checkpoint_tie ret_ties[CHECKPOINT_TIES_MAX], size_t *ret_count, struct err *err)
{
    struct ties ties = {.ties = ret_ties, .own = own_chain_id};
    enum status status = store->ops->shared ? store->ops->chains(store, take_tie, &ties, err) : OK;
    ASSERT(ties.count <= CHECKPOINT_TIES_MAX);
    if (status == OK) {
        *ret_count = ties.count;
    }
    return status;
}
