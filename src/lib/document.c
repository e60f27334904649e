/* The operation document of an operation that the library returned. */
#include "base/check.h"
#include "canon/payload.h"
#include "engine/operation_document.h"
#include "lib/handle.h"

/* Every byte of an outcome and a request escaped, and the rest. */
enum {
    DOCUMENT_BYTES_MAX = 6 * (LIMIT_OUTCOME_BYTES_MAX + LIMIT_REQUEST_KEPT_BYTES_MAX) + (1 << 20)
};

static struct slice bytes_of(struct once_bytes bytes)
{
    return bytes.data == NULL ? SLICE_EMPTY : slice_of(bytes.data, bytes.size);
}

/* The part of the operation's record that the document needs. */
static struct record record_of(const struct once_operation *operation)
{
    const struct once_outcome *outcome = &operation->outcome;
    struct record record = {
        .key = {.tenant = slice_str(operation->tenant),
            .scope = slice_str(operation->scope),
            .principal = slice_str(operation->principal),
            .key = slice_str(operation->key)},
        .status = (enum record_status)operation->status,
        .fence = operation->fence,
        .attempt = operation->attempt,
        .duplicates = operation->duplicates,
        .created_ms = operation->created_ms,
        .updated_ms = operation->updated_ms,
        .sealed_ms = operation->sealed_ms,
        .lease_expires_ms = operation->lease_expires_ms,
        .window_expires_ms = operation->window_expires_ms,
        .effect_id = slice_str(operation->effect_id),
        .reason = slice_str(operation->reason),
        .trace = slice_str(operation->trace),
        .source = {.type = slice_str(operation->source.type),
            .id = slice_str(operation->source.id),
            .version = slice_str(operation->source.version)},
        .fingerprint_version = operation->request_is_json ? FINGERPRINT_CANONICAL : FINGERPRINT_RAW,
        .outcome = {.code = outcome->code,
            .meta = bytes_of(outcome->meta),
            .body = {.bytes = outcome->body.size, .retained = operation->outcome_retained != 0}},
    };
    memcpy(record.fingerprint.bytes, operation->fingerprint, sizeof operation->fingerprint);
    return record;
}

static enum status write_document(struct once *once, const struct once_operation *operation,
    bool has_bodies, struct once_bytes *ret_json, struct err *err)
{
    struct record record;
    struct buf out;
    struct jsonw json = {.out = &out};
    if (once == NULL || operation == NULL || ret_json == NULL) {
        return err_set(err, E_MISUSE, "once, operation or ret_json is NULL");
    }
    record = record_of(operation);
    if (!op_id_read(slice_str(operation->operation_id), &record.operation_id)) {
        return err_set(err, E_MISUSE, "the operation is not one that the library handed out");
    }
    struct operation_document document = {.record = &record,
        .outcome_body = bytes_of(operation->outcome.body),
        .request_body = bytes_of(operation->request),
        .has_bodies = has_bodies};
    buf_init(&out, &once->mem, DOCUMENT_BYTES_MAX);
    jsonw_open(&json, NULL, '{');
    operation_document_put(&json, &document);
    jsonw_close(&json, '}');
    if (buf_status(&out) != OK) {
        buf_release(&out);
        return err_set(err, E_NOMEM, "out of memory");
    }
    *ret_json = (struct once_bytes){out.data, out.len}; /* owned by the caller from here on */
    return OK;
}

int once_document(struct once *once, const struct once_operation *operation, int has_bodies,
    struct once_bytes *ret_json, struct once_error *error)
{
    struct err err = {0};
    enum status status = write_document(once, operation, has_bodies != 0, ret_json, &err);
    return handle_error(error, status, &err);
}

void once_document_free(struct once *once, struct once_bytes json)
{
    if (json.data != NULL) {
        mem_free(&once->mem, (void *)(uintptr_t)json.data);
    }
}
