"""The writer of a run: its commits, its checkpoints, and where a stored run is found again."""

import pytest

from tenuto import Store
from tenuto.codec import JSON
from tenuto.errors import CheckpointNotFound, RunNotLive
from tenuto.graph.checkpoint.stored_run import find_resumable
from tenuto.model.commit import EndRun
from tenuto.model.run import RunStatus
from tenuto.model.session import Kind, SessionKey
from tenuto.writing.changes import CheckpointDraft, LogChange, RunWrite
from tenuto.writing.run_writer import RunWriter
from tests.conftest import OurHarness


async def begun(store: Store, invocation_id: str = "inv-1") -> RunWriter:
    turn = RunWriter(store, SessionKey(invocation_id, kind=Kind.INVOCATION))
    turn.begins(invocation_id=invocation_id, correlation_id="corr-1")
    await turn.write(RunWrite())
    return turn


async def checkpoint(turn: RunWriter, step: int, document: dict[str, JSON], **logs: LogChange) -> None:
    point = CheckpointDraft(step=step, cursor=[step], document=document, schema_version="v1")
    await turn.write(RunWrite(point=point, logs={f"/{name}": change for name, change in logs.items()}))


async def test_a_turn_writes_one_run_and_its_checkpoints_and_shows_no_session(store: Store) -> None:
    turn = await begun(store)
    for step in range(3):
        await checkpoint(turn, step, {"/n": step}, log=LogChange(items=[step]))
    await turn.write(RunWrite(end=EndRun(status=RunStatus.COMPLETED)))
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
    await turn.write(RunWrite(end=EndRun(status=RunStatus.FAILED, error={"category": "node_exception"})))
    with pytest.raises(RunNotLive):
        await checkpoint(turn, 1, {})
    (run,) = await store.runs.of_invocation("inv-1")
    assert (run.status, run.error) == ("failed", {"category": "node_exception"})


async def test_an_invocation_without_checkpoint_has_none_to_find(store: Store) -> None:
    await begun(store)
    for invocation_id in ("inv-1", "unknown"):
        with pytest.raises(CheckpointNotFound):
            await find_resumable(store, invocation_id)
