#include "server/fake_upstream.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/check.h"
#include "http/body.h"

enum {
    PIECE_BYTES = 64 << 10, /* read at a time */
    REQUEST_BYTES_MAX = 64 << 20,
    ANSWER_BYTES_MAX = 16 << 20,
    CONNECTIONS_MAX = 256, /* any more are reset */
    READ_SECONDS = 10,     /* a request that takes longer is dropped */
    BACKLOG = 64,
    URL_BYTES_MAX = 64,
};

struct fake_upstream {
    int listener;      /* bound: it keeps the port, and refuses connections unless … */
    bool is_listening; /* … it listens, and … */
    pthread_t thread;  /* … this thread accepts */
    char url[URL_BYTES_MAX];
    pthread_mutex_t lock;   /* guards the members below */
    pthread_cond_t changed; /* requests are released, or a connection ended */
    const struct case_upstream *script;
    uint64_t releases; /* calls of fake_upstream_release */
    bool is_over;      /* nothing may wait any longer */
    uint64_t calls;
    size_t connections; /* each with a thread */
};

struct fake_connection {
    struct fake_upstream *fake;
    int fd;
    bool is_head;
    bool is_question; /* from the gateway itself: no effect */
};

/* ---- the request ------------------------------------------------------------------------- */

/* False: nothing more comes. */
static bool read_more(int fd, struct buf *in)
{
    char piece[PIECE_BYTES];
    ssize_t got = -1;
    do {
        got = recv(fd, piece, sizeof piece, 0);
    } while (got < 0 && errno == EINTR);
    buf_append(in, piece, got > 0 ? (size_t)got : 0);
    return got > 0 && buf_status(in) == OK;
}

/* HTTP_DONE when a request is complete. */
static enum http_verdict parse(struct slice rest, struct fake_connection *connection)
{
    struct http_limits limits = HTTP_LIMITS_DEFAULT;
    struct http_refusal refusal;
    struct http_head head;
    struct http_body body;
    limits.head_bytes_max = REQUEST_BYTES_MAX; /* the gateway adds fields to the request */
    limits.body_bytes_max = REQUEST_BYTES_MAX;
    http_head_init(&head);
    enum http_verdict verdict = http_request_head(rest, &limits, &head, &refusal);
    if (verdict != HTTP_DONE) {
        return verdict;
    }
    connection->is_head = head.method == HTTP_METHOD_HEAD;
    /* The gateway's own question is a GET with a fence; a GET that it passes through has none. */
    connection->is_question = head.method == HTTP_METHOD_GET &&
                              http_find(&head, SLICE_LIT("Once-Fence"), 0) < head.field_count;
    verdict = http_body_init(&body, &head, &limits, &refusal);
    verdict = verdict == HTTP_MORE ? HTTP_DATA : verdict;
    for (size_t used = head.bytes; verdict == HTTP_DATA;) {
        struct slice piece = SLICE_EMPTY;
        rest = slice_of(rest.data + used, rest.len - used);
        verdict = http_body_next(&body, rest, &used, &piece, &refusal);
    }
    return verdict;
}

static bool read_request(struct fake_connection *connection)
{
    enum http_verdict verdict = HTTP_MORE;
    struct buf in;
    buf_init(&in, &mem_libc, REQUEST_BYTES_MAX);
    while (verdict == HTTP_MORE && read_more(connection->fd, &in)) {
        verdict = parse(buf_view(&in), connection);
    }
    buf_release(&in);
    return verdict == HTTP_DONE;
}

/* ---- the answer -------------------------------------------------------------------------- */

static void put_answer(
    struct buf *out, const struct case_upstream *script, struct slice body, bool is_head)
{
    const struct case_content *content = &script->content;
    bool is_bare = script->status == 204 || script->status == 304;
    bool is_text = content->has_body && !content->is_json;
    buf_printf(out, "HTTP/1.1 %" PRIu64 " Scripted\r\nConnection: close\r\n", script->status);
    if (!is_bare) {
        buf_printf(out, "Content-Length: %zu\r\n", body.len);
    }
    if (!is_bare && !case_headers_have(&content->headers, "Content-Type")) {
        buf_printf(out, "Content-Type: %s\r\n",
            is_text ? "text/plain; charset=utf-8" : "application/json");
    }
    for (size_t i = 0; i < content->headers.count; i++) {
        const struct case_header *header = &content->headers.items[i];
        buf_printf(out, "%s: %s\r\n", header->name, header->value);
    }
    buf_str(out, "\r\n");
    if (!is_bare && !is_head) {
        body.len /= script->fail == CASE_FAIL_HALF ? 2 : 1;
        buf_slice(out, body);
    }
}

static void answer(
    const struct fake_connection *connection, const struct case_upstream *script, uint64_t call)
{
    char small[32];
    (void)snprintf(small, sizeof small, "{\"call\":%" PRIu64 "}", call);
    struct buf out;
    buf_init(&out, &mem_libc, ANSWER_BYTES_MAX);
    put_answer(&out, script, script->content.has_body ? script->content.body : slice_str(small),
        connection->is_head);
    struct slice rest = buf_status(&out) == OK ? buf_view(&out) : SLICE_EMPTY;
    ssize_t sent = 0;
    while (rest.len > 0 && (sent >= 0 || errno == EINTR)) { /* otherwise the gateway is gone */
        sent = send(connection->fd, rest.data, rest.len, MSG_NOSIGNAL);
        rest = sent > 0 ? slice_of(rest.data + sent, rest.len - (size_t)sent) : rest;
    }
    buf_release(&out);
}

/* The script for a counted request, when its answer is due. */
static const struct case_upstream *await_script(
    const struct fake_connection *connection, uint64_t *ret_call)
{
    static const struct case_upstream no_word = {.status = 503};
    struct fake_upstream *fake = connection->fake;
    (void)pthread_mutex_lock(&fake->lock);
    *ret_call = fake->calls += !connection->is_question;
    const struct case_upstream *script = fake->script;
    ASSERT(script != NULL); /* the owner sets a script before anything is sent here */
    if (connection->is_question) {
        script = script->reconcile != NULL ? script->reconcile : &no_word;
    }
    uint64_t releases = fake->releases;
    bool is_held = script->waits || script->fail == CASE_FAIL_TIMEOUT;
    while (is_held && releases == fake->releases && !fake->is_over) {
        (void)pthread_cond_wait(&fake->changed, &fake->lock);
    }
    (void)pthread_mutex_unlock(&fake->lock);
    return script;
}

static void close_with(int fd, bool is_reset)
{
    struct linger now = {.l_onoff = is_reset, .l_linger = 0};
    (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    (void)close(fd);
}

static void *connection_main(void *context)
{
    struct fake_connection *connection = context;
    struct fake_upstream *fake = connection->fake;
    struct timeval patience = {.tv_sec = READ_SECONDS};
    bool is_reset = false;
    (void)setsockopt(connection->fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (read_request(connection)) {
        uint64_t call = 0;
        const struct case_upstream *script = await_script(connection, &call);
        is_reset = script->fail == CASE_FAIL_RESET;
        if (!is_reset && script->fail != CASE_FAIL_TIMEOUT) {
            answer(connection, script, call);
        }
    }
    close_with(connection->fd, is_reset);
    mem_free(&mem_libc, connection);
    (void)pthread_mutex_lock(&fake->lock);
    fake->connections--;
    (void)pthread_cond_broadcast(&fake->changed);
    (void)pthread_mutex_unlock(&fake->lock);
    return NULL;
}

/* ---- listening --------------------------------------------------------------------------- */

static bool connection_start(struct fake_upstream *fake, int fd)
{
    pthread_t thread;
    struct fake_connection *connection = mem_zalloc(&mem_libc, 1, sizeof *connection);
    bool starts = connection != NULL && fake->connections < CONNECTIONS_MAX;
    if (starts) {
        *connection = (struct fake_connection){.fake = fake, .fd = fd};
        starts = pthread_create(&thread, NULL, connection_main, connection) == 0 &&
                 pthread_detach(thread) == 0;
    }
    if (starts) {
        fake->connections++;
    } else {
        mem_free(&mem_libc, connection);
    }
    return starts;
}

static void *accept_main(void *context)
{
    struct fake_upstream *fake = context;
    for (;;) {
        int fd = accept4(fake->listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0 && errno != EINTR && errno != ECONNABORTED) {
            return NULL; /* the listener was shut down */
        }
        (void)pthread_mutex_lock(&fake->lock); /* a connection cannot end before it is counted */
        bool is_served = fd < 0 || connection_start(fake, fd);
        (void)pthread_mutex_unlock(&fake->lock);
        if (!is_served) {
            close_with(fd, true);
        }
    }
}

/* Linux keeps the port of a listener that was shut down, and lets it listen again. Connections
 * waiting to be accepted are reset. */
static void refuse_connections(struct fake_upstream *fake)
{
    if (fake->is_listening) {
        (void)shutdown(fake->listener, SHUT_RD); /* ends accept4 */
        (void)pthread_join(fake->thread, NULL);
        fake->is_listening = false;
    }
}

static enum status cannot(int number, struct err *err)
{
    return err_set(err, E_UNAVAILABLE, "cannot stand in for the upstream: %s", strerror(number));
}

static enum status accept_connections(struct fake_upstream *fake, struct err *err)
{
    if (fake->is_listening) {
        return OK;
    }
    int failed = listen(fake->listener, BACKLOG) != 0
                     ? errno
                     : pthread_create(&fake->thread, NULL, accept_main, fake);
    fake->is_listening = failed == 0;
    return failed == 0 ? OK : cannot(failed, err);
}

/* ---- its owner --------------------------------------------------------------------------- */

/* On any port of the loopback. False: errno says why. */
static bool bind_port(struct fake_upstream *fake, uint16_t port)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(port)};
    int one = 1;
    socklen_t len = sizeof address;
    fake->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fake->listener >= 0 && port != 0) { /* the previous run's connections may still linger */
        (void)setsockopt(fake->listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    }
    bool is_bound = fake->listener >= 0 &&
                    bind(fake->listener, (const struct sockaddr *)&address, len) == 0 &&
                    getsockname(fake->listener, (struct sockaddr *)&address, &len) == 0;
    (void)snprintf(
        fake->url, sizeof fake->url, "http://127.0.0.1:%u", (unsigned)ntohs(address.sin_port));
    return is_bound;
}

enum status fake_upstream_new(uint16_t port, struct fake_upstream **ret_fake, struct err *err)
{
    struct fake_upstream *fake = mem_zalloc(&mem_libc, 1, sizeof *fake);
    if (fake == NULL) {
        return err_set(err, E_NOMEM, "out of memory");
    }
    (void)pthread_mutex_init(&fake->lock, NULL);
    (void)pthread_cond_init(&fake->changed, NULL);
    if (!bind_port(fake, port)) {
        enum status status = cannot(errno, err);
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
    refuse_connections(fake);
    (void)pthread_mutex_lock(&fake->lock);
    fake->is_over = true;
    (void)pthread_cond_broadcast(&fake->changed);
    while (fake->connections > 0) {
        (void)pthread_cond_wait(&fake->changed, &fake->lock);
    }
    (void)pthread_mutex_unlock(&fake->lock);
    if (fake->listener >= 0) {
        (void)close(fake->listener);
    }
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
    (void)pthread_mutex_unlock(&fake->lock);
    if (script->fail == CASE_FAIL_REFUSE) {
        refuse_connections(fake);
        return OK;
    }
    return accept_connections(fake, err);
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
    fake->releases++;
    (void)pthread_cond_broadcast(&fake->changed);
    (void)pthread_mutex_unlock(&fake->lock);
}
