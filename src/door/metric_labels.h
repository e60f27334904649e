/*
 * metric_labels: which labels there are, and the number that each is counted under.
 *
 * A scope and its tenant get a number the first time they are seen and keep it. Each tenant has
 * room for METRICS_SCOPES_OWN scopes of its own, and all together for METRICS_SERIES_MAX more; past
 * that a new one is counted under scope "_other" of its tenant, and past METRICS_TENANTS_MAX
 * tenants under tenant "_other", which several share.
 *
 * Promises:  numbers are dense from 0 and bounded; no two of them have the same labels. Every label
 *            is a valid name (base/name.h): what is not one is counted under "_other".
 * Threads:   any. Who looks up what is known takes no lock.
 */
#ifndef ONCE_DOOR_METRIC_LABELS_H
#define ONCE_DOOR_METRIC_LABELS_H

#include "door/metrics.h"

enum {
    SERIES_TENANTS_MAX = METRICS_TENANTS_MAX + 1, /* and "_other" */
    SERIES_OWN_MAX = METRICS_TENANTS_MAX * METRICS_SCOPES_OWN,
    /* and one "_other" a tenant */
    SERIES_MAX = METRICS_SERIES_MAX + SERIES_OWN_MAX + SERIES_TENANTS_MAX,
    SERIES_ROUTES_MAX = 64, /* far more than there are */
};

struct metric_labels;

/* Where something is counted. */
struct metric_labels_place {
    size_t series; /* of the scope in its tenant */
    size_t tenant;
};

struct metric_labels_tenant {
    size_t number;
    struct slice name; /* empty: there is no such tenant yet */
    bool is_shared;    /* "_other": more than one tenant is counted here */
};

struct metric_labels_name {
    struct metric_labels_tenant tenant;
    struct slice scope;
};

struct metric_labels *metric_labels_new(const struct mem *mem) MUST_CHECK;
void metric_labels_free(struct metric_labels *labels);

/* Never fails: without memory for a new name it is one of the others. */
struct metric_labels_place metric_labels_find(
    struct metric_labels *labels, struct slice tenant, struct slice scope);
/* The tenant has a number from now on, whatever is counted; where there is room for it. */
void metric_labels_expect(struct metric_labels *labels, struct slice tenant);
/* Numbers below this have a name. */
size_t metric_labels_count(const struct metric_labels *labels);
struct metric_labels_name metric_labels_name(const struct metric_labels *labels, size_t number);
struct metric_labels_tenant metric_labels_tenant(const struct metric_labels *labels, size_t number);

/* route is static. */
size_t metric_labels_route(struct metric_labels *labels, const char *route);
/* NULL: not used yet. */
const char *metric_labels_route_name(const struct metric_labels *labels, size_t number);

#endif
