#include "lib/effects.h"

#include "base/check.h"
#include "envelope/body_vault.h"

enum {
    TEXT_BYTES_MAX = 16 << 20, /* effects_bytes_max: some payloads at their limit */
    ARENA_BYTES_MAX = 1 << 30, /* the tree, the sealed bodies and the answers of such a text */
};

/* ---- types ---------------------------------------------------------------------------------- */

/* The first fault, as `once check` prints it; a config that was refused has one. */
static enum status say_fault(
    const char *path, const struct config_faults *faults, enum status status, struct err *err)
{
    if (status != E_INVALID || faults->count == 0) {
        return err_set(err, status, "cannot read the configuration '%s'", path);
    }
    const struct config_fault *fault = &faults->items[0];
    (void)(fault->line == 0 ? err_set(err, E_INVALID, "%s", fault->text)
                            : err_set(err, E_INVALID, "%s:%u:%u: %s", path, fault->line,
                                  fault->column, fault->text));
    if (fault->hint != NULL) {
        err_hint(err, "%s", fault->hint);
    }
    return E_INVALID;
}

static enum status read_config(
    struct once *once, const char *path, struct config **ret_config, struct err *err)
{
    struct slice text = SLICE_EMPTY;
    struct config *config = NULL;
    enum status status = config_new(&once->mem, &config, err);
    struct config_faults *faults = status == OK ? mem_zalloc(&once->mem, 1, sizeof *faults) : NULL;
    if (faults == NULL) {
        config_free(config);
        return E_NOMEM;
    }
    status = config_file_text(config, "configuration", path, &text, faults);
    status = status == OK ? config_read(config, text, faults) : status;
    status = status == OK ? config_check(config, faults) : status;
    if (status != OK) {
        (void)say_fault(path, faults, status, err);
        config_free(config);
    } else {
        *ret_config = config;
    }
    mem_free(&once->mem, faults);
    return status;
}

static enum status take_types(struct once *once, const char *path, struct err *err)
{
    struct config *config = NULL;
    struct vault *vault = NULL;
    enum status status = handle_writes(once, err);
    if (status == OK && path == NULL) {
        status = err_set(err, E_MISUSE, "config_file is NULL");
    }
    status = status == OK ? read_config(once, path, &config, err) : status;
    if (status != OK) {
        return status;
    }
    (void)pthread_mutex_lock(&once->lock);
    if (once->vault == NULL) {
        status = body_vault_new(config, once->store_url, &once->mem, &vault, err);
        once->vault = vault;
    }
    if (status == OK) {
        struct config *before = once->config;
        once->config = config;
        config = before;
    }
    (void)pthread_mutex_unlock(&once->lock);
    config_free(config);
    return status;
}

int once_effect_types(struct once *once, const char *config_file, struct once_error *error)
{
    struct err err = {0};
    return handle_error(error, take_types(once, config_file, &err), &err);
}

/* ---- effects of a seal ---------------------------------------------------------------------- */

/* The types as they are now; release them with config_free. */
static enum status hold_types(struct once *once, struct config **ret_config, struct err *err)
{
    (void)pthread_mutex_lock(&once->lock);
    *ret_config = once->config == NULL ? NULL : config_hold(once->config);
    (void)pthread_mutex_unlock(&once->lock);
    if (*ret_config != NULL) {
        return OK;
    }
    (void)err_set(err, E_INVALID, "effects are given, and their types are not known");
    err_hint(err, "call once_effect_types with the configuration of the server that sends them");
    return E_INVALID;
}

static enum status read_list(struct lib_effects *effects, struct slice json,
    const struct json_value **ret_list, struct effect_sender *sender, struct err *err)
{
    enum status status = json.len > TEXT_BYTES_MAX
                             ? err_set(err, E_INVALID,
                                   "effects are %zu bytes long, more than effects_bytes_max (%d)",
                                   json.len, TEXT_BYTES_MAX)
                             : arena_copy(&effects->arena, json, &sender->text);
    status = status == OK ? json_read(sender->text, &effects->arena, ret_list, err) : status;
    if (status == E_INVALID && json.len <= TEXT_BYTES_MAX) {
        err_prefix(err, "effects");
    }
    return status;
}

static enum status read_effects(struct once *once, const struct once_seal *seal, struct slice json,
    struct lib_effects *effects, struct err *err)
{
    struct config *config = NULL;
    const struct json_value *list = NULL;
    struct member_fault fault = {.code = NULL};
    enum status status = hold_types(once, &config, err);
    if (status != OK) {
        return status;
    }
    struct effect_sender sender = {.types = &config->effects,
        .vault = once->vault,
        .engine = once->engine,
        .arena = &effects->arena,
        .tenant = once->tenant};
    status = read_list(effects, json, &list, &sender, err);
    if (status == OK) {
        status = arena_copy(&effects->arena, slice_str(seal->operation_id), &sender.command_id);
    }
    if (status == OK) {
        status = arena_copy(&effects->arena, slice_str(seal->request_id), &sender.request_id);
    }
    if (status == OK) {
        status = seal_effects_read(&sender, list, &effects->list, &fault);
        *err = status == OK ? *err : fault.err;
    }
    config_free(config);
    return status;
}

enum status lib_effects_new(struct once *once, const struct once_seal *seal,
    const struct once_bytes *json, struct lib_effects **ret_effects, struct err *err)
{
    struct lib_effects *effects = mem_zalloc(&once->mem, 1, sizeof *effects);
    if (effects == NULL) {
        return E_NOMEM;
    }
    arena_init(&effects->arena, &once->mem, ARENA_BYTES_MAX);
    enum status status =
        json->data == NULL
            ? err_set(err, E_INVALID, "effects are not given; an empty list is \"[]\"")
            : read_effects(once, seal, slice_of(json->data, json->size), effects, err);
    if (status == OK) {
        size_t room = seal_effects_bytes_max(&effects->list);
        buf_init(&effects->shown, &once->mem, room);
        status = buf_reserve(&effects->shown, room);
    }
    if (status != OK) {
        lib_effects_free(once, effects);
        return status;
    }
    *ret_effects = effects;
    return OK;
}

void lib_effects_free(struct once *once, struct lib_effects *effects)
{
    if (effects != NULL) {
        buf_release(&effects->shown);
        arena_release(&effects->arena);
        mem_free(&once->mem, effects);
    }
}

struct slice lib_effects_document(struct lib_effects *effects, int64_t sealed_ms)
{
    struct jsonw json = {.out = &effects->shown};
    buf_clear(&effects->shown);
    seal_effects_put(&json, NULL, &effects->list, sealed_ms);
    ASSERT(buf_status(&effects->shown) == OK); /* the room was reserved */
    return buf_view(&effects->shown);
}

size_t lib_effects_refused(const struct lib_effects *effects)
{
    const struct engine_call *refused = seal_effects_refused(&effects->list);
    size_t at = 0;
    while (refused != NULL && effects->list.calls[at++] != refused) {
    }
    return at;
}
