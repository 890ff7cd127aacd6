"""An exception in a turn: logged once with traceback and ids, on the outcome, and its frames in the run's record."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tenuto import SessionRuntime, Store, program
from tenuto.errors import EffectFailed, NodeException, RunFailed, StepBudgetExceeded
from tenuto.runtime.change.hooks import on
from tenuto.runtime.program.tool import Tool
from tenuto.runtime.program.turn import Turn
from tenuto.runtime.session.session_view import SessionView
from tenuto.runtime.stream.notices import Notice, RunEnded
from tenuto.testing.agent import Script, ScriptedAgent, calls
from tenuto.writing.error_record import frames_of
from tests.graph.desk import desk
from tests.runtime.runtimes import opened

HERE = __file__
SECRET = "sk-very-secret"


def look_up(table: dict[str, str]) -> str:
    """Fail as code does that was written by a person."""
    secret = SECRET
    return table["missing" if secret else ""]


@program
async def blind(turn: Turn) -> str:
    return look_up({})


@program
async def caller(turn: Turn) -> Any:
    return await turn.effect("ask", refused)


async def refused() -> None:
    raise ConnectionRefusedError("nobody there")


@program
async def endless(turn: Turn) -> None:
    async for _ in turn.steps():
        turn.append("again")


def logged(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """Return what was logged of failures."""
    return [each for each in caplog.records if each.name.startswith("tenuto.") and each.levelno >= logging.WARNING]


async def test_a_mistake_in_a_program_is_logged_once_with_its_traceback_and_ids(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    runtime = await opened(store, [blind])
    await runtime.create(blind, session_id="s")
    outcome = await runtime.send("s", "go")
    (record,) = logged(caplog)
    assert record.levelno == logging.ERROR
    assert record.exc_info is not None
    assert record.exc_info[1] is outcome.exception
    assert 'return table["missing"' in caplog.text
    run = await store.runs.get(outcome.run_id or "")
    assert run is not None
    found = {name: record.__dict__[name] for name in ("session_id", "tenant", "run_id", "invocation_id", "attempt")}
    assert found == {
        "session_id": "s",
        "tenant": "",
        "run_id": run.run_id,
        "invocation_id": run.invocation_id,
        "attempt": 1,
    }
    assert record.__dict__["program"] == "blind@1"


async def test_the_outcome_has_the_exception_and_its_result_raises_from_it(store: Store) -> None:
    runtime = await opened(store, [blind])
    await runtime.create(blind, session_id="s")
    outcome = await runtime.send("s", "go")
    assert isinstance(outcome.exception, KeyError)
    with pytest.raises(RunFailed) as failed:
        outcome.result()
    assert failed.value.__cause__ is outcome.exception
    stored = await runtime.outcome(outcome.input_id or "")
    assert stored.exception is None
    assert stored == outcome
    with pytest.raises(RunFailed) as again:
        stored.result()
    assert again.value.__cause__ is None


async def test_the_frames_are_in_the_record_of_the_run_and_nowhere_else(store: Store) -> None:
    heard: list[Notice] = []
    runtime = await opened(store, [blind], listeners=[heard.append])
    await runtime.create(blind, session_id="s")
    outcome = await runtime.send("s", "go")
    frames = outcome.error["traceback"]
    place = look_up.__code__.co_firstlineno + 3
    assert frames[-1] == f"{HERE}:{place} in look_up"
    assert frames[-2].startswith(f"{HERE}:")
    assert frames[-2].endswith(" in blind")
    run = await store.runs.get(outcome.run_id or "")
    assert run is not None
    assert run.error == outcome.error
    assert SECRET not in json.dumps(outcome.error)
    assert "table[" not in json.dumps(outcome.error)
    ended = heard[-1]
    assert isinstance(ended, RunEnded)
    assert ended.error == {"category": "KeyError", "message": "'missing'"}
    events = [item.data async for item in _stored(runtime)]
    assert HERE not in json.dumps(events, default=str)
    with pytest.raises(RunFailed) as failed:
        outcome.result()
    assert "error" not in failed.value.public_details()


async def _stored(runtime: SessionRuntime) -> AsyncIterator[Any]:
    async for item in runtime.session("s").events(live=False):
        yield item


async def test_a_runtime_without_tracebacks_stores_no_frames_and_still_has_the_exception(store: Store) -> None:
    runtime = await opened(store, [blind], tracebacks=False)
    await runtime.create(blind, session_id="s")
    outcome = await runtime.send("s", "go")
    assert outcome.error == {"category": "KeyError", "message": "'missing'"}
    assert isinstance(outcome.exception, KeyError)


async def test_a_parent_is_told_of_its_childs_error_without_the_frames(store: Store) -> None:
    answers: list[Any] = []

    @program
    async def asks(turn: Turn) -> None:
        answers.append(await turn.child(blind, "go"))

    runtime = await opened(store, [asks, blind])
    await runtime.create(asks, session_id="s")
    await runtime.send("s", "go")
    await runtime.drain()
    (answer,) = answers
    assert answer.error == {"category": "KeyError", "message": "'missing'"}


async def test_an_effect_that_a_program_does_not_catch_is_logged_with_what_it_was_caused_by(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    runtime = await opened(store, [caller])
    await runtime.create(caller, session_id="s")
    outcome = await runtime.send("s", "go")
    (record,) = logged(caplog)
    assert (record.levelno, record.__dict__["effect"]) == (logging.ERROR, "ask")
    assert "in refused" in caplog.text
    assert isinstance(outcome.exception, EffectFailed)
    assert isinstance(outcome.exception.__cause__, ConnectionRefusedError)
    assert [each.split(" in ")[1] for each in outcome.error["traceback"]] == ["caller", "refused"]


async def test_what_a_tool_raises_is_logged_once_and_told_to_the_model(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    async def run(turn: Turn, arguments: Any) -> str:
        return look_up({})

    agent = ScriptedAgent(Script(calls(("c1", "find", {})), "sorry"), [Tool(name="find", run=run)])
    runtime = await opened(store, [agent])
    await runtime.create("agent", session_id="s")
    outcome = await runtime.send("s", "go")
    assert outcome.completed
    (record,) = logged(caplog)
    assert (record.levelno, record.__dict__["tool"]) == (logging.WARNING, "find")
    assert record.__dict__["run_id"] == outcome.run_id
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], KeyError)
    assert HERE not in json.dumps(list((await runtime.get("s")).messages))


async def test_a_node_that_fails_is_named_and_its_exception_is_the_cause(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    async def read(state: Any) -> dict[str, Any]:
        return {"total": look_up({})}

    runtime = await desk(store, read, checkpoints=False)
    await runtime.create("desk", session_id="s")
    outcome = await runtime.send("s", "go")
    (record,) = logged(caplog)
    assert (record.levelno, record.__dict__["node"]) == (logging.ERROR, "n0")
    assert isinstance(outcome.exception, NodeException)
    assert isinstance(outcome.exception.__cause__, KeyError)
    assert outcome.error["traceback"][-1].endswith(" in look_up")


async def test_a_limit_of_the_turn_is_one_line_without_a_traceback(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    runtime = await opened(store, [endless], steps=2)
    await runtime.create(endless, session_id="s")
    outcome = await runtime.send("s", "go")
    assert isinstance(outcome.exception, StepBudgetExceeded)
    (record,) = logged(caplog)
    assert (record.levelno, record.exc_info) == (logging.WARNING, None)


async def test_a_hook_that_fails_a_turn_is_logged_once(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    async def refuse(session: SessionView) -> SessionView:
        raise LookupError("not this one")

    @program
    async def fine(turn: Turn) -> None:
        turn.append("fine")

    runtime = await opened(store, [fine], hooks=[on("after_action", refuse)])
    await runtime.create(fine, session_id="s")
    outcome = await runtime.send("s", "go")
    assert isinstance(outcome.exception, LookupError)
    (record,) = logged(caplog)
    assert record.levelno == logging.ERROR


async def test_a_stopped_and_a_suspended_turn_are_no_failures(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    begun = asyncio.Event()

    @program
    async def waits(turn: Turn) -> None:
        if turn.text == "wait":
            await turn.wait("later")
        begun.set()
        await asyncio.Event().wait()

    runtime = await opened(store, [waits])
    await runtime.create(waits, session_id="s")
    assert (await runtime.send("s", "wait")).suspended
    handle = await runtime.session("s").start("run")
    await begun.wait()
    await runtime.session("s").stop()
    outcome = await handle.wait()
    assert outcome.status == "interrupted"
    assert (outcome.exception, logged(caplog)) == (None, [])


def test_frames_are_bounded_and_end_where_it_was_raised() -> None:
    def deep(left: int) -> None:
        if not left:
            raise ValueError("deep")
        deep(left - 1)

    with pytest.raises(ValueError, match="deep") as raised:
        deep(200)
    frames = frames_of(raised.value)
    assert len(frames) == 20
    assert frames[-1] == f"{HERE}:{deep.__code__.co_firstlineno + 2} in {deep.__qualname__}"


def test_the_frames_of_a_group_are_those_of_its_first_exception() -> None:
    group = ExceptionGroup("two", [_raised(KeyError("a")), _raised(KeyError("b"))])
    with pytest.raises(ExceptionGroup) as raised:
        raise group
    assert frames_of(raised.value)[-1].endswith(" in _raised")


def _raised(error: Exception) -> Exception:
    try:
        raise error
    except Exception as caught:
        return caught


def test_a_chain_of_causes_that_is_a_ring_ends() -> None:
    one, two = ValueError("one"), ValueError("two")
    one.__cause__, two.__cause__ = two, one
    assert frames_of(one) == []


def test_a_name_that_cannot_be_stored_is_cut_and_cleaned() -> None:
    scope: dict[str, Any] = {}
    name = "\udce9" + "x" * 500
    exec(compile("def fails():\n    raise ValueError()\n", name, "exec"), scope)
    with pytest.raises(ValueError) as raised:
        scope["fails"]()
    text = frames_of(raised.value)[-1]
    json.dumps(text).encode()
    assert len(text.encode("utf-8")) < 400
    assert Path(HERE).name not in text
