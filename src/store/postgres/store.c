/*
 * Opens and closes a store in PostgreSQL, and maintains its connection.
 */
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/limits.h"
#include "base/macros.h"
#include "store/postgres/impl.h"

enum {
    BACKOFF_FIRST_MS = 100,
    HOST_BYTES_MAX = 256,
    KEEP_FIRST_MS = 10000, /* a process that only runs one command leaves it to others */
};

#define RETAIN_MS_DEFAULT (INT64_C(400) * 86400000)

struct pg_store *pg_of(struct store *store)
{
    return CONTAINER_OF(store, struct pg_store, store);
}

/* ---- the connection ---------------------------------------------------------------------- */

/* The invariants of each phase. */
static void phase_check(const struct pg_store *self)
{
    bool connected = self->link.conn != NULL;
    ASSERT(connected == (self->phase != PG_CLOSED));
}

void phase_set(struct pg_store *self, enum pg_phase phase)
{
    static const unsigned from[] = {
        [PG_CLOSED] = 1u << PG_CLOSED | 1u << PG_IDLE | 1u << PG_PREPARED,
        [PG_IDLE] = 1u << PG_CLOSED | 1u << PG_IDLE | 1u << PG_PREPARED,
        [PG_PREPARED] = 1u << PG_IDLE,
    };
    ASSERT((from[phase] >> self->phase & 1) != 0);
    self->phase = phase;
    phase_check(self);
}

void pg_recover(struct pg_store *self)
{
    struct pg_link *link = &self->link;
    link_drain(link);
    if (link_alive(link) && PQtransactionStatus(link->conn) != PQTRANS_IDLE) {
        link_text(link, "ROLLBACK");
        /* In case a draw of fences was cancelled halfway. */
        link_text(link, "SELECT pg_advisory_unlock_all()");
        link_sync(link);
        link_drain(link);
    }
    if (!link_alive(link)) {
        link_close(link);
        phase_set(self, PG_CLOSED);
        pg_spare_close(self); /* it may lead to a server that is no longer primary */
    } else {
        phase_set(self, PG_IDLE);
    }
}

/* Checks that the schema has our version. */
static enum status check_version(struct pg_store *self, struct err *err)
{
    struct err cause = {0};
    PGresult *result = NULL;
    link_text(&self->link, "SELECT max(version), to_regclass('copying') IS NOT NULL"
                           " FROM migrations");
    link_sync(&self->link);
    enum status status = link_next(&self->link, &result, &cause);
    int64_t version = 0;
    int64_t unfinished = 0;
    bool missing = link_failed_as(result, "42P01") || link_failed_as(result, "3F000");
    if (status == OK &&
        (PQntuples(result) != 1 || !pg_value_int(pg_value_of(result, 0, 0), &version))) {
        missing = true;
    } else if (status == OK) {
        (void)pg_value_int(pg_value_of(result, 0, 1), &unfinished);
    }
    self->unfinished = unfinished != 0;
    PQclear(result);
    if (link_alive(&self->link)) {
        enum status end = link_finish(&self->link, NULL);
        status = status == OK ? end : status;
    }
    if (missing) {
        (void)err_set(err, E_UNAVAILABLE, "the database has no store in the schema '%s'",
            self->target.schema);
        err_hint(err, "run once migrate --store with the same URL; a role without rights to the "
                      "schema does not see it");
        return E_UNAVAILABLE;
    }
    if (status != OK) {
        (void)err_set(err, status, "%s", cause.text);
        err_hint(err, "%s", cause.hint);
        return status;
    }
    if (version != PG_SCHEMA_VERSION) {
        (void)err_set(err, E_UNAVAILABLE, "the schema '%s' has version %d, this program needs %d",
            self->target.schema, (int)version, PG_SCHEMA_VERSION);
        err_hint(err, version < PG_SCHEMA_VERSION ? "run once migrate"
                                                  : "use the program that migrated the schema");
        return E_UNAVAILABLE;
    }
    return OK;
}

/* The chain is not checked: the link is not in use yet. */
enum status pg_open_link(struct pg_store *self, struct err *err)
{
    ASSERT(self->phase == PG_CLOSED);
    ASSERT(self->link.conn == NULL);
    enum status status = link_open(&self->link, &self->target, err);
    if (status != OK) {
        return status;
    }
    status = pg_check_session(self, err);
    if (status == OK) {
        status = check_version(self, err);
    }
    if (status == OK) {
        status = pg_statements_prepare(&self->link, self->mem, err);
        link_sync(&self->link);
        enum status end = link_finish(&self->link, status == OK ? err : NULL);
        status = status == OK ? end : status;
    }
    if (status != OK) {
        link_close(&self->link);
    }
    return status;
}

static enum status pg_connect(struct pg_store *self, struct err *err)
{
    enum status status = pg_open_link(self, err);
    if (status == OK) {
        phase_set(self, PG_IDLE);
    }
    return status;
}

struct pg_store pg_asker(const struct pg_store *self)
{
    return (struct pg_store){.mem = self->mem,
        .target = self->target,
        .link = {.mem = self->mem},
        .identity = self->identity,
        .system = self->system,
        .given = self->given};
}

/* Reads how many commits of ours the server has. A commit still on its way fails from now on. */
static enum status read_marker(
    struct pg_store *self, int64_t *ret_commits, int64_t *ret_epoch, struct err *err)
{
    PGresult *result = NULL;
    *ret_commits = *ret_epoch = -1;
    args_slice(&self->link.args, slice_of(self->identity.chain_id, 16));
    link_send(&self->link, PG_FATE);
    link_sync(&self->link);
    enum status status = pg_rows(self, 4, &result, err);
    if (status == OK && PQntuples(result) == 1) {
        (void)pg_value_int(pg_value_of(result, 0, 0), ret_commits);
        (void)pg_value_int(pg_value_of(result, 0, 1), ret_epoch);
    }
    PQclear(result);
    enum status end = link_alive(&self->link) ? link_finish(&self->link, NULL) : E_UNAVAILABLE;
    return status == OK && end != OK ? err_set(err, end, "the connection broke again") : status;
}

enum status pg_read_commits(struct pg_store *self, int64_t *ret_commits, struct err *err)
{
    PGresult *result = NULL;
    link_prepare(&self->link, "", "SELECT commits FROM chains WHERE chain_id = $1");
    args_slice(&self->link.args, slice_of(self->identity.chain_id, 16));
    link_send(&self->link, "");
    link_sync(&self->link);
    PGresult *prepared = NULL;
    enum status status = link_next(&self->link, &prepared, err);
    PQclear(prepared);
    status = status == OK ? pg_rows(self, 1, &result, err) : status;
    status = status == OK ? link_finish(&self->link, err) : status;
    *ret_commits = -1;
    if (status == OK && PQntuples(result) == 1) {
        (void)pg_value_int(pg_value_of(result, 0, 0), ret_commits);
    }
    PQclear(result);
    return status;
}

enum status pg_check_chain(
    struct pg_store *self, struct pg_store *asker, bool *ret_all, struct err *err)
{
    struct pg_unsettled *unsettled = &self->unsettled;
    int64_t commits = -1;
    int64_t epoch = -1;
    enum status status = read_marker(asker, &commits, &epoch, err);
    if (status != OK && link_alive(&asker->link)) {
        pg_end_stalled_by(&asker->link); /* one of ours may hold the row: its end did not arrive */
    }
    if (status != OK) {
        return status;
    }
    (void)pthread_mutex_lock(&self->mutex);
    int64_t more = commits - (int64_t)self->commits;
    bool known = more >= 0 && more <= (int64_t)unsettled->count + self->sending && epoch >= 0;
    *ret_all = more >= (int64_t)unsettled->count;
    if (known) {
        self->epoch = (uint64_t)epoch;
        for (unsigned i = 0; i < unsettled->count && i < more; i++) {
            pg_settled(self, &unsettled->heads[i]);
        }
        unsettled->count = 0;
    }
    (void)pthread_mutex_unlock(&self->mutex);
    if (!known) {
        (void)err_set(err, E_CORRUPT,
            "the database does not have the last commits of this process: it is an older copy");
        err_hint(err, "find out what happened to the server; a restart accepts the loss");
        return E_CORRUPT;
    }
    return OK;
}

/* Connects now, checks our chain, and settles unsettled commits. */
static enum status connect_again(struct pg_store *self, struct err *err)
{
    bool writes = !self->read_only && self->parent == NULL;
    bool all = false;
    enum status status = pg_open_link(self, err);
    if (status == OK && writes) {
        status = pg_check_chain(self, self, &all, err);
    }
    if (status == OK) {
        phase_set(self, PG_IDLE);
    } else {
        link_close(&self->link);
    }
    if (status == OK && writes) {
        (void)pthread_mutex_lock(&self->mutex);
        self->head = self->settled;
        (void)pthread_mutex_unlock(&self->mutex);
    }
    return status;
}

/* The same, but not before the pause after the last failure is over. */
static enum status reconnect(struct pg_store *self, struct err *err)
{
    int64_t now_ms = pg_boot_ms(self);
    if (now_ms < self->retry_at_ms) {
        return err_set(err, self->failure.status, "%s", self->failure.text);
    }
    err_clear(&self->failure);
    enum status status = connect_again(self, &self->failure);
    if (status == OK) {
        self->backoff_ms = BACKOFF_FIRST_MS;
        return OK;
    }
    self->retry_at_ms = pg_boot_ms(self) + self->backoff_ms;
    self->backoff_ms = clock_doubled_ms(self->backoff_ms, LIMIT_STORE_BACKOFF_MS_MAX);
    (void)err_set(err, status, "%s", self->failure.text);
    err_hint(err, "%s", self->failure.hint);
    return status;
}

enum status pg_ready(struct pg_store *self, struct err *err)
{
    pg_pending_wait(self);
    return pg_ready_beside(self, err);
}

enum status pg_ready_beside(struct pg_store *self, struct err *err)
{
    phase_check(self);
    ASSERT(self->phase != PG_PREPARED); /* a commit or abort must come first */
    (void)pthread_mutex_lock(&self->mutex);
    bool waits = self->pending.is_open && self->pending.sources; /* nothing else orders these */
    (void)pthread_mutex_unlock(&self->mutex);
    if (waits) {
        pg_pending_wait(self);
    }
    pg_catch_up(self);
    if (self->phase == PG_IDLE && !link_alive(&self->link)) {
        pg_recover(self);
    }
    if (self->phase == PG_CLOSED) { /* looking at our chain would end a commit under way */
        pg_pending_wait(self);
        pg_catch_up(self);
        pg_spare_take(self);
    }
    if (self->phase == PG_IDLE) {
        return OK;
    }
    pg_spare_close(self);
    return reconnect(self, err);
}

/* ---- the table --------------------------------------------------------------------------- */

static enum status pg_flush(struct store *store, struct err *err)
{
    (void)store;
    (void)err;
    return OK; /* a commit is known to have happened once it is on the disk */
}

static void pg_head(struct store *store, struct store_head *ret_head)
{
    struct pg_store *self = pg_of(store);
    if (self->parent == NULL) {
        *ret_head = self->head;
        return;
    }
    (void)pthread_mutex_lock(&self->parent->mutex);
    *ret_head = self->parent->settled; /* P2 */
    (void)pthread_mutex_unlock(&self->parent->mutex);
}

static void pg_identity(
    struct store *store, struct store_identity *ret_identity, struct store_shared *ret_shared)
{
    const struct pg_store *self = pg_of(store);
    if (ret_identity != NULL) {
        *ret_identity = self->identity;
    }
    if (ret_shared != NULL) {
        *ret_shared = self->shared;
    }
}

static enum status pg_beat(struct store *store, uint64_t incarnation, struct err *err)
{
    struct pg_store *self = pg_of(store);
    enum status status = pg_ready(self, err);
    if (status != OK) {
        return status;
    }
    args_slice(&self->link.args, slice_of(self->identity.chain_id, 16));
    args_int8(&self->link.args, (int64_t)incarnation);
    args_time(&self->link.args, pg_time_now(self).time_ms);
    link_send(&self->link, PG_BEAT);
    link_sync(&self->link);
    status = link_finish(&self->link, err);
    if (status != OK) {
        pg_recover(self);
    }
    return status;
}

/* Reads the members for a verifier: the chain's end, removed entries, and unchained decisions. */
static bool take_chain_end(const PGresult *result, int row, struct store_chain *ret_chain)
{
    struct pg_value removed_hash = pg_value_of(result, row, 10);
    int64_t seq = 0;
    int64_t settled = 0;
    int64_t removed = 0;
    int64_t unchained = 0;
    bool ok = pg_value_int(pg_value_of(result, row, 6), &seq) &&
              pg_value_digest(pg_value_of(result, row, 7), &ret_chain->hash) &&
              pg_value_int(pg_value_of(result, row, 8), &settled) &&
              pg_value_int(pg_value_of(result, row, 9), &removed) &&
              (removed_hash.null || pg_value_digest(removed_hash, &ret_chain->removed_hash)) &&
              pg_value_int(pg_value_of(result, row, 11), &unchained);
    ret_chain->seq = (uint64_t)seq;
    ret_chain->settled = settled != 0;
    ret_chain->removed_seq = (uint64_t)removed;
    ret_chain->unchained = (uint64_t)unchained;
    return ok;
}

static bool take_chain(const PGresult *result, int row, struct store_chain *ret_chain)
{
    struct pg_value key = pg_value_of(result, row, 1);
    struct pg_value incarnation = pg_value_of(result, row, 2);
    int64_t number = 0;
    int64_t ended = 0;
    bool ok = pg_value_uuid(pg_value_of(result, row, 0), ret_chain->chain_id) &&
              key.bytes.len == sizeof ret_chain->public_key &&
              (incarnation.null || pg_value_int(incarnation, &number)) &&
              pg_value_time(pg_value_of(result, row, 3), &ret_chain->started_ms) &&
              pg_value_time(pg_value_of(result, row, 4), &ret_chain->seen_ms) &&
              pg_value_int(pg_value_of(result, row, 5), &ended) &&
              take_chain_end(result, row, ret_chain);
    if (ok) {
        memcpy(ret_chain->public_key, key.bytes.data, sizeof ret_chain->public_key);
        ret_chain->incarnation = (uint64_t)number;
        ret_chain->seen_ms = number == 0 ? 0 : ret_chain->seen_ms;
        ret_chain->ended = ended != 0;
    }
    return ok;
}

static enum status pg_chains(
    struct store *store, store_chain_visit visit, void *context, struct err *err)
{
    struct pg_store *self = pg_of(store);
    PGresult *result = NULL;
    enum status status = pg_ready(self, err);
    if (status != OK) {
        return status;
    }
    link_send(&self->link, PG_CHAINS);
    link_sync(&self->link);
    status = pg_rows(self, 12, &result, err);
    if (status == OK) {
        status = link_finish(&self->link, err);
    }
    bool wanted = true;
    for (int row = 0; status == OK && wanted && row < PQntuples(result); row++) {
        struct store_chain chain = {.incarnation = 0};
        if (take_chain(result, row, &chain)) {
            wanted = visit(context, &chain);
        } else {
            status = err_set(err, E_CORRUPT, "a row of the table of chains does not check out");
        }
    }
    PQclear(result);
    if (status != OK) {
        pg_recover(self);
    }
    return status;
}

static void store_free(struct pg_store *self)
{
    link_close(&self->link);
    link_close(&self->spare);
    link_close(&self->pending.link);
    pg_target_release(self->mem, &self->target);
    (void)pthread_mutex_destroy(&self->mutex);
    (void)pthread_cond_destroy(&self->changed);
    mem_wipe(&self->identity, sizeof self->identity);
    mem_wipe(&self->shared, sizeof self->shared);
    mem_free(self->mem, self);
}

static enum status pg_close(struct store *store, struct err *err)
{
    struct pg_store *self = pg_of(store);
    ASSERT(self->readers == 0); /* they would use a closed store */
    enum status status = OK;
    pg_listen_end(self);
    if (self->phase == PG_PREPARED) {
        pg_recover(self);
    }
    pg_pending_wait(self);
    if (self->phase == PG_CLOSED) {
        pg_spare_take(self);
    }
    if (self->parent != NULL) {
        (void)pthread_mutex_lock(&self->parent->mutex);
        self->parent->readers--;
        (void)pthread_mutex_unlock(&self->parent->mutex);
    } else if (!self->read_only && self->phase == PG_IDLE && link_alive(&self->link)) {
        args_slice(&self->link.args, slice_of(self->identity.chain_id, 16));
        link_send(&self->link, PG_END);
        link_sync(&self->link);
        status = link_finish(&self->link, err);
    }
    store_free(self);
    return status;
}

static enum status pg_open_reader(struct store *store, struct store **ret_reader, struct err *err);

static const struct store_ops pg_ops = {
    .name = "postgres",
    .shared = true,
    .commit_rows = PG_COMMIT_ROWS,
    .prepare = pg_prepare,
    .commit = pg_commit,
    .abort = pg_abort,
    .flush = pg_flush,
    .settle = pg_settle,
    .read = pg_read,
    .scan = pg_scan,
    .due = pg_due,
    .entries = pg_entries,
    .counts = pg_counts,
    .backlog = pg_backlog,
    .head = pg_head,
    .identity = pg_identity,
    .close = pg_close,
    .housekeeping = &pg_housekeeping,
    .inheriting = &pg_inheriting,
    .intake = &pg_intake,
    .beat = pg_beat,
    .listen = pg_listen,
    .chains = pg_chains,
    .open_reader = pg_open_reader,
    .caution = pg_caution,
};

static const struct store_ops reader_ops = {
    .name = "postgres reader",
    .shared = true,
    .read = pg_read,
    .scan = pg_scan,
    .entries = pg_entries,
    .counts = pg_counts,
    .head = pg_head,
    .identity = pg_identity,
    .close = pg_close,
};

uint64_t postgres_round_trips(struct store *store)
{
    ASSERT(store->ops == &pg_ops);
    const struct pg_store *self = pg_of(store);
    return self->link.trips + self->spare.trips + self->pending.link.trips;
}

/* ---- opening ----------------------------------------------------------------------------- */

enum status postgres_url_check(const char *url, struct err *err)
{
    struct pg_target target = {.url = NULL};
    enum status status = pg_target_read(&mem_libc, url, &target, err);
    pg_target_release(&mem_libc, &target);
    return status;
}

/* Reads the fingerprint key, and the moment of the last commit of any process. */
static enum status read_common(struct pg_store *self, struct err *err)
{
    static const char *const texts[] = {
        "SELECT clock_timestamp(), committed_at, boot_ms, boot_id, jump_ms FROM ("
        "SELECT committed_at, boot_ms, boot_id, jump_ms FROM store UNION ALL"
        " SELECT committed_at, boot_ms, boot_id, jump_ms FROM chains WHERE ended_at IS NULL)"
        " AS moments ORDER BY committed_at DESC LIMIT 1",
        "SELECT clock_timestamp(), committed_at, boot_ms, boot_id, jump_ms FROM copying",
    };
    PGresult *result = NULL;
    struct store_moment last = {.time_ms = 0};
    int64_t server_ms = 0;
    int64_t boot_id = 0;
    link_text(&self->link, texts[self->inherits]);
    link_sync(&self->link);
    enum status status = pg_rows(self, 5, &result, err);
    if (status == OK) {
        bool ok = PQntuples(result) == 1 && pg_value_time(pg_value_of(result, 0, 0), &server_ms) &&
                  pg_value_time(pg_value_of(result, 0, 1), &last.time_ms) &&
                  pg_value_int(pg_value_of(result, 0, 2), &last.boot_ms) &&
                  pg_value_int(pg_value_of(result, 0, 3), &boot_id) &&
                  pg_value_int(pg_value_of(result, 0, 4), &last.jump_ms);
        status = ok ? OK : err_set(err, E_CORRUPT, "the row of the table 'store' is damaged");
    }
    PQclear(result);
    if (status != OK) {
        return status;
    }
    last.boot_id = (uint64_t)boot_id;
    pg_time_heard(self, server_ms, last.time_ms);
    self->head.moment = self->settled.moment = last;
    pg_time_init(self, &last);
    return link_finish(&self->link, err);
}

static enum status read_secret(struct pg_store *self, struct err *err)
{
    PGresult *result = NULL;
    link_text(&self->link, self->inherits ? "SELECT fingerprint_key FROM copying"
                                          : "SELECT fingerprint_key FROM store");
    link_sync(&self->link);
    enum status status = pg_rows(self, 1, &result, err);
    if (status == OK) {
        struct slice key = PQntuples(result) == 1 ? pg_value_of(result, 0, 0).bytes : SLICE_EMPTY;
        if (key.len != sizeof self->shared.fingerprint_key) {
            status = err_set(err, E_CORRUPT, "the fingerprint key of the store is damaged");
        } else {
            memcpy(self->shared.fingerprint_key, key.data, key.len);
        }
    }
    PQclear(result);
    return status == OK ? link_finish(&self->link, err) : status;
}

/* Begins a chain of our own. */
static enum status begin_chain(struct pg_store *self, struct err *err)
{
    static const char sql[] =
        "INSERT INTO chains (chain_id, public_key, host, pid, program, started_at, heartbeat_at)"
        " VALUES ($1, $2, $3, $4, $5, $6, $6)";
    char host[HOST_BYTES_MAX] = "";
    unsigned char public_key[32];
    enum status status = store_identity_make(&self->identity, err);
    if (status == OK) {
        status = store_identity_public(&self->identity, public_key, err);
    }
    if (status != OK) {
        return status;
    }
    (void)gethostname(host, sizeof host - 1); /* for people; may be empty */
    struct pg_args *args = &self->link.args;
    link_prepare(&self->link, "begin_chain", sql);
    args_slice(args, slice_of(self->identity.chain_id, 16));
    args_slice(args, slice_of(public_key, sizeof public_key));
    args_str(args, host);
    args_int4(args, (int32_t)getpid());
    args_str(args, "once " ONCE_VERSION);
    args_time(args, pg_time_now(self).time_ms);
    link_send(&self->link, "begin_chain");
    link_sync(&self->link);
    return link_finish(&self->link, err);
}

static enum status store_new(const struct store_options *options, const struct pg_target *target,
    struct pg_store **ret_self, struct err *err)
{
    const struct mem *mem = options->mem == NULL ? &mem_libc : options->mem;
    struct pg_store *self = mem_zalloc(mem, 1, sizeof *self);
    if (self == NULL) {
        return err_set(err, E_NOMEM, "out of memory for a store");
    }
    *self = (struct pg_store){.store = {&pg_ops},
        .mem = mem,
        .target = *target,
        .link = {.mem = mem},
        .spare = {.mem = mem},
        .pending = {.link = {.mem = mem}},
        .read_only = options->read_only,
        .given = options->clock,
        .backoff_ms = BACKOFF_FIRST_MS,
        .retain_ms = options->retain_ms == 0 ? RETAIN_MS_DEFAULT : options->retain_ms};
    self->target.read_only = options->read_only;
    clock_system(&self->system);
    self->keep_at_ms = pg_boot_ms(self) + KEEP_FIRST_MS;
    (void)pthread_mutex_init(&self->mutex, NULL);
    (void)pthread_cond_init(&self->changed, NULL);
    *ret_self = self;
    return OK;
}

enum status postgres_open(
    const char *url, const struct store_options *options, struct store **ret_store, struct err *err)
{
    const struct mem *mem = options->mem == NULL ? &mem_libc : options->mem;
    struct pg_target target = {.url = NULL};
    struct pg_store *self = NULL;
    enum status status = pg_target_read(mem, url, &target, err);
    if (status != OK) {
        return status;
    }
    status = store_new(options, &target, &self, err);
    if (status != OK) {
        pg_target_release(mem, &target);
        return status;
    }
    status = pg_connect(self, err);
    if (status == OK && options->inherit != NULL) {
        status = pg_inherit_begin(self, options->inherit, err);
    } else if (status == OK && !options->unfinished) {
        status = pg_refuse_unfinished(self, err);
    }
    self->inherits = status == OK && (options->inherit != NULL || options->unfinished);
    status = status == OK ? read_common(self, err) : status;
    if (status == OK && (!self->read_only || options->to_copy)) {
        status = read_secret(self, err);
    }
    if (status == OK && !self->read_only) {
        status = begin_chain(self, err);
    }
    if (status == OK && options->inherit != NULL) {
        status = pg_inherit_take(self, err);
    }
    if (status != OK) {
        if (self->inherits) {
            pg_inherit_explain(self, err);
        }
        store_free(self);
        return status;
    }
    *ret_store = &self->store;
    return OK;
}

/* A second connection, which reads beside the store's thread. It is opened for the first read: most
 * processes of `once run` never need it. */
static enum status pg_open_reader(struct store *store, struct store **ret_reader, struct err *err)
{
    struct pg_store *self = pg_of(store);
    struct store_options options = {.mem = self->mem, .clock = self->given, .read_only = true};
    struct pg_target target = {.no_fsync = self->target.no_fsync};
    struct pg_store *reader = NULL;
    struct slice url = slice_str(self->target.url);
    struct slice schema = slice_str(self->target.schema);
    target.url = mem_zalloc(self->mem, 1, url.len + 1);
    target.schema = mem_zalloc(self->mem, 1, schema.len + 1);
    enum status status = OK;
    if (target.url == NULL || target.schema == NULL) {
        status = err_set(err, E_NOMEM, "out of memory for a reader");
    } else {
        memcpy(target.url, url.data, url.len);
        memcpy(target.schema, schema.data, schema.len);
        status = store_new(&options, &target, &reader, err);
    }
    if (status != OK) {
        pg_target_release(self->mem, &target);
        return status;
    }
    reader->target.read_only = false; /* it must see the latest commits, so no standby */
    reader->head = reader->settled = self->head;
    reader->server_ms = self->server_ms;
    reader->server_boot_ms = self->server_boot_ms;
    pg_time_init(reader, &self->head.moment);
    reader->store.ops = &reader_ops;
    reader->parent = self;
    reader->identity = self->identity;
    reader->shared = self->shared;
    (void)pthread_mutex_lock(&self->mutex);
    self->readers++;
    (void)pthread_mutex_unlock(&self->mutex);
    *ret_reader = &reader->store;
    return OK;
}
