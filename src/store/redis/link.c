/*
 * A connection to the server: a socket with deadlines, and hiredis to take answers apart.
 *
 * hiredis could own the socket too; its timeouts are for each read, so that a server that trickles
 * would hold the engine's thread for as long as it likes.
 */
#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/check.h"
#include "store/redis/impl.h"

static enum status link_failed(struct redis_link *link, int errno_value, struct err *err)
{
    const struct redis_url *url = link->url;
    redis_link_close(link);
    return err_errno(
        err, E_UNAVAILABLE, errno_value, "no answer from the Redis server at '%s'", url->where);
}

/* Until the socket is ready. ETIMEDOUT, or another errno. */
static int wait_ready(int fd, short events, uint64_t deadline_ns)
{
    for (;;) {
        uint64_t now_ns = clock_nanos();
        if (now_ns >= deadline_ns) {
            return ETIMEDOUT;
        }
        struct pollfd ready = {.fd = fd, .events = events};
        int ms = (int)((deadline_ns - now_ns) / 1000000) + 1;
        int count = poll(&ready, 1, ms);
        if (count > 0) {
            return 0;
        }
        if (count < 0 && errno != EINTR) {
            return errno;
        }
    }
}

/* A connected socket, or -1 and errno. */
static int socket_connect(
    int family, const struct sockaddr *address, socklen_t size, uint64_t deadline_ns)
{
    int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return -1;
    }
    int failed = connect(fd, address, size) == 0 ? 0 : errno;
    if (failed == EINPROGRESS) {
        failed = wait_ready(fd, POLLOUT, deadline_ns);
        socklen_t len = sizeof failed;
        if (failed == 0 && getsockopt(fd, SOL_SOCKET, SO_ERROR, &failed, &len) != 0) {
            failed = errno;
        }
    }
    if (failed != 0) {
        (void)close(fd);
        errno = failed;
        return -1;
    }
    return fd;
}

static enum status connect_unix(struct redis_link *link, uint64_t deadline_ns, struct err *err)
{
    const struct redis_url *url = link->url;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    static_assert(sizeof url->socket <= sizeof address.sun_path, "a path that fits");
    memcpy(address.sun_path, url->socket, sizeof url->socket);
    link->fd =
        socket_connect(AF_UNIX, (const struct sockaddr *)&address, sizeof address, deadline_ns);
    return link->fd >= 0 ? OK
                         : err_errno(err, E_UNAVAILABLE, errno,
                               "cannot connect to the Redis server at '%s'", url->where);
}

static enum status connect_tcp(struct redis_link *link, uint64_t deadline_ns, struct err *err)
{
    const struct redis_url *url = link->url;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    int failed = getaddrinfo(url->host, url->port, &hints, &found);
    if (failed != 0) {
        return err_set(err, E_UNAVAILABLE, "cannot find the Redis server at '%s': %s", url->where,
            gai_strerror(failed));
    }
    errno = EADDRNOTAVAIL;
    for (struct addrinfo *one = found; one != NULL && link->fd < 0; one = one->ai_next) {
        link->fd = socket_connect(one->ai_family, one->ai_addr, one->ai_addrlen, deadline_ns);
    }
    int cause = errno;
    freeaddrinfo(found);
    if (link->fd < 0) {
        return err_errno(
            err, E_UNAVAILABLE, cause, "cannot connect to the Redis server at '%s'", url->where);
    }
    int on = 1; /* a request is one write: nothing is gained by waiting for more */
    (void)setsockopt(link->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return OK;
}

/* A greeting that must be answered without an error. */
static enum status greet(struct redis_link *link, const char *const *words, size_t count,
    uint64_t deadline_ns, struct err *err)
{
    redisReply *reply = NULL;
    enum status status = link_command(link, words, count, deadline_ns, &reply, err);
    freeReplyObject(reply);
    return status;
}

static enum status log_in(struct redis_link *link, uint64_t deadline_ns, struct err *err)
{
    const struct redis_url *url = link->url;
    enum status status = OK;
    if (url->password[0] != '\0') {
        const char *words[3] = {"AUTH", url->user, url->password};
        const char *plain[2] = {"AUTH", url->password};
        bool named = url->user[0] != '\0';
        status = greet(link, named ? words : plain, named ? 3 : 2, deadline_ns, err);
        if (status != OK) {
            err_hint(err, "the user and password of the store's URL, or REDISCLI_AUTH");
        }
    }
    if (status == OK && url->db != 0) {
        char db[16];
        (void)snprintf(db, sizeof db, "%u", url->db);
        status = greet(link, (const char *const[]){"SELECT", db}, 2, deadline_ns, err);
    }
    return status;
}

enum status redis_link_open(struct redis_link *link, uint64_t deadline_ns, struct err *err)
{
    ASSERT(!link_is_open(link));
    ASSERT(link->url != NULL);
    enum status status = link->url->socket[0] != '\0' ? connect_unix(link, deadline_ns, err)
                                                      : connect_tcp(link, deadline_ns, err);
    if (status == OK) {
        link->reader = redisReaderCreate();
        status = link->reader == NULL ? err_set(err, E_NOMEM, "out of memory for a connection")
                                      : log_in(link, deadline_ns, err);
    }
    if (status != OK) {
        redis_link_close(link);
    }
    return status;
}

void redis_link_close(struct redis_link *link)
{
    if (link->reader != NULL) {
        redisReaderFree(link->reader);
        link->reader = NULL;
    }
    if (link->fd >= 0) {
        (void)close(link->fd);
        link->fd = -1;
    }
}

enum status redis_link_send(
    struct redis_link *link, struct slice bytes, bool more, uint64_t deadline_ns, struct err *err)
{
    int flags = MSG_NOSIGNAL | (more ? MSG_MORE : 0);
    ASSERT(link_is_open(link));
    for (size_t at = 0; at < bytes.len;) {
        ssize_t sent = send(link->fd, bytes.data + at, bytes.len - at, flags);
        int failed = sent >= 0 ? 0 : errno;
        at += sent > 0 ? (size_t)sent : 0;
        if (failed == EAGAIN || failed == EWOULDBLOCK) {
            failed = wait_ready(link->fd, POLLOUT, deadline_ns);
        }
        if (failed != 0 && failed != EINTR) {
            return link_failed(link, failed, err);
        }
    }
    return OK;
}

/* Read what is there and give it to hiredis. */
static enum status fill(struct redis_link *link, uint64_t deadline_ns, struct err *err)
{
    char bytes[REDIS_REPLY_BYTES];
    ssize_t got = recv(link->fd, bytes, sizeof bytes, 0);
    int failed = got > 0 ? 0 : got == 0 ? ECONNRESET : errno;
    if (failed == EAGAIN || failed == EWOULDBLOCK) {
        failed = wait_ready(link->fd, POLLIN, deadline_ns);
    } else if (failed == 0 && redisReaderFeed(link->reader, bytes, (size_t)got) != REDIS_OK) {
        failed = ENOMEM;
    }
    return failed == 0 || failed == EINTR ? OK : link_failed(link, failed, err);
}

enum status link_answer(
    struct redis_link *link, redisReply **ret_reply, uint64_t deadline_ns, struct err *err)
{
    ASSERT(link_is_open(link));
    for (;;) {
        void *reply = NULL;
        if (redisReaderGetReply(link->reader, &reply) != REDIS_OK) {
            const struct redis_url *url = link->url;
            redis_link_close(link);
            return err_set(err, E_UNAVAILABLE,
                "what answers at '%s' does not speak the protocol of Redis", url->where);
        }
        if (reply != NULL) {
            *ret_reply = reply;
            return OK;
        }
        enum status status = fill(link, deadline_ns, err);
        if (status != OK) {
            return status;
        }
    }
}

bool link_wait(struct redis_link *link, uint64_t deadline_ns)
{
    ASSERT(link_is_open(link));
    return link->reader->len > link->reader->pos || wait_ready(link->fd, POLLIN, deadline_ns) == 0;
}

enum status link_command(struct redis_link *link, const char *const *words, size_t count,
    uint64_t deadline_ns, redisReply **ret_reply, struct err *err)
{
    char *bytes = NULL;
    redisReply *reply = NULL;
    /* The signature of hiredis lacks a const; it does not change the words. */
    const char **argv = (const char **)(uintptr_t)words;
    int size = redisFormatCommandArgv(&bytes, (int)count, argv, NULL);
    if (size < 0) {
        return err_set(err, E_NOMEM, "out of memory for a command");
    }
    enum status status =
        redis_link_send(link, slice_of(bytes, (size_t)size), false, deadline_ns, err);
    mem_wipe(bytes, (size_t)size); /* it may have been a password */
    redisFreeCommand(bytes);
    status = status == OK ? link_answer(link, &reply, deadline_ns, err) : status;
    if (status == OK && reply->type == REDIS_REPLY_ERROR) {
        status = err_set(err, E_UNAVAILABLE, "the Redis server at '%s' refused %s: %s",
            link->url->where, words[0], reply->str);
        freeReplyObject(reply);
        reply = NULL;
    }
    *ret_reply = reply;
    return status;
}
