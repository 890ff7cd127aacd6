"""A session store of the user's own: four methods are enough, and a pause and its save are two writes."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest

from tenuto import Store
from tenuto.errors import InvalidInput, SessionSaveFailed, VersionConflict
from tenuto.graph import GraphBuilder, SessionState, save_session
from tenuto.model.session import SessionRecord
from tests.graph.talking import Ran, ended, gate, line, nothing, resumed, says


@dataclass
class Row:
    session_id: str
    state: dict[str, Any]
    schema_version: str
    version: int = 0


class Shelf:
    """Keeps records in a dict; what is told to fail does so once."""

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}
        self.calls: list[str] = []
        self.failing: dict[str, BaseException] = {}

    async def load(self, session_id: str) -> Row | None:
        self._call("load")
        return self.rows.get(session_id)

    async def save(self, session_id: str, record: Any) -> Any:
        self._call("save")
        self._put(session_id, record)

    async def delete(self, session_id: str) -> None:
        self.rows.pop(session_id, None)

    async def list(self, filter: Any = None) -> Any:  # noqa: A002
        return list(self.rows)

    def _put(self, session_id: str, record: Any) -> None:
        version = self.rows[session_id].version + 1 if session_id in self.rows else 1
        self.rows[session_id] = Row(session_id, dict(record.state), record.schema_version, version)

    def _call(self, name: str) -> None:
        self.calls.append(name)
        if fault := self.failing.pop(name, None):
            raise fault


class Versions(Shelf):
    async def save(self, session_id: str, record: Any, *, expected_version: int | None = None) -> Any:
        self._call("save")
        found = self.rows[session_id].version if session_id in self.rows else 0
        if expected_version is not None and expected_version != found:
            raise VersionConflict("moved", key=session_id, expected=expected_version, found=found)
        self._put(session_id, record)


class Locks(Shelf):
    def __init__(self) -> None:
        super().__init__()
        self.lock = asyncio.Lock()

    async def acquire_lock(self, session_id: str) -> None:
        self._call(f"lock {session_id}")
        await self.lock.acquire()

    async def release_lock(self, session_id: str) -> None:
        self._call(f"unlock {session_id}")
        self.lock.release()


async def test_four_methods_are_enough_to_keep_a_session() -> None:
    shelf = Shelf()
    graph = line(says("hi", mood="glad", scratch="gone"), store=shelf)
    assert (await graph.run(session_id="s")).session_existed is False
    row = shelf.rows["s"]
    assert (row.schema_version, row.state) == (
        "memory-5",
        {"messages": ["hi"], "notes": [], "mood": "glad", "count": 0},
    )
    final = await graph.invoke({"messages": ["ask"]}, session_id="s")
    assert final.messages == ["hi", "ask", "hi"]
    shelf.calls.clear()
    await graph.invoke()
    assert shelf.calls == []


@pytest.mark.parametrize(
    ("store", "concurrency", "missing"),
    [
        (object(), "last_write_wins", ["load", "save", "delete", "list"]),
        (Shelf(), "exclusive", ["acquire_lock", "release_lock"]),
        (Shelf(), "optimistic", ["expected_version"]),
    ],
)
def test_a_store_that_lacks_what_is_asked_of_it_is_refused_when_the_graph_is_built(
    store: Any, concurrency: str, missing: list[str]
) -> None:
    with pytest.raises(InvalidInput) as raised:
        line(nothing, store=store, concurrency=concurrency)
    assert raised.value.details()["missing"] == missing


async def test_a_load_that_fails_is_typed_and_nothing_runs() -> None:
    shelf, ran = Shelf(), Ran()
    shelf.failing["load"] = OSError("away")
    out = await line(ran.node("n"), store=shelf).run(session_id="s")
    assert (ended(out), ran.nodes) == ("failed: session_load_failed", [])
    assert isinstance(out.error.__cause__ if out.error else None, OSError)


async def test_a_save_at_the_end_that_fails_can_be_repeated_and_the_run_says_failed(store: Store) -> None:
    shelf = Shelf()
    shelf.failing["save"] = OSError("away")
    graph = line(says("hi"), store=shelf, checkpoints=store)
    out = await graph.run(session_id="s")
    assert ended(out) == "failed: session_save_failed"
    assert isinstance(out.error, SessionSaveFailed)
    assert out.error.final_state.messages == ["hi"]
    (run,) = await store.runs.of_invocation(out.invocation_id)
    assert run.status == "failed"
    await graph.save_again(out.error)
    assert shelf.rows["s"].state["messages"] == ["hi"]


async def test_an_optimistic_conflict_carries_the_final_state() -> None:
    shelf = Versions()

    async def body(_: Any) -> Mapping[str, Any]:
        await line(says("other"), store=shelf, concurrency="optimistic").invoke(session_id="s")
        return {"messages": ["mine"]}

    out = await line(body, store=shelf, concurrency="optimistic").run(session_id="s")
    assert ended(out) == "failed: session_write_conflict"
    assert out.error is not None
    assert out.error.details()["final_state"].messages == ["mine"]
    assert shelf.rows["s"].state["messages"] == ["other"]


async def test_a_run_may_save_often_under_optimistic_without_meeting_itself() -> None:
    shelf = Versions()

    async def body(_: Any) -> Mapping[str, Any]:
        await save_session({"messages": ["a"]})
        await save_session({"messages": ["a", "b"]})
        return {"messages": ["a", "b"]}

    graph = line(body, store=shelf, concurrency="optimistic")
    assert [ended(await graph.run(session_id="s")) for _ in range(2)] == ["completed"] * 2
    assert shelf.rows["s"].state["messages"] == ["a", "b"] * 2


async def test_exclusive_uses_the_stores_own_lock_and_lets_go_of_it_whatever_happens() -> None:
    shelf = Locks()
    graphs = [line(says(f"r{n}"), store=shelf, concurrency="exclusive") for n in range(5)]
    await asyncio.gather(*[graph.run(session_id="s") for graph in graphs])
    assert sorted(shelf.rows["s"].state["messages"]) == [f"r{n}" for n in range(5)]
    shelf.failing["save"] = OSError()
    await graphs[0].run(session_id="s")
    assert not shelf.lock.locked()
    await shelf.lock.acquire()
    busy = line(nothing, store=shelf, concurrency="exclusive", lane_wait=0.01)
    assert ended(await busy.run(session_id="s")) == "failed: session_execution_busy"


async def test_a_lock_that_fails_is_typed_and_an_unlock_that_fails_does_not_hide_the_outcome() -> None:
    shelf, ran = Locks(), Ran()
    graph = line(ran.node("n"), store=shelf, concurrency="exclusive")
    shelf.failing["lock s"] = OSError("away")
    assert (ended(await graph.run(session_id="s")), ran.nodes) == ("failed: session_load_failed", [])
    shelf.failing["unlock s"] = OSError("away")
    assert ended(await graph.run(session_id="s")) == "completed"


def test_a_graph_is_bound_to_a_whole_store_only_so_that_no_store_without_tenants_is_shared_between_them() -> None:
    with pytest.raises(InvalidInput, match="need a store of Tenuto's own"):
        line(says("hi"), store=Shelf()).bind(Shelf(), tenant="a")  # type: ignore[arg-type]


async def test_without_a_checkpointer_there_is_no_place_for_a_pause() -> None:
    shelf = Shelf()
    out = await line(gate(), store=shelf).run(session_id="s")
    assert (ended(out), shelf.rows) == ("failed: suspension_persistence_failed", {})


async def test_a_pause_is_written_first_and_the_session_after_it(store: Store) -> None:
    shelf = Shelf()
    graph = line(says("asked"), gate(), says("end"), store=shelf, checkpoints=store)
    paused = await graph.run(session_id="s")
    assert shelf.rows["s"].state["messages"] == ["asked"]
    out = await resumed(graph, paused)
    assert (ended(out), out.session_id) == ("completed", "s")
    assert shelf.rows["s"].state["messages"] == ["asked", "end"]


class Died(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("saves_before", [False, True])
async def test_a_crash_between_pause_and_save_is_made_good_when_it_is_resumed(store: Store, saves_before: bool) -> None:
    shelf, ran = Shelf(), Ran()
    await line(says("old"), store=shelf).invoke(session_id="s")

    async def ask(_: Any) -> Mapping[str, Any]:
        if saves_before:
            await save_session({"messages": ["asking"]})
        shelf.failing["save"] = Died()
        return {"messages": ["asked"]}

    graph = line(ask, gate(), ran.node("end", says("end")), store=shelf, checkpoints=store)
    with pytest.raises(Died):
        await graph.run(session_id="s", invocation_id="i")
    assert shelf.rows["s"].state["messages"] == ["old", *(["asking"] if saves_before else [])]
    seen: list[Any] = []

    async def look(_: Any) -> Mapping[str, Any]:
        seen.append(shelf.rows["s"].state["messages"])
        return {}

    again = line(ask, gate(), look, store=shelf, checkpoints=store)
    out = await again.run(resume_invocation="i", signal_payload={})
    assert (ended(out), seen) == ("completed", [["old", "asked"]])
    assert shelf.rows["s"].state["messages"] == ["old", "asked"]


async def test_a_save_that_fails_after_the_pause_takes_the_pause_back(store: Store) -> None:
    shelf = Shelf()
    shelf.failing["save"] = OSError("away")
    graph = line(gate(), store=shelf, checkpoints=store)
    out = await graph.run(session_id="s")
    assert ended(out) == "failed: suspension_persistence_failed"
    assert await graph.waiting() == ()
    after = await graph.run(resume_invocation=out.invocation_id, signal_payload={})
    assert ended(after) == "failed: suspension_record_invalid"


async def test_a_session_that_moved_on_is_refused_and_may_be_overwritten_but_not_rebased(store: Store) -> None:
    shelf, ran = Shelf(), Ran()
    graph = line(says("asked"), gate(), ran.node("end", says("end")), store=shelf, checkpoints=store)
    paused = await graph.run(session_id="s")
    await line(says("other"), store=shelf).invoke(session_id="s")
    options: dict[str, Any] = {"resume_invocation": paused.invocation_id, "signal_payload": {}}
    assert ended(await graph.run(**options)) == "failed: session_write_conflict"
    assert ended(await graph.run(on_moved="rebase", **options)) == "failed: invalid_input"
    assert ran.nodes == []
    assert ended(await graph.run(on_moved="overwrite", **options)) == "completed"
    assert shelf.rows["s"].state["messages"] == ["asked", "end"]


async def test_without_auto_save_a_pause_and_its_resume_leave_the_session_alone(store: Store) -> None:
    shelf = Shelf()
    await line(says("old"), store=shelf).invoke(session_id="s")
    before = shelf.rows["s"]
    graph = line(says("asked"), gate(), nothing, store=shelf, checkpoints=store, auto_save=False)
    paused = await graph.run(session_id="s")
    assert ended(await resumed(graph, paused)) == "completed"
    assert shelf.rows["s"] is before


async def test_a_new_version_of_the_session_is_no_move(store: Store) -> None:
    class Later(SessionState):
        schema_version: ClassVar[str] = "memory-6"
        messages: list[str]
        mood: str

    def build(builder: GraphBuilder[Any]) -> None:
        builder.with_session_migration("memory-5", "memory-6", lambda s: {k: s[k] for k in ("messages", "mood")})

    shelf = Shelf()
    paused = await line(says("asked"), gate(), nothing, store=shelf, checkpoints=store).run(session_id="s")
    later = line(nothing, nothing, says("end"), store=shelf, state=Later, checkpoints=store, build=build)
    assert ended(await resumed(later, paused)) == "completed"
    assert (shelf.rows["s"].schema_version, shelf.rows["s"].state["messages"]) == ("memory-6", ["asked", "end"])


async def test_a_run_resumed_from_a_checkpoint_still_has_its_session(store: Store) -> None:
    shelf, bodies = Shelf(), [gate()]

    async def fails(_: Any) -> Mapping[str, Any]:
        raise ValueError

    bodies = [fails]
    graph = line(says("asked"), lambda state: bodies[0](state), store=shelf, checkpoints=store)
    out = await graph.run(session_id="s")
    assert (ended(out), shelf.rows) == ("failed: node_exception", {})
    bodies = [says("end")]
    after = await graph.run(resume_invocation=out.invocation_id)
    assert (ended(after), after.session_id) == ("completed", "s")
    assert shelf.rows["s"].state["messages"] == ["asked", "end"]


async def test_a_bound_graph_keeps_its_sessions_where_its_checkpoints_are_whatever_it_was_built_with(
    store: Store,
) -> None:
    shelf = Shelf()
    graph = line(says("hi"), store=shelf, checkpoints=store)
    for bound in (graph.bind(store, tenant="a"), line(says("hi"), store=shelf).bind(store, tenant="a")):
        await bound.invoke(session_id="s")
    assert (await graph.bind(store, tenant="b").run(session_id="s")).session_existed is False
    assert (await graph.bind(store, tenant="a").run(session_id="s")).session_existed is True
    assert shelf.rows == {}


class Records:
    """Keeps the records it is given, as the protocol's types say, and counts versions."""

    def __init__(self, *, fills: bool) -> None:
        self.records: dict[str, SessionRecord] = {}
        self.versions: dict[str, int] = {}
        self.fills = fills

    async def load(self, session_id: str) -> SessionRecord | None:
        record = self.records.get(session_id)
        if record is None or not self.fills:
            return record
        return replace(record, version=self.versions[session_id])

    async def save(self, session_id: str, record: SessionRecord, *, expected_version: int | None = None) -> None:
        found = self.versions.get(session_id, 0)
        if expected_version is not None and expected_version != found:
            raise VersionConflict("moved", expected=expected_version, found=found)
        self.versions[session_id] = found + 1
        self.records[session_id] = replace(record, version=0) if self.fills else record

    async def delete(self, session_id: str) -> None:
        self.records.pop(session_id, None)

    async def list(self, filter: Any = None) -> Any:  # noqa: A002
        return list(self.records)


@pytest.mark.parametrize("fills", [True, False])
async def test_a_record_as_the_protocol_has_it_keeps_its_version(fills: bool) -> None:
    store = Records(fills=fills)
    graph = line(says("a"), store=store, concurrency="optimistic")
    for turn in range(3):
        assert ended(await graph.run(session_id="s")) == "completed"
        assert store.versions["s"] == turn + 1

    async def overtaken(_: Any) -> Mapping[str, Any]:
        store.versions["s"] += 1
        return {}

    late = await line(overtaken, store=store, concurrency="optimistic").run(session_id="s")
    assert ended(late) == "failed: session_write_conflict"
