-- A run knows the commit it began with; what a session was before it is found by that, and not as one of its points.

ALTER TABLE run ADD COLUMN commit_no BIGINT NOT NULL DEFAULT 0;
UPDATE run SET commit_no = coalesce((SELECT min(c.commit_no) FROM checkpoint c WHERE c.run_id = run.run_id), 0);

UPDATE checkpoint c SET run_id = NULL, cursor = nullif((c.cursor::JSONB - 'program')::TEXT, '{}')
FROM run r WHERE r.run_id = c.run_id AND r.commit_no = c.commit_no AND c.cursor LIKE '{"program":%';

DROP INDEX checkpoint_run;
CREATE INDEX checkpoint_run ON checkpoint (run_id, commit_no) WHERE run_id IS NOT NULL;
