#include "inbox/frame.h"

enum { VERSION = 1 };

void frame_put(struct buf *out, const struct kept_event *frame)
{
    buf_char(out, VERSION);
    buf_le32(out, (uint32_t)frame->type.len);
    buf_le32(out, (uint32_t)frame->fields.len);
    buf_slice(out, frame->type);
    buf_slice(out, frame->fields);
    buf_slice(out, frame->bytes);
}

static uint32_t le32(const char *at)
{
    const unsigned char *bytes = (const unsigned char *)at;
    return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 |
           (uint32_t)bytes[3] << 24;
}

enum status frame_read(struct slice text, struct kept_event *ret_frame, struct err *err)
{
    if (text.len < FRAME_HEAD_BYTES || text.data[0] != VERSION) {
        return err_set(err, E_CORRUPT, "the kept event is not one");
    }
    size_t type_len = le32(text.data + 1);
    size_t fields_len = le32(text.data + 5);
    size_t rest = text.len - FRAME_HEAD_BYTES;
    if (type_len > rest || fields_len > rest - type_len) {
        return err_set(err, E_CORRUPT, "the kept event is cut");
    }
    const char *at = text.data + FRAME_HEAD_BYTES;
    *ret_frame = (struct kept_event){.type = slice_of(at, type_len),
        .fields = slice_of(at + type_len, fields_len),
        .bytes = slice_of(at + type_len + fields_len, rest - type_len - fields_len)};
    return OK;
}

bool frame_field(struct slice *fields, struct slice *ret_name, struct slice *ret_value)
{
    const char *end = fields->len < 2 ? NULL : memmem(fields->data, fields->len, "\r\n", 2);
    size_t len = end == NULL ? 0 : (size_t)(end - fields->data);
    const char *colon = len == 0 ? NULL : memmem(fields->data, len, ": ", 2);
    if (colon == NULL) {
        return false;
    }
    size_t name_len = (size_t)(colon - fields->data);
    *ret_name = slice_of(fields->data, name_len);
    *ret_value = slice_of(colon + 2, len - name_len - 2);
    *fields = slice_of(end + 2, fields->len - len - 2);
    return true;
}
