/*
 * A schema that becomes the copy of a different store (`once copy`).
 *
 *   a store without records --begin--> unfinished copy --finish--> a store
 *
 * While it is unfinished, the row of the table `store` is in a table `copying`, with the name and
 * state of the other store. No process opens a store without that row, not even one of an earlier
 * version, and the functions for applications have no key to fingerprint with. Begin and finish are
 * one transaction each: a crash leaves it in one state or the other.
 */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/macros.h"
#include "store/postgres/impl.h"

/* Runs a statement without arguments, in the open transaction. */
static enum status run(struct pg_store *self, const char *sql, struct err *err)
{
    link_text(&self->link, sql);
    link_sync(&self->link);
    return link_finish(&self->link, err);
}

/* Runs a prepared statement with the arguments put since. */
static enum status run_prepared(struct pg_store *self, const char *name, struct err *err)
{
    link_send(&self->link, name);
    link_sync(&self->link);
    return link_finish(&self->link, err);
}

static enum status ask(
    struct pg_store *self, const char *sql, int columns, PGresult **ret_result, struct err *err)
{
    link_text(&self->link, sql);
    link_sync(&self->link);
    enum status status = pg_rows(self, columns, ret_result, err);
    status = status == OK ? link_finish(&self->link, err) : status;
    if (status == OK && PQntuples(*ret_result) != 1) {
        status = err_set(err, E_CORRUPT, "a table of one row has more or none");
    }
    return status;
}

static void describe_unfinished(struct pg_store *self, const char *from, struct err *err)
{
    (void)err_set(err, E_UNAVAILABLE, "the schema '%s' is an unfinished copy of '%s'",
        self->target.schema, from);
    err_hint(err, "run the same once copy again to finish it, or drop the schema");
}

enum status pg_refuse_unfinished(struct pg_store *self, struct err *err)
{
    PGresult *result = NULL;
    ASSERT(self->phase == PG_IDLE);
    if (!self->unfinished) {
        return OK;
    }
    enum status status = ask(self, "SELECT copy_of FROM copying", 1, &result, NULL);
    struct slice from = status == OK ? pg_value_of(result, 0, 0).bytes : SLICE_LIT("a store");
    char text[256];
    (void)snprintf(text, sizeof text, "%.*s", SLICE_ARGS(from));
    describe_unfinished(self, text, err);
    PQclear(result);
    return E_UNAVAILABLE;
}

void pg_inherit_explain(struct pg_store *self, struct err *err)
{
    PGresult *result = NULL;
    int64_t unfinished = 1;
    ASSERT(self->inherits);
    pg_recover(self);
    if (self->phase == PG_IDLE &&
        ask(self, "SELECT to_regclass('copying') IS NOT NULL", 1, &result, NULL) == OK) {
        (void)pg_value_int(pg_value_of(result, 0, 0), &unfinished);
    }
    PQclear(result);
    if (unfinished == 0) {
        (void)err_set(err, E_UNAVAILABLE, "a second copy to the same target has finished it");
        err_hint(err, "nothing is left to do: once verify checks it");
    }
}

/* ---- begin ---------------------------------------------------------------------------------- */

/* One column of all chains as an array. */
enum chain_column {
    CHAIN_ID,
    CHAIN_KEY,
    CHAIN_STARTED,
    CHAIN_SEEN,
    CHAIN_INCARNATION,
    CHAIN_SEQ,
    CHAIN_HASH,
    CHAIN_REMOVED_SEQ,
    CHAIN_REMOVED_HASH,
    CHAIN_COLUMNS
};

static void put_chain(
    struct pg_args *args, const struct store_chain *chain, enum chain_column column)
{
    switch (column) {
    case CHAIN_ID: args_slice(args, slice_of(chain->chain_id, 16)); return;
    case CHAIN_KEY: args_slice(args, slice_of(chain->public_key, 32)); return;
    case CHAIN_STARTED: args_time(args, chain->started_ms); return;
    case CHAIN_SEEN: args_time(args, chain->seen_ms); return;
    case CHAIN_INCARNATION: args_int8(args, (int64_t)chain->incarnation); return;
    case CHAIN_SEQ: args_int8(args, (int64_t)chain->seq); return;
    case CHAIN_HASH: args_slice(args, slice_of(chain->hash.bytes, DIGEST_BYTES)); return;
    case CHAIN_REMOVED_SEQ: args_int8(args, (int64_t)chain->removed_seq); return;
    case CHAIN_REMOVED_HASH:
        args_slice(args, slice_of(chain->removed_hash.bytes, DIGEST_BYTES));
        return;
    case CHAIN_COLUMNS: break;
    }
    ASSERT(false);
}

static enum status put_chains(
    struct pg_store *self, const struct store_inheritance *inherit, struct err *err)
{
    static const enum pg_type types[CHAIN_COLUMNS] = {[CHAIN_ID] = PG_UUID,
        [CHAIN_KEY] = PG_BYTEA,
        [CHAIN_STARTED] = PG_TIMESTAMPTZ,
        [CHAIN_SEEN] = PG_TIMESTAMPTZ,
        [CHAIN_INCARNATION] = PG_INT8,
        [CHAIN_SEQ] = PG_INT8,
        [CHAIN_HASH] = PG_BYTEA,
        [CHAIN_REMOVED_SEQ] = PG_INT8,
        [CHAIN_REMOVED_HASH] = PG_BYTEA};
    /* The functions' chain is in every schema; here it continues, and so does its time. */
    static const char sql[] =
        "WITH inherited AS (SELECT * FROM unnest($1::uuid[], $2::bytea[], $3::timestamptz[],"
        " $4::timestamptz[], $5::bigint[], $6::bigint[], $7::bytea[], $8::bigint[], $9::bytea[])"
        " WITH ORDINALITY AS w (chain_id, public_key, started_at, seen_at, incarnation, seq, hash,"
        " removed_seq, removed_hash, n)), gone AS (INSERT INTO removals (chain_id, seq, hash)"
        " SELECT chain_id, removed_seq, removed_hash FROM inherited WHERE removed_seq > 0)"
        " INSERT INTO chains (chain_id, public_key, host, pid, program, started_at, heartbeat_at,"
        " ended_at, incarnation, seq, hash) SELECT chain_id, public_key, '', 0, 'copied',"
        " started_at, greatest(started_at, seen_at), greatest(started_at, seen_at),"
        " nullif(incarnation, 0), seq, hash FROM inherited ORDER BY n"
        " ON CONFLICT (chain_id) DO UPDATE SET seq = excluded.seq, hash = excluded.hash,"
        " committed_at = $10::timestamptz";
    link_prepare(&self->link, "inherit_chains", sql);
    for (int column = 0; column < CHAIN_COLUMNS; column++) {
        args_array(&self->link.args, types[column]);
        for (size_t i = 0; i < inherit->chain_count; i++) {
            put_chain(&self->link.args, &inherit->chains[i], (enum chain_column)column);
        }
        args_array_end(&self->link.args);
    }
    args_time(&self->link.args, inherit->time_ms);
    return run_prepared(self, "inherit_chains", err);
}

/* In the open transaction, on a schema without records. */
static enum status mark(
    struct pg_store *self, const struct store_inheritance *inherit, struct err *err)
{
    struct pg_args *args = &self->link.args;
    enum status status = run(self,
        "CREATE TABLE copying (copier uuid, copy_of text NOT NULL, origin bytea NOT NULL,"
        " store_id uuid NOT NULL, created_at timestamptz NOT NULL, fingerprint_key bytea NOT NULL,"
        " committed_at timestamptz NOT NULL, boot_ms bigint NOT NULL DEFAULT 0,"
        " boot_id bigint NOT NULL DEFAULT 0, jump_ms bigint NOT NULL DEFAULT 0)",
        err);
    if (status == OK) {
        link_prepare(&self->link, "inherit_mark",
            "WITH was AS (DELETE FROM store RETURNING store_id, created_at) INSERT INTO copying"
            " (copy_of, origin, store_id, created_at, fingerprint_key, committed_at)"
            " SELECT $1::text, $2::bytea, store_id, created_at, $3::bytea, $4::timestamptz"
            " FROM was");
        args_str(args, inherit->from);
        args_slice(args, slice_of(inherit->origin.bytes, DIGEST_BYTES));
        args_slice(args, slice_of(inherit->shared.fingerprint_key, 32));
        args_time(args, inherit->time_ms);
        status = run_prepared(self, "inherit_mark", err);
    }
    status = status == OK ? put_chains(self, inherit, err) : status;
    if (status == OK && inherit->fence > 0) {
        args_int8(args, (int64_t)inherit->fence);
        status = run_prepared(self, PG_RAISE, err);
    }
    return status;
}

/* A copy continues only from the store that it began with, in the state that it had then. */
static enum status go_on(
    struct pg_store *self, const struct store_inheritance *inherit, struct err *err)
{
    PGresult *result = NULL;
    struct digest origin;
    enum status status = ask(self, "SELECT origin, copy_of FROM copying", 2, &result, err);
    if (status == OK && (!pg_value_digest(pg_value_of(result, 0, 0), &origin) ||
                            !digest_equal(&origin, &inherit->origin))) {
        struct slice from = pg_value_of(result, 0, 1).bytes;
        (void)err_set(err, E_INVALID,
            "the schema '%s' is an unfinished copy of '%.*s' in a different state",
            self->target.schema, SLICE_ARGS(from));
        err_hint(err, "drop the schema, run once migrate, and copy again from the beginning");
        status = E_INVALID;
    }
    PQclear(result);
    return status;
}

static enum status begin_locked(
    struct pg_store *self, const struct store_inheritance *inherit, struct err *err)
{
    static const char sql[] =
        "SELECT EXISTS (SELECT FROM records) OR EXISTS (SELECT FROM entries)"
        " OR EXISTS (SELECT FROM unchained) OR EXISTS (SELECT FROM removals),"
        " EXISTS (SELECT FROM chains WHERE ended_at IS NULL AND heartbeat_at >"
        " clock_timestamp() - interval '30 s'), to_regclass('copying') IS NOT NULL";
    PGresult *result = NULL;
    int64_t used = 1;
    int64_t open = 1;
    int64_t begun = 0;
    enum status status = ask(self, sql, 3, &result, err);
    if (status == OK) {
        (void)pg_value_int(pg_value_of(result, 0, 0), &used);
        (void)pg_value_int(pg_value_of(result, 0, 1), &open);
        (void)pg_value_int(pg_value_of(result, 0, 2), &begun);
    }
    PQclear(result);
    if (status != OK) {
        return status;
    }
    if (begun != 0) {
        return go_on(self, inherit, err);
    }
    if (used != 0 || open != 0) {
        (void)err_set(err, E_INVALID, "the schema '%s' %s", self->target.schema,
            used != 0 ? "is a store that is not empty" : "is open in a process of Once");
        err_hint(err, used != 0 ? "a copy never adds to a store; name a different schema with "
                                  "?schema=NAME and run once migrate for it"
                                : "stop it; one that was killed counts as gone after 30 s");
        return E_INVALID;
    }
    return mark(self, inherit, err);
}

enum status pg_inherit_begin(
    struct pg_store *self, const struct store_inheritance *inherit, struct err *err)
{
    ASSERT(self->phase == PG_IDLE);
    ASSERT(!self->read_only);
    enum status status = run(self, "BEGIN", err);
    /* The lock keeps other processes from starting a chain or a second copy. */
    status =
        status == OK ? run(self, "LOCK TABLE chains IN SHARE ROW EXCLUSIVE MODE", err) : status;
    status = status == OK ? begin_locked(self, inherit, err) : status;
    status = status == OK ? run(self, "COMMIT", err) : status;
    /* The commit of finish makes everything durable; an earlier crash may lose the end. */
    status = status == OK ? run(self, "SET synchronous_commit = off", err) : status;
    if (status != OK) {
        pg_recover(self);
        err_prefix(err, "cannot copy to the schema '%s'", self->target.schema);
    }
    return status;
}

/* If two processes copy to the same schema, the one that began last continues. */
enum status pg_inherit_take(struct pg_store *self, struct err *err)
{
    ASSERT(self->inherits);
    link_prepare(&self->link, "inherit_take", "UPDATE copying SET copier = $1::uuid");
    args_slice(&self->link.args, slice_of(self->identity.chain_id, 16));
    return run_prepared(self, "inherit_take", err);
}

/* The lock makes pg_inherit_take wait for a commit under way, even of a killed process: the count
 * after it is complete. */
void pg_inherit_check(struct pg_store *self)
{
    link_prepare(&self->link, "",
        "SELECT expect_marked((SELECT count(*) FROM (SELECT FROM copying WHERE copier = $1::uuid"
        " FOR SHARE) AS held))");
    args_slice(&self->link.args, slice_of(self->identity.chain_id, 16));
    link_send(&self->link, "");
}

/* ---- continuing and finishing ---------------------------------------------------------------- */

static enum status pg_inherited(struct store *store, uint64_t *ret_count, struct err *err)
{
    struct pg_store *self = pg_of(store);
    PGresult *result = NULL;
    int64_t count = 0;
    enum status status = pg_ready(self, err);
    status = status == OK ? ask(self, "SELECT count(*) FROM entries", 1, &result, err) : status;
    if (status == OK) {
        (void)pg_value_int(pg_value_of(result, 0, 0), &count);
        *ret_count = (uint64_t)count;
    }
    PQclear(result);
    return status;
}

static enum status pg_inherit_end(struct store *store, struct err *err)
{
    static const char *const texts[] = {"BEGIN", "SET LOCAL synchronous_commit = on",
        ("INSERT INTO store (store_id, created_at, fingerprint_key, committed_at)"
         " SELECT store_id, created_at, fingerprint_key, committed_at FROM copying"),
        "DROP TABLE copying", "COMMIT"};
    struct pg_store *self = pg_of(store);
    ASSERT(self->inherits);
    enum status status = pg_ready(self, err);
    for (size_t i = 0; i < COUNT(texts) && status == OK; i++) {
        status = run(self, texts[i], err);
        status = i + 1 == COUNT(texts) && status == E_UNAVAILABLE ? E_UNKNOWN : status;
    }
    self->inherits = self->inherits && status != OK;
    if (status != OK) {
        pg_recover(self);
    }
    return status;
}

const struct store_inheriting pg_inheriting = {
    .entries = pg_inherited,
    .finish = pg_inherit_end,
};
