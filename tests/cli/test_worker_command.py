"""`tenuto worker` as a real process, and `tenuto session`, on real files and a real server."""

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tenuto import SessionRuntime, open_store, program
from tenuto.cli.app import app
from tenuto.model.run import Run, RunStatus
from tenuto.runtime.program.turn import Turn
from tenuto.runtime.session.outcome import FINAL, OutcomeStatus
from tenuto.runtime.session.session_view import Session
from tests.servers import SCHEMA

PATIENCE = 120.0
"""How long a test waits for another process before it gives up."""

MODULE = """
import asyncio
from pathlib import Path
from typing import Annotated, Any
from tenuto import program
from tenuto.graph import END, GraphBuilder, State
from tenuto.graph import append

async def answered(turn):
    word = turn.input["content"]
    if word == "hold":
        with Path("begun").open("a") as file:
            file.write(f"{turn.attempt}\\n")
        while not Path("release").exists():
            await asyncio.sleep(0.005)
    if word == "fail":
        raise ValueError("as asked")
    return f"{turn.session_id}: {word}"

desk = program(name="desk")(answered)
other = program(name="other")(answered)

class Talk(State):
    messages: Annotated[list[dict[str, Any]], append] = []

async def reply(state):
    return {"messages": [{"role": "assistant", "content": f"graph: {state.messages[-1]['content']}"}]}

graph = GraphBuilder(Talk, "talk").add_node("reply", reply).add_edge("reply", END).set_entry("reply").compile()

def made(store):
    return desk if store is not None else None

async def made_later(store):
    return desk

async def bare(turn):
    return turn.input

def broken(store):
    raise RuntimeError("no luck")

nothing = 3
"""


@program(name="desk")
async def desk(turn: Turn) -> None:
    raise AssertionError("the worker runs it, not the test")


@program(name="other")
async def other(turn: Turn) -> None:
    raise AssertionError("the worker runs it, not the test")


@program(name="talk")
async def talk(turn: Turn) -> None:
    raise AssertionError("the worker runs it, not the test")


@dataclass(frozen=True)
class Place:
    """A database the worker and the test both open."""

    url: str
    options: dict[str, Any] = field(default_factory=dict)

    def open(self) -> Any:
        return open_store(self.url, **self.options)

    @property
    def arguments(self) -> list[str]:
        return ["--store", self.url, *(part for name, value in self.options.items() for part in (f"--{name}", value))]


class Process:
    """A worker of its own."""

    def __init__(self, place: Place, *arguments: str, programs: tuple[str, ...] = ("shop_desk:desk",)) -> None:
        named = [part for each in programs for part in ("--program", each)]
        command = [
            sys.executable,
            "-W",
            "error",
            "-m",
            "tenuto.cli.app",
            "worker",
            *place.arguments,
            *named,
            *arguments,
        ]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._out, self._err = self._process.stdout, self._process.stderr

    async def line(self) -> str:
        line = await asyncio.to_thread(self._out.readline)
        assert line, self._err.read()
        return line

    async def hear(self, event: str) -> dict[str, Any]:
        """Return the next line of this kind."""
        while True:
            told: dict[str, Any] = json.loads(await self.line())
            if told["event"] == event:
                return told

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    async def ended(self) -> int:
        return await asyncio.to_thread(self._process.wait, PATIENCE)

    def abandon(self) -> None:
        self._process.kill()
        self._process.wait()
        self._out.close()
        self._err.close()


Start = Callable[..., Process]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "shop_desk.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "sqlite":
        return Place(f"sqlite:///{tmp_path}/desk.db")
    return Place(request.getfixturevalue("fresh_postgres")(), {"schema": SCHEMA})


@pytest.fixture
def file(tmp_path: Path) -> Place:
    return Place(f"sqlite:///{tmp_path}/desk.db")


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[Process] = []

    def begin(place: Place, *arguments: str, **options: Any) -> Process:
        started.append(Process(place, *arguments, **options))
        return started[-1]

    yield begin
    for each in started:
        each.abandon()


async def until_over(runtime: SessionRuntime, *inputs: str) -> list[Any]:
    async with asyncio.timeout(PATIENCE):
        while True:
            outcomes = [await runtime.outcome(each) for each in inputs]
            if all(each.status in FINAL for each in outcomes):
                return outcomes
            await asyncio.sleep(0.01)


async def until_there(path: Path, lines: int = 1) -> None:
    async with asyncio.timeout(PATIENCE):
        while not path.exists() or len(path.read_text().splitlines()) < lines:
            await asyncio.sleep(0.005)


async def only_run(runtime: SessionRuntime, session_id: str) -> Run:
    (info,) = await runtime.runs(session_id)
    return info.run


async def test_a_worker_drains_every_session_and_ends_with_zero_on_sigterm(place: Place, start: Start) -> None:
    async with place.open() as store:
        runtime = SessionRuntime(store, [desk])
        inputs = []
        for name in ("a", "b", "c"):
            await runtime.create("desk", session_id=name)
            inputs += [await runtime.enqueue(name, word) for word in ("one", "fail", "two")]
        worker = start(place, "--json", "--every", "0.05")
        assert (await worker.hear("started"))["programs"] == ["desk@1"]
        outcomes = await until_over(runtime, *inputs)
        assert [each.output for each in outcomes] == [
            out for name in "abc" for out in (f"{name}: one", None, f"{name}: two")
        ]
        worker.signal(signal.SIGTERM)
        told = await worker.hear("ended")
        assert told == {"event": "ended", "sessions": 3, "completed": 6, "failed": 3, "interrupted": 0, "suspended": 0}
        assert await worker.ended() == 0


@dataclass(frozen=True)
class Mark:
    """An action that no worker of the command line knows."""

    async def apply(self, session: Session) -> Session:
        return session.with_fields(marked=True)


async def test_a_worker_that_lacks_the_program_refuses_nothing_and_another_process_does_it(
    place: Place, start: Start
) -> None:
    @program(name="desk")
    async def here(turn: Turn) -> str:
        return f"{turn.session_id}: {turn.input['content']}"

    async with place.open() as store:
        runtime = SessionRuntime(store, [here, other], actions=[Mark])
        inputs = []
        for name in ("a", "b"):
            await runtime.create("desk", session_id=name)
            inputs += [await runtime.enqueue(name, word) for word in ("one", "two")]
        await runtime.create("other", session_id="mine")
        marked = await runtime.enqueue("mine", Mark())
        lacking = start(place, "--json", "--every", "0.05", programs=("shop_desk:other",))
        # It works on its own sessions, past the action it does not know, and leaves the others alone.
        (done,) = await until_over(runtime, await runtime.enqueue("mine", "here"))
        assert done.output == "mine: here"
        assert {(await runtime.outcome(each)).status for each in (*inputs, marked)} == {OutcomeStatus.QUEUED}
        await runtime.drain()
        outcomes = await until_over(runtime, *inputs, marked)
        assert [each.output for each in outcomes] == ["a: one", "a: two", "b: one", "b: two", None]
        assert outcomes[-1].status is OutcomeStatus.EXECUTED
        lacking.signal(signal.SIGTERM)
        assert (await lacking.hear("ended"))["completed"] == 1


async def test_people_are_told_what_was_done(file: Place, start: Start) -> None:
    async with file.open() as store:
        runtime = SessionRuntime(store, [desk])
        await runtime.create("desk", session_id="a")
        worker = start(file, "--every", "0.05", programs=("shop_desk:desk", "shop_desk:other"))
        assert (await worker.line()).split(" for ")[1] == "desk@1, other@1\n"
        await until_over(runtime, await runtime.enqueue("a", "one"))
        assert (await worker.line()).split(" ", 1)[1] == "1 session advanced; turns: 1 completed\n"
        worker.signal(signal.SIGINT)
        last = [await worker.line()]
        while "total" not in last[-1]:
            last.append(await worker.line())
        assert last[-1].split(" ", 1)[1] == "total: 1 session advanced; turns: 1 completed\n"
        assert await worker.ended() == 0


@pytest.mark.parametrize("place_in_module", ["made", "made_later"])
async def test_a_function_of_the_store_makes_the_program(file: Place, start: Start, place_in_module: str) -> None:
    async with file.open() as store:
        runtime = SessionRuntime(store, [desk])
        await runtime.create("desk", session_id="a")
        start(file, programs=(f"shop_desk:{place_in_module}",))
        (outcome,) = await until_over(runtime, await runtime.enqueue("a", "one"))
        assert outcome.output == "a: one"


async def test_a_compiled_graph_is_a_program(file: Place, start: Start) -> None:
    async with file.open() as store:
        runtime = SessionRuntime(store, [talk])
        await runtime.create("talk", session_id="a")
        start(file, programs=("shop_desk:graph",))
        (outcome,) = await until_over(runtime, await runtime.enqueue("a", "one"))
        assert outcome.output == "graph: one"


async def test_the_turn_under_way_ends_and_what_is_queued_behind_it_is_left(
    place: Place, start: Start, folder: Path
) -> None:
    async with place.open() as store:
        runtime = SessionRuntime(store, [desk])
        await runtime.create("desk", session_id="a")
        held, queued = [await runtime.enqueue("a", word) for word in ("hold", "next")]
        worker = start(place, "--json")
        await until_there(folder / "begun")
        worker.signal(signal.SIGTERM)
        await worker.hear("ending")
        (folder / "release").touch()
        assert (await worker.hear("ended"))["completed"] == 1
        assert await worker.ended() == 0
        assert (await runtime.outcome(held)).output == "a: hold"
        assert (await runtime.outcome(queued)).status is OutcomeStatus.QUEUED


@pytest.mark.parametrize(
    ("how", "code"), [("a second signal", -signal.SIGTERM), ("no grace", 1), ("killed", -signal.SIGKILL)]
)
async def test_a_worker_that_ends_in_a_turn_leaves_it_to_another_one(
    place: Place, start: Start, folder: Path, how: str, code: int
) -> None:
    async with place.open() as store:
        runtime = SessionRuntime(store, [desk])
        await runtime.create("desk", session_id="a")
        held = await runtime.enqueue("a", "hold")
        first = start(place, "--json", *(["--grace", "0"] if how == "no grace" else []))
        await until_there(folder / "begun")
        if how == "killed":
            first.signal(signal.SIGKILL)
        else:
            first.signal(signal.SIGTERM)
            await first.hear("ending")
        if how == "a second signal":
            first.signal(signal.SIGTERM)
        assert await first.ended() == code
        left = await only_run(runtime, "a")
        assert (left.status, left.attempt) == (RunStatus.RUNNING, 1)
        second = start(place, "--json", "--every", "0.05")
        await until_there(folder / "begun", lines=2)
        (folder / "release").touch()
        (outcome,) = await until_over(runtime, held)
        assert (outcome.run_id, outcome.output) == (left.run_id, "a: hold")
        assert (folder / "begun").read_text() == "1\n2\n"
        assert [each["content"] for each in (await runtime.get("a")).messages] == ["hold"]
        second.signal(signal.SIGTERM)
        assert (await second.hear("ended"))["completed"] == 1
        assert await second.ended() == 0


def tenuto(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, list(arguments))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, " ".join(result.stderr.replace("│", " ").split())


@pytest.mark.parametrize(
    ("name", "url", "said"),
    [
        ("shop_desk:desk", "sqlite:///nowhere.db", "no file"),
        ("shop_desk:desk", "mysql://host", "not a store address"),
        ("shop_desk", None, "module:name"),
        ("shop_none:desk", None, "cannot be imported"),
        ("shop_desk:missing", None, "not a program"),
        ("shop_desk:nothing", None, "not a program"),
        ("shop_desk:bare", None, "did not return a program"),
        ("shop_desk:broken", None, "no luck"),
    ],
)
def test_a_worker_that_cannot_begin_ends_with_two_and_a_reason(
    file: Place, tmp_path: Path, name: str, url: str | None, said: str
) -> None:
    asyncio.run(make_file(file))
    code, out, err = tenuto("worker", "--store", url or file.url, "--program", name)
    assert (code, out) == (2, "")
    assert said in err
    assert not (tmp_path / "nowhere.db").exists()


def test_one_program_given_twice_is_refused(file: Place) -> None:
    asyncio.run(make_file(file))
    code, _, err = tenuto("worker", *file.arguments, "--program", "shop_desk:desk", "--program", "shop_desk:made_later")
    assert code == 2
    assert "registered twice" in err


async def make_file(file: Place) -> None:
    async with file.open():
        pass


@program
async def clerk(turn: Turn) -> None:
    said: Any = await turn.wait("refund", kind="approval", metadata={"amount": 49})
    turn.append({"role": "assistant", "content": "Paid." if said["approved"] else "Not paid."}, once="reply")


async def suspended(place: Place) -> tuple[str, str]:
    """Leave two sessions, one of which waits; return the wait and its run."""
    async with place.open() as store:
        runtime = SessionRuntime(store, [clerk, desk])
        await runtime.create("desk", session_id="idle", title="Nothing yet")
        await runtime.create("clerk", session_id="refund-7", metadata={"shop": "north"})
        outcome = await runtime.send("refund-7", "refund order 7")
        (wait,) = outcome.waits
        assert outcome.run_id is not None
        return wait.wait_id, outcome.run_id


async def drained(place: Place) -> list[Any]:
    async with place.open() as store:
        runtime = SessionRuntime(store, [clerk])
        await runtime.drain()
        return [each["content"] for each in (await runtime.get("refund-7")).messages]


@pytest.fixture
def listed(place: Place) -> tuple[Place, str, str]:
    return place, *asyncio.run(suspended(place))


def test_sessions_are_listed_and_shown(listed: tuple[Place, str, str]) -> None:
    place, _, run_id = listed
    code, out, _ = tenuto("session", "list", *place.arguments, "--json")
    told = json.loads(out)
    assert (code, told["next"]) == (0, None)
    assert [(each["session_id"], each["program"], each["status"]) for each in told["sessions"]] == [
        ("refund-7", "clerk", "active"),
        ("idle", "desk", "active"),
    ]
    assert tenuto("session", "list", *place.arguments)[1].splitlines()[2].split() == [
        *("idle", "desk", "active", "1", "0", "Nothing", "yet")
    ]
    code, out, _ = tenuto("session", "show", "refund-7", *place.arguments, "--json")
    told = json.loads(out)
    assert (code, told["program"], told["metadata"]) == (0, "clerk@1", {"shop": "north"})
    assert told["logs"] == {"messages": [{"role": "user", "content": "refund order 7"}]}
    assert [(run["run_id"], run["status"], run["waits_for"]) for run in told["runs"]] == [
        (run_id, "suspended", ["approval"])
    ]
    shown = tenuto("session", "show", "refund-7", *place.arguments)[1]
    assert "  user: refund order 7\n" in shown
    assert run_id in shown


def test_a_wait_is_found_and_answered_and_a_worker_goes_on(listed: tuple[Place, str, str]) -> None:
    place, wait_id, run_id = listed
    code, out, _ = tenuto("session", "waits", "refund-7", *place.arguments, "--json")
    assert code == 0
    (told,) = json.loads(out)["waits"]
    assert (told["wait_id"], told["run_id"], told["deadline"]) == (wait_id, run_id, None)
    assert (told["kind"], told["signal_id"], told["metadata"]["amount"]) == ("approval", "refund", 49)
    assert wait_id in tenuto("session", "waits", "refund-7", *place.arguments)[1]
    code, out, _ = tenuto("session", "answer", wait_id, "true", *place.arguments, "--json")
    assert (code, json.loads(out)) == (
        0,
        {"session_id": "refund-7", "run_id": run_id, "continues": True, "open_waits": []},
    )
    code, out, err = tenuto("session", "answer", wait_id, "false", *place.arguments, "--json")
    assert (code, json.loads(out)["error"]["category"]) == (1, "already_answered")
    assert "the first answer is kept" in err
    assert asyncio.run(drained(place)) == ["refund order 7", "Paid."]


def test_a_stop_says_how_the_run_was_found(listed: tuple[Place, str, str]) -> None:
    place, _, _ = listed
    code, out, _ = tenuto("session", "stop", "refund-7", *place.arguments, "--kind", "abort", "--json")
    assert (code, json.loads(out)["run_status"]) == (0, "suspended")
    code, out, _ = tenuto("session", "stop", "idle", *place.arguments, "--json")
    assert (code, json.loads(out)["error"]["category"]) == (1, "store_commit_failed")


@pytest.mark.parametrize("verb", ["show", "waits", "stop"])
def test_a_session_that_is_not_there_ends_with_one(file: Place, verb: str) -> None:
    asyncio.run(make_file(file))
    code, out, err = tenuto("session", verb, "nobody", *file.arguments, "--json")
    assert (code, json.loads(out)["error"]["category"]) == (1, "session_not_found")
    assert "'nobody'" in err


@pytest.mark.parametrize(
    "arguments",
    [
        ("list", "--store", "sqlite:///nowhere.db"),
        ("list", "--store", "mysql://host"),
        ("show", "a/b", "--store", "sqlite:///desk.db"),
        ("answer", "w", "{", "--store", "sqlite:///desk.db"),
    ],
)
def test_what_cannot_be_asked_at_all_ends_with_two(file: Place, arguments: tuple[str, ...]) -> None:
    asyncio.run(make_file(file))
    code, _, err = tenuto("session", *arguments)
    assert code == 2
    assert err
    assert "Traceback" not in err
