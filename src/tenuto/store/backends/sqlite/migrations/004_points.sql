-- A run knows the commit it began with; what a session was before it is found by that, and not as one of its points.

ALTER TABLE run ADD COLUMN commit_no INTEGER NOT NULL DEFAULT 0;
UPDATE run SET commit_no = coalesce((SELECT min(c.commit_no) FROM checkpoint c WHERE c.run_id = run.run_id), 0);

UPDATE checkpoint SET run_id = NULL, cursor = nullif(json_remove(cursor, '$.program'), '{}')
WHERE cursor LIKE '{"program":%' AND commit_no = (SELECT r.commit_no FROM run r WHERE r.run_id = checkpoint.run_id);

DROP INDEX checkpoint_run;
CREATE INDEX checkpoint_run ON checkpoint (run_id, commit_no) WHERE run_id IS NOT NULL;
