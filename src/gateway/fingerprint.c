#include "base/check.h"
#include "base/limits.h"
#include "canon/jcs.h"
#include "canon/jsonw.h"
#include "gateway/request_form.h"

enum {
    /* The tree of a usual body is three to four times its size. A body that needs more than five
     * times, and more than 8 MiB, is as long as a file and as dense as a list of digits: it is
     * taken raw, so that a flood of large bodies does not multiply in memory. */
    TREE_BYTES_PER_BYTE = 5,
    TREE_BYTES_SMALL = 8 << 20,
    MARKS_BYTES_MAX = 4 << 20, /* for as many pointers as a configuration may have */
    PART_LENGTH_BYTES = 8,     /* before each part of a fingerprint */
    PARTS_BYTES_EXTRA = 256,   /* lengths, label, flag, version and digest */
    KEPT_BYTES_EXTRA = 256,    /* of a kept form beside its body, as a rule */
    BODY_BYTES_SMALL = 1024,   /* tree and form fit into what a request has allocated anyway */
};

/* A request that is being read. */
struct body_reading {
    const struct request_form_parts *from;
    const struct json_value *tree; /* of the body; NULL: not JSON, or too large for a tree */
    struct arena *trees;           /* holds the tree: the request's, or … */
    struct arena own;   /* … of a longer body, this one, which ends before the request */
    struct arena marks; /* holds the values that pointers find in it */
    struct mem lasting; /* the request's arena */
    struct buf text;    /* the form that is compared, if it is canonical; with the tree */
    struct request_form_body body;
};

/* ---- the body's form ----------------------------------------------------------------------- */

/* The same bytes, read as the same type, have the same form. */
static bool is_known(const struct body_reading *r)
{
    const struct request_form_body *known = r->from->known;
    return known != NULL && known->is_json == r->body.is_json &&
           digest_equal(&known->received, &r->body.received);
}

static enum status read_tree(struct body_reading *r)
{
    struct slice body = r->from->body;
    if (body.len == 0 || body.len > LIMIT_JSON_BYTES_MAX || !r->body.is_json) {
        return OK;
    }
    enum status status = json_read(body, r->trees, &r->tree, NULL);
    if (status != OK) {
        r->tree = NULL;
    }
    return status == E_NOMEM ? E_NOMEM : OK;
}

/* E_INVALID: it has no canonical form, or a lossy one. */
static enum status hash_canonical(struct body_reading *r, const struct json_mask *marks)
{
    struct jcs_report report = {0};
    struct jcs_how how = {.marks = marks};
    /* A canonical form is rarely longer, so most need no more memory than this. */
    enum status status = buf_reserve(&r->text, r->from->body.len);
    status = status == OK ? jcs_write_marked(r->tree, &how, &r->text, &report, NULL) : status;
    if (status == OK && report.lossy_count > 0) {
        status = E_INVALID;
    }
    if (status == OK) {
        if (slice_equal(buf_view(&r->text), r->from->body)) {
            r->body.form = r->body.received; /* it came in canonical form */
        } else {
            digest_sha256(r->text.data, r->text.len, &r->body.form);
        }
        r->body.version = FINGERPRINT_CANONICAL;
    }
    return status;
}

static enum status make_form(struct body_reading *r)
{
    r->body.form = r->body.received;
    r->body.version = FINGERPRINT_RAW;
    if (r->tree == NULL) {
        return OK;
    }
    struct json_mask marks;
    struct json_mask_list ignore = {r->from->ignore, r->from->ignore_count, JSON_MASK_OMITTED};
    enum status status = json_mask_make(r->tree, &ignore, 1, &r->marks, &marks);
    status = status == OK ? hash_canonical(r, &marks) : status;
    return status == E_NOMEM ? E_NOMEM : OK;
}

/* ---- the fingerprint ----------------------------------------------------------------------- */

/* Its length, then the part itself, so that two lists of parts never have the same bytes (P13). */
static void put_part(struct buf *out, const void *data, size_t size)
{
    unsigned char length[PART_LENGTH_BYTES];
    for (size_t i = 0; i < sizeof length; i++) {
        length[i] = (unsigned char)((uint64_t)size >> (8 * (sizeof length - 1 - i)));
    }
    buf_append(out, length, sizeof length);
    buf_append(out, data, size);
}

/* docs/formats/gateway.md describes this framing. */
static enum status make_fingerprint(const struct body_reading *r, struct digest *ret_fingerprint)
{
    static const char label[] = "once-request-1";
    const struct request_form_parts *from = r->from;
    unsigned char has_query = from->has_query;
    unsigned char version = (unsigned char)r->body.version;
    struct buf parts;
    buf_init(&parts, &r->lasting,
        from->method.len + from->path.len + from->query.len + from->content_type.len +
            PARTS_BYTES_EXTRA);
    put_part(&parts, label, sizeof label - 1);
    put_part(&parts, from->method.data, from->method.len);
    put_part(&parts, from->path.data, from->path.len);
    put_part(&parts, &has_query, sizeof has_query);
    put_part(&parts, from->query.data, from->query.len);
    put_part(&parts, from->content_type.data, from->content_type.len);
    put_part(&parts, &version, sizeof version);
    put_part(&parts, r->body.form.bytes, sizeof r->body.form.bytes);
    enum status status = buf_status(&parts);
    ASSERT(status != E_LIMIT);
    if (status == OK) {
        digest_sha256(parts.data, parts.len, ret_fingerprint);
    }
    return status;
}

/* ---- what is kept -------------------------------------------------------------------------- */

/* Levels of containers in a tree. The reader held it to LIMIT_JSON_DEPTH_MAX. */
static unsigned depth_of(const struct json_value *value)
{
    unsigned deepest = 0;
    bool is_object = value->type == JSON_OBJECT;
    if (!is_object && value->type != JSON_ARRAY) {
        return 0;
    }
    for (uint32_t i = 0; i < value->count; i++) {
        unsigned depth = depth_of(is_object ? &value->members[i].value : &value->items[i]);
        deepest = depth > deepest ? depth : deepest;
    }
    return deepest + 1;
}

/* The body without redacted values. Numbers that no double holds are kept as received, so that they
 * do not look like their neighbours. */
static enum status put_body(struct body_reading *r, struct buf *out)
{
    struct json_mask marks;
    buf_str(out, "\"body\":");
    if (r->body.version == FINGERPRINT_CANONICAL &&
        r->from->ignore_count + r->from->redact_count == 0) {
        buf_slice(out, buf_view(&r->text)); /* the form that is compared is the whole body */
        return buf_status(out);
    }
    struct json_mask_list redact = {r->from->redact, r->from->redact_count, JSON_MASK_REDACTED};
    struct jcs_how how = {.marks = &marks, .keep_lossy = true};
    enum status status = json_mask_make(r->tree, &redact, 1, &r->marks, &marks);
    return status == OK ? jcs_write_marked(r->tree, &how, out, NULL, NULL) : status;
}

static enum status put_kept(struct body_reading *r, bool with_body, struct buf *out)
{
    const struct request_form_parts *from = r->from;
    struct digest keyed;
    char hex[DIGEST_HEX_BYTES];
    struct jsonw json = {.out = out};
    jsonw_open(&json, NULL, '{');
    if (with_body) {
        enum status status = put_body(r, out);
        if (status != OK) {
            return status;
        }
        json.comma = true;
    }
    from->keyed(from->context, &r->body.received, &keyed);
    jsonw_str(&json, "body_digest", digest_put_hex(hex, &keyed));
    jsonw_bytes(&json, "content_type", from->content_type);
    jsonw_bytes(&json, "method", from->method);
    jsonw_bytes(&json, "path", from->path);
    if (from->has_query) {
        jsonw_bytes(&json, "query", from->query);
    } else {
        jsonw_raw(&json, "query", SLICE_LIT("null"));
    }
    jsonw_close(&json, '}');
    return buf_status(out);
}

/* Keep the request with its body if that fits, else without. */
static enum status keep(struct body_reading *r, struct slice *ret_kept)
{
    struct buf out;
    buf_init(&out, &r->lasting, LIMIT_REQUEST_KEPT_BYTES_MAX);
    size_t usual = r->text.len + KEPT_BYTES_EXTRA; /* an arena does not take back what has grown */
    enum status status = buf_reserve(&out, usual < out.max ? usual : KEPT_BYTES_EXTRA);
    /* The kept form is one level deeper than its body, and must be readable later. */
    bool with_body = r->tree != NULL && depth_of(r->tree) < LIMIT_JSON_DEPTH_MAX;
    status = status == OK ? put_kept(r, with_body, &out) : status;
    if (status == E_LIMIT && with_body) {
        buf_clear(&out);
        status = put_kept(r, false, &out);
    }
    *ret_kept = status == OK ? buf_view(&out) : SLICE_EMPTY;
    return status == E_LIMIT ? OK : status;
}

enum status request_form_read(
    const struct request_form_parts *from, struct arena *arena, struct request_form *ret_asked)
{
    ASSERT(from->keyed != NULL);
    struct body_reading r = {.from = from, .lasting = arena_mem(arena)};
    struct request_form asked = {.ignore = from->ignore, .ignore_count = from->ignore_count};
    size_t tree_bytes = from->body.len * TREE_BYTES_PER_BYTE;
    arena_init(&r.own, arena->mem, tree_bytes < TREE_BYTES_SMALL ? TREE_BYTES_SMALL : tree_bytes);
    bool is_small = from->body.len <= BODY_BYTES_SMALL;
    r.trees = is_small ? arena : &r.own;
    arena_init(&r.marks, arena->mem, MARKS_BYTES_MAX);
    buf_init(&r.text, is_small ? &r.lasting : arena->mem, payload_form_bytes_max(from->body.len));
    digest_sha256(from->body.data, from->body.len, &r.body.received);
    r.body.is_json = request_form_is_json(from->content_type);
    asked.is_known = is_known(&r);
    enum status status = OK;
    if (asked.is_known) {
        r.body = *from->known;
    } else {
        status = read_tree(&r);
        status = status == OK ? make_form(&r) : status;
        status = status == OK ? keep(&r, &asked.kept) : status;
    }
    status = status == OK ? make_fingerprint(&r, &asked.fingerprint) : status;
    if (status == OK) {
        asked.body = r.body;
        *ret_asked = asked;
    }
    buf_release(&r.text);
    arena_release(&r.marks);
    arena_release(&r.own);
    return status;
}
