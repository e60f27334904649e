#include "base/log.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log_line.h"

enum {
    GATHER_MS = 5,         /* lines within this time are written together, to save wake-ups */
    CHECK_MS = 100,        /* how often a blocked writer checks whether it should end */
    FREE_MS = 1000,        /* how long log_free waits for a reader */
    FREE_GRACE_MS = 200,   /* and then for the thread to end */
    LENGTH_BYTES = 2,      /* precedes each line in the ring */
    FILE_BYTES = 64 << 10, /* written to a file at once: a write costs more than its bytes */
};

static_assert(LOG_LINE_BYTES_MAX <= UINT16_MAX, "a line's length fits in LENGTH_BYTES");
static_assert(FILE_BYTES >= PIPE_BUF, "what goes out at once fits in the writer's buffer");
static_assert((int)FILE_BYTES >= (int)LOG_LINE_BYTES_MAX, "and so does a line");

/*
 * LG1 used <= LOG_RING_BYTES; the ring holds only whole lines, each preceded by its length.
 * LG2 at and used change only under the lock; the writer copies lines out under it and then writes
 *     without it, so that no caller ever waits for the reader of the log.
 * LG3 no lock is held, and nothing is owned, where the thread can be cancelled (write_once).
 */
struct log {
    const struct mem *mem;
    int fd;
    enum log_level level;
    bool is_human;
    bool is_coloured;
    struct clock clock;
    pthread_t thread;

    pthread_mutex_t lock;
    pthread_cond_t wake; /* the writer waits for lines or the end; log_free waits for the writer */
    char *ring;          /* LOG_RING_BYTES */
    size_t at;           /* of the first line */
    size_t used;         /* bytes */
    bool is_idle;        /* the writer waits and wants to be woken */
    bool is_stopping;    /* log_free was called … */
    bool is_done;        /* … and the writer has nothing left to do */
    uint64_t unreported; /* lines dropped and not yet reported */
    atomic_ullong until; /* clock_nanos when the writer gives up; 0: never */
    atomic_ullong counted; /* lines dropped ever */

    /* The writer's. */
    bool is_file;         /* the descriptor is a regular file: it takes any size and never blocks */
    char out[FILE_BYTES]; /* what is being written */
};

/* --- The ring, under the lock ----------------------------------------------------------------- */

static void ring_copy_in(struct log *log, const char *bytes, size_t size)
{
    size_t to = (log->at + log->used) % LOG_RING_BYTES;
    size_t first = size < LOG_RING_BYTES - to ? size : LOG_RING_BYTES - to;
    memcpy(log->ring + to, bytes, first);
    memcpy(log->ring, bytes + first, size - first);
    log->used += size;
}

static void ring_copy_out(const struct log *log, size_t from, char *ret_bytes, size_t size)
{
    from %= LOG_RING_BYTES;
    size_t first = size < LOG_RING_BYTES - from ? size : LOG_RING_BYTES - from;
    memcpy(ret_bytes, log->ring + from, first);
    memcpy(ret_bytes + first, log->ring, size - first);
}

static bool ring_put(struct log *log, const char *line, size_t size)
{
    ASSERT(log->used <= LOG_RING_BYTES);
    if (size + LENGTH_BYTES > LOG_RING_BYTES - log->used) {
        return false;
    }
    char length[LENGTH_BYTES] = {(char)(size & 0xff), (char)(size >> 8)};
    ring_copy_in(log, length, sizeof length);
    ring_copy_in(log, line, size);
    return true;
}

static size_t ring_first_length(const struct log *log)
{
    unsigned char length[LENGTH_BYTES];
    ring_copy_out(log, log->at, (char *)length, sizeof length);
    return (size_t)length[0] | (size_t)length[1] << 8;
}

static size_t piece_bytes(const struct log *log)
{
    return log->is_file ? FILE_BYTES : PIPE_BUF;
}

/* Move whole lines to log->out: as many as a file or a pipe takes at once, or one long one. */
static size_t ring_take(struct log *log, uint64_t *ret_lines)
{
    size_t taken = 0;
    *ret_lines = 0;
    while (log->used > 0) {
        size_t size = ring_first_length(log);
        if (taken > 0 && taken + size > piece_bytes(log)) {
            break;
        }
        ASSERT(taken + size <= sizeof log->out);
        ring_copy_out(log, log->at + LENGTH_BYTES, log->out + taken, size);
        log->at = (log->at + LENGTH_BYTES + size) % LOG_RING_BYTES;
        log->used -= LENGTH_BYTES + size;
        taken += size;
        ++*ret_lines;
    }
    return taken;
}

static void count_dropped(struct log *log, uint64_t lines)
{
    log->unreported += lines;
    atomic_fetch_add_explicit(&log->counted, lines, memory_order_relaxed);
}

/* --- The writer ------------------------------------------------------------------------------- */

/* The time left until the writer has to end, at most CHECK_MS; 0: it is over. */
static int wait_ms(const struct log *log)
{
    uint64_t until = atomic_load(&log->until);
    if (until == 0) {
        return CHECK_MS;
    }
    uint64_t now = clock_nanos();
    uint64_t left_ms = now >= until ? 0 : (until - now) / 1000000 + 1;
    return left_ms < CHECK_MS ? (int)left_ms : CHECK_MS;
}

/* We must not make a descriptor non-blocking that other processes share. And one that polled as
 * writable may still block if a different process filled it first. So this is the one place where
 * log_free may cancel the thread. */
static ssize_t write_once(int fd, const char *bytes, size_t size)
{
    int old;
    (void)pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &old);
    ssize_t wrote = write(fd, bytes, size);
    int failed = errno;
    (void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old);
    errno = failed;
    return wrote;
}

/* Writes all of it; false if the descriptor failed or the time to end is over. */
static bool write_all(const struct log *log, const char *bytes, size_t size)
{
    while (size > 0) {
        struct pollfd ready = {.fd = log->fd, .events = POLLOUT};
        int ms = log->is_file ? 0 : wait_ms(log);
        int polled = log->is_file ? 1 : poll(&ready, 1, ms);
        if (polled <= 0) {
            if (ms == 0) {
                return false;
            }
            continue;
        }
        ssize_t wrote =
            write_once(log->fd, bytes, size < piece_bytes(log) ? size : piece_bytes(log));
        if (wrote < 0 && errno != EINTR && errno != EAGAIN) {
            return false;
        }
        bytes += wrote < 0 ? 0 : wrote;
        size -= wrote < 0 ? 0 : (size_t)wrote;
    }
    return true;
}

static size_t put_line(const struct log *log, char *ret_line, struct log_parts *parts)
{
    parts->wall_ms = clock_read(&log->clock).wall_ms;
    return log->is_human ? log_line_human(ret_line, parts, log->is_coloured)
                         : log_line_json(ret_line, parts);
}

/* Reports dropped lines, now that the log is read again. If that fails, it is retried later. */
static void report_dropped(struct log *log)
{
    (void)pthread_mutex_lock(&log->lock);
    uint64_t lines = log->unreported;
    log->unreported = 0;
    (void)pthread_mutex_unlock(&log->lock);
    if (lines == 0) {
        return;
    }
    struct log_field count = LOG_NUMBER("lines", lines);
    struct log_parts parts = {
        .level = LOG_WARN, .event = "log_dropped", .fields = &count, .count = 1};
    size_t size = put_line(log, log->out, &parts);
    if (!write_all(log, log->out, size)) {
        (void)pthread_mutex_lock(&log->lock);
        log->unreported += lines;
        (void)pthread_mutex_unlock(&log->lock);
    }
}

/* Waits until something is signalled. False: the time ran out first. */
static bool wait_nanos(struct log *log, uint64_t until_nanos)
{
    struct timespec until = {
        .tv_sec = (time_t)(until_nanos / 1000000000), .tv_nsec = (long)(until_nanos % 1000000000)};
    return pthread_cond_timedwait(&log->wake, &log->lock, &until) != ETIMEDOUT;
}

/* A rotated log may be a different kind of file than before. */
static void note_file(struct log *log)
{
    struct stat info;
    log->is_file = fstat(log->fd, &info) == 0 && S_ISREG(info.st_mode);
}

/* Waits for lines, and a moment longer for more: a file gets few large pieces, and a pipe gets what
 * there is as soon as it has taken the last. False: there are no more. */
static bool await_lines(struct log *log)
{
    bool has_waited = log->is_file && log->used < FILE_BYTES;
    while (log->used == 0 && !log->is_stopping) {
        log->is_idle = true;
        has_waited = true;
        (void)pthread_cond_wait(&log->wake, &log->lock);
    }
    log->is_idle = false;
    if (has_waited && !log->is_stopping) {
        wait_nanos(log, clock_nanos() + (uint64_t)GATHER_MS * 1000000);
    }
    return log->used > 0;
}

static void *write_lines(void *context)
{
    struct log *log = context;
    int old;
    (void)pthread_setname_np(pthread_self(), "once-log");
    (void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old);
    (void)pthread_mutex_lock(&log->lock);
    while (await_lines(log)) {
        uint64_t lines;
        note_file(log);
        size_t size = ring_take(log, &lines);
        (void)pthread_mutex_unlock(&log->lock);
        bool wrote = write_all(log, log->out, size);
        if (wrote) {
            report_dropped(log);
        }
        (void)pthread_mutex_lock(&log->lock);
        if (!wrote) {
            count_dropped(log, lines);
        }
    }
    (void)pthread_mutex_unlock(&log->lock);
    report_dropped(log);
    (void)pthread_mutex_lock(&log->lock);
    log->is_done = true;
    (void)pthread_cond_broadcast(&log->wake);
    (void)pthread_mutex_unlock(&log->lock);
    return NULL;
}

/* --- Interface -------------------------------------------------------------------------------- */

static void init_locks(struct log *log)
{
    pthread_condattr_t monotonic;
    (void)pthread_condattr_init(&monotonic);
    (void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    (void)pthread_mutex_init(&log->lock, NULL);
    (void)pthread_cond_init(&log->wake, &monotonic);
    (void)pthread_condattr_destroy(&monotonic);
}

static void release(struct log *log)
{
    (void)pthread_cond_destroy(&log->wake);
    (void)pthread_mutex_destroy(&log->lock);
    mem_free(log->mem, log->ring);
    mem_free(log->mem, log);
}

/* The thread takes no signals: they belong to the program, and a closed pipe (SIGPIPE) must end
 * only the log, not the process. */
static int start_thread(struct log *log)
{
    sigset_t all, old;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &old);
    int failed = pthread_create(&log->thread, NULL, write_lines, log);
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    return failed;
}

enum status log_new(const struct log_options *options, struct log **ret_log, struct err *err)
{
    const struct mem *mem = options->mem == NULL ? &mem_libc : options->mem;
    struct log *log = mem_zalloc(mem, 1, sizeof *log);
    char *ring = mem_alloc(mem, LOG_RING_BYTES);
    if (log == NULL || ring == NULL) {
        mem_free(mem, log);
        mem_free(mem, ring);
        return err_set(err, E_NOMEM, "no memory for the log");
    }
    log->mem = mem;
    log->fd = options->fd;
    log->level = options->level;
    log->is_human = options->is_human;
    log->is_coloured = options->is_coloured;
    log->ring = ring;
    clock_system(&log->clock);
    init_locks(log);
    int failed = start_thread(log);
    if (failed != 0) {
        release(log);
        return err_errno(err, E_UNAVAILABLE, failed, "cannot start the log's thread");
    }
    *ret_log = log;
    return OK;
}

void log_free(struct log *log)
{
    if (log == NULL) {
        return;
    }
    uint64_t until = clock_nanos() + (uint64_t)FREE_MS * 1000000;
    atomic_store(&log->until, until);
    (void)pthread_mutex_lock(&log->lock);
    log->is_stopping = true;
    (void)pthread_cond_broadcast(&log->wake);
    while (!log->is_done && wait_nanos(log, until + (uint64_t)FREE_GRACE_MS * 1000000)) {
    }
    bool is_done = log->is_done;
    (void)pthread_mutex_unlock(&log->lock);
    if (!is_done) {
        (void)pthread_cancel(log->thread); /* it is blocked in a write */
    }
    (void)pthread_join(log->thread, NULL);
    release(log);
}

bool log_wants(const struct log *log, enum log_level level)
{
    return log != NULL && level >= log->level;
}

void log_event(struct log *log, enum log_level level, const char *event,
    const struct log_field *fields, size_t count)
{
    if (!log_wants(log, level)) {
        return;
    }
    char line[LOG_LINE_BYTES_MAX];
    struct log_parts parts = {.level = level, .event = event, .fields = fields, .count = count};
    size_t size = put_line(log, line, &parts);

    (void)pthread_mutex_lock(&log->lock);
    if (!ring_put(log, line, size)) {
        count_dropped(log, 1);
    }
    if (log->is_idle) {
        log->is_idle = false;
        (void)pthread_cond_signal(&log->wake);
    }
    (void)pthread_mutex_unlock(&log->lock);
}

uint64_t log_dropped(const struct log *log)
{
    return log == NULL ? 0 : atomic_load_explicit(&log->counted, memory_order_relaxed);
}
