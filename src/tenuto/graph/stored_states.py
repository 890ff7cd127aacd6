"""What a store holds of a graph's state: checking or writing migrations for all of it."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from tenuto.errors import (
    CheckpointNotFound,
    InvalidInput,
    LaneBusy,
    SessionDeleted,
    SessionLoadFailed,
    StoreContended,
    StoredDataCorrupt,
    StoreError,
    TenutoError,
    VersionConflict,
)
from tenuto.graph.checkpoint.stored_run import stored_run
from tenuto.graph.engine.graph_plan import GraphPlan
from tenuto.graph.invocation.restore import restore
from tenuto.graph.session.own_session import OwnSession
from tenuto.graph.session.session_plan import LoadedSession, SessionPlan
from tenuto.graph.session.state_cache import StateCache
from tenuto.ids import new_id
from tenuto.model.checkpoint import Checkpoint
from tenuto.model.commit import EndRun
from tenuto.model.run import RunStatus
from tenuto.model.session import ANY_TENANT, SessionFilter, SessionKey, SessionPage, Tenant
from tenuto.model.wait import Wait
from tenuto.store.store import Store
from tenuto.writing.changes import RunWrite
from tenuto.writing.run_writer import RunWriter

DEFAULT_BATCH = 100
_AT_ONCE = 16
_TRIES = 5
_EXAMPLES = 5
_REASONS = 20

Step = Callable[[], None]
"""Called once per session that was processed."""


@dataclass(slots=True)
class Reason:
    """Why some sessions did not pass: the error's category, its text without a session's name, and the first few."""

    category: str
    text: str
    count: int = 0
    examples: list[SessionKey] = field(default_factory=list)


@dataclass(slots=True)
class Tally:
    """The result for all that is stored under one version. `left` needed nothing: deleted, or migrated by others, after
    it was listed.
    """

    version: str
    passed: int = 0
    left: int = 0
    reasons: dict[tuple[str, str], Reason] = field(default_factory=dict)

    @property
    def failed(self) -> int:
        """How many did not pass."""
        return sum(reason.count for reason in self.reasons.values())

    def fail(self, key: SessionKey, error: TenutoError) -> None:
        """Count one that did not pass; only a limited number of reasons is distinguished."""
        why = (error.category, _text(error, key))
        if why not in self.reasons and len(self.reasons) >= _REASONS:
            why = (error.category, "other reasons")
        reason = self.reasons.setdefault(why, Reason(*why))
        reason.count += 1
        if len(reason.examples) < _EXAMPLES:
            reason.examples.append(key)


class StoredStates:
    """What a store holds of a graph's state, whatever store the graph itself was built with.

    Only what belongs to the graph is processed: sessions and runs with its `owner`, which is the graph's name unless
    given otherwise (a program of it may have another), and, with `unowned`, those without one, such as older records.
    The rest is counted in `others`, by its owner.

    That is in every tenant, unless one is named. `batch` is how many sessions are listed at a time; up to 16 of them
    are processed at once.
    """

    def __init__(
        self,
        graph: GraphPlan[Any],
        store: Store,
        *,
        tenant: Tenant = ANY_TENANT,
        batch: int = DEFAULT_BATCH,
        owner: str | None = None,
        unowned: bool = False,
    ) -> None:
        if type(batch) is not int or batch < 1:
            raise InvalidInput(f"batch must be 1 or more, got {batch!r}.")
        self.graph = graph
        self.owner = graph.name if owner is None else owner
        self.plan = _bound(graph, store, self.owner)
        self._store = store
        self._tenant = tenant
        self._batch = batch
        self.others: Counter[str | None] = Counter()
        self._unowned = unowned

    async def versions(self) -> dict[str, int]:
        """Return the schema versions the graph's sessions are stored under, and how many each has."""
        found: Counter[str] = Counter()
        self.others = Counter()
        async for page in self._pages(None):
            found.update(each.schema_version for each in page if self._is_ours(each.agent))
            self.others.update(each.agent for each in page if not self._is_ours(each.agent))
        return dict(sorted(found.items()))

    def _is_ours(self, owner: str | None) -> bool:
        return self._unowned if owner is None else owner == self.owner

    async def check(self, versions: Iterable[str], step: Step) -> list[Tally]:
        """Load every session of these versions as a run would, through migrations and validation; write nothing."""
        return [await self._each(version, self._check_one, step) for version in versions]

    async def migrate(self, versions: Iterable[str], step: Step) -> list[Tally]:
        """Write every session of these versions as its migrations leave it, each in its own commit.

        What is at the graph's version already is skipped, so a second call continues where the first one stopped. A
        session that others change meanwhile is retried; one whose lane is held fails.
        """
        wanted = [version for version in versions if version != self.plan.schema_version]
        return [await self._each(version, self._migrate_one, step) for version in wanted]

    async def check_suspended(self, step: Step) -> list[Tally]:
        """Restore the state of every suspended run as a resume would; write nothing."""
        tallies: dict[str, Tally] = {}
        after, seen = None, set[str]()
        while True:
            page = await self._store.waits.open(tenant=self._tenant, limit=self._batch, after=after)
            for wait in page:
                if wait.run_id not in seen:
                    seen.add(wait.run_id)
                    await self._check_run(wait, tallies)
                    step()
            if (after := page.next) is None:
                break
        return [tallies[version] for version in sorted(tallies)]

    async def _check_run(self, wait: Wait, tallies: dict[str, Tally]) -> None:
        run = await self._store.runs.get(wait.run_id, tenant=wait.key.tenant)
        checkpoint = await self._store.checkpoints.latest(wait.key, run_id=wait.run_id)
        if run is None or run.status != RunStatus.SUSPENDED or not await self._is_our_pause(wait, checkpoint):
            return
        if checkpoint is None:
            missing = CheckpointNotFound("The run has no record left to resume from.", invocation_id=run.invocation_id)
            tallies.setdefault("", Tally("")).fail(wait.key, missing)
            return
        tally = tallies.setdefault(checkpoint.schema_version, Tally(checkpoint.schema_version))
        try:
            restore(await stored_run(self._store, run, checkpoint), self.graph)
            tally.passed += 1
        except TenutoError as error:
            if _is_outage(error):
                raise
            tally.fail(wait.key, error)

    async def _is_our_pause(self, wait: Wait, checkpoint: Checkpoint | None) -> bool:
        """Return whether a run that waits belongs to this graph, by its checkpoint, or else by its session."""
        cursor: Any = checkpoint.cursor if checkpoint else None
        marks = cursor if isinstance(cursor, Mapping) else {}
        if "program" in marks or "graph" in marks:
            return self.owner in (str(marks.get("program", "")).rpartition("@")[0], marks.get("graph"))
        if marks and "frames" not in marks:
            return False
        head = await self._store.head(wait.key)
        return self._is_ours(head.profile.agent if head else None)

    async def _each(self, version: str, work: Callable[[SessionKey], Awaitable[bool]], step: Step) -> Tally:
        tally, places = Tally(version), asyncio.Semaphore(_AT_ONCE)
        blocked = self._blocked(version)

        async def one(key: SessionKey) -> bool | TenutoError:
            async with places:
                try:
                    return blocked or await work(key)
                except TenutoError as error:
                    return error
                finally:
                    step()

        async for page in self._pages(version):
            keys = [each.key for each in page if self._is_ours(each.agent)]
            results = await asyncio.gather(*map(one, keys), return_exceptions=True)
            for key, result in zip(keys, results, strict=True):
                if isinstance(result, TenutoError) and not _is_outage(result):
                    tally.fail(key, result)
                elif isinstance(result, BaseException):
                    raise result
                else:
                    tally.passed += result
                    tally.left += not result
        return tally

    async def _pages(self, version: str | None) -> AsyncIterator[SessionPage]:
        wanted, after = SessionFilter(tenant=self._tenant, schema_version=version), None
        while True:
            page = await self._store.list(wanted, limit=self._batch, after=after)
            yield page
            after = page.next
            if after is None:
                return

    def _blocked(self, version: str) -> TenutoError | None:
        """Return what is wrong with the chain from a version, so that it is not searched for every session."""
        if version != self.plan.schema_version:
            try:
                self.plan.migrations.chain(version, self.plan.schema_version)
            except TenutoError as error:
                return error
        return None

    async def _check_one(self, key: SessionKey) -> bool:
        loaded = await self._load(key)
        if loaded.rewrite is not None:
            OwnSession(self.plan, key, loaded).migration()
        return loaded.existed

    async def _migrate_one(self, key: SessionKey) -> bool:
        tries = 0
        while True:
            loaded = await self._load(key)
            if loaded.rewrite is None:
                return False
            try:
                await _write(self._store, OwnSession(self.plan, key, loaded))
                return True
            except (SessionDeleted, StoreContended, VersionConflict):
                tries += 1
                if tries == _TRIES:
                    raise

    async def _load(self, key: SessionKey) -> LoadedSession:
        loaded = await self.plan.load(key)
        if loaded.rewrite is not None:
            fields = self.graph.kind.model_fields
            absent = [n for n, f in self.plan.fields.items() if f not in loaded.values and fields[f].is_required()]
            if absent:
                raise SessionLoadFailed(
                    f"{key} lacks {', '.join(absent)} after its migrations, which {self.graph.kind.__name__} requires; "
                    "let a migration add it, or give it a default.",
                    key=key,
                    fields=absent,
                )
        return loaded


async def _write(store: Store, session: OwnSession) -> None:
    """Write a session as its migrations left it; long logs are written in slices that the last commit shows."""
    turn = RunWriter(store, session.key, session.loaded.life)
    turn.stand(session.loaded.base)
    invocation_id = f"migration-{new_id()}"
    turn.begins(invocation_id=invocation_id, correlation_id=invocation_id)
    logs, save = session.migration()
    try:
        await turn.write(RunWrite(logs=logs, save=save, end=EndRun(status=RunStatus.COMPLETED)))
    except TenutoError:
        if turn.begun:
            with suppress(TenutoError):
                await turn.write(RunWrite(end=EndRun(status=RunStatus.FAILED)))
        raise
    finally:
        turn.release()


def _bound(graph: GraphPlan[Any], store: Store, owner: str) -> SessionPlan:
    """Return how the graph keeps sessions, in this store and without a cache."""
    plan = graph.session
    if not plan.declared:
        raise InvalidInput(f"Graph {graph.name!r} does not say what its sessions keep; give it with_session_state.")
    if plan.store is not None and not isinstance(plan.store, Store):
        raise InvalidInput(
            f"Graph {graph.name!r} keeps its sessions in a {type(plan.store).__name__}, which only its own tools can "
            "list; this works on Tenuto's stores."
        )
    return plan.bound_to(store, cache=StateCache(limit=0), owner=owner)


def _is_outage(error: TenutoError) -> bool:
    """Return whether the store failed, and not this one session; then nothing more is tried."""
    cause = error.__cause__ if isinstance(error, SessionLoadFailed) else error
    return isinstance(cause, StoreError) and not isinstance(cause, StoreContended | StoredDataCorrupt)


def _text(error: TenutoError, key: SessionKey) -> str:
    """Return the reason in words that are the same for all sessions with that fault: no session id, no values."""
    if isinstance(error, LaneBusy):
        return "a runner holds its lane; run the migration again once it is done"
    if isinstance(error, SessionDeleted | StoreContended | VersionConflict):
        return "others kept changing it meanwhile; run the migration again"
    cause = error.__cause__
    if not isinstance(cause, ValidationError):
        return error.message.replace(str(key), "the session")
    name = error.details().get("field")
    faults = []
    for fault in cause.errors(include_input=False, include_url=False, include_context=False):
        where = [*([name] if name else []), *("[]" if isinstance(part, int) else str(part) for part in fault["loc"])]
        faults.append(f"{'.'.join(where)}: {fault['msg']}")
    return "; ".join(dict.fromkeys(faults))
