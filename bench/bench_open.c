/*
 * bench_open: an HTTP load of a fixed rate, and how long each answer took from when it was due.
 *
 * Requests are due at even distances whether or not those before them were answered. One that has
 * to wait for a free connection has waited since it was due, so a server that stalls is charged for
 * every request of the stall and not only for those in flight ("coordinated omission").
 *
 *     bench_open port=8080 rate=20000 seconds=5 connections=64 request=FILE
 *
 * FILE is a whole request in which a run of '#' stands for a number that differs each time.
 * Prints one line of JSON. An answer other than 2xx ends the program: it would be no measurement.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "bench.h"

enum {
    CONNECTIONS_MAX = 1024,
    REQUEST_BYTES_MAX = 16 << 10,
    ANSWER_BYTES_MAX = 16 << 10,
    EVENTS_MAX = 256,
    LAST_S = 20, /* for the last answers to come */
};

struct connection {
    int fd;
    uint64_t due_nanos; /* when the request in flight should have been sent */
    size_t filled;      /* bytes of the answer so far */
    char answer[ANSWER_BYTES_MAX];
};

struct load {
    int epoll, timer;
    uint64_t began_nanos;
    double gap_nanos;           /* between two requests */
    uint64_t total, sent, done; /* requests to make, made, answered */
    struct connection connections[CONNECTIONS_MAX];
    struct connection *free[CONNECTIONS_MAX]; /* a stack of those without a request */
    size_t free_count;
    char request[REQUEST_BYTES_MAX];
    size_t request_bytes;
    char *number; /* the run of '#' in it … */
    int digits;   /* … and its length */
    uint64_t first_number;
    struct bench_times times;
    uint64_t longest_nanos;
};

static void request_read(struct load *load, const char *path)
{
    FILE *file = fopen(path, "r");
    if (file == NULL) {
        bench_fail("cannot open '%s': %s", path, strerror(errno));
    }
    load->request_bytes = fread(load->request, 1, sizeof load->request - 1, file);
    (void)fclose(file);
    load->number = strchr(load->request, '#');
    if (load->number == NULL) {
        bench_fail("there is no '#' in '%s'", path);
    }
    load->digits = (int)strspn(load->number, "#");
}

static void connect_one(struct load *load, struct connection *connection, uint16_t port)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int one = 1;
    connection->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bench_must_errno(connection->fd, "socket");
    bench_must_errno(connect(connection->fd, (struct sockaddr *)&to, sizeof to), "connect");
    bench_must_errno(
        setsockopt(connection->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one), "TCP_NODELAY");
    bench_must_errno(fcntl(connection->fd, F_SETFL, O_NONBLOCK), "O_NONBLOCK");
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = connection};
    bench_must_errno(epoll_ctl(load->epoll, EPOLL_CTL_ADD, connection->fd, &event), "epoll_ctl");
    load->free[load->free_count++] = connection;
}

static uint64_t due(const struct load *load, uint64_t number)
{
    return load->began_nanos + (uint64_t)((double)number * load->gap_nanos);
}

/* A request is small against the buffer of a socket with nothing in flight: it goes whole. */
static void send_one(struct load *load, struct connection *connection)
{
    char number[32];
    (void)snprintf(number, sizeof number, "%0*llu", load->digits,
        (unsigned long long)(load->first_number + load->sent));
    memcpy(load->number, number, (size_t)load->digits);
    connection->due_nanos = due(load, load->sent++);
    connection->filled = 0;
    ssize_t sent = send(connection->fd, load->request, load->request_bytes, MSG_NOSIGNAL);
    bench_must_errno(sent, "send");
    if ((size_t)sent != load->request_bytes) {
        bench_fail("only %zd bytes of a request were sent", sent);
    }
}

/* Send what is due, as far as there are connections; the timer says when the next one is. */
static void send_due(struct load *load)
{
    while (load->sent < load->total && load->free_count > 0 &&
           due(load, load->sent) <= clock_nanos()) {
        send_one(load, load->free[--load->free_count]);
    }
    if (load->sent < load->total && load->free_count > 0) {
        uint64_t next = due(load, load->sent);
        struct itimerspec at = {.it_value = {.tv_sec = (time_t)(next / 1000000000),
                                    .tv_nsec = (long)(next % 1000000000)}};
        bench_must_errno(timerfd_settime(load->timer, TFD_TIMER_ABSTIME, &at, NULL), "timer");
    }
}

/* The bytes of the whole answer, or 0 while it is not there. One that is not 2xx is the end. */
static size_t answer_bytes(struct connection *connection)
{
    connection->answer[connection->filled] = '\0';
    char *end = strstr(connection->answer, "\r\n\r\n");
    if (end == NULL) {
        return 0;
    }
    char *length = strcasestr(connection->answer, "\r\ncontent-length:");
    if (strncmp(connection->answer, "HTTP/1.1 2", 10) != 0 || length == NULL || length > end) {
        bench_fail("an answer begins with: %.300s", connection->answer);
    }
    size_t head = (size_t)(end + 4 - connection->answer);
    size_t all = head + strtoul(length + strlen("\r\ncontent-length:"), NULL, 10);
    return connection->filled >= all ? all : 0;
}

static void receive(struct load *load, struct connection *connection)
{
    size_t room = sizeof connection->answer - 1 - connection->filled;
    ssize_t got = recv(connection->fd, connection->answer + connection->filled, room, 0);
    if (got <= 0) {
        bench_fail("a connection ended: %s", got == 0 ? "closed" : strerror(errno));
    }
    connection->filled += (size_t)got;
    if (answer_bytes(connection) == 0) {
        return;
    }
    uint64_t nanos = clock_nanos() - connection->due_nanos;
    bench_times_add(&load->times, nanos);
    load->longest_nanos = nanos > load->longest_nanos ? nanos : load->longest_nanos;
    load->done++;
    load->free[load->free_count++] = connection;
}

static void run(struct load *load)
{
    struct epoll_event events[EVENTS_MAX];
    uint64_t until = due(load, load->total) + LAST_S * UINT64_C(1000000000);
    while (load->done < load->total) {
        send_due(load);
        int count = epoll_wait(load->epoll, events, EVENTS_MAX, 1000);
        bench_must_errno(count, "epoll_wait");
        for (int i = 0; i < count; i++) {
            uint64_t ticks;
            if (events[i].data.ptr != NULL) {
                receive(load, events[i].data.ptr);
            } else if (read(load->timer, &ticks, sizeof ticks) < 0 && errno != EAGAIN) {
                bench_fail("timer: %s", strerror(errno));
            }
        }
        if (clock_nanos() > until) {
            bench_fail("%llu of %llu requests were answered in time",
                (unsigned long long)load->done, (unsigned long long)load->total);
        }
    }
}

static void report(const struct load *load, double rate)
{
    double seconds = (double)(clock_nanos() - load->began_nanos) / 1e9;
    (void)printf("{\"requests\":%llu,\"rate_asked\":%.0f,\"rate\":%.0f,\"p50_us\":%.0f,"
                 "\"p99_us\":%.0f,\"p999_us\":%.0f,\"longest_us\":%.0f}\n",
        (unsigned long long)load->done, rate, (double)load->done / seconds,
        bench_times_us(&load->times, 0.5), bench_times_us(&load->times, 0.99),
        bench_times_us(&load->times, 0.999), (double)load->longest_nanos / 1e3);
}

int main(int argc, char **argv)
{
    static struct load load;
    double rate = bench_number(argc, argv, "rate", 1000);
    double seconds = bench_number(argc, argv, "seconds", 5);
    double connections = bench_number(argc, argv, "connections", 64);
    double port = bench_number(argc, argv, "port", 0);
    if (!(rate > 0 && seconds > 0 && connections >= 1 && connections <= CONNECTIONS_MAX)) {
        bench_fail("rate, seconds and connections (to %d) must be above 0", CONNECTIONS_MAX);
    }
    request_read(&load, bench_text(argc, argv, "request", ""));
    load.gap_nanos = 1e9 / rate;
    load.total = (uint64_t)(rate * seconds);
    load.first_number = (uint64_t)bench_number(argc, argv, "first", 0);
    bench_must_errno(load.epoll = epoll_create1(EPOLL_CLOEXEC), "epoll");
    bench_must_errno(load.timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK), "timer");
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    bench_must_errno(epoll_ctl(load.epoll, EPOLL_CTL_ADD, load.timer, &event), "epoll_ctl");
    for (size_t i = 0; i < (size_t)connections; i++) {
        connect_one(&load, &load.connections[i], (uint16_t)port);
    }
    load.began_nanos = clock_nanos();
    run(&load);
    report(&load, rate);
    return 0;
}
