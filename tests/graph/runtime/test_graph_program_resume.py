"""Graphs under the runtime that go on: after stops, failures, lost runners, and on sessions that moved meanwhile."""

import asyncio
from collections.abc import Mapping
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator

from tenuto import Store
from tenuto.errors import AnswerInvalid
from tenuto.graph import END, CompiledGraph, GraphBuilder, SignalDescriptor, State, append, save_session, suspend
from tenuto.graph.runtime.graph_program import GraphProgram
from tenuto.model.run import RunStatus
from tenuto.runtime.change.action import WriteMetadata
from tenuto.runtime.runtime import SessionRuntime
from tests.graph.desk import Desk, adds, answers, both, desk, line, runs_of, says, texts, turn_here, waits
from tests.graph.talking import Body
from tests.runtime.runtimes import Database, Gate, in_memory, on_disk, opened


def known(word: str) -> str:
    """Return a word that is known, or refuse it."""
    if word not in ("yes", "no"):
        raise ValueError("say 'yes' or 'no'")
    return word


def held(gate: Gate, log: list[str], name: str = "held") -> Body:
    """Return a node that says that it runs, and waits."""

    async def hold(state: Desk) -> Mapping[str, Any]:
        log.append(name)
        await gate()
        return {"total": state.total + 10}

    return hold


def noted(log: list[str], name: str, amount: int = 1) -> Body:
    async def note(state: Desk) -> Mapping[str, Any]:
        log.append(name)
        said = {"role": "assistant", "content": f"{name} {state.total}"}
        return {"total": state.total + amount, "messages": [said], "scratch": [name]}

    return note


def program(*bodies: Body, checkpoints: bool = True) -> GraphProgram:
    return line(*bodies).as_program(checkpoints=checkpoints, output="total")


@both
async def test_a_stop_ends_a_graph_run_and_resume_goes_on_from_its_last_checkpoint(
    store: Store, checkpoints: bool
) -> None:
    log: list[str] = []
    gate = Gate()
    runtime = await desk(store, noted(log, "a"), held(gate, log), answers, checkpoints=checkpoints)
    await runtime.create("desk", session_id="s")
    task = asyncio.create_task(runtime.send("s", "hello"))
    await gate.reached.wait()

    await runtime.session("s").stop(reason="enough")
    stopped = await task

    assert stopped.status == "interrupted"
    assert texts((await runtime.get("s")).messages) == ["hello"]
    gate.open.set()
    outcome = await runtime.session("s").resume()
    assert outcome.text == "2: a 0, 11, 1"
    assert log == (["a", "held", "held"] if checkpoints else ["a", "held", "a", "held"])
    assert texts((await runtime.get("s")).messages) == ["hello", "a 0", "2: a 0, 11, 1"]
    assert (await runtime.get("s")).document["total"] == 11
    assert await runs_of(runtime) == [RunStatus.INTERRUPTED, RunStatus.COMPLETED]


@in_memory
async def test_a_stop_that_a_tool_outlasts_ends_the_run_before_the_next_node(store: Store) -> None:
    gate, log = Gate(), list[str]()

    async def calls(_: Desk) -> Mapping[str, Any]:
        async def tool() -> str:
            await gate()
            log.append("tool")
            return "paid"

        await turn_here().effect("pay", tool)
        return {}

    runtime = await desk(store, calls, noted(log, "after"))
    await runtime.create("desk", session_id="s")
    task = asyncio.create_task(runtime.send("s", "hello"))
    await gate.reached.wait()
    await runtime.session("s").stop()
    gate.open.set()

    assert (await task).status == "interrupted"
    assert log == ["tool"]
    assert (await runtime.session("s").resume()).status == "completed"
    assert log == ["tool", "after"]


@both
async def test_a_failed_run_is_resumed_where_it_failed(store: Store, checkpoints: bool) -> None:
    log: list[str] = []
    broken = [True]

    async def fragile(_: Desk) -> Mapping[str, Any]:
        if broken:
            raise ValueError("once")
        return {"messages": [{"role": "assistant", "content": "mended"}]}

    runtime = await desk(store, noted(log, "a"), fragile, answers, checkpoints=checkpoints)
    await runtime.create("desk", session_id="s")
    assert (await runtime.send("s", "hello")).status == "failed"
    assert (await runtime.session("s").resume()).status == "failed"
    broken.clear()

    assert (await runtime.session("s").resume()).text == "3: mended, 1, 1"
    assert log == ["a"] * (1 if checkpoints else 3)
    assert texts((await runtime.get("s")).messages) == ["hello", "a 0", "mended", "3: mended, 1, 1"]


@both
async def test_what_a_failed_node_saved_is_compared_with_what_it_says_when_resumed(
    store: Store, checkpoints: bool
) -> None:
    tries: list[int] = []

    async def previews(_: Desk) -> Mapping[str, Any]:
        tries.append(len(tries))
        said = {"messages": [{"role": "assistant", "content": f"try {tries[-1]}"}]}
        await save_session(said)
        if not tries[-1]:
            raise ValueError("after the preview")
        return said

    runtime = await desk(store, says("first"), previews, checkpoints=checkpoints)
    await runtime.create("desk", session_id="s")
    await runtime.send("s", "hello")
    assert texts((await runtime.get("s")).messages) == ["hello", "first", "try 0"]

    await runtime.session("s").resume()

    found = texts((await runtime.get("s")).messages)
    assert found == (["hello", "first", "try 1"] if checkpoints else ["hello", "first", "try 0", "first", "try 1"])


async def test_rollback_takes_the_message_of_a_graph_run_back_too(store: Store) -> None:
    gate, log = Gate(), list[str]()
    runtime = await desk(store, noted(log, "a"), held(gate, log), answers)
    await runtime.create("desk", session_id="s")
    gate.open.set()
    await runtime.send("s", "first")
    gate.open.clear()
    gate.reached.clear()
    task = asyncio.create_task(runtime.send("s", "second"))
    await gate.reached.wait()
    other = asyncio.create_task(runtime.send("s", "instead", when_busy="rollback"))
    interrupted = await task
    gate.open.set()

    outcome = await other

    assert interrupted.status == "interrupted"
    assert (await runtime.outcome(interrupted.input_id or "")).status == "rolled_back"
    assert texts((await runtime.get("s")).messages) == [
        "first",
        "a 0",
        "2: a 0, 11, 1",
        "instead",
        "a 11",
        outcome.text,
    ]
    assert outcome.text == "5: a 11, 22, 1"


async def test_a_rolled_back_run_goes_with_what_it_had_saved_itself(store: Store) -> None:
    gate = Gate()

    async def saves(_: Desk) -> Mapping[str, Any]:
        await save_session({"messages": [{"role": "assistant", "content": "saved"}], "total": 70})
        await gate()
        return {}

    runtime = await desk(store, says("said"), saves)
    await runtime.create("desk", session_id="s")
    task = asyncio.create_task(runtime.send("s", "one"))
    await gate.reached.wait()
    other = asyncio.create_task(runtime.send("s", "two", when_busy="rollback"))
    await task
    gate.open.set()
    await other

    session = await runtime.get("s")
    assert texts(session.messages) == ["two", "said"]
    assert dict(session.document) == {"total": 0}


@on_disk
@both
async def test_another_runner_takes_a_lost_run_over_from_its_last_checkpoint(harness: Any, checkpoints: bool) -> None:
    database, log, gate = Database(harness), list[str](), Gate()
    bodies = (noted(log, "a"), noted(log, "b"), held(gate, log), noted(log, "c"))
    lost = await database.runtime(program(*bodies, checkpoints=checkpoints))
    await lost.create("desk", session_id="s")
    task = asyncio.create_task(lost.send("s", "hello"))
    await gate.reached.wait()
    await database.lose(lost, task)
    gate.open.set()

    runtime = await database.runtime(program(*bodies, checkpoints=checkpoints))
    await runtime.drain()

    first = ["a", "b", "held"]
    assert log == [*first, *(["held"] if checkpoints else first), "c"]
    session = await runtime.get("s")
    assert texts(session.messages) == ["hello", "a 0", "b 1", "c 12"]
    assert session.document["total"] == 13
    assert session.logs["scratch"] == ["a", "b", "c"]
    (run,) = await runtime.session("s").runs()
    assert (run.status, run.run.attempt) == (RunStatus.COMPLETED, 2)
    assert (await runtime.send("s", "again")).output == 26


@on_disk
async def test_what_a_lost_runner_saved_in_a_node_gives_way_to_what_the_node_says_in_the_end(harness: Any) -> None:
    database, gate = Database(harness), Gate()

    async def previews(_: Desk) -> Mapping[str, Any]:
        attempt = turn_here().attempt
        if attempt == 1:
            await save_session({"messages": [{"role": "assistant", "content": f"thought {part}"} for part in "ab"]})
        await gate()
        return {"messages": [{"role": "assistant", "content": f"attempt {attempt}"}]}

    lost = await database.runtime(program(says("first"), previews))
    await lost.create("desk", session_id="s")
    task = asyncio.create_task(lost.send("s", "hello"))
    await gate.reached.wait()
    assert len((await lost.get("s")).messages) == 4
    await database.lose(lost, task)
    gate.open.set()

    runtime = await database.runtime(program(says("first"), previews))
    await runtime.drain()

    assert texts((await runtime.get("s")).messages) == ["hello", "first", "attempt 2"]


@on_disk
async def test_a_run_that_is_lost_after_its_resume_goes_on_with_the_answer(harness: Any) -> None:
    database, log, gate = Database(harness), list[str](), Gate()

    async def says_so(state: Desk) -> Mapping[str, Any]:
        return {"messages": [{"role": "assistant", "content": str(state.approved)}]}

    bodies = (noted(log, "a"), waits, held(gate, log), says_so)
    for checkpoints in (True, False):
        log.clear()
        gate.open.clear()
        gate.reached.clear()
        lost = await database.runtime(program(*bodies, checkpoints=checkpoints))
        name = f"s{checkpoints}"
        await lost.create("desk", session_id=name)
        (wait,) = (await lost.send(name, "hello")).waits
        task = asyncio.create_task(lost.answer(wait.wait_id, {"approved": True}))
        await gate.reached.wait()
        await database.lose(lost, task)
        gate.open.set()

        runtime = await database.runtime(program(*bodies, checkpoints=checkpoints))
        await runtime.drain()

        assert log == ["a", "held", "held"]
        assert texts((await runtime.get(name)).messages) == ["hello", "a 0", "True"]
        assert (await runtime.get(name)).document["total"] == 11
        assert await runs_of(runtime, name) == [RunStatus.SUSPENDED, RunStatus.COMPLETED]


@on_disk
@both
async def test_what_a_resumed_runner_saved_before_it_was_lost_is_not_said_twice(
    harness: Any, checkpoints: bool
) -> None:
    database, gate = Database(harness), Gate()

    async def previews(_: Desk) -> Mapping[str, Any]:
        attempt = turn_here().attempt
        if attempt == 1:
            await save_session({"messages": [{"role": "assistant", "content": "thought"}]})
        await gate()
        return {"messages": [{"role": "assistant", "content": f"attempt {attempt}"}]}

    bodies = (says("first"), waits, previews)
    lost = await database.runtime(program(*bodies, checkpoints=checkpoints))
    await lost.create("desk", session_id="s")
    (wait,) = (await lost.send("s", "hello")).waits
    task = asyncio.create_task(lost.answer(wait.wait_id, {}))
    await gate.reached.wait()
    await database.lose(lost, task)
    gate.open.set()

    runtime = await database.runtime(program(*bodies, checkpoints=checkpoints))
    await runtime.drain()

    assert texts((await runtime.get("s")).messages) == ["hello", "first", "attempt 2"]


@on_disk
async def test_a_run_that_is_lost_in_its_second_round_does_not_repeat_the_first(harness: Any) -> None:
    database, log, gate = Database(harness), list[str](), Gate()

    async def first(state: Desk) -> Mapping[str, Any]:
        log.append(f"first {len(state.messages)}")
        if len(state.messages) == 1:
            await holder[0].session("s").enqueue("more", boundary="before_completion")
        else:
            await gate()
        return {"total": state.total + 1}

    holder = [await database.runtime(program(first, answers))]
    await holder[0].create("desk", session_id="s")
    task = asyncio.create_task(holder[0].send("s", "hello"))
    await gate.reached.wait()
    await database.lose(holder[0], task)
    gate.open.set()
    holder[0] = await database.runtime(program(first, answers))

    await holder[0].drain()

    assert log == ["first 1", "first 3", "first 3"]
    session = await holder[0].get("s")
    assert texts(session.messages) == ["hello", "1: hello, 1, 0", "more", "3: more, 2, 0"]


@both
async def test_an_action_on_a_suspended_session_is_kept_when_the_run_goes_on(store: Store, checkpoints: bool) -> None:
    async def tell(session: Any) -> Any:
        return session.with_fields(total=500).appended("messages", {"role": "system", "content": "psst"})

    class Tell:
        async def apply(self, session: Any) -> Any:
            return await tell(session)

    runtime = await desk(store, adds(3), says("asked"), waits, answers, checkpoints=checkpoints)
    await runtime.create("desk", session_id="s")
    (wait,) = (await runtime.send("s", "hello")).waits
    await runtime.execute("s", Tell())
    await runtime.execute("s", WriteMetadata({"seen": True}))

    answered = await runtime.answer(wait.wait_id, {"approved": False})

    assert answered.outcome is not None
    assert answered.outcome.text == "3: psst, 500, 1"
    assert texts((await runtime.get("s")).messages) == ["hello", "asked", "psst", "3: psst, 500, 1"]


@in_memory
async def test_a_run_that_failed_goes_on_after_what_was_said_to_the_session_since(store: Store) -> None:
    class Tell:
        async def apply(self, session: Any) -> Any:
            return session.appended("messages", {"role": "system", "content": "psst"})

    broken = [True]

    async def fragile(_: Desk) -> Mapping[str, Any]:
        if broken:
            raise ValueError("once")
        return {}

    runtime = await desk(store, says("own"), fragile, answers)
    await runtime.create("desk", session_id="s")
    await runtime.send("s", "hello")
    await runtime.execute("s", Tell())
    broken.clear()

    await runtime.session("s").resume()

    assert texts((await runtime.get("s")).messages) == ["hello", "psst", "own", "3: own, 0, 0"]


@on_disk
async def test_nobody_answering_in_time_is_a_failed_run(harness: Any) -> None:
    async def hurries(_: Desk) -> Mapping[str, Any]:
        await suspend(SignalDescriptor("approval"), timeout=30)

    database = Database(harness)
    runtime = await database.runtime(program(hurries, answers))
    await runtime.create("desk", session_id="s")
    await runtime.send("s", "hello")
    await runtime.drain()
    assert await runs_of(runtime) == [RunStatus.SUSPENDED]

    database.clock.advance(31)
    await runtime.drain()

    assert await runs_of(runtime) == [RunStatus.SUSPENDED, RunStatus.FAILED]
    assert (await runtime.session("s").runs())[0].run.error["category"] == "wait_expired"
    assert (await runtime.send("s", "again")).status == "suspended"


@in_memory
async def test_an_answer_that_does_not_fit_the_fields_is_refused_and_the_run_waits_on(store: Store) -> None:
    runtime = await desk(store, waits, answers)
    await runtime.create("desk", session_id="s")
    (wait,) = (await runtime.send("s", "hello")).waits
    for payload in (["approved"], "approved", None):
        with pytest.raises(AnswerInvalid, match="object"):
            await runtime.answer(wait.wait_id, payload)
    for value in ("perhaps", [True], {"yes": True}):
        with pytest.raises(AnswerInvalid) as unfit:
            await runtime.answer(wait, {"approved": value})
        assert [each["path"] for each in unfit.value.problems] == ["answer.approved"]
    assert [each.wait_id for each in await runtime.session("s").waits()] == [wait.wait_id]
    answered = await runtime.answer(wait, {"approved": True})
    assert answered.outcome is not None
    assert answered.outcome.completed


@in_memory
async def test_an_answer_that_fits_the_schema_and_not_the_state_fails_the_run_where_only_it_knows(store: Store) -> None:
    """Elsewhere than where the graph is registered, only what the schema of the pause says is known."""

    class Strict(Desk):
        word: Annotated[str, AfterValidator(known)] | None = None

    async def waits(_: Strict) -> Mapping[str, Any]:
        await suspend(SignalDescriptor("word"))

    graph = GraphBuilder(Strict, "desk").add_node("a", waits).add_edge("a", END).set_entry("a").compile()
    runtime = await opened(store, [graph.as_program()])
    await runtime.create("desk", session_id="s")
    (wait,) = (await runtime.send("s", "hello")).waits
    with pytest.raises(AnswerInvalid, match="'yes' or 'no'"):
        await runtime.answer(wait, {"word": "perhaps"})
    async with SessionRuntime(store) as door:
        with pytest.raises(AnswerInvalid, match=r"answer\.word"):
            await door.answer(wait, {"word": 3}, run=False)
        await door.answer(wait, {"word": "perhaps"}, run=False)
    await runtime.drain()
    answered = await runtime.answer(wait, {"word": "perhaps"})

    assert answered.outcome is not None
    error: Any = answered.outcome.error
    assert (answered.outcome.status, error["category"]) == ("failed", "suspension_resume_payload_invalid")
    assert (await runtime.send("s", "again")).status == "suspended"


class Inner(State):
    steps: Annotated[list[str], append] = []
    word: str = ""


class Outer(State):
    messages: Annotated[list[dict[str, Any]], append] = []
    steps: Annotated[list[str], append] = []


def nested(log: list[str]) -> CompiledGraph[Any]:
    async def begin(_: Inner) -> Mapping[str, Any]:
        log.append("begin")
        return {"steps": ["begin"]}

    async def ask(_: Inner) -> Mapping[str, Any]:
        await suspend(SignalDescriptor("word"))

    async def close(state: Inner) -> Mapping[str, Any]:
        log.append("close")
        return {"steps": [f"close {state.word}"]}

    inner = (
        GraphBuilder(Inner, name="inner")
        .add_node("begin", begin)
        .add_node("ask", ask)
        .add_node("close", close)
        .add_edge("begin", "ask")
        .add_edge("ask", "close")
        .add_edge("close", END)
        .set_entry("begin")
        .compile()
    )
    return (
        GraphBuilder(Outer, name="outer")
        .add_subgraph_node("sub", inner, outputs={"steps": "steps"})
        .add_edge("sub", END)
        .set_entry("sub")
        .compile()
    )


@in_memory
@both
async def test_a_subgraph_that_suspends_goes_on_inside(store: Store, checkpoints: bool) -> None:
    log: list[str] = []
    runtime = await opened(store, [nested(log).as_program(checkpoints=checkpoints, output="steps")])
    await runtime.create("outer", session_id="s")
    (wait,) = (await runtime.send("s", "hello")).waits

    answered = await runtime.answer(wait.wait_id, {"word": "blue"})

    assert answered.outcome is not None
    assert answered.outcome.output == ["begin", "close blue"]
    assert log == ["begin", "close"]


class Many(State):
    messages: Annotated[list[dict[str, Any]], append] = []
    items: list[int] = [1, 2, 3]
    results: Annotated[list[str], append] = []


@on_disk
async def test_instances_that_were_done_before_a_failure_stay_done_through_a_resume_and_a_takeover(
    harness: Any,
) -> None:
    database, gate, log, broken = Database(harness), Gate(), list[int](), [True]

    async def work(_: Many, item: int) -> str:
        log.append(item)
        if item == 2 and broken:
            raise ValueError("two")
        if item == 3:
            await gate()
        return f"did {item}"

    def made() -> GraphProgram:
        builder = GraphBuilder(Many, name="many").add_fan_out_node(
            "all", work, items_field="items", target_field="results", concurrency=1
        )
        graph = builder.add_edge("all", END).set_entry("all").compile()
        return graph.as_program(checkpoints=True, output="results")

    lost = await database.runtime(made())
    await lost.create("many", session_id="s")
    assert (await lost.send("s", "go")).status == "failed"
    assert log == [1, 2]
    broken.clear()
    task = asyncio.create_task(lost.session("s").resume())
    await gate.reached.wait()
    await database.lose(lost, task)
    gate.open.set()
    assert log == [1, 2, 2, 3]

    runtime = await database.runtime(made())
    await runtime.drain()

    assert log == [1, 2, 2, 3, 3]
    assert list((await runtime.get("s")).logs["results"]) == ["did 1", "did 2", "did 3"]
