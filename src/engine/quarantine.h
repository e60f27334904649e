/*
 * quarantine: tenants that hold grants this store never gave, because it is an older copy.
 *
 * Whoever restores a backup loses the newest part of what was remembered; granting could repeat it
 * (P1). A holder that comes back with a fence from that lost future gives the loss away, and from
 * then on its tenant gets no grants until the process is started anew by somebody who knows.
 *
 * Promises:  one tenant cannot stop another (P9): ids and fences can be made up, so only the tenant
 *            that showed one is held. None of the lost fences is ever given again (P4), and what a
 *            caller makes up cannot use the fences up (LIMIT_LOST_FENCES_MAX).
 * Threads:   the engine thread alone.
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
    bool all;          /* there were more than fit, or the operator's own tools saw it */
    int64_t opened_ms; /* the store's time when it was opened: a lost future is after that */
    uint64_t fence;    /* the latest that was shown, for the message */
    uint64_t floor;    /* fences of the next commit on are greater than this; 0: nothing to raise */
};

/* A holder's request whose operation is absent, and the highest fence that was ever given out.
 * True: it is from a lost future, and its tenant is held from now on. The fences are to be raised
 * with the next commit, and the floor is then to be set to 0; until that was possible the
 * quarantine itself keeps grants from happening. */
bool quarantine_notice(
    struct quarantine *quarantine, uint64_t fence_highest, const struct request *request);
bool quarantine_holds(const struct quarantine *quarantine, struct slice tenant);
/* Say so. */
void quarantine_say(const struct quarantine *quarantine, struct err *err);

#endif
