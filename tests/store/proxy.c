#include "store/proxy.h"

#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "check_c.h"

enum { PROXY_TURN_MS = 5, PROXY_WORDS_MS = 200, PROXY_BYTES = 64 << 10, PROXY_LINKS_MAX = 8192 };

struct proxy {
    int listener;
    unsigned short port;   /* where it listens */
    unsigned short server; /* where it leads */
    pthread_t thread;
    pthread_mutex_t lock; /* over what follows */
    long request_left;    /* bytes to the server before the cut; -1: no cut */
    long answer_left;     /* likewise from it */
    long request_next;    /* likewise, from the next cut on */
    long answer_next;
    const char *words; /* for the client, at the next cut of an answer */
    size_t words_bytes;
    bool blocks; /* from the next cut on */
    bool holds;  /* the next request */
    bool blocked;
    bool muted; /* what the server says is thrown away */
    bool has_cut;
    bool stopping;
    pthread_t links[PROXY_LINKS_MAX]; /* one thread for each connection so far; the main thread's */
    size_t link_count;
    int held_server; /* the connection whose request is held; -1: none */
    char held[PROXY_BYTES];
    size_t held_bytes;
};

static int connect_to(unsigned short port)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

static void send_all(int fd, const char *bytes, size_t size)
{
    while (size > 0) {
        ssize_t sent = send(fd, bytes, size, MSG_NOSIGNAL);
        if (sent <= 0) {
            return; /* the other side is gone: so is what was for it */
        }
        bytes += sent;
        size -= (size_t)sent;
    }
}

/* How many of the bytes are whole messages: a type, and a length that counts itself. */
static size_t whole_messages(const char *bytes, size_t size)
{
    size_t at = 0;
    while (size - at >= 5) {
        const unsigned char *length = (const unsigned char *)bytes + at + 1;
        size_t total = 1 + ((size_t)length[0] << 24 | (size_t)length[1] << 16 |
                               (size_t)length[2] << 8 | (size_t)length[3]);
        if (total > size - at) {
            break;
        }
        at += total;
    }
    return at;
}

/* The server's last words. The client has time to read them before the connection ends. */
static void end_answer(struct proxy *proxy, int client, const char *bytes, size_t allowed)
{
    struct pollfd gone = {.fd = client, .events = POLLIN};
    send_all(client, bytes, whole_messages(bytes, allowed));
    send_all(client, proxy->words, proxy->words_bytes);
    proxy->words = NULL;
    (void)poll(&gone, 1, PROXY_WORDS_MS);
}

/* Hand on what arrived at one side. False: this connection is over. */
static bool pass(struct proxy *proxy, int from, int to, long *left, bool is_request)
{
    char bytes[PROXY_BYTES];
    ssize_t got = recv(from, bytes, sizeof bytes, 0);
    if (got <= 0) {
        return false;
    }
    if (!is_request && proxy->muted) {
        return true;
    }
    if (is_request && proxy->holds) {
        struct pollfd more = {.fd = from, .events = POLLIN};
        while (got > 0) { /* a request may come in pieces */
            assert_true(proxy->held_bytes + (size_t)got <= sizeof proxy->held);
            memcpy(proxy->held + proxy->held_bytes, bytes, (size_t)got);
            proxy->held_bytes += (size_t)got;
            got = poll(&more, 1, 50) > 0 ? recv(from, bytes, sizeof bytes, 0) : 0;
        }
        proxy->held_server = to;
        proxy->holds = false;
        return false;
    }
    size_t allowed = (size_t)got;
    if (*left >= 0 && *left < got) {
        allowed = (size_t)*left;
        proxy->request_left = proxy->request_next;
        proxy->answer_left = proxy->answer_next;
        proxy->request_next = proxy->answer_next = -1;
        proxy->blocked = proxy->blocked || proxy->blocks;
        proxy->blocks = false;
        proxy->has_cut = true;
        if (!is_request && proxy->words != NULL) {
            end_answer(proxy, to, bytes, allowed);
        } else {
            send_all(to, bytes, allowed);
        }
        return false;
    }
    *left -= *left >= 0 ? got : 0;
    send_all(to, bytes, allowed);
    return true;
}

/* One turn of one connection, with the lock. False: it is over. */
static bool turn(struct proxy *proxy, int client, int server)
{
    struct pollfd ready[2] = {{.fd = client, .events = POLLIN}, {.fd = server, .events = POLLIN}};
    if (proxy->stopping || proxy->blocked) {
        return false;
    }
    if (poll(ready, 2, 0) <= 0) {
        return true;
    }
    if (ready[0].revents != 0 && !pass(proxy, client, server, &proxy->request_left, true)) {
        return false;
    }
    return ready[1].revents == 0 || pass(proxy, server, client, &proxy->answer_left, false);
}

/* One connection, to be served on a thread of its own. */
struct proxy_link {
    struct proxy *proxy;
    int client;
};

static void *serve_one(void *context)
{
    struct proxy_link link = *(struct proxy_link *)context;
    struct proxy *proxy = link.proxy;
    int client = link.client;
    free(context);
    int server = connect_to(proxy->server);
    bool goes_on = true;
    while (goes_on) {
        struct pollfd ready[2] = {
            {.fd = client, .events = POLLIN}, {.fd = server, .events = POLLIN}};
        (void)poll(ready, 2, PROXY_TURN_MS);
        (void)pthread_mutex_lock(&proxy->lock);
        goes_on = turn(proxy, client, server);
        bool is_held = proxy->held_server == server;
        (void)pthread_mutex_unlock(&proxy->lock);
        if (!goes_on && !is_held) {
            (void)close(server);
        }
    }
    (void)close(client);
    return NULL;
}

static void *proxy_main(void *context)
{
    struct proxy *proxy = context;
    bool stopping = false;
    while (!stopping) {
        struct pollfd ready = {.fd = proxy->listener, .events = POLLIN};
        int client = poll(&ready, 1, PROXY_TURN_MS) > 0 ? accept(proxy->listener, NULL, NULL) : -1;
        (void)pthread_mutex_lock(&proxy->lock);
        stopping = proxy->stopping;
        bool blocked = proxy->blocked || stopping;
        (void)pthread_mutex_unlock(&proxy->lock);
        if (client >= 0 && blocked) {
            (void)close(client);
        } else if (client >= 0) {
            struct proxy_link *link = malloc(sizeof *link);
            assert_true(link != NULL && proxy->link_count < PROXY_LINKS_MAX);
            *link = (struct proxy_link){proxy, client};
            pthread_t *thread = &proxy->links[proxy->link_count++];
            assert_int_equal(pthread_create(thread, NULL, serve_one, link), 0);
        }
    }
    for (size_t i = 0; i < proxy->link_count; i++) {
        (void)pthread_join(proxy->links[i], NULL);
    }
    return NULL;
}

struct proxy *proxy_new(unsigned short port)
{
    struct proxy *proxy = calloc(1, sizeof *proxy);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    assert_non_null(proxy);
    proxy->server = port;
    proxy->request_left = proxy->answer_left = -1;
    proxy->request_next = proxy->answer_next = -1;
    proxy->held_server = -1;
    proxy->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(proxy->listener >= 0);
    assert_int_equal(bind(proxy->listener, (const struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(proxy->listener, 16), 0);
    assert_int_equal(getsockname(proxy->listener, (struct sockaddr *)&address, &size), 0);
    proxy->port = ntohs(address.sin_port);
    assert_int_equal(pthread_mutex_init(&proxy->lock, NULL), 0);
    assert_int_equal(pthread_create(&proxy->thread, NULL, proxy_main, proxy), 0);
    return proxy;
}

void proxy_free(struct proxy *proxy)
{
    (void)pthread_mutex_lock(&proxy->lock);
    proxy->stopping = true;
    (void)pthread_mutex_unlock(&proxy->lock);
    (void)pthread_join(proxy->thread, NULL);
    (void)close(proxy->listener);
    (void)pthread_mutex_destroy(&proxy->lock);
    free(proxy);
}

unsigned short proxy_port(const struct proxy *proxy)
{
    return proxy->port;
}

static void arm(struct proxy *proxy, long request, long answer)
{
    (void)pthread_mutex_lock(&proxy->lock);
    proxy->request_left = request;
    proxy->answer_left = answer;
    proxy->request_next = proxy->answer_next = -1;
    proxy->has_cut = false;
    (void)pthread_mutex_unlock(&proxy->lock);
}

void proxy_cut_request(struct proxy *proxy, long bytes)
{
    arm(proxy, bytes, -1);
}

void proxy_cut_answer(struct proxy *proxy, long bytes)
{
    arm(proxy, -1, bytes);
}

void proxy_end_answer(struct proxy *proxy, long bytes, const char *words, size_t size)
{
    arm(proxy, -1, bytes);
    (void)pthread_mutex_lock(&proxy->lock);
    proxy->words = words;
    proxy->words_bytes = size;
    (void)pthread_mutex_unlock(&proxy->lock);
}

void proxy_cut_again(struct proxy *proxy, long request_bytes, long answer_bytes)
{
    (void)pthread_mutex_lock(&proxy->lock);
    proxy->request_next = request_bytes;
    proxy->answer_next = answer_bytes;
    (void)pthread_mutex_unlock(&proxy->lock);
}

void proxy_block_after_cut(struct proxy *proxy)
{
    (void)pthread_mutex_lock(&proxy->lock);
    proxy->blocks = true;
    (void)pthread_mutex_unlock(&proxy->lock);
}

bool proxy_is_armed(struct proxy *proxy)
{
    (void)pthread_mutex_lock(&proxy->lock);
    bool is_armed = proxy->request_left >= 0 || proxy->answer_left >= 0;
    (void)pthread_mutex_unlock(&proxy->lock);
    return is_armed;
}

bool proxy_has_cut(struct proxy *proxy)
{
    (void)pthread_mutex_lock(&proxy->lock);
    bool has_cut = proxy->has_cut;
    proxy->request_left = proxy->answer_left = -1;
    (void)pthread_mutex_unlock(&proxy->lock);
    return has_cut;
}

void proxy_hold(struct proxy *proxy)
{
    (void)pthread_mutex_lock(&proxy->lock);
    proxy->holds = true;
    (void)pthread_mutex_unlock(&proxy->lock);
}

void proxy_deliver(struct proxy *proxy, char *ret_answer, size_t size)
{
    (void)pthread_mutex_lock(&proxy->lock);
    int server = proxy->held_server;
    assert_true(server >= 0);
    send_all(server, proxy->held, proxy->held_bytes);
    proxy->held_server = -1;
    proxy->held_bytes = 0;
    (void)pthread_mutex_unlock(&proxy->lock);
    struct pollfd ready = {.fd = server, .events = POLLIN};
    assert_int_equal(poll(&ready, 1, 5000), 1);
    ssize_t got = recv(server, ret_answer, size - 1, 0);
    assert_true(got > 0);
    ret_answer[got] = '\0';
    (void)close(server);
}

void proxy_mute(struct proxy *proxy, bool is_muted)
{
    (void)pthread_mutex_lock(&proxy->lock);
    proxy->muted = is_muted;
    (void)pthread_mutex_unlock(&proxy->lock);
}

void proxy_block(struct proxy *proxy, bool is_blocked)
{
    (void)pthread_mutex_lock(&proxy->lock);
    proxy->blocked = is_blocked;
    (void)pthread_mutex_unlock(&proxy->lock);
}
