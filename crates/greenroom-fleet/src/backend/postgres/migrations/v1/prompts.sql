-- Prompts that wait: accept, withdraw, and the queues.

CREATE FUNCTION outcome_by_user() RETURNS text LANGUAGE sql IMMUTABLE AS
    $$ SELECT '{"is":"interrupted","by":{"who":"user"}}' $$;
CREATE FUNCTION outcome_unsent(why text) RETURNS text LANGUAGE sql IMMUTABLE AS
    $$ SELECT '{"is":"unsent","why":"' || why || '"}' $$;

CREATE FUNCTION is_reminder(p prompts) RETURNS boolean LANGUAGE sql IMMUTABLE AS
    $$ SELECT p.due_at > p.accepted_at $$;

-- A prompt may begin, as far as its moment goes.
CREATE FUNCTION is_due(p prompts, moment bigint) RETURNS boolean LANGUAGE sql IMMUTABLE AS
    $$ SELECT p.due_at <= p.accepted_at OR p.begins > 0 OR p.due_at <= moment $$;

-- Takes a prompt out of its queue. The caller writes the records of the prompt and of the name.
CREATE FUNCTION dequeue(n names, p prompts) RETURNS names LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    n.queued := GREATEST(n.queued - 1, 0);
    IF n.continues = p.id THEN
        n.continues := NULL;
    END IF;
    PERFORM count_queued(p.tenant, p.name, -1);
    RETURN n;
END $$;

-- Gives a prompt its outcome. It no longer waits and no longer runs.
CREATE FUNCTION end_prompt(p prompts, by_attempt uuid, outcome_word text, outcome_json text) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    UPDATE prompts SET state = 'ended', term = NULL, attempt = by_attempt, at = now_ms(), ready = false,
        reserved = p.reserved WHERE id = p.id;
    INSERT INTO outcomes VALUES (p.id, outcome_json);
    PERFORM end_questions(p.id);
    PERFORM tell_change('ended', p.id::text);
    PERFORM tell(jsonb_build_object(
        'is', 'ended', 'name', p.name, 'tenant', p.tenant, 'prompt', p.id, 'outcome', outcome_word));
END $$;

-- Ends a prompt that waits. Returns the name, which is written.
CREATE FUNCTION end_waiting(n names, p prompts, outcome_word text, outcome_json text) RETURNS names
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM end_prompt(p, NULL, outcome_word, outcome_json);
    IF n.name IS NULL THEN
        PERFORM count_queued(p.tenant, p.name, -1);
        RETURN n;
    END IF;
    n := dequeue(n, p);
    PERFORM put_name(n);
    RETURN n;
END $$;

CREATE FUNCTION refused(why jsonb) RETURNS jsonb LANGUAGE sql VOLATILE AS
    $$ SELECT reply(jsonb_build_object('refused', why)) $$;

CREATE FUNCTION fleet_accept(r jsonb) RETURNS jsonb LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    n names;
    p prompts;
    c contents;
    same uuid;
    created boolean := false;
    moment bigint;
    due bigint;
    waiting bigint;
BEGIN
    n := lock_name(r->>'name');
    -- A prompt without its content was forgotten between the two reads.
    SELECT * INTO p FROM prompts WHERE id = (r->>'prompt')::uuid;
    SELECT * INTO c FROM contents WHERE prompt = p.id;
    IF c.prompt IS NOT NULL THEN
        IF p.name <> r->>'name' OR p.tenant <> r->>'tenant' OR p.key IS DISTINCT FROM r->>'key'
            OR c.content <> r->'content'->>'prompt'
            OR c.continuation IS DISTINCT FROM r->'content'->>'continuation'
        THEN
            PERFORM invalid(format('the id %s belongs to another prompt: make a new id for each prompt', p.id));
        END IF;
        RETURN reply(jsonb_build_object('new', prompt_json(p)));
    END IF;
    IF n.name IS NOT NULL THEN
        IF n.tenant <> r->>'tenant' THEN
            RETURN refused('"tenant_mismatch"');
        ELSIF n.profile <> r->>'profile' THEN
            RETURN refused(jsonb_build_object('profile_mismatch', n.profile));
        ELSIF n.state = 'deleting' THEN
            RETURN refused('"deleting"');
        END IF;
    END IF;
    IF r->>'key' IS NOT NULL THEN
        SELECT k.prompt INTO same FROM keys k WHERE k.name = r->>'name' AND k.hash = text_hash(r->>'key');
        SELECT * INTO p FROM prompts WHERE id = same;
        SELECT * INTO c FROM contents WHERE prompt = p.id;
        IF c.prompt IS NOT NULL THEN
            IF c.content = r->'content'->>'prompt'
                AND c.continuation IS NOT DISTINCT FROM r->'content'->>'continuation'
            THEN
                RETURN reply(jsonb_build_object('duplicate', prompt_json(p)));
            END IF;
            RETURN refused(jsonb_build_object('key_reused', p.id));
        END IF;
    END IF;
    IF n.state = 'quarantined' THEN
        RETURN refused(jsonb_build_object('quarantined', n.why));
    END IF;
    IF r->'budget' <> 'null' AND is_spent(r->>'tenant', r->'budget') THEN
        RETURN refused('"over_budget"');
    END IF;
    IF COALESCE(n.queued, 0) >= (r->'bounds'->>'name')::bigint THEN
        RETURN refused('{"queue_full": "name"}');
    ELSIF queued_of(text_hash(r->>'tenant')) >= (r->'bounds'->>'tenant')::bigint THEN
        RETURN refused('{"queue_full": "tenant"}');
    ELSIF queued_of('') >= (r->'bounds'->>'fleet')::bigint THEN
        RETURN refused('{"queue_full": "fleet"}');
    END IF;
    IF n.name IS NULL THEN
        INSERT INTO names VALUES (
            r->>'name', r->>'profile', r->>'tenant', text_key(r->>'tenant'), r->>'host', (r->>'conversation')::uuid,
            now_ms(), 0, 'free', NULL, NULL, NULL, NULL, 0, NULL, NULL, '{}', 0, NULL, NULL
        ) ON CONFLICT (name) DO NOTHING RETURNING * INTO n;
        IF n.name IS NULL THEN
            -- Another request has created the name since: everything above holds for that name now.
            RETURN fleet_accept(r);
        END IF;
    END IF;
    moment := now_ms();
    due := GREATEST(COALESCE((r->>'not_before')::bigint, moment), moment);
    INSERT INTO prompts VALUES (
        (r->>'prompt')::uuid, r->>'name', r->>'tenant', r->>'key', moment, due,
        later(due, (r->>'wait')::numeric), nextval('orders'), 'queued', NULL, NULL, NULL, 0,
        CASE WHEN r->'content'->>'continuation' IS NULL THEN 0 ELSE (r->>'continuations')::bigint END,
        0, 0, 0, 0, 0, due <= moment
    ) ON CONFLICT (id) DO NOTHING RETURNING * INTO p;
    IF p.id IS NULL THEN
        PERFORM invalid(format('the id %s belongs to another prompt: make a new id for each prompt', r->>'prompt'));
    END IF;
    INSERT INTO contents VALUES (p.id, r->'content'->>'prompt', r->'content'->>'continuation');
    IF p.key IS NOT NULL THEN
        INSERT INTO keys AS k VALUES (p.name, text_hash(p.key), p.id)
        ON CONFLICT (name, hash) DO UPDATE SET prompt = excluded.prompt;
    END IF;
    n.queued := n.queued + 1;
    PERFORM count_queued(p.tenant, p.name, 1);
    PERFORM put_name(n);
    PERFORM tell_change('queued', p.name);
    PERFORM tell(jsonb_build_object('is', 'accepted', 'name', p.name, 'tenant', p.tenant, 'prompt', p.id));
    RETURN reply(jsonb_build_object('new', prompt_json(p)));
END $$;

-- Ends a prompt that waits: with the outcome `unsent`, or as interrupted if a lost owner had begun with it.
CREATE FUNCTION take_back(wanted uuid, unsent text) RETURNS jsonb LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    n names;
    p prompts;
    outcome_now text;
BEGIN
    -- The name is locked before the prompt is read: a prompt that was read before may have begun since.
    n := lock_name((SELECT name FROM prompts WHERE id = wanted));
    p := locked_prompt(wanted);
    IF p.id IS NULL THEN
        RETURN '"gone"'::jsonb;
    END IF;
    IF p.state = 'queued' THEN
        IF p.begins = 0 THEN
            PERFORM end_waiting(n, p, 'unsent', unsent);
            RETURN '"unsent"'::jsonb;
        END IF;
        PERFORM end_waiting(n, p, 'interrupted', outcome_by_user());
        RETURN '"interrupted"'::jsonb;
    END IF;
    SELECT o.outcome INTO outcome_now FROM outcomes o WHERE o.prompt = p.id;
    IF outcome_now = unsent THEN
        RETURN '"unsent"'::jsonb;
    ELSIF outcome_now = outcome_by_user() AND p.state = 'ended' AND p.attempt IS NULL THEN
        RETURN '"interrupted"'::jsonb;
    END IF;
    RETURN jsonb_build_object('too_late', prompt_json(p));
END $$;

CREATE FUNCTION fleet_withdraw(r jsonb) RETURNS jsonb LANGUAGE sql VOLATILE AS $$
    SELECT reply(take_back((r->>'prompt')::uuid, outcome_unsent('withdrawn')))
$$;

-- The client writes the outcome, with the operator's reason.
CREATE FUNCTION fleet_drop_prompt(r jsonb) RETURNS jsonb LANGUAGE sql VOLATILE AS $$
    SELECT reply(take_back((r->>'prompt')::uuid, r->>'outcome'))
$$;
