/*
 * This file is past 800 lines because it holds every metric family of the page.
 */
#include "door/metrics.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/macros.h"
#include "base/name.h"
#include "base/text.h"
#include "door/metric_labels.h"

enum {
    DECISIONS_MAX = 24, /* decisions by name; the last is "other" */
    DECISIONS_ZERO = 8, /* the first N are shown as 0 before they occur */
    CODES_MAX = 32,     /* statuses of answers, likewise */
    BUCKETS_MAX = 17,   /* of any histogram here; the last has no bound */
};

/* Every decision by its name, and a flood's; any other name is "other". */
static const char *const decisions[DECISIONS_MAX] = {"first_seen", "duplicate_replayed",
    "in_progress", "conflict_rejected", "held_unknown", "sealed", "released", "unknown", "renewed",
    "resolved", "not_found", "stale_fence", "already_sealed", "still_running", "stale_version",
    "duplicate_refused", "enqueued", "claimed", "done", "not_due", "too_late", "wrong_status",
    "nothing"};

static const unsigned codes[CODES_MAX] = {101, 200, 201, 202, 204, 304, 400, 401, 403, 404, 405,
    406, 408, 409, 410, 411, 412, 413, 414, 415, 417, 422, 429, 431, 500, 501, 502, 503, 504, 505,
    507};

/* Upper bounds, in the unit that is counted; zero ends the list. */
static const double seal_seconds[BUCKETS_MAX] = {
    .001, .005, .01, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 3600, 86400};
static const double diff_bytes[BUCKETS_MAX] = {64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384};
static const double request_seconds[BUCKETS_MAX] = {
    .0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10, 60};

static const double delay_seconds[METRICS_DELAYS] = {
    .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 60, 600, 3600};

typedef _Atomic uint64_t counter;

struct histogram {
    counter buckets[BUCKETS_MAX]; /* not cumulative; the last is above all bounds */
    counter sum;                  /* in thousandths of the unit, or in nanoseconds */
};

struct metric_labels_counts {
    counter decisions[DECISIONS_MAX];
    /* Of calls that Once made by itself; without buckets, because there are many scopes. */
    counter verdicts[METRICS_VERDICTS];
    counter calls;
    counter call_ms;  /* sum */
    counter waited;   /* of them: for their turn */
    counter delay_ms; /* sum */
};

struct tenant_counts {
    struct histogram seal;
    struct histogram diff;
};

struct route_counts {
    counter codes[CODES_MAX];
    struct histogram seconds;
};

/* Counters of one loop: no other thread writes here, so adding needs no lock and shares no cache
 * line. */
struct loop {
    struct metric_labels_counts series[SERIES_MAX];
    struct tenant_counts tenants[SERIES_TENANTS_MAX];
    struct route_counts routes[SERIES_ROUTES_MAX];
    counter doubts[METRICS_DOUBTS_MAX];
    char padding[64]; /* so that the next loop's counters begin on a different cache line */
};

struct metrics {
    const struct mem *mem;
    unsigned loop_count;
    double started; /* seconds since 1970 */
    struct metric_labels *labels;
    metrics_report_upstreams report; /* NULL: there are no upstreams */
    void *upstreams_context;
    metrics_report_targets report_targets; /* NULL: there are no targets */
    void *targets_context;
    metrics_report_sources report_sources; /* NULL: there are no sources */
    void *sources_context;
    metrics_report_queues report_queues; /* NULL: there are no queues */
    void *queues_context;
    const char *dir;             /* of the store; NULL: it has none */
    _Atomic int64_t reloaded_ms; /* when a configuration was last loaded, at the start or later */
    _Atomic bool is_reload_good; /* the last reload succeeded */
    struct loop loops[];
};

struct metrics *metrics_new(const struct mem *mem, unsigned loops)
{
    struct metrics *metrics =
        mem_zalloc(mem, 1, sizeof *metrics + (size_t)loops * sizeof metrics->loops[0]);
    if (metrics == NULL) {
        return NULL;
    }
    metrics->mem = mem;
    metrics->loop_count = loops;
    metrics->labels = metric_labels_new(mem);
    if (metrics->labels == NULL) {
        mem_free(mem, metrics);
        return NULL;
    }
    metrics_reloaded(metrics, true);
    metrics->started = (double)atomic_load(&metrics->reloaded_ms) / 1000;
    return metrics;
}

void metrics_free(struct metrics *metrics)
{
    if (metrics != NULL) {
        metric_labels_free(metrics->labels);
        mem_free(metrics->mem, metrics);
    }
}

void metrics_upstreams(struct metrics *metrics, metrics_report_upstreams report, void *context)
{
    metrics->report = report;
    metrics->upstreams_context = context;
}

void metrics_targets(struct metrics *metrics, metrics_report_targets report, void *context)
{
    metrics->report_targets = report;
    metrics->targets_context = context;
}

/* As the dispatcher numbers them. */
#define BREAKER_CLOSED_NAME    "closed"
#define BREAKER_OPEN_NAME      "open"
#define BREAKER_HALF_OPEN_NAME "half_open"

const char *metrics_breaker(const struct metrics_target *target)
{
    return target->breakers[1] > 0   ? BREAKER_OPEN_NAME
           : target->breakers[2] > 0 ? BREAKER_HALF_OPEN_NAME
                                     : BREAKER_CLOSED_NAME;
}

size_t metrics_targets_now(
    const struct metrics *metrics, struct metrics_target *ret_targets, size_t max)
{
    return metrics->report_targets == NULL
               ? 0
               : metrics->report_targets(metrics->targets_context, ret_targets, max);
}

void metrics_sources(struct metrics *metrics, metrics_report_sources report, void *context)
{
    metrics->report_sources = report;
    metrics->sources_context = context;
}

void metrics_queues(struct metrics *metrics, metrics_report_queues report, void *context)
{
    metrics->report_queues = report;
    metrics->queues_context = context;
}

void metrics_store(struct metrics *metrics, const char *dir)
{
    metrics->dir = dir;
}

void metrics_reloaded(struct metrics *metrics, bool is_good)
{
    struct clock clock;
    clock_system(&clock);
    atomic_store(&metrics->is_reload_good, is_good);
    if (is_good) {
        atomic_store(&metrics->reloaded_ms, clock_read(&clock).wall_ms);
    }
}

void metrics_expect(struct metrics *metrics, struct slice tenant, struct slice scope)
{
    if (scope.len == 0) {
        metric_labels_expect(metrics->labels, tenant);
    } else {
        (void)metric_labels_find(metrics->labels, tenant, scope);
    }
}

/* --- Counting --------------------------------------------------------------------------------- */

/* There is one writer: no locked instruction is needed. */
static void add(counter *count, uint64_t value)
{
    uint64_t now = atomic_load_explicit(count, memory_order_relaxed);
    atomic_store_explicit(count, now + value, memory_order_relaxed);
}

static size_t bucket_of(const double bounds[BUCKETS_MAX], double value)
{
    size_t bucket = 0;
    while (bucket < BUCKETS_MAX - 1 && bounds[bucket] > 0 && value > bounds[bucket]) {
        bucket++;
    }
    return bounds[bucket] > 0 && bucket < BUCKETS_MAX - 1 ? bucket : BUCKETS_MAX - 1;
}

static void observe(
    struct histogram *histogram, const double bounds[BUCKETS_MAX], double value, uint64_t sum)
{
    add(&histogram->buckets[bucket_of(bounds, value)], 1);
    add(&histogram->sum, sum);
}

static size_t decision_index(const char *name)
{
    for (size_t i = 0; i < DECISIONS_MAX && decisions[i] != NULL; i++) {
        if (decisions[i] == name || strcmp(decisions[i], name) == 0) {
            return i;
        }
    }
    return DECISIONS_MAX - 1;
}

static size_t code_index(unsigned code)
{
    for (size_t i = 0; i < CODES_MAX && codes[i] != 0; i++) {
        if (codes[i] == code) {
            return i;
        }
    }
    return CODES_MAX - 1;
}

void metrics_decision(
    struct metrics *metrics, unsigned loop, const struct metrics_decision *decision)
{
    ASSERT(loop < metrics->loop_count);
    struct loop *mine = &metrics->loops[loop];
    struct metric_labels_place place =
        metric_labels_find(metrics->labels, decision->tenant, decision->scope);
    add(&mine->series[place.series].decisions[decision_index(decision->decision)], 1);
    struct tenant_counts *tenant = &mine->tenants[place.tenant];
    if (decision->first_to_seal_ms >= 0) {
        observe(&tenant->seal, seal_seconds, (double)decision->first_to_seal_ms / 1000,
            (uint64_t)decision->first_to_seal_ms);
    }
    if (decision->is_conflict) {
        observe(&tenant->diff, diff_bytes, (double)decision->diff_bytes,
            (uint64_t)decision->diff_bytes * 1000);
    }
}

void metrics_call(struct metrics *metrics, unsigned loop, const struct metrics_call *call)
{
    ASSERT(loop < metrics->loop_count && call->verdict < METRICS_VERDICTS);
    struct metric_labels_place place =
        metric_labels_find(metrics->labels, call->tenant, call->scope);
    struct metric_labels_counts *counts = &metrics->loops[loop].series[place.series];
    add(&counts->verdicts[call->verdict], 1);
    add(&counts->calls, 1);
    add(&counts->call_ms, call->call_ms > 0 ? (uint64_t)call->call_ms : 0);
    if (call->delay_ms >= 0) {
        add(&counts->waited, 1);
        add(&counts->delay_ms, (uint64_t)call->delay_ms);
    }
}

void metrics_request(
    struct metrics *metrics, unsigned loop, const char *route, unsigned status, uint64_t nanos)
{
    ASSERT(loop < metrics->loop_count);
    struct route_counts *counts =
        &metrics->loops[loop].routes[metric_labels_route(metrics->labels, route)];
    add(&counts->codes[code_index(status)], 1);
    observe(&counts->seconds, request_seconds, (double)nanos / 1e9, nanos);
}

void metrics_doubt(struct metrics *metrics, unsigned loop, unsigned reason)
{
    ASSERT(loop < metrics->loop_count);
    ASSERT(reason < METRICS_DOUBTS_MAX);
    add(&metrics->loops[loop].doubts[reason], 1);
}

/* --- Showing ---------------------------------------------------------------------------------- */

/* A counter has the same byte offset in every loop. */
static uint64_t total(const struct metrics *metrics, const counter *first)
{
    uintptr_t at = (uintptr_t)first - (uintptr_t)&metrics->loops[0];
    ASSERT(at < sizeof metrics->loops[0]);
    uint64_t sum = 0;
    for (unsigned i = 0; i < metrics->loop_count; i++) {
        const counter *count = (const counter *)((uintptr_t)&metrics->loops[i] + at);
        sum += atomic_load_explicit(count, memory_order_relaxed);
    }
    return sum;
}

static void put_family(struct buf *out, const char *name, const char *type, const char *help)
{
    buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void put_value(
    struct buf *out, const char *name, const char *type, const char *help, double value)
{
    put_family(out, name, type, help);
    buf_printf(out, "%s %.15g\n", name, value);
}

/* Text format 0.0.4 takes UTF-8 without NUL; backslashes, quotes and line feeds are escaped. NUL
 * and line feeds occur only in invalid names, which are shown as "_other". */
static void put_label(struct buf *out, const char *name, struct slice value)
{
    value = name_valid(value) ? value : SLICE_LIT("_other");
    buf_printf(out, "%s=\"", name);
    for (size_t i = 0; i < value.len; i++) {
        char c = value.data[i];
        if (c == '\\' || c == '"') {
            buf_char(out, '\\');
        }
        buf_append(out, &c, 1);
    }
    buf_char(out, '"');
}

/* A histogram for the page: the counts of its buckets, summed over the loops. */
struct shown {
    const char *name;
    const char *label; /* NULL: none */
    struct slice value;
    const char *kind;     /* a second label, of a target; NULL: none */
    const double *bounds; /* one less than the buckets */
    const uint64_t *buckets;
    size_t count; /* buckets; the last has no bound */
    double sum;
};

static void put_shown_label(struct buf *out, const struct shown *shown, const char *behind)
{
    if (shown->kind != NULL) {
        put_label(out, "kind", slice_str(shown->kind));
        buf_char(out, ',');
    }
    if (shown->label != NULL) {
        put_label(out, shown->label, shown->value);
        buf_str(out, behind);
    }
}

static void put_histogram(struct buf *out, const struct shown *shown)
{
    uint64_t below = 0;
    for (size_t i = 0; i < shown->count; i++) {
        below += shown->buckets[i];
        buf_printf(out, "%s_bucket{", shown->name);
        put_shown_label(out, shown, ",");
        if (i + 1 < shown->count) {
            buf_printf(out, "le=\"%.9g\"} %llu\n", shown->bounds[i], (unsigned long long)below);
        } else {
            buf_printf(out, "le=\"+Inf\"} %llu\n", (unsigned long long)below);
        }
    }
    static const char *const ends[] = {"_sum", "_count"};
    for (size_t i = 0; i < 2; i++) {
        buf_printf(out, "%s%s", shown->name, ends[i]);
        buf_str(out, shown->label == NULL ? "" : "{");
        put_shown_label(out, shown, "}");
        buf_printf(out, " %.15g\n", i == 0 ? shown->sum : (double)below);
    }
}

/* A histogram of ours, summed over the loops; nothing while it is empty. */
static void put_counted(const struct metrics *metrics, struct buf *out, struct shown shown,
    const struct histogram *histogram, double unit)
{
    uint64_t buckets[BUCKETS_MAX];
    uint64_t all = 0;
    size_t bounds = 0;
    while (bounds < BUCKETS_MAX - 1 && shown.bounds[bounds] > 0) {
        buckets[bounds] = total(metrics, &histogram->buckets[bounds]);
        all += buckets[bounds++];
    }
    buckets[bounds] = total(metrics, &histogram->buckets[BUCKETS_MAX - 1]);
    all += buckets[bounds];
    shown.buckets = buckets;
    shown.count = bounds + 1;
    shown.sum = (double)total(metrics, &histogram->sum) / unit;
    if (all > 0) {
        put_histogram(out, &shown);
    }
}

/* Whether this reader may see a tenant's figures. Those of "_other", which tenants beyond the limit
 * share, are only for readers who see all tenants (P9). */
static bool is_shown(const struct metrics_view *view, const struct metric_labels_tenant *tenant)
{
    return view->tenant.len == 0 || (!tenant->is_shared && slice_equal(tenant->name, view->tenant));
}

static void put_decisions(struct metrics *metrics, const struct metrics_view *view, struct buf *out)
{
    put_family(out, "once_decisions_total", "counter",
        "Decisions that were answered, by decision, scope and tenant.");
    size_t count = metric_labels_count(metrics->labels);
    for (size_t i = 0; i < count; i++) {
        struct metric_labels_name name = metric_labels_name(metrics->labels, i);
        if (!is_shown(view, &name.tenant)) {
            continue;
        }
        for (size_t d = 0; d < DECISIONS_MAX; d++) {
            uint64_t value = total(metrics, &metrics->loops[0].series[i].decisions[d]);
            if (value == 0 && d >= DECISIONS_ZERO) {
                continue;
            }
            buf_str(out, "once_decisions_total{");
            put_label(out, "decision", slice_str(decisions[d] == NULL ? "other" : decisions[d]));
            buf_char(out, ',');
            put_label(out, "scope", name.scope);
            buf_char(out, ',');
            put_label(out, "tenant", name.tenant.name);
            buf_printf(out, "} %llu\n", (unsigned long long)value);
        }
    }
}

static const char *const verdicts[METRICS_VERDICTS] = {
    "unknown", "executed", "failed", "released", "later"};

static void put_scope(struct buf *out, const char *family, const struct metric_labels_name *name)
{
    buf_printf(out, "%s{", family);
    put_label(out, "scope", name->scope);
    buf_char(out, ',');
    put_label(out, "tenant", name->tenant.name);
}

/* The figures of one scope: a counter, or for the first family one of each verdict. */
static void put_scope_figure(const struct metrics *metrics,
    const struct metric_labels_counts *counts, const char *family, bool is_ms,
    const struct metric_labels_name *name, const counter *count, struct buf *out)
{
    bool has_verdict = count == NULL;
    if (total(metrics, &counts->calls) == 0) {
        return;
    }
    for (size_t v = 0; v < (has_verdict ? METRICS_VERDICTS : 1); v++) {
        uint64_t value = total(metrics, has_verdict ? &counts->verdicts[v] : count);
        put_scope(out, family, name);
        if (has_verdict) {
            buf_printf(out, ",verdict=\"%s\"", verdicts[v]);
        }
        buf_printf(out, "} %.15g\n", is_ms ? (double)value / 1000 : (double)value);
    }
}

static bool has_calls(const struct metrics *metrics)
{
    size_t count = metric_labels_count(metrics->labels);
    for (size_t i = 0; i < count; i++) {
        if (total(metrics, &metrics->loops[0].series[i].calls) > 0) {
            return true;
        }
    }
    return false;
}

/* Calls that Once makes by itself, by what they are for; by target they are in put_targets. */
static void put_scopes(struct metrics *metrics, const struct metrics_view *view, struct buf *out)
{
#define OFFSET(member) offsetof(struct metric_labels_counts, member)
    static const struct {
        const char *name;
        const char *help;
        size_t at; /* 0: by verdict */
        bool is_ms;
    } families[] = {
        {"once_dispatch_scope_attempts_total",
            "Attempts that are over, by type of effect, command or source, and tenant.", 0, false},
        {"once_dispatch_scope_call_seconds_total",
            "Total duration of these attempts, by scope and tenant.", OFFSET(call_ms), true},
        {"once_dispatch_scope_waited_total",
            "Those of them that waited for their turn, by scope and tenant.", OFFSET(waited),
            false},
        {"once_dispatch_scope_delay_seconds_total",
            "Total time between their due time and their begin, by scope and tenant.",
            OFFSET(delay_ms), true},
    };
#undef OFFSET
    size_t count = metric_labels_count(metrics->labels);
    for (size_t f = 0; has_calls(metrics) && f < COUNT(families); f++) {
        put_family(out, families[f].name, "counter", families[f].help);
        for (size_t i = 0; i < count; i++) {
            struct metric_labels_name name = metric_labels_name(metrics->labels, i);
            const struct metric_labels_counts *counts = &metrics->loops[0].series[i];
            if (is_shown(view, &name.tenant)) {
                put_scope_figure(metrics, counts, families[f].name, families[f].is_ms, &name,
                    families[f].at == 0
                        ? NULL
                        : (const counter *)(const void *)((const char *)counts + families[f].at),
                    out);
            }
        }
    }
}

/* By the store's time; 0 means never. */
static double seconds_since(const struct engine_stats *engine, int64_t since_ms)
{
    int64_t now_ms = engine->now_ms;
    return since_ms > 0 && since_ms < now_ms ? (double)(now_ms - since_ms) / 1000 : 0;
}

/* Commands, effects and deliveries. */
static const struct {
    enum record_kind kind;
    const char *name; /* as in struct dispatch_kind */
} work_kinds[] = {
    {RECORD_COMMAND, "commands"}, {RECORD_EFFECT, "effects"}, {RECORD_DELIVERY, "deliveries"}};

/* What waits of one kind and scope. */
struct metrics_waiting {
    bool is_seen;
    uint64_t counts[BACKLOG_STATUSES];
    int64_t since_ms[BACKLOG_STATUSES];
};

struct waiting_all {
    struct metrics *metrics;
    struct metrics_waiting (*items)[SERIES_MAX]; /* by kind and series */
};

/* Several lines may have one label: "_other". */
static void add_waiting(void *context, const struct backlog_line *line)
{
    struct waiting_all *all = context;
    size_t series = metric_labels_find(all->metrics->labels, line->tenant, line->scope).series;
    size_t kind = 0;
    while (work_kinds[kind].kind != line->kind) {
        kind++;
    }
    struct metrics_waiting *item = &all->items[kind][series];
    item->is_seen = true;
    for (size_t i = 0; i < BACKLOG_STATUSES; i++) {
        int64_t since_ms = line->since_ms[i];
        item->counts[i] += line->counts[i];
        if (since_ms != 0 && (item->since_ms[i] == 0 || since_ms < item->since_ms[i])) {
            item->since_ms[i] = since_ms;
        }
    }
}

static void put_waiting(const struct waiting_all *all, const struct metrics_view *view,
    const char *family, bool is_age, struct buf *out)
{
    size_t count = metric_labels_count(all->metrics->labels);
    for (size_t i = 0; i < COUNT(work_kinds) * count; i++) {
        size_t kind = i / count;
        struct metric_labels_name name = metric_labels_name(all->metrics->labels, i % count);
        const struct metrics_waiting *item = &all->items[kind][i % count];
        for (size_t s = 0; item->is_seen && is_shown(view, &name.tenant) && s < BACKLOG_STATUSES;
             s++) {
            put_scope(out, family, &name);
            buf_printf(out, ",kind=\"%s\",status=\"%s\"} %.15g\n", work_kinds[kind].name,
                record_status_name(backlog_status((enum backlog_status)s)),
                is_age ? seconds_since(&view->engine, item->since_ms[s]) : (double)item->counts[s]);
        }
    }
}

/* Without memory the families are absent, as they are while nothing has ever waited. */
static void put_backlog(struct metrics *metrics, const struct metrics_view *view, struct buf *out)
{
    struct waiting_all all = {
        metrics, mem_zalloc(metrics->mem, COUNT(work_kinds), sizeof *all.items)};
    bool is_any = false;
    if (view->backlog != NULL && all.items != NULL) {
        backlog_lines(view->backlog, add_waiting, &all);
    }
    for (size_t i = 0; all.items != NULL && i < COUNT(work_kinds) * SERIES_MAX; i++) {
        is_any = is_any || all.items[i / SERIES_MAX][i % SERIES_MAX].is_seen;
    }
    if (is_any) {
        put_family(out, "once_work_scope", "gauge",
            "Work that is pending, unknown or a dead letter, by scope and tenant.");
        put_waiting(&all, view, "once_work_scope", false, out);
        put_family(out, "once_work_scope_oldest_seconds", "gauge",
            "Age of the oldest of it in seconds, by scope and tenant; 0 if there is none.");
        put_waiting(&all, view, "once_work_scope_oldest_seconds", true, out);
    }
    mem_free(metrics->mem, all.items);
}

/* A counter by tenant: the sum of one decision over all its scopes. */
static void put_by_tenant(struct metrics *metrics, const struct metrics_view *view, struct buf *out,
    const char *family, const char *decision)
{
    uint64_t sums[SERIES_TENANTS_MAX] = {0};
    size_t count = metric_labels_count(metrics->labels), index = decision_index(decision);
    for (size_t i = 0; i < count; i++) {
        sums[metric_labels_name(metrics->labels, i).tenant.number] +=
            total(metrics, &metrics->loops[0].series[i].decisions[index]);
    }
    for (size_t i = 0; i < SERIES_TENANTS_MAX; i++) {
        struct metric_labels_tenant tenant = metric_labels_tenant(metrics->labels, i);
        if (tenant.name.len > 0 && (sums[i] > 0 || !tenant.is_shared) && is_shown(view, &tenant)) {
            buf_printf(out, "%s{", family);
            put_label(out, "tenant", tenant.name);
            buf_printf(out, "} %llu\n", (unsigned long long)sums[i]);
        }
    }
}

static void put_tenants(struct metrics *metrics, const struct metrics_view *view, struct buf *out,
    const char *family, bool is_diff)
{
    for (size_t i = 0; i < SERIES_TENANTS_MAX; i++) {
        struct metric_labels_tenant tenant = metric_labels_tenant(metrics->labels, i);
        struct tenant_counts *counts = &metrics->loops[0].tenants[i];
        struct shown shown = {.name = family,
            .label = "tenant",
            .value = tenant.name,
            .bounds = is_diff ? diff_bytes : seal_seconds};
        if (tenant.name.len > 0 && is_shown(view, &tenant)) {
            put_counted(metrics, out, shown, is_diff ? &counts->diff : &counts->seal, 1000);
        }
    }
}

static void put_code(struct buf *out, unsigned code)
{
    if (code == 0) {
        buf_str(out, ",code=\"other\"");
    } else {
        buf_printf(out, ",code=\"%u\"", code);
    }
}

static void put_routes(struct metrics *metrics, struct buf *out)
{
    put_family(out, "once_http_requests_total", "counter",
        "Requests that were answered, by route and status.");
    for (size_t i = 0; i < SERIES_ROUTES_MAX; i++) {
        const char *route = metric_labels_route_name(metrics->labels, i);
        for (size_t c = 0; c < CODES_MAX && route != NULL; c++) {
            uint64_t value = total(metrics, &metrics->loops[0].routes[i].codes[c]);
            if (value > 0) {
                buf_str(out, "once_http_requests_total{");
                put_label(out, "route", slice_str(route));
                put_code(out, codes[c]);
                buf_printf(out, "} %llu\n", (unsigned long long)value);
            }
        }
    }
    put_family(out, "once_http_request_seconds", "histogram",
        "From the first byte of a request to its answer, by route.");
    for (size_t i = 0; i < SERIES_ROUTES_MAX; i++) {
        const char *route = metric_labels_route_name(metrics->labels, i);
        if (route != NULL) {
            struct shown shown = {.name = "once_http_request_seconds",
                .label = "route",
                .value = slice_str(route),
                .bounds = request_seconds};
            put_counted(metrics, out, shown, &metrics->loops[0].routes[i].seconds, 1e9);
        }
    }
}

static void put_http(const struct http_server_stats *http, struct buf *out)
{
    static const char *const reasons[] = {
        "bad_request", "timeout", "body_too_large", "head_too_large", "overloaded", "other"};
    static_assert(COUNT(reasons) == COUNT(http->refused), "a reason for each");
    put_value(
        out, "once_http_connections", "gauge", "Connections that are open.", (double)http->open);
    put_value(out, "once_http_in_flight", "gauge", "Requests that are not answered yet.",
        (double)http->in_flight);
    put_value(out, "once_http_loops_serving", "gauge", "Loops that serve connections.",
        (double)http->loops_serving);
    put_value(out, "once_http_moved_total", "counter",
        "Connections that moved to a different loop, because more or fewer serve.",
        (double)http->moved);
    put_family(out, "once_http_refused_total", "counter",
        "Requests and connections that were refused before they were understood.");
    for (size_t i = 0; i < COUNT(reasons); i++) {
        buf_printf(out, "once_http_refused_total{reason=\"%s\"} %llu\n", reasons[i],
            (unsigned long long)http->refused[i]);
    }
}

/* Histograms of the engine: each bound is the first one times a power of two. */
static void put_powers(struct buf *out, const char *name, const uint64_t buckets[ENGINE_BUCKETS],
    double first, double sum)
{
    double bounds[ENGINE_BUCKETS];
    for (size_t i = 0; i < ENGINE_BUCKETS; i++) {
        bounds[i] = first;
        first *= 2;
    }
    struct shown shown = {
        .name = name, .bounds = bounds, .buckets = buckets, .count = ENGINE_BUCKETS, .sum = sum};
    put_histogram(out, &shown);
}

static void put_engine(const struct engine_stats *engine, struct buf *out)
{
    put_family(out, "once_operations", "gauge", "Operations that are not settled, by status.");
    buf_printf(out, "once_operations{status=\"in_progress\"} %llu\n",
        (unsigned long long)engine->counts.by_status[RECORD_IN_PROGRESS]);
    buf_printf(out, "once_operations{status=\"unknown\"} %llu\n",
        (unsigned long long)engine->counts.by_status[RECORD_UNKNOWN]);
    put_value(out, "once_live_keys", "gauge", "Keys that are remembered.",
        (double)engine->counts.records);
    put_value(out, "once_unknown_oldest_seconds", "gauge",
        "Age of the oldest unknown operation in seconds; 0 if there is none.",
        seconds_since(engine, engine->counts.unknown_since_ms));
    put_family(out, "once_commit_batch_size", "histogram", "Calls that went into one commit.");
    put_powers(out, "once_commit_batch_size", engine->batch_sizes, 1, (double)engine->calls);
    put_value(out, "once_batch_waits_total", "counter",
        "Batches that waited a moment for more calls.", (double)engine->gathers);
    put_family(out, "once_flush_seconds", "histogram", "Flushes to stable storage.");
    put_powers(
        out, "once_flush_seconds", engine->flush_micros, 64e-6, (double)engine->flush_nanos / 1e9);
    put_family(out, "once_engine_turns_total", "counter",
        "Batches, by the thread that decided: a loop that submitted, or the engine's own.");
    buf_printf(
        out, "once_engine_turns_total{by=\"loop\"} %llu\n", (unsigned long long)engine->turns_led);
    buf_printf(out, "once_engine_turns_total{by=\"engine\"} %llu\n",
        (unsigned long long)engine->turns_own);
    put_value(out, "once_flush_slowdowns_total", "counter",
        "Times that flushes became too slow for loops, and the engine's own thread took over.",
        (double)engine->slowdowns);
    put_value(out, "once_queue_depth", "gauge", "Calls that wait for the engine.",
        (double)engine->queued);
    put_value(out, "once_parked", "gauge", "Duplicates that wait for the first execution.",
        (double)engine->parked);
    put_value(out, "once_quarantined_tenants", "gauge",
        "Tenants that are granted nothing, because they hold what this store never gave.",
        (double)engine->quarantined);
    put_value(out, "once_evidence_seq", "gauge", "Number of the last entry of evidence.",
        (double)engine->entries);
    put_value(out, "once_checkpoint_age_seconds", "gauge",
        "Since a signed checkpoint last covered all the evidence.",
        seconds_since(engine, engine->checkpoint_ms));
}

/* A figure of each upstream or target, with a second label and its value, or NULL. */
enum { FIGURES_MAX = METRICS_REFUSALS };
struct figure_family {
    const char *name;
    const char *type;
    const char *help;
    const char *label;
    struct {
        const char *value; /* of the label; NULL: none, and the last figure */
        size_t offset;     /* in struct upstream_stats, or in struct metrics_target */
    } figures[FIGURES_MAX];
};

/* Whose figures they are. */
struct figures_of {
    const char *kind;  /* NULL: it has none */
    const char *label; /* of its name */
    const char *name;
    const void *figures;
};

#define FIGURE(member) offsetof(struct upstream_stats, member)
static const struct figure_family upstream_families[] = {
    {"once_upstream_calls_total", "counter", "Requests to an upstream that were begun.", NULL,
        {{NULL, FIGURE(calls)}}},
    {"once_upstream_failed_total", "counter",
        "Those that failed, by how far they got: not_sent did not happen, the others may have.",
        "point",
        {{"not_sent", FIGURE(failed[UPSTREAM_NOT_SENT])}, {"sent", FIGURE(failed[UPSTREAM_SENT])},
            {"head", FIGURE(failed[UPSTREAM_HEAD])}}},
    {"once_upstream_connects_total", "counter", "Connections to an upstream that were made.", NULL,
        {{NULL, FIGURE(connects)}}},
    {"once_upstream_reused_total", "counter", "Requests on a connection that had been kept.", NULL,
        {{NULL, FIGURE(reused)}}},
    {"once_upstream_connections", "gauge", "Connections to an upstream that are open.", NULL,
        {{NULL, FIGURE(open)}}},
    {"once_upstream_idle", "gauge", "Those of them that are kept for later requests.", NULL,
        {{NULL, FIGURE(idle)}}},
    {"once_upstream_waiting", "gauge", "Requests that wait for a connection.", NULL,
        {{NULL, FIGURE(waiting)}}},
    {"once_upstream_addresses_down", "gauge",
        "Addresses that are left out for now because they failed, added up over the loops.", NULL,
        {{NULL, FIGURE(down)}}},
};
#undef FIGURE

#define FIGURE(member) offsetof(struct metrics_target, member)
static const struct figure_family target_families[] = {
    {"once_dispatch_breaker", "gauge", "1 in the state that the breaker of a target is in.",
        "state",
        {{BREAKER_CLOSED_NAME, FIGURE(breakers[0])}, {BREAKER_OPEN_NAME, FIGURE(breakers[1])},
            {BREAKER_HALF_OPEN_NAME, FIGURE(breakers[2])}}},
    {"once_dispatch_breaker_opened_total", "counter", "How often the breaker of a target opened.",
        NULL, {{NULL, FIGURE(opened)}}},
    {"once_dispatch_in_flight", "gauge", "Calls to a target that are under way.", NULL,
        {{NULL, FIGURE(in_flight)}}},
    {"once_dispatch_queued", "gauge", "Work in memory that waits for its turn at a target.", NULL,
        {{NULL, FIGURE(queued)}}},
    {"once_dispatch_attempts_total", "counter",
        "Attempts that are over, by the verdict on the answer, or on the lack of one.", "verdict",
        {{"unknown", FIGURE(attempts[0])}, {"executed", FIGURE(attempts[1])},
            {"failed", FIGURE(attempts[2])}, {"released", FIGURE(attempts[3])},
            {"later", FIGURE(attempts[4])}}},
    {"once_dispatch_questions_total", "counter",
        "How often a provider was asked about an unknown attempt.", NULL,
        {{NULL, FIGURE(questions)}}},
};
#undef FIGURE

#define FIGURE(member) offsetof(struct metrics_source, member)
static const struct figure_family source_families[] = {
    {"once_inbox_received_total", "counter", "Events of a source that were signed and read.", NULL,
        {{NULL, FIGURE(received)}}},
    {"once_inbox_duplicates_total", "counter", "Those of them whose key was known.", NULL,
        {{NULL, FIGURE(duplicates)}}},
    {"once_inbox_stale_total", "counter",
        "Those of them that came after a newer version was "
        "handled.",
        NULL, {{NULL, FIGURE(stale)}}},
    {"once_inbox_refused_total", "counter", "Requests and events of a source that were refused.",
        "reason",
        {{"signature_missing", FIGURE(refused[METRICS_REFUSED_MISSING])},
            {"signature_doubled", FIGURE(refused[METRICS_REFUSED_DOUBLED])},
            {"signature_malformed", FIGURE(refused[METRICS_REFUSED_MALFORMED])},
            {"signature_mismatch", FIGURE(refused[METRICS_REFUSED_MISMATCH])},
            {"signature_too_old", FIGURE(refused[METRICS_REFUSED_TOO_OLD])},
            {"signature_too_new", FIGURE(refused[METRICS_REFUSED_TOO_NEW])},
            {"too_many_refusals", FIGURE(refused[METRICS_REFUSED_FLOOD])},
            {"invalid_event", FIGURE(refused[METRICS_REFUSED_EVENT])},
            {"body_too_large", FIGURE(refused[METRICS_REFUSED_LENGTH])},
            {"idempotency_conflict", FIGURE(refused[METRICS_REFUSED_CONFLICT])}}},
};
#undef FIGURE

#define FIGURE(member) offsetof(struct metrics_queue, member)
static const struct figure_family queue_families[] = {
    {"once_queue_connected", "gauge", "1 while the broker of a queue is connected.", NULL,
        {{NULL, FIGURE(connected)}}},
    {"once_queue_connects_total", "counter", "How often the broker of a queue was connected.", NULL,
        {{NULL, FIGURE(connects)}}},
    {"once_queue_received_total", "counter", "Messages that a queue received.", NULL,
        {{NULL, FIGURE(received)}}},
    {"once_queue_duplicates_total", "counter",
        "Messages that a queue received and whose key was known.", NULL,
        {{NULL, FIGURE(duplicates)}}},
    {"once_queue_acknowledged_total", "counter", "Messages that were acknowledged to the broker.",
        NULL, {{NULL, FIGURE(acknowledged)}}},
    {"once_queue_parked_total", "counter",
        "Parked messages: conflicts, and messages that are not events.", NULL,
        {{NULL, FIGURE(parked)}}},
    {"once_queue_waiting", "gauge", "Messages that were received and not acknowledged yet.", NULL,
        {{NULL, FIGURE(waiting)}}},
    {"once_queue_lag", "gauge", "Messages in the broker that nobody has taken yet.", NULL,
        {{NULL, FIGURE(lag)}}},
};
#undef FIGURE

static void put_figures(
    struct buf *out, const struct figure_family *family, const struct figures_of *of)
{
    for (size_t i = 0; i == 0 || (i < FIGURES_MAX && family->figures[i].value != NULL); i++) {
        uint64_t value = 0;
        memcpy(&value, (const char *)of->figures + family->figures[i].offset, sizeof value);
        buf_printf(out, "%s{", family->name);
        if (of->kind != NULL) {
            put_label(out, "kind", slice_str(of->kind));
            buf_char(out, ',');
        }
        put_label(out, of->label, slice_str(of->name == NULL ? "_other" : of->name));
        if (family->label != NULL) {
            buf_char(out, ',');
            put_label(out, family->label, slice_str(family->figures[i].value));
        }
        buf_printf(out, "} %llu\n", (unsigned long long)value);
    }
}

static void put_sources(const struct metrics *metrics, struct buf *out)
{
    struct metrics_source sources[METRICS_SOURCES_MAX];
    size_t count =
        metrics->report_sources == NULL
            ? 0
            : metrics->report_sources(metrics->sources_context, sources, METRICS_SOURCES_MAX);
    for (size_t i = 0; count > 0 && i < COUNT(source_families); i++) {
        const struct figure_family *family = &source_families[i];
        put_family(out, family->name, family->type, family->help);
        for (size_t k = 0; k < count; k++) {
            put_figures(
                out, family, &(struct figures_of){NULL, "source", sources[k].name, &sources[k]});
        }
    }
}

static void put_queues(const struct metrics *metrics, struct buf *out)
{
    struct metrics_queue queues[METRICS_QUEUES_MAX];
    size_t count = metrics->report_queues == NULL ? 0
                                                  : metrics->report_queues(metrics->queues_context,
                                                        queues, METRICS_QUEUES_MAX);
    for (size_t i = 0; count > 0 && i < COUNT(queue_families); i++) {
        const struct figure_family *family = &queue_families[i];
        put_family(out, family->name, family->type, family->help);
        for (size_t k = 0; k < count; k++) {
            put_figures(
                out, family, &(struct figures_of){NULL, "queue", queues[k].name, &queues[k]});
        }
    }
}

static void put_upstreams(const struct metrics *metrics, struct buf *out)
{
    struct upstream_figures upstreams[METRICS_UPSTREAMS_MAX];
    size_t families = COUNT(upstream_families);
    if (metrics->report == NULL) {
        return;
    }
    size_t count = metrics->report(metrics->upstreams_context, upstreams, METRICS_UPSTREAMS_MAX);
    for (size_t i = 0; i < families; i++) {
        const struct figure_family *family = &upstream_families[i];
        put_family(out, family->name, family->type, family->help);
        for (size_t k = 0; k < count; k++) {
            put_figures(out, family,
                &(struct figures_of){NULL, "upstream", upstreams[k].name, &upstreams[k].stats});
        }
    }
}

unsigned metrics_delay(int64_t delay_ms)
{
    unsigned bucket = 0;
    while (bucket < METRICS_DELAYS - 1 && (double)delay_ms / 1000 > delay_seconds[bucket]) {
        bucket++;
    }
    return bucket;
}

static void put_times(const struct metrics_target *targets, size_t count, struct buf *out,
    const char *name, const char *help, bool is_calls)
{
    put_family(out, name, "histogram", help);
    for (size_t i = 0; i < count; i++) {
        const struct metrics_target *target = &targets[i];
        put_histogram(out,
            &(struct shown){.name = name,
                .kind = target->kind == NULL ? "_other" : target->kind,
                .label = "target",
                .value = slice_str(target->name == NULL ? "_other" : target->name),
                .bounds = delay_seconds,
                .buckets = is_calls ? target->calls : target->delays,
                .count = METRICS_DELAYS,
                .sum = (double)(is_calls ? target->call_ms_sum : target->delay_ms_sum) / 1000});
    }
}

/* How long calls wait for their turn, those waiting now and those begun; how long they take. */
static void put_delays(const struct engine_stats *engine, const struct metrics_target *targets,
    size_t count, struct buf *out)
{
    put_family(out, "once_dispatch_oldest_due_seconds", "gauge",
        "How long the oldest work that waits for its turn has been due; 0: none waits.");
    for (size_t i = 0; i < count; i++) {
        buf_str(out, "once_dispatch_oldest_due_seconds{");
        put_label(out, "kind", slice_str(targets[i].kind == NULL ? "_other" : targets[i].kind));
        buf_char(out, ',');
        put_label(out, "target", slice_str(targets[i].name == NULL ? "_other" : targets[i].name));
        buf_printf(out, "} %.15g\n", seconds_since(engine, targets[i].oldest_due_ms));
    }
    put_times(targets, count, out, "once_dispatch_delay_seconds",
        "From when a call to a target was due to when it began.", false);
    put_times(targets, count, out, "once_dispatch_call_seconds",
        "From when a call to a target began to its answer, or to its end without one.", true);
}

static void put_targets(
    const struct metrics *metrics, const struct engine_stats *engine, struct buf *out)
{
    struct metrics_target targets[METRICS_TARGETS_MAX];
    size_t count = metrics_targets_now(metrics, targets, METRICS_TARGETS_MAX);
    for (size_t i = 0; count > 0 && i < COUNT(target_families); i++) {
        const struct figure_family *family = &target_families[i];
        put_family(out, family->name, family->type, family->help);
        for (size_t k = 0; k < count; k++) {
            const char *kind = targets[k].kind == NULL ? "_other" : targets[k].kind;
            put_figures(
                out, family, &(struct figures_of){kind, "target", targets[k].name, &targets[k]});
        }
    }
    if (count > 0) {
        put_delays(engine, targets, count, out);
    }
}

/* Calls that Once has yet to make by itself, or gave up. */
static void put_work(const struct engine_stats *engine, struct buf *out)
{
    static const enum record_status statuses[] = {RECORD_PENDING, RECORD_WAITING,
        RECORD_IN_PROGRESS, RECORD_UNKNOWN, RECORD_COMPENSATING, RECORD_DEAD};
    put_family(out, "once_work", "gauge",
        "Commands, effects and deliveries that are not settled or are dead letters, by status.");
    for (size_t i = 0; i < COUNT(work_kinds) * COUNT(statuses); i++) {
        size_t kind = i / COUNT(statuses);
        enum record_status status = statuses[i % COUNT(statuses)];
        buf_printf(out, "once_work{kind=\"%s\",status=\"%s\"} %llu\n", work_kinds[kind].name,
            record_status_name(status),
            (unsigned long long)engine->kinds[work_kinds[kind].kind].by_status[status]);
    }
    put_family(out, "once_work_unknown_oldest_seconds", "gauge",
        "Age of the oldest unknown one in seconds; 0 if there is none.");
    for (size_t i = 0; i < COUNT(work_kinds); i++) {
        buf_printf(out, "once_work_unknown_oldest_seconds{kind=\"%s\"} %.15g\n", work_kinds[i].name,
            seconds_since(engine, engine->kinds[work_kinds[i].kind].unknown_since_ms));
    }
}

/* The space that a store's files take, and how many of them are segments. */
struct store_files {
    double bytes;
    double segments;
};

static struct store_files read_files(const char *dir)
{
    struct store_files files = {0};
    DIR *folder = opendir(dir);
    const struct dirent *entry;
    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        struct stat facts;
        if (fstatat(dirfd(folder), entry->d_name, &facts, AT_SYMLINK_NOFOLLOW) == 0 &&
            S_ISREG(facts.st_mode)) {
            files.bytes += (double)facts.st_blocks * 512; /* POSIX: st_blocks counts these units */
            files.segments += strncmp(entry->d_name, "segment-", 8) == 0;
        }
    }
    if (folder != NULL) {
        (void)closedir(folder);
    }
    return files;
}

static void put_store(const struct metrics *metrics, struct buf *out)
{
    struct statvfs disk;
    if (metrics->dir == NULL) {
        return;
    }
    struct store_files files = read_files(metrics->dir);
    put_value(out, "once_store_bytes", "gauge", "Disk space that the store's files take up.",
        files.bytes);
    put_value(out, "once_store_segments", "gauge", "Segments of the journal.", files.segments);
    if (statvfs(metrics->dir, &disk) == 0) {
        put_value(out, "once_store_disk_free_bytes", "gauge",
            "Disk space that is left for the store.",
            (double)disk.f_bavail * (double)disk.f_frsize);
    }
}

static void put_server(struct metrics *metrics, const struct metrics_view *view, struct buf *out)
{
    put_value(out, "once_config_last_reload_successful", "gauge",
        "1 when the last configuration that was to be loaded is in use.",
        atomic_load(&metrics->is_reload_good) ? 1 : 0);
    put_value(out, "once_config_last_reload_success_timestamp_seconds", "gauge",
        "When the configuration in use was loaded.",
        (double)atomic_load(&metrics->reloaded_ms) / 1000);
    if (view->http.certificate_expiry > 0) {
        put_value(out, "once_certificate_expiry_timestamp_seconds", "gauge",
            "When the first certificate expires.", (double)view->http.certificate_expiry);
    }
}

/* 0 where there is no /proc. */
static double resident_bytes(void)
{
    char text[128];
    int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? 0 : read(fd, text, sizeof text);
    if (fd >= 0) {
        (void)close(fd); /* read only: nothing can be lost */
    }
    const char *second = got <= 0 ? NULL : memchr(text, ' ', (size_t)got);
    if (second == NULL) {
        return 0;
    }
    const char *end = memchr(second + 1, ' ', (size_t)(text + got - second - 1));
    uint64_t pages = 0;
    bool is_read =
        end != NULL && text_u64(slice_of(second + 1, (size_t)(end - second - 1)), &pages);
    return is_read ? (double)pages * (double)sysconf(_SC_PAGESIZE) : 0;
}

static double open_fds(void)
{
    DIR *folder = opendir("/proc/self/fd");
    if (folder == NULL) {
        return 0;
    }
    double count = -3; /* ".", ".." and the directory's own */
    while (readdir(folder) != NULL) {
        count++;
    }
    (void)closedir(folder);
    return count;
}

static double seconds_of(const struct timeval *time)
{
    return (double)time->tv_sec + (double)time->tv_usec / 1e6;
}

/* The first reason means no doubt. */
static void put_doubts(const struct metrics *metrics, struct buf *out)
{
    static const char *const reasons[METRICS_DOUBTS_MAX] = {"", "changes", "cookies", "nothing"};
    put_family(out, "once_gateway_principal_doubtful_total", "counter",
        "Fenced requests whose principal may be wrong.");
    for (size_t i = 1; i < METRICS_DOUBTS_MAX; i++) {
        buf_printf(out, "once_gateway_principal_doubtful_total{reason=\"%s\"} %llu\n", reasons[i],
            (unsigned long long)total(metrics, &metrics->loops[0].doubts[i]));
    }
}

static void put_process(const struct metrics_view *view, struct buf *out)
{
    put_value(out, "once_log_dropped_total", "counter",
        "Log lines dropped because the log was not read in time.", (double)view->log_dropped);
    put_value(out, "once_flood_keys", "gauge", "Keys whose duplicates are being counted.",
        (double)view->flood_keys);
    put_value(out, "process_resident_memory_bytes", "gauge", "Resident memory size in bytes.",
        resident_bytes());
    put_value(out, "process_open_fds", "gauge", "Number of open file descriptors.", open_fds());
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        put_value(out, "process_max_fds", "gauge", "Maximum number of open file descriptors.",
            (double)limit.rlim_cur);
    }
    struct rusage usage;
    if (getrusage(RUSAGE_SELF, &usage) == 0) {
        put_value(out, "process_cpu_seconds_total", "counter",
            "Total user and system CPU time spent in seconds.",
            seconds_of(&usage.ru_utime) + seconds_of(&usage.ru_stime));
    }
}

void metrics_put(struct metrics *metrics, const struct metrics_view *view, struct buf *out)
{
    put_decisions(metrics, view, out);
    put_family(out, "once_first_seen_to_seal_seconds", "histogram",
        "From the first grant of an operation to its seal, by tenant.");
    put_tenants(metrics, view, out, "once_first_seen_to_seal_seconds", false);
    put_family(out, "once_conflicts_total", "counter",
        "Keys that came back with a different payload, by tenant.");
    put_by_tenant(metrics, view, out, "once_conflicts_total", "conflict_rejected");
    put_family(out, "once_unknown_total", "counter",
        "Operations that their holder or the gateway reported as unknown, by tenant.");
    put_by_tenant(metrics, view, out, "once_unknown_total", "unknown");
    put_family(out, "once_conflict_diff_bytes", "histogram",
        "Size of the difference shown to a conflict, by tenant.");
    put_tenants(metrics, view, out, "once_conflict_diff_bytes", true);
    put_family(out, "once_duplicates_refused_total", "counter",
        "Duplicates refused because their key was flooded, by tenant.");
    put_by_tenant(metrics, view, out, "once_duplicates_refused_total", "duplicate_refused");
    put_scopes(metrics, view, out);
    put_backlog(metrics, view, out);
    put_value(out, "once_clock_held", "gauge",
        "1 while the wall clock is ahead of what the machine's own clock allows.",
        view->engine.clock_held ? 1 : 0);
    put_family(out, "once_build_info", "gauge", "Always 1; the version is a label.");
    buf_str(out, "once_build_info{version=\"" ONCE_VERSION "\"} 1\n");
    put_value(out, "process_start_time_seconds", "gauge",
        "Start time of the process since the epoch in seconds.", metrics->started);
    if (view->tenant.len == 0) {
        put_routes(metrics, out);
        put_doubts(metrics, out);
        put_http(&view->http, out);
        put_engine(&view->engine, out);
        put_store(metrics, out);
        put_server(metrics, view, out);
        put_sources(metrics, out);
        put_queues(metrics, out);
        put_upstreams(metrics, out);
        put_targets(metrics, &view->engine, out);
        put_work(&view->engine, out);
        put_process(view, out);
    }
}
