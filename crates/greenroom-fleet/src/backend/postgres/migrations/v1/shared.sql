-- Parts of all requests. A request is one function, called as one statement: it happens as a whole or not at all.
--
-- Locks: the rows of names first, in the order of their bytes; then prompts and questions; then money; the counts last, sorted.
-- No request but those about a node itself locks the row of a node.
--
-- Statements are in PL/pgSQL, which keeps their plans. A function in SQL that cannot be inlined is planned in each transaction.

CREATE FUNCTION now_ms() RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint
$$;

-- The moment `wait` milliseconds after `at`.
CREATE FUNCTION later(at bigint, wait numeric) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT LEAST(at + wait, 9223372036854775807)::bigint
$$;

CREATE FUNCTION text_hash(value text) RETURNS bytea LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN sha256(convert_to(value, 'UTF8'));
END $$;

-- A text that fits into a row of an index, and sorts as the tenant does; tenants with a long beginning in common sort by their hash.
CREATE FUNCTION text_key(value text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN char_length(value) <= 128 THEN value ELSE left(value, 128) || md5(value) END COLLATE "C"
$$;

CREATE FUNCTION invalid(message text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = 'GR001', MESSAGE = message;
END $$;

-- Changes and transitions are collected in a setting of the transaction.
CREATE FUNCTION tell(item jsonb) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM set_config('greenroom.told',
        COALESCE(NULLIF(current_setting('greenroom.told', true), '') || ',', '') || item::text, true);
END $$;

CREATE FUNCTION tell_change(what text, about text) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM tell(jsonb_build_array(what, about));
END $$;

CREATE FUNCTION tell_name(what text, n names) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM tell(jsonb_build_object('is', what, 'name', n.name, 'tenant', n.tenant));
END $$;

-- Counts are collected as well, and written at the end of the request.
CREATE FUNCTION count_queued(tenant text, name text, amount integer) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM set_config('greenroom.counts',
        COALESCE(NULLIF(current_setting('greenroom.counts', true), '') || ',', '')
        || jsonb_build_array(encode(text_hash(tenant), 'hex'), abs(hashtext(name) % 16), amount)::text, true);
END $$;

CREATE FUNCTION add_to_count(count_hash bytea, count_part integer, amount integer) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    UPDATE counts SET queued = queued + amount WHERE hash = count_hash AND part = count_part;
    IF NOT FOUND THEN
        INSERT INTO counts AS k VALUES (count_hash, count_part, amount)
        ON CONFLICT (hash, part) DO UPDATE SET queued = k.queued + excluded.queued;
    END IF;
END $$;

CREATE FUNCTION reply(answer jsonb) RETURNS jsonb LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    told text := current_setting('greenroom.told', true);
    counted text := current_setting('greenroom.counts', true);
    c record;
BEGIN
    IF counted <> '' AND jsonb_array_length(('[' || counted || ']')::jsonb) = 1 THEN
        -- Most requests count once: the same as below.
        PERFORM add_to_count(decode(counted::jsonb->>0, 'hex'), (counted::jsonb->>1)::integer, (counted::jsonb->>2)::integer);
        PERFORM add_to_count('', (counted::jsonb->>1)::integer, (counted::jsonb->>2)::integer);
    ELSIF counted <> '' THEN
        FOR c IN
            SELECT hash, part, sum(amount)::integer AS amount
            FROM (
                SELECT decode(item->>0, 'hex') AS hash, (item->>1)::integer AS part, (item->>2)::integer AS amount
                FROM jsonb_array_elements(('[' || counted || ']')::jsonb) AS item
                UNION ALL
                SELECT ''::bytea, (item->>1)::integer, (item->>2)::integer
                FROM jsonb_array_elements(('[' || counted || ']')::jsonb) AS item
            ) AS each
            GROUP BY hash, part
            ORDER BY hash DESC, part
        LOOP
            CONTINUE WHEN c.amount = 0;
            PERFORM add_to_count(c.hash, c.part, c.amount);
        END LOOP;
    END IF;
    RETURN jsonb_build_object('answer', answer, 'now', now_ms(), 'told', ('[' || COALESCE(told, '') || ']')::jsonb);
END $$;

CREATE FUNCTION queued_of(count_hash bytea) RETURNS bigint LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (SELECT COALESCE(sum(queued), 0)::bigint FROM counts WHERE hash = count_hash);
END $$;

CREATE FUNCTION is_alive(node_id uuid) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN EXISTS (SELECT FROM nodes WHERE id = node_id AND state <> 'dead');
END $$;

CREATE FUNCTION lock_name(wanted text) RETURNS names LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    n names;
BEGIN
    SELECT * INTO n FROM names WHERE name = wanted FOR NO KEY UPDATE;
    RETURN n;
END $$;

-- The prompt, whose name is locked.
CREATE FUNCTION locked_prompt(wanted uuid) RETURNS prompts LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    p prompts;
BEGIN
    SELECT * INTO p FROM prompts WHERE id = wanted;
    RETURN p;
END $$;

-- The name of an owner, locked; NULL if it is not the owner any more.
CREATE FUNCTION owned(owner jsonb) RETURNS names LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    n names := lock_name(owner->>'name');
BEGIN
    IF n.state = 'owned' AND n.node = (owner->>'node')::uuid AND n.term = (owner->>'term')::bigint
        AND is_alive(n.node)
    THEN
        RETURN n;
    END IF;
    RETURN NULL;
END $$;

CREATE FUNCTION put_name(n names) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    UPDATE names SET
        term = n.term, state = n.state, node = n.node, claim = n.claim, since = n.since, why = n.why,
        queued = n.queued, running = n.running, continues = n.continues, failures = n.failures, losses = n.losses,
        quarantine = n.quarantine,
        waiting_order = CASE WHEN n.state IN ('free', 'owned') AND n.running IS NULL THEN (
            SELECT p.ord FROM prompts p WHERE p.name = n.name AND p.state = 'queued' AND p.ready
            ORDER BY p.ord LIMIT 1
        ) END
    WHERE name = n.name;
END $$;

CREATE FUNCTION set_free(n names) RETURNS names LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    n.state := 'free';
    n.node := NULL; n.claim := NULL; n.since := NULL; n.why := NULL;
    PERFORM put_name(n);
    PERFORM tell_change('freed', n.name);
    RETURN n;
END $$;

CREATE FUNCTION set_quarantined(n names, reason text) RETURNS names LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM tell(jsonb_build_object('is', 'quarantined', 'name', n.name, 'tenant', n.tenant, 'why', reason));
    n.state := 'quarantined';
    n.node := NULL; n.claim := NULL; n.since := now_ms(); n.why := reason; n.quarantine := NULL;
    PERFORM put_name(n);
    RETURN n;
END $$;

-- The records, as the client reads them.
CREATE FUNCTION name_json(n names) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN jsonb_build_object(
        'name', n.name, 'profile', n.profile, 'tenant', n.tenant, 'host', n.host, 'conversation', n.conversation,
        'created_at', n.created_at, 'term', n.term, 'queued', n.queued, 'running', n.running,
        'continues', n.continues, 'failures', n.failures, 'losses', n.losses, 'quarantine', n.quarantine,
        'state', CASE n.state
            WHEN 'owned' THEN jsonb_build_object('is', n.state, 'node', n.node, 'claim', n.claim, 'since', n.since)
            WHEN 'quarantined' THEN jsonb_build_object('is', n.state, 'why', n.why, 'since', n.since)
            WHEN 'deleting' THEN jsonb_build_object('is', n.state, 'since', n.since)
            ELSE jsonb_build_object('is', n.state)
        END);
END $$;

CREATE FUNCTION prompt_json(p prompts) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN jsonb_build_object(
        'id', p.id, 'name', p.name, 'tenant', p.tenant, 'key', p.key, 'accepted_at', p.accepted_at,
        'due_at', p.due_at, 'expires_at', p.expires_at, 'order', p.ord, 'begins', p.begins,
        'continuations', p.continuations, 'reserved', p.reserved, 'period', p.period, 'last_seq', p.last_seq,
        'kept_bytes', p.kept_bytes, 'dropped', p.dropped,
        'state', CASE p.state
            WHEN 'begun' THEN jsonb_build_object('is', p.state, 'term', p.term, 'attempt', p.attempt, 'at', p.at)
            WHEN 'ended' THEN jsonb_build_object('is', p.state, 'attempt', p.attempt, 'at', p.at)
            ELSE jsonb_build_object('is', p.state)
        END);
END $$;

CREATE FUNCTION question_json(q questions) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN jsonb_build_object(
        'id', q.id, 'name', q.name, 'tenant', q.tenant, 'prompt', q.prompt, 'term', q.term,
        'asked_at', q.asked_at, 'deadline', q.deadline, 'body', q.body,
        'decision', CASE q.decision
            WHEN 'answered' THEN jsonb_build_object(
                'is', q.decision, 'answer', q.answer, 'attempt', q.attempt, 'at', q.decided_at)
            WHEN 'expired' THEN jsonb_build_object('is', q.decision, 'at', q.decided_at)
        END);
END $$;

CREATE FUNCTION node_json(n nodes) RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT to_jsonb(n) || jsonb_build_object('owns',
        (SELECT count(*) FROM (SELECT FROM names WHERE node = n.id LIMIT 100000) AS owned))
$$;

CREATE FUNCTION done(value jsonb) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN jsonb_build_object('done', value);
END $$;
