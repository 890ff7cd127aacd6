"""The named writes of a memory store for the runtime's rows."""

from typing import Any

from tenuto.codec import loads
from tenuto.store.backends.memory.tables import Tables, is_debt, moment_of
from tenuto.store.rules.plan import Row
from tenuto.store.rules.records import ROLLED_BACK
from tenuto.store.rules.rows import DeletionRow, EffectRow, InputRow, OutgoingRow, RunRow, UsageRow


class RuntimeWrites:
    """Writes to inbox, effects, usage and outbox."""

    _t: Tables

    def insert_inputs(self, *columns: Any) -> int:
        row, t = InputRow(*columns), self._t
        t.add(t.input, row.input_id, row)
        if row.key is not None:
            t.add(t.input_key, (row.session, row.life, row.key), row.input_id)
        return 1

    def consume_inputs(
        self,
        run_id: str | None,
        log: str | None,
        position: int | None,
        at: int,
        dropped: int,
        input_id: str,
        session: int,
        life: int,
    ) -> int:
        row = self._t.input.get(input_id)
        if row is None or (row.session, row.life, row.status) != (session, life, "open"):
            return 0
        if row.run_id not in (None, run_id):
            return 0
        row = row._replace(status="consumed", run_id=run_id, log=log, position=position, settled_at=at)
        self._t.put(self._t.input, input_id, row._replace(body=None) if dropped else row)
        return 1

    def end_inputs(self, run_id: str, but: str) -> int:
        kept = set(loads(but, "inputs"))
        mine = [row for row in self._t.input.find("run", run_id) if row.body is not None]
        for row in mine:
            if row.input_id not in kept:
                open_ = row.status == "open"
                left = row._replace(run_id=None, boundary=None) if open_ else row._replace(body=None)
                self._t.put(self._t.input, row.input_id, left)
        return len(mine)

    def cancel_inputs(self, at: int, input_id: str) -> int:
        row = self._t.input.get(input_id)
        if row is None or row.status != "open":
            return 0
        self._t.put(self._t.input, input_id, row._replace(status="cancelled", body=None, settled_at=at))
        return 1

    def refuse_inputs(self, error: str, at: int, input_id: str) -> int:
        row = self._t.input.get(input_id)
        if row is None or row.status != "open":
            return 0
        row = row._replace(status="refused", body=error, boundary=None, run_id=None, settled_at=at)
        self._t.put(self._t.input, input_id, row)
        return 1

    def roll_back_inputs(self, session: int, life: int, run_id: str) -> int:
        consumed = (session, life, "consumed")
        taken = [row for run in self._of_invocation(run_id) for row in self._t.input.find("run", run.run_id)]
        mine = [row for row in taken if (row.session, row.life, row.status) == consumed]
        for row in mine:
            self._t.put(self._t.input, row.input_id, row._replace(rolled_back=1))
        return len(mine)

    def roll_back_runs(self, session: int, life: int, run_id: str) -> int:
        mine = [run for run in self._of_invocation(run_id) if (run.session, run.life) == (session, life)]
        for row in mine:
            self._t.put(self._t.run, row.run_id, row._replace(holds=row.holds | ROLLED_BACK))
        return len(mine)

    def _of_invocation(self, run_id: str) -> list[RunRow]:
        row = self._t.run.get(run_id)
        return [] if row is None else list(self._t.run.find("invocation", (row.tenant, row.invocation_id)))

    def insert_effects(self, *columns: Any) -> int:
        row = EffectRow(*columns)
        self._t.add(self._t.effect, row[:6], row)
        return 1

    def restart_effects(self, *columns: Any) -> int:
        values, place = columns[:10], columns[10:]
        row = self._t.effect.get(place)
        if row is None or row.status != "started":
            return 0
        self._t.put(self._t.effect, place, EffectRow(*row[:8], *values))
        return 1

    def finish_effects(
        self, status: str, result: str | None, error: str | None, at: int, dropped: int, *columns: Any
    ) -> int:
        place, starter = columns[:6], columns[6:]
        row = self._t.effect.get(place)
        if row is None or (row.run_id, row.attempt, row.status) != (*starter, "started"):
            return 0
        row = row._replace(status=status, result=result, error=error, ended_at=at)
        self._t.put(self._t.effect, place, row._replace(request=None) if dropped else row)
        return 1

    def drop_effects(self, session: int, life: int, origin_id: str) -> int:
        mine = self._t.effect.find("origin", (session, life, origin_id))
        ended = [row for row in mine if row.status != "started"]
        for row in ended:
            self._t.put(self._t.effect, row[:6], row._replace(request=None, result=None))
        return len(ended)

    def delete_effects_of_run(self, session: int, run_id: str) -> int:
        mine = (row for row in self._t.effect.find("run", run_id) if row.session == session)
        return self._t.drop(self._t.effect, [row[:6] for row in mine if row.status != "started"])

    def insert_usage(self, *columns: Any) -> int:
        row = UsageRow(*columns)
        self._t.add(self._t.usage, row[:4], row)
        return 1

    def insert_outgoing(self, *columns: Any) -> int:
        row = OutgoingRow(*columns)
        self._t.add(self._t.outgoing, row.outbox_id, row)
        return 1

    def mark_outgoing(
        self, status: str, attempts: int, due_at: int, outbox_id: str, old_status: str, old_attempts: int
    ) -> int:
        row = self._t.outgoing.get(outbox_id)
        if row is None or (row.status, row.attempts) != (old_status, old_attempts):
            return 0
        self._t.put(self._t.outgoing, outbox_id, row._replace(status=status, attempts=attempts, due_at=due_at))
        return 1

    def prune_inputs(self, now: int | None, age: int, limit: int) -> list[Row]:
        cutoff, t = moment_of(now) - age, self._t
        live = t.going_on()
        going = {run.run_id for run in t.run.values() if (run.tenant, run.invocation_id) in live}
        settled = [row for row in t.input.values() if row.status in ("consumed", "cancelled", "refused")]
        old = [row for row in settled if (row.settled_at or 0) < cutoff and row.run_id not in going][:limit]
        t.drop(t.input_key, [(row.session, row.life, row.key) for row in old if row.key is not None])
        return [(1,)] * t.drop(t.input, [row.input_id for row in old])

    def prune_outgoing(self, now: int | None, age: int, limit: int) -> list[Row]:
        cutoff = moment_of(now) - age
        final = [row for row in self._t.outgoing.values() if row.status in ("done", "expired")]
        old = [row.outbox_id for row in final if max(row.created_at, row.due_at) < cutoff]
        return [(1,)] * self._t.drop(self._t.outgoing, old[:limit])

    def delete_outgoing(self, outbox_id: str, status: str, attempts: int) -> int:
        row = self._t.outgoing.get(outbox_id)
        if row is None or (row.status, row.attempts) != (status, attempts):
            return 0
        return self._t.drop(self._t.outgoing, [outbox_id])

    def leave_debts_of(self, sid: int) -> int:
        rows = self._t.outgoing.items()
        return self._t.drop(self._t.outgoing, [key for key, row in rows if row.session == sid and not is_debt(row)])

    def insert_deletions(self, *columns: Any) -> int:
        row = DeletionRow(*columns)
        if row[:4] in self._t.deletion:
            return 0
        self._t.add(self._t.deletion, row[:4], row)
        return 1

    def move_deletions(self, status: str, report: str | None, at: int, *place: int) -> int:
        row = self._t.deletion.get(place)
        if row is None or row.status != "open":
            return 0
        self._t.put(self._t.deletion, place, row._replace(status=status, report=report, at=at))
        return 1

    def sweep_deletions(self, now: int | None, age: int, limit: int) -> list[Row]:
        cutoff = moment_of(now) - age
        rows = self._t.deletion
        unfinished = {row[:2] for row in rows.values() if row.status == "open"}
        old = [key for key, row in rows.items() if row.at <= cutoff and row[:2] not in unfinished]
        return [(1,)] * self._t.drop(rows, old[:limit])

    def delete_inputs_of(self, sid: int) -> int:
        self._t.drop(self._t.input_key, [key for key in self._t.input_key if key[0] == sid])
        return self._t.drop(self._t.input, [key for key, row in self._t.input.items() if row.session == sid])
