"""Graphs under the runtime where it gets narrow: open calls, lost replies, many checkpoints, other versions."""

import asyncio
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import pytest
from pydantic import BaseModel

from tenuto import Store
from tenuto.graph import END, GraphBuilder, State, append, save_session
from tenuto.graph.events.node_event import NodeEvent
from tenuto.graph.runtime.graph_program import GraphProgram
from tenuto.model.run import RunStatus
from tenuto.runtime.program.program import program
from tenuto.runtime.program.turn import Turn
from tests.graph.conftest import FaultyStore
from tests.graph.desk import Desk, adds, answers, both, desk, fails, line, runs_of, says, texts, turn_here, waits
from tests.runtime.runtimes import Database, Gate, in_memory, on_disk, opened
from tests.runtime.talking import Watching

CALL = {"id": "c1", "name": "weather", "arguments": {}}


async def asks(_: Desk) -> Mapping[str, Any]:
    """Make a call, save that while it is under way, and go on to say something that is not saved."""
    call = {"role": "assistant", "content": "", "tool_calls": [CALL]}

    async def tool() -> str:
        await save_session({"messages": [call]})
        return "sun"

    result = await turn_here().effect("weather", tool, call_id="c1")
    told = {"role": "tool", "tool_call_id": "c1", "content": result}
    return {"messages": [call, told, {"role": "assistant", "content": "later"}], "total": 8}


@both
async def test_a_call_a_failed_run_left_open_gets_its_result_and_nothing_unsaved_comes_along(
    store: Store, checkpoints: bool
) -> None:
    runtime = await desk(store, asks, fails, checkpoints=checkpoints)
    await runtime.create("desk", session_id="s")
    assert (await runtime.send("s", "hello")).status == "failed"

    session = await runtime.get("s")
    assert [each["role"] for each in session.messages] == ["user", "assistant", "tool"]
    assert session.messages[-1]["tool_call_id"] == "c1"
    assert session.document["total"] == 0
    fine = await desk(store, adds(1), answers, checkpoints=checkpoints)
    assert (await fine.send("s", "again")).text == "4: again, 1, 1"


@on_disk
async def test_a_run_that_all_its_runners_lost_is_given_up_without_what_it_had_not_saved(harness: Any) -> None:
    database, gate = Database(harness), Gate()

    async def hold(_: Desk) -> Mapping[str, Any]:
        await gate()
        return {}

    def made() -> GraphProgram:
        return line(asks, adds(3), hold).as_program(checkpoints=True)

    runtime = await database.runtime(made())
    await runtime.create("desk", session_id="s")
    task: asyncio.Task[Any] = asyncio.create_task(runtime.send("s", "hello"))
    for _ in range(3):
        await gate.reached.wait()
        gate.reached.clear()
        await database.lose(runtime, task)
        runtime = await database.runtime(made())
        task = asyncio.create_task(runtime.drain())
    await task

    (run,) = await runtime.session("s").runs()
    assert (run.status, run.run.error["category"]) == (RunStatus.FAILED, "run_abandoned")
    session = await runtime.get("s")
    assert [each["role"] for each in session.messages] == ["user", "assistant", "tool"]
    assert session.messages[-1]["tool_call_id"] == "c1"
    assert session.document["total"] == 0
    fine = await database.runtime(line(adds(1), answers).as_program())
    assert (await fine.send("s", "again")).text == "4: again, 1, 1"


@pytest.mark.parametrize("nth", [1, 2, 3, 4])
async def test_a_lost_reply_changes_nothing(faulty: FaultyStore, nth: int) -> None:
    calls: list[str] = []

    async def pays(_: Desk) -> Mapping[str, Any]:
        async def tool() -> str:
            calls.append("pay")
            return "paid"

        faulty.faults.lose_reply(nth)
        said: Any = await turn_here().effect("pay", tool)
        return {"messages": [{"role": "assistant", "content": said}], "total": 5}

    runtime = await desk(faulty, pays, answers)
    await runtime.create("desk", session_id="s")

    outcome = await runtime.send("s", "hello")

    assert outcome.text == "2: paid, 5, 0"
    assert calls == ["pay"]
    assert texts((await runtime.get("s")).messages) == ["hello", "paid", "2: paid, 5, 0"]
    assert (await runtime.send("s", "again")).text == "5: paid, 5, 0"


@in_memory
async def test_a_loop_of_a_thousand_nodes_is_rolled_back_whole(store: Store) -> None:
    gate = Gate()
    graph = (
        GraphBuilder(Desk, name="desk")
        .add_node("count", adds(1))
        .add_node("hold", _held(gate))
        .add_conditional_edge("count", lambda state: "count" if state.total < 1010 else "hold")
        .add_edge("hold", END)
        .set_entry("count")
        .compile()
    )
    runtime = await opened(store, [graph.as_program(checkpoints=True, step_limit=5000)])
    await runtime.create("desk", session_id="s")
    task = asyncio.create_task(runtime.send("s", "hello"))
    await gate.reached.wait()
    other = asyncio.create_task(runtime.send("s", "instead", when_busy="rollback"))
    await task
    gate.open.set()
    await other

    session = await runtime.get("s")
    assert (texts(session.messages), session.document["total"]) == (["instead"], 1010)


def _held(gate: Gate) -> Any:
    async def hold(_: Desk) -> Mapping[str, Any]:
        await gate()
        return {}

    return hold


@in_memory
async def test_a_withdrawn_stop_lets_the_graph_go_on_from_its_last_checkpoint(store: Store) -> None:
    log: list[str] = []
    gate = Gate()

    async def first(_: Desk) -> Mapping[str, Any]:
        log.append("first")
        return {"total": 1}

    async def second(state: Desk) -> Mapping[str, Any]:
        log.append("second")
        if log.count("second") == 1:
            try:
                await gate()
            finally:
                await runtime.session("s").withdraw_stop((await runtime.session("s").runs())[0].run_id)
        return {"total": state.total + 10}

    runtime = await desk(store, first, second, answers)
    await runtime.create("desk", session_id="s")
    task = asyncio.create_task(runtime.send("s", "hello"))
    await gate.reached.wait()
    await runtime.session("s").stop()

    outcome = await task

    assert outcome.text == "1: hello, 11, 0"
    assert log == ["first", "second", "second"]
    assert await runs_of(runtime) == [RunStatus.COMPLETED]


@on_disk
async def test_a_graph_that_is_a_child_answers_its_parent_also_after_a_takeover(harness: Any) -> None:
    database, gate = Database(harness), Gate()

    @program
    async def parent(turn: Turn) -> Any:
        answer = await turn.child("desk", {"role": "user", "content": "how much?"})
        return answer.text if answer.output is None else answer.output

    def programs() -> list[Any]:
        return [parent, line(adds(3), _held(gate), answers).as_program(checkpoints=True)]

    lost = await database.runtime(*programs())
    await lost.create("parent", session_id="p")
    assert (await lost.send("p", "go")).status == "suspended"
    task = asyncio.create_task(lost.drain())
    await gate.reached.wait()
    await database.lose(lost, task)
    gate.open.set()

    runtime = await database.runtime(*programs())
    await runtime.drain()

    last, first = await runtime.session("p").runs()
    assert (first.status, last.status) == (RunStatus.SUSPENDED, RunStatus.COMPLETED)
    assert last.run.outcome == {"output": "1: how much?, 3, 1"}


class Old(State):
    schema_version: ClassVar[str] = "1"
    messages: Annotated[list[dict[str, Any]], append] = []
    sum: int = 0


class New(State):
    schema_version: ClassVar[str] = "2"
    messages: Annotated[list[dict[str, Any]], append] = []
    total: int = 0


@both
async def test_a_session_of_an_older_version_is_migrated_by_the_turn(store: Store, checkpoints: bool) -> None:
    async def old(state: Old) -> Mapping[str, Any]:
        return {"sum": state.sum + 1}

    async def new(state: New) -> Mapping[str, Any]:
        return {"total": state.total + 10, "messages": [{"role": "assistant", "content": str(state.total)}]}

    before = GraphBuilder(Old, name="desk").add_node("n", old).add_edge("n", END).set_entry("n").compile()
    after = (
        GraphBuilder(New, name="desk")
        .add_node("n", new)
        .add_edge("n", END)
        .set_entry("n")
        .with_state_migration("1", "2", lambda state: {"total" if k == "sum" else k: v for k, v in state.items()})
        .compile()
    )
    first = await opened(store, [before.as_program(checkpoints=checkpoints)])
    await first.create("desk", session_id="s")
    await first.send("s", "hello")
    second = await opened(store, [after.as_program(checkpoints=checkpoints)])

    for total in (1, 11):
        assert (await second.send("s", "go on")).text == str(total)

    session = await second.get("s")
    assert (dict(session.document), session.schema_version) == ({"total": 21}, "2")
    assert texts(session.messages) == ["hello", "go on", "1", "go on", "11"]


@in_memory
@both
async def test_what_a_hook_changes_when_a_suspended_graph_is_loaded_is_kept(store: Store, checkpoints: bool) -> None:
    async def doubled(session: Any) -> Any:
        return session.with_fields(total=session.document.get("total", 0) * 2)

    hooks = Watching()
    runtime = await desk(store, adds(3), says("asked"), waits, answers, checkpoints=checkpoints, hooks=hooks.hooks)
    await runtime.create("desk", session_id="s")
    (wait,) = (await runtime.send("s", "hello")).waits
    hooks.at = {"after_load": doubled}

    answered = await runtime.answer(wait.wait_id, {})

    hooks.at = {}
    assert answered.outcome is not None
    assert answered.outcome.text == "2: asked, 6, 1"
    assert texts((await runtime.get("s")).messages) == ["hello", "asked", "2: asked, 6, 1"]


async def test_sessions_of_graphs_are_forked_and_rewound_by_their_runs(store: Store) -> None:
    runtime = await desk(store, adds(1), answers)
    await runtime.create("desk", session_id="s")
    outcomes = [await runtime.send("s", f"m{n}") for n in range(3)]

    fork = await (await runtime.session("s").fork(at=outcomes[0].run_id, session_id="fork")).get()
    rewound = await runtime.session("s").rewind(outcomes[1].run_id or "")

    assert texts(fork.messages) == texts(rewound.messages) == ["m0", "1: m0, 1, 1"]
    assert fork.document["total"] == rewound.document["total"] == 1
    for name in ("s", "fork"):
        assert (await runtime.send(name, "on")).text == "3: on, 2, 1"


@in_memory
async def test_observers_see_the_nodes_of_a_turn(store: Store) -> None:
    seen: list[Any] = []

    async def observe(event: Any) -> None:
        if isinstance(event, NodeEvent):
            seen.append((event.node_name, str(event.phase), event.scope.session_id))

    graph = line(adds(1), answers)
    graph.attach_observer(observe)
    runtime = await opened(store, [graph.as_program()])
    await runtime.create("desk", session_id="s")
    await runtime.send("s", "hello")
    await graph.drain()

    assert seen == [(node, phase, "s") for node in ("n0", "n1") for phase in ("started", "completed")]


@in_memory
async def test_a_warm_turn_of_a_graph_makes_no_more_calls_than_one_of_a_function(faulty: FaultyStore) -> None:
    @program
    async def plain(turn: Turn) -> None:
        turn.append({"role": "assistant", "content": "hello"})

    runtime = await opened(faulty, [plain, line(says("hello")).as_program()])
    counts = {}
    for name in ("plain", "desk"):
        await runtime.create(name, session_id=name)
        await runtime.send(name, "one")
        before = faulty.faults.calls
        await runtime.send(name, "two")
        counts[name] = faulty.faults.calls - before
    assert counts["desk"] == counts["plain"]


@in_memory
async def test_a_session_is_rewound_to_a_checkpoint_within_a_run_without_what_was_the_runs_alone(store: Store) -> None:
    runtime = await desk(store, says("first"), adds(1), answers)
    await runtime.create("desk", session_id="s")
    outcome = await runtime.send("s", "hello")
    points = await store.checkpoints.of_session("s", run_id=outcome.run_id)
    after_first = points[-1]

    rewound = await runtime.session("s").rewind(after_first.commit_number)

    assert (texts(rewound.messages), dict(rewound.document)) == (["hello", "first"], {"total": 0})
    assert set(rewound.logs) == {"messages"}
    assert (await runtime.send("s", "on")).text == "4: first, 1, 1"


class Slow:
    """A backend that can hold back the reply of a transaction that has landed."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.landed = asyncio.Event()
        self.holding = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    async def transact(self, *arguments: Any, **options: Any) -> Any:
        result = await self.inner.transact(*arguments, **options)
        if self.holding:
            self.holding -= 1
            if not self.holding:
                self.landed.set()
                await asyncio.Event().wait()
        return result


@pytest.mark.parametrize("nth", [1, 2], ids=["a checkpoint", "the last checkpoint"])
async def test_a_stop_during_a_commit_that_lands_leaves_nothing_twice(store: Store, nth: int) -> None:
    slow: Any = Slow(store.backend)
    store.backend = slow

    async def last(_: Desk) -> Mapping[str, Any]:
        if not slow.landed.is_set():
            slow.holding = nth
        return {"messages": [{"role": "assistant", "content": "last"}], "scratch": ["last"]}

    runtime = await desk(store, says("first", scratch=["first"]), last, says("end"), answers)
    await runtime.create("desk", session_id="s")
    task = asyncio.create_task(runtime.send("s", "hello"))
    await slow.landed.wait()
    await runtime.session("s").stop()
    assert (await task).status == "interrupted"
    assert texts((await runtime.get("s")).messages) == ["hello"]

    assert (await runtime.session("s").resume()).text == "4: end, 0, 2"

    assert texts((await runtime.get("s")).messages) == ["hello", "first", "last", "end", "4: end, 0, 2"]


class Line(BaseModel):
    role: str
    content: str


class Typed(State):
    messages: Annotated[list[Line], append] = []


class Untyped(State):
    messages: Annotated[list[dict[str, Any]], append] = []


@in_memory
async def test_another_graph_that_takes_the_session_on_sees_it_in_its_own_types(store: Store) -> None:
    seen: list[str] = []

    async def look(state: Any) -> Mapping[str, Any]:
        seen.append(",".join(type(each).__name__ for each in state.messages))
        return {}

    def looking(kind: type[State], name: str) -> GraphProgram:
        graph = GraphBuilder(kind, name=name).add_node("look", look).add_edge("look", END).set_entry("look").compile()
        return graph.as_program()

    async def renamed(session: Any) -> Any:
        return session.with_definition(name="typed")

    hooks = Watching()
    runtime = await opened(store, [looking(Untyped, "untyped"), looking(Typed, "typed")], hooks=hooks.hooks)
    await runtime.create("untyped", session_id="s")
    await runtime.send("s", "one")
    hooks.at = {"before_save": renamed}
    await runtime.send("s", "two")
    hooks.at = {}

    assert (await runtime.send("s", "three")).status == "completed"
    assert seen == ["dict", "dict,dict", "Line,Line,Line"]


@both
@pytest.mark.parametrize("harness", ["sqlite"], indirect=True)
async def test_more_entries_than_one_commit_takes_are_all_there_once(store: Store, checkpoints: bool) -> None:
    async def much(state: Desk) -> Mapping[str, Any]:
        start = len(state.messages)
        return {"messages": [{"role": "assistant", "content": f"line {start + n}"} for n in range(2500)]}

    runtime = await desk(store, much, adds(1), checkpoints=checkpoints)
    await runtime.create("desk", session_id="s")
    for _ in range(2):
        assert (await runtime.send("s", "go")).status == "completed"

    lines = [f"line {1 + n}" for n in range(2500)]
    more = [f"line {2502 + n}" for n in range(2500)]
    assert texts((await runtime.get("s")).messages) == ["go", *lines, "go", *more]


@in_memory
async def test_a_function_may_add_more_than_one_commit_takes_too(store: Store) -> None:
    @program
    async def much(turn: Turn) -> None:
        turn.append(*(f"line {n}" for n in range(2500)))

    runtime = await opened(store, [much])
    await runtime.create("much", session_id="s")
    for _ in range(2):
        outcome = await runtime.send("s", "go")
        told = await runtime.outcome(outcome.input_id or "")
        assert (outcome.text, told.text, told.reply) == ("line 2499", "line 2499", outcome.reply)

    assert texts((await runtime.get("s")).messages) == ["go", *(f"line {n}" for n in range(2500))] * 2
