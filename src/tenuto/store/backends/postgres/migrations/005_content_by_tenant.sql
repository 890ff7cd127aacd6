-- A tenant's big values are its own: one that several tenants hold becomes a row of each. What nobody holds goes.

CREATE TABLE tenant_content (
    tenant TEXT COLLATE "C" NOT NULL,
    hash TEXT COLLATE "C" NOT NULL,
    encoding TEXT COLLATE "C" NOT NULL,
    body TEXT COLLATE "C" NOT NULL,
    loose_at BIGINT,
    PRIMARY KEY (tenant, hash)
);
INSERT INTO tenant_content
SELECT p.tenant, c.hash, c.encoding, c.body, NULL
FROM (SELECT DISTINCT s.tenant, h.hash FROM holding h JOIN session s ON s.sid = h.session) p
JOIN content c ON c.hash = p.hash;
DROP TABLE content;
ALTER TABLE tenant_content RENAME TO content;
ALTER TABLE content RENAME CONSTRAINT tenant_content_pkey TO content_pkey;
CREATE INDEX content_loose ON content (loose_at) WHERE loose_at IS NOT NULL;

CREATE TABLE tenant_holding (
    session BIGINT NOT NULL,
    tenant TEXT COLLATE "C" NOT NULL,
    hash TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (session, hash)
);
INSERT INTO tenant_holding SELECT h.session, s.tenant, h.hash FROM holding h JOIN session s ON s.sid = h.session;
DROP TABLE holding;
ALTER TABLE tenant_holding RENAME TO holding;
ALTER TABLE holding RENAME CONSTRAINT tenant_holding_pkey TO holding_pkey;
CREATE INDEX holding_value ON holding (tenant, hash);
