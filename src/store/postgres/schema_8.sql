-- Version 8: evidence past its retention is removed in bounded steps and in the order of time, and a
-- row of commits goes no earlier than its entries (docs/formats/postgres.md). `once migrate` runs
-- this in one transaction, with search_path set to the schema of the store.

-- Rows of months that have no partition are found by their time; before, all of them were read.
CREATE INDEX entries_other_age ON entries_other (decided_at, chain_id, seq);
CREATE INDEX commits_other_age ON commits_other (committed_at);

-- Months of evidence that are being removed, and how far each was read. What `removals` says of such a
-- month does not hold yet: it holds when the month is dropped, which removes its row here.
CREATE TABLE removing (
    month timestamptz PRIMARY KEY,
    xid xid8 NOT NULL DEFAULT '0',
    chain_id uuid NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000',
    seq bigint NOT NULL DEFAULT 0,
    kind entry_kind NOT NULL DEFAULT 'evidence'
);
COMMENT ON TABLE removing IS 'months of evidence that are being removed, and how far they were read';
ALTER TABLE removals ADD COLUMN month timestamptz; -- NULL: it was not removed with a month
CREATE UNIQUE INDEX removals_month ON removals (chain_id, month);

-- The start of the oldest month that has a partition which is over, or NULL.
CREATE FUNCTION oldest_month_over(edge timestamptz) RETURNS timestamptz LANGUAGE sql STABLE
    SET search_path FROM CURRENT SET timezone = 'UTC'
RETURN (SELECT min(month) FROM pg_inherits JOIN pg_class ON oid = inhrelid, LATERAL (SELECT
        make_timestamptz(split_part(relname, '_', 2)::integer, split_part(relname, '_', 3)::integer,
            1, 0, 0, 0, 'UTC') AS month WHERE relname ~ '^(entries|commits)_[0-9]{4}_[0-9]{2}$') AS m
    WHERE inhparent IN ('entries'::regclass, 'commits'::regclass)
        AND month + interval '1 month' <= edge);

-- Removes up to `most` of the oldest entries that are in no month's partition and before `edge`.
-- Times of a chain only grow, so what is left of a chain is the rest of it. Returns how many.
CREATE FUNCTION remove_others(edge timestamptz, most integer) RETURNS bigint LANGUAGE sql
    SET search_path FROM CURRENT
BEGIN ATOMIC
    WITH gone AS (DELETE FROM entries_other WHERE ctid = ANY (ARRAY(SELECT ctid FROM entries_other
            WHERE decided_at < edge ORDER BY decided_at, chain_id, seq LIMIT most))
            RETURNING chain_id, seq, hash, kind),
        noted AS (INSERT INTO removals (chain_id, seq, hash) SELECT DISTINCT ON (chain_id) chain_id,
            seq, hash FROM gone WHERE kind = 'evidence' ORDER BY chain_id, seq DESC
            ON CONFLICT DO NOTHING)
    SELECT count(*) FROM gone;
END;

-- Reads up to `most` further entries of a month that is over, for the last one of each chain. Returns
-- how many.
CREATE FUNCTION read_month_over(start timestamptz, most integer) RETURNS bigint LANGUAGE plpgsql
    SET search_path FROM CURRENT SET timezone = 'UTC' AS $$
DECLARE
    name text := to_char(start, '"entries_"YYYY_MM');
    done bigint;
BEGIN
    IF to_regclass(name) IS NULL THEN
        RETURN 0;
    END IF;
    INSERT INTO removing (month) VALUES (start) ON CONFLICT DO NOTHING;
    EXECUTE format('WITH part AS MATERIALIZED (SELECT e.xid, e.chain_id, e.seq, e.kind FROM removing r,
            LATERAL (SELECT * FROM %1$I AS e WHERE (e.xid, e.chain_id, e.seq, e.kind)
                > (r.xid, r.chain_id, r.seq, r.kind) ORDER BY xid, chain_id, seq, kind LIMIT $2) AS e
            WHERE r.month = $1),
        last AS (SELECT DISTINCT ON (chain_id) chain_id, seq, xid FROM part WHERE kind = ''evidence''
            ORDER BY chain_id, seq DESC),
        noted AS (INSERT INTO removals AS r (chain_id, seq, hash, month) SELECT chain_id, seq, hash,
            $1 FROM last JOIN %1$I AS e USING (xid, chain_id, seq) WHERE e.kind = ''evidence''
            ON CONFLICT (chain_id, month) DO UPDATE SET seq = excluded.seq, hash = excluded.hash
            WHERE r.seq < excluded.seq),
        moved AS (UPDATE removing SET (xid, chain_id, seq, kind) = (SELECT xid, chain_id, seq, kind
            FROM part ORDER BY xid DESC, chain_id DESC, seq DESC, kind DESC LIMIT 1)
            WHERE month = $1 AND EXISTS (SELECT FROM part))
        SELECT count(*) FROM part', name) INTO done USING start, most;
    RETURN done;
END $$;

-- Partitions of evidence, one a month: this month's and the next one's are made, and evidence that is
-- older than `retain` is removed, the oldest first: a month whole when all of it is, and what is in no
-- month's partition row by row. Each call is one step, of at most `most` rows; returns whether there
-- may be more to do. A row of commits says where entries are, so it goes with them or after them. It
-- runs with the owner's rights, because a process of Once may not make or drop tables.
DROP FUNCTION keep_partitions(timestamptz, interval);
CREATE FUNCTION keep_partitions(at timestamptz, retain interval, most integer DEFAULT 10000)
    RETURNS integer LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT
    SET lock_timeout = '1s' SET timezone = 'UTC' AS $$
DECLARE
    wanted text[];
    name text;
    month timestamptz;
    edge timestamptz := at - retain;
    over timestamptz;
    sure timestamptz; -- every entry of before was removed
    done bigint;
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
    IF cardinality(wanted) > 0 THEN
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

    over := oldest_month_over(edge);
    IF remove_others(coalesce(over + interval '1 month', edge), most) >= most THEN
        RETURN 1;
    END IF;
    -- Entries are not newer than their row of commits. Those of a month go whole.
    sure := coalesce(over, CASE WHEN to_regclass(to_char(edge, '"entries_"YYYY_MM')) IS NULL
        THEN edge ELSE date_trunc('month', edge) END);
    DELETE FROM commits_other WHERE ctid = ANY (ARRAY(SELECT ctid FROM commits_other
        WHERE committed_at < sure ORDER BY committed_at LIMIT most));
    GET DIAGNOSTICS done = ROW_COUNT;
    IF done >= most THEN
        RETURN 1;
    ELSIF over IS NULL THEN
        RETURN 0;
    ELSIF read_month_over(over, most) >= most THEN
        RETURN 1;
    END IF;

    LOCK TABLE commits, entries IN ACCESS EXCLUSIVE MODE;
    WHILE read_month_over(over, most) > 0 LOOP -- what came since: nearly always nothing
    END LOOP;
    EXECUTE format('DROP TABLE IF EXISTS %I, %I', to_char(over, '"commits_"YYYY_MM'),
        to_char(over, '"entries_"YYYY_MM'));
    DELETE FROM removing r WHERE r.month = over;
    RETURN 1;
END $$;

-- ---- the chain of the functions ----------------------------------------------------------------

-- As in version 3, but the time of a row is not before that of the row before it in the chain. An entry
-- that comes late, from a long transaction, could be in a month that is removed while earlier ones of
-- its chain stay. The row of the chain remembers the time.
UPDATE chains SET committed_at = greatest(committed_at, (SELECT max(committed_at) FROM commits
    WHERE commits.chain_id = chains.chain_id))
    WHERE chain_id = '00000000-0000-0000-0000-000000000001';

CREATE OR REPLACE FUNCTION chain_decisions(most integer) RETURNS bigint LANGUAGE plpgsql
    SECURITY DEFINER SET search_path FROM CURRENT SET extra_float_digits = 1 AS $$
DECLARE
    chain chains;
    numbers bigint[];
    one unchained;
    line text;
    line_hash bytea;
    seq_first bigint;
BEGIN
    IF NOT EXISTS (SELECT FROM unchained) THEN
        RETURN 0;
    END IF;
    SELECT * INTO chain FROM chains WHERE chain_id = '00000000-0000-0000-0000-000000000001'
        FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN 0; -- a different process is at it
    END IF;
    seq_first := chain.seq + 1;
    numbers := ARRAY(SELECT number FROM unchained ORDER BY number LIMIT most);
    FOR one IN SELECT * FROM unchained WHERE number = ANY (numbers) ORDER BY number LOOP
        chain.seq := chain.seq + 1;
        line := canonical(one.entry || jsonb_build_object('chain_id', chain.chain_id, 'entry_id',
            'ent_' || left(chain.chain_id::text, 8) || '_' || chain.seq, 'seq',
            json_u64(chain.seq)));
        line_hash := sha256(chain.hash || convert_to(line, 'UTF8'));
        chain.committed_at := greatest(chain.committed_at, one.decided_at);
        INSERT INTO entries (chain_id, seq, kind, decided_at, tenant_id, operation_id, prev_hash,
            hash, entry) VALUES (chain.chain_id, chain.seq, 'evidence', chain.committed_at,
            one.tenant_id, nullif(one.operation_id, '00000000-0000-0000-0000-000000000000'),
            chain.hash, line_hash, line);
        chain.hash := line_hash;
    END LOOP;
    INSERT INTO tallies AS t SELECT '00000000-0000-0000-0000-000000000000', kind, status, sum(n)
        FROM (SELECT kind, was AS status, -1 AS n FROM unchained
                WHERE number = ANY (numbers) AND was IS NOT NULL
            UNION ALL SELECT kind, becomes, 1 FROM unchained
                WHERE number = ANY (numbers) AND becomes IS NOT NULL
            UNION ALL SELECT 'source', 'executed', 1 FROM unchained
                WHERE number = ANY (numbers) AND source_is_new) AS moved
        GROUP BY kind, status HAVING sum(n) <> 0 ORDER BY kind, status
        ON CONFLICT (chain_id, kind, status) DO UPDATE SET live = t.live + excluded.live;
    DELETE FROM unchained WHERE number = ANY (numbers);
    UPDATE chains SET seq = chain.seq, hash = chain.hash, commits = commits + 1,
        committed_at = chain.committed_at WHERE chain_id = chain.chain_id;
    INSERT INTO commits (chain_id, seq_first, seq_last, committed_at)
        VALUES (chain.chain_id, seq_first, chain.seq, greatest(chain.committed_at, store_now()));
    RETURN chain.seq - seq_first + 1;
END $$;

-- ---- rights ------------------------------------------------------------------------------------

REVOKE ALL ON FUNCTION oldest_month_over, remove_others, read_month_over, keep_partitions FROM PUBLIC;

-- Roles that the versions before were granted to.
DO $$
DECLARE
    grantee text;
BEGIN
    FOR grantee IN SELECT DISTINCT a.grantee::regrole::text FROM pg_proc p, aclexplode(p.proacl) a
            WHERE p.oid = 'chain_decisions'::regproc AND a.grantee <> p.proowner LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION keep_partitions TO %s', grantee);
    END LOOP;
    FOR grantee IN SELECT DISTINCT a.grantee::regrole::text FROM pg_class c, aclexplode(c.relacl) a
            WHERE c.oid = 'removals'::regclass AND a.grantee <> c.relowner LOOP
        EXECUTE format('GRANT SELECT ON removing TO %s', grantee);
    END LOOP;
END $$;
