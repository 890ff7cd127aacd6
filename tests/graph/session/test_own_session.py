"""Saving the session from inside a node: at once, again, as a preview, and when that fails."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from tenuto import Store, TenutoError
from tenuto.errors import InvalidInput, SessionSaveFailed, SuspensionInUnsupportedContext
from tenuto.graph import END, Branch, CompiledGraph, GraphBuilder, State, save_session
from tenuto.graph.middleware import Retry
from tests.conftest import OurHarness
from tests.graph.conftest import FaultyStore
from tests.graph.talking import Talk, ended, fails, held, line, nothing, says

CHECKPOINTS = pytest.mark.parametrize("checkpoints", [False, True], ids=["plain", "checkpoints"])


def talk(*bodies: Any, store: Store, checkpoints: bool = False, **session: Any) -> CompiledGraph[Any]:
    return line(*bodies, store=store, checkpoints=store if checkpoints else None, **session)


@CHECKPOINTS
async def test_a_save_is_seen_by_others_at_once_and_may_be_repeated(harness: OurHarness, checkpoints: bool) -> None:
    store, others = await harness.open(), await harness.open()
    seen: list[Any] = []

    async def work(_: Any) -> Mapping[str, Any]:
        for number in range(1, 4):
            await save_session({"messages": [f"step {n}" for n in range(number)], "count": number})
            seen.append(await held(others))
        return {"messages": ["step 0", "step 1", "step 2"], "count": 3}

    await talk(says("first"), work, store=store, checkpoints=checkpoints).invoke(session_id="s")
    assert [(each["count"], each["messages"]) for each in seen] == [
        (1, ["first", "step 0"]),
        (2, ["first", "step 0", "step 1"]),
        (3, ["first", "step 0", "step 1", "step 2"]),
    ]
    assert (await held(others))["messages"] == ["first", "step 0", "step 1", "step 2"]


@CHECKPOINTS
@pytest.mark.parametrize(
    ("previews", "returned"),
    [
        ([["a", "b"]], ["a", "c"]),
        ([["a", "b"]], ["a"]),
        ([["a", "b"]], []),
        ([["a"]], ["a", "b"]),
        ([["a"], ["b"], ["a", "c"]], ["a", "c", "d"]),
        ([["x"], []], ["x"]),
        ([["a", "b"], ["a"]], ["a", "b"]),
    ],
)
async def test_a_preview_gives_way_to_what_the_node_returns(
    store: Store, checkpoints: bool, previews: list[list[str]], returned: list[str]
) -> None:
    async def work(_: Any) -> Mapping[str, Any]:
        for preview in previews:
            await save_session({"messages": preview, "mood": "unsure"})
            assert (await held(store))["messages"] == ["old", "first", *preview]
        return {"messages": returned}

    await line(says("old", mood="glad"), store=store).invoke(session_id="s")
    graph = talk(says("first"), work, says("last"), store=store, checkpoints=checkpoints)
    final = await graph.invoke(session_id="s")
    assert final.messages == ["old", "first", *returned, "last"]
    assert (await held(store)) == {"messages": final.messages, "mood": "glad", "count": 0} | _notes(await held(store))
    assert (await line(nothing, store=store).invoke(session_id="s")).messages == final.messages


def _notes(found: dict[str, Any]) -> dict[str, Any]:
    return {"notes": found["notes"]} if "notes" in found else {}


async def test_a_save_without_partial_saves_the_state_at_the_nodes_entry(store: Store) -> None:
    async def work(_: Any) -> Mapping[str, Any]:
        await save_session()
        assert (await held(store))["messages"] == ["first"]
        raise ValueError

    out = await line(says("first"), work, store=store).run(session_id="s")
    assert ended(out) == "failed: node_exception"
    assert (await held(store))["messages"] == ["first"]


@CHECKPOINTS
async def test_a_retried_node_saves_anew_and_doubles_nothing(store: Store, checkpoints: bool) -> None:
    tries: list[int] = []

    async def work(_: Any) -> Mapping[str, Any]:
        tries.append(len(tries))
        await save_session({"messages": ["asked", f"try {tries[-1]}"]})
        if len(tries) < 3:
            raise ValueError
        return {"messages": ["asked", "answered"]}

    again = Retry(max_attempts=3, classifier=lambda *_: True, backoff=lambda _: 0.0)
    graph = talk(work, store=store, checkpoints=checkpoints, build=lambda builder: builder.add_middleware(again))
    final = await graph.invoke({"messages": ["hi"]}, session_id="s")
    assert final.messages == (await held(store))["messages"] == ["hi", "asked", "answered"]


@CHECKPOINTS
@pytest.mark.parametrize("fault", ["refused", "cut", "landed"])
async def test_a_save_that_fails_raises_at_the_call_and_the_end_is_right(
    faulty: FaultyStore, checkpoints: bool, fault: str
) -> None:
    async def work(_: Any) -> Mapping[str, Any]:
        if fault == "landed":
            faulty.faults.lose_reply()
        elif fault == "refused":
            faulty.faults.fail_call()
        else:
            faulty.faults.cut()
        with pytest.raises(SessionSaveFailed) as raised:
            await save_session({"messages": ["a", "b"], "mood": "unsure"})
        assert raised.value.final_state.messages == ["hi", "a", "b"]
        faulty.faults.heal()
        return {"messages": ["a", "c"]}

    graph = talk(work, says("end"), store=faulty, checkpoints=checkpoints)
    out = await graph.run({"messages": ["hi"]}, session_id="s")
    assert ended(out) == "completed"
    assert (await held(faulty))["messages"] == ["hi", "a", "c", "end"]
    assert (await held(faulty))["mood"] == "calm"
    head = await faulty.head("s")
    assert head is not None
    assert head.version == (2 if fault == "landed" else 1)


@pytest.mark.parametrize("fault", ["refused", "landed"])
async def test_a_save_that_failed_can_be_made_again_in_the_node(faulty: FaultyStore, fault: str) -> None:
    async def work(_: Any) -> Mapping[str, Any]:
        if fault == "landed":
            faulty.faults.lose_reply()
        else:
            faulty.faults.fail_call()
        with pytest.raises(SessionSaveFailed):
            await save_session({"messages": ["a"]})
        await save_session({"messages": ["a"]})
        assert (await held(faulty))["messages"] == ["a"]
        return {"messages": ["a"]}

    await line(work, store=faulty).invoke(session_id="s")
    assert (await held(faulty))["messages"] == ["a"]


async def test_a_save_that_nobody_catches_fails_the_run_at_that_node(faulty: FaultyStore) -> None:
    async def work(_: Any) -> Mapping[str, Any]:
        faulty.faults.fail_call()
        await save_session({"messages": ["a"]})
        return {}

    out = await line(work, store=faulty).run(session_id="s")
    assert ended(out) == "failed: node_exception"
    assert isinstance(out.error.__cause__ if out.error else None, SessionSaveFailed)
    (run,) = await faulty.runs.of_invocation(out.invocation_id)
    assert (run.status, await faulty.load("s")) == ("failed", None)


async def test_saves_at_the_same_time_follow_each_other(store: Store) -> None:
    async def work(_: Any) -> Mapping[str, Any]:
        await asyncio.gather(save_session({"messages": ["a"]}), save_session({"messages": ["b"]}))
        assert (await held(store))["messages"] in (["a"], ["b"])
        return {"messages": ["b"]}

    await line(work, store=store).invoke(session_id="s")
    assert (await held(store))["messages"] == ["b"]


async def test_a_big_preview_that_failed_on_the_way_is_neither_lost_nor_doubled(faulty: FaultyStore) -> None:
    many = [f"m{number}" for number in range(4500)]

    async def work(_: Any) -> Mapping[str, Any]:
        faulty.faults.lose_reply(2)
        with pytest.raises(SessionSaveFailed):
            await save_session({"messages": many})
        faulty.faults.fail_call(3)
        with pytest.raises(SessionSaveFailed):
            await save_session({"messages": many})
        return {"messages": many}

    await line(says("hi"), work, store=faulty).invoke(session_id="s")
    assert (await held(faulty))["messages"] == ["hi", *many]


class Inner(State):
    n: int = 0


async def _tries(caught: list[BaseException]) -> Mapping[str, Any]:
    try:
        await save_session({"n": 1})
    except TenutoError as error:
        caught.append(error)
    return {}


@pytest.mark.parametrize("place", ["subgraph", "instance", "called instance", "branch", "called branch"])
@pytest.mark.parametrize("session_id", [None, "s"])
async def test_there_is_no_session_to_save_inside_a_node(store: Store, place: str, session_id: str | None) -> None:
    caught: list[BaseException] = []
    inner = GraphBuilder(Inner).add_node("in", lambda _: _tries(caught)).add_edge("in", END).set_entry("in").compile()

    async def called(*_: Any) -> Any:
        await _tries(caught)
        return 1

    async def called_branch(_: Any) -> Mapping[str, Any]:
        return await _tries(caught)

    builder = GraphBuilder(Talk)
    match place:
        case "subgraph":
            builder.add_subgraph_node("node", inner)
        case "instance":
            builder.add_fan_out_node("node", inner, count=1, collect_field="n", target_field="notes")
        case "called instance":
            builder.add_fan_out_node("node", called, count=1, target_field="notes")
        case "branch":
            builder.add_parallel_branches_node("node", {"one": Branch(subgraph=inner)})
        case _:
            builder.add_parallel_branches_node("node", {"one": Branch(call=called_branch)})
    builder.add_edge("node", END).set_entry("node").with_session_store(store)
    await builder.compile().run(session_id=session_id)
    assert [type(error) for error in caught] == [InvalidInput]


async def test_saving_from_middleware_or_outside_is_a_typed_error(store: Store) -> None:
    async def early(state: Any, following: Any) -> Mapping[str, Any]:
        await save_session()
        update: Mapping[str, Any] = await following(state)
        return update

    graph = line(nothing, store=store, build=lambda builder: builder.add_middleware(early))
    assert ended(await graph.run(session_id="s")) == "failed: suspension_in_unsupported_context"
    with pytest.raises(SuspensionInUnsupportedContext):
        await save_session()


async def test_without_a_session_a_save_does_nothing(faulty: FaultyStore) -> None:
    async def work(_: Any) -> Mapping[str, Any]:
        await save_session({"messages": ["a"]})
        return {}

    before = faulty.faults.calls
    assert ended(await line(work, store=faulty).run()) == "completed"
    assert ended(await line(work).run(session_id="s")) == "completed"
    assert faulty.faults.calls == before


async def test_a_partial_that_does_not_fit_is_refused_like_an_update(store: Store) -> None:
    async def work(_: Any) -> Mapping[str, Any]:
        await save_session({"count": "many"})
        return {}

    assert ended(await line(work, store=store).run(session_id="s")) == "failed: state_validation_error"
    assert await store.load("s") is None


async def test_without_auto_save_only_what_the_node_saves_is_kept(store: Store) -> None:
    async def work(_: Any) -> Mapping[str, Any]:
        await save_session({"messages": ["kept"]})
        return {"messages": ["not kept"]}

    await line(work, store=store, auto_save=False).invoke(session_id="s")
    assert (await held(store))["messages"] == ["kept"]


async def test_a_run_that_fails_after_a_save_leaves_what_was_saved(store: Store) -> None:
    async def work(_: Any) -> Mapping[str, Any]:
        await save_session({"messages": ["kept"]})
        return {"messages": ["other"]}

    out = await line(work, fails, store=store, checkpoints=store).run(session_id="s")
    assert (ended(out), (await held(store))["messages"]) == ("failed: node_exception", ["kept"])
