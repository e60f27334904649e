/*
 * The records that a commit makes, as commands of the server.
 *
 * Of a key that is absent, and that the commit changes only once, everything is known here: its
 * fields, the indexes that it joins, and what to count. So the script has nothing to compute: it
 * compares (all of them are still absent, by one command) and runs what it was sent. The server has
 * one thread for all processes, so work that moves from there to here is gained by everybody.
 *
 * Most of these records are one string, and one command writes all strings of a commit. The first
 * change of a record makes it a hash (commit.lua), so that its bodies need not be written again and
 * duplicates can be counted. docs/formats/redis.md has both forms.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "core/source.h"
#include "store/redis/impl.h"

enum {
    STRING_REQUEST_BYTES_MAX = 1 << 10, /* of a request in a string: it is written again when the
                                           record changes, and a hash's is not */
};

/* ---- which changes these are ---------------------------------------------------------------- */

static int insert_compare(const void *left, const void *right)
{
    const struct redis_insert *a = left;
    const struct redis_insert *b = right;
    int order = memcmp(a->hash->bytes, b->hash->bytes, DIGEST_BYTES);
    return order != 0 ? order : (a->at > b->at) - (a->at < b->at);
}

static struct redis_insert *inserts_of(const struct redis *self, size_t *ret_count)
{
    *ret_count = self->inserts.len / sizeof(struct redis_insert);
    return (struct redis_insert *)(void *)self->inserts.data;
}

bool insert_is(const struct redis *self, size_t at)
{
    ASSERT(at < self->is_insert.len);
    return self->is_insert.data[at] != 0;
}

/* Keeps the keys that have one change, which makes their record. */
static void inserts_keep(struct redis *self, const struct commit *commit)
{
    size_t count = 0;
    size_t kept = 0;
    struct redis_insert *all = inserts_of(self, &count);
    for (size_t i = 0; i < count; i++) {
        const struct change *change = &commit->changes[all[i].at];
        bool again = (i > 0 && digest_equal(all[i].hash, all[i - 1].hash)) ||
                     (i + 1 < count && digest_equal(all[i].hash, all[i + 1].hash));
        self->is_insert.data[all[i].at] =
            !again && change->kind == CHANGE_PUT && change->version_expected == 0;
    }
    for (size_t i = 0; i < count; i++) {
        if (insert_is(self, all[i].at)) {
            all[kept++] = all[i];
        }
    }
    self->inserts.len = kept * sizeof *all;
}

enum status inserts_find(struct redis *self, const struct commit *commit, struct err *err)
{
    buf_clear(&self->inserts);
    buf_clear(&self->is_insert);
    for (size_t i = 0; i < commit->count; i++) {
        struct redis_insert insert = {.hash = change_key(&commit->changes[i]), .at = i};
        buf_char(&self->is_insert, 0);
        if (insert.hash != NULL) {
            buf_append(&self->inserts, &insert, sizeof insert);
        }
    }
    if (buf_status(&self->inserts) != OK || buf_status(&self->is_insert) != OK) {
        return err_set(err, E_NOMEM, "out of memory for a commit");
    }
    if (self->inserts.len > 0) {
        qsort(self->inserts.data, self->inserts.len / sizeof(struct redis_insert),
            sizeof(struct redis_insert), insert_compare);
        inserts_keep(self, commit);
    }
    return OK;
}

void inserts_expect(struct redis *self)
{
    size_t count = 0;
    const struct redis_insert *inserts = inserts_of(self, &count);
    call_u64(self, count);
    for (size_t i = 0; i < count; i++) {
        call_record_key(self, inserts[i].hash);
    }
    buf_clear(&self->word);
    for (size_t i = 0; i < count; i++) {
        buf_u64(&self->word, inserts[i].at);
        buf_char(&self->word, ' ');
    }
    call_buf(self, &self->word); /* the script reads it only if one is stale */
}

/* ---- records -------------------------------------------------------------------------------- */

/* A command of its own: its word, and the number of arguments that follow. */
static void command_put(struct redis *self, const char *word, size_t arguments)
{
    call_text(self, "w");
    call_u64(self, arguments);
    call_text(self, word);
}

static void field_put(struct redis *self, const char *name, struct slice bytes)
{
    call_text(self, name);
    call_slice(self, bytes);
}

/* How many fields a new record has; 0: it is a string. */
static size_t fields_of(const struct change *change)
{
    bool has_source = source_ordered(&change->record->source);
    bool is_string = !has_source && change->outcome_body.len == 0 &&
                     change->request_body.len <= STRING_REQUEST_BYTES_MAX;
    return is_string ? 0
                     : 2 + (size_t)has_source + (change->request_body.len > 0) +
                           (change->outcome_body.len > 0);
}

/* The lengths of m and r, then m, r, and the request's body. self->word has m. */
static void string_put(struct redis *self, struct slice request)
{
    struct buf *made = &self->made;
    buf_clear(made);
    buf_u64(made, self->word.len);
    buf_char(made, ' ');
    buf_u64(made, self->record.len);
    buf_char(made, ' ');
    buf_slice(made, buf_view(&self->word));
    buf_slice(made, buf_view(&self->record));
    buf_slice(made, request);
    if (buf_status(made) == OK && buf_status(&self->word) != OK) {
        made->status = buf_status(&self->word); /* or it would be cut off */
    }
    call_buf(self, made);
}

static enum status record_insert(struct redis *self, const struct change *change, struct err *err)
{
    const struct record *record = change->record;
    struct record_key source = {.hash = {{0}}};
    bool has_source = source_ordered(&record->source);
    enum status status =
        has_source ? source_key_seal(&record->key, &record->source, &source, err) : OK;
    status = status == OK ? body_check(change->request_body, &record->request, err) : status;
    status = status == OK ? body_check(change->outcome_body, &record->outcome.body, err) : status;
    status = status == OK ? record_bytes(self, record, err) : status;
    if (status != OK) {
        return status;
    }
    if (fields_of(change) == 0) {
        meta_put(self, record);
        string_put(self, change->request_body);
        return OK;
    }
    call_text(self, "m");
    meta_put(self, record);
    call_buf(self, &self->word);
    field_put(self, "r", buf_view(&self->record));
    if (has_source) {
        field_put(self, "x", slice_of(source.hash.bytes, DIGEST_BYTES));
    }
    if (change->request_body.len > 0) {
        field_put(self, "q", change->request_body);
    }
    if (change->outcome_body.len > 0) {
        field_put(self, "o", change->outcome_body);
    }
    return OK;
}

/* Appends those that have as many fields as the first, from there on, without their keys: these are
 * known to the script, in the same order. Returns how many there are. */
static size_t records_insert(struct redis *self, const struct commit *commit,
    const struct redis_insert *inserts, size_t count, enum status *ret_status, struct err *err)
{
    size_t alike = 1;
    size_t fields = fields_of(&commit->changes[inserts[0].at]);
    while (alike < count && fields_of(&commit->changes[inserts[alike].at]) == fields) {
        alike++;
    }
    call_text(self, fields == 0 ? "s" : "h");
    call_u64(self, alike);
    if (fields > 0) {
        call_u64(self, 2 * fields);
    }
    for (size_t i = 0; i < alike && *ret_status == OK; i++) {
        *ret_status = record_insert(self, &commit->changes[inserts[i].at], err);
    }
    return alike;
}

/* Notifies callers that wait for the key. */
static void notice_put(struct redis *self, const struct record *record)
{
    char notice[UUID_TEXT_BYTES - 1 + DIGEST_BYTES]; /* our chain, then the key's hash */
    if (!record_is_settled(record)) {
        return;
    }
    memcpy(notice, self->chain, UUID_TEXT_BYTES - 1);
    memcpy(notice + UUID_TEXT_BYTES - 1, record->key.hash.bytes, DIGEST_BYTES);
    command_put(self, "PUBLISH", 2);
    call_key(self, "settled");
    call_bytes(self, notice, sizeof notice);
}

/* ---- indexes -------------------------------------------------------------------------------- */

/* The sorted sets that a record joins, those of all keys aside; common.lua has the same
 * (places_of). */
enum join_set { JOIN_DUE, JOIN_UNKNOWN, JOIN_DEAD, JOIN_HELD };

struct join {
    enum join_set set;
    uint64_t of; /* which one: kind and reason, kind, or holder */
    uint64_t score;
    const struct digest *hash;
};

enum { REASONS = 16 }; /* more than there are */

static int join_set_compare(const struct join *a, const struct join *b)
{
    int order = (a->set > b->set) - (a->set < b->set);
    return order != 0 ? order : (a->of > b->of) - (a->of < b->of);
}

static int join_compare(const void *left, const void *right)
{
    const struct join *a = left;
    const struct join *b = right;
    int order = join_set_compare(a, b);
    return order != 0 ? order : (a->score > b->score) - (a->score < b->score);
}

static void join_add(
    struct buf *joins, const struct record *record, enum join_set set, uint64_t of, int64_t score)
{
    struct join join = {set, of, (uint64_t)score, &record->key.hash};
    ASSERT(score >= 0);
    buf_append(joins, &join, sizeof join);
}

static void joins_add(struct buf *joins, const struct record *record)
{
    uint64_t kind = (uint64_t)record->kind;
    int64_t due_ms = record_due_ms(record);
    if (due_ms != INT64_MAX && record_due(record) != RECORD_DUE_NEVER) {
        join_add(joins, record, JOIN_DUE, kind * REASONS + (uint64_t)record_due(record), due_ms);
    }
    if (record->status == RECORD_UNKNOWN) {
        join_add(joins, record, JOIN_UNKNOWN, kind, record->updated_ms);
    }
    if (record->status == RECORD_DEAD) {
        join_add(joins, record, JOIN_DEAD, kind, record->updated_ms);
    }
    if (record->holder != 0) {
        join_add(joins, record, JOIN_HELD, record->holder, 0);
    }
}

static void join_key_put(struct redis *self, const struct join *join)
{
    char name[48] = "";
    switch (join->set) {
    case JOIN_DUE:
        (void)snprintf(
            name, sizeof name, "due:%" PRIu64 ":%" PRIu64, join->of / REASONS, join->of % REASONS);
        break;
    case JOIN_UNKNOWN: (void)snprintf(name, sizeof name, "unknown:%" PRIu64, join->of); break;
    case JOIN_DEAD: (void)snprintf(name, sizeof name, "dead:%" PRIu64, join->of); break;
    case JOIN_HELD: (void)snprintf(name, sizeof name, "held:%" PRIu64, join->of); break;
    }
    call_key(self, name);
}

/* The hashes of those with the score of the first. Returns how many these are. If these are all
 * records that are made, the script knows them. */
static size_t scored_put(struct redis *self, const struct join *joins, size_t count)
{
    size_t scored = 0;
    buf_clear(&self->made);
    for (; scored < count && joins[scored].score == joins->score; scored++) {
        buf_append(&self->made, joins[scored].hash->bytes, DIGEST_BYTES);
    }
    if (scored == self->inserts.len / sizeof(struct redis_insert)) {
        buf_clear(&self->made);
    }
    call_u64(self, joins->score);
    call_buf(self, &self->made);
    return scored;
}

/* Those of one set, from the first. */
static void join_put(struct redis *self, const struct join *joins, size_t count)
{
    size_t scores = 1;
    for (size_t i = 1; i < count; i++) {
        scores += joins[i].score != joins[i - 1].score;
    }
    call_text(self, "j");
    join_key_put(self, joins);
    call_u64(self, scores);
    for (size_t i = 0; i < count;) {
        i += scored_put(self, joins + i, count - i);
    }
    if (joins->set == JOIN_HELD) {
        command_put(self, "ZADD", 4);
        call_key(self, "beats");
        call_text(self, "NX");
        call_text(self, "0");
        call_u64(self, joins->of);
    }
}

static void joins_put(struct redis *self, const struct join *joins, size_t count)
{
    for (size_t from = 0; from < count;) {
        size_t until = from + 1;
        while (until < count && join_set_compare(&joins[from], &joins[until]) == 0) {
            until++;
        }
        join_put(self, joins + from, until - from);
        from = until;
    }
}

static void counts_put(struct redis *self, const struct store_tally *tally)
{
    for (int kind = 0; kind < STORE_KINDS; kind++) {
        for (int status = 0; status < STORE_STATUSES; status++) {
            char name[32];
            if (tally->counts[kind][status] > 0) {
                (void)snprintf(name, sizeof name, "%d:%d", kind, status);
                command_put(self, "HINCRBY", 3);
                call_key(self, "counts");
                call_text(self, name);
                call_u64(self, tally->counts[kind][status]);
            }
        }
    }
}

enum status inserts_put(struct redis *self, const struct commit *commit, struct err *err)
{
    struct store_tally tally = {.counts = {{0}}};
    struct buf joins;
    size_t count = 0;
    const struct redis_insert *inserts = inserts_of(self, &count);
    enum status status = OK;
    buf_init(&joins, self->mem, REDIS_REQUEST_BYTES_MAX);
    for (size_t i = 0; i < count && status == OK;) {
        i += records_insert(self, commit, inserts + i, count - i, &status, err);
    }
    for (size_t i = 0; i < count && status == OK; i++) {
        const struct record *record = commit->changes[inserts[i].at].record;
        notice_put(self, record);
        joins_add(&joins, record);
        store_tally_add(&tally, record->kind, record->status, true);
    }
    if (status == OK && buf_status(&joins) != OK) {
        status = err_set(err, E_NOMEM, "out of memory for a commit");
    }
    if (status == OK && joins.len > 0) {
        struct join *all = (struct join *)(void *)joins.data;
        qsort(all, joins.len / sizeof *all, sizeof *all, join_compare);
        joins_put(self, all, joins.len / sizeof *all);
    }
    if (status == OK) {
        counts_put(self, &tally);
    }
    buf_release(&joins);
    return status;
}
