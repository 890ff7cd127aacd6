-- A session's preview stands in its row, which every commit writes anyway, so that a turn can change it at no cost.
ALTER TABLE session ADD COLUMN preview TEXT;
UPDATE session SET preview = (SELECT p.preview FROM profile p WHERE p.session = session.sid)
WHERE EXISTS (SELECT 1 FROM profile p WHERE p.session = session.sid AND p.preview IS NOT NULL);
UPDATE profile SET preview = NULL WHERE preview IS NOT NULL;
