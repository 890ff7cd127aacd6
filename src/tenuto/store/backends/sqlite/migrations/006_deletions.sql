-- A child belongs to one life of its parent, and a cascading delete keeps what it has to do until it is done.

ALTER TABLE profile ADD COLUMN parent_life INTEGER;
UPDATE profile SET parent_life = (
    SELECT p.life FROM session s JOIN session p
        ON p.tenant = s.tenant AND p.kind = s.kind AND p.session_id = profile.parent AND p.alive
    WHERE s.sid = profile.session
) WHERE parent IS NOT NULL;

CREATE TABLE deletion (
    root INTEGER NOT NULL,
    root_life INTEGER NOT NULL,
    session INTEGER NOT NULL,
    life INTEGER NOT NULL,
    status TEXT NOT NULL,
    report TEXT,
    at INTEGER NOT NULL,
    -- prevents one session from being ended twice by one delete
    CONSTRAINT deletion_once PRIMARY KEY (root, root_life, session, life)
);
CREATE INDEX deletion_open ON deletion (root) WHERE status = 'open';
