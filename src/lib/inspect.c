#include "lib/inspect.h"

#include <stdio.h>
#include <string.h>

#include "base/limits.h"
#include "core/decide.h"
#include "engine/pace.h"
#include "store/clock.h"
#include "store/journal/journal.h"

enum {
    PAGE_RECORDS = 256,
    PAGE_BYTES_MAX = 64 << 20, /* of such a page */
    BACK_FIRST = 4096,         /* entries before the end that are searched first for a checkpoint */
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
    static const enum journal_way ways[INSPECT_WAYS] = {
        JOURNAL_WAY_BUFFERED, JOURNAL_WAY_DIRECT, JOURNAL_WAY_URING};
    struct journal_measuring how = {.directory = dir};
    struct journal_speed speed = {0};
    enum status status = journal_measure(&how, &speed, err);
    for (size_t i = 0; status == OK && i < INSPECT_WAYS; i++) {
        const struct journal_way_speed *measured = &speed.ways[ways[i]];
        uint64_t quick_ns = PACE_QUICK_NANOS * (ways[i] == JOURNAL_WAY_URING ? PACE_FLIGHT : 1);
        ret_speed->ways[i] = (struct inspect_way){.name = journal_way_name(ways[i]),
            .text = journal_way_text(ways[i]),
            .impossible = measured->error == 0 ? NULL : strerror(measured->error),
            .p50_ns = measured->p50_ns,
            .p99_ns = measured->p99_ns,
            .is_fastest = speed.fastest == ways[i],
            .is_quick = measured->p50_ns < quick_ns};
    }
    return status;
}

/* ---- facts ------------------------------------------------------------------------------- */

/* Finds the oldest of the unknown operations that the store has with this status. Those in progress
 * whose lease is over count as unknown: only a writer's janitor records that they are. */
static enum status find_unknown(struct store *store, enum record_status stored, int64_t now_ms,
    struct inspect_facts *facts, struct err *err)
{
    struct arena arena;
    struct scan scan = {.kinds = STORE_OPERATIONS, .status = stored, .limit = PAGE_RECORDS};
    const struct record *records[PAGE_RECORDS];
    enum status status = OK;
    size_t count = 0;
    arena_init(&arena, &mem_libc, PAGE_BYTES_MAX);
    do {
        arena_clear(&arena);
        status = store->ops->scan(store, &scan, &arena, records, &count, err);
        for (size_t i = 0; status == OK && i < count; i++) {
            struct record lapsed;
            bool is_lapsed = decide_lease_over(records[i], now_ms, &lapsed);
            const struct record *found = is_lapsed ? &lapsed : records[i];
            int64_t oldest = facts->unknown_since_ms;
            if (found->status == RECORD_UNKNOWN && (oldest == 0 || found->updated_ms < oldest)) {
                facts->unknown_since_ms = found->updated_ms;
            }
            facts->unknown += is_lapsed;
            facts->in_progress -= is_lapsed && facts->in_progress > 0;
            scan.after = records[i]->key.hash;
        }
    } while (status == OK && count == scan.limit);
    arena_release(&arena);
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

/* What only a journal has. */
static enum status read_journal_facts(
    struct store *store, struct inspect_facts *facts, struct err *err)
{
    struct journal_info info = {0};
    struct checkpoint_key key;
    enum status status = journal_info(store, &info, err);
    facts->bytes = info.bytes;
    facts->segments = info.segments;
    facts->segments_squeezed = info.segments_squeezed;
    facts->index_bytes = info.index_bytes;
    facts->way = info.way == JOURNAL_WAY_AUTO ? NULL : journal_way_text(info.way);
    facts->save_failed = info.snapshot_failed;
    status = status == OK ? read_key(store, &key, err) : status;
    if (status == OK) {
        (void)checkpoint_key_put(facts->public_key, &key);
    }
    return status;
}

static bool count_chain(void *context, const struct store_chain *chain)
{
    struct inspect_facts *facts = context;
    bool beats = !chain->ended && chain->incarnation != 0 &&
                 facts->time_ms - chain->seen_ms < LIMIT_HOLDER_GONE_MS;
    facts->processes += beats;
    facts->chains++;
    return true;
}

/* What only a store on a database server has. */
static enum status read_shared_facts(
    struct store *store, struct inspect_facts *facts, struct err *err)
{
    facts->shared = true;
    for (size_t i = 0; store->ops->caution != NULL && i < INSPECT_CAUTIONS_MAX; i++) {
        const char *text = store->ops->caution(store, i);
        if (text == NULL) {
            break;
        }
        (void)snprintf(facts->cautions[i], INSPECT_CAUTION_BYTES, "%s", text);
    }
    return store->ops->chains(store, count_chain, facts, err);
}

/* The store's time now: head's is that of the last commit. */
static enum status read_time(struct store *store, struct inspect_facts *facts, struct err *err)
{
    struct arena arena;
    arena_init(&arena, &mem_libc, PAGE_BYTES_MAX);
    struct store_batch nothing = {.arena = &arena};
    enum status status = store->ops->read(store, &nothing, err);
    facts->time_ms = nothing.clock_ms > 0 ? nothing.clock_ms : nothing.now_ms;
    arena_release(&arena);
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
    if (store->ops->shared) {
        status = read_time(store, ret_facts, err);
        status = status == OK ? read_shared_facts(store, ret_facts, err) : status;
    } else {
        status = read_journal_facts(store, ret_facts, err);
    }
    int64_t now_ms =
        store->ops->shared ? ret_facts->time_ms : store_clock_reader_ms(&head.moment); /* P8 */
    if (status == OK && ret_facts->unknown > 0) {
        status = find_unknown(store, RECORD_UNKNOWN, now_ms, ret_facts, err);
    }
    if (status == OK && ret_facts->in_progress > 0) {
        status = find_unknown(store, RECORD_IN_PROGRESS, now_ms, ret_facts, err);
    }
    return status;
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
    unsigned char chain_id[16];
};

static bool keep_checkpoint(void *context, const struct entry *entry)
{
    struct newest *newest = context;
    if (entry->kind == ENTRY_CHECKPOINT) {
        buf_clear(newest->out);
        buf_append(newest->out, entry->bytes.data, entry->bytes.len);
        newest->seq = entry->seq;
        memcpy(newest->chain_id, entry->chain_id, sizeof newest->chain_id);
    }
    return true;
}

/* Searches backwards from the end: with one checkpoint a minute it is rarely far. */
static enum status find_checkpoint(struct store *store, struct newest *newest, struct err *err)
{
    struct store_head head;
    uint64_t back = BACK_FIRST;
    enum status status = OK;
    store->ops->head(store, &head);
    if (store->ops->shared) { /* many chains, whose ends are not at a known place */
        struct entry_range all = {0};
        status = store->ops->entries(store, &all, keep_checkpoint, newest, err);
        return status == OK ? buf_status(newest->out) : status;
    }
    for (bool whole = false; status == OK && newest->out->len == 0 && !whole; back *= 16) {
        whole = back >= head.seq;
        struct entry_range range = {.after = entry_cursor_own(store, whole ? 0 : head.seq - back)};
        status = store->ops->entries(store, &range, keep_checkpoint, newest, err);
    }
    return status == OK ? buf_status(newest->out) : status;
}

/* The public key of one chain. */
struct chain_wanted {
    const unsigned char *chain_id;
    struct checkpoint_key key;
    bool found;
};

static bool keep_key(void *context, const struct store_chain *chain)
{
    struct chain_wanted *wanted = context;
    if (memcmp(chain->chain_id, wanted->chain_id, sizeof chain->chain_id) == 0) {
        checkpoint_key_make(chain->chain_id, chain->public_key, &wanted->key);
        wanted->found = true;
    }
    return !wanted->found;
}

/* The key for the note: the store knows the key of each chain. */
static enum status key_of_note(struct store *store, const struct newest *newest,
    struct checkpoint_key *ret_key, struct err *err)
{
    struct chain_wanted wanted = {.chain_id = newest->chain_id};
    if (store->ops->chains == NULL) {
        return read_key(store, ret_key, err);
    }
    enum status status = store->ops->chains(store, keep_key, &wanted, err);
    if (status == OK && !wanted.found) {
        return err_set(err, E_CORRUPT, "the chain of the newest checkpoint has no key");
    }
    *ret_key = wanted.key;
    return status;
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
    /* An invalid note would be worthless elsewhere. */
    if (status == OK && out->len > 0) {
        status = key_of_note(store, &newest, &key, err);
        status = status == OK ? checkpoint_verify(buf_view(out), &key, &checkpoint, err) : status;
    }
    close_store(store);
    *ret_seq = newest.seq;
    return status;
}
