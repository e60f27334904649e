/*
 * Opens and closes a store on a Redis server, and its readers.
 */
#include "store/redis/redis.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/rand.h"
#include "store/redis/impl.h"

#define RETAIN_MS_DEFAULT (INT64_C(400) * 86400000)

static void redis_head(struct store *store, struct store_head *ret_head)
{
    struct redis *self = redis_of(store);
    struct redis *owner = self->owner != NULL ? self->owner : self;
    ASSERT(owner->owner == NULL); /* a reader has no readers */
    (void)pthread_mutex_lock(&owner->mutex);
    *ret_head = owner->head_now;
    (void)pthread_mutex_unlock(&owner->mutex);
}

static void redis_identity(
    struct store *store, struct store_identity *ret_identity, struct store_shared *ret_shared)
{
    const struct redis *self = redis_of(store);
    if (ret_identity != NULL) {
        *ret_identity = self->identity;
    }
    if (ret_shared != NULL) {
        *ret_shared = self->shared;
    }
}

enum status redis_beat(struct store *store, uint64_t incarnation, struct err *err)
{
    struct redis *self = redis_of(store);
    redisReply *reply = NULL;
    bool is_first = self->incarnation != incarnation;
    ASSERT(incarnation > 0);
    ASSERT(self->chain[0] != '\0');
    call_begin(self);
    call_text(self, self->chain);
    call_u64(self, self->commits);
    call_u64(self, incarnation);
    call_i64(self, time_now(self).time_ms);
    enum status status = call_run(self, &redis_script_beat, &reply, err);
    if (status == OK && !reply_time(self, reply)) {
        status = call_fail(self, reply_malformed(&redis_script_beat, err));
    }
    freeReplyObject(reply);
    if (status == OK) {
        self->incarnation = incarnation;
        fence_use(self, incarnation);
        self->beat_ns = clock_nanos();
    }
    /* The first one is for its number: a process starts without replicas, and waits for them. */
    return status == OK && !is_first ? settings_check_replicas(self, err) : status;
}

/* ---- close ---------------------------------------------------------------------------------- */

static void redis_free(struct redis *self)
{
    ASSERT(self->mem != NULL);
    listener_stop(self);
    redis_link_close(&self->link);
    ASSERT(!link_is_open(&self->link));
    if (self->owner == NULL) {
        redis_tls_release(&self->tls);
    }
    buf_release(&self->request);
    buf_release(&self->head);
    buf_release(&self->record);
    buf_release(&self->word);
    buf_release(&self->stamps);
    buf_release(&self->inserts);
    buf_release(&self->is_insert);
    buf_release(&self->made);
    buf_release(&self->packed);
    buf_release(&self->places);
    (void)pthread_mutex_destroy(&self->mutex);
    const struct mem *mem = self->mem;
    mem_wipe(self, sizeof *self);
    mem_free(mem, self);
}

/* Reports that this process has ended on purpose: its grants have no holder any more. */
static enum status chain_end(struct redis *self, struct err *err)
{
    redisReply *reply = NULL;
    call_begin(self);
    call_text(self, self->chain);
    call_u64(self, self->commits);
    call_u64(self, self->incarnation);
    call_i64(self, time_now(self).time_ms);
    call_u64(self, self->reserve.counter);
    call_u64(self, self->reserve.count);
    enum status status = call_run(self, &redis_script_close, &reply, err);
    freeReplyObject(reply);
    return status;
}

static enum status redis_close(struct store *store, struct err *err)
{
    struct redis *self = redis_of(store);
    enum status status = OK;
    if (self->chain[0] != '\0' && self->failed == OK) {
        status = chain_end(self, err);
        status = status == E_UNAVAILABLE ? OK : status; /* everything was committed before */
    }
    redis_free(self);
    return status;
}

/* ---- open ----------------------------------------------------------------------------------- */

static enum status redis_open_reader(
    struct store *store, struct store **ret_reader, struct err *err);

/* now_ms of a handle that only reads is the time of the last commit, by which evidence is checked.
 * Whether a process is gone is asked of the clock: nobody may have committed since its death. */
static enum status redis_read_now(struct store *store, struct store_batch *batch, struct err *err)
{
    struct redis *self = redis_of(store);
    enum status status = redis_read(store, batch, err);
    batch->clock_ms = status == OK && self->read_only ? time_now(self).time_ms : 0;
    return status;
}

static const struct store_housekeeping redis_housekeeping = {.maintain = redis_maintain};

static const struct store_ops redis_ops = {
    .name = "redis",
    .shared = true,
    .prepare = redis_prepare,
    .commit = redis_commit,
    .abort = redis_abort,
    .flush = redis_flush,
    .read = redis_read_now,
    .scan = redis_scan,
    .due = redis_due,
    .entries = redis_entries,
    .counts = redis_counts,
    .backlog = redis_backlog,
    .head = redis_head,
    .identity = redis_identity,
    .close = redis_close,
    .housekeeping = &redis_housekeeping,
    .inheriting = &redis_inheriting,
    .beat = redis_beat,
    .listen = redis_listen,
    .chains = redis_chains,
    .open_reader = redis_open_reader,
    .caution = redis_caution,
};

static const struct store_ops reader_ops = {
    .name = "redis reader",
    .shared = true,
    .read = redis_read,
    .scan = redis_scan,
    .entries = redis_entries,
    .counts = redis_counts,
    .head = redis_head,
    .identity = redis_identity,
    .close = redis_close,
    .chains = redis_chains,
};

static struct redis *redis_new(const struct mem *mem, const struct redis_url *url)
{
    struct redis *self = mem_zalloc(mem, 1, sizeof *self);
    if (self == NULL) {
        return NULL;
    }
    self->mem = mem;
    self->url = *url;
    redis_link_init(&self->link, &self->url, &self->tls);
    clock_system(&self->system);
    self->presuming = (struct redis_presuming){.after = REDIS_PRESUME_AFTER,
        .pause_min = REDIS_PRESUME_PAUSE_MIN,
        .pause_max = REDIS_PRESUME_PAUSE_MAX};
    buf_init(&self->request, mem, REDIS_REQUEST_BYTES_MAX);
    buf_init(&self->head, mem, REDIS_REQUEST_BYTES_MAX);
    buf_init(&self->record, mem, REDIS_REQUEST_BYTES_MAX);
    buf_init(&self->word, mem, REDIS_REQUEST_BYTES_MAX);
    buf_init(&self->stamps, mem, REDIS_REQUEST_BYTES_MAX);
    buf_init(&self->inserts, mem, REDIS_REQUEST_BYTES_MAX);
    buf_init(&self->is_insert, mem, REDIS_REQUEST_BYTES_MAX);
    buf_init(&self->made, mem, REDIS_REQUEST_BYTES_MAX);
    buf_init(&self->packed, mem, REDIS_REQUEST_BYTES_MAX);
    buf_init(&self->places, mem, REDIS_REQUEST_BYTES_MAX);
    (void)pthread_mutex_init(&self->mutex, NULL);
    return self;
}

/* "host/pid", for people. */
static void process_put(struct redis *self)
{
    char host[128] = "";
    char text[160];
    (void)gethostname(host, sizeof host - 1);
    (void)snprintf(text, sizeof text, "%s/%ld", host, (long)getpid());
    call_text(self, text);
}

/* Takes the store's own data from the answer of the open script. */
static enum status store_take(struct redis *self, const redisReply *reply, struct err *err)
{
    struct slice format;
    struct slice secret;
    struct slice moment = SLICE_EMPTY;
    (void)reply_text(reply_at(reply, 5), &moment); /* nil: the store does not know this machine */
    if (!reply_time(self, reply) || !reply_text(reply_at(reply, 3), &format) ||
        !reply_text(reply_at(reply, 4), &secret) ||
        secret.len != sizeof self->shared.fingerprint_key) {
        return reply_malformed(&redis_script_open, err);
    }
    if (!slice_is(format, "1") && !slice_is(format, "2") && !slice_is(format, "3") &&
        !slice_is(format, "4")) {
        return err_set(err, E_INVALID,
            "the store '%s' has format %.*s, and this version of Once knows formats 1 to 4",
            self->url.name, SLICE_ARGS(format));
    }
    memcpy(self->shared.fingerprint_key, secret.data, secret.len);
    time_start(self, moment);
    return OK;
}

/* Appends the purpose of opening, and the store to copy from. */
static void aim_put(struct redis *self, const struct store_options *options)
{
    const struct store_inheritance *inherit = options->inherit;
    call_text(self, inherit != NULL ? "inherit" : options->unfinished ? "look" : "");
    if (inherit != NULL) {
        call_text(self, inherit->from);
        call_bytes(self, inherit->origin.bytes, DIGEST_BYTES);
        call_i64(self, inherit->time_ms);
        call_u64(self, inherit->fence);
    }
}

static enum status store_enter(
    struct redis *self, const struct store_options *options, struct err *err)
{
    unsigned char secret[sizeof self->shared.fingerprint_key];
    redisReply *reply = NULL;
    ASSERT(self->store.ops != NULL);
    enum status status = rand_bytes(secret, sizeof secret, err);
    if (status == OK) {
        if (options->inherit != NULL) {
            memcpy(secret, options->inherit->shared.fingerprint_key, sizeof secret);
        }
        call_begin(self);
        call_text(self, options->must_exist || options->read_only ? "0" : "1");
        call_bytes(self, secret, sizeof secret);
        call_u64(self, self->given != NULL ? self->given->boot_id : self->system.boot_id);
        aim_put(self, options);
        status = call_run(self, &redis_script_open, &reply, err);
    }
    status = status == OK ? store_take(self, reply, err) : status;
    freeReplyObject(reply);
    mem_wipe(secret, sizeof secret);
    return status;
}

/* Begins a chain of our own, at the store's current time. */
static enum status chain_begin(struct redis *self, struct err *err)
{
    unsigned char public_key[32];
    redisReply *reply = NULL;
    ASSERT(!self->read_only);
    enum status status = store_identity_make(&self->identity, err);
    status = status == OK ? store_identity_public(&self->identity, public_key, err) : status;
    if (status == OK) {
        (void)uuid_put(self->chain, self->identity.chain_id);
        call_begin(self);
        call_text(self, self->chain);
        call_bytes(self, public_key, sizeof public_key);
        process_put(self);
        call_i64(self, time_now(self).time_ms);
        status = call_run(self, &redis_script_chain, &reply, err);
    }
    freeReplyObject(reply);
    return status;
}

enum status redis_open(
    const char *url, const struct store_options *options, struct store **ret_store, struct err *err)
{
    struct redis_url read;
    const struct mem *mem = options->mem == NULL ? &mem_libc : options->mem;
    enum status status = redis_url_read(url, &read, err);
    if (status != OK) {
        return status;
    }
    struct redis *self = redis_new(mem, &read);
    mem_wipe(&read, sizeof read);
    if (self == NULL) {
        return err_set(err, E_NOMEM, "out of memory for a store");
    }
    self->store.ops = &redis_ops;
    self->given = options->clock;
    self->read_only = options->read_only;
    self->retain_ms = options->retain_ms == 0 ? RETAIN_MS_DEFAULT : options->retain_ms;
    status = redis_tls_init(&self->tls, &self->url, err);
    status = status == OK ? settings_check(self, err) : status;
    status = status == OK ? store_enter(self, options, err) : status;
    if (status == OK && !self->read_only) {
        status = chain_begin(self, err);
    }
    if (status == OK && options->inherit != NULL) {
        status = redis_inherit_begin(self, options->inherit, err);
    }
    if (status != OK) {
        err_prefix(err, "cannot open the store '%s'", self->url.name);
        redis_free(self);
        return status;
    }
    *ret_store = &self->store;
    return OK;
}

static enum status redis_open_reader(
    struct store *store, struct store **ret_reader, struct err *err)
{
    struct redis *owner = redis_of(store);
    struct redis *self = redis_new(owner->mem, &owner->url);
    if (self == NULL) {
        return err_set(err, E_NOMEM, "out of memory for a reader");
    }
    self->store.ops = &reader_ops;
    self->owner = owner;
    self->given = owner->given;
    self->tls = owner->tls;
    self->link.nodes = owner->link.nodes;
    enum status status = store_enter(self, &(struct store_options){.read_only = true}, err);
    if (status != OK) {
        redis_free(self);
        return status;
    }
    self->identity = owner->identity;
    *ret_reader = &self->store;
    return OK;
}
