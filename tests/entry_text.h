/*
 * entry_text: entries as readers see them, for tests that look at a member or forge one.
 */
#ifndef ONCE_TESTS_ENTRY_TEXT_H
#define ONCE_TESTS_ENTRY_TEXT_H

#include <string.h>

#include "base/check.h"
#include "evidence/entry_form.h"

/* The full document, with a terminator. Returns its argument. */
static inline char *entry_text(const struct entry *entry, char *ret_text, size_t size)
{
    struct buf out;
    buf_init(&out, &mem_libc, size - 1);
    ASSERT(entry_expand(entry, &out) == OK);
    memcpy(ret_text, out.data, out.len);
    ret_text[out.len] = '\0';
    buf_release(&out);
    return ret_text;
}

/* Appends what would be stored if the full document had `to` in place of the first `from`. If the
 * result is not a full document, it is appended unchanged. False: it has no `from`. */
static inline bool entry_replace(
    const struct entry *entry, const char *from, const char *to, struct buf *out)
{
    struct buf full, forged;
    struct entry changed = *entry;
    size_t start = out->len;
    buf_init(&full, &mem_libc, 1 << 20);
    buf_init(&forged, &mem_libc, 1 << 20);
    ASSERT(entry_expand(entry, &full) == OK);
    const char *at = memmem(full.data, full.len, from, strlen(from));
    if (at != NULL) {
        size_t before = (size_t)(at - full.data);
        buf_append(&forged, full.data, before);
        buf_str(&forged, to);
        buf_append(&forged, at + strlen(from), full.len - before - strlen(from));
        changed.bytes = buf_view(&forged);
        if (entry_contract(&changed, out) != OK) {
            out->len = start;
            buf_slice(out, changed.bytes);
        }
    }
    buf_release(&full);
    buf_release(&forged);
    return at != NULL;
}

#endif
