/*
 * Receives notices of records that other processes settle: a thread with its own connection
 * subscribes to one channel. A message has the chain that committed and the hash of the key.
 * Messages may be lost; waiting calls ask again anyway (S13).
 */
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "store/redis/impl.h"

enum {
    LISTEN_TURN_MS = 200,  /* how soon a listener without a wake_fd notices that it must stop */
    LISTEN_PAUSE_MS = 500, /* before it connects again */
};

/* "message", channel, chain and hash. */
static void message_take(struct redis *self, const redisReply *reply)
{
    struct slice kind;
    struct slice text;
    struct digest hash;
    size_t chain_bytes = strlen(self->chain);
    if (!reply_text(reply_at(reply, 0), &kind) || !slice_is(kind, "message") ||
        !reply_text(reply_at(reply, 2), &text) || text.len != chain_bytes + DIGEST_BYTES ||
        memcmp(text.data, self->chain, chain_bytes) == 0) {
        return; /* the answer to SUBSCRIBE, or a change of our own */
    }
    memcpy(hash.bytes, text.data + chain_bytes, DIGEST_BYTES);
    self->listener.notice(self->listener.context, &hash);
}

static enum status subscribe(struct redis *self, struct redis_link *link)
{
    char channel[REDIS_NAME_BYTES_MAX + 16];
    redisReply *reply = NULL;
    uint64_t deadline_ns = clock_nanos() + UINT64_C(1000000) * REDIS_CONNECT_MS_MAX;
    (void)snprintf(channel, sizeof channel, "{%s}:settled", self->url.name);
    enum status status = redis_link_open(link, deadline_ns, NULL);
    if (status == OK) {
        status = link_command(
            link, (const char *const[]){"SUBSCRIBE", channel}, 2, deadline_ns, &reply, NULL);
    }
    freeReplyObject(reply);
    return status;
}

static void *listen_run(void *context)
{
    struct redis *self = context;
    struct redis_link link;
    (void)pthread_setname_np(pthread_self(), "once-listen");
    redis_link_init(&link, &self->url, &self->tls);
    link.nodes.is_cluster = self->listener.is_cluster;
    while (!atomic_load(&self->listener.is_stopping)) {
        redisReply *reply = NULL;
        if (!link_is_open(&link) && subscribe(self, &link) != OK) {
            redis_link_close(&link);
            clock_sleep_ms(LISTEN_PAUSE_MS);
            continue;
        }
        uint64_t now_ns = clock_nanos();
        if (link_wait(&link, self->listener.wake_fd, LISTEN_TURN_MS) &&
            link_answer(&link, &reply, now_ns + UINT64_C(1000000) * REDIS_ANSWER_MS_MAX, NULL) ==
                OK) {
            message_take(self, reply);
            freeReplyObject(reply);
        }
    }
    redis_link_close(&link);
    return NULL;
}

void redis_listen(struct store *store, store_notice notice, void *context)
{
    struct redis *self = redis_of(store);
    ASSERT(notice != NULL);
    ASSERT(!self->listener.is_running);
    self->listener.notice = notice;
    self->listener.context = context;
    self->listener.is_cluster = self->link.nodes.is_cluster;
    atomic_store(&self->listener.is_stopping, false);
    self->listener.wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    /* Without a thread there are no notices, and waiting calls ask again. */
    self->listener.is_running = pthread_create(&self->listener.thread, NULL, listen_run, self) == 0;
}

void listener_stop(struct redis *self)
{
    if (self->listener.is_running) {
        atomic_store(&self->listener.is_stopping, true);
        (void)eventfd_write(self->listener.wake_fd, 1); /* once run closes a store twice a run */
        (void)pthread_join(self->listener.thread, NULL);
        self->listener.is_running = false;
    }
    if (self->listener.wake_fd > 0) {
        (void)close(self->listener.wake_fd);
        self->listener.wake_fd = -1;
    }
}
