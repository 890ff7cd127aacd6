-- The store core: sessions, their history, runs, waits and events. Columns stand in the order of rules/rows.py.

-- Fails the statement it stands in when a guarded write has missed.
CREATE FUNCTION require(holds BOOLEAN, what TEXT) RETURNS VOID LANGUAGE plpgsql AS $$
BEGIN
    IF NOT holds THEN
        RAISE EXCEPTION 'guard missed: %', what USING ERRCODE = 'TN001';
    END IF;
END $$;

-- The time in microseconds: the one given, or the database's.
CREATE FUNCTION moment(given BIGINT) RETURNS BIGINT LANGUAGE SQL VOLATILE AS $$
    SELECT coalesce(given, (extract(epoch FROM clock_timestamp()) * 1000000)::BIGINT)
$$;

CREATE SEQUENCE session_sid;

CREATE TABLE meta (
    life_floor BIGINT NOT NULL,
    event_floor BIGINT NOT NULL
);
INSERT INTO meta VALUES (1, 0);

CREATE TABLE session (
    sid BIGINT PRIMARY KEY,
    tenant TEXT COLLATE "C" NOT NULL,
    kind TEXT COLLATE "C" NOT NULL,
    session_id TEXT COLLATE "C" NOT NULL,
    life BIGINT NOT NULL,
    family BIGINT NOT NULL,
    alive BIGINT NOT NULL,
    status TEXT COLLATE "C" NOT NULL,
    version BIGINT NOT NULL,
    commit_no BIGINT NOT NULL,
    schema_version TEXT COLLATE "C" NOT NULL,
    branch_seq BIGINT NOT NULL,
    run_seq BIGINT NOT NULL,
    resume_count BIGINT NOT NULL,
    heads TEXT COLLATE "C" NOT NULL,
    document TEXT COLLATE "C" NOT NULL,
    held TEXT COLLATE "C",
    event_seq BIGINT NOT NULL,
    event_floor BIGINT NOT NULL,
    current_run TEXT COLLATE "C",
    generation BIGINT NOT NULL,
    armed BIGINT NOT NULL,
    nonce TEXT COLLATE "C",
    holder TEXT COLLATE "C",
    lane_expires_at BIGINT,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    CONSTRAINT session_key UNIQUE (tenant, kind, session_id)
);
CREATE INDEX session_family ON session (family);

CREATE TABLE profile (
    session BIGINT PRIMARY KEY,
    agent TEXT COLLATE "C",
    title TEXT COLLATE "C",
    preview TEXT COLLATE "C",
    user_id TEXT COLLATE "C",
    tags TEXT COLLATE "C",
    metadata TEXT COLLATE "C",
    definition TEXT COLLATE "C",
    policy TEXT COLLATE "C",
    mode TEXT COLLATE "C",
    workspace TEXT COLLATE "C",
    parent TEXT COLLATE "C",
    root TEXT COLLATE "C",
    forked_from TEXT COLLATE "C",
    forked_sid BIGINT,
    failure_reason TEXT COLLATE "C",
    trace TEXT COLLATE "C",
    expires_at BIGINT
);
CREATE INDEX profile_user ON profile (user_id, session) WHERE user_id IS NOT NULL;
CREATE INDEX profile_parent ON profile (parent, session) WHERE parent IS NOT NULL;
CREATE INDEX profile_forked ON profile (forked_sid) WHERE forked_sid IS NOT NULL;
CREATE INDEX profile_expiry ON profile (expires_at) WHERE expires_at IS NOT NULL;

CREATE TABLE receipt (
    session BIGINT NOT NULL,
    life BIGINT NOT NULL,
    operation_id TEXT COLLATE "C" NOT NULL,
    intent TEXT COLLATE "C" NOT NULL,
    commit_no BIGINT NOT NULL,
    version BIGINT NOT NULL,
    generation BIGINT NOT NULL,
    event_seq BIGINT NOT NULL,
    ends TEXT COLLATE "C" NOT NULL,
    wait_ids TEXT COLLATE "C",
    at BIGINT NOT NULL,
    CONSTRAINT receipt_once PRIMARY KEY (session, life, operation_id)
);

CREATE TABLE run (
    run_id TEXT COLLATE "C" PRIMARY KEY,
    session BIGINT NOT NULL,
    life BIGINT NOT NULL,
    tenant TEXT COLLATE "C" NOT NULL,
    invocation_id TEXT COLLATE "C" NOT NULL,
    chain BIGINT NOT NULL,
    number BIGINT NOT NULL,
    origin_id TEXT COLLATE "C",
    correlation_id TEXT COLLATE "C",
    attempt BIGINT NOT NULL,
    status TEXT COLLATE "C" NOT NULL,
    generation BIGINT,
    steps BIGINT NOT NULL,
    partial BIGINT NOT NULL,
    start_seq BIGINT NOT NULL,
    base_version BIGINT,
    base_ends TEXT COLLATE "C",
    ends TEXT COLLATE "C",
    own_logs TEXT COLLATE "C",
    worker TEXT COLLATE "C",
    error TEXT COLLATE "C",
    outcome TEXT COLLATE "C",
    started_at BIGINT NOT NULL,
    ended_at BIGINT,
    expires_at BIGINT,
    -- prevents two first runs of one invocation
    CONSTRAINT run_invocation UNIQUE (tenant, invocation_id, chain)
);
CREATE INDEX run_session ON run (session, number);
CREATE INDEX run_running ON run (started_at) WHERE status = 'running';

CREATE TABLE branch (
    session BIGINT NOT NULL,
    branch BIGINT NOT NULL,
    life BIGINT NOT NULL,
    log TEXT COLLATE "C" NOT NULL,
    start BIGINT NOT NULL,
    lineage TEXT COLLATE "C" NOT NULL,
    shared BIGINT NOT NULL,
    loose_from BIGINT,
    loose_at BIGINT,
    PRIMARY KEY (session, branch)
);

CREATE TABLE entry (
    session BIGINT NOT NULL,
    branch BIGINT NOT NULL,
    position BIGINT NOT NULL,
    commit_no BIGINT NOT NULL,
    schema_version TEXT COLLATE "C" NOT NULL,
    body TEXT COLLATE "C" NOT NULL,
    -- prevents two entries at one place of a history
    CONSTRAINT entry_place PRIMARY KEY (session, branch, position)
);

CREATE TABLE checkpoint (
    session BIGINT NOT NULL,
    commit_no BIGINT NOT NULL,
    life BIGINT NOT NULL,
    run_id TEXT COLLATE "C",
    step BIGINT NOT NULL,
    "cursor" TEXT COLLATE "C",
    document TEXT COLLATE "C" NOT NULL,
    held TEXT COLLATE "C",
    ends TEXT COLLATE "C" NOT NULL,
    schema_version TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (session, commit_no)
);
CREATE INDEX checkpoint_run ON checkpoint (run_id, commit_no);

CREATE TABLE wait (
    wait_id TEXT COLLATE "C" PRIMARY KEY,
    session BIGINT NOT NULL,
    life BIGINT NOT NULL,
    run_id TEXT COLLATE "C" NOT NULL,
    kind TEXT COLLATE "C" NOT NULL,
    signal_id TEXT COLLATE "C",
    status TEXT COLLATE "C" NOT NULL,
    deadline BIGINT,
    schema TEXT COLLATE "C",
    metadata TEXT COLLATE "C",
    answer TEXT COLLATE "C",
    commit_no BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    settled_at BIGINT
);
CREATE INDEX wait_session ON wait (session, created_at);
CREATE INDEX wait_run ON wait (run_id);
CREATE INDEX wait_signal ON wait (signal_id) WHERE signal_id IS NOT NULL;

CREATE TABLE event (
    session BIGINT NOT NULL,
    first_seq BIGINT NOT NULL,
    last_seq BIGINT NOT NULL,
    run_id TEXT COLLATE "C",
    at BIGINT NOT NULL,
    body TEXT COLLATE "C" NOT NULL,
    -- prevents one number from being given twice
    CONSTRAINT event_number PRIMARY KEY (session, first_seq)
);

CREATE TABLE content (
    hash TEXT COLLATE "C" PRIMARY KEY,
    encoding TEXT COLLATE "C" NOT NULL,
    body TEXT COLLATE "C" NOT NULL,
    loose_at BIGINT
);
CREATE INDEX content_loose ON content (loose_at) WHERE loose_at IS NOT NULL;

CREATE TABLE holding (
    session BIGINT NOT NULL,
    hash TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (session, hash)
);
CREATE INDEX holding_hash ON holding (hash);
