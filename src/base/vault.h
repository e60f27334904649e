/*
 * vault: encrypts bodies that will be sent later, so that they are unreadable at rest
 * (docs/effects.md).
 *
 *     sealed = version (1) ‖ key id (4) ‖ nonce (12) ‖ AES-256-GCM ciphertext ‖ tag (16)
 *
 * A sealed body is bound to the record it belongs to: its tenant, the hash of its key and its kind
 * are authenticated with it, so that a body moved to a different record does not open.
 *
 * Promises:  VT1 what does not authenticate is E_CORRUPT, and no byte of it is given out.
 *            VT2 the first key seals; all keys open. To rotate, put the new key first, and remove
 *                the old one when nothing sealed with it is left.
 *            VT3 a key file that others can read is refused.
 *            VT4 keys are wiped before their memory is given back, and no error text holds one.
 * Limits:    nonces are random: 2^32 bodies a key keep the odds of a repeated one below 2^-32
 *            (NIST SP 800-38D section 8.3). Rotate before that.
 * Does not:  keep bodies, or know a record.
 * Threads:   vault_seal and vault_open from any thread; a vault does not change once made.
 */
#ifndef ONCE_BASE_VAULT_H
#define ONCE_BASE_VAULT_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/err.h"

enum {
    VAULT_KEY_BYTES = 32,
    VAULT_KEYS_MAX = 16,       /* a rotation needs two */
    VAULT_OVERHEAD_BYTES = 33, /* by how much a sealed body is longer */
};

struct vault;

struct vault_options {
    const struct mem *mem;        /* NULL: the C library's */
    const char *const *key_files; /* 32 bytes, or 64 hex digits and the end of a line */
    size_t key_file_count;        /* 0: the key at own_path */
    const char *own_path;         /* made with mode 0600 when it is absent; NULL: there is none */
    bool is_ephemeral;            /* without both: a key that ends with the process, like everything
                                     sealed with it */
};

/* E_INVALID: a key file is not a key, or others can read it, or there is none; the text names the
 * file or the setting. E_UNAVAILABLE: it cannot be read or made. E_NOMEM. */
enum status vault_new(
    const struct vault_options *options, struct vault **ret_vault, struct err *err) MUST_CHECK;
/* NULL is fine. */
void vault_free(struct vault *vault);

/* The path of the key in a journal's directory. False: it is too long. */
bool vault_path(const char *dir, char *ret_path, size_t size) MUST_CHECK;
/* Copies that key to the directory of a different journal, with mode 0600, flushed. *ret_copied is
 * false if there is none. The caller flushes the directory. E_UNAVAILABLE, E_INVALID. */
enum status vault_copy_key(
    const char *from_dir, const char *to_dir, bool *ret_copied, struct err *err) MUST_CHECK;

/* What a body belongs to. */
struct vault_name {
    struct slice tenant;
    struct slice key_hash; /* of the record's key */
    unsigned kind;         /* enum record_kind */
};

/* Append the sealed form. E_UNAVAILABLE: no random bytes. E_NOMEM, E_LIMIT. */
enum status vault_seal(const struct vault *vault, const struct vault_name *name, struct slice plain,
    struct buf *out, struct err *err) MUST_CHECK;
/* Append the plain form. E_CORRUPT: it was changed, or belongs to something else. E_INVALID: it was
 * sealed with a key that is not among ours. E_NOMEM, E_LIMIT. */
enum status vault_open(const struct vault *vault, const struct vault_name *name,
    struct slice sealed, struct buf *out, struct err *err) MUST_CHECK;

#endif
