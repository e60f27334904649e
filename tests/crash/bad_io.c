#include "bad_io.h"

#include <errno.h>
#include <fcntl.h>

/* What a call is, to say which kinds of failure it can have. */
enum call { CALL_LOOK, CALL_WRITE, CALL_FLUSH, CALL_MAKE, CALL_CHANGE };

static bool counts(enum bad_kind kind, enum call call)
{
    switch (kind) {
    case BAD_NONE:
    case BAD_EIO: return true;
    case BAD_SPACE: return call == CALL_WRITE || call == CALL_MAKE || call == CALL_FLUSH;
    case BAD_SHORT:
    case BAD_TORN:
    case BAD_LIE: return call == CALL_WRITE;
    case BAD_FLUSH: return call == CALL_FLUSH;
    case BAD_DEAD: return call != CALL_LOOK;
    }
    return false;
}

/* Whether this call is the one. */
static bool strikes(struct bad_io *bad, enum call call)
{
    if (!counts(bad->kind, call)) {
        return false;
    }
    uint64_t number = atomic_fetch_add(&bad->calls, 1) + 1;
    bool struck =
        bad->at != 0 && (number == bad->at || (bad->kind == BAD_DEAD && number > bad->at));
    if (struck) {
        atomic_fetch_add(&bad->went, 1);
    }
    return struck;
}

static int error_of(const struct bad_io *bad)
{
    return bad->kind == BAD_SPACE ? -ENOSPC : -EIO;
}

static int bad_open(void *context, const char *path, int flags, mode_t mode)
{
    struct bad_io *bad = context;
    enum call call = (flags & O_CREAT) != 0 ? CALL_MAKE : CALL_LOOK;
    return strikes(bad, call) ? error_of(bad) : io_system.open(NULL, path, flags, mode);
}

static int bad_close(void *context, int fd)
{
    int closed = io_system.close(NULL, fd); /* even one that fails has let go of the descriptor */
    return strikes(context, CALL_LOOK) ? error_of(context) : closed;
}

static ssize_t bad_pread(void *context, int fd, void *ret_bytes, size_t size, uint64_t offset)
{
    return strikes(context, CALL_LOOK) ? error_of(context)
                                       : io_system.pread(NULL, fd, ret_bytes, size, offset);
}

static ssize_t bad_pwrite(void *context, int fd, const void *bytes, size_t size, uint64_t offset)
{
    struct bad_io *bad = context;
    if (!strikes(bad, CALL_WRITE)) {
        return io_system.pwrite(NULL, fd, bytes, size, offset);
    }
    if (bad->kind == BAD_LIE) {
        return (ssize_t)size;
    }
    if (bad->kind != BAD_SHORT && bad->kind != BAD_TORN) {
        return error_of(bad);
    }
    ssize_t put = io_system.pwrite(NULL, fd, bytes, (size + 1) / 2, offset);
    return bad->kind == BAD_SHORT ? put : error_of(bad);
}

static int bad_fdatasync(void *context, int fd)
{
    return strikes(context, CALL_FLUSH) ? error_of(context) : io_system.fdatasync(NULL, fd);
}

static int bad_fsync(void *context, int fd)
{
    return strikes(context, CALL_FLUSH) ? error_of(context) : io_system.fsync(NULL, fd);
}

static int bad_ftruncate(void *context, int fd, uint64_t size)
{
    return strikes(context, CALL_CHANGE) ? error_of(context) : io_system.ftruncate(NULL, fd, size);
}

static int64_t bad_size(void *context, int fd)
{
    return strikes(context, CALL_LOOK) ? error_of(context) : io_system.size(NULL, fd);
}

static int bad_rename(void *context, const char *from, const char *to)
{
    return strikes(context, CALL_MAKE) ? error_of(context) : io_system.rename(NULL, from, to);
}

static int bad_unlink(void *context, const char *path)
{
    return strikes(context, CALL_CHANGE) ? error_of(context) : io_system.unlink(NULL, path);
}

static int bad_mkdir(void *context, const char *path, mode_t mode)
{
    return strikes(context, CALL_MAKE) ? error_of(context) : io_system.mkdir(NULL, path, mode);
}

static int bad_rmdir(void *context, const char *path)
{
    return strikes(context, CALL_CHANGE) ? error_of(context) : io_system.rmdir(NULL, path);
}

static int bad_lock(void *context, int fd)
{
    return strikes(context, CALL_LOOK) ? error_of(context) : io_system.lock(NULL, fd);
}

void bad_io_init(struct bad_io *bad, enum bad_kind kind, uint64_t at)
{
    *bad = (struct bad_io){.io = {.open = bad_open,
                               .close = bad_close,
                               .pread = bad_pread,
                               .pwrite = bad_pwrite,
                               .fdatasync = bad_fdatasync,
                               .fsync = bad_fsync,
                               .ftruncate = bad_ftruncate,
                               .size = bad_size,
                               .rename = bad_rename,
                               .unlink = bad_unlink,
                               .mkdir = bad_mkdir,
                               .rmdir = bad_rmdir,
                               .lock = bad_lock,
                               .context = bad},
        .kind = kind,
        .at = at};
}

const char *bad_kind_name(enum bad_kind kind)
{
    static const char *const names[BAD_KINDS] = {"no fault", "EIO", "ENOSPC", "a short write",
        "a torn write", "a failed flush", "a dead disk", "a write that lies"};
    return names[kind];
}
