#include "door/metric_labels.h"

#include <pthread.h>
#include <stdatomic.h>

#include "base/check.h"
#include "base/name.h"

enum { PLACES = 8192 }; /* of the table; a power of two, more than three times SERIES_MAX */

static_assert(PLACES > 3 * SERIES_MAX, "a search in the table ends soon");

/* A pair that has a number. It never changes after it is published. */
struct labelled {
    size_t tenant; /* the tenant's number */
    size_t number; /* its own number */
    struct slice scope;
    char text[];
};

struct tenant {
    struct slice name; /* stored after this struct */
    size_t scopes;     /* with a number, not counting "_other"; under the lock */
};

/*
 * ML1 places, names and tenants only ever get new entries, under the lock; each is written before
 *     the pointer or count that leads to it (release), so readers need no lock (acquire).
 * ML2 tenants[METRICS_TENANTS_MAX] is "_other" and exists from the start.
 */
struct metric_labels {
    const struct mem *mem;
    pthread_mutex_t lock;
    _Atomic(struct labelled *) places[PLACES]; /* by hash of tenant and scope */
    _Atomic(struct labelled *) names[SERIES_MAX];
    atomic_size_t count; /* of names */
    size_t shared_count; /* of these, beyond their tenants' own room; under the lock */
    size_t tenant_count; /* not counting "_other"; under the lock */
    _Atomic(struct tenant *) tenants[SERIES_TENANTS_MAX];
    _Atomic(const char *) routes[SERIES_ROUTES_MAX];
};

static const struct slice other = {"_other", 6};

/* A tenant, with a copy of its name stored after it. */
static struct tenant *tenant_new(const struct mem *mem, struct slice name)
{
    struct tenant *tenant = mem_alloc(mem, sizeof *tenant + name.len);
    if (tenant != NULL) {
        char *text = (char *)(tenant + 1);
        memcpy(text, name.data, name.len);
        *tenant = (struct tenant){.name = slice_of(text, name.len)};
    }
    return tenant;
}

struct metric_labels *metric_labels_new(const struct mem *mem)
{
    struct metric_labels *labels = mem_zalloc(mem, 1, sizeof *labels);
    if (labels == NULL) {
        return NULL;
    }
    labels->mem = mem;
    (void)pthread_mutex_init(&labels->lock, NULL);
    struct tenant *shared = tenant_new(mem, other);
    if (shared == NULL) {
        metric_labels_free(labels);
        return NULL;
    }
    atomic_store(&labels->tenants[METRICS_TENANTS_MAX], shared);
    return labels;
}

void metric_labels_free(struct metric_labels *labels)
{
    if (labels == NULL) {
        return;
    }
    for (size_t i = 0; i < SERIES_MAX; i++) {
        mem_free(labels->mem, atomic_load(&labels->names[i]));
    }
    for (size_t i = 0; i < SERIES_TENANTS_MAX; i++) {
        mem_free(labels->mem, atomic_load(&labels->tenants[i]));
    }
    (void)pthread_mutex_destroy(&labels->lock);
    mem_free(labels->mem, labels);
}

/* FNV-1a. The tenant's length comes first, so that the boundary between the two parts counts. */
static size_t hash_of(struct slice tenant, struct slice scope)
{
    uint64_t hash = 0xcbf29ce484222325 ^ tenant.len;
    struct slice parts[] = {tenant, scope};
    for (size_t p = 0; p < 2; p++) {
        for (size_t i = 0; i < parts[p].len; i++) {
            hash = (hash ^ (unsigned char)parts[p].data[i]) * 0x100000001b3;
        }
    }
    return (size_t)(hash ^ hash >> 29);
}

static struct tenant *tenant_at(const struct metric_labels *labels, size_t number)
{
    return atomic_load_explicit(&labels->tenants[number], memory_order_acquire);
}

/* The pair's place, or the empty place where it belongs. */
static _Atomic(struct labelled *) *search(
    struct metric_labels *labels, struct slice tenant, struct slice scope)
{
    for (size_t at = hash_of(tenant, scope);; at++) {
        _Atomic(struct labelled *) *place = &labels->places[at % PLACES];
        const struct labelled *named = atomic_load_explicit(place, memory_order_acquire);
        if (named == NULL || (slice_equal(named->scope, scope) &&
                                 slice_equal(tenant_at(labels, named->tenant)->name, tenant))) {
            return place;
        }
    }
}

/* --- Making names, under the lock ------------------------------------------------------------- */

static size_t find_tenant(struct metric_labels *labels, struct slice name)
{
    if (slice_equal(name, other)) {
        return METRICS_TENANTS_MAX;
    }
    for (size_t i = 0; i < labels->tenant_count; i++) {
        if (slice_equal(tenant_at(labels, i)->name, name)) {
            return i;
        }
    }
    struct tenant *tenant =
        labels->tenant_count < METRICS_TENANTS_MAX ? tenant_new(labels->mem, name) : NULL;
    if (tenant == NULL) {
        return METRICS_TENANTS_MAX;
    }
    atomic_store_explicit(&labels->tenants[labels->tenant_count], tenant, memory_order_release);
    return labels->tenant_count++;
}

/* Give the pair the next number. NULL: out of memory. */
static const struct labelled *assign_number(
    struct metric_labels *labels, size_t tenant, struct slice scope)
{
    struct labelled *named = mem_alloc(labels->mem, sizeof *named + scope.len);
    if (named == NULL) {
        return NULL;
    }
    size_t number = atomic_load(&labels->count);
    ASSERT(number < SERIES_MAX);
    if (scope.len > 0) {
        memcpy(named->text, scope.data, scope.len);
    }
    *named = (struct labelled){
        .tenant = tenant, .number = number, .scope = slice_of(named->text, scope.len)};
    _Atomic(struct labelled *) *place = search(labels, tenant_at(labels, tenant)->name, scope);
    atomic_store_explicit(&labels->names[number], named, memory_order_release);
    atomic_store_explicit(place, named, memory_order_release);
    atomic_store_explicit(&labels->count, number + 1, memory_order_release);
    return named;
}

/* The scope "_other" of a tenant; every tenant has room for one. */
static const struct labelled *find_other(struct metric_labels *labels, size_t tenant)
{
    const struct labelled *found =
        atomic_load(search(labels, tenant_at(labels, tenant)->name, other));
    return found != NULL ? found : assign_number(labels, tenant, other);
}

/* Give a number to a scope that has none. NULL: no room, or out of memory. */
static const struct labelled *name_scope(
    struct metric_labels *labels, size_t number, struct slice scope)
{
    struct tenant *tenant = tenant_at(labels, number);
    bool is_own = tenant->scopes < METRICS_SCOPES_OWN;
    if (number == METRICS_TENANTS_MAX || slice_equal(scope, other) ||
        (!is_own && labels->shared_count == METRICS_SERIES_MAX)) {
        return NULL;
    }
    const struct labelled *named = assign_number(labels, number, scope);
    if (named != NULL) {
        tenant->scopes++;
        labels->shared_count += !is_own;
    }
    return named;
}

/* The label that a new pair is counted under. */
static const struct labelled *find_or_name(
    struct metric_labels *labels, struct slice tenant_name, struct slice scope)
{
    size_t tenant = find_tenant(labels, tenant_name);
    const struct labelled *found =
        atomic_load(search(labels, tenant_at(labels, tenant)->name, scope));
    if (found != NULL) {
        return found;
    }
    found = name_scope(labels, tenant, scope);
    return found != NULL ? found : find_other(labels, tenant);
}

struct metric_labels_place metric_labels_find(
    struct metric_labels *labels, struct slice tenant, struct slice scope)
{
    /* For records older than the rule for names. A label with a NUL would end the page for
     * Prometheus, and an escaped one could equal a different tenant's name (P9). */
    scope = name_valid(scope) ? scope : other;
    tenant = name_valid(tenant) ? tenant : other;
    const struct labelled *found =
        atomic_load_explicit(search(labels, tenant, scope), memory_order_acquire);
    if (found == NULL) {
        (void)pthread_mutex_lock(&labels->lock);
        found = find_or_name(labels, tenant, scope);
        (void)pthread_mutex_unlock(&labels->lock);
    }
    if (found == NULL) {
        /* No memory even for "_other": count under the last number, which is the last to get a
         * name. */
        return (struct metric_labels_place){SERIES_MAX - 1, METRICS_TENANTS_MAX};
    }
    return (struct metric_labels_place){found->number, found->tenant};
}

void metric_labels_expect(struct metric_labels *labels, struct slice tenant)
{
    (void)pthread_mutex_lock(&labels->lock);
    (void)find_tenant(labels, name_valid(tenant) ? tenant : other);
    (void)pthread_mutex_unlock(&labels->lock);
}

/* --- Reading ---------------------------------------------------------------------------------- */

size_t metric_labels_count(const struct metric_labels *labels)
{
    return atomic_load_explicit(&labels->count, memory_order_acquire);
}

struct metric_labels_tenant metric_labels_tenant(const struct metric_labels *labels, size_t number)
{
    const struct tenant *tenant = tenant_at(labels, number);
    return (struct metric_labels_tenant){.number = number,
        .name = tenant == NULL ? SLICE_EMPTY : tenant->name,
        .is_shared = number == METRICS_TENANTS_MAX};
}

struct metric_labels_name metric_labels_name(const struct metric_labels *labels, size_t number)
{
    const struct labelled *named =
        atomic_load_explicit(&labels->names[number], memory_order_acquire);
    ASSERT(named != NULL); /* ML1 */
    return (struct metric_labels_name){
        .tenant = metric_labels_tenant(labels, named->tenant), .scope = named->scope};
}

size_t metric_labels_route(struct metric_labels *labels, const char *route)
{
    for (size_t i = 0; i < SERIES_ROUTES_MAX; i++) {
        const char *known = atomic_load_explicit(&labels->routes[i], memory_order_acquire);
        if (known == NULL && atomic_compare_exchange_strong(&labels->routes[i], &known, route)) {
            return i;
        }
        if (known == route || strcmp(known, route) == 0) {
            return i;
        }
    }
    return SERIES_ROUTES_MAX - 1;
}

const char *metric_labels_route_name(const struct metric_labels *labels, size_t number)
{
    return atomic_load_explicit(&labels->routes[number], memory_order_acquire);
}
