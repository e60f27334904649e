#include "envelope/sealed.h"

static struct vault_name name_of(const struct record_key *key)
{
    return (struct vault_name){.tenant = key->tenant,
        .key_hash = slice_of((const char *)key->hash.bytes, sizeof key->hash.bytes),
        .kind = RECORD_EFFECT};
}

enum status effect_seal(const struct vault *vault, const struct record_key *key, struct slice plain,
    struct buf *out, struct err *err)
{
    struct vault_name name = name_of(key);
    return vault_seal(vault, &name, plain, out, err);
}

enum status effect_open(const struct vault *vault, const struct record_key *key,
    struct slice sealed, struct buf *out, struct err *err)
{
    struct vault_name name = name_of(key);
    return vault_open(vault, &name, sealed, out, err);
}
