"""What a session gives a run, and what it keeps of it."""

import asyncio
import warnings
from pathlib import Path
from typing import Annotated, Any, ClassVar

import pytest

from tenuto import Store
from tenuto.errors import InvalidInput
from tenuto.graph import SessionState, State, append, bounded_append, merge_all, merge_by_key
from tenuto.graph.engine.scope import current_invocation_id, current_session_id
from tenuto.graph.warnings import SessionNotKept, SessionStateDoubled
from tests.graph.conftest import FaultyStore
from tests.graph.talking import Memory, Talk, ended, fails, held, line, nothing, says


async def test_a_projected_session_keeps_its_own_fields_under_its_own_version_and_no_scratch(store: Store) -> None:
    graph = line(says("hi", scratch="gone", mood="glad"), store=store)
    out = await graph.run(session_id="s")
    assert out.state is not None
    assert (ended(out), out.session_existed, out.state.scratch) == ("completed", False, "gone")
    record = await store.load("s")
    assert record is not None
    assert record.state == {"messages": ["hi"], "notes": [], "mood": "glad", "count": 0} or record.state == {
        "messages": ["hi"],
        "mood": "glad",
        "count": 0,
    }
    assert (record.schema_version, record.version, "messages" in record.logs) == ("memory-5", 1, True)
    again = await graph.run(session_id="s")
    assert again.session_existed is True
    assert again.entry_state is not None
    assert (again.entry_state.messages, again.entry_state.mood, again.entry_state.scratch) == (["hi"], "glad", "")


async def test_a_full_state_session_keeps_every_field_under_the_states_version(store: Store) -> None:
    graph = line(says("hi", scratch="kept"), store=store, state=None)
    await graph.invoke(session_id="s")
    record = await store.load("s")
    assert record is not None
    assert (record.state["scratch"], record.schema_version) == ("kept", "talk-3")
    assert (await graph.invoke(session_id="s")).messages == ["hi", "hi"]


async def test_mapped_fields_have_the_sessions_names_at_rest_and_come_back_warm_and_cold(store: Store) -> None:
    class Named(SessionState):
        history: list[str]
        feeling: str

    def made() -> Any:
        names = {"history": "messages", "feeling": "mood"}
        return line(says("hi", mood="glad"), store=store, state=Named, mapping=names)

    graph = made()
    await graph.invoke(session_id="s")
    assert await held(store) == {"history": ["hi"], "feeling": "glad"}
    for each in (graph, graph, made()):
        out = await each.run(session_id="s")
        assert ended(out) == "completed"
        assert out.entry_state is not None
        assert out.entry_state.mood == "glad"
    assert (await held(store))["history"] == ["hi"] * 4


@pytest.mark.parametrize(
    ("names", "fault"), [({"nothing": "mood"}, "does not declare"), ({"feeling": "absent"}, "absent"), ({}, "feeling")]
)
def test_a_mapping_that_does_not_fit_is_refused_when_the_graph_is_built(names: dict[str, str], fault: str) -> None:
    class Named(SessionState):
        feeling: str

    class Any4:
        async def load(self, _: str) -> None: ...
        async def save(self, *_: Any) -> None: ...
        async def delete(self, _: str) -> None: ...
        async def list(self, _: Any = None) -> None: ...

    with pytest.raises(InvalidInput, match=fault):
        line(nothing, store=Any4(), state=Named, mapping=names)


async def test_given_fields_go_through_their_reducers_on_top_of_the_record(store: Store) -> None:
    graph = line(nothing, store=store)
    await graph.invoke({"messages": ["one"], "mood": "glad", "count": 4}, session_id="s")
    final = await graph.invoke({"messages": ["two"], "count": 5}, session_id="s")
    assert (final.messages, final.mood, final.count) == (["one", "two"], "glad", 5)


async def test_of_a_state_only_what_the_caller_set_counts(store: Store) -> None:
    graph = line(nothing, store=store)
    await graph.invoke(Talk(messages=["one"], mood="glad"), session_id="s")
    final = await graph.invoke(Talk(messages=["two"]), session_id="s")
    assert (final.messages, final.mood) == (["one", "two"], "glad")


class Needy(State):
    name: str
    tags: Annotated[list[str], append]
    seen: int = 0


class NeedyMemory(SessionState):
    name: str
    tags: list[str]


async def test_a_field_without_default_comes_from_the_session_or_the_caller_or_nothing_runs(store: Store) -> None:
    graph = line(nothing, store=store, kind=Needy, state=NeedyMemory)
    assert ended(await graph.run({"name": "Ann"}, session_id="s")) == "failed: state_validation_error"
    assert not await store.exists("s")
    await graph.invoke({"name": "Ann", "tags": ["a"]}, session_id="s")
    final = await graph.invoke({"tags": ["b"]}, session_id="s")
    assert (final.name, final.tags) == ("Ann", ["a", "b"])
    assert ended(await graph.run({"name": 7, "tags": []}, session_id="new")) == "failed: state_validation_error"
    assert ended(await graph.run({"nom": "Ann"}, session_id="s")) == "failed: state_validation_error"


async def test_passing_the_whole_loaded_state_back_warns_that_a_log_doubles(store: Store) -> None:
    graph = line(says("hi"), store=store)
    first = await graph.invoke(session_id="s")
    with pytest.warns(SessionStateDoubled, match="messages") as caught:
        doubled = await graph.invoke(first.model_dump(), session_id="s")
    assert doubled.messages == ["hi", "hi", "hi"]
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        await graph.invoke({"messages": ["another"]}, session_id="s")
        await graph.invoke({"messages": ["hi"]}, session_id="elsewhere")


async def test_without_a_session_id_the_store_is_not_called_once(faulty: FaultyStore) -> None:
    graph = line(says("hi"), store=faulty)
    before = faulty.faults.calls
    assert ended(await graph.run()) == "completed"
    assert ended(await line(fails, store=faulty).run()) == "failed: node_exception"
    assert ended(await graph.run(stop=lambda: True)) == "interrupted"
    assert faulty.faults.calls == before


async def test_a_session_id_without_a_store_is_inert_but_seen(store: Store) -> None:
    seen: list[Any] = []

    async def look(_: Any) -> dict[str, Any]:
        seen.append((current_session_id(), current_invocation_id()))
        return {}

    graph = line(look)
    out = await graph.run(session_id="s")
    assert seen == [("s", out.invocation_id)]
    assert (out.session_id, out.session_existed, out.session_kept) == ("s", None, False)
    assert (await graph.run()).session_kept is None
    assert (await line(look, store=store).run(session_id="t")).session_kept is True
    await store.delete("t")
    assert current_session_id() is None
    await line(look, checkpoints=store).run(session_id="s")
    assert not await store.exists("s")


async def test_a_session_named_in_vain_is_warned_of_once_per_graph(caplog: pytest.LogCaptureFixture) -> None:
    graph = line(nothing)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            assert (await graph.run(session_id="s")).completed
        assert (await graph.run()).completed
    assert [each.category for each in caught] == [SessionNotKept]
    assert Path(caught[0].filename) == Path(__file__)
    told = [record.message for record in caplog.records if record.name == "tenuto.graph"]
    assert len(told) == 1
    assert "with_session_store" in told[0]


async def test_without_auto_save_nothing_reaches_the_session(store: Store) -> None:
    await line(says("kept"), store=store).invoke(session_id="s")
    before = await store.head("s")
    out = await line(says("not kept"), store=store, auto_save=False, concurrency="last_write_wins").run(session_id="s")
    assert out.state is not None
    assert out.state.messages == ["kept", "not kept"]
    assert await store.head("s") == before


@pytest.mark.parametrize("checkpoints", [False, True])
async def test_a_failed_run_saves_nothing_and_its_record_says_so(store: Store, checkpoints: bool) -> None:
    graph = line(says("lost"), fails, store=store, checkpoints=store if checkpoints else None)
    out = await graph.run({"messages": ["hi"]}, session_id="s")
    assert ended(out) == "failed: node_exception"
    assert await store.load("s") is None
    (run,) = await store.runs.of_invocation(out.invocation_id)
    assert (run.status, run.error["category"]) == ("failed", "node_exception")
    assert (await line(nothing, store=store).run(session_id="s")).session_existed is False


async def test_what_a_failed_node_changed_in_place_is_not_seen_by_the_next_turn(store: Store) -> None:
    class Profile(State):
        facts: dict[str, str] = {}

    bodies = [says()]
    graph = line(lambda state: bodies[0](state), store=store, kind=Profile, state=None)

    async def learn(_: Any) -> dict[str, Any]:
        return {"facts": {"name": "Ann"}}

    async def spoil(state: Any) -> dict[str, Any]:
        state.facts["name"] = "Bob"
        raise ValueError

    bodies[0] = learn
    await graph.invoke(session_id="s")
    bodies[0] = spoil
    await graph.run(session_id="s")
    bodies[0] = nothing
    assert (await graph.invoke(session_id="s")).facts == {"name": "Ann"}


@pytest.mark.parametrize("concurrency", ["last_write_wins", "exclusive"])
@pytest.mark.parametrize("checkpoints", [False, True])
async def test_a_cancelled_invocation_frees_the_lane_and_leaves_no_task(
    store: Store, concurrency: str, checkpoints: bool
) -> None:
    inside = asyncio.Event()

    async def hang(_: Any) -> dict[str, Any]:
        inside.set()
        await asyncio.Event().wait()
        return {}

    options: dict[str, Any] = {
        "store": store,
        "concurrency": concurrency,
        "checkpoints": store if checkpoints else None,
    }
    before = asyncio.all_tasks()
    task = asyncio.create_task(line(hang, **options).run(session_id="s", invocation_id="cancelled"))
    await inside.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert asyncio.all_tasks() - {task} <= before
    (run,) = await store.runs.of_invocation("cancelled")
    assert run.status == "interrupted"
    out = await line(says("next"), lane_wait=0.0, **options).run(session_id="s")
    assert (ended(out), out.session_existed) == ("completed", False)


async def test_a_session_whose_stored_state_does_not_fit_is_refused_before_anything_runs(store: Store) -> None:
    class Strict(SessionState):
        schema_version: ClassVar[str] = "memory-5"
        count: int

    await store.create("s", state={"count": "many"}, schema_version="memory-5")
    ran: list[str] = []

    async def note(_: Any) -> dict[str, Any]:
        ran.append("ran")
        return {}

    out = await line(note, store=store, state=Strict).run(session_id="s")
    assert (ended(out), ran) == ("failed: session_load_failed", [])


async def test_tenants_have_sessions_of_their_own(store: Store) -> None:
    graph = line(says("hi"), store=store)
    await graph.bind(store, tenant="a").invoke(session_id="s")
    assert (await graph.bind(store, tenant="b").run(session_id="s")).session_existed is False
    assert (await graph.run(session_id="s")).session_existed is False


def test_the_session_state_says_its_own_version() -> None:
    assert (Memory.schema_version, Talk.schema_version) == ("memory-5", "talk-3")


class Recent(State):
    last: Annotated[list[str], bounded_append(5)] = []
    facts: Annotated[dict[str, int], merge_all] = {}
    unique: Annotated[list[dict[str, str]], merge_by_key(lambda each: each["id"])] = []


async def test_passing_a_bounded_log_back_warns_too_and_what_cannot_double_does_not(store: Store) -> None:
    async def add(_: Recent) -> dict[str, Any]:
        return {"last": ["x"], "unique": [{"id": "1"}], "facts": [{"a": 1}, {"b": 2}]}

    graph = line(add, store=store, kind=Recent, state=None)
    await graph.run(session_id="s")
    with pytest.warns(SessionStateDoubled, match="'last'"):
        await graph.run({"last": ["x", "new"]}, session_id="s")
    with pytest.warns(SessionStateDoubled, match="'facts'; give only"):
        await graph.run({"facts": [{"a": 1, "b": 2}, {"c": 3}]}, session_id="s")
    with warnings.catch_warnings():
        warnings.simplefilter("error", SessionStateDoubled)
        assert (await graph.run({"unique": [{"id": "1"}], "facts": [{"a": 7}]}, session_id="s")).completed
