#include "canon/jsonw.h"

#include "base/base64.h"
#include "base/text.h"
#include "canon/jcs.h"

static void put_base64(struct buf *out, struct slice bytes)
{
    buf_char(out, '"');
    char *text = buf_extend(out, BASE64_TEXT_BYTES(bytes.len));
    if (text != NULL) {
        (void)base64_put(text, bytes.data, bytes.len, BASE64_PADDED);
    }
    buf_char(out, '"');
}

static void put_name(struct jsonw *json, const char *name, const char *suffix)
{
    if (json->comma) {
        buf_char(json->out, ',');
    }
    json->comma = true;
    if (name != NULL) {
        buf_char(json->out, '"');
        buf_str(json->out, name);
        buf_str(json->out, suffix);
        buf_append(json->out, "\":", 2);
    }
}

void jsonw_open(struct jsonw *json, const char *name, char bracket)
{
    put_name(json, name, "");
    buf_char(json->out, bracket);
    json->comma = false;
}

void jsonw_close(struct jsonw *json, char bracket)
{
    buf_char(json->out, bracket);
    json->comma = true;
}

void jsonw_bytes(struct jsonw *json, const char *name, struct slice bytes)
{
    if (text_utf8(bytes)) {
        put_name(json, name, "");
        jcs_put_string(json->out, bytes);
        return;
    }
    put_name(json, name, "_base64");
    put_base64(json->out, bytes);
}

void jsonw_str(struct jsonw *json, const char *name, const char *text)
{
    jsonw_bytes(json, name, slice_str(text));
}

void jsonw_str_some(struct jsonw *json, const char *name, const char *text)
{
    if (text != NULL && text[0] != '\0') {
        jsonw_str(json, name, text);
    }
}

void jsonw_u64(struct jsonw *json, const char *name, uint64_t value)
{
    put_name(json, name, "");
    buf_u64(json->out, value);
}

void jsonw_i64(struct jsonw *json, const char *name, int64_t value)
{
    put_name(json, name, "");
    buf_i64(json->out, value);
}

void jsonw_real(struct jsonw *json, const char *name, double value)
{
    put_name(json, name, "");
    buf_printf(json->out, "%.3f", value);
}

void jsonw_bool(struct jsonw *json, const char *name, bool value)
{
    put_name(json, name, "");
    buf_str(json->out, value ? "true" : "false");
}

void jsonw_time(struct jsonw *json, const char *name, int64_t ms)
{
    char text[TEXT_TIME_BYTES];
    if (ms != 0) {
        jsonw_str(json, name, text_put_time(text, ms));
    }
}

void jsonw_raw(struct jsonw *json, const char *name, struct slice value)
{
    put_name(json, name, "");
    buf_slice(json->out, value);
}

void jsonw_bytes_some(struct jsonw *json, const char *name, struct slice bytes)
{
    if (bytes.len > 0) {
        jsonw_bytes(json, name, bytes);
    }
}

void jsonw_raw_some(struct jsonw *json, const char *name, struct slice value)
{
    if (value.len > 0) {
        jsonw_raw(json, name, value);
    }
}

void jsonw_digest_some(struct jsonw *json, const char *name, const struct digest *digest)
{
    static const struct digest zero;
    char hex[DIGEST_HEX_BYTES];
    if (!digest_equal(digest, &zero)) {
        jsonw_str(json, name, digest_put_hex(hex, digest));
    }
}
