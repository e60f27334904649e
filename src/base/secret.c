#include "base/secret.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/io.h"

enum status secret_read(const char *what, const char *path, struct buf *out, struct err *err)
{
    const struct io *io = &io_system;
    int fd = io->open(io->context, path, O_RDONLY, 0);
    if (fd < 0) {
        return err_errno(err, E_UNAVAILABLE, -fd, "cannot open %s '%s'", what, path);
    }
    enum status status = OK;
    int64_t size = io->size(io->context, fd);
    if (size < 0 || (uint64_t)size > out->max) {
        status = size < 0 ? err_errno(err, E_UNAVAILABLE, (int)-size, "cannot read '%s'", path)
                          : err_set(err, E_INVALID, "%s '%s' is longer than %zu bytes", what, path,
                                out->max);
    } else if (size > 0) {
        char *bytes = buf_extend(out, (size_t)size);
        int failed = bytes == NULL ? -ENOMEM : io_read_full(io, fd, bytes, (size_t)size, 0);
        if (failed != 0) {
            status = err_errno(err, failed == -ENOMEM ? E_NOMEM : E_UNAVAILABLE, -failed,
                "cannot read %s '%s'", what, path);
        }
    }
    (void)io->close(io->context, fd);
    return status;
}

struct slice secret_line(struct slice text)
{
    text.len -= text.len > 0 && text.data[text.len - 1] == '\n';
    text.len -= text.len > 0 && text.data[text.len - 1] == '\r';
    return text;
}

void secret_release(struct buf *secret)
{
    if (secret->data != NULL) {
        mem_wipe(secret->data, secret->cap);
    }
    buf_release(secret);
}

/* Where the secret of a URL that names an account begins and ends; false: it has none. */
static bool account_secret(const char *url, const char **ret_begin, const char **ret_end)
{
    const char *account = strstr(url, "://");
    const char *end = account == NULL ? NULL : strrchr(account + 3, '@');
    const char *colon = end == NULL ? NULL : memchr(account + 3, ':', (size_t)(end - account - 3));
    if (colon == NULL) {
        return false;
    }
    *ret_begin = colon + 1;
    *ret_end = end;
    return true;
}

/* The same for an option: "?password=…", "&sslpassword=…". */
static bool option_secret(const char *url, const char **ret_begin, const char **ret_end)
{
    static const char name[] = "password=";
    const char *found = strstr(url, name);
    if (found == NULL) {
        return false;
    }
    *ret_begin = found + sizeof name - 1;
    *ret_end = *ret_begin + strcspn(*ret_begin, "&");
    return true;
}

char *secret_url_put(char ret_text[SECRET_URL_BYTES_MAX], const char *url)
{
    const char *begin = NULL;
    const char *end = NULL;
    size_t len = 0;
    if (account_secret(url, &begin, &end)) {
        len = (size_t)snprintf(ret_text, SECRET_URL_BYTES_MAX, "%.*s***", (int)(begin - url), url);
        url = end;
    }
    while (len < SECRET_URL_BYTES_MAX && option_secret(url, &begin, &end)) {
        len += (size_t)snprintf(
            ret_text + len, SECRET_URL_BYTES_MAX - len, "%.*s***", (int)(begin - url), url);
        url = end;
    }
    if (len < SECRET_URL_BYTES_MAX) {
        (void)snprintf(ret_text + len, SECRET_URL_BYTES_MAX - len, "%s", url);
    }
    return ret_text;
}
