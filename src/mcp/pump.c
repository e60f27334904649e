#include "mcp/pump.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/macros.h"
#include "mcp/lines.h"

enum {
    WRITE_BYTES = 4096,         /* PIPE_BUF: a writable descriptor takes that without blocking */
    QUEUED_BYTES_MAX = 8 << 20, /* the other side is not read while more is waiting */
    DRAIN_MS = 1000, /* how long the server's own children may still write after its end */
    HURRY_MS = 5000, /* before a server that was asked to end is asked again */
    POLL_MS_MAX = 60000,
};

/* One side, as it is read. */
struct input {
    int fd; /* -1: closed */
    struct mcp_lines lines;
};

struct pump {
    struct mcp_proxy *proxy;
    const struct pump_options *options;
    struct input client;
    struct input server;
    int to_client; /* -1: the client does not read any more */
    int to_server; /* -1: closed */
    bool has_ended;
    bool is_gone;        /* a server over HTTP: nothing comes from it any more */
    bool is_hurried;     /* by the channel */
    bool is_ending_sent; /* the channel knows that the server has ended */
    int64_t hurry_ms;    /* when the server is asked again */
    int64_t drained_ms;  /* after its end: how long its output is read */
};

static int64_t now(const struct pump *pump)
{
    return pump->options->now_ms(pump->options->context);
}

static void close_fd(int *fd)
{
    if (*fd >= 0) {
        (void)close(*fd); /* closing a pipe loses nothing */
        *fd = -1;
    }
}

/* ---- lines ----------------------------------------------------------------------------------- */

static void client_line(void *context, struct slice line)
{
    struct pump *pump = context;
    proxy_client_line(pump->proxy, line, now(pump));
}

static void client_too_long(void *context)
{
    struct pump *pump = context;
    proxy_client_too_long(pump->proxy);
}

static void server_line(void *context, struct slice line)
{
    struct pump *pump = context;
    proxy_server_line(pump->proxy, line, now(pump));
}

static void server_too_long(void *context)
{
    struct pump *pump = context;
    pump->proxy->options.say(pump->proxy->options.context,
        "a message of the server is larger than 64 MiB: it was dropped");
}

/* False: the other end has closed. */
static bool read_some(struct input *input)
{
    char *room = mcp_lines_room(&input->lines);
    if (room == NULL) {
        return true; /* the status stays in the buffer, and ends the pump */
    }
    ssize_t got = read(input->fd, room, MCP_LINES_CHUNK_BYTES);
    if (got > 0) {
        mcp_lines_came(&input->lines, (size_t)got);
    } else if (got == 0 || (errno != EINTR && errno != EAGAIN)) {
        mcp_lines_end(&input->lines);
        return false;
    }
    return true;
}

/* False: the other end has closed. */
static bool write_some(int fd, struct mcp_queue *queue)
{
    struct slice front = queue_front(queue);
    ssize_t put = write(fd, front.data, front.len < WRITE_BYTES ? front.len : WRITE_BYTES);
    if (put > 0) {
        queue_take(queue, (size_t)put);
    }
    return put >= 0 || errno == EINTR || errno == EAGAIN;
}

/* ---- a client on a different thread --------------------------------------------------------- */

static bool has_room(const struct pump *pump)
{
    return proxy_client_waits(pump->proxy) < QUEUED_BYTES_MAX &&
           queue_front(&pump->proxy->to_server).len < QUEUED_BYTES_MAX;
}

/* Asks the server to end, and again after a while. */
static void hurry(struct pump *pump)
{
    if (pump->options->http != NULL && !pump->is_hurried) {
        mcp_http_hurry(pump->options->http);
    }
    pump->is_hurried = true;
    if (now(pump) >= pump->hurry_ms && !pump->has_ended) {
        pump->hurry_ms = now(pump) + HURRY_MS;
        pump->options->hurry(pump->options->context);
    }
}

/* Reads what the client sent, as far as there is room. */
static void take_parcels(struct pump *pump)
{
    struct mcp_channel *channel = pump->options->channel;
    struct mcp_parcel *parcel = NULL;
    if (channel == NULL) {
        return;
    }
    if (pump->proxy->is_server_gone && !pump->is_ending_sent) {
        pump->is_ending_sent = true;
        mcp_channel_ending(channel);
    }
    mcp_channel_clear(channel);
    enum mcp_channel_state state =
        mcp_channel_state(channel); /* read before the last message is taken */
    while (pump->client.fd >= 0 && has_room(pump) && (parcel = mcp_channel_take(channel)) != NULL) {
        pump->proxy->key = buf_view(&parcel->key);
        proxy_client_line(pump->proxy, buf_view(&parcel->line), now(pump));
        pump->proxy->key = SLICE_EMPTY;
        mcp_parcel_free(channel, parcel);
    }
    if (state == MCP_CHANNEL_HURRIED) {
        hurry(pump);
    }
    if (state == MCP_CHANNEL_HURRIED || (state == MCP_CHANNEL_CLOSED && has_room(pump))) {
        pump->client.fd = -1;
    }
}

/* ---- one turn -------------------------------------------------------------------------------- */

static void take_ledger(struct pump *pump)
{
    struct mcp_job *job = pump->options->take_done(pump->options->context);
    while (job != NULL) {
        struct mcp_job *next = job->next;
        proxy_done(pump->proxy, job, now(pump));
        job = next;
    }
}

static void end_server(struct pump *pump)
{
    close_fd(&pump->server.fd);
    close_fd(&pump->to_server);
    proxy_server_gone(pump->proxy, now(pump));
}

/* Sends lines to a server over HTTP; a granted call as soon as everything before it was sent. */
static void write_http(struct pump *pump)
{
    struct mcp_queue *queue = &pump->proxy->to_server;
    for (;;) {
        if (queue_front(queue).len == 0) {
            proxy_send(pump->proxy, now(pump));
        }
        struct slice front = queue_front(queue);
        const char *newline = front.len == 0 ? NULL : memchr(front.data, '\n', front.len);
        if (newline == NULL) {
            return;
        }
        size_t len = (size_t)(newline - front.data);
        if (!mcp_http_take(pump->options->http, slice_of(front.data, len), now(pump))) {
            return;
        }
        queue_take(queue, len + 1);
    }
}

/* Sends a granted call as soon as everything before it was sent. */
static void write_server(struct pump *pump)
{
    struct mcp_queue *queue = &pump->proxy->to_server;
    if (pump->options->http != NULL) {
        write_http(pump);
        return;
    }
    if (pump->to_server >= 0 && queue_front(queue).len == 0) {
        proxy_send(pump->proxy, now(pump));
    }
    while (pump->to_server >= 0 && queue_front(queue).len > 0) {
        uint64_t total = queue->total;
        if (!write_some(pump->to_server, queue)) {
            close_fd(&pump->to_server); /* its end comes with its output */
        }
        if (queue->total == total) {
            return;
        }
        if (queue_front(queue).len == 0) {
            proxy_send(pump->proxy, now(pump));
        }
    }
}

static void end_what_is_over(struct pump *pump)
{
    const struct mcp_proxy *proxy = pump->proxy;
    bool is_idle = queue_front(&proxy->to_server).len == 0 && !proxy_has_unsent(proxy);
    if (pump->client.fd < 0 && is_idle) {
        close_fd(&pump->to_server);
    }
    if (pump->options->http != NULL && !pump->is_gone && pump->client.fd < 0 &&
        (is_idle || pump->has_ended) && mcp_http_finish(pump->options->http, now(pump))) {
        pump->has_ended = pump->is_gone = true;
        proxy_server_gone(pump->proxy, now(pump));
    }
    if (pump->has_ended && pump->server.fd >= 0 && now(pump) >= pump->drained_ms) {
        end_server(pump);
    }
    if (pump->to_client < 0) {
        queue_take(&pump->proxy->to_client, queue_front(&proxy->to_client).len);
    }
}

static bool is_over(const struct pump *pump)
{
    bool is_gone = pump->options->http == NULL ? pump->has_ended : pump->is_gone;
    return is_gone && pump->server.fd < 0 && proxy_is_settled(pump->proxy) &&
           queue_front(&pump->proxy->to_client).len == 0;
}

enum { FROM_CLIENT, FROM_SERVER, TO_CLIENT, TO_SERVER, SIGNALS, LEDGER, FDS };

static int wait_ms(const struct pump *pump)
{
    int64_t due_ms = proxy_due(pump->proxy);
    int64_t http_ms = pump->options->http == NULL ? INT64_MAX : mcp_http_due(pump->options->http);
    due_ms = http_ms < due_ms ? http_ms : due_ms;
    int64_t left_ms = due_ms == INT64_MAX ? POLL_MS_MAX : due_ms - now(pump);
    if (pump->has_ended && pump->server.fd >= 0 && pump->drained_ms - now(pump) < left_ms) {
        left_ms = pump->drained_ms - now(pump);
    }
    if (pump->is_hurried && !pump->has_ended && pump->hurry_ms - now(pump) < left_ms) {
        left_ms = pump->hurry_ms - now(pump);
    }
    return left_ms < 0 ? 0 : left_ms > POLL_MS_MAX ? POLL_MS_MAX : (int)left_ms;
}

/* The descriptors that may be read and written now; poll(2) ignores -1. */
static void choose(const struct pump *pump, struct pollfd fds[FDS])
{
    size_t client_bytes = queue_front(&pump->proxy->to_client).len;
    size_t server_bytes = queue_front(&pump->proxy->to_server).len;
    bool is_read = proxy_client_waits(pump->proxy) < QUEUED_BYTES_MAX;
    bool is_taken = pump->options->channel != NULL || has_room(pump);
    int from_client =
        pump->options->channel == NULL ? pump->client.fd : pump->options->channel->readable;
    fds[FROM_CLIENT] = (struct pollfd){.fd = is_taken ? from_client : -1, .events = POLLIN};
    fds[FROM_SERVER] = (struct pollfd){.fd = is_read ? pump->server.fd : -1, .events = POLLIN};
    fds[TO_CLIENT] =
        (struct pollfd){.fd = client_bytes > 0 ? pump->to_client : -1, .events = POLLOUT};
    fds[TO_SERVER] =
        (struct pollfd){.fd = server_bytes > 0 ? pump->to_server : -1, .events = POLLOUT};
    fds[SIGNALS] =
        (struct pollfd){.fd = pump->has_ended ? -1 : pump->options->signals, .events = POLLIN};
    fds[LEDGER] = (struct pollfd){.fd = pump->options->ledger, .events = POLLIN};
}

static void act(struct pump *pump, const struct pollfd fds[FDS])
{
    if (fds[LEDGER].revents != 0) {
        take_ledger(pump);
    }
    if (fds[FROM_SERVER].revents != 0 && !read_some(&pump->server)) {
        end_server(pump);
    }
    if (fds[SIGNALS].revents != 0 && pump->options->has_ended(pump->options->context)) {
        pump->has_ended = true;
        pump->drained_ms = now(pump) + DRAIN_MS;
        if (pump->options->http != NULL) {
            mcp_http_hurry(pump->options->http);
            pump->client.fd = -1;
        }
    }
    if (pump->options->channel == NULL && fds[FROM_CLIENT].revents != 0 &&
        !read_some(&pump->client)) {
        pump->client.fd = -1; /* the caller's to close */
    }
    if (fds[TO_CLIENT].revents != 0 && !write_some(pump->to_client, &pump->proxy->to_client)) {
        pump->to_client = -1;
        pump->client.fd = -1; /* the client has gone: the server may end */
    }
}

static enum status pump_status(const struct pump *pump)
{
    const struct buf *bufs[] = {&pump->proxy->to_client.bytes, &pump->proxy->to_server.bytes,
        &pump->client.lines.bytes, &pump->server.lines.bytes};
    for (size_t i = 0; i < COUNT(bufs); i++) {
        if (buf_status(bufs[i]) != OK) {
            return buf_status(bufs[i]);
        }
    }
    return pump->options->http == NULL ? OK : mcp_http_status(pump->options->http);
}

static enum status turn(struct pump *pump, struct err *err)
{
    struct pollfd fds[FDS];
    take_parcels(pump);
    proxy_tick(pump->proxy, now(pump));
    write_server(pump);
    end_what_is_over(pump);
    if (pump_status(pump) != OK) {
        return err_set(err, pump_status(pump), "no memory is left for the lines of MCP");
    }
    choose(pump, fds);
    if (is_over(pump)) {
        return OK;
    }
    struct mcp_http *http = pump->options->http;
    int ready =
        http == NULL ? poll(fds, FDS, wait_ms(pump)) : mcp_http_poll(http, fds, FDS, wait_ms(pump));
    if (ready < 0) {
        return errno == EINTR ? OK : err_errno(err, E_UNAVAILABLE, errno, "cannot wait for MCP");
    }
    act(pump, fds);
    if (http != NULL) {
        mcp_http_work(http, now(pump));
    }
    return OK;
}

static void init_lines(struct pump *pump)
{
    const struct mem *mem = pump->proxy->options.mem;
    mcp_lines_init(&pump->client.lines, mem, LIMIT_JSON_BYTES_MAX);
    pump->client.lines.line = client_line;
    pump->client.lines.too_long = client_too_long;
    pump->client.lines.context = pump;
    mcp_lines_init(&pump->server.lines, mem, MCP_MESSAGE_BYTES_MAX);
    pump->server.lines.line = server_line;
    pump->server.lines.too_long = server_too_long;
    pump->server.lines.context = pump;
}

enum status pump_run(struct mcp_proxy *proxy, const struct pump_options *options, struct err *err)
{
    struct pump pump = {.proxy = proxy,
        .options = options,
        .client.fd = options->channel == NULL ? options->from_client : options->channel->readable,
        .server.fd = options->from_server,
        .to_client = options->to_client,
        .to_server = options->to_server};
    init_lines(&pump);
    /* Our ends of the pipes only: the file descriptions of the others are shared. */
    if (options->http == NULL) {
        (void)fcntl(options->from_server, F_SETFL, O_NONBLOCK);
        (void)fcntl(options->to_server, F_SETFL, O_NONBLOCK);
    }
    enum status status = OK;
    while (status == OK && !is_over(&pump)) {
        status = turn(&pump, err);
    }
    close_fd(&pump.server.fd);
    close_fd(&pump.to_server);
    mcp_lines_release(&pump.client.lines);
    mcp_lines_release(&pump.server.lines);
    return status;
}
