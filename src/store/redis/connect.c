/*
 * Connects to one address: the socket, TLS if the URL asks for it, and the greeting.
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

int link_wait_ready(int fd, short events, uint64_t deadline_ns)
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
        failed = link_wait_ready(fd, POLLOUT, deadline_ns);
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
                               "cannot connect to the Redis server at '%s'", link->where);
}

static enum status connect_tcp(
    struct redis_link *link, const struct redis_address *to, uint64_t deadline_ns, struct err *err)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    int failed = getaddrinfo(to->host, to->port, &hints, &found);
    if (failed != 0) {
        return err_set(err, E_UNAVAILABLE, "cannot find the Redis server at '%s': %s", link->where,
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
            err, E_UNAVAILABLE, cause, "cannot connect to the Redis server at '%s'", link->where);
    }
    int on = 1; /* a request is one write: nothing is gained by waiting for more */
    (void)setsockopt(link->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return OK;
}

enum status link_dial(struct redis_link *link, const struct redis_address *address,
    uint64_t deadline_ns, struct err *err)
{
    ASSERT(!link_is_open(link));
    ASSERT(link->ssl == NULL);
    enum status status = OK;
    if (address == NULL) {
        (void)snprintf(link->where, sizeof link->where, "%s", link->url->socket);
        status = connect_unix(link, deadline_ns, err);
    } else {
        link->nodes.at = *address;
        (void)snprintf(link->where, sizeof link->where, "%s:%s", address->host, address->port);
        status = connect_tcp(link, address, deadline_ns, err);
    }
    if (status == OK && link->tls->context != NULL) {
        status = tls_start(link, address == NULL ? "localhost" : address->host, deadline_ns, err);
    }
    if (status == OK) {
        link->reader = redisReaderCreate();
        status =
            link->reader == NULL ? err_set(err, E_NOMEM, "out of memory for a connection") : status;
    }
    if (status != OK) {
        redis_link_close(link);
    }
    return status;
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

enum status link_authenticate(struct redis_link *link, uint64_t deadline_ns, struct err *err)
{
    const struct redis_url *url = link->url;
    const char *words[3] = {"AUTH", url->user, url->password};
    const char *plain[2] = {"AUTH", url->password};
    bool named = url->user[0] != '\0';
    ASSERT(link_is_open(link));
    ASSERT(url->password[0] != '\0');
    enum status status = greet(link, named ? words : plain, named ? 3 : 2, deadline_ns, err);
    if (status != OK) {
        err_hint(err, "the user and password of the store's URL, or REDISCLI_AUTH");
    }
    return status;
}

/* A Sentinel may still name a server that has become a replica. */
static enum status role_check(struct redis_link *link, uint64_t deadline_ns, struct err *err)
{
    redisReply *reply = NULL;
    struct slice role = SLICE_EMPTY;
    ASSERT(link_is_open(link));
    enum status status =
        link_command(link, (const char *const[]){"ROLE"}, 1, deadline_ns, &reply, err);
    if (status == OK && (!reply_text(reply_at(reply, 0), &role) || !slice_is(role, "master"))) {
        status = err_set(err, E_UNAVAILABLE,
            "the Redis server at '%s' is a replica: the Sentinels have not changed over yet",
            link->where);
    }
    freeReplyObject(reply);
    return status;
}

enum status link_connect(struct redis_link *link, const struct redis_address *address,
    uint64_t deadline_ns, struct err *err)
{
    const struct redis_url *url = link->url;
    enum status status = link_dial(link, address, deadline_ns, err);
    if (status == OK && url->password[0] != '\0') {
        status = link_authenticate(link, deadline_ns, err);
    }
    if (status == OK && url->db != 0) {
        char db[16];
        (void)snprintf(db, sizeof db, "%u", url->db);
        status = greet(link, (const char *const[]){"SELECT", db}, 2, deadline_ns, err);
    }
    if (status == OK && url->sentinels) {
        status = role_check(link, deadline_ns, err);
    }
    if (status != OK) {
        redis_link_close(link);
    }
    return status;
}
