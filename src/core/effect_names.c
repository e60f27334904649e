#include "core/effect_names.h"

#include <string.h>

#include "base/check.h"

/* The JSON string that begins at a place, with its quotes; empty if there is none. */
static struct slice string_at(struct slice text, size_t at)
{
    for (size_t i = at + 1; at < text.len && text.data[at] == '"' && i < text.len; i++) {
        if (text.data[i] == '"') {
            return slice_of(text.data + at, i + 1 - at);
        }
        i += text.data[i] == '\\';
    }
    return SLICE_EMPTY;
}

/* The value of the member that begins at *at, if it has this name; *at is then after it. */
static struct slice take(struct slice detail, const char *name, size_t *at)
{
    struct slice start = slice_str(name);
    ASSERT(*at <= detail.len);
    if (detail.len - *at < start.len || memcmp(detail.data + *at, start.data, start.len) != 0) {
        return SLICE_EMPTY;
    }
    struct slice value = string_at(detail, *at + start.len);
    ASSERT(value.len == 0 || value.len >= 2); /* its quotes */
    if (value.len > 0) {
        *at += start.len + value.len;
        *at += *at < detail.len && detail.data[*at] == ',';
    }
    return value;
}

struct effect_names effect_names_of(struct slice detail)
{
    struct effect_names names = {.effect_id = SLICE_EMPTY, .command_id = SLICE_EMPTY};
    size_t at = 1;
    if (detail.len > 0 && detail.data[0] == '{') {
        names.effect_id = take(detail, "\"effect_id\":", &at);
        names.command_id = take(detail, "\"command_id\":", &at);
    }
    return names;
}
