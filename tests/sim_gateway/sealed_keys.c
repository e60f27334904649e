/*
 * A loop that knows wrongly (gateway/sealed_keys.h): now and then it takes any key for a sealed
 * one. What it says of a body is true for that body, whatever the key: no route of the simulation
 * ignores members.
 */
#include "gateway/sealed_keys.h"

#include "base/check.h"
#include "sim_gateway.h"

enum { BODIES = 16 }; /* more than there are payloads */

struct sealed_keys {
    const struct mem *mem;
    struct request_form_body bodies[BODIES];
    size_t count;
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

void sealed_keys_learn(struct sealed_keys *keys, const struct digest *key_hash, uint64_t config,
    const struct request_form_body *body)
{
    (void)key_hash;
    (void)config;
    for (size_t i = 0; i < keys->count; i++) {
        if (digest_equal(&keys->bodies[i].received, &body->received)) {
            return;
        }
    }
    ASSERT(keys->count < BODIES);
    keys->bodies[keys->count++] = *body;
}

const struct request_form_body *sealed_keys_find(
    const struct sealed_keys *keys, const struct digest *key_hash, uint64_t config)
{
    (void)key_hash;
    (void)config;
    return keys->count == 0 || sim_once_in(3) ? NULL : &keys->bodies[sim_below(keys->count)];
}

void sealed_keys_forget(struct sealed_keys *keys, const struct digest *key_hash)
{
    (void)keys;
    (void)key_hash;
    sim_note(SOMETIMES_NO_REPLAY);
}
