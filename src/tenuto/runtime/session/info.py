"""A session without its state: its head, and its turns with their waits and costs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from tenuto.errors import SessionNotFound
from tenuto.model.run import Run, RunStatus
from tenuto.model.session import SessionHead, SessionKey
from tenuto.model.token_usage import UsageReport
from tenuto.runtime.session.session_view import trace_id_of
from tenuto.store.store import Store

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInfo:
    """One turn of a session: its record, the kinds of its open waits, its cost, and the session's trace."""

    run: Run
    wait_kinds: tuple[str, ...]
    budget: int
    usage: UsageReport
    trace_id: str | None

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self.run.run_id

    @property
    def status(self) -> RunStatus:
        """The run's status."""
        return self.run.status


async def head_of(store: Store, key: SessionKey) -> SessionHead:
    """Return a session's head; raise `SessionNotFound` if there is none."""
    head = await store.head(key)
    if head is None:
        raise SessionNotFound(f"There is no {key}; create it first.", key=key)
    return head


async def runs_of(
    store: Store, key: SessionKey, *, budget: int, limit: int = 100, before: int | None = None
) -> Sequence[RunInfo]:
    """Return a session's turns, newest first; `budget` is the number of steps that a turn may take."""
    head = await head_of(store, key)
    found = []
    for run in await store.runs.of_session(key, limit=limit, before=before):
        waits = await store.waits.of_session(key, run_id=run.run_id)
        info = RunInfo(
            run=run,
            wait_kinds=tuple(wait.kind for wait in waits),
            budget=budget,
            usage=await store.usage.report(key, run_id=run.run_id),
            trace_id=trace_id_of(head.profile),
        )
        found.append(info)
    return found
