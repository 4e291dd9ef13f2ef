-- Questions that sessions ask people: each is decided once, by an answer or by its deadline.

CREATE FUNCTION tell_decided(q questions) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM tell_change('decided', q.id::text);
    PERFORM tell(jsonb_build_object(
        'is', 'decided', 'name', q.name, 'tenant', q.tenant, 'prompt', q.prompt, 'question', q.id));
END $$;

-- Removes the open questions of a turn that ends.
CREATE FUNCTION end_questions(of_prompt uuid) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    q questions;
BEGIN
    FOR q IN SELECT * FROM questions WHERE prompt = of_prompt AND decision IS NULL ORDER BY id FOR UPDATE LOOP
        DELETE FROM questions WHERE id = q.id;
        PERFORM tell_decided(q);
    END LOOP;
END $$;

CREATE FUNCTION fleet_ask(r jsonb) RETURNS jsonb LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    n names := owned(r->'owner');
    q questions;
    moment bigint;
BEGIN
    IF n.name IS NULL THEN
        RETURN reply('"fenced"');
    END IF;
    SELECT * INTO q FROM questions WHERE id = (r->>'question')::uuid;
    IF q.id IS NOT NULL THEN
        IF q.name <> n.name OR q.prompt <> (r->>'prompt')::uuid OR q.body <> r->>'body' THEN
            PERFORM invalid(format('the id %s belongs to another question: make a new id for each question', q.id));
        END IF;
        RETURN reply(done(question_json(q)));
    ELSIF n.running IS DISTINCT FROM (r->>'prompt')::uuid THEN
        RETURN reply(done('null'));
    ELSIF (SELECT count(*) FROM questions WHERE prompt = n.running AND decision IS NULL) >= 256 THEN
        PERFORM invalid('the turn has 256 open questions: ask again when some are decided');
    END IF;
    moment := now_ms();
    INSERT INTO questions VALUES (
        (r->>'question')::uuid, n.name, n.tenant, n.running, n.term, moment, later(moment, (r->>'wait')::numeric),
        r->>'body'
    ) ON CONFLICT (id) DO NOTHING RETURNING * INTO q;
    IF q.id IS NULL THEN
        PERFORM invalid(format('the id %s belongs to another question: make a new id for each question', r->>'question'));
    END IF;
    PERFORM tell_change('asked', q.id::text);
    PERFORM tell(jsonb_build_object(
        'is', 'asked', 'name', q.name, 'tenant', q.tenant, 'prompt', q.prompt, 'question', q.id));
    RETURN reply(done(question_json(q)));
END $$;

CREATE FUNCTION expire_question(q questions, moment bigint) RETURNS questions LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    UPDATE questions SET decision = 'expired', decided_at = moment WHERE id = q.id RETURNING * INTO q;
    PERFORM tell_decided(q);
    RETURN q;
END $$;

CREATE FUNCTION fleet_answer(r jsonb) RETURNS jsonb LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    q questions;
    moment bigint;
BEGIN
    SELECT * INTO q FROM questions WHERE id = (r->>'question')::uuid FOR UPDATE;
    IF q.id IS NULL THEN
        RETURN reply('"gone"');
    ELSIF q.decision = 'answered' AND q.attempt = (r->>'attempt')::uuid THEN
        RETURN reply(jsonb_build_object('decided', question_json(q)));
    ELSIF q.decision IS NOT NULL THEN
        RETURN reply(jsonb_build_object('too_late', question_json(q)));
    END IF;
    moment := now_ms();
    IF moment >= q.deadline THEN
        RETURN reply(jsonb_build_object('too_late', question_json(expire_question(q, moment))));
    END IF;
    UPDATE questions SET
        decision = 'answered', answer = r->>'answer', attempt = (r->>'attempt')::uuid, decided_at = moment
    WHERE id = q.id RETURNING * INTO q;
    PERFORM tell_decided(q);
    RETURN reply(jsonb_build_object('decided', question_json(q)));
END $$;

CREATE FUNCTION fleet_question(r jsonb) RETURNS jsonb LANGUAGE sql VOLATILE AS $$
    SELECT reply((SELECT question_json(q) FROM questions q WHERE id = (r->>'question')::uuid))
$$;

CREATE FUNCTION fleet_open_questions(r jsonb) RETURNS jsonb LANGUAGE sql VOLATILE AS $$
    SELECT reply(COALESCE((SELECT jsonb_agg(question_json(q) ORDER BY q.deadline, q.id) FROM (
        SELECT * FROM questions WHERE decision IS NULL ORDER BY deadline, id LIMIT (r->>'limit')::bigint
    ) AS q), '[]'))
$$;

CREATE FUNCTION fleet_expire_questions(r jsonb) RETURNS jsonb LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    moment bigint := now_ms();
    q questions;
    expired jsonb := '[]';
BEGIN
    FOR q IN
        SELECT * FROM questions WHERE decision IS NULL AND deadline <= moment
        ORDER BY deadline, id LIMIT (r->>'limit')::bigint FOR UPDATE SKIP LOCKED
    LOOP
        expired := expired || question_json(expire_question(q, moment));
    END LOOP;
    RETURN reply(expired);
END $$;
