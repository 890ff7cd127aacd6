-- Messages that a session is sent again and again; each row knows when it occurs next.
CREATE TABLE schedule (
    session BIGINT NOT NULL,
    life BIGINT NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    words TEXT COLLATE "C" NOT NULL,
    when_waiting TEXT COLLATE "C" NOT NULL,
    anchor BIGINT NOT NULL,
    next_at BIGINT NOT NULL,
    fired_at BIGINT,
    input_id TEXT COLLATE "C",
    paused TEXT COLLATE "C",
    -- prevents one schedule from being declared as two
    CONSTRAINT schedule_once PRIMARY KEY (session, life, name)
);
CREATE INDEX schedule_due ON schedule (next_at) WHERE paused IS NULL;
