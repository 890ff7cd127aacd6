"""What a type checker knows of the face: programs, sessions and outcomes carry one output type, and words are checked.

`make check` reads this file with mypy, and the wide tests with a strict pyright; running it shows that the calls exist.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, assert_type

import pytest
from pydantic import BaseModel, TypeAdapter

from tenuto import (
    JSON,
    Approval,
    AskChild,
    Outcome,
    Program,
    RunHandle,
    Session,
    SessionRuntime,
    Sessions,
    SessionView,
    StreamItem,
    Tool,
    Turn,
    Wait,
    WaitFor,
    on,
    program,
    run_tools,
    tool,
)
from tenuto.actions import CompleteSession, ForkSession, SendMessage, StopRun
from tenuto.blocking import BlockingRun, BlockingSession
from tenuto.messages import AssistantMessage, ContextMessage, Message
from tenuto.types import (
    Answered,
    ChildResult,
    Document,
    Forked,
    Hook,
    OutcomeStatus,
    Page,
    Schedule,
    SessionSummary,
    StopReply,
)
from tests.checkers import mypy, pyright
from tests.examples.beside.pairs import APPS
from tests.examples.programs import EXAMPLES, LIST, RUNS

ROOT = Path(__file__).parent.parent


class Order(BaseModel):
    number: int


async def order() -> Order:
    return Order(number=7)


async def orders() -> list[Order]:
    return [await order()]


@program
async def counts(turn: Turn) -> int:
    assert_type(turn.state, Document)
    assert_type(turn.context, list[ContextMessage])
    assert_type(turn.messages, Sequence[Message])
    assert_type(turn.text, str)

    async def ask() -> float:
        return 1.5

    assert_type(await turn.effect("ask", ask), float)
    assert_type(await turn.effect("order", order, idempotent=True, returns=Order, retries=3, backoff=60), Order)
    assert_type(await turn.effect("orders", orders, returns=TypeAdapter(list[Order])), list[Order])
    assert_type(await turn.model(ask, retries=0, timeout=timedelta(seconds=30)), float)
    assert_type(await turn.model(order, key="first", returns=Order), Order)
    assert_type(turn.append("hello"), list[Message])
    return len(turn.messages)


class Visits(BaseModel):
    count: int = 0


@program(state=Visits, version=2, accepts=[1])
async def counted(turn: Turn[Visits]) -> int:
    assert_type(turn.state, Visits)
    turn.update(lambda state: {"count": state.count + 1})
    return turn.state.count


class Size(BaseModel):
    letter: str


@program
async def waits(turn: Turn) -> Size:
    size = await turn.wait("size", returns=Size)
    assert_type(size, Size)
    assert_type(await turn.wait("sure?", kind="approval"), Approval)
    assert_type(await turn.wait("any", schema={"type": "string"}), JSON)
    assert_type(await turn.wait("any"), JSON)
    child = await turn.child(counts, "how many?")
    assert_type(child, ChildResult[int])
    assert_type(child.output, int | None)
    assert_type(child.result(), int)
    assert_type(await turn.child("counts", "how many?"), ChildResult[JSON])
    several = await turn.wait_all(
        WaitFor("size", returns=Size), WaitFor("sure?", kind="approval"), AskChild(counts, "hi"), WaitFor("any")
    )
    assert_type(several, tuple[Size, Approval, ChildResult[int], JSON])
    return size


async def listed(runtime: SessionRuntime) -> None:
    assert_type(await runtime.waits(kind="approval"), Page[Wait])
    assert_type(await runtime.across_tenants().waits(user_id="ada"), Page[Wait])
    assert_type(await runtime.schedules(paused=True), Page[Schedule])
    assert_type(await runtime.across_tenants().schedules(), Page[Schedule])
    assert_type(await runtime.session("s").waits(children=False), Sequence[Wait])


async def checked(runtime: SessionRuntime) -> None:
    session = await runtime.create(counts, session_id="s", exists_ok=True)
    assert_type(session, Session[int])
    outcome = await session.send("hi")
    assert_type(outcome, Outcome[int])
    assert_type(outcome.output, int | None)
    assert_type(outcome.result(), int)
    assert_type(outcome.status, OutcomeStatus)
    assert_type(outcome.reply, AssistantMessage | None)
    run = await session.start("again", when_busy="queue")
    assert_type(run, RunHandle[int])
    assert_type(await run.result(), int)
    assert_type(run.text(), AsyncGenerator[str, None])
    assert_type(session.events(), AsyncGenerator[StreamItem, None])
    assert_type(await session.fork(), Forked[int])
    assert_type(await session.execute(CompleteSession()), SessionView)
    assert_type(await session.execute(SendMessage("hi")), Outcome[int])
    assert_type(await session.execute(ForkSession()), Forked[int])
    assert_type(await session.execute(StopRun()), StopReply)
    assert_type(await session.answer("wait"), Answered[int])
    assert_type(await session.messages(), Page[Message])
    assert_type(await runtime.list(status="active"), Page[SessionSummary])
    assert_type(await runtime.create(counted, Visits(count=2)), Session[int])
    assert_type((await session.get()).state(Visits), Visits)
    assert_type(runtime.session("s"), Session[JSON])
    assert_type(runtime.session("s", counts), Session[int])
    assert_type(runtime.for_tenant("t"), Sessions)
    assert_type(runtime.programs["counts@1"], Program[Any])


@tool
async def look_up(order: str) -> str:
    return order


@tool(needs_approval=lambda arguments: bool(arguments["amount"] > 10), name="refund")
def pay_back(amount: float) -> float:
    return amount


async def checked_tools(turn: Turn) -> None:
    assert_type(look_up, Tool)
    assert_type(pay_back, Tool)
    assert_type(look_up.parameters, Mapping[str, JSON])
    assert_type(await look_up.call(turn, {"order": "7"}), JSON)
    assert_type(turn.definition.offered([look_up]), list[Tool])
    await run_tools(turn, [look_up, pay_back, counts.as_tool(description="Count.")])


def checked_without_a_loop(runtime: SessionRuntime) -> None:
    with runtime.blocking() as rt:
        session = rt.create(counts, session_id="s", exists_ok=True)
        assert_type(session, BlockingSession[int])
        assert_type(session.send("hi"), Outcome[int])
        run = session.start("hi")
        assert_type(run, BlockingRun[int])
        assert_type(list(run.text()), list[str])
        assert_type(rt.session("s", counts).send("hi").result(), int)


@on("before_save", priority=1)
async def stamped(session: SessionView) -> SessionView:
    return session.with_metadata(stamped=True)


def test_what_is_typed_exists() -> None:
    assert_type(stamped, Hook)
    assert stamped.stage == "before_save"


@pytest.mark.wide
@pytest.mark.long("pyright reads the whole package")
def test_pyright_agrees(tmp_path: Path) -> None:
    found = pyright([Path(__file__)], [ROOT / "src", ROOT], tmp_path)
    assert not found, "\n".join(found)


@pytest.mark.wide
@pytest.mark.long("the checkers read the package and the libraries that the examples use")
def test_the_examples_pass_both_checkers_with_the_libraries_they_use(tmp_path: Path) -> None:
    """`make check` reads them with mypy too, but where a library is not installed, all that comes from it is `Any`."""
    pytest.importorskip("openai")
    running = [each.path for each in LIST if each.due is RUNS and each.path.suffix == ".py"]
    files = [*dict.fromkeys(running), *sorted(APPS.glob("*.py"))]
    found = pyright(files, [EXAMPLES, ROOT / "src"], tmp_path) + mypy(files, [EXAMPLES, ROOT / "src"], cache="wide")
    assert not found, "\n".join(found)


async def misspelt(session: Session[int], turn: Turn) -> None:
    """Each line is an error to a checker; an ignore that ignores nothing is one too."""
    await session.send("hi", when_busy="que")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await session.stop("gently")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    outcome = await session.send("hi")
    await turn.effect("orders", orders, returns=Order)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    wrong: str = outcome.result()  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    assert wrong
    assert outcome.status == "compelted"  # type: ignore[comparison-overlap]  # pyright: ignore
