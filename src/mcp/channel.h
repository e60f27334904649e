/*
 * channel: the client of a proxy that is on a different thread: messages in, messages out.
 *
 *     endpoint (a loop)                              a session's thread (pump.h)
 *        mcp_channel_put      ---- parcels ---->     mcp_channel_take
 *        mcp_channel_close    ---- CLOSED ----->     the client has gone
 *        mcp_channel_hurry    ---- HURRIED ---->     wait for nothing any more
 *        options.deliver      <--- messages ----     mcp_channel_send
 *        options.ending       <-----------------     mcp_channel_ending: the server has ended
 *        options.left         <-----------------     mcp_channel_leave: the thread's last touch
 *
 * Promises:  messages keep their order in both directions. What waits in either one is bounded: put
 *            refuses, and the thread stops reading its server while the client does not read.
 * Threads:   as in the picture; mcp_channel_read may be called from both sides.
 */
#ifndef ONCE_MCP_CHANNEL_H
#define ONCE_MCP_CHANNEL_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/buf.h"
#include "base/err.h"

enum {
    MCP_CHANNEL_BYTES_MAX =
        32 << 20, /* messages that a session has not taken: two of the largest */
};

/* A message of the client, and what came with it. */
struct mcp_parcel {
    struct mcp_parcel *next;
    struct buf line;
    struct buf key; /* of the field Idempotency-Key; empty: none */
};

enum mcp_channel_state { MCP_CHANNEL_OPEN, MCP_CHANNEL_CLOSED, MCP_CHANNEL_HURRIED };

/* What the thread calls, on its own thread. */
struct mcp_channel_options {
    const struct mem *mem;
    /* about: see mcp_client_side. The slices are valid during the call. */
    void (*deliver)(void *context, struct slice line, struct slice about);
    void (*ending)(void *context); /* once at most; what is under way is still answered */
    void (*left)(void *context);
    void *context;
};

struct mcp_channel {
    struct mcp_channel_options options;
    int readable;             /* an eventfd: parcels, a new state, or room for more messages */
    atomic_size_t sent_bytes; /* sent to the client and not read by it */
    pthread_mutex_t mutex;
    struct mcp_parcel *first; /* under mutex, like the next two */
    size_t bytes;
    enum mcp_channel_state state;
};

/* E_UNAVAILABLE: no descriptor is left. */
enum status mcp_channel_init(struct mcp_channel *channel, const struct mcp_channel_options *options,
    struct err *err) MUST_CHECK;
/* The thread must have left. */
void mcp_channel_release(struct mcp_channel *channel);

/* E_LIMIT: too much waits. E_NOMEM. */
enum status mcp_channel_put(
    struct mcp_channel *channel, struct slice line, struct slice key) MUST_CHECK;
void mcp_channel_close(struct mcp_channel *channel);
void mcp_channel_hurry(struct mcp_channel *channel);
/* The client has read, or will never read, this many of the sent bytes. */
void mcp_channel_read(struct mcp_channel *channel, size_t bytes);

/* The next parcel, which is the caller's to free; NULL: none. */
struct mcp_parcel *mcp_channel_take(struct mcp_channel *channel);
void mcp_parcel_free(const struct mcp_channel *channel, struct mcp_parcel *parcel);
enum mcp_channel_state mcp_channel_state(struct mcp_channel *channel);
/* Clear the readable state; call it before you read what it announced. */
void mcp_channel_clear(struct mcp_channel *channel);
void mcp_channel_send(struct mcp_channel *channel, struct slice line, struct slice about);
size_t mcp_channel_waiting(struct mcp_channel *channel);
void mcp_channel_ending(struct mcp_channel *channel);
void mcp_channel_leave(struct mcp_channel *channel);

#endif
