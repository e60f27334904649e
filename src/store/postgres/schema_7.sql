-- Version 7: evidence says in which state a record is in the words of its kind, as the API does
-- (src/evidence/entry_form.c, word_of). What is stored does not change.

CREATE FUNCTION entry_in_words(e jsonb) RETURNS jsonb
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
    d jsonb := e -> 'decided';
    state text := e #>> '{outcome,status}';
    wakes boolean := d ->> 'request' = 'wake' AND d ->> 'decision' = 'done';
    word text := CASE left(e ->> 'operation_id', 4)
        WHEN 'cmd_' THEN CASE state WHEN 'in_progress' THEN 'started' WHEN 'unknown' THEN 'blocked'
            WHEN 'dead' THEN 'blocked'
            WHEN 'pending' THEN CASE WHEN wakes THEN 'confirmed' ELSE 'received' END
            WHEN 'waiting' THEN CASE WHEN wakes AND NOT d ? 'delay_ms' THEN 'blocked'
                WHEN d -> 'attempt' = '0' THEN 'awaiting_confirmation'
                ELSE 'awaiting_effects' END END
        WHEN 'eff_' THEN CASE state WHEN 'waiting' THEN 'pending' WHEN 'in_progress' THEN 'dispatched'
            WHEN 'unknown' THEN 'dispatched' WHEN 'executed' THEN 'acknowledged'
            WHEN 'compensating' THEN 'acknowledged' WHEN 'rejected' THEN 'failed'
            WHEN 'dead' THEN 'dead_letter' END
        WHEN 'dlv_' THEN CASE state WHEN 'in_progress' THEN 'delivering'
            WHEN 'rejected' THEN 'failed' WHEN 'dead' THEN 'dead_letter' END END;
BEGIN
    IF e -> 'v' IS DISTINCT FROM '2' OR d IS NULL OR word IS NULL THEN
        RETURN e;
    END IF;
    RETURN jsonb_set(e, '{lifecycle_state}', to_jsonb(word));
END $$;

CREATE OR REPLACE VIEW evidence AS
    SELECT xid, chain_id, seq, decided_at, tenant_id, 'op_' || operation_id AS operation_id,
        entry_in_words(full_entry(chain_id, seq, entry)) AS entry,
        sha256(prev_hash || CASE WHEN right(entry, 7) = ',"v":2}'
            THEN uuid_send(chain_id) || int8send(seq) || sha256(convert_to(entry, 'UTF8'))
            ELSE convert_to(entry, 'UTF8') END) = hash AS hash_holds
    FROM entries WHERE kind = 'evidence';
