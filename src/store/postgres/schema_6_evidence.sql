-- Version 6, second part: entries that leave out what follows from the rest
-- (docs/formats/evidence.md). `once migrate` runs this after schema_6.sql, in the same transaction.

-- The full document of an entry of either version (src/evidence/entry_form.c).
CREATE FUNCTION full_entry(chain uuid, number bigint, stored text) RETURNS jsonb
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
    e jsonb := stored::jsonb;
    d jsonb := e -> 'decided';
    said text := d ->> 'decision';
    id text := e ->> 'operation_id';
    told text := CASE WHEN said IN ('in_progress', 'held_unknown') THEN 'duplicate_replayed'
        WHEN said = 'stale_version' THEN 'conflict_rejected'
        WHEN said = 'enqueued' THEN 'first_seen' ELSE said END;
    state text := coalesce(e ->> 'lifecycle_state',
        CASE WHEN said IN ('first_seen', 'claimed', 'in_progress', 'renewed') THEN 'in_progress'
            WHEN said = 'duplicate_replayed' THEN 'executed'
            WHEN said IN ('unknown', 'held_unknown') THEN 'unknown'
            WHEN said = 'released' THEN 'released' WHEN said = 'not_found' THEN 'absent'
            ELSE d ->> 'status' END);
BEGIN
    IF e -> 'v' IS DISTINCT FROM '2' THEN
        RETURN e;
    END IF;
    e := jsonb_build_object('chain_id', chain, 'seq', number,
        'entry_id', 'ent_' || left(chain::text, 8) || '_' || number) || e;
    IF d IS NULL THEN
        RETURN e;
    END IF;
    RETURN jsonb_strip_nulls(jsonb_build_object('lifecycle_state', state,
        'occurred_at', to_char(to_timestamp((d ->> 'now_ms')::numeric / 1000) AT TIME ZONE 'UTC',
            'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
        'type', CASE WHEN said IN ('first_seen', 'claimed') THEN 'execution.started'
            WHEN said = 'sealed' AND state IN ('executed', 'failed', 'rejected')
                THEN 'execution.' || state ELSE 'observation.emitted' END,
        'command_id', CASE WHEN starts_with(id, 'cmd_') THEN id END,
        'effect_id', CASE WHEN starts_with(id, 'eff_') THEN id END)) || e
        || jsonb_build_object('decided', jsonb_strip_nulls(jsonb_build_object('attempt', 1,
                'version', 0, 'fence', coalesce(d -> 'fence_next', '0'),
                'fingerprint_version', CASE WHEN d ? 'fingerprint' THEN 1 END,
                'on_unknown', CASE WHEN d ? 'lease_ms' AND d ->> 'request' <> 'renew'
                    THEN 'hold' END)) || d,
            'outcome', jsonb_build_object('status', state) || coalesce(e -> 'outcome', '{}'))
        || CASE WHEN d ->> 'request' IN ('begin', 'enqueue') THEN jsonb_build_object('dedupe',
            jsonb_strip_nulls(jsonb_build_object('decision', told, 'executed', said = 'first_seen',
                'detail', CASE WHEN told <> said THEN said END, 'original_operation_id', id))
            || coalesce(e -> 'dedupe', '{}')) ELSE '{}' END;
END $$;

CREATE OR REPLACE VIEW evidence AS
    SELECT xid, chain_id, seq, decided_at, tenant_id, 'op_' || operation_id AS operation_id,
        full_entry(chain_id, seq, entry) AS entry,
        sha256(prev_hash || CASE WHEN right(entry, 7) = ',"v":2}'
            THEN uuid_send(chain_id) || int8send(seq) || sha256(convert_to(entry, 'UTF8'))
            ELSE convert_to(entry, 'UTF8') END) = hash AS hash_holds
    FROM entries WHERE kind = 'evidence';
COMMENT ON VIEW evidence IS 'evidence in full, as jsonb; hash_holds: the entry has its hash';
