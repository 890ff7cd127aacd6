"""`tenuto state` for a runtime: each session is checked with the program that would run it."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, ClassVar

import pytest
from typer.testing import CliRunner

from tenuto import SessionRuntime, Turn, open_store, program
from tenuto.cli.app import app
from tenuto.graph import END, GraphBuilder, State, append
from tenuto.ids import new_id
from tenuto.model.lane import Owner
from tenuto.model.session import Profile
from tenuto.runtime.session.definition import Definition

pytestmark = pytest.mark.long("it starts processes")

MODULE = """
from typing import Annotated, Any, ClassVar
from pydantic import BaseModel
from tenuto import SessionRuntime, Turn, program
from tenuto.graph import END, GraphBuilder, SessionState, State, SignalDescriptor, append, suspend

class Customer(BaseModel):
    schema_version: ClassVar[str] = "2"
    email: str
    visits: int = 0

def forward(old):
    return {"email": old.pop("mail"), **old}

@program(state=Customer, version=2, accepts=[1], migrations={("", "2"): forward})
async def greet(turn: Turn[Customer]) -> None:
    turn.state.visits += 1

@program
async def plain(turn: Turn) -> None: ...

class Article(State):
    schema_version: ClassVar[str] = "b"
    notes: Annotated[list[str], append] = []
    title: str

class Kept(SessionState):
    schema_version: ClassVar[str] = "b"
    notes: list[str]
    title: str

async def start(state):
    return {"notes": ["begun"]}

async def write(state):
    raise RuntimeError("no ink")

def titled(old):
    return {"title": old.pop("name"), **old}

graph = (
    GraphBuilder(Article, "article").add_node("start", start).add_node("write", write)
    .add_edge("start", "write").add_edge("write", END).set_entry("start")
    .with_session_state(Kept).with_session_migration("a", "b", titled).with_state_migration("a", "b", titled).compile()
)
press = graph.as_program(name="press", input="notes", entry=str)
runtime = SessionRuntime("sqlite:///shop.db", [greet, plain, press])

async def later(store):
    return greet
"""


async def tenuto(*arguments: str) -> tuple[int, Any, str]:
    ran = await asyncio.to_thread(CliRunner().invoke, app, ["state", *arguments])
    if ran.exception is not None and not isinstance(ran.exception, SystemExit):
        raise ran.exception
    return ran.exit_code, json.loads(ran.stdout) if "--json" in arguments else ran.stdout, ran.stderr


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"shop_{new_id().replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return name


@program(name="greet")
async def first(turn: Turn) -> None:
    turn.state["mail"] = turn.text
    if turn.text == "wait":
        turn.state["mail"] = "w@b.c"
        await turn.wait("answer")


@program
async def plain(turn: Turn) -> None: ...


@program
async def unknown(turn: Turn) -> None: ...


async def made() -> None:
    """Store sessions of the versions before, in two tenants."""
    async with SessionRuntime("sqlite:///shop.db", [first, plain, unknown]) as runtime:
        for number in range(3):
            await (await runtime.create(first, session_id=f"g{number}")).send("a@b.c")
        waits = await runtime.for_tenant("t").create(first, session_id="waits")
        await waits.send("wait")
        await (await runtime.create(plain, {"anything": [1]}, "p")).send("hi")
        await runtime.create(unknown, session_id="u")


def counts(part: Any) -> dict[str, tuple[int, int]]:
    return {each["version"]: (each["passed"], each["failed"]) for each in part["versions"]}


async def test_each_session_is_checked_with_its_program_and_nothing_is_written(shop: str, tmp_path: Path) -> None:
    await made()
    async with open_store("sqlite:///shop.db") as store:
        await store.create(
            "odd",
            state={"mail": "a@b.c", "colour": "red", "visits": "many"},
            profile=Profile(agent="greet", definition=Definition(name="greet").record()),
        )
        await store.create(
            "old",
            state={"mail": "a@b.c", "colour": "red"},
            profile=Profile(agent="greet", definition=Definition(name="greet").record()),
        )
        await store.create(
            "new", profile=Profile(agent="greet", definition=Definition(name="greet", version="7").record())
        )
    before = (tmp_path / "shop.db").read_bytes()
    code, told, _ = await tenuto("check", f"{shop}:runtime", "--json")
    assert (code, told["ok"], told["others"], told["unowned"]) == (1, False, {"unknown": 1}, 0)
    assert set(told["programs"]) == {"greet@2", "greet@7", "plain@1"}
    greet = told["programs"]["greet@2"]
    assert (counts(greet["sessions"]), counts(greet["suspended"])) == ({"": (5, 1)}, {"": (1, 0)})
    assert (greet["sessions"]["target"], greet["unnamed_fields"]) == ("2", {"colour": 1})
    (version,) = greet["sessions"]["versions"]
    (reason,) = version["reasons"]
    assert reason["category"] == "session_state_migration_failed"
    assert "state.visits" in reason["reason"]
    assert reason["examples"] == [{"session_id": "odd", "tenant": ""}]
    (lost,) = told["programs"]["greet@7"]["sessions"]["versions"][0]["reasons"]
    assert lost["category"] == "program_not_registered"
    assert counts(told["programs"]["plain@1"]["sessions"]) == {"": (1, 0)}
    assert (tmp_path / "shop.db").read_bytes() == before


async def test_the_report_can_be_read(shop: str) -> None:
    await made()
    code, said, _ = await tenuto("check", f"{shop}:runtime")
    assert code == 0
    assert said.splitlines() == [
        "greet@2",
        "  Sessions, to version '2':",
        "    version '': 4 fit",
        "  Suspended runs, to version '2':",
        "    version '': 1 fit",
        "plain@1",
        "  Sessions, to version '':",
        "    version '': 1 fit",
        "Skipped: 1 created by 'unknown'",
        "Nothing failed.",
    ]


async def test_migrate_writes_what_the_next_turn_would_and_a_second_run_has_nothing_to_do(shop: str) -> None:
    await made()
    command = ["migrate", f"{shop}:runtime", "--tenant", ""]
    code, told, _ = await tenuto(*command, "--json")
    assert (code, counts(told["programs"]["greet@2"]["sessions"])) == (0, {"": (3, 0)})
    code, told, _ = await tenuto("migrate", f"{shop}:later", "--store", "sqlite:///shop.db", "--json")
    assert (code, counts(told["programs"]["greet@2"]["sessions"])) == (0, {"": (1, 0)})
    async with open_store("sqlite:///shop.db") as store:
        record = await store.load("g1")
        assert record is not None
        assert (record.schema_version, record.state["email"], record.state["visits"]) == ("2", "a@b.c", 0)
        assert "mail" not in record.state
        before = await store.dump()
    code, told, _ = await tenuto("migrate", f"{shop}:runtime", "--json")
    assert (code, {name: each["sessions"]["versions"] for name, each in told["programs"].items()}) == (
        0,
        {"greet@2": [], "plain@1": []},
    )
    async with open_store("sqlite:///shop.db") as store:
        assert await store.dump() == before
    module: ModuleType = __import__(shop)
    async with SessionRuntime("sqlite:///shop.db", module.greet) as runtime:
        (wait,) = await runtime.for_tenant("t").session("waits").waits()
        answered = await runtime.for_tenant("t").answer(wait)
        assert answered.outcome is not None
        assert answered.outcome.completed
        assert (await runtime.for_tenant("t").get("waits")).state(module.Customer).visits == 1


async def test_a_session_with_a_runner_is_left_alone_and_reported(shop: str) -> None:
    await made()
    async with open_store("sqlite:///shop.db") as store:
        lane = await store.lanes.acquire("g0", Owner(owner_id="worker", incarnation="w-1"), ttl=600)
        code, told, _ = await tenuto("migrate", f"{shop}:runtime", "--json")
        (version,) = told["programs"]["greet@2"]["sessions"]["versions"]
        (reason,) = version["reasons"]
        assert (code, version["passed"], version["failed"]) == (1, 3, 1)
        assert (reason["category"], reason["examples"][0]["session_id"]) == ("session_execution_busy", "g0")
        assert reason["reason"] == "a runner holds its lane; run the migration again once it is done"
        await store.lanes.disarm(lane)
    code, told, _ = await tenuto("migrate", f"{shop}:runtime", "--json")
    assert (code, counts(told["programs"]["greet@2"]["sessions"])) == (0, {"": (1, 0)})


async def test_checkpoints_of_failed_graphs_are_tried(shop: str) -> None:
    module: ModuleType = __import__(shop)

    class Older(State):
        schema_version: ClassVar[str] = "a"
        notes: Annotated[list[str], append] = []
        name: str = ""

    def older(name: str) -> Any:
        builder = GraphBuilder(Older, name).add_node("start", module.start).add_node("write", module.write)
        return builder.add_edge("start", "write").add_edge("write", END).set_entry("start").with_checkpoints().compile()

    async with open_store("sqlite:///shop.db") as store:
        for name in ("article", "other"):
            assert (await older(name).bind(store).run({"name": "tides"}, invocation_id=f"i-{name}")).status == "failed"
    code, told, _ = await tenuto("check", f"{shop}:graph", "--store", "sqlite:///shop.db", "--json")
    assert (code, counts(told["checkpoints"]), told["checkpoints"]["target"]) == (0, {"a": (1, 0)}, "b")
    code, told, _ = await tenuto("check", f"{shop}:runtime", "--json")
    assert (code, counts(told["programs"]["press@1"]["checkpoints"])) == (0, {"a": (1, 0)})


@pytest.mark.parametrize("verb", ["check", "migrate"])
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["MODULE:greet"], "--store"),
        (["MODULE:runtime"], "no file"),
        (["MODULE:runtime", "--store", "sqlite:///here.db", "--owner", "x"], "for a graph"),
        (["MODULE:nobody", "--store", "sqlite:///here.db"], "has no 'nobody'"),
    ],
)
async def test_what_cannot_be_done_ends_with_two(shop: str, verb: str, arguments: list[str], said: str) -> None:
    async with open_store("sqlite:///here.db"):
        pass
    given = [each.replace("MODULE:", f"{shop}:") for each in arguments]
    code, _, err = await tenuto(verb, *given)
    assert code == 2
    assert said in " ".join(err.replace("│", " ").split())
    assert not Path("shop.db").exists()


async def test_a_process_ends_with_the_code(shop: str) -> None:
    await made()
    command = [sys.executable, "-m", "tenuto", "state", "check", f"{shop}:runtime", "--json"]
    ran = await asyncio.to_thread(subprocess.run, command, capture_output=True)
    assert (ran.returncode, ran.stderr) == (0, b"")
    assert json.loads(ran.stdout)["ok"]
