/*
 * The files of a journal: their names, the zeros ahead of use, the step to the next segment.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "store/journal/impl.h"

enum {
    ZEROS_BYTES = 256 << 10,    /* a write of this size runs at the disk's speed; four times smaller
                                   ones take three times the CPU with O_DIRECT */
    ZEROS_DIRTY_BYTES = 1 << 20 /* written before they are flushed: some ms of a disk */
};

static _Alignas(JOURNAL_BLOCK_BYTES) char zeros[ZEROS_BYTES]; /* aligned for O_DIRECT */

struct path path_in(const char *directory, const char *name)
{
    struct path path;
    (void)snprintf(path.text, sizeof path.text, "%.*s/%s", JOURNAL_PATH_MAX, directory, name);
    return path;
}

struct path journal_path(const struct journal *journal, const char *name)
{
    return path_in(journal->options.path, name);
}

struct path segment_path(const char *directory, uint64_t number)
{
    struct path path;
    (void)snprintf(path.text, sizeof path.text, "%.*s/segment-%016" PRIx64, JOURNAL_PATH_MAX,
        directory, number);
    return path;
}

static int number_compare(const void *a, const void *b)
{
    const uint64_t *left = a;
    const uint64_t *right = b;
    return *left < *right ? -1 : *left > *right;
}

/* The number of "prefix-%016x"; false for any other name. */
static bool name_number(const char *name, const char *prefix, uint64_t *ret_number)
{
    size_t len = strlen(prefix);
    if (strncmp(name, prefix, len) != 0 || name[len] != '-' || strlen(name) != len + 17) {
        return false;
    }
    char *end;
    errno = 0;
    unsigned long long number = strtoull(name + len + 1, &end, 16);
    *ret_number = number;
    return errno == 0 && *end == '\0';
}

static enum status list_read(DIR *dir, const char *prefix, struct buf *numbers)
{
    for (struct dirent *item = readdir(dir); item != NULL; item = readdir(dir)) {
        uint64_t number;
        if (name_number(item->d_name, prefix, &number)) {
            buf_append(numbers, &number, sizeof number);
        }
    }
    return buf_status(numbers);
}

enum status segment_list(const char *directory, const char *prefix, const struct mem *mem,
    uint64_t **ret_numbers, size_t *ret_count, struct err *err)
{
    DIR *dir = opendir(directory);
    if (dir == NULL) {
        return err_errno(err, E_UNAVAILABLE, errno, "cannot read the directory '%s'", directory);
    }
    struct buf numbers;
    buf_init(&numbers, mem, SIZE_MAX / 2);
    enum status status = list_read(dir, prefix, &numbers);
    (void)closedir(dir);
    if (status != OK) {
        buf_release(&numbers);
        return err_set(err, status, "out of memory for the names in '%s'", directory);
    }
    *ret_numbers = (uint64_t *)(void *)numbers.data;
    *ret_count = numbers.len / sizeof **ret_numbers;
    if (*ret_count > 1) {
        qsort(*ret_numbers, *ret_count, sizeof **ret_numbers, number_compare);
    }
    return OK;
}

uint64_t segment_file_bytes(const struct io *io, const char *directory, uint64_t number)
{
    struct path path = segment_path(directory, number);
    int fd = io->open(io->context, path.text, O_RDONLY, 0);
    int64_t size = fd < 0 ? 0 : io->size(io->context, fd);
    if (fd >= 0) {
        (void)io->close(io->context, fd);
    }
    return size < 0 ? 0 : (uint64_t)size;
}

enum status segment_add(struct journal *journal, const struct segment *segment, struct err *err)
{
    if (journal->segments_count == journal->segments_cap) {
        size_t cap = journal->segments_cap == 0 ? 16 : journal->segments_cap * 2;
        struct segment *grown =
            mem_resize(journal->mem, journal->segments, cap * sizeof *journal->segments);
        if (grown == NULL) {
            return err_set(err, E_NOMEM, "out of memory for the list of segments");
        }
        journal->segments = grown;
        journal->segments_cap = cap;
    }
    journal->segments[journal->segments_count++] = *segment;
    return OK;
}

void segment_forget_fd(struct journal *journal, struct segment *segment)
{
    if (segment->fd >= 0) {
        (void)journal->io->close(journal->io->context, segment->fd);
        segment->fd = -1;
        journal->files_open--;
    }
}

/* Closes the open segment with the lowest number: old segments are read least. */
static void files_limit(struct journal *journal)
{
    for (size_t i = 0; i < journal->segments_count; i++) {
        if (journal->segments[i].fd >= 0) {
            segment_forget_fd(journal, &journal->segments[i]);
            return;
        }
    }
}

enum status segment_fd(
    struct journal *journal, struct segment *segment, int *ret_fd, struct err *err)
{
    if (segment->fd < 0) {
        if (journal->files_open >= JOURNAL_FILES_OPEN_MAX) {
            files_limit(journal);
        }
        struct path path = segment_path(journal->options.path, segment->number);
        int fd = journal->io->open(journal->io->context, path.text, O_RDONLY, 0);
        if (fd < 0) {
            enum status status = fd == -ENOENT ? E_CORRUPT : E_UNAVAILABLE;
            return err_errno(err, status, -fd, "cannot open '%s'", path.text);
        }
        segment->fd = fd;
        journal->files_open++;
    }
    *ret_fd = segment->fd;
    return OK;
}

static int zeros_write(const struct io *io, int fd, uint64_t from, uint64_t until)
{
    while (from < until) {
        size_t size = until - from < ZEROS_BYTES ? (size_t)(until - from) : ZEROS_BYTES;
        int failed = io_write_full(io, fd, zeros, size, from);
        if (failed != 0) {
            return failed;
        }
        from += size;
    }
    return 0;
}

/* Writes zeros piece by piece: dirty pages delay every batch that is flushed at the same time.
 * *ret_is_lost: a flush failed. */
static int zeros_lay(const struct io *io, int fd, uint64_t from, uint64_t until, bool *ret_is_lost)
{
    int failed = 0;
    *ret_is_lost = false;
    while (failed == 0 && from < until) {
        uint64_t to = until - from < ZEROS_DIRTY_BYTES ? until : from + ZEROS_DIRTY_BYTES;
        failed = zeros_write(io, fd, from, to);
        if (failed == 0) {
            failed = io->fdatasync(io->context, fd);
            *ret_is_lost = failed != 0;
        }
        from = to;
    }
    return failed;
}

int segment_zero(const struct io *io, int fd, uint64_t from, uint64_t until)
{
    bool is_lost; /* the caller has no data in the file that could be lost */
    return zeros_lay(io, fd, from, until, &is_lost);
}

static enum status grow_unavailable(struct journal *journal, int failed, struct err *err)
{
    (void)err_errno(err, E_UNAVAILABLE, -failed,
        "cannot write ahead in segment %" PRIu64 " of '%s'", journal->tail.number,
        journal->options.path);
    err_hint(err, "make room on the disk; what is stored is safe and can be read");
    return E_UNAVAILABLE;
}

/* Without space, less is written ahead from now on: the needed bytes may fit although a whole step
 * does not, and no commit tries large writes in vain. */
static void step_halve(struct journal *journal)
{
    uint64_t step = journal->zero_step / 2;
    journal->zero_step = step < JOURNAL_SEGMENT_MIN ? JOURNAL_SEGMENT_MIN : step;
}

/*
 * The mutex is released while writing; `growing` prevents others from writing zeros to the same
 * place, which might then hold a batch.
 */
enum status segment_grow(struct journal *journal, uint64_t until, struct err *err)
{
    while (journal->growing) {
        (void)pthread_cond_wait(&journal->changed, &journal->mutex);
    }
    if (until <= journal->tail.zeroed) {
        return OK;
    }
    uint64_t from = journal->tail.zeroed;
    uint64_t target = from + journal->zero_step > until ? from + journal->zero_step : until;
    target = block_up(target > journal->tail.size ? journal->tail.size : target);
    ASSERT(target >= until); /* the caller rolls to a segment that has room first */
    journal->growing = true;
    int fd = journal->tail.fd;
    (void)pthread_mutex_unlock(&journal->mutex);
    bool is_lost;
    int failed = zeros_lay(journal->io, fd, from, target, &is_lost);
    bool short_of_space = failed == -ENOSPC && !is_lost;
    if (short_of_space && target > block_up(until)) {
        target = block_up(until);
        failed = zeros_lay(journal->io, fd, from, target, &is_lost);
    }
    (void)pthread_mutex_lock(&journal->mutex);
    journal->growing = false;
    (void)pthread_cond_broadcast(&journal->changed);
    if (is_lost) {
        /* A flush that failed may have dropped pages of this very file: nothing is known. */
        struct err cause = {0};
        (void)err_errno(&cause, E_UNKNOWN, -failed, "flushing zeros ahead in segment %" PRIu64,
            journal->tail.number);
        return journal_fail(journal, &cause, err);
    }
    if (short_of_space) {
        step_halve(journal);
    }
    if (failed != 0) {
        return grow_unavailable(journal, failed, err);
    }
    journal->tail.zeroed = target;
    if (short_of_space) {
        return OK;
    }
    uint64_t step = journal->zero_step * 2;
    journal->zero_step = step > JOURNAL_ZERO_MAX ? JOURNAL_ZERO_MAX : step;
    return OK;
}

uint64_t spare_wanted(const struct journal *journal)
{
    uint64_t end = place_offset(journal->next.place) + journal->active->len;
    bool whole =
        journal->zero_step == JOURNAL_ZERO_MAX &&
        journal->tail.zeroed / JOURNAL_BLOCK_BYTES == journal->tail.size / JOURNAL_BLOCK_BYTES;
    if (journal->spare_ready || (!whole && end <= journal->tail.size / 2)) {
        return 0;
    }
    return whole ? journal->options.segment_bytes : journal->zero_step;
}

/* A spare is zeros only. It is written in full before it gets a segment's name. */
enum status segment_spare(struct journal *journal, uint64_t bytes, struct err *err)
{
    const struct io *io = journal->io;
    struct path path = journal_path(journal, "spare");
    int direct = atomic_load(&journal->writer.way) == JOURNAL_WAY_BUFFERED ? 0 : O_DIRECT;
    int fd = io->open(io->context, path.text, O_RDWR | O_CREAT | O_TRUNC | direct, 0600);
    int failed = fd < 0 ? fd : 0;
    if (failed == 0) {
        uint64_t size = journal->options.segment_bytes;
        failed = segment_zero(io, fd, 0, block_up(bytes > size ? size : bytes));
        int closed = io->close(io->context, fd);
        failed = failed != 0 ? failed : closed;
    }
    if (failed != 0) {
        if (failed == -ENOSPC) {
            step_halve(journal);
        }
        (void)io->unlink(io->context, path.text);
        (void)err_errno(
            err, E_UNAVAILABLE, -failed, "cannot make the next segment '%s'", path.text);
        err_hint(err, "make room on the disk; what is stored is safe and can be read");
        return E_UNAVAILABLE;
    }
    return OK;
}

static enum status tail_fail(
    struct journal *journal, int failed, const char *what, const char *path, struct err *err)
{
    struct err cause = {0};
    (void)err_errno(&cause, E_UNKNOWN, -failed, "cannot %s '%s'", what, path);
    return journal_fail(journal, &cause, err);
}

static enum status spare_begin(
    struct journal *journal, const struct segment_header *header, struct err *err)
{
    const struct io *io = journal->io;
    struct path spare = journal_path(journal, "spare");
    unsigned char block[JOURNAL_BLOCK_BYTES];
    segment_header_encode(header, block);
    int fd = io->open(io->context, spare.text, O_RDWR, 0);
    int failed = fd < 0 ? fd : io_write_full(io, fd, block, sizeof block, 0);
    if (failed == 0) {
        failed = io->fsync(io->context, fd);
    }
    if (fd >= 0) {
        int closed = io->close(io->context, fd);
        failed = failed != 0 ? failed : closed;
    }
    if (failed != 0) {
        /* It is not a segment yet: nothing happened. It is made again the next time. */
        return err_errno(err, E_UNAVAILABLE, -failed, "cannot begin the segment '%s'", spare.text);
    }
    struct path path = segment_path(journal->options.path, header->number);
    failed = io->rename(io->context, spare.text, path.text);
    if (failed != 0) {
        return err_errno(err, E_UNAVAILABLE, -failed, "cannot name the segment '%s'", path.text);
    }
    failed = io_sync_dir(io, journal->options.path);
    /* Its name may or may not survive a power loss, so nothing may be written into it. */
    return failed == 0 ? OK : tail_fail(journal, failed, "flush the name of", path.text, err);
}

enum status segment_roll(struct journal *journal, uint64_t batch_bytes, struct err *err)
{
    ASSERT(journal->active->len == 0 && journal->flight == NULL);
    while (journal->growing) {
        (void)pthread_cond_wait(&journal->changed, &journal->mutex);
    }
    enum status status = OK;
    if (!journal->spare_ready) {
        status = segment_spare(journal, journal->zero_step, err);
        if (status != OK) {
            return status;
        }
    }
    journal->spare_ready = false;
    uint64_t need = JOURNAL_BLOCK_BYTES + block_up(batch_bytes);
    uint64_t size = journal->options.segment_bytes;
    struct segment_header header = {.number = journal->tail.number + 1,
        .size = need > size ? need : size,
        .mark = journal->next};
    header.mark.place = place_make(header.number, JOURNAL_BLOCK_BYTES);
    memcpy(header.chain_id, journal->identity.keys.chain_id, 16);
    status = spare_begin(journal, &header, err);
    if (status != OK) {
        return status;
    }
    struct segment *closed = segment_get(journal, journal->tail.number);
    ASSERT(closed != NULL);
    closed->end = place_offset(journal->next.place);
    struct segment segment = {.number = header.number,
        .mark = header.mark,
        .end = JOURNAL_BLOCK_BYTES,
        .seed = segment_seed(header.chain_id, header.number),
        .fd = -1};
    status = segment_add(journal, &segment, err);
    if (status == OK) {
        tail_close(journal);
        status = tail_open(journal, &header, err);
    }
    if (status != OK) {
        /* The segment exists, but is not in our list: only a restart can continue. */
        struct err cause = err == NULL ? (struct err){0} : *err;
        return journal_fail(journal, &cause, err);
    }
    journal->next.place = header.mark.place;
    journal->stable_mark.place = header.mark.place;
    atomic_store(&journal->stable, header.mark.place);
    return OK;
}

enum status tail_open(struct journal *journal, const struct segment_header *header, struct err *err)
{
    const struct io *io = journal->io;
    enum journal_way way = atomic_load(&journal->writer.way);
    bool direct = way != JOURNAL_WAY_BUFFERED;
    struct path path = segment_path(journal->options.path, header->number);
    struct tail tail = {.number = header->number,
        .size = header->size,
        .seed = segment_seed(header->chain_id, header->number),
        .fd = io->open(io->context, path.text, O_RDWR | (direct ? O_DIRECT : 0), 0),
        .fd_batch = -1};
    int failed = tail.fd < 0 ? tail.fd : 0;
    int64_t size = failed == 0 ? io->size(io->context, tail.fd) : 0;
    failed = size < 0 ? (int)size : failed;
    if (failed == 0) {
        tail.fd_batch =
            direct ? io->open(io->context, path.text, O_WRONLY | batch_writer_flags(way), 0)
                   : tail.fd;
        failed = tail.fd_batch < 0 ? tail.fd_batch : 0;
    }
    if (failed != 0) {
        if (tail.fd >= 0) {
            (void)io->close(io->context, tail.fd);
        }
        (void)err_errno(err, E_UNAVAILABLE, -failed, "cannot open '%s' for writing%s", path.text,
            direct ? " with O_DIRECT" : "");
        if (direct) {
            err_hint(err, "open the store with write=buffered where O_DIRECT is not possible");
        }
        return E_UNAVAILABLE;
    }
    tail.zeroed = (uint64_t)size / JOURNAL_BLOCK_BYTES * JOURNAL_BLOCK_BYTES;
    journal->tail = tail;
    return OK;
}

void tail_close(struct journal *journal)
{
    const struct io *io = journal->io;
    if (journal->tail.fd_batch >= 0 && journal->tail.fd_batch != journal->tail.fd) {
        (void)io->close(io->context, journal->tail.fd_batch);
    }
    if (journal->tail.fd >= 0) {
        (void)io->close(io->context, journal->tail.fd);
    }
    journal->tail.fd = -1;
    journal->tail.fd_batch = -1;
}

struct path path_parent(const char *path)
{
    struct path parent;
    (void)snprintf(parent.text, sizeof parent.text, "%s", path);
    char *slash = strrchr(parent.text, '/');
    if (slash == NULL) {
        (void)snprintf(parent.text, sizeof parent.text, ".");
    } else {
        slash[slash == parent.text] = '\0';
    }
    return parent;
}

static int replace_write(const struct io *io, const char *path, struct slice bytes)
{
    int fd = io->open(io->context, path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    int failed = fd < 0 ? fd : io_write_full(io, fd, bytes.data, bytes.len, 0);
    if (failed == 0) {
        failed = io->fsync(io->context, fd);
    }
    if (fd >= 0) {
        int closed = io->close(io->context, fd);
        failed = failed != 0 ? failed : closed;
    }
    return failed;
}

enum status file_replace(
    const struct journal *journal, const char *path, struct slice bytes, struct err *err)
{
    const struct io *io = journal->io;
    struct path temp;
    (void)snprintf(temp.text, sizeof temp.text, "%.*s.tmp", JOURNAL_PATH_MAX + 50, path);
    int failed = replace_write(io, temp.text, bytes);
    if (failed == 0) {
        failed = io->rename(io->context, temp.text, path);
    }
    if (failed == 0) {
        struct path parent = path_parent(path);
        failed = io_sync_dir(io, parent.text);
    }
    if (failed != 0) {
        (void)io->unlink(io->context, temp.text);
        return err_errno(err, E_UNAVAILABLE, -failed, "cannot write '%s'", path);
    }
    return OK;
}
