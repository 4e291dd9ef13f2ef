-- The tables of a fleet. Times are milliseconds since 1970 on the server's clock. Texts hold no NUL: the client escapes it.
-- JSON that the rules do not look into is kept as text, as the client has written it.

CREATE SEQUENCE terms;
CREATE SEQUENCE orders;

CREATE TABLE nodes (
    id uuid PRIMARY KEY,
    host text NOT NULL,
    state text NOT NULL CHECK (state IN ('up', 'draining', 'dead')),
    renewals bigint NOT NULL,
    renewed_at bigint NOT NULL,
    lease_until bigint NOT NULL,
    capacity bigint NOT NULL,
    asked_to_drain boolean NOT NULL DEFAULT false
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 500);

-- quarantine: the reason to quarantine the name as soon as its owner is gone.
-- waiting_order: the order of the first prompt that may begin, while the name can run.
CREATE TABLE names (
    name text COLLATE "C" PRIMARY KEY,
    profile text NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    tenant_key text COLLATE "C" NOT NULL,
    host text,
    conversation uuid NOT NULL,
    created_at bigint NOT NULL,
    term bigint NOT NULL,
    state text NOT NULL CHECK (state IN ('free', 'owned', 'quarantined', 'deleting')),
    node uuid,
    claim uuid,
    since bigint,
    why text,
    queued integer NOT NULL,
    running uuid,
    continues uuid,
    failures bigint[] NOT NULL,
    losses integer NOT NULL,
    quarantine text,
    waiting_order bigint,
    CHECK ((state = 'owned') = (node IS NOT NULL))
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02);
CREATE INDEX names_waiting ON names (tenant_key, waiting_order) WHERE waiting_order IS NOT NULL;
CREATE INDEX names_of_node ON names (node, name) WHERE node IS NOT NULL;
CREATE INDEX names_deleting ON names (name) WHERE state = 'deleting';

-- ready: the prompt may begin. A reminder is not ready before its moment.
CREATE TABLE prompts (
    id uuid PRIMARY KEY,
    name text COLLATE "C" NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    key text,
    accepted_at bigint NOT NULL,
    due_at bigint NOT NULL,
    expires_at bigint NOT NULL,
    ord bigint NOT NULL,
    state text NOT NULL CHECK (state IN ('queued', 'begun', 'ended')),
    term bigint,
    attempt uuid,
    at bigint,
    begins integer NOT NULL,
    continuations bigint NOT NULL,
    reserved numeric NOT NULL,
    period numeric NOT NULL,
    last_seq bigint NOT NULL,
    kept_bytes numeric NOT NULL,
    dropped bigint NOT NULL,
    ready boolean NOT NULL
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02);
CREATE INDEX prompts_queue ON prompts (name, ord) WHERE state = 'queued';
CREATE INDEX prompts_ready ON prompts (name, ord) WHERE state = 'queued' AND ready;
CREATE INDEX prompts_due ON prompts (due_at, ord) WHERE state = 'queued' AND NOT ready;
CREATE INDEX prompts_expiry ON prompts (expires_at, id) WHERE state = 'queued' AND begins = 0;
CREATE INDEX prompts_ended ON prompts (at, id) WHERE state = 'ended';

-- Keys may be long, and an index row may not: the hash of a key stands for it.
CREATE TABLE keys (
    name text COLLATE "C" NOT NULL,
    hash bytea NOT NULL,
    prompt uuid NOT NULL,
    PRIMARY KEY (name, hash)
);

CREATE TABLE contents (
    prompt uuid PRIMARY KEY,
    content text NOT NULL,
    continuation text
);

CREATE TABLE outcomes (
    prompt uuid PRIMARY KEY,
    outcome text NOT NULL
);

CREATE TABLE messages (
    prompt uuid NOT NULL,
    seq bigint NOT NULL,
    json text NOT NULL,
    PRIMARY KEY (prompt, seq)
);

-- The money of tenants.
CREATE TABLE tenants (
    hash bytea PRIMARY KEY,
    period numeric NOT NULL,
    spent numeric NOT NULL,
    reserved numeric NOT NULL
) WITH (fillfactor = 50);

-- Prompts that wait, by tenant and over all (hash ''), each count in 16 parts, so that few requests wait for one row.
CREATE TABLE counts (
    hash bytea NOT NULL,
    part integer NOT NULL,
    queued integer NOT NULL,
    PRIMARY KEY (hash, part)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 1000);

CREATE TABLE questions (
    id uuid PRIMARY KEY,
    name text COLLATE "C" NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    prompt uuid NOT NULL,
    term bigint NOT NULL,
    asked_at bigint NOT NULL,
    deadline bigint NOT NULL,
    body text NOT NULL,
    decision text CHECK (decision IN ('answered', 'expired')),
    answer text,
    attempt uuid,
    decided_at bigint
);
CREATE INDEX questions_of_prompt ON questions (prompt);
CREATE INDEX questions_open ON questions (deadline, id) WHERE decision IS NULL;

CREATE TABLE processes (
    name text COLLATE "C" NOT NULL,
    term bigint NOT NULL,
    node uuid NOT NULL,
    host text NOT NULL,
    process text NOT NULL,
    PRIMARY KEY (name, term)
);
