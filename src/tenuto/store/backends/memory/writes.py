"""The named writes of a memory store."""

from collections.abc import Callable
from typing import Any

from tenuto.codec import loads
from tenuto.store.backends.memory.runtime_writes import RuntimeWrites
from tenuto.store.backends.memory.tables import Tables, later, moment_of
from tenuto.store.rules.plan import Row
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


class Writes(RuntimeWrites):
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
            row = row._replace(lane_expires_at=later(row.lane_expires_at, old.lane_expires_at))
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

    def take_number(self, number: int, sid: int, life: int, event_seq: int, alive: int, status: str) -> int:
        row = self._t.session.get(sid)
        found = (life, event_seq, alive, status)
        if row is None or (row.life, row.event_seq, row.alive, row.status) != found:
            return 0
        self._t.put(self._t.session, sid, row._replace(event_seq=number))
        return 1

    def put_profile(self, *columns: Any) -> int:
        self._t.put(self._t.profile, columns[0], ProfileRow(*columns))
        return 1

    def insert_receipts(self, *columns: Any) -> int:
        row = ReceiptRow(*columns)
        self._t.add(self._t.receipt, (row.session, row.life, row.operation_id), row)
        return 1

    def forget_receipts(self, session: int, life: int, operation_id: str) -> int:
        return self._t.drop(self._t.receipt, [(session, life, operation_id)])

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

    def carry_runs(self, version: int, session: int, life: int, old: int) -> int:
        carried = list(self._t.run.find("ended", (session, life, old)))
        for run in carried:
            self._t.put(self._t.run, run.run_id, run._replace(base_version=version))
        return len(carried)

    def stop_runs(self, stop: str | None, run_id: str) -> int:
        row = self._t.run.get(run_id)
        if row is None or row.status != "running":
            return 0
        self._t.put(self._t.run, run_id, row._replace(stop=stop))
        return 1

    def hold_runs(self, marks: int, run_id: str) -> int:
        row = self._t.run.get(run_id)
        if row is None or row.status != "running":
            return 0
        self._t.put(self._t.run, run_id, row._replace(holds=row.holds | marks))
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
        found = list(self._t.entry.find("branch", (session, branch)))
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

    def delete_events(self, session: int, first_seq: int, last_seq: int) -> int:
        row = self._t.event.get((session, first_seq))
        return self._t.drop(self._t.event, [(session, first_seq)]) if row and row.last_seq == last_seq else 0

    def hold_contents(self, tenant: str, content: str, encoding: str, body: str) -> int:
        self._t.put(self._t.content, (tenant, content), ContentRow(tenant, content, encoding, body, None))
        return 1

    def touch_contents(self, tenant: str, content: str) -> int:
        row = self._t.content.get((tenant, content))
        if row is None:
            return 0
        self._t.put(self._t.content, (tenant, content), row._replace(loose_at=None))
        return 1

    def insert_holdings(self, session: int, tenant: str, content: str) -> int:
        self._t.put(self._t.holding, (session, content), (session, tenant, content))
        return 1

    def delete_holdings(self, session: int, content: str) -> int:
        return self._t.drop(self._t.holding, [(session, content)])

    def cut_entries(self, session: int, branch: int, start: int) -> int:
        found = self._t.entry.find("branch", (session, branch), start)
        return self._t.drop(self._t.entry, [(session, branch, row.position) for row in found])

    def delete_branches(self, session: int, branch: int) -> int:
        return self._t.drop(self._t.branch, [(session, branch)])

    def delete_run(self, run_id: str, status: str) -> int:
        row = self._t.run.get(run_id)
        return self._t.drop(self._t.run, [run_id]) if row and row.status == status else 0

    def delete_checkpoints_of_run(self, session: int, run_id: str) -> int:
        keys = [row[:2] for row in self._t.checkpoint.find("run", run_id) if row.session == session]
        return self._t.drop(self._t.checkpoint, keys)

    def delete_point(self, session: int, commit_no: int) -> int:
        row = self._t.checkpoint.get((session, commit_no))
        return self._t.drop(self._t.checkpoint, [(session, commit_no)]) if row and row.run_id is None else 0

    def delete_waits_of_run(self, run_id: str) -> int:
        return self._t.drop(self._t.wait, [row.wait_id for row in self._t.wait.find("run", run_id)])

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
            "delete_effects_of": "effect",
            "delete_usage_of": "usage",
            "delete_outgoing_of": "outgoing",
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
                expires_at = later(row.lane_expires_at, moment_of(now) + term)
                self._t.put(self._t.session, row.sid, row._replace(lane_expires_at=expires_at))
                found.append((tenant, kind, session_id, nonce, expires_at))
        return found

    def renew_runs(self, now: int | None, term: int, refs: str, tenant: str | None) -> list[Row]:
        found = []
        for run_id, attempt in loads(refs, "runs"):
            row = self._t.run.get(run_id)
            if not row or tenant not in (None, row.tenant):
                continue
            if row.status == "running" and row.attempt == attempt and row.generation is None:
                expires_at = later(row.expires_at, moment_of(now) + term)
                self._t.put(self._t.run, run_id, row._replace(expires_at=expires_at))
                found.append((run_id, expires_at))
        return found

    def _held(self) -> set[tuple[str, str]]:
        return {(tenant, content) for _, tenant, content in self._t.holding.values()}

    def mark_contents(self, now: int | None) -> list[Row]:
        held = self._held()
        for content, row in self._t.content.items():
            loose = content not in held
            if loose != (row.loose_at is not None):
                self._t.put(self._t.content, content, row._replace(loose_at=moment_of(now) if loose else None))
        return []

    def sweep_contents(self, now: int | None, grace: int, limit: int) -> list[Row]:
        held = self._held()
        cutoff = moment_of(now) - grace
        found = [
            c for c, r in self._t.content.items() if r.loose_at is not None and r.loose_at <= cutoff and c not in held
        ]
        return [(1,)] * self._t.drop(self._t.content, found[:limit])

    def loosen_contents(self, tenant: str, hashes: str) -> list[Row]:
        held = self._held()
        for content in loads(hashes, "hashes"):
            row = self._t.content.get((tenant, content))
            if row and (tenant, content) not in held:
                self._t.put(self._t.content, (tenant, content), row._replace(loose_at=0))
        return []

    def sweep_events(self, limit: int) -> list[Row]:
        return self._sweep_events(lambda _: True, limit)

    def sweep_events_of(self, sid: int, limit: int) -> list[Row]:
        return self._sweep_events(lambda row: row.session == sid, limit)

    def prune_receipts(self, now: int | None, age: int, limit: int) -> list[Row]:
        cutoff = moment_of(now) - age
        return [(1,)] * self._t.drop(
            self._t.receipt, [k for k, row in self._t.receipt.items() if row.at < cutoff][:limit]
        )

    def floor_events_by_age(self, now: int | None, age: int) -> list[Row]:
        cutoff = moment_of(now) - age
        for sid in self._t.session:
            self._raise_floor(sid, [e.last_seq for e in self._t.event.find("session", sid) if e.at < cutoff])
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
