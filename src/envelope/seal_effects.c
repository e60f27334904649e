#include "envelope/seal_effects.h"

#include <stdio.h>

#include "base/limits.h"

enum {
    PLAIN_BYTES = 512, /* of one effect: its id, its URL, its status and the names of members */
    ESCAPED_BYTES = 6, /* of one byte of a key, as \u00xx */
};

enum status seal_effects_read(const struct effect_sender *sender, const struct json_value *list,
    struct seal_effects *ret_effects, struct member_fault *fault)
{
    ret_effects->count = 0;
    if (list == NULL) {
        return OK;
    }
    if (list->type != JSON_ARRAY || list->count > SEAL_EFFECTS_MAX) {
        return member_refuse(fault, NULL,
            "member 'effects' must be an array of at most seal_effects_max (%d) effects",
            SEAL_EFFECTS_MAX);
    }
    for (uint32_t i = 0; i < list->count; i++) {
        struct effect_order order;
        struct engine_call *effect = arena_zalloc(sender->arena, sizeof *effect);
        enum status status =
            effect == NULL ? err_set(&fault->err, E_NOMEM, "out of memory")
                           : effect_envelope_read(sender, &list->items[i], effect, &order, fault);
        if (status == OK && effect->wait_ms != 0) {
            status = member_refuse(fault, NULL, "member 'wait' must not be given in a seal");
        }
        if (status != OK) {
            err_prefix(&fault->err, "effects[%u]", i);
            return status;
        }
        effect->needs_previous = true;
        ret_effects->calls[ret_effects->count++] = effect;
    }
    return OK;
}

size_t seal_effects_bytes_max(const struct seal_effects *effects)
{
    return PLAIN_BYTES + effects->count * (PLAIN_BYTES + ESCAPED_BYTES * LIMIT_KEY_BYTES_MAX +
                                              ESCAPED_BYTES * LIMIT_EFFECT_ID_BYTES_MAX);
}

/* The caller may have given one. */
static struct slice name_of(const struct engine_call *effect, char id[KIND_ID_TEXT_BYTES])
{
    const struct record *record = &effect->decision.next;
    struct effect_detail detail = {.ordinal = 0};
    struct err err;
    if (effect_detail_may_have(record->detail, "effect_id")) {
        /* An invalid detail is reported when the effect is shown; Once's own id names it, too. */
        (void)!effect_detail_decode(record->detail, effect->arena, &detail, &err);
    }
    return effect_name(record, &detail, id);
}

void seal_effects_put(
    struct jsonw *json, const char *name, const struct seal_effects *effects, int64_t sealed_ms)
{
    char id[KIND_ID_TEXT_BYTES];
    char url[64];
    jsonw_open(json, name, '[');
    for (size_t i = 0; i < effects->count; i++) {
        const struct record *effect = &effects->calls[i]->decision.next;
        (void)snprintf(url, sizeof url, "/v1/effects/%s",
            kind_id_put(id, RECORD_EFFECT, &effect->operation_id));
        bool is_made = effect->created_ms == sealed_ms; /* in the same commit */
        jsonw_open(json, NULL, '{');
        jsonw_bytes(json, "effect_id", name_of(effects->calls[i], id));
        jsonw_bytes(json, "idempotency_key", effect->key.key);
        jsonw_str(json, "status",
            is_made ? kind_word(RECORD_EFFECT, RECORD_PENDING, 0)
                    : kind_word(RECORD_EFFECT, effect->status, effect->attempt));
        jsonw_str(json, "status_url", url);
        jsonw_close(json, '}');
    }
    jsonw_close(json, ']');
}

const struct engine_call *seal_effects_refused(const struct seal_effects *effects)
{
    for (size_t i = 0; i < effects->count; i++) {
        if (effects->calls[i]->refused) {
            return effects->calls[i];
        }
    }
    return NULL;
}
