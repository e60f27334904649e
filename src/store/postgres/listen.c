/*
 * Notices that a different process settled a record (S13): LISTEN on a connection and thread of its
 * own, NOTIFY with the commit.
 *
 * A notice is "CHAIN HASH HASH …" in hex. Notices with our own chain are ignored. It is only sent
 * while a different process listens, because PostgreSQL serialises the commits of transactions that
 * notify. Notices are lost while the connection is down: nothing depends on them.
 */
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/limits.h"
#include "base/text.h"
#include "store/postgres/impl.h"

enum {
    HASH_HEX = 2 * DIGEST_BYTES,
    CHAIN_HEX = 32,
    RETRY_MS = 1000, /* between two attempts to connect */
};

static void put_channel(char ret_name[PG_CHANNEL_BYTES], const struct pg_store *self)
{
    (void)snprintf(ret_name, PG_CHANNEL_BYTES, "once.%s", self->target.schema);
}

/* ---- sending ----------------------------------------------------------------------------- */

void pg_notify_send(struct pg_store *self, const struct pg_row *rows, size_t count)
{
    enum { HASHES_MAX = 100 }; /* a payload has less than 8000 bytes */
    struct pg_args *args = &self->link.args;
    char channel[PG_CHANNEL_BYTES];
    size_t settled = 0;
    char text[CHAIN_HEX + HASHES_MAX * (1 + HASH_HEX) + 1];
    put_channel(channel, self);
    ASSERT(args->count == 0);
    args_str(args, channel);
    args_array(args, PG_TEXT);
    for (size_t i = 0; i < count; i++) {
        if (rows[i].record.status == RECORD_IN_PROGRESS || rows[i].record.kind == RECORD_SOURCE) {
            continue;
        }
        char *at = text + CHAIN_HEX + settled % HASHES_MAX * (1 + HASH_HEX);
        if (settled % HASHES_MAX == 0) {
            (void)text_put_hex(text, self->identity.chain_id, sizeof self->identity.chain_id);
        }
        *at = ' ';
        (void)text_put_hex(at + 1, rows[i].record.key.hash.bytes, DIGEST_BYTES);
        settled++;
        if (settled % HASHES_MAX == 0) {
            args_str(args, text);
        }
    }
    if (settled % HASHES_MAX != 0) {
        args_str(args, text);
    }
    args_array_end(args);
    if (settled > 0) {
        link_send(&self->link, PG_NOTIFY);
    } else {
        args_clear(args);
    }
}

/* ---- hearing ----------------------------------------------------------------------------- */

static void hear(const struct pg_store *self, const char *text)
{
    unsigned char chain_id[16];
    struct slice rest = slice_str(text);
    if (rest.len < CHAIN_HEX || !text_hex(slice_of(text, CHAIN_HEX), chain_id, sizeof chain_id) ||
        memcmp(chain_id, self->identity.chain_id, sizeof chain_id) == 0) {
        return;
    }
    for (size_t at = CHAIN_HEX; at + 1 + HASH_HEX <= rest.len; at += 1 + HASH_HEX) {
        struct digest hash;
        if (text_hex(slice_of(text + at + 1, HASH_HEX), hash.bytes, sizeof hash.bytes)) {
            self->listener.notice(self->listener.context, &hash);
        }
    }
}

/* Connect and LISTEN. A failure leaves no connection. */
static void listen_open(struct pg_store *self)
{
    struct pg_link *link = &self->listener.link;
    char text[PG_CHANNEL_BYTES + 16];
    char channel[PG_CHANNEL_BYTES];
    put_channel(channel, self);
    (void)snprintf(text, sizeof text, "LISTEN \"%s\"", channel);
    if (link_open(link, &self->target, NULL) != OK) {
        return;
    }
    link_text(link, text);
    link_sync(link);
    if (link_finish(link, NULL) != OK) {
        link_close(link);
    }
}

/* Waits until a notice comes, it is time to reconnect, or the thread must end. */
static bool listen_wait(struct pg_store *self)
{
    const struct pg_link *link = &self->listener.link;
    struct pollfd ready[2] = {{.fd = self->listener.wake[0], .events = POLLIN},
        {.fd = link->conn == NULL ? -1 : PQsocket(link->conn), .events = POLLIN}};
    (void)poll(ready, 2, link->conn == NULL ? RETRY_MS : -1);
    return ready[0].revents == 0;
}

static void *listen_main(void *context)
{
    struct pg_store *self = context;
    struct pg_link *link = &self->listener.link;
    (void)pthread_setname_np(pthread_self(), "once-listen");
    while (listen_wait(self)) {
        if (link->conn == NULL) {
            listen_open(self);
            continue;
        }
        if (PQconsumeInput(link->conn) == 0) {
            link_close(link);
            continue;
        }
        for (PGnotify *next = PQnotifies(link->conn); next != NULL; next = PQnotifies(link->conn)) {
            hear(self, next->extra);
            PQfreemem(next);
        }
    }
    return NULL;
}

void pg_listen(struct store *store, store_notice notice, void *context)
{
    struct pg_store *self = pg_of(store);
    struct pg_listener *listener = &self->listener;
    ASSERT(!listener->running); /* at most once */
    listener->notice = notice;
    listener->context = context;
    listener->link.mem = self->mem;
    if (pipe2(listener->wake, O_CLOEXEC) != 0) {
        return; /* without notices, waiting calls ask again */
    }
    listen_open(self);
    if (pthread_create(&listener->thread, NULL, listen_main, self) != 0) {
        link_close(&listener->link);
        (void)close(listener->wake[0]);
        (void)close(listener->wake[1]);
        return;
    }
    listener->running = true;
    if (pg_ready(self, NULL) == OK) {
        args_slice(&self->link.args, slice_of(self->identity.chain_id, 16));
        link_send(&self->link, PG_LISTENS);
        link_sync(&self->link);
        if (link_finish(&self->link, NULL) != OK) {
            pg_recover(self);
        }
    }
}

void pg_listen_end(struct pg_store *self)
{
    struct pg_listener *listener = &self->listener;
    if (!listener->running) {
        return;
    }
    (void)close(listener->wake[1]); /* POLLHUP ends the thread */
    (void)pthread_join(listener->thread, NULL);
    (void)close(listener->wake[0]);
    link_close(&listener->link);
    listener->running = false;
}
