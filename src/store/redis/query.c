/*
 * Scans, dues, evidence and chains: each a bounded piece by one script or command.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/limits.h"
#include "base/text.h"
#include "store/redis/impl.h"

/* ---- scan ----------------------------------------------------------------------------------- */

struct scanning {
    const struct scan *scan;
    struct arena *arena;
    const struct record **ret_records;
    size_t count; /* found so far */
    size_t looks; /* that the pace still allows … */
    size_t reads; /* … of each */
    struct digest after;
    bool done; /* there is nothing after it */
    bool over; /* the limit or the pace is reached */
};

static size_t lesser(size_t a, size_t b)
{
    return a < b ? a : b;
}

static bool hash_take(const redisReply *reply, struct digest *ret_hash)
{
    struct slice text;
    if (!reply_text(reply, &text) || text.len != DIGEST_BYTES) {
        return false;
    }
    memcpy(ret_hash->bytes, text.data, DIGEST_BYTES);
    return true;
}

/* Takes one record of a page, if it matches: the arena is for what is shown, and a search may pass
 * any number of others. */
static enum status scan_row(struct scanning *on, const redisReply *row, size_t at, struct err *err)
{
    struct slice bytes;
    struct digest hash;
    uint64_t touches = 0;
    struct record record;
    if (!hash_take(reply_at(row, at), &hash) || !reply_text(reply_at(row, at + 1), &bytes) ||
        !reply_u64(reply_at(row, at + 2), &touches)) {
        return reply_malformed(&redis_script_scan, err);
    }
    enum status status = record_decode(bytes, &record, err);
    if (status != OK) {
        return status;
    }
    if (!digest_equal(&record.key.hash, &hash)) {
        return err_set(err, E_CORRUPT, "the record has a different key");
    }
    if (scan_match(on->scan, &record)) {
        status = record_take(bytes, touches, on->arena, &on->ret_records[on->count], err);
        on->count += status == OK;
        on->after = hash;
        on->over = on->count == on->scan->limit;
    }
    return status;
}

static enum status scan_page_take(struct scanning *on, const redisReply *reply, struct err *err)
{
    struct slice why;
    uint64_t looks = 0;
    uint64_t reads = 0;
    if (!reply_text(reply_at(reply, 1), &why) || !reply_u64(reply_at(reply, 2), &looks) ||
        !reply_u64(reply_at(reply, 3), &reads)) {
        return reply_malformed(&redis_script_scan, err);
    }
    enum status status = OK;
    for (size_t at = 4; at < reply_count(reply) && status == OK && !on->over; at += 3) {
        status = scan_row(on, reply, at, err);
    }
    if (status != OK || on->over) {
        return status;
    }
    (void)hash_take(reply_at(reply, 0), &on->after); /* nil: it visited no key */
    on->looks -= lesser(looks, on->looks);
    on->reads -= lesser(reads, on->reads);
    on->done = slice_is(why, "end");
    on->over = on->done || on->looks == 0 || (on->reads == 0 && slice_is(why, "reads"));
    return OK;
}

static enum status scan_page(struct redis *self, struct scanning *on, struct err *err)
{
    const struct scan *scan = on->scan;
    redisReply *reply = NULL;
    size_t wanted = scan->limit - on->count;
    size_t looks = lesser(on->looks, REDIS_SCAN_LOOKS);
    size_t reads = lesser(on->reads, wanted > REDIS_SCAN_READS ? wanted : REDIS_SCAN_READS);
    call_begin(self);
    call_bytes(self, on->after.bytes, DIGEST_BYTES);
    call_u64(self, looks);
    call_u64(self, reads);
    call_u64(self, scan->kinds);
    call_u64(self, (uint64_t)scan->status);
    call_slice(self, scan->tenant);
    enum status status = call_run(self, &redis_script_scan, &reply, err);
    if (status == OK) {
        status = call_fail(self, scan_page_take(on, reply, err));
        freeReplyObject(reply);
    }
    return status;
}

enum status redis_scan(struct store *store, const struct scan *scan, struct arena *arena,
    const struct record **ret_records, size_t *ret_count, struct err *err)
{
    struct scan_pace *pace = scan->pace;
    ASSERT(scan->kinds != 0);
    ASSERT(pace == NULL || (pace->looks_max > 0 && pace->reads_max > 0)); /* or it never ends */
    struct scanning on = {.scan = scan,
        .arena = arena,
        .ret_records = ret_records,
        .looks = pace == NULL ? SIZE_MAX : pace->looks_max,
        .reads = pace == NULL ? SIZE_MAX : pace->reads_max,
        .after = scan->after,
        .over = scan->limit == 0};
    enum status status = OK;
    while (status == OK && !on.over) {
        status = scan_page(redis_of(store), &on, err);
    }
    if (status == OK && pace != NULL) {
        pace->after = on.after;
        pace->done = on.done;
    }
    *ret_count = status == OK ? on.count : *ret_count;
    return status;
}

/* ---- dues ----------------------------------------------------------------------------------- */

/* A due and its place in the order. */
struct placed_due {
    struct store_due due;
    struct store_due_cursor at;
};

enum {
    META_KIND = 1,
    META_STATUS,
    META_REASON,
    META_DUE,
    META_HOLDER,
    META_UPDATED,
    META_DOOR,
    META_FENCE,
    META_FIELDS
};

/* The field m of a record: numbers with a blank between two. */
static bool meta_take(struct slice text, uint64_t ret_numbers[META_FIELDS])
{
    for (size_t i = 0; i < META_FIELDS; i++) {
        const char *blank = text.len == 0 ? NULL : memchr(text.data, ' ', text.len);
        size_t len = blank == NULL ? text.len : (size_t)(blank - text.data);
        if (!text_u64(slice_of(text.data, len), &ret_numbers[i])) {
            return false;
        }
        size_t used = len < text.len ? len + 1 : len;
        text = slice_of(text.data + used, text.len - used);
    }
    return text.len == 0;
}

static bool due_take(const redisReply *reply, size_t at, struct placed_due *ret_due)
{
    struct digest hash;
    struct slice id;
    struct slice meta;
    uint64_t numbers[META_FIELDS];
    if (!hash_take(reply_at(reply, at), &hash) || !reply_text(reply_at(reply, at + 1), &id) ||
        !reply_text(reply_at(reply, at + 2), &meta) || id.len != sizeof(struct op_id) ||
        !meta_take(meta, numbers)) {
        return false;
    }
    *ret_due = (struct placed_due){.due = {.kind = (enum record_kind)numbers[META_KIND],
                                       .reason = (enum record_due)numbers[META_REASON],
                                       .door = (enum record_door)numbers[META_DOOR],
                                       .due_ms = (int64_t)numbers[META_DUE],
                                       .fence = numbers[META_FENCE]},
        .at = {.due = numbers[META_DUE]}};
    memcpy(ret_due->due.operation_id.bytes, id.data, id.len);
    for (size_t i = 0; i < 8; i++) {
        ret_due->at.key_high = ret_due->at.key_high << 8 | hash.bytes[i];
        ret_due->at.key_low = ret_due->at.key_low << 8 | hash.bytes[8 + i];
    }
    return true;
}

static int due_compare(const void *a, const void *b)
{
    const struct placed_due *x = a;
    const struct placed_due *y = b;
    return store_due_before(&x->at, &y->at) ? -1 : store_due_before(&y->at, &x->at);
}

/* Appends the names of the sorted sets to search. */
static void sets_ask(struct redis *self, const struct store_due_filter *filter)
{
    unsigned reasons = filter->reasons & STORE_DUES_ALL;
    for (unsigned kind = RECORD_OPERATION; kind < STORE_KINDS; kind++) {
        for (unsigned reason = RECORD_DUE_LEASE_OVER; reason < RECORD_DUE_WINDOW_OVER; reason++) {
            if ((filter->kinds >> kind & 1) != 0 && (reasons >> reason & 1) != 0) {
                call_u64(self, kind);
                call_u64(self, reason);
            }
        }
    }
}

static void due_ask(struct redis *self, const struct store_due_filter *filter, size_t limit)
{
    const struct store_due_cursor *cursor = filter->cursor;
    int64_t now_ms = time_now(self).time_ms;
    /* A prepared batch may still make a due of its own time (S10). */
    int64_t settled_ms = now_ms > LIMIT_PREPARED_MS_MAX ? now_ms - LIMIT_PREPARED_MS_MAX : 0;
    int64_t gone_ms = now_ms > LIMIT_HOLDER_GONE_MS ? now_ms - LIMIT_HOLDER_GONE_MS : 0;
    call_begin(self);
    call_i64(self, filter->held || cursor == NULL ? now_ms : settled_ms);
    call_u64(self, limit);
    call_u64(self, self->incarnation);
    call_text(self, filter->held ? "held" : cursor != NULL ? "cursor" : "due");
    if (filter->held) {
        call_i64(self, gone_ms);
        call_u64(self, filter->kinds);
        return;
    }
    if (cursor != NULL) {
        unsigned char key[16];
        for (size_t i = 0; i < 8; i++) {
            key[i] = (unsigned char)(cursor->key_high >> (56 - 8 * i));
            key[8 + i] = (unsigned char)(cursor->key_low >> (56 - 8 * i));
        }
        call_u64(self, cursor->due);
        call_bytes(self, key, sizeof key);
    }
    sets_ask(self, filter);
}

/* Returns the dues, sorted if there is a cursor: each set is sorted only by itself. */
static enum status dues_give(struct redis *self, const redisReply *reply,
    const struct store_due_filter *filter, struct store_due *ret_dues, size_t limit,
    size_t *ret_count, struct err *err)
{
    size_t count = reply_count(reply) < 3 ? 0 : (reply_count(reply) - 3) / 3;
    bool is_good = reply_time(self, reply);
    if (count == 0 && is_good) {
        *ret_count = 0;
        return OK;
    }
    struct placed_due *dues = mem_zalloc(self->mem, count + 1, sizeof *dues);
    if (dues == NULL) {
        return err_set(err, E_NOMEM, "out of memory for what is due");
    }
    for (size_t i = 0; i < count && is_good; i++) {
        is_good = due_take(reply, 3 + 3 * i, &dues[i]);
    }
    if (is_good && filter->cursor != NULL && !filter->held) {
        qsort(dues, count, sizeof *dues, due_compare);
        count = lesser(count, limit);
        *filter->cursor = dues[count - 1].at;
    }
    for (size_t i = 0; i < lesser(count, limit) && is_good; i++) {
        ret_dues[i] = dues[i].due;
    }
    mem_free(self->mem, dues);
    *ret_count = is_good ? lesser(count, limit) : *ret_count;
    return is_good ? OK : reply_malformed(&redis_script_due, err);
}

enum status redis_due(struct store *store, const struct store_due_filter *filter,
    struct store_due *ret_dues, size_t limit, size_t *ret_count, struct err *err)
{
    struct redis *self = redis_of(store);
    redisReply *reply = NULL;
    due_ask(self, filter, limit);
    enum status status = call_run(self, &redis_script_due, &reply, err);
    if (status == OK) {
        status = call_fail(self, dues_give(self, reply, filter, ret_dues, limit, ret_count, err));
        freeReplyObject(reply);
    }
    return status;
}

/* ---- evidence ------------------------------------------------------------------------------- */

enum { ENTRY_FIELDS = 18, PACKED_FIELDS = 12 }; /* names and values; pack.c writes them */

static bool bytes_take(const redisReply *reply, void *ret_bytes, size_t size)
{
    struct slice text;
    if (!reply_text(reply, &text) || text.len != size) {
        return false;
    }
    memcpy(ret_bytes, text.data, size);
    return true;
}

/* An item of the stream: one entry, or the bytes of several. */
struct redis_item {
    uint64_t position; /* of its last entry */
    uint64_t count;
    struct slice packed; /* if there are several */
    struct entry entry;  /* the one; of several only its chain is set */
    struct digest previous;
};

static bool fields_take(const redisReply *fields, struct redis_item *ret_item)
{
    struct entry *entry = &ret_item->entry;
    uint64_t kind = 0;
    uint64_t time_ms = 0;
    if (!reply_u64(reply_at(fields, 3), &kind) || !reply_u64(reply_at(fields, 5), &entry->seq) ||
        !hash_take(reply_at(fields, 7), &entry->hash) ||
        !hash_take(reply_at(fields, 9), &ret_item->previous) ||
        !bytes_take(reply_at(fields, 11), entry->operation_id.bytes, 16) ||
        !reply_text(reply_at(fields, 13), &entry->tenant) ||
        !reply_u64(reply_at(fields, 15), &time_ms) || time_ms > INT64_MAX ||
        !reply_text(reply_at(fields, 17), &entry->bytes) ||
        (kind != ENTRY_EVIDENCE && kind != ENTRY_CHECKPOINT)) {
        return false;
    }
    entry->kind = (enum entry_kind)kind;
    entry->time_ms = (int64_t)time_ms;
    ret_item->count = 1;
    return true;
}

static bool item_take(const redisReply *reply, struct redis_item *ret_item)
{
    const redisReply *fields = reply_at(reply, 1);
    size_t count = reply_count(fields);
    struct slice id;
    struct slice chain;
    *ret_item = (struct redis_item){.count = 0};
    if (!reply_text(reply_at(reply, 0), &id) || id.len < 3 ||
        !text_u64(slice_of(id.data, id.len - 2), &ret_item->position) ||
        !reply_text(reply_at(fields, 1), &chain) || !uuid_read(chain, ret_item->entry.chain_id)) {
        return false;
    }
    if (count == ENTRY_FIELDS) {
        return fields_take(fields, ret_item);
    }
    return count == PACKED_FIELDS && reply_u64(reply_at(fields, 3), &ret_item->count) &&
           ret_item->count > 0 && ret_item->count <= ret_item->position &&
           reply_text(reply_at(fields, 11), &ret_item->packed);
}

/* The position after which a reading begins. */
static enum status place_find(
    struct redis *self, const struct entry_cursor *after, uint64_t *ret_position, struct err *err)
{
    static const unsigned char none[16] = {0};
    char chain[UUID_TEXT_BYTES];
    redisReply *reply = NULL;
    *ret_position = 0;
    if (memcmp(after->chain_id, none, sizeof none) == 0) {
        return OK;
    }
    call_begin(self);
    call_text(self, uuid_put(chain, after->chain_id));
    call_u64(self, after->seq);
    enum status status = call_run(self, &redis_script_place, &reply, err);
    if (status == E_INVALID) {
        return err_set(err, E_INVALID, "the cursor belongs to a different chain of evidence");
    }
    if (status == OK && !reply_u64(reply, ret_position)) {
        status = call_fail(self, reply_malformed(&redis_script_place, err));
    }
    freeReplyObject(reply);
    return status;
}

struct redis_reading {
    const struct entry_range *range;
    entry_visit visit;
    void *context;
    struct entry_pace *pace;
    uint64_t position; /* of the last entry passed */
    size_t bytes;      /* read so far */
    bool stopped;      /* by the visitor */
    bool done;
};

static void entry_pass(
    struct redis_reading *on, const struct entry *entry, const struct digest *previous)
{
    struct entry_pace *pace = on->pace;
    on->bytes += entry->bytes.len;
    pace->hash = entry->kind == ENTRY_EVIDENCE ? *previous : pace->hash;
    if (on->range->pace == NULL || entry->kind == ENTRY_EVIDENCE) {
        on->stopped = entry_match(on->range, entry) && !on->visit(on->context, entry);
    }
    if (entry->kind == ENTRY_EVIDENCE) {
        memcpy(pace->at.chain_id, entry->chain_id, sizeof pace->at.chain_id);
        pace->at.seq = entry->seq;
        pace->hash = entry->hash;
    }
}

static bool reading_is_over(const struct redis_reading *on)
{
    return on->stopped || on->bytes >= on->pace->bytes_max;
}

/* Passes the entries of an item that come after the position. False: it is not in its form. */
static bool item_pass(struct redis_reading *on, const redisReply *reply)
{
    struct redis_item item;
    if (!item_take(reply, &item)) {
        return false;
    }
    if (item.count == 1 && item.packed.len == 0) {
        on->position = item.position;
        entry_pass(on, &item.entry, &item.previous);
        return true;
    }
    for (uint64_t left = item.count; left > 0; left--) {
        struct entry entry;
        if (reading_is_over(on)) {
            on->done = false;
            return true;
        }
        if (!entry_unpack(&item.packed, &entry, &item.previous)) {
            return false;
        }
        uint64_t position = item.position - left + 1;
        memcpy(entry.chain_id, item.entry.chain_id, sizeof entry.chain_id);
        if (position > on->position) {
            on->position = position;
            entry_pass(on, &entry, &item.previous);
        }
        if (left == 1 && item.packed.len > 0) {
            return false;
        }
    }
    return true;
}

/* One page of the stream. */
static enum status entries_page(struct redis *self, struct redis_reading *on, struct err *err)
{
    char key[REDIS_NAME_BYTES_MAX + 16];
    char from[32];
    char count[16];
    redisReply *reply = NULL;
    (void)snprintf(key, sizeof key, "{%s}:entries", self->url.name);
    (void)snprintf(from, sizeof from, "%" PRIu64, on->position + 1);
    (void)snprintf(count, sizeof count, "%d", REDIS_ITEMS);
    const char *words[] = {"XRANGE", key, from, "+", "COUNT", count};
    enum status status = call_words(self, words, 6, &reply, err);
    if (status != OK) {
        return status;
    }
    on->done = reply_count(reply) < REDIS_ITEMS;
    for (size_t i = 0; i < reply_count(reply) && status == OK; i++) {
        if (reading_is_over(on)) {
            on->done = false;
            break;
        }
        if (!item_pass(on, reply_at(reply, i))) {
            status = err_set(err, E_CORRUPT, "an entry of the stream is not in its form");
        }
    }
    freeReplyObject(reply);
    return call_fail(self, status);
}

enum status redis_entries(struct store *store, const struct entry_range *range, entry_visit visit,
    void *context, struct err *err)
{
    struct redis *self = redis_of(store);
    struct entry_pace unpaced = {.bytes_max = SIZE_MAX};
    struct redis_reading on = {.range = range,
        .visit = visit,
        .context = context,
        .pace = range->pace == NULL ? &unpaced : range->pace};
    enum status status = OK;
    if (on.pace->place > 0) {
        on.position = on.pace->place - 1;
    } else {
        status = place_find(self, &range->after, &on.position, err);
        on.pace->at = range->after;
        if (status == OK && range->after.seq == 0) {
            memcpy(on.pace->at.chain_id, self->identity.chain_id, sizeof on.pace->at.chain_id);
        }
    }
    while (status == OK && !on.done && !on.stopped && on.bytes < on.pace->bytes_max) {
        status = entries_page(self, &on, err);
    }
    if (status == OK) {
        on.pace->place = on.position + 1;
        on.pace->done = on.done && !on.stopped;
    }
    return status;
}

/* ---- chains --------------------------------------------------------------------------------- */

/* Takes the seq and hash of an entry; without an entry there is no hash. */
static bool last_take(const redisReply *row, size_t at, uint64_t *ret_seq, struct digest *ret_hash)
{
    uint64_t seq = 0;
    if (!reply_u64(reply_at(row, at), &seq) ||
        (seq > 0 && !hash_take(reply_at(row, at + 1), ret_hash))) {
        return false;
    }
    *ret_seq = seq;
    return true;
}

static bool chain_take(const redisReply *row, struct store_chain *ret_chain)
{
    struct slice text;
    struct store_chain chain = {.incarnation = 0};
    uint64_t started_ms = 0;
    uint64_t seen_ms = 0;
    uint64_t ended = 0;
    if (!reply_text(reply_at(row, 0), &text) || !uuid_read(text, chain.chain_id) ||
        !bytes_take(reply_at(row, 1), chain.public_key, sizeof chain.public_key) ||
        !reply_u64(reply_at(row, 2), &chain.incarnation) ||
        !reply_u64(reply_at(row, 3), &started_ms) || started_ms > INT64_MAX ||
        !reply_u64(reply_at(row, 4), &seen_ms) || seen_ms > INT64_MAX ||
        !reply_u64(reply_at(row, 5), &ended) || !last_take(row, 6, &chain.seq, &chain.hash) ||
        !last_take(row, 8, &chain.removed_seq, &chain.removed_hash)) {
        return false;
    }
    chain.settled = true; /* a commit and its entries become visible together */
    chain.started_ms = (int64_t)started_ms;
    chain.seen_ms = (int64_t)seen_ms;
    chain.ended = ended != 0;
    *ret_chain = chain;
    return true;
}

/* Visits one page; *ret_stopped: the visitor stopped. */
static enum status chains_page(struct redis *self, size_t from, store_chain_visit visit,
    void *context, size_t *ret_count, bool *ret_stopped, struct err *err)
{
    redisReply *reply = NULL;
    call_begin(self);
    call_u64(self, from);
    call_u64(self, REDIS_CHAINS);
    enum status status = call_run(self, &redis_script_chains, &reply, err);
    if (status != OK) {
        return status;
    }
    *ret_count = reply_count(reply);
    for (size_t i = 0; i < *ret_count && status == OK && !*ret_stopped; i++) {
        struct store_chain chain;
        if (!chain_take(reply_at(reply, i), &chain)) {
            status = call_fail(self, reply_malformed(&redis_script_chains, err));
        } else {
            *ret_stopped = !visit(context, &chain);
        }
    }
    freeReplyObject(reply);
    return status;
}

enum status redis_chains(
    struct store *store, store_chain_visit visit, void *context, struct err *err)
{
    size_t from = 0;
    size_t count = REDIS_CHAINS;
    bool stopped = false;
    enum status status = OK;
    while (status == OK && count == REDIS_CHAINS && !stopped) {
        status = chains_page(redis_of(store), from, visit, context, &count, &stopped, err);
        from += count;
    }
    return status;
}
