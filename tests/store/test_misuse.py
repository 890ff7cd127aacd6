"""A store used where it does not belong: another event loop, thread or process, or after its end."""

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tenuto import SessionRuntime, Store, open_store, program
from tenuto.errors import StoreClosed, StoreMisused, StoreUnusable, TenutoError, WrongLoop
from tenuto.model.event import NewEvent
from tenuto.runtime.program.turn import Turn
from tenuto.testing.factories import a_commit, a_save, a_session, an_owner
from tests.conftest import OurHarness
from tests.runtime.seams import live_turns

on_sql = pytest.mark.parametrize("harness", ["sqlite", "postgres"], indirect=True)


async def _watch(store: Store) -> None:
    async with store.backend.watch(a_commit("s").key):
        pass


async def _view(store: Store) -> None:
    async with store.backend.view():
        pass


VERBS: list[Callable[[Store], Awaitable[object]]] = [
    lambda store: store.load("s"),
    lambda store: store.stamp("s"),
    lambda store: store.create("t"),
    lambda store: store.commit(a_save("s", "b")),
    lambda store: store.lanes.acquire("s", an_owner()),
    lambda store: store.lanes.renew([]),
    lambda store: store.upkeep.gc(),
    lambda store: store.list(),
    _watch,
    _view,
]


def _elsewhere(work: Callable[[], Awaitable[object]]) -> Any:
    """Run something in another thread, with an event loop of its own."""
    found: list[Any] = []

    async def run() -> object:
        async with asyncio.timeout(5):
            return await work()

    def thread() -> None:
        try:
            found.append(asyncio.run(run()))
        except BaseException as error:
            found.append(error)

    running = threading.Thread(target=thread)
    running.start()
    running.join(10)
    return found[0]


@on_sql
async def test_every_verb_from_another_event_loop_is_refused_with_the_way_out(harness: OurHarness) -> None:
    store = await harness.open()
    await a_session(store, "s")
    for verb in VERBS:
        error = await asyncio.to_thread(_elsewhere, partial(verb, store))
        cause = error if isinstance(error, StoreMisused) else error.__cause__
        assert isinstance(cause, StoreMisused), error
        assert "sibling()" in str(cause)
        assert not error.retryable
    assert isinstance(await asyncio.to_thread(_elsewhere, lambda: store.aclose()), StoreMisused)
    assert await store.exists("s"), "its own loop is not disturbed"


@on_sql
async def test_a_sibling_works_in_another_event_loop(harness: OurHarness) -> None:
    store = await harness.open()
    await a_session(store, "s")

    async def use() -> bool:
        async with await store.sibling() as other:
            return await other.exists("s")

    assert await asyncio.to_thread(_elsewhere, use) is True


@on_sql
async def test_a_runtime_in_two_event_loops_is_refused_also_when_both_want_one_session(harness: OurHarness) -> None:
    @program
    async def slow(turn: Turn) -> None:
        await asyncio.sleep(0.05)
        turn.append({"role": "assistant", "content": "ok"})

    store = await harness.open()
    async with SessionRuntime(store, [slow], when_busy="queue") as runtime:
        await runtime.create("slow", session_id="s")
        sending = [asyncio.create_task(runtime.send("s", "here")) for _ in range(3)]
        await asyncio.sleep(0.01)
        for _ in range(3):
            assert isinstance(await asyncio.to_thread(_elsewhere, lambda: runtime.send("s", "there")), WrongLoop)
        assert {outcome.status for outcome in await asyncio.gather(*sending)} == {"completed"}


@on_sql
async def test_every_verb_after_the_close_is_refused(harness: OurHarness) -> None:
    store = await harness.open()
    await store.aclose()
    await store.aclose()
    for verb in VERBS:
        with pytest.raises(TenutoError) as refused:
            await verb(store)
        error = refused.value if isinstance(refused.value, StoreClosed) else refused.value.__cause__
        assert isinstance(error, StoreClosed)
        assert not refused.value.retryable


def _run(script: str, *arguments: str, seconds: float = 20) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=seconds,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


FORK = """
import asyncio, os, sys
from tenuto import open_store
from tenuto.errors import StoreMisused
from tenuto.testing.factories import a_save, a_session

async def child(store, address, options):
    for work in (lambda: store.load("s"), lambda: store.stamp("s"), lambda: store.commit(a_save("s", "x"))):
        try:
            async with asyncio.timeout(5):
                await work()
        except StoreMisused as error:
            assert "fork" in str(error)
        else:
            raise AssertionError("it was not refused")
    await store.aclose()
    if address.startswith("sqlite"):
        try:
            await open_store(address, **options)
        except StoreMisused as error:
            assert "fork" in str(error)
        else:
            raise AssertionError("it was not refused")
    else:
        async with open_store(address, **options) as own:
            assert await own.exists("s")

async def before(address, options):
    store = await open_store(address, **options)
    await a_session(store, "s")
    for n in range(5):
        await store.commit(a_save("s", f"before {n}"))
    return store

async def after(store, address, options):
    async with asyncio.timeout(8):
        for n in range(5):
            await store.commit(a_save("s", f"after {n}"))
        assert len((await store.load("s")).state["messages"]) == 10
        await store.aclose()
    async with open_store(address, **options) as again:
        assert len((await again.load("s")).state["messages"]) == 10

address, options = sys.argv[1], eval(sys.argv[2])
loop = asyncio.new_event_loop()
store = loop.run_until_complete(before(address, options))
pid = os.fork()
if pid == 0:
    try:
        asyncio.run(child(store, address, options))
    except BaseException:
        import traceback
        traceback.print_exc()
        os._exit(3)
    sys.exit(0)  # with all that the interpreter does at its end
_, status = os.waitpid(pid, 0)
assert os.waitstatus_to_exitcode(status) == 0, status
loop.run_until_complete(after(store, address, options))
loop.close()
print("fine")
"""


@on_sql
async def test_a_forked_child_is_refused_and_its_parent_unharmed(harness: OurHarness) -> None:
    assert harness.address is not None
    assert "fine" in await asyncio.to_thread(_run, FORK, harness.address, repr(harness.options))


AT_EXIT = """
import asyncio, atexit, sys, threading
from tenuto import SessionRuntime, open_store, program

@program
async def echo(turn):
    turn.append({"role": "assistant", "content": "ok"})

loop = asyncio.new_event_loop()
threading.Thread(target=loop.run_forever, daemon=True).start()

def call(work):
    return asyncio.run_coroutine_threadsafe(work, loop).result(10)

async def opened():
    return await open_store(sys.argv[1], **eval(sys.argv[2]))

store = call(opened())

async def made():
    runtime = SessionRuntime(store, [echo])
    await runtime.__aenter__()
    return runtime

runtime = call(made())
call(runtime.create("echo", session_id="s"))
call(runtime.send("s", "hello"))

async def hold():
    lane = await store.lanes.acquire("other", __import__("tenuto.testing.factories", fromlist=["x"]).an_owner())
    store.keeper.hold(lane, lambda: None)

call(hold())

def close():
    assert call(store.exists("s"))
    call(runtime.aclose())
    call(store.aclose())
    print("closed", flush=True)

atexit.register(close)
"""


@on_sql
async def test_a_store_is_closed_and_read_by_a_hook_at_the_interpreters_end(harness: OurHarness) -> None:
    assert harness.address is not None
    assert "closed" in await asyncio.to_thread(_run, AT_EXIT, harness.address, repr(harness.options))


LOOP_GONE = """
import asyncio, sys
from tenuto import open_store
from tenuto.errors import StoreMisused

async def opened():
    store = await open_store(sys.argv[1], **eval(sys.argv[2]))
    await store.create("s")
    return store

store = asyncio.run(opened())
try:
    asyncio.run(store.load("s"))
except StoreMisused:
    print("refused")
asyncio.run(store.aclose())
print("closed")
"""


@on_sql
async def test_a_store_whose_event_loop_is_gone_is_refused_and_can_be_closed(harness: OurHarness) -> None:
    assert harness.address is not None
    told = await asyncio.to_thread(_run, LOOP_GONE, harness.address, repr(harness.options))
    assert told.split() == ["refused", "closed"]


WITHOUT_UNIX = """
import asyncio, os, signal, sys
for name in ("register_at_fork", "fork", "getuid", "geteuid", "getppid", "sched_getaffinity"):
    if hasattr(os, name):
        delattr(os, name)
for name in ("SIGKILL", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGCHLD", "SIGQUIT"):
    if hasattr(signal, name):
        delattr(signal, name)
sys.modules["fcntl"] = sys.modules["resource"] = sys.modules["pwd"] = sys.modules["grp"] = None

def missing(self, *_):
    raise NotImplementedError

asyncio.AbstractEventLoop.add_signal_handler = missing
asyncio.SelectorEventLoop.add_signal_handler = missing
asyncio.SelectorEventLoop.remove_signal_handler = missing

import tenuto
import tenuto.cli.app
from tenuto.cli import worker_command as command
from tenuto import SessionRuntime, open_store, program

@program
async def echo(turn):
    turn.append({"role": "assistant", "content": "ok"})

async def main():
    async with open_store(sys.argv[1]) as store, SessionRuntime(store, [echo]) as runtime:
        await runtime.create("echo", session_id="s")
        assert (await runtime.send("s", "hello")).status == "completed"
        input_id = await runtime.session("s").enqueue("again")
        progress = command.Progress(False)
        working = asyncio.create_task(command._work(runtime.worker(poll=0.02), ["echo@1"], progress, 5.0, 1.0))
        async with asyncio.timeout(8):
            while (await runtime.outcome(input_id)).status != "completed":
                await asyncio.sleep(0.02)
        signal.raise_signal(signal.SIGINT)
        async with asyncio.timeout(8):
            assert await working is False

asyncio.run(main())
print("fine")
"""


def test_all_works_where_there_are_no_forks_and_no_signal_handlers(tmp_path: Path) -> None:
    assert "fine" in _run(WITHOUT_UNIX, f"sqlite:///{tmp_path}/test.db")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "test.db"


@pytest.mark.parametrize("how", ["deleted", "renamed", "replaced"])
async def test_a_file_that_is_gone_from_its_place_is_noticed_before_anything_is_acknowledged(
    path: Path, how: str
) -> None:
    async with open_store(f"sqlite:///{path}") as store:
        key, _ = await a_session(store, "s", "a")
        await store.stamp(key)
        if how == "deleted":
            path.unlink()
        elif how == "renamed":
            path.rename(path.with_suffix(".old"))
        else:
            other = path.with_suffix(".new")
            other.write_bytes(path.read_bytes())
            other.rename(path)
        verbs: list[Callable[[], Awaitable[object]]] = [
            lambda: store.commit(a_commit(key, events=(NewEvent(type="e"),))),
            lambda: store.load(key),
            lambda: store.head(key),
            lambda: store.lanes.renew([]),
        ]
        for verb in verbs:
            with pytest.raises(StoreUnusable, match="under the open store") as refused:
                await verb()
            assert not refused.value.retryable
        if how == "renamed":
            path.with_suffix(".old").rename(path)
            assert await store.exists(key), "put back, it goes on"
            assert await store.commit(a_save(key, "b"))


async def test_another_working_directory_does_not_lead_to_another_file(
    path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    async with open_store("sqlite:///test.db") as store:
        (tmp_path / "below").mkdir()
        monkeypatch.chdir(tmp_path / "below")
        await a_session(store, "s", "a")
        assert await store.load("s")
    assert list((tmp_path / "below").iterdir()) == []
    assert path.exists()


@pytest.mark.parametrize("harness", ["sqlite"], indirect=True)
async def test_a_locked_database_is_not_told_as_another_runner(harness: OurHarness) -> None:
    import apsw

    from tenuto.errors import StoreContended
    from tenuto.store.keeper import Keeper

    @program
    async def waits(turn: Turn) -> None:
        await asyncio.sleep(30)

    store = await harness.open(lock_timeout=0.1)
    store.keeper = Keeper(store, ttl=0.6, every=0.1)
    async with SessionRuntime(store, [waits]) as runtime:
        await runtime.create("waits", session_id="s")
        sending = asyncio.create_task(runtime.send("s", "hello"))
        async with asyncio.timeout(8):
            while not live_turns(runtime):
                await asyncio.sleep(0.01)
            other = apsw.Connection(store.backend.path)  # type: ignore[attr-defined]
            try:
                other.set_busy_timeout(5000)
                other.execute("BEGIN IMMEDIATE")
                with pytest.raises(StoreContended, match="busy") as stopped:
                    await sending
            finally:
                other.close()
        assert "Another runner" not in str(stopped.value)
