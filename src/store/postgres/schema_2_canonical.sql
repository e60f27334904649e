-- Version 2, first part: JSON in canonical form (RFC 8785) and differences of JSON (RFC 6902), for
-- the functions of schema_2.sql.

-- ---- canonical JSON ----------------------------------------------------------------------------

-- A number as RFC 8785 writes it. One whose decimal value changes on the way through a double is
-- refused: nobody could compare it with what the engine hashes.
CREATE FUNCTION canonical_number(value numeric) RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT AS $$
DECLARE
    double float8;
    shortest numeric;
    shorter numeric;
    place integer; -- of the last digit: after the decimal point, or before it when negative
    digits text;
    point integer; -- digits before the decimal point
BEGIN
    IF value = trunc(value) AND abs(value) <= 9007199254740992 THEN
        RETURN trunc(value)::text;
    END IF;
    BEGIN
        double := value::float8;
        shortest := double::text::numeric;
        -- The server prints a digit too many where the shortest is exactly between two doubles.
        LOOP
            place := scale(trim_scale(shortest));
            IF place = 0 THEN
                place := length(rtrim(trunc(shortest)::text, '0')) - length(trunc(shortest)::text);
            END IF;
            shorter := round(shortest, place - 1);
            EXIT WHEN shorter = shortest OR shorter::float8 <> double;
            shortest := shorter;
        END LOOP;
    EXCEPTION WHEN numeric_value_out_of_range THEN
        NULL; -- the value itself: shortest is NULL; a rounded one: shortest is what it was
    END;
    IF value IS DISTINCT FROM shortest THEN
        RAISE EXCEPTION 'the number % does not survive as a double', left(value::text, 40)
            USING ERRCODE = '22023', HINT = 'give it as a string, or give a fingerprint';
    END IF;
    digits := trim_scale(abs(value))::text;
    point := strpos(digits || '.', '.') - 1;
    digits := replace(digits, '.', '');
    point := point - (length(digits) - length(ltrim(digits, '0')));
    digits := rtrim(ltrim(digits, '0'), '0');
    RETURN CASE WHEN value < 0 THEN '-' ELSE '' END || CASE
        WHEN point > 21 OR point < -5 THEN left(digits, 1)
            || CASE WHEN length(digits) > 1 THEN '.' || substr(digits, 2) ELSE '' END || 'e'
            || CASE WHEN point > 0 THEN '+' ELSE '-' END || abs(point - 1)
        WHEN point <= 0 THEN '0.' || repeat('0', -point) || digits
        WHEN length(digits) <= point THEN digits || repeat('0', point - length(digits))
        ELSE left(digits, point) || '.' || substr(digits, point + 1) END;
END $$;

-- A name in UTF-16 units, which is how RFC 8785 sorts names.
CREATE FUNCTION utf16_units(name text) RETURNS text LANGUAGE sql IMMUTABLE STRICT
RETURN (SELECT string_agg(CASE WHEN code >= 65536
        THEN to_hex(55296 + ((code - 65536) >> 10)) || to_hex(56320 + ((code - 65536) & 1023))
        ELSE lpad(to_hex(code), 4, '0') END, '' ORDER BY at)
    FROM regexp_split_to_table(name, '') WITH ORDINALITY AS letters (letter, at), ascii(letter)
        AS code);

-- The canonical form of a value (RFC 8785).
CREATE FUNCTION canonical(value jsonb) RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT AS $$
DECLARE
    wide boolean; -- the order of code points is not that of UTF-16 units
BEGIN
    CASE jsonb_typeof(value)
        WHEN 'object' THEN
            wide := value::text ~ '[\U00010000-\U0010FFFF]';
            RETURN '{' || coalesce((SELECT string_agg(to_json(name)::text || ':' || canonical(item),
                ',' ORDER BY CASE WHEN wide THEN utf16_units(name) ELSE name END COLLATE "C")
                FROM jsonb_each(value) AS members (name, item)), '') || '}';
        WHEN 'array' THEN
            RETURN '[' || coalesce((SELECT string_agg(canonical(item), ',' ORDER BY at)
                FROM jsonb_array_elements(value) WITH ORDINALITY AS items (item, at)), '') || ']';
        WHEN 'string' THEN RETURN to_json(value #>> '{}')::text;
        WHEN 'number' THEN RETURN canonical_number((value #>> '{}')::numeric);
        ELSE RETURN value::text;
    END CASE;
END $$;

-- How to come from one value to the other (RFC 6902), as the API's `diff`.
CREATE FUNCTION json_diff(before jsonb, after jsonb, path text) RETURNS jsonb LANGUAGE plpgsql
    IMMUTABLE AS $$
DECLARE
    changes jsonb := '[]';
    name text;
    at text;
    old_count integer;
    new_count integer;
    head integer := 0;
    tail integer := 0;
BEGIN
    IF before = after THEN
        RETURN changes;
    ELSIF jsonb_typeof(before) = 'object' AND jsonb_typeof(after) = 'object' THEN
        FOR name IN SELECT n FROM jsonb_object_keys(before || after) AS n
                ORDER BY utf16_units(n) COLLATE "C" LOOP
            at := path || '/' || replace(replace(name, '~', '~0'), '/', '~1');
            changes := changes || CASE
                WHEN NOT before ? name THEN jsonb_build_array(jsonb_build_object('op', 'add',
                    'path', at, 'value', after -> name))
                WHEN NOT after ? name THEN
                    jsonb_build_array(jsonb_build_object('op', 'remove', 'path', at))
                ELSE json_diff(before -> name, after -> name, at) END;
        END LOOP;
        RETURN changes;
    ELSIF jsonb_typeof(before) <> 'array' OR jsonb_typeof(after) <> 'array' THEN
        RETURN jsonb_build_array(jsonb_build_object('op', 'replace', 'path', path, 'value', after));
    END IF;
    old_count := jsonb_array_length(before);
    new_count := jsonb_array_length(after);
    WHILE head < least(old_count, new_count) AND before -> head = after -> head LOOP
        head := head + 1;
    END LOOP;
    WHILE tail < least(old_count, new_count) - head
            AND before -> (old_count - 1 - tail) = after -> (new_count - 1 - tail) LOOP
        tail := tail + 1;
    END LOOP;
    FOR i IN head .. least(old_count, new_count) - tail - 1 LOOP
        changes := changes || json_diff(before -> i, after -> i, path || '/' || i);
    END LOOP;
    FOR i IN least(old_count, new_count) - tail .. new_count - tail - 1 LOOP
        changes := changes || jsonb_build_object('op', 'add', 'path', path || '/' || i, 'value',
            after -> i);
    END LOOP;
    FOR i IN REVERSE old_count - tail - 1 .. least(old_count, new_count) - tail LOOP
        changes := changes || jsonb_build_object('op', 'remove', 'path', path || '/' || i);
    END LOOP;
    RETURN changes;
END $$;

