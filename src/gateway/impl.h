/*
 * impl: what the files of the gateway share: gateway.c (configurations, upstreams, the way in),
 * fence.c with arrive.c and long.c, relay.c, answer.c, reconcile.c with reconcile_schedule.c.
 */
#ifndef ONCE_GATEWAY_IMPL_H
#define ONCE_GATEWAY_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/limits.h"
#include "base/spool.h"
#include "base/text.h"
#include "gateway/gateway.h"
#include "gateway/principal.h"
#include "gateway/reconcile_rules.h"
#include "gateway/refusals.h"
#include "gateway/request_form.h"
#include "gateway/upstreams.h"
#include "http/fields.h"
#include "http/upstream.h"

enum {
    GATEWAY_GIVE_BYTES = 64 << 10,  /* of an answer handed to the server at a time */
    GATEWAY_LEASE_MARGIN_MS = 5000, /* a lease lasts at least as long as the call, and this */
    GATEWAY_SCRATCH_BYTES_MAX = 512 << 20,   /* to read one body as JSON: a backstop, bodies are
                                              bounded */
    GATEWAY_DISCARD_BYTES_MAX = 64 << 10,    /* a refused request's body is read to keep its
                                              connection, if it is no longer than this */
    GATEWAY_CREDENTIAL_BYTES_MAX = 16 << 10, /* no server takes a longer field */
};

/* A configuration in use. */
struct gate {
    struct config *config; /* held */
    const struct config_gateway *gateway;
    struct principals *principals;
    struct upstreams_one **upstreams; /* of each route; the last is of `otherwise` */
    struct buf *credentials; /* of each route: the Authorization of its reconcile; empty: none */
    unsigned holders; /* requests and questions, and the gateway while it is the current one */
};

struct reconciling;
struct schedule;

struct gateway {
    const struct mem *mem;
    struct door *door;
    struct http_server *server;
    const char *spool_dir;
    unsigned loops;
    struct clock clock;
    struct gateway_loop *own; /* of each loop */
    pthread_mutex_t lock;     /* guards gate, its count, questions and watch */
    struct gate *gate;        /* for requests that begin now */
    struct upstreams *upstreams;
    struct reconciling *questions; /* to upstreams, about unknown operations (reconcile.c) */
    unsigned reconcile_count;
    struct reconcile_watch watch; /* of the engine's time, for reconcile.quiet */
    struct schedule *schedule;    /* reconcile_schedule.c */
    atomic_bool is_cut;           /* no upstream is called any more */
    _Atomic uint64_t spooled;     /* bytes of all bodies and answers on their way */
    /* What gateway_is_idle looks at. Each is raised before is_cut is asked, so that who cuts sees
     * it or is seen. */
    atomic_uint busy;      /* questions and rounds that are not over */
    atomic_uint in_engine; /* calls of theirs whose answer was not posted to its loop yet */
};

/*
 * A fenced request.
 *
 *            handle           decided: granted     the upstream's last word      settled
 *   READING ───────▶ ASKED ─────────────────▶ FORWARDED ──────────▶ SETTLING ───────────▶ GIVING
 *      │               │  │ ▲                    │ more than is kept                          │ ▲
 *      │ refused       │  └─┘ reconciled         └──────────▶ SEALING ─── settled ────────────┘ │
 *      ▼               ▼ not granted                            (upstream paused) STREAMING ────┘
 *   ANSWERED        ANSWERED
 *
 * Transitions, all through pass_move:
 *   READING → ASKED       ask (fence.c)        body and fingerprint are there
 *   ASKED → ASKED         ask                  the upstream was asked what became of it, once
 *   ASKED → FORWARDED     forward              the grant is durable
 *   FORWARDED → SETTLING  settle               its last word came, or it failed
 *   ASKED → SETTLING      settle               nothing could be sent: released
 *   FORWARDED → SEALING   fence_settle         its head came, and the body is longer than is kept
 *   SETTLING → GIVING     answer_first         settled; a short answer goes at once
 *   SEALING → STREAMING   sealed_long          settled; what follows goes through
 *   READING → RELAYED     relay_begin          it is not fenced
 *   any → ANSWERED        pass_end             the answer is the server's
 *
 * What holds (pass_check):
 *   G1  only in ASKED, SETTLING and SEALING a call of ours is in the engine, and then nobody
 *       allocates in the exchange's arena but the engine.
 *   G2  FORWARDED, SEALING and STREAMING have a call with the upstream that had no last event
 *       (is_up); no other state has, and none of them without a grant (fence > 0) (P6).
 *   G3  GIVING and STREAMING: the operation is settled and durable (P2), or can never be.
 */
enum pass_state {
    PASS_READING,
    PASS_ASKED,
    PASS_FORWARDED,
    PASS_SETTLING,
    PASS_SEALING,
    PASS_STREAMING,
    PASS_GIVING,
    PASS_RELAYED, /* not fenced: relay.c */
    PASS_ANSWERED,
};

/* One request on its way through; in its exchange's arena. */
struct pass {
    struct door_call call;   /* first, so that the engine's pointer is ours */
    struct upstream_call up; /* the call with the upstream */
    struct gateway *gateway;
    struct gate *gate; /* held until it is answered */
    const struct config_route *route;
    struct upstreams_one *upstream;
    struct http_exchange *exchange;
    enum pass_state state;
    struct mem mem; /* the exchange's arena */

    /* The request. */
    struct slice path;      /* canonical */
    struct slice query;     /* canonical */
    struct slice key_field; /* Idempotency-Key as it came, or as it was made; empty: none */
    struct slice key;
    struct slice principal;
    struct slice traceparent; /* the client's, or a fresh one */
    struct spool body;        /* if it is too long for the server to hold */
    bool is_spooled;
    struct request_form asked;
    bool has_refusal; /* refused before its body was read; told when it was */
    struct refusal refusal;
    struct err fault; /* the refusal's detail may be its text */
    int64_t flooded_ms;

    /* The grant. */
    struct op_id operation_id;
    char operation_text[OP_ID_TEXT_BYTES];
    uint64_t fence;
    uint32_t attempt;
    bool was_reconciled;

    /* The answer of the upstream. */
    bool is_up;           /* the call with it has had no last event */
    bool has_head;        /* answer_head is set */
    bool is_again;        /* relay: tried a second time */
    bool is_begun;        /* relay: the answer to the client has begun */
    bool has_failed;      /* sealing: the upstream failed meanwhile */
    bool has_ended;       /* sealing: it ended meanwhile */
    unsigned kept_status; /* its status */
    struct http_head *answer_head;
    struct buf request_head; /* for the upstream */
    struct buf meta;         /* its fields that are kept */
    struct spool answer;     /* its body */
    struct slice view;       /* all of that */
    uint64_t spooled;        /* bytes of both spools, as they count in the gateway */
    struct slice rest;       /* a piece behind it that the spool had no room for */
    size_t given;            /* of view, to the client */
    struct slice effect_id; /* the upstream's name for what it did (Once-Effect-Id); may be empty */
    enum refusal_kind failure;               /* what the client is told when there is no answer */
    char reason[LIMIT_REASON_BYTES_MAX + 1]; /* of a release or an unknown, for the record */
    const char *effect; /* Once-Effect, where the upstream's own answer is passed on; NULL */
    size_t diff_bytes;  /* of a conflict */
};

/* gateway.c */
/* The current one, held; one that is held, once more; and an end to that. */
struct gate *gate_take(struct gateway *gateway);
void gate_hold(struct gateway *gateway, struct gate *gate);
void gate_drop(struct gateway *gateway, struct gate *gate);
/* The first route that matches, or `otherwise`, which may be NULL. method: a bit of enum
 * config_method, or 0 for the others. */
const struct config_route *gate_route(const struct gate *gate, unsigned method, struct slice path,
    struct upstreams_one **ret_upstream);
/* The client's traceparent or a fresh one. */
enum status pass_trace(struct pass *pass);
void pass_move(struct pass *pass, enum pass_state state);
/* Make one of its spools ready. Where much is on its way already, memory is left to others. */
void pass_spool_init(struct pass *pass, struct spool *spool, uint64_t total_max);
/* spool_put, within what all of them may have together. E_LIMIT, with fault, past that too. */
enum status pass_spool(struct pass *pass, struct spool *spool, struct slice piece) MUST_CHECK;

/* The fields that a route keeps of an answer. */
static inline struct fields_kept route_kept(const struct config_route *route)
{
    return (struct fields_kept){route->replay_headers, route->replay_header_count};
}

/* fence.c: after route and gate are set. */
void fence_begin(struct pass *pass);
void fence_handle(struct pass *pass);
/* Give the call to the engine; resume is called when it is durable, or refused. */
void pass_submit(struct pass *pass, http_handle resume);
/* Make the call by the rule for the upstream's answer, with the body as it is to be kept. */
void fence_settle(struct pass *pass, const struct body_ref *body, enum pass_state state);
/* Whether it is settled as it was asked for: durably, and by nobody else. */
bool fence_is_settled(const struct pass *pass);
/* What pass_submit leads to behind it. */
void fence_settled(void *context, struct http_exchange *exchange);

/* arrive.c: key, principal and where the body goes; refused, or passed by, or to go on with. */
void arrive_head(struct pass *pass);
/* The whole body. E_UNAVAILABLE, E_NOMEM: with fault. */
enum status arrive_body(struct pass *pass, struct slice *ret_body) MUST_CHECK;
/* Make the begin. E_INVALID, E_NOMEM: with fault. */
enum status arrive_begin(struct pass *pass, struct slice body) MUST_CHECK;

/* long.c: after the head, when the body is longer than is kept; then each event of the upstream. */
void long_settle(struct pass *pass);
void long_piece(struct pass *pass, struct slice piece);
void long_ended(struct pass *pass, bool is_whole);

/* relay.c */
void relay_begin(struct pass *pass);
void relay_handle(struct pass *pass);

/* answer.c: each is the last that is done with a pass. */
void answer_refusal_now(struct pass *pass, const struct refusal *refusal, const char *decision);
/* Of a record that is sealed. */
void answer_replay(struct pass *pass);
/* The upstream's own, from what was captured. */
void answer_first(struct pass *pass);
/* Give the client of view what it takes. False: go on when it is drained. True: all was given. */
bool answer_give(struct pass *pass) MUST_CHECK;
/* Fields that every answer to a fenced request has; decision NULL: nothing was decided. */
void answer_fields(struct pass *pass, const char *decision);
/* Why a call with the upstream failed: addresses are for the log, not for clients. */
void answer_log_failure(struct pass *pass, const struct err *err);
/* Count and log what was decided. */
void answer_tell(struct pass *pass, unsigned status);
/* Let go of everything a pass has but its exchange, and count the request. */
void pass_end(struct pass *pass, unsigned status);

#endif
