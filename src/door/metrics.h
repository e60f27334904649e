/*
 * metrics: the doors' metrics, in Prometheus text format.
 *
 * Counters are kept per loop, so that loops do not share cache lines, and added up when the page is
 * read. Labels by scope and tenant are bounded: see metric_labels.h.
 *
 * Promises:  the view of one tenant has its own series, and the facts that are the same for
 *            everybody: version, start time and whether the clock is held. Everything that would
 *            reveal other tenants' traffic is left out (P9): requests, connections, queues,
 *            batches, flushes, live keys, the evidence's length, upstreams, the targets of calls
 *            that Once makes by itself, memory, descriptors, and "_other", which the tenants beyond
 *            the limit share.
 *
 * Threads:   each loop counts under its own number; metrics_put may be called on any thread.
 */
#ifndef ONCE_DOOR_METRICS_H
#define ONCE_DOOR_METRICS_H

#include "base/buf.h"
#include "core/decide.h"
#include "engine/backlog.h"
#include "engine/engine.h"
#include "http/serve.h"
#include "http/upstream.h"

struct metrics;

enum {
    METRICS_SERIES_MAX = 1000, /* scopes of all tenants, beyond those in their own room */
    METRICS_SCOPES_OWN = 8,    /* scopes reserved for each tenant, whatever others use; few programs
                                  have more (P9) */
    METRICS_TENANTS_MAX = 100,
    METRICS_UPSTREAMS_MAX = 64, /* shown by name; the rest are added up as "_other" */
    METRICS_TARGETS_MAX = 256,  /* likewise */
    METRICS_SOURCES_MAX = 256,  /* as many as a configuration may have */
    METRICS_QUEUES_MAX = 64,    /* as many as a configuration may have */
    METRICS_VERDICTS = 5,
    METRICS_BREAKERS = 3,
    METRICS_DELAYS = 15,               /* buckets of delays; the last has no bound */
    METRICS_PAGE_BYTES_MAX = 64 << 20, /* every series, with the longest names and every decision */
};

struct metrics *metrics_new(const struct mem *mem, unsigned loops) MUST_CHECK;
void metrics_free(struct metrics *metrics);

/* A decision that was answered. */
struct metrics_decision {
    struct slice tenant;
    struct slice scope;
    const char *decision;     /* decision_name, or "duplicate_refused" for a flood */
    int64_t first_to_seal_ms; /* of a seal: since the first grant; -1: not a seal */
    size_t diff_bytes;        /* of a conflict */
    bool is_conflict;
};
void metrics_decision(
    struct metrics *metrics, unsigned loop, const struct metrics_decision *decision);
/* A call that Once made by itself and that is over. */
struct metrics_call {
    struct slice tenant;
    struct slice scope; /* the type of the effect, the command or the source */
    unsigned verdict;   /* enum outcall_verdict */
    int64_t delay_ms;   /* from when it was due to when it began; -1: it did not wait */
    int64_t call_ms;    /* from then to its end */
};
void metrics_call(struct metrics *metrics, unsigned loop, const struct metrics_call *call);
/* One answered request; route is the path's pattern ("/v1/operations/{operation_id}"). */
void metrics_request(
    struct metrics *metrics, unsigned loop, const char *route, unsigned status, uint64_t nanos);

/* A fenced request whose principal is in doubt; reason is an enum principal_doubt. */
enum { METRICS_DOUBTS_MAX = 4 };
void metrics_doubt(struct metrics *metrics, unsigned loop, unsigned reason);

/* Reports up to max upstreams; the rest are added up in the last one, whose name is NULL. Returns
 * how many it reported. Any thread. */
typedef size_t (*metrics_report_upstreams)(
    void *context, struct upstream_figures *ret_upstreams, size_t max);
/* Set the reporter; NULL: none. Only before the server starts or after it has been freed. */
void metrics_upstreams(struct metrics *metrics, metrics_report_upstreams report, void *context);

/* A target of the calls that Once makes by itself: a connector or a handler. The texts live as long
 * as the reporter. */
struct metrics_target {
    const char *kind; /* "effects", … */
    const char *name;
    uint64_t breakers[METRICS_BREAKERS]; /* how many are closed, open, half open; a single target
                                            has one 1 */
    uint64_t opened;                     /* how often the breaker opened */
    uint64_t in_flight;                  /* calls in progress */
    uint64_t queued;                     /* waiting in memory for their turn */
    uint64_t attempts[METRICS_VERDICTS]; /* finished, by enum outcall_verdict */
    uint64_t questions;                  /* asked of the provider about unknown calls, likewise */
    int64_t oldest_due_ms;           /* when the oldest queued call was due; 0: none is queued */
    uint64_t delays[METRICS_DELAYS]; /* calls begun, by how long after their due time */
    uint64_t delay_ms_sum;           /* sum of all delays */
    uint64_t calls[METRICS_DELAYS];  /* calls ended, by how long they took */
    uint64_t call_ms_sum;            /* sum of these times */
};
/* The bucket of a delay, or of the time that a call took. */
unsigned metrics_delay(int64_t delay_ms);
/* Reports up to max targets; the rest are added up in the last one, whose kind and name are NULL.
 * Returns how many it reported. Any thread. */
typedef size_t (*metrics_report_targets)(
    void *context, struct metrics_target *ret_targets, size_t max);
/* As metrics_upstreams. */
void metrics_targets(struct metrics *metrics, metrics_report_targets report, void *context);
/* What that reporter reports now; 0 without a reporter. Any thread. */
size_t metrics_targets_now(
    const struct metrics *metrics, struct metrics_target *ret_targets, size_t max);
/* The name of the state that a breaker of this target is in; an open one comes first. */
const char *metrics_breaker(const struct metrics_target *target);

/* Why an event of a sender was refused. */
enum metrics_refusal {
    METRICS_REFUSED_MISSING, /* no signature; the next five say what is wrong with it */
    METRICS_REFUSED_DOUBLED,
    METRICS_REFUSED_MALFORMED,
    METRICS_REFUSED_MISMATCH,
    METRICS_REFUSED_TOO_OLD,
    METRICS_REFUSED_TOO_NEW,
    METRICS_REFUSED_FLOOD, /* too many such requests */
    METRICS_REFUSED_EVENT, /* signed, and not an event */
    METRICS_REFUSED_LENGTH,
    METRICS_REFUSED_CONFLICT, /* a known id with a different payload */
    METRICS_REFUSALS
};
/* A source of the inbox, and what its senders were answered. */
struct metrics_source {
    char name[65];
    uint64_t received; /* events that were signed and read */
    uint64_t duplicates;
    uint64_t stale;
    uint64_t refused[METRICS_REFUSALS];
};
/* Reports up to max sources. Returns how many it reported. Any thread. */
typedef size_t (*metrics_report_sources)(
    void *context, struct metrics_source *ret_sources, size_t max);
/* As metrics_upstreams. */
void metrics_sources(struct metrics *metrics, metrics_report_sources report, void *context);

/* A queue of the inbox, and the messages of its broker. */
struct metrics_queue {
    char name[65];
    uint64_t connected; /* 1: connected */
    uint64_t connects;  /* how often it connected */
    uint64_t received;
    uint64_t duplicates; /* those of them whose key was known */
    uint64_t acknowledged;
    uint64_t parked;
    uint64_t waiting; /* received and not acknowledged */
    uint64_t lag;     /* not yet taken by any consumer, as the broker reports */
};
/* Reports up to max queues. Returns how many it reported. Any thread. */
typedef size_t (*metrics_report_queues)(
    void *context, struct metrics_queue *ret_queues, size_t max);
/* As metrics_upstreams. */
void metrics_queues(struct metrics *metrics, metrics_report_queues report, void *context);

/* Show the files and the disk of this directory; dir must stay valid. NULL: the store has none.
 * Only before the server starts. */
void metrics_store(struct metrics *metrics, const char *dir);
/* The configuration was reloaded, or the reload failed. Any thread. */
void metrics_reloaded(struct metrics *metrics, bool is_good);
/* Show the decisions of this tenant (scope empty), or of this scope of it, as 0 until the first one
 * comes, so that the first one is an increase. Any thread. */
void metrics_expect(struct metrics *metrics, struct slice tenant, struct slice scope);

/* What else the page shows. */
struct metrics_view {
    struct slice tenant; /* show only its series; empty: show everything */
    struct engine_stats engine;
    struct backlog *backlog; /* NULL: not known */
    struct http_server_stats http;
    uint64_t log_dropped;
    uint64_t flood_keys;
};
/* Append the whole page. Errors are sticky in buf. */
void metrics_put(struct metrics *metrics, const struct metrics_view *view, struct buf *out);

#endif
