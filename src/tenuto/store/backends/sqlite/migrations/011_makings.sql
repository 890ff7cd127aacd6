-- The number of a call's last making: it rises each time that the call is made again.
ALTER TABLE effect ADD COLUMN making INTEGER NOT NULL DEFAULT 1;
