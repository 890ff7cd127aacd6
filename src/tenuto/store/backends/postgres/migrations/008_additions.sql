-- Where the entries are that a program added in its open step, so that it does not add them again when it runs again.
ALTER TABLE run ADD COLUMN additions TEXT;
