-- Owners of names: claim, release, quarantine, recovery of names whose owners are lost.

-- The turn that an owner had begun and not ended goes on with its continuation, or ends as interrupted. The caller writes the
-- name's record.
CREATE FUNCTION give_up_turn(n names) RETURNS names LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    p prompts := locked_prompt(n.running);
BEGIN
    n.running := NULL;
    IF p.state IS DISTINCT FROM 'begun' THEN
        RETURN n;
    END IF;
    -- The money that was reserved for the turn stays reserved: nobody knows what the turn has cost.
    p.reserved := 0;
    IF p.continuations > 0 THEN
        UPDATE prompts SET state = 'queued', term = NULL, attempt = NULL, at = NULL, reserved = 0, ready = true,
            continuations = continuations - 1 WHERE id = p.id;
        n.continues := COALESCE(n.continues, p.id);
        n.queued := n.queued + 1;
        PERFORM end_questions(p.id);
        PERFORM count_queued(p.tenant, p.name, 1);
        PERFORM tell_change('queued', p.name);
        PERFORM tell(jsonb_build_object('is', 'continues', 'name', p.name, 'tenant', p.tenant, 'prompt', p.id));
        RETURN n;
    END IF;
    PERFORM end_prompt(p, p.attempt, 'interrupted',
        '{"is":"interrupted","by":{"who":"owner_lost","term":' || p.term || '}}');
    RETURN n;
END $$;

-- The same for an owner that was lost, which is counted.
CREATE FUNCTION lose_turn(n names) RETURNS names LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    ran boolean := n.running IS NOT NULL;
BEGIN
    n := give_up_turn(n);
    n.losses := n.losses + ran::integer;
    RETURN n;
END $$;

-- The reason to quarantine a name whose owner is gone: one that the owner has left, or lost owners in a row.
CREATE FUNCTION to_quarantine(n names, losses bigint) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT COALESCE(n.quarantine, CASE WHEN n.losses >= GREATEST(losses, 1)
        THEN format('%s owners in a row were lost while a turn of this session ran', n.losses) END)
$$;

CREATE FUNCTION fleet_claim(r jsonb) RETURNS jsonb LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    n names;
    claimant nodes;
    reason text;
BEGIN
    n := lock_name(r->>'name');
    SELECT * INTO claimant FROM nodes WHERE id = (r->>'node')::uuid AND state <> 'dead';
    IF claimant.id IS NULL THEN
        RETURN reply('"node_down"');
    ELSIF n.name IS NULL OR n.state = 'deleting' THEN
        RETURN reply('"gone"');
    ELSIF n.state = 'owned' AND n.claim = (r->>'attempt')::uuid AND n.node = claimant.id THEN
        RETURN reply(jsonb_build_object('won', jsonb_build_object('record', name_json(n), 'continues', n.continues)));
    ELSIF n.state = 'owned' AND is_alive(n.node) THEN
        RETURN reply(jsonb_build_object('elsewhere', n.node));
    ELSIF n.state = 'quarantined' THEN
        RETURN reply(jsonb_build_object('quarantined', n.why));
    ELSIF n.host <> claimant.host THEN
        RETURN reply(jsonb_build_object('other_host', n.host));
    ELSIF claimant.state <> 'up' THEN
        RETURN reply('"node_down"');
    END IF;
    n := lose_turn(n);
    reason := to_quarantine(n, (r->>'losses')::bigint);
    IF reason IS NOT NULL THEN
        PERFORM set_quarantined(n, reason);
        RETURN reply(jsonb_build_object('quarantined', reason));
    END IF;
    n.term := nextval('terms');
    n.state := 'owned';
    n.node := claimant.id; n.claim := (r->>'attempt')::uuid; n.since := now_ms(); n.why := NULL;
    PERFORM put_name(n);
    RETURN reply(jsonb_build_object('won', jsonb_build_object('record', name_json(n), 'continues', n.continues)));
END $$;

-- The answer to an owner that repeats its release: done, unless somebody else has owned the name since. A dead node may have
-- lost the name instead.
CREATE FUNCTION released_before(owner jsonb) RETURNS names LANGUAGE sql STABLE AS $$
    SELECT n.* FROM names n
    WHERE n.name = owner->>'name' AND n.term = (owner->>'term')::bigint AND n.state <> 'owned'
        AND is_alive((owner->>'node')::uuid)
$$;

CREATE FUNCTION fleet_release(r jsonb) RETURNS jsonb LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    n names := owned(r);
BEGIN
    IF n.name IS NULL THEN
        n := released_before(r);
        RETURN reply(CASE WHEN n.name IS NULL THEN '"fenced"' ELSE done(to_jsonb(n.queued > 0)) END);
    END IF;
    DELETE FROM processes WHERE name = n.name AND term = n.term;
    n := give_up_turn(n);
    IF n.quarantine IS NULL THEN
        PERFORM set_free(n);
    ELSE
        PERFORM set_quarantined(n, n.quarantine);
    END IF;
    RETURN reply(done(to_jsonb(n.queued > 0)));
END $$;

CREATE FUNCTION fleet_activation_failed(r jsonb) RETURNS jsonb LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    n names := owned(r->'owner');
    moment bigint;
    failed integer;
BEGIN
    IF n.name IS NULL THEN
        n := released_before(r->'owner');
        IF n.name IS NULL THEN
            RETURN reply('"fenced"');
        ELSIF n.state = 'quarantined' THEN
            RETURN reply(done('"quarantined"'));
        END IF;
        RETURN reply(done(jsonb_build_object('free', cardinality(n.failures))));
    END IF;
    DELETE FROM processes WHERE name = n.name AND term = n.term;
    n := give_up_turn(n);
    moment := now_ms();
    n.failures := ARRAY(SELECT f FROM unnest(n.failures) AS f WHERE moment - f < (r->>'period')::numeric) || moment;
    failed := cardinality(n.failures);
    IF n.quarantine IS NOT NULL THEN
        PERFORM set_quarantined(n, n.quarantine);
        RETURN reply(done('"quarantined"'));
    END IF;
    IF failed >= GREATEST((r->>'intensity')::bigint, 1) THEN
        PERFORM set_quarantined(n, CASE WHEN (r->>'intensity')::bigint <= 1 THEN r->>'why' ELSE
            format('%s activations failed within %s; the last one: %s', failed, r->>'period_in_words', r->>'why') END);
        RETURN reply(done('"quarantined"'));
    END IF;
    PERFORM set_free(n);
    RETURN reply(done(jsonb_build_object('free', failed)));
END $$;

CREATE FUNCTION fleet_quarantine(r jsonb) RETURNS jsonb LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    n names := lock_name(r->>'name');
BEGIN
    IF n.name IS NULL OR n.state = 'deleting' THEN
        RETURN reply('"gone"');
    ELSIF n.state = 'owned' AND is_alive(n.node) THEN
        RETURN reply(jsonb_build_object('owned', n.node));
    ELSIF n.state <> 'quarantined' THEN
        PERFORM set_quarantined(lose_turn(n), r->>'why');
    END IF;
    RETURN reply('"done"');
END $$;

CREATE FUNCTION fleet_unquarantine(r jsonb) RETURNS jsonb LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    n names := lock_name(r->>'name');
BEGIN
    IF n.state IS DISTINCT FROM 'quarantined' THEN
        RETURN reply('false');
    END IF;
    n.failures := '{}';
    n.losses := 0;
    PERFORM set_free(n);
    PERFORM tell_name('unquarantined', n);
    RETURN reply('true');
END $$;

CREATE FUNCTION fleet_recover(r jsonb) RETURNS jsonb LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    n names;
    reason text;
    recovered jsonb := '[]';
BEGIN
    -- Names that another node recovers at this moment are passed over. The oldest prompts come first.
    FOR n IN
        SELECT m.* FROM names m JOIN nodes d ON d.id = m.node
        WHERE d.state = 'dead'
        ORDER BY (SELECT min(p.ord) FROM prompts p WHERE p.name = m.name AND p.state = 'queued') NULLS LAST, m.name
        LIMIT LEAST((r->>'limit')::bigint, 1024)
        FOR NO KEY UPDATE OF m SKIP LOCKED
    LOOP
        n := lose_turn(n);
        reason := to_quarantine(n, (r->>'losses')::bigint);
        IF reason IS NOT NULL THEN
            PERFORM set_quarantined(n, reason);
        ELSE
            PERFORM set_free(n);
            PERFORM tell_name('recovered', n);
        END IF;
        recovered := recovered || to_jsonb(n.name);
    END LOOP;
    RETURN reply(recovered);
END $$;

CREATE FUNCTION fleet_record_process(r jsonb) RETURNS jsonb LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    n names := owned(r->'owner');
BEGIN
    IF n.name IS NULL THEN
        RETURN reply('"fenced"');
    ELSIF r->>'process' IS NULL THEN
        DELETE FROM processes WHERE name = n.name AND term = n.term;
    ELSE
        INSERT INTO processes AS p
        VALUES (n.name, n.term, n.node, COALESCE((SELECT host FROM nodes WHERE id = n.node), ''), r->>'process')
        ON CONFLICT (name, term) DO UPDATE SET process = excluded.process;
    END IF;
    RETURN reply(done('null'));
END $$;

CREATE FUNCTION is_owner(p processes) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT EXISTS (SELECT FROM names WHERE name = p.name AND node = p.node AND term = p.term) AND is_alive(p.node)
$$;

CREATE FUNCTION fleet_left_processes(r jsonb) RETURNS jsonb LANGUAGE sql VOLATILE AS $$
    SELECT reply(COALESCE((SELECT jsonb_agg(to_jsonb(p) ORDER BY p.name, p.term) FROM (
        SELECT * FROM processes WHERE NOT is_owner(processes) ORDER BY name, term LIMIT (r->>'limit')::bigint
    ) AS p), '[]'))
$$;

CREATE FUNCTION fleet_left_processes_of(r jsonb) RETURNS jsonb LANGUAGE sql VOLATILE AS $$
    SELECT reply(COALESCE((SELECT jsonb_agg(to_jsonb(p) ORDER BY p.term) FROM processes p
        WHERE p.name = r->>'name' AND NOT is_owner(p)), '[]'))
$$;

CREATE FUNCTION fleet_process_ended(r jsonb) RETURNS jsonb LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    p processes;
BEGIN
    PERFORM lock_name(r->>'name');
    SELECT * INTO p FROM processes WHERE name = r->>'name' AND term = (r->>'term')::bigint;
    IF p.name IS NOT NULL AND is_owner(p) THEN
        RETURN reply('false');
    END IF;
    DELETE FROM processes WHERE name = p.name AND term = p.term;
    RETURN reply('true');
END $$;
