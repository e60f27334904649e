/*
 * Every statement of the store, prepared once on each connection.
 *
 * Tables are found by the search_path that the session sets. Arguments and results are in binary
 * form; the columns of a record are put in from the table in columns.c.
 */
#include "base/macros.h"
#include "store/postgres/impl.h"

/* {record}, {insert}, {alike}, {same} and {update} stand for texts from columns.c; {wants} for the
 * records that a batch asks for: by key both ends of the range are its hash; by id the range has
 * all hashes with the id's prefix. */
static const struct {
    const char *name;
    const char *sql;
} statements[] = {
    {PG_OPEN, "BEGIN"},
    {PG_COMMIT, "COMMIT"},
    /* In the order given, which is by hash in every process, so that nothing deadlocks. */
    {PG_LOCK, "SELECT count(pg_advisory_xact_lock(k)) FROM unnest($1::bigint[]) AS k"},
    {PG_LOAD,
        "SELECT w.n, {record},"
        " CASE WHEN (w.bodies & 1 <> 0 OR r.fingerprint = w.fingerprint)"
        " AND (w.tenant = '' OR w.tenant = r.tenant_id) THEN r.outcome_body END,"
        " CASE WHEN (w.bodies & 2 <> 0 OR r.fingerprint <> w.fingerprint)"
        " AND (w.tenant = '' OR w.tenant = r.tenant_id) THEN r.request_body END"
        " FROM unnest($1::bytea[], $2::bytea[], $3::uuid[], $4::integer[], $5::bytea[], $6::text[])"
        " WITH ORDINALITY AS w (low, high, id, bodies, fingerprint, tenant, n) {wants}"},
    /* The same for a batch that asks by key alone, with the bodies that the fingerprints choose. */
    {PG_KEYS, "SELECT w.n, {record}, CASE WHEN r.fingerprint = w.fingerprint THEN r.outcome_body"
              " END, CASE WHEN r.fingerprint <> w.fingerprint THEN r.request_body END"
              " FROM unnest($1::bytea[], $2::bytea[]) WITH ORDINALITY"
              " AS w (key_hash, fingerprint, n) JOIN records r ON r.key_hash = w.key_hash"},
    {PG_SOURCES, "SELECT DISTINCT ON (s.key_hash) {source}"
                 " FROM unnest($1::bytea[], $2::bytea[], $3::uuid[]) AS w (low, high, id) {wants}"
                 " JOIN records s ON s.key_hash = r.source_hash ORDER BY s.key_hash"},
    /* After the locks are held and the records are read (S9). */
    {PG_META, "SELECT clock_timestamp(), greatest((SELECT committed_at FROM store), last),"
              " draw_fences($1), pg_backend_pid(), coalesce(listens, false)"
              " FROM (SELECT max(committed_at) AS last, bool_or(listens AND chain_id <> $2"
              " AND heartbeat_at > $3) AS listens FROM chains WHERE ended_at IS NULL) AS open"},
    /* The oldest unknown one by the order of its index: min() may be planned to read them all, and
     * the plan is made while there are none. */
    {PG_COUNTS,
        "SELECT kind::text, status::text, sum(live)::bigint, NULL::timestamptz FROM tallies"
        " WHERE kind = ANY ($1::text[]::record_kind[]) GROUP BY kind, status"
        " HAVING sum(live) <> 0 UNION ALL SELECT 'operation', 'unknown', 0, (SELECT updated_at"
        " FROM records WHERE status = 'unknown' AND kind = ANY ($1::text[]::record_kind[])"
        " ORDER BY updated_at LIMIT 1)"},
    /* Each status in the order of its index, so that no more is read than the limit; and all that
     * there are, at the same moment. */
    {PG_BACKLOG,
        "SELECT status::text, tenant_id, scope, count(*), min(since) FROM ("
        "(SELECT status, tenant_id, scope, created_at AS since FROM records"
        " WHERE kind = $1::text::record_kind AND status = 'pending' AND due_at IS NOT NULL"
        " ORDER BY due_at LIMIT $2) UNION ALL "
        "(SELECT status, tenant_id, scope, updated_at FROM records"
        " WHERE kind = $1::text::record_kind AND status = 'unknown' ORDER BY updated_at LIMIT $2)"
        " UNION ALL (SELECT status, tenant_id, scope, updated_at FROM records"
        " WHERE kind = $1::text::record_kind AND status = 'dead' ORDER BY updated_at LIMIT $2)"
        ") AS r GROUP BY status, tenant_id, scope UNION ALL"
        " SELECT status::text, NULL, NULL, sum(live)::bigint, NULL FROM tallies"
        " WHERE kind = $1::text::record_kind AND status IN ('pending', 'unknown', 'dead')"
        " GROUP BY status"},
    {PG_MARK, "SELECT mark_commit($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)"},
    {PG_INSERT, "{insert}"},
    {PG_ALIKE, "{alike}"},
    {PG_SAME, "{same}"},
    {PG_UPDATE, "{update}"},
    {PG_THERE, "SELECT key_hash FROM records WHERE key_hash = ANY ($1::bytea[])"},
    {PG_TOUCH,
        "WITH w AS (SELECT * FROM unnest($1::bytea[], $2::text[], $3::bigint[], $4::bigint[])"
        " AS w (key_hash, tenant_id, version, more)), done AS (UPDATE records r"
        " SET duplicates = least(r.duplicates + w.more, 4294967295) FROM w"
        " WHERE r.key_hash = w.key_hash AND r.tenant_id = w.tenant_id AND r.version = w.version"
        " RETURNING r.key_hash)"
        " SELECT expect_changed(ARRAY(SELECT key_hash FROM w), ARRAY(SELECT key_hash FROM done))"},
    {PG_ENTRIES,
        "INSERT INTO entries (chain_id, seq, kind, decided_at, tenant_id, operation_id, prev_hash,"
        " hash, entry) SELECT $1::uuid, seq, CASE WHEN is_note THEN 'checkpoint'::entry_kind"
        " ELSE 'evidence'::entry_kind END, decided_at, tenant_id, operation_id,"
        " prev_hash, hash, entry FROM (SELECT unnest($2::bigint[]) AS seq, unnest($3::boolean[]) AS"
        " is_note, unnest($4::timestamptz[]) AS decided_at, unnest($5::text[]) AS tenant_id,"
        " unnest($6::uuid[]) AS operation_id, unnest($7::bytea[]) AS prev_hash,"
        " unnest($8::bytea[]) AS hash, unnest($9::text[]) AS entry) AS w"},
    /* The same for evidence of one tenant and one moment. */
    {PG_LINES,
        "INSERT INTO entries (chain_id, seq, kind, decided_at, tenant_id, operation_id, prev_hash,"
        " hash, entry) SELECT $1::uuid, seq, 'evidence', $4::timestamptz, $5::text, operation_id,"
        " prev_hash, hash, entry FROM (SELECT generate_series($2::bigint, $3::bigint) AS seq,"
        " unnest($6::uuid[]) AS operation_id, unnest($7::bytea[]) AS prev_hash,"
        " unnest($8::bytea[]) AS hash, unnest($9::text[]) AS entry) AS w"},
    {PG_RAISE, "SELECT raise_fences($1)"},
    {PG_NOTIFY, "SELECT pg_notify($1, k) FROM unnest($2::text[]) AS k"},
    {PG_LISTENS, "UPDATE chains SET listens = true WHERE chain_id = $1"},
    /* Waits for a commit under way, and makes any later one fail. */
    {PG_FATE, "UPDATE chains SET epoch = epoch + 1 WHERE chain_id = $1 RETURNING commits, epoch,"
              " seq, hash"},
    {PG_BEAT, "UPDATE chains SET incarnation = $2, heartbeat_at = greatest(heartbeat_at, $3),"
              " clock_behind = CASE WHEN clock_timestamp() - $3 > interval '1 s'"
              " THEN clock_timestamp() - $3 ELSE '0' END WHERE chain_id = $1"},
    /* Visits at most $2 keys, reads at most $3 of them, and ends at the $4th match. Returns at
     * least one row: the position, and whether that was the end. */
    {PG_SCAN,
        "WITH looked AS MATERIALIZED (SELECT key_hash, tenant_id, kind = ANY"
        " ($5::text[]::record_kind[]) AND status = coalesce(nullif($6, '')::record_status, status)"
        " AS wanted, kind = ANY ($5::text[]::record_kind[])"
        " AND status = coalesce(nullif($6, '')::record_status, status)"
        " AND ($7 = '' OR tenant_id = $7) AND ($8 = '' OR scope = $8) AND ($9 = '' OR key = $9)"
        " AND updated_at >= $10 AND ($11::timestamptz IS NULL OR updated_at < $11)"
        " AND ($12::timestamptz IS NULL OR window_expires_at IS NULL OR window_expires_at > $12)"
        " AS matches FROM records WHERE key_hash > $1 ORDER BY key_hash LIMIT $2),"
        " counted AS (SELECT *, count(*) FILTER (WHERE wanted) OVER w AS reads,"
        " count(*) FILTER (WHERE matches) OVER w AS found FROM looked"
        " WINDOW w AS (ORDER BY key_hash ROWS UNBOUNDED PRECEDING)),"
        " taken AS MATERIALIZED (SELECT * FROM counted WHERE reads <= $3::bigint"
        " AND (found < $4::bigint OR (found = $4::bigint AND matches))),"
        " place AS (SELECT (SELECT key_hash FROM taken ORDER BY key_hash DESC LIMIT 1) AS last,"
        " (SELECT count(*) FROM looked) < $2::bigint"
        " AND (SELECT count(*) FROM looked) = (SELECT count(*) FROM taken) AS done)"
        " SELECT place.last, place.done, {record} FROM place LEFT JOIN (taken JOIN records r"
        " ON taken.matches AND r.key_hash = taken.key_hash AND r.tenant_id = taken.tenant_id)"
        " ON true ORDER BY r.key_hash"},
    /* Each kind and status in the order of the index: all that is due would be read and sorted
     * otherwise. Ties make up for what the index does not tell apart. */
    {PG_DUE,
        "SELECT r.kind::text, r.status::text, door::text, operation_id, due_at, key_hash, fence"
        " FROM unnest($4::text[]::record_kind[]) AS k (kind), unnest($5::text[]::record_status[])"
        " AS s (status), LATERAL (SELECT * FROM records WHERE kind = k.kind AND status = s.status"
        " AND due_at IS NOT NULL AND due_at <= $1 AND due_at >= $2"
        " AND (due_at, key_hash) > ($2, $3)"
        " ORDER BY due_at FETCH FIRST ($6::bigint) ROWS WITH TIES) AS r"
        " ORDER BY due_at, key_hash LIMIT $6"},
    {PG_HELD, "SELECT kind::text, status::text, door::text, operation_id, due_at, key_hash, fence"
              " FROM records r WHERE holder IS NOT NULL AND kind = ANY ($1::text[]::record_kind[])"
              " AND NOT EXISTS (SELECT FROM chains c WHERE c.incarnation = r.holder"
              " AND c.ended_at IS NULL AND (c.heartbeat_at > $2 OR c.chain_id = $3)) LIMIT $4"},
    /* The position of an entry: whether its chain is known, the last seq, the transaction. */
    {PG_PLACE,
        "SELECT c.seq, (SELECT xid FROM commits m WHERE m.chain_id = $1 AND m.seq_last >= $2"
        " AND m.seq_first <= $2 ORDER BY m.seq_last LIMIT 1) FROM chains c WHERE c.chain_id = $1"},
    {PG_PAGE,
        "SELECT xid, chain_id, seq, kind::text, decided_at, tenant_id, operation_id, prev_hash,"
        " hash, CASE WHEN ($5 = '' OR tenant_id = $5) AND ($6::timestamptz IS NULL"
        " OR decided_at >= $6) AND ($7::uuid IS NULL OR operation_id = $7) THEN entry END,"
        " octet_length(entry) FROM entries e"
        " WHERE (xid, chain_id, seq, kind) > ($1::text::xid8, $2, $3, $4::text::entry_kind)"
        " AND xid < pg_snapshot_xmin(pg_current_snapshot())"
        /* The table's kind: the result's kind is a text, and would put a note before its entry. */
        " ORDER BY xid, chain_id, seq, e.kind LIMIT $8"},
    /* Readers see the end of a chain once no transaction is open. The functions' chain is one once
     * they were used. */
    {PG_CHAINS,
        "SELECT c.chain_id, c.public_key, c.incarnation, c.started_at, c.heartbeat_at,"
        " c.ended_at IS NOT NULL, c.seq, c.hash,"
        " pg_snapshot_xmin(pg_current_snapshot()) = pg_snapshot_xmax(pg_current_snapshot()),"
        " coalesce(r.seq, 0), r.hash, CASE WHEN c.chain_id = '" PG_FUNCTIONS_CHAIN "'"
        " THEN (SELECT count(*) FROM unchained) ELSE 0 END FROM chains c LEFT JOIN LATERAL (SELECT"
        " seq, hash FROM removals WHERE chain_id = c.chain_id AND NOT EXISTS (SELECT FROM removing"
        " WHERE removing.month = removals.month) ORDER BY seq DESC LIMIT 1) AS r"
        " ON true WHERE c.chain_id <> '" PG_FUNCTIONS_CHAIN "' OR c.seq > 0"
        " OR EXISTS (SELECT FROM unchained) ORDER BY c.number"},
    /* Forgets a bounded number of expired records. A record of a batch under way is left alone: the
     * batch has read it. */
    {PG_EXPIRE,
        "WITH over AS MATERIALIZED (SELECT key_hash, tenant_id, version FROM records"
        " WHERE window_expires_at <= $2 ORDER BY window_expires_at LIMIT $3"
        " FOR UPDATE SKIP LOCKED), mine AS MATERIALIZED (SELECT * FROM over"
        " WHERE pg_try_advisory_xact_lock(lock_key(key_hash))),"
        " gone AS (DELETE FROM records r USING mine m WHERE r.key_hash = m.key_hash"
        " AND r.tenant_id = m.tenant_id AND r.version = m.version AND r.window_expires_at <= $2"
        " RETURNING r.kind, r.status),"
        " tally AS (INSERT INTO tallies AS t SELECT $1::uuid, kind, status, -count(*) FROM gone"
        " GROUP BY kind, status ON CONFLICT (chain_id, kind, status)"
        " DO UPDATE SET live = t.live + excluded.live) SELECT count(*) FROM gone"},
    {PG_KEEP, "SELECT keep_partitions($1, $2::bigint * interval '1 ms', $3)"},
    /* Ends chains, and moves their counts and time to the common row. */
    {PG_FOLD, "SELECT end_chains($1)"},
    {PG_END, "SELECT end_chain($1)"},
    /* Active, and waiting for its process: in the middle of a request, or of an answer that nobody
     * reads, where no timeout of the server's counts. */
    {PG_STALLED,
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity a"
        " WHERE usename = current_user AND datname = current_database() AND state = 'active'"
        " AND wait_event IN ('ClientRead', 'ClientWrite')"
        " AND state_change < clock_timestamp() - $1::bigint * interval '1 ms'"
        " AND EXISTS (SELECT FROM pg_locks l WHERE l.pid = a.pid"
        " AND l.locktype = 'advisory' AND l.granted)"},
    /* The position of a piece of a chain that was taken over from a different store. */
    {PG_PLACED, "INSERT INTO commits (chain_id, seq_first, seq_last, committed_at)"
                " SELECT $1::uuid, $2::bigint, $3::bigint, $4::timestamptz"},
    /* Evidence of the functions for applications. */
    {PG_CHAIN, "SELECT chain_decisions($1)"},
    /* Effects of once_effect, until their payloads are sealed. */
    {PG_TYPES, "SELECT register_effect_types($1::text::jsonb)"},
    {PG_TAKE, "SELECT tenant_id, operation_id, envelope"
              " FROM take_intake($1::text[], $2::text[], $3::integer)"},
    {PG_DROP, "SELECT drop_intake($1::bytea[])"},
};

/* Inserts the generated parts. */
static void expand(struct buf *out, const char *sql)
{
    for (const char *at = sql; *at != '\0'; at++) {
        struct slice rest = slice_str(at);
        if (slice_starts(rest, SLICE_LIT("{record}"))) {
            columns_select(out, "r");
        } else if (slice_starts(rest, SLICE_LIT("{source}"))) {
            columns_select(out, "s");
        } else if (slice_starts(rest, SLICE_LIT("{insert}"))) {
            columns_insert(out);
        } else if (slice_starts(rest, SLICE_LIT("{alike}"))) {
            columns_insert_alike(out, PG_ROWS_ALIKE);
        } else if (slice_starts(rest, SLICE_LIT("{same}"))) {
            columns_insert_alike(out, PG_ROWS_SAME);
        } else if (slice_starts(rest, SLICE_LIT("{update}"))) {
            columns_update(out);
        } else if (slice_starts(rest, SLICE_LIT("{wants}"))) {
            buf_str(out, "JOIN records r ON r.key_hash >= w.low AND r.key_hash <= w.high"
                         " AND (w.id IS NULL OR r.operation_id = w.id)");
        } else {
            buf_char(out, *at);
            continue;
        }
        while (*at != '}') {
            at++;
        }
    }
    buf_char(out, '\0');
}

enum status pg_statements_prepare(struct pg_link *link, const struct mem *mem, struct err *err)
{
    enum { SQL_BYTES_MAX = 64 << 10 };
    struct buf sql;
    buf_init(&sql, mem, SQL_BYTES_MAX);
    enum status status = OK;
    for (size_t i = 0; i < COUNT(statements) && status == OK; i++) {
        buf_clear(&sql);
        expand(&sql, statements[i].sql);
        status = buf_status(&sql);
        if (status == OK) {
            link_prepare(link, statements[i].name, sql.data);
        }
    }
    buf_release(&sql);
    return status == OK ? OK : err_set(err, status, "out of memory for the statements");
}
