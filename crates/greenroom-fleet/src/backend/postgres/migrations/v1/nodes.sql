-- Nodes and their leases.

CREATE FUNCTION fleet_join(r jsonb) RETURNS jsonb LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    n nodes;
    moment bigint;
BEGIN
    INSERT INTO nodes VALUES ((r->>'node')::uuid, r->>'host', 'up', 0, 0, 0, 0) ON CONFLICT (id) DO NOTHING;
    SELECT * INTO n FROM nodes WHERE id = (r->>'node')::uuid FOR UPDATE;
    IF n.host <> r->>'host' THEN
        PERFORM invalid(format('the id %s belongs to another node: make a new id for each node', n.id));
    END IF;
    moment := now_ms();
    IF n.state = 'dead' THEN
        IF EXISTS (SELECT FROM names WHERE node = n.id) THEN
            PERFORM invalid(format('the node %s is dead: join with a new id', n.id));
        END IF;
        n.renewed_at := 0;
    END IF;
    IF n.renewed_at = 0 THEN
        UPDATE nodes SET
            state = 'up', renewals = 0, renewed_at = moment, lease_until = later(moment, (r->>'lease')::numeric),
            capacity = (r->>'capacity')::bigint, asked_to_drain = false
        WHERE id = n.id RETURNING * INTO n;
        -- Ids of processes that ended long ago.
        DELETE FROM nodes d WHERE d.state = 'dead' AND d.renewed_at < moment - 86400000
            AND NOT EXISTS (SELECT FROM names WHERE node = d.id);
    END IF;
    RETURN reply(node_json(n));
END $$;

CREATE FUNCTION fleet_renew(r jsonb) RETURNS jsonb LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    n nodes;
    moment bigint;
BEGIN
    SELECT * INTO n FROM nodes WHERE id = (r->>'node')::uuid AND state <> 'dead' FOR UPDATE;
    IF n.id IS NULL THEN
        RETURN reply('"dead"');
    END IF;
    moment := now_ms();
    UPDATE nodes SET
        renewals = renewals + 1, renewed_at = moment, lease_until = later(moment, (r->>'lease')::numeric),
        state = CASE WHEN (r->>'draining')::boolean THEN 'draining' ELSE state END
    WHERE id = n.id RETURNING * INTO n;
    RETURN reply(jsonb_build_object('kept', node_json(n)));
END $$;

-- An operator's request, of one row. The node finds the mark with its next renewal.
CREATE FUNCTION fleet_ask_to_drain(r jsonb) RETURNS jsonb LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    UPDATE nodes SET asked_to_drain = true WHERE id = (r->>'node')::uuid AND state <> 'dead';
    RETURN reply(to_jsonb(FOUND));
END $$;

-- Tells of names of a node that dies now, if their prompts wait or run. A hint: there may be more names.
CREATE FUNCTION node_dies(node_id uuid) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM tell_change('freed', o.name) FROM (
        SELECT name, queued, running FROM names WHERE node = node_id ORDER BY name LIMIT 256
    ) AS o WHERE o.queued > 0 OR o.running IS NOT NULL;
    UPDATE nodes SET state = 'dead' WHERE id = node_id;
END $$;

CREATE FUNCTION fleet_leave(r jsonb) RETURNS jsonb LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    n nodes;
BEGIN
    SELECT * INTO n FROM nodes WHERE id = (r->>'node')::uuid FOR UPDATE;
    IF n.state <> 'dead' THEN
        PERFORM node_dies(n.id);
    END IF;
    RETURN reply('null');
END $$;

CREATE FUNCTION fleet_declare_dead(r jsonb) RETURNS jsonb LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    n nodes;
    moment bigint;
BEGIN
    SELECT * INTO n FROM nodes WHERE id = (r->>'node')::uuid FOR UPDATE;
    IF n.id IS NULL OR n.state = 'dead' THEN
        RETURN reply('true');
    END IF;
    moment := now_ms();
    -- A clock behind the last renewal was set back, and says nothing about the lease.
    IF n.renewals <> (r->>'renewals')::bigint OR (n.renewed_at <= moment AND moment < n.lease_until) THEN
        RETURN reply('false');
    END IF;
    PERFORM node_dies(n.id);
    RETURN reply('true');
END $$;

CREATE FUNCTION fleet_nodes(r jsonb) RETURNS jsonb LANGUAGE sql VOLATILE AS $$
    SELECT reply(COALESCE((SELECT jsonb_agg(node_json(n) ORDER BY n.id) FROM (
        SELECT * FROM nodes
        WHERE (r->>'after' IS NULL OR id > (r->>'after')::uuid)
            AND (state <> 'dead' OR EXISTS (SELECT FROM names WHERE node = nodes.id))
        ORDER BY id LIMIT LEAST((r->>'limit')::bigint, 1024)
    ) AS n), '[]'))
$$;

CREATE FUNCTION fleet_owned_names(r jsonb) RETURNS jsonb LANGUAGE sql VOLATILE AS $$
    SELECT reply(COALESCE((SELECT jsonb_agg(jsonb_build_array(n.name, n.term, n.claim) ORDER BY n.name) FROM (
        SELECT * FROM names
        WHERE node = (r->>'node')::uuid AND (r->>'after' IS NULL OR name > (r->>'after') COLLATE "C")
        ORDER BY name LIMIT LEAST((r->>'limit')::bigint, 1024)
    ) AS n), '[]'))
$$;
