"""The core of a turn, and programs that run in one."""

import pytest

from tenuto import Kind, RunStatus, SessionKey, Store, program
from tenuto.errors import CheckpointSaveFailed, InvalidInput
from tenuto.session.turn import LogChange, Turn, find_checkpoint
from tests.conftest import OurHarness


async def begun(store: Store, invocation_id: str = "inv-1") -> Turn:
    turn = await Turn.open(store, SessionKey(invocation_id, kind=Kind.INVOCATION))
    await turn.begin(invocation_id=invocation_id, correlation_id="corr-1")
    return turn


async def test_a_turn_writes_one_run_and_its_checkpoints_and_shows_no_session(store: Store) -> None:
    turn = await begun(store)
    for step in range(3):
        log = {"/log": LogChange(items=[step])}
        await turn.checkpoint(step=step, cursor=[step], document={"/n": step}, logs=log, schema_version="v1")
    await turn.finish(RunStatus.COMPLETED)
    (run,) = await store.runs.of_invocation("inv-1")
    assert (run.status, run.steps, run.correlation_id) == ("completed", 2, "corr-1")
    found = await find_checkpoint(store, "inv-1")
    assert found is not None
    assert (found.checkpoint.step, found.checkpoint.cursor, dict(found.checkpoint.document)) == (2, [2], {"/n": 2})
    assert found.logs == {"/log": [0, 1, 2]}
    assert not await store.exists(turn.key)


async def test_a_big_value_that_stays_the_same_is_written_once(harness: OurHarness) -> None:
    store = await harness.open()
    turn = await begun(store)
    big = ["word"] * 1000
    for step in range(5):
        document = {"/big": big, "/n": step}
        await turn.checkpoint(step=step, cursor=None, document=document, logs={}, schema_version="")
    assert len((await store.dump())["content"]) == 1
    later = await (await harness.open()).checkpoints.latest(turn.key)
    assert later is not None
    assert later.document["/big"] == big


async def test_an_ended_turn_can_write_no_more(store: Store) -> None:
    turn = await begun(store)
    await turn.finish(RunStatus.FAILED, {"category": "node_exception"})
    with pytest.raises(CheckpointSaveFailed) as refused:
        await turn.checkpoint(step=1, cursor=None, document={}, logs={}, schema_version="")
    assert refused.value.__cause__ is not None
    (run,) = await store.runs.of_invocation("inv-1")
    assert (run.status, run.error) == ("failed", {"category": "node_exception"})


async def test_an_invocation_without_checkpoint_has_none_to_find(store: Store) -> None:
    await begun(store)
    assert await find_checkpoint(store, "inv-1") is None
    assert await find_checkpoint(store, "unknown") is None


async def test_a_plain_function_is_a_program(store: Store) -> None:
    @program
    async def greet(turn: Turn) -> str:
        return f"hello from {turn.key.session_id}"

    @program(name="sour", version="2")
    async def fail(_: Turn) -> None:
        raise ValueError("no")

    turn = await begun(store)
    result = await greet.run(turn)
    assert (greet.name, greet.version, result.outcome, result.output) == ("greet", "1", "completed", "hello from inv-1")
    failed = await fail.run(turn)
    assert (fail.name, fail.version, failed.outcome) == ("sour", "2", "errored")
    assert isinstance(failed.error, ValueError)
    with pytest.raises(InvalidInput):
        program(version="")(fail._function)
