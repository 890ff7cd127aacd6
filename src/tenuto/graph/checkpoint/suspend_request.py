"""What a node asked for when it suspended its run."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from tenuto.errors import SuspensionPersistenceFailed
from tenuto.graph.checkpoint.answer_schema import answer_schema
from tenuto.graph.checkpoint.journal_frame import JournalFrame
from tenuto.graph.signal import SignalDescriptor
from tenuto.model.commit import OpenWait, Receipt
from tenuto.model.session import SessionKey
from tenuto.model.wait import Wait, WaitKind, WaitStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class SuspendRequest:
    """Where a run pauses and what it waits for.

    `frames` are all frames of the run, outermost first, each with its state. `node` is the one that asked, `namespace`
    its place, and `step` that of the innermost node a cursor can point at. `completed` says whether a resume continues
    after the node or runs it again. `waits` are opened instead of one for the descriptor.
    """

    frames: tuple[tuple[JournalFrame, Any], ...]
    node: str
    namespace: tuple[str, ...]
    step: int
    descriptor: SignalDescriptor
    completed: bool
    timeout: float | None = None
    waits: tuple[OpenWait, ...] = ()

    def linear(self) -> list[tuple[JournalFrame, Any]]:
        """Return the frames a cursor can point into, with their states."""
        return [pair for pair in self.frames if pair[0].linear]

    def open_waits(self) -> tuple[OpenWait, ...]:
        """Return what the pause waits for: an answer with fields of the outermost and the innermost graph only."""
        if self.waits:
            return self.waits
        frames = self.linear()
        wait = OpenWait(
            kind=WaitKind.SIGNAL,
            signal_id=self.descriptor.signal_id,
            timeout=self.timeout,
            metadata=dict(self.descriptor.metadata),
            schema=answer_schema(frame.graph.schema for frame, _ in (frames[0], frames[-1])),
            graph=frames[0][0].graph.name,
        )
        return (wait,)

    def opened(self, key: SessionKey, run_id: str, receipt: Receipt) -> Wait | None:
        """Return the wait that a commit has opened; None if that is left to a later commit."""
        asked, (wait_id, *_) = self.open_waits()[0], receipt.wait_ids
        if not wait_id:
            return None
        at = receipt.committed_at
        return Wait(
            wait_id=wait_id,
            key=key,
            run_id=run_id,
            invocation_id=self.frames[0][0].scope.invocation_id,
            kind=asked.kind,
            signal_id=asked.signal_id,
            status=WaitStatus.OPEN,
            deadline=None if asked.timeout is None else at + timedelta(seconds=asked.timeout),
            schema=asked.schema,
            metadata=asked.metadata,
            commit_number=receipt.commit_number,
            created_at=at,
            settled_at=None,
            graph=asked.graph,
        )

    def not_stored(self) -> SuspensionPersistenceFailed:
        """Return the error of a suspension of a run that is not stored."""
        return SuspensionPersistenceFailed(
            f"Node {self.node!r} suspends, but the graph has no store to be paused in; give it a session store or a "
            "checkpointer."
        )
