-- Version 1 of the schema of Once's PostgreSQL store: docs/formats/postgres.md describes it.
-- `once migrate` runs this in one transaction, with search_path set to the schema of the store.

CREATE TYPE record_kind AS ENUM ('operation', 'source', 'command', 'effect', 'delivery');
CREATE TYPE record_status AS ENUM ('in_progress', 'unknown', 'released', 'executed', 'failed',
    'rejected', 'compensated', 'pending', 'waiting', 'dead', 'compensating');
CREATE TYPE record_door AS ENUM ('unnamed', 'fences', 'gateway', 'run', 'commands', 'effects',
    'inbox');
CREATE TYPE entry_kind AS ENUM ('evidence', 'checkpoint');

-- What every process of the store has in common: one row.
CREATE TABLE store (
    is_the_row boolean PRIMARY KEY DEFAULT true CHECK (is_the_row),
    store_id uuid NOT NULL DEFAULT gen_random_uuid(),
    created_at timestamptz NOT NULL DEFAULT now(),
    -- Secret: fingerprints are HMACs with it.
    fingerprint_key bytea NOT NULL
        DEFAULT sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()))
        CHECK (octet_length(fingerprint_key) = 32),
    -- The time of the last commit of all chains that ended; open chains have their own.
    committed_at timestamptz NOT NULL DEFAULT '1970-01-01 00:00:00+00',
    boot_ms bigint NOT NULL DEFAULT 0,
    boot_id bigint NOT NULL DEFAULT 0,
    jump_ms bigint NOT NULL DEFAULT 0
);
INSERT INTO store DEFAULT VALUES;
COMMENT ON TABLE store IS 'what all processes of this store have in common; one row';

-- Numbers of grants. draw_fences hands them out.
CREATE SEQUENCE fences AS bigint;

-- One row for each process that opened the store for writing: its chain of evidence, its
-- heartbeat, and the marker of its last commit.
CREATE TABLE chains (
    chain_id uuid PRIMARY KEY,
    number bigint NOT NULL GENERATED ALWAYS AS IDENTITY, -- in the order in which they began
    public_key bytea NOT NULL CHECK (octet_length(public_key) = 32),
    host text NOT NULL,
    pid integer NOT NULL,
    program text NOT NULL,
    started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    heartbeat_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_at timestamptz,
    -- The number that records name as their holder; NULL: the process holds no grants itself.
    incarnation bigint,
    listens boolean NOT NULL DEFAULT false,
    -- The marker. A commit adds 1 to commits and asks for the epoch it knows. Whoever looks up the
    -- fate of a commit adds 1 to the epoch, so that a commit still on its way fails.
    epoch bigint NOT NULL DEFAULT 0,
    commits bigint NOT NULL DEFAULT 0,
    -- The end of the chain.
    seq bigint NOT NULL DEFAULT 0,
    hash bytea NOT NULL DEFAULT decode(repeat('00', 32), 'hex') CHECK (octet_length(hash) = 32),
    -- The store's time at the last commit, and the clock of the process then.
    committed_at timestamptz NOT NULL DEFAULT '1970-01-01 00:00:00+00',
    boot_ms bigint NOT NULL DEFAULT 0,
    boot_id bigint NOT NULL DEFAULT 0,
    jump_ms bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
CREATE INDEX chains_open ON chains (chain_id) WHERE ended_at IS NULL;
COMMENT ON TABLE chains IS 'one row for each process that opened the store for writing';

-- What is remembered, one row for each key. The hash is SHA-256 over the length-framed parts of the
-- key (see key_hash), so (tenant_id, scope, principal, key) of one kind is unique with it.
CREATE TABLE records (
    key_hash bytea NOT NULL CHECK (octet_length(key_hash) = 32),
    tenant_id text NOT NULL CHECK (tenant_id <> ''),
    scope text NOT NULL,
    principal text NOT NULL,
    key text NOT NULL CHECK (key <> ''),
    kind record_kind NOT NULL,
    status record_status NOT NULL,
    version bigint NOT NULL CHECK (version > 0),
    operation_id uuid NOT NULL,
    fence bigint NOT NULL CHECK (fence >= 0),
    attempt bigint NOT NULL CHECK (attempt >= 0),
    duplicates bigint NOT NULL CHECK (duplicates >= 0),
    fingerprint bytea NOT NULL CHECK (octet_length(fingerprint) = 32),
    fingerprint_version smallint NOT NULL,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    sealed_at timestamptz,
    lease_expires_at timestamptz,
    window_expires_at timestamptz,
    window_ms bigint NOT NULL,
    -- When somebody has to act (lease over, next attempt, confirmation over, reconcile again); NULL:
    -- nobody has to. due_given_at is the part of it that was asked for.
    due_at timestamptz,
    due_given_at timestamptz,
    effect_id text,
    outcome_code integer NOT NULL,
    outcome_meta bytea,
    outcome_digest bytea,
    outcome_bytes bigint NOT NULL,
    outcome_retained boolean NOT NULL,
    outcome_body bytea,
    request_digest bytea,
    request_bytes bigint NOT NULL,
    request_retained boolean NOT NULL,
    request_body bytea,
    source_type text,
    source_id text,
    source_version text,
    -- key_hash of the record that remembers the newest sealed version of the source.
    source_hash bytea,
    trace text,
    reason text,
    door record_door NOT NULL,
    reconciles boolean NOT NULL,
    holder bigint,
    parent uuid,
    detail bytea,
    PRIMARY KEY (key_hash, tenant_id)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
-- Every live record is in at most one of the first two.
CREATE INDEX records_due ON records (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX records_over ON records (window_expires_at) WHERE window_expires_at IS NOT NULL;
CREATE INDEX records_held ON records (holder) WHERE holder IS NOT NULL;
CREATE INDEX records_unknown ON records (updated_at) WHERE status = 'unknown';
COMMENT ON TABLE records IS 'what is remembered of each key';

-- How many records there are, as what each chain added and took away: the sum counts.
CREATE TABLE tallies (
    chain_id uuid NOT NULL,
    kind record_kind NOT NULL,
    status record_status NOT NULL,
    live bigint NOT NULL,
    PRIMARY KEY (chain_id, kind, status)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
COMMENT ON TABLE tallies IS 'records by kind and status; the sum over all chains counts';

-- Evidence. The order is (xid, chain_id, seq, kind). A reader shows what is below
-- pg_snapshot_xmin(pg_current_snapshot()), so that nothing is ever added before its place.
CREATE TABLE entries (
    xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
    chain_id uuid NOT NULL,
    seq bigint NOT NULL CHECK (seq >= 0),
    kind entry_kind NOT NULL,
    decided_at timestamptz NOT NULL,
    tenant_id text NOT NULL,
    operation_id uuid,
    -- hash = sha256(prev_hash || entry), for what is evidence.
    prev_hash bytea NOT NULL CHECK (octet_length(prev_hash) = 32),
    hash bytea NOT NULL CHECK (octet_length(hash) = 32),
    entry text NOT NULL
) PARTITION BY RANGE (decided_at);
CREATE INDEX entries_order ON entries (xid, chain_id, seq, kind);
CREATE TABLE entries_other PARTITION OF entries DEFAULT;
COMMENT ON TABLE entries IS 'evidence: one row for each decision, and the checkpoints';

-- One row for each commit that added evidence: where in the order of entries a chain's seq is.
CREATE TABLE commits (
    chain_id uuid NOT NULL,
    seq_first bigint NOT NULL,
    seq_last bigint NOT NULL,
    xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
    committed_at timestamptz NOT NULL
) PARTITION BY RANGE (committed_at);
CREATE INDEX commits_seq ON commits (chain_id, seq_last);
CREATE TABLE commits_other PARTITION OF commits DEFAULT;
COMMENT ON TABLE commits IS 'which transaction each piece of a chain of evidence came with';

-- What was removed of a chain when it was past its retention: what is left goes on from hash.
CREATE TABLE removals (
    chain_id uuid NOT NULL,
    seq bigint NOT NULL,
    hash bytea NOT NULL,
    removed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (chain_id, seq)
);
COMMENT ON TABLE removals IS 'evidence that was removed after its retention: up to which entry';

-- ---- functions ---------------------------------------------------------------------------------

-- The hash that a record is found by: each part after its length, so that "ab" + "c" is not
-- "a" + "bc".
CREATE FUNCTION key_hash(kind record_kind, tenant_id text, scope text, principal text, key text)
    RETURNS bytea LANGUAGE sql STABLE PARALLEL SAFE
RETURN sha256(
    CASE kind WHEN 'operation' THEN '\x'::bytea WHEN 'source' THEN '\x02'
        WHEN 'command' THEN '\x03' WHEN 'effect' THEN '\x04' ELSE '\x05' END
    || int2send(octet_length(tenant_id)::smallint) || convert_to(tenant_id, 'UTF8')
    || int2send(octet_length(scope)::smallint) || convert_to(scope, 'UTF8')
    || int2send(octet_length(principal)::smallint) || convert_to(principal, 'UTF8')
    || int2send(octet_length(key)::smallint) || convert_to(key, 'UTF8'));

-- The advisory lock of a key: the first 48 bits of its hash, which an operation id carries too.
CREATE FUNCTION lock_key(key_hash bytea) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN (get_byte(key_hash, 0)::bigint << 40) | (get_byte(key_hash, 1)::bigint << 32)
    | (get_byte(key_hash, 2)::bigint << 24) | (get_byte(key_hash, 3)::bigint << 16)
    | (get_byte(key_hash, 4)::bigint << 8) | get_byte(key_hash, 5)::bigint;

-- The first of `count` consecutive numbers; with 0 the next to come. Numbers that were drawn are
-- gone, whatever becomes of the transaction. The lock is held for the draw alone.
CREATE FUNCTION draw_fences(count bigint) RETURNS bigint LANGUAGE plpgsql
    SET search_path FROM CURRENT AS $$
DECLARE
    first bigint;
    place oid := 'fences'::regclass;
BEGIN
    IF count = 0 THEN
        SELECT last_value + is_called::integer INTO STRICT first FROM fences;
        RETURN first;
    END IF;
    PERFORM pg_advisory_lock(1869505381, place::bigint::bit(32)::integer); -- "once"
    SELECT last_value + is_called::integer INTO STRICT first FROM fences;
    PERFORM setval(place, first + count - 1);
    PERFORM pg_advisory_unlock(1869505381, place::bigint::bit(32)::integer);
    RETURN first;
END $$;

-- Numbers up to this one are never drawn.
CREATE FUNCTION raise_fences(floor bigint) RETURNS void LANGUAGE plpgsql
    SET search_path FROM CURRENT AS $$
DECLARE
    place oid := 'fences'::regclass;
BEGIN
    PERFORM pg_advisory_lock(1869505381, place::bigint::bit(32)::integer);
    PERFORM setval(place, greatest(floor, last_value)) FROM fences
        WHERE floor > last_value OR (floor = last_value AND NOT is_called);
    PERFORM pg_advisory_unlock(1869505381, place::bigint::bit(32)::integer);
END $$;

-- Fails with ONC01 unless all that was to change did; the detail names what did not, in hex.
CREATE FUNCTION expect_changed(wanted bytea[], changed bytea[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF cardinality(wanted) <> cardinality(changed) THEN
        RAISE EXCEPTION 'a record has changed since it was read' USING ERRCODE = 'ONC01',
            DETAIL = (SELECT string_agg(encode(hash, 'hex'), ' ')
                FROM (SELECT unnest(wanted) EXCEPT SELECT unnest(changed)) AS missing (hash));
    END IF;
END $$;

-- Fails with ONC02 unless the marker of the chain could be set.
CREATE FUNCTION expect_marked(marked bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF marked <> 1 THEN
        RAISE EXCEPTION 'this chain has gone on without this commit' USING ERRCODE = 'ONC02';
    END IF;
END $$;

-- A process closed its handle, or is gone for good: what it counted and its time become everybody's.
CREATE FUNCTION end_chain(id uuid) RETURNS void LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    chain chains;
BEGIN
    UPDATE chains SET ended_at = greatest(heartbeat_at, committed_at)
        WHERE chain_id = id AND ended_at IS NULL RETURNING * INTO chain;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    UPDATE store SET committed_at = chain.committed_at, boot_ms = chain.boot_ms,
        boot_id = chain.boot_id, jump_ms = chain.jump_ms WHERE committed_at <= chain.committed_at;
    WITH gone AS (DELETE FROM tallies WHERE chain_id = id RETURNING kind, status, live)
        INSERT INTO tallies AS t SELECT '00000000-0000-0000-0000-000000000000', kind, status, live
            FROM gone ORDER BY kind, status ON CONFLICT (chain_id, kind, status)
            DO UPDATE SET live = t.live + excluded.live;
END $$;

-- The same for every process that was last heard of before then. Returns how many.
CREATE FUNCTION end_chains(heard_before timestamptz) RETURNS bigint LANGUAGE sql
BEGIN ATOMIC
    SELECT count(end_chain(chain_id)) FROM (SELECT chain_id FROM chains
        WHERE ended_at IS NULL AND heartbeat_at < heard_before ORDER BY chain_id) AS silent;
END;

-- Partitions of evidence, one a month: this month's and the next one's are made, and those whose
-- evidence is all older than `retain` are dropped whole. Rows of other times are in *_other and go
-- in chunks. It runs with the owner's rights, because a process of Once may not make or drop tables.
-- Returns how many partitions were dropped.
CREATE FUNCTION keep_partitions(at timestamptz, retain interval) RETURNS integer LANGUAGE plpgsql
    SECURITY DEFINER SET search_path FROM CURRENT SET lock_timeout = '1s' SET timezone = 'UTC' AS $$
DECLARE
    wanted text[];
    over text[];
    name text;
    month timestamptz;
BEGIN
    IF retain < interval '1 day' THEN
        RAISE EXCEPTION 'evidence is kept for a day at least, not for %', retain;
    END IF;
    IF NOT pg_try_advisory_xact_lock(1869505381, -1) THEN
        RETURN 0; -- a different process is at it
    END IF;
    wanted := ARRAY(SELECT parent || to_char(date_trunc('month', at) + months * interval '1 month',
            '"_"YYYY_MM') FROM unnest(ARRAY['commits', 'entries']) AS parent, generate_series(0, 1)
            AS months);
    wanted := ARRAY(SELECT w FROM unnest(wanted) AS w WHERE to_regclass(w) IS NULL);
    over := ARRAY(SELECT relname FROM pg_inherits JOIN pg_class ON oid = inhrelid
        WHERE inhparent IN ('entries'::regclass, 'commits'::regclass)
            AND relname ~ '^(entries|commits)_[0-9]{4}_[0-9]{2}$'
            AND make_timestamptz(split_part(relname, '_', 2)::integer, split_part(relname, '_',
                3)::integer, 1, 0, 0, 0, 'UTC') + interval '1 month' <= at - retain);
    IF cardinality(wanted) + cardinality(over) > 0 THEN
        LOCK TABLE commits, entries IN ACCESS EXCLUSIVE MODE; -- in the order of a commit
    END IF;
    FOREACH name IN ARRAY wanted LOOP
        month := make_timestamptz(split_part(name, '_', 2)::integer,
            split_part(name, '_', 3)::integer, 1, 0, 0, 0, 'UTC');
        BEGIN
            EXECUTE format('CREATE TABLE %I PARTITION OF %I FOR VALUES FROM (%L) TO (%L)', name,
                split_part(name, '_', 1), month, month + interval '1 month');
        EXCEPTION WHEN check_violation THEN
            NULL; -- *_other has rows of that month already: they all stay there
        END;
    END LOOP;
    FOREACH name IN ARRAY over LOOP
        IF name ~ '^entries' THEN
            EXECUTE format('INSERT INTO removals (chain_id, seq, hash)
                SELECT DISTINCT ON (chain_id) chain_id, seq, hash FROM %I
                WHERE kind = ''evidence'' ORDER BY chain_id, seq DESC ON CONFLICT DO NOTHING', name);
        END IF;
        EXECUTE format('DROP TABLE %I', name);
    END LOOP;
    WITH gone AS (DELETE FROM entries_other WHERE ctid = ANY (ARRAY(SELECT ctid FROM entries_other
            WHERE decided_at <= at - retain ORDER BY xid, chain_id, seq LIMIT 10000))
            RETURNING chain_id, seq, hash, kind)
        INSERT INTO removals (chain_id, seq, hash) SELECT DISTINCT ON (chain_id) chain_id, seq, hash
            FROM gone WHERE kind = 'evidence' ORDER BY chain_id, seq DESC ON CONFLICT DO NOTHING;
    DELETE FROM commits_other WHERE ctid = ANY (ARRAY(SELECT ctid FROM commits_other
        WHERE committed_at <= at - retain LIMIT 10000));
    RETURN cardinality(over);
END $$;
REVOKE ALL ON FUNCTION keep_partitions FROM PUBLIC;

-- ---- for people --------------------------------------------------------------------------------

CREATE VIEW operations AS
    SELECT 'op_' || operation_id AS operation_id, tenant_id, scope, principal, key, status, fence,
        attempt, duplicates, created_at, updated_at, sealed_at, lease_expires_at, window_expires_at,
        due_at, effect_id, outcome_code, outcome_bytes, source_type, source_id, source_version,
        reason, door, holder
    FROM records WHERE kind = 'operation';
COMMENT ON VIEW operations IS 'operations without their bodies';

CREATE VIEW unknown_operations AS
    SELECT *, clock_timestamp() - updated_at AS unknown_for FROM operations
    WHERE status = 'unknown';
COMMENT ON VIEW unknown_operations IS 'operations that need manual resolution';

CREATE VIEW evidence AS
    SELECT xid, chain_id, seq, decided_at, tenant_id, 'op_' || operation_id AS operation_id,
        entry::jsonb AS entry, sha256(prev_hash || convert_to(entry, 'UTF8')) = hash AS hash_holds
    FROM entries WHERE kind = 'evidence';
COMMENT ON VIEW evidence IS 'evidence as jsonb; hash_holds: the entry has its hash';

CREATE VIEW processes AS
    SELECT chain_id, host, pid, program, started_at, heartbeat_at, ended_at, incarnation, commits,
        seq, ended_at IS NULL AND heartbeat_at > clock_timestamp() - interval '30 s' AS alive
    FROM chains;
COMMENT ON VIEW processes IS 'processes that have written to this store, and which are alive';

CREATE VIEW counts AS
    SELECT kind, status, sum(live)::bigint AS records FROM tallies GROUP BY kind, status
    HAVING sum(live) <> 0;
COMMENT ON VIEW counts IS 'how many records there are, by kind and status';

SELECT keep_partitions(clock_timestamp(), interval '400 days');
