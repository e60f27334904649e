#include "net/stream.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "net/tls.h"

static struct net_stream *stream_of(uv_handle_t *handle)
{
    return handle->data;
}

static void on_room(uv_handle_t *handle, size_t wanted, uv_buf_t *ret_buf)
{
    (void)wanted;
    struct net_stream *stream = stream_of(handle);
    if (stream->tls != NULL) {
        *ret_buf = uv_buf_init(stream->loop->scratch, NET_SCRATCH_BYTES);
        return;
    }
    struct net_room room = stream->events->room(stream);
    *ret_buf = uv_buf_init(room.data, (unsigned)room.len);
}

static void pause_reading(struct net_stream *stream)
{
    stream->is_reading = false;
    uv_read_stop(&stream->uv.stream);
}

void net_stream_connected(struct net_stream *stream, const char *failure)
{
    ASSERT(stream->is_connecting);
    stream->is_connecting = false;
    stream->events->connected(stream, failure);
}

/* If bytes were read in the same turn, libuv reports a reset as an end: it sees the hang-up but not
 * its cause. If the end of the connection ends an answer, half an answer would then look
 * complete. */
static int cause_of_end(struct net_stream *stream)
{
    int failure = 0;
    socklen_t size = sizeof failure;
    uv_os_fd_t fd;
    if (uv_fileno(&stream->uv.handle, &fd) != 0 ||
        getsockopt(fd, SOL_SOCKET, SO_ERROR, &failure, &size) != 0 || failure == 0) {
        return UV_EOF;
    }
    return uv_translate_sys_error(failure);
}

static void ended(struct net_stream *stream, int rc)
{
    rc = rc == UV_EOF ? cause_of_end(stream) : rc;
    if (stream->is_connecting) {
        net_stream_connected(
            stream, rc == UV_EOF ? "closed during the TLS handshake" : uv_strerror(rc));
    } else {
        stream->events->read(stream, rc == UV_EOF ? NET_GOT_END : NET_GOT_BROKEN, 0);
    }
}

static void on_read(uv_stream_t *handle, ssize_t got, const uv_buf_t *buf)
{
    struct net_stream *stream = stream_of((uv_handle_t *)handle);
    if (got == UV_ENOBUFS) {
        pause_reading(stream);
        stream->events->read(stream, NET_GOT_NO_ROOM, 0);
    } else if (got > 0 && stream->tls != NULL) {
        net_tls_take(stream, slice_of(buf->base, (size_t)got));
    } else if (got > 0) {
        stream->events->read(stream, NET_GOT_BYTES, (size_t)got);
    } else if (got == 0) {
        stream->events->read(stream, NET_GOT_NOTHING, 0);
    } else {
        pause_reading(stream);
        ended(stream, (int)got);
    }
}

void net_stream_read(struct net_stream *stream)
{
    ASSERT(!stream->is_away);
    if (stream->is_closing || stream->is_reading) {
        return;
    }
    stream->is_reading = true;
    int rc = uv_read_start(&stream->uv.stream, on_room, on_read);
    if (rc != 0) {
        stream->is_reading = false;
        ended(stream, rc);
    } else if (stream->tls != NULL) {
        net_tls_pump(stream); /* what was decrypted already makes no new event */
    }
}

static void on_closed(uv_handle_t *handle)
{
    struct net_stream *stream = stream_of(handle);
    net_tls_free(stream->tls);
    stream->tls = NULL;
    stream->events->closed(stream);
}

static enum status take_descriptor(
    struct net_stream *stream, struct net_loop *loop, int fd, bool is_unix)
{
    stream->loop = loop;
    int rc = is_unix ? uv_pipe_init(&loop->uv, &stream->uv.pipe, 0)
                     : uv_tcp_init(&loop->uv, &stream->uv.tcp);
    ASSERT(rc == 0); /* neither opens a descriptor, so neither can fail */
    stream->uv.handle.data = stream;
    rc = is_unix ? uv_pipe_open(&stream->uv.pipe, fd) : uv_tcp_open(&stream->uv.tcp, fd);
    if (rc != 0) {
        (void)close(fd); /* the peer has everything that was written to it */
    }
    return rc != 0 ? E_UNAVAILABLE : OK;
}

enum status net_stream_open(struct net_stream *stream, struct net_loop *loop, int fd, bool is_unix,
    struct net_tls_context *tls, const struct net_events *events)
{
    *stream = (struct net_stream){.events = events};
    enum status status = take_descriptor(stream, loop, fd, is_unix);
    return status != OK || tls == NULL ? status : net_tls_new(tls, loop, &stream->tls);
}

static void on_left(uv_handle_t *handle)
{
    struct net_stream *stream = stream_of(handle);
    stream->events->left(stream);
}

/* libuv cannot hand over a descriptor, and closes that of a handle with it: so what moves is a
 * second one for the same connection. */
bool net_stream_leave(struct net_stream *stream)
{
    uv_os_fd_t fd;
    ASSERT(!stream->is_away && !stream->is_closing && !stream->is_connecting);
    ASSERT(stream->write == NULL);
    if (stream->is_broken || (stream->tls != NULL && !net_tls_is_quiet(stream->tls)) ||
        uv_fileno(&stream->uv.handle, &fd) != 0) {
        return false;
    }
    stream->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (stream->fd < 0) {
        return false;
    }
    stream->is_away = true;
    stream->is_reading = false;
    uv_close(&stream->uv.handle, on_left);
    return true;
}

enum status net_stream_arrive(struct net_stream *stream, struct net_loop *loop)
{
    ASSERT(stream->is_away && !stream->is_reading);
    stream->is_away = false;
    bool is_unix = uv_handle_get_type(&stream->uv.handle) == UV_NAMED_PIPE;
    return take_descriptor(stream, loop, stream->fd, is_unix);
}

static void on_connect(uv_connect_t *request, int rc)
{
    struct net_stream *stream = request->data;
    if (stream->is_closing) {
        return;
    }
    if (rc == 0 && stream->tls != NULL) {
        net_stream_read(stream); /* begins the handshake, which ends in connected */
    } else {
        net_stream_connected(stream, rc == 0 ? NULL : uv_strerror(rc));
    }
}

enum status net_stream_connect(struct net_stream *stream, struct net_loop *loop,
    struct net_connect *connect, const struct net_events *events, const char **ret_failure)
{
    *stream = (struct net_stream){.loop = loop, .events = events, .is_connecting = true};
    int rc = uv_tcp_init(&loop->uv, &stream->uv.tcp);
    ASSERT(rc == 0); /* it does not make a descriptor */
    stream->uv.handle.data = stream;
    connect->request.data = stream;
    enum status status = connect->tls == NULL ? OK
                                              : net_tls_new_client(connect->tls, loop,
                                                    connect->server_name, &stream->tls);
    if (status != OK) {
        *ret_failure = "out of memory";
        return status;
    }
    rc = uv_tcp_connect(&connect->request, &stream->uv.tcp, connect->address, on_connect);
    if (rc != 0) {
        *ret_failure = uv_strerror(rc);
        return E_UNAVAILABLE;
    }
    (void)uv_tcp_nodelay(&stream->uv.tcp, 1); /* without it pieces of a body only come later */
    return OK;
}

void net_stream_close(struct net_stream *stream)
{
    ASSERT(!stream->is_away);
    if (!stream->is_closing) {
        if (stream->tls != NULL && stream->write == NULL) {
            net_tls_finish(stream);
        }
        stream->is_closing = true;
        uv_close(&stream->uv.handle, on_closed);
    }
}

/* Leave out what the kernel took. */
static size_t drop_front(struct slice *pieces, size_t count, size_t taken)
{
    size_t left = 0;
    for (size_t i = 0; i < count; i++) {
        size_t cut = taken < pieces[i].len ? taken : pieces[i].len;
        taken -= cut;
        if (cut < pieces[i].len) {
            pieces[left++] = slice_of(pieces[i].data + cut, pieces[i].len - cut);
        }
    }
    return left;
}

static unsigned as_bufs(uv_buf_t *ret_bufs, const struct slice *pieces, size_t count)
{
    unsigned used = 0;
    for (size_t i = 0; i < count; i++) {
        if (pieces[i].len > 0) {
            union { /* libuv's buffers are for reading too, so it wants them writable */
                const char *in;
                char *out;
            } data = {.in = pieces[i].data};
            ret_bufs[used].base = data.out;
            ret_bufs[used++].len = pieces[i].len;
        }
    }
    return used;
}

static void on_wrote(uv_write_t *request, int rc)
{
    struct net_stream *stream = request->data;
    stream->write = NULL;
    stream->is_broken = stream->is_broken || rc != 0;
    if (!stream->is_closing) {
        stream->events->wrote(stream, rc == 0);
    }
}

static enum net_sent send_plain(
    struct net_stream *stream, struct net_write *write, const struct slice *pieces, size_t count)
{
    uv_buf_t bufs[NET_SEND_PIECES_MAX];
    for (size_t i = 0; i < count; i++) {
        write->pieces[i] = pieces[i];
    }
    unsigned used = as_bufs(bufs, write->pieces, count);
    int taken = used == 0 ? 0 : uv_try_write(&stream->uv.stream, bufs, used);
    if (taken < 0 && taken != UV_EAGAIN) {
        stream->is_broken = true;
        return NET_BROKEN;
    }
    stream->given += taken > 0 ? (size_t)taken : 0;
    size_t left = drop_front(write->pieces, count, taken > 0 ? (size_t)taken : 0);
    if (left == 0) {
        return NET_SENT;
    }
    write->request.data = stream;
    used = as_bufs(bufs, write->pieces, left);
    if (uv_write(&write->request, &stream->uv.stream, bufs, used, on_wrote) != 0) {
        stream->is_broken = true;
        return NET_BROKEN;
    }
    stream->given += write->pieces[0].len + (left > 1 ? write->pieces[1].len : 0);
    stream->write = write;
    return NET_SENDING;
}

enum net_sent net_stream_send(
    struct net_stream *stream, struct net_write *write, const struct slice *pieces, size_t count)
{
    ASSERT(count <= NET_SEND_PIECES_MAX);
    ASSERT(stream->write == NULL);
    if (stream->is_closing || stream->is_broken) {
        return NET_BROKEN;
    }
    return stream->tls != NULL ? net_tls_send(stream, write, pieces, count)
                               : send_plain(stream, write, pieces, count);
}

size_t net_stream_unsent(const struct net_stream *stream)
{
    int queued = 0;
    uv_os_fd_t fd;
    size_t unsent = uv_stream_get_write_queue_size(&stream->uv.stream);
    /* The kernel reports room only when a third of its buffer is free; a slow reader of a long
     * answer would seem to stall for longer than any limit. */
    if (uv_fileno(&stream->uv.handle, &fd) == 0 && ioctl(fd, SIOCOUTQ, &queued) == 0) {
        unsent += (size_t)queued;
    }
    return stream->tls == NULL ? unsent : unsent + net_tls_unsent(stream);
}

void net_stream_finish(struct net_stream *stream)
{
    uv_os_fd_t fd;
    if (stream->is_closing) {
        return;
    }
    if (stream->tls != NULL) {
        net_tls_finish(stream);
    }
    if (uv_fileno(&stream->uv.handle, &fd) == 0) {
        (void)shutdown(fd, SHUT_WR); /* fails only where the other side is gone already */
    }
}

bool net_stream_is_ready(const struct net_stream *stream)
{
    return !stream->is_connecting && (stream->tls == NULL || net_tls_is_ready(stream->tls));
}

bool net_stream_is_quiet(const struct net_stream *stream)
{
    char byte;
    uv_os_fd_t fd;
    if (stream->is_closing || stream->is_broken || uv_fileno(&stream->uv.handle, &fd) != 0) {
        return false;
    }
    ssize_t got = recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
}

bool net_stream_ended_well(const struct net_stream *stream)
{
    return !stream->is_broken && (stream->tls == NULL || net_tls_has_ended(stream->tls));
}
