/* The meaning of wants, counts, scans and ranges of entries, for all stores. */
#include <string.h>

#include "base/check.h"
#include "store/store.h"

bool scan_match(const struct scan *scan, const struct record *record)
{
    return store_kind_in(scan->kinds, record->kind) &&
           memcmp(record->key.hash.bytes, scan->after.bytes, DIGEST_BYTES) > 0 &&
           (scan->tenant.len == 0 || slice_equal(scan->tenant, record->key.tenant)) &&
           (scan->scope.len == 0 || slice_equal(scan->scope, record->key.scope)) &&
           (scan->key.len == 0 || slice_equal(scan->key, record->key.key)) &&
           (scan->status == 0 || scan->status == record->status) &&
           (scan->updated_from_ms == 0 || record->updated_ms >= scan->updated_from_ms) &&
           (scan->updated_until_ms == 0 || record->updated_ms < scan->updated_until_ms) &&
           (scan->now_ms == 0 || !record_window_over(record, scan->now_ms));
}

struct store_due store_due_of(const struct record *record)
{
    return (struct store_due){.kind = record->kind,
        .reason = record_due(record),
        .door = record->door,
        .operation_id = record->operation_id,
        .due_ms = record_due_ms(record),
        .fence = record->fence};
}

bool store_due_before(const struct store_due_cursor *a, const struct store_due_cursor *b)
{
    if (a->due != b->due) {
        return a->due < b->due;
    }
    return a->key_high != b->key_high ? a->key_high < b->key_high : a->key_low < b->key_low;
}

enum status entry_cursor_check(
    const struct entry_cursor *cursor, const unsigned char chain_id[16], struct err *err)
{
    static const struct entry_cursor start = {{0}, 0};
    bool is_start = cursor->seq == start.seq &&
                    memcmp(cursor->chain_id, start.chain_id, sizeof start.chain_id) == 0;
    return is_start || memcmp(cursor->chain_id, chain_id, sizeof cursor->chain_id) == 0
               ? OK
               : err_set(err, E_INVALID, "the cursor belongs to a different chain of evidence");
}

struct entry_cursor entry_cursor_own(struct store *store, uint64_t seq)
{
    struct store_identity identity;
    struct entry_cursor cursor = {.seq = seq};
    store->ops->identity(store, &identity, NULL);
    memcpy(cursor.chain_id, identity.chain_id, sizeof cursor.chain_id);
    mem_wipe(&identity, sizeof identity);
    return cursor;
}

bool entry_match(const struct entry_range *range, const struct entry *entry)
{
    return (range->tenant.len == 0 || slice_equal(range->tenant, entry->tenant)) && /* P9 */
           (range->from_ms == 0 || entry->time_ms >= range->from_ms) &&
           (range->operation_id == NULL || op_id_equal(range->operation_id, &entry->operation_id));
}

bool entry_in_range(const struct entry_range *range, const struct entry *entry)
{
    /* A note has the seq of the last entry it covers, and is in range with that entry. */
    return entry->seq > range->after.seq && entry_match(range, entry);
}

struct scan_walk scan_walk_start(const struct scan *scan)
{
    struct scan_pace *pace = scan->pace;
    ASSERT(pace == NULL || (pace->looks_max > 0 && pace->reads_max > 0)); /* or it never ends */
    return (struct scan_walk){.pace = pace, .after = scan->after};
}

bool scan_walk_step(struct scan_walk *walk, const struct digest *hash, bool reads)
{
    const struct scan_pace *pace = walk->pace;
    if (pace != NULL &&
        (walk->looks == pace->looks_max || (reads && walk->reads == pace->reads_max))) {
        return false;
    }
    walk->looks++;
    walk->reads += reads;
    walk->after = *hash;
    return true;
}

void scan_walk_end(struct scan_walk *walk, bool done)
{
    if (walk->pace != NULL) {
        walk->pace->after = walk->after;
        walk->pace->done = done;
    }
}

void store_tally_add(
    struct store_tally *tally, enum record_kind kind, enum record_status status, bool more)
{
    ASSERT((unsigned)kind < STORE_KINDS && (unsigned)status < STORE_STATUSES);
    uint64_t *count = &tally->counts[kind][status];
    ASSERT(more || *count > 0);
    *count += more ? 1 : UINT64_MAX;
}

struct store_counts store_tally_of(const struct store_tally *tally, unsigned kinds)
{
    struct store_counts counts = {.records = 0};
    for (unsigned kind = 0; kind < STORE_KINDS; kind++) {
        for (unsigned status = 0; (kinds >> kind & 1) != 0 && status < STORE_STATUSES; status++) {
            counts.records += tally->counts[kind][status];
            counts.by_status[status] += tally->counts[kind][status];
        }
    }
    return counts;
}

struct want_choice want_choose(const struct store_want *want, int64_t now_ms)
{
    const struct record *record = want->record;
    unsigned bodies = want->bodies;
    ASSERT(record != NULL);
    bool foreign = want->tenant.len > 0 && !slice_equal(want->tenant, record->key.tenant); /* P9 */
    if (bodies == WANT_NO_BODY || foreign || record_window_over(record, now_ms)) {
        return (struct want_choice){.outcome = false};
    }
    ASSERT(want->arena != NULL);
    if ((bodies & WANT_BY_FINGERPRINT) != 0) {
        bodies |=
            digest_equal(want->fingerprint, &record->fingerprint) ? WANT_OUTCOME : WANT_REQUEST;
    }
    const struct body_ref *outcome = &record->outcome.body;
    return (struct want_choice){
        .outcome = (bodies & WANT_OUTCOME) != 0 && outcome->retained && outcome->bytes > 0,
        .request = (bodies & WANT_REQUEST) != 0 && record->request.retained};
}
