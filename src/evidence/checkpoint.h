/*
 * checkpoint: a signed note about the length and hash of a chain of evidence.
 *
 * The text is a signed note (C2SP signed-note) whose body is a checkpoint (C2SP tlog-checkpoint):
 *
 *     once/01920000-0000-7000-8000-000000000001        origin: "once/" and the chain id
 *     128                                              size: seq of the last entry covered
 *     CsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=     its chained hash, base64
 *     time 2026-11-15T19:23:27.123Z                    extension line: when it was signed
 *     chain 01920000-… 12 CsUYapGGPo4d…                of a shared store: the end of a different
 *                                                      chain, its seq and hash; up to eight
 *                                                      empty line
 *     — once/01920000-… Az3grlgtzPICa5OS8npVmf1Myq/…   base64(key id ‖ Ed25519 signature)
 *
 * The signature covers the text up to and including the line break before the empty line. Unlike in
 * a tlog, the hash is the head of a hash chain, not a Merkle root.
 *
 * Promises:  one text for one content: the reader accepts only the writer's form, so any changed
 *            byte is refused. Private keys are wiped from our memory after use.
 * Does not:  keep or find keys; they come from the store's identity or from the caller.
 */
#ifndef ONCE_EVIDENCE_CHECKPOINT_H
#define ONCE_EVIDENCE_CHECKPOINT_H

#include "evidence/entry.h"

enum {
    CHECKPOINT_TIES_MAX = 8,           /* other chains that one note vouches for */
    CHECKPOINT_BYTES_MAX = 512 + 1024, /* a note is about 270 bytes, and 110 for each tie */
    CHECKPOINT_KEY_BYTES_MAX = 128,    /* a public key as text is 98 bytes, and its terminator */
};

/* The key that notes must be signed with. */
struct checkpoint_key {
    char chain_id[37];         /* a UUID as text */
    unsigned char key_id[4];   /* first bytes of SHA-256(name ‖ "\n" ‖ 0x01 ‖ key) */
    unsigned char ed25519[32]; /* RFC 8032 public key */
};

/* The end of a different chain at the time of the note. With a copy of the note, cutting or
 * rewriting that chain is detected even if its own process is gone or never had a key. */
struct checkpoint_tie {
    char chain_id[37];
    uint64_t seq;
    struct digest hash;
};

struct checkpoint {
    char chain_id[37];  /* whose chain */
    uint64_t seq;       /* of the last entry covered; 0 for an empty chain */
    struct digest hash; /* of that entry; zero for an empty chain */
    int64_t time_ms;    /* when it was signed */
    struct checkpoint_tie ties[CHECKPOINT_TIES_MAX];
    size_t tie_count;
};

/* The public half of a store's identity. E_UNAVAILABLE: the crypto library has no Ed25519. */
enum status checkpoint_key_of(const struct store_identity *identity, struct checkpoint_key *ret_key,
    struct err *err) MUST_CHECK;
/* The key of a chain that a shared store knows (store_chain). */
void checkpoint_key_make(const unsigned char chain_id[16], const unsigned char public_key[32],
    struct checkpoint_key *ret_key);
/* "once/<chain id>+<key id, hex>+<base64(0x01 ‖ key)>": a C2SP verifier key. Returns ret_text. */
char *checkpoint_key_put(char ret_text[CHECKPOINT_KEY_BYTES_MAX], const struct checkpoint_key *key);
/* E_INVALID: it is not such a text, or the key id does not match the key. */
enum status checkpoint_key_read(
    struct slice text, struct checkpoint_key *ret_key, struct err *err) MUST_CHECK;

/*
 * Signs the end of the chain. The text is appended to out; ret_entry points into it and is ready to
 * be committed. E_LIMIT, E_NOMEM, E_UNAVAILABLE: nothing was appended.
 */
enum status checkpoint_compose(const struct chain *chain, const struct store_identity *identity,
    int64_t time_ms, struct buf *out, struct entry *ret_entry, struct err *err) MUST_CHECK;

/* The same with the ends of other chains: the chain id, seq and hash of each. */
enum status checkpoint_compose_tied(const struct chain *chain,
    const struct store_identity *identity, int64_t time_ms, const struct checkpoint_tie *ties,
    size_t tie_count, struct buf *out, struct entry *ret_entry, struct err *err) MUST_CHECK;
/* The chains that a note of this chain should tie: first those without their own key, then the most
 * recently active ones. Fails as store_ops.chains does. */
enum status checkpoint_ties_read(struct store *store, const char *own_chain_id,
    struct checkpoint_tie ret_ties[CHECKPOINT_TIES_MAX], size_t *ret_count,
    struct err *err) MUST_CHECK;

/* Reads a note and checks its signature. E_INVALID: it is not such a note. E_CORRUPT: it belongs to
 * a different chain or key, or the signature is invalid. E_UNAVAILABLE: the crypto library has no
 * Ed25519. */
enum status checkpoint_verify(struct slice text, const struct checkpoint_key *key,
    struct checkpoint *ret_checkpoint, struct err *err) MUST_CHECK;

#endif
