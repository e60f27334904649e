-- Version 6: less work for each commit, again, and the backlog by scope and tenant
-- (docs/formats/postgres.md). `once migrate` runs this in one transaction, with search_path set to the
-- schema of the store.

-- As those of records and entries in version 5: every commit updates a row of chains.
ALTER TABLE chains
    DROP CONSTRAINT IF EXISTS chains_public_key_check,
    DROP CONSTRAINT IF EXISTS chains_hash_check;

-- The last of a commit: its marker, and the counts of its records. It waits for the row of the chain
-- until the commit before has ended, and fails with ONC02 if the row is not as the process knows it:
-- a condition on what the snapshot shows would not wait. kinds, statuses and more count new rows;
-- the setting once.updated has the counts of changed ones. They are two statements, because PostgreSQL
-- sets up all parts of a statement a second time after it has waited for a row.
DO $do$
BEGIN
    EXECUTE format($make$
CREATE FUNCTION mark_commit(id uuid, known_epoch bigint, known_commits bigint, last_seq bigint,
    last_hash bytea, at timestamptz, boot bigint, boot_number bigint, jump bigint, kinds text[],
    statuses text[], more bigint[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    found_epoch bigint;
    found_commits bigint;
    updated text := nullif(current_setting('once.updated', true), '');
BEGIN
    UPDATE %1$I.chains SET commits = commits + 1, seq = last_seq, hash = last_hash,
        committed_at = greatest(committed_at, at), boot_ms = boot, boot_id = boot_number,
        jump_ms = jump, heartbeat_at = greatest(heartbeat_at, at)
        WHERE chain_id = id AND ended_at IS NULL RETURNING epoch, commits - 1
        INTO found_epoch, found_commits;
    IF found_epoch IS DISTINCT FROM known_epoch OR found_commits IS DISTINCT FROM known_commits THEN
        RAISE EXCEPTION 'this chain has gone on without this commit' USING ERRCODE = 'ONC02';
    END IF;
    IF updated IS NULL THEN
        INSERT INTO %1$I.tallies AS t SELECT id, k::%1$I.record_kind, s::%1$I.record_status, n
            FROM unnest(kinds, statuses, more) AS m (k, s, n) ON CONFLICT (chain_id, kind, status)
            DO UPDATE SET live = t.live + excluded.live;
    ELSE
        INSERT INTO %1$I.tallies AS t SELECT id, k::%1$I.record_kind, s::%1$I.record_status, sum(n)
            FROM (SELECT * FROM unnest(kinds, statuses, more) AS m (k, s, n)
                UNION ALL SELECT split_part(u, ' ', 1), split_part(u, ' ', 2),
                    split_part(u, ' ', 3)::bigint FROM string_to_table(updated, ',') AS u) AS moved
            GROUP BY k, s HAVING sum(n) <> 0 ON CONFLICT (chain_id, kind, status)
            DO UPDATE SET live = t.live + excluded.live;
    END IF;
END $$ $make$, current_schema());
END $do$;

-- What waits for a person is counted for the metrics: of each kind and status a few, oldest first.
CREATE INDEX records_parked ON records (kind, status, updated_at)
    WHERE status IN ('unknown', 'dead');
