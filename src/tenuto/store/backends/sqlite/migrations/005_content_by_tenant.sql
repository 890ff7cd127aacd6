-- A tenant's big values are its own: one that several tenants hold becomes a row of each. What nobody holds goes.

CREATE TABLE tenant_content (
    tenant TEXT NOT NULL,
    hash TEXT NOT NULL,
    encoding TEXT NOT NULL,
    body TEXT NOT NULL,
    loose_at INTEGER,
    PRIMARY KEY (tenant, hash)
);
INSERT INTO tenant_content
SELECT p.tenant, c.hash, c.encoding, c.body, NULL
FROM (SELECT DISTINCT s.tenant, h.hash FROM holding h JOIN session s ON s.sid = h.session) p
JOIN content c ON c.hash = p.hash;
DROP TABLE content;
ALTER TABLE tenant_content RENAME TO content;
CREATE INDEX content_loose ON content (loose_at) WHERE loose_at IS NOT NULL;

CREATE TABLE tenant_holding (
    session INTEGER NOT NULL,
    tenant TEXT NOT NULL,
    hash TEXT NOT NULL,
    PRIMARY KEY (session, hash)
) WITHOUT ROWID;
INSERT INTO tenant_holding SELECT h.session, s.tenant, h.hash FROM holding h JOIN session s ON s.sid = h.session;
DROP TABLE holding;
ALTER TABLE tenant_holding RENAME TO holding;
CREATE INDEX holding_value ON holding (tenant, hash);
