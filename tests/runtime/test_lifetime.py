"""A runtime is a declaration: when it is open, in which loop, and what is open with it."""

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from tenuto import SessionRuntime, Turn, open_store, program
from tenuto.errors import InvalidInput, LaneBusy, NotOpen, SessionExists, StoreUnavailable, StoreUnusable, WrongLoop
from tenuto.model.lane import LaneTiming
from tests.runtime.gates import GatedProgram
from tests.runtime.seams import leave_event_loop


@program
async def greets(turn: Turn) -> str:
    turn.append("hello")
    return turn.text


def in_thread(work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """Return what a coroutine returns in an event loop of another thread, or raise what it raises."""
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(asyncio.run(work()))
        except Exception as error:
            found.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(20)
    if isinstance(found[0], Exception):
        raise found[0]
    return found[0]


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/a.db"


@pytest.fixture
def runtime(url: str) -> SessionRuntime:
    """A declaration on a file that is not there yet."""
    return SessionRuntime(url, greets)


async def test_a_declaration_opens_nothing(runtime: SessionRuntime, tmp_path: Path) -> None:
    assert not list(tmp_path.iterdir())
    assert not runtime.is_open
    assert list(runtime.programs) == ["greets@1"]


async def test_every_verb_before_it_is_open_says_how_to_open_it(runtime: SessionRuntime) -> None:
    session = runtime.session("s")
    for verb in (
        runtime.create(greets),
        runtime.send("s", "hi"),
        runtime.list(),
        runtime.drain(),
        session.get(),
        session.start("hi"),
        runtime.for_tenant("t").get("s"),
        runtime.across_tenants().list(),
    ):
        with pytest.raises(NotOpen, match="async with runtime"):
            await verb
    with pytest.raises(NotOpen):
        session.events()
    with pytest.raises(NotOpen):
        _ = runtime.store


async def test_it_is_opened_again_after_it_was_closed(runtime: SessionRuntime) -> None:
    async with runtime:
        await runtime.create(greets, session_id="s")
        open_within = runtime.is_open
    assert (open_within, runtime.is_open) == (True, False)
    async with runtime:
        assert (await runtime.send("s", "again")).output == "again"
    with pytest.raises(NotOpen):
        await runtime.get("s")


def test_it_is_opened_in_one_loop_after_another(runtime: SessionRuntime) -> None:
    async def say(text: str) -> int:
        async with runtime:
            session = await runtime.create(greets, session_id="s", exists_ok=True)
            await session.send(text)
            return len((await session.get()).messages)

    assert [asyncio.run(say(text)) for text in ("one", "two", "three")] == [2, 4, 6]


async def test_in_one_loop_it_counts_and_the_last_exit_closes(runtime: SessionRuntime) -> None:
    async with runtime:
        store = runtime.store
        async with runtime:
            assert runtime.store is store
        await runtime.create(greets, session_id="s")
    assert not runtime.is_open


async def test_two_tasks_open_it_at_once_and_share_it(runtime: SessionRuntime) -> None:
    stores = []

    async def use() -> None:
        async with runtime:
            stores.append(runtime.store)
            await asyncio.sleep(0)

    await asyncio.gather(*(use() for _ in range(5)))
    assert len({id(store) for store in stores}) == 1
    assert not runtime.is_open


async def test_closing_twice_is_fine(runtime: SessionRuntime) -> None:
    async with runtime:
        await runtime.aclose()
        assert not runtime.is_open
    await runtime.aclose()


async def test_in_another_loop_it_is_refused_and_the_way_out_is_named(runtime: SessionRuntime, url: str) -> None:
    async with runtime:
        await runtime.create(greets, session_id="s")
        with pytest.raises(WrongLoop, match=r"runtime\.using\(url\)"):
            in_thread(runtime.__aenter__)
        with pytest.raises(WrongLoop):
            in_thread(lambda: runtime.get("s"))
        with pytest.raises(WrongLoop):
            in_thread(runtime.aclose)

        async def elsewhere() -> Any:
            async with runtime.using(url) as other:
                return (await other.send("s", "from there")).output

        assert in_thread(elsewhere) == "from there"
        assert (await runtime.send("s", "from here")).output == "from here"


def test_a_loop_that_ended_without_closing_it_does_not_keep_it(runtime: SessionRuntime) -> None:
    asyncio.run(runtime.__aenter__())

    async def again() -> str:
        async with runtime:
            return (await (await runtime.create(greets)).send("hi")).result()

    assert asyncio.run(again()) == "hi"


async def test_in_a_forked_child_nothing_is_open_and_a_declaration_is_unharmed(url: str, tmp_path: Path) -> None:
    parent, untouched = SessionRuntime(url, greets), SessionRuntime(f"sqlite:///{tmp_path}/b.db", greets)

    async def use() -> Any:
        async with untouched:
            return (await (await untouched.create(greets)).send("from the child")).output

    async with parent:
        await parent.create(greets, session_id="s")
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            leave_event_loop()
            os.write(write, repr([_tried(each) for each in (parent.__aenter__, lambda: parent.get("s"), use)]).encode())
            os._exit(0)
        await asyncio.to_thread(os.waitpid, child, 0)
        opened, used, fresh = eval(os.read(read, 10_000))
        assert opened.startswith("WrongLoop: ")
        assert "survives a fork" in opened
        assert used.startswith("WrongLoop: ")
        assert fresh == "from the child"
        assert (await parent.send("s", "from the parent")).output == "from the parent"


def _tried(work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """Return what a coroutine returns in a new event loop, or what it raises, as text."""
    try:
        return asyncio.run(work())
    except Exception as error:
        return f"{type(error).__name__}: {error}"


async def test_a_store_that_was_passed_stays_open(url: str) -> None:
    async with open_store(url) as store:
        runtime = SessionRuntime(store, greets)
        async with runtime:
            await runtime.create(greets, session_id="s")
        assert await store.exists("s")
        with pytest.raises(WrongLoop, match="store's address"):
            runtime.blocking()


async def test_an_opening_brings_its_options_and_is_closed_with_the_runtime(url: str) -> None:
    runtime = SessionRuntime(open_store(url, synchronous="OFF", lanes=LaneTiming(ttl=9, renew=3)), greets)
    async with runtime:
        store = runtime.store
        assert store.timing == LaneTiming(ttl=9, renew=3)
    with pytest.raises(StoreUnavailable):
        await store.exists("s")


async def test_memory_is_new_each_time(caplog: pytest.LogCaptureFixture) -> None:
    runtime = SessionRuntime(programs=greets)
    with caplog.at_level(logging.WARNING, "tenuto.runtime"):
        async with runtime:
            await runtime.create(greets, session_id="s")
    assert "kept in memory" in caplog.text
    async with runtime:
        assert not await runtime.list()


async def test_a_store_that_cannot_be_opened_leaves_the_declaration_closed(tmp_path: Path) -> None:
    place = tmp_path / "folder"
    runtime = SessionRuntime(f"sqlite:///{place}/a.db", greets)
    for _ in range(2):
        with pytest.raises(StoreUnusable, match="folder"):
            await runtime.__aenter__()
        assert not runtime.is_open
    place.mkdir()
    async with runtime:
        assert not await runtime.list()


async def test_closing_waits_for_turns_that_were_started(url: str) -> None:
    gate = GatedProgram()
    runtime = SessionRuntime(url, gate)
    async with runtime:
        run = await (await runtime.create("gate", session_id="s")).start("hold it")
        asyncio.get_running_loop().call_later(0.05, gate.let_go, "hold it")
    assert (await run.wait()).completed


async def test_to_open_it_can_be_cancelled(runtime: SessionRuntime) -> None:
    opening = asyncio.ensure_future(runtime.__aenter__())
    await asyncio.sleep(0)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert not runtime.is_open
    async with runtime:
        assert not await runtime.list()


async def test_to_close_it_can_be_cancelled_and_its_turn_is_left_for_another(url: str) -> None:
    gate = GatedProgram()
    runtime = SessionRuntime(url, gate)
    await runtime.__aenter__()
    await (await runtime.create("gate", session_id="s")).start("hold it")
    await gate.entered("hold it")
    closing = asyncio.ensure_future(runtime.aclose())
    await asyncio.sleep(0.01)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert not runtime.is_open
    gate.let_go("hold it")
    async with runtime:
        assert len(await runtime.list()) == 1


async def test_options_are_checked_when_it_is_declared(url: str) -> None:
    wrong: list[dict[str, Any]] = [
        {"steps": 0},
        {"cache_bytes": -1},
        {"when_busy": "que"},
        {"in_doubt": "maybe"},
        {"worker_name": ""},
        {"lanes": 15},
        {"hooks": [object()]},
        {"programs": [greets, greets]},
        {"programs": [object()]},
        {"actions": [int]},
    ]
    for options in wrong:
        with pytest.raises(InvalidInput):
            SessionRuntime(url, **options)
    timings: list[dict[str, Any]] = [
        {"ttl": 15, "renew": 6},
        {"ttl": 0},
        {"renew": -1},
        {"wait": float("inf")},
        {"ttl": "15"},
    ]
    for timing in timings:
        with pytest.raises(InvalidInput):
            LaneTiming(**timing)
    async with open_store(url) as store:
        with pytest.raises(InvalidInput, match="open_store"):
            SessionRuntime(store, greets, lanes=LaneTiming(ttl=30, renew=5))


async def test_an_existing_session_is_returned_if_it_is_of_the_same_program(url: str) -> None:
    @program
    async def other(turn: Turn) -> None:
        turn.append("other")

    async with SessionRuntime(url, [greets, other]) as both:
        first = await both.create(greets, {"mood": "calm"}, "s", title="First")
        again = await both.create(greets, {"mood": "wild"}, "s", exists_ok=True, title="Second")
        assert again == first
        view = await again.get()
        assert (view.document, view.profile.title) == ({"mood": "calm"}, "First")
        with pytest.raises(SessionExists, match="belongs to the program 'greets'"):
            await both.create(other, session_id="s", exists_ok=True)
        with pytest.raises(SessionExists):
            await both.create(greets, session_id="s")
        handles = await asyncio.gather(*(both.create(greets, session_id="t", exists_ok=True) for _ in range(5)))
        assert len(set(handles)) == 1


async def test_a_worker_has_the_name_it_was_given(url: str) -> None:
    gate = GatedProgram()
    async with SessionRuntime(url, gate, worker_name="till-7") as named, named.using(url) as other:
        run = await (await named.create("gate", session_id="s")).start("hold it")
        with pytest.raises(LaneBusy) as refused:
            await other.send("s", "me too")
        gate.let_go("hold it")
        assert (await run.wait()).completed
    assert refused.value.owner == "till-7"
