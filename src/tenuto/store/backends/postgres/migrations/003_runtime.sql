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
