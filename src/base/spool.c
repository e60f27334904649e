#include "base/spool.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/check.h"

enum {
    MEMORY_KEPT_BYTES_MAX = 64 << 10, /* by an empty spool: most bodies fit; many are idle */
    PATH_BYTES_MAX = 4096,            /* PATH_MAX */
};

void spool_init(struct spool *spool, const struct mem *mem, const char *dir, uint64_t memory_max,
    uint64_t total_max)
{
    total_max = total_max < SIZE_MAX ? total_max : SIZE_MAX; /* or it could not be viewed */
    memory_max = memory_max < total_max ? memory_max : total_max;
    *spool = (struct spool){.dir = dir, .memory_max = memory_max, .total_max = total_max};
    buf_init(&spool->memory, mem, (size_t)memory_max);
}

void spool_share(struct spool *spool, struct spool_budget *budget)
{
    ASSERT(spool->bytes == 0);
    spool->budget = budget;
}

/* Its bytes are about to go. */
static void give_back(struct spool *spool)
{
    if (spool->budget != NULL) {
        atomic_fetch_sub(&spool->budget->bytes, spool->bytes);
    }
}

static void drop_file(struct spool *spool)
{
    if (spool->map != NULL) {
        (void)munmap(spool->map, (size_t)spool->bytes);
    }
    if (spool->file > 0) {
        (void)close(spool->file - 1);
    }
    spool->map = NULL;
    spool->file = 0;
}

void spool_clear(struct spool *spool)
{
    give_back(spool);
    drop_file(spool);
    if (spool->memory.cap > MEMORY_KEPT_BYTES_MAX) {
        buf_release(&spool->memory);
    }
    buf_clear(&spool->memory);
    spool->bytes = 0;
    spool->is_viewed = false;
}

void spool_release(struct spool *spool)
{
    if (spool == NULL) {
        return;
    }
    give_back(spool);
    drop_file(spool);
    buf_release(&spool->memory);
    *spool = (struct spool){0};
}

uint64_t spool_bytes(const struct spool *spool)
{
    return spool->bytes;
}

/* ---- the file ------------------------------------------------------------------------------ */

static enum status cannot_spool(struct err *err, int why)
{
    return err_errno(err, E_UNAVAILABLE, why, "cannot spool the body to disk");
}

/* For file systems without O_TMPFILE. Between the two calls it has a name: a process that is killed
 * there leaves an empty file behind. */
static int open_and_unlink(const char *dir)
{
    char path[PATH_BYTES_MAX];
    int size = snprintf(path, sizeof path, "%s/.once-spool-XXXXXX", dir);
    if (size < 0 || (size_t)size >= sizeof path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    int file = mkostemp(path, O_CLOEXEC);
    if (file >= 0 && unlink(path) != 0) {
        int why = errno;
        (void)close(file);
        errno = why;
        return -1;
    }
    return file;
}

/* Without O_TMPFILE, old kernels return EISDIR and file systems EOPNOTSUPP. */
static int open_unnamed(const char *dir)
{
    int file;
    do {
        file = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, S_IRUSR | S_IWUSR);
    } while (file < 0 && errno == EINTR);
    if (file < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL)) {
        file = open_and_unlink(dir);
    }
    return file;
}

/* All of it, at that place. 0 or errno. */
static int write_all(int file, struct slice piece, uint64_t offset)
{
    size_t done = 0;
    while (done < piece.len) {
        ssize_t size = pwrite(file, piece.data + done, piece.len - done, (off_t)(offset + done));
        if (size < 0 && errno == EINTR) {
            continue;
        }
        if (size <= 0) {
            return size < 0 ? errno : ENOSPC;
        }
        done += (size_t)size;
    }
    return 0;
}

/* Cuts off the part of a piece that was written before it turned out not to fit, because it takes
 * space from others. The next piece overwrites it in any case, so a failure does not matter. */
static void cut_back(int file, uint64_t bytes)
{
    int ignored = ftruncate(file, (off_t)bytes);
    (void)ignored;
}

static enum status put_in_file(struct spool *spool, struct slice piece, struct err *err)
{
    int why = write_all(spool->file - 1, piece, spool->bytes);
    if (why != 0) {
        cut_back(spool->file - 1, spool->bytes);
        return cannot_spool(err, why);
    }
    spool->bytes += piece.len;
    return OK;
}

/* The bytes in memory are written first, and freed only when all of them are in the file. */
static enum status move_to_file(struct spool *spool, struct slice piece, struct err *err)
{
    int file = open_unnamed(spool->dir);
    if (file < 0) {
        return cannot_spool(err, errno);
    }
    int why = write_all(file, buf_view(&spool->memory), 0);
    why = why == 0 ? write_all(file, piece, spool->bytes) : why;
    if (why != 0) {
        (void)close(file);
        return cannot_spool(err, why);
    }
    spool->file = file + 1;
    spool->bytes += piece.len;
    buf_release(&spool->memory);
    return OK;
}

/* ---- bytes --------------------------------------------------------------------------------- */

static enum status put_in_memory(struct spool *spool, struct slice piece, struct err *err)
{
    if (buf_reserve(&spool->memory, piece.len) != OK) {
        spool->memory.status = OK; /* nothing was appended */
        return err_set(err, E_NOMEM, "out of memory");
    }
    buf_slice(&spool->memory, piece);
    spool->bytes += piece.len;
    return OK;
}

static enum status put_alone(struct spool *spool, struct slice piece, struct err *err)
{
    if (spool->file > 0) {
        return put_in_file(spool, piece, err);
    }
    return spool->bytes + piece.len > spool->memory_max ? move_to_file(spool, piece, err)
                                                        : put_in_memory(spool, piece, err);
}

/* The bytes are counted before they are there, so that the budget is never exceeded. */
static enum status put_shared(struct spool *spool, struct slice piece, struct err *err)
{
    struct spool_budget *budget = spool->budget;
    if (budget == NULL) {
        return put_alone(spool, piece, err);
    }
    uint64_t all = atomic_fetch_add(&budget->bytes, piece.len) + piece.len;
    enum status status =
        all > atomic_load(&budget->max)
            ? err_limit(err, ERR_LIMIT_SPOOL_BYTES,
                  "too many bytes of bodies are on their way: %s is reached", budget->setting)
            : put_alone(spool, piece, err);
    if (status != OK) {
        atomic_fetch_sub(&budget->bytes, piece.len);
    }
    return status;
}

enum status spool_put(struct spool *spool, struct slice piece, struct err *err)
{
    ASSERT(spool->bytes <= spool->total_max);
    ASSERT(spool->file > 0 || spool->memory.len == spool->bytes);
    if (spool->is_viewed) {
        return err_set(err, E_MISUSE, "nothing can be added to a body that is in use");
    }
    if (piece.len > spool->total_max - spool->bytes) {
        return err_limit(err, ERR_LIMIT_BODY_BYTES,
            "the body is larger than the %llu bytes it may have",
            (unsigned long long)spool->total_max);
    }
    if (piece.len == 0) {
        return OK;
    }
    return put_shared(spool, piece, err);
}

struct slice spool_peek(const struct spool *spool, uint64_t from, char *buffer, size_t room)
{
    ASSERT(from <= spool->bytes);
    size_t left = (size_t)(spool->bytes - from);
    if (spool->file == 0) {
        return left > 0 ? slice_of(spool->memory.data + from, left) : SLICE_EMPTY;
    }
    ssize_t size;
    do {
        size = pread(spool->file - 1, buffer, left < room ? left : room, (off_t)from);
    } while (size < 0 && errno == EINTR);
    return slice_of(buffer, size > 0 ? (size_t)size : 0);
}

enum status spool_view(struct spool *spool, struct slice *ret_bytes, struct err *err)
{
    if (spool->file > 0 && spool->map == NULL) {
        void *map = mmap(NULL, (size_t)spool->bytes, PROT_READ, MAP_SHARED, spool->file - 1, 0);
        if (map == MAP_FAILED) {
            return cannot_spool(err, errno);
        }
        spool->map = map;
    }
    spool->is_viewed = true;
    *ret_bytes =
        spool->file > 0 ? slice_of(spool->map, (size_t)spool->bytes) : buf_view(&spool->memory);
    return OK;
}
