#include "bad_io.h"

#include <errno.h>
#include <fcntl.h>

#include "base/check.h"
#include "store/fake_ring.h"

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

/* ---- what a failed flush loses ------------------------------------------------------------- */

enum { PIECE_BYTES = 4096, UNFLUSHED_MAX = 1 << 30 };

/* What was in a file before a piece of it was written. */
struct before_write {
    int fd; /* -1: flushed since */
    uint32_t size;
    uint64_t offset;
    char bytes[PIECE_BYTES];
};

static void writes_remember(struct bad_io *bad, int fd, size_t size, uint64_t offset)
{
    (void)pthread_mutex_lock(&bad->lock);
    for (size_t done = 0; done < size; done += PIECE_BYTES) {
        struct before_write *before = (void *)buf_extend(&bad->unflushed, sizeof *before);
        ASSERT(before != NULL);
        uint32_t piece = (uint32_t)(size - done < PIECE_BYTES ? size - done : PIECE_BYTES);
        *before = (struct before_write){.fd = fd, .size = piece, .offset = offset + done};
        (void)io_system.pread(NULL, fd, before->bytes, piece, before->offset);
    }
    (void)pthread_mutex_unlock(&bad->lock);
}

/* They are on the disk, or gone: as after a real failed flush, no later one brings them back. */
static void writes_end(struct bad_io *bad, int fd, bool lost)
{
    (void)pthread_mutex_lock(&bad->lock);
    struct before_write *all = (void *)bad->unflushed.data;
    bool left = false;
    for (size_t i = bad->unflushed.len / sizeof *all; i > 0; i--) {
        struct before_write *before = &all[i - 1];
        if (before->fd == fd) {
            before->fd = -1;
            if (lost) {
                (void)io_system.pwrite(NULL, fd, before->bytes, before->size, before->offset);
            }
        }
        left = left || before->fd >= 0;
    }
    if (!left) {
        buf_clear(&bad->unflushed);
    }
    (void)pthread_mutex_unlock(&bad->lock);
}

static int flush_with(struct bad_io *bad, int fd, int (*flush)(void *, int))
{
    bool struck = strikes(bad, CALL_FLUSH);
    if (bad->kind == BAD_FLUSH) {
        writes_end(bad, fd, struck);
    }
    return struck ? error_of(bad) : flush(NULL, fd);
}

/* ---- the calls ----------------------------------------------------------------------------- */

static int bad_open(void *context, const char *path, int flags, mode_t mode)
{
    struct bad_io *bad = context;
    enum call call = (flags & O_CREAT) != 0 ? CALL_MAKE : CALL_LOOK;
    if (strikes(bad, call)) {
        return error_of(bad);
    }
    /* Without O_DIRECT: half of a write need not be whole blocks. */
    int fd = io_system.open(NULL, path, flags & ~O_DIRECT, mode);
    ASSERT(fd < BAD_FDS);
    if (fd >= 0) {
        bad->flushes[fd] = (flags & O_DSYNC) != 0;
    }
    return fd;
}

static int bad_close(void *context, int fd)
{
    struct bad_io *bad = context;
    if (bad->kind == BAD_FLUSH) {
        writes_end(bad, fd, false); /* the number may be another file's next */
    }
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
    if (bad->kind == BAD_FLUSH && !bad->flushes[fd]) {
        writes_remember(bad, fd, size, offset);
    }
    if (bad->flushes[fd] && bad->kind == BAD_FLUSH && strikes(bad, CALL_FLUSH)) {
        return error_of(bad); /* written past the cache: only this write is lost */
    }
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
    return flush_with(context, fd, io_system.fdatasync);
}

static int bad_fsync(void *context, int fd)
{
    return flush_with(context, fd, io_system.fsync);
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

static int bad_ring_open(void *context, struct io_ring **ret_ring)
{
    return strikes(context, CALL_LOOK) ? error_of(context) : fake_ring_open(context, ret_ring);
}

/* A ring that refuses a write writes nothing; one that takes it may still fail in bad_pwrite. */
static int bad_ring_begin(
    void *context, struct io_ring *ring, int fd, const void *bytes, size_t size, uint64_t offset)
{
    return strikes(context, CALL_LOOK) ? -EAGAIN
                                       : fake_ring_begin(context, ring, fd, bytes, size, offset);
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
                               .ring_open = bad_ring_open,
                               .ring_close = fake_ring_close,
                               .ring_begin = bad_ring_begin,
                               .ring_ended = fake_ring_ended,
                               .ring_fd = fake_ring_fd,
                               .context = bad},
        .kind = kind,
        .at = at,
        .lock = PTHREAD_MUTEX_INITIALIZER};
    buf_init(&bad->unflushed, &mem_libc, UNFLUSHED_MAX);
}

void bad_io_release(struct bad_io *bad)
{
    buf_release(&bad->unflushed);
    (void)pthread_mutex_destroy(&bad->lock);
}

const char *bad_kind_name(enum bad_kind kind)
{
    static const char *const names[BAD_KINDS] = {"no fault", "EIO", "ENOSPC", "a short write",
        "a torn write", "a failed flush", "a dead disk", "a write that lies"};
    return names[kind];
}
