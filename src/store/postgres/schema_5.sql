-- Version 5: less work for each commit (docs/formats/postgres.md). `once migrate` runs this in one
-- transaction, with search_path set to the schema of the store.

-- PostgreSQL reads the text of each check anew for every statement that writes, which took longer
-- than the checks themselves. Once checks each record before it writes it and each row that it
-- reads (src/core/record.h), by more rules than these.
ALTER TABLE records
    DROP CONSTRAINT IF EXISTS records_key_hash_check,
    DROP CONSTRAINT IF EXISTS records_tenant_id_check,
    DROP CONSTRAINT IF EXISTS records_key_check,
    DROP CONSTRAINT IF EXISTS records_version_check,
    DROP CONSTRAINT IF EXISTS records_fence_check,
    DROP CONSTRAINT IF EXISTS records_attempt_check,
    DROP CONSTRAINT IF EXISTS records_duplicates_check,
    DROP CONSTRAINT IF EXISTS records_fingerprint_check;
ALTER TABLE entries
    DROP CONSTRAINT IF EXISTS entries_seq_check,
    DROP CONSTRAINT IF EXISTS entries_prev_hash_check,
    DROP CONSTRAINT IF EXISTS entries_hash_check;

-- What is due is looked for by kind and status: of those that nobody asks for, there may be many.
DROP INDEX records_due;
CREATE INDEX records_due ON records (kind, status, due_at) WHERE due_at IS NOT NULL;

-- As in version 1, but with the sequence named in full: every prepare draws fences, and a
-- search_path of its own was set and taken back at each call.
DO $do$
BEGIN
    EXECUTE format($make$
CREATE OR REPLACE FUNCTION draw_fences(count bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    first bigint;
    place oid := %1$L::regclass;
BEGIN
    IF count = 0 THEN
        SELECT last_value + is_called::integer INTO STRICT first FROM %1$s;
        RETURN first;
    END IF;
    PERFORM pg_advisory_lock(1869505381, place::bigint::bit(32)::integer); -- "once"
    SELECT last_value + is_called::integer INTO STRICT first FROM %1$s;
    PERFORM setval(place, first + count - 1);
    PERFORM pg_advisory_unlock(1869505381, place::bigint::bit(32)::integer);
    RETURN first;
END $$ $make$, format('%I.fences', current_schema()));
END $do$;
