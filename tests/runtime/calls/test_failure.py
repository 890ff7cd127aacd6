"""Failures of calls: recorded with their type, and the same for the program when they happen and at every replay."""

import sys
from collections.abc import Awaitable, Callable
from types import ModuleType
from typing import Any

import pytest

from tenuto.errors import EffectFailed, InvalidInput, SessionNotFound
from tenuto.messages import ToolCall
from tenuto.runtime.calls.failure import exception_of, failure_record
from tenuto.runtime.program.program import program
from tenuto.runtime.program.tool_calls import run_tools
from tenuto.runtime.program.tool_function import tool
from tenuto.runtime.program.turn import Turn
from tests.conftest import OurHarness
from tests.runtime.runtimes import Database, in_memory, results

SECRET = "sk-000"


class RateLimited(Exception):
    """What a provider's client raises: with attributes, and with what cannot be stored."""

    def __init__(self, message: str, *, status_code: int, response: object) -> None:
        super().__init__(message)
        self.status_code = status_code
        self.response = response
        self.body = {"error": {"code": "slow_down"}}
        self.api_key = self.Authorization = SECRET


class Stubborn(Exception):
    def __init__(self, *, reason: str) -> None:
        self.reason = [object(), reason]

    def __str__(self) -> str:
        return f"stubborn: {self.reason[1]}"


class Nested:
    class Refused(Exception):
        pass


def raising(error: Exception, calls: list[str] | None = None) -> Callable[[], Awaitable[Any]]:
    async def call() -> Any:
        if calls is not None:
            calls.append(type(error).__name__)
        raise error

    return call


async def test_a_program_catches_the_same_type_when_a_call_fails_and_at_a_replay(harness: OurHarness) -> None:
    calls: list[str] = []
    seen: list[Any] = []
    refused = RateLimited("slow down", status_code=429, response=object())

    @program
    async def asks(turn: Turn) -> None:
        try:
            await turn.model(raising(refused, calls), retries=0)
        except RateLimited as error:
            seen.append((type(error), str(error), error.args, error.status_code, error.body))
        try:
            await turn.effect("look", raising(KeyError("order"), calls), idempotent=True)
        except KeyError as error:
            seen.append(error.args)
        try:
            await turn.effect("nested", raising(Nested.Refused("no"), calls), raises=(Nested.Refused, OSError))
        except Nested.Refused as error:
            seen.append(str(error))
        try:
            await turn.effect("other", raising(ValueError("odd"), calls), raises=(Nested.Refused, OSError))
        except EffectFailed as error:
            seen.append(error.message)
        try:
            await turn.effect("gone", raising(SessionNotFound("not there", key="k"), calls), raises=SessionNotFound)
        except SessionNotFound as error:
            seen.append((error.message, error.details()["key"]))
        await turn.wait("go")

    database = Database(harness)
    runtime = await database.runtime(asks)
    await runtime.create("asks", session_id="s")
    outcome = await runtime.send("s", "hi")
    await (await database.runtime(asks)).answer(outcome.waits[0], 1)
    once = [
        (RateLimited, "slow down", ("slow down",), 429, {"error": {"code": "slow_down"}}),
        ("order",),
        "no",
        "The effect other (step 1) failed: ValueError: odd",
        ("not there", "k"),
    ]
    assert seen == once * 2
    assert calls == ["RateLimited", "KeyError", "Refused", "ValueError", "SessionNotFound"]
    assert SECRET not in str(await runtime.store.effects.list("s"))


@in_memory
async def test_an_exception_that_cannot_be_made_again_is_effect_failed_both_times(harness: OurHarness) -> None:
    class Local(Exception):
        pass

    seen: list[str] = []

    @program
    async def asks(turn: Turn) -> None:
        for key, error in (("local", Local("here")), ("stubborn", Stubborn(reason="because"))):
            with pytest.raises(EffectFailed) as failure:
                await turn.effect(key, raising(error), idempotent=True)
            seen.append(failure.value.message)
            assert failure.value.__cause__ is (None if turn.resumed else error)
        await turn.wait("go")

    runtime = await Database(harness).runtime(asks)
    await runtime.create("asks", session_id="s")
    outcome = await runtime.send("s", "hi")
    await runtime.answer(outcome.waits[0], 1)
    assert seen[:2] == [
        "The effect local (step 1) failed: Local: here",
        "The effect stubborn (step 1) failed: Stubborn: stubborn: because",
    ]
    assert seen[2:] == seen[:2]


@in_memory
async def test_the_result_of_a_tool_that_failed_does_not_show_types(harness: OurHarness) -> None:
    @tool(idempotent=True)
    async def look_up() -> str:
        """Look it up."""
        raise RateLimited("slow down", status_code=429, response=None)

    @program
    async def asks(turn: Turn) -> None:
        call: ToolCall = {"id": "c1", "name": "look_up", "arguments": {}}
        turn.append({"role": "assistant", "content": "", "tool_calls": [call]})
        await run_tools(turn, [look_up])

    runtime = await Database(harness).runtime(asks)
    await runtime.create("asks", session_id="s")
    assert (await runtime.send("s", "hi")).completed
    messages = await runtime.session("s").messages()
    assert results(messages)["c1"].startswith("Error: ")
    assert messages[-1]["metadata"]["error"] == {"category": "RateLimited", "message": "slow down"}  # type: ignore[typeddict-item]


@in_memory
@pytest.mark.parametrize("raises", [KeyError("x"), "KeyError", (KeyError, 7), BaseException, [KeyError]])
async def test_what_is_not_an_exception_type_is_refused_before_the_call(harness: OurHarness, raises: Any) -> None:
    calls: list[str] = []

    @program
    async def asks(turn: Turn) -> None:
        with pytest.raises(InvalidInput, match="raises must be an exception type"):
            await turn.effect("k", raising(KeyError("x"), calls), raises=raises)

    runtime = await Database(harness).runtime(asks)
    await runtime.create("asks", session_id="s")
    assert (await runtime.send("s", "hi")).completed
    assert calls == []


@pytest.fixture
def main(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Stand in for a program that runs as a script, `python cash_desk.py`."""
    module = ModuleType("__main__")
    module.__file__ = "/srv/cash_desk.py"
    monkeypatch.setitem(sys.modules, "__main__", module)
    return module


def test_an_exception_of_a_script_is_found_where_the_script_is_imported(
    main: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Refused(Exception):
        pass

    Refused.__module__, Refused.__qualname__ = "__main__", "Refused"
    main.Refused = Refused  # type: ignore[attr-defined]
    record = failure_record(Refused("no"))
    assert type(exception_of(record)) is Refused
    imported = ModuleType("cash_desk")
    imported.Refused = type("Refused", (Exception,), {"__module__": "cash_desk"})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cash_desk", imported)
    assert type(exception_of(record)) is imported.Refused


@pytest.mark.parametrize(
    "name",
    [
        *("no_such_module:Error", "os:system", "os:path", "builtins:int", "builtins:SystemExit", "json", ":", ""),
        "builtins:BaseException",
    ],
)
def test_a_record_raises_exceptions_of_loaded_modules_only(name: str) -> None:
    record = {"category": "x", "message": "y", "raised": {"type": name, "args": []}}
    assert exception_of(record) is None
    assert "no_such_module" not in sys.modules


@pytest.mark.parametrize(
    "error",
    [
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"),
        OSError(2, "No such file", "/tmp/x"),
        ExceptionGroup("many", [ValueError("one")]),
        StopIteration(3),
        KeyError(),
        ValueError(float("nan"), {1, 2}, b"bytes", "\ud83d"),
        TimeoutError(),
    ],
    ids=lambda each: type(each).__name__,
)
def test_the_record_of_any_exception_can_be_written_and_read(error: Exception) -> None:
    record = failure_record(error)
    again = exception_of(record)
    assert again is None or type(again) is type(error)
    if again is not None:
        assert str(again) is not None
