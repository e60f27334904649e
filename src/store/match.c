/* What the filters of a scan and of a range of entries mean, the same for all stores. */
#include "store/store.h"

bool scan_match(const struct scan *scan, const struct record *record)
{
    return record->kind == RECORD_OPERATION &&
           memcmp(record->key.hash.bytes, scan->after.bytes, DIGEST_BYTES) > 0 &&
           (scan->tenant.len == 0 || slice_equal(scan->tenant, record->key.tenant)) &&
           (scan->scope.len == 0 || slice_equal(scan->scope, record->key.scope)) &&
           (scan->key.len == 0 || slice_equal(scan->key, record->key.key)) &&
           (scan->status == 0 || scan->status == record->status) &&
           (scan->updated_from_ms == 0 || record->updated_ms >= scan->updated_from_ms) &&
           (scan->updated_until_ms == 0 || record->updated_ms < scan->updated_until_ms);
}

bool entry_in_range(const struct entry_range *range, const struct entry *entry)
{
    /* A note belongs behind the entries it covers: it comes with those behind after_seq. */
    return entry->seq > range->after_seq &&
           (range->from_ms == 0 || entry->time_ms >= range->from_ms) &&
           (range->operation_id == NULL || op_id_equal(range->operation_id, &entry->operation_id));
}
