/*
 * Loads everything that a batch needs, by one script; or by none (presume.c).
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/limits.h"
#include "base/text.h"
#include "core/source.h"
#include "store/redis/impl.h"

/* Besides enum want_bodies; prepare.lua has the same. */
enum { WANT_SOURCE = 8, WANT_BODIES_ONLY = 16 };

/* The positions in a want's answer. */
enum { IN_RECORD, IN_TOUCHES, IN_REQUEST, IN_OUTCOME, IN_SOURCE, IN_SOURCE_TOUCHES };

enum { BACKLOG_BYTES_MAX = 1 << 20 }; /* of one record */

enum status record_take(struct slice bytes, uint64_t touches, struct arena *arena,
    const struct record **ret_record, struct err *err)
{
    struct record *record = arena_alloc(arena, sizeof *record);
    struct slice copy;
    if (record == NULL || arena_copy(arena, bytes, &copy) != OK) {
        return err_set(err, E_NOMEM, "out of memory for a record");
    }
    enum status status = record_decode(copy, record, err);
    if (status == OK) {
        uint64_t room = UINT32_MAX - record->duplicates;
        record->duplicates += (uint32_t)(touches < room ? touches : room);
        *ret_record = record;
    }
    return status;
}

/* The want that this one repeats, or itself. */
static const struct store_want *want_first(const struct store_want *want)
{
    while (want->same != NULL) {
        want = want->same;
    }
    return want;
}

static void want_name(struct redis *self, const struct store_want *want)
{
    const struct store_want *first = want_first(want);
    if (first->key != NULL) {
        call_record_key(self, first->key);
        return;
    }
    char name[sizeof first->id->bytes + 6]; /* the id, and the beginning of the key's hash */
    uint64_t prefix = op_id_prefix(first->id);
    memcpy(name, first->id->bytes, sizeof first->id->bytes);
    for (size_t i = 0; i < 6; i++) {
        name[sizeof first->id->bytes + i] = (char)(unsigned char)(prefix >> (40 - 8 * i));
    }
    call_bytes(self, name, sizeof name);
}

static_assert(STORE_KINDS <= 8, "a set of kinds is one byte");
static_assert(LIMIT_TENANT_BYTES_MAX <= UCHAR_MAX, "the length of a tenant is one byte");

/* The rest of a want, in bytes. */
static void want_ask(struct buf *out, const struct store_want *want)
{
    const struct store_want *first = want_first(want);
    unsigned bits = want->bodies | (want->source ? WANT_SOURCE : 0u) |
                    (want->same != NULL ? WANT_BODIES_ONLY : 0u);
    struct slice fingerprint =
        want->fingerprint == NULL ? SLICE_EMPTY : slice_of(want->fingerprint->bytes, DIGEST_BYTES);
    ASSERT(bits <= UCHAR_MAX);
    ASSERT(want->tenant.len <= LIMIT_TENANT_BYTES_MAX);
    buf_char(out, first->key != NULL ? 'k' : 'i');
    buf_char(out, (char)(unsigned char)first->kinds);
    buf_char(out, (char)(unsigned char)bits);
    buf_char(out, (char)(unsigned char)want->tenant.len);
    buf_char(out, (char)(unsigned char)fingerprint.len);
    buf_slice(out, want->tenant);
    buf_slice(out, fingerprint);
}

static void wants_ask(struct redis *self, const struct store_batch *batch)
{
    bool by_key = true;
    for (size_t i = 0; i < batch->count; i++) {
        by_key = by_key && want_first(&batch->wants[i])->key != NULL;
    }
    call_text(self, by_key ? "1" : "0");
    for (size_t i = 0; i < batch->count; i++) {
        want_name(self, &batch->wants[i]);
    }
    buf_clear(&self->word);
    for (size_t i = 0; i < batch->count; i++) {
        want_ask(&self->word, &batch->wants[i]);
    }
    call_buf(self, &self->word);
}

/* A length at the beginning of a string, and the blank after it. */
static bool length_take(struct slice *text, uint64_t *ret_length)
{
    const char *blank = memchr(text->data, ' ', text->len);
    size_t len = blank == NULL ? 0 : (size_t)(blank - text->data);
    if (blank == NULL || !text_u64(slice_of(text->data, len), ret_length)) {
        return false;
    }
    *text = slice_of(blank + 1, text->len - len - 1);
    return true;
}

/* The record and the request's body of a record that is a string (insert.c). */
static bool string_split(struct slice text, struct slice *ret_record, struct slice *ret_request)
{
    uint64_t meta = 0;
    uint64_t record = 0;
    if (!length_take(&text, &meta) || !length_take(&text, &record) || meta > text.len ||
        record > text.len - meta) {
        return false;
    }
    *ret_record = slice_of(text.data + meta, (size_t)record);
    *ret_request = slice_of(text.data + meta + record, text.len - (size_t)(meta + record));
    return true;
}

/* Of a record that is a string, that is the whole answer. */
static bool is_string(const redisReply *reply)
{
    struct slice text;
    return reply_count(reply) == 1 && reply_text(reply_at(reply, IN_RECORD), &text);
}

/* The request's body in an answer. */
static bool request_in(const redisReply *reply, struct slice *ret_request)
{
    struct slice text;
    struct slice record;
    if (!is_string(reply)) {
        return reply_text(reply_at(reply, IN_REQUEST), ret_request);
    }
    return reply_text(reply_at(reply, IN_RECORD), &text) &&
           string_split(text, &record, ret_request);
}

/* Takes a body, if it is there, and checks it against its record (S4). */
static enum status body_take(const struct body_ref *body, bool is_there, struct slice bytes,
    struct store_want *want, struct slice *ret_bytes, struct err *err)
{
    struct digest digest;
    ASSERT(body->retained);
    if (body->bytes == 0) {
        return OK;
    }
    if (!is_there) {
        return err_set(err, E_CORRUPT, "a body that its record names is absent");
    }
    digest_sha256(bytes.data, bytes.len, &digest);
    if (bytes.len != body->bytes || !digest_equal(&digest, &body->digest)) {
        return err_set(err, E_CORRUPT, "the body does not have its digest");
    }
    enum status status = arena_copy(want->arena, bytes, ret_bytes);
    want->body_status = want->body_status == OK ? status : want->body_status;
    return OK;
}

static enum status source_take(
    struct store_want *want, const redisReply *reply, struct arena *arena, struct err *err)
{
    const struct record *record = want->record;
    struct slice bytes;
    uint64_t touches = 0;
    if (!want->source || !source_ordered(&record->source)) {
        return OK;
    }
    enum status status = source_key_seal(&record->key, &record->source, &want->source_key, err);
    if (status != OK || !reply_text(reply_at(reply, IN_SOURCE), &bytes)) {
        return status;
    }
    if (!reply_u64(reply_at(reply, IN_SOURCE_TOUCHES), &touches)) {
        return reply_malformed(&redis_script_prepare, err);
    }
    status = record_take(bytes, touches, arena, &want->source_record, err);
    if (status == OK && !digest_equal(&want->source_record->key.hash, &want->source_key.hash)) {
        return err_set(err, E_CORRUPT, "the record of a source has a different key");
    }
    return status;
}

static enum status bodies_take(
    struct store_want *want, const redisReply *reply, int64_t now_ms, struct err *err)
{
    struct want_choice choice = want_choose(want, now_ms);
    const struct record *record = want->record;
    struct slice bytes = SLICE_EMPTY;
    enum status status = OK;
    if (choice.outcome) {
        bool is_there = reply_text(reply_at(reply, IN_OUTCOME), &bytes);
        status = body_take(&record->outcome.body, is_there, bytes, want, &want->outcome, err);
    }
    if (status == OK && choice.request) {
        bool is_there = request_in(reply, &bytes);
        status = body_take(&record->request, is_there, bytes, want, &want->request, err);
    }
    return status;
}

/* Takes the record of a want that does not repeat an earlier one. */
static enum status own_record_take(
    struct store_want *want, const redisReply *reply, struct arena *arena, struct err *err)
{
    struct slice bytes;
    struct slice request;
    uint64_t touches = 0;
    if (!reply_text(reply_at(reply, IN_RECORD), &bytes)) {
        return OK; /* absent */
    }
    if (is_string(reply) ? !string_split(bytes, &bytes, &request)
                         : !reply_u64(reply_at(reply, IN_TOUCHES), &touches)) {
        return reply_malformed(&redis_script_prepare, err);
    }
    enum status status = record_take(bytes, touches, arena, &want->record, err);
    bool is_it =
        status != OK || (want->key != NULL ? digest_equal(&want->record->key.hash, want->key)
                                           : op_id_equal(&want->record->operation_id, want->id));
    return is_it ? status : err_set(err, E_CORRUPT, "the record has a different key");
}

void want_absent(struct store_want *want)
{
    want->record = want->source_record = NULL;
    want->outcome = want->request = SLICE_EMPTY;
    want->body_status = OK;
}

static enum status want_take(struct store_want *want, const redisReply *reply,
    const struct store_batch *batch, struct err *err)
{
    enum status status = OK;
    want_absent(want);
    if (reply == NULL) {
        return OK; /* all of them are absent */
    }
    if (reply_count(reply) == 0) {
        return reply_malformed(&redis_script_prepare, err);
    }
    if (want->same != NULL) {
        ASSERT(want->same < want);
        want->record = want->same->record;
    } else {
        status = own_record_take(want, reply, batch->arena, err);
    }
    if (status == OK && want->record != NULL) {
        status = source_take(want, reply, batch->arena, err);
    }
    if (status == OK && want->record != NULL) {
        status = bodies_take(want, reply, batch->now_ms, err);
    }
    return status;
}

/* ---- counts --------------------------------------------------------------------------------- */

/* "kind:status", a field of the counts. */
static bool count_name(struct slice text, uint64_t *ret_kind, uint64_t *ret_status)
{
    const char *colon = memchr(text.data, ':', text.len);
    if (colon == NULL) {
        return false;
    }
    size_t len = (size_t)(colon - text.data);
    return text_u64(slice_of(text.data, len), ret_kind) && *ret_kind < STORE_KINDS &&
           text_u64(slice_of(colon + 1, text.len - len - 1), ret_status) &&
           *ret_status < STORE_STATUSES;
}

static bool counts_take(const redisReply *flat, const redisReply *oldest, unsigned kinds,
    struct store_counts *ret_counts)
{
    struct store_tally tally = {0};
    for (size_t i = 0; i + 1 < reply_count(flat); i += 2) {
        struct slice name;
        uint64_t kind = 0;
        uint64_t status = 0;
        if (!reply_text(reply_at(flat, i), &name) || !count_name(name, &kind, &status) ||
            !reply_u64(reply_at(flat, i + 1), &tally.counts[kind][status])) {
            return false;
        }
    }
    *ret_counts = store_tally_of(&tally, kinds);
    for (size_t i = 0; i + 1 < reply_count(oldest); i += 2) {
        uint64_t kind = 0;
        uint64_t since_ms = 0;
        if (!reply_u64(reply_at(oldest, i), &kind) || kind >= STORE_KINDS ||
            !reply_u64(reply_at(oldest, i + 1), &since_ms) || since_ms > INT64_MAX) {
            return false;
        }
        int64_t *since = &ret_counts->unknown_since_ms;
        if (store_kind_in(kinds, (enum record_kind)kind) &&
            (*since == 0 || (int64_t)since_ms < *since)) {
            *since = (int64_t)since_ms;
        }
    }
    return true;
}

/* ---- the whole ------------------------------------------------------------------------------ */

/* The last beat is old enough for the next one to be worth a write. */
bool beat_is_due(const struct redis *self, const struct store_batch *batch)
{
    return self->incarnation != 0 && batch->fences > 0 &&
           clock_nanos() - self->beat_ns > UINT64_C(1000000) * LIMIT_BEAT_MS / 2;
}

/* Whether this prepare counts as a beat. */
static bool beats_now(struct redis *self, const struct store_batch *batch)
{
    bool beats = beat_is_due(self, batch);
    self->beat_ns = beats ? clock_nanos() : self->beat_ns;
    return beats;
}

/* A batch without wants draws from the server: its caller uses the number itself, as the name of a
 * process (engine/janitor.c), and may use it without a commit. */
bool reserve_serves(const struct redis *self, const struct store_batch *batch, uint64_t fences)
{
    return self->reserve.count > 0 && self->reserve.count >= fences &&
           (batch->count > 0 || fences == 0);
}

static enum status batch_ask(struct redis *self, const struct store_batch *batch, uint64_t fences,
    redisReply **ret_reply, struct err *err)
{
    bool writes = self->chain[0] != '\0';
    call_begin(self);
    call_text(self, self->chain);
    call_u64(self, self->commits);
    call_u64(self, writes && beats_now(self, batch) ? self->incarnation : 0);
    call_i64(self, time_now(self).time_ms);
    call_u64(self, fences);
    if (reserve_serves(self, batch, fences)) {
        call_u64(self, self->reserve.counter);
    } else {
        call_text(self, "");
    }
    wants_ask(self, batch);
    return call_run(self, &redis_script_prepare, ret_reply, err);
}

/* Sets aside twice what this batch needs, so that the next one seldom has to draw. */
static void reserve_want(struct redis_reserve *reserve, uint64_t fences)
{
    uint64_t target = 2 * fences < REDIS_RESERVE_MIN ? REDIS_RESERVE_MIN : 2 * fences;
    target = target > LIMIT_BATCH_REQUESTS_MAX ? LIMIT_BATCH_REQUESTS_MAX : target;
    reserve->wanted = fences > 0 && reserve->count < target ? target - reserve->count : 0;
}

void reserve_draw(struct redis *self, struct store_batch *batch, uint64_t fences)
{
    struct redis_reserve *reserve = &self->reserve;
    ASSERT(reserve->count >= fences);
    ASSERT(reserve->next + reserve->count - 1 == reserve->counter);
    ASSERT(reserve->next > self->fence); /* P4 */
    batch->fence_first = reserve->next;
    reserve->next += fences;
    reserve->count -= fences;
    reserve_want(reserve, fences);
    self->fence_drawn = batch->fence_first + fences - 1;
}

/* Takes the fences of a batch: those set aside, if the counter is still at their end, or those that
 * the server drew. A server that is behind the fences we have used has lost data (P4). Unused ones
 * may be drawn again after a failover: nobody has seen them. */
static enum status fences_take(struct redis *self, struct store_batch *batch, uint64_t fences,
    const redisReply *reply, struct err *err)
{
    struct redis_reserve *reserve = &self->reserve;
    uint64_t counter = 0;
    if (!reply_u64(reply, &counter)) {
        return reply_malformed(&redis_script_prepare, err);
    }
    bool alone = counter - fences == reserve->counter; /* nobody else has drawn */
    if (reserve_serves(self, batch, fences) && counter == reserve->counter) {
        reserve_draw(self, batch, fences);
        return OK;
    }
    if (counter < self->fence || counter - self->fence < fences) {
        return err_set(err, E_CORRUPT, "the Redis server has gone back to fence %llu from %llu",
            (unsigned long long)counter, (unsigned long long)self->fence);
    }
    batch->fence_first = counter - fences + 1;
    *reserve = (struct redis_reserve){.counter = counter, .next = counter + 1};
    reserve_want(reserve, alone ? fences : 0);
    self->fence_drawn = batch->fence_first + fences - 1;
    return OK;
}

static enum status batch_take(struct redis *self, struct store_batch *batch, uint64_t fences,
    const redisReply *reply, struct err *err)
{
    const redisReply *wants = reply_at(reply, 6);
    bool all_absent = reply_count(wants) == 0;
    if (!reply_time(self, reply) || wants == NULL ||
        (!all_absent && reply_count(wants) != batch->count) ||
        !counts_take(reply_at(reply, 4), reply_at(reply, 5), STORE_KINDS_ASKED, &batch->counts)) {
        return reply_malformed(&redis_script_prepare, err);
    }
    self->now = self->read_only ? (struct store_moment){.time_ms = self->mark_ms} : time_now(self);
    batch->now_ms = self->now.time_ms;
    batch->clock_held = self->clock.held && self->mark_ms <= self->clock.time_ms;
    enum status status = fences_take(self, batch, fences, reply_at(reply, 3), err);
    for (size_t i = 0; i < batch->count && status == OK; i++) {
        status = want_take(&batch->wants[i], reply_at(wants, i), batch, err);
    }
    return status;
}

static enum status batch_read(
    struct redis *self, struct store_batch *batch, uint64_t fences, struct err *err)
{
    redisReply *reply = NULL;
    ASSERT(!self->prepared);
    enum status status = batch_ask(self, batch, fences, &reply, err);
    if (status == OK) {
        status = call_fail(self, batch_take(self, batch, fences, reply, err));
        freeReplyObject(reply);
    }
    return status;
}

enum status redis_read(struct store *store, struct store_batch *batch, struct err *err)
{
    return batch_read(redis_of(store), batch, 0, err);
}

static int stamp_compare(const void *a, const void *b)
{
    const struct redis_stamp *x = a;
    const struct redis_stamp *y = b;
    return memcmp(x->key_hash.bytes, y->key_hash.bytes, DIGEST_BYTES);
}

/* Remembers which operations the batch found. */
static enum status stamps_take(struct redis *self, const struct store_batch *batch, struct err *err)
{
    buf_clear(&self->stamps);
    for (size_t i = 0; i < batch->count; i++) {
        const struct record *found[2] = {batch->wants[i].record, batch->wants[i].source_record};
        for (size_t j = 0; j < 2; j++) {
            if (found[j] != NULL) {
                struct redis_stamp stamp = {found[j]->key.hash, found[j]->operation_id};
                buf_append(&self->stamps, &stamp, sizeof stamp);
            }
        }
    }
    if (buf_status(&self->stamps) != OK) {
        return err_set(err, E_NOMEM, "out of memory for a batch");
    }
    if (self->stamps.len > 0) {
        qsort(self->stamps.data, self->stamps.len / sizeof(struct redis_stamp),
            sizeof(struct redis_stamp), stamp_compare);
    }
    return OK;
}

enum status redis_prepare(struct store *store, struct store_batch *batch, struct err *err)
{
    struct redis *self = redis_of(store);
    if (self->read_only) {
        return err_set(err, E_MISUSE, "the store was opened read-only");
    }
    if (presume(self, batch)) {
        return OK;
    }
    enum status status = batch_read(self, batch, batch->fences, err);
    status = status == OK ? stamps_take(self, batch, err) : status;
    if (status == OK) {
        self->prepared_ms = self->server_ms;
        self->prepared = true;
        presume_asked(self, batch);
    }
    return status;
}

void redis_abort(struct store *store)
{
    struct redis *self = redis_of(store);
    ASSERT(self->prepared);
    self->prepared = false;
    presume_ended(self, NULL, OK);
}

enum status redis_counts(
    struct store *store, unsigned kinds, struct store_counts *ret_counts, struct err *err)
{
    struct redis *self = redis_of(store);
    const struct store_batch nothing = {.count = 0};
    struct store_counts counts;
    redisReply *reply = NULL;
    enum status status = batch_ask(self, &nothing, 0, &reply, err);
    if (status == OK && !counts_take(reply_at(reply, 4), reply_at(reply, 5), kinds, &counts)) {
        status = call_fail(self, reply_malformed(&redis_script_prepare, err));
    }
    freeReplyObject(reply);
    if (status == OK) {
        *ret_counts = counts;
    }
    return status;
}

/* One record as a line of its own. */
static enum status backlog_take(const redisReply *reply, size_t at, store_backlog_visit visit,
    void *context, struct arena *arena, struct err *err)
{
    struct slice bytes;
    uint64_t touches = 0;
    const struct record *record = NULL;
    if (!reply_text(reply_at(reply, at), &bytes) || !reply_u64(reply_at(reply, at + 1), &touches)) {
        return reply_malformed(&redis_script_backlog, err);
    }
    enum status status = record_take(bytes, touches, arena, &record, err);
    if (status == OK) {
        bool is_pending = record->status == RECORD_PENDING;
        visit(context, &(struct store_backlog){.kind = record->kind,
                           .status = record->status,
                           .tenant = record->key.tenant,
                           .scope = record->key.scope,
                           .count = 1,
                           .since_ms = is_pending ? record->created_ms : record->updated_ms});
    }
    return status;
}

enum status redis_backlog(struct store *store, enum record_kind kind, store_backlog_visit visit,
    void *context, struct store_counts *ret_counts, struct err *err)
{
    struct redis *self = redis_of(store);
    struct store_counts counts;
    struct arena arena;
    redisReply *reply = NULL;
    call_begin(self);
    call_u64(self, (uint64_t)kind);
    call_u64(self, STORE_BACKLOG_MAX);
    call_u64(self, RECORD_DUE_NEXT_ATTEMPT);
    enum status status = call_run(self, &redis_script_backlog, &reply, err);
    if (status != OK) {
        return status;
    }
    arena_init(&arena, self->mem, BACKLOG_BYTES_MAX);
    if (!counts_take(reply_at(reply, 0), NULL, STORE_KIND(kind), &counts)) {
        status = reply_malformed(&redis_script_backlog, err);
    }
    for (size_t at = 1; at < reply_count(reply) && status == OK; at += 2) {
        arena_clear(&arena);
        status = backlog_take(reply, at, visit, context, &arena, err);
    }
    status = status == OK ? OK : call_fail(self, status);
    arena_release(&arena);
    freeReplyObject(reply);
    if (status == OK) {
        *ret_counts = counts;
    }
    return status;
}
