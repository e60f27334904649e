/*
 * series: which labels there are, and the number that each is counted under.
 *
 * A scope and its tenant get a number the first time they are seen and keep it. Each tenant has
 * room for METRICS_SCOPES_OWN scopes of its own, and all together for METRICS_SERIES_MAX more; past
 * that a new one is counted under scope "_other" of its tenant, and past METRICS_TENANTS_MAX
 * tenants under tenant "_other", which several share.
 *
 * Promises:  numbers are dense from 0 and bounded; no two of them have the same labels.
 * Threads:   any. Who looks up what is known takes no lock.
 */
#ifndef ONCE_DOOR_SERIES_H
#define ONCE_DOOR_SERIES_H

#include "door/metrics.h"

enum {
    SERIES_TENANTS_MAX = METRICS_TENANTS_MAX + 1, /* and "_other" */
    SERIES_OWN_MAX = METRICS_TENANTS_MAX * METRICS_SCOPES_OWN,
    /* and one "_other" a tenant */
    SERIES_MAX = METRICS_SERIES_MAX + SERIES_OWN_MAX + SERIES_TENANTS_MAX,
    SERIES_ROUTES_MAX = 64, /* far more than there are */
};

struct series;

/* Where something is counted. */
struct series_place {
    size_t series; /* of the scope in its tenant */
    size_t tenant;
};

struct series_tenant {
    size_t number;
    struct slice name; /* empty: there is no such tenant yet */
    bool is_shared;    /* "_other": more than one tenant is counted here */
};

struct series_name {
    struct series_tenant tenant;
    struct slice scope;
};

struct series *series_new(const struct mem *mem) MUST_CHECK;
void series_free(struct series *series);

/* Never fails: without memory for a new name it is one of the others. */
struct series_place series_find(struct series *series, struct slice tenant, struct slice scope);
/* Numbers below this have a name. */
size_t series_count(const struct series *series);
struct series_name series_name(const struct series *series, size_t number);
struct series_tenant series_tenant(const struct series *series, size_t number);

/* route is static. */
size_t series_route(struct series *series, const char *route);
/* NULL: not used yet. */
const char *series_route_name(const struct series *series, size_t number);

#endif
