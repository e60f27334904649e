/*
 * What became of a commit whose answer was lost.
 *
 * A commit has the next number of its chain, and the script accepts it only if the number before it
 * was the last. So the chain's number on the server says it: it is the commit's (it happened), or
 * the one before (it did not). Looking up a commit that did not happen uses up its number: if the
 * old connection's bytes still reach the server, they are refused. This holds after a failover too.
 * A new primary that lacks only this commit has the number before it, and nobody was answered that
 * it happened. One that lacks more has lost what was acknowledged, and the process stops.
 *
 * Crash points. The process ends while a commit is open: nobody was answered, and its chain shows
 * what happened. The server ends during the look-up: the script that voids the number is one write,
 * and asking again gives the same answer.
 */
#include <inttypes.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/limits.h"
#include "store/redis/impl.h"

enum {
    FATE_WAIT_MS = 100, /* for the replicas, in a call that is refused if they lack the commit: the
                           engine makes several, and requests wait for each of them */
};

void fate_happened(struct redis *self, const struct store_head *head, uint64_t fence)
{
    ASSERT(head->seq >= self->head_now.seq);                       /* P10 */
    ASSERT(head->moment.time_ms >= self->head_now.moment.time_ms); /* S8 */
    (void)pthread_mutex_lock(&self->mutex);
    self->head_now = *head;
    (void)pthread_mutex_unlock(&self->mutex);
    self->mark_ms = head->moment.time_ms > self->mark_ms ? head->moment.time_ms : self->mark_ms;
    fence_use(self, fence);
}

void fate_open(struct redis *self, const struct redis_fate *fate)
{
    ASSERT(!self->fate.is_open);
    self->fate = *fate;
    self->fate.is_open = true;
    /* A failover may undo this commit, and others then use what it set aside (P4). */
    self->reserve = (struct redis_reserve){.counter = 0};
    redis_link_close(&self->link); /* its next answer may be the lost one */
}

/* Asks by the number. If the commit happened, the replicas must have it before it is answered. That
 * it did not holds without them: they only keep a later failover from looking like a loss.
 *
 * The look-up is a write, and WAIT waits for the newest write of its connection. So a commit that
 * was found is not looked up again on the same connection: a replica that always needs longer than
 * wait_ms would never be seen to have it. */
static enum status look_up(struct redis *self, int64_t wait_ms, bool *ret_happened, struct err *err)
{
    redisReply *reply = NULL;
    uint64_t happened = 0;
    if (self->fate.is_found && link_is_open(&self->link)) {
        *ret_happened = true;
        return replicas_wait(self, wait_ms, err);
    }
    self->fate.is_found = false;
    call_clear(self);
    call_text(self, self->chain);
    call_u64(self, self->commits + 1);
    enum status status = call_run(self, &redis_script_resolve, &reply, err);
    if (status == OK && (!reply_u64(reply, &happened) || happened > 1)) {
        status = reply_malformed(&redis_script_resolve, err);
    }
    freeReplyObject(reply);
    if (status != OK) {
        return status;
    }
    *ret_happened = happened != 0;
    self->fate.is_found = happened != 0;
    status = replicas_wait(self, happened != 0 ? wait_ms : self->url.wait_ms, err);
    return happened != 0 ? status : OK;
}

/* Asks once, and gives the replicas wait_ms. */
static enum status settle(struct redis *self, int64_t wait_ms, struct err *err)
{
    struct redis_fate *fate = &self->fate;
    bool happened = false;
    if (!fate->is_open) {
        return OK;
    }
    ASSERT(self->chain[0] != '\0'); /* a reader commits nothing */
    enum status status = look_up(self, wait_ms, &happened, err);
    if (status == OK && happened && fate->midway) {
        status = err_set(err, E_CORRUPT, "the Redis server did half of a commit");
    }
    if (status != OK) {
        return call_fail(self, status);
    }
    fate->is_open = false;
    fate->happened = happened;
    self->commits++; /* the number is used up either way */
    if (happened) {
        fate_happened(self, &fate->head, fate->fence);
    }
    return OK;
}

enum status fate_settle(struct redis *self, struct err *err)
{
    int64_t wait_ms = self->url.wait_ms < FATE_WAIT_MS ? self->url.wait_ms : FATE_WAIT_MS;
    return settle(self, wait_ms, err);
}

/* err: what the server said, if it reported an error. */
static enum status never_happened(const struct redis *self, struct err *err)
{
    struct err said = {0};
    if (self->fate.midway && err != NULL) {
        said = *err;
        return err_set(err, E_UNAVAILABLE, "nothing happened: %s", said.text);
    }
    return err_set(
        err, E_UNAVAILABLE, "the connection to the Redis server broke before the commit");
}

enum status fate_await(struct redis *self, struct err *err)
{
    uint64_t until_ns = clock_nanos() + UINT64_C(1000000) * LIMIT_STORE_FATE_MS;
    int64_t pause = REDIS_BACKOFF_MS_MIN;
    ASSERT(self->fate.is_open);
    for (;;) {
        struct err cause = {0};
        uint64_t now_ns = clock_nanos();
        int64_t left_ms = now_ns < until_ns ? (int64_t)((until_ns - now_ns) / 1000000) + 1 : 1;
        enum status status =
            settle(self, left_ms < self->url.wait_ms ? left_ms : self->url.wait_ms, &cause);
        if (status == OK) {
            return self->fate.happened ? OK : never_happened(self, err);
        }
        if (status == E_CORRUPT) {
            return err_set(err, E_CORRUPT, "%s", cause.text);
        }
        if (clock_nanos() >= until_ns) {
            (void)err_set(
                err, E_UNKNOWN, "whether a commit happened is not known yet: %s", cause.text);
            err_hint(err, "%s",
                self->url.wait > 0 ? "with min-replicas-to-write the server "
                                     "refuses such a commit beforehand"
                                   : cause.hint);
            return E_UNKNOWN;
        }
        clock_sleep_ms(pause);
        pause = clock_doubled_ms(pause, REDIS_BACKOFF_MS_MAX);
    }
}
