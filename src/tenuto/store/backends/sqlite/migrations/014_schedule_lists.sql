-- A schedule knows its tenant, so that a tenant's schedules, and those that are paused, are listed from an index.
ALTER TABLE schedule ADD COLUMN tenant TEXT NOT NULL DEFAULT '';
UPDATE schedule SET tenant = (SELECT s.tenant FROM session s WHERE s.sid = schedule.session)
WHERE EXISTS (SELECT 1 FROM session s WHERE s.sid = schedule.session AND s.tenant <> '');
CREATE INDEX schedule_tenant ON schedule (tenant, session, life, name);
CREATE INDEX schedule_paused ON schedule (session, life, name) WHERE paused IS NOT NULL;
CREATE INDEX schedule_paused_tenant ON schedule (tenant, session, life, name) WHERE paused IS NOT NULL;
