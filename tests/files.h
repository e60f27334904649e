/*
 * files: reading test data, by path or by name inside the tests folder of the source tree.
 */
#ifndef ONCE_TESTS_FILES_H
#define ONCE_TESTS_FILES_H

#include <stdio.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/slice.h"

enum { FILE_BYTES_MAX = 64 << 20 }; /* far above any test file */

/* The whole file at a path, appended; the test stops when it cannot be read. */
static inline void file_read_path(const char *path, struct buf *out)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        (void)fprintf(stderr, "cannot open %s\n", path);
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

#ifndef ONCE_TESTS_DIR
#define ONCE_TESTS_DIR "tests" /* the build says where; this is for a look at the header alone */
#endif

/* The same for a file of the tests folder. */
static inline void file_read(const char *name, struct buf *out)
{
    char path[4096];
    (void)snprintf(path, sizeof path, "%s/%s", ONCE_TESTS_DIR, name);
    file_read_path(path, out);
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
