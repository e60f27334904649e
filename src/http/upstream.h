/*
 * upstream: requests to an origin server over connections that are kept and used again.
 *
 *     start → [connect → (TLS)] → send → first byte → head → pieces → end
 *
 * Promises:  UP1 each call has exactly one last event: end, or failed with how far it got.
 *            UP2 UPSTREAM_NOT_SENT is reported only if no byte of the request was handed to the
 *                kernel (or, with TLS, to the session): then the request certainly had no effect.
 *            UP3 a call is tried again, on a different address or connection, only under UP2.
 *            UP4 an answer is read strictly (http/head.h); an ambiguous one is a failure. Interim
 *                answers (1xx) are dropped; 101 is a failure, unless it was asked for.
 *            UP5 a connection goes back to the pool only after a complete exchange in which neither
 *                side asked to close; bytes after an answer close it.
 *            UP6 every wait has a limit: connect, first byte, total; and a body that makes no
 *                progress.
 *            UP7 an idle connection is not used if the kernel knows that the peer has closed it, or
 *                if it was idle longer than the peer announced (Keep-Alive: timeout).
 *            UP8 nothing is sent once total_ms or send_until_boot_ms is over, by the boot clock.
 *                The timers of a loop do not ensure that: they stop while the machine sleeps, and a
 *                loop that was stopped may see a new connection before its timers.
 * Does not:  choose request fields, follow redirects, decode contents, know an operation.
 * Ownership: a call is the caller's memory and must live, with its head and body, until its last
 *            event or upstream_cancel. The upstream lives until it is closed on each loop.
 * Threads:   everything about a call, and its events, on the loop it was started on. An upstream is
 *            shared by all loops; its connections and its knowledge of addresses are per loop.
 */
#ifndef ONCE_HTTP_UPSTREAM_H
#define ONCE_HTTP_UPSTREAM_H

#include "base/err.h"
#include "http/head.h"
#include "net/loop.h"

struct upstream;
struct upstream_call;
struct upstream_conn;
struct upstream_exchange;

/* How far a failed call got. */
enum upstream_point {
    UPSTREAM_NOT_SENT, /* no byte left: it did not happen */
    UPSTREAM_SENT,     /* bytes left, or may have, and the head of an answer did not come */
    UPSTREAM_HEAD,     /* the head came and the body did not, or not all of it */
};

/* Why. */
enum upstream_cause {
    UPSTREAM_CAUSE_UNREACHABLE, /* no address, refused, TLS failed, not verified */
    UPSTREAM_CAUSE_TIMEOUT,     /* connect, first byte or total */
    UPSTREAM_CAUSE_BROKEN,      /* closed or reset */
    UPSTREAM_CAUSE_MALFORMED,   /* what came is not HTTP that we accept */
    UPSTREAM_CAUSE_TOO_LARGE,   /* the body is past body_bytes_max */
    UPSTREAM_CAUSE_MEMORY,
    UPSTREAM_CAUSE_BUSY, /* all connections_max are in use and the queue is full */
};

struct upstream_events {
    /* The final head, valid during the call. head->framing tells whether pieces follow. */
    void (*head)(struct upstream_call *call, const struct http_head *head);
    /* Decoded, valid during the call, never empty. */
    void (*piece)(struct upstream_call *call, struct slice piece);
    /* The answer is complete. Last event. */
    void (*end)(struct upstream_call *call);
    /* Last event; err says why, naming the address. */
    void (*failed)(struct upstream_call *call, enum upstream_point point, enum upstream_cause cause,
        const struct err *err);
    /* A streamed request body: everything put so far was sent; put more. */
    void (*drained)(struct upstream_call *call);
};

struct upstream_timeouts {
    int64_t connect_ms;         /* to a connection that can send, TLS included, of one address */
    int64_t first_byte_ms;      /* from the last byte sent to the head of the answer */
    int64_t total_ms;           /* from the start to the end of the answer; 0: no limit, and then a
                                   body without progress for first_byte_ms fails (streams) */
    int64_t switched_ms;        /* after a 101: without a byte in either direction */
    int64_t send_until_boot_ms; /* by the boot clock: nothing is sent from then on; 0: no limit */
};

struct upstream_call {
    /* Set by the caller, and unchanged until the last event. */
    const struct upstream_events *events;
    struct slice head;       /* the whole request head, its empty line included */
    struct slice body;       /* after it, exactly as it is sent */
    bool is_streamed;        /* instead of body: upstream_put follows */
    bool is_chunked;         /* streamed: put frames the pieces as chunks */
    bool asks_switch;        /* streamed: it asks for a different protocol, on a fresh connection.
                                Nothing may be put before a 101: the peer would take it for its next
                                request */
    enum http_method method; /* decides whether the answer has a body */
    uint64_t body_bytes_max; /* of the answer; 0: no limit */
    struct upstream_timeouts timeouts;
    void *context;

    /* The upstream's own. */
    struct upstream *upstream;
    struct upstream_exchange *exchange;
    struct upstream_conn *conn;
    struct upstream_call *prev;
    struct upstream_call *next;
    unsigned loop;
    unsigned tries;
    uint64_t started_ms;
    int64_t started_boot_ms; /* UP8 */
    unsigned state;
    bool is_queued;
};

enum { UPSTREAM_IDLE_MS_USUAL = 4000 }; /* below what servers use */

struct upstream_options {
    const struct mem *mem;    /* NULL: the C library's */
    const char *const *urls;  /* "http://127.0.0.1:3000", "https://api.example.com"; all of one
                                 scheme; a path is E_INVALID */
    size_t url_count;         /* several are used in turn; each name may have several
                                        addresses, which are used in turn as well */
    const char *ca_file;      /* PEM; NULL: the system's */
    uint32_t connections_max; /* per loop, in use and idle; 0: 256. Past it calls wait */
    uint32_t waiting_max;     /* per loop; 0: 1024. Past it UPSTREAM_CAUSE_BUSY */
    int64_t idle_ms_max;      /* a connection is kept; 0: none is kept */
    int64_t resolve_ms;       /* names are looked up again after this; 0: 30 s */
    bool is_public_only;      /* a name must not resolve to loopback, private, link-local or
                                 otherwise special addresses: the owner of the name could reach an
                                 internal network. An address in a URL was typed on purpose and is
                                 used, and so is loopback for "localhost" (RFC 6761). */
};

/* E_INVALID: a URL is wrong; the text says which and why. */
enum status upstream_new(const struct upstream_options *options, unsigned loops,
    struct upstream **ret_upstream, struct err *err) MUST_CHECK;
/* Before the loop is started, or on it. */
void upstream_attach(struct upstream *upstream, unsigned number, struct net_loop *loop);
/* On the loop, when it is about to end: close its connections. Calls under way fail. */
void upstream_detach(struct upstream *upstream, unsigned loop);
/* Whether it has nothing left on a loop: it was never attached there, or was detached and all its
 * connections are closed. On that loop. */
bool upstream_is_closed(const struct upstream *upstream, unsigned loop);
/* When it is closed on every loop, or after the loops have ended. NULL is fine. */
void upstream_free(struct upstream *upstream);

/* What the Host field says: the authority of the first URL. */
struct slice upstream_authority(const struct upstream *upstream);

/* Events may come before it returns, also failed. */
void upstream_start(struct upstream *upstream, unsigned loop, struct upstream_call *call);
/* No event comes after it. True: not a byte had been sent. */
bool upstream_cancel(struct upstream_call *call);

/* A piece of a streamed body; sent or copied before it returns. False: enough for now; drained
 * comes once. Puts after the answer has ended or the call has failed are misuse. */
bool upstream_put(struct upstream_call *call, struct slice piece);
void upstream_put_end(struct upstream_call *call);
/* Stop reading the answer, and continue. Meanwhile only total_ms applies. */
void upstream_pause(struct upstream_call *call);
void upstream_go_on(struct upstream_call *call);

struct upstream_stats {
    uint64_t calls;     /* started */
    uint64_t failed[3]; /* by enum upstream_point */
    uint64_t connects;  /* made */
    uint64_t reused;    /* calls on a connection that was kept */
    uint64_t open;      /* connections now */
    uint64_t idle;      /* of them */
    uint64_t waiting;   /* calls without a connection */
    uint64_t down;      /* addresses that are left out for now, of all loops */
};
void upstream_stats(struct upstream *upstream, struct upstream_stats *ret_stats);
/* How many of connections_max have a call on this loop, in percent. Any thread. */
unsigned upstream_fill(const struct upstream *upstream, unsigned loop);

/* The totals of one upstream, or of several with one name. */
struct upstream_figures {
    const char *name; /* its URLs; valid as long as the reporter */
    struct upstream_stats stats;
};

#endif
