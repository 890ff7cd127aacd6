"""What nodes do through the turn of the runtime: calls made once, chunks of a reply, usage."""

import asyncio
from collections.abc import Mapping
from typing import Annotated, Any

import pytest

from tenuto import Store
from tenuto.graph import END, GraphBuilder, State, append, current_turn
from tenuto.graph.middleware import Retry
from tenuto.graph.runtime.graph_program import GraphProgram
from tenuto.model.run import RunStatus
from tenuto.runtime.stream.reader import fold
from tests.graph.desk import Desk, answers, both, desk, line, says, texts, turn_here
from tests.graph.talking import Body
from tests.runtime.runtimes import Database, Gate, in_memory, on_disk, opened


def pays(calls: list[Any], key: str = "pay", gate: Gate | None = None, **options: Any) -> Body:
    """Return a node that pays through an effect, and then perhaps waits."""

    async def pay(state: Desk) -> Mapping[str, Any]:
        async def tool() -> int:
            calls.append(state.total)
            return len(calls)

        result: Any = await turn_here().effect(key, tool, {"total": state.total}, **options)
        if gate is not None:
            await gate()
        return {"total": state.total + 100 + result}

    return pay


@in_memory
async def test_outside_the_runtime_a_node_has_no_turn(store: Store) -> None:
    seen: list[Any] = []

    async def look(_: Desk) -> Mapping[str, Any]:
        seen.append(current_turn())
        return {}

    await line(look).invoke()
    assert seen == [None]
    assert current_turn() is None


@in_memory
async def test_a_node_knows_whose_turn_it_runs_in(store: Store) -> None:
    seen: list[Any] = []

    async def look(_: Desk) -> Mapping[str, Any]:
        turn = turn_here()
        seen.append((turn.session_id, turn.run_id, turn.attempt, turn.input, turn.definition.name, turn.trace_id))
        return {}

    runtime = await desk(store, look)
    await runtime.create("desk", session_id="s")
    outcome = await runtime.send("s", {"role": "user", "content": "hi", "metadata": {"from": "phone"}})

    trace: Any = (await runtime.session("s").info()).profile.trace
    message = {"role": "user", "content": "hi", "metadata": {"from": "phone"}}
    assert seen == [("s", outcome.run_id, 1, message, "desk", trace["trace_id"])]


@in_memory
@both
async def test_each_node_counts_its_model_calls_and_an_outage_in_one_is_over_when_the_key_is_sent_again(
    store: Store, checkpoints: bool
) -> None:
    asked: list[str] = []

    def model(name: str) -> Any:
        async def ask() -> str:
            asked.append(name)
            if asked == ["first", "second"]:
                raise ConnectionError("down")
            return name

        return ask

    async def one(_: Desk) -> Mapping[str, Any]:
        return {"total": len(await turn_here().model(model("first"), retries=0))}

    async def two(state: Desk) -> Mapping[str, Any]:
        said = [await turn_here().model(model(name), retries=0) for name in ("second", "third")]
        return {"total": state.total + len(said)}

    runtime = await opened(store, [line(one, two, answers).as_program(checkpoints=checkpoints)])
    await runtime.create("desk", session_id="s")
    first = await runtime.send("s", "hello", key="k")
    assert (first.status, first.retryable) == ("failed", True)
    assert (await runtime.send("s", "hello", key="k")).completed
    assert asked == ["first", "second", "second", "third"]
    found = await store.effects.list("s")
    assert [(each.effect_key, each.making) for each in found][:2] == [("model", 1), ("model", 2)]


@on_disk
@both
async def test_effects_of_a_lost_run_are_not_made_again(harness: Any, checkpoints: bool) -> None:
    database, calls, gate = Database(harness), list[Any](), Gate()
    bodies = (pays(calls), pays(calls, gate=gate), answers)

    def made() -> GraphProgram:
        return line(*bodies).as_program(checkpoints=checkpoints)

    lost = await database.runtime(made())
    await lost.create("desk", session_id="s")
    task = asyncio.create_task(lost.send("s", "hello"))
    await gate.reached.wait()
    await database.lose(lost, task)
    gate.open.set()

    runtime = await database.runtime(made())
    await runtime.drain()

    assert calls == [0, 101]
    assert (await runtime.get("s")).messages[-1] == {"role": "assistant", "content": "1: hello, 203, 0"}
    await runtime.send("s", "again")
    assert calls == [0, 101, 203, 306]


@on_disk
async def test_a_call_in_doubt_is_asked_about_and_the_node_runs_again_with_what_is_said(harness: Any) -> None:
    for checkpoints in (True, False):
        database, calls, gate = Database(harness), list[Any](), Gate()

        async def charge(state: Desk) -> Mapping[str, Any]:
            async def tool() -> str:
                calls.append("charge")  # noqa: B023
                await gate()  # noqa: B023
                return "charged"

            result = await turn_here().effect("charge", tool, call_id="call-1")
            return {"messages": [{"role": "assistant", "content": f"{result} {state.total}"}]}

        def made() -> GraphProgram:
            return line(pays(calls), charge, says("bye")).as_program(checkpoints=checkpoints)  # noqa: B023

        name = f"s{checkpoints}"
        lost = await database.runtime(made())
        await lost.create("desk", session_id=name)
        task = asyncio.create_task(lost.send(name, "hello"))
        await gate.reached.wait()
        await database.lose(lost, task)
        gate.open.set()

        runtime = await database.runtime(made())
        await runtime.drain()
        (wait,) = await runtime.session(name).waits()
        assert (wait.kind, wait.metadata["call_id"]) == ("in_doubt", "call-1")
        (doubtful,) = await runtime.session(name).effects_in_doubt()
        assert doubtful.effect_key == "charge"
        other = await database.runtime(made())
        answered = await other.answer(wait.wait_id, {"outcome": "done", "result": "charged by hand"})

        assert answered.outcome is not None
        assert answered.outcome.status == "completed"
        assert calls == [0, "charge"]
        assert texts((await other.get(name)).messages) == ["hello", "charged by hand 101", "bye"]
        assert await other.session(name).effects_in_doubt() == ()


@on_disk
async def test_a_call_in_doubt_in_middleware_fails_the_turn_since_only_a_body_can_be_asked_about(harness: Any) -> None:
    database, calls, gate = Database(harness), list[Any](), Gate()

    async def charges(state: Desk, following: Any) -> Mapping[str, Any]:
        async def tool() -> str:
            calls.append("charge")
            await gate()
            return "charged"

        await turn_here().effect("charge", tool, call_id="call-1")
        update: Mapping[str, Any] = await following(state)
        return update

    def made() -> GraphProgram:
        builder = GraphBuilder(Desk, name="desk").add_node("talk", says("hi"), middleware=[charges])
        return builder.add_edge("talk", END).set_entry("talk").compile().as_program(checkpoints=True)

    lost = await database.runtime(made())
    await lost.create("desk", session_id="s")
    task = asyncio.create_task(lost.send("s", "hello"))
    await gate.reached.wait()
    await database.lose(lost, task)
    gate.open.set()

    runtime = await database.runtime(made())
    await runtime.drain()
    (last, *_) = await runtime.session("s").runs()
    run = await runtime.store.runs.get(last.run_id)
    assert run is not None
    assert run.status is RunStatus.FAILED
    assert "It is not known" in str(run.error)
    assert calls == ["charge"]


@in_memory
async def test_a_loop_calls_anew_in_every_round(store: Store) -> None:
    calls: list[Any] = []
    graph = (
        GraphBuilder(Desk, name="desk")
        .add_node("pay", pays(calls))
        .add_conditional_edge("pay", lambda state: END if state.total > 300 else "pay")
        .set_entry("pay")
        .compile()
    )
    runtime = await opened(store, [graph.as_program(output="total")])
    await runtime.create("desk", session_id="s")

    assert (await runtime.send("s", "go")).output == 306
    assert calls == [0, 101, 203]
    effects = await store.effects.list("s")
    assert [each.namespace for each in effects] == ["pay@0", "pay@1", "pay@2"]


@in_memory
async def test_another_attempt_at_a_node_repeats_only_the_calls_that_failed(store: Store) -> None:
    calls: list[str] = []

    async def fragile(_: Desk) -> Mapping[str, Any]:
        async def steady() -> str:
            calls.append("steady")
            return "ok"

        async def shaky() -> str:
            calls.append("shaky")
            if calls.count("shaky") < 3:
                raise ConnectionError("gone")
            return "at last"

        turn = turn_here()
        await turn.effect("steady", steady)
        return {"messages": [{"role": "assistant", "content": await turn.effect("shaky", shaky)}]}

    retry = Retry(max_attempts=4, classifier=lambda _, __: True, backoff=lambda _: 0.0)
    graph = GraphBuilder(Desk, name="desk").add_node("call", fragile, middleware=[retry])
    runtime = await opened(store, [graph.add_edge("call", END).set_entry("call").compile().as_program()])
    await runtime.create("desk", session_id="s")

    outcome = await runtime.send("s", "go")

    assert outcome.text == "at last"
    assert calls == ["steady", "shaky", "shaky", "shaky"]


class Many(State):
    messages: Annotated[list[Any], append] = []
    items: list[int] = [1, 2, 3]
    results: Annotated[list[Any], append] = []


class One(State):
    item: int = 0
    round: int = 0
    result: str = ""


def spread(log: list[str], gate: Gate | None) -> GraphProgram:
    """Each instance goes round twice, and calls once in each round."""

    async def work(state: One) -> Mapping[str, Any]:
        async def tool() -> str:
            log.append(f"{state.item}.{state.round}")
            return f"{state.item}.{state.round}"

        result: Any = await turn_here().effect("work", tool)
        if gate is not None and (state.item, state.round) == (3, 1):
            await gate()
        return {"round": state.round + 1, "result": f"{state.result} {result}"}

    one = (
        GraphBuilder(One, name="one")
        .add_node("work", work)
        .add_conditional_edge("work", lambda state: END if state.round == 2 else "work")
        .set_entry("work")
        .compile()
    )
    return (
        GraphBuilder(Many, name="many")
        .add_fan_out_node(
            "all", one, items_field="items", item_field="item", collect_field="result", target_field="results"
        )
        .add_edge("all", END)
        .set_entry("all")
        .compile()
        .as_program(message_logs=(), checkpoints=log is not None, output="results")
    )


@on_disk
async def test_calls_of_a_lost_fan_out_are_not_made_again(harness: Any) -> None:
    database, log, gate = Database(harness), list[str](), Gate()
    lost = await database.runtime(spread(log, gate))
    await lost.create("many", session_id="s")
    task = asyncio.create_task(lost.send("s", "go"))
    await gate.reached.wait()
    await database.lose(lost, task)
    gate.open.set()
    assert sorted(log) == ["1.0", "1.1", "2.0", "2.1", "3.0", "3.1"]

    runtime = await database.runtime(spread(log, gate))
    await runtime.drain()

    assert len(log) == 6
    (run,) = await runtime.session("s").runs()
    assert run.status is RunStatus.COMPLETED
    outcome = (await runtime.get("s")).logs["results"]
    assert list(outcome) == [" 1.0 1.1", " 2.0 2.1", " 3.0 3.1"]


async def test_what_nodes_emit_is_in_the_stream_and_stands_after_their_checkpoint(store: Store) -> None:
    async def speaks(_: Desk) -> Mapping[str, Any]:
        turn = turn_here()
        for part in ("he", "llo"):
            turn.emit(part)
        turn.record_usage("small", input=3, output=2)
        return {"messages": [{"role": "assistant", "content": "hello"}]}

    runtime = await desk(store, speaks, speaks)
    await runtime.create("desk", session_id="s")
    await runtime.send("s", "hi")

    frames = [frame async for frame in runtime.session("s").events(live=False)]
    chunks = [frame.data for frame in fold(frames) if frame.type == "chunk"]
    assert chunks == ["he", "llo"] * 2
    report = await runtime.session("s").usage()
    assert report.total.input == 6


@on_disk
async def test_chunks_of_a_node_that_runs_again_are_rewound_and_those_of_finished_nodes_are_not(harness: Any) -> None:
    database, gate = Database(harness), Gate()

    def speaks(text: str, waits: bool) -> Body:
        async def speak(_: Desk) -> Mapping[str, Any]:
            turn = turn_here()
            turn.emit(f"{text}{turn.attempt}")
            if waits:
                await gate()
            return {}

        return speak

    def made() -> GraphProgram:
        return line(speaks("a", False), speaks("b", True)).as_program(checkpoints=True)

    lost = await database.runtime(made())
    await lost.create("desk", session_id="s")
    task = asyncio.create_task(lost.send("s", "hello"))
    await gate.reached.wait()
    async for frame in lost.session("s").events():
        if frame.type == "chunk" and frame.data == "b1":
            break
    await database.lose(lost, task)
    gate.open.set()
    runtime = await database.runtime(made())
    await runtime.drain()

    frames = [frame async for frame in runtime.session("s").events(live=False)]
    raw = [frame.data for frame in frames if frame.type == "chunk"]
    assert raw == ["a1", "b1", "b2"]
    folded = [frame.data for frame in fold(frames) if frame.type == "chunk"]
    assert folded == ["a1", "b2"]


async def _twice_at_once(tool: Any) -> Mapping[str, Any]:
    async with asyncio.TaskGroup() as group:
        for key in ("one", "two"):
            group.create_task(turn_here().effect(key, tool))
    return {}


@in_memory
@pytest.mark.parametrize("place", ["instances", "tasks"])
async def test_a_stop_lets_tools_finish_wherever_they_run_and_resume_does_not_call_them_again(
    store: Store, place: str
) -> None:
    gate, calls = Gate(), list[str]()

    async def tool() -> str:
        await gate()
        calls.append("done")
        return "done"

    async def instance(_: Many, item: int) -> Any:
        return await turn_here().effect("work", tool)

    async def tasks(_: Many) -> Mapping[str, Any]:
        return await _twice_at_once(tool)

    builder = GraphBuilder(Many, name="many")
    if place == "tasks":
        builder.add_node("all", tasks)
    else:
        builder.add_fan_out_node("all", instance, items_field="items", target_field="results")
    graph = builder.add_edge("all", END).set_entry("all").compile()
    runtime = await opened(store, [graph.as_program(checkpoints=True)])
    await runtime.create("many", session_id="s")
    task = asyncio.create_task(runtime.send("s", "go"))
    count = 2 if place == "tasks" else 3
    async with asyncio.timeout(10):
        while gate.entered < count:
            await asyncio.sleep(0)
    await runtime.session("s").stop()
    gate.open.set()

    assert (await task).status == "interrupted"
    assert len(calls) == count
    assert (await runtime.session("s").resume()).status == "completed"
    assert len(calls) == count
