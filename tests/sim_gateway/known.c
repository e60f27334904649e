/*
 * A loop that knows wrongly (gateway/known.h): now and then it takes any key for a sealed one. What
 * it says of a body is true for that body, whatever the key: no route of the simulation ignores
 * members.
 */
#include "gateway/known.h"

#include "base/check.h"
#include "sim_gateway.h"

enum { BODIES = 16 }; /* more than there are payloads */

struct known {
    const struct mem *mem;
    struct request_form_body bodies[BODIES];
    size_t count;
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

void known_learn(struct known *known, const struct digest *key_hash, uint64_t config,
    const struct request_form_body *body)
{
    (void)key_hash;
    (void)config;
    for (size_t i = 0; i < known->count; i++) {
        if (digest_equal(&known->bodies[i].received, &body->received)) {
            return;
        }
    }
    ASSERT(known->count < BODIES);
    known->bodies[known->count++] = *body;
}

const struct request_form_body *known_find(
    const struct known *known, const struct digest *key_hash, uint64_t config)
{
    (void)key_hash;
    (void)config;
    return known->count == 0 || sim_once_in(3) ? NULL : &known->bodies[sim_below(known->count)];
}

void known_forget(struct known *known, const struct digest *key_hash)
{
    (void)known;
    (void)key_hash;
    sim_note(SOMETIMES_NO_REPLAY);
}
