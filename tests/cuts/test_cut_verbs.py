"""Every verb, cut off at every store call and repeated, ends where one ends that was not cut off."""

import asyncio
import pickle
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tenuto import Store
from tenuto.ids import new_id
from tenuto.testing.fake_clock import FakeClock
from tests.conftest import OurHarness
from tests.cuts.cutting import AFTER, BEFORE, KILLED, Cutting, Entry, Essence, World, cut, repeated, uncut
from tests.cuts.entries import ENTRIES, OTHERS, READS, talked
from tests.cuts.verbs import all_verbs
from tests.sampling import EIGHTH, sample
from tests.servers import Postgres


class Worlds:
    """Worlds in one store, each with sessions of its own, or each in a store of its own."""

    def __init__(self, open_another: Callable[[], Awaitable[Store]]) -> None:
        self._open_another = open_another
        self._stores: list[Store] = []
        self._made = 0

    async def another(self, *, alone: bool = False) -> World:
        """Return a world in which nothing has happened."""
        self._made += 1
        if alone or not self._stores:
            self._stores.append(Store(Cutting((await self._open_another()).backend), clock=FakeClock()))
        return await World.begun(self._stores[-1], f"w{self._made}")

    async def aclose(self) -> None:
        """Close the stores."""
        for store in self._stores:
            await store.aclose()


@pytest.fixture
async def worlds(tmp_path: Path) -> AsyncIterator[Worlds]:
    found = Worlds(lambda: OurHarness("sqlite", f"sqlite:///{tmp_path}/{new_id()}.db").open())
    yield found
    await found.aclose()


def test_every_verb_has_its_entry() -> None:
    """A verb that is new has to say here how it is repeated, or that it only looks."""
    entered = {name.partition(",")[0] for name in ENTRIES} | READS.keys() | OTHERS.keys()
    assert entered == set(all_verbs())
    assert not {name.partition(",")[0] for name in ENTRIES} & (READS.keys() | OTHERS.keys())


@pytest.mark.parametrize("verb", READS)
async def test_a_verb_that_only_looks_changes_nothing(worlds: Worlds, verb: str) -> None:
    world = await worlds.another()
    await talked(world)
    before = await world.store.dump()
    async with asyncio.timeout(8):
        await READS[verb](world)
    assert await world.store.dump() == before


@pytest.mark.parametrize("verb", ENTRIES)
async def test_a_verb_that_was_cut_off_ends_where_an_uncut_one_does(worlds: Worlds, verb: str) -> None:
    await judge(worlds, verb, 1)


async def judge(worlds: Worlds, verb: str, every: int) -> None:
    """Cut a verb off at its calls, or at some of them."""
    entry = ENTRIES[verb]
    whole, calls, transactions = await uncut(await worlds.another(), entry)
    assert calls, "it asked nothing of the store"
    points = [(how, nth) for how in BEFORE for nth in range(1, calls + 1)]
    points += [(how, nth) for how in AFTER for nth in range(1, transactions + 1)]
    for how, nth in sample(points, every, verb) if every > 1 else points:
        left = await cut(await worlds.another(alone=entry.alone), entry, how, nth)
        compare(entry, f"{verb}, {how} at {nth} of {calls}", whole, left, how)


def compare(entry: Entry, where: str, whole: Essence, left: Essence, how: str) -> None:
    """Say what is not as it should be."""
    assert left.keys() == whole.keys(), where
    for name, known in left.items():
        assert "running" not in known["statuses"], f"{where}: {name} still runs"
        parts = set(known)
        if entry.runs_turns and ("cancelled" in how or entry.cancels) and "interrupted" in known["statuses"]:
            # Its own caller interrupted it, and that is its outcome; what was said stands once all the same.
            parts = {"session", "input", "profile", "outgoing"}
            assert said_by_user(known) == said_by_user(whole[name]), f"{where}: {name}"
        if entry.compared is not None:
            parts &= entry.compared
        if entry.repeats:
            parts -= {"checkpoint", "branch"}
        different = [f"{part}: cut {known[part]!r}, uncut {whole[name][part]!r}" for part in parts]
        different = [line for part, line in zip(parts, different, strict=True) if known[part] != whole[name][part]]
        assert not different, f"{where}, {name}:\n" + "\n".join(different)


def said_by_user(known: dict[str, Any]) -> list[Any]:
    """Return what a session was told."""
    messages = known["state"].get("messages", [])
    return [each["content"] for each in messages if isinstance(each, dict) and each["role"] == "user"]


@pytest.fixture
async def served(postgres: Postgres) -> AsyncIterator[Worlds]:
    def another() -> Awaitable[Store]:
        schema = f"t_{new_id().replace('-', '_')}"
        return OurHarness("postgres", postgres.url, schema=schema, pool_size=4).open()

    found = Worlds(another)
    yield found
    await found.aclose()


@pytest.mark.parametrize("verb", sample(list(ENTRIES), EIGHTH, "verbs on a server"))
async def test_a_verb_that_was_cut_off_on_a_server_ends_where_an_uncut_one_does(served: Worlds, verb: str) -> None:
    await judge(served, verb, 2)


@pytest.mark.soak
@pytest.mark.parametrize("verb", [verb for verb, entry in ENTRIES.items() if entry.survives])
async def test_a_verb_whose_process_was_killed_ends_where_an_uncut_one_does(
    worlds: Worlds, tmp_path: Path, verb: str
) -> None:
    """A real process, killed at one of its store calls; another one repeats."""
    entry = ENTRIES[verb]
    whole, calls, transactions = await uncut(await worlds.another(), entry)
    points = [(how, nth) for how in KILLED for nth in range(1, (transactions if "after" in how else calls) + 1)]
    for how, nth in sample(points, EIGHTH, verb):
        path, facts = tmp_path / f"{how} {nth}.db", tmp_path / f"{how} {nth}.facts"
        command = [sys.executable, "-m", "tests.cuts.process", str(path), str(facts), verb, how, str(nth)]
        process = await asyncio.create_subprocess_exec(*command)
        async with asyncio.timeout(30):
            assert await process.wait() == -signal.SIGKILL, f"{verb}, {how} at {nth}: it was not killed there"
        store = await OurHarness("sqlite", f"sqlite:///{path}").open()
        world = await World.begun(Store(Cutting(store.backend), clock=FakeClock()), "w")
        world.facts = pickle.loads(facts.read_bytes())
        left = await repeated(world, entry)
        await world.store.aclose()
        compare(entry, f"{verb}, {how} at {nth} of {calls}", whole, left, how)
