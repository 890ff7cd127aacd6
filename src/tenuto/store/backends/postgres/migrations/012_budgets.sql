-- How many steps a run may take, fixed when it begins; null for a run without such a limit, or from before.
ALTER TABLE run ADD COLUMN budget BIGINT;
