-- A child belongs to one life of its parent, and a cascading delete keeps what it has to do until it is done.

ALTER TABLE profile ADD COLUMN parent_life BIGINT;
UPDATE profile SET parent_life = (
    SELECT p.life FROM session s JOIN session p
        ON p.tenant = s.tenant AND p.kind = s.kind AND p.session_id = profile.parent AND p.alive = 1
    WHERE s.sid = profile.session
) WHERE parent IS NOT NULL;

CREATE TABLE deletion (
    root BIGINT NOT NULL,
    root_life BIGINT NOT NULL,
    session BIGINT NOT NULL,
    life BIGINT NOT NULL,
    status TEXT COLLATE "C" NOT NULL,
    report TEXT COLLATE "C",
    at BIGINT NOT NULL,
    -- prevents one session from being ended twice by one delete
    CONSTRAINT deletion_once PRIMARY KEY (root, root_life, session, life)
);
CREATE INDEX deletion_open ON deletion (root) WHERE status = 'open';
