#include "mcp/reply.h"

#include "canon/jcs.h"
#include "mcp/scan.h"

#define META_DECISION  "io.once/decision"
#define META_OPERATION "io.once/operation_id"

static void put_head(struct buf *out, struct slice id)
{
    buf_str(out, "{\"jsonrpc\":\"2.0\",\"id\":");
    buf_slice(out, id.len > 0 ? id : SLICE_LIT("null"));
}

static void put_member(struct buf *out, bool *comma, const char *name, const char *value)
{
    if (value == NULL || value[0] == '\0') {
        return;
    }
    buf_str(out, *comma ? ",\"" : "\"");
    buf_str(out, name);
    buf_str(out, "\":");
    jcs_put_string(out, slice_str(value));
    *comma = true;
}

/* The members of a server's _meta, then ours. A server that is itself behind Once has the same
 * names: ours replace them. */
static void put_meta(struct buf *out, const struct mcp_reply *reply, struct slice meta)
{
    struct mcp_scan scan;
    struct mcp_scan_item item;
    bool comma = false;
    buf_str(out, "\"_meta\":{");
    if (scan_begin(&scan, meta, '{')) {
        while (scan_next(&scan, &item)) {
            if (!slice_is(item.name, META_DECISION) && !slice_is(item.name, META_OPERATION)) {
                buf_str(out, comma ? "," : "");
                buf_slice(out, item.whole);
                comma = true;
            }
        }
    }
    put_member(out, &comma, META_DECISION, reply->decision);
    put_member(out, &comma, META_OPERATION, reply->operation_id);
    buf_char(out, '}');
}

void mcp_reply_text(
    struct buf *out, const struct mcp_reply *reply, bool is_error, struct slice text)
{
    put_head(out, reply->id);
    buf_str(out, ",\"result\":{\"content\":[{\"type\":\"text\",\"text\":");
    jcs_put_string(out, text);
    buf_str(out, is_error ? "}],\"isError\":true" : "}],\"isError\":false");
    if (reply->decision != NULL) {
        buf_char(out, ',');
        put_meta(out, reply, SLICE_EMPTY);
    }
    buf_str(out, "}}");
}

void mcp_reply_result(struct buf *out, const struct mcp_reply *reply, struct slice result)
{
    struct mcp_scan scan;
    struct mcp_scan_item item;
    struct mcp_scan_item meta = {.whole = SLICE_EMPTY};
    size_t members = 0;
    put_head(out, reply->id);
    buf_str(out, ",\"result\":");
    for (bool is_more = scan_begin(&scan, result, '{'); is_more && scan_next(&scan, &item);) {
        meta = slice_is(item.name, "_meta") ? item : meta;
        members++;
    }
    if (meta.whole.len > 0) {
        const char *after = meta.whole.data + meta.whole.len;
        buf_slice(out, slice_of(result.data, (size_t)(meta.whole.data - result.data)));
        put_meta(out, reply, meta.value);
        buf_slice(out, slice_of(after, (size_t)(result.data + result.len - after)));
    } else {
        buf_slice(out, slice_of(result.data, result.len - 1));
        buf_str(out, members > 0 ? "," : "");
        put_meta(out, reply, SLICE_EMPTY);
        buf_char(out, '}');
    }
    buf_char(out, '}');
}

void mcp_reply_error(struct buf *out, struct slice id, int code, const char *text)
{
    put_head(out, id);
    buf_str(out, ",\"error\":{\"code\":");
    buf_i64(out, code);
    buf_str(out, ",\"message\":");
    jcs_put_string(out, slice_str(text));
    buf_str(out, "}}");
}
