#include "lib/inspect.h"

#include <stdio.h>
#include <string.h>

#include "base/limits.h"
#include "core/record.h"
#include "store/journal/journal.h"

enum {
    PAGE_RECORDS = 256,
    PAGE_BYTES_MAX = 64 << 20, /* of such a page */
    BACK_FIRST = 4096,         /* entries from the end that are read first for a checkpoint */
};

static enum status open_to_read(const char *url, struct store **ret_store, struct err *err)
{
    struct store_options options = {.read_only = true, .must_exist = true};
    return store_open(url, &options, ret_store, err);
}

static void close_store(struct store *store)
{
    (void)store->ops->close(store, NULL); /* only read */
}

bool inspect_is_operation_id(const char *text)
{
    struct op_id id;
    return op_id_read(slice_str(text), &id);
}

enum status inspect_speed(const char *dir, struct inspect_speed *ret_speed, struct err *err)
{
    struct journal_speed speed = {0};
    enum status status = journal_measure(dir, &io_system, &mem_libc, &speed, err);
    if (status == OK) {
        *ret_speed = (struct inspect_speed){
            speed.buffered_p50_ns, speed.buffered_p99_ns, speed.direct_p50_ns, speed.direct_p99_ns};
    }
    return status;
}

/* ---- facts ------------------------------------------------------------------------------- */

static enum status find_oldest_unknown(struct store *store, int64_t *ret_since_ms, struct err *err)
{
    struct arena arena;
    struct scan scan = {.kinds = STORE_OPERATIONS, .status = RECORD_UNKNOWN, .limit = PAGE_RECORDS};
    const struct record *records[PAGE_RECORDS];
    enum status status = OK;
    int64_t oldest = 0;
    size_t count = 0;
    arena_init(&arena, &mem_libc, PAGE_BYTES_MAX);
    do {
        arena_clear(&arena);
        status = store->ops->scan(store, &scan, &arena, records, &count, err);
        for (size_t i = 0; status == OK && i < count; i++) {
            int64_t since = records[i]->updated_ms;
            oldest = oldest == 0 || since < oldest ? since : oldest;
            scan.after = records[i]->key.hash;
        }
    } while (status == OK && count == scan.limit);
    arena_release(&arena);
    *ret_since_ms = oldest;
    return status;
}

static enum status read_key(struct store *store, struct checkpoint_key *ret_key, struct err *err)
{
    struct store_identity identity;
    store->ops->identity(store, &identity, NULL);
    enum status status = checkpoint_key_of(&identity, ret_key, err);
    mem_wipe(&identity, sizeof identity);
    return status;
}

static enum status read_journal(
    struct store *store, struct inspect_facts *ret_facts, struct err *err)
{
    struct journal_info info = {0};
    struct checkpoint_key key;
    enum status status = journal_info(store, &info, err);
    ret_facts->bytes = info.bytes;
    ret_facts->segments = info.segments;
    ret_facts->segments_squeezed = info.segments_squeezed;
    ret_facts->index_bytes = info.index_bytes;
    ret_facts->writes_direct = info.direct;
    ret_facts->save_failed = info.snapshot_failed;
    status = status == OK ? read_key(store, &key, err) : status;
    if (status == OK) {
        (void)checkpoint_key_put(ret_facts->public_key, &key);
    }
    return status;
}

static bool count_chain(void *context, const struct store_chain *chain)
{
    struct inspect_facts *facts = context;
    facts->chains++;
    facts->processes += !chain->ended && chain->seen_ms + LIMIT_HOLDER_GONE_MS > facts->time_ms;
    return true;
}

static enum status read_shared(
    struct store *store, struct inspect_facts *ret_facts, struct err *err)
{
    struct store_batch now = {.count = 0};
    enum status status = store->ops->read(store, &now, err);
    ret_facts->is_shared = true;
    ret_facts->time_ms = now.now_ms;
    status = status == OK ? store->ops->chains(store, count_chain, ret_facts, err) : status;
    for (size_t i = 0; i < INSPECT_CAUTIONS_MAX && store->ops->caution != NULL; i++) {
        const char *caution = store->ops->caution(store, i);
        if (caution == NULL) {
            break;
        }
        (void)snprintf(ret_facts->cautions[i], INSPECT_CAUTION_BYTES, "%s", caution);
        ret_facts->cautions_count++;
    }
    return status;
}

static enum status read_facts(struct store *store, struct inspect_facts *ret_facts, struct err *err)
{
    struct store_head head;
    struct store_counts counts;
    enum status status = store->ops->counts(store, STORE_KINDS_ASKED, &counts, err);
    if (status != OK) {
        return status;
    }
    store->ops->head(store, &head);
    *ret_facts = (struct inspect_facts){.operations = counts.records,
        .in_progress = counts.by_status[RECORD_IN_PROGRESS],
        .unknown = counts.by_status[RECORD_UNKNOWN],
        .entries = head.seq,
        .time_ms = head.moment.time_ms,
        .boot_ms = head.moment.boot_ms,
        .boot_id = head.moment.boot_id,
        .jump_ms = head.moment.jump_ms};
    status = store->ops->shared ? read_shared(store, ret_facts, err)
                                : read_journal(store, ret_facts, err);
    return status == OK && ret_facts->unknown > 0
               ? find_oldest_unknown(store, &ret_facts->unknown_since_ms, err)
               : status;
}

enum status inspect_store(const char *url, struct inspect_facts *ret_facts, struct err *err)
{
    struct store *store = NULL;
    enum status status = open_to_read(url, &store, err);
    if (status == OK) {
        status = read_facts(store, ret_facts, err);
        close_store(store);
    }
    return status;
}

/* ---- the newest checkpoint ---------------------------------------------------------------- */

/* The last one seen. */
struct newest {
    struct buf *out;
    uint64_t seq;
};

static bool keep_checkpoint(void *context, const struct entry *entry)
{
    struct newest *newest = context;
    if (entry->kind == ENTRY_CHECKPOINT) {
        buf_clear(newest->out);
        buf_append(newest->out, entry->bytes.data, entry->bytes.len);
        newest->seq = entry->seq;
    }
    return true;
}

/* Read the end first and then further back: with one a minute it is rarely far from the end. */
static enum status find_checkpoint(struct store *store, struct newest *newest, struct err *err)
{
    struct store_head head;
    uint64_t back = BACK_FIRST;
    enum status status = OK;
    store->ops->head(store, &head);
    for (bool whole = false; status == OK && newest->out->len == 0 && !whole; back *= 16) {
        whole = back >= head.seq;
        struct entry_range range = {.after = entry_cursor_own(store, whole ? 0 : head.seq - back)};
        status = store->ops->entries(store, &range, keep_checkpoint, newest, err);
    }
    return status == OK ? buf_status(newest->out) : status;
}

enum status inspect_checkpoint(const char *url, struct buf *out, uint64_t *ret_seq, struct err *err)
{
    struct store *store = NULL;
    struct newest newest = {.out = out};
    struct checkpoint_key key;
    struct checkpoint checkpoint;
    enum status status = open_to_read(url, &store, err);
    if (status != OK) {
        return status;
    }
    status = find_checkpoint(store, &newest, err);
    /* One that does not check out is worth nothing elsewhere. */
    if (status == OK && out->len > 0) {
        status = read_key(store, &key, err);
        status = status == OK ? checkpoint_verify(buf_view(out), &key, &checkpoint, err) : status;
    }
    close_store(store);
    *ret_seq = newest.seq;
    return status;
}
