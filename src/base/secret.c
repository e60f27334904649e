#include "base/secret.h"

#include <errno.h>
#include <fcntl.h>

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
