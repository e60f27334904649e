#include "canon/payload.h"

#include "base/limits.h"
#include "canon/jcs.h"

enum {
    TREE_BYTES_PER_BYTE = 64, /* a tree never takes more: a value of 24 bytes has two of text */
    TREE_BYTES_EXTRA = 65536, /* for tiny texts, as an arena grows in chunks */
    FORM_BYTES_PER_BYTE = 8,  /* 1e20 becomes 21 digits */
    FORM_BYTES_EXTRA = 64,
};

size_t payload_form_bytes_max(size_t text_bytes)
{
    return text_bytes * FORM_BYTES_PER_BYTE + FORM_BYTES_EXTRA;
}

/* E_INVALID: it has no canonical form, or a lossy one. */
static enum status write_form(const struct json_value *value, struct buf *form)
{
    struct jcs_report report = {0};
    enum status status = jcs_write(value, form, &report, NULL);
    return status == OK && report.lossy_count > 0 ? E_INVALID : status;
}

static enum status read_and_write(struct slice text, struct buf *form)
{
    struct arena tree;
    const struct json_value *value;
    arena_init(&tree, form->mem, text.len * TREE_BYTES_PER_BYTE + TREE_BYTES_EXTRA);
    enum status status = json_read(text, &tree, &value, NULL);
    if (status == OK) {
        status = write_form(value, form);
    }
    arena_release(&tree);
    return status;
}

enum status payload_fingerprint(struct slice text, const struct json_value *value, struct buf *form,
    struct payload *ret_payload)
{
    size_t start = form->len;
    enum status status = E_INVALID;
    if (value != NULL) {
        status = write_form(value, form);
    } else if (text.len > 0 && text.len <= LIMIT_JSON_BYTES_MAX) {
        status = read_and_write(text, form);
    }
    if (status == OK) {
        ret_payload->version = FINGERPRINT_CANONICAL;
        ret_payload->form = slice_of(form->data + start, form->len - start);
    } else if (status == E_INVALID || status == E_LIMIT) {
        form->len = start; /* nothing half-written stays */
        ret_payload->version = FINGERPRINT_RAW;
        ret_payload->form = value == NULL ? text : json_raw(text, value);
    } else {
        return status;
    }
    digest_sha256(ret_payload->form.data, ret_payload->form.len, &ret_payload->digest);
    return OK;
}
