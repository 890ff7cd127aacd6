"""`tenuto state check` and `tenuto state migrate`, on real files and a real server."""

import asyncio
import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar

import apsw
import pytest
from typer.testing import CliRunner

from tenuto import Store, open_store
from tenuto.cli.app import app
from tenuto.errors import InvalidInput, StoreUnavailable, TenutoError
from tenuto.graph import END, CompiledGraph, GraphBuilder, SessionState, SignalDescriptor, State, append, suspend
from tenuto.ids import new_id
from tenuto.model.lane import Owner
from tenuto.model.session import ANY_TENANT, Profile, SessionKey
from tenuto.states.finder import OneGraph
from tenuto.states.stored_states import StoredStates
from tenuto.states.tally import Tally
from tests.runtime.runtimes import opened
from tests.servers import SCHEMA

pytestmark = pytest.mark.long("it starts processes")

MODULE = """
import os, signal
from typing import Annotated, Any, ClassVar
from tenuto import Store
from tenuto.graph import END, GraphBuilder, SessionState, State
from tenuto.graph import append
from tenuto.store.open import memory_store

class Chat(State):
    schema_version: ClassVar[str] = "3"
    messages: Annotated[list[dict[str, str]], append] = []
    full_name: str
    age: int = 0
    scratch: str = ""

class Memory(SessionState):
    schema_version: ClassVar[str] = "3"
    messages: list[dict[str, str]]
    full_name: str
    age: int

calls = 0

def rename(old):
    global calls
    calls += 1
    if str(calls) == os.environ.get("DIE_AT"):
        os.kill(os.getpid(), signal.SIGKILL)
    old["full_name"] = old.pop("name")
    return old

def wrap(old):
    return old | {"messages": [{"text": message} for message in old["messages"]]}

async def reply(state):
    return {"messages": [{"text": f"hello {state.full_name}"}]}

def builder():
    chat = GraphBuilder(Chat, "chat").add_node("reply", reply).add_edge("reply", END).set_entry("reply")
    return chat.with_session_migration("1", "2", rename).with_session_migration("2", "3", wrap)

def graph(store):
    return builder().with_session_store(store, Memory).compile()

async def later(store):
    return graph(store)

built = graph(memory_store())
sessionless = builder().compile()

class Files:
    async def load(self, session_id): ...
    async def save(self, session_id, record): ...
    async def delete(self, session_id): ...
    async def list(self, filter=None): ...

foreign = graph(Files())

def wrong(store):
    return 3
"""


@dataclass(frozen=True)
class Place:
    """A database the command line and the test both open."""

    url: str
    options: dict[str, Any] = field(default_factory=dict)

    def open(self) -> Any:
        return open_store(self.url, **self.options)

    @property
    def arguments(self) -> list[str]:
        return ["--store", self.url, *(part for name, value in self.options.items() for part in (f"--{name}", value))]


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def told(self) -> Any:
        return json.loads(self.out)


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "sqlite":
        return Place(f"sqlite:///{tmp_path}/chats.db")
    return Place(request.getfixturevalue("fresh_postgres")(), {"schema": SCHEMA})


@pytest.fixture
def file(tmp_path: Path) -> Place:
    return Place(f"sqlite:///{tmp_path}/chats.db")


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"chats_{new_id().replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    return name


async def tenuto(verb: str, where: str, *arguments: str) -> Ran:
    result = await asyncio.to_thread(CliRunner().invoke, app, ["state", verb, where, *arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Ran(result.exit_code, result.stdout, result.stderr)


async def stored(store: Store, session_id: str, version: str = "1", tenant: str = "", **state: Any) -> SessionKey:
    key = SessionKey(session_id, tenant=tenant)
    first = {"1": {"name": session_id, "messages": ["hi"]}, "2": {"full_name": session_id, "messages": ["hi"]}}
    given = first.get(version, {"full_name": session_id, "messages": [{"text": "hi"}]}) | state
    await store.create(key, state=given, logs={"messages"}, schema_version=version, profile=Profile(agent="chat"))
    return key


def counts(part: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    return {each["version"]: (each["passed"], each["failed"]) for each in part["versions"]}


async def test_check_tells_per_version_what_fits_and_why_the_rest_does_not_and_writes_nothing(
    place: Place, module: str
) -> None:
    async with place.open() as store:
        await stored(store, "named")
        for number in range(6):
            messages = {"messages": [str(number)]}
            await store.create(
                f"nameless-{number}",
                state=messages,
                logs={"messages"},
                schema_version="1",
                profile=Profile(agent="chat"),
            )
        await stored(store, "two", "2")
        await stored(store, "three", "3")
        await stored(store, "old-age", "2", age="very")
        await stored(store, "older-age", "2", age="ancient")
        await stored(store, "lost", "0")
        before = await store.dump()
    ran = await tenuto("check", f"{module}:graph", *place.arguments, "--json")
    assert (ran.code, ran.err) == (1, "")
    told = ran.told
    assert (told["graph"], told["ok"], told["sessions"]["target"]) == ("chat", False, "3")
    assert counts(told["sessions"]) == {"0": (0, 1), "1": (1, 6), "2": (1, 2), "3": (1, 0)}
    zero, one, two, _ = told["sessions"]["versions"]
    assert [(reason["category"], reason["count"]) for reason in zero["reasons"]] == [
        ("session_state_migration_missing", 1)
    ]
    (nameless,) = one["reasons"]
    assert nameless["category"] == "session_state_migration_failed"
    assert "KeyError('name')" in nameless["reason"]
    assert [example["session_id"] for example in nameless["examples"]] == [f"nameless-{n}" for n in (5, 4, 3, 2, 1)]
    (aged,) = two["reasons"]
    assert (aged["count"], aged["category"]) == (2, "session_load_failed")
    assert aged["reason"].startswith("age: Input should be a valid integer")
    async with place.open() as store:
        assert await store.dump() == before


async def test_check_ends_with_zero_where_all_fit_and_leaves_the_file_byte_by_byte(
    file: Place, module: str, tmp_path: Path
) -> None:
    async with file.open() as store:
        await stored(store, "a")
        await stored(store, "b", "3")
    before = (tmp_path / "chats.db").read_bytes()
    ran = await tenuto("check", f"{module}:graph", *file.arguments)
    assert ran.code == 0
    assert ran.out.splitlines() == [
        "Sessions, to version '3':",
        "  version '1': 1 fit",
        "  version '3': 1 fit",
        "Suspended runs, to version '3': none",
        "Nothing failed.",
    ]
    assert (tmp_path / "chats.db").read_bytes() == before


async def test_check_names_the_stored_fields_that_the_graph_does_not_keep(file: Place, module: str) -> None:
    async with file.open() as store:
        await stored(store, "old", mail="a@b.c")
        await stored(store, "new", "3", mail="d@e.f", phone="1")
    ran = await tenuto("check", f"{module}:graph", *file.arguments, "--json")
    assert (ran.code, ran.told["unnamed_fields"]) == (0, {"mail": 2, "phone": 1})
    ran = await tenuto("check", f"{module}:graph", *file.arguments)
    assert "2 sessions have a field 'mail' that the code does not name." in ran.out.splitlines()
    assert "1 session has a field 'phone' that the code does not name." in ran.out.splitlines()


async def test_migrate_writes_what_a_load_would_see_and_a_second_run_has_nothing_to_do(
    place: Place, module: str
) -> None:
    async with place.open() as store:
        await stored(store, "one", extra="kept nowhere")
        await stored(store, "two", "2")
        await stored(store, "three", "3")
    ran = await tenuto("migrate", f"{module}:later", *place.arguments, "--json")
    assert (ran.code, counts(ran.told["sessions"])) == (0, {"1": (1, 0), "2": (1, 0)})
    async with place.open() as store:
        records = [await store.load(each) for each in ("one", "two", "three")]
        versions = [(record.schema_version, record.version) for record in records if record]
        assert versions == [("3", 2), ("3", 2), ("3", 1)]
        for name, record in zip(("one", "two", "three"), records, strict=True):
            assert record is not None
            assert record.state["messages"] == [{"text": "hi"}]
            assert record.state["full_name"] == name
            assert "name" not in record.state
        before = await store.dump()
    again = await tenuto("migrate", f"{module}:graph", *place.arguments, "--json")
    assert (again.code, again.told["sessions"]["versions"]) == (0, [])
    async with place.open() as store:
        assert await store.dump() == before


async def test_what_cannot_be_migrated_stays_as_it_was_and_the_others_are_written(place: Place, module: str) -> None:
    async with place.open() as store:
        await stored(store, "good")
        await store.create(
            "bad", state={"messages": []}, logs={"messages"}, schema_version="1", profile=Profile(agent="chat")
        )
        bad = await store.load("bad")
    ran = await tenuto("migrate", f"{module}:graph", *place.arguments)
    assert ran.code == 1
    assert "version '1': 1 migrated, 1 left unchanged" in ran.out
    assert "session 'bad'" in ran.out
    async with place.open() as store:
        assert await store.load("bad") == bad
        assert (await store.head("good")).schema_version == "3"


@pytest.mark.long("thousands of sessions")
async def test_thousands_of_sessions_are_paged_through_each_once(place: Place, module: str) -> None:
    async with place.open() as store:
        await asyncio.gather(*(stored(store, f"s{n}", tenant=f"t{n % 3}") for n in range(2_500)))
        await asyncio.gather(*(stored(store, f"s{n}", "3", tenant="t1", age=n) for n in range(3_000, 3_050)))
    checked = await tenuto("check", f"{module}:graph", *place.arguments, "--json")
    assert counts(checked.told["sessions"]) == {"1": (2_500, 0), "3": (50, 0)}
    one = await tenuto("migrate", f"{module}:graph", *place.arguments, "--tenant", "t1", "--batch", "64", "--json")
    assert counts(one.told["sessions"]) == {"1": (833, 0)}
    rest = await tenuto("migrate", f"{module}:graph", *place.arguments, "--batch", "999", "--json")
    assert counts(rest.told["sessions"]) == {"1": (1_667, 0)}
    async with place.open() as store:
        summaries = await store.list({"tenant": ANY_TENANT})
    assert {(s.schema_version, s.version) for s in summaries if int(s.session_id[1:]) < 2_500} == {("3", 2)}
    assert {(s.schema_version, s.version) for s in summaries if int(s.session_id[1:]) >= 3_000} == {("3", 1)}


async def test_a_killed_migration_is_gone_on_with_by_running_it_again(place: Place, module: str) -> None:
    async with place.open() as store:
        await asyncio.gather(*(stored(store, f"s{n}") for n in range(300)))
    command = [sys.executable, "-m", "tenuto.cli.app", "state", "migrate", f"{module}:graph", "--batch", "20", "--json"]
    killed = await asyncio.to_thread(
        subprocess.run, [*command, *place.arguments], env=os.environ | {"DIE_AT": "171"}, capture_output=True
    )
    assert killed.returncode == -signal.SIGKILL
    async with place.open() as store:
        done = len(await store.list({"schema_version": "3"}))
        assert 0 < done < 171
    ran = await asyncio.to_thread(subprocess.run, [*command, *place.arguments], capture_output=True)
    assert ran.returncode == 0
    assert counts(json.loads(ran.stdout)["sessions"]) == {"1": (300 - done, 0)}
    async with place.open() as store:
        assert {(s.schema_version, s.version) for s in await store.list()} == {("3", 2)}


async def test_a_session_whose_lane_is_held_is_left_alone_and_told(place: Place, module: str) -> None:
    async with place.open() as store:
        held = await stored(store, "held")
        await stored(store, "free")
        lane = await store.lanes.acquire(held, Owner(owner_id="worker", incarnation="w-1"), ttl=600)
        ran = await tenuto("migrate", f"{module}:graph", *place.arguments, "--json")
        assert (ran.code, counts(ran.told["sessions"])) == (1, {"1": (1, 1)})
        (reason,) = ran.told["sessions"]["versions"][0]["reasons"]
        assert reason["category"] == "session_execution_busy"
        assert reason["examples"] == [{"session_id": "held", "tenant": ""}]
        assert (await store.head(held)).version == 1
        await store.lanes.disarm(lane)
    again = await tenuto("migrate", f"{module}:graph", *place.arguments, "--json")
    assert (again.code, counts(again.told["sessions"])) == (0, {"1": (1, 0)})


async def test_a_graph_built_with_another_store_is_used_on_the_one_named(file: Place, module: str) -> None:
    async with file.open() as store:
        await stored(store, "a")
    ran = await tenuto("migrate", f"{module}:built", *file.arguments, "--json")
    assert (ran.code, counts(ran.told["sessions"])) == (0, {"1": (1, 0)})


@pytest.mark.parametrize(
    ("name", "url", "said"),
    [
        ("graph", "sqlite:///nowhere.db", "no file"),
        ("graph", "sqlite:nowhere", "does not name a file"),
        ("graph", "mysql://host", "not a store address"),
        ("sessionless", None, "with_session_state"),
        ("foreign", None, "Files"),
        ("wrong", None, "not a compiled graph"),
        ("missing", None, "has no 'missing'"),
    ],
)
@pytest.mark.parametrize("verb", ["check", "migrate"])
async def test_what_cannot_be_done_at_all_ends_with_two_and_a_reason(
    file: Place, module: str, tmp_path: Path, verb: str, name: str, url: str | None, said: str
) -> None:
    async with file.open():
        pass
    ran = await tenuto(verb, f"{module}:{name}", "--store", url or file.url)
    assert ran.code == 2
    assert said in " ".join(ran.err.replace("│", " ").split())
    assert not (tmp_path / "nowhere.db").exists()


async def test_a_damaged_session_is_told_and_does_not_hide_the_others(file: Place, module: str) -> None:
    async with file.open() as store:
        await stored(store, "torn")
        await stored(store, "whole")
    torn = apsw.Connection(file.url.removeprefix("sqlite:///"))
    torn.execute("UPDATE session SET document = '{' WHERE session_id = 'torn'")
    torn.close()
    ran = await tenuto("check", f"{module}:graph", *file.arguments, "--json")
    assert (ran.code, counts(ran.told["sessions"])) == (1, {"1": (1, 1)})


def on_terminal(command: list[str]) -> tuple[bytes, bytes]:
    """Run a command whose stderr is a terminal; return what it drew there, and what it printed."""
    ours, theirs = pty.openpty()
    drawn = b""
    with os.fdopen(ours, "rb", buffering=0) as screen:
        environment = os.environ | {"TERM": "xterm", "COLUMNS": "80"}
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs, env=environment)
        os.close(theirs)
        with suppress(OSError):  # that is how a terminal says that the other side is closed
            while part := screen.read(4096):
                drawn += part
        out, _ = process.communicate()
    return drawn, out


async def test_a_bar_is_drawn_on_a_terminal_and_nothing_anywhere_else(file: Place, module: str) -> None:
    async with file.open() as store:
        await asyncio.gather(*(stored(store, f"s{n}") for n in range(20)))
    command = [sys.executable, "-m", "tenuto.cli.app", "state", "check", f"{module}:graph", *file.arguments, "--json"]
    drawn, out = await asyncio.to_thread(on_terminal, command)
    assert b"sessions" in drawn
    assert counts(json.loads(out)["sessions"]) == {"1": (20, 0)}
    quiet = await asyncio.to_thread(subprocess.run, command, capture_output=True)
    assert quiet.stderr == b""


class Old(State):
    schema_version: ClassVar[str] = "a"
    log: Annotated[list[str], append] = []
    asked: str = ""


class New(State):
    schema_version: ClassVar[str] = "b"
    log: Annotated[list[dict[str, str]], append] = []
    question: str = ""


class Kept(SessionState):
    schema_version: ClassVar[str] = "b"
    log: list[dict[str, str]]
    question: str


async def ask(state: Any) -> dict[str, Any]:
    await suspend(SignalDescriptor(signal_id="answer"))


def wrapped(old: dict[str, Any]) -> dict[str, Any]:
    return {"log": [{"text": text} for text in old["log"]], "question": old["asked"]}


def old_graph(store: Store) -> CompiledGraph[Old]:
    builder = GraphBuilder(Old, "asking").with_session_store(store)
    return builder.add_node("ask", ask).add_edge("ask", END).set_entry("ask").compile()


def new_graph(
    store: Store, migrate: Callable[[dict[str, Any]], dict[str, Any]] = wrapped, kept: type[SessionState] | None = None
) -> CompiledGraph[New]:
    builder = GraphBuilder(New, "asking").with_session_store(store, kept).with_session_migration("a", "b", wrapped)
    builder.with_state_migration("a", "b", migrate)
    return builder.add_node("ask", ask).add_edge("ask", END).set_entry("ask").compile()


def nothing() -> None: ...


class States:
    """What a store holds of a graph."""

    def __init__(
        self,
        graph: CompiledGraph[Any],
        store: Store,
        *,
        owner: str | None = None,
        unowned: bool = False,
        batch: int = 100,
    ) -> None:
        self._finder = OneGraph(graph, store, owner=owner, unowned=unowned)
        self._store, self._batch = store, batch
        self.others: Mapping[str | None, int] = {}

    async def _found(self, verb: str, part: str) -> list[Tally]:
        states = StoredStates(self._store, self._finder, batch=self._batch)
        await getattr(states, verb)(nothing)
        self.others = states.others
        (findings,) = states.findings.values()
        found: dict[str, Tally] = getattr(findings, part)
        return [found[version] for version in sorted(found)]

    async def check(self) -> list[Tally]:
        return await self._found("check", "sessions")

    async def migrate(self) -> list[Tally]:
        return await self._found("migrate", "sessions")

    async def check_suspended(self) -> list[Tally]:
        return await self._found("check_suspended", "suspended")

    async def check_resumable(self) -> list[Tally]:
        return await self._found("check_resumable", "checkpoints")


async def test_suspended_runs_are_tried_on_their_own_and_go_on_after_their_session_was_migrated(store: Store) -> None:
    old = old_graph(store)
    paused = await old.bind(store, tenant="t").run({"log": ["first"], "asked": "why"}, session_id="s")
    bare = await old.bind(store, tenant="u").run({"log": ["alone"]})
    assert paused.suspended
    assert bare.suspended
    before = await store.dump()

    def refusing(values: dict[str, Any]) -> dict[str, Any]:
        return wrapped(values) if values["asked"] else {"log": "not a list"}

    (tally,) = await States(new_graph(store, refusing, Kept), store).check_suspended()
    assert (tally.version, tally.passed, tally.failed) == ("a", 1, 1)
    (reason,) = tally.reasons.values()
    assert (reason.category, reason.examples[0].tenant) == ("checkpoint_record_invalid", "u")
    assert await store.dump() == before

    graph = new_graph(store)
    states = States(graph, store)
    assert [(t.version, t.passed, t.failed) for t in await states.check_suspended()] == [("a", 2, 0)]
    (migrated,) = await states.migrate()
    assert (migrated.passed, migrated.failed) == (1, 0)
    bound = graph.bind(store, tenant="t")
    done = await bound.run(resume_invocation=paused.invocation_id, signal_payload={"question": "how"})
    assert done.completed, done.error
    assert done.state is not None
    assert (done.state.log, done.state.question) == ([{"text": "first"}], "how")


async def test_suspended_runs_are_tried_with_a_graph_that_is_bound_only_where_it_runs(store: Store) -> None:
    paused = await old_graph(store).run({"log": ["first"], "asked": "why"}, session_id="s")
    builder = GraphBuilder(New, "asking").with_session_state(Kept).with_session_migration("a", "b", wrapped)
    builder.with_state_migration("a", "b", wrapped).add_node("ask", ask).add_edge("ask", END).set_entry("ask")
    graph = builder.compile()
    (tally,) = await States(graph, store).check_suspended()
    assert (tally.version, tally.passed, tally.failed) == ("a", 1, 0)
    done = await graph.bind(store).resume(paused.wait.wait_id if paused.wait else "", {"question": "how"})
    assert done.result().question == "how"


async def test_a_long_log_is_written_in_slices_and_shown_at_once(store: Store) -> None:
    texts = [str(number) for number in range(7_000)]
    await store.create(
        "s", state={"log": texts, "asked": ""}, logs={"log"}, schema_version="a", profile=Profile(agent="asking")
    )
    states = States(new_graph(store), store)
    (tally,) = await states.migrate()
    assert (tally.passed, tally.failed) == (1, 0)
    record = await store.load("s")
    assert record is not None
    assert record.state == {"log": [{"text": text} for text in texts], "question": ""}
    assert (record.version, record.schema_version) == (2, "b")


@pytest.mark.parametrize(("moves", "passed"), [(3, 1), (99, 0)])
async def test_a_session_that_moves_meanwhile_is_tried_again_a_few_times(
    store: Store, moves: int, passed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.create(
        "s", state={"log": ["0"], "asked": ""}, logs={"log"}, schema_version="a", profile=Profile(agent="asking")
    )
    load, left = store.load, moves

    async def moving(key: Any) -> Any:
        nonlocal left
        record = await load(key)
        assert record is not None
        if left:
            left -= 1
            moved = {**record.state, "log": [*record.state["log"], str(left)]}
            await store.save(key, type(record)(session_id="s", state=moved, schema_version="a"))
        return record

    states = States(new_graph(store), store)
    monkeypatch.setattr(store, "load", moving)
    (tally,) = await states.migrate()
    assert (tally.passed, tally.failed) == (passed, 1 - passed)
    found = await load("s")
    assert found is not None
    if passed:
        assert found.state["log"] == [{"text": text} for text in ("0", "2", "1", "0")]
    else:
        assert [reason.category for reason in tally.reasons.values()] == ["session_write_conflict"]
        assert (found.schema_version, len(found.state["log"])) == ("a", 6)


async def test_a_migration_that_leaves_out_what_the_state_requires_is_refused_before_it_is_written(
    store: Store,
) -> None:
    class Strict(State):
        schema_version: ClassVar[str] = "b"
        needed: str

    builder = GraphBuilder(Strict, "asking").with_session_store(store).with_session_migration("a", "b", lambda _: {})
    graph = builder.add_node("ask", ask).add_edge("ask", END).set_entry("ask").compile()
    await store.create("s", state={"gone": 1}, schema_version="a", profile=Profile(agent="asking"))
    states = States(graph, store)
    for tally in (*await states.check(), *await states.migrate()):
        (reason,) = tally.reasons.values()
        assert "lacks needed after its migrations" in reason.text
    head = await store.head("s")
    assert head is not None
    assert (head.version, head.schema_version) == (1, "a")


async def test_a_session_deleted_since_it_was_listed_is_not_counted_as_failed(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.create(
        "s", state={"log": [], "asked": ""}, logs={"log"}, schema_version="a", profile=Profile(agent="asking")
    )
    states = States(new_graph(store), store)
    page = await store.list()
    await store.delete("s")

    async def listed(*_: Any, **__: Any) -> Any:
        return page

    monkeypatch.setattr(store, "list", listed)
    (checked,) = await states.check()
    (migrated,) = await states.migrate()
    assert [(tally.passed, tally.left, tally.failed) for tally in (checked, migrated)] == [(0, 1, 0), (0, 1, 0)]


@pytest.mark.parametrize("verb", ["check", "migrate"])
async def test_a_store_that_fails_ends_the_work_instead_of_being_counted_against_sessions(
    store: Store, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.create(
        "s", state={"log": [], "asked": ""}, logs={"log"}, schema_version="a", profile=Profile(agent="asking")
    )
    states = States(new_graph(store), store)

    async def unplugged(key: Any) -> Any:
        raise StoreUnavailable("unplugged")

    monkeypatch.setattr(store, "load", unplugged)
    with pytest.raises(TenutoError, match="unplugged"):
        await getattr(states, verb)()


async def test_where_every_session_fails_in_its_own_way_the_report_stays_short(store: Store) -> None:
    def picky(values: dict[str, Any]) -> dict[str, Any]:
        raise ValueError(values["asked"])

    builder = GraphBuilder(New, "asking").with_session_store(store, Kept).with_session_migration("a", "b", picky)
    graph = builder.add_node("ask", ask).add_edge("ask", END).set_entry("ask").compile()
    for number in range(50):
        await store.create(
            f"s{number}", state={"asked": str(number)}, schema_version="a", profile=Profile(agent="asking")
        )
    (tally,) = await States(graph, store, batch=7).check()
    assert (tally.failed, len(tally.reasons)) == (50, 21)


async def test_a_batch_below_one_is_refused(store: Store) -> None:
    with pytest.raises(InvalidInput, match="batch"):
        await States(new_graph(store), store, batch=0).check()


class Bill(State):
    schema_version: ClassVar[str] = "1"
    log: Annotated[list[str], append] = []


class Bill2(State):
    schema_version: ClassVar[str] = "2"
    log: Annotated[list[str], append] = []
    due: str = ""


async def add(_: Any) -> dict[str, Any]:
    return {"log": ["x"]}


def billing(store: Store, kind: type[State], name: str) -> CompiledGraph[Any]:
    builder = (
        GraphBuilder(kind, name).with_session_store(store).with_session_migration("1", "2", lambda s: dict(s, due=""))
    )
    builder.with_state_migration("1", "2", lambda s: dict(s, due=""))
    return builder.add_node("add", add).add_edge("add", END).set_entry("add").compile()


async def test_what_others_made_is_neither_judged_nor_touched_and_is_counted(store: Store) -> None:
    mine, theirs = billing(store, Bill, "mine"), billing(store, Bill, "theirs")
    await mine.run(session_id="m")
    await theirs.run(session_id="t")
    runtime = await opened(store, [billing(store, Bill, "mine").as_program(name="talker", input="log", entry=str)])
    await runtime.create("talker", session_id="p")
    await runtime.send("p", "hi")
    await store.create("u", state={"log": []}, logs={"log"}, schema_version="1")
    assert {each.session_id: each.agent for each in await store.list(None)} == {
        "m": "mine",
        "t": "theirs",
        "p": "talker",
        "u": None,
    }
    states = States(billing(store, Bill2, "mine"), store)
    before = {key: await store.head(key) for key in ("t", "p", "u")}
    (checked,) = await states.check()
    (migrated,) = await states.migrate()
    assert (checked.passed, checked.failed, migrated.passed, migrated.failed) == (1, 0, 1, 0)
    assert states.others == {"theirs": 1, "talker": 1, None: 1}
    assert before == {key: await store.head(key) for key in ("t", "p", "u")}
    assert (await theirs.run(session_id="t")).completed
    talker = States(billing(store, Bill2, "mine"), store, owner="talker", unowned=True)
    (migrated,) = await talker.migrate()
    assert migrated.passed == 2
    head = await store.head("u")
    assert head is not None
    assert (head.schema_version, head.profile.agent) == ("2", "talker")


async def test_a_session_without_an_owner_is_taken_in_by_the_graph_that_saves_it(store: Store) -> None:
    await store.create("s", state={"log": []}, logs={"log"}, schema_version="1")
    graph = billing(store, Bill, "mine")
    for _ in range(2):
        assert (await graph.run(session_id="s")).completed
    head = await store.head("s")
    assert head is not None
    assert head.profile.agent == "mine"
    assert (await billing(store, Bill, "theirs").run(session_id="s")).completed
    head = await store.head("s")
    assert head is not None
    assert head.profile.agent == "mine"


async def test_pauses_of_others_are_not_judged(store: Store) -> None:
    for name in ("asking", "other"):
        builder = GraphBuilder(Old, name).with_session_store(store)
        graph = builder.add_node("ask", ask).add_edge("ask", END).set_entry("ask").compile()
        assert (await graph.run({"asked": name}, session_id=name)).suspended
        assert (await graph.run({"asked": name})).suspended
    (tally,) = await States(new_graph(store), store).check_suspended()
    assert (tally.passed, tally.failed) == (2, 0), tally.reasons


async def test_sessions_of_nobody_are_reported_and_only_taken_in_if_told_to(file: Place, module: str) -> None:
    async with file.open() as store:
        await stored(store, "ours")
        await store.create("theirs", state={"x": 1}, schema_version="1", profile=Profile(agent="invoice"))
        state = {"name": "nobody", "messages": ["hi"]}
        await store.create("nobody", state=state, logs={"messages"}, schema_version="1")
    for verb, done in (("check", "fit"), ("migrate", "migrated")):
        ran = await tenuto(verb, f"{module}:graph", *file.arguments)
        assert ran.code == 1
        assert f"version '1': 1 {done}" in ran.out
        assert "Skipped: 1 created by 'invoice'" in ran.out
        assert "--unowned" in ran.out
    left = await tenuto("check", f"{module}:graph", *file.arguments, "--no-unowned", "--json")
    assert (left.code, left.told["others"], left.told["unowned"]) == (0, {"invoice": 1}, 1)
    taken = await tenuto("migrate", f"{module}:graph", *file.arguments, "--unowned", "--json")
    assert (taken.code, counts(taken.told["sessions"])) == (0, {"1": (1, 0)})
    async with file.open() as store:
        head = await store.head("theirs")
    assert head is not None
    assert (head.schema_version, head.version) == ("1", 1)
