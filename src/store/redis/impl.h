/*
 * impl: shared by the files of the Redis store.
 *
 * Threads: a handle is used by one thread at a time, except that readers copy its head under the
 *          mutex, and that the listener's thread has its own connection.
 */
#ifndef ONCE_STORE_REDIS_IMPL_H
#define ONCE_STORE_REDIS_IMPL_H

#include <hiredis/hiredis.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/buf.h"
#include "base/macros.h"
#include "base/uuid.h"
#include "store/clock.h"
#include "store/redis/redis.h"

enum {
    REDIS_CONNECT_MS_MAX = 2000,  /* connecting and greeting; the engine's thread waits for it */
    REDIS_ANSWER_MS_MAX = 5000,   /* one answer: a server that takes longer counts as unreachable */
    REDIS_BACKOFF_MS_MIN = 50,    /* between two attempts to connect, at first … */
    REDIS_BACKOFF_MS_MAX = 1000,  /* … and at most: the store is back within a second */
    REDIS_REPLY_BYTES = 64 << 10, /* read from the socket at once */
    REDIS_BUFFER_BYTES_KEPT = 1 << 20,   /* of a request: larger ones are freed after use */
    REDIS_REQUEST_BYTES_MAX = 512 << 20, /* the server's own limit for one value */
    REDIS_NAME_BYTES_MAX = 64,           /* of a store's name, the prefix of every key */
    REDIS_RESERVE_MIN = 64,              /* fences set aside for the next batch, at least */
    REDIS_FORGET_MAX = 256,              /* records forgotten by one script … */
    REDIS_FORGET_SCRIPTS_MAX = 4,        /* … and scripts in one call of maintain */
    REDIS_RETAIN_EVERY_MS = 60000,       /* between two sweeps for old evidence */
    REDIS_RETAIN_MAX = 256,              /* entries that one script removes */
    REDIS_SCAN_LOOKS = 512,              /* keys visited by one script */
    REDIS_SCAN_READS = 64,               /* records read by one script, unless more are requested */
    REDIS_ITEMS = 16,                    /* of evidence, read at once */
    REDIS_CAUTIONS_MAX = 4,              /* one for each thing that settings.c checks */
    REDIS_CAUTION_BYTES = 192,
    REDIS_CHAINS = 64,    /* likewise */
    REDIS_HOSTS_MAX = 8,  /* in a URL: any one of them finds the cluster or its Sentinels */
    REDIS_NODES_MAX = 32, /* known nodes of a cluster: enough to find one that is alive */
    REDIS_HOPS_MAX = 4,   /* redirects of one call; more means that the slot is moving */
};

/* Of presume.c. */
enum {
    REDIS_PRESUME_AFTER = 4, /* batches in a row that found nothing, before one is presumed to find
                                nothing: a load of new keys gets there in milliseconds */
    REDIS_PRESUME_PAUSE_MIN = 4,    /* batches that ask after a presumption failed, at least … */
    REDIS_PRESUME_PAUSE_MAX = 1024, /* … and at most: a load of duplicates loses one round trip in a
                                       thousand batches */
    REDIS_PRESUME_MS_MAX = 1000,    /* since a prepare asked: how old presumed counts and a presumed
                                    time can be; asking once a second costs nothing */
    REDIS_PRESUME_AHEAD_MS = 100,   /* how far our estimate of the server's time may be ahead of it:
                                     two clocks drift apart by less than 1 ms in a second, so more
                                     means that it was set back */
};

struct redis_address {
    char host[256]; /* empty: no address */
    char port[6];
};

/* Where the server is and the store's name. */
struct redis_url {
    struct redis_address hosts[REDIS_HOSTS_MAX]; /* of servers, or of Sentinels */
    size_t hosts_count;
    char socket[108];   /* path of a Unix socket instead of hosts; empty: unused */
    bool sentinels;     /* hosts are Sentinels … */
    char service[64];   /* … and this is what they call the server */
    char user[128];     /* empty: the server's default user */
    char password[256]; /* secret; empty: the server wants none */
    char name[REDIS_NAME_BYTES_MAX + 1];
    unsigned db;
    unsigned wait;   /* replicas that must have a commit before it is acknowledged */
    int64_t wait_ms; /* how long they may take */
    bool tls;
    char ca_file[256];   /* PEM: trusted authorities; empty: the system's */
    char cert_file[256]; /* PEM: our certificate, for servers that require one; empty: none */
    char key_file[256];
    char where[300]; /* "HOST:PORT" or the socket, for people */
};

enum status redis_url_read(const char *url, struct redis_url *ret_url, struct err *err) MUST_CHECK;
/* Reads "HOST:PORT", "HOST" or "[IPv6]:PORT"; false: it is invalid. */
bool redis_address_read(
    struct slice text, unsigned port_default, struct redis_address *ret_address) MUST_CHECK;

/* The encryption of one handle's connections. Shared by its links, also between threads. */
struct redis_tls {
    SSL_CTX *context; /* NULL: not encrypted */
    BIO_METHOD *method;
};

/* E_INVALID: a file cannot be read. E_NOMEM. */
enum status redis_tls_init(
    struct redis_tls *tls, const struct redis_url *url, struct err *err) MUST_CHECK;
void redis_tls_release(struct redis_tls *tls);

/* The addresses that a link may connect to. */
struct redis_nodes {
    struct redis_address known[REDIS_NODES_MAX]; /* the URL's hosts, then the cluster's nodes */
    size_t count;
    struct redis_address best; /* the target of the last redirect; empty: none */
    struct redis_address at;   /* the link's current or last address */
    bool is_cluster;
};

/* A connection. Closed: zeroed except fd -1, url and tls. */
struct redis_link {
    const struct redis_url *url;
    const struct redis_tls *tls;
    int fd;
    SSL *ssl;            /* NULL: in plain text */
    redisReader *reader; /* of hiredis: parses answers */
    struct redis_nodes nodes;
    char where[300]; /* of the server, for people */
};

void redis_link_init(
    struct redis_link *link, const struct redis_url *url, const struct redis_tls *tls);
/* All calls have a deadline by clock_nanos. After a failure the link is closed. */
enum status redis_link_open(
    struct redis_link *link, uint64_t deadline_ns, struct err *err) MUST_CHECK;
void redis_link_close(struct redis_link *link);
/* E_UNAVAILABLE: a part may have been sent. more: the rest of the request follows at once. */
enum status redis_link_send(struct redis_link *link, struct slice bytes, bool more,
    uint64_t deadline_ns, struct err *err) MUST_CHECK;
/* The next answer. Free it with freeReplyObject. */
enum status link_answer(struct redis_link *link, redisReply **ret_reply, uint64_t deadline_ns,
    struct err *err) MUST_CHECK;
/* Whether there is something to read within wait_ms. wake_fd, -1 for none, ends the wait early. */
bool link_wait(struct redis_link *link, int wake_fd, int64_t wait_ms);
/* Sends one command made of words and returns its answer, even if that is an error. */
enum status link_ask(struct redis_link *link, const char *const *words, size_t count,
    uint64_t deadline_ns, redisReply **ret_reply, struct err *err) MUST_CHECK;
/* The same, but an error from the server is a failure: E_UNAVAILABLE. */
enum status link_command(struct redis_link *link, const char *const *words, size_t count,
    uint64_t deadline_ns, redisReply **ret_reply, struct err *err) MUST_CHECK;
/* Waits until the socket is ready for the events. 0, ETIMEDOUT, or a different errno. */
int link_wait_ready(int fd, short events, uint64_t deadline_ns);

/* ---- connect.c: one connection to one address ---- */

/* Connects to the address and greets the server. Fails as redis_link_open does. */
enum status link_connect(struct redis_link *link, const struct redis_address *address,
    uint64_t deadline_ns, struct err *err) MUST_CHECK;
/* Only connects, without a greeting. address is NULL for the URL's socket. */
enum status link_dial(struct redis_link *link, const struct redis_address *address,
    uint64_t deadline_ns, struct err *err) MUST_CHECK;
/* Sends the password in the form that the server requires. */
enum status link_authenticate(
    struct redis_link *link, uint64_t deadline_ns, struct err *err) MUST_CHECK;

/* ---- tls.c ---- */

/* Does the handshake and checks that the certificate names that host. */
enum status tls_start(
    struct redis_link *link, const char *host, uint64_t deadline_ns, struct err *err) MUST_CHECK;
/* Returns the number of bytes; 0 and the events to wait for (0: try again); or -1 and errno. */
ssize_t tls_read(struct redis_link *link, char *ret_bytes, size_t size, short *ret_events);
ssize_t tls_write(struct redis_link *link, struct slice bytes, short *ret_events);
/* Why the last of these calls failed, if TLS was the cause; NULL otherwise. */
const char *tls_reason(void);

/* ---- nodes.c ---- */

/* Follows "MOVED 3999 HOST:PORT" or "ASK …": closes the link, which opens at that address the next
 * time. False: the text is neither of the two. */
bool nodes_redirect(struct redis_link *link, const char *text);
/* Asks the connected node for all nodes of the cluster. Without an answer nothing changes. */
void nodes_learn(struct redis_link *link, uint64_t deadline_ns);
/* The server's current address, from the Sentinels. */
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
    const char *sha1; /* 40 hex digits: the server's name for it */
};

extern const struct redis_script redis_script_backlog, redis_script_beat, redis_script_chain,
    redis_script_chains, redis_script_close, redis_script_commit, redis_script_due,
    redis_script_expire, redis_script_inherit, redis_script_open, redis_script_place,
    redis_script_prepare, redis_script_resolve, redis_script_retain, redis_script_scan;

/* The operation that a prepared batch found under a key: the commit must find the same one. */
struct redis_stamp {
    struct digest key_hash;
    struct op_id operation_id;
};

/* A change that makes a record, whose key no other change of the commit has. */
struct redis_insert {
    const struct digest *hash;
    size_t at; /* in the commit */
};

/* Entries of one chain that share an item of the stream; self->packed has their bytes. */
struct redis_pack {
    unsigned char chain_id[16];
    const struct entry *first; /* the caller's … */
    struct digest before;      /* … and the hash of the entry before it */
    size_t count;
    uint64_t seq;       /* of the last that is evidence; 0: none is */
    struct digest hash; /* likewise */
    int64_t time_ms;    /* the latest */
};

/*
 * Fences that a commit set aside for the next batch, so that its prepare need not write: with
 * appendfsync always each write is a flush. They are valid as long as the server's counter is at
 * their end, because then nobody has drawn later ones (S9). The reserve is part of a commit of our
 * chain: a server that lost it has lost that commit too.
 */
struct redis_reserve {
    uint64_t counter; /* of the server, when it was last read */
    uint64_t next;    /* the first one set aside … */
    uint64_t count;   /* … and how many: next + count - 1 is the counter; 0: none */
    uint64_t wanted;  /* how many the next commit sets aside; 0: enough, or others draw too */
};

/* Batches whose keys are presumed to be absent (presume.c). */
struct redis_presuming {
    unsigned after;     /* REDIS_PRESUME_AFTER … */
    unsigned pause_min; /* … and the other two limits, lower in tests */
    unsigned pause_max;
    unsigned run;               /* batches in a row that made a record for every key they wanted */
    unsigned pause;             /* how many batches asked after the last failure; then halved for
                                   each presumption that held */
    unsigned left;              /* of these, how many are to come */
    bool must_ask;              /* the next prepare may not presume (PB4) */
    bool fits;                  /* the prepared batch has the form of PB1 … */
    bool found;                 /* … it asked, and found a record … */
    bool is_presumed;           /* … or it did not ask */
    size_t keys;                /* how many different ones it wants */
    int64_t asked_ms;           /* our boot clock when a prepare last asked … */
    struct store_counts counts; /* … and the counts since, with what we committed */
};

/*
 * A commit whose answer was lost, or that too few replicas have yet.
 *
 *   settled --fate_open--> open --fate_settle--> settled: it happened, or it never will
 *
 * While it is open, nothing but the look-up is sent to the server: `commits` and the head are those
 * before the commit, and it is not known whether they are the server's (P11).
 */
struct redis_fate {
    bool is_open;
    bool is_found; /* it happened, says the newest write of this link; too few replicas have it */
    bool happened; /* of the last one, once it is settled */
    bool midway;   /* the server reported an error: if it has the number, it has half of the rest */
    struct store_head head; /* the head if it happened */
    uint64_t fence;         /* the highest fence that it may have used */
};

/* Receives notices of records that others settle. */
struct redis_listener {
    pthread_t thread;
    bool is_running;
    bool is_cluster; /* it is a cluster: each node receives every notice */
    atomic_bool is_stopping;
    store_notice notice;
    void *context;
    int wake_fd; /* readable when it must stop; -1: it stops after LISTEN_TURN_MS */
};

struct redis {
    struct store store;
    const struct mem *mem;
    struct redis_url url;
    struct redis_tls tls; /* for a reader: its owner's */
    struct redis_link link;
    struct redis *owner; /* for a reader: the store that it reads beside; NULL otherwise */
    bool read_only;
    enum status failed;     /* E_CORRUPT: every later call fails (P11) */
    struct redis_fate fate; /* of the last commit without an answer */

    int64_t backoff_ms;    /* before the next attempt to connect */
    uint64_t try_again_ns; /* no attempt before this, by clock_nanos … */
    struct err apart;      /* … and why the last one failed */
    struct buf request;    /* the arguments of the call that is being made … */
    size_t request_count;  /* … and how many there are */
    struct err begun;      /* why that call cannot be made; status OK: it can */
    struct buf head;       /* the bytes before them */
    struct buf record;     /* one record encoded */
    struct buf word;       /* one argument on its way */

    const struct clock *given; /* used instead of the server's clock; NULL: the server's */
    struct clock system;       /* this machine's clock, for the time between two answers */
    struct clock face;         /* the server's clock as a clock: what `clock` reads */
    struct store_clock clock;
    int64_t server_ms;      /* the server's time … */
    int64_t server_boot_ms; /* … and our boot clock when we heard it */
    int64_t mark_ms;        /* the latest time that any process committed, as far as known */

    struct store_identity identity;
    struct store_shared shared;
    char chain[UUID_TEXT_BYTES]; /* our chain; empty if read-only */
    uint64_t commits;            /* of our chain */
    uint64_t incarnation;        /* the incarnation we beat as; 0: none yet */
    uint64_t beat_ns;            /* when we last beat, by clock_nanos */
    int64_t maintained_ms;       /* boot clock of the last housekeeping that found nothing */
    int64_t retained_ms;         /* … and of the last sweep for old evidence that found none */
    int64_t retain_ms;           /* evidence older than this is removed */
    uint64_t fence;              /* the highest used, or drawn for a committed batch (P4) */
    uint64_t fence_drawn;        /* the highest of the prepared batch */
    struct redis_reserve reserve;
    struct redis_presuming presuming;
    struct store_head head_now;
    pthread_mutex_t mutex; /* guards head_now */

    bool prepared;           /* a commit or abort is to come */
    struct store_moment now; /* of the batch that is prepared */
    int64_t prepared_ms;     /* when it was prepared, by the server's time as far as known */
    struct buf stamps;       /* struct redis_stamp, sorted: the operations that the batch found */

    struct buf inserts;   /* struct redis_insert, sorted by key: of the commit that is sent */
    struct buf is_insert; /* of each of its changes: 1 or 0 */
    struct buf made;      /* one of its new records as a string, or key hashes that join a set */
    struct buf packed;    /* entries of that commit, in the form of pack.c … */
    struct buf places;    /* … and "SEQ:NTH " of those that are found by their number */

    struct redis_listener listener;
    char cautions[REDIS_CAUTIONS_MAX][REDIS_CAUTION_BYTES]; /* promises weakened by settings */
    size_t cautions_count;
};

static inline struct redis *redis_of(struct store *store)
{
    return CONTAINER_OF(store, struct redis, store);
}

/* ---- call.c: making a script's arguments and running it ---- */

/* Begins the arguments. If a commit is not settled, settles it first: a failure of that is what
 * call_run returns. */
void call_begin(struct redis *self);
/* The same without settling anything. */
void call_clear(struct redis *self);
void call_bytes(struct redis *self, const void *bytes, size_t size);
void call_slice(struct redis *self, struct slice bytes);
void call_text(struct redis *self, const char *text);
/* Fails the call if the buffer has failed. */
void call_buf(struct redis *self, const struct buf *bytes);
void call_u64(struct redis *self, uint64_t value);
void call_i64(struct redis *self, int64_t value);
/* Appends the name of a key of the store, without and with a hash. */
void call_key(struct redis *self, const char *name);
void call_record_key(struct redis *self, const struct digest *hash);

/* Connects if necessary; bounded, and not more often than the backoff allows. */
enum status call_connect(struct redis *self, struct err *err) MUST_CHECK;
/* Runs the script without retries. *ret_sent: it failed, but the server may have run it. */
enum status call_once(struct redis *self, const struct redis_script *script, redisReply **ret_reply,
    bool *ret_sent, struct err *err) MUST_CHECK;
/* For scripts that are safe to repeat: runs again on a new connection if the old one broke. */
enum status call_run(struct redis *self, const struct redis_script *script, redisReply **ret_reply,
    struct err *err) MUST_CHECK;
/* The same for one command whose words name a key of the store. */
enum status call_words(struct redis *self, const char *const *words, size_t count,
    redisReply **ret_reply, struct err *err) MUST_CHECK;
/* The status of a server's error; other: for an error that does not say what happened. */
enum status call_refused(
    struct redis *self, const char *text, enum status other, struct err *err) MUST_CHECK;
/* Remembers E_CORRUPT: every later call fails the same way. Returns status. */
enum status call_fail(struct redis *self, enum status status);
enum status call_failed(const struct redis *self, struct err *err) MUST_CHECK;

/* ---- parts of answers; all are checked, because they come from the network ---- */

const redisReply *reply_at(const redisReply *reply, size_t index);
size_t reply_count(const redisReply *reply);
bool reply_text(const redisReply *reply, struct slice *ret_text);
bool reply_u64(const redisReply *reply, uint64_t *ret_value);
enum status reply_malformed(const struct redis_script *script, struct err *err) MUST_CHECK;
/* Reads seconds, microseconds and mark at the beginning of an answer. */
bool reply_time(struct redis *self, const redisReply *reply);

/* ---- time.c ---- */

void time_start(struct redis *self, struct slice moment);
struct store_moment time_now(struct redis *self);
/* Appends a moment as the scripts store it: "time boot jump". */
void call_moment(struct redis *self, const struct store_moment *moment);

/* The server's time now, as far as known here. */
int64_t time_of_server(const struct redis *self);

/* ---- prepare.c, presume.c ---- */

/* The fences set aside are enough for the batch. */
bool reserve_serves(const struct redis *self, const struct store_batch *batch, uint64_t fences);
/* Takes the fences of the batch from those set aside, whose end is the server's counter. */
void reserve_draw(struct redis *self, struct store_batch *batch, uint64_t fences);
/* The next prepare has to count as a beat. */
bool beat_is_due(const struct redis *self, const struct store_batch *batch);
/* Sets what a store sets in a want whose record is absent. */
void want_absent(struct store_want *want);

/* Called at the start of each prepare. True: the keys of this batch are presumed to be absent, and
 * it is prepared. */
bool presume(struct redis *self, struct store_batch *batch);
/* A prepare that asked is done. */
void presume_asked(struct redis *self, const struct store_batch *batch);
/* The prepared batch has ended; commit is NULL if it was aborted. */
void presume_ended(struct redis *self, const struct commit *commit, enum status status);
/* The server says that something presumed does not hold (PB2, PB3): all changes are stale. */
enum status presume_failed(const struct commit *commit, struct err *err) MUST_CHECK;

/* ---- settings.c ---- */

/* Refuses settings that break a promise (E_INVALID), and records those that weaken one. */
enum status settings_check(struct redis *self, struct err *err) MUST_CHECK;
/* For a new connection of an open store. E_UNAVAILABLE: this server would drop live records (P12),
 * or is gone again; the connection is closed. */
enum status settings_check_again(struct redis *self, struct err *err) MUST_CHECK;
/* E_UNAVAILABLE: fewer replicas are connected than wait= asks for, so each commit would be refused.
 * OK also if the account may not ask. */
enum status settings_check_replicas(struct redis *self, struct err *err) MUST_CHECK;
const char *redis_caution(struct store *store, size_t number);

/* Records a fence that others may have seen: the server must never issue a lower one again. */
void fence_use(struct redis *self, uint64_t fence);

/* ---- fate.c ---- */

/* A commit was sent, and its answer is not known. Nothing else is sent until it is settled. */
void fate_open(struct redis *self, const struct redis_fate *fate);
/* Asks the server once, if there is anything to ask. OK: it is settled. E_CORRUPT: the server has
 * lost more than that commit, or did half of it. Everything else: nobody answers now. */
enum status fate_settle(struct redis *self, struct err *err) MUST_CHECK;
/* Asks for LIMIT_STORE_FATE_MS. OK: the commit happened. E_UNAVAILABLE: it never will. E_UNKNOWN:
 * it is still open, and the next call settles it. E_CORRUPT as above. */
enum status fate_await(struct redis *self, struct err *err) MUST_CHECK;
/* Takes over what a commit leaves: its head, and the fences that it used. */
void fate_happened(struct redis *self, const struct store_head *head, uint64_t fence);

/* ---- pack.c ---- */

void pack_begin(struct redis *self, struct redis_pack *pack);
/* Adds an entry, which must stay until pack_end. E_NOMEM. */
enum status pack_add(struct redis *self, struct redis_pack *pack, const struct entry *entry,
    const unsigned char chain_id[16], const struct digest *previous, struct err *err) MUST_CHECK;
/* Appends the item to the request, if there is anything in it. E_NOMEM. */
enum status pack_end(struct redis *self, struct redis_pack *pack, struct err *err) MUST_CHECK;
/* Takes the first entry off the bytes. False: they are not in their form. The chain is not set. */
bool entry_unpack(
    struct slice *bytes, struct entry *ret_entry, struct digest *ret_previous) MUST_CHECK;

/* ---- insert.c ---- */

/* Finds the changes that make a record. E_NOMEM. */
enum status inserts_find(
    struct redis *self, const struct commit *commit, struct err *err) MUST_CHECK;
bool insert_is(const struct redis *self, size_t at);
/* Appends their keys, which must be absent, and their numbers. */
void inserts_expect(struct redis *self);
/* Appends the commands that write them. E_MISUSE: a body does not belong to its record. */
enum status inserts_put(
    struct redis *self, const struct commit *commit, struct err *err) MUST_CHECK;

/* ---- commit.c ---- */

/* Puts what the scripts need of a record, its field m, into self->word. */
void meta_put(struct redis *self, const struct record *record);
/* Encodes a record into self->record. */
enum status record_bytes(
    struct redis *self, const struct record *record, struct err *err) MUST_CHECK;
enum status body_check(struct slice bytes, const struct body_ref *body, struct err *err) MUST_CHECK;
/* Callers that wait for this key must be notified. */
bool record_is_settled(const struct record *record);

/* Waits until enough replicas have what this connection wrote. E_UNAVAILABLE: too few have. */
enum status replicas_wait(struct redis *self, int64_t wait_ms, struct err *err) MUST_CHECK;

/* ---- inherit.c ---- */

/* Claims the copy for our chain, so that no other process continues it, and writes its chains. */
enum status redis_inherit_begin(
    struct redis *self, const struct store_inheritance *inherit, struct err *err) MUST_CHECK;
extern const struct store_inheriting redis_inheriting;

/* ---- the table ---- */

enum status redis_prepare(struct store *store, struct store_batch *batch, struct err *err);
enum status redis_read(struct store *store, struct store_batch *batch, struct err *err);
enum status redis_counts(
    struct store *store, unsigned kinds, struct store_counts *ret_counts, struct err *err);
enum status redis_backlog(struct store *store, enum record_kind kind, store_backlog_visit visit,
    void *context, struct store_counts *ret_counts, struct err *err);
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

/* Decodes a stored record, adds its touches, and copies it into the arena. E_CORRUPT, E_NOMEM. */
enum status record_take(struct slice bytes, uint64_t touches, struct arena *arena,
    const struct record **ret_record, struct err *err) MUST_CHECK;

#endif
