/*
 * Commits a batch, and forgets expired records.
 *
 *   prepared --sent--> answered: OK | STALE | ASK (presume.c) | LATE | refused
 *                  \--> answer lost, or too few replicas: fate.c
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/limits.h"
#include "base/macros.h"
#include "core/source.h"
#include "store/redis/impl.h"

/* ---- the request ---------------------------------------------------------------------------- */

static int stamp_find(const void *hash, const void *stamp)
{
    return memcmp(hash, ((const struct redis_stamp *)stamp)->key_hash.bytes, DIGEST_BYTES);
}

/* The id of the operation that the batch found under this key; empty: the batch did not read it. */
static struct slice id_expected(const struct redis *self, const struct digest *hash)
{
    const struct redis_stamp *stamp = NULL;
    if (self->stamps.len > 0) {
        stamp = bsearch(hash->bytes, self->stamps.data,
            self->stamps.len / sizeof(struct redis_stamp), sizeof(struct redis_stamp), stamp_find);
    }
    return stamp == NULL ? SLICE_EMPTY
                         : slice_of(stamp->operation_id.bytes, sizeof stamp->operation_id.bytes);
}

/* Puts what the scripts need of a record, its field m, into self->word. */
void meta_put(struct redis *self, const struct record *record)
{
    int64_t due_ms = record_due_ms(record);
    bool is_due = due_ms != INT64_MAX;
    const uint64_t numbers[] = {record->version, (uint64_t)record->kind, (uint64_t)record->status,
        is_due ? (uint64_t)record_due(record) : 0, is_due ? (uint64_t)due_ms : 0, record->holder,
        (uint64_t)record->updated_ms, (uint64_t)record->door, record->fence};
    ASSERT(due_ms >= 0);
    ASSERT(record->updated_ms >= 0);
    buf_clear(&self->word);
    for (size_t i = 0; i < COUNT(numbers); i++) {
        if (i > 0) {
            buf_char(&self->word, ' ');
        }
        buf_u64(&self->word, numbers[i]);
    }
    buf_char(&self->word, ' ');
    buf_append(&self->word, record->operation_id.bytes, sizeof record->operation_id.bytes);
    buf_slice(&self->word, record->key.tenant);
}

enum status body_check(struct slice bytes, const struct body_ref *body, struct err *err)
{
    return bytes.len == 0 || (body->retained && body->bytes == bytes.len)
               ? OK
               : err_set(
                     err, E_MISUSE, "a body of %zu bytes does not belong to its record", bytes.len);
}

static enum status body_put(
    struct redis *self, struct slice bytes, const struct body_ref *body, struct err *err)
{
    call_text(self, bytes.len > 0 ? "2" : body->retained && body->bytes > 0 ? "1" : "0");
    call_slice(self, bytes);
    return body_check(bytes, body, err);
}

bool record_is_settled(const struct record *record)
{
    return record->status != RECORD_IN_PROGRESS && record->kind != RECORD_SOURCE;
}

enum status record_bytes(struct redis *self, const struct record *record, struct err *err)
{
    record_check(record);
    buf_clear(&self->record);
    record_encode(record, &self->record);
    return buf_status(&self->record) == OK ? OK
                                           : err_set(err, E_NOMEM, "out of memory for a record");
}

static enum status record_put(struct redis *self, const struct change *change, struct err *err)
{
    const struct record *record = change->record;
    struct record_key source = {.hash = {{0}}};
    bool has_source = source_ordered(&record->source);
    enum status status =
        has_source ? source_key_seal(&record->key, &record->source, &source, err) : OK;
    status = status == OK ? record_bytes(self, record, err) : status;
    if (status != OK) {
        return status;
    }
    meta_put(self, record);
    call_buf(self, &self->word);
    call_bytes(self, source.hash.bytes, has_source ? DIGEST_BYTES : 0);
    call_slice(self, buf_view(&self->record));
    status = body_put(self, change->request_body, &record->request, err);
    status =
        status == OK ? body_put(self, change->outcome_body, &record->outcome.body, err) : status;
    call_text(self, record_is_settled(record) ? "1" : "0");
    return status;
}

static enum status change_put(
    struct redis *self, const struct change *change, size_t number, struct err *err)
{
    static const char *const words[] = {
        [CHANGE_NONE] = "n", [CHANGE_TOUCH] = "t", [CHANGE_PUT] = "p"};
    const struct digest *hash = change_key(change);
    if (hash == NULL) {
        return OK;
    }
    if (change->kind == CHANGE_TOUCH && change->version_expected == 0) {
        return err_set(err, E_MISUSE, "an absent record cannot be touched");
    }
    call_text(self, words[change->kind]);
    call_u64(self, number);
    call_bytes(self, hash->bytes, DIGEST_BYTES);
    call_u64(self, change->version_expected);
    call_slice(self, id_expected(self, hash));
    return change->kind == CHANGE_PUT ? record_put(self, change, err) : OK;
}

/* Appends an entry to the pack: of our own chain, where it must follow the head, which advances; or
 * of a different chain, unchanged. */
static enum status entry_put(struct redis *self, struct redis_pack *pack,
    const struct change *change, struct store_head *head, struct err *err)
{
    const struct entry *entry = &change->entry;
    if (entry->bytes.len == 0) {
        return OK;
    }
    if (change->prev_hash != NULL) {
        return pack_add(self, pack, entry, entry->chain_id, change->prev_hash, err);
    }
    bool is_evidence = entry->kind == ENTRY_EVIDENCE;
    if (is_evidence && entry->seq != head->seq + 1) {
        return err_set(
            err, E_MISUSE, "entry %" PRIu64 " does not follow %" PRIu64, entry->seq, head->seq);
    }
    enum status status = pack_add(self, pack, entry, self->identity.chain_id, &head->hash, err);
    if (is_evidence) {
        head->seq = entry->seq;
        head->hash = entry->hash;
    }
    return status;
}

/* How far the server's time may be after and before that of a presumed prepare (PB3). */
static void presumption_put(struct redis *self)
{
    if (self->presuming.is_presumed) {
        call_u64(self, REDIS_PRESUME_MS_MAX);
        call_u64(self, REDIS_PRESUME_AHEAD_MS);
    } else {
        call_text(self, "");
        call_text(self, "");
    }
}

static enum status request_put(
    struct redis *self, const struct commit *commit, struct store_head *ret_head, struct err *err)
{
    struct store_head head = self->head_now;
    struct redis_pack pack;
    enum status status = inserts_find(self, commit, err);
    ASSERT(self->chain[0] != '\0');                             /* a reader cannot commit */
    ASSERT(self->now.time_ms >= self->head_now.moment.time_ms); /* S8 */
    head.moment = self->now;
    call_clear(self);
    call_text(self, self->chain);
    call_u64(self, self->commits + 1);
    call_i64(self, self->now.time_ms);
    call_moment(self, &self->now);
    call_u64(self, commit->fence_floor);
    call_i64(self, self->prepared_ms);
    call_u64(self, LIMIT_PREPARED_MS_MAX);
    presumption_put(self);
    call_u64(self, self->url.wait);
    call_u64(self, self->reserve.counter);
    call_u64(self, self->reserve.wanted);
    inserts_expect(self);
    if (commit->inherits) {
        call_text(self, "c");
    }
    pack_begin(self, &pack);
    for (size_t i = 0; i < commit->count && status == OK; i++) {
        const struct change *change = &commit->changes[i];
        status = insert_is(self, i) ? OK : change_put(self, change, i, err);
        ASSERT(change->entry.bytes.len == 0 || commit->inherits == (change->prev_hash != NULL));
        status = status == OK ? entry_put(self, &pack, change, &head, err) : status;
    }
    status = status == OK ? pack_end(self, &pack, err) : status;
    *ret_head = head;
    return status == OK ? inserts_put(self, commit, err) : status;
}

/* ---- what became of it ---------------------------------------------------------------------- */

/* Marks the stale changes, whose numbers follow in the answer. */
static enum status stale_take(const struct commit *commit, const redisReply *reply, struct err *err)
{
    for (size_t i = 0; commit->ret_stale != NULL && i < commit->count; i++) {
        commit->ret_stale[i] = false;
    }
    for (size_t at = 1; at < reply_count(reply); at++) {
        uint64_t number = 0;
        if (!reply_u64(reply_at(reply, at), &number) || number >= commit->count) {
            return reply_malformed(&redis_script_commit, err);
        }
        if (commit->ret_stale != NULL) {
            commit->ret_stale[number] = true;
        }
    }
    return err_set(err, E_STALE, "a record has changed since it was read");
}

static enum status answer_take(
    struct redis *self, const struct commit *commit, const redisReply *reply, struct err *err)
{
    struct slice word;
    if (reply->type == REDIS_REPLY_ERROR) {
        return call_refused(self, reply->str, E_UNKNOWN, err);
    }
    if (!reply_text(reply_at(reply, 0), &word)) {
        return err_set(err, E_UNKNOWN, "the Redis server's answer to a commit is not in its form");
    }
    if (slice_is(word, "STALE")) {
        return stale_take(commit, reply, err);
    }
    if (slice_is(word, "ASK")) {
        return presume_failed(commit, err);
    }
    if (slice_is(word, "LATE")) {
        return err_set(err, E_UNAVAILABLE, "the commit came more than %d s after its prepare",
            LIMIT_PREPARED_MS_MAX / 1000);
    }
    return slice_is(word, "OK")
               ? OK
               : err_set(err, E_UNKNOWN, "the Redis server's answer to a commit is not known");
}

/* Waits until enough replicas have what this connection wrote. A write that they lack may be lost
 * in a failover, so it must not be acknowledged. */
enum status replicas_wait(struct redis *self, int64_t wait_ms, struct err *err)
{
    char count[16];
    char allowed[24];
    redisReply *reply = NULL;
    uint64_t replicas = 0;
    if (self->url.wait == 0) {
        return OK;
    }
    ASSERT(wait_ms > 0); /* 0 is forever */
    uint64_t answer_ms = (uint64_t)wait_ms + REDIS_ANSWER_MS_MAX;
    (void)snprintf(count, sizeof count, "%u", self->url.wait);
    (void)snprintf(allowed, sizeof allowed, "%" PRId64, wait_ms);
    enum status status = link_command(&self->link, (const char *const[]){"WAIT", count, allowed}, 3,
        clock_nanos() + UINT64_C(1000000) * answer_ms, &reply, err);
    if (status != OK) { /* it may be a replica by now: the next look-up finds the primary */
        redis_link_close(&self->link);
        return status;
    }
    bool enough = reply_u64(reply, &replicas) && replicas >= self->url.wait;
    freeReplyObject(reply);
    return enough ? OK
                  : err_set(err, E_UNAVAILABLE, "%llu of %u replicas have a commit after %lld ms",
                        (unsigned long long)replicas, self->url.wait, (long long)wait_ms);
}

/* ---- commit --------------------------------------------------------------------------------- */

/* Takes the fences that the commit set aside. A counter that is elsewhere was moved by others. That
 * it is where we would have moved it says nothing: others may have drawn as many. */
static void reserve_take(struct redis *self, const redisReply *reply)
{
    struct redis_reserve *reserve = &self->reserve;
    uint64_t counter = 0, aside = 0;
    if (!reply_u64(reply_at(reply, 1), &counter) || !reply_u64(reply_at(reply, 2), &aside) ||
        aside != reserve->wanted || counter != reserve->counter + aside) {
        *reserve = (struct redis_reserve){.counter = 0};
        return;
    }
    reserve->counter = counter;
    reserve->count += reserve->wanted;
    reserve->wanted = 0;
    ASSERT(reserve->next + reserve->count - 1 == counter); /* P4 */
}

/* Sends the request and takes the answer. fate: what the commit leaves if it happens. */
static enum status commit_send(
    struct redis *self, const struct commit *commit, const struct redis_fate *fate, struct err *err)
{
    struct redis_fate open = *fate;
    redisReply *reply = NULL;
    bool sent = false;
    enum status status = call_connect(self, err);
    status = status == OK ? call_once(self, &redis_script_commit, &reply, &sent, err) : status;
    if (status == OK) {
        open.midway = reply->type == REDIS_REPLY_ERROR;
        status = answer_take(self, commit, reply, err);
        if (status == OK) {
            reserve_take(self, reply);
        }
        sent = status == E_UNKNOWN ||
               (status == OK && replicas_wait(self, self->url.wait_ms, err) != OK);
    }
    freeReplyObject(reply);
    if (sent) {
        fate_open(self, &open);
        return fate_await(self, err);
    }
    if (status == OK) {
        fate_happened(self, &fate->head, fate->fence);
        self->commits++;
    }
    return status;
}

void fence_use(struct redis *self, uint64_t fence)
{
    self->fence = self->fence < fence ? fence : self->fence;
}

/* S10, in case the server's clock went back since. */
static enum status prepared_check(const struct redis *self, struct err *err)
{
    int64_t age_ms = clock_read(&self->face).boot_ms - self->now.boot_ms;
    return age_ms <= LIMIT_PREPARED_MS_MAX
               ? OK
               : err_set(err, E_UNAVAILABLE, "the commit comes more than %d s after its prepare",
                     LIMIT_PREPARED_MS_MAX / 1000);
}

enum status redis_commit(struct store *store, const struct commit *commit, struct err *err)
{
    struct redis *self = redis_of(store);
    struct redis_fate fate = {.fence = self->fence_drawn};
    ASSERT(self->prepared);
    ASSERT(!self->fate.is_open); /* P11: prepare has settled it */
    self->prepared = false;
    fate.fence = commit->fence_floor > fate.fence ? commit->fence_floor : fate.fence;
    enum status status = call_failed(self, err);
    status = status == OK ? prepared_check(self, err) : status;
    status = status == OK ? request_put(self, commit, &fate.head, err) : status;
    status = status == OK ? commit_send(self, commit, &fate, err) : status;
    presume_ended(self, commit, status);
    return call_fail(self, status);
}

/* An acknowledged commit is as durable as the server makes it: the server answers after its own
 * flush (appendfsync always), and we answer after the replicas. */
enum status redis_flush(struct store *store, struct err *err)
{
    (void)store;
    (void)err;
    return OK;
}

/* ---- housekeeping --------------------------------------------------------------------------- */

static enum status forget_some(struct redis *self, uint64_t *ret_count, struct err *err)
{
    redisReply *reply = NULL;
    struct store_moment now = time_now(self);
    call_begin(self);
    call_i64(self, now.time_ms);
    call_u64(self, REDIS_FORGET_MAX);
    call_moment(self, &now);
    enum status status = call_run(self, &redis_script_expire, &reply, err);
    if (status == OK && !reply_u64(reply, ret_count)) {
        status = call_fail(self, reply_malformed(&redis_script_expire, err));
    }
    freeReplyObject(reply);
    if (status == OK && *ret_count > 0) {
        self->mark_ms = now.time_ms;
        (void)pthread_mutex_lock(&self->mutex);
        self->head_now.moment = now;
        (void)pthread_mutex_unlock(&self->mutex);
    }
    return status;
}

/* Removes some of the evidence that is past its retention. Once a minute, and again at once while
 * there is more: each piece is short, because it blocks the server. */
static enum status retain_some(struct redis *self, int64_t boot_ms, bool *ret_more, struct err *err)
{
    redisReply *reply = NULL;
    uint64_t count = 0;
    int64_t now_ms = time_now(self).time_ms;
    ASSERT(self->retain_ms > 0); /* P10: nothing is removed at once */
    if (boot_ms >= self->retained_ms && boot_ms - self->retained_ms < REDIS_RETAIN_EVERY_MS) {
        return OK;
    }
    call_begin(self);
    call_i64(self, now_ms > self->retain_ms ? now_ms - self->retain_ms : 0);
    call_u64(self, REDIS_RETAIN_MAX);
    enum status status = call_run(self, &redis_script_retain, &reply, err);
    if (status == OK && !reply_u64(reply, &count)) {
        status = call_fail(self, reply_malformed(&redis_script_retain, err));
    }
    freeReplyObject(reply);
    *ret_more = status == OK && count >= REDIS_RETAIN_MAX;
    self->retained_ms = status != OK || *ret_more ? self->retained_ms : boot_ms;
    return status;
}

enum status redis_maintain(struct store *store, struct err *err)
{
    struct redis *self = redis_of(store);
    ASSERT(!self->prepared);
    int64_t boot_ms = clock_read(&self->face).boot_ms;
    if (boot_ms >= self->maintained_ms && boot_ms - self->maintained_ms < 1000) {
        return OK;
    }
    uint64_t count = REDIS_FORGET_MAX;
    enum status status = OK;
    for (size_t i = 0; i < REDIS_FORGET_SCRIPTS_MAX && count == REDIS_FORGET_MAX && status == OK;
         i++) {
        status = forget_some(self, &count, err);
    }
    bool more = false;
    status = status == OK ? retain_some(self, boot_ms, &more, err) : status;
    if (status == OK && count < REDIS_FORGET_MAX && !more) {
        self->maintained_ms = boot_ms;
    }
    return status;
}
