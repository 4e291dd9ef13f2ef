-- The rows of a fleet, and the counters among them. Keys sort by their bytes.

CREATE TABLE rows (
    key bytea PRIMARY KEY,
    value bytea NOT NULL
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02);

-- A counter is the sum of its parts. A connection adds to a part of its own, as far as there are parts, so few commits wait for one row.
CREATE TABLE counters (
    key bytea NOT NULL,
    part integer NOT NULL,
    value bigint NOT NULL,
    PRIMARY KEY (key, part)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 1000);

-- The name of the channel for hints, which hold text of conversations: whoever knows it can listen.
CREATE TABLE hints (id uuid NOT NULL DEFAULT gen_random_uuid());
INSERT INTO hints DEFAULT VALUES;

-- The server's clock, in milliseconds since 1970.
CREATE FUNCTION now_ms() RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint
$$;

-- Carries a commit out, and answers `true`. `false`: a row has changed, and nothing is written.
--
-- kept: rows that stay as they are expected. changed: rows that are expected to have these values, and are in `put` or `removed`, too.
-- fresh: rows that are expected to be absent, with the values that they get; without a value they stay absent. put, removed: rows that
-- are written whatever they are. counted: counters that are expected to have these sums. cleared: counters that become zero.
-- added: counters that are added to.
--
-- All that is expected is checked under a lock until the commit is durable. Rows are locked in the order of their keys, those of `changed`
-- before those of `kept`. Locks and looks are statements of their own that find each row by its key: a join may be planned for a table that
-- was small, and read all of it later.
CREATE FUNCTION commit_rows(
    kept bytea[], kept_values bytea[], changed bytea[], changed_values bytea[], fresh bytea[], fresh_values bytea[],
    put bytea[], put_values bytea[], removed bytea[], counted bytea[], counts bigint[], cleared bytea[],
    added bytea[], amounts bigint[]
) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    same bigint;
    made bytea[];
    counter bytea;
BEGIN
    SELECT count(*) INTO same FROM (SELECT FROM rows WHERE key = ANY (changed) ORDER BY key FOR UPDATE) AS locked;
    IF same < cardinality(changed) THEN
        RETURN false;
    END IF;
    SELECT count(*) INTO same FROM (SELECT FROM rows WHERE key = ANY (kept) ORDER BY key FOR SHARE) AS locked;
    IF same < cardinality(kept) THEN
        RETURN false;
    END IF;
    SELECT count(*) INTO same FROM unnest(changed || kept, changed_values || kept_values) AS e(key, value)
    WHERE e.value = (SELECT r.value FROM rows r WHERE r.key = e.key);
    IF same < cardinality(changed) + cardinality(kept) THEN
        RETURN false;
    END IF;
    -- Whoever expects a counter excludes the others who do. Somebody who adds to it without a look comes after.
    FOREACH counter IN ARRAY counted LOOP
        PERFORM pg_advisory_xact_lock(hashtextextended(encode(counter, 'hex'), 0));
    END LOOP;
    SELECT count(*) INTO same FROM unnest(counted, counts) AS e(key, sum)
    WHERE e.sum = (SELECT GREATEST(COALESCE(sum(c.value), 0), 0) FROM counters c WHERE c.key = e.key);
    IF same < cardinality(counted) THEN
        RETURN false;
    END IF;
    -- A row that stays absent is there for a moment: another commit that inserts it waits for the end of this one.
    IF cardinality(fresh) > 0 THEN
        WITH inserted AS (
            INSERT INTO rows SELECT f.key, COALESCE(f.value, '') FROM unnest(fresh, fresh_values) AS f(key, value) ORDER BY f.key
            ON CONFLICT DO NOTHING RETURNING key
        ) SELECT array_agg(key) INTO made FROM inserted;
        IF COALESCE(cardinality(made), 0) < cardinality(fresh) THEN
            DELETE FROM rows WHERE key = ANY (made);
            RETURN false;
        END IF;
        DELETE FROM rows WHERE key IN (SELECT f.key FROM unnest(fresh, fresh_values) AS f(key, value) WHERE f.value IS NULL);
    END IF;
    -- From here on the commit happens.
    DELETE FROM rows WHERE key = ANY (removed);
    INSERT INTO rows SELECT p.key, p.value FROM unnest(put, put_values) AS p(key, value) ORDER BY p.key
    ON CONFLICT (key) DO UPDATE SET value = excluded.value;
    IF cardinality(cleared) > 0 THEN
        DELETE FROM counters WHERE key = ANY (cleared);
    END IF;
    INSERT INTO counters AS c SELECT a.key, pg_backend_pid() % 16, a.amount FROM unnest(added, amounts) AS a(key, amount) ORDER BY a.key
    ON CONFLICT (key, part) DO UPDATE SET value = c.value + excluded.value;
    RETURN true;
END $$;

-- `commit_rows`, and the end of its transaction. The locks of a function last until the server has the last bytes of the request, and no
-- timeout of the server ends them if a client is stopped just before.
CREATE PROCEDURE fleet_commit(
    kept bytea[], kept_values bytea[], changed bytea[], changed_values bytea[], fresh bytea[], fresh_values bytea[],
    put bytea[], put_values bytea[], removed bytea[], counted bytea[], counts bigint[], cleared bytea[],
    added bytea[], amounts bigint[], INOUT done boolean
) LANGUAGE plpgsql AS $$
BEGIN
    done := commit_rows(
        kept, kept_values, changed, changed_values, fresh, fresh_values, put, put_values, removed, counted, counts, cleared, added, amounts
    );
    COMMIT;
END $$;

-- Views for people, with plain columns. No part of the fleet reads them.

-- A row as JSON. NUL characters, which jsonb cannot have, are replaced. A row that cannot be read is NULL.
CREATE FUNCTION row_json(value bytea) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN replace(convert_from(value, 'UTF8'), '\u0000', '\ufffd')::jsonb;
EXCEPTION WHEN OTHERS THEN
    RETURN NULL;
END $$;

-- A moment in milliseconds since 1970. Moments after the year 9999 are infinite.
CREATE FUNCTION moment(ms jsonb) RETURNS timestamptz LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN ms::numeric < 253402300800000 THEN to_timestamp(ms::numeric / 1000) ELSE 'infinity' END
$$;

-- Each view reads the rows whose keys begin with the byte of a table; key.rs has the bytes.
CREATE VIEW names AS
SELECT split_part(v->>'name', '/', 1) AS tenant, substr(v->>'name', strpos(v->>'name', '/') + 1) AS name, v->>'profile' AS profile, v->>'host' AS host,
    v->'state'->>'is' AS state, (v->'state'->>'node')::uuid AS node,
    COALESCE(v->'state'->>'why', v->>'quarantine') AS why, (v->>'queued')::integer AS queued,
    (v->>'running')::uuid AS running, (v->>'term')::bigint AS term,
    (v->>'conversation')::uuid AS conversation, moment(v->'created_at') AS created_at, v->'labels' AS labels
FROM (SELECT row_json(value) AS v FROM rows WHERE key >= '\x02' AND key < '\x03') AS r;

CREATE VIEW prompts AS
SELECT encode(substr(r.key, 2), 'hex')::uuid AS id, split_part(v->>'name', '/', 1) AS tenant,
    substr(v->>'name', strpos(v->>'name', '/') + 1) AS name, v->>'key' AS key, v->'state'->>'is' AS state,
    moment(v->'accepted_at') AS accepted_at, moment(v->'due_at') AS due_at, moment(v->'expires_at') AS expires_at,
    moment(v->'state'->'at') AS state_since, (v->>'begins')::integer AS begins, (v->>'last_seq')::bigint AS messages,
    v->'labels' AS labels
FROM (SELECT key, row_json(value) AS v FROM rows WHERE key >= '\x04' AND key < '\x05') AS r;

CREATE VIEW outcomes AS
SELECT encode(substr(o.key, 2), 'hex')::uuid AS prompt, split_part(p.v->>'name', '/', 1) AS tenant,
    substr(p.v->>'name', strpos(p.v->>'name', '/') + 1) AS name, o.v->>'is' AS outcome,
    COALESCE(o.v->>'message', o.v->'by'->>'who', o.v->'why'->'dropped'->>'why', o.v->>'why') AS why, moment(p.v->'state'->'at') AS ended_at,
    (p.v->'usage'->>'cost')::numeric / 1e6 AS cost_usd, (p.v->'usage'->>'input')::bigint AS input_tokens,
    (p.v->'usage'->>'output')::bigint AS output_tokens, (p.v->'usage'->>'cache_read')::bigint AS cache_read_tokens,
    (p.v->'usage'->>'cache_creation')::bigint AS cache_creation_tokens
FROM (SELECT key, row_json(value) AS v FROM rows WHERE key >= '\x06' AND key < '\x07') AS o
JOIN (SELECT key, row_json(value) AS v FROM rows WHERE key >= '\x04' AND key < '\x05') AS p
    ON p.key = '\x04'::bytea || substr(o.key, 2);

CREATE VIEW spend AS
SELECT convert_from(name, 'UTF8') AS tenant,
    moment(row_json(t.value)->'period') AS period, spent / 1e6 AS spent_usd, reserved / 1e6 AS reserved_usd
FROM (
    SELECT substr(key, 2) AS tenant, substr(key, 2, length(key) - 3) AS name,
        GREATEST(COALESCE(sum(value) FILTER (WHERE get_byte(key, 0) = 29), 0), 0) AS spent,
        GREATEST(COALESCE(sum(value) FILTER (WHERE get_byte(key, 0) = 30), 0), 0) AS reserved
    FROM counters WHERE key >= '\x1d' AND key < '\x1f' GROUP BY 1, 2
) AS s LEFT JOIN rows t ON t.key = '\x0c'::bytea || s.tenant;

-- A number of eight bytes, as keys have it.
CREATE FUNCTION key_number(part bytea) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT ('x' || encode(part, 'hex'))::bit(64)::bigint
$$;

CREATE VIEW usage AS
SELECT convert_from(substr(key, 10, length(key) - 19), 'UTF8') AS tenant, moment(to_jsonb(key_number(substr(key, 2, 8)))) AS hour,
    COALESCE(sum(value) FILTER (WHERE get_byte(key, length(key) - 1) = 0), 0) AS turns,
    COALESCE(sum(value) FILTER (WHERE get_byte(key, length(key) - 1) = 1), 0) AS unmetered,
    COALESCE(sum(value) FILTER (WHERE get_byte(key, length(key) - 1) = 2), 0) / 1e6 AS cost_usd,
    COALESCE(sum(value) FILTER (WHERE get_byte(key, length(key) - 1) = 3), 0) AS input_tokens,
    COALESCE(sum(value) FILTER (WHERE get_byte(key, length(key) - 1) = 4), 0) AS output_tokens,
    COALESCE(sum(value) FILTER (WHERE get_byte(key, length(key) - 1) = 5), 0) AS cache_read_tokens,
    COALESCE(sum(value) FILTER (WHERE get_byte(key, length(key) - 1) = 6), 0) AS cache_creation_tokens
FROM counters WHERE key >= '\x45' AND key < '\x46' GROUP BY 1, 2;

CREATE VIEW feed AS
SELECT key_number(substr(r.key, 2, 8)) AS epoch, split_part(v->>'name', '/', 1) AS tenant,
    substr(v->>'name', strpos(v->>'name', '/') + 1) AS name, key_number(substr(r.key, length(r.key) - 7)) AS number,
    moment(v->'at') AS at, v->>'event' AS event, (v->>'prompt')::uuid AS prompt, (v->>'question')::uuid AS question,
    COALESCE(v->>'outcome', v->>'why') AS what
FROM (SELECT key, row_json(value) AS v FROM rows WHERE key >= '\x4a' AND key < '\x4b') AS r;
