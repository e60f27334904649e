#include "cli/fake_upstream.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/check.h"
#include "http/body.h"

enum {
    PIECE_BYTES = 64 << 10, /* read at a time */
    HEAD_BYTES_MAX = 1 << 20,
    ANSWER_BYTES_MAX = 16 << 20,
    HELD_MAX = 256,    /* connections that are not answered yet; one more is reset */
    READ_SECONDS = 10, /* a request that does not come is none */
    BACKLOG = 64,
    URL_BYTES_MAX = 64,
};

/* A request that was read and is answered later, or never. */
struct held {
    int fd;
    bool is_head;
    bool is_question; /* of the gateway itself: no effect */
    uint64_t call;
    const struct case_upstream *script;
};

/*
 * What the two threads share is guarded by the lock: what is wanted is set by the owner, who rings
 * the bell; what is, by the thread.
 */
struct fake_upstream {
    pthread_t thread;
    bool has_thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int bell;     /* eventfd: look at what is wanted */
    int reserved; /* bound and never listening: keeps the port */
    int listener; /* the thread's; -1: connections are refused */
    uint16_t port;
    char url[URL_BYTES_MAX];
    const struct case_upstream *script; /* wanted */
    bool wants_listen;
    bool wants_release;
    bool wants_end;
    bool is_settled; /* the thread has seen all that was wanted */
    int failure;     /* errno of a listener that could not be made again; 0: none */
    uint64_t calls;
    struct held held[HELD_MAX]; /* the thread's */
    size_t held_count;
};

/* ---- sockets ----------------------------------------------------------------------------- */

/* Bound to the port on the loopback; 0: any. -1: errno says why. */
static int bind_port(uint16_t port)
{
    int one = 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (fd >= 0 && (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) != 0 ||
                       bind(fd, (const struct sockaddr *)&address, sizeof address) != 0)) {
        int kept = errno;
        (void)close(fd);
        errno = kept;
        return -1;
    }
    return fd;
}

static uint16_t port_of(int fd)
{
    struct sockaddr_in address = {.sin_port = 0};
    socklen_t len = sizeof address;
    return getsockname(fd, (struct sockaddr *)&address, &len) == 0 ? ntohs(address.sin_port) : 0;
}

static void close_some(int *fd)
{
    if (*fd >= 0) {
        (void)close(*fd);
        *fd = -1;
    }
}

/* Connections that wait to be accepted are reset with the listener. */
static int listen_again(struct fake_upstream *fake, bool wants_listen)
{
    if (!wants_listen) {
        close_some(&fake->listener);
    } else if (fake->listener < 0) {
        fake->listener = bind_port(fake->port);
        if (fake->listener < 0 || listen(fake->listener, BACKLOG) != 0) {
            int failure = errno;
            close_some(&fake->listener);
            return failure;
        }
    }
    return 0;
}

static void reset(int fd)
{
    struct linger now = {.l_onoff = 1, .l_linger = 0};
    (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    (void)close(fd);
}

static bool send_all(int fd, struct slice bytes)
{
    while (bytes.len > 0) {
        ssize_t sent = send(fd, bytes.data, bytes.len, MSG_NOSIGNAL);
        if (sent < 0 && errno != EINTR) {
            return false;
        }
        if (sent > 0) {
            bytes = slice_of(bytes.data + sent, bytes.len - (size_t)sent);
        }
    }
    return true;
}

/* ---- the request ------------------------------------------------------------------------- */

/* False: no more comes. */
static bool read_more(int fd, struct buf *in)
{
    ssize_t got = -1;
    char *room = buf_reserve(in, PIECE_BYTES) == OK ? buf_extend(in, PIECE_BYTES) : NULL;
    if (room == NULL) {
        return false;
    }
    do {
        got = recv(fd, room, PIECE_BYTES, 0);
    } while (got < 0 && errno == EINTR);
    in->len -= PIECE_BYTES - (got > 0 ? (size_t)got : 0);
    return got > 0;
}

/* All of the body is read and nothing of it kept. */
static bool read_body(int fd, const struct http_head *head, struct buf *in)
{
    struct http_limits limits = HTTP_LIMITS_DEFAULT;
    struct http_refusal refusal;
    struct http_body body;
    limits.body_bytes_max = UINT64_MAX;
    enum http_verdict verdict = http_body_init(&body, head, &limits, &refusal);
    struct slice rest = slice_of(in->data + head->bytes, in->len - head->bytes);
    while (verdict == HTTP_MORE || verdict == HTTP_DATA) {
        size_t used = 0;
        struct slice piece = SLICE_EMPTY;
        verdict = http_body_next(&body, rest, &used, &piece, &refusal);
        rest = slice_of(rest.data + used, rest.len - used);
        if (verdict == HTTP_MORE) {
            buf_clear(in);
            if (!read_more(fd, in)) {
                return false;
            }
            rest = buf_view(in);
        }
    }
    return verdict == HTTP_DONE;
}

/* A gateway asks what became of an operation with a GET that has its fence; of what it passes
 * through, no request has one. */
static bool is_question(const struct http_head *head)
{
    return head->method == HTTP_METHOD_GET &&
           http_find(head, SLICE_LIT("Once-Fence"), 0) < head->field_count;
}

static bool read_request(int fd, struct held *held)
{
    struct http_limits limits = HTTP_LIMITS_DEFAULT;
    limits.head_bytes_max = HEAD_BYTES_MAX; /* the gateway adds to what it was sent */
    struct http_refusal refusal;
    struct http_head head;
    struct buf in;
    enum http_verdict verdict = HTTP_MORE;
    http_head_init(&head);
    buf_init(&in, &mem_libc, HEAD_BYTES_MAX);
    while (verdict == HTTP_MORE && read_more(fd, &in)) {
        verdict = http_request_head(buf_view(&in), &limits, &head, &refusal);
    }
    bool is_whole = verdict == HTTP_DONE && read_body(fd, &head, &in);
    held->is_head = is_whole && head.method == HTTP_METHOD_HEAD;
    held->is_question = is_whole && is_question(&head);
    buf_release(&in);
    return is_whole;
}

/* ---- the answer -------------------------------------------------------------------------- */

static void put_head(struct buf *out, const struct case_upstream *script, struct slice body)
{
    bool has_none = script->status == 204 || script->status == 304;
    buf_printf(out, "HTTP/1.1 %" PRIu64 " Scripted\r\nConnection: close\r\n", script->status);
    if (!has_none) {
        buf_printf(out, "Content-Length: %zu\r\n", body.len);
    }
    if (!has_none && !case_headers_have(&script->content.headers, "Content-Type")) {
        buf_printf(out, "Content-Type: %s\r\n",
            script->content.has_body && !script->content.is_json ? "text/plain; charset=utf-8"
                                                                 : "application/json");
    }
    for (size_t i = 0; i < script->content.headers.count; i++) {
        buf_printf(out, "%s: %s\r\n", script->content.headers.items[i].name,
            script->content.headers.items[i].value);
    }
    buf_str(out, "\r\n");
}

static void answer(const struct held *held)
{
    const struct case_upstream *script = held->script;
    char small[32];
    (void)snprintf(small, sizeof small, "{\"call\":%" PRIu64 "}", held->call);
    struct slice body = script->content.has_body ? script->content.body : slice_str(small);
    struct buf out;
    buf_init(&out, &mem_libc, ANSWER_BYTES_MAX);
    put_head(&out, script, body);
    if (!held->is_head && script->status != 204 && script->status != 304) {
        buf_slice(&out, script->fail == CASE_FAIL_HALF ? slice_of(body.data, body.len / 2) : body);
    }
    (void)!(buf_status(&out) == OK && send_all(held->fd, buf_view(&out))); /* or it is gone */
    buf_release(&out);
    (void)close(held->fd);
}

static void hold(struct fake_upstream *fake, const struct held *held)
{
    if (fake->held_count == HELD_MAX) {
        reset(held->fd);
    } else {
        fake->held[fake->held_count++] = *held;
    }
}

/* Those that wait get their answer, and the others never do. */
static void let_go(struct fake_upstream *fake)
{
    for (size_t i = 0; i < fake->held_count; i++) {
        if (fake->held[i].script->waits) {
            answer(&fake->held[i]);
        } else {
            (void)close(fake->held[i].fd);
        }
    }
    fake->held_count = 0;
}

static void serve_one(struct fake_upstream *fake, int fd)
{
    static const struct case_upstream no_word = {.status = 503};
    struct timeval patience = {.tv_sec = READ_SECONDS};
    struct held held = {.fd = fd};
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (!read_request(fd, &held)) {
        (void)close(fd);
        return;
    }
    (void)pthread_mutex_lock(&fake->lock);
    fake->calls += !held.is_question;
    held.call = fake->calls;
    held.script = fake->script;
    (void)pthread_mutex_unlock(&fake->lock);
    ASSERT(held.script != NULL); /* the owner gives one before anybody is sent here */
    if (held.is_question) {
        held.script = held.script->reconcile != NULL ? held.script->reconcile : &no_word;
    }
    if (held.script->waits || held.script->fail == CASE_FAIL_TIMEOUT) {
        hold(fake, &held);
    } else if (held.script->fail == CASE_FAIL_RESET) {
        reset(fd);
    } else {
        answer(&held);
    }
}

/* ---- its thread -------------------------------------------------------------------------- */

/* Do what is wanted; false: the end. */
static bool obey(struct fake_upstream *fake)
{
    uint64_t rung = 0;
    (void)!read(fake->bell, &rung, sizeof rung); /* how often does not matter */
    (void)pthread_mutex_lock(&fake->lock);
    bool goes_on = !fake->wants_end;
    bool releases = fake->wants_release || !goes_on;
    fake->wants_release = false;
    fake->failure = listen_again(fake, fake->wants_listen && goes_on);
    fake->is_settled = true;
    (void)pthread_cond_broadcast(&fake->changed);
    (void)pthread_mutex_unlock(&fake->lock);
    if (releases) {
        let_go(fake);
    }
    return goes_on;
}

static void *fake_upstream_main(void *context)
{
    struct fake_upstream *fake = context;
    bool goes_on = true;
    while (goes_on) {
        struct pollfd ready[] = {{.fd = fake->bell, .events = POLLIN},
            {.fd = fake->listener, .events = POLLIN}}; /* -1 is passed over */
        (void)poll(ready, 2, -1);
        if (ready[0].revents != 0) {
            goes_on = obey(fake);
        } else if (ready[1].revents != 0) {
            int fd = accept4(fake->listener, NULL, NULL, SOCK_CLOEXEC);
            if (fd >= 0) {
                serve_one(fake, fd);
            }
        }
    }
    return NULL;
}

/* ---- its owner --------------------------------------------------------------------------- */

static void ring(struct fake_upstream *fake)
{
    uint64_t one = 1;
    (void)!write(fake->bell, &one, sizeof one); /* full means rung already */
}

static enum status fail(struct err *err, int number)
{
    return err_set(err, E_UNAVAILABLE, "cannot stand in for the upstream: %s", strerror(number));
}

static enum status open_all(struct fake_upstream *fake, struct err *err)
{
    fake->bell = eventfd(0, EFD_CLOEXEC);
    fake->reserved = fake->bell < 0 ? -1 : bind_port(0);
    if (fake->reserved < 0) {
        return fail(err, errno);
    }
    fake->port = port_of(fake->reserved);
    (void)snprintf(fake->url, sizeof fake->url, "http://127.0.0.1:%u", fake->port);
    int failed = pthread_create(&fake->thread, NULL, fake_upstream_main, fake);
    if (failed != 0) {
        return fail(err, failed);
    }
    fake->has_thread = true;
    return OK;
}

enum status fake_upstream_new(struct fake_upstream **ret_fake, struct err *err)
{
    struct fake_upstream *fake = mem_zalloc(&mem_libc, 1, sizeof *fake);
    if (fake == NULL) {
        return err_set(err, E_NOMEM, "out of memory");
    }
    fake->bell = fake->reserved = fake->listener = -1;
    (void)pthread_mutex_init(&fake->lock, NULL);
    (void)pthread_cond_init(&fake->changed, NULL);
    enum status status = open_all(fake, err);
    if (status != OK) {
        fake_upstream_free(fake);
        return status;
    }
    *ret_fake = fake;
    return OK;
}

void fake_upstream_free(struct fake_upstream *fake)
{
    if (fake == NULL) {
        return;
    }
    if (fake->has_thread) {
        (void)pthread_mutex_lock(&fake->lock);
        fake->wants_end = true;
        (void)pthread_mutex_unlock(&fake->lock);
        ring(fake);
        (void)pthread_join(fake->thread, NULL);
    }
    close_some(&fake->bell);
    close_some(&fake->reserved);
    close_some(&fake->listener);
    (void)pthread_cond_destroy(&fake->changed);
    (void)pthread_mutex_destroy(&fake->lock);
    mem_free(&mem_libc, fake);
}

const char *fake_upstream_url(const struct fake_upstream *fake)
{
    return fake->url;
}

enum status fake_upstream_script(
    struct fake_upstream *fake, const struct case_upstream *script, struct err *err)
{
    (void)pthread_mutex_lock(&fake->lock);
    fake->script = script;
    fake->wants_listen = script->fail != CASE_FAIL_REFUSE;
    fake->is_settled = false;
    ring(fake);
    while (!fake->is_settled) {
        (void)pthread_cond_wait(&fake->changed, &fake->lock);
    }
    int failure = fake->failure;
    (void)pthread_mutex_unlock(&fake->lock);
    return failure == 0 ? OK : fail(err, failure);
}

uint64_t fake_upstream_calls(struct fake_upstream *fake)
{
    (void)pthread_mutex_lock(&fake->lock);
    uint64_t calls = fake->calls;
    (void)pthread_mutex_unlock(&fake->lock);
    return calls;
}

void fake_upstream_release(struct fake_upstream *fake)
{
    (void)pthread_mutex_lock(&fake->lock);
    fake->wants_release = true;
    (void)pthread_mutex_unlock(&fake->lock);
    ring(fake);
}
