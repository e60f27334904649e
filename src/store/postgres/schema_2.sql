-- Version 2: functions for an application's own transactions (docs/postgres-functions.md).
-- once_begin, once_seal and once_release decide as the engine does (src/core/decide.h) and answer
-- with the documents of the API. Everything they write belongs to the transaction that calls them.
-- `once migrate` runs this in one transaction, with search_path set to the schema of the store.

-- ---- tables ------------------------------------------------------------------------------------

-- Which tenant a database role acts for; a role that is not here acts for the tenant `default`.
CREATE TABLE roles (
    role_name name PRIMARY KEY,
    tenant_id text NOT NULL CHECK (tenant_id <> '' AND octet_length(tenant_id) <= 255
        AND tenant_id !~ '[\u0001-\u001f\u007f-\u009f]')
);
COMMENT ON TABLE roles IS 'which tenant a database role acts for; all others act for default';

-- Decisions of the functions whose evidence is in no chain yet. A process of Once chains them
-- (chain_decisions), in the order of their numbers: a key stays locked from the number to the end
-- of the transaction, so that of one key they are in the order in which it was decided.
CREATE TABLE unchained (
    number bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    decided_at timestamptz NOT NULL,
    tenant_id text NOT NULL,
    operation_id uuid NOT NULL,
    entry jsonb NOT NULL, -- the evidence without chain_id, entry_id and seq
    -- What it does to the counts: the operation left one status for the other; a source is new.
    was record_status,
    becomes record_status,
    source_is_new boolean NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
COMMENT ON TABLE unchained IS 'evidence of once_begin, once_seal and once_release, not yet chained';

-- A key of HMAC-SHA-256 as its two padded blocks (RFC 2104), because there is no XOR of bytea.
CREATE FUNCTION hmac_block(key bytea, pad integer) RETURNS bytea LANGUAGE plpgsql IMMUTABLE STRICT
    AS $$
DECLARE
    block bytea := key || decode(repeat('00', 64 - octet_length(key)), 'hex');
BEGIN
    FOR i IN 0..63 LOOP
        block := set_byte(block, i, get_byte(block, i) # pad);
    END LOOP;
    RETURN block;
END $$;

ALTER TABLE store
    ADD COLUMN hmac_inner bytea GENERATED ALWAYS AS (hmac_block(fingerprint_key, 54)) STORED,
    ADD COLUMN hmac_outer bytea GENERATED ALWAYS AS (hmac_block(fingerprint_key, 92)) STORED;

-- How far the store's time is behind the server's clock, as the process knew at its last beat: the
-- functions have no boot clock, and follow the processes when these hold a clock that jumped (P8).
ALTER TABLE chains ADD COLUMN clock_behind interval NOT NULL DEFAULT '0';

-- The chain of the functions' evidence. Its id comes before all others in the order of entries. It
-- has no key, because no process has it alone: the checkpoints of the others cover it.
INSERT INTO chains (chain_id, public_key, host, pid, program, ended_at)
    VALUES ('00000000-0000-0000-0000-000000000001', decode(repeat('00', 32), 'hex'), '', 0,
        'functions', clock_timestamp());

-- ---- what is given -----------------------------------------------------------------------------

CREATE FUNCTION refuse(fault text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '%', fault USING ERRCODE = '22023'; -- invalid_parameter_value
END $$;

-- Names are as src/base/name.h has them.
CREATE FUNCTION check_name(member text, name text, may_be_empty boolean) RETURNS void
    LANGUAGE plpgsql AS $$
BEGIN
    PERFORM refuse(member || ' is empty') WHERE coalesce(name, '') = '' AND NOT may_be_empty;
    PERFORM refuse(format('%s is %s bytes long, more than %s_bytes_max (255)', member,
        octet_length(name), split_part(member, '.', 1))) WHERE octet_length(name) > 255;
    PERFORM refuse(member || ' has a control character')
        WHERE name ~ '[\u0001-\u001f\u007f-\u009f]';
END $$;

-- "300ms", "30s", "5m", "24h", "14d", in milliseconds; NULL stays NULL.
CREATE FUNCTION read_span(member text, given text, least_ms bigint, most_ms bigint) RETURNS bigint
    LANGUAGE plpgsql AS $$
DECLARE
    parts text[] := regexp_match(given, '^([0-9]{1,15})(ms|s|m|h|d)$');
    span numeric;
BEGIN
    IF given IS NULL THEN
        RETURN NULL;
    ELSIF parts IS NULL THEN
        PERFORM refuse(member || ' must be a duration such as "30s"');
    END IF;
    span := parts[1]::numeric * CASE parts[2] WHEN 'd' THEN 86400000 WHEN 'h' THEN 3600000
        WHEN 'm' THEN 60000 WHEN 's' THEN 1000 ELSE 1 END;
    PERFORM refuse(format('%s is %s ms; the %s is %s ms', member, span,
            CASE WHEN span < least_ms THEN 'least' ELSE 'most' END,
            CASE WHEN span < least_ms THEN least_ms ELSE most_ms END))
        WHERE span < least_ms OR span > most_ms;
    RETURN span;
END $$;

-- The tenant of whoever is connected. Of the session's role: SET ROLE does not change it (P9).
CREATE FUNCTION session_tenant() RETURNS text LANGUAGE sql STABLE
RETURN coalesce((SELECT tenant_id FROM roles WHERE role_name = session_user), 'default');

-- Whether a version is older than another, in natural order: 9 before 10 (src/core/source.c).
CREATE FUNCTION version_older(a text, b text) RETURNS boolean LANGUAGE plpgsql IMMUTABLE STRICT
    AS $$
DECLARE
    x bytea := convert_to(a, 'UTF8');
    y bytea := convert_to(b, 'UTF8');
    i integer := 1;
    j integer := 1;
    m text;
    n text;
BEGIN
    WHILE i <= octet_length(x) AND j <= octet_length(y) LOOP
        m := encode(substr(x, i), 'escape');
        n := encode(substr(y, j), 'escape');
        IF m ~ '^[0-9]' AND n ~ '^[0-9]' THEN
            m := substring(m FROM '^[0-9]+');
            n := substring(n FROM '^[0-9]+');
            i := i + length(m);
            j := j + length(n);
            IF m::numeric <> n::numeric THEN
                RETURN m::numeric < n::numeric;
            END IF;
        ELSIF get_byte(x, i - 1) <> get_byte(y, j - 1) THEN
            RETURN get_byte(x, i - 1) < get_byte(y, j - 1);
        ELSE
            i := i + 1;
            j := j + 1;
        END IF;
    END LOOP;
    RETURN i > octet_length(x) AND j <= octet_length(y);
END $$;

-- ---- deciding ----------------------------------------------------------------------------------

-- The store's time, whole milliseconds: not before what any process has committed, and as far
-- behind the server's clock as the process that was heard of last.
CREATE FUNCTION store_now() RETURNS timestamptz LANGUAGE sql VOLATILE
RETURN date_trunc('milliseconds', greatest(
    clock_timestamp() - coalesce((SELECT clock_behind FROM chains WHERE ended_at IS NULL
        ORDER BY heartbeat_at DESC LIMIT 1), '0'),
    (SELECT committed_at FROM store),
    (SELECT max(committed_at) FROM chains WHERE ended_at IS NULL)));

CREATE FUNCTION millis(at timestamptz) RETURNS bigint LANGUAGE sql IMMUTABLE STRICT
RETURN (extract(epoch FROM at) * 1000)::bigint;

CREATE FUNCTION time_text(at timestamptz) RETURNS text LANGUAGE sql STABLE STRICT
RETURN to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"');

-- A number in JSON; past 2^53 as text, because it would not be the same to everybody.
CREATE FUNCTION json_u64(value bigint) RETURNS jsonb LANGUAGE sql IMMUTABLE
RETURN CASE WHEN value > 9007199254740992 THEN to_jsonb(value::text) ELSE to_jsonb(value) END;

-- The id that src/core/record.h makes of the time, the fence and the hash of the key.
CREATE FUNCTION make_operation_id(at timestamptz, fence bigint, key_hash bytea) RETURNS uuid
    LANGUAGE sql IMMUTABLE
RETURN encode(substr(int8send(millis(at)), 3) || decode(
    lpad(to_hex(112 | ((fence >> 22) & 15)::integer), 2, '0')
    || lpad(to_hex(((fence >> 14) & 255)::integer), 2, '0')
    || lpad(to_hex(128 | ((fence >> 8) & 63)::integer), 2, '0')
    || lpad(to_hex((fence & 255)::integer), 2, '0'), 'hex') || substr(key_hash, 1, 6), 'hex')::uuid;

-- What one call of a function asks for and what was decided; the rest is in the records.
CREATE TYPE decided AS (
    request text,               -- begin, seal, release
    at timestamptz,             -- the store's time
    decision text,
    rule text,
    repeated boolean,
    fence_next bigint,          -- begin: what a grant would get
    sealed_version text,        -- the last sealed version of the source
    source_is_new boolean
);

-- Everything that the evidence of a decision says, but for its place in a chain
-- (src/evidence/entry.c). asked has what the function was given, in the words of the evidence.
CREATE FUNCTION note_decision(d decided, old records, next records, asked jsonb) RETURNS void
    LANGUAGE plpgsql AS $$
DECLARE
    by_key boolean := d.request = 'begin';
    known boolean := next.key_hash IS NOT NULL;
    id text := 'op_' || coalesce(next.operation_id::text, asked ->> 'operation_id');
    state text := coalesce(next.status::text, 'absent');
    -- IDS-14 knows three decisions: the finer ones are told as these, with the detail beside it.
    told text := CASE d.decision WHEN 'in_progress' THEN 'duplicate_replayed'
        WHEN 'held_unknown' THEN 'duplicate_replayed' WHEN 'stale_version' THEN 'conflict_rejected'
        ELSE d.decision END;
    reason text := CASE WHEN d.decision = 'conflict_rejected' THEN 'idempotency_conflict'
        WHEN d.decision = 'held_unknown' THEN 'outcome_unknown'
        WHEN d.decision IN ('not_found', 'stale_fence', 'already_sealed', 'stale_version')
            THEN d.decision
        WHEN d.repeated THEN 'repeated' ELSE next.reason END;
    source jsonb := CASE WHEN NOT known THEN asked -> 'source'
        WHEN coalesce(next.source_type, next.source_id, next.source_version) IS NOT NULL
            THEN jsonb_build_object('id', coalesce(next.source_id, ''), 'type',
                coalesce(next.source_type, ''), 'version', next.source_version) END;
    type text := CASE WHEN d.decision = 'first_seen' THEN 'execution.started'
        WHEN d.decision IN ('conflict_rejected', 'stale_version') THEN 'execution.rejected'
        WHEN d.repeated THEN 'observation.emitted'
        WHEN d.decision = 'sealed' THEN 'execution.' || next.status
        WHEN d.decision = 'released' THEN 'execution.released' ELSE 'observation.emitted' END;
BEGIN
    INSERT INTO unchained (decided_at, tenant_id, operation_id, was, becomes, source_is_new, entry)
    VALUES (d.at, asked ->> 'tenant_id', substr(id, 4)::uuid,
        CASE WHEN known AND old.status IS DISTINCT FROM next.status THEN old.status END,
        CASE WHEN known AND old.status IS DISTINCT FROM next.status THEN next.status END,
        d.source_is_new,
        jsonb_strip_nulls(jsonb_build_object('actor', session_user,
            'conflict', CASE WHEN d.decision = 'conflict_rejected' THEN jsonb_build_object(
                'received_fingerprint', asked -> 'decided' -> 'fingerprint',
                'stored_fingerprint', encode(old.fingerprint, 'hex')) END,
            'decided', jsonb_build_object('attempt', coalesce(next.attempt, 0),
                'decision', d.decision,
                'fence', CASE WHEN by_key THEN json_u64(coalesce(next.fence, 0)) END,
                'fence_next', CASE WHEN by_key THEN json_u64(d.fence_next) END,
                'now_ms', millis(d.at), 'request', d.request, 'rule', d.rule,
                'sealed_version', d.sealed_version, 'version', coalesce(old.version, 0))
                || (asked -> 'decided'),
            'dedupe', CASE WHEN by_key THEN jsonb_build_object('decision', told,
                'detail', CASE WHEN told <> d.decision THEN d.decision END,
                'executed', d.decision = 'first_seen', 'original_operation_id', id,
                'outcome_ref', CASE WHEN d.decision = 'duplicate_replayed'
                    AND next.outcome_bytes > 0
                    THEN 'sha256:' || encode(next.outcome_digest, 'hex') END) END,
            'effect_id', next.effect_id,
            'idempotency_key', CASE WHEN known THEN next.key ELSE asked ->> 'key' END,
            'lifecycle_state', state, 'occurred_at', time_text(d.at), 'operation_id', id,
            'outcome', jsonb_build_object('reason', reason, 'status', state),
            'principal', nullif(CASE WHEN known THEN next.principal ELSE asked ->> 'principal' END,
                ''),
            'scope', coalesce(CASE WHEN known THEN next.scope ELSE asked ->> 'scope' END, ''),
            'source', source, 'tenant_id', asked -> 'tenant_id', 'type', type))
            || CASE WHEN jsonb_typeof(asked -> 'trace') = 'object'
                THEN jsonb_build_object('trace', asked -> 'trace') ELSE '{}' END);
END $$;

-- Put the record of a decision: new, changed, or one more duplicate. A record that changed since it
-- was read is a transaction that does not read what others have committed.
CREATE FUNCTION put_record(old records, next records) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF old.key_hash IS NULL THEN
        INSERT INTO records SELECT next.* ON CONFLICT DO NOTHING;
    ELSE
        UPDATE records SET (status, version, operation_id, fence, attempt, duplicates, fingerprint,
            fingerprint_version, created_at, updated_at, sealed_at, lease_expires_at,
            window_expires_at, window_ms, due_at, due_given_at, effect_id, outcome_code,
            outcome_meta, outcome_digest, outcome_bytes, outcome_retained, outcome_body,
            request_digest, request_bytes, request_retained, request_body, source_type, source_id,
            source_version, source_hash, trace, reason, door, reconciles, holder) =
            (next.status, next.version, next.operation_id, next.fence, next.attempt,
            next.duplicates, next.fingerprint, next.fingerprint_version, next.created_at,
            next.updated_at, next.sealed_at, next.lease_expires_at, next.window_expires_at,
            next.window_ms, next.due_at, next.due_given_at, next.effect_id, next.outcome_code,
            next.outcome_meta, next.outcome_digest, next.outcome_bytes, next.outcome_retained,
            next.outcome_body, next.request_digest, next.request_bytes, next.request_retained,
            next.request_body, next.source_type, next.source_id, next.source_version,
            next.source_hash, next.trace, next.reason, next.door, next.reconciles, next.holder)
            WHERE key_hash = old.key_hash AND tenant_id = old.tenant_id
                AND version = old.version;
    END IF;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the operation has changed since this transaction began'
            USING ERRCODE = '40001', HINT = 'repeat the transaction';
    END IF;
END $$;

-- The same for a touch: nothing but the count of duplicates changes.
CREATE FUNCTION touch_record(old records) RETURNS records LANGUAGE plpgsql AS $$
DECLARE
    touched records := old;
BEGIN
    touched.duplicates := least(old.duplicates + 1, 4294967295);
    PERFORM put_record(old, touched);
    RETURN touched;
END $$;

-- Lock a key as a batch does. A transaction that then does nothing is ended by the server after the
-- time that a prepared batch has (S10), unless the session has a limit of its own.
CREATE FUNCTION lock_operation(key_hash bytea) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(lock_key(key_hash));
    IF current_setting('idle_in_transaction_session_timeout') = '0' THEN
        PERFORM set_config('idle_in_transaction_session_timeout', '10s', true);
    END IF;
END $$;

-- A problem document, as the API's (docs/problems.md).
CREATE FUNCTION problem(code text, old records) RETURNS jsonb LANGUAGE sql STABLE
RETURN jsonb_strip_nulls(jsonb_build_object('type', '/docs/problems.md#' || code,
    'title', CASE WHEN code = 'operation_not_found' THEN 'Not Found' ELSE 'Conflict' END,
    'status', CASE WHEN code = 'operation_not_found' THEN 404 ELSE 409 END, 'code', code,
    'effect', CASE WHEN code = 'outcome_unknown' THEN 'unknown' ELSE 'no' END, 'retry', 'no',
    'operation_id', CASE WHEN code <> 'operation_not_found' THEN 'op_' || old.operation_id END)
    || (SELECT jsonb_build_object('detail', detail, 'error', jsonb_build_object('type',
        'invalid_request_error', 'code', code, 'message', detail)) FROM (SELECT CASE code
        WHEN 'idempotency_conflict' THEN 'the key was used with a different payload; nothing was done'
        WHEN 'outcome_unknown' THEN 'nobody knows whether the effect happened; it is held until '
            || 'somebody checks and settles it'
        WHEN 'stale_version' THEN 'source.version is older than the last sealed one of that source;'
            || ' nothing was done'
        WHEN 'stale_fence' THEN 'the fence is not the one of the current grant; nothing changed'
        WHEN 'already_sealed' THEN 'it was settled differently before; nothing changed'
        ELSE 'there is no such operation' END) AS texts (detail)));

-- The diff of a conflict, within the API's limit; null when one of both payloads was not kept.
CREATE FUNCTION conflict_diff(old records, payload text, version integer) RETURNS jsonb
    LANGUAGE plpgsql AS $$
DECLARE
    changes jsonb;
    kept jsonb := '[]';
    change jsonb;
BEGIN
    IF old.request_body IS NULL OR payload IS NULL OR octet_length(payload) > 65536
            OR version <> 1 OR old.fingerprint_version <> 1 THEN
        RETURN jsonb_build_object('diff', NULL, 'diff_truncated', false);
    END IF;
    changes := json_diff(convert_from(old.request_body, 'UTF8')::jsonb, payload::jsonb, '');
    FOR change IN SELECT jsonb_array_elements(changes) LOOP
        EXIT WHEN octet_length((kept || change)::text) > 16384;
        kept := kept || change;
    END LOOP;
    RETURN jsonb_build_object('diff', kept, 'diff_truncated',
        jsonb_array_length(kept) < jsonb_array_length(changes));
END $$;

-- The outcome in a document: JSON that one of the doors sealed as JSON, or its parts.
CREATE FUNCTION outcome_document(r records) RETURNS jsonb LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF (r.outcome_bytes = 0 AND r.outcome_meta IS NULL AND r.outcome_code = 0)
            OR (r.outcome_meta = 'application/json' AND r.outcome_code = 0
                AND NOT r.outcome_retained AND r.outcome_bytes > 0) THEN
        RETURN 'null';
    ELSIF r.outcome_meta = 'application/json' THEN
        RETURN convert_from(r.outcome_body, 'UTF8')::jsonb;
    END IF;
    RETURN jsonb_strip_nulls(jsonb_build_object('code', r.outcome_code,
        'meta', encode(coalesce(r.outcome_meta, ''), 'escape'),
        'body', CASE WHEN r.outcome_retained THEN encode(r.outcome_body, 'escape') END,
        'bytes', CASE WHEN NOT r.outcome_retained THEN r.outcome_bytes END));
END $$;

-- The document of a replay or a seal.
CREATE FUNCTION sealed_document(decision text, r records) RETURNS jsonb LANGUAGE sql STABLE
RETURN jsonb_build_object('decision', decision, 'operation_id', 'op_' || r.operation_id,
    'status', r.status, 'effect_id', r.effect_id, 'first_seen_at', time_text(r.created_at),
    'sealed_at', time_text(r.sealed_at), 'window_expires_at', time_text(r.window_expires_at))
    || CASE WHEN decision = 'sealed' THEN '{}' ELSE jsonb_build_object('outcome',
        outcome_document(r)) || CASE WHEN r.outcome_bytes > 0 AND NOT r.outcome_retained
        THEN '{"outcome_retained": false}' ELSE '{}' END::jsonb END;

-- ---- begin -------------------------------------------------------------------------------------

-- What is remembered of the source that a record names; no row when it is past its window.
CREATE FUNCTION source_of(of_tenant text, of_scope text, of_type text, of_id text, at timestamptz)
    RETURNS SETOF records LANGUAGE sql VOLATILE
BEGIN ATOMIC
    SELECT s.* FROM records s
        WHERE s.key_hash = key_hash('source', of_tenant, of_scope, of_type, of_id)
            AND s.tenant_id = of_tenant AND s.window_expires_at > at;
END;

CREATE FUNCTION once_begin(scope text, key text, payload jsonb DEFAULT NULL,
    fingerprint text DEFAULT NULL, principal text DEFAULT '', ttl text DEFAULT NULL,
    lease text DEFAULT NULL, on_unknown text DEFAULT 'hold', source jsonb DEFAULT NULL,
    trace jsonb DEFAULT NULL, retry_failed boolean DEFAULT false) RETURNS jsonb LANGUAGE plpgsql
    SECURITY DEFINER SET search_path FROM CURRENT SET extra_float_digits = 1 AS $$
#variable_conflict use_variable
DECLARE
    tenant text := session_tenant();
    window_ms bigint := coalesce(read_span('ttl', ttl, 1, 315360000000), 86400000);
    lease_ms bigint := coalesce(read_span('lease', lease, 10, 604800000), 30000);
    form text; -- the canonical payload
    plain bytea;
    keyed bytea;
    ordered boolean;
    hash bytea;
    old records;
    next records;
    d decided;
    asked jsonb;
BEGIN
    PERFORM check_name('scope', scope, false), check_name('key', key, false),
        check_name('principal', principal, true),
        check_name('source.type', source ->> 'type', true),
        check_name('source.id', source ->> 'id', true),
        check_name('source.version', source ->> 'version', true);
    PERFORM refuse('on_unknown must be "hold" or "takeover"')
        WHERE on_unknown NOT IN ('hold', 'takeover') OR on_unknown IS NULL;
    PERFORM refuse('payload and fingerprint are both given')
        WHERE payload IS NOT NULL AND fingerprint IS NOT NULL;
    PERFORM refuse('fingerprint must be 64 hexadecimal digits')
        WHERE fingerprint !~ '^[0-9a-fA-F]{64}$';
    PERFORM refuse('source must be an object of type, id and version')
        WHERE source IS NOT NULL AND (jsonb_typeof(source) <> 'object'
            OR source - 'type' - 'id' - 'version' <> '{}');
    PERFORM refuse('trace must be an object of at most trace_bytes_max (2048)')
        WHERE trace IS NOT NULL AND (jsonb_typeof(trace) <> 'object'
            OR octet_length(canonical(trace)) > 2048);
    principal := coalesce(principal, '');
    form := CASE WHEN fingerprint IS NULL THEN canonical(coalesce(payload, 'null')) END;
    plain := CASE WHEN fingerprint IS NULL THEN sha256(convert_to(form, 'UTF8'))
        ELSE decode(fingerprint, 'hex') END;
    ordered := coalesce(source ->> 'type', '') <> '' AND coalesce(source ->> 'id', '') <> ''
        AND coalesce(source ->> 'version', '') <> '';
    keyed := (SELECT sha256(hmac_outer || sha256(hmac_inner || plain)) FROM store);
    hash := key_hash('operation', tenant, scope, principal, key);
    source := CASE WHEN source IS NOT NULL AND source <> '{}' THEN jsonb_strip_nulls(
        jsonb_build_object('id', coalesce(source ->> 'id', ''), 'type',
            coalesce(source ->> 'type', ''), 'version', nullif(source ->> 'version', ''))) END;

    PERFORM lock_operation(hash);
    SELECT * INTO old FROM records r WHERE r.key_hash = hash AND r.tenant_id = tenant;
    d.request := 'begin';
    d.source_is_new := false;
    d.repeated := false;
    d.at := greatest(store_now(), old.updated_at);
    IF ordered THEN
        SELECT s.source_version INTO d.sealed_version
            FROM source_of(tenant, scope, source ->> 'type', source ->> 'id', d.at) AS s;
    END IF;

    -- The new operation, if it comes to that.
    next.key_hash := hash;
    next.tenant_id := tenant;
    next.scope := scope;
    next.principal := principal;
    next.key := key;
    next.kind := 'operation';
    next.fingerprint := keyed;
    next.fingerprint_version := CASE WHEN fingerprint IS NULL THEN 1 ELSE 3 END;

    -- B1 to B11 of src/core/decide.h.
    SELECT decision, rule INTO d.decision, d.rule FROM (VALUES
        (old.key_hash IS NULL OR old.window_expires_at <= d.at, 'first_seen', 'B1'),
        (old.fingerprint <> next.fingerprint
            OR old.fingerprint_version <> next.fingerprint_version, 'conflict_rejected', 'B2'),
        (old.status = 'in_progress' AND old.lease_expires_at > d.at, 'in_progress', 'B3'),
        (old.status = 'unknown' AND old.sealed_at IS NOT NULL, 'duplicate_replayed', 'B11'),
        (old.status IN ('unknown', 'in_progress') AND on_unknown = 'takeover', 'first_seen', 'B4'),
        (old.status IN ('unknown', 'in_progress'), 'held_unknown', 'B5'),
        (old.status = 'released', 'first_seen', 'B6'),
        (old.status IN ('pending', 'waiting', 'dead'), 'in_progress', 'B10'),
        (old.status = 'compensating', 'duplicate_replayed', 'B11'),
        (old.status = 'failed' AND retry_failed, 'first_seen', 'B7'),
        (true, 'duplicate_replayed', 'B8')) AS rules (applies, decision, rule)
        WHERE applies LIMIT 1;
    IF d.decision = 'first_seen' AND ordered
            AND version_older(source ->> 'version', d.sealed_version) THEN
        d.decision := 'stale_version';
        IF d.rule = 'B1' THEN
            next := NULL;
        ELSE
            next := old;
        END IF;
        d.rule := 'B9';
    END IF;
    d.fence_next := draw_fences(CASE WHEN d.decision = 'first_seen' THEN 1 ELSE 0 END);

    asked := jsonb_build_object('tenant_id', tenant, 'scope', scope,
        'principal', principal, 'key', key, 'source', source, 'trace', trace,
        'operation_id', '00000000-0000-0000-0000-000000000000', 'decided', jsonb_build_object(
            'door', 'fences', 'fingerprint', encode(keyed, 'hex'),
            'fingerprint_version', CASE WHEN fingerprint IS NULL THEN 1 ELSE 3 END,
            'lease_ms', lease_ms, 'on_unknown', on_unknown,
            'retry_failed', CASE WHEN retry_failed THEN true END,
            'source', CASE WHEN ordered THEN source END, 'window_ms', window_ms));

    IF d.decision = 'first_seen' THEN
        IF d.rule = 'B1' THEN
            next.version := coalesce(old.version, 0);
            next.operation_id := make_operation_id(d.at, d.fence_next, hash);
            next.attempt := 0;
            next.duplicates := 0;
            next.created_at := d.at;
            next.request_retained := coalesce(octet_length(form) <= 65536, false);
            next.request_bytes := CASE WHEN next.request_retained THEN octet_length(form)
                ELSE 0 END;
            next.request_digest := CASE WHEN next.request_retained THEN plain END;
            next.request_body := CASE WHEN next.request_retained THEN convert_to(form, 'UTF8') END;
            next.trace := canonical(trace);
            next.source_type := nullif(source ->> 'type', '');
            next.source_id := nullif(source ->> 'id', '');
            next.source_version := source ->> 'version';
        ELSE
            next := old;
            next.sealed_at := NULL;
            next.window_expires_at := NULL;
            next.effect_id := NULL;
            next.reason := NULL;
            IF ordered THEN
                next.source_type := source ->> 'type';
                next.source_id := source ->> 'id';
                next.source_version := source ->> 'version';
            END IF;
        END IF;
        IF ordered THEN
            next.source_hash := key_hash('source', tenant, scope, source ->> 'type',
                source ->> 'id');
        END IF;
        next.status := 'in_progress';
        next.version := next.version + 1;
        next.fence := d.fence_next;
        next.attempt := least(next.attempt + 1, 4294967295);
        next.updated_at := d.at;
        next.lease_expires_at := d.at + lease_ms * interval '1 ms';
        next.due_at := next.lease_expires_at;
        next.due_given_at := NULL;
        next.window_ms := window_ms;
        next.outcome_code := 0;
        next.outcome_bytes := 0;
        next.outcome_retained := false;
        next.outcome_meta := NULL;
        next.outcome_digest := NULL;
        next.outcome_body := NULL;
        next.door := 'fences';
        next.reconciles := false;
        next.holder := NULL;
        PERFORM put_record(old, next);
    ELSIF d.decision = 'held_unknown' AND old.status = 'in_progress' THEN
        next := old;
        next.status := 'unknown';
        next.version := old.version + 1;
        next.updated_at := d.at;
        next.lease_expires_at := NULL;
        -- An operation of the gateway is to be asked about at once (R9 of src/core/record.h).
        next.due_given_at := CASE WHEN old.reconciles THEN d.at END;
        next.due_at := CASE WHEN old.reconciles OR old.door = 'gateway' THEN d.at END;
        next.holder := NULL;
        next.reason := 'lease_expired';
        next.duplicates := least(old.duplicates + 1, 4294967295);
        PERFORM put_record(old, next);
    ELSIF d.decision <> 'stale_version' THEN
        next := touch_record(old);
    END IF;
    PERFORM note_decision(d, old, next, asked);

    RETURN CASE d.decision
        WHEN 'first_seen' THEN jsonb_build_object('decision', 'first_seen',
            'operation_id', 'op_' || next.operation_id, 'fence', next.fence, 'attempt',
            next.attempt, 'lease_expires_at', time_text(next.lease_expires_at))
        WHEN 'duplicate_replayed' THEN sealed_document('duplicate_replayed', next)
        WHEN 'in_progress' THEN jsonb_build_object('decision', 'in_progress',
            'operation_id', 'op_' || next.operation_id, 'retry_after_ms', least(greatest(coalesce(
                millis(next.lease_expires_at) - millis(d.at), 0), 100), 1000),
            'status_url', '/v1/operations/op_' || next.operation_id)
        WHEN 'conflict_rejected' THEN problem('idempotency_conflict', next)
            || conflict_diff(old, form, CASE WHEN fingerprint IS NULL THEN 1 ELSE 3 END)
        WHEN 'held_unknown' THEN problem('outcome_unknown', next)
        ELSE problem('stale_version', next) END;
END $$;

-- ---- seal and release --------------------------------------------------------------------------

-- The operation of an id, locked. The id carries the first 48 bits of the key's hash.
CREATE FUNCTION find_operation(id uuid, tenant text) RETURNS SETOF records LANGUAGE plpgsql AS $$
DECLARE
    prefix bytea := substr(uuid_send(id), 11, 6);
BEGIN
    PERFORM lock_operation(prefix);
    RETURN QUERY SELECT * FROM records r
        WHERE r.key_hash >= prefix || decode(repeat('00', 26), 'hex')
            AND r.key_hash <= prefix || decode(repeat('ff', 26), 'hex')
            AND r.tenant_id = tenant AND r.operation_id = id AND r.kind = 'operation';
END $$;

-- The rules that a holder's calls have in common: H1 to H6 of src/core/decide.h. NULL: H5, it is
-- the holder's turn.
CREATE FUNCTION decide_held(INOUT d decided, old records, fence bigint, same boolean)
    LANGUAGE plpgsql AS $$
DECLARE
    done text := CASE d.request WHEN 'seal' THEN 'sealed' ELSE 'released' END;
BEGIN
    SELECT decision, rule, again INTO d.decision, d.rule, d.repeated FROM (VALUES
        (old.key_hash IS NULL OR old.window_expires_at <= d.at, 'not_found', 'H1', false),
        (old.fence <> fence OR fence <= 0, 'stale_fence', 'H2', false),
        (old.sealed_at IS NOT NULL AND d.request = 'seal' AND same, done, 'H3', true),
        (old.sealed_at IS NOT NULL, 'already_sealed', 'H3', false),
        (old.status = 'released' AND d.request = 'release', done, 'H4', true),
        (old.status = 'released', 'stale_fence', 'H4', false),
        (old.status IN ('in_progress', 'unknown'), done, 'H5', false),
        (true, 'stale_fence', 'H6', false)) AS rules (applies, decision, rule, again)
        WHERE applies LIMIT 1;
END $$;

-- Tell the processes that wait for it, at COMMIT (S13).
CREATE FUNCTION announce(key_hash bytea) RETURNS void LANGUAGE sql
BEGIN ATOMIC
    SELECT pg_notify('once.' || current_schema(),
            repeat('0', 31) || '1 ' || encode(key_hash, 'hex'))
        WHERE EXISTS (SELECT FROM chains WHERE listens AND ended_at IS NULL);
END;

-- What is remembered of the source of a sealed operation from now on (src/core/source.c).
CREATE FUNCTION remember_source(INOUT d decided, sealed records) LANGUAGE plpgsql AS $$
DECLARE
    old records;
    next records;
    live boolean;
BEGIN
    LOOP
        SELECT * INTO old FROM records r WHERE r.key_hash = sealed.source_hash
            AND r.tenant_id = sealed.tenant_id FOR UPDATE;
        live := old.window_expires_at > d.at;
        d.sealed_version := CASE WHEN live THEN old.source_version END;
        IF live AND NOT version_older(old.source_version, sealed.source_version)
                AND (version_older(sealed.source_version, old.source_version)
                    OR sealed.window_expires_at <= old.window_expires_at) THEN
            RETURN;
        END IF;
        next := sealed;
        next.key_hash := sealed.source_hash;
        next.principal := sealed.source_type;
        next.key := sealed.source_id;
        next.kind := 'source';
        next.status := 'executed';
        next.version := coalesce(old.version, 0) + 1;
        next.duplicates := 0;
        next.fingerprint := decode(repeat('00', 32), 'hex');
        next.fingerprint_version := 0;
        next.created_at := CASE WHEN live THEN old.created_at ELSE d.at END;
        next.effect_id := NULL;
        next.outcome_code := 0;
        next.outcome_meta := NULL;
        next.outcome_digest := NULL;
        next.outcome_bytes := 0;
        next.outcome_retained := false;
        next.outcome_body := NULL;
        next.request_digest := NULL;
        next.request_bytes := 0;
        next.request_retained := false;
        next.request_body := NULL;
        next.source_hash := NULL;
        next.trace := NULL;
        next.reason := NULL;
        next.door := 'unnamed';
        BEGIN
            PERFORM put_record(old, next);
            d.source_is_new := old.key_hash IS NULL;
            d.sealed_version := sealed.source_version;
            RETURN;
        EXCEPTION WHEN serialization_failure THEN
            -- A different transaction remembered this source first: look again.
            IF current_setting('transaction_isolation') <> 'read committed' THEN
                RAISE;
            END IF;
        END;
    END LOOP;
END $$;

-- The id of a document, or NULL.
CREATE FUNCTION read_operation_id(id text) RETURNS uuid LANGUAGE sql IMMUTABLE
RETURN CASE WHEN id ~ '^op_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' THEN substr(id, 4)::uuid END;

CREATE FUNCTION once_seal(operation_id text, fence bigint, status text DEFAULT 'executed',
    effect_id text DEFAULT NULL, outcome jsonb DEFAULT NULL, ttl text DEFAULT NULL) RETURNS jsonb
    LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
#variable_conflict use_variable
DECLARE
    tenant text := session_tenant();
    id uuid := read_operation_id(operation_id);
    window_ms bigint := read_span('ttl', ttl, 1, 315360000000);
    body bytea := convert_to(outcome::text, 'UTF8');
    digest bytea := sha256(body);
    kept boolean := coalesce(octet_length(body) <= 16777216, false);
    old records;
    next records;
    d decided;
BEGIN
    PERFORM check_name('effect_id', effect_id, true);
    PERFORM refuse('fence must be a positive number') WHERE fence IS NULL OR fence <= 0;
    PERFORM refuse('status must be "executed", "failed" or "rejected"')
        WHERE status IS NULL OR status NOT IN ('executed', 'failed', 'rejected');
    IF id IS NULL THEN
        RETURN problem('operation_not_found', NULL);
    END IF;
    effect_id := nullif(effect_id, '');
    SELECT * INTO old FROM find_operation(id, tenant);
    d.request := 'seal';
    d.source_is_new := false;
    d.at := greatest(store_now(), old.updated_at);
    d := decide_held(d, old, fence, old.status::text = status
        AND old.effect_id IS NOT DISTINCT FROM effect_id AND old.outcome_code = 0
        AND old.outcome_meta IS NOT DISTINCT FROM
            CASE WHEN body IS NOT NULL THEN 'application/json'::bytea END
        AND old.outcome_bytes = coalesce(octet_length(body), 0)
        AND old.outcome_digest IS NOT DISTINCT FROM digest);
    next := old;
    IF d.decision = 'not_found' THEN
        next := NULL;
    ELSIF d.rule = 'H5' THEN
        next.status := status::record_status;
        next.version := old.version + 1;
        next.updated_at := d.at;
        next.sealed_at := d.at;
        next.lease_expires_at := NULL;
        next.due_at := NULL;
        next.due_given_at := NULL;
        next.holder := NULL;
        next.window_ms := coalesce(window_ms, old.window_ms);
        next.window_expires_at := d.at + next.window_ms * interval '1 ms';
        next.effect_id := effect_id;
        next.outcome_code := 0;
        next.outcome_meta := CASE WHEN body IS NOT NULL THEN 'application/json'::bytea END;
        next.outcome_digest := digest;
        next.outcome_bytes := coalesce(octet_length(body), 0);
        next.outcome_retained := kept;
        next.outcome_body := CASE WHEN kept THEN body END;
        next.reason := NULL;
        PERFORM put_record(old, next);
        IF next.source_hash IS NOT NULL THEN
            d := remember_source(d, next);
        END IF;
        PERFORM announce(next.key_hash);
    END IF;
    PERFORM note_decision(d, old, next, jsonb_build_object('tenant_id', tenant, 'operation_id',
        id, 'decided', jsonb_strip_nulls(jsonb_build_object('effect_id', effect_id, 'fence',
        json_u64(fence), 'outcome', jsonb_build_object('bytes', coalesce(octet_length(body), 0),
            'code', 0, 'digest', coalesce(encode(digest, 'hex'), repeat('0', 64)),
            'meta_digest', CASE WHEN body IS NOT NULL THEN
                encode(sha256('application/json'), 'hex') END, 'retained', kept),
        'status', status, 'window_ms', window_ms))));
    RETURN CASE d.decision WHEN 'sealed' THEN sealed_document('sealed', next)
        WHEN 'not_found' THEN problem('operation_not_found', NULL)
        ELSE problem(d.decision, next) END;
END $$;

CREATE FUNCTION once_release(operation_id text, fence bigint, reason text DEFAULT NULL)
    RETURNS jsonb LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
#variable_conflict use_variable
DECLARE
    tenant text := session_tenant();
    id uuid := read_operation_id(operation_id);
    old records;
    next records;
    d decided;
BEGIN
    PERFORM refuse('fence must be a positive number') WHERE fence IS NULL OR fence <= 0;
    PERFORM refuse(format('reason is %s bytes long, more than reason_bytes_max (255)',
        octet_length(reason))) WHERE octet_length(reason) > 255;
    IF id IS NULL THEN
        RETURN problem('operation_not_found', NULL);
    END IF;
    SELECT * INTO old FROM find_operation(id, tenant);
    d.request := 'release';
    d.source_is_new := false;
    d.at := greatest(store_now(), old.updated_at);
    d := decide_held(d, old, fence, false);
    next := old;
    IF d.decision = 'not_found' THEN
        next := NULL;
    ELSIF d.rule = 'H5' THEN
        next.status := 'released';
        next.version := old.version + 1;
        next.updated_at := d.at;
        next.lease_expires_at := NULL;
        next.due_at := NULL;
        next.due_given_at := NULL;
        next.holder := NULL;
        next.window_expires_at := d.at + old.window_ms * interval '1 ms';
        next.reason := nullif(reason, '');
        PERFORM put_record(old, next);
        PERFORM announce(next.key_hash);
    END IF;
    PERFORM note_decision(d, old, next, jsonb_build_object('tenant_id', tenant, 'operation_id',
        id, 'decided', jsonb_build_object('fence', json_u64(fence))));
    RETURN CASE d.decision WHEN 'released' THEN jsonb_build_object('decision', 'released',
            'operation_id', 'op_' || next.operation_id, 'status', next.status, 'fence', next.fence,
            'attempt', next.attempt)
        WHEN 'not_found' THEN problem('operation_not_found', NULL)
        ELSE problem(d.decision, next) END;
END $$;

-- ---- chaining ----------------------------------------------------------------------------------

-- Chain the evidence of the functions, of at most so many decisions. Each process of Once calls it
-- now and then; one does it at a time. Returns how many were chained.
CREATE FUNCTION chain_decisions(most integer) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER
    SET search_path FROM CURRENT SET extra_float_digits = 1 AS $$
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
        FROM (SELECT 'operation'::record_kind AS kind, was AS status, -1 AS n FROM unchained
                WHERE number = ANY (numbers) AND was IS NOT NULL
            UNION ALL SELECT 'operation', becomes, 1 FROM unchained
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

-- Only the three functions are for others, and those only for roles that are named
-- (once migrate --grant-functions). The rest is called by them with their owner's rights.
REVOKE ALL ON FUNCTION hmac_block, canonical_number, utf16_units, canonical, json_diff, refuse,
    check_name, read_span, session_tenant, version_older, store_now, millis, time_text, json_u64,
    make_operation_id, note_decision, put_record, touch_record, lock_operation, problem,
    conflict_diff, outcome_document, sealed_document, source_of, once_begin, find_operation,
    decide_held, announce, remember_source, read_operation_id, once_seal, once_release,
    chain_decisions FROM PUBLIC;

-- Roles that version 1 was granted to.
DO $$
DECLARE
    grantee text;
BEGIN
    FOR grantee IN SELECT DISTINCT a.grantee::regrole::text FROM pg_proc p, aclexplode(p.proacl) a
            WHERE p.oid = 'keep_partitions'::regproc AND a.grantee <> p.proowner LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION chain_decisions TO %s', grantee);
        EXECUTE format('GRANT SELECT ON unchained, roles TO %s', grantee);
    END LOOP;
    FOR grantee IN SELECT DISTINCT a.grantee::regrole::text FROM pg_class c, aclexplode(c.relacl) a
            WHERE c.oid = 'entries'::regclass AND a.grantee <> c.relowner
                AND a.privilege_type = 'SELECT' LOOP
        EXECUTE format('GRANT SELECT ON unchained, roles TO %s', grantee);
    END LOOP;
END $$;
