#include <string.h>

#include "canon/jcs.h"
#include "lib/call.h"

/*
 * What is asked, as a fingerprint. JSON is compared by value: its canonical form is hashed. Where
 * the canonical form would change a number (9007199254740993), or the payload is no I-JSON, the
 * bytes themselves are hashed, so that two different payloads never look the same (P13).
 */

enum {
    TREE_BYTES_PER_BYTE = 64, /* a tree never takes more: a value of 24 bytes has two of text */
    TREE_BYTES_EXTRA = 65536, /* for tiny texts, as an arena grows in chunks */
    FORM_BYTES_PER_BYTE = 8,  /* 1e20 becomes 21 digits */
    FORM_BYTES_EXTRA = 64,
};

/* E_INVALID: it has no canonical form, or a lossy one. */
static enum status canonicalise(
    const struct mem *mem, struct slice text, struct buf *out, struct err *err)
{
    struct arena tree;
    arena_init(&tree, mem, text.len * TREE_BYTES_PER_BYTE + TREE_BYTES_EXTRA);
    const struct json_value *value;
    struct jcs_report report = {0};
    enum status status = json_read(text, &tree, &value, err);
    if (status == OK) {
        status = jcs_write(value, out, &report, err);
    }
    if (status == OK && report.lossy_count > 0) {
        status = E_INVALID;
    }
    arena_release(&tree);
    return status;
}

/* Keep the first body, so that a conflict can be explained. Its digest is the plain fingerprint. */
static enum status keep_body(
    struct lib_call *call, struct slice body, bool borrowed, const struct digest *digest)
{
    if (body.len == 0 || body.len > LIMIT_REQUEST_KEPT_BYTES_MAX) {
        return OK;
    }
    call->engine.request.request =
        (struct body_ref){.digest = *digest, .bytes = body.len, .retained = true};
    call->engine.request_body = body;
    return borrowed && !call->copies ? OK
                                     : arena_copy(&call->inputs, body, &call->engine.request_body);
}

static void take_digest(
    struct lib_call *call, const struct digest *plain, enum fingerprint_version version)
{
    engine_fingerprint(call->once->engine, plain, &call->engine.request.fingerprint);
    call->engine.request.fingerprint_version = (uint8_t)version;
}

static enum status take_bytes(struct lib_call *call, struct slice payload, struct err *err)
{
    struct buf form;
    struct digest plain;
    buf_init(&form, &call->once->mem, payload.len * FORM_BYTES_PER_BYTE + FORM_BYTES_EXTRA);
    enum status status = payload.len == 0 || payload.len > LIMIT_JSON_BYTES_MAX
                             ? E_INVALID
                             : canonicalise(&call->once->mem, payload, &form, err);
    if (status == OK) {
        digest_sha256(form.data, form.len, &plain);
        take_digest(call, &plain, FINGERPRINT_CANONICAL);
        status = keep_body(call, buf_view(&form), false, &plain);
    } else if (status == E_INVALID || status == E_LIMIT) {
        digest_sha256(payload.data, payload.len, &plain);
        take_digest(call, &plain, FINGERPRINT_RAW);
        status = keep_body(call, payload, true, &plain);
    }
    buf_release(&form);
    return status;
}

enum status call_take_payload(
    struct lib_call *call, const struct once_begin *begin, struct err *err)
{
    if (begin->fingerprint != NULL) {
        if (begin->payload.data != NULL || begin->payload.size > 0) {
            return err_set(err, E_INVALID, "both payload and fingerprint are given");
        }
        struct digest own;
        memcpy(own.bytes, begin->fingerprint, sizeof own.bytes);
        take_digest(call, &own, FINGERPRINT_OWN);
        return OK;
    }
    if (begin->payload.data == NULL && begin->payload.size > 0) {
        return err_set(err, E_INVALID, "payload has a size and no data");
    }
    return take_bytes(call, slice_of(begin->payload.data, begin->payload.size), err);
}
