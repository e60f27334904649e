/*
 * metric_labels: the labels that exist, and the number that each is counted under.
 *
 * A scope and its tenant get a number the first time they are seen and keep it. Each tenant has
 * room for its own METRICS_SCOPES_OWN scopes; all tenants together have room for METRICS_SERIES_MAX
 * more. Beyond that a new scope is counted under scope "_other" of its tenant. Tenants beyond
 * METRICS_TENANTS_MAX share the tenant "_other".
 *
 * Promises:  numbers are dense from 0 and bounded; no two of them have the same labels. Every label
 *            is a valid name (base/name.h): any other is counted under "_other".
 * Threads:   any. Looking up a known label takes no lock.
 */
#ifndef ONCE_DOOR_METRIC_LABELS_H
#define ONCE_DOOR_METRIC_LABELS_H

#include "door/metrics.h"

enum {
    SERIES_TENANTS_MAX = METRICS_TENANTS_MAX + 1, /* with "_other" */
    SERIES_OWN_MAX = METRICS_TENANTS_MAX * METRICS_SCOPES_OWN,
    /* with one "_other" for each tenant */
    SERIES_MAX = METRICS_SERIES_MAX + SERIES_OWN_MAX + SERIES_TENANTS_MAX,
    SERIES_ROUTES_MAX = 64, /* far more than there are */
};

struct metric_labels;

/* Where a decision is counted. */
struct metric_labels_place {
    size_t series; /* number of the scope in its tenant */
    size_t tenant;
};

struct metric_labels_tenant {
    size_t number;
    struct slice name; /* empty: there is no such tenant yet */
    bool is_shared;    /* "_other": several tenants are counted here */
};

struct metric_labels_name {
    struct metric_labels_tenant tenant;
    struct slice scope;
};

struct metric_labels *metric_labels_new(const struct mem *mem) MUST_CHECK;
void metric_labels_free(struct metric_labels *labels);

/* Never fails: a new name that there is no memory for is counted under "_other". */
struct metric_labels_place metric_labels_find(
    struct metric_labels *labels, struct slice tenant, struct slice scope);
/* Give the tenant a number before anything is counted, if there is room. */
void metric_labels_expect(struct metric_labels *labels, struct slice tenant);
/* The numbers below this have a name. */
size_t metric_labels_count(const struct metric_labels *labels);
struct metric_labels_name metric_labels_name(const struct metric_labels *labels, size_t number);
struct metric_labels_tenant metric_labels_tenant(const struct metric_labels *labels, size_t number);

/* route must be static. */
size_t metric_labels_route(struct metric_labels *labels, const char *route);
/* NULL: not used yet. */
const char *metric_labels_route_name(const struct metric_labels *labels, size_t number);

#endif
