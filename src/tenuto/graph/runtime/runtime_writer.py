"""How a graph's run is written under the runtime: by the commits of the runtime's turn, which also ends it."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tenuto.codec import JSON
from tenuto.errors import InvalidInput
from tenuto.graph.session.session_plan import SessionPlan
from tenuto.model.commit import OpenWait, Receipt
from tenuto.plain_data import common
from tenuto.runtime.turn.context import TurnContext
from tenuto.runtime.turn.pending_changes import Handover
from tenuto.writing.changes import CheckpointDraft, LogChange, RunWrite, Save


class RuntimeWriter:
    """What a journal writes with under the runtime. A checkpoint is a commit, a save is one of the turn's own, and the
    end is handed over: the runtime writes it, with everything else that ends the turn.
    """

    begun = True

    def __init__(self, live: TurnContext, plan: SessionPlan, program: str) -> None:
        self.live = live
        self.run = live.writer
        self.ended = False
        self.waits: tuple[OpenWait, ...] = ()
        self._plan = plan
        self._program = program
        self._late: Receipt | None = None

    def recall(self, logs: Mapping[str, list[JSON]]) -> None:
        """Note the logs of a run that is taken over."""
        for name in self._plan.logs & self.run.logs.ahead:
            found = logs.get(name, [])
            kept = common(self.live.replica.logs.get(name, []), found)
            self.run.logs.recall(name, kept, found[kept:])

    async def write(self, what: RunWrite) -> Receipt:
        """See `RunWriter.write`."""
        point, logs, save, end, waits, _ = what
        changes = dict(logs)
        told = None if point is None else replace(point, cursor=self._cursor(point.cursor, changes, save))
        if end is not None:
            self.ended, self.waits = True, tuple(replace(each, graph=None) for each in waits)
            if told is not None or save is not None:
                self._hand_over(told, changes, save)
            last = self.live.last_receipt
            assert last is not None
            return replace(last, wait_ids=tuple("" for _ in waits))
        if save is not None:
            return await self._save(changes, save)
        assert told is not None
        return await self._leave(told, changes)

    async def resolve(self) -> Receipt | None:
        """See `RunWriter.resolve`."""
        late, self._late = self._late, None
        if late is not None:
            return late
        return await self.live.resolve()

    def release(self) -> None:
        """See `RunWriter.release`: the runtime does that."""

    async def settle(self, *_: Any) -> None:
        """See `RunWriter.settle`: the runtime does that."""

    async def repeat(self, *_: Any) -> Receipt:
        """See `RunWriter.repeat`: a turn of the runtime ends with its save."""
        raise InvalidInput("A save within a turn of the runtime cannot be repeated alone; resume the session.")

    def _cursor(self, cursor: Any, changes: Mapping[str, LogChange], save: Save | None) -> JSON:
        """Return a checkpoint's cursor and what it takes to resume there; `base` is how long the session's logs are."""
        live = self.live
        if save is None:
            base = {name: len(live.replica.logs[name]) for name in self._plan.logs & live.replica.logs.keys()}
        else:
            base = {name: self.run.logs.length(name, changes.get(name)) for name in self._plan.logs}
        marks: dict[str, JSON] = {"program": self._program, "round": live.step, "base": base}
        if live.invocation.reply_to is not None:
            marks["for"] = live.invocation.reply_to
        return {**cursor, **marks}

    async def _leave(self, point: CheckpointDraft, changes: dict[str, LogChange]) -> Receipt:
        live = self.live
        async with live.writer.writing:
            before = live.last_receipt
            try:
                return await live.leave(point, changes)
            except BaseException:
                if live.last_receipt is not before:
                    self._late = live.last_receipt
                raise

    async def _save(self, changes: dict[str, LogChange], save: Save) -> Receipt:
        handed = self._hand_over(None, changes, save)
        try:
            return await self.live.commit()
        except BaseException:
            if handed.landed:
                self._late = self.live.last_receipt
            else:
                self.live.pending.discard()
            raise

    def _hand_over(self, point: CheckpointDraft | None, changes: dict[str, LogChange], save: Save | None) -> Handover:
        """Let the session's copy be what the save makes of it, and the turn's next commit write that."""
        pending, copy = self.live.pending, self.live.replica
        if save is not None:
            for name in self._plan.logs:
                kept, more = self.run.logs.after(name, changes.get(name))
                held = copy.logs.get(name)
                if held is None or kept == len(held):
                    if more or name in changes:
                        pending.add(name, more)
                else:
                    pending.reset_log(name, [*held[:kept], *more], kept)
            pending.document = {n: v for n, v in pending.document.items() if n not in save.removed} | dict(
                save.document
            )
            pending.removed = (pending.removed - save.document.keys()) | save.removed
            values = copy.document | dict(save.document)
            copy.document = {n: v for n, v in values.items() if n not in save.removed}
            copy.schema_version = save.schema_version
            for name in save.removed:
                copy.logs.pop(name, None)
        carries = save is not None and save.carries
        pending.handover = Handover(changes, point, saves=save is not None, carries=carries)
        return pending.handover
