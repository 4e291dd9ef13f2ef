-- Prompts expire, and outcomes are forgotten after their time.

CREATE FUNCTION fleet_expire_prompts(r jsonb) RETURNS jsonb LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    moment bigint := now_ms();
    due record;
    n names;
    p prompts;
    expired bigint := 0;
BEGIN
    FOR due IN
        SELECT q.id, q.name FROM (
            SELECT id, name FROM prompts WHERE state = 'queued' AND begins = 0 AND expires_at <= moment
            ORDER BY expires_at, id LIMIT (r->>'limit')::bigint
        ) AS q ORDER BY q.name, q.id
    LOOP
        n := lock_name(due.name);
        p := locked_prompt(due.id);
        IF p.state = 'queued' AND p.begins = 0 THEN
            PERFORM end_waiting(n, p, 'unsent', outcome_unsent('expired'));
        END IF;
        expired := expired + 1;
    END LOOP;
    RETURN reply(to_jsonb(expired));
END $$;

-- A call removes at most this many messages and questions, and stops with the message, the prompt or the outcome that reaches this
-- many bytes, so that it ends within the statement timeout. A prompt of more is worked at again.
CREATE FUNCTION fleet_forget(r jsonb) RETURNS jsonb LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    p prompts;
    rows_left bigint := 4096;
    bytes_left bigint := 8 << 20;
    removed bigint;
    freed bigint;
    worked bigint := 0;
BEGIN
    FOR p IN
        SELECT * FROM prompts WHERE state = 'ended' AND at < (r->>'before')::bigint
        ORDER BY at, id LIMIT (r->>'limit')::bigint FOR UPDATE SKIP LOCKED
    LOOP
        worked := worked + 1;
        -- A session of the same name that was made anew may use the key for another prompt.
        DELETE FROM keys WHERE name = p.name AND hash = text_hash(p.key) AND prompt = p.id;
        WITH page AS (
            SELECT seq, octet_length(json) AS bytes FROM messages WHERE prompt = p.id ORDER BY seq LIMIT rows_left
        ), measured AS (
            SELECT seq, bytes, sum(bytes) OVER (ORDER BY seq) - bytes AS before FROM page
        ), gone AS (
            DELETE FROM messages WHERE prompt = p.id AND seq IN (SELECT seq FROM measured WHERE before < bytes_left)
            RETURNING seq
        )
        SELECT count(*), COALESCE(sum(bytes), 0) INTO removed, freed FROM gone JOIN measured USING (seq);
        rows_left := rows_left - removed;
        bytes_left := bytes_left - freed;
        DELETE FROM questions WHERE id IN (SELECT id FROM questions WHERE prompt = p.id LIMIT rows_left);
        GET DIAGNOSTICS removed = ROW_COUNT;
        rows_left := rows_left - removed;
        EXIT WHEN rows_left <= 0 OR bytes_left <= 0;
        DELETE FROM contents WHERE prompt = p.id
            RETURNING octet_length(content) + COALESCE(octet_length(continuation), 0) INTO freed;
        bytes_left := bytes_left - COALESCE(freed, 0);
        DELETE FROM outcomes WHERE prompt = p.id RETURNING octet_length(outcome) INTO freed;
        bytes_left := bytes_left - COALESCE(freed, 0);
        DELETE FROM prompts WHERE id = p.id;
        EXIT WHEN bytes_left <= 0;
    END LOOP;
    RETURN reply(to_jsonb(worked));
END $$;

CREATE FUNCTION fleet_next_expiry(r jsonb) RETURNS jsonb LANGUAGE sql VOLATILE AS $$
    SELECT reply(to_jsonb(LEAST(
        (SELECT min(expires_at) FROM prompts WHERE state = 'queued' AND begins = 0),
        (SELECT min(deadline) FROM questions WHERE decision IS NULL))))
$$;

CREATE FUNCTION fleet_next_due(r jsonb) RETURNS jsonb LANGUAGE sql VOLATILE AS $$
    SELECT reply(to_jsonb((
        SELECT min(due_at) FROM prompts WHERE state = 'queued' AND NOT ready AND due_at > (r->>'after')::bigint)))
$$;
