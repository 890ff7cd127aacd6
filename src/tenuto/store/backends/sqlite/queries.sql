-- moment --
The time: the one given, or the database's.
SELECT coalesce(?1, CAST(unixepoch('subsec') * 1000000 AS INTEGER))

-- lease_moment --
The time that leases are judged by, which does not jump with the machine's clock.
SELECT coalesce(?1, lease_now())

-- find_session --
A session's row with the receipt of one operation and the row of one run, and the numbers a new row would get.
SELECT
    coalesce(?1, CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    coalesce(?1, lease_now()),
    meta.life_floor,
    meta.event_floor,
    CASE WHEN s.sid IS NULL
        THEN 1 + coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'session'), 0)
        ELSE s.sid
    END,
    s.*, o.*, r.*
FROM meta
LEFT JOIN session s ON s.tenant = ?2 AND s.kind = ?3 AND s.session_id = ?4
LEFT JOIN receipt o ON o.session = s.sid AND o.life = s.life AND o.operation_id = ?5
LEFT JOIN run r ON r.run_id = ?6

-- session_by_key --
A session's row, live or not.
SELECT * FROM session WHERE tenant = ?1 AND kind = ?2 AND session_id = ?3

-- head_by_key --
A live session's row with its profile.
SELECT s.*, p.* FROM session s LEFT JOIN profile p ON p.session = s.sid
WHERE s.tenant = ?1 AND s.kind = ?2 AND s.session_id = ?3 AND s.alive

-- record_by_key --
The same, with the run it points to.
SELECT s.*, p.*, r.* FROM session s
LEFT JOIN profile p ON p.session = s.sid
LEFT JOIN run r ON r.run_id = s.current_run
WHERE s.tenant = ?1 AND s.kind = ?2 AND s.session_id = ?3 AND s.alive = 1

-- stamp_by_key --
What tells whether a live session is still what it was, whether it has open input, and whether some is for a run.
SELECT life, version, commit_no, generation, schema_version,
    EXISTS (SELECT 1 FROM input i WHERE i.session = sid AND i.status = 'open'),
    EXISTS (SELECT 1 FROM input i WHERE i.session = sid AND i.status = 'open' AND i.boundary IS NOT NULL), event_seq,
    status
FROM session
WHERE tenant = ?1 AND kind = ?2 AND session_id = ?3 AND alive

-- life_of --
The life an id is in, or would begin.
SELECT coalesce((SELECT life FROM session WHERE tenant = ?1 AND kind = ?2 AND session_id = ?3), life_floor) FROM meta

-- receipt_by_id --
The receipt of an operation in the id's present life.
SELECT o.* FROM session s JOIN receipt o ON o.session = s.sid AND o.life = s.life AND o.operation_id = ?4
WHERE s.tenant = ?1 AND s.kind = ?2 AND s.session_id = ?3

-- profile_by_session --
A session's profile.
SELECT * FROM profile WHERE session = ?1

-- branch_by_id --
One branch.
SELECT * FROM branch WHERE session = ?1 AND branch = ?2

-- branches_present --
How many of the branches in a JSON list of [session, branch] there are.
SELECT count(*) FROM json_each(?1) p JOIN branch b ON b.session = p.value ->> 0 AND b.branch = p.value ->> 1

-- entry_exists --
Whether a branch has an entry at a position.
SELECT 1 FROM entry WHERE session = ?1 AND branch = ?2 AND position = ?3

-- entries_of --
The entries of the stretches in a JSON list of [session, branch, start, stop], in their order.
SELECT e.* FROM json_each(?1) p CROSS JOIN entry e
WHERE e.session = p.value ->> 0 AND e.branch = p.value ->> 1 AND e.position >= p.value ->> 2 AND e.position < p.value ->> 3

-- bodies_of --
The same, positions and bodies only.
SELECT e.position, e.body FROM json_each(?1) p CROSS JOIN entry e
WHERE e.session = p.value ->> 0 AND e.branch = p.value ->> 1 AND e.position >= p.value ->> 2 AND e.position < p.value ->> 3

-- wait_by_id --
One wait.
SELECT * FROM wait WHERE wait_id = ?1

-- wait_with_session --
One wait with its session's row and its run's invocation, asked for in a tenant; a null one means any.
SELECT s.*, w.*, r.invocation_id
FROM wait w JOIN session s ON s.sid = w.session LEFT JOIN run r ON r.run_id = w.run_id
WHERE w.wait_id = ?1 AND (?2 IS NULL OR s.tenant = ?2)

-- waits_of_session --
A session's waits, in the order they were opened; a null run or status means any.
SELECT s.*, w.*, r.invocation_id
FROM session s JOIN wait w ON w.session = s.sid LEFT JOIN run r ON r.run_id = w.run_id
WHERE s.tenant = ?1 AND s.kind = ?2 AND s.session_id = ?3
    AND (?4 IS NULL OR w.run_id = ?4) AND (?5 IS NULL OR w.status = ?5)
ORDER BY w.created_at, w.wait_id

-- waits_of_tree --
The open waits of the sessions below one, in the order they were opened.
WITH RECURSIVE below (sid, session_id) AS (
    SELECT s.sid, s.session_id FROM profile p CROSS JOIN session s ON s.sid = p.session
    WHERE p.parent = ?3 AND s.tenant = ?1 AND s.kind = ?2 AND s.alive
    UNION
    SELECT s.sid, s.session_id FROM below b CROSS JOIN profile p ON p.parent = b.session_id CROSS JOIN session s ON s.sid = p.session
    WHERE s.tenant = ?1 AND s.kind = ?2 AND s.alive
)
SELECT s.*, w.*, r.invocation_id
FROM below b CROSS JOIN session s ON s.sid = b.sid CROSS JOIN wait w ON w.session = s.sid LEFT JOIN run r ON r.run_id = w.run_id
WHERE w.status = 'open'
ORDER BY w.created_at, w.wait_id

-- waits_of_origin --
The waits of all runs of a session that have one origin, in the order they were opened.
SELECT s.*, w.*, r.invocation_id
FROM session s JOIN run r ON r.session = s.sid AND r.life = s.life JOIN wait w ON w.run_id = r.run_id
WHERE s.tenant = ?1 AND s.kind = ?2 AND s.session_id = ?3 AND coalesce(r.origin_id, r.invocation_id) = ?4
ORDER BY w.created_at, w.wait_id

-- waits_for_signal --
Waits for a signal, in the order they were opened; a null tenant means any.
SELECT s.*, w.*, r.invocation_id
FROM wait w JOIN session s ON s.sid = w.session LEFT JOIN run r ON r.run_id = w.run_id
WHERE w.signal_id = ?2 AND (?1 IS NULL OR s.tenant = ?1) AND (?3 IS NULL OR w.status = ?3)
ORDER BY w.created_at, w.wait_id

-- open_waits --
Open waits behind one of them, in the order they were opened, of any tenant; a null kind or time means any.
SELECT s.*, w.*, r.invocation_id
FROM wait w JOIN session s ON s.sid = w.session LEFT JOIN run r ON r.run_id = w.run_id
WHERE w.status = 'open' AND (?1 IS NULL OR w.kind = ?1) AND (w.created_at, w.wait_id) > (?2, ?3) AND (?4 IS NULL OR w.created_at < ?4)
    AND (w.graph IS NULL OR w.deadline IS NULL OR w.deadline > coalesce(?5, CAST(unixepoch('subsec') * 1000000 AS INTEGER)))
ORDER BY w.created_at, w.wait_id LIMIT ?6

-- open_waits_of_tenant --
The same for one tenant, by its index.
SELECT s.*, w.*, r.invocation_id
FROM wait w JOIN session s ON s.sid = w.session LEFT JOIN run r ON r.run_id = w.run_id
WHERE w.status = 'open' AND w.tenant = ?1 AND (w.created_at, w.wait_id) > (?2, ?3) AND (?4 IS NULL OR w.created_at < ?4)
    AND (w.graph IS NULL OR w.deadline IS NULL OR w.deadline > coalesce(?5, CAST(unixepoch('subsec') * 1000000 AS INTEGER)))
ORDER BY w.created_at, w.wait_id LIMIT ?6

-- open_waits_of_kind --
The same for one tenant and kind, by their index.
SELECT s.*, w.*, r.invocation_id
FROM wait w JOIN session s ON s.sid = w.session LEFT JOIN run r ON r.run_id = w.run_id
WHERE w.status = 'open' AND w.tenant = ?1 AND w.kind = ?2 AND (w.created_at, w.wait_id) > (?3, ?4) AND (?5 IS NULL OR w.created_at < ?5)
    AND (w.graph IS NULL OR w.deadline IS NULL OR w.deadline > coalesce(?6, CAST(unixepoch('subsec') * 1000000 AS INTEGER)))
ORDER BY w.created_at, w.wait_id LIMIT ?7

-- open_waits_of_user --
The same for one user's sessions and those below them that are nobody else's; a null tenant or kind means any.
WITH RECURSIVE theirs (sid, tenant, kind, session_id) AS (
    SELECT s.sid, s.tenant, s.kind, s.session_id FROM profile p CROSS JOIN session s ON s.sid = p.session
    WHERE p.user_id = ?3 AND s.alive AND (?1 IS NULL OR s.tenant = ?1)
    UNION
    SELECT s.sid, s.tenant, s.kind, s.session_id
    FROM theirs b CROSS JOIN profile p ON p.parent = b.session_id CROSS JOIN session s ON s.sid = p.session
    WHERE p.user_id IS NULL AND s.tenant = b.tenant AND s.kind = b.kind AND s.alive
)
SELECT s.*, w.*, r.invocation_id
FROM theirs b CROSS JOIN session s ON s.sid = b.sid JOIN wait w ON w.session = s.sid LEFT JOIN run r ON r.run_id = w.run_id
WHERE w.status = 'open' AND (?2 IS NULL OR w.kind = ?2)
    AND (w.created_at, w.wait_id) > (?4, ?5) AND (?6 IS NULL OR w.created_at < ?6)
    AND (w.graph IS NULL OR w.deadline IS NULL OR w.deadline > coalesce(?7, CAST(unixepoch('subsec') * 1000000 AS INTEGER)))
ORDER BY w.created_at, w.wait_id LIMIT ?8

-- open_waits_of_graph --
The same for the pauses of one graph, by its index.
SELECT s.*, w.*, r.invocation_id
FROM wait w JOIN session s ON s.sid = w.session LEFT JOIN run r ON r.run_id = w.run_id
WHERE w.status = 'open' AND w.tenant = ?1 AND w.graph = ?2 AND (w.created_at, w.wait_id) > (?3, ?4) AND (?5 IS NULL OR w.created_at < ?5)
    AND (w.graph IS NULL OR w.deadline IS NULL OR w.deadline > coalesce(?6, CAST(unixepoch('subsec') * 1000000 AS INTEGER)))
ORDER BY w.created_at, w.wait_id LIMIT ?7

-- bare_input --
One input.
SELECT * FROM input WHERE input_id = ?1

-- input_by_key --
The input of a life of a session that has a key.
SELECT * FROM input WHERE session = ?1 AND life = ?2 AND key = ?3

-- input_with_session --
One input with its session's row, asked for in a tenant; a null one means any.
SELECT s.*, i.* FROM input i JOIN session s ON s.sid = i.session
WHERE i.input_id = ?1 AND (?2 IS NULL OR s.tenant = ?2)

-- input_of_session --
The input of a session that has a key.
SELECT s.*, i.* FROM session s JOIN input i ON i.session = s.sid AND i.life = s.life AND i.key = ?4
WHERE s.tenant = ?1 AND s.kind = ?2 AND s.session_id = ?3

-- open_inputs --
A session's open inputs behind a number, in order of arrival.
SELECT s.*, i.* FROM session s JOIN input i ON i.session = s.sid
WHERE s.tenant = ?1 AND s.kind = ?2 AND s.session_id = ?3 AND i.status = 'open' AND i.seq > ?4
ORDER BY i.seq, i.kind <> 'command', i.input_id LIMIT ?5

-- inbox_look --
Whether an inbox has anything open, when the next input for a place is due, and its oldest due command.
SELECT
    EXISTS (SELECT 1 FROM input WHERE session = ?2 AND status = 'open'),
    (SELECT min(due_at) FROM input WHERE session = ?2 AND status = 'open' AND boundary IS ?3 AND run_id IS ?4),
    c.input_id, c.seq
FROM (SELECT 1) LEFT JOIN (
    SELECT input_id, seq FROM input
    WHERE session = ?2 AND status = 'open' AND kind = 'command' AND coalesce(due_at, 0) <= coalesce(?1, CAST(unixepoch('subsec') * 1000000 AS INTEGER))
    ORDER BY seq, input_id LIMIT 1
) c

-- first_input --
The first due input of an inbox for the next turn.
SELECT i.* FROM session s JOIN input i ON i.session = s.sid
WHERE s.tenant = ?2 AND s.kind = ?3 AND s.session_id = ?4 AND i.status = 'open'
    AND i.boundary IS NULL AND i.run_id IS NULL AND coalesce(i.due_at, 0) <= coalesce(?1, CAST(unixepoch('subsec') * 1000000 AS INTEGER))
ORDER BY i.seq, i.kind <> 'command', i.input_id LIMIT 1

-- due_inputs --
The due inputs of an inbox for a place (a boundary of a run, or the next turn), in order.
SELECT * FROM input
WHERE session = ?2 AND status = 'open' AND boundary IS ?3 AND run_id IS ?4 AND coalesce(due_at, 0) <= coalesce(?1, CAST(unixepoch('subsec') * 1000000 AS INTEGER))
ORDER BY seq, kind <> 'command', input_id LIMIT ?5

-- due_sessions --
The keys of active sessions above a row number that have due input and no live lane, with their row numbers.
SELECT s.sid, s.tenant, s.kind, s.session_id FROM (
    SELECT DISTINCT session FROM input
    WHERE status = 'open' AND session > ?2 AND coalesce(due_at, 0) <= coalesce(?1, CAST(unixepoch('subsec') * 1000000 AS INTEGER))
) i JOIN session s ON s.sid = i.session
WHERE s.alive AND s.status = 'active' AND NOT (s.armed AND coalesce(s.lane_expires_at, 0) > coalesce(?1, lease_now()))
ORDER BY s.sid LIMIT ?3

-- held_sessions --
Active sessions that have due input and a live lane.
SELECT s.* FROM (
    SELECT DISTINCT session FROM input
    WHERE status = 'open' AND coalesce(due_at, 0) <= coalesce(?1, CAST(unixepoch('subsec') * 1000000 AS INTEGER))
) i JOIN session s ON s.sid = i.session
WHERE s.alive AND s.status = 'active' AND s.armed AND s.lane_expires_at > coalesce(?1, lease_now())
ORDER BY s.lane_expires_at, s.sid LIMIT ?2

-- next_input --
When an active session next has due input and no live lane, as things stand, of times of the years 1 to 9999.
SELECT min(max(coalesce(i.due_at, i.created_at), CASE WHEN s.armed THEN coalesce(s.lane_expires_at, 0) ELSE 0 END))
FROM input i JOIN session s ON s.sid = i.session WHERE i.status = 'open' AND s.alive AND s.status = 'active'
    AND coalesce(i.due_at, i.created_at) BETWEEN -62135596800000000 AND 253402300799999999

-- effect_by_place --
One effect.
SELECT * FROM effect WHERE session = ?1 AND life = ?2 AND origin_id = ?3 AND namespace = ?4 AND step = ?5 AND key = ?6

-- effect_of_session --
One effect of a session, with the session's row.
SELECT s.*, e.* FROM session s JOIN effect e ON e.session = s.sid AND e.life = s.life
WHERE s.tenant = ?1 AND s.kind = ?2 AND s.session_id = ?3
    AND e.origin_id = ?4 AND e.namespace = ?5 AND e.step = ?6 AND e.key = ?7

-- effects_of_session --
A session's effects in the order they were started, after a place among them; a null origin means any, and only those in doubt if asked for.
SELECT s.*, e.* FROM session s JOIN effect e ON e.session = s.sid AND e.life = s.life
WHERE s.tenant = ?1 AND s.kind = ?2 AND s.session_id = ?3 AND (?4 IS NULL OR e.origin_id = ?4)
    AND (?5 = 0 OR e.status = 'started' AND NOT EXISTS (
        SELECT 1 FROM run r WHERE r.run_id = e.run_id AND r.attempt = e.attempt AND r.status = 'running'))
    AND (?6 IS NULL OR (e.started_at, e.origin_id, e.namespace, e.step, e.key) > (?6, ?7, ?8, ?9, ?10))
ORDER BY e.started_at, e.origin_id, e.namespace, e.step, e.key LIMIT ?11

-- usage_of_session --
A session's usage by model and source, a null run means any: calls, and the high and low halves of each sum.
SELECT u.model, u.source, count(*),
    CAST(sum(u.input / 67108864) AS BIGINT), CAST(sum(u.input % 67108864) AS BIGINT),
    CAST(sum(u.output / 67108864) AS BIGINT), CAST(sum(u.output % 67108864) AS BIGINT),
    CAST(sum(u.cache_read / 67108864) AS BIGINT), CAST(sum(u.cache_read % 67108864) AS BIGINT),
    CAST(sum(u.cache_write / 67108864) AS BIGINT), CAST(sum(u.cache_write % 67108864) AS BIGINT),
    CAST(sum(u.reasoning / 67108864) AS BIGINT), CAST(sum(u.reasoning % 67108864) AS BIGINT)
FROM session s JOIN usage u ON u.session = s.sid AND u.life = s.life
WHERE s.tenant = ?1 AND s.kind = ?2 AND s.session_id = ?3 AND (?4 IS NULL OR u.run_id = ?4)
GROUP BY u.model, u.source

-- outgoing_by_id --
One outgoing item with its sender's row, asked for in a tenant; a null one means any.
SELECT s.*, o.* FROM outgoing o JOIN session s ON s.sid = o.session
WHERE o.outbox_id = ?1 AND (?2 IS NULL OR s.tenant = ?2)

-- outgoing_of_session --
What a session sent, in the order of sending, after one of them.
SELECT s.*, o.* FROM session s JOIN outgoing o ON o.session = s.sid
WHERE s.tenant = ?1 AND s.kind = ?2 AND s.session_id = ?3 AND o.life = s.life
    AND (?4 IS NULL OR (o.created_at, o.outbox_id) > (?4, ?5))
ORDER BY o.created_at, o.outbox_id LIMIT ?6

-- pending_outgoing --
Outgoing items of all sessions that are due, the longest due first.
SELECT s.*, o.* FROM outgoing o JOIN session s ON s.sid = o.session
WHERE o.status = 'pending' AND o.due_at <= coalesce(?1, CAST(unixepoch('subsec') * 1000000 AS INTEGER)) ORDER BY o.due_at, o.outbox_id LIMIT ?2

-- next_outgoing --
When the first pending item falls due, of those whose time is one (of the years 1 to 9999).
SELECT min(due_at) FROM outgoing WHERE status = 'pending' AND due_at BETWEEN -62135596800000000 AND 253402300799999999

-- debts_of_session --
The results that a session sent and nobody has delivered yet.
SELECT * FROM outgoing WHERE session = ?1 AND status = 'pending' AND kind = 'child_result'

-- schedules_of --
A session's schedules in a life of it, by name.
SELECT * FROM schedule WHERE session = ?1 AND life = ?2 ORDER BY name

-- schedules_of_session --
A session's schedules, by name.
SELECT s.*, c.* FROM session s JOIN schedule c ON c.session = s.sid AND c.life = s.life
WHERE s.tenant = ?1 AND s.kind = ?2 AND s.session_id = ?3 ORDER BY c.name

-- all_schedules --
Schedules of live sessions behind one of them, of any tenant, by session and name; also or not those that are paused.
SELECT s.*, c.* FROM schedule c CROSS JOIN session s ON s.sid = c.session AND s.life = c.life
WHERE s.alive = 1 AND (c.session, c.life, c.name) > (?1, ?2, ?3) AND (?4 OR c.paused IS NULL)
ORDER BY c.session, c.life, c.name LIMIT ?5

-- schedules_of_tenant --
The same for one tenant, by its index.
SELECT s.*, c.* FROM schedule c CROSS JOIN session s ON s.sid = c.session AND s.life = c.life
WHERE s.alive = 1 AND c.tenant = ?1 AND (c.session, c.life, c.name) > (?2, ?3, ?4)
    AND (?5 OR c.paused IS NULL)
ORDER BY c.session, c.life, c.name LIMIT ?6

-- paused_schedules --
Schedules of any tenant that are paused, by their index.
SELECT s.*, c.* FROM schedule c CROSS JOIN session s ON s.sid = c.session AND s.life = c.life
WHERE s.alive = 1 AND c.paused IS NOT NULL AND (c.session, c.life, c.name) > (?1, ?2, ?3)
ORDER BY c.session, c.life, c.name LIMIT ?4

-- paused_schedules_of_tenant --
The same for one tenant, by their index.
SELECT s.*, c.* FROM schedule c CROSS JOIN session s ON s.sid = c.session AND s.life = c.life
WHERE s.alive = 1 AND c.paused IS NOT NULL AND c.tenant = ?1 AND (c.session, c.life, c.name) > (?2, ?3, ?4)
ORDER BY c.session, c.life, c.name LIMIT ?5

-- due_schedules --
Schedules that are due, the longest due first; not those that are held, or whose last message is still in the inbox.
SELECT s.*, c.* FROM schedule c JOIN session s ON s.sid = c.session AND s.life = c.life
WHERE c.paused IS NULL AND c.next_at <= coalesce(?1, CAST(unixepoch('subsec') * 1000000 AS INTEGER))
    AND NOT EXISTS (SELECT 1 FROM input i WHERE i.input_id = c.input_id AND i.status = 'open')
    AND NOT (c.when_waiting = 'hold' AND s.status = 'active'
        AND EXISTS (SELECT 1 FROM wait w WHERE w.session = c.session AND w.status = 'open'))
ORDER BY c.next_at, c.session, c.name LIMIT ?2

-- deletion_by_target --
One session that a cascading delete has to end.
SELECT * FROM deletion WHERE root = ?1 AND root_life = ?2 AND session = ?3 AND life = ?4

-- deletions_of --
What the cascading delete of a life of a session has to end, in the order it was found; the session itself comes first.
SELECT * FROM deletion WHERE root = ?1 AND root_life = ?2 ORDER BY session <> root, session, life

-- open_deletions --
What cascading deletes have still to end, with its sessions' rows; a null root means any.
SELECT s.*, d.* FROM deletion d JOIN session s ON s.sid = d.session
WHERE d.status = 'open' AND (?1 IS NULL OR d.root = ?1)
ORDER BY d.root, d.root_life, d.session LIMIT ?2

-- content_exists --
Whether a tenant holds a value.
SELECT 1 FROM content WHERE tenant = ?1 AND hash = ?2

-- contents_by_hash --
A tenant's values of a JSON list of hashes.
SELECT c.hash, c.encoding, c.body FROM json_each(?2) p JOIN content c ON c.tenant = ?1 AND c.hash = p.value

-- loose_contents --
How many values wait for their grace to end.
SELECT count(*) FROM content WHERE loose_at IS NOT NULL

-- runs_by_invocation --
The runs of an invocation, oldest first.
SELECT * FROM run WHERE tenant = ?1 AND invocation_id = ?2 ORDER BY chain

-- runs_of_invocation --
The same, with their sessions' rows.
SELECT s.*, r.* FROM run r JOIN session s ON s.sid = r.session
WHERE r.tenant = ?1 AND r.invocation_id = ?2 ORDER BY r.chain

-- bare_run --
One run.
SELECT * FROM run WHERE run_id = ?1

-- run_by_id --
One run with its session's row, asked for in a tenant; a null one means any.
SELECT s.*, r.* FROM run r JOIN session s ON s.sid = r.session
WHERE r.run_id = ?1 AND (?2 IS NULL OR r.tenant = ?2)

-- stops_of_runs --
The stops standing on the runs of a JSON list of ids; a null tenant means any.
SELECT r.run_id, r.stop FROM json_each(?1) p CROSS JOIN run r WHERE r.run_id = p.value AND r.stop IS NOT NULL
    AND (?2 IS NULL OR r.tenant = ?2)

-- runs_of_session --
A session's runs below a number, newest first.
SELECT s.*, r.* FROM session s JOIN run r ON r.session = s.sid
WHERE s.tenant = ?1 AND s.kind = ?2 AND s.session_id = ?3 AND r.number < ?4
ORDER BY r.number DESC LIMIT ?5

-- current_run --
The run a session's row points to.
SELECT s.*, r.* FROM session s JOIN run r ON r.run_id = s.current_run
WHERE s.tenant = ?1 AND s.kind = ?2 AND s.session_id = ?3

-- orphans --
Running runs whose lane or renewal has lapsed, oldest first.
SELECT s.*, r.* FROM run r JOIN session s ON s.sid = r.session
WHERE r.status = 'running' AND CASE
    WHEN r.generation IS NULL
        THEN coalesce(r.expires_at, 0) <= coalesce(?1, lease_now())
    ELSE NOT (s.armed AND s.generation = r.generation
        AND coalesce(s.lane_expires_at, 0) > coalesce(?1, lease_now()))
    END
ORDER BY r.started_at, r.run_id LIMIT ?2

-- running_runs --
Runs under way under a lane, oldest first.
SELECT s.*, r.* FROM run r JOIN session s ON s.sid = r.session
WHERE r.status = 'running' AND r.generation IS NOT NULL
ORDER BY r.started_at, r.run_id LIMIT ?1

-- resumable_runs --
Runs that stopped before their end and left the last checkpoint of their invocation, after one of them; a null tenant means any.
SELECT s.*, r.* FROM run r JOIN session s ON s.sid = r.session
WHERE r.status IN ('failed', 'interrupted') AND r.run_id > ?2 AND (?1 IS NULL OR s.tenant = ?1)
    AND EXISTS (SELECT 1 FROM checkpoint c WHERE c.session = r.session AND c.run_id = r.run_id)
    AND NOT EXISTS (
        SELECT 1 FROM run l WHERE l.tenant = r.tenant AND l.invocation_id = r.invocation_id AND l.chain > r.chain AND (
            l.status NOT IN ('failed', 'interrupted')
            OR EXISTS (SELECT 1 FROM checkpoint c WHERE c.session = l.session AND c.run_id = l.run_id)
        )
    )
ORDER BY r.run_id LIMIT ?3

-- checkpoint_by_commit --
The checkpoint a commit wrote.
SELECT * FROM checkpoint WHERE session = ?1 AND commit_no = ?2

-- checkpoints_near --
The commit numbers of the checkpoints nearest to one.
SELECT commit_no FROM (
    SELECT commit_no FROM checkpoint WHERE session = ?1 ORDER BY abs(commit_no - ?2), commit_no LIMIT 4
) ORDER BY commit_no

-- checkpoints_of_session --
A session's checkpoints below a commit number, newest first.
SELECT c.* FROM session s JOIN checkpoint c ON c.session = s.sid
WHERE s.tenant = ?1 AND s.kind = ?2 AND s.session_id = ?3 AND c.commit_no < ?4
ORDER BY c.commit_no DESC LIMIT ?5

-- points_before --
A session's checkpoints that are of no run, below a commit number, newest first.
SELECT c.* FROM session s JOIN checkpoint c ON c.session = s.sid
WHERE s.tenant = ?1 AND s.kind = ?2 AND s.session_id = ?3 AND c.run_id IS NULL AND c.commit_no < ?4
ORDER BY c.commit_no DESC LIMIT ?5

-- points_after --
The same above a commit number, oldest first.
SELECT c.* FROM session s JOIN checkpoint c ON c.session = s.sid
WHERE s.tenant = ?1 AND s.kind = ?2 AND s.session_id = ?3 AND c.run_id IS NULL AND c.commit_no > ?4
ORDER BY c.commit_no LIMIT ?5

-- checkpoints_of_run --
The same, of one of its runs.
SELECT c.* FROM session s JOIN checkpoint c ON c.session = s.sid
WHERE s.tenant = ?1 AND s.kind = ?2 AND s.session_id = ?3 AND c.run_id = ?4 AND c.commit_no < ?5
ORDER BY c.commit_no DESC LIMIT ?6

-- counts_of_session --
How much of each kind a session has.
SELECT
    (SELECT count(*) FROM run WHERE session = ?1),
    (SELECT count(*) FROM checkpoint WHERE session = ?1),
    (SELECT count(*) FROM wait WHERE session = ?1),
    (SELECT count(*) FROM receipt WHERE session = ?1),
    (SELECT count(*) FROM input WHERE session = ?1),
    (SELECT count(*) FROM effect WHERE session = ?1),
    (SELECT count(*) FROM usage WHERE session = ?1),
    (SELECT count(*) FROM outgoing
        WHERE session = ?1 AND NOT (status = 'pending' AND kind IN ('child_result', 'stop_child'))),
    (SELECT count(*) FROM schedule WHERE session = ?1)

-- counts_of_run --
How many checkpoints (with the one from before it), waits and effects with a known outcome a run has.
SELECT
    (SELECT count(*) FROM checkpoint WHERE run_id = ?1) + (SELECT count(*) FROM run r JOIN checkpoint c
        ON c.session = r.session AND c.commit_no = r.commit_no AND c.run_id IS NULL WHERE r.run_id = ?1),
    (SELECT count(*) FROM wait WHERE run_id = ?1),
    (SELECT count(*) FROM run r JOIN effect e ON e.session = r.session AND e.run_id = r.run_id
        WHERE r.run_id = ?1 AND e.status <> 'started')

-- children_of --
The live sessions whose parent is the given one in a life of it; if asked for, also those of no known life.
SELECT s.* FROM profile p JOIN session s ON s.sid = p.session
WHERE s.tenant = ?1 AND s.kind = ?2 AND p.parent = ?3 AND s.alive
    AND (p.parent_life = ?4 OR p.parent_life IS NULL AND ?5)
ORDER BY s.sid

-- forks_of --
The live sessions forked from the given one.
SELECT s.* FROM profile p JOIN session s ON s.sid = p.session WHERE p.forked_sid = ?1 AND s.alive ORDER BY s.sid

-- count_kin --
How many other sessions of a family are not deleted.
SELECT count(*) FROM session WHERE family = ?1 AND sid <> ?2 AND (alive OR status <> 'deleted')

-- events_after --
The rows of a stream that reach beyond a number; a null run means any.
SELECT * FROM event
WHERE session = ?1 AND last_seq > ?2 AND (?3 IS NULL OR run_id = ?3)
    AND first_seq >= coalesce((SELECT max(first_seq) FROM event WHERE session = ?1 AND first_seq <= ?2), 0)
ORDER BY first_seq LIMIT ?4

-- list_sessions --
Live sessions with their profiles, newest first, below a row number; every null condition holds.
SELECT s.*, p.* FROM session s LEFT JOIN profile p ON p.session = s.sid
WHERE s.alive AND (?11 IS NULL OR s.sid < ?11)
    AND (?1 IS NULL OR s.tenant = ?1) AND (?2 IS NULL OR s.kind = ?2)
    AND (?3 IS NULL OR s.updated_at > ?3) AND (?4 IS NULL OR s.created_at > ?4)
    AND (?5 IS NULL OR s.schema_version = ?5) AND (?6 IS NULL OR s.status = ?6)
    AND (?7 IS NULL OR p.agent = ?7) AND (?8 IS NULL OR p.user_id = ?8)
    AND (?9 IS NULL OR EXISTS (
        SELECT 1 FROM json_each(CASE WHEN json_valid(p.tags) THEN p.tags END) t WHERE t.value = ?9)) AND (?10 IS NULL OR p.parent = ?10)
ORDER BY s.sid DESC LIMIT ?12

-- list_sessions_of_user --
The same for one user, by the user's index.
SELECT s.*, p.* FROM profile p CROSS JOIN session s ON s.sid = p.session
WHERE p.user_id = ?8 AND s.alive AND (?11 IS NULL OR p.session < ?11)
    AND (?1 IS NULL OR s.tenant = ?1) AND (?2 IS NULL OR s.kind = ?2)
    AND (?3 IS NULL OR s.updated_at > ?3) AND (?4 IS NULL OR s.created_at > ?4)
    AND (?5 IS NULL OR s.schema_version = ?5) AND (?6 IS NULL OR s.status = ?6)
    AND (?7 IS NULL OR p.agent = ?7) AND (?9 IS NULL OR EXISTS (
        SELECT 1 FROM json_each(CASE WHEN json_valid(p.tags) THEN p.tags END) t WHERE t.value = ?9)) AND (?10 IS NULL OR p.parent = ?10)
ORDER BY p.session DESC LIMIT ?12

-- list_sessions_of_parent --
The same for one parent's children, by the parent's index.
SELECT s.*, p.* FROM profile p CROSS JOIN session s ON s.sid = p.session
WHERE p.parent = ?10 AND s.alive AND (?11 IS NULL OR p.session < ?11)
    AND (?1 IS NULL OR s.tenant = ?1) AND (?2 IS NULL OR s.kind = ?2)
    AND (?3 IS NULL OR s.updated_at > ?3) AND (?4 IS NULL OR s.created_at > ?4)
    AND (?5 IS NULL OR s.schema_version = ?5) AND (?6 IS NULL OR s.status = ?6)
    AND (?7 IS NULL OR p.agent = ?7) AND (?8 IS NULL OR p.user_id = ?8) AND (?9 IS NULL OR EXISTS (
        SELECT 1 FROM json_each(CASE WHEN json_valid(p.tags) THEN p.tags END) t WHERE t.value = ?9))
ORDER BY p.session DESC LIMIT ?12

-- expired --
Live sessions whose time has come.
SELECT s.* FROM profile p JOIN session s ON s.sid = p.session
WHERE p.expires_at <= coalesce(?1, CAST(unixepoch('subsec') * 1000000 AS INTEGER)) AND s.alive ORDER BY s.sid

-- families --
Families of forks above a number, in order.
SELECT DISTINCT family FROM session WHERE family > ?1 ORDER BY family LIMIT ?2

-- family_name --
The first session of a family.
SELECT * FROM session WHERE family = ?1 ORDER BY sid LIMIT 1

-- family_sessions --
What decides what a family's sessions reach.
SELECT sid, life, heads, held FROM session WHERE family = ?1

-- family_checkpoints --
What a family's checkpoints reach.
SELECT c.session, c.ends, c.held FROM session s JOIN checkpoint c ON c.session = s.sid WHERE s.family = ?1

-- family_runs --
What a family's unfinished runs reach.
SELECT r.base_ends, r.ends FROM session s JOIN run r ON r.session = s.sid WHERE s.family = ?1 AND r.ends IS NOT NULL

-- family_branches --
A family's branches.
SELECT b.* FROM session s JOIN branch b ON b.session = s.sid WHERE s.family = ?1

-- family_tips --
Where each branch of a family ends.
SELECT b.session, b.branch, (
    SELECT max(position) + 1 FROM entry e WHERE e.session = b.session AND e.branch = b.branch
) AS tip
FROM session s JOIN branch b ON b.session = s.sid
WHERE s.family = ?1 AND tip IS NOT NULL

-- family_holdings --
Which values a family's sessions hold.
SELECT h.session, h.hash FROM session s JOIN holding h ON h.session = s.sid WHERE s.family = ?1

-- old_runs --
Runs that ended long ago, whose invocation is over, and that are not their session's current one, after one of them.
SELECT r.run_id FROM run r JOIN session s ON s.sid = r.session
WHERE r.status <> 'running' AND (
        SELECT l.status FROM run l WHERE l.tenant = r.tenant AND l.invocation_id = r.invocation_id
        ORDER BY l.chain DESC LIMIT 1
    ) NOT IN ('running', 'suspended') AND r.run_id IS NOT s.current_run
    AND r.ended_at < coalesce(?1, CAST(unixepoch('subsec') * 1000000 AS INTEGER)) - ?2
    AND r.run_id > ?3
ORDER BY r.run_id LIMIT ?4

-- headless --
Rows of ids that were never saved and have no run.
SELECT * FROM session s WHERE NOT alive AND status <> 'deleted' AND NOT EXISTS (SELECT 1 FROM run r WHERE r.session = s.sid)

-- insert_session --
A new id's row.
INSERT INTO session VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)

-- move_session --
Change a session's row if it still is as it was found; a renewal that came between is kept.
UPDATE session SET
    life = ?1, family = ?2, alive = ?3, status = ?4, version = ?5, commit_no = ?6, schema_version = ?7,
    branch_seq = ?8, run_seq = ?9, resume_count = ?10, heads = ?11, document = ?12, held = ?13,
    event_seq = ?14, event_floor = max(event_floor, ?15), current_run = ?16,
    generation = ?17, armed = ?18, nonce = ?19, holder = ?20,
    lane_expires_at = CASE WHEN generation = ?17 AND nonce IS ?19
        THEN nullif(max(coalesce(lane_expires_at, 0), coalesce(?21, 0)), 0) ELSE ?21 END,
    created_at = ?22, updated_at = ?23, preview = ?24
WHERE sid = ?25 AND life = ?26 AND commit_no = ?27 AND generation = ?28 AND armed = ?29 AND event_seq = ?30
    AND (?31 OR NOT armed OR lane_expires_at <= ?32)

-- pin_session --
Touch a session that something new will point to, if it still lives that life.
UPDATE session SET life = life WHERE sid = ?1 AND life = ?2

-- advance_events --
Give out event numbers under the lane.
UPDATE session SET event_seq = ?1 WHERE sid = ?2 AND life = ?3 AND generation = ?4 AND event_seq = ?5

-- take_number --
Give out an event number without a lane, if the session is as it was found.
UPDATE session SET event_seq = ?1 WHERE sid = ?2 AND life = ?3 AND event_seq = ?4 AND alive = ?5 AND status = ?6

-- put_profile --
Write a session's profile.
INSERT OR REPLACE INTO profile VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)

-- insert_receipts --
Receipts.
INSERT INTO receipt VALUES (?,?,?,?,?,?,?,?,?,?,?,?)

-- forget_receipts --
Let a receipt go that its writer has heard of.
DELETE FROM receipt WHERE session = ?1 AND life = ?2 AND operation_id = ?3

-- insert_runs --
New runs.
INSERT INTO run VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)

-- update_runs --
Change a run that is running at the given attempt.
UPDATE run SET
    attempt = ?1, status = ?2, generation = ?3, steps = ?4, partial = ?5, start_seq = ?6, base_version = ?7,
    base_ends = ?8, ends = ?9, own_logs = ?10, worker = ?11, error = ?12, outcome = ?13,
    started_at = ?14, ended_at = ?15, expires_at = ?16, holds = ?17, stop = ?18, commit_no = ?19,
    additions = ?20, budget = ?21
WHERE run_id = ?22 AND attempt = ?23 AND status = 'running'

-- carry_runs --
Let the ended runs that stood at a version stand at the next one.
UPDATE run SET base_version = ?1
WHERE session = ?2 AND life = ?3 AND base_version = ?4 AND status <> 'running'

-- stop_runs --
Put a stop on a running run, or take it off.
UPDATE run SET stop = ?1 WHERE run_id = ?2 AND status = 'running'

-- hold_runs --
Note what the commit that ends a running run has to look after.
UPDATE run SET holds = holds | ?1 WHERE run_id = ?2 AND status = 'running'

-- insert_branches --
New branches.
INSERT INTO branch VALUES (?,?,?,?,?,?,?,?,?)

-- share_branches --
Mark branches that something new stands on: they are neither re-keyed nor collected from here on.
UPDATE branch SET shared = 1, loose_from = NULL, loose_at = NULL WHERE session = ?1 AND branch = ?2

-- mark_branches --
Note from where and since when a branch is unreachable.
UPDATE branch SET loose_from = ?1, loose_at = ?2 WHERE session = ?3 AND branch = ?4

-- rekey_branch --
Let a run's branch point to the head's, where its entries go; not if anything stands on it.
UPDATE branch SET start = ?1, lineage = ?2 WHERE session = ?3 AND branch = ?4 AND NOT shared

-- rekey_entries --
Move a run branch's entries onto the head's branch, keeping positions.
UPDATE entry SET branch = ?1 WHERE session = ?2 AND branch = ?3

-- insert_entries --
Log entries.
INSERT INTO entry VALUES (?,?,?,?,?,?)

-- insert_checkpoints --
Checkpoints.
INSERT INTO checkpoint VALUES (?,?,?,?,?,?,?,?,?,?,?)

-- insert_waits --
Waits.
INSERT INTO wait VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)

-- settle_waits --
Settle an open wait.
UPDATE wait SET status = ?1, answer = ?2, settled_at = ?3 WHERE wait_id = ?4 AND status = 'open'

-- keep_waits --
Let an open wait belong to the run that waits for it now.
UPDATE wait SET run_id = ?1 WHERE wait_id = ?2 AND status = 'open'

-- insert_inputs --
Inputs.
INSERT INTO input VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)

-- consume_inputs --
Consume an open input that is for any run, or for this one.
UPDATE input SET
    status = 'consumed', run_id = ?1, log = ?2, position = ?3, settled_at = ?4, body = CASE WHEN NOT ?5 THEN body END
WHERE input_id = ?6 AND session = ?7 AND life = ?8 AND status = 'open' AND (run_id IS NULL OR run_id = ?1)

-- end_inputs --
Leave a run's open inputs to the next turn and drop the bodies of those it consumed, but for a JSON list of them.
UPDATE input SET
    run_id = CASE WHEN status <> 'open' THEN run_id END,
    boundary = CASE WHEN status <> 'open' THEN boundary END,
    body = CASE WHEN status = 'open' THEN body END
WHERE run_id = ?1 AND body IS NOT NULL AND input_id NOT IN (SELECT value FROM json_each(?2))

-- cancel_inputs --
Cancel an open input.
UPDATE input SET status = 'cancelled', body = NULL, settled_at = ?1 WHERE input_id = ?2 AND status = 'open'

-- refuse_inputs --
Settle an open input as refused, with the reason in the place of its body.
UPDATE input SET status = 'refused', body = ?1, boundary = NULL, run_id = NULL, settled_at = ?2
WHERE input_id = ?3 AND status = 'open'

-- roll_back_inputs --
Mark what the invocation of a run consumed as taken back; if another run regenerates it, that answers the message it began with.
UPDATE input SET
    rolled_back = CASE WHEN ?4 IS NOT NULL AND kind = 'message' AND boundary IS NULL THEN 2 ELSE 1 END,
    run_id = CASE WHEN ?4 IS NOT NULL AND kind = 'message' AND boundary IS NULL THEN ?4 ELSE run_id END
WHERE session = ?1 AND life = ?2 AND status = 'consumed' AND run_id IN (
    SELECT r.run_id FROM run o JOIN run r ON r.tenant = o.tenant AND r.invocation_id = o.invocation_id
    WHERE o.run_id = ?3
)

-- roll_back_runs --
Mark the runs of a run's invocation as taken back.
UPDATE run SET holds = holds | 4 WHERE session = ?1 AND life = ?2 AND run_id IN (
    SELECT r.run_id FROM run o JOIN run r ON r.tenant = o.tenant AND r.invocation_id = o.invocation_id
    WHERE o.run_id = ?3
)

-- insert_effects --
Effects.
INSERT INTO effect VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)

-- restart_effects --
Make a call again whose outcome is not known, or that failed in its making before this one.
UPDATE effect SET
    request = ?1, result = ?2, status = ?3, idempotent = ?4, error = ?5, call_id = ?6, run_id = ?7, attempt = ?8,
    started_at = ?9, ended_at = ?10, making = ?11
WHERE session = ?12 AND life = ?13 AND origin_id = ?14 AND namespace = ?15 AND step = ?16 AND key = ?17
    AND (status = 'started' AND making <= ?11 OR status = 'failed' AND making = ?11 - 1)

-- finish_effects --
Write the outcome of an effect that a runner has started, perhaps without bodies.
UPDATE effect SET
    status = ?1, result = ?2, error = ?3, ended_at = ?4, request = CASE WHEN NOT ?5 THEN request END
WHERE session = ?6 AND life = ?7 AND origin_id = ?8 AND namespace = ?9 AND step = ?10 AND key = ?11
    AND run_id = ?12 AND attempt = ?13 AND status = 'started'

-- drop_effects --
Drop the bodies of an origin's effects whose outcome is known.
UPDATE effect SET request = NULL, result = NULL
WHERE session = ?1 AND life = ?2 AND origin_id = ?3 AND status <> 'started'
    AND (request IS NOT NULL OR result IS NOT NULL)

-- insert_usage --
Usage.
INSERT INTO usage VALUES (?,?,?,?,?,?,?,?,?,?,?,?)

-- insert_outgoing --
Outgoing items.
INSERT INTO outgoing VALUES (?,?,?,?,?,?,?,?,?,?,?,?)

-- mark_outgoing --
Move an outgoing item on if it is as it was found.
UPDATE outgoing SET status = ?1, attempts = ?2, due_at = ?3 WHERE outbox_id = ?4 AND status = ?5 AND attempts = ?6

-- refuse_outgoing --
Settle a pending outgoing item as refused if it is as it was found; the reason takes the place of its body.
UPDATE outgoing SET status = 'refused', attempts = ?1, body = ?2 WHERE outbox_id = ?3 AND status = ?4 AND attempts = ?5

-- delete_outgoing --
Remove an outgoing item that is as it was found.
DELETE FROM outgoing WHERE outbox_id = ?1 AND status = ?2 AND attempts = ?3

-- insert_schedules --
Schedules.
INSERT INTO schedule VALUES (?,?,?,?,?,?,?,?,?,?,?)

-- move_schedules --
Change a schedule if it is as it was found.
UPDATE schedule SET
    words = ?1, when_waiting = ?2, anchor = ?3, next_at = ?4, fired_at = ?5, input_id = ?6, paused = ?7
WHERE session = ?8 AND life = ?9 AND name = ?10 AND words = ?11 AND next_at = ?12 AND paused IS ?13

-- delete_schedules --
Remove a schedule if it is as it was found.
DELETE FROM schedule WHERE session = ?1 AND life = ?2 AND name = ?3 AND words = ?4 AND next_at = ?5

-- insert_deletions --
What a cascading delete has to end, if that was not found before.
INSERT OR IGNORE INTO deletion VALUES (?,?,?,?,?,?,?)

-- move_deletions --
Note how far a cascading delete has come with a session.
UPDATE deletion SET status = ?1, report = ?2, at = ?3
WHERE root = ?4 AND root_life = ?5 AND session = ?6 AND life = ?7 AND status = 'open'

-- insert_events --
A batch of events.
INSERT INTO event VALUES (?,?,?,?,?,?)

-- hold_contents --
Keep a tenant's values by hash; one that is there is in use again.
INSERT INTO content VALUES (?1, ?2, ?3, ?4, NULL)
ON CONFLICT (tenant, hash) DO UPDATE SET loose_at = NULL WHERE loose_at IS NOT NULL

-- touch_contents --
Say that a value is in use again.
UPDATE content SET loose_at = NULL WHERE tenant = ?1 AND hash = ?2

-- insert_holdings --
Say which session holds which value of its tenant.
INSERT OR IGNORE INTO holding VALUES (?,?,?)

-- delete_holdings --
A session no longer holds a value.
DELETE FROM holding WHERE session = ?1 AND hash = ?2

-- cut_entries --
Remove a branch's entries from a position on.
DELETE FROM entry WHERE session = ?1 AND branch = ?2 AND position >= ?3

-- delete_branches --
Remove a branch.
DELETE FROM branch WHERE session = ?1 AND branch = ?2

-- delete_run --
Remove a run that still has the status found.
DELETE FROM run WHERE run_id = ?1 AND status = ?2

-- delete_checkpoints_of_run --
Remove a run's checkpoints.
DELETE FROM checkpoint WHERE session = ?1 AND run_id = ?2

-- delete_point --
Remove the checkpoint of a session from before a run.
DELETE FROM checkpoint WHERE session = ?1 AND commit_no = ?2 AND run_id IS NULL

-- delete_waits_of_run --
Remove a run's waits.
DELETE FROM wait WHERE run_id = ?1

-- delete_effects_of_run --
Remove a run's effects whose outcome is known.
DELETE FROM effect WHERE session = ?1 AND run_id = ?2 AND status <> 'started'

-- delete_session --
Remove the row of an id that was never saved, if it is as it was found.
DELETE FROM session WHERE sid = ?1 AND life = ?2 AND commit_no = ?3 AND generation = ?4 AND NOT alive

-- raise_floors --
Let new ids begin above a life, and their streams above a number.
UPDATE meta SET life_floor = max(life_floor, ?1), event_floor = max(event_floor, ?2)

-- delete_runs_of --
Remove a session's runs.
DELETE FROM run WHERE session = ?1

-- delete_checkpoints_of --
Remove a session's checkpoints.
DELETE FROM checkpoint WHERE session = ?1

-- delete_waits_of --
Remove a session's waits.
DELETE FROM wait WHERE session = ?1

-- delete_receipts_of --
Remove a session's receipts.
DELETE FROM receipt WHERE session = ?1

-- delete_inputs_of --
Remove a session's inputs.
DELETE FROM input WHERE session = ?1

-- delete_effects_of --
Remove a session's effects.
DELETE FROM effect WHERE session = ?1

-- delete_usage_of --
Remove a session's usage.
DELETE FROM usage WHERE session = ?1

-- delete_outgoing_of --
Remove a session's outgoing items.
DELETE FROM outgoing WHERE session = ?1

-- leave_debts_of --
Remove a deleted session's outgoing items but those it owes to others.
DELETE FROM outgoing
WHERE session = ?1 AND NOT (status = 'pending' AND kind IN ('child_result', 'stop_child'))

-- delete_schedules_of --
Remove a session's schedules.
DELETE FROM schedule WHERE session = ?1

-- delete_profiles_of --
Remove a session's profile.
DELETE FROM profile WHERE session = ?1

-- delete_holdings_of --
Remove what a session holds.
DELETE FROM holding WHERE session = ?1

-- delete_entries_of --
Remove all entries a session's own branches hold.
DELETE FROM entry WHERE session = ?1

-- delete_branches_of --
Remove a session's branches.
DELETE FROM branch WHERE session = ?1

-- delete_events_of --
Remove a session's events.
DELETE FROM event WHERE session = ?1

-- renew_lanes --
Renew the lanes of a JSON list of [tenant, kind, session_id, life, generation, nonce] that are still held so.
UPDATE session SET lane_expires_at = max(
    coalesce(lane_expires_at, 0), coalesce(?1, lease_now()) + ?2)
FROM json_each(?3) p
WHERE tenant = p.value ->> 0 AND session.kind = p.value ->> 1 AND session_id = p.value ->> 2
    AND life = p.value ->> 3 AND generation = p.value ->> 4 AND nonce = p.value ->> 5 AND armed
RETURNING tenant, kind, session_id, nonce, lane_expires_at

-- renew_runs --
Renew the runs of a JSON list of [run_id, attempt] that run without a lane; a null tenant means any.
UPDATE run SET expires_at = max(
    coalesce(expires_at, 0), coalesce(?1, lease_now()) + ?2)
FROM json_each(?3) p
WHERE run_id = p.value ->> 0 AND attempt = p.value ->> 1 AND status = 'running' AND generation IS NULL
    AND (?4 IS NULL OR tenant = ?4)
RETURNING run_id, expires_at

-- mark_contents --
Note since when values are held by nobody, and forget it for those that are.
UPDATE content SET loose_at = CASE WHEN loose_at IS NULL
    THEN coalesce(?1, CAST(unixepoch('subsec') * 1000000 AS INTEGER)) END
WHERE (loose_at IS NULL) <> EXISTS (
    SELECT 1 FROM holding h WHERE h.tenant = content.tenant AND h.hash = content.hash)

-- sweep_contents --
Remove values that nobody has held for a time, some at a time.
DELETE FROM content WHERE (tenant, hash) IN (
    SELECT tenant, hash FROM content c
    WHERE loose_at <= coalesce(?1, CAST(unixepoch('subsec') * 1000000 AS INTEGER)) - ?2
        AND NOT EXISTS (SELECT 1 FROM holding h WHERE h.tenant = c.tenant AND h.hash = c.hash) LIMIT ?3
) RETURNING 1

-- loosen_contents --
Let those of a tenant's values in a JSON list go that nobody holds any more, whatever the grace.
UPDATE content SET loose_at = 0
WHERE tenant = ?1 AND hash IN (SELECT value FROM json_each(?2))
    AND NOT EXISTS (SELECT 1 FROM holding h WHERE h.tenant = content.tenant AND h.hash = content.hash)

-- sweep_events --
Remove event rows below their session's floor, some at a time.
DELETE FROM event WHERE rowid IN (
    SELECT e.rowid FROM session s JOIN event e ON e.session = s.sid WHERE e.last_seq <= s.event_floor LIMIT ?1
) RETURNING last_seq - first_seq + 1

-- sweep_events_of --
The same for one session.
DELETE FROM event WHERE rowid IN (
    SELECT e.rowid FROM session s JOIN event e ON e.session = s.sid
    WHERE s.sid = ?1 AND e.last_seq <= s.event_floor LIMIT ?2
) RETURNING last_seq - first_seq + 1

-- runs_with_chunks --
Runs that are over and have chunks older than an age, after one of them.
SELECT DISTINCT e.session, e.run_id FROM event e
WHERE e.run_id IS NOT NULL AND substr(e.body, 1, 10) = '[["chunk",' AND e.at < coalesce(?1, CAST(unixepoch('subsec') * 1000000 AS INTEGER)) - ?2
    AND NOT EXISTS (SELECT 1 FROM run r WHERE r.run_id = e.run_id AND r.status = 'running')
    AND (e.session, e.run_id) > (?3, ?4)
ORDER BY e.session, e.run_id LIMIT ?5

-- events_of_run --
The event rows of a run, in order.
SELECT * FROM event WHERE session = ?1 AND run_id = ?2 ORDER BY first_seq

-- delete_events --
Remove an event row as it was found.
DELETE FROM event WHERE session = ?1 AND first_seq = ?2 AND last_seq = ?3

-- prune_receipts --
Remove receipts older than an age, some at a time.
DELETE FROM receipt WHERE (session, life, operation_id) IN (
    SELECT session, life, operation_id FROM receipt
    WHERE at < coalesce(?1, CAST(unixepoch('subsec') * 1000000 AS INTEGER)) - ?2 LIMIT ?3
) RETURNING 1

-- prune_inputs --
Remove inputs settled longer ago than an age whose invocation is over, some at a time.
DELETE FROM input WHERE input_id IN (
    SELECT i.input_id FROM input i
    WHERE i.status IN ('consumed', 'cancelled', 'refused') AND i.settled_at < coalesce(?1, CAST(unixepoch('subsec') * 1000000 AS INTEGER)) - ?2
        AND NOT EXISTS (SELECT 1 FROM run r WHERE r.run_id = i.run_id AND (
        SELECT l.status FROM run l WHERE l.tenant = r.tenant AND l.invocation_id = r.invocation_id
        ORDER BY l.chain DESC LIMIT 1
    ) IN ('running', 'suspended'))
    LIMIT ?3
) RETURNING 1

-- prune_outgoing --
Remove outgoing items that are final and were due longer ago than an age, some at a time.
DELETE FROM outgoing WHERE outbox_id IN (
    SELECT outbox_id FROM outgoing
    WHERE status IN ('done', 'refused', 'expired') AND max(created_at, due_at) < coalesce(?1, CAST(unixepoch('subsec') * 1000000 AS INTEGER)) - ?2 LIMIT ?3
) RETURNING 1

-- sweep_deletions --
Forget cascading deletes that have been done for a time, some sessions of them at a time.
DELETE FROM deletion WHERE rowid IN (
    SELECT d.rowid FROM deletion d
    WHERE d.status = 'done' AND d.at <= coalesce(?1, CAST(unixepoch('subsec') * 1000000 AS INTEGER)) - ?2
        AND NOT EXISTS (SELECT 1 FROM deletion o WHERE o.root = d.root AND o.root_life = d.root_life AND o.status = 'open')
    LIMIT ?3
) RETURNING 1

-- floor_events_by_age --
Raise the floors above event rows older than an age.
UPDATE session SET event_floor = f.floor FROM (
    SELECT session, max(last_seq) AS floor FROM event
    WHERE at < coalesce(?1, CAST(unixepoch('subsec') * 1000000 AS INTEGER)) - ?2 GROUP BY session
) f WHERE f.session = sid AND f.floor > event_floor

-- floor_events_by_count --
Raise the floors so that this many events stay.
UPDATE session SET event_floor = event_seq - ?1 WHERE event_seq - ?1 > event_floor
