-- The store core: sessions, their history, runs, waits and events. Columns stand in the order of rules/rows.py.

CREATE TABLE meta (
    life_floor INTEGER NOT NULL,
    event_floor INTEGER NOT NULL
) STRICT;
INSERT INTO meta VALUES (1, 0);

CREATE TABLE session (
    sid INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant TEXT NOT NULL,
    kind TEXT NOT NULL,
    session_id TEXT NOT NULL,
    life INTEGER NOT NULL,
    family INTEGER NOT NULL,
    alive INTEGER NOT NULL,
    status TEXT NOT NULL,
    version INTEGER NOT NULL,
    commit_no INTEGER NOT NULL,
    schema_version TEXT NOT NULL,
    branch_seq INTEGER NOT NULL,
    run_seq INTEGER NOT NULL,
    resume_count INTEGER NOT NULL,
    heads TEXT NOT NULL,
    document TEXT NOT NULL,
    held TEXT,
    event_seq INTEGER NOT NULL,
    event_floor INTEGER NOT NULL,
    current_run TEXT,
    generation INTEGER NOT NULL,
    armed INTEGER NOT NULL,
    nonce TEXT,
    holder TEXT,
    lane_expires_at INTEGER,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    CONSTRAINT session_key UNIQUE (tenant, kind, session_id)
);
CREATE INDEX session_family ON session (family);

CREATE TABLE profile (
    session INTEGER PRIMARY KEY,
    agent TEXT,
    title TEXT,
    preview TEXT,
    user_id TEXT,
    tags TEXT,
    metadata TEXT,
    definition TEXT,
    policy TEXT,
    mode TEXT,
    workspace TEXT,
    parent TEXT,
    root TEXT,
    forked_from TEXT,
    forked_sid INTEGER,
    failure_reason TEXT,
    trace TEXT,
    expires_at INTEGER
);
CREATE INDEX profile_user ON profile (user_id, session) WHERE user_id IS NOT NULL;
CREATE INDEX profile_parent ON profile (parent, session) WHERE parent IS NOT NULL;
CREATE INDEX profile_forked ON profile (forked_sid) WHERE forked_sid IS NOT NULL;
CREATE INDEX profile_expiry ON profile (expires_at) WHERE expires_at IS NOT NULL;

CREATE TABLE receipt (
    session INTEGER NOT NULL,
    life INTEGER NOT NULL,
    operation_id TEXT NOT NULL,
    intent TEXT NOT NULL,
    commit_no INTEGER NOT NULL,
    version INTEGER NOT NULL,
    generation INTEGER NOT NULL,
    event_seq INTEGER NOT NULL,
    ends TEXT NOT NULL,
    wait_ids TEXT,
    at INTEGER NOT NULL,
    CONSTRAINT receipt_once PRIMARY KEY (session, life, operation_id)
) WITHOUT ROWID;

CREATE TABLE run (
    run_id TEXT PRIMARY KEY,
    session INTEGER NOT NULL,
    life INTEGER NOT NULL,
    tenant TEXT NOT NULL,
    invocation_id TEXT NOT NULL,
    chain INTEGER NOT NULL,
    number INTEGER NOT NULL,
    origin_id TEXT,
    correlation_id TEXT,
    attempt INTEGER NOT NULL,
    status TEXT NOT NULL,
    generation INTEGER,
    steps INTEGER NOT NULL,
    partial INTEGER NOT NULL,
    start_seq INTEGER NOT NULL,
    base_version INTEGER,
    base_ends TEXT,
    ends TEXT,
    own_logs TEXT,
    worker TEXT,
    error TEXT,
    outcome TEXT,
    started_at INTEGER NOT NULL,
    ended_at INTEGER,
    expires_at INTEGER,
    -- prevents two first runs of one invocation
    CONSTRAINT run_invocation UNIQUE (tenant, invocation_id, chain)
);
CREATE INDEX run_session ON run (session, number);
CREATE INDEX run_running ON run (started_at) WHERE status = 'running';

CREATE TABLE branch (
    session INTEGER NOT NULL,
    branch INTEGER NOT NULL,
    life INTEGER NOT NULL,
    log TEXT NOT NULL,
    start INTEGER NOT NULL,
    lineage TEXT NOT NULL,
    shared INTEGER NOT NULL,
    loose_from INTEGER,
    loose_at INTEGER,
    PRIMARY KEY (session, branch)
) WITHOUT ROWID;

CREATE TABLE entry (
    session INTEGER NOT NULL,
    branch INTEGER NOT NULL,
    position INTEGER NOT NULL,
    commit_no INTEGER NOT NULL,
    schema_version TEXT NOT NULL,
    body TEXT NOT NULL,
    -- prevents two entries at one place of a history
    CONSTRAINT entry_place PRIMARY KEY (session, branch, position)
);

CREATE TABLE checkpoint (
    session INTEGER NOT NULL,
    commit_no INTEGER NOT NULL,
    life INTEGER NOT NULL,
    run_id TEXT,
    step INTEGER NOT NULL,
    cursor TEXT,
    document TEXT NOT NULL,
    held TEXT,
    ends TEXT NOT NULL,
    schema_version TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (session, commit_no)
);
CREATE INDEX checkpoint_run ON checkpoint (run_id, commit_no);

CREATE TABLE wait (
    wait_id TEXT PRIMARY KEY,
    session INTEGER NOT NULL,
    life INTEGER NOT NULL,
    run_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    signal_id TEXT,
    status TEXT NOT NULL,
    deadline INTEGER,
    schema TEXT,
    metadata TEXT,
    answer TEXT,
    commit_no INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    settled_at INTEGER
);
CREATE INDEX wait_session ON wait (session, created_at);
CREATE INDEX wait_run ON wait (run_id);
CREATE INDEX wait_signal ON wait (signal_id) WHERE signal_id IS NOT NULL;

CREATE TABLE event (
    session INTEGER NOT NULL,
    first_seq INTEGER NOT NULL,
    last_seq INTEGER NOT NULL,
    run_id TEXT,
    at INTEGER NOT NULL,
    body TEXT NOT NULL,
    -- prevents one number from being given twice
    CONSTRAINT event_number PRIMARY KEY (session, first_seq)
);

CREATE TABLE content (
    hash TEXT PRIMARY KEY,
    encoding TEXT NOT NULL,
    body TEXT NOT NULL,
    loose_at INTEGER
);
CREATE INDEX content_loose ON content (loose_at) WHERE loose_at IS NOT NULL;

CREATE TABLE holding (
    session INTEGER NOT NULL,
    hash TEXT NOT NULL,
    PRIMARY KEY (session, hash)
) WITHOUT ROWID;
CREATE INDEX holding_hash ON holding (hash);
