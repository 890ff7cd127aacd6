-- Messages that a session is sent again and again; each row knows when it occurs next.
CREATE TABLE schedule (
    session INTEGER NOT NULL,
    life INTEGER NOT NULL,
    name TEXT NOT NULL,
    words TEXT NOT NULL,
    when_waiting TEXT NOT NULL,
    anchor INTEGER NOT NULL,
    next_at INTEGER NOT NULL,
    fired_at INTEGER,
    input_id TEXT,
    paused TEXT,
    -- prevents one schedule from being declared as two
    CONSTRAINT schedule_once PRIMARY KEY (session, life, name)
);
CREATE INDEX schedule_due ON schedule (next_at) WHERE paused IS NULL;
