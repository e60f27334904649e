/*
 * impl: shared by the files of the PostgreSQL store.
 *
 * A handle that writes has two connections: one is used, the other is the spare one or has a commit
 * under way (pending.c). The life of the one that is used, as its store sees it (pg_store.phase;
 * phase_set moves it):
 *
 *   CLOSED --connect--> IDLE --prepare--> PREPARED --commit | abort--> IDLE
 *     ^                   |                  |
 *     +----- it broke ----+------------------+
 *
 *   CLOSED    there is no connection; the next call makes one, unless it is too soon (backoff), as
 *             soon as no commit is under way
 *   IDLE      no transaction is open on it
 *   PREPARED  a transaction holds the locks of a batch; the server ends it by itself after
 *             LIMIT_PREPARED_MS_MAX, and then the commit fails
 *
 * The marker: chains.commits counts the commits of this handle, and self->commits is how many it
 * knows of. To look up a commit whose answer was lost, a new connection adds 1 to chains.epoch,
 * which every commit names: the row shows how many commits happened, and a commit that is still on
 * its way fails from then on. While the server cannot be asked, the commit is unsettled, and the
 * one sent after it too: everything is refused. The first connection settles them.
 */
#ifndef ONCE_STORE_POSTGRES_IMPL_H
#define ONCE_STORE_POSTGRES_IMPL_H

#include <pthread.h>

#include "base/limits.h"
#include "store/clock.h"
#include "store/postgres/columns.h"
#include "store/postgres/link.h"
#include "store/postgres/postgres.h"

/* What a commit costs the server beside its rows: with 27 and with 50 begins a commit a begin took
 * 41 and 31 µs of its processor. */
enum { PG_COMMIT_ROWS = 30 };

/* The version of the schema that this program reads and writes. */
enum { PG_SCHEMA_VERSION = 8 };

enum pg_phase { PG_CLOSED, PG_IDLE, PG_PREPARED };

/* Names of prepared statements; statements.c has their texts. */
#define PG_OPEN    "open"
#define PG_COMMIT  "commit"
#define PG_LOCK    "lock"
#define PG_LOAD    "load"
#define PG_KEYS    "keys"
#define PG_SOURCES "sources"
#define PG_META    "meta"
#define PG_COUNTS  "counts"
#define PG_BACKLOG "backlog"
#define PG_MARK    "mark"
#define PG_INSERT  "insert"
#define PG_ALIKE   "alike"
#define PG_SAME    "same"
#define PG_UPDATE  "update"
#define PG_THERE   "there"
#define PG_TOUCH   "touch"
#define PG_ENTRIES "entries"
#define PG_LINES   "lines"
#define PG_RAISE   "raise"
#define PG_NOTIFY  "notify"
#define PG_LISTENS "listens"
#define PG_FATE    "fate"
#define PG_BEAT    "beat"
#define PG_SCAN    "scan"
#define PG_DUE     "due"
#define PG_HELD    "held"
#define PG_PLACE   "place"
#define PG_PAGE    "page"
#define PG_CHAINS  "chains"
#define PG_EXPIRE  "expire"
#define PG_KEEP    "keep"
#define PG_FOLD    "fold"
#define PG_STALLED "stalled"
#define PG_END     "end"
#define PG_CHAIN   "chain"
#define PG_PLACED  "placed"
#define PG_TYPES   "types"
#define PG_TAKE    "take"
#define PG_DROP    "drop"

/* The chain of the evidence of once_begin, once_seal and once_release (schema_2.sql). */
#define PG_FUNCTIONS_CHAIN "00000000-0000-0000-0000-000000000001"

/* Receives notices of records that other processes settle. */
struct pg_listener {
    bool running;
    pthread_t thread;
    struct pg_link link; /* used by the thread alone */
    int wake[2];         /* a pipe: closing it ends the thread */
    store_notice notice;
    void *context;
};

/* A commit that was accepted and whose COMMIT is under way (pending.c). */
struct pg_pending {
    bool is_open;
    bool is_read;           /* a thread waits for its answer, and alone uses the next two */
    struct pg_link link;    /* its connection */
    struct store_head head; /* of the chain after it */
    uint64_t number;        /* for settle */
    bool sources;           /* it changes records of sources, which no lock protects */
};

/* The fate of a commit. */
struct pg_fate {
    uint64_t number;
    struct err err; /* OK: it happened */
};

enum { PG_UNSETTLED_MAX = 2 };  /* the commit under way, and the one sent after it */
enum { PG_SPARE_COMMITS = 16 }; /* a handle with this many commits is worth a second connection */

/* Commits whose answer was lost, and for which the server has not been asked yet. */
struct pg_unsettled {
    unsigned count;
    struct store_head heads[PG_UNSETTLED_MAX]; /* of the chain after each */
};

enum { PG_CAUTIONS_MAX = 4 };
enum { PG_CHANNEL_BYTES = 80 }; /* "once." and a schema */

struct pg_store {
    struct store store;
    const struct mem *mem;
    struct pg_target target;
    struct pg_link link;
    enum pg_phase phase;
    bool read_only;
    struct pg_store *parent; /* for a reader: the store that it reads beside; or NULL */

    struct store_identity identity;
    struct store_shared shared;
    uint64_t incarnation;   /* the incarnation it beats as; 0: it does not beat */
    uint64_t fence;         /* the highest known to be given out */
    struct store_head head; /* of the chain, if every accepted commit happens */
    int64_t spare_at_ms;    /* on the boot clock: no attempt at a spare connection before this */

    /* Guarded by the mutex, for settle and for readers on other threads. */
    pthread_mutex_t mutex;
    pthread_cond_t changed;    /* a commit is no longer under way */
    uint64_t epoch;            /* chains.epoch, as far as known here */
    uint64_t commits;          /* commits of this handle that are known to have happened … */
    struct store_head settled; /* … and the end of the chain after them */
    struct pg_pending pending;
    struct pg_link spare; /* a second connection; idle or closed */
    struct pg_unsettled unsettled;
    struct pg_fate fates[LIMIT_SETTLED_MAX]; /* of the latest commits, by number */
    uint64_t numbers;                        /* of commits given so far */
    bool sending; /* a commit was sent after the one under way, which is not under way itself yet */
    bool doomed;  /* a commit failed: what was prepared since cannot be committed */
    bool renew;   /* a connection broke: the others are opened again as well */
    unsigned readers;

    bool unfinished; /* the schema is an unfinished copy, as far as the connection saw */
    bool inherits;   /* it is an unfinished copy: its shared settings are in the table `copying` */
    struct pg_listener listener;
    bool others_listen;         /* a different process listens for settled records */
    struct store_counts counts; /* of STORE_KINDS_ASKED, with our own new records since … */
    uint64_t counts_until_ns;   /* … good until then, by clock_nanos; 0: not known */

    struct clock system;       /* the machine's own */
    const struct clock *given; /* replaces the server's clock in tests; or NULL */
    struct clock server;       /* the server's clock, advanced by the machine's boot clock */
    int64_t server_ms;         /* what the server's clock said … */
    int64_t server_boot_ms;    /* … when the boot clock was here */
    struct store_clock clock;  /* the store's time, from both */
    int64_t mark_ms;           /* the highest time that any process has committed, if known */
    struct store_moment now;   /* of the batch that is prepared */

    int64_t retry_at_ms; /* on the boot clock: no new connection before this … */
    int64_t backoff_ms;  /* … and the pause after the next failure */
    const char *cautions[PG_CAUTIONS_MAX + 1]; /* what weakens a promise; NULL ends the list */
    struct err failure;                        /* of the last attempt */
    int64_t retain_ms;                         /* evidence older than this may be removed */
    int64_t expire_at_ms; /* on the boot clock: when to sweep for expired records again … */
    int64_t keep_at_ms;   /* … and to maintain partitions and chains */
};

struct pg_store *pg_of(struct store *store);

/* ---- store.c ---- */
void phase_set(struct pg_store *self, enum pg_phase phase);
/* Becomes IDLE, on a new connection if necessary, with no commit under way. E_UNAVAILABLE.
 * E_CORRUPT: the chain has changed since we last wrote it. */
enum status pg_ready(struct pg_store *self, struct err *err) MUST_CHECK;
/* The same, for a prepare: a commit may be under way. */
enum status pg_ready_beside(struct pg_store *self, struct err *err) MUST_CHECK;
/* After a failed exchange: becomes IDLE if the connection is alive, with no transaction open;
 * otherwise CLOSED. */
void pg_recover(struct pg_store *self);
/* Connects and prepares all statements, for a store or an asker. */
enum status pg_open_link(struct pg_store *self, struct err *err) MUST_CHECK;
/* A store that is used only to ask the server something on its own connection, from any thread:
 * link_close(&asker.link) ends it. */
struct pg_store pg_asker(const struct pg_store *self);
/* Our chain must be where we left it, or further by unsettled commits, which are settled by this. A
 * server that lost commits is an older copy (P11). On failure nothing has changed here. The asker
 * is connected. *ret_all: all of them happened. */
enum status pg_check_chain(
    struct pg_store *self, struct pg_store *asker, bool *ret_all, struct err *err) MUST_CHECK;
/* How many commits of ours the server has. */
enum status pg_read_commits(
    struct pg_store *self, int64_t *ret_commits, struct err *err) MUST_CHECK;
int64_t pg_boot_ms(const struct pg_store *self);

/* ---- settings.c ---- */
/* Checks the settings of the server and of the connection. E_UNAVAILABLE: a grant could be lost or
 * given twice; the text names the setting. Cautions are recorded. */
enum status pg_check_session(struct pg_store *self, struct err *err) MUST_CHECK;
const char *pg_caution(struct store *store, size_t number);

/* ---- time.c ---- */
void pg_time_init(struct pg_store *self, const struct store_moment *last);
/* Records the server's time, just received, and the mark. */
void pg_time_heard(struct pg_store *self, int64_t server_ms, int64_t mark_ms);
/* The store's time now, advanced from the server's last answer. */
struct store_moment pg_time_now(struct pg_store *self);

/* ---- statements.c ---- */
/* Sends all statements to be prepared. E_NOMEM. */
enum status pg_statements_prepare(
    struct pg_link *link, const struct mem *mem, struct err *err) MUST_CHECK;

/* ---- prepare.c, commit.c ---- */
enum status pg_prepare(struct store *store, struct store_batch *batch, struct err *err);
enum status pg_read(struct store *store, struct store_batch *batch, struct err *err);
void pg_abort(struct store *store);
enum status pg_commit(struct store *store, const struct commit *commit, struct err *err);

/* ---- pending.c ---- */
enum status pg_settle(struct store *store, uint64_t number, struct err *err);
/* From PREPARED: the commit that was sent is under way from now on, on the connection that it was
 * sent on, and the store takes the spare one: IDLE, or CLOSED if there is none. Returns its
 * number. */
uint64_t pg_pending_begin(struct pg_store *self, const struct store_head *head, bool sources);
/* Waits until no commit is under way. */
void pg_pending_wait(struct pg_store *self);
/* The same, and whether a commit that was sent after it can still happen. E_UNAVAILABLE: it cannot.
 * E_UNKNOWN: nobody knows yet. */
enum status pg_pending_before(struct pg_store *self, struct err *err) MUST_CHECK;
/* The connection of a commit broke after it was sent. */
void pg_unsettled_add(struct pg_store *self, const struct store_head *head);
/* Asks the server whether the last unsettled commit happened, until it answers or the time is up:
 * then E_UNKNOWN, and the next connection settles it. E_UNAVAILABLE: it did not happen. */
enum status pg_look_up(struct pg_store *self, struct err *err) MUST_CHECK;
/* A commit is known to have happened. With the mutex. */
void pg_settled(struct pg_store *self, const struct store_head *head);
/* Takes over what other threads learned about commits. Not while PREPARED. */
void pg_catch_up(struct pg_store *self);
/* Connects the spare connection, if it is worth it. */
void pg_spare_open(struct pg_store *self);
/* CLOSED: becomes IDLE on the spare connection, if there is one. */
void pg_spare_take(struct pg_store *self);
void pg_spare_close(struct pg_store *self);

/* ---- listen.c ---- */
void pg_listen(struct store *store, store_notice notice, void *context);
void pg_listen_end(struct pg_store *self);
/* Announces the settled ones of these rows. */
void pg_notify_send(struct pg_store *self, const struct pg_row *rows, size_t count);

/* ---- query.c ---- */
enum status pg_counts(
    struct store *store, unsigned kinds, struct store_counts *ret_counts, struct err *err);
enum status pg_backlog(struct store *store, enum record_kind kind, store_backlog_visit visit,
    void *context, struct store_counts *ret_counts, struct err *err);
/* Reads the answer to PG_COUNTS. */
enum status pg_counts_take(struct pg_store *self, unsigned kinds, struct store_counts *ret_counts,
    struct err *err) MUST_CHECK;
enum status pg_scan(struct store *store, const struct scan *scan, struct arena *arena,
    const struct record **ret_records, size_t *ret_count, struct err *err);
enum status pg_due(struct store *store, const struct store_due_filter *filter,
    struct store_due *ret_dues, size_t limit, size_t *ret_count, struct err *err);
enum status pg_entries(struct store *store, const struct entry_range *range, entry_visit visit,
    void *context, struct err *err);
/* Appends the names of the kinds in a set, as an array argument. */
void pg_kinds_put(struct pg_args *args, unsigned kinds);
/* The next statement's result, which must be rows of that many columns. */
enum status pg_rows(
    struct pg_store *self, int columns, PGresult **ret_result, struct err *err) MUST_CHECK;

/* ---- inherit.c ---- */
/* Makes the schema an unfinished copy, unless an earlier call did. E_INVALID: it is a store, or a
 * copy of something else. E_UNAVAILABLE: not reachable, or not the owner. */
enum status pg_inherit_begin(
    struct pg_store *self, const struct store_inheritance *inherit, struct err *err) MUST_CHECK;
/* Claims the copy for our own chain: from now on no other process can continue it. */
enum status pg_inherit_take(struct pg_store *self, struct err *err) MUST_CHECK;
/* Adds a check to the pipeline that this still holds. */
void pg_inherit_check(struct pg_store *self);
/* Replaces the reason of a failure if a second copy to the same schema has finished it. */
void pg_inherit_explain(struct pg_store *self, struct err *err);
/* E_UNAVAILABLE: the schema is an unfinished copy. */
enum status pg_refuse_unfinished(struct pg_store *self, struct err *err) MUST_CHECK;
extern const struct store_inheriting pg_inheriting;

/* ---- intake.c ---- */
extern const struct store_intake pg_intake;
/* Adds to the pipeline that the clear text of effects among these rows is gone with the commit. */
void pg_intake_drop(struct pg_store *self, const struct pg_row *rows, size_t count);

/* ---- maintain.c ---- */
extern const struct store_housekeeping pg_housekeeping;
/* IDLE: ends sessions of our role that hold keys, and have waited too long for their process to
 * send the rest of a request or to read an answer (S10). Becomes IDLE or CLOSED. */
void pg_end_stalled(struct pg_store *self);
/* The same, on a connection that no store uses yet. */
void pg_end_stalled_by(struct pg_link *link);

#endif
