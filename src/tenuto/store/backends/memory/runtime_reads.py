"""The named reads of a memory store for the runtime's rows."""

from collections.abc import Iterator
from itertools import islice, takewhile
from typing import Any

from tenuto.store.backends.memory.tables import Tables, moment_of
from tenuto.store.rules.parts.usage_rules import SPLIT
from tenuto.store.rules.plan import Row
from tenuto.store.rules.rows import EffectRow, InputRow, SessionRow


class RuntimeReads:
    """Reads of inbox, effects, usage and outbox."""

    _t: Tables

    def bare_input(self, input_id: str) -> list[Row]:
        row = self._t.input.get(input_id)
        return [row] if row else []

    def input_by_key(self, sid: int, life: int, key: str) -> list[Row]:
        input_id = self._t.input_key.get((sid, life, key))
        return [self._t.input[input_id]] if input_id else []

    def input_with_session(self, input_id: str, tenant: str | None) -> list[Row]:
        found = [self._t.session[row[1]] + row for row in self.bare_input(input_id)]
        return [row for row in found if tenant in (None, row[1])]

    def input_of_session(self, tenant: str, kind: str, session_id: str, key: str) -> list[Row]:
        row = self._session(tenant, kind, session_id)
        return [row + found for found in self.input_by_key(row.sid, row.life, key)] if row else []

    def open_inputs(self, tenant: str, kind: str, session_id: str, after: int, limit: int) -> list[Row]:
        sid = self._t.by_key.get((tenant, kind, session_id))
        found = self._t.input.find("open", sid, (after + 1,))
        return [self._t.session[row.session] + row for row in islice(found, limit)]

    def inbox_look(self, now: int | None, sid: int, boundary: str | None, run_id: str | None) -> list[Row]:
        rows, moment = list(self._open(sid)), moment_of(now)
        here = [row.due_at for row in rows if (row.boundary, row.run_id) == (boundary, run_id)]
        commands = (row for row in rows if row.kind == "command" and (row.due_at or 0) <= moment)
        oldest = next(((row.input_id, row.seq) for row in commands), (None, None))
        return [(bool(rows), min((due for due in here if due is not None), default=None), *oldest)]

    def first_input(self, now: int | None, tenant: str, kind: str, session_id: str) -> list[Row]:
        sid = self._t.by_key.get((tenant, kind, session_id))
        return [] if sid is None else self.due_inputs(now, sid, None, None, 1)

    def due_inputs(self, now: int | None, sid: int, boundary: str | None, run_id: str | None, limit: int) -> list[Row]:
        moment = moment_of(now)
        here = (row for row in self._open(sid) if (row.boundary, row.run_id) == (boundary, run_id))
        return list(islice((row for row in here if (row.due_at or 0) <= moment), limit))

    def due_sessions(self, now: int | None, after: int, limit: int) -> list[Row]:
        moment = moment_of(now)
        free = (s for s in self._with_open(after) if not (s.armed and (s.lane_expires_at or 0) > moment))
        return [s[:4] for s in islice((s for s in free if self._is_due(s, moment)), limit)]

    def held_sessions(self, now: int | None, limit: int) -> list[Row]:
        moment = moment_of(now)
        armed = (s for s in self._with_open() if s.armed and (s.lane_expires_at or 0) > moment)
        held = [s for s in armed if self._is_due(s, moment)]
        return list(sorted(held, key=lambda s: (s.lane_expires_at, s.sid))[:limit])

    def next_input(self) -> list[Row]:
        times = []
        for session in self._with_open():
            due = min(row.created_at if row.due_at is None else row.due_at for row in self._open(session.sid))
            times.append(max(due, (session.lane_expires_at or 0) if session.armed else 0))
        return [(min(times, default=None),)]

    def effect_by_place(self, sid: int, life: int, origin_id: str, namespace: str, step: int, key: str) -> list[Row]:
        row = self._t.effect.get((sid, life, origin_id, namespace, step, key))
        return [row] if row else []

    def effect_of_session(self, tenant: str, kind: str, session_id: str, *place: Any) -> list[Row]:
        session = self._session(tenant, kind, session_id)
        return [session + row for row in self.effect_by_place(session.sid, session.life, *place)] if session else []

    def effects_of_session(
        self, tenant: str, kind: str, session_id: str, origin_id: str | None, in_doubt: int, *behind: Any
    ) -> list[Row]:
        session = self._session(tenant, kind, session_id)
        if session is None:
            return []
        *after, limit = behind
        place, effects = (session.sid, session.life), self._t.effect

        def is_next(e: EffectRow) -> bool:
            return after[0] is None or [e.started_at, e.origin_id, e.namespace, e.step, e.key] > after

        if in_doubt:
            found = (row for row in effects.find("started", place) if self._is_in_doubt(row) and is_next(row))
            return [session + row for row in islice((e for e in found if origin_id in (None, e.origin_id)), limit)]
        index, where = ("session", place) if origin_id is None else ("origin", (*place, origin_id))
        return [session + row for row in islice(filter(is_next, effects.find(index, where)), limit)]

    def usage_of_session(self, tenant: str, kind: str, session_id: str, run_id: str | None) -> list[Row]:
        session = self._session(tenant, kind, session_id)
        sums: dict[str, list[int]] = {}
        for row in self._t.usage.find("session", (session.sid, session.life)) if session else ():
            if run_id in (None, row.run_id):
                halves = [half for count in row[7:] for half in divmod(count, SPLIT)]
                former = sums.get(row.model, [0] * (1 + len(halves)))
                sums[row.model] = [one + other for one, other in zip(former, [1, *halves], strict=True)]
        return [(model, *counts) for model, counts in sums.items()]

    def outgoing_by_id(self, outbox_id: str, tenant: str | None) -> list[Row]:
        row = self._t.outgoing.get(outbox_id)
        sender = self._t.session[row.session] if row else None
        return [sender + row] if row and sender and tenant in (None, sender.tenant) else []

    def outgoing_of_session(
        self, tenant: str, kind: str, session_id: str, at: int | None, outbox_id: str, limit: int
    ) -> list[Row]:
        session = self._session(tenant, kind, session_id)
        sent = self._t.outgoing.find("session", session and session.sid)
        found = (row for row in sent if session and row.life == session.life)
        present = (row for row in found if at is None or (row.created_at, row.outbox_id) > (at, outbox_id))
        return [self._t.session[row.session] + row for row in islice(present, limit)]

    def debts_of_session(self, sid: int) -> list[Row]:
        found = self._t.outgoing.find("session", sid)
        return [row for row in found if (row.status, row.kind) == ("pending", "child_result")]

    def deletion_by_target(self, *place: int) -> list[Row]:
        row = self._t.deletion.get(place)
        return [row] if row else []

    def deletions_of(self, root: int, root_life: int) -> list[Row]:
        found = [row for row in self._t.deletion.values() if row[:2] == (root, root_life)]
        found.sort(key=lambda row: (row.session != row.root, *row[2:4]))
        return [*found]

    def open_deletions(self, root: int | None, limit: int) -> list[Row]:
        found = [row for row in self._t.deletion.values() if row.status == "open" and root in (None, row.root)]
        return [self._t.session[row.session] + row for row in sorted(found, key=lambda row: row[:4])[:limit]]

    def pending_outgoing(self, now: int | None, limit: int) -> list[Row]:
        moment = moment_of(now)
        due = takewhile(lambda row: row.due_at <= moment, self._t.outgoing.find("pending", True))
        return [self._t.session[row.session] + row for row in islice(due, limit)]

    def next_outgoing(self) -> list[Row]:
        return [(next((row.due_at for row in self._t.outgoing.find("pending", True)), None),)]

    def _is_in_doubt(self, row: EffectRow) -> bool:
        run = self._t.run.get(row.run_id)
        live = run is not None and run.status == "running" and run.attempt == row.attempt
        return row.status == "started" and not live

    def _session(self, tenant: str, kind: str, session_id: str) -> SessionRow | None:
        sid = self._t.by_key.get((tenant, kind, session_id))
        return self._t.session[sid] if sid is not None else None

    def _open(self, sid: int | None) -> Iterator[InputRow]:
        return self._t.input.find("open", sid)

    def _with_open(self, after: int = 0) -> Iterator[SessionRow]:
        found = (self._t.session[sid] for sid in sorted(self._t.input.places("open")) if sid > after)
        return (session for session in found if session.alive and session.status == "active")

    def _is_due(self, session: SessionRow, moment: int) -> bool:
        return any((row.due_at or 0) <= moment for row in self._open(session.sid))
