-- Version 4: effects of once_effect keep their `order` (docs/postgres-functions.md). `once migrate`
-- runs this in one transaction, with search_path set to the schema of the store.
--
-- An effect joins its lane when a process seals it (src/core/lane.h), so those of one lane must be
-- sealed in the order in which they were written. The value of `order` is a template, which only
-- processes can fill in: of a type that has one, the effects of one tenant go to one process at a
-- time.

-- ---- the envelope ------------------------------------------------------------------------------

-- As in version 3, but every form of time that RFC 3339 has (base/text.h).
CREATE OR REPLACE FUNCTION check_envelope(envelope jsonb, tenant text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    stranger text := (SELECT name FROM jsonb_object_keys(CASE WHEN jsonb_typeof(envelope) = 'object'
            THEN envelope ELSE '{}' END) AS name
        WHERE name NOT IN ('effect_type', 'effect_id', 'command_id', 'idempotency_key', 'target',
            'payload', 'ordinal', 'trace', 'policy_refs', 'not_before', 'extensions', 'tenant_id',
            'attempt', 'created_at') AND NOT starts_with(name, 'x_') LIMIT 1);
BEGIN
    PERFORM refuse('an effect is not a JSON object')
        WHERE envelope IS NULL OR jsonb_typeof(envelope) <> 'object';
    PERFORM refuse('member ''wait'' must not be given in a transaction') WHERE stranger = 'wait';
    PERFORM refuse(format('there is no member ''%s''', left(stranger, 64)))
        WHERE stranger IS NOT NULL;
    PERFORM refuse(format('member ''%s'' is missing', m)) FROM unnest(ARRAY['effect_type',
        'payload']) AS m WHERE NOT envelope ? m;
    PERFORM refuse('one of the members ''command_id'' and ''idempotency_key'' is needed')
        WHERE NOT envelope ?| ARRAY['command_id', 'idempotency_key'];
    PERFORM refuse('member ''tenant_id'' is not the caller''s tenant')
        WHERE envelope ? 'tenant_id' AND envelope -> 'tenant_id' IS DISTINCT FROM to_jsonb(tenant);
    PERFORM refuse('member ''policy_refs'' must be an array')
        WHERE envelope ? 'policy_refs' AND jsonb_typeof(envelope -> 'policy_refs') <> 'array';
    PERFORM refuse('member ''ordinal'' must be a whole number from 0 on')
        WHERE envelope ? 'ordinal' AND (jsonb_typeof(envelope -> 'ordinal') <> 'number'
            OR (envelope ->> 'ordinal')::numeric <> trunc((envelope ->> 'ordinal')::numeric)
            OR (envelope ->> 'ordinal')::numeric NOT BETWEEN 0 AND 9007199254740992);
    PERFORM refuse('member ''not_before'' must be a time such as "2026-11-16T09:00:00Z"')
        WHERE envelope ? 'not_before' AND (jsonb_typeof(envelope -> 'not_before') <> 'string'
            OR envelope ->> 'not_before'
                !~ ('^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?'
                    '([Zz]|[+-][0-9]{2}:[0-9]{2})$'));
    PERFORM refuse('trace must be an object of at most trace_bytes_max (2048)')
        WHERE envelope ? 'trace' AND (jsonb_typeof(envelope -> 'trace') <> 'object'
            OR octet_length(canonical(envelope -> 'trace')) > 2048);
    PERFORM refuse('member ''payload'' is longer than effect_payload_bytes_max (1048576)')
        WHERE octet_length((envelope -> 'payload')::text) > 1048576;
END $$;

-- ---- for the processes of Once -----------------------------------------------------------------

CREATE INDEX intake_by_number ON intake (number);
CREATE INDEX intake_by_type ON intake (effect_type, tenant_id, number);

DROP FUNCTION take_intake(text[], integer);

-- As in version 3. Of the types in `ordered` none is taken while an older one of the same tenant is
-- with a different process, or was with one that has not said how it ended. `number` is drawn when
-- an effect is written: it tells the order inside of one transaction, and between transactions of
-- which one began to write after the other had committed.
CREATE FUNCTION take_intake(types text[], ordered text[], most integer)
    RETURNS TABLE (tenant_id text, operation_id uuid, envelope text) LANGUAGE plpgsql
    SECURITY DEFINER SET search_path FROM CURRENT AS $$
#variable_conflict use_column
BEGIN
    -- What one process takes must be visible to the next one: the query below sees what was
    -- committed before it began.
    IF cardinality(ordered) > 0 AND NOT pg_try_advisory_xact_lock(1869505381, -3) THEN
        types := ARRAY(SELECT unnest(types) EXCEPT SELECT unnest(ordered));
    END IF;
    RETURN QUERY WITH due AS (SELECT i.key_hash FROM intake i
            WHERE i.taken_until < clock_timestamp() AND i.effect_type = ANY (types)
            ORDER BY i.number LIMIT most FOR UPDATE SKIP LOCKED),
        taken AS (UPDATE intake i SET taken_until = clock_timestamp() + interval '3 s' FROM due
            WHERE i.key_hash = due.key_hash AND (i.effect_type <> ALL (ordered) OR NOT EXISTS
                (SELECT FROM intake o WHERE o.effect_type = i.effect_type
                    AND o.tenant_id = i.tenant_id AND o.number < i.number
                    AND o.key_hash NOT IN (SELECT key_hash FROM due)))
            RETURNING i.key_hash, i.tenant_id, i.operation_id, i.number)
        SELECT t.tenant_id, t.operation_id, e.envelope FROM taken t JOIN intake_envelopes e
            ON e.key_hash = t.key_hash ORDER BY t.number;
END $$;

-- ---- rights ------------------------------------------------------------------------------------

REVOKE ALL ON FUNCTION take_intake FROM PUBLIC;

DO $$
DECLARE
    grantee text;
BEGIN
    FOR grantee IN SELECT DISTINCT a.grantee::regrole::text FROM pg_proc p, aclexplode(p.proacl) a
            WHERE p.oid = 'chain_decisions'::regproc AND a.grantee <> p.proowner LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION take_intake TO %s', grantee);
    END LOOP;
END $$;
