/*
 * The store's time: the server's, under the rule of store/clock.h for jumps, and never before the
 * time of a commit known here.
 *
 * A server reports its wall clock but no monotonic clock. Between two answers our own boot clock
 * advances the time, and jumps of the server's clock are measured against it. The store keeps the
 * last moment for each boot of each machine, so that a restarted process measures against the same
 * clock. A machine that is new to the store has nothing to compare with, and follows the server
 * unless it is behind the last commit.
 */
#include <inttypes.h>
#include <stdio.h>

#include "base/check.h"
#include "base/text.h"
#include "store/redis/impl.h"

static struct clock_reading face_read(void *context)
{
    const struct redis *self = context;
    if (self->given != NULL) {
        return clock_read(self->given);
    }
    ASSERT(self->server_ms > 0); /* not called before the server has answered */
    struct clock_reading local = clock_read(&self->system);
    return (struct clock_reading){
        .wall_ms = self->server_ms + (local.boot_ms - self->server_boot_ms),
        .boot_ms = local.boot_ms};
}

bool reply_time(struct redis *self, const redisReply *reply)
{
    uint64_t seconds = 0;
    uint64_t microseconds = 0;
    uint64_t mark_ms = 0;
    if (!reply_u64(reply_at(reply, 0), &seconds) || !reply_u64(reply_at(reply, 1), &microseconds) ||
        !reply_u64(reply_at(reply, 2), &mark_ms) || seconds > INT64_MAX / 2000 ||
        microseconds > 1000000 || mark_ms > INT64_MAX / 2) {
        return false;
    }
    self->server_ms = (int64_t)(seconds * 1000 + microseconds / 1000);
    self->server_boot_ms = clock_read(&self->system).boot_ms;
    self->mark_ms = (int64_t)mark_ms > self->mark_ms ? (int64_t)mark_ms : self->mark_ms;
    return true;
}

/* Reads "time boot jump" of this boot; false: the text is invalid. */
static bool moment_read(struct slice text, struct store_moment *ret_moment)
{
    uint64_t numbers[3];
    ASSERT(text.data != NULL);
    for (size_t i = 0; i < 3; i++) {
        const char *blank = memchr(text.data, ' ', text.len);
        size_t len = i == 2 || blank == NULL ? text.len : (size_t)(blank - text.data);
        if (!text_u64(slice_of(text.data, len), &numbers[i]) || numbers[i] > INT64_MAX) {
            return false;
        }
        size_t used = len < text.len ? len + 1 : len;
        text = slice_of(text.data + used, text.len - used);
    }
    *ret_moment = (struct store_moment){.time_ms = (int64_t)numbers[0],
        .boot_ms = (int64_t)numbers[1],
        .jump_ms = (int64_t)numbers[2]};
    return true;
}

void time_start(struct redis *self, struct slice moment)
{
    struct store_moment last = {.time_ms = self->mark_ms};
    self->face = (struct clock){.read = face_read,
        .boot_id = self->given != NULL ? self->given->boot_id : self->system.boot_id,
        .context = self};
    if (moment.len > 0 && moment_read(moment, &last)) {
        last.boot_id = self->face.boot_id;
    }
    store_clock_init(&self->clock, &self->face, &last);
    self->head_now.moment = last;
}

struct store_moment time_now(struct redis *self)
{
    struct store_moment now = store_clock_now(&self->clock);
    now.time_ms = now.time_ms < self->mark_ms ? self->mark_ms : now.time_ms;
    ASSERT(now.time_ms >= self->head_now.moment.time_ms); /* S8 */
    return now;
}

int64_t time_of_server(const struct redis *self)
{
    ASSERT(self->server_ms > 0);
    return self->server_ms + (clock_read(&self->system).boot_ms - self->server_boot_ms);
}

void call_moment(struct redis *self, const struct store_moment *moment)
{
    char text[96];
    call_u64(self, moment->boot_id);
    (void)snprintf(text, sizeof text, "%" PRId64 " %" PRId64 " %" PRId64, moment->time_ms,
        moment->boot_ms, moment->jump_ms);
    call_text(self, text);
}
