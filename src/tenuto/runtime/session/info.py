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
    """One turn of a session: its record, its cost, and the session's trace.

    `wait_kinds` are the kinds of what it waits for; of a suspended turn that has been resumed or abandoned since, of
    what it had waited for.
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
        info = RunView(
            run=run,
            wait_kinds=await _wait_kinds(store, run),
            budget=run.budget,
            usage=await store.usage.report(key, run_id=run.run_id),
            trace_id=trace_id_of(head.profile),
        )
        found.append(info)
    return found


async def _wait_kinds(store: Store, run: Run) -> tuple[str, ...]:
    """Return the kinds of a run's open waits; of a suspended one that has none left, of those it was suspended on.

    A wait that stays open moves on to the run that resumes: it was this run's too if it had been opened before that.
    """
    waits = await store.waits.of_session(run.key, run_id=run.run_id)
    if not waits and run.status is RunStatus.SUSPENDED:
        runs = await store.runs.of_invocation(run.invocation_id, tenant=run.key.tenant)
        later = {each.run_id: each.commit_number for each in runs if each.number > run.number}
        resumed = min(later.values(), default=0)
        waits = [
            wait
            for wait in await store.waits.of_invocation(run.key, run.origin_id)
            if wait.run_id == run.run_id or (wait.run_id in later and wait.commit_number < resumed)
        ]
    return tuple(wait.kind for wait in waits)
