#include "net/listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/text.h"

enum { PAUSE_MS = 100 }; /* out of descriptors, retry ten times a second */

static enum status parse_unix(const char *text, struct net_address *address, struct err *err)
{
    const char *path = text + strlen("unix:");
    size_t len = strlen(path);
    if (len == 0 || len >= sizeof address->socket.un.sun_path) {
        return err_set(err, E_INVALID, "bad address '%s': a socket's path has 1 to %zu bytes", text,
            sizeof address->socket.un.sun_path - 1);
    }
    address->is_unix = true;
    address->socket.un.sun_family = AF_UNIX;
    memcpy(address->socket.un.sun_path, path, len + 1);
    address->socket_bytes = sizeof address->socket.un;
    memcpy(address->text, text, strlen(text) + 1);
    return OK;
}

static void put_text(struct net_address *address)
{
    char host[INET6_ADDRSTRLEN] = "";
    bool is_v6 = address->socket.any.sa_family == AF_INET6;
    const void *from = is_v6 ? (const void *)&address->socket.v6.sin6_addr
                             : (const void *)&address->socket.v4.sin_addr;
    unsigned port = ntohs(is_v6 ? address->socket.v6.sin6_port : address->socket.v4.sin_port);
    const char *done = inet_ntop(address->socket.any.sa_family, from, host, sizeof host);
    ASSERT(done != NULL);
    (void)snprintf(address->text, sizeof address->text, is_v6 ? "[%s]:%u" : "%s:%u", host, port);
}

static bool parse_host(struct slice host, uint16_t port, struct net_address *address)
{
    char text[INET6_ADDRSTRLEN];
    bool is_v6 = host.len >= 2 && host.data[0] == '[' && host.data[host.len - 1] == ']';
    if (is_v6) {
        host = slice_of(host.data + 1, host.len - 2);
    }
    if (host.len == 0 || host.len >= sizeof text) {
        return false;
    }
    memcpy(text, host.data, host.len);
    text[host.len] = '\0';
    if (is_v6) {
        address->socket.v6 = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = port};
        address->socket_bytes = sizeof address->socket.v6;
        return inet_pton(AF_INET6, text, &address->socket.v6.sin6_addr) == 1;
    }
    address->socket.v4 = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = port};
    address->socket_bytes = sizeof address->socket.v4;
    return inet_pton(AF_INET, text, &address->socket.v4.sin_addr) == 1;
}

enum status net_address_parse(const char *text, struct net_address *ret_address, struct err *err)
{
    struct net_address address = {.is_unix = false};
    if (strncmp(text, "unix:", strlen("unix:")) == 0) {
        enum status status = parse_unix(text, &address, err);
        if (status == OK) {
            *ret_address = address;
        }
        return status;
    }
    const char *colon = strrchr(text, ':');
    uint64_t port = UINT64_MAX;
    if (colon == NULL || !text_u64(slice_str(colon + 1), &port) || port > UINT16_MAX ||
        !parse_host(slice_of(text, (size_t)(colon - text)), htons((uint16_t)port), &address)) {
        err_set(err, E_INVALID, "bad address '%s'", text);
        err_hint(err, "an address is 127.0.0.1:7411, [::1]:7411 or unix:/run/once.sock");
        return E_INVALID;
    }
    put_text(&address);
    *ret_address = address;
    return OK;
}

bool net_address_is_local(const struct net_address *address)
{
    if (address->is_unix) {
        return true;
    }
    if (address->socket.any.sa_family == AF_INET6) {
        return IN6_IS_ADDR_LOOPBACK(&address->socket.v6.sin6_addr);
    }
    return ntohl(address->socket.v4.sin_addr.s_addr) >> 24 == 127;
}

static enum status cannot(struct err *err, const struct net_address *address, int fd)
{
    int cause = errno;
    if (fd >= 0) {
        (void)close(fd); /* nothing was written to it */
    }
    if (cause == EADDRINUSE) {
        (void)err_set(err, E_UNAVAILABLE, "cannot listen on '%s': in use", address->text);
        err_hint(err, "stop the process that listens there, or use a different address");
        return E_UNAVAILABLE;
    }
    return err_errno(err, E_UNAVAILABLE, cause, "cannot listen on '%s'", address->text);
}

/*
 * A crash leaves a socket file that no process listens on. Connecting shows whether one does: a
 * full backlog (EAGAIN) also means that a process listens.
 */
static enum status clear_stale(const struct net_address *address, struct err *err)
{
    const char *path = address->socket.un.sun_path;
    struct stat found;
    if (lstat(path, &found) != 0) {
        return OK; /* bind will report the error, if any */
    }
    if (!S_ISSOCK(found.st_mode)) {
        return err_set(err, E_UNAVAILABLE,
            "cannot listen on '%s': the file exists and is not a socket", address->text);
    }
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return cannot(err, address, -1);
    }
    int rc = connect(fd, &address->socket.any, address->socket_bytes);
    int cause = errno;
    (void)close(fd); /* it only asked */
    if (rc == 0 || cause != ECONNREFUSED) {
        errno = rc == 0 || cause == EAGAIN ? EADDRINUSE : cause;
        return cannot(err, address, -1);
    }
    return unlink(path) == 0 || errno == ENOENT ? OK : cannot(err, address, -1);
}

static enum status listen_unix(
    struct net_address *address, unsigned mode, int *ret_fd, struct err *err)
{
    enum status status = clear_stale(address, err);
    if (status != OK) {
        return status;
    }
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    /* No client can connect between bind and listen, so the mode is set before any does. */
    if (fd < 0 || bind(fd, &address->socket.any, address->socket_bytes) != 0 ||
        chmod(address->socket.un.sun_path, mode) != 0 || listen(fd, NET_BACKLOG) != 0) {
        return cannot(err, address, fd);
    }
    *ret_fd = fd;
    return OK;
}

static int tcp_socket(const struct net_address *address, bool is_shared)
{
    int one = 1;
    int fd = socket(address->socket.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return -1;
    }
    /* An accepted socket inherits TCP_NODELAY: no call for each of them. */
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) != 0 ||
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) != 0 ||
        (is_shared && setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof one) != 0) ||
        (address->socket.any.sa_family == AF_INET6 &&
            setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one) != 0) ||
        bind(fd, &address->socket.any, address->socket_bytes) != 0) {
        int cause = errno;
        (void)close(fd); /* nothing was written to it */
        errno = cause;
        return -1;
    }
    return fd;
}

/* With SO_REUSEPORT a second server would silently share the port; without it, the second is
 * refused. */
static enum status probe(struct net_address *address, struct err *err)
{
    int fd = tcp_socket(address, false);
    /* bind alone does not see a listener that set SO_REUSEADDR as we do; listen does. */
    if (fd < 0 || listen(fd, 1) != 0) {
        return cannot(err, address, fd);
    }
    socklen_t bytes = address->socket_bytes;
    if (getsockname(fd, &address->socket.any, &bytes) != 0) {
        return cannot(err, address, fd);
    }
    (void)close(fd); /* it only asked */
    put_text(address);
    return OK;
}

enum status net_listen_fd(
    struct net_address *address, bool is_first, unsigned mode, int *ret_fd, struct err *err)
{
    if (address->is_unix) {
        return listen_unix(address, mode, ret_fd, err);
    }
    if (is_first) {
        enum status status = probe(address, err);
        if (status != OK) {
            return status;
        }
    }
    int fd = tcp_socket(address, true);
    if (fd < 0 || listen(fd, NET_BACKLOG) != 0) {
        return cannot(err, address, fd);
    }
    *ret_fd = fd;
    return OK;
}

static struct slice peer_text(
    const struct net_listener *listener, const struct sockaddr *from, char text[64])
{
    if (listener->is_unix) {
        return SLICE_LIT("unix");
    }
    struct net_address peer = {.is_unix = false};
    size_t bytes = from->sa_family == AF_INET6 ? sizeof peer.socket.v6 : sizeof peer.socket.v4;
    memcpy(&peer.socket, from, bytes);
    put_text(&peer);
    size_t len = strlen(peer.text);
    len = len > NET_PEER_BYTES_MAX ? NET_PEER_BYTES_MAX : len;
    memcpy(text, peer.text, len);
    return slice_of(text, len);
}

static void on_readable(uv_poll_t *poll, int rc, int events);

static void resume_accepting(uv_timer_t *timer)
{
    struct net_listener *listener = timer->data;
    if (listener->reserve_fd < 0) {
        listener->reserve_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    }
    listener->is_paused = false;
    int rc = uv_poll_start(&listener->poll, UV_READABLE, on_readable);
    ASSERT(rc == 0);
}

static void pause_accepting(struct net_listener *listener)
{
    if (!listener->is_paused) {
        listener->is_paused = true;
        uv_poll_stop(&listener->poll);
        uv_timer_start(&listener->again, resume_accepting, PAUSE_MS, 0);
    }
}

/* No descriptor is left: accept one connection with the reserve and close it, so that its client
 * notices at once. Then pause, because accepting the next would only spin. */
static void refuse_one(struct net_listener *listener)
{
    if (listener->reserve_fd >= 0) {
        (void)close(listener->reserve_fd); /* of /dev/null */
        int fd = accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC);
        if (fd >= 0) {
            (void)close(fd); /* nothing was written to it */
        }
        listener->reserve_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    }
    pause_accepting(listener);
}

static void on_readable(uv_poll_t *poll, int rc, int events)
{
    struct net_listener *listener = poll->data;
    (void)rc;     /* an error shows in accept4 */
    (void)events; /* there is but one */
    for (unsigned i = 0; i < NET_ACCEPTS_MAX && listener->is_open; i++) {
        union {
            struct sockaddr any;
            struct sockaddr_storage room;
        } from = {.any = {.sa_family = AF_UNSPEC}};
        socklen_t bytes = sizeof from;
        int fd = accept4(listener->fd, &from.any, &bytes, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0) {
            char text[64];
            listener->accepted(listener, fd, peer_text(listener, &from.any, text));
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            refuse_one(listener);
            return;
        } else if (errno != ECONNABORTED && errno != EINTR && errno != EPROTO) {
            return; /* EAGAIN: all were taken */
        }
    }
}

enum status net_listener_open(
    struct net_listener *listener, struct net_loop *loop, int fd, struct err *err)
{
    listener->loop = loop;
    listener->fd = fd;
    int rc = uv_poll_init(&loop->uv, &listener->poll, fd);
    if (rc != 0) {
        return err_set(err, E_UNAVAILABLE, "cannot listen: %s", uv_strerror(rc));
    }
    uv_timer_init(&loop->uv, &listener->again);
    listener->poll.data = listener;
    listener->again.data = listener;
    listener->reserve_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    listener->is_open = true;
    rc = uv_poll_start(&listener->poll, UV_READABLE, on_readable);
    ASSERT(rc == 0);
    return OK;
}

static void on_listener_closed(uv_handle_t *handle)
{
    struct net_listener *listener = handle->data;
    ASSERT(listener->closing > 0);
    listener->closing--;
}

void net_listener_close(struct net_listener *listener)
{
    if (!listener->is_open) {
        return;
    }
    listener->is_open = false;
    listener->closing = 2;
    uv_close((uv_handle_t *)&listener->poll, on_listener_closed);
    uv_close((uv_handle_t *)&listener->again, on_listener_closed);
    (void)close(listener->fd); /* of a listening socket: nothing can be lost */
    if (listener->reserve_fd >= 0) {
        (void)close(listener->reserve_fd); /* of /dev/null */
    }
    listener->fd = -1;
    listener->reserve_fd = -1;
}
