"""The blocking face: the same verbs for code without an event loop."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tenuto import Outcome, SessionRuntime, Turn, program
from tenuto.blocking import BlockingRuntime, BlockingSession
from tenuto.errors import NotOpen, SessionNotFound, WrongLoop
from tools import blocking_face

ROOT = Path(__file__).parent.parent.parent


@program
async def counts(turn: Turn) -> int:
    for word in turn.text.split():
        turn.emit(word)
    turn.append(turn.text)
    turn.state["turns"] = turn.state.get("turns", 0) + 1
    return int(turn.state["turns"])


@pytest.fixture
def runtime(tmp_path: Path) -> SessionRuntime:
    return SessionRuntime(f"sqlite:///{tmp_path}/a.db", counts)


def test_the_file_is_what_the_async_classes_make_it() -> None:
    assert blocking_face.TARGET.read_text() == blocking_face.face(), "run `python -m tools.blocking_face`"


def test_every_verb_has_its_twin() -> None:
    for name, (module, twin) in blocking_face.TWINS.items():
        known = __import__(f"tenuto.runtime.{module}", fromlist=[name]).__dict__[name]
        blocking = __import__("tenuto.runtime.blocking_face", fromlist=[twin]).__dict__[twin]
        verbs = {verb for verb in dir(known) if not verb.startswith("_")} - blocking_face.LEFT_OUT
        assert verbs == {verb for verb in dir(blocking) if not verb.startswith("_")}


def test_a_session_without_an_event_loop(runtime: SessionRuntime) -> None:
    with runtime.blocking() as rt:
        session = rt.create(counts, session_id="s", exists_ok=True)
        assert isinstance(session, BlockingSession)
        outcome: Outcome[int] = session.send("hello there", key="k")
        assert outcome.result() == 1
        assert session.send("hello there", key="k") == outcome
        assert rt.get("s").document == {"turns": 1}
        run = session.start("two words")
        assert list(run.text()) == ["two", "words"]
        assert run.result() == 2
        names = [item.name for item in session.events(live=False) if item.type == "event"]
        assert names.count("run_started") == 2
        assert [each.session_id for each in rt.list()] == ["s"]
        with pytest.raises(SessionNotFound):
            rt.for_tenant("other").get("s")
        fork = session.fork(message="again")
        assert fork.outcome is not None
        assert fork.outcome.output == 3
        assert fork.get().document == {"turns": 3}
    with pytest.raises(NotOpen, match=r"runtime\.blocking"):
        rt.get("s")


def test_an_iterator_that_is_left_early_is_closed(runtime: SessionRuntime) -> None:
    with runtime.blocking() as rt:
        session = rt.create(counts)
        session.send("hello")
        for item in session.events():
            if item.type == "caught_up":
                break
        assert session.send("again").completed


def test_many_threads_call_at_once(runtime: SessionRuntime) -> None:
    with runtime.blocking() as rt, ThreadPoolExecutor(8) as pool:
        session = rt.create(counts, session_id="s")
        found = list(pool.map(lambda n: session.send(f"message {n}", when_busy="queue").result(), range(24)))
    assert sorted(found) == list(range(1, 25))


async def test_inside_an_event_loop_it_is_refused(runtime: SessionRuntime) -> None:
    with pytest.raises(WrongLoop, match="async with"):
        runtime.blocking().__enter__()


async def test_it_opens_beside_an_open_runtime(runtime: SessionRuntime) -> None:
    def elsewhere() -> int:
        with runtime.blocking() as rt:
            return rt.session("s", counts).send("from a thread").result()

    async with runtime:
        await runtime.create(counts, session_id="s")
        assert await asyncio.to_thread(elsewhere) == 1
        assert (await runtime.send("s", "from the loop")).output == 2


def test_two_are_open_at_once(runtime: SessionRuntime) -> None:
    with runtime.blocking() as one, runtime.blocking() as two:
        one.create(counts, session_id="s")
        assert isinstance(two, BlockingRuntime)
        assert two.send("s", "hi").output == 1
    assert not [each for each in threading.enumerate() if each.name == "tenuto-portal"]


PROGRAM = """
import asyncio, atexit, os, signal, sys
from contextlib import ExitStack
from tenuto import SessionRuntime, Turn, program

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it otherwise

@program
async def slow(turn: Turn) -> str:
    print("began", flush=True)
    await asyncio.sleep(float(turn.text))
    turn.append("done")
    return "done"

runtime = SessionRuntime("sqlite:///a.db", slow)
"""


def script(tmp_path: Path, body: str) -> "subprocess.Popen[str]":
    (tmp_path / "program.py").write_text(PROGRAM + body)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    return subprocess.Popen(
        [sys.executable, "program.py"], cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_closing_it_at_exit_works(tmp_path: Path) -> None:
    done = script(
        tmp_path,
        """
stack = ExitStack()
sessions = stack.enter_context(runtime.blocking())
atexit.register(stack.close)
print(sessions.create(slow, session_id="s").send("0").result())
""",
    )
    out, err = done.communicate(timeout=30)
    assert (out.splitlines(), err, done.returncode) == (["began", "done"], "", 0)


def test_an_interrupt_leaves_the_turn_running_and_says_so(tmp_path: Path) -> None:
    running = script(
        tmp_path,
        """
with runtime.blocking() as rt:
    session = rt.create(slow, session_id="s")
    try:
        session.send("1", key="k")
    except KeyboardInterrupt as interrupt:
        print(*interrupt.__notes__, flush=True)
    print(session.send("1", key="k").result(), len(session.get().messages))
""",
    )
    assert running.stdout is not None
    assert running.stdout.readline() == "began\n"
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=30)
    assert running.returncode == 0, err
    said, outcome = out.splitlines()
    assert "continues in the background" in said
    assert outcome == "done 2"
