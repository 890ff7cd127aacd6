"""A small world to fuzz: a store with a second one on the same data, a runtime, and sessions of every kind."""

import json
import subprocess
import sys
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from tenuto import SessionRuntime, open_store, program
from tenuto.ids import new_id
from tenuto.model.commit import BeginRun, Commit, EndRun, NewCheckpoint, OpenWait
from tenuto.model.effect import Effect, EffectKind, StartEffect
from tenuto.model.input import InputKind, NewInput
from tenuto.model.lane import Lane, Owner
from tenuto.model.outgoing_item import NewOutgoing
from tenuto.model.run import RunStatus
from tenuto.model.schedule import NewSchedule
from tenuto.model.session import Profile, SessionKey
from tenuto.runtime.run_handle import RunHandle
from tenuto.store.store import Store
from tests.fuzz.reading import read_all, steady
from tests.fuzz.second import digest_of
from tests.fuzz.tables import PostgresTables, Rows, SqliteTables, Tables
from tests.runtime.runtimes import opened
from tests.runtime.seams import until_idle
from tests.servers import SCHEMA, Postgres

T = TypeVar("T")

DAY = 86_400.0
A_SCHEDULE = NewSchedule(name="n", body={"message": "x"}, every=DAY)


@program
async def echo(turn: Any) -> None:
    """Answer at once."""
    turn.append({"role": "assistant", "content": "ok"})


@program
async def waiter(turn: Any) -> None:
    """Wait for a signal, and say what it was."""
    turn.append({"role": "assistant", "content": str(await turn.wait("signal"))})


@program
async def failing(turn: Any) -> None:
    """Fail."""
    raise ValueError("on purpose")


class Ground:
    """Where worlds are made: one database after the other, and a second process that reads each once it is done."""

    def __init__(self, name: str, folder: Path, server: Postgres | None = None) -> None:
        self.name = name
        self._folder = folder
        self._server = server
        self._second: subprocess.Popen[str] | None = None

    def fresh(self) -> tuple[str, dict[str, Any]]:
        """Return the address and options of an empty database."""
        if self.name == "sqlite":
            return f"sqlite:///{self._folder}/{new_id()}.db", {}
        assert self._server is not None
        return self._server.fresh(), {"schema": SCHEMA, "pool_size": 3}

    def leave(self, address: str) -> None:
        """Remove a database that is done with."""
        if self._server is not None:
            self._server.drop(address)

    def ask(self, address: str, options: dict[str, Any]) -> str | None:
        """Have the second process read a database; return the digest it found, or what went wrong there."""
        if self._second is None:
            self._second = subprocess.Popen(
                [sys.executable, "-m", "tests.fuzz.second"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
        assert self._second.stdin is not None
        assert self._second.stdout is not None
        self._second.stdin.write(json.dumps([address, options]) + "\n")
        self._second.stdin.flush()
        return self._second.stdout.readline().strip()

    def end(self) -> None:
        """End the second process."""
        if self._second is not None:
            self._second.communicate(timeout=30)


def _session_of(made: Any) -> str | None:
    """Return the id of the session that something is of, if it says so."""
    first = made[0] if isinstance(made, tuple) else made
    key = first if isinstance(first, SessionKey) else getattr(first, "key", None)
    return key.session_id if isinstance(key, SessionKey) else None


class World:
    """One database with everything in it that a verb may be asked about."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._address, self._options = ground.fresh()
        self._made: dict[str, Any] = {}
        self._rows: Rows | None = None
        self.lives: dict[SessionKey, int] = {}
        self.store: Store
        self.second: Store
        self.runtime: SessionRuntime
        self._tables: Tables

    async def __aenter__(self) -> "World":
        self.store = await open_store(self._address, **self._options)
        self.second = await open_store(self._address, **self._options)
        self.runtime = await opened(self.store, [echo, waiter, failing])
        if self._ground.name == "sqlite":
            self._tables = SqliteTables(self._address.removeprefix("sqlite:///"))
        else:
            self._tables = await PostgresTables.open(self._address, SCHEMA)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.runtime.aclose()
        await self._tables.close()
        await self.second.aclose()
        await self.store.aclose()
        self._ground.leave(self._address)

    async def rows(self) -> Rows:
        """Return all rows; those seen last are still true unless something was called since."""
        if self._rows is None:
            self._rows = await self._tables.read()
        return self._rows

    def moved(self) -> None:
        """Forget the rows seen last."""
        self._rows = None

    def spent(self, moved: Collection[str] = ()) -> None:
        """Forget what was made of these sessions, or of all: a call was accepted and may have used it up."""
        kept = {name: value for name, value in self._made.items() if moved and _session_of(value) not in {None, *moved}}
        self._made = kept
        self._rows = None

    async def agrees_elsewhere(self) -> str | None:
        """Compare what this process reads with what another one does; return what is wrong."""
        await until_idle(self.runtime)
        said = self._ground.ask(self._address, self._options)
        return None if said in (None, digest_of(steady(await read_all(self.store)))) else said

    async def made(self, name: str, make: Callable[[], Awaitable[T]]) -> T:
        """Return something made before, or make it."""
        if name not in self._made:
            self._made[name] = await make()
            self._rows = None
        found: T = self._made[name]
        return found

    async def session(self) -> SessionKey:
        """Return a session with messages, a field and a checkpoint."""
        return await self.made("session", self._session)

    async def _session(self) -> SessionKey:
        key = SessionKey(f"session-{new_id()}")
        state = {"messages": [{"role": "user", "content": "hello"}], "a": 1}
        profile = Profile(title="t", metadata={"m": 1})
        self.lives[key] = (await self.store.create(key, state=state, logs={"messages"}, profile=profile)).life
        await self.store.commit(self._commit(key, checkpoint=NewCheckpoint(step=0, cursor={"c": 1})))
        return key

    def _commit(self, key: SessionKey, **parts: Any) -> Commit:
        return Commit(key=key, operation_id=new_id(), life=self.lives[key], **parts)

    async def talk(self) -> SessionKey:
        """Return a session of a program, with a turn behind it."""
        return await self.made("talk", self._talk)

    async def _talk(self) -> SessionKey:
        session = await self.runtime.create("echo", session_id=f"talk-{new_id()}")
        await session.send("hello")
        return SessionKey(session.session_id)

    async def run(self) -> RunHandle[Any]:
        """Return the handle of a turn that is over."""

        async def make() -> RunHandle[Any]:
            session = await self.runtime.create("echo", session_id=f"run-{new_id()}")
            run = await session.start("hello")
            await run.wait()
            return run

        return await self.made("run", make)

    async def failed(self) -> SessionKey:
        """Return a session whose last turn failed."""

        async def make() -> SessionKey:
            session = await self.runtime.create("failing", session_id=f"failed-{new_id()}")
            await session.send("hello")
            return SessionKey(session.session_id)

        return await self.made("failed", make)

    async def waiting(self) -> tuple[SessionKey, str, str]:
        """Return a session that waits, the wait, and its run."""

        async def make() -> tuple[SessionKey, str, str]:
            session = await self.runtime.create("waiter", session_id=f"waiting-{new_id()}")
            outcome = await session.send("hello")
            assert outcome.run_id is not None
            return SessionKey(session.session_id), outcome.waits[0].wait_id, outcome.run_id

        return await self.made("waiting", make)

    async def running(self) -> tuple[Lane, str]:
        """Return the lane of a session with a run under way, and the run."""

        async def make() -> tuple[Lane, str]:
            key, run_id = await self._session(), new_id()
            lane = await self.store.lanes.acquire(key, Owner(owner_id="o", incarnation="i"), ttl=DAY)
            begin = BeginRun(run_id=run_id, invocation_id=new_id())
            await self.store.commit(self._commit(key, generation=lane.generation, run=begin))
            return lane, run_id

        return await self.made("running", make)

    async def stopped(self) -> tuple[Lane, str]:
        """Return the same with a stop on the run."""
        lane, run_id = await self.running()

        async def make() -> bool:
            await self.store.runs.request_stop(run_id)
            return True

        await self.made("stopped", make)
        return lane, run_id

    async def doubt(self) -> Effect:
        """Return a call of which nobody knows what became of it."""

        async def make() -> Effect:
            key = await self._session()
            begin = BeginRun(run_id=new_id(), invocation_id=new_id())
            start = StartEffect(key="call", kind=EffectKind.TOOL, request={"q": 1})
            parts: dict[str, Any] = {"run": begin, "effects": (start,), "end": EndRun(status=RunStatus.FAILED)}
            await self.store.commit(self._commit(key, **parts))
            (found,) = await self.store.effects.list(key, in_doubt=True)
            return found

        return await self.made("doubt", make)

    async def queued(self) -> tuple[SessionKey, str]:
        """Return a session with a queued message that is not due, and its id."""

        async def make() -> tuple[SessionKey, str]:
            key = await self._session()
            new = NewInput(kind=InputKind.MESSAGE, body={"m": 1}, key=new_id(), delay=DAY)
            return key, (await self.store.inbox.enqueue(key, new)).input.input_id

        return await self.made("queued", make)

    async def scheduled(self) -> SessionKey:
        """Return a session with a schedule that is not due."""

        async def make() -> SessionKey:
            key = await self._session()
            await self.store.schedules.declare(key, A_SCHEDULE)
            return key

        return await self.made("scheduled", make)

    async def sent(self) -> str:
        """Return the id of an outgoing item."""

        async def make() -> str:
            key = await self._session()
            new = NewOutgoing(kind="wake", target=key, body={"b": 1}, delay=DAY)
            receipt = await self.store.commit(self._commit(key, outgoing=(new,)))
            return receipt.outgoing_ids[0]

        return await self.made("sent", make)

    async def open_wait(self) -> tuple[SessionKey, str]:
        """Return a session of the store with an open wait, and the wait."""

        async def make() -> tuple[SessionKey, str]:
            key = await self._session()
            begin = BeginRun(run_id=new_id(), invocation_id=new_id())
            parts: dict[str, Any] = {"run": begin, "open_waits": (OpenWait(kind="signal"),)}
            end = EndRun(status=RunStatus.SUSPENDED)
            receipt = await self.store.commit(self._commit(key, end=end, **parts))
            return key, receipt.wait_ids[0]

        return await self.made("open_wait", make)
