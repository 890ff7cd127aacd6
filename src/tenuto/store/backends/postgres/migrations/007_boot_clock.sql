-- Leases are judged by the server's own clock, so there is nothing to keep here.
SELECT 1;
