"""The core of a turn: a run that begins, leaves checkpoints as it goes, and ends, each by one commit.

What runs inside a turn knows nothing of commits: it hands over fields and what was added to logs. Field and log names
have a slash in them (a frame's path, then the field), so they live with the run and never reach a session's head.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tenuto.codec import JSON
from tenuto.errors import CheckpointSaveFailed, TenutoError
from tenuto.ids import new_id
from tenuto.model.commit import Append, BeginRun, Commit, EndRun, Held, LogWrite, NewCheckpoint, Reset
from tenuto.model.run import Checkpoint, RunRef, RunStatus
from tenuto.model.session import Ends, SessionKey
from tenuto.store.holding import handle_of
from tenuto.store.port import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class LogChange:
    """What happened to a log since the last checkpoint: items were added, or it begins anew with these."""

    items: Sequence[JSON]
    anew: bool = False

    def write(self) -> LogWrite:
        """Return the store's operation."""
        return Reset(items=tuple(self.items)) if self.anew else Append(items=tuple(self.items))


@dataclass(slots=True)
class Turn:
    """One run under way. Its commits are numbered, so that a lost reply is resolved by repeating."""

    store: Store
    key: SessionKey
    life: int
    run_id: str
    _commits: int = 0
    _handles: dict[str, tuple[JSON, Held]] = field(default_factory=dict)
    _writing: asyncio.Lock = field(default_factory=asyncio.Lock)

    @classmethod
    async def open(cls, store: Store, key: SessionKey) -> "Turn":
        """Return a turn on this key that has not begun; nothing is written yet."""
        return cls(store, key, await store.life(key), new_id())

    async def begin(
        self, *, invocation_id: str, correlation_id: str, origin_id: str | None = None, ends: Ends | None = None
    ) -> None:
        """Begin the run: of a new invocation, or, with an origin and a checkpoint's ends, going on from there."""
        begin = BeginRun(
            run_id=self.run_id,
            invocation_id=invocation_id,
            origin_id=origin_id,
            correlation_id=correlation_id,
            ends=ends,
        )
        await self._commit(run=begin)

    async def checkpoint(
        self,
        *,
        step: int,
        cursor: JSON,
        document: Mapping[str, JSON],
        logs: Mapping[str, LogChange],
        schema_version: str,
    ) -> None:
        """Leave a point to go on from: the whole document, what was added to logs, and where the program stands.

        A big value that is the same object as last time is named by its handle, and costs nothing.
        """
        short = {name: self._handles[name][1] for name, value in document.items() if self._is_held(name, value)}
        point = NewCheckpoint(step=step, cursor=cursor, document={**document, **short}, schema_version=schema_version)
        await self._commit(
            run=RunRef(run_id=self.run_id),
            steps=step,
            logs={name: change.write() for name, change in logs.items()},
            checkpoint=point,
        )
        for name, value in document.items():
            if name not in short and isinstance(value, str | list | dict) and (handle := handle_of(value)):
                self._handles[name] = (value, handle)

    def _is_held(self, name: str, value: JSON) -> bool:
        return name in self._handles and self._handles[name][0] is value

    async def finish(self, status: RunStatus, error: JSON = None) -> None:
        """End the run."""
        await self._commit(run=RunRef(run_id=self.run_id), end=EndRun(status=status, error=error))

    async def _commit(self, **parts: Any) -> None:
        async with self._writing:
            self._commits += 1
            operation_id = f"{self.run_id}/{self._commits}"
            try:
                await self.store.commit(Commit(key=self.key, operation_id=operation_id, life=self.life, **parts))
            except TenutoError as error:
                raise CheckpointSaveFailed(
                    f"The run {self.run_id} of {self.key} could not be written: {error.message}",
                    key=self.key,
                    run_id=self.run_id,
                    operation_id=operation_id,
                ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A checkpoint to go on from, with its logs, and the identities that stay."""

    checkpoint: Checkpoint
    logs: dict[str, list[JSON]]
    correlation_id: str
    origin_id: str


async def find_checkpoint(store: Store, invocation_id: str, tenant: str = "") -> Found | None:
    """Return the last checkpoint an invocation left, or None."""
    runs = await store.runs.of_invocation(invocation_id, tenant=tenant)
    for run in reversed(runs):
        checkpoint = await store.checkpoints.latest(run.key, run_id=run.run_id)
        if checkpoint is not None:
            logs = {}
            for name, end in checkpoint.ends.items():
                entries = await store.logs.read(run.key, name, end=end)
                logs[name] = [entry.value for entry in entries]
            return Found(checkpoint=checkpoint, logs=logs, correlation_id=run.correlation_id, origin_id=run.origin_id)
    return None
