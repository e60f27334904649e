#include "mcp/scan.h"

#include "canon/json.h"

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static void skip_space(struct mcp_scan *scan)
{
    while (scan->at < scan->end && is_space(*scan->at)) {
        scan->at++;
    }
}

static bool broken(struct mcp_scan *scan)
{
    scan->is_broken = true;
    return false;
}

/* At an opening quote: past the closing one. */
static bool skip_string(struct mcp_scan *scan)
{
    for (scan->at++; scan->at < scan->end; scan->at++) {
        if (*scan->at == '"') {
            scan->at++;
            return true;
        }
        if (*scan->at == '\\' && scan->at + 1 < scan->end) {
            scan->at++;
        }
    }
    scan->at = scan->end;
    return broken(scan);
}

/* At an opening bracket: past the one that closes it. Which kind closes which is not checked. */
static bool skip_container(struct mcp_scan *scan)
{
    size_t depth = 0;
    while (scan->at < scan->end) {
        char c = *scan->at;
        if (c == '"') {
            if (!skip_string(scan)) {
                return false;
            }
            continue;
        }
        depth += c == '{' || c == '[';
        depth -= c == '}' || c == ']';
        scan->at++;
        if (depth == 0) {
            return true;
        }
    }
    return broken(scan);
}

/* Numbers and words. */
static bool skip_word(struct mcp_scan *scan)
{
    const char *from = scan->at;
    while (scan->at < scan->end && memchr(",:]}[{\" \t\r\n", *scan->at, 11) == NULL) {
        scan->at++;
    }
    return scan->at > from || broken(scan);
}

static bool skip_value(struct mcp_scan *scan)
{
    if (scan->at == scan->end) {
        return broken(scan);
    }
    return *scan->at == '"'                       ? skip_string(scan)
           : *scan->at == '{' || *scan->at == '[' ? skip_container(scan)
                                                  : skip_word(scan);
}

bool scan_begin(struct mcp_scan *scan, struct slice text, char open)
{
    text = json_trim(text);
    if (text.len == 0 || text.data[0] != open) {
        *scan = (struct mcp_scan){.is_broken = true};
        return false;
    }
    *scan = (struct mcp_scan){.at = text.data + 1,
        .end = text.data + text.len,
        .close = open == '{' ? '}' : ']',
        .is_first = true};
    return true;
}

/* The closing bracket, or the comma before the next item. True: an item follows. */
static bool reach_item(struct mcp_scan *scan)
{
    skip_space(scan);
    if (scan->at == scan->end) {
        return broken(scan);
    }
    if (*scan->at == scan->close) {
        scan->at++;
        scan->is_over = true;
        return scan->at == scan->end ? false : broken(scan);
    }
    if (!scan->is_first) {
        if (*scan->at != ',') {
            return broken(scan);
        }
        scan->at++;
        skip_space(scan);
    }
    scan->is_first = false;
    return true;
}

bool scan_next(struct mcp_scan *scan, struct mcp_scan_item *ret_item)
{
    if (scan->is_broken || scan->is_over || !reach_item(scan)) {
        return false;
    }
    const char *from = scan->at;
    struct slice name = SLICE_EMPTY;
    if (scan->close == '}') {
        if (scan->at == scan->end || *scan->at != '"' || !skip_string(scan)) {
            return broken(scan);
        }
        name = slice_of(from + 1, (size_t)(scan->at - from) - 2);
        skip_space(scan);
        if (scan->at == scan->end || *scan->at != ':') {
            return broken(scan);
        }
        scan->at++;
        skip_space(scan);
    }
    const char *value = scan->at;
    if (!skip_value(scan)) {
        return false;
    }
    *ret_item = (struct mcp_scan_item){.name = name,
        .value = slice_of(value, (size_t)(scan->at - value)),
        .whole = slice_of(from, (size_t)(scan->at - from))};
    return true;
}

struct slice scan_find(struct slice object, const char *name)
{
    struct mcp_scan scan;
    struct mcp_scan_item item;
    struct slice found = SLICE_EMPTY;
    if (!scan_begin(&scan, object, '{')) {
        return SLICE_EMPTY;
    }
    while (scan_next(&scan, &item)) {
        found = slice_is(item.name, name) ? item.value : found;
    }
    return scan.is_broken ? SLICE_EMPTY : found;
}
