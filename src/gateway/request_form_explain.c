/* Reads the kept form of a request: how a later one differs, and where the first one went. */
#include "base/check.h"
#include "base/limits.h"
#include "base/macros.h"
#include "canon/diff.h"
#include "canon/jcs.h"
#include "canon/jsonw.h"
#include "gateway/request_form.h"

enum {
    TREES_BYTES_MAX = 16 << 20, /* two kept requests with everything made from them */
    OWN_MEMBERS = 5,            /* of a kept request without its body */
};

/* A member, or the same in base64 if its bytes are not UTF-8. */
struct kept_part {
    const char *name;
    const char *in_base64;
};

enum { PART_CONTENT_TYPE, PART_METHOD, PART_PATH, PART_QUERY, PARTS };
static const struct kept_part parts[PARTS] = {
    [PART_CONTENT_TYPE] = {"content_type", "content_type_base64"},
    [PART_METHOD] = {"method", "method_base64"},
    [PART_PATH] = {"path", "path_base64"},
    [PART_QUERY] = {"query", "query_base64"},
};

struct kept {
    const struct json_value *parts[PARTS]; /* strings; a query may also be null */
    bool in_base64[PARTS];
    const struct json_value *digest;
    const struct json_value *body; /* NULL: not kept */
};

static bool find_part(const struct json_value *whole, int i, struct kept *ret_kept)
{
    const struct json_value *value = json_find(whole, slice_str(parts[i].name));
    ret_kept->in_base64[i] = value == NULL;
    if (value == NULL) {
        value = json_find(whole, slice_str(parts[i].in_base64));
    }
    ret_kept->parts[i] = value;
    return json_is(value, JSON_STRING) || (i == PART_QUERY && json_is(value, JSON_NULL));
}

/* E_INVALID: this was not kept by request_form_read. */
static enum status read_kept(struct slice text, struct arena *arena, struct kept *ret_kept)
{
    const struct json_value *whole = NULL;
    enum status status = text.len == 0 ? E_INVALID : json_read(text, arena, &whole, NULL);
    if (status != OK) {
        return status == E_NOMEM ? E_NOMEM : E_INVALID;
    }
    bool ours = json_is(whole, JSON_OBJECT);
    for (int i = 0; i < PARTS; i++) {
        ours = ours && find_part(whole, i, ret_kept);
    }
    ret_kept->digest = json_find(whole, SLICE_LIT("body_digest"));
    ret_kept->body = json_find(whole, SLICE_LIT("body"));
    ours = ours && json_is(ret_kept->digest, JSON_STRING) &&
           json_text(ret_kept->digest).len == 2 * DIGEST_BYTES &&
           whole->count == OWN_MEMBERS + (ret_kept->body != NULL ? 1u : 0u);
    return ours ? OK : E_INVALID;
}

/* ---- how two differ ------------------------------------------------------------------------ */

/* Two requests that are compared. */
struct comparison {
    struct kept first;
    struct kept now;
    struct json_mask_list ignore;
    struct json_mask_list redact;
    struct arena arena; /* both trees, and what is made of them */
    bool body;          /* they differ where it counts and may be shown */
    bool redacted;      /* they differ only where it does not count, or may not be shown */
    bool parts[PARTS];  /* and these differ */
};

/* The part of a body that counts and may be shown. */
static enum status put_shown(
    struct comparison *comparison, const struct json_value *body, struct buf *out)
{
    struct json_mask marks;
    struct json_mask_list lists[] = {comparison->ignore, comparison->redact};
    struct jcs_how how = {.marks = &marks, .keep_lossy = true};
    enum status status = json_mask_make(body, lists, 2, &comparison->arena, &marks);
    return status == OK ? jcs_write_marked(body, &how, out, NULL, NULL) : status;
}

static enum status same_shown(struct comparison *comparison, bool *ret_same)
{
    struct buf first, now;
    buf_init(&first, comparison->arena.mem, LIMIT_REQUEST_KEPT_BYTES_MAX);
    buf_init(&now, comparison->arena.mem, LIMIT_REQUEST_KEPT_BYTES_MAX);
    enum status status = put_shown(comparison, comparison->first.body, &first);
    status = status == OK ? put_shown(comparison, comparison->now.body, &now) : status;
    *ret_same = status == OK && slice_equal(buf_view(&first), buf_view(&now));
    buf_release(&first);
    buf_release(&now);
    return status;
}

static enum status leads_somewhere(
    struct comparison *comparison, const struct json_value *body, bool *ret_leads)
{
    struct json_mask marks;
    enum status status = json_mask_make(body, &comparison->redact, 1, &comparison->arena, &marks);
    *ret_leads = *ret_leads || (status == OK && json_mask_any(&marks));
    return status;
}

/* Both bodies were kept and were not the same bytes. Redacted values can no longer be compared: if
 * there are any, they may be the difference; otherwise it is the spelling. */
static enum status compare_bodies(struct comparison *comparison)
{
    bool same;
    bool hidden = !json_equal(comparison->first.body, comparison->now.body);
    enum status status = same_shown(comparison, &same);
    status = status == OK ? leads_somewhere(comparison, comparison->first.body, &hidden) : status;
    status = status == OK ? leads_somewhere(comparison, comparison->now.body, &hidden) : status;
    comparison->body = !same;
    comparison->redacted = same && hidden;
    return status;
}

static enum status compare(struct comparison *comparison)
{
    bool any = false;
    for (int i = 0; i < PARTS; i++) {
        comparison->parts[i] = comparison->first.in_base64[i] != comparison->now.in_base64[i] ||
                               !json_equal(comparison->first.parts[i], comparison->now.parts[i]);
        any = any || comparison->parts[i];
    }
    if (json_equal(comparison->first.digest, comparison->now.digest)) {
        return OK;
    }
    bool both = comparison->first.body != NULL && comparison->now.body != NULL;
    enum status status = both ? compare_bodies(comparison) : OK;
    /* If nothing else differs, it is the bytes: those of a body that is taken raw. */
    comparison->body = comparison->body || !both || (!any && !comparison->redacted);
    return status;
}

/* ---- output -------------------------------------------------------------------------------- */

static void put_differs(const struct comparison *comparison, struct jsonw *json)
{
    static const int order[] = {PART_METHOD, PART_PATH, PART_QUERY, PART_CONTENT_TYPE};
    jsonw_open(json, "differs", '[');
    for (size_t i = 0; i < COUNT(order); i++) {
        if (comparison->parts[order[i]]) {
            jsonw_str(json, NULL, parts[order[i]].name);
        }
    }
    if (comparison->body || comparison->redacted) {
        jsonw_str(json, NULL, comparison->body ? "body" : "redacted");
    }
    jsonw_close(json, ']');
}

/* NULL: out of memory. */
static const struct slice *slices_of(const struct json_mask_list *list, struct arena *arena)
{
    struct slice *pointers = arena_alloc(arena, (list->count + 1) * sizeof *pointers);
    for (size_t i = 0; pointers != NULL && i < list->count; i++) {
        pointers[i] = slice_str(list->pointers[i]);
    }
    return pointers;
}

static enum status put_diff(struct comparison *comparison, struct buf *out, size_t *ret_bytes)
{
    bool truncated = false;
    enum status status = OK;
    struct diff_options options = {.redact = slices_of(&comparison->redact, &comparison->arena),
        .redact_count = comparison->redact.count,
        .ignore = slices_of(&comparison->ignore, &comparison->arena),
        .ignore_count = comparison->ignore.count,
        .bytes_max = LIMIT_DIFF_BYTES_MAX};
    if (options.redact == NULL || options.ignore == NULL) {
        return E_NOMEM;
    }
    buf_str(out, ",\"diff\":");
    size_t start = out->len;
    if (comparison->body) {
        status = diff_write(
            comparison->first.body, comparison->now.body, &options, out, &truncated, NULL);
    } else {
        buf_str(out, "[]"); /* the only difference does not count, or may not be shown */
    }
    *ret_bytes = out->len - start;
    buf_str(out, truncated ? ",\"diff_truncated\":true" : ",\"diff_truncated\":false");
    return status;
}

static enum status put_explained(
    struct comparison *comparison, bool with_diff, struct buf *out, size_t *ret_diff_bytes)
{
    enum status status = compare(comparison);
    if (status != OK) {
        return status;
    }
    struct jsonw json = {.out = out};
    put_differs(comparison, &json);
    if (with_diff && comparison->first.body != NULL && comparison->now.body != NULL) {
        status = put_diff(comparison, out, ret_diff_bytes);
    } else {
        buf_str(out, ",\"diff\":null");
    }
    return status;
}

enum status request_form_explain(struct slice first, const struct request_form *now, bool with_diff,
    const char *const *redact, size_t redact_count, struct buf *out, size_t *ret_diff_bytes)
{
    size_t start = out->len;
    size_t diff_bytes = 0;
    struct comparison comparison = {.ignore = {now->ignore, now->ignore_count, JSON_MASK_OMITTED},
        .redact = {redact, redact_count, JSON_MASK_OMITTED}};
    arena_init(&comparison.arena, out->mem, TREES_BYTES_MAX);
    enum status status = read_kept(first, &comparison.arena, &comparison.first);
    status = status == OK ? read_kept(now->kept, &comparison.arena, &comparison.now) : status;
    if (status == OK) {
        status = put_explained(&comparison, with_diff, out, &diff_bytes);
    } else if (status == E_INVALID) {
        buf_str(out, "\"differs\":null,\"diff\":null");
        status = OK;
    }
    arena_release(&comparison.arena);
    status = status == OK ? buf_status(out) : status;
    if (status != OK) {
        out->len = start;
        return status;
    }
    *ret_diff_bytes = diff_bytes;
    return OK;
}

bool request_form_kept_path(struct slice kept, struct arena *arena, struct slice *ret_path)
{
    struct kept read;
    if (read_kept(kept, arena, &read) != OK || read.in_base64[PART_PATH]) {
        return false;
    }
    *ret_path = json_text(read.parts[PART_PATH]);
    return true;
}
