-- Turns that run: begin, messages, finish; and the money of tenants.

CREATE FUNCTION account(wanted text) RETURNS tenants LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    a tenants;
BEGIN
    SELECT * INTO a FROM tenants WHERE hash = text_hash(wanted);
    IF a.hash IS NULL THEN
        a := ROW(text_hash(wanted), 0, 0, 0);
    END IF;
    RETURN a;
END $$;

-- The account, locked. It is there from now on.
CREATE FUNCTION locked_account(wanted text) RETURNS tenants LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    a tenants;
BEGIN
    INSERT INTO tenants VALUES (text_hash(wanted), 0, 0, 0) ON CONFLICT (hash) DO NOTHING;
    SELECT * INTO a FROM tenants WHERE hash = text_hash(wanted) FOR NO KEY UPDATE;
    RETURN a;
END $$;

CREATE FUNCTION put_account(a tenants) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    UPDATE tenants SET period = a.period, spent = a.spent, reserved = a.reserved WHERE hash = a.hash;
END $$;

-- A tenant has spent so much in the period that no turn can begin in it. Money that is reserved for running turns may come back.
CREATE FUNCTION is_spent(tenant text, budget jsonb) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    a tenants := account(tenant);
    spent numeric := CASE WHEN a.period < (budget->>'period')::numeric THEN 0 ELSE a.spent END;
BEGIN
    RETURN GREATEST((budget->>'budget')::numeric - spent, 0) < GREATEST((budget->>'amount')::numeric, 1);
END $$;

CREATE FUNCTION fleet_tenant(r jsonb) RETURNS jsonb LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    a tenants := account(r->>'tenant');
BEGIN
    RETURN reply(jsonb_build_object('queued', GREATEST(queued_of(a.hash), 0), 'period', a.period,
        'spent', a.spent, 'reserved', a.reserved));
END $$;

CREATE FUNCTION fleet_queued(r jsonb) RETURNS jsonb LANGUAGE sql VOLATILE AS
    $$ SELECT reply(to_jsonb(GREATEST(queued_of(''), 0))) $$;

-- The prompt, or its continuation if a lost owner had begun with it.
CREATE FUNCTION to_send(p prompts) RETURNS jsonb LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    c contents;
BEGIN
    SELECT * INTO c FROM contents WHERE prompt = p.id;
    RETURN reply(done(jsonb_build_object('send', CASE WHEN p.begins <= 1 THEN c.content ELSE c.continuation END)));
END $$;

CREATE FUNCTION fleet_begin(r jsonb) RETURNS jsonb LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    n names := owned(r->'owner');
    p prompts;
    a tenants;
    moment bigint;
    left_over numeric;
BEGIN
    IF n.name IS NULL THEN
        RETURN reply('"fenced"');
    END IF;
    p := locked_prompt((r->>'prompt')::uuid);
    IF p.id IS NULL OR p.name <> n.name THEN
        RETURN reply(done('"gone"'));
    ELSIF p.state = 'begun' AND p.term = n.term AND p.attempt = (r->>'attempt')::uuid THEN
        RETURN to_send(p);
    ELSIF p.state <> 'queued' THEN
        IF EXISTS (SELECT FROM outcomes WHERE prompt = p.id AND outcome = outcome_unsent('expired')) THEN
            RETURN reply(done('"expired"'));
        END IF;
        RETURN reply(done(jsonb_build_object('not_queued', prompt_json(p))));
    END IF;
    moment := now_ms();
    -- A continuation waits for nothing: its prompt was due, and began in time.
    IF p.begins = 0 THEN
        IF moment >= p.expires_at THEN
            PERFORM end_waiting(n, p, 'unsent', outcome_unsent('expired'));
            RETURN reply(done('"expired"'));
        ELSIF NOT is_due(p, moment) THEN
            RETURN reply(done(jsonb_build_object('not_due', p.due_at)));
        END IF;
    END IF;
    IF n.continues <> p.id THEN
        RETURN reply(done(jsonb_build_object('not_its_turn', n.continues)));
    ELSIF n.running IS NOT NULL THEN
        RETURN reply(done(jsonb_build_object('busy', n.running)));
    END IF;
    IF r->'reserve' <> 'null' THEN
        a := locked_account(p.tenant);
        -- A node that is late at the end of a period does not begin the last one again. A period of the future is left by a
        -- clock that was wrong.
        IF (r->'reserve'->>'period')::numeric > a.period OR a.period > moment THEN
            a.period := (r->'reserve'->>'period')::numeric; a.spent := 0; a.reserved := 0;
        END IF;
        left_over := GREATEST((r->'reserve'->>'budget')::numeric - a.spent - a.reserved, 0);
        IF left_over < GREATEST((r->'reserve'->>'amount')::numeric, 1) THEN
            RETURN reply(done(jsonb_build_object('over_budget', left_over)));
        END IF;
        a.reserved := a.reserved + (r->'reserve'->>'amount')::numeric;
        p.reserved := (r->'reserve'->>'amount')::numeric;
        p.period := a.period;
        PERFORM put_account(a);
    END IF;
    n := dequeue(n, p);
    UPDATE prompts SET
        state = 'begun', term = n.term, attempt = (r->>'attempt')::uuid, at = moment, begins = begins + 1,
        ready = false, reserved = p.reserved, period = p.period
    WHERE id = p.id RETURNING * INTO p;
    n.running := p.id;
    PERFORM put_name(n);
    RETURN to_send(p);
END $$;

CREATE FUNCTION fleet_append(r jsonb) RETURNS jsonb LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    n names := owned(r->'owner');
    p prompts;
    first bigint := (r->>'first_seq')::bigint;
    known bigint;
    kept bigint;
BEGIN
    IF n.name IS NULL THEN
        RETURN reply('"fenced"');
    ELSIF n.running IS DISTINCT FROM (r->>'prompt')::uuid THEN
        RETURN reply(done('"not_running"'));
    END IF;
    p := locked_prompt(n.running);
    known := p.last_seq;
    IF first > known + 1 THEN
        RETURN reply(done(jsonb_build_object('gap', known + 1)));
    END IF;
    p.last_seq := GREATEST(known, first + jsonb_array_length(r->'messages') - 1);
    -- A gap stays a gap: a short message after it would look like the next one.
    WITH given AS (
        SELECT first + at - 1 AS seq, json,
            sum(octet_length(json)) OVER (ORDER BY at) AS bytes
        FROM jsonb_array_elements_text(r->'messages') WITH ORDINALITY AS m (json, at)
        WHERE first + at - 1 > known
    ), fits AS (
        INSERT INTO messages SELECT p.id, seq, json FROM given
        WHERE p.dropped = 0 AND p.kept_bytes + bytes <= (r->>'bound')::numeric
        RETURNING octet_length(json) AS bytes
    )
    SELECT p.kept_bytes + COALESCE(sum(bytes), 0), count(*) INTO p.kept_bytes, kept FROM fits;
    IF p.last_seq > known THEN
        UPDATE prompts SET
            last_seq = p.last_seq, kept_bytes = p.kept_bytes, dropped = p.dropped + (p.last_seq - known - kept)
        WHERE id = p.id;
        PERFORM tell_change('messages', p.id::text);
    END IF;
    RETURN reply(done(jsonb_build_object('last', p.last_seq)));
END $$;

-- True for a repeated finish: this attempt has given the prompt this outcome.
CREATE FUNCTION finished_before(r jsonb) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT EXISTS (
        SELECT FROM prompts p JOIN outcomes o ON o.prompt = p.id
        WHERE p.id = (r->>'prompt')::uuid AND p.state = 'ended' AND p.attempt = (r->>'attempt')::uuid
            AND o.outcome = r->>'outcome')
$$;

CREATE FUNCTION fleet_finish(r jsonb) RETURNS jsonb LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    n names := owned(r->'owner');
    p prompts;
    a tenants;
BEGIN
    IF n.name IS NULL THEN
        RETURN reply(CASE WHEN finished_before(r) THEN done('"ended"') ELSE '"fenced"' END);
    END IF;
    p := locked_prompt((r->>'prompt')::uuid);
    IF p.id IS NULL THEN
        RETURN reply(done('"gone"'));
    ELSIF p.state <> 'begun' OR p.term <> n.term OR p.attempt <> (r->>'attempt')::uuid THEN
        RETURN reply(done(CASE WHEN finished_before(r) THEN '"ended"'
            ELSE jsonb_build_object('not_begun', prompt_json(p)) END));
    END IF;
    n.running := NULL;
    IF r->>'word' = 'completed' THEN
        n.failures := '{}';
        n.losses := 0;
    END IF;
    n.quarantine := COALESCE(r->>'quarantine', n.quarantine);
    PERFORM put_name(n);
    IF p.reserved > 0 OR (r->>'cost')::numeric > 0 THEN
        -- The reservation is replaced by the cost. The cost of a turn that outlasted its period counts for the new one.
        a := locked_account(p.tenant);
        IF a.period = p.period THEN
            a.reserved := GREATEST(a.reserved - p.reserved, 0);
        END IF;
        -- The client reads 64 bits.
        a.spent := LEAST(a.spent + (r->>'cost')::numeric, 18446744073709551615);
        PERFORM put_account(a);
        p.reserved := 0;
    END IF;
    PERFORM end_prompt(p, p.attempt, r->>'word', r->>'outcome');
    RETURN reply(done('"ended"'));
END $$;
