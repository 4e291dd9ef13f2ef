-- Transcripts: entries under a key of a project, a session and a subpath. A key is any text, so its hashes stand for it in an index.

CREATE SEQUENCE transcript_ids;

-- subpath: NULL for the session's own transcript. last: the number of the last entry. attempt, part: the last append, so that a
-- repeated one is known.
CREATE TABLE transcripts (
    id bigint PRIMARY KEY DEFAULT nextval('transcript_ids'),
    project_hash bytea NOT NULL,
    session_hash bytea NOT NULL,
    subpath_hash bytea NOT NULL,
    session text COLLATE "C" NOT NULL,
    subpath text COLLATE "C",
    modified bigint NOT NULL,
    last bigint NOT NULL,
    attempt uuid,
    part integer,
    UNIQUE (project_hash, session_hash, subpath_hash)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02);

CREATE TABLE entries (
    transcript bigint NOT NULL,
    number bigint NOT NULL,
    uuid_hash bytea,
    json text NOT NULL,
    PRIMARY KEY (transcript, number)
);
CREATE UNIQUE INDEX entries_uuid ON entries (transcript, uuid_hash) WHERE uuid_hash IS NOT NULL;

-- With an owner: writes only while it owns the name, whose row stays locked, and only to the conversation of the name.
CREATE FUNCTION fleet_append_entries(r jsonb) RETURNS jsonb LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    n names;
    t transcripts;
    item jsonb;
BEGIN
    IF r->>'owner' IS NOT NULL THEN
        n := owned(r->'owner');
        IF n.name IS NULL THEN
            RETURN reply('"fenced"');
        ELSIF n.conversation::text <> r->>'project' THEN
            PERFORM invalid('an owner appends to the conversation of its own name only');
        END IF;
    END IF;
    -- Locks the row, so that appends to one key come one after the other.
    INSERT INTO transcripts AS k (project_hash, session_hash, subpath_hash, session, subpath, modified, last)
    VALUES (text_hash(r->>'project'), text_hash(r->>'session'), COALESCE(text_hash(r->>'subpath'), ''),
        r->>'session', r->>'subpath', now_ms(), 0)
    ON CONFLICT (project_hash, session_hash, subpath_hash)
        DO UPDATE SET modified = GREATEST(k.modified, excluded.modified)
    RETURNING k.* INTO t;
    IF t.attempt = (r->>'attempt')::uuid AND t.part >= (r->>'part')::integer THEN
        RETURN reply(done('null'));
    END IF;
    FOR item IN SELECT value FROM jsonb_array_elements(r->'entries') WITH ORDINALITY ORDER BY ordinality LOOP
        INSERT INTO entries (transcript, number, uuid_hash, json)
        VALUES (t.id, t.last + 1, text_hash(item->>0), item->>1)
        ON CONFLICT DO NOTHING;
        IF FOUND THEN
            t.last := t.last + 1;
        END IF;
    END LOOP;
    UPDATE transcripts SET last = t.last, attempt = (r->>'attempt')::uuid, part = (r->>'part')::integer WHERE id = t.id;
    RETURN reply(done('null'));
END $$;

-- A page of the entries of a key: at least one, and no more bytes than the bound beside it.
CREATE FUNCTION fleet_entries(r jsonb) RETURNS jsonb LANGUAGE sql VOLATILE AS $$
    SELECT reply(COALESCE((SELECT jsonb_agg(jsonb_build_array(number, json) ORDER BY number) FROM (
        SELECT number, json, sum(octet_length(json)) OVER (ORDER BY number) - octet_length(json) AS before
        FROM (
            -- The id is found first, so that a page is one range of the index whatever the planner guesses.
            SELECT number, json FROM entries
            WHERE transcript = (
                SELECT id FROM transcripts
                WHERE project_hash = text_hash(r->>'project') AND session_hash = text_hash(r->>'session')
                    AND subpath_hash = COALESCE(text_hash(r->>'subpath'), '')
            ) AND number > (r->>'after')::bigint
            ORDER BY number LIMIT (r->>'limit')::bigint
        ) AS page
    ) AS measured WHERE before < (r->>'bytes')::bigint), '[]'))
$$;

CREATE FUNCTION fleet_stored_sessions(r jsonb) RETURNS jsonb LANGUAGE sql VOLATILE AS $$
    SELECT reply(COALESCE((SELECT jsonb_agg(jsonb_build_array(id, session, modified) ORDER BY id) FROM (
        SELECT id, session, modified FROM transcripts
        WHERE project_hash = text_hash(r->>'project') AND subpath IS NULL AND id > (r->>'after')::bigint
        ORDER BY id LIMIT (r->>'limit')::bigint
    ) AS page), '[]'))
$$;

CREATE FUNCTION fleet_stored_parts(r jsonb) RETURNS jsonb LANGUAGE sql VOLATILE AS $$
    SELECT reply(COALESCE((SELECT jsonb_agg(jsonb_build_array(id, subpath) ORDER BY id) FROM (
        SELECT id, subpath FROM transcripts
        WHERE project_hash = text_hash(r->>'project') AND session_hash = text_hash(r->>'session')
            AND subpath IS NOT NULL AND id > (r->>'after')::bigint
        ORDER BY id LIMIT (r->>'limit')::bigint
    ) AS page), '[]'))
$$;

-- Deletes a project, a session with its parts, or a part. A call removes at most this many entries, and stops
-- with the entry that reaches this many bytes, so that it ends within the statement timeout. `false`: call it again.
CREATE FUNCTION fleet_delete_entries(r jsonb) RETURNS jsonb LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    t transcripts;
    rows_left bigint := 4096;
    bytes_left bigint := 8 << 20;
    removed bigint;
    freed bigint;
BEGIN
    FOR t IN
        SELECT * FROM transcripts
        WHERE project_hash = text_hash(r->>'project')
            AND (r->>'session' IS NULL OR session_hash = text_hash(r->>'session'))
            AND (r->>'subpath' IS NULL OR subpath_hash = text_hash(r->>'subpath'))
        ORDER BY id LIMIT 256 FOR UPDATE
    LOOP
        WITH page AS (
            SELECT number, octet_length(json) AS bytes FROM entries WHERE transcript = t.id ORDER BY number LIMIT rows_left
        ), measured AS (
            SELECT number, bytes, sum(bytes) OVER (ORDER BY number) - bytes AS before FROM page
        ), gone AS (
            DELETE FROM entries WHERE transcript = t.id AND number IN (SELECT number FROM measured WHERE before < bytes_left)
            RETURNING number
        )
        SELECT count(*), COALESCE(sum(bytes), 0) INTO removed, freed FROM gone JOIN measured USING (number);
        rows_left := rows_left - removed;
        bytes_left := bytes_left - freed;
        IF rows_left <= 0 OR bytes_left <= 0 THEN
            RETURN reply('false');
        END IF;
        DELETE FROM transcripts WHERE id = t.id;
    END LOOP;
    -- Found: the loop has removed some, and there may be more.
    RETURN reply(to_jsonb(NOT FOUND));
END $$;
