/*
 * Writes the changes that a different configuration makes to connectors and types of effect to the
 * evidence (CCO-13): one config.changed entry for each change and each tenant that may use the
 * connector. A secret is named by the first 16 digits of its SHA-256: a change of the secret is
 * visible, but the secret is not.
 */
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "base/secret.h"
#include "canon/digest.h"
#include "effect/impl.h"

enum { SECRET_BYTES_MAX = 64 << 10, NOTE_ARENA_BYTES = 1 << 20 };

/* ---- secrets ----------------------------------------------------------------------------- */

static const struct config_secret *secret_of(const struct config_effect_auth *auth)
{
    return auth->bearer.file != NULL || auth->bearer.env != NULL ? &auth->bearer
           : auth->basic.file != NULL || auth->basic.env != NULL ? &auth->basic
                                                                 : &auth->header_value;
}

static void mark(const struct config_secret *secret, char ret_hex[17])
{
    struct buf text;
    struct digest digest;
    char hex[DIGEST_HEX_BYTES];
    const char *variable = secret->env == NULL ? NULL : getenv(secret->env);
    ret_hex[0] = '\0';
    buf_init(&text, &mem_libc, SECRET_BYTES_MAX);
    if (secret->file != NULL && secret_read("secret", secret->file, &text, NULL) == OK) {
        struct slice line = secret_line(buf_view(&text));
        digest_sha256(line.data, line.len, &digest);
    } else if (variable != NULL) {
        digest_sha256(variable, strlen(variable), &digest);
    } else {
        secret_release(&text);
        return;
    }
    memcpy(ret_hex, digest_put_hex(hex, &digest), 16);
    ret_hex[16] = '\0';
    secret_release(&text);
}

void effects_mark_secrets(
    const struct config *config, struct secret_mark ret_marks[CONFIG_CONNECTORS_MAX])
{
    memset(ret_marks, 0, CONFIG_CONNECTORS_MAX * sizeof *ret_marks);
    for (size_t i = 0; i < config->effects.connector_count; i++) {
        const struct config_connector *connector = &config->effects.connectors[i];
        ret_marks[i].connector = connector->name;
        mark(secret_of(&connector->auth), ret_marks[i].hex);
    }
}

/* ---- notes ------------------------------------------------------------------------------- */

static enum status note(
    struct effects *effects, struct slice tenant, struct slice reason, struct err *err)
{
    struct arena arena;
    struct note change = {.kind = NOTE_CONFIG_CHANGED,
        .tenant = tenant,
        .reason = slice_of(reason.data,
            reason.len > LIMIT_REASON_BYTES_MAX ? LIMIT_REASON_BYTES_MAX : reason.len)};
    struct engine_call call = {.note = &change, .arena = &arena};
    arena_init(&arena, effects->mem, NOTE_ARENA_BYTES);
    enum status status = engine_do(door_engine(effects->door), &call);
    if (status != OK) {
        *err = call.err;
    }
    arena_release(&arena);
    return status;
}

static bool is_first_of(const struct config *config, size_t token)
{
    for (size_t i = 0; i < token; i++) {
        if (slice_equal(config->tokens[i].tenant, config->tokens[token].tenant)) {
            return false;
        }
    }
    return !slice_is(config->tokens[token].tenant, "*");
}

/* Write it for every tenant that may use the connector. */
static enum status record_change(struct effects *effects, const struct config *config,
    const struct config_connector *connector, struct slice reason, struct err *err)
{
    enum status status = OK;
    for (size_t i = 0; status == OK && i < connector->tenant_count; i++) {
        status = note(effects, slice_str(connector->tenants[i]), reason, err);
    }
    if (connector->tenant_count > 0) {
        return status;
    }
    for (size_t i = 0; status == OK && i < config->token_count; i++) {
        status = is_first_of(config, i) ? note(effects, config->tokens[i].tenant, reason, err) : OK;
    }
    return status == OK && config->token_count == 0
               ? note(effects, SLICE_LIT("default"), reason, err)
               : status;
}

/* ---- changes ----------------------------------------------------------------------------- */

static const struct config_connector *connector_named(const struct config *config, const char *name)
{
    for (size_t i = 0; i < config->effects.connector_count; i++) {
        if (strcmp(config->effects.connectors[i].name, name) == 0) {
            return &config->effects.connectors[i];
        }
    }
    return NULL;
}

static const char *mark_named(const struct secret_mark *marks, const char *name)
{
    for (size_t i = 0; i < CONFIG_CONNECTORS_MAX && marks[i].connector != NULL; i++) {
        if (strcmp(marks[i].connector, name) == 0) {
            return marks[i].hex;
        }
    }
    return "";
}

/* Describe the change of one connector: appends nothing if it is the same. */
static void put_connector(const struct config_connector *before,
    const struct config_connector *after, const char *old_mark, const char *new_mark,
    struct buf *out)
{
    if (before == NULL || after == NULL) {
        buf_printf(out, "connector '%s' %s", before == NULL ? after->name : before->name,
            before == NULL ? "added" : "removed");
    } else {
        struct buf changes;
        buf_init(&changes, out->mem, 4096);
        config_connector_changes(before, after, &changes);
        if (changes.len > 0 || strcmp(old_mark, new_mark) != 0) {
            buf_printf(
                out, "connector '%s' changed:%.*s", after->name, SLICE_ARGS(buf_view(&changes)));
        }
        buf_release(&changes);
    }
    if (out->len > 0 && strcmp(old_mark, new_mark) != 0) {
        buf_printf(out, " secret sha256:%s", new_mark[0] == '\0' ? "none" : new_mark);
    }
}

static void put_type(
    const struct config_effect *before, const struct config_effect *after, struct buf *out)
{
    if (before == NULL || after == NULL) {
        buf_printf(out, "effect type '%s' %s", before == NULL ? after->name : before->name,
            before == NULL ? "added" : "removed");
        return;
    }
    struct buf changes;
    buf_init(&changes, out->mem, 4096);
    config_effect_changes(before, after, &changes);
    if (changes.len > 0) {
        buf_printf(
            out, "effect type '%s' changed:%.*s", after->name, SLICE_ARGS(buf_view(&changes)));
    }
    buf_release(&changes);
}

/* The configuration before and after; each name is compared once. */
struct config_step {
    struct effects *effects;
    const struct config *before;
    const struct config *after;
    struct secret_mark *marks; /* of after */
    struct buf text;
    struct err *err;
};

static enum status record_connector(struct config_step *self, const char *name)
{
    const struct config_connector *before = connector_named(self->before, name);
    const struct config_connector *after = connector_named(self->after, name);
    buf_clear(&self->text);
    put_connector(before, after, mark_named(self->effects->marks, name),
        mark_named(self->marks, name), &self->text);
    return self->text.len == 0
               ? OK
               : record_change(self->effects, self->after, after == NULL ? before : after,
                     buf_view(&self->text), self->err);
}

static enum status record_type(struct config_step *self, const char *name)
{
    const struct config_effect *before =
        config_effect_find(&self->before->effects, slice_str(name));
    const struct config_effect *after = config_effect_find(&self->after->effects, slice_str(name));
    buf_clear(&self->text);
    put_type(before, after, &self->text);
    return self->text.len == 0
               ? OK
               : record_change(self->effects, self->after,
                     (after == NULL ? before : after)->connector, buf_view(&self->text), self->err);
}

static enum status record_all(struct config_step *self)
{
    const struct config_effects *old = &self->before->effects;
    const struct config_effects *new = &self->after->effects;
    enum status status = OK;
    for (size_t i = 0; status == OK && i < new->connector_count; i++) {
        status = record_connector(self, new->connectors[i].name);
    }
    for (size_t i = 0; status == OK && i < old->connector_count; i++) {
        if (connector_named(self->after, old->connectors[i].name) == NULL) {
            status = record_connector(self, old->connectors[i].name);
        }
    }
    for (size_t i = 0; status == OK && i < new->type_count; i++) {
        status = record_type(self, new->types[i].name);
    }
    for (size_t i = 0; status == OK && i < old->type_count; i++) {
        if (config_effect_find(new, slice_str(old->types[i].name)) == NULL) {
            status = record_type(self, old->types[i].name);
        }
    }
    return status;
}

enum status effects_note_change(
    struct effects *effects, const struct config *config, struct err *err)
{
    struct config_step self = {
        .effects = effects, .before = effects->config, .after = config, .err = err};
    self.marks = mem_zalloc(effects->mem, CONFIG_CONNECTORS_MAX, sizeof *self.marks);
    if (self.marks == NULL) {
        return err_set(err, E_NOMEM, "out of memory");
    }
    effects_mark_secrets(config, self.marks);
    buf_init(&self.text, effects->mem, 8192);
    enum status status = record_all(&self);
    buf_release(&self.text);
    mem_free(effects->mem, self.marks);
    return status;
}
