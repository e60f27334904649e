#include "gateway/known.h"

#include <string.h>

#include "base/check.h"

struct known_slot {
    struct digest key_hash;
    uint64_t config; /* 0: the slot is empty */
    struct request_form_body body;
};

struct known {
    const struct mem *mem;
    struct known_slot slots[KNOWN_SLOTS];
};

struct known *known_new(const struct mem *mem)
{
    struct known *known = mem_zalloc(mem, 1, sizeof *known);
    if (known != NULL) {
        known->mem = mem;
    }
    return known;
}

void known_free(struct known *known)
{
    if (known != NULL) {
        mem_free(known->mem, known);
    }
}

static size_t slot_of(const struct digest *key_hash)
{
    uint32_t start;
    memcpy(&start, key_hash->bytes, sizeof start);
    return start % KNOWN_SLOTS;
}

void known_learn(struct known *known, const struct digest *key_hash, uint64_t config,
    const struct request_form_body *body)
{
    ASSERT(config > 0);
    known->slots[slot_of(key_hash)] =
        (struct known_slot){.key_hash = *key_hash, .config = config, .body = *body};
}

const struct request_form_body *known_find(
    const struct known *known, const struct digest *key_hash, uint64_t config)
{
    ASSERT(config > 0);
    const struct known_slot *slot = &known->slots[slot_of(key_hash)];
    bool is_same = slot->config == config && digest_equal(&slot->key_hash, key_hash);
    return is_same ? &slot->body : NULL;
}

void known_forget(struct known *known, const struct digest *key_hash)
{
    struct known_slot *slot = &known->slots[slot_of(key_hash)];
    if (digest_equal(&slot->key_hash, key_hash)) {
        slot->config = 0;
    }
}
