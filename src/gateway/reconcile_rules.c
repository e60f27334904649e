#include "gateway/reconcile_rules.h"

#include <stdio.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/macros.h"
#include "base/percent.h"
#include "http/chars.h"

bool reconcile_is_not_executed(const struct config_reconcile *reconcile, unsigned status)
{
    for (size_t i = 0; i < reconcile->not_executed_count; i++) {
        if (reconcile->not_executed[i] == status) {
            return true;
        }
    }
    return false;
}

struct judge_rules reconcile_rules(const struct config_reconcile *reconcile, bool is_quiet,
    struct reconcile_statuses *ret_statuses)
{
    struct judge_status *named = ret_statuses->named;
    size_t count = 0;
    for (size_t i = 0; i < reconcile->executed_count; i++) {
        named[count++] = (struct judge_status){reconcile->executed[i], JUDGE_EXECUTED};
    }
    for (size_t i = 0; is_quiet && i < reconcile->not_executed_count; i++) {
        named[count++] = (struct judge_status){reconcile->not_executed[i], JUDGE_RELEASE};
    }
    ASSERT(count <= COUNT(ret_statuses->named));
    return (struct judge_rules){.statuses = named, .status_count = count}; /* the rest: unknown */
}

/* ---- the target ---------------------------------------------------------------------------- */

/* The length of the placeholder at the start of a template's rest, or 0; *ret_name gets its
 * value. */
static size_t mark_at(
    struct slice rest, const struct reconcile_names *names, struct slice *ret_name)
{
    const struct {
        struct slice mark;
        struct slice name;
    } marks[] = {
        {SLICE_LIT("{key}"), names->key}, {SLICE_LIT("{operation_id}"), names->operation_id}};
    for (size_t i = 0; i < COUNT(marks); i++) {
        size_t len = marks[i].mark.len;
        if (rest.len >= len && slice_equal(slice_of(rest.data, len), marks[i].mark)) {
            *ret_name = marks[i].name;
            return len;
        }
    }
    return 0;
}

/* Append the rest of the template; values as they are, or encoded. */
static void put_filled(
    struct slice template, const struct reconcile_names *names, bool is_encoded, struct buf *out)
{
    for (size_t i = 0; i < template.len;) {
        struct slice name = SLICE_EMPTY;
        size_t len = mark_at(slice_of(template.data + i, template.len - i), names, &name);
        if (len == 0) {
            buf_char(out, template.data[i]);
        } else if (is_encoded) {
            percent_append(out, name);
        } else {
            buf_slice(out, name);
        }
        i += len == 0 ? 1 : len;
    }
}

static struct slice without_query(struct slice target)
{
    const char *query = memchr(target.data, '?', target.len);
    return query == NULL ? target : slice_of(target.data, (size_t)(query - target.data));
}

/* The path as a server sees it that decodes first and then splits, at any character that some
 * server splits at. */
static bool has_dot_segment(struct slice path)
{
    size_t start = 0;
    for (size_t i = 0; i <= path.len; i++) {
        bool is_end = i == path.len || (path.data[i] != '\0' && strchr("/\\;?#", path.data[i]));
        if (is_end) {
            struct slice segment = slice_of(path.data + start, i - start);
            if (slice_is(segment, ".") || slice_is(segment, "..")) {
                return true;
            }
            start = i + 1;
        }
    }
    return false;
}

enum status reconcile_target(
    const char *template, const struct reconcile_names *names, struct buf *out, struct err *err)
{
    size_t start = out->len;
    put_filled(without_query(slice_str(template)), names, false, out);
    bool is_astray =
        buf_status(out) == OK && has_dot_segment(slice_of(out->data + start, out->len - start));
    out->len = start; /* it was only needed for the check */
    if (is_astray) {
        return err_set(err, E_INVALID,
            "the key has dot segments, so the path would name a "
            "different resource");
    }
    put_filled(slice_str(template), names, true, out);
    enum status status = buf_status(out);
    return status == OK ? OK : err_set(err, status, "the path with the key in it is too long");
}

void reconcile_key(struct slice key, struct buf *out)
{
    bool is_bare = true;
    for (size_t i = 0; i < key.len; i++) {
        char c = key.data[i];
        if (c < 0x20 || c > 0x7e) {
            return;
        }
        is_bare = is_bare && c != ' ' && c != '"' && c != '\\' && c != ',';
    }
    if (is_bare) {
        buf_slice(out, key);
        return;
    }
    buf_char(out, '"');
    for (size_t i = 0; i < key.len; i++) {
        if (key.data[i] == '"' || key.data[i] == '\\') {
            buf_char(out, '\\');
        }
        buf_char(out, key.data[i]);
    }
    buf_char(out, '"');
}

/* ---- names --------------------------------------------------------------------------------- */

bool reconcile_scope(struct slice text, struct reconcile_scope *ret_scope)
{
    const char *space = text.len == 0 ? NULL : memchr(text.data, ' ', text.len);
    if (space == NULL) {
        return false;
    }
    size_t len = (size_t)(space - text.data);
    unsigned method = config_method(slice_of(text.data, len));
    struct slice target = slice_of(space + 1, text.len - len - 1);
    /* A host may come before the path. */
    const char *slash = target.len == 0 ? NULL : memchr(target.data, '/', target.len);
    if (method == 0 || slash == NULL) {
        return false;
    }
    struct slice path = slice_of(slash, target.len - (size_t)(slash - target.data));
    *ret_scope = (struct reconcile_scope){
        .method = method, .path = path, .is_cut = memchr(path.data, '#', path.len) != NULL};
    return true;
}

void reconcile_reason(
    struct slice target, unsigned status, char ret_text[LIMIT_REASON_BYTES_MAX + 1])
{
    enum { AROUND = sizeof "reconciled: GET ... answered 200" }; /* with its terminator */
    struct slice path = without_query(target);
    int room = LIMIT_REASON_BYTES_MAX + 1 - AROUND;
    bool is_cut = path.len > (size_t)room;
    (void)snprintf(ret_text, LIMIT_REASON_BYTES_MAX + 1, "reconciled: GET %.*s%s answered %u",
        is_cut ? room : (int)path.len, path.data, is_cut ? "..." : "", status);
}
