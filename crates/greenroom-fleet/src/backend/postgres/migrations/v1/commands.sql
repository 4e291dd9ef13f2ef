-- Commands to the owner of a name: each is taken once at most, and only by the owner for which it was put.
--
-- Locks: the row of the name, then the row of the command. So the bound for a name is exact; puts for several names of a node at
-- once may exceed the node's bound by their number.

CREATE TABLE commands (
    id uuid PRIMARY KEY,
    name text COLLATE "C" NOT NULL,
    node uuid NOT NULL,
    term bigint NOT NULL,
    kind text NOT NULL CHECK (kind IN ('interrupt', 'passivate', 'make_way')),
    prompt uuid,
    deadline bigint NOT NULL,
    state text NOT NULL CHECK (state IN ('waiting', 'taken', 'ended')),
    result text,
    why text,
    attempt uuid,
    at bigint
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02);
CREATE INDEX commands_of_node ON commands (node, name, id) WHERE state <> 'ended';
CREATE INDEX commands_deadlines ON commands (deadline, id);

CREATE FUNCTION command_json(c commands) RETURNS jsonb LANGUAGE sql IMMUTABLE AS $$
    SELECT jsonb_build_object(
        'id', c.id, 'name', c.name, 'node', c.node, 'term', c.term, 'deadline', c.deadline,
        'kind', CASE c.kind
            WHEN 'interrupt' THEN jsonb_build_object('is', c.kind, 'prompt', c.prompt)
            ELSE jsonb_build_object('is', c.kind)
        END,
        'state', CASE c.state
            WHEN 'taken' THEN jsonb_build_object('is', c.state, 'attempt', c.attempt, 'at', c.at)
            WHEN 'ended' THEN jsonb_build_object(
                'is', c.state, 'attempt', c.attempt, 'at', c.at,
                'result', CASE c.result
                    WHEN 'failed' THEN jsonb_build_object('is', c.result, 'why', c.why)
                    ELSE jsonb_build_object('is', c.result)
                END)
            ELSE jsonb_build_object('is', c.state)
        END)
$$;

CREATE FUNCTION fleet_put_command(r jsonb) RETURNS jsonb LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    n names := owned(r);
    c commands;
BEGIN
    SELECT * INTO c FROM commands WHERE id = (r->>'command')::uuid;
    IF c.id IS NOT NULL THEN
        IF c.name <> r->>'name' OR c.node <> (r->>'node')::uuid OR c.term <> (r->>'term')::bigint
            OR c.kind <> r->>'kind' OR c.prompt IS DISTINCT FROM (r->>'prompt')::uuid
        THEN
            PERFORM invalid(format('the id %s belongs to another command: make a new id for each command', c.id));
        END IF;
        RETURN reply(jsonb_build_object('put', command_json(c)));
    ELSIF n.name IS NULL OR (r->>'deadline')::bigint <= now_ms()
        OR (r->>'kind' = 'interrupt' AND n.running IS DISTINCT FROM (r->>'prompt')::uuid)
    THEN
        RETURN reply('"gone"');
    ELSIF (SELECT count(*) FROM commands WHERE node = n.node AND state <> 'ended') >= (r->>'most_of_node')::bigint
        OR (SELECT count(*) FROM commands WHERE node = n.node AND name = n.name AND state <> 'ended')
            >= (r->>'most_of_name')::bigint
    THEN
        RETURN reply('"full"');
    END IF;
    INSERT INTO commands VALUES (
        (r->>'command')::uuid, n.name, n.node, n.term, r->>'kind', (r->>'prompt')::uuid, (r->>'deadline')::bigint,
        'waiting'
    ) ON CONFLICT (id) DO NOTHING RETURNING * INTO c;
    IF c.id IS NULL THEN
        PERFORM invalid(format('the id %s belongs to another command: make a new id for each command', r->>'command'));
    END IF;
    PERFORM tell_change('commanded', c.node::text);
    RETURN reply(jsonb_build_object('put', command_json(c)));
END $$;

CREATE FUNCTION fleet_commands(r jsonb) RETURNS jsonb LANGUAGE sql VOLATILE AS $$
    SELECT reply(COALESCE((SELECT jsonb_agg(command_json(c) ORDER BY c.name, c.id) FROM (
        -- The first condition on the state is that of the index.
        SELECT * FROM commands WHERE node = (r->>'node')::uuid AND state <> 'ended' AND state = 'waiting'
        ORDER BY name, id LIMIT LEAST((r->>'limit')::bigint, (r->>'most_of_node')::bigint)
    ) AS c), '[]'))
$$;

CREATE FUNCTION end_command(c commands, by uuid, outcome text, cause text) RETURNS commands LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    UPDATE commands SET state = 'ended', result = outcome, why = cause, attempt = by, at = now_ms()
    WHERE id = c.id RETURNING * INTO c;
    PERFORM tell_change('command_ended', c.id::text);
    RETURN c;
END $$;

CREATE FUNCTION locked_command(wanted uuid) RETURNS commands LANGUAGE sql VOLATILE AS $$
    SELECT * FROM commands WHERE id = wanted FOR UPDATE
$$;

CREATE FUNCTION fleet_take_command(r jsonb) RETURNS jsonb LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    n names := owned(r->'owner');
    c commands;
BEGIN
    IF n.name IS NULL THEN
        RETURN reply('"fenced"');
    END IF;
    c := locked_command((r->>'command')::uuid);
    IF c.id IS NULL OR c.name <> n.name OR c.node <> n.node OR c.term <> n.term OR c.state = 'ended' THEN
        RETURN reply(done('false'));
    ELSIF c.state = 'taken' THEN
        RETURN reply(done(to_jsonb(c.attempt = (r->>'attempt')::uuid)));
    ELSIF c.deadline <= now_ms() THEN
        PERFORM end_command(c, NULL, 'withdrawn', NULL);
        RETURN reply(done('false'));
    END IF;
    UPDATE commands SET state = 'taken', attempt = (r->>'attempt')::uuid, at = now_ms() WHERE id = c.id;
    RETURN reply(done('true'));
END $$;

CREATE FUNCTION fleet_finish_command(r jsonb) RETURNS jsonb LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    c commands := locked_command((r->>'command')::uuid);
BEGIN
    IF c.state = 'taken' AND c.attempt = (r->>'attempt')::uuid THEN
        PERFORM end_command(c, c.attempt, r->'result'->>'is', r->'result'->>'why');
        RETURN reply('true');
    END IF;
    RETURN reply(to_jsonb(COALESCE(c.state = 'ended' AND c.attempt = (r->>'attempt')::uuid
        AND c.result = r->'result'->>'is' AND c.why IS NOT DISTINCT FROM r->'result'->>'why', false)));
END $$;

CREATE FUNCTION fleet_withdraw_command(r jsonb) RETURNS jsonb LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    c commands := locked_command((r->>'command')::uuid);
BEGIN
    IF c.id IS NULL THEN
        RETURN reply('null');
    ELSIF c.state = 'waiting' THEN
        c := end_command(c, NULL, 'withdrawn', NULL);
    END IF;
    RETURN reply(command_json(c));
END $$;

CREATE FUNCTION fleet_command(r jsonb) RETURNS jsonb LANGUAGE sql VOLATILE AS $$
    SELECT reply((SELECT command_json(c) FROM commands c WHERE id = (r->>'command')::uuid))
$$;

CREATE FUNCTION fleet_forget_commands(r jsonb) RETURNS jsonb LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    forgotten bigint;
BEGIN
    DELETE FROM commands WHERE id IN (
        SELECT id FROM commands WHERE deadline < (r->>'before')::bigint
        ORDER BY deadline, id LIMIT (r->>'limit')::bigint FOR UPDATE SKIP LOCKED);
    GET DIAGNOSTICS forgotten = ROW_COUNT;
    RETURN reply(to_jsonb(forgotten));
END $$;
