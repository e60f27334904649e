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

-- Every prepare draws fences, and a search_path of its own is set and taken back at each call. Those
-- who may call these two have set it: sessions of Once, and the functions for applications.
ALTER FUNCTION draw_fences(bigint) RESET search_path;
ALTER FUNCTION raise_fences(bigint) RESET search_path;
