#include "mcp/channel.h"

#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/check.h"
#include "base/limits.h"
#include "mcp/proxy.h"

enum status mcp_channel_init(
    struct mcp_channel *channel, const struct mcp_channel_options *options, struct err *err)
{
    *channel = (struct mcp_channel){
        .options = *options, .readable = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
    if (channel->readable < 0) {
        return err_errno(err, E_UNAVAILABLE, errno, "cannot make a session");
    }
    (void)pthread_mutex_init(&channel->mutex, NULL);
    return OK;
}

void mcp_parcel_free(const struct mcp_channel *channel, struct mcp_parcel *parcel)
{
    buf_release(&parcel->line);
    buf_release(&parcel->key);
    mem_free(channel->options.mem, parcel);
}

void mcp_channel_release(struct mcp_channel *channel)
{
    for (struct mcp_parcel *p = mcp_channel_take(channel); p != NULL;
         p = mcp_channel_take(channel)) {
        mcp_parcel_free(channel, p);
    }
    (void)pthread_mutex_destroy(&channel->mutex);
    (void)close(channel->readable); /* an eventfd has nothing to lose */
}

static void wake(const struct mcp_channel *channel)
{
    ASSERT(eventfd_write(channel->readable, 1) == 0);
}

enum status mcp_channel_put(struct mcp_channel *channel, struct slice line, struct slice key)
{
    const struct mem *mem = channel->options.mem;
    struct mcp_parcel *parcel = mem_zalloc(mem, 1, sizeof *parcel);
    if (parcel == NULL) {
        return E_NOMEM;
    }
    buf_init(&parcel->line, mem, MCP_MESSAGE_BYTES_MAX);
    buf_init(&parcel->key, mem, LIMIT_KEY_BYTES_MAX);
    buf_slice(&parcel->line, line);
    buf_slice(&parcel->key, key);
    enum status status = buf_status(&parcel->line);
    status = status != OK ? status : buf_status(&parcel->key);
    (void)pthread_mutex_lock(&channel->mutex);
    if (status == OK && channel->bytes > 0 && channel->bytes + line.len > MCP_CHANNEL_BYTES_MAX) {
        status = E_LIMIT;
    }
    if (status == OK) {
        struct mcp_parcel **end = &channel->first;
        while (*end != NULL) {
            end = &(*end)->next;
        }
        *end = parcel;
        channel->bytes += line.len;
    }
    (void)pthread_mutex_unlock(&channel->mutex);
    if (status != OK) {
        mcp_parcel_free(channel, parcel);
        return status;
    }
    wake(channel);
    return OK;
}

/* States only go forward. */
static void reach(struct mcp_channel *channel, enum mcp_channel_state state)
{
    (void)pthread_mutex_lock(&channel->mutex);
    channel->state = state > channel->state ? state : channel->state;
    (void)pthread_mutex_unlock(&channel->mutex);
    wake(channel);
}

void mcp_channel_close(struct mcp_channel *channel)
{
    reach(channel, MCP_CHANNEL_CLOSED);
}

void mcp_channel_hurry(struct mcp_channel *channel)
{
    reach(channel, MCP_CHANNEL_HURRIED);
}

void mcp_channel_read(struct mcp_channel *channel, size_t bytes)
{
    if (bytes > 0) {
        size_t before = atomic_fetch_sub(&channel->sent_bytes, bytes);
        ASSERT(before >= bytes);
        wake(channel);
    }
}

struct mcp_parcel *mcp_channel_take(struct mcp_channel *channel)
{
    (void)pthread_mutex_lock(&channel->mutex);
    struct mcp_parcel *parcel = channel->first;
    if (parcel != NULL) {
        channel->first = parcel->next;
        channel->bytes -= parcel->line.len;
        parcel->next = NULL;
    }
    (void)pthread_mutex_unlock(&channel->mutex);
    return parcel;
}

enum mcp_channel_state mcp_channel_state(struct mcp_channel *channel)
{
    (void)pthread_mutex_lock(&channel->mutex);
    enum mcp_channel_state state = channel->state;
    (void)pthread_mutex_unlock(&channel->mutex);
    return state;
}

void mcp_channel_clear(struct mcp_channel *channel)
{
    eventfd_t count = 0;
    (void)eventfd_read(channel->readable, &count); /* nothing there is fine */
}

void mcp_channel_send(struct mcp_channel *channel, struct slice line, struct slice about)
{
    (void)atomic_fetch_add(&channel->sent_bytes, line.len);
    channel->options.deliver(channel->options.context, line, about);
}

size_t mcp_channel_waiting(struct mcp_channel *channel)
{
    return atomic_load(&channel->sent_bytes);
}

void mcp_channel_ending(struct mcp_channel *channel)
{
    channel->options.ending(channel->options.context);
}

void mcp_channel_leave(struct mcp_channel *channel)
{
    channel->options.left(channel->options.context);
}
