-- Listing what waits must not look at what is settled.
CREATE INDEX wait_open ON wait (wait_id) WHERE status = 'open';
