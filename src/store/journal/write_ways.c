#include "store/journal/write_ways.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/macros.h"
#include "store/journal/impl.h"

enum {
    MEASURE_ROUNDS = 64, /* for a person: some tenths of a second */
    PROBE_ROUNDS = 4,    /* at a start: enough for the lowest time of each way */
    PROBE_NS = 20000000, /* at a start: after this long, only ways not tried yet are tried. Each is
                            tried once, because the choice holds as long as the process runs */
};

/* The order in which they take turns when they are measured. */
static const enum journal_way order[] = {
    JOURNAL_WAY_DIRECT, JOURNAL_WAY_URING, JOURNAL_WAY_BUFFERED};
enum { ORDER_COUNT = COUNT(order) };

const char *journal_way_name(enum journal_way way)
{
    static const char *const names[JOURNAL_WAYS] = {"auto", "buffered", "direct", "uring"};
    ASSERT(way < JOURNAL_WAYS);
    return names[way];
}

const char *journal_way_text(enum journal_way way)
{
    static const char *const texts[JOURNAL_WAYS] = {"as found at the start",
        "buffered (pwrite and fdatasync)", "direct (O_DIRECT and O_DSYNC)",
        "uring (io_uring, O_DIRECT and O_DSYNC)"};
    ASSERT(way < JOURNAL_WAYS);
    return texts[way];
}

/* The writer ------------------------------------------------------------------------------- */

int batch_writer_open(struct batch_writer *writer, const struct io *io, enum journal_way way)
{
    ASSERT(way > JOURNAL_WAY_AUTO && way < JOURNAL_WAYS);
    struct io_ring *ring = NULL;
    if (way == JOURNAL_WAY_URING) {
        int failed = io->ring_open == NULL ? -ENOSYS : io->ring_open(io->context, &ring);
        if (failed != 0) {
            return failed;
        }
    }
    writer->io = io;
    writer->ring = ring;
    writer->in_ring = false;
    writer->left = 0;
    atomic_store(&writer->way, way);
    return 0;
}

void batch_writer_close(struct batch_writer *writer)
{
    ASSERT(!writer->in_ring);
    if (writer->ring != NULL) {
        writer->io->ring_close(writer->io->context, writer->ring);
        writer->ring = NULL;
    }
    atomic_store(&writer->way, JOURNAL_WAY_AUTO);
}

int batch_writer_flags(enum journal_way way)
{
    return way == JOURNAL_WAY_BUFFERED ? 0 : O_DIRECT | O_DSYNC;
}

/* What is left, in this thread. */
static int left_write(struct batch_writer *writer)
{
    const struct io *io = writer->io;
    int failed = io_write_full(io, writer->fd, writer->bytes, writer->left, writer->offset);
    writer->left = 0;
    if (failed == 0 && atomic_load(&writer->way) == JOURNAL_WAY_BUFFERED) {
        failed = io->fdatasync(io->context, writer->fd);
    }
    return failed;
}

/* Gives what is left to the ring. If that refuses, the write is made in this thread (WY2). */
static void left_begin(struct batch_writer *writer)
{
    const struct io *io = writer->io;
    if (writer->flies && atomic_load(&writer->way) == JOURNAL_WAY_URING) {
        int refused = io->ring_begin(
            io->context, writer->ring, writer->fd, writer->bytes, writer->left, writer->offset);
        writer->in_ring = refused == 0;
        if (writer->in_ring) {
            return;
        }
        atomic_store(&writer->way, JOURNAL_WAY_DIRECT); /* WY2 */
    }
    writer->failed = left_write(writer);
}

void batch_writer_begin(struct batch_writer *writer, bool flies, int fd, const void *bytes,
    size_t size, uint64_t offset)
{
    ASSERT(atomic_load(&writer->way) != JOURNAL_WAY_AUTO && !writer->in_ring);
    ASSERT(size > 0 && writer->left == 0);
    writer->flies = flies;
    writer->fd = fd;
    writer->bytes = bytes;
    writer->left = size;
    writer->offset = offset;
    writer->failed = 0;
    left_begin(writer);
}

bool batch_writer_ended(struct batch_writer *writer, bool wait, int *ret_failed)
{
    const struct io *io = writer->io;
    while (writer->in_ring) {
        ssize_t put = 0;
        if (!io->ring_ended(io->context, writer->ring, wait, &put)) {
            return false;
        }
        writer->in_ring = false;
        ASSERT(put < 0 || (size_t)put <= writer->left);
        if (put <= 0) {
            writer->failed = put < 0 ? (int)put : -EIO;
            writer->left = 0;
            break;
        }
        writer->bytes += put;
        writer->left -= (size_t)put;
        writer->offset += (uint64_t)put;
        if (writer->left > 0) {
            left_begin(writer);
        }
    }
    *ret_failed = writer->failed;
    return true;
}

int batch_writer_event(const struct batch_writer *writer)
{
    return writer->in_ring ? writer->io->ring_fd(writer->io->context, writer->ring) : -1;
}

int batch_writer_write(
    struct batch_writer *writer, int fd, const void *bytes, size_t size, uint64_t offset)
{
    int failed = 0;
    batch_writer_begin(writer, true, fd, bytes, size, offset);
    bool ended = batch_writer_ended(writer, true, &failed);
    ASSERT(ended);
    return failed;
}

/* Measuring -------------------------------------------------------------------------------- */

/* One way while it is measured. */
struct timing {
    struct batch_writer writer;
    int fd;
    int failed; /* not possible here; 0 or -errno */
    unsigned count;
    uint64_t nanos[MEASURE_ROUNDS];
};

struct measuring {
    const struct io *io;
    const struct mem *mem;
    struct path path;     /* of the file written to */
    unsigned rounds;      /* writes of each way, at most */
    uint64_t ns_max;      /* after the first of each way none is begun later; 0: no limit */
    enum journal_way way; /* measure only this; AUTO: all */
    struct timing timings[ORDER_COUNT];
};

static int nanos_compare(const void *a, const void *b)
{
    const uint64_t *left = a;
    const uint64_t *right = b;
    return *left < *right ? -1 : *left > *right;
}

static void timing_start(struct measuring *measuring, unsigned which)
{
    struct timing *timing = &measuring->timings[which];
    enum journal_way way = order[which];
    const struct io *io = measuring->io;
    timing->fd = -1;
    if (measuring->way != JOURNAL_WAY_AUTO && measuring->way != way) {
        timing->failed = -ECANCELED;
        return;
    }
    timing->failed = batch_writer_open(&timing->writer, io, way);
    if (timing->failed == 0) {
        timing->fd =
            io->open(io->context, measuring->path.text, O_WRONLY | batch_writer_flags(way), 0);
        timing->failed = timing->fd < 0 ? timing->fd : 0;
    }
}

/* Each way has blocks of its own: one way's pages in the cache would slow the others down. */
static void timing_step(
    struct measuring *measuring, unsigned which, unsigned round, const char *block)
{
    struct timing *timing = &measuring->timings[which];
    uint64_t at = ((uint64_t)which * measuring->rounds + round) * JOURNAL_BLOCK_BYTES;
    if (timing->failed == 0) {
        uint64_t start = clock_nanos();
        timing->failed =
            batch_writer_write(&timing->writer, timing->fd, block, JOURNAL_BLOCK_BYTES, at);
        timing->nanos[timing->count++] = clock_nanos() - start;
    }
    if (timing->failed == 0 && atomic_load(&timing->writer.way) != order[which]) {
        timing->failed = -EAGAIN; /* the ring took no more */
    }
}

static void timing_end(struct measuring *measuring, unsigned which)
{
    struct timing *timing = &measuring->timings[which];
    if (timing->fd >= 0) {
        (void)measuring->io->close(measuring->io->context, timing->fd);
    }
    if (atomic_load(&timing->writer.way) != JOURNAL_WAY_AUTO) {
        batch_writer_close(&timing->writer);
    }
    qsort(timing->nanos, timing->count, sizeof *timing->nanos, nanos_compare);
}

/* The ways take turns, so that a slow moment of the disk meets all of them. Each is tried once,
 * whatever the time. */
static void measure_rounds(struct measuring *measuring, const char *block)
{
    uint64_t start = clock_nanos();
    for (unsigned which = 0; which < ORDER_COUNT; which++) {
        timing_start(measuring, which);
    }
    for (unsigned i = 0; i < measuring->rounds * ORDER_COUNT; i++) {
        bool is_tried = i >= ORDER_COUNT;
        if (is_tried && measuring->ns_max != 0 && clock_nanos() - start > measuring->ns_max) {
            break;
        }
        timing_step(measuring, i % ORDER_COUNT, i / ORDER_COUNT, block);
    }
    for (unsigned which = 0; which < ORDER_COUNT; which++) {
        timing_end(measuring, which);
    }
}

static int measure(struct measuring *measuring)
{
    ASSERT(measuring->rounds > 0 && measuring->rounds <= MEASURE_ROUNDS);
    char *memory = mem_zalloc(measuring->mem, 2, JOURNAL_BLOCK_BYTES);
    if (memory == NULL) {
        return -ENOMEM;
    }
    size_t skew = (uintptr_t)memory % JOURNAL_BLOCK_BYTES;
    char *block = memory + (skew == 0 ? 0 : JOURNAL_BLOCK_BYTES - skew);
    memset(block, 0x5a, JOURNAL_BLOCK_BYTES);
    uint64_t bytes = (uint64_t)ORDER_COUNT * measuring->rounds * JOURNAL_BLOCK_BYTES;
    const struct io *io = measuring->io;
    int failed = file_make(io, measuring->path.text, block, JOURNAL_BLOCK_BYTES, bytes);
    if (failed == 0) {
        measure_rounds(measuring, block);
    }
    if (failed != -EEXIST) {
        (void)io->unlink(io->context, measuring->path.text);
    }
    mem_free(measuring->mem, memory);
    return failed;
}

/* The shortest write of a way; UINT64_MAX: it does not work here, or was not tried. */
static uint64_t measure_best(const struct measuring *measuring, enum journal_way way)
{
    uint64_t best = UINT64_MAX;
    for (unsigned i = 0; i < ORDER_COUNT; i++) {
        const struct timing *timing = &measuring->timings[i];
        if (order[i] == way && timing->failed == 0 && timing->count > 0) {
            best = timing->nanos[0];
        }
    }
    return best;
}

/*
 * Direct, which takes less CPU than the page cache, unless it takes twice as long: a smaller
 * difference in so few writes says nothing. Through a ring only if that takes half as long: if
 * both take about the same, a loop that waits for its flush serves more requests than one that does
 * not (docs/benchmarks.md).
 */
static enum journal_way measure_choose(const struct measuring *measuring)
{
    uint64_t buffered = measure_best(measuring, JOURNAL_WAY_BUFFERED);
    uint64_t direct = measure_best(measuring, JOURNAL_WAY_DIRECT);
    uint64_t ring = measure_best(measuring, JOURNAL_WAY_URING);
    if (direct == UINT64_MAX || direct / 2 > buffered) {
        return JOURNAL_WAY_BUFFERED;
    }
    return ring < direct / 2 ? JOURNAL_WAY_URING : JOURNAL_WAY_DIRECT;
}

enum journal_way ways_probe(const char *directory, const struct io *io, const struct mem *mem)
{
    struct measuring measuring = {.io = io, .mem = mem, .rounds = PROBE_ROUNDS, .ns_max = PROBE_NS};
    (void)snprintf(measuring.path.text, sizeof measuring.path.text, "%.*s/probe.tmp",
        JOURNAL_PATH_MAX, directory);
    return measure(&measuring) == 0 ? measure_choose(&measuring) : JOURNAL_WAY_BUFFERED;
}

enum status journal_measure(
    const struct journal_measuring *how, struct journal_speed *ret_speed, struct err *err)
{
    struct measuring measuring = {.io = how->io == NULL ? &io_system : how->io,
        .mem = how->mem == NULL ? &mem_libc : how->mem,
        .rounds = how->briefly ? PROBE_ROUNDS : MEASURE_ROUNDS,
        .ns_max = how->briefly ? PROBE_NS : 0,
        .way = how->way};
    (void)snprintf(measuring.path.text, sizeof measuring.path.text, "%.*s/measure-%ld",
        JOURNAL_PATH_MAX, how->directory, (long)getpid());
    int failed = measure(&measuring);
    if (failed != 0) {
        return err_errno(err, failed == -ENOMEM ? E_NOMEM : E_UNAVAILABLE, -failed,
            "cannot measure in '%s'", how->directory);
    }
    struct journal_speed speed = {.fastest = measure_choose(&measuring)};
    for (unsigned i = 0; i < ORDER_COUNT; i++) {
        const struct timing *timing = &measuring.timings[i];
        struct journal_way_speed *way = &speed.ways[order[i]];
        way->error = -timing->failed;
        if (timing->failed == 0 && timing->count > 0) {
            way->best_ns = timing->nanos[0];
            way->p50_ns = timing->nanos[timing->count / 2];
            way->p99_ns = timing->nanos[timing->count - 1];
        }
    }
    *ret_speed = speed;
    return OK;
}
