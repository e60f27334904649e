/*
 * fuzz_effect_ack: what a provider answers, of any bytes. What is taken for an acknowledgement is
 * an object that says one of the four statuses, and says it again the same; its references point
 * into what was answered.
 */
#include <stdint.h>
#include <string.h>

#include "base/check.h"
#include "base/text.h"
#include "canon/json.h"
#include "effect/acknowledgement.h"

enum { MEMORY_MAX = 64 << 20 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_read(struct slice text, struct arena *arena)
{
    struct acknowledgement ack = {.status = EFFECT_ACK_NONE};
    struct acknowledgement again = {.status = EFFECT_ACK_NONE};
    const struct json_value *value = NULL;
    if (!acknowledgement_read(text, arena, &ack)) {
        ASSERT(ack.status == EFFECT_ACK_NONE); /* nothing is told of what is none */
        return;
    }
    ASSERT(ack.status != EFFECT_ACK_NONE && effect_ack_name(ack.status) != NULL);
    ASSERT(json_read(text, arena, &value, NULL) == OK && json_is(value, JSON_OBJECT));
    const struct json_value *status = json_find(value, SLICE_LIT("status"));
    ASSERT(slice_is(json_text(status), effect_ack_name(ack.status)));
    ASSERT(text_utf8(ack.provider_ref) && text_utf8(ack.effect_id));
    ASSERT(acknowledgement_read(text, arena, &again) && again.status == ack.status &&
           again.retryable == ack.retryable && slice_equal(again.provider_ref, ack.provider_ref));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct slice text = slice_of((const char *)data, size);
    struct outcall out = {.captured = text};
    struct arena arena;
    arena_init(&arena, &mem_libc, MEMORY_MAX);
    check_read(text, &arena);
    static const char *const places[] = {"", "/id", "/a/0/b", "header:Location"};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        struct slice ref = SLICE_EMPTY;
        ASSERT(text_utf8(acknowledgement_ref(places[i], &out, &arena)));
        if (acknowledgement_found(places[i], text, &arena, &ref) != ACKNOWLEDGEMENT_FOUND) {
            ASSERT(ref.len == 0);
        }
    }
    arena_release(&arena);
    return 0;
}
