/*
 * A connection to the server: a socket with deadlines, and hiredis to parse answers.
 *
 * hiredis could own the socket too, but its timeouts are for each read: a server that answers byte
 * by byte could block the engine's thread without limit. Also, Debian's hiredis has no TLS.
 */
#include <errno.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "store/redis/impl.h"

static enum status link_failed(struct redis_link *link, int errno_value, struct err *err)
{
    const char *reason = link->ssl == NULL ? NULL : tls_reason();
    bool is_tls = link->ssl != NULL;
    enum status status = E_UNAVAILABLE;
    redis_link_close(link);
    if (reason != NULL) {
        status = err_set(
            err, status, "no answer from the Redis server at '%s': %s", link->where, reason);
    } else {
        status = err_errno(
            err, status, errno_value, "no answer from the Redis server at '%s'", link->where);
    }
    if (is_tls && link->url->cert_file[0] == '\0') {
        err_hint(err, "a server that wants a certificate of ours needs cert= and key= in the URL");
    }
    return status;
}

void redis_link_close(struct redis_link *link)
{
    SSL_free(link->ssl);
    link->ssl = NULL;
    if (link->reader != NULL) {
        redisReaderFree(link->reader);
        link->reader = NULL;
    }
    if (link->fd >= 0) {
        (void)close(link->fd);
        link->fd = -1;
    }
}

/* The result of a call on the socket: bytes; 0 and the events to wait for; or -1 and errno. */
static ssize_t socket_did(ssize_t bytes, short events, short *ret_events)
{
    if (bytes < 0 && errno == EINTR) {
        *ret_events = 0;
        return 0;
    }
    *ret_events = events;
    return bytes < 0 && (errno == EAGAIN || errno == EWOULDBLOCK) ? 0 : bytes;
}

enum status redis_link_send(
    struct redis_link *link, struct slice bytes, bool more, uint64_t deadline_ns, struct err *err)
{
    int flags = MSG_NOSIGNAL | (more ? MSG_MORE : 0);
    ASSERT(link_is_open(link));
    while (bytes.len > 0) {
        short events = 0;
        ssize_t sent = link->ssl != NULL ? tls_write(link, bytes, &events)
                                         : socket_did(send(link->fd, bytes.data, bytes.len, flags),
                                               POLLOUT, &events);
        int failed = sent < 0 ? errno : 0;
        if (sent == 0 && events != 0) {
            failed = link_wait_ready(link->fd, events, deadline_ns);
        }
        if (failed != 0) {
            return link_failed(link, failed, err);
        }
        bytes = slice_of(bytes.data + sent, bytes.len - (size_t)sent);
    }
    return OK;
}

/* Reads the available bytes and passes them to hiredis. */
static enum status fill(struct redis_link *link, uint64_t deadline_ns, struct err *err)
{
    char bytes[REDIS_REPLY_BYTES];
    short events = 0;
    ssize_t got = 0;
    if (link->ssl != NULL) {
        got = tls_read(link, bytes, sizeof bytes, &events);
    } else {
        got = recv(link->fd, bytes, sizeof bytes, 0);
        if (got == 0) { /* the server has closed it */
            return link_failed(link, ECONNRESET, err);
        }
        got = socket_did(got, POLLIN, &events);
    }
    int failed = got < 0 ? errno : 0;
    if (got == 0 && events != 0) {
        failed = link_wait_ready(link->fd, events, deadline_ns);
    } else if (got > 0 && redisReaderFeed(link->reader, bytes, (size_t)got) != REDIS_OK) {
        failed = ENOMEM;
    }
    return failed == 0 ? OK : link_failed(link, failed, err);
}

enum status link_answer(
    struct redis_link *link, redisReply **ret_reply, uint64_t deadline_ns, struct err *err)
{
    ASSERT(link_is_open(link));
    for (;;) {
        void *reply = NULL;
        if (redisReaderGetReply(link->reader, &reply) != REDIS_OK) {
            redis_link_close(link);
            return err_set(err, E_UNAVAILABLE,
                "what answers at '%s' does not speak the protocol of Redis", link->where);
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

bool link_wait(struct redis_link *link, int wake_fd, int64_t wait_ms)
{
    ASSERT(link_is_open(link));
    struct pollfd fds[] = {{.fd = link->fd, .events = POLLIN}, {.fd = wake_fd, .events = POLLIN}};
    return link->reader->len > link->reader->pos ||
           (link->ssl != NULL && SSL_pending(link->ssl) > 0) ||
           (poll(fds, 2, (int)wait_ms) > 0 && fds[0].revents != 0);
}

enum status link_ask(struct redis_link *link, const char *const *words, size_t count,
    uint64_t deadline_ns, redisReply **ret_reply, struct err *err)
{
    char *bytes = NULL;
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
    return status == OK ? link_answer(link, ret_reply, deadline_ns, err) : status;
}

enum status link_command(struct redis_link *link, const char *const *words, size_t count,
    uint64_t deadline_ns, redisReply **ret_reply, struct err *err)
{
    redisReply *reply = NULL;
    enum status status = link_ask(link, words, count, deadline_ns, &reply, err);
    if (status == OK && reply->type == REDIS_REPLY_ERROR) {
        status = err_set(err, E_UNAVAILABLE, "the Redis server at '%s' refused %s: %s", link->where,
            words[0], reply->str);
        freeReplyObject(reply);
        reply = NULL;
    }
    *ret_reply = reply;
    return status;
}
