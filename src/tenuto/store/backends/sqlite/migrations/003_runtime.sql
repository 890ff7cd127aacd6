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
