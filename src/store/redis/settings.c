/*
 * What the server's settings mean for the promises, read at opening. Only whether the server may
 * drop records is read again for each connection: after a failover it may be a different server.
 *
 * INFO is allowed nearly everywhere; CONFIG GET often is not on managed servers. Settings that
 * could not be read are reported, like those that are weak.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/text.h"
#include "store/redis/impl.h"

enum { REDIS_MAJOR_MIN = 7 }; /* before it, a script's error hides what the server refused */

static void caution_add(struct redis *self, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void caution_add(struct redis *self, const char *format, ...)
{
    ASSERT(self->cautions_count < REDIS_CAUTIONS_MAX);
    char *text = self->cautions[self->cautions_count++];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, REDIS_CAUTION_BYTES, format, args);
    va_end(args);
}

const char *redis_caution(struct store *store, size_t number)
{
    const struct redis *self = redis_of(store);
    return number < self->cautions_count ? self->cautions[number] : NULL;
}

/* The value of a line "name:value" of INFO; empty: there is none. */
static struct slice info_find(struct slice info, const char *name)
{
    size_t len = strlen(name);
    while (info.len > 0) {
        const char *end = memchr(info.data, '\n', info.len);
        size_t line = end == NULL ? info.len : (size_t)(end - info.data);
        if (line > len && memcmp(info.data, name, len) == 0 && info.data[len] == ':') {
            struct slice value = slice_of(info.data + len + 1, line - len - 1);
            value.len -= value.len > 0 && value.data[value.len - 1] == '\r';
            return value;
        }
        size_t used = line < info.len ? line + 1 : line;
        info = slice_of(info.data + used, info.len - used);
    }
    return SLICE_EMPTY;
}

/* NULL: the server refused it. */
static redisReply *ask(struct redis *self, const char *const *words, size_t count)
{
    redisReply *reply = NULL;
    uint64_t deadline_ns = clock_nanos() + UINT64_C(1000000) * REDIS_ANSWER_MS_MAX;
    if (!link_is_open(&self->link) ||
        link_command(&self->link, words, count, deadline_ns, &reply, NULL) != OK) {
        return NULL;
    }
    return reply;
}

static enum status version_check(const struct redis *self, struct slice info, struct err *err)
{
    struct slice version = info_find(info, "redis_version");
    const char *dot = version.len == 0 ? NULL : memchr(version.data, '.', version.len);
    uint64_t major = 0;
    if (dot == NULL || !text_u64(slice_of(version.data, (size_t)(dot - version.data)), &major) ||
        major >= REDIS_MAJOR_MIN) {
        return OK;
    }
    return err_set(err, E_INVALID, "the Redis server at '%s' is %.*s, and Once needs %d.0 or newer",
        self->link.where, SLICE_ARGS(version), REDIS_MAJOR_MIN);
}

/* Policies named volatile-… drop only keys with an expiry, and no key of ours has one. */
static bool policy_evicts(struct slice policy)
{
    return slice_starts(policy, SLICE_LIT("allkeys-"));
}

static enum status policy_refuse(
    const struct redis *self, struct slice policy, enum status status, struct err *err)
{
    (void)err_set(err, status,
        "maxmemory-policy of the Redis server at '%s' is '%.*s': it would drop live records",
        self->link.where, SLICE_ARGS(policy));
    err_hint(err, "set maxmemory-policy to noeviction");
    return status;
}

static enum status policy_check(struct redis *self, struct slice info, struct err *err)
{
    struct slice policy = info_find(info, "maxmemory_policy");
    if (policy.len == 0) {
        caution_add(self, "maxmemory-policy cannot be read: the server may drop live records "
                          "when its memory is full");
    } else if (policy_evicts(policy) && self->read_only) {
        caution_add(self,
            "maxmemory-policy is %.*s: when its memory is full, the server drops live records",
            SLICE_ARGS(policy));
    } else if (policy_evicts(policy)) {
        return policy_refuse(self, policy, E_INVALID, err);
    }
    return OK;
}

enum status settings_check_again(struct redis *self, struct err *err)
{
    enum status status = OK;
    struct slice info = SLICE_EMPTY;
    ASSERT(!self->read_only); /* it would lose nothing */
    redisReply *reply = ask(self, (const char *const[]){"INFO", "memory"}, 2);
    (void)reply_text(reply, &info);
    struct slice policy = info_find(info, "maxmemory_policy");
    if (policy_evicts(policy)) {
        status = policy_refuse(self, policy, E_UNAVAILABLE, err);
        redis_link_close(&self->link);
    }
    freeReplyObject(reply);
    return status == OK && !link_is_open(&self->link)
               ? err_set(err, E_UNAVAILABLE, "the Redis server at '%s' does not answer",
                     self->link.where)
               : status;
}

enum status settings_check_replicas(struct redis *self, struct err *err)
{
    uint64_t online = 0;
    struct slice info = SLICE_EMPTY;
    const struct slice word = SLICE_LIT(",state=online");
    if (self->url.wait == 0) {
        return OK;
    }
    redisReply *reply = ask(self, (const char *const[]){"INFO", "replication"}, 2);
    bool is_known = reply_text(reply, &info);
    const char *at = info.data;
    while (
        is_known && (at = memmem(at, (size_t)(info.data + info.len - at), word.data, word.len))) {
        online++;
        at += word.len;
    }
    freeReplyObject(reply);
    return !is_known || online >= self->url.wait
               ? OK
               : err_set(err, E_UNAVAILABLE,
                     "%llu of %u replicas are connected: no commit can be answered",
                     (unsigned long long)online, self->url.wait);
}

static void append_check(struct redis *self, struct slice info)
{
    struct slice enabled = info_find(info, "aof_enabled");
    struct slice value = SLICE_EMPTY;
    if (slice_is(enabled, "0")) {
        caution_add(self, "appendonly is no: when the server stops, what it acknowledged since its "
                          "last snapshot is lost");
        return;
    }
    redisReply *reply = ask(self, (const char *const[]){"CONFIG", "GET", "appendfsync"}, 3);
    if (enabled.len == 0 || !reply_text(reply_at(reply, 1), &value)) {
        caution_add(self, "appendonly or appendfsync cannot be read: whether what was answered "
                          "survives a crash of the server is not known");
    } else if (!slice_is(value, "always")) {
        caution_add(self,
            "appendfsync is %.*s: a crash of the server's machine loses about %s of what it "
            "acknowledged",
            SLICE_ARGS(value), slice_is(value, "no") ? "half a minute" : "a second");
    }
    freeReplyObject(reply);
}

static void replicas_check(struct redis *self, struct slice info)
{
    uint64_t replicas = 0;
    if (!text_u64(info_find(info, "connected_slaves"), &replicas)) {
        replicas = 0;
    }
    if (replicas < self->url.wait) {
        caution_add(self, "wait=%u, and %llu %s connected: no commit can be answered",
            self->url.wait, (unsigned long long)replicas,
            replicas == 1 ? "replica is" : "replicas are");
    } else if (replicas > 0 && self->url.wait == 0) {
        caution_add(self, "%llu %s and no wait= in the URL: a failover can lose what was answered",
            (unsigned long long)replicas, replicas == 1 ? "replica" : "replicas");
    }
}

/* Connects to the node that has the store: settings of the cluster's other nodes do not matter. */
static enum status owner_find(struct redis *self, struct err *err)
{
    char key[REDIS_NAME_BYTES_MAX + 16];
    redisReply *reply = NULL;
    (void)snprintf(key, sizeof key, "{%s}:store", self->url.name);
    enum status status = call_words(self, (const char *const[]){"EXISTS", key}, 2, &reply, err);
    freeReplyObject(reply);
    return status;
}

/* One store has one server. Several hosts must be one cluster, or the right one is not known. */
static enum status cluster_check(struct redis *self, struct slice info, struct err *err)
{
    self->link.nodes.is_cluster = slice_is(info_find(info, "cluster_enabled"), "1");
    if (self->link.nodes.is_cluster) {
        nodes_learn(&self->link, clock_nanos() + UINT64_C(1000000) * REDIS_ANSWER_MS_MAX);
        return OK;
    }
    if (self->url.hosts_count == 1 || self->url.sentinels || self->url.socket[0] != '\0') {
        return OK;
    }
    (void)err_set(err, E_INVALID,
        "the store's URL names several hosts, and the Redis server at '%s' is of no cluster",
        self->link.where);
    err_hint(err, "name one host, or the Sentinels with redis+sentinel://");
    return E_INVALID;
}

enum status settings_check(struct redis *self, struct err *err)
{
    struct slice info = SLICE_EMPTY;
    enum status status = owner_find(self, err);
    if (status != OK) {
        return status;
    }
    redisReply *reply = ask(self, (const char *const[]){"INFO"}, 1);
    (void)reply_text(reply, &info);
    self->cautions_count = 0;
    status = version_check(self, info, err);
    status = status == OK ? cluster_check(self, info, err) : status;
    status = status == OK ? policy_check(self, info, err) : status;
    if (status == OK) {
        append_check(self, info);
        replicas_check(self, info);
    }
    freeReplyObject(reply);
    return status;
}
