-- The runtime's rows. Columns stand in the order of rules/rows.py.

ALTER TABLE receipt ADD COLUMN minted TEXT COLLATE "C";
ALTER TABLE run ADD COLUMN holds BIGINT NOT NULL DEFAULT 0;
ALTER TABLE run ADD COLUMN stop TEXT COLLATE "C";

CREATE TABLE input (
    input_id TEXT COLLATE "C" PRIMARY KEY,
    session BIGINT NOT NULL,
    life BIGINT NOT NULL,
    seq BIGINT NOT NULL,
    kind TEXT COLLATE "C" NOT NULL,
    key TEXT COLLATE "C",
    digest TEXT COLLATE "C" NOT NULL,
    body TEXT COLLATE "C",
    boundary TEXT COLLATE "C",
    due_at BIGINT,
    status TEXT COLLATE "C" NOT NULL,
    run_id TEXT COLLATE "C",
    log TEXT COLLATE "C",
    position BIGINT,
    rolled_back BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    settled_at BIGINT,
    -- prevents one key from being queued twice; a missing key is like no other
    CONSTRAINT input_once UNIQUE (session, life, key)
);
CREATE INDEX input_open ON input (session, seq) WHERE status = 'open';
CREATE INDEX input_run ON input (run_id) WHERE run_id IS NOT NULL;

CREATE TABLE effect (
    session BIGINT NOT NULL,
    life BIGINT NOT NULL,
    origin_id TEXT COLLATE "C" NOT NULL,
    namespace TEXT COLLATE "C" NOT NULL,
    step BIGINT NOT NULL,
    key TEXT COLLATE "C" NOT NULL,
    kind TEXT COLLATE "C" NOT NULL,
    digest TEXT COLLATE "C" NOT NULL,
    request TEXT COLLATE "C",
    result TEXT COLLATE "C",
    status TEXT COLLATE "C" NOT NULL,
    idempotent BIGINT NOT NULL,
    error TEXT COLLATE "C",
    call_id TEXT COLLATE "C",
    run_id TEXT COLLATE "C" NOT NULL,
    attempt BIGINT NOT NULL,
    started_at BIGINT NOT NULL,
    ended_at BIGINT,
    -- prevents one call from being started as two
    CONSTRAINT effect_once PRIMARY KEY (session, life, origin_id, namespace, step, key)
);

CREATE TABLE usage (
    session BIGINT NOT NULL,
    life BIGINT NOT NULL,
    operation_id TEXT COLLATE "C" NOT NULL,
    ordinal BIGINT NOT NULL,
    run_id TEXT COLLATE "C",
    source TEXT COLLATE "C" NOT NULL,
    model TEXT COLLATE "C" NOT NULL,
    input BIGINT NOT NULL,
    output BIGINT NOT NULL,
    cache_read BIGINT NOT NULL,
    cache_write BIGINT NOT NULL,
    reasoning BIGINT NOT NULL,
    -- prevents one call from being counted twice
    CONSTRAINT usage_once PRIMARY KEY (session, life, operation_id, ordinal)
);

CREATE TABLE outgoing (
    outbox_id TEXT COLLATE "C" PRIMARY KEY,
    session BIGINT NOT NULL,
    life BIGINT NOT NULL,
    kind TEXT COLLATE "C" NOT NULL,
    target_tenant TEXT COLLATE "C" NOT NULL,
    target_kind TEXT COLLATE "C" NOT NULL,
    target_id TEXT COLLATE "C" NOT NULL,
    body TEXT COLLATE "C" NOT NULL,
    status TEXT COLLATE "C" NOT NULL,
    attempts BIGINT NOT NULL,
    due_at BIGINT NOT NULL,
    created_at BIGINT NOT NULL
);
CREATE INDEX outgoing_session ON outgoing (session, created_at);
CREATE INDEX outgoing_pending ON outgoing (due_at) WHERE status = 'pending';
