"""Children: sessions that a turn asks something of, begun after its commit, whose end always reaches it."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest

from tenuto import Store
from tenuto.errors import AnswerMismatch, DeliveryLost, SessionNotFound, StoreUnavailable
from tenuto.messages import text_of
from tenuto.model.input import InputStatus
from tenuto.model.outgoing_item import NewOutgoing, OutboxKind, Outgoing, OutgoingStatus
from tenuto.model.run import RunStatus, StopKind
from tenuto.model.session import SessionKey
from tenuto.model.wait import Wait, WaitStatus
from tenuto.runtime.change.action import CompleteSession, ResumeSession, SuspendSession
from tenuto.runtime.program.program import program
from tenuto.runtime.program.tool import Tool
from tenuto.runtime.program.turn import Turn, context_of
from tenuto.runtime.runtime import SessionRuntime
from tenuto.runtime.tree.delivery import PATIENCE, pause_before
from tenuto.testing.agent import ScriptedAgent, calls
from tenuto.testing.factories import a_commit
from tenuto.testing.faults import FaultyBackend
from tests.conftest import OurHarness
from tests.polling import until
from tests.runtime.runtimes import Database, Gate, agent, as_data, contents, in_memory, opened, results
from tests.runtime.seams import advance, deliver, deliver_due, hand_over


@program
async def parent(turn: Turn) -> Any:
    return as_data(await turn.child("child", turn.text))


@program
async def child(turn: Turn) -> Any:
    return "heard " + turn.text


@program(name="child")
async def asking_child(turn: Turn) -> Any:
    return ["told", await turn.wait("question")]


class Slow:
    """A child that works until it is let go."""

    def __init__(self, name: str = "child") -> None:
        self.gate = Gate()
        self.program = program(name=name)(self._run)

    async def _run(self, turn: Turn) -> Any:
        await self.gate()
        return "heard " + turn.text


async def child_of(runtime: SessionRuntime, session_id: str = "p") -> str:
    """Return the id of the last child a session asked."""
    waits = await runtime.store.waits.of_session(session_id, status=None)
    return str([wait for wait in waits if wait.kind == "child"][-1].metadata["child"])


async def sent(runtime: SessionRuntime, kind: str, session_id: str = "p") -> list[Outgoing]:
    """Return what a session sent of one kind."""
    return [each for each in await runtime.store.outbox.of_session(session_id) if each.kind == kind]


async def names_of(runtime: SessionRuntime) -> list[str]:
    """Return the ids of all sessions, the oldest first."""
    return [each.key.session_id for each in reversed(list(await runtime.list()))]


async def output_of(runtime: SessionRuntime, session_id: str = "p") -> Any:
    """Return what the last run of a session, which completed, gave."""
    last = (await runtime.session(session_id).runs())[0].run
    assert last.status is RunStatus.COMPLETED, last.error
    outcome: Any = last.outcome
    return outcome["output"]


async def test_a_child_is_begun_after_its_parents_commit_and_its_result_reaches_it(harness: OurHarness) -> None:
    database = Database(harness)
    runtime = await database.runtime(parent, child)
    await runtime.create("parent", session_id="p", user_id="u")
    outcome = await runtime.send("p", "hello")
    (wait,) = outcome.waits
    (item,) = await sent(runtime, OutboxKind.CHILD)
    name = await child_of(runtime)
    assert (wait.kind, item.target.session_id, item.status) == ("child", name, OutgoingStatus.PENDING)
    assert not await runtime.store.exists(name)
    head = await runtime.session("p").info()
    assert wait.commit_number == head.commit_number

    assert await deliver_due(runtime) == 1
    links = (await runtime.session(name).info()).profile
    assert (links.parent, links.root, links.trace) == ("p", "p", head.profile.trace)
    assert await runtime.session("p").info() == head
    await runtime.drain()
    assert await output_of(runtime) == {"result": "heard hello", "session_id": name}
    assert contents((await runtime.get(name)).messages, "user") == ["hello"]
    assert [each.status for each in await runtime.store.outbox.of_session("p")][:1] == [OutgoingStatus.DONE]
    assert (await runtime.session(name).runs())[0].trace_id == (await runtime.session("p").runs())[0].trace_id


async def test_the_ids_of_children_are_minted_and_not_computable_from_parent_and_call(harness: OurHarness) -> None:
    made = agent(
        calls(("c1", "ask", {"message": "x"}), ("c2", "ask", {"message": "x"})),
        "done",
        tools=[Tool(name="ask", child="child")],
    )
    runtime = await Database(harness).runtime(made, child)
    found: list[str] = []
    for name in ("p", "q"):
        await runtime.create("agent", session_id=name)
        outcome = await runtime.send(name, "go")
        found += [str(wait.metadata["child"]) for wait in outcome.waits]
        found += [str(wait.metadata["token"]) for wait in outcome.waits]
    assert len(set(found)) == 8
    prefixes = {each[:16] for each in found}
    assert len(prefixes) == 8, "nothing of them is shared, not even a time"


async def test_no_child_is_begun_by_a_turn_that_was_stopped_before_its_commit(
    harness: OurHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = Database(harness)
    gate = Gate()

    @program(name="parent")
    async def stopped(turn: Turn) -> Any:
        turn.state.update(asked=True)
        await turn.child("child", "never")

    runtime = await database.runtime(stopped, child)
    await runtime.create("parent", session_id="p")
    commit = runtime.store.commit
    other = await database.runtime()

    async def stopping(given: Any) -> Any:
        if given.end is not None and not gate.entered:
            gate.entered += 1
            run = await other.store.runs.current("p")
            assert run is not None
            await other.store.runs.request_stop(run.run_id, StopKind.INTERRUPT, "not now")
        return await commit(given)

    monkeypatch.setattr(runtime.store, "commit", stopping)
    outcome = await runtime.send("p", "go")
    assert outcome.status == "interrupted"
    assert await runtime.store.outbox.of_session("p") == []
    assert "asked" not in (await runtime.get("p")).document
    await runtime.drain()
    assert await names_of(runtime) == ["p"]


async def test_a_child_that_fails_is_a_typed_failure_for_its_parent(harness: OurHarness) -> None:
    @program(name="child")
    async def breaks(_: Turn) -> Any:
        raise ValueError("no idea")

    runtime = await Database(harness).runtime(parent, breaks)
    await runtime.create("parent", session_id="p")
    await runtime.send("p", "hello")
    await runtime.drain()
    told = await output_of(runtime)
    assert told == {"error": {"category": "ValueError", "message": "no idea"}, "session_id": await child_of(runtime)}


async def test_a_child_that_fails_in_a_tool_call_is_an_error_for_the_model(harness: OurHarness) -> None:
    @program(name="child")
    async def breaks(_: Turn) -> Any:
        raise ValueError("no idea")

    made = agent(calls(("c1", "ask", {"question": "why?"})), "done", tools=[Tool(name="ask", child="child")])
    runtime = await Database(harness).runtime(made, breaks)
    await runtime.create("agent", session_id="p")
    await runtime.send("p", "hello")
    await runtime.drain()
    messages = (await runtime.get("p")).messages
    assert results(messages) == {"c1": "Error: no idea"}
    assert contents((await runtime.get(await child_of(runtime))).messages, "user") == ['{"question":"why?"}']


async def test_a_child_whose_runners_die_three_times_fails_as_abandoned_and_its_parent_is_told(
    harness: OurHarness,
) -> None:
    database = Database(harness)
    for attempt in range(3):
        slow = Slow()
        runtime = await database.runtime(parent, slow.program)
        if not attempt:
            await runtime.create("parent", session_id="p")
            await runtime.send("p", "hello")
        task = asyncio.create_task(runtime.drain())
        await slow.gate.reached.wait()
        await database.lose(runtime, task)
    last = await database.runtime(parent, Slow().program)
    await last.drain()
    told = await output_of(last)
    assert told["error"]["category"] == "run_abandoned"
    (run,) = await last.session(told["session_id"]).runs()
    assert (run.status, run.run.attempt) == (RunStatus.FAILED, 4)


async def test_a_deadline_reaches_the_parent_and_the_child_is_owed_a_stop(harness: OurHarness) -> None:
    made = agent(
        calls(("c1", "ask", {"message": "x"})), "done", "thanks", tools=[Tool(name="ask", child="child", timeout=30)]
    )
    database = Database(harness)
    runtime = await database.runtime(made, asking_child)
    await runtime.create("agent", session_id="p")
    await runtime.send("p", "hello")
    await runtime.drain()
    name = await child_of(runtime)
    assert len(await runtime.session(name).waits()) == 1
    database.clock.advance(31)
    await runtime.drain()
    assert results((await runtime.get("p")).messages) == {"c1": "Not executed: no answer came in time."}
    (debt,) = await sent(runtime, OutboxKind.STOP)
    assert debt.status is OutgoingStatus.DONE
    assert await runtime.session(name).waits() == []


async def test_what_comes_back_to_a_parent_that_went_on_is_a_notice_and_the_child_is_stopped(
    harness: OurHarness,
) -> None:
    database, slow = Database(harness), Slow()
    made = agent(calls(("c1", "ask", {"message": "x"})), "never mind", "noted", tools=[Tool(name="ask", child="child")])
    runtime = await database.runtime(made, slow.program)
    await runtime.create("agent", session_id="p")
    await runtime.send("p", "hello")
    worker = await database.runtime(made, slow.program)
    task = asyncio.create_task(worker.drain())
    await slow.gate.reached.wait()
    name = await child_of(runtime)
    assert (await runtime.send("p", "something else")).text == "never mind"
    (wait,) = [each for each in await runtime.store.waits.of_session("p", status=None) if each.kind == "child"]
    assert wait.status is WaitStatus.ABANDONED
    (debt,) = await sent(runtime, OutboxKind.STOP)
    assert (debt.target.session_id, debt.status) == (name, OutgoingStatus.PENDING)

    await runtime.store.aclose()  # the debt is durable
    other = await database.runtime(made, slow.program)
    await deliver_due(other)
    await task
    (run,) = await other.session(name).runs()
    assert (run.status, run.run.stop is not None) == (RunStatus.INTERRUPTED, True)
    await other.drain()
    assert (await other.send("p", "and now?")).text == "noted"
    messages = (await other.get("p")).messages
    (told,) = contents(messages, "system")
    assert "came too late" in told
    assert results(messages) == {"c1": "Not executed: it was abandoned for a new message."}
    assert [each.status for each in await sent(other, OutboxKind.STOP)] == [OutgoingStatus.DONE]


def busy_agent(gate: Gate) -> ScriptedAgent:
    """Return an agent that asks a child and makes a call of its own, which goes through the gate."""

    async def slow(_: Any, __: Mapping[str, Any]) -> str:
        await gate()
        return "slow"

    tools = [Tool(name="ask", child="child"), Tool(name="slow", run=slow)]
    return agent(calls(("c1", "ask", {"message": "x"}), ("c2", "slow", {})), "done", tools=tools)


async def test_a_parent_that_was_interrupted_owes_its_child_a_stop_and_hears_of_it_by_a_notice(
    harness: OurHarness,
) -> None:
    database, gate = Database(harness), Gate()
    made = busy_agent(gate)
    runtime = await database.runtime(made, child)
    await runtime.create("agent", session_id="p")
    task = asyncio.create_task(runtime.send("p", "hello"))
    await gate.reached.wait()
    await runtime.session("p").stop(kind="abort")
    assert (await task).status == "failed"
    assert len(await sent(runtime, OutboxKind.STOP)) == 1
    assert results((await runtime.get("p")).messages)["c1"] == "Not executed: the run was stopped."
    await runtime.drain()
    name = await child_of(runtime)
    assert not await runtime.store.exists(name), "a child nobody waits for any more is not begun"
    assert [each.status for each in await runtime.store.outbox.of_session("p")] == [OutgoingStatus.DONE] * 2


async def test_a_child_that_ends_while_its_parent_is_live_is_heard_when_the_parent_goes_on(harness: OurHarness) -> None:
    database, gate = Database(harness), Gate()
    made = busy_agent(gate)
    runtime = await database.runtime(made, child)
    await runtime.create("agent", session_id="p")
    task = asyncio.create_task(runtime.send("p", "hello"))
    await gate.reached.wait()
    worker = await database.runtime(made, child)
    await worker.drain()
    assert await worker.session("p").waits() == []
    gate.open.set()
    assert (await task).suspended
    await worker.drain()
    session = await worker.get("p")
    assert results(session.messages) == {"c1": "heard x", "c2": "slow"}
    assert contents(session.messages, "system") == []
    assert len(await worker.session("p").runs()) == 2


async def test_a_child_is_consulted_again_with_its_history(harness: OurHarness) -> None:
    @program(name="child")
    async def counts(turn: Turn) -> Any:
        return [text_of(message) for message in turn.messages]

    @program(name="parent")
    async def asks_twice(turn: Turn) -> Any:
        first = await turn.child("child", "one")
        second = await turn.child("child", "two", session_id=first.session_id)
        return [as_data(first), as_data(second)]

    runtime = await Database(harness).runtime(asks_twice, counts)
    await runtime.create("parent", session_id="p")
    await runtime.send("p", "go")
    await runtime.drain()
    first, second = await output_of(runtime)
    assert first["session_id"] == second["session_id"]
    assert (first["result"], second["result"]) == (["one"], ["one", "two"])
    assert [run.run.number for run in await runtime.session(first["session_id"]).runs()] == [2, 1]
    assert await names_of(runtime) == ["p", first["session_id"]]


async def test_only_a_child_of_ones_own_that_is_there_can_be_consulted_again(harness: OurHarness) -> None:
    @program(name="parent")
    async def asks_stranger(turn: Turn) -> Any:
        return as_data(await turn.child("child", "who are you?", session_id=turn.text))

    runtime = await Database(harness).runtime(asks_stranger, child)
    await runtime.create("child", session_id="stranger")
    for name in ("stranger", "nobody"):
        session = await runtime.create("parent")
        await session.send(name)
        await runtime.drain()
        told = await output_of(runtime, session.session_id)
        assert told["error"]["category"] == "child_lost"
    assert (await runtime.get("stranger")).messages == []
    assert not await runtime.store.exists("nobody")


async def test_a_stop_that_is_owed_does_not_hit_what_the_child_does_for_a_later_wait(harness: OurHarness) -> None:
    database = Database(harness)

    @program(name="parent")
    async def asks(turn: Turn) -> Any:
        again = turn.state.get("child")
        if again is None:
            found = await turn.child("child", "first", name="first")
            turn.state.update(child=found.session_id)
            return as_data(found)
        return as_data(await turn.child("child", turn.text, session_id=str(again)))

    runtime = await database.runtime(asks, asking_child)
    await runtime.create("parent", session_id="p")
    await runtime.send("p", "go")
    await runtime.drain()
    name = await child_of(runtime)
    await runtime.answer((await runtime.session(name).waits())[0].wait_id, 1)
    await runtime.drain()
    await runtime.send("p", "second")
    await runtime.drain()
    assert len(await runtime.session(name).waits()) == 1
    await runtime.send("p", "third")  # gives the second up: a stop is owed
    debts = await sent(runtime, OutboxKind.STOP)
    deliveries = [each for each in await runtime.store.outbox.pending() if each.kind == OutboxKind.CHILD]
    for item in deliveries:  # the third question overtakes the stop of the second
        await deliver(runtime, item)
    await advance(runtime, name)
    (fresh,) = await runtime.session(name).waits()
    for debt in debts:
        await deliver(runtime, debt)
    await runtime.drain()
    assert [wait.wait_id for wait in await runtime.session(name).waits()] == [fresh.wait_id]
    await runtime.answer(fresh.wait_id, "third answer")
    await runtime.drain()
    assert (await output_of(runtime))["result"] == ["told", "third answer"]


@pytest.mark.parametrize("at_root", [True, False])
async def test_an_answer_given_above_reaches_the_grandchild_that_waits_exactly_once(
    harness: OurHarness, at_root: bool
) -> None:
    """In the name of any ancestor; nobody beside or below the session that waits can answer for it."""

    @program
    async def root(turn: Turn) -> Any:
        return as_data(await turn.child("parent", "go down"))

    database = Database(harness)
    runtime = await database.runtime(root, parent, asking_child)
    await runtime.create("root", session_id="r")
    await runtime.create("root", session_id="foreign")
    await runtime.send("r", "go")
    await runtime.drain()
    middle = await child_of(runtime, "r")
    leaf = await child_of(runtime, middle)
    assert (await runtime.session(leaf).info()).profile.root == "r"
    (wait,) = await runtime.session(leaf).waits()
    (above,) = await runtime.session(middle).waits(children=False)
    for wait_id, stranger in ((wait.wait_id, "foreign"), (above.wait_id, leaf)):
        with pytest.raises(AnswerMismatch):
            await runtime.session(stranger).answer(wait_id, "no")
    assert len(await runtime.session(leaf).waits()) == 1
    answered = await runtime.session("r" if at_root else middle).answer(wait.wait_id, "yes")
    assert (answered.session_id, answered.continues) == (leaf, "here")
    await runtime.drain()
    told = await output_of(runtime, "r")
    assert told["result"]["result"] == ["told", "yes"]
    assert [len(await runtime.session(each).runs()) for each in ("r", middle, leaf)] == [2, 2, 2]


async def test_delivered_is_said_only_when_the_childs_run_exists(harness: OurHarness) -> None:
    database, slow = Database(harness), Slow()
    runtime = await database.runtime(parent, slow.program)
    await runtime.create("parent", session_id="p")
    await runtime.send("p", "hello")
    await deliver_due(runtime)
    name = await child_of(runtime)
    (queued,) = await runtime.store.inbox.list(name)
    assert (await runtime.outcome(queued.input_id)).status == "queued"
    assert await runtime.session(name).runs() == []
    task = asyncio.create_task(advance(runtime, name))
    await slow.gate.reached.wait()
    other = await database.runtime()
    outcome = await other.outcome(queued.input_id)
    assert (outcome.status, outcome.run_id) == ("running", (await other.session(name).runs())[0].run_id)
    slow.gate.open.set()
    await task
    assert (await other.outcome(queued.input_id)).output == "heard hello"


async def test_a_delivery_that_is_repeated_is_one_child_one_input_and_one_turn(harness: OurHarness) -> None:
    """A deliverer that dies before its mark, another that is slow: each does all of it again."""
    database = Database(harness)
    one, two = await database.runtime(parent, child), await database.runtime(parent, child)
    await one.create("parent", session_id="p")
    await one.send("p", "hello")
    (item,) = await sent(one, OutboxKind.CHILD)
    for _ in range(2):
        assert await hand_over(one, item)  # and never marked
    await asyncio.gather(deliver(one, item), deliver(two, item))
    name = await child_of(one)
    assert len(await one.store.inbox.list(name)) == 1
    with pytest.raises(DeliveryLost):
        await two.store.outbox.mark(item.outbox_id, OutgoingStatus.DONE, attempts=item.attempts)
    await advance(one, name)
    (result,) = await sent(one, OutboxKind.RESULT, name)
    for _ in range(2):
        assert await hand_over(two, result)
    await asyncio.gather(deliver(one, result), deliver(two, result))
    await asyncio.gather(one.drain(), two.drain())
    assert (await output_of(one))["result"] == "heard hello"
    assert [len(await one.session(each).runs()) for each in ("p", name)] == [2, 1]
    only = await one.store.inbox.find(name, item.outbox_id)
    assert only is not None
    assert only.status is InputStatus.CONSUMED
    queued = [event for event in (await one.store.events.read(name)).events if event.type == "input_queued"]
    assert [event.data for event in queued] == [{"input_id": only.input_id, "kind": "message"}]
    assert contents((await one.get("p")).messages, "system") == []


async def test_a_child_that_ends_while_its_parent_is_closed_is_heard_when_that_is_resumed(harness: OurHarness) -> None:
    database = Database(harness)
    runtime = await database.runtime(parent, child)
    await runtime.create("parent", session_id="p")
    await runtime.send("p", "hello")
    await runtime.execute("p", SuspendSession())
    await runtime.drain()
    (wait,) = await runtime.store.waits.of_session("p", status=None)
    assert wait.status is WaitStatus.ANSWERED
    assert len(await runtime.session("p").runs()) == 1
    await runtime.execute("p", ResumeSession())
    database.clock.advance(60)
    await runtime.drain()
    assert (await output_of(runtime))["result"] == "heard hello"
    assert len(await runtime.session("p").runs()) == 2


async def test_a_stop_that_is_owed_to_a_child_that_could_not_be_begun_yet_keeps_it_from_beginning(
    harness: OurHarness,
) -> None:
    database = Database(harness)
    runtime = await database.runtime(parent)
    await runtime.create("parent", session_id="p")
    await runtime.send("p", "first")
    await runtime.drain()
    given_up = await child_of(runtime)
    await runtime.send("p", "second")
    (debt,) = await sent(runtime, OutboxKind.STOP)
    await deliver(runtime, debt)
    assert [each.status for each in await sent(runtime, OutboxKind.STOP)] == [OutgoingStatus.PENDING], (
        "it may yet be begun"
    )
    database.clock.advance(10)
    other = await database.runtime(parent, child)
    await other.drain()
    assert (await output_of(other))["result"] == "heard second"
    assert not await other.store.exists(given_up)
    database.clock.advance(10)
    await other.drain()
    assert {each.status for each in await other.store.outbox.of_session("p")} == {OutgoingStatus.DONE}


async def test_a_program_that_another_worker_has_is_left_to_that_one(harness: OurHarness) -> None:
    database = Database(harness)
    runtime = await database.runtime(parent)
    await runtime.create("parent", session_id="p")
    await runtime.send("p", "hello")
    await runtime.drain()
    assert len(await runtime.session("p").waits()) == 1
    database.clock.advance(1)
    await (await database.runtime(parent, child)).drain()
    assert (await output_of(runtime))["result"] == "heard hello"


async def test_a_program_that_no_worker_has_is_a_failure_after_some_patience(harness: OurHarness) -> None:
    database = Database(harness)
    runtime = await database.runtime(parent)
    await runtime.create("parent", session_id="p")
    await runtime.send("p", "hello")
    for _ in range(3):
        await runtime.drain()
        assert len(await runtime.session("p").waits()) == 1
        database.clock.advance(PATIENCE.total_seconds() / 3)
    await runtime.drain()
    told = await output_of(runtime)
    assert told["error"]["category"] == "child_lost"
    assert "child" in told["error"]["message"]


@in_memory
async def test_a_message_that_no_session_takes_and_a_child_that_is_closed_are_failures(harness: OurHarness) -> None:
    bad: Any = {"role": "assistant", "content": "x"}

    @program(name="parent")
    async def asks(turn: Turn) -> Any:
        if turn.text == "bad":
            return as_data(await turn.child("child", bad))
        first = await turn.child("child", "x")
        await turn.wait("closed")
        return as_data(await turn.child("child", "y", session_id=first.session_id))

    runtime = await Database(harness).runtime(asks, child)
    await runtime.create("parent", session_id="p")
    await runtime.send("p", "bad")
    await runtime.drain()
    assert (await output_of(runtime))["error"]["category"] == "child_lost"
    await runtime.send("p", "good")
    await runtime.drain()
    await runtime.execute(await child_of(runtime), CompleteSession())
    (wait,) = await runtime.session("p").waits()
    await runtime.answer(wait.wait_id, None)
    await runtime.drain()
    assert (await output_of(runtime))["error"]["category"] == "child_lost"


async def test_a_child_that_is_deleted_is_a_failure_for_the_parent_that_waits_for_it(harness: OurHarness) -> None:
    runtime = await Database(harness).runtime(parent, asking_child)
    await runtime.create("parent", session_id="p")
    await runtime.send("p", "hello")
    await runtime.drain()
    name = await child_of(runtime)
    await runtime.session(name).delete()
    await runtime.drain()
    told = await output_of(runtime)
    assert (told["error"]["category"], told["session_id"]) == ("child_lost", name)


@pytest.mark.parametrize("verb", ["store", "expiry", "cascade"])
async def test_whichever_way_a_child_ends_its_parent_hears_of_it(harness: OurHarness, verb: str) -> None:
    runtime = await Database(harness).runtime(parent, asking_child)
    await runtime.create("parent", session_id="p")
    await runtime.send("p", "hello")
    await runtime.drain()
    name = await child_of(runtime)
    if verb == "expiry":
        past = datetime(2000, 1, 1, tzinfo=UTC)
        await runtime.store.commit(a_commit(name, profile={"expires_at": past}))
        assert len((await runtime.store.upkeep.expire()).deleted) == 1
    else:
        await runtime.store.delete(name, cascade=verb == "cascade")
    await runtime.drain()
    assert (await output_of(runtime))["error"]["category"] == "child_lost"
    assert await runtime.session("p").waits() == []
    assert await runtime.store.outbox.pending() == []


async def test_a_question_that_lies_in_a_childs_inbox_is_answered_when_the_child_is_deleted(
    harness: OurHarness,
) -> None:
    """It was delivered, and nobody has begun its turn."""
    runtime = await Database(harness).runtime(parent, asking_child)
    await runtime.create("parent", session_id="p")
    await runtime.send("p", "hello")
    await deliver_due(runtime)
    name = await child_of(runtime)
    assert len(await runtime.store.inbox.list(name)) == 1
    await runtime.session(name).delete()
    await runtime.drain()
    assert (await output_of(runtime))["error"]["category"] == "child_lost"


async def test_what_a_child_said_before_it_was_deleted_arrives(harness: OurHarness) -> None:
    runtime = await Database(harness).runtime(parent, asking_child)
    await runtime.create("parent", session_id="p")
    await runtime.send("p", "hello")
    await runtime.drain()
    name = await child_of(runtime)
    (wait,) = await runtime.session(name).waits()
    await runtime.answer(wait.wait_id, "yes")
    await runtime.session(name).delete()
    await runtime.drain()
    assert (await output_of(runtime))["result"] == ["told", "yes"]


async def test_a_deleted_tree_is_finished_by_deleting_it_again(harness: OurHarness) -> None:
    """Also when its root is gone already; once nothing is left to do and gc has forgotten it, there is no session."""
    faults = FaultyBackend((await harness.open()).backend)
    runtime = await opened(Store(faults), [asking_child])
    for n in range(4):
        await runtime.create("child", session_id=f"r{n}", parent=None if n == 0 else f"r{n - 1}")
    faults.fail_call(3)
    with pytest.raises(StoreUnavailable):
        await runtime.session("r0").delete(cascade=True)
    faults.heal()
    assert not await runtime.store.exists("r0")
    assert await runtime.store.exists("r3")
    assert (await runtime.session("r0").delete(cascade=True)).sessions == 4
    assert [await runtime.store.exists(f"r{n}") for n in range(4)] == [False] * 4
    await runtime.store.upkeep.gc(grace=0)
    with pytest.raises(SessionNotFound):
        await runtime.session("r0").delete(cascade=True)


async def test_a_worker_finishes_a_delete_that_was_cut_off(harness: OurHarness) -> None:
    faults = FaultyBackend((await harness.open()).backend)
    runtime = await opened(Store(faults), [asking_child])
    await runtime.create("child", session_id="r")
    await runtime.create("child", session_id="c", parent="r")
    faults.fail_call(3)
    with pytest.raises(StoreUnavailable):
        await runtime.session("r").delete(cascade=True)
    faults.heal()
    assert await runtime.store.exists("c")
    await runtime.drain()
    assert not await runtime.store.exists("c")


async def test_no_parent_waits_for_a_child_that_is_deleted_as_it_is_asked(harness: OurHarness) -> None:
    """At any moment of the question: before, while and after it is delivered, begun and answered."""
    database = Database(harness)
    runtime, other = await database.runtime(parent, asking_child), await database.runtime(parent, asking_child)
    for n in range(12):
        await runtime.create("parent", session_id=f"p{n}")

    async def ask(n: int) -> None:
        await runtime.send(f"p{n}", "hello")
        await runtime.drain()

    async def end(n: int) -> None:
        waits = await until(lambda: other.session(f"p{n}").waits(), pause=0)
        for _ in range(n):
            await asyncio.sleep(0)
        with suppress(SessionNotFound):
            await other.session(str(waits[0].metadata["child"])).delete()

    for n in range(12):
        async with asyncio.timeout(9):
            await asyncio.gather(ask(n), end(n))
        await runtime.drain()
        for wait in await runtime.session(f"p{n}").waits(children=False):
            assert await runtime.store.exists(str(wait.metadata["child"]))
            assert await runtime.session(str(wait.metadata["child"])).waits()


async def test_deleting_a_parent_spares_its_children_unless_the_whole_tree_is_meant(harness: OurHarness) -> None:
    @program
    async def root(turn: Turn) -> Any:
        return as_data(await turn.child("parent", "go down"))

    runtime = await Database(harness).runtime(root, parent, asking_child)
    names: dict[str, tuple[str, str]] = {}
    for name in ("kept", "gone"):
        await runtime.create("root", session_id=name)
        await runtime.send(name, "go")
        await runtime.drain()
        middle = await child_of(runtime, name)
        names[name] = (middle, await child_of(runtime, middle))
    await runtime.session("kept").delete()
    assert [await runtime.store.exists(each) for each in names["kept"]] == [True, True]
    await runtime.session("gone").delete(cascade=True)
    assert [await runtime.store.exists(each) for each in names["gone"]] == [False, False]
    (wait,) = await runtime.session(names["kept"][1]).waits()
    await runtime.answer(wait.wait_id, "still here")
    await runtime.drain()
    assert (await output_of(runtime, names["kept"][0]))["result"] == ["told", "still here"]
    assert await runtime.store.outbox.pending() == []


async def test_cancelling_what_a_parent_waits_for_stops_the_whole_line_below(harness: OurHarness) -> None:
    @program
    async def root(turn: Turn) -> Any:
        return as_data(await turn.child("parent", "go down"))

    runtime = await Database(harness).runtime(root, parent, asking_child)
    await runtime.create("root", session_id="r")
    await runtime.send("r", "go")
    await runtime.drain()
    middle = await child_of(runtime, "r")
    leaf = await child_of(runtime, middle)
    assert await runtime.session("r").abandon_waits() == 1
    await runtime.drain()
    found: list[Wait] = []
    for name in ("r", middle, leaf):
        found += await runtime.session(name).waits()
    assert found == []
    assert await runtime.store.outbox.pending() == []


def test_a_delivery_is_tried_for_a_day_ever_less_often_and_a_wake_hourly_after_it() -> None:
    pauses: list[float] = []
    while (pause := pause_before(OutboxKind.CHILD, len(pauses))) is not None:
        pauses.append(pause)
    assert pauses[:9] == [0.5, 1, 2, 4, 8, 16, 32, 60, 60]
    assert 86_400 <= sum(pauses) < 86_400 + 120
    assert pause_before(OutboxKind.WAKE, len(pauses)) == pause_before(OutboxKind.WAKE, 100_000) == 3600


async def test_what_cannot_be_delivered_is_put_off_and_disturbs_nothing_else(
    harness: OurHarness, caplog: pytest.LogCaptureFixture
) -> None:
    @program
    async def sends(turn: Turn) -> Any:
        target = SessionKey("p")
        context_of(turn).pending.outgoing.append(NewOutgoing(kind="carrier pigeon", target=target))
        context_of(turn).pending.outgoing.append(
            NewOutgoing(kind=OutboxKind.RESULT, target=target, body={"no": "token"})
        )
        return as_data(await turn.child("child", "x"))

    runtime = await Database(harness).runtime(sends, child)
    await runtime.create("sends", session_id="p")
    await runtime.send("p", "go")
    await runtime.drain()
    assert (await output_of(runtime))["result"] == "heard x"
    kinds = {each.kind: each for each in await runtime.store.outbox.of_session("p")}
    for kind in ("carrier pigeon", OutboxKind.RESULT):
        assert (kinds[kind].status, kinds[kind].attempts) == (OutgoingStatus.PENDING, 1)
    assert "carrier pigeon" in caplog.text
