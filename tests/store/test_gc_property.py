"""Collection against a model that copies everything: what is kept reads equal, and nothing else is kept.

Every entry and every big value is unique, so the distinct values the model reaches are the rows the store may hold.
"""

import asyncio
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tenuto import Store, open_store
from tenuto.ids import new_id
from tenuto.model.commit import Append, BeginRun, EndRun, NewCheckpoint, Reset
from tenuto.model.report import GcReport
from tenuto.model.run import RunRef, RunStatus
from tenuto.model.session import LogEnd, SessionKey
from tenuto.testing.factories import a_commit, a_key
from tests.servers import Postgres

LOGS = ("messages", "notes")
SCRATCH = "frame/scratch"

Log = list[str]
Logs = dict[str, Log]
Step = tuple[str, int, int, int]

STEPS = (
    *("append", "append", "reset", "rewind", "rewind_to_checkpoint", "set_field", "remove_field"),
    *("fork", "fork", "fork_at_checkpoint", "create", "delete", "recreate"),
    *("begin", "begin", "resume", "checkpoint", "checkpoint", "save_run", "fail", "complete"),
    *("discard", "discard", "suspend"),
    "gc",
)
small = st.integers(min_value=0, max_value=7)
histories = st.lists(st.tuples(st.sampled_from(STEPS), small, small, small), min_size=30, max_size=60)


@dataclass
class ModelRun:
    run_id: str
    base: Logs
    ends: Logs
    own: set[str] = field(default_factory=set)
    ahead: set[str] = field(default_factory=set)
    status: str = "running"


@dataclass
class ModelCheckpoint:
    document: dict[str, str]
    logs: Logs


@dataclass
class ModelSession:
    key: SessionKey
    life: int
    document: dict[str, str] = field(default_factory=dict)
    logs: Logs = field(default_factory=dict)
    runs: list[ModelRun] = field(default_factory=list)
    checkpoints: dict[int, ModelCheckpoint] = field(default_factory=dict)

    def roots(self) -> Iterator[Logs]:
        yield self.logs
        for checkpoint in self.checkpoints.values():
            yield checkpoint.logs
        for run in self.runs:
            if run.status != "completed":
                yield run.base
                yield run.ends

    def documents(self) -> Iterator[dict[str, str]]:
        yield self.document
        for checkpoint in self.checkpoints.values():
            yield checkpoint.document


class Walk:
    """Does each step to the store and to the model."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.live: list[ModelSession] = []
        self.gone: list[SessionKey] = []
        self._count = 0

    async def follow(self, history: list[Step]) -> None:
        await self.create(0, 2, 0)
        for name, *numbers in history:
            if self.live or name in {"create", "recreate", "gc"}:
                await getattr(self, name)(*numbers)
        await self.gc(0, 0, 0)

    def values(self, count: int) -> Log:
        self._count += count
        return [f"value {self._count - n}" for n in range(count)]

    def big(self) -> str:
        return self.values(1)[0] + " " + "x" * 1024

    def session(self, a: int) -> ModelSession:
        return self.live[a % len(self.live)]

    def running(self, a: int, b: int) -> tuple[ModelSession, ModelRun] | None:
        found = [(session, run) for session in self.live for run in session.runs if run.status == "running"]
        return found[(8 * a + b) % len(found)] if found else None

    async def commit(self, session: ModelSession, **parts: Any) -> int:
        return (await self.store.commit(a_commit(session.key, life=session.life, **parts))).commit_number

    async def create(self, a: int, b: int, c: int) -> None:
        await self.begin_life(a_key(), b)

    async def recreate(self, a: int, b: int, c: int) -> None:
        if self.gone:
            await self.begin_life(self.gone.pop(a % len(self.gone)), b)

    async def begin_life(self, key: SessionKey, count: int) -> None:
        logs = {LOGS[0]: self.values(count), LOGS[1]: []}
        document = {"big": self.big()}
        receipt = await self.store.create(key, state=logs | document, logs=set(LOGS))
        self.live.append(ModelSession(key, receipt.life, document, deepcopy(logs)))

    async def append(self, a: int, b: int, c: int) -> None:
        session, log, items = self.session(a), LOGS[b % 2], self.values(1 + c % 3)
        await self.commit(session, save=True, logs={log: Append(items=tuple(items))})
        session.logs[log] = session.logs[log] + items

    async def reset(self, a: int, b: int, c: int) -> None:
        session, log, items = self.session(a), LOGS[b % 2], self.values(c % 3)
        await self.commit(session, save=True, logs={log: Reset(items=tuple(items))})
        session.logs[log] = items

    async def rewind(self, a: int, b: int, c: int) -> None:
        session, log, items = self.session(a), LOGS[b % 2], self.values(b % 3)
        head = await self.store.head(session.key)
        assert head is not None
        end = head.ends[log]
        position = end.position * c // 8
        keep = LogEnd(end.session, end.branch, position)
        await self.commit(session, save=True, logs={log: Reset(keep=keep, items=tuple(items))})
        session.logs[log] = session.logs[log][:position] + items

    async def rewind_to_checkpoint(self, a: int, b: int, c: int) -> None:
        session = self.session(a)
        if not session.checkpoints:
            return
        number = sorted(session.checkpoints)[b % len(session.checkpoints)]
        log = LOGS[c % 2]
        point = await self.store.checkpoints.get(session.key, number)
        assert point is not None
        await self.commit(session, save=True, logs={log: Reset(keep=point.ends[log])})
        session.logs[log] = list(session.checkpoints[number].logs[log])

    async def set_field(self, a: int, b: int, c: int) -> None:
        session, value = self.session(a), self.big()
        await self.commit(session, save=True, document={f"field-{b % 2}": value})
        session.document[f"field-{b % 2}"] = value

    async def remove_field(self, a: int, b: int, c: int) -> None:
        session = self.session(a)
        await self.commit(session, save=True, removed=frozenset({f"field-{b % 2}"}))
        session.document.pop(f"field-{b % 2}", None)

    async def fork(self, a: int, b: int, c: int) -> None:
        source, key = self.session(a), a_key()
        receipt = await self.store.fork(source.key, key)
        self.live.append(ModelSession(key, receipt.life, dict(source.document), deepcopy(source.logs)))

    async def fork_at_checkpoint(self, a: int, b: int, c: int) -> None:
        source, key = self.session(a), a_key()
        if not source.checkpoints:
            return
        number = sorted(source.checkpoints)[b % len(source.checkpoints)]
        receipt = await self.store.fork(source.key, key, at=number)
        point = source.checkpoints[number]
        logs = {name: list(log) for name, log in point.logs.items() if name != SCRATCH}
        self.live.append(ModelSession(key, receipt.life, dict(point.document), logs))

    async def delete(self, a: int, b: int, c: int) -> None:
        session = self.session(a)
        await self.store.delete(session.key)
        self.live.remove(session)
        self.gone.append(session.key)

    async def begin(self, a: int, b: int, c: int) -> None:
        session, run_id = self.session(a), new_id()
        await self.commit(session, run=BeginRun(run_id=run_id, invocation_id=run_id))
        session.runs.append(ModelRun(run_id, deepcopy(session.logs), deepcopy(session.logs)))

    async def resume(self, a: int, b: int, c: int) -> None:
        session, run_id = self.session(a), new_id()
        if not session.checkpoints:
            return
        number = sorted(session.checkpoints)[b % len(session.checkpoints)]
        point, head = await self.store.checkpoints.get(session.key, number), await self.store.head(session.key)
        assert point is not None
        assert head is not None
        await self.commit(session, run=BeginRun(run_id=run_id, invocation_id=run_id, fresh=False, ends=point.ends))
        run = ModelRun(run_id, deepcopy(session.logs), deepcopy(session.checkpoints[number].logs))
        run.ahead = {name for name in LOGS if point.ends[name] != head.ends[name]}
        session.runs.append(run)

    async def checkpoint(self, a: int, b: int, c: int) -> None:
        if found := self.running(a, b):
            session, run = found
            log, items = (*LOGS, SCRATCH)[c % 3], self.values(1 + b % 2)
            document = {"big": self.big()} if c % 2 else dict(session.document)
            number = await self.commit(
                session,
                run=RunRef(run_id=run.run_id),
                logs={log: Append(items=tuple(items))},
                checkpoint=NewCheckpoint(step=c, document=document),
            )
            run.ends[log] = run.ends.get(log, []) + items
            run.own.add(log)
            session.checkpoints[number] = ModelCheckpoint(dict(document), deepcopy(run.ends))

    async def save_run(self, a: int, b: int, c: int) -> None:
        if found := self.running(a, b):
            await self._save_run(*found, c)

    async def complete(self, a: int, b: int, c: int) -> None:
        if found := self.running(a, b):
            await self._save_run(*found, c, end=EndRun(status=RunStatus.COMPLETED))
            found[1].status = "completed"

    async def _save_run(self, session: ModelSession, run: ModelRun, c: int, **parts: Any) -> None:
        log, items = LOGS[c % 2], self.values(c % 3)
        logs = {log: Append(items=tuple(items))} if items else {}
        await self.commit(session, save=True, run=RunRef(run_id=run.run_id), logs=logs, **parts)
        moved = run.own | run.ahead
        if log in moved:
            run.ends[log] = run.ends[log] + items
        else:
            session.logs[log] = session.logs[log] + items
        for name in moved - {SCRATCH}:
            session.logs[name] = list(run.ends[name])
        run.own &= {SCRATCH}
        run.ahead = set()
        scratch = {SCRATCH: run.ends[SCRATCH]} if SCRATCH in run.ends else {}
        run.base, run.ends = deepcopy(session.logs), deepcopy(session.logs) | scratch

    async def fail(self, a: int, b: int, c: int) -> None:
        await self._end(a, b, RunStatus.FAILED)

    async def discard(self, a: int, b: int, c: int) -> None:
        await self._end(a, b, RunStatus.COMPLETED)

    async def suspend(self, a: int, b: int, c: int) -> None:
        await self._end(a, b, RunStatus.SUSPENDED)

    async def _end(self, a: int, b: int, status: RunStatus) -> None:
        if found := self.running(a, b):
            session, run = found
            await self.commit(session, run=RunRef(run_id=run.run_id), end=EndRun(status=status))
            run.status = str(status)

    async def gc(self, a: int, b: int, c: int) -> None:
        await self.store.upkeep.gc(grace=0)
        before = await self.store.dump()
        assert await self.store.upkeep.gc(grace=0) == GcReport()
        after = await self.store.dump()
        assert [after[table] for table in ("entry", "content", "holding")] == [
            before[table] for table in ("entry", "content", "holding")
        ]
        for session in self.live:
            await self._check_session(session)
        for key in self.gone:
            assert await self.store.load(key) is None
        places = {v for session in self.live for logs in session.roots() for log in logs.values() for v in log}
        contents = {v for s in self.live for document in s.documents() for v in document.values()}
        assert len(before["entry"]) == len(places)
        assert len(before["content"]) == len(contents)

    async def _check_session(self, session: ModelSession) -> None:
        record = await self.store.load(session.key)
        assert record is not None
        assert record.state == session.document | session.logs
        found = await self.store.checkpoints.of_session(session.key, limit=1000)
        assert [point.commit_number for point in found] == sorted(session.checkpoints, reverse=True)
        for point in found:
            model = session.checkpoints[point.commit_number]
            assert point.document == model.document
            assert await self._read(session.key, point.ends) == model.logs
        for run in session.runs:
            stored = await self.store.runs.get(run.run_id)
            assert stored is not None
            assert str(stored.status) == run.status
            ends = {} if run.status == "completed" else run.ends
            assert await self._read(session.key, stored.ends) == ends

    async def _read(self, key: SessionKey, ends: Any) -> Logs:
        return {
            name: [entry.value for entry in await self.store.logs.read(key, name, end=end)]
            for name, end in ends.items()
        }


async def _walk(address: str, history: list[Step], **options: Any) -> None:
    async with open_store(address, **options) as store:
        await Walk(store).follow(history)


def _settings(examples: int) -> settings:
    quiet = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
    return settings(max_examples=examples, deadline=None, database=None, suppress_health_check=quiet)


@_settings(25)
@given(history=histories)
def test_gc_on_sqlite_keeps_exactly_what_a_copying_model_reaches(history: list[Step]) -> None:
    """Heads, checkpoints, forks of deleted sources and unfinished runs read whole; nothing else is left."""
    with TemporaryDirectory() as folder:
        asyncio.run(_walk(f"sqlite:///{Path(folder) / 'gc.db'}", history, synchronous="OFF"))


@_settings(8)
@given(history=histories)
def test_gc_on_postgres_keeps_exactly_what_a_copying_model_reaches(postgres: Postgres, history: list[Step]) -> None:
    """The same, on PostgreSQL."""
    schema = f"t_{new_id().replace('-', '_')}"
    asyncio.run(_walk(postgres.url, history, schema=schema, pool_size=2))
