#include "engine/quarantine.h"

#include <string.h>

#include "base/check.h"

bool quarantine_holds(const struct quarantine *quarantine, struct slice tenant)
{
    ASSERT(quarantine->count <= LIMIT_QUARANTINED_TENANTS_MAX); /* P14 */
    bool held = quarantine->all;
    for (size_t i = 0; !held && i < quarantine->count; i++) {
        held =
            slice_equal(slice_of(quarantine->tenants[i].name, quarantine->tenants[i].len), tenant);
    }
    return held;
}

/* Its operation was made after the last commit that was found at opening, and its fence is greater
 * than all of ours, by no more than can have been granted since, and matches the id. */
static bool from_lost_future(
    const struct quarantine *quarantine, const struct request *request, uint64_t fence_highest)
{
    return request->fence > fence_highest &&
           request->fence - fence_highest <= LIMIT_LOST_FENCES_MAX &&
           (request->fence & 0x3ffffff) == op_id_fence(&request->operation_id) &&
           op_id_time_ms(&request->operation_id) >= quarantine->opened_ms;
}

bool quarantine_notice(
    struct quarantine *quarantine, uint64_t fence_highest, const struct request *request)
{
    struct slice tenant = request->key.tenant;
    if (request->kind == REQUEST_BEGIN || request->fence == 0 ||
        !from_lost_future(quarantine, request, fence_highest)) {
        return false;
    }
    quarantine->fence = request->fence;
    if (!quarantine_holds(quarantine, tenant)) {
        uint64_t floor = request->fence + LIMIT_QUARANTINE_FENCES;
        ASSERT(floor > request->fence);
        quarantine->floor = floor > quarantine->floor ? floor : quarantine->floor;
        if (tenant.len == 0 || tenant.len > LIMIT_TENANT_BYTES_MAX ||
            quarantine->count == LIMIT_QUARANTINED_TENANTS_MAX) {
            quarantine->all = true;
        } else {
            memcpy(quarantine->tenants[quarantine->count].name, tenant.data, tenant.len);
            quarantine->tenants[quarantine->count++].len = tenant.len;
        }
    }
    return true;
}

void quarantine_describe(const struct quarantine *quarantine, struct err *err)
{
    (void)err_set(err, E_UNAVAILABLE,
        "quarantined: a caller holds fence %llu, which this store never gave out",
        (unsigned long long)quarantine->fence);
    err_hint(err,
        "the store is an older copy than the one that granted it; put the newer one back, or "
        "settle what was lost by hand and restart to accept the loss");
}
