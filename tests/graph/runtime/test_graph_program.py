"""Graphs as programs of the runtime: a turn is a run of the graph on the session."""

import asyncio
from collections.abc import Mapping
from typing import Annotated, Any

import pytest

from tenuto import Store
from tenuto.errors import InvalidInput, MessageRefused
from tenuto.graph import END, GraphBuilder, SessionState, State, append, save_session
from tenuto.model.run import RunStatus
from tenuto.runtime.session.outcome import Outcome
from tests.conftest import OurHarness
from tests.graph.desk import Desk, adds, answers, both, desk, fails, line, runs_of, says, texts, waits
from tests.runtime.runtimes import in_memory, opened
from tests.runtime.talking import Heard, Watching


@both
async def test_a_turn_is_a_run_of_the_graph_on_what_the_session_keeps(store: Store, checkpoints: bool) -> None:
    runtime = await desk(store, adds(3), answers, checkpoints=checkpoints)
    await runtime.create("desk", session_id="s")

    first = await runtime.send("s", "hello")
    second = await runtime.send("s", "again")

    assert (first.status, first.text) == ("completed", "1: hello, 3, 1")
    assert (second.text, second.reply) == ("3: again, 6, 1", {"role": "assistant", "content": "3: again, 6, 1"})
    session = await runtime.get("s")
    assert texts(session.messages) == ["hello", "1: hello, 3, 1", "again", "3: again, 6, 1"]
    assert dict(session.document) == {"total": 6}
    assert (session.schema_version, session.version) == ("memory-7", 5)


@both
async def test_another_process_goes_on_with_the_same_session(harness: OurHarness, checkpoints: bool) -> None:
    store = await harness.open()
    runtime = await desk(store, adds(3), answers, checkpoints=checkpoints)
    await runtime.create("desk", session_id="s")
    await runtime.send("s", "hello")

    other = await desk(await harness.open(), adds(5), answers, checkpoints=checkpoints)
    outcome = await other.send("s", "again")
    warm = await runtime.send("s", "third")

    assert (outcome.text, warm.text) == ("3: again, 8, 1", "5: third, 11, 1")
    assert await runtime.outcome(outcome.input_id or "") == _bare(outcome)


def _bare(outcome: Outcome[Any]) -> Outcome[Any]:
    return Outcome(
        session_id=outcome.session_id,
        status=outcome.status,
        run_id=outcome.run_id,
        input_id=outcome.input_id,
        output=outcome.output,
        reply=outcome.reply,
    )


@in_memory
async def test_a_turn_without_checkpoints_is_two_commits_and_with_them_one_more_for_every_node(store: Store) -> None:
    for checkpoints, commits in ((False, 2), (True, 5)):
        runtime = await desk(store, adds(1), adds(2), answers, checkpoints=checkpoints)
        name = f"s{commits}"
        await runtime.create("desk", session_id=name)
        await runtime.send(name, "one")
        before = (await runtime.session(name).info()).commit_number
        await runtime.send(name, "two")
        assert (await runtime.session(name).info()).commit_number - before == commits


@both
async def test_a_failed_run_keeps_its_message_and_nothing_else(store: Store, checkpoints: bool) -> None:
    runtime = await desk(store, adds(3), says("thinking"), fails, checkpoints=checkpoints)
    await runtime.create("desk", session_id="s")

    outcome = await runtime.send("s", "hello")

    assert outcome.status == "failed"
    assert "the till is stuck" in str(outcome.error)
    session = await runtime.get("s")
    assert (texts(session.messages), dict(session.document)) == (["hello"], {})
    fine = await desk(store, adds(5), answers, checkpoints=checkpoints)
    assert (await fine.send("s", "again")).text == "2: again, 5, 1"


@both
async def test_a_failed_run_keeps_what_it_saved_itself(store: Store, checkpoints: bool) -> None:
    async def saves(_: Desk) -> Mapping[str, Any]:
        await save_session({"messages": [{"role": "assistant", "content": "wait"}], "total": 4})
        raise ValueError("after the save")

    runtime = await desk(store, adds(3), saves, checkpoints=checkpoints)
    await runtime.create("desk", session_id="s")

    outcome = await runtime.send("s", "hello")

    assert outcome.status == "failed"
    session = await runtime.get("s")
    assert (texts(session.messages), dict(session.document)) == (["hello", "wait"], {"total": 4})


@both
async def test_a_signal_is_waited_for_and_its_payload_goes_over_the_state(
    harness: OurHarness, checkpoints: bool
) -> None:
    async def pays(state: Desk) -> Mapping[str, Any]:
        return {"messages": [{"role": "assistant", "content": f"{state.approved} {state.scratch}"}]}

    bodies = (adds(3), waits, pays)
    runtime = await desk(await harness.open(), *bodies, checkpoints=checkpoints)
    await runtime.create("desk", session_id="s")
    outcome = await runtime.send("s", "refund")
    (wait,) = outcome.waits
    assert (outcome.status, wait.kind, wait.signal_id) == ("suspended", "signal", "approval")
    assert wait.metadata["of"] == "refund"
    assert (await runtime.get("s")).document["total"] == 3

    # Another process, with another store on the same database.
    other = await desk(await harness.open(), *bodies, checkpoints=checkpoints)
    answered = await other.answer(wait.wait_id, {"approved": True})

    assert answered.outcome is not None
    assert (answered.outcome.status, answered.outcome.text) == ("completed", "True ['+3']")
    assert await runs_of(other) == [RunStatus.SUSPENDED, RunStatus.COMPLETED]
    session = await other.get("s")
    assert texts(session.messages) == ["refund", "True ['+3']"]
    assert session.document["total"] == 3


async def test_a_message_gives_a_suspended_run_up(store: Store) -> None:
    runtime = await desk(store, adds(3), waits, answers)
    await runtime.create("desk", session_id="s")
    first = await runtime.send("s", "refund")

    second = await runtime.send("s", "never mind")

    assert second.status == "suspended"
    assert [wait.wait_id for wait in await runtime.session("s").waits()] == [wait.wait_id for wait in second.waits]
    assert first.waits[0].wait_id != second.waits[0].wait_id
    assert texts((await runtime.get("s")).messages) == ["refund", "never mind"]
    answered = await runtime.answer(second.waits[0].wait_id, {})
    assert answered.outcome is not None
    assert answered.outcome.text == "2: never mind, 6, 1"


class Survey(State):
    questions: Annotated[list[str], append] = []
    said: Annotated[list[str], append] = []
    count: int = 0


class Kept(SessionState):
    asked: list[str]
    count: int


async def counts(state: Survey) -> Mapping[str, Any]:
    return {"said": [f"{len(state.questions)} {state.questions[-1]}"], "count": state.count + 1}


def survey(**session: Any) -> Any:
    return GraphBuilder(Survey, name="survey").add_node("count", counts).add_edge("count", END).set_entry("count")


@in_memory
async def test_messages_go_to_the_declared_log_in_the_form_it_keeps(store: Store) -> None:
    graph = survey().compile()
    program = graph.as_program(input="questions", entry=lambda message: message["content"], output="count")
    runtime = await opened(store, [program])
    await runtime.create("survey", session_id="s")

    await runtime.send("s", "why?")
    outcome = await runtime.send("s", "how?")

    assert (outcome.status, outcome.output, outcome.reply) == ("completed", 2, None)
    session = await runtime.get("s")
    assert {name: list(items) for name, items in session.logs.items()} == {
        "questions": ["why?", "how?"],
        "said": ["1 why?", "2 how?"],
    }
    assert dict(session.document) == {"count": 2}


@in_memory
async def test_a_projected_session_state_has_its_own_names_and_keeps_nothing_else(store: Store) -> None:
    graph = survey().with_session_store(store, Kept, mapping={"asked": "questions"}).compile()
    program = graph.as_program(input="asked", entry=lambda message: message["content"], checkpoints=True)
    runtime = await opened(store, [program])
    await runtime.create("survey", {"asked": ["what?"], "count": 40}, session_id="s")

    await runtime.send("s", "why?")
    await runtime.send("s", "how?")

    session = await runtime.get("s")
    assert {name: list(items) for name, items in session.logs.items()} == {"asked": ["what?", "why?", "how?"]}
    assert dict(session.document) == {"count": 42}


@in_memory
async def test_a_message_that_does_not_fit_is_refused_and_nothing_is_written(store: Store) -> None:
    runtime = await opened(store, [survey().compile().as_program(input="questions")])
    await runtime.create("survey", session_id="s")
    before = await store.dump()

    with pytest.raises(MessageRefused, match="questions"):
        await runtime.send("s", "why?")

    after = await store.dump()
    assert [name for name in after if name != "session" and after[name] != before[name]] == []
    assert (await runtime.get("s")).version == 1
    assert await runs_of(runtime) == []


@in_memory
async def test_a_queued_message_that_does_not_fit_blocks_nobody(store: Store) -> None:
    def picky(message: Any) -> Any:
        return 7 if message["content"] == "seven" else message["content"]

    runtime = await opened(store, [survey().compile().as_program(input="questions", entry=picky)])
    await runtime.create("survey", session_id="s")
    wrong = await runtime.session("s").enqueue("seven")
    right = await runtime.session("s").enqueue("eight")

    await runtime.drain()

    refused = await runtime.outcome(wrong)
    assert (refused.status, refused.error["category"]) == ("failed", "message_refused")
    assert (await runtime.outcome(right)).status == "completed"
    assert list((await runtime.get("s")).logs["questions"]) == ["eight"]


def test_what_a_program_cannot_be_made_of_is_refused() -> None:
    graph = survey().compile()
    with pytest.raises(InvalidInput, match="questions, said"):
        graph.as_program()
    with pytest.raises(InvalidInput, match="questions, said"):
        graph.as_program(input="count")
    with pytest.raises(InvalidInput, match="conversation"):
        graph.as_program(input="questions", message_logs=["questions"])
    with pytest.raises(InvalidInput, match="'sum'"):
        graph.as_program(input="questions", output="sum")
    with pytest.raises(InvalidInput, match="name"):
        graph.as_program(name="", input="questions")


@in_memory
async def test_the_messages_of_a_graph_are_judged_if_they_are_a_conversation(store: Store) -> None:
    calls = [{"id": "c1", "name": "weather", "arguments": {}}]

    async def asks(_: Desk) -> Mapping[str, Any]:
        return {"messages": [{"role": "assistant", "content": "", "tool_calls": calls}]}

    graph = line(asks)
    runtime = await opened(
        store, [graph.as_program(), graph.as_program(name="free", message_logs=()), graph.as_program(name="kept")]
    )
    for name in ("desk", "free"):
        await runtime.create(name, session_id=name)
    judged = await runtime.send("desk", "hello")
    free = await runtime.send("free", "hello")
    again = await runtime.send("free", "hello again")

    assert (judged.status, judged.error["category"]) == ("failed", "history_invalid")
    assert len((await runtime.get("desk")).messages) == 1
    assert free.status is again.status == "completed"
    assert [each["role"] for each in (await runtime.get("free")).messages] == ["user", "assistant"] * 2


@both
async def test_a_message_before_completion_runs_the_graph_once_more_on_what_it_came_to(
    store: Store, checkpoints: bool
) -> None:
    async def sends(state: Desk) -> Mapping[str, Any]:
        if len(state.messages) == 1:
            await runtime.session("s").enqueue("and this?", boundary="before_completion")
        return {"total": state.total + 1}

    runtime = await desk(store, sends, answers, checkpoints=checkpoints)
    await runtime.create("desk", session_id="s")

    outcome = await runtime.send("s", "this")

    assert texts((await runtime.get("s")).messages) == ["this", "1: this, 1, 0", "and this?", "3: and this?, 2, 0"]
    assert outcome.text == "3: and this?, 2, 0"
    assert await runs_of(runtime) == [RunStatus.COMPLETED]


@in_memory
async def test_five_messages_at_once_are_five_runs_in_order(store: Store) -> None:
    runtime = await desk(store, adds(1), answers)
    await runtime.create("desk", session_id="s")

    outcomes = await asyncio.gather(*(runtime.send("s", f"m{n}", when_busy="queue") for n in range(5)))

    assert all(each.status == "completed" for each in outcomes)
    messages = texts((await runtime.get("s")).messages)
    assert sorted(messages[::2]) == [f"m{n}" for n in range(5)]
    assert messages[1::2] == [f"{2 * n + 1}: {messages[2 * n]}, {n + 1}, 1" for n in range(5)]


@in_memory
async def test_the_same_key_is_one_run(store: Store) -> None:
    runtime = await desk(store, adds(1), answers)
    await runtime.create("desk", session_id="s")

    first = await runtime.send("s", "pay", key="k-1")
    again = await runtime.send("s", "pay", key="k-1")

    assert (again.run_id, again.text, again.reply) == (first.run_id, first.text, first.reply)
    assert len(await runtime.session("s").runs()) == 1


async def test_the_graph_runs_by_itself_on_the_same_session(store: Store) -> None:
    graph = line(adds(1), answers, store=store)
    runtime = await opened(store, [graph.as_program(checkpoints=True)])
    await runtime.create("desk", session_id="s")
    await runtime.send("s", "one")

    beside = await graph.run({"messages": [{"role": "user", "content": "two"}]}, session_id="s")
    outcome = await runtime.send("s", "three")

    assert beside.completed
    assert outcome.text == "5: three, 3, 1"
    assert texts((await runtime.get("s")).messages)[2:4] == ["two", "3: two, 2, 1"]


@in_memory
async def test_hooks_see_what_the_graph_came_to_and_change_it_in_the_same_commit(store: Store) -> None:
    async def mark(session: Any) -> Any:
        return session.appended("messages", {"role": "system", "content": str(session.document["total"])})

    heard, hooks = Heard(), Watching(before_save=mark)
    runtime = await desk(store, adds(4), says("done"), hooks=hooks.hooks, listeners=[heard])
    hooks.at = {}
    await runtime.create("desk", session_id="s")
    hooks.at = {"before_save": mark}
    heard.take(), hooks.take()

    outcome = await runtime.send("s", "hello")

    assert outcome.text == "done"
    session = await runtime.get("s")
    assert texts(session.messages) == ["hello", "done", "4"]
    assert session.version == 3
    assert heard.names == [
        "SessionLoaded",
        "RunStarted",
        "SessionActionExecuted",
        "SessionSaved",
        "RunEnded",
        "SessionLoaded",
    ]
