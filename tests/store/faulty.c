#include "store/faulty.h"

#include "store/fake_ring.h"
#include "store/power.h"

/* 0: go on; otherwise what to return. */
static int strike(struct faulty *faulty, enum faulty_what what)
{
    if (faulty->what != FAULTY_ANY && faulty->what != what) {
        return 0;
    }
    faulty->calls++;
    uint64_t count = faulty->fail_count == 0 ? 1 : faulty->fail_count;
    if (faulty->fail_at == 0 || faulty->calls < faulty->fail_at ||
        faulty->calls - faulty->fail_at >= count) {
        return 0;
    }
    faulty->failed++;
    return faulty->error == 0 ? 1 : faulty->error;
}

static int faulty_open(void *context, const char *path, int flags, mode_t mode)
{
    int hit = strike(context, FAULTY_ANY);
    return hit < 0 ? hit : power_io_fast.open(NULL, path, flags, mode);
}

static int faulty_close(void *context, int fd)
{
    int hit = strike(context, FAULTY_ANY);
    int closed = power_io_fast.close(NULL, fd); /* as the system does, even when it complains */
    return hit < 0 ? hit : closed;
}

static ssize_t faulty_pread(void *context, int fd, void *bytes, size_t size, uint64_t offset)
{
    int hit = strike(context, FAULTY_PREAD);
    if (hit < 0) {
        return hit;
    }
    return power_io_fast.pread(NULL, fd, bytes, hit > 0 && size > 1 ? size / 2 : size, offset);
}

static ssize_t faulty_pwrite(void *context, int fd, const void *bytes, size_t size, uint64_t offset)
{
    int hit = strike(context, FAULTY_PWRITE);
    if (hit < 0) {
        return hit;
    }
    return power_io_fast.pwrite(NULL, fd, bytes, hit > 0 && size > 1 ? size / 2 : size, offset);
}

static int faulty_sync(void *context, int fd)
{
    int hit = strike(context, FAULTY_SYNC);
    return hit < 0 ? hit : power_io_fast.fsync(NULL, fd);
}

static int faulty_ftruncate(void *context, int fd, uint64_t size)
{
    int hit = strike(context, FAULTY_ANY);
    return hit < 0 ? hit : power_io_fast.ftruncate(NULL, fd, size);
}

static int64_t faulty_size(void *context, int fd)
{
    int hit = strike(context, FAULTY_ANY);
    return hit < 0 ? hit : power_io_fast.size(NULL, fd);
}

static int faulty_rename(void *context, const char *from, const char *to)
{
    int hit = strike(context, FAULTY_ANY);
    return hit < 0 ? hit : power_io_fast.rename(NULL, from, to);
}

static int faulty_unlink(void *context, const char *path)
{
    int hit = strike(context, FAULTY_ANY);
    return hit < 0 ? hit : power_io_fast.unlink(NULL, path);
}

static int faulty_mkdir(void *context, const char *path, mode_t mode)
{
    int hit = strike(context, FAULTY_ANY);
    return hit < 0 ? hit : power_io_fast.mkdir(NULL, path, mode);
}

static int faulty_rmdir(void *context, const char *path)
{
    int hit = strike(context, FAULTY_ANY);
    return hit < 0 ? hit : power_io_fast.rmdir(NULL, path);
}

static int faulty_lock(void *context, int fd)
{
    int hit = strike(context, FAULTY_ANY);
    return hit < 0 ? hit : power_io_fast.lock(NULL, fd);
}

static int faulty_ring_open(void *context, struct io_ring **ret_ring)
{
    int hit = strike(context, FAULTY_ANY);
    return hit < 0 ? hit : fake_ring_open(context, ret_ring);
}

/* A ring that refuses a write. One that is begun and fails is a pwrite that does. */
static int faulty_ring_begin(
    void *context, struct io_ring *ring, int fd, const void *bytes, size_t size, uint64_t offset)
{
    int hit = strike(context, FAULTY_RING);
    return hit < 0 ? hit : fake_ring_begin(context, ring, fd, bytes, size, offset);
}

void faulty_init(struct faulty *faulty)
{
    *faulty = (struct faulty){.io = {.open = faulty_open,
                                  .close = faulty_close,
                                  .pread = faulty_pread,
                                  .pwrite = faulty_pwrite,
                                  .fdatasync = faulty_sync,
                                  .fsync = faulty_sync,
                                  .ftruncate = faulty_ftruncate,
                                  .size = faulty_size,
                                  .rename = faulty_rename,
                                  .unlink = faulty_unlink,
                                  .mkdir = faulty_mkdir,
                                  .rmdir = faulty_rmdir,
                                  .lock = faulty_lock,
                                  .ring_open = faulty_ring_open,
                                  .ring_close = fake_ring_close,
                                  .ring_begin = faulty_ring_begin,
                                  .ring_ended = fake_ring_ended,
                                  .ring_fd = fake_ring_fd,
                                  .context = faulty}};
}

static void *faulty_resize(void *context, void *pointer, size_t size)
{
    struct faulty_mem *faulty = context;
    if (size > 0 && ++faulty->calls == faulty->fail_at) {
        faulty->failed = true;
        return NULL;
    }
    return mem_libc.resize(NULL, pointer, size);
}

void faulty_mem_init(struct faulty_mem *faulty)
{
    *faulty = (struct faulty_mem){.mem = {.resize = faulty_resize, .context = faulty}};
}
