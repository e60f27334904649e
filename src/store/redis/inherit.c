/*
 * A store on a Redis server that becomes the copy of a different one (`once copy`).
 *
 *   absent --open to inherit--> unfinished copy --finish--> a store
 *
 * An unfinished copy has a format of its own, so that nobody opens it. If two processes continue
 * the same copy, the commits of the first one are refused. Each step is one script: after a crash
 * it is done or not.
 */
#include "base/check.h"
#include "base/uuid.h"
#include "store/redis/impl.h"

enum { CHAINS_PAGE = 64 }; /* it blocks the server */

static void act_begin(struct redis *self, const char *act)
{
    ASSERT(self->chain[0] != '\0'); /* not a reader */
    call_begin(self);
    call_text(self, self->chain);
    call_text(self, act);
}

static enum status act_run(struct redis *self, uint64_t *ret_number, struct err *err)
{
    redisReply *reply = NULL;
    enum status status = call_run(self, &redis_script_inherit, &reply, err);
    if (status == OK && !reply_u64(reply, ret_number)) {
        status = call_fail(self, reply_malformed(&redis_script_inherit, err));
    }
    freeReplyObject(reply);
    return status;
}

static void chain_put(struct redis *self, const struct store_chain *chain)
{
    char id[UUID_TEXT_BYTES];
    call_text(self, uuid_put(id, chain->chain_id));
    call_bytes(self, chain->public_key, sizeof chain->public_key);
    call_u64(self, chain->incarnation);
    call_i64(self, chain->started_ms);
    call_i64(self, chain->seen_ms);
    call_u64(self, chain->seq);
    call_bytes(self, chain->hash.bytes, chain->seq == 0 ? 0 : DIGEST_BYTES);
    call_u64(self, chain->removed_seq);
    call_bytes(self, chain->removed_hash.bytes, DIGEST_BYTES);
}

enum status redis_inherit_begin(
    struct redis *self, const struct store_inheritance *inherit, struct err *err)
{
    uint64_t done = 0;
    ASSERT(!self->read_only);
    act_begin(self, "take");
    enum status status = act_run(self, &done, err);
    for (size_t from = 0; from < inherit->chain_count && status == OK; from += CHAINS_PAGE) {
        act_begin(self, "chains");
        for (size_t i = from; i < inherit->chain_count && i < from + CHAINS_PAGE; i++) {
            chain_put(self, &inherit->chains[i]);
        }
        status = act_run(self, &done, err);
    }
    return status;
}

static enum status redis_inherited(struct store *store, uint64_t *ret_count, struct err *err)
{
    struct redis *self = redis_of(store);
    act_begin(self, "count");
    return act_run(self, ret_count, err);
}

/* A server that does not flush at once does so within a second, as for any other commit. */
static enum status redis_inherit_end(struct store *store, struct err *err)
{
    struct redis *self = redis_of(store);
    uint64_t done = 0;
    ASSERT(!self->prepared);
    act_begin(self, "finish");
    enum status status = act_run(self, &done, err);
    status = status == OK ? replicas_wait(self, self->url.wait_ms, err) : status;
    return status == E_UNAVAILABLE ? E_UNKNOWN : status;
}

const struct store_inheriting redis_inheriting = {
    .entries = redis_inherited,
    .finish = redis_inherit_end,
};
