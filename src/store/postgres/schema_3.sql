-- Version 3: once_effect, which writes an effect inside the application's own transaction
-- (docs/postgres-functions.md). `once migrate` runs this in one transaction, with search_path set to
-- the schema of the store.
--
-- The effect's record and its evidence are made by the function, in the status `waiting`. Its
-- payload cannot be encrypted here: no application has the key of Once's bodies. It lies in
-- `intake_envelopes` until a process of Once seals it, which is also when the record becomes pending.
-- Only the owner of the schema can read that table; processes reach it through take_intake.

-- ---- tables ------------------------------------------------------------------------------------

-- What the functions accept, as the configuration of the process that registered last has it.
CREATE TABLE effect_types (
    effect_type text PRIMARY KEY,
    tenants text[], -- that may use it; NULL: all
    window_ms bigint NOT NULL CHECK (window_ms > 0),
    registered_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON TABLE effect_types IS 'types of effects that once_effect accepts';

-- Effects of the function that no process has sealed yet; narrow, because taking one updates it.
CREATE TABLE intake (
    number bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    key_hash bytea PRIMARY KEY,
    tenant_id text NOT NULL,
    effect_type text NOT NULL,
    operation_id uuid NOT NULL,
    written_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    taken_until timestamptz NOT NULL DEFAULT '-infinity' -- a process is at it until then
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
COMMENT ON TABLE intake IS 'effects of once_effect whose payload is not encrypted yet';

-- The envelopes themselves, in clear. Vacuumed eagerly: what was deleted should not stay in the file.
CREATE TABLE intake_envelopes (
    key_hash bytea PRIMARY KEY,
    envelope text NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 50,
    toast.autovacuum_vacuum_scale_factor = 0, toast.autovacuum_vacuum_threshold = 50);
COMMENT ON TABLE intake_envelopes IS 'payloads in clear, until a process of Once encrypts them';

-- Until now all decisions of the functions were about operations.
ALTER TABLE unchained ADD COLUMN kind record_kind NOT NULL DEFAULT 'operation';

-- ---- the envelope ------------------------------------------------------------------------------

-- A text member, or NULL; refused when it is something else.
CREATE FUNCTION envelope_text(envelope jsonb, member text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    PERFORM refuse(format('member ''%s'' must be a non-empty string', member))
        WHERE envelope ? member
            AND (jsonb_typeof(envelope -> member) <> 'string' OR envelope ->> member = '');
    PERFORM check_name(member, envelope ->> member, true);
    RETURN envelope ->> member;
END $$;

-- Refuse what POST /v1/effects would refuse without knowing the type's templates (src/envelope).
CREATE FUNCTION check_envelope(envelope jsonb, tenant text) RETURNS void LANGUAGE plpgsql AS $$
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
    PERFORM refuse('member ''not_before'' must be a time such as "2026-11-16T09:00:00.000Z"')
        WHERE envelope ? 'not_before' AND (jsonb_typeof(envelope -> 'not_before') <> 'string'
            OR envelope ->> 'not_before'
                !~ '^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?Z$');
    PERFORM refuse('trace must be an object of at most trace_bytes_max (2048)')
        WHERE envelope ? 'trace' AND (jsonb_typeof(envelope -> 'trace') <> 'object'
            OR octet_length(canonical(envelope -> 'trace')) > 2048);
    PERFORM refuse('member ''payload'' is longer than effect_payload_bytes_max (1048576)')
        WHERE octet_length((envelope -> 'payload')::text) > 1048576;
END $$;

-- What is remembered of an effect beside its payload, as src/envelope/effect.h has it: the two names
-- first, because evidence reads them there. Sealing replaces it.
CREATE FUNCTION effect_detail(envelope jsonb) RETURNS bytea LANGUAGE plpgsql AS $$
DECLARE
    detail text := '{' || concat_ws(',',
        '"effect_id":' || to_json(envelope ->> 'effect_id')::text,
        '"command_id":' || to_json(envelope ->> 'command_id')::text,
        '"target":' || (envelope -> 'target')::text,
        '"ordinal":' || nullif(trunc((envelope ->> 'ordinal')::numeric), 0)::text,
        '"policy_refs":' || (envelope -> 'policy_refs')::text) || '}';
BEGIN
    PERFORM refuse('target and policy_refs are longer than detail_bytes_max (4096)')
        WHERE octet_length(detail) > 4096;
    RETURN convert_to(detail, 'UTF8');
END $$;

-- The public name of an effect: the caller's, else its id.
CREATE FUNCTION effect_name(r records) RETURNS text LANGUAGE sql STABLE
RETURN coalesce(convert_from(r.detail, 'UTF8')::jsonb ->> 'effect_id', 'eff_' || r.operation_id);

-- CCO-4's words (src/core/kind.c).
CREATE FUNCTION effect_word(status record_status) RETURNS text LANGUAGE sql IMMUTABLE
RETURN CASE WHEN status IN ('pending', 'waiting') THEN 'pending'
    WHEN status IN ('in_progress', 'unknown') THEN 'dispatched'
    WHEN status IN ('executed', 'compensating') THEN 'acknowledged'
    WHEN status IN ('failed', 'rejected') THEN 'failed'
    WHEN status = 'dead' THEN 'dead_letter' ELSE 'compensated' END;

-- ---- evidence and answers ----------------------------------------------------------------------

-- As note_decision, for an effect: the entry that src/evidence/entry.c makes of an enqueue.
CREATE FUNCTION note_effect(d decided, old records, next records, asked jsonb) RETURNS void
    LANGUAGE plpgsql AS $$
DECLARE
    id text := 'eff_' || next.operation_id;
    told text := CASE d.decision WHEN 'enqueued' THEN 'first_seen'
        WHEN 'in_progress' THEN 'duplicate_replayed' WHEN 'held_unknown' THEN 'duplicate_replayed'
        ELSE d.decision END;
    reason text := CASE d.decision WHEN 'conflict_rejected' THEN 'idempotency_conflict'
        WHEN 'held_unknown' THEN 'outcome_unknown' ELSE next.reason END;
    type text := CASE d.decision WHEN 'enqueued' THEN 'effect.created'
        WHEN 'conflict_rejected' THEN 'execution.rejected' ELSE 'observation.emitted' END;
BEGIN
    INSERT INTO unchained (decided_at, tenant_id, operation_id, kind, was, becomes, source_is_new,
        entry)
    VALUES (d.at, next.tenant_id, next.operation_id, 'effect',
        CASE WHEN old.status IS DISTINCT FROM next.status THEN old.status END,
        CASE WHEN old.status IS DISTINCT FROM next.status THEN next.status END, false,
        jsonb_strip_nulls(jsonb_build_object('actor', session_user,
            'command_id', convert_from(next.detail, 'UTF8')::jsonb -> 'command_id',
            'conflict', CASE WHEN d.decision = 'conflict_rejected' THEN jsonb_build_object(
                'received_fingerprint', asked -> 'decided' -> 'fingerprint',
                'stored_fingerprint', encode(old.fingerprint, 'hex')) END,
            'decided', jsonb_build_object('attempt', next.attempt, 'decision', d.decision,
                'door', 'effects', 'fence', json_u64(next.fence), 'fence_next',
                json_u64(d.fence_next), 'now_ms', millis(d.at), 'request', d.request,
                'rule', d.rule, 'status', 'waiting', 'version', coalesce(old.version, 0))
                || (asked -> 'decided'),
            'dedupe', jsonb_build_object('decision', told,
                'detail', CASE WHEN told <> d.decision THEN d.decision END, 'executed', false,
                'original_operation_id', id,
                'outcome_ref', CASE WHEN d.decision = 'duplicate_replayed'
                    AND next.outcome_bytes > 0
                    THEN 'sha256:' || encode(next.outcome_digest, 'hex') END),
            'effect_id', effect_name(next), 'idempotency_key', next.key,
            'lifecycle_state', next.status, 'occurred_at', time_text(d.at), 'operation_id', id,
            'outcome', jsonb_build_object('reason', reason, 'status', next.status),
            'provider_ref', next.effect_id, 'scope', next.scope, 'tenant_id', next.tenant_id,
            'type', type))
            || CASE WHEN jsonb_typeof(asked -> 'trace') = 'object'
                AND asked -> 'trace' <> '{}'
                THEN jsonb_build_object('trace', asked -> 'trace') ELSE '{}' END);
END $$;

-- The answer to an effect that is not settled.
CREATE FUNCTION effect_accepted(decision text, r records) RETURNS jsonb LANGUAGE sql STABLE
RETURN jsonb_strip_nulls(jsonb_build_object('decision', decision, 'effect_id', effect_name(r),
    'idempotency_key', r.key, 'status', effect_word(r.status),
    'uncertain', CASE WHEN r.status = 'unknown' THEN true END,
    'status_url', '/v1/effects/eff_' || r.operation_id));

-- The effect document (src/effect/document.c), without the payload and without its compensation.
CREATE FUNCTION effect_document(decision text, r records) RETURNS jsonb LANGUAGE plpgsql STABLE AS $$
DECLARE
    detail jsonb := coalesce(convert_from(r.detail, 'UTF8')::jsonb, '{}');
BEGIN
    RETURN jsonb_strip_nulls(jsonb_build_object('decision', decision, 'effect_id', effect_name(r),
        'once_effect_id', CASE WHEN detail ? 'effect_id' THEN 'eff_' || r.operation_id END,
        'command_id', detail -> 'command_id', 'tenant', r.tenant_id, 'idempotency_key', r.key,
        'effect_type', r.scope, 'ordinal', detail -> 'ordinal',
        'status', effect_word(r.status), 'uncertain', r.status = 'unknown', 'attempt', r.attempt,
        'created_at', time_text(r.created_at), 'updated_at', time_text(r.updated_at),
        'duplicates', r.duplicates, 'reason', r.reason,
        'acknowledgement', CASE WHEN detail ? 'ack' THEN jsonb_build_object('effect_id',
            effect_name(r), 'status', detail -> 'ack', 'provider_ref', detail -> 'provider_ref',
            'timestamp', time_text(to_timestamp((detail ->> 'ack_ms')::numeric / 1000)),
            'retryable', coalesce((detail ->> 'retryable')::boolean, false)) END,
        'compensates', detail -> 'compensates', 'trace', r.trace::jsonb))
        || CASE WHEN detail ? 'target' THEN jsonb_build_object('target', detail -> 'target')
            ELSE '{}' END
        || CASE WHEN detail ? 'policy_refs'
            THEN jsonb_build_object('policy_refs', detail -> 'policy_refs') ELSE '{}' END
        || coalesce(detail -> 'extensions', '{}');
END $$;

-- ---- once_effect -------------------------------------------------------------------------------

CREATE FUNCTION once_effect(envelope jsonb) RETURNS jsonb LANGUAGE plpgsql SECURITY DEFINER
    SET search_path FROM CURRENT SET extra_float_digits = 1 AS $$
DECLARE
    tenant text := session_tenant();
    type effect_types;
    given_key text;
    command text;
    form text; -- the canonical payload and target, which are what is asked
    keyed bytea;
    hash bytea;
    old records;
    next records;
    d decided;
    asked jsonb;
BEGIN
    PERFORM check_envelope(envelope, tenant);
    PERFORM envelope_text(envelope, 'effect_id');
    command := envelope_text(envelope, 'command_id');
    given_key := envelope_text(envelope, 'idempotency_key');
    SELECT * INTO type FROM effect_types t
        WHERE t.effect_type = envelope_text(envelope, 'effect_type')
            AND (t.tenants IS NULL OR tenant = ANY (t.tenants));
    IF type.effect_type IS NULL THEN
        RAISE EXCEPTION 'there is no effect type ''%''', left(envelope ->> 'effect_type', 64)
            USING ERRCODE = '22023', HINT = 'types are those of the configuration of the last '
                'process of Once that was started or reloaded with effects over this store';
    END IF;
    -- As `once key effect` derives it.
    IF given_key IS NULL THEN
        given_key := encode(sha256(convert_to(canonical(jsonb_strip_nulls(jsonb_build_object(
            'command_id', command, 'effect_type', type.effect_type, 'tenant_id', tenant,
            'ordinal', coalesce(envelope -> 'ordinal', '0')))
            || CASE WHEN envelope ? 'target'
                THEN jsonb_build_object('target', envelope -> 'target') ELSE '{}' END),
            'UTF8')), 'hex');
    END IF;
    form := canonical(jsonb_build_object('payload', envelope -> 'payload')
        || CASE WHEN envelope ? 'target'
            THEN jsonb_build_object('target', envelope -> 'target') ELSE '{}' END);
    keyed := (SELECT sha256(hmac_outer || sha256(hmac_inner || sha256(convert_to(form, 'UTF8'))))
        FROM store);
    hash := key_hash('effect', tenant, type.effect_type, '', given_key);

    PERFORM lock_operation(hash);
    SELECT * INTO old FROM records r WHERE r.key_hash = hash AND r.tenant_id = tenant;
    d.request := 'enqueue';
    d.source_is_new := false;
    d.repeated := false;
    d.at := greatest(store_now(), old.updated_at);

    -- E1 to E5 of src/core/decide.h.
    SELECT decision, rule INTO d.decision, d.rule FROM (VALUES
        (old.key_hash IS NULL OR old.window_expires_at <= d.at, 'enqueued', 'E1'),
        (old.fingerprint <> keyed OR old.fingerprint_version <> 1, 'conflict_rejected', 'E2'),
        (old.sealed_at IS NOT NULL, 'duplicate_replayed', 'E3'),
        (old.status = 'unknown' OR (old.status = 'in_progress' AND old.lease_expires_at <= d.at),
            'held_unknown', 'E5'),
        (true, 'in_progress', 'E4')) AS rules (applies, decision, rule)
        WHERE applies LIMIT 1;
    d.fence_next := draw_fences(CASE WHEN d.decision = 'enqueued' THEN 1 ELSE 0 END);

    next.detail := effect_detail(envelope);
    asked := jsonb_build_object('trace', envelope -> 'trace', 'decided', jsonb_strip_nulls(
        jsonb_build_object('detail_digest', encode(sha256(next.detail), 'hex'),
            'fingerprint', encode(keyed, 'hex'), 'fingerprint_version', 1,
            'parent', substring(command FROM '^(?:op|cmd|eff|dlv)_([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})$'),
            'window_ms', type.window_ms)));

    IF d.decision = 'enqueued' THEN
        next.key_hash := hash;
        next.tenant_id := tenant;
        next.scope := type.effect_type;
        next.principal := '';
        next.key := given_key;
        next.kind := 'effect';
        next.status := 'waiting';
        next.version := coalesce(old.version, 0) + 1;
        next.operation_id := make_operation_id(d.at, d.fence_next, hash);
        next.fence := 0;
        next.attempt := 0;
        next.duplicates := 0;
        next.fingerprint := keyed;
        next.fingerprint_version := 1;
        next.created_at := d.at;
        next.updated_at := d.at;
        next.window_ms := type.window_ms;
        next.outcome_code := 0;
        next.outcome_bytes := 0;
        next.outcome_retained := false;
        next.request_bytes := 0;
        next.request_retained := false;
        next.trace := CASE WHEN envelope -> 'trace' <> '{}' THEN canonical(envelope -> 'trace') END;
        next.door := 'effects';
        next.reconciles := false;
        next.parent := (asked -> 'decided' ->> 'parent')::uuid;
        PERFORM put_effect(old, next);
        INSERT INTO intake (key_hash, tenant_id, effect_type, operation_id)
            VALUES (hash, tenant, type.effect_type, next.operation_id);
        INSERT INTO intake_envelopes (key_hash, envelope) VALUES (hash,
            (envelope || jsonb_build_object('idempotency_key', given_key))::text);
    ELSIF d.decision = 'held_unknown' AND old.status = 'in_progress' THEN
        next := old;
        next.status := 'unknown';
        next.version := old.version + 1;
        next.updated_at := d.at;
        next.lease_expires_at := NULL;
        next.due_given_at := CASE WHEN old.reconciles THEN d.at END;
        next.due_at := CASE WHEN old.reconciles THEN d.at END;
        next.holder := NULL;
        next.reason := 'lease_expired';
        next.duplicates := least(old.duplicates + 1, 4294967295);
        PERFORM put_record(old, next);
    ELSE
        next := touch_record(old);
    END IF;
    PERFORM note_effect(d, old, next, asked);

    RETURN CASE d.decision
        WHEN 'enqueued' THEN effect_accepted('first_seen', next)
        WHEN 'duplicate_replayed' THEN effect_document('duplicate_replayed', next)
        WHEN 'conflict_rejected' THEN problem('idempotency_conflict', next) - 'operation_id'
            || jsonb_build_object('effect_id', 'eff_' || next.operation_id, 'diff', NULL,
                'diff_truncated', false)
        ELSE effect_accepted(d.decision, next) END;
END $$;

-- A new record in place of none, or of one past its window. put_record keeps the members that a
-- function for operations does not set.
CREATE FUNCTION put_effect(old records, next records) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF old.key_hash IS NOT NULL THEN
        DELETE FROM records WHERE key_hash = old.key_hash AND tenant_id = old.tenant_id
            AND version = old.version;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'the effect has changed since this transaction began'
                USING ERRCODE = '40001', HINT = 'repeat the transaction';
        END IF;
    END IF;
    INSERT INTO records SELECT next.* ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the effect has changed since this transaction began'
            USING ERRCODE = '40001', HINT = 'repeat the transaction';
    END IF;
END $$;

-- ---- for the processes of Once -----------------------------------------------------------------

-- The types of a process's configuration replace what was there.
CREATE FUNCTION register_effect_types(types jsonb) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER
    SET search_path FROM CURRENT AS $$
DECLARE
    count bigint;
BEGIN
    PERFORM pg_advisory_xact_lock(1869505381, -2); -- one process at a time
    DELETE FROM effect_types t WHERE t.effect_type NOT IN
        (SELECT item ->> 'effect_type' FROM jsonb_array_elements(types) AS item);
    INSERT INTO effect_types AS t (effect_type, tenants, window_ms)
        SELECT item ->> 'effect_type',
            CASE WHEN item ? 'tenants' THEN ARRAY(SELECT jsonb_array_elements_text(item -> 'tenants'))
                END, (item ->> 'window_ms')::bigint
        FROM jsonb_array_elements(types) AS item
        ON CONFLICT (effect_type) DO UPDATE SET tenants = excluded.tenants,
            window_ms = excluded.window_ms, registered_at = clock_timestamp()
            WHERE (t.tenants, t.window_ms) IS DISTINCT FROM (excluded.tenants, excluded.window_ms);
    GET DIAGNOSTICS count = ROW_COUNT;
    RETURN count;
END $$;

-- Some effects whose payload is to be sealed, of these types, oldest first. Other processes leave
-- them alone for a while; if this one dies, they are taken again afterwards.
CREATE FUNCTION take_intake(types text[], most integer)
    RETURNS TABLE (tenant_id text, operation_id uuid, envelope text) LANGUAGE plpgsql
    SECURITY DEFINER SET search_path FROM CURRENT AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY WITH due AS (SELECT i.key_hash FROM intake i
            WHERE i.taken_until < clock_timestamp() AND i.effect_type = ANY (types)
            ORDER BY i.number LIMIT most FOR UPDATE SKIP LOCKED),
        taken AS (UPDATE intake i SET taken_until = clock_timestamp() + interval '3 s' FROM due
            WHERE i.key_hash = due.key_hash
            RETURNING i.key_hash, i.tenant_id, i.operation_id, i.number)
        SELECT t.tenant_id, t.operation_id, e.envelope FROM taken t JOIN intake_envelopes e
            ON e.key_hash = t.key_hash ORDER BY t.number;
END $$;

-- In the commit that seals them, or cancels them: their clear text is gone.
CREATE FUNCTION drop_intake(hashes bytea[]) RETURNS bigint LANGUAGE sql SECURITY DEFINER
    SET search_path FROM CURRENT
BEGIN ATOMIC
    WITH gone AS (DELETE FROM intake WHERE key_hash = ANY (hashes) RETURNING key_hash),
        bodies AS (DELETE FROM intake_envelopes e USING gone WHERE e.key_hash = gone.key_hash)
        SELECT count(*) FROM gone;
END;

-- As in version 2, but the counts are those of the kind of each decision.
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
        INSERT INTO entries (chain_id, seq, kind, decided_at, tenant_id, operation_id, prev_hash,
            hash, entry) VALUES (chain.chain_id, chain.seq, 'evidence', one.decided_at,
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
    UPDATE chains SET seq = chain.seq, hash = chain.hash, commits = commits + 1
        WHERE chain_id = chain.chain_id;
    INSERT INTO commits (chain_id, seq_first, seq_last, committed_at)
        VALUES (chain.chain_id, seq_first, chain.seq, store_now());
    RETURN chain.seq - seq_first + 1;
END $$;

-- ---- rights ------------------------------------------------------------------------------------

REVOKE ALL ON FUNCTION envelope_text, check_envelope, effect_detail, effect_name, effect_word,
    note_effect, effect_accepted, effect_document, once_effect, put_effect, register_effect_types,
    take_intake, drop_intake FROM PUBLIC;

-- Roles that the versions before were granted to.
DO $$
DECLARE
    grantee text;
BEGIN
    FOR grantee IN SELECT DISTINCT a.grantee::regrole::text FROM pg_proc p, aclexplode(p.proacl) a
            WHERE p.oid = 'chain_decisions'::regproc AND a.grantee <> p.proowner LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION register_effect_types, take_intake, drop_intake '
            'TO %s', grantee);
    END LOOP;
    FOR grantee IN SELECT DISTINCT a.grantee::regrole::text FROM pg_proc p, aclexplode(p.proacl) a
            WHERE p.oid = 'once_begin'::regproc AND a.grantee <> p.proowner LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION once_effect TO %s', grantee);
    END LOOP;
    FOR grantee IN SELECT DISTINCT a.grantee::regrole::text FROM pg_class c, aclexplode(c.relacl) a
            WHERE c.oid = 'entries'::regclass AND a.grantee <> c.relowner
                AND a.privilege_type = 'SELECT' LOOP
        EXECUTE format('GRANT SELECT ON intake, effect_types TO %s', grantee);
    END LOOP;
END $$;
