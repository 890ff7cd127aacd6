"""The invocation that a turn executes, and the two signals by which a program leaves its turn early."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from tenuto.codec import JSON
from tenuto.model.checkpoint import Checkpoint
from tenuto.model.commit import OpenWait
from tenuto.model.run import Run
from tenuto.model.wait import Wait
from tenuto.store.store import Store


class TurnStopped(BaseException):
    """The run was asked to stop. It is not an `Exception`, so that a program does not catch it by accident."""


class TurnSuspended(BaseException):
    """The program waits for something; the turn ends here and another one resumes."""

    def __init__(self, waits: Sequence[OpenWait], *, partial: bool) -> None:
        super().__init__()
        self.waits = tuple(waits)
        self.partial = partial


def signal_in(group: BaseExceptionGroup[BaseException]) -> BaseException | None:
    """Return the signal among the exceptions of a program's tasks; the program leaves its turn with it."""
    for kind in (TurnSuspended, TurnStopped):
        found: BaseException | None = group.subgroup(kind)
        while isinstance(found, BaseExceptionGroup):
            found = found.exceptions[0]
        if found is not None:
            return found
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """One logical execution: its ids, the input that began it, and what its earlier runs left.

    `queued_at` is since when its input could have begun it, if that was queued; `follows` is the trace context of the
    run that it continues, if that had one. One that takes the place of another has its `base`: the commit whose
    checkpoint has the session before both.
    """

    invocation_id: str
    origin_id: str
    correlation_id: str
    input: JSON = None
    input_id: str | None = None
    resumes: str | None = None
    follows: str | None = None
    queued_at: datetime | None = None
    steps_before: int = 0
    waits: tuple[Wait, ...] = ()
    reply_to: JSON = None
    base: int | None = None


async def start_point(store: Store, run: Run) -> Checkpoint | None:
    """Return the checkpoint of the session before a run of the runtime; None if the run belongs to `graph.run`."""
    point = await store.checkpoints.get(run.key, run.commit_number)
    return point if point is not None and point.run_id is None else None


async def base_point(store: Store, first: Run) -> Checkpoint | None:
    """Return the checkpoint of the session before an invocation, whose first run is given, and before what it replaced.

    None if there is none, as for a run of `graph.run`.
    """
    point = await start_point(store, first)
    cursor: Any = point.cursor if point else None
    base = cursor.get("base") if isinstance(cursor, Mapping) else None
    return point if base is None else await store.checkpoints.get(first.key, base)


class Start(NamedTuple):
    """What is stored where a run began: the parent and token that its result is for, and its trace context."""

    reply_to: JSON = None
    trace: str | None = None


async def start_of(store: Store, run: Run) -> Start:
    """Return what was stored when a run began."""
    point = await start_point(store, run)
    cursor: Any = point.cursor if point else None
    return Start(cursor.get("for"), cursor.get("trace")) if isinstance(cursor, Mapping) else Start()
