/*
 * secret: keys and credentials that the configuration names by their file.
 *
 * Promises:  a failure names the file and never shows what is in it.
 * Ownership: the buffer is the caller's, to be wiped by secret_release.
 */
#ifndef ONCE_BASE_SECRET_H
#define ONCE_BASE_SECRET_H

#include "base/buf.h"
#include "base/err.h"

enum { SECRET_URL_BYTES_MAX = 1024 }; /* a URL as people see it, and its terminator */

/* All of a file, at most as long as the buffer may be; what: "key file". E_UNAVAILABLE: it cannot
 * be opened or read; E_INVALID: it is too long; E_NOMEM. */
enum status secret_read(
    const char *what, const char *path, struct buf *out, struct err *err) MUST_CHECK;
/* Without the final line end, which editors add. */
struct slice secret_line(struct slice text);
/* A URL for people and logs: "scheme://user:***@host", with the values of options named password
 * masked too; cut if it is too long. Returns ret_text. */
char *secret_url_put(char ret_text[SECRET_URL_BYTES_MAX], const char *url);
/* A zeroed one is fine. */
void secret_release(struct buf *secret);

#endif
