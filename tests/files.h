/*
 * files: reading test data. Paths are relative to the tests folder of the source tree.
 */
#ifndef ONCE_TESTS_FILES_H
#define ONCE_TESTS_FILES_H

#include <stdio.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/slice.h"

enum { FILE_BYTES_MAX = 64 << 20 }; /* far above any test file */

/* The whole file, appended; the test stops when it cannot be read. */
static inline void file_read(const char *path, struct buf *out)
{
    char full[4096];
    (void)snprintf(full, sizeof full, "%s/%s", ONCE_TESTS_DIR, path);
    FILE *file = fopen(path[0] == '/' ? path : full, "rb");
    if (file == NULL) {
        (void)fprintf(stderr, "cannot open %s\n", full);
    }
    ASSERT(file != NULL);
    char piece[65536];
    size_t size;
    while ((size = fread(piece, 1, sizeof piece, file)) > 0) {
        buf_append(out, piece, size);
    }
    ASSERT(ferror(file) == 0);
    (void)fclose(file);
    ASSERT(buf_status(out) == OK);
}

/* Take the next line off the front of text; false when there is none left. */
static inline bool file_line(struct slice *text, struct slice *ret_line)
{
    if (text->len == 0) {
        return false;
    }
    const char *newline = memchr(text->data, '\n', text->len);
    size_t size = newline == NULL ? text->len : (size_t)(newline - text->data);
    *ret_line = slice_of(text->data, size);
    size_t taken = newline == NULL ? size : size + 1;
    *text = slice_of(text->data + taken, text->len - taken);
    return true;
}

#endif
