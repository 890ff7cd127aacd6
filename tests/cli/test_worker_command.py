"""`tenuto worker` as a real process, on real files and a real server."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tenuto import SessionRuntime, SessionView, Turn, program
from tenuto.model.run import Run, RunStatus
from tenuto.runtime.session.outcome import FINAL
from tests.cli.commands import Place, make, refused, tenuto

pytestmark = pytest.mark.long("each worker is a process of its own")

PATIENCE = 60.0
"""How long a test waits for another process before it gives up."""

MODULE = """
import asyncio
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any
from tenuto import SessionRuntime, on, open_store, program
from tenuto.graph import END, GraphBuilder, State, append
from tenuto.store.open import memory_store

async def answered(turn):
    word = turn.text
    if word == "hold":
        with Path("begun").open("a") as file:
            file.write(f"{turn.attempt}\\n")
        while not Path("release").exists():
            await asyncio.sleep(0.005)
    if word == "fail":
        raise ValueError("as asked")
    if word == "import":
        import shop_words
        word = shop_words.GREETING
    return f"{turn.session_id}: {word}"

desk = program(name="desk")(answered)
other = program(name="other")(answered)

class Talk(State):
    messages: Annotated[list[dict[str, Any]], append] = []

async def reply(state):
    return {"messages": [{"role": "assistant", "content": f"graph: {state.messages[-1]['content']}"}]}

graph = GraphBuilder(Talk, "talk").add_node("reply", reply).add_edge("reply", END).set_entry("reply").compile()

@on("before_save")
async def saved_by(session):
    return session.with_fields(saved_by=os.getpid())

@on("after_action")
async def acted(session):
    return session.with_fields(acted=session.document.get("acted", 0) + 1)

def wrote_down(notice):
    with Path("notices").open("a") as file:
        file.write(f"{os.getpid()} {notice.session_id} {notice.type}\\n")

@dataclass(frozen=True)
class Mark:
    note: str

    async def apply(self, session):
        return session.with_fields(note=self.note, marked_by=os.getpid())

store = open_store(URL, **OPTIONS)
desks = SessionRuntime(store, [desk])
others = SessionRuntime(store, other)
both = SessionRuntime(store, [desk, other])
talks = SessionRuntime(store, graph.as_program(output=lambda state: state.messages[-1]["content"]))
whole = SessionRuntime(store, desk, hooks=[saved_by, acted], listeners=[wrote_down], actions=[Mark])
empty = SessionRuntime(store)

elsewhere = SessionRuntime("sqlite:///elsewhere.db", desk)
in_memory = SessionRuntime(None, desk)
in_named_memory = SessionRuntime("memory://desk", desk)
given_open = SessionRuntime(memory_store(), desk)
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


class Process:
    """A worker of its own, which finds modules in the current folder only because the command looks there (`-P`)."""

    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, "-P", "-W", "error", "-m", "tenuto", "worker", *arguments]
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
        print(self._err.read(), file=sys.stderr)  # shown if the test failed
        self._out.close()
        self._err.close()


Start = Callable[..., Process]


@pytest.fixture(autouse=True)
def declared(folder: Path, request: pytest.FixtureRequest) -> None:
    """Write the module, whose store is that of the test."""
    name = "place" if "place" in request.fixturenames else "file"
    place: Place = request.getfixturevalue(name)
    (folder / "shop_desk.py").write_text(f"URL, OPTIONS = {place.url!r}, {place.options!r}\n{MODULE}")
    (folder / "shop_words.py").write_text("GREETING = 'imported'\n")


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[Process] = []

    def begin(*arguments: str, runtime: str = "desks") -> Process:
        started.append(Process(f"shop_desk:{runtime}", *arguments))
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
    (info,) = await runtime.session(session_id).runs()
    return info.run


async def test_a_worker_drains_every_session_and_ends_with_zero_on_sigterm(place: Place, start: Start) -> None:
    async with SessionRuntime(place.open(), [desk]) as runtime:
        inputs = []
        for name in ("a", "b", "c"):
            session = await runtime.create("desk", session_id=name)
            inputs += [await session.enqueue(word) for word in ("one", "fail", "two")]
        worker = start("--json", "--every", "0.05")
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
    """An action that only the runtime `whole` can execute; the test only queues it."""

    note: str

    async def apply(self, session: SessionView) -> SessionView:
        raise AssertionError("the worker executes it, not the test")


async def test_hooks_listeners_and_actions_of_the_declaration_run_in_the_worker(
    place: Place, start: Start, folder: Path
) -> None:
    async with SessionRuntime(place.open(), desk, actions=[Mark]) as runtime:
        session = await runtime.create("desk", session_id="a")
        worker = start("--json", runtime="whole")
        pid = (await worker.hear("started"))["pid"]
        assert pid != os.getpid()
        answered, marked = await until_over(
            runtime, await session.enqueue("one"), await session.enqueue(Mark("urgent"))
        )
        assert (answered.output, marked.status) == ("a: one", "executed")
        stored = dict((await session.get()).document)
        assert stored == {"note": "urgent", "marked_by": pid, "saved_by": pid, "acted": 2}
        worker.signal(signal.SIGTERM)
        assert (await worker.hear("ended"))["completed"] == 1
        assert await worker.ended() == 0
    notices = [line.split() for line in (folder / "notices").read_text().splitlines()]
    assert {(each[0], each[1]) for each in notices} == {(str(pid), "a")}
    told = [each[2] for each in notices]
    assert (told.count("run_ended"), told.count("session_action_executed")) == (1, 2)


@dataclass(frozen=True)
class Stamp:
    """An action that no worker of the command line knows."""

    async def apply(self, session: SessionView) -> SessionView:
        return session.with_fields(stamped=True)


async def test_a_worker_that_lacks_the_program_refuses_nothing_and_another_process_does_it(
    place: Place, start: Start
) -> None:
    @program(name="desk")
    async def here(turn: Turn) -> str:
        return f"{turn.session_id}: {turn.text}"

    async with SessionRuntime(place.open(), [here, other], actions=[Stamp]) as runtime:
        inputs = []
        for name in ("a", "b"):
            session = await runtime.create("desk", session_id=name)
            inputs += [await session.enqueue(word) for word in ("one", "two")]
        mine = await runtime.create("other", session_id="mine")
        stamped = await mine.enqueue(Stamp())
        lacking = start("--json", "--every", "0.05", runtime="others")
        # It works on its own sessions, past the action it does not know, and leaves the others alone.
        (done,) = await until_over(runtime, await mine.enqueue("here"))
        assert done.output == "mine: here"
        assert {(await runtime.outcome(each)).status for each in (*inputs, stamped)} == {"queued"}
        await runtime.drain()
        outcomes = await until_over(runtime, *inputs, stamped)
        assert [each.output for each in outcomes] == ["a: one", "a: two", "b: one", "b: two", None]
        assert outcomes[-1].status == "executed"
        lacking.signal(signal.SIGTERM)
        assert (await lacking.hear("ended"))["completed"] == 1


async def test_people_are_told_what_was_done(file: Place, start: Start) -> None:
    async with SessionRuntime(file.open(), [desk]) as runtime:
        session = await runtime.create("desk", session_id="a")
        worker = start("--every", "0.05", runtime="both")
        assert (await worker.line()).split(" for ")[1] == "desk@1, other@1\n"
        await until_over(runtime, await session.enqueue("one"))
        assert (await worker.line()).split(" ", 1)[1] == "1 session advanced; turns: 1 completed\n"
        worker.signal(signal.SIGINT)
        last = [await worker.line()]
        while "total" not in last[-1]:
            last.append(await worker.line())
        assert last[-1].split(" ", 1)[1] == "total: 1 session advanced; turns: 1 completed\n"
        assert await worker.ended() == 0


@pytest.mark.parametrize("runtime_in_module", ["elsewhere", "in_memory", "given_open"])
async def test_another_store_than_the_declared_one_is_opened_if_it_is_named(
    place: Place, start: Start, folder: Path, runtime_in_module: str
) -> None:
    async with SessionRuntime(place.open(), [desk]) as runtime:
        session = await runtime.create("desk", session_id="a")
        worker = start(*place.arguments, "--json", runtime=runtime_in_module)
        (outcome,) = await until_over(runtime, await session.enqueue("one"))
        assert outcome.output == "a: one"
        worker.signal(signal.SIGTERM)
        assert await worker.ended() == 0
    assert not (folder / "elsewhere.db").exists()


async def test_a_declared_file_is_made_if_it_is_not_there(start: Start, folder: Path) -> None:
    worker = start("--json", runtime="elsewhere")
    await worker.hear("started")
    async with SessionRuntime("sqlite:///elsewhere.db", desk) as runtime:
        session = await runtime.create(desk, session_id="a")
        (outcome,) = await until_over(runtime, await session.enqueue("one"))
    assert outcome.output == "a: one"


async def test_a_compiled_graph_is_a_program(place: Place, start: Start) -> None:
    async with SessionRuntime(place.open(), [talk]) as runtime:
        session = await runtime.create("talk", session_id="a")
        start(runtime="talks")
        (outcome,) = await until_over(runtime, await session.enqueue("one"))
        assert (outcome.output, outcome.text) == ("graph: one", "graph: one")


async def test_a_program_imports_what_lies_beside_it_while_it_runs(file: Place, start: Start) -> None:
    async with SessionRuntime(file.open(), [desk]) as runtime:
        session = await runtime.create("desk", session_id="a")
        start()
        (outcome,) = await until_over(runtime, await session.enqueue("import"))
        assert outcome.output == "a: imported"


async def test_a_runtime_without_programs_works_on_what_needs_none(file: Place, start: Start) -> None:
    async with SessionRuntime(file.open(), [desk]) as runtime:
        session = await runtime.create("desk", session_id="a")
        worker = start("--every", "0.05", runtime="empty")
        assert (await worker.line()).endswith(" for no programs\n")
        queued = await session.enqueue("one")
        worker.signal(signal.SIGTERM)
        assert await worker.ended() == 0
        assert (await runtime.outcome(queued)).status == "queued"


async def test_the_turn_under_way_ends_and_what_is_queued_behind_it_is_left(
    place: Place, start: Start, folder: Path
) -> None:
    async with SessionRuntime(place.open(), [desk]) as runtime:
        session = await runtime.create("desk", session_id="a")
        held, queued = [await session.enqueue(word) for word in ("hold", "next")]
        worker = start("--json")
        await until_there(folder / "begun")
        worker.signal(signal.SIGTERM)
        await worker.hear("ending")
        (folder / "release").touch()
        assert (await worker.hear("ended"))["completed"] == 1
        assert await worker.ended() == 0
        assert (await runtime.outcome(held)).output == "a: hold"
        assert (await runtime.outcome(queued)).status == "queued"


@pytest.mark.parametrize(
    ("how", "code"), [("a second signal", -signal.SIGTERM), ("no grace", 1), ("killed", -signal.SIGKILL)]
)
async def test_a_worker_that_ends_in_a_turn_leaves_it_to_another_one(
    place: Place, start: Start, folder: Path, how: str, code: int
) -> None:
    async with SessionRuntime(place.open(), [desk]) as runtime:
        session = await runtime.create("desk", session_id="a")
        held = await session.enqueue("hold")
        first = start("--json", *(["--grace", "0"] if how == "no grace" else []))
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
        second = start("--json", "--every", "0.05")
        await until_there(folder / "begun", lines=2)
        (folder / "release").touch()
        (outcome,) = await until_over(runtime, held)
        assert (outcome.run_id, outcome.output) == (left.run_id, "a: hold")
        assert (folder / "begun").read_text() == "1\n2\n"
        messages: Any = (await session.get()).messages
        assert [each["content"] for each in messages] == ["hold"]
        second.signal(signal.SIGTERM)
        assert (await second.hear("ended"))["completed"] == 1
        assert await second.ended() == 0


@pytest.mark.parametrize(
    ("place_in_module", "arguments", "said"),
    [
        ("shop_desk:desks", ("--store", "sqlite:///nowhere.db"), "There is no file 'nowhere.db'."),
        ("shop_desk:desks", ("--store", "mysql://host"), "'mysql://host' is not a store address"),
        ("shop_desk:desks", ("--store", "memory://desk"), "in the memory of one process"),
        ("shop_desk:desks", ("--schema", "desk"), "schema"),
        ("shop_desk", (), "'shop_desk' does not have the form module:name."),
        ("shop_none:desks", (), "'shop_none' cannot be imported: ModuleNotFoundError"),
        ("shop_broken:desks", (), "RuntimeError('no luck')"),
        ("shop_twice:desks", (), "desk@1 is registered twice"),
        ("shop_desk:missing", (), "'shop_desk' has no 'missing'."),
        ("shop_desk:nothing", (), "'shop_desk:nothing' is not a SessionRuntime but 3; declare one"),
        ("shop_desk:desk", (), "'shop_desk:desk' is not a SessionRuntime"),
        ("shop_desk:graph", (), "'shop_desk:graph' is not a SessionRuntime"),
        ("shop_desk:in_memory", (), "The runtime keeps its sessions in memory, which no other process can use"),
        ("shop_desk:in_named_memory", (), "The runtime keeps its sessions in memory"),
        ("shop_desk:given_open", (), "The runtime was given an open store, which no other process can use; declare"),
    ],
)
def test_a_worker_that_cannot_begin_ends_with_two_and_a_reason(
    file: Place, folder: Path, place_in_module: str, arguments: tuple[str, ...], said: str
) -> None:
    (folder / "shop_broken.py").write_text("raise RuntimeError('no luck')\n")
    twice = (
        "from shop_desk import desk\nfrom tenuto import SessionRuntime\ndesks = SessionRuntime(None, [desk, desk])\n"
    )
    (folder / "shop_twice.py").write_text(twice)
    asyncio.run(make(file))
    code, out, err = tenuto("worker", place_in_module, *arguments)
    assert (code, out) == (2, "")
    assert said in err
    code, _, message = refused("worker", place_in_module, *arguments)
    assert code == 2
    assert said in message
    assert not (folder / "nowhere.db").exists()


def test_a_module_is_named() -> None:
    assert "Missing argument 'MODULE:RUNTIME'" in tenuto("worker")[2]
