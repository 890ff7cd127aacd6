"""A verb that is cut off at one of its store calls, repeated, and compared with one that was not."""

import asyncio
import os
import re
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from tenuto import Store
from tenuto.errors import TenutoError
from tenuto.model.session import SessionKey
from tenuto.runtime.runtime import SessionRuntime
from tenuto.store.housekeeping.sweep import Sweep
from tenuto.testing.fake_clock import FakeClock
from tenuto.testing.faults import FaultyBackend
from tests.cuts.programs import PROGRAMS, graph_on
from tests.runtime.runtimes import opened
from tests.runtime.seams import clock_of, until_idle

BEFORE = ("call lost", "cancelled before")
AFTER = ("reply lost", "cancelled after")
KILLED = ("killed before", "killed after")


class Cutting(FaultyBackend):
    """A backend that also cancels or kills whoever called the verb, before a call or after a transaction has landed."""

    victim: "asyncio.Task[Any] | None" = None
    cancels_before: int | None = None
    cancels_after: int | None = None
    kills_before: int | None = None
    kills_after: int | None = None

    def cut_at(self, how: str, nth: int) -> None:
        """Cut at the n-th call from now, or after the n-th transaction."""
        match how:
            case "call lost":
                self.fail_call(nth)
            case "reply lost":
                self.lose_reply(nth)
            case "cancelled before":
                self.cancels_before = self.calls + nth
            case "cancelled after":
                self.cancels_after = self.transactions + nth
            case "killed before":
                self.kills_before = self.calls + nth
            case "killed after":
                self.kills_after = self.transactions + nth

    def heal(self) -> None:
        super().heal()
        self.victim = self.cancels_before = self.cancels_after = None

    async def transact(self, *given: Any, **options: Any) -> Any:
        found = await super().transact(*given, **options)
        await self._struck(self.transactions, self.cancels_after, self.kills_after)
        return found

    async def write(self, name: str, *params: object) -> Any:
        found = await super().write(name, *params)
        await self._struck(self.transactions, self.cancels_after, self.kills_after)
        return found

    async def _before(self) -> None:
        await self._struck(self.calls + 1, self.cancels_before, self.kills_before)
        await super()._before()

    async def _struck(self, now: int, cancels: int | None, kills: int | None) -> None:
        if now == kills:
            os.kill(os.getpid(), signal.SIGKILL)
        if now == cancels and self.victim is not None:
            self.victim.cancel()
            await asyncio.sleep(0)  # the cancellation arrives here, if this is the caller's own call


@dataclass
class World:
    """What a verb is called on: sessions of its own in a store that others use too."""

    store: Store
    name: str
    facts: dict[str, Any] = field(default_factory=dict)
    runtime: SessionRuntime = field(init=False)
    graph: Any = field(init=False)

    @classmethod
    async def begun(cls, store: Store, name: str) -> "World":
        """Return a world in which nothing has happened, with a runtime that is open."""
        world = cls(store, name)
        await world.restart()
        return world

    @property
    def faults(self) -> Cutting:
        """What cuts the store's calls off."""
        assert isinstance(self.store.backend, Cutting)
        return self.store.backend

    @property
    def clock(self) -> FakeClock:
        """The store's clock."""
        return clock_of(self.store)

    async def restart(self) -> None:
        """Go on as another process would: nothing is known but what is stored."""
        self.runtime = await opened(self.store, PROGRAMS)
        self.graph = graph_on(self.store)

    async def swept(self) -> None:
        """Remove what deleted sessions left behind, as a collection does, but of this world's alone."""
        for row in (await self.store.dump())["session"]:
            if row["session_id"].startswith(f"{self.name}.") and not row["alive"]:
                await Sweep(self.store).deleted(SessionKey(row["session_id"]))

    def id(self, session_id: str = "s") -> str:
        """Return the id of one of its sessions."""
        return f"{self.name}.{session_id}"


Step = Callable[[World], Awaitable[Any]]


@dataclass(frozen=True, kw_only=True)
class Entry:
    """How a verb is called, and repeated by whoever was cut off.

    A repeat may be refused with what it `tolerates`, which says that it stands. `runs_turns` says that its caller, when
    cancelled, interrupts the turn: that is then the outcome; with `cancels` it does so whatever happens. With `sweeps`,
    a collection follows before the comparison. `repeats` says that a repeat of what had landed does it once more, and
    leaves another point and branches; otherwise all is `compared`, or these parts. A verb that looks at the whole store
    is `alone` in it. What only the caller itself can repeat does not `survive` it.
    """

    scene: Step
    call: Step
    again: Step | None = None
    tolerates: tuple[type[Exception], ...] = ()
    runs_turns: bool = False
    sweeps: bool = False
    alone: bool = False
    cancels: bool = False
    repeats: bool = False
    compared: frozenset[str] | None = None
    survives: bool = True


async def uncut(world: World, entry: Entry) -> "tuple[Essence, int, int]":
    """Return what a verb leaves, and how many calls and transactions it made."""
    await entry.scene(world)
    calls, transactions = world.faults.calls, world.faults.transactions
    with suppress(*entry.tolerates):
        await entry.call(world)
    made = world.faults.calls - calls, world.faults.transactions - transactions
    await settle(world, entry)
    return await essence(world), *made


async def cut(world: World, entry: Entry, how: str, nth: int) -> "Essence":
    """Return what a verb leaves that was cut off once and repeated."""
    await entry.scene(world)
    world.faults.cut_at(how, nth)
    world.faults.victim = task = asyncio.ensure_future(entry.call(world))
    done, _ = await asyncio.wait([task], timeout=8)
    assert done, f"{how} at {nth}: the verb did not come back"
    with suppress(TenutoError, asyncio.CancelledError):
        task.result()
    world.faults.heal()
    await until_idle(world.runtime)
    if nth % 2:
        await world.runtime.aclose()
        await world.restart()
    return await repeated(world, entry)


async def repeated(world: World, entry: Entry) -> "Essence":
    """Repeat a verb that was cut off, and return what that leaves."""
    world.clock.advance(120)  # whatever the cut left held is free by then
    with suppress(*entry.tolerates):
        async with asyncio.timeout(8):
            await (entry.again or entry.call)(world)
    await settle(world, entry)
    return await essence(world)


async def settle(world: World, entry: Entry) -> None:
    """Let everything happen that is due, and close the runtime."""
    await until_idle(world.runtime)
    world.clock.advance(120)
    async with asyncio.timeout(8):
        await world.runtime.drain()
    if entry.sweeps:
        await world.swept()
    await world.runtime.aclose()


_ID = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}|[0-9a-f]{32,}|\b[A-Za-z0-9_-]{22}\b|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"
)
_SHOWN = {
    "run": ("status", "error", "partial"),
    "input": ("kind", "key", "status", "boundary", "rolled_back", "log", "position"),
    "wait": ("kind", "signal_id", "status", "answer"),
    "effect": ("key", "step", "status", "result", "error"),
    "usage": ("model", "input", "output"),
    "outgoing": ("kind", "status", "body"),
    "schedule": ("name", "words", "paused"),
    "deletion": ("status",),
    "checkpoint": ("step", "cursor"),
    "profile": ("agent", "title", "metadata", "definition", "parent", "parent_life", "forked_from", "failure_reason"),
}
_COUNTED = ("branch", "entry", "holding")

Essence = dict[str, dict[str, Any]]
"""What stands of each session, by part."""


async def essence(world: World) -> Essence:
    """Return what stands of a world's sessions, without ids, times, generations and what a repeat may number anew.

    Wakes are left out: a worker brings one where the caller was cut off before it could go on by itself.
    """
    dump = await world.store.dump()
    dump["input"] = [row for row in dump["input"] if row["kind"] != "wake"]
    found: Essence = {}
    for row in dump["session"]:
        if not row["session_id"].startswith(f"{world.name}."):
            continue
        record = await world.store.load(row["session_id"])
        mine = {
            table: [each for each in dump[table] if each["session"] == row["sid"]] for table in (*_SHOWN, *_COUNTED)
        }
        known: dict[str, Any] = {"session": [row[part] for part in ("alive", "status", "life", "armed")]}
        known["state"] = {} if record is None else record.state
        known |= {
            table: sorted(repr([each[c] for c in columns]) for each in mine[table]) for table, columns in _SHOWN.items()
        }
        known |= {table: len(mine[table]) for table in _COUNTED}
        known["statuses"] = sorted(each["status"] for each in mine["run"])
        found[row["session_id"].removeprefix(world.name)] = {
            part: _ID.sub("#", repr(value)).replace(f"{world.name}.", "") if part in _SHOWN else value
            for part, value in known.items()
        }
    return found
