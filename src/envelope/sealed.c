#include "envelope/sealed.h"

struct vault_name sealed_name(const struct record_key *key, enum record_kind kind)
{
    return (struct vault_name){.tenant = key->tenant,
        .key_hash = slice_of((const char *)key->hash.bytes, sizeof key->hash.bytes),
        .kind = (unsigned)kind};
}

enum status effect_seal(const struct vault *vault, const struct record_key *key, struct slice plain,
    struct buf *out, struct err *err)
{
    struct vault_name name = sealed_name(key, RECORD_EFFECT);
    return vault_seal(vault, &name, plain, out, err);
}

enum status effect_open(const struct vault *vault, const struct record_key *key,
    struct slice sealed, struct buf *out, struct err *err)
{
    struct vault_name name = sealed_name(key, RECORD_EFFECT);
    return vault_open(vault, &name, sealed, out, err);
}
