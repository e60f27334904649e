#include "command/declared.h"

#include <string.h>

#include "base/macros.h"
#include "canon/jcs.h"
#include "canon/template.h"

enum { ROOTS = 7, VALUES_BYTES_MAX = 16 << 20 }; /* values are a part of the envelope's text */

/* What the templates can name: config/command_read.c has the same list. */
struct roots {
    struct template_root items[ROOTS];
    struct json_value command_id;
    struct json_value key;
    struct template_roots all;
};

static void roots_init(struct roots *roots, const struct declared_values *values)
{
    const struct json_value *envelope = values->envelope;
    const struct json_value *intent = json_find(envelope, SLICE_LIT("intent"));
    roots->command_id = template_string(values->command_id);
    roots->key = template_string(values->key);
    const struct template_root items[ROOTS] = {
        {SLICE_LIT("target"), json_find(intent, SLICE_LIT("target"))},
        {SLICE_LIT("args"), json_find(envelope, SLICE_LIT("args"))},
        {SLICE_LIT("actor_id"), json_find(envelope, SLICE_LIT("actor_id"))},
        {SLICE_LIT("effective_actor_id"), json_find(envelope, SLICE_LIT("effective_actor_id"))},
        {SLICE_LIT("command_id"), &roots->command_id},
        {SLICE_LIT("idempotency_key"), &roots->key},
        {SLICE_LIT("outcome"), values->outcome},
    };
    memcpy(roots->items, items, sizeof items);
    roots->all = (struct template_roots){.items = roots->items, .count = COUNT(roots->items)};
}

enum status declared_check(const struct config_command *command, const struct json_value *envelope,
    struct arena *arena, struct err *err)
{
    struct declared_values values = {.envelope = envelope};
    struct mem mem = arena_mem(arena);
    struct roots roots;
    enum status status = OK;
    roots_init(&roots, &values);
    for (size_t i = 0; status == OK && i < command->declared_count; i++) {
        const struct config_declared_effect *effect = &command->declared[i];
        const struct json_value *trees[] = {effect->payload, effect->target};
        for (size_t k = 0; status == OK && k < COUNT(trees); k++) {
            struct buf unused;
            buf_init(&unused, &mem, VALUES_BYTES_MAX);
            status = trees[k] == NULL
                         ? OK
                         : template_put_values(trees[k], &roots.all, "outcome", &unused, err);
        }
        if (status == E_INVALID) {
            err_prefix(err, "effect '%s'", effect->type);
        }
    }
    return status;
}

/* Two of one type have different keys, whatever their targets are. */
static unsigned ordinal_of(const struct config_command *command, size_t number)
{
    unsigned ordinal = 0;
    for (size_t i = 0; i < number; i++) {
        ordinal += strcmp(command->declared[i].type, command->declared[number].type) == 0;
    }
    return ordinal;
}

enum status declared_put(const struct config_command *command, size_t number,
    const struct declared_values *values, struct slice trace, struct buf *out, struct err *err)
{
    const struct config_declared_effect *effect = &command->declared[number];
    struct roots roots;
    roots_init(&roots, values);
    const struct json_value *target = roots.items[0].value;
    buf_str(out, "{\"effect_type\":");
    jcs_put_string(out, slice_str(effect->type));
    buf_printf(out, ",\"ordinal\":%u,\"payload\":", ordinal_of(command, number));
    enum status status = template_put_json(effect->payload, &roots.all, out, err);
    if (status == OK && effect->target != NULL) {
        buf_str(out, ",\"target\":");
        status = template_put_json(effect->target, &roots.all, out, err);
    } else if (status == OK && target != NULL) {
        buf_str(out, ",\"target\":");
        buf_slice(out, json_raw(values->text, target));
    }
    if (trace.len > 0) {
        buf_str(out, ",\"trace\":");
        buf_slice(out, trace);
    }
    buf_char(out, '}');
    if (status == OK && buf_status(out) != OK) {
        status = err_set(err, buf_status(out), "out of memory for an effect");
    }
    if (status == E_INVALID) {
        err_prefix(err, "declared effect '%s'", effect->type);
    }
    return status;
}
