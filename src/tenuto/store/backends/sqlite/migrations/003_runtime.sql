-- The runtime's rows. Columns stand in the order of rules/rows.py.

ALTER TABLE receipt ADD COLUMN minted TEXT;
ALTER TABLE run ADD COLUMN holds INTEGER NOT NULL DEFAULT 0;
ALTER TABLE run ADD COLUMN stop TEXT;

CREATE TABLE input (
    input_id TEXT PRIMARY KEY,
    session INTEGER NOT NULL,
    life INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    kind TEXT NOT NULL,
    key TEXT,
    digest TEXT NOT NULL,
    body TEXT,
    boundary TEXT,
    due_at INTEGER,
    status TEXT NOT NULL,
    run_id TEXT,
    log TEXT,
    position INTEGER,
    rolled_back INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    settled_at INTEGER,
    -- prevents one key from being queued twice; a missing key is like no other
    CONSTRAINT input_once UNIQUE (session, life, key)
);
CREATE INDEX input_open ON input (session, seq) WHERE status = 'open';
CREATE INDEX input_run ON input (run_id) WHERE run_id IS NOT NULL;

CREATE TABLE effect (
    session INTEGER NOT NULL,
    life INTEGER NOT NULL,
    origin_id TEXT NOT NULL,
    namespace TEXT NOT NULL,
    step INTEGER NOT NULL,
    key TEXT NOT NULL,
    kind TEXT NOT NULL,
    digest TEXT NOT NULL,
    request TEXT,
    result TEXT,
    status TEXT NOT NULL,
    idempotent INTEGER NOT NULL,
    error TEXT,
    call_id TEXT,
    run_id TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    started_at INTEGER NOT NULL,
    ended_at INTEGER,
    -- prevents one call from being started as two
    CONSTRAINT effect_once PRIMARY KEY (session, life, origin_id, namespace, step, key)
);

CREATE TABLE usage (
    session INTEGER NOT NULL,
    life INTEGER NOT NULL,
    operation_id TEXT NOT NULL,
    ordinal INTEGER NOT NULL,
    run_id TEXT,
    source TEXT NOT NULL,
    model TEXT NOT NULL,
    input INTEGER NOT NULL,
    output INTEGER NOT NULL,
    cache_read INTEGER NOT NULL,
    cache_write INTEGER NOT NULL,
    reasoning INTEGER NOT NULL,
    -- prevents one call from being counted twice
    CONSTRAINT usage_once PRIMARY KEY (session, life, operation_id, ordinal)
) WITHOUT ROWID;

CREATE TABLE outgoing (
    outbox_id TEXT PRIMARY KEY,
    session INTEGER NOT NULL,
    life INTEGER NOT NULL,
    kind TEXT NOT NULL,
    target_tenant TEXT NOT NULL,
    target_kind TEXT NOT NULL,
    target_id TEXT NOT NULL,
    body TEXT NOT NULL,
    status TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    due_at INTEGER NOT NULL,
    created_at INTEGER NOT NULL
);
CREATE INDEX outgoing_session ON outgoing (session, created_at);
CREATE INDEX outgoing_pending ON outgoing (due_at) WHERE status = 'pending';
