/*
 * metrics: figures of the door, in Prometheus text form.
 *
 * Counters are kept per loop, so that loops do not share cache lines, and added up when somebody
 * looks. Labels by scope and tenant are bounded: past METRICS_SCOPES_OWN of its tenant, and
 * METRICS_SERIES_MAX of all, a new pair is counted under scope "_other" of its tenant, past
 * METRICS_TENANTS_MAX tenant "_other" (series.h).
 *
 * Promises:  the view of one tenant has its own series and what is the same for everybody: version,
 *            start and whether the clock is held. Whatever would tell of others' traffic is left
 *            out (P9): requests, connections, queues, batches, flushes, live keys, the evidence's
 *            length, upstreams, the work that Once does by itself, memory, descriptors, and
 *            "_other", which tenants past the cap share.
 *
 * Threads:   each loop counts on its own number; metrics_put from any thread.
 */
#ifndef ONCE_DOOR_METRICS_H
#define ONCE_DOOR_METRICS_H

#include "base/buf.h"
#include "core/decide.h"
#include "engine/engine.h"
#include "http/serve.h"
#include "http/upstream.h"

struct metrics;

enum {
    METRICS_SERIES_MAX = 1000, /* of scopes that tenants have beyond their own room */
    METRICS_SCOPES_OWN = 8,    /* of a tenant, whatever others use: few programs have more (P9) */
    METRICS_TENANTS_MAX = 100,
    METRICS_UPSTREAMS_MAX = 64, /* shown by name; those past it are added up as "_other" */
    METRICS_TARGETS_MAX = 256,  /* likewise */
    METRICS_QUEUES_MAX = 64,    /* as many as a configuration may have */
    METRICS_VERDICTS = 5,
    METRICS_BREAKERS = 3,
    METRICS_DELAYS = 15,               /* buckets of delays, the last of them without a bound */
    METRICS_PAGE_BYTES_MAX = 64 << 20, /* every series with the longest names and each decision */
};

struct metrics *metrics_new(const struct mem *mem, unsigned loops) MUST_CHECK;
void metrics_free(struct metrics *metrics);

/* One decision that was answered. */
struct metrics_decision {
    struct slice tenant;
    struct slice scope;
    const char *decision;     /* decision_name, or "duplicate_refused" for a flood's */
    int64_t first_to_seal_ms; /* a seal: since the first grant; -1: no seal */
    size_t diff_bytes;        /* a conflict */
    bool is_conflict;
};
void metrics_decision(
    struct metrics *metrics, unsigned loop, const struct metrics_decision *decision);
/* One answered request; route is the pattern of the path ("/v1/operations/{operation_id}"). */
void metrics_request(
    struct metrics *metrics, unsigned loop, const char *route, unsigned status, uint64_t nanos);

/* A fenced request whose principal is in doubt; reason: of enum principal_doubt. */
enum { METRICS_DOUBTS_MAX = 4 };
void metrics_doubt(struct metrics *metrics, unsigned loop, unsigned reason);

/* Tells of up to max upstreams, the rest added up in the last one with name NULL. How many. Any
 * thread. */
typedef size_t (*metrics_report_upstreams)(
    void *context, struct upstream_figures *ret_upstreams, size_t max);
/* Who tells; NULL: nobody. Before the server is started, or when it is gone. */
void metrics_upstreams(struct metrics *metrics, metrics_report_upstreams tell, void *context);

/* A target of calls that Once makes by itself: a connector, or a handler. Texts live as long as who
 * tells. */
struct metrics_target {
    const char *kind; /* "effects", … */
    const char *name;
    uint64_t breakers[METRICS_BREAKERS]; /* how many are closed, open, half open: of one, a 1 */
    uint64_t opened;                     /* how often the breaker did */
    uint64_t in_flight;                  /* calls under way */
    uint64_t queued;                     /* in memory, for their turn */
    uint64_t attempts[METRICS_VERDICTS]; /* that are over, by enum outcall_verdict */
    uint64_t questions;                  /* to the provider about unknown ones, likewise */
    int64_t oldest_due_ms;               /* of those queued: when the oldest was due; 0: none is */
    uint64_t delays[METRICS_DELAYS];     /* calls that were begun, by how long after their due */
    uint64_t delay_ms_sum;               /* of all of them */
};
/* The bucket of a delay. */
unsigned metrics_delay(int64_t delay_ms);
/* Tells of up to max targets, the rest added up in the last one with kind and name NULL. How many.
 * Any thread. */
typedef size_t (*metrics_report_targets)(
    void *context, struct metrics_target *ret_targets, size_t max);
/* As metrics_upstreams. */
void metrics_targets(struct metrics *metrics, metrics_report_targets tell, void *context);

/* A queue of the inbox, and the messages of its broker. */
struct metrics_queue {
    char name[65];
    uint64_t connected; /* 1: it is */
    uint64_t connects;  /* how often it connected */
    uint64_t received;
    uint64_t duplicates; /* of them, those whose key was known */
    uint64_t acknowledged;
    uint64_t parked;
    uint64_t waiting; /* received and not acknowledged */
    uint64_t lag;     /* that nobody has taken yet, as the broker says */
};
/* Tells of up to max queues. How many. Any thread. */
typedef size_t (*metrics_report_queues)(
    void *context, struct metrics_queue *ret_queues, size_t max);
/* As metrics_upstreams. */
void metrics_queues(struct metrics *metrics, metrics_report_queues tell, void *context);

/* The directory whose files and disk are shown; stays. NULL: the store has none. Before the server
 * is started. */
void metrics_store(struct metrics *metrics, const char *dir);
/* The configuration was read again, or could not be. Any thread. */
void metrics_reloaded(struct metrics *metrics, bool is_good);
/* There may be decisions of this tenant (scope is empty), or of this scope of it: they are shown
 * as 0 until then, so that the first one is an increase. Any thread. */
void metrics_expect(struct metrics *metrics, struct slice tenant, struct slice scope);

/* What else is shown. */
struct metrics_view {
    struct slice tenant; /* only its series; empty: everything of all */
    struct engine_stats engine;
    struct http_server_stats http;
    uint64_t log_dropped;
    uint64_t flood_keys;
};
/* The whole page. Sticky as all of buf. */
void metrics_put(struct metrics *metrics, const struct metrics_view *view, struct buf *out);

#endif
