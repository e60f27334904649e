#include "cli/child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/macros.h"

extern char **environ;

static const int forwarded[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};

static void forwarded_set(sigset_t *set)
{
    (void)sigemptyset(set);
    for (size_t i = 0; i < COUNT(forwarded); i++) {
        (void)sigaddset(set, forwarded[i]);
    }
}

void child_block(sigset_t *ret_before)
{
    sigset_t set;
    forwarded_set(&set);
    (void)sigaddset(&set, SIGCHLD);
    (void)pthread_sigmask(SIG_BLOCK, &set, ret_before);
}

void child_unblock(const sigset_t *before)
{
    (void)pthread_sigmask(SIG_SETMASK, before, NULL);
}

int child_signals_open(void)
{
    sigset_t set;
    forwarded_set(&set);
    (void)sigaddset(&set, SIGCHLD);
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

int child_pending_signal(void)
{
    sigset_t set;
    forwarded_set(&set);
    int number = sigtimedwait(&set, NULL, &(struct timespec){0});
    return number > 0 ? number : 0;
}

int child_await_signal(void)
{
    sigset_t set;
    forwarded_set(&set);
    int number = 0;
    while ((number = sigwaitinfo(&set, NULL)) < 0) {
        ASSERT(errno == EINTR);
    }
    return number;
}

/* ---- start ------------------------------------------------------------------------------- */

enum { STREAMS = 3 };

/* The command starts with our original signal mask, and with these as its streams; -1: ours. */
static int spawn(struct child *child, char **argv, char **environment, const int *streams)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t defaults;
    (void)sigemptyset(&defaults);
    (void)sigaddset(&defaults, SIGPIPE); /* ours is ignored, and the command would inherit that */
    int failed = posix_spawn_file_actions_init(&actions);
    if (failed != 0) {
        return failed;
    }
    failed = posix_spawnattr_init(&attributes);
    if (failed != 0) {
        (void)posix_spawn_file_actions_destroy(&actions);
        return failed;
    }
    (void)posix_spawnattr_setsigmask(&attributes, &child->mask_before);
    (void)posix_spawnattr_setsigdefault(&attributes, &defaults);
    (void)posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    for (int i = 0; i < STREAMS && failed == 0; i++) {
        failed = streams[i] < 0 ? 0 : posix_spawn_file_actions_adddup2(&actions, streams[i], i);
    }
    failed = failed != 0
                 ? failed
                 : posix_spawnp(&child->pid, argv[0], &actions, &attributes, argv, environment);
    (void)posix_spawnattr_destroy(&attributes);
    (void)posix_spawn_file_actions_destroy(&actions);
    return failed;
}

static void close_if_open(int *fd)
{
    if (*fd >= 0) {
        (void)close(*fd); /* closing a pipe or signalfd loses nothing */
        *fd = -1;
    }
}

/* A pipe with both ends above 2, so that dup2 in the command cannot overwrite them even if we were
 * started with a stream closed. */
static int make_pipe(int *ret_read, int *ret_write)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return errno;
    }
    *ret_read = fcntl(ends[0], F_DUPFD_CLOEXEC, 3);
    *ret_write = fcntl(ends[1], F_DUPFD_CLOEXEC, 3);
    int failed = *ret_read < 0 || *ret_write < 0 ? errno : 0;
    (void)close(ends[0]);
    (void)close(ends[1]);
    return failed;
}

/* Everything but the streams. */
static int init(struct child *child, const sigset_t *before, struct capture *capture)
{
    *child = (struct child){.mask_before = *before, .capture = capture, .signals = -1};
    child->streams[0].from = child->streams[1].from = -1;
    child->streams[0].to = child->streams[1].to = -1;
    capture_init(&child->late, LIMIT_OUTCOME_BYTES_MAX);
    child->signals = child_signals_open();
    return child->signals < 0 ? errno : 0;
}

int child_start(struct child *child, char **argv, char **environment, const sigset_t *before,
    bool show, struct capture *capture)
{
    int streams[STREAMS] = {-1, -1, -1};
    int failed = init(child, before, capture);
    child->streams[0].to = show ? STDOUT_FILENO : -1;
    child->streams[1].to = show ? STDERR_FILENO : -1;
    for (int i = 0; i < CAPTURE_STREAMS && failed == 0; i++) {
        failed = make_pipe(&child->streams[i].from, &streams[i + 1]);
    }
    failed = failed != 0 ? failed : spawn(child, argv, environment, streams);
    close_if_open(&streams[1]);
    close_if_open(&streams[2]);
    if (failed != 0) {
        child_release(child);
    }
    return failed;
}

int child_start_piped(struct child *child, char **argv, const sigset_t *before, int *ret_to)
{
    int streams[STREAMS] = {-1, -1, -1};
    int to = -1;
    int failed = init(child, before, NULL);
    failed = failed != 0 ? failed : make_pipe(&streams[0], &to);
    failed = failed != 0 ? failed : make_pipe(&child->streams[0].from, &streams[1]);
    failed = failed != 0 ? failed : spawn(child, argv, environ, streams);
    close_if_open(&streams[0]);
    close_if_open(&streams[1]);
    if (failed != 0) {
        close_if_open(&to);
        child_release(child);
    } else {
        *ret_to = to;
    }
    return failed;
}

void child_release(struct child *child)
{
    close_if_open(&child->streams[0].from);
    close_if_open(&child->streams[1].from);
    close_if_open(&child->signals);
    capture_release(&child->late);
}

/* ---- follow ------------------------------------------------------------------------------ */

/* A terminal sends its signals to the whole group: the command already has them. */
static void pass_on(struct child *child, const struct signalfd_siginfo *info)
{
    if (!child->ended && info->ssi_code != SI_KERNEL) {
        (void)kill(child->pid, (int)info->ssi_signo); /* not waited for yet: the pid still belongs
                                                         to it */
    }
}

void child_take_signals(struct child *child)
{
    struct signalfd_siginfo info;
    while (read(child->signals, &info, sizeof info) == (ssize_t)sizeof info) {
        if (info.ssi_signo != SIGCHLD) {
            pass_on(child, &info);
        }
    }
    if (!child->ended && waitpid(child->pid, &child->wait_status, WNOHANG) == child->pid) {
        child->ended = true;
    }
}

static void take_output(struct child *child, int index)
{
    struct child_stream *stream = &child->streams[index];
    ssize_t got = read(stream->from, stream->chunk, sizeof stream->chunk);
    if (got < 0 && errno == EINTR) {
        return;
    }
    if (got <= 0) {
        close_if_open(&stream->from);
        return;
    }
    struct slice bytes = slice_of(stream->chunk, (size_t)got);
    capture_add(child->capture, index, bytes);
    if (stream->to >= 0) {
        stream->at = 0;
        stream->filled = bytes.len;
    }
}

static void stop_showing(struct child_stream *stream, int errno_value)
{
    stream->write_errno = errno_value;
    stream->to = -1;
    stream->at = stream->filled = 0;
}

/* At most PIPE_BUF at once: a writable descriptor accepts that much without blocking. */
static void show_some(struct child_stream *stream)
{
    enum { SHOW_BYTES = 4096 };
    size_t left = stream->filled - stream->at;
    ssize_t put =
        write(stream->to, stream->chunk + stream->at, left < SHOW_BYTES ? left : SHOW_BYTES);
    if (put >= 0) {
        stream->at += (size_t)put;
    } else if (errno != EINTR && errno != EAGAIN) {
        stop_showing(stream, errno);
    }
}

/* One turn: wait for events, and handle them. */
static void follow_turn(struct child *child)
{
    struct pollfd polls[1 + CAPTURE_STREAMS] = {{.fd = child->signals, .events = POLLIN}};
    for (int i = 0; i < CAPTURE_STREAMS; i++) {
        const struct child_stream *stream = &child->streams[i];
        bool showing = stream->at < stream->filled;
        polls[1 + i].fd = showing ? stream->to : stream->from; /* poll ignores -1 */
        polls[1 + i].events = showing ? POLLOUT : POLLIN;
    }
    if (poll(polls, 1 + CAPTURE_STREAMS, -1) < 0) {
        return; /* EINTR */
    }
    for (int i = 0; i < CAPTURE_STREAMS; i++) {
        struct child_stream *stream = &child->streams[i];
        if (polls[1 + i].revents == 0) {
            continue;
        }
        if (polls[1 + i].events == POLLOUT) {
            show_some(stream);
        } else {
            take_output(child, i);
        }
    }
    if (polls[0].revents != 0) {
        child_take_signals(child);
    }
}

/* The bytes still in the chunks come first when the rest is shown. */
static void chunks_to_late(struct child *child)
{
    for (int i = 0; i < CAPTURE_STREAMS; i++) {
        struct child_stream *stream = &child->streams[i];
        capture_add(
            &child->late, i, slice_of(stream->chunk + stream->at, stream->filled - stream->at));
        stream->at = stream->filled = 0;
    }
}

/* The command has ended: its output is in the pipes, and processes that inherited them may add
 * more. */
static void drain(struct child *child)
{
    uint64_t until = clock_nanos() + (uint64_t)CHILD_DRAIN_MS * 1000000;
    chunks_to_late(child);
    for (;;) {
        struct pollfd polls[CAPTURE_STREAMS] = {
            {.fd = child->streams[0].from, .events = POLLIN},
            {.fd = child->streams[1].from, .events = POLLIN},
        };
        uint64_t now = clock_nanos();
        if ((polls[0].fd < 0 && polls[1].fd < 0) || now >= until) {
            return;
        }
        int ready = poll(polls, CAPTURE_STREAMS, (int)((until - now) / 1000000) + 1);
        for (int i = 0; i < CAPTURE_STREAMS && ready > 0; i++) {
            if (polls[i].revents != 0) {
                take_output(child, i);
            }
        }
        chunks_to_late(child);
    }
}

void child_follow(struct child *child)
{
    while (!child->ended) {
        follow_turn(child);
    }
    drain(child);
}

/* ---- show -------------------------------------------------------------------------------- */

/* All of it; 0 or an errno. */
static int write_all(int fd, struct slice bytes)
{
    while (bytes.len > 0) {
        ssize_t put = write(fd, bytes.data, bytes.len);
        if (put < 0 && errno == EAGAIN) {
            (void)poll(&(struct pollfd){.fd = fd, .events = POLLOUT}, 1, -1);
        } else if (put < 0 && errno != EINTR) {
            return errno;
        } else if (put > 0) {
            bytes = slice_of(bytes.data + put, bytes.len - (size_t)put);
        }
    }
    return 0;
}

static bool show_late(void *context, int index, struct slice bytes)
{
    struct child_stream *stream = &((struct child *)context)->streams[index];
    if (stream->to >= 0) {
        int failed = write_all(stream->to, bytes);
        if (failed != 0) {
            stop_showing(stream, failed);
        }
    }
    return true;
}

void child_show_rest(struct child *child)
{
    struct recording late = recording_of(&child->late);
    recording_each(&late, show_late, child);
}

int child_write_errno(const struct child *child)
{
    int first = child->streams[0].write_errno;
    return first != 0 ? first : child->streams[1].write_errno;
}

static bool replay_piece(void *context, int stream, struct slice bytes)
{
    int *failed = context;
    int now = write_all(stream == CAPTURE_STDOUT ? STDOUT_FILENO : STDERR_FILENO, bytes);
    *failed = *failed != 0 ? *failed : now;
    return true; /* the other stream may still have a reader */
}

int child_replay(const struct recording *recording)
{
    int failed = 0;
    recording_each(recording, replay_piece, &failed);
    return failed;
}
