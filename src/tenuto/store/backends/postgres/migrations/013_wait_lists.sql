-- A wait knows its tenant, so that what a tenant waits for is listed from an index, and the graph that paused with it.
ALTER TABLE wait ADD COLUMN tenant TEXT COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE wait ADD COLUMN graph TEXT COLLATE "C";
UPDATE wait SET tenant = (SELECT s.tenant FROM session s WHERE s.sid = wait.session)
WHERE EXISTS (SELECT 1 FROM session s WHERE s.sid = wait.session AND s.tenant <> '');
UPDATE wait SET graph = (
    SELECT CASE WHEN c.cursor::json -> 'program' IS NULL THEN c.cursor::json ->> 'graph' END FROM checkpoint c WHERE c.run_id = wait.run_id ORDER BY c.commit_no DESC LIMIT 1
) WHERE status = 'open' AND kind = 'signal';
DROP INDEX wait_open;
CREATE INDEX wait_open ON wait (created_at, wait_id) WHERE status = 'open';
CREATE INDEX wait_open_tenant ON wait (tenant, created_at, wait_id) WHERE status = 'open';
CREATE INDEX wait_open_kind ON wait (tenant, kind, created_at, wait_id) WHERE status = 'open';
CREATE INDEX wait_open_graph ON wait (tenant, graph, created_at, wait_id) WHERE status = 'open' AND graph IS NOT NULL;
