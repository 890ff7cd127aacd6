"""The memory backend: the same rows and rules in dicts, for tests and demonstrations.

`memory://` is a store of its own; `memory://name` is shared by everything in the process that opens the name.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

from tenuto.codec import loads
from tenuto.errors import StoreClosed, StoreContended, Unsupported
from tenuto.model.session import SessionKey
from tenuto.store.backend import Lock, Reading, Warm
from tenuto.store.backends.missed import Missed
from tenuto.store.backends.wakeups import Wakeups
from tenuto.store.rules.found import Plan, Row, Script
from tenuto.store.rules.rows import (
    BranchRow,
    CheckpointRow,
    ContentRow,
    EntryRow,
    EventRow,
    ProfileRow,
    ReceiptRow,
    RunRow,
    SessionRow,
    WaitRow,
)

F = TypeVar("F")
T = TypeVar("T")

_EMPTY_RECEIPT = (None,) * len(ReceiptRow._fields)
_EMPTY_RUN = (None,) * len(RunRow._fields)
_EMPTY_SESSION = (None,) * len(SessionRow._fields)


class Tables:
    """All rows, by table and primary key, with an undo journal for the transaction under way."""

    def __init__(self) -> None:
        self.session: dict[int, SessionRow] = {}
        self.by_key: dict[tuple[str, str, str], int] = {}
        self.profile: dict[int, ProfileRow] = {}
        self.receipt: dict[tuple[int, int, str], ReceiptRow] = {}
        self.run: dict[str, RunRow] = {}
        self.branch: dict[tuple[int, int], BranchRow] = {}
        self.entry: dict[tuple[int, int, int], EntryRow] = {}
        self.checkpoint: dict[tuple[int, int], CheckpointRow] = {}
        self.wait: dict[str, WaitRow] = {}
        self.event: dict[tuple[int, int], EventRow] = {}
        self.content: dict[str, ContentRow] = {}
        self.holding: dict[tuple[int, str], tuple[int, str]] = {}
        self.meta: dict[str, int] = {"life_floor": 1, "event_floor": 0, "next_sid": 1}
        self.wakeups = Wakeups()
        self._journal: list[tuple[dict[Any, Any], Any, Any]] = []

    @contextmanager
    def transaction(self) -> Any:
        """Keep everything written inside, or nothing of it."""
        self._journal = []
        try:
            yield
        except BaseException:
            for table, key, old in reversed(self._journal):
                if old is None:
                    table.pop(key, None)
                else:
                    table[key] = old
            raise
        finally:
            self._journal = []

    def put(self, table: dict[Any, Any], key: Any, row: Any) -> None:
        """Write one row."""
        self._journal.append((table, key, table.get(key)))
        table[key] = row

    def add(self, table: dict[Any, Any], key: Any, row: Any) -> None:
        """Write one row that must be new."""
        if key in table:
            raise Missed(str(key))
        self.put(table, key, row)

    def drop(self, table: dict[Any, Any], keys: Iterable[Any]) -> int:
        """Remove rows; return how many there were."""
        found = [key for key in keys if key in table]
        for key in found:
            self._journal.append((table, key, table.pop(key)))
        return len(found)


_shared: dict[str, Tables] = {}


class MemoryBackend:
    """Keeps rows in dicts. Nothing is awaited inside a transaction or a view, so each is atomic."""

    name = "memory"

    def __init__(self, name: str = "") -> None:
        self.tables = _shared.setdefault(name, Tables()) if name else Tables()
        self.probe: Callable[[str], None] = lambda _: None
        self._reads = _Reads(self.tables)
        self._writes = _Writes(self.tables)
        self._closed = False

    async def transact(
        self,
        read: Reading[F],
        decide: Callable[[F], Plan[T]],
        lock: Lock,  # noqa: ARG002 - nothing can come between
        *,
        size: int = 0,  # noqa: ARG002
        warm: Warm | None = None,  # noqa: ARG002
    ) -> T:
        """See `Backend.transact`."""
        self._check_open()
        plan = decide(self._run(read()))
        try:
            with self.tables.transaction():
                for name, rows, must in plan.writes:
                    self.probe(name)
                    verb = getattr(self._writes, name)
                    hits = sum(verb(*row) for row in rows)
                    if must and hits != len(rows):
                        raise Missed(name)
        except Missed as error:
            raise StoreContended(f"What was found changed under the write {error}; repeat it.") from error
        await asyncio.sleep(0)
        return plan.result

    async def write(self, name: str, *params: object) -> list[Row]:
        """See `Backend.write`."""
        self._check_open()
        with self.tables.transaction():
            self.probe(name)
            return list(getattr(self._writes, name)(*params))

    @asynccontextmanager
    async def view(self) -> AsyncIterator["MemoryBackend"]:
        """See `Backend.view`."""
        self._check_open()
        yield self

    async def read(self, name: str, *params: object) -> list[Row]:
        """See `View.read`."""
        self.probe(name)
        return list(getattr(self._reads, name)(*params))

    def watch(self, key: SessionKey) -> Any:
        """See `Backend.watch`."""
        return self.tables.wakeups.watch(key)

    def announce(self, key: SessionKey) -> None:
        """See `Backend.announce`."""
        self.tables.wakeups.wake(key)

    async def vacuum(self, pages: int) -> tuple[int, int]:  # noqa: ARG002
        """See `Backend.vacuum`."""
        raise Unsupported("A memory store has no file to vacuum.")

    async def aclose(self) -> None:
        """See `Backend.aclose`."""
        self._closed = True
        self.tables.wakeups.wake_all()

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed("The store is closed; open it again.")

    def _run(self, script: Script[F]) -> F:
        rows: list[Row] | None = None
        try:
            while True:
                name, params = script.send(rows) if rows is not None else next(script)
                self.probe(name)
                rows = list(getattr(self._reads, name)(*params))
        except StopIteration as stop:
            result: F = stop.value
            return result


class _Reads:
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
        numbers = (_moment(now), t.meta["life_floor"], t.meta["event_floor"], t.meta["next_sid"])
        return [numbers + (row or _EMPTY_SESSION) + (receipt or _EMPTY_RECEIPT) + (run or _EMPTY_RUN)]

    def moment(self, now: int | None) -> list[Row]:
        return [(_moment(now),)]

    def session_by_key(self, tenant: str, kind: str, session_id: str) -> list[Row]:
        row = self._row(tenant, kind, session_id)
        return [row] if row else []

    def head_by_key(self, tenant: str, kind: str, session_id: str) -> list[Row]:
        row = self._row(tenant, kind, session_id)
        return [row + self._t.profile[row.sid]] if row and row.alive else []

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
        return [(len({tuple(place) for place in loads(places, "places")} & self._t.branch.keys()),)]

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

    def wait_with_session(self, wait_id: str) -> list[Row]:
        return [self._t.session[row[1]] + row for row in self.wait_by_id(wait_id)]

    def waits_of_session(
        self, tenant: str, kind: str, session_id: str, run_id: str | None, status: str | None
    ) -> list[Row]:
        row = self._row(tenant, kind, session_id)
        return self._waits(
            wait
            for wait in self._t.wait.values()
            if row and wait.session == row.sid and run_id in (None, wait.run_id) and status in (None, wait.status)
        )

    def waits_for_signal(self, tenant: str, signal_id: str, status: str | None) -> list[Row]:
        return self._waits(
            wait
            for wait in self._t.wait.values()
            if wait.signal_id == signal_id
            and self._t.session[wait.session].tenant == tenant
            and status in (None, wait.status)
        )

    def content_exists(self, content: str) -> list[Row]:
        return [(1,)] if content in self._t.content else []

    def contents_by_hash(self, hashes: str) -> list[Row]:
        return [self._t.content[c][:3] for c in loads(hashes, "hashes") if c in self._t.content]

    def loose_contents(self) -> list[Row]:
        return [(sum(row.loose_at is not None for row in self._t.content.values()),)]

    def runs_by_invocation(self, tenant: str, invocation_id: str) -> list[Row]:
        found = [r for r in self._t.run.values() if (r.tenant, r.invocation_id) == (tenant, invocation_id)]
        found.sort(key=lambda run: run.chain)
        return list(found)

    def runs_of_invocation(self, tenant: str, invocation_id: str) -> list[Row]:
        return [self._t.session[row[1]] + row for row in self.runs_by_invocation(tenant, invocation_id)]

    def bare_run(self, run_id: str) -> list[Row]:
        row = self._t.run.get(run_id)
        return [row] if row else []

    def run_by_id(self, run_id: str) -> list[Row]:
        return [self._t.session[row[1]] + row for row in self.bare_run(run_id)]

    def runs_of_session(self, tenant: str, kind: str, session_id: str, before: int, limit: int) -> list[Row]:
        row = self._row(tenant, kind, session_id)
        found = [r for r in self._t.run.values() if row and r.session == row.sid and r.number < before]
        found.sort(key=lambda run: -run.number)
        return [self._t.session[run.session] + run for run in found[:limit]]

    def current_run(self, tenant: str, kind: str, session_id: str) -> list[Row]:
        row = self._row(tenant, kind, session_id)
        return self.run_by_id(row.current_run) if row and row.current_run else []

    def orphans(self, now: int | None, limit: int) -> list[Row]:
        moment = _moment(now)
        found = [run for run in self._t.run.values() if run.status == "running" and self._lost(run, moment)]
        found.sort(key=lambda run: (run.started_at, run.run_id))
        return [self._t.session[run.session] + run for run in found[:limit]]

    def checkpoint_by_commit(self, sid: int, commit_no: int) -> list[Row]:
        row = self._t.checkpoint.get((sid, commit_no))
        return [row] if row else []

    def checkpoints_near(self, sid: int, commit_no: int) -> list[Row]:
        numbers = [number for session, number in self._t.checkpoint if session == sid]
        return [(n,) for n in sorted(sorted(numbers, key=lambda n: (abs(n - commit_no), n))[:4])]

    def checkpoints_of_session(
        self, tenant: str, kind: str, session_id: str, run_id: str | None, before: int, limit: int
    ) -> list[Row]:
        row = self._row(tenant, kind, session_id)
        found = [
            c
            for c in self._t.checkpoint.values()
            if row and c.session == row.sid and c.commit_no < before and run_id in (None, c.run_id)
        ]
        found.sort(key=lambda checkpoint: -checkpoint.commit_no)
        return list(found[:limit])

    def counts_of_session(self, sid: int) -> list[Row]:
        t = self._t
        tables: tuple[Iterable[Any], ...] = (
            t.run.values(),
            t.checkpoint.values(),
            t.wait.values(),
            t.receipt.values(),
        )
        return [tuple(sum(row.session == sid for row in rows) for rows in tables)]

    def counts_of_run(self, run_id: str) -> list[Row]:
        tables: tuple[Iterable[Any], ...] = (self._t.checkpoint.values(), self._t.wait.values())
        return [tuple(sum(row.run_id == run_id for row in rows) for rows in tables)]

    def children_of(self, tenant: str, kind: str, session_id: str) -> list[Row]:
        return self._alive(lambda s, p: (s.tenant, s.kind) == (tenant, kind) and p.parent == session_id)

    def forks_of(self, sid: int) -> list[Row]:
        return self._alive(lambda _, p: p.forked_sid == sid)

    def count_kin(self, family: int, sid: int) -> list[Row]:
        kin = [s for s in self._family(family) if s.sid != sid and (s.alive or s.status != "deleted")]
        return [(len(kin),)]

    def events_after(self, sid: int, after: int, run_id: str | None, limit: int) -> list[Row]:
        found = [
            e for e in self._t.event.values() if e.session == sid and e.last_seq > after and run_id in (None, e.run_id)
        ]
        found.sort(key=lambda event: event.first_seq)
        return list(found[:limit])

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
        moment = _moment(now)
        return self._alive(lambda _, p: p.expires_at is not None and p.expires_at <= moment)

    def families(self, after: int, limit: int) -> list[Row]:
        found = sorted({s.family for s in self._t.session.values() if s.family > after})
        return [(family,) for family in found[:limit]]

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

    def old_runs(self, now: int | None, age: int, limit: int) -> list[Row]:
        cutoff = _moment(now) - age
        current = {s.current_run for s in self._t.session.values()}
        found = [
            run
            for run in self._t.run.values()
            if run.status not in ("running", "suspended") and run.run_id not in current and (run.ended_at or 0) < cutoff
        ]
        found.sort(key=lambda run: ((run.ended_at or 0), run.run_id))
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
        found = sorted(waits, key=lambda wait: (wait.created_at, wait.wait_id))
        return [self._t.session[wait.session] + wait for wait in found]

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


class _Writes:
    """The named writes. Each returns how many rows it hit; the statements of upkeep return what they report."""

    def __init__(self, tables: Tables) -> None:
        self._t = tables

    def insert_session(self, *columns: Any) -> int:
        row, t = SessionRow(*columns), self._t
        t.add(t.by_key, (row.tenant, row.kind, row.session_id), row.sid)
        t.add(t.session, row.sid, row)
        t.put(t.meta, "next_sid", max(t.meta["next_sid"], row.sid + 1))
        return 1

    def move_session(self, *columns: Any) -> int:
        *values, sid, life, commit_no, generation, armed, event_seq, held_ok, now = columns
        old = self._t.session.get(sid)
        counters = (life, commit_no, generation, armed, event_seq)
        if old is None or (old.life, old.commit_no, old.generation, old.armed, old.event_seq) != counters:
            return 0
        if not held_ok and old.armed and (old.lane_expires_at or 0) > now:
            return 0
        row = SessionRow(*old[:4], *values)
        if (row.generation, row.nonce) == (old.generation, old.nonce):
            row = row._replace(lane_expires_at=_later(row.lane_expires_at, old.lane_expires_at))
        self._t.put(self._t.session, sid, row._replace(event_floor=max(row.event_floor, old.event_floor)))
        return 1

    def pin_session(self, sid: int, life: int) -> int:
        row = self._t.session.get(sid)
        return int(row is not None and row.life == life)

    def advance_events(self, last: int, sid: int, life: int, generation: int, event_seq: int) -> int:
        row = self._t.session.get(sid)
        if row is None or (row.life, row.generation, row.event_seq) != (life, generation, event_seq):
            return 0
        self._t.put(self._t.session, sid, row._replace(event_seq=last))
        return 1

    def put_profile(self, *columns: Any) -> int:
        self._t.put(self._t.profile, columns[0], ProfileRow(*columns))
        return 1

    def insert_receipts(self, *columns: Any) -> int:
        row = ReceiptRow(*columns)
        self._t.add(self._t.receipt, (row.session, row.life, row.operation_id), row)
        return 1

    def insert_runs(self, *columns: Any) -> int:
        row = RunRow(*columns)
        self._t.add(self._t.run, row.run_id, row)
        return 1

    def update_runs(self, *columns: Any) -> int:
        *values, run_id, attempt = columns
        old = self._t.run.get(run_id)
        if old is None or old.status != "running" or old.attempt != attempt:
            return 0
        self._t.put(self._t.run, run_id, RunRow(*old[:9], *values))
        return 1

    def insert_branches(self, *columns: Any) -> int:
        row = BranchRow(*columns)
        self._t.add(self._t.branch, (row.session, row.branch), row)
        return 1

    def share_branches(self, session: int, branch: int) -> int:
        return self._change_branch(session, branch, shared=1, loose_from=None, loose_at=None)

    def mark_branches(self, loose_from: int | None, loose_at: int | None, session: int, branch: int) -> int:
        return self._change_branch(session, branch, loose_from=loose_from, loose_at=loose_at)

    def rekey_branch(self, start: int, lineage: str, session: int, branch: int) -> int:
        row = self._t.branch.get((session, branch))
        if row is None or row.shared:
            return 0
        return self._change_branch(session, branch, start=start, lineage=lineage)

    def rekey_entries(self, target: int, session: int, branch: int) -> int:
        found = [row for row in self._t.entry.values() if (row.session, row.branch) == (session, branch)]
        for row in found:
            self._t.drop(self._t.entry, [(session, branch, row.position)])
            self._t.add(self._t.entry, (session, target, row.position), row._replace(branch=target))
        return len(found)

    def insert_entries(self, *columns: Any) -> int:
        row = EntryRow(*columns)
        self._t.add(self._t.entry, (row.session, row.branch, row.position), row)
        return 1

    def insert_checkpoints(self, *columns: Any) -> int:
        row = CheckpointRow(*columns)
        self._t.add(self._t.checkpoint, (row.session, row.commit_no), row)
        return 1

    def insert_waits(self, *columns: Any) -> int:
        row = WaitRow(*columns)
        self._t.add(self._t.wait, row.wait_id, row)
        return 1

    def settle_waits(self, status: str, answer: str | None, at: int, wait_id: str) -> int:
        row = self._t.wait.get(wait_id)
        if row is None or row.status != "open":
            return 0
        self._t.put(self._t.wait, wait_id, row._replace(status=status, answer=answer, settled_at=at))
        return 1

    def insert_events(self, *columns: Any) -> int:
        row = EventRow(*columns)
        self._t.add(self._t.event, (row.session, row.first_seq), row)
        return 1

    def hold_contents(self, content: str, encoding: str, body: str) -> int:
        self._t.put(self._t.content, content, ContentRow(content, encoding, body, None))
        return 1

    def touch_contents(self, content: str) -> int:
        row = self._t.content.get(content)
        if row is None:
            return 0
        self._t.put(self._t.content, content, row._replace(loose_at=None))
        return 1

    def insert_holdings(self, session: int, content: str) -> int:
        self._t.put(self._t.holding, (session, content), (session, content))
        return 1

    def delete_holdings(self, session: int, content: str) -> int:
        return self._t.drop(self._t.holding, [(session, content)])

    def cut_entries(self, session: int, branch: int, start: int) -> int:
        keys = [k for k in self._t.entry if k[:2] == (session, branch) and k[2] >= start]
        return self._t.drop(self._t.entry, keys)

    def delete_branches(self, session: int, branch: int) -> int:
        return self._t.drop(self._t.branch, [(session, branch)])

    def delete_run(self, run_id: str, status: str) -> int:
        row = self._t.run.get(run_id)
        return self._t.drop(self._t.run, [run_id]) if row and row.status == status else 0

    def delete_checkpoints_of_run(self, session: int, run_id: str) -> int:
        keys = [k for k, row in self._t.checkpoint.items() if row.session == session and row.run_id == run_id]
        return self._t.drop(self._t.checkpoint, keys)

    def delete_waits_of_run(self, run_id: str) -> int:
        return self._t.drop(self._t.wait, [k for k, row in self._t.wait.items() if row.run_id == run_id])

    def delete_session(self, sid: int, life: int, commit_no: int, generation: int) -> int:
        row = self._t.session.get(sid)
        if row is None or (row.life, row.commit_no, row.generation) != (life, commit_no, generation):
            return 0
        self._t.drop(self._t.by_key, [(row.tenant, row.kind, row.session_id)])
        return self._t.drop(self._t.session, [sid])

    def raise_floors(self, life: int, event: int) -> int:
        self._t.put(self._t.meta, "life_floor", max(self._t.meta["life_floor"], life))
        self._t.put(self._t.meta, "event_floor", max(self._t.meta["event_floor"], event))
        return 1

    def delete_profiles_of(self, sid: int) -> int:
        return self._t.drop(self._t.profile, [sid])

    def __getattr__(self, name: str) -> Any:
        tables = {
            "delete_runs_of": "run",
            "delete_checkpoints_of": "checkpoint",
            "delete_waits_of": "wait",
            "delete_receipts_of": "receipt",
            "delete_entries_of": "entry",
            "delete_branches_of": "branch",
            "delete_events_of": "event",
        }
        if name not in tables:
            raise AttributeError(name)
        table = getattr(self._t, tables[name])
        return lambda sid: self._t.drop(table, [key for key, row in table.items() if row.session == sid])

    def delete_holdings_of(self, sid: int) -> int:
        return self._t.drop(self._t.holding, [holding for holding in self._t.holding if holding[0] == sid])

    def renew_lanes(self, now: int | None, term: int, claims: str) -> list[Row]:
        found = []
        for tenant, kind, session_id, life, generation, nonce in loads(claims, "claims"):
            sid = self._t.by_key.get((tenant, kind, session_id))
            row = self._t.session[sid] if sid is not None else None
            if row and row.armed and (row.life, row.generation, row.nonce) == (life, generation, nonce):
                expires_at = _later(row.lane_expires_at, _moment(now) + term)
                self._t.put(self._t.session, row.sid, row._replace(lane_expires_at=expires_at))
                found.append((tenant, kind, session_id, expires_at))
        return found

    def renew_runs(self, now: int | None, term: int, refs: str) -> list[Row]:
        found = []
        for run_id, attempt in loads(refs, "runs"):
            row = self._t.run.get(run_id)
            if row and row.status == "running" and row.attempt == attempt and row.generation is None:
                expires_at = _later(row.expires_at, _moment(now) + term)
                self._t.put(self._t.run, run_id, row._replace(expires_at=expires_at))
                found.append((run_id, expires_at))
        return found

    def mark_contents(self, now: int | None) -> list[Row]:
        held = {content for _, content in self._t.holding}
        for content, row in self._t.content.items():
            loose = content not in held
            if loose != (row.loose_at is not None):
                self._t.put(self._t.content, content, row._replace(loose_at=_moment(now) if loose else None))
        return []

    def sweep_contents(self, now: int | None, grace: int, limit: int) -> list[Row]:
        held = {content for _, content in self._t.holding}
        cutoff = _moment(now) - grace
        found = [
            c for c, r in self._t.content.items() if r.loose_at is not None and r.loose_at <= cutoff and c not in held
        ]
        return [(1,)] * self._t.drop(self._t.content, found[:limit])

    def loosen_contents(self, hashes: str) -> list[Row]:
        held = {content for _, content in self._t.holding}
        for content in loads(hashes, "hashes"):
            row = self._t.content.get(content)
            if row and content not in held:
                self._t.put(self._t.content, content, row._replace(loose_at=0))
        return []

    def sweep_events(self, limit: int) -> list[Row]:
        return self._sweep_events(lambda _: True, limit)

    def sweep_events_of(self, sid: int, limit: int) -> list[Row]:
        return self._sweep_events(lambda row: row.session == sid, limit)

    def prune_receipts(self, now: int | None, age: int, limit: int) -> list[Row]:
        cutoff = _moment(now) - age
        return [(1,)] * self._t.drop(
            self._t.receipt, [k for k, row in self._t.receipt.items() if row.at < cutoff][:limit]
        )

    def floor_events_by_age(self, now: int | None, age: int) -> list[Row]:
        cutoff = _moment(now) - age
        for sid in self._t.session:
            self._raise_floor(sid, [e.last_seq for e in self._t.event.values() if e.session == sid and e.at < cutoff])
        return []

    def floor_events_by_count(self, keep: int) -> list[Row]:
        for sid, row in self._t.session.items():
            self._raise_floor(sid, [row.event_seq - keep])
        return []

    def _raise_floor(self, sid: int, floors: list[int]) -> None:
        row = self._t.session[sid]
        floor = max([row.event_floor, *floors])
        if floor > row.event_floor:
            self._t.put(self._t.session, sid, row._replace(event_floor=floor))

    def _sweep_events(self, fits: Callable[[EventRow], bool], limit: int) -> list[Row]:
        found = [
            row
            for row in self._t.event.values()
            if fits(row) and row.last_seq <= self._t.session[row.session].event_floor
        ][:limit]
        self._t.drop(self._t.event, [(row.session, row.first_seq) for row in found])
        return [(row.last_seq - row.first_seq + 1,) for row in found]

    def _change_branch(self, session: int, branch: int, **changes: Any) -> int:
        row = self._t.branch.get((session, branch))
        if row is None:
            return 0
        self._t.put(self._t.branch, (session, branch), row._replace(**changes))
        return 1


def _moment(now: int | None) -> int:
    return time.time_ns() // 1000 if now is None else now


def _later(one: int | None, other: int | None) -> int | None:
    return max((moment for moment in (one, other) if moment is not None), default=None)
