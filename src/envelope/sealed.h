/*
 * sealed: encrypts the parts of an effect that must not be readable at rest: its payload, the
 * redacted payload, and the values that its compensation needs. Each is bound to its record.
 *
 * Promises:  those of the vault (base/vault.h).
 */
#ifndef ONCE_ENVELOPE_SEALED_H
#define ONCE_ENVELOPE_SEALED_H

#include "base/vault.h"
#include "core/record.h"

/* What a body of a record is sealed for. Points into the key. */
struct vault_name sealed_name(const struct record_key *key, enum record_kind kind);

/* Append the sealed or the plain form. Statuses are the vault's. */
enum status effect_seal(const struct vault *vault, const struct record_key *key, struct slice plain,
    struct buf *out, struct err *err) MUST_CHECK;
enum status effect_open(const struct vault *vault, const struct record_key *key,
    struct slice sealed, struct buf *out, struct err *err) MUST_CHECK;

#endif
