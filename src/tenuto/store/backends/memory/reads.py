"""The named reads of a memory store."""

from collections.abc import Callable, Iterable
from itertools import chain, islice
from typing import Any

from tenuto.codec import loads
from tenuto.store.backends.memory.runtime_reads import RuntimeReads
from tenuto.store.backends.memory.tables import Tables, is_debt, moment_of
from tenuto.store.rules.plan import Row
from tenuto.store.rules.rows import (
    ProfileRow,
    ReceiptRow,
    RunRow,
    SessionRow,
    WaitRow,
)

_EMPTY_RECEIPT = (None,) * len(ReceiptRow._fields)
_EMPTY_RUN = (None,) * len(RunRow._fields)
_EMPTY_SESSION = (None,) * len(SessionRow._fields)


class Reads(RuntimeReads):
    """The named reads. Each has the same parameters and columns as its namesake in the SQL backends."""

    def __init__(self, tables: Tables) -> None:
        self._t = tables

    def find_session(
        self, now: int | None, tenant: str, kind: str, session_id: str, operation_id: str, run_id: str
    ) -> list[Row]:
        t = self._t
        row = self._row(tenant, kind, session_id)
        receipt = t.receipt.get((row.sid, row.life, operation_id)) if row else None
        run = t.run.get(run_id)
        numbers = (moment_of(now), None, t.meta["life_floor"], t.meta["event_floor"], t.meta["next_sid"])
        return [numbers + (row or _EMPTY_SESSION) + (receipt or _EMPTY_RECEIPT) + (run or _EMPTY_RUN)]

    def moment(self, now: int | None) -> list[Row]:
        return [(moment_of(now),)]

    def lease_moment(self, now: int | None) -> list[Row]:
        return [(moment_of(now),)]

    def session_by_key(self, tenant: str, kind: str, session_id: str) -> list[Row]:
        row = self._row(tenant, kind, session_id)
        return [row] if row else []

    def head_by_key(self, tenant: str, kind: str, session_id: str) -> list[Row]:
        row = self._row(tenant, kind, session_id)
        return [row + self._t.profile[row.sid]] if row and row.alive else []

    def record_by_key(self, tenant: str, kind: str, session_id: str) -> list[Row]:
        row = self._row(tenant, kind, session_id)
        run = self._t.run.get(row.current_run) if row and row.current_run else None
        return [found + (run or _EMPTY_RUN) for found in self.head_by_key(tenant, kind, session_id)]

    def stamp_by_key(self, tenant: str, kind: str, session_id: str) -> list[Row]:
        row = self._row(tenant, kind, session_id)
        if row is None or not row.alive:
            return []
        opened = row.sid in self._t.input.places("open")
        steers = any(each.boundary is not None for each in self._open(row.sid))
        found = (row.life, row.version, row.commit_no, row.generation, row.schema_version)
        return [(*found, opened, steers, row.event_seq)]

    def life_of(self, tenant: str, kind: str, session_id: str) -> list[Row]:
        row = self._row(tenant, kind, session_id)
        return [(row.life if row else self._t.meta["life_floor"],)]

    def receipt_by_id(self, tenant: str, kind: str, session_id: str, operation_id: str) -> list[Row]:
        row = self._row(tenant, kind, session_id)
        receipt = self._t.receipt.get((row.sid, row.life, operation_id)) if row else None
        return [receipt] if receipt else []

    def profile_by_session(self, sid: int) -> list[Row]:
        return [self._t.profile[sid]] if sid in self._t.profile else []

    def branch_by_id(self, session: int, branch: int) -> list[Row]:
        row = self._t.branch.get((session, branch))
        return [row] if row else []

    def branches_present(self, places: str) -> list[Row]:
        return [(sum(place in self._t.branch for place in {tuple(place) for place in loads(places, "places")}),)]

    def entry_exists(self, session: int, branch: int, position: int) -> list[Row]:
        return [(1,)] if (session, branch, position) in self._t.entry else []

    def entries_of(self, parts: str) -> list[Row]:
        found = (
            self._t.entry.get((session, branch, position))
            for session, branch, start, stop in loads(parts, "parts")
            for position in range(start, stop)
        )
        return [row for row in found if row]

    def bodies_of(self, parts: str) -> list[Row]:
        return [(row[2], row[5]) for row in self.entries_of(parts)]

    def wait_by_id(self, wait_id: str) -> list[Row]:
        row = self._t.wait.get(wait_id)
        return [row] if row else []

    def wait_with_session(self, wait_id: str, tenant: str | None) -> list[Row]:
        return self._asked(tenant, self.wait_by_id(wait_id))

    def _asked(self, tenant: str | None, rows: list[Row]) -> list[Row]:
        found = ((self._t.session[row[1]], row) for row in rows)
        return [session + row for session, row in found if tenant in (None, session.tenant)]

    def waits_of_session(
        self, tenant: str, kind: str, session_id: str, run_id: str | None, status: str | None
    ) -> list[Row]:
        row, waits = self._row(tenant, kind, session_id), self._t.wait
        if row is None:
            return []
        if run_id is not None:
            of_run = waits.find("run", run_id)
            return self._waits(w for w in of_run if w.session == row.sid and status in (None, w.status))
        if status is not None:
            return self._waits(waits.find("status", (row.sid, status)))
        return self._waits(waits.find("session", row.sid))

    def waits_of_origin(self, tenant: str, kind: str, session_id: str, origin_id: str) -> list[Row]:
        row = self._row(tenant, kind, session_id)
        runs = self._t.run.find("origin", (row.sid, row.life, origin_id)) if row else ()
        waits = [wait for run in runs for wait in self._t.wait.find("run", run.run_id)]
        return self._waits(sorted(waits, key=lambda wait: (wait.created_at, wait.wait_id)))

    def waits_for_signal(self, tenant: str | None, signal_id: str, status: str | None) -> list[Row]:
        return self._waits(
            wait
            for wait in self._t.wait.find("signal", signal_id)
            if tenant in (None, self._t.session[wait.session].tenant) and status in (None, wait.status)
        )

    def open_waits(self, tenant: str | None, after: str, limit: int) -> list[Row]:
        behind = (wait for wait in self._t.wait.find("open", True, after) if wait.wait_id != after)
        waits = (wait for wait in behind if tenant in (None, self._t.session[wait.session].tenant))
        return self._waits(islice(waits, limit))

    def content_exists(self, tenant: str, content: str) -> list[Row]:
        return [(1,)] if (tenant, content) in self._t.content else []

    def contents_by_hash(self, tenant: str, hashes: str) -> list[Row]:
        found = (self._t.content.get((tenant, content)) for content in loads(hashes, "hashes"))
        return [row[1:4] for row in found if row]

    def loose_contents(self) -> list[Row]:
        return [(sum(row.loose_at is not None for row in self._t.content.values()),)]

    def runs_by_invocation(self, tenant: str, invocation_id: str) -> list[Row]:
        return list(self._t.run.find("invocation", (tenant, invocation_id)))

    def runs_of_invocation(self, tenant: str, invocation_id: str) -> list[Row]:
        return [self._t.session[row[1]] + row for row in self.runs_by_invocation(tenant, invocation_id)]

    def bare_run(self, run_id: str) -> list[Row]:
        row = self._t.run.get(run_id)
        return [row] if row else []

    def run_by_id(self, run_id: str, tenant: str | None) -> list[Row]:
        return self._asked(tenant, self.bare_run(run_id))

    def stops_of_runs(self, run_ids: str, tenant: str | None) -> list[Row]:
        found = (self._t.run.get(run_id) for run_id in dict.fromkeys(loads(run_ids, "run ids")))
        return [
            (run.run_id, run.stop) for run in found if run and run.stop is not None and tenant in (None, run.tenant)
        ]

    def runs_of_session(self, tenant: str, kind: str, session_id: str, before: int, limit: int) -> list[Row]:
        row = self._row(tenant, kind, session_id)
        return [row + run for run in islice(self._t.run.find_back("session", row.sid, before), limit)] if row else []

    def current_run(self, tenant: str, kind: str, session_id: str) -> list[Row]:
        row = self._row(tenant, kind, session_id)
        return self.run_by_id(row.current_run, tenant) if row and row.current_run else []

    def orphans(self, now: int | None, limit: int) -> list[Row]:
        moment = moment_of(now)
        lost = (run for run in self._t.run.find("running", True) if self._lost(run, moment))
        return [self._t.session[run.session] + run for run in islice(lost, limit)]

    def running_runs(self, limit: int) -> list[Row]:
        found = (run for run in self._t.run.find("running", True) if run.generation is not None)
        return [self._t.session[run.session] + run for run in islice(found, limit)]

    def checkpoint_by_commit(self, sid: int, commit_no: int) -> list[Row]:
        row = self._t.checkpoint.get((sid, commit_no))
        return [row] if row else []

    def checkpoints_near(self, sid: int, commit_no: int) -> list[Row]:
        points = self._t.checkpoint
        sides = points.find_back("session", sid, commit_no), points.find("session", sid, commit_no)
        numbers = [point.commit_no for side in sides for point in islice(side, 4)]
        return [(n,) for n in sorted(sorted(numbers, key=lambda n: (abs(n - commit_no), n))[:4])]

    def checkpoints_of_session(self, tenant: str, kind: str, session_id: str, before: int, limit: int) -> list[Row]:
        row = self._row(tenant, kind, session_id)
        return list(islice(self._t.checkpoint.find_back("session", row.sid, before), limit)) if row else []

    def points_before(self, tenant: str, kind: str, session_id: str, before: int, limit: int) -> list[Row]:
        row = self._row(tenant, kind, session_id)
        found = self._t.checkpoint.find_back("session", row and row.sid, before)
        return list(islice((point for point in found if point.run_id is None), limit))

    def points_after(self, tenant: str, kind: str, session_id: str, after: int, limit: int) -> list[Row]:
        row = self._row(tenant, kind, session_id)
        found = self._t.checkpoint.find("session", row and row.sid, after + 1)
        return list(islice((point for point in found if point.run_id is None), limit))

    def checkpoints_of_run(
        self, tenant: str, kind: str, session_id: str, run_id: str, before: int, limit: int
    ) -> list[Row]:
        row = self._row(tenant, kind, session_id)
        found = self._t.checkpoint.find_back("run", run_id, before)
        return list(islice((point for point in found if row and point.session == row.sid), limit))

    def counts_of_session(self, sid: int) -> list[Row]:
        t = self._t
        tables: tuple[Iterable[Any], ...] = (
            t.run.values(),
            t.checkpoint.values(),
            t.wait.values(),
            t.receipt.values(),
            t.input.values(),
            t.effect.values(),
            t.usage.values(),
            [item for item in t.outgoing.values() if not is_debt(item)],
        )
        return [tuple(sum(row.session == sid for row in rows) for rows in tables)]

    def counts_of_run(self, run_id: str) -> list[Row]:
        run = self._t.run.get(run_id)
        before = self._t.checkpoint.get((run.session, run.commit_no)) if run else None
        points = sum(1 for _ in self._t.checkpoint.find("run", run_id))
        waits = sum(1 for _ in self._t.wait.find("run", run_id))
        known = sum(row.status != "started" for row in self._t.effect.find("run", run_id))
        return [(points + int(before is not None and before.run_id is None), waits, known)]

    def children_of(self, tenant: str, kind: str, session_id: str, life: int, unknown: int) -> list[Row]:
        lives = (life, None) if unknown else (life,)
        place = (tenant, kind, session_id)
        return self._alive(lambda s, p: (s.tenant, s.kind, p.parent) == place and p.parent_life in lives)

    def forks_of(self, sid: int) -> list[Row]:
        return self._alive(lambda _, p: p.forked_sid == sid)

    def count_kin(self, family: int, sid: int) -> list[Row]:
        kin = [s for s in self._family(family) if s.sid != sid and (s.alive or s.status != "deleted")]
        return [(len(kin),)]

    def runs_with_chunks(self, now: int | None, age: int, session: int, run_id: str, limit: int) -> list[Row]:
        cutoff = moment_of(now) - age
        running = {run.run_id for run in self._t.run.find("running", True)}
        found = {
            (e.session, e.run_id)
            for e in self._t.event.values()
            if e.run_id is not None and e.at < cutoff and e.run_id not in running and e.body.startswith('[["chunk",')
        }
        return sorted(place for place in found if place > (session, run_id))[:limit]

    def events_of_run(self, sid: int, run_id: str) -> list[Row]:
        return list(self._t.event.find("run", (sid, run_id)))

    def events_after(self, sid: int, after: int, run_id: str | None, limit: int) -> list[Row]:
        index, place = ("session", sid) if run_id is None else ("run", (sid, run_id))
        across = (e for e in islice(self._t.event.find_back(index, place, after + 1), 1) if e.last_seq > after)
        return list(islice(chain(across, self._t.event.find(index, place, after + 1)), limit))

    def list_sessions(
        self,
        tenant: str | None,
        kind: str | None,
        updated_after: int | None,
        created_after: int | None,
        schema_version: str | None,
        status: str | None,
        agent: str | None,
        user_id: str | None,
        tag: str | None,
        parent: str | None,
        below: int | None,
        limit: int,
    ) -> list[Row]:
        found = [
            s + p
            for s in self._t.session.values()
            if s.alive and (p := self._t.profile.get(s.sid))
            if tenant in (None, s.tenant) and kind in (None, s.kind)
            if updated_after is None or s.updated_at > updated_after
            if created_after is None or s.created_at > created_after
            if schema_version in (None, s.schema_version) and status in (None, s.status)
            if agent in (None, p.agent) and user_id in (None, p.user_id) and parent in (None, p.parent)
            if tag is None or tag in loads(p.tags or "[]", "tags")
            if below is None or s.sid < below
        ]
        found.sort(key=lambda row: -row[0])
        return list(found[:limit])

    list_sessions_of_user = list_sessions
    list_sessions_of_parent = list_sessions

    def expired(self, now: int | None) -> list[Row]:
        moment = moment_of(now)
        return self._alive(lambda _, p: p.expires_at is not None and p.expires_at <= moment)

    def families(self, after: int, limit: int) -> list[Row]:
        found = sorted({s.family for s in self._t.session.values() if s.family > after})
        return [(family,) for family in found[:limit]]

    def family_name(self, family: int) -> list[Row]:
        return list(sorted(self._family(family))[:1])

    def family_sessions(self, family: int) -> list[Row]:
        return [(s.sid, s.life, s.heads, s.held) for s in self._family(family)]

    def family_checkpoints(self, family: int) -> list[Row]:
        sids = {s.sid for s in self._family(family)}
        return [(c.session, c.ends, c.held) for c in self._t.checkpoint.values() if c.session in sids]

    def family_runs(self, family: int) -> list[Row]:
        sids = {s.sid for s in self._family(family)}
        return [(r.base_ends, r.ends) for r in self._t.run.values() if r.session in sids and r.ends]

    def family_branches(self, family: int) -> list[Row]:
        sids = {s.sid for s in self._family(family)}
        return [b for b in self._t.branch.values() if b.session in sids]

    def family_tips(self, family: int) -> list[Row]:
        sids = {s.sid for s in self._family(family)}
        tips: dict[tuple[int, int], int] = {}
        for session, branch, position in self._t.entry:
            if session in sids:
                tips[session, branch] = max(tips.get((session, branch), 0), position + 1)
        return [(*place, tip) for place, tip in tips.items()]

    def family_holdings(self, family: int) -> list[Row]:
        sids = {s.sid for s in self._family(family)}
        return [holding for holding in self._t.holding if holding[0] in sids]

    def old_runs(self, now: int | None, age: int, after: str, limit: int) -> list[Row]:
        cutoff = moment_of(now) - age
        current = {s.current_run for s in self._t.session.values()}
        going = self._t.going_on()
        found = [
            run
            for run in self._t.run.values()
            if run.status != "running"
            and (run.tenant, run.invocation_id) not in going
            and run.run_id not in current
            and (run.ended_at or 0) < cutoff
            and run.run_id > after
        ]
        found.sort(key=lambda run: run.run_id)
        return [(run.run_id,) for run in found[:limit]]

    def headless(self) -> list[Row]:
        with_runs = {run.session for run in self._t.run.values()}
        return [s for s in self._t.session.values() if not s.alive and s.status != "deleted" and s.sid not in with_runs]

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("dump_"):
            raise AttributeError(name)
        table = getattr(self._t, name.removeprefix("dump_"))
        return lambda: [table[key] for key in sorted(table)]

    def _row(self, tenant: str, kind: str, session_id: str) -> SessionRow | None:
        sid = self._t.by_key.get((tenant, kind, session_id))
        return self._t.session[sid] if sid is not None else None

    def _waits(self, waits: Iterable[WaitRow]) -> list[Row]:
        return [self._t.session[wait.session] + wait for wait in waits]

    def _lost(self, run: RunRow, now: int) -> bool:
        if run.generation is None:
            return (run.expires_at or 0) <= now
        session = self._t.session[run.session]
        live = session.armed and (session.lane_expires_at or 0) > now
        return not (live and session.generation == run.generation)

    def _alive(self, fits: Callable[[SessionRow, ProfileRow], bool]) -> list[Row]:
        pairs = ((s, self._t.profile[s.sid]) for s in self._t.session.values() if s.alive)
        found = [session for session, profile in pairs if fits(session, profile)]
        found.sort(key=lambda session: session.sid)
        return list(found)

    def _family(self, family: int) -> list[SessionRow]:
        return [s for s in self._t.session.values() if s.family == family]
