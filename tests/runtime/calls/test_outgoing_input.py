"""Input that a program queues: in its commit, once, for a session of its tenant, and refused where nobody takes it."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tenuto.actions import ChangeModel, CompleteSession
from tenuto.errors import EffectMismatch, InvalidInput, TenutoError
from tenuto.model.outgoing_item import OutgoingStatus
from tenuto.model.session import SessionKey
from tenuto.runtime.program.program import program
from tenuto.runtime.program.tool import Tool
from tenuto.runtime.program.turn import Turn
from tenuto.runtime.runtime import SessionRuntime
from tenuto.runtime.session.session_view import SessionView
from tests.conftest import OurHarness
from tests.runtime.runtimes import Database, Gate, agent, in_memory, on_disk


@program
async def listener(turn: Turn) -> str:
    return turn.text


async def heard(runtime: SessionRuntime, session_id: str) -> list[str]:
    """Return what a session was told, in order."""
    return [str(each["content"]) for each in (await runtime.get(session_id)).messages if each["role"] == "user"]


async def refusals(runtime: SessionRuntime, session_id: str) -> list[Any]:
    """Return what a session's stream says of what its targets refused."""
    items = runtime.session(session_id).events(live=False)
    return [each.data async for each in items if each.name == "outgoing_refused"]


@on_disk
async def test_a_message_reaches_another_session_once_the_turn_has_committed(harness: OurHarness) -> None:
    asked: list[str] = []

    @program
    async def teller(turn: Turn) -> None:
        if turn.text == "go":
            asked.append(turn.enqueue("psst", session="other"))
            asked.append(turn.enqueue("again"))

    database = Database(harness)
    runtime = await database.runtime(teller, listener)
    await runtime.create(teller, session_id="t")
    await runtime.create(listener, session_id="other")
    assert (await runtime.session("t").send("go")).completed
    assert [(await runtime.outcome(each)).status for each in asked] == ["queued", "queued"]
    assert await heard(runtime, "other") == []
    await runtime.drain()
    outcome = await runtime.outcome(asked[0])
    assert (outcome.status, outcome.output, outcome.session_id) == ("completed", "psst", "other")
    assert await heard(runtime, "other") == ["psst"]
    assert await heard(runtime, "t") == ["go", "again"]


@on_disk
async def test_a_program_that_runs_again_queues_nothing_twice(harness: OurHarness) -> None:
    """After a suspension in the same step, by place, by key, and inside a tool."""
    ids: list[list[str]] = []

    async def ring(turn: Turn, _: Mapping[str, Any]) -> str:
        return turn.enqueue("ring", session="other")

    @program
    async def teller(turn: Turn) -> str:
        if turn.text == "lasting":
            return ""
        found = [turn.enqueue("one", session="other"), turn.enqueue("two", session="other")]
        found += [turn.enqueue("three", session="other", key="three"), turn.enqueue("lasting", even_if_failed=True)]
        found.append(turn.enqueue("three", session="other", key="three"))
        ids.append(found)
        return str(await turn.wait("go on"))

    runtime = await Database(harness).runtime(teller, listener)
    await runtime.create(teller, session_id="t")
    await runtime.create(listener, session_id="other")
    (wait,) = (await runtime.session("t").send("go")).waits
    await runtime.answer(wait, "done")
    assert ids[0] == ids[1]
    assert len(set(ids[0])) == 4
    await runtime.drain()
    assert await heard(runtime, "other") == ["one", "two", "three"]


@on_disk
async def test_a_runner_that_is_lost_after_its_commit_queues_nothing_twice(harness: OurHarness) -> None:
    gate, database = Gate(), Database(harness)

    @program
    async def teller(turn: Turn) -> None:
        turn.enqueue("once", session="other")
        await turn.save()
        if turn.attempt == 1:
            await gate()

    dying, runtime = await database.runtime(teller, listener), await database.runtime(teller, listener)
    await runtime.create(teller, session_id="t")
    await runtime.create(listener, session_id="other")
    task = asyncio.create_task(dying.session("t").send("go"))
    await gate.reached.wait()
    await runtime.drain()
    assert await heard(runtime, "other") == ["once"]
    await database.lose(dying, task)
    await runtime.drain()
    assert await heard(runtime, "other") == ["once"]


@on_disk
async def test_a_failed_turn_takes_back_what_it_queued_but_for_what_lasts(harness: OurHarness) -> None:
    ids: list[str] = []

    @program
    async def teller(turn: Turn) -> None:
        ids.append(turn.enqueue("never", session="other"))
        ids.append(turn.enqueue("always", session="other", even_if_failed=True))
        ids.append(turn.enqueue("named", session="other", key="k", even_if_failed=True))
        if turn.input and turn.input["content"] == "go" and not turn.resumed:
            raise ValueError("broken")

    runtime = await Database(harness).runtime(teller, listener)
    await runtime.create(teller, session_id="t")
    await runtime.create(listener, session_id="other")
    assert (await runtime.session("t").send("go")).status == "failed"
    await runtime.drain()
    assert await heard(runtime, "other") == ["always", "named"]
    with pytest.raises(InvalidInput, match="no input"):
        await runtime.outcome(ids[0])
    assert (await runtime.session("t").resume()).completed
    await runtime.drain()
    assert await heard(runtime, "other") == ["always", "named", "never"]


@dataclass(frozen=True)
class Paint:
    """An action of an application."""

    color: str

    async def apply(self, session: SessionView) -> SessionView:
        return session.with_fields(color=self.color)


@in_memory
async def test_an_action_is_executed_on_its_target_after_the_turn(harness: OurHarness) -> None:
    ids: list[str] = []

    @program
    async def painter(turn: Turn) -> None:
        ids.append(turn.enqueue(Paint("red"), session="other"))
        ids.append(turn.enqueue(ChangeModel("big")))

    runtime = await Database(harness).runtime(painter, listener, actions=[Paint])
    await runtime.create(painter, session_id="p")
    await runtime.create(listener, session_id="other")
    await runtime.session("p").send("go")
    await runtime.drain()
    assert [(await runtime.outcome(each)).status for each in ids] == ["executed", "executed"]
    assert (await runtime.get("other")).document == {"color": "red"}
    assert (await runtime.get("p")).definition.model == "big"  # type: ignore[union-attr]


@in_memory
async def test_a_due_time_and_a_delay_count_from_the_commit(harness: OurHarness) -> None:
    database = Database(harness)
    at = datetime(2030, 1, 2, tzinfo=UTC)

    @program
    async def teller(turn: Turn) -> None:
        turn.enqueue("dated", session="other", due_at=at)
        turn.enqueue("delayed", session="other", delay=timedelta(hours=1))

    runtime = await database.runtime(teller, listener)
    await runtime.create(teller, session_id="t")
    await runtime.create(listener, session_id="other")
    await runtime.session("t").send("go")
    database.clock.advance(600)  # the worker comes late
    await runtime.drain()
    assert [each.due_at for each in await runtime.store.inbox.list("other")] == [
        at,
        datetime(2030, 1, 1, 1, tzinfo=UTC),
    ]
    assert await heard(runtime, "other") == []
    database.clock.advance(3600 * 24)
    await runtime.drain()
    assert sorted(await heard(runtime, "other")) == ["dated", "delayed"]


@on_disk
@pytest.mark.parametrize("how", ["unknown", "deleted", "closed", "other content"])
async def test_what_no_target_takes_is_listed_and_not_lost(harness: OurHarness, how: str) -> None:
    ids: list[str] = []

    @program
    async def teller(turn: Turn) -> None:
        ids.append(turn.enqueue("psst", session="other", key="k"))

    runtime = await Database(harness).runtime(teller, listener)
    await runtime.create(teller, session_id="t")
    if how != "unknown":
        other = await runtime.create(listener, session_id="other")
    if how == "deleted":
        await other.delete()
    if how == "closed":
        await other.execute(CompleteSession())
    if how == "other content":
        await other.enqueue("something else", key="k")
    await runtime.session("t").send("go")
    await runtime.drain()
    outcome = await runtime.outcome(ids[0])
    assert outcome.status == "failed"
    (said,) = await refusals(runtime, "t")
    categories = {"closed": "session_status_invalid", "other content": "operation_conflict"}
    assert said["error"]["category"] == categories.get(how, "session_not_found")
    assert (said["outbox_id"], said["session_id"], outcome.error) == (ids[0], "other", said["error"])
    (item,) = await runtime.store.outbox.of_session("t")
    assert (item.status, item.attempts) == (OutgoingStatus.REFUSED, 1)
    await runtime.drain()
    assert len(await refusals(runtime, "t")) == 1


@on_disk
async def test_equal_input_under_one_key_is_one_input_of_the_target(harness: OurHarness) -> None:
    ids: list[str] = []

    @program
    async def teller(turn: Turn) -> None:
        ids.append(turn.enqueue("report", session="other", key="report-7"))

    runtime = await Database(harness).runtime(teller, listener)
    await runtime.create(teller, session_id="t")
    await runtime.create(listener, session_id="other")
    await runtime.session("t").send("go")
    await runtime.session("t").send("once more")
    await runtime.drain()
    assert await heard(runtime, "other") == ["report"]
    assert ids[0] != ids[1]
    one, two = [await runtime.outcome(each) for each in ids]
    assert (one.run_id, one.output) == (two.run_id, "report")
    assert await refusals(runtime, "t") == []


@in_memory
async def test_another_tenant_cannot_be_reached(harness: OurHarness) -> None:
    @program
    async def teller(turn: Turn) -> None:
        turn.enqueue("psst", session="other")

    runtime = await Database(harness).runtime(teller, listener)
    await runtime.for_tenant("a").create(teller, session_id="t")
    await runtime.create(listener, session_id="other")
    await runtime.for_tenant("b").create(listener, session_id="other")
    await runtime.for_tenant("a").send("t", "go")
    await runtime.drain()
    assert await heard(runtime, "other") == []
    items = await runtime.store.outbox.of_session(SessionKey("t", tenant="a"))
    assert [each.status for each in items] == [OutgoingStatus.REFUSED]


BAD: list[tuple[dict[str, Any], str]] = [
    ({"message": ""}, "needs some content"),
    ({"message": {"role": "assistant", "content": "x"}}, "role 'user' or 'system'"),
    ({"message": object()}, "message to a session"),
    ({"message": Paint("red")}, "Paint is not registered"),
    ({"message": "x", "session": "a/b"}, "slash"),
    ({"message": "x", "session": ""}, "0 bytes"),
    ({"message": "x", "key": ""}, "key must be"),
    ({"message": "x", "delay": -1}, "delay must be"),
    ({"message": "x", "delay": float("nan")}, "delay must be"),
    ({"message": "x", "due_at": datetime(2030, 1, 1)}, "due_at must be"),
    ({"message": "x", "due_at": datetime(2030, 1, 1, tzinfo=UTC), "delay": 1}, "give one of them"),
    ({"message": "x", "even_if_failed": 1}, "even_if_failed must be"),
    ({"message": "x" * 5_000_000}, "limit is"),
]


@in_memory
@pytest.mark.parametrize(("given", "said"), BAD)
async def test_what_cannot_be_queued_is_refused_at_once_and_leaves_nothing(
    harness: OurHarness, given: dict[str, Any], said: str
) -> None:
    caught: list[str] = []

    @program
    async def teller(turn: Turn) -> None:
        try:
            turn.enqueue(**given)
        except TenutoError as error:
            caught.append(error.message)
        turn.enqueue("right", session="other")

    runtime = await Database(harness).runtime(teller)
    await runtime.create(teller, session_id="t")
    assert (await runtime.session("t").send("go")).completed
    assert said in caught[0]
    (item,) = await runtime.store.outbox.of_session("t")
    body: Any = item.body
    assert body["body"]["message"]["content"] == "right"


@in_memory
async def test_other_content_at_the_same_place_is_a_mismatch(harness: OurHarness) -> None:
    @program
    async def teller(turn: Turn) -> None:
        turn.enqueue("one", key="k")
        with pytest.raises(EffectMismatch):
            turn.enqueue("two", key="k")
        with pytest.raises(EffectMismatch):
            turn.enqueue("one", session="elsewhere", key="k")

    runtime = await Database(harness).runtime(teller)
    await runtime.create(teller, session_id="t")
    assert (await runtime.session("t").send("go")).completed


@in_memory
async def test_parallel_tools_have_places_of_their_own(harness: OurHarness) -> None:
    async def tell(turn: Turn, arguments: Mapping[str, Any]) -> str:
        return turn.enqueue(str(arguments["text"]), session="other")

    made = [{"id": f"c{n}", "name": "tell", "arguments": {"text": f"told {n}"}} for n in range(3)]
    talker = agent(
        {"role": "assistant", "content": "", "tool_calls": made}, "done", tools=[Tool(name="tell", run=tell)]
    )
    runtime = await Database(harness).runtime(talker, listener)
    await runtime.create(talker, session_id="t")
    await runtime.create(listener, session_id="other")
    assert (await runtime.session("t").send("go")).completed
    await runtime.drain()
    assert sorted(await heard(runtime, "other")) == ["told 0", "told 1", "told 2"]
