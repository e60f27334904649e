#include "gateway/sealed_keys.h"

#include <string.h>

#include "base/check.h"

struct sealed_key {
    struct digest key_hash;
    uint64_t config; /* 0: the slot is empty */
    struct request_form_body body;
};

struct sealed_keys {
    const struct mem *mem;
    struct sealed_key slots[SEALED_KEYS_SLOTS];
};

struct sealed_keys *sealed_keys_new(const struct mem *mem)
{
    struct sealed_keys *keys = mem_zalloc(mem, 1, sizeof *keys);
    if (keys != NULL) {
        keys->mem = mem;
    }
    return keys;
}

void sealed_keys_free(struct sealed_keys *keys)
{
    if (keys != NULL) {
        mem_free(keys->mem, keys);
    }
}

static size_t slot_of(const struct digest *key_hash)
{
    uint32_t start;
    memcpy(&start, key_hash->bytes, sizeof start);
    return start % SEALED_KEYS_SLOTS;
}

void sealed_keys_learn(struct sealed_keys *keys, const struct digest *key_hash, uint64_t config,
    const struct request_form_body *body)
{
    ASSERT(config > 0);
    keys->slots[slot_of(key_hash)] =
        (struct sealed_key){.key_hash = *key_hash, .config = config, .body = *body};
}

const struct request_form_body *sealed_keys_find(
    const struct sealed_keys *keys, const struct digest *key_hash, uint64_t config)
{
    ASSERT(config > 0);
    const struct sealed_key *slot = &keys->slots[slot_of(key_hash)];
    bool is_same = slot->config == config && digest_equal(&slot->key_hash, key_hash);
    return is_same ? &slot->body : NULL;
}

void sealed_keys_forget(struct sealed_keys *keys, const struct digest *key_hash)
{
    struct sealed_key *slot = &keys->slots[slot_of(key_hash)];
    if (digest_equal(&slot->key_hash, key_hash)) {
        slot->config = 0;
    }
}
