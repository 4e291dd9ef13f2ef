-- Names that can run.

-- Makes reminders ready whose moment has come: some of them, so that the statement stays short. The changes that it tells lead to the
-- next look.
CREATE FUNCTION ripen(moment bigint) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    due text;
    n names;
BEGIN
    FOR due IN
        SELECT DISTINCT q.name FROM (
            SELECT name FROM prompts WHERE state = 'queued' AND NOT ready AND due_at <= moment
            ORDER BY due_at, ord LIMIT 256
        ) AS q ORDER BY 1
    LOOP
        -- A name that another request has locked is looked at again soon.
        SELECT * INTO n FROM names WHERE name = due FOR NO KEY UPDATE SKIP LOCKED;
        CONTINUE WHEN NOT FOUND;
        UPDATE prompts SET ready = true WHERE name = due AND state = 'queued' AND NOT ready AND due_at <= moment;
        PERFORM put_name(n);
        PERFORM tell_change('queued', due);
    END LOOP;
END $$;

-- True unless another living node owns the name, or its files are on another host.
CREATE FUNCTION can_run_on(n names, node_id uuid, node_host text) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT (n.node IS NULL OR n.node = node_id OR NOT is_alive(n.node)) AND (n.host IS NULL OR n.host = node_host)
$$;

-- The first prompt of a name that may begin now.
CREATE FUNCTION first_ready(n names, moment bigint) RETURNS prompts LANGUAGE plpgsql STABLE AS $$
DECLARE
    p prompts;
BEGIN
    IF n.continues IS NOT NULL THEN
        SELECT * INTO p FROM prompts WHERE id = n.continues;
        RETURN p;
    END IF;
    SELECT * INTO p FROM prompts q
    WHERE q.name = n.name AND q.state = 'queued' AND q.ready AND is_due(q, moment) AND moment < q.expires_at
    ORDER BY q.ord LIMIT 1;
    RETURN p;
END $$;

CREATE FUNCTION fleet_waiting(r jsonb) RETURNS jsonb LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    moment bigint := now_ms();
    node_id uuid := (r->>'node')::uuid;
    node_host text := (SELECT host FROM nodes WHERE id = (r->>'node')::uuid);
    left_over bigint := LEAST((r->>'limit')::bigint, 1024);
    at_tenant text := r->'after'->>'tenant';
    -- A first page begins before all names. A place that may be NULL could not be looked up in the index.
    at_order bigint := COALESCE((r->'after'->>'order')::bigint, -1);
    at_key text COLLATE "C" := COALESCE(text_key(r->'after'->>'tenant'), '');
    listed text[] := CASE WHEN r->'of' <> 'null' THEN ARRAY(SELECT jsonb_array_elements_text(r->'of') LIMIT 1024) END;
    profiles text[] := CASE WHEN r->'profiles' <> 'null' THEN ARRAY(SELECT jsonb_array_elements_text(r->'profiles')) END;
    other_profile text;
    without text[] := ARRAY(SELECT jsonb_array_elements_text(r->'without'));
    ready jsonb := '[]';
    page refcursor;
    n names;
    p prompts;
    seen boolean;
BEGIN
    PERFORM ripen(moment);
    moment := now_ms();
    WHILE left_over > 0 LOOP
        seen := false;
        -- Two statements, because one statement for both cases could use no index.
        IF listed IS NULL THEN
            OPEN page FOR SELECT * FROM names
                WHERE waiting_order IS NOT NULL AND (tenant_key, waiting_order) > (at_key, at_order)
                ORDER BY tenant_key, waiting_order LIMIT left_over;
        ELSE
            OPEN page FOR SELECT * FROM names
                WHERE waiting_order IS NOT NULL AND (tenant_key, waiting_order) > (at_key, at_order) AND name = ANY (listed)
                ORDER BY tenant_key, waiting_order LIMIT left_over;
        END IF;
        LOOP
            FETCH page INTO n;
            EXIT WHEN NOT FOUND;
            seen := true;
            left_over := left_over - 1;
            at_tenant := n.tenant;
            at_key := n.tenant_key;
            at_order := n.waiting_order;
            IF n.tenant = ANY (without) THEN
                -- Behind all names of the tenant.
                at_order := 9223372036854775807;
                EXIT;
            END IF;
            CONTINUE WHEN NOT can_run_on(n, node_id, node_host);
            IF NOT COALESCE(n.profile = ANY (profiles), true) THEN
                other_profile := COALESCE(other_profile, n.profile);
                CONTINUE;
            END IF;
            p := first_ready(n, moment);
            IF p.id IS NOT NULL THEN
                ready := ready || jsonb_build_array(prompt_json(p));
            END IF;
        END LOOP;
        CLOSE page;
        IF NOT seen THEN
            RETURN reply(jsonb_build_object('prompts', ready, 'other_profile', other_profile, 'next', NULL));
        END IF;
    END LOOP;
    RETURN reply(jsonb_build_object('prompts', ready, 'other_profile', other_profile,
        'next', jsonb_build_object('tenant', at_tenant, 'order', at_order)));
END $$;
