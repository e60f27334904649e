/*
 * bench_floor: the least that a server does which is durable before it answers.
 *
 * It has the shape of Once: one loop serves, or several, of which the first that has requests takes
 * the turn; one write and flush for all that wait, then the answers. It has none of the rest: every
 * POST appends the same number of bytes over zeros and gets the same answer. So it is faster than
 * any server of this shape with the same disk, kernel and load generator can be. Zeros are written
 * before it listens and used over and over, which Once cannot do.
 *
 *     bench_floor port=8080 dir=PATH answer=FILE [bytes=960] [loops=1] [work_us=0]
 *     bench_floor port=8080 redis=PORT answer=FILE [writes=3] [script=0] [loops=1] [work_us=0]
 *
 * work_us: own code of a server, which is counting here, for each request. FILE is a whole answer.
 * With a Redis server, one round trip takes the place of the write and flush (floor_redis.h).
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "bare.h"
#include "bench.h"
#ifdef BENCH_REDIS
#include "floor_redis.h"
#endif
#include "store/journal/write_ways.h"

enum {
    LOOPS_MAX = 64,
    EVENTS_MAX = 256,
    CONNECTIONS_MAX = 1024, /* each has one request at a time, so at most this many wait */
    REQUEST_BYTES_MAX = 16 << 10,
    ANSWER_BYTES_MAX = 16 << 10,
    BYTES_MAX = 16 << 10, /* of one request, in the file */
    BACKLOG = 1024,
    CALIBRATION = 100000000, /* counted once, to know how long counting takes */
};

static const uint64_t RING_BYTES = 256 << 20;

struct connection {
    int fd;
    size_t filled; /* bytes of the request so far */
    char request[REQUEST_BYTES_MAX];
};

struct floor_batch {
    int fds[CONNECTIONS_MAX];
    size_t count;
};

static struct {
    struct floor_redis *redis; /* what is written to instead of the file; NULL: the file */
    struct bare file;
    char *bytes; /* what a batch appends, aligned; as many as all connections need */
    size_t bytes_each;
    char answer[ANSWER_BYTES_MAX];
    size_t answer_bytes;
    uint64_t work; /* steps for each request */
    uint16_t port;
    pthread_mutex_t lock; /* over the rest */
    bool is_led;          /* a loop has the turn */
    struct floor_batch waiting;
} floor_server = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void count_to(uint64_t steps)
{
    for (uint64_t i = 0; i < steps; i++) {
        __asm__ volatile("" : "+r"(i)); /* otherwise the compiler leaves the loop out */
    }
}

static double steps_per_us(void)
{
    double before = bench_cpu_s();
    count_to(CALIBRATION);
    return CALIBRATION / ((bench_cpu_s() - before) * 1e6);
}

/* True if the whole request has come; the next one overwrites it. */
static bool request_read(struct connection *connection)
{
    size_t room = sizeof connection->request - 1 - connection->filled;
    ssize_t got = read(connection->fd, connection->request + connection->filled, room);
    if (got <= 0) { /* the load ended */
        (void)close(connection->fd);
        free(connection);
        return false;
    }
    connection->filled += (size_t)got;
    connection->request[connection->filled] = '\0';
    char *end = strstr(connection->request, "\r\n\r\n");
    char *length = strstr(connection->request, "\r\nContent-Length:");
    if (end == NULL || length == NULL) {
        return false;
    }
    size_t body = strtoul(length + strlen("\r\nContent-Length:"), NULL, 10);
    if (connection->filled < (size_t)(end + 4 - connection->request) + body) {
        return false;
    }
    connection->filled = 0;
    return true;
}

static void accept_one(int epoll, int listener)
{
    int one = 1;
    struct connection *connection = calloc(1, sizeof *connection);
    if (connection == NULL) {
        bench_fail("out of memory");
    }
    connection->fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    bench_must_errno(connection->fd, "accept");
    bench_must_errno(
        setsockopt(connection->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one), "TCP_NODELAY");
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = connection};
    bench_must_errno(epoll_ctl(epoll, EPOLL_CTL_ADD, connection->fd, &event), "epoll_ctl");
}

static int listen_on(uint16_t port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int one = 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bench_must_errno(fd, "socket");
    bench_must_errno(setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof one), "SO_REUSEPORT");
    bench_must_errno(bind(fd, (struct sockaddr *)&at, sizeof at), "bind");
    bench_must_errno(listen(fd, BACKLOG), "listen");
    return fd;
}

static void batch_write(size_t count)
{
#ifdef BENCH_REDIS
    if (floor_server.redis != NULL) {
        floor_redis_commit(floor_server.redis, count);
        return;
    }
#endif
    bare_write(&floor_server.file, floor_server.bytes, count * floor_server.bytes_each);
}

/* One write and one flush, then the answers. An answer is small against the buffer of a socket with
 * nothing in flight: it goes whole. */
static void batch_commit(const struct floor_batch *batch)
{
    batch_write(batch->count);
    for (size_t i = 0; i < batch->count; i++) {
        (void)send(batch->fds[i], floor_server.answer, floor_server.answer_bytes, MSG_NOSIGNAL);
    }
}

/* Adds requests to those that wait, and takes all of them if this loop has the turn. */
static bool turn_take(const struct floor_batch *got, bool leads, struct floor_batch *ret_batch)
{
    (void)pthread_mutex_lock(&floor_server.lock);
    struct floor_batch *waiting = &floor_server.waiting;
    if (waiting->count + got->count > CONNECTIONS_MAX) {
        bench_fail("there are more than %d connections", CONNECTIONS_MAX);
    }
    memcpy(waiting->fds + waiting->count, got->fds, got->count * sizeof *got->fds);
    waiting->count += got->count;
    if (waiting->count > 0 && !floor_server.is_led) {
        floor_server.is_led = leads = true;
    }
    ret_batch->count = 0;
    if (leads) {
        memcpy(ret_batch->fds, waiting->fds, waiting->count * sizeof *waiting->fds);
        ret_batch->count = waiting->count;
        waiting->count = 0;
    }
    (void)pthread_mutex_unlock(&floor_server.lock);
    return leads;
}

/* Whether this loop still has the turn: there are requests of other loops that wait. */
static bool turn_keep(void)
{
    (void)pthread_mutex_lock(&floor_server.lock);
    bool leads = floor_server.is_led = floor_server.waiting.count > 0;
    (void)pthread_mutex_unlock(&floor_server.lock);
    return leads;
}

static void *loop_main(void *unused)
{
    (void)unused;
    struct epoll_event events[EVENTS_MAX];
    struct floor_batch got, batch;
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    bench_must_errno(epoll, "epoll");
    int listener = listen_on(floor_server.port);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    bench_must_errno(epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event), "epoll_ctl");
    bool leads = false;
    for (;;) {
        int count = epoll_wait(epoll, events, EVENTS_MAX, leads ? 0 : -1);
        got.count = 0;
        for (int i = 0; i < count; i++) {
            struct connection *connection = events[i].data.ptr;
            if (connection == NULL) {
                accept_one(epoll, listener);
            } else if (request_read(connection)) {
                count_to(floor_server.work);
                got.fds[got.count++] = connection->fd;
            }
        }
        leads = turn_take(&got, leads, &batch);
        if (leads) {
            batch_commit(&batch);
            leads = turn_keep();
        }
    }
    return NULL;
}

static void answer_read(const char *path)
{
    FILE *file = fopen(path, "r");
    if (file == NULL) {
        bench_fail("cannot open '%s': %s", path, strerror(errno));
    }
    floor_server.answer_bytes = fread(floor_server.answer, 1, sizeof floor_server.answer, file);
    (void)fclose(file);
}

/* Written as Once would here: in the way that its journal finds the fastest. */
static void file_open(const char *dir)
{
    char path[BENCH_PATH_MAX];
    size_t room = CONNECTIONS_MAX * floor_server.bytes_each + BARE_BLOCK_BYTES;
    room = room / BARE_BLOCK_BYTES * BARE_BLOCK_BYTES;
    (void)snprintf(path, sizeof path, "%s/floor", dir);
    bool is_buffered = ways_probe(dir, &io_system, &mem_libc) == JOURNAL_WAY_BUFFERED;
    bare_open(&floor_server.file, path, is_buffered ? BARE_ZEROED : BARE_DIRECT, RING_BYTES);
    floor_server.bytes = aligned_alloc(BARE_BLOCK_BYTES, room);
    if (floor_server.bytes == NULL) {
        bench_fail("out of memory");
    }
    memset(floor_server.bytes, '1', room);
}

static void redis_open(int argc, char **argv, uint16_t port)
{
#ifdef BENCH_REDIS
    double writes = bench_number(argc, argv, "writes", FLOOR_DUES);
    if (!(writes >= FLOOR_RECORDS && writes <= FLOOR_KEYS)) {
        bench_fail("writes are %d to %d", FLOOR_RECORDS, FLOOR_KEYS);
    }
    floor_server.redis = floor_redis_open(
        port, (enum floor_writes)(int)writes, bench_number(argc, argv, "script", 0) > 0);
#else
    (void)argc;
    (void)argv;
    bench_fail("built without hiredis: there is no way to port %u", port);
#endif
}

int main(int argc, char **argv)
{
    double bytes = bench_number(argc, argv, "bytes", 960);
    double loops = bench_number(argc, argv, "loops", 1);
    if (!(bytes >= 1 && bytes <= BYTES_MAX && loops >= 1 && loops <= LOOPS_MAX)) {
        bench_fail("bytes are 1 to %d, loops 1 to %d", BYTES_MAX, LOOPS_MAX);
    }
    floor_server.bytes_each = (size_t)bytes;
    floor_server.work = (uint64_t)(bench_number(argc, argv, "work_us", 0) * steps_per_us());
    floor_server.port = (uint16_t)bench_number(argc, argv, "port", 0);
    answer_read(bench_text(argc, argv, "answer", ""));
    double redis_port = bench_number(argc, argv, "redis", 0);
    if (redis_port > 0) {
        redis_open(argc, argv, (uint16_t)redis_port);
    } else {
        file_open(bench_text(argc, argv, "dir", "."));
    }
    pthread_t threads[LOOPS_MAX];
    for (size_t i = 0; i < (size_t)loops; i++) {
        if (pthread_create(&threads[i], NULL, loop_main, NULL) != 0) {
            bench_fail("cannot start a thread");
        }
    }
    return pthread_join(threads[0], NULL);
}
