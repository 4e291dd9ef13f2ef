-- Reads of records.

CREATE FUNCTION fleet_name_record(r jsonb) RETURNS jsonb LANGUAGE sql VOLATILE AS $$
    SELECT reply((SELECT name_json(n) FROM names n WHERE name = r->>'name'))
$$;

CREATE FUNCTION fleet_names(r jsonb) RETURNS jsonb LANGUAGE sql VOLATILE AS $$
    SELECT reply(COALESCE((SELECT jsonb_agg(name_json(n) ORDER BY n.name) FROM (
        -- No name is empty.
        SELECT * FROM names WHERE name > COALESCE(r->>'after', '') COLLATE "C"
        ORDER BY name LIMIT LEAST((r->>'limit')::bigint, 1024)
    ) AS n), '[]'))
$$;

CREATE FUNCTION fleet_prompt_record(r jsonb) RETURNS jsonb LANGUAGE sql VOLATILE AS $$
    SELECT reply((SELECT prompt_json(p) FROM prompts p WHERE id = (r->>'prompt')::uuid))
$$;

CREATE FUNCTION fleet_content(r jsonb) RETURNS jsonb LANGUAGE sql VOLATILE AS $$
    SELECT reply((SELECT jsonb_build_object('prompt', content, 'continuation', continuation)
        FROM contents WHERE prompt = (r->>'prompt')::uuid))
$$;

CREATE FUNCTION fleet_outcome(r jsonb) RETURNS jsonb LANGUAGE sql VOLATILE AS $$
    SELECT reply((SELECT to_jsonb(outcome) FROM outcomes WHERE prompt = (r->>'prompt')::uuid))
$$;

CREATE FUNCTION fleet_messages(r jsonb) RETURNS jsonb LANGUAGE sql VOLATILE AS $$
    SELECT reply(COALESCE((SELECT jsonb_agg(jsonb_build_array(m.seq, m.json) ORDER BY m.seq) FROM (
        SELECT seq, json FROM messages
        WHERE prompt = (r->>'prompt')::uuid AND seq > (r->>'after')::bigint
        ORDER BY seq LIMIT (r->>'limit')::bigint
    ) AS m), '[]'))
$$;

CREATE FUNCTION fleet_queue(r jsonb) RETURNS jsonb LANGUAGE sql VOLATILE AS $$
    SELECT reply(COALESCE((SELECT jsonb_agg(prompt_json(p) ORDER BY p.ord) FROM (
        SELECT * FROM prompts WHERE name = r->>'name' AND state = 'queued' ORDER BY ord LIMIT (r->>'limit')::bigint
    ) AS p), '[]'))
$$;
