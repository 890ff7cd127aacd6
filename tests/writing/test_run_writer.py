"""The core of a turn, and programs that run in one."""

from typing import Any

import pytest

from tenuto import EndRun, Kind, RunStatus, SessionKey, Store, program
from tenuto.codec import JSON
from tenuto.errors import CheckpointNotFound, InvalidInput, RunFailed, RunNotLive
from tenuto.graph.checkpoint.stored_run import find_resumable
from tenuto.runtime.program.turn import Turn
from tenuto.runtime.runtime import SessionRuntime
from tenuto.writing.changes import CheckpointDraft, LogChange
from tenuto.writing.run_writer import RunWriter
from tests.conftest import OurHarness


async def begun(store: Store, invocation_id: str = "inv-1") -> RunWriter:
    turn = RunWriter(store, SessionKey(invocation_id, kind=Kind.INVOCATION))
    turn.begins(invocation_id=invocation_id, correlation_id="corr-1")
    await turn.write()
    return turn


async def checkpoint(turn: RunWriter, step: int, document: dict[str, JSON], **logs: LogChange) -> None:
    point = CheckpointDraft(step=step, cursor=[step], document=document, schema_version="v1")
    await turn.write(point=point, logs={f"/{name}": change for name, change in logs.items()})


async def test_a_turn_writes_one_run_and_its_checkpoints_and_shows_no_session(store: Store) -> None:
    turn = await begun(store)
    for step in range(3):
        await checkpoint(turn, step, {"/n": step}, log=LogChange(items=[step]))
    await turn.write(end=EndRun(status=RunStatus.COMPLETED))
    (run,) = await store.runs.of_invocation("inv-1")
    assert (run.status, run.steps, run.correlation_id) == ("completed", 2, "corr-1")
    _, found, _ = await find_resumable(store, "inv-1")
    assert (found.checkpoint.step, found.checkpoint.cursor, dict(found.checkpoint.document)) == (2, [2], {"/n": 2})
    assert found.logs == {"/log": [0, 1, 2]}
    assert not await store.exists(turn.key)


async def test_a_big_value_that_stays_the_same_is_written_once(harness: OurHarness) -> None:
    store = await harness.open()
    turn = await begun(store)
    big = ["word"] * 1000
    for step in range(5):
        document = {"/big": big, "/n": step}
        await checkpoint(turn, step, document)
    assert len((await store.dump())["content"]) == 1
    later = await (await harness.open()).checkpoints.latest(turn.key)
    assert later is not None
    assert later.document["/big"] == big


async def test_an_ended_turn_can_write_no_more(store: Store) -> None:
    turn = await begun(store)
    await turn.write(end=EndRun(status=RunStatus.FAILED, error={"category": "node_exception"}))
    with pytest.raises(RunNotLive):
        await checkpoint(turn, 1, {})
    (run,) = await store.runs.of_invocation("inv-1")
    assert (run.status, run.error) == ("failed", {"category": "node_exception"})


async def test_an_invocation_without_checkpoint_has_none_to_find(store: Store) -> None:
    await begun(store)
    for invocation_id in ("inv-1", "unknown"):
        with pytest.raises(CheckpointNotFound):
            await find_resumable(store, invocation_id)


async def test_a_plain_function_is_a_program_and_its_output_is_the_outcomes(store: Store) -> None:
    @program
    async def greet(turn: Turn) -> str:
        return f"hello from {turn.session_id}"

    @program(name="sour", version="2")
    async def fail(turn: Turn) -> None:
        raise ValueError("no")

    assert [(each.name, each.version) for each in (greet, fail)] == [("greet", "1"), ("sour", "2")]
    runtime = SessionRuntime(store, [greet, fail])
    await runtime.create("greet", session_id="a")
    await runtime.create("sour", session_id="b")
    outcome = await runtime.send("a", "go")
    assert (outcome.status, outcome.output, outcome.reply) == ("completed", "hello from a", None)
    assert outcome.result() == "hello from a"
    failed = await runtime.send("b", "go")
    assert (failed.status, failed.error) == ("failed", {"category": "ValueError", "message": "no"})
    with pytest.raises(RunFailed):
        failed.result()
    with pytest.raises(InvalidInput):
        program(version="")(fail._function)


async def test_what_is_no_program_is_refused(store: Store) -> None:
    wrong: Any = object()
    with pytest.raises(InvalidInput):
        SessionRuntime(store, [wrong])
