#include "canon/diff.h"

#include "base/check.h"
#include "canon/jcs.h"

struct diff {
    const struct diff_options *options;
    struct buf *out; /* the patch */
    size_t start;    /* where it begins in out */
    size_t budget;   /* bytes it may have, the closing bracket included */
    struct buf path; /* JSON Pointer of where we are */
    bool any;        /* an operation was written */
    bool truncated;  /* one was left out, so no other may follow */
};

/* Append one step to the path, escaped by RFC 6901 section 3. Returns the length to go back to. */
static size_t path_push(struct diff *d, struct slice name)
{
    size_t length = d->path.len;
    buf_char(&d->path, '/');
    for (size_t i = 0; i < name.len && buf_status(&d->path) == OK; i++) {
        char c = name.data[i];
        if (c == '~' || c == '/') {
            buf_str(&d->path, c == '~' ? "~0" : "~1");
        } else {
            buf_char(&d->path, c);
        }
    }
    return length;
}

static size_t path_push_index(struct diff *d, uint32_t index)
{
    size_t length = d->path.len;
    buf_char(&d->path, '/');
    buf_u64(&d->path, index);
    return length;
}

static void path_pop(struct diff *d, size_t length)
{
    d->path.len = length;
    if (d->path.status == E_LIMIT) {
        d->path.status = OK;
    }
}

/* Whether the path is at or below one of the pointers. */
static bool within(const struct diff *d, const struct slice *pointers, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct slice pointer = pointers[i];
        if (d->path.len >= pointer.len &&
            (pointer.len == 0 || memcmp(d->path.data, pointer.data, pointer.len) == 0) &&
            (d->path.len == pointer.len || d->path.data[pointer.len] == '/')) {
            return true;
        }
    }
    return false;
}

static bool redacted(const struct diff *d)
{
    return within(d, d->options->redact, d->options->redact_count);
}

static bool ignored(const struct diff *d)
{
    return buf_status(&d->path) == OK && within(d, d->options->ignore, d->options->ignore_count);
}

/* What is over the budget is taken back anyway, so writing more of it is a waste. */
static bool over_budget(const struct diff *d)
{
    return d->out->len - d->start >= d->budget || buf_status(d->out) != OK ||
           buf_status(&d->path) != OK;
}

static void put_value(struct diff *d, const struct json_value *value);

static void put_items(struct diff *d, const struct json_value *value)
{
    buf_char(d->out, '[');
    for (uint32_t i = 0; i < value->count && !over_budget(d); i++) {
        if (i > 0) {
            buf_char(d->out, ',');
        }
        size_t length = path_push_index(d, i);
        put_value(d, &value->items[i]);
        path_pop(d, length);
    }
    buf_char(d->out, ']');
}

static void put_members(struct diff *d, const struct json_value *value)
{
    buf_char(d->out, '{');
    for (uint32_t i = 0; i < value->count && !over_budget(d); i++) {
        if (i > 0) {
            buf_char(d->out, ',');
        }
        struct slice name = json_text(&value->members[i].name);
        jcs_put_string(d->out, name);
        buf_char(d->out, ':');
        size_t length = path_push(d, name);
        put_value(d, &value->members[i].value);
        path_pop(d, length);
    }
    buf_char(d->out, '}');
}

/* The value at the path, without its redacted parts. Numbers stay as written: a lossy number must
 * not be shown as its neighbour in the text that explains the difference. */
static void put_value(struct diff *d, const struct json_value *value)
{
    if (buf_status(&d->path) != OK) {
        /* The path did not fit, so whether it is redacted is not known. It does not fit the patch
         * either: fill the budget, and the operation is taken back. */
        d->out->status = d->out->status == OK ? E_LIMIT : d->out->status;
        return;
    }
    if (redacted(d)) {
        buf_str(d->out, "\"[redacted]\"");
        return;
    }
    switch (value->type) {
    case JSON_NULL: buf_str(d->out, "null"); break;
    case JSON_FALSE: buf_str(d->out, "false"); break;
    case JSON_TRUE: buf_str(d->out, "true"); break;
    case JSON_NUMBER: buf_slice(d->out, json_text(value)); break;
    case JSON_STRING: jcs_put_string(d->out, json_text(value)); break;
    case JSON_ARRAY: put_items(d, value); break;
    case JSON_OBJECT: put_members(d, value); break;
    }
}

/* One operation at the path, or nothing at all when it does not fit. No value: NULL. */
static void put_operation(struct diff *d, const char *name, const struct json_value *value)
{
    if (d->truncated || ignored(d)) {
        return;
    }
    size_t mark = d->out->len;
    buf_str(d->out, d->any ? ",{\"op\":\"" : "{\"op\":\"");
    buf_str(d->out, name);
    buf_str(d->out, "\",\"path\":");
    jcs_put_string(d->out, buf_view(&d->path));
    if (value != NULL) {
        buf_str(d->out, ",\"value\":");
        put_value(d, value);
    }
    buf_char(d->out, '}');
    if (over_budget(d)) {
        d->truncated = true;
        d->out->len = mark;
        if (d->out->status == E_LIMIT) {
            d->out->status = OK;
        }
    }
    d->any = d->any || !d->truncated;
}

static void diff_values(
    struct diff *d, const struct json_value *before, const struct json_value *after);

/* A member that is on one side only, or on both. */
static void diff_member(struct diff *d, struct slice name, const struct json_value *before,
    const struct json_value *after)
{
    size_t length = path_push(d, name);
    if (before == NULL) {
        put_operation(d, "add", after);
    } else if (after == NULL) {
        put_operation(d, "remove", NULL);
    } else {
        diff_values(d, before, after);
    }
    path_pop(d, length);
}

/* Both sides are in canonical order, so one walk over both meets equal names together. */
static void diff_objects(
    struct diff *d, const struct json_value *before, const struct json_value *after)
{
    uint32_t i = 0;
    uint32_t j = 0;
    while (!d->truncated && (i < before->count || j < after->count)) {
        const struct json_member *old = i < before->count ? &before->members[i] : NULL;
        const struct json_member *new = j < after->count ? &after->members[j] : NULL;
        int order = old == NULL   ? 1
                    : new == NULL ? -1
                                  : json_order(json_text(&old->name), json_text(&new->name));
        diff_member(d, json_text(order <= 0 ? &old->name : &new->name),
            order <= 0 ? &old->value : NULL, order >= 0 ? &new->value : NULL);
        i += order <= 0;
        j += order >= 0;
    }
}

/* How many items from `from` on are the same on both sides, counted from the front or the back. */
static uint32_t common_items(
    const struct json_value *before, const struct json_value *after, uint32_t limit, bool from_back)
{
    uint32_t count = 0;
    while (count < limit) {
        uint32_t i = from_back ? before->count - 1 - count : count;
        uint32_t j = from_back ? after->count - 1 - count : count;
        if (!json_equal(&before->items[i], &after->items[j])) {
            break;
        }
        count++;
    }
    return count;
}

static void diff_arrays(
    struct diff *d, const struct json_value *before, const struct json_value *after)
{
    uint32_t shorter = before->count < after->count ? before->count : after->count;
    uint32_t head = common_items(before, after, shorter, false);
    uint32_t tail = common_items(before, after, shorter - head, true);
    uint32_t both = shorter - tail;
    size_t length = 0;
    for (uint32_t i = head; i < both && !d->truncated; i++) {
        length = path_push_index(d, i);
        diff_values(d, &before->items[i], &after->items[i]);
        path_pop(d, length);
    }
    /* Each addition goes to its final place; removals go backwards, so that none shifts a later
     * one. */
    for (uint32_t i = both; i < after->count - tail && !d->truncated; i++) {
        length = path_push_index(d, i);
        put_operation(d, "add", &after->items[i]);
        path_pop(d, length);
    }
    for (uint32_t i = before->count - tail; i > both && !d->truncated; i--) {
        length = path_push_index(d, i - 1);
        put_operation(d, "remove", NULL);
        path_pop(d, length);
    }
}

/* Its value was not kept: nobody knows whether it differs. */
static bool was_redacted(const struct diff *d, const struct json_value *before)
{
    return json_is(before, JSON_STRING) && slice_is(json_text(before), "[redacted]") && redacted(d);
}

static void diff_values(
    struct diff *d, const struct json_value *before, const struct json_value *after)
{
    if (d->truncated) {
        return;
    }
    if (buf_status(&d->path) != OK) {
        d->truncated = !json_equal(before, after);
    } else if (before->type == JSON_OBJECT && after->type == JSON_OBJECT && !redacted(d)) {
        diff_objects(d, before, after);
    } else if (before->type == JSON_ARRAY && after->type == JSON_ARRAY && !redacted(d)) {
        diff_arrays(d, before, after);
    } else if (!json_equal(before, after) && !was_redacted(d, before)) {
        put_operation(d, "replace", after);
    }
}

enum status diff_write(const struct json_value *before, const struct json_value *after,
    const struct diff_options *options, struct buf *out, bool *ret_truncated, struct err *err)
{
    ASSERT(options->bytes_max >= DIFF_BYTES_MIN);
    size_t spare = out->max - out->len;
    struct diff d = {.options = options, .out = out, .start = out->len};
    if (spare < DIFF_BYTES_MIN) {
        return err_set(err, E_LIMIT, "no room for a diff");
    }
    d.budget = options->bytes_max < spare ? options->bytes_max : spare;
    buf_init(&d.path, out->mem, d.budget);
    buf_char(out, '[');
    diff_values(&d, before, after);
    buf_char(out, ']');
    bool no_memory = buf_status(out) != OK || d.path.status == E_NOMEM;
    buf_release(&d.path);
    if (no_memory) {
        return err_set(err, buf_status(out) == OK ? E_NOMEM : buf_status(out), "out of memory");
    }
    ASSERT(out->len - d.start <= d.budget);
    *ret_truncated = d.truncated;
    return OK;
}
