"""Every log record within a turn has the turn's ids, whoever writes it and wherever it goes."""

import asyncio
import copy
import io
import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from logging.handlers import QueueHandler
from queue import SimpleQueue
from typing import Any

import pytest

from tenuto import Turn, program, run_tools, tool
from tenuto.messages import ToolCall
from tenuto.observe import log_fields
from tenuto.testing import memory_runtime
from tests.observe.graphs import Count, line

logger = logging.getLogger("somebody.elses.library")
NAMES = ("session_id", "tenant", "run_id", "invocation_id", "correlation_id", "attempt", "program")


class Kept(logging.Handler):
    """Keeps records, without any filter."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def said(self, message: str) -> dict[str, Any]:
        """Return the ids of the one record with this message."""
        (found,) = [record for record in self.records if record.getMessage() == message]
        return {name: vars(found)[name] for name in NAMES if hasattr(found, name)}


@pytest.fixture
def kept() -> Iterator[Kept]:
    handler = Kept()
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    with log_fields.install():
        yield handler
    logger.removeHandler(handler)


@tool
def blocks(city: str) -> str:
    """Runs in a thread."""
    logger.info("in a thread")
    return city


@tool
async def awaits(city: str) -> str:
    """Runs in the loop."""
    logger.info("in a tool")
    return city


@program
async def talks(turn: Turn) -> str:
    logger.info("in the program")

    async def ask() -> str:
        logger.info("in a call")
        return "answer"

    async def apart() -> None:
        logger.info("in a task")

    await turn.effect("ask", ask, kind="model")
    await asyncio.create_task(apart())
    asked: list[ToolCall] = [
        {"id": "c1", "name": "blocks", "arguments": {"city": "Bonn"}},
        {"id": "c2", "name": "awaits", "arguments": {"city": "Kiel"}},
    ]
    turn.append({"role": "assistant", "content": "", "tool_calls": asked})
    await run_tools(turn, [blocks, awaits])
    return "done"


async def test_all_that_is_written_within_a_turn_has_its_ids(kept: Kept) -> None:
    async with memory_runtime(talks) as runtime:
        session = await runtime.create(talks, session_id="s-1")
        outcome = await session.send("hi")
        assert outcome.run_id is not None
        run = await runtime.store.runs.get(outcome.run_id, tenant="")
    assert run is not None
    wanted = {
        "session_id": "s-1",
        "tenant": "",
        "run_id": outcome.run_id,
        "invocation_id": run.invocation_id,
        "correlation_id": run.correlation_id,
        "attempt": 1,
        "program": "talks@1",
    }
    for message in ("in the program", "in a call", "in a task", "in a thread", "in a tool"):
        assert kept.said(message) == wanted, message


async def test_a_resumed_turn_keeps_the_invocation_and_has_its_own_run(kept: Kept) -> None:
    @program
    async def waits(turn: Turn) -> None:
        logger.info("resumed" if turn.resumed else "first")
        await turn.wait("go")

    async with memory_runtime(waits) as runtime:
        session = await runtime.create(waits)
        suspended = await session.send("hi")
        answered = await runtime.answer(suspended.waits[0].wait_id, None)
    first, again = kept.said("first"), kept.said("resumed")
    assert answered.outcome is not None
    assert (first["run_id"], again["run_id"]) == (suspended.run_id, answered.outcome.run_id)
    assert first["run_id"] != again["run_id"]
    for name in ("session_id", "invocation_id", "correlation_id"):
        assert first[name] == again[name]


async def test_turns_that_run_at_once_and_within_each_other_are_told_apart(kept: Kept) -> None:
    inner = program(name="inner")(_inner)

    @program
    async def outer(turn: Turn) -> None:
        logger.info("before %s", turn.session_id)
        await runtime.send(f"inner-{turn.session_id}", "hi")
        logger.info("after %s", turn.session_id)

    runtime = memory_runtime([outer, inner])
    async with runtime:
        for name in ("a", "b"):
            await runtime.create(outer, session_id=name)
            await runtime.create(inner, session_id=f"inner-{name}")
        await asyncio.gather(runtime.send("a", "hi"), runtime.send("b", "hi"))
        logger.info("outside")
    for name in ("a", "b"):
        before, after = kept.said(f"before {name}"), kept.said(f"after {name}")
        assert before == after
        assert before["session_id"] == name
        assert kept.said(f"in inner-{name}")["session_id"] == f"inner-{name}"
        assert kept.said(f"in inner-{name}")["program"] == "inner@1"
    assert kept.said("outside") == {}


async def _inner(turn: Turn) -> None:
    logger.info("in %s", turn.session_id)


async def test_a_graph_that_runs_by_itself_names_its_invocation_and_its_session(kept: Kept) -> None:
    async def talk(state: Any) -> dict[str, Any]:
        logger.info("in a node")
        return {}

    outcome = await line("a", body=talk).run(Count(), session_id="s-2", correlation_id="c-2")
    ids = {"session_id": "s-2", "invocation_id": outcome.invocation_id, "correlation_id": "c-2", "tenant": ""}
    assert kept.said("in a node") == ids


async def test_a_graph_without_a_session_within_a_turn_belongs_to_the_turn(kept: Kept) -> None:
    async def talk(state: Any) -> dict[str, Any]:
        logger.info("in a node")
        return {}

    @program
    async def runs(turn: Turn) -> None:
        await line("a", body=talk).run(Count(), correlation_id="c-3")
        logger.info("after it")

    async with memory_runtime(runs) as runtime:
        await runtime.create(runs, session_id="s-3")
        outcome = await runtime.send("s-3", "hi")
    inside, after = kept.said("in a node"), kept.said("after it")
    assert (inside["session_id"], inside["run_id"], inside["correlation_id"]) == ("s-3", outcome.run_id, "c-3")
    assert inside["invocation_id"] != after["invocation_id"]
    assert after["session_id"] == "s-3"


@program
async def says(turn: Turn) -> None:
    logger.info("told", extra={"session_id": "mine", "order": 7})
    logger.info("plain")


async def test_names_given_by_the_caller_win_and_are_never_refused(kept: Kept) -> None:
    async with memory_runtime(says) as runtime:
        await runtime.create(says, session_id="s")
        outcome = await runtime.send("s", "hi")
    assert outcome.completed, outcome.error
    told, plain = [record for record in kept.records if record.getMessage() in ("told", "plain")]
    assert (vars(told)["session_id"], vars(told)["order"], vars(told)["run_id"]) == ("mine", 7, outcome.run_id)
    assert vars(plain)["session_id"] == "s"


async def test_formatters_copies_and_queues_find_the_ids(kept: Kept) -> None:
    queue: SimpleQueue[Any] = SimpleQueue()
    handler, written = QueueHandler(queue), io.StringIO()
    shown = logging.StreamHandler(written)
    shown.setFormatter(logging.Formatter("{session_id} {message}", style="{"))
    logger.addHandler(handler)
    logger.addHandler(shown)
    try:
        async with memory_runtime(says) as runtime:
            await runtime.create(says, session_id="s")
            await runtime.send("s", "hi")
    finally:
        logger.removeHandler(handler)
        logger.removeHandler(shown)
    assert written.getvalue() == "mine told\ns plain\n"
    queued = [queue.get_nowait() for _ in range(2)]
    assert [each.session_id for each in queued] == ["mine", "s"]
    plain = kept.records[-1]
    for each in (dict(vars(plain)), vars(copy.copy(plain)), json.loads(json.dumps(vars(plain), default=str))):
        assert each["session_id"] == "s"


async def test_a_failure_is_logged_by_the_runtime_with_the_same_ids(kept: Kept) -> None:
    @program
    async def fails(turn: Turn) -> None:
        raise ValueError

    engine = logging.getLogger("tenuto.runtime")
    engine.addHandler(kept)
    try:
        async with memory_runtime(fails) as runtime:
            await runtime.create(fails, session_id="s")
            outcome = await runtime.send("s", "hi")
    finally:
        engine.removeHandler(kept)
    (record,) = [each for each in kept.records if each.levelno == logging.ERROR]
    assert (vars(record)["session_id"], vars(record)["run_id"]) == ("s", outcome.run_id)


class Numbered(logging.LogRecord):
    """A record of somebody else's factory."""

    number = 7


def test_another_factory_still_makes_the_records_and_removing_undoes_it() -> None:
    before = logging.getLogRecordFactory()
    logging.setLogRecordFactory(Numbered)
    try:
        fields = log_fields.install()
        assert isinstance(logging.makeLogRecord({}), Numbered)
        fields.remove()
        fields.remove()
        assert logging.getLogRecordFactory() is Numbered
    finally:
        logging.setLogRecordFactory(before)


async def test_what_was_removed_under_another_factory_adds_nothing_more() -> None:
    before, handler = logging.getLogRecordFactory(), Kept()
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    fields = log_fields.install()
    logging.setLogRecordFactory(lambda *args, **named: fields(*args, **named))
    try:
        fields.remove()
        async with memory_runtime(says) as runtime:
            await runtime.create(says, session_id="s")
            await runtime.send("s", "hi")
    finally:
        logging.setLogRecordFactory(before)
        logger.removeHandler(handler)
    assert handler.said("plain") == {}


def test_it_does_not_need_the_extra() -> None:
    code = """
import sys, logging
sys.modules['opentelemetry'] = None
from tenuto.messages import ToolCall
from tenuto.observe import log_fields
plain = logging.makeLogRecord({})
with log_fields.install():
    assert vars(logging.makeLogRecord({})).keys() == vars(plain).keys()
"""
    subprocess.run([sys.executable, "-c", code], check=True)
