"""A session without its state: its head, and its turns with their waits and costs."""

from collections.abc import Sequence
from dataclasses import dataclass

from tenuto.argument import refuse
from tenuto.errors import SessionNotFound
from tenuto.messages.message import Message
from tenuto.model.run import Run, RunStatus
from tenuto.model.session import Page, SessionHead, SessionKey
from tenuto.model.token_usage import UsageReport
from tenuto.runtime.session.session_view import MESSAGES, trace_id_of
from tenuto.store.bounds import check_limit
from tenuto.store.store import Store

_LONGEST = 16
"""The most digits of a position."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """One turn of a session: its record, the kinds of its open waits, its cost, and the session's trace.

    `budget` is how many steps or model calls the run may take, whoever asks; None for a run of a graph by itself.
    """

    run: Run
    wait_kinds: tuple[str, ...]
    budget: int | None
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


async def messages_of(store: Store, key: SessionKey, *, after: str | None, limit: int) -> Page[Message]:
    """Return a page of a session's conversation, oldest first."""
    head = await head_of(store, key)
    start, end = 0 if after is None else _position(after), head.ends.get(MESSAGES)
    stop = start + check_limit(limit)
    entries = [] if end is None else await store.logs.read(key, MESSAGES, start=start, stop=stop, end=end)
    page = Page[Message](entry.value for entry in entries)
    page.next = str(stop) if end is not None and stop < end.position else None
    return page


def _position(after: str) -> int:
    if not isinstance(after, str) or not after.isascii() or not after.isdecimal() or len(after) > _LONGEST:
        refuse("after", "a page's `next`", after)
    return int(after)


async def runs_of(store: Store, key: SessionKey, *, limit: int = 100, before: int | None = None) -> Sequence[RunView]:
    """Return a session's turns, newest first."""
    head = await head_of(store, key)
    found = []
    for run in await store.runs.of_session(key, limit=limit, before=before):
        waits = await store.waits.of_session(key, run_id=run.run_id)
        info = RunView(
            run=run,
            wait_kinds=tuple(wait.kind for wait in waits),
            budget=run.budget,
            usage=await store.usage.report(key, run_id=run.run_id),
            trace_id=trace_id_of(head.profile),
        )
        found.append(info)
    return found
