"""Whatever a program, a tool, a hook or an exception contains: its turn ends, once, and the lane is free."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest

from tenuto.errors import (
    CommitTooLarge,
    EffectFailed,
    InvalidInput,
    LaneLost,
    NotJson,
    RunNotLive,
    StoreUnavailable,
    TenutoError,
)
from tenuto.messages import ToolCall
from tenuto.model.commit import Budget
from tenuto.model.run import RunStatus
from tenuto.model.session import SessionKey
from tenuto.runtime.calls.effect_call import call_effect
from tenuto.runtime.calls.wait_for import WaitFor
from tenuto.runtime.change.hooks import on
from tenuto.runtime.conversation.history import History
from tenuto.runtime.program.program import program
from tenuto.runtime.program.tool import Tool
from tenuto.runtime.program.tool_calls import run_tools
from tenuto.runtime.program.turn import Turn, context_of
from tenuto.runtime.runtime import SessionRuntime
from tenuto.runtime.session.outcome import Outcome
from tenuto.runtime.session.session_view import SessionView
from tenuto.runtime.turn.effect_journal import Place
from tenuto.words import StopKind
from tenuto.writing.error_record import MOST_TEXT, clipped, error_record
from tests.conftest import OurHarness
from tests.runtime.runtimes import Database, in_memory, on_disk, results

BUDGET = 256 * 1024
BIG = "x" * (2 * BUDGET)
LONE = "half an emoji: \ud83d"


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class Odd(Exception):
    category: Any = 5

    @property
    def message(self) -> str:
        raise KeyError("message")


class Open(TenutoError):
    public = frozenset({"value", "other", "told", "kept", "deep", "bad", "big", "status", "at"})


class Worded(Exception):
    category = "w" * 100_000 + "\ud83d"


class Own(BaseException):
    """A program's own signal, which nothing here knows."""


class Text(str):
    """A text of another class, which no JSON keeps as such."""

    __slots__ = ()


def cyclic() -> Exception:
    one, other = ValueError("one"), ValueError("other")
    one.__cause__, other.__cause__ = other, one
    return one


def recursive() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


NASTY: dict[str, Any] = {
    "surrogate": LONE,
    "big": BIG,
    "deep": nested(99),
    "deeper": nested(101),
    "recursive": recursive(),
    "object": object(),
    "nan": float("nan"),
    "digits": 10**5000,
    "bytes": b"x",
    "key": {1: 2},
    "key surrogate": {"\ud800": 1},
    "subclass": Text("x"),
    "none": None,
    "empty": "",
    "nul": "a\0b",
}

RAISED: dict[str, Callable[[], BaseException]] = {
    "surrogate": lambda: ValueError(LONE),
    "30 MB": lambda: ValueError("x" * (30 << 20)),
    "mute": Mute,
    "odd": Odd,
    "worded": Worded,
    "own": Own,
    "cyclic": cyclic,
    "group": lambda: ExceptionGroup(LONE, [ValueError(LONE), Mute()]),
    "base group": lambda: BaseExceptionGroup("all", [Own()]),
    "deep details": lambda: Open("x", value=nested(99)),
    "big details": lambda: Open("x", value=BIG, other=1),
    "odd details": lambda: Open("x", value=object(), told={1: 2}),
    "a cancelled future": asyncio.CancelledError,
    "another's lane": lambda: LaneLost("another session's", key=SessionKey("b"), expected=1, found=2),
    "another's run": lambda: RunNotLive("another session's", key=SessionKey("b"), run_id="r", found="completed"),
    "another's store": lambda: StoreUnavailable("another store is away"),
    "nothing": lambda: ValueError(),
}


async def small(harness: OurHarness, *programs: Any, **options: Any) -> SessionRuntime:
    """Return a runtime whose commits are small, so that big values need not be."""
    runtime = await Database(harness).runtime(*programs, **options)
    runtime.store.budget = Budget(max_bytes=BUDGET)
    return runtime


async def check_over(runtime: SessionRuntime, session_id: str = "s") -> None:
    """The run is over, the lane free, the history valid, and the next message begins a turn."""
    run = await runtime.store.runs.current(session_id)
    assert run is not None
    assert run.status in (RunStatus.FAILED, RunStatus.COMPLETED, RunStatus.SUSPENDED, RunStatus.INTERRUPTED)
    assert run.attempt == 1
    lane = await runtime.store.lanes.inspect(session_id)
    assert lane is None or lane.state == "free"
    if run.status is not RunStatus.SUSPENDED:
        assert History().judged((await runtime.get(session_id)).messages).open == {}


@on_disk
async def test_whatever_a_program_raises_ends_its_turn(harness: OurHarness) -> None:
    raises: list[BaseException] = []
    ran: list[int] = []

    @program
    async def fails(turn: Turn) -> None:
        ran.append(1)
        turn.append({"role": "assistant", "content": "not kept"})
        raise raises[0]

    runtime = await Database(harness).runtime(fails)
    await runtime.create("fails", session_id="s")
    for name, made in RAISED.items():
        raises[:], ran[:] = [made()], []
        outcome = await runtime.send("s", "go")
        assert outcome.status == "failed", name
        error: Any = outcome.error
        assert isinstance(error["category"], str), name
        assert ran == [1], name
        await check_over(runtime)
        stored = await runtime.store.runs.current("s")
        assert stored is not None
        assert stored.error == error, name
    assert {each["role"] for each in (await runtime.get("s")).messages} == {"user"}


@in_memory
@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
async def test_what_ends_the_process_ends_its_turn_first(harness: OurHarness, kind: type[BaseException]) -> None:
    async def stops(_: Any, __: Any) -> None:
        raise kind

    @program
    async def exits(turn: Turn) -> None:
        if turn.text == "tool":
            turn.append({"role": "assistant", "content": "", "tool_calls": [{"id": "c", "name": "t", "arguments": {}}]})
            await run_tools(turn, [Tool(name="t", run=stops)])
        raise kind

    runtime = await Database(harness).runtime(exits)
    await runtime.create("exits", session_id="s")
    for text in ("program", "tool"):
        ended: list[str] = []
        try:
            await runtime.send("s", text)
        except kind as signal:
            ended.append(type(signal).__name__)
        assert ended == [kind.__name__]
        run = await runtime.store.runs.current("s")
        assert run is not None
        error: Any = run.error
        assert error["category"] == kind.__name__
        await check_over(runtime)
    assert results((await runtime.get("s")).messages)["c"].startswith("Outcome unknown")


GIVEN: dict[str, Callable[..., Any]] = {
    "append": lambda turn, value: turn.append(value),
    "append content": lambda turn, value: turn.append({"role": "assistant", "content": value}),
    "append calls": lambda turn, value: turn.append({"role": "assistant", "content": "", "tool_calls": value}),
    "append call id": lambda turn, value: turn.append({"role": "assistant", "tool_calls": [{"id": value}]}),
    "append role": lambda turn, value: turn.append({"role": value, "content": "x"}),
    "append once": lambda turn, value: turn.append({"role": "assistant", "content": "x"}, once=value),
    "add": lambda turn, value: turn.add("log", value),
    "add log": lambda turn, value: turn.add(value, 1),
    "add once": lambda turn, value: turn.add("log", 1, once=value),
    "set": lambda turn, value: turn.state.update(a=value),
    "set name": lambda turn, value: turn.state.__setitem__(value, 1),
    "delete": lambda turn, value: turn.state.__delitem__(value),
    "update": lambda turn, value: turn.update(lambda _: {"a": value}),
    "update fields": lambda turn, value: turn.update(lambda _: value),
    "update change": lambda turn, value: turn.update(value),
    "get": lambda turn, value: turn.state.get(value),
    "emit": lambda turn, value: turn.emit(value),
    "use": lambda turn, value: turn.record_usage(value),
    "use source": lambda turn, value: turn.record_usage("m", source=value),
    "use once": lambda turn, value: turn.record_usage("m", once=value),
    "use count": lambda turn, value: turn.record_usage("m", input=value),
    "use name": lambda turn, value: turn.record_usage("m", inputs=value),
    "frame kind": lambda turn, value: turn.frame(kind=value),
    "frame summary": lambda turn, value: turn.frame(summary=value),
    "frame keep": lambda turn, value: turn.frame(keep=value),
    "hand off": lambda turn, value: turn.hand_off(value),
    "hand off message": lambda turn, value: turn.hand_off("takes", message=value),
    "hand off summary": lambda turn, value: turn.hand_off("takes", summary=value),
    "effect key": lambda turn, value: turn.effect(value, fine),
    "effect call": lambda turn, value: turn.effect("k", value),
    "effect request": lambda turn, value: turn.effect("k", fine, value),
    "effect kind": lambda turn, value: turn.effect("k", fine, kind=value),
    "effect idempotent": lambda turn, value: turn.effect("k", fine, idempotent=value),
    "effect call id": lambda turn, value: effect_at(turn, call_id=value),
    "effect namespace": lambda turn, value: effect_at(turn, namespace=value),
    "wait": lambda turn, value: turn.wait(value),
    "wait kind": lambda turn, value: turn.wait("s", kind=value),
    "wait schema": lambda turn, value: turn.wait("s", schema=value),
    "wait timeout": lambda turn, value: turn.wait("s", timeout=value),
    "wait metadata": lambda turn, value: turn.wait("s", metadata={"a": value}),
    "wait all metadata": lambda turn, value: turn.wait("s", metadata=value),
    "wait all": lambda turn, value: turn.wait_all(value),
    "wait for": lambda turn, value: turn.wait_all(WaitFor("s", deadline=value)),
    "sleep": lambda turn, value: turn.sleep(value),
    "sleep name": lambda turn, value: turn.sleep(5, value),
    "child": lambda turn, value: turn.child(value, "hi"),
    "child message": lambda turn, value: turn.child("takes", value),
    "child id": lambda turn, value: turn.child("takes", "hi", session_id=value),
    "child timeout": lambda turn, value: turn.child("takes", "hi", timeout=value),
    "child name": lambda turn, value: turn.child("takes", "hi", name=value),
}
"""What a program gives its turn, by where it gives it."""

LIKE_A_DICT = {"set name", "delete"}
"""Where the state refuses a key as any dict does: one that cannot be hashed, or is not there."""


async def fine() -> int:
    return 1


async def effect_at(turn: Turn, namespace: str = "", call_id: str | None = None) -> Any:
    """Call an effect as tools and engines do, which name its place and the call it is for."""
    place, context = Place(namespace, turn.step, "k"), context_of(turn)
    return await call_effect(context, place, fine, None, kind="tool", idempotent=False, call_id=call_id, record=None)


@on_disk
@pytest.mark.parametrize("group", range(7))
async def test_whatever_a_program_gives_its_turn_ends_it(harness: OurHarness, group: int) -> None:
    """It is refused where it is given, or kept; nothing that was refused is pending."""
    doing: list[Callable[[Turn], Any]] = []
    refused: list[BaseException] = []
    ran: list[int] = []

    @program
    async def takes(turn: Turn) -> None:
        ran.append(1)
        try:
            given = doing[0](turn)
            if isinstance(given, Awaitable):
                await given
        except Exception as error:
            refused.append(error)
            turn.append({"role": "assistant", "content": "refused"})

    runtime = await small(harness, takes)
    for place in list(GIVEN)[group::7]:
        await runtime.create("takes", session_id=place)
        for name, value in NASTY.items():
            doing[:], refused[:], ran[:] = [partial(GIVEN[place], value=value)], [], []
            outcome = await asyncio.wait_for(runtime.send(place, "go"), 10)
            what = (place, name, outcome.error, refused)
            assert ran == [1], what
            own = (TenutoError, TypeError, KeyError) if place in LIKE_A_DICT else TenutoError
            assert all(isinstance(each, own) for each in refused), what
            assert not any(isinstance(each, StoreUnavailable) for each in refused), what
            if refused:
                assert outcome.status == "completed", what
            elif outcome.status == "failed":
                # What is judged as a whole, a conversation, only shows with the commit.
                error: Any = outcome.error
                assert error["category"] == "history_invalid", what
            await check_over(runtime, place)


@on_disk
async def test_a_value_is_refused_by_its_path_and_nothing_of_it_is_pending(harness: OurHarness) -> None:
    @program
    async def careful(turn: Turn) -> None:
        bad: Any = {"deep": [1, {"at": object()}]}
        noted: Any = {"role": "assistant", "content": "x", "metadata": bad}
        for give, path in (
            (lambda: turn.append(noted, once="k"), r"message\.metadata\.deep\[1\]\.at"),
            (lambda: turn.add("notes", 1, bad, once="k"), r"notes\.deep\[1\]\.at"),
            (lambda: turn.state.update(a=1, b=bad), r"b\.deep\[1\]\.at"),
            (lambda: turn.update(lambda _: {"a": 1, "b": bad}), r"b\.deep\[1\]\.at"),
            (lambda: turn.emit(bad), r"chunk\.deep\[1\]\.at"),
        ):
            with pytest.raises(NotJson, match=path):
                give()
        with pytest.raises(NotJson, match=r"request\.deep\[1\]\.at"):
            await turn.effect("k", fine, bad)
        with pytest.raises(CommitTooLarge, match="message"):
            turn.append({"role": "assistant", "content": BIG})
        turn.append({"role": "assistant", "content": "kept"}, once="k")

    runtime = await small(harness, careful)
    await runtime.create("careful", session_id="s")
    assert (await runtime.send("s", "go")).text == "kept"
    session = await runtime.get("s")
    assert dict(session.document) == {}
    assert set(session.logs) == {"messages"}
    assert [each async for each in runtime.session("s").events(live=False) if each.type == "chunk"] == []


def three_of(give: Callable[[Turn, int], Any]) -> Callable[[Turn], Awaitable[Any]]:
    async def body(turn: Turn) -> Any:
        turn.append({"role": "assistant", "content": "part"})
        for number in range(3):
            given = give(turn, number)
            if isinstance(given, Awaitable):
                await given
        return "fine"

    return body


def half(number: int) -> str:
    return f"{number}" * (BUDGET // 2)


def each(times: int, give: Callable[..., None], value: Any) -> None:
    for _ in range(times):
        give(value)


async def part() -> str:
    return "y" * (BUDGET // 5)


TOGETHER: dict[str, tuple[Callable[[Turn], Awaitable[Any]], str]] = {
    "append": (three_of(lambda turn, n: turn.append({"role": "assistant", "content": half(n)})), "failed"),
    "set": (three_of(lambda turn, n: turn.state.update(**{f"f{n}": half(n)})), "failed"),
    "add": (three_of(lambda turn, n: turn.add("log", half(n))), "failed"),
    "emit": (three_of(lambda turn, n: each(9, turn.emit, half(n)[: BUDGET // 5])), "completed"),
    "emit many": (three_of(lambda turn, n: each(4000, turn.emit, f"{n}")), "completed"),
    "use many": (three_of(lambda turn, _: each(4000, turn.record_usage, "m")), "failed"),
    "models": (
        three_of(lambda turn, n: asyncio.gather(*(turn.effect(f"{n} {i}", part, kind="model") for i in range(4)))),
        "failed",
    ),
}


@on_disk
@pytest.mark.parametrize("what", TOGETHER)
async def test_what_is_too_much_together_ends_its_turn_by_itself(harness: OurHarness, what: str) -> None:
    """Each value could be kept; what is pending is more than a commit takes, and the run ends without it."""
    body, status = TOGETHER[what]
    runtime = await small(harness, program(name="much")(body))
    await runtime.create("much", session_id="s")
    outcome = await runtime.send("s", "go")
    assert outcome.status == status, outcome.error
    if status == "failed":
        error: Any = outcome.error
        assert error["category"] == "commit_budget_exceeded"
        assert [each["role"] for each in (await runtime.get("s")).messages] == ["user"]
    elif what.startswith("emit"):
        chunks = [item.data async for item in runtime.session("s").events(live=False) if item.type == "chunk"]
        assert len(chunks) == (27 if what == "emit" else 12_000)
    await check_over(runtime)


@on_disk
async def test_an_output_that_cannot_be_kept_fails_its_turn(harness: OurHarness) -> None:
    outputs: list[Any] = []

    @program
    async def gives(_: Turn) -> Any:
        return outputs[0]

    runtime = await small(harness, gives)
    await runtime.create("gives", session_id="s")
    for name, value in NASTY.items():
        outputs[:] = [value]
        outcome = await runtime.send("s", "go")
        fits = name in ("none", "empty", "nul", "deep")
        assert outcome.status == ("completed" if fits else "failed"), (name, outcome.error)
        await check_over(runtime)


@on_disk
async def test_what_a_tool_gives_that_cannot_be_kept_is_its_calls_error(harness: OurHarness) -> None:
    gives: list[Any] = []

    async def tool(_: Turn, __: Mapping[str, Any]) -> Any:
        if isinstance(gives[0], BaseException):
            raise gives[0]
        return gives[0]

    @program
    async def agent(turn: Turn) -> str:
        turn.append({"role": "assistant", "content": "", "tool_calls": [{"id": "c", "name": "t", "arguments": {}}]})
        await run_tools(turn, [Tool(name="t", run=tool)])
        return "done"

    runtime = await small(harness, agent)
    await runtime.create("agent", session_id="s")
    nasty = {**NASTY, **{f"raises {name}": made() for name, made in RAISED.items()}}
    for name, value in nasty.items():
        if isinstance(value, asyncio.CancelledError | Own | BaseExceptionGroup) and not isinstance(value, Exception):
            continue  # signals are not the call's own
        gives[:] = [value]
        outcome = await runtime.send("s", "go")
        assert outcome.output == "done", (name, outcome.error)
        message = (await runtime.get("s")).messages[-1]
        fits = name in ("none", "empty", "nul", "deep")
        assert ("error" in message.get("metadata", {})) is not fits, (name, message)
        await check_over(runtime)


@on_disk
async def test_results_that_are_too_much_together_become_errors_of_their_calls(harness: OurHarness) -> None:
    """Whoever awaits such a call hears what is on record."""
    heard: list[str] = []
    together = asyncio.Barrier(6)

    async def tool(_: Turn, __: Mapping[str, Any]) -> Any:
        await together.wait()
        return await part()

    @program
    async def agent(turn: Turn) -> str:
        if turn.text == "tools":
            calls: list[ToolCall] = [{"id": f"c{n}", "name": "t", "arguments": {}} for n in range(6)]
            turn.append({"role": "assistant", "content": "", "tool_calls": calls})
            await run_tools(turn, [Tool(name="t", run=tool)])
            return "done"

        async def call() -> Any:
            return await tool(turn, {})

        ends = await asyncio.gather(*(turn.effect(f"k{n}", call) for n in range(6)), return_exceptions=True)
        heard.extend("failed" if isinstance(end, EffectFailed) else "done" for end in ends)
        context = context_of(turn)
        known = [context.journal.find(Place("", 1, f"k{n}")) for n in range(6)]
        heard.extend("failed" if each is not None and each.error else "done" for each in known)
        return "done"

    runtime = await small(harness, agent)
    await runtime.create("agent", session_id="s")
    outcome = await runtime.send("s", "tools")
    assert outcome.output == "done", outcome.error
    said = results((await runtime.get("s")).messages)
    assert len(said) == 6
    assert (await runtime.send("s", "effects")).output == "done"
    assert heard[:6] == heard[6:]
    await check_over(runtime)


@on_disk
async def test_what_a_hook_makes_that_cannot_be_kept_fails_the_turn(harness: OurHarness) -> None:
    makes: list[Any] = []

    async def change(session: SessionView) -> Any:
        if isinstance(makes[0], BaseException):
            raise makes[0]
        if callable(makes[0]):
            return makes[0](session)
        return session.with_fields(a=makes[0])

    @program
    async def says(turn: Turn) -> None:
        turn.append({"role": "assistant", "content": "hi"})

    hooks = [on("before_save", change)]
    runtime = await small(harness, says, hooks=hooks)
    makes[:] = [lambda session: session]
    await runtime.create("says", session_id="s")
    nasty: dict[str, Any] = {**NASTY, **{f"raises {name}": made() for name, made in RAISED.items()}}
    nasty |= {
        "no session": lambda _: None,
        "title": lambda session: session.with_profile(title=BIG),
        "title surrogate": lambda session: session.with_profile(title=LONE),
        "tags": lambda session: session.with_profile(tags=5),
        "metadata": lambda session: session.with_metadata(a=object()),
        "message": lambda session: session.appended("messages", LONE),
    }
    for name, value in nasty.items():
        if isinstance(value, BaseException) and not isinstance(value, Exception):
            continue
        makes[:] = [value]
        outcome = await runtime.send("s", "go")
        if name not in ("none", "empty", "nul", "deep"):
            assert outcome.status == "failed", (name, outcome)
        await check_over(runtime)


@on_disk
@pytest.mark.parametrize("kind", ["interrupt", "abort"])
async def test_a_stop_ends_a_turn_whatever_it_said_and_whatever_its_reason(harness: OurHarness, kind: StopKind) -> None:
    begun = asyncio.Event()

    @program
    async def talks(turn: Turn) -> None:
        for _ in range(3):
            turn.append({"role": "assistant", "content": half(1)})
        begun.set()
        await asyncio.Event().wait()

    runtime = await small(harness, talks)
    await runtime.create("talks", session_id="s")
    for reason in ("r" * 4096, "quick\ttab", None):
        begun.clear()
        started = await runtime.session("s").start("go")
        await begun.wait()
        nasty: tuple[Any, ...] = (LONE, BIG, 5)
        for bad in nasty:
            with pytest.raises(InvalidInput, match="reason"):
                await runtime.session("s").stop(kind=kind, reason=bad)
        await runtime.session("s").stop(kind=kind, reason=reason)
        outcome: Outcome = await started.wait()
        assert outcome.status == ("interrupted" if kind == "interrupt" else "failed")
        await check_over(runtime)
    assert {each["role"] for each in (await runtime.get("s")).messages} == {"user"}


def test_a_record_keeps_of_an_error_what_can_be_kept() -> None:
    long: Any = error_record(ValueError("x" * 31_457_280))
    assert long["message"] == "x" * MOST_TEXT + "… (cut, 31,457,280 characters)"
    assert error_record(ValueError("a\ud83d b \ud83d\ude00")) == {"category": "ValueError", "message": "a\ufffd b 😀"}
    assert error_record(Mute()) == {"category": "Mute", "message": "(no text: RuntimeError)"}
    assert error_record(Odd("x"))["category"] == "Odd"
    details: Any = error_record(
        Open(
            "x",
            status=RunStatus.FAILED,
            at=datetime(2030, 1, 1, tzinfo=UTC),
            kept=[1],
            deep=nested(95),
            bad=object(),
            big=BIG,
        )
    )
    assert details["details"] == {"status": "failed", "at": "2030-01-01T00:00:00+00:00", "kept": [1]}
    assert details["left_out"] == ["deep", "bad", "big"]
    assert clipped(Text("x")) == "x"
    assert type(clipped(Text("x"))) is str
