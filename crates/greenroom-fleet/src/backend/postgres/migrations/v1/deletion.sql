-- Deletions of names.

-- Ends the first 256 prompts of a name that is being deleted. Returns the name, which is written.
CREATE FUNCTION end_queue(n names) RETURNS names LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    p prompts;
BEGIN
    FOR p IN SELECT * FROM prompts WHERE name = n.name AND state = 'queued' ORDER BY ord LIMIT 256 LOOP
        -- A CLI has begun with a prompt that waits to go on with its continuation.
        IF p.begins = 0 THEN
            n := end_waiting(n, p, 'unsent', outcome_unsent('deleted'));
        ELSE
            n := end_waiting(n, p, 'interrupted', outcome_by_user());
        END IF;
    END LOOP;
    RETURN n;
END $$;

CREATE FUNCTION fleet_delete(r jsonb) RETURNS jsonb LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    n names := lock_name(r->>'name');
BEGIN
    IF n.name IS NULL THEN
        RETURN reply('"gone"');
    ELSIF n.state = 'owned' AND is_alive(n.node) THEN
        RETURN reply(jsonb_build_object('owned', n.node));
    ELSIF n.state = 'deleting' THEN
        RETURN reply(jsonb_build_object('marked', name_json(n)));
    END IF;
    n := lose_turn(n);
    n.state := 'deleting';
    n.node := NULL; n.claim := NULL; n.since := now_ms(); n.why := NULL;
    PERFORM put_name(n);
    PERFORM tell_name('deleting', n);
    n := end_queue(n);
    RETURN reply(jsonb_build_object('marked', name_json(n)));
END $$;

CREATE FUNCTION fleet_deleted(r jsonb) RETURNS jsonb LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    n names := lock_name(r->>'name');
BEGIN
    IF n.state IS DISTINCT FROM 'deleting' THEN
        RETURN reply('true');
    END IF;
    n := end_queue(n);
    -- Keys that `fleet_forget` removes at this moment are passed over: it may wait for a key that this request has removed.
    DELETE FROM keys WHERE name = n.name
        AND hash IN (SELECT hash FROM keys WHERE name = n.name LIMIT 256 FOR UPDATE SKIP LOCKED);
    IF n.queued > 0 OR EXISTS (SELECT FROM keys WHERE name = n.name)
        OR EXISTS (SELECT FROM prompts WHERE name = n.name AND state = 'queued')
    THEN
        RETURN reply('false');
    END IF;
    DELETE FROM names WHERE name = n.name;
    PERFORM tell_name('deleted', n);
    RETURN reply('true');
END $$;

CREATE FUNCTION fleet_deleting(r jsonb) RETURNS jsonb LANGUAGE sql VOLATILE AS $$
    SELECT reply(COALESCE((SELECT jsonb_agg(name ORDER BY name) FROM (
        SELECT name FROM names WHERE state = 'deleting' ORDER BY name LIMIT (r->>'limit')::bigint
    ) AS n), '[]'))
$$;
