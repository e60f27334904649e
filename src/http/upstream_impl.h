/*
 * upstream_impl: shared by the files of the upstream: upstream.c (the upstream itself, and calls
 * without a connection), upstream_conn.c (a connection's life), upstream_address.c (URLs, names,
 * health).
 *
 * Threads:   a worker and everything it points to belong to its loop, except the statistics. URLs,
 *            limits and the TLS context are shared and do not change.
 */
#ifndef ONCE_HTTP_UPSTREAM_IMPL_H
#define ONCE_HTTP_UPSTREAM_IMPL_H

#include <netinet/in.h>
#include <stdatomic.h>

#include "base/buf.h"
#include "http/body.h"
#include "http/upstream.h"
#include "net/stream.h"
#include "net/tls.h"

enum {
    UPSTREAM_URLS_MAX = 64,             /* each has at least one address */
    UPSTREAM_ADDRESSES_MAX = 64,        /* a call notes in one word which it has tried */
    UPSTREAM_ADDRESS_TEXT_BYTES = 56,   /* "[…]:65535" of a whole IPv6 address */
    UPSTREAM_INBOX_BYTES = 64 << 10,    /* one read: the longest head, and much of a body */
    UPSTREAM_POOLED_MAX = 256,          /* idle objects of a kind kept by a loop; the rest are
                                           freed */
    UPSTREAM_KEPT_BYTES_MAX = 64 << 10, /* a buffer that grew past this is not kept */
    UPSTREAM_PUT_BYTES_MAX = 256 << 20, /* put and not taken; a last resort: callers must wait for
                                           drained */
    UPSTREAM_INTERIM_MAX = 32,          /* interim answers before the final one; a server that sends
                                           more is refused */
    UPSTREAM_TRIES_MIN = 2,             /* of one address: a restart closes what it accepted */
    UPSTREAM_BACKOFF_MS_MIN = 250,      /* for which an address is left out after its first
                                           failure */
    UPSTREAM_BACKOFF_MS_MAX = 30000,    /* and at most, doubling */
    UPSTREAM_LOOKUP_AGAIN_MS = 1000,    /* after a lookup that failed */
    UPSTREAM_CONNECTIONS_DEFAULT = 256, /* the defaults that upstream.h promises */
    UPSTREAM_WAITING_DEFAULT = 1024,
    UPSTREAM_RESOLVE_MS_DEFAULT = 30000,
};

struct upstream_worker;

union upstream_socket {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

struct upstream_url {
    char *authority; /* as it was written: "api.example.com", "[::1]:8080" */
    char *host;      /* without brackets and port */
    uint16_t port;
    bool is_numeric;              /* host is an address, socket is it */
    union upstream_socket socket; /* valid if is_numeric */
};

/* One address of one URL. Its place in the table is not reused while somebody uses it. */
struct upstream_address {
    union upstream_socket socket;
    unsigned url;                           /* whose */
    bool is_known;                          /* it was in the last successful lookup */
    unsigned conns;                         /* connections to it that are not freed yet */
    uint64_t down_until_ms;                 /* left out while others are available */
    uint32_t backoff_ms;                    /* how long that was; 0: the last connect succeeded */
    char text[UPSTREAM_ADDRESS_TEXT_BYTES]; /* "10.0.0.1:80", for people */
};

/* What a loop knows of a URL's name. */
struct upstream_lookup {
    uv_getaddrinfo_t request;
    struct upstream_worker *worker;
    unsigned url;
    unsigned next;       /* where in the table the search for its next address begins */
    bool is_under_way;   /* the request is with libuv */
    uint64_t again_ms;   /* look up again from then on; 0: at once */
    const char *failure; /* of the last lookup; static; NULL: it succeeded */
};

/* Received bytes of an answer; [at, len) were not read yet. */
struct upstream_inbox {
    struct upstream_inbox *next; /* in the pool */
    uint32_t at;
    uint32_t len;
    char data[UPSTREAM_INBOX_BYTES];
};

/* How far the sending of a request is. */
enum upstream_send {
    UPSTREAM_SEND_OPEN,    /* there is more, or may be */
    UPSTREAM_SEND_DONE,    /* all of it is with the kernel */
    UPSTREAM_SEND_STOPPED, /* the answer came first, or the other side accepts no more */
};

/*
 * A call.
 *
 *             connection            connected          final head        end of body
 *   WAITING ───────────▶ CONNECTING ─────────▶ HEAD ─────────────▶ BODY ─────────────▶ DONE
 *      ▲ │                    │                 │  ▲ interim │
 *      │ └── one that is idle ┼────────────────▶│  └─────────┘
 *      └─── failed, and tries left ◀────────────┘ not a byte was taken (UP2)
 *   any state: failed, late, cancelled ──▶ DONE
 *
 * Transitions, all through upstream_call_move:
 *   DONE → WAITING        upstream_start         a call that is new, or used again
 *   WAITING → CONNECTING  upstream_connect       an address was chosen
 *   CONNECTING → HEAD     upstream_begin         the request is handed to the stream
 *   WAITING → HEAD        upstream_begin         the same on a connection that was idle
 *   CONNECTING → WAITING  upstream_call_untried  refused, late, or not who it should be
 *   HEAD → WAITING        upstream_call_untried  the stream took no byte
 *   HEAD → BODY           final_head             the head of the answer is whole
 *   any → DONE            call_done              the last event follows, or none
 *
 * What holds (upstream_call_check):
 *   UV1 A call that is not DONE has its own exchange; a DONE call has none.
 *   UV2 WAITING has no connection; CONNECTING, HEAD and BODY have one, which is theirs.
 *   UV3 A call returns to WAITING only if no byte of it was taken (UP2, UP3).
 *
 * A connection.
 *
 *   CONNECTING ──▶ BUSY ⇄ IDLE      any state ──▶ CLOSING ──▶ (freed)
 *
 *   CONNECTING, IDLE → BUSY  upstream_begin         a request is handed to the stream
 *   BUSY → IDLE              conn_park              the exchange was whole: UP5
 *   any → CLOSING            upstream_conn_close
 *   CLOSING → freed          on_closed
 *
 * What holds (conn_check):
 *   UN1 CONNECTING and BUSY have a call whose connection this is; IDLE and CLOSING have none.
 *   UN2 IDLE sends nothing and has no inbox, and is in the list of those that are.
 *   UN3 The worker counts all but those in CLOSING, and there are at most connections_max.
 */
enum call_state {
    CALL_DONE, /* 0, so that a fresh call is */
    CALL_WAITING,
    CALL_CONNECTING,
    CALL_HEAD,
    CALL_BODY,
};

enum upstream_conn_state {
    UPSTREAM_CONN_CONNECTING,
    UPSTREAM_CONN_BUSY,
    UPSTREAM_CONN_IDLE,
    UPSTREAM_CONN_CLOSING,
};

/* What a call needs while it is not done. */
struct upstream_exchange {
    struct upstream_exchange *next; /* in the pool */
    struct upstream_call *call;
    struct net_deadline deadline;
    uint64_t tried;            /* addresses that were, a bit each */
    uint64_t since_ms;         /* of the state, or of the last progress in it */
    uint64_t sent_ms;          /* when sending was over */
    uint64_t given_before;     /* what the stream had taken when the request began */
    uint64_t unsent;           /* at since_ms, of a send that is watched */
    struct http_head head;     /* of the answer */
    struct http_body body;     /* of the answer */
    struct buf put;            /* streamed: not handed to the stream yet */
    struct buf sending;        /* streamed: being sent */
    struct err err;            /* of the last try that failed */
    enum upstream_cause cause; /* of it */
    enum upstream_send send;
    unsigned interim;    /* answers so far */
    bool is_fresh_only;  /* an idle connection was tried and was dead */
    bool is_all_put;     /* nothing follows what is put */
    bool is_paused;      /* by the caller */
    bool owes_drained;   /* a put returned false: drained must be called */
    bool is_starved;     /* there was no memory for a put */
    bool asks_close;     /* the request says that the connection ends */
    bool has_failed_try; /* err and cause are set */
};

struct upstream_conn {
    struct net_stream stream;
    struct net_connect connect;
    struct net_write write;
    struct net_deadline deadline; /* while idle */
    struct upstream_conn *prev;   /* in the worker's list of all, those in CLOSING too */
    struct upstream_conn *next;
    struct upstream_conn *idle_prev; /* in its list of the idle ones */
    struct upstream_conn *idle_next;
    struct upstream_worker *worker;
    struct upstream_address *address;
    struct upstream_call *call; /* UN1 */
    struct upstream_inbox *in;  /* while busy */
    int64_t idle_ms;            /* how long it may be kept, by our limit and the peer's */
    enum upstream_conn_state state;
    bool is_reused;   /* it had a call before this one */
    bool is_stepping; /* conn_advance is at work */
};

struct upstream_worker_stats { /* written by the loop, read by anybody */
    _Atomic uint64_t calls;
    _Atomic uint64_t failed[3];
    _Atomic uint64_t connects;
    _Atomic uint64_t reused;
    _Atomic uint64_t open;
    _Atomic uint64_t idle;
    _Atomic uint64_t waiting;
    _Atomic uint64_t down;
};

struct upstream_worker {
    struct upstream *upstream;
    struct net_loop *loop;        /* NULL: not attached */
    bool is_detached;             /* no call is begun any more */
    bool is_wake_posted;          /* wake_waiting is with the loop */
    struct net_task wake_waiting; /* there may be room for those that wait */
    struct upstream_address addresses[UPSTREAM_ADDRESSES_MAX];
    unsigned places;                 /* of the table that were ever in use */
    struct upstream_lookup *lookups; /* one a URL */
    unsigned next_url;               /* whose turn it is */
    struct upstream_conn conns;      /* head of a circular list */
    struct upstream_conn idle;       /* head of a circular list, most recently used first */
    struct upstream_call *first;     /* of those that wait, in their order */
    struct upstream_call *last;
    uint32_t open;                       /* connections but for those in CLOSING; UN3 */
    uint32_t waiting;                    /* calls */
    struct upstream_exchange *exchanges; /* pools */
    struct upstream_inbox *inboxes;
    unsigned exchange_count;
    unsigned inbox_count;
    struct upstream_worker_stats stats;
};

struct upstream {
    const struct mem *mem;
    struct upstream_url urls[UPSTREAM_URLS_MAX];
    unsigned url_count;
    struct net_tls_context *tls; /* NULL: plain */
    struct http_limits limits;   /* of answers; bodies are bounded by each call */
    uint32_t connections_max;
    uint32_t waiting_max;
    int64_t idle_ms_max;
    int64_t resolve_ms;
    bool is_public_only;
    struct upstream_worker *workers;
    unsigned worker_count;
};

static inline void upstream_count(_Atomic uint64_t *stat, uint64_t value)
{
    /* One writer: a load and a store, not a locked addition. Going down wraps round, as it may. */
    uint64_t was = atomic_load_explicit(stat, memory_order_relaxed);
    atomic_store_explicit(stat, was + value, memory_order_relaxed);
}

static inline struct upstream_worker *upstream_worker_of(const struct upstream_call *call)
{
    return &call->upstream->workers[call->loop];
}

static inline uint64_t upstream_now(const struct upstream_worker *worker)
{
    return net_loop_now(worker->loop);
}

/* upstream.c */
void upstream_call_move(struct upstream_call *call, enum call_state state);
void upstream_call_check(const struct upstream_call *call);
/* How far it got. */
enum upstream_point upstream_call_point(const struct upstream_call *call);
/* The last event, failed. The connection, if there is one, is closed first. */
void upstream_call_fail(struct upstream_call *call, enum upstream_cause cause, const char *format,
    ...) __attribute__((format(printf, 3, 4)));
/* The last event, end. The connection was dealt with. */
void upstream_call_end(struct upstream_call *call);
/* Remember why a try failed; the call has no connection again: UV3. */
void upstream_call_untried(struct upstream_call *call, enum upstream_cause cause,
    const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Try again after upstream_call_untried: a last event may come. */
void upstream_call_again(struct upstream_call *call);
void upstream_call_arm(struct upstream_call *call);
/* There may be room for waiting calls; they are started later, not from within this call. */
void upstream_wake_waiting(struct upstream_worker *worker);
struct upstream_inbox *upstream_inbox_take(struct upstream_worker *worker) MUST_CHECK;
void upstream_inbox_return(struct upstream_worker *worker, struct upstream_inbox *inbox);

/* upstream_conn.c */
/* True: it is on its way, or has failed finally. False: it is as upstream_call_untried leaves
 * it. */
bool upstream_connect(struct upstream_call *call, struct upstream_address *address) MUST_CHECK;
/* The same on an idle connection. An event may come: drained. */
bool upstream_begin(struct upstream_conn *conn, struct upstream_call *call) MUST_CHECK;
/* The most recently used one to that address, or NULL for any, that is alive; NULL: none. */
struct upstream_conn *upstream_find_idle(
    struct upstream_worker *worker, const struct upstream_address *address) MUST_CHECK;
/* The call, if it has one, is left to the caller. */
void upstream_conn_close(struct upstream_conn *conn);
/* The time that a state may take is over. */
void upstream_call_due(struct net_deadline *deadline, uint64_t now_ms);

/* upstream_address.c */
enum status upstream_url_parse(const struct mem *mem, const char *text,
    struct upstream_url *ret_url, bool *ret_is_tls, struct err *err) MUST_CHECK;
void upstream_url_release(const struct mem *mem, struct upstream_url *url);

enum upstream_pick {
    UPSTREAM_PICKED,
    UPSTREAM_PICK_LATER, /* a name is being looked up */
    UPSTREAM_PICK_NONE,  /* all were tried, or there are none and *ret_failure says why */
};
/* The next address for a call, by turns; one that is down only if there is no other. */
enum upstream_pick upstream_address_pick(struct upstream_worker *worker,
    const struct upstream_call *call, struct upstream_address **ret_address,
    const char **ret_failure);
/* A connect begins; one that was down is tried by one call at a time. */
void upstream_address_trying(struct upstream_worker *worker, struct upstream_address *address);
void upstream_address_went_well(struct upstream_worker *worker, struct upstream_address *address);
void upstream_address_failed(struct upstream_worker *worker, struct upstream_address *address);
/* Numeric addresses, and the first lookups of the others. */
void upstream_addresses_attach(struct upstream_worker *worker);
void upstream_addresses_detach(struct upstream_worker *worker);

#endif
