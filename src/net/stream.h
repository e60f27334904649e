/*
 * stream: one connection's bytes, plain or through TLS, on a loop; accepted, or made here.
 *
 * Promises:  bytes are sent in order or the stream is broken. Received bytes are not buffered
 *            here: the owner says where they go, each time. After close the only event is closed,
 *            exactly once. A stream that is connecting has no event before connected, and given is
 *            0 until a byte of a send may have left.
 * Does not:  know HTTP, deadlines or limits; the owner closes.
 * Ownership: embedded in the owner's object, which lives until closed. What is being sent stays the
 *            owner's and must not move until wrote.
 * Threads:   its loop's. Between leave and arrive one thread at a time.
 */
#ifndef ONCE_NET_STREAM_H
#define ONCE_NET_STREAM_H

#include <sys/types.h>

#include "base/slice.h"
#include "net/loop.h"

struct net_stream;
struct net_tls;
struct net_tls_context;

enum { NET_SEND_PIECES_MAX = 2 }; /* what is gathered into one system call: heads, a body */

/* Where bytes may go. */
struct net_room {
    char *data;
    size_t len; /* 0: nowhere; reading pauses until net_stream_read */
};

/* What a read brought. */
enum net_got {
    NET_GOT_BYTES,   /* in the room that was given */
    NET_GOT_NOTHING, /* the room was not used */
    NET_GOT_NO_ROOM, /* there was no room: nothing is read before net_stream_read */
    NET_GOT_END,     /* the other side will send no more */
    NET_GOT_BROKEN,  /* the connection is gone */
};

struct net_events {
    /* Bytes can be sent: the TLS handshake and verification succeeded. Or connecting failed:
     * failure says why, and the owner closes. NULL for accepted streams. */
    void (*connected)(struct net_stream *stream, const char *failure);
    struct net_room (*room)(struct net_stream *stream);
    void (*read)(struct net_stream *stream, enum net_got got, size_t bytes);
    void (*wrote)(struct net_stream *stream, bool is_whole);
    void (*closed)(struct net_stream *stream);
    /* After net_stream_leave: the old loop has let go. NULL if its owner never calls that. */
    void (*left)(struct net_stream *stream);
};

/* What connecting needs; the owner keeps it as long as the stream. */
struct net_connect {
    uv_connect_t request;
    const struct sockaddr *address;
    struct net_tls_context *tls; /* of a client; NULL: plain */
    const char *server_name;     /* TLS: whom the certificate has to name, a name or an address */
};

/* What a send that did not fit into the kernel at once needs; from the owner, until wrote. */
struct net_write {
    uv_write_t request;
    struct slice pieces[NET_SEND_PIECES_MAX]; /* what is left */
};

struct net_stream {
    union {
        uv_handle_t handle;
        uv_stream_t stream;
        uv_tcp_t tcp;
        uv_pipe_t pipe;
    } uv;
    struct net_loop *loop;
    const struct net_events *events;
    struct net_tls *tls;     /* NULL: plain */
    struct net_write *write; /* being sent; NULL: nothing is */
    uint64_t given;          /* bytes of all sends that the kernel or TLS has, or may have */
    bool is_reading;         /* events may come */
    bool is_connecting;      /* connected has not come yet */
    bool is_closing;         /* only closed may come */
    bool is_broken;          /* a send failed; nothing more is sent */
    bool is_away;            /* it belongs to no loop … */
    int fd;                  /* … and this is its descriptor */
};

enum net_sent {
    NET_SENT,    /* all of it is with the kernel; the memory is free again */
    NET_SENDING, /* the rest follows; wrote will come */
    NET_BROKEN,  /* the other side is gone; close */
};

/*
 * Takes over a connected descriptor; events is the owner's and static. tls may be NULL. After a
 * failure call net_stream_close as usual: closed comes, and the descriptor is closed.
 */
enum status net_stream_open(struct net_stream *stream, struct net_loop *loop, int fd, bool is_unix,
    struct net_tls_context *tls, const struct net_events *events) MUST_CHECK;
/*
 * Starts a connection; connected comes later, never from within this call. On failure closed comes
 * after net_stream_close, as usual, and *ret_failure says why.
 */
enum status net_stream_connect(struct net_stream *stream, struct net_loop *loop,
    struct net_connect *connect, const struct net_events *events,
    const char **ret_failure) MUST_CHECK;
/*
 * Takes a stream at rest out of its loop: left comes, as its last event there, and then
 * net_stream_arrive may be called on a different loop. Nothing that the peer sends meanwhile is
 * lost. False: nothing changed, because TLS has something to do here first, or there is no
 * descriptor left. Not while something is being sent.
 */
bool net_stream_leave(struct net_stream *stream) MUST_CHECK;
/* The loop is its loop from now on; continue with net_stream_read. E_UNAVAILABLE: call
 * net_stream_close, as after net_stream_open. */
enum status net_stream_arrive(struct net_stream *stream, struct net_loop *loop) MUST_CHECK;
/* Read, or continue reading after there was no room. */
void net_stream_read(struct net_stream *stream);
/* One at a time: not while one is being sent. */
enum net_sent net_stream_send(struct net_stream *stream, struct net_write *write,
    const struct slice *pieces, size_t count) MUST_CHECK;
/* Bytes of the send in progress that the other side does not have yet, the kernel's too. */
size_t net_stream_unsent(const struct net_stream *stream);
/* Close the sending side, and continue reading. */
void net_stream_finish(struct net_stream *stream);
/* True once requests may come: always for a plain one, after the handshake with TLS. */
bool net_stream_is_ready(const struct net_stream *stream);
/* Neither bytes nor the end wait in the kernel: so a peer that has closed is noticed before use. */
bool net_stream_is_quiet(const struct net_stream *stream);
/* After NET_GOT_END: the peer itself ended it. An end that TLS did not announce may come from
 * anybody. */
bool net_stream_ended_well(const struct net_stream *stream);
void net_stream_close(struct net_stream *stream);

/* For tls.c: connected, once. */
void net_stream_connected(struct net_stream *stream, const char *failure);

#endif
