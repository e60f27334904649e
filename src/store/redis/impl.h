/*
 * impl: what the files of the Redis store share.
 *
 * Threads: a handle is used by one thread at a time, but for its head, which its readers copy under
 *          the mutex, and the thread of its listener, which has a connection of its own.
 */
#ifndef ONCE_STORE_REDIS_IMPL_H
#define ONCE_STORE_REDIS_IMPL_H

#include <hiredis/hiredis.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/buf.h"
#include "base/uuid.h"
#include "store/clock.h"
#include "store/redis/redis.h"

enum {
    REDIS_CONNECT_MS_MAX = 2000,  /* a connection and its greeting; the engine's thread waits */
    REDIS_ANSWER_MS_MAX = 5000,   /* an answer: a server that takes longer is not there */
    REDIS_LOOK_UP_MS_MAX = 90000, /* what became of a commit; a server that fails over, or loads
                                     its file, is back by then. Past it nobody can tell */
    REDIS_BACKOFF_MS_MIN = 50,    /* between two tries to connect, at first … */
    REDIS_BACKOFF_MS_MAX = 1000,  /* … and in the end: the store is back within a second */
    REDIS_REPLY_BYTES = 64 << 10, /* read from the socket at once */
    REDIS_BUFFER_BYTES_KEPT = 1 << 20,   /* of a request: larger ones are freed after use */
    REDIS_REQUEST_BYTES_MAX = 512 << 20, /* the server's own limit of one value */
    REDIS_NAME_BYTES_MAX = 64,           /* of a store: it is in front of every key */
    REDIS_FORGET_MAX = 256,              /* records forgotten by one script … */
    REDIS_FORGET_SCRIPTS_MAX = 4,        /* … and scripts in one piece of housekeeping */
    REDIS_RETAIN_EVERY_MS = 60000,       /* between two looks for old evidence */
    REDIS_RETAIN_MAX = 256,              /* entries that one script removes */
    REDIS_SCAN_LOOKS = 512,              /* keys looked at by one script */
    REDIS_SCAN_READS = 64,               /* records read by one script, unless more are asked for */
    REDIS_ENTRIES = 64,                  /* read at once */
    REDIS_CAUTIONS_MAX = 4,              /* one for each thing that settings.c checks */
    REDIS_CAUTION_BYTES = 192,
    REDIS_CHAINS = 64,    /* likewise */
    REDIS_HOSTS_MAX = 8,  /* in a URL: a cluster or its Sentinels are found by any of them */
    REDIS_NODES_MAX = 32, /* known of a cluster: enough to find one that is alive */
    REDIS_HOPS_MAX = 4,   /* redirects of one call; more is a slot on its way between two nodes */
};

struct redis_address {
    char host[256]; /* empty: of nobody */
    char port[6];
};

/* Where the server is and what the store is called. */
struct redis_url {
    struct redis_address hosts[REDIS_HOSTS_MAX]; /* of servers, or of Sentinels */
    size_t hosts_count;
    char socket[108];   /* path of a Unix socket in place of hosts; empty: unused */
    bool sentinels;     /* hosts are Sentinels … */
    char service[64];   /* … and this is what they call the server */
    char user[128];     /* empty: the server's default user */
    char password[256]; /* secret; empty: the server wants none */
    char name[REDIS_NAME_BYTES_MAX + 1];
    unsigned db;
    unsigned wait;   /* replicas that must have a commit before it is answered */
    int64_t wait_ms; /* how long they may take */
    bool tls;
    char ca_file[256];   /* PEM: whom to trust; empty: whom the system trusts */
    char cert_file[256]; /* PEM: ours, for servers that ask for one; empty: none */
    char key_file[256];
    char where[300]; /* "HOST:PORT" or the socket, for people */
};

enum status redis_url_read(const char *url, struct redis_url *ret_url, struct err *err) MUST_CHECK;
/* "HOST:PORT", "HOST", "[IPv6]:PORT"; false: it cannot be read. */
bool redis_address_read(
    struct slice text, unsigned port_default, struct redis_address *ret_address) MUST_CHECK;

/* How connections of one handle are encrypted. It is shared by its links, also between threads. */
struct redis_tls {
    SSL_CTX *context; /* NULL: they are not */
    BIO_METHOD *method;
};

/* E_INVALID: a file cannot be read. E_NOMEM. */
enum status redis_tls_init(
    struct redis_tls *tls, const struct redis_url *url, struct err *err) MUST_CHECK;
void redis_tls_release(struct redis_tls *tls);

/* Where a link may lead. */
struct redis_nodes {
    struct redis_address known[REDIS_NODES_MAX]; /* the URL's at first, then the cluster's own */
    size_t count;
    struct redis_address best; /* where a redirect sent us; empty: nowhere */
    struct redis_address at;   /* where the link leads, or led */
    bool is_cluster;
};

/* A connection; zeroed but for fd -1, url and tls: closed. */
struct redis_link {
    const struct redis_url *url;
    const struct redis_tls *tls;
    int fd;
    SSL *ssl;            /* NULL: in plain text */
    redisReader *reader; /* of hiredis: takes answers apart */
    struct redis_nodes nodes;
    char where[300]; /* of the server, for people */
};

void redis_link_init(
    struct redis_link *link, const struct redis_url *url, const struct redis_tls *tls);
/* All of them have a deadline by clock_nanos. After a failure the link is closed. */
enum status redis_link_open(
    struct redis_link *link, uint64_t deadline_ns, struct err *err) MUST_CHECK;
void redis_link_close(struct redis_link *link);
/* E_UNAVAILABLE: a part of it may have left. more: the rest of the request follows at once. */
enum status redis_link_send(struct redis_link *link, struct slice bytes, bool more,
    uint64_t deadline_ns, struct err *err) MUST_CHECK;
/* The next answer, to be freed with freeReplyObject. */
enum status link_answer(struct redis_link *link, redisReply **ret_reply, uint64_t deadline_ns,
    struct err *err) MUST_CHECK;
/* Whether there is something to read within wait_ms. wake_fd, -1 for none, ends it before. */
bool link_wait(struct redis_link *link, int wake_fd, int64_t wait_ms);
/* One command made of words, and its answer, whatever it is. */
enum status link_ask(struct redis_link *link, const char *const *words, size_t count,
    uint64_t deadline_ns, redisReply **ret_reply, struct err *err) MUST_CHECK;
/* The same when an error of the server's is a failure: E_UNAVAILABLE. */
enum status link_command(struct redis_link *link, const char *const *words, size_t count,
    uint64_t deadline_ns, redisReply **ret_reply, struct err *err) MUST_CHECK;
/* Until the socket is ready for that. 0, ETIMEDOUT, or another errno. */
int link_wait_ready(int fd, short events, uint64_t deadline_ns);

/* ---- connect.c: one connection to one address ---- */

/* A connected, greeted link to the address. Failures as redis_link_open's. */
enum status link_connect(struct redis_link *link, const struct redis_address *address,
    uint64_t deadline_ns, struct err *err) MUST_CHECK;
/* Only the connection: nobody is greeted. address is NULL for the URL's socket. */
enum status link_dial(struct redis_link *link, const struct redis_address *address,
    uint64_t deadline_ns, struct err *err) MUST_CHECK;
/* The password, as the server wants it. */
enum status link_authenticate(
    struct redis_link *link, uint64_t deadline_ns, struct err *err) MUST_CHECK;

/* ---- tls.c ---- */

/* The handshake, and that the certificate names that host. */
enum status tls_start(
    struct redis_link *link, const char *host, uint64_t deadline_ns, struct err *err) MUST_CHECK;
/* Bytes, or 0 and what to wait for (0: try again), or -1 and errno. */
ssize_t tls_read(struct redis_link *link, char *ret_bytes, size_t size, short *ret_events);
ssize_t tls_write(struct redis_link *link, struct slice bytes, short *ret_events);
/* Why the last of these failed, if it was TLS that did; NULL: it was not. */
const char *tls_reason(void);

/* ---- nodes.c ---- */

/* Where "MOVED 3999 HOST:PORT" or "ASK …" sends: the link is closed and opens there the next time.
 * False: it is not one of the two. */
bool nodes_redirect(struct redis_link *link, const char *text);
/* All nodes of the cluster, by the one we are connected to. What it does not say stays as it is. */
void nodes_learn(struct redis_link *link, uint64_t deadline_ns);
/* What the Sentinels call the server now. */
enum status nodes_ask_sentinels(struct redis_link *link, uint64_t deadline_ns,
    struct redis_address *ret_address, struct err *err) MUST_CHECK;

static inline bool link_is_open(const struct redis_link *link)
{
    return link->fd >= 0;
}

/* A script of this folder; the build makes the table (tools/make_scripts.py). */
struct redis_script {
    const char *name;
    const char *text;
    size_t bytes;
    const char *sha1; /* 40 hex digits: how a server calls it */
};

extern const struct redis_script redis_script_beat, redis_script_chain, redis_script_chains,
    redis_script_close, redis_script_commit, redis_script_due, redis_script_expire,
    redis_script_inherit, redis_script_open, redis_script_place, redis_script_prepare,
    redis_script_resolve, redis_script_retain, redis_script_scan;

/* The operation that a prepared batch found under a key: a commit must still find it there. */
struct redis_stamp {
    struct digest key_hash;
    struct op_id operation_id;
};

/* Hears of what others settle. */
struct redis_listener {
    pthread_t thread;
    bool is_running;
    bool is_cluster; /* it asks for all nodes: each of them hears of every notice */
    atomic_bool is_stopping;
    store_notice notice;
    void *context;
    int wake_fd; /* readable when it is to stop; -1: it notices after LISTEN_TURN_MS */
};

struct redis {
    struct store store; /* first: the table's functions cast */
    const struct mem *mem;
    struct redis_url url;
    struct redis_tls tls; /* of a reader: its owner's */
    struct redis_link link;
    struct redis *owner; /* of a reader: the store that it reads beside; NULL otherwise */
    bool read_only;
    enum status failed; /* E_UNKNOWN or E_CORRUPT: nothing is done any more (P11) */

    int64_t backoff_ms;    /* before the next try to connect */
    uint64_t try_again_ns; /* not before this, by clock_nanos */
    struct buf request;    /* the arguments of the call that is being made … */
    size_t request_count;  /* … and how many there are */
    struct buf head;       /* what goes before them */
    struct buf record;     /* one record encoded */

    const struct clock *given; /* in place of the server's clock; NULL: the server's */
    struct clock system;       /* this machine's, for the time between two answers */
    struct clock face;         /* the server's clock as a clock: what `clock` reads */
    struct store_clock clock;
    int64_t server_ms;      /* the server's time … */
    int64_t server_boot_ms; /* … and our boot clock when we heard it */
    int64_t mark_ms;        /* the latest time that any process committed, as far as known */

    struct store_identity identity;
    struct store_shared shared;
    char chain[UUID_TEXT_BYTES]; /* our chain; empty for those that only read */
    uint64_t commits;            /* of our chain */
    uint64_t incarnation;        /* as which we beat; 0: not yet */
    uint64_t beat_ns;            /* when we last did, by clock_nanos */
    int64_t maintained_ms;       /* boot clock of the last housekeeping that found nothing */
    int64_t retained_ms;         /* … and of the last look for old evidence that did */
    int64_t retain_ms;           /* evidence older than this goes */
    uint64_t fence;              /* the highest that was used, or in a batch that was (P4) */
    uint64_t fence_drawn;        /* the highest of the batch that is prepared */
    struct store_head head_now;
    pthread_mutex_t mutex; /* over head_now */

    bool prepared;           /* a commit or abort is to come */
    struct store_moment now; /* of the batch that is prepared */
    int64_t prepared_ms;     /* when, by the server's time */
    struct buf stamps;       /* struct redis_stamp, sorted: what the batch found */

    struct redis_listener listener;
    char cautions[REDIS_CAUTIONS_MAX][REDIS_CAUTION_BYTES]; /* what the server's settings weaken */
    size_t cautions_count;
};

static inline struct redis *redis_of(struct store *store)
{
    return (struct redis *)(void *)store;
}

/* ---- call.c: making a script's arguments and running it ---- */

void call_begin(struct redis *self);
void call_bytes(struct redis *self, const void *bytes, size_t size);
void call_slice(struct redis *self, struct slice bytes);
void call_text(struct redis *self, const char *text);
void call_u64(struct redis *self, uint64_t value);
void call_i64(struct redis *self, int64_t value);

/* Connect when we are not; bounded, and not more often than the backoff allows. */
enum status call_connect(struct redis *self, struct err *err) MUST_CHECK;
/* Once. *ret_sent: the server may have run it although this failed. */
enum status call_once(struct redis *self, const struct redis_script *script, redisReply **ret_reply,
    bool *ret_sent, struct err *err) MUST_CHECK;
/* For what may be repeated without harm: again on a new connection when the old one broke. */
enum status call_run(struct redis *self, const struct redis_script *script, redisReply **ret_reply,
    struct err *err) MUST_CHECK;
/* The same for one command of words that name a key of the store. */
enum status call_words(struct redis *self, const char *const *words, size_t count,
    redisReply **ret_reply, struct err *err) MUST_CHECK;
/* A server's error as a status; other is for one that says nothing about what happened. */
enum status call_refused(
    struct redis *self, const char *text, enum status other, struct err *err) MUST_CHECK;
/* E_UNKNOWN and E_CORRUPT stay: every later call fails the same way. Returns status. */
enum status call_fail(struct redis *self, enum status status);
enum status call_failed(const struct redis *self, struct err *err) MUST_CHECK;

/* ---- parts of answers; all are checked, because they come from the network ---- */

const redisReply *reply_at(const redisReply *reply, size_t index);
size_t reply_count(const redisReply *reply);
bool reply_text(const redisReply *reply, struct slice *ret_text);
bool reply_u64(const redisReply *reply, uint64_t *ret_value);
enum status reply_malformed(const struct redis_script *script, struct err *err) MUST_CHECK;
/* Seconds, microseconds and mark at the beginning of many answers. */
bool reply_time(struct redis *self, const redisReply *reply);

/* ---- time.c ---- */

void time_start(struct redis *self, struct slice moment);
struct store_moment time_now(struct redis *self);
/* As the scripts keep it: "time boot jump". */
void call_moment(struct redis *self, const struct store_moment *moment);

/* ---- settings.c ---- */

/* Refuse what would break a promise (E_INVALID), and keep what weakens one. */
enum status settings_check(struct redis *self, struct err *err) MUST_CHECK;
const char *redis_caution(struct store *store, size_t number);

/* A fence that others may have seen: the server must not count below it any more. */
void fence_use(struct redis *self, uint64_t fence);

/* ---- commit.c ---- */

/* Until enough replicas have what this connection wrote. E_UNAVAILABLE: too few do. */
enum status replicas_wait(struct redis *self, struct err *err) MUST_CHECK;

/* ---- inherit.c ---- */

/* With a chain of our own: from now on no other process goes on with this copy; and its chains. */
enum status redis_inherit_begin(
    struct redis *self, const struct store_inheritance *inherit, struct err *err) MUST_CHECK;
extern const struct store_inheriting redis_inheriting;

/* ---- the table ---- */

enum status redis_prepare(struct store *store, struct store_batch *batch, struct err *err);
enum status redis_read(struct store *store, struct store_batch *batch, struct err *err);
enum status redis_counts(
    struct store *store, unsigned kinds, struct store_counts *ret_counts, struct err *err);
enum status redis_commit(struct store *store, const struct commit *commit, struct err *err);
void redis_abort(struct store *store);
enum status redis_flush(struct store *store, struct err *err);
enum status redis_maintain(struct store *store, struct err *err);
enum status redis_scan(struct store *store, const struct scan *scan, struct arena *arena,
    const struct record **ret_records, size_t *ret_count, struct err *err);
enum status redis_due(struct store *store, const struct store_due_filter *filter,
    struct store_due *ret_dues, size_t limit, size_t *ret_count, struct err *err);
enum status redis_entries(struct store *store, const struct entry_range *range, entry_visit visit,
    void *context, struct err *err);
enum status redis_chains(
    struct store *store, store_chain_visit visit, void *context, struct err *err);
enum status redis_beat(struct store *store, uint64_t incarnation, struct err *err);
void redis_listen(struct store *store, store_notice notice, void *context);
void listener_stop(struct redis *self);

/* A record as stored, with its touches, copied into the arena. E_CORRUPT, E_NOMEM. */
enum status record_take(struct slice bytes, uint64_t touches, struct arena *arena,
    const struct record **ret_record, struct err *err) MUST_CHECK;

#endif
