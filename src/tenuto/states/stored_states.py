"""What a store holds of states: checking all of it, or writing it as its migrations leave it."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tenuto.errors import InvalidInput, ProgramNotRegistered, TenutoError
from tenuto.model.checkpoint import Checkpoint
from tenuto.model.run import Run, RunStatus
from tenuto.model.session import ANY_TENANT, SessionFilter, SessionPage, SessionSummary, Tenant
from tenuto.states.finder import Finder
from tenuto.states.state_reader import StateReader
from tenuto.states.tally import Step, Tally, is_outage
from tenuto.store.store import Store

DEFAULT_BATCH = 100
_AT_ONCE = 16

Tallies = dict[str, Tally]
"""Tallies by the version that something is stored under."""


@dataclass(slots=True)
class Findings:
    """What was found for one graph or program; `fields` counts sessions by the fields that the code does not name."""

    name: str
    target: str
    run_target: str
    sessions: Tallies = field(default_factory=dict)
    suspended: Tallies = field(default_factory=dict)
    checkpoints: Tallies = field(default_factory=dict)
    fields: Counter[str] = field(default_factory=Counter)

    @property
    def failed(self) -> int:
        """How many sessions and runs did not pass."""
        return sum(
            tally.failed for each in (self.sessions, self.suspended, self.checkpoints) for tally in each.values()
        )


Verdict = tuple[Findings, bool | TenutoError | None] | None
"""Whose a session is, None if it is another's, and whether it passed; None does not count, False is left."""

Work = Callable[[StateReader, SessionSummary], Awaitable[bool | None]]


class StoredStates:
    """What a store holds for the graph or the programs that a finder knows, in every tenant, unless one is named.

    What belongs to others is counted in `others`, by its owner. `batch` is how many sessions are listed at a time; up
    to 16 of them are processed at once.
    """

    def __init__(
        self, store: Store, finder: Finder, *, tenant: Tenant = ANY_TENANT, batch: int = DEFAULT_BATCH
    ) -> None:
        if type(batch) is not int or batch < 1:
            raise InvalidInput(f"batch must be 1 or more, got {batch!r}.")
        self._store = store
        self._finder = finder
        self._tenant = tenant
        self._batch = batch
        self._blocked: dict[tuple[str, str], TenutoError | None] = {}
        self.others: Counter[str | None] = Counter()
        self.findings: dict[str, Findings] = {}

    async def count(self) -> int:
        """Return how many sessions there are."""
        return sum([len(page) async for page in self._pages()])

    async def check(self, step: Step) -> None:
        """Read every session as a turn would, through migrations and validation; write nothing."""

        async def work(reader: StateReader, found: SessionSummary) -> bool | None:
            unnamed = await reader.check(found.key)
            if unnamed:
                self._of(reader).fields.update(unnamed)
            return unnamed is not None

        await self._each(work, step)

    async def migrate(self, step: Step) -> None:
        """Write every session as its migrations leave it, each in its own commit.

        What is at its version already is skipped, so a second call continues where the first one stopped. A session
        that others change meanwhile is retried; one whose lane is held fails.
        """

        async def work(reader: StateReader, found: SessionSummary) -> bool | None:
            return None if found.schema_version == reader.target else await reader.migrate(found.key)

        await self._each(work, step)

    async def check_suspended(self, step: Step) -> None:
        """Restore the state of every suspended run as a resume would; write nothing."""
        after, seen, more = None, set[str](), True
        while more:
            page = await self._store.waits.open(tenant=self._tenant, limit=self._batch, after=after)
            after, more = page.next, page.next is not None
            for wait in page:
                if wait.run_id not in seen:
                    seen.add(wait.run_id)
                    run = await self._store.runs.get(wait.run_id, tenant=wait.key.tenant)
                    if run is not None and run.status is RunStatus.SUSPENDED:
                        point = await self._store.checkpoints.latest(run.key, run_id=run.run_id)
                        await self._check_run(run, point, lambda findings: findings.suspended)
                    step()

    async def check_resumable(self, step: Step) -> None:
        """Restore every graph's last checkpoint that a failed or interrupted run can be resumed from; write nothing.

        Of a session's runs under the runtime, only its last one can be resumed.
        """
        after = ""
        while runs := await self._store.runs.resumable(tenant=self._tenant, limit=self._batch, after=after):
            after = runs[-1].run_id
            for run in runs:
                point = await self._store.checkpoints.latest(run.key, run_id=run.run_id)
                if point is not None and "frames" in _marks(point) and await self._can_resume(run, _marks(point)):
                    await self._check_run(run, point, lambda findings: findings.checkpoints)
                step()

    async def _can_resume(self, run: Run, marks: Mapping[str, Any]) -> bool:
        if run.rolled_back:
            return False
        if "program" not in marks:
            return True
        current = await self._store.runs.current(run.key)
        return current is not None and current.run_id == run.run_id

    async def _check_run(self, run: Run, point: Checkpoint | None, part: Callable[[Findings], Tallies]) -> None:
        reader = await self._finder.of_run(run.key, _marks(point))
        if reader is None:
            return
        tallies = part(self._of(reader))
        try:
            version = await reader.check_run(run, point)
            tallies.setdefault(version, Tally(version)).passed += 1
        except TenutoError as error:
            if is_outage(error):
                raise
            version = "" if point is None else point.schema_version
            tallies.setdefault(version, Tally(version)).fail(run.key, error)

    async def _each(self, work: Work, step: Step) -> None:
        places = asyncio.Semaphore(_AT_ONCE)

        async def one(found: SessionSummary) -> Verdict:
            async with places:
                try:
                    return await self._verdict_on(found, work)
                finally:
                    step()

        self.others = Counter()
        async for page in self._pages():
            verdicts = await asyncio.gather(*map(one, page), return_exceptions=True)
            for found, verdict in zip(page, verdicts, strict=True):
                if isinstance(verdict, BaseException):
                    raise verdict
                self._count(found, verdict)

    async def _verdict_on(self, found: SessionSummary, work: Work) -> Verdict:
        try:
            reader = await self._finder.of_session(found)
        except ProgramNotRegistered as error:
            name = error.program or str(found.agent)
            return self.findings.setdefault(name, Findings(name, "", "")), error
        if reader is None:
            return None
        findings = self._of(reader)
        if (blocked := self._why_blocked(reader, found.schema_version)) is not None:
            return findings, blocked
        try:
            return findings, await work(reader, found)
        except TenutoError as error:
            if is_outage(error):
                raise
            return findings, error

    def _count(self, found: SessionSummary, verdict: Verdict) -> None:
        if verdict is None:
            self.others[found.agent] += 1
            return
        findings, result = verdict
        if result is None:
            return
        tally = findings.sessions.setdefault(found.schema_version, Tally(found.schema_version))
        if isinstance(result, TenutoError):
            tally.fail(found.key, result)
        else:
            tally.passed += result
            tally.left += not result

    def _of(self, reader: StateReader) -> Findings:
        return self.findings.setdefault(reader.name, Findings(reader.name, reader.target, reader.run_target))

    def _why_blocked(self, reader: StateReader, version: str) -> TenutoError | None:
        place = (reader.name, version)
        if place not in self._blocked:
            self._blocked[place] = reader.blocked(version)
        return self._blocked[place]

    async def _pages(self) -> AsyncIterator[SessionPage]:
        wanted, after = SessionFilter(tenant=self._tenant), None
        while True:
            page = await self._store.list(wanted, limit=self._batch, after=after)
            yield page
            after = page.next
            if after is None:
                return


def _marks(point: Checkpoint | None) -> Mapping[str, Any]:
    cursor: Any = point.cursor if point else None
    return cursor if isinstance(cursor, Mapping) else {}
