/*
 * quarantine: tenants with grants that this store never gave, because it is an older copy.
 *
 * Restoring a backup loses the newest records, and granting could repeat their effects (P1). A
 * holder that returns with a fence from that lost future reveals the loss. From then on its tenant
 * gets no grants until an operator restarts the process.
 *
 * Promises:  one tenant cannot stop a different one (P9): ids and fences can be made up, so only
 *            the tenant that presented one is held. No lost fence is ever given again (P4), and a
 *            made-up fence cannot exhaust the fences (LIMIT_LOST_FENCES_MAX).
 * Threads:   the one that has the engine's turn.
 */
#ifndef ONCE_ENGINE_QUARANTINE_H
#define ONCE_ENGINE_QUARANTINE_H

#include "base/limits.h"
#include "store/store.h"

struct quarantine {
    struct {
        size_t len;
        char name[LIMIT_TENANT_BYTES_MAX];
    } tenants[LIMIT_QUARANTINED_TENANTS_MAX];
    size_t count;
    bool all;          /* every tenant: more than fit, or found by the operator's own tools */
    int64_t opened_ms; /* time of the last commit found at opening: a lost future is later */
    uint64_t fence;    /* the latest that was presented, for the message */
    uint64_t floor;    /* fences after the next commit are greater than this; 0: nothing to raise */
};

/* Checks a holder's request whose operation is absent against the highest fence ever given out.
 * True: it is from a lost future, and its tenant is held from now on. The caller raises the fences
 * with the next commit and then sets the floor to 0; until then the quarantine prevents grants. */
bool quarantine_notice(
    struct quarantine *quarantine, uint64_t fence_highest, const struct request *request);
bool quarantine_holds(const struct quarantine *quarantine, struct slice tenant);
/* Writes the refusal into err. */
void quarantine_describe(const struct quarantine *quarantine, struct err *err);

#endif
