/*
 * Matches globs against paths, on two levels that work alike: segments of a path against segments
 * of a glob, and within them characters (text_glob). On either level only the last star is ever
 * retried: whatever an earlier star could match, the last can too. So no pair of characters of path
 * and glob is compared twice for the same star.
 */
#include "base/text.h"
#include "gateway/request_form.h"

/* A text that is split at its slashes. */
struct segments {
    struct slice text; /* the first segment */
    size_t left;       /* bytes after it, from its slash on */
    bool is_over;      /* there is no segment left */
};

static struct segments segment_at(const char *data, size_t len)
{
    const char *slash = len == 0 ? NULL : memchr(data, '/', len);
    size_t first = slash == NULL ? len : (size_t)(slash - data);
    return (struct segments){.text = slice_of(data, first), .left = len - first};
}

static struct segments segments_next(struct segments at)
{
    if (at.left == 0) {
        return (struct segments){.is_over = true};
    }
    return segment_at(at.text.data + at.text.len + 1, at.left - 1);
}

static bool is_any_segments(struct segments glob)
{
    return !glob.is_over && slice_is(glob.text, "**");
}

bool route_glob(const char *glob, struct slice path)
{
    struct segments g = segment_at(glob, strlen(glob));
    struct segments p = segment_at(path.data, path.len);
    struct segments star = {.is_over = true}; /* after the last "**", once there has been one */
    struct segments star_p = {.is_over = true};
    bool has_star = false;
    while (!p.is_over) {
        if (is_any_segments(g)) {
            g = segments_next(g);
            star = g;
            star_p = p;
            has_star = true;
        } else if (!g.is_over && text_glob(g.text, p.text)) {
            g = segments_next(g);
            p = segments_next(p);
        } else if (has_star) {
            star_p = segments_next(star_p);
            g = star;
            p = star_p;
        } else {
            return false;
        }
    }
    while (is_any_segments(g)) {
        g = segments_next(g);
    }
    return g.is_over;
}
