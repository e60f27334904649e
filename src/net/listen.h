/*
 * listen: listening sockets, and accepting connections from them.
 *
 *   "127.0.0.1:7411"  "[::1]:7411"   one socket, or one per loop on the same port (SO_REUSEPORT),
 *                                    so that the kernel spreads connections
 *   "unix:/run/once.sock"            one socket on one loop, which distributes connections
 *
 * Promises:  an address that a different process serves is refused; a Unix socket that no process
 *            serves is replaced. If descriptors run out, connections are accepted and closed with
 *            a reserved descriptor, and the loop does not spin.
 * Threads:   opened before the loops run; the rest on the loop.
 */
#ifndef ONCE_NET_LISTEN_H
#define ONCE_NET_LISTEN_H

#include <netinet/in.h>
#include <sys/un.h>

#include "base/err.h"
#include "base/slice.h"
#include "net/loop.h"

enum {
    NET_ADDRESS_BYTES_MAX = 128, /* "unix:" and a path of 107 */
    NET_PEER_BYTES_MAX = 56,     /* "[…]:65535" of a whole IPv6 address with its zone */
    NET_BACKLOG = 4096,          /* the kernel cuts it to net.core.somaxconn */
    NET_ACCEPTS_MAX = 64,        /* of one socket in one turn, so that those open are served too */
};

/* Where to listen, as text and as the system wants it. */
struct net_address {
    bool is_unix;
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
        struct sockaddr_un un;
    } socket;
    socklen_t socket_bytes;
    char text[NET_ADDRESS_BYTES_MAX]; /* in the form above, with the port that was bound */
};

struct net_listener {
    uv_poll_t poll;
    struct net_loop *loop;
    int fd;
    int reserve_fd;   /* closed to accept one more connection when there are no others */
    bool is_open;     /* poll is initialised */
    bool is_unix;     /* its peers have no address */
    bool is_paused;   /* descriptors ran out; tried again with the deadline */
    uv_timer_t again; /* ends the pause */
    unsigned closing; /* handles whose close is under way */
    void *owner;      /* for accepted */
    /* A connected, non-blocking descriptor, and the peer's address. The callee owns it. */
    void (*accepted)(struct net_listener *listener, int fd, struct slice peer);
};

/* E_INVALID: the text says what is wrong. */
enum status net_address_parse(
    const char *text, struct net_address *ret_address, struct err *err) MUST_CHECK;
/* True when only this machine can reach it. */
bool net_address_is_local(const struct net_address *address);

/* Bind and listen; address says where. The first socket of a TCP address is opened with is_first,
 * which refuses an address in use; the others share its port. */
enum status net_listen_fd(struct net_address *address, bool is_first, unsigned mode, int *ret_fd,
    struct err *err) MUST_CHECK;

/* Accept from a listening descriptor on a loop; on failure the caller still owns it. */
enum status net_listener_open(
    struct net_listener *listener, struct net_loop *loop, int fd, struct err *err) MUST_CHECK;
void net_listener_close(struct net_listener *listener);

#endif
