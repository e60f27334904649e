/* Paths, queries, and the scope that is made of a path. */
#include "base/check.h"
#include "base/limits.h"
#include "base/percent.h"
#include "gateway/request_form.h"
#include "http/chars.h"

/* RFC 3986 sections 6.2.2.1 and 6.2.2.2. `to` has room for all of the text. */
static enum status normalise(
    struct slice text, const char *what, char *to, size_t *ret_size, struct err *err)
{
    char *at = to;
    for (size_t i = 0; i < text.len; i++) {
        if (text.data[i] == '\0') {
            return err_set(err, E_INVALID, "the %s has a NUL", what);
        }
        if (text.data[i] != '%') {
            *at++ = text.data[i];
            continue;
        }
        char byte;
        if (!percent_read(slice_of(text.data + i, text.len - i), &byte)) {
            return err_set(err, E_INVALID, "the %s has a broken percent-encoding", what);
        }
        if (byte == '\0') {
            return err_set(err, E_INVALID, "the %s has an encoded NUL", what);
        }
        at = percent_put(at, byte); /* unchanged if it is unreserved */
        i += 2;
    }
    *ret_size = (size_t)(at - to);
    return OK;
}

/* ---- paths --------------------------------------------------------------------------------- */

/* Remove the last segment and its slash. False: there is none. */
static bool drop_segment(const char *path, size_t *size)
{
    if (*size == 0) {
        return false;
    }
    do {
        --*size;
    } while (path[*size] != '/');
    return true;
}

/* RFC 3986 section 5.2.4, in place. False: it leads above the root. The RFC allows that, but it is
 * only ever an attempt to get somewhere else. */
static bool remove_dots(char *path, size_t *ret_size)
{
    size_t len = *ret_size;
    size_t size = 0;
    for (size_t at = 0; at < len;) {
        ASSERT(path[at] == '/');
        size_t end = at + 1;
        while (end < len && path[end] != '/') {
            end++;
        }
        struct slice segment = slice_of(path + at + 1, end - at - 1);
        bool up = slice_is(segment, "..");
        if (up && !drop_segment(path, &size)) {
            return false;
        }
        if (!up && !slice_is(segment, ".")) {
            memmove(path + size, path + at, end - at);
            size += end - at;
        } else if (end == len) {
            path[size++] = '/'; /* the result is a folder: "/a/b/.." is "/a/" */
        }
        at = end;
    }
    *ret_size = size;
    return true;
}

enum status request_form_path(
    struct slice path, struct arena *arena, struct slice *ret_path, struct err *err)
{
    if (path.len == 0 || slice_is(path, "*")) { /* of "http://host", and of OPTIONS */
        *ret_path = path.len == 0 ? SLICE_LIT("/") : SLICE_LIT("*");
        return OK;
    }
    if (path.data[0] != '/') {
        return err_set(err, E_INVALID, "the path does not begin with a slash");
    }
    char *text = arena_alloc(arena, path.len);
    if (text == NULL) {
        return err_set(err, E_NOMEM, "out of memory");
    }
    size_t size;
    enum status status = normalise(path, "path", text, &size, err);
    if (status != OK) {
        return status;
    }
    if (!remove_dots(text, &size)) {
        return err_set(err, E_INVALID, "the path leads above the root");
    }
    *ret_path = slice_of(text, size);
    return OK;
}

/* ---- queries ------------------------------------------------------------------------------- */

struct query_pair {
    struct slice name;
    struct slice whole; /* name, and "=value" if there is one */
};

static bool is_after(const struct query_pair *a, const struct query_pair *b)
{
    size_t shorter = a->name.len < b->name.len ? a->name.len : b->name.len;
    int order = shorter == 0 ? 0 : memcmp(a->name.data, b->name.data, shorter);
    return order > 0 || (order == 0 && a->name.len > b->name.len);
}

/* Merge two adjacent runs; of equal names, those of the first run come first. */
static void merge(const struct query_pair *from, struct query_pair *to, size_t middle, size_t end)
{
    size_t i = 0;
    size_t j = middle;
    for (size_t k = 0; k < end; k++) {
        bool second = i == middle || (j < end && is_after(&from[i], &from[j]));
        to[k] = second ? from[j++] : from[i++];
    }
}

/* A stable sort. Returns the array that holds the result. */
static struct query_pair *sort_pairs(
    struct query_pair *pairs, struct query_pair *other, size_t count)
{
    for (size_t run = 1; run < count; run *= 2) {
        for (size_t at = 0; at < count; at += 2 * run) {
            size_t left = count - at;
            merge(pairs + at, other + at, run < left ? run : left, 2 * run < left ? 2 * run : left);
        }
        struct query_pair *sorted = other;
        other = pairs;
        pairs = sorted;
    }
    return pairs;
}

static size_t split_pairs(struct slice text, struct query_pair *pairs)
{
    size_t count = 0;
    for (size_t at = 0; at <= text.len; count++) {
        const char *start = text.data + at;
        const char *end = memchr(start, '&', text.len - at);
        size_t len = end == NULL ? text.len - at : (size_t)(end - start);
        const char *equals = memchr(start, '=', len);
        pairs[count].whole = slice_of(start, len);
        pairs[count].name = slice_of(start, equals == NULL ? len : (size_t)(equals - start));
        at += len + 1;
    }
    return count;
}

static size_t count_pairs(struct slice text)
{
    size_t count = 1;
    for (size_t i = 0; i < text.len; i++) {
        count += text.data[i] == '&';
    }
    return count;
}

enum status request_form_query(
    struct slice query, struct arena *arena, struct slice *ret_query, struct err *err)
{
    if (query.len == 0) {
        *ret_query = SLICE_EMPTY;
        return OK;
    }
    size_t size;
    size_t count = count_pairs(query);
    char *text = arena_alloc(arena, 2 * query.len);
    struct query_pair *pairs = arena_alloc(arena, 2 * count * sizeof *pairs);
    if (text == NULL || pairs == NULL) {
        return err_set(err, E_NOMEM, "out of memory");
    }
    enum status status = normalise(query, "query", text, &size, err);
    if (status != OK) {
        return status;
    }
    /* Separators are reserved characters: normalising neither adds nor removes any. */
    size_t found = split_pairs(slice_of(text, size), pairs);
    ASSERT(found == count);
    const struct query_pair *sorted = sort_pairs(pairs, pairs + count, count);
    char *at = text + query.len;
    for (size_t i = 0; i < count; i++) {
        if (i > 0) {
            *at++ = '&';
        }
        if (sorted[i].whole.len > 0) {
            memcpy(at, sorted[i].whole.data, sorted[i].whole.len);
        }
        at += sorted[i].whole.len;
    }
    *ret_query = slice_of(text + query.len, size);
    return OK;
}

/* ---- the scope ----------------------------------------------------------------------------- */

enum status request_form_scope(
    const struct request_form_place *place, struct arena *arena, struct slice *ret_scope)
{
    struct slice method = place->method;
    struct slice host = place->host;
    struct slice path = place->path;
    size_t size = method.len + 1 + host.len + path.len;
    size_t room = size < LIMIT_SCOPE_BYTES_MAX ? LIMIT_SCOPE_BYTES_MAX : size;
    char *text = arena_alloc(arena, room + 1); /* for the terminator after hex digits */
    if (text == NULL) {
        return E_NOMEM;
    }
    if (method.len > 0) {
        memcpy(text, method.data, method.len);
    }
    text[method.len] = ' ';
    char *at = text + method.len + 1;
    for (size_t i = 0; i < host.len; i++) {
        *at++ = http_lower(host.data[i]);
    }
    if (path.len > 0) {
        memcpy(at, path.data, path.len);
    }
    /* No path of a request contains '#', so no short scope looks like one that was cut. */
    if (size > LIMIT_SCOPE_BYTES_MAX || memchr(text, '#', size) != NULL) {
        enum { HEAD = LIMIT_SCOPE_BYTES_MAX - 2 * DIGEST_BYTES - 1 };
        struct digest digest;
        digest_sha256(text, size, &digest);
        size_t head = size < HEAD ? size : HEAD;
        text[head] = '#';
        (void)digest_put_hex(text + head + 1, &digest);
        size = head + 1 + 2 * DIGEST_BYTES;
    }
    *ret_scope = slice_of(text, size);
    return OK;
}
