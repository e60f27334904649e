/* Makes one source from its settings: its rules, and its secrets from their files and variables. */
#include <stdlib.h>

#include "base/secret.h"
#include "inbox/inbox.h"
#include "inbox/plan.h"

enum { SECRET_FILE_BYTES_MAX = 4096 };

static enum status take_text(const struct config_source *of,
    const struct config_source_secret *from, struct buf *out, struct slice *ret_text,
    struct err *err)
{
    enum status status = OK;
    if (from->text != NULL) {
        *ret_text = slice_str(from->text);
        return OK;
    }
    if (from->env != NULL) {
        const char *value = getenv(from->env);
        if (value == NULL) {
            return err_set(err, E_INVALID, "source '%s': the variable %s of its secret is not set",
                of->name, from->env);
        }
        *ret_text = slice_str(value);
        return OK;
    }
    status = secret_read("secret", from->file, out, err);
    if (status != OK) {
        err_prefix(err, "source '%s'", of->name);
        return status;
    }
    *ret_text = secret_line(buf_view(out));
    return OK;
}

static enum status take_secret(struct inbox_source *source, const struct config_source_secret *from,
    const struct mem *mem, struct err *err)
{
    struct buf file;
    struct slice text = SLICE_EMPTY;
    buf_init(&file, mem, SECRET_FILE_BYTES_MAX);
    enum status status = take_text(source->config, from, &file, &text, err);
    if (status == OK) {
        status = signature_secret_read(
            &source->signature, text, &source->secrets[source->secret_count], err);
        if (status == OK) {
            source->secret_count++;
        } else {
            err_prefix(err, "source '%s', %s %s", source->config->name,
                from->file != NULL ? "file" : "variable",
                from->file != NULL ? from->file : from->env);
        }
    }
    secret_release(&file);
    return status;
}

static enum status take_token(struct inbox_source *source, const struct mem *mem, struct err *err)
{
    const struct config_source_secret *from = &source->config->verify_token;
    struct buf file;
    struct slice text = SLICE_EMPTY;
    if (from->text == NULL && from->env == NULL && from->file == NULL) {
        return OK;
    }
    buf_init(&file, mem, SECRET_FILE_BYTES_MAX);
    enum status status = take_text(source->config, from, &file, &text, err);
    if (status == OK) {
        digest_sha256(text.data, text.len, &source->verify_token);
        source->has_token = true;
    }
    secret_release(&file);
    return status;
}

static void take_rules(struct inbox_source *source)
{
    const struct config_source *config = source->config;
    source->preset = &presets[config->preset];
    source->signature = source->preset->signature;
    if (config->secret_count == 0) {
        source->signature.scheme = SIGNATURE_NOTHING; /* the configuration refuses any other */
    }
    if (config->preset == CONFIG_PRESET_HMAC) {
        source->signature.encoding =
            config->signature_encoding == CONFIG_ENCODING_BASE64 ? SIGNATURE_BASE64 : SIGNATURE_HEX;
        source->signature.prefix = slice_str(config->signature_prefix);
        if (config->signature_header != NULL) {
            source->signature.field = slice_str(config->signature_header);
        }
    }
    source->rule = (struct event_rule){.preset = source->preset,
        .name = slice_str(config->name),
        .id_field = slice_str(config->key_header),
        .id_pointer = slice_str(config->key_json),
        .order_source = slice_str(config->order_source_id),
        .order_version = slice_str(config->order_version)};
    source->window_ms = config->window_ms > 0 ? config->window_ms : source->preset->window_ms;
}

enum status inbox_source_init(struct inbox_source *source, const struct config_source *config,
    const struct mem *mem, struct err *err)
{
    *source = (struct inbox_source){.config = config};
    take_rules(source);
    enum status status = OK;
    for (size_t i = 0; status == OK && i < config->secret_count; i++) {
        status = take_secret(source, &config->secrets[i], mem, err);
    }
    status = status == OK ? take_token(source, mem, err) : status;
    if (status != OK) {
        inbox_source_release(source);
    }
    return status;
}

void inbox_source_release(struct inbox_source *source)
{
    for (size_t i = 0; i < source->secret_count; i++) {
        signature_secret_release(&source->secrets[i]);
    }
    source->secret_count = 0;
}

enum status inbox_secret_check(
    const struct config_source *config, size_t nth, const struct mem *mem, struct err *err)
{
    const struct config_source_secret *from = &config->secrets[nth];
    struct inbox_source source = {.config = config};
    struct err absent;
    struct buf file;
    struct slice text = SLICE_EMPTY;
    buf_init(&file, mem, SECRET_FILE_BYTES_MAX);
    take_rules(&source);
    enum status status = take_text(config, from, &file, &text, &absent) == OK
                             ? take_secret(&source, from, mem, err)
                             : OK;
    secret_release(&file);
    inbox_source_release(&source);
    return status;
}
